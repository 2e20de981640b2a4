// SPDX-License-Identifier: Apache-2.0
// Damaged checkpoints with a right checksum, as a stranger writes them: trained on from, or refused
// with lines. What is damaged is the state (JSON), the states of callbacks, and names and shapes of
// tensors. Run it under sanitizers.
//
//     fuzz_checkpoint SECONDS SEED
#include "core/base/log.h"
#include "core/model/checkpoint_file.h"
#include "lockstep.h"
#include "tests/fuzz/mutate.h"
#include "tests/fuzz/mutate_json.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#define MOST_SECONDS 60 // for one, on a machine that has other work
#define CALLBACKS 4
#define RESUMED "checkpoint-00000006.safetensors" // in the middle of an epoch

static const char model_json[] =
    "{\"class_name\": \"Sequential\", \"config\": {\"layers\": [{\"class_name\": \"Dense\", "
    "\"config\": {\"name\": \"d\", \"units\": 3, \"activation\": \"softmax\"}}]}}";

static struct ls_run *run;
static struct ls_data *data;
static struct ls_callbacks callbacks[CALLBACKS];
static struct ls_callbacks *opened[CALLBACKS];
static char folder[] = "fuzz-checkpoint-XXXXXX";
static unsigned long lines;
static char last_line[256];
static uint64_t current; // seed

static void count_line(void *context, uint32_t level, const char *line)
{
    (void)context;
    lines += level == LS_LOG_ERROR;
    if (level == LS_LOG_ERROR)
        snprintf(last_line, sizeof(last_line), "%s", line);
}

static void hung(int signal)
{
    (void)signal;
    fprintf(stderr, "seed %llu takes more than %d seconds\n", (unsigned long long)current,
            MOST_SECONDS);
    _exit(1);
}

static bool open_all(void)
{
    static const char *const texts[CALLBACKS] = {
        "early_stopping:monitor=loss,patience=3,restore_best_weights=on",
        "early_stopping:monitor=loss,patience=9", "reduce_lr_on_plateau:monitor=loss,patience=1",
        "csv_logger:filename=fuzz-checkpoint.csv"};
    const struct ls_run_options options = {.strategy = "one-device",
                                           .device = "reference",
                                           .replicas = 1,
                                           .threads = 1,
                                           .cluster = "none"};
    if (!mkdtemp(folder) || ls_run_open(&options, &run) ||
        ls_run_data_open(run, "synthetic:shape=4,classes=3,examples=40", "train", &data))
        return false;
    for (size_t i = 0; i < CALLBACKS; i++) {
        if (ls_callback_open(run, texts[i], &opened[i]))
            return false;
        callbacks[i] = *opened[i];
    }
    return true;
}

// Two checks in one fit: `steps` of them, or to the end of the third epoch.
static enum ls_status fit(uint64_t steps)
{
    const struct ls_checkpoint_options checkpoints = {.folder = folder, .resume = 1, .keep = 9};
    const struct ls_fit_options options = {.epochs = 3,
                                           .steps = steps,
                                           .batch = 10,
                                           .checkpoints = &checkpoints,
                                           .callbacks = callbacks,
                                           .callback_count = CALLBACKS};
    struct ls_model *model = NULL;
    enum ls_status status = ls_model_open_json(run, "m", model_json, data, &model);
    if (!status)
        status = ls_compile(model, &(struct ls_compile_options){
                                       .optimizer = "adam:use_ema=on",
                                       .metrics = "accuracy,sparse_top_k_categorical_accuracy:k=2",
                                       .loss_scale = "dynamic"});
    if (!status)
        status = ls_fit(model, data, &options);
    ls_model_close(model);
    return status;
}

static void path_of(const char *name, char path[static 600])
{
    snprintf(path, 600, "%s/%s", folder, name);
}

static void empty_folder(void)
{
    char path[600];
    DIR *directory = opendir(folder);
    for (struct dirent *file; directory && (file = readdir(directory));) {
        path_of(file->d_name, path);
        if (file->d_name[0] != '.')
            (void)unlink(path);
    }
    if (directory)
        closedir(directory);
}

static void damage_state(uint64_t *random, json_t *state)
{
    for (size_t i = fuzz_below(random, 4); i > 0 && fuzz_json_count(state) > 1; i--)
        fuzz_json_damage(state, fuzz_below(random, fuzz_json_count(state) - 1),
                         fuzz_random(random));
}

// What callbacks and losses have in it; another shape of as many values; another name.
static void damage_tensor(uint64_t *random, struct ls_saved_tensor *tensor)
{
    const size_t way = fuzz_below(random, 12);
    const size_t bytes = (size_t)tensor->dims[0] * sizeof(float);
    if (tensor->ndims == 1 && bytes > 8 && way < 6)
        (void)fuzz_mutate(random, (unsigned char *)(uintptr_t)tensor->data, bytes);
    else if (tensor->ndims == 1 && bytes >= 8 && way == 6)
        fuzz_put_number(random, (unsigned char *)(uintptr_t)tensor->data, bytes);
    else if (way == 7)
        tensor->dims[tensor->ndims++] = 1;
    else if (way == 8 && tensor->ndims == 1) {
        tensor->dims[1] = tensor->dims[0];
        tensor->dims[0] = 1;
        tensor->ndims = 2;
    } else if (way == 9)
        tensor->dims[0] = (int64_t)fuzz_below(random, (size_t)tensor->dims[0] + 1);
    else if (way == 10 && tensor->ndims < LS_SAFETENSORS_MAX_DIMS) {
        tensor->dims[0] *= 1000000;
        tensor->dims[tensor->ndims++] = 0; // no value at all
    } else if (way == 11)
        tensor->name = "x";
}

// Writes a damaged copy of the checkpoint, whose file is open but not in its folder any more.
static bool write_damaged(const struct ls_safetensors *file, const json_t *good)
{
    uint64_t random = current;
    char path[600];
    json_t *state = json_deep_copy(good);
    const size_t count = ls_safetensors_count(file);
    struct ls_saved_tensor *tensors = calloc(count + 1, sizeof(*tensors));
    bool good_read = true;
    path_of(RESUMED, path);
    if (fuzz_below(&random, 3))
        damage_state(&random, state);
    for (size_t i = 0; i < count; i++) {
        tensors[i] = *ls_safetensors_get(file, i);
        size_t bytes = sizeof(float);
        for (uint32_t k = 0; k < tensors[i].ndims; k++)
            bytes *= (size_t)tensors[i].dims[k];
        float *copy = malloc(bytes + 1);
        good_read &= !ls_safetensors_read(file, ls_safetensors_get(file, i), copy);
        tensors[i].data = copy;
        const bool often = tensors[i].ndims == 1 && strchr(tensors[i].name, '/') &&
                           (strncmp(tensors[i].name, "callback", 8) == 0 ||
                            strncmp(tensors[i].name, "history", 7) == 0);
        if (fuzz_below(&random, often ? 3 : 60) == 0)
            damage_tensor(&random, &tensors[i]);
    }
    const struct ls_checkpoint_image image = {
        .tensors = tensors, .count = count, .state = json_dumps(state, JSON_COMPACT)};
    const int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    const bool good_write =
        good_read && fd >= 0 && image.state && !ls_checkpoint_write_to(&image, fd, path, false);
    if (fd >= 0)
        close(fd);
    for (size_t i = 0; i < count; i++)
        free((void *)(uintptr_t)tensors[i].data);
    free(tensors);
    free(image.state);
    json_decref(state);
    return good_write;
}

int main(int argc, char **argv)
{
    unsigned long results[2] = {0};
    char path[600];
    struct ls_safetensors *file = NULL;
    json_t *state = NULL;
    bool good = argc >= 3 && open_all();
    ls_log_set_level(LS_LOG_WARN);
    if (good)
        good = !fit(6);
    path_of(RESUMED, path);
    if (!good || ls_checkpoint_open(path, &file, &state))
        return 2;
    signal(SIGALRM, hung);
    ls_log_set_writer(count_line, NULL);
    const double end_at = fuzz_clock() + strtod(argv[1], NULL);
    for (current = strtoull(argv[2], NULL, 10); good && fuzz_clock() < end_at; current++) {
        empty_folder();
        if (!write_damaged(file, state)) // no file can say that
            continue;
        alarm(MOST_SECONDS);
        lines = 0;
        const enum ls_status status = fit(0);
        alarm(0);
        results[status != LS_OK]++;
        good = status == LS_OK ? lines == 0
                               : lines > 0 && (status == LS_BAD_INPUT || status == LS_USAGE ||
                                               status == LS_FAILED);
        if (!good)
            fprintf(stderr, "seed %llu: status %d, %lu lines, the last one: %s; it is kept in %s\n",
                    (unsigned long long)current, (int)status, lines, last_line, folder);
    }
    if (good) {
        empty_folder();
        path_of(".lock", path);
        (void)unlink(path);
        (void)rmdir(folder);
        (void)unlink("fuzz-checkpoint.csv");
    }
    json_decref(state);
    ls_safetensors_close(file);
    for (size_t i = 0; i < CALLBACKS; i++)
        ls_callback_close(opened[i]);
    ls_data_close(data);
    ls_run_close(run);
    printf("%lu trained on from, %lu refused\n", results[0], results[1]);
    return !good || !results[0] || !results[1];
}
