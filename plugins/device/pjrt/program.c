// SPDX-License-Identifier: Apache-2.0
// The function around instructions.
#include "plugins/device/pjrt/program.h"

struct hlo_value pjrt_program_argument(struct hlo *h, const struct pjrt_range *range)
{
    return hlo_new(h, range->type, hlo_flat((int64_t)(range->bytes / ls_dtype_bytes(range->type))));
}

static void print_function(struct hlo *all, const struct hlo *h, const struct hlo_value *arguments,
                           uint32_t argument_count, const struct hlo_value *results,
                           uint32_t result_count)
{
    hlo_print(all, "module @lockstep {\nfunc.func public @main(");
    for (uint32_t i = 0; i < argument_count; i++) {
        hlo_print(all, "%s%%%u: ", i ? ", " : "", arguments[i].id);
        hlo_print_type(all, &arguments[i]);
    }
    hlo_print(all, ") -> (");
    for (uint32_t i = 0; i < result_count; i++) {
        hlo_print(all, "%s", i ? ", " : "");
        hlo_print_type(all, &results[i]);
    }
    hlo_print(all, ") {\n%.*sreturn ", (int)h->length, h->text ? h->text : "");
    for (uint32_t i = 0; i < result_count; i++)
        hlo_print(all, "%s%%%u", i ? ", " : "", results[i].id);
    hlo_print(all, " : ");
    for (uint32_t i = 0; i < result_count; i++) {
        hlo_print(all, "%s", i ? ", " : "");
        hlo_print_type(all, &results[i]);
    }
    hlo_print(all, "\n}\n}\n");
}

int32_t pjrt_program_compile(const struct pjrt_caller *caller, const char *about,
                             const struct hlo *h, const struct hlo_value *arguments,
                             uint32_t argument_count, const struct hlo_value *results,
                             uint32_t result_count, struct PJRT_LoadedExecutable **out)
{
    struct hlo all = {0};
    int32_t status;
    print_function(&all, h, arguments, argument_count, results, result_count);
    if (h->failed || all.failed)
        status =
            ls_host_fail(caller->host, LS_OUT_OF_MEMORY, "%s: no memory for its program", about);
    else
        status = pjrt_compile(caller, about, all.text, all.length, out);
    hlo_finish(&all);
    return status;
}
