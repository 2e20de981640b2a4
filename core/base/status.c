// SPDX-License-Identifier: Apache-2.0
// The text and the exit code of each outcome.
#include "core/base/status.h"

const char *ls_status_text(enum ls_status status)
{
    switch (status) {
    case LS_OK: return "done";
    case LS_FAILED: return "failed";
    case LS_USAGE: return "wrong usage";
    case LS_BAD_INPUT: return "bad input";
    case LS_UNAVAILABLE: return "not available";
    case LS_PEER_LOST: return "peer lost or deadline passed";
    case LS_OUT_OF_MEMORY: return "out of memory";
    case LS_ABORTED: return "aborted because another rank failed";
    case LS_UNSUPPORTED: return "not supported";
    case LS_AGAIN: return "not finished yet";
    case LS_INTERRUPTED: return "interrupted";
    }
    return "unknown status"; // a plugin may return any number
}

int ls_status_exit_code(enum ls_status status)
{
    switch (status) {
    case LS_OK: return 0;
    case LS_USAGE: return 2;
    case LS_BAD_INPUT: return 3;
    case LS_UNAVAILABLE: return 4;
    case LS_PEER_LOST: return 5;
    case LS_INTERRUPTED: return 130;
    case LS_FAILED:
    case LS_OUT_OF_MEMORY:
    case LS_ABORTED:
    case LS_UNSUPPORTED:
    case LS_AGAIN: break;
    }
    return 1;
}

enum ls_status ls_status_of_program(enum ls_status answer)
{
    const int number = (int)answer;
    return (number >= LS_OK && number <= LS_OUT_OF_MEMORY) || answer == LS_INTERRUPTED ? answer
                                                                                       : LS_FAILED;
}
