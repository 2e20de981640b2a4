// SPDX-License-Identifier: Apache-2.0
// Tensors that are walked together (walk.cuh): which dimensions are one, packs, and how threads lie over what is folded.
#include "plugins/device/cuda/engine/internal.h"

#include <string.h>

enum {
    PACK = 4, // elements that are read at once
    BLOCKS = 264, // two on each of 132 multiprocessors
    AHEAD = 4, // elements that a thread asks for at once
    COLUMN_DOWN = 8, // threads that share outputs which lie side by side, where those fill a block
};

// Adds a dimension inside the others. Where each tensor goes on from the one before it, they are one.
static void add_dimension(struct cuda_walk *walk, int64_t size, const int64_t *steps)
{
    const int last = walk->dims - 1;
    bool one = last >= 0;
    if (size == 1)
        return;
    for (int t = 0; t < CUDA_WALKED; t++)
        one = one && walk->step[t][last] == size * steps[t];
    const int at = one ? last : walk->dims++;
    walk->size[at] = one ? walk->size[at] * size : size;
    for (int t = 0; t < CUDA_WALKED; t++)
        walk->step[t][at] = steps[t];
}

// How far the next place along dimension `d` of `whole` is in `part`, whose dimensions are those of the whole from the last on, or
// 1.
static int64_t step_in(const struct ls_tensor_desc *part, const struct ls_tensor_desc *whole,
                       uint32_t d)
{
    const uint32_t missing = whole->ndims - part->ndims;
    int64_t step = 1;
    if (d < missing || part->dims[d - missing] == 1)
        return 0;
    for (uint32_t i = d - missing + 1; i < part->ndims; i++)
        step *= part->dims[i];
    return step;
}

static void steps_in(const struct cuda_walked *walked, uint32_t d, int64_t *steps)
{
    memset(steps, 0, CUDA_WALKED * sizeof(*steps));
    for (uint32_t t = 0; t < walked->tensors; t++)
        steps[t] = step_in(walked->parts[t], walked->whole, d);
}

// Whether packs of four lie side by side in each tensor, or are one element of it.
static int32_t pack_of(const struct cuda_walk *walk)
{
    return walk->dims && walk->size[walk->dims - 1] % PACK == 0 ? PACK : 1;
}

void cuda_broadcast_plan(struct cuda_broadcast *b, const struct cuda_walked *walked)
{
    int64_t steps[CUDA_WALKED];
    for (uint32_t d = 0; d < walked->whole->ndims; d++) {
        steps_in(walked, d, steps);
        add_dimension(&b->walk, walked->whole->dims[d], steps);
    }
    b->tensors = walked->tensors;
    b->type = cuda_type_of(walked->whole);
    b->pack = pack_of(&b->walk);
    b->count = cuda_elements(walked->whole);
}

// The smallest power of two that is `least` at least, and `most` at most.
static int32_t power_of_two(int64_t least, int32_t most)
{
    int32_t power = 1;
    while (power < least && power < most)
        power *= 2;
    return power;
}

// Threads of a block over outputs and over what is folded, and as many parts as there are outputs too few for.
static void lay_out(struct cuda_fold *f)
{
    const int64_t units = f->rows ? f->outputs : f->outputs / f->pack;
    const int64_t each = f->rows ? f->each / f->pack : f->each;
    if (f->rows) {
        f->down = power_of_two((each + AHEAD - 1) / AHEAD, CUDA_BLOCK);
        f->across = CUDA_BLOCK / f->down;
    } else {
        f->down = power_of_two((each + AHEAD - 1) / AHEAD, COLUMN_DOWN);
        f->across = power_of_two(units, CUDA_BLOCK / f->down);
        f->down = CUDA_BLOCK / f->across;
    }
    f->tiles = (int32_t)((units + f->across - 1) / f->across);
    const int64_t most = each / (AHEAD * (int64_t)f->down), enough = BLOCKS / f->tiles;
    const int64_t parts = most < enough ? most : enough;
    f->part_count = parts < 1 ? 1 : (int32_t)parts;
}

static void set_divisors(const struct cuda_walk *walk, struct cuda_divisor *by)
{
    for (int d = 0; d < walk->dims; d++)
        by[d] = cuda_divisor_of((uint32_t)walk->size[d]);
}

bool cuda_fold_plan(struct cuda_fold *f, const struct cuda_walked *walked,
                    const struct ls_tensor_desc *out)
{
    int64_t steps[CUDA_WALKED];
    for (uint32_t d = 0; d < walked->whole->ndims; d++) {
        const bool kept = step_in(out, walked->whole, d) > 0;
        steps_in(walked, d, steps);
        add_dimension(kept ? &f->kept : &f->folded, walked->whole->dims[d], steps);
        if (walked->whole->dims[d] > 1)
            f->rows = !kept;
    }
    f->tensors = walked->tensors;
    f->type = cuda_type_of(walked->whole);
    f->pack = pack_of(f->rows ? &f->folded : &f->kept);
    f->outputs = cuda_elements(out);
    f->each = cuda_elements(walked->whole) / f->outputs;
    f->share = 1;
    if (f->outputs > INT32_MAX || f->each > INT32_MAX)
        return false;
    set_divisors(&f->kept, f->kept_by);
    set_divisors(&f->folded, f->folded_by);
    lay_out(f);
    return true;
}

uint64_t cuda_fold_bytes(const struct cuda_fold *f)
{
    return f->part_count > 1 ? (uint64_t)(f->part_count * f->outputs) * sizeof(double) : 0;
}

int32_t cuda_fold_run(struct ls_device *device, const struct cuda_fold *plan, void *scratch)
{
    struct cuda_fold f = *plan;
    f.parts = plan->part_count > 1 ? scratch : NULL;
    int32_t status = cuda_start_fold(device, &f);
    if (status || plan->part_count == 1)
        return status;
    struct cuda_fold parts = {.store = plan->store,
                              .values = {scratch},
                              .outputs = plan->outputs,
                              .each = plan->part_count,
                              .share = plan->share,
                              .type = CUDA_DOUBLES,
                              .largest = plan->largest,
                              .pack = 1};
    lay_out(&parts);
    parts.part_count = 1;
    return cuda_start_fold(device, &parts);
}
