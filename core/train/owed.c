// SPDX-License-Identifier: Apache-2.0
// Saves what replicas still owe, and gives it back.
#include "core/train/owed.h"

#include "core/base/log.h"
#include "core/train/session.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SCOPE "checkpoint"
#define OWED "filter/owed_%u" // by rank
#define STATE "filter" // in the state of the fit

static uint64_t count_of(const struct ls_session *session)
{
    return session && session->driver ? ls_driver_residual_count(session->driver) : 0;
}

bool ls_owed_over_workers(const struct ls_session *session)
{
    return count_of(session) && session->count < ls_cluster_world(session->cluster);
}

enum ls_status ls_owed_collect(const struct ls_session *session, float **out)
{
    const uint64_t count = count_of(session);
    *out = NULL;
    if (!count)
        return LS_OK;
    const uint32_t world = ls_cluster_world(session->cluster);
    float *mine = malloc(session->count * count * sizeof(*mine));
    float *all = malloc(world * count * sizeof(*all));
    enum ls_status status = mine && all ? LS_OK : LS_OUT_OF_MEMORY;
    for (uint32_t i = 0; !status && i < session->count; i++)
        ls_driver_read_residual(session->driver, i, mine + i * count);
    if (!status)
        status = ls_cluster_gather(session->cluster, mine, count * sizeof(*mine), all);
    free(mine);
    if (status)
        free(all);
    else
        *out = all;
    return status;
}

// The order of the values depends on the device and on the batch for which it has chosen layouts.
static void layout_text(const struct ls_session *session, char text[static 24])
{
    snprintf(text, 24, "%016" PRIx64, ls_plan_fingerprint(ls_replica_plan(session->replicas[0])));
}

enum ls_status ls_owed_save(const struct ls_session *session, const float *owed,
                            struct ls_checkpoint_image *image, json_t *state)
{
    char name[32], layout[24];
    enum ls_status status = LS_OK;
    if (!owed) // a fit that is told where others are has no session yet
        return LS_OK;
    const uint64_t count = count_of(session);
    const uint32_t world = ls_cluster_world(session->cluster);
    for (uint32_t i = 0; !status && i < world; i++) {
        snprintf(name, sizeof(name), OWED, i);
        status = ls_checkpoint_add(image, name, owed + i * count, count);
    }
    layout_text(session, layout);
    json_object_set_new(state, STATE,
                        json_pack("{s:I, s:s}", "world", (json_int_t)world, "layout", layout));
    return status;
}

static enum ls_status read_rank(const struct ls_fit *fit, uint32_t rank, uint64_t count, float *out)
{
    char name[32];
    snprintf(name, sizeof(name), OWED, rank);
    const struct ls_saved_tensor *tensor = ls_safetensors_find(fit->resumed.file, name);
    if (tensor && tensor->ndims == 1 && (uint64_t)tensor->dims[0] == count)
        return ls_safetensors_read(fit->resumed.file, tensor, out);
    ls_error(SCOPE, "the checkpoint is damaged: what replica %u owes is not there", rank);
    return LS_BAD_INPUT;
}

// The sum over all ranks that there were, in their order, divided among those that there are.
static enum ls_status divide(const struct ls_fit *fit, uint32_t saved, uint64_t count, float *part,
                             float *out)
{
    const float world = (float)ls_cluster_world(fit->session->cluster);
    enum ls_status status = LS_OK;
    memset(out, 0, count * sizeof(*out));
    for (uint32_t rank = 0; !status && rank < saved; rank++) {
        status = read_rank(fit, rank, count, part);
        for (uint64_t i = 0; !status && i < count; i++)
            out[i] += part[i];
    }
    for (uint64_t i = 0; i < count; i++)
        out[i] /= world;
    return status;
}

static enum ls_status give_back(struct ls_fit *fit, uint32_t saved, uint64_t count)
{
    const struct ls_session *session = fit->session;
    const bool same = saved == ls_cluster_world(session->cluster);
    float *part = malloc(count * sizeof(*part)), *owed = malloc(count * sizeof(*owed));
    enum ls_status status = part && owed ? LS_OK : LS_OUT_OF_MEMORY;
    if (!status && !same)
        status = divide(fit, saved, count, part, owed);
    for (uint32_t i = 0; !status && i < session->count; i++) {
        if (same)
            status = read_rank(fit, ls_session_rank(session, i), count, owed);
        if (!status)
            ls_driver_set_residual(session->driver, i, owed);
    }
    free(part);
    free(owed);
    return status;
}

enum ls_status ls_owed_resume(struct ls_fit *fit)
{
    const json_t *saved = json_object_get(fit->resumed.state, STATE);
    const uint64_t count = count_of(fit->session);
    const char *layout = json_string_value(json_object_get(saved, "layout"));
    uint64_t world = 0;
    char own[24];
    if (!fit->resumed.file || !saved)
        return LS_OK;
    if (!layout || !ls_checkpoint_count(saved, "world", &world) || !world || world > UINT32_MAX) {
        ls_error(SCOPE, "the checkpoint is damaged: what replicas owe is incomplete");
        return LS_BAD_INPUT;
    }
    layout_text(fit->session, own);
    if (count && strcmp(layout, own) == 0)
        return give_back(fit, (uint32_t)world, count);
    ls_warn(SCOPE, "what replicas owed to the sums of gradients (--compress) is left out: %s",
            count ? "this device or batch keeps parameters in another order"
                  : "this training has no filter at work");
    return LS_OK;
}
