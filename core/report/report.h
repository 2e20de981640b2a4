// SPDX-License-Identifier: Apache-2.0
// The run report: the plain facts of one training, written as one JSON object (docs and DESIGN give
// its form; units are in the names, NaN and infinity are null, numbers have 9 digits). [main
// thread]
#ifndef LS_REPORT_REPORT_H
#define LS_REPORT_REPORT_H

#include "core/base/status.h"
#include "lockstep.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LS_REPORT_LOSSES 1000 // of the first steps

struct ls_report_worker {
    const char *host; // name of its machine
    uint32_t first_rank, replicas;
    const char *status; // "unknown": it was not heard of any more
};

struct ls_report_pair {
    const char *name, *value;
};

struct ls_report_number {
    const char *name;
    double value;
};

struct ls_report_plugin {
    const char *kind, *name, *version, *file;
    const char *library; // that it calls: "NCCL 2.28.9"; NULL or empty: none
};

// Seconds of a step, medians over steps of replica 0, and the 90th percentile.
struct ls_report_times {
    double median, p90, input, compute, communication, exposed_communication, update;
    double
        device; // waited for a device that computes beside the host; of its work the parts above have handing over alone
};

struct ls_report_bucket {
    uint64_t bytes;
    const char *algorithm;
};

// What `auto` measured for a size of buffer.
struct ls_report_tuner_time {
    const char *collective;
    double seconds, spread; // NaN: it was not timed
    uint64_t rounds;
    bool given_up; // it was so slow that it was not timed to the end
};

struct ls_report_tuner_size {
    uint64_t bytes;
    const char *collective; // chosen
    struct ls_report_tuner_time *times; // one a candidate; NULL: the table was given
    size_t time_count;
};

// How `auto` came to its choice.
struct ls_report_tuner {
    const char *source; // "measured", "fixed" or "file"; NULL: a collective was named
    const char *file; // of the table; NULL: none
    double seconds; // that was measured
    struct ls_report_tuner_size *sizes;
    size_t size_count;
};

// What a strategy says of itself. Dots in the name nest: "staleness.lead.max" is {"staleness":
// {"lead": {"max": ...}}}.
struct ls_report_fact {
    const char *name;
    const double *values;
    uint64_t count;
    bool list; // else one number
};

// Statistics that all replicas add up within a step (synchronized batch normalization).
struct ls_report_statistics {
    const char *collective; // NULL: there are none
    const char *transport; // NULL: the collective needs none
    uint64_t reductions, bytes; // in each pass; the bytes are those that a rank sends
};

// Workers of an elastic training were lost, or have come.
struct ls_report_change {
    uint64_t step; // after which the training has continued
    uint32_t lost, joined, workers; // `workers`: from then on
    uint32_t residuals_lost; // replicas whose part of what a filter owed is gone
    bool rounds; // and how many examples are in no round:
    double examples_left_out;
    double
        seconds; // from when it was noticed until the workers agreed; NaN: another change came first
};

// What collectives were told of the ranks: `world` numbers each, borrowed; NULL: nothing.
struct ls_report_topology {
    const char *source; // as the user wrote it; NULL: nothing was given
    uint32_t world;
    const uint32_t *hosts, *cards, *order;
};

// Texts are borrowed; NULL where there is nothing (collective of one-device).
struct ls_report {
    const char *command, *status;
    uint64_t resumed_from_step; // 0: from none
    const struct ls_report_change *changes; // that the worker has seen which reports
    size_t change_count;
    const char *stopped_by; // the callback that has ended the training early; NULL: none has
    const char *strategy, *collective, *transport, *device, *hardware, *precision;
    const char *wire; // what gradients travel as; NULL: a collective sends none
    const char *compress; // the filter with its options; NULL: none
    struct ls_report_topology topology;
    const struct ls_report_pair *options;
    size_t option_count;
    const struct ls_report_plugin *plugins;
    size_t plugin_count;
    uint32_t workers, replicas, threads_per_replica;
    const struct ls_report_worker *worker_reports; // `workers` of them
    uint64_t seed;
    const char *optimizer;
    const struct ls_report_number *optimizer_options; // but for the learning rate
    size_t optimizer_option_count;
    const char *excluded; // from weight decay: parts of names of variables; NULL: none
    const char *schedule; // of the learning rate, as the user or the model's file says; NULL: none
    const char *class_weight; // as the user wrote it; NULL: none
    const char *loss; // with its options: "sparse_categorical_crossentropy:from_logits=true"
    const char *shuffle; // as the user wrote it
    uint32_t microbatches; // those of accumulated batches included
    uint32_t accumulate;
    uint32_t shards; // logical ones of a batch; 0: none
    const struct ls_report_pair *dataset_options; // as the user wrote them
    size_t dataset_option_count;
    // Of a text: the bytes that are its classes, in the order of their ids; NULL: it is no text.
    const char *const *vocabulary;
    uint32_t vocabulary_size;
    double learning_rate; // after scaling
    bool scales_loss; // else the two are null
    double loss_scale; // that the training ended with
    uint64_t skipped_steps; // whose gradients were not finite
    const char *model, *dataset;
    uint64_t parameters, global_batch;
    const uint64_t *replica_batches; // `replicas` of them
    uint64_t steps;
    double startup_seconds; // NaN: no step was done
    const struct ls_epoch *epochs; // the keys of their metrics are the names
    size_t epoch_count;
    const float *losses;
    size_t loss_count;
    struct ls_report_times times;
    const struct ls_report_bucket *buckets;
    size_t bucket_count;
    struct ls_report_tuner tuner;
    uint64_t bytes_per_step_per_rank;
    uint64_t filter_bytes; // of the host's memory that a replica's filter needs; 0: there is none
    struct ls_report_statistics statistics;
    const char *schedule_check; // "verified", "known-answer" or "none"
    const char *layout;
    const char *recording; // how steps run on a device that records them: "recorded whole"
    uint64_t peak_rss_bytes, device_bytes, arena_bytes;
    const uint64_t *parameter_hashes; // `replicas` of them; NULL: none (yet)
    const uint64_t *lost_replicas; // that failed while the others went on; they have no hash
    size_t lost_count;
    const struct ls_report_fact *facts;
    size_t fact_count;
};

// Writes beside `path` and renames, so the file is whole or untouched. LS_FAILED, logged.
LS_STATUS ls_report_write(const char *path, const struct ls_report *report);

// Whether `path` can be replaced by a new file, before the work begins: LS_BAD_INPUT, logged under
// `scope` ("--report").
LS_STATUS ls_report_check_path(const char *scope, const char *path);

#endif
