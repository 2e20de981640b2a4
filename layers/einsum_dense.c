// SPDX-License-Identifier: Apache-2.0
// EinsumDense: an input and a kernel multiplied and summed as an equation says, "abc,cd->abd", plus
// bias, then the activation. Letters of input and kernel that the output lacks are summed over.
// Where the kernel has these first, in any order, and all of its others are only its own, it is one
// product of matrices. Else, as for "abc,bcd->abd", all products are made and then summed.
#include "layers/convolution.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static const char *const keys[] = {
    "equation",
    "output_shape",
    "activation",
    "bias_axes",
    "kernel_initializer",
    "bias_initializer",
    "kernel_regularizer",
    "bias_regularizer",
    "kernel_constraint",
    "bias_constraint",
    "lora_rank",
    "lora_alpha",
    "gptq_unpacked_column_size",
    "quantization_config",
    NULL,
};
// Written as null where they are not used.
static const char *const unsupported[] = {"lora_rank", "lora_alpha", "gptq_unpacked_column_size",
                                          "quantization_config", NULL};

// The three parts, with a letter for each dimension: those of "..." are 0, 1, 2, ...
struct equation {
    char input[LS_MAX_DIMS + 1], kernel[LS_MAX_DIMS + 1], output[LS_MAX_DIMS + 1];
    uint32_t elided; // dimensions that ... stands for
    bool left; // they are before the letters, else behind
    int64_t sizes[128]; // of each letter
};

static bool has(const char *part, char letter)
{
    return letter != '\0' && strchr(part, letter) != NULL;
}

// Reads letters up to `end`, with the digits of ... in front or behind; NULL: they are none, too
// many, or one twice.
static const char *read_part(const char *text, const char *end, const struct equation *equation,
                             bool *elided, char *out)
{
    const size_t letters = strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.");
    uint32_t count = 0;

    if (strncmp(text + letters, end, strlen(end)) != 0)
        return NULL;
    for (size_t i = 0; i < letters;) {
        const bool dots = strncmp(text + i, "...", 3) == 0;
        const uint32_t more = dots ? equation->elided : 1;
        if ((text[i] == '.' && !dots) || count + more > LS_MAX_DIMS || (dots && !elided))
            return NULL;
        for (uint32_t k = 0; k < more; k++)
            out[count++] = dots ? (char)('0' + k) : text[i];
        if (dots)
            *elided = true;
        i += dots ? 3 : 1;
    }
    out[count] = '\0';
    for (uint32_t i = 0; i < count; i++)
        if (strchr(out + i + 1, out[i]) && out[i + 1])
            return NULL;
    return count > 0 ? text + letters + strlen(end) : NULL;
}

static bool read_equation(const char *text, const struct ls_shape *x, struct equation *out)
{
    const char *comma = text ? strchr(text, ',') : NULL, *dots = text ? strstr(text, "...") : NULL;
    bool first = false, last = false;

    *out = (struct equation){.left = dots && dots == text};
    if (!comma)
        return false;
    const uint32_t letters = (uint32_t)(comma - text) - (dots && dots < comma ? 3 : 0);
    out->elided = dots && dots < comma && x->ndims > letters ? x->ndims - letters : 0;
    text = read_part(text, ",", out, &first, out->input);
    text = text ? read_part(text, "->", out, NULL, out->kernel) : NULL;
    text = text ? read_part(text, "", out, &last, out->output) : NULL;
    if (!text || *text != '\0' || first != last || strlen(out->input) != x->ndims ||
        out->output[0] != out->input[0] || has(out->kernel, out->input[0]))
        return false;
    for (const char *letter = out->output; *letter; letter++)
        if (!has(out->input, *letter) && !has(out->kernel, *letter))
            return false;
    for (const char *letter = out->input; *letter; letter++)
        if (!has(out->kernel, *letter) && !has(out->output, *letter))
            return false;
    return true;
}

// The size of each letter: those of the input, and of the output, whose own sizes output_shape
// gives.
static bool read_sizes(const json_t *given, const struct ls_shape *x, struct equation *e)
{
    const size_t outputs = strlen(e->output), elided = e->elided;
    const size_t said = json_is_array(given) ? json_array_size(given) : 1;

    for (uint32_t i = 0; i < x->ndims; i++)
        e->sizes[(int)e->input[i]] = x->dims[i];
    // output_shape has neither the batch nor what ... stands for.
    const size_t skipped = e->left && elided > 0 ? elided : 1, behind = e->left ? 0 : elided;
    if (outputs < skipped + behind || said != outputs - skipped - behind)
        return false;
    for (size_t i = 0; i < said; i++) {
        const json_t *size = json_is_array(given) ? json_array_get(given, i) : given;
        int64_t *known = &e->sizes[(int)e->output[skipped + i]];
        const bool none = !size || json_is_null(size);
        if ((none && *known == 0) || (!none && *known != 0 && *known != json_integer_value(size)))
            return false;
        if (*known == 0)
            *known = json_integer_value(size);
        if (*known == 0)
            return false;
    }
    for (const char *letter = e->kernel; *letter; letter++)
        if (e->sizes[(int)*letter] < 1 || e->sizes[(int)*letter] > LS_CONFIG_LARGEST)
            return false;
    return true;
}

// The dimensions that letters have.
static struct ls_shape shape_of(const struct equation *e, const char *letters)
{
    struct ls_shape shape = {.ndims = 0};
    for (; *letters; letters++)
        shape.dims[shape.ndims++] = e->sizes[(int)*letters];
    return shape;
}

// x, whose dimensions are `from`, in the order of `to`.
static enum ls_status arrange(struct ls_graph *graph, const char *from, const char *to,
                              struct ls_tensor *x, struct ls_tensor **out)
{
    int32_t order[LS_MAX_DIMS] = {0};
    for (size_t i = 0; to[i]; i++)
        order[i] = (int32_t)(strchr(from, to[i]) - from);
    return ls_add_transposition(graph, order, x, out);
}

// Letters of `from` that are in `a`, and in `b` or not, behind what is in `out`.
static void pick(const char *from, const char *with, const char *without, char *out)
{
    size_t count = strlen(out);
    for (; *from; from++)
        if ((!with || has(with, *from)) && (!without || !has(without, *from)))
            out[count++] = *from;
    out[count] = '\0';
}

// Whether the kernel is a matrix: first what is summed over, then what only it has.
static bool is_matrix(const struct equation *e)
{
    char matrix[LS_MAX_DIMS + 1] = "";
    pick(e->kernel, e->input, e->output, matrix);
    const size_t summed = strlen(matrix);
    pick(e->kernel, NULL, e->input, matrix);
    return strcmp(matrix, e->kernel) == 0 && summed > 0 && matrix[summed];
}

static enum ls_status multiply_matrix(struct ls_graph *graph, const struct equation *e,
                                      const struct ls_initializer *initializer, struct ls_tensor *x,
                                      struct ls_tensor **out)
{
    char kept[2 * LS_MAX_DIMS + 1] = "", order[2 * LS_MAX_DIMS + 1] = "", summed[8] = "",
                                own[8] = "";
    const struct ls_shape variable = shape_of(e, e->kernel);
    struct ls_tensor *arguments[2];

    pick(e->kernel, e->input, e->output, summed);
    pick(e->kernel, NULL, e->input, own);
    pick(e->input, NULL, e->kernel, kept);
    const struct ls_shape sums = shape_of(e, summed), units = shape_of(e, own);
    const struct ls_shape seen = {
        .ndims = 2, .dims = {ls_shape_elements(&sums, 1), ls_shape_elements(&units, 1)}};
    struct ls_shape rows = shape_of(e, kept);
    strcpy(order, kept);
    strcat(order, summed);
    strcat(kept, own);
    struct ls_shape made = shape_of(e, kept);
    if (rows.ndims == LS_MAX_DIMS || strlen(kept) > LS_MAX_DIMS)
        return ls_graph_fail(graph, x, "equation: more than %d dimensions", LS_MAX_DIMS);
    rows.dims[rows.ndims++] = seen.dims[0];

    enum ls_status status =
        ls_add_variable(graph, "kernel", &variable, &seen, initializer, &arguments[1]);
    if (!status)
        status = arrange(graph, e->input, order, x, &arguments[0]);
    if (!status)
        status = ls_add_reshape(graph, arguments[0], &rows, &arguments[0]);
    if (!status)
        status = ls_graph_add(graph, LS_OP_DENSE, NULL, arguments, 2, NULL, out);
    if (!status)
        status = ls_add_reshape(graph, *out, &made, out);
    return status ? status : arrange(graph, kept, e->output, *out, out);
}

// The input in the order of what the kernel lacks, then of the kernel; all products; sums.
static enum ls_status multiply_all(struct ls_graph *graph, const struct equation *e,
                                   const struct ls_initializer *initializer, struct ls_tensor *x,
                                   struct ls_tensor **out)
{
    char order[2 * LS_MAX_DIMS + 1] = "", all[2 * LS_MAX_DIMS + 1] = "",
                                 kept[2 * LS_MAX_DIMS + 1] = "";
    const struct ls_shape variable = shape_of(e, e->kernel);
    struct ls_tensor *kernel;
    uint32_t axes = 0;

    pick(e->input, NULL, e->kernel, order);
    strcpy(all, order);
    pick(e->kernel, e->input, NULL, order);
    strcat(all, e->kernel);
    if (strlen(all) > LS_MAX_DIMS)
        return ls_graph_fail(graph, x, "equation: more than %d letters", LS_MAX_DIMS);
    struct ls_shape spread = shape_of(e, all);
    for (uint32_t i = 0; all[i]; i++) {
        if (!has(e->input, all[i]))
            spread.dims[i] = 1;
        if (!has(e->output, all[i]))
            axes |= UINT32_C(1) << i;
    }
    pick(all, e->output, NULL, kept);
    const struct ls_shape made = shape_of(e, kept);
    enum ls_status status = ls_graph_parameter(graph, "kernel", &variable, initializer, &kernel);
    if (!status)
        status = arrange(graph, e->input, order, x, out);
    if (!status)
        status = ls_add_reshape(graph, *out, &spread, out);
    if (!status)
        status = ls_add_pair(graph, LS_PAIR_MULTIPLY, *out, kernel, out);
    if (!status && axes != 0)
        status = ls_add_reduction(graph, LS_REDUCE_TO_SUM, axes, *out, out);
    if (!status)
        status = ls_add_reshape(graph, *out, &made, out);
    return status ? status : arrange(graph, kept, e->output, *out, out);
}

// The bias has the letters that bias_axes names, and 1 for those between and behind them.
static enum ls_status add_bias(struct ls_config *c, const struct equation *e,
                               const struct ls_initializer *initializer, struct ls_tensor *x,
                               struct ls_tensor **out)
{
    const json_t *value = json_object_get(c->object, "bias_axes");
    const char *axes = json_string_value(value);
    struct ls_graph *graph = (struct ls_graph *)c->graph;
    struct ls_shape shape = {.ndims = 0};
    struct ls_tensor *bias;
    size_t first = strlen(e->output);
    char text[64];

    *out = x;
    if (!value || json_is_null(value))
        return LS_OK;
    for (const char *axis = axes; axis && *axis; axis++) {
        const char *at = isalpha((unsigned char)*axis) ? strchr(e->output + 1, *axis) : NULL;
        if (!at) {
            axes = NULL;
            break;
        }
        first = (size_t)(at - e->output) < first ? (size_t)(at - e->output) : first;
    }
    if (!axes || !*axes) {
        ls_config_fail(c, "bias_axes", "expected letters of the output behind the first, got %s",
                       ls_json_text(value, text, sizeof(text)));
        return c->status;
    }
    for (const char *letter = e->output + first; *letter; letter++)
        shape.dims[shape.ndims++] = has(axes, *letter) ? e->sizes[(int)*letter] : 1;
    const enum ls_status status = ls_graph_parameter(graph, "bias", &shape, initializer, &bias);
    return status ? status : ls_add_pair(graph, LS_PAIR_ADD, x, bias, out);
}

static enum ls_status build(struct ls_graph *graph, const struct ls_layer_call *call,
                            struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    struct ls_tensor *x = ls_call_input(call), *y;
    const json_t *text = json_object_get(call->config, "equation"),
                 *sizes = json_object_get(call->config, "output_shape");
    const struct ls_layer_activation activation = ls_config_activation(&c, "activation");
    const struct ls_initializer kernel = ls_config_initializer(&c, "kernel_initializer",
                                                               "glorot_uniform"),
                                bias = ls_config_initializer(&c, "bias_initializer", "zeros");
    struct equation equation;
    char shown[64];

    for (const char *const *key = unsupported; *key; key++)
        ls_config_null(&c, *key);
    if (x && !read_equation(json_string_value(text), &x->shape, &equation))
        ls_config_fail(&c, "equation",
                       "expected \"abc,cd->abd\" with a letter for each of the %u dimensions, that "
                       "of the examples first, and letters that are in two of the three, got %s",
                       x->shape.ndims, ls_json_text(text, shown, sizeof(shown)));
    else if (x && !read_sizes(sizes, &x->shape, &equation))
        ls_config_fail(&c, "output_shape",
                       "expected a size for each letter of the output behind that of the examples, "
                       "null or as the input has it, got %s",
                       ls_json_text(sizes, shown, sizeof(shown)));
    if (c.status || !x)
        return c.status;
    enum ls_status status = is_matrix(&equation) ? multiply_matrix(graph, &equation, &kernel, x, &y)
                                                 : multiply_all(graph, &equation, &kernel, x, &y);
    if (!status)
        status = add_bias(&c, &equation, &bias, y, &y);
    return status ? status : ls_activation_add(graph, &activation, y, outputs);
}

const struct ls_layer_kind ls_layer_einsum_dense = {
    .class_name = "EinsumDense",
    .summary = "input and kernel multiplied and summed as an equation says",
    .keys = keys,
    .build = build,
};
