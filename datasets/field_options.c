// SPDX-License-Identifier: Apache-2.0
// Options and limits that several readers share.
#include "datasets/field_options.h"

#include "core/base/log.h"
#include "datasets/image.h"

#include <stdlib.h>
#include <string.h>

#define MOST_EXPANSION 200 // of a gzip file; tables and images have 2 to 20
#define SMALL_BYTES (UINT64_C(16) << 20) // that may come of anything

enum ls_status ls_read_image_options(const char *scope, const struct ls_spec *spec, int64_t *rows,
                                     int64_t *columns, int64_t *channels, float *divisor)
{
    const char *resize = ls_spec_get(spec, "resize");
    const char *given = ls_spec_get(spec, "channels");
    const char *divided = ls_spec_get(spec, "divisor");
    double number = *divisor;
    if (resize && !ls_image_parse_size(resize, rows, columns)) {
        ls_error(scope, "resize=%s: expected HEIGHTxWIDTH, as resize=180x180; at most 65535",
                 resize);
        return LS_USAGE;
    }
    if (given)
        *channels = given[0] == '1' ? 1 : 3;
    if (divided && (!ls_parse_number(divided, &number) || !((float)number > 0))) {
        ls_error(scope, "divisor=%s: expected a number above 0, as 255 or 1", divided);
        return LS_USAGE;
    }
    *divisor = (float)number;
    return LS_OK;
}

bool ls_is_one_file(const struct ls_spec *spec)
{
    return !ls_spec_get(spec, "test");
}

enum ls_status ls_split_file(const char *scope, const struct ls_spec *spec, enum ls_split split,
                             bool list, const char **out)
{
    const char *(*const get)(const struct ls_spec *, const char *) =
        list ? ls_spec_list : ls_spec_get;
    const char *file = get(spec, "file"), *train = get(spec, "train"), *test = get(spec, "test");
    if (file ? train || test : !train || !test) {
        ls_error(scope, "expected %s:file=FILE, or %s:train=FILE,test=FILE", scope, scope);
        return LS_USAGE;
    }
    *out = file ? file : split == LS_TEST ? test : train;
    return LS_OK;
}

enum ls_status ls_check_expansion(const char *scope, const char *path,
                                  const struct ls_source *source, uint64_t read)
{
    if (!ls_source_is_gzip(source) || read <= SMALL_BYTES ||
        read / MOST_EXPANSION <= ls_source_file_bytes(source))
        return LS_OK;
    ls_error(scope, "%s: becomes more than %d times as large when it is unpacked; unpack it first",
             path, MOST_EXPANSION);
    return LS_BAD_INPUT;
}

enum ls_status ls_bytes_add(struct ls_bytes *bytes, const void *data, size_t count)
{
    if (count > bytes->room - bytes->used) {
        size_t room = bytes->room ? bytes->room : 256;
        while (room - bytes->used < count && room <= SIZE_MAX / 2)
            room *= 2;
        char *memory = room - bytes->used < count ? NULL : realloc(bytes->data, room);
        if (!memory)
            return LS_OUT_OF_MEMORY;
        bytes->data = memory;
        bytes->room = room;
    }
    if (count)
        memcpy(bytes->data + bytes->used, data, count);
    bytes->used += count;
    return LS_OK;
}
