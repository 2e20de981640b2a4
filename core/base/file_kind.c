// SPDX-License-Identifier: Apache-2.0
// Formats that users of Keras, NumPy and PyTorch have at hand.
#include "core/base/file_kind.h"

#include <string.h>

static const struct {
    const char *magic;
    size_t bytes;
    const char *kind;
} kinds[] = {
    {"PK\3\4", 4, "a ZIP archive, as .keras, .npz and PyTorch's .pt are"},
    {"PK\5\6", 4, "an empty ZIP archive"},
    {"\x89HDF\r\n\x1a\n", 8, "an HDF5 file, as .h5 and .weights.h5 are"},
    {"\x93NUMPY", 6, "a NumPy array (.npy)"},
    {"\x1f\x8b", 2, "compressed with gzip"},
    {"\x80\2", 2, "a Python pickle, as old .pt and .ckpt files are"},
    {"\x80\3", 2, "a Python pickle"},
    {"\x80\4", 2, "a Python pickle"},
    {"\x80\5", 2, "a Python pickle"},
    {"\xff\xfe", 2, "a text in UTF-16 (save it as UTF-8)"},
    {"\xfe\xff", 2, "a text in UTF-16 (save it as UTF-8)"},
    {"version https://", 16, "a Git LFS pointer; the file itself was not fetched (git lfs pull)"},
};

// Eight bytes with the size of a header, of which the upper ones are zero, and the JSON of that
// header.
static bool is_safetensors(const unsigned char *start, size_t bytes)
{
    return bytes > 8 && start[8] == '{' && !start[4] && !start[5] && !start[6] && !start[7];
}

bool ls_file_is_keras(const void *start, size_t bytes)
{
    return !is_safetensors(start, bytes) &&
           ((bytes >= 4 && memcmp(start, "PK\3\4", 4) == 0) ||
            (bytes >= 8 && memcmp(start, "\x89HDF\r\n\x1a\n", 8) == 0));
}

const char *ls_file_kind(const void *start, size_t bytes)
{
    const unsigned char *letter = start;
    if (is_safetensors(letter, bytes))
        return "a safetensors file";
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (bytes >= kinds[i].bytes && memcmp(start, kinds[i].magic, kinds[i].bytes) == 0)
            return kinds[i].kind;
    if (bytes >= 3 && memcmp(letter, "\xef\xbb\xbf", 3) == 0) // a byte order mark
        letter += 3, bytes -= 3;
    while (bytes > 0 && (*letter == ' ' || *letter == '\t' || *letter == '\r' || *letter == '\n'))
        letter++, bytes--;
    return bytes > 0 && *letter == '{' ? "JSON" : NULL;
}
