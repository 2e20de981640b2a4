// SPDX-License-Identifier: Apache-2.0
// One line per message: prefix, rank, scope, text; written with one call, so that lines of several
// threads and processes do not mix.
#include "core/base/log.h"

#include "core/base/caller.h"
#include "core/base/option_words.h"
#include "core/base/plain_locale.h"
#include "core/plugin/plugin.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static _Atomic uint32_t log_level = LS_LOG_INFO;
static _Thread_local int32_t log_rank = -1;
static _Thread_local char **log_kept;
static _Thread_local char log_refused[256];

// Guards the three below and keeps lines whole.
static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;
static void (*log_writer)(void *context, uint32_t level, const char *line);
static void *log_writer_context;
static void (*log_before)(void);

void ls_log_set_level(uint32_t level)
{
    atomic_store_explicit(&log_level, level, memory_order_relaxed);
}

uint32_t ls_log_level(void)
{
    return atomic_load_explicit(&log_level, memory_order_relaxed);
}

void ls_log_set_rank(int32_t rank)
{
    log_rank = rank;
}

void ls_log_set_writer(void (*write)(void *context, uint32_t level, const char *line),
                       void *context)
{
    pthread_mutex_lock(&log_lock);
    log_writer = write;
    log_writer_context = context;
    pthread_mutex_unlock(&log_lock);
}

uint64_t ls_log_wait_ns(void)
{
    return isatty(STDERR_FILENO) ? UINT64_C(1000000000) : UINT64_C(10000000000);
}

void ls_log_set_before(void (*before)(void))
{
    pthread_mutex_lock(&log_lock);
    log_before = before;
    pthread_mutex_unlock(&log_lock);
}

static const char *level_prefix(uint32_t level)
{
    switch (level) {
    case LS_LOG_ERROR: return "error: ";
    case LS_LOG_WARN: return "warning: ";
    case LS_LOG_INFO: return "";
    default: return "debug: ";
    }
}

// File names and plugins' texts may hold anything: a message stays one line and moves no cursor.
void ls_log_replace_control_characters(char *text)
{
    for (; *text; text++) {
        const unsigned char letter = (unsigned char)*text;
        if (letter < 0x20 || letter == 0x7f)
            *text = letter == '\n' || letter == '\t' ? ' ' : '?';
    }
}

void ls_log_note_refusal(const char *reason)
{
    snprintf(log_refused, sizeof(log_refused), "%s", reason);
}

const char *ls_log_refusal(void)
{
    return log_refused;
}

uint64_t ls_log_errors(void)
{
    return ls_caller_errors();
}

void ls_log_note_error(void)
{
    ls_caller_note_error(NULL);
}

void ls_log_lock(void)
{
    pthread_mutex_lock(&log_lock);
}

void ls_log_unlock(void)
{
    pthread_mutex_unlock(&log_lock);
}

// False: there was no memory to keep it. A later error than the first is dropped.
static bool keep_line(const char *line)
{
    if (!*log_kept)
        *log_kept = strdup(line);
    return *log_kept != NULL;
}

static void write_line(uint32_t level, char *line)
{
    if (level == LS_LOG_ERROR && log_kept && keep_line(line))
        return;
    ls_log_replace_control_characters(line);
    if (level == LS_LOG_ERROR)
        ls_caller_note_error(line);
    pthread_mutex_lock(&log_lock);
    if (log_before)
        log_before();
    if (log_writer) {
        LS_PROGRAM_LOCALE;
        log_writer(log_writer_context, level, line);
    } else {
        const size_t length = strlen(line);
        line[length] = '\n'; // takes the place of the NUL
        fwrite(line, 1, length + 1, stderr);
        fflush(stderr);
    }
    pthread_mutex_unlock(&log_lock);
}

char **ls_log_keep(char **line)
{
    char **before = log_kept;
    log_kept = line;
    return before;
}

void ls_log_write_kept(char **line)
{
    if (*line)
        write_line(LS_LOG_ERROR, *line);
    free(*line);
    *line = NULL;
}

void ls_log_note_line(const char *line)
{
    ls_caller_note_error(line);
}

// Information is about the whole training, whichever replica's thread tells it.
static size_t write_prefix(char *line, size_t bytes, uint32_t level, const char *scope)
{
    char rank[24] = "";
    if (log_rank >= 0 && level != LS_LOG_INFO)
        snprintf(rank, sizeof(rank), "[rank %d] ", (int)log_rank);
    const int length = snprintf(line, bytes, "lockstep: %s%s%s%s", level_prefix(level), rank,
                                scope ? scope : "", scope && *scope ? ": " : "");
    return length < 0 ? 0 : (size_t)length;
}

LS_PRINTF(3, 0)
static void log_list(uint32_t level, const char *scope, const char *format, va_list list)
{
    if (level > ls_log_level())
        return;
    LS_PLAIN_LOCALE;
    if (level == LS_LOG_ERROR)
        ls_caller_note_reason();
    char small[1024];
    va_list again;
    va_copy(again, list);
    const int text_length = vsnprintf(NULL, 0, format, again);
    va_end(again);
    const size_t prefix_length = write_prefix(NULL, 0, level, scope);
    const size_t bytes = prefix_length + (text_length < 0 ? 0 : (size_t)text_length) + 1;

    // A message that does not fit and finds no memory is cut rather than lost.
    char *line = bytes <= sizeof(small) ? small : malloc(bytes);
    const size_t room = line ? bytes : sizeof(small);
    char *memory = line == small ? NULL : line;
    if (!line)
        line = small;
    write_prefix(line, room, level, scope);
    if (prefix_length < room && text_length >= 0)
        vsnprintf(line + prefix_length, room - prefix_length, format, list);
    char *said = ls_option_words_apply(line);
    write_line(level, said ? said : line);
    free(said);
    free(memory);
}

void ls_error(const char *scope, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    log_list(LS_LOG_ERROR, scope, format, list);
    va_end(list);
}

void ls_warn(const char *scope, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    log_list(LS_LOG_WARN, scope, format, list);
    va_end(list);
}

void ls_info(const char *scope, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    log_list(LS_LOG_INFO, scope, format, list);
    va_end(list);
}

void ls_debug(const char *scope, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    log_list(LS_LOG_DEBUG, scope, format, list);
    va_end(list);
}

LS_PRINTF(3, 4) static void log_format(uint32_t level, const char *scope, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    log_list(level, scope, format, list);
    va_end(list);
}

void ls_log(uint32_t level, const char *scope, const char *message)
{
    log_format(level, scope, "%s", message ? message : "");
}
