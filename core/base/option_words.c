// SPDX-License-Identifier: Apache-2.0
// The one table of what an option of the command is called in C and in Python.
#include "core/base/option_words.h"

#include <ctype.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum kind { TEXT, NUMBER, SWITCH, PAIR, CALL, ARGUMENT };

// TEXT, NUMBER, SWITCH (1: on) and PAIR (two fields, the option has A:B) are fields of a struct of
// options. Each name is one of lockstep.h and one of the Python package, and each option is one
// that a message names: tests/house/option_words.py.
static const struct row {
    const char *option;
    const char *c; // NULL: only a command has it, ours or another program
    const char *python; // NULL: as in C; with an '=': a whole argument
    enum kind kind;
} rows[] = {
    {"accumulate", "accumulate", NULL, NUMBER},
    {"batch", "batch", "batch_size", NUMBER},
    {"callback", "callbacks", NULL, TEXT},
    {"check-replicas", "check_replicas", NULL, NUMBER},
    {"checkpoint-dir", "checkpoints", NULL, TEXT},
    {"class-weight", "class_weight", NULL, TEXT},
    {"cluster", "cluster", NULL, TEXT},
    {"compress", "compress", NULL, TEXT},
    {"count", NULL, NULL, NUMBER},
    {"dataset", "data", NULL, ARGUMENT},
    {"deadline", "deadline_seconds", NULL, NUMBER},
    {"device", "device", NULL, TEXT},
    {"devices", "devices", NULL, TEXT},
    {"distribution", NULL, NULL, TEXT},
    {"elastic", "elastic", NULL, TEXT},
    {"epochs", "epochs", NULL, NUMBER},
    {"initial-weights", "ls_load_weights", "load_weights", CALL},
    {"insecure", "insecure", NULL, SWITCH},
    {"join-deadline", "join_seconds", NULL, NUMBER},
    {"learning-rate-schedule", "learning_rate_schedule", NULL, TEXT},
    {"loss", "loss", NULL, TEXT},
    {"loss-scale", "loss_scale", NULL, TEXT},
    {"loss-weights", "loss_weights", NULL, TEXT},
    {"lost-after", "silence_seconds", NULL, NUMBER},
    {"lr-scaling", "lr_scaling", NULL, TEXT},
    {"make-secret", NULL, NULL, TEXT},
    {"metrics", "metrics", NULL, TEXT},
    {"microbatches", "microbatches", NULL, NUMBER},
    {"model", "model", NULL, ARGUMENT},
    {"mpi", NULL, NULL, TEXT},
    {"network", "network", NULL, TEXT},
    {"no-python", NULL, NULL, SWITCH},
    {"operation", NULL, NULL, TEXT},
    {"optimizer", "optimizer", NULL, TEXT},
    {"out", "ls_predict_to_file", "predict", CALL},
    {"plugin-path", "plugin_path", NULL, TEXT},
    {"precision", "precision", NULL, TEXT},
    {"ranks-per-host", NULL, NULL, NUMBER},
    {"replica-batch", "replica_batch", NULL, NUMBER},
    {"replicas", "replicas", NULL, NUMBER},
    {"report", "report", NULL, TEXT},
    {"reproducible", "reproducible", NULL, NUMBER},
    {"resume", "resume", "checkpoints={'folder': ..., 'resume': True}", SWITCH},
    {"save-weights", "ls_save_weights", "save_weights", CALL},
    {"seed", "seed", NULL, NUMBER},
    {"servers", NULL, NULL, NUMBER},
    {"share", "share", NULL, TEXT},
    {"shuffle", "shuffle", NULL, TEXT},
    {"steps", "steps", NULL, NUMBER},
    {"strategy", "strategy", NULL, TEXT},
    {"threads", "threads", NULL, NUMBER},
    {"timeline", "timeline", NULL, TEXT},
    {"timeline-steps", "timeline_first and timeline_last", NULL, PAIR},
    {"topology", "topology", NULL, TEXT},
    {"transport", NULL, NULL, TEXT},
    {"tune", NULL, NULL, TEXT},
    {"validation-dataset", "validation", "validation_data", TEXT},
    {"verbose", "verbose", NULL, SWITCH},
    {"wire", "wire", NULL, TEXT},
    {"world", NULL, NULL, NUMBER},
};

static _Atomic int said = LS_WORDS_COMMAND;

void ls_option_words_set(enum ls_option_words words)
{
    atomic_store_explicit(&said, (int)words, memory_order_relaxed);
}

static const struct row *find(const char *option, size_t length)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (strlen(rows[i].option) == length && strncmp(rows[i].option, option, length) == 0)
            return &rows[i];
    return NULL;
}

// How many letters at `text`, behind `before`, are somebody's own words: between quotes, or a
// command line to copy.
static size_t length_of_own(const char *text, char before)
{
    if (before && !strchr(" (=:", before))
        return 0;
    if (*text && strchr("'\"`", *text)) {
        const char *end = strchr(text + 1, *text);
        while (end && isalnum((unsigned char)end[1])) // the apostrophe of a word
            end = strchr(end + 1, *text);
        return end ? (size_t)(end - text) + 1 : 0;
    }
    if (strncmp(text, "lockstep ", 9) == 0 && islower((unsigned char)text[9]))
        return strcspn(text, ";,)");
    return 0;
}

// A value ends in front of a space or of a mark that belongs to the sentence. -1: a quote or a
// bracket is in it or directly behind it, so nobody knows where it ends.
static int length_of_value(const char *text)
{
    size_t length = strcspn(text, " ;)'\"`([{}]");
    if (text[length] && !strchr(" ;)", text[length]))
        return -1;
    while (length && strchr(".,:", text[length - 1]))
        length--;
    return (int)length;
}

// Writes two fields with their parts of a value A:B.
static bool write_pair(FILE *out, const char *name, bool python, const char *value, int length)
{
    static const char between[] = " and ";
    const char *dot = python ? "" : ".", *is = python ? "=" : " = ";
    const char *colon = memchr(value, ':', (size_t)length), *second = strstr(name, between);
    if (!colon || colon == value)
        return false;
    fprintf(out, "%s%.*s%s%.*s", dot, (int)(second - name), name, is, (int)(colon - value), value);
    second += strlen(between);
    fprintf(out, "%s%s%s%s%.*s", between, dot, second, is, (int)(value + length - colon - 1),
            colon + 1);
    return true;
}

// Writes the option with its value, which the '=' at `rest` begins, or its name where there is
// none. How many letters of `rest` are written; -1: nothing is, as no field has such a value.
static int write_option(FILE *out, const struct row *row, bool python, const char *rest)
{
    const char *name = python && row->python ? row->python : row->c;
    const char *dot = python ? "" : ".", *is = python ? "=" : " = ";
    const char *value = rest + (*rest == '=');
    const int length = *rest == '=' ? length_of_value(value) : 0;
    if (length < 0)
        return -1;
    if (row->kind == SWITCH && *rest == '=' && (length != 1 || *value != '1'))
        return -1;
    if (row->kind == PAIR && length)
        return write_pair(out, name, python, value, length) ? 1 + length : -1;
    if (strchr(name, '='))
        fputs(name, out);
    else if (row->kind == SWITCH)
        fprintf(out, "%s%s%s1", dot, name, is);
    else if (!length)
        fputs(name, out);
    else if (row->kind == CALL)
        fprintf(out, "%s(%s\"%.*s\")", name, python ? "" : "model, ", length, value);
    else if (row->kind == ARGUMENT)
        fprintf(out, "%s \"%.*s\"", name, length, value);
    else
        fprintf(out, row->kind == NUMBER ? "%s%s%s%.*s" : "%s%s%s\"%.*s\"", dot, name, is, length,
                value);
    return (*rest == '=') + length;
}

char *ls_option_words_apply(const char *line)
{
    const int words = atomic_load_explicit(&said, memory_order_relaxed);
    char *made = NULL;
    size_t bytes = 0;
    FILE *out =
        words != LS_WORDS_COMMAND && strstr(line, "--") ? open_memstream(&made, &bytes) : NULL;
    if (!out)
        return NULL;
    for (const char *at = line; *at;) {
        const char before = at == line ? ' ' : at[-1];
        size_t length = length_of_own(at, before);
        if (!length && strchr(" (", before) && strncmp(at, "--", 2) == 0) {
            const size_t option = strspn(at + 2, "abcdefghijklmnopqrstuvwxyz-");
            const struct row *row = find(at + 2, option);
            const char *rest = at + 2 + option;
            const int written =
                row && row->c ? write_option(out, row, words == LS_WORDS_PYTHON, rest) : -1;
            if (written >= 0) {
                at = rest + written;
                continue;
            }
            length = 2 + option;
        }
        length += !length;
        fwrite(at, 1, length, out);
        at += length;
    }
    const bool failed = ferror(out);
    if (fclose(out) || failed) {
        free(made);
        return NULL;
    }
    return made;
}
