// SPDX-License-Identifier: Apache-2.0
// The classes that a model has learnt, and the numbers that they have. [main
// thread]
#ifndef LS_MODEL_LEARNED_CLASSES_H
#define LS_MODEL_LEARNED_CLASSES_H

#include "core/formats/safetensors.h"
#include "core/model/model.h"

// Waits for the data, whose classes have the numbers that the model has learnt. `labels`: its
// targets are looked at. LS_BAD_INPUT, logged: it has a class that the model does not know, or the
// model knows more classes than it has units.
LS_STATUS ls_model_wait_data(struct ls_model *model, struct ls_data *data, bool labels,
                             const struct ls_dataset **out);
// The model learns the classes of data that it is trained on, if it knows none.
LS_STATUS ls_model_learn_classes(struct ls_model *model, struct ls_data *data);
// What a model begins with has classes without names: labels that are numbers, or weights that the program sets.
void ls_model_learn_numbers(struct ls_model *model);
// From now on the model knows these, which are taken; NULL: nobody knows them.
void ls_model_set_classes(struct ls_model *model, struct ls_class_names *names);
// What a file says of classes (LS_CLASS_NAMES); `*out` is NULL where it says nothing. LS_BAD_INPUT,
// logged.
LS_STATUS ls_class_names_read(const char *path, const struct ls_safetensors *file,
                              struct ls_class_names **out);

#endif
