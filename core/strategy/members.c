// SPDX-License-Identifier: Apache-2.0
// The replicas of a driver, which its calls find here, and how one that fails ends what all of them
// do.
#include "core/strategy/internal.h"

#include "core/base/log.h"

static _Thread_local struct ls_driver_member *current;

void ls_driver_set_current(struct ls_driver_member *member)
{
    current = member;
}

struct ls_driver_member *ls_driver_current(void)
{
    return current;
}

// ---- Failures ----

static void abort_endpoints(struct ls_driver *driver)
{
    pthread_mutex_lock(&driver->lock);
    for (uint32_t i = 0; i < driver->endpoint_count; i++)
        if (driver->endpoints[i]) {
            driver->table.transport->abort(driver->endpoints[i]);
            break; // it ends everything at all of them
        }
    pthread_mutex_unlock(&driver->lock);
}

void ls_driver_abort(struct ls_driver *driver)
{
    atomic_store(&driver->aborted, true);
    ls_barrier_abort(&driver->barrier);
    abort_endpoints(driver);
    for (uint32_t i = 0; driver->communicators && i < driver->count; i++)
        if (driver->communicators[i])
            ls_communicator_abort(driver->communicators[i]);
    for (uint32_t i = 0; driver->total_communicators && i < driver->count; i++)
        if (driver->total_communicators[i])
            ls_communicator_abort(driver->total_communicators[i]);
}

void ls_driver_fail(struct ls_driver *driver, enum ls_status status)
{
    int32_t none = LS_OK;
    atomic_compare_exchange_strong(&driver->failure, &none, (int32_t)status);
    ls_driver_abort(driver);
}

void ls_driver_note_silent(struct ls_driver *driver, int32_t status)
{
    int32_t none = LS_OK;
    atomic_compare_exchange_strong(&driver->silent, &none, status);
}

// ---- What a plugin names ----

// What a plugin passes to a call may not exist. NULL, logged: there is no such replica, or not yet.
struct ls_driver_member *ls_driver_find_member(const struct ls_strategy_host *table,
                                               const char *call, uint32_t replica)
{
    struct ls_driver *driver = ls_driver_of(table);
    if (replica < driver->count && driver->members[replica].replica)
        return &driver->members[replica];
    if (replica < driver->count) {
        ls_error(ls_driver_name(driver),
                 "%s in open, when replicas have no buffers yet: an error of the plugin", call);
        return NULL;
    }
    ls_error(ls_driver_name(driver), "%s for replica %u, but there are %u: an error of the plugin",
             call, replica, driver->count);
    return NULL;
}

// The same for calls that cannot answer that.
struct ls_driver_member *ls_driver_need_member(const struct ls_strategy_host *table,
                                               const char *call, uint32_t replica)
{
    struct ls_driver_member *member = ls_driver_find_member(table, call, replica);
    if (!member)
        ls_driver_fail(ls_driver_of(table), LS_FAILED);
    return member;
}
