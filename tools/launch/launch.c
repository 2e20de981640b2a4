// SPDX-License-Identifier: Apache-2.0
// lockstep launch: the workers of one training as processes of this machine.
#include "tools/launch/job.h"
#include "tools/command.h"

#include "core/base/log.h"
#include "core/wire/secret.h"

#include <stdio.h>
#include <string.h>

static const struct argument table[] = {
    {NULL, NULL, NULL, "What to start"},
    {"workers", "N", NULL,
     "the number of workers, which are numbered from 0; worker 0 is the chief", .letter = 'n',
     .first_day = true},
    {"servers", "M", "0", "the number of parameter servers, for --strategy=parameter-server",
     .excludes = "make-secret", .first_day = true},

    {NULL, NULL, NULL, "What is printed"},
    {"prefix", "auto|always|never", "auto",
     "begin each line with its worker, as in [2]. auto: all lines but those that worker 0 prints "
     "on standard output, which is the output of the training; on a terminal worker 0 "
     "draws its progress bar there",
     .excludes = "make-secret", .first_day = true},

    {NULL, NULL, NULL, "When a process fails"},
    {"failure-grace", "SECONDS", "2.5",
     "how long the others have to end by themselves before they get SIGTERM, and 2 s later "
     "SIGKILL",
     .excludes = "make-secret", .idle = ARGUMENT_IDLE_ALONE},
    {"stopped-limit", "SECONDS", "1.5",
     "a process that is stopped (SIGSTOP) for this long counts as lost; 0: never",
     .excludes = "make-secret"},
    {"restart", "K", "0",
     "end all processes and start them again, K times at most, with the same command; give train "
     "--checkpoint-dir=DIR and --resume, so that it continues where it was. With --servers, and "
     "with train --elastic=MIN:MAX, only the process that failed is started again, and the others "
     "continue",
     .excludes = "make-secret", .first_day = true},

    {NULL, NULL, NULL, "When to end"},
    {"stop-grace", "SECONDS", "30",
     "after Ctrl-C, SIGTERM, SIGHUP or --timeout: how long all have to end their step and write a "
     "checkpoint, before they get SIGKILL; 0: no limit",
     .excludes = "make-secret"},
    {"timeout", "SECONDS", NULL, "ask all to end after this time; the exit code is 5",
     .excludes = "make-secret"},

    {NULL, NULL, NULL,
     "For mpirun, srun, torchrun and Kubernetes, which start the workers themselves"},
    {"make-secret", "FILE", NULL,
     "write a new secret to FILE (mode 0600; a file that exists is not replaced), start nothing. "
     "The workers read it when LOCKSTEP_SECRET_FILE=FILE",
     .writes = true, .excludes = "workers", .first_day = true},
    {NULL, NULL, NULL, NULL},
};

static const char help[] =
    "Examples:\n"
    "  lockstep launch -n 4 -- train --model=cnn --dataset=fashion-mnist --strategy=ring\n"
    "  lockstep launch -n 2 --restart=3 -- train --model=cnn --dataset=fashion-mnist "
    "--checkpoint-dir=checkpoints --resume\n"
    "  lockstep launch -n 2 -- ./my-program --its-option\n"
    "  lockstep launch --make-secret=secret.key\n\n"
    "After -- comes a subcommand of lockstep, such as train, or else a program: a path, or a name "
    "that is looked up in PATH. All processes get the same arguments. Each finds its place in the "
    "environment: LOCKSTEP_RANK, LOCKSTEP_WORLD_SIZE, LOCKSTEP_LOCAL_RANK, "
    "LOCKSTEP_LOCAL_WORLD_SIZE, LOCKSTEP_ADDRESS, LOCKSTEP_SECRET, LOCKSTEP_ROLE, "
    "LOCKSTEP_SERVERS, LOCKSTEP_RESTART_COUNT, and worker 0 LOCKSTEP_LISTEN_FD. Standard input is "
    "empty.\n\n"
    "The exit code is 0 when all ended with 0; 5 when one was lost (killed by a signal, stopped, "
    "silent) or --timeout passed; else that of the first that failed, which is shown with its last "
    "lines; 143 after SIGTERM, 130 after Ctrl-C. The first of these signals is passed on as "
    "SIGTERM, the second one ends everything at once. Whatever the processes have started ends "
    "with them.\n";

// The command failed with it; 0: its status says.
static int ended_with;

static int exit_code(enum ls_status status)
{
    return ended_with ? ended_with : ls_status_exit_code(status);
}

static enum ls_status read_seconds(const struct arguments *arguments, const char *name, bool zero,
                                   uint64_t *out_ns)
{
    double seconds = 0;
    const enum ls_status status = arguments_number(arguments, name, &seconds);
    if (status)
        return status;
    if (arguments_text(arguments, name) &&
        !(seconds >= 0 && seconds <= 1e9 && (zero || seconds > 0))) {
        ls_error("usage", "--%s=%s: expected %s 0", name, arguments_text(arguments, name),
                 zero ? "at least" : "more than");
        return LS_USAGE;
    }
    *out_ns = (uint64_t)(seconds * 1e9);
    return LS_OK;
}

static enum ls_status read_prefix(const struct arguments *arguments, enum launch_prefix *out)
{
    static const char *const names[] = {"auto", "always", "never", NULL};
    const char *text = arguments_text(arguments, "prefix");
    for (size_t i = 0; names[i]; i++)
        if (strcmp(text, names[i]) == 0) {
            *out = (enum launch_prefix)i;
            return LS_OK;
        }
    ls_error("usage", "--prefix=%s: expected auto, always or never", text);
    return LS_USAGE;
}

static enum ls_status read_counts(const struct arguments *arguments, struct launch_options *out)
{
    uint64_t workers = 0, servers = 0, restarts = 0;
    if (!arguments_given(arguments, "workers")) {
        ls_error("usage", "launch needs the number of workers, such as -n 4");
        return LS_USAGE;
    }
    enum ls_status status =
        arguments_count(arguments, "workers", 1, LAUNCH_PROCESSES_MOST, &workers);
    if (!status)
        status = arguments_count(arguments, "servers", 0, LAUNCH_PROCESSES_MOST, &servers);
    if (!status)
        status = arguments_count(arguments, "restart", 0, 1000000, &restarts);
    out->workers = (uint32_t)workers;
    out->servers = (uint32_t)servers;
    out->restarts = (uint32_t)restarts;
    return status;
}

static bool is_command(const char *const *commands, const char *word)
{
    while (*commands && strcmp(*commands, word) != 0)
        commands++;
    return *commands != NULL;
}

// Options that only train has, and that stand before the --, are refused as unknown; so is a
// command that is not there.
static enum ls_status read_command(const struct arguments *arguments, struct launch_options *out)
{
    out->words = arguments->rest;
    if (!arguments->rest || !*arguments->rest) {
        ls_error("usage",
                 "launch needs a command, such as lockstep launch -n 4 -- train --model=cnn");
        return LS_USAGE;
    }
    out->commands = arguments->commands;
    out->own = is_command(out->commands, out->words[0]);
    if (strcmp(out->words[0], "launch") == 0) {
        ls_error("usage", "launch cannot launch itself: give -n the number of all workers");
        return LS_USAGE;
    }
    return LS_OK;
}

static bool has_word(char *const *words, const char *word)
{
    while (*words && strcmp(*words, word) != 0)
        words++;
    return *words != NULL;
}

// train --elastic=MIN:MAX goes on with MIN workers, so this program does, too.
static enum ls_status read_elastic(struct launch_options *out)
{
    static const char option[] = "--elastic=";
    unsigned least = 0;
    char colon = 0;
    char *const *words = out->words;
    while (*words && strncmp(*words, option, strlen(option)) != 0)
        words++;
    if (!*words)
        return LS_OK;
    const bool valid = sscanf(*words + strlen(option), "%6u%c", &least, &colon) == 2 &&
                       colon == ':' && least >= 1 && least <= out->workers;
    if (!valid && !out->own) // an option of another program, with another meaning
        return LS_OK;
    if (!valid) {
        ls_error("usage", "%s: expected MIN:MAX, with MIN from 1 to the %u workers of -n", *words,
                 out->workers);
        return LS_USAGE;
    }
    out->elastic = true;
    out->least_workers = least;
    return LS_OK;
}

static enum ls_status make_secret(const struct arguments *arguments)
{
    const char *path = arguments_text(arguments, "make-secret");
    if (arguments->rest) {
        ls_error("usage", "--make-secret=FILE only writes a file: call it without a command");
        return LS_USAGE;
    }
    const enum ls_status status = ls_secret_make(path);
    if (!status)
        printf("%s has a new secret. Give all workers LOCKSTEP_SECRET_FILE=%s\n", path, path);
    return status;
}

static enum ls_status run(const struct arguments *arguments)
{
    struct launch_options options = {0};
    if (arguments_given(arguments, "make-secret"))
        return make_secret(arguments);
    enum ls_status status = read_counts(arguments, &options);
    if (!status)
        status = read_prefix(arguments, &options.prefix);
    if (!status)
        status = read_seconds(arguments, "failure-grace", true, &options.failure_grace_ns);
    if (!status)
        status = read_seconds(arguments, "stopped-limit", true, &options.stopped_ns);
    if (!status)
        status = read_seconds(arguments, "stop-grace", true, &options.stop_grace_ns);
    if (!status)
        status = read_seconds(arguments, "timeout", false, &options.timeout_ns);
    if (!status)
        status = read_command(arguments, &options);
    if (!status)
        status = read_elastic(&options);
    if (!status && options.workers + options.servers == 1)
        arguments_warn_idle(arguments, ARGUMENT_IDLE_ALONE, 0, "with one process");
    if (status)
        return status;
    if (options.restarts && !options.servers && !options.elastic && options.own &&
        strcmp(options.words[0], "train") == 0 && !has_word(options.words, "--resume"))
        ls_warn("launch", "--restart without train --checkpoint-dir=DIR --resume begins the "
                          "training anew after a failure");
    return launch_run(&options, &ended_with);
}

const struct command launch_command = {
    .name = "launch",
    .operands = "-n N [--option=value ...] -- COMMAND",
    .summary = "starts the workers of one training on this machine, and ends them together",
    .help = help,
    .most_operands = ARGUMENTS_REST,
    .arguments = table,
    .run = run,
    .exit_code = exit_code,
};
