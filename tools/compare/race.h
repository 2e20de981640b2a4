// SPDX-License-Identifier: Apache-2.0
// The runs of `lockstep compare` in turn: each in a process of its own, and only one computes at a
// time.
#ifndef LS_TOOLS_COMPARE_RACE_H
#define LS_TOOLS_COMPARE_RACE_H

#include "tools/compare/child.h"

#include <sys/types.h>

enum compare_end {
    COMPARE_ALIVE,
    COMPARE_ENDED, // by itself, with `code`
    COMPARE_CRASHED, // by `signal`
    COMPARE_HUNG, // it made no progress and was killed
};

// The results of the timed processes of a run.
struct compare_speed {
    double *processes; // examples/s of each, by block; NaN: it has none
    double *turns; // examples/s of each turn, process after process
    size_t turn_count;
    uint64_t steps; // that were timed, over all processes
    bool failed; // at least one of the processes
};

struct compare_crew;

struct compare_runner {
    struct compare_entry entry;
    uint32_t
        number; // of the run among those of several workers, from 1; 0: other workers have none
    bool hidden; // not one of the user's
    char *folder;
    struct compare_shared *shared;
    pid_t process; // 0: none
    int words, answers; // -1: closed
    int messages; // its stderr, in memory; -1: none
    bool ready; // it trained, or was about to
    uint64_t given; // steps
    enum compare_end end;
    int code, signal;
    uint32_t worker; // whose process ended so
    uint64_t waited_ns; // without progress, before it was killed
    char *message; // its error line, without the prefix; NULL: none
    struct compare_speed speed; // filled by compare_speed_run()
};

struct compare_race {
    const struct compare_setting *setting;
    struct compare_crew *workers; // of a comparison over several; NULL: this process is alone
    struct compare_runner *runners;
    size_t count;
    char *folder; // private, removed at the end
    uint64_t deadline_ns; // longest time without progress
    uint64_t round_steps; // 0: about twenty rounds
    uint64_t rounds;
    uint64_t turn_steps; // of timed processes, at least; 0: by time alone
    size_t blocks; // in which every timed process finished
    bool quiet;
    bool says; // what is going on, in lines on stderr that begin with "progress: "
    char **warnings; // of the runs, each said once
    size_t warning_count;
};

// Creates the private folder.
LS_STATUS compare_race_init(struct compare_race *race, const struct compare_setting *setting);
// Ends all remaining processes and removes the folder. Takes a zeroed race.
void compare_race_finish(struct compare_race *race);

// Reads the traits of `strategy` in a child. Returns the child's status. `message`: the child's
// error line if it fails, freed by the caller; the child prints nothing on this terminal.
LS_STATUS compare_race_look(struct compare_race *race, const char *strategy,
                            uint32_t *maximum_replicas, char **message);
// Adds a run, which is prepared later. LS_OUT_OF_MEMORY.
LS_STATUS compare_race_add(struct compare_race *race, const struct compare_entry *entry,
                           bool hidden);
// Starts the child and waits until it is prepared or has ended. LS_FAILED (logged): there is no
// process; LS_INTERRUPTED.
LS_STATUS compare_race_prepare(struct compare_race *race, struct compare_runner *runner);
void compare_race_remove(struct compare_race *race, size_t index); // a run that has ended
// Lets all prepared runs train, in turn, until all have ended. LS_INTERRUPTED: every run stopped
// after its current step.
LS_STATUS compare_race_run(struct compare_race *race);

// For callers that give the turns themselves (compare_speed.c).
bool compare_race_is_running(const struct compare_runner *runner);
// One turn of `steps`; 0 ends the run. False when interrupted.
bool compare_race_turn(struct compare_race *race, struct compare_runner *runner, uint64_t steps);
// After an interruption: stops every run after its current step.
void compare_race_end_all(struct compare_race *race);
// On a terminal one line that is written anew: `what` is going on, with which run (NULL: none).
// Both NULL: nothing any more.
void compare_race_show(const struct compare_race *race, const char *what,
                       const struct compare_runner *runner);

// The path of a child's file. NULL: no memory.
char *compare_runner_path(const struct compare_runner *runner, const char *name);

#endif
