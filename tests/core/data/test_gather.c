// SPDX-License-Identifier: Apache-2.0
// Fields come out bit for bit as one division in float32 makes them, or as they are stored.
#include "core/data/gather.h"
#include "tests/core/data/capture.h"
#include "tests/support/suite.h"

#define MOST 1100

static struct ls_field bytes_of(const uint8_t *examples, int64_t elements, float divisor)
{
    return (struct ls_field){.dtype = LS_U8,
                             .ndims = 1,
                             .dims = {elements},
                             .divisor = divisor,
                             .values = examples,
                             .stride = (uint64_t)elements};
}

TEST(every_pixel_is_divided_by_255_to_the_bit)
{
    uint8_t pixels[256];
    float out[256];
    const uint32_t order[1] = {0};
    for (int i = 0; i < 256; i++)
        pixels[i] = (uint8_t)i;
    const struct ls_field field = bytes_of(pixels, 256, 255);
    ls_gather(&field, LS_F32, order, 1, out);
    unsigned by_product = 0;
    for (int i = 0; i < 256; i++) {
        volatile float value = (float)i, divisor = 255; // one division, at run time
        const float wanted = value / divisor;
        ck_assert_mem_eq(&out[i], &wanted, sizeof(wanted));
        by_product += value * (1.0f / 255.0f) != wanted;
    }
    ck_assert_uint_gt(by_product, 0); // the shortcut would have been seen
}

TEST(examples_of_every_length_are_whole_and_nothing_beyond_is_touched)
{
    static uint8_t pixels[3 * MOST];
    static float out[3 * MOST + 1];
    const uint32_t order[4] = {2, 0, 0, 1};
    for (int i = 0; i < 3 * MOST; i++)
        pixels[i] = (uint8_t)(i * 31 + i / 256);
    for (int64_t elements = 1; elements <= 70; elements += elements == 70 ? 700 : 1) {
        const struct ls_field field = bytes_of(pixels + 1, elements, 3);
        for (uint64_t count = 0; count <= 4; count++) {
            for (int i = 0; i < 3 * MOST + 1; i++)
                out[i] = -1;
            ls_gather(&field, LS_F32, order, count, out);
            for (uint64_t i = 0; i < count * (uint64_t)elements; i++) {
                volatile float value =
                    pixels[1 + order[i / (uint64_t)elements] * (uint64_t)elements +
                           i % (uint64_t)elements];
                ck_assert(out[i] == value / 3.0f);
            }
            ck_assert(out[count * (uint64_t)elements] == -1);
        }
    }
}

TEST(floats_are_copied_or_divided)
{
    const float stored[6] = {1, 2, 3, 4, 5, -0.0f};
    float out[6];
    const uint32_t order[3] = {2, 1, 0};
    struct ls_field field = {.dtype = LS_F32,
                             .ndims = 2,
                             .dims = {1, 2},
                             .divisor = 1,
                             .values = stored,
                             .stride = 2 * sizeof(float)};
    ls_gather(&field, LS_F32, order, 3, out);
    const float same[6] = {5, -0.0f, 3, 4, 1, 2};
    ck_assert_mem_eq(out, same, sizeof(same));
    field.divisor = 10;
    ls_gather(&field, LS_F32, order, 3, out);
    for (int i = 0; i < 6; i++)
        ck_assert(out[i] == same[i] / 10.0f);
}

// Class numbers as any reader stores them, for a loss of classes and for one of numbers.
TEST(labels_become_int32_or_float32)
{
    const uint8_t bytes[3] = {7, 0, 255};
    const int32_t numbers[3] = {70000, -1, 3};
    const float targets[6] = {1, 2, 3, 4, 5, 6};
    const uint32_t order[4] = {2, 0, 1, 2};
    int32_t classes[4];
    float out[8];
    struct ls_field field = {.dtype = LS_U8, .divisor = 1, .values = bytes, .stride = 1};
    ls_gather(&field, LS_I32, order, 4, classes);
    ck_assert(classes[0] == 255 && classes[1] == 7 && classes[2] == 0 && classes[3] == 255);
    ls_gather(&field, LS_F32, order, 4, out);
    ck_assert(out[0] == 255 && out[1] == 7 && out[2] == 0 && out[3] == 255);
    field = (struct ls_field){.dtype = LS_I32, .divisor = 1, .values = numbers, .stride = 4};
    ls_gather(&field, LS_I32, order, 4, classes);
    ck_assert(classes[0] == 3 && classes[1] == 70000 && classes[2] == -1 && classes[3] == 3);
    ls_gather(&field, LS_F32, order, 4, out);
    ck_assert(out[0] == 3 && out[1] == 70000 && out[2] == -1 && out[3] == 3);
    field = (struct ls_field){
        .dtype = LS_F32, .ndims = 1, .dims = {2}, .divisor = 1, .values = targets, .stride = 8};
    ls_gather(&field, LS_F32, order, 4, out);
    const float wanted[8] = {5, 6, 1, 2, 3, 4, 5, 6};
    ck_assert_mem_eq(out, wanted, sizeof(wanted));
}

// Windows of a text: each begins `stride` bytes after the one before, and is longer than that.
TEST(examples_may_overlap)
{
    const uint8_t text[10] = {9, 8, 7, 6, 5, 4, 3, 2, 1, 0};
    const int32_t ids[8] = {1 << 20, -2, 3, -4, 5, -6, 7, -8};
    const uint32_t order[3] = {2, 0, 1};
    uint8_t bytes[12];
    int32_t numbers[12];
    float floats[12];
    struct ls_field field = {
        .dtype = LS_U8, .ndims = 1, .dims = {4}, .divisor = 2, .values = text, .stride = 3};
    const uint8_t wanted[12] = {3, 2, 1, 0, 9, 8, 7, 6, 6, 5, 4, 3};
    ls_gather(&field, LS_U8, order, 3, bytes);
    ck_assert_mem_eq(bytes, wanted, sizeof(wanted));
    ls_gather(&field, LS_I32, order, 3, numbers);
    ls_gather(&field, LS_F32, order, 3, floats);
    for (int i = 0; i < 12; i++) {
        ck_assert_int_eq(numbers[i], wanted[i]); // ids are never divided
        ck_assert(floats[i] == (float)wanted[i] / 2);
    }
    field = (struct ls_field){
        .dtype = LS_I32, .ndims = 1, .dims = {4}, .divisor = 1, .values = ids, .stride = 8};
    ls_gather(&field, LS_I32, order, 3, numbers);
    for (int i = 0; i < 12; i++)
        ck_assert_int_eq(numbers[i], ids[order[i / 4] * 2 + (uint32_t)i % 4]);
}

TEST(what_cannot_be_delivered_is_known)
{
    ck_assert(ls_can_gather(LS_U8, LS_U8) && ls_can_gather(LS_U8, LS_I32));
    ck_assert(ls_can_gather(LS_U8, LS_F32) && ls_can_gather(LS_I32, LS_F32));
    ck_assert(ls_can_gather(LS_I32, LS_I32) && ls_can_gather(LS_F32, LS_F32));
    ck_assert(!ls_can_gather(LS_F32, LS_I32) && !ls_can_gather(LS_F32, LS_U8));
    ck_assert(!ls_can_gather(LS_I32, LS_U8) && !ls_can_gather(LS_F64, LS_F32));
}
