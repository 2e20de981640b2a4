// SPDX-License-Identifier: Apache-2.0
// The norm of all gradients, and whether they are finite, where each rank has the sums of its own
// parts alone: each measures these, and the measures of all ranks are added up. Measures are pairs,
// as LS_OP_MEASURE has them: a sum of squares, and how many values are not finite. The first pair
// of a replica is that of all ranks, which clipping reads; its own follow. With --reproducible each
// rank has all sums: it measures whole variables, as a strategy without parts does.
#include "core/strategy/internal.h"

#include <stdlib.h>

// ls_updater_memory has measures of its own in front.
static struct ls_memory measures_of(const struct ls_driver_member *member)
{
    return ls_replica_updater_memory(member->replica, 0).measures;
}

enum ls_status ls_driver_attach_norms(struct ls_driver *driver)
{
    enum ls_status status = LS_OK;
    if (!driver->communicators || !driver->ops->placement ||
        !ls_optimizer_measures_all(&driver->optimizer))
        return LS_OK;
    for (uint32_t i = 0; !status && i < driver->count; i++) {
        struct ls_driver_member *member = &driver->members[i];
        member->measured = calloc(driver->bucket_count, sizeof(*member->measured));
        if (!member->measured)
            status = LS_OUT_OF_MEMORY;
        else if (!driver->options.shards)
            status =
                ls_collective_plan_create(member->communicator, LS_ALL_REDUCE, measures_of(member),
                                          2, LS_F64, LS_SUM, 0, "norm", &member->norm);
    }
    return status;
}

// So many pairs from pair `first` on become one, the first.
static enum ls_status add_pairs(const struct ls_driver_member *member, uint64_t first,
                                uint64_t count, double *sums)
{
    struct ls_device *device = ls_replica_device(member->replica);
    const struct ls_memory all = measures_of(member);
    double *own = malloc((2 * count + 1) * sizeof(*own));
    enum ls_status status = own ? ls_device_copy(device, ls_host_memory(own),
                                                 ls_memory_at(all, 2 * first * sizeof(*own)),
                                                 2 * count * sizeof(*own), NULL)
                                : LS_OUT_OF_MEMORY;
    sums[0] = sums[1] = 0;
    for (uint64_t i = 0; !status && i < 2 * count; i++)
        sums[i % 2] += own[i];
    free(own);
    if (!status)
        status = ls_device_copy(device, all, ls_host_memory(sums), 2 * sizeof(*sums), NULL);
    return status;
}

static enum ls_status add_over_ranks(const struct ls_driver_member *member, double *sums)
{
    enum ls_status status = add_pairs(member, 1, member->range_measures, sums);
    if (!status)
        status = ls_collective_start(member->norm);
    return status ? status : ls_collective_wait(member->norm);
}

static enum ls_status measure_all(const struct ls_driver_member *member, double *sums)
{
    uint64_t count;
    const enum ls_status status = ls_replica_measure(member->replica, &count);
    return status ? status : add_pairs(member, 0, count, sums);
}

enum ls_status ls_driver_add_norms(struct ls_driver *driver, struct ls_driver_member *member,
                                   bool *skips)
{
    struct ls_replica *replica = member->replica;
    double sums[2];
    enum ls_status status = member->norm ? add_over_ranks(member, sums) : measure_all(member, sums);
    *skips = false;
    if (status || !ls_optimizer_scales(&driver->optimizer))
        return status;
    const uint64_t skipped = ls_replica_scale(replica)->skipped;
    status = ls_communicator_synchronize(member->communicator);
    if (!status)
        status = ls_device_copy(ls_replica_device(replica), ls_host_memory(sums),
                                measures_of(member), sizeof(sums), NULL);
    if (!status)
        ls_replica_decide(replica, ls_measures_finite(sums, 1));
    *skips = !status && ls_replica_scale(replica)->skipped != skipped;
    return status;
}
