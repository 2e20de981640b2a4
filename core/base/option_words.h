// SPDX-License-Identifier: Apache-2.0
// Options in the words of the caller. Sources and plugins say --deadline=60, as the command takes
// it; where a line of the log is written, a C program reads .deadline_seconds = 60, and a Python
// program deadline_seconds=60. [any thread]
#ifndef LS_BASE_OPTION_WORDS_H
#define LS_BASE_OPTION_WORDS_H

enum ls_option_words {
    LS_WORDS_COMMAND, // at first: lines stay as they are
    LS_WORDS_C,
    LS_WORDS_PYTHON,
};

// For all lines of this process from now on.
void ls_option_words_set(enum ls_option_words words);

// The line in these words, to be freed; NULL: as it is, also where there is no memory. What is
// between quotes and what follows "lockstep SUBCOMMAND", up to a comma, a semicolon or a
// parenthesis, stays. So do options that only the command has, and those whose value has quotes or
// brackets, or is none of the field: --verbose=off.
char *ls_option_words_apply(const char *line);

#endif
