// SPDX-License-Identifier: Apache-2.0
// What `--strategy=` means: a strategy, a collective under the strategy mirrored, or a transport; and which option
// goes to which of them.
#include "tests/core/loader/support.h"
#include "tests/support/suite.h"

static struct ls_loader *loader_of_parts(void)
{
    const char *const parts[] = {"strategy-mirrored", "strategy-one-device", "collective-ring",
                                 "collective-tree",   "transport-local",     "transport-far"};
    for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++)
        put(parts[i]);
    return make_loader();
}

static const char *name_of(const struct ls_opened_plugin *opened)
{
    return opened ? opened->plugin->name : "-";
}

static void assert_resolves(struct ls_loader *loader, const char *text, const char *strategy,
                            const char *collective, const char *transport)
{
    struct ls_resolved_strategy resolved = {0};
    ck_assert_msg(ls_loader_resolve_strategy(loader, text, NULL, &resolved) == LS_OK, "%s: %s",
                  text, last_message);
    ck_assert_str_eq(name_of(resolved.strategy), strategy);
    ck_assert_str_eq(name_of(resolved.collective), collective);
    ck_assert_str_eq(name_of(resolved.transport), transport);
    ls_resolved_strategy_finish(&resolved);
    ls_resolved_strategy_finish(&resolved);
}

static void assert_fails(struct ls_loader *loader, const char *text, enum ls_status status,
                         const char *message)
{
    struct ls_resolved_strategy resolved = {.option_count = 4711};
    last_message[0] = '\0';
    error_count = 0;
    ck_assert_int_eq(ls_loader_resolve_strategy(loader, text, NULL, &resolved), status);
    ck_assert_uint_eq(resolved.option_count, 4711);
    ck_assert_message(message);
    ck_assert_uint_eq(error_count, 1);
}

TEST(a_name_is_a_strategy_or_a_collective_or_a_transport)
{
    struct ls_loader *loader = loader_of_parts();
    assert_resolves(loader, "mirrored", "mirrored", "ring", "local");
    assert_resolves(loader, "ring", "mirrored", "ring", "local");
    assert_resolves(loader, "tree", "mirrored", "tree", "local");
    assert_resolves(loader, "auto", "mirrored", "auto", "local");
    assert_resolves(loader, "far", "mirrored", "auto", "far");
    assert_resolves(loader, "one-device", "one-device", "-", "-");
    ls_loader_destroy(loader);
}

TEST(a_strategy_may_need_a_transport_and_no_collective)
{
    put("strategy-served");
    struct ls_loader *loader = loader_of_parts();
    assert_resolves(loader, "served", "served", "-", "local");
    assert_resolves(loader, "served:transport=far", "served", "-", "far");
    assert_resolves(loader, "far:strategy=served", "served", "-", "far");
    assert_fails(loader, "served:collective=ring", LS_USAGE, "served uses no collective");
    assert_fails(loader, "one-device:transport=far", LS_USAGE, "one-device uses no transport");
    ls_loader_destroy(loader);
}

TEST(parts_are_chosen_by_options)
{
    struct ls_loader *loader = loader_of_parts();
    assert_resolves(loader, "mirrored:collective=tree", "mirrored", "tree", "local");
    assert_resolves(loader, "mirrored:collective=auto", "mirrored", "auto", "local");
    assert_resolves(loader, "mirrored:transport=far", "mirrored", "ring", "far");
    assert_resolves(loader, "ring:transport=far", "mirrored", "ring", "far");
    assert_resolves(loader, "far:collective=tree,strategy=mirrored", "mirrored", "tree", "far");
    assert_resolves(loader, "ring:collective=ring", "mirrored", "ring", "local");
    ls_loader_destroy(loader);
}

TEST(contradictions_are_usage_errors)
{
    struct ls_loader *loader = loader_of_parts();
    assert_fails(loader, "ring:collective=tree", LS_USAGE, "ring is already the collective");
    assert_fails(loader, "one-device:collective=ring", LS_USAGE, "one-device uses no collective");
    assert_fails(loader, "ring:strategy=one-device", LS_USAGE, "one-device uses no collective");
    assert_fails(loader, "mirrored:collective=", LS_UNAVAILABLE, "no collective is called ''");
    assert_fails(loader, "mirrored:collective=ring:groups=2", LS_USAGE,
                 "no collective is called 'ring:groups=2'; write collective=ring,groups=2");
    ls_loader_destroy(loader);
}

TEST(options_go_to_the_part_that_declares_them)
{
    struct ls_loader *loader = loader_of_parts();
    struct ls_resolved_strategy resolved = {0};
    ck_assert_int_eq(
        ls_loader_resolve_strategy(
            loader, "ring:segment=4096,spin=0.25,overlap=off,collective.groups=3", NULL, &resolved),
        LS_OK);
    const struct ls_host *strategy = resolved.strategy->host,
                         *collective = resolved.collective->host;
    ck_assert_str_eq(collective->option(collective, "segment"), "4096");
    ck_assert_str_eq(collective->option(collective, "groups"), "3");
    ck_assert_ptr_null(strategy->option(strategy, "groups"));
    ck_assert_str_eq(strategy->option(strategy, "overlap"), "off");
    ck_assert_str_eq(resolved.transport->host->option(resolved.transport->host, "spin"), "0.25");

    const char *const expected[][2] = {{"strategy.overlap", "off"},
                                       {"collective.groups", "3"},
                                       {"collective.segment", "4096"},
                                       {"transport.spin", "0.25"}};
    ck_assert_uint_eq(resolved.option_count, 4);
    for (size_t i = 0; i < 4; i++) {
        ck_assert_str_eq(resolved.options[i].name, expected[i][0]);
        ck_assert_str_eq(resolved.options[i].value, expected[i][1]);
    }
    ls_resolved_strategy_finish(&resolved);
    ls_loader_destroy(loader);
}

TEST(defaults_are_part_of_the_answer)
{
    struct ls_loader *loader = loader_of_parts();
    struct ls_resolved_strategy resolved = {0};
    ck_assert_int_eq(ls_loader_resolve_strategy(loader, "ring", NULL, &resolved), LS_OK);
    ck_assert_uint_eq(resolved.option_count, 3);
    ck_assert_str_eq(resolved.options[1].name, "collective.groups");
    ck_assert_str_eq(resolved.options[1].value, "2");
    ls_resolved_strategy_finish(&resolved);
    ls_loader_destroy(loader);
}

TEST(an_option_of_two_parts_must_say_whose)
{
    struct ls_loader *loader = loader_of_parts();
    assert_fails(loader, "ring:groups=2", LS_USAGE, "write strategy.groups or collective.groups");
    assert_resolves(loader, "tree:groups=2", "mirrored", "tree", "local");
    assert_resolves(loader, "ring:strategy.groups=2,collective.groups=3", "mirrored", "ring",
                    "local");
    assert_fails(loader, "tree:groups=2,strategy.groups=3", LS_USAGE,
                 "groups is given twice to mirrored");
    ls_loader_destroy(loader);
}

TEST(an_option_that_nobody_declares_is_a_usage_error)
{
    struct ls_loader *loader = loader_of_parts();
    assert_fails(
        loader, "ring:overlp=on", LS_USAGE,
        "no option overlp in mirrored, ring, local; did you mean overlap? Available: groups,");
    assert_fails(loader, "ring:colective=tree", LS_USAGE, "did you mean collective?");
    assert_fails(loader, "ring:zebra=1", LS_USAGE,
                 "no option zebra in mirrored, ring, local; available: groups, overlap, "
                 "collective, "
                 "groups, segment, transport, spin");
    assert_fails(loader, "one-device:groups=1", LS_USAGE, "no option groups in one-device");
    assert_fails(loader, "ring:transport.groups=1", LS_USAGE, "no option transport.groups");
    assert_fails(loader, "ring:device.groups=1", LS_USAGE, "no option device.groups");
    assert_fails(loader, "ring:collective.=1", LS_USAGE, "no option collective.");
    ls_loader_destroy(loader);
}

TEST(a_value_of_the_wrong_type_is_a_usage_error)
{
    struct ls_loader *loader = loader_of_parts();
    assert_fails(loader, "ring:overlap=perhaps", LS_USAGE,
                 "--strategy: strategy mirrored: option overlap must be on or off");
    assert_fails(loader, "ring:collective.groups=two", LS_USAGE,
                 "--strategy: collective ring: option groups must be a whole number");
    assert_fails(loader, "ring:", LS_USAGE, "--strategy");
    assert_fails(loader, "", LS_USAGE, "--strategy");
    ls_loader_destroy(loader);
}

TEST(an_unknown_strategy_lists_what_there_is)
{
    struct ls_loader *loader = loader_of_parts();
    assert_fails(
        loader, "mirored", LS_UNAVAILABLE,
        "no strategy, collective or transport is called 'mirored'; did you mean mirrored? "
        "Available: "
        "strategies mirrored, one-device; collectives auto, ring, tree; transports far, local");
    assert_fails(loader, "zebra", LS_UNAVAILABLE, "is called 'zebra'; available: strategies");
    assert_fails(loader, "ring:transport=locl", LS_UNAVAILABLE,
                 "no transport is called 'locl'; did you mean local?");
    ls_loader_destroy(loader);
}

TEST(a_name_from_elsewhere_is_answered_with_ours)
{
    struct ls_loader *loader = loader_of_parts();
    assert_fails(loader, "MirroredStrategy", LS_UNAVAILABLE,
                 "no strategy, collective or transport is called 'MirroredStrategy': it is "
                 "`mirrored` here. Available: strategies mirrored, one-device; collectives");
    assert_fails(loader, "tf.distribute.experimental.Parameter_Server_Strategy", LS_UNAVAILABLE,
                 "it is `parameter-server` here");
    assert_fails(loader, "ddp", LS_UNAVAILABLE, "data-parallel training is `mirrored` here");
    assert_fails(loader, "ring:transport=ucx", LS_UNAVAILABLE,
                 "where the headers of UCX are found");
    // What is here is not explained as if it were missing.
    assert_fails(loader, "RING", LS_UNAVAILABLE, "is called 'RING'; did you mean ring?");
    // Neither a hint of another kind nor a beginning of a name.
    assert_fails(loader, "ring:transport=ddp", LS_UNAVAILABLE, "is called 'ddp'; available:");
    assert_fails(loader, "MirroredStrateg", LS_UNAVAILABLE, "'MirroredStrateg'; available:");
    assert_fails(loader, "-", LS_UNAVAILABLE, "is called '-'; available:");
    ls_loader_destroy(loader);
}

TEST(a_plugin_of_ours_that_is_not_there_is_named_with_what_brings_it)
{
    struct ls_loader *loader = loader_of_parts();
    const struct ls_opened_plugin *opened = NULL;
    assert_fails(loader, "nccl", LS_UNAVAILABLE, "every build of Lockstep has it");
    ck_assert_int_eq(ls_loader_open(loader, LS_KIND_DEVICE, "cpu", NULL, 0, &opened),
                     LS_UNAVAILABLE);
    ck_assert_message("no device is called 'cpu': it is built where oneDNN and OpenMP are found");
    ck_assert_message("libdnnl-dev");
    ck_assert_message("none were found in");
    ls_loader_destroy(loader);
}

TEST(a_device_has_no_number)
{
    static const char *const wrong[] = {"cuda:0", "GPU:12", "/device:GPU:0"};
    static const char *const right[] = {"cuda", "cuda:tf32=on", "cuda:", "mine:a=3:b"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        ck_assert_int_eq(ls_loader_check_device_text(wrong[i]), LS_USAGE);
        ck_assert_message("replica i computes on GPU i");
        ck_assert_message(wrong[i]);
    }
    error_count = 0;
    for (size_t i = 0; i < sizeof(right) / sizeof(*right); i++)
        ck_assert_int_eq(ls_loader_check_device_text(right[i]), LS_OK);
    ck_assert_uint_eq(error_count, 0);
}

TEST(a_strategy_that_is_broken_is_not_replaced_by_a_collective_of_its_name)
{
    put_as("collective-tree", "collective-tree.so");
    write_whole(in_folder("strategy-tree.so"), "text", 4);
    struct ls_loader *loader = make_loader();
    assert_fails(loader, "tree", LS_UNAVAILABLE, "strategy-tree.so: is not a shared object");
    ls_loader_destroy(loader);
}

TEST_FIXTURE(make_folder, remove_folder);
