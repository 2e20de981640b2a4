// SPDX-License-Identifier: Apache-2.0
// A C program reads options in messages as fields of lockstep.h. The same faults through the
// command: tests/programs/test_errors.py, through Python: tests/python/test_model.py.
#include "lockstep.h"
#include "tests/support/suite.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define OK(call) ck_assert_int_eq((call), LS_OK)
#define REFUSED(call, begin)                                                                       \
    do {                                                                                           \
        ck_assert_int_ne((call), LS_OK);                                                           \
        ck_assert_msg(strstr(ls_last_error(), "lockstep: error: " begin) == ls_last_error(), "%s", \
                      ls_last_error());                                                            \
        ck_assert_ptr_null(strstr(ls_last_error(), "--"));                                         \
    } while (0)

static const struct ls_run_options on_reference = {.device = "reference", .threads = 1};

TEST(a_wrong_option_is_the_field_of_its_struct)
{
    struct ls_run *run = NULL;
    struct ls_model *model = NULL;
    struct ls_data *data = NULL;
    REFUSED(ls_run_open(&(struct ls_run_options){.strategy = "rign"}, &run), "strategy: ");
    REFUSED(ls_run_open(&(struct ls_run_options){.precision = "float7"}, &run), "precision: ");
    REFUSED(ls_data_open("fashion", "train", &data), "data: ");
    OK(ls_run_open(&on_reference, &run));
    OK(ls_data_open("synthetic:examples=64", "train", &data));
    OK(ls_model_open(run, "mlp", data, &model));
    REFUSED(ls_compile(model, &(struct ls_compile_options){.optimizer = "adamm"}), "optimizer: ");
    REFUSED(ls_compile(model, &(struct ls_compile_options){.metrics = "acuracy"}), "metrics: ");
    REFUSED(
        ls_compile(model, &(struct ls_compile_options){.learning_rate_schedule = "exponential"}),
        "learning_rate_schedule: ");
    OK(ls_compile(model, NULL));
    REFUSED(ls_fit(model, data, &(struct ls_fit_options){.batch = 20000000}), "batch: ");
    ls_model_close(model);
    ls_data_close(data);
    ls_run_close(run);
}

// The second rank of two makes no call.
TEST(a_collective_that_hangs_names_the_deadline)
{
    struct ls_comm *comms[2];
    float value = 1;
    OK(ls_comm_open(&(struct ls_comm_options){.size = 2, .deadline_seconds = 0.2}, comms));
    ck_assert_int_eq(ls_comm_all_reduce(comms[0], &value, 1, "float32", "sum"), LS_PEER_LOST);
    ck_assert_msg(strstr(ls_last_error(), "; look there, or raise deadline_seconds"), "%s",
                  ls_last_error());
    ls_comm_close(comms[0]);
    ls_comm_close(comms[1]);
}

static void end_stuck(uint32_t rank)
{
    (void)rank;
    _exit(strstr(ls_last_error(), "if it is only slow, raise deadline_seconds") ? 5 : 6);
}

static void fit_and_hang(void)
{
    const struct ls_run_options options = {.device = "reference",
                                           .threads = 1,
                                           .replicas = 2,
                                           .strategy =
                                               "hostile:fault=gradient_ready-hang,collective=ring",
                                           .plugin_path = getenv("LOCKSTEP_HOSTILE_FOLDER"),
                                           .deadline_seconds = 1,
                                           .stuck = end_stuck};
    struct ls_run *run = NULL;
    struct ls_model *model = NULL;
    struct ls_data *data = NULL;
    OK(ls_run_open(&options, &run));
    OK(ls_data_open("synthetic:examples=128", "train", &data));
    OK(ls_model_open(run, "mlp", data, &model));
    OK(ls_compile(model, NULL));
    const enum ls_status status = ls_fit(model, data, NULL);
    _exit(100 + (int)status); // it has ended
}

START_TEST(a_training_that_hangs_names_the_deadline)
{
    fit_and_hang();
}
END_TEST

int main(void)
{
    tcase_add_exit_test(test_registered(), a_training_that_hangs_names_the_deadline, 5);
    return test_suite_run("option words in C");
}
