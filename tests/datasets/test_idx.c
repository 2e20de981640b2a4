// SPDX-License-Identifier: Apache-2.0
// mnist and fashion-mnist on small IDX files of our own: read right, and every malformed kind refused with its place.
#include "core/data/dataset.h"
#include "tests/datasets/idx_files.h"
#include "tests/support/suite.h"

#include <pthread.h>
#include <sys/stat.h>

#define COUNT 5
#define ROWS 3
#define COLUMNS 4

static enum ls_status open_train(struct ls_dataset **out)
{
    char text[128];
    snprintf(text, sizeof(text), "mnist:dir=%s", folder);
    return ls_dataset_open(text, LS_TRAIN, out);
}

static void expect_bad(const char *file, const char *what)
{
    struct ls_dataset *dataset;
    ck_assert_int_eq(open_train(&dataset), LS_BAD_INPUT);
    expect_error(file, what);
}

static void write_good(void)
{
    const struct bytes images = idx_images(COUNT, ROWS, COLUMNS), labels = idx_labels(COUNT);
    write_bytes(TRAIN_IMAGES, &images);
    write_bytes(TRAIN_LABELS, &labels);
}

static void expect_good(void)
{
    struct ls_dataset *dataset;
    ck_assert_msg(open_train(&dataset) == LS_OK, "%s", captured);
    const struct bytes images = idx_images(COUNT, ROWS, COLUMNS), labels = idx_labels(COUNT);
    ck_assert_uint_eq(dataset->count, COUNT);
    ck_assert_uint_eq(dataset->fields[0].ndims, 3);
    ck_assert_int_eq(dataset->fields[0].dims[0], ROWS);
    ck_assert_int_eq(dataset->fields[0].dims[1], COLUMNS);
    ck_assert_int_eq(dataset->fields[0].dims[2], 1);
    ck_assert_uint_eq(dataset->fields[0].dtype, LS_U8);
    ck_assert_uint_eq(dataset->fields[1].dtype, LS_U8);
    ck_assert(dataset->fields[0].divisor == 255);
    ck_assert_uint_eq(dataset->fields[1].class_count, 10);
    ck_assert(dataset->real);
    ck_assert_mem_eq(dataset->fields[0].values, images.data + 16, COUNT * ROWS * COLUMNS);
    ck_assert_mem_eq(dataset->fields[1].values, labels.data + 8, COUNT);
    ls_dataset_close(dataset);

    char text[128];
    snprintf(text, sizeof(text), "mnist:dir=%s", folder);
    struct ls_dataset_info info;
    ck_assert_msg(ls_dataset_describe(text, LS_TRAIN, &info) == LS_OK, "%s", captured);
    ck_assert_uint_eq(info.count, COUNT);
    ck_assert_uint_eq(info.fields[0].ndims, 3);
    ck_assert(info.fields[0].dims[0] == ROWS && info.fields[0].dims[1] == COLUMNS &&
              info.fields[0].dims[2] == 1);
    ck_assert_uint_eq(ls_field_elements(&info.fields[1]), 1);
    ck_assert_uint_eq(info.fields[1].class_count, 10);
}

TEST(plain_files_are_read)
{
    write_good();
    expect_good();
}

TEST(gzip_files_are_read)
{
    const struct bytes images = idx_images(COUNT, ROWS, COLUMNS), labels = idx_labels(COUNT);
    const struct bytes packed_images = gzipped(&images), packed_labels = gzipped(&labels);
    write_bytes(TRAIN_IMAGES ".gz", &packed_images);
    write_bytes(TRAIN_LABELS ".gz", &packed_labels);
    expect_good();
}

TEST(the_name_does_not_decide_what_is_gzip)
{
    const struct bytes images = idx_images(COUNT, ROWS, COLUMNS), labels = idx_labels(COUNT);
    const struct bytes packed = gzipped(&images);
    write_bytes(TRAIN_IMAGES, &packed);
    write_bytes(TRAIN_LABELS ".gz", &labels);
    expect_good();
}

TEST(gzip_members_one_after_the_other_are_one_file)
{
    write_good();
    const struct bytes whole = idx_images(COUNT, ROWS, COLUMNS);
    struct bytes file = {.count = 0};
    for (size_t from = 0; from < whole.count; from += 30) { // the header is cut, too
        struct bytes part = {.count = whole.count - from < 30 ? whole.count - from : 30};
        memcpy(part.data, whole.data + from, part.count);
        const struct bytes packed = gzipped(&part);
        memcpy(file.data + file.count, packed.data, packed.count);
        file.count += packed.count;
    }
    write_bytes(TRAIN_IMAGES, &file);
    expect_good();
}

TEST(the_test_split_has_files_of_its_own)
{
    write_good();
    const struct bytes images = idx_images(2, ROWS, COLUMNS), labels = idx_labels(2);
    write_bytes("t10k-images-idx3-ubyte", &images);
    write_bytes("t10k-labels-idx1-ubyte", &labels);
    char text[128];
    snprintf(text, sizeof(text), "fashion-mnist:dir=%s", folder);
    struct ls_dataset *dataset;
    ck_assert_int_eq(ls_dataset_open(text, LS_TEST, &dataset), LS_OK);
    ck_assert_uint_eq(dataset->count, 2);
    ck_assert_str_eq(dataset->fields[1].class_names[9], "Ankle boot");
    ls_dataset_close(dataset);
    expect_good();
}

TEST(a_missing_file_names_the_remedy)
{
    struct ls_dataset *dataset;
    char text[128];
    snprintf(text, sizeof(text), "fashion-mnist:dir=%s", folder);
    ck_assert_int_eq(ls_dataset_open(text, LS_TRAIN, &dataset), LS_BAD_INPUT);
    expect_error(TRAIN_LABELS, "dataset-fashion-mnist");
    expect_bad(TRAIN_LABELS, "dir=");
    write_good();
    ck_assert_int_eq(unlink(in_folder(TRAIN_IMAGES)), 0);
    expect_bad(TRAIN_IMAGES, "dir=");
}

TEST(a_description_refuses_bad_headers)
{
    struct ls_dataset_info info;
    char text[128];
    snprintf(text, sizeof(text), "mnist:dir=%s", folder);
    ck_assert_int_eq(ls_dataset_describe(text, LS_TRAIN, &info), LS_BAD_INPUT);
    expect_error(TRAIN_IMAGES, "dir=");
    write_file(TRAIN_IMAGES, "\0\0\x08\x03\0", 5);
    ck_assert_int_eq(ls_dataset_describe(text, LS_TRAIN, &info), LS_BAD_INPUT);
    expect_error(TRAIN_IMAGES, "too short");
    const struct bytes labels = idx_labels(COUNT);
    write_bytes(TRAIN_IMAGES, &labels);
    ck_assert_int_eq(ls_dataset_describe(text, LS_TRAIN, &info), LS_BAD_INPUT);
    expect_error(TRAIN_IMAGES, "magic number");
    ck_assert_int_eq(ls_dataset_describe("mnist", LS_TRAIN, &info), LS_USAGE);
    expect_error("mnist", "dir");
}

TEST(mnist_without_a_folder_is_a_usage_error)
{
    struct ls_dataset *dataset;
    ck_assert_int_eq(ls_dataset_open("mnist", LS_TRAIN, &dataset), LS_USAGE);
    expect_error("mnist", "mnist:dir=PATH");
}

TEST(a_wrong_magic_number_is_refused)
{
    write_good();
    struct bytes images = idx_images(COUNT, ROWS, COLUMNS);
    images.data[2] = 0x0d; // float32
    write_bytes(TRAIN_IMAGES, &images);
    expect_bad(TRAIN_IMAGES, "magic number 0x00000d03");
    const struct bytes labels = idx_labels(COUNT);
    write_bytes(TRAIN_IMAGES, &labels);
    expect_bad(TRAIN_IMAGES, "magic number 0x00000801");
    write_file(TRAIN_LABELS, "<html>not found</html>", 22);
    expect_bad(TRAIN_LABELS, "magic number 0x3c68746d");
}

TEST(a_plain_file_cut_anywhere_is_refused)
{
    write_good();
    struct bytes images = idx_images(COUNT, ROWS, COLUMNS);
    char found[64];
    for (images.count = 0; images.count < 16 + COUNT * ROWS * COLUMNS; images.count++) {
        write_bytes(TRAIN_IMAGES, &images);
        snprintf(found, sizeof(found), "too short: %zu bytes, expected %d", images.count,
                 images.count < 4    ? 4
                 : images.count < 16 ? 16
                                     : 16 + COUNT * ROWS * COLUMNS);
        expect_bad(TRAIN_IMAGES, found);
    }
}

TEST(a_gzip_file_cut_anywhere_is_refused)
{
    write_good();
    const struct bytes images = idx_images(COUNT, ROWS, COLUMNS);
    struct bytes packed = gzipped(&images);
    for (size_t whole = packed.count, cut = 0; cut < whole; cut++) {
        packed.count = cut;
        write_bytes(TRAIN_IMAGES, &packed);
        expect_bad(TRAIN_IMAGES, cut < 2 ? "too short" : "is truncated");
    }
}

TEST(a_gzip_file_whose_content_is_short_is_refused)
{
    write_good();
    struct bytes images = idx_images(COUNT, ROWS, COLUMNS);
    images.count -= 10;
    const struct bytes packed = gzipped(&images);
    write_bytes(TRAIN_IMAGES, &packed);
    expect_bad(TRAIN_IMAGES, "too short: 66 bytes inflated, expected 76");
}

// Any bit of a gzip file that carries meaning; what does not (time, system) must not change the content.
TEST(a_damaged_gzip_file_never_gives_other_data)
{
    write_good();
    const struct bytes images = idx_images(COUNT, ROWS, COLUMNS);
    const struct bytes packed = gzipped(&images);
    unsigned refused = 0;
    for (size_t bit = 0; bit < packed.count * 8; bit++) {
        struct bytes damaged = packed;
        damaged.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
        write_bytes(TRAIN_IMAGES, &damaged);
        struct ls_dataset *dataset;
        const enum ls_status status = open_train(&dataset);
        if (status) {
            ck_assert_int_eq(status, LS_BAD_INPUT);
            expect_error(TRAIN_IMAGES, "");
            refused++;
            continue;
        }
        ck_assert_mem_eq(dataset->fields[0].values, images.data + 16, COUNT * ROWS * COLUMNS);
        ls_dataset_close(dataset);
    }
    ck_assert_uint_gt(refused, (unsigned)(packed.count - 8) * 8 - 8);
}

TEST(a_wrong_check_sum_is_named)
{
    write_good();
    const struct bytes images = idx_images(COUNT, ROWS, COLUMNS);
    struct bytes packed = gzipped(&images);
    packed.data[packed.count - 8] ^= 1;
    write_bytes(TRAIN_IMAGES, &packed);
    expect_bad(TRAIN_IMAGES, "damaged: incorrect data check");
}

TEST(bytes_after_the_end_are_refused)
{
    write_good();
    struct bytes images = idx_images(COUNT, ROWS, COLUMNS);
    struct bytes packed = gzipped(&images);
    images.data[images.count++] = 0;
    write_bytes(TRAIN_IMAGES, &images);
    expect_bad(TRAIN_IMAGES, "longer than the 76 bytes");
    const struct bytes packed_longer = gzipped(&images);
    write_bytes(TRAIN_IMAGES, &packed_longer);
    expect_bad(TRAIN_IMAGES, "longer than the 76 bytes");
    packed.data[packed.count++] = 'x';
    write_bytes(TRAIN_IMAGES, &packed);
    expect_bad(TRAIN_IMAGES, "gzip stream");
}

TEST(counts_that_disagree_are_refused)
{
    write_good();
    const struct bytes images = idx_images(COUNT - 1, ROWS, COLUMNS);
    write_bytes(TRAIN_IMAGES, &images);
    expect_bad(TRAIN_IMAGES, "4 images, but 5 labels");
}

TEST(a_label_outside_the_classes_is_named)
{
    write_good();
    struct bytes labels = idx_labels(COUNT);
    labels.data[8 + 3] = 10;
    write_bytes(TRAIN_LABELS, &labels);
    expect_bad(TRAIN_LABELS, "label 3 is 10");
}

static void expect_bad_dims(uint32_t count, uint32_t rows, uint32_t columns, bool packed,
                            const char *what)
{
    struct bytes images = {.count = 0};
    put_number(&images, 0x803);
    put_number(&images, count);
    put_number(&images, rows);
    put_number(&images, columns);
    images.count += 100;
    const struct bytes file = packed ? gzipped(&images) : images;
    write_bytes(TRAIN_IMAGES, &file);
    expect_bad(TRAIN_IMAGES, what);
}

TEST(absurd_dimensions_are_refused_before_memory_is_asked_for)
{
    write_good();
    for (int packed = 0; packed < 2; packed++) {
        expect_bad_dims(0, 28, 28, packed, "the set is empty");
        expect_bad_dims(5, 0, 28, packed, "the set is empty");
        expect_bad_dims(5, 28, 0, packed, "the set is empty");
        expect_bad_dims(UINT32_MAX, UINT32_MAX, UINT32_MAX, packed, "more elements than any file");
        expect_bad_dims(1u << 31, 1u << 31, 4, packed, "more elements than any file");
        expect_bad_dims(UINT32_MAX, 28, 28, packed, "expected 3367254359296");
        expect_bad_dims(1, UINT32_MAX, 1, packed, "expected 4294967311");
    }
}

TEST(empty_files_are_refused)
{
    write_good();
    write_file(TRAIN_IMAGES, "", 0);
    expect_bad(TRAIN_IMAGES, "too short: 0 bytes");
    const struct bytes nothing = {.count = 0};
    const struct bytes packed = gzipped(&nothing);
    write_bytes(TRAIN_IMAGES, &packed);
    expect_bad(TRAIN_IMAGES, "too short: 0 bytes inflated");
}

TEST(what_is_not_a_file_is_refused)
{
    write_good();
    ck_assert_int_eq(unlink(in_folder(TRAIN_IMAGES)), 0);
    ck_assert_int_eq(mkdir(in_folder(TRAIN_IMAGES), 0700), 0);
    expect_bad(TRAIN_IMAGES, "is a directory");
    ck_assert_int_eq(rmdir(in_folder(TRAIN_IMAGES)), 0);
    ck_assert_int_eq(mkfifo(in_folder(TRAIN_IMAGES), 0600), 0);
    expect_bad(TRAIN_IMAGES, "not a regular file");
}

TEST(a_file_without_permission_is_refused)
{
    write_good();
    ck_assert_int_eq(chmod(in_folder(TRAIN_IMAGES), 0), 0);
    if (!access(in_folder(TRAIN_IMAGES), R_OK)) { // root may read everything: act as nobody
        ck_assert_int_eq(chmod(folder, 0755), 0);
        ck_assert_int_eq(seteuid(65534), 0);
    }
    expect_bad(TRAIN_IMAGES, "Permission denied");
    ck_assert_int_eq(seteuid(getuid()), 0);
}

static void *open_and_close(void *status)
{
    for (int i = 0; i < 20; i++) {
        struct ls_dataset *dataset;
        *(enum ls_status *)status = open_train(&dataset);
        if (*(enum ls_status *)status)
            break;
        ls_dataset_close(dataset);
    }
    return NULL;
}

TEST(several_threads_open_at_once)
{
    write_good();
    pthread_t threads[4];
    enum ls_status statuses[4];
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, open_and_close, &statuses[i]), 0);
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        ck_assert_int_eq(statuses[i], LS_OK);
    }
}

TEST_FIXTURE(folder_make, folder_remove);
