// SPDX-License-Identifier: Apache-2.0
// Damaged files of datasets: .npy, CIFAR, text. Each is read, as its header said, or refused with
// one line. Run it under sanitizers.
//
//     fuzz_datasets npy|cifar|text SECONDS SEED
#include "core/base/log.h"
#include "core/data/dataset.h"
#include "core/data/gather.h"
#include "tests/fuzz/mutate.h"

#include <stdbool.h>
#include <sys/resource.h>
#include <unistd.h>

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

static size_t fill_npy(uint64_t *state, unsigned char *data)
{
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

static size_t fill_cifar(uint64_t *state, unsigned char *data)
{
    const size_t records = 1 + fuzz_below(state, 4);
    for (size_t i = 0; i < records * 3073; i++)
        data[i] = (unsigned char)(i % 3073 ? i * 7 : i / 3073);
    return records * 3073;
}

static size_t fill_text(uint64_t *state, unsigned char *data)
{
    const size_t bytes = 2 + fuzz_below(state, 2000);
    for (size_t i = 0; i < bytes; i++)
        data[i] = (unsigned char)("some text\n"[i * i % 10]);
    return bytes;
}

static const struct kind {
    const char *name;
    size_t (*fill)(uint64_t *state, unsigned char *data);
    const char *text; // of the dataset: %s is the file
} kinds[] = {
    {"npy", fill_npy, "arrays:x=%s,y=%s,validation_split=0.3"},
    {"cifar", fill_cifar, "cifar10:train=%s,test=%s,validation_split=0.3"},
    {"text", fill_text, "text:file=%s,length=7,stride=3,validation_split=0.3"},
};

// Half of the damage to .npy goes to the header, where the decisions are.
static size_t damage(const struct kind *kind, uint64_t *state, unsigned char *data, size_t bytes)
{
    if (kind->fill == fill_npy && fuzz_below(state, 2)) {
        fuzz_mutate(state, data, 128);
        return bytes;
    }
    return fuzz_mutate(state, data, bytes);
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
    const enum ls_split split = seed % 2 ? LS_TRAIN : LS_VALIDATION;
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

int main(int argc, char **argv)
{
    static unsigned char data[MOST_BYTES];
    unsigned long results[2] = {0};
    const struct kind *kind = kinds;
    char path[64], text[512];
    int result = 0;
    if (argc != 4)
        return 2;
    while (strcmp(kind->name, argv[1]) != 0)
        if (++kind == kinds + sizeof(kinds) / sizeof(kinds[0]))
            return 2;
#ifndef __SANITIZE_ADDRESS__ // which reserves memory without end for itself
    const struct rlimit limit = {MOST_MEMORY, MOST_MEMORY};
    setrlimit(RLIMIT_AS, &limit);
#endif
    snprintf(path, sizeof(path), "/tmp/lockstep-fuzz-%s-%ld", kind->name, (long)getpid());
    snprintf(text, sizeof(text), kind->text, path, path);
    const double end_at = fuzz_clock() + strtod(argv[2], NULL);
    ls_log_set_writer(quiet, NULL);
    for (uint64_t seed = strtoull(argv[3], NULL, 10); result >= 0 && fuzz_clock() < end_at;
         seed++) {
        uint64_t state = seed;
        const size_t whole = kind->fill(&state, data);
        if (!write_file(path, data, damage(kind, &state, data, whole)))
            return 2;
        result = check(text, seed);
        if (result >= 0)
            results[result]++;
    }
    if (result < 0) {
        fprintf(stderr, "the file is kept: %s\n", path);
        return 1;
    }
    unlink(path);
    printf("%lu read, %lu refused\n", results[0], results[1]);
    return !results[0] || !results[1];
}
