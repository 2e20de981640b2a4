// SPDX-License-Identifier: Apache-2.0
// The list of datasets that the core chooses from. A new format adds its file and its line.
#include "datasets/datasets.h"

const struct ls_dataset_kind *const ls_dataset_kinds[] = {
    &ls_dataset_arrays,        &ls_dataset_cifar10,
    &ls_dataset_cifar100,      &ls_dataset_csv,
    &ls_dataset_images,        &ls_dataset_mnist,
    &ls_dataset_fashion_mnist, &ls_dataset_fashion_mnist_small,
    &ls_dataset_synthetic,     &ls_dataset_text,
    &ls_dataset_tfrecord,      NULL,
};
