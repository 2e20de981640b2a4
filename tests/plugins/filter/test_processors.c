// SPDX-License-Identifier: Apache-2.0
// Filters that were compiled for two processors compute the same bits.
#include "core/base/random.h"
#include "tests/plugins/filter/ranks.h"
#include "tests/support/suite.h"

#include <dlfcn.h>
#include <math.h>

#define WORLD 3
#define STEPS 4

static const char *const names[] = {"int8", "fp8", "topk", "powersgd"};
static const char *const processors[] = {"x86-64", "x86-64-v3"};

struct built {
    void *library;
    const struct ls_plugin *plugin;
    struct ls_host host;
    struct ranks ranks;
};

// What each option is without the user's word.
static const char *option(const struct ls_host *host, const char *name)
{
    const struct built *built = host->context;
    for (const struct ls_plugin_option *i = built->plugin->options; i->name; i++)
        if (!strcmp(i->name, name))
            return i->default_value;
    return NULL;
}

static void open_built(struct built *built, const char *name, const char *processor)
{
    static const struct ls_filter_variable variables[] = {{.struct_size = sizeof(*variables),
                                                           .ndims = 2,
                                                           .dims = {61, 37},
                                                           .count = 2257,
                                                           .plain = 1},
                                                          {.struct_size = sizeof(*variables),
                                                           .ndims = 4,
                                                           .dims = {3, 3, 7, 19},
                                                           .count = 1197,
                                                           .plain = 1}};
    char path[512];
    snprintf(path, sizeof(path), FOLDER "/%s-%s.so", name, processor);
    built->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    ck_assert_msg(built->library != NULL, "%s", dlerror());
    const struct ls_plugin *(*find)(void);
    *(void **)&find = dlsym(built->library, "lockstep_plugin");
    built->plugin = find();
    built->host =
        (struct ls_host){.struct_size = sizeof(built->host), .context = built, .option = option};
    ranks_open(&built->ranks, built->plugin->interface, &built->host, WORLD, variables, 2, NULL);
    ck_assert_uint_eq(built->ranks.plan->call.variable_count, 2);
}

static void run_step(struct built *built, uint64_t step)
{
    for (uint32_t rank = 0; rank < WORLD; rank++)
        for (uint64_t k = 0; k < built->ranks.plan->call.count; k++)
            built->ranks.of[rank].x[k] =
                (float)(ls_random_normal(10 * step + rank, k) * exp2((double)(k % 13) - 9)) +
                built->ranks.of[rank].residual[k];
    ranks_step(&built->ranks);
}

static void check_same(const struct built *one, const struct built *other, const char *name)
{
    const struct ls_filter_plan *plan = one->ranks.plan;
    const uint64_t bytes = plan->call.count * sizeof(float);
    for (uint32_t rank = 0; rank < WORLD; rank++) {
        const struct rank *a = &one->ranks.of[rank], *b = &other->ranks.of[rank];
        ck_assert_msg(!memcmp(a->result, b->result, bytes), "%s: the sums differ", name);
        ck_assert_msg(!memcmp(a->delivered, b->delivered, bytes), "%s: what is delivered", name);
        ck_assert_msg(!memcmp(a->scratch, b->scratch, plan->scratch_bytes), "%s: scratch", name);
        ck_assert_msg(!memcmp(a->shared, b->shared, plan->shared_bytes), "%s: shared", name);
    }
}

TEST(the_bits_are_the_same_on_two_processors)
{
    const struct built none = {0};
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        struct built built[2] = {none, none};
        for (int k = 0; k < 2; k++)
            open_built(&built[k], names[i], processors[k]);
        for (uint64_t step = 0; step < STEPS; step++) {
            for (int k = 0; k < 2; k++)
                run_step(&built[k], step);
            check_same(&built[0], &built[1], names[i]);
        }
        for (int k = 0; k < 2; k++) {
            ranks_close(&built[k].ranks);
            dlclose(built[k].library);
        }
    }
}

int main(void)
{
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) {
        puts("this processor is no x86-64-v3");
        return TEST_SKIPPED;
    }
    return test_suite_run("plugins/filter/processors");
}
