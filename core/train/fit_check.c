// SPDX-License-Identifier: Apache-2.0
// What a fit checks before it begins, and what it warns of.
#include "core/base/log.h"
#include "core/base/options.h"
#include "core/train/fit.h"
#include "core/train/fit_timeline.h"
#include "core/train/model_calls.h"

#include <stdlib.h>
#include <string.h>

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

enum ls_status ls_shuffle_parse(const char *text, enum ls_shuffle *out, uint64_t *buffer)
{
    int64_t size;
    *out = LS_SHUFFLE_ALL;
    *buffer = 0;
    if (!text || strcmp(text, "on") == 0)
        return LS_OK;
    if (strcmp(text, "off") == 0) {
        *out = LS_SHUFFLE_OFF;
        return LS_OK;
    }
    if (!ls_parse_integer(text, &size) || size < 1) {
        ls_error("--shuffle", "'%s': expected on, off, or the number of examples in the buffer",
                 text);
        return LS_USAGE;
    }
    *out = LS_SHUFFLE_BUFFER;
    *buffer = (uint64_t)size;
    return LS_OK;
}

#define MOST_EXAMPLES (1 << 24) // of a batch
#define MOST_BLOCKS (1 << 16) // each costs time, with or without examples

// What would change bits with the number of replicas, or cuts a batch otherwise than logical shards
// do, of which each replica computes one after the other.
static enum ls_status check_reproducible(struct ls_fit *fit)
{
    const struct ls_fit_options *options = fit->options;
    const char *against =
        options->microbatches > 1 ? "--microbatches cuts the share of a replica; each logical "
                                    "shard is computed by itself already"
        : options->accumulate > 1 ? "--accumulate does not go with logical shards yet; a larger "
                                    "--batch in more shards is the same"
        : options->replica_batch  ? "--replica-batch makes the batch depend on the number of "
                                    "replicas; use --batch"
                                  : NULL;
    const struct ls_shares division = ls_run_division(fit->run, true);
    fit->plan.microbatches = ls_most_shards(&division);
    if (!against)
        return ls_model_check_rate(fit->model);
    ls_error("--reproducible", "%s", against);
    return LS_USAGE;
}

// What is accumulated is one large batch, computed in as many more blocks.
static enum ls_status read_batch(struct ls_fit *fit)
{
    const struct ls_fit_options *options = fit->options;
    const uint64_t times = options->accumulate ? options->accumulate : 1;
    const uint64_t blocks = times * (options->microbatches ? options->microbatches : 1);
    const uint64_t batch = ls_run_global_batch(fit->run, options->batch, options->replica_batch);
    if (options->batch > MOST_EXAMPLES || options->replica_batch > MOST_EXAMPLES) {
        ls_error("--batch", "expected at most %d examples", MOST_EXAMPLES);
        return LS_USAGE;
    }
    if (blocks > MOST_BLOCKS) {
        ls_error(times > 1 ? "--accumulate" : "--microbatches",
                 "%llu parts are too many for one step; use at most %d", (unsigned long long)blocks,
                 MOST_BLOCKS);
        return LS_USAGE;
    }
    fit->plan.microbatches = (uint32_t)blocks;
    fit->plan.global_batch = batch * times;
    return fit->run->shards ? check_reproducible(fit) : LS_OK;
}

// Blocks without examples are computed all the same: each zeroes the gradients and adds them.
static void warn_of_empty_blocks(const struct ls_fit *fit)
{
    const struct ls_shares shares = ls_model_division(fit->model);
    const uint64_t share = ls_largest_share(&shares, fit->plan.global_batch,
                                            shares.blocks_first ? fit->plan.microbatches : 1);
    const struct ls_session *session = fit->model->session;
    const bool said = session && session->need.microbatches == fit->plan.microbatches &&
                      session->need.global_batch == fit->plan.global_batch;
    if (fit->plan.microbatches <= share || said || shares.shards)
        return;
    ls_warn(fit->options->accumulate > 1 ? "--accumulate" : "--microbatches",
            "%u parts of at most %llu example%s a replica: %llu of them are empty and only cost "
            "time; use at most %llu, or a larger batch",
            fit->plan.microbatches, (unsigned long long)share, share == 1 ? "" : "s",
            (unsigned long long)(fit->plan.microbatches - share), (unsigned long long)share);
}

// Replicas whose weights are too small for the batch: they only wait for the others.
static void warn_of_empty_shares(const struct ls_fit *fit)
{
    const struct ls_shares shares = ls_model_division(fit->model);
    const struct ls_session *session = fit->model->session;
    const uint64_t batch = least(fit->plan.global_batch, ls_data_count(fit->train));
    uint32_t empty = 0;
    for (uint32_t rank = 0; shares.group_count && rank < shares.world; rank++) {
        uint64_t offset, size;
        ls_share(&shares, batch, fit->plan.microbatches, rank, &offset, &size);
        empty += size == 0;
    }
    if (empty && !(session && session->need.global_batch == fit->plan.global_batch))
        ls_warn("--share",
                "%u of the %u replicas get%s none of the %llu examples of a batch; use a larger "
                "batch, or weights that differ less",
                empty, shares.world, empty == 1 ? "s" : "", (unsigned long long)batch);
}

enum ls_status ls_model_check_training_data(struct ls_model *model, const struct ls_data *data,
                                            bool one_batch)
{
    const uint64_t examples = ls_data_count(data);
    const uint32_t world = ls_cluster_world(model->run->workers.cluster);
    if (world > examples && !one_batch) {
        ls_error("--replicas",
                 "%u replicas, but '%s' has only %llu example%s; use at most that many", world,
                 data->text, (unsigned long long)examples, examples == 1 ? "" : "s");
        return LS_USAGE;
    }
    enum ls_status status = ls_model_check_training(model->source, model->json, true);
    if (!status)
        status = ls_model_check_trained(model);
    return status ? status : ls_model_check_data(model, data);
}

// What a training with server processes does not have.
static enum ls_status check_servers(const struct ls_fit *fit)
{
    const struct ls_run *run = fit->run;
    if (ls_run_is_server(run)) {
        ls_error("fit",
                 "this process is server %u of the job, which trains nothing; call "
                 "ls_run_serve",
                 run->workers.served.number);
        return LS_USAGE;
    }
    if (run->workers.served.servers && run->workers.served.workers > 1 &&
        ls_graph_has_layer_totals(fit->model->graph)) {
        ls_error("--strategy",
                 "a layer of '%s' normalizes by the statistics of all replicas (synchronized), but "
                 "workers with server processes make steps of their own; leave --servers out and "
                 "take --strategy=mirrored, or set synchronized to false",
                 fit->model->source);
        return LS_USAGE;
    }
    if (run->workers.served.servers && fit->options->checkpoints) {
        ls_error(
            "--checkpoint-dir",
            "with server processes the state of the optimizer is on the servers, each of which "
            "keeps its part in the folder that folder=PATH of the strategy names; leave it "
            "out, and use --save-weights for the result");
        return LS_USAGE;
    }
    return LS_OK;
}

// A part of a batch does not know what the mask leaves of the others; with `accumulate`, as in Keras,
// each batch has a loss of its own.
static enum ls_status check_mask(const struct ls_fit *fit)
{
    if (fit->options->microbatches < 2 || !ls_graph_loss_is_masked(fit->model->graph))
        return LS_OK;
    ls_error("--microbatches",
             "an output of '%s' has a mask (mask_zero or Masking), whose steps are counted over "
             "the whole batch before the loss is computed; leave it out, or use --accumulate",
             fit->model->source);
    return LS_USAGE;
}

enum ls_status ls_fit_check(struct ls_fit *fit)
{
    const struct ls_data *validation = fit->options->validation;
    enum ls_status status = read_batch(fit);
    if (!status)
        status = check_servers(fit);
    if (!status)
        status = ls_model_check_usable(fit->model, "fit");
    if (!status)
        status = ls_model_check_has_loss(fit->model, "fit");
    if (!status)
        status = check_mask(fit);
    if (!status)
        status = ls_model_check_training_data(fit->model, fit->train, false);
    if (!status && validation)
        status = ls_model_check_data(fit->model, validation);
    if (!status && fit->options->report)
        status = ls_report_check_path("--report", fit->options->report);
    if (!status)
        status = ls_fit_check_timeline(fit);
    if (!status)
        status =
            ls_shuffle_parse(fit->options->shuffle, &fit->plan.shuffle, &fit->plan.shuffle_buffer);
    const struct ls_fit_options *options = fit->options;
    if (!status && options->initial_epoch && options->checkpoints && options->checkpoints->resume) {
        ls_error("initial_epoch", "a training that goes on from a checkpoint counts its epochs "
                                  "itself: leave one of both out");
        status = LS_USAGE;
    }
    if (!status && options->progress > LS_PROGRESS_LINES) {
        ls_error("progress", "expected 0, 1 (a bar) or 2 (lines), got %llu",
                 (unsigned long long)options->progress);
        status = LS_USAGE;
    }
    if (!status)
        warn_of_empty_blocks(fit);
    if (!status)
        warn_of_empty_shares(fit);
    if (!status && (fit->options->class_weight || ls_model_data_has_weights(fit->train) ||
                    (validation && ls_model_data_has_weights(validation))))
        status = ls_model_need_weighted(fit->model); // which has other metrics to go on with
    return status;
}

// Elements of a channel in one example; 0: the operation is no normalization by statistics of a share.
static int64_t normalized_elements(const struct ls_operation *operation)
{
    if (operation->op != LS_OP_BATCH_NORMALIZATION)
        return 0;
    return ls_shape_elements(&operation->inputs[0]->shape, 1) /
           ls_shape_elements(&operation->inputs[1]->shape, 1);
}

static const char *first_lone_layer(const struct ls_graph *graph)
{
    for (uint32_t i = 0; i < graph->operation_count; i++)
        if (normalized_elements(&graph->operations[i]) == 1)
            return graph->layers[graph->operations[i].layer].name;
    return NULL;
}

static uint64_t count_lone_blocks(const struct ls_shares *shares, uint64_t batch, uint32_t blocks)
{
    uint64_t count = 0;
    for (uint32_t rank = 0; rank < shares->world; rank++)
        for (uint32_t block = 0; block < blocks && block < batch; block++) {
            uint64_t offset, size;
            ls_share_block(shares, batch, blocks, rank, block, &offset, &size);
            count += size == 1;
        }
    return count;
}

// One value equals its mean: the layer gives beta, whatever comes in, and no gradient goes through.
static void warn_of_lone_examples(const struct ls_fit *fit)
{
    struct ls_model *model = fit->model;
    const uint64_t examples = ls_data_count(fit->train);
    const struct ls_shares shares = ls_model_division(fit->model);
    const uint64_t blocks = (uint64_t)shares.world * fit->plan.microbatches;
    const uint64_t batches[] = {least(examples, fit->plan.global_batch),
                                examples % fit->plan.global_batch};
    const char *layer = model->told_of_lone ? NULL : first_lone_layer(model->graph);
    for (int i = 0; layer && i < 2; i++) {
        const uint64_t lone = count_lone_blocks(&shares, batches[i], fit->plan.microbatches);
        if (!lone)
            continue;
        ls_warn(
            "fit",
            "layer '%s': %llu of the %llu shares of %s (%llu example%s) have a single example, "
            "whose variance is 0: the layer gives beta, whatever comes in, and layers before it "
            "learn nothing from such a share; use %s",
            layer, (unsigned long long)lone, (unsigned long long)blocks,
            i ? "the last batch of an epoch" : "a batch", (unsigned long long)batches[i],
            batches[i] == 1 ? "" : "s",
            i ? "a batch that divides the examples, or limit=" : "a larger batch");
        model->told_of_lone = true;
        return;
    }
}

// What is no error, once there is none.
void ls_fit_say_notes(struct ls_fit *fit)
{
    struct ls_model *model = fit->model;
    if (model->skipped)
        ls_info("weights", "%s", model->skipped);
    free(model->skipped);
    model->skipped = NULL;
    warn_of_lone_examples(fit);
}
