// SPDX-License-Identifier: Apache-2.0
// Damaged Keras models: read and compiled for the reference device, or refused with lines that name
// the file, in bounded time and memory. Run it under sanitizers.
//
//     fuzz_model SECONDS SEED FILE...
//
// A file may have models anywhere inside.
#include "core/base/json_size.h"
#include "core/base/log.h"
#include "core/device/device.h"
#include "core/graph/layer.h"
#include "core/graph/program.h"
#include "core/model/model.h"
#include "core/run/run.h"
#include "tests/fuzz/mutate.h"
#include "tests/fuzz/mutate_json.h"
#include "tests/support/plugin.h"

#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#define MOST_MODELS 512
#define MOST_LINES 63 // twenty of each kind, and how many more there are
#define MOST_SECONDS 60 // for one model, on a machine that has other work
#define MOST_COMPILED 400 // layers: compiling is not what is tested here
#define MOST_MEMORY ((rlim_t)3 << 30)

static json_t *models[MOST_MODELS];
static size_t model_count;
static unsigned long lines, strange_lines;
static char last_line[256];
static bool compiling; // then messages begin with the name of the model
static uint64_t current; // seed
static char *text; // of the current model
static size_t text_bytes;
static FILE *nowhere;

// A sanitizer reserves memory without end for itself, so it counts instead.
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "max_allocation_size_mb=1024:hard_rss_limit_mb=4096:allocator_may_return_null=1";
}

static void count_line(void *context, uint32_t level, const char *line)
{
    (void)context;
    snprintf(last_line, sizeof(last_line), "%s", line);
    lines += level == LS_LOG_ERROR;
    strange_lines += level == LS_LOG_ERROR && !compiling && !strstr(line, "model.json");
    for (; *line; line++)
        strange_lines += (unsigned char)*line < ' ' || *line == 0x7f;
}

// ---- Models to begin with ----

static void collect(json_t *json)
{
    const char *class_name = json_string_value(json_object_get(json, "class_name")), *key;
    json_t *value;
    size_t index;
    if (class_name && model_count < MOST_MODELS && json_object_get(json, "config") &&
        (strcmp(class_name, "Functional") == 0 || strcmp(class_name, "Sequential") == 0))
        models[model_count++] = json_incref(json);
    json_object_foreach(json, key, value) collect(value);
    json_array_foreach(json, index, value) collect(value);
}

static json_t *number_in(uint64_t *state, size_t most)
{
    return json_integer((json_int_t)fuzz_below(state, most));
}

static json_t *make_layer(const char *class_name, size_t index)
{
    char name[32];
    snprintf(name, sizeof(name), "l%zu", index);
    return json_pack("{s:s, s:s, s:{s:s}, s:[]}", "class_name", class_name, "name", name, "config",
                     "name", name, "inbound_nodes");
}

static void call_on(json_t *layer, size_t from, json_t *node)
{
    char name[32];
    snprintf(name, sizeof(name), "l%zu", from);
    json_array_append_new(json_object_get(layer, "inbound_nodes"),
                          json_pack("[[s, o, i]]", name, node, 0));
}

// A graph of calls: a chain in any order, or all from one, or a layer that is called on itself, or
// from anywhere, which has circles. Rarely of more layers or calls than are allowed.
static json_t *generate(uint64_t *state)
{
    static const char *const classes[] = {"Flatten", "ReLU", "Softmax", "Rescaling", "Sequential"};
    const size_t count = 1 + fuzz_below(state, fuzz_below(state, 64) ? 60 : 12000);
    const size_t way = fuzz_below(state, 5);
    json_t *layers = json_array(), *input = make_layer("InputLayer", 0);
    json_object_set_new(json_object_get(input, "config"), "batch_shape", json_pack("[n, i]", 4));
    json_array_append_new(layers, input);
    for (size_t i = 1; i <= count; i++) {
        const bool again = way == 3 && i > 1;
        json_t *layer = again ? json_array_get(layers, 1)
                              : make_layer(classes[fuzz_below(state, way ? 4 : 5)], i);
        const size_t from = way == 0    ? fuzz_below(state, count + 1)
                            : way == 1  ? i - 1
                            : way == 2  ? 0
                            : way == 3  ? i > 1
                            : i < count ? i + 1
                                        : 0;
        json_t *node = way == 3 && i > 1 ? json_integer((json_int_t)i - 2)
                       : way == 0        ? number_in(state, 2)
                                         : json_integer(0);
        call_on(layer, from, node);
        if (!again)
            json_array_append_new(layers, layer);
    }
    return json_pack("{s:s, s:{s:o, s:[s, i, i], s:[s, o, i]}}", "class_name", "Functional",
                     "config", "layers", layers, "input_layers", "l0", 0, 0, "output_layers", "l1",
                     number_in(state, 2), 0);
}

// ---- Damage ----

static bool draw_spot(uint64_t *state, json_t *json, struct fuzz_spot *out)
{
    size_t number = fuzz_below(state, fuzz_json_count(json) - 1);
    return fuzz_json_find(json, &number, out);
}

// What is somewhere else, in this model or in another one.
static void graft(uint64_t *state, json_t *json)
{
    struct fuzz_spot to, from;
    json_t *other = fuzz_below(state, 2) ? json : models[fuzz_below(state, model_count)];
    if (draw_spot(state, json, &to) && draw_spot(state, other, &from))
        fuzz_json_put(&to, json_deep_copy(from.value));
}

// An element of a list many times.
static void repeat(uint64_t *state, json_t *json)
{
    struct fuzz_spot spot;
    for (int tries = 0; tries < 20; tries++) {
        if (!draw_spot(state, json, &spot) || json_array_size(spot.value) == 0)
            continue;
        const size_t index = fuzz_below(state, json_array_size(spot.value));
        const size_t times = (size_t)1 << fuzz_below(state, fuzz_below(state, 16) ? 5 : 12);
        json_t *element = json_deep_copy(json_array_get(spot.value, index));
        json_object_del(json_object_get(element, "config"), "name"); // or it is refused for that
        for (size_t i = 0; i < times; i++)
            json_array_append(spot.value, element);
        json_decref(element);
        return;
    }
}

static void damage(uint64_t *state, json_t *json)
{
    for (size_t i = fuzz_below(state, 6); i > 0 && fuzz_json_count(json) > 1; i--) {
        const size_t way = fuzz_below(state, 8);
        if (way == 0)
            repeat(state, json);
        else if (way <= 3)
            graft(state, json);
        else
            fuzz_json_damage(json, fuzz_below(state, fuzz_json_count(json) - 1),
                             fuzz_random(state));
    }
}

// What a model was compiled with, which is damaged with it.
static const char compiled[] =
    "{\"optimizer\": {\"class_name\": \"Adam\", \"config\": {\"learning_rate\": 0.5, \"beta_1\": "
    "0.9, \"epsilon\": 1e-7, \"clipnorm\": null}}, \"loss\": {\"class_name\": "
    "\"SparseCategoricalCrossentropy\", \"config\": {\"from_logits\": true, \"reduction\": "
    "\"auto\"}}, \"metrics\": [[\"accuracy\"]], \"loss_weights\": null}";

static void make_text(uint64_t *state)
{
    json_t *json = fuzz_below(state, 8) == 0
                       ? generate(state)
                       : json_deep_copy(models[fuzz_below(state, model_count)]);
    if (fuzz_below(state, 4) == 0)
        json_object_set_new(json, "compile_config", json_loads(compiled, 0, NULL));
    if (fuzz_below(state, 8) > 0)
        damage(state, json);
    text = json_dumps(json, JSON_COMPACT);
    text_bytes = text ? strlen(text) : 0;
    if (text && fuzz_below(state, 8) == 0)
        text_bytes = fuzz_mutate(state, (unsigned char *)text, text_bytes);
    json_decref(json);
}

// ---- What is checked ----

static void keep(void)
{
    char name[64];
    snprintf(name, sizeof(name), "fuzz-model-%llu.json", (unsigned long long)current);
    FILE *file = fopen(name, "wb");
    if (file) {
        fwrite(text, 1, text_bytes, file);
        fclose(file);
    }
    fprintf(stderr, "seed %llu; the model is kept: %s\n", (unsigned long long)current, name);
}

static void hung(int signal)
{
    (void)signal;
    fprintf(stderr, "a model takes more than %d seconds\n", MOST_SECONDS);
    keep();
    _exit(1);
}

// A failure has lines, and not too many; success has none.
static bool is_sound(const char *what, enum ls_status status)
{
    const bool sound = strange_lines == 0 &&
                       (status == LS_OK ? lines == 0
                                        : (status == LS_BAD_INPUT || status == LS_UNSUPPORTED) &&
                                              lines > 0 && lines <= MOST_LINES);
    if (!sound)
        fprintf(stderr, "%s: status %d, %lu lines, %lu of them strange; the last one: %s\n", what,
                (int)status, lines, strange_lines, last_line);
    lines = strange_lines = 0;
    return sound;
}

static bool is_compiled(struct ls_device *device, struct ls_graph *graph, enum ls_purpose purpose)
{
    const struct ls_program_options options = {.batch = 2, .purpose = purpose};
    struct ls_parameter_plan *plan = NULL;
    struct ls_program *program = NULL;
    enum ls_status status = ls_plan_create(graph, device, 2, false, &plan);
    if (!status)
        status = ls_program_create(plan, graph, &options, &program);
    ls_program_destroy(program);
    ls_plan_destroy(plan);
    return is_sound("compile", status);
}

static bool is_differentiated(struct ls_graph *graph, enum ls_status *out)
{
    const struct ls_loss loss = {.kind = LS_LOSS_MEAN_SQUARED_ERROR};
    *out = ls_graph_add_loss(graph, &loss);
    if (!*out)
        *out = ls_graph_differentiate(graph);
    return is_sound("differentiate", *out);
}

static bool is_config_read(const json_t *json)
{
    struct ls_compile_config config;
    const enum ls_status status = ls_model_compile_config("model.json", json, 7, NULL, &config);
    if (!status)
        ls_compile_config_finish(&config);
    return is_sound("compile_config", status);
}

// False: something is wrong.
static bool check(struct ls_device *device, unsigned long results[2])
{
    static const struct ls_shape example = {.ndims = 3, .dims = {28, 28, 1}};
    struct ls_model model = {.source = "model.json"};
    json_t *json = NULL;
    enum ls_status status = ls_model_parse("model.json", NULL, text, text_bytes, &json);
    bool good = is_sound("parse", status);
    if (good && !status) {
        status = ls_model_build("model.json", json, &example, &model.graph);
        good = is_sound("build", status) &&
               is_sound("training", ls_model_check_training("model.json", json, true)) &&
               is_config_read(json);
    }
    results[status != LS_OK]++;
    if (good && !status) {
        ls_model_summary(&model, nowhere);
        rewind(nowhere);
    }
    compiling = true;
    if (good && !status && model.graph->layer_count <= MOST_COMPILED) {
        good = is_compiled(device, model.graph, LS_PURPOSE_PREDICT);
        if (good && model.graph->output_count == 1)
            good = is_differentiated(model.graph, &status) &&
                   (status || is_compiled(device, model.graph, LS_PURPOSE_TRAIN));
    }
    compiling = false;
    ls_graph_destroy(model.graph);
    json_decref(json);
    return good;
}

static bool open_device(struct test_host *host, struct ls_device **device)
{
    const struct ls_plugin *plugin = test_plugin_open("device-reference");
    if (!plugin)
        return false;
    const struct ls_device_config config = {.struct_size = sizeof(config), .threads = 1};
    test_host_init(host, plugin);
    return ls_device_open_state(plugin->interface, &host->host, &config, device) == LS_OK;
}

int main(int argc, char **argv)
{
    static struct test_host host;
    struct ls_device *device;
    unsigned long results[2] = {0};
    double slowest = 0; // of processor time
    uint64_t slowest_seed = 0;
    bool good = true;
    if (argc < 4 || !open_device(&host, &device) || !(nowhere = fopen("/dev/null", "w")))
        return 2;
    for (int i = 3; i < argc; i++) {
        json_t *file = json_load_file(argv[i], 0, NULL);
        collect(file);
        json_decref(file);
    }
    if (model_count == 0)
        return 2;
#ifndef __SANITIZE_ADDRESS__
    const struct rlimit limit = {MOST_MEMORY, MOST_MEMORY};
    setrlimit(RLIMIT_AS, &limit);
#endif
    signal(SIGALRM, hung);
    ls_log_set_writer(count_line, NULL);
    const double end_at = fuzz_clock() + strtod(argv[1], NULL);
    for (current = strtoull(argv[2], NULL, 10); good && fuzz_clock() < end_at; current++) {
        uint64_t state = current;
        make_text(&state);
        if (!text)
            continue;
        alarm(MOST_SECONDS);
        const clock_t begin = clock();
        good = check(device, results);
        const double seconds = (double)(clock() - begin) / CLOCKS_PER_SEC;
        alarm(0);
        if (seconds > slowest) {
            slowest = seconds;
            slowest_seed = current;
        }
        if (!good)
            keep();
        free(text);
    }
    while (model_count > 0)
        json_decref(models[--model_count]);
    ls_device_close(device);
    fclose(nowhere);
    printf("%lu read, %lu refused; at most %.1f s for one, seed %llu\n", results[0], results[1],
           slowest, (unsigned long long)slowest_seed);
    return !good || !results[0] || !results[1];
}
