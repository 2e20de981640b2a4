// SPDX-License-Identifier: Apache-2.0
// A dataset whose examples a function of the program makes, in order, or once where nobody knows how
// many there are.
#include "core/base/log.h"
#include "core/base/plain_locale.h"
#include "core/data/data.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SCOPE "generator"
#define PIECE 64 // examples that are asked for where the end is not known
#define MOST_VALUES (UINT64_C(1) << 32) // of an example

struct generated {
    struct ls_dataset dataset;
    struct ls_generator generator;
    pthread_mutex_t lock; // of calls: several streams may read
    char *memory[LS_MAX_FIELDS]; // of all examples, where they are made once
};

static void generated_close(struct ls_dataset *dataset)
{
    struct generated *generated = dataset->storage;
    pthread_mutex_destroy(&generated->lock);
    for (uint32_t i = 0; i < LS_MAX_FIELDS; i++)
        free(generated->memory[i]);
    free(generated);
}

// What a program may return: any number.
static enum ls_status status_of(int32_t status)
{
    const bool known = status > LS_OK && status <= LS_PEER_LOST;
    return known ? (enum ls_status)status : LS_FAILED;
}

static enum ls_status call_generator(struct generated *generated, uint64_t epoch, uint64_t first,
                                     uint64_t count, void *const *fields, uint64_t *filled)
{
    const struct ls_generator *generator = &generated->generator;
    const uint32_t inputs = generator->input_count;
    *filled = count;
    pthread_mutex_lock(&generated->lock);
    const locale_t own = ls_locale_enter_program();
    const enum ls_status status =
        generator->fill(generator->context, epoch, first, count, fields,
                        generator->target ? fields[inputs] : NULL, filled);
    ls_locale_return(own);
    pthread_mutex_unlock(&generated->lock);
    if (status) {
        ls_error(SCOPE,
                 "examples %" PRIu64 " to %" PRIu64 " of epoch %" PRIu64
                 ": the program's function returned status %d (%s)",
                 first, first + count - 1, epoch, (int)status,
                 ls_status_text(status_of((int32_t)status)));
        return status_of((int32_t)status);
    }
    if (*filled > count || (*filled < count && generator->examples)) {
        ls_error(SCOPE,
                 "%" PRIu64 " examples were made of the %" PRIu64 " from %" PRIu64
                 " on, of %" PRIu64 " in an epoch",
                 *filled, count, first, generator->examples);
        return LS_BAD_INPUT;
    }
    return generator->target ? ls_field_check_labels(SCOPE, &generated->dataset.fields[inputs],
                                                     first, *filled, fields[inputs])
                             : LS_OK;
}

static enum ls_status load(const struct ls_dataset *dataset, uint64_t epoch, uint64_t first,
                           uint64_t count, void *const *fields)
{
    uint64_t filled;
    return call_generator(dataset->storage, epoch, first, count, fields, &filled);
}

// ---- Where the end is not known ----

// Room for as many more examples.
static enum ls_status make_room(struct generated *generated, uint64_t examples)
{
    struct ls_dataset *dataset = &generated->dataset;
    for (uint32_t i = 0; i < dataset->field_count; i++) {
        const uint64_t bytes = dataset->fields[i].stride;
        char *memory = examples <= SIZE_MAX / bytes
                           ? realloc(generated->memory[i], (size_t)(examples * bytes))
                           : NULL;
        if (!memory)
            return LS_OUT_OF_MEMORY;
        generated->memory[i] = memory;
    }
    return LS_OK;
}

static enum ls_status make_all(struct generated *generated)
{
    struct ls_dataset *dataset = &generated->dataset;
    uint64_t room = 0, filled = PIECE;
    enum ls_status status = LS_OK;
    while (!status && filled == PIECE) {
        void *fields[LS_MAX_FIELDS] = {NULL};
        if (dataset->count + PIECE > room) {
            room = room ? 2 * room : 16 * PIECE;
            status = make_room(generated, room);
        }
        if (status)
            break;
        for (uint32_t i = 0; i < dataset->field_count; i++)
            fields[i] = generated->memory[i] + dataset->count * dataset->fields[i].stride;
        status = call_generator(generated, 1, dataset->count, PIECE, fields, &filled);
        if (!status)
            dataset->count += filled;
        if (!status && dataset->count >= UINT32_MAX) {
            ls_error(SCOPE, "more than 4,294,967,294 examples, and no end");
            status = LS_BAD_INPUT;
        }
    }
    if (!status && !dataset->count) {
        ls_error(SCOPE, "there are no examples");
        status = LS_BAD_INPUT;
    }
    if (!status) // what is too much is given back
        status = make_room(generated, dataset->count);
    for (uint32_t i = 0; i < dataset->field_count; i++)
        dataset->fields[i].values = generated->memory[i];
    return status;
}

// ---- Opening ----

static enum ls_status add_field(struct ls_dataset *dataset, const struct ls_array *array,
                                enum ls_field_role role, uint32_t classes)
{
    const uint32_t index = dataset->field_count;
    struct ls_field *field = &dataset->fields[index];
    struct ls_field_array type = {0};
    *field = (struct ls_field){.role = role, .divisor = 1, .class_count = classes};
    if (role == LS_FIELD_TARGET)
        snprintf(field->name, sizeof(field->name), "y");
    else
        snprintf(field->name, sizeof(field->name), index ? "x%u" : "x", index + 1);
    if (!ls_array_find_dtype(array->dtype, &type) || type.boolean ||
        (type.dtype != LS_U8 && type.dtype != LS_I32 && type.dtype != LS_F32)) {
        ls_error(SCOPE, "%s: dtype '%s'; expected uint8, int32 or float32", field->name,
                 array->dtype ? array->dtype : "");
        return LS_USAGE;
    }
    field->dtype = type.dtype;
    field->ndims = array->ndims;
    uint64_t elements = 1;
    for (uint32_t i = 0; i < array->ndims && i < LS_ARRAY_DIMS; i++) {
        const int64_t dim = array->dims[i];
        elements =
            dim > 0 && (uint64_t)dim <= MOST_VALUES / elements ? elements * (uint64_t)dim : 0;
        if (!elements)
            break;
        field->dims[i] = dim;
    }
    if (!elements || array->ndims > LS_ARRAY_DIMS) {
        ls_error(SCOPE, "%s: expected at most %d dimensions, none of them 0", field->name,
                 LS_ARRAY_DIMS);
        return LS_USAGE;
    }
    if (classes && field->dtype == LS_F32) {
        ls_error(SCOPE, "y: %u classes of float32; expected uint8 or int32", classes);
        return LS_USAGE;
    }
    if (array->ndims == 0 && role == LS_FIELD_INPUT) { // inputs have rows
        field->ndims = 1;
        field->dims[0] = 1;
    }
    field->stride = elements * ls_dtype_bytes(field->dtype);
    dataset->field_count++;
    return LS_OK;
}

static enum ls_status describe(const struct ls_generator *generator, struct ls_dataset *dataset)
{
    enum ls_status status = LS_OK;
    if (!generator->fill || !generator->inputs || generator->input_count < 1 ||
        generator->input_count > LS_MAX_INPUTS) {
        ls_error(SCOPE, "expected a function that fills, and 1 to %d inputs", LS_MAX_INPUTS);
        return LS_USAGE;
    }
    if (generator->examples >= UINT32_MAX) {
        ls_error(SCOPE, "%" PRIu64 " examples; at most 4,294,967,294 in an epoch",
                 generator->examples);
        return LS_USAGE;
    }
    for (uint32_t i = 0; !status && i < generator->input_count; i++)
        status = add_field(dataset, &generator->inputs[i], LS_FIELD_INPUT, 0);
    if (!status && generator->target)
        status = add_field(dataset, generator->target, LS_FIELD_TARGET, generator->classes);
    return status;
}

enum ls_status ls_generate_data(const struct ls_generator *generator, struct ls_data **out)
{
    static atomic_uint generators;
    char text[32];
    struct generated *generated = calloc(1, sizeof(*generated));
    if (!generated)
        return LS_OUT_OF_MEMORY;
    struct ls_dataset *dataset = &generated->dataset;
    generated->generator = *generator;
    pthread_mutex_init(&generated->lock, NULL);
    *dataset = (struct ls_dataset){.count = generator->examples,
                                   .real = true,
                                   .in_order = true,
                                   .load = load,
                                   .storage = generated,
                                   .close = generated_close};
    enum ls_status status = describe(generator, dataset);
    if (!status && !generator->examples) {
        dataset->load = NULL;
        dataset->in_order = false;
        status = make_all(generated);
    }
    snprintf(text, sizeof(text), "generator:number=%u", atomic_fetch_add(&generators, 1) + 1);
    if (!status)
        status = ls_data_wrap(text, dataset, out);
    if (status)
        generated_close(dataset);
    return status;
}
