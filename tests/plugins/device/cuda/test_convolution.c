// SPDX-License-Identifier: Apache-2.0
// Which of the engines that cuDNN offers device `cuda` takes for a convolution and for attention, on the fake (dnn_graph.c). NOT A
// GPU. What they compute is the device suite's business.
#include "tests/plugins/device/cuda/on_fake.h"

#include <check.h>
#include <fcntl.h>
#include <math.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char test_host_warning[300]; // the last

static void keep_warning(const struct ls_host *of, uint32_t level, const char *message)
{
    (void)of;
    if (level == LS_LOG_WARN)
        snprintf(test_host_warning, sizeof(test_host_warning), "%s", message);
}

static struct ls_device *opened_with(const char *options)
{
    ck_assert(test_host_set(&host, options));
    return opened(0);
}

// x: (2, 8, 8, 8), w: (3, 3, 8, 5), y: (2, 6, 6, 5); with a bias and ReLU where `fused`. Fewer channels own kernels would take.
static struct test_request request_of(uint32_t dtype, int fused)
{
    const struct ls_tensor_desc x = {.dtype = dtype, .ndims = 4, .dims = {2, 8, 8, 8}};
    const struct ls_tensor_desc w = {.dtype = dtype, .ndims = 4, .dims = {3, 3, 8, 5}};
    const struct ls_tensor_desc bias = {.dtype = dtype, .ndims = 1, .dims = {5}};
    const struct ls_tensor_desc y = {.dtype = dtype, .ndims = 4, .dims = {2, 6, 6, 5}};
    struct test_request out = {
        .op = LS_OP_CONV2D,
        .attributes = {.strides = {1, 1},
                       .dilation = {1, 1},
                       .groups = 1,
                       .epilogue = fused ? LS_OP_ACTIVATION : LS_OP_NONE,
                       .epilogue_activation = fused ? LS_RELU : LS_LINEAR},
        .input_count = fused ? 3 : 2,
        .output_count = 1,
        .arguments = {x, w, fused ? bias : y, y},
    };
    return out;
}

static void assert_request_by(struct ls_device *device, const struct test_request *request,
                              const char *by)
{
    struct ls_kernel_answer answer = {.struct_size = sizeof(answer)};
    ck_assert_msg(test_prepare(ops, device, request, &answer) == LS_OK, "%s", host.message);
    ck_assert_msg(strncmp(answer.implementation, by, strlen(by)) == 0, "by %s, not by %s",
                  answer.implementation, by);
    ck_assert_uint_eq(answer.slow, 0);
    ops->kernels->release(device, answer.kernel);
}

static void assert_by(struct ls_device *device, uint32_t dtype, int fused, const char *by)
{
    const struct test_request request = request_of(dtype, fused);
    assert_request_by(device, &request, by);
}

// w: (1, 1, 8, 5), y: (2, 8, 8, 5), and every second row and column of it where `stride` is 2.
static struct test_request of_one_point(uint32_t dtype, int stride)
{
    struct test_request out = request_of(dtype, 0);
    struct ls_tensor_desc *w = &out.arguments[1], *y = &out.arguments[3];
    w->dims[0] = w->dims[1] = 1;
    y->dims[1] = y->dims[2] = 8 / stride;
    out.arguments[2] = *y;
    out.attributes.strides[0] = out.attributes.strides[1] = stride;
    return out;
}

// Where cuDNN has tensor cores it computes NHWC as it is.
TEST(a_float32_convolution_of_one_point_is_a_product)
{
    struct ls_device *device = opened_with(""), *rounding = opened_with("tf32=on");
    const struct test_request floats = of_one_point(LS_F32, 1), halves = of_one_point(LS_BF16, 1),
                              apart = of_one_point(LS_F32, 2);
    struct test_request biased = floats;
    biased.input_count = 3;
    biased.arguments[2] = (struct ls_tensor_desc){.dtype = LS_F32, .ndims = 1, .dims = {5}};
    assert_request_by(device, &floats, "cuBLASLt");
    assert_request_by(device, &biased, "cuBLASLt + bias");
    assert_request_by(device, &halves, "cuDNN engine 7");
    assert_request_by(device, &apart, "cuDNN engine 7");
    assert_request_by(rounding, &floats, "cuDNN engine 8");
    ls_device_close(rounding);
    ls_device_close(device);
}
END_TEST

// Engines 1 to 6 must not be taken, 7 makes 0 of a NaN in its ReLU, 8 is for tensor cores.
TEST(the_first_engine_that_keeps_bits_precision_and_nan_is_taken)
{
    struct ls_device *device = opened_with("");
    assert_by(device, LS_F32, 0, "cuDNN engine 7");
    assert_by(device, LS_F32, 1, "cuDNN engine 9 + bias + relu");
    assert_by(device, LS_BF16, 0, "cuDNN engine 7");
    assert_by(device, LS_F16, 1, "cuDNN engine 8 + bias + relu");
    ls_device_close(device);
}

TEST(with_tf32_engines_that_use_it_are_first)
{
    struct ls_device *device = opened_with("tf32=on");
    assert_by(device, LS_F32, 0, "cuDNN engine 8");
    assert_by(device, LS_F32, 1, "cuDNN engine 8 + bias + relu");
    assert_by(device, LS_BF16, 0, "cuDNN engine 7");
    ls_device_close(device);
}

TEST(without_a_fused_engine_bias_and_relu_are_a_pass)
{
    setenv("CUDA_FAKE_NO_FUSED", "1", 1);
    struct ls_device *device = opened_with("");
    const struct test_request request = request_of(LS_F32, 1);
    struct ls_kernel_answer answer = {.struct_size = sizeof(answer)};
    assert_by(device, LS_F32, 1, "cuDNN engine 7");
    ck_assert_int_eq(test_prepare(ops, device, &request, &answer), LS_OK);
    ck_assert_ptr_null(strstr(answer.implementation, "relu"));
    ops->kernels->release(device, answer.kernel);
    ls_device_close(device);
}

TEST(a_cudnn_without_its_graph_api_is_refused)
{
    const struct ls_device_config config = {.struct_size = sizeof(config)};
    struct ls_device *device = NULL;
    setenv("CUDA_FAKE_CUDNN_VERSION", "8907", 1);
    ck_assert(test_host_set(&host, ""));
    ck_assert_int_eq(ls_device_open_state(ops, &host.host, &config, &device), LS_UNAVAILABLE);
    ck_assert_str_eq(host.message, "cuDNN 8907 is too old: install 90000 or newer");
}

TEST(a_plan_is_made_once_and_goes_with_the_device)
{
    struct double_counts first, second;
    struct ls_device *device = opened_with("");
    assert_by(device, LS_F32, 1, "cuDNN engine 9");
    double_count(&first);
    ck_assert_uint_gt(first.descriptors, 0);
    assert_by(device, LS_F32, 1, "cuDNN engine 9");
    double_count(&second);
    ck_assert_uint_eq(first.descriptors, second.descriptors);
    ls_device_close(device);
    double_count(&second);
    ck_assert_uint_eq(second.descriptors, 0);
}

// Once a replica has timed, others take what it took, though it would end otherwise for them.
TEST(the_fastest_is_taken_by_all_replicas_where_plans_are_timed)
{
    setenv("CUDA_FAKE_SLOW_ENGINE", "7", 1);
    struct ls_device *device = opened_with("timing=on"), *other = opened_with("timing=on");
    struct ls_device *untimed = opened_with("timing=off");
    assert_by(device, LS_F32, 0, "cuDNN engine 9");
    assert_by(device, LS_F32, 1, "cuDNN engine 9 + bias + relu");
    setenv("CUDA_FAKE_SLOW_ENGINE", "9", 1);
    assert_by(other, LS_F32, 0, "cuDNN engine 9");
    assert_by(other, LS_F16, 0, "cuDNN engine ");
    assert_by(untimed, LS_F32, 0, "cuDNN engine 7");
    ls_device_close(device);
    ls_device_close(other);
    ls_device_close(untimed);
}

// ---- Choices that others take over ----

// What another process has chosen, which it gives as text.
static char *choices_of_another(const char *slow, const char *multiprocessors)
{
    int ends[2];
    char *text = calloc(1, 4096);
    ck_assert_int_eq(pipe(ends), 0);
    const pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        uint64_t needed = 0;
        setenv("CUDA_FAKE_SLOW_ENGINE", slow, 1);
        setenv("CUDA_FAKE_MULTIPROCESSORS", multiprocessors, 1);
        struct ls_device *device = opened_with("timing=on");
        assert_by(device, LS_F32, 0, "cuDNN engine ");
        assert_by(device, LS_F32, 1, "cuDNN engine ");
        const bool given = !ops->choices->give(&host.host, text, 4096, &needed) && needed <= 4096 &&
                           write(ends[1], text, needed) == (ssize_t)needed;
        ls_device_close(device);
        _exit(!given);
    }
    close(ends[1]);
    size_t used = 0;
    for (ssize_t count = 1; count > 0; used += (size_t)count)
        count = read(ends[0], text + used, 4096 - used);
    close(ends[0]);
    int code = 1;
    ck_assert_int_eq(waitpid(child, &code, 0), child);
    ck_assert_int_eq(code, 0);
    ck_assert_uint_gt(used, 1);
    return text;
}

static int32_t take(const char *text)
{
    return ops->choices->take(&host.host, text, strlen(text) + 1);
}

TEST(choices_of_another_process_are_taken_whatever_is_fast_here)
{
    char *text = choices_of_another("7", "132");
    setenv("CUDA_FAKE_SLOW_ENGINE", "9", 1);
    ck_assert(test_host_set(&host, "timing=on"));
    ck_assert_str_eq(ops->choices->depend(&host.host), "timing=on");
    struct ls_device *before = opened_with("timing=on");
    assert_by(before, LS_F32, 0, "cuDNN engine 7");
    ck_assert_int_eq(take(text), LS_OK);
    struct ls_device *device = opened_with("timing=on");
    assert_by(device, LS_F32, 0, "cuDNN engine 9");
    assert_by(device, LS_F32, 1, "cuDNN engine 9 + bias + relu");
    assert_by(device, LS_F16, 0, "cuDNN engine "); // of which the other knows nothing
    ls_device_close(device);
    ls_device_close(before);
    ck_assert(test_host_set(&host, ""));
    ck_assert_ptr_null(ops->choices->depend(&host.host));
    free(text);
}

TEST(choices_for_another_gpu_are_not_taken)
{
    char *text = choices_of_another("7", "114");
    setenv("CUDA_FAKE_SLOW_ENGINE", "9", 1);
    ck_assert(test_host_set(&host, "timing=on"));
    ck_assert_int_eq(take(text), LS_OK);
    struct ls_device *device = opened_with("timing=on");
    assert_by(device, LS_F32, 0, "cuDNN engine 7");
    ck_assert_str_eq(test_host_warning, "GPU 0: worker 0 has another GPU or another cuDNN, so this "
                                        "worker chooses plans of cuDNN itself where it must");
    ls_device_close(device);
    free(text);
}

// Engine 9 is the last number of its line.
TEST(a_choice_that_cannot_be_made_here_is_an_error)
{
    char *text = choices_of_another("7", "132");
    char *last = strrchr(text, ' ');
    ck_assert_str_eq(last, " 9\n");
    last[1] = '8';
    ck_assert(test_host_set(&host, "timing=on"));
    ck_assert_int_eq(take(text), LS_OK);
    struct ls_device *device = opened_with("timing=on");
    struct ls_kernel_answer answer = {.struct_size = sizeof(answer)};
    int failed = 0;
    for (int fused = 0; fused < 2; fused++) {
        const struct test_request request = request_of(LS_F32, fused);
        const int32_t status = test_prepare(ops, device, &request, &answer);
        failed += status == LS_FAILED;
        if (!status)
            ops->kernels->release(device, answer.kernel);
    }
    ck_assert_int_eq(failed, 1);
    ck_assert_ptr_nonnull(strstr(host.message, "GPU 0: engine 8 of cuDNN, number "));
    ck_assert_ptr_nonnull(
        strstr(host.message,
               "which worker 0 takes for a convolution, cannot be made here; use timing=off"));
    ls_device_close(device);
    free(text);
}

// ---- A file of choices ----

static char plans_path[64], plans_options[96];

static void write_plans(const char *text, size_t bytes)
{
    FILE *file = fopen(plans_path, "w");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(text, 1, bytes, file), bytes);
    ck_assert_int_eq(fclose(file), 0);
}

static char *read_plans(void)
{
    char *text = calloc(1, 1 << 16);
    FILE *file = fopen(plans_path, "r");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_lt(fread(text, 1, (1 << 16) - 1, file), (1 << 16) - 1);
    fclose(file);
    return text;
}

static void set_plans(const char *more)
{
    snprintf(plans_path, sizeof(plans_path), "/tmp/lockstep-plans-%d", (int)getpid());
    snprintf(plans_options, sizeof(plans_options), "plans=%s%s", plans_path, more);
    unlink(plans_path);
}

// A process of its own: what one has chosen it knows without a file. Its exit code: 0, or 1 where an assertion fails.
static void in_another(const char *options, uint32_t dtype, const char *slow, const char *by)
{
    int code = 1;
    const pid_t child = fork();
    if (child == 0) {
        setenv("CUDA_FAKE_SLOW_ENGINE", slow, 1);
        struct ls_device *device = opened_with(options);
        assert_by(device, dtype, 0, by);
        ls_device_close(device);
        _exit(0);
    }
    ck_assert_int_eq(waitpid(child, &code, 0), child);
    ck_assert_msg(code == 0, "%s, with engine %s slow, is not by %s", options, slow, by);
}

static int count_lines(const char *text)
{
    int count = 0;
    for (; *text; text++)
        count += *text == '\n';
    return count;
}

TEST(plans_that_were_timed_are_kept_in_a_file)
{
    set_plans(",timing=on");
    in_another(plans_options, LS_F32, "7", "cuDNN engine 9");
    char *first = read_plans();
    ck_assert_int_eq(count_lines(first), 3);
    ck_assert_ptr_nonnull(strstr(first, "lockstep plans of device cuda, version 1\n"));
    in_another(plans_options, LS_F32, "9",
               "cuDNN engine 9"); // from the file, which does not change
    char *second = read_plans();
    ck_assert_str_eq(first, second);
    in_another(plans_options, LS_BF16, "9", "cuDNN engine "); // is added
    char *third = read_plans();
    ck_assert_int_eq(count_lines(third), 4);
    set_plans("");
    write_plans(third, strlen(third));
    in_another(plans_options, LS_F32, "9", "cuDNN engine 9"); // also without timing
    in_another(plans_options, LS_F16, "7", "cuDNN engine 7"); // and what is not there is the first
    char *fourth = read_plans();
    ck_assert_str_eq(third, fourth);
    setenv("CUDA_FAKE_MULTIPROCESSORS", "114", 1);
    in_another(plans_options, LS_F32, "9", "cuDNN engine 7"); // those of another GPU are not taken
    unsetenv("CUDA_FAKE_MULTIPROCESSORS");
    setenv("CUDA_FAKE_CUDNN_VERSION", "91800", 1);
    in_another(plans_options, LS_F32, "9", "cuDNN engine 7"); // nor those of another cuDNN
    unlink(plans_path);
    free(first);
    free(second);
    free(third);
    free(fourth);
}

TEST(processes_that_write_at_once_lose_nothing)
{
    enum { PROCESSES = 4, TIMES = 2 };
    static const uint32_t types[PROCESSES] = {LS_F32, LS_BF16, LS_F16, LS_F32};
    pid_t children[PROCESSES];
    set_plans(",timing=on");
    for (int i = 0; i < PROCESSES; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            struct ls_device *device = opened_with(plans_options);
            for (int fused = 0; fused < TIMES; fused++)
                assert_by(device, types[i], fused, "cuDNN engine ");
            ls_device_close(device);
            _exit(0);
        }
    }
    for (int i = 0; i < PROCESSES; i++) {
        int code = 1;
        ck_assert_int_eq(waitpid(children[i], &code, 0), children[i]);
        ck_assert_int_eq(code, 0);
    }
    char *text = read_plans(), beside[96];
    ck_assert_int_eq(count_lines(text), 2 + 3 * TIMES);
    snprintf(beside, sizeof(beside), "%s.new", plans_path);
    ck_assert_int_ne(access(beside, F_OK), 0);
    unlink(plans_path);
    free(text);
}

TEST(a_file_that_another_process_writes_is_waited_for_but_not_for_ever)
{
    const struct test_request request = request_of(LS_F32, 0);
    struct ls_kernel_answer answer = {.struct_size = sizeof(answer)};
    char beside[96];
    set_plans(",timing=on");
    snprintf(beside, sizeof(beside), "%s.new", plans_path);
    const int fd = open(beside, O_WRONLY | O_CREAT, 0600);
    ck_assert_int_eq(flock(fd, LOCK_EX), 0);
    struct ls_device *device = opened_with(plans_options);
    ck_assert_int_eq(test_prepare(ops, device, &request, &answer), LS_OK);
    ops->kernels->release(device, answer.kernel);
    ck_assert_ptr_nonnull(strstr(test_host_warning, "another process holds the lock of FILE.new"));
    ck_assert_int_ne(access(plans_path, F_OK), 0);
    close(fd);
    assert_by(device, LS_BF16, 0, "cuDNN engine ");
    char *text = read_plans();
    ck_assert_int_eq(count_lines(text), 4); // what was timed meanwhile, too
    ls_device_close(device);
    unlink(plans_path);
    free(text);
}

LOOP_TEST(a_new_file_that_cannot_be_written_is_refused_by_what_it_is, 0, 3)
{
    const struct test_request request = request_of(LS_F32, 0);
    struct ls_kernel_answer answer = {.struct_size = sizeof(answer)};
    char beside[96];
    set_plans(",timing=on");
    snprintf(beside, sizeof(beside), "%s.new", plans_path);
    ck_assert_int_eq(_i == 2 ? mkdir(beside, 0700) : mkfifo(beside, 0600), 0);
    const int reader = _i == 1 ? open(beside, O_RDONLY | O_NONBLOCK) : -1;
    struct ls_device *device = opened_with(plans_options);
    ck_assert_int_eq(test_prepare(ops, device, &request, &answer), LS_BAD_INPUT);
    const char *says = _i == 2 ? "FILE.new beside it cannot be written: Is a directory"
                               : "FILE.new beside it is no regular file: delete it";
    ck_assert_msg(strstr(host.message, plans_path) && strstr(host.message, says), "%s",
                  host.message);
    ls_device_close(device);
    close(reader);
    remove(beside);
}

TEST(a_folder_that_is_not_there_is_refused_before_anything_is_timed)
{
    const struct test_request request = request_of(LS_F32, 0);
    struct ls_kernel_answer answer = {.struct_size = sizeof(answer)};
    struct ls_device *device = opened_with("timing=on,plans=/tmp/no-such-folder/plans");
    ck_assert_int_eq(test_prepare(ops, device, &request, &answer), LS_BAD_INPUT);
    ck_assert_str_eq(host.message, "plans=/tmp/no-such-folder/plans: its folder cannot be written: "
                                   "No such file or directory");
    ls_device_close(device);
    device = opened_with("plans=/tmp/no-such-folder/plans"); // nothing is to be written
    ck_assert_int_eq(test_prepare(ops, device, &request, &answer), LS_OK);
    ops->kernels->release(device, answer.kernel);
    ls_device_close(device);
}

LOOP_TEST(a_link_stays_one, 0, 2)
{
    char folder[80], file[96], found[96];
    set_plans(",timing=on");
    snprintf(folder, sizeof(folder), "%s.folder", plans_path);
    snprintf(file, sizeof(file), "%s/plans", folder);
    ck_assert_int_eq(mkdir(folder, 0700), 0);
    ck_assert_int_eq(symlink(file, plans_path), 0);
    FILE *there = _i ? NULL : fopen(file, "w"); // or its target is not there yet
    ck_assert(_i || there);
    if (there)
        fclose(there);
    in_another(plans_options, LS_F32, "7", "cuDNN engine 9");
    ck_assert_int_eq(readlink(plans_path, found, sizeof(found)), strlen(file));
    char *text = read_plans();
    ck_assert_int_eq(count_lines(text), 3);
    ck_assert_int_eq(unlink(plans_path) || unlink(file) || rmdir(folder),
                     0); // nothing else is there
    free(text);
}

// Runs in one process, as several trainings by Python are.
TEST(choices_of_a_run_are_for_runs_with_the_same_options)
{
    set_plans("");
    char timed[112];
    snprintf(timed, sizeof(timed), "%s,timing=on", plans_options);
    setenv("CUDA_FAKE_SLOW_ENGINE", "7", 1);
    const struct {
        const char *options, *by;
        int lines; // of the file afterwards; 0: there is none
    } runs[] = {
        {"timing=on", "cuDNN engine 9", 0}, {plans_options, "cuDNN engine 7", 0},
        {timed, "cuDNN engine 9", 3},       {plans_options, "cuDNN engine 9", 3},
        {"", "cuDNN engine 7", 3},
    };
    for (int twice = 0; twice < 2; twice++) {
        for (size_t i = 0; i < sizeof(runs) / sizeof(*runs); i++) {
            struct ls_device *device = opened_with(runs[i].options);
            assert_by(device, LS_F32, 0, runs[i].by);
            ls_device_close(device);
            ck_assert_int_eq(access(plans_path, F_OK), runs[i].lines ? 0 : -1);
            char *text = runs[i].lines ? read_plans() : NULL;
            ck_assert_int_eq(text ? count_lines(text) : 0, runs[i].lines);
            free(text);
        }
        unlink(plans_path); // what it had is taken no more
    }
}

TEST(an_empty_file_is_a_new_one)
{
    set_plans(",timing=on");
    write_plans("", 0);
    in_another(plans_options, LS_F32, "7", "cuDNN engine 9");
    char *text = read_plans();
    ck_assert_int_eq(count_lines(text), 3);
    unlink(plans_path);
    free(text);
}

TEST(a_file_of_many_lines_is_read_and_added_to)
{
    enum { LINES = 100000 };
    char *many = calloc(LINES, 100), *end = many;
    set_plans(",timing=on");
    in_another(plans_options, LS_F32, "7", "cuDNN engine 9");
    char *text = read_plans();
    end += sprintf(end, "%s", text);
    const char *rest = strchr(strstr(text, "place engine\n") + strlen("place engine\n"), ' ');
    for (int i = 0; i < LINES; i++)
        end += sprintf(end, "%d%s", 1000 + i, rest); // of other GPUs
    write_plans(many, (size_t)(end - many));
    setenv("CUDA_FAKE_SLOW_ENGINE", "9", 1);
    struct ls_device *device = opened_with(plans_options);
    assert_by(device, LS_F32, 0, "cuDNN engine 9");
    assert_by(device, LS_BF16, 0, "cuDNN engine ");
    assert_by(device, LS_F16, 0, "cuDNN engine ");
    ls_device_close(device);
    char *after = calloc(LINES, 100);
    FILE *file = fopen(plans_path, "r");
    ck_assert_uint_gt(fread(after, 1, (size_t)LINES * 100, file), 0);
    ck_assert_int_eq(strncmp(after, many, (size_t)(end - many)), 0);
    ck_assert_int_eq(count_lines(after), 2 + 1 + LINES + 2);
    fclose(file);
    unlink(plans_path);
    free(many);
    free(text);
    free(after);
}

static void assert_refused(const char *text, size_t bytes, const char *says)
{
    const struct ls_device_config config = {.struct_size = sizeof(config)};
    struct ls_device *device = NULL;
    write_plans(text, bytes);
    ck_assert(test_host_set(&host, plans_options));
    ck_assert_msg(ls_device_open_state(ops, &host.host, &config, &device) == LS_BAD_INPUT,
                  "taken: %.*s", (int)bytes, text);
    ck_assert_msg(strstr(host.message, plans_path) && strstr(host.message, says), "%s",
                  host.message);
}

// Every file that is cut off, that has a byte which no number has, or a line that ends elsewhere.
TEST(a_file_that_is_damaged_is_refused_by_name)
{
    set_plans(",timing=on");
    in_another(plans_options, LS_F32, "7", "cuDNN engine 9");
    char *text = read_plans();
    const size_t bytes = strlen(text);
    const char *line = strstr(text, "place engine\n") + strlen("place engine\n");
    assert_refused("{\"plans\": []}\n", 14, "line 1 is not what this version writes");
    assert_refused("lockstep plans of device cuda, version 2\n", 41, "line 1 ");
    assert_refused("lockstep plans of device cuda, version 1\nengine place\n", 54, "line 2 ");
    for (size_t length = 1; length < bytes; length++) {
        const bool whole = text + length == line;
        if (!whole)
            assert_refused(text, length, " is not what this version writes");
    }
    for (size_t i = 0; i < bytes; i++) {
        const char before = text[i];
        text[i] = '#';
        assert_refused(text, bytes, text + i < line ? "line " : "line 3 ");
        text[i] = '\0';
        assert_refused(text, bytes, "it is no text");
        text[i] = before == ' ' ? '\n' : ' ';
        assert_refused(text, bytes, text + i < line ? "line " : "line 3 ");
        text[i] = before;
    }
    const size_t head = (size_t)(line - text);
    for (const char *bad = "9223372036854775808 ;-1 ; 1 ;+1 ;1  ;1\t;0x1 ;1e1 "; bad;
         bad = strchr(bad, ';') ? strchr(bad, ';') + 1 : NULL) {
        const size_t length = strcspn(bad, ";");
        char *made = calloc(1, bytes + 64);
        memcpy(made, text, head);
        memcpy(made + head, bad, length);
        strcpy(made + head + length, strchr(line, ' ') + 1);
        assert_refused(made, strlen(made), "line 3 ");
        free(made);
    }
    write_plans(text, bytes);
    in_another(plans_options, LS_F32, "9", "cuDNN engine 9");
    unlink(plans_path);
    ck_assert_int_eq(mkdir(plans_path, 0700), 0);
    const struct ls_device_config config = {.struct_size = sizeof(config)};
    struct ls_device *device = NULL;
    ck_assert_int_eq(ls_device_open_state(ops, &host.host, &config, &device), LS_BAD_INPUT);
    ck_assert_ptr_nonnull(strstr(host.message, "it is a directory"));
    rmdir(plans_path);
    free(text);
}

LOOP_TEST(what_the_file_has_not_is_said_once_where_nothing_adds_it, 0, 3)
{
    static const char *const says[] = {
        "there is no such file, so plans are the first by cuDNN's heuristics; timing=on writes one",
        "it has no plans for this GPU and cuDNN, so they are the first by cuDNN's heuristics; "
        "timing=on adds them",
        "it has no plans for some of these shapes, which take the first by cuDNN's heuristics; "
        "timing=on adds them"};
    set_plans(",timing=on");
    if (_i > 0)
        in_another(plans_options, LS_F32, "7", "cuDNN engine 9");
    plans_options[strlen(plans_options) - strlen(",timing=on")] = '\0';
    if (_i == 1)
        setenv("CUDA_FAKE_MULTIPROCESSORS", "114", 1);
    struct ls_device *device = opened_with(plans_options);
    assert_by(device, LS_F32, 0, _i == 2 ? "cuDNN engine 9" : "cuDNN engine 7");
    if (_i == 2)
        ck_assert_str_eq(test_host_warning, "");
    assert_by(device, LS_F32, 1, "cuDNN engine 9 + bias + relu");
    ck_assert_msg(strstr(test_host_warning, says[_i]) && strstr(test_host_warning, plans_path),
                  "%s", test_host_warning);
    test_host_warning[0] = '\0';
    assert_by(device, LS_F16, 0, "cuDNN engine ");
    ck_assert_str_eq(test_host_warning, "");
    ck_assert_int_eq(access(plans_path, F_OK), _i > 0 ? 0 : -1);
    ls_device_close(device);
    unlink(plans_path);
}

// ---- Attention ----

// y of (2, 5, 3, depth) and `saved`; backward dq, dk and dv.
static void prepare_attention(struct ls_device *device, uint32_t op, uint32_t dtype, int64_t depth,
                              float rate, uint32_t accumulate, uint64_t saved_bytes,
                              struct ls_kernel_answer *out)
{
    const struct ls_tensor_desc x = {.dtype = dtype, .ndims = 4, .dims = {2, 5, 3, depth}};
    const struct ls_tensor_desc saved = {
        .dtype = LS_U8,
        .ndims = 1,
        .dims = {(int64_t)saved_bytes},
        .layout = {.kind = op == LS_OP_ATTENTION ? LS_LAYOUT_ANY : LS_LAYOUT_PLAIN,
                   .bytes = saved_bytes}};
    struct test_request request = {.op = op,
                                   .attributes = {.rate = rate, .causal = 1},
                                   .input_count = 3,
                                   .output_count = 2,
                                   .arguments = {x, x, x, x, saved},
                                   .accumulate = accumulate};
    if (op == LS_OP_ATTENTION_BACKWARD) {
        request.input_count = 5;
        request.output_count = 3;
        for (int i = 5; i < 8; i++)
            request.arguments[i] = x;
    }
    *out = (struct ls_kernel_answer){.struct_size = sizeof(*out)};
    ck_assert_msg(test_prepare(ops, device, &request, out) == LS_OK, "%s%s", test_refusal,
                  host.message);
}

// Engines 2 and 6 have no plan and a workspace that is too large, 1 gives other bits, 7 makes 0 of a NaN. What is saved: 30
// statistics, to a multiple of 64 bytes, and y.
TEST(attention_is_cudnns_where_its_bits_and_precision_are_kept)
{
    static const char composed[] = "cuBLASLt, own softmax", plan[] = "cuDNN engine 8";
    static const struct {
        const char *options;
        uint32_t dtype;
        int64_t depth;
        float rate;
        uint32_t accumulate;
        uint64_t saved;
        const char *forward, *backward;
    } rows[] = {
        {"", LS_BF16, 8, 0, 0, 128 + 480, plan, plan},
        {"", LS_F16, 128, 0, 0, 128 + 7680, plan, plan},
        {"", LS_BF16, 8, 0, 2, 128 + 480, plan, composed}, // dk is added to
        {"", LS_F16, 136, 0, 0, 0, plan, composed}, // no gradients of as many elements
        {"", LS_BF16, 12, 0, 0, 0, composed, composed},
        {"", LS_BF16, 8, 0.5f, 0, 0, composed, composed},
        {"", LS_F32, 8, 0, 0, 0, composed, composed},
        {"tf32=on", LS_F32, 8, 0, 0, 0, plan, composed},
        {"fused_attention=off", LS_BF16, 8, 0, 0, 0, composed, composed},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct ls_device *device = opened_with(rows[i].options);
        struct ls_kernel_answer forward, backward;
        prepare_attention(device, LS_OP_ATTENTION, rows[i].dtype, rows[i].depth, rows[i].rate, 0, 0,
                          &forward);
        ck_assert_msg(strcmp(forward.implementation, rows[i].forward) == 0, "row %zu: %s", i,
                      forward.implementation);
        ck_assert_uint_eq(forward.saved_bytes, rows[i].saved);
        prepare_attention(device, LS_OP_ATTENTION_BACKWARD, rows[i].dtype, rows[i].depth,
                          rows[i].rate, rows[i].accumulate, forward.saved_bytes, &backward);
        ck_assert_msg(strcmp(backward.implementation, rows[i].backward) == 0, "row %zu: %s", i,
                      backward.implementation);
        ck_assert_int_eq(backward.used_inputs >> 4 & 1, rows[i].backward == plan);
        ops->kernels->release(device, forward.kernel);
        ops->kernels->release(device, backward.kernel);
        ls_device_close(device);
    }
}

// ---- NaN ----

static float last_of_fused(struct ls_device *device, float first_of_x)
{
    float x[2 * 8 * 8 * 8] = {0}, y[2 * 6 * 6 * 5];
    const struct test_request request = request_of(LS_F32, 1);
    struct ls_kernel_answer answer = {.struct_size = sizeof(answer)};
    void *arguments[4];
    for (size_t i = 0; i < sizeof(x) / sizeof(x[0]); i++)
        x[i] = first_of_x;
    ck_assert_msg(test_prepare(ops, device, &request, &answer) == LS_OK, "%s", host.message);
    for (uint32_t i = 0; i < 4; i++)
        arguments[i] = (void *)ops->memory->allocate(
            device, ls_tensor_elements(&request.arguments[i]) * sizeof(float));
    void *scratch = (void *)ops->memory->allocate(device, answer.scratch_bytes + 1);
    ck_assert_int_eq(
        ops->memory->copy(device, ls_host_memory(arguments[0]), ls_host_memory(x), sizeof(x), NULL),
        LS_OK);
    ck_assert_int_eq(test_launch(ops, device, answer.kernel, arguments, 4, scratch), LS_OK);
    ck_assert_int_eq(
        ops->memory->copy(device, ls_host_memory(y), ls_host_memory(arguments[3]), sizeof(y), NULL),
        LS_OK);
    ops->kernels->release(device, answer.kernel);
    for (int i = 0; i < 4; i++)
        ops->memory->release(device, arguments[i]);
    ops->memory->release(device, scratch);
    return y[sizeof(y) / sizeof(y[0]) - 1];
}

TEST(a_nan_comes_out_of_a_convolution_with_relu)
{
    static const char *const options[] = {"", "timing=on", "tf32=on"};
    for (int i = 0; i < 3; i++) {
        struct ls_device *device = opened_with(options[i]);
        ck_assert_float_eq(last_of_fused(device, 1), 0);
        ck_assert_msg(isnan(last_of_fused(device, NAN)), "%s", options[i]);
        ls_device_close(device);
    }
}

static void set_up(void)
{
    test_host_init(&host, plugin);
    host.host.log = keep_warning;
}

TEST_FIXTURE(set_up, NULL);

int main(void)
{
    return run_on_fake("convolutions of device cuda on the fake");
}
