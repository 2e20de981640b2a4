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

// The rank that this thread's messages name, but for information, which is about the whole training;
// -1 (at first): none.
void ls_log_set_rank(int32_t rank);

// Redirects lines to `write`; NULL: stderr. For tests and embedding programs. The line has no
// newline.
void ls_log_set_writer(void (*write)(void *context, uint32_t level, const char *line),
                       void *context);

// From now on this thread stores its first error in `*line` (which starts as NULL; later errors are
// dropped) instead of writing it. The thread that waits for this one decides whether the error
// still matters; ls_log_write_kept then writes and frees it. NULL: errors are written again. Returns
// where errors were stored before, or NULL.
char **ls_log_keep(char **line);
void ls_log_write_kept(char **line); // takes a NULL line
// A line that was kept and written is this thread's last error, too.
void ls_log_note_line(const char *line);

// Why a plugin has last refused a request of this thread (LS_UNSUPPORTED); "": no reason. Whoever
// asked says it where nothing else works.
void ls_log_note_refusal(const char *reason);
const char *ls_log_refusal(void);

// The number of errors written on behalf of this thread's caller (core/base/caller.h). Who passes on a
// failure compares the numbers to find out whether the cause was logged; for those of this thread
// alone see ls_thread_reasons().
uint64_t ls_log_errors(void);
void ls_log_note_error(void); // counts one that a child process wrote

// Between two lines that say how long this process has waited: 1 s on a terminal, 10 s in a file.
uint64_t ls_log_wait_ns(void);

// Before and after a fork: the child must not find the lock taken by a thread that it does not have.
void ls_log_lock(void);
void ls_log_unlock(void);

// Called before a line is written, so that a progress bar can make room; NULL: none.
void ls_log_set_before(void (*before)(void));

// Makes a text from outside safe to print: one line, without control characters that move the
// cursor. Every line of the log is treated like this.
void ls_log_replace_control_characters(char *text);

LS_PRINTF(2, 3) void ls_error(const char *scope, const char *format, ...);
LS_PRINTF(2, 3) void ls_warn(const char *scope, const char *format, ...);
LS_PRINTF(2, 3) void ls_info(const char *scope, const char *format, ...);
LS_PRINTF(2, 3) void ls_debug(const char *scope, const char *format, ...);
void ls_log(uint32_t level, const char *scope, const char *message);

#endif
