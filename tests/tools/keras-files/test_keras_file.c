// SPDX-License-Identifier: Apache-2.0
// Files of Keras through the program: what is written is read back, whole or not at all; and what
// becomes of a child that crashes, hangs, lies or is not there.
#include "tests/tools/keras-files/fixtures.h"

#include "tests/support/suite.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>

#define OK(call) ck_assert_msg((call) == LS_OK, "%s", captured)

static const float kernel[6] = {1, -2, 3.5f, 0, -0.0f, 1e-30f}, bias[2] = {7, 8}, scalar[1] = {9};

static const struct ls_saved_tensor tensors[] = {
    {"layers/dense/vars/0", 2, {3, 2}, kernel, NULL},
    {"layers/dense/vars/1", 1, {2}, bias, NULL},
    {"layers/functional/layers/dense_1/vars/0", 0, {0}, scalar, NULL},
};
#define TENSORS (sizeof(tensors) / sizeof(tensors[0]))
#define NAMES \
    "{\"\":\"m\",\"layers/dense\":\"head\",\"layers/functional/layers/dense_1\":\"\\u00e4\"}"
#define MODEL "{\"class_name\":\"Sequential\",\"config\":{}}"

static struct ls_saved saved_of(struct ls_saved_text texts[3], const char *archive)
{
    texts[0] = (struct ls_saved_text){LS_KERAS_NAMES, NAMES};
    texts[1] = (struct ls_saved_text){LS_KERAS_ARCHIVE, archive};
    texts[2] = (struct ls_saved_text){LS_KERAS_MODEL, MODEL};
    return (struct ls_saved){tensors, TENSORS, texts, 3};
}

static void expect_written(const char *path, bool archive)
{
    struct ls_safetensors *file = NULL;
    OK(ls_keras_file_read(&keras_program, path, &file));
    ck_assert_uint_eq(ls_safetensors_count(file), TENSORS);
    for (size_t i = 0; i < TENSORS; i++) {
        const struct ls_saved_tensor *tensor = ls_safetensors_find(file, tensors[i].name);
        ck_assert_ptr_nonnull(tensor);
        ck_assert_uint_eq(tensor->ndims, tensors[i].ndims);
        size_t count = 1;
        for (uint32_t d = 0; d < tensor->ndims; d++) {
            ck_assert_int_eq(tensor->dims[d], tensors[i].dims[d]);
            count *= (size_t)tensor->dims[d];
        }
        ck_assert_mem_eq(tensor->data, tensors[i].data, count * sizeof(float));
    }
    ck_assert_ptr_nonnull(
        strstr(ls_safetensors_text(file, LS_KERAS_NAMES), "\"layers/dense\":\"head\""));
    ck_assert_str_eq(ls_safetensors_text(file, LS_KERAS_SKIPPED), "0");
    if (archive) {
        ck_assert_str_eq(ls_safetensors_text(file, LS_KERAS_MODEL), MODEL);
        ck_assert_str_eq(ls_safetensors_text(file, LS_KERAS_VERSION), "3.0.0");
    } else {
        ck_assert_ptr_null(ls_safetensors_text(file, LS_KERAS_MODEL));
    }
    ls_safetensors_close(file);
}

TEST(what_is_written_is_read_back)
{
    struct ls_saved_text texts[3];
    struct ls_saved saved = saved_of(texts, "no");
    const char *path = in_folder("x.weights.h5");
    OK(ls_keras_file_write(&keras_program, path, &saved));
    expect_written(path, false);
    saved = saved_of(texts, "yes");
    OK(ls_keras_file_write(&keras_program, path, &saved)); // replaces a file of another format
    expect_written(path, true);
}

// A limit on the size of files stands for a full disk.
TEST(a_write_that_fails_leaves_the_old_file)
{
    static float many[100000];
    const struct ls_saved_tensor large = {"layers/dense/vars/0", 1, {100000}, many, NULL};
    struct ls_saved_text texts[3];
    struct ls_saved saved = saved_of(texts, "no");
    const char *path = in_folder("x.weights.h5");
    OK(ls_keras_file_write(&keras_program, path, &saved));
    saved.tensors = &large;
    saved.count = 1;
    signal(SIGXFSZ, SIG_IGN);
    const struct rlimit limit = {500000, RLIM_INFINITY}, more = {RLIM_INFINITY, RLIM_INFINITY};
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    OK(ls_keras_file_write(&keras_program, path, &saved)); // 400 KB fit
    texts[1].text = "yes";
    const enum ls_status status = ls_keras_file_write(&keras_program, path, &saved);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &more), 0);
    ck_assert(status == LS_OK); // and so does the archive
    const struct rlimit small = {430000, RLIM_INFINITY};
    static float larger[110000];
    const struct ls_saved_tensor larger_tensor = {"layers/dense/vars/0", 1, {107000}, larger, NULL};
    saved.tensors = &larger_tensor;
    texts[1].text = "no";
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &small), 0);
    const enum ls_status failed = ls_keras_file_write(&keras_program, path, &saved);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &more), 0);
    ck_assert_int_eq(failed, LS_FAILED);
    expect_error("x.weights.h5", "cannot write");
    ck_assert_uint_eq(files_in_folder(), 1);
    struct ls_safetensors *file = NULL;
    OK(ls_keras_file_read(&keras_program, path, &file));
    ck_assert_int_eq(ls_safetensors_get(file, 0)->dims[0], 100000);
    ls_safetensors_close(file);
}

// ---- Other programs in the place of ours ----

static struct ls_keras_program script(const char *text)
{
    static char path[256];
    char whole[512];
    const int length = snprintf(whole, sizeof(whole), "#!/bin/sh\n%s\n", text);
    write_file("program", whole, (size_t)length);
    snprintf(path, sizeof(path), "%s", in_folder("program"));
    ck_assert_int_eq(chmod(path, 0755), 0);
    return (struct ls_keras_program){.path = path, .seconds = 60};
}

static void expect_refused(const struct ls_keras_program *program, enum ls_status status,
                           const char *says)
{
    struct ls_safetensors *file = (void *)folder; // is not touched
    const char *path = fixture("small.weights.h5");
    ck_assert_int_eq(ls_keras_file_read(program, path, &file), status);
    ck_assert_ptr_eq(file, folder);
    expect_error("small.weights.h5", says);
}

TEST(a_child_that_crashes_is_named_by_its_signal)
{
    const struct ls_keras_program program = script("kill -SEGV $$");
    expect_refused(&program, LS_BAD_INPUT, "crashed the libraries (signal 11");
    const struct ls_keras_program after = script("printf ok; kill -ABRT $$");
    expect_refused(&after, LS_BAD_INPUT, "signal 6");
    const struct ls_keras_program limited = script("kill -XCPU $$");
    expect_refused(&limited, LS_BAD_INPUT, "more than 60 seconds");
}

TEST(a_child_that_lies_is_not_believed)
{
    const struct ls_keras_program nothing = script("printf ok");
    expect_refused(&nothing, LS_BAD_INPUT, "too short for a safetensors file");
    const struct ls_keras_program other =
        script("printf '\\012\\0\\0\\0\\0\\0\\0\\0{\"a\":{}}  ' >&4; printf ok");
    expect_refused(&other, LS_BAD_INPUT, "no dtype");
    const struct ls_keras_program silent = script("exit 0");
    expect_refused(&silent, LS_UNAVAILABLE, "without an answer");
    const struct ls_keras_program failed = script("printf 'failed no memory'; exit 1");
    expect_refused(&failed, LS_FAILED, "no memory");
    const struct ls_keras_program floods = script("head -c 3000000 /dev/zero | tr '\\0' x; exit 1");
    expect_refused(&floods, LS_UNAVAILABLE, "without an answer");
}

TEST(a_child_that_hangs_is_ended_at_the_deadline)
{
    struct ls_keras_program program = script("exec sleep 1000");
    struct timespec begin, end;
    program.seconds = 1; // and two to end
    clock_gettime(CLOCK_MONOTONIC, &begin);
    expect_refused(&program, LS_BAD_INPUT, "more than 1 seconds");
    clock_gettime(CLOCK_MONOTONIC, &end);
    ck_assert_int_ge(end.tv_sec - begin.tv_sec, 2);
    // One that has closed its answers, too.
    program = script("exec >&-; exec sleep 1000");
    program.seconds = 1;
    expect_refused(&program, LS_BAD_INPUT, "more than 1 seconds");
}

TEST(a_program_that_is_not_there_says_what_to_install)
{
    const struct ls_keras_program none = {0}, gone = {.path = "/nonexistent/program"};
    expect_refused(&none, LS_UNAVAILABLE, "install libhdf5-dev and libzip-dev");
    expect_refused(&gone, LS_UNAVAILABLE, "cannot start /nonexistent/program");
}

TEST(what_is_not_a_file_is_refused)
{
    struct ls_safetensors *file = NULL;
    ck_assert_int_eq(ls_keras_file_read(&keras_program, in_folder("none"), &file), LS_BAD_INPUT);
    expect_error("none", "No such file");
    ck_assert_int_eq(ls_keras_file_read(&keras_program, folder, &file), LS_BAD_INPUT);
    expect_error(folder, "is a directory");
    ck_assert_int_eq(mkfifo(in_folder("pipe"), 0600), 0);
    ck_assert_int_eq(ls_keras_file_read(&keras_program, in_folder("pipe"), &file), LS_BAD_INPUT);
    expect_error("pipe", "pipe");
    ck_assert(!ls_keras_file_is(in_folder("none")) && !ls_keras_file_is(folder) &&
              !ls_keras_file_is(in_folder("pipe")));
    ck_assert(ls_keras_file_is(fixture("small.keras")) && ls_keras_file_is(fixture("small.h5")));
    ck_assert(!ls_keras_file_is(fixture("small.json")));
    ck_assert(!ls_keras_file_is(fixture("small.expected.safetensors")));
}

// Descriptors 3 and 4 are free or taken in the parent: the child has its own.
TEST(it_does_not_matter_which_descriptors_are_free)
{
    for (int closed = 0; closed < 2; closed++) {
        struct ls_safetensors *file = NULL;
        const char *path = fixture("small.weights.h5");
        const int keep = open("/dev/null", O_RDONLY);
        if (closed)
            close(keep);
        OK(ls_keras_file_read(&keras_program, path, &file));
        ck_assert_uint_eq(ls_safetensors_count(file), 6);
        ls_safetensors_close(file);
        if (!closed)
            close(keep);
    }
}

TEST_FIXTURE(folder_make, folder_remove);
TEST_SECONDS(120);
