// SPDX-License-Identifier: Apache-2.0
// Predictions as NumPy's .npy or as text.
#include "core/report/predictions_file.h"

#include "core/base/log.h"
#include "core/report/report.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define SCOPE "--out"

static bool ends_with(const char *text, const char *suffix)
{
    const size_t length = strlen(text), rest = strlen(suffix);
    return length > rest && strcmp(text + length - rest, suffix) == 0;
}

// What the system said of a write that failed.
static enum ls_status failed(const struct ls_predictions_file *file)
{
    ls_error(SCOPE, "cannot write '%s': %s", file->file.path, strerror(errno));
    return LS_FAILED;
}

// Version 1.0: magic, the length of the header, the header as a Python literal, padded with blanks to
// a multiple of 64 bytes and ended by a newline. Values follow, little-endian as this machine's.
static bool write_header(FILE *out, uint64_t rows, const int64_t *dims, uint32_t ndims)
{
    char header[512] = "";
    size_t used =
        (size_t)snprintf(header, sizeof(header),
                         "{'descr': '<f4', 'fortran_order': False, 'shape': (%" PRIu64 ",", rows);
    for (uint32_t i = 0; i < ndims; i++)
        used += (size_t)snprintf(header + used, sizeof(header) - used, "%s%" PRId64, i ? ", " : " ",
                                 dims[i]);
    used += (size_t)snprintf(header + used, sizeof(header) - used, "), }");
    const size_t length = (10 + used + 1 + 63) / 64 * 64 - 10;
    const unsigned char start[10] = {0x93,
                                     'N',
                                     'U',
                                     'M',
                                     'P',
                                     'Y',
                                     1,
                                     0,
                                     (unsigned char)(length & 0xff),
                                     (unsigned char)(length >> 8)};
    return fwrite(start, 1, sizeof(start), out) == sizeof(start) &&
           fprintf(out, "%s%*s\n", header, (int)(length - used - 1), "") == (int)length;
}

enum ls_status ls_predictions_file_open(const char *path, uint64_t rows, const int64_t *dims,
                                        uint32_t ndims, struct ls_predictions_file *out)
{
    struct ls_predictions_file file = {.csv = ends_with(path, ".csv"), .elements = 1};
    for (uint32_t i = 0; i < ndims; i++)
        file.elements *= (uint64_t)dims[i];
    if (!file.csv && !ends_with(path, ".npy")) {
        ls_error(SCOPE, "'%s': expected the name of a file that ends in .npy or .csv", path);
        return LS_USAGE;
    }
    enum ls_status status = ls_report_check_path(SCOPE, path);
    if (status == LS_BAD_INPUT) // it is no input
        status = LS_FAILED;
    if (!status)
        status = ls_whole_file_open(SCOPE, path, &file.file);
    if (!status && !file.csv && !write_header(file.file.stream, rows, dims, ndims))
        status = failed(&file);
    if (status)
        ls_predictions_file_discard(&file);
    else
        *out = file;
    return status;
}

// Quoted where it has to be (RFC 4180).
static void write_text(FILE *out, const char *text)
{
    if (!strpbrk(text, ",\"\r\n")) {
        fputs(text, out);
        return;
    }
    fputc('"', out);
    for (; *text; text++)
        fputs(*text == '"' ? "\"\"" : (char[]){*text, '\0'}, out);
    fputc('"', out);
}

enum ls_status ls_predictions_file_begin(struct ls_predictions_file *file,
                                         const struct ls_predictions_columns *columns)
{
    FILE *out = file->file.stream;
    file->columns = *columns;
    if (!file->csv)
        return LS_OK;
    if (columns->name)
        fputs("file,", out);
    for (uint64_t i = 0; i < file->elements; i++) {
        if (i)
            fputc(',', out);
        if (i < columns->class_count)
            write_text(out, columns->classes[i]);
        else
            fprintf(out, "output_%" PRIu64, i);
    }
    if (columns->class_count)
        fputs(",class", out);
    fputc('\n', out);
    return ferror(out) ? failed(file) : LS_OK;
}

static uint64_t largest(const float *values, uint64_t count)
{
    uint64_t best = 0;
    for (uint64_t i = 1; i < count; i++)
        best = values[i] > values[best] ? i : best;
    return best;
}

// Nine digits bring a float32 back to the bit.
static bool write_line(struct ls_predictions_file *file, const float *values)
{
    const struct ls_predictions_columns *columns = &file->columns;
    FILE *out = file->file.stream;
    const uint64_t row = file->row++;
    if (columns->name) {
        write_text(out, columns->name(columns->context, row));
        fputc(',', out);
    }
    for (uint64_t i = 0; i < file->elements; i++)
        if (fprintf(out, "%s%.9g", i ? "," : "", (double)values[i]) < 0)
            return false;
    if (columns->class_count) {
        fputc(',', out);
        write_text(out, columns->classes[largest(values, columns->class_count)]);
    }
    return fputc('\n', out) != EOF && !ferror(out);
}

enum ls_status ls_predictions_file_write(struct ls_predictions_file *file, const float *values,
                                         uint64_t rows)
{
    FILE *out = file->file.stream;
    bool good = true;
    if (!file->csv)
        good = fwrite(values, file->elements * sizeof(*values), rows, out) == rows;
    for (uint64_t i = 0; file->csv && good && i < rows; i++)
        good = write_line(file, values + i * file->elements);
    return good && fflush(out) == 0 ? LS_OK : failed(file);
}

enum ls_status ls_predictions_file_commit(struct ls_predictions_file *file)
{
    return ls_whole_file_commit(&file->file);
}

void ls_predictions_file_discard(struct ls_predictions_file *file)
{
    ls_whole_file_discard(&file->file);
}
