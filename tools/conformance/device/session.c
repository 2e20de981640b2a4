// SPDX-License-Identifier: Apache-2.0
// A prepared kernel with its arguments in guarded memory; what it answers and does is held against the
// contract in core/plugin/device.h.
#include "tools/conformance/device/suite.h"

#include "core/operation/operation.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool is_saved_bytes(const struct ls_tensor_desc *desc)
{
    return desc->dtype == LS_U8;
}

uint64_t ls_device_plain_bytes(const struct ls_tensor_desc *desc)
{
    return ls_tensor_elements(desc) * ls_dtype_bytes(desc->dtype);
}

struct ls_layout ls_device_plain_layout(const struct ls_tensor_desc *desc)
{
    return (struct ls_layout){.kind = LS_LAYOUT_PLAIN, .bytes = ls_device_plain_bytes(desc)};
}

// ---- The answer ----

static bool layout_is_good(struct ls_device_suite *suite, const struct ls_tensor_desc *wanted,
                           uint32_t index, const struct ls_layout *answered)
{
    const struct ls_layout plain = ls_device_plain_layout(wanted);

    if (wanted->layout.kind != LS_LAYOUT_ANY &&
        memcmp(&wanted->layout, answered, sizeof(*answered)) != 0)
        return ls_device_suite_fail(suite, "argument %u: the answer changes a fixed layout", index);
    if (answered->kind != LS_LAYOUT_PLAIN && answered->kind != LS_LAYOUT_OWN)
        return ls_device_suite_fail(suite, "argument %u: layout of kind %u", index, answered->kind);
    if (is_saved_bytes(wanted))
        return true;
    if (answered->kind == LS_LAYOUT_PLAIN && memcmp(&plain, answered, sizeof(plain)) != 0)
        return ls_device_suite_fail(
            suite, "argument %u: a plain layout has %llu bytes and no words, not %llu", index,
            (unsigned long long)plain.bytes, (unsigned long long)answered->bytes);
    if (answered->bytes < plain.bytes)
        return ls_device_suite_fail(suite, "argument %u: %llu bytes do not hold it", index,
                                    (unsigned long long)answered->bytes);
    return true;
}

// Whether the second output is what the operation keeps for its backward one.
static bool saves(const struct ls_device_request *request)
{
    return request->output_count == 2 &&
           (request->op == LS_OP_MAX_POOL2D || request->op == LS_OP_SPARSE_CROSS_ENTROPY ||
            request->op == LS_OP_LAYER_NORMALIZATION || request->op == LS_OP_ATTENTION);
}

static bool answer_is_good(struct ls_device_suite *suite, const struct ls_device_request *request,
                           const struct ls_kernel_answer *answer)
{
    const uint32_t inputs = (1u << request->input_count) - 1;
    const uint32_t count = request->input_count + request->output_count;

    if (!answer->kernel)
        return ls_device_suite_fail(suite, "prepare answers LS_OK without a kernel");
    if (answer->struct_size != sizeof(*answer))
        return ls_device_suite_fail(suite, "prepare changes struct_size, which is the caller's");
    if (answer->used_inputs & ~inputs || answer->in_place & ~inputs)
        return ls_device_suite_fail(suite,
                                    "used_inputs %x or in_place %x name more than the %u inputs",
                                    answer->used_inputs, answer->in_place, request->input_count);
    if (saves(request) && answer->layouts[request->input_count + 1].bytes != answer->saved_bytes)
        return ls_device_suite_fail(
            suite, "saved has %llu bytes in saved_bytes, %llu in its layout",
            (unsigned long long)answer->saved_bytes,
            (unsigned long long)answer->layouts[request->input_count + 1].bytes);
    if (!answer->implementation[0] ||
        !memchr(answer->implementation, '\0', sizeof(answer->implementation)))
        return ls_device_suite_fail(suite, "the implementation has no name");
    for (uint32_t i = 0; i < count; i++)
        if (!layout_is_good(suite, &request->arguments[i], i, &answer->layouts[i]))
            return false;
    return true;
}

int32_t ls_device_session_prepare(struct ls_device_session *session, struct ls_device_suite *suite,
                                  struct ls_device_side *side,
                                  const struct ls_device_request *request)
{
    *session = (struct ls_device_session){
        .suite = suite,
        .side = side,
        .request = *request,
        .answer = {.struct_size = sizeof(session->answer), .layouts = session->layouts},
    };
    const struct ls_kernel_request asked = ls_device_kernel_request(request);
    side->message[0] = '\0';
    const int32_t status =
        side->interface->kernels->prepare(side->device, &asked, &session->answer);
    if (status == LS_UNSUPPORTED && side->message[0])
        return status;
    if (status) {
        ls_device_suite_fail(suite, "prepare: status %d, %s", status,
                             side->message[0] ? side->message
                                              : "without a reason through host->fail");
        return LS_FAILED;
    }
    if (!answer_is_good(suite, request, &session->answer))
        return LS_FAILED;
    for (uint32_t i = 0; i < request->input_count + request->output_count; i++)
        session->request.arguments[i].layout = session->answer.layouts[i];
    return LS_OK;
}

void ls_device_session_close(struct ls_device_session *session)
{
    struct ls_device_side *side = session->side;
    if (!side)
        return;
    side->interface->kernels->release(side->device, session->answer.kernel);
    for (uint32_t i = 0; i < LS_DEVICE_ARGUMENTS; i++)
        ls_device_buffer_destroy(side, &session->buffers[i]);
    ls_device_buffer_destroy(side, &session->scratch);
    ls_device_buffer_destroy(side, &session->record);
    session->answer.kernel = NULL;
}

// ---- Memory ----

bool ls_device_session_allocate(struct ls_device_session *session)
{
    const uint32_t count = session->request.input_count + session->request.output_count;

    for (uint32_t i = 0; i < count; i++) {
        if (!ls_device_buffer_create(session->suite, session->side,
                                     session->answer.layouts[i].bytes, &session->buffers[i]))
            return false;
        session->memory[i] = ls_device_buffer_memory(&session->buffers[i]);
    }
    return ls_device_session_record(
        session, &(struct ls_step_record){.step = 1, .update = 1, .gradient_scale = 1});
}

bool ls_device_session_record(struct ls_device_session *session,
                              const struct ls_step_record *record)
{
    if (!session->record.base &&
        !ls_device_buffer_create(session->suite, session->side, sizeof(*record), &session->record))
        return false;
    return ls_device_buffer_write(session->suite, session->side, &session->record, record);
}

// ---- Running ----

static bool guards_are_whole(struct ls_device_session *session)
{
    const uint32_t count = session->request.input_count + session->request.output_count;

    for (uint32_t i = 0; i < count; i++) {
        char what[32];
        snprintf(what, sizeof(what), "argument %u", i);
        if (session->buffers[i].base &&
            !ls_device_buffer_read(session->suite, session->side, &session->buffers[i], what, NULL))
            return false;
    }
    return !session->scratch.base ||
           ls_device_buffer_read(session->suite, session->side, &session->scratch, "scratch", NULL);
}

bool ls_device_session_launch(struct ls_device_session *session)
{
    struct ls_device_suite *suite = session->suite;
    struct ls_device_side *side = session->side;

    if (session->answer.scratch_bytes && !session->scratch.base &&
        !ls_device_buffer_create(suite, side, session->answer.scratch_bytes, &session->scratch))
        return false;
    if (session->scratch.base && !ls_device_buffer_write(suite, side, &session->scratch, NULL))
        return false;

    const struct ls_launch launch = {
        .struct_size = sizeof(launch),
        .argument_count = session->request.input_count + session->request.output_count,
        .arguments = session->memory,
        .scratch = ls_device_buffer_memory(&session->scratch),
        .record = ls_device_buffer_memory(&session->record),
    };
    const uint64_t allocations = side->allocations;
    side->message[0] = '\0';
    const int32_t status =
        side->interface->kernels->launch(side->device, session->answer.kernel, &launch);
    if (status)
        return ls_device_suite_fail(suite, "launch: status %d, %s", status, side->message);
    if (side->allocations != allocations)
        return ls_device_suite_fail(suite, "launch allocates host memory");
    return guards_are_whole(session);
}

// ---- Layouts ----

static bool convert(struct ls_device_session *of, const struct ls_tensor_desc *desc,
                    const struct ls_layout *from, struct ls_memory source,
                    const struct ls_layout *to, struct ls_memory destination)
{
    struct ls_device_request request = {
        .op = LS_OP_CONVERT,
        .input_count = 1,
        .output_count = 1,
        .arguments = {*desc, *desc},
    };
    struct ls_device_session session;
    request.arguments[0].layout = *from;
    request.arguments[1].layout = *to;

    const int32_t status = ls_device_session_prepare(&session, of->suite, of->side, &request);
    bool good = !status;
    if (status == LS_UNSUPPORTED)
        ls_device_suite_fail(of->suite, "cannot convert between its own layout and plain: %s",
                             of->side->message);
    if (good) {
        session.memory[0] = source;
        session.memory[1] = destination;
        good = ls_device_session_launch(&session);
    }
    ls_device_session_close(&session);
    return good;
}

bool ls_device_session_write(struct ls_device_session *session, uint32_t argument,
                             const void *values)
{
    struct ls_tensor_desc *desc = &session->request.arguments[argument];
    const struct ls_device_buffer *buffer = &session->buffers[argument];
    const struct ls_layout plain = ls_device_plain_layout(desc);
    struct ls_device_buffer staging;

    if (!values || desc->layout.kind == LS_LAYOUT_PLAIN)
        return ls_device_buffer_write(session->suite, session->side, buffer, values);
    if (!ls_device_buffer_create(session->suite, session->side, plain.bytes, &staging))
        return false;
    const bool good = ls_device_buffer_write(session->suite, session->side, &staging, values) &&
                      ls_device_buffer_write(session->suite, session->side, buffer, NULL) &&
                      convert(session, desc, &plain, ls_device_buffer_memory(&staging),
                              &desc->layout, ls_device_buffer_memory(buffer));
    ls_device_buffer_destroy(session->side, &staging);
    return good;
}

// What a range of floats weighs: padding that is not zero would add to it.
struct weight {
    uint64_t count; // of elements that are not zero
    double squares;
};

static struct weight weigh(const float *values, uint64_t count)
{
    struct weight weight = {0};
    for (uint64_t i = 0; i < count; i++) {
        weight.count += values[i] != 0;
        weight.squares += (double)values[i] * (double)values[i];
    }
    return weight;
}

// An own layout holds the plain elements in some order, and zeros.
static bool padding_is_zero(struct ls_device_session *session, uint32_t argument,
                            const struct ls_device_buffer *buffer, const float *plain)
{
    const struct ls_tensor_desc *desc = &session->request.arguments[argument];
    if (desc->dtype != LS_F32 || buffer->bytes % sizeof(float) != 0)
        return true;
    float *raw = malloc(buffer->bytes);
    if (!raw)
        return ls_device_suite_fail(session->suite, "no host memory");

    bool good = ls_device_buffer_read(session->suite, session->side, buffer, "an own layout", raw);
    if (good) {
        const struct weight a = weigh(raw, desc->layout.bytes / sizeof(float));
        const struct weight b = weigh(plain, ls_tensor_elements(desc));
        // The squares are added in another order; NaN among the results is the comparison's to find.
        if (a.count != b.count || fabs(a.squares - b.squares) > 1e-9 * b.squares)
            good = ls_device_suite_fail(
                session->suite,
                "argument %u: the padding of its own layout is not zero (%llu elements "
                "that are not zero for %llu)",
                argument, (unsigned long long)a.count, (unsigned long long)b.count);
    }
    free(raw);
    return good;
}

bool ls_device_session_read(struct ls_device_session *session, uint32_t argument,
                            const struct ls_device_buffer *buffer, void *values)
{
    const struct ls_tensor_desc *desc = &session->request.arguments[argument];
    const struct ls_layout plain = ls_device_plain_layout(desc);
    struct ls_device_buffer staging;

    if (desc->layout.kind == LS_LAYOUT_PLAIN)
        return ls_device_buffer_read(session->suite, session->side, buffer, "an output", values);
    if (!ls_device_buffer_create(session->suite, session->side, plain.bytes, &staging))
        return false;
    const bool good =
        convert(session, desc, &desc->layout, ls_device_buffer_memory(buffer), &plain,
                ls_device_buffer_memory(&staging)) &&
        ls_device_buffer_read(session->suite, session->side, &staging, "a plain output", values) &&
        padding_is_zero(session, argument, buffer, values);
    ls_device_buffer_destroy(session->side, &staging);
    return good;
}

bool ls_device_operation_offered(struct ls_device_suite *suite, const char *name,
                                 const struct ls_device_request *request)
{
    struct ls_device_request plain = *request;
    struct ls_device_session session;
    for (uint32_t i = 0; i < plain.input_count + plain.output_count; i++)
        plain.arguments[i].layout = ls_device_plain_layout(&plain.arguments[i]);
    const int32_t status = ls_device_session_prepare(&session, suite, suite->tested, &plain);
    ls_device_session_close(&session);
    if (status != LS_UNSUPPORTED)
        return true;
    if (!suite->dtype && ls_device_suite_begin(suite, name))
        ls_device_suite_end(suite, name, suite->tested->message);
    return false;
}
