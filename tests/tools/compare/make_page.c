// SPDX-License-Identifier: Apache-2.0
// Makes the page of a comparison that lies in a file, for tests that look at it in a browser.
// usage: make_compare_page COMPARISON.json PAGE.html
#include "tools/compare/page.h"

#include <stdio.h>

int main(int count, char **arguments)
{
    json_error_t error;
    json_t *comparison = count == 3 ? json_load_file(arguments[1], 0, &error) : NULL;
    if (!comparison) {
        fprintf(stderr, "make_compare_page: %s\n", count == 3 ? error.text : "two files, please");
        return 2;
    }
    const enum ls_status status = ls_compare_page_write(arguments[2], comparison);
    json_decref(comparison);
    return ls_status_exit_code(status);
}
