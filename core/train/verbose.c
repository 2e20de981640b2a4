// SPDX-License-Identifier: Apache-2.0
// What a person reads before and after a fit: what runs; with --verbose, what was planned and where the time went.
#include "core/train/fit.h"

// Examples of a block of a full batch that this replica computes; 0: its share has none there.
static uint64_t block_size(const struct ls_fit *fit, uint32_t block)
{
    const struct ls_session *session = fit->session;
    const uint64_t examples = ls_data_count(fit->train);
    const struct ls_shares shares = ls_model_division(fit->model);
    uint64_t offset, size;
    ls_share_block(&shares, examples < fit->plan.global_batch ? examples : fit->plan.global_batch,
                   session->need.microbatches, ls_session_share(session, 0), block, &offset, &size);
    return size;
}

// The program of the first one; NULL: none was made.
static const struct ls_program *main_program(const struct ls_fit *fit)
{
    return ls_replica_training_program(fit->session->replicas[0], block_size(fit, 0), NULL);
}

static bool normalizes(const struct ls_fit *fit)
{
    const struct ls_graph *graph = fit->model->graph;
    for (uint32_t i = 0; i < graph->operation_count; i++)
        if (graph->operations[i].op == LS_OP_BATCH_NORMALIZATION)
            return true;
    return false;
}

// One line that leaves no doubt about what was chosen, also by default.
static void print_setting(const struct ls_fit *fit, FILE *out)
{
    const struct ls_run *run = fit->run;
    const struct ls_resolved_strategy *strategy = &run->strategy;
    const uint32_t world = ls_cluster_world(run->workers.cluster),
                   own = ls_cluster_count(run->workers.cluster);
    const struct ls_device_interface *device = run->device->interface;
    fprintf(out, "%s on %s: %u replica%s", fit->model->source, fit->train->name, world,
            world == 1 ? "" : "s");
    if (device->memory_kind == LS_MEMORY_HOST) // others have threads of their own
        fprintf(out, " of %u thread%s", run->threads, run->threads == 1 ? "" : "s");
    fprintf(out, " on %s (%s)", run->device->plugin->name, run->hardware);
    if (run->devices > 1)
        fprintf(out, ", %son %u of its %u devices",
                ls_cluster_workers(run->workers.cluster) > 1 ? "worker 0 " : "",
                own < run->chosen_count ? own : run->chosen_count, run->devices);
    for (uint32_t i = 0; run->chosen_count < run->devices && i < run->chosen_count; i++)
        fprintf(out, "%s%u", i ? "," : " (", run->chosen[i]);
    if (run->chosen_count < run->devices)
        fputc(')', out);
    fprintf(out, ", strategy %s", strategy->strategy->plugin->name);
    if (strategy->collective && strategy->transport)
        fprintf(out, " (%s over %s)", strategy->collective->plugin->name,
                strategy->transport->plugin->name);
    else if (strategy->collective)
        fprintf(out, " (%s)", strategy->collective->plugin->name);
    const struct ls_driver_totals totals = ls_driver_totals(fit->session->driver);
    if (totals.collective && !strategy->collective)
        fprintf(out, " (statistics: %s over %s)", totals.collective, totals.transport);
    if (run->workers.served.servers)
        fprintf(out, ", worker %u of %u with %u server%s", run->workers.served.number,
                run->workers.served.workers, run->workers.served.servers,
                run->workers.served.servers == 1 ? "" : "s");
    fprintf(out, ", %llu examples a step", (unsigned long long)fit->plan.global_batch);
    if (run->shards)
        fprintf(out, " in %u logical shards (reproducible%s)", run->shards,
                normalizes(fit) ? "; each has its own statistics of BatchNormalization" : "");
    for (uint32_t i = 0; i < run->share_group_count; i++)
        fprintf(out, "%s%u", i ? "," : " in shares of ", run->share_groups[i].weight);
    fputc('\n', out);
    fflush(out);
}

static void print_buckets(const struct ls_fit *fit, FILE *out)
{
    const struct ls_replica *replica = fit->session->replicas[0];
    const struct ls_buckets *buckets = ls_replica_buckets(replica);
    const struct ls_parameter_place *places = ls_replica_plan(replica)->places;
    for (uint32_t i = 0; i < buckets->count; i++) {
        const struct ls_bucket *bucket = &buckets->list[i];
        uint64_t first, count;
        ls_buckets_reduced(buckets, i, &first, &count);
        const uint64_t bytes = count * sizeof(float);
        const char *algorithm = ls_run_algorithm(fit->run, bytes);
        fprintf(out, "bucket %u: %llu bytes, %s to %s%s%s\n", i, (unsigned long long)bytes,
                places[bucket->first_place].parameter->name,
                places[bucket->first_place + bucket->place_count - 1].parameter->name,
                algorithm ? ", reduced by " : "", algorithm ? algorithm : "");
    }
}

// Silent where nothing is reduced.
static void print_check(const struct ls_fit *fit, FILE *out)
{
    double seconds;
    const char *check = ls_driver_schedule_check(fit->session->driver, &seconds);
    if (seconds > 0 && fit->run->strategy.collective)
        fprintf(out, "schedules of collective %s: %s, in %.2f ms\n",
                fit->run->strategy.collective->plugin->name, check, seconds * 1e3);
}

// Silent where the device reads host memory.
static void print_input(const struct ls_fit *fit, uint64_t examples, FILE *out)
{
    const struct ls_replica *replica = fit->session->replicas[0];
    const struct ls_graph *graph = fit->model->graph;
    const uint64_t bytes = ls_replica_input_bytes(replica, examples);
    if (!bytes)
        return;
    fprintf(out, "input of a step: %llu bytes to the device, examples as ",
            (unsigned long long)bytes);
    for (uint32_t i = 0; i < graph->input_count; i++)
        fprintf(out, "%s%s", i ? ", " : "",
                ls_replica_takes_bytes(replica) >> i & 1 ? "bytes"
                : graph->inputs[i]->dtype == LS_I32      ? "int32"
                                                         : "float32");
    fputc('\n', out);
}

static void print_program(const struct ls_fit *fit, const struct ls_program *program, FILE *out)
{
    const struct ls_parameter_plan *plan = program->plan;
    uint32_t conversions = 0, slow = 0;
    for (uint32_t i = 0; i < program->step_count; i++) {
        conversions += program->steps[i].converts_activation;
        slow += program->steps[i].slow;
    }
    fprintf(
        out,
        "program for %lld examples: %u kernels, %u conversions of activations, %u slow kernels\n",
        (long long)program->options.batch, program->step_count, conversions, slow);
    if (program->branch_count)
        fprintf(out, "kernels on a second stream, beside the others: %u\n", program->branch_count);
    print_input(fit, (uint64_t)program->options.batch, out);
    fprintf(out, "weights with a second layout: %u", plan->shadow_count);
    for (uint32_t i = 0; i < plan->shadow_count; i++)
        fprintf(out, "%s%s%s", i ? ", " : ": ",
                plan->places[plan->shadows[i].place].parameter->name,
                plan->shadows[i].dtype == LS_BF16  ? " as bfloat16"
                : plan->shadows[i].dtype == LS_F16 ? " as float16"
                                                   : "");
    fprintf(out,
            "\nmemory of activations and gradients: %.2f MB planned, %.2f MB without sharing\n",
            (double)program->arena_bytes * 1e-6, (double)program->unplanned_bytes * 1e-6);
}

static void print_plan(const struct ls_fit *fit, FILE *out)
{
    const struct ls_program *program = main_program(fit);
    char library[64];
    ls_run_library(fit->run, library);
    if (library[0])
        fprintf(out, "collective %s: %s\n", fit->run->strategy.collective->plugin->name, library);
    ls_run_topology_print(&fit->run->topology, out);
    ls_tuning_print(&fit->run->tuning, out);
    if (ls_replica_plan(fit->session->replicas[0])->place_count)
        print_buckets(fit, out);
    print_check(fit, out);
    if (program)
        print_program(fit, program, out);
    fflush(out);
}

static void print_line(FILE *out, const char *label, double seconds, double step, const char *note)
{
    fprintf(out, "%-44s %10.1f %6.1f%%  %s\n", label, seconds * 1e6, 100 * seconds / step, note);
}

// What the kernels take in the blocks of a step that are as large as this one: a line for each
// kernel, or for the blocks together where they are not those of the first block's size.
static double print_block(const struct ls_fit *fit, uint32_t block, double step, FILE *out)
{
    const uint64_t size = block_size(fit, block);
    uint64_t runs, alike = 0;
    const struct ls_program *program =
        ls_replica_training_program(fit->session->replicas[0], size, &runs);
    double kernels = 0;
    char label[64];

    for (uint32_t i = 0; i < fit->session->need.microbatches; i++) {
        if (block_size(fit, i) == size && i < block)
            return 0; // a line of these is there
        alike += block_size(fit, i) == size;
    }
    for (uint32_t i = 0; program && runs && i < program->step_count; i++) {
        const struct ls_program_step *kernel = &program->steps[i];
        const double seconds = (double)kernel->nanoseconds * 1e-9 * (double)alike / (double)runs;
        kernels += seconds;
        if (block == 0)
            print_line(out, kernel->label, seconds, step, kernel->implementation);
    }
    snprintf(label, sizeof(label), "kernels of blocks of %llu", (unsigned long long)size);
    if (block != 0 && kernels > 0)
        print_line(out, label, kernels, step, "");
    return kernels;
}

// Kernels that are replayed together have no times of their own.
static double print_kernels(const struct ls_fit *fit, double compute, double step, FILE *out)
{
    const struct ls_replica *replica = fit->session->replicas[0];
    char recording[LS_RECORDING_TEXT];
    const char *how = ls_replica_recording(replica, recording, sizeof(recording));
    double kernels = 0;
    if (how && ls_replica_replays(replica)) {
        print_line(out, "kernels, handed over by replays", compute, step, how);
        return compute;
    }
    if (how)
        fprintf(out, "steps are %s; times are those of handing kernels over\n", how);
    for (uint32_t i = 0; i < fit->session->need.microbatches; i++)
        kernels += print_block(fit, i, step, out);
    return kernels;
}

// Means throughout, of the steps of a full batch but the first, so that the rows add up. Beyond
// LS_HISTORY_STEPS steps they add up only about: the kernels' means are of all steps of the fit,
// the others of the last so many.
static void print_times(const struct ls_fit *fit, FILE *out)
{
    const struct ls_replica *replica = fit->session->replicas[0];
    double parts[LS_PART_COUNT];
    uint64_t runs, share = 0;
    for (uint32_t i = 0; i < fit->session->need.microbatches; i++)
        share += block_size(fit, i);
    ls_history_means(&fit->history, share, parts);
    const double step = parts[LS_PART_STEP];
    ls_replica_training_program(replica, block_size(fit, 0), &runs);
    if (step <= 0 || (runs == 0 && !ls_replica_replays(replica)))
        return;
    fprintf(out, "\n%-44s %10s %7s\n", "where the time of a step goes (replica 0)", "us", "share");
    const double kernels = print_kernels(fit, parts[LS_PART_COMPUTE], step, out);
    print_line(out, "optimizer update, second layouts", parts[LS_PART_UPDATE], step, "");
    print_line(out, "waiting for the reduction", parts[LS_PART_EXPOSED], step, "");
    print_line(out, "waiting for input", parts[LS_PART_INPUT], step, "");
    if (!ls_device_blocking(ls_replica_device(replica)))
        print_line(out, "waiting for the device", parts[LS_PART_DEVICE], step, "");
    print_line(out, "everything else",
               step - kernels - parts[LS_PART_UPDATE] - parts[LS_PART_EXPOSED] -
                   parts[LS_PART_INPUT] - parts[LS_PART_DEVICE],
               step, "");
    print_line(out, "step (mean)", step, step, "");
    fflush(out);
}

static enum ls_status on_train_begin(void *context, const struct ls_fit_state *state)
{
    const struct ls_fit *fit = context;
    (void)state;
    if (fit->run->progress)
        print_setting(fit, stdout);
    if (fit->run->verbose)
        print_plan(fit, stdout);
    return LS_OK;
}

static enum ls_status on_train_end(void *context, const struct ls_fit_state *state)
{
    const struct ls_fit *fit = context;
    if (fit->run->verbose && fit->hashes && state->steps_done)
        print_times(fit, stdout);
    return LS_OK;
}

struct ls_client ls_fit_verbose_client(struct ls_fit *fit)
{
    return (struct ls_client){.callbacks = {.context = fit,
                                            .on_train_begin = on_train_begin,
                                            .on_train_end = on_train_end}};
}
