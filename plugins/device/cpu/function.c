// SPDX-License-Identifier: Apache-2.0
// Functions of elements whose derivative needs x. They run over the memory as it lies, in any
// layout.
#include "plugins/device/cpu/cpu.h"
#include "plugins/device/cpu/layout.h"

struct mapping {
    const struct cpu_function_loops *loops;
    struct cpu_map map;
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

static void map(const void *context, const float *const *in, float *const *out, int64_t n)
{
    const struct mapping *m = context;
    m->loops->map(m->map, in[0], out[0], n);
}

static int32_t run_function(struct ls_device *device, struct ls_kernel *kernel,
                            const struct cpu_call *launch)
{
    const struct mapping m = {device->loops->function, map_of(kernel)};
    const struct ls_tensor_desc *y = cpu_output_desc(kernel, 0);
    const struct cpu_flat flat = {map,
                                  &m,
                                  y->dtype,
                                  cpu_elements(y),
                                  {launch->arguments[0]},
                                  {cpu_output(kernel, launch, 0)}};
    cpu_flat_run(device, &flat, cost(m.map.function));
    cpu_zero_padding(y, flat.out[0]); // few functions keep 0
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

static void map_backward(const void *context, const float *const *in, float *const *out, int64_t n)
{
    const struct mapping *m = context;
    m->loops->map_backward(m->map, in[0], in[1], out[0], n);
}

static int32_t run_function_backward(struct ls_device *device, struct ls_kernel *kernel,
                                     const struct cpu_call *launch)
{
    const struct ls_tensor_desc *dx = cpu_output_desc(kernel, 0);
    const bool scales = kernel->attributes.function == LS_SCALE; // which has no use for x
    struct mapping m = {device->loops->function, map_of(kernel)};
    struct cpu_flat flat = {map_backward,
                            &m,
                            dx->dtype,
                            cpu_elements(dx),
                            {launch->arguments[0], launch->arguments[1]},
                            {cpu_output(kernel, launch, 0)}};
    if (scales) { // dx is the scale of dy
        m.map.offset = 0;
        flat.loop = map;
        flat.in[1] = NULL;
    }
    cpu_flat_run(device, &flat, cost(m.map.function) * 1.5);
    if (m.map.function == LS_LOGARITHM)
        cpu_zero_padding(dx, flat.out[0]); // 0 / 0 is not 0
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
