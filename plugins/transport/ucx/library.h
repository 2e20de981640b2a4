// SPDX-License-Identifier: Apache-2.0
// UCX as a table of calls. It is compiled with UCX's headers and loaded at run time, because UCX
// must be told something before it is loaded, and because a program that does not use this
// transport should not start UCX.
#ifndef LS_TRANSPORT_UCX_LIBRARY_H
#define LS_TRANSPORT_UCX_LIBRARY_H

#include "core/plugin/plugin.h"

#include <ucp/api/ucp.h>
#include <ucs/debug/log_def.h>

#define UCX_CALLS(CALL)                  \
    CALL(ucp_get_version)                \
    CALL(ucp_config_read)                \
    CALL(ucp_config_modify)              \
    CALL(ucp_config_release)             \
    CALL(ucp_init_version)               \
    CALL(ucp_cleanup)                    \
    CALL(ucp_worker_create)              \
    CALL(ucp_worker_destroy)             \
    CALL(ucp_worker_get_address)         \
    CALL(ucp_worker_release_address)     \
    CALL(ucp_worker_set_am_recv_handler) \
    CALL(ucp_worker_progress)            \
    CALL(ucp_worker_get_efd)             \
    CALL(ucp_worker_arm)                 \
    CALL(ucp_ep_create)                  \
    CALL(ucp_ep_close_nbx)               \
    CALL(ucp_ep_flush_nbx)               \
    CALL(ucp_am_send_nbx)                \
    CALL(ucp_request_check_status)       \
    CALL(ucp_request_free)               \
    CALL(ucs_status_string)              \
    CALL(ucs_log_push_handler)

struct ucx_library {
#define UCX_CALL(name) __typeof__(&(name)) name;
    UCX_CALLS(UCX_CALL)
#undef UCX_CALL
    unsigned major, minor;
    char version[32]; // "1.13.1"
};

// Loads UCX once in the process; it stays. NULL: `reason` says what is missing. [main thread]
const struct ucx_library *ucx_library_get(char *reason, size_t bytes);

// From now on UCX's messages go to the log of this host, until it is forgotten. [any thread]
void ucx_library_log(const struct ls_host *host);
void ucx_library_forget(const struct ls_host *host);

// As ls_plugin.probe says it.
int32_t ucx_probe(char *reason, uint64_t bytes);

#endif
