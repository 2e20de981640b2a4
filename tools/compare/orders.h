// SPDX-License-Identifier: Apache-2.0
// What worker 0 of a comparison tells the others, and what they answer. It goes over a line (a pair
// of sockets) from the child that compares to the process that has joined, from there to the same
// process of every other worker, and over the line there. All have the same version of Lockstep and
// are of the same kind of machine, or could not train together.
#ifndef LS_TOOLS_COMPARE_ORDERS_H
#define LS_TOOLS_COMPARE_ORDERS_H

#include "core/wire/secret.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum compare_order_kind {
    COMPARE_NOTHING, // is to be done; it is only told that all is well
    COMPARE_START, // a process of a run
    COMPARE_LOOK, // whether that process has ended
    COMPARE_END, // of that process
    COMPARE_LEAVE, // the comparison is over; only those that have joined hear it
};

struct compare_order {
    uint32_t kind; // enum compare_order_kind
    uint32_t run; // its number
    // Of START: the setting of the run, and where its processes meet.
    uint32_t strategy; // its place in the list
    uint32_t replicas, threads, microbatches;
    uint64_t batch;
    uint32_t timed, validation;
    uint32_t port;
    char secret[LS_SECRET_DRAWN];
    uint64_t patience_ns; // of END
    uint32_t status; // of LEAVE: how it has ended
};

struct compare_answer {
    uint32_t status; // enum ls_status; logged where it arose
    uint32_t ended; // of LOOK
    // Of END: how the process has ended, as in struct compare_runner.
    uint32_t end, code, signal;
    char message[480];
};

// False: nobody is at the other end any more, or a worker is lost.
bool compare_line_send(int line, const void *data, size_t bytes);
bool compare_line_receive(int line, void *data, size_t bytes);

#endif
