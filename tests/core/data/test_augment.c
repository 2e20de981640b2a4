// SPDX-License-Identifier: Apache-2.0
// Augmentation: shift and rotation are Keras's; what flips and crops make can be found in the image;
// draws depend on the key alone.
#include "core/data/augment.h"
#include "tests/core/data/augmented_by_keras.h"
#include "tests/core/data/capture.h"
#include "tests/support/suite.h"

#include <math.h>

#define ROWS 5
#define COLUMNS 7
#define CHANNELS 2
#define VALUES (ROWS * COLUMNS * CHANNELS)
// Keras computes coordinates in float32.
#define TOLERANCE 2e-3f
#define TRIALS 200

static const struct ls_field floats = {
    .name = "x", .dtype = LS_F32, .ndims = 3, .dims = {ROWS, COLUMNS, CHANNELS}, .divisor = 1};
static const struct ls_field bytes = {
    .name = "x", .dtype = LS_U8, .ndims = 3, .dims = {ROWS, COLUMNS, CHANNELS}, .divisor = 255};

static int value(int i)
{
    return (i * 37 + i * i * 11) % 256;
}

static void fill(float *image, uint8_t *small)
{
    for (int i = 0; i < VALUES; i++) {
        image[i] = (float)value(i);
        small[i] = (uint8_t)value(i);
    }
}

static void expect_as_keras(const struct augmented_by_keras *expected, int rotate)
{
    float image[VALUES], made[VALUES];
    uint8_t small[VALUES], made_small[VALUES];
    fill(image, small);
    if (rotate) {
        ls_image_rotate(&floats, expected->amount[0], image, made);
        ls_image_rotate(&bytes, expected->amount[0], small, made_small);
    } else {
        ls_image_shift(&floats, expected->amount[0], expected->amount[1], image, made);
        ls_image_shift(&bytes, expected->amount[0], expected->amount[1], small, made_small);
    }
    for (int i = 0; i < VALUES; i++) {
        ck_assert_float_eq_tol(made[i], expected->values[i], TOLERANCE);
        ck_assert_float_eq_tol((float)made_small[i], expected->values[i], 0.5f + TOLERANCE);
    }
}

LOOP_TEST(shifts_are_those_of_keras, 0, 3)
{
    expect_as_keras(&shifted[_i], 0);
}

LOOP_TEST(rotations_are_those_of_keras, 0, 3)
{
    expect_as_keras(&rotated[_i], 1);
}

// The value at (row, column, channel) of the image, mirrored; 0 outside.
static int at(int row, int column, int channel, bool flip_rows, bool flip_columns)
{
    if (row < 0 || row >= ROWS || column < 0 || column >= COLUMNS)
        return 0;
    row = flip_rows ? ROWS - 1 - row : row;
    column = flip_columns ? COLUMNS - 1 - column : column;
    return value((row * COLUMNS + column) * CHANNELS + channel);
}

static bool is_moved(const uint8_t *made, int down, int right, bool flip_rows, bool flip_columns)
{
    for (int y = 0; y < ROWS; y++)
        for (int x = 0; x < COLUMNS; x++)
            for (int c = 0; c < CHANNELS; c++)
                if (made[(y * COLUMNS + x) * CHANNELS + c] !=
                    at(y + down, x + right, c, flip_rows, flip_columns))
                    return false;
    return true;
}

// Padding 6 is more than there are rows, so nothing of the image may be left.
LOOP_TEST(flips_and_crops_are_parts_of_the_image, 0, 8)
{
    enum { PADDING = 6, SIDE = 2 * PADDING + 1 };
    const struct ls_augmentation augmentation = {
        .flip_rows = _i & 1, .flip_columns = _i & 2, .crop = _i & 4 ? PADDING : 0};
    const int reach = (int)augmentation.crop;
    int found[SIDE][SIDE][2][2] = {0}, kinds = 0;
    for (uint64_t key = 0; key < TRIALS; key++) {
        float image[VALUES];
        uint8_t small[VALUES], one[VALUES], two[VALUES];
        void *buffers[2] = {one, two};
        fill(image, small);
        const uint8_t *made = ls_augment(&augmentation, &bytes, key, small, buffers);
        bool good = false;
        for (int down = -reach; !good && down <= reach; down++)
            for (int right = -reach; !good && right <= reach; right++)
                for (int flips = 0; !good && flips < 4; flips++) {
                    good = is_moved(made, down, right, flips & 1, flips & 2);
                    if (!good)
                        continue;
                    int *seen = &found[down + PADDING][right + PADDING][flips & 1][(flips & 2) / 2];
                    kinds += *seen == 0;
                    ++*seen;
                    ck_assert(augmentation.flip_rows || !(flips & 1));
                    ck_assert(augmentation.flip_columns || !(flips & 2));
                }
        ck_assert_msg(good, "key %llu: not a part of the image", (unsigned long long)key);
    }
    const int flips = (augmentation.flip_rows + 1) * (augmentation.flip_columns + 1);
    if (!reach)
        ck_assert_int_eq(kinds, flips);
    else
        ck_assert_int_ge(kinds, 60); // of the 169 places
    if (!reach) // as often as chance makes them: 5 standard deviations are 35 of 200
        for (int f = 0; f < 4; f++) {
            const int times = found[PADDING][PADDING][f & 1][(f & 2) / 2];
            ck_assert(times == 0 || abs(times - TRIALS / flips) <= 35);
        }
}

TEST(the_same_key_makes_the_same_image_and_another_key_another)
{
    const struct ls_augmentation all = {
        .flip_columns = true, .flip_rows = true, .crop = 2, .translation = 0.2, .rotation = 0.1};
    float image[VALUES], first[2][VALUES], second[2][VALUES];
    uint8_t small[VALUES];
    fill(image, small);
    int different = 0;
    const void *before = NULL;
    for (uint64_t key = 0; key < 20; key++) {
        void *one[2] = {first[0], first[1]}, *two[2] = {second[0], second[1]};
        const void *a = ls_augment(&all, &floats, key, image, one);
        const void *b = ls_augment(&all, &floats, key, image, two);
        ck_assert_mem_eq(a, b, sizeof(image));
        b = ls_augment(&all, &floats, key + 1, image, two);
        different += memcmp(a, b, sizeof(image)) != 0;
        before = a;
    }
    ck_assert_ptr_nonnull(before);
    ck_assert_int_eq(different, 20);
    for (int i = 0; i < VALUES; i++)
        ck_assert_float_eq(image[i], (float)value(i)); // is only read
}

static const struct {
    const char *text, *message;
} refused[] = {
    {"any:random_crop=0", "random_crop must be from 1 to 4096, not 0"},
    {"any:random_crop=5000", "random_crop must be from 1 to 4096, not 5000"},
    {"any:random_translation=1.5", "random_translation must be above 0 and at most 1, not 1.5"},
    {"any:random_rotation=0", "random_rotation must be above 0 and at most 1, not 0"},
};

TABLE_TEST(values_out_of_range_are_refused, refused)
{
    struct ls_spec spec;
    struct ls_augmentation augmentation;
    capture_reset();
    ck_assert_int_eq(ls_spec_parse("--dataset", refused[_i].text, &spec), LS_OK);
    ck_assert_int_eq(ls_augmentation_read("--dataset", &spec, &augmentation), LS_USAGE);
    expect_error("--dataset", refused[_i].message);
    ls_spec_finish(&spec);
}

TEST(only_images_are_augmented)
{
    struct ls_field field = bytes;
    const struct ls_augmentation none = {0}, flip = {.flip_columns = true};
    capture_reset();
    ck_assert_int_eq(ls_augmentation_check("--dataset", &flip, &field, 1), LS_OK);
    field.ndims = 2;
    ck_assert_int_eq(ls_augmentation_check("--dataset", &none, &field, 1), LS_OK);
    ck_assert_int_eq(ls_augmentation_check("--dataset", &flip, &field, 1), LS_USAGE);
    expect_error("'x' has 2 dimensions of uint8", "for images");
}
