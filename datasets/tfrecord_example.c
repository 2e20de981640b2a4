// SPDX-License-Identifier: Apache-2.0
// Messages are read in place. A message is fields, each with a number and a wire type; fields with
// other numbers than those that are known are skipped, as the format demands.
#include "datasets/tfrecord_example.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

// ---- Wire format ----

enum wire { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

struct cursor {
    const uint8_t *at, *end;
};

struct wire_field {
    uint64_t number;
    enum wire wire;
    uint64_t value; // of a varint
    const uint8_t *data; // of the others
    size_t bytes;
};

static struct cursor cursor_of(const uint8_t *data, size_t bytes)
{
    return (struct cursor){data, bytes ? data + bytes : data};
}

static bool read_varint(struct cursor *cursor, uint64_t *out)
{
    *out = 0;
    for (unsigned shift = 0; shift < 70 && cursor->at < cursor->end; shift += 7) {
        const uint8_t byte = *cursor->at++;
        if (shift < 64)
            *out |= (uint64_t)(byte & 127) << shift;
        if (byte < 128)
            return true;
    }
    return false;
}

// The next field; false: damaged.
static bool read_field(struct cursor *cursor, struct wire_field *out)
{
    uint64_t tag, length = 0;
    if (!read_varint(cursor, &tag))
        return false;
    out->number = tag >> 3;
    switch (tag & 7) {
    case WIRE_VARINT: out->wire = WIRE_VARINT; return read_varint(cursor, &out->value);
    case WIRE_64:
        out->wire = WIRE_64;
        length = 8;
        break;
    case WIRE_32:
        out->wire = WIRE_32;
        length = 4;
        break;
    case WIRE_BYTES:
        out->wire = WIRE_BYTES;
        if (!read_varint(cursor, &length))
            return false;
        break;
    default: return false;
    }
    if (length > (uint64_t)(cursor->end - cursor->at))
        return false;
    out->data = cursor->at;
    out->bytes = (size_t)length;
    cursor->at += length;
    return true;
}

// ---- tf.train.Example ----

// Example { Features features = 1 }, Features { map<string, Feature> feature = 1 }. Calls `visit` for
// each entry of the map with its key and its Feature; false: damaged, or `visit` said so.
static bool visit_features(const uint8_t *record, size_t bytes,
                           bool (*visit)(void *context, const struct wire_field *key,
                                         const struct wire_field *feature),
                           void *context)
{
    struct cursor example = cursor_of(record, bytes);
    struct wire_field features, entry, part;
    while (example.at < example.end) {
        if (!read_field(&example, &features))
            return false;
        if (features.number != 1 || features.wire != WIRE_BYTES)
            continue;
        struct cursor map = cursor_of(features.data, features.bytes);
        while (map.at < map.end) {
            if (!read_field(&map, &entry))
                return false;
            if (entry.number != 1 || entry.wire != WIRE_BYTES)
                continue;
            struct wire_field key = {0}, feature = {0}; // empty where they are missing
            struct cursor parts = cursor_of(entry.data, entry.bytes);
            while (parts.at < parts.end) {
                if (!read_field(&parts, &part))
                    return false;
                if (part.wire == WIRE_BYTES && part.number == 1)
                    key = part;
                else if (part.wire == WIRE_BYTES && part.number == 2)
                    feature = part;
            }
            if (!visit(context, &key, &feature))
                return false;
        }
    }
    return true;
}

struct search {
    const char *name;
    bool found;
    struct ls_feature feature;
};

// Feature { oneof { BytesList = 1, FloatList = 2, Int64List = 3 } }. The last entry of a name counts.
static bool match(void *context, const struct wire_field *key, const struct wire_field *feature)
{
    struct search *search = context;
    if (key->bytes != strlen(search->name) || memcmp(key->data, search->name, key->bytes) != 0)
        return true;
    search->found = true;
    search->feature = (struct ls_feature){0};
    struct cursor cursor = cursor_of(feature->data, feature->bytes);
    struct wire_field list;
    while (cursor.at < cursor.end) {
        if (!read_field(&cursor, &list))
            return false;
        if (list.wire == WIRE_BYTES && list.number >= 1 && list.number <= 3)
            search->feature =
                (struct ls_feature){(enum ls_feature_kind)list.number, list.data, list.bytes};
    }
    return true;
}

bool ls_example_find(const uint8_t *record, size_t bytes, const char *name, bool *found,
                     struct ls_feature *out)
{
    struct search search = {.name = name};
    if (!visit_features(record, bytes, match, &search))
        return false;
    *found = search.found;
    *out = search.feature;
    return true;
}

struct listing {
    char *text;
    size_t used, size;
};

static bool list_name(void *context, const struct wire_field *key, const struct wire_field *feature)
{
    struct listing *listing = context;
    (void)feature;
    if (listing->used < listing->size)
        listing->used +=
            (size_t)snprintf(listing->text + listing->used, listing->size - listing->used, "%s%.*s",
                             listing->used ? ", " : "", (int)(key->bytes < 64 ? key->bytes : 64),
                             key->bytes ? (const char *)key->data : "");
    return true;
}

void ls_example_names(const uint8_t *record, size_t bytes, char *text, size_t size)
{
    struct listing listing = {.text = text, .size = size};
    text[0] = '\0';
    visit_features(record, bytes, list_name, &listing);
}

// ---- Lists: each has values in field 1, numbers one by one or packed ----

static bool count_packed(const struct ls_feature *feature, const struct wire_field *field,
                         uint64_t *count)
{
    struct cursor packed = cursor_of(field->data, field->bytes);
    uint64_t value;
    if (feature->kind == LS_FEATURE_BYTES) {
        *count += 1;
    } else if (feature->kind == LS_FEATURE_FLOATS) {
        *count += field->bytes / sizeof(float);
        return field->bytes % sizeof(float) == 0;
    } else {
        for (; packed.at < packed.end; *count += 1)
            if (!read_varint(&packed, &value))
                return false;
    }
    return true;
}

bool ls_feature_count(const struct ls_feature *feature, uint64_t *out)
{
    struct cursor cursor = cursor_of(feature->list, feature->bytes);
    struct wire_field field = {0};
    *out = 0;
    while (cursor.at < cursor.end) {
        if (!read_field(&cursor, &field))
            return false;
        if (field.number != 1)
            continue;
        if (field.wire == WIRE_BYTES) {
            if (!count_packed(feature, &field, out))
                return false;
        } else if (field.wire == (feature->kind == LS_FEATURE_FLOATS ? WIRE_32 : WIRE_VARINT) &&
                   feature->kind != LS_FEATURE_BYTES) {
            *out += 1;
        } else {
            return false;
        }
    }
    return true;
}

void ls_feature_get_floats(const struct ls_feature *feature, float *out)
{
    struct cursor cursor = cursor_of(feature->list, feature->bytes);
    struct wire_field field = {0};
    while (cursor.at < cursor.end && read_field(&cursor, &field))
        if (field.number == 1) { // one or packed, the bytes are the same
            memcpy(out, field.data, field.bytes);
            out += field.bytes / sizeof(float);
        }
}

void ls_feature_get_integers(const struct ls_feature *feature, int64_t *out)
{
    struct cursor cursor = cursor_of(feature->list, feature->bytes);
    struct wire_field field = {0};
    uint64_t value;
    while (cursor.at < cursor.end && read_field(&cursor, &field)) {
        if (field.number != 1)
            continue;
        struct cursor packed = cursor_of(field.data, field.wire == WIRE_BYTES ? field.bytes : 0);
        if (field.wire == WIRE_VARINT)
            *out++ = (int64_t)field.value;
        while (field.wire == WIRE_BYTES && packed.at < packed.end && read_varint(&packed, &value))
            *out++ = (int64_t)value;
    }
}

void ls_feature_get_bytes(const struct ls_feature *feature, const uint8_t **out, size_t *bytes)
{
    struct cursor cursor = cursor_of(feature->list, feature->bytes);
    struct wire_field field = {0};
    while (cursor.at < cursor.end && read_field(&cursor, &field))
        if (field.number == 1 && field.wire == WIRE_BYTES) {
            *out = field.data;
            *bytes = field.bytes;
            return;
        }
}

// ---- CRC-32C, eight bytes at a time ----

#define POLYNOMIAL 0x82f63b78u // reflected
#define MASK 0xa282ead8u

static uint32_t tables[8][256];
static pthread_once_t tables_once = PTHREAD_ONCE_INIT;

static void make_tables(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? POLYNOMIAL : 0);
        tables[0][byte] = crc;
    }
    for (int i = 1; i < 8; i++)
        for (uint32_t byte = 0; byte < 256; byte++)
            tables[i][byte] = tables[i - 1][byte] >> 8 ^ tables[0][tables[i - 1][byte] & 255];
}

uint32_t ls_masked_crc32c(const void *data, size_t bytes)
{
    const uint8_t *at = data;
    uint32_t crc = UINT32_MAX;
    pthread_once(&tables_once, make_tables);
    for (; bytes >= 8; bytes -= 8, at += 8) {
        crc ^=
            (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
        crc = tables[7][crc & 255] ^ tables[6][crc >> 8 & 255] ^ tables[5][crc >> 16 & 255] ^
              tables[4][crc >> 24] ^ tables[3][at[4]] ^ tables[2][at[5]] ^ tables[1][at[6]] ^
              tables[0][at[7]];
    }
    for (; bytes; bytes--, at++)
        crc = crc >> 8 ^ tables[0][(crc ^ *at) & 255];
    crc = ~crc;
    return (crc >> 15 | crc << 17) + MASK;
}
