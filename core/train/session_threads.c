// SPDX-License-Identifier: Apache-2.0
// Work on the threads of a session's replicas, and which replicas these are.
#include "core/base/caller.h"
#include "core/base/log.h"
#include "core/train/session.h"

struct work {
    const char *doing;
    enum ls_status (*function)(void *context, uint32_t index);
    void *context;
};

// [replica thread]
static enum ls_status work(void *context, uint32_t index)
{
    const struct work *work = context;
    const uint32_t reasons = ls_thread_reasons();
    const enum ls_status status = work->function(work->context, index);
    if (status == LS_OUT_OF_MEMORY && ls_thread_reasons() == reasons)
        ls_error("train", "out of memory while %s; smaller batches and fewer replicas need less",
                 work->doing);
    return status;
}

enum ls_status ls_session_run(struct ls_session *session, const char *doing,
                              enum ls_status (*function)(void *context, uint32_t index),
                              void *context)
{
    struct work shared = {doing, function, context};
    session->run->doing = doing;
    enum ls_status status = ls_group_run(session->group, work, &shared);
    if (status == LS_PEER_LOST || status == LS_ABORTED)
        status = ls_workers_await_verdict(session->run, session->driver, status);
    if (status && atomic_load(&session->aborted))
        status = LS_PEER_LOST;
    session->broken = session->broken || (status && status != LS_INTERRUPTED);
    return status;
}

bool ls_session_in_host_memory(const struct ls_session *session)
{
    return ((const struct ls_device_interface *)session->run->device->interface)->memory_kind ==
           LS_MEMORY_HOST;
}

uint32_t ls_session_rank(const struct ls_session *session, uint32_t index)
{
    return ls_cluster_first_rank(session->cluster) + index;
}

uint32_t ls_session_share(const struct ls_session *session, uint32_t index)
{
    return ls_run_first_share(session->run) + index;
}

// [replica thread]
static enum ls_status synchronise(void *context, uint32_t index)
{
    return ls_driver_synchronise(((struct ls_session *)context)->driver, index);
}

// [replica thread]
static enum ls_status show_last_round(void *context, uint32_t index)
{
    return ls_driver_show_last_round(((struct ls_session *)context)->driver, index);
}

// After a failure only what no other replica is needed for.
enum ls_status ls_session_synchronise(struct ls_session *session)
{
    if (session->broken && session->driver && ls_driver_has_rounds(session->driver))
        return ls_session_run(session, "taking the last round", show_last_round, session);
    if (!session->unsynchronized || session->broken)
        return LS_OK;
    session->unsynchronized = false;
    return ls_session_run(session, "bringing the replicas together", synchronise, session);
}

bool ls_session_is_lost(const struct ls_session *session, uint32_t index)
{
    return session->driver && ls_driver_is_lost(session->driver, index);
}

uint32_t ls_session_first(const struct ls_session *session)
{
    uint32_t index = 0;
    while (index + 1 < session->count && ls_session_is_lost(session, index))
        index++;
    return index;
}
