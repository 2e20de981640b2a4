// SPDX-License-Identifier: Apache-2.0
// Damaged images, tables and TFRecord files: each is read, as its header said, or refused with one
// line. Run it under sanitizers.
//
//     fuzz_readers FIXTURES jpeg|png|csv|tfrecord SECONDS SEED
#include "core/base/log.h"
#include "core/data/dataset.h"
#include "datasets/tfrecord_example.h"
#include "tests/fuzz/mutate.h"

#include <stdbool.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST_BYTES (16 << 10)
// An image of MOST_BYTES may claim 16,384 times as many pixels before it is refused, and is decoded
// with a few buffers of that.
#define MOST_MEMORY ((rlim_t)3 << 30)

static unsigned long errors;

static void quiet(void *context, uint32_t level, const char *line)
{
    (void)context, (void)line;
    errors += level == LS_LOG_ERROR;
}

static const struct kind {
    const char *name;
    const char *files[5]; // of the fixtures
    const char *file; // in the test's folder
    const char *text; // of the dataset: %s is the folder
} kinds[] = {
    {"jpeg",
     {"images/classes/a/small.jpg", "images/classes/c/progressive.jpg",
      "images/classes/c/inside/grey.jpeg"},
     "a/1.jpg",
     "images:dir=%s,resize=9x7"},
    {"png",
     {"images/classes/a/grey.png", "images/classes/a/see-through.png",
      "images/classes/b/colours.png", "images/classes/b/deep.png"},
     "a/1.png",
     "images:dir=%s,channels=1"},
    {"csv", {NULL}, "t.csv", "csv:file=%s/t.csv,label=y"},
    {"tfrecord",
     {"tfrecord/plain.tfrecord"},
     "t",
     "tfrecord:file=%s/t,x=image,x2=values,x3=raw,y=label"},
};

static size_t load_fixture(const struct kind *kind, const char *fixtures, uint64_t *state,
                           unsigned char *data)
{
    char path[512];
    size_t files = 0;
    while (kind->files[files])
        files++;
    snprintf(path, sizeof(path), "%s/%s", fixtures, kind->files[fuzz_below(state, files)]);
    FILE *file = fopen(path, "rb");
    const size_t bytes = file ? fread(data, 1, MOST_BYTES, file) : 0;
    if (file)
        fclose(file);
    return bytes;
}

static size_t fill_csv(uint64_t *state, unsigned char *data)
{
    size_t used = (size_t)sprintf((char *)data, "a,\"b, \"\"c\"\"\",y\r\n");
    const size_t lines = 1 + fuzz_below(state, 60);
    for (size_t i = 0; i < lines; i++)
        used += (size_t)sprintf((char *)data + used, "%zu,\"-%zu.5e-2\",%zu\n", i, i * i, i % 4);
    return used;
}

// Check sums that fit again, so that damage reaches what is behind them.
static void mend_records(unsigned char *data, size_t bytes)
{
    for (size_t at = 0; at + 16 <= bytes;) {
        uint64_t length;
        memcpy(&length, data + at, 8);
        if (length > bytes - at - 16)
            length = bytes - at - 16;
        memcpy(data + at, &length, 8);
        uint32_t sum = ls_masked_crc32c(data + at, 8);
        memcpy(data + at + 8, &sum, 4);
        sum = ls_masked_crc32c(data + at + 12, (size_t)length);
        memcpy(data + at + 12 + length, &sum, 4);
        at += 16 + (size_t)length;
    }
}

// Reads every example; what it returns is the status of the first that fails.
static enum ls_status read_all(const struct ls_dataset *dataset, bool *good)
{
    enum ls_status status = LS_OK;
    for (uint64_t i = 0; !status && i < dataset->count; i++) {
        void *fields[LS_MAX_FIELDS] = {NULL};
        for (uint32_t k = 0; k < dataset->field_count; k++) {
            const struct ls_field *field = &dataset->fields[k];
            const uint64_t elements = ls_field_elements(field);
            fields[k] = malloc(elements * ls_dtype_bytes(field->dtype));
            *good = *good && fields[k];
            if (field->values && fields[k])
                memcpy(fields[k], (const char *)field->values + i * field->stride,
                       elements * ls_dtype_bytes(field->dtype));
            for (uint64_t e = 0; field->values && field->class_count && e < elements; e++)
                *good = *good && ((int32_t *)fields[k])[e] >= 0 &&
                        (uint32_t)((int32_t *)fields[k])[e] < field->class_count;
        }
        if (dataset->load && *good)
            status = dataset->load(dataset, 1, dataset->first + i, 1, fields);
        for (uint32_t k = 0; k < dataset->field_count; k++)
            free(fields[k]);
    }
    return status;
}

// 0: read, 1: refused, -1: wrong.
static int check(const char *text, uint64_t seed)
{
    struct ls_dataset *dataset = NULL;
    struct ls_dataset_info info;
    errors = 0;
    const enum ls_status described = ls_dataset_describe(text, LS_TRAIN, &info);
    bool good = errors == (described != LS_OK);
    errors = 0;
    const enum ls_status opened = ls_dataset_open(text, LS_TRAIN, &dataset);
    good = good && errors == (opened != LS_OK) && described == opened;
    enum ls_status status = opened;
    if (!opened) {
        good = good && dataset->count == info.count;
        status = read_all(dataset, &good);
        good = good && errors == (status != LS_OK);
    }
    good = good && (!status || status == LS_BAD_INPUT);
    ls_dataset_close(dataset);
    if (!good)
        fprintf(stderr, "seed %llu: described %d, opened %d, read %d, %lu errors\n",
                (unsigned long long)seed, (int)described, (int)opened, (int)status, errors);
    return !good ? -1 : status != LS_OK;
}

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
    char folder[64], path[128], text[512];
    int result = 0;
    if (argc != 5)
        return 2;
    while (strcmp(kind->name, argv[2]) != 0)
        if (++kind == kinds + sizeof(kinds) / sizeof(kinds[0]))
            return 2;
#ifndef __SANITIZE_ADDRESS__ // which reserves memory without end for itself
    const struct rlimit limit = {MOST_MEMORY, MOST_MEMORY};
    setrlimit(RLIMIT_AS, &limit);
#endif
    snprintf(folder, sizeof(folder), "/tmp/lockstep-fuzz-%s-%ld", kind->name, (long)getpid());
    snprintf(path, sizeof(path), "%s/a", folder);
    if (mkdir(folder, 0700) || mkdir(path, 0700))
        return 2;
    snprintf(path, sizeof(path), "%s/%s", folder, kind->file);
    snprintf(text, sizeof(text), kind->text, folder);
    const double end_at = fuzz_clock() + strtod(argv[3], NULL);
    ls_log_set_writer(quiet, NULL);
    for (uint64_t seed = strtoull(argv[4], NULL, 10); result >= 0 && fuzz_clock() < end_at;
         seed++) {
        uint64_t state = seed;
        size_t bytes =
            kind->files[0] ? load_fixture(kind, argv[1], &state, data) : fill_csv(&state, data);
        if (!bytes)
            return 2;
        if (seed % 16) // some stay whole
            bytes = fuzz_mutate(&state, data, bytes);
        if (strcmp(kind->name, "tfrecord") == 0 && seed % 3)
            mend_records(data, bytes);
        if (!write_file(path, data, bytes))
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
    snprintf(path, sizeof(path), "%s/a", folder);
    rmdir(path);
    rmdir(folder);
    printf("%lu read, %lu refused\n", results[0], results[1]);
    return !results[0] || !results[1];
}
