// SPDX-License-Identifier: Apache-2.0
// A fit whose workers change, from the loss of one to the next step.
#define _GNU_SOURCE // memfd_create
#include "core/train/elastic.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/report/report.h"
#include "core/train/agreement.h"
#include "core/train/rank_values.h"
#include "core/run/workers.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define SCOPE "elastic"

bool ls_elastic_is_new(const struct ls_fit *fit)
{
    return !fit->run->workers.met;
}

bool ls_elastic_may_go_on(const struct ls_fit *fit, enum ls_status status)
{
    struct ls_run *run = fit->run;
    if (!run->most_workers || run->workers.gave_up || fit->together)
        return false;
    return fit->reforms ||
           (status == LS_PEER_LOST && ls_cluster_check(run->workers.cluster, NULL) == LS_PEER_LOST);
}

// What a replica owes is that of the step which it has completed: of a replica that is elsewhere
// than the first one, whose weights go on, it is dropped.
static enum ls_status drop_residuals(struct ls_fit *fit, struct ls_session *session)
{
    const uint64_t count = session->driver ? ls_driver_residual_count(session->driver) : 0;
    float *none = count ? calloc(count, sizeof(*none)) : NULL;
    fit->kept_residuals = count ? session->count : 0;
    fit->kept_world = count ? ls_cluster_world(session->cluster) : 0;
    if (count && !none)
        return LS_OUT_OF_MEMORY;
    for (uint32_t i = 0; count && i < session->count; i++)
        if (ls_driver_completed(session->driver, i) != fit->model->steps_done) {
            ls_driver_set_residual(session->driver, i, none);
            fit->kept_residuals--;
        }
    free(none);
    return LS_OK;
}

// Unless a worker was lost before the replicas had it again, or before they had anything.
static enum ls_status keep(struct ls_fit *fit, struct ls_session *session)
{
    if (fit->kept.count || !fit->begun)
        return LS_OK;
    enum ls_status status = drop_residuals(fit, session);
    if (!status)
        status = ls_rank_values_keep(session, &fit->kept);
    fit->kept_steps = fit->done.steps;
    if (status != LS_OUT_OF_MEMORY)
        return status;
    ls_checkpoint_finish(&fit->kept); // the training goes on without
    fit->kept_residuals = 0;
    return LS_OK;
}

// A replica that was in a step has nothing of it: its updates would have been the last of it.
static enum ls_status bring_to_host(struct ls_fit *fit)
{
    struct ls_model *model = fit->model;
    struct ls_session *session = model->session;
    enum ls_status status = LS_OK;
    if (session)
        session->broken = session->broken || atomic_load(&session->aborted); // only to be read
    if (session && (model->ahead || model->states_ahead))
        status = ls_session_take(session, LS_TAKE_ALL);
    if (session && !status)
        status = keep(fit, session);
    const enum ls_status closed = ls_session_close(model);
    fit->session = NULL;
    return status ? status : closed;
}

static enum ls_status note_change(struct ls_fit *fit, const struct ls_cluster_change *change,
                                  uint64_t begun_ns)
{
    const size_t count = fit->change_count;
    struct ls_report_change *more = realloc(fit->changes, (count + 1) * sizeof(*more));
    if (!more)
        return LS_OUT_OF_MEMORY;
    fit->changes = more;
    more[count] = (struct ls_report_change){
        .step = fit->done.steps,
        .lost = change->lost,
        .joined = change->joined,
        .workers = ls_cluster_workers(fit->run->workers.cluster),
        .seconds = NAN,
    };
    fit->change_count++;
    fit->changed_ns = begun_ns;
    return LS_OK;
}

static void note_continued(struct ls_fit *fit)
{
    ls_info(SCOPE, "continuing after step %" PRIu64, fit->done.steps);
    if (!fit->changed_ns)
        return; // a new worker
    struct ls_report_change *last = &fit->changes[fit->change_count - 1];
    last->step = fit->done.steps;
    last->seconds = (double)(ls_clock_ns() - fit->changed_ns) * 1e-9;
    fit->changed_ns = 0;
}

enum ls_status ls_elastic_leave(struct ls_fit *fit)
{
    struct ls_cluster_change change;
    const uint64_t start = ls_clock_ns();
    enum ls_status status = bring_to_host(fit);
    if (!status)
        status = ls_workers_reform(fit->run, &change);
    // The chief of the workers that were. Of what it writes only a checkpoint cannot undo what those
    // have written who may have gone on without it.
    if (status == LS_INTERRUPTED) {
        const enum ls_status written = ls_checkpoints_at_end(fit);
        return written ? written : status;
    }
    if (status)
        return status;
    fit->reforms = false;
    ls_info(SCOPE, "%u worker%s (%u lost, %u new), %u replicas, after %.2f s",
            ls_cluster_workers(fit->run->workers.cluster),
            ls_cluster_workers(fit->run->workers.cluster) == 1 ? "" : "s", change.lost,
            change.joined, ls_cluster_world(fit->run->workers.cluster),
            (double)(ls_clock_ns() - start) * 1e-9);
    return note_change(fit, &change, start);
}

// How far each worker is. A new one has nothing.
struct progress {
    uint64_t steps;
    uint64_t turns; // that were applied to its rounds (core/plugin/rounds.h)
    uint32_t has, epoch_ended;
    uint32_t kept; // it has what is the same on all ranks after these steps
    uint32_t residuals; // that it has kept
};

// Of those that are as far, one that has what is the same on all ranks, for those that have not.
static bool is_further(const struct progress *one, const struct progress *other)
{
    if (!one->has || !other->has)
        return one->has;
    if (one->steps != other->steps)
        return one->steps > other->steps;
    if (one->turns != other->turns)
        return one->turns > other->turns;
    return one->epoch_ended != other->epoch_ended ? one->epoch_ended > other->epoch_ended
                                                  : one->kept > other->kept;
}

// Of those that replicas owed, which have no owner any more.
static uint32_t count_lost(const struct ls_fit *fit, const struct progress *all, uint64_t steps)
{
    const struct ls_cluster *cluster = fit->run->workers.cluster;
    uint32_t kept = 0;
    if (ls_cluster_world(cluster) == 1) // one replica alone sends nothing, and so owes nothing
        return fit->kept_world;
    for (uint32_t i = 0; i < ls_cluster_workers(cluster); i++)
        kept += all[i].has && all[i].steps == steps ? all[i].residuals : 0;
    return kept < fit->kept_world ? fit->kept_world - kept : 0; // a new worker knows of none
}

static bool has_kept(const struct ls_fit *fit)
{
    return fit->kept.count && fit->kept_steps == fit->done.steps;
}

static enum ls_status find_furthest(struct ls_fit *fit, uint32_t *out)
{
    const uint32_t workers = ls_cluster_workers(fit->run->workers.cluster);
    const float *notes = ls_rank_values_furthest(&fit->kept);
    const struct progress mine = {.steps = fit->done.steps,
                                  .turns = notes ? (uint64_t)notes[LS_ROUND_NOTE_TURNS] : 0,
                                  .has = !fit->joined,
                                  .epoch_ended = fit->done.epoch_ended,
                                  .kept = fit->kept.count > 0,
                                  .residuals = has_kept(fit) ? fit->kept_residuals : 0};
    struct progress *all = calloc(workers, sizeof(*all));
    if (!all)
        return LS_OUT_OF_MEMORY;
    const enum ls_status status =
        ls_cluster_gather_workers(fit->run->workers.cluster, &mine, sizeof(mine), all);
    *out = 0;
    for (uint32_t i = 1; !status && i < workers; i++)
        if (is_further(&all[i], &all[*out]))
            *out = i;
    if (!status && fit->changed_ns) {
        const uint32_t lost = count_lost(fit, all, all[*out].steps);
        fit->changes[fit->change_count - 1].residuals_lost = lost;
        fit->kept_world -= lost; // the next change, before a step, loses some of the rest
    }
    free(all);
    return status;
}

static enum ls_status no_file(const char *what)
{
    ls_error(SCOPE, "%s: %s", what, strerror(errno));
    return LS_FAILED;
}

// The state of this fit as a checkpoint in the file.
static enum ls_status write_state(struct ls_fit *fit, int fd, uint64_t *bytes)
{
    struct ls_checkpoint_image image = {0};
    struct stat about;
    enum ls_status status = ls_checkpoints_take(fit, fit->done.epoch_ended, &image);
    if (!status)
        status = ls_rank_values_share(&fit->kept, false, &image);
    if (!status)
        status = ls_checkpoint_write_to(&image, fd, "the state of the training", false);
    ls_checkpoint_finish(&image);
    if (!status && fstat(fd, &about))
        return no_file("the state of the training in memory");
    *bytes = status ? 0 : (uint64_t)about.st_size;
    return status;
}

// The file becomes that of worker `from` on all.
static enum ls_status share_state(struct ls_fit *fit, uint32_t from, int fd)
{
    struct ls_cluster *cluster = fit->run->workers.cluster;
    const bool own = ls_cluster_worker(cluster) == from;
    uint64_t bytes = 0;
    enum ls_status status = own ? write_state(fit, fd, &bytes) : LS_OK;
    if (!status)
        status = ls_cluster_broadcast(cluster, &bytes, sizeof(bytes), from);
    if (!status && !own && ftruncate(fd, (off_t)bytes))
        status = no_file("memory for the state of the training");
    if (status)
        return status;
    void *data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED)
        return no_file("the state of the training in memory");
    status = ls_cluster_broadcast(cluster, data, bytes, from);
    munmap(data, bytes);
    return status;
}

// As from a checkpoint on a disk.
static enum ls_status take_state(struct ls_fit *fit, int fd)
{
    char path[64];
    struct ls_safetensors *file = NULL;
    json_t *state = NULL;
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    const enum ls_status status = ls_checkpoint_open(path, &file, &state);
    if (status)
        return status == LS_UNSUPPORTED ? LS_FAILED : status;
    enum ls_status taken =
        ls_checkpoints_go_on_from(fit, "the state of another worker", file, state);
    if (!taken)
        taken = ls_rank_values_adopt(file, &fit->kept);
    json_decref(state);
    return taken;
}

enum ls_status ls_elastic_go_on(struct ls_fit *fit)
{
    struct ls_run *run = fit->run;
    uint32_t furthest = 0;
    enum ls_status status = fit->joined ? LS_OK : ls_workers_meet(run);
    if (!status && !fit->joined)
        status = ls_run_follow_workers(run);
    // The global batch stays that of the first workers: without --batch, a new worker would compute
    // another one from the number of replicas that there are now.
    if (!status)
        status = ls_cluster_broadcast(run->workers.cluster, &fit->plan.global_batch,
                                      sizeof(fit->plan.global_batch), 0);
    if (!status)
        status = ls_agree_on_fit(fit);
    if (status == LS_USAGE && !fit->joined) // the new worker leaves, and the others go on
        status = ls_workers_await_verdict(run, NULL, status);
    if (!status)
        status = ls_checkpoints_follow_chief(fit);
    if (!status)
        status = find_furthest(fit, &furthest);
    const int fd = status ? -1 : memfd_create("lockstep-training", MFD_CLOEXEC);
    if (!status && fd < 0)
        status = no_file("memory for the state of the training");
    if (!status)
        status = share_state(fit, furthest, fd);
    if (!status)
        status = take_state(fit, fd);
    if (fd >= 0)
        close(fd);
    if (!status)
        note_continued(fit);
    fit->regroups = true;
    ls_workers_note_met(run);
    fit->joined = fit->joined && status;
    return status;
}

enum ls_status ls_elastic_begin(struct ls_fit *fit)
{
    enum ls_status status = ls_checkpoints_begin(fit);
    if (status || !fit->kept.count)
        return status;
    if (ls_driver_has_rounds(fit->session->driver))
        return ls_rank_values_put_back_own(fit->session, &fit->kept);
    return has_kept(fit) ? ls_rank_values_put_back(fit->session, true, &fit->kept) : LS_OK;
}

struct regrouping {
    struct ls_driver *driver;
    struct ls_round_change change;
    double left_out; // alike on all ranks
};

// [replica thread]
static enum ls_status regroup_replica(void *context, uint32_t index)
{
    struct regrouping *regrouping = context;
    struct ls_round_change change = regrouping->change;
    double left_out = 0;
    change.left_out = &left_out;
    const enum ls_status status = ls_driver_workers_changed(regrouping->driver, index, &change);
    if (index == 0)
        regrouping->left_out = left_out;
    return status;
}

// Several replicas of a worker go on from a file that one worker has written.
static enum ls_status regroup(struct ls_fit *fit)
{
    struct ls_session *session = fit->session;
    const uint32_t world = ls_cluster_world(session->cluster);
    const size_t bytes = LS_ROUND_NOTES * sizeof(float);
    const float *furthest = ls_rank_values_furthest(&fit->kept);
    struct regrouping regrouping = {
        .driver = session->driver,
        .change = {.struct_size = sizeof(struct ls_round_change), .furthest = world}};
    float *notes = calloc((size_t)world + 1 + session->count, bytes); // own: behind the others
    if (!notes)
        return LS_OUT_OF_MEMORY;
    float *own = notes + ((size_t)world + 1) * LS_ROUND_NOTES;
    regrouping.change.notes = notes;
    if (furthest) // else whose state this is had no memory to keep them
        memcpy(notes + (size_t)world * LS_ROUND_NOTES, furthest, bytes);
    for (uint32_t i = 0; i < session->count; i++)
        memcpy(own + i * LS_ROUND_NOTES,
               ls_driver_round_memory(session->driver, i, LS_ROUND_OWN_NOTES), bytes);
    enum ls_status status = ls_cluster_gather(session->cluster, own, bytes, notes);
    if (!status)
        status =
            ls_session_run(session, "counting what is in no round", regroup_replica, &regrouping);
    free(notes);
    if (!status && fit->change_count) {
        fit->changes[fit->change_count - 1].rounds = true;
        fit->changes[fit->change_count - 1].examples_left_out = regrouping.left_out;
    }
    return status;
}

enum ls_status ls_elastic_regroup(struct ls_fit *fit)
{
    const struct ls_session *session = fit->session;
    enum ls_status status = LS_OK;
    if (fit->regroups && session->driver && ls_driver_has_rounds(session->driver))
        status = regroup(fit);
    if (status) // others were lost: what was kept is put back again
        return status;
    fit->regroups = false;
    ls_checkpoint_finish(&fit->kept);
    return LS_OK;
}
