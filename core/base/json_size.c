// SPDX-License-Identifier: Apache-2.0
// Each bracket, brace and comma outside of strings begins at most one value.
#include "core/base/json_size.h"

bool ls_json_fits(const char *text, size_t bytes)
{
    size_t values = 1;
    bool string = false;

    for (size_t i = 0; i < bytes && values <= LS_JSON_MOST_VALUES; i++) {
        const char letter = text[i];
        if (letter == '"')
            string = !string;
        else if (string)
            i += letter == '\\';
        else
            values += letter == '[' || letter == '{' || letter == ',';
    }
    return values <= LS_JSON_MOST_VALUES;
}
