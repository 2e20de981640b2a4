// SPDX-License-Identifier: Apache-2.0
// Reads the step record within a program: it is an argument of words.
#include "plugins/device/pjrt/operation.h"

struct hlo_value pjrt_record_field(struct pjrt_call *call, size_t offset, uint32_t type)
{
    struct hlo *h = call->h;
    const bool wide = type == HLO_U64;
    const struct hlo_value words =
        hlo_part(h, call->record, (int64_t)(offset / sizeof(int32_t)), wide ? 2 : 1);
    if (wide)
        return hlo_bitcast(h, words, type, (struct hlo_shape){0});
    const struct hlo_value word = hlo_reshape(h, words, (struct hlo_shape){0});
    return type == LS_I32 ? word : hlo_bitcast(h, word, type, (struct hlo_shape){0});
}
