// SPDX-License-Identifier: Apache-2.0
// Starts the runs, gives them their turns, and notices when one gets on no more.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // pipe2, memfd_create
#endif
#include "tools/compare/race.h"

#include "core/base/child.h"
#include "core/base/clock.h"
#include "core/base/log.h"
#include "tools/compare/workers.h"
#include "tools/interrupt.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define POLL_MS 50
#define LINE_MOST 192 // bytes
#define ROUNDS 20 // where the user does not say how long they are
#define ROUND_STEPS_MOST 100
#define GRACE_NS \
    UINT64_C(5000000000) // a child sees its own deadlines first, and says more about them
#define SLOW_FACTOR 10 // preparing and validating show no progress
#define LEAST_PATIENCE_NS \
    UINT64_C(20000000000) // --deadline is for waiting for others: computing may take longer
#define TOGETHER_NS \
    UINT64_C(10000000000) // until the others of a run have ended: they see that it did, and close
#define EARLY_NS UINT64_C(3000000000) // the same before they have met
#define LOOK_NS UINT64_C(1000000000) // between looks whether all will come
#define LOST_SECONDS 10 // for the end after a worker is lost
#define MESSAGES_MOST ((size_t)1 << 20) // bytes
#define ERROR_PREFIX "lockstep: error: "
#define OPTION_PREFIX "--strategy: " // here it is an item of a list
#define WARNING_PREFIX "lockstep: warning: "

// ---- Interruptions ----

static volatile sig_atomic_t interruptions;

static void on_interrupt(int number)
{
    if (interruptions < 2 && !interrupt_is_echo(number))
        interruptions++;
}

static volatile sig_atomic_t lost;

static void on_loss(int number)
{
    (void)number;
    lost = 1;
    interruptions = 2;
    alarm(LOST_SECONDS);
}

bool compare_race_lost(void)
{
    return lost;
}

void compare_race_catch(void)
{
    struct sigaction action = {.sa_handler = on_interrupt}, before;
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        if (sigaction(numbers[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
            sigaction(numbers[i], &action, NULL);
    action.sa_handler = on_loss;
    sigaction(SIGUSR1, &action, NULL);
    signal(SIGPIPE, SIG_IGN); // a child that is gone is noticed when its answers end
}

int compare_race_interrupted(void)
{
    return interruptions;
}

// ---- Folders ----

char *compare_runner_path(const struct compare_runner *runner, const char *name)
{
    const size_t bytes = strlen(runner->folder) + strlen(name) + 2;
    char *path = malloc(bytes);
    if (path)
        snprintf(path, bytes, "%s/%s", runner->folder, name);
    return path;
}

static void remove_folder(const char *path)
{
    DIR *folder = opendir(path);
    for (struct dirent *entry; folder && (entry = readdir(folder));)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            unlinkat(dirfd(folder), entry->d_name, 0);
    if (folder)
        closedir(folder);
    rmdir(path);
}

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

static enum ls_status make_folder(const struct compare_race *race, struct compare_runner *runner)
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

static void forget(struct compare_race *race, struct compare_runner *runner)
{
    if (runner->process > 0) {
        kill(runner->process, SIGKILL);
        while (waitpid(runner->process, NULL, 0) < 0 && errno == EINTR)
            ;
    }
    if (runner->number)
        (void)!compare_workers_end(race->workers, runner->number, 0, NULL);
    close_ends(runner);
    close_end(&runner->messages);
    ls_child_memory_destroy(runner->shared, sizeof(*runner->shared));
    if (runner->folder)
        remove_folder(runner->folder);
    free(runner->folder);
    free(runner->message);
    free(runner->speed.processes);
    free(runner->speed.turns);
}

// Starts the child: it trains, with those that it meets, or (`look`) only finds out what that
// strategy is.
static enum ls_status start(struct compare_race *race, struct compare_runner *runner,
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
    // In memory: a child that meets a full disk must be able to say so. Appending leaves the place of the reader alone.
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
            compare_workers_leave(race->workers);
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
static void read_messages(struct compare_race *race, struct compare_runner *runner)
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
        compare_workers_end(race->workers, number, runner->ready ? TOGETHER_NS : EARLY_NS,
                            &other) ||
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
    read_messages(race, runner);
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

// A process that waits for the others of its run does not know that one has ended before it came. One
// that fails itself has some time to say so.
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
    if (compare_workers_any_ended(race->workers, runner->number) && !lost)
        looks->ended = now;
    return false;
}

enum event { SAID, ENDED, INTERRUPTED };

// Waits until the child says `word`, or has ended. An interruption ends the wait when it is the `enough`-th.
static enum event wait_for(struct compare_race *race, struct compare_runner *runner, char word,
                           int enough)
{
    uint64_t beat = atomic_load(&runner->shared->beat), since = ls_clock_ns();
    struct looks looks = {.last = since};
    for (;;) {
        if (compare_race_interrupted() >= enough)
            return INTERRUPTED;
        struct pollfd ready = {.fd = runner->answers, .events = POLLIN};
        if (poll(&ready, 1, POLL_MS) > 0) {
            char said = 0;
            const ssize_t got = read(runner->answers, &said, 1);
            if (got == 1 && said == word)
                return SAID;
            if (got == 0) {
                reap(race, runner);
                return ENDED;
            }
        }
        const uint64_t now = ls_clock_ns(), seen = atomic_load(&runner->shared->beat);
        if (waits_in_vain(race, runner, &looks)) {
            runner->end = COMPARE_ENDED;
            kill(runner->process, SIGKILL);
            reap(race, runner);
            return ENDED;
        }
        if (seen != beat) {
            beat = seen;
            since = now;
        } else if (now - since > patience(race, runner)) {
            runner->end = COMPARE_HUNG;
            runner->waited_ns = now - since;
            kill(runner->process, SIGKILL);
            reap(race, runner);
            return ENDED;
        }
    }
}

// ---- On workers other than 0 ----

enum ls_status compare_race_start(struct compare_race *race, struct compare_runner *runner,
                                  const struct compare_meeting *meeting)
{
    return start(race, runner, NULL, meeting);
}

// The child holds the other end of the pipe, and says nothing there.
bool compare_race_has_ended(const struct compare_runner *runner)
{
    struct pollfd closed = {.fd = runner->answers, .events = POLLIN};
    return poll(&closed, 1, 0) > 0;
}

void compare_race_await_end(struct compare_race *race, struct compare_runner *runner,
                            uint64_t patience_ns)
{
    const uint64_t begin = ls_clock_ns();
    for (;;) {
        struct pollfd closed = {.fd = runner->answers, .events = POLLIN};
        if (poll(&closed, 1, POLL_MS) > 0)
            break;
        const uint64_t waited = ls_clock_ns() - begin;
        if (!lost && waited <= patience_ns)
            continue;
        runner->end = COMPARE_HUNG;
        runner->waited_ns = waited;
        kill(runner->process, SIGKILL);
        break;
    }
    reap(race, runner);
}

void compare_race_remove(struct compare_race *race, size_t index)
{
    forget(race, &race->runners[index]);
    race->runners[index] = race->runners[--race->count];
}

// ---- The look ----

enum ls_status compare_race_look(struct compare_race *race, const char *strategy,
                                 uint32_t *maximum_replicas, char **message)
{
    struct compare_runner looker = {.words = -1, .answers = -1, .messages = -1};
    looker.shared = ls_child_memory_create(sizeof(*looker.shared));
    enum ls_status status = looker.shared ? make_folder(race, &looker) : LS_OUT_OF_MEMORY;
    if (!status)
        status = start(race, &looker, strategy, NULL);
    if (!status && wait_for(race, &looker, COMPARE_SAYS_READY, 1) == INTERRUPTED)
        status = LS_INTERRUPTED;
    if (!status && looker.end != COMPARE_ENDED)
        status = LS_FAILED;
    else if (!status)
        status = (enum ls_status)looker.code;
    if (!status)
        *maximum_replicas = looker.shared->maximum_replicas;
    *message = looker.message;
    looker.message = NULL;
    forget(race, &looker);
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
        status = make_folder(race, &runner);
    if (status)
        forget(race, &runner);
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
    if (race->quiet || !isatty(STDOUT_FILENO))
        return;
    char how[48] = "", line[LINE_MOST];
    fputs("\r\033[K", stdout);
    if (runner && compare_entry_world(&runner->entry) > 1)
        snprintf(how, sizeof(how), ", %u replicas", compare_entry_world(&runner->entry));
    snprintf(line, sizeof(line), "%s%.50s%s%s", what ? what : "",
             runner ? runner->entry.strategy : "",
             runner && runner->entry.note ? runner->entry.note : "", how);
    printf("%.*s", line_letters(), line);
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
        status = compare_workers_start(race->workers, race->setting, &runner->entry,
                                       &runner->number, &meeting);
    if (!status)
        status = start(race, runner, NULL, many ? &meeting : NULL);
    if (meeting.listener >= 0)
        close(meeting.listener);
    if (status)
        return status;
    const enum event event = wait_for(race, runner, COMPARE_SAYS_READY, 1);
    if (!runner->entry.timed)
        compare_race_show(race, NULL, NULL);
    runner->ready = event == SAID;
    if (runner->ready)
        read_messages(race, runner); // warnings are wanted now, not after the race
    return event == INTERRUPTED ? LS_INTERRUPTED : LS_OK;
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
    return wait_for(race, runner, COMPARE_SAYS_DONE, 1) != INTERRUPTED;
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
            (void)wait_for(race, runner, 0, 2);
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

void compare_race_finish(struct compare_race *race)
{
    for (size_t i = 0; i < race->count; i++)
        forget(race, &race->runners[i]);
    free(race->runners);
    for (size_t i = 0; i < race->warning_count; i++)
        free(race->warnings[i]);
    free(race->warnings);
    if (race->folder)
        remove_folder(race->folder);
    free(race->folder);
    *race = (struct compare_race){0};
}
