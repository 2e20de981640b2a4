// SPDX-License-Identifier: Apache-2.0
// What happens when: items in order of time, those of one time in the order in which they were put. In a large world
// most things happen at few times (all ranks do a round together), so items of one time share a place in the
// heap. [any thread]
#ifndef LS_TOOLS_SIMULATE_QUEUE_H
#define LS_TOOLS_SIMULATE_QUEUE_H

#include "core/base/status.h"

#include <stdbool.h>
#include <stdint.h>

struct ls_queue_item {
    uint32_t time; // index in `times`; UINT32_MAX: not queued
    uint32_t next, previous;
};

struct ls_queue_time {
    double at; // seconds
    uint32_t first, last; // items
    uint32_t place; // in the heap
    uint32_t next; // of the same hash, or the next that is free
};

struct ls_queue {
    struct ls_queue_item *items; // by number
    struct ls_queue_time *times;
    uint32_t *heap; // of times
    uint32_t *slots; // hash table of times
    uint32_t item_capacity, time_capacity, time_count, heap_count, slot_count, free_time, latest;
};

LS_STATUS ls_queue_init(struct ls_queue *queue);
void ls_queue_finish(struct ls_queue *queue); // takes a zeroed one

// Makes room for items 0 .. count - 1.
LS_STATUS ls_queue_reserve(struct ls_queue *queue, uint32_t count);
// Puts an item that has room, or moves it. Never fails.
void ls_queue_put(struct ls_queue *queue, uint32_t item, double at);
// When the next item is; false: there is none.
bool ls_queue_next(const struct ls_queue *queue, double *at);
uint32_t ls_queue_take(struct ls_queue *queue); // the next item; there is one

#endif
