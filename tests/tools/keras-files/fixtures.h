// SPDX-License-Identifier: Apache-2.0
// Files of Keras for tests: those of tests/data/keras/files, unpacked into the folder of the test.
#ifndef LS_TESTS_KERAS_FILES_FIXTURES_H
#define LS_TESTS_KERAS_FILES_FIXTURES_H

#include "core/formats/keras_file.h"
#include "tests/core/data/capture.h"

#include <zlib.h>

static const struct ls_keras_program keras_program = {.path = KERAS_PROGRAM};

// The content of tests/data/keras/files/NAME.gz. Freed by the caller.
static inline char *unpack(const char *name, size_t *bytes)
{
    char path[512];
    const size_t room = 1 << 20;
    char *content = calloc(1, room + 1);
    snprintf(path, sizeof(path), FIXTURES "/keras/files/%s.gz", name);
    gzFile file = gzopen(path, "rb");
    ck_assert_msg(file != NULL, "%s", path);
    const int count = gzread(file, content, (unsigned)room);
    ck_assert_int_gt(count, 0);
    ck_assert_int_lt(count, (int)room);
    gzclose(file);
    *bytes = (size_t)count;
    return content;
}

// Path of the unpacked file, in the folder of the test.
static inline const char *fixture(const char *name)
{
    size_t bytes;
    char *content = unpack(name, &bytes);
    write_file(name, content, bytes);
    free(content);
    return in_folder(name);
}

#endif
