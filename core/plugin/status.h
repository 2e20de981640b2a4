// SPDX-License-Identifier: Apache-2.0
// The status that calls of Lockstep and of plugins return, and the levels of messages. Across the
// plugin boundary they travel as int32_t and uint32_t.
#ifndef LS_PLUGIN_STATUS_H
#define LS_PLUGIN_STATUS_H

// What a call returns.
enum ls_status {
    LS_OK = 0, // done
    LS_FAILED = 1, // something went wrong that has no code of its own
    LS_USAGE = 2, // an option, a value or a built-in name does not exist
    LS_BAD_INPUT = 3, // a file is missing, is malformed or does not fit
    LS_UNAVAILABLE = 4, // a plugin or hardware is not available
    LS_PEER_LOST = 5, // a peer died, or a deadline passed
    LS_OUT_OF_MEMORY = 6, // ends the program with 1
    LS_ABORTED = 7, // another rank failed first; it has logged why
    LS_UNSUPPORTED = 8, // this component cannot do this, although the request is well-formed
    LS_AGAIN = 9, // not finished yet; call again
    LS_INTERRUPTED = 130, // the user pressed Ctrl-C
};

// Levels of messages, the most important first.
enum ls_log_level { LS_LOG_ERROR = 0, LS_LOG_WARN = 1, LS_LOG_INFO = 2, LS_LOG_DEBUG = 3 };

#endif
