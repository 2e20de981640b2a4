// SPDX-License-Identifier: Apache-2.0
// Prints the options of a subcommand, wrapped to the width of the terminal.
#include "tools/help.h"

#include "tools/command.h"

#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define COLUMN 26 // where the texts of options begin
#define LEAST_WIDTH 50 // narrower terminals wrap lines themselves
#define USUAL_WIDTH 80

size_t help_width(void)
{
    struct winsize size;
    if (!isatty(STDOUT_FILENO) || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) || !size.ws_col)
        return USUAL_WIDTH;
    return size.ws_col < LEAST_WIDTH ? LEAST_WIDTH : size.ws_col;
}

// Prints the words of `length` letters from `column` on, with new lines at `indent`, which `end`
// ends; returns where they end.
static size_t print_words(const char *text, size_t length, size_t indent, size_t column,
                          const char *end, size_t width, FILE *out)
{
    const char *const last = text + length;
    const size_t kept = strlen(end);
    for (text += strspn(text, " \n"); text < last; text += strspn(text, " \n")) {
        size_t letters = strcspn(text, " \n");
        if (letters > (size_t)(last - text))
            letters = (size_t)(last - text);
        if (column > indent && column + 1 + letters + kept > width) {
            fprintf(out, "%s\n%*s", end, (int)indent, "");
            column = indent;
        }
        column += (size_t)fprintf(out, "%s%.*s", column > indent ? " " : "", (int)letters, text);
        text += letters;
    }
    return column;
}

// Up to the first semicolon or full stop that a space follows, outside parentheses.
static size_t first_sentence(const char *text)
{
    int depth = 0;
    for (size_t i = 0; text[i]; i++) {
        depth += (text[i] == '(') - (text[i] == ')');
        if (depth == 0 && (text[i] == ';' || text[i] == '.') && text[i + 1] == ' ')
            return i;
    }
    return strlen(text);
}

static bool is_end(const struct argument *entry)
{
    return !entry->name && !entry->help;
}

static size_t count_rows(const struct argument *table, bool first_day)
{
    size_t count = 0;
    for (; !is_end(table); table++)
        count += table->name && (!first_day || table->first_day);
    return count;
}

static void print_option(const struct argument *entry, bool all, size_t width, FILE *out)
{
    char left[96], value[96], letter[16] = "";
    const char *takes = entry->value ? entry->value : "";
    const char *options = all ? NULL : strchr(takes, '[');
    const int letters = (int)(options ? (size_t)(options - takes) : strlen(takes));
    if (entry->letter)
        snprintf(letter, sizeof(letter), ", -%c %.8s", entry->letter, takes);
    snprintf(left, sizeof(left), "  --%s%s%s%.*s%s%s", entry->name, entry->optional ? "[" : "",
             entry->value ? "=" : "", letters, takes, entry->optional ? "]" : "", letter);
    if (strlen(left) + 1 > COLUMN)
        fprintf(out, "%s\n%*s", left, COLUMN, "");
    else
        fprintf(out, "%-*s", COLUMN, left);
    const size_t length = all ? strlen(entry->help) : first_sentence(entry->help);
    const size_t column = print_words(entry->help, length, COLUMN, COLUMN, "", width, out);
    snprintf(value, sizeof(value), "[%s]", entry->default_value ? entry->default_value : "");
    if (entry->default_value && (all || strlen(value) + COLUMN <= width))
        print_words(value, strlen(value), COLUMN, column, "", width, out);
    fputc('\n', out);
}

void help_options(const struct argument *table, bool all, size_t width, FILE *out)
{
    const bool some = !all && count_rows(table, true);
    for (; !is_end(table); table++)
        if (table->name && (!some || table->first_day))
            print_option(table, all || !some, width, out);
        else if (!table->name && !some)
            fprintf(out, "\n%s\n", table->help);
}

// Later lines stand four columns to the right of the first.
static void print_command(const char *text, size_t length, size_t indent, size_t width, FILE *out)
{
    const size_t first = indent + strcspn(text + indent, " \n");
    fprintf(out, "%.*s", (int)first, text);
    print_words(text + first, length - first, indent + 4, first, " \\", width, out);
}

size_t help_paragraph(const char *text)
{
    size_t length = 0;
    while (text[length] && text[length] != '\n' && text[length] != ' ') {
        const size_t line = strcspn(text + length, "\n");
        const char *columns = strstr(text + length, "  ");
        if (columns && columns < text + length + line)
            break;
        length += line + (text[length + line] == '\n');
    }
    return length;
}

// Commands are broken so that a shell joins them; other lists and tables stand as they are.
static void print_text(const char *text, size_t width, FILE *out)
{
    while (*text) {
        const size_t words = help_paragraph(text), spaces = strspn(text, " ");
        const size_t length = words ? words - (text[words - 1] == '\n') : strcspn(text, "\n");
        if (words)
            print_words(text, length, 0, 0, "", width, out);
        else if (length > width && strncmp(text + spaces, "lockstep ", 9) == 0)
            print_command(text, length, spaces, width, out);
        else
            fprintf(out, "%.*s", (int)length, text);
        fputc('\n', out);
        text += length + (text[length] == '\n');
    }
}

// The first command of the help.
static void print_example(const struct command *command, size_t width, FILE *out)
{
    char line[256];
    const char *begin = strstr(command->help, "\n  lockstep ");
    if (!begin)
        return;
    snprintf(line, sizeof(line), "%.*s", (int)strcspn(begin + 1, "\n"), begin + 1);
    fputs("\nExample:\n", out);
    print_text(line, width, out);
}

void help_print(const struct command *command, bool all, FILE *out)
{
    const size_t width = help_width();
    const size_t rows = count_rows(command->arguments, false);
    const bool some = !all && count_rows(command->arguments, true);
    fprintf(out, "usage: lockstep %s%s%s%s\n\n%s.\n", command->name, *command->operands ? " " : "",
            command->operands,
            command->most_operands == ARGUMENTS_REST ? "" : " [--option=value ...]",
            command->summary);
    if (some || command->arguments[0].name)
        fputc('\n', out);
    help_options(command->arguments, all, width, out);
    if (some) {
        print_example(command, width, out);
        fprintf(out, "\n`lockstep %s --help=all` explains all %zu options.\n", command->name, rows);
    } else if (*command->help) {
        fputc('\n', out);
        print_text(command->help, width, out);
    }
}
