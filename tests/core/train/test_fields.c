// SPDX-License-Identifier: Apache-2.0
// Data of several fields through a session: a model of two inputs is trained as the model is that
// reads both as one.
#include "tests/core/train/fixture.h"

#define EXAMPLES 22
#define LEFT 5
#define RIGHT 3
#define CLASSES 4
#define ROUNDING 1e-6 // sums of float32 in another order

static uint8_t left[EXAMPLES][LEFT];
static int32_t right[EXAMPLES][RIGHT];
static float both[EXAMPLES][LEFT + RIGHT]; // left / 16, right
static int32_t labels[EXAMPLES];
static float weights[EXAMPLES];

static void fill(void)
{
    for (int i = 0; i < EXAMPLES; i++) {
        for (int k = 0; k < LEFT; k++) {
            left[i][k] = (uint8_t)((i * 7 + k * k * 5) % 16);
            both[i][k] = (float)left[i][k] / 16;
        }
        for (int k = 0; k < RIGHT; k++)
            both[i][LEFT + k] = (float)(right[i][k] = (i * 3 + k * 2) % 5 - 2);
        labels[i] = (left[i][0] / 8 + 2 * (right[i][0] > 0)) % CLASSES;
        weights[i] = (float)i / 2;
    }
}

static const struct ls_field left_field = {.name = "left",
                                           .role = LS_FIELD_INPUT,
                                           .dtype = LS_U8,
                                           .ndims = 1,
                                           .dims = {LEFT},
                                           .divisor = 16,
                                           .values = left,
                                           .stride = LEFT};
static const struct ls_field right_field = {.name = "right",
                                            .role = LS_FIELD_INPUT,
                                            .dtype = LS_I32,
                                            .ndims = 1,
                                            .dims = {RIGHT},
                                            .divisor = 1,
                                            .values = right,
                                            .stride = sizeof(right[0])};
static const struct ls_field both_field = {.name = "both",
                                           .role = LS_FIELD_INPUT,
                                           .dtype = LS_F32,
                                           .ndims = 1,
                                           .dims = {LEFT + RIGHT},
                                           .divisor = 1,
                                           .values = both,
                                           .stride = sizeof(both[0])};
static const struct ls_field label_field = {.name = "label",
                                            .role = LS_FIELD_TARGET,
                                            .dtype = LS_I32,
                                            .divisor = 1,
                                            .class_count = CLASSES,
                                            .values = labels,
                                            .stride = sizeof(labels[0])};
static const struct ls_field weight_field = {.name = "weight",
                                             .role = LS_FIELD_WEIGHT,
                                             .dtype = LS_F32,
                                             .divisor = 1,
                                             .values = weights,
                                             .stride = sizeof(weights[0])};

static void close_nothing(struct ls_dataset *dataset)
{
    free(dataset);
}

// As if it had been read.
static struct ls_data *data_in_memory(const struct ls_field *fields, uint32_t count)
{
    struct ls_data *data = calloc(1, sizeof(*data));
    struct ls_dataset *dataset = calloc(1, sizeof(*dataset));
    dataset->count = EXAMPLES;
    dataset->field_count = count;
    dataset->close = close_nothing;
    memcpy(dataset->fields, fields, count * sizeof(*fields));
    data->info = (struct ls_dataset_info){.count = EXAMPLES, .field_count = count};
    memcpy(data->info.fields, fields, count * sizeof(*fields));
    data->holders = 1;
    data->text = strdup("memory");
    data->name = strdup("memory");
    data->dataset = dataset;
    pthread_mutex_init(&data->lock, NULL);
    return data;
}

// Dense without bias.
static struct ls_tensor *dense(struct ls_graph *graph, const char *name, struct ls_tensor *x,
                               int64_t size)
{
    static const struct ls_initializer zeros = {.kind = LS_ZEROS};
    struct ls_tensor *inputs[2] = {x}, *y;
    OK(ls_graph_begin_layer(graph, name, "Dense"));
    OK(ls_graph_parameter(graph, "kernel", &(struct ls_shape){.ndims = 2, .dims = {size, CLASSES}},
                          &zeros, &inputs[1]));
    OK(ls_graph_add(graph, LS_OP_DENSE, NULL, inputs, 2, NULL, &y));
    ls_graph_end_layer(graph, y);
    return y;
}

static struct ls_tensor *input_of(struct ls_graph *graph, int64_t size)
{
    struct ls_tensor *input;
    OK(ls_graph_input(graph, &(struct ls_shape){.ndims = 1, .dims = {size}}, &input));
    return input;
}

static float first_weight(uint64_t index)
{
    return (float)(index * 29 % 17) / 17 - 0.5f;
}

// A model of two inputs whose terms are added, or of one that is both.
static struct ls_model *new_weighted(struct ls_run *on, bool apart, bool weighted)
{
    const struct ls_layer layers[] = {LS_INPUT(LEFT), LS_DENSE(CLASSES), LS_END};
    const struct ls_loss loss = {
        .kind = LS_LOSS_SPARSE_CROSS_ENTROPY, .from_logits = true, .weighted = weighted};
    struct ls_model *model = NULL;
    struct ls_graph *graph;
    OK(ls_sequential_create(on, "two", layers, &model));
    OK(ls_compile(model, &(struct ls_compile_options){.optimizer = "sgd:learning_rate=0.2"}));
    OK(ls_graph_create("two", &graph));
    if (apart) {
        struct ls_tensor *terms[2] = {input_of(graph, LEFT), input_of(graph, RIGHT)}, *sum;
        terms[0] = dense(graph, "one", terms[0], LEFT);
        terms[1] = dense(graph, "other", terms[1], RIGHT);
        OK(ls_graph_begin_layer(graph, "add", "Add"));
        OK(ls_graph_add(graph, LS_OP_ADD, NULL, terms, 2, NULL, &sum));
        ls_graph_end_layer(graph, sum);
    } else {
        dense(graph, "one", input_of(graph, LEFT + RIGHT), LEFT + RIGHT);
    }
    OK(ls_graph_add_loss(graph, &loss));
    OK(ls_graph_differentiate(graph));
    ls_graph_destroy(model->graph);
    model->graph = graph;
    model->loss = (struct ls_loss_set){.list = {loss}, .count = 1};
    OK(ls_model_need_weights(model));
    for (uint64_t i = 0; i < LEFT * CLASSES; i++)
        model->weights[0][i] = first_weight(i);
    for (uint64_t i = LEFT * CLASSES; i < (LEFT + RIGHT) * CLASSES; i++)
        (apart ? model->weights[1] - LEFT * CLASSES : model->weights[0])[i] = first_weight(i);
    return model;
}

static struct ls_model *new_model(struct ls_run *on, bool apart)
{
    return new_weighted(on, apart, false);
}

// Uneven shares, and in the last batch of an epoch (2 examples) empty ones.
LOOP_TEST(two_inputs_train_as_one_that_is_both, 0, 4)
{
    static const char *const strategies[] = {"ring", "central-storage",
                                             "parameter-server:mode=sync", "ring"};
    const char *const device = _i == 3 ? "cpu" : "reference";
    const struct ls_run_options options = {
        .strategy = strategies[_i], .device = device, .replicas = 3, .threads = 1, .seed = 5};
    const struct ls_field fields[] = {left_field, right_field, label_field};
    const struct ls_field whole[] = {both_field, label_field};
    struct ls_data *two = data_in_memory(fields, 3), *one = data_in_memory(whole, 2);
    struct ls_run *three;
    OK(ls_run_open(&options, &three));
    struct ls_model *apart = new_model(three, true), *together = new_model(run, false);
    const struct ls_fit_options fit = {.batch = 5, .epochs = 3};
    struct ls_scores a, b;
    size_t count, same;
    OK(ls_fit(apart, two, &(struct ls_fit_options){.batch = 5, .epochs = 3, .validation = two}));
    OK(ls_fit(together, one, &fit));
    const float *losses = ls_fit_losses(apart, &count), *expected = ls_fit_losses(together, &same);
    ck_assert_uint_eq(count, 15);
    ck_assert_uint_eq(same, 15);
    for (size_t i = 0; i < count; i++)
        ck_assert_double_eq_tol(losses[i], expected[i], ROUNDING);
    OK(ls_evaluate(apart, two, 0, &a));
    OK(ls_evaluate(together, one, 0, &b));
    ck_assert_double_eq_tol(ls_metric_value(&a.metrics, "loss"),
                            ls_metric_value(&b.metrics, "loss"), ROUNDING);
    ck_assert_double_lt(ls_metric_value(&a.metrics, "loss"), losses[0]); // something was learnt
    OK(ls_model_take(apart, LS_TAKE_ALL));
    OK(ls_model_take(together, LS_TAKE_ALL));
    for (uint64_t i = 0; i < (LEFT + RIGHT) * CLASSES; i++)
        ck_assert_double_eq_tol(i < LEFT * CLASSES ? apart->weights[0][i]
                                                   : apart->weights[1][i - LEFT * CLASSES],
                                together->weights[0][i], ROUNDING);
    ls_model_close(apart);
    ls_model_close(together);
    ls_run_close(three);
    ls_data_close(two);
    ls_data_close(one);
}

static void refuse(struct ls_model *model, const struct ls_field *fields, uint32_t count,
                   enum ls_status status, const char *text)
{
    struct ls_data *data = data_in_memory(fields, count);
    struct ls_scores scores;
    expect_error(ls_fit(model, data, NULL), status, text);
    expect_error(ls_evaluate(model, data, 0, &scores), status, text);
    ls_data_close(data);
}

TEST(fields_that_do_not_fit_are_refused_by_name)
{
    struct ls_model *model = new_model(run, true);
    struct ls_field fields[] = {left_field, right_field, right_field, label_field};
    refuse(model, (struct ls_field[]){left_field, label_field}, 2, LS_BAD_INPUT,
           "model 'two' has 2 inputs, but dataset 'memory' has 1 (left)");
    refuse(model, fields, 4, LS_BAD_INPUT,
           "model 'two' has 2 inputs, but dataset 'memory' has 3 (left, right, right)");
    refuse(
        model, (struct ls_field[]){right_field, left_field, label_field}, 3, LS_BAD_INPUT,
        "model 'two' expects input 'input' (None, 5), but field 'right' of 'memory' is (None, 3)");
    refuse(model, (struct ls_field[]){left_field, right_field}, 2, LS_USAGE,
           "dataset 'memory' has no targets to compare the output of model 'two' with");
    fields[2] = label_field;
    fields[2].ndims = 1;
    fields[2].dims[0] = 2;
    refuse(model, fields, 3, LS_BAD_INPUT,
           "expects labels (None,), but field 'label' of 'memory' is (None, 2)");
    fields[2] = label_field;
    model->graph->inputs[0]->dtype = LS_I32;
    fields[0].dtype = LS_F32;
    refuse(model, fields, 3, LS_BAD_INPUT,
           "expects input 'input' as int32, but field 'left' of 'memory' is float32");
    ls_model_close(model);
}

// What replicas are handed.
TEST(weights_reach_the_replicas)
{
    const struct ls_field fields[] = {left_field, right_field, label_field, weight_field};
    struct ls_data *data = data_in_memory(fields, 4);
    struct ls_model *model = new_weighted(run, true, true);
    OK(ls_fit(model, data, &(struct ls_fit_options){.batch = 5, .steps = 1, .shuffle = "off"}));
    for (int first = 5; first < EXAMPLES; first += 5) {
        struct ls_replica_batch batch;
        OK(ls_session_next(model->session, 0, &batch, NULL));
        ck_assert_uint_eq(batch.count, first + 5 <= EXAMPLES ? 5 : 2);
        ck_assert_mem_eq(batch.weights, weights + first, batch.count * sizeof(float));
        ck_assert_mem_eq(batch.labels[0], labels + first, batch.count * sizeof(labels[0]));
        for (uint64_t k = 0; k < batch.count; k++)
            for (int e = 0; e < RIGHT; e++)
                ck_assert(((const float *)batch.inputs[1])[k * RIGHT + (uint64_t)e] ==
                          (float)right[(uint64_t)first + k][e]);
    }
    ls_model_close(model);
    ls_data_close(data);
}

// ---- From memory ----

// The same arrays, copied by the public call, of other types of the same values.
TEST(arrays_of_a_program_train_as_fields_do)
{
    static int64_t wide[EXAMPLES], place[EXAMPLES][RIGHT];
    static double precise[EXAMPLES][LEFT];
    for (int i = 0; i < EXAMPLES; i++) {
        wide[i] = labels[i];
        for (int k = 0; k < LEFT; k++)
            precise[i][k] = both[i][k];
        for (int k = 0; k < RIGHT; k++)
            place[i][k] = right[i][k];
    }
    const struct ls_array inputs[] = {{"float64", 2, {EXAMPLES, LEFT}, precise},
                                      {"int64", 2, {EXAMPLES, RIGHT}, place}};
    const struct ls_array target = {"int64", 1, {EXAMPLES}, wide};
    const struct ls_field fields[] = {left_field, right_field, label_field};
    struct ls_data *copied, *same = data_in_memory(fields, 3);
    OK(ls_data_from_memory(inputs, 2, &target, &copied));
    ck_assert_uint_eq(ls_data_count(copied), EXAMPLES);
    ck_assert_int_eq(strncmp(copied->text, "memory:hash=", 12), 0);
    ck_assert_uint_eq(copied->info.fields[2].class_count, CLASSES);
    memset(wide, 0xee, sizeof(wide)); // the call has copied them
    memset(precise, 0xee, sizeof(precise));
    memset(place, 0xee, sizeof(place));
    struct ls_model *a = new_model(run, true), *b = new_model(run, true);
    OK(ls_fit(a, copied, &(struct ls_fit_options){.batch = 5, .epochs = 2, .shuffle = "off"}));
    OK(ls_fit(b, same, &(struct ls_fit_options){.batch = 5, .epochs = 2, .shuffle = "off"}));
    ck_assert_double_eq(weight_difference(a, b), 0);
    ls_model_close(a);
    ls_model_close(b);
    ls_data_close(copied);
    ls_data_close(same);
}

TEST(arrays_that_are_none_are_refused)
{
    const struct ls_array x = {"float32", 2, {EXAMPLES, LEFT + RIGHT}, both};
    const struct ls_array many[] = {x, x, x, x, x, x, x, x, x};
    struct ls_array other = x;
    struct ls_data *data = NULL;
    expect_error(ls_data_from_memory(NULL, 1, NULL, &data), LS_USAGE, "expected 1 to 8");
    expect_error(ls_data_from_memory(&x, 0, NULL, &data), LS_USAGE, "0 inputs");
    expect_error(ls_data_from_memory(many, 9, NULL, &data), LS_USAGE, "9 inputs");
    other.dtype = "float16";
    expect_error(ls_data_from_memory(&other, 1, NULL, &data), LS_BAD_INPUT,
                 "input 0: dtype 'float16'; expected bool, uint8");
    other = x;
    other.dtype = NULL;
    expect_error(ls_data_from_memory(&other, 1, NULL, &data), LS_BAD_INPUT, "dtype ''");
    other = x;
    other.values = NULL;
    expect_error(ls_data_from_memory(&other, 1, NULL, &data), LS_BAD_INPUT, "has no values");
    other = x;
    other.dims[0] = EXAMPLES - 1;
    expect_error(ls_data_from_memory((struct ls_array[]){x, other}, 2, NULL, &data), LS_BAD_INPUT,
                 "input 1 has 21 examples, but input 0 has 22");
    expect_error(ls_data_from_memory(&x, 1, &other, &data), LS_BAD_INPUT,
                 "the target has 21 examples");
    other = x;
    other.ndims = 0;
    expect_error(ls_data_from_memory(&other, 1, NULL, &data), LS_BAD_INPUT, "0 dimensions");
    other.ndims = 7;
    expect_error(ls_data_from_memory(&other, 1, NULL, &data), LS_BAD_INPUT, "7 dimensions");
    other = x;
    other.dims[1] = INT64_MAX;
    expect_error(ls_data_from_memory(&other, 1, NULL, &data), LS_BAD_INPUT, "too many values");
    other.dims[1] = -3;
    expect_error(ls_data_from_memory(&other, 1, NULL, &data), LS_BAD_INPUT, "dimension 1 is -3");
    ck_assert_ptr_null(data);
}

// ---- Splits, and inputs that a model may do without ----

TEST(there_may_be_no_validation)
{
    char path[64], text[160];
    struct ls_data *data = (void *)path;
    snprintf(path, sizeof(path), "/tmp/lockstep-text-%ld", (long)getpid());
    FILE *file = fopen(path, "w");
    for (int i = 0; i < 60; i++)
        fputc("abcd"[i * i % 7 % 4], file);
    ck_assert_int_eq(fclose(file), 0);
    snprintf(text, sizeof(text), "text:file=%s,length=%d,stride=2", path, LEFT);
    OK(ls_data_open(text, "validation", &data));
    ck_assert_ptr_null(data);
    strcat(text, ",validation_split=0.5");
    OK(ls_data_open(text, "validation", &data));
    ck_assert_uint_eq(ls_data_count(data), 14); // of (60 - 1 - 5) / 2 + 1
    ls_data_close(data);
    expect_error(ls_data_open(text, "valid", &data), LS_USAGE, "train, test, validation");
    // The places are delivered to a model of two inputs, and not to one of one.
    OK(ls_data_open(text, "train", &data));
    for (int inputs = 1; inputs <= 2; inputs++) {
        struct ls_model *model = new_model(run, true);
        struct ls_replica_batch batch;
        struct ls_graph *graph;
        struct ls_tensor *x, *sum;
        OK(ls_graph_create("text", &graph));
        x = input_of(graph, LEFT);
        if (inputs == 2) {
            struct ls_tensor *terms[2] = {x, input_of(graph, LEFT)};
            OK(ls_graph_begin_layer(graph, "add", "Add"));
            OK(ls_graph_add(graph, LS_OP_ADD, NULL, terms, 2, NULL, &sum));
            ls_graph_end_layer(graph, sum);
            x = sum;
        }
        // (None, LEFT) to (None, LEFT, CLASSES): one value a place
        struct ls_shape rows = {.ndims = 3, .dims = {LS_BATCH, LEFT, 1}};
        OK(ls_graph_begin_layer(graph, "reshape", "Reshape"));
        OK(ls_graph_add(graph, LS_OP_RESHAPE, NULL, &x, 1, &rows, &x));
        ls_graph_end_layer(graph, x);
        dense(graph, "one", x, 1);
        OK(ls_graph_add_loss(graph, &(struct ls_loss){LS_LOSS_SPARSE_CROSS_ENTROPY, true}));
        OK(ls_graph_differentiate(graph));
        for (uint32_t i = 0; i < model->graph->parameter_count; i++)
            free(model->weights[i]);
        free(model->weights);
        model->weights = NULL;
        ls_graph_destroy(model->graph);
        model->graph = graph;
        OK(ls_fit(model, data, &(struct ls_fit_options){.batch = 4, .steps = 1}));
        OK(ls_session_next(model->session, 0, &batch, NULL));
        ck_assert_uint_eq(batch.count, 4);
        for (uint64_t i = 0; i < batch.count * LEFT; i++) {
            ck_assert_int_lt(((const int32_t *)batch.labels[0])[i], CLASSES);
            if (i % LEFT) // what follows a place is what the next one has
                ck_assert(((const float *)batch.inputs[0])[i] ==
                          (float)((const int32_t *)batch.labels[0])[i - 1]);
            if (inputs == 2)
                ck_assert(((const float *)batch.inputs[1])[i] == (float)(i % LEFT));
        }
        ck_assert((batch.inputs[1] != NULL) == (inputs == 2));
        ls_model_close(model);
    }
    ls_data_close(data);
    unlink(path);
}

TEST_FIXTURE(set_up, tear_down);

int main(void)
{
    fill();
    return test_suite_run("fields");
}
