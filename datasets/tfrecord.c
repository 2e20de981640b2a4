// SPDX-License-Identifier: Apache-2.0
// tfrecord: files of TensorFlow with a tf.train.Example in each record. Features become fields by
// name. All records are read when the set is opened; features that hold JPEG or PNG files stay as they
// are, and are decoded when their batch is made.
#include "datasets/datasets.h"

#include "core/base/hash.h"
#include "core/base/log.h"
#include "core/data/arrays.h"
#include "datasets/field_options.h"
#include "datasets/image.h"
#include "datasets/tfrecord_example.h"

#include <glob.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SCOPE "tfrecord"
#define MOST_RECORD_BYTES (UINT64_C(1) << 30)
#define PIECE_BYTES (1u << 20) // that a record is read in, so that a length alone takes no memory
#define FIELDS 9

static const struct ls_plugin_option options[] = {
    {"x", "text", NULL, "feature that the model's first input reads"},
    {"x2", "text", NULL, "feature of its second input"},
    {"x3", "text", NULL, "feature of its third input; and so on"},
    {"x4", "text", NULL, NULL},
    {"x5", "text", NULL, NULL},
    {"x6", "text", NULL, NULL},
    {"x7", "text", NULL, NULL},
    {"x8", "text", NULL, NULL},
    {"y", "text", NULL, "feature with the targets: classes from 0, or numbers"},
    {"file", "text", NULL, "files, as FILE+FILE or with * and ?, plain or gzipped"},
    {"train", "text", NULL, "instead of file: files of training examples"},
    {"test", "text", NULL, "and those of test examples"},
    {"shape", "text", "one dimension", "of an example of x, as 28x28x1; not for JPEG and PNG"},
    LS_IMAGE_OPTIONS("255 for JPEG and PNG, else 1"),
    {0},
};

// What becomes of a feature.
struct column {
    const char *feature; // its name
    struct ls_field field;
    enum ls_feature_kind kind;
    bool image; // JPEG or PNG
    struct ls_bytes data; // values as stored, or images one after the other
    struct ls_bytes ends; // of images: uint64, where each ends in `data`
};

struct storage {
    struct ls_dataset dataset;
    struct column columns[FIELDS];
    int64_t rows, columns_wide, channels; // of images; rows 0: as the first
    bool resize;
};

// What is read, for messages.
struct place {
    const char *path;
    uint64_t record; // of the file, from 1
};

static enum ls_status fail(const struct place *place, const char *what)
{
    ls_error(SCOPE, "%s: record %" PRIu64 ": %s", place->path, place->record, what);
    return LS_BAD_INPUT;
}

static enum ls_status fail_feature(const struct place *place, const struct column *column,
                                   const char *what)
{
    ls_error(SCOPE, "%s: record %" PRIu64 ": feature '%s' %s", place->path, place->record,
             column->feature, what);
    return LS_BAD_INPUT;
}

// ---- Values ----

static const char *kind_name(enum ls_feature_kind kind)
{
    static const char *const names[] = {"is empty", "has bytes", "has floats", "has integers"};
    return names[kind];
}

static enum ls_status missing_feature(const struct place *place, const struct column *column,
                                      const struct ls_bytes *record)
{
    char names[256];
    ls_example_names((const uint8_t *)record->data, record->used, names, sizeof(names));
    ls_error(SCOPE, "%s: record %" PRIu64 ": there is no feature '%s'; there are: %s", place->path,
             place->record, column->feature, names);
    return LS_BAD_INPUT;
}

// The type and the number of values, by the first record.
static enum ls_status describe_column(struct storage *storage, const struct place *place,
                                      struct column *column, const struct ls_feature *feature,
                                      uint64_t count)
{
    struct ls_field *field = &column->field;
    const uint8_t *data = NULL;
    size_t bytes = 0;
    column->kind = feature->kind;
    field->dtype = feature->kind == LS_FEATURE_FLOATS     ? LS_F32
                   : feature->kind == LS_FEATURE_INTEGERS ? LS_I32
                                                          : LS_U8;
    if (feature->kind == LS_FEATURE_BYTES) {
        ls_feature_get_bytes(feature, &data, &bytes);
        column->image = field->role == LS_FIELD_INPUT && ls_image_is_known(data, bytes);
        count = bytes;
    }
    if (count == 0 || count > INT32_MAX)
        return fail_feature(place, column, count ? "has too many values" : "has no values");
    if (field->role == LS_FIELD_TARGET && feature->kind == LS_FEATURE_BYTES)
        return fail_feature(place, column, "has bytes; a target must have integers or floats");
    field->ndims = field->role == LS_FIELD_INPUT || count > 1;
    field->dims[0] = (int64_t)count;
    if (!column->image)
        return LS_OK;
    if (!storage->rows) {
        char name[256];
        snprintf(name, sizeof(name), "%s: record %" PRIu64, place->path, place->record);
        const struct ls_image_file file = {SCOPE, name, data, bytes};
        const enum ls_status status = ls_image_size(&file, &storage->rows, &storage->columns_wide);
        if (status)
            return status;
    }
    field->ndims = 3;
    field->dims[0] = storage->rows;
    field->dims[1] = storage->columns_wide;
    field->dims[2] = storage->channels;
    return LS_OK;
}

static enum ls_status add_integers(const struct place *place, struct column *column,
                                   const struct ls_feature *feature, uint64_t count)
{
    int64_t *values = malloc(count * sizeof(*values));
    enum ls_status status = values ? LS_OK : LS_OUT_OF_MEMORY;
    if (values)
        ls_feature_get_integers(feature, values);
    for (uint64_t i = 0; !status && i < count; i++) {
        const int32_t value = (int32_t)values[i];
        status = value == values[i]
                     ? ls_bytes_add(&column->data, &value, sizeof(value))
                     : fail_feature(place, column, "has a value that no int32 holds");
    }
    free(values);
    return status;
}

static enum ls_status add_floats(struct column *column, const struct ls_feature *feature,
                                 uint64_t count)
{
    float *values = malloc(count * sizeof(*values));
    enum ls_status status = LS_OUT_OF_MEMORY;
    if (values) {
        ls_feature_get_floats(feature, values);
        status = ls_bytes_add(&column->data, values, count * sizeof(*values));
    }
    free(values);
    return status;
}

static enum ls_status add_bytes(const struct place *place, struct column *column,
                                const struct ls_feature *feature)
{
    const uint8_t *data = NULL;
    size_t bytes = 0;
    ls_feature_get_bytes(feature, &data, &bytes);
    if (column->image) {
        enum ls_status status = ls_bytes_add(&column->data, data, bytes);
        const uint64_t end = column->data.used;
        return status ? status : ls_bytes_add(&column->ends, &end, sizeof(end));
    }
    if (bytes != ls_field_elements(&column->field))
        return fail_feature(place, column, "has another number of bytes than in the first record");
    return ls_bytes_add(&column->data, data, bytes);
}

static enum ls_status add_feature(struct storage *storage, const struct place *place,
                                  const struct ls_bytes *record, struct column *column)
{
    struct ls_feature feature;
    bool found;
    uint64_t count;
    if (!ls_example_find((const uint8_t *)record->data, record->used, column->feature, &found,
                         &feature))
        return fail(place, "is no tf.train.Example");
    if (!found)
        return missing_feature(place, column, record);
    if (!ls_feature_count(&feature, &count))
        return fail_feature(place, column, "is damaged");
    if (feature.kind == LS_FEATURE_BYTES && count != 1)
        return fail_feature(place, column, "must have one string of bytes in each record");
    const bool first = column->kind == LS_FEATURE_EMPTY;
    enum ls_status status = LS_OK;
    if (first)
        status = describe_column(storage, place, column, &feature, count);
    if (status)
        return status;
    if (feature.kind != column->kind) {
        ls_error(SCOPE, "%s: record %" PRIu64 ": feature '%s' %s; in the first record it %s",
                 place->path, place->record, column->feature, kind_name(feature.kind),
                 kind_name(column->kind));
        return LS_BAD_INPUT;
    }
    if (feature.kind == LS_FEATURE_BYTES)
        return add_bytes(place, column, &feature);
    if (count != ls_field_elements(&column->field)) {
        ls_error(SCOPE,
                 "%s: record %" PRIu64 ": feature '%s' has %" PRIu64 " values, but %" PRIu64
                 " in the first record",
                 place->path, place->record, column->feature, count,
                 ls_field_elements(&column->field));
        return LS_BAD_INPUT;
    }
    return feature.kind == LS_FEATURE_INTEGERS ? add_integers(place, column, &feature, count)
                                               : add_floats(column, &feature, count);
}

// ---- Records: length, its check sum, data, its check sum ----

struct record_reader {
    struct ls_source *source;
    struct place place;
    struct ls_bytes data;
    uint64_t read; // bytes of the file
};

static uint64_t little_endian(const uint8_t *data, unsigned bytes)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < bytes; i++)
        value |= (uint64_t)data[i] << (8 * i);
    return value;
}

static enum ls_status read_bytes(struct record_reader *reader, void *to, size_t bytes, size_t *got)
{
    enum ls_status status = ls_source_read(reader->source, to, bytes, got);
    if (status)
        return status;
    reader->read += *got;
    return ls_check_expansion(SCOPE, reader->place.path, reader->source, reader->read);
}

// `length` bytes into `data`.
static enum ls_status read_data(struct record_reader *reader, uint64_t length)
{
    reader->data.used = 0;
    char *piece = malloc(length < PIECE_BYTES ? (size_t)length + 1 : PIECE_BYTES);
    enum ls_status status = piece ? LS_OK : LS_OUT_OF_MEMORY;
    while (!status && reader->data.used < length) {
        const uint64_t rest = length - reader->data.used;
        const size_t bytes = rest < PIECE_BYTES ? (size_t)rest : PIECE_BYTES;
        size_t got = 0;
        status = read_bytes(reader, piece, bytes, &got);
        if (!status && got < bytes)
            status = fail(&reader->place, "is cut off; the file is not complete");
        if (!status)
            status = ls_bytes_add(&reader->data, piece, got);
    }
    free(piece);
    return status;
}

// The next record; `there` is false at the end of the file.
static enum ls_status read_record(struct record_reader *reader, bool *there)
{
    uint8_t head[12], sum[4];
    size_t got = 0;
    reader->place.record++;
    enum ls_status status = read_bytes(reader, head, sizeof(head), &got);
    *there = got > 0;
    if (status || !got)
        return status;
    if (got < sizeof(head))
        return fail(&reader->place, "is cut off; the file is not complete");
    const uint64_t length = little_endian(head, 8);
    if (ls_masked_crc32c(head, 8) != little_endian(head + 8, 4))
        return fail(&reader->place, reader->place.record == 1
                                        ? "is damaged, or the file is no TFRecord file"
                                        : "the check sum of its length is wrong");
    if (length > MOST_RECORD_BYTES || length > ls_source_most_bytes(reader->source)) {
        ls_error(SCOPE, "%s: record %" PRIu64 ": says it has %" PRIu64 " bytes; %s",
                 reader->place.path, reader->place.record, length,
                 length > MOST_RECORD_BYTES ? "at most 1 GiB can be read"
                                            : "the file is not so large");
        return LS_BAD_INPUT;
    }
    status = read_data(reader, length);
    if (!status)
        status = read_bytes(reader, sum, sizeof(sum), &got);
    if (!status && got < sizeof(sum))
        status = fail(&reader->place, "is cut off; the file is not complete");
    if (!status && ls_masked_crc32c(reader->data.data, (size_t)length) != little_endian(sum, 4))
        status = fail(&reader->place, "its check sum is wrong: the file is damaged");
    return status;
}

static enum ls_status read_file(struct storage *storage, const char *path)
{
    struct record_reader reader = {.place = {.path = path}};
    bool there = true;
    enum ls_status status = ls_source_open(SCOPE, path, &reader.source);
    while (!status && there) {
        status = read_record(&reader, &there);
        for (int i = 0; !status && there && i < FIELDS; i++)
            if (storage->columns[i].feature)
                status = add_feature(storage, &reader.place, &reader.data, &storage->columns[i]);
        if (!status && there && ++storage->dataset.count >= UINT32_MAX)
            status = fail(&reader.place, "more than 4,294,967,294 records");
    }
    ls_source_close(reader.source);
    free(reader.data.data);
    return status;
}

// FILE+FILE, each of which may be a pattern, if none is called so.
static enum ls_status read_files(struct storage *storage, const char *all)
{
    enum ls_status status = LS_OK;
    for (const char *files = all; files && !status;) {
        bool pattern;
        char *path = ls_list_take_file(NULL, &files, &pattern);
        glob_t found = {0};
        if (!path)
            return LS_OUT_OF_MEMORY;
        if (pattern && glob(path, 0, NULL, &found) != 0) {
            ls_error(SCOPE, "%s: no file is called like this", path);
            status = LS_BAD_INPUT;
        }
        for (size_t i = 0; !status && i < found.gl_pathc; i++)
            status = read_file(storage, found.gl_pathv[i]);
        if (!status && !pattern)
            status = read_file(storage, path);
        globfree(&found);
        free(path);
    }
    if (!status && !storage->dataset.count) {
        ls_error(SCOPE, "%s: there are no records", all);
        status = LS_BAD_INPUT;
    }
    return status;
}

// ---- Dataset ----

static void find_image(const struct column *from, uint64_t example, uint64_t ends[static 2])
{
    memcpy(example ? ends : ends + 1, from->ends.data + (example ? example - 1 : 0) * sizeof(*ends),
           example ? 2 * sizeof(*ends) : sizeof(*ends));
}

static enum ls_status tfrecord_load(const struct ls_dataset *dataset, uint64_t epoch,
                                    uint64_t first, uint64_t count, void *const *fields)
{
    const struct storage *storage = dataset->storage;
    enum ls_status status = LS_OK;
    (void)epoch, (void)count; // 1
    for (uint32_t i = 0, column = 0; !status && i < storage->dataset.field_count; i++, column++) {
        while (!storage->columns[column].feature)
            column++;
        const struct column *from = &storage->columns[column];
        uint64_t ends[2] = {0, 0}; // of the image before, and of this one
        char name[96];
        if (!from->image)
            continue;
        find_image(from, first, ends);
        snprintf(name, sizeof(name), "record %" PRIu64 " of all files, feature '%.40s'", first + 1,
                 from->feature);
        const struct ls_image_file file = {SCOPE, name, (const uint8_t *)from->data.data + ends[0],
                                           ends[1] - ends[0]};
        status = ls_image_read(&file, from->field.dims[0], from->field.dims[1], from->field.dims[2],
                               storage->resize, fields[i]);
    }
    return status;
}

// The records are in memory.
static enum ls_status tfrecord_identify(const struct ls_dataset *dataset, uint64_t example,
                                        bool whole, struct ls_hash *hash)
{
    const struct storage *storage = dataset->storage;
    (void)whole;
    for (int i = 0; i < FIELDS; i++) {
        const struct column *from = &storage->columns[i];
        uint64_t ends[2] = {0, 0}; // of the image before, and of this one
        if (!from->image)
            continue;
        find_image(from, example, ends);
        const uint64_t bytes = ends[1] - ends[0];
        ls_hash_add(hash, &bytes, sizeof(bytes));
        ls_hash_add(hash, (const char *)from->data.data + ends[0], (size_t)bytes);
    }
    return LS_OK;
}

// "28x28x1"
static enum ls_status reshape(const char *text, struct ls_field *field)
{
    struct ls_field shaped = *field;
    uint64_t elements = 1;
    const char *rest = text;
    bool ended = false;
    for (shaped.ndims = 0; shaped.ndims < LS_MAX_DIMS; rest++) {
        char number[16] = "";
        int64_t dim;
        const size_t length = strcspn(rest, "x");
        if (length >= sizeof(number))
            break;
        memcpy(number, rest, length);
        if (!ls_parse_integer(number, &dim) || dim < 1 || dim > INT32_MAX ||
            elements > UINT32_MAX / (uint64_t)dim)
            break;
        shaped.dims[shaped.ndims++] = dim;
        elements *= (uint64_t)dim;
        rest += length;
        ended = !*rest;
        if (ended)
            break;
    }
    if (!ended || elements != ls_field_elements(field)) {
        ls_error(SCOPE,
                 "shape=%s: expected dimensions, as 28x28x1, of the %" PRIu64
                 " values that the feature has in each record",
                 text, ls_field_elements(field));
        return LS_USAGE;
    }
    *field = shaped;
    return LS_OK;
}

// The fields of the dataset, when all records are read.
static enum ls_status make_fields(const struct ls_spec *spec, struct storage *storage)
{
    struct ls_dataset *dataset = &storage->dataset;
    const char *shape = ls_spec_get(spec, "shape");
    enum ls_status status = LS_OK;
    if (shape && storage->columns[0].image) {
        ls_error(SCOPE, "shape is not for JPEG and PNG images; resize=HEIGHTxWIDTH resizes them");
        return LS_USAGE;
    }
    if (shape)
        status = reshape(shape, &storage->columns[0].field);
    for (int i = 0; !status && i < FIELDS; i++) {
        struct column *column = &storage->columns[i];
        struct ls_field *field = &column->field;
        if (!column->feature)
            continue;
        const char *divisor = ls_spec_get(spec, "divisor");
        if (column->image && !divisor)
            field->divisor = 255;
        field->stride = ls_field_elements(field) * ls_dtype_bytes(field->dtype);
        if (column->image) {
            dataset->load = tfrecord_load;
            dataset->identify = tfrecord_identify;
        } else {
            field->values = column->data.data;
        }
        if (field->role == LS_FIELD_TARGET) {
            field->divisor = 1;
            ls_array_count_classes(field, dataset->count);
        }
        dataset->fields[dataset->field_count++] = *field;
    }
    return status;
}

// Inputs come first, in their order; x is there, and none is left out before another.
static enum ls_status begin_columns(const struct ls_spec *spec, struct storage *storage)
{
    float divisor = 1;
    enum ls_status status = ls_read_image_options(
        SCOPE, spec, &storage->rows, &storage->columns_wide, &storage->channels, &divisor);
    bool ended = false;
    storage->resize = storage->rows > 0;
    for (int i = 0; !status && i < FIELDS; i++) {
        struct column *column = &storage->columns[i];
        const bool target = i == FIELDS - 1;
        column->feature = ls_spec_get(spec, options[i].name);
        column->field = (struct ls_field){.role = target ? LS_FIELD_TARGET : LS_FIELD_INPUT,
                                          .divisor = divisor};
        snprintf(column->field.name, sizeof(column->field.name), "%s", options[i].name);
        if (!target && (i == 0 ? !column->feature : column->feature && ended)) {
            ls_error(SCOPE, "%s is missing; expected tfrecord:file=FILE,x=FEATURE[,y=FEATURE]",
                     i ? options[i - 1].name : "x");
            status = LS_USAGE;
        }
        ended = !column->feature;
    }
    return status;
}

static void storage_close(struct ls_dataset *dataset)
{
    struct storage *storage = dataset->storage;
    for (int i = 0; i < FIELDS; i++) {
        free(storage->columns[i].data.data);
        free(storage->columns[i].ends.data);
    }
    free(storage);
}

// So that a cache of other files is noticed.
static enum ls_status identify(struct storage *storage)
{
    struct ls_hash *hash = ls_hash_create();
    if (!hash)
        return LS_OUT_OF_MEMORY;
    for (int i = 0; i < FIELDS; i++)
        if (storage->columns[i].image)
            ls_hash_add(hash, storage->columns[i].data.data, storage->columns[i].data.used);
    storage->dataset.identity = ls_hash_get(hash);
    ls_hash_destroy(hash);
    return LS_OK;
}

static enum ls_status tfrecord_open(const struct ls_spec *spec, enum ls_split split,
                                    struct ls_dataset **out)
{
    const char *files = NULL;
    struct storage *storage = calloc(1, sizeof(*storage));
    if (!storage)
        return LS_OUT_OF_MEMORY;
    storage->channels = 3;
    storage->dataset =
        (struct ls_dataset){.real = true, .storage = storage, .close = storage_close};
    enum ls_status status = ls_split_file(SCOPE, spec, split, true, &files);
    if (!status)
        status = begin_columns(spec, storage);
    if (!status)
        status = read_files(storage, files);
    if (!status)
        status = make_fields(spec, storage);
    if (!status && ls_spec_get(spec, "cache"))
        status = identify(storage);
    for (int i = 0; i < FIELDS; i++)
        storage->columns[i].feature = storage->columns[i].feature ? options[i].name : NULL;
    if (status)
        storage_close(&storage->dataset);
    else
        *out = &storage->dataset;
    return status;
}

const struct ls_dataset_kind ls_dataset_tfrecord = {
    .name = "tfrecord",
    .summary = "files of TensorFlow with tf.train.Example: file=FILE,x=FEATURE,y=FEATURE",
    .options = options,
    .is_one_split = ls_is_one_file,
    .open = tfrecord_open,
    // How many examples and classes there are takes all of it: no describe.
};
