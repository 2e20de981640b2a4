// SPDX-License-Identifier: Apache-2.0
// cuDNN's graph API for plans.c: descriptors, the properties of a GPU, the message of what failed.
#ifndef LS_TOOLS_DEVELOPMENT_GPU_PLANS_CUDNN_H
#define LS_TOOLS_DEVELOPMENT_GPU_PLANS_CUDNN_H

#include <cudnn.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef cudnnBackendDescriptor_t descriptor;

// Why the last call failed that did: one line.
const char *cudnn_reason(void);

// Remembers a call that failed, as NAME: what cuDNN says. Returns whether it did not fail.
bool cudnn_ok(cudnnStatus_t status, const char *name);

// NULL: it cannot be made.
descriptor cudnn_create(cudnnBackendDescriptorType_t type);
void cudnn_destroy(descriptor *d);

bool cudnn_set(descriptor d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
               int64_t count, const void *values);
bool cudnn_finish(descriptor d, const char *name);

// The properties of a GPU: out of a file, without a GPU; of GPU 0 of this machine. NULL: cudnn_reason().
descriptor cudnn_properties_of_file(const char *path);
descriptor cudnn_properties_of_gpu(void);
bool cudnn_properties_save(descriptor properties, const char *path);

#endif
