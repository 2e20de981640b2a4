// SPDX-License-Identifier: Apache-2.0
// Evaluation by all replicas; those that are left compute the shares of those that fail.
#include "core/train/trainer.h"

#include "core/base/clock.h"
#include "core/base/trace.h"

#include <stdlib.h>
#include <string.h>

static const struct ls_trace_label input_slice = {.category = "input", .name = "input"};
static const struct ls_trace_label batch_slice = {
    .category = "validation", .name = "batch", .value = "batch"};
static const struct ls_trace_label validation_slice = {.category = "validation",
                                                       .name = "validation"};

struct evaluation {
    struct ls_trainer *trainer;
    uint64_t steps;
    double (*sums)[LS_STATISTICS]; // one a rank
    uint32_t *readers; // who computes the shares of a rank
    atomic_bool again; // a replica was lost
};

// The shares of lost replicas go round among the others.
static void choose_readers(const struct ls_trainer *trainer, uint32_t *readers)
{
    uint32_t next = ls_trainer_first(trainer);
    for (uint32_t i = 0; i < trainer->count; i++) {
        readers[i] = i;
        if (!ls_trainer_is_lost(trainer, i))
            continue;
        readers[i] = next;
        do
            next = (next + 1) % trainer->count;
        while (ls_trainer_is_lost(trainer, next));
    }
}

// All shares of a batch that are this replica's.
static enum ls_status evaluate_batch(const struct evaluation *evaluation, uint32_t rank)
{
    struct ls_trainer *trainer = evaluation->trainer;
    enum ls_status status = LS_OK;
    for (uint32_t i = 0; !status && i < trainer->count; i++) {
        struct ls_replica_batch batch;
        if (evaluation->readers[i] != rank)
            continue;
        ls_trace_begin(&input_slice, 0);
        status = ls_trainer_next(trainer, i, &batch, NULL);
        ls_trace_end();
        if (!status)
            status = ls_replica_evaluate(trainer->replicas[rank], &batch, evaluation->sums[rank]);
    }
    return status;
}

// [replica thread]
static enum ls_status evaluate_shares(void *context, uint32_t rank)
{
    struct evaluation *evaluation = context;
    struct ls_trainer *trainer = evaluation->trainer;
    enum ls_status status = LS_OK;
    if (ls_trainer_is_lost(trainer, rank))
        return LS_OK;
    if (trainer->driver)
        status = ls_driver_synchronise(trainer->driver, rank);
    if (status)
        return status;
    ls_trace_begin(&validation_slice, 0);
    for (uint64_t step = 0; !status && step < evaluation->steps; step++) {
        ls_trace_begin(&batch_slice, step + 1);
        status = evaluate_batch(evaluation, rank);
        ls_trace_end();
        if (!status && trainer->run->interrupted)
            status = LS_INTERRUPTED;
    }
    const enum ls_status settled =
        ls_replica_evaluate_end(trainer->replicas[rank], status ? NULL : evaluation->sums[rank]);
    status = status ? status : settled;
    ls_trace_end();
    if (!status || !trainer->driver || !ls_driver_survive(trainer->driver, rank, status))
        return status;
    ls_trainer_say_lost(trainer, rank, "an evaluation");
    atomic_store(&evaluation->again, true);
    return LS_ABORTED; // ends this evaluation for all
}

static enum ls_status evaluate_once(struct evaluation *evaluation, const struct ls_dataset *dataset)
{
    struct ls_trainer *trainer = evaluation->trainer;
    struct ls_stream *stream = NULL;
    const struct ls_stream_options order = {.shuffle = LS_SHUFFLE_OFF};
    enum ls_status status =
        ls_trainer_open_stream(trainer, dataset, &order, 0, trainer->count, &stream);
    memset(evaluation->sums, 0, trainer->count * sizeof(*evaluation->sums));
    choose_readers(trainer, evaluation->readers);
    atomic_store(&evaluation->again, false);
    if (!status) {
        trainer->stream = stream;
        status = ls_trainer_run(trainer, "evaluating", evaluate_shares, evaluation);
        trainer->stream = trainer->training;
    }
    ls_stream_close(stream);
    return status;
}

enum ls_status ls_trainer_evaluate(struct ls_trainer *trainer, const struct ls_dataset *dataset,
                                   bool validation, struct ls_scores *out)
{
    const uint64_t start = ls_clock_ns();
    struct evaluation evaluation = {
        .trainer = trainer,
        .steps = ls_stream_steps(dataset->count, trainer->options.global_batch),
        .sums = calloc(trainer->count, sizeof(*evaluation.sums)),
        .readers = calloc(trainer->count, sizeof(*evaluation.readers))};
    enum ls_status status = evaluation.sums && evaluation.readers ? LS_OK : LS_OUT_OF_MEMORY;
    if (!status)
        do
            status = evaluate_once(&evaluation, dataset);
        while (status == LS_ABORTED && atomic_load(&evaluation.again));
    double statistics[LS_STATISTICS] = {0};
    for (uint32_t i = 0; !status && i < trainer->count; i++)
        for (uint32_t k = 0; k < LS_STATISTICS; k++)
            statistics[k] += evaluation.sums[i][k];
    free(evaluation.sums);
    free(evaluation.readers);
    if (status)
        return status;
    *out = (struct ls_scores){.examples = (uint64_t)statistics[LS_SUMS_EXAMPLES],
                              .seconds = (double)(ls_clock_ns() - start) * 1e-9};
    ls_metrics_append(&out->metrics, &trainer->model->metrics, statistics, validation);
    return LS_OK;
}
