// SPDX-License-Identifier: Apache-2.0
// When checkpoints of a fit are written, how they are called, which stay, and which one a training goes on from.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // asprintf, getrandom
#endif
#include "core/train/checkpoints.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/options.h"
#include "core/base/plain_locale.h"
#include "core/base/random.h"
#include "core/base/threads.h"
#include "core/base/trace.h"
#include "core/model/checkpoint_file.h"
#include "core/train/fit.h"
#include "core/run/workers.h"
#include "core/train/model_calls.h"
#include "core/train/rank_values.h"
#include "core/train/session_values.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define SCOPE "checkpoint"
#define DEFAULT_NAME "checkpoint-{step:08}"
#define DEFAULT_KEEP 3
#define LOSSES "history/losses" // names of tensors that are no variables
#define CALLBACK "callback_%u/state"
#define LOCK ".lock" // of the folder; stays there

static const struct ls_trace_label take_span = {.category = "checkpoint", .name = "copy"};

struct entry {
    char *path;
    struct ls_checkpoint_head head;
};

struct ls_checkpoints {
    const struct ls_checkpoint_options *options; // borrowed
    char name[256]; // template
    char best_metric[64];
    bool best_given, upwards; // the direction was named
    bool has_best;
    double best;
    struct entry *entries; // of the folder, the newest last
    size_t count;
    size_t unusable; // files with a checkpoint's name that cannot be read, and are in no list
    uint64_t training; // drawn when it begins; the same in all processes of it, resumed ones too
    uint64_t generation; // of the chief that began this process's part, before the cluster's
    uint64_t written_step; // of the fit; UINT64_MAX: none
    uint64_t last_ns; // when the last one was written, or the fit began
    uint64_t begun_ns, begun_steps; // to guess how long a step takes
    bool reads_only; // another worker is the chief, which writes
    bool takes_over; // from a chief that was lost
    int lock; // open file that no other training has locked; -1: none
    struct ls_checkpoint_image image;
    // What is being written beside the training.
    pthread_t writer;
    bool writing;
    char *path;
    enum ls_status status; // of the file
    enum ls_status listed; // whether it is in the list
};

// ---- The folder ----

static int compare_entries(const void *a, const void *b)
{
    const struct ls_checkpoint_head *one = &((const struct entry *)a)->head,
                                    *other = &((const struct entry *)b)->head;
    if (one->generation != other->generation)
        return (one->generation > other->generation) - (one->generation < other->generation);
    return (one->step > other->step) - (one->step < other->step);
}

// `path` is taken. A name that is there already is of the newer step now.
static enum ls_status add_entry(struct ls_checkpoints *all, char *path,
                                const struct ls_checkpoint_head *head)
{
    for (size_t i = 0; path && i < all->count; i++)
        if (strcmp(all->entries[i].path, path) == 0) {
            all->entries[i].head = *head;
            qsort(all->entries, all->count, sizeof(*all->entries), compare_entries);
            free(path);
            return LS_OK;
        }
    struct entry *larger = realloc(all->entries, (all->count + 1) * sizeof(*larger));
    if (larger)
        all->entries = larger;
    if (!larger || !path) {
        free(path);
        return LS_OUT_OF_MEMORY;
    }
    all->entries[all->count++] = (struct entry){path, *head};
    qsort(all->entries, all->count, sizeof(*all->entries), compare_entries);
    return LS_OK;
}

static void forget_entries(struct ls_checkpoints *all)
{
    while (all->count)
        free(all->entries[--all->count].path);
    all->unusable = 0;
}

static void draw_training(struct ls_checkpoints *all)
{
    if (getrandom(&all->training, sizeof(all->training), 0) < 0)
        all->training = ls_random_key(ls_clock_ns(), (uint64_t)getpid());
}

// Others in the folder are not touched, whatever they are called.
static bool is_own(const struct ls_checkpoints *all, const struct entry *entry)
{
    return all->training && entry->head.training == all->training;
}

// "x.safetensors.1234-0.tmp" of a process that is gone was being written when it ended.
static void remove_leftover(const char *path)
{
    const char *suffix = strstr(path, LS_CHECKPOINT_SUFFIX ".");
    long process = 0;
    int attempt = 0, length = 0;
    if (suffix &&
        sscanf(suffix, LS_CHECKPOINT_SUFFIX ".%ld-%d.tmp%n", &process, &attempt, &length) == 2 &&
        suffix[length] == '\0' && process > 0 && kill((pid_t)process, 0) && errno == ESRCH)
        (void)unlink(path);
}

// What cannot be read may be what the training is to go on from: it is never passed over in silence.
static enum ls_status look_at(struct ls_checkpoints *all, const char *file)
{
    const size_t bytes = strlen(all->options->folder) + strlen(file) + 2;
    const size_t length = strlen(file), suffix = strlen(LS_CHECKPOINT_SUFFIX);
    char *path = malloc(bytes), why[128] = "is no checkpoint of Lockstep";
    struct ls_checkpoint_head head;
    if (!path)
        return LS_OUT_OF_MEMORY;
    snprintf(path, bytes, "%s/%s", all->options->folder, file);
    if (length > suffix && strcmp(file + length - suffix, LS_CHECKPOINT_SUFFIX) == 0) {
        const enum ls_status status = ls_checkpoint_read_head(path, &head, why);
        if (!status)
            return add_entry(all, path, &head);
        const bool counts = status == LS_BAD_INPUT || ls_checkpoint_is_name(all->name, file) ||
                            ls_checkpoint_is_name(DEFAULT_NAME, file);
        all->unusable += counts;
        if (all->options->resume && !all->takes_over)
            ls_warn(SCOPE, "'%s' %s%s", path, why,
                    counts ? ", and cannot be used" : "; it is left alone");
    } else if (!all->reads_only) {
        remove_leftover(path);
    }
    free(path);
    return LS_OK;
}

static enum ls_status read_folder(struct ls_checkpoints *all)
{
    const char *folder = all->options->folder;
    enum ls_status status = LS_OK;
    forget_entries(all);
    DIR *directory = opendir(folder);
    while (directory && !status) {
        errno = 0;
        const struct dirent *file = readdir(directory);
        if (!file)
            break;
        if (file->d_name[0] != '.')
            status = look_at(all, file->d_name);
        errno = 0;
    }
    if (!status && errno) {
        ls_error(SCOPE, "cannot read the folder '%s': %s", folder, strerror(errno));
        status = LS_BAD_INPUT;
    }
    if (directory)
        closedir(directory);
    return status;
}

// Two trainings would remove each other's checkpoints. The kernel releases the lock of a process
// that ends, however it ends. Where files cannot be locked, a training is not refused for that.
static enum ls_status lock_folder(struct ls_checkpoints *all)
{
    const struct timespec pause = {.tv_nsec = 10 * 1000 * 1000};
    const char *folder = all->options->folder;
    const size_t bytes = strlen(folder) + sizeof("/" LOCK);
    char *path = malloc(bytes);
    if (!path)
        return LS_OUT_OF_MEMORY;
    snprintf(path, bytes, "%s/" LOCK, folder);
    all->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    int error = all->lock < 0 || flock(all->lock, LOCK_EX | LOCK_NB) ? errno : 0;
    // A process that was killed may close its connections before it closes this file.
    for (int tries = 0; all->takes_over && error == EWOULDBLOCK && tries < 50; tries++) {
        nanosleep(&pause, NULL);
        error = flock(all->lock, LOCK_EX | LOCK_NB) ? errno : 0;
    }
    enum ls_status status = LS_OK;
    if (error == EWOULDBLOCK && all->takes_over) {
        ls_warn(SCOPE,
                "the last worker 0 is stopped or cut off, and still has '%s' locked; this worker "
                "writes the checkpoints from now on",
                path);
    } else if (error == EWOULDBLOCK) {
        ls_error(SCOPE,
                 "another training that is running keeps its checkpoints in '%s'; wait until it "
                 "has ended, or take another folder",
                 folder);
        status = LS_USAGE;
    } else if (error) {
        ls_warn(SCOPE,
                "cannot lock '%s': %s; make sure that no other training uses the same folder", path,
                strerror(error));
    }
    free(path);
    return status;
}

static enum ls_status look_around(struct ls_checkpoints *all)
{
    const char *folder = all->options->folder;
    if (all->reads_only && access(folder, F_OK) && errno == ENOENT)
        return LS_OK;
    if (!all->reads_only && mkdir(folder, 0777) && errno != EEXIST) {
        ls_error(SCOPE, "cannot create the folder '%s': %s", folder, strerror(errno));
        return LS_BAD_INPUT;
    }
    struct stat about;
    const bool is_there = stat(folder, &about) == 0;
    if (is_there && !S_ISDIR(about.st_mode))
        errno = ENOTDIR;
    if (!is_there || !S_ISDIR(about.st_mode) || access(folder, all->reads_only ? R_OK : W_OK)) {
        ls_error(SCOPE, "cannot %s the folder '%s': %s", all->reads_only ? "read" : "write in",
                 folder, strerror(errno));
        return LS_BAD_INPUT;
    }
    const enum ls_status status = all->reads_only ? LS_OK : lock_folder(all);
    return status ? status : read_folder(all);
}

// ---- Options ----

static enum ls_status read_options(struct ls_fit *fit, struct ls_checkpoints *all)
{
    const struct ls_checkpoint_options *options = all->options;
    const char *name = options->name ? options->name : DEFAULT_NAME, *best = options->best;
    char expanded[NAME_MAX];
    if (!options->folder || !*options->folder) {
        ls_error(SCOPE, "the name of the folder is empty");
        return LS_USAGE;
    }
    if (ls_checkpoint_is_keras(name)) {
        ls_error(
            SCOPE,
            "'%s' is the name of a file of Keras, and checkpoints, with the state of the "
            "training, are safetensors: leave the suffix out. --save-weights=FILE.keras writes "
            "a model for Keras",
            name);
        return LS_USAGE;
    }
    if (strlen(name) >= sizeof(all->name) ||
        !ls_checkpoint_name(fit, name, 0, expanded, sizeof(expanded))) {
        ls_error(
            SCOPE,
            "'%s' cannot be a name of checkpoints: in braces may stand step, epoch and metrics "
            "of the training, as in checkpoint-{epoch:03}-{val_loss:.2f}, and no folder",
            name);
        return LS_USAGE;
    }
    snprintf(all->name, sizeof(all->name), "%s", name);
    if (!best)
        return LS_OK;
    const size_t length = strcspn(best, ":");
    snprintf(all->best_metric, sizeof(all->best_metric), "%.*s", (int)length, best);
    all->upwards = strcmp(best + length, ":max") == 0;
    all->best_given = best[length] != '\0';
    if (!ls_checkpoint_knows_metric(fit, all->best_metric) ||
        (all->best_given && !all->upwards && strcmp(best + length, ":min") != 0)) {
        ls_error(SCOPE, "'%s': expected a metric of the training, and :min or :max behind it",
                 best);
        return LS_USAGE;
    }
    if (options->steps || options->seconds > 0) {
        ls_error(SCOPE, "which checkpoint is the best is known after each epoch: not together with "
                        "a number of steps or seconds");
        return LS_USAGE;
    }
    return LS_OK;
}

// ---- Going on ----

static enum ls_status resume_callback(struct ls_fit *fit, uint32_t index,
                                      const struct ls_saved_tensor *tensor, uint64_t bytes)
{
    float *data = malloc((size_t)tensor->dims[0] * sizeof(*data));
    if (!data)
        return LS_OUT_OF_MEMORY;
    const struct ls_callback_state state = {.data = data, .bytes = bytes};
    enum ls_status status = ls_safetensors_read(fit->resumed.file, tensor, data);
    if (!status)
        status = ls_clients_load_state(&fit->clients, index, &fit->state, &state);
    free(data);
    return status;
}

enum ls_status ls_checkpoints_begin(struct ls_fit *fit)
{
    struct ls_checkpoints *all = fit->checkpoints;
    const json_t *saved = json_object_get(fit->resumed.state, "callbacks");
    enum ls_status status = LS_OK;
    for (uint32_t i = 0; fit->resumed.file && !status && i < fit->clients.table_count; i++) {
        const struct ls_callbacks *table = &fit->clients.tables[i];
        const size_t place = ls_fit_find_callback(fit, i);
        char tensor_name[32], name[64];
        uint64_t bytes = 0;
        snprintf(tensor_name, sizeof(tensor_name), CALLBACK, (unsigned)place);
        const struct ls_saved_tensor *tensor = ls_safetensors_find(fit->resumed.file, tensor_name);
        if (!table->load_state)
            continue;
        if (place == json_array_size(saved)) {
            ls_warn(SCOPE, "the checkpoint has nothing of callback %s, which begins anew",
                    ls_clients_name(&fit->clients, i, name));
        } else if (!ls_checkpoint_count(json_array_get(saved, place), "bytes", &bytes) ||
                   (bytes && (!tensor || tensor->ndims != 1 ||
                              bytes > (uint64_t)tensor->dims[0] * sizeof(float)))) {
            ls_error(SCOPE, "the checkpoint is damaged: the state of callback %s is not there",
                     ls_clients_name(&fit->clients, i, name));
            status = LS_BAD_INPUT;
        } else if (bytes) {
            status = resume_callback(fit, i, tensor, bytes);
        }
    }
    if (fit->resumed.file && !status)
        status = ls_rank_values_resume(fit->session, fit->resumed.file);
    if (fit->resumed.file && !status && ls_rank_values_are_shared(fit->resumed.file)) {
        fit->regroups = true;
        status = ls_rank_values_adopt(fit->resumed.file, &fit->kept);
    }
    ls_safetensors_close(fit->resumed.file);
    fit->resumed.file = NULL;
    if (!all)
        return status;
    all->last_ns = all->begun_ns = ls_clock_ns();
    all->begun_steps = fit->done.steps;
    return status;
}

static enum ls_status take_losses(struct ls_fit *fit, const struct ls_safetensors *file)
{
    const struct ls_saved_tensor *losses = ls_safetensors_find(file, LOSSES);
    free(fit->resumed.losses);
    fit->resumed.losses = NULL;
    fit->resumed.loss_count = 0;
    if (!losses)
        return LS_OK;
    if (losses->ndims != 1 || (uint64_t)losses->dims[0] > fit->done.steps) {
        ls_error(SCOPE, "the checkpoint is damaged: it has more losses than steps");
        return LS_BAD_INPUT;
    }
    fit->resumed.losses = malloc(((size_t)losses->dims[0] + 1) * sizeof(float));
    if (!fit->resumed.losses)
        return LS_OUT_OF_MEMORY;
    fit->resumed.loss_count = (size_t)losses->dims[0];
    return ls_safetensors_read(file, losses, fit->resumed.losses);
}

enum ls_status ls_checkpoints_go_on_from(struct ls_fit *fit, const char *path,
                                         struct ls_safetensors *file, const json_t *state)
{
    const json_t *saved = json_object_get(state, "fit");
    struct ls_checkpoints *all = fit->checkpoints;
    if (!json_is_object(saved)) {
        ls_error(SCOPE, "'%s' is a saved model, not a checkpoint of a training", path);
        return LS_BAD_INPUT;
    }
    json_decref(fit->resumed.state);
    fit->resumed.state = json_incref((json_t *)(uintptr_t)saved);
    ls_safetensors_close(fit->resumed.file); // from which the fit has not begun
    fit->resumed.file = file;
    enum ls_status status = ls_fit_resume_steps(fit); // before the model is another one
    if (!status)
        status = ls_checkpoint_restore(fit->model, path, file, state);
    if (!status)
        status = take_losses(fit, file);
    const json_t *best = json_object_get(saved, "best");
    if (all) {
        // The numbers of the cluster's generations begin anew with each process.
        const uint64_t own = ls_cluster_generation(fit->run->workers.cluster);
        const char *training = json_string_value(json_object_get(state, "training"));
        uint64_t generation = 0;
        (void)!ls_checkpoint_count(state, "generation", &generation);
        all->generation = generation > own ? generation - own : 0;
        all->training = training ? strtoull(training, NULL, 16) : all->training;
        all->has_best = json_is_number(best);
        all->best = json_number_value(best);
        all->written_step = UINT64_MAX;
    }
    return status;
}

// What the line of an error says behind the path.
static const char *reason_of(const char *line, const char *path)
{
    const char *at = line ? strstr(line, path) : NULL;
    if (!at)
        return line ? line : "no reason is known";
    at += strlen(path);
    return at + strspn(at, "': ");
}

// Where it cannot be used, that is one line; LS_BAD_INPUT then. `next`: what is tried instead.
static enum ls_status open_or_say(const char *path, const char *next, struct ls_safetensors **file,
                                  json_t **state)
{
    char *line = NULL, **before = ls_log_keep(&line);
    enum ls_status status = ls_checkpoint_open(path, file, state);
    ls_log_keep(before);
    const char *why =
        status == LS_UNSUPPORTED ? "no checkpoint of Lockstep" : reason_of(line, path);
    if (!status && !json_is_object(json_object_get(*state, "fit"))) {
        why = "a saved model, not a checkpoint of a training";
        json_decref(*state);
        ls_safetensors_close(*file);
        status = LS_BAD_INPUT;
    }
    if (status && status != LS_OUT_OF_MEMORY) {
        ls_warn(SCOPE, "'%s' cannot be used (%s)%s%s%s", path, why,
                next ? "; trying the one before it, '" : "", next ? next : "", next ? "'" : "");
        status = LS_BAD_INPUT;
    }
    free(line);
    return status;
}

// The newest one that is whole. A damaged one is named, and the one before it is taken.
static enum ls_status resume(struct ls_fit *fit)
{
    struct ls_checkpoints *all = fit->checkpoints;
    for (size_t i = all->count; i-- > 0;) {
        const char *path = all->entries[i].path;
        struct ls_safetensors *file = NULL;
        json_t *state = NULL;
        enum ls_status status =
            open_or_say(path, i ? all->entries[i - 1].path : NULL, &file, &state);
        if (status == LS_BAD_INPUT)
            continue;
        if (status)
            return status;
        status = ls_checkpoints_go_on_from(fit, path, file, state);
        if (!status)
            ls_info(SCOPE, "resuming from '%s'", path);
        if (!all->training) { // an older one says nothing: it is of the training that goes on from it
            draw_training(all);
            all->entries[i].head.training = all->training;
        }
        // A chief of the last process may have been stopped, and come back.
        all->generation += fit->run->most_workers > 0;
        json_decref(state);
        return status;
    }
    if (all->count + all->unusable) {
        ls_error(SCOPE, "no checkpoint in '%s' can be used; use another folder to start over",
                 all->options->folder);
        return LS_BAD_INPUT;
    }
    ls_info(SCOPE, "there is no checkpoint in '%s' yet: the training begins", all->options->folder);
    return LS_OK;
}

enum ls_status ls_checkpoints_open(struct ls_fit *fit)
{
    struct ls_checkpoints *all = calloc(1, sizeof(*all));
    if (!all)
        return LS_OUT_OF_MEMORY;
    fit->checkpoints = all;
    all->lock = -1;
    all->reads_only = !ls_run_is_chief(fit->run);
    all->options = fit->options->checkpoints;
    all->written_step = UINT64_MAX;
    enum ls_status status = read_options(fit, all);
    if (status || fit->joined) // the other workers say where the training is
        return status;
    status = look_around(all);
    if (!status && all->count + all->unusable && !all->options->resume) {
        ls_error(SCOPE,
                 "'%s' holds checkpoints of an earlier training; --resume continues from the "
                 "newest; use another folder to start over",
                 all->options->folder);
        status = LS_USAGE;
    }
    if (!status && all->options->resume)
        status = resume(fit);
    return status;
}

// Every worker reads the checkpoint itself, so that all must have found the same. A training that
// begins is given its name by worker 0.
enum ls_status ls_checkpoints_agree(struct ls_fit *fit)
{
    struct ls_checkpoints *all = fit->checkpoints;
    struct ls_worker_item item = {.name = "a training that goes on from (all hosts must see the "
                                          "same --checkpoint-dir)"};
    if (!all)
        return LS_OK;
    snprintf(item.value, sizeof(item.value), "step %" PRIu64, fit->done.steps);
    if (all->generation)
        snprintf(item.value, sizeof(item.value), "step %" PRIu64 " of generation %" PRIu64,
                 fit->done.steps, all->generation);
    const enum ls_status status = ls_workers_agree(fit->run, &item, 1);
    if (!status && !all->training)
        draw_training(all);
    return status ? status
                  : ls_cluster_broadcast(fit->run->workers.cluster, &all->training,
                                         sizeof(all->training), 0);
}

enum ls_status ls_checkpoints_follow_chief(struct ls_fit *fit)
{
    struct ls_checkpoints *all = fit->checkpoints;
    if (!all || !all->reads_only || !ls_run_is_chief(fit->run))
        return LS_OK;
    all->reads_only = false;
    all->takes_over = true;
    return look_around(all);
}

// ---- Writing ----

// The newest of this training; NULL: there is none.
static const struct entry *newest_own(const struct ls_checkpoints *all)
{
    for (size_t i = all->count; i-- > 0;)
        if (is_own(all, &all->entries[i]))
            return &all->entries[i];
    return NULL;
}

static void remove_old(struct ls_checkpoints *all)
{
    size_t own = 0;
    const size_t keep = all->options->keep ? all->options->keep : DEFAULT_KEEP;
    for (size_t i = 0; i < all->count; i++)
        own += is_own(all, &all->entries[i]);
    for (size_t i = 0; own > keep;) {
        struct entry *entry = &all->entries[i];
        if (!is_own(all, entry)) {
            i++;
            continue;
        }
        if (unlink(entry->path) && errno != ENOENT)
            ls_warn(SCOPE, "cannot remove the old checkpoint '%s': %s", entry->path,
                    strerror(errno));
        free(entry->path);
        memmove(entry, entry + 1, (--all->count - i) * sizeof(*entry));
        own--;
    }
}

// The file, its place in the list, and the removal of old ones: nobody else looks at the list before
// settle().
static void *write_image(void *argument)
{
    struct ls_checkpoints *all = argument;
    all->status = ls_checkpoint_write(&all->image, all->path);
    if (all->status)
        return NULL;
    const struct ls_checkpoint_head head = {all->image.generation, all->image.step,
                                            all->image.training};
    all->listed = add_entry(all, all->path, &head);
    all->path = NULL;
    if (!all->listed && all->takes_over) // the last chief may have come back, and written one
        all->listed = read_folder(all);
    if (!all->listed)
        remove_old(all);
    return NULL;
}

// What replicas leave of the processors is enough for a file.
// [a thread of its own]
static void *write_beside(void *argument)
{
    ls_thread_step_back();
    return write_image(argument);
}

static bool may_replace(const struct ls_checkpoints *all, const char *path)
{
    struct stat about;
    for (size_t i = 0; i < all->count; i++)
        if (strcmp(all->entries[i].path, path) == 0)
            return is_own(all, &all->entries[i]);
    return lstat(path, &about) && errno == ENOENT;
}

// The outcome of the last one, once it is there.
static enum ls_status settle(struct ls_checkpoints *all)
{
    if (all->writing)
        pthread_join(all->writer, NULL);
    all->writing = false;
    const enum ls_status listed = all->listed;
    all->listed = LS_OK;
    if (!all->path)
        return listed;
    const struct entry *newest = newest_own(all);
    ls_warn(SCOPE, "'%s' was not written; the training goes on%s%s", all->path,
            newest ? ", and the last good one is " : "", newest ? newest->path : "");
    free(all->path);
    all->path = NULL;
    return LS_OK;
}

static json_t *callbacks_json(const struct ls_fit *fit, struct ls_checkpoint_image *image,
                              enum ls_status *status)
{
    json_t *list = json_array();
    for (uint32_t i = 0; !*status && i < fit->clients.table_count; i++) {
        const struct ls_callbacks *table = &fit->clients.tables[i];
        struct ls_callback_state state = {0};
        char name[32];
        if (table->save_state) {
            LS_PROGRAM_LOCALE;
            *status = table->save_state(table->context, &state);
        }
        json_array_append_new(list, json_pack("{s:s, s:I}", "name", table->name ? table->name : "",
                                              "bytes", (json_int_t)state.bytes));
        if (*status || !state.bytes)
            continue;
        const uint64_t count = (state.bytes + sizeof(float) - 1) / sizeof(float);
        float *values = calloc(count, sizeof(*values));
        if (!values) {
            *status = LS_OUT_OF_MEMORY;
            continue;
        }
        memcpy(values, state.data, state.bytes);
        snprintf(name, sizeof(name), CALLBACK, i);
        *status = ls_checkpoint_add(image, name, values, count);
        free(values);
    }
    return list;
}

// Which chief this is, of all that have followed each other in the training.
static uint64_t generation_of(const struct ls_fit *fit)
{
    return (fit->checkpoints ? fit->checkpoints->generation : 0) +
           ls_cluster_generation(fit->run->workers.cluster);
}

enum ls_status ls_checkpoints_take(struct ls_fit *fit, bool ended,
                                   struct ls_checkpoint_image *image)
{
    const struct ls_checkpoints *all = fit->checkpoints;
    const bool has_begun =
        fit->hashes || !fit->resumed.state; // else all that is known is what it goes on from
    enum ls_status status = ls_checkpoint_take(fit->model, image);
    if (!status)
        status =
            ls_checkpoint_add(image, LOSSES, has_begun ? fit->history.losses : fit->resumed.losses,
                              has_begun ? fit->history.loss_count : fit->resumed.loss_count);
    json_t *own = status      ? NULL
                  : has_begun ? ls_fit_save_state(fit, ended)
                              : json_deep_copy(fit->resumed.state);
    if (!status && !own)
        status = LS_OUT_OF_MEMORY;
    if (status)
        return status;
    image->training = all ? all->training : 0;
    image->generation = generation_of(fit);
    json_object_set_new(own, "callbacks", callbacks_json(fit, image, &status));
    json_object_set_new(own, "best", all && all->has_best ? json_real(all->best) : json_null());
    if (!status)
        return ls_checkpoint_describe(fit->model, own, image);
    json_decref(own);
    return status;
}

// Where the next one belongs, once the last is settled. NULL with LS_OK: it is not written.
static enum ls_status find_path(struct ls_fit *fit, char **out)
{
    struct ls_checkpoints *all = fit->checkpoints;
    char name[NAME_MAX];
    const enum ls_status status = settle(all);
    *out = NULL;
    if (status)
        return status;
    if (!ls_checkpoint_name(fit, all->name, generation_of(fit), name, sizeof(name)) ||
        asprintf(out, "%s/%s", all->options->folder, name) < 0)
        return LS_OUT_OF_MEMORY;
    ls_cluster_say(fit->run->workers.cluster, fit->model->steps_done, "a checkpoint");
    all->last_ns = ls_clock_ns();
    if (may_replace(all, *out))
        return LS_OK;
    ls_warn(SCOPE, "'%s' is not of this training, and is not replaced; the training goes on", *out);
    free(*out);
    *out = NULL;
    return LS_OK;
}

// Whether a checkpoint has something of each worker, so that all of them have to be there.
static bool needs_all_workers(const struct ls_fit *fit)
{
    return ls_session_spreads_over_workers(fit->session) ||
           ls_rank_values_over_workers(fit->session);
}

// Another worker writes the file: first what ranks have of their own, then what is in parts, which
// may be read while the file is written.
static enum ls_status lend(struct ls_session *session)
{
    const enum ls_status status = ls_rank_values_save(session, true, NULL);
    return status && status != LS_OUT_OF_MEMORY ? status : ls_session_lend(session, LS_TAKE_ALL);
}

// This one should, and cannot.
static void decline(struct ls_session *session)
{
    (void)!ls_rank_values_save(session, false, NULL);
    ls_session_decline(session, LS_TAKE_ALL);
}

// Without a session the other workers are lost, and what is left was kept.
static enum ls_status save_ranks(struct ls_fit *fit, struct ls_checkpoint_image *image)
{
    const bool own = fit->kept_steps == fit->done.steps || ls_rank_values_furthest(&fit->kept);
    return fit->session ? ls_rank_values_save(fit->session, true, image)
                        : ls_rank_values_share(&fit->kept, own, image);
}

// Copies the model while the replicas rest; the file is written beside the training. Without a copy
// it is written at once.
static enum ls_status write_one(struct ls_fit *fit, bool ended)
{
    struct ls_checkpoints *all = fit->checkpoints;
    char *path = NULL;
    if (!all->reads_only || needs_all_workers(fit))
        all->written_step = fit->done.steps;
    if (all->reads_only)
        return lend(fit->session);
    enum ls_status status = find_path(fit, &path);
    if (!path) {
        decline(fit->session);
        return status;
    }
    ls_trace_begin(&take_span, 0);
    status = ls_checkpoints_take(fit, ended, &all->image);
    if (status) {
        decline(fit->session);
    } else {
        status = save_ranks(fit, &all->image);
        if (status)
            ls_session_decline(fit->session, LS_TAKE_ALL);
    }
    ls_trace_end();
    if (status) {
        const bool goes_on = status == LS_OUT_OF_MEMORY && !(fit->session && fit->session->broken);
        if (goes_on)
            ls_warn(SCOPE, "no memory for a copy: '%s' was not written; the training goes on",
                    path);
        free(path);
        return goes_on ? LS_OK : status;
    }
    all->path = path;
    if (all->image.source.read) {
        write_image(all);
        if (!all->image.failed || all->image.failed == LS_OUT_OF_MEMORY)
            return LS_OK;
        free(all->path); // the training does not go on
        all->path = NULL;
        return all->image.failed;
    }
    all->writing = !ls_thread_start(&all->writer, "checkpoint", write_beside, all);
    if (!all->writing) // without a thread it is written here
        write_image(all);
    return LS_OK;
}

// ---- When ----

uint64_t ls_checkpoints_most_steps(const struct ls_fit *fit)
{
    const struct ls_checkpoints *all = fit->checkpoints;
    if (!all)
        return UINT64_MAX;
    const struct ls_checkpoint_options *options = all->options;
    uint64_t most = options->steps ? options->steps - fit->done.steps % options->steps : UINT64_MAX;
    if (!(options->seconds > 0) || all->reads_only) // the chief has the clock
        return most;
    // As many as are likely to be done when it is time; at first one, to see how long it takes.
    const uint64_t now = ls_clock_ns(), done = fit->done.steps - all->begun_steps;
    const double left = options->seconds - (double)(now - all->last_ns) * 1e-9;
    const double step = done ? (double)(now - all->begun_ns) * 1e-9 / (double)done : INFINITY;
    const double steps = left > step ? left / step : 1;
    return steps < (double)most ? (uint64_t)steps : most;
}

enum ls_status ls_checkpoints_after_segment(struct ls_fit *fit)
{
    struct ls_checkpoints *all = fit->checkpoints;
    if (!all || all->written_step == fit->done.steps)
        return LS_OK;
    const struct ls_checkpoint_options *options = all->options;
    const bool steps = options->steps && fit->done.steps && fit->done.steps % options->steps == 0;
    const bool seconds =
        options->seconds > 0 && (double)(ls_clock_ns() - all->last_ns) * 1e-9 >= options->seconds;
    unsigned char due = steps || seconds;
    enum ls_status status = LS_OK;
    if (options->seconds > 0 && needs_all_workers(fit))
        status = ls_cluster_broadcast(fit->run->workers.cluster, &due, sizeof(due), 0);
    return !status && due ? write_one(fit, false) : status;
}

// Whether the epoch is the best so far.
static bool is_best(struct ls_fit *fit)
{
    struct ls_checkpoints *all = fit->checkpoints;
    const struct ls_metrics *metrics = &fit->state.epoch.metrics;
    for (uint32_t i = 0; i < metrics->count; i++) {
        const struct ls_metric *metric = &metrics->list[i];
        if (strcmp(metric->name, all->best_metric) != 0)
            continue;
        const bool upwards = all->best_given ? all->upwards : metric->upwards;
        if (isnan(metric->value) ||
            (all->has_best && !(upwards ? metric->value > all->best : metric->value < all->best)))
            return false;
        all->has_best = true;
        all->best = metric->value;
        return true;
    }
    ls_warn(SCOPE, "this epoch has no %s: no checkpoint is written", all->best_metric);
    return false;
}

enum ls_status ls_checkpoints_after_epoch(struct ls_fit *fit)
{
    struct ls_checkpoints *all = fit->checkpoints;
    if (!all || all->options->steps || all->options->seconds > 0)
        return LS_OK;
    return !all->options->best || is_best(fit) ? write_one(fit, true) : LS_OK;
}

// What was learned since the last one.
static enum ls_status write_rest(struct ls_fit *fit, bool ended)
{
    const struct ls_checkpoints *all = fit->checkpoints;
    if (all->options->best || all->written_step == fit->done.steps ||
        fit->done.steps == fit->resumed.steps)
        return LS_OK;
    return write_one(fit, ended);
}

enum ls_status ls_checkpoints_within_epoch(struct ls_fit *fit)
{
    return fit->checkpoints ? write_rest(fit, false) : LS_OK;
}

enum ls_status ls_checkpoints_at_end(struct ls_fit *fit)
{
    struct ls_checkpoints *all = fit->checkpoints;
    if (!all)
        return LS_OK;
    const enum ls_status status = write_rest(fit, fit->done.epoch_ended);
    const enum ls_status written = settle(all);
    return status ? status : written;
}

void ls_checkpoints_close(struct ls_fit *fit)
{
    struct ls_checkpoints *all = fit->checkpoints;
    json_decref(fit->resumed.state);
    free(fit->resumed.losses);
    ls_safetensors_close(fit->resumed.file);
    if (!all)
        return;
    (void)!settle(all);
    forget_entries(all);
    free(all->entries);
    ls_checkpoint_finish(&all->image);
    if (all->lock >= 0)
        close(all->lock);
    free(all);
}
