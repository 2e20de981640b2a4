// SPDX-License-Identifier: Apache-2.0
// Opens, runs and closes the ranks of a test.
#include "tests/plugins/collective/nccl/job.h"

#include "core/device/device.h"

#include <check.h>

const struct ls_plugin *job_device_plugin, *job_plugin;
const struct ls_device_interface *job_ops;
const struct ls_collective_interface *job_nccl;

bool job_load(void)
{
    job_device_plugin = test_plugin_open("device-cuda");
    job_plugin = test_plugin_open("collective-nccl");
    if (!job_device_plugin || !job_plugin)
        return false;
    job_ops = job_device_plugin->interface;
    job_nccl = job_plugin->interface;
    return true;
}

// ---- The host: it counts, and has options ----

static int32_t host_fail(const struct ls_host *host, int32_t status, const char *message)
{
    struct test_host *test = host->context;
    struct job *job = (struct job *)((char *)test - offsetof(struct job, host));
    if (__atomic_fetch_add(&job->failures, 1, __ATOMIC_RELAXED) == 0)
        snprintf(job->said, sizeof(job->said), "%s", message);
    return status;
}

static const char *host_option(const struct ls_host *host, const char *name)
{
    const struct test_host *test = host->context;
    const struct job *job = (const struct job *)((const char *)test - offsetof(struct job, host));
    const char *given = strcmp(name, "algorithm") == 0  ? job->algorithm
                        : strcmp(name, "protocol") == 0 ? job->protocol
                                                        : NULL;
    return given ? given : test_host_option(host, name);
}

static void host_log(const struct ls_host *host, uint32_t level, const char *message)
{
    struct test_host *test = host->context;
    struct job *job = (struct job *)((char *)test - offsetof(struct job, host));
    if (level == LS_LOG_INFO)
        snprintf(job->noted, sizeof(job->noted), "%s", message);
}

// ---- Life ----

void job_init(struct job *job, uint32_t world, const uint32_t *gpus)
{
    static struct test_host device_host;
    setenv("CUDA_FAKE_DEVICES", "4", 1);
    memset(job, 0, sizeof(*job));
    test_host_init(&device_host, job_device_plugin);
    test_host_init(&job->host, job_plugin);
    job->host.host.fail = host_fail;
    job->host.host.option = host_option;
    job->host.host.log = host_log;
    job->world = world;
    job->deadline_ns = UINT64_C(20000000000);
    for (uint32_t i = 0; i < world; i++) {
        struct rank *rank = &job->ranks[i];
        const struct ls_device_config config = {.struct_size = sizeof(config),
                                                .index = gpus ? gpus[i] : i};
        rank->job = job;
        rank->number = i;
        ck_assert_msg(!ls_device_open_state(job_ops, &device_host.host, &config, &rank->device),
                      "%s", device_host.message);
        ck_assert_int_eq(job_ops->streams->open(rank->device, &rank->stream), LS_OK);
    }
}

static int32_t exchange(void *context, const void *own, uint64_t bytes, void *all)
{
    struct job *job = context;
    memcpy(all, own, (job->world - job->absent) * bytes);
    if (job->others)
        job->others(all, bytes);
    return LS_OK;
}

int32_t job_open(struct job *job)
{
    struct ls_collective_member members[MOST_RANKS];
    struct ls_collective *out[MOST_RANKS] = {NULL};
    const struct ls_collective_config config = {.struct_size = sizeof(config),
                                                .world = job->world,
                                                .count = job->world - job->absent,
                                                .members = members,
                                                .deadline_ns = job->deadline_ns,
                                                .context = job,
                                                .exchange = exchange};
    for (uint32_t i = 0; i < job->world; i++)
        members[i] = (struct ls_collective_member){.struct_size = sizeof(members[i]),
                                                   .rank = i,
                                                   .ops = job_ops,
                                                   .device = job->ranks[i].device,
                                                   .stream = job->ranks[i].stream};
    for (uint32_t i = 0; i < job->world; i++)
        out[i] = calloc(1, job_nccl->state_bytes);
    const int32_t status = job_nccl->open(&job->host.host, &config, out);
    for (uint32_t i = 0; i < job->world; i++)
        if (status || i >= config.count) {
            free(out[i]);
            out[i] = NULL;
        }
    for (uint32_t i = 0; i < job->world; i++)
        job->ranks[i].collective = out[i];
    return status;
}

static int32_t (*body_of_all)(struct rank *rank);

static void *rank_main(void *argument)
{
    struct rank *rank = argument;
    rank->status = body_of_all(rank);
    return NULL;
}

void job_run(struct job *job, int32_t (*body)(struct rank *rank))
{
    body_of_all = body;
    for (uint32_t i = 0; i < job->world; i++)
        ck_assert_int_eq(pthread_create(&job->ranks[i].thread, NULL, rank_main, &job->ranks[i]), 0);
    for (uint32_t i = 0; i < job->world; i++)
        pthread_join(job->ranks[i].thread, NULL);
    for (uint32_t i = 0; i < job->world; i++)
        ck_assert_msg(!job->ranks[i].message[0], "rank %u: %s", i, job->ranks[i].message);
}

void job_finish(struct job *job)
{
    struct nccl_fake_counts counts;
    struct double_counts cuda;
    for (uint32_t i = 0; i < job->world; i++)
        if (job->ranks[i].collective)
            job_nccl->close(job->ranks[i].collective);
    for (uint32_t i = 0; i < job->world; i++)
        free(job->ranks[i].collective);
    for (uint32_t i = 0; i < job->world; i++) {
        job_ops->streams->close(job->ranks[i].device, job->ranks[i].stream);
        ls_device_close(job->ranks[i].device);
    }
    nccl_fake_count(&counts);
    double_count(&cuda);
    ck_assert_uint_eq(counts.communicators, 0);
    ck_assert_uint_eq(counts.memories, 0);
    ck_assert_uint_eq(cuda.streams, 0);
    ck_assert_uint_eq(cuda.events, 0);
}

// ---- What a rank does ----

int32_t rank_blame(struct rank *rank, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    if (!rank->message[0])
        vsnprintf(rank->message, sizeof(rank->message), format, list);
    va_end(list);
    return LS_FAILED;
}

void *rank_allocate(struct rank *rank, uint64_t bytes)
{
    void *memory = NULL;
    if (!rank->job->symmetric)
        return (void *)job_ops->memory->allocate(rank->device, bytes);
    rank->status = job_nccl->allocate(rank->collective, bytes, &memory);
    return memory;
}

void rank_release(struct rank *rank, void *memory)
{
    if (rank->job->symmetric)
        job_nccl->release(rank->collective, memory);
    else
        job_ops->memory->release(rank->device, memory);
}

int32_t rank_run(struct rank *rank, uint32_t operation, void *buffer, uint64_t count)
{
    const struct ls_collective_run run = {.struct_size = sizeof(run),
                                          .operation = operation,
                                          .dtype = LS_F32,
                                          .reduction = LS_SUM,
                                          .buffer = buffer,
                                          .count = count};
    return job_nccl->run(rank->collective, &run);
}

int32_t rank_wait(struct rank *rank)
{
    struct ls_event *event = NULL;
    int32_t status = job_ops->streams->event_open(rank->device, &event);
    if (!status)
        status = job_ops->streams->event_record(rank->device, event, rank->stream);
    while (!status) {
        status = job_ops->streams->event_query(rank->device, event);
        if (status != LS_AGAIN)
            break;
        status = job_nccl->poll(rank->collective);
    }
    job_ops->streams->event_close(rank->device, event);
    return status;
}
