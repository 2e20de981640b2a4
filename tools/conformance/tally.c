// SPDX-License-Identifier: Apache-2.0
// Counts and reports the cases of a suite.
#include "tools/conformance/tally.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void ls_tally_init(struct ls_tally *tally, const char *only, ls_conformance_wanted wanted,
                   ls_conformance_report report, void *context)
{
    *tally =
        (struct ls_tally){.only = only, .wanted = wanted, .report = report, .context = context};
    pthread_mutex_init(&tally->lock, NULL);
}

void ls_tally_finish(struct ls_tally *tally)
{
    pthread_mutex_destroy(&tally->lock);
}

bool ls_tally_begin(struct ls_tally *tally, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(tally->name, sizeof(tally->name), format, list);
    va_end(list);
    tally->message[0] = '\0';
    tally->refused = false;
    return (!tally->only || strstr(tally->name, tally->only)) &&
           (!tally->wanted || tally->wanted(tally->context, tally->name));
}

bool ls_tally_blame(struct ls_tally *tally, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    pthread_mutex_lock(&tally->lock);
    if (!tally->message[0] || tally->refused)
        vsnprintf(tally->message, sizeof(tally->message), format, list);
    tally->refused = false;
    pthread_mutex_unlock(&tally->lock);
    va_end(list);
    return false;
}

void ls_tally_refuse(struct ls_tally *tally, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    pthread_mutex_lock(&tally->lock);
    if (!tally->message[0]) {
        vsnprintf(tally->message, sizeof(tally->message), format, list);
        tally->refused = true;
    }
    pthread_mutex_unlock(&tally->lock);
    va_end(list);
}

bool ls_tally_blamed(struct ls_tally *tally)
{
    pthread_mutex_lock(&tally->lock);
    const bool blamed = tally->message[0] && !tally->refused;
    pthread_mutex_unlock(&tally->lock);
    return blamed;
}

void ls_tally_end(struct ls_tally *tally)
{
    struct ls_conformance_result result = {tally->name, LS_CONFORMANCE_PASSED, tally->message};
    if (tally->refused)
        result.outcome = LS_CONFORMANCE_REFUSED;
    else if (tally->message[0])
        result.outcome = LS_CONFORMANCE_FAILED;
    tally->counts.passed += result.outcome == LS_CONFORMANCE_PASSED;
    tally->counts.refused += result.outcome == LS_CONFORMANCE_REFUSED;
    tally->counts.failed += result.outcome == LS_CONFORMANCE_FAILED;
    if (tally->report)
        tally->report(tally->context, &result);
}
