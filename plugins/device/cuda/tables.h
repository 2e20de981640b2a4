// SPDX-License-Identifier: Apache-2.0
// The tables of the device's calls, in both parts: in the engine part (device.c) the functions, in the thin one (cuda.c) functions of
// the same names that call those.
#ifndef LS_DEVICE_CUDA_TABLES_H
#define LS_DEVICE_CUDA_TABLES_H

#include "core/plugin/device.h"

#include <string.h>

static const struct ls_device_memory memory_calls = {
    .struct_size = sizeof(memory_calls),
    .allocate = cuda_allocate,
    .release = cuda_release,
    .copy = cuda_copy,
    .zero = cuda_zero,
};

static const struct ls_device_kernels kernel_calls = {
    .struct_size = sizeof(kernel_calls),
    .prepare = cuda_prepare,
    .launch = cuda_launch,
    .release = cuda_release_kernel,
    .prepare_segment = cuda_prepare_segment,
};

static const struct ls_device_streams stream_calls = {
    .struct_size = sizeof(stream_calls),
    .branches = 1,
    .open = cuda_stream_open,
    .close = cuda_stream_close,
    .native = cuda_stream_native,
    .event_open = cuda_event_open,
    .event_close = cuda_event_close,
    .event_record = cuda_event_record,
    .event_wait = cuda_event_wait,
    .event_query = cuda_event_query,
    .open_urgent = cuda_stream_open_urgent,
};

static const struct ls_device_staging staging_calls = {
    .struct_size = sizeof(staging_calls),
    .allocate = cuda_allocate_host,
    .release = cuda_release_host,
    .copy_async = cuda_copy_async,
};

static const struct ls_device_peers peer_calls = {
    .struct_size = sizeof(peer_calls),
    .reduce = cuda_reduce,
    .can_access_peer = cuda_can_access_peer,
};

static const struct ls_device_capture capture_calls = {
    .struct_size = sizeof(capture_calls),
    .begin = cuda_record_begin,
    .end = cuda_record_end,
    .replay = cuda_replay,
    .release = cuda_release_recording,
};

// Of both parts: it needs no device.
static const char *cuda_choices_depend(const struct ls_host *host)
{
    const char *timing = host->option(host, "timing");
    return timing && strcmp(timing, "on") == 0 ? "timing=on"
           : host->option(host, "plans")       ? "plans=FILE"
                                               : NULL;
}

static const struct ls_device_choices choice_calls = {
    .struct_size = sizeof(choice_calls),
    .depend = cuda_choices_depend,
    .give = cuda_choices_give,
    .take = cuda_choices_take,
};

#endif
