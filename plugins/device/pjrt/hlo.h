// SPDX-License-Identifier: Apache-2.0
// Writes StableHLO text: one line for each instruction, whose result is a value with its type and
// shape. Memory that runs out is noted in `failed`; what is written afterwards is lost, and the
// text must not be used.
#ifndef LS_DEVICE_PJRT_HLO_H
#define LS_DEVICE_PJRT_HLO_H

#include "core/plugin/device.h"

#include <stdbool.h>

// Element types: those of memory (enum ls_dtype), and these within a program.
enum { HLO_BOOL = 100, HLO_U32 = 101, HLO_U64 = 102 };

#define HLO_MAX_DIMS 8

struct hlo_shape {
    uint32_t ndims;
    int64_t dims[HLO_MAX_DIMS];
};

struct hlo_value {
    uint32_t id; // 0: none
    uint32_t type;
    struct hlo_shape shape;
};

struct hlo {
    char *text;
    size_t length, size;
    uint32_t ids; // that were given
    bool failed; // no memory
};

// ---- Text ----

__attribute__((format(printf, 2, 3))) void hlo_print(struct hlo *h, const char *format, ...);
void hlo_print_type(struct hlo *h, const struct hlo_value *value); // tensor<2x3xf32>
void hlo_finish(struct hlo *h);

// ---- Shapes ----

struct hlo_shape hlo_shape_of(const struct ls_tensor_desc *desc);
struct hlo_shape hlo_flat(int64_t count);
struct hlo_shape hlo_dims(uint32_t ndims, const int64_t *dims);
#define HLO_SHAPE(...)                                                             \
    hlo_dims((uint32_t)(sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), \
             (const int64_t[]){__VA_ARGS__})
int64_t hlo_elements(const struct hlo_shape *shape);

// ---- Instructions ----
// Operands of one instruction have one shape and one type if nothing else is said.

struct hlo_value hlo_new(struct hlo *h, uint32_t type, struct hlo_shape shape); // an id, no text
struct hlo_value hlo_unary(struct hlo *h, const char *name, struct hlo_value a);
struct hlo_value hlo_binary(struct hlo *h, const char *name, struct hlo_value a,
                            struct hlo_value b);
struct hlo_value hlo_compare(struct hlo *h, const char *direction, struct hlo_value a,
                             struct hlo_value b);
struct hlo_value hlo_select(struct hlo *h, struct hlo_value condition, struct hlo_value yes,
                            struct hlo_value no);
struct hlo_value hlo_convert(struct hlo *h, struct hlo_value a, uint32_t type);
// The same bits seen as another type; `shape` as bitcast_convert wants it.
struct hlo_value hlo_bitcast(struct hlo *h, struct hlo_value a, uint32_t type,
                             struct hlo_shape shape);
struct hlo_value hlo_constant(struct hlo *h, uint32_t type, struct hlo_shape shape, double value);
struct hlo_value hlo_bits(struct hlo *h, uint32_t type, struct hlo_shape shape, uint64_t value);
struct hlo_value hlo_like(struct hlo *h, struct hlo_value a, double value); // a constant as a
struct hlo_value hlo_iota(struct hlo *h, uint32_t type, struct hlo_shape shape, uint32_t axis);
struct hlo_value hlo_reshape(struct hlo *h, struct hlo_value a, struct hlo_shape shape);
// Dimension i of a becomes dimension map[i].
struct hlo_value hlo_broadcast(struct hlo *h, struct hlo_value a, struct hlo_shape shape,
                               const int64_t *map);
struct hlo_value hlo_spread(struct hlo *h, struct hlo_value scalar, struct hlo_shape shape);
// A vector along the last dimension.
struct hlo_value hlo_along(struct hlo *h, struct hlo_value vector, struct hlo_shape shape);
// As numpy broadcasts: dimensions counted from the last one, of size 1 repeated.
struct hlo_value hlo_numpy(struct hlo *h, struct hlo_value a, struct hlo_shape shape);
struct hlo_value hlo_transpose(struct hlo *h, struct hlo_value a, const int64_t *order);
// Elements first .. limit - 1 with a stride, of each dimension.
struct hlo_value hlo_slice(struct hlo *h, struct hlo_value a, const int64_t *first,
                           const int64_t *limit, const int64_t *stride);
struct hlo_value hlo_part(struct hlo *h, struct hlo_value flat, int64_t first, int64_t count);
struct hlo_value hlo_concatenate(struct hlo *h, const struct hlo_value *parts, uint32_t count,
                                 uint32_t axis);
// Dimension i gets low[i] elements in front, high[i] behind and between[i] between each two;
// negative ones are cut off.
struct hlo_value hlo_pad(struct hlo *h, struct hlo_value a, double value, const int64_t *low,
                         const int64_t *high, const int64_t *between);
// Reduces the dimensions with bit i of `axes` set, which vanish: "add", "maximum", "minimum", "or".
struct hlo_value hlo_reduce(struct hlo *h, const char *name, struct hlo_value a, uint32_t axes,
                            double first);
// The same, and they stay with size 1.
struct hlo_value hlo_reduce_kept(struct hlo *h, const char *name, struct hlo_value a, uint32_t axes,
                                 double first);
// The same over the values that `replicas` replicas have.
struct hlo_value hlo_all_reduce(struct hlo *h, const char *name, struct hlo_value a,
                                uint32_t replicas);
struct hlo_value hlo_replica(struct hlo *h); // a scalar of type HLO_U32
// Sums over the one dimension `from` of a and `with` of b, for each index of the first `batch`
// dimensions of both. At the highest precision.
struct hlo_value hlo_dot(struct hlo *h, struct hlo_value a, struct hlo_value b, uint32_t batch,
                         uint32_t from, uint32_t with);

// ---- Short forms ----

#define hlo_add(h, a, b) hlo_binary(h, "add", a, b)
#define hlo_subtract(h, a, b) hlo_binary(h, "subtract", a, b)
#define hlo_multiply(h, a, b) hlo_binary(h, "multiply", a, b)
#define hlo_divide(h, a, b) hlo_binary(h, "divide", a, b)
#define hlo_maximum(h, a, b) hlo_binary(h, "maximum", a, b)
#define hlo_minimum(h, a, b) hlo_binary(h, "minimum", a, b)
struct hlo_value hlo_scaled(struct hlo *h, struct hlo_value a, double factor);
struct hlo_value hlo_plus(struct hlo *h, struct hlo_value a, double value);

#endif
