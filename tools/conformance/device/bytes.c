// SPDX-License-Identifier: Apache-2.0
// Cases of floats from bytes: the same bits as the division that the input thread of the host does, for every byte. A device
// may leave this operation out: it then gets floats.
#include "tools/conformance/device/suite.h"

#include <stdlib.h>
#include <string.h>

static bool fill(struct ls_device_session *session, uint8_t *bytes, float *wanted, float *got)
{
    const uint64_t count = ls_tensor_elements(&session->request.arguments[0]);
    const float divisor = session->request.attributes.divisor;
    for (uint64_t i = 0; i < count; i++) {
        bytes[i] = (uint8_t)(i * 151 + i / 256); // all of them in each 256
        wanted[i] = (float)bytes[i] / divisor;
    }
    if (!ls_device_session_allocate(session) || !ls_device_session_write(session, 0, bytes) ||
        !ls_device_session_launch(session) ||
        !ls_device_session_read(session, 1, &session->buffers[1], got))
        return false;
    for (uint64_t i = 0; i < count; i++)
        if (memcmp(&wanted[i], &got[i], sizeof(float)) != 0)
            return ls_device_suite_fail(session->suite, "%u / %g is %.9g, not %.9g; %s", bytes[i],
                                        (double)divisor, (double)got[i], (double)wanted[i],
                                        session->answer.implementation);
    return true;
}

// Of one side; LS_UNSUPPORTED with a text in side->message.
static int32_t run(struct ls_device_suite *suite, struct ls_device_side *side,
                   const struct ls_device_request *request)
{
    const uint64_t count = ls_tensor_elements(&request->arguments[0]);
    struct ls_device_session session;
    const int32_t status = ls_device_session_prepare(&session, suite, side, request);
    if (!status) {
        uint8_t *bytes = malloc(count);
        float *floats = malloc(2 * count * sizeof(*floats));
        if (!bytes || !floats)
            ls_device_suite_fail(suite, "no host memory");
        else
            fill(&session, bytes, floats, floats + count);
        snprintf(suite->note, sizeof(suite->note), "%s", session.answer.implementation);
        free(bytes);
        free(floats);
    }
    ls_device_session_close(&session);
    return status;
}

static void bytes_case(struct ls_device_suite *suite, struct ls_tensor_desc shape, float divisor)
{
    struct ls_device_request request = {.op = LS_OP_FROM_BYTES,
                                        .attributes = {.divisor = divisor},
                                        .input_count = 1,
                                        .output_count = 1,
                                        .arguments = {shape, shape}};
    char name[64];
    request.arguments[0].dtype = LS_U8;
    request.arguments[0].layout = ls_device_plain_layout(&request.arguments[0]);
    request.arguments[1].layout = ls_device_plain_layout(&request.arguments[1]);
    snprintf(name, sizeof(name), "from_bytes of %llu by %g",
             (unsigned long long)ls_tensor_elements(&shape), (double)divisor);
    if (!ls_device_suite_begin(suite, name))
        return;
    if (run(suite, suite->reference, &request) == LS_UNSUPPORTED)
        ls_device_suite_fail(suite, "the reference device refuses it: %s",
                             suite->reference->message);
    const bool refused = run(suite, suite->tested, &request) == LS_UNSUPPORTED;
    ls_device_suite_end(suite, name, refused ? suite->tested->message : NULL);
}

void ls_device_bytes_cases(struct ls_device_suite *suite)
{
    static const float divisors[] = {255, 1, 3.5f};
    for (size_t i = 0; i < sizeof(divisors) / sizeof(divisors[0]); i++) {
        bytes_case(suite, LS_DEVICE_DESC(LS_F32, 1, 1, 1, 1), divisors[i]);
        bytes_case(suite, LS_DEVICE_DESC(LS_F32, 3, 7, 5, 3), divisors[i]);
        bytes_case(suite, LS_DEVICE_DESC(LS_F32, 1, 16, 16, 1), divisors[i]);
        bytes_case(suite, LS_DEVICE_DESC(LS_F32, 5, 4001), divisors[i]);
    }
}
