// SPDX-License-Identifier: Apache-2.0
// LS_OP_LOSS, LS_OP_POSITION_LOSS, LS_OP_MASKED_MEAN and LS_OP_METRIC: each example by one thread,
// in float32, sums in double precision and in the order of the examples.
#include "plugins/device/cpu/cpu.h"

#include <math.h>
#include <string.h>

// What a launch computes.
struct job {
    const struct ls_op_attributes *a;
    int64_t examples, positions, classes;
    const float *t, *weights; // t NULL: labels
    bool of_positions; // `weights` has one a position, else one an example
    float grown; // what every weight is multiplied by, for positions that a mask leaves out
    const int32_t *labels;
    float scale;
    double *losses; // forward: one an example
    float *values; // of positions, forward
    double *counts; // of a metric
    const struct ls_device *device;
    struct cpu_row_pass pass; // positions of the predictions
};

static uint64_t rooms_of(const struct ls_device *device, const struct ls_tensor_desc *predictions)
{
    return cpu_row_rooms(device, predictions->dtype, predictions->dims[predictions->ndims - 1]);
}

// `results` (of doubles) are in scratch, behind the rooms.
static struct job job_of(const struct ls_device *device, const struct ls_kernel *kernel,
                         const struct cpu_call *launch, cpu_row_loop *loop, double **results)
{
    const struct ls_tensor_desc *desc = &kernel->arguments[0];
    const bool labels = kernel->arguments[1].dtype == LS_I32;
    const int64_t classes = desc->dims[desc->ndims - 1], examples = desc->dims[0];
    const int64_t rows = (int64_t)ls_tensor_elements(desc) / classes;
    const bool weighted = kernel->input_count > 2;
    const double *moments = kernel->input_count > 3 ? launch->arguments[3] : NULL;
    *results = (double *)(void *)cpu_past(launch->scratch, rooms_of(device, desc));
    return (struct job){.a = &kernel->attributes,
                        .examples = examples,
                        .positions = rows / examples,
                        .classes = classes,
                        .device = device,
                        .pass = {.loop = loop,
                                 .dtype = desc->dtype,
                                 .columns = classes,
                                 .in = {launch->arguments[0]},
                                 .rooms = launch->scratch},
                        .t = labels ? NULL : launch->arguments[1],
                        .labels = labels ? launch->arguments[1] : NULL,
                        .weights = weighted ? launch->arguments[2] : NULL,
                        .of_positions = weighted && kernel->arguments[2].ndims > 1,
                        .grown = !moments         ? 1.0f
                                 : moments[0] > 0 ? (float)(moments[2] / moments[0])
                                                  : 0.0f};
}

// ---- One element: its loss, and the slope of it ----

static inline float clip(float x, float low, float high)
{
    return x < low ? low : x > high ? high : x;
}

static inline float sign(float x)
{
    return (float)((x > 0) - (x < 0));
}

static float binary(const struct ls_op_attributes *a, float p, float target, float *slope)
{
    const float t = target * (1.0f - a->smoothing) + 0.5f * a->smoothing;
    if (a->from_logits) {
        const float e = expf(-fabsf(p)), q = p >= 0 ? 1.0f / (1.0f + e) : e / (1.0f + e);
        *slope = q - t;
        return (p > 0 ? p : 0.0f) - p * t + log1pf(e);
    }
    const float q = clip(p, a->epsilon, 1.0f - a->epsilon);
    *slope = q == p ? (1.0f - t) / (1.0f - q) - t / q : 0.0f;
    return -t * logf(q) - (1.0f - t) * logf(1.0f - q);
}

static float element(const struct ls_op_attributes *a, float p, float t, float *slope)
{
    const float e = p - t, size = fabsf(e), delta = a->threshold;
    float value, other;
    switch (a->function) {
    case LS_LOSS_BINARY: return binary(a, p, t, slope);
    case LS_LOSS_SQUARED: *slope = 2.0f * e; return e * e;
    case LS_LOSS_ABSOLUTE: *slope = sign(e); return size;
    case LS_LOSS_PERCENTAGE:
        other = fmaxf(fabsf(t), a->epsilon);
        *slope = 100.0f * sign(e) / other;
        return 100.0f * size / other;
    case LS_LOSS_LOGARITHMIC:
        value = log1pf(fmaxf(p, a->epsilon)) - log1pf(fmaxf(t, a->epsilon));
        *slope = p > a->epsilon ? 2.0f * value / (1.0f + p) : 0.0f;
        return value * value;
    case LS_LOSS_HUBER:
        *slope = size <= delta ? e : delta * sign(e);
        return size <= delta ? 0.5f * e * e : delta * size - 0.5f * delta * delta;
    case LS_LOSS_LOG_COSH:
        *slope = tanhf(e);
        return size < 0.1f ? logf(coshf(e)) : size + log1pf(expf(-2.0f * size)) - logf(2.0f);
    case LS_LOSS_POISSON: *slope = 1.0f - t / (p + a->epsilon); return p - t * logf(p + a->epsilon);
    case LS_LOSS_HINGE:
    case LS_LOSS_SQUARED_HINGE:
        other = t == 0 ? -1.0f : t;
        value = fmaxf(1.0f - other * p, 0.0f);
        *slope = value > 0 ? -other : 0.0f;
        if (a->function == LS_LOSS_HINGE)
            return value;
        *slope *= 2.0f * value;
        return value * value;
    case LS_LOSS_VALUES: *slope = 1.0f; return p;
    default: *slope = NAN; return NAN;
    }
}

static double elements(const struct job *job, const float *p, const float *t, float *slopes)
{
    const float share = 1.0f / (float)job->classes;
    double loss = 0;
    for (int64_t i = 0; i < job->classes; i++) {
        float slope;
        loss += (double)element(job->a, p[i], t[i], &slope);
        if (slopes)
            slopes[i] = slope * share;
    }
    return loss / (double)job->classes;
}

// ---- One position ----

static float largest_of(const float *p, int64_t n)
{
    float largest = p[0];
    for (int64_t i = 1; i < n; i++)
        largest = p[i] > largest ? p[i] : largest;
    return largest;
}

static double sum_of(const struct job *job, const float *p, float largest, bool clips)
{
    const struct ls_op_attributes *a = job->a;
    double sum = 0;
    for (int64_t i = 0; i < job->classes; i++)
        sum += (double)(a->from_logits ? expf(p[i] - largest)
                        : clips        ? clip(p[i], a->epsilon, 1.0f - a->epsilon)
                                       : p[i]);
    return sum;
}

static double sparse(const struct job *job, const float *p, int32_t label, float *slopes)
{
    const struct ls_op_attributes *a = job->a;
    const float largest = largest_of(p, job->classes), high = 1.0f - a->epsilon;
    const double sum = sum_of(job, p, largest, true);
    const float factor = (float)(1.0 / sum);
    const bool wrong = label < 0 || label >= job->classes;
    for (int64_t i = 0; slopes && i < job->classes; i++) {
        const float c = clip(p[i], a->epsilon, high), is = i == label ? 1.0f : 0.0f;
        if (a->from_logits)
            slopes[i] = expf(p[i] - largest) * factor - is;
        else
            slopes[i] = c == p[i] ? (c * factor - is) / c : 0.0f;
        if (wrong)
            slopes[i] = NAN;
    }
    if (wrong)
        return (double)NAN;
    return a->from_logits ? log(sum) - (double)(p[label] - largest)
                          : log(sum) - log((double)clip(p[label], a->epsilon, high));
}

static double categorical(const struct job *job, const float *p, const float *t, float *slopes)
{
    const struct ls_op_attributes *a = job->a;
    const float keep = 1.0f - a->smoothing, more = a->smoothing / (float)job->classes;
    const float largest = largest_of(p, job->classes), high = 1.0f - a->epsilon;
    const double sum = sum_of(job, p, largest, false);
    const float factor = (float)(1.0 / sum), log_sum = (float)log(sum);
    double loss = 0, targets = 0, product = 0;
    for (int64_t i = 0; i < job->classes; i++)
        targets += (double)(t[i] * keep + more);
    for (int64_t i = 0; i < job->classes; i++) {
        const float y = t[i] * keep + more, q = p[i] * factor, c = clip(q, a->epsilon, high);
        if (a->from_logits) {
            loss += (double)(y * (log_sum - (p[i] - largest)));
            if (slopes)
                slopes[i] = (float)targets * expf(p[i] - largest) * factor - y;
            continue;
        }
        loss -= (double)(y * logf(c));
        product -= c == q ? (double)y : 0.0;
        if (slopes)
            slopes[i] = c == q ? -y / c : 0.0f;
    }
    for (int64_t i = 0; slopes && !a->from_logits && i < job->classes; i++)
        slopes[i] = (slopes[i] - (float)product) * factor;
    return loss;
}

static double divergence(const struct job *job, const float *p, const float *t, float *slopes)
{
    const float epsilon = job->a->epsilon;
    double loss = 0;
    for (int64_t i = 0; i < job->classes; i++) {
        const float q = clip(p[i], epsilon, 1.0f), y = clip(t[i], epsilon, 1.0f);
        loss += (double)(y * logf(y / q));
        if (slopes)
            slopes[i] = q == p[i] ? -y / q : 0.0f;
    }
    return loss;
}

static double categorical_hinge(const struct job *job, const float *p, const float *t,
                                float *slopes)
{
    double right = 0;
    float wrong = -INFINITY;
    int64_t worst = 0;
    for (int64_t i = 0; i < job->classes; i++) {
        const float other = (1.0f - t[i]) * p[i];
        right += (double)(t[i] * p[i]);
        worst = other > wrong ? i : worst;
        wrong = other > wrong ? other : wrong;
    }
    const double loss = (double)wrong - right + 1.0;
    for (int64_t i = 0; slopes && i < job->classes; i++)
        slopes[i] = loss > 0 ? (i == worst ? 1.0f - t[i] : 0.0f) - t[i] : 0.0f;
    return loss > 0 ? loss : 0.0;
}

static double cosine(const struct job *job, const float *p, const float *t, float *slopes)
{
    const double least = (double)job->a->epsilon;
    double pp = 0, tt = 0, product = 0;
    for (int64_t i = 0; i < job->classes; i++) {
        pp += (double)p[i] * (double)p[i];
        tt += (double)t[i] * (double)t[i];
        product += (double)t[i] * (double)p[i];
    }
    const double norm = fmax(sqrt(pp), least), of_targets = fmax(sqrt(tt), least);
    const double turn = sqrt(pp) > least ? product / pp : 0.0;
    for (int64_t i = 0; slopes && i < job->classes; i++)
        slopes[i] = (float)((turn * (double)p[i] - (double)t[i]) / (norm * of_targets));
    return -product / (norm * of_targets);
}

// `p`: the predictions of position i.
static double position_loss(const struct job *job, const float *p, int64_t i, float *slopes)
{
    const float *t = job->t ? job->t + i * job->classes : NULL;
    switch (job->a->function) {
    case LS_LOSS_SPARSE: return sparse(job, p, job->labels[i], slopes);
    case LS_LOSS_CATEGORICAL: return categorical(job, p, t, slopes);
    case LS_LOSS_DIVERGENCE: return divergence(job, p, t, slopes);
    case LS_LOSS_CATEGORICAL_HINGE: return categorical_hinge(job, p, t, slopes);
    case LS_LOSS_COSINE: return cosine(job, p, t, slopes);
    default: return elements(job, p, t, slopes);
    }
}

// Of position i.
static float weight_at(const struct job *job, int64_t i)
{
    if (!job->weights)
        return 1.0f;
    return job->grown * job->weights[job->of_positions ? i : i / job->positions];
}

// ---- Launches ----

static void forward_rows(const void *context, const float *const *in, float *out, int64_t first,
                         int64_t rows)
{
    const struct job *job = context;
    (void)out;
    for (int64_t i = 0; i < rows; i++) {
        const float weight = weight_at(job, first + i);
        if (weight != 0)
            job->losses[(first + i) / job->positions] +=
                (double)weight * position_loss(job, in[0] + i * job->classes, first + i, NULL);
    }
}

static void forward_part(void *context, int64_t begin, int64_t end)
{
    const struct job *job = context;
    memset(job->losses + begin, 0, (size_t)(end - begin) * sizeof(double));
    cpu_row_pass_run(job->device, &job->pass, begin * job->positions, end * job->positions);
    for (int64_t b = begin; b < end; b++)
        job->losses[b] /= (double)job->positions;
}

static void backward_rows(const void *context, const float *const *in, float *out, int64_t first,
                          int64_t rows)
{
    const struct job *job = context;
    for (int64_t i = 0; i < rows; i++) {
        float *slopes = out + i * job->classes;
        const float factor = job->scale * weight_at(job, first + i);
        if (factor != 0)
            (void)position_loss(job, in[0] + i * job->classes, first + i, slopes);
        for (int64_t k = 0; k < job->classes; k++)
            slopes[k] = factor != 0 ? slopes[k] * factor : 0.0f;
    }
}

static void value_rows(const void *context, const float *const *in, float *out, int64_t first,
                       int64_t rows)
{
    const struct job *job = context;
    (void)out;
    for (int64_t i = 0; i < rows; i++)
        job->values[first + i] =
            (float)position_loss(job, in[0] + i * job->classes, first + i, NULL);
}

// Each position by itself: what is computed of it, or its gradient.
static void row_part(void *context, int64_t begin, int64_t end)
{
    const struct job *job = context;
    cpu_row_pass_run(job->device, &job->pass, begin * job->positions, end * job->positions);
}

static double work_of(const struct job *job)
{
    return 5.0 * (double)(job->examples * job->positions * job->classes);
}

// The fourth sum: the mean weights of the positions of each example, or what a mask leaves of them.
static double sum_weights(const struct job *job, const double *moments)
{
    double sum = 0;
    if (moments)
        return (double)job->examples * (moments[0] / moments[2]);
    for (int64_t i = 0; job->of_positions && i < job->examples * job->positions; i++)
        sum += (double)job->weights[i];
    return sum / (double)job->positions;
}

static int32_t run_forward(struct ls_device *device, struct ls_kernel *kernel,
                           const struct cpu_call *launch)
{
    double loss = 0, *losses;
    struct job job = job_of(device, kernel, launch, forward_rows, &losses);
    float *sums = cpu_output(kernel, launch, 0);
    job.pass.context = &job;
    job.losses = losses;
    cpu_parallel(device, job.examples, 1, work_of(&job), forward_part, &job);
    for (int64_t b = 0; b < job.examples; b++)
        loss += job.losses[b];
    const float found[4] = {
        (float)loss, 0.0f, (float)job.examples,
        (float)sum_weights(&job, kernel->input_count > 3 ? launch->arguments[3] : NULL)};
    memcpy(sums, found, sizeof(found));
    return LS_OK;
}

static int32_t run_backward(struct ls_device *device, struct ls_kernel *kernel,
                            const struct cpu_call *launch)
{
    double *none;
    struct job job = job_of(device, kernel, launch, backward_rows, &none);
    job.pass.context = &job;
    job.pass.out = cpu_output(kernel, launch, 0);
    job.scale = launch->record->gradient_scale / (float)job.positions;
    cpu_parallel(device, job.examples, 1, work_of(&job), row_part, &job);
    return LS_OK;
}

static int32_t run_values(struct ls_device *device, struct ls_kernel *kernel,
                          const struct cpu_call *launch)
{
    double *none;
    struct job job = job_of(device, kernel, launch, value_rows, &none);
    job.pass.context = &job;
    job.values = cpu_output(kernel, launch, 0);
    cpu_parallel(device, job.examples, 1, work_of(&job), row_part, &job);
    return LS_OK;
}

// The gradient of a value is the weight of its position.
static int32_t run_values_backward(struct ls_device *device, struct ls_kernel *kernel,
                                   const struct cpu_call *launch)
{
    double *none;
    struct job job = job_of(device, kernel, launch, backward_rows, &none);
    job.pass.context = &job;
    job.pass.out = cpu_output(kernel, launch, 0);
    job.scale = 1.0f;
    job.of_positions = true;
    cpu_parallel(device, job.examples, 1, work_of(&job), row_part, &job);
    return LS_OK;
}

int32_t cpu_loss(struct ls_device *device, const struct ls_kernel_request *request,
                 struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    const bool labels = request->attributes.function == LS_LOSS_SPARSE;
    if (request->attributes.function >= LS_LOSS_FUNCTION_COUNT)
        return cpu_unsupported(device, request, "no such loss");
    if (labels != (request->arguments[1].dtype == LS_I32))
        return cpu_unsupported(device, request, "labels are for the sparse loss only");
    switch (request->op) {
    case LS_OP_LOSS: kernel->run = run_forward; break;
    case LS_OP_LOSS_BACKWARD: kernel->run = run_backward; break;
    case LS_OP_POSITION_LOSS: kernel->run = run_values; break;
    default: kernel->run = run_values_backward; break;
    }
    answer->scratch_bytes =
        rooms_of(device, &request->arguments[0]) +
        (request->op == LS_OP_LOSS ? (uint64_t)request->arguments[0].dims[0] * sizeof(double) : 0);
    cpu_implementation(device, answer, "loss");
    return cpu_all_plain(device, request, kernel);
}

// ---- The mean of what a mask leaves ----

struct masked_mean {
    const float *in, *mask;
    float *out;
    int64_t positions; // of an example
    double grown; // what each position that is left is multiplied by
};

static void masked_mean_part(void *context, int64_t begin, int64_t end)
{
    const struct masked_mean *m = context;
    for (int64_t b = begin; b < end; b++) {
        double sum = 0;
        for (int64_t i = b * m->positions; i < (b + 1) * m->positions; i++)
            sum += m->mask[i] != 0 ? (double)m->mask[i] * (double)m->in[i] : 0;
        m->out[b] = m->grown > 0 ? (float)(sum * m->grown) : 0.0f;
    }
}

static void masked_mean_backward_part(void *context, int64_t begin, int64_t end)
{
    const struct masked_mean *m = context;
    for (int64_t i = begin * m->positions; i < end * m->positions; i++)
        m->out[i] = (float)((double)m->mask[i] * m->grown * (double)m->in[i / m->positions]);
}

static int32_t run_masked_mean(struct ls_device *device, struct ls_kernel *kernel,
                               const struct cpu_call *launch)
{
    const double *moments = launch->arguments[2];
    const int64_t examples = kernel->arguments[1].dims[0];
    const int64_t count = (int64_t)ls_tensor_elements(&kernel->arguments[1]);
    struct masked_mean m = {.in = launch->arguments[0],
                            .mask = launch->arguments[1],
                            .out = cpu_output(kernel, launch, 0),
                            .positions = count / examples};
    m.grown = moments[0] > 0 ? moments[2] / moments[0] / (double)m.positions : 0.0;
    cpu_parallel(device, examples, 1, 2.0 * (double)count,
                 kernel->op == LS_OP_MASKED_MEAN ? masked_mean_part : masked_mean_backward_part,
                 &m);
    return LS_OK;
}

int32_t cpu_masked_mean(struct ls_device *device, const struct ls_kernel_request *request,
                        struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    kernel->run = run_masked_mean;
    cpu_implementation(device, answer, "masked mean");
    return cpu_all_plain(device, request, kernel);
}

// ---- Metrics: on one thread, few operations an element ----

static int64_t right_class(const struct job *job, int64_t i)
{
    int64_t best = 0;
    if (!job->t)
        return job->labels[i];
    for (int64_t k = 1; k < job->classes; k++)
        best = job->t[i * job->classes + k] > job->t[i * job->classes + best] ? k : best;
    return best;
}

static bool is_right(const struct job *job, const float *p, int64_t i)
{
    const bool top = job->a->function == LS_METRIC_TOP;
    const int64_t right = right_class(job, i);
    int64_t before = 0;
    if (right < 0 || right >= job->classes)
        return false;
    for (int64_t k = 0; k < job->classes; k++)
        before += p[k] > p[right] || (!top && p[k] == p[right] && k < right);
    return before < (top ? (int64_t)job->a->count : 1);
}

static void count_element(const struct ls_op_attributes *a, float p, float t, double weight,
                          double *counts)
{
    const bool above = p > a->threshold, is = t > 0;
    const float last = (float)a->count - 1.0f;
    switch (a->function) {
    case LS_METRIC_BINARY:
        counts[0] += (above ? 1.0f : 0.0f) == t ? weight : 0.0;
        counts[1] += weight;
        break;
    case LS_METRIC_CONFUSION: counts[above ? (is ? 0 : 1) : (is ? 2 : 3)] += weight; break;
    default:
        counts[(is ? 0 : a->count) + (uint32_t)clip(ceilf(p * last) - 1.0f, 0.0f, last)] += weight;
        break;
    }
}

static float target_of(const struct job *job, int64_t i, int64_t k)
{
    if (job->t)
        return job->t[i * job->classes + k];
    return job->classes == 1 ? (float)job->labels[i] : (float)(job->labels[i] == k);
}

// LS_METRIC_CLASSES
static void count_confusion(const struct job *job, const float *p, int64_t i, double weight)
{
    const int64_t right = right_class(job, i);
    int64_t best = 0;
    for (int64_t k = 1; k < job->classes; k++)
        best = p[k] > p[best] ? k : best;
    if (right >= 0 && right < job->classes)
        job->counts[right * job->classes + best] += weight;
}

// LS_METRIC_EACH_CLASS
static void count_each(const struct job *job, const float *p, int64_t i, double weight)
{
    for (int64_t k = 0; k < job->classes; k++) {
        const bool above = p[k] > job->a->threshold, is = target_of(job, i, k) > 0;
        if (above || is)
            job->counts[3 * k + (above ? (is ? 0 : 1) : 2)] += weight;
    }
}

// LS_METRIC_SQUARES
static void count_squares(const struct job *job, const float *p, int64_t i, double weight)
{
    for (int64_t k = 0; k < job->classes; k++) {
        const double t = (double)target_of(job, i, k), error = t - (double)p[k];
        double *sums = &job->counts[5 * k];
        sums[0] += weight * t;
        sums[1] += weight * t * t;
        sums[2] += weight * error * error;
        sums[3] += weight;
        sums[4] += 1;
    }
}

// LS_METRIC_PEARSON, LS_METRIC_CONCORDANCE
static double correlation(const struct job *job, const float *p, int64_t i)
{
    const double n = (double)job->classes;
    double mean_p = 0, mean_t = 0, pp = 0, tt = 0, pt = 0;
    for (int64_t k = 0; k < job->classes; k++) {
        mean_p += (double)p[k] / n;
        mean_t += (double)target_of(job, i, k) / n;
    }
    for (int64_t k = 0; k < job->classes; k++) {
        const double dp = (double)p[k] - mean_p, dt = (double)target_of(job, i, k) - mean_t;
        pp += dp * dp / n;
        tt += dt * dt / n;
        pt += dp * dt / n;
    }
    if (job->a->function == LS_METRIC_PEARSON)
        return pt / (sqrt(pp) * sqrt(tt));
    return 2 * pt / (pp + tt + (mean_t - mean_p) * (mean_t - mean_p) + 1e-7);
}

static void metric_rows(const void *context, const float *const *in, float *out, int64_t first,
                        int64_t rows)
{
    const struct job *job = context;
    const struct ls_op_attributes *a = job->a;
    (void)out;
    for (int64_t i = first; i < first + rows; i++) {
        const float *p = in[0] + (i - first) * job->classes;
        const double weight = (double)weight_at(job, i);
        switch (a->function) {
        case LS_METRIC_CATEGORICAL:
        case LS_METRIC_TOP:
            job->counts[0] += is_right(job, p, i) ? weight : 0.0;
            job->counts[1] += weight;
            break;
        case LS_METRIC_CLASSES: count_confusion(job, p, i, weight); break;
        case LS_METRIC_EACH_CLASS: count_each(job, p, i, weight); break;
        case LS_METRIC_SQUARES: count_squares(job, p, i, weight); break;
        case LS_METRIC_PEARSON:
        case LS_METRIC_CONCORDANCE:
            job->counts[0] += weight * correlation(job, p, i);
            job->counts[1] += weight;
            break;
        default:
            for (int64_t k = 0; k < job->classes; k++)
                count_element(a, p[k], target_of(job, i, k), weight, job->counts);
        }
    }
}

static int32_t run_metric(struct ls_device *device, struct ls_kernel *kernel,
                          const struct cpu_call *launch)
{
    double *counts;
    struct job job = job_of(device, kernel, launch, metric_rows, &counts);
    const uint64_t count = ls_tensor_elements(cpu_output_desc(kernel, 0));
    float *out = cpu_output(kernel, launch, 0);
    job.pass.context = &job;
    job.counts = counts;
    memset(counts, 0, count * sizeof(*counts));
    cpu_row_pass_run(device, &job.pass, 0, job.examples * job.positions);
    for (uint64_t k = 0; k < count; k++)
        out[k] = (float)counts[k];
    return LS_OK;
}

int32_t cpu_metric(struct ls_device *device, const struct ls_kernel_request *request,
                   struct ls_kernel *kernel, struct ls_kernel_answer *answer)
{
    const struct ls_tensor_desc *counts = &request->arguments[request->input_count];
    if (request->attributes.function >= LS_METRIC_FUNCTION_COUNT)
        return cpu_unsupported(device, request, "no such metric");
    kernel->run = run_metric;
    answer->scratch_bytes =
        rooms_of(device, &request->arguments[0]) + ls_tensor_elements(counts) * sizeof(double);
    cpu_implementation(device, answer, "metric");
    return cpu_all_plain(device, request, kernel);
}
