// SPDX-License-Identifier: Apache-2.0
// Damaged model files: whatever is in them, the reader answers a graph or one line, and never crashes.
#include "tests/layers/support.h"

#include "core/base/random.h"
#include "tests/fuzz/mutate_json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SEED 20240501
#define BYTE_ROUNDS 500 // tests/fuzz goes on with other seeds
#define TREE_ROUNDS 500

static const struct ls_shape example = {.ndims = 3, .dims = {28, 28, 1}};

// The Sequential one of Keras 2 has the most options; of the functional ones one is as Keras 2
// writes it, and one has models inside models.
static const char *const fixtures[] = {
    FIXTURES "/keras2-sequential.json", FUNCTIONAL "/keras2.json", FUNCTIONAL "/nested.json",
    FUNCTIONAL "/residual.json",        FUNCTIONAL "/pairs.json",  FUNCTIONAL "/shapes.json",
};
#define FIXTURE_COUNT (int)(sizeof(fixtures) / sizeof(*fixtures))

static char *read_fixture(int fixture, size_t *bytes)
{
    FILE *file = fopen(fixtures[fixture], "rb");
    ck_assert_ptr_nonnull(file);
    char *text = malloc(1 << 16);
    *bytes = fread(text, 1, 1 << 16, file);
    fclose(file);
    ck_assert_uint_gt(*bytes, 2000);
    return text;
}

// A graph, or lines of which each names the source.
static bool must_answer(enum ls_status status, struct ls_graph *graph)
{
    if (status == LS_OK) {
        ck_assert_ptr_nonnull(graph->outputs[0]);
        ck_assert_int_eq(logged_lines, 0);
        ls_graph_destroy(graph);
        return true;
    }
    ck_assert_int_eq(status, LS_BAD_INPUT);
    ck_assert_int_ge(logged_lines, 1);
    ck_assert_int_le(logged_lines, 42); // twenty of each kind, and how many more there are
    return false;
}

TEST(a_file_cut_at_any_byte_is_refused)
{
    size_t bytes;
    char *text = read_fixture(0, &bytes), path[] = "/tmp/lockstep-cut-XXXXXX";
    const int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    while (bytes > 0 && text[bytes - 1] != '}')
        bytes--;
    ck_assert_int_eq(pwrite(fd, text, bytes, 0), (ssize_t)bytes);
    while (bytes-- > 0) {
        struct ls_graph *graph = NULL;
        ck_assert_int_eq(ftruncate(fd, (off_t)bytes), 0);
        capture_log();
        ck_assert_int_eq(ls_model_build_file(path, &example, &graph), LS_BAD_INPUT);
        ck_assert_int_eq(logged_lines, 1);
        ck_assert_ptr_nonnull(strstr(logged, "malformed JSON"));
    }
    close(fd);
    unlink(path);
    free(text);
}

LOOP_TEST(bytes_changed_at_random_never_crash_the_reader, 0, FIXTURE_COUNT)
{
    size_t bytes;
    char *text = read_fixture(_i, &bytes), *damaged = malloc(bytes);
    const uint64_t key = ls_random_key(SEED, 10 * (uint64_t)_i + 1);
    int built = 0, parsed = 0;
    for (uint64_t round = 0; round < BYTE_ROUNDS; round++) {
        memcpy(damaged, text, bytes);
        for (uint64_t i = 0; i <= ls_random_u64(key, 100 * round) % 3; i++) {
            const uint64_t draw = ls_random_u64(key, 100 * round + 1 + i);
            // Mostly digits and letters, so that many stay well-formed.
            damaged[draw % bytes] = "0123456789-.eE[]{}\",:nulltrfsx\\ \x80"[(draw >> 32) % 33];
        }
        json_t *json = json_loadb(damaged, bytes, JSON_REJECT_DUPLICATES, NULL);
        if (!json)
            continue;
        struct ls_graph *graph = NULL;
        parsed++;
        capture_log();
        const enum ls_status status = ls_model_build("model.json", json, &example, &graph);
        built += must_answer(status, graph);
        json_decref(json);
    }
    ck_assert_int_gt(parsed, BYTE_ROUNDS / 100);
    ck_assert_int_gt(built, 0);
    free(damaged);
    free(text);
}

static const char compiled[] =
    "{\"optimizer\": {\"class_name\": \"SGD\", \"config\": {\"learning_rate\": 0.5, "
    "\"momentum\": 0.9, \"nesterov\": true, \"clipnorm\": null}}, \"loss\": {\"class_name\": "
    "\"SparseCategoricalCrossentropy\", \"config\": {\"from_logits\": true, \"reduction\": "
    "\"auto\"}}, \"metrics\": [[\"accuracy\"]], \"loss_weights\": null}";

// Options, or lines that say why not.
static bool must_compile(const json_t *model)
{
    struct ls_compile_config config;
    capture_log();
    const enum ls_status status = ls_model_compile_config("model.json", model, 7, NULL, &config);
    ck_assert(status == LS_OK ? logged_lines == 0 : status == LS_BAD_INPUT && logged_lines > 0);
    const bool whole = config.optimizer && config.loss && config.metrics;
    ls_compile_config_finish(&config);
    return whole;
}

LOOP_TEST(values_changed_at_random_never_crash_the_reader, 0, FIXTURE_COUNT)
{
    size_t bytes;
    char *text = read_fixture(_i, &bytes);
    const uint64_t key = ls_random_key(SEED, 10 * (uint64_t)_i + 2);
    int built = 0, whole = 0;
    for (uint64_t round = 0; round < TREE_ROUNDS; round++) {
        json_t *json = round % 2 ? json_object() : json_loadb(text, bytes, 0, NULL);
        json_object_set_new(json, "compile_config", json_loads(compiled, 0, NULL));
        for (uint64_t i = 0; i <= round % 3 && fuzz_json_count(json) > 1; i++) {
            const uint64_t draw = ls_random_u64(key, 10 * round + i);
            fuzz_json_damage(json, draw % (fuzz_json_count(json) - 1), draw >> 32);
        }
        struct ls_graph *graph = NULL;
        capture_log();
        const enum ls_status status = ls_model_build("model.json", json, &example, &graph);
        built += must_answer(status, graph);
        if (status == LS_OK)
            (void)!ls_model_check_training("model.json", json, true);
        whole += must_compile(json);
        json_decref(json);
    }
    ck_assert_int_gt(built, TREE_ROUNDS / 100);
    ck_assert_int_lt(built, TREE_ROUNDS);
    ck_assert_int_gt(whole, TREE_ROUNDS / 100);
    ck_assert_int_lt(whole, TREE_ROUNDS);
    free(text);
}

TEST_SECONDS(100);
