// SPDX-License-Identifier: Apache-2.0
// The place of a process, from the variables of each launcher: what complete ones say, and the
// sentence about incomplete and contradictory ones. The environment is passed in.
#include "core/base/log.h"
#include "core/cluster/resolve.h"
#include "core/cluster/resolvers/resolver.h"
#include "tests/support/suite.h"

#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static char line[1024];
static int lines;

static void keep_line(void *context, uint32_t level, const char *text)
{
    (void)context;
    (void)level;
    snprintf(line, sizeof(line), "%s", text);
    lines++;
}

// "torchrun: worker 1 of 4, local 1 of 2, at 10.0.0.1:29500".
static void write_place(const struct ls_worker_place *place, char *out, size_t bytes)
{
    static const char *const roles[] = {"worker", "server", "evaluator"};
    size_t used = (size_t)snprintf(out, bytes, "%s: %s %u of %u", place->resolver,
                                   roles[place->role], place->number, place->workers);
    if (place->servers)
        used += (size_t)snprintf(out + used, bytes - used, " and %u", place->servers);
    if (place->local_workers)
        used += (size_t)snprintf(out + used, bytes - used, ", local %u of %u", place->local_worker,
                                 place->local_workers);
    if (place->address[0])
        used +=
            (size_t)snprintf(out + used, bytes - used, ", at %s:%u", place->address, place->port);
    if (place->own_address[0])
        used += (size_t)snprintf(out + used, bytes - used, ", self %s:%u", place->own_address,
                                 place->own_port);
    if (place->reached_from_outside)
        used += (size_t)snprintf(out + used, bytes - used, ", from outside");
    if (place->job[0])
        used += (size_t)snprintf(out + used, bytes - used, ", job %s", place->job);
    if (place->restart)
        used += (size_t)snprintf(out + used, bytes - used, ", restart %u", place->restart);
    if (place->joins)
        snprintf(out + used, bytes - used, ", joins");
}

struct row {
    const char *which; // NULL: auto
    const char *variables[14];
    const char *place; // NULL: refused
    const char *problem; // a part of the sentence
};

static void check_row(const struct row *row)
{
    const struct ls_environment environment = {row->variables};
    struct ls_worker_place place = {.resolver = "untouched"};
    char text[1024];
    lines = 0;
    line[0] = '\0';
    ls_log_set_writer(keep_line, NULL);
    const enum ls_status status =
        ls_worker_place_resolve(row->which ? row->which : "auto", &environment, &place);
    ls_log_set_writer(NULL, NULL);
    if (row->place) {
        ck_assert_msg(status == LS_OK, "%s: refused: %s", row->place, line);
        write_place(&place, text, sizeof(text));
        ck_assert_str_eq(text, row->place);
        ck_assert_int_eq(lines, 0);
        ck_assert_int_eq(place.listen_fd, -1);
        return;
    }
    ck_assert_msg(status == LS_USAGE, "%s: status %d", row->problem, (int)status);
    ck_assert_msg(strstr(line, row->problem), "expected '%s', got '%s'", row->problem, line);
    ck_assert_int_eq(lines, 1);
    ck_assert_str_eq(place.resolver, "untouched");
    // One sentence that says what to do.
    if (!row->which)
        ck_assert_msg(strstr(line, "or train alone with --cluster=none"), "%s", line);
}

#define CHECK_ROWS(rows)                                        \
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) \
    check_row(&rows[i])

#define TORCH "MASTER_ADDR=10.0.0.1", "MASTER_PORT=29500"

START_TEST(none_and_auto)
{
    static const struct row rows[] = {
        {NULL, {NULL}, "none: worker 0 of 1"},
        {NULL, {"PATH=/bin", "HOSTNAME=n1", "TRANK=1", NULL}, "none: worker 0 of 1"},
        // Variables that scripts set for other programs.
        {NULL, {TORCH, NULL}, "none: worker 0 of 1"},
        {"none", {"RANK=7", NULL}, "none: worker 0 of 1"},
        {"none", {"RANK=1", "WORLD_SIZE=4", TORCH, NULL}, "none: worker 0 of 1"},
        {"none", {"TF_CONFIG={", NULL}, "none: worker 0 of 1"},
        {"torchrum", {NULL}, NULL, "--cluster=torchrum: expected none, auto, launch, tf-config"},
        {"torchrum", {NULL}, NULL, "did you mean torchrun?"},
        {"", {NULL}, NULL, "--cluster=: expected none"},
    };
    CHECK_ROWS(rows);
}
END_TEST

START_TEST(a_new_worker_for_a_training_that_has_begun)
{
    static const struct row rows[] = {
        {NULL,
         {"LOCKSTEP_JOIN=1", "LOCKSTEP_ADDRESS=h:5", NULL},
         "launch: worker 0 of 2, at h:5, joins"},
        {NULL,
         {"LOCKSTEP_JOIN=1", "LOCKSTEP_ADDRESS=h:5", "LOCKSTEP_RANK=0", "LOCKSTEP_WORLD_SIZE=4",
          "LOCKSTEP_JOB=a job", NULL},
         "launch: worker 0 of 4, at h:5, job a job, joins"},
        {NULL,
         {"LOCKSTEP_JOIN=0", "LOCKSTEP_ADDRESS=h:5", "LOCKSTEP_RANK=1", "LOCKSTEP_WORLD_SIZE=4",
          NULL},
         "launch: worker 1 of 4, at h:5"},
        {NULL,
         {"LOCKSTEP_JOIN=1", NULL},
         NULL,
         "LOCKSTEP_JOIN is set, but LOCKSTEP_ADDRESS is not"},
        {NULL,
         {"LOCKSTEP_JOIN=yes", "LOCKSTEP_ADDRESS=h:5", NULL},
         NULL,
         "LOCKSTEP_JOIN=yes is not a whole number from 0 to 1"},
    };
    CHECK_ROWS(rows);
}
END_TEST

START_TEST(a_name_demands_that_launcher)
{
    static const struct row rows[] = {
        {"torchrun", {NULL}, NULL, "--cluster=torchrun needs RANK, WORLD_SIZE, MASTER_ADDR"},
        {"torchrun", {NULL}, NULL, "start the workers with torchrun --no-python"},
        {"slurm", {"RANK=0", "WORLD_SIZE=1", NULL}, NULL, "--cluster=slurm needs SLURM_STEP_ID"},
        {"launch", {NULL}, NULL, "--cluster=launch needs LOCKSTEP_RANK"},
        {"tf-config", {"TF_CONFIG={}", NULL}, NULL, "TF_CONFIG has no cluster: correct TF_CONFIG"},
        {"pmix", {NULL}, NULL, "--cluster=pmix needs PMIX_NAMESPACE"},
        {"openmpi", {NULL}, NULL, "--cluster=openmpi needs OMPI_COMM_WORLD_RANK"},
        {"pmi", {NULL}, NULL, "--cluster=pmi needs PMI_RANK"},
        {"kubernetes", {NULL}, NULL, "--cluster=kubernetes needs JOB_COMPLETION_INDEX"},
        {"torchrun", {"RANK=0", NULL}, NULL, "RANK is set, but WORLD_SIZE is not"},
        // Another one than the first complete one.
        {"slurm",
         {"RANK=1", "WORLD_SIZE=4", TORCH, "SLURM_JOB_ID=5", "SLURM_STEP_ID=0", "SLURM_PROCID=0",
          "SLURM_NTASKS=1", "SLURM_STEP_NODELIST=n1", NULL},
         "slurm: worker 0 of 1, at 127.0.0.1:12080, job slurm 5.0"},
    };
    CHECK_ROWS(rows);
}
END_TEST

START_TEST(launch)
{
    static const struct row rows[] = {
        {NULL, {"LOCKSTEP_RANK=0", "LOCKSTEP_WORLD_SIZE=1", NULL}, "launch: worker 0 of 1"},
        {NULL,
         {"LOCKSTEP_RANK=3", "LOCKSTEP_WORLD_SIZE=4", "LOCKSTEP_LOCAL_RANK=1",
          "LOCKSTEP_LOCAL_WORLD_SIZE=2", "LOCKSTEP_ADDRESS=[::1]:5000", "LOCKSTEP_SERVERS=2",
          "LOCKSTEP_RESTART_COUNT=2", "LOCKSTEP_JOB=a job", NULL},
         "launch: worker 3 of 4 and 2, local 1 of 2, at ::1:5000, job a job, restart 2"},
        {NULL,
         {"LOCKSTEP_ROLE=server", "LOCKSTEP_RANK=1", "LOCKSTEP_WORLD_SIZE=1", "LOCKSTEP_SERVERS=2",
          "LOCKSTEP_LOCAL_RANK=1", "LOCKSTEP_LOCAL_WORLD_SIZE=2", "LOCKSTEP_ADDRESS=localhost:5000",
          NULL},
         "launch: server 1 of 1 and 2, local 1 of 2, at localhost:5000"},
        {NULL,
         {"LOCKSTEP_ROLE=server", "LOCKSTEP_RANK=1", "LOCKSTEP_WORLD_SIZE=4", "LOCKSTEP_SERVERS=2",
          "LOCKSTEP_LOCAL_RANK=1", "LOCKSTEP_LOCAL_WORLD_SIZE=3", "LOCKSTEP_ADDRESS=localhost:5000",
          NULL},
         NULL,
         "LOCKSTEP_LOCAL_WORLD_SIZE=3 is more than the 2 servers that there are"},
        {NULL,
         {"LOCKSTEP_ROLE=worker", "LOCKSTEP_RANK=0", "LOCKSTEP_WORLD_SIZE=2",
          "LOCKSTEP_ADDRESS=h:65535", NULL},
         "launch: worker 0 of 2, at h:65535, from outside"},
        // It goes before all others.
        {NULL,
         {"RANK=1", "WORLD_SIZE=4", TORCH, "LOCKSTEP_RANK=0", "LOCKSTEP_WORLD_SIZE=2",
          "LOCKSTEP_ADDRESS=h:1", NULL},
         "launch: worker 0 of 2, at h:1, from outside"},
        {NULL,
         {"LOCKSTEP_RANK=0", NULL},
         NULL,
         "LOCKSTEP_RANK is set, but LOCKSTEP_WORLD_SIZE is not"},
        {NULL,
         {"LOCKSTEP_WORLD_SIZE=2", NULL},
         NULL,
         "LOCKSTEP_WORLD_SIZE is set, but LOCKSTEP_RANK is not"},
        {NULL,
         {"LOCKSTEP_RANK=0", "LOCKSTEP_WORLD_SIZE=2", NULL},
         NULL,
         "LOCKSTEP_RANK and LOCKSTEP_WORLD_SIZE are set, but LOCKSTEP_ADDRESS is not"},
        {NULL,
         {"LOCKSTEP_RANK=0", "LOCKSTEP_WORLD_SIZE=1", "LOCKSTEP_SERVERS=1", NULL},
         NULL,
         "but LOCKSTEP_ADDRESS is not"},
        {NULL,
         {"LOCKSTEP_ROLE=chief", "LOCKSTEP_RANK=0", "LOCKSTEP_WORLD_SIZE=1", NULL},
         NULL,
         "LOCKSTEP_ROLE=chief is neither worker nor server"},
        {NULL,
         {"LOCKSTEP_ROLE=server", "LOCKSTEP_RANK=0", "LOCKSTEP_WORLD_SIZE=1",
          "LOCKSTEP_ADDRESS=h:1", NULL},
         NULL,
         "LOCKSTEP_RANK=0 of a server is not below LOCKSTEP_SERVERS=0"},
        {NULL,
         {"LOCKSTEP_RANK=2", "LOCKSTEP_WORLD_SIZE=2", "LOCKSTEP_ADDRESS=h:1", NULL},
         NULL,
         "LOCKSTEP_RANK=2 is not below LOCKSTEP_WORLD_SIZE=2"},
        {NULL,
         {"LOCKSTEP_RANK=0", "LOCKSTEP_WORLD_SIZE=2", "LOCKSTEP_ADDRESS=h", NULL},
         NULL,
         "LOCKSTEP_ADDRESS=h is not host:port"},
        {NULL,
         {"LOCKSTEP_RANK=0", "LOCKSTEP_WORLD_SIZE=2", "LOCKSTEP_ADDRESS=h:0", NULL},
         NULL,
         "LOCKSTEP_ADDRESS=h:0 is not host:port"},
        {NULL,
         {"LOCKSTEP_RANK=0", "LOCKSTEP_WORLD_SIZE=2", "LOCKSTEP_ADDRESS=h:65536", NULL},
         NULL,
         "is not host:port"},
        {NULL,
         {"LOCKSTEP_RANK=0", "LOCKSTEP_WORLD_SIZE=2", "LOCKSTEP_ADDRESS=::1:5000", NULL},
         NULL,
         "is not host:port"},
        {NULL,
         {"LOCKSTEP_RANK=0", "LOCKSTEP_WORLD_SIZE=2", "LOCKSTEP_ADDRESS=:5000", NULL},
         NULL,
         "is not host:port"},
        {NULL,
         {"LOCKSTEP_RANK=1", "LOCKSTEP_WORLD_SIZE=2", "LOCKSTEP_ADDRESS=h:1",
          "LOCKSTEP_LISTEN_FD=3", NULL},
         NULL,
         "LOCKSTEP_LISTEN_FD=3 is set, but this process is neither worker 0 nor a server"},
        {NULL,
         {"LOCKSTEP_RANK=0", "LOCKSTEP_WORLD_SIZE=2", "LOCKSTEP_ADDRESS=h:1",
          "LOCKSTEP_LISTEN_FD=1000", NULL},
         NULL,
         "LOCKSTEP_LISTEN_FD=1000 is not a socket that listens"},
        {NULL,
         {"LOCKSTEP_RANK=0", "LOCKSTEP_WORLD_SIZE=2", "LOCKSTEP_ADDRESS=h:1",
          "LOCKSTEP_LISTEN_FD=0", NULL},
         NULL,
         "LOCKSTEP_LISTEN_FD=0 is not a whole number from 3"},
    };
    CHECK_ROWS(rows);
}
END_TEST

START_TEST(launch_hands_on_a_socket_that_listens)
{
    char variable[64];
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct ls_worker_place place;
    ck_assert_int_ge(fd, 3);
    snprintf(variable, sizeof(variable), "LOCKSTEP_LISTEN_FD=%d", fd);
    const char *const variables[] = {"LOCKSTEP_RANK=0", "LOCKSTEP_WORLD_SIZE=2",
                                     "LOCKSTEP_ADDRESS=127.0.0.1:1", variable, NULL};
    const struct ls_environment environment = {variables};
    ls_log_set_writer(keep_line, NULL);
    ck_assert_int_eq(ls_worker_place_resolve("auto", &environment, &place), LS_USAGE);
    ck_assert_ptr_nonnull(strstr(line, "is not a socket that listens"));
    ck_assert_int_eq(listen(fd, 1), 0);
    ck_assert_int_eq(ls_worker_place_resolve("auto", &environment, &place), LS_OK);
    ls_log_set_writer(NULL, NULL);
    ck_assert_int_eq(place.listen_fd, fd);
    close(fd);
}
END_TEST

// Where server `number` is, of a place that `first` and its job say.
static enum ls_status find_server(const char *first, const char *const *more, uint32_t number,
                                  char address[LS_HOST_BYTES], uint16_t *port)
{
    const char *variables[8] = {first};
    struct ls_worker_place place;
    for (size_t i = 0; more[i]; i++)
        variables[1 + i] = more[i];
    const struct ls_environment environment = {variables};
    ls_log_set_writer(keep_line, NULL);
    enum ls_status status = ls_worker_place_resolve("auto", &environment, &place);
    if (!status)
        status = ls_worker_place_server(&place, number, address, port);
    ls_log_set_writer(NULL, NULL);
    return status;
}

START_TEST(servers_are_where_the_launcher_says)
{
    static const char *const job[] = {"LOCKSTEP_WORLD_SIZE=2", "LOCKSTEP_ADDRESS=h:1",
                                      "LOCKSTEP_SERVERS=2", "LOCKSTEP_RANK=1", NULL};
    static const char *const none[] = {NULL};
    static const char tf_config[] =
        "TF_CONFIG={\"cluster\": {\"chief\": [\"a:1\"], \"ps\": [\"b:2\", \"c:3\"]}, "
        "\"task\": {\"type\": \"chief\", \"index\": 0}}";
    char address[LS_HOST_BYTES];
    uint16_t port = 0;
    ck_assert_int_eq(find_server("LOCKSTEP_SERVER_ADDRESSES=b:2,[::1]:3", job, 0, address, &port),
                     LS_OK);
    ck_assert_str_eq(address, "b");
    ck_assert_uint_eq(port, 2);
    ck_assert_int_eq(find_server("LOCKSTEP_SERVER_ADDRESSES=b:2,[::1]:3", job, 1, address, &port),
                     LS_OK);
    ck_assert_str_eq(address, "::1");
    ck_assert_uint_eq(port, 3);
    ck_assert_int_eq(find_server(tf_config, none, 1, address, &port), LS_OK);
    ck_assert_str_eq(address, "c");
    ck_assert_uint_eq(port, 3);
    ck_assert_int_eq(find_server("LOCKSTEP_SERVER_ADDRESSES=b:2", job, 0, address, &port),
                     LS_USAGE);
    ck_assert_ptr_nonnull(strstr(line, "addresses of 1 servers"));
    ck_assert_int_eq(find_server("LOCKSTEP_SERVER_ADDRESSES=b:2,c", job, 1, address, &port),
                     LS_USAGE);
    ck_assert_int_eq(find_server("LOCKSTEP_LOCAL_RANK=0", job, 0, address, &port), LS_USAGE);
    ck_assert_ptr_nonnull(strstr(line, "does not say where the 2 servers are"));
}
END_TEST

START_TEST(torchrun)
{
    static const struct row rows[] = {
        {NULL,
         {"RANK=1", "WORLD_SIZE=4", TORCH, "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2", "GROUP_RANK=0",
          NULL},
         "torchrun: worker 1 of 4, local 1 of 2, at 10.0.0.1:29500"},
        // The agent has its store on MASTER_PORT.
        {NULL,
         {"RANK=3", "WORLD_SIZE=4", TORCH, "TORCHELASTIC_USE_AGENT_STORE=True",
          "TORCHELASTIC_RESTART_COUNT=2", "TORCHELASTIC_RUN_ID=abc", NULL},
         "torchrun: worker 3 of 4, at 10.0.0.1:29600, job abc, restart 2"},
        {NULL,
         {"RANK=0", "WORLD_SIZE=4", TORCH, "TORCHELASTIC_USE_AGENT_STORE=False", NULL},
         "torchrun: worker 0 of 4, at 10.0.0.1:29500, from outside"},
        {NULL,
         {"RANK=0", "WORLD_SIZE=4", "MASTER_ADDR=h", "MASTER_PORT=65500",
          "TORCHELASTIC_USE_AGENT_STORE=True", NULL},
         "torchrun: worker 0 of 4, at h:65400, from outside"},
        {NULL,
         {"RANK=0", "WORLD_SIZE=4", TORCH, "LOCKSTEP_ADDRESS=h2:7",
          "TORCHELASTIC_USE_AGENT_STORE=True", NULL},
         "torchrun: worker 0 of 4, at h2:7, from outside"},
        {NULL,
         {"RANK=0", "WORLD_SIZE=2", "LOCKSTEP_ADDRESS=h2:7", NULL},
         "torchrun: worker 0 of 2, at h2:7, from outside"},
        {NULL, {"RANK=0", "WORLD_SIZE=1", NULL}, "torchrun: worker 0 of 1"},
        {NULL,
         {"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=[fe80::1%eth0]", "MASTER_PORT=1", NULL},
         "torchrun: worker 0 of 2, at fe80::1%eth0:1, from outside"},
        // PyTorchJob: the master is rank 0 and worker i is rank i + 1.
        {NULL,
         {"RANK=1", "WORLD_SIZE=3", "MASTER_ADDR=job-master-0", "MASTER_PORT=23456",
          "PYTHONUNBUFFERED=0", "KUBERNETES_SERVICE_HOST=10.96.0.1", "PET_NNODES=3",
          "PET_NPROC_PER_NODE=1", NULL},
         "torchrun: worker 1 of 3, at job-master-0:23456"},
        // torchrun on two hosts whose master thinks that it is localhost.
        {NULL,
         {"RANK=0", "WORLD_SIZE=4", "MASTER_ADDR=localhost", "MASTER_PORT=1", "LOCAL_RANK=0",
          "LOCAL_WORLD_SIZE=2", "GROUP_RANK=0", NULL},
         "torchrun: worker 0 of 4, local 0 of 2, at localhost:1, from outside"},
        {NULL,
         {"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=1", "LOCAL_RANK=0",
          "LOCAL_WORLD_SIZE=2", "GROUP_RANK=0", NULL},
         "torchrun: worker 0 of 2, local 0 of 2, at 127.0.0.1:1"},
        {NULL,
         {"RANK=2", "WORLD_SIZE=4", "MASTER_ADDR=localhost", "MASTER_PORT=1", "LOCAL_RANK=0",
          "LOCAL_WORLD_SIZE=2", "GROUP_RANK=1", NULL},
         NULL,
         "MASTER_ADDR=localhost is this host, but worker 0 is on another one"},
        // torchrun --standalone.
        {NULL,
         {"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=laptop.example.org", "MASTER_PORT=40000",
          "TORCHELASTIC_USE_AGENT_STORE=True", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=2", NULL},
         "torchrun: worker 0 of 2, local 0 of 2, at 127.0.0.1:40100"},
        // What is left over on a laptop.
        {NULL, {"RANK=0", NULL}, NULL, "RANK is set, but WORLD_SIZE is not"},
        {NULL,
         {"RANK=0", NULL},
         NULL,
         "start the workers with torchrun --no-python, or unset RANK"},
        {NULL, {"WORLD_SIZE=4", NULL}, NULL, "WORLD_SIZE is set, but RANK is not"},
        {NULL,
         {"RANK=0", "WORLD_SIZE=2", NULL},
         NULL,
         "RANK and WORLD_SIZE are set, but MASTER_ADDR and MASTER_PORT are not"},
        {NULL,
         {"RANK=0", "WORLD_SIZE=2", "MASTER_PORT=5", NULL},
         NULL,
         "RANK, WORLD_SIZE and MASTER_PORT are set, but MASTER_ADDR is not"},
        {NULL, {"RANK=4", "WORLD_SIZE=4", TORCH, NULL}, NULL, "RANK=4 is not below WORLD_SIZE=4"},
        {NULL,
         {"RANK=-1", "WORLD_SIZE=4", TORCH, NULL},
         NULL,
         "RANK=-1 is not a whole number from 0"},
        {NULL, {"RANK=1x", "WORLD_SIZE=4", TORCH, NULL}, NULL, "RANK=1x is not a whole number"},
        {NULL, {"RANK= 1", "WORLD_SIZE=4", TORCH, NULL}, NULL, "RANK= 1 is not a whole number"},
        {NULL, {"RANK=", "WORLD_SIZE=4", TORCH, NULL}, NULL, "RANK is empty"},
        {NULL,
         {"RANK=0", "WORLD_SIZE=0", TORCH, NULL},
         NULL,
         "WORLD_SIZE=0 is not a whole number from 1"},
        {NULL,
         {"RANK=0", "WORLD_SIZE=99999999999999999999999", TORCH, NULL},
         NULL,
         "WORLD_SIZE=9999"},
        {NULL,
         {"RANK=0", "WORLD_SIZE=4294967297", TORCH, NULL},
         NULL,
         "WORLD_SIZE=4294967297 is not"},
        {NULL,
         {"RANK=0", "WORLD_SIZE=65537", TORCH, NULL},
         NULL,
         "is not a whole number from 1 to 65536"},
        {NULL,
         {"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=h", "MASTER_PORT=tcp://10.0.0.1:29500", NULL},
         NULL,
         "MASTER_PORT=tcp://10.0.0.1:29500 is not a whole number from 1 to 65535"},
        {NULL,
         {"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=h", "MASTER_PORT=65536", NULL},
         NULL,
         "MASTER_PORT=65536"},
        {NULL,
         {"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=", "MASTER_PORT=1", NULL},
         NULL,
         "MASTER_ADDR is empty"},
        {NULL,
         {"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=a host", "MASTER_PORT=1", NULL},
         NULL,
         "MASTER_ADDR=a host is not the name or the address of a host"},
        {NULL,
         {"RANK=0", "WORLD_SIZE=4", TORCH, "LOCAL_RANK=2", "LOCAL_WORLD_SIZE=2", NULL},
         NULL,
         "LOCAL_RANK=2 is not below LOCAL_WORLD_SIZE=2"},
        {NULL,
         {"RANK=0", "WORLD_SIZE=4", TORCH, "LOCAL_RANK=2", "LOCAL_WORLD_SIZE=8", NULL},
         NULL,
         "LOCAL_WORLD_SIZE=8 is more than the 4 workers that there are"},
        // A PyTorchJob with several processes a pod, without torchrun.
        {NULL,
         {"RANK=1", "WORLD_SIZE=8", TORCH, "PET_NNODES=2", "PET_NPROC_PER_NODE=4", NULL},
         NULL,
         "RANK=1 is the number of the pod, but WORLD_SIZE=8 counts 4 processes a pod"},
        {NULL,
         {"RANK=1", "WORLD_SIZE=8", TORCH, "PET_NNODES=2", "PET_NPROC_PER_NODE=4",
          "TORCHELASTIC_RUN_ID=x", NULL},
         "torchrun: worker 1 of 8, at 10.0.0.1:29500, job x"},
    };
    CHECK_ROWS(rows);
}
END_TEST

#define STEP "SLURM_JOB_ID=7", "SLURM_STEP_ID=2"

START_TEST(slurm)
{
    static const struct row rows[] = {
        {NULL,
         {STEP, "SLURM_PROCID=2", "SLURM_STEP_NUM_TASKS=4", "SLURM_NTASKS=9", "SLURM_LOCALID=0",
          "SLURM_NODEID=1", "SLURM_STEP_NODELIST=n[1-2]", "SLURM_STEP_TASKS_PER_NODE=2(x2)",
          "SLURM_RESTART_COUNT=1", NULL},
         "slurm: worker 2 of 4, local 0 of 2, at n1:12114, job slurm 7.2, restart 1"},
        {NULL,
         {STEP, "SLURM_PROCID=4", "SLURM_STEP_NUM_TASKS=5", "SLURM_LOCALID=0", "SLURM_NODEID=2",
          "SLURM_STEP_NODELIST=n[1-2],m7", "SLURM_STEP_TASKS_PER_NODE=2(x2),1", NULL},
         "slurm: worker 4 of 5, local 0 of 1, at n1:12114, job slurm 7.2"},
        // On one host its name does not matter.
        {NULL,
         {STEP, "SLURM_PROCID=1", "SLURM_NTASKS=2", "SLURM_STEP_NODELIST=n1", NULL},
         "slurm: worker 1 of 2, at 127.0.0.1:12114, job slurm 7.2"},
        {NULL,
         {STEP, "SLURM_PROCID=1", "SLURM_NTASKS=2", "SLURM_STEP_NODELIST=n[1-2]",
          "LOCKSTEP_ADDRESS=n9:5", NULL},
         "slurm: worker 1 of 2, at n9:5, job slurm 7.2"},
        // The largest numbers of Slurm.
        {NULL,
         {"SLURM_JOB_ID=4294967294", "SLURM_STEP_ID=0", "SLURM_PROCID=0", "SLURM_NTASKS=2",
          "SLURM_STEP_NODELIST=n[1-2]", NULL},
         "slurm: worker 0 of 2, at n1:28352, from outside, job slurm 4294967294.0"},
        // Scripts set variables of PyTorch for Python programs.
        {NULL,
         {"WORLD_SIZE=4", TORCH, STEP, "SLURM_PROCID=1", "SLURM_NTASKS=2", "SLURM_STEP_NODELIST=n1",
          NULL},
         "slurm: worker 1 of 2, at 127.0.0.1:12114, job slurm 7.2"},
        // srun --mpi=pmi2 gives no address through PMI.
        {NULL,
         {"PMI_RANK=1", "PMI_SIZE=2", STEP, "SLURM_PROCID=1", "SLURM_NTASKS=2",
          "SLURM_STEP_NODELIST=n1", NULL},
         "slurm: worker 1 of 2, at 127.0.0.1:12114, job slurm 7.2"},
        // torchrun in a step.
        {NULL,
         {"RANK=3", "WORLD_SIZE=4", TORCH, STEP, "SLURM_PROCID=1", "SLURM_NTASKS=2",
          "SLURM_STEP_NODELIST=n[1-2]", NULL},
         "torchrun: worker 3 of 4, at 10.0.0.1:29500"},
        // The batch script is one process with the variables of all tasks, but of no step.
        {NULL,
         {"SLURM_JOB_ID=7", "SLURM_PROCID=0", "SLURM_NTASKS=4", "SLURM_NODELIST=n[1-2]", NULL},
         NULL,
         "the Slurm job has 4 tasks, but this process is in no step of it: start the workers with "
         "srun"},
        {NULL,
         {"SLURM_JOB_ID=7", "SLURM_PROCID=0", "SLURM_NTASKS=4", "WORLD_SIZE=4", NULL},
         NULL,
         "the Slurm job has 4 tasks"},
        {NULL,
         {"SLURM_JOB_ID=7", "SLURM_JOB_NUM_NODES=2", NULL},
         NULL,
         "the Slurm job has 2 nodes"},
        {NULL, {"SLURM_JOB_ID=7", "SLURM_PROCID=0", "SLURM_NTASKS=1", NULL}, "none: worker 0 of 1"},
        {NULL, {"SLURM_JOB_ID=7", "SLURM_PROCID=0", NULL}, "none: worker 0 of 1"},
        {NULL,
         {"SLURM_JOB_ID=7", "SLURM_PROCID=0", "SLURM_NTASKS=four", NULL},
         NULL,
         "SLURM_NTASKS=four is not a whole number"},
        // salloc's interactive step.
        {NULL,
         {"SLURM_JOB_ID=7", "SLURM_STEP_ID=4294967290", "SLURM_PROCID=0", "SLURM_NTASKS=4",
          "SLURM_STEP_NUM_TASKS=1", "SLURM_STEP_NODELIST=n1", NULL},
         NULL,
         "the Slurm job has 4 tasks, but this process is in no step"},
        {"slurm",
         {"SLURM_JOB_ID=7", "SLURM_PROCID=0", "SLURM_NTASKS=4", NULL},
         NULL,
         "start the workers with srun"},
        {NULL,
         {STEP, "SLURM_NTASKS=2", NULL},
         NULL,
         "SLURM_STEP_ID and SLURM_JOB_ID are set, but SLURM_PROCID and SLURM_STEP_NODELIST are "
         "not"},
        {NULL,
         {STEP, "SLURM_PROCID=2", "SLURM_NTASKS=2", "SLURM_STEP_NODELIST=n1", NULL},
         NULL,
         "SLURM_PROCID=2 is not below the 2 tasks of the step"},
        {NULL,
         {STEP, "SLURM_PROCID=0", "SLURM_NTASKS=2", "SLURM_STEP_NODELIST=n[1-", NULL},
         NULL,
         "SLURM_STEP_NODELIST=n[1- is not a list of hosts such as n[1-2,5]"},
        {NULL,
         {STEP, "SLURM_PROCID=0", "SLURM_NTASKS=2", "SLURM_STEP_NODELIST=", NULL},
         NULL,
         "SLURM_STEP_NODELIST= is not a list of hosts"},
        {NULL,
         {STEP, "SLURM_PROCID=0", "SLURM_NTASKS=2", "SLURM_LOCALID=0", "SLURM_STEP_NODELIST=n1",
          "SLURM_STEP_TASKS_PER_NODE=2(x", NULL},
         NULL,
         "SLURM_STEP_TASKS_PER_NODE=2(x is not a list such as 2(x2),1"},
        {NULL,
         {STEP, "SLURM_PROCID=0", "SLURM_NTASKS=4", "SLURM_LOCALID=0", "SLURM_STEP_NODELIST=n[1-2]",
          "SLURM_STEP_TASKS_PER_NODE=2,1", NULL},
         NULL,
         "counts 3 tasks on 2 nodes, but the step has 4 tasks on 2 nodes"},
        {NULL,
         {STEP, "SLURM_PROCID=0", "SLURM_NTASKS=2", "SLURM_LOCALID=1", "SLURM_STEP_NODELIST=n[1-2]",
          "SLURM_STEP_TASKS_PER_NODE=1(x2)", "SLURM_NODEID=0", NULL},
         NULL,
         "SLURM_LOCALID=1 is not below the 1 tasks of node 0"},
        {NULL,
         {STEP, "SLURM_PROCID=0", "SLURM_NTASKS=2", "SLURM_STEP_NODELIST=n[1-2]", "SLURM_NODEID=2",
          NULL},
         NULL,
         "SLURM_NODEID=2 is not below the 2 hosts"},
        // --distribution=arbitrary
        {NULL,
         {STEP, "SLURM_PROCID=0", "SLURM_NTASKS=2", "SLURM_STEP_NODELIST=n[1-2]", "SLURM_NODEID=1",
          NULL},
         NULL,
         "task 0 is not on the first host of the step, n1: leave out srun's --distribution"},
        {NULL,
         {"SLURM_JOB_ID=7", "SLURM_STEP_ID=x", "SLURM_PROCID=0", NULL},
         NULL,
         "SLURM_STEP_ID=x is not a whole number"},
    };
    CHECK_ROWS(rows);
}
END_TEST

START_TEST(daemons_of_mpi_in_a_slurm_step)
{
    // The variables of Slurm are those of orted or hydra_pmi_proxy, one a node.
    static const struct row rows[] = {
        {NULL,
         {"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=4", STEP, "SLURM_PROCID=1",
          "SLURM_NTASKS=2", "SLURM_STEP_NODELIST=n[1-2]", NULL},
         NULL,
         "the workers cannot find each other through PMIx: PMIX_NAMESPACE is not set"},
        {NULL,
         {"PMI_RANK=3", "PMI_SIZE=4", STEP, "SLURM_PROCID=1", "SLURM_NTASKS=2",
          "SLURM_STEP_NODELIST=n[1-2]", NULL},
         NULL,
         "PMI_RANK and PMI_SIZE are set, but LOCKSTEP_ADDRESS is not"},
        {"slurm",
         {"PMI_RANK=3", "PMI_SIZE=4", STEP, "SLURM_PROCID=1", "SLURM_NTASKS=2",
          "SLURM_STEP_NODELIST=n[1-2]", NULL},
         NULL,
         "the variables of Slurm are those of a daemon of MPI"},
    };
    CHECK_ROWS(rows);
}
END_TEST

START_TEST(open_mpi)
{
    static const struct row rows[] = {
        {NULL,
         {"OMPI_COMM_WORLD_RANK=3", "OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_LOCAL_RANK=1",
          "OMPI_COMM_WORLD_LOCAL_SIZE=2", "OMPI_COMM_WORLD_NODE_RANK=7", "LOCKSTEP_ADDRESS=h:9",
          NULL},
         "openmpi: worker 3 of 4, local 1 of 2, at h:9"},
        {NULL,
         {"OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=1", NULL},
         "openmpi: worker 0 of 1"},
        {NULL,
         {"OMPI_COMM_WORLD_RANK=0", NULL},
         NULL,
         "OMPI_COMM_WORLD_RANK is set, but OMPI_COMM_WORLD_SIZE is not"},
        {NULL,
         {"OMPI_COMM_WORLD_RANK=4", "OMPI_COMM_WORLD_SIZE=4", "LOCKSTEP_ADDRESS=h:9", NULL},
         NULL,
         "OMPI_COMM_WORLD_RANK=4 is not below OMPI_COMM_WORLD_SIZE=4"},
        {NULL,
         {"OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=2", "PMIX_NAMESPACE=1", "PMIX_RANK=0",
          "LOCKSTEP_PMIX_LIBRARY=/nonexistent/libpmix.so", NULL},
         NULL,
         "/nonexistent/libpmix.so cannot be loaded (Debian: libpmix2): set "
         "LOCKSTEP_ADDRESS=host:port"},
        // A launcher that is told the address needs no PMIx.
        {"openmpi",
         {"OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=2", "PMIX_NAMESPACE=1", "PMIX_RANK=0",
          "LOCKSTEP_PMIX_LIBRARY=/nonexistent/libpmix.so", "LOCKSTEP_ADDRESS=h:9", NULL},
         "openmpi: worker 0 of 2, at h:9, from outside"},
    };
    CHECK_ROWS(rows);
}
END_TEST

START_TEST(pmi)
{
    static const struct row rows[] = {
        {NULL,
         {"PMI_RANK=1", "PMI_SIZE=4", "MPI_LOCALRANKID=1", "MPI_LOCALNRANKS=4", "PMI_FD=5",
          "LOCKSTEP_ADDRESS=h:9", NULL},
         "pmi: worker 1 of 4, local 1 of 4, at h:9"},
        {NULL, {"PMI_RANK=0", "PMI_SIZE=1", NULL}, "pmi: worker 0 of 1"},
        {NULL,
         {"PMI_RANK=1", "PMI_SIZE=4", NULL},
         NULL,
         "PMI_RANK and PMI_SIZE are set, but LOCKSTEP_ADDRESS is not"},
        {NULL,
         {"PMI_RANK=1", "PMI_SIZE=4", NULL},
         NULL,
         "PMI does not say where worker 0 is: set LOCKSTEP_ADDRESS=host:port"},
        {NULL, {"PMI_SIZE=4", NULL}, NULL, "PMI_SIZE is set, but PMI_RANK is not"},
        {NULL,
         {"PMI_RANK=5", "PMI_SIZE=4", "LOCKSTEP_ADDRESS=h:9", NULL},
         NULL,
         "PMI_RANK=5 is not below PMI_SIZE=4"},
    };
    CHECK_ROWS(rows);
}
END_TEST

START_TEST(kubernetes)
{
    static const struct row rows[] = {
        // An Indexed Job.
        {NULL,
         {"JOB_COMPLETION_INDEX=2", "LOCKSTEP_WORLD_SIZE=4", "LOCKSTEP_ADDRESS=train-0.train:29400",
          NULL},
         "kubernetes: worker 2 of 4, local 0 of 1, at train-0.train:29400"},
        {NULL,
         {"JOB_COMPLETION_INDEX=0", "LOCKSTEP_WORLD_SIZE=1", NULL},
         "kubernetes: worker 0 of 1, local 0 of 1"},
        {NULL,
         {"JOB_COMPLETION_INDEX=2", NULL},
         NULL,
         "JOB_COMPLETION_INDEX is set, but LOCKSTEP_WORLD_SIZE is not: set LOCKSTEP_WORLD_SIZE to "
         "the completions"},
        {NULL,
         {"JOB_COMPLETION_INDEX=2", "LOCKSTEP_WORLD_SIZE=4", NULL},
         NULL,
         "JOB_COMPLETION_INDEX and LOCKSTEP_WORLD_SIZE are set, but LOCKSTEP_ADDRESS is not"},
        {NULL,
         {"JOB_COMPLETION_INDEX=4", "LOCKSTEP_WORLD_SIZE=4", "LOCKSTEP_ADDRESS=h:1", NULL},
         NULL,
         "JOB_COMPLETION_INDEX=4 is not below LOCKSTEP_WORLD_SIZE=4"},
        // A TrainJob, whose pods are those of an Indexed Job, too.
        {NULL,
         {"PET_NNODES=2", "PET_NPROC_PER_NODE=auto", "PET_NODE_RANK=1",
          "PET_MASTER_ADDR=job-node-0-0.job", "PET_MASTER_PORT=29500", "JOB_COMPLETION_INDEX=1",
          NULL},
         "kubernetes: worker 1 of 2, local 0 of 1, at job-node-0-0.job:29500"},
        {NULL,
         {"PET_NNODES=2:2", "PET_NODE_RANK=1", "PET_MASTER_ADDR=h", "PET_MASTER_PORT=29500", NULL},
         "kubernetes: worker 1 of 2, local 0 of 1, at h:29500"},
        {NULL,
         {"PET_NNODES=1", "PET_NODE_RANK=0", NULL},
         "kubernetes: worker 0 of 1, local 0 of 1"},
        {NULL,
         {"PET_NNODES=1:3", "PET_NODE_RANK=1", "PET_MASTER_ADDR=h", "PET_MASTER_PORT=29500", NULL},
         NULL,
         "PET_NNODES=1:3 does not say one number of pods: start torchrun --no-python in each pod"},
        {NULL,
         {"PET_NNODES=2", "PET_NPROC_PER_NODE=4", "PET_NODE_RANK=1", "PET_MASTER_ADDR=h",
          "PET_MASTER_PORT=1", NULL},
         NULL,
         "PET_NPROC_PER_NODE=4 asks for several processes a pod, but this is one"},
        {NULL,
         {"PET_NNODES=2", "PET_N_PROC_PER_NODE=2", "PET_NODE_RANK=1", "PET_MASTER_ADDR=h",
          "PET_MASTER_PORT=1", NULL},
         NULL,
         "PET_N_PROC_PER_NODE=2 asks for several"},
        {NULL,
         {"PET_NNODES=2", "PET_NODE_RANK=1", "PET_MASTER_ADDR=h", NULL},
         NULL,
         "but PET_MASTER_PORT is not"},
        // An elastic PyTorchJob, whose pods have no number.
        {NULL,
         {"PET_NNODES=1:3", "PET_RDZV_ENDPOINT=job-worker-0:23456", "PET_RDZV_BACKEND=c10d", NULL},
         NULL,
         "PET_NNODES is set, but PET_NODE_RANK is not: start torchrun --no-python in each pod"},
        {NULL,
         {"PET_NNODES=2", "PET_NODE_RANK=2", "PET_MASTER_ADDR=h", "PET_MASTER_PORT=1", NULL},
         NULL,
         "PET_NODE_RANK=2 is not below PET_NNODES=2"},
        // torchrun in a pod of a TrainJob.
        {NULL,
         {"PET_NNODES=2", "PET_NPROC_PER_NODE=2", "PET_NODE_RANK=1", "PET_MASTER_ADDR=h",
          "PET_MASTER_PORT=29500", "RANK=3", "WORLD_SIZE=4", TORCH, "TORCHELASTIC_RUN_ID=none",
          NULL},
         "torchrun: worker 3 of 4, at 10.0.0.1:29500, job none"},
        // A LeaderWorkerSet.
        {NULL,
         {"LWS_GROUP_SIZE=3", "LWS_WORKER_INDEX=2", "LWS_LEADER_ADDRESS=set-0.set.default", NULL},
         "kubernetes: worker 2 of 3, local 0 of 1, at set-0.set.default:29400"},
        {NULL,
         {"LWS_GROUP_SIZE=3", "LWS_WORKER_INDEX=2", "LWS_LEADER_ADDRESS=h", "LOCKSTEP_ADDRESS=h:5",
          NULL},
         "kubernetes: worker 2 of 3, local 0 of 1, at h:5"},
        {NULL,
         {"LWS_GROUP_SIZE=3", "LWS_WORKER_INDEX=2", NULL},
         NULL,
         "LWS_GROUP_SIZE and LWS_WORKER_INDEX are set, but LWS_LEADER_ADDRESS is not"},
        {NULL,
         {"LWS_GROUP_SIZE=3", "LWS_WORKER_INDEX=3", "LWS_LEADER_ADDRESS=h", NULL},
         NULL,
         "LWS_WORKER_INDEX=3 is not below LWS_GROUP_SIZE=3"},
    };
    CHECK_ROWS(rows);
}
END_TEST

#define CLUSTER                                                                               \
    "TF_CONFIG={\"cluster\": {\"chief\": [\"c:1\"], \"worker\": [\"a:1\", \"b:2\"], \"ps\": " \
    "[\"p:3\", \"q:4\"]}, "
#define WORKERS "TF_CONFIG={\"cluster\": {\"worker\": [\"a:1\", \"b:2\"]}, "

START_TEST(tf_config)
{
    static const struct row rows[] = {
        {NULL,
         {CLUSTER "\"task\": {\"type\": \"chief\", \"index\": 0}}", NULL},
         "tf-config: worker 0 of 3 and 2, at c:1, from outside"},
        {NULL,
         {CLUSTER "\"task\": {\"type\": \"worker\", \"index\": 1}, \"rpc_layer\": \"grpc\", "
                  "\"environment\": \"cloud\"}",
          NULL},
         "tf-config: worker 2 of 3 and 2, at c:1"},
        {NULL,
         {CLUSTER "\"task\": {\"type\": \"ps\", \"index\": 1}}", NULL},
         "tf-config: server 1 of 3 and 2, at c:1, self q:4"},
        {NULL,
         {CLUSTER "\"task\": {\"type\": \"evaluator\", \"index\": 0}}", NULL},
         "tf-config: evaluator 0 of 3 and 2, at c:1"},
        // Without a chief, worker 0 is the chief.
        {NULL,
         {WORKERS "\"task\": {\"type\": \"worker\", \"index\": 1}}", NULL},
         "tf-config: worker 1 of 2, at a:1"},
        {NULL,
         {WORKERS "\"task\": {\"type\": \"worker\", \"index\": \"1\"}}", NULL},
         "tf-config: worker 1 of 2, at a:1"},
        {NULL,
         {WORKERS "\"task\": {\"type\": \"worker\", \"index\": 1}}", "LOCKSTEP_ADDRESS=x:9", NULL},
         "tf-config: worker 1 of 2, at x:9"},
        {NULL,
         {"TF_CONFIG={\"cluster\": {\"master\": [\"m:1\"], \"worker\": [\"a:1\"]}, \"task\": "
          "{\"type\": \"master\", \"index\": 0}}",
          NULL},
         "tf-config: worker 0 of 2, at m:1, from outside"},
        {NULL,
         {"TF_CONFIG={\"cluster\": {\"worker\": [\"[::1]:1\", \"[::2]:1\"]}, \"task\": {\"type\": "
          "\"worker\", \"index\": 0}}",
          NULL},
         "tf-config: worker 0 of 2, at ::1:1, from outside"},
        {NULL,
         {"TF_CONFIG={\"cluster\": {\"worker\": [\"localhost:1\", \"localhost:2\"]}, \"task\": "
          "{\"type\": \"worker\", \"index\": 0}}",
          NULL},
         "tf-config: worker 0 of 2, at localhost:1"},
        // An object from index to address.
        {NULL,
         {"TF_CONFIG={\"cluster\": {\"worker\": {\"1\": \"b:1\", \"0\": \"a:1\"}}, \"task\": "
          "{\"type\": \"worker\", \"index\": 1}}",
          NULL},
         "tf-config: worker 1 of 2, at a:1"},
        // No cluster: a training alone, as in TensorFlow.
        {NULL, {"TF_CONFIG={}", NULL}, "none: worker 0 of 1"},
        {NULL,
         {"TF_CONFIG={\"cluster\": {}, \"task\": {\"type\": \"worker\", \"index\": 0}}", NULL},
         "none: worker 0 of 1"},
        {NULL, {"TF_CONFIG={\"environment\": \"cloud\"}", NULL}, "none: worker 0 of 1"},
    };
    CHECK_ROWS(rows);
}
END_TEST

#define SPARSE                                                                                    \
    "TF_CONFIG={\"sparseCluster\": {\"worker\": {\"2\": \"w2:1\"}, \"ps\": [\"p:1\", \"q:1\"]}, " \
    "\"task\": {\"type\": \"worker\", \"index\": 2}}"
#define SPARSE_SERVER                                                                          \
    "TF_CONFIG={\"sparseCluster\": {\"worker\": {}, \"ps\": [\"q:1\"]}, \"task\": {\"type\": " \
    "\"ps\", \"index\": 1}}"

START_TEST(sparse_clusters)
{
    static const struct row rows[] = {
        {NULL,
         {SPARSE, "LOCKSTEP_WORLD_SIZE=4", "LOCKSTEP_ADDRESS=w0:1", NULL},
         "tf-config: worker 2 of 4 and 2, at w0:1"},
        {NULL,
         {SPARSE_SERVER, "LOCKSTEP_WORLD_SIZE=4", "LOCKSTEP_SERVERS=2", "LOCKSTEP_ADDRESS=w0:1",
          NULL},
         "tf-config: server 1 of 4 and 2, at w0:1, self q:1"},
        {NULL,
         {"TF_CONFIG={\"sparseCluster\": {\"worker\": {\"0\": \"a:1\", \"1\": \"b:1\"}}, \"task\": "
          "{\"type\": \"worker\", \"index\": 1}}",
          NULL},
         "tf-config: worker 1 of 2, at a:1"},
        {NULL,
         {SPARSE, NULL},
         NULL,
         "TF_CONFIG does not name all workers and servers: set LOCKSTEP_WORLD_SIZE"},
        {NULL,
         {SPARSE, "LOCKSTEP_WORLD_SIZE=4", NULL},
         NULL,
         "TF_CONFIG does not name all workers"},
        {NULL,
         {SPARSE_SERVER, "LOCKSTEP_WORLD_SIZE=4", "LOCKSTEP_ADDRESS=w0:1", NULL},
         NULL,
         "TF_CONFIG does not name all workers and servers"},
        {NULL,
         {SPARSE, "LOCKSTEP_WORLD_SIZE=2", "LOCKSTEP_ADDRESS=w0:1", NULL},
         NULL,
         "TF_CONFIG says that this is worker 2, but there are 2"},
    };
    CHECK_ROWS(rows);
}
END_TEST

#define ONE "\"task\": {\"type\": \"worker\", \"index\": 0}}"

START_TEST(wrong_tf_configs)
{
    static const struct row rows[] = {
        {NULL,
         {"TF_CONFIG=", NULL},
         NULL,
         "TF_CONFIG is not JSON (it is empty): correct TF_CONFIG or unset it"},
        {NULL, {"TF_CONFIG={'cluster'", NULL}, NULL, "TF_CONFIG is not JSON ("},
        {NULL, {"TF_CONFIG=[]", NULL}, NULL, "TF_CONFIG is not a JSON object"},
        {NULL,
         {"TF_CONFIG={\"cluster\": [1], " ONE, NULL},
         NULL,
         "a cluster that is not an object"},
        {NULL,
         {"TF_CONFIG={\"cluster\": {\"worker\": [\"a:1\"], \"worker\": [\"b:1\"]}, " ONE, NULL},
         NULL,
         "is not JSON (duplicate"},
        {NULL,
         {"TF_CONFIG={\"cluster\": {\"worker\": [\"a:1\"]}, \"sparseCluster\": {}, " ONE, NULL},
         NULL,
         "a cluster and a sparseCluster"},
        {NULL,
         {"TF_CONFIG={\"cluster\": {\"workers\": [\"a:1\"]}, " ONE, NULL},
         NULL,
         "TF_CONFIG has a job 'workers': expected"},
        {NULL,
         {"TF_CONFIG={\"cluster\": {\"worker\": \"a:1\"}, " ONE, NULL},
         NULL,
         "a job worker that is not a list"},
        {NULL,
         {"TF_CONFIG={\"cluster\": {\"worker\": [1]}, " ONE, NULL},
         NULL,
         "a worker at '(no text)', which is not host:port"},
        {NULL,
         {"TF_CONFIG={\"cluster\": {\"worker\": [\"a\"]}, " ONE, NULL},
         NULL,
         "a worker at 'a', which is not host:port"},
        {NULL,
         {"TF_CONFIG={\"cluster\": {\"worker\": [\"http://a:1\"]}, " ONE, NULL},
         NULL,
         "which is not host:port"},
        {NULL,
         {"TF_CONFIG={\"cluster\": {\"worker\": [\"a:99999\"]}, " ONE, NULL},
         NULL,
         "which is not host:port"},
        {NULL,
         {"TF_CONFIG={\"cluster\": {\"worker\": [\"a:1\", \"a:1\"]}, " ONE, NULL},
         NULL,
         "TF_CONFIG has two tasks at a:1"},
        {NULL,
         {"TF_CONFIG={\"cluster\": {\"chief\": [\"a:1\", \"b:1\"]}, " ONE, NULL},
         NULL,
         "has 2 tasks 'chief': expected one at most"},
        {NULL,
         {"TF_CONFIG={\"cluster\": {\"chief\": [\"a:1\"], \"master\": [\"b:1\"]}, " ONE, NULL},
         NULL,
         "a chief and a master"},
        {NULL,
         {"TF_CONFIG={\"cluster\": {\"ps\": [\"a:1\"]}, \"task\": {\"type\": \"evaluator\", "
          "\"index\": 0}}",
          NULL},
         NULL,
         "TF_CONFIG has no workers"},
        {NULL,
         {WORKERS "\"task\": {\"type\": \"worker\", \"index\": 2}}", NULL},
         NULL,
         "TF_CONFIG says that this is worker 2, but there are 2"},
        {NULL,
         {WORKERS "\"task\": {\"type\": \"chief\", \"index\": 0}}", NULL},
         NULL,
         "TF_CONFIG says that this is chief 0, but there are 0"},
        {NULL,
         {WORKERS "\"task\": {\"type\": \"Worker\", \"index\": 0}}", NULL},
         NULL,
         "a task of type 'Worker': expected"},
        {NULL,
         {WORKERS "\"task\": {\"type\": \"worker\"}}", NULL},
         NULL,
         "does not say the index of this task"},
        {NULL,
         {WORKERS "\"task\": {\"type\": \"worker\", \"index\": 1.0}}", NULL},
         NULL,
         "does not say the index of this task"},
        {NULL,
         {WORKERS "\"task\": {\"type\": \"worker\", \"index\": -1}}", NULL},
         NULL,
         "does not say the index of this task"},
        {NULL,
         {WORKERS "\"task\": {\"type\": \"worker\", \"index\": \"\"}}", NULL},
         NULL,
         "does not say the index of this task"},
        {NULL,
         {WORKERS "\"task\": {\"type\": \"worker\", \"index\": 4294967296}}", NULL},
         NULL,
         "does not say the index of this task"},
        {NULL,
         {WORKERS "\"task\": {\"type\": \"worker\", \"index\": 99999999999999999999999}}", NULL},
         NULL,
         "TF_CONFIG is not JSON (too big integer"},
        {NULL,
         {WORKERS "\"other\": 1}", NULL},
         NULL,
         "TF_CONFIG does not say the type of this task"},
        {NULL,
         {"TF_CONFIG={\"cluster\": {\"worker\": {\"01\": \"a:1\"}}, " ONE, NULL},
         NULL,
         "TF_CONFIG has a worker number '01'"},
        {NULL,
         {"TF_CONFIG={\"cluster\": {\"worker\": {\"70000\": \"a:1\"}}, " ONE, NULL},
         NULL,
         "TF_CONFIG has a worker number '70000'"},
    };
    CHECK_ROWS(rows);
}
END_TEST

START_TEST(describe_says_what_was_taken_and_what_was_not)
{
    static const char *const torch[] = {"RANK=1", "WORLD_SIZE=4", TORCH, "OTHER=1", NULL};
    static const char *const step[] = {
        "WORLD_SIZE=9", STEP, "SLURM_PROCID=0", "SLURM_NTASKS=1", "SLURM_STEP_NODELIST=n1", NULL};
    static const char *const job[] = {"JOB_COMPLETION_INDEX=0", "LOCKSTEP_WORLD_SIZE=1", NULL};
    struct ls_worker_place place;
    char text[1024];
    ck_assert_int_eq(ls_worker_place_resolve("auto", &(struct ls_environment){torch}, &place),
                     LS_OK);
    ls_worker_place_describe(&place, text, sizeof(text));
    ck_assert_str_eq(text, "worker 1 of 4 by torchrun (RANK=1 WORLD_SIZE=4 MASTER_ADDR=10.0.0.1 "
                           "MASTER_PORT=29500)");
    ck_assert_int_eq(ls_worker_place_resolve("auto", &(struct ls_environment){step}, &place),
                     LS_OK);
    ls_worker_place_describe(&place, text, sizeof(text));
    ck_assert_str_eq(text, "worker 0 of 1 by slurm (SLURM_STEP_ID=2 SLURM_JOB_ID=7 SLURM_PROCID=0 "
                           "SLURM_NTASKS=1 SLURM_STEP_NODELIST=n1), not by WORLD_SIZE=9");
    ck_assert_int_eq(ls_worker_place_resolve("auto", &(struct ls_environment){job}, &place), LS_OK);
    ls_worker_place_describe(&place, text, sizeof(text));
    ck_assert_str_eq(text,
                     "worker 0 of 1 by kubernetes (JOB_COMPLETION_INDEX=0 LOCKSTEP_WORLD_SIZE=1)");
    ck_assert_int_eq(ls_worker_place_resolve("none", &(struct ls_environment){torch}, &place),
                     LS_OK);
    ls_worker_place_describe(&place, text, sizeof(text));
    ck_assert_str_eq(text, "this process trains alone");
}
END_TEST

START_TEST(long_values_are_cut)
{
    static char variable[100000];
    const char *const variables[] = {variable, "WORLD_SIZE=2", TORCH, NULL};
    struct ls_worker_place place;
    memset(variable, '1', sizeof(variable) - 1);
    memcpy(variable, "RANK=", 5);
    ls_log_set_writer(keep_line, NULL);
    ck_assert_int_eq(ls_worker_place_resolve("auto", &(struct ls_environment){variables}, &place),
                     LS_USAGE);
    ls_log_set_writer(NULL, NULL);
    ck_assert_uint_lt(strlen(line), 400);
}
END_TEST

START_TEST(names_are_those_of_the_resolvers)
{
    for (const char *const *name = ls_resolver_names(); *name; name++) {
        struct ls_worker_place place;
        static const char *const nothing[] = {NULL};
        char expected[64];
        snprintf(expected, sizeof(expected), "--cluster=%s needs ", *name);
        ls_log_set_writer(keep_line, NULL);
        ck_assert_int_eq(ls_worker_place_resolve(*name, &(struct ls_environment){nothing}, &place),
                         LS_USAGE);
        ls_log_set_writer(NULL, NULL);
        ck_assert_msg(strstr(line, expected), "%s", line);
    }
}
END_TEST

START_TEST(the_environment_of_this_process_is_read)
{
    const struct ls_environment environment = ls_environment_of_process();
    ck_assert_ptr_nonnull(ls_environment_get(&environment, "PATH"));
    ck_assert_ptr_null(ls_environment_get(&environment, "PAT"));
    ck_assert_ptr_null(ls_environment_get(&environment, "LOCKSTEP_NO_SUCH_VARIABLE"));
    // As libpmix does in the middle of it: the array of the variables moves.
    ck_assert_int_eq(setenv("LOCKSTEP_SET_LATER", "now", 1), 0);
    ck_assert_pstr_eq(ls_environment_get(&environment, "LOCKSTEP_SET_LATER"), "now");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("resolve");
    TCase *cases = tcase_create("resolve");
    tcase_add_test(cases, none_and_auto);
    tcase_add_test(cases, a_new_worker_for_a_training_that_has_begun);
    tcase_add_test(cases, a_name_demands_that_launcher);
    tcase_add_test(cases, launch);
    tcase_add_test(cases, launch_hands_on_a_socket_that_listens);
    tcase_add_test(cases, servers_are_where_the_launcher_says);
    tcase_add_test(cases, torchrun);
    tcase_add_test(cases, slurm);
    tcase_add_test(cases, daemons_of_mpi_in_a_slurm_step);
    tcase_add_test(cases, open_mpi);
    tcase_add_test(cases, pmi);
    tcase_add_test(cases, kubernetes);
    tcase_add_test(cases, tf_config);
    tcase_add_test(cases, sparse_clusters);
    tcase_add_test(cases, wrong_tf_configs);
    tcase_add_test(cases, describe_says_what_was_taken_and_what_was_not);
    tcase_add_test(cases, long_values_are_cut);
    tcase_add_test(cases, names_are_those_of_the_resolvers);
    tcase_add_test(cases, the_environment_of_this_process_is_read);
    suite_add_tcase(suite, cases);
    return test_suite_run(suite);
}
