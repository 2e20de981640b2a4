// SPDX-License-Identifier: Apache-2.0
// What --help prints, from the table of a subcommand: the options of the first day on one screen,
// or with --help=all every one.
#ifndef LS_TOOLS_HELP_H
#define LS_TOOLS_HELP_H

#include "tools/arguments.h"

struct command;

// Bytes of the lines from `text` on that make one paragraph; 0: a line of a list or table, which
// begins with spaces or has columns, or an empty one.
size_t help_paragraph(const char *text);

// Letters of a line of standard output: those of its terminal, 80 where it is none.
size_t help_width(void);

// The rows of a table. Not `all`: those of the first day, of whose texts the first sentence; where
// no row is of the first day, each row.
void help_options(const struct argument *table, bool all, size_t width, FILE *out);

void help_print(const struct command *command, bool all, FILE *out);

#endif
