// SPDX-License-Identifier: Apache-2.0
// Opens the candidates and the table of `auto`.
#include "core/run/tuning.h"

#include "core/base/log.h"
#include "core/base/random.h"
#include "core/plugin/collective.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---- A table that is given ----

static bool is_fixed(const struct ls_tuning *tuning)
{
    return strcmp(tuning->table, LS_TUNER_FIXED) == 0;
}

static enum ls_status open_table(struct ls_loader *loader, const char *transport,
                                 const char *device, uint32_t world, struct ls_tuning *tuning)
{
    enum ls_status status = is_fixed(tuning) ? ls_tuner_table_fixed(world, &tuning->rows)
                                             : ls_tuner_table_read(tuning->table, &tuning->rows);
    if (!status)
        status = ls_tuner_table_check(&tuning->rows, tuning->table, transport, device, world);
    if (status)
        return status;
    tuning->candidates = calloc(tuning->rows.count, sizeof(struct ls_opened_plugin *));
    if (!tuning->candidates)
        return LS_OUT_OF_MEMORY;
    char scope[256];
    snprintf(scope, sizeof(scope), "auto:table=%.200s", tuning->table);
    for (size_t i = 0; !status && i < tuning->rows.count; i++)
        status = ls_loader_open_scheduled(loader, scope, tuning->rows.entries[i].collective,
                                          &tuning->candidates[tuning->count++]);
    return status;
}

// A collective that the table names for several sizes is one candidate.
static bool is_named_before(const struct ls_tuning *tuning, size_t index)
{
    for (size_t i = 0; i < index; i++)
        if (!strcmp(tuning->rows.entries[i].collective, tuning->rows.entries[index].collective))
            return true;
    return false;
}

static enum ls_status fill_table(struct ls_tuning *tuning, uint32_t world)
{
    enum ls_status status = LS_OK;
    for (size_t i = 0; !status && world > 1 && i < tuning->rows.count; i++)
        status = ls_tuner_add(tuning->tuner, "auto", world, tuning->rows.entries[i].bytes,
                              tuning->rows.entries[i].collective);
    return status;
}

// ---- The tuner ----

const char *ls_tuning_candidate(const struct ls_tuning *tuning, size_t index)
{
    if (!tuning->table)
        return tuning->candidates[index]->plugin->name;
    return is_named_before(tuning, index) ? NULL : tuning->rows.entries[index].collective;
}

static enum ls_status create(const struct ls_opened_plugin *opened, uint32_t world,
                             const uint32_t *hosts, struct ls_tuning *tuning)
{
    struct ls_candidate *candidates = calloc(tuning->count, sizeof(*candidates));
    size_t count = 0;
    if (!candidates)
        return LS_OUT_OF_MEMORY;
    for (size_t i = 0; i < tuning->count; i++)
        if (ls_tuning_candidate(tuning, i))
            candidates[count++] = (struct ls_candidate){.plugin = tuning->candidates[i]->plugin,
                                                        .host = tuning->candidates[i]->host,
                                                        .name = ls_tuning_candidate(tuning, i)};
    enum ls_status status =
        ls_tuner_create(opened->plugin, opened->host, candidates, count, &tuning->tuner);
    free(candidates);
    if (!status)
        ls_tuner_set_hosts(tuning->tuner, hosts);
    if (!status && tuning->table)
        status = fill_table(tuning, world);
    return status;
}

enum ls_status ls_tuning_open(struct ls_loader *loader, const struct ls_opened_plugin *opened,
                              const char *transport, const char *device, uint32_t world,
                              const uint32_t *hosts, struct ls_tuning *out)
{
    struct ls_tuning tuning = {.table = opened->host->option(opened->host, "table")};
    const char *candidates = opened->host->option(opened->host, "candidates");
    enum ls_status status = LS_OK;
    if (tuning.table && !*tuning.table) {
        ls_error("auto",
                 "table= is empty: expected a FILE that lockstep bench --tune=FILE wrote, or "
                 "fixed; leave it out to measure");
        return LS_USAGE;
    }
    if (tuning.table && candidates) {
        ls_error("auto",
                 "candidates=%s is what the run measures, and table=%s is taken without measuring; "
                 "leave one out%s",
                 candidates, tuning.table,
                 is_fixed(&tuning) ? " (the name of a transport alone means table=fixed: name auto)"
                                   : "");
        return LS_USAGE;
    }
    if (tuning.table)
        status = open_table(loader, transport, device, world, &tuning);
    else
        status = ls_loader_candidates(loader, opened, &tuning.candidates, &tuning.count);
    if (!status)
        status = create(opened, world, hosts, &tuning);
    if (status)
        ls_tuning_close(&tuning);
    else
        *out = tuning;
    return status;
}

void ls_tuning_describe(const struct ls_tuning *tuning, char *out, size_t bytes)
{
    char part[160], rest[32] = "";
    uint64_t key = 0;
    size_t length = 0;
    *out = '\0';
    for (size_t i = 0; i < tuning->count; i++) {
        const struct ls_plugin *plugin = tuning->candidates[i]->plugin;
        if (tuning->table)
            snprintf(part, sizeof(part), "%s%.96s for %llu bytes", i ? ", " : "",
                     tuning->rows.entries[i].collective,
                     (unsigned long long)tuning->rows.entries[i].bytes);
        else
            snprintf(part, sizeof(part), "%s%.96s %.24s", i ? ", " : "", plugin->name,
                     plugin->version);
        key = ls_random_key_text(key, part);
        if (!*rest && length + strlen(part) + sizeof(rest) <= bytes)
            length += (size_t)snprintf(out + length, bytes - length, "%s", part);
        else
            snprintf(rest, sizeof(rest), ", ... (%08x)", (unsigned)key);
    }
    snprintf(out + length, bytes - length, "%s", rest);
}

void ls_tuning_close(struct ls_tuning *tuning)
{
    ls_tuner_destroy(tuning->tuner);
    ls_tuner_table_finish(&tuning->rows);
    free(tuning->candidates);
    *tuning = (struct ls_tuning){0};
}

const char *ls_tuning_name(const struct ls_tuning *tuning, uint32_t operation, uint32_t world,
                           uint64_t count, uint32_t element_bytes)
{
    const struct ls_collective_call call = {.struct_size = sizeof(call),
                                            .operation = operation,
                                            .world = world,
                                            .count = count,
                                            .element_bytes = element_bytes,
                                            .host = ls_tuner_host(tuning->tuner)};
    return ls_tuner_choose(tuning->tuner, &call);
}

// ---- In a checkpoint ----

json_t *ls_tuning_save(const struct ls_tuning *tuning, const char *setting)
{
    size_t count = 0;
    const struct ls_tuner *tuner = tuning->table ? NULL : tuning->tuner;
    const struct ls_tuner_row *rows = tuner ? ls_tuner_rows(tuner, &count) : NULL;
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++)
        if (rows[i].operation == LS_ALL_REDUCE)
            json_array_append_new(list, json_pack("[I, s]", (json_int_t)rows[i].bytes,
                                                  ls_tuner_candidate(tuner, rows[i].candidate)));
    if (json_array_size(list) == 0) {
        json_decref(list);
        return json_null();
    }
    return json_pack("{s:s, s:o}", "setting", setting, "rows", list);
}

static bool is_candidate(const struct ls_tuner *tuner, const char *name)
{
    for (size_t i = 0; i < ls_tuner_candidates(tuner); i++)
        if (strcmp(ls_tuner_candidate(tuner, i), name) == 0)
            return true;
    return false;
}

enum ls_status ls_tuning_resume(struct ls_tuning *tuning, const json_t *saved, const char *setting,
                                uint32_t world)
{
    const json_t *rows = json_object_get(saved, "rows");
    const char *theirs = json_string_value(json_object_get(saved, "setting"));
    enum ls_status status = LS_OK;
    if (!tuning->tuner || tuning->table || !theirs || strcmp(theirs, setting) != 0)
        return LS_OK;
    for (size_t i = 0; !status && i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        const json_int_t bytes = json_integer_value(json_array_get(row, 0));
        const char *name = json_string_value(json_array_get(row, 1));
        if (bytes <= 0 || !name || !is_candidate(tuning->tuner, name))
            continue;
        status = ls_tuner_add(tuning->tuner, "resume", world, (uint64_t)bytes, name);
        tuning->resumed = true;
    }
    return status;
}

// ---- What is said of it ----

void ls_tuning_print(const struct ls_tuning *tuning, FILE *out)
{
    size_t count = 0;
    const struct ls_tuner *tuner = tuning->tuner;
    const struct ls_tuner_row *rows = tuner ? ls_tuner_rows(tuner, &count) : NULL;
    if (!count || tuning->table)
        return;
    if (tuning->resumed)
        fputs("auto goes on with what the checkpoint has\n", out);
    else
        fprintf(out, "auto measured for %.3f s; us a call +- spread of the rounds\n",
                ls_tuner_seconds(tuner));
    for (size_t i = 0; i < count; i++) {
        fprintf(out, "  %llu bytes: %s (%u rounds;", (unsigned long long)rows[i].bytes,
                ls_tuner_candidate(tuner, rows[i].candidate), rows[i].times[0].rounds);
        for (size_t j = 0; j < ls_tuner_candidates(tuner); j++) {
            const struct ls_tuner_time *time = &rows[i].times[j];
            fprintf(out, "%s %s ", j ? "," : "", ls_tuner_candidate(tuner, j));
            if (time->rounds)
                fprintf(out, "%.2f +- %.2f%s", time->seconds * 1e6, time->spread * 1e6,
                        time->dropped ? " (given up)" : "");
            else
                fputs("not timed", out);
        }
        fputs(")\n", out);
    }
}

static enum ls_status report_times(const struct ls_tuner *tuner, const struct ls_tuner_row *row,
                                   struct ls_report_tuner_size *out)
{
    out->times = calloc(ls_tuner_candidates(tuner), sizeof(*out->times));
    if (!out->times)
        return LS_OUT_OF_MEMORY;
    out->time_count = ls_tuner_candidates(tuner);
    for (size_t i = 0; i < out->time_count; i++) {
        const struct ls_tuner_time *time = &row->times[i];
        out->times[i] =
            (struct ls_report_tuner_time){.collective = ls_tuner_candidate(tuner, i),
                                          .seconds = time->rounds ? time->seconds : (double)NAN,
                                          .spread = time->rounds ? time->spread : (double)NAN,
                                          .rounds = time->rounds,
                                          .given_up = time->dropped};
    }
    return LS_OK;
}

enum ls_status ls_tuning_report(const struct ls_tuning *tuning, struct ls_report_tuner *out)
{
    size_t count = 0;
    const struct ls_tuner *tuner = tuning->tuner;
    if (!tuner)
        return LS_OK;
    const struct ls_tuner_row *rows = ls_tuner_rows(tuner, &count);
    struct ls_report_tuner report = {.source = tuning->resumed    ? "checkpoint"
                                               : !tuning->table   ? "measured"
                                               : is_fixed(tuning) ? "fixed"
                                                                  : "file",
                                     .file =
                                         tuning->table && !is_fixed(tuning) ? tuning->table : NULL,
                                     .seconds = ls_tuner_seconds(tuner),
                                     .sizes = calloc(count + 1, sizeof(*report.sizes))};
    enum ls_status status = report.sizes ? LS_OK : LS_OUT_OF_MEMORY;
    for (size_t i = 0; !status && i < count; i++) {
        struct ls_report_tuner_size *size = &report.sizes[report.size_count++];
        size->bytes = rows[i].bytes;
        size->collective = ls_tuner_candidate(tuner, rows[i].candidate);
        if (!tuning->table)
            status = report_times(tuner, &rows[i], size);
    }
    if (status)
        ls_tuning_report_finish(&report);
    else
        *out = report;
    return status;
}

void ls_tuning_report_finish(struct ls_report_tuner *report)
{
    for (size_t i = 0; i < report->size_count; i++)
        free(report->sizes[i].times);
    free(report->sizes);
    *report = (struct ls_report_tuner){0};
}
