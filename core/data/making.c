// SPDX-License-Identifier: Apache-2.0
// Examples are independent of each other, so each is an item of a crew. A dataset in order is asked
// for pieces of a share instead, by one thread.
#include "core/data/making.h"

#include "core/base/random.h"
#include "core/base/threads.h"
#include "core/data/augment.h"
#include "core/data/crew.h"
#include "core/data/gather.h"

#include <stdlib.h>
#include <string.h>

#define PIECE 64 // examples that a dataset in order is asked for at a time
#define MOST_WORKERS 16

// What a worker writes before it is delivered.
struct worker {
    char *stored[LS_MAX_FIELDS]; // of fields without values, as `load` makes them
    void *images[2]; // of augmentation
};

struct ls_making {
    const struct ls_dataset *dataset;
    const struct ls_stream_options *options;
    uint64_t examples; // without repetitions
    uint32_t image; // field that is augmented; LS_MAX_FIELDS: none
    uint32_t piece;
    uint64_t stored_bytes[LS_MAX_FIELDS]; // of an example
    struct ls_crew *crew;
    struct worker *workers;

    // The batch that is written.
    uint64_t epoch, augmentation_key;
    const uint32_t *order;
    const struct ls_making_share *shares;
};

bool ls_making_is_needed(const struct ls_dataset *dataset, const struct ls_stream_options *options)
{
    return dataset->load || dataset->repeat > 1 ||
           (options->augment && !ls_augmentation_is_none(&dataset->augmentation));
}

static enum ls_status create_worker(const struct ls_making *making, struct worker *worker)
{
    const struct ls_dataset *dataset = making->dataset;
    for (uint32_t i = 0; i < dataset->field_count; i++) {
        if (dataset->fields[i].values)
            continue;
        worker->stored[i] = malloc(making->stored_bytes[i] * making->piece);
        if (!worker->stored[i])
            return LS_OUT_OF_MEMORY;
    }
    for (int i = 0; i < 2 && making->image < LS_MAX_FIELDS; i++) {
        worker->images[i] = malloc(making->stored_bytes[making->image]);
        if (!worker->images[i])
            return LS_OUT_OF_MEMORY;
    }
    return LS_OK;
}

enum ls_status ls_making_create(const struct ls_dataset *dataset,
                                const struct ls_stream_options *options, struct ls_making **out)
{
    struct ls_making *making = calloc(1, sizeof(*making));
    if (!making)
        return LS_OUT_OF_MEMORY;
    const bool parallel = dataset->load && !dataset->in_order;
    const uint32_t cores = ls_core_count(), most = cores < MOST_WORKERS ? cores : MOST_WORKERS;
    *making = (struct ls_making){
        .dataset = dataset,
        .options = options,
        .examples = dataset->repeat > 1 ? dataset->count / dataset->repeat : dataset->count,
        .image = LS_MAX_FIELDS,
        .piece = dataset->load && dataset->in_order ? PIECE : 1,
    };
    for (uint32_t i = 0; i < dataset->field_count; i++) {
        const struct ls_field *field = &dataset->fields[i];
        making->stored_bytes[i] = ls_field_elements(field) * ls_dtype_bytes(field->dtype);
        if (options->augment && !ls_augmentation_is_none(&dataset->augmentation) &&
            making->image == LS_MAX_FIELDS && field->role == LS_FIELD_INPUT)
            making->image = i;
    }
    enum ls_status status = ls_crew_create(parallel ? most : 1, &making->crew);
    const uint32_t workers = status ? 0 : ls_crew_workers(making->crew);
    making->workers = calloc(workers ? workers : 1, sizeof(*making->workers));
    if (!status && !making->workers)
        status = LS_OUT_OF_MEMORY;
    for (uint32_t i = 0; !status && i < workers; i++)
        status = create_worker(making, &making->workers[i]);
    if (status)
        ls_making_destroy(making);
    else
        *out = making;
    return status;
}

void ls_making_destroy(struct ls_making *making)
{
    if (!making)
        return;
    const uint32_t workers = making->crew ? ls_crew_workers(making->crew) : 0;
    ls_crew_destroy(making->crew);
    for (uint32_t i = 0; making->workers && i < workers; i++) {
        for (uint32_t field = 0; field < LS_MAX_FIELDS; field++)
            free(making->workers[i].stored[field]);
        free(making->workers[i].images[0]);
        free(making->workers[i].images[1]);
    }
    free(making->workers);
    free(making);
}

static uint64_t pieces_of(const struct ls_making *making, uint64_t count)
{
    return (count + making->piece - 1) / making->piece;
}

// Examples `first` to `first + count` of a share.
static enum ls_status make(const struct ls_making *making, struct worker *worker,
                           const struct ls_making_share *share, uint64_t first, uint64_t count)
{
    const struct ls_dataset *dataset = making->dataset;
    const uint32_t *order = making->order + share->first + first;
    enum ls_status status = LS_OK;
    if (dataset->load) {
        void *fields[LS_MAX_FIELDS];
        memcpy(fields, worker->stored, sizeof(fields));
        status = dataset->load(dataset, making->epoch, dataset->first + order[0] % making->examples,
                               count, fields);
    }
    for (uint32_t i = 0; !status && i < dataset->field_count; i++) {
        const struct ls_field *field = &dataset->fields[i];
        const uint32_t dtype = making->options->dtypes[i];
        const uint64_t elements = ls_field_elements(field);
        for (uint64_t k = 0; share->fields[i] && k < count; k++) {
            const uint64_t example = order[k] % making->examples;
            const void *from = field->values ? (const char *)field->values + example * field->stride
                                             : worker->stored[i] + k * making->stored_bytes[i];
            // By its number in the epoch, so that repetitions differ.
            if (i == making->image)
                from = ls_augment(&dataset->augmentation, field,
                                  ls_random_key(making->augmentation_key, order[k]), from,
                                  worker->images);
            ls_deliver(field, dtype, from, elements,
                       share->fields[i] + (first + k) * elements * ls_dtype_bytes(dtype));
        }
    }
    return status;
}

static enum ls_status make_item(void *context, uint32_t worker, uint64_t item)
{
    const struct ls_making *making = context;
    const struct ls_making_share *share = making->shares;
    while (item >= pieces_of(making, share->count))
        item -= pieces_of(making, share++->count);
    const uint64_t first = item * making->piece, rest = share->count - first;
    return make(making, &making->workers[worker], share, first,
                rest < making->piece ? rest : making->piece);
}

enum ls_status ls_making_write(struct ls_making *making, uint64_t epoch, const uint32_t *order,
                               const struct ls_making_share *shares, uint32_t share_count,
                               const _Atomic uint32_t *stop)
{
    uint64_t items = 0;
    making->epoch = epoch;
    making->augmentation_key = ls_augmentation_key(making->options->seed, epoch);
    making->order = order;
    making->shares = shares;
    for (uint32_t i = 0; i < share_count; i++)
        items += pieces_of(making, shares[i].count);
    return ls_crew_run(making->crew, make_item, making, items, stop);
}
