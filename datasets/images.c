// SPDX-License-Identifier: Apache-2.0
// images: a folder with a folder of images for each class, as Keras's image_dataset_from_directory
// and torchvision's ImageFolder take it; with folders train and test above, where there are two
// splits. Names of classes are sorted, and so are the files of each. Files are listed when the set is
// opened, and decoded when their batch is made.
#include "datasets/datasets.h"

#include "core/base/hash.h"
#include "core/base/log.h"
#include "datasets/field_options.h"
#include "datasets/image.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#define SCOPE "images"
#define MOST_FILE_BYTES (INT64_C(1) << 28)
#define MOST_CLASSES 65536
#define MOST_DEPTH 16 // of folders in the folder of a class

struct image_name {
    char *path;
    int32_t label;
    double place; // among the images of its class, 0 to 1
};

struct index {
    struct image_name *images;
    uint64_t count, room;
    char **classes; // names
    uint32_t class_count;
};

struct storage {
    struct ls_dataset dataset;
    struct index index;
    int32_t *labels;
    size_t folder_bytes; // that all paths begin with, with the slash behind it
    bool resize;
};

// What the options ask for.
struct wish {
    char *folder; // of the split
    char *train; // of the training images, whose classes count
    int64_t rows, columns; // 0: those of the first image
    int64_t channels;
    float divisor;
    bool mix; // the classes, because a part of the images is asked for
};

// ---- Folders ----

static char *join(const char *folder, const char *name)
{
    const size_t bytes = strlen(folder) + strlen(name) + 2;
    char *path = malloc(bytes);
    if (path)
        snprintf(path, bytes, "%s/%s", folder, name);
    return path;
}

static bool is_folder(const char *path)
{
    struct stat about;
    return path && stat(path, &about) == 0 && S_ISDIR(about.st_mode);
}

static enum ls_status fail(const char *path, const char *what)
{
    ls_error(SCOPE, "%s: %s", path, what);
    return LS_BAD_INPUT;
}

// The folder of a split: `given` (an option) or `name`, in dir. NULL without memory.
static char *folder_of(const char *dir, const char *given, const char *name)
{
    return given && strchr(given, '/') ? strdup(given) : join(dir, given ? given : name);
}

// Which folders there are. A set without a folder of tests is one split.
static bool is_one_split(const struct ls_spec *spec)
{
    const char *dir = ls_spec_get(spec, "dir");
    char *train = dir ? folder_of(dir, ls_spec_get(spec, "train"), "train") : NULL;
    char *test = dir ? folder_of(dir, ls_spec_get(spec, "test"), "test") : NULL;
    const bool two = (ls_spec_get(spec, "train") || is_folder(train)) &&
                     (ls_spec_get(spec, "test") || is_folder(test));
    free(train);
    free(test);
    return !two;
}

static enum ls_status find_folders(const struct ls_spec *spec, enum ls_split split,
                                   struct wish *wish)
{
    const char *dir = ls_spec_get(spec, "dir");
    const char *given = ls_spec_get(spec, "train");
    wish->train = folder_of(dir, given, "train");
    if (!wish->train)
        return LS_OUT_OF_MEMORY;
    if (!given && !is_folder(wish->train)) {
        free(wish->train);
        wish->train = strdup(dir);
    }
    wish->folder = split == LS_TEST && !is_one_split(spec)
                       ? folder_of(dir, ls_spec_get(spec, "test"), "test")
                       : strdup(wish->train ? wish->train : "");
    return wish->train && wish->folder ? LS_OK : LS_OUT_OF_MEMORY;
}

static enum ls_status read_wish(const struct ls_spec *spec, enum ls_split split, struct wish *wish)
{
    *wish = (struct wish){.channels = 3, .divisor = 255};
    if (!ls_spec_get(spec, "dir")) {
        ls_error(SCOPE, "dir is missing; expected images:dir=FOLDER, with a folder for each class");
        return LS_USAGE;
    }
    enum ls_status status = ls_read_image_options(SCOPE, spec, &wish->rows, &wish->columns,
                                                  &wish->channels, &wish->divisor);
    wish->mix = ls_spec_get(spec, "skip") || ls_spec_get(spec, "take") ||
                ls_spec_get(spec, "limit") || ls_spec_get(spec, "validation_split");
    return status ? status : find_folders(spec, split, wish);
}

static void finish_wish(struct wish *wish)
{
    free(wish->folder);
    free(wish->train);
}

// ---- Listing ----

static void free_index(struct index *index)
{
    for (uint64_t i = 0; i < index->count; i++)
        free(index->images[i].path);
    for (uint32_t i = 0; i < index->class_count; i++)
        free(index->classes[i]);
    free(index->images);
    free(index->classes);
    *index = (struct index){0};
}

static bool ends_with(const char *name, const char *const *ends)
{
    const size_t length = strlen(name);
    for (; *ends; ends++)
        if (length > strlen(*ends) && strcasecmp(name + length - strlen(*ends), *ends) == 0)
            return true;
    return false;
}

static enum ls_status add_image(struct index *index, char *path, int32_t label)
{
    if (index->count == index->room) {
        const uint64_t room = index->room ? 2 * index->room : 256;
        struct image_name *images = realloc(index->images, room * sizeof(*images));
        if (!images) {
            free(path);
            return LS_OUT_OF_MEMORY;
        }
        index->images = images;
        index->room = room;
    }
    index->images[index->count++] = (struct image_name){.path = path, .label = label};
    return LS_OK;
}

// Names that begin with a dot are left out, and so is what is no image. Another format is refused.
static bool is_image(const char *path, const char *name, enum ls_status *status)
{
    static const char *const read[] = {".jpg", ".jpeg", ".png", NULL};
    static const char *const others[] = {".bmp", ".gif", ".webp", ".tif", ".tiff", NULL};
    if (ends_with(name, others))
        *status = fail(path, "is neither a JPEG nor a PNG image; convert it, or move it away");
    return ends_with(name, read);
}

// All images in the folder and in those inside; not the folders that links lead to.
static enum ls_status list_images(struct index *index, const char *folder, int32_t label,
                                  unsigned depth)
{
    struct dirent **entries = NULL;
    const int count = scandir(folder, &entries, NULL, NULL);
    enum ls_status status = count < 0 ? fail(folder, strerror(errno)) : LS_OK;
    for (int i = 0; i < count; i++) {
        const char *name = entries[i]->d_name;
        struct stat about;
        char *path = status || name[0] == '.' ? NULL : join(folder, name);
        if (!status && name[0] != '.' && !path)
            status = LS_OUT_OF_MEMORY;
        if (path && lstat(path, &about) == 0 && S_ISDIR(about.st_mode)) {
            if (label >= 0)
                status = depth < MOST_DEPTH ? list_images(index, path, label, depth + 1)
                                            : fail(path, "too many folders in folders");
        } else if (path && is_image(path, name, &status) && !status) {
            status = add_image(index, path, label);
            path = NULL;
        }
        free(path);
        free(entries[i]);
    }
    free(entries);
    return status;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

// The folders in `folder`, sorted: the names of the classes. The names are the caller's.
static enum ls_status list_classes(const char *folder, char ***out, uint32_t *class_count)
{
    struct dirent **entries = NULL;
    const int count = scandir(folder, &entries, NULL, NULL);
    if (count < 0)
        return fail(folder, strerror(errno));
    char **names = calloc((size_t)count + 1, sizeof(*names));
    enum ls_status status = names ? LS_OK : LS_OUT_OF_MEMORY;
    uint32_t found = 0;
    for (int i = 0; i < count; i++) {
        char *path = status ? NULL : join(folder, entries[i]->d_name);
        if (path && entries[i]->d_name[0] != '.' && is_folder(path)) {
            names[found] = strdup(entries[i]->d_name);
            if (names[found])
                found++;
            else
                status = LS_OUT_OF_MEMORY;
        }
        free(path);
        free(entries[i]);
    }
    free(entries);
    if (!status && found > MOST_CLASSES)
        status = fail(folder, "more than 65,536 folders; each is a class");
    if (!status)
        qsort(names, found, sizeof(*names), compare_names);
    *out = names; // also when it failed, to be freed
    *class_count = found;
    return status;
}

static int compare_images(const void *a, const void *b)
{
    const struct image_name *one = a, *other = b;
    if (one->label != other->label)
        return one->label < other->label ? -1 : 1;
    return strcmp(one->path, other->path);
}

static int compare_places(const void *a, const void *b)
{
    const struct image_name *one = a, *other = b;
    if (one->place != other->place)
        return one->place < other->place ? -1 : 1;
    return compare_images(a, b);
}

// Every part of the list then has the classes in proportion, which by class it would not.
static void mix_classes(struct index *index)
{
    for (uint64_t i = 0; i < index->count;) {
        uint64_t end = i;
        while (end < index->count && index->images[end].label == index->images[i].label)
            end++;
        for (uint64_t k = i; k < end; k++)
            index->images[k].place = ((double)(k - i) + 0.5) / (double)(end - i);
        i = end;
    }
    qsort(index->images, index->count, sizeof(*index->images), compare_places);
}

// A class of the split that the training images do not have.
static enum ls_status check_classes(const struct wish *wish, const struct index *index)
{
    char **names = NULL;
    uint32_t count = 0;
    enum ls_status status = list_classes(wish->folder, &names, &count);
    for (uint32_t i = 0; i < count; i++) {
        if (!status && !bsearch(&names[i], index->classes, index->class_count, sizeof(*names),
                                compare_names)) {
            ls_error(SCOPE, "%s/%s: %s has no folder of that name, so it is no class", wish->folder,
                     names[i], wish->train);
            status = LS_BAD_INPUT;
        }
        free(names[i]);
    }
    free(names);
    return status;
}

// Images of a folder without folders have no classes.
static enum ls_status make_index(const struct wish *wish, struct index *index)
{
    *index = (struct index){0};
    enum ls_status status = list_classes(wish->train, &index->classes, &index->class_count);
    if (!status && strcmp(wish->folder, wish->train) != 0)
        status = check_classes(wish, index);
    if (!status && !index->class_count)
        status = list_images(index, wish->folder, -1, 0);
    for (uint32_t i = 0; !status && i < index->class_count; i++) {
        char *path = join(wish->folder, index->classes[i]);
        status = path ? LS_OK : LS_OUT_OF_MEMORY;
        if (!status && is_folder(path)) // the tests need not have all classes
            status = list_images(index, path, (int32_t)i, 0);
        free(path);
    }
    if (!status && !index->count)
        status = fail(wish->folder, "no images: expected a folder for each class, with .jpg, .jpeg "
                                    "or .png files in it");
    if (!status && index->count >= UINT32_MAX)
        status = fail(wish->folder, "more than 4,294,967,294 images");
    if (status) {
        free_index(index);
        return status;
    }
    qsort(index->images, index->count, sizeof(*index->images), compare_images);
    if (wish->mix)
        mix_classes(index);
    return LS_OK;
}

// ---- Files ----

// The whole file; freed by the caller. O_NONBLOCK, so that a FIFO is refused and not waited for.
static enum ls_status read_file(const char *path, uint8_t **out, size_t *bytes)
{
    struct stat about;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    enum ls_status status = LS_OK;
    uint8_t *data = NULL;
    if (fd < 0 || fstat(fd, &about))
        status = fail(path, strerror(errno));
    else if (!S_ISREG(about.st_mode))
        status = fail(path, "is not a regular file");
    else if (about.st_size > MOST_FILE_BYTES)
        status = fail(path, "more than 256 MiB, too large for an image");
    if (!status) {
        data = malloc((size_t)about.st_size + 1);
        status = data ? LS_OK : LS_OUT_OF_MEMORY;
    }
    size_t done = 0;
    while (!status && done < (size_t)about.st_size) {
        const ssize_t got = read(fd, data + done, (size_t)about.st_size - done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            status = fail(path, got ? strerror(errno) : "shrank while it was read");
        else
            done += (size_t)got;
    }
    if (fd >= 0)
        close(fd);
    if (status) {
        free(data);
        return status;
    }
    *out = data;
    *bytes = done;
    return LS_OK;
}

// Names are those below the folder, which may be another one elsewhere.
static enum ls_status images_identify(const struct ls_dataset *dataset, uint64_t example,
                                      bool whole, struct ls_hash *hash)
{
    const struct storage *storage = dataset->storage;
    const char *path = storage->index.images[example].path, *name = path + storage->folder_bytes;
    struct stat about;
    uint8_t *data = NULL;
    size_t bytes = 0;
    if (stat(path, &about))
        return fail(path, strerror(errno));
    const enum ls_status status = whole ? read_file(path, &data, &bytes) : LS_OK;
    const int64_t size = about.st_size;
    ls_hash_add(hash, name, strlen(name) + 1);
    ls_hash_add(hash, &size, sizeof(size));
    ls_hash_add(hash, data, bytes);
    free(data);
    return status;
}

static const char *images_name(const struct ls_dataset *dataset, uint64_t example)
{
    const struct storage *storage = dataset->storage;
    return storage->index.images[example].path + storage->folder_bytes;
}

static enum ls_status images_load(const struct ls_dataset *dataset, uint64_t epoch, uint64_t first,
                                  uint64_t count, void *const *fields)
{
    const struct storage *storage = dataset->storage;
    const struct ls_field *field = &storage->dataset.fields[0];
    const char *path = storage->index.images[first].path;
    uint8_t *data = NULL;
    struct ls_image_file file = {.scope = SCOPE, .name = path};
    (void)epoch, (void)count; // 1
    enum ls_status status = read_file(path, &data, &file.bytes);
    file.data = data;
    if (!status)
        status = ls_image_read(&file, field->dims[0], field->dims[1], field->dims[2],
                               storage->resize, fields[0]);
    free(data);
    return status;
}

// Where no size is asked for: that of the first image, which the others must have.
static enum ls_status find_size(const struct index *index, struct wish *wish)
{
    struct ls_image_file file = {.scope = SCOPE, .name = index->images[0].path};
    uint8_t *data = NULL;
    if (wish->rows)
        return LS_OK;
    enum ls_status status = read_file(file.name, &data, &file.bytes);
    file.data = data;
    if (!status)
        status = ls_image_size(&file, &wish->rows, &wish->columns);
    free(data);
    return status;
}

// ---- Dataset ----

static uint32_t describe(const struct wish *wish, const struct index *index, struct ls_field *out)
{
    out[0] = (struct ls_field){.name = "x",
                               .role = LS_FIELD_INPUT,
                               .dtype = LS_U8,
                               .ndims = 3,
                               .dims = {wish->rows, wish->columns, wish->channels},
                               .divisor = wish->divisor,
                               .stride = (uint64_t)(wish->rows * wish->columns * wish->channels)};
    if (!index->class_count)
        return 1;
    out[1] = (struct ls_field){.name = "y",
                               .role = LS_FIELD_TARGET,
                               .dtype = LS_I32,
                               .divisor = 1,
                               .class_count = index->class_count,
                               .by_name = true,
                               .stride = sizeof(int32_t)};
    return 2;
}

static enum ls_status images_describe(const struct ls_spec *spec, enum ls_split split,
                                      struct ls_dataset_info *out)
{
    struct wish wish;
    struct index index = {0};
    enum ls_status status = read_wish(spec, split, &wish);
    if (!status)
        status = make_index(&wish, &index);
    if (!status)
        status = find_size(&index, &wish);
    if (!status) {
        *out = (struct ls_dataset_info){.count = index.count, .on_demand = true};
        out->field_count = describe(&wish, &index, out->fields);
    }
    free_index(&index);
    finish_wish(&wish);
    return status;
}

static void storage_close(struct ls_dataset *dataset)
{
    struct storage *storage = dataset->storage;
    free_index(&storage->index);
    free(storage->labels);
    free(storage);
}

// So that a cache of other files is noticed.
static enum ls_status identify(const struct index *index, uint64_t *out)
{
    struct ls_hash *hash = ls_hash_create();
    if (!hash)
        return LS_OUT_OF_MEMORY;
    for (uint64_t i = 0; i < index->count; i++) {
        struct stat about;
        if (stat(index->images[i].path, &about)) {
            ls_hash_destroy(hash);
            return fail(index->images[i].path, strerror(errno));
        }
        const int64_t facts[] = {about.st_size, about.st_mtim.tv_sec, about.st_mtim.tv_nsec};
        ls_hash_add(hash, index->images[i].path, strlen(index->images[i].path) + 1);
        ls_hash_add(hash, facts, sizeof(facts));
    }
    *out = ls_hash_get(hash);
    ls_hash_destroy(hash);
    return LS_OK;
}

static enum ls_status images_open(const struct ls_spec *spec, enum ls_split split,
                                  struct ls_dataset **out)
{
    struct wish wish;
    struct storage *storage = calloc(1, sizeof(*storage));
    if (!storage)
        return LS_OUT_OF_MEMORY;
    struct index *index = &storage->index;
    struct ls_dataset *dataset = &storage->dataset;
    *dataset = (struct ls_dataset){.real = true,
                                   .load = images_load,
                                   .identify = images_identify,
                                   .name = images_name,
                                   .storage = storage,
                                   .close = storage_close};
    enum ls_status status = read_wish(spec, split, &wish);
    if (!status)
        status = make_index(&wish, index);
    storage->resize = wish.rows > 0;
    storage->folder_bytes = status ? 0 : strlen(wish.folder) + 1;
    if (!status)
        status = find_size(index, &wish);
    if (!status && ls_spec_get(spec, "cache"))
        status = identify(index, &dataset->identity);
    if (!status) {
        storage->labels = malloc(index->count * sizeof(*storage->labels));
        status = storage->labels ? LS_OK : LS_OUT_OF_MEMORY;
    }
    if (!status) {
        for (uint64_t i = 0; i < index->count; i++)
            storage->labels[i] = index->images[i].label;
        dataset->count = index->count;
        dataset->field_count = describe(&wish, index, dataset->fields);
        dataset->fields[1].values = index->class_count ? storage->labels : NULL;
        dataset->fields[1].class_names = (const char *const *)index->classes;
        *out = dataset;
    }
    finish_wish(&wish);
    if (status)
        storage_close(dataset);
    return status;
}

static const struct ls_plugin_option options[] = {
    {"dir", "text", NULL, "folder with a folder of images for each class, or with train and test"},
    {"train", "text", "train", "folder of the training images in dir, if it is there"},
    {"test", "text", "test", "folder of the test images in dir, if it is there"},
    LS_IMAGE_OPTIONS("255"),
    {0},
};

const struct ls_dataset_kind ls_dataset_images = {
    .name = "images",
    .summary = "JPEG and PNG files, a folder for each class: dir=FOLDER,resize=HEIGHTxWIDTH",
    .options = options,
    .is_one_split = is_one_split,
    .open = images_open,
    .describe = images_describe,
};
