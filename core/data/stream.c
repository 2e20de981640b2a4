// SPDX-License-Identifier: Apache-2.0
// The input thread and its ring of batches. One thread writes, each replica reads: a counter of batches written, one
// of batches read per replica, and nobody takes a lock. Who has nothing to do sleeps on a word of his own:
// - the input thread, when the ring is full, until half of it is free for every replica: for small batches a wake-up
//   costs more than the gather (where examples are made, see making.h, until one batch is free);
// - a replica, when its next batch is not there yet, after spinning briefly.
// A sleeper first says so in his word, then looks at the counters again; who moves a counter then looks at the word.
// Both in sequentially consistent order, so one of the two sees the other.
#include "core/data/stream.h"

#include "core/base/clock.h"
#include "core/base/dtype.h"
#include "core/base/inside.h"
#include "core/base/log.h"
#include "core/base/threads.h"
#include "core/base/trace.h"
#include "core/data/gather.h"
#include "core/data/making.h"
#include "core/plugin/waiting.h"

#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#define DEFAULT_PREFETCH_BYTES ((uint64_t)4 << 20)
#define LEAST_SLOTS 3 // one read, one ready, one being written
#define MOST_SLOTS 256
#define SPINS 2000 // some 20 microseconds
#define SLEEP_NS UINT64_C(1000000000)

static const struct ls_trace_label gather_span = {
    .category = "input", .name = "gather batch", .value = "batch"};
static const struct ls_trace_label order_span = {
    .category = "input", .name = "shuffle", .value = "epoch"};
static const struct ls_trace_label wait_span = {.category = "input", .name = "wait for batch"};

// A word of a sleeper and his counter, on a cache line of their own.
struct reader {
    _Alignas(LS_ALIGNMENT) _Atomic uint64_t read; // batches given back
    _Atomic uint32_t sleeps;
    _Atomic uint32_t inside; // 1 while in ls_stream_next
    uint64_t taken; // batches handed out; the replica thread's own
};

// Where one batch comes from.
struct position {
    uint64_t epoch;
    uint64_t step;
    uint64_t first; // example of the epoch's order
    uint64_t count; // examples of the global batch
};

struct ls_stream {
    _Alignas(
        LS_ALIGNMENT) _Atomic uint64_t written; // batches, without end: 64 bits, which do not wrap
    _Alignas(LS_ALIGNMENT) _Atomic uint32_t writer_sleeps;
    _Alignas(LS_ALIGNMENT) _Atomic uint32_t stopped;
    _Atomic uint32_t failure; // the status of the input thread: why it stopped
    _Atomic(char *) error; // that it would have logged: for the first replica that hears of it

    const struct ls_dataset *dataset;
    struct ls_stream_options options;
    uint32_t *order; // of the epoch being written; the input thread's
    pthread_t thread;
    bool started;

    atomic_bool told; // that no batch comes
    uint32_t slots;
    uint64_t offsets[LS_MAX_FIELDS]; // of the fields in the memory of one share
    uint64_t share_bytes; // of all its fields, each rounded up to LS_ALIGNMENT
    struct position *positions; // (slots)
    uint32_t runs; // of consecutive examples that a share consists of
    uint64_t *run_offsets, *run_counts; // (slots, ranks, runs)
    char *memory; // (slots, ranks, share_bytes)
    struct reader *readers; // (ranks)
    struct ls_making *making; // NULL: a gather does
    struct ls_making_share *shares; // (runs, ranks) of the batch being written, for `making`
};

// The memory of local rank `local` in slot `slot`: its fields one after the other.
static char *share_memory(const struct ls_stream *stream, uint32_t slot, uint32_t local)
{
    const uint64_t share = (uint64_t)slot * stream->options.rank_count + local;
    return stream->memory + share * stream->share_bytes;
}

// Whether each block of a share is a run of its own.
static bool runs_are_blocks(const struct ls_stream_options *options)
{
    return options->shares.blocks_first || options->shares.shards;
}

// Where the runs of its share are.
static size_t run_index(const struct ls_stream *stream, uint32_t slot, uint32_t local)
{
    return ((size_t)slot * stream->options.rank_count + local) * stream->runs;
}

// ---- The input thread ----

// Whether every replica has given back enough batches that `free` can be written.
static bool has_room(const struct ls_stream *stream, uint32_t free)
{
    const uint64_t written = atomic_load(&stream->written);
    for (uint32_t i = 0; i < stream->options.rank_count; i++)
        if (stream->slots - (written - atomic_load(&stream->readers[i].read)) < free)
            return false;
    return true;
}

// Making a batch takes longer than a wake-up.
static uint32_t room_to_wake(const struct ls_stream *stream)
{
    return stream->making ? 1 : (stream->slots + 1) / 2;
}

static void wake(_Atomic uint32_t *sleeps)
{
    if (atomic_exchange(sleeps, 0))
        ls_wake_word((const uint32_t *)sleeps);
}

static void wake_readers(struct ls_stream *stream)
{
    for (uint32_t i = 0; i < stream->options.rank_count; i++)
        wake(&stream->readers[i].sleeps);
}

// Waits until a batch can be written; false: stopped.
static bool wait_for_room(struct ls_stream *stream)
{
    const uint32_t enough = room_to_wake(stream);
    if (has_room(stream, 1))
        return !atomic_load(&stream->stopped);
    for (;;) {
        atomic_store(&stream->writer_sleeps, 1);
        if (atomic_load(&stream->stopped))
            return false;
        if (has_room(stream, enough))
            break;
        ls_wait_word((const uint32_t *)&stream->writer_sleeps, 1, SLEEP_NS);
    }
    atomic_store(&stream->writer_sleeps, 0);
    return true;
}

// The fields of local rank `i`: its share of the batch, gathered now or described for `making`.
static void write_share(struct ls_stream *stream, const struct position *position, uint32_t slot,
                        uint32_t i)
{
    const struct ls_stream_options *options = &stream->options;
    const size_t first_run = run_index(stream, slot, i);
    char *memory = share_memory(stream, slot, i);
    uint64_t before = 0; // examples of the share
    for (uint32_t run = 0; run < stream->runs; run++) {
        uint64_t offset, count;
        if (runs_are_blocks(options))
            ls_share_block(&options->shares, position->count, options->blocks,
                           options->first_rank + i, run, &offset, &count);
        else
            ls_share(&options->shares, position->count, options->blocks, options->first_rank + i,
                     &offset, &count);
        stream->run_offsets[first_run + run] = offset;
        stream->run_counts[first_run + run] = count;
        struct ls_making_share made = {.first = position->first + offset, .count = count};
        for (uint32_t k = 0; k < stream->dataset->field_count; k++) {
            const struct ls_field *field = &stream->dataset->fields[k];
            const uint32_t dtype = options->dtypes[k];
            if (options->left_out >> k & 1)
                continue;
            made.fields[k] = memory + stream->offsets[k] +
                             before * ls_field_elements(field) * ls_dtype_bytes(dtype);
            if (!stream->making)
                ls_gather(field, dtype, stream->order + made.first, count, made.fields[k]);
        }
        if (stream->making) // in the order of the batch, for datasets in order
            stream->shares[run * options->rank_count + i] = made;
        before += count;
    }
}

static enum ls_status write_batch(struct ls_stream *stream, const struct position *position)
{
    const struct ls_stream_options *options = &stream->options;
    const uint64_t written = atomic_load_explicit(&stream->written, memory_order_relaxed);
    const uint32_t slot = (uint32_t)(written % stream->slots);
    enum ls_status status = LS_OK;
    for (uint32_t i = 0; i < options->rank_count; i++)
        write_share(stream, position, slot, i);
    if (stream->making)
        status = ls_making_write(stream->making, position->epoch, stream->order, stream->shares,
                                 options->rank_count * stream->runs, &stream->stopped);
    if (status)
        return status;
    stream->positions[slot] = *position;
    atomic_store(&stream->written, written + 1);
    for (uint32_t i = 0; i < options->rank_count; i++)
        if (atomic_load(&stream->readers[i].sleeps))
            wake(&stream->readers[i].sleeps);
    return LS_OK;
}

static void *input_thread(void *argument)
{
    struct ls_stream *stream = argument;
    const uint64_t count = stream->dataset->count, batch = stream->options.global_batch;
    uint64_t first = stream->options.first_example;
    for (uint64_t epoch = stream->options.epochs_before + 1;; epoch++) {
        ls_trace_begin(&order_span, epoch);
        enum ls_status status = ls_stream_order(&stream->options, count, epoch, stream->order);
        ls_trace_end();
        if (status)
            return NULL; // cannot be: open has looked at the options
        for (uint64_t step = 0; first < count; step++) {
            const uint64_t size = count - first < batch ? count - first : batch;
            if (!wait_for_room(stream))
                return NULL;
            char *error = NULL;
            ls_trace_begin(&gather_span, step + 1);
            ls_log_keep(&error);
            status = write_batch(stream, &(struct position){epoch, step, first, size});
            ls_log_keep(NULL);
            ls_trace_end();
            if (status) {
                atomic_store(&stream->error, error);
                atomic_store(&stream->failure, status); // behind what is written
                wake_readers(stream);
                return NULL;
            }
            first += size;
        }
        first = 0;
    }
}

// ---- Replicas ----

// Gives the batch that the replica has back to the input thread.
static void give_back(struct ls_stream *stream, struct reader *reader)
{
    if (reader->taken == atomic_load_explicit(&reader->read, memory_order_relaxed))
        return;
    atomic_store(&reader->read, reader->taken);
    if (atomic_load(&stream->writer_sleeps) && has_room(stream, room_to_wake(stream)))
        wake(&stream->writer_sleeps);
}

static bool is_written(const struct ls_stream *stream, const struct reader *reader)
{
    return atomic_load(&stream->written) != reader->taken;
}

// The call into a dataset's plugin that some thread is in; else `text` stays as it is.
static void name_plugin(char *text, size_t bytes)
{
    struct ls_inside_view views[64];
    const size_t count = ls_inside_look_at_others(views, sizeof(views) / sizeof(views[0]));
    for (size_t i = 0; i < count; i++)
        if (views[i].under_way && strncmp(views[i].call.plugin, "dataset-", 8) == 0) {
            ls_inside_text(&views[i].call, text, bytes);
            return;
        }
}

// Examples may take as long as they like, but nobody is left to guess what a training waits for.
// An input thread without room is not late: it waits for another replica.
static void tell_of_wait(struct ls_stream *stream, uint64_t waited_ns)
{
    const uint64_t patience = stream->options.patience_ns;
    if (!patience || waited_ns < patience || atomic_load(&stream->writer_sleeps) ||
        atomic_exchange(&stream->told, true))
        return;
    char call[256] = "what makes them (a function of the program, or reading files)";
    name_plugin(call, sizeof(call));
    ls_warn("data", "no examples for %.1f s: %s has not returned; the replicas wait for it",
            (double)waited_ns * 1e-9, call);
}

// Waits until the next batch is there; false: stopped, or there will be none.
static bool wait_for_batch(struct ls_stream *stream, struct reader *reader)
{
    for (uint32_t i = 0; i < SPINS; i++) {
        if (is_written(stream, reader))
            return true;
        ls_relax();
    }
    const uint64_t start = ls_clock_ns(), patience = stream->options.patience_ns;
    for (;;) {
        atomic_store(&reader->sleeps, 1);
        if (atomic_load(&stream->stopped) || atomic_load(&stream->failure) ||
            is_written(stream, reader))
            break;
        tell_of_wait(stream, ls_clock_ns() - start);
        ls_wait_word((const uint32_t *)&reader->sleeps, 1,
                     patience && patience < SLEEP_NS ? patience : SLEEP_NS);
    }
    atomic_store(&reader->sleeps, 0);
    return !atomic_load(&stream->stopped) && is_written(stream, reader);
}

static void describe(const struct ls_stream *stream, uint32_t local, uint32_t slot,
                     struct ls_batch *out)
{
    const struct position *position = &stream->positions[slot];
    const size_t first_run = run_index(stream, slot, local);
    const uint64_t *counts = stream->run_counts + first_run;
    const bool blocks = runs_are_blocks(&stream->options);
    const char *memory = share_memory(stream, slot, local);
    *out = (struct ls_batch){
        .example_offset = stream->run_offsets[first_run],
        .block_counts = blocks ? counts : NULL,
        .block_offsets = blocks ? stream->run_offsets + first_run : NULL,
        .global_count = position->count,
        .even = ls_shares_are_even(&stream->options.shares, position->count),
        .epoch = position->epoch,
        .step = position->step,
        .dataset = stream->dataset,
        .dtypes = stream->options.dtypes,
    };
    for (uint32_t i = 0; i < stream->runs; i++)
        out->count += counts[i];
    for (uint32_t field = 0; field < stream->dataset->field_count; field++)
        if (!(stream->options.left_out >> field & 1))
            out->fields[field] = memory + stream->offsets[field];
}

// The error is logged where it ends something, so that a group of replicas says it once.
static enum ls_status why_stopped(struct ls_stream *stream)
{
    const uint32_t failure = atomic_load(&stream->failure);
    char *error = failure ? atomic_exchange(&stream->error, NULL) : NULL;
    ls_log_write_kept(&error);
    return failure ? (enum ls_status)failure : LS_ABORTED;
}

static enum ls_status next(struct ls_stream *stream, uint32_t local, struct ls_batch *out,
                           uint64_t *waited_ns)
{
    struct reader *reader = &stream->readers[local];
    if (atomic_load(&stream->stopped))
        return why_stopped(stream);
    give_back(stream, reader);
    if (!is_written(stream, reader)) {
        const uint64_t start = ls_clock_ns();
        const bool there = wait_for_batch(stream, reader);
        const uint64_t end = ls_clock_ns();
        if (waited_ns)
            *waited_ns += end - start;
        ls_trace_span(&wait_span, start, end, 0);
        if (!there)
            return why_stopped(stream);
    }
    describe(stream, local, (uint32_t)(reader->taken % stream->slots), out);
    reader->taken++;
    return LS_OK;
}

enum ls_status ls_stream_next(struct ls_stream *stream, uint32_t rank, struct ls_batch *out,
                              uint64_t *waited_ns)
{
    const uint32_t local = rank - stream->options.first_rank;
    if (local >= stream->options.rank_count)
        return LS_USAGE;
    atomic_store(&stream->readers[local].inside, 1);
    const enum ls_status status = next(stream, local, out, waited_ns);
    atomic_store(&stream->readers[local].inside, 0);
    return status;
}

// ---- Open and close ----

static enum ls_status check_options(const struct ls_dataset *dataset,
                                    const struct ls_stream_options *options)
{
    const uint64_t last = (uint64_t)options->first_rank + options->rank_count;
    const char *wrong = NULL;
    if (!dataset->count)
        wrong = "the dataset has no examples";
    else if (dataset->count > UINT32_MAX)
        wrong = "the dataset has more than 4,294,967,295 examples";
    else if (!options->global_batch)
        wrong = "the batch must have at least 1 example";
    else if (options->first_example >= dataset->count)
        wrong = "the epoch has no examples left";
    else if (!options->rank_count || last > options->shares.world)
        wrong = "the ranks of this worker are not ranks of the job";
    else if (options->shuffle == LS_SHUFFLE_BUFFER && !options->shuffle_buffer)
        wrong = "a shuffle buffer must hold at least 1 example";
    if (!wrong)
        return LS_OK;
    ls_error("data", "%s", wrong);
    return LS_USAGE;
}

static enum ls_status choose_dtypes(const struct ls_dataset *dataset,
                                    struct ls_stream_options *options)
{
    for (uint32_t i = 0; i < dataset->field_count; i++) {
        const struct ls_field *field = &dataset->fields[i];
        if (!options->dtypes[i])
            options->dtypes[i] = field->dtype == LS_I32 || field->class_count ? LS_I32 : LS_F32;
        if (ls_can_gather(field->dtype, options->dtypes[i]))
            continue;
        ls_error("data", "field '%s' is %s, and cannot be delivered as %s", field->name,
                 ls_dtype_name(field->dtype), ls_dtype_name(options->dtypes[i]));
        return LS_USAGE;
    }
    return LS_OK;
}

static uint64_t round_up(uint64_t bytes)
{
    return (bytes + LS_ALIGNMENT - 1) / LS_ALIGNMENT * LS_ALIGNMENT;
}

// Of the shares of this worker's replicas in the batches to come. A smaller batch may have a larger
// one where replicas have weights.
static uint64_t most_examples(const struct ls_stream *stream)
{
    const struct ls_stream_options *options = &stream->options;
    const uint64_t count = stream->dataset->count, batch = options->global_batch;
    const uint64_t batches[] = {batch < count ? batch : count, count % batch,
                                (count - options->first_example) % batch};
    uint64_t offset, size, most = 0;
    for (int i = 0; i < 3; i++)
        for (uint32_t k = 0; k < options->rank_count; k++) {
            ls_share(&options->shares, batches[i], options->blocks, options->first_rank + k,
                     &offset, &size);
            most = size > most ? size : most;
        }
    return most;
}

// Sizes of the ring. False: more bytes than there are numbers.
static bool plan_ring(struct ls_stream *stream)
{
    const struct ls_stream_options *options = &stream->options;
    const struct ls_dataset *dataset = stream->dataset;
    const uint64_t share = most_examples(stream);
    const uint64_t most = UINT64_C(1) << 48;
    uint64_t elements = 0;
    for (uint32_t i = 0; i < dataset->field_count; i++) {
        const uint64_t more = ls_field_elements(&dataset->fields[i]);
        if (more > most / (4 * LS_MAX_FIELDS))
            return false;
        elements += more;
    }
    if (elements && share * options->rank_count > most / (4 * elements))
        return false;
    for (uint32_t i = 0; i < dataset->field_count; i++) {
        stream->offsets[i] = stream->share_bytes;
        if (options->left_out >> i & 1)
            continue;
        stream->share_bytes += round_up(share * ls_field_elements(&dataset->fields[i]) *
                                        ls_dtype_bytes(options->dtypes[i]));
    }
    const uint64_t slot = options->rank_count * stream->share_bytes + LS_ALIGNMENT;
    const uint64_t prefetch =
        options->prefetch_bytes ? options->prefetch_bytes : DEFAULT_PREFETCH_BYTES;
    uint64_t slots = prefetch / slot;
    slots = slots < LEAST_SLOTS ? LEAST_SLOTS : slots > MOST_SLOTS ? MOST_SLOTS : slots;
    stream->slots = (uint32_t)slots;
    return true;
}

static enum ls_status allocate(struct ls_stream *stream)
{
    if (!plan_ring(stream))
        return LS_OUT_OF_MEMORY;
    const uint32_t ranks = stream->options.rank_count;
    const uint64_t ring = (uint64_t)stream->slots * ranks * stream->share_bytes;
    stream->order = malloc(stream->dataset->count * sizeof(*stream->order));
    stream->positions = calloc(stream->slots, sizeof(*stream->positions));
    const size_t runs = (size_t)stream->slots * ranks * stream->runs;
    stream->run_offsets = calloc(runs, sizeof(*stream->run_offsets));
    stream->run_counts = calloc(runs, sizeof(*stream->run_counts));
    stream->memory = aligned_alloc(LS_ALIGNMENT, ring ? ring : LS_ALIGNMENT);
    stream->readers = aligned_alloc(LS_ALIGNMENT, ranks * sizeof(*stream->readers));
    if (!stream->order || !stream->positions || !stream->run_offsets || !stream->run_counts ||
        !stream->memory || !stream->readers)
        return LS_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < ranks; i++)
        stream->readers[i] = (struct reader){0};
    if (!ls_making_is_needed(stream->dataset, &stream->options))
        return LS_OK;
    stream->shares = calloc((size_t)ranks * stream->runs, sizeof(*stream->shares));
    return stream->shares ? ls_making_create(stream->dataset, &stream->options, &stream->making)
                          : LS_OUT_OF_MEMORY;
}

enum ls_status ls_stream_open(const struct ls_dataset *dataset,
                              const struct ls_stream_options *options, struct ls_stream **out)
{
    enum ls_status status = check_options(dataset, options);
    if (status)
        return status;
    struct ls_stream *stream = aligned_alloc(LS_ALIGNMENT, sizeof(*stream));
    if (!stream)
        return LS_OUT_OF_MEMORY;
    *stream = (struct ls_stream){
        .dataset = dataset,
        .options = *options,
    };
    if (!stream->options.blocks)
        stream->options.blocks = 1;
    stream->runs = runs_are_blocks(options) ? stream->options.blocks : 1;
    if (dataset->in_order)
        stream->options.shuffle = LS_SHUFFLE_OFF;
    status = choose_dtypes(dataset, &stream->options);
    if (!status) {
        status = allocate(stream);
        if (status)
            ls_error("data", "no memory for batches of %" PRIu64 " examples",
                     options->global_batch);
    }
    if (!status)
        status = ls_thread_start(&stream->thread, "ls-input", input_thread, stream);
    stream->started = !status;
    if (status) {
        ls_stream_close(stream);
        return status;
    }
    *out = stream;
    return LS_OK;
}

void ls_stream_abort(struct ls_stream *stream)
{
    atomic_store(&stream->stopped, 1);
    wake(&stream->writer_sleeps);
    wake_readers(stream);
}

void ls_stream_close(struct ls_stream *stream)
{
    if (!stream)
        return;
    if (stream->started) {
        ls_stream_abort(stream);
        pthread_join(stream->thread, NULL);
        for (uint32_t i = 0; i < stream->options.rank_count; i++)
            while (atomic_load(&stream->readers[i].inside)) // on its way out
                sched_yield();
    }
    ls_making_destroy(stream->making);
    free(atomic_load(&stream->error));
    free(stream->shares);
    free(stream->order);
    free(stream->positions);
    free(stream->run_offsets);
    free(stream->run_counts);
    free(stream->memory);
    free(stream->readers);
    free(stream);
}
