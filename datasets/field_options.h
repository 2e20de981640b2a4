// SPDX-License-Identifier: Apache-2.0
// Options and limits that several readers share.
#ifndef LS_DATASETS_FIELD_OPTIONS_H
#define LS_DATASETS_FIELD_OPTIONS_H

#include "core/base/options.h"
#include "core/data/dataset.h"
#include "datasets/source.h"

#define LS_IMAGE_OPTIONS(divisor)                                                              \
    {"resize", "text", NULL,                                                                   \
     "HEIGHTxWIDTH, bilinear without antialiasing; without it all images must have one size"}, \
        {"channels", "one of: 1, 3", "3", "3: colours, 1: grey"},                              \
    {                                                                                          \
        "divisor", "number", divisor, "what values are divided by"                             \
    }

// resize=, channels= and divisor=; what is not given stays. LS_USAGE, logged.
LS_STATUS ls_read_image_options(const char *scope, const struct ls_spec *spec, int64_t *rows,
                                int64_t *columns, int64_t *channels, float *divisor);

// file= is one split, train= and test= are two. `list`: as ls_spec_list. LS_USAGE, logged, where
// neither is given, or both.
bool ls_is_one_file(const struct ls_spec *spec);
LS_STATUS ls_split_file(const char *scope, const struct ls_spec *spec, enum ls_split split,
                        bool list, const char **out);

// Of a compressed file, whose size says nothing about what comes out: LS_BAD_INPUT, logged, when
// `read` bytes did and that is far more than data has ever been compressed.
LS_STATUS ls_check_expansion(const char *scope, const char *path, const struct ls_source *source,
                             uint64_t read);

// Memory that grows. A zeroed one is empty; free `data`.
struct ls_bytes {
    char *data;
    size_t used, room;
};
LS_STATUS ls_bytes_add(struct ls_bytes *bytes, const void *data, size_t count);

#endif
