// SPDX-License-Identifier: Apache-2.0
// Recordings of the fake (stream capture and graphs of CUDA): what is put on a stream is kept with what it runs after. A
// replay runs it in the order that is furthest from the recorded one, or in a random one, so that an order nobody asked for is
// not kept.
#include "tests/support/cuda-fake/stream.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { INVALID_VALUE = 1, ILLEGAL_STATE = 401 };

struct node {
    struct double_item item; // its data are owned
    struct double_set after;
};

struct CUgraph_st {
    struct node *nodes;
    uint32_t count, room;
};

struct CUgraphExec_st {
    struct CUgraph_st graph;
};

struct double_capture {
    uint64_t number;
    pthread_t thread;
    unsigned failure; // it is spoilt
    struct CUstream_st *origin;
    struct CUgraph_st *graph;
    struct double_capture *next;
};

static struct double_capture *captures; // that have begun
static uint64_t captures_begun;

// ---- Graphs ----

static unsigned graph_add(struct CUgraph_st *graph, const struct double_item *item,
                          const struct double_set *after)
{
    if (graph->count == graph->room) {
        const uint32_t room = graph->room ? 2 * graph->room : 64;
        struct node *more = realloc(graph->nodes, room * sizeof(*more));
        if (!more)
            return cudaErrorMemoryAllocation;
        graph->nodes = more;
        graph->room = room;
    }
    void *data = malloc(item->bytes + 1);
    if (!data)
        return cudaErrorMemoryAllocation;
    memcpy(data, item->data, item->bytes);
    struct node *node = &graph->nodes[graph->count++];
    *node = (struct node){.item = *item, .after = *after};
    node->item.data = data;
    return cudaSuccess;
}

static void graph_finish(struct CUgraph_st *graph)
{
    for (uint32_t i = 0; i < graph->count; i++)
        free((void *)(uintptr_t)graph->nodes[i].item.data);
    free(graph->nodes);
}

static unsigned set_add(struct double_set *set, const struct double_set *more)
{
    for (uint32_t i = 0; i < more->count; i++) {
        uint32_t at = 0;
        while (at < set->count && set->nodes[at] != more->nodes[i])
            at++;
        if (at == DOUBLE_SET)
            return cudaErrorMemoryAllocation;
        set->nodes[at] = more->nodes[i];
        set->count = at == set->count ? at + 1 : set->count;
    }
    return cudaSuccess;
}

// ---- Recording ----

static unsigned spoil(struct double_capture *capture, unsigned error)
{
    capture->failure = cudaErrorStreamCaptureInvalidated;
    return error;
}

unsigned double_capture_add(struct CUstream_st *stream, const struct double_item *item)
{
    struct double_capture *capture = stream->capture;
    if (capture->failure)
        return capture->failure;
    const unsigned error = graph_add(capture->graph, item, &stream->set);
    if (error)
        return spoil(capture, error);
    stream->set = (struct double_set){1, {capture->graph->count - 1}};
    return cudaSuccess;
}

void double_capture_record(const struct CUstream_st *stream, struct CUevent_st *event)
{
    event->capture = stream->capture->number;
    event->set = stream->set;
}

static struct double_capture *find_capture(uint64_t number)
{
    struct double_capture *capture = captures;
    while (capture && capture->number != number)
        capture = capture->next;
    return capture;
}

uint64_t double_recording_of(const struct CUstream_st *stream)
{
    pthread_mutex_lock(&double_lock);
    const uint64_t number = stream->capture ? stream->capture->number : 0;
    pthread_mutex_unlock(&double_lock);
    return number;
}

unsigned double_capture_wait(struct CUstream_st *stream, const struct CUevent_st *event)
{
    struct double_capture *other = event->capture ? find_capture(event->capture) : NULL;
    if (stream->capture && stream->capture->failure)
        return stream->capture->failure;
    if (stream->capture && !event->capture)
        return spoil(stream->capture, cudaErrorStreamCaptureIsolation);
    if (!other)
        return cudaErrorCapturedEvent; // of a recording that is over
    if (stream->capture && stream->capture != other)
        return spoil(stream->capture, cudaErrorStreamCaptureMerge);
    if (!stream->capture)
        stream->set.count = 0; // it takes part from here on
    stream->capture = other;
    const unsigned error = set_add(&stream->set, &event->set);
    return error ? spoil(other, error) : cudaSuccess;
}

unsigned double_capture_spoils_locked(void)
{
    for (struct double_capture *capture = captures; capture; capture = capture->next)
        if (pthread_equal(capture->thread, pthread_self()))
            return spoil(capture, cudaErrorStreamCaptureUnsupported);
    return cudaSuccess;
}

unsigned double_capture_spoils(void)
{
    pthread_mutex_lock(&double_lock);
    const unsigned error = double_capture_spoils_locked();
    pthread_mutex_unlock(&double_lock);
    return error;
}

int double_is_recorded(void)
{
    int found = 0;
    pthread_mutex_lock(&double_lock);
    for (const struct double_capture *capture = captures; capture; capture = capture->next)
        found = found || pthread_equal(capture->thread, pthread_self());
    pthread_mutex_unlock(&double_lock);
    return found;
}

void double_device_waits(void)
{
    const int device = double_current();
    pthread_mutex_lock(&double_lock);
    for (struct double_capture *capture = captures; capture; capture = capture->next)
        if (capture->origin->device == device)
            spoil(capture, cudaSuccess);
    pthread_mutex_unlock(&double_lock);
}

// ---- Beginning and ending ----

unsigned cudaStreamBeginCapture(struct CUstream_st *stream, unsigned mode)
{
    if (double_failed() || mode != cudaStreamCaptureModeThreadLocal)
        return double_failed() ? double_failed() : INVALID_VALUE;
    struct double_capture *capture = calloc(1, sizeof(*capture));
    struct CUgraph_st *graph = calloc(1, sizeof(*graph));
    pthread_mutex_lock(&double_lock);
    const unsigned error = !capture || !graph ? cudaErrorMemoryAllocation
                           : stream->capture  ? ILLEGAL_STATE
                                              : 0;
    if (!error) {
        *capture = (struct double_capture){.number = ++captures_begun,
                                           .thread = pthread_self(),
                                           .origin = stream,
                                           .graph = graph,
                                           .next = captures};
        captures = capture;
        stream->capture = capture;
        stream->set.count = 0;
    }
    pthread_mutex_unlock(&double_lock);
    if (error) {
        free(capture);
        free(graph);
    }
    return error;
}

// Whether the origin runs after everything that the other streams of the recording did.
static int is_joined(const struct double_capture *capture, unsigned char *seen)
{
    const struct CUgraph_st *graph = capture->graph;
    for (uint32_t i = 0; i < capture->origin->set.count; i++)
        seen[capture->origin->set.nodes[i]] = 1;
    for (uint32_t n = graph->count; n-- > 0;) // a node runs after earlier ones only
        for (uint32_t i = 0; seen[n] && i < graph->nodes[n].after.count; i++)
            seen[graph->nodes[n].after.nodes[i]] = 1;
    for (uint32_t n = 0; n < graph->count; n++)
        if (!seen[n])
            return 0;
    return 1;
}

static unsigned check_end(const struct double_capture *capture)
{
    unsigned char *seen = calloc(1, capture->graph->count + 1);
    if (!seen)
        return cudaErrorMemoryAllocation;
    const int joined = is_joined(capture, seen);
    free(seen);
    return capture->failure ? capture->failure : joined ? 0 : cudaErrorStreamCaptureUnjoined;
}

static void unlink_capture(const struct double_capture *capture)
{
    struct double_capture **place = &captures;
    while (*place != capture)
        place = &(*place)->next;
    *place = capture->next;
    for (struct CUstream_st *stream = double_streams; stream; stream = stream->next)
        if (stream->capture == capture)
            stream->capture = NULL;
}

unsigned cudaStreamEndCapture(struct CUstream_st *stream, struct CUgraph_st **out)
{
    *out = NULL;
    pthread_mutex_lock(&double_lock);
    struct double_capture *capture = stream->capture;
    unsigned error = !capture                    ? ILLEGAL_STATE
                     : capture->origin != stream ? cudaErrorStreamCaptureUnmatched
                     : !pthread_equal(capture->thread, pthread_self())
                         ? cudaErrorStreamCaptureWrongThread
                         : cudaSuccess;
    if (error) {
        pthread_mutex_unlock(&double_lock);
        return error;
    }
    error = check_end(capture);
    unlink_capture(capture);
    pthread_mutex_unlock(&double_lock);
    double_add(&double_live.graphs, 1);
    if (error)
        cudaGraphDestroy(capture->graph);
    else
        *out = capture->graph;
    free(capture);
    return error ? error : double_failed();
}

unsigned cudaGraphDestroy(struct CUgraph_st *graph)
{
    graph_finish(graph);
    free(graph);
    double_add(&double_live.graphs, -1);
    return cudaSuccess;
}

// ---- Replaying ----

static int is_ready(const struct node *node, const unsigned char *placed)
{
    for (uint32_t i = 0; i < node->after.count; i++)
        if (!placed[node->after.nodes[i]])
            return 0;
    return 1;
}

static unsigned copy(const struct CUgraph_st *from, struct CUgraph_st *to)
{
    unsigned error = cudaSuccess;
    for (uint32_t n = 0; !error && n < from->count; n++)
        error = graph_add(to, &from->nodes[n].item, &from->nodes[n].after);
    return error;
}

// Of the nodes whose turn may come, the one recorded last, or any.
static uint32_t draw_node(const struct CUgraph_st *graph, const unsigned char *placed, int random)
{
    uint32_t found = 0, node = 0;
    for (uint32_t n = graph->count; n-- > 0;) {
        if (placed[n] || !is_ready(&graph->nodes[n], placed))
            continue;
        if (!random)
            return n;
        if (double_draw(++found) == 0)
            node = n;
    }
    return node;
}

static unsigned post_nodes(const struct CUgraph_st *graph, struct CUstream_st *stream)
{
    unsigned char *placed = calloc(1, graph->count + 1);
    unsigned error = placed ? cudaSuccess : cudaErrorMemoryAllocation;
    for (uint32_t i = 0; !error && i < graph->count; i++) {
        const uint32_t n = draw_node(graph, placed, stream->random);
        placed[n] = 1;
        error = double_post(stream, &graph->nodes[n].item);
    }
    free(placed);
    return error;
}

// A line for CUDA_FAKE_GRAPHS.
static void tell(const struct CUgraph_st *graph)
{
    const char *path = getenv("CUDA_FAKE_GRAPHS");
    FILE *file = path ? fopen(path, "a") : NULL;
    uint32_t *ways =
        file ? calloc(graph->count + 1, sizeof(*ways)) : NULL; // to each node, itself included
    uint32_t kernels = 0, longest = 0;
    for (uint32_t n = 0; ways && n < graph->count; n++) {
        const struct node *node = &graph->nodes[n];
        for (uint32_t i = 0; i < node->after.count; i++)
            ways[n] = ways[node->after.nodes[i]] > ways[n] ? ways[node->after.nodes[i]] : ways[n];
        ways[n] += node->item.kernel != 0;
        kernels += node->item.kernel != 0;
        longest = ways[n] > longest ? ways[n] : longest;
    }
    if (ways)
        fprintf(file, "%u %u\n", kernels, longest);
    if (file)
        fclose(file);
    free(ways);
}

unsigned cudaGraphInstantiate(struct CUgraphExec_st **out, struct CUgraph_st *graph,
                              unsigned long long flags)
{
    struct CUgraphExec_st *exec = calloc(1, sizeof(*exec));
    unsigned error = flags ? INVALID_VALUE : exec ? cudaSuccess : cudaErrorMemoryAllocation;
    if (!error)
        error = copy(graph, &exec->graph);
    if (error) {
        if (exec)
            graph_finish(&exec->graph);
        free(exec);
        return error;
    }
    tell(graph);
    double_add(&double_live.graphs, 1);
    *out = exec;
    return cudaSuccess;
}

unsigned cudaGraphUpload(struct CUgraphExec_st *exec, struct CUstream_st *stream)
{
    (void)exec;
    return stream->capture ? cudaErrorStreamCaptureUnsupported : double_failed();
}

unsigned cudaGraphLaunch(struct CUgraphExec_st *exec, struct CUstream_st *stream)
{
    unsigned error = double_failed();
    pthread_mutex_lock(&double_lock);
    if (!error && stream->capture)
        error = spoil(stream->capture, cudaErrorStreamCaptureUnsupported);
    if (!error)
        error = post_nodes(&exec->graph, stream);
    pthread_mutex_unlock(&double_lock);
    double_add(&double_handed.replays, 1);
    return error;
}

unsigned cudaGraphExecDestroy(struct CUgraphExec_st *exec)
{
    graph_finish(&exec->graph);
    free(exec);
    double_add(&double_live.graphs, -1);
    return cudaSuccess;
}
