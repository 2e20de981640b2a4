// SPDX-License-Identifier: Apache-2.0
// Damaged files of datasets. Each is read, as its header said, or refused with one line. Run it
// under sanitizers.
//
//     fuzz_datasets arrays|cifar|text|idx SECONDS SEED
#include "core/base/log.h"
#include "core/data/dataset.h"
#include "core/data/gather.h"
#include "tests/fuzz/mutate.h"

#include <stdbool.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#define MOST_BYTES (16 << 10)
// A file has at most MOST_BYTES, and readers take little more than that: what a header claims
// beyond is not asked for.
#define MOST_MEMORY ((rlim_t)2 << 30)

static unsigned long errors;

static void quiet(void *context, uint32_t level, const char *line)
{
    (void)context, (void)line;
    errors += level == LS_LOG_ERROR;
}

static size_t fill_npy(uint64_t *state, size_t file, unsigned char *data)
{
    (void)file;
    static const char *const types[] = {"|b1", "|u1", "<i4", "<i8", "<f4", "<f8"};
    static const size_t sizes[] = {1, 1, 4, 8, 4, 8};
    const size_t type = fuzz_below(state, 6), rows = 1 + fuzz_below(state, 40);
    const size_t columns = 1 + fuzz_below(state, 9), bytes = rows * columns * sizes[type];
    char header[256];
    int length = snprintf(header, sizeof(header),
                          "{'descr': '%s', 'fortran_order': False, 'shape': (%zu, %zu), }",
                          types[type], rows, columns);
    memcpy(data, "\x93NUMPY\1\0", 8);
    memset(data + 10, ' ', 128);
    memcpy(data + 10, header, (size_t)length);
    data[8] = 118;
    data[9] = 0;
    data[127] = '\n';
    for (size_t i = 0; i < bytes; i++)
        data[128 + i] = (unsigned char)(i % sizes[type] ? 0 : i);
    return 128 + bytes;
}

// Two tensors; of the smaller types x and y are often bad input, as too large a class is.
static size_t fill_safetensors(uint64_t *state, size_t file, unsigned char *data)
{
    static const char *const types[] = {"F32", "F64", "F16", "BF16", "U8", "BOOL", "I32", "I64"};
    static const size_t sizes[] = {4, 8, 2, 2, 1, 1, 4, 8};
    const size_t type = fuzz_below(state, 8), rows = 1 + fuzz_below(state, 40);
    const size_t columns = 1 + fuzz_below(state, 9), x = rows * columns * sizes[type];
    const size_t label = 4 + fuzz_below(state, 4), y = rows * sizes[label];
    char *header = (char *)data + 8;
    (void)file;
    const uint64_t length = (uint64_t)snprintf(
        header, 1024,
        "{\"x\":{\"dtype\":\"%s\",\"shape\":[%zu,%zu],\"data_offsets\":[0,%zu]},\"y\":{\"dtype\":"
        "\"%s\",\"shape\":[%zu],\"data_offsets\":[%zu,%zu]}}",
        types[type], rows, columns, x, types[label], rows, x, x + y);
    memcpy(data, &length, 8);
    for (size_t i = 0; i < x + y; i++)
        header[length + i] = (char)(i % 8 == 0);
    return 8 + (size_t)length + x + y;
}

static size_t fill_records(uint64_t *state, unsigned char *data, size_t labels)
{
    const size_t records = 1 + fuzz_below(state, 4), bytes = 3072 + labels;
    for (size_t i = 0; i < records * bytes; i++)
        data[i] = (unsigned char)(i % bytes >= labels ? i * 7 : i / bytes);
    return records * bytes;
}

static size_t fill_cifar(uint64_t *state, size_t file, unsigned char *data)
{
    (void)file;
    return fill_records(state, data, 1);
}

static size_t fill_cifar100(uint64_t *state, size_t file, unsigned char *data)
{
    (void)file;
    return fill_records(state, data, 2);
}

static size_t fill_text(uint64_t *state, size_t file, unsigned char *data)
{
    const size_t bytes = 2 + fuzz_below(state, 2000);
    (void)file;
    for (size_t i = 0; i < bytes; i++)
        data[i] = (unsigned char)("some text\n"[i * i % 10]);
    return bytes;
}

// Pictures, then their labels.
static size_t fill_idx(uint64_t *state, size_t file, unsigned char *data)
{
    static unsigned char count;
    const size_t rows = 1 + fuzz_below(state, 9), columns = 1 + fuzz_below(state, 9);
    if (file == 0)
        count = (unsigned char)(1 + fuzz_below(state, 99));
    const size_t bytes = file ? count : count * rows * columns, header = file ? 8 : 16;
    memset(data, 0, header);
    data[2] = 8;
    data[3] = file ? 1 : 3;
    data[7] = count;
    data[11] = file ? 0 : (unsigned char)rows;
    data[header - 1] = file ? count : (unsigned char)columns;
    for (size_t i = 0; i < bytes; i++)
        data[header + i] = (unsigned char)(i % 10);
    return header + bytes;
}

static const struct kind {
    const char *group; // by which they are asked for
    size_t (*fill)(uint64_t *state, size_t file, unsigned char *data);
    const char *files[2];
    const char *text; // of the dataset: %s is the folder
    size_t header; // bytes in which the decisions are, and half of the damage; 0: anywhere
    bool compressed;
} kinds[] = {
    {"arrays",
     fill_npy,
     {"a.npy"},
     "arrays:x=%s/a.npy,y=%s/a.npy,validation_split=0.3",
     128,
     false},
    {"arrays",
     fill_safetensors,
     {"a.safetensors"},
     "arrays:x=%s/a.safetensors,y=%s/a.safetensors,validation_split=0.3",
     150,
     false},
    {"cifar",
     fill_cifar,
     {"a.bin"},
     "cifar10:train=%s/a.bin,test=%s/a.bin,validation_split=0.3",
     0,
     false},
    {"cifar",
     fill_cifar100,
     {"a.bin"},
     "cifar100:train=%s/a.bin,test=%s/a.bin,validation_split=0.3",
     0,
     false},
    {"text",
     fill_text,
     {"a.txt"},
     "text:file=%s/a.txt,length=7,stride=3,validation_split=0.3",
     0,
     false},
    {"idx",
     fill_idx,
     {"train-images-idx3-ubyte", "train-labels-idx1-ubyte"},
     "mnist:dir=%s,validation_split=0.3",
     16,
     false},
    {"idx",
     fill_idx,
     {"train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"},
     "mnist:dir=%s,validation_split=0.3",
     16,
     true},
};

// What is compressed is damaged before or afterwards.
static size_t compress_all(unsigned char *data, size_t bytes)
{
    static unsigned char packed[MOST_BYTES];
    z_stream stream = {.next_in = data, .avail_in = (uInt)bytes};
    stream.next_out = packed;
    stream.avail_out = sizeof(packed);
    if (deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK)
        return 0;
    (void)!deflate(&stream, Z_FINISH);
    deflateEnd(&stream);
    memcpy(data, packed, stream.total_out);
    return stream.total_out;
}

static size_t damage(const struct kind *kind, uint64_t *state, unsigned char *data, size_t bytes)
{
    const bool first = !kind->compressed || fuzz_below(state, 2);
    if (first && kind->header && kind->header < bytes && fuzz_below(state, 2))
        fuzz_mutate(state, data, kind->header);
    else if (first)
        bytes = fuzz_mutate(state, data, bytes);
    if (kind->compressed)
        bytes = compress_all(data, bytes);
    return first ? bytes : fuzz_mutate(state, data, bytes);
}

// Reads every value; false: something is not as the fields say.
static bool read_all(const struct ls_dataset *dataset)
{
    for (uint32_t i = 0; i < dataset->field_count; i++) {
        const struct ls_field *field = &dataset->fields[i];
        const uint64_t elements = ls_field_elements(field);
        int32_t *values = malloc(elements * sizeof(*values));
        const uint32_t dtype = ls_can_gather(field->dtype, LS_I32) ? LS_I32 : LS_F32;
        bool good = values != NULL;
        for (uint32_t k = 0; good && k < dataset->count; k++) {
            ls_gather(field, dtype, &k, 1, values);
            for (uint64_t e = 0; field->class_count && e < elements; e++)
                good = good && values[e] >= 0 && (uint32_t)values[e] < field->class_count;
        }
        free(values);
        if (!good)
            return false;
    }
    return true;
}

// 0: read, 1: refused, -1: wrong.
static int check(const char *text, uint64_t seed)
{
    struct ls_dataset *dataset = NULL;
    struct ls_dataset_info info;
    errors = 0;
    const enum ls_split split = seed / 2 % 2 ? LS_TRAIN : LS_VALIDATION;
    const enum ls_status described = ls_dataset_describe(text, split, &info);
    bool good = errors == (described != LS_OK);
    errors = 0;
    const enum ls_status opened = ls_dataset_open(text, split, &dataset);
    good = good && errors == (opened != LS_OK);
    good = good && (!opened || opened == LS_BAD_INPUT || opened == LS_USAGE);
    good = good && (!described || opened); // values are looked at when they are read
    if (!opened)
        good = good && dataset->count == info.count && read_all(dataset);
    ls_dataset_close(dataset);
    if (!good)
        fprintf(stderr, "seed %llu: described with status %d, opened with status %d, %lu errors\n",
                (unsigned long long)seed, (int)described, (int)opened, errors);
    return !good ? -1 : opened != LS_OK;
}

// False: the file could not be written.
static bool write_file(const char *path, const unsigned char *data, size_t bytes)
{
    FILE *file = fopen(path, "wb");
    const bool written = file && fwrite(data, 1, bytes, file) == bytes;
    return file && fclose(file) == 0 && written;
}

// All files, of which one is damaged. False: they could not be written.
static bool write_files(const struct kind *kind, const char *folder, uint64_t *state)
{
    static unsigned char data[MOST_BYTES];
    const size_t count = kind->files[1] ? 2 : 1, damaged = fuzz_below(state, count);
    bool written = true;
    for (size_t i = 0; i < count && written; i++) {
        char path[128];
        snprintf(path, sizeof(path), "%s/%s", folder, kind->files[i]);
        size_t bytes = kind->fill(state, i, data);
        if (i == damaged)
            bytes = damage(kind, state, data, bytes);
        else if (kind->compressed)
            bytes = compress_all(data, bytes);
        written = write_file(path, data, bytes);
    }
    return written;
}

static void remove_files(const struct kind *kind, const char *folder)
{
    for (size_t i = 0; i < 2 && kind->files[i]; i++) {
        char path[128];
        snprintf(path, sizeof(path), "%s/%s", folder, kind->files[i]);
        unlink(path);
    }
}

// One kind after the other of a group; NULL: there is no such group.
static const struct kind *next_kind(const char *group, const struct kind *kind)
{
    const size_t count = sizeof(kinds) / sizeof(kinds[0]);
    const size_t begin = kind ? (size_t)(kind - kinds) + 1 : 0;
    for (size_t i = 0; i < count; i++)
        if (strcmp(kinds[(begin + i) % count].group, group) == 0)
            return &kinds[(begin + i) % count];
    return NULL;
}

int main(int argc, char **argv)
{
    unsigned long results[2] = {0};
    char folder[64], text[512];
    int result = 0;
    const struct kind *kind = argc == 4 ? next_kind(argv[1], NULL) : NULL;
    if (!kind)
        return 2;
#ifndef __SANITIZE_ADDRESS__ // which reserves memory without end for itself
    const struct rlimit limit = {MOST_MEMORY, MOST_MEMORY};
    setrlimit(RLIMIT_AS, &limit);
#endif
    snprintf(folder, sizeof(folder), "/tmp/lockstep-fuzz-%s-%ld", argv[1], (long)getpid());
    if (mkdir(folder, 0700))
        return 2;
    const double end_at = fuzz_clock() + strtod(argv[2], NULL);
    ls_log_set_writer(quiet, NULL);
    for (uint64_t seed = strtoull(argv[3], NULL, 10); fuzz_clock() < end_at; seed++) {
        uint64_t state = seed;
        snprintf(text, sizeof(text), kind->text, folder, folder);
        if (!write_files(kind, folder, &state))
            return 2;
        result = check(text, seed);
        if (result < 0)
            break;
        results[result]++;
        remove_files(kind, folder);
        kind = next_kind(argv[1], kind);
    }
    if (result < 0) {
        fprintf(stderr, "%s; the files are kept\n", text);
        return 1;
    }
    rmdir(folder);
    printf("%lu read, %lu refused\n", results[0], results[1]);
    return !results[0] || !results[1];
}
