// SPDX-License-Identifier: Apache-2.0
// For the tests of the loader: a folder of their own with copies of the test plugins, and the last message.
#ifndef LS_TESTS_LOADER_SUPPORT_H
#define LS_TESTS_LOADER_SUPPORT_H

#include "core/base/log.h"
#include "core/loader/internal.h"

#include <check.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[256]; // made anew for each test
static char last_message[4096]; // "" when nothing was logged
static unsigned error_count;

static void remember_message(void *context, uint32_t level, const char *line)
{
    (void)context;
    if (level <= LS_LOG_WARN)
        snprintf(last_message, sizeof(last_message), "%s", line);
    error_count += level == LS_LOG_ERROR;
}

static inline void make_folder(void)
{
    snprintf(folder, sizeof(folder), "/tmp/lockstep-loader-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    unsetenv("LOCKSTEP_PLUGIN_PATH");
    ls_log_set_writer(remember_message, NULL);
    last_message[0] = '\0';
    error_count = 0;
}

// Flat, but for folders that a test put there, which are empty or hold files alone.
static inline void remove_tree(const char *path)
{
    DIR *open_folder = opendir(path);
    for (struct dirent *entry; open_folder && (entry = readdir(open_folder));) {
        char file[1024];
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
            continue;
        if (snprintf(file, sizeof(file), "%s/%s", path, entry->d_name) >= (int)sizeof(file))
            continue;
        struct stat about;
        if (!lstat(file, &about) && S_ISDIR(about.st_mode))
            remove_tree(file);
        else
            unlink(file);
    }
    if (open_folder)
        closedir(open_folder);
    rmdir(path);
}

static inline void remove_folder(void)
{
    remove_tree(folder);
}

// Valid until the eighth call after this one.
static inline const char *in_folder(const char *file)
{
    static char paths[8][1024];
    static unsigned turn;
    char *path = paths[turn++ % 8];
    ck_assert_int_lt(snprintf(path, sizeof(paths[0]), "%s/%s", folder, file),
                     (int)sizeof(paths[0]));
    return path;
}

// The whole content of a file; freed by the caller.
static inline char *read_whole(const char *path, size_t *bytes)
{
    FILE *file = fopen(path, "rb");
    ck_assert_msg(file != NULL, "cannot open %s", path);
    ck_assert_int_eq(fseek(file, 0, SEEK_END), 0);
    const long size = ftell(file);
    ck_assert_int_gt(size, 0);
    rewind(file);
    char *content = malloc((size_t)size);
    ck_assert_ptr_nonnull(content);
    ck_assert_uint_eq(fread(content, 1, (size_t)size, file), (size_t)size);
    fclose(file);
    *bytes = (size_t)size;
    return content;
}

static inline void write_whole(const char *path, const void *content, size_t bytes)
{
    unlink(path); // never into a file that is mapped
    FILE *file = fopen(path, "wb");
    ck_assert_msg(file != NULL, "cannot write %s", path);
    ck_assert_uint_eq(fwrite(content, 1, bytes, file), bytes);
    ck_assert_int_eq(fclose(file), 0);
    ck_assert_int_eq(chmod(path, 0644), 0);
}

// Copies test plugin `from` ("collective-good") into the folder as `to`.
static inline void put_as(const char *from, const char *to)
{
    char path[1024];
    size_t bytes;
    snprintf(path, sizeof(path), "%s/%s.so", TEST_PLUGINS, from);
    char *content = read_whole(path, &bytes);
    write_whole(in_folder(to), content, bytes);
    free(content);
}

static inline void put(const char *name)
{
    char file[256];
    snprintf(file, sizeof(file), "%s.so", name);
    put_as(name, file);
}

// Creates a loader that searches the test's own folders alone: the plugins of the build tree around the
// test would be found, too.
static inline enum ls_status create_loader(const char *plugin_path, struct ls_loader **out)
{
    const enum ls_status status = ls_loader_create(plugin_path, out);
    size_t kept = 0;
    for (size_t i = 0; !status && i < (*out)->directory_count; i++) {
        char *directory = (*out)->directories[i];
        if (strncmp(directory, folder, strlen(folder)))
            free(directory);
        else
            (*out)->directories[kept++] = directory;
    }
    if (!status)
        (*out)->directory_count = kept;
    return status;
}

static inline struct ls_loader *make_loader(void)
{
    struct ls_loader *loader = NULL;
    ck_assert_int_eq(create_loader(folder, &loader), LS_OK);
    return loader;
}

static inline bool message_has(const char *text)
{
    return strstr(last_message, text) != NULL;
}

#define ck_assert_message(text) \
    ck_assert_msg(message_has(text), "'%s' is not in the message: %s", text, last_message)

#endif
