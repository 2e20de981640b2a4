// SPDX-License-Identifier: Apache-2.0
// Cases of the device itself: memory, copies, calls that take NULL, operations that do not exist.
#include "tools/conformance/device/suite.h"

#include <stdlib.h>
#include <string.h>

static bool all_zero(const unsigned char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (bytes[i])
            return false;
    return true;
}

static bool check_block(struct ls_device_suite *suite, struct ls_buffer *buffer,
                        unsigned char *image, size_t bytes)
{
    const struct ls_device_side *side = suite->tested;
    const struct ls_device_interface *d = side->interface;

    const struct ls_memory block = ls_memory_of(buffer), host = ls_host_memory(image);
    if (d->memory_kind != LS_MEMORY_OPAQUE && (uintptr_t)buffer % LS_ALIGNMENT)
        return ls_device_suite_fail(suite, "%zu bytes lie at %p, not aligned to %d", bytes,
                                    (void *)buffer, LS_ALIGNMENT);
    memset(image, 0x5a, bytes);
    if (d->memory->copy(side->device, host, block, bytes, NULL) || !all_zero(image, bytes))
        return ls_device_suite_fail(suite, "fresh memory of %zu bytes is not zero", bytes);
    memset(image, 0x5a, bytes);
    if (d->memory->copy(side->device, block, host, bytes, NULL) ||
        d->memory->zero(side->device, block, bytes / 2, NULL) ||
        d->memory->copy(side->device, host, block, bytes, NULL))
        return ls_device_suite_fail(suite, "copy or zero of %zu bytes fails: %s", bytes,
                                    side->message);
    if (!all_zero(image, bytes / 2) || image[bytes / 2] != 0x5a || image[bytes - 1] != 0x5a)
        return ls_device_suite_fail(suite, "zero of %zu of %zu bytes clears other bytes", bytes / 2,
                                    bytes);
    return true;
}

static void memory_case(struct ls_device_suite *suite)
{
    static const size_t sizes[] = {1, 63, 64, 65, 4096, 1000003};
    const char *name = "memory is aligned, zeroed, copied and cleared";
    const struct ls_device_interface *d = suite->tested->interface;

    if (!ls_device_suite_begin(suite, name))
        return;
    bool good = true;
    for (size_t i = 0; good && i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct ls_buffer *block = d->memory->allocate(suite->tested->device, sizes[i]);
        unsigned char *image = malloc(sizes[i]);
        good = block && image ? check_block(suite, block, image, sizes[i])
                              : ls_device_suite_fail(suite, "no memory for %zu bytes", sizes[i]);
        d->memory->release(suite->tested->device, block);
        free(image);
    }
    ls_device_suite_end(suite, name, NULL);
}

static void null_case(struct ls_device_suite *suite)
{
    const char *name = "calls that take NULL";
    const struct ls_device_interface *d = suite->tested->interface;

    if (!ls_device_suite_begin(suite, name))
        return;
    d->memory->release(suite->tested->device, NULL);
    d->kernels->release(suite->tested->device, NULL);
    ls_device_suite_end(suite, name, NULL);
}

static void describe_case(struct ls_device_suite *suite)
{
    const char *name = "the description names at least one device";
    struct ls_device_side *side = suite->tested;
    struct ls_device_info info = {.struct_size = sizeof(info)};

    if (!ls_device_suite_begin(suite, name))
        return;
    if (side->interface->describe(&side->host, &info))
        ls_device_suite_fail(suite, "describe fails: %s", side->message);
    else if (info.physical_count == 0 || !info.hardware[0] ||
             !memchr(info.hardware, '\0', sizeof(info.hardware)))
        ls_device_suite_fail(suite, "%u devices, hardware \"%.*s\"", info.physical_count,
                             (int)sizeof(info.hardware) - 1, info.hardware);
    snprintf(suite->note, sizeof(suite->note), "%.*s", (int)sizeof(info.hardware) - 1,
             info.hardware);
    ls_device_suite_end(suite, name, NULL);
}

// What must be refused with a reason, and neither crash nor be answered.
static void refusal_case(struct ls_device_suite *suite, const char *name,
                         const struct ls_device_request *request)
{
    struct ls_device_side *side = suite->tested;
    struct ls_layout layouts[LS_DEVICE_ARGUMENTS] = {0};
    struct ls_kernel_answer answer = {.struct_size = sizeof(answer), .layouts = layouts};
    const struct ls_kernel_request asked = ls_device_kernel_request(request);

    if (!ls_device_suite_begin(suite, name))
        return;
    side->message[0] = '\0';
    const int32_t status = side->interface->kernels->prepare(side->device, &asked, &answer);
    if (status == LS_OK)
        ls_device_suite_fail(suite, "is answered with LS_OK");
    else if (!side->message[0])
        ls_device_suite_fail(suite, "is refused without a reason through host->fail");
    if (status == LS_OK)
        side->interface->kernels->release(side->device, answer.kernel);
    snprintf(suite->note, sizeof(suite->note), "%.*s", (int)sizeof(suite->note) - 1, side->message);
    ls_device_suite_end(suite, name, NULL);
}

static void refusal_cases(struct ls_device_suite *suite)
{
    struct ls_device_request request = {
        .op = 65535,
        .input_count = 1,
        .output_count = 1,
        .arguments = {LS_DEVICE_DESC(LS_F32, 2, 3), LS_DEVICE_DESC(LS_F32, 2, 3)},
    };
    refusal_case(suite, "an operation that does not exist", &request);
}

void ls_device_memory_cases(struct ls_device_suite *suite)
{
    describe_case(suite);
    memory_case(suite);
    null_case(suite);
    refusal_cases(suite);
}
