// SPDX-License-Identifier: Apache-2.0
// A file of predictions, written row by row: .npy or .csv, by its name. [main thread]
#ifndef LS_REPORT_PREDICTIONS_FILE_H
#define LS_REPORT_PREDICTIONS_FILE_H

#include "core/report/whole_file.h"

#include <stdbool.h>
#include <stdint.h>

// The columns of a .csv file beside the values.
struct ls_predictions_columns {
    const char *const *classes; // names of the first values; with them there is a column "class"
    uint32_t class_count; // 0: no names; the values are output_0, output_1, ...
    // The text of row `row` in the first column, "file"; NULL: there is no such column.
    const char *(*name)(const void *context, uint64_t row);
    const void *context;
};

struct ls_predictions_file {
    struct ls_whole_file file;
    struct ls_predictions_columns columns;
    uint64_t row; // the next
    uint64_t elements; // of a row
    bool csv;
};

// `rows` rows of shape `dims`. LS_USAGE for a name that ends in neither; LS_FAILED when it cannot be
// written; both logged.
LS_STATUS ls_predictions_file_open(const char *path, uint64_t rows, const int64_t *dims,
                                   uint32_t ndims, struct ls_predictions_file *out);
// The heading of a .csv file, before its rows; nothing in a .npy file. Texts are borrowed.
LS_STATUS ls_predictions_file_begin(struct ls_predictions_file *file,
                                    const struct ls_predictions_columns *columns);
// The next rows. LS_FAILED, logged.
LS_STATUS ls_predictions_file_write(struct ls_predictions_file *file, const float *values,
                                    uint64_t rows);
LS_STATUS ls_predictions_file_commit(struct ls_predictions_file *file); // all rows are written
void ls_predictions_file_discard(
    struct ls_predictions_file *file); // takes a zeroed or committed one

#endif
