// SPDX-License-Identifier: Apache-2.0
// How cuDNN is told of tensors and windows.
#include "plugins/device/cuda/engine/internal.h"

unsigned cuda_dnn_type(uint32_t dtype)
{
    return dtype == LS_F16    ? CUDNN_DATA_HALF
           : dtype == LS_BF16 ? CUDNN_DATA_BFLOAT16
                              : CUDNN_DATA_FLOAT;
}

bool cuda_dnn_pads(const struct cuda_window *window)
{
    return window->before[0] == window->after[0] && window->before[1] == window->after[1];
}

// One handle for both streams of a step: it has the stream that the next call goes to, and nothing
// that kernels of two calls share. What they write between their passes is the workspace, which
// each launch brings, and each stream has its own. The device is called by one thread at a time, so
// the stream does not change within a call.
int32_t cuda_use_dnn(struct ls_device *device)
{
    if (device->dnn_stream == device->stream)
        return LS_OK;
    const int32_t status = cuda_check_dnn(
        device, device->calls->cudnnSetStream(device->dnn, device->stream), "changing the stream");
    if (!status)
        device->dnn_stream = device->stream;
    return status;
}
