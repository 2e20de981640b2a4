// SPDX-License-Identifier: Apache-2.0
// A heap of distinct times, each with a list of items; a hash table finds the time that is already there.
#include "tools/simulate/queue.h"

#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX

enum ls_status ls_queue_init(struct ls_queue *queue)
{
    *queue = (struct ls_queue){.free_time = NONE, .latest = NONE};
    return ls_queue_reserve(queue, 64);
}

void ls_queue_finish(struct ls_queue *queue)
{
    free(queue->items);
    free(queue->times);
    free(queue->heap);
    free(queue->slots);
    *queue = (struct ls_queue){0};
}

// ---- The hash table ----

static uint32_t slot_of(const struct ls_queue *queue, double at)
{
    uint64_t bits;
    memcpy(&bits, &at, sizeof(bits));
    bits *= UINT64_C(0x9e3779b97f4a7c15);
    return (uint32_t)(bits >> 32) & (queue->slot_count - 1);
}

static void add_to_slot(struct ls_queue *queue, uint32_t time)
{
    uint32_t *slot = &queue->slots[slot_of(queue, queue->times[time].at)];
    queue->times[time].next = *slot;
    *slot = time;
}

static void remove_from_slot(struct ls_queue *queue, uint32_t time)
{
    uint32_t *slot = &queue->slots[slot_of(queue, queue->times[time].at)];
    while (*slot != time)
        slot = &queue->times[*slot].next;
    *slot = queue->times[time].next;
}

// One time for each item is always enough, and one more while an item moves.
enum ls_status ls_queue_reserve(struct ls_queue *queue, uint32_t count)
{
    if (count <= queue->item_capacity)
        return LS_OK;
    uint32_t capacity = queue->item_capacity ? queue->item_capacity : 64;
    while (capacity < count)
        capacity *= 2;
    const size_t times = (size_t)capacity + 1;
    void *larger = realloc(queue->items, capacity * sizeof(*queue->items));
    if (larger)
        queue->items = larger;
    void *larger_times = realloc(queue->times, times * sizeof(*queue->times));
    if (larger_times)
        queue->times = larger_times;
    void *larger_heap = realloc(queue->heap, times * sizeof(*queue->heap));
    if (larger_heap)
        queue->heap = larger_heap;
    void *larger_slots = realloc(queue->slots, capacity * sizeof(*queue->slots));
    if (larger_slots)
        queue->slots = larger_slots;
    if (!larger || !larger_times || !larger_heap || !larger_slots)
        return LS_OUT_OF_MEMORY;
    for (uint32_t i = queue->item_capacity; i < capacity; i++)
        queue->items[i].time = NONE;
    queue->item_capacity = capacity;
    queue->time_capacity = (uint32_t)times;
    queue->slot_count = capacity;
    memset(queue->slots, 0xff, capacity * sizeof(*queue->slots));
    for (uint32_t i = 0; i < queue->heap_count; i++)
        add_to_slot(queue, queue->heap[i]);
    return LS_OK;
}

// ---- The heap ----

static void set_place(struct ls_queue *queue, uint32_t place, uint32_t time)
{
    queue->heap[place] = time;
    queue->times[time].place = place;
}

static void rise(struct ls_queue *queue, uint32_t place, uint32_t time)
{
    while (place) {
        const uint32_t parent = (place - 1) / 2;
        if (queue->times[queue->heap[parent]].at <= queue->times[time].at)
            break;
        set_place(queue, place, queue->heap[parent]);
        place = parent;
    }
    set_place(queue, place, time);
}

static void sink(struct ls_queue *queue, uint32_t place, uint32_t time)
{
    for (;;) {
        uint32_t child = 2 * place + 1;
        if (child >= queue->heap_count)
            break;
        if (child + 1 < queue->heap_count &&
            queue->times[queue->heap[child + 1]].at < queue->times[queue->heap[child]].at)
            child++;
        if (queue->times[queue->heap[child]].at >= queue->times[time].at)
            break;
        set_place(queue, place, queue->heap[child]);
        place = child;
    }
    set_place(queue, place, time);
}

static void remove_time(struct ls_queue *queue, uint32_t time)
{
    const uint32_t place = queue->times[time].place;
    const uint32_t moved = queue->heap[--queue->heap_count];
    remove_from_slot(queue, time);
    if (moved != time) {
        set_place(queue, place, moved);
        sink(queue, place, moved);
        rise(queue, queue->times[moved].place, moved);
    }
    queue->times[time].next = queue->free_time;
    queue->free_time = time;
    if (queue->latest == time)
        queue->latest = NONE;
}

static uint32_t find_time(struct ls_queue *queue, double at)
{
    if (queue->latest != NONE && queue->times[queue->latest].at == at)
        return queue->latest;
    uint32_t time = queue->slots[slot_of(queue, at)];
    while (time != NONE && queue->times[time].at != at)
        time = queue->times[time].next;
    if (time == NONE) {
        time = queue->free_time;
        if (time != NONE)
            queue->free_time = queue->times[time].next;
        else
            time = queue->time_count++;
        queue->times[time].at = at;
        queue->times[time].first = NONE;
        add_to_slot(queue, time);
        rise(queue, queue->heap_count++, time);
    }
    queue->latest = time;
    return time;
}

// ---- Items ----

static void unlink_item(struct ls_queue *queue, uint32_t number)
{
    struct ls_queue_item *item = &queue->items[number];
    struct ls_queue_time *time = &queue->times[item->time];
    if (time->first == number)
        time->first = item->next;
    else
        queue->items[item->previous].next = item->next;
    if (time->last == number)
        time->last = item->previous;
    else
        queue->items[item->next].previous = item->previous;
    if (time->first == NONE || time->last == NONE)
        remove_time(queue, item->time);
    item->time = NONE;
}

void ls_queue_put(struct ls_queue *queue, uint32_t number, double at)
{
    struct ls_queue_item *item = &queue->items[number];
    if (item->time != NONE)
        unlink_item(queue, number);
    item->time = find_time(queue, at);
    struct ls_queue_time *time = &queue->times[item->time];
    item->next = NONE;
    item->previous = time->first == NONE ? NONE : time->last;
    if (time->first == NONE)
        time->first = number;
    else
        queue->items[time->last].next = number;
    time->last = number;
}

bool ls_queue_next(const struct ls_queue *queue, double *at)
{
    if (!queue->heap_count)
        return false;
    *at = queue->times[queue->heap[0]].at;
    return true;
}

uint32_t ls_queue_take(struct ls_queue *queue)
{
    const uint32_t number = queue->times[queue->heap[0]].first;
    unlink_item(queue, number);
    return number;
}
