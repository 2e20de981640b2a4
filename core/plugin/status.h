// SPDX-License-Identifier: Apache-2.0
// The outcomes that calls of Lockstep return, on both sides of the plugin boundary, and the levels of messages.
// Across the boundary they travel as int32_t and uint32_t.
#ifndef LS_PLUGIN_STATUS_H
#define LS_PLUGIN_STATUS_H

// What a call answers.
enum ls_status {
    LS_OK = 0, // done
    LS_FAILED = 1, // something went wrong that has no code of its own
    LS_USAGE = 2, // an option, a value or a built-in name that does not exist
    LS_BAD_INPUT = 3, // a file that is missing, malformed or does not fit
    LS_UNAVAILABLE = 4, // plugin or hardware that is not here
    LS_PEER_LOST = 5, // a peer died, or a deadline passed
    LS_OUT_OF_MEMORY = 6, // ends the program with 1
    LS_ABORTED = 7, // another rank failed first; it has logged why
    LS_UNSUPPORTED = 8, // a well-formed request that this component does not do
    LS_AGAIN = 9, // not finished yet; call again
    LS_INTERRUPTED = 130, // the user pressed Ctrl-C
};

// Levels of messages, the most important first.
enum ls_log_level { LS_LOG_ERROR = 0, LS_LOG_WARN = 1, LS_LOG_INFO = 2, LS_LOG_DEBUG = 3 };

#endif
