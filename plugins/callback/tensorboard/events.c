// SPDX-License-Identifier: Apache-2.0
// Records, checksums and the few fields of the protocol buffers.
#include "plugins/callback/tensorboard/events.h"

#include <errno.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define BUCKETS 30
#define LONGEST_TAG 512

// ---- Records ----

// CRC-32C (Castagnoli), bit by bit: events are short.
static uint32_t checksum(const unsigned char *bytes, size_t count)
{
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < count; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? UINT32_C(0x82f63b78) : 0);
    }
    crc = ~crc;
    return (crc >> 15 | crc << 17) + UINT32_C(0xa282ead8); // masked, as TFRecord stores it
}

static void put_little_endian(unsigned char *out, uint64_t value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        out[i] = (unsigned char)(value >> 8 * i);
}

static bool write_record(FILE *file, const unsigned char *data, size_t bytes)
{
    unsigned char head[12], tail[4];
    put_little_endian(head, bytes, 8);
    put_little_endian(head + 8, checksum(head, 8), 4);
    put_little_endian(tail, checksum(data, bytes), 4);
    return fwrite(head, 1, sizeof(head), file) == sizeof(head) &&
           fwrite(data, 1, bytes, file) == bytes &&
           fwrite(tail, 1, sizeof(tail), file) == sizeof(tail);
}

// ---- Protocol buffers ----

// A message that is being made. Its room is for the largest event there is.
struct message {
    unsigned char bytes[LONGEST_TAG + 16 * BUCKETS + 256];
    size_t used;
};

enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

static void put_varint(struct message *message, uint64_t value)
{
    for (; value >= 128; value >>= 7)
        message->bytes[message->used++] = (unsigned char)(value | 128);
    message->bytes[message->used++] = (unsigned char)value;
}

static void put_key(struct message *message, uint32_t field, uint32_t type)
{
    put_varint(message, (uint64_t)field << 3 | type);
}

static void put_bytes(struct message *message, uint32_t field, const void *bytes, size_t count)
{
    put_key(message, field, BYTES);
    put_varint(message, count);
    memcpy(message->bytes + message->used, bytes, count);
    message->used += count;
}

static void put_raw_double(struct message *message, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    put_little_endian(message->bytes + message->used, bits, 8);
    message->used += 8;
}

static void put_double(struct message *message, uint32_t field, double value)
{
    put_key(message, field, FIXED64);
    put_raw_double(message, value);
}

static void put_float(struct message *message, uint32_t field, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    put_key(message, field, FIXED32);
    put_little_endian(message->bytes + message->used, bits, 4);
    message->used += 4;
}

static void put_doubles(struct message *message, uint32_t field, const double *values, size_t count)
{
    put_key(message, field, BYTES);
    put_varint(message, count * 8);
    for (size_t i = 0; i < count; i++)
        put_raw_double(message, values[i]);
}

static void put_time(struct message *event)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    put_double(event, 1, (double)now.tv_sec + (double)now.tv_nsec * 1e-9);
}

// Event {wall_time = 1, step = 2, summary = 5 {value = 1}}
static bool write_value(struct events *events, int64_t step, const struct message *value)
{
    struct message summary = {.used = 0}, event = {.used = 0};
    put_bytes(&summary, 1, value->bytes, value->used);
    put_time(&event);
    put_key(&event, 2, VARINT);
    put_varint(&event, (uint64_t)step);
    put_bytes(&event, 5, summary.bytes, summary.used);
    return write_record(events->file, event.bytes, event.used);
}

// ---- Events ----

// Value {tag = 1, simple_value = 2}
bool events_scalar(struct events *events, const char *tag, int64_t step, double value)
{
    struct message message = {.used = 0};
    put_bytes(&message, 1, tag, strnlen(tag, LONGEST_TAG));
    put_float(&message, 2, (float)value);
    return write_value(events, step, &message);
}

// HistogramProto {min = 1, max = 2, num = 3, sum = 4, sum_squares = 5, bucket_limit = 6, bucket = 7}
bool events_histogram(struct events *events, const char *tag, int64_t step, const float *values,
                      uint64_t count)
{
    struct message histogram = {.used = 0}, message = {.used = 0};
    double least = INFINITY, most = -INFINITY, sum = 0, squares = 0, number = 0;
    double limits[BUCKETS], buckets[BUCKETS] = {0};
    for (uint64_t i = 0; i < count; i++) {
        if (!isfinite(values[i]))
            continue;
        const double value = (double)values[i];
        least = value < least ? value : least;
        most = value > most ? value : most;
        sum += value;
        squares += value * value;
        number++;
    }
    if (number == 0)
        return true;
    const double width = (most - least) / BUCKETS;
    for (uint64_t i = 0; i < count; i++) {
        if (!isfinite(values[i]))
            continue;
        const int at = width > 0 ? (int)(((double)values[i] - least) / width) : BUCKETS - 1;
        buckets[at < BUCKETS ? at : BUCKETS - 1]++;
    }
    for (int i = 0; i < BUCKETS; i++)
        limits[i] = i + 1 < BUCKETS ? least + width * (i + 1) : most;
    put_double(&histogram, 1, least);
    put_double(&histogram, 2, most);
    put_double(&histogram, 3, number);
    put_double(&histogram, 4, sum);
    put_double(&histogram, 5, squares);
    put_doubles(&histogram, 6, limits, BUCKETS);
    put_doubles(&histogram, 7, buckets, BUCKETS);
    put_bytes(&message, 1, tag, strnlen(tag, LONGEST_TAG));
    put_bytes(&message, 5, histogram.bytes, histogram.used);
    return write_value(events, step, &message);
}

// ---- Files ----

static bool make_folders(const char *folder)
{
    char path[4096];
    const size_t bytes = strlen(folder);
    if (bytes + 1 > sizeof(path)) {
        errno = ENAMETOOLONG;
        return false;
    }
    for (size_t i = 1; i <= bytes; i++) {
        if (folder[i] != '/' && folder[i] != '\0')
            continue;
        memcpy(path, folder, i);
        path[i] = '\0';
        if (mkdir(path, 0777) && errno != EEXIST)
            return false;
    }
    return true;
}

bool events_open(struct events *events, const char *folder)
{
    static atomic_uint files;
    static const char version[] = "brain.Event:2";
    char host[65] = "";
    struct message event = {.used = 0};
    gethostname(host, sizeof(host) - 1);
    snprintf(events->path, sizeof(events->path), "%s", folder);
    if (!make_folders(folder))
        return false;
    const int length =
        snprintf(events->path, sizeof(events->path), "%s/events.out.tfevents.%lld.%s.%ld.%u.v2",
                 folder, (long long)time(NULL), host, (long)getpid(), atomic_fetch_add(&files, 1));
    if (length >= (int)sizeof(events->path)) {
        errno = ENAMETOOLONG;
        return false;
    }
    events->file = fopen(events->path, "wbx");
    if (!events->file)
        return false;
    put_time(&event);
    put_bytes(&event, 3, version, sizeof(version) - 1);
    return write_record(events->file, event.bytes, event.used) && events_flush(events);
}

bool events_flush(struct events *events)
{
    return fflush(events->file) == 0;
}

bool events_close(struct events *events)
{
    FILE *file = events->file;
    events->file = NULL;
    return !file || fclose(file) == 0;
}
