// SPDX-License-Identifier: Apache-2.0
// The shards of a server in a file: a step counts as a whole or not at all, wherever the process is killed.
#include "plugins/strategy/parameter-server/shard_file.h"
#include "tests/support/plugin.h"
#include "tests/support/suite.h"

#include <check.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define SHARDS 3
#define WORKERS 2
#define FLOATS 1000
#define KILLS 25

static const uint64_t store_bytes[SHARDS] = {FLOATS * sizeof(float), 64, FLOATS * sizeof(float)};
static const char setup[] = "what the server was told";
static struct test_host host;
static char folder[64], path[128];

static void begin(void)
{
    test_host_init(&host, NULL);
    snprintf(folder, sizeof(folder), "/tmp/lockstep-test-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/server", folder);
}

static void end(void)
{
    unlink(path);
    rmdir(folder);
}

static struct shard_file make(bool disk)
{
    struct shard_file file;
    ck_assert_int_eq(shard_file_open(&host.host, path, disk, &file), LS_OK);
    ck_assert_int_eq(shard_file_make(&file, 77, setup, sizeof(setup), WORKERS, SHARDS, store_bytes),
                     LS_OK);
    return file;
}

// As a server that is started again does.
static struct shard_file reopen(void)
{
    struct shard_file file;
    uint64_t bytes = 0, job = 0;
    ck_assert_msg(shard_file_open(&host.host, path, false, &file) == LS_OK, "%s", host.message);
    const void *kept = shard_file_setup(&file, &bytes, &job);
    ck_assert_ptr_nonnull(kept);
    ck_assert_uint_eq(bytes, sizeof(setup));
    ck_assert_mem_eq(kept, setup, sizeof(setup));
    ck_assert_uint_eq(job, 77);
    ck_assert_int_eq(shard_file_lay_out(&file, bytes, WORKERS, SHARDS, store_bytes), LS_OK);
    return file;
}

// One push of a worker: all values of the shard grow by one.
static void push(struct shard_file *file, uint32_t shard, uint32_t worker)
{
    const uint64_t number = shard_file_applied(file, shard, worker) + 1;
    float *values = shard_file_begin(file, shard);
    for (uint64_t i = 0; i < store_bytes[shard] / sizeof(float); i++)
        values[i] += 1.0f;
    if (shard_file_commit(file, shard, worker, number))
        _exit(9);
}

// Values, version and the numbers of the pushes say the same.
static uint64_t check_shards(const struct shard_file *file)
{
    uint64_t all = 0;
    for (uint32_t shard = 0; shard < SHARDS; shard++) {
        const float *values = shard_file_store(file, shard);
        uint64_t pushes = 0;
        for (uint32_t worker = 0; worker < WORKERS; worker++)
            pushes += shard_file_applied(file, shard, worker);
        ck_assert_uint_eq(shard_file_version(file, shard), pushes);
        uint64_t wrong = 0;
        for (uint64_t i = 0; i < store_bytes[shard] / sizeof(float); i++)
            wrong += values[i] != (float)pushes;
        ck_assert_msg(wrong == 0, "shard %u: %u values are not %u pushes", shard, (unsigned)wrong,
                      (unsigned)pushes);
        all += pushes;
    }
    return all;
}

TEST(steps_stay_when_the_process_is_killed_at_any_moment)
{
    uint64_t state = 88172645463325252ull, before = 0;
    begin();
    struct shard_file file = make(false);
    ck_assert_int_eq(shard_file_set_ready(&file), LS_OK);
    shard_file_close(&file, false);
    for (int kill_number = 0; kill_number < KILLS; kill_number++) {
        const pid_t child = fork();
        if (child == 0) {
            file = reopen();
            for (uint32_t i = 0;; i++)
                push(&file, i % SHARDS, i / SHARDS % WORKERS);
        }
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        usleep(2000 + (useconds_t)(state % 3000));
        ck_assert_int_eq(kill(child, SIGKILL), 0);
        int status;
        ck_assert_int_eq(waitpid(child, &status, 0), child);
        ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        file = reopen();
        const uint64_t pushes = check_shards(&file);
        ck_assert_uint_ge(pushes, before); // nothing that counted is lost
        before = pushes;
        shard_file_close(&file, false);
    }
    ck_assert_uint_ge(before, KILLS); // they did something
    end();
}

TEST(a_file_is_of_no_use_before_it_is_ready)
{
    uint64_t bytes, job;
    begin();
    struct shard_file file = make(false);
    shard_file_close(&file, false);
    ck_assert_int_eq(shard_file_open(&host.host, path, false, &file), LS_OK);
    ck_assert_ptr_null(shard_file_setup(&file, &bytes, &job));
    shard_file_close(&file, true);
    ck_assert_int_eq(access(path, F_OK), -1);
    end();
}

TEST(a_file_of_other_shards_is_refused)
{
    static const uint64_t others[SHARDS] = {FLOATS * sizeof(float), 128, FLOATS * sizeof(float)};
    begin();
    struct shard_file file = make(true);
    ck_assert_int_eq(shard_file_set_ready(&file), LS_OK);
    push(&file, 1, 1);
    shard_file_close(&file, false);
    file = reopen();
    ck_assert_uint_eq(check_shards(&file), 1);
    ck_assert_int_eq(shard_file_lay_out(&file, sizeof(setup), WORKERS, SHARDS, others),
                     LS_BAD_INPUT);
    ck_assert_int_eq(shard_file_lay_out(&file, sizeof(setup), WORKERS + 1, SHARDS, store_bytes),
                     LS_BAD_INPUT);
    shard_file_close(&file, false);
    end();
}

TEST(damaged_heads_and_cut_files_are_of_no_use)
{
    uint64_t bytes, job;
    struct stat about;
    begin();
    for (int what = 0; what < 4; what++) {
        struct shard_file file = make(false);
        ck_assert_int_eq(shard_file_set_ready(&file), LS_OK);
        ck_assert_int_eq(stat(path, &about), 0);
        if (what < 2) // the magic, the size
            file.map[what * 16] ^= 1;
        else if (what == 2)
            memset(file.map + 32, 0xff, 8); // the size of the setup
        shard_file_close(&file, false);
        if (what == 3)
            ck_assert_int_eq(truncate(path, about.st_size - 64), 0);
        ck_assert_int_eq(shard_file_open(&host.host, path, false, &file), LS_OK);
        ck_assert_ptr_null(shard_file_setup(&file, &bytes, &job));
        shard_file_close(&file, true);
    }
    end();
}

TEST(only_one_process_has_the_file)
{
    begin();
    struct shard_file file = make(false), other;
    ck_assert_int_eq(shard_file_open(&host.host, path, false, &other), LS_FAILED);
    ck_assert_ptr_nonnull(strstr(host.message, "another server"));
    shard_file_close(&file, false);
    end();
}

TEST(links_are_not_followed)
{
    struct shard_file file;
    char target[160];
    begin();
    snprintf(target, sizeof(target), "%s/target", folder);
    ck_assert_int_eq(symlink(target, path), 0);
    ck_assert_int_eq(shard_file_open(&host.host, path, false, &file), LS_FAILED);
    ck_assert_int_eq(access(target, F_OK), -1);
    end();
}

TEST(who_is_done_stays_done)
{
    begin();
    struct shard_file file = make(false);
    ck_assert_int_eq(shard_file_set_ready(&file), LS_OK);
    ck_assert(!shard_file_is_done(&file, 1));
    ck_assert_int_eq(shard_file_set_done(&file, 1, true), LS_OK);
    shard_file_close(&file, false);
    file = reopen();
    ck_assert(shard_file_is_done(&file, 1) && !shard_file_is_done(&file, 0));
    shard_file_close(&file, false);
    end();
}
