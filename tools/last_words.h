// SPDX-License-Identifier: Apache-2.0
// The message of the command when a plugin ends it by a crash or by calling exit(). Only the command
// does this, because a program that uses the library has signal handlers of its own. [main thread]
#ifndef LS_TOOLS_LAST_WORDS_H
#define LS_TOOLS_LAST_WORDS_H

// From now on a crash is reported in one line that names the plugin and its call, and then ends the
// process as usual. A call of exit() before last_words_disarm is reported too, with exit code 1; a later
// one does not change the exit code. Signals that already have a handler (a sanitizer's) keep it.
void last_words_arm(void);
// Arms a child process of an armed one too. Without this a child may call exit().
void last_words_take(void);
int last_words_disarm(int code); // returns `code`, for main to return it

#endif
