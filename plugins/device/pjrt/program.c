// SPDX-License-Identifier: Apache-2.0
// The function around instructions.
#include "plugins/device/pjrt/program.h"

struct hlo_value pjrt_program_argument(struct hlo *h, const struct pjrt_range *range)
{
    return hlo_new(h, range->type, hlo_flat((int64_t)(range->bytes / ls_dtype_bytes(range->type))));
}

static void print_result_types(struct hlo *out, const struct pjrt_function *function)
{
    for (uint32_t i = 0; i < function->result_count; i++) {
        hlo_print(out, "%s", i ? ", " : "");
        hlo_print_type(out, &function->results[i]);
    }
}

void pjrt_program_print(const struct pjrt_function *function, struct hlo *out)
{
    const struct hlo *body = function->instructions;
    hlo_print(out, "module @lockstep ");
    if (function->replicas)
        hlo_print(out, "attributes {mhlo.num_replicas = %u : i32, mhlo.num_partitions = 1 : i32} ",
                  function->replicas);
    hlo_print(out, "{\nfunc.func public @main(");
    for (uint32_t i = 0; i < function->argument_count; i++) {
        hlo_print(out, "%s%%%u: ", i ? ", " : "", function->arguments[i].id);
        hlo_print_type(out, &function->arguments[i]);
        if (function->given_to && function->given_to[i])
            hlo_print(out, " {tf.aliasing_output = %u : i32}", function->given_to[i] - 1);
    }
    hlo_print(out, ") -> (");
    print_result_types(out, function);
    hlo_print(out, ") {\n%.*sreturn ", (int)body->length, body->text ? body->text : "");
    for (uint32_t i = 0; i < function->result_count; i++)
        hlo_print(out, "%s%%%u", i ? ", " : "", function->results[i].id);
    hlo_print(out, "%s", function->result_count ? " : " : "");
    print_result_types(out, function);
    hlo_print(out, "\n}\n}\n");
    out->failed = out->failed || body->failed;
}

int32_t pjrt_program_compile(const struct pjrt_caller *caller, const char *about,
                             const struct pjrt_function *function,
                             struct PJRT_LoadedExecutable **out)
{
    struct hlo text = {0};
    int32_t status;
    pjrt_program_print(function, &text);
    if (text.failed)
        status =
            ls_host_fail(caller->host, LS_OUT_OF_MEMORY, "%s: no memory for its program", about);
    else
        status = pjrt_compile(caller, about, text.text, text.length, NULL, 0, out);
    hlo_finish(&text);
    return status;
}
