// SPDX-License-Identifier: Apache-2.0
// The `lockstep` command: finds the subcommand, reads its options, and ends with its exit code.
#include "tools/command.h"

#include "core/base/log.h"
#include "core/base/options.h"

#include <errno.h>
#include <string.h>

static const struct command *const commands[] = {
    &train_command, &evaluate_command, &summary_command, &plugins_command, NULL,
};

static void print_commands(FILE *out)
{
    fputs("Lockstep trains one model on many devices; how the replicas stay together is a plugin "
          "chosen by name.\n\n"
          "usage: lockstep SUBCOMMAND [--option=value ...]\n\n",
          out);
    for (size_t i = 0; commands[i]; i++)
        fprintf(out, "  %-10s %s\n", commands[i]->name, commands[i]->summary);
    fputs("\n  lockstep SUBCOMMAND --help explains every option.\n\n"
          "Begin with:\n"
          "  lockstep train --model=cnn --dataset=fashion-mnist --strategy=ring --replicas=2 "
          "--epochs=2\n",
          out);
}

static const struct command *find_command(const char *name)
{
    const char *names[sizeof(commands) / sizeof(commands[0])] = {NULL};
    for (size_t i = 0; commands[i]; i++) {
        if (strcmp(commands[i]->name, name) == 0)
            return commands[i];
        names[i] = commands[i]->name;
    }
    const char *nearest = ls_nearest(name, names);
    if (nearest)
        ls_error("usage", "there is no subcommand '%s'; did you mean '%s'?", name, nearest);
    else
        ls_error("usage", "there is no subcommand '%s'; lockstep --help lists them", name);
    return NULL;
}

static void print_help(const struct command *command)
{
    printf("usage: lockstep %s%s%s [--option=value ...]\n\n%s.\n", command->name,
           *command->operands ? " " : "", command->operands, command->summary);
    arguments_print(command->arguments, stdout);
    if (*command->help)
        printf("\n%s", command->help);
}

// What was printed must have arrived: a full disk behind stdout is a failure too.
static int finish(enum ls_status status)
{
    if ((fflush(stdout) || ferror(stdout)) && !status) {
        ls_error("lockstep", "cannot write to standard output: %s", strerror(errno));
        return 1;
    }
    return ls_status_exit_code(status);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        print_commands(stderr);
        return 2;
    }
    if (strcmp(argv[1], "--version") == 0) {
        puts("lockstep " LS_VERSION);
        return finish(LS_OK);
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        strcmp(argv[1], "help") == 0) {
        print_commands(stdout);
        return finish(LS_OK);
    }
    const struct command *command = find_command(argv[1]);
    struct arguments arguments;
    if (!command)
        return 2;
    if (arguments_parse(command->arguments, argc - 2, argv + 2, command->most_operands, &arguments))
        return 2;
    if (arguments.help) {
        print_help(command);
        return finish(LS_OK);
    }
    return finish(command->run(&arguments));
}
