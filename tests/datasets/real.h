// SPDX-License-Identifier: Apache-2.0
// What the tests of the real sets share: they compare what the reader gives with the file as gzip inflates it.
#ifndef LS_TESTS_REAL_H
#define LS_TESTS_REAL_H

#include "core/data/dataset.h"
#include "tests/core/data/capture.h"

#include <stdbool.h>
#include <stdint.h>

#define SKIPPED 77

static const char *const images_of[2] = {"train-images-idx3-ubyte", "t10k-images-idx3-ubyte"};
static const char *const labels_of[2] = {"train-labels-idx1-ubyte", "t10k-labels-idx1-ubyte"};

static inline bool have_files(const char *dir)
{
    for (int i = 0; i < 4; i++) {
        char path[512];
        snprintf(path, sizeof(path), "%s/%s.gz", dir, i < 2 ? images_of[i] : labels_of[i - 2]);
        if (access(path, R_OK)) {
            printf("SKIP: %s is not there\n", path);
            return false;
        }
    }
    return true;
}

// The file is `header` bytes and then `bytes` of `data`.
static inline void expect_content(const char *dir, const char *name, size_t header,
                                  const void *data, size_t bytes)
{
    char command[600];
    snprintf(command, sizeof(command), "gzip -dc '%s/%s.gz'", dir, name);
    FILE *file = popen(command, "r");
    ck_assert_ptr_nonnull(file);
    uint8_t *content = malloc(header + bytes + 1);
    ck_assert_uint_eq(fread(content, 1, header + bytes + 1, file), header + bytes);
    ck_assert_int_eq(pclose(file), 0);
    ck_assert(!memcmp(content + header, data, bytes));
    free(content);
}

static inline struct ls_dataset *open_split(const char *text, enum ls_split split)
{
    struct ls_dataset *dataset;
    ck_assert_int_eq(ls_dataset_open(text, split, &dataset), LS_OK);
    ck_assert_uint_eq(dataset->fields[0].ndims, 3);
    ck_assert(dataset->fields[0].dims[0] == 28 && dataset->fields[0].dims[1] == 28 &&
              dataset->fields[0].dims[2] == 1);
    ck_assert_uint_eq(dataset->fields[1].class_count, 10);
    ck_assert(dataset->real);
    return dataset;
}

#endif
