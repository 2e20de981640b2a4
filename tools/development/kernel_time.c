// SPDX-License-Identifier: Apache-2.0
// Sums what the kernels of a program took on the GPU: NVIDIA's driver loads this library into every program that starts under
// CUDA_INJECTION64_PATH=kernel_time.so, and CUPTI hands it a record for each kernel and copy, also of those that are replayed
// in a graph. Written at the end to LOCKSTEP_KERNEL_TIME.<process id> as one JSON object. Built by bench_gpu.py, where
// CUPTI's header and library are, which names the newest records of that header.
#include <cupti.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define BUFFER_BYTES ((size_t)4 << 20)
#define EXPORT __attribute__((visibility("default")))

struct span {
    uint64_t begin, end; // nanoseconds
};

static struct {
    struct span *kernels;
    size_t count, capacity;
    uint64_t copies, copy_ns; // copies and memory that is set
    uint64_t lost; // records for which there was no room
    pthread_mutex_t lock;
} seen = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void CUPTIAPI give_buffer(uint8_t **buffer, size_t *bytes, size_t *most_records)
{
    *buffer = aligned_alloc(8, BUFFER_BYTES);
    *bytes = *buffer ? BUFFER_BYTES : 0;
    *most_records = 0;
}

static void add_kernel(uint64_t begin, uint64_t end)
{
    if (seen.count == seen.capacity) {
        const size_t capacity = seen.capacity ? seen.capacity * 2 : 65536;
        struct span *grown = realloc(seen.kernels, capacity * sizeof(*grown));
        if (!grown) {
            seen.lost++;
            return;
        }
        seen.kernels = grown;
        seen.capacity = capacity;
    }
    seen.kernels[seen.count++] = (struct span){begin, end};
}

static void add_copy(uint64_t begin, uint64_t end)
{
    seen.copies++;
    seen.copy_ns += end - begin;
}

static void add_record(const CUpti_Activity *record)
{
    if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
        const KERNEL_RECORD *kernel = (const KERNEL_RECORD *)record;
        add_kernel(kernel->start, kernel->end);
    } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
        const MEMCPY_RECORD *copy = (const MEMCPY_RECORD *)record;
        add_copy(copy->start, copy->end);
    } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMSET) {
        const MEMSET_RECORD *set = (const MEMSET_RECORD *)record;
        add_copy(set->start, set->end);
    }
}

// [a thread of CUPTI]
static void CUPTIAPI take_buffer(CUcontext context, uint32_t stream, uint8_t *buffer, size_t bytes,
                                 size_t valid)
{
    (void)bytes;
    CUpti_Activity *record = NULL;
    size_t dropped = 0;
    pthread_mutex_lock(&seen.lock);
    while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS)
        add_record(record);
    if (cuptiActivityGetNumDroppedRecords(context, stream, &dropped) == CUPTI_SUCCESS)
        seen.lost += dropped;
    pthread_mutex_unlock(&seen.lock);
    free(buffer);
}

static int by_begin(const void *a, const void *b)
{
    const struct span *x = a, *y = b;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

// Kernels side by side count once in `covered`, each by itself in `sum`.
static void add_up(uint64_t *sum, uint64_t *covered)
{
    uint64_t reached = 0;
    *sum = *covered = 0;
    qsort(seen.kernels, seen.count, sizeof(*seen.kernels), by_begin);
    for (size_t i = 0; i < seen.count; i++) {
        const struct span span = seen.kernels[i];
        const uint64_t begin = span.begin > reached ? span.begin : reached;
        *sum += span.end - span.begin;
        if (span.end > begin) {
            *covered += span.end - begin;
            reached = span.end;
        }
    }
}

static void write_sums(void)
{
    char path[4096];
    uint64_t sum, covered;
    const char *prefix = getenv("LOCKSTEP_KERNEL_TIME");
    cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    if (!prefix ||
        snprintf(path, sizeof(path), "%s.%d", prefix, (int)getpid()) >= (int)sizeof(path))
        return;
    FILE *file = fopen(path, "w");
    if (!file)
        return;
    pthread_mutex_lock(&seen.lock);
    add_up(&sum, &covered);
    fprintf(file,
            "{\"kernels\": %zu, \"kernel_seconds\": %.9f, \"kernel_union_seconds\": %.9f, "
            "\"copies\": %llu, \"copy_seconds\": %.9f, \"lost\": %llu}\n",
            seen.count, (double)sum * 1e-9, (double)covered * 1e-9, (unsigned long long)seen.copies,
            (double)seen.copy_ns * 1e-9, (unsigned long long)seen.lost);
    pthread_mutex_unlock(&seen.lock);
    fclose(file);
}

// What the driver calls when the program first uses it.
EXPORT int InitializeInjection(void);
int InitializeInjection(void)
{
    if (cuptiActivityRegisterCallbacks(give_buffer, take_buffer) != CUPTI_SUCCESS ||
        cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) != CUPTI_SUCCESS ||
        cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMCPY) != CUPTI_SUCCESS ||
        cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMSET) != CUPTI_SUCCESS) {
        fprintf(stderr, "kernel_time: CUPTI records nothing here\n");
        return 1;
    }
    atexit(write_sums);
    return 1;
}
