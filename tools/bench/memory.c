// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/memory.h"

#include "core/base/shared_memory.h"
#include "core/plugin/collective.h"

#include <stdlib.h>
#include <string.h>

static enum ls_status open_devices(struct bench_memory *memory)
{
    enum ls_status status = LS_OK;
    memory->places = calloc(memory->count, sizeof(*memory->places));
    if (!memory->places)
        return LS_OUT_OF_MEMORY;
    for (uint32_t i = 0; !status && i < memory->count; i++) {
        const struct ls_device_options options = {.interface = memory->ops,
                                                  .host = memory->plugin->host,
                                                  .index = (memory->first + i) % memory->physical,
                                                  .threads = 1};
        status = ls_device_open(&options, &memory->places[i].device);
    }
    return status;
}

enum ls_status bench_memory_open(struct ls_loader *loader, const char *device,
                                 struct bench_memory *out)
{
    struct ls_device_info info = {.struct_size = sizeof(info)};
    if (!device)
        return LS_OK;
    enum ls_status status =
        ls_loader_open_text(loader, "--device", LS_KIND_DEVICE, device, &out->plugin);
    if (status)
        return status;
    const struct ls_device_interface *ops = out->plugin->interface;
    status = (enum ls_status)ops->describe(out->plugin->host, &info);
    memcpy(out->hardware, info.hardware, sizeof(out->hardware));
    out->physical = info.physical_count ? info.physical_count : 1;
    if (status || ops->memory_kind == LS_MEMORY_HOST)
        return status;
    out->ops = ops;
    return open_devices(out);
}

void bench_memory_close(struct bench_memory *memory)
{
    for (uint32_t i = 0; memory->places && i < memory->count; i++)
        ls_device_close(memory->places[i].device);
    free(memory->places);
    *memory = (struct bench_memory){0};
}

bool bench_memory_fits(const struct bench_memory *memory, const struct ls_opened_plugin *collective)
{
    const struct ls_collective_interface *ops = collective->interface;
    const uint32_t kind = memory->ops ? memory->ops->memory_kind : LS_MEMORY_HOST;
    if (ls_is_auto(collective) || ops->build_schedule)
        return true;
    return ops->memory_kinds >> kind & 1 &&
           !(ops->one_rank_a_device && memory->here > memory->physical);
}

struct ls_memory bench_memory_allocate(const struct bench_memory *memory, uint32_t rank,
                                       size_t bytes)
{
    if (memory->ops)
        return ls_device_allocate(memory->places[rank].device, bytes);
    void *buffer = ls_segment_allocate(bytes, 4096);
    return ls_host_memory(buffer ? memset(buffer, 0, bytes) : NULL);
}

void bench_memory_release(const struct bench_memory *memory, uint32_t rank, struct ls_memory buffer)
{
    if (memory->ops)
        ls_device_release(memory->places[rank].device, buffer);
    else
        ls_segment_free(ls_address(buffer));
}

enum ls_status bench_memory_zero(const struct bench_memory *memory, uint32_t rank,
                                 struct ls_memory buffer, size_t bytes)
{
    if (memory->ops)
        return ls_device_zero(memory->places[rank].device, buffer, bytes, NULL);
    memset(ls_address(buffer), 0, bytes);
    return LS_OK;
}

enum ls_status bench_memory_copy(const struct bench_memory *memory, uint32_t rank,
                                 struct ls_memory to, struct ls_memory from, size_t bytes)
{
    if (memory->ops)
        return ls_device_copy(memory->places[rank].device, to, from, bytes, NULL);
    memcpy(ls_address(to), ls_address(from), bytes);
    return LS_OK;
}
