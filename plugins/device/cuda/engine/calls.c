// SPDX-License-Identifier: Apache-2.0
// Finds the libraries of NVIDIA: by the names they had when this was built, where the dynamic linker looks
// (the folders of the build are in this object's run path).
#include "plugins/device/cuda/engine/calls.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

#ifndef CUDA_RUNTIME_LIBRARY
#error "the build names the libraries: CUDA_RUNTIME_LIBRARY, CUDA_BLAS_LIBRARY, CUDA_DNN_LIBRARY"
#endif

enum library { RUNTIME, BLAS, DNN, LIBRARY_COUNT };

static const char *const files[LIBRARY_COUNT] = {
    [RUNTIME] = CUDA_RUNTIME_LIBRARY,
    [BLAS] = CUDA_BLAS_LIBRARY,
    [DNN] = CUDA_DNN_LIBRARY,
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct cuda_calls calls;
static int ready;

static int open_libraries(void **handles, char *reason, size_t bytes)
{
    for (int i = 0; i < LIBRARY_COUNT; i++) {
        handles[i] = dlopen(files[i], RTLD_NOW | RTLD_LOCAL);
        if (!handles[i]) {
            snprintf(reason, bytes, "missing library: %s", dlerror());
            return 0;
        }
    }
    return 1;
}

static int find(void *handle, enum library library, const char *name, void *out, char *reason,
                size_t bytes)
{
    *(void **)out = dlsym(handle, name);
    if (*(void **)out)
        return 1;
    snprintf(reason, bytes, "%s has no %s: it is of another version than the one built with",
             files[library], name);
    return 0;
}

static int find_all(void *const *handles, char *reason, size_t bytes)
{
#define CUDA_CALL(library, result, name, arguments)                                  \
    if (!find(handles[library], library, #name, (void *)&calls.name, reason, bytes)) \
        return 0;
#include "plugins/device/cuda/engine/calls_list.h"
    return 1;
}

const struct cuda_calls *cuda_calls_get(char *reason, size_t bytes)
{
    void *handles[LIBRARY_COUNT];
    pthread_mutex_lock(&lock);
    if (!ready)
        ready = open_libraries(handles, reason, bytes) && find_all(handles, reason, bytes);
    const struct cuda_calls *out = ready ? &calls : NULL;
    pthread_mutex_unlock(&lock);
    return out;
}
