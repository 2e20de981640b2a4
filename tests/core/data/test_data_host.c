// SPDX-License-Identifier: Apache-2.0
// Processes of one host that open the same dataset: one reads the files, all have the same values.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // MAP_ANONYMOUS
#endif
#include "core/data/data_host.h"

#include "core/base/clock.h"
#include "core/base/dtype.h"
#include "core/base/log.h"
#include "tests/support/suite.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PROCESSES 4
#define TEXT_BYTES (1 << 20)
#define SECOND UINT64_C(1000000000)
#define PATIENCE_NS (5 * SECOND)

// What a process found, for the test.
struct found {
    enum ls_status status;
    uint32_t equal; // to what it reads by itself
    uint64_t bytes_read; // by system calls, meanwhile
    _Atomic uint32_t done;
};

static struct found *found; // shared with the processes
static _Atomic int *go;
static char path[64], text[128];

static void nap_ms(long milliseconds)
{
    nanosleep(&(struct timespec){.tv_nsec = milliseconds * 1000000}, NULL);
}

static void set_up(void)
{
    const size_t bytes = PROCESSES * sizeof(*found) + sizeof(*go);
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(memory, MAP_FAILED);
    found = (struct found *)(void *)memory;
    go = (_Atomic int *)(void *)(memory + PROCESSES * sizeof(*found));
    snprintf(path, sizeof(path), "/tmp/lockstep-host-XXXXXX");
    const int file = mkstemp(path);
    ck_assert_int_ge(file, 0);
    char *letters = malloc(TEXT_BYTES);
    for (int i = 0; i < TEXT_BYTES; i++)
        letters[i] = (char)('a' + i * 7 % 23);
    ck_assert_int_eq(write(file, letters, TEXT_BYTES), TEXT_BYTES);
    free(letters);
    close(file);
    snprintf(text, sizeof(text), "text:file=%s,length=32,stride=5,repeat=2", path);
}

static void clean_up(void)
{
    unlink(path);
}

static uint64_t count_read(void)
{
    unsigned long long bytes = 0;
    FILE *file = fopen("/proc/self/io", "r");
    if (file && fscanf(file, "rchar: %llu", &bytes) != 1)
        bytes = 0;
    if (file)
        fclose(file);
    return bytes;
}

static uint32_t are_equal(const struct ls_dataset *one, const struct ls_dataset *other)
{
    bool equal = one->count == other->count && one->repeat == other->repeat &&
                 one->first == other->first && one->field_count == other->field_count &&
                 one->real == other->real;
    const uint64_t examples = one->count / (one->repeat ? one->repeat : 1);
    for (uint32_t i = 0; equal && i < one->field_count; i++) {
        const struct ls_field *a = &one->fields[i], *b = &other->fields[i];
        const uint64_t bytes = ls_field_elements(a) * ls_dtype_bytes(a->dtype);
        equal = strcmp(a->name, b->name) == 0 && a->role == b->role && a->dtype == b->dtype &&
                a->stride == b->stride && a->class_count == b->class_count && a->text == b->text &&
                a->ndims == b->ndims && !a->class_names == !b->class_names;
        for (uint64_t k = 0; equal && k < examples; k++)
            equal = memcmp((const char *)a->values + k * a->stride,
                           (const char *)b->values + k * b->stride, bytes) == 0;
        for (uint32_t k = 0; equal && a->class_names && k < a->class_count; k++)
            equal = strcmp(a->class_names[k], b->class_names[k]) == 0;
    }
    return equal;
}

// Opens when the test says so, and serves until the test ends it.
static void open_as_process(uint32_t index, const char *what, struct found *out)
{
    struct ls_host_offer offer;
    struct ls_dataset *dataset = NULL, *own = NULL;
    atomic_bool stop = false;
    while (atomic_load(go) <= (int)index)
        nap_ms(1);
    const uint64_t before = count_read();
    out->status =
        ls_host_dataset_open(what, LS_TRAIN, PROCESSES, "job", PATIENCE_NS, &offer, &dataset);
    out->bytes_read = count_read() - before;
    atomic_fetch_or(&out->done, 1);
    ls_host_offer_serve(&offer, &stop);
    if (!out->status && ls_dataset_open(what, LS_TRAIN, &own) == LS_OK)
        out->equal = are_equal(dataset, own);
    ls_dataset_close(own);
    ls_dataset_close(dataset);
}

static void start(pid_t pids[PROCESSES], const char *what)
{
    for (uint32_t i = 0; i < PROCESSES; i++) {
        pids[i] = fork();
        ck_assert_int_ge(pids[i], 0);
        if (pids[i] == 0) {
            alarm(30);
            open_as_process(i, what, &found[i]);
            _exit(0);
        }
    }
}

static void wait_for(pid_t pid)
{
    int status = -1;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
}

TEST(one_reads_and_all_have_the_same_values)
{
    pid_t pids[PROCESSES];
    uint32_t readers = 0;
    start(pids, text);
    atomic_store(go, PROCESSES);
    for (uint32_t i = 0; i < PROCESSES; i++) {
        wait_for(pids[i]);
        ck_assert_int_eq(found[i].status, LS_OK);
        ck_assert_uint_eq(found[i].equal, 1);
        readers += found[i].bytes_read >= TEXT_BYTES;
    }
    ck_assert_uint_eq(readers, 1);
}

// Who comes when nobody offers any more reads, too.
TEST(one_that_comes_late_reads_for_itself)
{
    pid_t pids[PROCESSES];
    start(pids, text);
    for (uint32_t i = 0; i < PROCESSES; i++) {
        if (i == PROCESSES - 1) // the first one gives up by then
            kill(pids[0], SIGKILL);
        atomic_store(go, (int)i + 1);
        for (int k = 0; k < 20000 && !atomic_load(&found[i].done); k++)
            nap_ms(1);
        ck_assert_uint_eq(found[i].done, 1);
    }
    int status;
    ck_assert_int_eq(waitpid(pids[0], &status, 0), pids[0]);
    for (uint32_t i = 1; i < PROCESSES; i++) {
        wait_for(pids[i]);
        ck_assert_int_eq(found[i].status, LS_OK);
        ck_assert_uint_eq(found[i].equal, 1);
        ck_assert_int_eq(found[i].bytes_read >= TEXT_BYTES, i == PROCESSES - 1);
    }
}

TEST(all_say_what_is_wrong_with_the_files)
{
    pid_t pids[PROCESSES];
    start(pids, "text:file=/nowhere/at/all.txt,length=8");
    atomic_store(go, PROCESSES);
    for (uint32_t i = 0; i < PROCESSES; i++) {
        wait_for(pids[i]);
        ck_assert_int_eq(found[i].status, LS_BAD_INPUT);
    }
}

// Another name than that of the other tests, which may still be taken.
TEST(nobody_waits_for_one_that_is_stopped)
{
    char link[80], what[160];
    pid_t pids[PROCESSES];
    snprintf(link, sizeof(link), "%s.txt", path);
    ck_assert_int_eq(symlink(path, link), 0);
    snprintf(what, sizeof(what), "text:file=%s,length=32", link);
    start(pids, what);
    // The first one has the name, and is stopped before it serves anybody.
    atomic_store(go, 1);
    for (int k = 0; k < 20000 && !atomic_load(&found[0].done); k++)
        nap_ms(1);
    kill(pids[0], SIGSTOP);
    const uint64_t begin = ls_clock_ns();
    atomic_store(go, PROCESSES);
    for (uint32_t i = 1; i < PROCESSES; i++) {
        wait_for(pids[i]);
        ck_assert_int_eq(found[i].status, LS_OK);
        ck_assert_uint_eq(found[i].equal, 1);
    }
    ck_assert_uint_lt(ls_clock_ns() - begin, 10 * SECOND);
    kill(pids[0], SIGKILL);
    int status;
    waitpid(pids[0], &status, 0);
    unlink(link);
}

// The first one has the name, lives, and never hands anything out.
TEST(nobody_waits_for_ever_for_one_that_is_silent)
{
    char link[80], what[160], log[1024];
    pid_t pids[2];
    snprintf(link, sizeof(link), "%s.silent", path);
    ck_assert_int_eq(symlink(path, link), 0);
    snprintf(what, sizeof(what), "text:file=%s,length=32", link);
    snprintf(log, sizeof(log), "%s.log", path);
    for (uint32_t i = 0; i < 2; i++) {
        pids[i] = fork();
        ck_assert_int_ge(pids[i], 0);
        if (pids[i])
            continue;
        alarm(30);
        if (i == 0) {
            struct ls_host_offer offer;
            struct ls_dataset *dataset = NULL;
            found[0].status =
                ls_host_dataset_open(what, LS_TRAIN, 2, "job", PATIENCE_NS, &offer, &dataset);
            atomic_store(&found[0].done, 1);
            for (;;)
                nap_ms(100); // it runs
        }
        if (!freopen(log, "w", stderr))
            _exit(1);
        open_as_process(0, what, &found[1]);
        _exit(0);
    }
    for (int k = 0; k < 20000 && !atomic_load(&found[0].done); k++)
        nap_ms(1);
    ck_assert_uint_eq(found[0].done, 1);
    const uint64_t begin = ls_clock_ns();
    atomic_store(go, PROCESSES);
    wait_for(pids[1]);
    const uint64_t waited = ls_clock_ns() - begin;
    kill(pids[0], SIGKILL);
    int status;
    waitpid(pids[0], &status, 0);
    ck_assert_int_eq(found[1].status, LS_OK);
    ck_assert_uint_eq(found[1].equal, 1);
    ck_assert_uint_ge(waited, 4 * SECOND);
    ck_assert_uint_lt(waited, 20 * SECOND);
    char said[1024] = "", expected[64];
    FILE *file = fopen(log, "r");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_gt(fread(said, 1, sizeof(said) - 1, file), 0);
    fclose(file);
    snprintf(expected, sizeof(expected), "process %d of this host", (int)pids[0]);
    ck_assert_ptr_nonnull(strstr(said, expected));
    ck_assert_ptr_nonnull(strstr(said, "within 5 s"));
    unlink(log);
    unlink(link);
}

TEST_FIXTURE(set_up, clean_up);
