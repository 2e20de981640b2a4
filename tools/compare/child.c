// SPDX-License-Identifier: Apache-2.0
// The process of one run.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // O_CLOEXEC, getrandom, MAP_ANONYMOUS
#endif
#include "tools/compare/child.h"

#include "core/base/child.h"
#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/loader/loader.h"
#include "core/plugin/filter.h"
#include "core/plugin/strategy.h"
#include "core/model/model.h"
#include "core/train/model_calls.h"
#include "tools/compare/list.h"
#include "tools/compare/recording.h"
#include "tools/last_words.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

#define STEPS_AT_FIRST 65536
#define POLL_MS 1000
#define PULSE_NS UINT64_C(5000000000) // a quarter of the deadline where that is less

struct life {
    const struct compare_setting *setting;
    const struct compare_entry *entry;
    const struct compare_place *place;
    struct ls_run *run;
    uint64_t allowed; // steps that are left of this turn
    uint64_t turn; // from 1
    bool ended; // no turn will come
    struct compare_step *steps;
    size_t step_count, step_capacity;
    bool incomplete; // a step found no memory
    uint64_t trained_ns, begun_ns; // before this segment; when it began
    // Of a timed one, in this turn.
    uint64_t turn_steps; // with the first
    uint64_t first_ns, last_ns; // of training, at the end of the first step and of the last one
    uint64_t timed_examples; // after the first step
};

// ---- The process ----

static struct ls_run *_Atomic interruptible;

static void on_interrupt(int number)
{
    (void)number;
    struct ls_run *run = atomic_load(&interruptible);
    if (!run)
        _exit(LS_INTERRUPTED);
    ls_run_interrupt(run);
}

static char *path_of(const struct compare_place *place, const char *name)
{
    const size_t bytes = strlen(place->folder) + strlen(name) + 2;
    char *path = malloc(bytes);
    if (path)
        snprintf(path, bytes, "%s/%s", place->folder, name);
    return path;
}

// Signals that the parent ignores stay ignored.
static void settle(const struct compare_place *place)
{
    struct sigaction action = {.sa_handler = on_interrupt}, before;
    last_words_take();
    ls_child_settle(0, place->messages >= 0 ? place->messages : 0);
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        if (sigaction(numbers[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
            sigaction(numbers[i], &action, NULL);
    signal(SIGPIPE, SIG_DFL);
}

// Where data lie in memory changes speed by chance, and children of one parent have the same
// places: a timed one moves its own by a random amount, so that this is part of what its processes
// differ in, and not of what runs differ in. Returns what the caller is to free.
static void *move_memory(void)
{
    uint32_t amounts[2] = {0};
    (void)!getrandom(amounts, sizeof(amounts), 0);
    const size_t pages = amounts[1] % 512 + 1;
    (void)!mmap(NULL, pages * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return malloc(amounts[0] % 65536 + 1);
}

// ---- Turns ----

static void change_phase(const struct life *life, enum compare_phase phase)
{
    atomic_store(&life->place->shared->phase, (uint32_t)phase);
    atomic_fetch_add(&life->place->shared->beat, 1);
}

static void say(const struct life *life, char word)
{
    while (write(life->place->answers, &word, 1) < 0 && errno == EINTR)
        ;
}

// What the process of worker 0 tells the others of the run.
struct turn {
    uint64_t steps; // 0: end
    uint64_t given; // 0: none has come, wait on
};

// A turn without steps when there is none any more: the parent is gone, or wants the end. Nothing
// is given within `patience_ns`.
static struct turn read_word(const struct life *life, uint64_t patience_ns)
{
    struct turn turn = {0};
    const uint64_t begin = ls_clock_ns();
    for (;;) {
        struct pollfd ready = {.fd = life->place->words, .events = POLLIN};
        const uint64_t waited = ls_clock_ns() - begin;
        if (atomic_load(&life->run->interrupted))
            return (struct turn){.given = 1};
        if (waited > patience_ns)
            return turn;
        const uint64_t left_ms = (patience_ns - waited) / 1000000 + 1;
        if (poll(&ready, 1, left_ms < POLL_MS ? (int)left_ms : POLL_MS) <= 0)
            continue;
        const ssize_t got = read(life->place->words, &turn.steps, sizeof(turn.steps));
        if (got < 0 && errno == EINTR)
            continue;
        return (struct turn){.steps = got == (ssize_t)sizeof(turn.steps) ? turn.steps : 0,
                             .given = 1};
    }
}

// Others of the run wait for worker 0's word as long as that takes: it says in time that there is
// none yet, so that no deadline passes.
static enum ls_status wait_for_turn(struct life *life)
{
    const struct ls_run *run = life->run;
    const bool alone = !life->place->meeting, first = alone || life->place->meeting->worker == 0;
    const uint64_t quarter = run->deadline_ns / 4;
    const uint64_t patience = alone ? UINT64_MAX : quarter < PULSE_NS ? quarter : PULSE_NS;
    struct turn turn = {0};
    enum ls_status status = LS_OK;
    change_phase(life, COMPARE_WAITING);
    if (first)
        say(life, life->turn == 0 ? COMPARE_SAYS_READY : COMPARE_SAYS_DONE);
    while (!status && !turn.given) {
        if (first)
            turn = read_word(life, patience);
        if (!alone)
            status = ls_cluster_broadcast(run->workers.cluster, &turn, sizeof(turn), 0);
    }
    life->allowed = status ? 0 : turn.steps;
    life->ended = life->allowed == 0;
    life->turn++;
    life->turn_steps = life->timed_examples = 0;
    return status;
}

// Waits until there are steps to do. A child without any ends as if interrupted.
static enum ls_status begin_segment(void *context, const struct ls_fit_state *state,
                                    uint64_t *steps)
{
    struct life *life = context;
    (void)state;
    if (!life->allowed && !life->ended) {
        const enum ls_status status = wait_for_turn(life);
        if (status)
            return status;
    }
    if (!life->allowed)
        return LS_INTERRUPTED;
    if (*steps > life->allowed)
        *steps = life->allowed;
    change_phase(life, COMPARE_STEPPING);
    life->begun_ns = ls_clock_ns();
    return LS_OK;
}

static uint64_t ns_so_far(const struct life *life)
{
    return life->trained_ns + ls_clock_ns() - life->begun_ns;
}

static double seconds_so_far(const struct life *life)
{
    return (double)ns_so_far(life) * 1e-9;
}

static enum ls_status note_step(void *context, const struct ls_fit_state *state)
{
    struct life *life = context;
    atomic_fetch_add(&life->place->shared->beat, 1);
    if (life->allowed)
        life->allowed--;
    if (!life->place->folder)
        return LS_OK;
    if (life->step_count == life->step_capacity) {
        const size_t capacity = 2 * life->step_capacity;
        struct compare_step *grown = realloc(life->steps, capacity * sizeof(*grown));
        if (!grown) {
            life->incomplete = true;
            return LS_OK; // write_steps says so
        }
        life->steps = grown;
        life->step_capacity = capacity;
    }
    life->steps[life->step_count++] =
        (struct compare_step){.seconds = seconds_so_far(life),
                              .loss = ls_metric_value(&state->step_metrics, "loss"),
                              .accuracy = ls_metric_value(&state->step_metrics, "accuracy"),
                              .examples = (double)state->step_examples,
                              .turn = life->turn};
    return LS_OK;
}

// What other replicas did after replica 0 belongs to the last step.
static enum ls_status end_segment(void *context, const struct ls_fit_state *state)
{
    struct life *life = context;
    (void)state;
    const double seconds = seconds_so_far(life);
    life->trained_ns += ls_clock_ns() - life->begun_ns;
    if (life->step_count)
        life->steps[life->step_count - 1].seconds = seconds;
    change_phase(life, COMPARE_WORKING);
    return LS_OK;
}

static enum ls_status time_step(void *context, const struct ls_fit_state *state)
{
    struct life *life = context;
    atomic_fetch_add(&life->place->shared->beat, 1);
    if (life->allowed)
        life->allowed--;
    life->last_ns = ns_so_far(life);
    if (life->turn_steps++ == 0)
        life->first_ns = life->last_ns;
    else
        life->timed_examples += state->step_examples;
    return LS_OK;
}

static enum ls_status end_timed_segment(void *context, const struct ls_fit_state *state)
{
    struct life *life = context;
    (void)state;
    struct compare_shared *shared = life->place->shared;
    life->last_ns = ns_so_far(life); // what other replicas did after replica 0, too
    life->trained_ns = life->last_ns;
    atomic_store(&shared->timed_steps, life->turn_steps ? life->turn_steps - 1 : 0);
    atomic_store(&shared->timed_examples, life->timed_examples);
    atomic_store(&shared->timed_ns, life->turn_steps > 1 ? life->last_ns - life->first_ns : 0);
    change_phase(life, COMPARE_WORKING);
    return LS_OK;
}

static enum ls_status begin_validation(void *context, const struct ls_fit_state *state)
{
    (void)state;
    change_phase(context, COMPARE_WORKING);
    return LS_OK;
}

static uint32_t statistics_of(const struct ls_graph *graph)
{
    uint32_t found = 0;
    for (uint32_t i = 0; i < graph->operation_count; i++) {
        const enum ls_op op = graph->operations[i].op;
        found |= op == LS_OP_BATCH_NORMALIZATION                ? COMPARE_OF_SHARES
                 : op == LS_OP_BATCH_NORMALIZATION_SYNCHRONIZED ? COMPARE_SYNCHRONIZED
                                                                : 0;
    }
    return found;
}

static enum ls_compared_way way_of(const struct life *life, const struct ls_fit_state *state)
{
    const struct ls_strategy_interface *strategy = life->run->strategy.strategy->interface;
    return state->asynchronous                                         ? LS_WAY_ASYNCHRONOUS
           : strategy->rounds                                          ? LS_WAY_ROUNDS
           : life->run->filter && compare_entry_world(life->entry) > 1 ? LS_WAY_FILTERED
                                                                       : LS_WAY_PLAIN;
}

static enum ls_status note_prepared(void *context, const struct ls_fit_state *state)
{
    struct life *life = context;
    struct compare_shared *shared = life->place->shared;
    shared->steps = state->steps;
    shared->epoch_steps = state->epoch_steps;
    shared->accuracy = ls_metric_set_has(&state->model->metrics, "accuracy");
    snprintf(shared->device, sizeof(shared->device), "%s", state->model->run->device->plugin->name);
    shared->way = (uint32_t)way_of(life, state);
    const struct ls_opened_plugin *filter = life->run->filter;
    const struct ls_filter_interface *filters = filter ? filter->interface : NULL;
    shared->filter_begins = filters && filters->begins ? filters->begins(filter->host) : 0;
    shared->statistics = statistics_of(state->model->graph);
    shared->dtype = ls_graph_computes_in(state->model->graph, LS_BF16)  ? LS_BF16
                    : ls_graph_computes_in(state->model->graph, LS_F16) ? LS_F16
                                                                        : LS_F32;
    if (life->entry->timed || !life->place->folder)
        return LS_OK;
    life->step_capacity = state->steps < STEPS_AT_FIRST ? (size_t)state->steps + 1 : STEPS_AT_FIRST;
    life->steps = malloc(life->step_capacity * sizeof(*life->steps));
    if (!life->steps) {
        life->step_capacity = 0;
        life->incomplete = true; // write_steps says so
        return LS_OUT_OF_MEMORY;
    }
    return LS_OK;
}

// ---- Training ----

struct inputs {
    struct ls_model *model;
    struct ls_data *train, *validation;
};

// Every other weight goes up, so that their sum stays. Zero, as most biases begin, is exact.
static enum ls_status nudge_weights(struct ls_model *model)
{
    const enum ls_status status = ls_model_need_weights(model);
    for (uint32_t i = 0; !status && i < model->graph->parameter_count; i++) {
        float *values = model->weights[i];
        const uint64_t count = (uint64_t)ls_shape_elements(&model->graph->parameters[i]->shape, 1);
        for (uint64_t k = 0; k < count; k++)
            if (values[k] != 0)
                values[k] = nextafterf(values[k], k % 2 ? INFINITY : -INFINITY);
    }
    return status;
}

static enum ls_status nudge(struct ls_model *model, const struct compare_entry *entry)
{
    model->optimizer.learning_rate *= 1 + entry->nudge_rate;
    model->optimizer.rate_factor *= 1 + entry->nudge_rate;
    return entry->nudge_weights ? nudge_weights(model) : LS_OK;
}

static enum ls_status open_inputs(struct life *life, struct inputs *inputs)
{
    const struct compare_setting *setting = life->setting;
    enum ls_status status = LS_OK;
    inputs->train = life->entry->train;
    if (!inputs->train)
        status = ls_run_data_open(life->run, setting->dataset, "train", &inputs->train);
    if (!status && setting->validation && !life->entry->timed)
        status = ls_run_data_open(life->run, setting->dataset, "validation", &inputs->validation);
    if (!status)
        status = ls_open_model_for_weights(life->run, setting->model, inputs->train,
                                           setting->initial_weights, &inputs->model);
    if (!status)
        status = ls_compile(inputs->model, &setting->compile);
    if (!status && setting->initial_weights)
        status = ls_load_weights(inputs->model, setting->initial_weights);
    if (!status)
        status = nudge(inputs->model, life->entry);
    return status;
}

static enum ls_status write_steps(const struct life *life)
{
    char *path = path_of(life->place, COMPARE_STEPS);
    FILE *file = path ? fopen(path, "w") : NULL;
    bool written = file != NULL;
    if (written && life->step_count)
        written =
            fwrite(life->steps, sizeof(*life->steps), life->step_count, file) == life->step_count;
    written = written && fflush(file) == 0;
    if (life->incomplete || !path)
        ls_error("compare", "no memory for the losses of '%s'", life->entry->strategy);
    else if (!written)
        ls_error("compare", "cannot write '%s': %s", path, strerror(errno));
    if (file)
        fclose(file);
    free(path);
    return written && !life->incomplete ? LS_OK : LS_FAILED;
}

// Trains without end, turn by turn; that the end is an interruption is what was asked for.
static enum ls_status fit_timed(struct life *life, const struct inputs *inputs)
{
    const struct ls_callbacks callbacks = {.context = life,
                                           .on_train_begin = note_prepared,
                                           .on_segment_begin = begin_segment,
                                           .on_segment_end = end_timed_segment,
                                           .on_train_batch_end = time_step,
                                           .on_test_begin = begin_validation};
    struct ls_fit_options options = life->setting->fit;
    options.batch = life->entry->batch;
    options.replica_batch = 0;
    options.microbatches = life->entry->microbatches;
    options.epochs = UINT32_MAX;
    options.steps = 0;
    options.callbacks = &callbacks;
    options.callback_count = 1;
    const enum ls_status status = ls_fit(inputs->model, inputs->train, &options);
    return status == LS_INTERRUPTED && life->ended ? LS_OK : status;
}

static enum ls_status fit(struct life *life, const struct inputs *inputs)
{
    const struct ls_callbacks callbacks = {.context = life,
                                           .on_train_begin = note_prepared,
                                           .on_segment_begin = begin_segment,
                                           .on_segment_end = end_segment,
                                           .on_train_batch_end = note_step,
                                           .on_test_begin = begin_validation};
    const bool keeps = life->place->folder != NULL;
    char *report = keeps ? path_of(life->place, COMPARE_REPORT) : NULL;
    char *weights = keeps ? path_of(life->place, COMPARE_WEIGHTS) : NULL;
    struct ls_fit_options options = life->setting->fit;
    options.batch = life->entry->batch;
    options.replica_batch = 0;
    options.microbatches = life->entry->microbatches;
    options.validation = inputs->validation;
    options.report = report;
    options.command = "compare";
    options.callbacks = &callbacks;
    options.callback_count = 1;
    enum ls_status status = !keeps || (report && weights) ? LS_OK : LS_OUT_OF_MEMORY;
    if (!status)
        status = ls_fit(inputs->model, inputs->train, &options);
    const enum ls_status kept = keeps ? write_steps(life) : LS_OK;
    if (keeps && (status == LS_OK || status == LS_INTERRUPTED)) {
        const enum ls_status saved = ls_save_weights(inputs->model, weights);
        status = saved ? saved : kept ? kept : status;
    } else if (status == LS_OK || status == LS_INTERRUPTED) {
        const enum ls_status lent = ls_lend_weights(inputs->model); // where another process keeps
        status = lent ? lent : status;
    }
    free(report);
    free(weights);
    return status;
}

static void set_number(const char *name, uint32_t number)
{
    char text[16];
    snprintf(text, sizeof(text), "%u", number);
    setenv(name, text, 1);
}

// The processes of a run are workers of their own, as if `lockstep launch` had started them. The
// place that another launcher has given belongs to the process that it started: MPI would wait for
// ever for a second one with the same rank.
static void take_place(const struct compare_meeting *meeting)
{
    static const char *const others[] = {"LOCKSTEP_SECRET_FILE",
                                         "LOCKSTEP_SERVERS",
                                         "LOCKSTEP_JOIN",
                                         "LOCKSTEP_LISTEN_FD",
                                         "LOCKSTEP_SERVER_ADDRESSES",
                                         "LOCKSTEP_SERVER_FOLDER",
                                         "LOCKSTEP_LOCAL_RANK",
                                         "LOCKSTEP_LOCAL_WORLD_SIZE",
                                         "LOCKSTEP_JOB",
                                         "LOCKSTEP_RESTART_COUNT",
                                         "OMPI_COMM_WORLD_SIZE",
                                         "PMIX_RANK",
                                         "PMI_RANK"};
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        unsetenv(others[i]);
    setenv("LOCKSTEP_ROLE", "worker", 1);
    set_number("LOCKSTEP_RANK", meeting->worker);
    set_number("LOCKSTEP_WORLD_SIZE", meeting->workers);
    if (meeting->local_workers) {
        set_number("LOCKSTEP_LOCAL_RANK", meeting->local_worker);
        set_number("LOCKSTEP_LOCAL_WORLD_SIZE", meeting->local_workers);
    }
    setenv("LOCKSTEP_ADDRESS", meeting->address, 1);
    setenv("LOCKSTEP_SECRET", meeting->secret, 1);
    if (meeting->listener >= 0)
        set_number("LOCKSTEP_LISTEN_FD", (uint32_t)meeting->listener);
}

static enum ls_status refuse_mpi(const struct ls_run *run)
{
    const struct ls_opened_plugin *collective = run->strategy.collective;
    if (!collective || strcmp(collective->plugin->name, "mpi") != 0)
        return LS_OK;
    ls_error(NULL, "collective mpi is for the processes that mpirun starts, and compare trains in "
                   "others, which it starts itself; measure it with lockstep train or bench");
    return LS_UNAVAILABLE;
}

// One device computes all shards, one after the other.
static enum ls_status refuse_shards(const struct life *life, const struct ls_graph *graph)
{
    if (life->setting->run.reproducible < 2 || compare_entry_world(life->entry) > 1 ||
        !(statistics_of(graph) & COMPARE_SYNCHRONIZED))
        return LS_OK;
    ls_error("--reproducible",
             "the model has layers with statistics of all replicas (synchronized), and the "
             "reference is one device, which cannot have these shards; leave --reproducible out");
    return LS_USAGE;
}

// Nothing but of a run that keeps its results, where somebody asks for it.
static enum ls_status begin_recording(const struct life *life, struct ls_trace **out)
{
    const struct ls_trace_options options = {.most_spans = COMPARE_RECORDED_SPANS,
                                             .steppers = life->entry->replicas,
                                             .without_messages = true};
    const bool wanted = life->setting->records && !life->entry->timed && life->place->folder;
    return wanted ? ls_trace_create(&options, out) : LS_OK;
}

// When the threads that were recorded have ended.
static enum ls_status end_recording(const struct life *life, struct ls_trace *trace,
                                    enum ls_status status)
{
    char *path = trace ? path_of(life->place, COMPARE_RECORDING) : NULL;
    if (trace && (status == LS_OK || status == LS_INTERRUPTED)) {
        const enum ls_status written =
            path ? compare_recording_write(trace, path) : LS_OUT_OF_MEMORY;
        status = written ? written : status;
    }
    ls_trace_destroy(trace);
    free(path);
    return status;
}

void compare_child_live(const struct compare_setting *setting, const struct compare_entry *entry,
                        const struct compare_place *place)
{
    struct life life = {.setting = setting, .entry = entry, .place = place};
    struct inputs inputs = {0};
    struct ls_run_options options = setting->run;
    char *strategy = compare_item_strategy(entry->strategy);
    settle(place);
    void *room = entry->timed ? move_memory() : NULL;
    options.strategy = strategy;
    options.compress = compare_item_filter(entry->strategy);
    options.replicas = entry->replicas;
    options.threads = entry->threads;
    options.progress = 0;
    options.cluster = place->meeting ? "launch" : "none";
    if (place->meeting)
        take_place(place->meeting);
    struct ls_trace *trace = NULL;
    enum ls_status status = strategy ? begin_recording(&life, &trace) : LS_OUT_OF_MEMORY;
    if (!status)
        status = ls_run_open(&options, &life.run);
    if (!status) {
        atomic_store(&interruptible, life.run);
        status = place->meeting ? refuse_mpi(life.run) : LS_OK;
    }
    if (!status)
        status = open_inputs(&life, &inputs);
    if (!status)
        status = refuse_shards(&life, inputs.model->graph);
    if (!status)
        status = entry->timed ? fit_timed(&life, &inputs) : fit(&life, &inputs);
    atomic_store(&interruptible, NULL);
    ls_model_close(inputs.model);
    ls_run_close(life.run);
    ls_data_close(inputs.train);
    ls_data_close(inputs.validation);
    status = end_recording(&life, trace, status);
    free(room);
    free(strategy);
    _exit(ls_status_exit_code(status));
}

static bool is_there(const struct ls_plugin_entry *entries, size_t count, uint32_t kinds,
                     const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (kinds & 1u << entries[i].kind && strcmp(entries[i].name, name) == 0)
            return true;
    return false;
}

// Whether a part of it is the name of no plugin at all: that is a mistake, not a machine that lacks
// something.
static bool names_nothing(struct ls_loader *loader, const char *strategy, const char *filter)
{
    static const uint32_t kinds[] = {LS_KIND_STRATEGY, LS_KIND_COLLECTIVE, LS_KIND_TRANSPORT};
    struct ls_plugin_entry *entries = NULL;
    struct ls_spec spec = {0};
    size_t count = 0;
    bool nothing = false;
    if (ls_spec_parse("--strategies", strategy, &spec) || ls_loader_list(loader, &entries, &count))
        goto out;
    nothing = !is_there(entries, count,
                        1u << LS_KIND_STRATEGY | 1u << LS_KIND_COLLECTIVE | 1u << LS_KIND_TRANSPORT,
                        spec.name);
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        const char *part = ls_spec_get(&spec, ls_kind_text(kinds[i]));
        nothing = nothing || (part && !is_there(entries, count, 1u << kinds[i], part));
    }

out:
    ls_spec_finish(&spec);
    if (filter && !ls_is_plugin_file(filter) && entries &&
        !ls_spec_parse("--strategies", filter, &spec)) {
        nothing = nothing || !is_there(entries, count, 1u << LS_KIND_FILTER, spec.name);
        ls_spec_finish(&spec);
    }
    ls_plugin_entries_destroy(entries, count);
    return nothing;
}

void compare_child_look(const struct compare_setting *setting, const char *item,
                        const struct compare_place *place)
{
    struct ls_loader *loader = NULL;
    struct ls_resolved_strategy resolved = {0};
    const struct ls_opened_plugin *opened = NULL;
    const char *filter = compare_item_filter(item);
    char *strategy = compare_item_strategy(item);
    settle(place);
    enum ls_status status =
        strategy ? ls_loader_create(setting->run.plugin_path, &loader) : LS_OUT_OF_MEMORY;
    if (!status)
        status = ls_loader_resolve_strategy(loader, strategy, NULL, &resolved);
    if (!status && filter)
        status = ls_loader_open_text(loader, "--strategies", LS_KIND_FILTER, filter, &opened);
    if (status == LS_UNAVAILABLE && names_nothing(loader, strategy, filter))
        status = LS_USAGE;
    if (!status) {
        const struct ls_strategy_interface *interface = resolved.strategy->interface;
        place->shared->maximum_replicas = interface->maximum_replicas;
    }
    _exit(ls_status_exit_code(status));
}
