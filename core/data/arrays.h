// SPDX-License-Identifier: Apache-2.0
// Datasets of arrays: one for each field, of the types that NumPy users have. Values are kept as
// they are, but for int64 that becomes int32, float64 that becomes float32, and bool that becomes
// bytes.
#ifndef LS_DATA_ARRAYS_H
#define LS_DATA_ARRAYS_H

#include "core/data/dataset.h"

// An array of values in C order; the first dimension is that of the examples.
struct ls_field_array {
    const char *name; // of the field
    const char *source; // in messages: a file, or "input 0"
    enum ls_field_role role;
    uint32_t dtype; // LS_U8, LS_I32, LS_I64, LS_F32 or LS_F64
    bool boolean; // of LS_U8: whatever is not 0 is 1
    uint32_t ndims;
    const int64_t *dims;
};

// Sets the type of an array by its name ("float32", "bool"); false: no such type.
bool ls_array_find_dtype(const char *name, struct ls_field_array *out);
// The field that an array becomes, without its values, and how many examples it has. LS_BAD_INPUT,
// logged under `scope`: no examples, empty examples, too many dimensions. [any thread]
LS_STATUS ls_array_describe(const char *scope, const struct ls_field_array *array,
                            struct ls_field *out, uint64_t *count);
// `count` values of any alignment as the field stores them, the first of which is value `first` of
// the array. LS_BAD_INPUT, logged: an int64 that is no int32. [any thread]
LS_STATUS ls_array_convert(const char *scope, const struct ls_field_array *array, uint64_t first,
                           uint64_t count, const void *from, void *to);
// Counts the classes of a target with `count` values: 1 more than the largest, where all are integers from 0; else 0.
void ls_array_count_classes(struct ls_field *field, uint64_t count);

#endif
