// SPDX-License-Identifier: Apache-2.0
// Records a fit, and says what the timeline holds.
#include "core/train/fit_timeline.h"

#include "core/base/log.h"
#include "core/report/report.h"
#include "core/report/timeline.h"
#include "core/report/whole_file.h"
#include "core/train/fit.h"

#include <stdio.h>

enum ls_status ls_fit_check_timeline(const struct ls_fit *fit)
{
    const struct ls_fit_options *options = fit->options;
    if (!options->timeline)
        return LS_OK;
    if (options->timeline_last && options->timeline_first > options->timeline_last) {
        ls_error("--timeline-steps", "%llu:%llu: the first step comes after the last",
                 (unsigned long long)options->timeline_first,
                 (unsigned long long)options->timeline_last);
        return LS_USAGE;
    }
    if (options->report && ls_whole_file_same(options->report, options->timeline)) {
        ls_error("--timeline", "'%s' is the file of the report, too; choose another name",
                 options->timeline);
        return LS_USAGE;
    }
    return ls_report_check_path("--timeline", options->timeline);
}

enum ls_status ls_fit_begin_timeline(struct ls_fit *fit)
{
    if (!fit->options->timeline || !ls_run_is_chief(fit->run))
        return LS_OK;
    const struct ls_trace_options options = {.first_step = fit->options->timeline_first,
                                             .last_step = fit->options->timeline_last,
                                             .steppers =
                                                 ls_cluster_count(fit->run->workers.cluster)};
    return ls_trace_create(&options, &fit->trace);
}

static const char *plugin_name(const struct ls_opened_plugin *opened)
{
    return opened ? opened->plugin->name : NULL;
}

static enum ls_status write_timeline(const struct ls_fit *fit)
{
    const struct ls_run *run = fit->run;
    const struct ls_timeline timeline = {
        .model = fit->model->source,
        .dataset = fit->train->name,
        .strategy = plugin_name(run->strategy.strategy),
        .collective = plugin_name(run->strategy.collective),
        .transport = plugin_name(run->strategy.transport),
        .device = plugin_name(run->device),
        .hardware = run->hardware,
        .replicas = ls_cluster_world(run->workers.cluster),
        .global_batch = fit->plan.global_batch,
    };
    return ls_timeline_write(fit->options->timeline, &timeline, fit->trace);
}

// Said in every case, because what is missing does not show.
static void say_what_it_holds(const struct ls_fit *fit)
{
    struct ls_trace_steps steps;
    ls_trace_find_steps(fit->trace, &steps);
    const unsigned long long begun = steps.begun;
    if (!steps.last)
        ls_warn("--timeline",
                "'%s' holds no step: the run ended at step %llu; see --timeline-steps",
                fit->options->timeline, begun);
    else if (fit->run->progress)
        printf("timeline: %s holds steps %llu-%llu of %llu\n", fit->options->timeline,
               (unsigned long long)steps.first, (unsigned long long)steps.last, begun);
}

enum ls_status ls_fit_end_timeline(struct ls_fit *fit, bool whole, enum ls_status status)
{
    enum ls_status written = LS_OK;
    const bool succeeded = fit->run->most_workers && status == LS_PEER_LOST; // perhaps
    if (fit->trace && whole && !succeeded) {
        written = write_timeline(fit);
        if (!written)
            say_what_it_holds(fit);
    }
    ls_trace_destroy(fit->trace);
    fit->trace = NULL;
    return status && (status != LS_INTERRUPTED || !written) ? status : written;
}
