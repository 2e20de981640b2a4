// SPDX-License-Identifier: Apache-2.0
// Prepares the runs, gives them their turns, and ends them.
#include "tools/compare/race.h"

#include "core/base/child.h"
#include "core/base/log.h"
#include "tools/compare/runner.h"
#include "tools/compare/crew.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINE_MOST 192 // bytes
#define ROUNDS 20 // where the user does not say how long they are
#define ROUND_STEPS_MOST 100

// ---- Folders ----

enum ls_status compare_race_init(struct compare_race *race, const struct compare_setting *setting)
{
    const char *temporary = getenv("TMPDIR");
    if (!temporary || !*temporary)
        temporary = "/tmp";
    const size_t bytes = strlen(temporary) + sizeof("/lockstep-compare-XXXXXX");
    race->setting = setting;
    race->folder = malloc(bytes);
    if (!race->folder)
        return LS_OUT_OF_MEMORY;
    snprintf(race->folder, bytes, "%s/lockstep-compare-XXXXXX", temporary);
    if (!mkdtemp(race->folder)) {
        ls_error("compare", "cannot create a folder in '%s': %s; set TMPDIR to another folder",
                 temporary, strerror(errno));
        free(race->folder);
        race->folder = NULL;
        return LS_FAILED;
    }
    return LS_OK;
}

// ---- The look ----

enum ls_status compare_race_look(struct compare_race *race, const char *strategy,
                                 uint32_t *maximum_replicas, char **message)
{
    struct compare_runner looker = {.words = -1, .answers = -1, .messages = -1};
    looker.shared = ls_child_memory_create(sizeof(*looker.shared));
    enum ls_status status =
        looker.shared ? compare_runner_make_folder(race, &looker) : LS_OUT_OF_MEMORY;
    if (!status)
        status = compare_runner_start(race, &looker, strategy, NULL);
    if (!status &&
        compare_runner_wait(race, &looker, COMPARE_SAYS_READY, 1) == COMPARE_EVENT_INTERRUPTED)
        status = LS_INTERRUPTED;
    if (!status && looker.end != COMPARE_ENDED)
        status = LS_FAILED;
    else if (!status)
        status = (enum ls_status)looker.code;
    if (!status)
        *maximum_replicas = looker.shared->maximum_replicas;
    *message = looker.message;
    looker.message = NULL;
    compare_runner_forget(race, &looker);
    return status;
}

// ---- The race ----

enum ls_status compare_race_add(struct compare_race *race, const struct compare_entry *entry,
                                bool hidden)
{
    struct compare_runner runner = {
        .entry = *entry, .hidden = hidden, .words = -1, .answers = -1, .messages = -1};
    struct compare_runner *grown =
        realloc(race->runners, (race->count + 1) * sizeof(*race->runners));
    if (!grown)
        return LS_OUT_OF_MEMORY;
    race->runners = grown;
    runner.shared = ls_child_memory_create(sizeof(*runner.shared));
    enum ls_status status = runner.shared ? LS_OK : LS_OUT_OF_MEMORY;
    if (!status && !entry->timed && race->folder)
        status = compare_runner_make_folder(race, &runner);
    if (status)
        compare_runner_forget(race, &runner);
    else
        grown[race->count++] = runner;
    return status;
}

// Letters that fit in a line of the terminal, which must not begin a second one: that could not be wiped away.
static int line_letters(void)
{
    struct winsize size = {0};
    const bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col;
    return (known ? size.ws_col : 80) - 1;
}

void compare_race_show(const struct compare_race *race, const char *what,
                       const struct compare_runner *runner)
{
    const bool draws = !race->quiet && isatty(STDOUT_FILENO);
    char how[48] = "", line[LINE_MOST];
    if (runner && compare_entry_world(&runner->entry) > 1)
        snprintf(how, sizeof(how), ", %u replicas", compare_entry_world(&runner->entry));
    snprintf(line, sizeof(line), "%s%.50s%s%s", what ? what : "",
             runner ? runner->entry.strategy : "",
             runner && runner->entry.note ? runner->entry.note : "", how);
    if (race->says && what)
        fprintf(stderr, "progress: %s\n", line);
    if (!draws)
        return;
    printf("\r\033[K%.*s", line_letters(), line);
    fflush(stdout);
}

enum ls_status compare_race_prepare(struct compare_race *race, struct compare_runner *runner)
{
    if (!runner->entry.timed)
        compare_race_show(race, "preparing ", runner);
    struct compare_meeting meeting = {.listener = -1};
    const bool many = runner->entry.workers > 1;
    enum ls_status status = LS_OK;
    if (many)
        status = compare_crew_start(race->workers, race->setting, &runner->entry, &runner->number,
                                    &meeting);
    if (!status)
        status = compare_runner_start(race, runner, NULL, many ? &meeting : NULL);
    if (meeting.listener >= 0)
        close(meeting.listener);
    if (status)
        return status;
    const enum compare_event event = compare_runner_wait(race, runner, COMPARE_SAYS_READY, 1);
    if (!runner->entry.timed)
        compare_race_show(race, NULL, NULL);
    runner->ready = event == COMPARE_EVENT_SAID;
    if (runner->ready)
        compare_runner_read_messages(race, runner); // warnings are wanted now, not after the race
    return event == COMPARE_EVENT_INTERRUPTED ? LS_INTERRUPTED : LS_OK;
}

bool compare_race_is_running(const struct compare_runner *runner)
{
    return runner->ready && runner->end == COMPARE_ALIVE;
}

bool compare_race_turn(struct compare_race *race, struct compare_runner *runner, uint64_t steps)
{
    runner->given += steps;
    // Who cannot be told is gone: its answers end.
    while (write(runner->words, &steps, sizeof(steps)) < 0 && errno == EINTR)
        ;
    return compare_runner_wait(race, runner, COMPARE_SAYS_DONE, 1) != COMPARE_EVENT_INTERRUPTED;
}

// The order turns with every round, so that nobody always follows the same one.
static bool take_turns(struct compare_race *race, uint64_t round)
{
    for (size_t i = 0; i < race->count; i++) {
        const size_t place = round % 2 ? race->count - 1 - i : i;
        struct compare_runner *runner = &race->runners[(place + round) % race->count];
        if (!compare_race_is_running(runner))
            continue;
        const uint64_t left = runner->shared->steps - runner->given;
        char what[64];
        snprintf(what, sizeof(what), "round %llu of %llu: ", (unsigned long long)round + 1,
                 (unsigned long long)race->rounds);
        compare_race_show(race, what, runner);
        if (!compare_race_turn(race, runner, left < race->round_steps ? left : race->round_steps))
            return false;
    }
    return true;
}

static bool any_racing(const struct compare_race *race)
{
    for (size_t i = 0; i < race->count; i++)
        if (compare_race_is_running(&race->runners[i]))
            return true;
    return false;
}

// All end after their step and write what they have; a second interruption does not wait for that.
void compare_race_end_all(struct compare_race *race)
{
    for (size_t i = 0; i < race->count; i++)
        if (race->runners[i].process > 0)
            kill(race->runners[i].process, SIGINT);
    for (size_t i = 0; i < race->count; i++) {
        struct compare_runner *runner = &race->runners[i];
        if (compare_race_is_running(runner))
            (void)compare_runner_wait(race, runner, 0, 2);
    }
}

enum ls_status compare_race_run(struct compare_race *race)
{
    uint64_t steps = 0;
    for (size_t i = 0; i < race->count; i++)
        if (compare_race_is_running(&race->runners[i]) && race->runners[i].shared->steps > steps)
            steps = race->runners[i].shared->steps;
    if (race->round_steps == 0) {
        const uint64_t share = (steps + ROUNDS - 1) / ROUNDS;
        race->round_steps = share < 1 ? 1 : share > ROUND_STEPS_MOST ? ROUND_STEPS_MOST : share;
    }
    race->rounds = (steps + race->round_steps - 1) / race->round_steps;
    bool whole = true;
    for (uint64_t round = 0; whole && any_racing(race); round++)
        whole = take_turns(race, round);
    compare_race_show(race, NULL, NULL);
    if (whole)
        return LS_OK;
    compare_race_end_all(race);
    return LS_INTERRUPTED;
}

void compare_race_remove(struct compare_race *race, size_t index)
{
    compare_runner_forget(race, &race->runners[index]);
    race->runners[index] = race->runners[--race->count];
}

void compare_race_finish(struct compare_race *race)
{
    for (size_t i = 0; i < race->count; i++)
        compare_runner_forget(race, &race->runners[i]);
    free(race->runners);
    for (size_t i = 0; i < race->warning_count; i++)
        free(race->warnings[i]);
    free(race->warnings);
    if (race->folder)
        compare_folder_remove(race->folder);
    free(race->folder);
    *race = (struct compare_race){0};
}
