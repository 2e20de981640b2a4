// SPDX-License-Identifier: Apache-2.0
// Datasets: whether what is loaded is what was described, the same every time and from any thread.
#include "tools/conformance/own_parts.h"

#include "core/base/instance.h"
#include "core/plugin/dataset.h"
#include "lockstep.h"
#include "tools/conformance/tally.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 4, MOST_LOADED = 500, CANARY = 64, CANARY_BYTE = 0xa5 };

struct suite {
    struct ls_tally tally;
    const struct ls_opened_plugin *plugin;
    const struct ls_dataset_interface *interface;
};

// An opened split.
struct split {
    struct ls_dataset_state *state;
    struct ls_dataset_description about;
    uint64_t count; // examples that are loaded
    uint64_t bytes[LS_DATASET_FIELDS]; // of an example
};

static void split_close(const struct suite *suite, struct split *split)
{
    if (split->state && suite->interface->close)
        suite->interface->close(split->state);
    ls_instance_destroy(split->state);
}

static bool is_field_right(struct ls_tally *tally, const struct ls_dataset_field *field,
                           uint64_t *bytes)
{
    uint64_t elements = 1;
    if (!field->name || !field->name[0] || strlen(field->name) > 31)
        return ls_tally_blame(tally, "a field has no name of at most 31 bytes");
    if (field->role > LS_FIELD_WEIGHT)
        return ls_tally_blame(tally, "field %s has the unknown role %u", field->name, field->role);
    if (field->dtype != LS_U8 && field->dtype != LS_I32 && field->dtype != LS_F32)
        return ls_tally_blame(tally, "field %s has the type %u; expected uint8, int32, float32",
                              field->name, field->dtype);
    if (field->ndims >= LS_MAX_DIMS)
        return ls_tally_blame(tally, "field %s has %u dimensions", field->name, field->ndims);
    for (uint32_t i = 0; i < field->ndims; i++) {
        if (field->dims[i] < 1 || field->dims[i] > INT32_MAX ||
            elements * (uint64_t)field->dims[i] > INT32_MAX)
            return ls_tally_blame(tally, "field %s has a dimension of %" PRId64, field->name,
                                  field->dims[i]);
        elements *= (uint64_t)field->dims[i];
    }
    *bytes = elements * ls_dtype_bytes(field->dtype);
    return true;
}

static bool split_open(struct suite *suite, const char *name, struct split *split)
{
    struct ls_tally *tally = &suite->tally;
    *split = (struct split){
        .state = ls_instance_create(suite->interface, suite->interface->state_bytes)};
    if (!split->state)
        return ls_tally_blame(tally, "no memory");
    const int32_t status =
        suite->interface->open(suite->plugin->host, name, split->state, &split->about);
    if (status) {
        ls_instance_destroy(split->state);
        split->state = NULL;
        return ls_tally_blame(tally, "open of '%s': %s: %s", name,
                              ls_status_text((enum ls_status)status), ls_last_error());
    }
    const struct ls_dataset_description *about = &split->about;
    if (about->examples < 1 || about->examples >= UINT32_MAX)
        return ls_tally_blame(tally, "%" PRIu64 " examples of '%s'", about->examples, name);
    if (about->field_count < 1 || about->field_count > LS_DATASET_FIELDS)
        return ls_tally_blame(tally, "%u fields", about->field_count);
    for (uint32_t i = 0; i < about->field_count; i++)
        if (!is_field_right(tally, &about->fields[i], &split->bytes[i]))
            return false;
    split->count = about->examples < MOST_LOADED ? about->examples : MOST_LOADED;
    return true;
}

// Loads an example and adds it to the hash; nothing may be written beside the fields.
static bool load(const struct suite *suite, struct split *split, uint64_t example, uint64_t *hash,
                 struct ls_tally *tally)
{
    unsigned char *memory[LS_DATASET_FIELDS] = {NULL};
    void *fields[LS_DATASET_FIELDS] = {NULL};
    const uint32_t count = split->about.field_count;
    bool good = true;
    for (uint32_t i = 0; good && i < count; i++) {
        memory[i] = malloc(split->bytes[i] + 2 * CANARY);
        good = memory[i] || ls_tally_blame(tally, "no memory");
        if (memory[i])
            memset(memory[i], CANARY_BYTE, split->bytes[i] + 2 * CANARY);
        fields[i] = memory[i] ? memory[i] + CANARY : NULL;
    }
    const int32_t status = good ? suite->interface->load(split->state, example, fields) : LS_OK;
    if (status)
        good = ls_tally_blame(tally, "load of example %" PRIu64 ": %s: %s", example,
                              ls_status_text((enum ls_status)status), ls_last_error());
    for (uint32_t i = 0; good && i < count; i++) {
        const struct ls_dataset_field *field = &split->about.fields[i];
        for (uint64_t k = 0; good && k < CANARY; k++)
            if (memory[i][k] != CANARY_BYTE ||
                memory[i][CANARY + split->bytes[i] + k] != CANARY_BYTE)
                good = ls_tally_blame(tally, "example %" PRIu64 ": wrote beside field %s", example,
                                      field->name);
        for (uint64_t k = 0;
             good && field->classes && k < split->bytes[i] / ls_dtype_bytes(field->dtype); k++) {
            int32_t label = ((unsigned char *)fields[i])[k];
            if (field->dtype == LS_I32)
                memcpy(&label, (unsigned char *)fields[i] + 4 * k, sizeof(label));
            if (label < 0 || (uint32_t)label >= field->classes)
                good = ls_tally_blame(tally, "example %" PRIu64 " has the label %d of %u classes",
                                      example, label, field->classes);
        }
        for (uint64_t k = 0; good && k < split->bytes[i]; k++) // FNV-1a
            *hash = (*hash ^ ((unsigned char *)fields[i])[k]) * UINT64_C(0x100000001b3);
    }
    for (uint32_t i = 0; i < count; i++)
        free(memory[i]);
    return good;
}

#define FIRST_HASH UINT64_C(0xcbf29ce484222325)

// All examples, or the first of them, each with a hash of its own.
static bool load_all(const struct suite *suite, struct split *split, uint64_t *hashes,
                     struct ls_tally *tally)
{
    bool good = true;
    for (uint64_t i = 0; good && i < split->count; i++) {
        hashes[i] = FIRST_HASH;
        good = load(suite, split, i, &hashes[i], tally);
    }
    return good;
}

static void compare_hashes(struct ls_tally *tally, const struct split *split, const uint64_t *a,
                           const uint64_t *b, const char *what)
{
    for (uint64_t i = 0; i < split->count; i++)
        if (a[i] != b[i]) {
            ls_tally_blame(tally, "example %" PRIu64 " is another one %s", i, what);
            return;
        }
}

static void description_case(struct suite *suite, const char *name)
{
    struct split split = {0};
    uint32_t roles[LS_FIELD_WEIGHT + 1] = {0};
    if (!ls_tally_begin(&suite->tally, "description of '%s'", name))
        return;
    if (split_open(suite, name, &split)) {
        for (uint32_t i = 0; i < split.about.field_count; i++)
            roles[split.about.fields[i].role]++;
        if (!roles[LS_FIELD_INPUT] || roles[LS_FIELD_TARGET] > 1 || roles[LS_FIELD_WEIGHT] > 1)
            ls_tally_blame(&suite->tally, "%u inputs, %u targets, %u weights",
                           roles[LS_FIELD_INPUT], roles[LS_FIELD_TARGET], roles[LS_FIELD_WEIGHT]);
    }
    split_close(suite, &split);
    ls_tally_end(&suite->tally);
}

static void repeat_case(struct suite *suite, const char *name)
{
    static uint64_t first[MOST_LOADED], second[MOST_LOADED], third[MOST_LOADED];
    struct split one = {0}, two = {0};
    struct ls_tally *tally = &suite->tally;
    if (!ls_tally_begin(tally, "examples of '%s' are the same every time", name))
        return;
    if (split_open(suite, name, &one) && load_all(suite, &one, first, tally) &&
        load_all(suite, &one, second, tally) && split_open(suite, name, &two) &&
        load_all(suite, &two, third, tally)) {
        compare_hashes(tally, &one, first, second, "when it is loaded again");
        compare_hashes(tally, &one, first, third, "where it is opened once more");
    }
    split_close(suite, &one);
    split_close(suite, &two);
    ls_tally_end(tally);
}

struct worker {
    struct suite *suite;
    struct split *split;
    uint64_t *hashes;
    uint64_t begin;
};

// All examples, each thread from another one on.
static void *run_worker(void *argument)
{
    const struct worker *worker = argument;
    const uint64_t count = worker->split->count;
    bool good = true;
    for (uint64_t i = 0; good && i < count; i++) {
        const uint64_t example = (worker->begin + i) % count;
        worker->hashes[example] = FIRST_HASH;
        good = load(worker->suite, worker->split, example, &worker->hashes[example],
                    &worker->suite->tally);
    }
    return NULL;
}

static void thread_case(struct suite *suite)
{
    static uint64_t alone[MOST_LOADED], hashes[THREADS][MOST_LOADED];
    struct split split = {0};
    struct worker workers[THREADS];
    pthread_t threads[THREADS];
    uint32_t started = 0;
    if (!ls_tally_begin(&suite->tally, "%d threads at once", THREADS))
        return;
    const bool loaded =
        split_open(suite, "train", &split) && load_all(suite, &split, alone, &suite->tally);
    for (; loaded && started < THREADS; started++) {
        workers[started] =
            (struct worker){suite, &split, hashes[started], split.count * started / THREADS};
        if (pthread_create(&threads[started], NULL, run_worker, &workers[started]))
            break;
    }
    for (uint32_t i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    for (uint32_t i = 0; i < started && !ls_tally_blamed(&suite->tally); i++)
        compare_hashes(&suite->tally, &split, alone, hashes[i], "when threads load at once");
    split_close(suite, &split);
    ls_tally_end(&suite->tally);
}

// As a training opens it.
static void opening_case(struct suite *suite)
{
    struct ls_data *data = NULL;
    struct split split = {0};
    if (!ls_tally_begin(&suite->tally, "opens as --dataset=FILE"))
        return;
    if (split_open(suite, "train", &split)) {
        if (ls_data_open(suite->plugin->file, "train", &data))
            ls_tally_blame(&suite->tally, "%s", ls_last_error());
        else if (ls_data_count(data) != split.about.examples)
            ls_tally_blame(&suite->tally, "%" PRIu64 " examples, where open said %" PRIu64,
                           ls_data_count(data), split.about.examples);
    }
    ls_data_close(data);
    split_close(suite, &split);
    ls_tally_end(&suite->tally);
}

static void say_nothing(void *context, uint32_t level, const char *line)
{
    (void)context;
    (void)level;
    (void)line;
}

enum ls_status ls_conformance_dataset(const struct ls_own_conformance_options *options,
                                      ls_conformance_report report, void *context,
                                      struct ls_conformance_counts *counts)
{
    struct suite suite = {.plugin = options->plugin, .interface = options->plugin->interface};
    ls_tally_init(&suite.tally, options->only, options->wanted, report, context);
    ls_set_log(say_nothing, NULL);
    description_case(&suite, "train");
    repeat_case(&suite, "train");
    if (!suite.interface->one_split) {
        description_case(&suite, "test");
        repeat_case(&suite, "test");
    }
    thread_case(&suite);
    opening_case(&suite);
    ls_set_log(NULL, NULL);
    if (counts)
        *counts = suite.tally.counts;
    const enum ls_status status = suite.tally.counts.failed ? LS_FAILED : LS_OK;
    ls_tally_finish(&suite.tally);
    return status;
}
