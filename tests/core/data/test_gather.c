// SPDX-License-Identifier: Apache-2.0
// Examples and labels come out bit for bit as one division in float32 makes them.
#include "core/data/gather.h"
#include "tests/core/data/capture.h"
#include "tests/support/suite.h"

#define MOST 1100

static struct ls_dataset bytes_of(const uint8_t *examples, int64_t elements, float divisor)
{
    return (struct ls_dataset){.count = 1,
                               .ndims = 1,
                               .dims = {elements},
                               .example_dtype = LS_U8,
                               .examples = examples,
                               .divisor = divisor};
}

START_TEST(every_pixel_is_divided_by_255_to_the_bit)
{
    uint8_t pixels[256];
    float out[256];
    const uint32_t order[1] = {0};
    for (int i = 0; i < 256; i++)
        pixels[i] = (uint8_t)i;
    const struct ls_dataset dataset = bytes_of(pixels, 256, 255);
    ls_gather_examples(&dataset, order, 1, out);
    unsigned by_product = 0;
    for (int i = 0; i < 256; i++) {
        volatile float value = (float)i, divisor = 255; // one division, at run time
        const float wanted = value / divisor;
        ck_assert_mem_eq(&out[i], &wanted, sizeof(wanted));
        by_product += value * (1.0f / 255.0f) != wanted;
    }
    ck_assert_uint_gt(by_product, 0); // the shortcut would have been seen
}
END_TEST

START_TEST(examples_of_every_length_are_whole_and_nothing_beyond_is_touched)
{
    static uint8_t pixels[3 * MOST];
    static float out[3 * MOST + 1];
    const uint32_t order[4] = {2, 0, 0, 1};
    for (int i = 0; i < 3 * MOST; i++)
        pixels[i] = (uint8_t)(i * 31 + i / 256);
    for (int64_t elements = 1; elements <= 70; elements += elements == 70 ? 700 : 1) {
        struct ls_dataset dataset = bytes_of(pixels + 1, elements, 3);
        dataset.count = 3;
        for (uint64_t count = 0; count <= 4; count++) {
            for (int i = 0; i < 3 * MOST + 1; i++)
                out[i] = -1;
            ls_gather_examples(&dataset, order, count, out);
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
END_TEST

START_TEST(floats_are_copied_or_divided)
{
    const float stored[6] = {1, 2, 3, 4, 5, -0.0f};
    float out[6];
    const uint32_t order[3] = {2, 1, 0};
    struct ls_dataset dataset = {.count = 3,
                                 .ndims = 2,
                                 .dims = {1, 2},
                                 .example_dtype = LS_F32,
                                 .examples = stored,
                                 .divisor = 1};
    ls_gather_examples(&dataset, order, 3, out);
    const float same[6] = {5, -0.0f, 3, 4, 1, 2};
    ck_assert_mem_eq(out, same, sizeof(same));
    dataset.divisor = 10;
    ls_gather_examples(&dataset, order, 3, out);
    for (int i = 0; i < 6; i++)
        ck_assert(out[i] == same[i] / 10.0f);
}
END_TEST

START_TEST(labels_become_int32_or_float32)
{
    const uint8_t bytes[3] = {7, 0, 255};
    const int32_t numbers[3] = {70000, -1, 3};
    const float targets[6] = {1, 2, 3, 4, 5, 6};
    const uint32_t order[4] = {2, 0, 1, 2};
    int32_t classes[4];
    float out[8];
    struct ls_dataset dataset = {.label_dtype = LS_U8, .labels = bytes, .label_elements = 1};
    ls_gather_labels(&dataset, order, 4, classes);
    ck_assert(classes[0] == 255 && classes[1] == 7 && classes[2] == 0 && classes[3] == 255);
    dataset = (struct ls_dataset){.label_dtype = LS_I32, .labels = numbers, .label_elements = 1};
    ls_gather_labels(&dataset, order, 4, classes);
    ck_assert(classes[0] == 3 && classes[1] == 70000 && classes[2] == -1 && classes[3] == 3);
    dataset = (struct ls_dataset){.label_dtype = LS_F32, .labels = targets, .label_elements = 2};
    ls_gather_labels(&dataset, order, 4, out);
    const float wanted[8] = {5, 6, 1, 2, 3, 4, 5, 6};
    ck_assert_mem_eq(out, wanted, sizeof(wanted));
}
END_TEST

int main(void)
{
    TCase *tests = tcase_create("gather");
    tcase_add_test(tests, every_pixel_is_divided_by_255_to_the_bit);
    tcase_add_test(tests, examples_of_every_length_are_whole_and_nothing_beyond_is_touched);
    tcase_add_test(tests, floats_are_copied_or_divided);
    tcase_add_test(tests, labels_become_int32_or_float32);
    Suite *suite = suite_create("core/data/gather");
    suite_add_tcase(suite, tests);
    return test_suite_run(suite);
}
