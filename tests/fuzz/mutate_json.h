// SPDX-License-Identifier: Apache-2.0
// Damages JSON that was parsed: values that are strange, missing, at the edges of their range, or
// from another place.
#ifndef LS_TESTS_FUZZ_MUTATE_JSON_H
#define LS_TESTS_FUZZ_MUTATE_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

static inline size_t fuzz_json_count(const json_t *json)
{
    size_t count = 1, index;
    const char *key;
    json_t *value;
    if (json_is_object(json))
        json_object_foreach((json_t *)json, key, value) count += fuzz_json_count(value);
    else
        json_array_foreach((json_t *)json, index, value) count += fuzz_json_count(value);
    return count;
}

// Where a value is: in an object under `key`, or in a list.
struct fuzz_spot {
    json_t *parent, *value;
    const char *key;
    size_t index;
};

// Value number `*left`, counted in the order of a walk that begins with the first one inside.
static inline bool fuzz_json_find(json_t *json, size_t *left, struct fuzz_spot *out)
{
    size_t index;
    const char *key;
    json_t *value;
    json_object_foreach(json, key, value)
    {
        if ((*left)-- == 0) {
            *out = (struct fuzz_spot){.parent = json, .value = value, .key = key};
            return true;
        }
        if (fuzz_json_find(value, left, out))
            return true;
    }
    json_array_foreach(json, index, value)
    {
        if ((*left)-- == 0) {
            *out = (struct fuzz_spot){.parent = json, .value = value, .index = index};
            return true;
        }
        if (fuzz_json_find(value, left, out))
            return true;
    }
    return false;
}

// Takes `value`; NULL removes what is there.
static inline void fuzz_json_put(const struct fuzz_spot *spot, json_t *value)
{
    if (spot->key && value)
        json_object_set_new(spot->parent, spot->key, value);
    else if (spot->key)
        json_object_del(spot->parent, spot->key);
    else if (value)
        json_array_set_new(spot->parent, spot->index, value);
    else
        json_array_remove(spot->parent, spot->index);
}

static inline json_t *fuzz_json_strange(uint64_t draw)
{
    static const char *const values[] = {
        "null",
        "true",
        "false",
        "0",
        "-1",
        "1",
        "2",
        "6",
        "1099511627776",
        "-9223372036854775808",
        "9223372036854775807",
        "2147483647",
        "2147483648",
        "4294967296",
        "32767",
        "1e308",
        "-1e308",
        "1e-320",
        "-0.5",
        "0.5",
        "\"\"",
        "\"ten\"",
        "\"same\"",
        "\"softmax\"",
        "\"Dense\"",
        "\"Conv2D\"",
        "\"Functional\"",
        "\"Sequential\"",
        "\"Add\"",
        "\"keras.src.ops.numpy\"",
        "\"d\"",
        "[\"d\", 0, 0]",
        "[[\"x\", 1, 0, {}]]",
        "{\"class_name\": \"__keras_tensor__\", \"config\": {\"keras_history\": [\"d\", 0, 0]}}",
        "[]",
        "{}",
        "[null]",
        "[null, 3]",
        "[1, 2]",
        "[-1, 4]",
        "[[[[]]]]",
        "{\"class_name\": \"ReLU\", \"config\": {}}",
        "{\"class_name\": \"Zeros\", \"config\": {\"seed\": null}}",
        "[2147483647, 2147483647]",
        "[null, 2147483647, 2147483647, 1]"};
    return json_loads(values[draw % (sizeof(values) / sizeof(values[0]))], JSON_DECODE_ANY, NULL);
}

// One value becomes strange, or is gone.
static inline void fuzz_json_damage(json_t *json, size_t number, uint64_t draw)
{
    struct fuzz_spot spot;
    if (fuzz_json_find(json, &number, &spot))
        fuzz_json_put(&spot, draw % 7 == 0 ? NULL : fuzz_json_strange(draw / 7));
}

#endif
