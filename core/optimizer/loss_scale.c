// SPDX-License-Identifier: Apache-2.0
// Reads loss scales, and moves them from step to step.
#include "core/optimizer/loss_scale.h"

#include "core/base/log.h"
#include "core/base/options.h"

#include <math.h>
#include <string.h>

// The reciprocal of a scale must be a normal number, too. Keras has no bounds: there a scale may become
// 0 or infinite, from where it never comes back.
#define LEAST 0x1p-126
#define MOST 0x1p126

static const struct ls_plugin_option options[] = {
    {"initial_scale", "number", "32768", "what the loss is multiplied by at first"},
    {"dynamic_growth_steps", "integer", "2000",
     "the scale is doubled after so many steps with finite gradients"},
    {NULL, NULL, NULL, NULL},
};

const char *ls_loss_scale_default(bool uses_float16)
{
    return uses_float16 ? "dynamic" : "none";
}

static enum ls_status read_scale(const char *name, double value, float *out)
{
    if (value >= LEAST && value <= MOST) {
        *out = (float)value;
        return LS_OK;
    }
    ls_error("--loss-scale", "%s%g: expected a number from %g to %g; 1 scales nothing", name, value,
             LEAST, MOST);
    return LS_USAGE;
}

static enum ls_status read_dynamic(const struct ls_spec *spec, struct ls_loss_scale *out)
{
    const char *text = ls_spec_get(spec, "initial_scale");
    double value = 32768;
    if (text)
        (void)!ls_parse_number(text, &value);
    out->kind = LS_DYNAMIC_SCALE;
    enum ls_status status = read_scale("initial_scale=", value, &out->initial);
    int64_t steps = 2000;
    text = ls_spec_get(spec, "dynamic_growth_steps");
    if (text)
        (void)!ls_parse_integer(text, &steps);
    if (!status && steps < 1) {
        ls_error("--loss-scale", "dynamic_growth_steps=%s: expected an integer from 1 on", text);
        status = LS_USAGE;
    }
    out->growth_steps = (uint64_t)steps;
    return status;
}

enum ls_status ls_loss_scale_parse(const char *text, struct ls_loss_scale *out)
{
    struct ls_spec spec = {0};
    double value = 0;
    enum ls_status status = ls_spec_parse("--loss-scale", text, &spec);
    const bool dynamic = !status && strcmp(spec.name, "dynamic") == 0;
    *out = (struct ls_loss_scale){0};
    if (!status)
        status = ls_spec_check("--loss-scale", &spec, dynamic ? options : NULL);
    if (!status && dynamic) {
        status = read_dynamic(&spec, out);
    } else if (!status && strcmp(spec.name, "none") != 0) {
        out->kind = LS_FIXED_SCALE;
        if (ls_parse_number(spec.name, &value)) {
            status = read_scale("", value, &out->initial);
        } else {
            ls_error("--loss-scale", "'%s': expected dynamic, a number or none", spec.name);
            status = LS_USAGE;
        }
    }
    ls_spec_finish(&spec);
    return status;
}

struct ls_loss_scale_state ls_loss_scale_begin(const struct ls_loss_scale *loss_scale)
{
    return (struct ls_loss_scale_state){.scale = loss_scale->kind ? loss_scale->initial : 1};
}

void ls_loss_scale_step(const struct ls_loss_scale *loss_scale, bool finite,
                        struct ls_loss_scale_state *state)
{
    const bool dynamic = loss_scale->kind == LS_DYNAMIC_SCALE;
    if (!finite) {
        state->skipped++;
        state->skipped_in_row++;
        state->good_steps = 0;
        if (dynamic && state->scale / 2 >= (float)LEAST)
            state->scale /= 2;
        return;
    }
    state->updates++;
    state->skipped_in_row = 0;
    if (++state->good_steps < loss_scale->growth_steps || !dynamic)
        return;
    state->good_steps = 0;
    if (state->scale * 2 <= (float)MOST)
        state->scale *= 2;
}
