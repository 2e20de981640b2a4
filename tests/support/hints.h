// SPDX-License-Identifier: Apache-2.0
// Whether docs/strategies.md has exactly the rows of a table of hints, so that neither says what the
// other does not.
#ifndef LS_TESTS_HINTS_H
#define LS_TESTS_HINTS_H

#include "core/base/options.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// What stands between <!-- marker --> and <!-- /marker --> in the file LS_STRATEGIES_PAGE; freed by
// the caller.
static inline char *documented_part(const char *marker)
{
    char begin[64], end[64];
    static char page[1 << 18];
    FILE *file = fopen(LS_STRATEGIES_PAGE, "r");
    ck_assert_msg(file != NULL, "cannot open %s", LS_STRATEGIES_PAGE);
    page[fread(page, 1, sizeof(page) - 1, file)] = '\0';
    fclose(file);
    snprintf(begin, sizeof(begin), "<!-- %s -->", marker);
    snprintf(end, sizeof(end), "<!-- /%s -->", marker);
    char *from = strstr(page, begin);
    ck_assert_msg(from != NULL, "%s is not in %s", begin, LS_STRATEGIES_PAGE);
    char *to = strstr(from, end);
    ck_assert_msg(to != NULL, "%s is not in %s", end, LS_STRATEGIES_PAGE);
    *to = '\0';
    return strdup(from);
}

// `write_kinds` may be NULL; else it writes the first column. `before` stands before every name.
static inline void assert_documented(const struct ls_hint *table, const char *marker,
                                     const char *before,
                                     void (*write_kinds)(FILE *row, uint32_t kinds))
{
    char *part = documented_part(marker);
    size_t rows = 0, documented = 0;
    for (; table->names; table++, rows++) {
        char *row = NULL, *copy = strdup(table->names), *rest = NULL;
        size_t bytes = 0;
        FILE *text = open_memstream(&row, &bytes);
        ck_assert_ptr_nonnull(copy);
        ck_assert_ptr_nonnull(text);
        fputs("\n|", text);
        if (write_kinds)
            write_kinds(text, table->kinds);
        const char *gap = " ";
        for (char *name = strtok_r(copy, " ", &rest); name; name = strtok_r(NULL, " ", &rest)) {
            fprintf(text, "%s`%s%s`", gap, before, name);
            gap = ", ";
        }
        fprintf(text, " | %s |\n", table->text);
        fclose(text);
        ck_assert_msg(strstr(part, row) != NULL, "not in %s: %s", LS_STRATEGIES_PAGE, row);
        free(row);
        free(copy);
    }
    for (const char *line = strstr(part, "\n|"); line; line = strstr(line + 1, "\n|"))
        documented++;
    ck_assert_uint_eq(documented, rows + 2); // heading and rule
    free(part);
}

#endif
