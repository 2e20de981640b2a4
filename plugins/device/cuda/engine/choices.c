// SPDX-License-Identifier: Apache-2.0
// Which plans of cuDNN were taken, so that the same are taken again: by all replicas of the
// process, by the other processes of a job, which are handed those of worker 0, and by later runs,
// out of a file. As text, in that file and between processes, a choice is a line of numbers: what
// it was made for (GPU, version of cuDNN, question), the place in cuDNN's list of offers, and the
// engine there, by which a list that is another one is noticed. In memory it is the same numbers.
//
// A file is replaced as a whole, by a temporary one beside it, FILE.new, which is locked meanwhile:
// who writes adds to what others have written before.
#include "plugins/device/cuda/engine/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
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
#define MOST_BYTES (16 << 20) // of a file
#define LOCK_NS UINT64_C(2000000000) // that another process may take to write

enum {
    QUESTION = CUDA_HARDWARE, // where its numbers begin
    PLACE = QUESTION + 24,
    ENGINE,
    NUMBERS
};

// Where a choice is from.
enum source { TRIED, TIMED, READ, CHIEF };

struct choice {
    int64_t numbers[NUMBERS];
    enum source source; // TRIED: by a device that neither times nor has a file, and for such
    bool lasting; // it goes into the file
    struct choice *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct choice *choices;
static char *path_read; // of the file that was read last
static bool told; // that this process chooses otherwise than worker 0

void cuda_choices_enter(void)
{
    pthread_mutex_lock(&lock);
}

void cuda_choices_leave(void)
{
    pthread_mutex_unlock(&lock);
}

// ---- The list ----

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

static bool is_same(const int64_t *numbers, const int64_t *others, int first, int end)
{
    return memcmp(numbers + first, others + first, (size_t)(end - first) * sizeof(*numbers)) == 0;
}

static struct choice *find(const int64_t *numbers, bool tried)
{
    struct choice *c = choices;
    while (c && ((c->source == TRIED) != tried || !is_same(c->numbers, numbers, 0, PLACE)))
        c = c->next;
    return c;
}

// NULL: no memory. One of worker 0 replaces what is there; else what is there stays.
static struct choice *add(const int64_t *numbers, enum source source)
{
    struct choice *c = find(numbers, source == TRIED);
    if (c && source != CHIEF)
        return c;
    if (!c) {
        c = calloc(1, sizeof(*c));
        if (!c)
            return NULL;
        c->next = choices;
        choices = c;
    }
    memcpy(c->numbers, numbers, sizeof(c->numbers));
    c->source = source;
    return c;
}

static bool shares(const struct ls_device *device)
{
    return device->timing || device->plans;
}

// Once in a process that has choices of worker 0.
static void tell(struct ls_device *device, const int64_t *numbers)
{
    bool given = false, other_gpu = false;
    for (const struct choice *c = choices; c; c = c->next) {
        given |= c->source == CHIEF;
        other_gpu |= c->source == CHIEF && !is_same(c->numbers, numbers, 0, QUESTION);
    }
    if (!given || told)
        return;
    told = true;
    cuda_log(device, LS_LOG_WARN,
             "GPU %u: worker 0 has %s, so this worker chooses plans of cuDNN itself where it must",
             device->index,
             other_gpu ? "another GPU or another cuDNN" : "no plans for all of these shapes");
}

bool cuda_choice_find(struct ls_device *device, const struct cuda_plan_question *question,
                      struct cuda_choice *out)
{
    static const char *const sources[] = {[TRIED] = "another replica",
                                          [TIMED] = "another replica",
                                          [READ] = "the file of plans",
                                          [CHIEF] = "worker 0"};
    int64_t numbers[NUMBERS] = {0};
    number(device, question, numbers);
    const struct choice *c = shares(device) ? find(numbers, false) : NULL;
    if (!c && shares(device))
        tell(device, numbers);
    if (!c && !device->timing)
        c = find(numbers, true);
    if (c)
        *out = (struct cuda_choice){(int)c->numbers[PLACE], c->numbers[ENGINE], sources[c->source]};
    return c != NULL;
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

// Adds what `text` has. The number of its first line that is none of ours, and then adds nothing;
// 0: all are.
static int read_text(const char *text, enum source source, bool lasting)
{
    static const char head[] = VERSION "\n" COLUMNS "\n";
    int64_t numbers[NUMBERS];
    if (strncmp(text, head, sizeof(head) - 1) != 0)
        return strncmp(text, VERSION "\n", sizeof(VERSION)) != 0 ? 1 : 2;
    const char *first = text + sizeof(head) - 1, *at = first;
    for (int line = 3; *at; line++, at = strchr(at, '\n') + 1)
        if (!read_line(at, numbers))
            return line;
    for (at = first; *at; at = strchr(at, '\n') + 1) {
        struct choice *c = read_line(at, numbers) ? add(numbers, source) : NULL;
        if (c)
            c->lasting |= lasting;
    }
    return 0;
}

static void write_text(FILE *out, bool lasting)
{
    fputs(VERSION "\n" COLUMNS "\n", out);
    for (const struct choice *c = choices; c; c = c->next) {
        if (c->source == TRIED || (lasting && !c->lasting))
            continue;
        for (int i = 0; i < NUMBERS; i++)
            fprintf(out, "%lld%c", (long long)c->numbers[i], i + 1 < NUMBERS ? ' ' : '\n');
    }
}

// ---- In a file ----

static int32_t refuse_file(const struct ls_host *host, const char *path, const char *what)
{
    return ls_host_fail(host, LS_BAD_INPUT, "plans=%s: %s: %s", path, what, strerror(errno));
}

// The whole file, with a NUL behind it; *out stays NULL where there is none.
static int32_t load(const struct ls_host *host, const char *path, char **out)
{
    struct stat about;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return errno == ENOENT ? LS_OK : refuse_file(host, path, "cannot be read");
    if (fstat(fd, &about) || !S_ISREG(about.st_mode) || about.st_size > MOST_BYTES) {
        close(fd);
        return ls_host_fail(host, LS_BAD_INPUT,
                            "plans=%s: no file of plans, which is at most %d bytes", path,
                            MOST_BYTES);
    }
    const size_t bytes = (size_t)about.st_size;
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

// Adds what the file has; `out`: whether there is one.
static int32_t merge(const struct ls_host *host, const char *path, bool *out)
{
    char *text = NULL;
    const int32_t status = load(host, path, &text);
    *out = text != NULL;
    const int line = text ? read_text(text, READ, true) : 0;
    free(text);
    if (!status && line)
        return ls_host_fail(host, LS_BAD_INPUT,
                            "plans=%s: line %d is not what this version writes: delete the file, "
                            "or name another",
                            path, line);
    return status;
}

int32_t cuda_choices_read(struct ls_device *device)
{
    const char *path = device->plans;
    bool there = false;
    int32_t status = LS_OK;
    if (path && !*path)
        return ls_host_fail(device->host, LS_USAGE, "plans= is empty: it is the name of a file");
    cuda_choices_enter();
    if (path && (!path_read || strcmp(path_read, path) != 0)) {
        status = merge(device->host, path, &there);
        if (!status) {
            free(path_read);
            path_read = strdup(path);
        }
        if (!status && !there && !device->timing)
            cuda_log(device, LS_LOG_WARN,
                     "plans=%s: there is no such file, so plans are the first by cuDNN's "
                     "heuristics; timing=on writes one",
                     path);
    }
    cuda_choices_leave();
    return status;
}

// Opens FILE.new, locked, or -1. Another process may have moved it to FILE since it was opened.
static int open_locked(const struct ls_device *device, const char *name)
{
    const struct ls_host *host = device->host;
    const uint64_t end = host->clock_ns(host) + LOCK_NS;
    const struct timespec pause = {.tv_nsec = 5000000};
    do {
        struct stat mine, there;
        const int fd = open(name, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
        if (fd < 0)
            return -1;
        if (!flock(fd, LOCK_EX | LOCK_NB) && !fstat(fd, &mine) && !stat(name, &there) &&
            mine.st_ino == there.st_ino && mine.st_dev == there.st_dev)
            return fd;
        close(fd);
        nanosleep(&pause, NULL);
    } while (host->clock_ns(host) < end);
    errno = EWOULDBLOCK;
    return -1;
}

static int32_t write_file(struct ls_device *device)
{
    const char *path = device->plans;
    char name[4096];
    bool there = false;
    if (snprintf(name, sizeof(name), "%s.new", path) >= (int)sizeof(name))
        return ls_host_fail(device->host, LS_BAD_INPUT, "plans=: the name is too long");
    const int fd = open_locked(device, name);
    if (fd < 0)
        return refuse_file(device->host, path, "FILE.new beside it cannot be written");
    int32_t status = merge(device->host, path, &there);
    FILE *file = status || ftruncate(fd, 0) ? NULL : fdopen(fd, "w");
    if (file)
        write_text(file, true);
    // Moved, or removed, before it is closed, which ends the lock.
    if (!status && (!file || fflush(file) || rename(name, path)))
        status = refuse_file(device->host, path, "cannot be written");
    if (status)
        unlink(name);
    if (file)
        fclose(file);
    else
        close(fd);
    return status;
}

int32_t cuda_choice_keep(struct ls_device *device, const struct cuda_plan_question *question,
                         int place, int64_t engine, bool lasting)
{
    int64_t numbers[NUMBERS] = {0};
    number(device, question, numbers);
    numbers[PLACE] = place;
    numbers[ENGINE] = engine;
    struct choice *c = add(numbers, device->timing ? TIMED : TRIED);
    if (!c)
        return LS_OK; // the next one finds it anew
    c->lasting = lasting && device->timing;
    return c->lasting && device->plans ? write_file(device) : LS_OK;
}

// ---- Between processes ----

int32_t cuda_choices_give(const struct ls_host *host, void *out, uint64_t bytes, uint64_t *needed)
{
    char *text = NULL;
    size_t length = 0;
    FILE *stream = open_memstream(&text, &length);
    if (!stream)
        return ls_host_fail(host, LS_OUT_OF_MEMORY, "no memory for a list of plans");
    cuda_choices_enter();
    write_text(stream, false);
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
        line = read_text(text, CHIEF, false);
        cuda_choices_leave();
    }
    return line ? ls_host_fail(host, LS_FAILED, "line %d of worker 0's list of plans is none", line)
                : LS_OK;
}
