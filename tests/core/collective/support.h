// SPDX-License-Identifier: Apache-2.0
// Collectives written by a test: a describe function becomes a plugin, and runs on threads over the local
// transport.
#ifndef LS_TESTS_COLLECTIVE_SUPPORT_H
#define LS_TESTS_COLLECTIVE_SUPPORT_H

#include "core/base/log.h"
#include "core/base/threads.h"
#include "core/collective/communicator.h"
#include "tests/support/plugin.h"
#include "tests/support/suite.h"

#include <check.h>
#include <stdbool.h>

#define TEST_RANKS 8

struct test_collective {
    struct ls_collective_interface interface;
    struct ls_plugin plugin;
    struct test_host host, transport_host;
    struct ls_communicator *communicators[TEST_RANKS];
    uint32_t world;
};

struct test_rank {
    struct test_collective *collective;
    void (*body)(struct test_rank *rank);
    uint32_t number;
    void *context;
    pthread_t thread;
};

typedef int32_t (*test_build_schedule)(const struct ls_collective_call *call,
                                       struct ls_schedule *schedule);

// Log lines at error level since the last clear; for tests that provoke errors.
static struct {
    pthread_mutex_t lock;
    char text[8192];
} test_log = {.lock = PTHREAD_MUTEX_INITIALIZER};

static inline void test_log_keep(void *context, uint32_t level, const char *line)
{
    (void)context;
    (void)level;
    pthread_mutex_lock(&test_log.lock);
    const size_t used = strlen(test_log.text);
    snprintf(test_log.text + used, sizeof(test_log.text) - used, "%s\n", line);
    pthread_mutex_unlock(&test_log.lock);
}

static inline void test_log_begin(void)
{
    test_log.text[0] = '\0';
    ls_log_set_writer(test_log_keep, NULL);
}

static inline void test_collective_open_as(struct test_collective *test,
                                           test_build_schedule build_schedule, uint32_t world,
                                           uint64_t segment_bytes, uint64_t deadline_ns,
                                           bool unproven)
{
    const struct ls_plugin *transport = test_plugin_open("transport-local");
    ck_assert_ptr_nonnull(transport);
    *test = (struct test_collective){
        .interface = {.struct_size = sizeof(test->interface),
                      .operations = 1u << LS_ALL_REDUCE,
                      .deterministic = 1,
                      .build_schedule = build_schedule},
        .plugin = {LS_PLUGIN_HEADER(LS_KIND_COLLECTIVE), .name = "test", .version = "1"},
        .world = world,
    };
    test->plugin.interface = &test->interface;
    test_host_init(&test->host, &test->plugin);
    test_host_init(&test->transport_host, transport);
    const struct ls_communicator_options options = {
        .collective = &test->plugin,
        .collective_host = &test->host.host,
        .transport = transport,
        .transport_host = &test->transport_host.host,
        .world = world,
        .deadline_ns = deadline_ns ? deadline_ns : UINT64_C(30000000000),
        .name = "test",
        .segment_bytes = segment_bytes,
        .unproven = unproven,
    };
    ck_assert_int_eq(ls_communicators_open(&options, test->communicators), LS_OK);
}

// Schedules are run as they are, also those that are not whole collectives.
static inline void test_collective_open(struct test_collective *test,
                                        test_build_schedule build_schedule, uint32_t world,
                                        uint64_t segment_bytes, uint64_t deadline_ns)
{
    test_collective_open_as(test, build_schedule, world, segment_bytes, deadline_ns, true);
}

static inline void test_collective_close(struct test_collective *test)
{
    ls_communicators_close(test->communicators, test->world);
}

static inline void *test_rank_main(void *argument)
{
    struct test_rank *rank = (struct test_rank *)argument;
    rank->body(rank);
    return NULL;
}

// Runs `body` on a thread per rank; contexts[i] may be NULL altogether. Bodies do not assert: they note what they
// saw for the test to look at.
static inline void test_run_ranks(struct test_collective *test, void (*body)(struct test_rank *),
                                  void *const *contexts)
{
    struct test_rank ranks[TEST_RANKS];
    for (uint32_t i = 0; i < test->world; i++) {
        ranks[i] = (struct test_rank){.collective = test,
                                      .body = body,
                                      .number = i,
                                      .context = contexts ? contexts[i] : NULL};
        ck_assert_int_eq(ls_thread_start(&ranks[i].thread, "rank", test_rank_main, &ranks[i]),
                         LS_OK);
    }
    for (uint32_t i = 0; i < test->world; i++)
        pthread_join(ranks[i].thread, NULL);
}

#endif
