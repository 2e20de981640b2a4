// SPDX-License-Identifier: Apache-2.0
// Reads attributes that are texts, of fixed or variable length.
#include "tools/keras-files/hdf5_text.h"
#include "tools/keras-files/contents.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

hid_t hdf5_access(void)
{
    const hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    H5Pset_fapl_stdio(access);
    return access;
}

// ---- Errors ----

static herr_t keep_first(unsigned index, const H5E_error2_t *error, void *argument)
{
    char *text = argument;
    if (index == 0 && error->desc)
        snprintf(text, 200, "%s", error->desc);
    return 0;
}

const char *hdf5_error(void)
{
    static char text[200];
    snprintf(text, sizeof(text), "no reason given");
    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, keep_first, text);
    return text;
}

// ---- Attributes ----

static bool append(struct text_list *list, const char *text, size_t length)
{
    char *copy = strndup(text, length);
    if (!copy)
        return false;
    list->texts[list->count++] = copy;
    return true;
}

// `count` texts of `size` bytes each, which end early where they have a zero.
static bool read_fixed(hid_t attribute, hid_t type, size_t count, struct text_list *out)
{
    const size_t size = H5Tget_size(type);
    if (size == 0 || count > MOST_TEXT / size)
        return false;
    char *memory = malloc(size * count + 1);
    bool good = memory && H5Aread(attribute, type, memory) >= 0;
    for (size_t i = 0; i < count && good; i++)
        good = append(out, memory + i * size, size);
    free(memory);
    return good;
}

// The library allocates each text, within the memory that this process may have.
static bool read_variable(hid_t attribute, hid_t type, hid_t space, size_t count,
                          struct text_list *out)
{
    char **memory = calloc(count + 1, sizeof(*memory));
    bool good = memory && H5Aread(attribute, type, memory) >= 0;
    for (size_t i = 0; i < count && good; i++)
        good = memory[i] && strnlen(memory[i], MOST_TEXT + 1) <= MOST_TEXT &&
               append(out, memory[i], MOST_TEXT);
    if (good)
        H5Dvlen_reclaim(type, space, H5P_DEFAULT, memory);
    free(memory);
    return good;
}

static bool read_attribute(hid_t attribute, struct text_list *out)
{
    const hid_t type = H5Aget_type(attribute), space = H5Aget_space(attribute);
    const hssize_t count = H5Sget_simple_extent_npoints(space);
    bool good = false;
    if (H5Tget_class(type) == H5T_STRING && count >= 0 &&
        (uint64_t)count <= MOST_OBJECTS - out->count) {
        char **more = realloc(out->texts, (out->count + (size_t)count + 1) * sizeof(*more));
        out->texts = more ? more : out->texts;
        if (more)
            good = H5Tis_variable_str(type) > 0
                       ? read_variable(attribute, type, space, (size_t)count, out)
                       : read_fixed(attribute, type, (size_t)count, out);
    } else if (count == 0) {
        good = true; // an empty list may be one of numbers
    }
    H5Sclose(space);
    H5Tclose(type);
    return good;
}

static bool read_one(hid_t object, const char *name, struct text_list *out)
{
    const hid_t attribute = H5Aopen(object, name, H5P_DEFAULT);
    const bool good = attribute >= 0 && read_attribute(attribute, out);
    if (attribute >= 0)
        H5Aclose(attribute);
    return good;
}

void text_list_finish(struct text_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        free(list->texts[i]);
    free(list->texts);
    *list = (struct text_list){0};
}

bool hdf5_text(hid_t object, const char *name, char **out)
{
    struct text_list list = {0};
    bool good = H5Aexists(object, name) > 0 && read_one(object, name, &list) && list.count == 1;
    if (good) {
        *out = list.texts[0];
        list.texts[0] = NULL;
    }
    text_list_finish(&list);
    return good;
}

static void part_name(char *text, size_t bytes, const char *name, unsigned part)
{
    snprintf(text, bytes, "%s%u", name, part);
}

bool hdf5_has_list(hid_t object, const char *name)
{
    char part[64];
    part_name(part, sizeof(part), name, 0);
    return H5Aexists(object, name) > 0 || H5Aexists(object, part) > 0;
}

bool hdf5_list(hid_t object, const char *name, struct text_list *out)
{
    char part[64];
    if (H5Aexists(object, name) > 0)
        return read_one(object, name, out);
    for (unsigned i = 0;; i++) {
        part_name(part, sizeof(part), name, i);
        if (H5Aexists(object, part) <= 0)
            return true;
        if (!read_one(object, part, out))
            return false;
    }
}
