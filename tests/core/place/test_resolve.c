// SPDX-License-Identifier: Apache-2.0
// The place of a process, from the variables of launch and torchrun, and what holds for all launchers: what complete
// variables say, and the sentence about incomplete and contradictory ones. The environment is passed in.
#include "core/place/resolvers/resolver.h"
#include "tests/core/place/resolve_rows.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

TEST(none_and_auto)
{
    static const struct row rows[] = {
        {NULL, {NULL}, "none: worker 0 of 1"},
        {NULL, {"PATH=/bin", "HOSTNAME=n1", "TRANK=1"}, "none: worker 0 of 1"},
        // Variables that scripts set for other programs.
        {NULL, {TORCH}, "none: worker 0 of 1"},
        {"none", {"RANK=7"}, "none: worker 0 of 1"},
        {"none", {"RANK=1", "WORLD_SIZE=4", TORCH}, "none: worker 0 of 1"},
        {"none", {"TF_CONFIG={"}, "none: worker 0 of 1"},
        {"torchrum", {NULL}, NULL, "--cluster=torchrum: expected none, auto, launch, tf-config"},
        {"torchrum", {NULL}, NULL, "did you mean torchrun?"},
        {"", {NULL}, NULL, "--cluster=: expected none"},
    };
    CHECK_ROWS(rows);
}

TEST(a_new_worker_for_a_training_that_has_begun)
{
    static const struct row rows[] = {
        {NULL, {"LOCKSTEP_JOIN=1", "LOCKSTEP_ADDRESS=h:5"}, "launch: worker 0 of 2, at h:5, joins"},
        {NULL,
         {"LOCKSTEP_JOIN=1", "LOCKSTEP_ADDRESS=h:5", "LOCKSTEP_RANK=0", "LOCKSTEP_WORLD_SIZE=4",
          "LOCKSTEP_JOB=a job"},
         "launch: worker 0 of 4, at h:5, job a job, joins"},
        {NULL,
         {"LOCKSTEP_JOIN=0", "LOCKSTEP_ADDRESS=h:5", "LOCKSTEP_RANK=1", "LOCKSTEP_WORLD_SIZE=4"},
         "launch: worker 1 of 4, at h:5"},
        {NULL, {"LOCKSTEP_JOIN=1"}, NULL, "LOCKSTEP_JOIN is set, but LOCKSTEP_ADDRESS is not"},
        {NULL,
         {"LOCKSTEP_JOIN=yes", "LOCKSTEP_ADDRESS=h:5"},
         NULL,
         "LOCKSTEP_JOIN=yes is not a whole number from 0 to 1"},
    };
    CHECK_ROWS(rows);
}

TEST(a_name_demands_that_launcher)
{
    static const struct row rows[] = {
        {"torchrun", {NULL}, NULL, "--cluster=torchrun needs RANK, WORLD_SIZE, MASTER_ADDR"},
        {"torchrun", {NULL}, NULL, "start the workers with torchrun --no-python"},
        {"slurm", {"RANK=0", "WORLD_SIZE=1"}, NULL, "--cluster=slurm needs SLURM_STEP_ID"},
        {"launch", {NULL}, NULL, "--cluster=launch needs LOCKSTEP_RANK"},
        {"tf-config", {"TF_CONFIG={}"}, NULL, "TF_CONFIG has no cluster: correct TF_CONFIG"},
        {"pmix", {NULL}, NULL, "--cluster=pmix needs PMIX_NAMESPACE"},
        {"openmpi", {NULL}, NULL, "--cluster=openmpi needs OMPI_COMM_WORLD_RANK"},
        {"pmi", {NULL}, NULL, "--cluster=pmi needs PMI_RANK"},
        {"kubernetes", {NULL}, NULL, "--cluster=kubernetes needs JOB_COMPLETION_INDEX"},
        {"torchrun", {"RANK=0"}, NULL, "RANK is set, but WORLD_SIZE is not"},
        // Another one than the first complete one.
        {"slurm",
         {"RANK=1", "WORLD_SIZE=4", TORCH, "SLURM_JOB_ID=5", "SLURM_STEP_ID=0", "SLURM_PROCID=0",
          "SLURM_NTASKS=1", "SLURM_STEP_NODELIST=n1"},
         "slurm: worker 0 of 1, at 127.0.0.1:12080, job slurm 5.0"},
    };
    CHECK_ROWS(rows);
}

TEST(launch)
{
    static const struct row rows[] = {
        {NULL, {"LOCKSTEP_RANK=0", "LOCKSTEP_WORLD_SIZE=1"}, "launch: worker 0 of 1"},
        {NULL,
         {"LOCKSTEP_RANK=3", "LOCKSTEP_WORLD_SIZE=4", "LOCKSTEP_LOCAL_RANK=1",
          "LOCKSTEP_LOCAL_WORLD_SIZE=2", "LOCKSTEP_ADDRESS=[::1]:5000", "LOCKSTEP_SERVERS=2",
          "LOCKSTEP_RESTART_COUNT=2", "LOCKSTEP_JOB=a job"},
         "launch: worker 3 of 4 and 2, local 1 of 2, at ::1:5000, job a job, restart 2"},
        {NULL,
         {"LOCKSTEP_ROLE=server", "LOCKSTEP_RANK=1", "LOCKSTEP_WORLD_SIZE=1", "LOCKSTEP_SERVERS=2",
          "LOCKSTEP_LOCAL_RANK=1", "LOCKSTEP_LOCAL_WORLD_SIZE=2",
          "LOCKSTEP_ADDRESS=localhost:5000"},
         "launch: server 1 of 1 and 2, local 1 of 2, at localhost:5000"},
        {NULL,
         {"LOCKSTEP_ROLE=server", "LOCKSTEP_RANK=1", "LOCKSTEP_WORLD_SIZE=4", "LOCKSTEP_SERVERS=2",
          "LOCKSTEP_LOCAL_RANK=1", "LOCKSTEP_LOCAL_WORLD_SIZE=3",
          "LOCKSTEP_ADDRESS=localhost:5000"},
         NULL,
         "LOCKSTEP_LOCAL_WORLD_SIZE=3 is more than the 2 servers that there are"},
        {NULL,
         {"LOCKSTEP_ROLE=worker", "LOCKSTEP_RANK=0", "LOCKSTEP_WORLD_SIZE=2",
          "LOCKSTEP_ADDRESS=h:65535"},
         "launch: worker 0 of 2, at h:65535, from outside"},
        // It goes before all others.
        {NULL,
         {"RANK=1", "WORLD_SIZE=4", TORCH, "LOCKSTEP_RANK=0", "LOCKSTEP_WORLD_SIZE=2",
          "LOCKSTEP_ADDRESS=h:1"},
         "launch: worker 0 of 2, at h:1, from outside"},
        {NULL, {"LOCKSTEP_RANK=0"}, NULL, "LOCKSTEP_RANK is set, but LOCKSTEP_WORLD_SIZE is not"},
        {NULL,
         {"LOCKSTEP_WORLD_SIZE=2"},
         NULL,
         "LOCKSTEP_WORLD_SIZE is set, but LOCKSTEP_RANK is not"},
        {NULL,
         {"LOCKSTEP_RANK=0", "LOCKSTEP_WORLD_SIZE=2"},
         NULL,
         "LOCKSTEP_RANK and LOCKSTEP_WORLD_SIZE are set, but LOCKSTEP_ADDRESS is not"},
        {NULL,
         {"LOCKSTEP_RANK=0", "LOCKSTEP_WORLD_SIZE=1", "LOCKSTEP_SERVERS=1"},
         NULL,
         "but LOCKSTEP_ADDRESS is not"},
        {NULL, {"LOCKSTEP_ROLE=server"}, NULL, "LOCKSTEP_ROLE is set, but LOCKSTEP_RANK"},
        {NULL,
         {"LOCKSTEP_ROLE=server", "LOCKSTEP_JOIN=1", "LOCKSTEP_ADDRESS=h:1", "LOCKSTEP_RANK=0",
          "LOCKSTEP_WORLD_SIZE=1", "LOCKSTEP_SERVERS=1"},
         NULL,
         "only workers join later"},
        {NULL,
         {"LOCKSTEP_ROLE=chief", "LOCKSTEP_RANK=0", "LOCKSTEP_WORLD_SIZE=1"},
         NULL,
         "LOCKSTEP_ROLE=chief is neither worker nor server"},
        {NULL,
         {"LOCKSTEP_ROLE=server", "LOCKSTEP_RANK=0", "LOCKSTEP_WORLD_SIZE=1",
          "LOCKSTEP_ADDRESS=h:1"},
         NULL,
         "LOCKSTEP_RANK=0 of a server is not below LOCKSTEP_SERVERS=0"},
        {NULL,
         {"LOCKSTEP_RANK=2", "LOCKSTEP_WORLD_SIZE=2", "LOCKSTEP_ADDRESS=h:1"},
         NULL,
         "LOCKSTEP_RANK=2 is not below LOCKSTEP_WORLD_SIZE=2"},
        {NULL,
         {"LOCKSTEP_RANK=0", "LOCKSTEP_WORLD_SIZE=2", "LOCKSTEP_ADDRESS=h"},
         NULL,
         "LOCKSTEP_ADDRESS=h is not host:port"},
        {NULL,
         {"LOCKSTEP_RANK=0", "LOCKSTEP_WORLD_SIZE=2", "LOCKSTEP_ADDRESS=h:0"},
         NULL,
         "LOCKSTEP_ADDRESS=h:0 is not host:port"},
        {NULL,
         {"LOCKSTEP_RANK=0", "LOCKSTEP_WORLD_SIZE=2", "LOCKSTEP_ADDRESS=h:65536"},
         NULL,
         "is not host:port"},
        {NULL,
         {"LOCKSTEP_RANK=0", "LOCKSTEP_WORLD_SIZE=2", "LOCKSTEP_ADDRESS=::1:5000"},
         NULL,
         "is not host:port"},
        {NULL,
         {"LOCKSTEP_RANK=0", "LOCKSTEP_WORLD_SIZE=2", "LOCKSTEP_ADDRESS=:5000"},
         NULL,
         "is not host:port"},
        {NULL,
         {"LOCKSTEP_RANK=1", "LOCKSTEP_WORLD_SIZE=2", "LOCKSTEP_ADDRESS=h:1",
          "LOCKSTEP_LISTEN_FD=3"},
         NULL,
         "LOCKSTEP_LISTEN_FD=3 is set, but this process is neither worker 0 nor a server"},
        {NULL,
         {"LOCKSTEP_RANK=0", "LOCKSTEP_WORLD_SIZE=2", "LOCKSTEP_ADDRESS=h:1",
          "LOCKSTEP_LISTEN_FD=1000"},
         NULL,
         "LOCKSTEP_LISTEN_FD=1000 is not a socket that listens"},
        {NULL,
         {"LOCKSTEP_RANK=0", "LOCKSTEP_WORLD_SIZE=2", "LOCKSTEP_ADDRESS=h:1",
          "LOCKSTEP_LISTEN_FD=0"},
         NULL,
         "LOCKSTEP_LISTEN_FD=0 is not a whole number from 3"},
    };
    CHECK_ROWS(rows);
}

TEST(launch_hands_on_a_socket_that_listens)
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

TEST(servers_are_where_the_launcher_says)
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

TEST(torchrun)
{
    static const struct row rows[] = {
        {NULL,
         {"RANK=1", "WORLD_SIZE=4", TORCH, "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2", "GROUP_RANK=0"},
         "torchrun: worker 1 of 4, local 1 of 2, at 10.0.0.1:29500"},
        // The agent has its store on MASTER_PORT.
        {NULL,
         {"RANK=3", "WORLD_SIZE=4", TORCH, "TORCHELASTIC_USE_AGENT_STORE=True",
          "TORCHELASTIC_RESTART_COUNT=2", "TORCHELASTIC_RUN_ID=abc"},
         "torchrun: worker 3 of 4, at 10.0.0.1:29600, job abc, restart 2"},
        {NULL,
         {"RANK=0", "WORLD_SIZE=4", TORCH, "TORCHELASTIC_USE_AGENT_STORE=False"},
         "torchrun: worker 0 of 4, at 10.0.0.1:29500, from outside"},
        {NULL,
         {"RANK=0", "WORLD_SIZE=4", "MASTER_ADDR=h", "MASTER_PORT=65500",
          "TORCHELASTIC_USE_AGENT_STORE=True"},
         "torchrun: worker 0 of 4, at h:65400, from outside"},
        {NULL,
         {"RANK=0", "WORLD_SIZE=4", TORCH, "LOCKSTEP_ADDRESS=h2:7",
          "TORCHELASTIC_USE_AGENT_STORE=True"},
         "torchrun: worker 0 of 4, at h2:7, from outside"},
        {NULL,
         {"RANK=0", "WORLD_SIZE=2", "LOCKSTEP_ADDRESS=h2:7"},
         "torchrun: worker 0 of 2, at h2:7, from outside"},
        {NULL, {"RANK=0", "WORLD_SIZE=1"}, "torchrun: worker 0 of 1"},
        {NULL,
         {"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=[fe80::1%eth0]", "MASTER_PORT=1"},
         "torchrun: worker 0 of 2, at fe80::1%eth0:1, from outside"},
        // PyTorchJob: the master is rank 0 and worker i is rank i + 1.
        {NULL,
         {"RANK=1", "WORLD_SIZE=3", "MASTER_ADDR=job-master-0", "MASTER_PORT=23456",
          "PYTHONUNBUFFERED=0", "KUBERNETES_SERVICE_HOST=10.96.0.1", "PET_NNODES=3",
          "PET_NPROC_PER_NODE=1"},
         "torchrun: worker 1 of 3, at job-master-0:23456"},
        // torchrun on two hosts whose master thinks that it is localhost.
        {NULL,
         {"RANK=0", "WORLD_SIZE=4", "MASTER_ADDR=localhost", "MASTER_PORT=1", "LOCAL_RANK=0",
          "LOCAL_WORLD_SIZE=2", "GROUP_RANK=0"},
         "torchrun: worker 0 of 4, local 0 of 2, at localhost:1, from outside"},
        {NULL,
         {"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=1", "LOCAL_RANK=0",
          "LOCAL_WORLD_SIZE=2", "GROUP_RANK=0"},
         "torchrun: worker 0 of 2, local 0 of 2, at 127.0.0.1:1"},
        {NULL,
         {"RANK=2", "WORLD_SIZE=4", "MASTER_ADDR=localhost", "MASTER_PORT=1", "LOCAL_RANK=0",
          "LOCAL_WORLD_SIZE=2", "GROUP_RANK=1"},
         NULL,
         "MASTER_ADDR=localhost is this host, but worker 0 is on another one"},
        // torchrun --standalone.
        {NULL,
         {"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=laptop.example.org", "MASTER_PORT=40000",
          "TORCHELASTIC_USE_AGENT_STORE=True", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=2"},
         "torchrun: worker 0 of 2, local 0 of 2, at 127.0.0.1:40100"},
        // What is left over on a laptop.
        {NULL, {"RANK=0"}, NULL, "RANK is set, but WORLD_SIZE is not"},
        {NULL, {"RANK=0"}, NULL, "start the workers with torchrun --no-python, or unset RANK"},
        {NULL, {"WORLD_SIZE=4"}, NULL, "WORLD_SIZE is set, but RANK is not"},
        {NULL,
         {"RANK=0", "WORLD_SIZE=2"},
         NULL,
         "RANK and WORLD_SIZE are set, but MASTER_ADDR and MASTER_PORT are not"},
        {NULL,
         {"RANK=0", "WORLD_SIZE=2", "MASTER_PORT=5"},
         NULL,
         "RANK, WORLD_SIZE and MASTER_PORT are set, but MASTER_ADDR is not"},
        {NULL, {"RANK=4", "WORLD_SIZE=4", TORCH}, NULL, "RANK=4 is not below WORLD_SIZE=4"},
        {NULL, {"RANK=-1", "WORLD_SIZE=4", TORCH}, NULL, "RANK=-1 is not a whole number from 0"},
        {NULL, {"RANK=1x", "WORLD_SIZE=4", TORCH}, NULL, "RANK=1x is not a whole number"},
        {NULL, {"RANK= 1", "WORLD_SIZE=4", TORCH}, NULL, "RANK= 1 is not a whole number"},
        {NULL, {"RANK=", "WORLD_SIZE=4", TORCH}, NULL, "RANK is empty"},
        {NULL,
         {"RANK=0", "WORLD_SIZE=0", TORCH},
         NULL,
         "WORLD_SIZE=0 is not a whole number from 1"},
        {NULL, {"RANK=0", "WORLD_SIZE=99999999999999999999999", TORCH}, NULL, "WORLD_SIZE=9999"},
        {NULL, {"RANK=0", "WORLD_SIZE=4294967297", TORCH}, NULL, "WORLD_SIZE=4294967297 is not"},
        {NULL,
         {"RANK=0", "WORLD_SIZE=65537", TORCH},
         NULL,
         "is not a whole number from 1 to 65536"},
        {NULL,
         {"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=h", "MASTER_PORT=tcp://10.0.0.1:29500"},
         NULL,
         "MASTER_PORT=tcp://10.0.0.1:29500 is not a whole number from 1 to 65535"},
        {NULL,
         {"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=h", "MASTER_PORT=65536"},
         NULL,
         "MASTER_PORT=65536"},
        {NULL,
         {"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=", "MASTER_PORT=1"},
         NULL,
         "MASTER_ADDR is empty"},
        {NULL,
         {"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=a host", "MASTER_PORT=1"},
         NULL,
         "MASTER_ADDR=a host is not the name or the address of a host"},
        {NULL,
         {"RANK=0", "WORLD_SIZE=4", TORCH, "LOCAL_RANK=2", "LOCAL_WORLD_SIZE=2"},
         NULL,
         "LOCAL_RANK=2 is not below LOCAL_WORLD_SIZE=2"},
        {NULL,
         {"RANK=0", "WORLD_SIZE=4", TORCH, "LOCAL_RANK=2", "LOCAL_WORLD_SIZE=8"},
         NULL,
         "LOCAL_WORLD_SIZE=8 is more than the 4 workers that there are"},
        // A PyTorchJob with several processes a pod, without torchrun.
        {NULL,
         {"RANK=1", "WORLD_SIZE=8", TORCH, "PET_NNODES=2", "PET_NPROC_PER_NODE=4"},
         NULL,
         "RANK=1 is the number of the pod, but WORLD_SIZE=8 counts 4 processes a pod"},
        {NULL,
         {"RANK=1", "WORLD_SIZE=8", TORCH, "PET_NNODES=2", "PET_NPROC_PER_NODE=4",
          "TORCHELASTIC_RUN_ID=x"},
         "torchrun: worker 1 of 8, at 10.0.0.1:29500, job x"},
    };
    CHECK_ROWS(rows);
}

TEST(describe_says_what_was_taken_and_what_was_not)
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

TEST(the_variables_of_launch_are_described_with_verbose)
{
    static const char *const own[] = {"LOCKSTEP_RANK=3", "LOCKSTEP_WORLD_SIZE=4",
                                      "LOCKSTEP_ADDRESS=h:5", "LOCKSTEP_JOB=launch-7", NULL};
    static const char *const by_hand[] = {"LOCKSTEP_RANK=3", "LOCKSTEP_WORLD_SIZE=4",
                                          "LOCKSTEP_ADDRESS=h:5", NULL};
    struct ls_worker_place place;
    char text[1024];
    ck_assert_int_eq(ls_worker_place_resolve("auto", &(struct ls_environment){by_hand}, &place),
                     LS_OK);
    ls_worker_place_describe(&place, text, sizeof(text));
    ck_assert_str_eq(text, "worker 3 of 4 by LOCKSTEP_RANK");
    ck_assert_int_eq(ls_worker_place_resolve("auto", &(struct ls_environment){own}, &place), LS_OK);
    ls_worker_place_describe(&place, text, sizeof(text));
    ck_assert_str_eq(text, "worker 3 of 4 by launch");
    ls_log_set_level(LS_LOG_DEBUG);
    ls_worker_place_describe(&place, text, sizeof(text));
    ls_log_set_level(LS_LOG_INFO);
    ck_assert_ptr_nonnull(strstr(text, "by launch (LOCKSTEP_RANK=3 LOCKSTEP_WORLD_SIZE=4"));
}

TEST(long_values_are_cut)
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

TEST(names_are_those_of_the_resolvers)
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

TEST(the_environment_of_this_process_is_read)
{
    const struct ls_environment environment = ls_environment_of_process();
    ck_assert_ptr_nonnull(ls_environment_get(&environment, "PATH"));
    ck_assert_ptr_null(ls_environment_get(&environment, "PAT"));
    ck_assert_ptr_null(ls_environment_get(&environment, "LOCKSTEP_NO_SUCH_VARIABLE"));
    // As libpmix does in the middle of it: the array of the variables moves.
    ck_assert_int_eq(setenv("LOCKSTEP_SET_LATER", "now", 1), 0);
    ck_assert_pstr_eq(ls_environment_get(&environment, "LOCKSTEP_SET_LATER"), "now");
}
