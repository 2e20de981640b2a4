// SPDX-License-Identifier: Apache-2.0
// Workers that find each other through PMIx: with a fake libpmix, in processes of their own.
// usage: test_pmix LIBRARY
#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/cluster/cluster.h"
#include "core/place/own_address.h"
#include "core/place/pmix_calls.h"
#include "core/place/resolve.h"
#include "tests/support/suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SECOND UINT64_C(1000000000)

static const char *library;
static char folder[64];
static char line[1024];

static void keep_line(void *context, uint32_t level, const char *text)
{
    (void)context;
    (void)level;
    snprintf(line, sizeof(line), "%s", text);
}

static void set_number(const char *name, uint32_t number)
{
    char text[16];
    snprintf(text, sizeof(text), "%u", number);
    setenv(name, text, 1);
}

// What mpirun tells a process. Each test runs in a process of its own, so nothing is left of it.
static void be(uint32_t rank, uint32_t size, uint32_t local_size)
{
    setenv("LOCKSTEP_PMIX_LIBRARY", library, 1);
    setenv("PMIX_NAMESPACE", "job 1", 1);
    setenv("PMIX_FAKE_FOLDER", folder, 1);
    set_number("PMIX_RANK", rank);
    set_number("PMIX_FAKE_SIZE", size);
    set_number("PMIX_FAKE_LOCAL_SIZE", local_size);
    ls_log_set_writer(keep_line, NULL);
    line[0] = '\0';
}

static enum ls_status resolve(const char *which, struct ls_worker_place *out)
{
    const struct ls_environment environment = ls_environment_of_process();
    return ls_worker_place_resolve(which, &environment, out);
}

// Whether the connection was kept until now, and is ended then.
static bool ends_at_exit(uint32_t rank)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/ended.%u", folder, rank);
    if (access(path, F_OK) == 0)
        return false;
    ls_pmix_close();
    return access(path, F_OK) == 0;
}

// Runs `child` as each rank in a process of its own; all must end with 0.
static void run_all(uint32_t count, int (*child)(uint32_t rank))
{
    pid_t pids[8];
    for (uint32_t rank = 0; rank < count; rank++) {
        pids[rank] = fork();
        ck_assert_int_ge(pids[rank], 0);
        if (pids[rank] == 0)
            _exit(child(rank));
    }
    for (uint32_t rank = 0; rank < count; rank++) {
        int status = -1;
        ck_assert_int_eq(waitpid(pids[rank], &status, 0), pids[rank]);
        ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "rank %u: %d", rank, status);
    }
}

static int meet_on_one_host(uint32_t rank)
{
    struct ls_worker_place place;
    be(rank, 4, 4);
    if (resolve("auto", &place) || strcmp(place.resolver, "pmix") != 0 || place.number != rank ||
        place.workers != 4 || place.local_worker != rank || place.local_workers != 4 ||
        place.address[0] || strcmp(place.job, "pmix job 1") != 0)
        return 1;
    // Only what worker 0 says counts.
    if (ls_worker_place_meet(&place, (uint16_t)(5000 + rank), 20 * SECOND))
        return 2;
    if (strcmp(place.address, "127.0.0.1") != 0 || place.port != 5000)
        return 3;
    // Another training of the same process.
    if (resolve("auto", &place) ||
        ls_worker_place_meet(&place, (uint16_t)(6000 + rank), 20 * SECOND) || place.port != 6000)
        return 5;
    return ends_at_exit(rank) ? 0 : 4;
}

TEST(workers_on_one_host_meet_on_loopback)
{
    run_all(4, meet_on_one_host);
}

static int meet_on_two_hosts(uint32_t rank)
{
    struct ls_worker_place place;
    be(rank, 2, 1);
    if (resolve("auto", &place) || place.local_workers != 1)
        return 1;
    const enum ls_status status = ls_worker_place_meet(&place, 5000, 20 * SECOND);
    if (status)
        return 2;
    return place.address[0] && strncmp(place.address, "127.", 4) != 0 && place.port == 5000 ? 0 : 3;
}

TEST(workers_on_several_hosts_get_an_address_of_worker_0)
{
    char host[LS_HOST_BYTES];
    if (ls_own_address(host))
        run_all(2, meet_on_two_hosts);
    else
        printf("SKIP: this machine has no address but loopback\n");
}

// Joins without an address, and tells the others its rank.
static int join(uint32_t rank, uint32_t size, uint32_t local_size, const char *secret)
{
    struct ls_worker_place place;
    struct ls_cluster *cluster;
    uint32_t all[8] = {0};
    be(rank, size, local_size);
    if (resolve("auto", &place) || place.address[0])
        return 1;
    const struct ls_cluster_options options = {
        .place = &place, .count = 1, .join_deadline_ns = 20 * SECOND, .secret = secret};
    if (ls_cluster_join(&options, &cluster))
        return strstr(line, "give all workers one secret by LOCKSTEP_SECRET") ? 2 : 3;
    if (ls_cluster_gather_workers(cluster, &rank, sizeof(rank), all))
        return 4;
    for (uint32_t i = 0; i < size; i++)
        if (all[i] != i)
            return 5;
    const bool told = strstr(ls_cluster_about(cluster), " by pmix (PMIX_NAMESPACE=job 1") &&
                      strstr(ls_cluster_about(cluster), secret ? ", authenticated" : ", on this");
    ls_cluster_close(cluster);
    return told ? 0 : 6;
}

static int join_on_one_host(uint32_t rank)
{
    return join(rank, 4, 4, NULL);
}

TEST(workers_without_an_address_join)
{
    run_all(4, join_on_one_host);
}

static int join_on_two_hosts(uint32_t rank)
{
    return join(rank, 2, 1, "a secret of all workers");
}

// Each for itself, before it waits for anybody.
static int join_without_a_secret(uint32_t rank)
{
    const uint64_t begin = ls_clock_ns();
    return join(rank, 2, 1, NULL) == 2 && ls_clock_ns() - begin < 10 * SECOND ? 0 : 1;
}

TEST(workers_of_several_hosts_join_with_a_secret_only)
{
    char host[LS_HOST_BYTES];
    if (ls_own_address(host))
        run_all(2, join_on_two_hosts);
    else
        printf("SKIP: this machine has no address but loopback\n");
    run_all(2, join_without_a_secret);
}

static int meet_by_open_mpi(uint32_t rank)
{
    struct ls_worker_place place;
    be(rank, 3, 3);
    set_number("OMPI_COMM_WORLD_RANK", rank);
    setenv("OMPI_COMM_WORLD_SIZE", "3", 1);
    set_number("OMPI_COMM_WORLD_LOCAL_RANK", rank);
    setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "3", 1);
    if (resolve("openmpi", &place) || strcmp(place.resolver, "openmpi") != 0 || place.address[0])
        return 1;
    if (ls_worker_place_meet(&place, 6000, 20 * SECOND))
        return 2;
    return place.port == 6000 && ends_at_exit(rank) ? 0 : 3;
}

TEST(the_resolver_of_open_mpi_meets_through_pmix)
{
    run_all(3, meet_by_open_mpi);
}

TEST(a_given_address_is_taken)
{
    struct ls_worker_place place;
    be(1, 2, 1);
    setenv("LOCKSTEP_ADDRESS", "h:5", 1);
    ck_assert_int_eq(resolve("auto", &place), LS_OK);
    ck_assert_str_eq(place.address, "h");
    ck_assert_int_eq(ls_worker_place_meet(&place, 0, SECOND), LS_OK);
    ck_assert_str_eq(place.address, "h");
    ck_assert(ends_at_exit(1));
}

TEST(a_worker_alone_meets_nobody)
{
    struct ls_worker_place place;
    be(0, 1, 1);
    ck_assert_int_eq(resolve("pmix", &place), LS_OK);
    ck_assert_uint_eq(place.workers, 1);
    ck_assert_int_eq(ls_worker_place_meet(&place, 1, SECOND), LS_OK);
    ck_assert(ends_at_exit(0));
}

TEST(what_pmix_says_must_make_sense)
{
    struct ls_worker_place place;
    be(3, 2, 2);
    ck_assert_int_eq(resolve("auto", &place), LS_USAGE);
    ck_assert_ptr_nonnull(strstr(line, "PMIx says that this is rank 3 of 2"));
    ls_pmix_close();
    be(0, 0, 0);
    ck_assert_int_eq(resolve("auto", &place), LS_USAGE);
    ck_assert_ptr_nonnull(strstr(line, "PMIx_Get of the size of the job"));
    ls_pmix_close();
    be(1, 2, 3);
    ck_assert_int_eq(resolve("auto", &place), LS_USAGE);
    ck_assert_ptr_nonnull(strstr(line, "rank 1 of 3 on this host, in a job of 2"));
}

// A variable that was left over, and no server.
TEST(a_server_that_is_not_there)
{
    struct ls_worker_place place;
    be(0, 2, 2);
    setenv("PMIX_FAKE_FAILS", "PMIx_Init", 1);
    ck_assert_int_eq(resolve("auto", &place), LS_USAGE);
    ck_assert_ptr_nonnull(strstr(line, "PMIx_Init: UNREACHABLE: set LOCKSTEP_ADDRESS=host:port"));
    ck_assert_ptr_nonnull(strstr(line, "--cluster=none"));
    unsetenv("PMIX_FAKE_FAILS");
    // PMIx makes a job of its own for a process that nobody started.
    setenv("PMIX_FAKE_NAMESPACE", "singleton", 1);
    ck_assert_int_eq(resolve("auto", &place), LS_USAGE);
    ck_assert_ptr_nonnull(strstr(line, "PMIx knows this process as one of job 'singleton'"));
    ls_pmix_close();
    unsetenv("PMIX_NAMESPACE");
    ck_assert_int_eq(resolve("auto", &place), LS_USAGE);
    ck_assert_ptr_nonnull(strstr(line, "PMIX_RANK is set, but PMIX_NAMESPACE is not"));
}

TEST(slurm_goes_on_without_pmix)
{
    struct ls_worker_place place;
    be(1, 2, 2);
    setenv("LOCKSTEP_PMIX_LIBRARY", "/nonexistent/libpmix.so", 1);
    setenv("SLURM_JOB_ID", "7", 1);
    setenv("SLURM_STEP_ID", "0", 1);
    setenv("SLURM_PROCID", "1", 1);
    setenv("SLURM_NTASKS", "2", 1);
    setenv("SLURM_STEP_NODELIST", "n1", 1);
    ck_assert_int_eq(resolve("auto", &place), LS_OK);
    ck_assert_str_eq(place.resolver, "slurm");
    ck_assert_ptr_nonnull(strstr(place.ignored, "PMIX_RANK=1"));
}

TEST(a_server_that_does_not_answer)
{
    struct ls_pmix_job job;
    char problem[256];
    be(1, 2, 2);
    setenv("PMIX_FAKE_HANGS", "PMIx_Init", 1);
    const uint64_t begin = ls_clock_ns();
    ck_assert(!ls_pmix_open(library, SECOND / 10, &job, problem, sizeof(problem)));
    ck_assert_str_eq(problem, "PMIx has not answered for 0.1 s");
    ck_assert_uint_ge(ls_clock_ns() - begin, SECOND / 10);
}

TEST(a_worker_that_does_not_come_is_an_error)
{
    struct ls_worker_place place;
    be(1, 2, 2);
    ck_assert_int_eq(resolve("auto", &place), LS_OK);
    ck_assert_int_eq(ls_worker_place_meet(&place, 0, SECOND / 10), LS_PEER_LOST);
    ck_assert_ptr_nonnull(
        strstr(line, "cannot find each other through PMIx: PMIx has not answered for 0.1 s"));
    ck_assert_ptr_nonnull(strstr(line, "set LOCKSTEP_ADDRESS=host:port"));
}

static void make_folder(void)
{
    snprintf(folder, sizeof(folder), "/tmp/lockstep-pmix-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
}

static void remove_folder(void)
{
    char command[128];
    snprintf(command, sizeof(command), "rm -r %s", folder);
    ck_assert_int_eq(system(command), 0);
}

TEST_FIXTURE(make_folder, remove_folder);

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    library = argv[1];
    return test_suite_run("pmix");
}
