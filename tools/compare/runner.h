// SPDX-License-Identifier: Apache-2.0
// The process of one run, as the race and the workers that follow handle it.
#ifndef LS_TOOLS_COMPARE_RUNNER_H
#define LS_TOOLS_COMPARE_RUNNER_H

#include "tools/compare/race.h"

enum compare_event { COMPARE_EVENT_SAID, COMPARE_EVENT_ENDED, COMPARE_EVENT_INTERRUPTED };

// A folder of its own in that of the race.
LS_STATUS compare_runner_make_folder(const struct compare_race *race,
                                     struct compare_runner *runner);
void compare_folder_remove(const char *path);

// Starts the child: it trains, with those that it meets, or (`look`) only finds out what that
// strategy is. Both may be NULL. LS_FAILED, logged.
LS_STATUS compare_runner_start(struct compare_race *race, struct compare_runner *runner,
                               const char *look, const struct compare_meeting *meeting);
// Waits until the child says `word`, or has ended. An interruption ends the wait when it is the
// `enough`-th.
enum compare_event compare_runner_wait(struct compare_race *race, struct compare_runner *runner,
                                       char word, int enough);
// Takes note of what it has said on stderr so far: the first error, and warnings, which are passed
// on.
void compare_runner_read_messages(struct compare_race *race, struct compare_runner *runner);
// Ends it, on all workers, and frees what it has.
void compare_runner_forget(struct compare_race *race, struct compare_runner *runner);

// ---- On a worker other than 0, whose process says nothing but that it has ended ----

bool compare_runner_has_ended(const struct compare_runner *runner);
// Waits until it has ended; it is killed when it has not after `patience_ns`.
void compare_runner_await_end(struct compare_race *race, struct compare_runner *runner,
                              uint64_t patience_ns);

#endif
