// SPDX-License-Identifier: Apache-2.0
// Recordings: what is put on the own stream, and on those that come from it and go back to it, as a CUDA graph.
#include "plugins/device/cuda/engine/internal.h"

#include <stdlib.h>

struct ls_recording {
    struct CUgraphExec_st *graph;
    struct ls_recording *next; // of those that may still run
};

// Calls that would spoil it are refused on this thread alone: other devices go on beside it.
int32_t cuda_record_begin(struct ls_device *device)
{
    int32_t status = cuda_check_recording(device, "another recording");
    if (!status)
        status = cuda_enter(device, NULL);
    if (!status)
        status = cuda_check(
            device,
            device->calls->cudaStreamBeginCapture(device->own, cudaStreamCaptureModeThreadLocal),
            "beginning to record");
    device->spoilt = device->recording ? device->spoilt : LS_OK;
    device->recording = device->recording || !status;
    return status;
}

static int32_t instantiate(struct ls_device *device, struct CUgraph_st *graph,
                           struct ls_recording **out)
{
    struct ls_recording *recording = calloc(1, sizeof(*recording));
    if (!recording)
        return ls_host_fail(device->host, LS_OUT_OF_MEMORY, "no memory for a recording");
    int32_t status =
        cuda_check(device, device->calls->cudaGraphInstantiate(&recording->graph, graph, 0),
                   "making a recording ready");
    // Else the first replay takes the memory for it.
    if (!status)
        status = cuda_check(device, device->calls->cudaGraphUpload(recording->graph, device->own),
                            "making a recording ready");
    if (status && recording->graph)
        device->calls->cudaGraphExecDestroy(recording->graph);
    if (status)
        free(recording);
    else
        *out = recording;
    return status;
}

int32_t cuda_record_end(struct ls_device *device, struct ls_recording **out)
{
    const struct cuda_calls *calls = device->calls;
    struct CUgraph_st *graph = NULL;
    if (!device->recording)
        return ls_host_fail(device->host, LS_FAILED, "GPU %u: nothing is recorded", device->index);
    device->recording = false;
    int32_t status = cuda_enter(device, NULL);
    const unsigned error = calls->cudaStreamEndCapture(device->own, &graph);
    if (device->spoilt) {
        calls->cudaGetLastError();
        status = device->spoilt; // said before
    } else if (!status)
        status = cuda_check(device, error, "recording");
    if (!status)
        status = instantiate(device, graph, out);
    if (graph)
        calls->cudaGraphDestroy(graph);
    return status;
}

int32_t cuda_replay(struct ls_device *device, const struct ls_recording *recording)
{
    int32_t status = cuda_check_recording(device, "a replay");
    if (!status)
        status = cuda_enter(device, NULL);
    if (status)
        return status;
    cuda_launched(device, "a recorded step");
    return cuda_check(device, device->calls->cudaGraphLaunch(recording->graph, device->own),
                      "replaying a recording");
}

// One that may still run stays.
void cuda_release_recording(struct ls_device *device, struct ls_recording *recording)
{
    if (!recording)
        return;
    if (cuda_enter(device, NULL) ||
        cuda_wait(device, device->own, "releasing a recording") == LS_PEER_LOST) {
        recording->next = device->unreleased;
        device->unreleased = recording;
        return;
    }
    device->calls->cudaGraphExecDestroy(recording->graph);
    free(recording);
}
