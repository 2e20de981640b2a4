// SPDX-License-Identifier: Apache-2.0
// A case on one side: decides the layouts of its variant, runs the forward operation that a backward one
// builds on, writes the values, launches, and reads the results back.
#include "tools/conformance/device/suite.h"

#include <assert.h>
#include <string.h>

// ---- Layouts ----

// The layout in which a convolution or a dense layer with a free choice leaves its result.
static struct ls_layout upstream_layout(struct ls_device_suite *suite, struct ls_device_side *side,
                                        const struct ls_tensor_desc *desc)
{
    const int64_t *d = desc->dims;
    struct ls_device_request request = {
        .input_count = 2, .output_count = 1, .arguments = {[2] = *desc}};
    struct ls_device_session session;

    if (desc->ndims == 4) {
        request.op = LS_OP_CONV2D;
        request.attributes = (struct ls_op_attributes){
            .strides = {1, 1}, .padding = {1, 1, 1, 1}, .dilation = {1, 1}, .groups = 1};
        request.arguments[0] = LS_DEVICE_DESC(desc->dtype, d[0], d[1], d[2], 8);
        request.arguments[1] = LS_DEVICE_DESC(desc->dtype, 3, 3, 8, d[3]);
    } else {
        const int64_t n = d[desc->ndims - 1];
        request.op = LS_OP_DENSE;
        request.arguments[0] = *desc;
        request.arguments[0].dims[desc->ndims - 1] = 48;
        request.arguments[1] = LS_DEVICE_DESC(desc->dtype, 48, n);
    }
    const int32_t status = ls_device_session_prepare(&session, suite, side, &request);
    const struct ls_layout layout =
        status ? ls_device_plain_layout(desc) : session.answer.layouts[2];
    ls_device_session_close(&session);
    return layout;
}

static struct ls_layout layout_for(struct ls_device_trial *trial, struct ls_device_suite *suite,
                                   struct ls_device_side *side, const struct ls_tensor_desc *desc,
                                   enum ls_device_role role, bool is_input)
{
    const struct ls_layout any = {.kind = LS_LAYOUT_ANY};

    if (role == LS_DEVICE_SAVED)
        return any;
    if (role == LS_DEVICE_PLAIN || trial->variant == LS_DEVICE_ALL_PLAIN)
        return ls_device_plain_layout(desc);
    if (role == LS_DEVICE_ACTIVATION && is_input) {
        if (trial->variant == LS_DEVICE_PLAIN_INPUTS)
            return ls_device_plain_layout(desc);
        if (trial->variant == LS_DEVICE_UPSTREAM)
            return upstream_layout(suite, side, desc);
    }
    return any;
}

static void set_layouts(struct ls_device_trial *trial, struct ls_device_suite *suite,
                        struct ls_device_side *side, struct ls_device_request *request,
                        const enum ls_device_role *roles)
{
    for (uint32_t i = 0; i < request->input_count + request->output_count; i++) {
        struct ls_tensor_desc *desc = &request->arguments[i];
        desc->layout = layout_for(trial, suite, side, desc, roles[i], i < request->input_count);
    }
}

static void note_own_layouts(struct ls_device_trial *trial, const struct ls_device_request *request)
{
    for (uint32_t i = 0; i < request->input_count + request->output_count; i++)
        trial->own_fixed |= request->arguments[i].layout.kind == LS_LAYOUT_OWN;
}

// Arguments that the forward operation has laid out lie as it said. Where it only is a hint, that is
// tried in the upstream variant, as a training does it.
static void take_forward_layouts(struct ls_device_trial *trial, struct ls_device_request *request)
{
    const struct ls_device_case *c = trial->c;
    request->forward = trial->forward.answer.kernel;
    if (!c->saved_from_forward && trial->variant != LS_DEVICE_UPSTREAM)
        return;
    for (uint32_t i = 0; i < request->input_count + request->output_count; i++) {
        if (!c->from_forward[i] ||
            request->arguments[i].dtype != c->forward.arguments[c->from_forward[i] - 1].dtype)
            continue; // a float32 gradient of weights in halves lies otherwise
        request->arguments[i].layout = trial->forward.answer.layouts[c->from_forward[i] - 1];
        if (request->arguments[i].dtype == LS_U8)
            request->arguments[i].dims[0] = (int64_t)request->arguments[i].layout.bytes;
    }
}

// ---- The forward operation ----

// Argument of the case that has the values of argument `index` of its forward operation; -1: none.
static int32_t argument_of_forward(const struct ls_device_case *c, uint32_t index)
{
    for (uint32_t i = 0; i < c->request.input_count; i++)
        if (c->from_forward[i] == index + 1)
            return (int32_t)i;
    return -1;
}

static int32_t open_forward(struct ls_device_trial *trial, struct ls_device_suite *suite,
                            struct ls_device_side *side)
{
    const struct ls_device_case *c = trial->c;
    struct ls_device_request request = c->forward;
    set_layouts(trial, suite, side, &request, c->forward_roles);
    note_own_layouts(trial, &request);

    const int32_t status = ls_device_session_prepare(&trial->forward, suite, side, &request);
    if (status || !c->saved_from_forward)
        return status;
    bool good = ls_device_session_allocate(&trial->forward);
    for (uint32_t i = 0; good && i < request.input_count; i++) {
        const int32_t argument = argument_of_forward(c, i);
        good = argument >= 0 && ls_device_session_write(&trial->forward, i, c->values[argument]);
    }
    good = good && ls_device_session_record(&trial->forward, &c->record) &&
           ls_device_session_launch(&trial->forward);
    return good ? LS_OK : LS_FAILED;
}

int32_t ls_device_trial_open(struct ls_device_trial *trial, struct ls_device_suite *suite,
                             struct ls_device_side *side, const struct ls_device_case *c,
                             enum ls_device_variant variant)
{
    assert(c->draw_count == 0); // ls_device_case_values() was called
    *trial = (struct ls_device_trial){.c = c, .variant = variant};
    struct ls_device_request request = c->request;

    set_layouts(trial, suite, side, &request, c->roles);
    if (c->has_forward && (c->saved_from_forward || variant != LS_DEVICE_ALL_PLAIN)) {
        const int32_t status = open_forward(trial, suite, side);
        if (status)
            return status;
        take_forward_layouts(trial, &request);
    }
    note_own_layouts(trial, &request);

    const int32_t status = ls_device_session_prepare(&trial->session, suite, side, &request);
    if (status)
        return status;
    return ls_device_session_allocate(&trial->session) &&
                   ls_device_session_record(&trial->session, &c->record)
               ? LS_OK
               : LS_FAILED;
}

// ---- Running ----

// The bytes that the forward operation left, as they are.
static bool take_over(struct ls_device_trial *trial, uint32_t argument)
{
    struct ls_device_session *session = &trial->session;
    const struct ls_device_side *side = session->side;
    const struct ls_device_buffer *from =
        &trial->forward.buffers[trial->c->from_forward[argument] - 1];
    const struct ls_device_buffer *to = &session->buffers[argument];

    if (from->bytes != to->bytes)
        return ls_device_suite_fail(
            session->suite, "argument %u: forward leaves %llu bytes, backward takes %llu", argument,
            (unsigned long long)from->bytes, (unsigned long long)to->bytes);
    if (to->bytes && side->interface->memory->copy(side->device, ls_device_buffer_memory(to),
                                                   ls_device_buffer_memory(from), to->bytes, NULL))
        return ls_device_suite_fail(session->suite, "copy on the device: %s", side->message);
    return true;
}

static bool made_by_forward(const struct ls_device_trial *trial, uint32_t argument)
{
    const struct ls_device_case *c = trial->c;
    return c->saved_from_forward && c->from_forward[argument] > c->forward.input_count;
}

static bool write_arguments(struct ls_device_trial *trial, bool null_unused)
{
    struct ls_device_session *session = &trial->session;
    const struct ls_device_request *request = &session->request;

    for (uint32_t i = 0; i < request->input_count + request->output_count; i++) {
        const bool used = i >= request->input_count || session->answer.used_inputs >> i & 1;
        session->memory[i] = used || !null_unused ? ls_device_buffer_memory(&session->buffers[i])
                                                  : (struct ls_memory){NULL, 0};
        const bool good =
            used && made_by_forward(trial, i)
                ? take_over(trial, i)
                : ls_device_session_write(session, i, used ? trial->c->values[i] : NULL);
        if (!good)
            return false;
    }
    return true;
}

bool ls_device_trial_run(struct ls_device_trial *trial, bool null_unused, int32_t in_place,
                         void *const *outputs)
{
    struct ls_device_session *session = &trial->session;
    const uint32_t first = session->request.input_count;

    if (!write_arguments(trial, null_unused))
        return false;
    if (in_place >= 0)
        session->memory[first] = ls_device_buffer_memory(&session->buffers[in_place]);
    if (!ls_device_session_launch(session))
        return false;
    for (uint32_t i = 0; i < session->request.output_count; i++) {
        const struct ls_device_buffer *buffer =
            i == 0 && in_place >= 0 ? &session->buffers[in_place] : &session->buffers[first + i];
        if (trial->c->roles[first + i] != LS_DEVICE_SAVED &&
            !ls_device_session_read(session, first + i, buffer, outputs[i]))
            return false;
    }
    return true;
}

void ls_device_trial_close(struct ls_device_trial *trial)
{
    ls_device_session_close(&trial->session);
    ls_device_session_close(&trial->forward);
}
