// SPDX-License-Identifier: Apache-2.0
// What a processor gives at most: how fast oneDNN multiplies matrices in float32 and in bfloat16,
// the fastest of a few shapes, and how fast memory is copied. tools/bench-train takes these for the
// roofline of a step (roofline.py).
//
//     machine-rates THREADS MILLISECONDS
//
// Each measurement lasts so long. Prints JSON: of each precision GFLOP/s, the shape (rows, columns,
// depth) and oneDNN's name for the kernel; of copies GB/s, bytes read and bytes written. A type
// that oneDNN does not multiply here has null.
#include "core/base/clock.h"

#include <oneapi/dnnl/dnnl.h>
#include <omp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COPY_BYTES ((size_t)128 << 20)

// Rows, columns, depth. All memory of one product fits 96 MiB.
static const dnnl_dim_t shapes[][3] = {
    {1024, 1024, 1024}, {2048, 1024, 1024}, {2048, 2048, 2048},
    {1024, 3072, 768},  {1024, 768, 3072},
};

struct rate {
    double gflops;
    const dnnl_dim_t *shape;
    char kernel[64];
};

static void check(dnnl_status_t status, const char *what)
{
    if (status == dnnl_success)
        return;
    fprintf(stderr, "machine-rates: oneDNN: %s: status %d\n", what, (int)status);
    exit(1);
}

// In the layout that the kernel wants, full of ones of either type.
static dnnl_exec_arg_t operand(dnnl_engine_t engine, const_dnnl_primitive_desc_t desc,
                               dnnl_query_t query, int argument)
{
    const dnnl_memory_desc_t *md = dnnl_primitive_desc_query_md(desc, query, 0);
    const size_t bytes = dnnl_memory_desc_get_size(md);
    void *memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
    dnnl_exec_arg_t made = {.arg = argument};
    check(memory ? dnnl_success : dnnl_out_of_memory, "memory");
    for (size_t i = 0; i + 4 <= bytes; i += 4)
        memcpy((char *)memory + i,
               &(uint32_t){md->data_type == dnnl_bf16 ? 0x3f803f80 : 0x3f800000}, 4);
    check(dnnl_memory_create(&made.memory, md, engine, memory), "memory");
    return made;
}

// The shortest of the executions that fit in the time, seconds.
static double shortest(uint64_t nanoseconds, dnnl_primitive_t product, dnnl_stream_t stream,
                       dnnl_exec_arg_t *operands)
{
    const uint64_t begin = ls_clock_ns();
    uint64_t least = UINT64_MAX;
    while (ls_clock_ns() - begin < nanoseconds) {
        const uint64_t before = ls_clock_ns();
        check(dnnl_primitive_execute(product, stream, 3, operands), "execution");
        check(dnnl_stream_wait(stream), "execution");
        const uint64_t spent = ls_clock_ns() - before;
        least = spent < least ? spent : least;
    }
    return (double)least * 1e-9;
}

static void try_shape(dnnl_engine_t engine, dnnl_stream_t stream, uint64_t nanoseconds,
                      dnnl_data_type_t type, const dnnl_dim_t *shape, struct rate *best)
{
    dnnl_memory_desc_t x, w, y;
    dnnl_matmul_desc_t matmul;
    dnnl_primitive_desc_t desc;
    dnnl_primitive_t product;
    check(dnnl_memory_desc_init_by_tag(&x, 2, (dnnl_dims_t){shape[0], shape[2]}, type,
                                       dnnl_format_tag_any),
          "x");
    check(dnnl_memory_desc_init_by_tag(&w, 2, (dnnl_dims_t){shape[2], shape[1]}, type,
                                       dnnl_format_tag_any),
          "w");
    check(dnnl_memory_desc_init_by_tag(&y, 2, (dnnl_dims_t){shape[0], shape[1]}, type,
                                       dnnl_format_tag_any),
          "y");
    check(dnnl_matmul_desc_init(&matmul, &x, &w, NULL, &y), "product");
    const char *name = "unknown";
    if (dnnl_primitive_desc_create(&desc, &matmul, NULL, engine, NULL) != dnnl_success)
        return; // not in this type
    dnnl_primitive_desc_query(desc, dnnl_query_impl_info_str, 0, &name);
    if (strncmp(name, "ref", 3) == 0) { // plain loops, which take seconds and say nothing
        dnnl_primitive_desc_destroy(desc);
        return;
    }
    check(dnnl_primitive_create(&product, desc), "product");
    dnnl_exec_arg_t operands[] = {operand(engine, desc, dnnl_query_src_md, DNNL_ARG_SRC),
                                  operand(engine, desc, dnnl_query_weights_md, DNNL_ARG_WEIGHTS),
                                  operand(engine, desc, dnnl_query_dst_md, DNNL_ARG_DST)};
    const double operations = 2e-9 * (double)shape[0] * (double)shape[1] * (double)shape[2];
    const double gflops = operations / shortest(nanoseconds, product, stream, operands);
    if (gflops > best->gflops) {
        *best = (struct rate){.gflops = gflops, .shape = shape};
        snprintf(best->kernel, sizeof(best->kernel), "%s", name);
    }
    for (int i = 0; i < 3; i++) {
        void *memory = NULL;
        dnnl_memory_get_data_handle(operands[i].memory, &memory);
        dnnl_memory_destroy(operands[i].memory);
        free(memory);
    }
    dnnl_primitive_destroy(product);
    dnnl_primitive_desc_destroy(desc);
}

// GB/s, each byte counted when it is read and when it is written.
static double copy_rate(uint64_t nanoseconds, int threads)
{
    char *from = malloc(COPY_BYTES), *to = malloc(COPY_BYTES);
    const size_t part = COPY_BYTES / (size_t)threads;
    uint64_t least = UINT64_MAX;
    if (!from || !to)
        check(dnnl_out_of_memory, "copies");
    memset(from, 1, COPY_BYTES);
    memset(to, 2, COPY_BYTES);
    const uint64_t begin = ls_clock_ns();
    while (ls_clock_ns() - begin < nanoseconds) {
        const uint64_t before = ls_clock_ns();
#pragma omp parallel num_threads(threads)
        memcpy(to + (size_t)omp_get_thread_num() * part, from + (size_t)omp_get_thread_num() * part,
               part);
        const uint64_t spent = ls_clock_ns() - before;
        least = spent < least ? spent : least;
    }
    free(from);
    free(to);
    return 2.0 * (double)(part * (size_t)threads) / (double)least;
}

int main(int argc, char **argv)
{
    const int threads = argc == 3 ? atoi(argv[1]) : 0, milliseconds = argc == 3 ? atoi(argv[2]) : 0;
    const uint64_t nanoseconds = (uint64_t)milliseconds * 1000000;
    if (threads < 1 || milliseconds < 1) {
        fprintf(stderr, "usage: machine-rates THREADS MILLISECONDS\n");
        return 2;
    }
    static const struct {
        const char *precision;
        dnnl_data_type_t type;
    } types[] = {{"float32", dnnl_f32}, {"mixed_bfloat16", dnnl_bf16}};
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    omp_set_num_threads(threads);
    check(dnnl_engine_create(&engine, dnnl_cpu, 0), "engine");
    check(dnnl_stream_create(&stream, engine, dnnl_stream_default_flags), "stream");
    printf("{");
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        struct rate best = {0};
        for (size_t k = 0; k < sizeof(shapes) / sizeof(shapes[0]); k++)
            try_shape(engine, stream, nanoseconds, types[i].type, shapes[k], &best);
        if (best.gflops > 0)
            printf("\"%s\": {\"gflops\": %.1f, \"shape\": [%d, %d, %d], \"kernel\": \"%s\"}, ",
                   types[i].precision, best.gflops, (int)best.shape[0], (int)best.shape[1],
                   (int)best.shape[2], best.kernel);
        else
            printf("\"%s\": null, ", types[i].precision);
    }
    printf("\"copy_gb_s\": %.2f}\n", copy_rate(nanoseconds, threads));
    dnnl_stream_destroy(stream);
    dnnl_engine_destroy(engine);
    return 0;
}
