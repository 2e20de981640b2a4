// SPDX-License-Identifier: Apache-2.0
// The `lockstep` command: finds the subcommand, reads its options, and ends with its exit code.
#include "tools/command.h"
#include "tools/help.h"
#include "tools/interrupt.h"
#include "tools/last_words.h"
#include "tools/manual/manual.h"
#include "tools/output_files.h"

#include "core/base/log.h"
#include "core/base/options.h"
#include "core/report/made.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST_COMMANDS 32
#define WRITE_MANUAL "--write-manual="

static const struct command *const commands[] = {
    &train_command,    &evaluate_command,
    &predict_command,  &compare_command,
    &summary_command,  &convert_command,
    &list_command,     &plugins_command,
    &simulate_command, &bench_command,
    &plugin_command,   &verify_command,
    &launch_command,   NULL,
};

static void print_commands(FILE *out)
{
    fputs("Lockstep trains one model on many devices. A strategy, chosen by name, keeps the "
          "replicas together.\n\n"
          "usage: lockstep SUBCOMMAND [--option=value ...]\n\n",
          out);
    for (size_t i = 0; commands[i]; i++)
        fprintf(out, "  %-10s %s\n", commands[i]->name, commands[i]->summary);
    fputs("\n  lockstep SUBCOMMAND --help explains its first options, --help=all every one.\n\n"
          "Begin with:\n"
          "  lockstep train --model=cnn --dataset=fashion-mnist --strategy=ring --replicas=2 "
          "--epochs=2\n",
          out);
}

static void print_subcommands(const struct command *command, FILE *out)
{
    fprintf(out, "usage: lockstep %s %s ...\n\n", command->name, command->operands);
    for (size_t i = 0; command->subcommands[i]; i++)
        fprintf(out, "  %-13s %s\n", command->subcommands[i]->name,
                command->subcommands[i]->summary);
    fprintf(out, "\n  lockstep %s WORD --help explains its options.\n", command->name);
}

// The last word of its name: "new" of "plugin new".
static const char *word_of(const struct command *command)
{
    const char *space = strrchr(command->name, ' ');
    return space ? space + 1 : command->name;
}

// `before` is what stands before the word: "lockstep plugin".
static const struct command *find_command(const struct command *const *list, const char *before,
                                          const char *word)
{
    const char *names[MOST_COMMANDS + 1] = {NULL};
    for (size_t i = 0; list[i] && i < MOST_COMMANDS; i++) {
        names[i] = word_of(list[i]);
        if (strcmp(names[i], word) == 0)
            return list[i];
    }
    const char *nearest = ls_nearest(word, names);
    if (list == commands && command_is_list(word))
        ls_error("usage", "unknown subcommand '%s'; it is lockstep list %s", word, word);
    else if (list == commands && strcmp(word, "version") == 0)
        ls_error("usage", "unknown subcommand 'version'; it is lockstep --version");
    else if (nearest)
        ls_error("usage", "unknown subcommand '%s'; did you mean '%s'?", word, nearest);
    else
        ls_error("usage", "unknown subcommand '%s'; %s --help lists them", word, before);
    return NULL;
}

// What SIGPIPE did before a command held it off. Where nothing was held off, EPIPE tells that whoever started the program
// ignores the signal: then a failure is an exit code.
static void (*pipe_signal)(int) = SIG_IGN;

// What was printed must have arrived: a full disk behind stdout is a failure too.
static int finish(enum ls_status status)
{
    errno = 0;
    if ((fflush(stdout) || ferror(stdout)) && !status) {
        // Where an earlier write failed, a new one tells why.
        if (!errno && write(STDOUT_FILENO, "\n", 1) == 1)
            errno = 0;
        if (errno == EPIPE && pipe_signal != SIG_IGN) { // as if it had not been held off
            signal(SIGPIPE, SIG_DFL);
            raise(SIGPIPE);
        }
        ls_error("lockstep", "cannot write to standard output: %s",
                 errno ? strerror(errno) : "an earlier write failed");
        return 1;
    }
    return status == LS_INTERRUPTED ? interrupt_exit_code() : ls_status_exit_code(status);
}

// Whether LS_FAILED is an answer of the command, said on stdout: something is wrong with what it looked at.
static bool may_answer_no(const struct command *command)
{
    return command == &verify_command || command == &compare_command || command == &bench_command ||
           command == &plugin_check_command;
}

// No command fails without a word, wherever it ran out of memory.
static int end(const struct command *command, enum ls_status status)
{
    const bool answer = status == LS_FAILED && may_answer_no(command);
    if (status && status != LS_INTERRUPTED && !answer && !ls_log_errors())
        ls_error(command->name, "%s%s", ls_status_text(status),
                 status == LS_OUT_OF_MEMORY ? "; smaller sizes need less"
                                            : ", without a reason from a plugin or from Lockstep");
    const int code = finish(status);
    return status && command->exit_code ? command->exit_code(status) : code;
}

static bool is_help(const char *word)
{
    return strcmp(word, "--help") == 0 || strcmp(word, "--help=all") == 0 ||
           strcmp(word, "-h") == 0 || strcmp(word, "help") == 0;
}

// Where a standard file is closed, the next file or pipe that is opened would take its number, and be written over. The
// lowest free number is the one that open() gives.
static bool open_standard_files(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) != fd)
            return false;
    return true;
}

static int run_command(int argc, char **argv)
{
    signal(SIGXFSZ, SIG_IGN); // a limit on file sizes is an error of the write, with a message
    if (argc < 2) {
        print_commands(stderr);
        return 2;
    }
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0) {
        printf("lockstep %s (commit %s, %s)\n", LS_VERSION, ls_commit, LS_BUILD);
        puts("built with " LS_LIBRARIES);
        return finish(LS_OK);
    }
    // What the build calls (tools/manual/meson.build).
    if (strncmp(argv[1], WRITE_MANUAL, strlen(WRITE_MANUAL)) == 0)
        return finish(manual_write(argv[1] + strlen(WRITE_MANUAL), commands));
    if (is_help(argv[1]) && (argc == 2 || argv[2][0] == '-')) {
        print_commands(stdout);
        return finish(LS_OK);
    }
    // `help train` is `train --help`, and `help plugin new` is `plugin new --help`.
    char *const how = strcmp(argv[1], "--help=all") == 0 ? argv[1] : "--help";
    char *asked[] = {argv[0], argc > 2 ? argv[2] : NULL, argc > 3 ? argv[3] : how, how, NULL};
    if (is_help(argv[1])) {
        argv = asked;
        argc = 4;
    }
    const struct command *command = find_command(commands, "lockstep", argv[1]);
    int words = 2;
    if (command && command->subcommands) {
        if (argc < 3 || is_help(argv[2])) {
            print_subcommands(command, argc < 3 ? stderr : stdout);
            return argc < 3 ? 2 : finish(LS_OK);
        }
        char before[64];
        snprintf(before, sizeof(before), "lockstep %s", command->name);
        command = find_command(command->subcommands, before, argv[2]);
        words = 3;
    }
    struct arguments arguments;
    if (!command)
        return 2;
    if (arguments_parse(command->arguments, argc - words, argv + words, command->most_operands,
                        &arguments))
        return 2;
    if (arguments.help) {
        help_print(command, arguments.help_all, stdout);
        return finish(LS_OK);
    }
    if (output_files_check(&arguments))
        return 2;
    const char *names[MOST_COMMANDS + 1] = {NULL};
    for (size_t i = 0; commands[i] && i < MOST_COMMANDS; i++)
        names[i] = commands[i]->name;
    arguments.commands = names;
    // The reader of standard output may stop (`| head`) while files are still to be written. Commands that only print
    // lists end then.
    if (command != &list_command && command != &plugins_command && command != &summary_command)
        pipe_signal = signal(SIGPIPE, SIG_IGN);
    return end(command, command->run(&arguments));
}

// Reports name the program that was started. The Python package, which starts the command for a program, has its words
// as a JSON list in this variable.
static void note_command_line(char **argv)
{
    const char *text = getenv("LOCKSTEP_COMMAND_LINE");
    json_t *list = text ? json_loads(text, 0, NULL) : NULL;
    const size_t count = json_array_size(list);
    const char **words = list ? calloc(count + 1, sizeof(*words)) : NULL;
    for (size_t i = 0; words && i < count; i++)
        words[i] = json_string_value(json_array_get(list, i));
    ls_made_set_command_line(words ? words : (const char *const *)argv);
    free(words);
    json_decref(list);
}

int main(int argc, char **argv)
{
    if (!open_standard_files())
        return 1; // nobody could read why
    ls_made_set_commit(ls_commit);
    note_command_line(argv);
    last_words_arm();
    return last_words_disarm(run_command(argc, argv));
}
