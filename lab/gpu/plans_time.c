// SPDX-License-Identifier: Apache-2.0
// Times convolutions on a GPU: the first plans that fit, and the algorithm of cuDNN's calls of version 7 that gives the same
// bits each time. A run is timed as it is in a recorded step: several times in a CUDA graph.
// A child process does it, so that a kernel which breaks the GPU's context costs its own question only.
#define _DEFAULT_SOURCE // MAP_ANONYMOUS
#include "lab/gpu/plans.h"

#include <cuda_runtime_api.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SAMPLE ((int64_t)1 << 18) // elements at the beginning and at the end that are compared
#define PATTERN ((int64_t)1 << 20) // random elements, repeated
#define LEAST_SAMPLE_US 400 // of a graph, so that its launch does not count
#define MOST_REPEATS 50
#define GRAPHS 7 // launches of which the median is taken
#define MOST_WORKSPACE ((int64_t)1 << 30)
#define V7_MOST_WORKSPACE ((size_t)256 << 20)

// One way to compute the answer: a plan, or calls of version 7 with an algorithm.
struct way {
    descriptor plan, pack;
    int algorithm;
    cudnnNanPropagation_t nan;
    int64_t workspace;
};

struct bench {
    cudnnHandle_t handle;
    cudaStream_t stream;
    cudaEvent_t begin, end;
    struct question question;
    void *tensors[TENSORS], *workspace; // on the GPU
    float *reference, *result; // on the host
    bool has_reference;
    int runs; // printed
    // What the calls of version 7 are told.
    cudnnTensorDescriptor_t x, y, bias;
    cudnnFilterDescriptor_t w;
    cudnnConvolutionDescriptor_t convolution;
    cudnnActivationDescriptor_t relu;
};

static char reason[512];

static bool cuda_ok(cudaError_t error, const char *name)
{
    if (error)
        snprintf(reason, sizeof(reason), "%s: %s", name, cudaGetErrorString(error));
    return !error;
}

static bool dnn_ok(cudnnStatus_t status, const char *name)
{
    if (!cudnn_ok(status, name))
        snprintf(reason, sizeof(reason), "%s", cudnn_reason());
    return !status;
}

// An error after which every call of this process fails.
static bool is_broken(void)
{
    return cudaDeviceSynchronize() != cudaSuccess;
}

// ---- JSON ----

// The file is written in whole lines, each when it is complete: a process may end in the middle of one.
static FILE *file;
static FILE *line;
static char *line_text;
static size_t line_bytes;

static bool begin_line(void)
{
    line = open_memstream(&line_text, &line_bytes);
    return line && fputs(",\n", line) >= 0;
}

static void end_line(void)
{
    fputs("}", line);
    fclose(line);
    fputs(line_text, file);
    fflush(file);
    free(line_text);
}

static void print_text(const char *name, const char *text)
{
    fprintf(line, "\"%s\": \"", name);
    for (const char *at = text; *at; at++)
        if (*at == '"' || *at == '\\')
            fprintf(line, "\\%c", *at);
        else
            fputc((unsigned char)*at < ' ' ? ' ' : *at, line);
    fputc('"', line);
}

static void print_question(const struct question *question)
{
    const struct shape *s = &question->shape;
    fprintf(line, "{");
    print_text("shape", s->name);
    fprintf(line, ", \"operation\": \"%s\", \"arithmetic\": \"%s\"",
            operation_names[question->operation], arithmetic_names[question->arithmetic]);
}

// The whole line of a question that was not answered.
static void print_failure(const struct question *question, const char *text)
{
    if (!begin_line())
        return;
    print_question(question);
    fprintf(line, ", ");
    print_text("error", text);
    end_line();
}

// ---- Memory ----

static size_t element_bytes(const struct bench *b)
{
    return arithmetic_type(b->question.arithmetic) == CUDNN_DATA_FLOAT ? 4 : 2;
}

// bfloat16 is the upper half of a float32; a float16 has 5 bits of exponent. Values here are normal or 0.
static uint16_t half_of(float value, enum arithmetic arithmetic)
{
    uint32_t bits = 0;
    memcpy(&bits, &value, sizeof(bits));
    if (arithmetic == BFLOAT16)
        return (uint16_t)(bits >> 16);
    const int exponent = (int)(bits >> 23 & 0xff) - 127 + 15;
    return (uint16_t)(bits >> 16 & 0x8000) |
           (exponent <= 0 ? 0 : (uint16_t)(exponent << 10 | (bits >> 13 & 0x3ff)));
}

static float value_of(uint16_t half, enum arithmetic arithmetic)
{
    const uint32_t exponent = half >> 10 & 0x1f, fraction = half & 0x3ff;
    uint32_t bits = (uint32_t)half << 16;
    if (arithmetic == FLOAT16) {
        if (!exponent)
            return (half & 0x8000 ? -1.0F : 1.0F) * ldexpf((float)fraction, -24);
        bits = (uint32_t)(half & 0x8000) << 16 |
               (exponent == 31 ? 0xff : exponent - 15 + 127) << 23 | fraction << 13;
    }
    float value = 0;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static bool fill(struct bench *b, enum tensor tensor)
{
    static float values[PATTERN];
    static uint16_t halves[PATTERN];
    uint32_t state = (uint32_t)tensor;
    for (int64_t i = 0; i < PATTERN; i++) {
        state = state * 1664525U + 1013904223U;
        values[i] = (float)(state >> 8) / (float)(1 << 23) - 1;
        halves[i] = half_of(values[i], b->question.arithmetic);
    }
    const size_t size = element_bytes(b);
    const void *pattern = size == 4 ? (const void *)values : halves;
    const int64_t elements = shape_elements(&b->question.shape, tensor);
    for (int64_t at = 0; at < elements; at += PATTERN) {
        const int64_t count = elements - at < PATTERN ? elements - at : PATTERN;
        if (!cuda_ok(cudaMemcpy((char *)b->tensors[tensor] + (size_t)at * size, pattern,
                                (size_t)count * size, cudaMemcpyHostToDevice),
                     "cudaMemcpy"))
            return false;
    }
    return true;
}

static enum tensor output_of(const struct question *question)
{
    return question->operation == DATA      ? TENSOR_X
           : question->operation == WEIGHTS ? TENSOR_W
                                            : TENSOR_Y;
}

static bool allocate(struct bench *b)
{
    for (int tensor = TENSOR_X; tensor < TENSORS; tensor++) {
        const size_t bytes =
            (size_t)shape_elements(&b->question.shape, (enum tensor)tensor) * element_bytes(b);
        if (!cuda_ok(cudaMalloc(&b->tensors[tensor], bytes), "cudaMalloc") ||
            !fill(b, (enum tensor)tensor))
            return false;
    }
    return true;
}

static void release(struct bench *b)
{
    for (int tensor = TENSOR_X; tensor < TENSORS; tensor++) {
        cudaFree(b->tensors[tensor]);
        b->tensors[tensor] = NULL;
    }
}

// A sample of the output as float32: its beginning, and its end. Returns how many elements.
static int64_t read_sample(const struct bench *b, float *out)
{
    static uint16_t halves[2 * SAMPLE];
    const enum tensor tensor = output_of(&b->question);
    const int64_t elements = shape_elements(&b->question.shape, tensor);
    const int64_t first = elements < 2 * SAMPLE ? elements : SAMPLE;
    const int64_t last = elements < 2 * SAMPLE ? 0 : SAMPLE;
    const size_t size = element_bytes(b);
    char *to = size == 4 ? (char *)out : (char *)halves;
    const char *from = b->tensors[tensor];
    if (!cuda_ok(cudaMemcpy(to, from, (size_t)first * size, cudaMemcpyDeviceToHost), "cudaMemcpy"))
        return 0;
    if (last &&
        !cuda_ok(cudaMemcpy(to + (size_t)first * size, from + (size_t)(elements - last) * size,
                            (size_t)last * size, cudaMemcpyDeviceToHost),
                 "cudaMemcpy"))
        return 0;
    for (int64_t i = 0; size == 2 && i < first + last; i++)
        out[i] = value_of(halves[i], b->question.arithmetic);
    return first + last;
}

// ---- Running ----

static cudnnStatus_t run_v7(struct bench *b, const struct way *way)
{
    static const float one = 1, zero = 0;
    void *const *t = b->tensors;
    const size_t bytes = (size_t)way->workspace;
    switch (b->question.operation) {
    case FUSED:
        return cudnnConvolutionBiasActivationForward(
            b->handle, &one, b->x, t[TENSOR_X], b->w, t[TENSOR_W], b->convolution,
            (cudnnConvolutionFwdAlgo_t)way->algorithm, b->workspace, bytes, &zero, b->y,
            t[TENSOR_Y], b->bias, t[TENSOR_BIAS], b->relu, b->y, t[TENSOR_Y]);
    case DATA:
        return cudnnConvolutionBackwardData(b->handle, &one, b->w, t[TENSOR_W], b->y, t[TENSOR_Y],
                                            b->convolution,
                                            (cudnnConvolutionBwdDataAlgo_t)way->algorithm,
                                            b->workspace, bytes, &zero, b->x, t[TENSOR_X]);
    case WEIGHTS:
        return cudnnConvolutionBackwardFilter(b->handle, &one, b->x, t[TENSOR_X], b->y, t[TENSOR_Y],
                                              b->convolution,
                                              (cudnnConvolutionBwdFilterAlgo_t)way->algorithm,
                                              b->workspace, bytes, &zero, b->w, t[TENSOR_W]);
    default:
        return cudnnConvolutionForward(b->handle, &one, b->x, t[TENSOR_X], b->w, t[TENSOR_W],
                                       b->convolution, (cudnnConvolutionFwdAlgo_t)way->algorithm,
                                       b->workspace, bytes, &zero, b->y, t[TENSOR_Y]);
    }
}

static bool run(struct bench *b, const struct way *way)
{
    return way->plan ? dnn_ok(cudnnBackendExecute(b->handle, way->plan, way->pack), "run")
                     : dnn_ok(run_v7(b, way), "run");
}

// Runs once, over a result in which every element is NaN; reads the sample.
static int64_t run_and_read(struct bench *b, const struct way *way, float *out)
{
    const enum tensor tensor = output_of(&b->question);
    const size_t bytes = (size_t)shape_elements(&b->question.shape, tensor) * element_bytes(b);
    if (!cuda_ok(cudaMemsetAsync(b->tensors[tensor], 0xff, bytes, b->stream), "cudaMemset") ||
        !run(b, way) || !cuda_ok(cudaStreamSynchronize(b->stream), "run"))
        return 0;
    return read_sample(b, out);
}

static bool record(struct bench *b, const struct way *way, int repeats, cudaGraphExec_t *out)
{
    cudaGraph_t graph = NULL;
    if (!cuda_ok(cudaStreamBeginCapture(b->stream, cudaStreamCaptureModeThreadLocal), "record"))
        return false;
    bool ran = true;
    for (int i = 0; i < repeats && ran; i++)
        ran = run(b, way);
    const cudaError_t ended = cudaStreamEndCapture(b->stream, &graph);
    const bool made = ran && cuda_ok(ended, "record") &&
                      cuda_ok(cudaGraphInstantiate(out, graph, 0), "cudaGraphInstantiate");
    if (graph)
        cudaGraphDestroy(graph);
    return made;
}

static bool time_graph(struct bench *b, cudaGraphExec_t graph, float *out_us)
{
    float ms = 0;
    const bool timed = cuda_ok(cudaEventRecord(b->begin, b->stream), "cudaEventRecord") &&
                       cuda_ok(cudaGraphLaunch(graph, b->stream), "cudaGraphLaunch") &&
                       cuda_ok(cudaEventRecord(b->end, b->stream), "cudaEventRecord") &&
                       cuda_ok(cudaEventSynchronize(b->end), "run") &&
                       cuda_ok(cudaEventElapsedTime(&ms, b->begin, b->end), "cudaEventElapsedTime");
    *out_us = ms * 1000;
    return timed;
}

static int compare_floats(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

// Microseconds of one run; less than 0: reason.
static double time_repeats(struct bench *b, const struct way *way, int repeats, int launches)
{
    cudaGraphExec_t graph = NULL;
    float us[GRAPHS] = {0};
    bool timed = record(b, way, repeats, &graph) && time_graph(b, graph, &us[0]);
    for (int i = 0; i < launches && timed; i++)
        timed = time_graph(b, graph, &us[i]);
    if (graph)
        cudaGraphExecDestroy(graph);
    qsort(us, (size_t)launches, sizeof(us[0]), compare_floats);
    return timed ? (double)us[launches / 2] / repeats : -1;
}

static double time_way(struct bench *b, const struct way *way)
{
    const double once = time_repeats(b, way, 1, 1);
    if (once < 0)
        return once;
    const double repeats = once > 0 ? LEAST_SAMPLE_US / once : MOST_REPEATS;
    return time_repeats(b, way,
                        repeats < 2              ? 2
                        : repeats > MOST_REPEATS ? MOST_REPEATS
                                                 : (int)repeats,
                        GRAPHS);
}

// ||a - b|| / ||b||; NaN where an element was not written.
static double difference(const float *a, const float *b, int64_t count)
{
    double apart = 0, all = 0;
    for (int64_t i = 0; i < count; i++) {
        apart += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        all += (double)b[i] * b[i];
    }
    return all > 0 ? sqrt(apart / all) : apart;
}

// Whether a NaN in the first element of x comes out of the ReLU.
static bool keeps_nan(struct bench *b, const struct way *way, float *sample)
{
    char before[4];
    const char nan[4] = {'\xff', '\xff', '\xff', '\xff'};
    const size_t size = element_bytes(b);
    bool kept = false;
    cudaMemcpy(before, b->tensors[TENSOR_X], size, cudaMemcpyDeviceToHost);
    cudaMemcpy(b->tensors[TENSOR_X], nan, size, cudaMemcpyHostToDevice);
    if (run(b, way) && cuda_ok(cudaStreamSynchronize(b->stream), "run")) {
        const int64_t count = read_sample(b, sample);
        for (int64_t i = 0; i < count && !kept; i++)
            kept = isnan(sample[i]);
    }
    cudaMemcpy(b->tensors[TENSOR_X], before, size, cudaMemcpyHostToDevice);
    return kept;
}

// The rest of what is printed of a way: its time, and its result beside that of the first way.
static void print_run(struct bench *b, const struct way *way)
{
    const int64_t count = run_and_read(b, way, b->result);
    if (!count) {
        print_text("error", reason);
        return;
    }
    if (!b->has_reference)
        memcpy(b->reference, b->result, (size_t)count * sizeof(float));
    b->has_reference = true;
    const double apart = difference(b->result, b->reference, count);
    static float again[2 * SAMPLE];
    const bool same = run_and_read(b, way, again) == count &&
                      memcmp(again, b->result, (size_t)count * sizeof(float)) == 0;
    const double us = time_way(b, way);
    if (isnan(apart))
        fprintf(line, "\"difference\": \"an element is NaN\", ");
    else
        fprintf(line, "\"difference\": %.2e, ", apart);
    fprintf(line, "\"same_bits\": %s, ", same ? "true" : "false");
    if (b->question.operation == FUSED)
        fprintf(line, "\"keeps_nan\": %s, ", keeps_nan(b, way, again) ? "true" : "false");
    if (us < 0)
        print_text("error", reason);
    else
        fprintf(line, "\"microseconds\": %.2f", us);
}

static bool set_workspace(struct bench *b, int64_t bytes)
{
    b->workspace = NULL;
    if (bytes <= MOST_WORKSPACE)
        return !bytes || cuda_ok(cudaMalloc(&b->workspace, (size_t)bytes), "workspace");
    snprintf(reason, sizeof(reason), "a workspace of %lld bytes", (long long)bytes);
    return false;
}

// ---- Calls of version 7 ----

static bool tell_tensor(cudnnTensorDescriptor_t *out, cudnnDataType_t type, int64_t n, int64_t h,
                        int64_t w, int64_t c)
{
    return dnn_ok(cudnnCreateTensorDescriptor(out), "tensor") &&
           dnn_ok(cudnnSetTensor4dDescriptor(*out, CUDNN_TENSOR_NHWC, type, (int)n, (int)c, (int)h,
                                             (int)w),
                  "tensor");
}

static cudnnMathType_t math_of(enum arithmetic arithmetic)
{
    return arithmetic == FLOAT32 ? CUDNN_FMA_MATH
           : arithmetic == TF32  ? CUDNN_DEFAULT_MATH
                                 : CUDNN_TENSOR_OP_MATH;
}

static bool tell_v7(struct bench *b)
{
    const struct shape *s = &b->question.shape;
    const cudnnDataType_t type = arithmetic_type(b->question.arithmetic);
    return tell_tensor(&b->x, type, s->batch, s->height, s->width, s->channels) &&
           tell_tensor(&b->y, type, s->batch, shape_outputs(s, 0), shape_outputs(s, 1),
                       s->filters) &&
           tell_tensor(&b->bias, type, 1, 1, 1, s->filters) &&
           dnn_ok(cudnnCreateFilterDescriptor(&b->w), "filter") &&
           dnn_ok(cudnnSetFilter4dDescriptor(b->w, type, CUDNN_TENSOR_NHWC, (int)s->filters,
                                             (int)(s->channels / s->groups), (int)s->size[0],
                                             (int)s->size[1]),
                  "filter") &&
           dnn_ok(cudnnCreateConvolutionDescriptor(&b->convolution), "convolution") &&
           dnn_ok(cudnnSetConvolution2dDescriptor(
                      b->convolution, (int)s->padding[0], (int)s->padding[1], (int)s->stride[0],
                      (int)s->stride[1], (int)s->dilation[0], (int)s->dilation[1],
                      CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT),
                  "convolution") &&
           dnn_ok(cudnnSetConvolutionGroupCount(b->convolution, (int)s->groups), "groups") &&
           dnn_ok(cudnnSetConvolutionMathType(b->convolution, math_of(b->question.arithmetic)),
                  "arithmetic") &&
           dnn_ok(cudnnCreateActivationDescriptor(&b->relu), "ReLU");
}

static void forget_v7(struct bench *b)
{
    cudnnDestroyTensorDescriptor(b->x);
    cudnnDestroyTensorDescriptor(b->y);
    cudnnDestroyTensorDescriptor(b->bias);
    cudnnDestroyFilterDescriptor(b->w);
    cudnnDestroyConvolutionDescriptor(b->convolution);
    cudnnDestroyActivationDescriptor(b->relu);
    b->x = b->y = b->bias = NULL;
    b->w = NULL;
    b->convolution = NULL;
    b->relu = NULL;
}

// The three lists of choices have structs of their own with the same members.
struct choice {
    int algorithm;
    cudnnStatus_t status;
    cudnnDeterminism_t determinism;
    cudnnMathType_t math;
};

#define MOST_CHOICES 16
#define LIST_CHOICES(type, call, ...)                                                           \
    do {                                                                                        \
        type found[MOST_CHOICES];                                                               \
        listed = dnn_ok(call(b->handle, __VA_ARGS__, MOST_CHOICES, &count, found), #call);      \
        for (int i = 0; listed && i < count; i++)                                               \
            out[i] = (struct choice){(int)found[i].algo, found[i].status, found[i].determinism, \
                                     found[i].mathType};                                        \
    } while (0)

static int list_choices(struct bench *b, struct choice *out)
{
    int count = 0;
    bool listed = false;
    if (b->question.operation == DATA)
        LIST_CHOICES(cudnnConvolutionBwdDataAlgoPerf_t, cudnnGetConvolutionBackwardDataAlgorithm_v7,
                     b->w, b->y, b->convolution, b->x);
    else if (b->question.operation == WEIGHTS)
        LIST_CHOICES(cudnnConvolutionBwdFilterAlgoPerf_t,
                     cudnnGetConvolutionBackwardFilterAlgorithm_v7, b->x, b->y, b->convolution,
                     b->w);
    else
        LIST_CHOICES(cudnnConvolutionFwdAlgoPerf_t, cudnnGetConvolutionForwardAlgorithm_v7, b->x,
                     b->w, b->convolution, b->y);
    return listed ? count : 0;
}

static bool workspace_of(struct bench *b, int algorithm, size_t *bytes)
{
    if (b->question.operation == DATA)
        return dnn_ok(cudnnGetConvolutionBackwardDataWorkspaceSize(
                          b->handle, b->w, b->y, b->convolution, b->x,
                          (cudnnConvolutionBwdDataAlgo_t)algorithm, bytes),
                      "workspace");
    if (b->question.operation == WEIGHTS)
        return dnn_ok(cudnnGetConvolutionBackwardFilterWorkspaceSize(
                          b->handle, b->x, b->y, b->convolution, b->w,
                          (cudnnConvolutionBwdFilterAlgo_t)algorithm, bytes),
                      "workspace");
    return dnn_ok(
        cudnnGetConvolutionForwardWorkspaceSize(b->handle, b->x, b->w, b->convolution, b->y,
                                                (cudnnConvolutionFwdAlgo_t)algorithm, bytes),
        "workspace");
}

static bool choose(struct bench *b, struct way *way)
{
    struct choice choices[MOST_CHOICES];
    const enum arithmetic arithmetic = b->question.arithmetic;
    const int count = list_choices(b, choices);
    for (int i = 0; i < count; i++) {
        const struct choice *choice = &choices[i];
        size_t bytes = 0;
        if (choice->status || choice->determinism != CUDNN_DETERMINISTIC ||
            choice->math == CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION ||
            (choice->math == CUDNN_TENSOR_OP_MATH && arithmetic == FLOAT32) ||
            (arithmetic != FLOAT32 && cudnnSetConvolutionMathType(b->convolution, choice->math)) ||
            !workspace_of(b, choice->algorithm, &bytes) || bytes > V7_MOST_WORKSPACE)
            continue;
        *way = (struct way){.algorithm = choice->algorithm, .workspace = (int64_t)bytes};
        return true;
    }
    if (count)
        snprintf(reason, sizeof(reason), "none of %d algorithms fits", count);
    return false;
}

static void begin_run(struct bench *b)
{
    fprintf(line, "%s{", b->runs++ ? ", " : ", \"runs\": [");
}

static void time_v7(struct bench *b, cudnnNanPropagation_t nan)
{
    struct way way = {0};
    begin_run(b);
    fprintf(line, "\"by\": \"version 7\", ");
    if (!tell_v7(b) ||
        !dnn_ok(cudnnSetActivationDescriptor(b->relu, CUDNN_ACTIVATION_RELU, nan, 0), "ReLU") ||
        !choose(b, &way) || !set_workspace(b, way.workspace)) {
        print_text("error", reason);
    } else {
        fprintf(line, "\"algorithm\": %d, \"workspace\": %lld, ", way.algorithm,
                (long long)way.workspace);
        if (b->question.operation == FUSED)
            fprintf(line, "\"asked_for_nan\": %s, ", nan == CUDNN_PROPAGATE_NAN ? "true" : "false");
        print_run(b, &way);
        cudaFree(b->workspace);
    }
    fprintf(line, "}");
    forget_v7(b);
}

// ---- Plans ----

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static void time_offer(struct bench *b, const struct offer *offer, int rank)
{
    char notes[128];
    struct way way = {0};
    begin_run(b);
    fprintf(line, "\"by\": \"plan\", \"rank\": %d, \"engine\": %lld, ", rank,
            (long long)offer->engine);
    print_text("notes", offer_notes(offer, notes, sizeof(notes)));
    fprintf(line, ", ");
    const double begin = now();
    way.plan = offer_plan(offer, b->handle, NULL, &way.workspace);
    const double plan_ms = (now() - begin) * 1e3;
    if (!way.plan) {
        print_text("error", cudnn_reason());
    } else {
        fprintf(line, "\"plan_ms\": %.2f, \"workspace\": %lld, ", plan_ms,
                (long long)way.workspace);
        const bool ready = set_workspace(b, way.workspace);
        way.pack = ready ? offer_pack(&b->question, b->tensors, b->workspace) : NULL;
        if (way.pack)
            print_run(b, &way);
        else
            print_text("error", ready ? cudnn_reason() : reason);
        cudaFree(b->workspace);
    }
    fprintf(line, "}");
    cudnn_destroy(&way.pack);
    cudnn_destroy(&way.plan);
}

static void time_offers(struct bench *b, const struct offers *offers, int most, double end)
{
    int timed = 0;
    for (int i = 0; i < offers->count && timed < most && now() < end; i++)
        if (offer_fits(&offers->list[i], b->question.arithmetic) && !offer_repeats(offers, i)) {
            time_offer(b, &offers->list[i], i);
            timed++;
        }
}

static void time_question(struct bench *b, const struct question *question, int most, double end)
{
    struct offers offers;
    b->question = *question;
    b->has_reference = false;
    b->runs = 0;
    if (!begin_line())
        return;
    print_question(question);
    const double begin = now();
    if (!offers_get(question, b->handle, NULL, &offers)) {
        fprintf(line, ", ");
        print_text("heuristics_error", cudnn_reason());
    }
    fprintf(line, ", \"offered\": %d, \"heuristics_ms\": %.2f", offers.count,
            (now() - begin) * 1e3);
    if (allocate(b)) {
        if (question->operation == FUSED)
            time_v7(b, CUDNN_PROPAGATE_NAN);
        time_v7(b, CUDNN_NOT_PROPAGATE_NAN);
        time_offers(b, &offers, most, end);
    } else {
        fprintf(line, ", ");
        print_text("error", reason);
    }
    release(b);
    offers_finish(&offers);
    fprintf(line, "%s%s", b->runs ? "]" : "", now() < end ? "" : ", \"cut_off\": true");
    end_line();
}

// ---- Processes ----

static bool open_gpu(struct bench *b)
{
    b->reference = malloc(2 * SAMPLE * sizeof(float));
    b->result = malloc(2 * SAMPLE * sizeof(float));
    return b->reference && b->result &&
           cuda_ok(cudaStreamCreateWithFlags(&b->stream, cudaStreamNonBlocking), "GPU 0") &&
           cuda_ok(cudaEventCreate(&b->begin), "GPU 0") &&
           cuda_ok(cudaEventCreate(&b->end), "GPU 0") &&
           dnn_ok(cudnnCreate(&b->handle), "cudnnCreate") &&
           dnn_ok(cudnnSetStream(b->handle, b->stream), "cudnnSetStream");
}

// Exit code of the child: 0, all done or out of time; 1, no GPU; 2, the context is broken.
static int time_all(const struct question *questions, int count, int most, double end,
                    volatile int *at)
{
    struct bench bench = {0};
    if (!open_gpu(&bench)) {
        fprintf(stderr, "gpu-plans: %s\n", reason);
        return 1;
    }
    for (; *at < count && now() < end; ++*at) {
        time_question(&bench, &questions[*at], most, end);
        if (is_broken())
            return ++*at, 2;
    }
    return 0;
}

// Starts children until all questions are answered or the time is over. Returns how many are.
static int time_in_children(const struct question *questions, int count, int most, double end,
                            volatile int *at)
{
    int code = 0;
    while (*at < count && now() < end && code != 1) {
        const pid_t child = fork();
        if (child < 0)
            break;
        if (!child) {
            alarm((unsigned)(end - now()) + 3); // a kernel that never ends
            _exit(time_all(questions, count, most, end, at));
        }
        int status = 0;
        waitpid(child, &status, 0);
        code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
        if (WIFSIGNALED(status)) {
            print_failure(&questions[*at], strsignal(WTERMSIG(status)));
            ++*at;
        }
    }
    return *at;
}

int plans_time(const struct question *questions, int count, int most, double seconds,
               const char *path)
{
    const double end = now() + seconds;
    volatile int *at =
        mmap(NULL, sizeof(int), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    file = fopen(path, "w");
    if (at == MAP_FAILED || !file) {
        fprintf(stderr, "gpu-plans: %s: cannot be opened\n", path);
        return 1;
    }
    fprintf(file, "[\n{\"cudnn\": %zu, \"questions\": %d}", cudnnGetVersion(), count);
    fflush(file);
    const int answered = time_in_children(questions, count, most, end, at);
    fputs("\n]\n", file);
    const bool written = fclose(file) == 0;
    printf("cuDNN %zu: %d of %d questions answered in %.0f s\n", cudnnGetVersion(), answered, count,
           seconds - (end - now()));
    munmap((void *)(uintptr_t)at, sizeof(int));
    return !answered || !written;
}
