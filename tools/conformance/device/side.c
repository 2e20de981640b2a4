// SPDX-License-Identifier: Apache-2.0
// One of the two devices of the suite: its host, and device memory between guards.
#include "tools/conformance/device/suite.h"
#include "core/device/device.h"

#include <stdlib.h>
#include <string.h>

#define GUARD_BYTES 64 // keeps the alignment
#define GUARD_BYTE 0xa5
#define POISON_BYTE 0xff

// ---- The host in front of the caller's ----

static void side_log(const struct ls_host *host, uint32_t level, const char *message)
{
    const struct ls_device_side *side = (const struct ls_device_side *)host;
    side->outer->log(side->outer, level, message);
}

// A refusal is an answer here, not yet a failure: the text is kept and nothing is logged.
static int32_t side_fail(const struct ls_host *host, int32_t status, const char *message)
{
    struct ls_device_side *side = (struct ls_device_side *)(uintptr_t)host;
    snprintf(side->message, sizeof(side->message), "%s", message);
    return status;
}

static void *side_allocate(const struct ls_host *host, uint64_t bytes, uint64_t alignment)
{
    struct ls_device_side *side = (struct ls_device_side *)(uintptr_t)host;
    side->allocations++;
    return side->outer->allocate(side->outer, bytes, alignment);
}

static void side_release(const struct ls_host *host, void *memory)
{
    const struct ls_device_side *side = (const struct ls_device_side *)host;
    side->outer->release(side->outer, memory);
}

static uint64_t side_clock(const struct ls_host *host)
{
    const struct ls_device_side *side = (const struct ls_device_side *)host;
    return side->outer->clock_ns(side->outer);
}

static const char *side_option(const struct ls_host *host, const char *name)
{
    const struct ls_device_side *side = (const struct ls_device_side *)host;
    return side->outer->option(side->outer, name);
}

int32_t ls_device_side_open(struct ls_device_side *side,
                            const struct ls_device_interface *interface,
                            const struct ls_host *outer, uint32_t threads)
{
    return ls_device_side_open_at(side, interface, outer, 0, threads);
}

int32_t ls_device_side_open_at(struct ls_device_side *side,
                               const struct ls_device_interface *interface,
                               const struct ls_host *outer, uint32_t index, uint32_t threads)
{
    *side = (struct ls_device_side){
        .host = {.struct_size = sizeof(struct ls_host),
                 .abi_minor = LS_PLUGIN_ABI_MINOR,
                 .context = outer->context,
                 .log = side_log,
                 .fail = side_fail,
                 .allocate = side_allocate,
                 .release = side_release,
                 .clock_ns = side_clock,
                 .option = side_option},
        .outer = outer,
        .interface = interface,
    };
    const struct ls_device_config config = {
        .struct_size = sizeof(config), .index = index, .threads = threads};
    return (int32_t)ls_device_open_state(interface, &side->host, &config, &side->device);
}

void ls_device_side_close(struct ls_device_side *side)
{
    if (side->interface)
        ls_device_close(side->device);
    side->device = NULL;
}

// ---- Outcomes ----

bool ls_device_suite_fail(struct ls_device_suite *suite, const char *format, ...)
{
    if (suite->message[0])
        return false;
    va_list list;
    va_start(list, format);
    vsnprintf(suite->message, sizeof(suite->message), format, list);
    va_end(list);
    return false;
}

bool ls_device_suite_refuse(struct ls_device_suite *suite, const char *where, const char *reason)
{
    if (!suite->options.partial || !reason[0])
        return ls_device_suite_fail(suite, "%srefused: %s", where, reason);
    suite->excused = true;
    snprintf(suite->note, sizeof(suite->note), "%.*s", (int)sizeof(suite->note) - 1, reason);
    return false;
}

// Whether the name contains one of the words, which | separates, or begins with it where ^ is before.
static bool contains_one(const char *name, const char *words)
{
    char word[256];
    for (const char *end; words; words = end ? end + 1 : NULL) {
        end = strchr(words, '|');
        const int length = (int)(end ? (size_t)(end - words) : strlen(words));
        snprintf(word, sizeof(word), "%.*s", length, words);
        if (word[0] == '^' ? !strncmp(name, word + 1, strlen(word) - 1)
                           : strstr(name, word) != NULL)
            return true;
    }
    return false;
}

bool ls_device_suite_begin(struct ls_device_suite *suite, const char *name)
{
    suite->message[0] = suite->note[0] = '\0';
    suite->excused = false;
    if (suite->options.until_failure && suite->counts.failed)
        return false;
    return (!suite->options.only || contains_one(name, suite->options.only)) &&
           (!suite->options.wanted || suite->options.wanted(suite->context, name));
}

void ls_device_suite_end(struct ls_device_suite *suite, const char *name, const char *refused)
{
    struct ls_conformance_result result = {
        .name = name, .outcome = LS_CONFORMANCE_PASSED, .message = suite->note};
    if (suite->message[0]) {
        result.outcome = LS_CONFORMANCE_FAILED;
        result.message = suite->message;
        suite->counts.failed++;
    } else if (suite->excused) {
        result.outcome = LS_CONFORMANCE_REFUSED;
        suite->counts.refused++;
    } else if (refused) {
        result.outcome = LS_CONFORMANCE_REFUSED;
        result.message = refused;
        suite->counts.refused++;
    } else {
        suite->counts.passed++;
    }
    suite->report(suite->context, &result);
}

// ---- Guarded memory ----

bool ls_device_buffer_create(struct ls_device_suite *suite, struct ls_device_side *side,
                             uint64_t bytes, struct ls_device_buffer *out)
{
    out->bytes = bytes;
    out->guard = suite->options.unguarded ? 0 : GUARD_BYTES;
    const uint64_t all = bytes + 2 * out->guard;
    out->base = side->interface->memory->allocate(side->device, all ? all : 1);
    if (!out->base)
        return ls_device_suite_fail(suite, "no device memory for %llu bytes",
                                    (unsigned long long)bytes);
    return ls_device_buffer_write(suite, side, out, NULL);
}

void ls_device_buffer_destroy(struct ls_device_side *side, struct ls_device_buffer *buffer)
{
    if (buffer->base)
        side->interface->memory->release(side->device, buffer->base);
    buffer->base = NULL;
}

struct ls_memory ls_device_buffer_memory(const struct ls_device_buffer *buffer)
{
    const struct ls_memory nowhere = {NULL, 0};
    return buffer->base ? ls_memory_at(ls_memory_of(buffer->base), buffer->guard) : nowhere;
}

bool ls_device_buffer_write(struct ls_device_suite *suite, struct ls_device_side *side,
                            const struct ls_device_buffer *buffer, const void *values)
{
    const size_t bytes = buffer->bytes, guard = buffer->guard, all = bytes + 2 * guard;
    unsigned char *image = malloc(all + 1);
    if (!image)
        return ls_device_suite_fail(suite, "no host memory");

    memset(image, GUARD_BYTE, all);
    if (values && bytes)
        memcpy(image + guard, values, bytes);
    else
        memset(image + guard, POISON_BYTE, bytes);
    const int32_t status = side->interface->memory->copy(side->device, ls_memory_of(buffer->base),
                                                         ls_host_memory(image), all, NULL);
    free(image);
    return status ? ls_device_suite_fail(suite, "copy to the device: %s", side->message) : true;
}

static bool guard_is_whole(const unsigned char *guard, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (guard[i] != GUARD_BYTE)
            return false;
    return true;
}

bool ls_device_buffer_read(struct ls_device_suite *suite, struct ls_device_side *side,
                           const struct ls_device_buffer *buffer, const char *what, void *values)
{
    const size_t bytes = buffer->bytes, guard = buffer->guard, all = bytes + 2 * guard;
    unsigned char *image = malloc(all + 1);
    if (!image)
        return ls_device_suite_fail(suite, "no host memory");

    bool good = true;
    if (side->interface->memory->copy(side->device, ls_host_memory(image),
                                      ls_memory_of(buffer->base), all, NULL))
        good = ls_device_suite_fail(suite, "copy from the device: %s", side->message);
    else if (!guard_is_whole(image, guard))
        good = ls_device_suite_fail(suite, "wrote before the start of %s", what);
    else if (!guard_is_whole(image + guard + bytes, guard))
        good = ls_device_suite_fail(suite, "wrote behind the %llu bytes of %s",
                                    (unsigned long long)bytes, what);
    if (good && values && bytes)
        memcpy(values, image + guard, bytes);
    free(image);
    return good;
}
