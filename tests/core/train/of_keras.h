// SPDX-License-Identifier: Apache-2.0
// What Keras computed, in a file of JSON: read in the parent, because each test is a process of its own.
#ifndef LS_TESTS_TRAIN_OF_KERAS_H
#define LS_TESTS_TRAIN_OF_KERAS_H

#include "tests/core/train/support.h"
#include "tests/support/suite.h"

#include <jansson.h>

static json_t *fixture;

static inline const char *text_of(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

// The numbers of nested lists; how many.
static inline size_t flatten(const json_t *list, float *out)
{
    size_t count = 0, i;
    const json_t *value;
    if (!json_is_array(list)) {
        *out = (float)json_number_value(list);
        return 1;
    }
    json_array_foreach((json_t *)list, i, value)
    {
        count += flatten(value, out + count);
    }
    return count;
}

// What `main` returns.
static inline int run_with_fixture(const char *path, const char *name)
{
    json_error_t error;
    fixture = json_load_file(path, 0, &error);
    if (!fixture)
        fprintf(stderr, "%s: %s\n", path, error.text);
    const int failed = test_suite_run(name);
    json_decref(fixture);
    return failed;
}

#endif
