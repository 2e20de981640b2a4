// SPDX-License-Identifier: Apache-2.0
// Reads HDF5: first headers only, then the data of what they say is there.
#include "tools/keras-files/hdf5_file.h"
#include "tools/keras-files/hdf5_text.h"
#include "tools/keras-files/process_limits.h"

#include "core/formats/keras_file.h"

#include <hdf5.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct reading {
    struct contents *contents;
    hid_t file;
    uint64_t file_bytes;
    uint64_t objects, skipped;
    // Of the group that is looked at: its path, and the groups that it is in.
    char path[MOST_NAME + 1];
    haddr_t inside[MOST_DEPTH];
    uint32_t depth;
};

bool hdf5_prepare(void)
{
    setenv("HDF5_USE_FILE_LOCKING", "FALSE", 1);
    unsetenv("HDF5_PLUGIN_PATH");
    unsetenv("HDF5_DRIVER");
    unsetenv("HDF5_VOL_CONNECTOR");
    return H5open() >= 0 && H5Eset_auto2(H5E_DEFAULT, NULL, NULL) >= 0 &&
           H5PLset_loading_state(0) >= 0;
}

// ---- Types ----

// The dtype of safetensors for what the dataset holds, and the type to read it as, in the order of
// bytes that safetensors have. The caller closes `*memory`.
static const char *float_type(hid_t type, hid_t *memory)
{
    size_t sign, exponent, exponent_bits, mantissa, mantissa_bits;
    if (H5Tget_fields(type, &sign, &exponent, &exponent_bits, &mantissa, &mantissa_bits) < 0)
        return NULL;
    *memory = H5Tcopy(type);
    H5Tset_order(*memory, H5T_ORDER_LE);
    switch (H5Tget_size(type)) {
    case 8: return exponent_bits == 11 && mantissa_bits == 52 ? "F64" : NULL;
    case 4: return exponent_bits == 8 && mantissa_bits == 23 ? "F32" : NULL;
    case 2:
        if (exponent_bits == 5 && mantissa_bits == 10)
            return "F16";
        return exponent_bits == 8 && mantissa_bits == 7 ? "BF16" : NULL;
    default: return NULL;
    }
}

static const char *integer_type(hid_t type, hid_t *memory)
{
    static const char *const names[2][9] = {
        {[1] = "U8", [2] = "U16", [4] = "U32", [8] = "U64"},
        {[1] = "I8", [2] = "I16", [4] = "I32", [8] = "I64"},
    };
    const size_t size = H5Tget_size(type);
    *memory = H5Tcopy(type);
    H5Tset_order(*memory, H5T_ORDER_LE);
    return size <= 8 ? names[H5Tget_sign(type) == H5T_SGN_2][size] : NULL;
}

// Keras marks bfloat16, which HDF5 does not know, by an attribute.
static bool is_bfloat16(hid_t dataset)
{
    char *text = NULL;
    const bool is = hdf5_text(dataset, "dtype", &text) && strcmp(text, "bfloat16") == 0;
    free(text);
    return is;
}

static const char *type_of(hid_t dataset, hid_t type, hid_t *memory)
{
    *memory = H5I_INVALID_HID;
    switch (H5Tget_class(type)) {
    case H5T_FLOAT: return float_type(type, memory);
    case H5T_INTEGER: return integer_type(type, memory);
    case H5T_ENUM: *memory = H5Tcopy(type); return H5Tget_size(type) == 1 ? "BOOL" : NULL;
    case H5T_OPAQUE:
        *memory = H5Tcopy(type);
        return H5Tget_size(type) == 2 && is_bfloat16(dataset) ? "BF16" : NULL;
    default: return NULL;
    }
}

// ---- Datasets ----

static bool check_filters(struct reading *reading, hid_t plan)
{
    const int count = H5Pget_nfilters(plan);
    for (int i = 0; i < count; i++) {
        unsigned flags, config;
        size_t values = 0;
        const H5Z_filter_t filter =
            H5Pget_filter2(plan, (unsigned)i, &flags, &values, NULL, 0, NULL, &config);
        if (filter != H5Z_FILTER_DEFLATE && filter != H5Z_FILTER_SHUFFLE &&
            filter != H5Z_FILTER_FLETCHER32)
            return contents_refuse(reading->contents,
                                   "%s is packed by filter %d; only gzip, shuffle and fletcher32 "
                                   "can be read",
                                   reading->path, (int)filter);
    }
    return count >= 0 ||
           contents_refuse(reading->contents, "%s: no filters can be read", reading->path);
}

static bool check_chunks(struct reading *reading, hid_t plan, uint64_t element_bytes)
{
    hsize_t dims[H5S_MAX_RANK];
    const int ndims = H5Pget_chunk(plan, H5S_MAX_RANK, dims);
    uint64_t bytes = element_bytes;
    for (int i = 0; i < ndims; i++) {
        if (dims[i] == 0 || bytes > MOST_CHUNK / dims[i])
            return contents_refuse(reading->contents,
                                   "%s is in chunks of more than %" PRIu64 " MiB", reading->path,
                                   MOST_CHUNK >> 20);
        bytes *= dims[i];
    }
    return check_filters(reading, plan);
}

// Whether the file has what the dataset declares: its bytes as they are, or chunks.
static bool check_layout(struct reading *reading, hid_t dataset, hid_t plan, uint64_t element_bytes,
                         uint64_t bytes)
{
    const uint64_t stored = H5Dget_storage_size(dataset);
    const haddr_t offset = H5Dget_offset(dataset);
    switch (H5Pget_layout(plan)) {
    case H5D_COMPACT: return true;
    case H5D_CHUNKED: return check_chunks(reading, plan, element_bytes);
    case H5D_CONTIGUOUS: break;
    default: return contents_refuse(reading->contents, "%s is made of other files", reading->path);
    }
    if (H5Pget_external_count(plan) != 0)
        return contents_refuse(reading->contents, "%s has its data in other files", reading->path);
    if (bytes == 0)
        return true;
    if (stored != bytes)
        return contents_refuse(reading->contents,
                               "%s declares %" PRIu64 " bytes, but %" PRIu64 " are stored",
                               reading->path, bytes, stored);
    if (offset == HADDR_UNDEF || offset > reading->file_bytes ||
        bytes > reading->file_bytes - offset)
        return contents_refuse(reading->contents,
                               "%s lies outside the file (is the file complete?)", reading->path);
    return true;
}

static bool add_dataset(struct reading *reading, hid_t dataset)
{
    struct contents *contents = reading->contents;
    hsize_t dims[H5S_MAX_RANK];
    uint64_t sizes[MOST_DIMS];
    const hid_t space = H5Dget_space(dataset), type = H5Dget_type(dataset),
                plan = H5Dget_create_plist(dataset);
    hid_t memory = H5I_INVALID_HID;
    const int ndims = H5Sget_simple_extent_ndims(space);
    const char *dtype = type_of(dataset, type, &memory);
    bool good = space >= 0 && type >= 0 && plan >= 0 && ndims >= 0;
    if (!good)
        contents_refuse(contents, "%s: its header cannot be read", reading->path);
    if (good && !dtype)
        good =
            contents_refuse(contents, "%s is not made of numbers of a known type", reading->path);
    if (good && H5Sget_simple_extent_type(space) == H5S_NULL)
        good = contents_refuse(contents, "%s has no data", reading->path);
    if (good && ndims > MOST_DIMS)
        good = contents_refuse(contents, "%s has %d dimensions; at most %d can be read",
                               reading->path, ndims, MOST_DIMS);
    if (good) {
        H5Sget_simple_extent_dims(space, dims, NULL);
        for (int i = 0; i < ndims; i++)
            sizes[i] = dims[i];
        good =
            contents_add(contents, reading->path, dtype, H5Tget_size(type), (uint32_t)ndims, sizes);
    }
    if (good)
        good = check_layout(reading, dataset, plan, H5Tget_size(type),
                            contents->tensors[contents->count - 1].bytes);
    H5Tclose(memory);
    H5Pclose(plan);
    H5Tclose(type);
    H5Sclose(space);
    return good;
}

static bool read_dataset(struct reading *reading, const struct tensor *tensor)
{
    hid_t memory = H5I_INVALID_HID;
    if (tensor->bytes == 0)
        return true;
    const hid_t dataset = H5Dopen2(reading->file, tensor->name, H5P_DEFAULT);
    const hid_t type = H5Dget_type(dataset), space = H5Dget_space(dataset);
    const char *dtype = type_of(dataset, type, &memory);
    const hssize_t count = H5Sget_simple_extent_npoints(space);
    // The file may have been changed since its headers were read.
    const bool good = dtype && strcmp(dtype, tensor->dtype) == 0 && count >= 0 &&
                      (uint64_t)count == tensor->bytes / H5Tget_size(type) &&
                      H5Dread(dataset, memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, tensor->data) >= 0;
    if (!good)
        contents_refuse(reading->contents, "the data of %s cannot be read: %s", tensor->name,
                        hdf5_error());
    H5Tclose(memory);
    H5Sclose(space);
    H5Tclose(type);
    H5Dclose(dataset);
    return good;
}

// ---- Groups, as Keras 3 writes them ----

static bool add_object(struct reading *reading, hid_t group, const char *name);

// Keras's name of the layer that a group belongs to, if its group "vars" says it.
static bool add_name(struct reading *reading, hid_t group, json_t *names)
{
    char *text = NULL;
    char *slash = strrchr(reading->path, '/');
    if (!slash || strcmp(slash, "/vars") != 0 || !hdf5_text(group, "name", &text))
        return true;
    *slash = '\0';
    json_t *value = json_string(text);
    const bool good = !value || json_object_set_new(names, reading->path, value) == 0;
    *slash = '/';
    free(text);
    return good || contents_refuse(reading->contents, "%s: the name is not UTF-8", reading->path);
}

struct visit {
    struct reading *reading;
    const char *only; // visits nothing else; NULL: everything
};

static herr_t visit_link(hid_t group, const char *name, const H5L_info_t *link, void *argument)
{
    struct visit *visit = argument;
    struct reading *reading = visit->reading;
    if (++reading->objects > MOST_OBJECTS) {
        contents_refuse(reading->contents, "has more than %d groups and tensors", MOST_OBJECTS);
        return -1;
    }
    if (link->type != H5L_TYPE_HARD) {
        contents_refuse(reading->contents,
                        "%s/%.200s is a link to another place, which Keras does not write",
                        reading->path, name);
        return -1;
    }
    return add_object(reading, group, name) ? 0 : -1;
}

static bool visit_group(struct reading *reading, hid_t group, haddr_t address)
{
    struct visit visit = {.reading = reading};
    json_t *names = json_object_get(reading->contents->texts, LS_KERAS_NAMES);
    for (uint32_t i = 0; i < reading->depth; i++)
        if (reading->inside[i] == address)
            return contents_refuse(reading->contents, "the group %s is inside itself",
                                   reading->path);
    if (reading->depth == MOST_DEPTH)
        return contents_refuse(reading->contents, "has groups more than %d deep", MOST_DEPTH);
    if (!add_name(reading, group, names))
        return false;
    reading->inside[reading->depth++] = address;
    const bool good =
        H5Literate(group, H5_INDEX_NAME, H5_ITER_NATIVE, NULL, visit_link, &visit) >= 0;
    reading->depth--;
    return good || contents_refuse(reading->contents, "the group '%s' cannot be read: %s",
                                   reading->path, hdf5_error());
}

// The state of an optimizer is twice the size of the model, and of no use here.
static bool is_optimizer(const struct reading *reading)
{
    return strncmp(reading->path, "optimizer/", 10) == 0 ||
           strncmp(reading->path, "optimizer_weights/", 18) == 0;
}

static bool add_object(struct reading *reading, hid_t group, const char *name)
{
    const size_t length = strlen(reading->path);
    H5O_info_t about;
    if (length + strlen(name) + 1 > MOST_NAME)
        return contents_refuse(reading->contents, "has a path of more than %d letters", MOST_NAME);
    if (!*name || strchr(name, '/'))
        return contents_refuse(reading->contents, "%s has a part without a name", reading->path);
    const hid_t object = H5Oopen(group, name, H5P_DEFAULT);
    if (length)
        reading->path[length] = '/';
    strcpy(reading->path + length + (length > 0), name);
    bool good = object >= 0 && H5Oget_info2(object, &about, H5O_INFO_BASIC) >= 0;
    if (!good)
        contents_refuse(reading->contents, "%s cannot be opened: %s", reading->path, hdf5_error());
    else if (about.type == H5O_TYPE_GROUP)
        good = visit_group(reading, object, about.addr);
    else if (about.type == H5O_TYPE_DATASET && is_optimizer(reading))
        reading->skipped++;
    else if (about.type == H5O_TYPE_DATASET)
        good = add_dataset(reading, object);
    reading->path[length] = '\0';
    if (object >= 0)
        H5Oclose(object);
    return good;
}

static bool read_groups(struct reading *reading, hid_t root)
{
    H5O_info_t about;
    json_t *names = json_object();
    if (json_object_set_new(reading->contents->texts, LS_KERAS_NAMES, names))
        return contents_fail(reading->contents, "out of memory");
    if (H5Oget_info2(root, &about, H5O_INFO_BASIC) < 0)
        return contents_refuse(reading->contents, "its root group cannot be read: %s",
                               hdf5_error());
    if (!visit_group(reading, root, about.addr))
        return false;
    char *text = json_dumps(names, JSON_COMPACT);
    const bool good = text && contents_add_text(reading->contents, LS_KERAS_NAMES, text);
    free(text);
    return good || contents_fail(reading->contents, "out of memory");
}

// ---- Layers, as Keras 2 writes them ----

// Opens a group or dataset by a path, whose parts must be there in this file.
static hid_t open_below(struct reading *reading, hid_t group, const char *path)
{
    const char *slash = path;
    char part[MOST_NAME + 1];
    H5L_info_t link;
    do {
        slash = strchr(slash, '/');
        const size_t length = slash ? (size_t)(slash - path) : strlen(path);
        if (length > MOST_NAME)
            return H5I_INVALID_HID;
        memcpy(part, path, length);
        part[length] = '\0';
        if (++reading->objects > MOST_OBJECTS ||
            (length && H5Lget_info(group, part, &link, H5P_DEFAULT) < 0) ||
            (length && link.type != H5L_TYPE_HARD))
            return H5I_INVALID_HID;
        slash += slash != NULL;
    } while (slash);
    return H5Oopen(group, path, H5P_DEFAULT);
}

static bool add_weight(struct reading *reading, hid_t layer, const char *prefix, const char *weight)
{
    const int length = snprintf(reading->path, sizeof(reading->path), "%s/%s", prefix, weight);
    if (length < 0 || length > MOST_NAME)
        return contents_refuse(reading->contents, "has a path of more than %d letters", MOST_NAME);
    const hid_t object = open_below(reading, layer, weight);
    const bool good = H5Iget_type(object) == H5I_DATASET
                          ? add_dataset(reading, object)
                          : contents_refuse(reading->contents,
                                            "the attribute weight_names names %s, which is not "
                                            "there, or is no tensor of this file",
                                            reading->path);
    if (object >= 0)
        H5Oclose(object);
    return good;
}

// `prefix`: path of the layer's group.
static bool add_layer(struct reading *reading, hid_t layer, const char *prefix, json_t *layers,
                      const char *name)
{
    struct text_list weights = {0};
    bool good = hdf5_list(layer, "weight_names", &weights);
    if (!good)
        contents_refuse(reading->contents, "%s: the attribute weight_names cannot be read", prefix);
    for (size_t i = 0; i < weights.count && good; i++)
        good = add_weight(reading, layer, prefix, weights.texts[i]);
    if (good && json_array_append_new(layers, json_pack("[s, I]", name, (json_int_t)weights.count)))
        good = contents_refuse(reading->contents, "%s: the name is not UTF-8", prefix);
    text_list_finish(&weights);
    return good;
}

static bool add_layers(struct reading *reading, hid_t group, const char *prefix, json_t *layers)
{
    struct text_list names = {0};
    char path[MOST_NAME + 1];
    bool good = hdf5_list(group, "layer_names", &names) ||
                contents_refuse(reading->contents, "the attribute layer_names cannot be read");
    for (size_t i = 0; i < names.count && good; i++) {
        const int length = snprintf(path, sizeof(path), "%s%s", prefix, names.texts[i]);
        const hid_t layer = length >= 0 && length <= MOST_NAME
                                ? open_below(reading, group, names.texts[i])
                                : H5I_INVALID_HID;
        good = H5Iget_type(layer) == H5I_GROUP
                   ? add_layer(reading, layer, path, layers, names.texts[i])
                   : contents_refuse(reading->contents,
                                     "the attribute layer_names names %.200s, which is no group of "
                                     "this file",
                                     names.texts[i]);
        if (layer >= 0)
            H5Oclose(layer);
    }
    text_list_finish(&names);
    return good;
}

// `group` has the attribute layer_names.
static bool read_layers(struct reading *reading, hid_t group, const char *prefix)
{
    json_t *layers = json_array();
    if (!layers)
        return contents_fail(reading->contents, "out of memory");
    bool good = add_layers(reading, group, prefix, layers);
    char *text = good ? json_dumps(layers, JSON_COMPACT) : NULL;
    good = good && text && contents_add_text(reading->contents, LS_KERAS_LAYERS, text);
    free(text);
    json_decref(layers);
    return good || contents_fail(reading->contents, "out of memory");
}

static bool count_optimizer(struct reading *reading, hid_t root)
{
    struct text_list weights = {0};
    if (H5Lexists(root, "optimizer_weights", H5P_DEFAULT) <= 0)
        return true;
    const hid_t group = open_below(reading, root, "optimizer_weights");
    if (group >= 0 && hdf5_list(group, "weight_names", &weights))
        reading->skipped += weights.count;
    text_list_finish(&weights);
    if (group >= 0)
        H5Oclose(group);
    return true;
}

// ---- The file ----

static bool add_root_text(struct reading *reading, hid_t root, const char *name)
{
    char *text = NULL;
    if (!hdf5_text(root, name, &text))
        return true;
    const bool good = contents_add_text(reading->contents, name, text);
    free(text);
    return good;
}

// Attributes of the root: those of a whole model of Keras 2.
static bool add_root_texts(struct reading *reading, hid_t root)
{
    char *model = NULL;
    bool good = add_root_text(reading, root, LS_KERAS_TRAINING) &&
                add_root_text(reading, root, LS_KERAS_VERSION) &&
                add_root_text(reading, root, LS_CLASS_NAMES);
    if (good && H5Aexists(root, "model_config") > 0) {
        good = hdf5_text(root, "model_config", &model)
                   ? contents_add_text(reading->contents, LS_KERAS_MODEL, model)
                   : contents_refuse(reading->contents,
                                     "the attribute model_config is not a text of at most %" PRIu64
                                     " MiB",
                                     MOST_TEXT >> 20);
        free(model);
    }
    return good;
}

static bool read_headers(struct reading *reading)
{
    struct contents *contents = reading->contents;
    const hid_t root = H5Gopen2(reading->file, "/", H5P_DEFAULT);
    if (root < 0)
        return contents_refuse(contents, "its root group cannot be read: %s", hdf5_error());
    bool good = add_root_texts(reading, root);
    const bool whole = good && H5Lexists(root, "model_weights", H5P_DEFAULT) > 0;
    const hid_t weights = whole ? open_below(reading, root, "model_weights") : H5I_INVALID_HID;
    if (whole && H5Iget_type(weights) != H5I_GROUP)
        good = contents_refuse(contents, "model_weights is no group of this file");
    else if (whole)
        good = read_layers(reading, weights, "model_weights/") && count_optimizer(reading, root);
    else if (good && hdf5_has_list(root, "layer_names"))
        good = read_layers(reading, root, "");
    else if (good)
        good = read_groups(reading, root);
    if (weights >= 0)
        H5Oclose(weights);
    H5Gclose(root);
    char skipped[24];
    snprintf(skipped, sizeof(skipped), "%" PRIu64, reading->skipped);
    return good && contents_add_text(contents, LS_KERAS_SKIPPED, skipped);
}

static bool read_all(struct reading *reading, int out)
{
    struct contents *contents = reading->contents;
    void *memory = NULL;
    size_t bytes = 0;
    reading->path[0] = '\0';
    if (!read_headers(reading) || !limits_allow(contents->bytes, contents) ||
        !contents_hand_over(contents, out, &memory, &bytes))
        return false;
    bool good = true;
    for (size_t i = 0; i < contents->count && good; i++)
        good = read_dataset(reading, &contents->tensors[i]);
    munmap(memory, bytes);
    return good;
}

bool hdf5_read(int fd, int out, struct contents *contents)
{
    char path[64];
    hsize_t bytes = 0;
    struct reading reading = {.contents = contents};
    const hid_t access = hdf5_access();
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    reading.file = H5Fopen(path, H5F_ACC_RDONLY, access);
    if (reading.file < 0)
        contents_refuse(contents, "is not a sound HDF5 file: %s", hdf5_error());
    H5Pclose(access);
    if (reading.file < 0)
        return false;
    if (!limits_close_files(contents))
        return false;
    bool good = H5Fget_filesize(reading.file, &bytes) >= 0;
    reading.file_bytes = bytes;
    good = good ? read_all(&reading, out)
                : contents_refuse(contents, "is not a sound HDF5 file: %s", hdf5_error());
    H5Fclose(reading.file);
    return good;
}
