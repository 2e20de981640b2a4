// SPDX-License-Identifier: Apache-2.0
// A warning about pixels from 0 to 255 that nothing scales: they train badly, and a model that was
// trained on pixels from 0 to 1 predicts nonsense from them. [main thread]
#ifndef LS_MODEL_PIXELS_H
#define LS_MODEL_PIXELS_H

#include "core/data/dataset.h"
#include "core/model/model.h"

// Once for each model, where its first input is made of such numbers and goes into weights as it is.
void ls_model_warn_of_pixels(struct ls_model *model, const char *data_text,
                             const struct ls_dataset *dataset);

#endif
