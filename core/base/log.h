// SPDX-License-Identifier: Apache-2.0
// Messages for people, one line each, on stderr: `lockstep: error: [rank 2] ring: ...`. An error says
// what, where and what to do, and is logged once, where its cause is known. [any thread]
#ifndef LS_BASE_LOG_H
#define LS_BASE_LOG_H

#include "core/attributes.h"

#include <stddef.h>
#include <stdint.h>

// Only messages at or below this level (enum ls_log_level) are written; LS_LOG_INFO at first.
void ls_log_set_level(uint32_t level);
uint32_t ls_log_level(void);

// The rank that this thread's messages name; -1 (at first): none.
void ls_log_set_rank(int32_t rank);

// Where lines go; NULL: stderr. For tests and embedding programs. The line has no newline.
void ls_log_set_writer(void (*write)(void *context, uint32_t level, const char *line),
                       void *context);

// From here on this thread keeps its first error in `*line` (NULL at first; later ones are dropped) instead of writing
// it, for whoever waits for the thread and knows whether it still matters: ls_log_write_kept writes and frees it. NULL:
// errors are written again.
void ls_log_keep(char **line);
void ls_log_write_kept(char **line); // takes a NULL line

// How many errors were logged in all, and how many by this thread, including those that it keeps. A caller that passes
// a failure on can tell from them whether its cause was logged.
uint64_t ls_log_errors(void);
uint64_t ls_log_own_errors(void);
void ls_log_note_error(void); // counts one that a child process wrote

// Copies the last error that was written, cut to `bytes` with its NUL; "" before the first.
void ls_log_last_error(char *text, size_t bytes);

// Called before a line is written, so that a progress bar can make room; NULL: none.
void ls_log_set_before(void (*before)(void));

// Makes a text that came from elsewhere one line that moves no cursor, as every line of the log is made.
void ls_log_replace_control_characters(char *text);

LS_PRINTF(2, 3) void ls_error(const char *scope, const char *format, ...);
LS_PRINTF(2, 3) void ls_warn(const char *scope, const char *format, ...);
LS_PRINTF(2, 3) void ls_info(const char *scope, const char *format, ...);
LS_PRINTF(2, 3) void ls_debug(const char *scope, const char *format, ...);
void ls_log(uint32_t level, const char *scope, const char *message);

#endif
