// SPDX-License-Identifier: Apache-2.0
#include "lab/gpu/plans_cudnn.h"

#include <stdio.h>
#include <string.h>

#define MOST_PROPERTIES 16384 // bytes of JSON

const char *const operation_names[OPERATIONS] = {"forward", "forward+bias+relu", "data gradient",
                                                 "weight gradient"};
const char *const arithmetic_names[ARITHMETICS] = {"float32", "tf32", "bfloat16", "float16"};

static char reason[1024];

const char *cudnn_reason(void)
{
    return reason;
}

static bool fail(const char *name, const char *text)
{
    snprintf(reason, sizeof(reason), "%s: %s", name, text);
    return false;
}

// Whether the call NAME did not fail; else cudnn_reason() says what cuDNN does.
static bool cudnn_ok(cudnnStatus_t status, const char *name)
{
    if (!status)
        return true;
    char more[512] = "", text[640];
    cudnnGetLastErrorString(more, sizeof(more));
    more[strcspn(more, "\n")] = 0;
    snprintf(text, sizeof(text), "%s%s%s", cudnnGetErrorString(status), *more ? ", " : "", more);
    return fail(name, text);
}

static descriptor create(cudnnBackendDescriptorType_t type)
{
    descriptor out = NULL;
    cudnn_ok(cudnnBackendCreateDescriptor(type, &out), "cudnnBackendCreateDescriptor");
    return out;
}

void cudnn_destroy(descriptor *d)
{
    if (*d)
        cudnnBackendDestroyDescriptor(*d);
    *d = NULL;
}

static bool set(descriptor d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                int64_t count, const void *values)
{
    char text[32];
    snprintf(text, sizeof(text), "attribute %d", (int)name);
    return d && cudnn_ok(cudnnBackendSetAttribute(d, name, type, count, values), text);
}

static bool set_descriptor(descriptor d, cudnnBackendAttributeName_t name, descriptor value)
{
    return value && set(d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

static bool set_integers(descriptor d, cudnnBackendAttributeName_t name, int64_t count,
                         const int64_t *values)
{
    return set(d, name, CUDNN_TYPE_INT64, count, values);
}

// The descriptor, when it was `set` and finalised; else NULL.
static descriptor finish(descriptor d, bool set, const char *name)
{
    if (set && cudnn_ok(cudnnBackendFinalize(d), name))
        return d;
    cudnn_destroy(&d);
    return NULL;
}

// ---- Properties of a GPU ----

descriptor cudnn_properties_of_file(const char *path)
{
    char text[MOST_PROPERTIES];
    FILE *file = fopen(path, "r");
    if (!file) {
        fail(path, "cannot be opened");
        return NULL;
    }
    const size_t bytes = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    text[bytes] = 0;
    descriptor d = create(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    return finish(
        d, set(d, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, (int64_t)bytes, text),
        path);
}

descriptor cudnn_properties_of_gpu(void)
{
    const int32_t index = 0;
    descriptor d = create(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    return finish(d, set(d, CUDNN_ATTR_DEVICEPROP_DEVICE_ID, CUDNN_TYPE_INT32, 1, &index),
                  "properties of GPU 0");
}

bool cudnn_properties_save(descriptor properties, const char *path)
{
    char text[MOST_PROPERTIES] = "";
    int64_t bytes = 0;
    if (!cudnn_ok(cudnnBackendGetAttribute(properties, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                                           CUDNN_TYPE_CHAR, sizeof(text) - 1, &bytes, text),
                  "properties as JSON"))
        return false;
    FILE *file = fopen(path, "w");
    if (!file)
        return fail(path, "cannot be opened");
    text[strcspn(text, "\n")] = 0;
    const bool written = fprintf(file, "%s\n", text) > 0;
    return (fclose(file) == 0 && written) || fail(path, "cannot be written");
}

// ---- A convolution ----

static int64_t shape_outputs(const struct shape *shape, int dimension)
{
    const int64_t in = dimension ? shape->width : shape->height;
    const int64_t window = (shape->size[dimension] - 1) * shape->dilation[dimension] + 1;
    return (in + 2 * shape->padding[dimension] - window) / shape->stride[dimension] + 1;
}

// (batch, channels, height, width): cuDNN's order of dimensions, whatever the order in memory is.
static void dims_of(const struct shape *s, enum tensor tensor, int64_t *out)
{
    const int64_t dims[TENSORS][4] = {
        [TENSOR_X] = {s->batch, s->channels, s->height, s->width},
        [TENSOR_W] = {s->filters, s->channels / s->groups, s->size[0], s->size[1]},
        [TENSOR_Y] = {s->batch, s->filters, shape_outputs(s, 0), shape_outputs(s, 1)},
        [TENSOR_BIAS] = {1, s->filters, 1, 1},
    };
    memcpy(out, dims[tensor], sizeof(dims[tensor]));
}

cudnnDataType_t arithmetic_type(enum arithmetic arithmetic)
{
    return arithmetic == BFLOAT16  ? CUDNN_DATA_BFLOAT16
           : arithmetic == FLOAT16 ? CUDNN_DATA_HALF
                                   : CUDNN_DATA_FLOAT;
}

// What is kept until the graph is destroyed.
static descriptor keep(struct offers *offers, descriptor d)
{
    if (d)
        offers->made[offers->made_count++] = d;
    return d;
}

// `id`: of a tensor in memory; above TENSORS: one between two operations, in float32.
static descriptor make_tensor(struct offers *offers, const struct question *question,
                              enum tensor tensor, int64_t id)
{
    int64_t dims[4];
    dims_of(&question->shape, tensor, dims);
    const int64_t strides[4] = {dims[1] * dims[2] * dims[3], 1, dims[3] * dims[1], dims[1]};
    const int64_t alignment = 16;
    const bool between = id >= TENSORS;
    const cudnnDataType_t type = between ? CUDNN_DATA_FLOAT : arithmetic_type(question->arithmetic);
    descriptor d = create(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    const bool ready = set(d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type) &&
                       set_integers(d, CUDNN_ATTR_TENSOR_DIMENSIONS, 4, dims) &&
                       set_integers(d, CUDNN_ATTR_TENSOR_STRIDES, 4, strides) &&
                       set_integers(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, 1, &id) &&
                       set_integers(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 1, &alignment) &&
                       set(d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &between);
    return keep(offers, finish(d, ready, "tensor"));
}

static descriptor make_convolution(struct offers *offers, const struct shape *shape)
{
    const cudnnDataType_t type = CUDNN_DATA_FLOAT;
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    const int64_t two = 2;
    descriptor d = create(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    const bool ready =
        set(d, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type) &&
        set(d, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode) &&
        set_integers(d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 1, &two) &&
        set_integers(d, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, 2, shape->padding) &&
        set_integers(d, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, 2, shape->padding) &&
        set_integers(d, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, 2, shape->stride) &&
        set_integers(d, CUDNN_ATTR_CONVOLUTION_DILATIONS, 2, shape->dilation);
    return keep(offers, finish(d, ready, "convolution"));
}

// The names of what the three operations have alike: convolution, x, w, y, factor of the result, factor of what was there.
static const struct {
    cudnnBackendDescriptorType_t type;
    cudnnBackendAttributeName_t names[6];
} convolutions[OPERATIONS] = {
    [FORWARD] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                 {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                  CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                  CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                  CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                  CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                  CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA}},
    [DATA] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
              {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
               CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
               CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
               CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
               CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
               CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA}},
    [WEIGHTS] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                 {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA}},
};

static descriptor convolve(struct offers *offers, const struct question *question, int64_t y_id)
{
    const enum operation operation = question->operation == FUSED ? FORWARD : question->operation;
    const cudnnBackendAttributeName_t *names = convolutions[operation].names;
    const float one = 1, zero = 0;
    descriptor convolution = make_convolution(offers, &question->shape);
    descriptor x = make_tensor(offers, question, TENSOR_X, TENSOR_X);
    descriptor w = make_tensor(offers, question, TENSOR_W, TENSOR_W);
    descriptor y = make_tensor(offers, question, TENSOR_Y, y_id);
    descriptor d = create(convolutions[operation].type);
    const bool ready = set_descriptor(d, names[0], convolution) && set_descriptor(d, names[1], x) &&
                       set_descriptor(d, names[2], w) && set_descriptor(d, names[3], y) &&
                       set(d, names[4], CUDNN_TYPE_FLOAT, 1, &one) &&
                       set(d, names[5], CUDNN_TYPE_FLOAT, 1, &zero);
    return keep(offers, finish(d, ready, operation_names[operation]));
}

// y = mode(x), or mode(x, b) where there is a b.
static descriptor pointwise(struct offers *offers, cudnnPointwiseMode_t mode, descriptor x,
                            descriptor b, descriptor y)
{
    const cudnnDataType_t type = CUDNN_DATA_FLOAT;
    descriptor what = create(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    bool ready = set(what, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode) &&
                 set(what, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &type);
    what = keep(offers, finish(what, ready, "pointwise"));
    descriptor d = create(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    ready = set_descriptor(d, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, what) &&
            set_descriptor(d, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x) &&
            (!b || set_descriptor(d, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b)) &&
            set_descriptor(d, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    return keep(offers, finish(d, ready, "pointwise operation"));
}

static bool make_graph(struct offers *offers, const struct question *question)
{
    descriptor operations[3];
    int count = 1;
    if (question->operation == FUSED) {
        operations[0] = convolve(offers, question, TENSORS);
        descriptor result = offers->made[offers->made_count - 2]; // y, made before the operation
        descriptor sum = make_tensor(offers, question, TENSOR_Y, TENSORS + 1);
        descriptor bias = make_tensor(offers, question, TENSOR_BIAS, TENSOR_BIAS);
        descriptor y = make_tensor(offers, question, TENSOR_Y, TENSOR_Y);
        operations[1] = pointwise(offers, CUDNN_POINTWISE_ADD, result, bias, sum);
        operations[2] = pointwise(offers, CUDNN_POINTWISE_RELU_FWD, sum, NULL, y);
        count = 3;
    } else {
        operations[0] = convolve(offers, question, TENSOR_Y);
    }
    for (int i = 0; i < count; i++)
        if (!operations[i])
            return false;
    descriptor d = create(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    const bool ready =
        set(d, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, count, operations);
    offers->graph = finish(d, ready, "graph");
    return offers->graph;
}

// ---- What cuDNN offers ----

static void read_offer(struct offer *offer)
{
    descriptor engine = create(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    cudnnBackendBehaviorNote_t behavior[CUDNN_BEHAVIOR_NOTE_TYPE_COUNT];
    int64_t count = 0, note_count = 0, behavior_count = 0;
    cudnnBackendGetAttribute(offer->config, CUDNN_ATTR_ENGINECFG_ENGINE,
                             CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &engine);
    cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &count,
                             &offer->engine);
    cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                             CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &note_count, notes);
    cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE,
                             CUDNN_BEHAVIOR_NOTE_TYPE_COUNT, &behavior_count, behavior);
    for (int64_t i = 0; i < note_count; i++)
        offer->notes |= 1U << notes[i];
    for (int64_t i = 0; i < behavior_count; i++)
        offer->compiled |= behavior[i] == CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION;
    cudnn_destroy(&engine);
}

static bool ask(struct offers *offers, cudnnBackendHeurMode_t mode, descriptor properties)
{
    descriptor configs[MOST_OFFERS];
    descriptor d = create(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    const bool ready = set_descriptor(d, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, offers->graph) &&
                       set(d, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode) &&
                       set_descriptor(d, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, properties);
    d = finish(d, ready, "heuristics");
    if (!d)
        return false;
    const int most = MOST_OFFERS - offers->count;
    for (int i = 0; i < most; i++)
        configs[i] = create(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    int64_t count = 0;
    const bool answered =
        cudnn_ok(cudnnBackendGetAttribute(d, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                          CUDNN_TYPE_BACKEND_DESCRIPTOR, most, &count, configs),
                 "heuristics");
    for (int i = 0; i < most; i++)
        if (answered && i < count) {
            struct offer *offer = &offers->list[offers->count++];
            *offer = (struct offer){.config = configs[i], .engine = -1};
            read_offer(offer);
        } else {
            cudnn_destroy(&configs[i]);
        }
    cudnn_destroy(&d);
    return answered;
}

bool offers_get(const struct question *question, descriptor properties, struct offers *out)
{
    memset(out, 0, sizeof(*out));
    if (!make_graph(out, question))
        return false;
    const bool found = ask(out, CUDNN_HEUR_MODE_A, properties);
    out->by_heuristics = out->count;
    return ask(out, CUDNN_HEUR_MODE_FALLBACK, properties) || found;
}

void offers_finish(struct offers *offers)
{
    for (int i = 0; i < offers->count; i++)
        cudnn_destroy(&offers->list[i].config);
    cudnn_destroy(&offers->graph);
    while (offers->made_count)
        cudnn_destroy(&offers->made[--offers->made_count]);
    offers->count = 0;
}

bool offer_fits(const struct offer *offer, enum arithmetic arithmetic)
{
    unsigned wrong = 1U << CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS |
                     1U << CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION |
                     1U << CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
    if (arithmetic == FLOAT32)
        wrong |= 1U << CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
    return !(offer->notes & wrong);
}

bool offer_repeats(const struct offers *offers, int offer)
{
    for (int i = 0; i < offer && offer >= offers->by_heuristics; i++)
        if (offers->list[i].engine == offers->list[offer].engine)
            return true;
    return false;
}

const char *offer_notes(const struct offer *offer, char *text, size_t bytes)
{
    static const char *const names[CUDNN_NUMERICAL_NOTE_TYPE_COUNT] = {
        "tensor cores",
        "inputs rounded",
        "sums rounded",
        "FFT",
        "not deterministic",
        "Winograd",
        "4x4",
        "6x6",
        "13x13",
        "keeps NaN",
    };
    size_t used = 0;
    text[0] = 0;
    for (int i = 0; i < CUDNN_NUMERICAL_NOTE_TYPE_COUNT; i++)
        if (offer->notes & 1U << i && used < bytes)
            used += (size_t)snprintf(text + used, bytes - used, "%s%s", used ? ", " : "", names[i]);
    if (offer->compiled && used < bytes)
        snprintf(text + used, bytes - used, "%scompiled when asked for", used ? ", " : "");
    return text;
}

descriptor offer_plan(const struct offer *offer, descriptor properties, int64_t *workspace)
{
    int64_t count = 0;
    descriptor d = create(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    const bool ready = set_descriptor(d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, offer->config) &&
                       set_descriptor(d, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, properties);
    d = finish(d, ready, "plan");
    if (d && !cudnn_ok(cudnnBackendGetAttribute(d, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                                CUDNN_TYPE_INT64, 1, &count, workspace),
                       "workspace"))
        cudnn_destroy(&d);
    return d;
}
