// SPDX-License-Identifier: Apache-2.0
// images: what is decoded and resized is what Keras's image_dataset_from_directory makes of the same
// files; folders become classes and splits; damaged files are refused by name.
#include "tests/datasets/dataset_checks.h"
#include "tests/support/suite.h"

#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>

#define ROWS 9
#define COLUMNS 11
#define VALUES (ROWS * COLUMNS * 3)
#define FILES 7
// Ours are rounded to whole numbers.
#define ROUNDED 0.501f
// Our order, by path: Keras has c/progressive.jpg before what is in c/inside.
static const struct {
    int keras; // its place in expected.bin
    int label;
} files[FILES] = {{0, 0}, {1, 0}, {2, 0}, {3, 1}, {4, 1}, {6, 2}, {5, 2}};

static void set_up(void)
{
    folder_make();
}

static void copy_fixture(const char *name, const char *to)
{
    char command[512];
    snprintf(command, sizeof(command), "cp -r '%s/images/%s' '%s'", FIXTURES, name, in_folder(to));
    ck_assert_int_eq(system(command), 0);
}

static void make_folder(const char *name)
{
    ck_assert_int_eq(mkdir(in_folder(name), 0700), 0);
}

static const float *expected_by_keras(int place)
{
    static float expected[FILES][VALUES];
    FILE *file = fopen(FIXTURES "/images/expected.bin", "rb");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fread(expected, sizeof(expected[0]), FILES, file), FILES);
    fclose(file);
    return expected[place];
}

TEST(images_are_those_of_keras)
{
    set_up();
    copy_fixture("classes", "set");
    struct ls_dataset *dataset = dataset_open("images:dir=@/set,resize=9x11,divisor=1", LS_TRAIN);
    ck_assert_uint_eq(dataset->count, FILES);
    ck_assert_uint_eq(dataset->fields[1].class_count, 3);
    ck_assert_str_eq(dataset->fields[1].class_names[1], "b");
    for (int i = 0; i < FILES; i++) {
        float values[VALUES];
        const float *expected = expected_by_keras(files[i].keras);
        dataset_values(dataset, 0, (uint64_t)i, values);
        ck_assert_float_eq(dataset_value(dataset, 1, (uint64_t)i, 0), (float)files[i].label);
        for (int k = 0; k < VALUES; k++)
            ck_assert_msg(fabsf(values[k] - expected[k]) <= ROUNDED,
                          "file %d, value %d: %g, expected %g", i, k, (double)values[k],
                          (double)expected[k]);
    }
    ls_dataset_close(dataset);
    folder_remove();
}

TEST(one_channel_is_grey_and_pixels_are_divided_by_255)
{
    set_up();
    make_folder("set");
    make_folder("set/only");
    copy_fixture("classes/b/colours.png", "set/only/1.PNG");
    struct ls_dataset *grey = dataset_open("images:dir=@/set,channels=1", LS_TRAIN);
    struct ls_dataset *colours = dataset_open("images:dir=@/set", LS_TRAIN);
    ck_assert_int_eq(grey->fields[0].dims[0], 13); // as the image is
    ck_assert_int_eq(grey->fields[0].dims[1], 17);
    ck_assert_int_eq(grey->fields[0].dims[2], 1);
    for (uint64_t i = 0; i < 13 * 17; i++) {
        const float expected = 0.299f * dataset_value(colours, 0, 0, 3 * i) +
                               0.587f * dataset_value(colours, 0, 0, 3 * i + 1) +
                               0.114f * dataset_value(colours, 0, 0, 3 * i + 2);
        ck_assert_float_eq_tol(dataset_value(grey, 0, 0, i), expected, 0.51f / 255);
    }
    ls_dataset_close(grey);
    ls_dataset_close(colours);
    folder_remove();
}

// Two folders of classes; the tests do not have them all.
TEST(train_and_test_are_folders)
{
    set_up();
    make_folder("set");
    copy_fixture("classes", "set/train");
    make_folder("set/test");
    make_folder("set/val");
    copy_fixture("classes/c", "set/test/c");
    copy_fixture("classes/b", "set/val/b");
    struct ls_dataset *train = dataset_open("images:dir=@/set,resize=4x4", LS_TRAIN);
    struct ls_dataset *test = dataset_open("images:dir=@/set,resize=4x4", LS_VALIDATION);
    struct ls_dataset *other = dataset_open("images:dir=@/set,resize=4x4,test=val", LS_TEST);
    ck_assert_uint_eq(train->count, FILES);
    ck_assert_uint_eq(test->count, 2);
    ck_assert_float_eq(dataset_value(test, 1, 0, 0), 2);
    ck_assert_uint_eq(test->fields[1].class_count, 3);
    ck_assert_uint_eq(other->count, 2);
    ck_assert_float_eq(dataset_value(other, 1, 1, 0), 1);
    ls_dataset_close(train);
    ls_dataset_close(test);
    ls_dataset_close(other);
    copy_fixture("classes/c", "set/test/d");
    dataset_refused("images:dir=@/set,resize=4x4", LS_TEST, LS_BAD_INPUT, "/set/test/d",
                    "no folder of that name");
    folder_remove();
}

// Every part has the classes in proportion.
TEST(a_part_has_all_classes)
{
    set_up();
    make_folder("set");
    for (int class = 0; class < 2; class ++) {
        make_folder(class ? "set/b" : "set/a");
        for (int i = 0; i < (class ? 10 : 20); i++) {
            char name[64];
            snprintf(name, sizeof(name), "set/%c/%02d.png", class ? 'b' : 'a', i);
            copy_fixture("classes/a/grey.png", name);
        }
    }
    struct ls_dataset *part = dataset_open("images:dir=@/set,validation_split=0.2", LS_VALIDATION);
    ck_assert_uint_eq(part->count, 6);
    float second = 0;
    for (uint64_t i = 0; i < 6; i++)
        second += dataset_value(part, 1, i, 0);
    ck_assert_float_eq(second, 2);
    ls_dataset_close(part);
    part = dataset_open("images:dir=@/set", LS_TRAIN); // all of them: by class
    for (uint64_t i = 0; i < 30; i++)
        ck_assert_float_eq(dataset_value(part, 1, i, 0), i >= 20);
    ls_dataset_close(part);
    folder_remove();
}

TEST(a_folder_without_folders_has_no_labels)
{
    set_up();
    copy_fixture("classes/a", "set");
    struct ls_dataset *dataset = dataset_open("images:dir=@/set,resize=4x4", LS_TEST);
    ck_assert_uint_eq(dataset->count, 3);
    ck_assert_uint_eq(dataset->field_count, 1);
    ls_dataset_close(dataset);
    folder_remove();
}

// skip, take, repeat and cache, of examples that are made on demand.
TEST(parts_and_caches_have_the_same_images)
{
    set_up();
    copy_fixture("classes", "set");
    const char *all = "images:dir=@/set,resize=5x6,take=7",
               *parts[] = {
                   "images:dir=@/set,resize=5x6,skip=2,take=3",
                   "images:dir=@/set,resize=5x6,skip=2,take=3,cache=memory",
                   "images:dir=@/set,resize=5x6,skip=2,take=3,cache=@/cache",
                   "images:dir=@/set,resize=5x6,skip=2,take=3,cache=@/cache", // from the file
               };
    struct ls_dataset *whole = dataset_open(all, LS_TRAIN);
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        struct ls_dataset *part = dataset_open(parts[i], LS_TRAIN);
        ck_assert_uint_eq(part->count, 3);
        for (uint64_t example = 0; example < 3; example++)
            for (uint64_t k = 0; k < 5 * 6 * 3; k++) {
                ck_assert_float_eq(dataset_value(part, 0, example, k),
                                   dataset_value(whole, 0, example + 2, k));
                ck_assert_float_eq(dataset_value(part, 1, example, 0),
                                   dataset_value(whole, 1, example + 2, 0));
            }
        ls_dataset_close(part);
        ck_assert_int_eq(access(in_folder("cache.train"), F_OK) == 0, i >= 2);
    }
    ls_dataset_close(whole);
    folder_remove();
}

static uint64_t contents_of(const char *pattern)
{
    struct ls_dataset *dataset = dataset_open(pattern, LS_TRAIN);
    uint64_t contents = 0;
    ck_assert_msg(ls_dataset_contents(dataset, &contents) == LS_OK, "%s", captured);
    ck_assert_uint_ne(contents, 0);
    ls_dataset_close(dataset);
    return contents;
}

// The files say what the examples are, and neither the folder nor a cache.
TEST(the_same_files_elsewhere_are_the_same_examples)
{
    set_up();
    copy_fixture("classes", "set");
    copy_fixture("classes", "other");
    const uint64_t own = contents_of("images:dir=@/set,resize=4x4");
    ck_assert_uint_eq(contents_of("images:resize=4x4,dir=@/other"), own);
    ck_assert_uint_eq(contents_of("images:dir=@/other/,resize=4x4,cache=memory"), own);
    ck_assert_uint_eq(contents_of("images:dir=@/set,resize=4x4,cache=@/cache"), own);
    ck_assert_uint_eq(contents_of("images:dir=@/set,resize=4x4,cache=@/cache"), own);
    ck_assert_uint_ne(contents_of("images:dir=@/set,resize=4x5"), own);
    ck_assert_uint_ne(contents_of("images:dir=@/set,resize=4x4,divisor=1"), own);
    ck_assert_uint_ne(contents_of("images:dir=@/set,resize=4x4,random_flip=horizontal"), own);
    ck_assert_uint_ne(contents_of("images:dir=@/set,resize=4x4,repeat=2"), own);
    ck_assert_uint_ne(contents_of("images:dir=@/set,resize=4x4,take=3"), own);
    FILE *file = fopen(in_folder("other/b/colours.png"), "rb+"); // of the same size
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(fseek(file, -1, SEEK_END), 0);
    ck_assert_int_eq(fputc('?', file), '?');
    fclose(file);
    ck_assert_uint_ne(contents_of("images:dir=@/other,resize=4x4"), own);
    copy_fixture("classes/b/colours.png", "other/b/colours.png");
    ck_assert_uint_eq(contents_of("images:dir=@/other,resize=4x4"), own);
    char from[256];
    snprintf(from, sizeof(from), "%s", in_folder("other/b/colours.png"));
    ck_assert_int_eq(rename(from, in_folder("other/a/colours.png")), 0); // another label
    ck_assert_uint_ne(contents_of("images:dir=@/other,resize=4x4"), own);
    folder_remove();
}

static const struct {
    const char *options, *one, *other;
    enum ls_status status;
} refused[] = {
    {"channels=3", "dir is missing", "expected images:dir=FOLDER", LS_USAGE},
    {"dir=@/set,resize=9", "resize=9", "HEIGHTxWIDTH", LS_USAGE},
    {"dir=@/set,resize=0x9", "resize=0x9", "HEIGHTxWIDTH", LS_USAGE},
    {"dir=@/set,resize=9x70000", "resize=9x70000", "65535", LS_USAGE},
    {"dir=@/set,divisor=0", "divisor=0", "above 0", LS_USAGE},
    {"dir=@/set", "the first image has 20 x 10", "give resize=", LS_BAD_INPUT},
    {"dir=@/nothing", "/nothing", "No such file", LS_BAD_INPUT},
    {"dir=@/empty", "/empty", "no images", LS_BAD_INPUT},
    {"dir=@/set,skip=7", "skip=7 leaves none of the 7", "training examples", LS_USAGE},
    {"dir=@/set,skip=2,take=6", "take=6", "only 5", LS_USAGE},
    {"dir=@/set,limit=2,take=2", "limit and take", "one of them", LS_USAGE},
    {"dir=@/gif", "/gif/a/x.gif", "neither a JPEG nor a PNG", LS_BAD_INPUT},
    {"dir=@/set,random_crop=2,cache=@/set,resize=9x9", "/set.train", "directory", LS_BAD_INPUT},
};

TABLE_TEST(what_does_not_fit_is_refused, refused)
{
    char text[256];
    set_up();
    copy_fixture("classes", "set");
    make_folder("empty");
    make_folder("gif");
    make_folder("gif/a");
    make_folder("set.train");
    write_file("gif/a/x.gif", "GIF89a", 6);
    snprintf(text, sizeof(text), "images:%s", refused[_i].options);
    if (strstr(text, "cache")) { // the folder in its way is refused as a file of another kind
        dataset_refused(text, LS_TRAIN, LS_BAD_INPUT, "/set.train", "of another kind");
    } else {
        dataset_refused(text, LS_TRAIN, refused[_i].status, refused[_i].one, refused[_i].other);
    }
    folder_remove();
}

// A PNG of 12 x 12 MiPixels in 60 bytes; a header without an image; text; a truncated image of each.
TEST(damaged_files_are_refused_by_name)
{
    static const uint8_t bomb[] = {0x89, 'P', 'N', 'G', 13,  10, 26, 10,   0,    0,    0,
                                   13,   'I', 'H', 'D', 'R', 0,  0,  0x1f, 0,    0,    0,
                                   0x1f, 0,   8,   2,   0,   0,  0,  0x17, 0x1c, 0x2d, 0x4e};
    char data[1024];
    set_up();
    make_folder("set");
    make_folder("set/a");
    const char *text = "images:dir=@/set,resize=4x4";
    write_file("set/a/1.png", "", 0);
    dataset_refused(text, LS_TRAIN, LS_BAD_INPUT, "/set/a/1.png", "is empty");
    write_file("set/a/1.png", "hello", 5);
    dataset_refused(text, LS_TRAIN, LS_BAD_INPUT, "/set/a/1.png", "neither a JPEG nor a PNG");
    write_file("set/a/1.png", bomb, sizeof(bomb));
    dataset_refused(text, LS_TRAIN, LS_BAD_INPUT, "/set/a/1.png", "");
    for (int jpeg = 0; jpeg < 2; jpeg++) {
        copy_fixture(jpeg ? "classes/c/progressive.jpg" : "classes/b/colours.png", "set/a/1.png");
        FILE *file = fopen(in_folder("set/a/1.png"), "rb");
        const size_t bytes = fread(data, 1, sizeof(data), file);
        fclose(file);
        ck_assert_uint_gt(bytes, 400);
        write_file("set/a/1.png", data, bytes - bytes / 3);
        dataset_refused(text, LS_TRAIN, LS_BAD_INPUT, "/set/a/1.png",
                        jpeg ? "damaged JPEG" : "damaged PNG: it is cut off");
    }
    folder_remove();
}
