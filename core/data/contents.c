// SPDX-License-Identifier: Apache-2.0
// What tells the examples of a dataset from others: a hash (XXH64) of them, and not of how the user called them.
#include "core/base/dtype.h"
#include "core/base/hash.h"
#include "core/data/crew.h"
#include "core/data/dataset.h"

#include <stdlib.h>
#include <string.h>

#define WHOLE UINT64_C(4096) // examples made on demand that are looked at whole, at equal distances
#define PIECE 256 // examples that one thread looks at, one after the other

static void add_number(struct ls_hash *hash, double number)
{
    ls_hash_add(hash, &number, sizeof(number));
}

// Examples may overlap, or have those of another field between them.
static void add_values(struct ls_hash *hash, const struct ls_field *field, uint64_t count)
{
    const uint64_t bytes = ls_field_elements(field) * ls_dtype_bytes(field->dtype);
    add_number(hash, field->stride < bytes ? (double)field->stride : (double)bytes);
    if (field->stride <= bytes && count)
        ls_hash_add(hash, field->values, (size_t)((count - 1) * field->stride + bytes));
    for (uint64_t i = 0; field->stride > bytes && i < count; i++)
        ls_hash_add(hash, (const char *)field->values + i * field->stride, (size_t)bytes);
}

static void add_field(struct ls_hash *hash, const struct ls_field *field, uint64_t count)
{
    const uint32_t facts[] = {field->role, field->dtype, field->ndims, field->class_count};
    ls_hash_add(hash, facts, sizeof(facts));
    ls_hash_add(hash, field->dims, field->ndims * sizeof(field->dims[0]));
    add_number(hash, (double)field->divisor);
    for (uint32_t i = 0; field->class_names && i < field->class_count; i++)
        ls_hash_add(hash, field->class_names[i], strlen(field->class_names[i]) + 1);
    if (field->values)
        add_values(hash, field, count);
}

// What is made of them in each epoch.
static void add_options(struct ls_hash *hash, const struct ls_dataset *dataset)
{
    const struct ls_augmentation *augmentation = &dataset->augmentation;
    const uint64_t facts[] = {dataset->count, dataset->repeat > 1 ? dataset->repeat : 1,
                              augmentation->flip_rows, augmentation->flip_columns,
                              augmentation->crop};
    ls_hash_add(hash, facts, sizeof(facts));
    add_number(hash, augmentation->translation);
    add_number(hash, augmentation->rotation);
}

// ---- Examples that are made on demand ----

struct pieces {
    const struct ls_dataset *made;
    uint64_t *hashes; // of each
};

// Whether the example is among WHOLE at equal distances, the first of them example 0.
static bool is_taken(uint64_t example, uint64_t count)
{
    const uint64_t taken = count < WHOLE ? count : WHOLE, k = (example * taken + count - 1) / count;
    return k < taken && k * count / taken == example;
}

// Of a reader that says nothing about its examples.
static enum ls_status add_loaded(struct ls_hash *hash, const struct ls_dataset *made,
                                 uint64_t example)
{
    void *fields[LS_MAX_FIELDS] = {NULL};
    uint64_t bytes[LS_MAX_FIELDS] = {0};
    enum ls_status status = LS_OK;
    for (uint32_t i = 0; !status && i < made->field_count; i++) {
        const struct ls_field *field = &made->fields[i];
        bytes[i] = field->values ? 0 : ls_field_elements(field) * ls_dtype_bytes(field->dtype);
        fields[i] = bytes[i] ? malloc((size_t)bytes[i]) : NULL;
        status = bytes[i] && !fields[i] ? LS_OUT_OF_MEMORY : LS_OK;
    }
    if (!status)
        status = made->load(made, 0, made->first + example, 1, fields);
    for (uint32_t i = 0; i < made->field_count; i++) {
        if (!status)
            ls_hash_add(hash, fields[i], (size_t)bytes[i]);
        free(fields[i]);
    }
    return status;
}

static enum ls_status hash_piece(void *context, uint32_t worker, uint64_t item)
{
    const struct pieces *pieces = context;
    const struct ls_dataset *made = pieces->made;
    struct ls_hash *hash = ls_hash_create();
    enum ls_status status = hash ? LS_OK : LS_OUT_OF_MEMORY;
    (void)worker;
    for (uint64_t i = item * PIECE; !status && i < made->count && i < (item + 1) * PIECE; i++) {
        const bool whole = is_taken(i, made->count);
        if (made->identify)
            status = made->identify(made, made->first + i, whole, hash);
        else if (whole)
            status = add_loaded(hash, made, i);
    }
    if (!status)
        pieces->hashes[item] = ls_hash_get(hash);
    ls_hash_destroy(hash);
    return status;
}

// Those of a generator are made once, in their order, so nobody can look at them.
static enum ls_status add_made(struct ls_hash *hash, const struct ls_dataset *made)
{
    const uint64_t count = (made->count + PIECE - 1) / PIECE;
    if (!made->load || made->in_order)
        return LS_OK;
    struct pieces pieces = {.made = made, .hashes = calloc(count, sizeof(*pieces.hashes))};
    enum ls_status status = pieces.hashes ? LS_OK : LS_OUT_OF_MEMORY;
    if (!status)
        status = ls_crew_run_once(hash_piece, &pieces, count);
    if (!status)
        ls_hash_add(hash, pieces.hashes, count * sizeof(*pieces.hashes));
    free(pieces.hashes);
    return status;
}

enum ls_status ls_dataset_contents(const struct ls_dataset *dataset, uint64_t *out)
{
    // The same whether they are kept or made anew.
    const struct ls_dataset *made = dataset->made ? dataset->made : dataset;
    const uint64_t count = dataset->count / (dataset->repeat ? dataset->repeat : 1);
    struct ls_hash *hash = ls_hash_create();
    if (!hash)
        return LS_OUT_OF_MEMORY;
    add_options(hash, dataset);
    for (uint32_t i = 0; i < made->field_count; i++)
        add_field(hash, &made->fields[i], count);
    struct ls_dataset once = *made;
    once.count = count;
    const enum ls_status status = add_made(hash, &once);
    const uint64_t contents = ls_hash_get(hash);
    if (!status)
        *out = contents ? contents : 1; // 0 is: not known
    ls_hash_destroy(hash);
    return status;
}
