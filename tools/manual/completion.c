// SPDX-License-Identifier: Apache-2.0
// What shells complete: subcommands, options, and values that the tables name. Names of models,
// datasets and others are asked for when they are wanted (lockstep list), so those of plugins are
// among them.
#include "tools/manual/manual.h"

#include <string.h>

#define NAMES "lockstep list %s 2>/dev/null | sed -n \"s/^\\([^ ][^ ]*\\).*/\\1/p\""

struct each {
    const struct command *const *top, *const *sub;
};

// Commands that run: those of a command with subcommands one after the other.
static const struct command *next(struct each *each)
{
    if (each->sub && *each->sub)
        return *each->sub++;
    each->sub = NULL;
    if (!*each->top)
        return NULL;
    const struct command *command = *each->top++;
    if (!command->subcommands)
        return command;
    each->sub = command->subcommands;
    return next(each);
}

// "on|off|N" has on and off; the words that a user replaces are in capitals.
static bool has_words(const char *value)
{
    return value && strchr(value, '|') && strcspn(value, "|") <= strcspn(value, "[:,");
}

static void put_words(const char *value, FILE *out)
{
    const char *space = "";
    while (*value) {
        const size_t length = strcspn(value, "|");
        bool word = length > 0;
        for (size_t i = 0; i < length; i++)
            word = word && strchr("abcdefghijklmnopqrstuvwxyz0123456789-_", value[i]);
        if (word) {
            fprintf(out, "%s%.*s", space, (int)length, value);
            space = " ";
        }
        value += length + (value[length] == '|');
    }
}

static bool takes_file(const char *value)
{
    return value && (strstr(value, "FILE") || strstr(value, "DIR"));
}

// ---- bash ----

static void put_options(const struct command *command, FILE *out)
{
    for (const struct argument *row = command->arguments; row->name || row->help; row++)
        if (row->name)
            fprintf(out, "--%s%s ", row->name, row->value && !row->optional ? "=" : "");
    fputs("--help", out);
}

static void put_names(const struct command *const *commands, FILE *out)
{
    for (; *commands; commands++) {
        const char *space = strrchr((*commands)->name, ' ');
        fprintf(out, "%s ", space ? space + 1 : (*commands)->name);
    }
}

void completion_bash(const struct command *const *commands, FILE *out)
{
    struct each each = {.top = commands};
    const struct command *command;
    fputs("# Completion of lockstep in bash, made of its option tables.\n"
          "_lockstep() {\n"
          "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}\n"
          "    local command=${COMP_WORDS[1]} at=2 option= values= files=\n"
          "    COMPREPLY=()\n"
          "    if [[ $word == = ]]; then option=$before word=\n"
          "    elif [[ $before == = ]]; then option=${COMP_WORDS[COMP_CWORD-2]}\n"
          "    elif [[ $before == --* ]]; then option=$before\n"
          "    fi\n"
          "    if ((COMP_CWORD == 1)); then\n"
          "        COMPREPLY=($(compgen -W '",
          out);
    put_names(commands, out);
    fputs("help --help --version' -- \"$word\"))\n        return\n    fi\n    case $command in\n",
          out);
    for (size_t i = 0; commands[i]; i++)
        if (commands[i]->subcommands) {
            fprintf(out,
                    "    %s)\n        if ((COMP_CWORD == 2)); then\n"
                    "            COMPREPLY=($(compgen -W '",
                    commands[i]->name);
            put_names(commands[i]->subcommands, out);
            fputs("' -- \"$word\"))\n            return\n        fi\n"
                  "        command=\"$command ${COMP_WORDS[2]}\" at=3 ;;\n",
                  out);
        }
    fputs("    help) values='", out);
    put_names(commands, out);
    fputs("' ;;\n    esac\n    case \"$command $option\" in\n", out);
    while ((command = next(&each)))
        for (const struct argument *row = command->arguments; row->name || row->help; row++) {
            const char *list = row->name ? command_list_of(row->name) : NULL;
            if (!row->name || !row->value || row->optional)
                continue;
            fprintf(out, "    '%s --%s')", command->name, row->name);
            if (list)
                fprintf(out, " values=$(" NAMES ")", list);
            else if (has_words(row->value)) {
                fputs(" values='", out);
                put_words(row->value, out);
                fputc('\'', out);
            }
            fprintf(out, "%s ;;\n", takes_file(row->value) ? " files=1" : "");
        }
    fputs("    *) option= ;;\n    esac\n"
          "    if [[ $option ]]; then\n"
          "        COMPREPLY=($(compgen -W \"$values\" -- \"$word\"))\n"
          "        [[ $files ]] && COMPREPLY+=($(compgen -f -- \"$word\"))\n"
          "        return\n"
          "    fi\n"
          "    case $command in\n",
          out);
    each = (struct each){.top = commands};
    while ((command = next(&each))) {
        fprintf(out, "    '%s') values='", command->name);
        put_options(command, out);
        fputs("' ;;\n", out);
    }
    fputs("    esac\n"
          "    if [[ $word == -* || $command == help ]]; then\n"
          "        COMPREPLY=($(compgen -W \"$values\" -- \"$word\"))\n"
          "        [[ ${COMPREPLY[0]} == *= ]] && compopt -o nospace 2>/dev/null\n"
          "    elif [[ $command == list ]]; then\n"
          "        COMPREPLY=($(compgen -W \"$(lockstep list 2>/dev/null | cut -d ' ' -f 3)\" -- "
          "\"$word\"))\n"
          "    else\n"
          "        COMPREPLY=($(compgen -f -- \"$word\"))\n"
          "    fi\n"
          "}\n"
          "complete -F _lockstep lockstep\n",
          out);
}

// ---- zsh ----

// Between single quotes, where `special` are escaped.
static void put_quoted(const char *text, size_t length, const char *special, FILE *out)
{
    for (size_t i = 0; i < length && text[i]; i++) {
        if (text[i] == '\'')
            fputs("'\\'", out);
        else if (text[i] == '\\' || strchr(special, text[i]))
            fputc('\\', out);
        fputc(text[i], out);
    }
}

// What describes an option in one line: whole words up to a sign.
static size_t first_words(const char *text)
{
    size_t length = strcspn(text, ";:(\n");
    for (length = length < 100 ? length : 100; length && text[length] && text[length] != ' ';)
        length--;
    while (length && strchr(" ,", text[length - 1]))
        length--;
    return length;
}

void completion_zsh(const struct command *const *commands, FILE *out)
{
    struct each each = {.top = commands};
    const struct command *command;
    fputs("#compdef lockstep\n# Completion of lockstep in zsh, made of its option tables.\n"
          "_lockstep_names() { compadd -- ${(f)\"$(lockstep list $1 2>/dev/null | sed -n "
          "'s/^\\([^ ][^ ]*\\).*/\\1/p')\"} }\n"
          "_lockstep() {\n    local -a commands\n    commands=(\n",
          out);
    for (size_t i = 0; commands[i]; i++) {
        fprintf(out, "        '%s:", commands[i]->name);
        put_quoted(commands[i]->summary, strlen(commands[i]->summary), ":", out);
        fputs("'\n", out);
    }
    fputs("    )\n    if (( CURRENT == 2 )); then\n        _describe subcommand commands\n"
          "        return\n    fi\n    local command=$words[2]\n"
          "    case $command in\n",
          out);
    for (size_t i = 0; commands[i]; i++)
        if (commands[i]->subcommands) {
            fprintf(out, "    %s)\n        (( CURRENT == 3 )) && { compadd -- ", commands[i]->name);
            put_names(commands[i]->subcommands, out);
            fputs("; return }\n        command=\"$command $words[3]\"\n        shift words\n"
                  "        (( CURRENT-- )) ;;\n",
                  out);
        }
    fputs("    esac\n    shift words\n    (( CURRENT-- ))\n    case $command in\n", out);
    while ((command = next(&each))) {
        fprintf(out, "    '%s')\n        _arguments \\\n", command->name);
        for (const struct argument *row = command->arguments; row->name || row->help; row++) {
            const char *list = row->name ? command_list_of(row->name) : NULL;
            if (!row->name)
                continue;
            fprintf(out, "            '%s--%s%s[", row->repeats ? "*" : "", row->name,
                    !row->value     ? ""
                    : row->optional ? "=-"
                                    : "=");
            put_quoted(row->help, first_words(row->help), "[]:", out);
            fputc(']', out);
            if (row->value)
                fprintf(out, ":%s:", row->optional ? ":value" : "value");
            if (list)
                fprintf(out, "{_lockstep_names %s%s}", list,
                        takes_file(row->value) ? "; _files" : "");
            else if (has_words(row->value)) {
                fputc('(', out);
                put_words(row->value, out);
                fputc(')', out);
            } else if (takes_file(row->value)) {
                fputs("_files", out);
            }
            fputs("' \\\n", out);
        }
        fputs(strcmp(command->name, "list") == 0
                  ? "            ':list:(($(lockstep list 2>/dev/null | cut -d \" \" -f 3)))'"
                  : "            '*:file:_files'",
              out);
        fputs(" ;;\n", out);
    }
    fputs("    esac\n}\n_lockstep \"$@\"\n", out);
}

// ---- fish ----

static void put_condition(const struct command *command, FILE *out)
{
    const char *space = strchr(command->name, ' ');
    fprintf(out, "complete -c lockstep -n '__fish_seen_subcommand_from %.*s",
            (int)strcspn(command->name, " "), command->name);
    if (space)
        fprintf(out, "; and __fish_seen_subcommand_from %s", space + 1);
    fputc('\'', out);
}

void completion_fish(const struct command *const *commands, FILE *out)
{
    struct each each = {.top = commands};
    const struct command *command;
    fputs("# Completion of lockstep in fish, made of its option tables.\n", out);
    for (size_t i = 0; commands[i]; i++) {
        fprintf(out, "complete -c lockstep -f -n __fish_use_subcommand -a %s -d '",
                commands[i]->name);
        put_quoted(commands[i]->summary, strlen(commands[i]->summary), "", out);
        fputs("'\n", out);
        for (size_t k = 0; commands[i]->subcommands && commands[i]->subcommands[k]; k++)
            fprintf(out, "complete -c lockstep -f -n '__fish_seen_subcommand_from %s' -a %s\n",
                    commands[i]->name, strrchr(commands[i]->subcommands[k]->name, ' ') + 1);
    }
    fputs("complete -c lockstep -f -n '__fish_seen_subcommand_from list' -a '(lockstep list | cut "
          "-d \" \" -f 3)'\n",
          out);
    while ((command = next(&each)))
        for (const struct argument *row = command->arguments; row->name || row->help; row++) {
            const char *list = row->name ? command_list_of(row->name) : NULL;
            if (!row->name)
                continue;
            put_condition(command, out);
            fprintf(out, " -l %s", row->name);
            if (row->letter)
                fprintf(out, " -s %c", row->letter);
            if (row->value && !row->optional)
                fputs(takes_file(row->value) ? " -r" : " -x", out);
            if (list) {
                fputs(" -a '(", out);
                fprintf(out, NAMES, list);
                fputs(")'", out);
            } else if (has_words(row->value)) {
                fputs(" -a '", out);
                put_words(row->value, out);
                fputc('\'', out);
            }
            fputs(" -d '", out);
            put_quoted(row->help, first_words(row->help), "", out);
            fputs("'\n", out);
        }
}
