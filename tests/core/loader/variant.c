// SPDX-License-Identifier: Apache-2.0
// A collective called TEST_NAME that is right but for what one macro makes wrong (see meson.build).
#include "core/plugin/collective.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef TEST_MAJOR
#define TEST_MAJOR LS_PLUGIN_ABI_MAJOR
#endif
#ifndef TEST_MINOR
#define TEST_MINOR LS_PLUGIN_ABI_MINOR
#endif
#ifndef TEST_KIND
#define TEST_KIND LS_KIND_COLLECTIVE
#endif
#ifndef TEST_MAGIC
#define TEST_MAGIC LS_PLUGIN_MAGIC
#endif
#ifndef TEST_SUMMARY
#define TEST_SUMMARY "a collective for tests"
#endif
#ifndef TEST_OPERATIONS
#define TEST_OPERATIONS (1u << LS_ALL_REDUCE)
#endif

static inline void crash(void)
{
    signal(SIGSEGV, SIG_DFL);
    raise(SIGSEGV);
}

static inline void hang(void)
{
    for (;;)
        pause();
}

static inline int32_t unavailable(char *reason, uint64_t bytes)
{
    strncpy(reason, "no such hardware in this test", bytes);
    return LS_UNAVAILABLE;
}

#ifdef TEST_CONSTRUCTOR
__attribute__((constructor)) static void construct(void)
{
    TEST_CONSTRUCTOR;
}
#endif

#ifdef TEST_UNDEFINED
int32_t ls_nobody_defines_this(void);
#endif

static inline int32_t build_schedule(const struct ls_collective_call *call,
                                     struct ls_schedule *schedule)
{
    (void)call;
    (void)schedule;
#ifdef TEST_UNDEFINED
    return ls_nobody_defines_this();
#else
    return LS_OK;
#endif
}

#ifdef TEST_ALLOCATE
static int32_t allocate(struct ls_collective *collective, uint64_t bytes, void **out)
{
    (void)collective;
    (void)bytes;
    (void)out;
    return LS_OK;
}
#endif

#ifdef TEST_LONGER
// What a later minor version might look like: members that we do not know follow ours.
static const struct {
    struct ls_collective_interface ours;
    void (*more[5])(void);
} table = {
    .ours = {.struct_size = sizeof(table),
             .operations = TEST_OPERATIONS,
             .build_schedule = build_schedule},
};
#else
static const struct ls_collective_interface table = {
#ifdef TEST_TABLE_BYTES
    .struct_size = TEST_TABLE_BYTES,
#else
    .struct_size = sizeof(table),
#endif
    .operations = TEST_OPERATIONS,
#ifndef TEST_NO_DESCRIBE
    .build_schedule = build_schedule,
#endif
#ifdef TEST_ALLOCATE
    .allocate = allocate,
#endif
};
#endif

static int32_t probe(char *reason, uint64_t bytes)
{
    (void)reason;
    (void)bytes;
#ifdef TEST_PROBE
    TEST_PROBE;
#endif
    return LS_OK;
}

static const struct ls_plugin_option options[] = {
    {"groups", "integer", "2", "how many groups"},
    {"note", "text", NULL, "anything"},
#ifdef TEST_OPTION
    TEST_OPTION,
#endif
    {NULL, NULL, NULL, NULL},
};

static const struct ls_plugin plugin = {
    .magic = TEST_MAGIC,
    .abi_major = TEST_MAJOR,
    .abi_minor = TEST_MINOR,
#ifdef TEST_LONGER
    .struct_size = sizeof(struct ls_plugin) + 64,
#else
    .struct_size = sizeof(struct ls_plugin),
#endif
    .kind = TEST_KIND,
    .name = TEST_NAME,
    .version = "1.2.3",
    .licence = "Apache-2.0",
    .summary = TEST_SUMMARY,
    .options = options,
    .probe = probe,
    .interface = &table,
};

#ifdef TEST_NO_SYMBOL
LS_EXPORT const struct ls_plugin *another_name(void);
LS_EXPORT const struct ls_plugin *another_name(void)
#else
LS_EXPORT const struct ls_plugin *lockstep_plugin(void)
#endif
{
#ifdef TEST_ENTRY
    TEST_ENTRY;
#endif
    return &plugin;
}
