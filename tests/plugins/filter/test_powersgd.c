// SPDX-License-Identifier: Apache-2.0
// Filter powersgd on the gradients of two ranks: what PyTorch's hook has made of them
// (lab/fixtures/torch_powersgd.py). And Q where a gradient has fewer directions than the rank.
#include "core/base/random.h"
#include "core/formats/safetensors.h"
#include "core/loader/loader.h"
#include "tests/plugins/filter/ranks.h"
#include "tests/support/suite.h"

#include <math.h>

#define WORLD 2
#define STEPS 20
#define RANK 2

static struct ls_loader *loader;
static struct ranks ranks;

static const struct ls_opened_plugin *open_filter(const char *text)
{
    const struct ls_opened_plugin *opened = NULL;
    ck_assert_int_eq(ls_loader_create(NULL, &loader), LS_OK);
    ck_assert_int_eq(ls_loader_open_text(loader, "--compress", LS_KIND_FILTER, text, &opened),
                     LS_OK);
    return opened;
}

static const struct ls_saved_tensor *find(const struct ls_safetensors *file, const char *variable,
                                          const char *what)
{
    char name[48];
    snprintf(name, sizeof(name), "%s/%s", variable, what);
    const struct ls_saved_tensor *tensor = ls_safetensors_find(file, name);
    ck_assert_msg(tensor && tensor->data, "%s is not there", name);
    return tensor;
}

// The largest difference between PyTorch's gradient, a mean, and the sum on rank 0, as a part of
// the largest element.
static double difference(const struct ls_saved_tensor *theirs, const struct ls_filter_variable *of)
{
    double largest = 0, worst = 0;
    for (uint64_t i = 0; i < of->count; i++) {
        const double expected = (double)theirs->data[i];
        largest = fmax(largest, fabs(expected));
        worst = fmax(worst, fabs((double)ranks.of[0].result[of->first + i] - expected));
    }
    ck_assert(largest > 0);
    return worst / largest;
}

TEST(the_decoded_gradient_is_that_of_pytorch)
{
    static const char *const names[] = {"dense", "conv"};
    struct ls_filter_variable variables[3] = {{0}};
    const struct ls_opened_plugin *opened = open_filter("powersgd:rank=2,start=2");
    struct ls_safetensors *file = NULL;
    ck_assert_int_eq(ls_safetensors_open(TORCH, &file), LS_OK);
    for (uint32_t i = 0; i < 2; i++) {
        const struct ls_saved_tensor *decoded = find(file, names[i], "decoded_1");
        variables[i] = (struct ls_filter_variable){.struct_size = sizeof(variables[i]),
                                                   .ndims = (uint32_t)decoded->ndims,
                                                   .count = 1,
                                                   .plain = 1};
        for (uint32_t k = 0; k < variables[i].ndims; k++) {
            variables[i].dims[k] = decoded->dims[k];
            variables[i].count *= (uint64_t)decoded->dims[k];
        }
    }
    variables[2] = (struct ls_filter_variable){
        .struct_size = sizeof(variables[2]), .ndims = 1, .dims = {24}, .count = 24, .plain = 1};
    ranks_open(&ranks, opened->interface, opened->host, WORLD, variables, 3, NULL);
    ck_assert_uint_eq(ranks.plan->call.variable_count, 2); // not the bias
    ck_assert(((const struct ls_filter_interface *)opened->interface)->begins(opened->host) == 2);
    for (uint32_t rank = 0; rank < WORLD; rank++) {
        uint8_t *to = ranks.of[rank].shared;
        for (uint32_t i = 0; i < 2; i++) {
            const struct ls_saved_tensor *q = find(file, names[i], "first_q");
            const uint64_t bytes = (uint64_t)(q->dims[0] * q->dims[1]) * sizeof(float);
            memcpy(to, q->data, bytes);
            to += bytes;
        }
        ck_assert(to == ranks.of[rank].shared + ranks.plan->shared_bytes);
    }
    for (uint64_t step = 0; step < STEPS; step++) {
        for (uint32_t rank = 0; rank < WORLD; rank++)
            for (uint32_t i = 0; i < 2; i++) {
                const struct ls_filter_variable *of = &ranks.plan->variables[i];
                const float *given =
                    find(file, names[i], "gradients")->data + (step * WORLD + rank) * of->count;
                for (uint64_t k = 0; k < of->count; k++)
                    ranks.of[rank].x[of->first + k] =
                        given[k] / WORLD + ranks.of[rank].residual[of->first + k];
            }
        ranks_step(&ranks);
        for (uint32_t i = 0; i < 2 && (step == 0 || step == STEPS - 1); i++) {
            const double found = difference(find(file, names[i], step ? "decoded_20" : "decoded_1"),
                                            &ranks.plan->variables[i]);
            ck_assert_msg(found <= (step ? 1e-4 : 1e-6), "%s, step %d: off by %.3g", names[i],
                          (int)step + 1, found);
            if (getenv("SHOW_DIFFERENCES"))
                printf("%s, step %d: %.3g\n", names[i], (int)step + 1, found);
        }
    }
    ls_safetensors_close(file);
    ranks_close(&ranks);
    ls_loader_destroy(loader);
}

// 40 x 20, of one direction only in the first steps, and of three in the others.
static void fill(uint64_t step)
{
    for (uint32_t rank = 0; rank < WORLD; rank++)
        for (uint64_t k = 0; k < 800; k++) {
            const uint64_t row = k / 20, column = k % 20;
            double value = 0;
            for (uint64_t i = 0; i < (step < 3 ? 1 : 3); i++)
                value += ls_random_normal(10 * i + rank, row) * ls_random_normal(7 * i, column);
            ranks.of[rank].x[k] = step == 1 ? 0 : (float)value + ranks.of[rank].residual[k];
        }
}

static double missing(void)
{
    double sum = 0, all = 0;
    for (uint64_t k = 0; k < 800; k++) {
        const double given = (double)(ranks.of[0].x[k] + ranks.of[1].x[k]);
        sum += pow((double)ranks.of[0].result[k] - given, 2);
        all += given * given;
    }
    return all > 0 ? sqrt(sum / all) : sqrt(sum);
}

// Steps of zeros and of one direction take nothing from Q that later steps need.
TEST(a_direction_that_is_lost_begins_anew)
{
    const struct ls_filter_variable variable = {
        .struct_size = sizeof(variable), .ndims = 2, .dims = {40, 20}, .count = 800, .plain = 1};
    const struct ls_opened_plugin *opened = open_filter("powersgd:rank=3,start=2");
    ranks_open(&ranks, opened->interface, opened->host, WORLD, &variable, 1, NULL);
    for (uint64_t step = 0; step < 6; step++) {
        fill(step);
        ranks_step(&ranks);
        ck_assert_int_eq(memcmp(ranks.of[0].shared, ranks.of[1].shared, ranks.plan->shared_bytes),
                         0);
        ck_assert_msg(missing() < 1e-5, "step %d: %.3g of the sum is missing", (int)step + 1,
                      missing());
    }
    ranks_close(&ranks);
    ls_loader_destroy(loader);
}
