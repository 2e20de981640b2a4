// SPDX-License-Identifier: Apache-2.0
// Man pages, in the macros of man(7).
#include "tools/manual/manual.h"

#include "core/base/log.h"
#include "tools/help.h"

#include <errno.h>
#include <string.h>

// As a part of a line: a dash is one that can be searched for and copied, and long words may be
// broken behind a sign.
static void put_text(const char *text, size_t length, FILE *out)
{
    for (size_t i = 0; i < length && text[i]; i++) {
        if (text[i] == '-')
            fputs("\\-", out);
        else if (text[i] == '\\')
            fputs("\\e", out);
        else
            fputc(text[i], out);
        if (strchr(",:/=", text[i]) && i + 1 < length && text[i + 1] && text[i + 1] != ' ')
            fputs("\\:", out);
    }
}

// A line of its own, which is no request, whatever it begins with.
static void put_line(const char *text, size_t length, FILE *out)
{
    fputs("\\&", out);
    put_text(text, length, out);
    fputc('\n', out);
}

static void put_head(const char *name, const char *summary, FILE *out)
{
    char dashed[64];
    snprintf(dashed, sizeof(dashed), "%s", name);
    for (char *at = dashed; *at; at++)
        *at = *at == ' ' ? '-' : *at;
    fputs(".TH \"", out);
    put_text(dashed, strlen(dashed), out);
    fprintf(out, "\" 1 \"\" \"Lockstep %s\" \"Lockstep\"\n.nh\n.ad l\n.SH NAME\n", LS_VERSION);
    put_text(dashed, strlen(dashed), out);
    fputs(" \\- ", out);
    put_text(summary, strlen(summary), out);
    fputc('\n', out);
}

static void put_option(const struct argument *option, FILE *out)
{
    const char *value = option->value ? option->value : "";
    fputs(".TP\n.BR \\-\\-", out);
    put_text(option->name, strlen(option->name), out);
    if (option->value) {
        fprintf(out, " \"%s=", option->optional ? "[" : "");
        put_text(value, strlen(value), out);
        fprintf(out, "%s\"", option->optional ? "]" : "");
    }
    if (option->letter)
        fprintf(out, " \", \" \\-%c", option->letter);
    fputc('\n', out);
    put_line(option->help, strlen(option->help), out);
    if (option->default_value) {
        fputs("\\&[", out);
        put_text(option->default_value, strlen(option->default_value), out);
        fputs("]\n", out);
    }
}

// Paragraphs are filled; lists and commands stand as they are.
static void put_paragraphs(const char *text, FILE *out)
{
    bool listed = false;
    while (*text) {
        const size_t words = help_paragraph(text);
        const size_t length = words ? words - (text[words - 1] == '\n') : strcspn(text, "\n");
        if (!words && length && !listed)
            fputs(".PP\n.nf\n", out);
        if (words && listed)
            fputs(".fi\n", out);
        listed = !words && (length || listed);
        if (words)
            fputs(".PP\n", out);
        for (size_t i = 0; i < length; i += strcspn(text + i, "\n") + 1) {
            const size_t line = strcspn(text + i, "\n");
            put_line(text + i, line < length - i ? line : length - i, out);
        }
        text += length + (text[length] == '\n');
    }
    if (listed)
        fputs(".fi\n", out);
}

void manual_page(const struct command *command, FILE *out)
{
    char name[64];
    snprintf(name, sizeof(name), "lockstep %s", command->name);
    put_head(name, command->summary, out);
    fputs(".SH SYNOPSIS\n.B lockstep ", out);
    put_text(command->name, strlen(command->name), out);
    fputc('\n', out);
    put_line(command->operands, strlen(command->operands), out);
    if (command->most_operands != ARGUMENTS_REST)
        fputs("[\\-\\-option=value ...]\n", out);
    fputs(".SH OPTIONS\n", out);
    for (const struct argument *row = command->arguments; row->name || row->help; row++)
        if (row->name) {
            put_option(row, out);
        } else {
            fputs(".SS \"", out);
            put_text(row->help, strlen(row->help), out);
            fputs("\"\n", out);
        }
    if (*command->help)
        fputs(".SH DESCRIPTION\n", out);
    put_paragraphs(command->help, out);
    fputs(".SH SEE ALSO\n.BR lockstep (1)\n", out);
}

void manual_main_page(const struct command *const *commands, FILE *out)
{
    put_head("lockstep", "trains one model on many devices under a strategy chosen by name", out);
    fputs(".SH SYNOPSIS\n.B lockstep\n.I SUBCOMMAND\n[\\-\\-option=value ...]\n"
          ".SH DESCRIPTION\nA strategy, chosen by name, keeps the replicas of a model together.\n",
          out);
    for (; *commands; commands++) {
        const struct command *const *list = (*commands)->subcommands
                                                ? (*commands)->subcommands
                                                : (const struct command *const[]){*commands, NULL};
        for (; *list; list++) {
            fputs(".TP\n.B lockstep ", out);
            put_text((*list)->name, strlen((*list)->name), out);
            fputc('\n', out);
            put_line((*list)->summary, strlen((*list)->summary), out);
        }
    }
    fputs(".PP\n.B lockstep\n.I SUBCOMMAND\n.B \\-\\-help\nexplains its first options,\n"
          ".B \\-\\-help=all\nevery one, and so does the page\n.BR lockstep\\-\\fISUBCOMMAND\\fP "
          "(1).\n"
          ".SH EXIT STATUS\n"
          "0: done; 1: failed; 2: wrong usage; 3: bad input; 4: a plugin or hardware is not "
          "available; 5: a\npeer was lost, or a deadline passed; 130, 143: interrupted.\n",
          out);
}

static enum ls_status end_file(FILE *file, const char *path)
{
    const bool written = file && !ferror(file);
    if ((!file || !fclose(file)) && written)
        return LS_OK;
    ls_error("lockstep", "cannot write '%s': %s", path, strerror(errno));
    return LS_FAILED;
}

static FILE *begin_file(const char *folder, const char *name, char path[static 1024])
{
    snprintf(path, 1024, "%s/%s", folder, name);
    for (char *at = path + strlen(folder); *at; at++)
        *at = *at == ' ' ? '-' : *at;
    return fopen(path, "w");
}

static enum ls_status write_pages(const char *folder, const struct command *const *commands)
{
    enum ls_status status = LS_OK;
    for (; *commands && !status; commands++) {
        char path[1024], name[80];
        if ((*commands)->subcommands) {
            status = write_pages(folder, (*commands)->subcommands);
            continue;
        }
        snprintf(name, sizeof(name), "lockstep-%s.1", (*commands)->name);
        FILE *file = begin_file(folder, name, path);
        if (file)
            manual_page(*commands, file);
        status = end_file(file, path);
    }
    return status;
}

enum ls_status manual_write(const char *folder, const struct command *const *commands)
{
    static const struct {
        const char *name;
        void (*print)(const struct command *const *commands, FILE *out);
    } files[] = {
        {"lockstep.1", manual_main_page},
        {"lockstep", completion_bash},
        {"_lockstep", completion_zsh},
        {"lockstep.fish", completion_fish},
    };
    enum ls_status status = write_pages(folder, commands);
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]) && !status; i++) {
        char path[1024];
        FILE *file = begin_file(folder, files[i].name, path);
        if (file)
            files[i].print(commands, file);
        status = end_file(file, path);
    }
    return status;
}
