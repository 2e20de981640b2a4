// SPDX-License-Identifier: Apache-2.0
// Collective `mpi` between processes that mpirun starts: every operation, type and reduction on exact values, several under way
// at a time; what it changes in the process, and what it refuses.
//
// Without arguments this is the test, which starts itself by mpirun; `worker FILE` is one rank, which meets the others in FILE.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "core/plugin/collective.h"
#include "tests/support/plugin.h"
#include "tests/support/suite.h"

#include <check.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOST_RANKS 8
#define MOST_BYTES 64 // that a rank gives in one exchange
#define DEADLINE_NS UINT64_C(20000000000)
#define LARGE 65537 // elements
#define FLIGHT 6 // operations at a time

// ---- Where the ranks meet ----

struct meeting {
    _Atomic uint32_t arrived, turn;
    char given[MOST_RANKS][MOST_BYTES];
};

static struct meeting *meeting;
static uint32_t rank, world;

static int32_t meet(void)
{
    struct timespec pause = {.tv_nsec = 200000};
    const uint32_t turn = atomic_load(&meeting->turn);
    if (atomic_fetch_add(&meeting->arrived, 1) + 1 == world) {
        atomic_store(&meeting->arrived, 0);
        atomic_fetch_add(&meeting->turn, 1);
        return LS_OK;
    }
    for (int i = 0; i < 100000 && atomic_load(&meeting->turn) == turn; i++)
        nanosleep(&pause, NULL);
    return atomic_load(&meeting->turn) == turn ? LS_PEER_LOST : LS_OK;
}

static int32_t exchange(void *context, const void *own, uint64_t bytes, void *all)
{
    (void)context;
    if (bytes > MOST_BYTES)
        return LS_FAILED;
    memcpy(meeting->given[rank], own, bytes);
    if (meet())
        return LS_PEER_LOST;
    for (uint32_t i = 0; i < world; i++)
        memcpy((char *)all + i * bytes, meeting->given[i], bytes);
    return meet();
}

// ---- Values ----

static const uint32_t dtypes[] = {LS_F32, LS_F64, LS_F16, LS_BF16, LS_I32, LS_I64, LS_U8};
#define DTYPES (sizeof(dtypes) / sizeof(*dtypes))

static void put(void *memory, uint32_t dtype, uint64_t index, uint32_t value)
{
    const float single = (float)value;
    uint32_t bits;
    memcpy(&bits, &single, sizeof(bits));
    switch (dtype) {
    case LS_F16: // exponent moved from bias 127 to 15, ten bits of mantissa
        ((uint16_t *)memory)[index] = (uint16_t)(value ? (bits - 0x38000000) >> 13 : 0);
        break;
    case LS_BF16: ((uint16_t *)memory)[index] = (uint16_t)(bits >> 16); break;
    case LS_F32: ((float *)memory)[index] = (float)value; break;
    case LS_F64: ((double *)memory)[index] = value; break;
    case LS_I32: ((int32_t *)memory)[index] = (int32_t)value; break;
    case LS_I64: ((int64_t *)memory)[index] = value; break;
    default: ((uint8_t *)memory)[index] = (uint8_t)value; break;
    }
}

static uint32_t value_of(uint32_t of, uint64_t index)
{
    return 1 + (uint32_t)((index / 3 * 7 + index + of * 3) % 2);
}

// The mean is exact because every value is multiplied by the number of ranks.
static uint32_t result_of(uint32_t reduction, uint64_t index)
{
    uint32_t result = value_of(0, index);
    for (uint32_t i = 1; i < world; i++) {
        const uint32_t value = value_of(i, index);
        if (reduction == LS_PRODUCT)
            result *= value;
        else if (reduction == LS_MIN)
            result = value < result ? value : result;
        else if (reduction == LS_MAX)
            result = value > result ? value : result;
        else
            result += value;
    }
    return result;
}

struct trial {
    struct ls_collective_run run;
    void *buffer;
};

static bool trial_init(struct trial *trial, uint32_t operation, uint32_t dtype, uint32_t reduction,
                       uint64_t count, uint32_t root)
{
    if (operation == LS_ALL_TO_ALL) // equal blocks
        count += (world - count % world) % world;
    trial->buffer = malloc(count * 8 + 8);
    trial->run = (struct ls_collective_run){.struct_size = sizeof(trial->run),
                                            .operation = operation,
                                            .dtype = dtype,
                                            .reduction = reduction,
                                            .root = root,
                                            .buffer = trial->buffer,
                                            .count = count};
    const bool reduces = ls_operation_reduces(operation);
    for (uint64_t i = 0; trial->buffer && i < count; i++)
        put(trial->buffer, dtype, i,
            value_of(rank, i) * (reduces && reduction == LS_MEAN ? world : 1));
    return trial->buffer;
}

// False: says which element is wrong.
static bool trial_judge(const struct trial *trial)
{
    const struct ls_collective_run *run = &trial->run;
    const uint64_t size = ls_dtype_bytes(run->dtype);
    struct ls_range range = ls_data_range(0, run->count);
    if (run->operation == LS_REDUCE_SCATTER)
        range = ls_part(range, rank, world);
    if (run->operation == LS_REDUCE && run->root != rank)
        range.count = 0;
    for (uint64_t i = range.offset; i < range.offset + range.count; i++) {
        uint32_t expected = result_of(run->reduction, i);
        uint64_t wanted[1];
        if (run->operation == LS_BROADCAST)
            expected = value_of(run->root, i);
        for (uint32_t k = 0; run->operation == LS_ALL_GATHER && k < world; k++) {
            const struct ls_range part = ls_part(ls_data_range(0, run->count), k, world);
            if (i - part.offset < part.count)
                expected = value_of(k, i);
        }
        const uint64_t each = run->count / world;
        if (run->operation == LS_ALL_TO_ALL)
            expected = value_of((uint32_t)(i / each), rank * each + i % each);
        put(wanted, run->dtype, 0, expected);
        if (memcmp(wanted, (char *)trial->buffer + i * size, size) == 0)
            continue;
        printf(
            "rank %u: operation %u, type %u, reduction %u, %llu elements: element %llu is not %u\n",
            rank, run->operation, run->dtype, run->reduction, (unsigned long long)run->count,
            (unsigned long long)i, expected);
        return false;
    }
    return true;
}

// ---- A rank ----

static bool run_all(const struct ls_collective_interface *ops, struct ls_collective *collective,
                    struct trial *trials, uint32_t count, uint64_t *given)
{
    bool good = true;
    for (uint32_t i = 0; good && i < count; i++)
        good = ops->run(collective, &trials[i].run) == LS_OK;
    *given += count;
    const uint64_t begin = test_host_clock(NULL);
    for (uint64_t ended = 0; good && ended < *given;) {
        good = ops->done(collective, &ended) == LS_OK && ops->poll(collective) == LS_OK &&
               test_host_clock(NULL) - begin < DEADLINE_NS;
        if (ended < *given) // there may be fewer cores than ranks
            nanosleep(&(struct timespec){.tv_nsec = 10000}, NULL);
    }
    for (uint32_t i = 0; i < count; i++) {
        good = good && trial_judge(&trials[i]);
        free(trials[i].buffer);
    }
    return good;
}

// Several at a time; `given`: before.
static bool use_together(const struct ls_collective_interface *ops,
                         struct ls_collective *collective, uint64_t given)
{
    struct trial trials[FLIGHT];
    for (uint32_t i = 0; i < FLIGHT; i++)
        if (!trial_init(&trials[i], LS_ALL_REDUCE + i, LS_F32, LS_SUM, LARGE - i, 0))
            return false;
    return run_all(ops, collective, trials, FLIGHT, &given);
}

// All operations and reductions, in all types for all-reduce.
static bool use(const struct ls_collective_interface *ops, struct ls_collective *collective)
{
    static const uint64_t counts[] = {0, 1, 1009, LARGE};
    struct trial trials[1];
    uint64_t given = 0;
    for (uint32_t operation = LS_ALL_REDUCE; operation <= LS_ALL_TO_ALL; operation++)
        for (size_t t = 0; t < DTYPES; t++)
            for (uint32_t reduction = LS_SUM; reduction <= LS_MEAN; reduction++)
                for (size_t c = 0; c < sizeof(counts) / sizeof(*counts) &&
                                   (operation == LS_ALL_REDUCE || dtypes[t] == LS_F32 ||
                                    (operation == LS_ALL_TO_ALL && reduction == LS_SUM));
                     c++)
                    if (!trial_init(&trials[0], operation, dtypes[t], reduction, counts[c],
                                    world - 1) ||
                        !run_all(ops, collective, trials, 1, &given))
                        return false;
    return use_together(ops, collective, given);
}

static void on_crash(int signal)
{
    _exit(signal);
}

static struct ls_collective *open_rank(const struct ls_collective_interface *ops,
                                       struct test_host *host)
{
    struct ls_collective *collective = calloc(1, ops->state_bytes);
    const struct ls_collective_member member = {.struct_size = sizeof(member), .rank = rank};
    const uint32_t hosts[MOST_RANKS] = {0};
    const struct ls_collective_config config = {.struct_size = sizeof(config),
                                                .world = world,
                                                .count = 1,
                                                .members = &member,
                                                .hosts = hosts,
                                                .deadline_ns = DEADLINE_NS,
                                                .exchange = exchange};
    if (collective && ops->open(&host->host, &config, &collective) == LS_OK)
        return collective;
    printf("rank %u: open: %s\n", rank, host->message);
    free(collective);
    return NULL;
}

static int worker(const char *path)
{
    const int fd = open(path, O_RDWR);
    const char *own = getenv("OMPI_COMM_WORLD_RANK"), *all = getenv("OMPI_COMM_WORLD_SIZE");
    const struct ls_plugin *plugin = test_plugin_open("collective-mpi");
    struct sigaction before = {.sa_handler = on_crash}, after = {0};
    struct test_host host;
    struct ls_collective *ranks[2];
    if (fd < 0 || !own || !all || !plugin)
        return 1;
    const struct ls_collective_interface *ops = plugin->interface;
    meeting = mmap(NULL, sizeof(*meeting), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    world = (uint32_t)atoi(all);
    rank = world - 1 - (uint32_t)atoi(own); // ranks of a job need not be those of MPI
    test_host_init(&host, plugin);
    sigaction(SIGSEGV, &before, NULL);
    for (int i = 0; i < 2; i++) { // two communicators side by side
        ranks[i] = meeting == MAP_FAILED ? NULL : open_rank(ops, &host);
        if (!ranks[i])
            return 1;
    }
    sigaction(SIGSEGV, NULL, &after);
    bool good = after.sa_handler == on_crash;
    if (!good)
        printf("the handler of SIGSEGV is another one\n");
    good = good && use(ops, ranks[0]) && use_together(ops, ranks[1], 0);
    for (int i = 0; i < 2; i++) {
        ops->close(ranks[i]);
        free(ranks[i]);
    }
    if (good && rank == 0) {
        char text[200];
        ops->about(text, sizeof(text));
        printf("passed: %s, %u ranks\n", text, world);
    }
    return good ? 0 : 1;
}

// ---- The test ----

static void run_ranks(const char *self, int count)
{
    char path[] = "/tmp/lockstep-mpi-XXXXXX", command[4096], text[4096] = "";
    const int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(ftruncate(fd, sizeof(struct meeting)), 0);
    // Open MPI unloads parts of itself that never freed what they had, so LeakSanitizer cannot even name
    // them; leaks of the plugin are those of the tests in one process.
    snprintf(
        command, sizeof(command),
        "ASAN_OPTIONS=\"$ASAN_OPTIONS:detect_leaks=0\" mpirun --oversubscribe -np %d %s worker "
        "%s 2>&1",
        count, self, path);
    FILE *pipe = popen(command, "r");
    ck_assert_ptr_nonnull(pipe);
    const size_t bytes = fread(text, 1, sizeof(text) - 1, pipe);
    const int status = pclose(pipe);
    close(fd);
    unlink(path);
    text[bytes] = '\0';
    ck_assert_msg(status == 0, "%s: status %d: %s", command, status, text);
    // Open MPI prints nothing, not even a warning about our handlers.
    ck_assert_msg(strncmp(text, "passed: Open MPI", 16) == 0 && strchr(text, '\n')[1] == '\0', "%s",
                  text);
}

static const char *self_path;
static const struct ls_plugin *mpi;

START_TEST(all_operations_give_exact_values_between_processes)
{
    static const int worlds[] = {2, 3, 5};
    run_ranks(self_path, worlds[_i]);
}
END_TEST

static int32_t open_here(uint32_t count, uint32_t ranks, struct test_host *host)
{
    const struct ls_collective_interface *ops = mpi->interface;
    struct ls_collective *states[2] = {calloc(1, ops->state_bytes), calloc(1, ops->state_bytes)};
    const struct ls_collective_member members[2] = {{.struct_size = sizeof(*members), .rank = 0},
                                                    {.struct_size = sizeof(*members), .rank = 1}};
    const uint32_t hosts[2] = {0};
    const struct ls_collective_config config = {.struct_size = sizeof(config),
                                                .world = ranks,
                                                .count = count,
                                                .members = members,
                                                .hosts = hosts,
                                                .deadline_ns = DEADLINE_NS,
                                                .exchange = exchange};
    static struct meeting here;
    meeting = &here;
    rank = 0;
    world = 1; // nobody else comes
    test_host_init(host, mpi);
    const int32_t status = ops->open(&host->host, &config, states);
    if (!status)
        ops->close(states[0]);
    free(states[0]);
    free(states[1]);
    return status;
}

TEST(two_ranks_of_one_process_are_refused)
{
    struct test_host host;
    ck_assert_int_eq(open_here(2, 2, &host), LS_UNAVAILABLE);
    ck_assert_ptr_nonnull(strstr(host.message, "MPI has one rank a process, and 2 replicas"));
    ck_assert_ptr_nonnull(strstr(host.message, "--replicas=1"));
}

TEST(a_process_that_no_engine_started_is_refused_at_once)
{
    struct test_host host;
    ck_assert_int_eq(open_here(1, 2, &host), LS_UNAVAILABLE);
    ck_assert_ptr_nonnull(strstr(host.message, "mpirun"));
}

TEST(one_rank_alone_needs_no_mpi)
{
    struct test_host host;
    ck_assert_int_eq(open_here(1, 1, &host), LS_OK);
}

TEST_SECONDS(100);

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "worker") == 0)
        return worker(argv[2]);
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    self_path = argv[0];
    mpi = test_plugin_open("collective-mpi");
    if (!mpi)
        return TEST_SKIPPED;
    if (test_lacks("/sys/devices/system/cpu", "mpirun"))
        printf("SKIP: no ranks were started\n");
    else if (system("command -v mpirun >/dev/null") == 0)
        tcase_add_loop_test(test_registered(), all_operations_give_exact_values_between_processes,
                            0, 3);
    else
        printf("SKIP: mpirun is not here (Debian: openmpi-bin): no ranks were started\n");
    return test_suite_run("collective mpi");
}
