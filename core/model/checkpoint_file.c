// SPDX-License-Identifier: Apache-2.0
// Copies a model, writes the copy, reads it again.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // memmem
#endif
#include "core/model/checkpoint_file.h"

#include "core/base/hash.h"
#include "core/base/log.h"
#include "core/base/memory.h"
#include "core/formats/replacement.h"
#include "core/model/learned_classes.h"
#include "core/model/renaming.h"

#include <errno.h>
#include <fcntl.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SCOPE "checkpoint"
#define VERSION 1 // of the state
#define HEAD_BYTES 4096 // of a file, in which its state begins
#define LENGTH_BYTES 8 // in front of its header
#define LONGEST_NAME 512
#define SUM_DIGITS 16
#define MOST_STEPS (UINT64_C(1) << 60) // so that a few may be added

// ---- Copies ----

static size_t values_of(const struct ls_saved_tensor *tensor)
{
    size_t count = 1;
    for (uint32_t i = 0; i < tensor->ndims; i++)
        count *= (size_t)tensor->dims[i];
    return count;
}

// Where the tensor was of the same size in the last copy, its memory is used again. `out`: its
// values, which are to be filled in; NULL: it has none.
static enum ls_status add_tensor(struct ls_checkpoint_image *image, const char *name,
                                 const struct ls_saved_tensor *shape, float **out)
{
    if (image->count == image->room) {
        const size_t room = image->room ? 2 * image->room : 64;
        struct ls_saved_tensor *larger = realloc(image->tensors, room * sizeof(*larger));
        if (!larger)
            return LS_OUT_OF_MEMORY;
        memset(larger + image->room, 0, (room - image->room) * sizeof(*larger));
        image->tensors = larger;
        image->room = room;
    }
    struct ls_saved_tensor *tensor = &image->tensors[image->count];
    const size_t count = values_of(shape);
    if (!out) {
        free((void *)(uintptr_t)tensor->name);
        free((void *)(uintptr_t)tensor->data);
        *tensor = (struct ls_saved_tensor){.name = strdup(name), .ndims = shape->ndims};
        memcpy(tensor->dims, shape->dims, sizeof(shape->dims));
        image->count++;
        return tensor->name ? LS_OK : LS_OUT_OF_MEMORY;
    }
    if (!tensor->data || !tensor->name || strcmp(tensor->name, name) != 0 ||
        values_of(tensor) != count) {
        free((void *)(uintptr_t)tensor->name);
        free((void *)(uintptr_t)tensor->data);
        tensor->name = strdup(name);
        tensor->data = ls_malloc_aligned(count * sizeof(float));
    }
    tensor->ndims = shape->ndims;
    memcpy(tensor->dims, shape->dims, sizeof(shape->dims));
    image->count++;
    *out = (float *)(uintptr_t)tensor->data;
    return tensor->name && tensor->data ? LS_OK : LS_OUT_OF_MEMORY;
}

enum ls_status ls_checkpoint_add(struct ls_checkpoint_image *image, const char *name,
                                 const float *values, uint64_t count)
{
    const struct ls_saved_tensor shape = {.ndims = 1, .dims = {(int64_t)count}};
    float *to = NULL;
    const enum ls_status status = add_tensor(image, name, &shape, &to);
    if (!status)
        memcpy(to, values, count * sizeof(*values));
    return status;
}

void ls_checkpoint_remove(struct ls_checkpoint_image *image, size_t index)
{
    struct ls_saved_tensor *tensor = &image->tensors[index];
    free((void *)(uintptr_t)tensor->name);
    free((void *)(uintptr_t)tensor->data);
    memmove(tensor, tensor + 1, (image->room - index - 1) * sizeof(*tensor));
    memset(&image->tensors[image->room - 1], 0, sizeof(*tensor));
    image->count--;
}

static enum ls_status add_parameter(struct ls_checkpoint_image *image,
                                    const struct ls_tensor *parameter, int state, float **out)
{
    const struct ls_shape *variable = ls_variable_shape(parameter);
    struct ls_saved_tensor shape = {.ndims = variable->ndims};
    char name[LONGEST_NAME];
    memcpy(shape.dims, variable->dims, sizeof(variable->dims));
    if (state < 0)
        return add_tensor(image, parameter->name, &shape, out);
    snprintf(name, sizeof(name), "%s/optimizer_%d", parameter->name, state);
    return add_tensor(image, name, &shape, out);
}

// A tensor for each variable and each state of the optimizer; `to`: where their values belong, NULL:
// nowhere.
static enum ls_status add_variables(struct ls_checkpoint_image *image, const struct ls_model *model,
                                    const struct ls_values *to)
{
    const struct ls_graph *graph = model->graph;
    enum ls_status status = LS_OK;
    for (uint32_t i = 0; !status && i < graph->parameter_count; i++) {
        const struct ls_tensor *parameter = graph->parameters[i];
        if (parameter->constant)
            continue;
        status = add_parameter(image, parameter, -1, to ? &to->weights[i] : NULL);
        for (uint32_t k = 0; !status && k < model->optimizer.state_count; k++)
            if (!to || to->states[k])
                status = add_parameter(image, parameter, (int)k, to ? &to->states[k][i] : NULL);
    }
    return status;
}

static void copy_values(const struct ls_graph *graph, float *const *from, float **to)
{
    for (uint32_t i = 0; to && i < graph->parameter_count; i++)
        if (to[i])
            memcpy(to[i], from[i],
                   (size_t)ls_shape_elements(&graph->parameters[i]->shape, 1) * sizeof(float));
}

enum ls_status ls_checkpoint_begin(const struct ls_model *model, struct ls_checkpoint_image *image,
                                   struct ls_values *to)
{
    const struct ls_graph *graph = model->graph;
    const uint32_t states = model->optimizer.state_count;
    float **pointers = calloc((size_t)graph->parameter_count * (1 + states) + 1, sizeof(*pointers));
    *to = (struct ls_values){.weights = pointers};
    if (!pointers)
        return LS_OUT_OF_MEMORY;
    for (uint32_t k = 0; k < states; k++)
        if (model->states_ahead || model->states[k])
            to->states[k] = pointers + (size_t)graph->parameter_count * (1 + k);
    image->count = 0;
    image->step = model->steps_done;
    image->source = (struct ls_value_source){0};
    const enum ls_status status = add_variables(image, model, to);
    if (status)
        free(pointers);
    return status;
}

enum ls_status ls_checkpoint_begin_from(const struct ls_model *model,
                                        const struct ls_value_source *source,
                                        struct ls_checkpoint_image *image)
{
    image->count = 0;
    image->step = model->steps_done;
    image->source = *source;
    image->graph = model->graph;
    image->states = model->optimizer.state_count;
    const enum ls_status status = add_variables(image, model, NULL);
    image->sourced = image->count;
    return status;
}

void ls_checkpoint_copy(const struct ls_model *model, const struct ls_values *to)
{
    if (!model->ahead)
        copy_values(model->graph, model->weights, to->weights);
    for (uint32_t k = 0; !model->states_ahead && k < model->optimizer.state_count; k++)
        copy_values(model->graph, model->states[k], to->states[k]);
}

void ls_checkpoint_finish(struct ls_checkpoint_image *image)
{
    for (size_t i = 0; i < image->room; i++) {
        free((void *)(uintptr_t)image->tensors[i].name);
        free((void *)(uintptr_t)image->tensors[i].data);
    }
    free(image->tensors);
    free(image->state);
    free(image->classes);
    *image = (struct ls_checkpoint_image){0};
}

// ---- The state ----

json_t *ls_checkpoint_order(const struct ls_model_order *order)
{
    char key[24];
    snprintf(key, sizeof(key), "%016" PRIx64, order->key);
    return json_pack("{s:s, s:I, s:I}", "key", key, "epochs", (json_int_t)order->epochs, "position",
                     (json_int_t)order->position);
}

bool ls_checkpoint_count(const json_t *object, const char *key, uint64_t *out)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return false;
    *out = (uint64_t)json_integer_value(value);
    return true;
}

bool ls_checkpoint_read_order(const json_t *json, struct ls_model_order *out)
{
    const char *key = json_string_value(json_object_get(json, "key"));
    if (!key)
        return false;
    out->key = strtoull(key, NULL, 16);
    return ls_checkpoint_count(json, "epochs", &out->epochs) &&
           ls_checkpoint_count(json, "position", &out->position);
}

static json_t *optimizer_json(const struct ls_optimizer *optimizer)
{
    json_t *options = json_object();
    for (uint32_t i = 0; i < optimizer->option_count; i++)
        json_object_set_new(options, optimizer->options[i].name,
                            json_real(optimizer->options[i].value));
    return json_pack("{s:s, s:o, s:f, s:I}", "name", optimizer->name, "options", options,
                     "learning_rate", optimizer->learning_rate, "states",
                     (json_int_t)optimizer->state_count);
}

static json_t *scale_json(const struct ls_loss_scale_state *scale)
{
    return json_pack("{s:f, s:I, s:I, s:I, s:I}", "scale", (double)scale->scale, "good_steps",
                     (json_int_t)scale->good_steps, "updates", (json_int_t)scale->updates,
                     "skipped", (json_int_t)scale->skipped, "skipped_in_row",
                     (json_int_t)scale->skipped_in_row);
}

enum ls_status ls_checkpoint_describe(const struct ls_model *model, json_t *own,
                                      struct ls_checkpoint_image *image)
{
    char training[24];
    snprintf(training, sizeof(training), "%016" PRIx64, image->training);
    // What ls_checkpoint_read_head reads comes first.
    json_t *state =
        json_pack("{s:i, s:I, s:I, s:s, s:o, s:o, s:o, s:o}", "version", VERSION, "steps",
                  (json_int_t)model->steps_done, "generation", (json_int_t)image->generation,
                  "training", training, "order", ls_checkpoint_order(&model->order), "optimizer",
                  optimizer_json(&model->optimizer), "loss_scale", scale_json(&model->scale), "fit",
                  own ? own : json_null());
    free(image->state);
    image->state = state ? json_dumps(state, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    json_decref(state);
    free(image->classes);
    image->classes = model->class_names ? ls_class_names_text(model->class_names) : NULL;
    return image->state && !image->classes == !model->class_names ? LS_OK : LS_OUT_OF_MEMORY;
}

// ---- Files ----

// The sum is of the state, the names of classes (NULL: none) and each tensor's name, shape and
// values, in their order.
static struct ls_hash *begin_sum(const char *state, const char *classes)
{
    struct ls_hash *sum = ls_hash_create();
    if (sum)
        ls_hash_add(sum, state, strlen(state));
    if (sum && classes)
        ls_hash_add(sum, classes, strlen(classes));
    return sum;
}

static void add_to_sum(struct ls_hash *sum, const struct ls_saved_tensor *tensor,
                       const float *values)
{
    ls_hash_add(sum, tensor->name, strlen(tensor->name));
    ls_hash_add(sum, tensor->dims, tensor->ndims * sizeof(tensor->dims[0]));
    ls_hash_add(sum, values, values_of(tensor) * sizeof(float));
}

// ---- Files from a source ----

// Of an image that is being written.
struct sourcing {
    const struct ls_checkpoint_image *image;
    float *values; // room for the largest variable
    struct ls_hash *sum;
    uint32_t parameter; // of the next tensor
    int state;
    size_t next;
    enum ls_status status; // of the source
};

static float *room_for(const struct ls_checkpoint_image *image)
{
    size_t most = 1;
    for (size_t i = 0; i < image->sourced; i++)
        most = values_of(&image->tensors[i]) > most ? values_of(&image->tensors[i]) : most;
    return ls_malloc_aligned(most * sizeof(float));
}

// The values of the next tensor of the source.
static enum ls_status read_next(struct sourcing *sourcing)
{
    const struct ls_checkpoint_image *image = sourcing->image;
    while (image->graph->parameters[sourcing->parameter]->constant)
        sourcing->parameter++;
    sourcing->status = image->source.read(image->source.context, sourcing->parameter,
                                          sourcing->state, sourcing->values);
    sourcing->next++;
    if (++sourcing->state == (int)image->states) {
        sourcing->state = -1;
        sourcing->parameter++;
    }
    return sourcing->status;
}

static const float *source_values(void *context, size_t index)
{
    struct sourcing *sourcing = context;
    const struct ls_saved_tensor *tensor = &sourcing->image->tensors[index];
    if (index < sourcing->image->sourced && read_next(sourcing))
        return NULL;
    const float *values = tensor->data ? tensor->data : sourcing->values;
    add_to_sum(sourcing->sum, tensor, values);
    return values;
}

static void put_sum(void *context, char *digits)
{
    snprintf(digits, SUM_DIGITS + 1, "%016" PRIx64, ls_hash_get(((struct sourcing *)context)->sum));
}

static enum ls_status write_sourced(const struct ls_checkpoint_image *image, int fd,
                                    const char *name, struct sourcing *sourcing)
{
    const struct ls_saved_text texts[] = {{"format", "pt"},
                                          {LS_CHECKPOINT_STATE, image->state},
                                          {LS_CHECKPOINT_SUM, "0000000000000000"},
                                          {LS_CLASS_NAMES, image->classes}};
    const struct ls_saved saved = {.tensors = image->tensors,
                                   .count = image->count,
                                   .texts = texts,
                                   .text_count = image->classes ? 4 : 3,
                                   .uncached = true,
                                   .values = source_values,
                                   .late = LS_CHECKPOINT_SUM,
                                   .finish = put_sum,
                                   .context = sourcing};
    enum ls_status status = ls_safetensors_write_to(fd, name, &saved);
    while (!sourcing->status && sourcing->next < image->sourced) // after a failure of the file
        (void)!read_next(sourcing);
    return sourcing->status ? sourcing->status : status;
}

static enum ls_status write_from_source(struct ls_checkpoint_image *image, const char *path)
{
    const struct ls_value_source *source = &image->source;
    struct sourcing sourcing = {.image = image, .state = -1};
    struct ls_replacement file = {0};
    sourcing.values = room_for(image);
    sourcing.sum = begin_sum(image->state, image->classes);
    enum ls_status status = sourcing.values && sourcing.sum ? LS_OK : LS_OUT_OF_MEMORY;
    if (!status)
        status = ls_replacement_open(SCOPE, path, &file);
    image->failed = source->begin(source->context, !status);
    if (!status && !image->failed) {
        status = write_sourced(image, file.fd, path, &sourcing);
        image->failed = sourcing.status;
    }
    if (!status && !image->failed)
        status = ls_replacement_commit(&file);
    ls_replacement_discard(&file);
    ls_hash_destroy(sourcing.sum);
    free(sourcing.values);
    return status ? status : image->failed;
}

// ---- Files of copies ----

enum ls_status ls_checkpoint_write_to(const struct ls_checkpoint_image *image, int fd,
                                      const char *name, bool uncached)
{
    char digits[24];
    struct ls_hash *sum = begin_sum(image->state, image->classes);
    if (!sum)
        return LS_OUT_OF_MEMORY;
    for (size_t i = 0; i < image->count; i++)
        add_to_sum(sum, &image->tensors[i], image->tensors[i].data);
    snprintf(digits, sizeof(digits), "%016" PRIx64, ls_hash_get(sum));
    ls_hash_destroy(sum);
    const struct ls_saved_text texts[] = {{"format", "pt"},
                                          {LS_CHECKPOINT_STATE, image->state},
                                          {LS_CHECKPOINT_SUM, digits},
                                          {LS_CLASS_NAMES, image->classes}};
    const struct ls_saved saved = {.tensors = image->tensors,
                                   .count = image->count,
                                   .texts = texts,
                                   .text_count = image->classes ? 4 : 3,
                                   .uncached = uncached};
    return ls_safetensors_write_to(fd, name, &saved);
}

enum ls_status ls_checkpoint_write(struct ls_checkpoint_image *image, const char *path)
{
    struct ls_replacement file = {0};
    image->failed = LS_OK;
    if (image->source.read)
        return write_from_source(image, path);
    enum ls_status status = ls_replacement_open(SCOPE, path, &file);
    if (status)
        return status;
    status = ls_checkpoint_write_to(image, file.fd, path, true);
    if (!status)
        status = ls_replacement_commit(&file);
    ls_replacement_discard(&file);
    return status;
}

// LS_BAD_INPUT, not logged where the sum is wrong. Reads one tensor after the other.
static enum ls_status check_sum(const struct ls_safetensors *file, const char *state,
                                const char *digits)
{
    const size_t count = ls_safetensors_count(file);
    size_t most = 1;
    for (size_t i = 0; i < count; i++) {
        const struct ls_saved_tensor *tensor = ls_safetensors_get(file, i);
        if (strcmp(tensor->dtype, "F32") != 0)
            return LS_BAD_INPUT;
        most = values_of(tensor) > most ? values_of(tensor) : most;
    }
    float *values = ls_malloc_aligned(most * sizeof(*values));
    struct ls_hash *sum = begin_sum(state, ls_safetensors_text(file, LS_CLASS_NAMES));
    enum ls_status status = values && sum ? LS_OK : LS_OUT_OF_MEMORY;
    for (size_t i = 0; !status && i < count; i++) {
        const struct ls_saved_tensor *tensor = ls_safetensors_get(file, i);
        status = ls_safetensors_read(file, tensor, values);
        if (!status)
            add_to_sum(sum, tensor, values);
    }
    char own[24];
    if (!status)
        snprintf(own, sizeof(own), "%016" PRIx64, ls_hash_get(sum));
    if (!status && strcmp(own, digits) != 0)
        status = LS_BAD_INPUT;
    ls_hash_destroy(sum);
    free(values);
    return status;
}

enum ls_status ls_checkpoint_open(const char *path, struct ls_safetensors **file, json_t **state)
{
    uint64_t version;
    json_error_t error;
    enum ls_status status = ls_safetensors_open_unread(path, file);
    if (status)
        return status;
    const char *text = ls_safetensors_text(*file, LS_CHECKPOINT_STATE);
    const char *digits = ls_safetensors_text(*file, LS_CHECKPOINT_SUM);
    if (!text || !digits) {
        ls_safetensors_close(*file);
        return LS_UNSUPPORTED;
    }
    status = check_sum(*file, text, digits);
    *state = status ? NULL : json_loads(text, 0, &error);
    if (*state && ls_checkpoint_count(*state, "version", &version) && version == VERSION)
        return LS_OK;
    if (*state)
        ls_error(SCOPE, "'%s' was written by another version of Lockstep; use that", path);
    else if (status != LS_OUT_OF_MEMORY)
        ls_error(SCOPE, "'%s' is damaged: its checksum is wrong", path);
    json_decref(*state);
    ls_safetensors_close(*file);
    return status == LS_OUT_OF_MEMORY ? status : LS_BAD_INPUT;
}

// The number behind a key of the state, which is a text within JSON.
static bool find_number(const char *state, size_t bytes, const char *key, int base, uint64_t *out)
{
    char text[48], *end;
    const int length =
        snprintf(text, sizeof(text), base == 16 ? "\\\"%s\\\":\\\"" : "\\\"%s\\\":", key);
    const char *at = memmem(state, bytes, text, (size_t)length);
    if (!at)
        return false;
    *out = strtoull(at + length, &end, base);
    return end != at + length;
}

static enum ls_status unusable(char why[static 128], const char *reason)
{
    snprintf(why, 128, "%s", reason);
    return LS_BAD_INPUT;
}

// `bytes` of `head` are from a file of `file_bytes`; there is a NUL behind them.
static enum ls_status parse_head(const char *head, size_t bytes, uint64_t file_bytes,
                                 struct ls_checkpoint_head *out, char why[static 128])
{
    static const char begins[] = "\"" LS_CHECKPOINT_STATE "\"";
    struct ls_checkpoint_head found = {0};
    uint64_t header_bytes = 0;
    if (bytes == 0)
        return unusable(why, "is empty");
    memcpy(&header_bytes, head, bytes < LENGTH_BYTES ? bytes : LENGTH_BYTES);
    if (bytes <= LENGTH_BYTES || head[LENGTH_BYTES] != '{' ||
        header_bytes > file_bytes - LENGTH_BYTES)
        return unusable(why, "is damaged, or no safetensors file");
    const char *state = memmem(head, bytes, begins, sizeof(begins) - 1);
    if (!state)
        return LS_UNSUPPORTED;
    const size_t rest = bytes - (size_t)(state - head);
    if (!find_number(state, rest, "steps", 10, &found.step))
        return unusable(why, "is damaged: its head does not say its step");
    (void)!find_number(state, rest, "generation", 10, &found.generation); // older ones have none
    (void)!find_number(state, rest, "training", 16, &found.training);
    *out = found;
    return LS_OK;
}

enum ls_status ls_checkpoint_read_head(const char *path, struct ls_checkpoint_head *out,
                                       char why[static 128])
{
    char head[HEAD_BYTES + 1] = "";
    struct stat about = {0};
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    enum ls_status status = LS_OK;
    ssize_t bytes = 0;
    if (fd < 0 || fstat(fd, &about)) {
        snprintf(why, 128, "cannot be opened: %s", strerror(errno));
        status = LS_BAD_INPUT;
    } else if (!S_ISREG(about.st_mode)) {
        status = unusable(why, S_ISDIR(about.st_mode) ? "is a directory" : "is a device or pipe");
    } else if ((bytes = read(fd, head, HEAD_BYTES)) < 0) {
        snprintf(why, 128, "cannot be read: %s", strerror(errno));
        status = LS_BAD_INPUT;
    }
    if (fd >= 0)
        close(fd);
    return status ? status : parse_head(head, (size_t)bytes, (uint64_t)about.st_size, out, why);
}

// ---- Back into a model ----

static bool is_same(const json_t *saved, const struct ls_optimizer *optimizer)
{
    json_t *own = optimizer_json(optimizer);
    const bool same =
        own && json_equal(json_object_get(saved, "name"), json_object_get(own, "name")) &&
        json_equal(json_object_get(saved, "options"), json_object_get(own, "options")) &&
        json_equal(json_object_get(saved, "states"), json_object_get(own, "states"));
    json_decref(own);
    return same;
}

static enum ls_status check_optimizer(const struct ls_model *model, const char *path,
                                      const json_t *saved)
{
    if (is_same(saved, &model->optimizer))
        return LS_OK;
    json_t *own = optimizer_json(&model->optimizer);
    const char *name = json_string_value(json_object_get(saved, "name"));
    char *there = json_dumps(json_object_get(saved, "options"), JSON_REAL_PRECISION(7));
    char *here = json_dumps(json_object_get(own, "options"), JSON_REAL_PRECISION(7));
    ls_error(SCOPE, "'%s' was written with the optimizer %s %s, this is %s %s; use the same one",
             path, name ? name : "(none)", there ? there : "", model->optimizer.name,
             here ? here : "");
    free(there);
    free(here);
    json_decref(own);
    return LS_USAGE;
}

// The tensor of a parameter (`state` < 0) or of its state; NULL where there must not be one.
static enum ls_status find(const struct ls_model *model, const char *path,
                           const struct ls_safetensors *file, const struct ls_renaming *renaming,
                           uint32_t index, int state, const struct ls_saved_tensor **out)
{
    const struct ls_tensor *parameter = model->graph->parameters[index];
    const struct ls_shape *shape = ls_variable_shape(parameter);
    char name[LONGEST_NAME], text[LONGEST_NAME];
    const char *saved = ls_renaming_apply(renaming, parameter->name, text, sizeof(text));
    if (state < 0)
        snprintf(name, sizeof(name), "%s", saved);
    else
        snprintf(name, sizeof(name), "%s/optimizer_%d", saved, state);
    const struct ls_saved_tensor *tensor = ls_safetensors_find(file, name);
    bool fits = tensor && tensor->ndims == shape->ndims;
    for (uint32_t i = 0; fits && i < shape->ndims; i++)
        fits = tensor->dims[i] == shape->dims[i];
    *out = tensor;
    if (fits || (!tensor && state >= 0))
        return LS_OK;
    ls_error(SCOPE, "'%s' is of another model: %s '%s' of model '%s'", path,
             tensor ? "another shape has" : "there is no", name, model->source);
    return LS_BAD_INPUT;
}

static bool read_scale(const json_t *json, struct ls_loss_scale_state *out)
{
    uint64_t in_row = 0;
    const json_t *scale = json_object_get(json, "scale");
    const double value = json_number_value(scale);
    if (!(value >= 0 && value <= (double)FLT_MAX) ||
        !ls_checkpoint_count(json, "good_steps", &out->good_steps) ||
        !ls_checkpoint_count(json, "updates", &out->updates) ||
        !ls_checkpoint_count(json, "skipped", &out->skipped) ||
        !ls_checkpoint_count(json, "skipped_in_row", &in_row))
        return false;
    out->scale = (float)value;
    out->skipped_in_row = (uint32_t)in_row;
    // A scale of 0 is that of a training without one.
    return in_row <= UINT32_MAX && out->updates <= MOST_STEPS && out->skipped <= MOST_STEPS &&
           (out->scale > 0 || out->updates + out->skipped == 0);
}

// The scale of another --loss-scale is that of this one.
static void fit_scale(const struct ls_model *model, uint64_t steps,
                      struct ls_loss_scale_state *scale)
{
    const struct ls_loss_scale *own = &model->optimizer.loss_scale;
    if (scale->updates + scale->skipped == 0) { // there was none
        *scale = ls_loss_scale_begin(own);
        scale->updates = own->kind ? steps : 0;
    } else if (own->kind != LS_DYNAMIC_SCALE) {
        scale->scale = ls_loss_scale_begin(own).scale;
    }
}

static void say_rate(const struct ls_model *model, double saved)
{
    const struct ls_optimizer *own = &model->optimizer;
    if (own->schedule.kind == LS_RATE_CONSTANT && own->learning_rate != saved)
        ls_info(SCOPE, "the learning rate is %g, as in the checkpoint, not %g", saved,
                own->learning_rate);
}

// Where in the file the model's values are. A state that it does not have is what it was before the
// first step.
static enum ls_status find_values(const struct ls_model *model,
                                  const struct ls_found_checkpoint *found,
                                  struct ls_saved_values **out)
{
    const uint32_t parameters = model->graph->parameter_count;
    const uint32_t states = model->optimizer.state_count;
    struct ls_saved_values *saved = calloc(1, sizeof(*saved));
    if (!saved)
        return LS_OUT_OF_MEMORY;
    *saved = (struct ls_saved_values){
        .tensors = calloc((size_t)parameters * (1 + states) + 1, sizeof(*saved->tensors)),
        .parameters = parameters,
        .states = states};
    enum ls_status status = saved->tensors ? LS_OK : LS_OUT_OF_MEMORY;
    for (uint32_t i = 0; !status && i < parameters; i++)
        for (int k = -1; !status && k < (int)states; k++)
            if (!model->graph->parameters[i]->constant)
                status = find(model, found->path, found->file, found->renaming, i, k,
                              &saved->tensors[(size_t)i * (1 + states) + (size_t)(1 + k)]);
    if (status) {
        ls_saved_values_destroy(saved);
        return status;
    }
    saved->file = ls_safetensors_hold(found->file);
    *out = saved;
    return LS_OK;
}

enum ls_status ls_checkpoint_match(const struct ls_model *model, const char *path,
                                   struct ls_safetensors *file, const json_t *state,
                                   struct ls_found_checkpoint *out)
{
    const json_t *optimizer = json_object_get(state, "optimizer");
    const json_t *rate = json_object_get(optimizer, "learning_rate");
    const struct ls_saved_tensor *tensor;
    const json_t *own = json_object_get(state, "fit"); // its steps are some of all
    uint64_t of_fit = 0;
    *out = (struct ls_found_checkpoint){
        .path = path, .file = file, .learning_rate = json_number_value(rate)};
    enum ls_status status = ls_renaming_create(model, path, file, &out->renaming);
    if (status)
        return status;
    if (!ls_checkpoint_count(state, "steps", &out->steps) || out->steps > MOST_STEPS ||
        (json_is_object(own) &&
         (!ls_checkpoint_count(own, "steps", &of_fit) || of_fit > out->steps)) ||
        !(out->learning_rate >= 0 && isfinite(out->learning_rate)) || !json_is_number(rate) ||
        !read_scale(json_object_get(state, "loss_scale"), &out->scale) ||
        !ls_checkpoint_read_order(json_object_get(state, "order"), &out->order)) {
        ls_error(SCOPE, "'%s' is damaged: its state is incomplete", path);
        return LS_BAD_INPUT;
    }
    status = check_optimizer(model, path, optimizer);
    for (uint32_t i = 0; !status && i < model->graph->parameter_count; i++)
        for (int k = -1; !status && k < (int)model->optimizer.state_count; k++)
            if (!model->graph->parameters[i]->constant)
                status = find(model, path, file, out->renaming, i, k, &tensor);
    return status ? status : ls_class_names_read(path, file, &out->names);
}

enum ls_status ls_model_take_checkpoint(struct ls_model *model, struct ls_found_checkpoint *found)
{
    struct ls_saved_values *saved = NULL;
    const enum ls_status status = find_values(model, found, &saved);
    if (status)
        return status;
    ls_model_set_classes(model, found->names);
    model->nameless = !found->names;
    found->names = NULL;
    ls_model_forget_values(model);
    model->saved = saved;
    model->assigned = true;
    model->steps_done = model->on_host.steps_done = found->steps;
    model->order = model->on_host.order = found->order;
    fit_scale(model, found->steps, &found->scale);
    model->scale = model->on_host.scale = found->scale;
    say_rate(model, found->learning_rate);
    model->optimizer.learning_rate = found->learning_rate;
    return LS_OK;
}

void ls_found_checkpoint_finish(struct ls_found_checkpoint *found)
{
    ls_renaming_destroy(found->renaming);
    ls_class_names_destroy(found->names);
    *found = (struct ls_found_checkpoint){0};
}

enum ls_status ls_model_check_file_name(const char *path)
{
    static const char suffix[] = ".safetensors";
    const size_t length = strlen(path), bytes = sizeof(suffix) - 1;
    if (length >= bytes && strcmp(path + length - bytes, suffix) == 0)
        return LS_OK;
    ls_error(SCOPE,
             "'%s': a model with the state of its optimizer is written as .safetensors, which the "
             "name must end with",
             path);
    return LS_USAGE;
}
