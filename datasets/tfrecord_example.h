// SPDX-License-Identifier: Apache-2.0
// The part of protocol buffers that a record of TensorFlow needs: tf.train.Example is a map from names
// to lists of bytes, floats or integers. An own reader, because libprotobuf is C++ and thirty times as
// large as what is read here; and CRC-32C, which frames the records.
#ifndef LS_DATASETS_TFRECORD_EXAMPLE_H
#define LS_DATASETS_TFRECORD_EXAMPLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ls_feature_kind { LS_FEATURE_EMPTY, LS_FEATURE_BYTES, LS_FEATURE_FLOATS, LS_FEATURE_INTEGERS };

struct ls_feature {
    enum ls_feature_kind kind;
    const uint8_t *list; // the message of the list, in the record
    size_t bytes;
};

// False: the record is no tf.train.Example. `found` says whether the feature is there.
bool ls_example_find(const uint8_t *record, size_t bytes, const char *name, bool *found,
                     struct ls_feature *out);
// The names of the features, as "image, label", cut to `size`.
void ls_example_names(const uint8_t *record, size_t bytes, char *text, size_t size);

// How many values the list has; false: damaged.
bool ls_feature_count(const struct ls_feature *feature, uint64_t *out);
// Its values; `out` has room for as many as ls_feature_count says. Of a list of that kind.
void ls_feature_get_floats(const struct ls_feature *feature, float *out);
void ls_feature_get_integers(const struct ls_feature *feature, int64_t *out);
// The first of its byte strings.
void ls_feature_get_bytes(const struct ls_feature *feature, const uint8_t **out, size_t *bytes);

// CRC-32C (Castagnoli), masked as TFRecord stores it.
uint32_t ls_masked_crc32c(const void *data, size_t bytes);

#endif
