// SPDX-License-Identifier: Apache-2.0
// Speeds, differences and curves from steps.
#include "tools/compare/figures.h"

#include <math.h>
#include <stdlib.h>

#define CURVE_POINTS 200

static int compare_numbers(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

size_t compare_rates(const struct compare_step *steps, size_t count, double *rates)
{
    size_t found = 0;
    for (size_t first = 0, next; first < count; first = next) {
        double examples = 0;
        for (next = first + 1; next < count && steps[next].turn == steps[first].turn; next++)
            examples += steps[next].examples;
        double seconds = steps[next - 1].seconds - steps[first].seconds;
        if (next == first + 1 && first > 0) { // a turn of one step
            examples = steps[first].examples;
            seconds = steps[first].seconds - steps[first - 1].seconds;
        }
        if (seconds > 0 && examples > 0)
            rates[found++] = examples / seconds;
    }
    return found;
}

void compare_sort(double *values, size_t count)
{
    qsort(values, count, sizeof(*values), compare_numbers);
}

double compare_quantile(const double *sorted, size_t count, double share)
{
    if (count == 0)
        return NAN;
    const double place = share * (double)(count - 1);
    const size_t below = (size_t)place;
    const size_t above = below + 1 < count ? below + 1 : below;
    return sorted[below] + (place - (double)below) * (sorted[above] - sorted[below]);
}

double compare_geometric_mean(const double *values, size_t count)
{
    double sum = 0;
    size_t found = 0;
    for (size_t i = 0; i < count; i++)
        if (isfinite(values[i]) && values[i] > 0) {
            sum += log(values[i]);
            found++;
        }
    return found ? exp(sum / (double)found) : NAN;
}

static double deviation(const struct compare_step *a, const struct compare_step *b)
{
    const double difference = fabs(a->loss - b->loss);
    return difference > 0 ? difference / fmax(fabs(b->loss), 1e-30) : difference;
}

double compare_losses(const struct compare_step *a, size_t a_count, const struct compare_step *b,
                      size_t b_count, size_t most)
{
    size_t count = a_count < b_count ? a_count : b_count;
    if (count > most)
        count = most;
    double largest = count ? 0 : NAN;
    for (size_t i = 0; i < count; i++) {
        const double off = deviation(&a[i], &b[i]);
        if (!isfinite(off))
            return NAN;
        largest = fmax(largest, off);
    }
    return largest;
}

size_t compare_growth(const struct compare_step *a, size_t a_count, const struct compare_step *b,
                      size_t b_count, double *out)
{
    const size_t count = a_count < b_count ? a_count : b_count;
    for (size_t i = 0; i < count; i++) {
        const double off = deviation(&a[i], &b[i]);
        if (!isfinite(off))
            return i;
        out[i] = i ? fmax(out[i - 1], off) : off;
    }
    return count;
}

double compare_excess(const struct compare_step *a, size_t a_count, const struct compare_step *b,
                      size_t b_count, const double *spread, size_t spread_count)
{
    const size_t count = a_count < b_count ? a_count : b_count;
    double largest = count ? 0 : NAN;
    for (size_t i = 0; i < count; i++) {
        const double off = deviation(&a[i], &b[i]);
        const size_t until = i < 2 ? i : 3 * (i + 1) - 1;
        const size_t at = until < spread_count ? until : spread_count - 1;
        const double explained = spread_count ? LS_SPREADS_MOST * spread[at] : 0;
        if (!isfinite(off))
            return NAN;
        largest = fmax(largest, off / fmax(LS_ROUNDING_MOST, explained));
    }
    return largest;
}

struct compare_mean compare_mean_of(const struct compare_step *steps, size_t first, size_t end)
{
    double loss = 0, accuracy = 0, examples = 0;
    for (size_t i = first; i < end; i++) {
        loss += steps[i].loss * steps[i].examples;
        accuracy += steps[i].accuracy * steps[i].examples;
        examples += steps[i].examples;
    }
    return (struct compare_mean){loss / examples, accuracy / examples};
}

static size_t window(size_t count)
{
    const size_t tenth = count / 10;
    return tenth < 1 ? 1 : tenth > COMPARE_LAST_STEPS ? COMPARE_LAST_STEPS : tenth;
}

struct compare_mean compare_mean(const struct compare_step *steps, size_t count)
{
    if (count == 0)
        return (struct compare_mean){NAN, NAN};
    return compare_mean_of(steps, count - window(count), count);
}

uint64_t compare_step_of_loss(const struct compare_step *steps, size_t count, double loss)
{
    for (size_t end = window(count); end <= count; end++)
        if (compare_mean_of(steps, end - window(count), end).loss <= loss)
            return end;
    return 0;
}

double compare_best_loss(const struct compare_step *steps, size_t count)
{
    double best = NAN;
    for (size_t end = window(count); end <= count; end++) {
        const double loss = compare_mean_of(steps, end - window(count), end).loss;
        if (isfinite(loss))
            best = isnan(best) ? loss : fmin(best, loss);
    }
    return best;
}

enum ls_status compare_curve(const struct compare_step *steps, size_t count, uint64_t epoch_steps,
                             bool accuracy, struct ls_compared_point **out, size_t *out_count)
{
    const size_t stride = (count + CURVE_POINTS - 1) / CURVE_POINTS;
    const size_t epochs = epoch_steps ? (size_t)(count / epoch_steps) : 0;
    const size_t epoch_stride = epochs / CURVE_POINTS + 1; // of epochs whose end is a point
    struct ls_compared_point *points = calloc(2 * CURVE_POINTS + 2, sizeof(*points));
    if (!points)
        return LS_OUT_OF_MEMORY;
    size_t found = 0, first = 0;
    uint64_t examples = 0;
    for (size_t end = 1; end <= count; end++) {
        examples += (uint64_t)steps[end - 1].examples;
        const bool epoch_end =
            epoch_steps && end % epoch_steps == 0 && end / epoch_steps % epoch_stride == 0;
        if (end % stride != 0 && end != count && !epoch_end)
            continue;
        const struct compare_mean mean = compare_mean_of(steps, first, end);
        points[found++] = (struct ls_compared_point){.step = end,
                                                     .examples = examples,
                                                     .seconds = steps[end - 1].seconds,
                                                     .loss = mean.loss,
                                                     .accuracy = accuracy ? mean.accuracy : NAN,
                                                     .val_loss = NAN,
                                                     .val_accuracy = NAN};
        first = end;
    }
    *out = points;
    *out_count = found;
    return LS_OK;
}

void compare_set_times(struct ls_compared_run *run)
{
    struct ls_compared_times *times = &run->times;
    const double step = (double)run->global_batch / run->rate;
    double *const parts[] = {&times->input,  &times->compute, &times->exposed_communication,
                             &times->update, &times->device,  &times->other};
    double sum = 0;
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        sum += fmax(0, *parts[i]);
    for (size_t i = 0; sum > 0 && i < sizeof(parts) / sizeof(parts[0]); i++)
        *parts[i] *= step / sum;
    if (sum > 0) {
        times->communication *= step / sum;
        times->median = step;
    }
    for (size_t i = 0; i < run->curve_count; i++)
        run->curve[i].seconds = (double)run->curve[i].examples / run->rate;
    run->target_seconds = run->target_examples / run->rate;
}
