// SPDX-License-Identifier: Apache-2.0
// Reads a dataset while the main thread prepares programs, or takes one from the caller's memory.
#include "core/data/data.h"

#include "core/base/dtype.h"
#include "core/base/log.h"
#include "core/base/plain_locale.h"
#include "core/base/threads.h"
#include "core/data/arrays.h"
#include "core/data/data_host.h"
#include "core/data/dataset_plugins.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATIENCE_NS UINT64_C(600000000000) // with another process that reads the files

// Models were checked against what was described.
static bool is_as_described(const struct ls_dataset *dataset, const struct ls_dataset_info *info)
{
    bool same = dataset->count == info->count && dataset->field_count == info->field_count;
    for (uint32_t i = 0; same && i < info->field_count; i++) {
        const struct ls_field *read = &dataset->fields[i], *described = &info->fields[i];
        same = read->role == described->role && read->dtype == described->dtype &&
               read->divisor == described->divisor && read->ndims == described->ndims &&
               memcmp(read->dims, described->dims, sizeof(read->dims)) == 0 &&
               read->class_count == described->class_count;
    }
    return same;
}

// What is made on demand, and what a plugin of the user reads, every process reads by itself.
static enum ls_status open_dataset(struct ls_data *data)
{
    const struct ls_dataset_kind *own = ls_dataset_plugin_kind(data->plugin);
    if (own)
        return ls_dataset_open_as(own, data->text, data->split, &data->dataset);
    return ls_host_dataset_open(data->text, data->split,
                                data->info.on_demand || !data->job ? 1 : data->neighbours,
                                data->job, PATIENCE_NS, &data->offer, &data->dataset);
}

static enum ls_status read_dataset(struct ls_data *data)
{
    enum ls_status status = open_dataset(data);
    if (!status && !is_as_described(data->dataset, &data->info)) {
        ls_error("data", "the files of '%s' changed while they were read", data->text);
        status = LS_BAD_INPUT;
    }
    return status;
}

static void *read_files(void *argument)
{
    struct ls_data *data = argument;
    ls_log_keep(&data->error);
    const enum ls_status status = data->dataset ? LS_OK : read_dataset(data);
    pthread_mutex_lock(&data->lock);
    data->status = status;
    data->reading = false;
    pthread_cond_broadcast(&data->ready);
    pthread_mutex_unlock(&data->lock);
    ls_host_offer_serve(&data->offer, &data->closing);
    return NULL;
}

// Reads at once what has to be read anyway.
static enum ls_status look(struct ls_data *data)
{
    const struct ls_dataset_kind *own = ls_dataset_plugin_kind(data->plugin);
    bool reads = false;
    enum ls_status status = ls_dataset_reads_to_describe(own, data->text, data->split, &reads);
    if (!status && !reads)
        return ls_dataset_describe_as(own, data->text, data->split, &data->info);
    if (!status)
        status = open_dataset(data);
    if (!status)
        ls_dataset_take_description(data->dataset, &data->info);
    return status;
}

static enum ls_status split_of(const char *text, enum ls_split *out)
{
    if (strcmp(text, "train") == 0)
        *out = LS_TRAIN;
    else if (strcmp(text, "test") == 0)
        *out = LS_TEST;
    else if (strcmp(text, "validation") == 0)
        *out = LS_VALIDATION;
    else {
        ls_error("data", "there is no split '%s'; there are: train, test, validation", text);
        return LS_USAGE;
    }
    return LS_OK;
}

// Nothing is read yet. NULL: no memory.
static struct ls_data *create(const char *text)
{
    struct ls_data *data = calloc(1, sizeof(*data));
    if (!data)
        return NULL;
    pthread_mutex_init(&data->lock, NULL);
    pthread_cond_init(&data->ready, NULL);
    data->holders = 1;
    data->neighbours = 1;
    data->offer = (struct ls_host_offer){.listener = -1, .file = -1};
    data->text = strdup(text);
    data->name = strndup(text, strcspn(text, ":"));
    if (data->text && data->name)
        return data;
    ls_data_close(data);
    return NULL;
}

enum ls_status ls_open_data(const struct ls_data_sharing *sharing, const char *text,
                            const char *split, struct ls_data **out)
{
    struct ls_data *data = create(text);
    if (!data)
        return LS_OUT_OF_MEMORY;
    enum ls_status status = split_of(split, &data->split);
    if (!status)
        status = ls_dataset_plugin_find(sharing ? sharing->loader : NULL, text, &data->plugin);
    if (sharing) {
        data->neighbours = sharing->processes;
        data->job = strdup(sharing->job); // NULL: no memory, so files are read
    }
    if (!status)
        status = look(data);
    if (!status && data->info.count == 0) {
        ls_data_close(data);
        *out = NULL;
        return LS_OK;
    }
    data->reading = true;
    if (!status)
        status = ls_thread_start(&data->thread, "dataset", read_files, data);
    if (status) {
        ls_data_close(data);
        return status;
    }
    data->started = true;
    *out = data;
    return LS_OK;
}

enum ls_status ls_data_wait(struct ls_data *data, const struct ls_dataset **out)
{
    pthread_mutex_lock(&data->lock);
    while (data->started && data->reading)
        pthread_cond_wait(&data->ready, &data->lock);
    pthread_mutex_unlock(&data->lock);
    char *error = data->error ? strdup(data->error) : NULL;
    ls_log_write_kept(&error);
    if (!data->status)
        *out = data->dataset;
    return data->status;
}

enum ls_status ls_data_contents(struct ls_data *data, uint64_t *out)
{
    const struct ls_dataset *dataset = NULL;
    enum ls_status status = ls_data_wait(data, &dataset);
    if (status)
        return status;
    pthread_mutex_lock(&data->lock);
    uint64_t *contents = &data->dataset->contents;
    if (!*contents)
        status = ls_dataset_contents(dataset, contents);
    if (!status)
        *out = *contents;
    pthread_mutex_unlock(&data->lock);
    return status;
}

static enum ls_status refuse_class(const struct ls_data *data, const struct ls_class_names *names,
                                   const char *learner, const char *unknown)
{
    const struct ls_field *target = ls_dataset_named_target(data->dataset);
    char name[128], list[320];
    ls_error("data",
             "'%s' has the %s '%s', which is none of the %u that model '%s' has learnt (%s); leave "
             "it out, or train a model on data that has it",
             data->text, target->text ? "character" : "class", ls_class_name_shown(unknown, name),
             names->count, learner, ls_class_names_list(names, list, sizeof(list)));
    return LS_BAD_INPUT;
}

// Other models may read what was made for one, so it stays as long as the data.
enum ls_status ls_data_wait_numbered(struct ls_data *data, const struct ls_class_names *names,
                                     const char *learner, const struct ls_dataset **out)
{
    const char *unknown = NULL;
    enum ls_status status = ls_data_wait(data, out);
    if (status)
        return status;
    pthread_mutex_lock(&data->lock);
    struct ls_numbered_dataset *numbered = data->numbered;
    while (numbered && !ls_class_names_same(numbered->names, names))
        numbered = numbered->next;
    if (!numbered) {
        status = ls_dataset_renumber(data->dataset, names, &numbered, &unknown);
        if (numbered) {
            numbered->next = data->numbered;
            data->numbered = numbered;
        }
    }
    pthread_mutex_unlock(&data->lock);
    if (numbered)
        *out = &numbered->dataset;
    return status == LS_BAD_INPUT ? refuse_class(data, names, learner, unknown) : status;
}

void ls_data_hold(struct ls_data *data)
{
    data->holders++;
}

void ls_data_close(struct ls_data *data)
{
    LS_PLAIN_LOCALE;
    if (!data || --data->holders)
        return;
    atomic_store(&data->closing, true);
    if (data->started)
        pthread_join(data->thread, NULL);
    ls_host_offer_close(&data->offer);
    pthread_cond_destroy(&data->ready);
    pthread_mutex_destroy(&data->lock);
    for (struct ls_numbered_dataset *next; data->numbered; data->numbered = next) {
        next = data->numbered->next;
        ls_numbered_dataset_destroy(data->numbered);
    }
    ls_dataset_close(data->dataset);
    ls_dataset_plugin_close(data->plugin);
    free(data->error);
    free(data->job);
    free(data->text);
    free(data->name);
    free(data);
}

uint64_t ls_data_count(const struct ls_data *data)
{
    return data->info.count;
}

void ls_data_byte_divisors(const struct ls_data *data, const struct ls_data *other, float *out)
{
    const struct ls_dataset_info *a = &data->info, *b = other ? &other->info : a;
    for (uint32_t i = 0; i < LS_MAX_INPUTS; i++) {
        const struct ls_field *one = ls_field_find(a->fields, a->field_count, LS_FIELD_INPUT, i);
        const struct ls_field *two = ls_field_find(b->fields, b->field_count, LS_FIELD_INPUT, i);
        out[i] =
            one && two && one->dtype == LS_U8 && two->dtype == LS_U8 && one->divisor == two->divisor
                ? one->divisor
                : 0;
    }
}

// ---- From memory, or from a generator ----

static void take_dataset(struct ls_data *data, struct ls_dataset *dataset)
{
    data->dataset = dataset;
    data->info.count = dataset->count;
    data->info.field_count = dataset->field_count;
    memcpy(data->info.fields, dataset->fields, sizeof(dataset->fields));
    for (uint32_t i = 0; i < dataset->field_count; i++)
        data->info.fields[i].values = NULL;
}

enum ls_status ls_data_wrap(const char *text, struct ls_dataset *dataset, struct ls_data **out)
{
    struct ls_data *data = create(text);
    if (!data)
        return LS_OUT_OF_MEMORY;
    take_dataset(data, dataset);
    *out = data;
    return LS_OK;
}

// Behind a dataset from memory.
struct memory {
    void *copies[LS_MAX_FIELDS]; // the values of fields that are the dataset's own
    void (*release)(void *context); // of those that are not; NULL: nobody waits for it
    void *context;
};

static void close_memory(struct ls_dataset *dataset)
{
    struct memory *memory = dataset->storage;
    for (uint32_t i = 0; i < dataset->field_count; i++)
        free(memory->copies[i]);
    if (memory->release)
        memory->release(memory->context);
    free(memory);
    free(dataset);
}

// Whether a field can have these values where they are. A label would be an address outside of the
// loss if the program changed it.
static bool can_borrow(const struct ls_field *field, const struct ls_field_array *from,
                       const void *values)
{
    return field->role != LS_FIELD_TARGET && field->dtype == from->dtype && !from->boolean &&
           (uintptr_t)values % ls_dtype_bytes(field->dtype) == 0;
}

static enum ls_status take_values(struct ls_dataset *dataset, uint32_t index,
                                  const struct ls_field_array *from, const void *values,
                                  bool borrow)
{
    struct ls_field *field = &dataset->fields[index];
    struct memory *memory = dataset->storage;
    if (borrow && can_borrow(field, from, values)) {
        field->values = values;
        return LS_OK;
    }
    void *copy = malloc(dataset->count * field->stride);
    if (!copy)
        return LS_OUT_OF_MEMORY;
    field->values = memory->copies[index] = copy;
    return ls_array_convert("data", from, 0, dataset->count * ls_field_elements(field), values,
                            copy);
}

// `number` of those of its role, from 0.
static enum ls_status add_array(const struct ls_array *array, enum ls_field_role role,
                                uint32_t number, bool borrow, struct ls_dataset *dataset)
{
    const uint32_t index = dataset->field_count;
    struct ls_field *field = &dataset->fields[index];
    char name[16] = "y", source[32] = "the target";
    struct ls_field_array from = {
        .name = name, .source = source, .role = role, .ndims = array->ndims, .dims = array->dims};
    uint64_t count;
    if (role == LS_FIELD_INPUT) {
        snprintf(name, sizeof(name), number ? "x%u" : "x", number + 1);
        snprintf(source, sizeof(source), "input %u", number);
    }
    if (role == LS_FIELD_TARGET && number) {
        snprintf(name, sizeof(name), "y%u", number + 1);
        snprintf(source, sizeof(source), "target %u", number + 1);
    }
    if (role == LS_FIELD_WEIGHT) {
        snprintf(name, sizeof(name), "sample_weight");
        snprintf(source, sizeof(source), "sample_weight");
    }
    if (!ls_array_find_dtype(array->dtype, &from)) {
        ls_error("data", "%s: dtype '%s'; expected bool, uint8, int32, int64, float32 or float64",
                 source, array->dtype ? array->dtype : "");
        return LS_BAD_INPUT;
    }
    enum ls_status status = ls_array_describe("data", &from, field, &count);
    if (!status && index > 0 && count != dataset->count) {
        ls_error("data", "%s has %llu examples, but input 0 has %llu", source,
                 (unsigned long long)count, (unsigned long long)dataset->count);
        status = LS_BAD_INPUT;
    }
    if (!status && !array->values) {
        ls_error("data", "%s has no values", source);
        status = LS_BAD_INPUT;
    }
    if (status)
        return status;
    dataset->count = count;
    dataset->field_count++; // the copy is freed with it from now on
    status = take_values(dataset, index, &from, array->values, borrow);
    if (!status && role == LS_FIELD_TARGET)
        ls_array_count_classes(field, count);
    return status;
}

// NULL: no memory.
static struct ls_dataset *create_dataset(void)
{
    struct ls_dataset *dataset = calloc(1, sizeof(*dataset));
    struct memory *memory = calloc(1, sizeof(*memory));
    if (!dataset || !memory) {
        free(dataset);
        free(memory);
        return NULL;
    }
    dataset->real = true;
    dataset->storage = memory;
    dataset->close = close_memory;
    return dataset;
}

static enum ls_status take_arrays(const struct ls_batch_arrays *arrays, bool borrow,
                                  struct ls_data **out)
{
    const uint32_t inputs = arrays->input_count;
    if (!arrays->inputs || inputs < 1 || inputs > LS_MAX_INPUTS) {
        ls_error("data", "%u inputs; expected 1 to %d", inputs, LS_MAX_INPUTS);
        return LS_USAGE;
    }
    const uint32_t targets = arrays->target && !arrays->target_count ? 1 : arrays->target_count;
    if (targets > LS_MAX_FIELDS - inputs - (arrays->weights != NULL)) {
        ls_error("data", "%u inputs and %u targets; expected at most %d arrays with the weights",
                 inputs, targets, LS_MAX_FIELDS);
        return LS_USAGE;
    }
    struct ls_dataset *dataset = create_dataset();
    if (!dataset)
        return LS_OUT_OF_MEMORY;
    enum ls_status status = LS_OK;
    for (uint32_t i = 0; !status && i < inputs; i++)
        status = add_array(&arrays->inputs[i], LS_FIELD_INPUT, i, borrow, dataset);
    for (uint32_t i = 0; !status && i < targets; i++)
        status = add_array(&arrays->target[i], LS_FIELD_TARGET, i, borrow, dataset);
    if (!status && arrays->weights)
        status = add_array(arrays->weights, LS_FIELD_WEIGHT, 0, borrow, dataset);
    if (!status)
        status = ls_dataset_contents(dataset, &dataset->contents);
    char text[48]; // other data has another one, so that nothing of its order is taken over
    snprintf(text, sizeof(text), "memory:hash=%016llx", (unsigned long long)dataset->contents);
    if (!status)
        status = ls_data_wrap(text, dataset, out);
    if (status)
        ls_dataset_close(dataset);
    return status;
}

enum ls_status ls_copy_data(const struct ls_batch_arrays *arrays, struct ls_data **out)
{
    return take_arrays(arrays, false, out);
}

enum ls_status ls_borrow_data(const struct ls_batch_arrays *arrays, void (*release)(void *context),
                              void *context, struct ls_data **out)
{
    const enum ls_status status = take_arrays(arrays, true, out);
    if (status)
        return status;
    struct memory *memory = (*out)->dataset->storage;
    memory->release = release;
    memory->context = context;
    return LS_OK;
}
