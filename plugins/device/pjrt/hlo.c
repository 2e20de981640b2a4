// SPDX-License-Identifier: Apache-2.0
// Writes StableHLO text.
#include "plugins/device/pjrt/hlo.h"

#include <math.h>
#include <stdarg.h>

// ---- Text ----

void hlo_print(struct hlo *h, const char *format, ...)
{
    va_list list, again;
    va_start(list, format);
    va_copy(again, list);
    const int needed = vsnprintf(NULL, 0, format, list);
    va_end(list);
    if (!h->failed && h->length + (size_t)needed + 1 > h->size) {
        const size_t size = 2 * (h->length + (size_t)needed) + 4096;
        char *text = realloc(h->text, size);
        h->failed = !text;
        h->text = text ? text : h->text;
        h->size = text ? size : h->size;
    }
    if (!h->failed) {
        vsnprintf(h->text + h->length, h->size - h->length, format, again);
        h->length += (size_t)needed;
    }
    va_end(again);
}

static const char *type_name(uint32_t type)
{
    switch (type) {
    case LS_F32: return "f32";
    case LS_F64: return "f64";
    case LS_F16: return "f16";
    case LS_BF16: return "bf16";
    case LS_I32: return "i32";
    case LS_I64: return "i64";
    case LS_U8: return "ui8";
    case HLO_U32: return "ui32";
    case HLO_U64: return "ui64";
    default: return "i1";
    }
}

void hlo_print_type(struct hlo *h, const struct hlo_value *value)
{
    hlo_print(h, "tensor<");
    for (uint32_t i = 0; i < value->shape.ndims; i++)
        hlo_print(h, "%lldx", (long long)value->shape.dims[i]);
    hlo_print(h, "%s>", type_name(value->type));
}

static void print_list(struct hlo *h, const char *name, const int64_t *values, uint32_t count)
{
    hlo_print(h, "%s[", name);
    for (uint32_t i = 0; i < count; i++)
        hlo_print(h, "%s%lld", i ? ", " : "", (long long)values[i]);
    hlo_print(h, "]");
}

// " : (type of a, type of b) -> type of the result"
static void print_types(struct hlo *h, const struct hlo_value *operands, uint32_t count,
                        const struct hlo_value *result)
{
    hlo_print(h, " : (");
    for (uint32_t i = 0; i < count; i++) {
        hlo_print(h, "%s", i ? ", " : "");
        hlo_print_type(h, &operands[i]);
    }
    hlo_print(h, ") -> ");
    hlo_print_type(h, result);
    hlo_print(h, "\n");
}

void hlo_finish(struct hlo *h)
{
    free(h->text);
    *h = (struct hlo){0};
}

// ---- Shapes ----

struct hlo_shape hlo_dims(uint32_t ndims, const int64_t *dims)
{
    struct hlo_shape shape = {.ndims = ndims};
    for (uint32_t i = 0; i < ndims; i++)
        shape.dims[i] = dims[i];
    return shape;
}

struct hlo_shape hlo_shape_of(const struct ls_tensor_desc *desc)
{
    return hlo_dims(desc->ndims, desc->dims);
}

struct hlo_shape hlo_flat(int64_t count)
{
    return hlo_dims(1, &count);
}

int64_t hlo_elements(const struct hlo_shape *shape)
{
    int64_t count = 1;
    for (uint32_t i = 0; i < shape->ndims; i++)
        count *= shape->dims[i];
    return count;
}

static bool same_shape(const struct hlo_shape *a, const struct hlo_shape *b)
{
    for (uint32_t i = 0; a->ndims == b->ndims && i < a->ndims; i++)
        if (a->dims[i] != b->dims[i])
            return false;
    return a->ndims == b->ndims;
}

// ---- Instructions ----

struct hlo_value hlo_new(struct hlo *h, uint32_t type, struct hlo_shape shape)
{
    return (struct hlo_value){.id = ++h->ids, .type = type, .shape = shape};
}

struct hlo_value hlo_unary(struct hlo *h, const char *name, struct hlo_value a)
{
    const bool finite = strcmp(name, "is_finite") == 0;
    const struct hlo_value y = hlo_new(h, finite ? HLO_BOOL : a.type, a.shape);
    hlo_print(h, "%%%u = stablehlo.%s %%%u", y.id, name, a.id);
    if (finite) {
        print_types(h, &a, 1, &y);
        return y;
    }
    hlo_print(h, " : ");
    hlo_print_type(h, &y);
    hlo_print(h, "\n");
    return y;
}

struct hlo_value hlo_binary(struct hlo *h, const char *name, struct hlo_value a, struct hlo_value b)
{
    const struct hlo_value y = hlo_new(h, a.type, a.shape);
    hlo_print(h, "%%%u = stablehlo.%s %%%u, %%%u : ", y.id, name, a.id, b.id);
    hlo_print_type(h, &y);
    hlo_print(h, "\n");
    return y;
}

struct hlo_value hlo_compare(struct hlo *h, const char *direction, struct hlo_value a,
                             struct hlo_value b)
{
    const struct hlo_value y = hlo_new(h, HLO_BOOL, a.shape), both[2] = {a, b};
    hlo_print(h, "%%%u = stablehlo.compare %s, %%%u, %%%u", y.id, direction, a.id, b.id);
    print_types(h, both, 2, &y);
    return y;
}

struct hlo_value hlo_select(struct hlo *h, struct hlo_value condition, struct hlo_value yes,
                            struct hlo_value no)
{
    const struct hlo_value y = hlo_new(h, yes.type, yes.shape);
    hlo_print(h, "%%%u = stablehlo.select %%%u, %%%u, %%%u : ", y.id, condition.id, yes.id, no.id);
    hlo_print_type(h, &condition);
    hlo_print(h, ", ");
    hlo_print_type(h, &y);
    hlo_print(h, "\n");
    return y;
}

struct hlo_value hlo_convert(struct hlo *h, struct hlo_value a, uint32_t type)
{
    if (a.type == type)
        return a;
    const struct hlo_value y = hlo_new(h, type, a.shape);
    hlo_print(h, "%%%u = stablehlo.convert %%%u", y.id, a.id);
    print_types(h, &a, 1, &y);
    return y;
}

struct hlo_value hlo_bitcast(struct hlo *h, struct hlo_value a, uint32_t type,
                             struct hlo_shape shape)
{
    const struct hlo_value y = hlo_new(h, type, shape);
    hlo_print(h, "%%%u = stablehlo.bitcast_convert %%%u", y.id, a.id);
    print_types(h, &a, 1, &y);
    return y;
}

struct hlo_value hlo_bits(struct hlo *h, uint32_t type, struct hlo_shape shape, uint64_t value)
{
    const struct hlo_value y = hlo_new(h, type, shape);
    if (type == LS_F32 || type == LS_F64)
        hlo_print(h, "%%%u = stablehlo.constant dense<0x%0*llX> : ", y.id, type == LS_F32 ? 8 : 16,
                  (unsigned long long)value);
    else
        hlo_print(h, "%%%u = stablehlo.constant dense<%llu> : ", y.id, (unsigned long long)value);
    hlo_print_type(h, &y);
    hlo_print(h, "\n");
    return y;
}

struct hlo_value hlo_constant(struct hlo *h, uint32_t type, struct hlo_shape shape, double value)
{
    uint64_t bits64;
    uint32_t bits;
    if (type == LS_F64) {
        memcpy(&bits64, &value, sizeof(bits64));
        return hlo_bits(h, type, shape, bits64);
    }
    if (type == LS_F32) {
        const float single = (float)value;
        memcpy(&bits, &single, sizeof(bits));
        return hlo_bits(h, type, shape, bits);
    }
    const struct hlo_value y = hlo_new(h, type, shape);
    if (type == HLO_BOOL)
        hlo_print(h, "%%%u = stablehlo.constant dense<%s> : ", y.id, value != 0 ? "true" : "false");
    else
        hlo_print(h, "%%%u = stablehlo.constant dense<%.0f> : ", y.id, value);
    hlo_print_type(h, &y);
    hlo_print(h, "\n");
    return y;
}

struct hlo_value hlo_like(struct hlo *h, struct hlo_value a, double value)
{
    return hlo_constant(h, a.type, a.shape, value);
}

struct hlo_value hlo_iota(struct hlo *h, uint32_t type, struct hlo_shape shape, uint32_t axis)
{
    const struct hlo_value y = hlo_new(h, type, shape);
    hlo_print(h, "%%%u = stablehlo.iota dim = %u : ", y.id, axis);
    hlo_print_type(h, &y);
    hlo_print(h, "\n");
    return y;
}

struct hlo_value hlo_reshape(struct hlo *h, struct hlo_value a, struct hlo_shape shape)
{
    if (same_shape(&a.shape, &shape))
        return a;
    const struct hlo_value y = hlo_new(h, a.type, shape);
    hlo_print(h, "%%%u = stablehlo.reshape %%%u", y.id, a.id);
    print_types(h, &a, 1, &y);
    return y;
}

struct hlo_value hlo_broadcast(struct hlo *h, struct hlo_value a, struct hlo_shape shape,
                               const int64_t *map)
{
    const struct hlo_value y = hlo_new(h, a.type, shape);
    hlo_print(h, "%%%u = stablehlo.broadcast_in_dim %%%u, dims = ", y.id, a.id);
    print_list(h, "", map, a.shape.ndims);
    print_types(h, &a, 1, &y);
    return y;
}

struct hlo_value hlo_spread(struct hlo *h, struct hlo_value scalar, struct hlo_shape shape)
{
    return hlo_broadcast(h, scalar, shape, NULL);
}

struct hlo_value hlo_along(struct hlo *h, struct hlo_value vector, struct hlo_shape shape)
{
    const int64_t last = shape.ndims - 1;
    return hlo_broadcast(h, hlo_reshape(h, vector, hlo_flat(hlo_elements(&vector.shape))), shape,
                         &last);
}

struct hlo_value hlo_numpy(struct hlo *h, struct hlo_value a, struct hlo_shape shape)
{
    int64_t map[HLO_MAX_DIMS];
    if (same_shape(&a.shape, &shape))
        return a;
    for (uint32_t i = 0; i < a.shape.ndims; i++)
        map[i] = shape.ndims - a.shape.ndims + i;
    return hlo_broadcast(h, a, shape, map);
}

struct hlo_value hlo_transpose(struct hlo *h, struct hlo_value a, const int64_t *order)
{
    struct hlo_shape shape = a.shape;
    for (uint32_t i = 0; i < shape.ndims; i++)
        shape.dims[i] = a.shape.dims[order[i]];
    const struct hlo_value y = hlo_new(h, a.type, shape);
    hlo_print(h, "%%%u = stablehlo.transpose %%%u, dims = ", y.id, a.id);
    print_list(h, "", order, shape.ndims);
    print_types(h, &a, 1, &y);
    return y;
}

struct hlo_value hlo_slice(struct hlo *h, struct hlo_value a, const int64_t *first,
                           const int64_t *limit, const int64_t *stride)
{
    struct hlo_shape shape = a.shape;
    for (uint32_t i = 0; i < shape.ndims; i++)
        shape.dims[i] =
            (limit[i] - first[i] + (stride ? stride[i] : 1) - 1) / (stride ? stride[i] : 1);
    const struct hlo_value y = hlo_new(h, a.type, shape);
    hlo_print(h, "%%%u = stablehlo.slice %%%u [", y.id, a.id);
    for (uint32_t i = 0; i < shape.ndims; i++)
        hlo_print(h, "%s%lld:%lld:%lld", i ? ", " : "", (long long)first[i], (long long)limit[i],
                  (long long)(stride ? stride[i] : 1));
    hlo_print(h, "]");
    print_types(h, &a, 1, &y);
    return y;
}

struct hlo_value hlo_part(struct hlo *h, struct hlo_value flat, int64_t first, int64_t count)
{
    const int64_t limit = first + count;
    if (first == 0 && count == flat.shape.dims[0])
        return flat;
    return hlo_slice(h, flat, &first, &limit, NULL);
}

struct hlo_value hlo_concatenate(struct hlo *h, const struct hlo_value *parts, uint32_t count,
                                 uint32_t axis)
{
    if (count == 1)
        return parts[0];
    struct hlo_shape shape = parts[0].shape;
    shape.dims[axis] = 0;
    for (uint32_t i = 0; i < count; i++)
        shape.dims[axis] += parts[i].shape.dims[axis];
    const struct hlo_value y = hlo_new(h, parts[0].type, shape);
    hlo_print(h, "%%%u = stablehlo.concatenate ", y.id);
    for (uint32_t i = 0; i < count; i++)
        hlo_print(h, "%%%u, ", parts[i].id);
    hlo_print(h, "dim = %u", axis);
    print_types(h, parts, count, &y);
    return y;
}

struct hlo_value hlo_pad(struct hlo *h, struct hlo_value a, double value, const int64_t *low,
                         const int64_t *high, const int64_t *between)
{
    static const int64_t none[HLO_MAX_DIMS];
    const struct hlo_value with[2] = {a, hlo_constant(h, a.type, (struct hlo_shape){0}, value)};
    struct hlo_shape shape = a.shape;
    between = between ? between : none;
    for (uint32_t i = 0; i < shape.ndims; i++)
        shape.dims[i] +=
            low[i] + high[i] + (shape.dims[i] > 0 ? shape.dims[i] - 1 : 0) * between[i];
    const struct hlo_value y = hlo_new(h, a.type, shape);
    hlo_print(h, "%%%u = stablehlo.pad %%%u, %%%u, low = ", y.id, a.id, with[1].id);
    print_list(h, "", low, shape.ndims);
    print_list(h, ", high = ", high, shape.ndims);
    print_list(h, ", interior = ", between, shape.ndims);
    print_types(h, with, 2, &y);
    return y;
}

struct hlo_value hlo_reduce(struct hlo *h, const char *name, struct hlo_value a, uint32_t axes,
                            double first)
{
    const struct hlo_value with[2] = {a, hlo_constant(h, a.type, (struct hlo_shape){0}, first)};
    int64_t reduced[HLO_MAX_DIMS];
    uint32_t count = 0;
    struct hlo_shape shape = {0};
    for (uint32_t i = 0; i < a.shape.ndims; i++) {
        if (axes >> i & 1)
            reduced[count++] = i;
        else
            shape.dims[shape.ndims++] = a.shape.dims[i];
    }
    if (count == 0)
        return a;
    const struct hlo_value y = hlo_new(h, a.type, shape);
    hlo_print(h,
              "%%%u = stablehlo.reduce(%%%u init: %%%u) applies stablehlo.%s across dimensions = ",
              y.id, a.id, with[1].id, name);
    print_list(h, "", reduced, count);
    print_types(h, with, 2, &y);
    return y;
}

struct hlo_value hlo_reduce_kept(struct hlo *h, const char *name, struct hlo_value a, uint32_t axes,
                                 double first)
{
    struct hlo_shape shape = a.shape;
    for (uint32_t i = 0; i < shape.ndims; i++)
        if (axes >> i & 1)
            shape.dims[i] = 1;
    return hlo_reshape(h, hlo_reduce(h, name, a, axes, first), shape);
}

struct hlo_value hlo_all_reduce(struct hlo *h, const char *name, struct hlo_value a,
                                uint32_t replicas)
{
    const struct hlo_value y = hlo_new(h, a.type, a.shape), scalar = {.type = a.type};
    hlo_print(h, "%%%u = \"stablehlo.all_reduce\"(%%%u) ({\n^bb0(%%left: ", y.id, a.id);
    hlo_print_type(h, &scalar);
    hlo_print(h, ", %%right: ");
    hlo_print_type(h, &scalar);
    hlo_print(h, "):\n%%both = stablehlo.%s %%left, %%right : ", name);
    hlo_print_type(h, &scalar);
    hlo_print(h, "\nstablehlo.return %%both : ");
    hlo_print_type(h, &scalar);
    hlo_print(h, "\n}) {replica_groups = dense<[[");
    for (uint32_t i = 0; i < replicas; i++)
        hlo_print(h, "%s%u", i ? ", " : "", i);
    hlo_print(h, "]]> : tensor<1x%uxi64>}", replicas);
    print_types(h, &a, 1, &y);
    return y;
}

struct hlo_value hlo_replica(struct hlo *h)
{
    const struct hlo_value y = hlo_new(h, HLO_U32, (struct hlo_shape){0});
    hlo_print(h, "%%%u = stablehlo.replica_id : tensor<ui32>\n", y.id);
    return y;
}

struct hlo_value hlo_dot(struct hlo *h, struct hlo_value a, struct hlo_value b, uint32_t batch,
                         uint32_t from, uint32_t with)
{
    const struct hlo_value both[2] = {a, b};
    int64_t leading[HLO_MAX_DIMS];
    struct hlo_shape shape = {.ndims = batch};
    for (uint32_t i = 0; i < batch; i++) {
        leading[i] = i;
        shape.dims[i] = a.shape.dims[i];
    }
    for (uint32_t i = batch; i < a.shape.ndims; i++)
        if (i != from)
            shape.dims[shape.ndims++] = a.shape.dims[i];
    for (uint32_t i = batch; i < b.shape.ndims; i++)
        if (i != with)
            shape.dims[shape.ndims++] = b.shape.dims[i];
    const struct hlo_value y = hlo_new(h, a.type, shape);
    hlo_print(h, "%%%u = stablehlo.dot_general %%%u, %%%u", y.id, a.id, b.id);
    if (batch) {
        print_list(h, ", batching_dims = ", leading, batch);
        print_list(h, " x ", leading, batch);
    }
    hlo_print(h, ", contracting_dims = [%u] x [%u], precision = [HIGHEST, HIGHEST]", from, with);
    print_types(h, both, 2, &y);
    return y;
}

// ---- Short forms ----

struct hlo_value hlo_scaled(struct hlo *h, struct hlo_value a, double factor)
{
    return factor == 1 ? a : hlo_multiply(h, a, hlo_like(h, a, factor));
}

struct hlo_value hlo_plus(struct hlo *h, struct hlo_value a, double value)
{
    return hlo_add(h, a, hlo_like(h, a, value));
}
