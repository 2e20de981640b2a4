// SPDX-License-Identifier: Apache-2.0
// safetensors: what is written is read back; what is not whole and sound is refused; a write is whole or nothing.
#include "core/formats/safetensors.h"
#include "tests/core/data/capture.h"
#include "tests/support/suite.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>

// ---- Files of our own ----

// Writes length, header and data; `length` UINT64_MAX: that of the header.
static const char *put(const char *header, uint64_t length, size_t data_bytes)
{
    char file[8192] = {0};
    const size_t header_bytes = strlen(header);
    if (length == UINT64_MAX)
        length = header_bytes;
    memcpy(file, &length, 8);
    memcpy(file + 8, header, header_bytes);
    for (size_t i = 0; i < data_bytes; i++)
        file[8 + header_bytes + i] = (char)(i % 64);
    write_file("x.safetensors", file, 8 + header_bytes + data_bytes);
    return in_folder("x.safetensors");
}

static void expect_bad(const char *header, size_t data_bytes, const char *what)
{
    struct ls_safetensors *file = (void *)folder; // is not touched
    ck_assert_int_eq(ls_safetensors_open(put(header, UINT64_MAX, data_bytes), &file), LS_BAD_INPUT);
    ck_assert_ptr_eq(file, folder);
    expect_error("x.safetensors", what);
}

static struct ls_safetensors *expect_good(const char *header, size_t data_bytes)
{
    struct ls_safetensors *file;
    ck_assert_msg(ls_safetensors_open(put(header, UINT64_MAX, data_bytes), &file) == LS_OK, "%s",
                  captured);
    return file;
}

// ---- Reading ----

#define A8 "\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}"

TEST(a_plain_file_is_read)
{
    struct ls_safetensors *file = expect_good("{" A8 "}   \n", 8);
    ck_assert_uint_eq(ls_safetensors_count(file), 1);
    const struct ls_saved_tensor *tensor = ls_safetensors_get(file, 0);
    ck_assert_str_eq(tensor->name, "a");
    ck_assert_uint_eq(tensor->ndims, 1);
    ck_assert_int_eq(tensor->dims[0], 2);
    const uint8_t bytes[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    ck_assert_mem_eq(tensor->data, bytes, 8);
    ck_assert_ptr_eq(ls_safetensors_find(file, "a"), tensor);
    ck_assert_ptr_null(ls_safetensors_find(file, "b"));
    ck_assert_ptr_null(ls_safetensors_get(file, 1));
    ls_safetensors_close(file);
    ls_safetensors_close(NULL);
}

TEST(tensors_may_be_listed_in_any_order)
{
    struct ls_safetensors *file =
        expect_good("{\"z\":{\"data_offsets\":[8,12],\"shape\":[],\"dtype\":\"F32\"}," A8 "}", 12);
    ck_assert_str_eq(ls_safetensors_get(file, 0)->name, "a");
    ck_assert_str_eq(ls_safetensors_get(file, 1)->name, "z");
    ck_assert_uint_eq(ls_safetensors_get(file, 1)->ndims, 0);
    ck_assert_mem_eq(ls_safetensors_get(file, 1)->data, "\x08\x09\x0a\x0b", 4);
    ls_safetensors_close(file);
}

TEST(metadata_is_allowed)
{
    struct ls_safetensors *file = expect_good("{\"__metadata__\":{\"format\":\"pt\"}," A8 "}", 8);
    ck_assert_uint_eq(ls_safetensors_count(file), 1);
    ls_safetensors_close(file);
    expect_bad("{\"__metadata__\":{\"format\":3}," A8 "}", 8, "__metadata__");
    expect_bad("{\"__metadata__\":7," A8 "}", 8, "__metadata__");
    ls_safetensors_close(expect_good("{\"__metadata__\":null," A8 "}", 8));
}

TEST(a_file_without_tensors_is_read)
{
    struct ls_safetensors *file = expect_good("{}", 0);
    ck_assert_uint_eq(ls_safetensors_count(file), 0);
    ls_safetensors_close(file);
    expect_bad("{}", 4, "4 bytes follow");
}

TEST(tensors_without_elements_are_read)
{
    struct ls_safetensors *file =
        expect_good("{\"e\":{\"dtype\":\"F32\",\"shape\":[0,9223372036854775807,5],"
                    "\"data_offsets\":[8,8]},\"f\":{\"dtype\":\"F32\",\"shape\":[3,0],"
                    "\"data_offsets\":[0,0]}," A8 "}",
                    8);
    ck_assert_uint_eq(ls_safetensors_count(file), 3);
    ck_assert_str_eq(ls_safetensors_get(file, 0)->name, "f");
    ck_assert_str_eq(ls_safetensors_get(file, 2)->name, "e");
    ls_safetensors_close(file);
    expect_bad("{\"e\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[4,4]}," A8 "}", 8,
               "inside the one");
}

TEST(a_file_cut_anywhere_is_refused)
{
    char whole[256];
    const char *path = put("{" A8 "}", UINT64_MAX, 8);
    FILE *stream = fopen(path, "rb");
    const size_t bytes = fread(whole, 1, sizeof(whole), stream);
    fclose(stream);
    for (size_t cut = 0; cut < bytes; cut++) {
        write_file("x.safetensors", whole, cut);
        struct ls_safetensors *file;
        ck_assert_int_eq(ls_safetensors_open(path, &file), LS_BAD_INPUT);
        expect_error("x.safetensors", cut < 8           ? "too short"
                                      : cut < bytes - 8 ? "its header alone"
                                                        : "are outside the");
    }
}

TEST(a_header_of_more_values_than_tensors_have_is_refused)
{
    enum { BYTES = 3 * 4000000 };
    struct ls_safetensors *file = NULL;
    char *text = malloc(8 + BYTES);
    const uint64_t header = BYTES;
    ck_assert_ptr_nonnull(text);
    memcpy(text, &header, 8);
    for (int i = 0; i < BYTES; i++)
        text[8 + i] = "{},"[i % 3];
    write_file("x.safetensors", text, 8 + BYTES);
    free(text);
    ck_assert_int_eq(ls_safetensors_open(in_folder("x.safetensors"), &file), LS_BAD_INPUT);
    expect_error("x.safetensors", "the header has more than 4000000 values");
}

TEST(a_lying_header_length_is_refused)
{
    const uint64_t lengths[] = {0,
                                1,
                                5,
                                58,
                                1000,
                                1 << 20,
                                UINT64_C(100) << 20,
                                (UINT64_C(100) << 20) + 1,
                                INT64_MAX,
                                UINT64_C(1) << 63,
                                UINT64_MAX - 1,
                                UINT64_MAX - 8};
    for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
        struct ls_safetensors *file;
        const char *path = put("{" A8 "}", lengths[i], 8);
        ck_assert_int_eq(ls_safetensors_open(path, &file), LS_BAD_INPUT);
        expect_error("x.safetensors", "header");
    }
}

TEST(what_is_not_a_json_object_is_refused)
{
    expect_bad("", 0, "header, byte");
    expect_bad("hello", 0, "header, byte");
    expect_bad("{" A8, 8, "header, byte");
    expect_bad("{" A8 "}}", 8, "header, byte");
    expect_bad("[]", 0, "not a JSON object");
    expect_bad(" {" A8 "}", 8, "not a JSON object");
    expect_bad("{\"a\xff\":{}}", 0, "header, byte");
    expect_bad("{\"a\\u0000b\":{}}", 0, "header, byte");
    char deep[4096];
    memset(deep, '[', sizeof(deep) - 1);
    deep[sizeof(deep) - 1] = '\0';
    expect_bad(deep, 0, "header, byte");
}

TEST(names_that_come_twice_are_refused)
{
    expect_bad("{" A8 "," A8 "}", 8, "duplicate");
}

// One header and data of its own; the data of put() counts bytes.
static struct ls_safetensors *open_bytes(const char *header, const void *data, size_t bytes)
{
    char file[1024];
    const uint64_t length = strlen(header);
    memcpy(file, &length, 8);
    memcpy(file + 8, header, length);
    memcpy(file + 8 + length, data, bytes);
    write_file("x.safetensors", file, 8 + length + bytes);
    struct ls_safetensors *opened = NULL;
    ck_assert_msg(ls_safetensors_open(in_folder("x.safetensors"), &opened) == LS_OK, "%s",
                  captured);
    return opened;
}

TEST(other_floating_types_become_float32)
{
    static const uint16_t halves[3] = {0x3c00, 0xc100, 0x0001}, brains[2] = {0x3fc0, 0xc000};
    static const double wide[2] = {0.1, -1e300 * 1e10};
    unsigned char data[26];
    memcpy(data, halves, 6);
    memcpy(data + 6, brains, 4);
    memcpy(data + 10, wide, 16);
    struct ls_safetensors *file =
        open_bytes("{\"h\":{\"dtype\":\"F16\",\"shape\":[3],\"data_offsets\":[0,6]},"
                   "\"b\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[6,10]},"
                   "\"d\":{\"dtype\":\"F64\",\"shape\":[2],\"data_offsets\":[10,26]}}",
                   data, sizeof(data));
    const struct ls_saved_tensor *tensor = ls_safetensors_find(file, "h");
    ck_assert_str_eq(tensor->dtype, "F16");
    ck_assert(tensor->data[0] == 1 && tensor->data[1] == -2.5f && tensor->data[2] == 0x1p-24f);
    tensor = ls_safetensors_find(file, "b");
    ck_assert(tensor->data[0] == 1.5f && tensor->data[1] == -2);
    tensor = ls_safetensors_find(file, "d");
    ck_assert(tensor->data[0] == 0.1f && isinf(tensor->data[1]));
    ls_safetensors_close(file);
}

TEST(float32_may_begin_anywhere)
{
    const float value = 3.25f;
    unsigned char data[5] = {1};
    memcpy(data + 1, &value, 4);
    struct ls_safetensors *file =
        open_bytes("{\"k\":{\"dtype\":\"BOOL\",\"shape\":[1],\"data_offsets\":[0,1]},"
                   "\"f\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[1,5]}}",
                   data, sizeof(data));
    ck_assert(ls_safetensors_find(file, "f")->data[0] == value);
    ck_assert_ptr_null(ls_safetensors_find(file, "k")->data);
    ck_assert_str_eq(ls_safetensors_find(file, "k")->dtype, "BOOL");
    ls_safetensors_close(file);
}

TEST(numbers_too_large_for_float32_are_refused)
{
    const double values[2] = {1, 1e39};
    char file[256];
    const char *header = "{\"d\":{\"dtype\":\"F64\",\"shape\":[2],\"data_offsets\":[0,16]}}";
    const uint64_t length = strlen(header);
    memcpy(file, &length, 8);
    memcpy(file + 8, header, length);
    memcpy(file + 8 + length, values, 16);
    write_file("x.safetensors", file, 24 + length);
    struct ls_safetensors *opened;
    ck_assert_int_eq(ls_safetensors_open(in_folder("x.safetensors"), &opened), LS_BAD_INPUT);
    expect_error("tensor d", "element 1 is too large for float32");
}

TEST(unknown_types_are_refused_by_name)
{
    struct ls_safetensors *file =
        expect_good("{\"a\":{\"dtype\":\"F7\",\"shape\":[4],\"data_offsets\":[0,8]}}", 8);
    ck_assert_str_eq(ls_safetensors_get(file, 0)->dtype, "F7"); // who needs it is told
    ck_assert_ptr_null(ls_safetensors_get(file, 0)->data);
    ls_safetensors_close(file);
    expect_bad("{\"a\":{\"dtype\":\"BF16\",\"shape\":[3],\"data_offsets\":[0,8]}}", 8,
               "3 elements of 2 bytes");
    expect_bad("{\"a\":{\"dtype\":7,\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "no dtype");
    expect_bad("{\"a\":{\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "no dtype");
    expect_bad("{\"a\":[1]}", 8, "no dtype");
}

TEST(texts_of_the_header_are_read)
{
    struct ls_safetensors *file = expect_good("{\"__metadata__\":{\"k\":\"v\"}," A8 "}", 8);
    ck_assert_str_eq(ls_safetensors_text(file, "k"), "v");
    ck_assert_ptr_null(ls_safetensors_text(file, "other"));
    ls_safetensors_close(file);
    file = expect_good("{" A8 "}", 8);
    ck_assert_ptr_null(ls_safetensors_text(file, "k"));
    ls_safetensors_close(file);
}

static void expect_bad_tensor(const char *shape, const char *offsets, const char *what)
{
    char header[512];
    snprintf(header, sizeof(header),
             "{\"tensor\":{\"dtype\":\"F32\",\"shape\":%s,\"data_offsets\":%s}}", shape, offsets);
    expect_bad(header, 8, what);
}

TEST(offsets_outside_the_data_are_refused)
{
    expect_bad_tensor("[2]", "[0,12]", "are outside the");
    expect_bad_tensor("[2]", "[8,0]", "are outside the");
    expect_bad_tensor("[2]", "[-8,0]", "are outside the");
    expect_bad_tensor("[2]", "[9223372036854775800,9223372036854775807]", "are outside the");
    expect_bad_tensor("[2]", "[0,18446744073709551616]", "header, byte");
    expect_bad_tensor("[2]", "[0]", "data_offsets");
    expect_bad_tensor("[2]", "[0,4,8]", "data_offsets");
    expect_bad_tensor("[2]", "[0,8.0]", "data_offsets");
    expect_bad_tensor("[2]", "{}", "data_offsets");
    expect_bad_tensor("[2]", "null", "data_offsets");
}

TEST(shapes_that_do_not_fit_are_refused)
{
    expect_bad_tensor("[3]", "[0,8]", "3 elements");
    expect_bad_tensor("[]", "[0,8]", "1 elements");
    expect_bad_tensor("[1]", "[0,7]", "7 bytes");
    expect_bad_tensor("[-2]", "[0,8]", "dimension 0");
    expect_bad_tensor("[2,1.5]", "[0,8]", "dimension 1");
    expect_bad_tensor("[\"2\"]", "[0,8]", "dimension 0");
    expect_bad_tensor("2", "[0,8]", "not a list");
    expect_bad_tensor("[4294967296,4294967296]", "[0,0]", "more elements");
    expect_bad_tensor("[4294967296,4294967296,2]", "[0,8]", "more elements");
    expect_bad_tensor("[4611686018427387904,4,2]", "[0,8]", "more elements");
    expect_bad_tensor("[4611686018427387906]", "[0,8]", "4611686018427387906 elements");
    expect_bad_tensor("[1,1,1,1,1,1,1,1,2]", "[0,8]", "9 dimensions");
}

TEST(holes_and_overlaps_are_refused)
{
    const char *two = "{" A8 ",\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[%d,%d]}}";
    char header[256];
    snprintf(header, sizeof(header), two, 12, 16);
    expect_bad(header, 16, "leaves a hole after byte 8");
    snprintf(header, sizeof(header), two, 4, 8);
    expect_bad(header, 8, "inside the one that ends at byte 8");
    snprintf(header, sizeof(header), two, 0, 4);
    expect_bad(header, 8, "inside the one that ends at byte 4");
    snprintf(header, sizeof(header), two, 8, 12);
    expect_bad(header, 20, "8 bytes follow");
    ls_safetensors_close(expect_good(header, 12));
    expect_bad("{\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", 8, "a hole");
}

TEST(what_is_not_a_file_is_refused)
{
    struct ls_safetensors *file;
    ck_assert_int_eq(ls_safetensors_open(in_folder("none"), &file), LS_BAD_INPUT);
    expect_error("none", "No such file");
    ck_assert_int_eq(ls_safetensors_open(folder, &file), LS_BAD_INPUT);
    expect_error(folder, "is a directory");
    ck_assert_int_eq(mkfifo(in_folder("pipe"), 0600), 0);
    ck_assert_int_eq(ls_safetensors_open(in_folder("pipe"), &file), LS_BAD_INPUT);
    expect_error("pipe", "pipe");
}

// Every bit of a small file flipped: read or refused, but never a crash (run it under sanitizers).
TEST(damaged_files_never_crash)
{
    char whole[256];
    FILE *stream = fopen(put("{\"__metadata__\":{\"k\":\"v\"}," A8 "}", UINT64_MAX, 8), "rb");
    const size_t bytes = fread(whole, 1, sizeof(whole), stream);
    fclose(stream);
    unsigned refused = 0;
    for (size_t bit = 0; bit < bytes * 8; bit++) {
        whole[bit / 8] ^= (char)(1 << bit % 8);
        write_file("x.safetensors", whole, bytes);
        whole[bit / 8] ^= (char)(1 << bit % 8);
        struct ls_safetensors *file;
        const enum ls_status status = ls_safetensors_open(in_folder("x.safetensors"), &file);
        ck_assert(status == LS_OK || status == LS_BAD_INPUT);
        refused += status != LS_OK;
        if (!status)
            ls_safetensors_close(file);
    }
    ck_assert_uint_gt(refused, 300);
}

// ---- Writing ----

static float values[600];

static void fill_values(void)
{
    for (int i = 0; i < 600; i++)
        values[i] = (float)i / 7.0f - 3;
    values[0] = -0.0f;
    values[1] = 1.0f / values[0]; // -infinity
}

static const struct ls_saved_tensor saved[] = {
    {"conv2d/kernel", 4, {3, 3, 1, 32}, values},
    {"conv2d/bias", 1, {32}, values + 288},
    {"scalar", 0, {0}, values + 320},
    {"nothing \"quoted\" \xc3\xa9\n", 3, {4, 0, 2}, NULL},
    {"b", 8, {1, 1, 1, 1, 1, 1, 2, 3}, values + 321},
};
#define SAVED (sizeof(saved) / sizeof(*saved))

static void expect_saved(const char *path)
{
    struct ls_safetensors *file;
    ck_assert_msg(ls_safetensors_open(path, &file) == LS_OK, "%s", captured);
    ck_assert_uint_eq(ls_safetensors_count(file), SAVED);
    for (size_t i = 0; i < SAVED; i++) {
        const struct ls_saved_tensor *tensor = ls_safetensors_find(file, saved[i].name);
        ck_assert_ptr_nonnull(tensor);
        ck_assert_uint_eq(tensor->ndims, saved[i].ndims);
        size_t elements = 1;
        for (uint32_t d = 0; d < tensor->ndims; d++) {
            ck_assert_int_eq(tensor->dims[d], saved[i].dims[d]);
            elements *= (size_t)tensor->dims[d];
        }
        if (elements)
            ck_assert_mem_eq(tensor->data, saved[i].data, elements * sizeof(float));
    }
    ls_safetensors_close(file);
}

TEST(what_is_written_is_read_back)
{
    fill_values();
    ck_assert_int_eq(ls_safetensors_write(in_folder("w"), saved, SAVED), LS_OK);
    expect_saved(in_folder("w"));
    ck_assert_int_eq(ls_safetensors_write(in_folder("w"), saved, SAVED), LS_OK); // over itself
    expect_saved(in_folder("w"));
    ck_assert_uint_eq(files_in_folder(), 1);

    uint64_t header;
    FILE *file = fopen(in_folder("w"), "rb");
    ck_assert_uint_eq(fread(&header, 8, 1, file), 1);
    fclose(file);
    ck_assert_uint_eq(header % 8, 0);

    const mode_t mask = umask(027);
    ck_assert_int_eq(ls_safetensors_write(in_folder("m"), saved, SAVED), LS_OK);
    umask(mask);
    struct stat about;
    ck_assert_int_eq(stat(in_folder("m"), &about), 0);
    ck_assert_uint_eq(about.st_mode & 0777, 0640);
}

// Reads the whole file that `saved` becomes.
static char *written(const char *name, const struct ls_saved *what, size_t *bytes)
{
    struct stat about;
    const int fd = open(in_folder(name), O_RDWR | O_CREAT | O_TRUNC, 0600);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(ls_safetensors_write_to(fd, name, what), LS_OK);
    ck_assert_int_eq(fstat(fd, &about), 0);
    char *all = malloc((size_t)about.st_size + 1);
    ck_assert_int_eq(pread(fd, all, (size_t)about.st_size, 0), about.st_size);
    close(fd);
    *bytes = (size_t)about.st_size;
    return all;
}

// Whole blocks go past the cache, what is left at the end does not: around a block, and around the
// megabyte that is written at a time.
TEST(what_goes_past_the_cache_is_the_same_file)
{
    static const int64_t counts[] = {0, 1, 900, 1000, 1023, 1024, 1025, 262143, 262144, 600001};
    static float large[600001];
    for (size_t i = 0; i < 600001; i++)
        large[i] = (float)i;
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        const struct ls_saved_tensor tensors[] = {
            {"a", 1, {counts[i]}, large}, {"b", 1, {3}, large + 1}, {"c", 1, {counts[i]}, large}};
        struct ls_saved what = {.tensors = tensors, .count = 3};
        size_t bytes, same;
        char *plain = written("plain", &what, &bytes);
        what.uncached = true;
        char *uncached = written("uncached", &what, &same);
        ck_assert_uint_eq(same, bytes);
        ck_assert_mem_eq(uncached, plain, bytes);
        free(plain);
        free(uncached);
    }
}

TEST(a_path_without_a_folder_is_beside_us)
{
    fill_values();
    ck_assert_int_eq(chdir(folder), 0);
    ck_assert_int_eq(ls_safetensors_write("w", saved, SAVED), LS_OK);
    expect_saved("w");
    ck_assert_int_eq(ls_safetensors_write("empty", NULL, 0), LS_OK);
    struct ls_safetensors *file;
    ck_assert_int_eq(ls_safetensors_open("empty", &file), LS_OK);
    ck_assert_uint_eq(ls_safetensors_count(file), 0);
    ls_safetensors_close(file);
    ck_assert_int_eq(chdir("/"), 0);
}

TEST(tensors_that_cannot_be_written_are_refused)
{
    struct ls_saved_tensor two[2] = {saved[1], saved[1]};
    ck_assert_int_eq(ls_safetensors_write(in_folder("w"), two, 2), LS_FAILED);
    expect_error("conv2d/bias", "taken");
    two[1].name = "__metadata__";
    ck_assert_int_eq(ls_safetensors_write(in_folder("w"), two, 2), LS_FAILED);
    expect_error("__metadata__", "taken");
    two[1].name = "broken\xff";
    ck_assert_int_eq(ls_safetensors_write(in_folder("w"), two, 2), LS_FAILED);
    expect_error("broken", "UTF-8");
    two[1] = (struct ls_saved_tensor){"negative", 1, {-1}, values};
    ck_assert_int_eq(ls_safetensors_write(in_folder("w"), two, 2), LS_FAILED);
    expect_error("negative", "shape");
    two[1] = (struct ls_saved_tensor){"huge", 2, {INT64_MAX, 2}, values};
    ck_assert_int_eq(ls_safetensors_write(in_folder("w"), two, 2), LS_FAILED);
    expect_error("huge", "shape");
    ck_assert_uint_eq(files_in_folder(), 0);
}

TEST(places_that_cannot_be_written_are_named)
{
    fill_values();
    ck_assert_int_eq(ls_safetensors_write(in_folder("no/w"), saved, SAVED), LS_FAILED);
    expect_error("no/w", "No such file");
    ck_assert_int_eq(mkdir(in_folder("d"), 0700), 0);
    ck_assert_int_eq(ls_safetensors_write(in_folder("d"), saved, SAVED), LS_FAILED);
    expect_error("/d", "cannot replace");
    ck_assert_uint_eq(files_in_folder(), 1);
    char text[128];
    snprintf(text, sizeof(text), "/proc/lockstep-%s", "w");
    ck_assert_int_eq(ls_safetensors_write(text, saved, SAVED), LS_FAILED);
    expect_error("/proc", "cannot");
}

// The end of space, wherever in the file it comes: at every byte by way of a limit on the size of files.
TEST(a_write_that_fails_anywhere_leaves_the_old_file)
{
    fill_values();
    signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(ls_safetensors_write(in_folder("w"), saved, SAVED), LS_OK);
    struct stat about;
    ck_assert_int_eq(stat(in_folder("w"), &about), 0);
    const struct ls_saved_tensor other = {"other", 1, {600}, values};
    for (rlim_t most = 0; most < 600 * 4; most += most < 200 ? 1 : 97) {
        struct rlimit limit;
        getrlimit(RLIMIT_FSIZE, &limit);
        limit.rlim_cur = most;
        ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
        const enum ls_status status = ls_safetensors_write(in_folder("w"), &other, 1);
        limit.rlim_cur = limit.rlim_max;
        ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
        ck_assert_int_eq(status, LS_FAILED);
        expect_error("/w", "cannot write: File too large");
        ck_assert_uint_eq(files_in_folder(), 1);
        expect_saved(in_folder("w"));
    }
}

// A real full disk; needs the right to mount, so elsewhere it is counted as skipped (see main).
START_TEST(a_full_disk_leaves_nothing_behind)
{
    static float large[1 << 18];
    fill_values();
    ck_assert_int_eq(mount("none", folder, "tmpfs", 0, "size=256k"), 0);
    const enum ls_status small = ls_safetensors_write(in_folder("w"), saved, SAVED);
    const struct ls_saved_tensor tensor = {"large", 1, {1 << 18}, large};
    const enum ls_status status = ls_safetensors_write(in_folder("w"), &tensor, 1);
    const unsigned files = files_in_folder();
    struct ls_safetensors *file = NULL;
    const enum ls_status old = ls_safetensors_open(in_folder("w"), &file);
    ck_assert_int_eq(umount(folder), 0); // before any check can fail
    ck_assert_int_eq(small, LS_OK);
    ck_assert_int_eq(status, LS_FAILED);
    ck_assert_int_eq(old, LS_OK);
    ck_assert_uint_eq(ls_safetensors_count(file), SAVED);
    ls_safetensors_close(file);
    ck_assert_uint_eq(files, 1);
    expect_error("/w", "No space left on device");
}
END_TEST

static bool can_mount(void)
{
    char place[] = "/tmp/lockstep-test-XXXXXX";
    const bool can = mkdtemp(place) && mount("none", place, "tmpfs", 0, "size=64k") == 0;
    if (can)
        umount(place);
    else
        printf("SKIP: a full disk: a tmpfs cannot be mounted here (%s); the other ways to fail a "
               "write are tested\n",
               strerror(errno));
    rmdir(place);
    return can;
}

TEST_FIXTURE(folder_make, folder_remove);

int main(void)
{
    if (can_mount())
        tcase_add_test(test_registered(), a_full_disk_leaves_nothing_behind);
    return test_suite_run("core/formats/safetensors");
}
