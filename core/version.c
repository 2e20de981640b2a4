// SPDX-License-Identifier: Apache-2.0
// The version of the library.
#include "lockstep.h"

const char *ls_version(void)
{
    return LS_VERSION;
}
