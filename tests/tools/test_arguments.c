// SPDX-License-Identifier: Apache-2.0
// The command line as a table reads it: both forms, every refusal in its words, and a help text that leaves nothing out.
#include "core/base/log.h"
#include "core/plugin/plugin.h"
#include "tools/arguments.h"
#include "tools/help.h"
#include "tests/support/errors.h"
#include "tests/support/suite.h"

#include <check.h>
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static const struct argument table[] = {
    {NULL, NULL, NULL, "What to do"},
    {"model", "NAME|FILE.json", NULL, "a model"},
    {"steps", "N", NULL, "stop after that many steps"},
    {"epochs", "N", "1", "passes over the data"},
    {"deadline", "SECONDS", "60", "longest wait"},
    {NULL, NULL, NULL, "How to do it"},
    {"shuffle", "on|off", "on",
     "a new order each epoch, in so many words that the line must be broken "
     "somewhere between two of them, and once more before the end is reached"},
    {"a-name-that-is-longer-than-its-column", "VALUE", NULL, "and help on a line of its own"},
    {"data", "NAME", "none",
     "a text of many hundred letters, as that of the datasets of train is, which has to be told "
     "from "
     "its first word to its last: ---------- ---------- ---------- ---------- ---------- "
     "---------- "
     "---------- ---------- ---------- ---------- ---------- ---------- ---------- ---------- "
     "---------- ---------- ---------- ---------- ---------- ---------- ---------- ---------- "
     "---------- ---------- ---------- ---------- ---------- ---------- ---------- ---------- "
     "---------- ---------- ---------- ---------- ---------- ---------- ---------- ---------- end"},
    {"quiet", NULL, NULL, "no progress"},
    {"verbose", "0|1|2", NULL, "how much is said", .optional = true},
    {NULL, NULL, NULL, NULL},
};

static struct arguments arguments;

static enum ls_status parse_words(size_t most_operands, char **words)
{
    int count = 0;
    while (words[count])
        count++;
    forget_errors();
    return arguments_parse(table, count, words, most_operands, &arguments);
}

#define WORDS(...) ((char *[]){__VA_ARGS__, NULL})
#define PARSED(...) ck_assert_int_eq(parse_words(2, WORDS(__VA_ARGS__)), LS_OK)

static void refused(char **words, const char *text)
{
    ck_assert_int_eq(parse_words(1, words), LS_USAGE);
    ck_assert_uint_eq(errors, 1);
    ck_assert_msg(strstr(message, text) != NULL, "'%s' is not in: %s", text, message);
}

TEST(values_stand_behind_an_equals_sign_or_in_the_next_word)
{
    PARSED("--model=cnn", "--steps", "12", "--quiet");
    ck_assert_str_eq(arguments_text(&arguments, "model"), "cnn");
    ck_assert_str_eq(arguments_text(&arguments, "steps"), "12");
    ck_assert(arguments_given(&arguments, "quiet"));
    ck_assert(!arguments_given(&arguments, "epochs"));
    ck_assert_str_eq(arguments_text(&arguments, "epochs"), "1");
    ck_assert_uint_eq(arguments.operand_count, 0);
    PARSED("--model=a=b,c=d", "--steps=");
    ck_assert_str_eq(arguments_text(&arguments, "model"), "a=b,c=d");
    ck_assert_str_eq(arguments_text(&arguments, "steps"), "");
    PARSED("--deadline", "-5", "--model", "--quiet"); // the next word is the value, whatever it is
    ck_assert_str_eq(arguments_text(&arguments, "deadline"), "-5");
    ck_assert_str_eq(arguments_text(&arguments, "model"), "--quiet");
    ck_assert(!arguments_given(&arguments, "quiet"));
}

TEST(without_words_there_are_the_defaults)
{
    char *none[] = {NULL};
    ck_assert_int_eq(arguments_parse(table, 0, none, 0, &arguments), LS_OK);
    ck_assert_ptr_null(arguments_text(&arguments, "model"));
    ck_assert_str_eq(arguments_text(&arguments, "shuffle"), "on");
    ck_assert(!arguments.help);
}

TEST(operands_stand_anywhere_and_all_words_after_two_dashes_are_some)
{
    PARSED("one", "--steps=1", "-");
    ck_assert_uint_eq(arguments.operand_count, 2);
    ck_assert_str_eq(arguments.operands[0], "one");
    ck_assert_str_eq(arguments.operands[1], "-");
    PARSED("--quiet", "--", "--steps", "--help");
    ck_assert_uint_eq(arguments.operand_count, 2);
    ck_assert_str_eq(arguments.operands[0], "--steps");
    ck_assert(!arguments.help);
    ck_assert(!arguments_given(&arguments, "steps"));
}

TEST(help_is_asked_for_in_two_ways)
{
    PARSED("--help");
    ck_assert(arguments.help);
    PARSED("--steps=1", "-h", "--nonsense"); // who asks for help may have erred
    ck_assert(arguments.help);
}

TEST(every_error_is_one_line_that_helps)
{
    refused(WORDS("--modle=cnn"),
            "unknown option --modle; did you mean --model? --help=all lists all");
    refused(WORDS("--xyzzyxyzzy"),
            "unknown option --xyzzyxyzzy; available: --model, --steps, --epochs, --deadline, "
            "--shuffle, --a-name-that-is-longer-than-its-column, --data, --quiet");
    refused(WORDS("--=3"), "unknown option --;");
    refused(WORDS("--mode=cnn"), "--model"); // no abbreviations
    refused(WORDS("--steps=1", "--steps=2"), "--steps is given twice");
    refused(WORDS("--quiet", "--quiet"), "--quiet is given twice");
    refused(WORDS("--quiet=yes"), "--quiet takes no value");
    refused(WORDS("--model"), "--model needs a value: --model=NAME|FILE.json");
    refused(WORDS("-q"), "'-q': options begin with two dashes");
    refused(WORDS("one", "two"), "unexpected argument 'two'");
    char name[400];
    memset(name, 'x', sizeof(name));
    memcpy(name, "--", 2);
    name[sizeof(name) - 1] = '\0';
    refused(WORDS(name), "unknown option --xxx");
}

TEST(an_option_from_elsewhere_is_answered_with_ours)
{
    refused(WORDS("--max_steps=7"),
            "unknown option --max_steps: it is --steps=N; --help=all lists all");
    refused(WORDS("--Timeout", "7"), "unknown option --Timeout: it is --deadline=SECONDS;");
    // No hint names an option that this table lacks.
    refused(WORDS("--lr=0.1"), "unknown option --lr; available: --model,");
}

TEST(counts_have_a_range)
{
    uint64_t value = 7;
    PARSED("--steps=12");
    ck_assert_int_eq(arguments_count(&arguments, "steps", 1, 12, &value), LS_OK);
    ck_assert_uint_eq(value, 12);
    ck_assert_int_eq(arguments_count(&arguments, "steps", 13, 20, &value), LS_USAGE);
    ck_assert_ptr_nonnull(strstr(message, "--steps=12: expected an integer from 13 to 20"));
    ck_assert_int_eq(arguments_count(&arguments, "steps", 1, 11, &value), LS_USAGE);
    ck_assert_uint_eq(value, 12);
    ck_assert_int_eq(arguments_count(&arguments, "epochs", 0, 5, &value), LS_OK); // the default
    ck_assert_uint_eq(value, 1);
    static const char *const wrong[] = {
        "--steps=",   "--steps=-1",   "--steps=1.5", "--steps=1x",
        "--steps= 1", "--steps=0x10", "--steps=1e3", "--steps=99999999999999999999"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        PARSED((char *)(uintptr_t)wrong[i]);
        ck_assert_int_eq(arguments_count(&arguments, "steps", 0, UINT64_MAX, &value), LS_USAGE);
        ck_assert_uint_eq(errors, 1);
    }
    PARSED("--quiet");
    value = 7;
    ck_assert_int_eq(arguments_count(&arguments, "steps", 1, 2, &value), LS_OK);
    ck_assert_uint_eq(value, 7); // neither given nor a default
}

TEST(numbers_and_switches_are_checked)
{
    double number = 0;
    bool on = true;
    PARSED("--deadline=2.5", "--shuffle=off");
    ck_assert_int_eq(arguments_number(&arguments, "deadline", &number), LS_OK);
    ck_assert_double_eq(number, 2.5);
    ck_assert_int_eq(arguments_switch(&arguments, "shuffle", &on), LS_OK);
    ck_assert(!on);
    PARSED("--deadline=soon", "--shuffle=perhaps");
    ck_assert_int_eq(arguments_number(&arguments, "deadline", &number), LS_USAGE);
    ck_assert_ptr_nonnull(strstr(message, "--deadline=soon: expected a number"));
    ck_assert_int_eq(arguments_switch(&arguments, "shuffle", &on), LS_USAGE);
    ck_assert_ptr_nonnull(strstr(message, "--shuffle=perhaps: expected on or off"));
    ck_assert_double_eq(number, 2.5);
    ck_assert(!on);
}

// All words of `text` in order, whatever white space is between them.
static bool has_words(const char *where, const char *text)
{
    while (*text) {
        if (isspace((unsigned char)*text)) {
            while (isspace((unsigned char)*text))
                text++;
            if (!isspace((unsigned char)*where))
                return *text == '\0';
            while (isspace((unsigned char)*where))
                where++;
        } else if (*text++ != *where++) {
            return false;
        }
    }
    return true;
}

TEST(help_has_every_option_its_value_default_and_words)
{
    FILE *file = tmpfile();
    char text[8192];
    help_options(table, true, 80, file);
    rewind(file);
    text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
    fclose(file);
    for (const struct argument *entry = table; entry->name || entry->help; entry++) {
        char expected[1024];
        if (entry->name)
            snprintf(expected, sizeof(expected), "  --%s%s%s%s%s %s%s%s%s", entry->name,
                     entry->optional ? "[" : "", entry->value ? "=" : "",
                     entry->value ? entry->value : "", entry->optional ? "]" : "", entry->help,
                     entry->default_value ? " [" : "",
                     entry->default_value ? entry->default_value : "",
                     entry->default_value ? "]" : "");
        else
            snprintf(expected, sizeof(expected), "\n%s\n", entry->help);
        bool found = false;
        for (const char *at = text; *at && !found; at++)
            found = has_words(at, expected);
        ck_assert_msg(found, "'%s' is not in the help:\n%s", expected, text);
    }
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        ck_assert_uint_le(strlen(line), 80);
        ck_assert_int_ne(line[strlen(line) - 1], ' ');
    }
}

TEST(a_value_that_may_be_missing_is_never_the_next_word)
{
    PARSED("--verbose", "2");
    ck_assert_str_eq(arguments_text(&arguments, "verbose"), "on");
    ck_assert_uint_eq(arguments.operand_count, 1);
    PARSED("--verbose=2", "a");
    ck_assert_str_eq(arguments_text(&arguments, "verbose"), "2");
    PARSED("a");
    ck_assert_ptr_null(arguments_text(&arguments, "verbose"));
    refused(WORDS("--verbose", "--verbose=1"), "--verbose is given twice");
}

static const struct argument launch_table[] = {
    {"workers", "N", NULL, "so many", .letter = 'n'},
    {"quiet", NULL, NULL, "say nothing", .letter = 'q'},
    {NULL, NULL, NULL, NULL},
};

static enum ls_status parse_launch(char **words)
{
    int count = 0;
    while (words[count])
        count++;
    forget_errors();
    return arguments_parse(launch_table, count, words, ARGUMENTS_REST, &arguments);
}

TEST(a_letter_is_a_short_name)
{
    ck_assert_int_eq(parse_launch(WORDS("-n", "4", "-q")), LS_OK);
    ck_assert_str_eq(arguments_text(&arguments, "workers"), "4");
    ck_assert(arguments_given(&arguments, "quiet"));
    ck_assert_int_eq(parse_launch(WORDS("-n4")), LS_OK);
    ck_assert_str_eq(arguments_text(&arguments, "workers"), "4");
    ck_assert(!arguments_given(&arguments, "quiet"));
    ck_assert_int_eq(parse_launch(WORDS("-n4", "--workers=4")), LS_USAGE);
    ck_assert_str_eq(message, "lockstep: error: usage: --workers is given twice");
    ck_assert_int_eq(parse_launch(WORDS("-n")), LS_USAGE);
    ck_assert_str_eq(message, "lockstep: error: usage: --workers needs a value: --workers=N");
    ck_assert_int_eq(parse_launch(WORDS("-qx")), LS_USAGE);
    ck_assert_str_eq(message, "lockstep: error: usage: --quiet takes no value");
    ck_assert_int_eq(parse_launch(WORDS("-x")), LS_USAGE);
    ck_assert_uint_eq(errors, 1);
}

TEST(the_command_of_another_program_is_left_alone)
{
    char **words = WORDS("-n4", "train", "--workers=5", "--", "--help");
    ck_assert_int_eq(parse_launch(words), LS_OK);
    ck_assert_ptr_eq(arguments.rest, words + 1);
    ck_assert_str_eq(arguments_text(&arguments, "workers"), "4");
    ck_assert(!arguments.help);
    words = WORDS("-n4", "--", "--help", "--");
    ck_assert_int_eq(parse_launch(words), LS_OK);
    ck_assert_ptr_eq(arguments.rest, words + 2);
    ck_assert_int_eq(parse_launch(WORDS("-n4", "--")), LS_OK);
    ck_assert_ptr_null(arguments.rest);
}

TEST(a_short_name_has_no_folders)
{
    ck_assert_str_eq(arguments_short_name("ring"), "ring");
    ck_assert_str_eq(arguments_short_name("auto:network=/tmp/n.json"), "auto:network=/tmp/n.json");
    ck_assert_str_eq(arguments_short_name("./a/b.so:x=c/d"), "b.so:x=c/d");
    ck_assert_str_eq(arguments_short_name("a/"), "");
    ck_assert_str_eq(arguments_short_name(""), "");
}

TEST_FIXTURE(forget_errors, NULL);
