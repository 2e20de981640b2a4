// SPDX-License-Identifier: Apache-2.0
// Ranges, ticks and the text of values.
#include "tools/report/chart_scale.h"

#include <math.h>
#include <string.h>

#define LARGEST 1e250 // of a value; others are no measurement

// ---- Scales ----

static bool shown(const struct ls_chart_axis *axis, double value)
{
    return fabs(value) < LARGEST && (!axis->logarithmic || value > 0);
}

bool ls_chart_has_point(const struct ls_chart *chart, const struct ls_chart_series *series,
                        size_t i)
{
    return shown(&chart->x, series->x[i]) && shown(&chart->y, series->y[i]);
}

double ls_chart_scale_place(const struct ls_chart_scale *scale, double value)
{
    if (scale->axis->logarithmic)
        value = log10(value);
    return scale->begin +
           (value - scale->low) / (scale->high - scale->low) * (scale->end - scale->begin);
}

static void find_range(const struct ls_chart *chart, bool vertical, struct ls_chart_scale *scale)
{
    double low = INFINITY, high = -INFINITY;
    for (size_t s = 0; s < chart->series_count; s++) {
        const struct ls_chart_series *series = &chart->series[s];
        for (size_t i = 0; i < series->count; i++) {
            if (!ls_chart_has_point(chart, series, i))
                continue;
            const double value = vertical ? series->y[i] : series->x[i];
            low = fmin(low, value);
            high = fmax(high, value);
        }
    }
    if (!(low <= high))
        low = scale->axis->logarithmic ? 1 : 0, high = scale->axis->logarithmic ? 10 : 1;
    if (scale->axis->logarithmic)
        low = log10(low), high = log10(high);
    if (!(high - low > 1e-9 * fmax(1, fabs(high)))) {
        const double more = scale->axis->logarithmic ? 0.5 : fmax(0.5 * fabs(high), 0.5);
        low -= more;
        high += more;
    }
    const double room = vertical ? 0.04 * (high - low) : 0.02 * (high - low);
    scale->low = low - room;
    scale->high = high + room;
}

static void add_tick(struct ls_chart_scale *scale, double value)
{
    const double at = scale->axis->logarithmic ? log10(value) : value;
    const double slip = 1e-9 * (scale->high - scale->low);
    if (scale->tick_count < LS_CHART_TICKS_MOST && at >= scale->low - slip &&
        at <= scale->high + slip)
        scale->ticks[scale->tick_count++] = value;
}

static void linear_ticks(struct ls_chart_scale *scale)
{
    const double rough = (scale->high - scale->low) / 6;
    const double power = pow(10, floor(log10(rough)));
    const double digit = rough / power;
    double step = power * (digit <= 1 ? 1 : digit <= 2 ? 2 : digit <= 5 ? 5 : 10);
    if (scale->axis->unit == LS_CHART_COUNT)
        step = fmax(step, 1);
    const double first = ceil(scale->low / step);
    for (int i = 0; i < LS_CHART_TICKS_MOST && (first + i) * step <= scale->high; i++)
        add_tick(scale, (first + i) * step);
}

static void decimal_ticks(struct ls_chart_scale *scale)
{
    const int from = (int)floor(scale->low), to = (int)ceil(scale->high);
    const bool fine = scale->high - scale->low < 2.2;
    const bool across =
        scale->begin < scale->end; // where texts need more room than above each other
    const int stride = (to - from) / (across ? 5 : 9) + 1;
    for (int power = from; power <= to; power += stride) {
        add_tick(scale, pow(10, power));
        if (fine) {
            add_tick(scale, 2 * pow(10, power));
            add_tick(scale, 5 * pow(10, power));
        }
    }
}

static void binary_ticks(struct ls_chart_scale *scale)
{
    const double octave = log10(2);
    const int from = (int)ceil(scale->low / octave), to = (int)floor(scale->high / octave);
    const int stride = (to - from) / 9 + 1;
    for (int power = from; power <= to; power += stride)
        add_tick(scale, ldexp(1, power));
}

static void find_ticks(struct ls_chart_scale *scale)
{
    const enum ls_chart_unit unit = scale->axis->unit;
    if (!scale->axis->logarithmic)
        linear_ticks(scale);
    else if (unit == LS_CHART_BYTES || unit == LS_CHART_COUNT)
        binary_ticks(scale);
    else
        decimal_ticks(scale);
}

void ls_chart_scale_init(struct ls_chart_scale *scale, const struct ls_chart *chart, bool vertical,
                         double begin, double end)
{
    *scale = (struct ls_chart_scale){
        .axis = vertical ? &chart->y : &chart->x, .begin = begin, .end = end};
    find_range(chart, vertical, scale);
    find_ticks(scale);
}

// ---- Text ----

// Those that turn the direction of what follows: U+202A to U+202E, U+2066 to U+2069, in UTF-8.
static bool turns_direction(const char *text)
{
    return (!strncmp(text, "\xe2\x80", 2) && text[2] >= '\xaa' && text[2] <= '\xae') ||
           (!strncmp(text, "\xe2\x81", 2) && text[2] >= '\xa6' && text[2] <= '\xa9');
}

void ls_chart_print_text(const char *text, FILE *out)
{
    ls_chart_print_bytes(text, strlen(text), out);
}

void ls_chart_print_bytes(const char *text, size_t bytes, FILE *out)
{
    for (const char *end = text + bytes; text < end; text++) {
        switch (*text) {
        case '<': fputs("&lt;", out); break;
        case '>': fputs("&gt;", out); break;
        case '&': fputs("&amp;", out); break;
        case '"': fputs("&quot;", out); break;
        default:
            if (turns_direction(text)) {
                fputc(' ', out);
                text += 2;
            } else {
                fputc((unsigned char)*text < 0x20 ? ' ' : *text, out);
            }
        }
    }
}

static const char *scaled(double value, double base, const char *const *units, size_t unit_count,
                          char *text, size_t bytes)
{
    size_t unit = 0;
    while (unit + 1 < unit_count && fabs(value) >= base * (1 - 1e-9)) {
        value /= base;
        unit++;
    }
    snprintf(text, bytes, "%.4g %s", value, units[unit]);
    return text;
}

void ls_chart_shorten_exponent(char *text)
{
    char *exponent = strchr(text, 'e');
    if (!exponent)
        return;
    char *to = exponent + 1, *from = to;
    if (*from == '-')
        *to++ = *from++;
    from += strspn(from, "+0");
    memmove(to, from, strlen(from) + 1);
}

static const char *short_text(double value, char *text, size_t bytes)
{
    snprintf(text, bytes, "%.4g", value);
    ls_chart_shorten_exponent(text);
    return text;
}

const char *ls_chart_grouped_text(double value, char *text, size_t bytes)
{
    char digits[24];
    if (!(fabs(value) < 1e18))
        return short_text(value, text, bytes);
    const int count = snprintf(digits, sizeof(digits), "%.0f", fabs(value));
    size_t at = 0;
    if (value < 0 && bytes)
        text[at++] = '-';
    for (int i = 0; i < count && at + 2 < bytes; i++) {
        if (i && (count - i) % 3 == 0)
            text[at++] = ',';
        text[at++] = digits[i];
    }
    text[at] = '\0';
    return text;
}

const char *ls_chart_value_text(enum ls_chart_unit unit, double value, char *text, size_t bytes)
{
    static const char *const sizes[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    static const char *const times[] = {"ns", "\xc2\xb5s", "ms", "s"};
    static const char *const millions[] = {"M", "G", "T"};
    switch (unit) {
    case LS_CHART_BYTES: return scaled(value, 1024, sizes, 5, text, bytes);
    case LS_CHART_SECONDS:
        if (value != 0)
            return scaled(value * 1e9, 1000, times, 4, text, bytes);
        break;
    case LS_CHART_COUNT: snprintf(text, bytes, "%.0f", value); return text;
    case LS_CHART_NUMBER:
        if (fabs(value) >= 1e6 * (1 - 1e-9) && fabs(value) < 1e15)
            return scaled(value / 1e6, 1000, millions, 3, text, bytes);
        if (fabs(value) >= 1000 && fabs(value) < 1e6)
            return ls_chart_grouped_text(value, text, bytes);
        break;
    default: break;
    }
    return short_text(value, text, bytes);
}
