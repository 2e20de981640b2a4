// SPDX-License-Identifier: Apache-2.0
// Convolutions and attention by cuDNN's graph API: a graph for each question, the engines that
// cuDNN's heuristics offer for it, and a plan by one of them. Taken is only what gives the same
// bits each time and rounds neither factors nor sums beyond what was asked for; a ReLU and
// attention only where they run and a NaN comes out of them, which cuDNN's notes do not say, so
// they are tried. It is the first by the heuristics, which depends on GPU and question alone; with
// timing=on the fastest of the first eight. What was taken is taken again (choices.c).
#include "plugins/device/cuda/engine/internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MOST_OFFERS (CUDA_MOST_OFFERS / 2) // of one mode of the heuristics
#define MOST_TRIED 8
#define MOST_NOTES 32

static void forget(const struct ls_device *device, struct cuda_plan *plan)
{
    while (plan->made_count)
        cuda_destroy(device, plan->made[--plan->made_count]);
    plan->plan = NULL;
}

// ---- What cuDNN offers for a graph ----

// An engine with its knobs, and its plan once that was made.
struct offer {
    void *config, *plan;
    int64_t engine;
    uint32_t notes; // a bit for each of CUDNN_NUMERICAL_NOTE_*
    bool compiled; // when its plan is made
    uint64_t workspace_bytes;
};

struct offers {
    struct offer list[CUDA_MOST_OFFERS];
    int count, by_heuristics; // the latter are first; then fallbacks
};

static uint32_t bit(unsigned note)
{
    return note < 32 ? UINT32_C(1) << note : 0;
}

// Whether what cuDNN says of the engine could be read.
static bool read_offer(const struct ls_device *device, struct offer *offer)
{
    const struct cuda_calls *calls = device->calls;
    void *engine = NULL;
    unsigned notes[MOST_NOTES], behaviors[MOST_NOTES];
    int64_t count = 0, note_count = 0, behavior_count = 0;
    if (calls->cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine))
        return false;
    const bool read =
        !calls->cudnnBackendGetAttribute(offer->config, CUDNN_ATTR_ENGINECFG_ENGINE,
                                         CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &engine) &&
        !calls->cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64,
                                         1, &count, &offer->engine) &&
        !calls->cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                         CUDNN_TYPE_NUMERICAL_NOTE, MOST_NOTES, &note_count,
                                         notes) &&
        !calls->cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE,
                                         CUDNN_TYPE_BEHAVIOR_NOTE, MOST_NOTES, &behavior_count,
                                         behaviors);
    for (int64_t i = 0; read && i < note_count && i < MOST_NOTES; i++)
        offer->notes |= bit(notes[i]);
    for (int64_t i = 0; read && i < behavior_count && i < MOST_NOTES; i++)
        offer->compiled |= behaviors[i] == CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION;
    cuda_destroy(device, engine);
    return read;
}

static void ask(const struct ls_device *device, void *graph, unsigned mode, struct offers *offers)
{
    const struct cuda_calls *calls = device->calls;
    void *heuristics = NULL, *configs[MOST_OFFERS] = {0};
    int64_t count = 0;
    if (calls->cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, &heuristics))
        return;
    bool ready =
        cuda_set_descriptor(device, heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph) &&
        cuda_set_attribute(device, heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1,
                           &mode);
    ready = cuda_finalize(device, heuristics, ready);
    for (int i = 0; ready && i < MOST_OFFERS; i++)
        ready =
            !calls->cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &configs[i]);
    if (!ready || calls->cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                                  CUDNN_TYPE_BACKEND_DESCRIPTOR, MOST_OFFERS,
                                                  &count, configs))
        count = 0;
    for (int i = 0; i < MOST_OFFERS; i++) {
        struct offer offer = {.config = configs[i]};
        if (i < count && read_offer(device, &offer))
            offers->list[offers->count++] = offer;
        else
            cuda_destroy(device, configs[i]);
    }
    cuda_destroy(device, heuristics);
}

static void list_offers(const struct ls_device *device, void *graph, struct offers *out)
{
    ask(device, graph, CUDNN_HEUR_MODE_A, out);
    out->by_heuristics = out->count;
    ask(device, graph, CUDNN_HEUR_MODE_FALLBACK, out);
}

static void offers_finish(const struct ls_device *device, struct offers *offers)
{
    for (int i = 0; i < offers->count; i++) {
        cuda_destroy(device, offers->list[i].plan);
        cuda_destroy(device, offers->list[i].config);
    }
}

static bool is_attention(const struct cuda_plan_question *question)
{
    return question->op == LS_OP_ATTENTION || question->op == LS_OP_ATTENTION_BACKWARD;
}

// Whether a plan is taken only after it has run.
static bool is_tried(const struct cuda_plan_question *question)
{
    return question->fused || is_attention(question);
}

// Engine 0 is cuDNN's plain loops: bias and ReLU in a pass of their own are faster than with them.
// All engines of attention are compiled first.
static bool fits(const struct cuda_plan_question *question, const struct offer *offer)
{
    const uint32_t wrong = bit(CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS) |
                           bit(CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION) |
                           bit(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) |
                           (question->tensor_cores ? 0 : bit(CUDNN_NUMERICAL_NOTE_TENSOR_CORE));
    return !(offer->notes & wrong) && (!offer->compiled || is_attention(question)) &&
           (!question->fused || offer->engine != 0);
}

static bool repeats(const struct offers *offers, int rank)
{
    for (int i = 0; rank >= offers->by_heuristics && i < rank; i++)
        if (offers->list[i].engine == offers->list[rank].engine)
            return true;
    return false;
}

static bool make_plan(const struct ls_device *device, struct offer *offer)
{
    const struct cuda_calls *calls = device->calls;
    int64_t count = 0, bytes = 0;
    void *d = NULL;
    if (calls->cudnnBackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &d))
        return false;
    const bool made =
        cuda_finalize(device, d,
                      cuda_set_descriptor(device, d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                                          offer->config) &&
                          cuda_set_attribute(device, d, CUDNN_ATTR_EXECUTION_PLAN_HANDLE,
                                             CUDNN_TYPE_HANDLE, 1, &device->dnn)) &&
        !calls->cudnnBackendGetAttribute(d, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                         CUDNN_TYPE_INT64, 1, &count, &bytes) &&
        (uint64_t)bytes <= device->most_workspace;
    offer->plan = made ? d : NULL;
    offer->workspace_bytes = (uint64_t)bytes;
    if (!made)
        cuda_destroy(device, d);
    return made;
}

// The first of those that fit, with plans. With TF32 those that use it come first: measured, the
// heuristics put some of the others before them that take twice the time and more. Those of
// attention one by one, because each is compiled first: `next` is where to go on.
static int list_tried(const struct ls_device *device, const struct cuda_plan_question *question,
                      struct offers *offers, int *next, int *out)
{
    const int most = is_attention(question) && !device->timing ? 1 : MOST_TRIED;
    int ranks[MOST_TRIED], count = 0, sorted = 0;
    for (; *next < offers->count && count < most; ++*next)
        if (fits(question, &offers->list[*next]) && !repeats(offers, *next) &&
            make_plan(device, &offers->list[*next]))
            ranks[count++] = *next;
    const bool sort = question->type == CUDNN_DATA_FLOAT && question->tensor_cores;
    for (int cores = 1; cores >= 0; cores--)
        for (int i = 0; i < count; i++) {
            const uint32_t has =
                offers->list[ranks[i]].notes & bit(CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
            if ((!sort || has) == cores)
                out[sorted++] = ranks[i];
        }
    return count;
}

// ---- Running ----

static unsigned execute(const struct ls_device *device, void *plan,
                        const struct cuda_plan_question *question,
                        const struct cuda_plan_memory *memory)
{
    static const float one = 1, hidden = -INFINITY;
    const struct cuda_calls *calls = device->calls;
    const void *all[CUDA_PLAN_TENSORS] = {0}, *addresses[CUDA_PLAN_TENSORS];
    int64_t ids[CUDA_PLAN_TENSORS], count = 0;
    memcpy(all, memory->tensors, sizeof(memory->tensors));
    if (is_attention(question)) {
        all[CUDA_PLAN_SCALE] = &question->scale;
        all[CUDA_PLAN_HIDDEN] = question->causal ? &hidden : NULL;
        all[CUDA_PLAN_ONE] = question->op == LS_OP_ATTENTION_BACKWARD ? &one : NULL;
    }
    for (int id = 1; id < CUDA_PLAN_TENSORS; id++)
        if (all[id]) {
            ids[count] = id;
            addresses[count++] = all[id];
        }
    void *pack = NULL;
    unsigned error =
        calls->cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack);
    if (!error)
        error = calls->cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS,
                                                CUDNN_TYPE_INT64, count, ids);
    if (!error)
        error = calls->cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
                                                CUDNN_TYPE_VOID_PTR, count, addresses);
    if (!error)
        error = calls->cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE,
                                                CUDNN_TYPE_VOID_PTR, 1, &memory->workspace);
    if (!error)
        error = calls->cudnnBackendFinalize(pack);
    if (!error)
        error = calls->cudnnBackendExecute(device->dnn, plan, pack);
    cuda_destroy(device, pack);
    return error;
}

int32_t cuda_plan_run(struct ls_device *device, const struct cuda_plan *plan,
                      const struct cuda_plan_memory *memory, const char *what)
{
    return cuda_check_dnn(device, execute(device, plan->plan, &plan->question, memory), what);
}

// ---- Trying plans on the GPU, on zeros ----

#define TRIAL_ALIGNMENT UINT64_C(256)

struct trial {
    char *base;
    uint64_t bytes, full_bytes; // the latter: of the first tensor, x or q
    const void *result; // an element in the middle of what it computes
    struct cuda_plan_memory memory;
};

static uint64_t element_bytes(const struct cuda_plan_question *question)
{
    return question->type == CUDNN_DATA_FLOAT ? sizeof(float) : sizeof(uint16_t);
}

// Elements of a tensor of the graph; 0: it has none with this id.
static int64_t elements_of(const struct cuda_plan_question *q, int id)
{
    const bool backward = q->op == LS_OP_ATTENTION_BACKWARD;
    const int64_t rows = q->x[0] * q->x[1] * q->x[2];
    const int64_t x = rows * q->x[3], w = q->w[0] * q->w[1] * q->w[2] * q->w[3],
                  y = q->y[0] * q->y[1] * q->y[2] * q->y[3];
    if (!is_attention(q))
        return id == CUDA_PLAN_X                  ? x
               : id == CUDA_PLAN_W                ? w
               : id == CUDA_PLAN_Y                ? y
               : id == CUDA_PLAN_BIAS && q->fused ? q->y[1]
                                                  : 0;
    switch (id) {
    case CUDA_PLAN_Q: return x;
    case CUDA_PLAN_K: return w;
    case CUDA_PLAN_V: return y;
    case CUDA_PLAN_ATTENDED: return rows * q->y[3];
    case CUDA_PLAN_STATISTICS: return 2 * rows; // float32, also beside halves
    case CUDA_PLAN_DY: return backward ? rows * q->y[3] : 0;
    case CUDA_PLAN_DQ: return backward ? x : 0;
    case CUDA_PLAN_DK: return backward ? w : 0;
    case CUDA_PLAN_DV: return backward ? y : 0;
    case CUDA_PLAN_SUMS: return backward ? 2 * rows : 0;
    default: return 0;
    }
}

static uint64_t add(uint64_t *total, uint64_t bytes)
{
    const uint64_t at = *total;
    *total += (bytes + TRIAL_ALIGNMENT - 1) / TRIAL_ALIGNMENT * TRIAL_ALIGNMENT;
    return at;
}

// Whether the GPU has the memory.
static bool trial_begin(struct ls_device *device, const struct cuda_plan_question *question,
                        uint64_t workspace_bytes, struct trial *out)
{
    const int result = question->op == LS_OP_ATTENTION            ? CUDA_PLAN_ATTENDED
                       : question->op == LS_OP_ATTENTION_BACKWARD ? CUDA_PLAN_DQ
                                                                  : CUDA_PLAN_Y;
    uint64_t total = 0, at[CUDA_PLAN_SCALE] = {0};
    for (int id = 1; id < CUDA_PLAN_SCALE; id++)
        at[id] = add(&total, (uint64_t)elements_of(question, id) * element_bytes(question));
    const uint64_t workspace = add(&total, workspace_bytes);
    char *base = cuda_arena_take(device, total ? total : 1);
    if (!base)
        return false;
    *out = (struct trial){
        .base = base,
        .bytes = total,
        .full_bytes = (uint64_t)elements_of(question, 1) * element_bytes(question),
        .result = base + at[result] +
                  (uint64_t)(elements_of(question, result) / 2) * element_bytes(question),
        .memory = {.workspace = base + workspace},
    };
    for (int id = 1; id < CUDA_PLAN_SCALE; id++)
        if (elements_of(question, id))
            out->memory.tensors[id] = base + at[id];
    return true;
}

static bool is_nan(const void *value, unsigned type)
{
    uint32_t wide = 0;
    uint16_t half = 0;
    memcpy(&wide, value, sizeof(wide));
    memcpy(&half, value, sizeof(half));
    return type == CUDNN_DATA_FLOAT  ? (wide & 0x7fffffff) > 0x7f800000
           : type == CUDNN_DATA_HALF ? (half & 0x7fff) > 0x7c00
                                     : (half & 0x7fff) > 0x7f80;
}

// Whether x or q full of NaN makes the element in the middle of the result one.
static int32_t try_nan(struct ls_device *device, const struct cuda_plan_question *question,
                       const struct offer *offer, const struct trial *trial, bool *out)
{
    const struct cuda_calls *calls = device->calls;
    char value[sizeof(float)] = {0};
    int32_t status =
        cuda_check(device, calls->cudaMemsetAsync(trial->base, 0, trial->bytes, device->stream),
                   "trying a plan of cuDNN");
    if (!status)
        status =
            cuda_check(device,
                       calls->cudaMemsetAsync((void *)(uintptr_t)trial->memory.tensors[CUDA_PLAN_X],
                                              0xff, trial->full_bytes, device->stream),
                       "trying a plan of cuDNN");
    if (status)
        return status;
    const unsigned error = execute(device, offer->plan, question, &trial->memory);
    *out = false;
    if (error && cuda_dnn_refuses(error))
        return LS_OK;
    status = cuda_check_dnn(device, error, "trying a plan of cuDNN");
    if (!status)
        status = cuda_copy(device, ls_host_memory(value),
                           ls_host_memory((void *)(uintptr_t)trial->result),
                           element_bytes(question), NULL);
    *out = !status && is_nan(value, question->type);
    return status;
}

#define SAMPLE_NS 2000000 // of a recording that is timed, so that its launch does not count
#define MOST_REPEATS 100
#define SAMPLES 3
#define HOPELESS 3 // times slower than the best so far

// Runs it `repeats` times in a recording; 0: it cannot be recorded. A recording is what a step is,
// and has no gaps.
static struct CUgraphExec_st *record(const struct ls_device *device,
                                     const struct cuda_plan_question *question,
                                     const struct offer *offer, const struct trial *trial,
                                     uint64_t repeats)
{
    const struct cuda_calls *calls = device->calls;
    struct CUgraph_st *graph = NULL;
    struct CUgraphExec_st *out = NULL;
    unsigned error =
        calls->cudaStreamBeginCapture(device->stream, cudaStreamCaptureModeThreadLocal);
    if (error)
        return NULL;
    for (uint64_t i = 0; i < repeats && !error; i++)
        error = execute(device, offer->plan, question, &trial->memory);
    const unsigned ended = calls->cudaStreamEndCapture(device->stream, &graph);
    if (error || ended || calls->cudaGraphInstantiate(&out, graph, 0)) {
        calls->cudaGetLastError();
        out = NULL;
    }
    if (graph)
        calls->cudaGraphDestroy(graph);
    return out;
}

// Until the stream is empty, without the pauses of cuda_wait(), which would be seen in the time.
static int32_t spin(struct ls_device *device, uint64_t begin)
{
    const struct ls_host *host = device->host;
    while (host->clock_ns(host) - begin < 10 * SAMPLE_NS)
        if (device->calls->cudaStreamQuery(device->stream) != cudaErrorNotReady)
            break;
    return cuda_wait(device, device->stream, "timing a plan of cuDNN");
}

// Nanoseconds of a run, the least of a few; 0: it cannot be recorded.
static int32_t time_recording(struct ls_device *device, const struct cuda_plan_question *question,
                              const struct offer *offer, const struct trial *trial,
                              uint64_t repeats, int samples, uint64_t *out)
{
    const struct ls_host *host = device->host;
    struct CUgraphExec_st *graph = record(device, question, offer, trial, repeats);
    int32_t status = LS_OK;
    *out = 0;
    for (int i = 0; graph && i <= samples && !status; i++) {
        const uint64_t begin = host->clock_ns(host);
        status = cuda_check(device, device->calls->cudaGraphLaunch(graph, device->stream),
                            "timing a plan of cuDNN");
        if (!status)
            status = spin(device, begin);
        const uint64_t ns = (host->clock_ns(host) - begin) / repeats + 1;
        if (i > 0 && (!*out || ns < *out))
            *out = ns; // the first one makes it ready
    }
    if (graph && status != LS_PEER_LOST)
        device->calls->cudaGraphExecDestroy(graph);
    return status;
}

static int32_t time_offer(struct ls_device *device, const struct cuda_plan_question *question,
                          const struct offer *offer, const struct trial *trial, uint64_t best,
                          uint64_t *out)
{
    const unsigned error = execute(device, offer->plan, question, &trial->memory);
    *out = 0;
    if (error && cuda_dnn_refuses(error))
        return LS_OK;
    int32_t status = cuda_check_dnn(device, error, "timing a plan of cuDNN");
    if (!status)
        status = cuda_wait(device, device->stream, "timing a plan of cuDNN");
    if (!status)
        status = time_recording(device, question, offer, trial, 2, 1, out);
    if (status || !*out || (best && *out > HOPELESS * best && *out > SAMPLE_NS / MOST_REPEATS))
        return status;
    const uint64_t repeats = SAMPLE_NS / *out + 2;
    return time_recording(device, question, offer, trial,
                          repeats < MOST_REPEATS ? repeats : MOST_REPEATS, SAMPLES, out);
}

// ---- Choosing ----

// Tries on the GPU those that are listed; `out` is the rank of one, -1 for none.
static int32_t try_offers(struct ls_device *device, const struct cuda_plan_question *question,
                          const struct offers *offers, const int *tried, int count, int *out,
                          bool *no_memory)
{
    struct trial trial = {0};
    uint64_t workspace = 0, best = 0;
    *out = is_tried(question) ? -1 : tried[0];
    for (int i = 0; i < count; i++)
        if (offers->list[tried[i]].workspace_bytes > workspace)
            workspace = offers->list[tried[i]].workspace_bytes;
    if (!trial_begin(device, question, workspace, &trial)) {
        *no_memory = true;
        return LS_OK;
    }
    cuda_launched(device, "a plan of cuDNN that is tried");
    int32_t status = cuda_use_dnn(device);
    for (int i = 0; i < count && !status && (device->timing || *out < 0); i++) {
        const struct offer *offer = &offers->list[tried[i]];
        bool good = true;
        uint64_t ns = 0;
        if (is_tried(question))
            status = try_nan(device, question, offer, &trial, &good);
        if (!status && good && device->timing)
            status = time_offer(device, question, offer, &trial, best, &ns);
        if (status || !good || (device->timing && (!ns || (best && ns >= best))))
            continue;
        *out = tried[i];
        best = ns;
    }
    // What was refused may have been given zeros that are still on their way.
    if (!status)
        status = cuda_wait(device, device->stream, "trying a plan of cuDNN");
    if (status != LS_PEER_LOST)
        cuda_arena_give(device, trial.base);
    return status;
}

// What was taken before, by whoever it was. That it cannot be made is an error: what another takes
// in its place has other bits.
static int32_t follow(struct ls_device *device, const struct cuda_plan_question *question,
                      struct offers *offers, const struct cuda_choice *choice, int *out)
{
    *out = choice->place;
    if (choice->place < 0 ||
        (choice->place < offers->count && offers->list[choice->place].engine == choice->engine &&
         fits(question, &offers->list[choice->place]) &&
         make_plan(device, &offers->list[choice->place])))
        return LS_OK;
    return ls_host_fail(device->host, LS_FAILED,
                        "GPU %u: engine %lld of cuDNN, number %d of its list, which %s takes for "
                        "%s, cannot be made here; use timing=off without plans=, or delete the "
                        "file of plans",
                        device->index, (long long)choice->engine, choice->place, choice->source,
                        is_attention(question) ? "attention" : "a convolution");
}

// `lasting`: it is not for want of memory.
static int32_t choose_anew(struct ls_device *device, const struct cuda_plan_question *question,
                           struct offers *offers, int *out, bool *lasting)
{
    int tried[MOST_TRIED], next = 0, count = list_tried(device, question, offers, &next, tried);
    int32_t status = LS_OK;
    bool no_memory = false;
    *out = count ? tried[0] : -1;
    *lasting = true;
    if (!count || (!is_tried(question) && !device->timing))
        return LS_OK;
    do {
        status = try_offers(device, question, offers, tried, count, out, &no_memory);
        count = !status && *out < 0 && !no_memory && is_attention(question)
                    ? list_tried(device, question, offers, &next, tried)
                    : 0;
    } while (count);
    if (!status && no_memory && *out < 0)
        cuda_log(device, LS_LOG_WARN,
                 "GPU %u: no memory to try a plan of cuDNN, so other kernels take its place; "
                 "a smaller batch needs less",
                 device->index);
    *lasting = !no_memory;
    return status;
}

// One after the other, so that all replicas of the process take the same: a trial may end otherwise
// the next time.
static int32_t choose(struct ls_device *device, const struct cuda_plan_question *question,
                      struct offers *offers, int *out)
{
    struct cuda_choice choice;
    bool keep = true, lasting = true;
    if (!is_tried(question) && !device->timing && !device->plans)
        return choose_anew(device, question, offers, out, &lasting);
    cuda_choices_enter();
    int32_t status = LS_OK;
    if (cuda_choice_find(device, question, &choice)) {
        status = follow(device, question, offers, &choice, out);
        keep = choice.unwritten;
    } else if (!(status = cuda_choice_try(device))) {
        status = choose_anew(device, question, offers, out, &lasting);
    }
    if (!status && keep)
        status = cuda_choice_keep(device, question, *out, *out < 0 ? 0 : offers->list[*out].engine,
                                  lasting);
    cuda_choices_leave();
    return status;
}

// Moves what was chosen from the offers into the plan.
static void take(struct cuda_plan *plan, struct offer *offer)
{
    plan->made[plan->made_count++] = offer->config;
    plan->made[plan->made_count++] = offer->plan;
    plan->plan = offer->plan;
    plan->engine = offer->engine;
    plan->workspace_bytes = offer->workspace_bytes;
    offer->config = offer->plan = NULL;
}

static int32_t fill(struct ls_device *device, struct cuda_plan *plan)
{
    struct offers *offers = calloc(1, sizeof(*offers));
    if (!offers)
        return ls_host_fail(device->host, LS_OUT_OF_MEMORY, "no memory for a plan of cuDNN");
    void *graph = cuda_graph_make(device, plan);
    int32_t status = LS_OK;
    int rank = -1;
    if (graph) {
        list_offers(device, graph, offers);
        status = choose(device, &plan->question, offers, &rank);
    }
    if (!status && rank >= 0)
        take(plan, &offers->list[rank]);
    else
        forget(device, plan);
    offers_finish(device, offers);
    free(offers);
    return status;
}

int32_t cuda_plan_get(struct ls_device *device, const struct cuda_plan_question *question,
                      const struct cuda_plan **out)
{
    struct cuda_plan *plan = device->first_plan;
    while (plan && memcmp(&plan->question, question, sizeof(*question)))
        plan = plan->next;
    if (!plan) {
        plan = calloc(1, sizeof(*plan));
        if (!plan)
            return ls_host_fail(device->host, LS_OUT_OF_MEMORY, "no memory for a plan of cuDNN");
        plan->question = *question;
        const int32_t status = fill(device, plan);
        if (status) {
            free(plan);
            return status;
        }
        plan->next = device->first_plan;
        device->first_plan = plan;
    }
    if (plan->plan)
        *out = plan;
    return LS_OK;
}

void cuda_plans_finish(struct ls_device *device)
{
    while (device->first_plan) {
        struct cuda_plan *plan = device->first_plan;
        device->first_plan = plan->next;
        forget(device, plan);
        free(plan);
    }
}
