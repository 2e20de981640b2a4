// SPDX-License-Identifier: Apache-2.0
// Runs a case: what is wanted comes from the reference device, in plain layouts; then the tested device
// runs it in every variant of layouts, twice, and in place where it says it can.
#include "tools/conformance/device/suite.h"
#include "core/plugin/half.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const variant_names[LS_DEVICE_VARIANT_COUNT] = {
    "plain layouts",
    "plain inputs",
    "upstream layouts",
    "free layouts",
};

static const char *const variant_colons[LS_DEVICE_VARIANT_COUNT] = {
    "plain layouts: ",
    "plain inputs: ",
    "upstream layouts: ",
    "free layouts: ",
};

// What is wanted, and how far from it a result may be; one for each output.
struct expectation {
    const struct ls_device_case *c; // in float32
    void *wanted[LS_DEVICE_ARGUMENTS];
    void *slack[LS_DEVICE_ARGUMENTS]; // doubles
};

static void free_all(void **list)
{
    for (uint32_t i = 0; i < LS_DEVICE_ARGUMENTS; i++) {
        free(list[i]);
        list[i] = NULL;
    }
}

// Host memory for the outputs of a case, plain order.
static bool allocate_outputs(struct ls_device_suite *suite, const struct ls_device_case *c,
                             void **out)
{
    for (uint32_t i = 0; i < c->request.output_count; i++) {
        out[i] =
            calloc(1, ls_device_plain_bytes(&c->request.arguments[c->request.input_count + i]) + 1);
        if (!out[i])
            return ls_device_suite_fail(suite, "no host memory");
    }
    return true;
}

// ---- What is wanted ----

static bool run_reference(struct ls_device_suite *suite, const struct ls_device_case *c,
                          void **outputs)
{
    struct ls_device_trial trial;
    const int32_t status =
        ls_device_trial_open(&trial, suite, suite->reference, c, LS_DEVICE_ALL_PLAIN);
    bool good = !status;

    if (status == LS_UNSUPPORTED)
        ls_device_suite_fail(suite, "the reference device refuses it: %s",
                             suite->reference->message);
    good = good && ls_device_trial_run(&trial, false, -1, outputs);
    ls_device_trial_close(&trial);
    return good;
}

// The case without what follows the operation: no epilogue, no accumulation.
static void strip(struct ls_device_case *c)
{
    struct ls_device_request *request = &c->request;
    const bool extra = request->attributes.epilogue == LS_OP_ACTIVATION_BACKWARD;
    const uint32_t y = request->input_count - 1;

    request->attributes.epilogue = LS_OP_NONE;
    request->accumulate = 0;
    for (uint32_t i = 0; i < request->output_count; i++)
        c->values[request->input_count + i] = NULL;
    if (!extra)
        return;
    for (uint32_t i = y; i < y + request->output_count; i++) {
        request->arguments[i] = request->arguments[i + 1];
        c->roles[i] = c->roles[i + 1];
        c->values[i] = c->values[i + 1];
    }
    request->input_count--;
}

// Sums of the magnitudes of all terms: the operation on |inputs| in which it is linear.
static bool run_magnitudes(struct ls_device_suite *suite, const struct ls_device_case *c,
                           void **outputs)
{
    struct ls_device_case copy = *c;
    float *magnitudes[LS_DEVICE_ARGUMENTS] = {NULL};
    bool good = true;

    strip(&copy);
    for (uint32_t i = 0; good && i < copy.request.input_count; i++) {
        if (!(c->magnitude_inputs >> i & 1))
            continue;
        const uint64_t count = ls_tensor_elements(&copy.request.arguments[i]);
        const float *values = c->values[i];
        magnitudes[i] = malloc(count * sizeof(float));
        good = magnitudes[i] && values ? true : ls_device_suite_fail(suite, "no host memory");
        for (uint64_t k = 0; good && k < count; k++)
            magnitudes[i][k] = fabsf(values[k]);
        copy.values[i] = magnitudes[i];
    }
    good = good && run_reference(suite, &copy, outputs);
    for (uint32_t i = 0; i < LS_DEVICE_ARGUMENTS; i++)
        free(magnitudes[i]);
    return good;
}

// How much the epilogue can stretch an error, at element i of the first output.
static double epilogue_stretch(const struct ls_device_case *c, uint64_t i, double wanted)
{
    const struct ls_op_attributes *a = &c->request.attributes;
    const double own = a->epilogue_activation == LS_SELU ? LS_SELU_SCALE * LS_SELU_ALPHA : 1;
    const double alpha = fmax(own, (double)a->epilogue_alpha);
    if (a->epilogue == LS_OP_ACTIVATION)
        return a->epilogue_activation == LS_EXPONENTIAL ? 1.1 * fabs(wanted) : alpha;
    if (a->epilogue == LS_OP_ACTIVATION_BACKWARD)
        return alpha + fabs((double)((const float *)c->values[c->request.input_count - 1])[i]);
    return 1;
}

static double element(const struct ls_tensor_desc *desc, const void *values, uint64_t i)
{
    switch (desc->dtype) {
    case LS_F64: return ((const double *)values)[i];
    case LS_BF16:
    case LS_F16: return (double)ls_half_get(desc->dtype, ((const uint16_t *)values)[i]);
    default: return (double)((const float *)values)[i];
    }
}

static bool is_exact(const struct ls_device_tolerance *t)
{
    return t->of_magnitude <= 0 && t->relative <= 0 && t->absolute <= 0;
}

// Whether a bias, or what is like one, is added to the first output.
static bool has_bias(const struct ls_device_request *request)
{
    switch (request->op) {
    case LS_OP_CONV2D:
    case LS_OP_DENSE: return request->input_count > 2;
    case LS_OP_BATCH_NORMALIZATION: return request->input_count > 3;
    case LS_OP_BATCH_NORMALIZATION_INFERENCE: return request->input_count > 5;
    default: return false;
    }
}

// What the roundings of a half type may cost at element i of a result: that of the result; and, where something follows the
// operation (bias, addend, epilogue, addition), one before it, stretched by what follows. `alone` is the operation without that,
// NULL where nothing follows but a bias or an addend, which is 1 at most.
static double half_slack(const struct ls_device_case *c, uint32_t dtype, uint32_t index, uint64_t i,
                         double wanted, const float *alone, double own)
{
    const bool first = index == c->request.input_count;
    const bool bias = first && has_bias(&c->request);
    const double inside = c->inside[index] * (dtype == LS_BF16 ? 8 : 1); // 8 bits instead of 11
    own += inside;
    double slack = inside + ls_device_rounding(dtype, fabs(wanted) + own);
    if (!alone && !bias)
        return slack;
    const double before =
        ls_device_rounding(dtype, (alone ? fabs((double)alone[i]) : fabs(wanted)) + bias);
    if (first && c->request.attributes.epilogue == LS_OP_ACTIVATION &&
        c->request.attributes.epilogue_activation == LS_EXPONENTIAL)
        return slack + fabs(wanted) * expm1(before);
    return slack + before * (first ? epilogue_stretch(c, i, wanted) : 1);
}

// `tested` is the case as the device runs it, perhaps in halves.
static void fill_slack(const struct ls_device_case *c, const struct ls_device_case *tested,
                       uint32_t output, const void *wanted, const float *magnitudes,
                       const float *alone, double *slack)
{
    const uint32_t index = c->request.input_count + output;
    const struct ls_tensor_desc *desc = &c->request.arguments[index];
    const struct ls_device_tolerance *t = &c->tolerances[index];
    const float *before = c->request.accumulate >> output & 1 ? c->values[index] : NULL;
    const bool epilogue = output == 0 && c->request.attributes.epilogue != LS_OP_NONE;
    const uint32_t dtype = tested->request.arguments[index].dtype;
    const bool half = dtype != desc->dtype && (!is_exact(t) || before || epilogue);

    for (uint64_t i = 0; i < ls_tensor_elements(desc); i++) {
        const double w = element(desc, wanted, i);
        double own = t->relative * fabs(w) + t->absolute;
        if (magnitudes)
            own += t->of_magnitude * fabs((double)magnitudes[i]);
        if (epilogue)
            own = own * epilogue_stretch(c, i, w) + LS_DEVICE_FUNCTION.relative * fabs(w) +
                  LS_DEVICE_FUNCTION.absolute;
        if (before) // two more roundings
            own += 0x1p-22 * (fabs((double)before[i]) + fabs(w));
        slack[i] = own;
        if (half)
            slack[i] += half_slack(c, dtype, index, i, w, epilogue || before ? alone : NULL, own);
    }
}

// The operation without what follows it, of the same values.
static bool run_alone(struct ls_device_suite *suite, const struct ls_device_case *c, void **outputs)
{
    struct ls_device_case copy = *c;
    strip(&copy);
    return allocate_outputs(suite, &copy, outputs) && run_reference(suite, &copy, outputs);
}

static bool expect(struct ls_device_suite *suite, const struct ls_device_case *c,
                   const struct ls_device_case *tested, struct expectation *e)
{
    void *magnitudes[LS_DEVICE_ARGUMENTS] = {NULL}, *alone[LS_DEVICE_ARGUMENTS] = {NULL};
    bool good = allocate_outputs(suite, c, e->wanted) && run_reference(suite, c, e->wanted);

    e->c = c;
    if (good && c->magnitude_inputs)
        good = allocate_outputs(suite, c, magnitudes) && run_magnitudes(suite, c, magnitudes);
    if (good && tested != c && (c->request.accumulate || c->request.attributes.epilogue))
        good = run_alone(suite, c, alone);
    for (uint32_t i = 0; good && i < c->request.output_count; i++) {
        const uint32_t index = c->request.input_count + i;
        if (c->roles[index] == LS_DEVICE_SAVED)
            continue;
        e->slack[i] = malloc(ls_tensor_elements(&c->request.arguments[index]) * sizeof(double));
        if (!e->slack[i])
            good = ls_device_suite_fail(suite, "no host memory");
        else
            fill_slack(c, tested, i, e->wanted[i], magnitudes[i], alone[i], e->slack[i]);
    }
    free_all(magnitudes);
    free_all(alone);
    return good;
}

// ---- Comparing ----

static void describe_position(const struct ls_tensor_desc *desc, uint64_t index, char *text,
                              size_t bytes)
{
    uint64_t stride = ls_tensor_elements(desc);
    size_t length = 0;

    for (uint32_t i = 0; i < desc->ndims && length < bytes; i++) {
        stride /= (uint64_t)desc->dims[i];
        length += (size_t)snprintf(text + length, bytes - length, "%s%llu", i ? "," : "",
                                   (unsigned long long)(index / stride % (uint64_t)desc->dims[i]));
    }
}

static bool is_close(uint32_t dtype, double got, double wanted, double slack)
{
    if (isinf(got) && got != wanted) // beyond what a half holds
        return !signbit(got) == !signbit(wanted) &&
               fabs(wanted) + slack >= ls_device_overflow(dtype);
    return got == wanted || fabs(got - wanted) <= slack || (isnan(got) && isnan(wanted));
}

static bool compare(struct ls_device_suite *suite, const struct ls_device_trial *trial,
                    const struct expectation *e, void *const *got)
{
    const struct ls_device_case *c = trial->c;

    for (uint32_t o = 0; o < c->request.output_count; o++) {
        const struct ls_tensor_desc *desc = &c->request.arguments[c->request.input_count + o];
        const struct ls_tensor_desc *of_wanted =
            &e->c->request.arguments[c->request.input_count + o];
        const double *slack = e->slack[o];
        if (!slack)
            continue;
        for (uint64_t i = 0; i < ls_tensor_elements(desc); i++) {
            const double a = element(desc, got[o], i), b = element(of_wanted, e->wanted[o], i);
            if (is_close(desc->dtype, a, b, slack[i]))
                continue;
            char position[96];
            describe_position(desc, i, position, sizeof(position));
            return ls_device_suite_fail(
                suite, "%s: output %u at (%s): got %.9g, expected %.9g, tolerance %.2g; %s",
                variant_names[trial->variant], o, position, a, b, slack[i],
                trial->session.answer.implementation);
        }
    }
    return true;
}

static bool same_bits(struct ls_device_suite *suite, const struct ls_device_trial *trial,
                      const char *what, void *const *a, void *const *b)
{
    const struct ls_device_case *c = trial->c;

    for (uint32_t o = 0; o < c->request.output_count; o++) {
        const uint32_t index = c->request.input_count + o;
        if (c->roles[index] != LS_DEVICE_SAVED &&
            memcmp(a[o], b[o], ls_device_plain_bytes(&c->request.arguments[index])) != 0)
            return ls_device_suite_fail(suite, "%s: output %u has other bits %s; %s",
                                        variant_names[trial->variant], o, what,
                                        trial->session.answer.implementation);
    }
    return true;
}

// ---- Variants ----

// Output 0 where input `input` lies, wherever the kernel says so.
static bool run_in_place(struct ls_device_suite *suite, struct ls_device_trial *trial,
                         void *const *first)
{
    const struct ls_device_request *request = &trial->session.request;
    void *again[LS_DEVICE_ARGUMENTS] = {NULL};
    bool good = allocate_outputs(suite, trial->c, again);

    for (uint32_t i = 0; good && i < request->input_count; i++) {
        if (!(trial->session.answer.in_place >> i & 1) || request->accumulate & 1)
            continue;
        if (request->arguments[i].layout.bytes !=
            request->arguments[request->input_count].layout.bytes)
            good = ls_device_suite_fail(
                suite, "says that output 0 may lie where input %u lies, of another size", i);
        else
            good = ls_device_trial_run(trial, true, (int32_t)i, again) &&
                   same_bits(suite, trial, "in place", first, again);
    }
    free_all(again);
    return good;
}

static bool run_twice(struct ls_device_suite *suite, struct ls_device_trial *trial,
                      const struct expectation *e)
{
    void *first[LS_DEVICE_ARGUMENTS] = {NULL}, *second[LS_DEVICE_ARGUMENTS] = {NULL};
    const bool good =
        allocate_outputs(suite, trial->c, first) && allocate_outputs(suite, trial->c, second) &&
        ls_device_trial_run(trial, false, -1, first) && compare(suite, trial, e, first) &&
        ls_device_trial_run(trial, true, -1, second) &&
        same_bits(suite, trial, "when run again", first, second) &&
        run_in_place(suite, trial, first);
    free_all(first);
    free_all(second);
    return good;
}

// The layouts of the variants that ran, so that none runs twice.
struct done {
    uint32_t count;
    struct ls_layout layouts[LS_DEVICE_VARIANT_COUNT][LS_DEVICE_ARGUMENTS];
};

static bool is_new(struct done *done, const struct ls_kernel_answer *answer)
{
    for (uint32_t i = 0; i < done->count; i++)
        if (memcmp(done->layouts[i], answer->layouts, sizeof(done->layouts[i])) == 0)
            return false;
    memcpy(done->layouts[done->count++], answer->layouts, sizeof(done->layouts[0]));
    return true;
}

// A device need not know every mixture of its layouts, nor add into every output, nor fuse in every
// mixture: the host then converts, adds and runs the epilogue by itself.
static bool may_refuse(const struct ls_device_trial *trial)
{
    const struct ls_device_request *request = &trial->c->request;
    const bool mixed =
        trial->variant == LS_DEVICE_PLAIN_INPUTS || trial->variant == LS_DEVICE_UPSTREAM;
    return trial->own_fixed || request->accumulate ||
           (mixed && request->attributes.epilogue != LS_OP_NONE);
}

// `refused` gets the reason when the device may refuse the variant and does.
static bool run_variant(struct ls_device_suite *suite, const struct ls_device_case *c,
                        enum ls_device_variant variant, const struct expectation *e,
                        struct done *done, char *refused, size_t refused_bytes)
{
    struct ls_device_trial trial;
    const int32_t status = ls_device_trial_open(&trial, suite, suite->tested, c, variant);
    bool good = !status;

    if (status == LS_UNSUPPORTED) {
        good = may_refuse(&trial);
        if (good)
            snprintf(refused, refused_bytes, "%s: %s", variant_names[variant],
                     suite->tested->message);
        else
            ls_device_suite_refuse(suite, variant_colons[variant], suite->tested->message);
    } else if (good && is_new(done, &trial.session.answer)) {
        good = run_twice(suite, &trial, e);
        snprintf(suite->note, sizeof(suite->note), "%s%s", trial.session.answer.implementation,
                 trial.session.answer.slow ? " (slow)" : "");
    }
    ls_device_trial_close(&trial);
    return good;
}

static bool draw_values(struct ls_device_suite *suite, struct ls_device_case *c,
                        struct ls_device_case *narrow)
{
    ls_device_case_values(c);
    return !suite->dtype || ls_device_case_narrow_values(c, narrow) ||
           ls_device_suite_fail(suite, "no host memory");
}

// A device that has not offered a type takes it nowhere.
static void expect_refusal(struct ls_device_suite *suite, const struct ls_device_case *c)
{
    struct ls_device_trial trial;
    if (ls_device_trial_open(&trial, suite, suite->tested, c, LS_DEVICE_ALL_PLAIN) == LS_OK)
        ls_device_suite_fail(suite, "it converts none, yet takes: %s", c->name);
    ls_device_trial_close(&trial);
}

bool ls_device_case_offered(struct ls_device_suite *suite, struct ls_device_case *c,
                            const char *name)
{
    struct ls_device_request request = c->request;
    struct ls_device_session session;
    for (uint32_t i = 0; i < request.input_count + request.output_count; i++)
        request.arguments[i].layout = ls_device_plain_layout(&request.arguments[i]);
    const int32_t status = ls_device_session_prepare(&session, suite, suite->tested, &request);
    ls_device_session_close(&session);
    ls_device_case_finish(c);
    if (status == LS_UNSUPPORTED && name && !suite->dtype && ls_device_suite_begin(suite, name))
        ls_device_suite_end(suite, name, suite->tested->message);
    return status != LS_UNSUPPORTED;
}

void ls_device_case_run(struct ls_device_suite *suite, struct ls_device_case *c)
{
    struct expectation e = {0};
    struct done done = {0};
    struct ls_device_case narrow = {0}; // what the device runs where that has halves
    const struct ls_device_case *tested = suite->dtype ? &narrow : c;
    char refused[600] = "";

    const bool runs = !suite->dtype || ls_device_case_narrow(suite, c, &narrow);
    if (runs && suite->missing) {
        expect_refusal(suite, tested);
    } else if (runs && ls_device_suite_begin(suite, tested->name)) {
        bool good = draw_values(suite, c, &narrow) && expect(suite, c, tested, &e);
        for (uint32_t variant = 0; good && variant < LS_DEVICE_VARIANT_COUNT; variant++)
            good = run_variant(suite, tested, variant, &e, &done, refused, sizeof(refused));
        ls_device_suite_end(suite, tested->name, done.count == 0 && refused[0] ? refused : NULL);
    }
    free_all(e.wanted);
    free_all(e.slack);
    ls_device_case_finish(&narrow);
    ls_device_case_finish(c);
}
