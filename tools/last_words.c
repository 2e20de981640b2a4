// SPDX-License-Identifier: Apache-2.0
// Last words. A signal handler may only write: the line is put together by hand.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // on_exit, syscall
#endif
#include "tools/last_words.h"

#include "core/attributes.h"
#include "core/base/inside.h"
#include "core/base/status.h"
#include "core/loader/loader.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define DESTRUCTOR_SECONDS 8

static atomic_bool returned; // main has
static pid_t process; // that was armed
static int final_code;

// ---- One line ----

struct line {
    char text[512];
    size_t length;
};

static void add(struct line *line, const char *text)
{
    while (*text && line->length + 2 < sizeof(line->text)) {
        const unsigned char letter = (unsigned char)*text++;
        line->text[line->length++] = letter < 0x20 || letter == 0x7f ? '?' : (char)letter;
    }
}

static void add_number(struct line *line, int64_t number)
{
    char digits[24];
    size_t at = sizeof(digits) - 1;
    digits[at] = '\0';
    do
        digits[--at] = (char)('0' + number % 10);
    while ((number /= 10) > 0);
    add(line, digits + at);
}

// "`launch` (conv2d)", with its plugin where that is not said before.
static void add_call(struct line *line, const struct ls_inside_call *call, bool with_plugin)
{
    const char *const plugin[] = {" of plugin ", call->plugin};
    const char *const about[] = {" (", call->about, ")"};
    const char *const outer[] = {", within `", call->outer_name, "` of plugin ",
                                 call->outer_plugin};
    add(line, "`");
    add(line, call->name);
    add(line, "`");
    for (size_t i = 0; with_plugin && i < 2; i++)
        add(line, plugin[i]);
    for (size_t i = 0; call->about && i < 3; i++)
        add(line, about[i]);
    for (size_t i = 0; call->outer_plugin && i < 4; i++)
        add(line, outer[i]);
}

// `event`: "crashed (SIGSEGV)".
static void describe_own(struct line *line, const struct ls_inside_view *seen, const char *event)
{
    if (seen->replica >= 0) {
        add(line, "[replica ");
        add_number(line, seen->replica);
        add(line, "] ");
    }
    add(line, seen->under_way ? "plugin " : "Lockstep ");
    if (seen->under_way)
        add(line, seen->call.plugin);
    add(line, seen->under_way ? " " : "");
    add(line, event);
    add(line, seen->under_way ? " in " : " after ");
    add_call(line, &seen->call, !seen->under_way);
}

// A thread that Lockstep did not start, or that never was in a plugin: which one it belongs to is
// not known.
static void describe_others(struct line *line, const char *event)
{
    static struct ls_inside_view seen[8];
    const size_t count = ls_inside_look_at_others(seen, sizeof(seen) / sizeof(seen[0]));
    add(line, count ? "a thread that is not Lockstep's " : "Lockstep ");
    add(line, event);
    if (!count)
        add(line, ", and no plugin was running");
    for (size_t i = 0; i < count; i++) {
        add(line, i ? " and " : " during ");
        add_call(line, &seen[i].call, true);
    }
}

// After main there are only destructors, and threads that were left: whose is not known where there
// are several plugins.
static void describe_end(struct line *line, const char *event)
{
    const char *name = ls_loader_opened_name(0);
    add(line, !name ? "a plugin" : ls_loader_opened_name(1) ? "one of the plugins " : "plugin ");
    for (size_t i = 0; (name = ls_loader_opened_name(i)); i++) {
        add(line, i == 0 ? "" : ls_loader_opened_name(i + 1) ? ", " : " and ");
        add(line, name);
    }
    add(line, " ");
    add(line, event);
    add(line, " while the program ended");
}

// A terminal may have a progress bar on this line.
static void say(const char *event)
{
    struct line line = {{0}, 0};
    struct ls_inside_view seen;
    add(&line, "lockstep: error: ");
    if (atomic_load(&returned))
        describe_end(&line, event);
    else if (ls_inside_look(&seen))
        describe_own(&line, &seen, event);
    else
        describe_others(&line, event);
    line.text[line.length++] = '\n';
    if (isatty(STDERR_FILENO))
        (void)!write(STDERR_FILENO, "\n", 1);
    (void)!write(STDERR_FILENO, line.text, line.length);
}

// ---- Crashes ----

static const struct fault {
    int number;
    const char *event;
} faults[] = {
    {SIGSEGV, "crashed (SIGSEGV)"}, {SIGBUS, "crashed (SIGBUS)"},   {SIGFPE, "crashed (SIGFPE)"},
    {SIGILL, "crashed (SIGILL)"},   {SIGABRT, "crashed (SIGABRT)"},
};
enum { FAULTS = sizeof(faults) / sizeof(faults[0]) };

// Several replicas may crash at once: the first speaks, and ends the process for all. One that
// crashes while it speaks ends it at once.
static void on_fault(int number)
{
    static atomic_flag speaking = ATOMIC_FLAG_INIT;
    static _Thread_local bool speaker;
    if (!speaker && atomic_flag_test_and_set(&speaking))
        for (;;)
            pause();
    for (size_t i = 0; !speaker && i < FAULTS; i++)
        if (faults[i].number == number) {
            speaker = true;
            say(faults[i].event);
        }
    signal(number, SIG_DFL);
    raise(number);
}

static void catch_fault(int number)
{
    // Whoever handles it already has more to say.
    struct sigaction action = {.sa_handler = on_fault, .sa_flags = SA_ONSTACK | SA_NODEFER}, before;
    if (sigaction(number, NULL, &before) || (before.sa_flags & SA_SIGINFO) ||
        before.sa_handler != SIG_DFL)
        return;
    sigemptyset(&action.sa_mask);
    sigaction(number, &action, NULL);
}

// ---- Ends ----

// The process ends here. No file of ours is flushed: what is in it is not complete.
static _Noreturn void end_now(int code)
{
    for (;;)
        syscall(SYS_exit_group, code);
}

// Several replicas may do it at once: the first speaks.
static _Noreturn void refuse_to_end(int code)
{
    static atomic_flag speaking = ATOMIC_FLAG_INIT;
    struct line event = {{0}, 0};
    if (atomic_flag_test_and_set(&speaking))
        for (;;)
            pause();
    add(&event, "called exit(");
    if (code < 0)
        add(&event, "-");
    add_number(&event, code < 0 ? -(int64_t)code : code);
    add(&event, "), which ends the program,");
    say(event.text);
    end_now(EXIT_FAILURE);
}

static void on_end(int code, void *unused)
{
    (void)unused;
    if (!atomic_load(&returned) && getpid() == process)
        refuse_to_end(code);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// Plugins that end the process come here: the program's functions stand before those of libc. So do
// calls of the program's own, which mean it; none of them is to exit() or quick_exit(). Where main
// has returned its code holds. Libraries fork children of their own, to run a program; those may
// end as they like.
extern const char __executable_start, etext;

_Noreturn void exit(int code)
{
    const uintptr_t caller = (uintptr_t)__builtin_return_address(0);
    if (getpid() != process)
        end_now(code);
    if (atomic_load(&returned))
        end_now(final_code);
    if (caller < (uintptr_t)&__executable_start || caller >= (uintptr_t)&etext)
        refuse_to_end(code);
    end_now(code);
}

// One function: each must see the address that it was called from.
_Noreturn void quick_exit(int code) LS_ALIAS("exit");
_Noreturn void _exit(int code) LS_ALIAS("exit");
_Noreturn void _Exit(int code) LS_ALIAS("exit");
#endif

// Destructors of plugins run after main, and may hang.
static void on_late(int number)
{
    (void)number;
    say("hangs");
    end_now(final_code ? final_code : LS_PEER_LOST);
}

void last_words_take(void)
{
    process = getpid();
}

void last_words_arm(void)
{
    last_words_take();
    for (size_t i = 0; i < FAULTS; i++)
        catch_fault(faults[i].number);
    ls_inside_use_signal_stacks();
    on_exit(on_end, NULL);
}

int last_words_disarm(int code)
{
    final_code = code;
    atomic_store(&returned, true);
    signal(SIGALRM, on_late);
    alarm(DESTRUCTOR_SECONDS);
    return code;
}
