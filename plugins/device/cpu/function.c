// SPDX-License-Identifier: Apache-2.0
// Functions of elements whose derivative needs x. They run over the memory as it lies, in any
// layout.
#include "plugins/device/cpu/cpu.h"
#include "plugins/device/cpu/layout.h"

enum { GRAIN = 1024 }; // elements: parts begin at whole cache lines

struct mapping {
    const struct cpu_function_loops *loops;
    struct cpu_map map;
    const float *dy, *x;
    float *out;
};

static struct cpu_map map_of(const struct ls_kernel *kernel)
{
    const struct ls_op_attributes *a = &kernel->attributes;
    return (struct cpu_map){a->function, a->factor, a->offset};
}

// Nanoseconds per element on one thread, roughly.
static double cost(uint32_t function)
{
    return function == LS_SCALE || function == LS_SQUARE || function == LS_HARD_SILU ? 0.15 : 0.8;
}

static void map_part(void *context, int64_t begin, int64_t end)
{
    const struct mapping *m = context;
    m->loops->map(m->map, m->x + begin, m->out + begin, end - begin);
}

static int32_t run_function(struct ls_device *device, struct ls_kernel *kernel,
                            const struct cpu_call *launch)
{
    const struct ls_tensor_desc *y = cpu_output_desc(kernel, 0);
    struct mapping m = {device->loops->function, map_of(kernel), NULL, launch->arguments[0],
                        cpu_output(kernel, launch, 0)};
    const uint64_t count = cpu_floats(y);
    cpu_parallel(device, (int64_t)count, GRAIN, (double)count * cost(m.map.function), map_part, &m);
    cpu_zero_padding(y, m.out); // few functions keep 0
    return LS_OK;
}

int32_t cpu_function(struct ls_device *device, const struct ls_kernel_request *request,
                     struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    if (request->attributes.function >= LS_FUNCTION_COUNT)
        return cpu_unsupported(device, request, "there is no such function");
    kernel->run = run_function;
    answer->in_place = 1;
    cpu_implementation(device, answer, "function");
    return cpu_same_layout(device, request, kernel, 3);
}

static void map_backward_part(void *context, int64_t begin, int64_t end)
{
    const struct mapping *m = context;
    m->loops->map_backward(m->map, m->dy + begin, m->x + begin, m->out + begin, end - begin);
}

static int32_t run_function_backward(struct ls_device *device, struct ls_kernel *kernel,
                                     const struct cpu_call *launch)
{
    const struct ls_tensor_desc *dx = cpu_output_desc(kernel, 0);
    struct mapping m = {device->loops->function, map_of(kernel), launch->arguments[0],
                        launch->arguments[1], cpu_output(kernel, launch, 0)};
    const uint64_t count = cpu_floats(dx);
    if (m.map.function == LS_SCALE) { // which has no use for x: the scale of dy
        m.x = m.dy;
        m.map.offset = 0;
    }
    cpu_parallel(device, (int64_t)count, GRAIN, (double)count * cost(m.map.function) * 1.5,
                 m.map.function == LS_SCALE ? map_part : map_backward_part, &m);
    if (m.map.function == LS_LOGARITHM)
        cpu_zero_padding(dx, m.out); // 0 / 0 is not 0
    return LS_OK; // dy is 0 in the padding, and so is dx
}

int32_t cpu_function_backward(struct ls_device *device, const struct ls_kernel_request *request,
                              struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    if (request->attributes.function >= LS_FUNCTION_COUNT)
        return cpu_unsupported(device, request, "there is no such function");
    kernel->run = run_function_backward;
    answer->in_place = 3;
    if (request->attributes.function == LS_SCALE)
        answer->in_place = answer->used_inputs = 1;
    cpu_implementation(device, answer, "function");
    return cpu_same_layout(device, request, kernel, 7);
}
