// SPDX-License-Identifier: Apache-2.0
// Layouts and oneDNN's memory descriptors, both ways. The words of an own layout:
//   [0] role, then (from bit 8) number of dimensions, number of blocks, from bit 32 groups
//   [1] the dimensions from the outermost inwards, a byte each
//   [2] the sizes of the inner blocks, 16 bits each; [3] their dimensions, 16 bits each
//   [4..6] of dense rows: height, width, channels of the activation
// Strides follow from the dimensions of the tensor, so the same words serve every batch size.
#include "plugins/device/cpu/layout.h"

#include "core/plugin/half.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_BLOCKS = 4, MAX_LOGICAL = 6 };

// A blocked layout taken apart.
struct blocked {
    int ndims, block_count;
    int order[MAX_LOGICAL]; // logical dimensions, outermost first
    int64_t block_size[MAX_BLOCKS];
    int block_dim[MAX_BLOCKS];
};

enum cpu_role cpu_layout_role(const struct ls_layout *layout)
{
    return layout->kind == LS_LAYOUT_OWN ? (enum cpu_role)(layout->words[0] & 0xff)
                                         : (enum cpu_role)0;
}

void cpu_layout_plain(const struct ls_tensor_desc *desc, struct ls_layout *out)
{
    memset(out, 0, sizeof(*out));
    out->kind = LS_LAYOUT_PLAIN;
    out->bytes = ls_tensor_elements(desc) * ls_dtype_bytes(desc->dtype);
}

// Our dims in oneDNN's order; returns their number.
static int logical_dims(enum cpu_role role, const struct ls_tensor_desc *desc, int32_t groups,
                        int64_t *out)
{
    const int64_t *dims = desc->dims, *space = role == CPU_ACTIVATION ? dims + 1 : dims;
    const uint32_t last = desc->ndims - 1;
    int count = 0;
    if (role == CPU_MATRIX) {
        memcpy(out, dims, 2 * sizeof(*out));
        return 2;
    }
    if (role == CPU_ACTIVATION) {
        out[count++] = dims[0];
        out[count++] = dims[last];
    } else {
        if (groups > 1)
            out[count++] = groups;
        out[count++] = groups > 1 ? dims[last] / groups : dims[last];
        out[count++] = dims[last - 1];
    }
    for (uint32_t i = 0; i < last - 1; i++)
        out[count++] = space[i];
    return count;
}

// Of as many logical dimensions as the tensor has.
static struct blocked plain_blocked(enum cpu_role role, int ndims, int32_t groups)
{
    const int first = role == CPU_KERNEL && groups > 1 ? 3 : 2; // of space
    struct blocked b = {.ndims = ndims};
    int count = 0;
    if (role == CPU_MATRIX)
        return (struct blocked){.ndims = 2, .order = {0, 1}};
    if (role == CPU_ACTIVATION)
        b.order[count++] = 0;
    for (int i = first; i < ndims; i++)
        b.order[count++] = i;
    b.order[count++] = first - 1;
    for (int i = 0; role == CPU_KERNEL && i < first - 1; i++)
        b.order[count++] = i;
    return b;
}

static int64_t block_of(const struct blocked *b, int dim)
{
    int64_t block = 1;
    for (int i = 0; i < b->block_count; i++)
        if (b->block_dim[i] == dim)
            block *= b->block_size[i];
    return block;
}

static int64_t padded_dim(const struct blocked *b, const int64_t *dims, int dim)
{
    const int64_t block = block_of(b, dim);
    return (dims[dim] + block - 1) / block * block;
}

static int64_t padded_elements(const struct blocked *b, const int64_t *dims)
{
    int64_t count = 1;
    for (int i = 0; i < b->ndims; i++)
        count *= padded_dim(b, dims, i);
    return count;
}

static struct blocked decode(const struct ls_layout *layout)
{
    struct blocked b = {.ndims = (int)(layout->words[0] >> 8 & 0xff),
                        .block_count = (int)(layout->words[0] >> 16 & 0xff)};
    for (int i = 0; i < b.ndims; i++)
        b.order[i] = (int)(layout->words[1] >> (8 * i) & 0xff);
    for (int i = 0; i < b.block_count; i++) {
        b.block_size[i] = (int64_t)(layout->words[2] >> (16 * i) & 0xffff);
        b.block_dim[i] = (int)(layout->words[3] >> (16 * i) & 0xffff);
    }
    return b;
}

static void encode(enum cpu_role role, int32_t groups, const struct blocked *b,
                   struct ls_layout *out)
{
    memset(out, 0, sizeof(*out));
    out->kind = LS_LAYOUT_OWN;
    out->words[0] = (uint64_t)role | (uint64_t)b->ndims << 8 | (uint64_t)b->block_count << 16 |
                    (uint64_t)(uint32_t)groups << 32;
    for (int i = 0; i < b->ndims; i++)
        out->words[1] |= (uint64_t)b->order[i] << (8 * i);
    for (int i = 0; i < b->block_count; i++) {
        out->words[2] |= (uint64_t)b->block_size[i] << (16 * i);
        out->words[3] |= (uint64_t)b->block_dim[i] << (16 * i);
    }
}

dnnl_data_type_t cpu_dnnl_type(uint32_t dtype)
{
    return dtype == LS_BF16 ? dnnl_bf16 : dtype == LS_F16 ? dnnl_f16 : dnnl_f32;
}

static void describe(const struct blocked *b, const int64_t *dims, uint32_t dtype,
                     dnnl_memory_desc_t *out)
{
    memset(out, 0, sizeof(*out));
    out->ndims = b->ndims;
    out->data_type = cpu_dnnl_type(dtype);
    out->format_kind = dnnl_blocked;
    dnnl_blocking_desc_t *blocking = &out->format_desc.blocking;
    int64_t stride = 1;
    blocking->inner_nblks = b->block_count;
    for (int i = 0; i < b->block_count; i++) {
        blocking->inner_blks[i] = b->block_size[i];
        blocking->inner_idxs[i] = b->block_dim[i];
        stride *= b->block_size[i];
    }
    for (int i = 0; i < b->ndims; i++) {
        out->dims[i] = dims[i];
        out->padded_dims[i] = padded_dim(b, dims, i);
    }
    for (int i = b->ndims - 1; i >= 0; i--) {
        const int dim = b->order[i];
        blocking->strides[dim] = stride;
        stride *= out->padded_dims[dim] / block_of(b, dim);
    }
}

// Sorts the dimensions by stride, the outermost first; of equal strides (a dimension of size 1) the
// larger one first, so that describe() gives the strides back as they were.
static void find_order(const dnnl_memory_desc_t *md, struct blocked *b)
{
    const dnnl_dim_t *strides = md->format_desc.blocking.strides;
    for (int i = 0; i < b->ndims; i++) {
        int at = i;
        for (; at > 0; at--) {
            const int other = b->order[at - 1];
            const int64_t mine = md->padded_dims[i] / block_of(b, i);
            const int64_t others = md->padded_dims[other] / block_of(b, other);
            if (strides[other] > strides[i] || (strides[other] == strides[i] && others >= mine))
                break;
            b->order[at] = other;
        }
        b->order[at] = i;
    }
}

// Whether two layouts put every element of a tensor of these dims at the same place.
static bool same_memory(const struct blocked *a, const struct blocked *b, const int64_t *dims)
{
    dnnl_memory_desc_t first, second;
    describe(a, dims, LS_F32, &first);
    describe(b, dims, LS_F32, &second);
    if (a->block_count != b->block_count || a->block_count)
        return a->block_count == b->block_count && dnnl_memory_desc_equal(&first, &second);
    for (int i = 0; i < a->ndims; i++)
        if (dims[i] > 1 &&
            first.format_desc.blocking.strides[i] != second.format_desc.blocking.strides[i])
            return false;
    return true;
}

bool cpu_layout_of(enum cpu_role role, const struct ls_tensor_desc *desc, int32_t groups,
                   const dnnl_memory_desc_t *md, struct ls_layout *out)
{
    int64_t dims[MAX_LOGICAL];
    struct blocked b = {.ndims = logical_dims(role, desc, groups, dims)};
    const dnnl_blocking_desc_t *blocking = &md->format_desc.blocking;
    if (md->format_kind != dnnl_blocked || md->ndims != b.ndims || md->extra.flags || md->offset0 ||
        md->data_type != cpu_dnnl_type(desc->dtype) || blocking->inner_nblks > MAX_BLOCKS)
        return false;
    b.block_count = blocking->inner_nblks;
    for (int i = 0; i < b.block_count; i++) {
        b.block_size[i] = blocking->inner_blks[i];
        b.block_dim[i] = (int)blocking->inner_idxs[i];
    }
    find_order(md, &b);
    dnnl_memory_desc_t again;
    describe(&b, dims, desc->dtype, &again);
    if (!dnnl_memory_desc_equal(&again, md))
        return false;
    const struct blocked plain = plain_blocked(role, b.ndims, groups);
    if (same_memory(&b, &plain, dims)) {
        cpu_layout_plain(desc, out);
        return true;
    }
    // Tiles are parts of the memory.
    if (role == CPU_ACTIVATION && blocking->strides[0] * dims[0] != padded_elements(&b, dims))
        return false;
    encode(role, groups, &b, out);
    out->bytes = (uint64_t)padded_elements(&b, dims) * ls_dtype_bytes(desc->dtype);
    return true;
}

static bool is_floating(const struct ls_tensor_desc *desc)
{
    return desc->dtype == LS_F32 || ls_dtype_is_half(desc->dtype);
}

bool cpu_memory_desc(enum cpu_role role, const struct ls_tensor_desc *desc, int32_t groups,
                     dnnl_memory_desc_t *out)
{
    const bool fits = role == CPU_MATRIX ? desc->ndims == 2 : desc->ndims == 4 || desc->ndims == 5;
    if (!fits || !is_floating(desc))
        return false;
    dnnl_dims_t dims = {0};
    const int ndims = logical_dims(role, desc, groups, dims);
    if (desc->layout.kind == LS_LAYOUT_ANY)
        return dnnl_memory_desc_init_by_tag(out, ndims, dims, cpu_dnnl_type(desc->dtype),
                                            dnnl_format_tag_any) == dnnl_success;
    struct blocked b = plain_blocked(role, ndims, groups);
    if (desc->layout.kind == LS_LAYOUT_OWN) {
        if (cpu_layout_role(&desc->layout) != role)
            return false;
        b = decode(&desc->layout);
        if (b.ndims != ndims)
            return false;
    }
    describe(&b, dims, desc->dtype, out);
    return true;
}

void cpu_layout_like(const struct ls_layout *like, const struct ls_tensor_desc *desc,
                     struct ls_layout *out)
{
    if (like->kind != LS_LAYOUT_OWN) {
        cpu_layout_plain(desc, out);
        return;
    }
    int64_t dims[MAX_LOGICAL];
    const struct blocked b = decode(like);
    logical_dims(cpu_layout_role(like), desc, (int32_t)(like->words[0] >> 32), dims);
    *out = *like;
    out->bytes = (uint64_t)padded_elements(&b, dims) * ls_dtype_bytes(desc->dtype);
}

bool cpu_memory_desc_transposed(const struct ls_tensor_desc *desc, dnnl_memory_desc_t *out)
{
    const int64_t *d = desc->dims;
    if (desc->layout.kind != LS_LAYOUT_PLAIN || desc->ndims != 4 || (d[3] != 1 && d[1] * d[2] != 1))
        return false;
    dnnl_dims_t dims = {d[0], d[3], d[1], d[2]};
    return dnnl_memory_desc_init_by_tag(out, 4, dims, cpu_dnnl_type(desc->dtype), dnnl_nchw) ==
           dnnl_success;
}

bool cpu_view_of(const struct ls_tensor_desc *desc, struct cpu_view *out)
{
    const int64_t *d = desc->dims;
    const bool plain = desc->layout.kind == LS_LAYOUT_PLAIN;
    if (!is_floating(desc) || (desc->ndims != 4 && !(desc->ndims == 5 && plain)))
        return false;
    if (desc->ndims == 5) {
        *out = (struct cpu_view){d[0], d[1] * d[2], d[3], d[4], 1, d[4]};
        return true;
    }
    if (plain) {
        *out = (struct cpu_view){d[0], d[1], d[2], d[3], 1, d[3]};
        return true;
    }
    if (cpu_layout_role(&desc->layout) != CPU_ACTIVATION)
        return false;
    const struct blocked b = decode(&desc->layout);
    static const int channels_outside[] = {0, 1, 2, 3};
    if (memcmp(b.order, channels_outside, sizeof(channels_outside)) != 0 || b.block_count > 1 ||
        (b.block_count == 1 && b.block_dim[0] != 1))
        return false;
    const int64_t inner = b.block_count ? b.block_size[0] : 1, blocks = (d[3] + inner - 1) / inner;
    *out = (struct cpu_view){d[0] * blocks, d[1], d[2], inner, blocks, d[3]};
    return true;
}

bool cpu_pairs_of(const struct ls_tensor_desc *matrix, struct cpu_pairs *out)
{
    if (cpu_layout_role(&matrix->layout) != CPU_MATRIX)
        return false;
    const struct blocked b = decode(&matrix->layout);
    const int depth = b.block_dim[0], columns = 1 - depth;
    if (b.block_count != 3 || b.order[0] != columns || b.block_dim[1] != columns ||
        b.block_dim[2] != depth || b.block_size[2] != 2)
        return false;
    *out = (struct cpu_pairs){depth == 1, matrix->dims[depth], padded_dim(&b, matrix->dims, depth),
                              matrix->dims[columns], b.block_size[1]};
    return out->padded_depth % 32 == 0 && out->block % 16 == 0;
}

// Logical dims of a tensor in an own layout of activation or kernel.
static struct blocked own_blocked(const struct ls_tensor_desc *desc, int64_t *dims)
{
    logical_dims(cpu_layout_role(&desc->layout), desc, (int32_t)(desc->layout.words[0] >> 32),
                 dims);
    return decode(&desc->layout);
}

// Walks a blocked tensor in memory order. `index` holds the logical index of each element, which
// may lie in the padding.
struct walk {
    int64_t extent[MAX_LOGICAL + MAX_BLOCKS], weight[MAX_LOGICAL + MAX_BLOCKS];
    int64_t position[MAX_LOGICAL + MAX_BLOCKS], index[MAX_LOGICAL];
    int dim[MAX_LOGICAL + MAX_BLOCKS], count;
};

static void walk_start(struct walk *walk, const struct blocked *b, const int64_t *dims)
{
    int64_t inside[MAX_LOGICAL];
    memset(walk, 0, sizeof(*walk));
    walk->count = b->ndims + b->block_count;
    for (int i = 0; i < b->ndims; i++)
        inside[i] = 1;
    for (int i = b->block_count - 1; i >= 0; i--) {
        const int at = b->ndims + i, dim = b->block_dim[i];
        walk->dim[at] = dim;
        walk->extent[at] = b->block_size[i];
        walk->weight[at] = inside[dim];
        inside[dim] *= b->block_size[i];
    }
    for (int i = 0; i < b->ndims; i++) {
        const int dim = b->order[i];
        walk->dim[i] = dim;
        walk->extent[i] = padded_dim(b, dims, dim) / inside[dim];
        walk->weight[i] = inside[dim];
    }
}

static void walk_next(struct walk *walk)
{
    for (int i = walk->count - 1; i >= 0; i--) {
        walk->index[walk->dim[i]] += walk->weight[i];
        if (++walk->position[i] < walk->extent[i])
            return;
        walk->index[walk->dim[i]] -= walk->weight[i] * walk->extent[i];
        walk->position[i] = 0;
    }
}

static bool walk_inside(const struct walk *walk, const struct blocked *b, const int64_t *dims)
{
    for (int i = 0; i < b->ndims; i++)
        if (walk->index[i] >= dims[i])
            return false;
    return true;
}

bool cpu_has_padding(const struct ls_tensor_desc *desc)
{
    return desc->layout.bytes != ls_tensor_elements(desc) * ls_dtype_bytes(desc->dtype);
}

void cpu_zero_padding(const struct ls_tensor_desc *desc, void *tensor)
{
    const uint64_t bytes = ls_dtype_bytes(desc->dtype);
    char *memory = tensor;
    struct cpu_view view;
    if (!cpu_has_padding(desc) || cpu_layout_role(&desc->layout) == CPU_DENSE_ROWS)
        return;
    if (cpu_view_of(desc, &view)) {
        const int64_t used = view.channels - (view.blocks - 1) * view.inner,
                      plane = view.height * view.width;
        for (int64_t o = view.blocks - 1; o < view.outer; o += view.blocks)
            for (int64_t i = 0; i < plane; i++)
                memset(memory + (uint64_t)((o * plane + i) * view.inner + used) * bytes, 0,
                       (uint64_t)(view.inner - used) * bytes);
        return;
    }
    int64_t dims[MAX_LOGICAL];
    const struct blocked b = own_blocked(desc, dims);
    struct walk walk;
    walk_start(&walk, &b, dims);
    for (int64_t i = 0, count = padded_elements(&b, dims); i < count; i++, walk_next(&walk))
        if (!walk_inside(&walk, &b, dims))
            memset(memory + (uint64_t)i * bytes, 0, bytes);
}

bool cpu_layout_dense(const struct ls_tensor_desc *x, const struct ls_tensor_desc *w,
                      struct ls_layout *out)
{
    if (x->layout.kind == LS_LAYOUT_PLAIN) {
        cpu_layout_plain(w, out);
        return true;
    }
    if (cpu_layout_role(&x->layout) != CPU_ACTIVATION ||
        x->dims[1] * x->dims[2] * x->dims[3] != w->dims[0])
        return false;
    const struct blocked b = decode(&x->layout);
    if (b.order[0] != 0 || block_of(&b, 0) != 1)
        return false;
    const int64_t dims[MAX_LOGICAL] = {1, x->dims[3], x->dims[1], x->dims[2]};
    encode(CPU_DENSE_ROWS, 0, &b, out);
    for (int i = 0; i < 3; i++)
        out->words[4 + i] = (uint64_t)x->dims[1 + i];
    out->bytes = (uint64_t)(padded_elements(&b, dims) * w->dims[1]) * ls_dtype_bytes(w->dtype);

    // Rows that turn out to be in plain order (one block of all channels) are plain.
    struct ls_tensor_desc rows = *w;
    rows.layout = *out;
    int64_t count;
    int64_t *order = cpu_dense_rows(&rows, &count);
    bool plain = order && count == w->dims[0];
    for (int64_t i = 0; plain && i < count; i++)
        plain = order[i] == i;
    free(order);
    if (plain)
        cpu_layout_plain(w, out);
    return true;
}

void cpu_layout_of_rows(const struct ls_layout *rows, const struct ls_tensor_desc *x,
                        struct ls_layout *out)
{
    const struct blocked b = decode(rows);
    const int64_t dims[MAX_LOGICAL] = {x->dims[0], x->dims[3], x->dims[1], x->dims[2]};
    encode(CPU_ACTIVATION, 1, &b, out);
    out->bytes = (uint64_t)padded_elements(&b, dims) * ls_dtype_bytes(x->dtype);
}

int64_t *cpu_dense_rows(const struct ls_tensor_desc *w, int64_t *count)
{
    const struct blocked b = decode(&w->layout);
    const uint64_t *shape = w->layout.words + 4;
    const int64_t dims[MAX_LOGICAL] = {1, (int64_t)shape[2], (int64_t)shape[0], (int64_t)shape[1]};
    *count = padded_elements(&b, dims);
    int64_t *rows = malloc((size_t)*count * sizeof(*rows));
    if (!rows)
        return NULL;
    struct walk walk;
    walk_start(&walk, &b, dims);
    for (int64_t i = 0; i < *count; i++, walk_next(&walk))
        rows[i] = walk_inside(&walk, &b, dims)
                      ? (walk.index[2] * dims[3] + walk.index[3]) * dims[1] + walk.index[1]
                      : -1;
    return rows;
}
