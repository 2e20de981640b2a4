// SPDX-License-Identifier: Apache-2.0
// The subcommands of `lockstep`, one file each.
#ifndef LS_TOOLS_COMMAND_H
#define LS_TOOLS_COMMAND_H

#include "tools/arguments.h"

struct command {
    const char *name;
    const char *operands; // in the usage line; "" for none
    const char *summary; // one line
    const char *help; // paragraphs after the options; may be ""
    size_t most_operands;
    const struct argument *arguments;
    enum ls_status (*run)(const struct arguments *arguments);
    // The exit code of a run that failed with this status; NULL: that of the status.
    int (*exit_code)(enum ls_status status);
    // Its own subcommands, named "<name> <word>"; ends with NULL. NULL: none. A command with
    // subcommands uses only name, operands and summary of the fields above.
    const struct command *const *subcommands;
};

// The list that has the names for an option ("models" for "model"); NULL: none (tools/list.c).
const char *command_list_of(const char *option);
bool command_is_list(const char *word); // "models", of `lockstep list models`

extern const struct command train_command;
extern const struct command evaluate_command;
extern const struct command predict_command;
extern const struct command summary_command;
extern const struct command convert_command;
extern const struct command compare_command;
extern const struct command list_command;
extern const struct command plugins_command;
extern const struct command bench_command;
extern const struct command simulate_command;
extern const struct command verify_command;
extern const struct command launch_command;
extern const struct command plugin_command;
extern const struct command plugin_new_command;
extern const struct command plugin_check_command;

#endif
