// SPDX-License-Identifier: Apache-2.0
// mnist and fashion-mnist: two sets of 28 x 28 grey pictures in the same four IDX files. The first pictures of
// fashion-mnist are installed with Lockstep, as fashion-mnist-small.
//   LeCun, Bottou, Bengio, Haffner, "Gradient-based learning applied to document recognition", 1998
//   Xiao, Rasul, Vollgraf, "Fashion-MNIST: a Novel Image Dataset", 2017 (arXiv:1708.07747)
// Pictures keep their rows and columns and get one channel: (count, 28, 28, 1), divided by 255.
#include "datasets/datasets.h"

#include "core/base/log.h"
#include "core/loader/loader.h"
#include "datasets/idx.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CLASS_COUNT 10
#define PIXEL 255

// What tells the two sets apart.
struct family {
    const char *name;
    const char *default_dir; // NULL: `dir` must be given, unless it is installed with Lockstep
    bool installed; // beside the models
    const char *remedy; // ends the message about a file that is not there
    const char *const *class_names;
};

struct storage {
    struct ls_dataset dataset;
    struct ls_idx images;
    struct ls_idx labels;
};

static const char *const digit_names[CLASS_COUNT] = {"0", "1", "2", "3", "4",
                                                     "5", "6", "7", "8", "9"};
static const char *const fashion_names[CLASS_COUNT] = {
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat",
    "Sandal",      "Shirt",   "Sneaker",  "Bag",   "Ankle boot",
};

static const struct family families[] = {
    {
        .name = "mnist",
        .remedy = "give the folder of MNIST's four IDX files: mnist:dir=PATH",
        .class_names = digit_names,
    },
    {
        .name = "fashion-mnist",
        .default_dir = "/usr/share/datasets/fashion-mnist",
        .remedy = "install Debian's package dataset-fashion-mnist, or give fashion-mnist:dir=PATH",
        .class_names = fashion_names,
    },
    {
        .name = "fashion-mnist-small",
        .installed = true,
        .remedy = "install Lockstep again",
        .class_names = fashion_names,
    },
};

static const struct family *family_of(const struct ls_spec *spec)
{
    const struct family *family = families;
    while (strcmp(family->name, spec->name) != 0)
        family++;
    return family;
}

// The path of the plain file if there is one, else of the compressed one. Freed by the caller.
static enum ls_status find_file(const struct family *family, const char *dir, const char *file,
                                char **out)
{
    const size_t bytes = strlen(dir) + strlen(file) + sizeof("/.gz");
    char *path = malloc(bytes);
    if (!path)
        return LS_OUT_OF_MEMORY;
    snprintf(path, bytes, "%s/%s", dir, file);
    if (access(path, F_OK))
        snprintf(path, bytes, "%s/%s.gz", dir, file);
    if (access(path, F_OK)) {
        ls_error(family->name, "%s/%s does not exist, neither plain nor as .gz; %s", dir, file,
                 family->remedy);
        free(path);
        return LS_BAD_INPUT;
    }
    *out = path;
    return LS_OK;
}

static enum ls_status check_labels(const struct family *family, const char *path,
                                   const struct ls_idx *labels)
{
    for (size_t i = 0; i < labels->bytes; i++) {
        if (labels->data[i] >= CLASS_COUNT) {
            ls_error(family->name, "%s: label %zu is %u; the classes are 0 to %d", path, i,
                     (unsigned)labels->data[i], CLASS_COUNT - 1);
            return LS_BAD_INPUT;
        }
    }
    return LS_OK;
}

static enum ls_status read_labels(const struct family *family, const char *dir, const char *file,
                                  struct storage *storage)
{
    char *path;
    enum ls_status status = find_file(family, dir, file, &path);
    if (status)
        return status;
    status = ls_idx_read(family->name, path, 1, &storage->labels);
    if (!status)
        status = check_labels(family, path, &storage->labels);
    free(path);
    return status;
}

// After the labels, whose count it checks.
static enum ls_status read_images(const struct family *family, const char *dir, const char *file,
                                  struct storage *storage)
{
    char *path;
    enum ls_status status = find_file(family, dir, file, &path);
    if (status)
        return status;
    status = ls_idx_read(family->name, path, 3, &storage->images);
    if (!status && storage->images.dims[0] != storage->labels.dims[0]) {
        ls_error(family->name, "%s: %" PRIu32 " images, but %" PRIu32 " labels in its companion",
                 path, storage->images.dims[0], storage->labels.dims[0]);
        status = LS_BAD_INPUT;
    }
    free(path);
    return status;
}

static void storage_close(struct ls_dataset *dataset)
{
    struct storage *storage = dataset->storage;
    ls_idx_finish(&storage->images);
    ls_idx_finish(&storage->labels);
    free(storage);
}

static void describe_fields(const struct family *family, const struct ls_idx *images,
                            struct ls_field *out)
{
    out[0] = (struct ls_field){.name = "x",
                               .role = LS_FIELD_INPUT,
                               .dtype = LS_U8,
                               .ndims = 3,
                               .dims = {images->dims[1], images->dims[2], 1},
                               .divisor = PIXEL,
                               .stride = (uint64_t)images->dims[1] * images->dims[2]};
    out[1] = (struct ls_field){.name = "y",
                               .role = LS_FIELD_TARGET,
                               .dtype = LS_U8,
                               .divisor = 1,
                               .class_count = CLASS_COUNT,
                               .class_names = family->class_names,
                               .stride = 1};
}

static void fill_dataset(const struct family *family, struct storage *storage)
{
    const struct ls_idx *images = &storage->images;
    storage->dataset = (struct ls_dataset){
        .count = images->dims[0],
        .field_count = 2,
        .real = true,
        .storage = storage,
        .close = storage_close,
    };
    describe_fields(family, images, storage->dataset.fields);
    storage->dataset.fields[0].values = images->data;
    storage->dataset.fields[1].values = storage->labels.data;
}

static enum ls_status find_dir(const struct family *family, const struct ls_spec *spec,
                               char out[PATH_MAX])
{
    const char *given = ls_spec_get(spec, "dir");
    const char *dir = given ? given : family->default_dir;
    if (dir && strlen(dir) < PATH_MAX) {
        strcpy(out, dir);
        return LS_OK;
    }
    if (family->installed && ls_find_installed(LS_DATASETS_FROM_PROGRAM "/fashion-mnist-small",
                                               LS_DATASETS_FROM_LIBRARY "/fashion-mnist-small",
                                               "datasets/fashion-mnist-small", out))
        return LS_OK;
    if (dir)
        ls_error(family->name, "the path of option dir is too long");
    else if (family->installed)
        ls_error(family->name, "it was not found beside this program; %s", family->remedy);
    else
        ls_error(family->name, "the option dir is missing: %s", family->remedy);
    return family->installed ? LS_UNAVAILABLE : LS_USAGE;
}

static const char *images_file(enum ls_split split)
{
    return split == LS_TRAIN ? "train-images-idx3-ubyte" : "t10k-images-idx3-ubyte";
}

static enum ls_status family_describe(const struct ls_spec *spec, enum ls_split split,
                                      struct ls_dataset_info *out)
{
    const struct family *family = family_of(spec);
    char dir[PATH_MAX];
    char *path;
    struct ls_idx images;
    enum ls_status status = find_dir(family, spec, dir);
    if (!status)
        status = find_file(family, dir, images_file(split), &path);
    if (status)
        return status;
    status = ls_idx_read_header(family->name, path, 3, &images);
    free(path);
    if (status)
        return status;
    *out = (struct ls_dataset_info){.count = images.dims[0], .field_count = 2};
    describe_fields(family, &images, out->fields);
    return LS_OK;
}

static enum ls_status family_open(const struct ls_spec *spec, enum ls_split split,
                                  struct ls_dataset **out)
{
    const struct family *family = family_of(spec);
    char dir[PATH_MAX];
    enum ls_status status = find_dir(family, spec, dir);
    if (status)
        return status;
    struct storage *storage = calloc(1, sizeof(*storage));
    if (!storage)
        return LS_OUT_OF_MEMORY;
    storage->dataset.storage = storage;
    status = read_labels(family, dir,
                         split == LS_TRAIN ? "train-labels-idx1-ubyte" : "t10k-labels-idx1-ubyte",
                         storage);
    if (!status)
        status = read_images(family, dir, images_file(split), storage);
    if (status) {
        storage_close(&storage->dataset);
        return status;
    }
    fill_dataset(family, storage);
    *out = &storage->dataset;
    return LS_OK;
}

static const struct ls_plugin_option mnist_options[] = {
    {"dir", "text", NULL, "folder with train-images-idx3-ubyte and its companions, plain or .gz"},
    {0},
};
static const struct ls_plugin_option fashion_options[] = {
    {"dir", "text", "/usr/share/datasets/fashion-mnist",
     "folder with train-images-idx3-ubyte and its companions, plain or .gz"},
    {0},
};

const struct ls_dataset_kind ls_dataset_mnist = {
    .name = "mnist",
    .summary = "60,000 handwritten digits, 28 x 28, 10 classes; 10,000 for the test",
    .options = mnist_options,
    .open = family_open,
    .describe = family_describe,
};

const struct ls_dataset_kind ls_dataset_fashion_mnist = {
    .name = "fashion-mnist",
    .summary = "60,000 images of clothing, 28 x 28, 10 classes; 10,000 for the test",
    .options = fashion_options,
    .open = family_open,
    .describe = family_describe,
};

const struct ls_dataset_kind ls_dataset_fashion_mnist_small = {
    .name = "fashion-mnist-small",
    .summary = "the first 4,000 of fashion-mnist and 1,000 for the test, which come with Lockstep",
    .open = family_open,
    .describe = family_describe,
};
