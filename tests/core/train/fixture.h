// SPDX-License-Identifier: Apache-2.0
// A run on one device and synthetic data, opened before each test of a model.
#ifndef LOCKSTEP_TESTS_CORE_TRAIN_FIXTURE_H
#define LOCKSTEP_TESTS_CORE_TRAIN_FIXTURE_H

#include "tests/core/train/support.h"
#include "tests/support/suite.h"

static struct ls_run *run;
static struct ls_data *train, *test;

static inline void set_up(void)
{
    forget_errors();
    run = run_of(NULL, 1);
    train = data_of(DATA, "train");
    test = data_of(DATA, "test");
}

static inline void tear_down(void)
{
    ls_data_close(train);
    ls_data_close(test);
    ls_run_close(run);
}

#endif
