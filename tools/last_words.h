// SPDX-License-Identifier: Apache-2.0
// What the command says when a plugin ends it: by a crash, or by calling exit(). Only the command does this: a program
// that uses the library has signal handlers of its own. [main thread]
#ifndef LS_TOOLS_LAST_WORDS_H
#define LS_TOOLS_LAST_WORDS_H

// From here on a crash is reported in one line that names the plugin and its call, and then ends the process as it would
// have. A call of exit() before last_words_disarm is reported too, and the exit code is 1; a later one does not change
// the exit code. Signals that already have a handler (a sanitizer's) keep it.
void last_words_arm(void);
// In a child process of an armed one: it is armed, too. Without this a child may call exit().
void last_words_take(void);
int last_words_disarm(int code); // returns `code`, for main to return it

#endif
