// SPDX-License-Identifier: Apache-2.0
// cifar10 and cifar100: colour pictures of 32 x 32, in the binary version of their authors.
//   Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009
// A record is one label byte (cifar100: two, coarse and fine), then 1,024 red, 1,024 green and
// 1,024 blue bytes. Pictures become rows, columns, channels: (count, 32, 32, 3), divided by 255.
#include "datasets/datasets.h"

#include "core/base/log.h"
#include "datasets/source.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SIDE 32
#define PLANE (SIDE * SIDE)
#define CHANNELS 3
#define PICTURE (PLANE * CHANNELS)
#define PIXEL 255
#define PIECE_RECORDS 256 // that are read at a time
#define MOST_FILES 64

// What tells the two sets apart.
struct family {
    const char *name;
    const char *const *train; // the files of each split; end with NULL
    const char *const *test;
    size_t label_bytes; // of a record
    const char *const *class_names; // NULL: none
    uint32_t classes[2]; // by label byte
};

static const char *const train_batches[] = {"data_batch_1.bin", "data_batch_2.bin",
                                            "data_batch_3.bin", "data_batch_4.bin",
                                            "data_batch_5.bin", NULL};
static const char *const test_batches[] = {"test_batch.bin", NULL};
static const char *const train_file[] = {"train.bin", NULL};
static const char *const test_file[] = {"test.bin", NULL};
static const char *const class_names[] = {"airplane", "automobile", "bird",  "cat",  "deer",
                                          "dog",      "frog",       "horse", "ship", "truck"};

static const struct family families[] = {
    {
        .name = "cifar10",
        .train = train_batches,
        .test = test_batches,
        .label_bytes = 1,
        .class_names = class_names,
        .classes = {10},
    },
    {
        .name = "cifar100",
        .train = train_file,
        .test = test_file,
        .label_bytes = 2,
        .classes = {20, 100},
    },
};

static const struct family *family_of(const struct ls_spec *spec)
{
    const struct family *family = families;
    while (strcmp(family->name, spec->name) != 0)
        family++;
    return family;
}

// ---- Files ----

// The files of a split, in order.
struct files {
    char *paths[MOST_FILES];
    uint64_t records[MOST_FILES];
    size_t count;
    uint64_t total; // records of all
};

static void free_files(struct files *files)
{
    for (size_t i = 0; i < files->count; i++)
        free(files->paths[i]);
    *files = (struct files){0};
}

// The first name of the list.
static enum ls_status add_file(const struct family *family, const char *dir, const char **list,
                               struct files *files)
{
    char *path = ls_list_take_file(dir, list, NULL);
    if (!path)
        return LS_OUT_OF_MEMORY;
    if (!*path || files->count == MOST_FILES) {
        ls_error(family->name,
                 *path ? "more than 64 files" : "an empty file name; expected FILE+FILE");
        free(path);
        return LS_USAGE;
    }
    files->paths[files->count++] = path;
    return LS_OK;
}

// "FILE+FILE", else the files that the set is known by.
static enum ls_status list_files(const struct family *family, const struct ls_spec *spec,
                                 enum ls_split split, struct files *files)
{
    const char *given = ls_spec_list(spec, split == LS_TRAIN ? "train" : "test");
    const char *const *known = split == LS_TRAIN ? family->train : family->test;
    const char *dir = ls_spec_get(spec, "dir");
    enum ls_status status = LS_OK;
    if (!dir && !given) {
        ls_error(family->name,
                 "the option dir is missing: give the folder of the binary version's files, %s:dir="
                 "PATH",
                 family->name);
        return LS_USAGE;
    }
    for (; !given && *known && !status; known++) {
        const char *name = *known;
        status = add_file(family, dir, &name, files);
    }
    while (given && !status)
        status = add_file(family, dir, &given, files);
    return status;
}

// The files that are not there, as a list.
static size_t list_missing(const struct files *files, char *text, size_t bytes, size_t used)
{
    for (size_t i = 0; i < files->count; i++)
        if (access(files->paths[i], F_OK) && used < bytes)
            used += (size_t)snprintf(text + used, bytes - used, "%s%s", used ? ", " : "",
                                     files->paths[i]);
    return used;
}

// The files of the split must be there, and where none are named, those of both.
static enum ls_status check_present(const struct family *family, const struct ls_spec *spec,
                                    enum ls_split split, const struct files *files)
{
    char text[1024] = "";
    size_t used = 0;
    if (ls_spec_get(spec, "train") || ls_spec_get(spec, "test")) {
        used = list_missing(files, text, sizeof(text), 0);
    } else {
        struct files other = {0};
        const enum ls_split rest = split == LS_TRAIN ? LS_TEST : LS_TRAIN;
        const enum ls_status status = list_files(family, spec, rest, &other);
        if (!status) {
            used = list_missing(split == LS_TRAIN ? files : &other, text, sizeof(text), 0);
            used = list_missing(split == LS_TRAIN ? &other : files, text, sizeof(text), used);
        }
        free_files(&other);
        if (status)
            return status;
    }
    if (!used)
        return LS_OK;
    ls_error(family->name, "missing: %s; name the files that you have: train=FILE+FILE,test=FILE",
             text);
    return LS_BAD_INPUT;
}

static uint64_t record_bytes(const struct family *family)
{
    return family->label_bytes + PICTURE;
}

static enum ls_status open_source(const struct family *family, const char *path,
                                  struct ls_source **out, uint64_t *records)
{
    enum ls_status status = ls_source_open(family->name, path, out);
    if (status)
        return status;
    const uint64_t bytes = ls_source_most_bytes(*out), record = record_bytes(family);
    if (ls_source_is_gzip(*out)) {
        ls_error(family->name, "%s: is compressed; unpack it first", path);
        status = LS_BAD_INPUT;
    } else if (bytes == 0 || bytes % record != 0) {
        ls_error(family->name,
                 "%s: %" PRIu64 " bytes, which are not whole records of %" PRIu64
                 " bytes; is it complete, and of the binary version?",
                 path, bytes, record);
        status = LS_BAD_INPUT;
    }
    if (status) {
        ls_source_close(*out);
        *out = NULL;
        return status;
    }
    *records = bytes / record;
    return LS_OK;
}

// Looks at sizes only.
static enum ls_status count_records(const struct family *family, struct files *files)
{
    enum ls_status status = LS_OK;
    for (size_t i = 0; i < files->count && !status; i++) {
        struct ls_source *source = NULL;
        status = open_source(family, files->paths[i], &source, &files->records[i]);
        ls_source_close(source);
        files->total += status ? 0 : files->records[i];
    }
    if (!status && files->total >= UINT32_MAX) {
        ls_error(family->name, "%" PRIu64 " pictures; at most 4,294,967,294 can be read",
                 files->total);
        status = LS_BAD_INPUT;
    }
    return status;
}

static enum ls_status find_files(const struct family *family, const struct ls_spec *spec,
                                 enum ls_split split, struct files *files)
{
    enum ls_status status = list_files(family, spec, split, files);
    if (!status)
        status = check_present(family, spec, split, files);
    return status ? status : count_records(family, files);
}

// Which label byte is the class.
static size_t label_of(const struct family *family, const struct ls_spec *spec)
{
    const char *labels = ls_spec_get(spec, "labels");
    return labels && strcmp(labels, "coarse") == 0 ? 0 : family->label_bytes - 1;
}

// ---- Pictures ----

struct storage {
    struct ls_dataset dataset;
    uint8_t *pixels;
    uint8_t *labels;
};

static void storage_close(struct ls_dataset *dataset)
{
    struct storage *storage = dataset->storage;
    free(storage->pixels);
    free(storage->labels);
    free(storage);
}

// Planes become channels.
static void place_picture(const uint8_t *restrict planes, uint8_t *restrict out)
{
    for (size_t i = 0; i < PLANE; i++)
        for (size_t channel = 0; channel < CHANNELS; channel++)
            out[i * CHANNELS + channel] = planes[channel * PLANE + i];
}

// `label`: which label byte.
static enum ls_status read_records(const struct family *family, const char *path, size_t label,
                                   uint64_t records, struct ls_source *source, uint8_t *pixels,
                                   uint8_t *labels)
{
    const size_t record = (size_t)record_bytes(family);
    uint8_t *piece = malloc(PIECE_RECORDS * record);
    enum ls_status status = piece ? LS_OK : LS_OUT_OF_MEMORY;
    for (uint64_t i = 0; !status && i < records;) {
        const uint64_t expected = records - i < PIECE_RECORDS ? records - i : PIECE_RECORDS;
        size_t got = 0;
        status = ls_source_read(source, piece, (size_t)expected * record, &got);
        if (!status && got < expected * record) {
            ls_error(family->name, "%s: shrank while it was read", path);
            status = LS_BAD_INPUT;
        }
        for (uint64_t k = 0; !status && k < expected; k++, i++) {
            const uint8_t *from = piece + k * record;
            labels[i] = from[label];
            place_picture(from + family->label_bytes, pixels + i * PICTURE);
            if (labels[i] < family->classes[label])
                continue;
            ls_error(family->name, "%s: label %" PRIu64 " is %u; the classes are 0 to %" PRIu32,
                     path, i, (unsigned)labels[i], family->classes[label] - 1);
            status = LS_BAD_INPUT;
        }
    }
    free(piece);
    return status;
}

static enum ls_status read_files(const struct family *family, size_t label,
                                 const struct files *files, struct storage *storage)
{
    uint64_t before = 0;
    storage->pixels = malloc((size_t)files->total * PICTURE);
    storage->labels = malloc((size_t)files->total);
    if (!storage->pixels || !storage->labels) {
        ls_error(family->name, "no memory for %" PRIu64 " pictures", files->total);
        return LS_OUT_OF_MEMORY;
    }
    for (size_t i = 0; i < files->count; i++) {
        struct ls_source *source = NULL;
        uint64_t records;
        enum ls_status status = open_source(family, files->paths[i], &source, &records);
        if (!status && records != files->records[i]) {
            ls_error(family->name, "%s: changed while it was read", files->paths[i]);
            status = LS_BAD_INPUT;
        }
        if (!status)
            status = read_records(family, files->paths[i], label, records, source,
                                  storage->pixels + before * PICTURE, storage->labels + before);
        ls_source_close(source);
        if (status)
            return status;
        before += records;
    }
    return LS_OK;
}

static void describe_fields(const struct family *family, size_t label, struct ls_field *out)
{
    out[0] = (struct ls_field){.name = "x",
                               .role = LS_FIELD_INPUT,
                               .dtype = LS_U8,
                               .ndims = 3,
                               .dims = {SIDE, SIDE, CHANNELS},
                               .divisor = PIXEL,
                               .stride = PICTURE};
    out[1] = (struct ls_field){.name = "y",
                               .role = LS_FIELD_TARGET,
                               .dtype = LS_U8,
                               .divisor = 1,
                               .class_count = family->classes[label],
                               .class_names = family->class_names,
                               .stride = 1};
}

static enum ls_status family_describe(const struct ls_spec *spec, enum ls_split split,
                                      struct ls_dataset_info *out)
{
    const struct family *family = family_of(spec);
    struct files files = {0};
    const enum ls_status status = find_files(family, spec, split, &files);
    if (!status) {
        *out = (struct ls_dataset_info){.count = files.total, .field_count = 2};
        describe_fields(family, label_of(family, spec), out->fields);
    }
    free_files(&files);
    return status;
}

static enum ls_status family_open(const struct ls_spec *spec, enum ls_split split,
                                  struct ls_dataset **out)
{
    const struct family *family = family_of(spec);
    const size_t label = label_of(family, spec);
    struct files files = {0};
    struct storage *storage = calloc(1, sizeof(*storage));
    if (!storage)
        return LS_OUT_OF_MEMORY;
    storage->dataset = (struct ls_dataset){
        .field_count = 2, .real = true, .storage = storage, .close = storage_close};
    enum ls_status status = find_files(family, spec, split, &files);
    if (!status)
        status = read_files(family, label, &files, storage);
    storage->dataset.count = files.total;
    free_files(&files);
    if (status) {
        storage_close(&storage->dataset);
        return status;
    }
    describe_fields(family, label, storage->dataset.fields);
    storage->dataset.fields[0].values = storage->pixels;
    storage->dataset.fields[1].values = storage->labels;
    *out = &storage->dataset;
    return LS_OK;
}

#define FILE_OPTIONS(train, test)                                                                  \
    {"dir", "text", NULL, "folder of the binary version's files"},                                 \
        {"train", "text", train, "training files, as FILE+FILE; without a slash they are in dir"}, \
    {                                                                                              \
        "test", "text", test, "test files, likewise"                                               \
    }

static const struct ls_plugin_option cifar10_options[] = {
    FILE_OPTIONS("data_batch_1.bin to data_batch_5.bin", "test_batch.bin"),
    {0},
};
static const struct ls_plugin_option cifar100_options[] = {
    FILE_OPTIONS("train.bin", "test.bin"),
    {"labels", "one of: fine, coarse", "fine", "100 classes, or their 20 groups"},
    {0},
};

const struct ls_dataset_kind ls_dataset_cifar10 = {
    .name = "cifar10",
    .summary = "50,000 colour pictures, 32 x 32, 10 classes; 10,000 for the test",
    .options = cifar10_options,
    .open = family_open,
    .describe = family_describe,
};

const struct ls_dataset_kind ls_dataset_cifar100 = {
    .name = "cifar100",
    .summary = "50,000 colour pictures, 32 x 32, 100 classes; 10,000 for the test",
    .options = cifar100_options,
    .open = family_open,
    .describe = family_describe,
};
