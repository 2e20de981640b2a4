// SPDX-License-Identifier: Apache-2.0
// Opens the callbacks of a command.
#include "tools/run_callbacks.h"

enum ls_status run_callbacks_add(struct ls_run *run, const char *text, struct run_callbacks *out)
{
    struct ls_callbacks **opened = &out->opened[out->count];
    const enum ls_status status = ls_callback_open(run, text, opened);
    if (!status)
        out->tables[out->count++] = **opened;
    return status;
}

enum ls_status run_callbacks_open(const struct arguments *arguments, struct ls_run *run,
                                  struct run_callbacks *out)
{
    const char *text;
    enum ls_status status = LS_OK;
    for (size_t i = 0; !status && (text = arguments_next(arguments, "callback", i)); i++)
        status = run_callbacks_add(run, text, out);
    return status;
}

void run_callbacks_close(struct run_callbacks *callbacks)
{
    for (size_t i = 0; i < sizeof(callbacks->opened) / sizeof(callbacks->opened[0]); i++)
        ls_callback_close(callbacks->opened[i]);
}
