// SPDX-License-Identifier: Apache-2.0
// Writes down which kernels and copies of a program ran on the GPU and when: NVIDIA's driver loads this library into every
// program that starts under CUDA_INJECTION64_PATH=kernel_time.so, and CUPTI hands it a record for each, also of those that
// are replayed in a graph. At the end they go to LOCKSTEP_KERNEL_TIME.<process id> as one JSON object, which
// kernel_table.py reads. The types of records are those of CUDA 12.0, which newer ones only add to.
#include <cupti.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BUFFER_BYTES ((size_t)4 << 20)
#define MOST_NAMES 4096
#define EXPORT __attribute__((visibility("default")))

struct event {
    uint64_t begin, end; // nanoseconds
    int32_t name, grid[3], block[3];
};

static struct {
    char *names[MOST_NAMES];
    int32_t name_count;
    struct event *events;
    size_t count, capacity;
    uint64_t lost; // records without times or room, and buffers with one that is not complete
    pthread_mutex_t lock;
} seen = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void CUPTIAPI give_buffer(uint8_t **buffer, size_t *bytes, size_t *most_records)
{
    *buffer = aligned_alloc(8, BUFFER_BYTES);
    *bytes = *buffer ? BUFFER_BYTES : 0;
    *most_records = 0;
}

// Its number; -1 where there is no room.
static int32_t find_name(const char *name)
{
    for (int32_t i = 0; i < seen.name_count; i++) {
        if (strcmp(seen.names[i], name) == 0)
            return i;
    }
    if (seen.name_count == MOST_NAMES || !(seen.names[seen.name_count] = strdup(name)))
        return -1;
    return seen.name_count++;
}

static bool grow(void)
{
    const size_t capacity = seen.capacity ? seen.capacity * 2 : 65536;
    struct event *grown = realloc(seen.events, capacity * sizeof(*grown));
    if (!grown)
        return false;
    seen.events = grown;
    seen.capacity = capacity;
    return true;
}

// CUPTI gives times of 0 where it has none.
static struct event *add(const char *name, uint64_t begin, uint64_t end)
{
    static struct event nowhere;
    const int32_t number = begin && end ? find_name(name ? name : "?") : -1;
    if (number < 0 || (seen.count == seen.capacity && !grow())) {
        seen.lost++;
        return &nowhere;
    }
    seen.events[seen.count] = (struct event){.begin = begin, .end = end, .name = number};
    return &seen.events[seen.count++];
}

static void add_record(const CUpti_Activity *record)
{
    if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
        const CUpti_ActivityKernel9 *kernel = (const CUpti_ActivityKernel9 *)record;
        struct event *event = add(kernel->name, kernel->start, kernel->end);
        const int32_t grid[3] = {kernel->gridX, kernel->gridY, kernel->gridZ};
        const int32_t block[3] = {kernel->blockX, kernel->blockY, kernel->blockZ};
        memcpy(event->grid, grid, sizeof(grid));
        memcpy(event->block, block, sizeof(block));
    } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
        const CUpti_ActivityMemcpy5 *copy = (const CUpti_ActivityMemcpy5 *)record;
        add("Memcpy", copy->start, copy->end);
    } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMSET) {
        const CUpti_ActivityMemset4 *set = (const CUpti_ActivityMemset4 *)record;
        add("Memset", set->start, set->end);
    }
}

// A record that is not complete hides all behind it. It is complete some time after its kernel, at a
// call that synchronizes with the stream: device `cuda` makes one after each of its own waits.
// [a thread of CUPTI]
static void CUPTIAPI take_buffer(CUcontext context, uint32_t stream, uint8_t *buffer, size_t bytes,
                                 size_t valid)
{
    (void)bytes;
    CUpti_Activity *record = NULL;
    size_t dropped = 0;
    CUptiResult read = CUPTI_ERROR_MAX_LIMIT_REACHED;
    pthread_mutex_lock(&seen.lock);
    while (valid && (read = cuptiActivityGetNextRecord(buffer, valid, &record)) == CUPTI_SUCCESS)
        add_record(record);
    seen.lost += read != CUPTI_ERROR_MAX_LIMIT_REACHED;
    if (cuptiActivityGetNumDroppedRecords(context, stream, &dropped) == CUPTI_SUCCESS)
        seen.lost += dropped;
    pthread_mutex_unlock(&seen.lock);
    free(buffer);
}

static void write_all(FILE *file)
{
    fprintf(file, "{\"lost\": %" PRIu64 ", \"names\": [", seen.lost);
    for (int32_t i = 0; i < seen.name_count; i++)
        fprintf(file, "%s\"%s\"", i ? ", " : "", seen.names[i]);
    fprintf(file, "],\n\"events\": [");
    for (size_t i = 0; i < seen.count; i++) {
        const struct event *e = &seen.events[i];
        fprintf(file, "%s[%d, %" PRIu64 ", %" PRIu64 ", \"%d,%d,%d x %d,%d,%d\"]", i ? ",\n" : "",
                e->name, e->begin, e->end, e->grid[0], e->grid[1], e->grid[2], e->block[0],
                e->block[1], e->block[2]);
    }
    fprintf(file, "]}\n");
}

static void write_down(void)
{
    char path[4096];
    const char *prefix = getenv("LOCKSTEP_KERNEL_TIME");
    cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    if (!prefix ||
        snprintf(path, sizeof(path), "%s.%d", prefix, (int)getpid()) >= (int)sizeof(path))
        return;
    FILE *file = fopen(path, "w");
    if (!file)
        return;
    pthread_mutex_lock(&seen.lock);
    write_all(file);
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
    atexit(write_down);
    return 1;
}
