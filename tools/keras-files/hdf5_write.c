// SPDX-License-Identifier: Apache-2.0
// Writes .weights.h5 as Keras 3 does: a group "vars" for each layer, its variables by number, and
// the layer's name as an attribute.
#include "tools/keras-files/hdf5_file.h"
#include "tools/keras-files/hdf5_text.h"

#include "core/formats/keras_file.h"

#include <hdf5.h>
#include <stdio.h>
#include <string.h>

static bool write_tensor(hid_t file, hid_t links, const struct ls_saved_tensor *tensor,
                         struct contents *contents)
{
    hsize_t dims[LS_SAFETENSORS_MAX_DIMS] = {0};
    for (uint32_t i = 0; i < tensor->ndims; i++)
        dims[i] = (hsize_t)tensor->dims[i];
    const hid_t space =
        tensor->ndims ? H5Screate_simple((int)tensor->ndims, dims, NULL) : H5Screate(H5S_SCALAR);
    const hid_t dataset =
        H5Dcreate2(file, tensor->name, H5T_IEEE_F32LE, space, links, H5P_DEFAULT, H5P_DEFAULT);
    const bool good = dataset >= 0 && H5Dwrite(dataset, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL,
                                               H5P_DEFAULT, tensor->data) >= 0;
    if (!good)
        contents_fail(contents, "cannot write %s: %s", tensor->name, hdf5_error());
    if (dataset >= 0)
        H5Dclose(dataset);
    H5Sclose(space);
    return good;
}

static bool write_text(hid_t group, const char *name, const char *text)
{
    const hid_t space = H5Screate(H5S_SCALAR), type = H5Tcopy(H5T_C_S1);
    H5Tset_size(type, H5T_VARIABLE);
    H5Tset_cset(type, H5T_CSET_UTF8);
    const hid_t attribute = H5Acreate2(group, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    const bool good = attribute >= 0 && H5Awrite(attribute, type, &text) >= 0;
    if (attribute >= 0)
        H5Aclose(attribute);
    H5Tclose(type);
    H5Sclose(space);
    return good;
}

// `layer`: the path of its group; "" is the model.
static bool write_group(hid_t file, hid_t links, const char *layer, const char *name,
                        struct contents *contents)
{
    char path[MOST_NAME + 8];
    const int length = snprintf(path, sizeof(path), "%s%svars", layer, *layer ? "/" : "");
    if (length < 0 || (size_t)length >= sizeof(path))
        return false;
    const hid_t group = H5Gcreate2(file, path, links, H5P_DEFAULT, H5P_DEFAULT);
    const bool good = group >= 0 && write_text(group, "name", name);
    if (!good)
        contents_fail(contents, "cannot write %s: %s", path, hdf5_error());
    if (group >= 0)
        H5Gclose(group);
    return good;
}

static bool write_all(hid_t file, const struct ls_safetensors *saved, struct contents *contents)
{
    const char *text = ls_safetensors_text(saved, LS_KERAS_NAMES), *layer;
    json_t *names = text ? json_loads(text, 0, NULL) : NULL, *name;
    const char *classes = ls_safetensors_text(saved, LS_CLASS_NAMES);
    const hid_t links = H5Pcreate(H5P_LINK_CREATE);
    bool good = names && links >= 0 && H5Pset_create_intermediate_group(links, 1) >= 0;
    json_object_foreach(names, layer, name)
    {
        good = good && write_group(file, links, layer, json_string_value(name), contents);
    }
    for (size_t i = 0; i < ls_safetensors_count(saved) && good; i++)
        good = write_tensor(file, links, ls_safetensors_get(saved, i), contents);
    if (good && classes && !write_text(file, LS_CLASS_NAMES, classes))
        good = contents_fail(contents, "cannot write the names of classes: %s", hdf5_error());
    H5Pclose(links);
    json_decref(names);
    return good;
}

bool hdf5_write(int fd, const struct ls_safetensors *saved, struct contents *contents)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    const hid_t access = hdf5_access();
    const hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, access);
    bool good = file >= 0 && write_all(file, saved, contents);
    // A file that could not be written crashes the library when it is closed.
    if (file < 0 || (good && H5Fclose(file) < 0))
        good = contents_fail(contents, "cannot write: %s", hdf5_error());
    H5Pclose(access);
    return good || contents_fail(contents, "cannot write: out of memory");
}
