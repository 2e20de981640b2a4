// SPDX-License-Identifier: Apache-2.0
// How a program is built: the graph's operations become nodes, nodes are rewritten and fused,
// prepared nodes become steps over values, and values get memory. Private to core/graph. [main
// thread]
#ifndef LS_GRAPH_BUILD_H
#define LS_GRAPH_BUILD_H

#include "core/graph/program.h"

#define LS_NO_VALUE UINT32_MAX

// The memory that a value is in.
enum ls_home {
    LS_HOME_NONE,
    LS_HOME_ARENA,
    LS_HOME_INPUT,
    LS_HOME_LABELS,
    LS_HOME_WEIGHTS,
    LS_HOME_SEED,
    LS_HOME_PARAMETERS,
    LS_HOME_GRADIENTS,
    LS_HOME_SHADOWS,
    LS_HOME_SUMS,
    LS_HOME_TOTALS,
    LS_HOME_COUNTS,
};

// A tensor as a program has it. The first values are the graph's tensors, by id.
struct ls_value {
    struct ls_tensor *tensor;
    bool owned; // the program's own tensor: a conversion, a shadow
    int32_t producer; // node that makes it, -1: none
    uint32_t same_as; // the value that stands for it since an identity was removed; itself: none
    uint32_t memory; // the value in whose memory it is; itself: its own
    struct ls_layout layout; // kind 0: not known yet
    enum ls_home home;
    uint64_t offset; // bytes from the start of its home
    uint32_t
        place; // of parameters, their gradients and shadows; of inputs, seeds and totals: which one
    uint32_t next; // another value of the same place of parameters; LS_NO_VALUE: none
    uint32_t converted_from; // LS_NO_VALUE: none
    uint32_t readers; // how often nodes that are not removed read it; of ls_rewrite()
    uint64_t reader_sum; // of the indexes of those nodes: where there is one, which
    bool needed; // a node that was not dropped reads it
    bool loss_reads; // the loss operation reads it
    bool written; // gradient of a parameter, or the loss's sums: a step writes it already
    uint64_t tile_bytes; // its memory has room for so much, the examples of one tile; 0: for all
};

struct ls_tile; // tile.c

// What a step needs beside its public part.
struct ls_step_plan {
    uint32_t values[LS_MAX_ARGUMENTS]; // inputs, then outputs
    uint32_t used_inputs;
    uint32_t in_place;
    uint32_t accumulate; // bit i: the kernel adds to output i
    uint64_t scratch_offset; // in the arena
    struct ls_tile *tile; // NULL: the step runs once for the whole batch
    bool leaves; // it may run on the branch
    uint32_t join; // of a step on the branch: before which step it is waited for; 0: the own stream
    uint32_t waits_for; // the last step of the branch that joins before this one, plus one; 0: none
    struct ls_event *over; // the branch, after this step; NULL: no step waits for it
};

// A pointer of a step that changes with the batch.
struct ls_batch_slot {
    struct ls_memory *memory;
    uint32_t given; // which
};

struct ls_program_buffers {
    struct ls_value *values;
    uint32_t value_count;
    struct ls_step_plan *plans; // one a step
    struct ls_launch *launches; // one a step
    uint32_t *outputs; // values, one for each output of the model
    uint32_t output_count;
    struct ls_bindings bindings;
    struct ls_memory *given; // inputs, labels, weights, then seeds, as they were set last
    struct ls_batch_slot *slots;
    uint32_t slot_count;
    uint32_t branch_from; // the first step on the branch that has not joined at the end of a part
    bool branch_follows; // the branch runs after all that is on the own stream
};

#define LS_MAX_FUSED 2 // an addend and an epilogue

// An operation of the graph in this program; their indexes are the same.
struct ls_node {
    uint32_t op;
    struct ls_op_attributes attributes;
    uint32_t inputs[LS_MAX_ARGUMENTS], outputs[LS_MAX_ARGUMENTS]; // values
    uint32_t input_count, output_count;
    const struct ls_operation *source;
    bool removed;
    bool takes_casts; // the casts around it become a part of it
    uint32_t fused_count; // nodes that run as a part of this one
    uint32_t fused[LS_MAX_FUSED]; // which, in their order
    uint32_t fused_outputs[LS_MAX_FUSED]; // output 0 before each
    struct ls_kernel *kernel; // once prepared; owned by the step
};

struct ls_build {
    struct ls_parameter_plan *plan;
    const struct ls_graph *graph;
    struct ls_program_options options;
    bool choosing; // only forward, and master layouts are chosen on the way
    struct ls_node *nodes;
    uint32_t node_count;
    uint32_t *of_place; // by place, the first of its values; LS_NO_VALUE: none
    struct ls_program *program;
    struct ls_program_buffers *buffers; // of the program
};

static inline bool ls_build_trains(const struct ls_build *build)
{
    return build->options.purpose == LS_PURPOSE_TRAIN;
}

// Whether the model's outputs can be read after a run.
static inline bool ls_keeps_outputs(const struct ls_program *program)
{
    return program->options.purpose == LS_PURPOSE_PREDICT || !program->graph->sums ||
           program->graph->keeps_outputs;
}

static inline bool ls_is_output(const struct ls_program_buffers *buffers, uint32_t value)
{
    uint32_t i = 0;
    while (i < buffers->output_count && buffers->outputs[i] != value)
        i++;
    return i < buffers->output_count;
}

static inline bool ls_layout_equal(const struct ls_layout *a, const struct ls_layout *b)
{
    const unsigned char *p = (const unsigned char *)a, *q = (const unsigned char *)b;
    size_t i = 0;
    while (i < sizeof(*a) && p[i] == q[i])
        i++;
    return i == sizeof(*a);
}

static inline uint64_t ls_align(uint64_t bytes)
{
    return (bytes + LS_ALIGNMENT - 1) / LS_ALIGNMENT * LS_ALIGNMENT;
}

// ---- build.c ----

// Steps of a program without memory; `choosing` see above.
LS_STATUS ls_build_program(struct ls_parameter_plan *plan, const struct ls_graph *graph,
                           const struct ls_program_options *options, bool choosing,
                           struct ls_program **out);

// ---- values.c ----

struct ls_value *ls_value_add(struct ls_program_buffers *buffers); // NULL: no memory
// A value of the program's own, shaped as `like`.
LS_STATUS ls_build_value(struct ls_build *build, uint32_t like, enum ls_tensor_role role,
                         const struct ls_layout *layout, uint32_t *out);

// Appends an empty step; its index is step_count - 1.
LS_STATUS ls_build_step(struct ls_build *build);

uint32_t ls_value_same(const struct ls_program_buffers *buffers, uint32_t value);
uint32_t ls_value_memory(const struct ls_program_buffers *buffers, uint32_t value);

// Dimensions with the batch filled in; layout of kind ANY.
void ls_describe_tensor(const struct ls_tensor *tensor, int64_t batch, struct ls_tensor_desc *out);
struct ls_layout ls_plain_layout(const struct ls_tensor_desc *desc);

// ---- program.c ----

// Lists the arguments of the steps that change with the batch.
LS_STATUS ls_program_list_slots(struct ls_program *program);

// ---- rewrite.c ----

// Removes identities, reads through reshapes, drops what is not needed and fuses what the device
// can.
void ls_rewrite(struct ls_build *build);
// Takes the last fusion back.
void ls_unfuse(struct ls_build *build, struct ls_node *node);

// ---- prepare.c ----

LS_STATUS ls_prepare_node(struct ls_build *build, uint32_t node);

// ---- convert.c ----

// A step that rewrites value `from` into the memory of `to`, whose layout is known.
LS_STATUS ls_insert_convert(struct ls_build *build, const struct ls_node *node, uint32_t from,
                            uint32_t to);
// `value` in another layout, of another floating type, or both: one that was made before, or a new
// step's.
LS_STATUS ls_convert_value(struct ls_build *build, const struct ls_node *node, uint32_t value,
                           const struct ls_layout *layout, uint32_t dtype, uint32_t *out);
// A parameter's shadow in `layout`, of type `dtype`, added to the plan where it has none.
LS_STATUS ls_shadow_value(struct ls_build *build, uint32_t parameter,
                          const struct ls_layout *layout, uint32_t dtype, uint32_t *out);
// Steps that add value `from`, in the same layout, to the parameter gradient `to`.
LS_STATUS ls_insert_add(struct ls_build *build, const struct ls_node *node, uint32_t from,
                        uint32_t to);

// Prepares an operation whose arguments' layouts are all fixed. LS_UNSUPPORTED is not logged.
LS_STATUS ls_prepare_fixed(const struct ls_parameter_plan *plan, uint32_t op,
                           const struct ls_tensor_desc *arguments, uint32_t input_count,
                           uint32_t output_count, struct ls_kernel_answer *out);
// Prepares LS_OP_CONVERT between two layouts; failures are logged.
LS_STATUS ls_prepare_convert(const struct ls_parameter_plan *plan, const char *name,
                             const struct ls_tensor_desc *from, const struct ls_tensor_desc *to,
                             struct ls_kernel_answer *out);

// ---- tile.c ----

// Tiles the steps of a program whose steps are complete, before its memory is planned, where the
// device asks for it.
LS_STATUS ls_tile_steps(struct ls_program *program);
// The steps that run together with `step`: from the first to the last of them. Itself where it is
// not tiled.
uint32_t ls_tile_first(const struct ls_program *program, uint32_t step);
uint32_t ls_tile_last(const struct ls_program *program, uint32_t step);
// Runs all tiles of the steps that begin with `first`. [replica thread]
LS_STATUS ls_tile_run(struct ls_program *program, uint32_t first, bool timing);
void ls_tile_destroy(struct ls_program *program, struct ls_tile *tile); // takes NULL

// ---- segment.c ----

// Makes one step of the loss and its gradient, where the device makes one kernel of both; of a
// program whose steps are complete.
LS_STATUS ls_join_loss(struct ls_program *program);

// ---- branch.c ----

// Which steps may run on the branch; before memory is planned.
LS_STATUS ls_branch_find(struct ls_program *program);
// All of them do, and each joins when `ahead` more steps run on the own stream; 0: none does.
void ls_branch_set_joins(struct ls_program *program, uint32_t ahead);
// What the steps need to run so; after memory was planned.
LS_STATUS ls_branch_make_events(struct ls_program *program);
// Around the launch of a step. [replica thread]
LS_STATUS ls_branch_before(struct ls_program *program, uint32_t step);
LS_STATUS ls_branch_after(struct ls_program *program, uint32_t step);

// ---- arena.c ----

// Gives every value in the arena its offset.
LS_STATUS ls_plan_memory(struct ls_program *program);

// ---- labels.c ----

// "conv2d_1 forward + relu"
void ls_label_step(const struct ls_build *build, const struct ls_node *node, char *text,
                   size_t bytes);

#endif
