// SPDX-License-Identifier: Apache-2.0
// Kernels: an operation with its shapes, what a launch of it reads and writes, and how it becomes
// instructions.
#include "plugins/device/pjrt/device.h"

// ---- Preparing ----

// What an operation keeps for its backward one in a form of its own: here nothing is kept, it is
// computed again.
static bool is_saved(const struct ls_kernel_request *request, uint32_t argument)
{
    return argument >= request->input_count && request->arguments[argument].dtype == LS_U8;
}

static bool is_read_type(uint32_t dtype)
{
    return dtype == LS_F32 || dtype == LS_F64 || dtype == LS_I32 || dtype == LS_U8;
}

static const char *refusal_of(const struct ls_kernel_request *request,
                              const struct pjrt_operation *operation)
{
    if (request->attributes.epilogue != LS_OP_NONE)
        return "an epilogue is not fused by hand: XLA fuses";
    if (request->input_count + request->output_count > PJRT_MAX_ARGUMENTS)
        return "too many arguments";
    for (uint32_t i = 0; i < request->input_count + request->output_count; i++) {
        if (request->arguments[i].layout.kind == LS_LAYOUT_OWN)
            return "only the plain layout is known";
        if (!is_read_type(request->arguments[i].dtype))
            return "halves are not taken";
        if (request->arguments[i].ndims > LS_MAX_DIMS)
            return "too many dimensions";
    }
    return operation->refusal ? operation->refusal(request) : NULL;
}

static uint64_t bytes_of(const struct ls_tensor_desc *desc)
{
    return ls_tensor_elements(desc) * ls_dtype_bytes(desc->dtype);
}

static bool reads_input(const struct ls_kernel *kernel, uint32_t input)
{
    return kernel->operation->used_inputs >> input & 1;
}

static bool reads_output(const struct ls_kernel *kernel, uint32_t output)
{
    return (kernel->operation->updates | kernel->request.accumulate) >> output & 1;
}

// Values have no address: output 0 may be where any input of its size and type is.
static uint32_t places_of(const struct ls_kernel *kernel)
{
    const struct ls_kernel_request *request = &kernel->request;
    const struct ls_tensor_desc *y = &request->arguments[request->input_count];
    uint32_t places = 0;
    if (reads_output(kernel, 0))
        return 0;
    for (uint32_t i = 0; i < request->input_count; i++)
        if (request->arguments[i].dtype == y->dtype && !is_saved(request, request->input_count) &&
            bytes_of(&request->arguments[i]) == bytes_of(y))
            places |= UINT32_C(1) << i;
    return places;
}

static void fill_answer(const struct ls_kernel *kernel, struct ls_kernel_answer *out)
{
    const struct ls_kernel_request *request = &kernel->request;
    for (uint32_t i = 0; i < request->input_count + request->output_count; i++)
        out->layouts[i] = (struct ls_layout){
            .kind = LS_LAYOUT_PLAIN,
            .bytes = is_saved(request, i) ? 0 : bytes_of(&request->arguments[i]),
        };
    out->used_inputs = kernel->operation->used_inputs & ((UINT32_C(1) << request->input_count) - 1);
    out->saved_bytes = request->op == LS_OP_SPARSE_CROSS_ENTROPY ? bytes_of(request->arguments) : 0;
    out->in_place = places_of(kernel) & out->used_inputs;
    snprintf(out->implementation, sizeof(out->implementation), "XLA %s", kernel->operation->name);
}

int32_t pjrt_prepare(struct ls_device *device, const struct ls_kernel_request *request,
                     struct ls_kernel_answer *out)
{
    const struct pjrt_operation *operation = pjrt_operation_of(request->op);
    if (!operation)
        return ls_host_fail(device->host, LS_UNSUPPORTED, "pjrt: it has no operation %u",
                            request->op);
    const char *refusal = refusal_of(request, operation);
    if (refusal)
        return ls_host_fail(device->host, LS_UNSUPPORTED, "pjrt: %s: %s", operation->name, refusal);
    struct ls_kernel *kernel = calloc(1, sizeof(*kernel));
    if (!kernel)
        return ls_host_fail(device->host, LS_OUT_OF_MEMORY, "pjrt: no memory for a kernel");
    kernel->operation = operation;
    kernel->request = *request;
    kernel->request.forward = NULL;
    kernel->request.arguments = kernel->arguments;
    memcpy(kernel->arguments, request->arguments,
           (request->input_count + request->output_count) * sizeof(*request->arguments));
    fill_answer(kernel, out);
    out->kernel = kernel;
    return LS_OK;
}

void pjrt_release_kernel(struct ls_device *device, struct ls_kernel *kernel)
{
    (void)device;
    free(kernel); // the client keeps its program
}

// ---- What a launch reads and writes ----

static struct pjrt_range range_of(const struct ls_kernel *kernel, uint32_t argument,
                                  struct ls_memory memory)
{
    const struct ls_tensor_desc *desc = &kernel->arguments[argument];
    return (struct pjrt_range){memory.buffer, memory.offset, bytes_of(desc), desc->dtype};
}

void pjrt_access_of(const struct ls_kernel *kernel, const struct ls_launch *launch,
                    struct pjrt_access *out)
{
    const struct ls_kernel_request *request = &kernel->request;
    out->read_count = out->written_count = 0;
    for (uint32_t i = 0; i < request->input_count; i++)
        if (reads_input(kernel, i))
            out->reads[out->read_count++] = range_of(kernel, i, launch->arguments[i]);
    if (kernel->operation->record)
        out->reads[out->read_count++] = (struct pjrt_range){
            launch->record.buffer, launch->record.offset, sizeof(struct ls_step_record), LS_I32};
    for (uint32_t i = 0; i < request->output_count; i++) {
        const uint32_t argument = request->input_count + i;
        if (is_saved(request, argument))
            continue;
        const struct pjrt_range range = range_of(kernel, argument, launch->arguments[argument]);
        if (reads_output(kernel, i))
            out->reads[out->read_count++] = range;
        out->writes[out->written_count++] = range;
    }
}

// ---- Writing ----

// Output i as it is stored: added to what was there, or left as it was in a step that is skipped.
static struct hlo_value stored(struct pjrt_call *call, const struct ls_kernel *kernel, uint32_t i,
                               struct hlo_value skip)
{
    struct hlo_value y = hlo_reshape(call->h, call->outputs[i], pjrt_output_shape(call, i));
    if (kernel->request.accumulate >> i & 1)
        y = hlo_add(call->h, call->old[i], y);
    if (skip.id)
        y = hlo_select(call->h, skip, call->old[i], y);
    return hlo_reshape(call->h, y, hlo_flat(hlo_elements(&y.shape)));
}

void pjrt_emit(struct hlo *h, const struct ls_kernel *kernel, const struct hlo_value *reads,
               struct hlo_value *writes)
{
    const struct ls_kernel_request *request = &kernel->request;
    struct pjrt_call call = {.h = h,
                             .attributes = &request->attributes,
                             .descs = kernel->arguments,
                             .input_count = request->input_count,
                             .output_count = request->output_count};
    struct hlo_value skip = {0};
    for (uint32_t i = 0; i < request->input_count; i++)
        if (reads_input(kernel, i))
            call.inputs[i] = hlo_reshape(h, *reads++, hlo_shape_of(&kernel->arguments[i]));
    if (kernel->operation->record)
        call.record = *reads++;
    for (uint32_t i = 0; i < request->output_count; i++)
        if (!is_saved(request, request->input_count + i) && reads_output(kernel, i))
            call.old[i] = hlo_reshape(h, *reads++, pjrt_output_shape(&call, i));
    kernel->operation->emit(&call);
    if (kernel->operation->skips) {
        const struct hlo_value word = PJRT_RECORD(&call, skip, LS_I32);
        skip = hlo_compare(h, "NE", word, hlo_like(h, word, 0));
    }
    for (uint32_t i = 0; i < request->output_count; i++)
        if (!is_saved(request, request->input_count + i))
            *writes++ = stored(&call, kernel, i, skip);
}
