// SPDX-License-Identifier: Apache-2.0
// Keeps what is logged, so that tests can look at messages; and a folder of its own for each test.
#ifndef LS_TESTS_CAPTURE_H
#define LS_TESTS_CAPTURE_H

#include "core/base/log.h"
#include "core/plugin/plugin.h"

#include <check.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char captured[4096];
static unsigned captured_errors, captured_warnings;

static inline void capture_line(void *context, uint32_t level, const char *line)
{
    (void)context;
    captured_errors += level == LS_LOG_ERROR;
    captured_warnings += level == LS_LOG_WARN;
    snprintf(captured, sizeof(captured), "%s", line);
}

static inline void capture_reset(void)
{
    captured[0] = '\0';
    captured_errors = captured_warnings = 0;
    ls_log_set_writer(capture_line, NULL);
}

// The call before logged one error, and it has these texts in it.
static inline void expect_error(const char *one, const char *other)
{
    ck_assert_msg(captured_errors == 1, "%u errors logged, the last: %s", captured_errors,
                  captured);
    ck_assert_msg(strstr(captured, one) != NULL, "'%s' is not in: %s", one, captured);
    ck_assert_msg(strstr(captured, other) != NULL, "'%s' is not in: %s", other, captured);
    capture_reset();
}

static char folder[64];

static inline void folder_make(void)
{
    snprintf(folder, sizeof(folder), "/tmp/lockstep-test-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    capture_reset();
}

static inline void folder_remove(void)
{
    char command[128];
    snprintf(command, sizeof(command), "rm -rf '%s'", folder);
    ck_assert_int_eq(system(command), 0);
}

static inline unsigned files_in_folder(void)
{
    unsigned count = 0;
    DIR *directory = opendir(folder);
    for (struct dirent *entry; (entry = readdir(directory));)
        count += entry->d_name[0] != '.';
    closedir(directory);
    return count;
}

// folder/name, in one of a few buffers that take turns.
static inline const char *in_folder(const char *name)
{
    static char paths[4][256];
    static unsigned turn;
    char *path = paths[turn++ % 4];
    snprintf(path, sizeof(paths[0]), "%s/%s", folder, name);
    return path;
}

static inline void write_file(const char *name, const void *data, size_t bytes)
{
    FILE *file = fopen(in_folder(name), "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(data, 1, bytes, file), bytes);
    ck_assert_int_eq(fclose(file), 0);
}

#endif
