// SPDX-License-Identifier: Apache-2.0
// cuDNN's graph API, as plans.c asks it: the properties of a GPU, a convolution as a graph, the engines that cuDNN offers
// for it, and their plans.
#ifndef LS_TOOLS_DEVELOPMENT_GPU_PLANS_CUDNN_H
#define LS_TOOLS_DEVELOPMENT_GPU_PLANS_CUDNN_H

#include <cudnn.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MOST_OFFERS 128

typedef cudnnBackendDescriptor_t descriptor;

// Why the last call that failed did so: one line.
const char *cudnn_reason(void);

void cudnn_destroy(descriptor *d);

// ---- Properties of a GPU. NULL, false: cudnn_reason(). ----

// Out of a file: needs no GPU.
descriptor cudnn_properties_of_file(const char *path);
// Of GPU 0 of this machine.
descriptor cudnn_properties_of_gpu(void);
bool cudnn_properties_save(descriptor properties, const char *path);

// ---- A convolution ----

enum operation { FORWARD, FUSED, DATA, WEIGHTS, OPERATIONS };
enum arithmetic { FLOAT32, TF32, BFLOAT16, FLOAT16, ARITHMETICS };

extern const char *const operation_names[OPERATIONS];
extern const char *const arithmetic_names[ARITHMETICS];

// x: (batch, height, width, channels), w: (filters, size, channels / groups), all without gaps in this order.
struct shape {
    char name[64];
    int64_t batch, height, width, channels, filters, size[2], stride[2], padding[2], dilation[2],
        groups;
};

struct question {
    struct shape shape;
    enum operation operation;
    enum arithmetic arithmetic;
};

enum tensor { TENSOR_X = 1, TENSOR_W, TENSOR_Y, TENSOR_BIAS, TENSORS }; // their unique ids, too

cudnnDataType_t arithmetic_type(enum arithmetic arithmetic);

// ---- What cuDNN offers for it ----

struct offer {
    descriptor config;
    int64_t engine;
    unsigned notes; // a bit for each cudnnBackendNumericalNote_t
    bool compiled; // when the plan is made
};

struct offers {
    descriptor graph;
    struct offer list[MOST_OFFERS];
    int count,
        by_heuristics; // the first of them in the order of the heuristics, then the fallbacks
    descriptor made[32]; // what the graph is made of
    int made_count;
};

// `properties`: of the GPU that is asked for.
bool offers_get(const struct question *question, descriptor properties, struct offers *out);
void offers_finish(struct offers *offers);

// Whether its results have the same bits each time and no factor or sum is rounded beyond what the arithmetic says.
bool offer_fits(const struct offer *offer, enum arithmetic arithmetic);

// Whether a fallback has the engine of an earlier offer.
bool offer_repeats(const struct offers *offers, int offer);

// "tensor cores, Winograd"; "" without notes.
const char *offer_notes(const struct offer *offer, char *text, size_t bytes);

// A plan for the offer. NULL: cudnn_reason().
descriptor offer_plan(const struct offer *offer, descriptor properties, int64_t *workspace);

#endif
