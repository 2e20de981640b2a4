// SPDX-License-Identifier: Apache-2.0
// Checkpoints: a safetensors file with the variables under their names, the states of the optimizer
// ("conv2d/kernel/optimizer_0"), and what else a training needs to go on as a text of its metadata,
// with a checksum over all of it.
#ifndef LS_MODEL_CHECKPOINT_FILE_H
#define LS_MODEL_CHECKPOINT_FILE_H

#include "core/formats/safetensors.h"
#include "core/model/model.h"

#include <jansson.h>

struct ls_renaming;

#define LS_CHECKPOINT_STATE "lockstep_training" // text of the metadata: the state
#define LS_CHECKPOINT_SUM "lockstep_xxh64" // and the checksum

// A copy of a model, which is written beside the training; or with a source what is to be written at
// once, while the replicas rest. Zeroed, or taken.
struct ls_checkpoint_image {
    struct ls_saved_tensor *tensors;
    size_t count, room;
    char *state; // JSON
    char *classes; // LS_CLASS_NAMES; NULL: none
    uint64_t step;
    // Which training writes it, and which of the chiefs that have followed each other in it. 0: none.
    uint64_t training, generation;
    // `read` NULL: tensors have their values. Else the first `sourced` tensors have none.
    struct ls_value_source source;
    size_t sourced;
    const struct ls_graph *graph; // with a source; borrowed
    uint32_t states; // of each variable
    enum ls_status failed; // of the source, when it was written
};

// Begins a copy of the model with its optimizer, in which memory of an earlier copy is used again.
// `to`: where the values belong; the caller frees to->weights. LS_OUT_OF_MEMORY: nothing is to be
// freed. [main thread]
LS_STATUS ls_checkpoint_begin(const struct ls_model *model, struct ls_checkpoint_image *image,
                              struct ls_values *to);
// The same without a copy.
LS_STATUS ls_checkpoint_begin_from(const struct ls_model *model,
                                   const struct ls_value_source *source,
                                   struct ls_checkpoint_image *image);
// Copies there what the replicas are not ahead of.
void ls_checkpoint_copy(const struct ls_model *model, const struct ls_values *to);
// Adds a tensor of one dimension, a copy of `values`. LS_OUT_OF_MEMORY.
LS_STATUS ls_checkpoint_add(struct ls_checkpoint_image *image, const char *name,
                            const float *values, uint64_t count);
// Removes tensor `index`; those behind it move up.
void ls_checkpoint_remove(struct ls_checkpoint_image *image, size_t index);
// The state becomes `own`, whose reference is taken, beside the model's.
LS_STATUS ls_checkpoint_describe(const struct ls_model *model, json_t *own,
                                 struct ls_checkpoint_image *image);
void ls_checkpoint_finish(struct ls_checkpoint_image *image); // takes a zeroed one

// LS_FAILED, logged; `path` is complete, or what it was before. With a source, what that answers, too.
// [any thread; with a source as that says]
LS_STATUS ls_checkpoint_write(struct ls_checkpoint_image *image, const char *path);

// The same into an open file, such as one in memory; `name` is for messages.
LS_STATUS ls_checkpoint_write_to(const struct ls_checkpoint_image *image, int fd, const char *name,
                                 bool uncached);

// Opens a checkpoint, unread, and checks its sum. LS_BAD_INPUT, logged: it is damaged. LS_UNSUPPORTED, not
// logged: a safetensors file that is no checkpoint. [any thread]
LS_STATUS ls_checkpoint_open(const char *path, struct ls_safetensors **file, json_t **state);

// What a checkpoint says of itself in its first bytes. Of two, the newer one has the higher generation,
// or of the same generation the higher step.
struct ls_checkpoint_head {
    uint64_t generation, step;
    uint64_t training; // 0: it does not say
};

// Reads the head alone. Not logged: LS_UNSUPPORTED for a safetensors file that is no checkpoint;
// LS_BAD_INPUT for one that cannot be used, with the reason: "is a directory". [any thread]
LS_STATUS ls_checkpoint_read_head(const char *path, struct ls_checkpoint_head *out,
                                  char why[static 128]);

// What an opened checkpoint has for a model. Zeroed: nothing.
struct ls_found_checkpoint {
    const char *path; // for messages
    struct ls_safetensors *file;
    struct ls_renaming *renaming;
    struct ls_class_names *names;
    uint64_t steps;
    struct ls_model_order order;
    struct ls_loss_scale_state scale;
    double learning_rate;
};
// Finds the model in an opened checkpoint, which stays open until `out` is finished, whatever the
// status is. LS_BAD_INPUT, logged: it is another model's. LS_USAGE, logged: the model is compiled
// with another optimizer. [main thread]
LS_STATUS ls_checkpoint_match(const struct ls_model *model, const char *path,
                              struct ls_safetensors *file, const json_t *state,
                              struct ls_found_checkpoint *out);
// The model becomes that of the checkpoint, which it holds open until the host has a copy: values go
// to replicas one by one. It has no session. [main thread]
LS_STATUS ls_model_take_checkpoint(struct ls_model *model, struct ls_found_checkpoint *found);
void ls_found_checkpoint_finish(struct ls_found_checkpoint *found); // takes a zeroed one

// Whether the name says what ls_model_save writes; checkpoints have names of their own.
LS_STATUS ls_model_check_file_name(const char *path);

// Orders and numbers in states.
json_t *ls_checkpoint_order(const struct ls_model_order *order);
bool ls_checkpoint_read_order(const json_t *json, struct ls_model_order *out);
bool ls_checkpoint_count(const json_t *object, const char *key, uint64_t *out);

#endif
