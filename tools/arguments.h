// SPDX-License-Identifier: Apache-2.0
// The command line of a subcommand: a table of options, read as GNU long options (--name=value,
// --name value), and the same table printed by --help (tools/help.h).
#ifndef LS_TOOLS_ARGUMENTS_H
#define LS_TOOLS_ARGUMENTS_H

#include "core/base/options.h"
#include "core/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

// What of a run may leave an option without an effect. That is no mistake: scripts give the same
// options to runs of any size, so the command warns (arguments_warn_idle).
enum argument_idle {
    ARGUMENT_IDLE_ALONE = 1, // one worker
    ARGUMENT_IDLE_ONE_REPLICA = 2, // of all workers together
    ARGUMENT_IDLE_UNTRAINED = 4, // no epoch and no step
    ARGUMENT_IDLE_LATE = 8, // its value is a number of steps, and the run has fewer
};

// One row for each option: its effect is the help text, and what follows says when it has none.
struct argument {
    const char *name; // without the dashes; NULL with a `help`: a heading in --help
    const char *value; // printed after '=' by --help; NULL: a flag
    const char *default_value; // NULL: none
    const char *help;
    bool optional; // may be given without its value, and takes none from the next word
    bool repeats; // may be given several times; arguments_next() has all values
    char letter; // a short name: -n VALUE or -nVALUE; 0: none
    bool writes; // its value is a file or folder to write (output_files_check)
    // Conditions, separated by spaces: NAME, which is true where that option is given, or
    // NAME=VALUE, true where it has this value, given or by default. The option is refused where
    // none of `needs` is true, and where one of `excludes` is. NULL: no such condition.
    const char *needs, *excludes;
    uint32_t idle; // bits of enum argument_idle: in such runs it has no effect
    bool first_day; // --help shows it, with the first sentence of `help`; --help=all shows all
};

#define ARGUMENTS_MAX 64
#define ARGUMENTS_REST \
    SIZE_MAX // as `most_operands`: what follows the options is the command of another program

struct arguments {
    const struct argument *table; // ends with a NULL name and a NULL help
    const char *values[ARGUMENTS_MAX]; // as given, by index in the table; NULL: not given
    const char *operands[ARGUMENTS_MAX];
    size_t operand_count;
    char **
        rest; // with ARGUMENTS_REST: the words from the first that is no option, or from behind `--`; NULL: none
    // Of options that repeat, the values after the first, in the order in which they were given.
    struct {
        size_t index;
        const char *value;
    } more[ARGUMENTS_MAX];
    size_t more_count;
    bool help, help_all;
    const char *const *commands; // names of all subcommands of `lockstep`, for one that starts them
};

// Errors are LS_USAGE, logged; for an unknown option the message gives its name here, or the
// nearest name, and lists all options. `most_operands`: the maximum number of words that are not
// options. Options without effect beside the others are refused, too.
LS_STATUS arguments_parse(const struct argument *table, int argc, char **argv, size_t most_operands,
                          struct arguments *out);

// The given value, else the default; NULL if there is neither.
const char *arguments_text(const struct arguments *arguments, const char *name);
// The values of an option that repeats: the `number`-th of them, from 0; NULL: there are no more.
const char *arguments_next(const struct arguments *arguments, const char *name, size_t number);
bool arguments_given(const struct arguments *arguments, const char *name);
// Values checked against a range; LS_USAGE, logged. Without value and default, `out` is untouched.
LS_STATUS arguments_count(const struct arguments *arguments, const char *name, uint64_t least,
                          uint64_t most, uint64_t *out);
LS_STATUS arguments_number(const struct arguments *arguments, const char *name, double *out);
LS_STATUS arguments_switch(const struct arguments *arguments, const char *name, bool *out);

// One warning that names all options which were given, with another value than their default, and
// have no effect because of `reason`, one of enum argument_idle. `why` says it, as in "with one
// worker". `steps`: those of the run, for ARGUMENT_IDLE_LATE.
void arguments_warn_idle(const struct arguments *arguments, uint32_t reason, uint64_t steps,
                         const char *why);

// Warns where --steps is more than the `steps` that `epochs` have, and says how many it needs.
void arguments_warn_steps(const struct arguments *arguments, uint64_t steps, uint64_t epochs);

// "./folder/collective-x.so:a=b/c" without its folders: "collective-x.so:a=b/c". A part of `text`.
const char *arguments_short_name(const char *text);

#endif
