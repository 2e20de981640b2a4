// SPDX-License-Identifier: Apache-2.0
// Reads a dataset while the main thread prepares programs.
#include "core/train/data.h"

#include "core/base/log.h"
#include "core/base/threads.h"
#include "core/replica/replica.h"

#include <stdlib.h>
#include <string.h>

static void *read_files(void *argument)
{
    struct ls_data *data = argument;
    ls_log_keep(&data->error);
    data->status = ls_dataset_open(data->text, data->split, &data->dataset);
    return NULL;
}

static enum ls_status split_of(const char *text, enum ls_split *out)
{
    if (strcmp(text, "train") == 0)
        *out = LS_TRAIN;
    else if (strcmp(text, "test") == 0)
        *out = LS_TEST;
    else {
        ls_error("data", "there is no split '%s'; there are: train, test", text);
        return LS_USAGE;
    }
    return LS_OK;
}

enum ls_status ls_open_data(const char *text, const char *split, struct ls_data **out)
{
    struct ls_data *data = calloc(1, sizeof(*data));
    if (!data)
        return LS_OUT_OF_MEMORY;
    pthread_mutex_init(&data->lock, NULL);
    data->holders = 1;
    data->text = strdup(text);
    data->name = strndup(text, strcspn(text, ":"));
    enum ls_status status =
        data->text && data->name ? split_of(split, &data->split) : LS_OUT_OF_MEMORY;
    if (!status)
        status = ls_dataset_describe(text, data->split, &data->info);
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

static void join(struct ls_data *data)
{
    if (data->started)
        pthread_join(data->thread, NULL);
    data->started = false;
}

enum ls_status ls_data_wait(struct ls_data *data, const struct ls_dataset **out)
{
    pthread_mutex_lock(&data->lock);
    join(data);
    pthread_mutex_unlock(&data->lock);
    char *error = data->error ? strdup(data->error) : NULL;
    ls_log_write_kept(&error);
    if (!data->status)
        *out = data->dataset;
    return data->status;
}

void ls_data_hold(struct ls_data *data)
{
    data->holders++;
}

void ls_data_close(struct ls_data *data)
{
    if (!data || --data->holders)
        return;
    join(data);
    pthread_mutex_destroy(&data->lock);
    ls_dataset_close(data->dataset);
    free(data->error);
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
    for (uint32_t i = 0; i < LS_REPLICA_INPUTS; i++) {
        const struct ls_field *one = ls_field_find(a->fields, a->field_count, LS_FIELD_INPUT, i);
        const struct ls_field *two = ls_field_find(b->fields, b->field_count, LS_FIELD_INPUT, i);
        out[i] =
            one && two && one->dtype == LS_U8 && two->dtype == LS_U8 && one->divisor == two->divisor
                ? one->divisor
                : 0;
    }
}

void ls_data_input_shape(const struct ls_dataset_info *info, struct ls_shape *out)
{
    const struct ls_field *input =
        ls_field_find(info->fields, info->field_count, LS_FIELD_INPUT, 0);
    *out = (struct ls_shape){.ndims = input ? input->ndims : 0};
    if (input)
        memcpy(out->dims, input->dims, sizeof(out->dims));
}
