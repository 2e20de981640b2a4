// SPDX-License-Identifier: Apache-2.0
// The process of a run: starts it, waits for what it says, notices when it gets on no more, and
// ends it.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // pipe2, memfd_create
#endif
#include "tools/compare/runner.h"

#include "core/base/child.h"
#include "core/base/clock.h"
#include "core/base/log.h"
#include "tools/compare/crew.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define POLL_MS 50
#define GRACE_NS \
    UINT64_C(5000000000) // a child sees its own deadlines first, and says more about them
#define SLOW_FACTOR 10 // preparing and validating show no progress
#define LEAST_PATIENCE_NS \
    UINT64_C(20000000000) // --deadline is for waiting for others: computing may take longer
#define TOGETHER_NS \
    UINT64_C(10000000000) // until the others of a run have ended: they see that it did, and close
#define EARLY_NS UINT64_C(3000000000) // the same before they have met
#define LOOK_NS UINT64_C(1000000000) // between looks whether all will come
#define MESSAGES_MOST ((size_t)1 << 20) // bytes
#define ERROR_PREFIX "lockstep: error: "
#define OPTION_PREFIX "--strategy: " // here it is an item of a list
#define WARNING_PREFIX "lockstep: warning: "

// ---- Folders ----

char *compare_runner_path(const struct compare_runner *runner, const char *name)
{
    const size_t bytes = strlen(runner->folder) + strlen(name) + 2;
    char *path = malloc(bytes);
    if (path)
        snprintf(path, bytes, "%s/%s", runner->folder, name);
    return path;
}

void compare_folder_remove(const char *path)
{
    DIR *folder = opendir(path);
    for (struct dirent *entry; folder && (entry = readdir(folder));)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            unlinkat(dirfd(folder), entry->d_name, 0);
    if (folder)
        closedir(folder);
    rmdir(path);
}

enum ls_status compare_runner_make_folder(const struct compare_race *race,
                                          struct compare_runner *runner)
{
    const size_t bytes = strlen(race->folder) + 32;
    runner->folder = malloc(bytes);
    if (!runner->folder)
        return LS_OUT_OF_MEMORY;
    snprintf(runner->folder, bytes, "%s/%zu", race->folder, race->count);
    if (mkdir(runner->folder, S_IRWXU) && errno != EEXIST) {
        ls_error("compare", "cannot create a folder in '%s': %s; set TMPDIR to another folder",
                 race->folder, strerror(errno));
        return LS_FAILED;
    }
    return LS_OK;
}

// ---- Children ----

static void close_end(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static void close_ends(struct compare_runner *runner)
{
    close_end(&runner->words);
    close_end(&runner->answers);
}

void compare_runner_forget(struct compare_race *race, struct compare_runner *runner)
{
    if (runner->process > 0) {
        kill(runner->process, SIGKILL);
        while (waitpid(runner->process, NULL, 0) < 0 && errno == EINTR)
            ;
    }
    if (runner->number)
        (void)!compare_crew_end(race->workers, runner->number, 0, NULL);
    close_ends(runner);
    close_end(&runner->messages);
    ls_child_memory_destroy(runner->shared, sizeof(*runner->shared));
    if (runner->folder)
        compare_folder_remove(runner->folder);
    free(runner->folder);
    free(runner->message);
    free(runner->speed.processes);
    free(runner->speed.turns);
}

enum ls_status compare_runner_start(struct compare_race *race, struct compare_runner *runner,
                                    const char *look, const struct compare_meeting *meeting)
{
    int words[2], answers[2];
    if (pipe2(words, O_CLOEXEC)) {
        ls_error("compare", "no pipe: %s", strerror(errno));
        return LS_FAILED;
    }
    if (pipe2(answers, O_CLOEXEC)) {
        ls_error("compare", "no pipe: %s", strerror(errno));
        close(words[0]);
        close(words[1]);
        return LS_FAILED;
    }
    // In memory: a child that meets a full disk must be able to say so. Appending leaves the place
    // of the reader alone.
    runner->messages = memfd_create("messages", MFD_CLOEXEC);
    if (runner->messages >= 0)
        (void)fcntl(runner->messages, F_SETFL, O_APPEND);
    fflush(stdout);
    fflush(stderr);
    const pid_t process = fork();
    if (process == 0) {
        for (size_t i = 0; i < race->count; i++)
            close_ends(&race->runners[i]);
        if (race->workers)
            compare_crew_leave(race->workers);
        close(words[1]);
        close(answers[0]);
        const struct compare_place place = {.folder = runner->folder,
                                            .meeting = meeting,
                                            .shared = runner->shared,
                                            .words = words[0],
                                            .answers = answers[1],
                                            .messages = runner->messages};
        if (look)
            compare_child_look(race->setting, look, &place);
        compare_child_live(race->setting, &runner->entry, &place);
    }
    close(words[0]);
    close(answers[1]);
    runner->words = words[1];
    runner->answers = answers[0];
    if (process < 0) {
        ls_error("compare", "cannot start a child process: %s", strerror(errno));
        close_ends(runner);
        return LS_FAILED;
    }
    runner->process = process;
    return LS_OK;
}

// ---- What they said on stderr ----

static void keep_warning(struct compare_race *race, const char *line)
{
    for (size_t i = 0; i < race->warning_count; i++)
        if (strcmp(race->warnings[i], line) == 0)
            return;
    char **grown = realloc(race->warnings, (race->warning_count + 1) * sizeof(char *));
    if (!grown)
        return;
    race->warnings = grown;
    grown[race->warning_count] = strdup(line);
    if (grown[race->warning_count])
        race->warning_count++;
    ls_warn(NULL, "%s", line);
}

// The first error is the cause. What is neither comes from libraries.
void compare_runner_read_messages(struct compare_race *race, struct compare_runner *runner)
{
    char *all = malloc(MESSAGES_MOST);
    const ssize_t bytes =
        all && runner->messages >= 0 ? pread(runner->messages, all, MESSAGES_MOST, 0) : 0;
    FILE *file = bytes > 0 ? fmemopen(all, (size_t)bytes, "r") : NULL;
    char *line = NULL;
    size_t room = 0;
    for (ssize_t length; file && (length = getline(&line, &room, file)) > 0;) {
        if (line[length - 1] == '\n')
            line[length - 1] = '\0';
        const char *text = line + strlen(ERROR_PREFIX);
        if (strncmp(line, ERROR_PREFIX, strlen(ERROR_PREFIX)) == 0 && !runner->message)
            runner->message =
                strdup(text + (strncmp(text, OPTION_PREFIX, strlen(OPTION_PREFIX)) == 0
                                   ? strlen(OPTION_PREFIX)
                                   : 0));
        else if (!runner->entry.timed && !runner->hidden &&
                 strncmp(line, WARNING_PREFIX, strlen(WARNING_PREFIX)) == 0)
            keep_warning(race, line + strlen(WARNING_PREFIX));
    }
    if (file)
        fclose(file);
    free(line);
    free(all);
}

// ---- Waiting for them ----

// The processes of a run end together. The first to fail is the cause, and all the others have only
// lost it.
static void end_others(struct compare_race *race, struct compare_runner *runner)
{
    struct compare_other other = {0};
    const uint32_t number = runner->number;
    runner->number = 0;
    if (!number ||
        compare_crew_end(race->workers, number, runner->ready ? TOGETHER_NS : EARLY_NS, &other) ||
        other.worker == 0)
        return;
    const bool ended = runner->end == COMPARE_ENDED;
    if (!ended || (runner->code && runner->code != LS_PEER_LOST))
        return;
    runner->end = other.end;
    runner->code = other.code;
    runner->signal = other.signal;
    runner->worker = other.worker;
    free(runner->message);
    runner->message = other.message[0] ? strdup(other.message) : NULL; // names the worker
}

static void reap(struct compare_race *race, struct compare_runner *runner)
{
    int status = 0;
    while (waitpid(runner->process, &status, 0) < 0 && errno == EINTR)
        ;
    runner->process = 0;
    close_ends(runner);
    runner->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    runner->code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
    if (runner->end == COMPARE_ENDED) { // as who was killed because another will not come
        runner->signal = 0;
        runner->code = LS_PEER_LOST;
    }
    if (runner->end == COMPARE_ALIVE)
        runner->end = runner->signal ? COMPARE_CRASHED : COMPARE_ENDED;
    compare_runner_read_messages(race, runner);
    end_others(race, runner);
}

static uint64_t patience(const struct compare_race *race, const struct compare_runner *runner)
{
    const bool steps = atomic_load(&runner->shared->phase) == COMPARE_STEPPING;
    const uint64_t wanted = (steps ? 2 : SLOW_FACTOR) * race->deadline_ns + GRACE_NS;
    return wanted < LEAST_PATIENCE_NS ? LEAST_PATIENCE_NS : wanted;
}

// Looks for other processes of a run: when the last time, and when first with one that had ended.
struct looks {
    uint64_t last, ended;
};

// A process that waits for the others of its run does not know that one has ended before it came.
// One that fails itself has some time to say so.
static bool waits_in_vain(const struct compare_race *race, const struct compare_runner *runner,
                          struct looks *looks)
{
    const uint64_t now = ls_clock_ns();
    if (!runner->number || runner->ready || now - looks->last < LOOK_NS ||
        atomic_load(&runner->shared->phase) != COMPARE_PREPARING)
        return false;
    looks->last = now;
    if (looks->ended)
        return now - looks->ended > EARLY_NS;
    if (compare_crew_any_ended(race->workers, runner->number) && !compare_lost())
        looks->ended = now;
    return false;
}

enum compare_event compare_runner_wait(struct compare_race *race, struct compare_runner *runner,
                                       char word, int enough)
{
    uint64_t beat = atomic_load(&runner->shared->beat), since = ls_clock_ns();
    struct looks looks = {.last = since};
    for (;;) {
        if (compare_interrupted() >= enough)
            return COMPARE_EVENT_INTERRUPTED;
        struct pollfd ready = {.fd = runner->answers, .events = POLLIN};
        if (poll(&ready, 1, POLL_MS) > 0) {
            char said = 0;
            const ssize_t got = read(runner->answers, &said, 1);
            if (got == 1 && said == word)
                return COMPARE_EVENT_SAID;
            if (got == 0) {
                reap(race, runner);
                return COMPARE_EVENT_ENDED;
            }
        }
        const uint64_t now = ls_clock_ns(), seen = atomic_load(&runner->shared->beat);
        if (waits_in_vain(race, runner, &looks)) {
            runner->end = COMPARE_ENDED;
            kill(runner->process, SIGKILL);
            reap(race, runner);
            return COMPARE_EVENT_ENDED;
        }
        if (seen != beat) {
            beat = seen;
            since = now;
        } else if (now - since > patience(race, runner)) {
            runner->end = COMPARE_HUNG;
            runner->waited_ns = now - since;
            kill(runner->process, SIGKILL);
            reap(race, runner);
            return COMPARE_EVENT_ENDED;
        }
    }
}

// ---- On workers other than 0 ----

// The child holds the other end of the pipe, and says nothing there.
bool compare_runner_has_ended(const struct compare_runner *runner)
{
    struct pollfd closed = {.fd = runner->answers, .events = POLLIN};
    return poll(&closed, 1, 0) > 0;
}

void compare_runner_await_end(struct compare_race *race, struct compare_runner *runner,
                              uint64_t patience_ns)
{
    const uint64_t begin = ls_clock_ns();
    for (;;) {
        struct pollfd closed = {.fd = runner->answers, .events = POLLIN};
        if (poll(&closed, 1, POLL_MS) > 0)
            break;
        const uint64_t waited = ls_clock_ns() - begin;
        if (!compare_lost() && waited <= patience_ns)
            continue;
        runner->end = COMPARE_HUNG;
        runner->waited_ns = waited;
        kill(runner->process, SIGKILL);
        break;
    }
    reap(race, runner);
}
