// SPDX-License-Identifier: Apache-2.0
// Which plans of cuDNN were taken, so that the same are taken again: by all replicas of the
// process, by the other processes of a job, which are handed those of worker 0, and by later runs,
// out of a file. As text, in that file and between processes, a choice is a line of numbers: what
// it was made for (GPU, version of cuDNN, question), the place in cuDNN's list of offers, and the
// engine there, by which a list that is another one is noticed. In memory it is the same numbers.
//
// A file is replaced as a whole, by a temporary one beside it, FILE.new, which is locked meanwhile:
// who writes adds to what others have written before; a link stays one. Each origin has a set of
// its own: what a device takes depends on its options, not on what else has run in the process.
#define _XOPEN_SOURCE 700 // realpath
#include "plugins/device/cuda/engine/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <pthread.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define VERSION "lockstep plans of device cuda, version 1"
#define COLUMNS                                                                                  \
    "capability multiprocessors bus_bits memory_gib cudnn operation type fused tensor_cores "    \
    "x0 x1 x2 x3 w0 w1 w2 w3 y0 y1 y2 y3 padding0 padding1 stride0 stride1 dilation0 dilation1 " \
    "causal scale_bits place engine"
#define HEAD VERSION "\n" COLUMNS "\n"
#define MOST_BYTES (16 << 20) // of a file
#define LOCK_NS UINT64_C(2000000000) // that another process may take to write

enum {
    QUESTION = CUDA_HARDWARE, // where its numbers begin
    PLACE = QUESTION + 24,
    ENGINE,
    NUMBERS
};

struct choice {
    int64_t numbers[NUMBERS];
    bool lasting; // for a file: it is not for want of memory
    bool written; // the file has it
    struct choice *next;
};

// In the order in which they came, and a tree of tsearch() by what they were made for.
struct set {
    struct choice *first, *last;
    void *tree;
};

struct file {
    char *path;
    struct set set;
    struct stat seen; // when it was read or written last; all 0: there is none
    bool read;
    bool told, told_locked; // what there is to say, once
    struct file *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct set timed, untimed; // of this process; the latter are the first that can be taken
static struct set chief; // those of worker 0, until the last device is closed
static struct file *files;
static unsigned devices; // that are open
static bool told; // that this process chooses otherwise than worker 0

void cuda_choices_enter(void)
{
    pthread_mutex_lock(&lock);
}

void cuda_choices_leave(void)
{
    pthread_mutex_unlock(&lock);
}

// ---- Sets ----

static void number(const struct ls_device *device, const struct cuda_plan_question *question,
                   int64_t out[NUMBERS])
{
    const struct cuda_plan_question *q = question;
    uint32_t scale = 0;
    memcpy(&scale, &q->scale, sizeof(scale));
    memcpy(out, device->hardware, sizeof(device->hardware));
    const int64_t numbers[NUMBERS - QUESTION] = {
        q->op,        q->type,      q->fused,       q->tensor_cores, q->x[0],       q->x[1],
        q->x[2],      q->x[3],      q->w[0],        q->w[1],         q->w[2],       q->w[3],
        q->y[0],      q->y[1],      q->y[2],        q->y[3],         q->padding[0], q->padding[1],
        q->stride[0], q->stride[1], q->dilation[0], q->dilation[1],  q->causal,     scale,
    };
    memcpy(out + QUESTION, numbers, sizeof(numbers));
}

static int compare(const void *a, const void *b)
{
    return memcmp(a, b, PLACE * sizeof(int64_t)); // numbers come first in a choice
}

static struct choice *find(const struct set *set, const int64_t *numbers)
{
    struct choice *const *found = tfind(numbers, &set->tree, compare);
    return found ? *found : NULL;
}

// NULL: no memory. What is there stays.
static struct choice *add(struct set *set, const int64_t *numbers)
{
    struct choice *c = find(set, numbers);
    if (c)
        return c;
    c = calloc(1, sizeof(*c));
    if (!c)
        return NULL;
    memcpy(c->numbers, numbers, sizeof(c->numbers));
    if (!tsearch(c, &set->tree, compare)) {
        free(c);
        return NULL;
    }
    *(set->last ? &set->last->next : &set->first) = c;
    set->last = c;
    return c;
}

static void empty(struct set *set)
{
    for (struct choice *c = set->first, *next; c; c = next) {
        next = c->next;
        tdelete(c, &set->tree, compare);
        free(c);
    }
    *set = (struct set){0};
}

// Of this name, perhaps new; NULL: no memory.
static struct file *file_of(const char *path)
{
    for (struct file *file = files; file; file = file->next)
        if (strcmp(file->path, path) == 0)
            return file;
    struct file *file = calloc(1, sizeof(*file));
    if (file)
        file->path = strdup(path);
    if (!file || !file->path) {
        free(file);
        return NULL;
    }
    file->next = files;
    files = file;
    return file;
}

// ---- What a device takes ----

enum { CHIEF, FROM_FILE, OWN, SETS };

// Those in which a device with these options looks, first to last; some are NULL. Untimed, a worker
// that has worker 0's choices has no use for a file of its own: where worker 0 has none yet, both
// take the first that can be taken.
static void list_sets(bool timing, const char *plans, const struct set *out[SETS])
{
    const struct file *file = plans && (timing || !chief.first) ? file_of(plans) : NULL;
    out[CHIEF] = timing || plans ? &chief : NULL;
    out[FROM_FILE] = file ? &file->set : NULL;
    out[OWN] = timing ? &timed : &untimed;
}

static bool has_hardware(const struct set *set, const int64_t *numbers)
{
    const struct choice *c = set->first;
    while (c && memcmp(c->numbers, numbers, QUESTION * sizeof(*numbers)) != 0)
        c = c->next;
    return c != NULL;
}

// Why neither worker 0 nor the file has a choice: of each once.
static void tell(struct ls_device *device, const int64_t *numbers)
{
    if (chief.first && !told && (device->timing || device->plans)) {
        told = true;
        cuda_log(device, LS_LOG_WARN,
                 "GPU %u: worker 0 has %s, so this worker chooses plans of cuDNN itself where it "
                 "must",
                 device->index,
                 has_hardware(&chief, numbers) ? "no plans for all of these shapes"
                                               : "another GPU or another cuDNN");
    }
    struct file *file =
        device->plans && !device->timing && !chief.first ? file_of(device->plans) : NULL;
    if (!file || file->told)
        return;
    file->told = true;
    cuda_log(device, LS_LOG_WARN, "plans=%s: %s; timing=on %s", file->path,
             !file->seen.st_ino ? "there is no such file, so plans are the first by cuDNN's "
                                  "heuristics"
             : has_hardware(&file->set, numbers)
                 ? "it has no plans for some of these shapes, which take the first by cuDNN's "
                   "heuristics"
                 : "it has no plans for this GPU and cuDNN, so they are the first by cuDNN's "
                   "heuristics",
             file->seen.st_ino ? "adds them" : "writes one");
}

bool cuda_choice_find(struct ls_device *device, const struct cuda_plan_question *question,
                      struct cuda_choice *out)
{
    static const char *const sources[SETS] = {"worker 0", "the file of plans", "another replica"};
    const struct set *sets[SETS];
    int64_t numbers[NUMBERS] = {0};
    number(device, question, numbers);
    list_sets(device->timing, device->plans, sets);
    for (int i = 0; i < SETS; i++) {
        const struct choice *c = sets[i] ? find(sets[i], numbers) : NULL;
        if (i == OWN)
            tell(device, numbers);
        if (!c)
            continue;
        *out = (struct cuda_choice){(int)c->numbers[PLACE], c->numbers[ENGINE], sources[i],
                                    i == OWN && c->lasting};
        return true;
    }
    return false;
}

// ---- As text ----

static bool read_line(const char *line, int64_t numbers[NUMBERS])
{
    const char *at = line;
    for (int i = 0; i < NUMBERS; i++) {
        char *end = NULL;
        errno = 0;
        numbers[i] = strtoll(at, &end, 10);
        // One space between two, and nothing that strtoll() would skip.
        if (end == at || errno || (*at != '-' && (*at < '0' || *at > '9')) ||
            *end != (i + 1 < NUMBERS ? ' ' : '\n') || (numbers[i] < 0 && i != PLACE))
            return false;
        at = end + 1;
    }
    return numbers[PLACE] >= -1 && numbers[PLACE] < CUDA_MOST_OFFERS;
}

// Adds what `text` has; `written`: it is a file's. The number of its first line that is none of
// ours, and then adds nothing; 0: all are.
static int read_text(const char *text, struct set *set, bool written)
{
    static const char head[] = HEAD;
    int64_t numbers[NUMBERS];
    if (strncmp(text, head, sizeof(head) - 1) != 0)
        return strncmp(text, VERSION "\n", sizeof(VERSION)) != 0 ? 1 : 2;
    const char *first = text + sizeof(head) - 1, *at = first;
    for (int line = 3; *at; line++, at = strchr(at, '\n') + 1)
        if (!read_line(at, numbers))
            return line;
    for (at = first; *at; at = strchr(at, '\n') + 1) {
        struct choice *c = read_line(at, numbers) ? add(set, numbers) : NULL;
        if (c)
            c->written = c->lasting = written;
    }
    return 0;
}

static void write_line(FILE *out, const struct choice *choice)
{
    for (int i = 0; i < NUMBERS; i++)
        fprintf(out, "%lld%c", (long long)choice->numbers[i], i + 1 < NUMBERS ? ' ' : '\n');
}

// ---- In a file ----

static int32_t refuse_file(const struct ls_host *host, const char *path, const char *what)
{
    return ls_host_fail(host, LS_BAD_INPUT, "plans=%s: %s: %s", path, what, strerror(errno));
}

// The whole file, with a NUL behind it, and `seen` of it; *out stays NULL where there is none.
static int32_t load(const struct ls_host *host, const char *path, char **out, struct stat *seen)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return errno == ENOENT ? LS_OK : refuse_file(host, path, "cannot be read");
    if (fstat(fd, seen) || !S_ISREG(seen->st_mode) || seen->st_size > MOST_BYTES) {
        close(fd);
        return ls_host_fail(host, LS_BAD_INPUT,
                            S_ISDIR(seen->st_mode)
                                ? "plans=%s: it is a directory: name a file, in it or elsewhere"
                                : "plans=%s: no file of plans, which is at most %d bytes",
                            path, MOST_BYTES);
    }
    const size_t bytes = (size_t)seen->st_size;
    char *text = calloc(1, bytes + 1);
    size_t used = 0;
    ssize_t count = text ? 1 : -1;
    while (count > 0 && used < bytes) {
        count = read(fd, text + used, bytes - used);
        used += count > 0 ? (size_t)count : 0;
    }
    const int32_t status = count < 0 ? refuse_file(host, path, "cannot be read") : LS_OK;
    close(fd);
    if (!status && strlen(text) != bytes) {
        free(text);
        return ls_host_fail(host, LS_BAD_INPUT,
                            "plans=%s: it is no text: delete the file, or name another", path);
    }
    *out = status ? NULL : text;
    if (status)
        free(text);
    return status;
}

static bool is_as_seen(const struct stat *a, const struct stat *b)
{
    return a->st_ino == b->st_ino && a->st_dev == b->st_dev && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

// Adds what the file has, unless it is as it was. `out`: its text; NULL: none, or an empty file.
static int32_t merge(const struct ls_host *host, struct file *file, char **out)
{
    struct stat seen = {0};
    char *text = NULL;
    const int32_t status = load(host, file->path, &text, &seen);
    const bool changed = !is_as_seen(&seen, &file->seen);
    *out = NULL;
    if (status)
        return status;
    for (struct choice *c = file->set.first; changed && c; c = c->next)
        c->written = false;
    const int line = changed && text && *text ? read_text(text, &file->set, true) : 0;
    if (!line)
        file->seen = seen;
    if (!line && text && *text)
        *out = text;
    else
        free(text);
    return line ? ls_host_fail(host, LS_BAD_INPUT,
                               "plans=%s: line %d is not what this version writes: delete the "
                               "file, or name another",
                               file->path, line)
                : LS_OK;
}

// Where a link leads, also to what is not there yet.
static const char *target_of(const struct file *file, char room[PATH_MAX])
{
    char link[PATH_MAX], path[PATH_MAX];
    if (realpath(file->path, room))
        return room;
    const ssize_t length = readlink(file->path, link, sizeof(link) - 1);
    if (length <= 0)
        return file->path;
    link[length] = '\0';
    snprintf(path, sizeof(path), "%s", file->path);
    const int used = snprintf(room, PATH_MAX, "%s/%s", *link == '/' ? "" : dirname(path), link);
    return used < PATH_MAX ? room : file->path;
}

int32_t cuda_choice_try(struct ls_device *device)
{
    char room[PATH_MAX], path[PATH_MAX];
    const struct file *file = device->timing && device->plans ? file_of(device->plans) : NULL;
    snprintf(path, sizeof(path), "%s", file ? target_of(file, room) : "");
    return file && access(dirname(path), W_OK | X_OK)
               ? refuse_file(device->host, file->path, "its folder cannot be written")
               : LS_OK;
}

// While devices are open what was read stays: some may have taken it already.
int32_t cuda_choices_read(struct ls_device *device)
{
    const char *path = device->plans;
    struct stat there = {0};
    int32_t status = LS_OK;
    if (path && !*path)
        return ls_host_fail(device->host, LS_USAGE, "plans= is empty: it is the name of a file");
    cuda_choices_enter();
    struct file *file = path ? file_of(path) : NULL;
    if (path && !file)
        status = ls_host_fail(device->host, LS_OUT_OF_MEMORY, "no memory for a list of plans");
    if (file && stat(path, &there))
        there = (struct stat){0};
    if (!status && file && (!file->read || (!devices && !is_as_seen(&there, &file->seen)))) {
        char *text = NULL;
        empty(&file->set);
        file->seen = (struct stat){0};
        status = merge(device->host, file, &text);
        free(text);
        file->read = !status;
    }
    devices += !status;
    device->chooses = !status;
    cuda_choices_leave();
    return status;
}

void cuda_choices_finish(struct ls_device *device)
{
    cuda_choices_enter();
    devices -= device->chooses;
    device->chooses = false;
    if (!devices)
        empty(&chief);
    cuda_choices_leave();
}

// Opens FILE.new, locked, or -1; EWOULDBLOCK: another process has it locked for longer than
// `wait_ns`. Another process may have moved it to FILE since it was opened.
static int open_locked(const struct ls_host *host, const char *name, uint64_t wait_ns)
{
    const uint64_t end = host->clock_ns(host) + wait_ns;
    const struct timespec pause = {.tv_nsec = 5000000};
    for (;;) {
        struct stat mine, there;
        const int fd = open(name, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
        if (fd < 0)
            return -1;
        int error = fstat(fd, &mine) || flock(fd, LOCK_EX | LOCK_NB) ? errno : 0;
        if (!error && !S_ISREG(mine.st_mode))
            error = ENXIO; // as open() says it of a pipe that nobody reads
        if (!error && !stat(name, &there) && mine.st_ino == there.st_ino &&
            mine.st_dev == there.st_dev)
            return fd;
        close(fd);
        errno = error ? error : EWOULDBLOCK;
        if ((error && error != EWOULDBLOCK && error != EINTR) || host->clock_ns(host) >= end)
            return -1;
        nanosleep(&pause, NULL);
    }
}

// That FILE.new cannot be had: a choice that is not written now is written with the next one.
static int32_t refuse_new(struct ls_device *device, struct file *file)
{
    if (errno == ENXIO)
        return ls_host_fail(device->host, LS_BAD_INPUT,
                            "plans=%s: FILE.new beside it is no regular file: delete it",
                            file->path);
    if (errno != EWOULDBLOCK)
        return refuse_file(device->host, file->path, "FILE.new beside it cannot be written");
    if (!file->told_locked)
        cuda_log(device, LS_LOG_WARN,
                 "plans=%s: another process holds the lock of FILE.new beside it, so plans are "
                 "not written yet; the next that is timed tries again",
                 file->path);
    file->told_locked = true;
    return LS_OK;
}

// What the file has, and behind it what it has not.
static int32_t write_file(struct ls_device *device, struct file *file)
{
    char name[PATH_MAX], room[PATH_MAX], *before = NULL;
    const char *target = target_of(file, room);
    if (snprintf(name, sizeof(name), "%s.new", target) >= (int)sizeof(name))
        return ls_host_fail(device->host, LS_BAD_INPUT, "plans=: the name is too long");
    const int fd = open_locked(device->host, name, file->told_locked ? 0 : LOCK_NS);
    if (fd < 0)
        return refuse_new(device, file);
    int32_t status = merge(device->host, file, &before);
    FILE *out = status || ftruncate(fd, 0) ? NULL : fdopen(fd, "w");
    if (out)
        fputs(before ? before : HEAD, out);
    for (const struct choice *c = file->set.first; out && c; c = c->next)
        if (c->lasting && !c->written)
            write_line(out, c);
    // Moved, or removed, before it is closed, which ends the lock.
    if (!status && (!out || fflush(out) || fstat(fd, &file->seen) || rename(name, target)))
        status = refuse_file(device->host, file->path, "cannot be written");
    if (status)
        unlink(name);
    file->told_locked = file->told_locked && status;
    for (struct choice *c = file->set.first; !status && c; c = c->next)
        c->written = true;
    if (out)
        fclose(out);
    else
        close(fd);
    free(before);
    return status;
}

int32_t cuda_choice_keep(struct ls_device *device, const struct cuda_plan_question *question,
                         int place, int64_t engine, bool lasting)
{
    int64_t numbers[NUMBERS] = {0};
    number(device, question, numbers);
    numbers[PLACE] = place;
    numbers[ENGINE] = engine;
    struct choice *own = add(device->timing ? &timed : &untimed, numbers);
    struct file *file = device->timing && device->plans ? file_of(device->plans) : NULL;
    struct choice *filed = file ? add(&file->set, numbers) : NULL;
    if (own)
        own->lasting = lasting;
    if (filed)
        filed->lasting = lasting;
    return filed && lasting ? write_file(device, file) : LS_OK;
}

// ---- Between processes ----

// What a device with the host's options takes.
static void write_all(const struct ls_host *host, FILE *out)
{
    const char *timing = host->option(host, "timing");
    const struct set *sets[SETS];
    list_sets(timing && strcmp(timing, "on") == 0, host->option(host, "plans"), sets);
    fputs(HEAD, out);
    for (int i = 0; i < SETS; i++)
        for (const struct choice *c = sets[i] ? sets[i]->first : NULL; c; c = c->next) {
            bool before = false;
            for (int j = 0; j < i; j++)
                before |= sets[j] && find(sets[j], c->numbers);
            if (!before)
                write_line(out, c);
        }
}

int32_t cuda_choices_give(const struct ls_host *host, void *out, uint64_t bytes, uint64_t *needed)
{
    char *text = NULL;
    size_t length = 0;
    FILE *stream = open_memstream(&text, &length);
    if (!stream)
        return ls_host_fail(host, LS_OUT_OF_MEMORY, "no memory for a list of plans");
    cuda_choices_enter();
    write_all(host, stream);
    cuda_choices_leave();
    if (fclose(stream)) {
        free(text);
        return ls_host_fail(host, LS_OUT_OF_MEMORY, "no memory for a list of plans");
    }
    *needed = length + 1;
    if (out && bytes >= *needed)
        memcpy(out, text, length + 1);
    free(text);
    return LS_OK;
}

int32_t cuda_choices_take(const struct ls_host *host, const void *choices_of_another,
                          uint64_t bytes)
{
    const char *text = choices_of_another;
    int line = 1;
    if (bytes && !text[bytes - 1]) {
        cuda_choices_enter();
        empty(&chief);
        line = read_text(text, &chief, false);
        cuda_choices_leave();
    }
    return line ? ls_host_fail(host, LS_FAILED, "line %d of worker 0's list of plans is none", line)
                : LS_OK;
}
