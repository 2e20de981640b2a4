// SPDX-License-Identifier: Apache-2.0
// What tests of readers ask of a dataset: that it is as described, its values, and what is refused.
// In texts of datasets @ stands for the test's folder.
#ifndef LS_TESTS_DATASET_CHECKS_H
#define LS_TESTS_DATASET_CHECKS_H

#include "core/data/dataset.h"
#include "core/data/gather.h"
#include "tests/core/data/capture.h"

static inline const char *dataset_text(const char *pattern)
{
    static char text[1024];
    size_t used = 0;
    for (; *pattern; pattern++)
        used += (size_t)snprintf(text + used, sizeof(text) - used, *pattern == '@' ? "%s" : "%.1s",
                                 *pattern == '@' ? folder : pattern);
    return text;
}

// Opens a split, which is as it is described.
static inline struct ls_dataset *dataset_opened(const char *text, enum ls_split split)
{
    struct ls_dataset *dataset = NULL;
    struct ls_dataset_info info;
    ck_assert_msg(ls_dataset_describe(text, split, &info) == LS_OK, "%s", captured);
    ck_assert_msg(ls_dataset_open(text, split, &dataset) == LS_OK, "%s", captured);
    ck_assert_uint_eq(info.count, dataset->count);
    ck_assert_uint_eq(info.field_count, dataset->field_count);
    for (uint32_t i = 0; i < info.field_count; i++) {
        const struct ls_field *described = &info.fields[i], *opened = &dataset->fields[i];
        ck_assert_ptr_null(described->values);
        ck_assert_str_eq(described->name, opened->name);
        ck_assert_int_eq(described->role, opened->role);
        ck_assert_uint_eq(described->dtype, opened->dtype);
        ck_assert_uint_eq(described->ndims, opened->ndims);
        ck_assert_mem_eq(described->dims, opened->dims, sizeof(opened->dims));
        ck_assert_uint_eq(described->class_count, opened->class_count);
        ck_assert(described->divisor == opened->divisor);
        ck_assert_uint_eq(described->stride, opened->stride);
    }
    return dataset;
}

static inline struct ls_dataset *dataset_open(const char *pattern, enum ls_split split)
{
    struct ls_dataset *dataset = dataset_opened(dataset_text(pattern), split);
    ck_assert(dataset->real);
    return dataset;
}

// Neither describing nor opening it works; each fails with one line, which has both texts in it.
static inline void dataset_unopened(const char *text, enum ls_split split, enum ls_status status,
                                    const char *one, const char *other)
{
    struct ls_dataset *dataset = (void *)folder; // is not touched
    struct ls_dataset_info info;
    ck_assert_int_eq(ls_dataset_describe(text, split, &info), status);
    expect_error(one, other);
    ck_assert_int_eq(ls_dataset_open(text, split, &dataset), status);
    expect_error(one, other);
    ck_assert_ptr_eq(dataset, folder);
}

// One example of a field as float32; `out` has room for its elements.
static inline void dataset_values(const struct ls_dataset *dataset, uint32_t field,
                                  uint64_t example, float *out)
{
    const struct ls_field *from = &dataset->fields[field];
    const uint64_t elements = ls_field_elements(from);
    void *stored[LS_MAX_FIELDS] = {NULL};
    const void *values = from->values ? (const char *)from->values + example * from->stride : NULL;
    for (uint32_t i = 0; !values && i < dataset->field_count; i++)
        stored[i] = malloc(ls_field_elements(&dataset->fields[i]) * 4);
    if (!values)
        ck_assert_msg(dataset->load(dataset, 1, dataset->first + example, 1, stored) == LS_OK, "%s",
                      captured);
    ls_deliver(from, LS_F32, values ? values : stored[field], elements, out);
    for (uint32_t i = 0; i < LS_MAX_FIELDS; i++)
        free(stored[i]);
}

static inline float dataset_value(const struct ls_dataset *dataset, uint32_t field,
                                  uint64_t example, uint64_t index)
{
    float values[4096];
    ck_assert_uint_le(ls_field_elements(&dataset->fields[field]), 4096);
    dataset_values(dataset, field, example, values);
    return values[index];
}

// Reading all of it fails with one line, which has both texts in it.
static inline void dataset_refused(const char *pattern, enum ls_split split, enum ls_status status,
                                   const char *one, const char *other)
{
    struct ls_dataset *dataset = NULL;
    enum ls_status found = ls_dataset_open(dataset_text(pattern), split, &dataset);
    for (uint64_t i = 0; !found && dataset->load && i < dataset->count && !found; i++) {
        void *stored[LS_MAX_FIELDS] = {NULL};
        for (uint32_t k = 0; k < dataset->field_count; k++)
            stored[k] = malloc(ls_field_elements(&dataset->fields[k]) * 4);
        found = dataset->load(dataset, 1, dataset->first + i, 1, stored);
        for (uint32_t k = 0; k < dataset->field_count; k++)
            free(stored[k]);
    }
    ls_dataset_close(dataset);
    ck_assert_msg(found == status, "status %d, expected %d: %s", (int)found, (int)status, captured);
    expect_error(one, other);
}

#endif
