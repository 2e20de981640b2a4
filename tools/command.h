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
};

extern const struct command train_command;
extern const struct command evaluate_command;
extern const struct command summary_command;
extern const struct command plugins_command;

#endif
