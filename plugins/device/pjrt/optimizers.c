// SPDX-License-Identifier: Apache-2.0
// Operations over flat ranges: the optimizers' updates, clipping, averages of weights, and what
// they need to know of a gradient. Arithmetic as in keras.optimizers; factors that depend on the
// step alone are computed in float64.
#include "plugins/device/pjrt/operations.h"

#include <math.h>

// ---- Factors: scalars F64 ----

static struct hlo_value scalar(struct hlo *h, double value)
{
    return hlo_constant(h, LS_F64, (struct hlo_shape){0}, value);
}

static struct hlo_value rate_of(struct pjrt_call *call)
{
    return hlo_convert(call->h, PJRT_RECORD(call, learning_rate, LS_F32), LS_F64);
}

static struct hlo_value update_number(struct pjrt_call *call)
{
    return hlo_convert(call->h, PJRT_RECORD(call, update, HLO_U64), LS_F64);
}

// 1 - beta^t
static struct hlo_value left(struct pjrt_call *call, float beta)
{
    struct hlo *h = call->h;
    const struct hlo_value power =
        hlo_binary(h, "power", scalar(h, (double)beta), update_number(call));
    return hlo_subtract(h, scalar(h, 1), power);
}

// x times a factor, rounded to float32
static struct hlo_value times(struct hlo *h, struct hlo_value factor, struct hlo_value x)
{
    return hlo_multiply(h, hlo_spread(h, hlo_convert(h, factor, LS_F32), x.shape), x);
}

// lr sqrt(1 - b2^t) / (1 - b1^t)
static struct hlo_value adam_rate(struct pjrt_call *call)
{
    struct hlo *h = call->h;
    const struct ls_op_attributes *a = call->attributes;
    return hlo_divide(h, hlo_multiply(h, rate_of(call), hlo_unary(h, "sqrt", left(call, a->beta2))),
                      left(call, a->beta1));
}

// ---- States ----

// s + (x - s) (1 - beta)
static struct hlo_value moved(struct hlo *h, struct hlo_value s, struct hlo_value x, float beta)
{
    return hlo_add(h, s, hlo_scaled(h, hlo_subtract(h, x, s), 1 - (double)beta));
}

// beta s + (1 - beta) x
static struct hlo_value decayed(struct hlo *h, struct hlo_value s, struct hlo_value x, float beta)
{
    return hlo_add(h, hlo_scaled(h, s, (double)beta), hlo_scaled(h, x, 1 - (double)beta));
}

static struct hlo_value squared(struct hlo *h, struct hlo_value x)
{
    return hlo_multiply(h, x, x);
}

// Where an update keeps its states: old and outputs of the call from `first` on.
struct states {
    struct hlo_value *old, *new;
};

static struct states states_of(struct pjrt_call *call, uint32_t first)
{
    return (struct states){call->old + first, call->outputs + first};
}

static void move_moments(struct pjrt_call *call, const struct states *s, struct hlo_value g)
{
    s->new[0] = moved(call->h, s->old[0], g, call->attributes->beta1);
    s->new[1] = moved(call->h, s->old[1], squared(call->h, g), call->attributes->beta2);
}

static struct hlo_value root_plus(struct pjrt_call *call, struct hlo_value v)
{
    return hlo_plus(call->h, hlo_unary(call->h, "sqrt", v), (double)call->attributes->epsilon);
}

static struct hlo_value root_of_sum(struct pjrt_call *call, struct hlo_value v)
{
    return hlo_unary(call->h, "sqrt", hlo_plus(call->h, v, (double)call->attributes->epsilon));
}

// ---- Each optimizer: what w loses ----

static struct hlo_value sgd(struct pjrt_call *call, const struct states *s, uint32_t states,
                            struct hlo_value g)
{
    struct hlo *h = call->h;
    const double momentum = (double)call->attributes->momentum;
    const struct hlo_value step = times(h, rate_of(call), g);
    if (states == 0)
        return step;
    s->new[0] = hlo_subtract(h, hlo_scaled(h, s->old[0], momentum), step);
    if (!call->attributes->nesterov)
        return hlo_unary(h, "negate", s->new[0]);
    return hlo_subtract(h, step, hlo_scaled(h, s->new[0], momentum));
}

static struct hlo_value adam(struct pjrt_call *call, const struct states *s, struct hlo_value g,
                             bool largest)
{
    struct hlo *h = call->h;
    move_moments(call, s, g);
    if (largest)
        s->new[2] = hlo_maximum(h, s->old[2], s->new[1]);
    return hlo_divide(h, times(h, adam_rate(call), s->new[0]),
                      root_plus(call, s->new[largest ? 2 : 1]));
}

static struct hlo_value rmsprop(struct pjrt_call *call, const struct states *s, struct hlo_value g,
                                bool centered)
{
    struct hlo *h = call->h;
    const struct ls_op_attributes *a = call->attributes;
    const uint32_t m = centered ? 2 : 1;
    s->new[0] = decayed(h, s->old[0], squared(h, g), a->beta2);
    struct hlo_value v = s->new[0];
    if (centered) {
        s->new[1] = decayed(h, s->old[1], g, a->beta2);
        v = hlo_subtract(h, v, squared(h, s->new[1]));
    }
    const struct hlo_value step = hlo_divide(h, times(h, rate_of(call), g), root_of_sum(call, v));
    if (a->momentum <= 0)
        return step;
    return s->new[m] = hlo_add(h, hlo_scaled(h, s->old[m], (double)a->momentum), step);
}

static struct hlo_value adagrad(struct pjrt_call *call, const struct states *s, struct hlo_value g)
{
    struct hlo *h = call->h;
    s->new[0] = hlo_add(h, s->old[0], squared(h, g));
    return hlo_divide(h, times(h, rate_of(call), g), root_of_sum(call, s->new[0]));
}

static struct hlo_value adadelta(struct pjrt_call *call, const struct states *s, struct hlo_value g)
{
    struct hlo *h = call->h;
    const float beta = call->attributes->beta2;
    s->new[0] = decayed(h, s->old[0], squared(h, g), beta);
    const struct hlo_value step = hlo_divide(h, hlo_multiply(h, g, root_of_sum(call, s->old[1])),
                                             root_of_sum(call, s->new[0]));
    s->new[1] = decayed(h, s->old[1], squared(h, step), beta);
    return times(h, rate_of(call), step);
}

static struct hlo_value adamax(struct pjrt_call *call, const struct states *s, struct hlo_value g)
{
    struct hlo *h = call->h;
    const struct ls_op_attributes *a = call->attributes;
    s->new[0] = moved(h, s->old[0], g, a->beta1);
    s->new[1] = hlo_maximum(h, hlo_scaled(h, s->old[1], (double)a->beta2), hlo_unary(h, "abs", g));
    const struct hlo_value factor = hlo_divide(h, rate_of(call), left(call, a->beta1));
    return hlo_divide(h, times(h, factor, s->new[0]), hlo_plus(h, s->new[1], (double)a->epsilon));
}

// ls_nadam_product(): the product of beta1 (1 - 0.96^i / 2) for i = 1 .. t, by a loop that ends
// when it no longer changes anything. `power` becomes 0.96^(i - 1).
static struct hlo_value nadam_product(struct pjrt_call *call)
{
    struct hlo *h = call->h;
    const struct hlo_value t = update_number(call), zero = scalar(h, 0), one = scalar(h, 1);
    const struct hlo_value least = scalar(h, 1e-20), base = scalar(h, 0.96);
    const struct hlo_value beta = scalar(h, (double)call->attributes->beta1);
    const struct hlo_value half = scalar(h, 0.5);
    const struct hlo_value loop = hlo_new(h, LS_F64, (struct hlo_shape){0});
    const struct hlo_value y = hlo_new(h, LS_F64, (struct hlo_shape){0});
    hlo_print(h,
              "%%%u:3 = stablehlo.while(%%i = %%%u, %%p = %%%u, %%q = %%%u) : tensor<f64>, "
              "tensor<f64>, tensor<f64>\ncond {\n"
              "%%a = stablehlo.compare LT, %%i, %%%u : (tensor<f64>, tensor<f64>) -> tensor<i1>\n"
              "%%b = stablehlo.compare GT, %%q, %%%u : (tensor<f64>, tensor<f64>) -> tensor<i1>\n"
              "%%c = stablehlo.and %%a, %%b : tensor<i1>\n"
              "stablehlo.return %%c : tensor<i1>\n} do {\n",
              loop.id, zero.id, one.id, one.id, t.id, least.id);
    hlo_print(h,
              "%%j = stablehlo.add %%i, %%%u : tensor<f64>\n"
              "%%k = stablehlo.multiply %%p, %%%u : tensor<f64>\n"
              "%%l = stablehlo.multiply %%k, %%%u : tensor<f64>\n"
              "%%m = stablehlo.subtract %%%u, %%l : tensor<f64>\n"
              "%%n = stablehlo.multiply %%%u, %%m : tensor<f64>\n"
              "%%o = stablehlo.multiply %%q, %%n : tensor<f64>\n"
              "stablehlo.return %%j, %%k, %%o : tensor<f64>, tensor<f64>, tensor<f64>\n}\n",
              one.id, base.id, half.id, one.id, beta.id);
    hlo_print(h, "%%%u = stablehlo.add %%%u#2, %%%u : tensor<f64>\n", y.id, loop.id, zero.id);
    return y;
}

// beta1 (1 - 0.96^t / 2)
static struct hlo_value nadam_momentum(struct pjrt_call *call, struct hlo_value t)
{
    struct hlo *h = call->h;
    const struct hlo_value power = hlo_binary(h, "power", scalar(h, 0.96), t);
    const struct hlo_value rest = hlo_subtract(h, scalar(h, 1), hlo_scaled(h, power, 0.5));
    return hlo_scaled(h, rest, (double)call->attributes->beta1);
}

// Nadam (Dozat 2016), with the momentum schedule of Sutskever et al. 2013.
static struct hlo_value nadam(struct pjrt_call *call, const struct states *s, struct hlo_value g)
{
    struct hlo *h = call->h;
    const struct hlo_value t = update_number(call), one = scalar(h, 1);
    const struct hlo_value now = nadam_momentum(call, t);
    const struct hlo_value next = nadam_momentum(call, hlo_plus(h, t, 1));
    const struct hlo_value product = nadam_product(call);
    move_moments(call, s, g);
    const struct hlo_value of_m =
        hlo_divide(h, next, hlo_subtract(h, one, hlo_multiply(h, product, next)));
    const struct hlo_value of_g =
        hlo_divide(h, hlo_subtract(h, one, now), hlo_subtract(h, one, product));
    const struct hlo_value way =
        hlo_add(h, times(h, hlo_multiply(h, rate_of(call), of_m), s->new[0]),
                times(h, hlo_multiply(h, rate_of(call), of_g), g));
    const struct hlo_value v =
        times(h, hlo_divide(h, one, left(call, call->attributes->beta2)), s->new[1]);
    return hlo_divide(h, way, root_plus(call, v));
}

static struct hlo_value step_of(struct pjrt_call *call, const struct states *s, uint32_t states,
                                struct hlo_value g)
{
    switch (call->attributes->function) {
    case LS_UPDATE_SGD: return sgd(call, s, states, g);
    case LS_UPDATE_ADAM: return adam(call, s, g, false);
    case LS_UPDATE_AMSGRAD: return adam(call, s, g, true);
    case LS_UPDATE_RMSPROP: return rmsprop(call, s, g, false);
    case LS_UPDATE_RMSPROP_CENTERED: return rmsprop(call, s, g, true);
    case LS_UPDATE_ADAGRAD: return adagrad(call, s, g);
    case LS_UPDATE_ADADELTA: return adadelta(call, s, g);
    case LS_UPDATE_ADAMAX: return adamax(call, s, g);
    default: return nadam(call, s, g);
    }
}

const char *pjrt_update_refusal(const struct ls_kernel_request *request)
{
    return request->attributes.function < LS_UPDATE_COUNT ? NULL : "an optimizer it does not know";
}

// w - w weight_decay lr
static struct hlo_value weight_decayed(struct pjrt_call *call, struct hlo_value w)
{
    struct hlo *h = call->h;
    const double decay = (double)call->attributes->weight_decay;
    if (decay == 0)
        return w;
    return hlo_subtract(h, w, times(h, hlo_multiply(h, rate_of(call), scalar(h, decay)), w));
}

// gradient -> parameter, [states]
void pjrt_update(struct pjrt_call *call)
{
    const struct states s = states_of(call, 1);
    for (uint32_t i = 1; i < call->output_count; i++)
        call->outputs[i] = call->old[i]; // a state that this function does not use
    const struct hlo_value step = step_of(call, &s, call->output_count - 1, call->inputs[0]);
    call->outputs[0] = hlo_subtract(call->h, weight_decayed(call, call->old[0]), step);
}

void pjrt_sgd_update(struct pjrt_call *call)
{
    const struct states s = states_of(call, 1);
    const struct hlo_value step = sgd(call, &s, call->output_count - 1, call->inputs[0]);
    call->outputs[0] = hlo_subtract(call->h, call->old[0], step);
}

void pjrt_adam_update(struct pjrt_call *call)
{
    const struct states s = states_of(call, 1);
    call->outputs[0] = hlo_subtract(call->h, call->old[0], adam(call, &s, call->inputs[0], false));
}

void pjrt_average_update(struct pjrt_call *call)
{
    call->outputs[0] = decayed(call->h, call->old[0], call->inputs[0], call->attributes->momentum);
}

// ---- LAMB ----

// gradient -> direction, parameter, first moment, second moment
void pjrt_lamb_direction(struct pjrt_call *call)
{
    struct hlo *h = call->h;
    const struct ls_op_attributes *a = call->attributes;
    const struct states s = states_of(call, 2);
    const struct hlo_value one = scalar(h, 1);
    move_moments(call, &s, call->inputs[0]);
    const struct hlo_value m = times(h, hlo_divide(h, one, left(call, a->beta1)), s.new[0]);
    const struct hlo_value v = times(h, hlo_divide(h, one, left(call, a->beta2)), s.new[1]);
    call->outputs[0] = hlo_divide(h, m, root_plus(call, v));
    call->outputs[1] = weight_decayed(call, call->old[1]);
}

static struct hlo_value element(struct hlo *h, struct hlo_value flat, int64_t i)
{
    return hlo_reshape(h, hlo_part(h, flat, i, 1), (struct hlo_shape){0});
}

// direction, measures -> parameter
void pjrt_lamb_update(struct pjrt_call *call)
{
    struct hlo *h = call->h;
    const struct hlo_value zero = scalar(h, 0);
    const struct hlo_value w = element(h, call->inputs[1], 0), d = element(h, call->inputs[1], 2);
    const struct hlo_value both =
        hlo_binary(h, "and", hlo_compare(h, "GT", w, zero), hlo_compare(h, "GT", d, zero));
    const struct hlo_value ratio = hlo_select(
        h, both, hlo_divide(h, hlo_unary(h, "sqrt", w), hlo_unary(h, "sqrt", d)), scalar(h, 1));
    call->outputs[0] = hlo_subtract(
        h, call->old[0], times(h, hlo_multiply(h, ratio, rate_of(call)), call->inputs[0]));
}

// ---- Clipping, scaling, averages of weights ----

// The norm: NaN where an element that was measured was not finite.
static struct hlo_value norm_of(struct hlo *h, struct hlo_value measures)
{
    static const int64_t pair[2] = {0, 0}, odd[2] = {0, 1};
    const int64_t pairs = measures.shape.dims[0] / 2;
    const int64_t first_end[2] = {pairs, 1}, second_end[2] = {pairs, 2};
    const struct hlo_value both = hlo_reshape(h, measures, HLO_SHAPE(pairs, 2));
    const struct hlo_value squares = hlo_slice(h, both, pair, first_end, NULL);
    const struct hlo_value others = hlo_slice(h, both, odd, second_end, NULL);
    const struct hlo_value each =
        hlo_select(h, hlo_compare(h, "GT", others, hlo_like(h, others, 0)),
                   hlo_like(h, others, (double)NAN), squares);
    return hlo_unary(h, "sqrt", hlo_reduce(h, "add", each, 3, 0));
}

void pjrt_clip(struct pjrt_call *call)
{
    struct hlo *h = call->h;
    const struct hlo_value x = call->inputs[0];
    const double bound = (double)call->attributes->threshold;
    if (call->attributes->function == LS_CLIP_VALUE) {
        call->outputs[0] =
            hlo_minimum(h, hlo_maximum(h, x, hlo_like(h, x, -bound)), hlo_like(h, x, bound));
        return;
    }
    const struct hlo_value norm = norm_of(h, call->inputs[1]), least = scalar(h, bound);
    const struct hlo_value factor =
        hlo_select(h, hlo_compare(h, "LE", norm, least), scalar(h, 1), hlo_divide(h, least, norm));
    call->outputs[0] = times(h, factor, x);
}

const char *pjrt_clip_refusal(const struct ls_kernel_request *request)
{
    return request->attributes.function < LS_CLIP_COUNT ? NULL : "a function it does not know";
}

void pjrt_unscale(struct pjrt_call *call)
{
    struct hlo *h = call->h;
    const struct hlo_value x = call->inputs[0];
    call->outputs[0] =
        hlo_divide(h, x, hlo_spread(h, PJRT_RECORD(call, loss_scale, LS_F32), x.shape));
}

// parameter -> average, parameter
void pjrt_ema_update(struct pjrt_call *call)
{
    struct hlo *h = call->h;
    const struct hlo_value t = PJRT_RECORD(call, update, HLO_U64), w = call->inputs[0];
    const struct hlo_value first = hlo_compare(h, "EQ", t, hlo_like(h, t, 1));
    const struct hlo_value mean = decayed(h, call->old[0], w, call->attributes->momentum);
    call->outputs[0] = hlo_select(h, first, w, mean);
    call->outputs[1] = call->old[1];
    if (!call->attributes->count)
        return;
    const struct hlo_value every = hlo_like(h, t, (double)call->attributes->count);
    const struct hlo_value due =
        hlo_compare(h, "EQ", hlo_binary(h, "remainder", t, every), hlo_like(h, t, 0));
    call->outputs[1] = hlo_select(h, due, call->outputs[0], call->old[1]);
}

// ---- Measures ----

// x -> sum of squares of the finite elements, number of the others
void pjrt_measure(struct pjrt_call *call)
{
    struct hlo *h = call->h;
    const struct hlo_value x = hlo_convert(h, call->inputs[0], LS_F64), zero = hlo_like(h, x, 0);
    const struct hlo_value finite = hlo_unary(h, "is_finite", call->inputs[0]);
    const struct hlo_value squares = hlo_select(h, finite, squared(h, x), zero);
    const struct hlo_value others = hlo_select(h, finite, zero, hlo_like(h, x, 1));
    const struct hlo_value both[2] = {
        hlo_reshape(h, hlo_reduce(h, "add", squares, 1, 0), hlo_flat(1)),
        hlo_reshape(h, hlo_reduce(h, "add", others, 1, 0), hlo_flat(1))};
    call->outputs[0] = hlo_concatenate(h, both, 2, 0);
}

// x -> flag, skip
void pjrt_guard(struct pjrt_call *call)
{
    struct hlo *h = call->h;
    const struct hlo_value finite =
        hlo_convert(h, hlo_unary(h, "is_finite", call->inputs[0]), LS_I32);
    const struct hlo_value all =
        hlo_reshape(h, hlo_reduce(h, "minimum", finite, 1, 1), hlo_flat(1));
    const struct hlo_value one = hlo_like(h, all, 1);
    const struct hlo_value flag =
        hlo_select(h, hlo_compare(h, "EQ", all, hlo_like(h, all, 0)), one, call->old[0]);
    call->outputs[0] = flag;
    call->outputs[1] =
        hlo_select(h, hlo_compare(h, "NE", flag, hlo_like(h, flag, 0)), one, call->old[1]);
}
