// SPDX-License-Identifier: Apache-2.0
// A model between its calls: its graph, its weights on the host, and what the last fit has left.
// [main thread]
#ifndef LS_MODEL_MODEL_H
#define LS_MODEL_MODEL_H

#include "core/graph/layer.h"
#include "core/optimizer/optimizer.h"
#include "core/data/data.h"
#include "core/model/losses.h"
#include "core/model/metrics.h"
#include "core/run/run.h"

#include <stdatomic.h>

struct ls_session;

// How far a model has come in the order of its examples. It goes on over fits and compiles.
struct ls_model_order {
    uint64_t key; // of data, split and shuffle: the order of others is another
    uint64_t epochs; // behind it, those that were given up included
    uint64_t position; // examples of the next epoch that were trained; fewer than it has
};

// Whether the model is in ls_fit.
enum ls_fit_phase {
    LS_FIT_NONE,
    LS_FIT_TRAINS,
    LS_FIT_ENDS, // in on_train_end: what the fit leaves behind is there
    LS_FIT_STEPS, // in ls_strategy_run
};

struct ls_model {
    struct ls_run *run;
    char *source; // built-in name or file, in messages and reports
    json_t *json; // Keras model, from which the graph is built anewed by compile
    struct ls_shape input; // given by the data, where the model does not say it; ndims 0: none
    struct ls_graph *graph; // forward only until compiled
    uint64_t graph_number; // another one whenever the graph is another one
    bool compiled;
    struct ls_optimizer optimizer;
    char *schedule; // of the learning rate, as text; NULL: none
    struct ls_loss_set loss;
    bool keeps_outputs; // of any pass: step functions read them
    struct ls_metric_set metrics;
    // By parameter of the graph, plain layout. NULL: the first values, which the seed gives again.
    float **weights;
    float **states[LS_OPTIMIZER_STATES]; // of the optimizer; NULL until the first fit
    struct ls_saved_values *saved; // what weights and states are where these are NULL; NULL: none
    uint64_t
        steps_done; // of the optimizer: where replicas do not wait for each other, each push is one
    struct ls_loss_scale_state scale;
    struct ls_model_order order;
    atomic_bool stop_training; // somebody has asked for it in this fit
    enum ls_fit_phase fitting; // what a callback may call
    bool stepping; // replicas are in a segment, and read the learning rate
    struct ls_session *session; // that trains and evaluates it; NULL: none is open
    // Where weights and states were when they last came to the host; as above unless the replicas are
    // ahead. The states alone are behind after a fit whose weights somebody has read: then replicas
    // have made no step since, and the states come before they make one.
    struct {
        uint64_t steps_done;
        struct ls_loss_scale_state scale;
        struct ls_model_order order;
    } on_host;
    bool ahead, states_ahead;
    bool assigned; // variables were set on the host, and the session does not have them yet
    uint64_t set_key; // of what was set since the workers compared it; 0: nothing
    const char
        *refused; // why it may not be trained or evaluated before it is compiled anew; NULL: it may
    // What of the file with its weights was not read, for the next fit to say; NULL: nothing.
    char *skipped;
    bool told_of_lone; // examples
    bool told_of_pixels; // that nothing scales
    // Of what the model has learnt, by number; NULL: classes have no names, or nobody knows them.
    struct ls_class_names *class_names;
    const struct ls_class_names
        *shown_classes; // in files of predictions, instead; borrowed; may be NULL
    // It has learnt numbers, or its weights come from a file or program that does not name their classes; which nobody
    // has said yet.
    bool nameless;
    float *losses; // of the last fit
    size_t loss_count;
    struct ls_callbacks *callbacks; // of evaluations and predictions
    uint32_t callback_count;
    struct ls_epoch *epochs; // of the last fit
    size_t epoch_count;
};

// The next update of the optimizer, from 1: that of the next step, unless a loss scale skipped
// some.
static inline uint64_t ls_model_next_update(const struct ls_model *model)
{
    return (ls_optimizer_scales(&model->optimizer) ? model->scale.updates : model->steps_done) + 1;
}

// Reasons to refuse a model.
#define LS_REFUSED_DIFFER "replicas had different parameters"
#define LS_REFUSED_HUNG "a replica or its device did not answer"
#define LS_REFUSED_STATES "the state of its optimizer was lost with a replica"

// As ls_sequential_create, ls_input, ls_model_call, ls_model_create, ls_model_open,
// ls_model_open_json, but may fail without a message (core/api/calls.c).
LS_STATUS ls_create_sequential(struct ls_run *run, const char *name, const struct ls_layer *layers,
                               struct ls_model **out);
LS_STATUS ls_make_input(struct ls_run *run, const struct ls_layer *input, struct ls_symbol **out);
LS_STATUS ls_call_model(const struct ls_model *model, struct ls_symbol *const *inputs,
                        uint32_t input_count, struct ls_symbol **outputs, uint32_t output_count);
LS_STATUS ls_create_model(const char *name, const struct ls_model_ends *ends,
                          struct ls_model **out);
LS_STATUS ls_open_model(struct ls_run *run, const char *name, const struct ls_data *data,
                        struct ls_model **out);
// Of a built-in model, which takes shape and outputs from the data, the file of weights that are loaded
// next says how many outputs there are; NULL: the data does.
LS_STATUS ls_open_model_for_weights(struct ls_run *run, const char *name,
                                    const struct ls_data *data, const char *weights_path,
                                    struct ls_model **out);
LS_STATUS ls_open_model_json(struct ls_run *run, const char *name, const char *text,
                             const struct ls_data *data, struct ls_model **out);
void ls_model_destroy(struct ls_model *model); // which has no session; takes NULL

// What a model is compiled to, before it becomes that. Zeroed: nothing.
struct ls_compilation {
    struct ls_graph *graph;
    struct ls_optimizer optimizer;
    char *schedule; // of the learning rate, as text; NULL: none
    struct ls_loss_set loss;
    struct ls_metric_set metrics;
    bool keeps_outputs;
};
// What `options` (NULL: all by default) and the model's file say. Errors are logged. `out` is to be
// finished in any case.
LS_STATUS ls_compilation_create(const struct ls_model *model,
                                const struct ls_compile_options *options,
                                struct ls_compilation *out);
// What the model is, but that each example has a weight in the loss. Likewise.
LS_STATUS ls_compilation_weigh(const struct ls_model *model, struct ls_compilation *out);
void ls_compilation_finish(struct ls_compilation *compilation); // takes a zeroed one
// The model becomes that, and has no session. Its weights stay: the parameters of the new graph are
// the same. A new optimizer begins anew; after ls_compilation_weigh its states stay, too.
LS_STATUS ls_model_take_compilation(struct ls_model *model, struct ls_compilation *compilation);
void ls_model_take_weighted(struct ls_model *model, struct ls_compilation *compilation);

// Memory for values by parameter of the graph, plain layout; NULL: these are left out.
struct ls_values {
    float **weights;
    float **states[LS_OPTIMIZER_STATES];
};

// Where values come from while a file is written, if there is no room for a copy of all of them.
struct ls_value_source {
    // Once, before any `read`: whether there is a file. What it answers but LS_OK ends the writing.
    enum ls_status (*begin)(void *context, bool able);
    // A variable by its index in the graph (`state` -1), or a state of the optimizer of it. It is asked
    // for all of them, in the order of the graph, though the file may be of no use any more.
    enum ls_status (*read)(void *context, uint32_t parameter, int state, float *out);
    void *context;
};

// What a model has in a checkpoint that stays open, and the host no copy of.
struct ls_saved_values {
    struct ls_safetensors *file; // held; unread
    // By parameter and then 0: itself, 1 + k: state k. NULL: not in the file.
    const struct ls_saved_tensor **tensors;
    uint32_t parameters, states;
};
// The host has no copy of weights and states any more, and nothing is saved.
void ls_model_forget_values(struct ls_model *model);
void ls_saved_values_destroy(struct ls_saved_values *saved); // takes NULL

// A parameter (`state` -1) or a state, as it is where the host has no copy of these: saved, or first
// values. LS_BAD_INPUT, logged: the file was damaged meanwhile.
LS_STATUS ls_model_read_values(const struct ls_model *model, uint32_t parameter, int state,
                               float *out);
bool ls_model_has_saved(const struct ls_model *model, uint32_t parameter, int state);

// Saved or first values, unless there are weights already.
LS_STATUS ls_model_need_weights(struct ls_model *model);
// Memory for values of all parameters, which are not set; nothing where one does not fit.
LS_STATUS ls_model_allocate(const struct ls_model *model, float ***out);
void ls_model_free(const struct ls_model *model, float **buffers);
// The optimizer's state of that number, likewise.
LS_STATUS ls_model_need_states(struct ls_model *model, uint32_t index);
// Likewise all states that are saved.
LS_STATUS ls_model_need_saved_states(struct ls_model *model);
// The host has all that is saved, and the file is closed: whatever becomes of it, the model stays.
LS_STATUS ls_model_settle_saved(struct ls_model *model);
// The model is what the host has; what the replicas are ahead of it is lost.
void ls_model_give_up(struct ls_model *model);
// Warns where the model has gone back from step `steps` to an earlier one.
void ls_model_say_back(const struct ls_model *model, uint64_t steps);
// LS_USAGE (logged) where a callback of the model's own fit calls what it may not call.
LS_STATUS ls_model_check_idle(const struct ls_model *model, const char *call);
// The same for a call that callbacks may make, too, while the replicas rest.
LS_STATUS ls_model_check_resting(const struct ls_model *model, const char *call);
// LS_FAILED (logged by `scope`) when the model is refused.
LS_STATUS ls_model_check_refused(const struct ls_model *model, const char *scope);
// The same, and LS_USAGE when it is not compiled.
LS_STATUS ls_model_check_usable(const struct ls_model *model, const char *scope);
// LS_USAGE (logged) when the program computes the loss itself, in step functions.
LS_STATUS ls_model_check_has_loss(const struct ls_model *model, const char *scope);
// LS_USAGE (logged) when a training with logical shards has a rate that depends on the replicas.
LS_STATUS ls_model_check_rate(const struct ls_model *model);
// LS_BAD_INPUT (logged) when a fit would change nothing: all layers are frozen.
LS_STATUS ls_model_check_trained(const struct ls_model *model);
uint64_t ls_model_parameters(const struct ls_model *model); // elements, without constants

// How a batch is divided in training. Where replicas add up statistics within a pass, their passes
// are those of one device, so that the statistics are of the same examples. Holds as long as
// ls_run_division does.
struct ls_shares ls_model_division(const struct ls_model *model);

bool ls_model_data_has_weights(const struct ls_data *data); // of examples

// Checks that the data can be reshaped into the model's input and has labels that its loss takes.
// LS_BAD_INPUT, logged.
LS_STATUS ls_model_check_data(const struct ls_model *model, const struct ls_data *data);
// The same of the inputs alone.
LS_STATUS ls_model_check_inputs(const struct ls_model *model, const struct ls_data *data);

#endif
