// SPDX-License-Identifier: Apache-2.0
// What a program is told about plugins and devices.
#include "tests/core/train/support.h"
#include "tests/support/suite.h"

#include <fcntl.h>
#include <sys/stat.h>

static const struct ls_listed_plugin *plugin_of(const struct ls_listed_plugin *list, size_t count,
                                                const char *kind, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(list[i].kind, kind) == 0 && strcmp(list[i].name, name) == 0)
            return &list[i];
    return NULL;
}

TEST(plugins_have_kind_name_path_and_a_verdict)
{
    const struct ls_listed_plugin *list = NULL, *found;
    size_t count = 0;
    OK(ls_list_plugins(NULL, &list, &count));
    static const char *const expected[][2] = {{"strategy", "mirrored"},
                                              {"collective", "ring"},
                                              {"transport", "local"},
                                              {"device", "reference"},
                                              {"callback", "csv_logger"}};
    for (size_t i = 0; i < sizeof(expected) / sizeof(*expected); i++) {
        found = plugin_of(list, count, expected[i][0], expected[i][1]);
        ck_assert_msg(found != NULL, "no %s %s", expected[i][0], expected[i][1]);
        ck_assert_uint_eq(found->usable, 1);
        ck_assert_str_eq(found->reason, "");
        ck_assert(*found->version && *found->summary);
        ck_assert_int_eq(access(found->path, R_OK), 0);
    }
    found = plugin_of(list, count, "collective", "auto");
    ck_assert_ptr_nonnull(found);
    ck_assert_str_eq(found->path, "built in");
    ls_free_list(list);
    ls_free_list(NULL);
}

// One that is no plugin at all, and whose name is a strategy's.
TEST(a_file_that_cannot_be_used_is_listed_with_the_reason)
{
    char folder[] = "/tmp/lockstep-listing-XXXXXX", path[64];
    const struct ls_listed_plugin *list = NULL, *found;
    const struct ls_listed_device *devices = NULL;
    size_t count = 0, device_count = 0;
    ck_assert_ptr_nonnull(mkdtemp(folder));
    static const char *const names[] = {"strategy-broken.so", "device-broken.so"};
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
        const int file = open(path, O_CREAT | O_WRONLY, 0755);
        ck_assert_int_eq(write(file, "text\n", 5), 5);
        close(file);
    }
    OK(ls_list_plugins(folder, &list, &count));
    OK(ls_list_devices(folder, &devices, &device_count));
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
        unlink(path);
    }
    rmdir(folder);
    found = plugin_of(list, count, "strategy", "broken");
    ck_assert_ptr_nonnull(found);
    ck_assert_uint_eq(found->usable, 0);
    ck_assert_msg(strstr(found->reason, "ELF") != NULL, "%s", found->reason);
    ck_assert_str_eq(found->version, "");
    size_t seen = 0;
    for (size_t i = 0; i < device_count; i++) {
        const bool broken = strcmp(devices[i].name, "broken") == 0;
        seen += broken || strcmp(devices[i].name, "reference") == 0;
        ck_assert_uint_eq(devices[i].usable, devices[i].reason[0] == '\0');
        ck_assert_uint_eq(devices[i].usable, devices[i].count > 0);
        ck_assert(!broken || !devices[i].usable);
        ck_assert(!devices[i].usable || devices[i].hardware[0]);
    }
    ck_assert_uint_eq(seen, 2);
    ls_free_list(list);
    ls_free_list(devices);
}

TEST(a_path_that_does_not_exist_is_an_error)
{
    const struct ls_listed_device *list = NULL;
    size_t count = 0;
    forget_errors();
    expect_error(ls_list_devices("/nowhere/at/all", &list, &count), LS_BAD_INPUT,
                 "/nowhere/at/all");
    ck_assert_ptr_null(list);
}

// What a list names can be used.
TEST(a_run_opens_with_a_device_and_a_strategy_of_the_lists)
{
    const struct ls_listed_device *devices = NULL;
    size_t count = 0;
    struct ls_run *run = NULL;
    OK(ls_list_devices(NULL, &devices, &count));
    ck_assert_uint_ge(count, 1);
    for (size_t i = 0; i < count; i++) {
        if (!devices[i].usable)
            continue;
        OK(ls_run_open(&(struct ls_run_options){.device = devices[i].name, .replicas = 1}, &run));
        ls_run_close(run);
    }
    ls_free_list(devices);
}
