// SPDX-License-Identifier: Apache-2.0
// Asks the true cuDNN for the plans of attention that device `cuda` asks it for (graph.c, plan.c), without a GPU:
//
//   attention-plans DRIVER PROPERTIES LIST
//
// DRIVER stands in for libcuda.so.1 (cuda_driver.c); PROPERTIES are those of a GPU (lab/gpu/properties); a line of LIST has batch,
// queries, keys, heads, elements of q and of v, 1 for causal, and the type. Prints the engine of each question. What plan.c would try on the
// GPU does not run: here all of it goes well.
#include "plugins/device/cuda/engine/internal.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Of cuDNN's headers, which the plugin does not need.
enum {
    DEVICE_PROPERTIES = 38,
    JSON = 2702,
    TYPE_CHAR = 24,
    HEURISTICS_PROPERTIES = 204,
    PLAN_PROPERTIES = 407
};

static struct cuda_calls cudnn; // the true calls
static void *properties;

// The device names its handle, which there is none of here: the properties take its place.
static unsigned set_attribute(void *descriptor, unsigned name, unsigned type, int64_t count,
                              const void *values)
{
    if (name == CUDNN_ATTR_OPERATIONGRAPH_HANDLE)
        return 0;
    if (name == CUDNN_ATTR_EXECUTION_PLAN_HANDLE)
        return cudnn.cudnnBackendSetAttribute(descriptor, PLAN_PROPERTIES,
                                              CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &properties);
    const unsigned error = cudnn.cudnnBackendSetAttribute(descriptor, name, type, count, values);
    return error || name != CUDNN_ATTR_ENGINEHEUR_MODE
               ? error
               : cudnn.cudnnBackendSetAttribute(descriptor, HEURISTICS_PROPERTIES,
                                                CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &properties);
}

// ---- A GPU on which all goes well, and everything is NaN ----

static unsigned execute(struct cudnnContext *handle, void *plan, void *pack)
{
    (void)handle, (void)plan, (void)pack;
    return 0;
}

static unsigned set_memory(void *memory, int value, size_t bytes, struct CUstream_st *stream)
{
    (void)memory, (void)value, (void)bytes, (void)stream;
    return 0;
}

int32_t cuda_copy(struct ls_device *device, struct ls_memory to, struct ls_memory from,
                  uint64_t bytes, void *stream)
{
    (void)device, (void)from, (void)stream;
    memset(ls_address(to), 0xff, bytes);
    return LS_OK;
}

void *cuda_arena_take(struct ls_device *device, uint64_t bytes)
{
    static _Alignas(256) char memory[256];
    (void)device, (void)bytes;
    return memory;
}

void cuda_arena_give(struct ls_device *device, void *memory)
{
    (void)device, (void)memory;
}

void cuda_launched(struct ls_device *device, const char *name)
{
    (void)device, (void)name;
}

void cuda_log(struct ls_device *device, uint32_t level, const char *format, ...)
{
    (void)device, (void)level;
    fprintf(stderr, "%s\n", format); // nothing is to be said
    exit(1);
}

int32_t cuda_use_dnn(struct ls_device *device)
{
    (void)device;
    return LS_OK;
}

int32_t cuda_wait(struct ls_device *device, struct CUstream_st *stream, const char *what)
{
    (void)device, (void)stream, (void)what;
    return LS_OK;
}

int32_t cuda_check(struct ls_device *device, unsigned error, const char *what)
{
    (void)device, (void)what;
    return (int32_t)error;
}

int32_t cuda_check_dnn(struct ls_device *device, unsigned error, const char *what)
{
    return cuda_check(device, error, what);
}

bool cuda_dnn_refuses(unsigned error)
{
    (void)error;
    return false;
}

// ---- Asking ----

static bool open_cudnn(const char *driver)
{
    void *library = dlopen(driver, RTLD_NOW | RTLD_GLOBAL);
    if (library)
        library = dlopen(CUDA_DNN_LIBRARY, RTLD_NOW);
    if (!library) {
        fprintf(stderr, "attention-plans: %s\n", dlerror());
        return false;
    }
    dlopen(CUDA_COMPILER_LIBRARY, RTLD_LAZY); // else cuDNN opens and closes it for each graph
    *(void **)&cudnn.cudnnBackendCreateDescriptor = dlsym(library, "cudnnBackendCreateDescriptor");
    *(void **)&cudnn.cudnnBackendDestroyDescriptor =
        dlsym(library, "cudnnBackendDestroyDescriptor");
    *(void **)&cudnn.cudnnBackendFinalize = dlsym(library, "cudnnBackendFinalize");
    *(void **)&cudnn.cudnnBackendSetAttribute = dlsym(library, "cudnnBackendSetAttribute");
    *(void **)&cudnn.cudnnBackendGetAttribute = dlsym(library, "cudnnBackendGetAttribute");
    return true;
}

static bool read_properties(const char *path)
{
    char text[16384];
    FILE *file = fopen(path, "r");
    if (!file)
        return false;
    const size_t bytes = fread(text, 1, sizeof(text), file);
    fclose(file);
    return !cudnn.cudnnBackendCreateDescriptor(DEVICE_PROPERTIES, &properties) &&
           !cudnn.cudnnBackendSetAttribute(properties, JSON, TYPE_CHAR, (int64_t)bytes, text) &&
           !cudnn.cudnnBackendFinalize(properties);
}

struct line {
    long long sizes[6];
    int causal;
    char type[16];
};

static bool read_line(FILE *list, struct line *out)
{
    long long *v = out->sizes;
    return fscanf(list, "%lld %lld %lld %lld %lld %lld %d %15s", &v[0], &v[1], &v[2], &v[3], &v[4],
                  &v[5], &out->causal, out->type) == 8;
}

static void ask(struct ls_device *device, const struct line *line, uint32_t op)
{
    const struct cuda_plan *plan = NULL;
    const long long *v = line->sizes;
    struct cuda_plan_question q;
    memset(&q, 0, sizeof(q));
    q.op = op;
    q.type = strcmp(line->type, "float32") == 0   ? CUDNN_DATA_FLOAT
             : strcmp(line->type, "float16") == 0 ? CUDNN_DATA_HALF
                                                  : CUDNN_DATA_BFLOAT16;
    q.tensor_cores = q.type != CUDNN_DATA_FLOAT;
    q.causal = line->causal != 0;
    q.scale = 1 / sqrtf((float)v[4]);
    memcpy(q.x, (int64_t[]){v[0], v[3], v[1], v[4]}, sizeof(q.x));
    memcpy(q.w, (int64_t[]){v[0], v[3], v[2], v[4]}, sizeof(q.w));
    memcpy(q.y, (int64_t[]){v[0], v[3], v[2], v[5]}, sizeof(q.y));
    if (cuda_plan_get(device, &q, &plan))
        exit(1);
    printf("B=%lld %lld of %lld, %lld heads of %lld and %lld%s, %s, %s: ", v[0], v[1], v[2], v[3],
           v[4], v[5], line->causal ? " causal" : "", line->type,
           op == LS_OP_ATTENTION ? "forward" : "gradients");
    if (plan)
        printf("engine %lld (%llu bytes)\n", (long long)plan->engine,
               (unsigned long long)plan->workspace_bytes);
    else
        printf("no plan\n");
}

int main(int argc, char **argv)
{
    struct ls_host host = {0};
    struct ls_device device = {.host = &host, .calls = &cudnn, .most_workspace = 1 << 30};
    FILE *list = argc == 4 ? fopen(argv[3], "r") : NULL;
    struct line line;
    if (!list) {
        fprintf(stderr, "usage: attention-plans DRIVER PROPERTIES LIST\n");
        return 2;
    }
    if (!open_cudnn(argv[1]))
        return 77;
    if (!read_properties(argv[2])) {
        fprintf(stderr, "attention-plans: %s: no properties of a GPU\n", argv[2]);
        return 1;
    }
    struct cuda_calls calls = cudnn;
    calls.cudnnBackendSetAttribute = set_attribute;
    calls.cudnnBackendExecute = execute;
    calls.cudaMemsetAsync = set_memory;
    device.calls = &calls;
    while (read_line(list, &line)) {
        ask(&device, &line, LS_OP_ATTENTION);
        ask(&device, &line, LS_OP_ATTENTION_BACKWARD);
    }
    fclose(list);
    cuda_plans_finish(&device);
    return 0;
}
