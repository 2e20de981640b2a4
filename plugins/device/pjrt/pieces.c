// SPDX-License-Identifier: Apache-2.0
// The pieces of allocations: which buffer has which part, and when it goes back to the memory of
// the host.
#include "plugins/device/pjrt/device.h"

// ---- Pieces ----

static void drop_piece(struct ls_device *device, struct ls_buffer *buffer, uint32_t index)
{
    pjrt_release(device->caller.client, buffer->pieces[index].buffer);
    buffer->pieces[index] = buffer->pieces[--buffer->piece_count];
}

static bool overlaps(const struct pjrt_piece *piece, uint64_t offset, uint64_t bytes)
{
    return piece->offset < offset + bytes && offset < piece->offset + piece->bytes;
}

static bool is_within(const struct pjrt_piece *piece, uint64_t offset, uint64_t bytes)
{
    return piece->offset >= offset && piece->offset + piece->bytes <= offset + bytes;
}

static int32_t add_piece(struct ls_device *device, const struct pjrt_range *range,
                         struct PJRT_Buffer *value, bool ahead)
{
    struct ls_buffer *buffer = range->buffer;
    if (buffer->piece_count == buffer->piece_room) {
        const uint32_t room = 2 * buffer->piece_room + 8;
        struct pjrt_piece *pieces = realloc(buffer->pieces, room * sizeof(*pieces));
        if (!pieces) {
            pjrt_release(device->caller.client, value);
            return ls_host_fail(device->host, LS_OUT_OF_MEMORY, "no memory for a part of a buffer");
        }
        buffer->pieces = pieces;
        buffer->piece_room = room;
    }
    buffer->pieces[buffer->piece_count++] = (struct pjrt_piece){.offset = range->offset,
                                                                .bytes = range->bytes,
                                                                .type = range->type,
                                                                .ahead = ahead,
                                                                .buffer = value};
    return LS_OK;
}

static int32_t bring_home(struct ls_device *device, struct ls_buffer *buffer,
                          struct pjrt_piece *piece)
{
    if (!piece->ahead)
        return LS_OK;
    const int32_t status =
        pjrt_download(&device->caller, piece->buffer, buffer->host + piece->offset, piece->bytes);
    piece->ahead = status != LS_OK;
    return status;
}

int32_t pjrt_gather(struct ls_device *device, struct ls_buffer *buffer, uint64_t offset,
                    uint64_t bytes)
{
    int32_t status = LS_OK;
    for (uint32_t i = 0; !status && i < buffer->piece_count; i++)
        if (overlaps(&buffer->pieces[i], offset, bytes))
            status = bring_home(device, buffer, &buffer->pieces[i]);
    return status;
}

// Something else is written there: what pieces have beyond it is kept in the memory of the host.
int32_t pjrt_forget(struct ls_device *device, struct ls_buffer *buffer, uint64_t offset,
                    uint64_t bytes)
{
    for (uint32_t i = buffer->piece_count; i > 0; i--) {
        struct pjrt_piece *piece = &buffer->pieces[i - 1];
        if (!overlaps(piece, offset, bytes))
            continue;
        const int32_t status =
            is_within(piece, offset, bytes) ? LS_OK : bring_home(device, buffer, piece);
        if (status)
            return status;
        drop_piece(device, buffer, i - 1);
    }
    return LS_OK;
}

int32_t pjrt_fetch(struct ls_device *device, const struct pjrt_range *range,
                   struct PJRT_Buffer **out)
{
    struct ls_buffer *buffer = range->buffer;
    for (uint32_t i = 0; i < buffer->piece_count; i++) {
        const struct pjrt_piece *piece = &buffer->pieces[i];
        if (piece->offset == range->offset && piece->bytes == range->bytes &&
            piece->type == range->type) {
            *out = piece->buffer;
            return LS_OK;
        }
    }
    int32_t status = pjrt_gather(device, buffer, range->offset, range->bytes);
    if (!status)
        status = pjrt_upload(&device->caller, buffer->host + range->offset, range->type,
                             range->bytes / ls_dtype_bytes(range->type), out);
    return status ? status : add_piece(device, range, *out, false);
}

int32_t pjrt_store(struct ls_device *device, const struct pjrt_range *range,
                   struct PJRT_Buffer *value)
{
    const int32_t status = pjrt_forget(device, range->buffer, range->offset, range->bytes);
    if (status) {
        pjrt_release(device->caller.client, value);
        return status;
    }
    return add_piece(device, range, value, true);
}

bool pjrt_cut(struct ls_buffer *buffer, uint64_t offset)
{
    uint32_t at = 0;
    while (at < buffer->cut_count && buffer->cuts[at] < offset)
        at++;
    if (at < buffer->cut_count && buffer->cuts[at] == offset)
        return true;
    if (buffer->cut_count == buffer->cut_room) {
        const uint32_t room = 2 * buffer->cut_room + 8;
        uint64_t *cuts = realloc(buffer->cuts, room * sizeof(*cuts));
        if (!cuts)
            return false;
        buffer->cuts = cuts;
        buffer->cut_room = room;
    }
    memmove(buffer->cuts + at + 1, buffer->cuts + at,
            (buffer->cut_count - at) * sizeof(*buffer->cuts));
    buffer->cuts[at] = offset;
    buffer->cut_count++;
    return true;
}

void pjrt_drop_pieces(struct ls_device *device, struct ls_buffer *buffer)
{
    while (buffer->piece_count)
        drop_piece(device, buffer, buffer->piece_count - 1);
}
