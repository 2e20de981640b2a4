// SPDX-License-Identifier: Apache-2.0
// The errors that were logged: how many, and the text of the last one.
#ifndef LS_TESTS_SUPPORT_ERRORS_H
#define LS_TESTS_SUPPORT_ERRORS_H

#include "core/base/log.h"
#include "core/plugin/plugin.h"

#include <check.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

static atomic_uint errors;
static char message[2048];

static inline void keep_error(void *context, uint32_t level, const char *line)
{
    (void)context;
    if (level != LS_LOG_ERROR)
        return;
    errors++;
    snprintf(message, sizeof(message), "%s", line);
}

// Also begins to keep them.
static inline void forget_errors(void)
{
    errors = 0;
    message[0] = '\0';
    ls_log_set_writer(keep_error, NULL);
}

// The call that gave `status` logged one error that has `text` in it.
static inline void expect_error(enum ls_status status, enum ls_status wanted, const char *text)
{
    ck_assert_msg(status == wanted, "%d, not %d: %s", (int)status, (int)wanted, message);
    ck_assert_msg(errors == 1, "%u errors, the last: %s", errors, message);
    ck_assert_msg(strstr(message, text) != NULL, "'%s' is not in: %s", text, message);
    forget_errors();
}

#endif
