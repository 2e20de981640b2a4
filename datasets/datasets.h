// SPDX-License-Identifier: Apache-2.0
// The datasets, one entry each; datasets.c lists them for the core.
#ifndef LS_DATASETS_DATASETS_H
#define LS_DATASETS_DATASETS_H

#include "core/data/dataset.h"

extern const struct ls_dataset_kind ls_dataset_arrays;
extern const struct ls_dataset_kind ls_dataset_cifar10;
extern const struct ls_dataset_kind ls_dataset_cifar100;
extern const struct ls_dataset_kind ls_dataset_csv;
extern const struct ls_dataset_kind ls_dataset_images;
extern const struct ls_dataset_kind ls_dataset_mnist;
extern const struct ls_dataset_kind ls_dataset_fashion_mnist;
extern const struct ls_dataset_kind ls_dataset_fashion_mnist_small;
extern const struct ls_dataset_kind ls_dataset_synthetic;
extern const struct ls_dataset_kind ls_dataset_text;
extern const struct ls_dataset_kind ls_dataset_tfrecord;

#endif
