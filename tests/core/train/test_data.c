// SPDX-License-Identifier: Apache-2.0
// One dataset for several threads: each that waits for its files gets them.
#include "core/train/data.h"
#include "tests/core/train/support.h"
#include "tests/support/suite.h"

#include <pthread.h>

#define THREADS 8

static pthread_barrier_t together;
static struct ls_data *data;

static void *wait_for_files(void *argument)
{
    const struct ls_dataset *dataset = NULL;
    (void)argument;
    pthread_barrier_wait(&together);
    const enum ls_status status = ls_data_wait(data, &dataset);
    return status ? NULL : (void *)(uintptr_t)dataset;
}

START_TEST(threads_that_wait_at_once_all_get_the_data)
{
    pthread_t threads[THREADS];
    OK(ls_data_open("synthetic:examples=20000", "train", &data));
    pthread_barrier_init(&together, NULL, THREADS);
    for (int i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, wait_for_files, NULL), 0);
    for (int i = 0; i < THREADS; i++) {
        void *dataset = NULL;
        pthread_join(threads[i], &dataset);
        ck_assert_ptr_nonnull(dataset);
        ck_assert_ptr_eq(dataset, data->dataset);
    }
    pthread_barrier_destroy(&together);
    ls_data_close(data);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("data");
    TCase *cases = tcase_create("data");
    tcase_add_test(cases, threads_that_wait_at_once_all_get_the_data);
    suite_add_tcase(suite, cases);
    return test_suite_run(suite);
}
