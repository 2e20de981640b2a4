// SPDX-License-Identifier: Apache-2.0
// synthetic: examples made from a seed, of any shape, for trying things out. Not real data, and it says so.
//
// Classes: each class has a prototype of uniform numbers in [0, 1); an example is half its prototype, a quarter, and
// noise of deviation 1/8. Targets: a fixed random linear map of an example of uniform numbers, plus noise of deviation
// 1/100. Prototypes and map depend on the seed alone, examples on seed and split, so a model learns on one split what
// holds on the other. Elements in [0, 1]; dtype=uint8 stores them as pixels, 0 to 255, divided by 255 when read.
#include "datasets/datasets.h"

#include "core/base/log.h"
#include "core/base/random.h"

#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define SCOPE "synthetic"
#define MOST_CLASSES 1000000
#define MOST_OUTPUTS 1000000
#define PIXEL 255

// What the options ask for.
struct wish {
    uint32_t ndims;
    int64_t dims[LS_MAX_DIMS];
    uint64_t elements; // of one example
    int64_t classes; // 0: targets
    int64_t outputs;
    int64_t examples;
    uint64_t seed;
    bool bytes;
    enum ls_split split;
};

struct storage {
    struct ls_dataset dataset;
    float *model; // prototypes: classes x elements; or the map: outputs x elements
    void *examples;
    void *labels;
};

// ---- Options ----

// "28x28x1"
static enum ls_status parse_shape(const char *text, struct wish *wish)
{
    const char *rest = text;
    wish->elements = 1;
    while (wish->ndims < LS_MAX_DIMS - 1) { // a batch has one dimension more
        char digits[20] = "";
        const size_t length = strspn(rest, "0123456789");
        int64_t dim = 0;
        if (length < sizeof(digits))
            memcpy(digits, rest, length);
        if (!ls_parse_integer(digits, &dim) || dim < 1 || dim > INT32_MAX ||
            wish->elements > UINT64_C(0xffffffff) / (uint64_t)dim)
            break;
        wish->dims[wish->ndims++] = dim;
        wish->elements *= (uint64_t)dim;
        rest += length;
        if (!*rest)
            return LS_OK;
        if (*rest++ != 'x')
            break;
    }
    ls_error(SCOPE, "shape must be 1 to %d numbers separated by x, such as 28x28x1, not '%s'",
             LS_MAX_DIMS - 1, text);
    return LS_USAGE;
}

static enum ls_status parse_number(const struct ls_spec *spec, const char *name, int64_t least,
                                   int64_t most, int64_t *value)
{
    const char *text = ls_spec_get(spec, name);
    if (!text)
        return LS_OK;
    int64_t number;
    if (!ls_parse_integer(text, &number) || number < least || number > most) {
        ls_error(SCOPE, "%s must be from %" PRId64 " to %" PRId64 ", not %s", name, least, most,
                 text);
        return LS_USAGE;
    }
    *value = number;
    return LS_OK;
}

static enum ls_status parse_wish(const struct ls_spec *spec, enum ls_split split, struct wish *wish)
{
    *wish = (struct wish){.classes = 10, .outputs = 1, .examples = 10000, .split = split};
    const char *shape = ls_spec_get(spec, "shape"), *dtype = ls_spec_get(spec, "dtype");
    int64_t seed = 0;
    enum ls_status status = parse_shape(shape ? shape : "28x28x1", wish);
    if (!status)
        status = parse_number(spec, "classes", 0, MOST_CLASSES, &wish->classes);
    if (!status)
        status = parse_number(spec, "outputs", 1, MOST_OUTPUTS, &wish->outputs);
    if (!status)
        status = parse_number(spec, "examples", 1, UINT32_MAX - 1, &wish->examples);
    if (!status)
        status = parse_number(spec, "seed", 0, INT64_MAX, &seed);
    if (status)
        return status;
    if (wish->classes && ls_spec_get(spec, "outputs")) {
        ls_error(SCOPE, "outputs is for targets: add classes=0");
        return LS_USAGE;
    }
    if (split == LS_TEST)
        wish->examples = (wish->examples + 9) / 10;
    wish->seed = (uint64_t)seed;
    wish->bytes = dtype && !strcmp(dtype, "uint8");
    return LS_OK;
}

// ---- Numbers ----

// Mean 0, deviation 1, never beyond 3.5: the sum of four 16-bit numbers (Irwin, Hall). One draw instead of the four
// of a true normal, for sets of some hundred million elements.
static float bell(uint64_t bits)
{
    const uint32_t sum = (uint32_t)(bits & 0xffff) + (uint32_t)(bits >> 16 & 0xffff) +
                         (uint32_t)(bits >> 32 & 0xffff) + (uint32_t)(bits >> 48);
    return ((float)sum - 131070.0f) * (1.7320508f / 65536.0f);
}

// 24 bits in [0, 1).
static float unit(uint64_t bits)
{
    return (float)(bits >> 40) * 0x1p-24f;
}

static void fill_model(const struct wish *wish, float *model)
{
    const uint64_t rows = (uint64_t)(wish->classes ? wish->classes : wish->outputs);
    const uint64_t key = ls_random_key_text(wish->seed, "synthetic model");
    const float size = sqrtf(12.0f / (float)wish->elements); // targets of deviation about 1
    for (uint64_t i = 0; i < rows * wish->elements; i++) {
        const uint64_t bits = ls_random_u64(key, i);
        model[i] = wish->classes ? unit(bits) : size * bell(bits);
    }
}

// An example as float32, of a class (`prototype`) or of none (NULL).
static void fill_example(const struct wish *wish, uint64_t key, uint64_t index,
                         const float *prototype, float *example)
{
    for (uint64_t e = 0; e < wish->elements; e++) {
        const uint64_t bits = ls_random_u64(key, index * wish->elements + e);
        float value = unit(bits);
        if (prototype)
            value = 0.5f * prototype[e] + 0.25f + 0.125f * bell(bits);
        example[e] = value < 0 ? 0 : value > 1 ? 1 : value;
    }
}

static void to_bytes(const float *example, uint64_t elements, uint8_t *out)
{
    for (uint64_t e = 0; e < elements; e++)
        out[e] = (uint8_t)(example[e] * PIXEL + 0.5f);
}

static float target(const struct wish *wish, const float *map, const float *example, uint64_t bits)
{
    double sum = 0.01 * bell(bits);
    for (uint64_t e = 0; e < wish->elements; e++)
        sum += (double)map[e] * ((double)example[e] - 0.5);
    return (float)sum;
}

// `row` has room for one example.
static void fill_examples(const struct wish *wish, struct storage *storage, float *row)
{
    const uint64_t split = ls_random_key(wish->seed, 1 + (uint64_t)wish->split);
    const uint64_t example_key = ls_random_key_text(split, "synthetic examples");
    const uint64_t label_key = ls_random_key_text(split, "synthetic labels");
    const uint64_t outputs = (uint64_t)wish->outputs;
    for (uint64_t i = 0; i < (uint64_t)wish->examples; i++) {
        const float *prototype = NULL;
        if (wish->classes) {
            const uint64_t class = ls_random_u64(label_key, i) % (uint64_t)wish->classes;
            ((int32_t *)storage->labels)[i] = (int32_t) class;
            prototype = storage->model + class * wish->elements;
        }
        float *example = wish->bytes ? row : (float *)storage->examples + i * wish->elements;
        fill_example(wish, example_key, i, prototype, example);
        if (wish->bytes)
            to_bytes(example, wish->elements, (uint8_t *)storage->examples + i * wish->elements);
        for (uint64_t o = 0; !wish->classes && o < outputs; o++)
            ((float *)storage->labels)[i * outputs + o] =
                target(wish, storage->model + o * wish->elements, example,
                       ls_random_u64(label_key, i * outputs + o));
    }
}

// ---- The dataset ----

static void storage_close(struct ls_dataset *dataset)
{
    struct storage *storage = dataset->storage;
    free(storage->model);
    free(storage->examples);
    free(storage->labels);
    free(storage);
}

// NULL: no memory, also where the size has no number.
static void *allocate(uint64_t count, uint64_t elements, uint64_t bytes)
{
    if (elements > SIZE_MAX / bytes || count > SIZE_MAX / (elements * bytes))
        return NULL;
    return malloc(count * elements * bytes);
}

// The largest first, so that a set that cannot be asks for nothing else.
static bool allocate_all(const struct wish *wish, struct storage *storage, float **row)
{
    const uint64_t count = (uint64_t)wish->examples, outputs = (uint64_t)wish->outputs;
    const uint64_t rows = wish->classes ? (uint64_t)wish->classes : outputs;
    storage->examples = allocate(count, wish->elements, wish->bytes ? 1 : sizeof(float));
    if (storage->examples)
        storage->model = allocate(rows, wish->elements, sizeof(float));
    if (storage->model)
        storage->labels = allocate(count, wish->classes ? 1 : outputs, 4);
    if (storage->labels)
        *row = allocate(1, wish->elements, sizeof(float));
    return *row != NULL;
}

static enum ls_status make(const struct wish *wish, struct storage *storage)
{
    float *row = NULL;
    if (!allocate_all(wish, storage, &row)) {
        ls_error(SCOPE, "no memory for %" PRId64 " examples of %" PRIu64 " elements",
                 wish->examples, wish->elements);
        return LS_OUT_OF_MEMORY;
    }
    fill_model(wish, storage->model);
    fill_examples(wish, storage, row);
    free(row);
    return LS_OK;
}

static void describe_fields(const struct wish *wish, struct ls_field *out)
{
    const uint64_t outputs = wish->classes ? 1 : (uint64_t)wish->outputs;
    out[0] = (struct ls_field){.name = "x",
                               .role = LS_FIELD_INPUT,
                               .dtype = wish->bytes ? LS_U8 : LS_F32,
                               .ndims = wish->ndims,
                               .divisor = wish->bytes ? PIXEL : 1,
                               .stride = wish->elements * (wish->bytes ? 1 : sizeof(float))};
    memcpy(out[0].dims, wish->dims, sizeof(wish->dims));
    out[1] = (struct ls_field){.name = "y",
                               .role = LS_FIELD_TARGET,
                               .dtype = wish->classes ? LS_I32 : LS_F32,
                               .ndims = wish->classes ? 0 : 1,
                               .dims = {wish->classes ? 0 : wish->outputs},
                               .divisor = 1,
                               .class_count = (uint32_t)wish->classes,
                               .stride = 4 * outputs};
}

static void fill_dataset(const struct wish *wish, struct storage *storage)
{
    storage->dataset = (struct ls_dataset){
        .count = (uint64_t)wish->examples,
        .field_count = 2,
        .real = false,
        .storage = storage,
        .close = storage_close,
    };
    describe_fields(wish, storage->dataset.fields);
    storage->dataset.fields[0].values = storage->examples;
    storage->dataset.fields[1].values = storage->labels;
}

// Once a process: a run opens two splits.
static void warn_once(uint64_t seed)
{
    static atomic_flag warned = ATOMIC_FLAG_INIT;
    if (!atomic_flag_test_and_set(&warned))
        ls_warn(SCOPE,
                "NOT REAL DATA: examples and labels are generated from seed %" PRIu64
                "; losses and accuracies are meaningless",
                seed);
}

static enum ls_status synthetic_open(const struct ls_spec *spec, enum ls_split split,
                                     struct ls_dataset **out)
{
    struct wish wish;
    enum ls_status status = parse_wish(spec, split, &wish);
    if (status)
        return status;
    struct storage *storage = calloc(1, sizeof(*storage));
    if (!storage)
        return LS_OUT_OF_MEMORY;
    warn_once(wish.seed);
    status = make(&wish, storage);
    storage->dataset.storage = storage;
    if (status) {
        storage_close(&storage->dataset);
        return status;
    }
    fill_dataset(&wish, storage);
    *out = &storage->dataset;
    return LS_OK;
}

static enum ls_status synthetic_describe(const struct ls_spec *spec, enum ls_split split,
                                         struct ls_dataset_info *out)
{
    struct wish wish;
    const enum ls_status status = parse_wish(spec, split, &wish);
    if (status)
        return status;
    *out = (struct ls_dataset_info){.count = (uint64_t)wish.examples, .field_count = 2};
    describe_fields(&wish, out->fields);
    return LS_OK;
}

static const struct ls_plugin_option options[] = {
    {"shape", "text", "28x28x1", "of one example"},
    {"classes", "integer", "10", "how many; 0: targets (numbers) instead of classes"},
    {"outputs", "integer", "1", "numbers of a target; with classes=0"},
    {"examples", "integer", "10000", "of the training set; the test set has a tenth"},
    {"seed", "integer", "0", "seed of the numbers"},
    {"dtype", "one of: float32, uint8", "float32", "how elements are stored"},
    {0},
};

const struct ls_dataset_kind ls_dataset_synthetic = {
    .name = "synthetic",
    .summary = "generated from a seed, any shape; not real data",
    .options = options,
    .open = synthetic_open,
    .describe = synthetic_describe,
};
