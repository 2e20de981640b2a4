// SPDX-License-Identifier: Apache-2.0
// How long a step of a run would take on a network that is not here: what a rank computes is as it
// was recorded (tools/compare/recording.h), or so many times as fast, and the collectives that it
// begins are simulated (tools/simulate/simulation.h).
//
// The ranks do the same at the same times. An exchange begins when the rank begins it and the one
// before it has ended; where the rank waits for it, it goes on when it has ended. So a step takes
// what one of an endless row of steps takes. Stages of a filter, rounds and delays need no rule of
// their own: the recording has them as exchanges, work and waits.
#ifndef LS_TOOLS_COMPARE_ELSEWHERE_H
#define LS_TOOLS_COMPARE_ELSEWHERE_H

#include "core/loader/loader.h"
#include "tools/compare/recording.h"
#include "core/topology/network.h"

struct compare_step_time {
    double seconds; // of a step, the mean
    double work; // of it, that the rank does itself
    double exchanges; // all of them, hidden or not
};

// What work is multiplied by.
struct compare_pace {
    double kernels, rest;
};

// `seconds` has those of each exchange.
struct compare_step_time compare_replay(const struct compare_recording *cycle,
                                        const double *seconds, const struct compare_pace *pace);

// Simulates each exchange among `world` ranks; `options` (may be NULL) are the collective's
// "channels=2,...", and `named` the collective that has them. LS_USAGE, LS_BAD_INPUT,
// LS_UNAVAILABLE, LS_FAILED: logged.
struct compare_elsewhere {
    struct ls_loader *loader;
    const struct ls_network *network;
    uint32_t world;
    const char *named, *options;
};
LS_STATUS compare_exchange_times(const struct compare_elsewhere *elsewhere,
                                 const struct compare_recording *cycle, double *seconds);

// Of one step, the mean over the cycle.
struct compare_work compare_mean_work(const struct compare_recording *cycle);

#endif
