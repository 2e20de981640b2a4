// SPDX-License-Identifier: Apache-2.0
// Man pages and the completions of shells, made of the option tables while the project is built.
#ifndef LS_TOOLS_MANUAL_MANUAL_H
#define LS_TOOLS_MANUAL_MANUAL_H

#include "tools/command.h"

// Writes lockstep.1, a page for each subcommand, and completions for bash (lockstep), zsh
// (_lockstep) and fish (lockstep.fish) into the folder. LS_FAILED, logged.
LS_STATUS manual_write(const char *folder, const struct command *const *commands);

void manual_page(const struct command *command, FILE *out);
void manual_main_page(const struct command *const *commands, FILE *out);
void completion_bash(const struct command *const *commands, FILE *out);
void completion_zsh(const struct command *const *commands, FILE *out);
void completion_fish(const struct command *const *commands, FILE *out);

#endif
