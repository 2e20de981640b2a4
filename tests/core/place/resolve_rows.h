// SPDX-License-Identifier: Apache-2.0
// A row: the variables of a process, and its place by them, or a part of the sentence that refuses them.
#ifndef LS_TESTS_PLACE_RESOLVE_ROWS_H
#define LS_TESTS_PLACE_RESOLVE_ROWS_H

#include "core/base/log.h"
#include "core/place/resolve.h"
#include "tests/support/suite.h"

#include <stdio.h>
#include <string.h>

static char line[1024];
static int lines;

static inline void keep_line(void *context, uint32_t level, const char *text)
{
    (void)context;
    (void)level;
    snprintf(line, sizeof(line), "%s", text);
    lines++;
}

// "torchrun: worker 1 of 4, local 1 of 2, at 10.0.0.1:29500".
static inline void write_place(const struct ls_worker_place *place, char *out, size_t bytes)
{
    static const char *const roles[] = {"worker", "server"};
    size_t used = (size_t)snprintf(out, bytes, "%s: %s %u of %u", place->resolver,
                                   roles[place->role], place->number, place->workers);
    if (place->servers)
        used += (size_t)snprintf(out + used, bytes - used, " and %u", place->servers);
    if (place->local_workers)
        used += (size_t)snprintf(out + used, bytes - used, ", local %u of %u", place->local_worker,
                                 place->local_workers);
    if (place->address[0])
        used +=
            (size_t)snprintf(out + used, bytes - used, ", at %s:%u", place->address, place->port);
    if (place->own_address[0])
        used += (size_t)snprintf(out + used, bytes - used, ", self %s:%u", place->own_address,
                                 place->own_port);
    if (place->reached_from_outside)
        used += (size_t)snprintf(out + used, bytes - used, ", from outside");
    if (place->job[0])
        used += (size_t)snprintf(out + used, bytes - used, ", job %s", place->job);
    if (place->restart)
        used += (size_t)snprintf(out + used, bytes - used, ", restart %u", place->restart);
    if (place->joins)
        snprintf(out + used, bytes - used, ", joins");
}

struct row {
    const char *which; // NULL: auto
    const char *variables[14]; // the last is NULL
    const char *place; // NULL: refused
    const char *problem; // a part of the sentence
};

static inline void check_row(const struct row *row)
{
    const struct ls_environment environment = {row->variables};
    struct ls_worker_place place = {.resolver = "untouched"};
    char text[1024];
    ck_assert_ptr_null(row->variables[13]);
    lines = 0;
    line[0] = '\0';
    ls_log_set_writer(keep_line, NULL);
    const enum ls_status status =
        ls_worker_place_resolve(row->which ? row->which : "auto", &environment, &place);
    ls_log_set_writer(NULL, NULL);
    if (row->place) {
        ck_assert_msg(status == LS_OK, "%s: refused: %s", row->place, line);
        write_place(&place, text, sizeof(text));
        ck_assert_str_eq(text, row->place);
        ck_assert_int_eq(lines, 0);
        ck_assert_int_eq(place.listen_fd, -1);
        return;
    }
    ck_assert_msg(status == LS_USAGE, "%s: status %d", row->problem, (int)status);
    ck_assert_msg(strstr(line, row->problem), "expected '%s', got '%s'", row->problem, line);
    ck_assert_int_eq(lines, 1);
    ck_assert_str_eq(place.resolver, "untouched");
    // One sentence that says what to do.
    if (!row->which)
        ck_assert_msg(strstr(line, "or train alone with --cluster=none"), "%s", line);
}

#define CHECK_ROWS(rows)                                        \
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) \
    check_row(&rows[i])

#define TORCH "MASTER_ADDR=10.0.0.1", "MASTER_PORT=29500"
#define STEP "SLURM_JOB_ID=7", "SLURM_STEP_ID=2"

#endif
