// SPDX-License-Identifier: Apache-2.0
// Guards: who gets them, and that a plugin keeps the functions that it has, and no more.
#include "core/loader/guard.h"

#include "core/plugin/collective.h"
#include "core/plugin/strategy.h"
#include "core/plugin/transport.h"
#include "tests/core/loader/support.h"
#include "tests/support/suite.h"

static int32_t build_schedule(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    (void)call;
    (void)schedule;
    return LS_OK;
}

enum { PLUGINS = 200 };

// A table for each plugin: its address is what tells one from another.
static struct ls_collective_interface theirs[PLUGINS];

static void setup(void)
{
    for (size_t i = 0; i < PLUGINS; i++)
        theirs[i].build_schedule = build_schedule;
    make_folder(); // keeps messages
}

struct guarded {
    struct ls_host_context context; // first: of the host
    struct ls_host host;
    struct ls_collective_interface ours;
};

static struct guarded guarded(size_t plugin)
{
    struct guarded out = {.ours = theirs[plugin]};
    char name[32];
    snprintf(name, sizeof(name), "test-%zu", plugin);
    out.context = (struct ls_host_context){
        LS_HOST_MAGIC, ls_plugin_know(LS_KIND_COLLECTIVE, name, &theirs[plugin])};
    ls_guard_table(LS_KIND_COLLECTIVE, &out.ours);
    return out;
}

TEST(a_plugin_without_a_function_has_no_guard_for_it)
{
    const struct ls_collective_interface ours = guarded(0).ours;
    ck_assert(ours.build_schedule && ours.build_schedule != build_schedule);
    ck_assert(!ours.open && !ours.run && !ours.poll && !ours.about);
}

TEST(a_plugin_that_is_opened_again_is_the_one_that_it_was)
{
    const struct guarded first = guarded(0), other = guarded(1);
    ck_assert_ptr_ne(first.context.plugin, other.context.plugin);
    ck_assert_ptr_eq(guarded(0).context.plugin, first.context.plugin);
    ck_assert_ptr_eq(guarded(1).context.plugin, other.context.plugin);
    ck_assert_str_eq(ls_loader_opened_name(0), "collective-test-0");
    ck_assert_str_eq(ls_loader_opened_name(1), "collective-test-1");
    ck_assert_ptr_null(ls_loader_opened_name(2));
}

static int32_t fail_with_a_number(const struct ls_collective_call *call,
                                  struct ls_schedule *schedule)
{
    (void)call;
    (void)schedule;
    return 1000;
}

TEST(any_number_of_plugins_of_a_kind_is_guarded)
{
    static struct guarded all[PLUGINS];
    for (size_t i = 0; i < PLUGINS; i++) {
        theirs[i].build_schedule = i % 3 ? build_schedule : fail_with_a_number;
        all[i] = guarded(i);
        all[i].host.context = &all[i].context;
    }
    for (size_t i = 0; i < PLUGINS; i++) {
        const struct ls_collective_call call = {.host = &all[i].host};
        char message[128];
        snprintf(message, sizeof(message),
                 "test-%zu: plugin collective-test-%zu: `build_schedule` returned 1000", i, i);
        last_message[0] = '\0';
        ck_assert_int_eq(all[i].ours.build_schedule(&call, NULL), i % 3 ? LS_OK : LS_FAILED);
        if (i % 3)
            ck_assert_str_eq(last_message, "");
        else
            ck_assert_message(message);
    }
}

static int32_t place(struct ls_strategy *strategy, uint32_t replica)
{
    (void)strategy;
    (void)replica;
    return LS_OK;
}

TEST(collectives_take_no_guards_from_strategies)
{
    struct ls_strategy_interface ours = {.initialize_parameters = place};
    (void)guarded(0);
    ls_guard_table(LS_KIND_STRATEGY, &ours);
    ck_assert(ours.initialize_parameters && ours.initialize_parameters != place);
}

static int32_t fail_silently(struct ls_transport *transport, struct ls_transfer *transfer)
{
    (void)transport;
    (void)transfer;
    return LS_FAILED;
}

static int32_t fail_with_a_reason(struct ls_transport *transport, struct ls_transfer *transfer)
{
    (void)transport;
    (void)transfer;
    ls_error("test-wire", "the cable is cut"); // as fail() of the host does
    return LS_FAILED;
}

// Calls made often do not count reasons themselves: what was logged before the plan began, such as
// an error of the program that was none of the plugin's, explains nothing.
TEST(a_transport_that_fails_silently_is_named)
{
    static const struct ls_transport_interface theirs_too = {.post = fail_with_a_reason,
                                                             .test = fail_silently};
    struct ls_transport_interface ours = theirs_too;
    struct ls_transfer transfer = {.state = LS_TRANSFER_PENDING};
    struct ls_host_context context = {LS_HOST_MAGIC,
                                      ls_plugin_know(LS_KIND_TRANSPORT, "test-wire", &theirs_too)};
    const struct ls_host host = {.context = &context};
    ls_guard_table(LS_KIND_TRANSPORT, &ours);
    struct ls_transport *transport = ls_instance_create(&ours, 8);
    ls_instance_claim(transport, &host);

    ls_error("usage", "of the program");
    ls_guard_forget_reasons();
    ck_assert_int_eq(ours.test(transport, &transfer), LS_FAILED);
    ck_assert_message(
        "plugin transport-test-wire: `test` returned 'failed' without giving a reason");
    ls_guard_forget_reasons();
    ck_assert_int_eq(ours.post(transport, &transfer), LS_FAILED);
    ck_assert_message("the cable is cut");
    ls_instance_destroy(transport);
}

TEST_FIXTURE(setup, remove_folder);
