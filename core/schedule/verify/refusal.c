// SPDX-License-Identifier: Apache-2.0
// How each part of the proof refuses a schedule: the verdict, the place, and the sentence that says
// why.
#include "core/schedule/verify/internal.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

const char *ls_elements_text(const struct ls_range *range, char *text, size_t bytes)
{
    const char *where = range->buffer == LS_BUFFER_DATA      ? ""
                        : range->buffer == LS_BUFFER_SCRATCH ? " of scratch"
                                                             : " of an unknown buffer";
    if (range->count == 1)
        snprintf(text, bytes, "element %" PRIu64 "%s", range->offset, where);
    else if (range->count == 0)
        snprintf(text, bytes, "no elements");
    else
        snprintf(text, bytes, "elements %" PRIu64 " to %" PRIu64 "%s", range->offset,
                 range->offset + range->count - 1, where);
    return text;
}

enum ls_status ls_verifier_refuse(struct ls_verifier *verifier, uint32_t verdict, uint32_t rank,
                                  uint32_t round, const struct ls_range *range, const char *format,
                                  ...)
{
    struct ls_verification *out = verifier->out;
    out->verdict = verdict;
    out->rank = rank;
    out->round = round == UINT32_MAX ? verifier->rounds[rank] : round;
    out->range = range ? *range : ls_data_range(0, 0);
    size_t used = 0;
    if (verdict == LS_VERDICT_DECLINED)
        out->reason[0] = '\0';
    else if (round == UINT32_MAX)
        used = (size_t)snprintf(out->reason, sizeof(out->reason), "rank %u, in the end: ", rank);
    else
        used =
            (size_t)snprintf(out->reason, sizeof(out->reason), "rank %u, round %u: ", rank, round);
    va_list list;
    va_start(list, format);
    vsnprintf(out->reason + used, sizeof(out->reason) - used, format, list);
    va_end(list);
    return LS_FAILED;
}
