// SPDX-License-Identifier: Apache-2.0
// Student's t-test over blocks, and Holm's correction.
#include "tools/compare/significance.h"

#include <math.h>

// ---- Student's distribution ----

#define FREEDOM_MOST 1000.0 // beyond, the limits change by less than a thousandth
#define FRACTION_TERMS 50 // enough for so much

// The continued fraction of the incomplete beta function (DLMF 8.17.22), evaluated from its end.
static double beta_fraction(double a, double b, double x)
{
    double rest = 1;
    for (int m = FRACTION_TERMS; m >= 1; m--) {
        const double n = m / 2;
        const double factor = m % 2 ? -(a + n) * (a + b + n) * x / ((a + 2 * n) * (a + 2 * n + 1))
                                    : n * (b - n) * x / ((a + 2 * n - 1) * (a + 2 * n));
        rest = 1 + factor / rest;
    }
    return 1 / rest;
}

// The regularised incomplete beta function I_x(a, b).
static double incomplete_beta(double a, double b, double x)
{
    if (x <= 0 || x >= 1)
        return x <= 0 ? 0 : 1;
    const double front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log1p(-x));
    if (x > (a + 1) / (a + b + 2)) // there the fraction of the other side converges faster
        return 1 - front * beta_fraction(b, a, 1 - x) / b;
    return front * beta_fraction(a, b, x) / a;
}

double ls_student_two_sided(double t, double freedom)
{
    freedom = fmin(freedom, FREEDOM_MOST);
    return incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t));
}

double ls_student_limit(double p, double freedom)
{
    double low = 0, high = 1;
    while (ls_student_two_sided(high, freedom) > p && high < 1e12)
        high *= 2;
    for (int i = 0; i < 50; i++) {
        const double middle = (low + high) / 2;
        if (ls_student_two_sided(middle, freedom) > p)
            low = middle;
        else
            high = middle;
    }
    return (low + high) / 2;
}

// ---- Blocks ----

static bool has_block(const double *a, const double *b, size_t i)
{
    return isfinite(a[i]) && isfinite(b[i]) && a[i] > 0 && b[i] > 0;
}

bool ls_paired_test(const double *a, const double *b, size_t count, struct ls_paired *out)
{
    double sum = 0, squares = 0;
    size_t blocks = 0;
    for (size_t i = 0; i < count; i++)
        if (has_block(a, b, i)) {
            sum += log(a[i] / b[i]);
            blocks++;
        }
    *out = (struct ls_paired){.difference = blocks ? sum / (double)blocks : NAN,
                              .low = NAN,
                              .high = NAN,
                              .deviation = NAN,
                              .p = NAN,
                              .blocks = blocks};
    if (blocks < LS_LEAST_BLOCKS)
        return false;
    for (size_t i = 0; i < count; i++)
        if (has_block(a, b, i))
            squares += pow(log(a[i] / b[i]) - out->difference, 2);
    const double freedom = (double)blocks - 1;
    out->deviation = sqrt(squares / freedom);
    const double error = out->deviation / sqrt((double)blocks);
    const double half = ls_student_limit(1 - LS_CONFIDENCE, freedom) * error;
    out->low = out->difference - half;
    out->high = out->difference + half;
    out->p = error > 0              ? ls_student_two_sided(out->difference / error, freedom)
             : out->difference != 0 ? 0
                                    : 1;
    return true;
}

void ls_correct_by_holm(double *p, size_t count, size_t *order)
{
    for (size_t i = 0; i < count; i++) {
        size_t place = i;
        for (; place > 0 && p[order[place - 1]] > p[i]; place--)
            order[place] = order[place - 1];
        order[place] = i;
    }
    double largest = 0;
    for (size_t i = 0; i < count; i++) {
        const double corrected = p[order[i]] * (double)(count - i);
        largest = fmin(1, fmax(largest, corrected));
        p[order[i]] = largest;
    }
}

// Blocks by the limits that as many as `blocks` have.
static double blocks_by(double blocks, double p, double spread)
{
    const double freedom = fmax(blocks, LS_LEAST_BLOCKS) - 1;
    const double limits =
        ls_student_limit(p, freedom) + ls_student_limit(2 * (1 - LS_POWER), freedom);
    return pow(limits * spread, 2);
}

double ls_blocks_needed(double difference, double deviation, size_t comparisons)
{
    const double p = LS_SIGNIFICANT / (double)(comparisons ? comparisons : 1);
    const double spread = deviation / fabs(difference);
    double blocks = blocks_by(FREEDOM_MOST, p, spread);
    for (int i = 0; i < 5; i++) // a few steps settle what depends on itself
        blocks = (blocks + blocks_by(blocks, p, spread)) / 2;
    return ceil(fmax(blocks, LS_LEAST_BLOCKS));
}
