// SPDX-License-Identifier: Apache-2.0
// Puts the comparison page together: the verdict first, then section after section.
#include "tools/compare/page.h"

#include "tools/compare/page_parts.h"
#include "core/report/whole_file.h"

#include <stdlib.h>
#include <string.h>

// ---- The runs ----

// A colour a strategy; runs of one strategy with other replica counts differ in their dashes.
static void choose_line(struct ls_page *page, size_t index)
{
    struct ls_page_run *run = &page->runs[index];
    unsigned strategies = 0, occurrence = 0;
    for (size_t i = 0; i < index; i++) {
        const struct ls_page_run *other = &page->runs[i];
        bool first = true;
        for (size_t j = 0; j < i; j++)
            first = first && strcmp(page->runs[j].strategy, other->strategy);
        if (!strcmp(other->strategy, run->strategy))
            occurrence++;
        else if (first && !occurrence)
            strategies++;
    }
    // The strategies that came before the first run of this one.
    run->colour = strategies % LS_PAGE_COLOURS;
    run->dash = (strategies + occurrence) % LS_PAGE_DASHES;
}

static void read_run(struct ls_page_run *run, const json_t *json)
{
    const char *strategy = ls_page_string(json, "strategy");
    const char *status = ls_page_string(json, "status");
    const double replicas = ls_page_number(json, "replicas");
    run->json = json;
    run->strategy = strategy && *strategy ? strategy : "(no name)";
    run->done = status && !strcmp(status, "done");
    const char *way = ls_page_string(json, "way");
    if (json_is_false(json_object_get(json, "synchronous")))
        run->other_way = "asynchronous"; // of reports without ways, too
    else if (way && strcmp(way, "rounds") == 0)
        run->other_way = "rounds";
    else if (way && strcmp(way, "filtered") == 0)
        run->other_way = "filtered";
    run->replicas = replicas >= 1 && replicas < 1e9 ? (unsigned)replicas : 0;
}

static enum ls_status read_runs(struct ls_page *page)
{
    const json_t *runs = json_object_get(page->comparison, "runs");
    page->run_count = json_array_size(runs);
    page->runs = calloc(page->run_count + 1, sizeof(*page->runs));
    if (!page->runs)
        return LS_OUT_OF_MEMORY;
    for (size_t i = 0; i < page->run_count; i++)
        read_run(&page->runs[i], json_array_get(runs, i));
    for (size_t i = 0; i < page->run_count; i++) {
        choose_line(page, i);
        for (size_t j = 0; j < page->run_count; j++)
            if (!strcmp(page->runs[i].strategy, page->runs[j].strategy) &&
                page->runs[i].replicas != page->runs[j].replicas)
                page->runs[i].named_by_replicas = true;
    }
    const double reference = ls_page_number(page->comparison, "reference");
    if (reference >= 0 && reference < (double)page->run_count) {
        page->runs[(size_t)reference].reference = true;
        page->reference = &page->runs[(size_t)reference];
    }
    return LS_OK;
}

// ---- The beginning ----

static void print_part(const struct ls_page *page, const char *before, const char *key)
{
    const char *text = ls_page_string(page->comparison, key);
    if (!text)
        return;
    fputs(before, page->out);
    ls_page_put(page, text);
}

static void print_head(const struct ls_page *page)
{
    // The policy lets the page load nothing at all, whatever its texts say.
    fputs("<!DOCTYPE html>\n"
          "<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
          "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
          "style-src 'unsafe-inline'; img-src data:\"/>\n"
          "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
          "<meta name=\"color-scheme\" content=\"light dark\"/>\n"
          "<link rel=\"icon\" href=\"data:,\"/>\n<title>Strategies compared",
          page->out);
    print_part(page, ": ", "model");
    print_part(page, " on ", "dataset");
    fputs("</title>\n", page->out);
    ls_page_style(page);
    fputs("</head>\n<body>\n<main>\n", page->out);
}

static void print_sentences(const struct ls_page *page, const json_t *list, size_t from,
                            const char *element)
{
    for (size_t i = from; i < json_array_size(list); i++) {
        const char *sentence = json_string_value(json_array_get(list, i));
        if (!sentence)
            continue;
        fprintf(page->out, "<%s>", element);
        ls_page_put_sentence(page, sentence);
        fprintf(page->out, "</%s>\n", element);
    }
}

// One is a paragraph; more are a list, as they stand for themselves.
static void print_lesser_sentences(const struct ls_page *page, const json_t *verdict)
{
    const size_t count = json_array_size(verdict);
    if (count > 2)
        fputs("<ul class=\"sentences\">\n", page->out);
    print_sentences(page, verdict, 1, count > 2 ? "li" : "p");
    if (count > 2)
        fputs("</ul>\n", page->out);
}

static void print_unfinished(const struct ls_page *page)
{
    const char *status = ls_page_string(page->comparison, "status");
    if (!status || !strcmp(status, "done"))
        return;
    fputs("<p class=\"warning\">This comparison did not finish (", page->out);
    ls_page_put(page, status);
    fputs("); the page shows the results so far.</p>\n", page->out);
}

// Strategies without a result, which a verdict would have named.
static void print_absent(const struct ls_page *page)
{
    bool any = false;
    for (size_t i = 0; i < page->run_count; i++) {
        if (page->runs[i].done)
            continue;
        fputs(any ? "<li>" : "<h2>Could not run, or did not finish</h2>\n<ul>\n<li>", page->out);
        ls_page_put_name(page, &page->runs[i]);
        fputs(" \xe2\x80\x94 ", page->out);
        ls_page_put_reason(page, &page->runs[i]);
        fputs("</li>\n", page->out);
        any = true;
    }
    if (any)
        fputs("</ul>\n", page->out);
}

static void print_verdict(const struct ls_page *page)
{
    const json_t *verdict = json_object_get(page->comparison, "verdict");
    const json_t *suggestions = json_object_get(page->comparison, "suggestions");
    const char *first = json_string_value(json_array_get(verdict, 0));
    fputs("<header class=\"verdict\">\n<p class=\"about\">lockstep compare", page->out);
    print_part(page, " \xc2\xb7 ", "model");
    print_part(page, " on ", "dataset");
    print_part(page, " \xc2\xb7 ", "optimizer");
    print_part(page, " \xc2\xb7 ", "device");
    fputs("</p>\n<h1>", page->out);
    ls_page_put_sentence(page,
                         first ? first : "There is no verdict: no strategy produced a result.");
    fputs("</h1>\n", page->out);
    print_unfinished(page);
    print_lesser_sentences(page, verdict);
    if (json_array_size(suggestions)) {
        fputs("<h2>What to try</h2>\n<ul>\n", page->out);
        print_sentences(page, suggestions, 0, "li");
        fputs("</ul>\n", page->out);
    }
    if (!first)
        print_absent(page);
    fputs("</header>\n", page->out);
}

// ---- The page ----

static enum ls_status print_page(struct ls_page *page)
{
    print_head(page);
    print_verdict(page);
    fputs("<div class=\"pair\">\n", page->out);
    ls_page_speed(page);
    ls_page_steps(page);
    fputs("</div>\n", page->out);
    enum ls_status status = ls_page_curves(page);
    if (status)
        return status;
    ls_page_deviations(page);
    status = ls_page_scaling(page);
    if (status)
        return status;
    ls_page_buckets(page);
    ls_page_table(page);
    ls_page_method(page);
    fputs("</main>\n</body>\n</html>\n", page->out);
    return LS_OK;
}

enum ls_status ls_compare_page_write(const char *path, const json_t *comparison)
{
    struct ls_page page = {.comparison = comparison};
    struct ls_whole_file file = {0};
    enum ls_status status = read_runs(&page);
    if (status)
        goto out;
    status = ls_whole_file_open("--html", path, &file);
    if (status)
        goto out;
    page.out = file.stream;
    status = print_page(&page);
    if (!status)
        status = ls_whole_file_commit(&file);

out:
    ls_whole_file_discard(&file);
    free(page.runs);
    return status;
}
