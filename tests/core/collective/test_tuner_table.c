// SPDX-License-Identifier: Apache-2.0
// Tables that are given: the fixed one, and files, also hostile ones.
#include "core/collective/tuner_table.h"
#include "tests/core/collective/support.h"

#include <unistd.h>

#define HEAD                                                                                  \
    "\"lockstep\": \"0.1.0\", \"transport\": \"local\", \"device\": \"host\", \"world\": 4, " \
    "\"operation\": \"all_reduce\""
#define ROW(bytes, name) "{\"bytes\": " #bytes ", \"collective\": \"" name "\"}"

static enum ls_status read_bytes(const char *text, size_t bytes, struct ls_tuner_table *out)
{
    char path[] = "/tmp/lockstep-table-XXXXXX";
    const int file = mkstemp(path);
    ck_assert_int_ge(file, 0);
    ck_assert_int_eq(write(file, text, bytes), (ssize_t)bytes);
    close(file);
    test_log_begin();
    const enum ls_status status = ls_tuner_table_read(path, out);
    unlink(path);
    return status;
}

static enum ls_status read_text(const char *text, struct ls_tuner_table *out)
{
    return read_bytes(text, strlen(text), out);
}

TEST(a_file_is_read_as_it_is)
{
    struct ls_tuner_table table;
    ck_assert_int_eq(read_text("{" HEAD
                               ", \"date\": \"2026-01-01T00:00:00Z\", \"cores\": 2, \"dtype\": "
                               "\"float32\", \"hardware\": \"here\", \"rows\": [" ROW(
                                   1024, "direct") ", "
                                                   "{\"bytes\": 4096, \"collective\": "
                                                   "\"hierarchical-copy:groups=2\", \"seconds\": "
                                                   "1e-6, \"spread_seconds\": 1e-7}]}",
                               &table),
                     LS_OK);
    ck_assert_uint_eq(table.world, 4);
    ck_assert_str_eq(table.transport, "local");
    ck_assert_str_eq(table.device, "host");
    ck_assert_uint_eq(table.count, 2);
    ck_assert_uint_eq(table.entries[0].bytes, 1024);
    ck_assert_str_eq(table.entries[1].collective, "hierarchical-copy:groups=2");
    test_log_begin();
    ck_assert_int_eq(ls_tuner_table_check(&table, "t.json", "local", "host", 4), LS_OK);
    ck_assert_str_eq(test_log.text, "");
    ck_assert_int_eq(ls_tuner_table_check(&table, "t.json", "local", "host", 2), LS_BAD_INPUT);
    ck_assert_ptr_nonnull(strstr(test_log.text, "t.json is for 4 ranks, and this run has 2"));
    ck_assert_ptr_nonnull(strstr(test_log.text, "lockstep bench --replicas=2 --tune=FILE"));
    ck_assert_int_eq(ls_tuner_table_check(&table, "t.json", "ucx", "host", 4), LS_BAD_INPUT);
    ck_assert_ptr_nonnull(strstr(test_log.text, "for transport local, and this run uses ucx"));
    ck_assert_int_eq(ls_tuner_table_check(&table, "t.json", "local", "cuda", 4), LS_BAD_INPUT);
    ck_assert_ptr_nonnull(strstr(test_log.text, "device host"));
    ls_tuner_table_finish(&table);
}

TEST(what_a_file_must_not_have_is_named)
{
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"", "line 1"},
        {"[1, 2]", "expected one JSON object"},
        {"{", "line 1"},
        {"{" HEAD ", " HEAD ", \"rows\": [" ROW(1, "ring") "]}", "duplicate"},
        {"{" HEAD "}", "rows: expected a list"},
        {"{" HEAD ", \"rows\": []}", "rows: expected a list"},
        {"{" HEAD ", \"rows\": {}}", "rows: expected a list"},
        {"{" HEAD ", \"rows\": [7]}", "rows[0]: expected an object"},
        {"{" HEAD ", \"row\": [" ROW(1, "ring") "]}", "row: there is no such key"},
        {"{" HEAD ", \"rows\": [{\"bytes\": 1, \"colective\": \"ring\"}]}", "colective"},
        {"{" HEAD ", \"rows\": [{\"collective\": \"ring\"}]}", "expected bytes"},
        {"{" HEAD ", \"rows\": [" ROW(0, "ring") "]}", "expected bytes"},
        {"{" HEAD ", \"rows\": [" ROW(-4, "ring") "]}", "expected bytes"},
        {"{" HEAD ", \"rows\": [" ROW(1e3, "ring") "]}", "expected bytes"},
        {"{" HEAD ", \"rows\": [" ROW(99999999999999999, "ring") "]}", "expected bytes"},
        {"{" HEAD ", \"rows\": [" ROW(8, "ring") ", " ROW(8, "ring") "]}", "growing"},
        {"{" HEAD ", \"rows\": [{\"bytes\": 8}]}", "expected the name of a collective"},
        {"{" HEAD ", \"rows\": [" ROW(8, "") "]}", "expected the name of a collective"},
        {"{" HEAD ", \"rows\": [" ROW(8, "auto") "]}", "expected the name of a collective"},
        {"{" HEAD ", \"rows\": [" ROW(8, "/tmp/evil.so") "]}", "without the path of a file"},
        {"{" HEAD ", \"rows\": [" ROW(8, "collective-evil.so") "]}", "without the path of a file"},
        {"{" HEAD ", \"rows\": [" ROW(8, "ring\\u0000x") "]}", "u0000"},
        {"{\"transport\": \"local\", \"device\": \"host\", \"world\": 4, \"rows\": []}",
         "lockstep: expected the version"},
        {"{\"lockstep\": \"1\", \"device\": \"host\", \"world\": 4, \"rows\": []}", "transport"},
        {"{\"lockstep\": \"1\", \"transport\": \"local\", \"world\": 4, \"rows\": []}", "device"},
        {"{\"lockstep\": \"1\", \"transport\": \"local\", \"device\": \"host\", \"world\": 1}",
         "world: expected"},
        {"{\"lockstep\": \"1\", \"transport\": \"local\", \"device\": \"host\", \"world\": 2, "
         "\"operation\": \"broadcast\"}",
         "operation: expected all_reduce"},
        {"{\"name\": \"flat\", \"topology\": \"flat\"}", "there is no such key"}, // a network
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct ls_tuner_table table = {.world = 42};
        ck_assert_int_eq(read_text(cases[i].text, &table), LS_BAD_INPUT);
        ck_assert_msg(strstr(test_log.text, cases[i].says) != NULL, "%s: expected '%s' in %s",
                      cases[i].text, cases[i].says, test_log.text);
        ck_assert_uint_eq(table.world, 42); // untouched
    }
}

TEST(files_that_are_none_are_refused)
{
    struct ls_tuner_table table = {.world = 42};
    test_log_begin();
    ck_assert_int_eq(ls_tuner_table_read("/nonexistent/t.json", &table), LS_BAD_INPUT);
    ck_assert_ptr_nonnull(strstr(test_log.text, "lockstep bench --tune=FILE writes one"));
    ck_assert_int_eq(ls_tuner_table_read("/tmp", &table), LS_BAD_INPUT);
    ck_assert_int_eq(ls_tuner_table_read("/dev/zero", &table), LS_BAD_INPUT);
    ck_assert_uint_eq(table.world, 42);
}

// Whatever is cut off or turned over: refused or a table, and never a crash.
TEST(damaged_files_are_refused_or_read)
{
    static const char whole[] = "{" HEAD ", \"rows\": [" ROW(1024, "direct") "]}";
    int refused = 0;
    for (size_t bytes = 0; bytes < sizeof(whole) - 1; bytes++) {
        struct ls_tuner_table table;
        ck_assert_int_eq(read_bytes(whole, bytes, &table), LS_BAD_INPUT);
    }
    for (size_t i = 0; i < sizeof(whole) - 1; i++) {
        char text[sizeof(whole)];
        struct ls_tuner_table table;
        memcpy(text, whole, sizeof(whole));
        text[i] = (char)(text[i] ^ 0x11);
        const enum ls_status status = read_bytes(text, sizeof(whole) - 1, &table);
        ck_assert(status == LS_OK || status == LS_BAD_INPUT);
        refused += status != LS_OK;
        if (!status)
            ls_tuner_table_finish(&table);
    }
    ck_assert_int_gt(refused, (int)sizeof(whole) / 2);
}

TEST(the_fixed_table_has_a_row_for_every_world)
{
    for (uint32_t world = 1; world <= 70; world++) {
        struct ls_tuner_table first, second;
        ck_assert_int_eq(ls_tuner_table_fixed(world, &first), LS_OK);
        ck_assert_int_eq(ls_tuner_table_fixed(world, &second), LS_OK);
        ck_assert_uint_ge(first.count, 1);
        ck_assert_uint_eq(first.count, second.count);
        for (size_t i = 0; i < first.count; i++) {
            ck_assert_uint_eq(first.entries[i].bytes, second.entries[i].bytes);
            ck_assert_str_eq(first.entries[i].collective, second.entries[i].collective);
        }
        ck_assert_int_eq(ls_tuner_table_check(&first, "fixed", "any", "any", world), LS_OK);
        ls_tuner_table_finish(&first);
        ls_tuner_table_finish(&second);
    }
}

TEST_SECONDS(300);
