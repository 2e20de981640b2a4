// SPDX-License-Identifier: Apache-2.0
// Reads the comparison, and writes numbers and names for people.
#include "tools/compare/page_parts.h"

#include "tools/report/chart_scale.h"
#include "tools/compare/sentences.h"

#include <math.h>
#include <string.h>

#define LARGEST 1e250 // of a value; others are no measurement, and their sums not finite
#define NOTHING "\xe2\x80\x93" // an en dash

double ls_page_value(const json_t *value)
{
    if (!json_is_number(value))
        return NAN;
    const double number = json_number_value(value);
    if (!(fabs(number) < LARGEST))
        return NAN;
    return fabs(number) > 1 / LARGEST ? number : 0;
}

double ls_page_number(const json_t *object, const char *key)
{
    return ls_page_value(json_object_get(object, key));
}

const char *ls_page_string(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

bool ls_page_has_shares(const struct ls_page *page)
{
    return isfinite(ls_page_number(page->comparison, "rounding_spread_first_two"));
}

bool ls_page_has_bits(const struct ls_page *page)
{
    return isfinite(ls_page_number(page->comparison, "reproducible"));
}

const char *ls_page_twin(const struct ls_page *page)
{
    const char *text = ls_page_string(page->comparison, "rounding_spread_of");
    return text ? text : "computed in another way";
}

double ls_page_step_seconds(const struct ls_page_run *run, const char *key)
{
    return ls_page_number(json_object_get(run->json, "step_seconds"), key);
}

struct ls_page_text ls_page_count(double value)
{
    struct ls_page_text out = {NOTHING};
    if (isfinite(value))
        ls_chart_grouped_text(round(value), out.text, sizeof(out.text));
    return out;
}

struct ls_page_text ls_page_significant(double value)
{
    struct ls_page_text out = {NOTHING};
    if (!isfinite(value))
        return out;
    if (fabs(value) >= 99.95)
        return ls_page_count(value);
    snprintf(out.text, sizeof(out.text), "%.3g", value);
    return out;
}

struct ls_page_text ls_page_ratio(double value)
{
    struct ls_page_text out = ls_page_significant(value);
    if (fabs(value) >= 0.095 && fabs(value) < 9.995)
        snprintf(out.text, sizeof(out.text), "%.2f", value);
    return out;
}

// Three digits and the unit that makes the number small.
static struct ls_page_text with_unit(double value, const char *const *units, size_t unit_count)
{
    struct ls_page_text out = {NOTHING};
    if (!isfinite(value))
        return out;
    size_t unit = 0;
    while (unit + 1 < unit_count && fabs(value) >= 999.5) {
        value /= 1000;
        unit++;
    }
    snprintf(out.text, sizeof(out.text), "%.48s %s", ls_page_significant(value).text, units[unit]);
    return out;
}

struct ls_page_text ls_page_seconds(double value)
{
    static const char *const units[] = {"ns", "\xc2\xb5s", "ms", "s"};
    return value == 0 ? (struct ls_page_text){"0 s"} : with_unit(value * 1e9, units, 4);
}

struct ls_page_text ls_page_bytes(double value)
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB"};
    return with_unit(value, units, 5);
}

struct ls_page_text ls_page_deviation(double value)
{
    struct ls_page_text out = {NOTHING};
    if (!isfinite(value))
        return out;
    if (value == 0)
        return (struct ls_page_text){"0"};
    snprintf(out.text, sizeof(out.text), fabs(value) < 1e-3 ? "%.1e" : "%.2g", value);
    ls_chart_shorten_exponent(out.text);
    return out;
}

void ls_page_put(const struct ls_page *page, const char *text)
{
    ls_chart_print_text(text, page->out);
}

void ls_page_put_plain_name(const struct ls_page *page, const struct ls_page_run *run)
{
    ls_page_put(page, run->strategy);
    if (run->named_by_replicas && run->replicas)
        fprintf(page->out, " \xc3\x97 %u", run->replicas);
}

void ls_page_put_breakable(const struct ls_page *page, const char *name)
{
    while (*name) {
        size_t bytes = strcspn(name, ":,=-");
        bytes += name[bytes] != '\0';
        ls_chart_print_bytes(name, bytes, page->out);
        name += bytes;
        if (*name)
            fputs("<wbr/>", page->out);
    }
}

// The bytes of an option that begins here, "--batch" or "--replicas=1,2,4"; 0: none does. What ends a clause is not part
// of it.
static size_t option_bytes(const char *text)
{
    if (strncmp(text, "--", 2) != 0 || text[2] < 'a' || text[2] > 'z')
        return 0;
    size_t bytes = strcspn(text, " ");
    while (strchr(".,:;)", text[bytes - 1]))
        bytes--;
    return bytes;
}

// Browsers break lines behind hyphens, which tears "--batch", "1e-7" and "central-storage" apart: a word in an element
// of its own moves to the next line whole.
static void put_word(const struct ls_page *page, const char *word, size_t bytes)
{
    const size_t open = strspn(word, "("), option = option_bytes(word + open);
    if (!memchr(word, '-', bytes)) {
        ls_chart_print_bytes(word, bytes, page->out);
        return;
    }
    fprintf(page->out, "<span class=\"word%s\">", option ? " option" : "");
    if (option) {
        ls_chart_print_bytes(word, open, page->out);
        fputs("<code>", page->out);
        ls_chart_print_bytes(word + open, option, page->out);
        fputs("</code>", page->out);
        word += open + option;
        bytes -= open + option;
    }
    ls_chart_print_bytes(word, bytes, page->out);
    fputs("</span>", page->out);
}

static void put_command(const struct ls_page *page, const char *command)
{
    fputs("<code class=\"command\">", page->out);
    while (*command) {
        const size_t bytes = strcspn(command, " ");
        fputs("<span>", page->out);
        ls_chart_print_bytes(command, bytes, page->out);
        fputs("</span>", page->out);
        command += bytes;
        if (*command)
            fputc(*command++, page->out);
    }
    fputs("</code>", page->out);
}

void ls_page_put_sentence(const struct ls_page *page, const char *text)
{
    const char *code = ls_sentence_code(text);
    while (*text) {
        if (text == code) {
            put_command(page, text);
            return;
        }
        const size_t word = strcspn(text, " ");
        put_word(page, text, word);
        text += word;
        if (*text)
            fputc(*text++, page->out);
    }
}

void ls_page_put_name(const struct ls_page *page, const struct ls_page_run *run)
{
    fputs("<span class=\"name\">", page->out);
    ls_page_put_breakable(page, run->strategy);
    fputs("</span>", page->out);
    if (run->named_by_replicas && run->replicas)
        fprintf(page->out, " <small>\xc3\x97\xc2\xa0%u</small>", run->replicas);
}

void ls_page_put_reason(const struct ls_page *page, const struct ls_page_run *run)
{
    const char *status = ls_page_string(run->json, "status");
    const char *reason = ls_page_string(run->json, "reason");
    ls_page_put(page, status && strcmp(status, "done") ? status : "no result");
    if (reason && *reason) {
        fputs(": ", page->out);
        ls_page_put_sentence(page, reason);
    }
}
