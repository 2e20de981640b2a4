// SPDX-License-Identifier: Apache-2.0
// Pairs of tensors, one of which may be repeated along some dimensions; sums, means and largest elements along dimensions, which is
// the same seen from the other side; and PReLU, whose slopes are repeated. By own kernels (walk.cuh).
#include "plugins/device/cuda/engine/internal.h"

// What an operation does, in this order, as far as it does it: folds into scratch memory how many elements are the largest, goes
// element by element to outputs 0 and 1, folds into the output after them.
struct steps {
    struct cuda_fold count, fold;
    struct cuda_broadcast elements[2];
    uint32_t counts, folds, element_wise; // how many
    uint64_t counted, parts; // where in the scratch memory
};

// Where output `index` goes; only the first has an epilogue.
static struct cuda_store store_of(const struct ls_kernel *kernel, const struct cuda_call *launch,
                                  uint32_t index)
{
    struct cuda_store store = cuda_store_of(kernel, launch);
    store.out = cuda_output(kernel, launch, index);
    store.add = cuda_accumulates(kernel, index);
    return store;
}

static int32_t run_steps(struct ls_device *device, const struct ls_kernel *kernel,
                         const struct cuda_call *launch)
{
    const struct steps *steps = kernel->state;
    char *scratch = launch->scratch;
    int32_t status = LS_OK;
    if (steps->counts) {
        struct cuda_fold count = steps->count;
        count.store = (struct cuda_store){.out = scratch + steps->counted};
        count.values[0] = launch->arguments[1];
        count.values[1] = launch->arguments[2];
        status = cuda_fold_run(device, &count, scratch + steps->parts);
    }
    for (uint32_t i = 0; i < steps->element_wise && !status; i++) {
        struct cuda_broadcast b = steps->elements[i];
        b.store = store_of(kernel, launch, i);
        b.record = launch->record;
        for (uint32_t t = 0; t < kernel->request.input_count; t++)
            b.values[t] = launch->arguments[t];
        if (steps->counts)
            b.values[3] = scratch + steps->counted;
        status = cuda_start_broadcast(device, &b);
    }
    if (status || !steps->folds)
        return status;
    struct cuda_fold fold = steps->fold;
    fold.store = store_of(kernel, launch, steps->element_wise);
    for (uint32_t t = 0; t < kernel->request.input_count; t++)
        fold.values[t] = launch->arguments[t];
    return cuda_fold_run(device, &fold, scratch + steps->parts);
}

static struct steps *new_steps(struct ls_device *device, struct ls_kernel *kernel,
                               struct ls_kernel_answer *answer)
{
    cuda_run_own(kernel, answer, run_steps);
    return cuda_state(device, kernel, sizeof(struct steps));
}

// The first `tensors` inputs, as they are repeated in `whole`.
static struct cuda_walked walked_of(struct ls_kernel *kernel, uint32_t tensors,
                                    const struct ls_tensor_desc *whole)
{
    struct cuda_walked walked = {.whole = whole, .tensors = tensors};
    for (uint32_t t = 0; t < tensors; t++)
        walked.parts[t] = cuda_input_desc(kernel, t);
    return walked;
}

static void use_elements(struct steps *steps, const struct cuda_walked *walked, uint32_t term,
                         uint32_t function)
{
    struct cuda_broadcast *b = &steps->elements[steps->element_wise++];
    b->term = term;
    b->function = function;
    cuda_broadcast_plan(b, walked);
}

// Plans a fold of the steps, whose term and function are set.
static int32_t use_fold(struct ls_device *device, struct ls_kernel *kernel,
                        struct ls_kernel_answer *answer, struct cuda_fold *fold,
                        const struct cuda_walked *walked, const struct ls_tensor_desc *out)
{
    struct steps *steps = kernel->state;
    if (!cuda_fold_plan(fold, walked, out))
        return cuda_unsupported(device, kernel,
                                "it cannot add 2^31 elements, or make as many sums");
    steps->folds = fold == &steps->fold;
    steps->counts = fold == &steps->count;
    steps->parts = cuda_scratch(answer, cuda_fold_bytes(fold));
    return LS_OK;
}

// ---- Pairs ----

int32_t cuda_prepare_pair(struct ls_device *device, struct ls_kernel *kernel,
                          struct ls_kernel_answer *answer)
{
    const uint32_t op = kernel->request.op;
    const bool forward = op == LS_OP_PAIR || op == LS_OP_MAXIMUM;
    const bool maximum = op == LS_OP_MAXIMUM || op == LS_OP_MAXIMUM_BACKWARD;
    const uint32_t function = maximum ? LS_PAIR_MAXIMUM : kernel->request.attributes.function;
    const struct ls_tensor_desc *out = cuda_output_desc(kernel, 0);
    const struct ls_tensor_desc *whole = forward ? out : cuda_input_desc(kernel, 0);
    if (function > LS_PAIR_MINIMUM)
        return cuda_unsupported(device, kernel, "it does not know this function");
    struct steps *steps = new_steps(device, kernel, answer);
    if (!steps)
        return LS_OUT_OF_MEMORY;
    const struct cuda_walked walked = walked_of(kernel, forward ? 2 : 3, whole);
    const uint32_t term = forward                            ? cuda_term_pair
                          : op == LS_OP_PAIR_BACKWARD_SECOND ? cuda_term_pair_second
                                                             : cuda_term_pair_first;
    steps->fold = (struct cuda_fold){.term = term, .function = function};
    if (!forward && !cuda_same_count(out, whole))
        return use_fold(device, kernel, answer, &steps->fold, &walked, out);
    use_elements(steps, &walked, term, function);
    if (op == LS_OP_MAXIMUM_BACKWARD) // its inputs are read twice
        use_elements(steps, &walked, cuda_term_pair_second, function);
    for (uint32_t i = 0; op != LS_OP_MAXIMUM_BACKWARD && i < walked.tensors; i++)
        answer->in_place |= (uint32_t)cuda_same_count(walked.parts[i], whole) << i;
    return LS_OK;
}

// ---- Reductions ----

static int32_t prepare_reduction_backward(struct ls_device *device, struct ls_kernel *kernel,
                                          struct ls_kernel_answer *answer, uint32_t function)
{
    const struct ls_tensor_desc *x = cuda_input_desc(kernel, 1), *y = cuda_input_desc(kernel, 2);
    struct steps *steps = new_steps(device, kernel, answer);
    if (!steps)
        return LS_OUT_OF_MEMORY;
    const bool largest = function == LS_REDUCE_TO_MAXIMUM;
    const struct cuda_walked walked = {
        .whole = x, .parts = {y, x, y, y}, .tensors = largest ? CUDA_WALKED : 1};
    use_elements(steps, &walked, largest ? cuda_term_share : cuda_term_value, 0);
    steps->elements[0].factor = function == LS_REDUCE_TO_MEAN
                                    ? (float)ls_tensor_elements(y) / (float)ls_tensor_elements(x)
                                    : 1;
    if (!largest)
        return LS_OK;
    const struct cuda_walked counted = {.whole = x, .parts = {x, y}, .tensors = 2};
    steps->count.term = cuda_term_equal;
    steps->counted = cuda_scratch(answer, ls_tensor_elements(y) * sizeof(float));
    return use_fold(device, kernel, answer, &steps->count, &counted, y);
}

int32_t cuda_prepare_reduction(struct ls_device *device, struct ls_kernel *kernel,
                               struct ls_kernel_answer *answer)
{
    const uint32_t function = kernel->request.attributes.function;
    if (function > LS_REDUCE_TO_MAXIMUM)
        return cuda_unsupported(device, kernel, "it does not know this function");
    if (kernel->request.op == LS_OP_REDUCE_BACKWARD)
        return prepare_reduction_backward(device, kernel, answer, function);
    const struct ls_tensor_desc *x = cuda_input_desc(kernel, 0), *y = cuda_output_desc(kernel, 0);
    struct steps *steps = new_steps(device, kernel, answer);
    if (!steps)
        return LS_OUT_OF_MEMORY;
    const struct cuda_walked walked = walked_of(kernel, 1, x);
    steps->fold.term = cuda_term_value;
    steps->fold.largest = function == LS_REDUCE_TO_MAXIMUM;
    const int32_t status = use_fold(device, kernel, answer, &steps->fold, &walked, y);
    if (function == LS_REDUCE_TO_MEAN)
        steps->fold.share = 1 / (double)steps->fold.each;
    return status;
}

// ---- PReLU ----

int32_t cuda_prepare_prelu(struct ls_device *device, struct ls_kernel *kernel,
                           struct ls_kernel_answer *answer)
{
    const bool forward = kernel->request.op == LS_OP_PRELU;
    struct steps *steps = new_steps(device, kernel, answer);
    if (!steps)
        return LS_OUT_OF_MEMORY;
    const struct ls_tensor_desc *x = cuda_input_desc(kernel, 0);
    const struct cuda_walked walked = walked_of(kernel, forward ? 2 : 3, x);
    use_elements(steps, &walked, forward ? cuda_term_prelu : cuda_term_prelu_data, 0);
    if (forward)
        return LS_OK;
    const struct cuda_walked of_slopes = walked_of(kernel, 2, x);
    steps->fold.term = cuda_term_prelu_slope;
    return use_fold(device, kernel, answer, &steps->fold, &of_slopes, cuda_output_desc(kernel, 1));
}
