// SPDX-License-Identifier: Apache-2.0
// How far each run is from the reference, beside what rounding alone does, on a logarithmic scale.
#include "tools/compare/page_parts.h"

#include <math.h>

#define LEFT_OF_SCALE 6.0 // per cent of the picture: where a deviation of zero is

static const struct {
    const char *title, *key, *spread;
} panels[] = {
    {"Losses of the first two steps", "max_loss_deviation_first_two", "rounding_spread_first_two"},
    {"Losses of the first ten steps", "max_loss_deviation_first_ten", "rounding_spread_first_ten"},
    {"Losses of all steps", "max_loss_deviation", "rounding_spread"},
    {"Parameters at the end", "max_parameter_deviation", "rounding_spread_parameters"},
};
#define PANELS (sizeof(panels) / sizeof(panels[0]))

struct decades {
    int low, high; // powers of ten
};

static void widen(double value, double *low, double *high)
{
    if (!(value > 0) || !isfinite(value))
        return;
    *low = fmin(*low, value);
    *high = fmax(*high, value);
}

// Whole decades around every deviation and spread of the page, so that the panels compare.
static struct decades find_decades(const struct ls_page *page)
{
    double low = INFINITY, high = 0;
    for (size_t p = 0; p < PANELS; p++) {
        widen(ls_page_number(page->comparison, panels[p].spread), &low, &high);
        for (size_t i = 0; i < page->run_count; i++)
            widen(ls_page_number(page->runs[i].json, panels[p].key), &low, &high);
    }
    if (!(low <= high))
        return (struct decades){-8, 0};
    struct decades decades = {(int)floor(log10(low)), (int)ceil(log10(high))};
    decades.high += decades.low == decades.high;
    return decades;
}

static double place(struct decades decades, double value)
{
    if (!(value > 0))
        return LEFT_OF_SCALE / 2;
    const double part = (log10(value) - decades.low) / (decades.high - decades.low);
    return LEFT_OF_SCALE + (98 - LEFT_OF_SCALE) * part;
}

static void print_strip(const struct ls_page *page, const struct ls_page_run *run,
                        struct decades decades, double value, double spread)
{
    const double at = place(decades, value);
    fprintf(page->out,
            "<svg class=\"strip\" width=\"100%%\" height=\"16\" role=\"img\"><title>deviation %s",
            ls_page_deviation(value).text);
    if (!ls_page_has_bits(page))
        fprintf(page->out, ", rounding spread %s", ls_page_deviation(spread).text);
    fputs("</title><rect class=\"track\" width=\"100%\" height=\"16\" rx=\"3\"/>", page->out);
    if (spread > 0)
        fprintf(page->out,
                "<rect class=\"band\" width=\"%.2f%%\" height=\"16\" rx=\"3\"/>"
                "<line class=\"spread\" x1=\"%.2f%%\" x2=\"%.2f%%\" y1=\"0\" y2=\"16\"/>",
                place(decades, spread), place(decades, spread), place(decades, spread));
    fprintf(page->out,
            "<line class=\"stem colour%u\" x1=\"0\" x2=\"%.2f%%\" y1=\"8\" y2=\"8\"/>"
            "<circle class=\"dot colour%u\" cx=\"%.2f%%\" cy=\"8\" r=\"5\"/></svg>",
            run->colour, at, run->colour, at);
}

static void print_axis(const struct ls_page *page, struct decades decades)
{
    const int stride = (decades.high - decades.low) / 5 + 1;
    fputs("<div class=\"row\" aria-hidden=\"true\"><svg class=\"strip scale\" width=\"100%\" "
          "height=\"18\">",
          page->out);
    fprintf(page->out, "<text x=\"%.2f%%\" y=\"13\" text-anchor=\"middle\">0</text>",
            LEFT_OF_SCALE / 2);
    for (int power = decades.low + stride - 1; power <= decades.high; power += stride)
        fprintf(page->out, "<text x=\"%.2f%%\" y=\"13\" text-anchor=\"%s\">1e%d</text>",
                place(decades, pow(10, power)),
                power == decades.high  ? "end"
                : power == decades.low ? "start"
                                       : "middle",
                power);
    fputs("</svg></div>\n", page->out);
}

static void print_row(const struct ls_page *page, const struct ls_page_run *run, size_t panel,
                      struct decades decades)
{
    const double value = ls_page_number(run->json, panels[panel].key);
    const double spread = ls_page_number(page->comparison, panels[panel].spread);
    if (!isfinite(value))
        return;
    fputs("<div class=\"row\" role=\"listitem\"><div class=\"label\">", page->out);
    ls_page_put_name(page, run);
    fputs("</div>", page->out);
    fprintf(page->out, "<div class=\"value\"><b>%s</b>", ls_page_deviation(value).text);
    if (run->other_way)
        fprintf(page->out, " <small>\xc2\xb7 %s</small>", run->other_way);
    else if (spread > 0 && value > 0)
        fprintf(page->out, " <small>\xc2\xb7 %s\xc3\x97 rounding</small>",
                ls_page_deviation(value / spread).text);
    fputs("</div>", page->out);
    print_strip(page, run, decades, value, spread);
    fputs("</div>\n", page->out);
}

static void print_panel(const struct ls_page *page, size_t panel, struct decades decades)
{
    const double spread = ls_page_number(page->comparison, panels[panel].spread);
    fprintf(page->out, "<div class=\"panel\">\n<h3>%s</h3>\n", panels[panel].title);
    if (!ls_page_has_bits(page))
        fprintf(page->out, "<p class=\"note\">Rounding spread: <b>%s</b></p>\n",
                ls_page_deviation(spread).text);
    fputs("<div class=\"bars narrow\" role=\"list\">\n", page->out);
    for (size_t i = 0; i < page->run_count; i++)
        if (!page->runs[i].reference)
            print_row(page, &page->runs[i], panel, decades);
    print_axis(page, decades);
    fputs("</div>\n</div>\n", page->out);
}

static void print_panels(const struct ls_page *page, struct decades decades)
{
    for (size_t p = ls_page_has_shares(page) ? 0 : 1; p < PANELS; p++)
        print_panel(page, p, decades);
    fputs("</div>\n</section>\n", page->out);
}

static bool any_deviation(const struct ls_page *page)
{
    for (size_t i = 0; i < page->run_count; i++)
        for (size_t p = 0; p < PANELS; p++)
            if (!page->runs[i].reference &&
                isfinite(ls_page_number(page->runs[i].json, panels[p].key)))
                return true;
    return false;
}

void ls_page_deviations(struct ls_page *page)
{
    if (!any_deviation(page))
        return;
    const struct decades decades = find_decades(page);
    fputs("<section id=\"deviation\">\n<h2>Deviation from the reference</h2>\n<p class=\"note\">",
          page->out);
    if (page->reference) {
        fputs("The reference is ", page->out);
        ls_page_put_name(page, page->reference);
        fputs(". ", page->out);
    }
    if (ls_page_has_shares(page))
        fputs("Runs with several replicas are compared with one device that takes the same shares "
              "of each batch, because layers normalize by the statistics of a share. ",
              page->out);
    if (ls_page_has_bits(page)) {
        fputs("A synchronous strategy has to have its bits: whatever is not 0 is an error. The "
              "scale is logarithmic.</p>\n<div class=\"panels\">\n",
              page->out);
        print_panels(page, decades);
        return;
    }
    fputs("The shaded band is the rounding spread: the difference of the reference from a second "
          "run (",
          page->out);
    ls_page_put(page, ls_page_twin(page));
    fputs("). A synchronous strategy inside the band, or near its edge, computes the same as the "
          "reference. The scale is logarithmic; shorter is closer.</p>\n<div class=\"panels\">\n",
          page->out);
    print_panels(page, decades);
}
