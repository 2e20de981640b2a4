// SPDX-License-Identifier: Apache-2.0
// Where plugins are looked for, in which order, and what is said of a name that does not exist.
#ifndef _XOPEN_SOURCE
#define _XOPEN_SOURCE 700 // realpath
#endif
#include "tests/core/loader/support.h"
#include "tests/support/suite.h"

#include <libgen.h>
#include <limits.h>

static void put_into(const char *directory, const char *from, const char *name)
{
    char to[512];
    mkdir(in_folder(directory), 0755);
    snprintf(to, sizeof(to), "%s/%s.so", directory, name);
    put_as(from, to);
}

// The file from which collective `name` is opened; "" when it is not.
static void file_of(struct ls_loader *loader, const char *name, char out[512])
{
    const struct ls_opened_plugin *opened = NULL;
    *out = '\0';
    if (!ls_loader_open(loader, LS_KIND_COLLECTIVE, name, NULL, 0, &opened))
        snprintf(out, 512, "%s", opened->file);
}

TEST(the_named_path_comes_before_the_environment)
{
    char path[1024], file[512];
    put_into("a", "collective-good", "collective-good");
    put_into("b", "collective-good", "collective-good");
    put_into("b", "collective-ring", "collective-ring");
    put_into("c", "collective-ring", "collective-ring");
    put_into("c", "collective-tree", "collective-tree");
    snprintf(path, sizeof(path), "%s/a:%s/b", folder, folder);
    setenv("LOCKSTEP_PLUGIN_PATH", in_folder("c"), 1);
    struct ls_loader *loader = NULL;
    ck_assert_int_eq(create_loader(path, &loader), LS_OK);
    file_of(loader, "good", file);
    ck_assert_str_eq(file, in_folder("a/collective-good.so"));
    file_of(loader, "ring", file);
    ck_assert_str_eq(file, in_folder("b/collective-ring.so"));
    file_of(loader, "tree", file);
    ck_assert_str_eq(file, in_folder("c/collective-tree.so"));

    struct ls_plugin_entry *entries = NULL;
    size_t count = 0, rings = 0;
    ck_assert_int_eq(ls_loader_list(loader, &entries, &count), LS_OK);
    for (size_t i = 0; i < count; i++)
        rings += !strcmp(entries[i].name, "ring");
    ck_assert_uint_eq(rings, 1);
    ls_plugin_entries_destroy(entries, count);
    ls_loader_destroy(loader);
}

TEST(a_broken_plugin_is_not_replaced_by_a_later_one)
{
    char path[1024], file[512];
    put_into("b", "collective-good", "collective-good");
    mkdir(in_folder("a"), 0755);
    write_whole(in_folder("a/collective-good.so"), "text", 4);
    snprintf(path, sizeof(path), "%s/a:%s/b", folder, folder);
    struct ls_loader *loader = NULL;
    ck_assert_int_eq(create_loader(path, &loader), LS_OK);
    file_of(loader, "good", file);
    ck_assert_str_eq(file, "");
    ck_assert_message("a/collective-good.so: is not a shared object");
    ls_loader_destroy(loader);
}

TEST(nothing_is_loaded_from_the_working_directory_by_a_bare_name)
{
    char file[512];
    put("collective-good");
    ck_assert_int_eq(chdir(folder), 0);
    mkdir("empty", 0755);
    setenv("LOCKSTEP_PLUGIN_PATH", "::", 1);
    const char *const paths[] = {NULL, "", ":", ":empty:"};
    for (size_t i = 0; i < sizeof(paths) / sizeof(*paths); i++) {
        struct ls_loader *loader = NULL;
        ck_assert_int_eq(create_loader(paths[i], &loader), LS_OK);
        file_of(loader, "good", file);
        ck_assert_str_eq(file, "");
        ls_loader_destroy(loader);
    }
}

TEST(a_name_is_never_a_path)
{
    char file[512];
    put_into("a", "collective-good", "collective-good");
    put_into("b", "collective-good", "collective-good");
    struct ls_loader *loader = NULL;
    ck_assert_int_eq(create_loader(in_folder("a"), &loader), LS_OK);
    const char *const names[] = {"",       ".",    "../b/collective-good", "good.so", "x/../good",
                                 "good\n", "g ood"};
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        file_of(loader, names[i], file);
        ck_assert_str_eq(file, "");
    }
    char huge[5000];
    memset(huge, 'x', sizeof(huge) - 1);
    huge[sizeof(huge) - 1] = '\0';
    file_of(loader, huge, file);
    ck_assert_str_eq(file, "");
    ls_loader_destroy(loader);
}

TEST(a_path_that_does_not_exist_is_bad_input_when_named)
{
    struct ls_loader *loader = NULL;
    ck_assert_int_eq(create_loader(in_folder("nothing"), &loader), LS_BAD_INPUT);
    ck_assert_message("--plugin-path: ");
    put("collective-good");
    ck_assert_int_eq(create_loader(in_folder("collective-good.so"), &loader), LS_BAD_INPUT);
    ck_assert_message("is not a directory");
    ck_assert_ptr_null(loader);
    setenv("LOCKSTEP_PLUGIN_PATH", in_folder("nothing"), 1);
    ck_assert_int_eq(create_loader(NULL, &loader), LS_OK);
    ck_assert_message("warning: LOCKSTEP_PLUGIN_PATH: ");
    ls_loader_destroy(loader);
}

TEST(an_unknown_name_lists_what_there_is_and_the_nearest)
{
    put("collective-ring");
    put("collective-tree");
    put("strategy-mirrored");
    struct ls_loader *loader = make_loader();
    const struct ls_opened_plugin *opened = NULL;
    ck_assert_int_eq(ls_loader_open(loader, LS_KIND_COLLECTIVE, "rign", NULL, 0, &opened),
                     LS_UNAVAILABLE);
    ck_assert_message("no collective is called 'rign'; did you mean ring?");
    ck_assert_message("collectives auto, ring, tree");
    ck_assert(!message_has("mirrored"));
    ck_assert_int_eq(ls_loader_open(loader, LS_KIND_DEVICE, "cpu", NULL, 0, &opened),
                     LS_UNAVAILABLE);
    ck_assert_message("none were found in");
    ck_assert_message("--plugin-path");
    ls_loader_destroy(loader);
}

TEST(the_default_device_is_cuda_only_where_it_is_available)
{
    struct ls_loader *loader = make_loader();
    ck_assert_str_eq(ls_loader_default_device(loader), "cpu");
    put_as("collective-good", "device-cuda.so"); // is no device
    ck_assert_str_eq(ls_loader_default_device(loader), "cpu");
    put_as("device-cuda-released", "device-cuda.so");
    ck_assert_str_eq(ls_loader_default_device(loader), "cuda");
    ls_loader_destroy(loader);
}

static void remember_any(void *context, uint32_t level, const char *line)
{
    (void)context;
    (void)level;
    snprintf(last_message, sizeof(last_message), "%s", line);
}

// The same device, available, in versions of Semantic Versioning: what follows a '+' is of the build.
TEST(the_default_device_is_a_released_one)
{
    static const struct {
        const char *file, *expected;
    } cases[] = {{"device-cuda-untried", "cpu"},
                 {"device-cuda-released", "cuda"},
                 {"device-cuda-built", "cuda"}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct ls_loader *loader = make_loader();
        struct ls_plugin_entry *entries = NULL;
        size_t count = 0;
        put_as(cases[i].file, "device-cuda.so");
        ck_assert_int_eq(ls_loader_list(loader, &entries, &count), LS_OK);
        for (size_t j = 0; j < count; j++)
            ck_assert(entries[j].kind != LS_KIND_DEVICE || entries[j].available);
        ls_plugin_entries_destroy(entries, count);
        last_message[0] = '\0';
        ls_log_set_writer(remember_any, NULL);
        ck_assert_str_eq(ls_loader_default_device(loader), cases[i].expected);
        ls_log_set_writer(remember_message, NULL);
        ck_assert_msg(message_has("version 1.2.3-untried is a pre-release") == (i == 0), "%s: %s",
                      cases[i].file, last_message);
        ls_loader_destroy(loader);
    }
}

// A plugin may take half a second to find out, and the cuda of the tests counts how often it is asked.
TEST(the_default_device_is_probed_once)
{
    const struct ls_opened_plugin *opened = NULL;
    struct ls_loader *loader = make_loader();
    struct stat probes;
    put_as("device-cuda-released", "device-cuda.so");
    setenv("TEST_PROBES", in_folder("probes"), 1);
    ck_assert_str_eq(ls_loader_default_device(loader), "cuda");
    ck_assert_int_eq(ls_loader_open(loader, LS_KIND_DEVICE, "cuda", NULL, 0, &opened), LS_OK);
    ck_assert_int_eq(stat(in_folder("probes"), &probes), 0);
    ck_assert_int_eq(probes.st_size, 1);
    ls_loader_destroy(loader);

    // Another file of that name is asked.
    loader = make_loader();
    ck_assert_str_eq(ls_loader_default_device(loader), "cuda");
    put_as("device-cuda-built", "device-cuda.so");
    ck_assert_int_eq(ls_loader_open(loader, LS_KIND_DEVICE, "cuda", NULL, 0, &opened), LS_OK);
    ck_assert_int_eq(stat(in_folder("probes"), &probes), 0);
    ck_assert_int_eq(probes.st_size, 2);
    ls_loader_destroy(loader);
}

static void copy_self(const char *to)
{
    size_t bytes;
    char *content = read_whole("/proc/self/exe", &bytes);
    write_whole(to, content, bytes);
    ck_assert_int_eq(chmod(to, 0755), 0);
    free(content);
}

static void make_folders(const char *path)
{
    char copy[2 * PATH_MAX];
    snprintf(copy, sizeof(copy), "%s", path);
    for (char *slash = strchr(copy + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(copy, 0755);
        *slash = '/';
    }
    mkdir(copy, 0755);
}

// Runs the copy of this program at `program` and reads what it says it found.
static void run_copy(const char *program, char out[1024])
{
    char command[2048];
    snprintf(command, sizeof(command), "'%s' list", program);
    FILE *pipe = popen(command, "r");
    ck_assert_ptr_nonnull(pipe);
    const size_t bytes = fread(out, 1, 1023, pipe);
    out[bytes] = '\0';
    ck_assert_int_eq(pclose(pipe), 0);
}

TEST(an_installed_tree_finds_its_plugins_wherever_it_is_moved)
{
    char plugins[2 * PATH_MAX], where[PATH_MAX], out[1024];
    if (*LS_PLUGINS_FROM_PROGRAM == '/') {
        printf("SKIP: bindir or libdir is absolute, so this installation cannot be moved\n");
        return;
    }
    make_folders(in_folder("first/bin"));
    snprintf(plugins, sizeof(plugins), "%s/first/bin/%s", folder, LS_PLUGINS_FROM_PROGRAM);
    make_folders(plugins);
    ck_assert_ptr_nonnull(realpath(plugins, where));
    snprintf(plugins, sizeof(plugins), "%s/collective-good.so", where);
    put("collective-good");
    ck_assert_int_eq(rename(in_folder("collective-good.so"), plugins), 0);
    copy_self(in_folder("first/bin/program"));
    run_copy(in_folder("first/bin/program"), out);
    ck_assert_str_eq(out, "collective auto\ncollective good\n");
    ck_assert_int_eq(rename(in_folder("first"), in_folder("second")), 0);
    run_copy(in_folder("second/bin/program"), out);
    ck_assert_str_eq(out, "collective auto\ncollective good\n");
}

TEST(a_build_tree_finds_its_plugins_and_no_others)
{
    char out[1024];
    make_folders(in_folder("build/tests/core/loader"));
    copy_self(in_folder("build/tests/core/loader/program"));
    put_into("build/plugins", "collective-good", "collective-good");
    run_copy(in_folder("build/tests/core/loader/program"), out);
    ck_assert_str_eq(out, ""); // somebody's folder called plugins
    make_folders(in_folder("build/meson-private"));
    run_copy(in_folder("build/tests/core/loader/program"), out);
    ck_assert_str_eq(out, "collective auto\ncollective good\n");
}

// What the copies do: list what the default folder holds.
static int list_default(void)
{
    struct ls_loader *loader = NULL;
    struct ls_plugin_entry *entries = NULL;
    size_t count = 0;
    unsetenv("LOCKSTEP_PLUGIN_PATH");
    if (ls_loader_create(NULL, &loader) || ls_loader_list(loader, &entries, &count))
        return 1;
    for (size_t i = 0; i < count; i++)
        printf("%s %s\n", ls_kind_text(entries[i].kind), entries[i].name);
    ls_plugin_entries_destroy(entries, count);
    ls_loader_destroy(loader);
    return 0;
}

TEST_FIXTURE(make_folder, remove_folder);

int main(int argc, char **argv)
{
    if (argc == 2 && !strcmp(argv[1], "list"))
        return list_default();
    return test_suite_run("loader: search");
}
