// SPDX-License-Identifier: Apache-2.0
// The host's calls on ranges of a replica's buffers: collectives, the optimizer, and operations of the device.
#include "core/strategy/internal.h"

#include "core/base/clock.h"
#include "core/base/inside.h"
#include "core/base/log.h"
#include "core/base/trace.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const struct ls_trace_label update_span = {
    .category = "update", .name = "update of a range", .value = "elements"};
static const struct ls_trace_label run_span = {
    .category = "strategy", .name = "operation on a range", .value = "elements"};

// ---- Collectives ----

// A kernel for a number of floats; prepared when it is first needed and kept until the driver is closed.
struct ls_range_kernel {
    struct ls_range_kernel *next; // of the member
    uint32_t op;
    struct ls_op_attributes attributes;
    uint64_t count;
    struct ls_kernel *kernel;
    struct ls_memory scratch;
};

// What updates a range.
struct ls_range_updater {
    struct ls_range_updater *next; // of the member
    uint64_t first, count;
    struct ls_updater *updater;
    struct ls_memory scratch;
};

struct ls_strategy_collective {
    struct ls_strategy_collective *next; // of the member
    struct ls_collective_plan *plan;
    bool writes_parameters;
    bool sums; // of the step
};

static struct ls_memory sums_of(const struct ls_strategy_host *table, uint32_t replica)
{
    const struct ls_driver_member *member = ls_driver_find_member(table, "prepare", replica);
    return member ? ls_replica_memory(member->replica, LS_BUFFER_REDUCED)
                  : (struct ls_memory){NULL, 0};
}

// Sums of gradients may be rounded, but not a range that begins with moving statistics, as it is cut among the ranks as a whole.
static uint32_t wire_of(const struct ls_driver *driver,
                        const struct ls_strategy_operation *operation)
{
    const bool sums = operation->operation != LS_BROADCAST && operation->operation != LS_ALL_GATHER;
    return sums && operation->memory == LS_REPLICA_GRADIENTS &&
                   operation->first >= driver->table.trained_first
               ? driver->options.wire
               : 0;
}

int32_t ls_driver_range_prepare(const struct ls_strategy_host *table, uint32_t replica,
                                const struct ls_strategy_operation *operation,
                                struct ls_strategy_collective **out)
{
    struct ls_driver *driver = ls_driver_of(table);
    const bool sums = operation->memory == LS_REPLICA_SUMS && operation->first == 0 &&
                      operation->count == LS_STRATEGY_SUMS;
    const struct ls_memory range =
        sums ? sums_of(table, replica)
             : ls_driver_range_of(table, "prepare", replica, operation->memory, operation->first,
                                  operation->count);
    if (ls_memory_is_null(range) ||
        !ls_driver_may_communicate(driver, "prepare with root", operation->root, driver->world))
        return LS_FAILED;
    struct ls_driver_member *member = &driver->members[replica];
    struct ls_strategy_collective *collective = calloc(1, sizeof(*collective));
    if (!collective)
        return LS_OUT_OF_MEMORY;
    char label[32];
    snprintf(label, sizeof(label), "range %" PRIu64, operation->first);
    collective->sums = sums;
    collective->writes_parameters = operation->memory == LS_REPLICA_PARAMETERS;
    const struct ls_communicator_call call = {.operation = operation->operation,
                                              .dtype = LS_F32,
                                              .reduction = LS_SUM,
                                              .root = operation->root,
                                              .buffer = range,
                                              .count = operation->count,
                                              .wire = wire_of(driver, operation),
                                              .keeps_infinite =
                                                  ls_optimizer_scales(&driver->optimizer)};
    enum ls_status status = ls_collective_plan_open(member->communicator, &call,
                                                    sums ? "sums" : label, &collective->plan);
    if (!status)
        status = ls_collective_known_answer(collective->plan);
    if (status) {
        ls_collective_plan_destroy(collective->plan);
        free(collective);
        return (int32_t)status;
    }
    collective->next = member->collectives;
    member->collectives = collective;
    *out = collective;
    return LS_OK;
}

int32_t ls_driver_range_start(const struct ls_strategy_host *table, uint32_t replica,
                              struct ls_strategy_collective *collective)
{
    const struct ls_driver_member *member = ls_driver_find_member(table, "start", replica);
    if (!member)
        return LS_FAILED;
    const enum ls_status status = collective->sums ? ls_driver_start_counts(member) : LS_OK;
    return (int32_t)(status ? status : ls_collective_start(collective->plan));
}

int32_t ls_driver_range_wait(const struct ls_strategy_host *table, uint32_t replica,
                             struct ls_strategy_collective *collective)
{
    struct ls_driver_member *member = ls_driver_find_member(table, "wait", replica);
    if (!member)
        return LS_FAILED;
    member->touched = member->touched || collective->writes_parameters;
    const enum ls_status status = collective->sums ? ls_driver_wait_for_counts(member) : LS_OK;
    return (int32_t)(status ? status : ls_collective_wait(collective->plan));
}

void ls_driver_close_ranges(struct ls_driver_member *member)
{
    while (member->collectives) {
        struct ls_strategy_collective *collective = member->collectives;
        member->collectives = collective->next;
        ls_collective_plan_destroy(collective->plan);
        free(collective);
    }
    while (member->kernels) {
        struct ls_range_kernel *kernel = member->kernels;
        const struct ls_replica *replica = member->replica;
        member->kernels = kernel->next;
        ls_device_release_kernel(ls_replica_device(replica), kernel->kernel);
        ls_device_release(ls_replica_device(replica), kernel->scratch);
        free(kernel);
    }
    while (member->updaters) {
        struct ls_range_updater *range = member->updaters;
        member->updaters = range->next;
        ls_updater_destroy(range->updater);
        ls_device_release(ls_replica_device(member->replica), range->scratch);
        free(range);
    }
}

// ---- Operations ----

static enum ls_status prepare_kernel(const struct ls_replica *replica,
                                     struct ls_range_kernel *kernel)
{
    const struct ls_range_operation operation = {.op = kernel->op,
                                                 .attributes = &kernel->attributes,
                                                 .input_count = 1,
                                                 .output_count = 1,
                                                 .count = kernel->count};
    struct ls_kernel_answer answer;
    const enum ls_status status = ls_device_prepare_range(
        ls_replica_device(replica), "operation on a range", &operation, &answer);
    if (status)
        return status;
    kernel->kernel = answer.kernel;
    if (!(answer.in_place & 1)) // it has to write where it reads
        return LS_UNSUPPORTED;
    if (answer.scratch_bytes)
        kernel->scratch = ls_device_allocate(ls_replica_device(replica), answer.scratch_bytes);
    return answer.scratch_bytes && ls_memory_is_null(kernel->scratch) ? LS_OUT_OF_MEMORY : LS_OK;
}

static enum ls_status need_kernel(struct ls_driver_member *member, uint32_t op,
                                  const struct ls_op_attributes *attributes, uint64_t count,
                                  const struct ls_range_kernel **out)
{
    const struct ls_replica *replica = member->replica;
    for (*out = member->kernels; *out; *out = (*out)->next)
        if ((*out)->op == op && (*out)->count == count &&
            memcmp(&(*out)->attributes, attributes, sizeof(*attributes)) == 0)
            return LS_OK;
    struct ls_range_kernel *kernel = calloc(1, sizeof(*kernel));
    if (!kernel)
        return LS_OUT_OF_MEMORY;
    kernel->op = op;
    kernel->attributes = *attributes;
    kernel->count = count;
    const enum ls_status status = prepare_kernel(replica, kernel);
    if (status) {
        if (kernel->kernel)
            ls_device_release_kernel(ls_replica_device(replica), kernel->kernel);
        free(kernel);
        return status;
    }
    kernel->next = member->kernels;
    member->kernels = kernel;
    *out = kernel;
    return LS_OK;
}

static int32_t launch(const struct ls_replica *replica, const struct ls_range_kernel *kernel,
                      const struct ls_memory *arguments, uint32_t count)
{
    const struct ls_launch launch = {.struct_size = sizeof(launch),
                                     .argument_count = count,
                                     .arguments = arguments,
                                     .scratch = kernel->scratch,
                                     .record = ls_replica_step_record(replica)};
    return (int32_t)ls_device_launch(ls_replica_device(replica), kernel->kernel, &launch);
}

// Kernels want memory that is aligned as devices allocate it.
static bool is_aligned(const struct ls_strategy_host *table, const char *call, uint64_t first)
{
    if (first % (LS_ALIGNMENT / sizeof(float)) == 0)
        return true;
    ls_error(ls_driver_name(ls_driver_of(table)),
             "%s from float %" PRIu64 ", which is no multiple of %zu: an error of the plugin", call,
             first, LS_ALIGNMENT / sizeof(float));
    return false;
}

// The updater of a range is made when it is first needed, and kept until the driver is closed.
static enum ls_status need_updater(struct ls_driver *driver, struct ls_driver_member *member,
                                   uint64_t first, uint64_t count, struct ls_range_updater **out)
{
    for (*out = member->updaters; *out; *out = (*out)->next)
        if ((*out)->first == first && (*out)->count == count)
            return LS_OK;
    if (ls_updater_cuts_variables(driver->plan, &driver->optimizer, first, first + count)) {
        ls_error(ls_driver_name(driver),
                 "update_range of %" PRIu64 " values from %" PRIu64
                 " is not of whole variables, as optimizer %s needs them: an error of the plugin",
                 count, first, driver->optimizer.name);
        return LS_FAILED;
    }
    if (ls_optimizer_measures_all(&driver->optimizer)) {
        ls_error(ls_driver_name(driver),
                 "update_range, where the optimizer needs all gradients together (LS_NORM_OF_ALL): "
                 "an error of the plugin");
        return LS_FAILED;
    }
    struct ls_range_updater *range = calloc(1, sizeof(*range));
    const struct ls_updater_options options = {.device = ls_replica_device(member->replica),
                                               .about = "update of a range",
                                               .plan = driver->plan,
                                               .optimizer = &driver->optimizer,
                                               .first = first,
                                               .end = first + count};
    const char *missing = NULL;
    enum ls_status status =
        range ? ls_updater_create(&options, &missing, &range->updater) : LS_OUT_OF_MEMORY;
    const uint64_t scratch = status ? 0 : ls_updater_scratch_bytes(range->updater);
    if (scratch) {
        range->scratch = ls_device_allocate(options.device, scratch);
        status = ls_memory_is_null(range->scratch) ? LS_OUT_OF_MEMORY : LS_OK;
    }
    if (status) {
        if (range)
            ls_updater_destroy(range->updater);
        free(range);
        return status;
    }
    range->first = first;
    range->count = count;
    range->next = member->updaters;
    *out = member->updaters = range;
    return LS_OK;
}

int32_t ls_driver_range_update(const struct ls_strategy_host *table, uint32_t replica,
                               uint64_t first, uint64_t count)
{
    const struct ls_memory gradients =
        ls_driver_range_of(table, "update_range", replica, LS_REPLICA_GRADIENTS, first, count);
    if (ls_memory_is_null(gradients) || !is_aligned(table, "update_range", first))
        return LS_FAILED;
    struct ls_driver *driver = ls_driver_of(table);
    struct ls_driver_member *member = &driver->members[replica];
    if (driver->optimizer.op == LS_OP_NONE || count == 0)
        return LS_OK;
    const uint64_t start = ls_clock_ns();
    struct ls_range_updater *range;
    enum ls_status status = need_updater(driver, member, first, count, &range);
    if (!status) {
        struct ls_updater_memory memory = ls_replica_updater_memory(member->replica, first);
        memory.scratch = range->scratch;
        member->touched = true;
        ls_inside_about("update of a range");
        status = ls_updater_run(range->updater, &memory);
    }
    const uint64_t end = ls_clock_ns();
    member->own_update_ns += end - start;
    ls_trace_span(&update_span, start, end, count);
    return (int32_t)status;
}

int32_t ls_driver_range_run(const struct ls_strategy_host *table, uint32_t replica,
                            const struct ls_strategy_range_operation *operation)
{
    const struct ls_range_kernel *kernel;
    const struct ls_memory range = ls_driver_range_of(table, "run", replica, operation->memory,
                                                      operation->first, operation->count);
    if (ls_memory_is_null(range) || !is_aligned(table, "run", operation->first))
        return LS_FAILED;
    struct ls_driver_member *member = &ls_driver_of(table)->members[replica];
    if (operation->count == 0)
        return LS_OK;
    const enum ls_status status =
        need_kernel(member, operation->op, &operation->attributes, operation->count, &kernel);
    if (status)
        return (int32_t)status;
    const struct ls_memory arguments[2] = {range, range};
    member->touched = member->touched || operation->memory == LS_REPLICA_PARAMETERS;
    ls_inside_about("operation on a range");
    ls_trace_begin(&run_span, operation->count);
    const int32_t launched = launch(member->replica, kernel, arguments, 2);
    ls_trace_end();
    return launched;
}
