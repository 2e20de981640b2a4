// SPDX-License-Identifier: Apache-2.0
// What only the shared library has: its version, the commit in its reports, and messages in the words of C programs.
// The command links the rooms themselves.
#include "core/base/option_words.h"
#include "core/report/made.h"
#include "lockstep.h"

const char *ls_version(void)
{
    return LS_VERSION;
}

LS_AT_LOAD static void begin(void)
{
    ls_made_set_commit(ls_commit);
    ls_option_words_set(LS_WORDS_C);
}
