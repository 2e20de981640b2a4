// SPDX-License-Identifier: Apache-2.0
// Reads the options that several subcommands share.
#include "tools/run_options.h"

#include "core/base/log.h"
#include "core/plugin/plugin.h"
#include "core/model/model.h"
#include "core/train/agreement.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OPENMP_SPINS "3000"

// OpenMP's threads spin between the kernels of a step, for milliseconds: much too long where other programs want the
// same cores. Some ten microseconds bridge the gaps within a step. Before the runtime is loaded; users may say otherwise.
static void shorten_openmp_waits(void)
{
    if (!getenv("OMP_WAIT_POLICY") && !getenv("GOMP_SPINCOUNT"))
        setenv("GOMP_SPINCOUNT", OPENMP_SPINS, 0);
}

// Threads cannot be ended from outside, and nothing can be freed under them. What hangs, and where, was logged.
static void end_stuck(uint32_t rank)
{
    (void)rank;
    _exit(LS_PEER_LOST);
}

enum ls_status run_options_common(const struct arguments *arguments, struct ls_run_options *out)
{
    uint64_t threads = 0;
    shorten_openmp_waits();
    enum ls_status status = arguments_count(arguments, "threads", 1, 1024, &threads);
    if (!status)
        status = arguments_number(arguments, "deadline", &out->deadline_seconds);
    if (!status && !(out->deadline_seconds > 0)) {
        ls_error("usage", "--deadline=%s: expected seconds above 0",
                 arguments_text(arguments, "deadline"));
        status = LS_USAGE;
    }
    if (status)
        return status;
    out->device = arguments_text(arguments, "device");
    out->plugin_path = arguments_text(arguments, "plugin-path");
    out->threads = (uint32_t)threads;
    out->progress = !arguments_given(arguments, "quiet");
    out->stuck = end_stuck;
    if (!out->progress)
        ls_log_set_level(LS_LOG_WARN);
    return LS_OK;
}

enum ls_status run_options_cluster(const struct arguments *arguments, struct ls_run_options *out)
{
    out->cluster = arguments_text(arguments, "cluster");
    out->insecure = arguments_given(arguments, "insecure");
    out->network = arguments_text(arguments, "network");
    if (out->network && strcmp(out->network, "private") != 0) {
        ls_error("usage", "--network=%s: expected private", out->network);
        return LS_USAGE;
    }
    enum ls_status status = arguments_number(arguments, "join-deadline", &out->join_seconds);
    if (!status && !(out->join_seconds > 0)) {
        ls_error("usage", "--join-deadline=%s: expected seconds above 0",
                 arguments_text(arguments, "join-deadline"));
        status = LS_USAGE;
    }
    if (!status)
        status = arguments_number(arguments, "lost-after", &out->silence_seconds);
    if (!status && !(out->silence_seconds >= 1 && out->silence_seconds <= 1e6)) {
        ls_error("usage", "--lost-after=%s: expected 1 second or more",
                 arguments_text(arguments, "lost-after"));
        status = LS_USAGE;
    }
    return status;
}

#define DEFAULT_SHARDS 8
#define MOST_SHARDS 1024

enum ls_status run_options_reproducible(const struct arguments *arguments, uint32_t *out)
{
    const char *text = arguments_text(arguments, "reproducible");
    uint64_t shards = DEFAULT_SHARDS;
    enum ls_status status = LS_OK;
    if (!text || strcmp(text, "off") == 0)
        return LS_OK;
    if (strcmp(text, "on") != 0)
        status = arguments_count(arguments, "reproducible", 1, MOST_SHARDS, &shards);
    *out = (uint32_t)shards;
    return status;
}

enum ls_status run_options_read(const struct arguments *arguments, struct ls_run_options *out)
{
    uint64_t replicas = 0;
    const char *verbose = arguments_text(arguments, "verbose");
    const bool plans = verbose && strcmp(verbose, "on") == 0; // it has no value
    if (verbose && !plans && (strlen(verbose) != 1 || !strchr("012", *verbose))) {
        ls_error("usage", "--verbose=%s: expected 0, 1 or 2, or no value", verbose);
        return LS_USAGE;
    }
    enum ls_status status = arguments_count(arguments, "replicas", 1, REPLICAS_MOST, &replicas);
    if (!status)
        status = run_options_common(arguments, out);
    if (status)
        return status;
    status = run_options_cluster(arguments, out);
    if (status)
        return status;
    out->strategy = arguments_text(arguments, "strategy");
    out->share = arguments_text(arguments, "share");
    out->precision = arguments_text(arguments, "precision");
    out->replicas = (uint32_t)replicas;
    out->devices = arguments_text(arguments, "devices");
    out->verbose = plans;
    if (verbose && !plans)
        out->progress = (uint32_t)(*verbose - '0');
    if (!out->progress)
        ls_log_set_level(LS_LOG_WARN);
    if (out->verbose)
        ls_log_set_level(LS_LOG_DEBUG);
    return LS_OK;
}

enum ls_status run_options_batch(const struct arguments *arguments, uint64_t *batch,
                                 uint64_t *replica_batch)
{
    const uint64_t most = UINT64_C(1) << 24;
    enum ls_status status = arguments_count(arguments, "batch", 1, most, batch);
    if (!status)
        status = arguments_count(arguments, "replica-batch", 1, most, replica_batch);
    return status;
}

enum ls_status run_options_need(const struct arguments *arguments, const char *name,
                                const char *example)
{
    if (arguments_text(arguments, name))
        return LS_OK;
    ls_error("usage", "--%s is missing, for example --%s=%s", name, name, example);
    return LS_USAGE;
}

enum ls_status run_options_open_model(const struct arguments *arguments, struct ls_run *run,
                                      const struct ls_data *data, struct ls_model **out)
{
    return ls_open_model_for_weights(run, arguments_text(arguments, "model"), data,
                                     arguments_text(arguments, "initial-weights"), out);
}

enum ls_status run_options_load_weights(const struct arguments *arguments, struct ls_model *model)
{
    const char *weights = arguments_text(arguments, "initial-weights");
    const enum ls_status status = weights ? ls_load_weights(model, weights) : LS_OK;
    return status ? status : ls_agree_on_loaded_weights(model, weights);
}

void run_options_warn_idle(const struct arguments *arguments, const struct ls_run *run)
{
    const bool alone = run->workers.place.workers == 1 && run->most_workers <= 1;
    if (!ls_run_is_chief(run) || !alone || run->workers.served.servers) // it waits for servers, too
        return;
    arguments_warn_idle(arguments, ARGUMENT_IDLE_ALONE, 0, "with one worker");
    if (ls_run_replicas(run) == 1)
        arguments_warn_idle(arguments, ARGUMENT_IDLE_ONE_REPLICA, 0, "with one replica");
}

void run_options_warn_untrained(const struct ls_model *model, const char *command)
{
    if (!model->weights && !model->saved && ls_model_parameters(model))
        ls_warn(command,
                "the weights are untrained: model '%s' comes with none; give trained ones with "
                "--initial-weights=FILE",
                model->source);
}
