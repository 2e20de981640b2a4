// SPDX-License-Identifier: Apache-2.0
// Rows of a table by index, their gradient, and comparisons with a number.
#include "plugins/device/pjrt/operations.h"

#include <math.h>

// The row of each position (N,1), and whether there is one (N). What has none is set to `none`.
static struct hlo_value rows_of(struct hlo *h, struct hlo_value ids, int64_t rows, double none,
                                struct hlo_value *valid)
{
    const int64_t count = hlo_elements(&ids.shape);
    struct hlo_value id = hlo_reshape(h, ids, hlo_flat(count));
    // Of a number its integer part counts: -0.5 is row 0.
    const double below = id.type == LS_F32 ? -1 : 0;
    *valid = hlo_binary(h, "and",
                        hlo_compare(h, id.type == LS_F32 ? "GT" : "GE", id, hlo_like(h, id, below)),
                        hlo_compare(h, "LT", id, hlo_like(h, id, (double)rows)));
    id = hlo_convert(h, hlo_select(h, *valid, id, hlo_like(h, id, 0)), LS_I32);
    id = hlo_select(h, *valid, id, hlo_like(h, id, none));
    return hlo_reshape(h, id, HLO_SHAPE(count, 1));
}

// ids, table -> y
void pjrt_gather_rows(struct pjrt_call *call)
{
    struct hlo *h = call->h;
    static const int64_t first = 0;
    const struct hlo_value table = call->inputs[1];
    const int64_t width = table.shape.dims[1];
    struct hlo_value valid;
    const struct hlo_value id = rows_of(h, call->inputs[0], table.shape.dims[0], 0, &valid);
    const struct hlo_value y = hlo_new(h, LS_F32, HLO_SHAPE(id.shape.dims[0], width));
    hlo_print(h,
              "%%%u = \"stablehlo.gather\"(%%%u, %%%u) {dimension_numbers = "
              "#stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = "
              "[0], index_vector_dim = 1>, indices_are_sorted = false, slice_sizes = array<i64: "
              "1, %lld>} : (",
              y.id, table.id, id.id, (long long)width);
    hlo_print_type(h, &table);
    hlo_print(h, ", ");
    hlo_print_type(h, &id);
    hlo_print(h, ") -> ");
    hlo_print_type(h, &y);
    hlo_print(h, "\n");
    call->outputs[0] =
        hlo_select(h, hlo_broadcast(h, valid, y.shape, &first), y, hlo_like(h, y, (double)NAN));
}

// ids, dy -> dtable: what has no row lies outside, and XLA leaves it out
void pjrt_gather_rows_backward(struct pjrt_call *call)
{
    struct hlo *h = call->h;
    const struct hlo_shape table = pjrt_output_shape(call, 0);
    struct hlo_value valid;
    const struct hlo_value id =
        rows_of(h, call->inputs[0], table.dims[0], (double)table.dims[0], &valid);
    const struct hlo_value dy =
        hlo_reshape(h, call->inputs[1], HLO_SHAPE(id.shape.dims[0], table.dims[1]));
    const struct hlo_value zero = hlo_constant(h, LS_F32, table, 0);
    const struct hlo_value y = hlo_new(h, LS_F32, table);
    hlo_print(h,
              "%%%u = \"stablehlo.scatter\"(%%%u, %%%u, %%%u) ({\n^bb0(%%a: tensor<f32>, %%b: "
              "tensor<f32>):\n%%c = stablehlo.add %%a, %%b : tensor<f32>\nstablehlo.return %%c : "
              "tensor<f32>\n}) {scatter_dimension_numbers = "
              "#stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], "
              "scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, indices_are_sorted = "
              "false, unique_indices = false} : (",
              y.id, zero.id, id.id, dy.id);
    hlo_print_type(h, &zero);
    hlo_print(h, ", ");
    hlo_print_type(h, &id);
    hlo_print(h, ", ");
    hlo_print_type(h, &dy);
    hlo_print(h, ") -> ");
    hlo_print_type(h, &y);
    hlo_print(h, "\n");
    call->outputs[0] = y;
}

// x -> y: 1 where an element, or any along the last dimension, differs from the offset
void pjrt_differs(struct pjrt_call *call)
{
    struct hlo *h = call->h;
    const struct hlo_value x = call->inputs[0];
    const struct hlo_shape y = pjrt_output_shape(call, 0);
    struct hlo_value differs = hlo_convert(
        h, hlo_compare(h, "NE", x, hlo_like(h, x, (double)call->attributes->offset)), LS_F32);
    if (hlo_elements(&y) < hlo_elements(&x.shape))
        differs = hlo_reduce(h, "maximum", differs, UINT32_C(1) << (x.shape.ndims - 1), 0);
    call->outputs[0] = differs;
}
