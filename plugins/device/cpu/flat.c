// SPDX-License-Identifier: Apache-2.0
// Loops over float32 on tensors of any floating type: float32 as it lies, halves through rooms in
// the first cache.
#include "plugins/device/cpu/cpu.h"

#include <omp.h>

static void *address_of(struct cpu_tensor tensor, int64_t begin)
{
    return (char *)tensor.at + (uint64_t)begin * ls_dtype_bytes(tensor.dtype);
}

const float *cpu_read(const struct ls_device *device, struct cpu_tensor tensor, int64_t begin,
                      int64_t n, float *room)
{
    const void *at = address_of(tensor, begin);
    if (tensor.dtype == LS_F32)
        return at;
    device->loops->half->widen(tensor.dtype, at, room, n);
    return room;
}

float *cpu_target(struct cpu_tensor tensor, int64_t begin, float *room)
{
    return tensor.dtype == LS_F32 ? address_of(tensor, begin) : room;
}

void cpu_written(const struct ls_device *device, struct cpu_tensor tensor, int64_t begin, int64_t n,
                 const float *room)
{
    if (tensor.dtype != LS_F32)
        device->loops->half->narrow(tensor.dtype, room, address_of(tensor, begin), n);
}

struct flat_part {
    const struct ls_device *device;
    const struct cpu_flat *flat;
};

static void run_flat_part(void *context, int64_t begin, int64_t end)
{
    const struct flat_part *p = context;
    const struct cpu_flat *f = p->flat;
    const int64_t most = f->dtype == LS_F32 ? end - begin : CPU_CHUNK;
    float rooms[CPU_FLAT_INPUTS + CPU_FLAT_OUTPUTS][CPU_CHUNK];

    for (int64_t at = begin, n; at < end; at += n) {
        const float *in[CPU_FLAT_INPUTS] = {NULL};
        float *out[CPU_FLAT_OUTPUTS] = {NULL};
        n = end - at < most ? end - at : most;
        for (int i = 0; i < CPU_FLAT_INPUTS && f->in[i]; i++) {
            const struct cpu_tensor x = {(void *)(uintptr_t)f->in[i], f->dtype};
            in[i] = cpu_read(p->device, x, at, n, rooms[i]);
        }
        for (int i = 0; i < CPU_FLAT_OUTPUTS && f->out[i]; i++)
            out[i] = cpu_target((struct cpu_tensor){f->out[i], f->dtype}, at,
                                rooms[CPU_FLAT_INPUTS + i]);
        f->loop(f->context, in, out, n);
        for (int i = 0; i < CPU_FLAT_OUTPUTS && f->out[i]; i++)
            cpu_written(p->device, (struct cpu_tensor){f->out[i], f->dtype}, at, n, out[i]);
    }
}

void cpu_flat_run(const struct ls_device *device, const struct cpu_flat *flat, double cost)
{
    struct flat_part p = {device, flat};
    cpu_parallel(device, (int64_t)flat->count, CPU_CHUNK, (double)flat->count * cost, run_flat_part,
                 &p);
}

// ---- Rows ----

// Rows that a room holds: as many as make a chunk, or one that is longer.
static int64_t rows_of_room(int64_t columns)
{
    return columns < CPU_CHUNK ? CPU_CHUNK / columns : 1;
}

static uint64_t room_floats(int64_t columns)
{
    return cpu_aligned((uint64_t)(rows_of_room(columns) * columns) * sizeof(float)) / sizeof(float);
}

uint64_t cpu_row_rooms(const struct ls_device *device, uint32_t dtype, int64_t columns)
{
    return dtype == LS_F32
               ? 0
               : device->threads * (CPU_ROW_INPUTS + 1) * room_floats(columns) * sizeof(float);
}

void cpu_row_pass_run(const struct ls_device *device, const struct cpu_row_pass *pass,
                      int64_t begin, int64_t end)
{
    const bool wide = pass->dtype == LS_F32;
    const int64_t columns = pass->columns, most = wide ? end - begin : rows_of_room(columns);
    const uint64_t floats = wide ? 0 : room_floats(columns);
    float *rooms = pass->rooms;
    if (!wide)
        rooms += (uint64_t)omp_get_thread_num() * (CPU_ROW_INPUTS + 1) * floats;

    for (int64_t first = begin, rows; first < end; first += rows) {
        const float *in[CPU_ROW_INPUTS] = {NULL};
        float *out = NULL;
        rows = end - first < most ? end - first : most;
        for (uint32_t i = 0; i < CPU_ROW_INPUTS && pass->in[i]; i++) {
            const struct cpu_tensor x = {(void *)(uintptr_t)pass->in[i], pass->dtype};
            in[i] = cpu_read(device, x, first * columns, rows * columns, rooms + i * floats);
        }
        const struct cpu_tensor y = {pass->out, pass->dtype};
        if (y.at)
            out = cpu_target(y, first * columns, rooms + CPU_ROW_INPUTS * floats);
        pass->loop(pass->context, in, out, first, rows);
        if (y.at)
            cpu_written(device, y, first * columns, rows * columns, out);
    }
}
