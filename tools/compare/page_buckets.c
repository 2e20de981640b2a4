// SPDX-License-Identifier: Apache-2.0
// The bucket plan: a strip a run, in the order in which backward fills the buckets.
#include "tools/compare/page_parts.h"

#include <string.h>

#define LISTED 8 // of the buckets; all are in the strip

static const json_t *buckets_of(const struct ls_page_run *run)
{
    return json_object_get(run->json, "buckets");
}

static double bucket_bytes(const json_t *buckets, size_t i)
{
    const double bytes = ls_page_number(json_array_get(buckets, i), "bytes");
    return bytes > 0 ? bytes : 0;
}

static double sum_bytes(const json_t *buckets)
{
    double sum = 0;
    for (size_t i = 0; i < json_array_size(buckets); i++)
        sum += bucket_bytes(buckets, i);
    return sum;
}

static void put_algorithm(const struct ls_page *page, const json_t *buckets, size_t i)
{
    const char *algorithm = ls_page_string(json_array_get(buckets, i), "algorithm");
    if (!algorithm || !*algorithm)
        return;
    fputc(' ', page->out);
    ls_page_put(page, algorithm);
}

static void print_strip(const struct ls_page *page, const struct ls_page_run *run,
                        const json_t *buckets, double sum)
{
    fputs("<svg class=\"bar\" width=\"100%\" height=\"18\" role=\"img\"><title>", page->out);
    fprintf(page->out, "%zu bucket%s, %s</title>", json_array_size(buckets),
            json_array_size(buckets) == 1 ? "" : "s", ls_page_bytes(sum).text);
    double begin = 0;
    for (size_t i = 0; i < json_array_size(buckets); i++) {
        const double bytes = bucket_bytes(buckets, i);
        fprintf(
            page->out,
            "<rect class=\"bucket colour%u%s\" x=\"%.3f%%\" width=\"%.3f%%\" height=\"18\"><title>"
            "bucket %zu: %s",
            run->colour, i % 2 ? " odd" : "", 100 * begin / sum, 100 * bytes / sum, i + 1,
            ls_page_bytes(bytes).text);
        put_algorithm(page, buckets, i);
        fputs("</title></rect>", page->out);
        begin += bytes;
    }
    fputs("</svg>", page->out);
}

static void print_list(const struct ls_page *page, const json_t *buckets)
{
    const size_t count = json_array_size(buckets);
    fputs("<div class=\"detail\">", page->out);
    for (size_t i = 0; i < count && i < LISTED; i++) {
        fprintf(page->out, "<span class=\"item\">%zu: %s", i + 1,
                ls_page_bytes(bucket_bytes(buckets, i)).text);
        put_algorithm(page, buckets, i);
        fputs("</span> ", page->out);
    }
    if (count > LISTED)
        fprintf(page->out, "and %zu more", count - LISTED);
    fputs("</div>", page->out);
}

static bool same_plan(const struct ls_page_run *a, const struct ls_page_run *b)
{
    return !strcmp(a->strategy, b->strategy) && json_equal(buckets_of(a), buckets_of(b));
}

// Runs of a strategy with other counts of replicas mostly have one plan: it is shown once.
static bool is_first_with_its_plan(const struct ls_page *page, const struct ls_page_run *run)
{
    for (const struct ls_page_run *other = page->runs; other < run; other++)
        if (same_plan(other, run))
            return false;
    return true;
}

static void put_names(const struct ls_page *page, const struct ls_page_run *run)
{
    ls_page_put_name(page, run);
    for (const struct ls_page_run *other = run + 1; other < page->runs + page->run_count; other++)
        if (run->named_by_replicas && other->replicas && same_plan(run, other))
            fprintf(page->out, "<small>, %u</small>", other->replicas);
}

static void print_row(const struct ls_page *page, const struct ls_page_run *run)
{
    const json_t *buckets = buckets_of(run);
    const double sum = sum_bytes(buckets);
    fputs("<div class=\"row\" role=\"listitem\"><div class=\"label\">", page->out);
    put_names(page, run);
    fputs("</div>", page->out);
    const size_t count = json_array_size(buckets);
    fprintf(page->out, "<div class=\"value\"><b>%zu</b> bucket%s, %s</div>", count,
            count == 1 ? "" : "s", ls_page_bytes(sum).text);
    print_strip(page, run, buckets, sum);
    // One bucket without an algorithm has been told whole.
    if (count > 1 || ls_page_string(json_array_get(buckets, 0), "algorithm"))
        print_list(page, buckets);
    fputs("</div>\n", page->out);
}

// Who has none: a device alone, or a strategy that sends something else.
static void print_others(const struct ls_page *page)
{
    bool any = false;
    for (size_t i = 0; i < page->run_count; i++) {
        if (!page->runs[i].done || sum_bytes(buckets_of(&page->runs[i])) > 0)
            continue;
        fputs(any ? ", " : "<p class=\"note\">Without buckets: ", page->out);
        ls_page_put_name(page, &page->runs[i]);
        any = true;
    }
    if (any)
        fputs(".</p>\n", page->out);
}

void ls_page_buckets(struct ls_page *page)
{
    bool any = false;
    for (size_t i = 0; i < page->run_count; i++)
        any = any || sum_bytes(buckets_of(&page->runs[i])) > 0;
    if (!any)
        return;
    fputs("<section id=\"buckets\">\n<h2>Buckets</h2>\n<p class=\"note\">The gradient is reduced "
          "in buckets, in "
          "the order in which backward fills them (from the left). A strip is the whole "
          "gradient.</p>\n"
          "<div class=\"bars\" role=\"list\">\n",
          page->out);
    for (size_t i = 0; i < page->run_count; i++)
        if (sum_bytes(buckets_of(&page->runs[i])) > 0 &&
            is_first_with_its_plan(page, &page->runs[i]))
            print_row(page, &page->runs[i]);
    fputs("</div>\n", page->out);
    print_others(page);
    fputs("</section>\n", page->out);
}
