// SPDX-License-Identifier: Apache-2.0
// The losses of LS_OP_LOSS with their gradients, and the counts of LS_OP_METRIC. Threads side by
// side have a position, as rows.cuh says; they find out first what its elements share, then go over
// them once more. Counts of elements are made by blocks in shared memory, each for itself, and
// added by a kernel behind them. Where items have weights, or bins are many, a kernel says which
// bin each item adds to, and of another one each thread has a bin, for which it goes over a part of
// the items in their order: so sums are the same in every run. LS_OP_MASKED_MEAN has examples where
// losses have positions.
#ifndef LS_DEVICE_CUDA_LOSSES_CUH
#define LS_DEVICE_CUDA_LOSSES_CUH

#include "plugins/device/cuda/engine/rows.cuh"

namespace losses {

// ---- The elements of a position ----

__device__ inline float target_at(const struct cuda_losses &l, int64_t row, int64_t k)
{
    if (l.targets)
        return l.targets[row * l.columns + k];
    return (float)(l.columns == 1 ? l.labels[row] : l.labels[row] == k);
}

// each(column, prediction, target) for what this thread has of the row.
template <typename function>
__device__ inline void each(const struct cuda_losses &l, const cuda_row &row, function visit)
{
    for (int64_t k = row.thread; k < l.columns; k += row.across)
        visit(k, l.predictions[row.start + k], target_at(l, row.index, k));
}

__device__ inline float clip(float x, float low, float high)
{
    return x < low ? low : x > high ? high : x;
}

__device__ inline float sign(float x)
{
    return (float)((x > 0) - (x < 0));
}

__device__ inline float smoothed(const struct cuda_losses &l, float t)
{
    return t * (1 - l.smoothing) + l.smoothing / (float)l.columns;
}

// What the elements of a position share.
struct shared {
    float largest; // of predictions that are logits; of the wrong classes
    int64_t worst; // the class of that
    float sum; // of weights; of t p; of p p
    float targets; // sum of t, of t t, or of what reaches all elements through the sum
    float product; // of t p
};

template <bool block>
__device__ inline struct shared share(const struct cuda_losses &l, const cuda_row &row)
{
    const bool sparse = l.function == LS_LOSS_SPARSE, categorical = l.function == LS_LOSS_CATEGORICAL;
    struct shared of = {-INFINITY, 0, 0, 0, 0};
    if (sparse || categorical) {
        if (l.from_logits)
            each(l, row, [&](int64_t, float p, float) { of.largest = fmaxf(of.largest, p); });
        of.largest = cuda_row_largest<block>(row, of.largest);
        each(l, row, [&](int64_t, float p, float t) {
            of.sum += l.from_logits ? expf(p - of.largest) : sparse ? clip(p, l.epsilon, 1 - l.epsilon) : p;
            of.targets += l.from_logits ? smoothed(l, t) : 0;
        });
        of.sum = cuda_row_sum<block>(row, of.sum);
        if (categorical && !l.from_logits)
            each(l, row, [&](int64_t, float p, float t) {
                const float q = p / of.sum;
                of.targets -= clip(q, l.epsilon, 1 - l.epsilon) == q ? smoothed(l, t) : 0;
            });
        of.targets = cuda_row_sum<block>(row, of.targets);
    } else if (l.function == LS_LOSS_CATEGORICAL_HINGE) {
        cuda_best wrong = {-INFINITY, INT64_MAX};
        each(l, row, [&](int64_t k, float p, float t) {
            of.sum += t * p;
            if ((1 - t) * p > wrong.value)
                wrong = {(1 - t) * p, k};
        });
        wrong = cuda_row_first_largest<block>(row, wrong);
        of.largest = wrong.value;
        of.worst = wrong.column;
        of.sum = cuda_row_sum<block>(row, of.sum);
    } else if (l.function == LS_LOSS_COSINE) {
        each(l, row, [&](int64_t, float p, float t) {
            of.sum += p * p;
            of.targets += t * t;
            of.product += t * p;
        });
        of.sum = cuda_row_sum<block>(row, of.sum);
        of.targets = cuda_row_sum<block>(row, of.targets);
        of.product = cuda_row_sum<block>(row, of.product);
    }
    return of;
}

// ---- One element: what it adds to the loss of its position, and the derivative of that loss by it ----

struct part {
    float loss, slope;
};

__device__ inline struct part binary(const struct cuda_losses &l, float p, float target)
{
    const float t = target * (1 - l.smoothing) + l.smoothing / 2;
    if (l.from_logits) {
        const float e = expf(-fabsf(p));
        return {(p > 0 ? p : 0) - p * t + log1pf(e), (p >= 0 ? 1 / (1 + e) : e / (1 + e)) - t};
    }
    const float q = clip(p, l.epsilon, 1 - l.epsilon);
    return {-t * logf(q) - (1 - t) * logf(1 - q), q == p ? (1 - t) / (1 - q) - t / q : 0};
}

__device__ inline struct part hinge(float p, float t, bool squared)
{
    const float y = t == 0 ? -1 : t, h = 1 - y * p < 0 ? 0 : 1 - y * p;
    const float slope = h > 0 ? -y : 0;
    return squared ? part{h * h, slope * 2 * h} : part{h, slope};
}

__device__ inline struct part element(const struct cuda_losses &l, float p, float t)
{
    const float e = p - t, size = fabsf(e), delta = l.threshold;
    switch (l.function) {
    case LS_LOSS_BINARY: return binary(l, p, t);
    case LS_LOSS_SQUARED: return {e * e, 2 * e};
    case LS_LOSS_ABSOLUTE: return {size, sign(e)};
    case LS_LOSS_PERCENTAGE: {
        const float of = fmaxf(fabsf(t), l.epsilon);
        return {100 * size / of, 100 * sign(e) / of};
    }
    case LS_LOSS_LOGARITHMIC: {
        const float d = log1pf(p < l.epsilon ? l.epsilon : p) - log1pf(t < l.epsilon ? l.epsilon : t);
        return {d * d, p > l.epsilon ? 2 * d / (1 + p) : 0};
    }
    case LS_LOSS_HUBER:
        if (size <= delta)
            return {e * e / 2, e};
        return {delta * size - delta * delta / 2, delta * sign(e)};
    case LS_LOSS_LOG_COSH:
        return {size < 0.1f ? logf(coshf(e)) : size + log1pf(expf(-2 * size)) - 0.69314718055994531f, tanhf(e)};
    case LS_LOSS_POISSON: return {p - t * logf(p + l.epsilon), 1 - t / (p + l.epsilon)};
    case LS_LOSS_HINGE: return hinge(p, t, false);
    case LS_LOSS_SQUARED_HINGE: return hinge(p, t, true);
    default: return {p, 1}; // values
    }
}

__device__ inline struct part of_classes(const struct cuda_losses &l, const struct shared &of, float p, float t, bool sparse)
{
    const float y = sparse ? t : smoothed(l, t);
    if (l.from_logits) {
        const float q = expf(p - of.largest) / of.sum;
        return {y == 0 ? 0 : y * (logf(of.sum) - (p - of.largest)), sparse ? q - y : of.targets * q - y};
    }
    if (sparse) {
        const float c = clip(p, l.epsilon, 1 - l.epsilon);
        return {y == 0 ? 0 : logf(of.sum) - logf(c), c == p ? (c / of.sum - y) / c : 0};
    }
    const float q = p / of.sum, c = clip(q, l.epsilon, 1 - l.epsilon);
    return {-y * logf(c), ((c == q ? -y / c : 0) - of.targets) / of.sum};
}

__device__ inline struct part part_of(const struct cuda_losses &l, const struct shared &of, int64_t k, float p, float t)
{
    switch (l.function) {
    case LS_LOSS_SPARSE: return of_classes(l, of, p, t, true);
    case LS_LOSS_CATEGORICAL: return of_classes(l, of, p, t, false);
    case LS_LOSS_DIVERGENCE: {
        const float q = clip(p, l.epsilon, 1), y = clip(t, l.epsilon, 1);
        return {y * logf(y / q), q == p ? -y / q : 0};
    }
    case LS_LOSS_CATEGORICAL_HINGE: {
        const float loss = of.largest - of.sum + 1;
        return {k == 0 ? (loss < 0 ? 0 : loss) : 0, loss > 0 ? (k == of.worst ? 1 - t : 0) - t : 0};
    }
    case LS_LOSS_COSINE: {
        const float size = sqrtf(of.sum), norm = fmaxf(size, l.epsilon), other = fmaxf(sqrtf(of.targets), l.epsilon);
        const float turned = size > l.epsilon ? of.product / (norm * norm) * p : 0;
        return {k == 0 ? -of.product / (norm * other) : 0, (turned - t) / (norm * other)};
    }
    default: {
        const struct part one = element(l, p, t);
        return {one.loss / (float)l.columns, one.slope / (float)l.columns};
    }
    }
}

// A label that is no class has neither a loss nor a gradient.
__device__ inline bool is_known(const struct cuda_losses &l, int64_t row)
{
    return l.function != LS_LOSS_SPARSE || (l.labels[row] >= 0 && l.labels[row] < l.columns);
}

__device__ inline float weight_at(const struct cuda_losses &l, int64_t row)
{
    if (!l.weights)
        return 1;
    return l.weights[l.each_position ? row : cuda_quotient(row, l.positions)];
}

// What a loss is multiplied by; 0: it does not count, whatever it is.
__device__ inline float factor_of(const struct cuda_losses &l, int64_t row)
{
    if (!l.moments)
        return weight_at(l, row);
    const float left = (float)l.moments[0], all = (float)l.moments[2]; // of the positions
    return left > 0 ? weight_at(l, row) * (all / left) : 0;
}

// What a gradient is multiplied by.
__device__ inline float slope_factor(const struct cuda_losses &l, int64_t row, float factor)
{
    if (!l.gradients)
        return 0;
    return l.dy ? l.dy[row] : l.record->gradient_scale / (float)l.positions * factor;
}

// Of one class a label is the class, and not the value of the element.
__device__ inline float target_of(const struct cuda_losses &l, float t)
{
    return l.function == LS_LOSS_SPARSE && l.columns == 1 ? 1 : t;
}

__device__ inline void put_gradient(const struct cuda_losses &l, int64_t i, float value)
{
    l.gradients[i] = l.add ? l.gradients[i] + value : value;
}

// The loss of a position with its factor, and its weight; and its gradient where somebody asks.
template <bool block>
__device__ double2 loss(const struct cuda_losses &l, const cuda_row &row)
{
    const struct shared of = share<block>(l, row);
    const float factor = l.dy ? 1 : factor_of(l, row.index);
    const float scale = slope_factor(l, row.index, factor);
    const bool known = is_known(l, row.index);
    float sum = 0;
    each(l, row, [&](int64_t k, float p, float t) {
        const struct part one = part_of(l, of, k, p, target_of(l, t));
        sum += one.loss;
        if (l.gradients && row.inside)
            put_gradient(l, row.start + k, factor == 0 ? 0 : known ? one.slope * scale : NAN);
    });
    sum = cuda_row_sum<block>(row, sum);
    if (row.thread || !row.inside)
        return make_double2(0, 0);
    if (l.each)
        l.each[row.index] = known ? sum : NAN;
    const double loss = known ? (double)factor * (double)sum : (double)NAN;
    return make_double2(factor == 0 ? 0 : loss, weight_at(l, row.index));
}

// The last one is how many examples count.
__device__ inline void end_loss(const struct cuda_losses &l, double2 sum)
{
    const int64_t examples = l.rows / l.positions;
    cuda_put_loss(l.sums, make_double2(sum.x, 0), l.positions, examples);
    if (l.moments)
        l.sums[3] = (float)examples * ((float)l.moments[0] / (float)l.moments[2]);
    else if (l.each_position)
        l.sums[3] = (float)(sum.y / (double)l.positions);
}

// ---- Metrics ----

// How many are right, and of how many: elements, or the position.
template <bool block>
__device__ double2 metric(const struct cuda_losses &l, const cuda_row &row)
{
    const bool binary = l.function == LS_METRIC_BINARY, top = l.function == LS_METRIC_TOP;
    float found = 0;
    if (binary)
        each(l, row, [&](int64_t, float p, float t) { found += (p > l.threshold ? 1.0f : 0.0f) == t; });
    else {
        cuda_best best = {-INFINITY, INT64_MAX};
        each(l, row, [&](int64_t k, float, float t) {
            if (k == 0 || t > best.value)
                best = {t, k};
        });
        best = cuda_row_first_largest<block>(row, best);
        const int64_t right = l.targets ? best.column : l.labels[row.index];
        const bool known = right >= 0 && right < l.columns;
        const float least = l.predictions[row.start + (known ? right : 0)];
        each(l, row, [&](int64_t k, float p, float) { found += p > least || (!top && p == least && k < right); });
        found = known ? found : INFINITY;
    }
    found = cuda_row_sum<block>(row, found);
    if (row.thread || !row.inside)
        return make_double2(0, 0);
    const double weight = weight_at(l, row.index), right = found < (float)(top ? l.count : 1);
    return binary ? make_double2(weight * (double)found, weight * (double)l.columns)
                  : make_double2(right * weight, weight);
}

// right, of how many
__device__ inline void end_metric(const struct cuda_losses &l, double2 sum)
{
    l.sums[0] = (float)sum.x;
    l.sums[1] = (float)sum.y;
}

// The sum over elements of what `of` says of each, divided by how many they are.
template <bool block, typename function>
__device__ inline double mean(const struct cuda_losses &l, const cuda_row &row, const function &of)
{
    double sum = 0;
    each(l, row, [&](int64_t, float p, float t) { sum += of((double)p, (double)t); });
    return cuda_row_join<block>(row, sum, [](double a, double b) { return a + b; }) / (double)l.columns;
}

// Of a position: the correlation of its predictions and targets, and its weight.
template <bool block>
__device__ double2 correlate(const struct cuda_losses &l, const cuda_row &row)
{
    const double p_mean = mean<block>(l, row, [](double p, double) { return p; });
    const double t_mean = mean<block>(l, row, [](double, double t) { return t; });
    const double p_part = mean<block>(l, row, [&](double p, double) { return (p - p_mean) * (p - p_mean); });
    const double t_part = mean<block>(l, row, [&](double, double t) { return (t - t_mean) * (t - t_mean); });
    const double both = mean<block>(l, row, [&](double p, double t) { return (p - p_mean) * (t - t_mean); });
    if (row.thread || !row.inside)
        return make_double2(0, 0);
    const double apart = t_mean - p_mean, weight = (double)weight_at(l, row.index);
    const double found = l.function == LS_METRIC_CONCORDANCE ? 2 * both / (p_part + t_part + apart * apart + 1e-7)
                                                             : both / (sqrt(p_part) * sqrt(t_part));
    return make_double2(weight * found, weight);
}

// Sums of a part of the rows of a column.
__device__ inline void add_squares(const struct cuda_losses *l, int64_t i)
{
    const int64_t part = cuda_quotient(i, l->columns), k = i - part * l->columns;
    const int64_t end = cuda_quotient(l->rows * (part + 1), l->blocks);
    double targets = 0, squares = 0, errors = 0, weights = 0, elements = 0;
    for (int64_t row = cuda_quotient(l->rows * part, l->blocks); row < end; row++) {
        const double weight = (double)weight_at(*l, row), t = (double)target_at(*l, row, k);
        const double error = t - (double)l->predictions[row * l->columns + k];
        targets += weight * t;
        squares += weight * t * t;
        errors += weight * error * error;
        weights += weight;
        elements += 1;
    }
    double *out = l->parts + part * l->bins + 5 * k;
    out[0] = targets;
    out[1] = squares;
    out[2] = errors;
    out[3] = weights;
    out[4] = elements;
}

// Of an element; -1: it is counted nowhere.
__device__ inline int64_t bin_of(const struct cuda_losses &l, int64_t i)
{
    const int64_t row = cuda_quotient(i, l.columns), k = i - row * l.columns;
    const float p = l.predictions[i], last = (float)l.count - 1;
    const bool is = target_at(l, row, k) > 0, above = p > l.threshold;
    if (l.function == LS_METRIC_CONFUSION)
        return above ? (is ? 0 : 1) : (is ? 2 : 3);
    if (l.function == LS_METRIC_EACH_CLASS)
        return above || is ? 3 * k + (above ? (is ? 0 : 1) : 2) : -1;
    return (is ? 0 : l.count) + (int64_t)fminf(fmaxf(ceilf(p * last) - 1, 0), last); // of NaN the first
}

__global__ void __launch_bounds__(CUDA_BLOCK) cuda_count_bins(const __grid_constant__ struct cuda_losses l)
{
    __shared__ uint32_t bins[CUDA_BINS];
    for (int64_t first = 0; first < l.bins; first += CUDA_BINS) {
        const int64_t here = l.bins - first < CUDA_BINS ? l.bins - first : CUDA_BINS;
        for (int64_t k = threadIdx.x; k < here; k += CUDA_BLOCK)
            bins[k] = 0;
        __syncthreads();
        for (int64_t i = (int64_t)blockIdx.x * CUDA_BLOCK + threadIdx.x; i < l.rows * l.columns; i += (int64_t)l.blocks * CUDA_BLOCK) {
            const int64_t bin = bin_of(l, i) - first;
            if (bin >= 0 && bin < here)
                atomicAdd(&bins[bin], 1);
        }
        __syncthreads();
        for (int64_t k = threadIdx.x; k < here; k += CUDA_BLOCK)
            l.counts[blockIdx.x * l.bins + first + k] = bins[k];
        __syncthreads();
    }
}

__device__ inline void add_bins(const struct cuda_losses *l, int64_t bin)
{
    uint64_t sum = 0;
    for (int64_t block = 0; block < l->blocks; block++)
        sum += l->counts[block * l->bins + bin];
    l->sums[bin] = (float)sum;
}

// ---- Bins of items with weights ----

// Of a position: the class that is right, and the one with the largest prediction.
template <bool block>
__device__ double2 choose_classes(const struct cuda_losses &l, const cuda_row &row)
{
    cuda_best target = {-INFINITY, INT64_MAX}, prediction = {-INFINITY, INT64_MAX};
    each(l, row, [&](int64_t k, float p, float t) {
        if (k == 0 || t > target.value)
            target = {t, k};
        if (k == 0 || p > prediction.value)
            prediction = {p, k};
    });
    target = cuda_row_first_largest<block>(row, target);
    prediction = cuda_row_first_largest<block>(row, prediction);
    const int64_t right = l.targets ? target.column : l.labels[row.index];
    if (row.thread == 0 && row.inside)
        l.chosen[row.index] =
            right >= 0 && right < l.columns ? (int32_t)(right * l.columns + prediction.column) : -1;
    return make_double2(0, 0);
}

__device__ inline void choose_bin(const struct cuda_losses *l, int64_t i)
{
    l->chosen[i] = (int32_t)bin_of(*l, i);
}

// A block has as many bins as threads, and in turn parts of the items.
__global__ void __launch_bounds__(CUDA_BLOCK)
    cuda_weigh_bins(const __grid_constant__ struct cuda_losses l, int64_t tiles)
{
    __shared__ int32_t bins[CUDA_BLOCK];
    __shared__ float weights[CUDA_BLOCK];
    const int64_t items_of_row = l.items > l.rows ? l.columns : 1;
    for (int64_t at = blockIdx.x; at < tiles * l.blocks; at += gridDim.x) {
        const int64_t part = cuda_quotient(at, tiles);
        const int64_t mine = (at - part * tiles) * CUDA_BLOCK + threadIdx.x;
        const int64_t end = cuda_quotient(l.items * (part + 1), l.blocks);
        double sum = 0;
        for (int64_t i = cuda_quotient(l.items * part, l.blocks); i < end; i += CUDA_BLOCK) {
            const int64_t item = i + threadIdx.x < end ? i + threadIdx.x : end - 1;
            __syncthreads();
            bins[threadIdx.x] = l.chosen[item];
            weights[threadIdx.x] = weight_at(l, cuda_quotient(item, items_of_row));
            __syncthreads();
            for (int64_t k = 0; k < CUDA_BLOCK && i + k < end; k++)
                sum += bins[k] == mine ? (double)weights[k] : 0;
        }
        if (mine < l.bins)
            l.parts[part * l.bins + mine] = sum;
    }
}

__device__ inline void add_parts(const struct cuda_losses *l, int64_t bin)
{
    double sum = 0;
    for (int64_t part = 0; part < l->blocks; part++)
        sum += l->parts[part * l->bins + bin];
    l->sums[bin] = (float)sum;
}

// ---- Means of what a mask leaves: a row is an example, and its columns are positions ----

// What each position is multiplied by, with its mask.
__device__ inline double share_of(const struct cuda_losses &l)
{
    return l.moments[0] > 0 ? l.moments[2] / l.moments[0] / (double)l.columns : 0;
}

// Where the mask is 0, a position adds 0, whatever it is.
template <bool block>
__device__ double2 masked_mean(const struct cuda_losses &l, const cuda_row &row)
{
    const double share = share_of(l);
    double sum = 0;
    for (int64_t k = row.thread; share > 0 && k < l.columns; k += row.across) {
        const float weight = l.weights[row.start + k];
        sum += weight != 0 ? (double)weight * (double)l.predictions[row.start + k] : 0;
    }
    sum = cuda_row_join<block>(row, sum, [](double a, double b) { return a + b; });
    if (row.thread == 0 && row.inside)
        l.each[row.index] = (float)(sum * share);
    return make_double2(0, 0);
}

__device__ inline void masked_gradient(const struct cuda_losses *l, int64_t i)
{
    const double slope = (double)l->weights[i] * share_of(*l);
    put_gradient(*l, i, (float)(slope * (double)l->dy[cuda_quotient(i, l->columns)]));
}

// ---- Launches ----

template <bool block, double2 (*body)(const struct cuda_losses &, const cuda_row &), void (*end)(const struct cuda_losses &, double2)>
__global__ void __launch_bounds__(CUDA_BLOCK) run_positions(const __grid_constant__ struct cuda_losses l, int32_t across)
{
    double2 sum = make_double2(0, 0);
    for (int64_t at = blockIdx.x; at < cuda_row_blocks(l.rows, across); at += gridDim.x)
        cuda_add_pair(sum, body(l, cuda_row_of<block>(at, l.rows, l.columns, across)));
    if (l.pairs.parts && cuda_grid_sum(sum, l.pairs, &sum) && threadIdx.x == 0)
        end(l, sum);
}

} // namespace losses

extern "C" unsigned cuda_losses_launch(uint32_t kernel, const struct cuda_losses *l, struct CUstream_st *stream)
{
    using namespace losses;
    if (kernel == cuda_losses_bins) {
        const unsigned error = launch<cuda_count_bins>(dim3(l->blocks), CUDA_BLOCK, stream, *l);
        return error ? error : start<struct cuda_losses, add_bins>(l, l->bins, stream);
    }
    if (kernel == cuda_losses_weigh) {
        const int64_t tiles = (l->bins + CUDA_BLOCK - 1) / CUDA_BLOCK, all = tiles * l->blocks;
        const dim3 blocks((unsigned)(all < most_blocks ? all : most_blocks));
        const unsigned error = launch<cuda_weigh_bins>(blocks, CUDA_BLOCK, stream, *l, tiles);
        return error ? error : start<struct cuda_losses, add_parts>(l, l->bins, stream);
    }
    if (kernel == cuda_losses_squares) {
        const unsigned error = start<struct cuda_losses, add_squares>(l, l->blocks * l->columns, stream);
        return error ? error : start<struct cuda_losses, add_parts>(l, l->bins, stream);
    }
    if (kernel == cuda_losses_choose && l->function != LS_METRIC_CLASSES)
        return start<struct cuda_losses, choose_bin>(l, l->items, stream);
    if (kernel == cuda_losses_masked_gradient)
        return start<struct cuda_losses, masked_gradient>(l, l->rows * l->columns, stream);
    const int32_t across = cuda_row_across(l->columns);
    const dim3 blocks = cuda_pair_blocks(cuda_row_blocks(l->rows, across));
    return for_flag(across == CUDA_BLOCK, [&](auto block) {
        if (kernel == cuda_losses_choose)
            return launch<run_positions<block, choose_classes<block>, end_metric>>(
                blocks, CUDA_BLOCK, stream, *l, across);
        if (kernel == cuda_losses_correlation)
            return launch<run_positions<block, correlate<block>, end_metric>>(
                blocks, CUDA_BLOCK, stream, *l, across);
        if (kernel == cuda_losses_masked_mean)
            return launch<run_positions<block, masked_mean<block>, end_metric>>(
                blocks, CUDA_BLOCK, stream, *l, across);
        return kernel == cuda_losses_loss
                   ? launch<run_positions<block, loss<block>, end_loss>>(blocks, CUDA_BLOCK, stream, *l, across)
                   : launch<run_positions<block, metric<block>, end_metric>>(blocks, CUDA_BLOCK, stream, *l, across);
    });
}

#endif
