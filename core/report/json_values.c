// SPDX-License-Identifier: Apache-2.0
// Numbers and texts for JSON.
#include "core/report/json_values.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

json_t *ls_report_number_json(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

json_t *ls_report_count_json(uint64_t value)
{
    return json_integer((json_int_t)value);
}

// A file's name may be no UTF-8, which JSON cannot say.
json_t *ls_report_text_json(const char *value)
{
    if (!value)
        return json_null();
    json_t *string = json_string(value);
    char *copy = string ? NULL : strdup(value);
    for (char *letter = copy; letter && *letter; letter++)
        if ((unsigned char)*letter >= 0x80)
            *letter = '?';
    if (copy)
        string = json_string(copy);
    free(copy);
    return string;
}
