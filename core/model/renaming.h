// SPDX-License-Identifier: Apache-2.0
// Keras numbers the layers of a second model of a program on: dense_2 where the first has dense. Which layer of a file is
// which of a model then: those of a kind, in the order of their numbers. [main thread]
#ifndef LS_MODEL_RENAMING_H
#define LS_MODEL_RENAMING_H

#include "core/formats/safetensors.h"
#include "core/model/model.h"

struct ls_renaming;
// `*out` is NULL where the file has all layers of the model by their names, or of some kind more or
// fewer than the model. Else a line is logged.
LS_STATUS ls_renaming_create(const struct ls_model *model, const char *path,
                             const struct ls_safetensors *file, struct ls_renaming **out);
void ls_renaming_destroy(struct ls_renaming *renaming); // takes NULL
// "dense_2/kernel" for "dense/kernel", in `text`; the name itself where `renaming` is NULL.
const char *ls_renaming_apply(const struct ls_renaming *renaming, const char *name, char *text,
                              size_t bytes);

#endif
