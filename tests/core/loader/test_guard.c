// SPDX-License-Identifier: Apache-2.0
// Guards: who gets them, and that a plugin keeps the functions that it has, and no more.
#include "core/loader/guard.h"

#include "tests/core/loader/support.h"
#include "tests/support/suite.h"

static int32_t build_schedule(const struct ls_collective_call *call, struct ls_schedule *schedule)
{
    (void)call;
    (void)schedule;
    return LS_OK;
}

// A table for each plugin: its address is what tells one from another.
static struct ls_collective_interface theirs[LS_GUARD_COLLECTIVES + 1];

static void setup(void)
{
    for (size_t i = 0; i <= LS_GUARD_COLLECTIVES; i++)
        theirs[i].build_schedule = build_schedule;
    make_folder(); // keeps messages
}

static struct ls_collective_interface guarded(size_t plugin)
{
    struct ls_collective_interface ours = theirs[plugin];
    char name[32];
    snprintf(name, sizeof(name), "test-%zu", plugin);
    ls_guard_table(LS_KIND_COLLECTIVE, name, &theirs[plugin], &ours);
    return ours;
}

START_TEST(a_plugin_without_a_function_has_no_guard_for_it)
{
    const struct ls_collective_interface ours = guarded(0);
    ck_assert(ours.build_schedule && ours.build_schedule != build_schedule);
    ck_assert(!ours.open && !ours.run && !ours.poll && !ours.about);
    ck_assert_int_eq(ours.build_schedule(NULL, NULL), LS_OK);
}
END_TEST

START_TEST(a_plugin_that_is_opened_again_has_the_guards_that_it_had)
{
    const struct ls_collective_interface first = guarded(0), other = guarded(1);
    ck_assert(first.build_schedule != other.build_schedule);
    ck_assert(guarded(0).build_schedule == first.build_schedule);
    ck_assert(guarded(1).build_schedule == other.build_schedule);
}
END_TEST

START_TEST(a_plugin_beyond_the_guards_is_called_as_it_is_with_a_warning)
{
    for (size_t i = 0; i < LS_GUARD_COLLECTIVES; i++)
        ck_assert(guarded(i).build_schedule != build_schedule);
    ck_assert_str_eq(last_message, "");
    ck_assert(guarded(LS_GUARD_COLLECTIVES).build_schedule == build_schedule);
    ck_assert_message("warning: plugins: collective-test-32 is not guarded");
}
END_TEST

static int32_t place(struct ls_strategy *strategy, uint32_t replica)
{
    (void)strategy;
    (void)replica;
    return LS_OK;
}

START_TEST(collectives_take_no_guards_from_strategies)
{
    static const struct ls_strategy_interface strategy = {.initialize_parameters = place};
    struct ls_strategy_interface ours = strategy;
    for (size_t i = 0; i < LS_GUARD_COLLECTIVES; i++)
        (void)guarded(i);
    ls_guard_table(LS_KIND_STRATEGY, "test", &strategy, &ours);
    ck_assert(ours.initialize_parameters && ours.initialize_parameters != place);
}
END_TEST

int main(void)
{
    TCase *tests = tcase_create("guard");
    tcase_add_checked_fixture(tests, setup, remove_folder);
    tcase_add_test(tests, a_plugin_without_a_function_has_no_guard_for_it);
    tcase_add_test(tests, a_plugin_that_is_opened_again_has_the_guards_that_it_had);
    tcase_add_test(tests, a_plugin_beyond_the_guards_is_called_as_it_is_with_a_warning);
    tcase_add_test(tests, collectives_take_no_guards_from_strategies);
    Suite *suite = suite_create("core/loader/guard");
    suite_add_tcase(suite, tests);
    return test_suite_run(suite);
}
