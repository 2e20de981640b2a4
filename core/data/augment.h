// SPDX-License-Identifier: Apache-2.0
// Random changes of training images. What happens to an example is a function of (seed, epoch,
// number of the example), so neither replicas, batches nor threads change it.
#ifndef LS_DATA_AUGMENT_H
#define LS_DATA_AUGMENT_H

#include "core/base/options.h"
#include "core/data/dataset.h"

// The options random_flip=, random_crop=, random_translation= and random_rotation=; ends with a NULL
// name.
extern const struct ls_plugin_option ls_augmentation_options[];

// LS_USAGE, logged: a value out of range.
LS_STATUS ls_augmentation_read(const char *scope, const struct ls_spec *spec,
                               struct ls_augmentation *out);
bool ls_augmentation_is_none(const struct ls_augmentation *augmentation);
// LS_USAGE, logged: there is something to do, and the first input is no image of uint8 or float32
// values, (rows, columns, channels).
LS_STATUS ls_augmentation_check(const char *scope, const struct ls_augmentation *augmentation,
                                const struct ls_field *fields, uint32_t field_count);

// The draws of an epoch; of an example by ls_random_key(epoch_key, example).
uint64_t ls_augmentation_key(uint64_t seed, uint64_t epoch);
// Makes another image of `from`, in one of two buffers of its size, which is returned. 8-bit values
// are rounded to the nearest. [any thread]
void *ls_augment(const struct ls_augmentation *augmentation, const struct ls_field *field,
                 uint64_t key, const void *from, void *buffers[2]);

// The two transformations as Keras's RandomTranslation and RandomRotation do them, with bilinear
// interpolation and reflection at the edges. Shifts are in pixels, down and to the right; `angle` is
// in radians, counterclockwise.
void ls_image_shift(const struct ls_field *field, double rows, double columns, const void *from,
                    void *to);
void ls_image_rotate(const struct ls_field *field, double angle, const void *from, void *to);

#endif
