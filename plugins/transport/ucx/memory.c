// SPDX-License-Identifier: Apache-2.0
// Operations, parts and early data are taken from lists of free ones, which grow by blocks and are
// given back when the endpoint is closed. So UCX may come back with a part whose operation was
// given up.
#include "plugins/transport/ucx/ucx.h"

#define BLOCK_BYTES (UINT64_C(16) << 10)
#define HEAD_BYTES 64 // of a block; what follows is aligned to that

struct ucx_block {
    struct ucx_block *next;
};

void *ucx_allocate(const struct ucx_shared *shared, uint64_t bytes)
{
    void *memory = shared->host->allocate(shared->host, bytes, 64);
    if (memory)
        memset(memory, 0, bytes);
    return memory;
}

static void *block_take(struct ls_transport *transport, uint64_t bytes)
{
    struct ucx_block *block = ucx_allocate(transport->shared, HEAD_BYTES + bytes);
    if (!block)
        return NULL;
    block->next = transport->blocks;
    transport->blocks = block;
    return (char *)block + HEAD_BYTES;
}

void ucx_blocks_release(struct ls_transport *transport)
{
    const struct ls_host *host = transport->shared->host;
    while (transport->blocks) {
        struct ucx_block *next = transport->blocks->next;
        host->release(host, transport->blocks);
        transport->blocks = next;
    }
}

struct ucx_operation *ucx_operation_take(struct ls_transport *transport)
{
    if (!transport->free_operations) {
        struct ucx_operation *fresh = block_take(transport, BLOCK_BYTES);
        const uint64_t count = BLOCK_BYTES / sizeof(*fresh);
        for (uint64_t i = 0; fresh && i < count; i++)
            ucx_operation_release(transport, &fresh[i]);
        if (!fresh)
            return NULL;
    }
    struct ucx_operation *operation = transport->free_operations;
    transport->free_operations = operation->next;
    *operation = (struct ucx_operation){.status = LS_AGAIN, .turn = transport->turn - 1};
    return operation;
}

void ucx_operation_release(struct ls_transport *transport, struct ucx_operation *operation)
{
    operation->next = transport->free_operations;
    transport->free_operations = operation;
}

struct ucx_part *ucx_part_take(struct ls_transport *transport)
{
    if (!transport->free_parts) {
        struct ucx_part *fresh = block_take(transport, BLOCK_BYTES);
        const uint64_t count = BLOCK_BYTES / sizeof(*fresh);
        for (uint64_t i = 0; fresh && i < count; i++)
            ucx_part_release(transport, &fresh[i]);
        if (!fresh)
            return NULL;
    }
    struct ucx_part *part = transport->free_parts;
    transport->free_parts = part->next;
    return part;
}

void ucx_part_release(struct ls_transport *transport, struct ucx_part *part)
{
    part->next = transport->free_parts;
    transport->free_parts = part;
}

struct ucx_early *ucx_early_take(struct ls_transport *transport)
{
    struct ucx_early *early = transport->free_early;
    if (!early)
        return block_take(transport, sizeof(*early));
    transport->free_early = early->next;
    return early;
}

void ucx_early_release(struct ls_transport *transport, struct ucx_early *early)
{
    early->next = transport->free_early;
    transport->free_early = early;
}
