// SPDX-License-Identifier: Apache-2.0
// SimpleRNN, LSTM, GRU, RNN over cells, and Bidirectional. A cell becomes two operations: the
// product of all steps with its kernel, and the loop over the steps.
#include "layers/convolution.h"

#include "core/base/keras_names.h"

#include <string.h>

enum { MOST_CELLS = 15 }; // one above the other
enum { MASK = 2 }; // its position among the arguments of a call

#define CELL_KEYS                                                                              \
    "units", "activation", "use_bias", "kernel_initializer", "recurrent_initializer",          \
        "bias_initializer", "kernel_regularizer", "recurrent_regularizer", "bias_regularizer", \
        "kernel_constraint", "recurrent_constraint", "bias_constraint", "dropout",             \
        "recurrent_dropout", "seed"
#define LSTM_KEYS CELL_KEYS, "recurrent_activation", "unit_forget_bias", "implementation"
#define GRU_KEYS CELL_KEYS, "recurrent_activation", "reset_after", "implementation"
#define SEQUENCE_KEYS                                                         \
    "return_sequences", "return_state", "go_backwards", "stateful", "unroll", \
        "zero_output_for_mask", "use_cudnn", "time_major"

static const char *const simple_cell_keys[] = {CELL_KEYS, NULL};
static const char *const lstm_cell_keys[] = {LSTM_KEYS, NULL};
static const char *const gru_cell_keys[] = {GRU_KEYS, NULL};
static const char *const simple_keys[] = {CELL_KEYS, SEQUENCE_KEYS, NULL};
static const char *const lstm_keys[] = {LSTM_KEYS, SEQUENCE_KEYS, NULL};
static const char *const gru_keys[] = {GRU_KEYS, SEQUENCE_KEYS, NULL};
static const char *const rnn_keys[] = {"cell", SEQUENCE_KEYS, NULL};
static const char *const stack_keys[] = {"cells", NULL};
static const char *const bidirectional_keys[] = {"layer", "backward_layer", "merge_mode", NULL};
static const char *const arguments[] = {"sequences", "inputs", "initial_state", "mask", NULL};

static const struct {
    const char *layer, *cell;
    uint32_t function; // enum ls_recurrent; of a GRU the one that resets after is the next
    int64_t gates, states;
    const char *const *keys, *const *cell_keys;
} classes[] = {
    {"SimpleRNN", "SimpleRNNCell", LS_RECURRENT_SIMPLE, 1, 1, simple_keys, simple_cell_keys},
    {"LSTM", "LSTMCell", LS_RECURRENT_LSTM, 4, 2, lstm_keys, lstm_cell_keys},
    {"GRU", "GRUCell", LS_RECURRENT_GRU, 3, 1, gru_keys, gru_cell_keys},
};
#define CLASSES (sizeof(classes) / sizeof(classes[0]))

struct cell {
    char name[128]; // what its variables are called behind the layer's name
    const json_t *config;
    uint32_t function; // enum ls_recurrent
    int64_t units, gates, states;
    bool use_bias, forgets; // forgets: the bias of the forget gate begins with 1
    uint32_t activation, recurrent_activation;
    struct ls_initializer kernel, recurrent, bias;
    double dropout, recurrent_dropout;
};

// One direction.
struct sequence {
    struct cell *cells;
    uint32_t cell_count;
    uint32_t states; // of all cells
    bool all, returns_states, backwards, zeros;
};

// ---- Options ----

struct ls_inner_layer ls_config_inner(struct ls_config *config, const char *key,
                                      const json_t *value)
{
    struct ls_inner_layer inner = {.class_name =
                                       json_string_value(json_object_get(value, "class_name")),
                                   .config = json_object_get(value, "config")};
    char text[64];

    if (inner.class_name && json_is_object(inner.config) && !ls_json_is_custom(value)) {
        inner.name = json_string_value(json_object_get(inner.config, "name"));
        inner.name = inner.name ? inner.name : "layer";
        return inner;
    }
    ls_config_fail(config, key, "expected a layer of Keras, got %s",
                   ls_json_text(value, text, sizeof(text)));
    return (struct ls_inner_layer){.class_name = NULL};
}

static uint32_t read_function(struct ls_config *c, const char *key, uint32_t missing)
{
    if (!json_object_get(c->object, key))
        return missing;
    const struct ls_layer_activation activation = ls_config_activation(c, key);
    if (!c->status && (activation.softmax || activation.needs_input || activation.alpha != 0))
        ls_config_fail(c, key,
                       "this activation is not supported in a recurrent layer; take tanh, "
                       "sigmoid, hard_sigmoid, relu, softsign or linear");
    return activation.function;
}

static double read_rate(struct ls_config *c, const char *key)
{
    const double rate = ls_config_number(c, key, 0, 1, 0);
    if ((float)rate >= 1)
        ls_config_fail(c, key, "1 would drop everything; expected a number below 1");
    return rate;
}

static void read_cell(struct ls_config *c, size_t class, struct cell *out)
{
    out->config = c->object;
    out->function = classes[class].function;
    out->gates = classes[class].gates;
    out->states = classes[class].states;
    out->units = ls_config_integer(c, "units", 1, LS_CONFIG_LARGEST / 8, LS_CONFIG_NONE);
    if (out->function == LS_RECURRENT_GRU && ls_config_boolean(c, "reset_after", true))
        out->function = LS_RECURRENT_GRU_RESET_AFTER;
    out->use_bias = ls_config_boolean(c, "use_bias", true);
    out->forgets =
        out->function == LS_RECURRENT_LSTM && ls_config_boolean(c, "unit_forget_bias", true);
    out->activation = read_function(c, "activation", LS_TANH);
    out->recurrent_activation = read_function(c, "recurrent_activation", LS_SIGMOID);
    out->kernel = ls_config_initializer(c, "kernel_initializer", "glorot_uniform");
    out->recurrent = ls_config_initializer(c, "recurrent_initializer", "orthogonal");
    out->bias = ls_config_initializer(c, "bias_initializer", "zeros");
    out->dropout = read_rate(c, "dropout");
    out->recurrent_dropout = read_rate(c, "recurrent_dropout");
    ls_config_seed(c);
}

// {"class_name": "LSTMCell", "config": {...}}; `outer`: the name of the cells that it is one of.
static void read_cell_object(struct ls_config *c, const char *key, const json_t *object,
                             const char *outer, struct cell *out)
{
    const struct ls_inner_layer inner = ls_config_inner(c, key, object);
    struct ls_config own = {.graph = c->graph, .object = inner.config, .parent = key};
    size_t class = 0;

    if (!inner.class_name)
        return;
    while (class < CLASSES && strcmp(classes[class].cell, inner.class_name) != 0)
        class ++;
    if (class == CLASSES) {
        ls_config_fail(c, key,
                       "the cell %.60s is not supported; supported: SimpleRNNCell, LSTMCell, "
                       "GRUCell, StackedRNNCells",
                       inner.class_name);
        return;
    }
    snprintf(out->name, sizeof(out->name), "%s%s%s", outer ? outer : "", outer ? "/" : "",
             inner.name);
    ls_config_check(&own, classes[class].cell_keys);
    read_cell(&own, class, out);
    c->status = c->status ? c->status : own.status;
}

static void read_cells(struct ls_config *c, struct sequence *out)
{
    const json_t *cell = json_object_get(c->object, "cell");
    const char *class_name = json_string_value(json_object_get(cell, "class_name"));

    if (!class_name || strcmp(class_name, "StackedRNNCells") != 0) {
        out->cell_count = 1;
        read_cell_object(c, "cell", cell, NULL, out->cells);
        return;
    }
    const struct ls_inner_layer stack = ls_config_inner(c, "cell", cell);
    struct ls_config own = {.graph = c->graph, .object = stack.config, .parent = "cell"};
    const json_t *list = json_object_get(stack.config, "cells");
    if (!stack.class_name)
        return;
    ls_config_check(&own, stack_keys);
    const size_t count = json_array_size(list);
    if (count < 1 || count > MOST_CELLS)
        ls_config_fail(c, "cell.cells", "expected 1 to %d cells, got %zu", MOST_CELLS, count);
    for (size_t i = 0; i < count && count <= MOST_CELLS; i++)
        read_cell_object(c, "cell.cells", json_array_get(list, i), stack.name, &out->cells[i]);
    out->cell_count = (uint32_t)count;
    c->status = c->status ? c->status : own.status;
}

// A layer that is one direction: its own cell, or `cell`.
static void read_sequence(struct ls_config *c, const char *class_name, struct sequence *out)
{
    size_t class = 0;
    while (class < CLASSES && strcmp(classes[class].layer, class_name) != 0)
        class ++;
    if (class < CLASSES) {
        out->cell_count = 1;
        ls_keras_snake_case(classes[class].cell, out->cells->name, sizeof(out->cells->name));
        read_cell(c, class, out->cells);
    } else {
        read_cells(c, out);
    }
    out->all = ls_config_boolean(c, "return_sequences", false);
    out->returns_states = ls_config_boolean(c, "return_state", false);
    out->backwards = ls_config_boolean(c, "go_backwards", false);
    out->zeros = ls_config_boolean(c, "zero_output_for_mask", false);
    if (ls_config_boolean(c, "stateful", false))
        ls_config_fail(c, "stateful",
                       "states are not kept from one batch to the next; set it to false, and "
                       "pass initial_state");
    if (ls_config_boolean(c, "time_major", false))
        ls_config_fail(c, "time_major", "sequences are batch x steps x features; set it to false");
    for (uint32_t i = 0; i < out->cell_count && i < MOST_CELLS; i++)
        out->states += (uint32_t)out->cells[i].states;
}

// ---- Operations ----

struct ls_tensor *ls_call_mask(const struct ls_layer_call *call, size_t position)
{
    struct ls_tensor *mask = ls_call_tensor(call, ls_call_argument(call, position, "mask"));
    return mask || call->input_count > 1 ? mask : call->inputs[0]->mask;
}

// The tensors of a call that are states: all but the first and an argument `mask`.
static uint32_t find_states(const struct ls_layer_call *call,
                            struct ls_tensor *states[static LS_LAYER_INPUTS])
{
    const struct ls_tensor *mask = ls_call_tensor(call, ls_call_argument(call, MASK, "mask"));
    uint32_t count = 0;
    for (uint32_t i = 1; i < call->input_count; i++)
        if (call->inputs[i] != mask)
            states[count++] = call->inputs[i];
    return count;
}

static enum ls_status add_parameters(struct ls_graph *graph, const struct cell *cell,
                                     int64_t features, struct ls_tensor *out[3])
{
    const int64_t all = cell->gates * cell->units;
    const bool after = cell->function == LS_RECURRENT_GRU_RESET_AFTER;
    const struct ls_shape kernel = {.ndims = 2, .dims = {features, all}};
    const struct ls_shape recurrent = {.ndims = 2, .dims = {cell->units, all}};
    const struct ls_shape bias = {.ndims = after ? 2 : 1, .dims = {after ? 2 : all, all}};
    struct ls_initializer first = cell->bias;

    if (cell->forgets) {
        first.ones_from = cell->units;
        first.ones_to = 2 * cell->units;
    }
    enum ls_status status = ls_graph_parameter(graph, "kernel", &kernel, &cell->kernel, &out[0]);
    if (!status)
        status =
            ls_graph_parameter(graph, "recurrent_kernel", &recurrent, &cell->recurrent, &out[1]);
    if (!status && cell->use_bias)
        return ls_graph_parameter(graph, "bias", &bias, &first, &out[2]);
    return status ? status : ls_graph_constant(graph, "no_bias", &bias, 0, &out[2]);
}

// The first states of a cell, (B, S, U): those given, (B, U) each, or a constant.
static enum ls_status add_start(struct ls_graph *graph, const struct cell *cell,
                                struct ls_tensor *const *given, struct ls_tensor **out)
{
    const struct ls_shape none = {.ndims = 3, .dims = {1, cell->states, cell->units}};
    const struct ls_shape one = {.ndims = 3, .dims = {LS_BATCH, 1, cell->units}};
    struct ls_tensor *states[2] = {NULL};

    // Always made: other calls of the layer may be given no states.
    enum ls_status status = ls_graph_constant(graph, "start", &none, 0, out);
    if (!given)
        return status;
    for (int64_t i = 0; i < cell->states && !status; i++) {
        if (given[i]->shape.ndims != 2 || given[i]->shape.dims[1] != cell->units)
            return ls_graph_fail(graph, given[i], "initial_state: expected states of %lld units",
                                 (long long)cell->units);
        status = ls_add_reshape(graph, given[i], &one, &states[i]);
    }
    return status ? status : ls_add_concatenation(graph, states, (uint32_t)cell->states, 1, out);
}

// x (B, T, features) -> y of LS_OP_RECURRENT, with `flags` for its `sequence`
static enum ls_status run_cell(struct ls_graph *graph, const struct cell *cell, bool inference,
                               struct ls_tensor *x, struct ls_tensor *mask,
                               struct ls_tensor *const *given, uint32_t flags,
                               struct ls_tensor **out)
{
    struct ls_op_attributes attributes = {.function = cell->function,
                                          .activation = cell->activation,
                                          .recurrent_activation = cell->recurrent_activation,
                                          .sequence = flags};
    struct ls_op_attributes dropout = {.rate = (float)cell->dropout, .axes = {0, 1}};
    struct ls_tensor *variables[3], *all[5] = {NULL};

    enum ls_status status = add_parameters(graph, cell, x->shape.dims[2], variables);
    if (!status && dropout.rate > 0 && !inference) { // the same features of all steps
        dropout.key = graph->dropout_count++;
        status = ls_graph_add(graph, LS_OP_DROPOUT, &dropout, &x, 1, NULL, &x);
    }
    struct ls_tensor *product[2] = {x, variables[0]};
    if (!status)
        status = ls_graph_add(graph, LS_OP_DENSE, NULL, product, 2, NULL, &all[0]);
    all[1] = variables[1];
    all[2] = variables[2];
    if (!status)
        status = add_start(graph, cell, given, &all[3]);
    if (status)
        return status;
    if (cell->recurrent_dropout > 0 && !inference) {
        attributes.rate = (float)cell->recurrent_dropout;
        attributes.key = graph->dropout_count++;
    }
    all[4] = mask;
    return ls_graph_add(graph, LS_OP_RECURRENT, &attributes, all, mask ? 5 : 4, NULL, out);
}

// Rows first .. first + count of y (B, N, U); `whole`: they stay rows, else (B, U).
static enum ls_status take_rows(struct ls_graph *graph, struct ls_tensor *y, int64_t first,
                                int64_t count, bool whole, struct ls_tensor **out)
{
    const struct ls_op_attributes attributes = {.axes = {0, (int32_t)first}};
    const struct ls_shape rows = {.ndims = 3, .dims = {LS_BATCH, count, y->shape.dims[2]}};
    const struct ls_shape vector = {.ndims = 2, .dims = {LS_BATCH, y->shape.dims[2]}};
    enum ls_status status = LS_OK;

    *out = y;
    if (count < y->shape.dims[1])
        status = ls_graph_add(graph, LS_OP_SLICE, &attributes, &y, 1, &rows, out);
    return status || whole ? status : ls_add_reshape(graph, *out, &vector, out);
}

// One direction, from the lowest cell to the highest: outputs[0], and where they are asked for the
// states of all cells. `prefix` NULL: none, else what names of variables begin with. `in_time`: the
// outputs of all steps are in the order of time, whichever was first.
static enum ls_status run_sequence(struct ls_graph *graph, const struct sequence *s,
                                   const char *prefix, bool in_time,
                                   const struct ls_layer_call *call, struct ls_tensor *const *given,
                                   struct ls_tensor **outputs)
{
    struct ls_tensor *x = call->inputs[0], *mask = ls_call_mask(call, MASK), *y;
    const char *outer = graph->part; // of a layer that has this one inside
    const uint32_t direction = s->backwards ? LS_SEQUENCE_BACKWARDS : 0;
    enum ls_status status = LS_OK;
    uint32_t made = 1, taken = 0;

    for (uint32_t i = 0; i < s->cell_count && !status; i++) {
        const struct cell *cell = &s->cells[i];
        const bool last = i + 1 == s->cell_count, all = !last || s->all;
        const uint32_t flags = direction | (all ? LS_SEQUENCE_ALL : 0) |
                               (s->returns_states ? LS_SEQUENCE_STATES : 0) |
                               (!last || in_time ? LS_SEQUENCE_IN_TIME : 0) |
                               (last && s->zeros ? LS_SEQUENCE_ZEROS : 0);
        const uint32_t first = graph->parameter_count;
        char name[420];
        snprintf(name, sizeof(name), "%s%s%s%s%s", outer ? outer : "", outer ? "/" : "",
                 prefix ? prefix : "", prefix ? "/" : "", cell->name);
        graph->part = name;
        status = run_cell(graph, cell, call->inference, x, mask, given ? given + taken : NULL,
                          flags, &y);
        graph->part = outer;
        ls_add_regularizers(graph, cell->config, first);
        taken += (uint32_t)cell->states;
        if (status)
            return status;
        const int64_t rows = y->shape.dims[1] - (s->returns_states ? cell->states : 0);
        for (int64_t k = 0; k < cell->states && s->returns_states && !status; k++)
            status = take_rows(graph, y, rows + k, 1, false, &outputs[made++]);
        if (!status)
            status = take_rows(graph, y, 0, rows, all, &x);
    }
    outputs[0] = x;
    if (!status && s->all)
        x->mask = call->inputs[0]->mask;
    return status;
}

static enum ls_status check_input(const struct ls_graph *graph, const struct ls_layer_call *call,
                                  uint32_t states, uint32_t given)
{
    const struct ls_tensor *x = call->inputs[0], *mask = ls_call_mask(call, MASK);
    if (x->shape.ndims != 3)
        return ls_graph_fail(graph, x, "expected 3 dimensions: batch, steps, features");
    if (given != 0 && given != states)
        return ls_graph_fail(graph, x, "initial_state: expected %u tensors, got %u", states, given);
    if (mask && (mask->shape.ndims != 2 || mask->shape.dims[1] != x->shape.dims[1]))
        return ls_graph_fail(graph, mask, "mask: expected a number for each step");
    return LS_OK;
}

static bool is_frozen(const struct sequence *s)
{
    bool frozen = s->cell_count > 0;
    for (uint32_t i = 0; i < s->cell_count; i++)
        frozen = frozen && json_is_false(json_object_get(s->cells[i].config, "trainable"));
    return frozen;
}

// ---- SimpleRNN, LSTM, GRU, RNN ----

static enum ls_status build(struct ls_graph *graph, const struct ls_layer_call *call,
                            struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    struct cell cells[MOST_CELLS] = {{{0}}};
    struct sequence s = {.cells = cells};

    read_sequence(&c, call->kind->class_name, &s);
    if (c.status || !call->inputs)
        return c.status;
    struct ls_tensor *states[LS_LAYER_INPUTS];
    const uint32_t given = find_states(call, states);
    const enum ls_status status = check_input(graph, call, s.states, given);
    if (status)
        return status;
    if (is_frozen(&s))
        ls_graph_freeze_layer(graph);
    return run_sequence(graph, &s, NULL, false, call, given ? states : NULL, outputs);
}

#define RECURRENT(class_name_, summary_, keys_)                                   \
    {                                                                             \
        .class_name = class_name_, .summary = summary_, .least_inputs = 1,        \
        .most_inputs = 2 + 2 * MOST_CELLS, .keys = keys_, .arguments = arguments, \
        .mask = LS_MASK_OWN, .build = build                                       \
    }

const struct ls_layer_kind ls_layer_simple_rnn =
    RECURRENT("SimpleRNN", "a fully connected recurrent layer", simple_keys);
const struct ls_layer_kind ls_layer_lstm = RECURRENT("LSTM", "long short-term memory", lstm_keys);
const struct ls_layer_kind ls_layer_gru = RECURRENT("GRU", "gated recurrent units", gru_keys);
const struct ls_layer_kind ls_layer_rnn =
    RECURRENT("RNN", "recurrent cells, one above the other", rnn_keys);

// ---- Bidirectional ----

enum merge { CONCAT, SUM, MUL, AVE, NONE };

static enum merge read_merge(struct ls_config *c)
{
    static const char *const names[] = {"concat", "sum", "mul", "ave", NULL};
    const json_t *value = json_object_get(c->object, "merge_mode");
    char text[64];

    if (!value)
        return CONCAT;
    if (json_is_null(value))
        return NONE;
    for (int i = 0; names[i]; i++)
        if (json_is_string(value) && strcmp(json_string_value(value), names[i]) == 0)
            return (enum merge)i;
    ls_config_fail(c, "merge_mode", "expected concat, sum, mul, ave or null, got %s",
                   ls_json_text(value, text, sizeof(text)));
    return CONCAT;
}

static void read_direction(struct ls_config *c, const char *key, const struct ls_inner_layer *inner,
                           struct sequence *out)
{
    struct ls_config own = {.graph = c->graph, .object = inner->config, .parent = key};
    const bool rnn = inner->class_name && strcmp(inner->class_name, "RNN") == 0;
    size_t class = 0;

    if (!inner->class_name)
        return;
    while (class < CLASSES && strcmp(classes[class].layer, inner->class_name) != 0)
        class ++;
    if (class == CLASSES && !rnn) {
        ls_config_fail(c, key, "expected SimpleRNN, LSTM, GRU or RNN, got %.60s",
                       inner->class_name);
        return;
    }
    ls_config_check(&own, rnn ? rnn_keys : classes[class].keys);
    read_sequence(&own, inner->class_name, out);
    out->zeros = out->all;
    c->status = c->status ? c->status : own.status;
}

static enum ls_status merge(struct ls_graph *graph, enum merge mode, struct ls_tensor *forward,
                            struct ls_tensor *backward, struct ls_tensor **out)
{
    struct ls_tensor *both[2] = {forward, backward};
    enum ls_status status;

    switch (mode) {
    case CONCAT: return ls_add_concatenation(graph, both, 2, forward->shape.ndims - 1, out);
    case MUL: return ls_add_pair(graph, LS_PAIR_MULTIPLY, forward, backward, out);
    default: status = ls_add_pair(graph, LS_PAIR_ADD, forward, backward, out);
    }
    return status || mode == SUM ? status : ls_add_scale(graph, 0.5, 0, *out, out);
}

// The outputs in Keras's order: merged or both, the states of the first, those of the second.
static enum ls_status join(struct ls_graph *graph, enum merge mode, uint32_t states,
                           struct ls_tensor *const *forward, struct ls_tensor *const *backward,
                           struct ls_tensor **outputs)
{
    const uint32_t first = mode == NONE ? 2 : 1;
    struct ls_tensor *mask = forward[0]->mask;
    enum ls_status status = LS_OK;

    outputs[0] = forward[0];
    outputs[1] = mode == NONE ? backward[0] : NULL;
    if (mode != NONE)
        status = merge(graph, mode, forward[0], backward[0], &outputs[0]);
    for (uint32_t i = 0; i < states; i++) {
        outputs[first + i] = forward[1 + i];
        outputs[first + states + i] = backward[1 + i];
    }
    if (!status)
        outputs[0]->mask = mask;
    return status;
}

// The second layer: its own configuration, or that of the first one the other way round.
static struct ls_inner_layer second_layer(struct ls_config *c, const struct ls_inner_layer *first,
                                          bool *turned)
{
    const json_t *value = json_object_get(c->object, "backward_layer");
    *turned = !value || json_is_null(value);
    return *turned ? *first : ls_config_inner(c, "backward_layer", value);
}

static enum ls_status build_directions(struct ls_graph *graph, const struct ls_layer_call *call,
                                       enum merge mode, const struct sequence *directions,
                                       char names[2][130], struct ls_tensor **outputs)
{
    struct ls_tensor *made[2][LS_LAYER_OUTPUTS] = {{NULL}}, *starts[LS_LAYER_INPUTS];
    const uint32_t states = directions[0].states, given = find_states(call, starts);
    enum ls_status status = check_input(graph, call, 2 * states, given);

    if (!status && (directions[1].all != directions[0].all || directions[1].states != states ||
                    directions[1].returns_states != directions[0].returns_states))
        status = ls_graph_fail(graph, call->inputs[0],
                               "backward_layer: it must return what the other layer returns");
    if (!status && (directions[0].backwards || !directions[1].backwards))
        status = ls_graph_fail(graph, call->inputs[0],
                               "backward_layer: only one that goes backwards, beside a layer that "
                               "does not, is supported");
    if (!status && is_frozen(&directions[0]) != is_frozen(&directions[1]))
        status = ls_graph_fail(graph, call->inputs[0],
                               "backward_layer: both layers must be trained, or none");
    if (!status && is_frozen(&directions[0]))
        ls_graph_freeze_layer(graph);
    for (uint32_t i = 0; i < 2 && !status; i++)
        status = run_sequence(graph, &directions[i], names[i], i == 1, call,
                              given ? starts + i * states : NULL, made[i]);
    if (status)
        return status;
    return join(graph, mode, directions[0].returns_states ? states : 0, made[0], made[1], outputs);
}

static enum ls_status build_bidirectional(struct ls_graph *graph, const struct ls_layer_call *call,
                                          struct ls_tensor **outputs)
{
    struct ls_config c = {.graph = graph, .object = call->config};
    struct cell cells[2][MOST_CELLS] = {{{{0}}}};
    struct sequence directions[2] = {{.cells = cells[0]}, {.cells = cells[1]}};
    char names[2][130];
    bool turned;
    const enum merge mode = read_merge(&c);
    const struct ls_inner_layer first =
        ls_config_inner(&c, "layer", json_object_get(call->config, "layer"));
    const struct ls_inner_layer second = second_layer(&c, &first, &turned);

    read_direction(&c, "layer", &first, &directions[0]);
    if (!c.status)
        read_direction(&c, turned ? "layer" : "backward_layer", &second, &directions[1]);
    if (c.status || !call->inputs)
        return c.status;
    if (turned)
        directions[1].backwards = !directions[1].backwards;
    const char *plain = strncmp(first.name, "forward_", 8) == 0 ? first.name + 8 : first.name;
    snprintf(names[0], sizeof(names[0]), "forward_%.120s", plain);
    if (turned)
        snprintf(names[1], sizeof(names[1]), "backward_%.120s", plain);
    else
        snprintf(names[1], sizeof(names[1]), "%.129s", second.name);
    return build_directions(graph, call, mode, directions, names, outputs);
}

const struct ls_layer_kind ls_layer_bidirectional = {
    .class_name = "Bidirectional",
    .summary = "a recurrent layer in both directions",
    .least_inputs = 1,
    .most_inputs = 2 + 4 * MOST_CELLS,
    .mask = LS_MASK_OWN,
    .keys = bidirectional_keys,
    .arguments = arguments,
    .build = build_bidirectional,
};
