// SPDX-License-Identifier: Apache-2.0
// Reads and writes .keras archives by libzip.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // memfd_create
#endif
#include "tools/keras-files/archive.h"

#include "core/formats/keras_file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include <zip.h>

#define CONFIG "config.json"
#define METADATA "metadata.json"
#define WEIGHTS "model.weights.h5"
#define PIECE 65536
#define MOST_LOOKED_AT 64 // entries, of an archive that is not Keras's

// The version whose layout of files is written; the first of Keras 3.
#define WRITTEN_VERSION "3.0.0"

// ---- Reading ----

static bool ends_with(const char *text, const char *end)
{
    const size_t length = strlen(text), rest = strlen(end);
    return length >= rest && strcmp(text + length - rest, end) == 0;
}

// What else is a ZIP archive, by what is in it; NULL: nothing known.
static const char *other_kind(zip_t *zip)
{
    const zip_int64_t count = zip_get_num_entries(zip, 0);
    for (zip_int64_t i = 0; i < count && i < MOST_LOOKED_AT; i++) {
        const char *name = zip_get_name(zip, (zip_uint64_t)i, ZIP_FL_ENC_RAW);
        if (name && ends_with(name, "data.pkl"))
            return "a PyTorch checkpoint (.pt), which is not read; write safetensors instead, by "
                   "safetensors.torch.save_file";
        if (name && ends_with(name, ".npy"))
            return "a NumPy archive (.npz), which is not read; write safetensors instead, by "
                   "safetensors.numpy.save_file";
    }
    return NULL;
}

static bool find(zip_t *zip, struct contents *contents, const char *name, uint64_t most,
                 zip_stat_t *out)
{
    const zip_uint64_t needed = ZIP_STAT_SIZE | ZIP_STAT_COMP_METHOD | ZIP_STAT_ENCRYPTION_METHOD;
    if (zip_stat(zip, name, 0, out)) {
        const char *kind = other_kind(zip);
        return kind ? contents_refuse(contents, "is %s (docs/weights.md)", kind)
                    : contents_refuse(contents, "is a ZIP archive without %s, not a .keras file",
                                      name);
    }
    if ((out->valid & needed) != needed)
        return contents_refuse(contents, "%s: its header is not whole", name);
    if (out->encryption_method != ZIP_EM_NONE)
        return contents_refuse(contents, "%s is encrypted", name);
    if (out->comp_method != ZIP_CM_STORE && out->comp_method != ZIP_CM_DEFLATE)
        return contents_refuse(contents, "%s is packed by method %d; only deflate can be read",
                               name, (int)out->comp_method);
    if (out->size > most)
        return contents_refuse(contents,
                               "%s declares %" PRIu64 " MiB, more than the %" PRIu64
                               " MiB that it may have here",
                               name, (uint64_t)out->size >> 20, most >> 20);
    return true;
}

// Hands what an entry holds to `take`, in pieces; exactly as much as its header says.
static bool unpack(zip_t *zip, struct contents *contents, const zip_stat_t *about,
                   bool (*take)(void *to, const char *piece, size_t bytes), void *to)
{
    char piece[PIECE];
    uint64_t done = 0;
    zip_file_t *entry = zip_fopen_index(zip, about->index, 0);
    zip_int64_t bytes = entry ? 1 : -1;
    bool taken = true;
    while (taken && bytes > 0 && done <= about->size) {
        bytes = zip_fread(entry, piece, sizeof(piece));
        taken = bytes <= 0 || take(to, piece, (size_t)bytes);
        done += bytes > 0 ? (uint64_t)bytes : 0;
    }
    if (!taken)
        contents_fail(contents, "no memory for %s: %s", about->name, strerror(errno));
    else if (bytes < 0 || done != about->size)
        contents_refuse(contents, "%s cannot be unpacked: %s", about->name,
                        entry ? zip_file_strerror(entry) : zip_strerror(zip));
    if (entry)
        zip_fclose(entry);
    return taken && bytes == 0 && done == about->size;
}

static bool take_memory(void *to, const char *piece, size_t bytes)
{
    char **end = to;
    memcpy(*end, piece, bytes);
    *end += bytes;
    return true;
}

static bool take_file(void *to, const char *piece, size_t bytes)
{
    const int fd = *(const int *)to;
    while (bytes > 0) {
        const ssize_t done = write(fd, piece, bytes);
        if (done < 0 && errno != EINTR)
            return false;
        piece += done > 0 ? done : 0;
        bytes -= done > 0 ? (size_t)done : 0;
    }
    return true;
}

// A text of the archive. Freed by the caller; NULL: contents->why says why.
static char *read_text(zip_t *zip, struct contents *contents, const char *name)
{
    zip_stat_t about;
    if (!find(zip, contents, name, MOST_TEXT, &about))
        return NULL;
    // The last piece may be longer than the entry says.
    char *text = calloc(1, (size_t)about.size + PIECE + 1), *end = text;
    if (!text) {
        contents_fail(contents, "out of memory");
        return NULL;
    }
    if (unpack(zip, contents, &about, take_memory, &end) &&
        strlen(text) == about.size) // no zero in it
        return text;
    contents_refuse(contents, "%s is not a text", name);
    free(text);
    return NULL;
}

// Nothing depends on the version: an archive without it is read, too.
static bool add_version(zip_t *zip, struct contents *contents)
{
    if (zip_name_locate(zip, METADATA, 0) < 0)
        return true;
    char *text = read_text(zip, contents, METADATA);
    json_t *metadata = text ? json_loads(text, 0, NULL) : NULL;
    const char *version = json_string_value(json_object_get(metadata, LS_KERAS_VERSION));
    const bool good = text && (!version || contents_add_text(contents, LS_KERAS_VERSION, version));
    json_decref(metadata);
    free(text);
    return good;
}

static bool open_weights(zip_t *zip, struct contents *contents, int *out)
{
    zip_stat_t about;
    if (!find(zip, contents, WEIGHTS, contents->allowed, &about))
        return false;
    const int fd = memfd_create("keras-weights", MFD_CLOEXEC);
    if (fd < 0)
        return contents_fail(contents, "no memory for %s: %s", WEIGHTS, strerror(errno));
    if (!unpack(zip, contents, &about, take_file, (void *)&fd)) {
        close(fd);
        return false;
    }
    *out = fd;
    return true;
}

bool archive_open(int fd, struct contents *contents, int *weights)
{
    int error = 0;
    const int own = dup(fd);
    zip_t *zip = own >= 0 ? zip_fdopen(own, 0, &error) : NULL;
    if (!zip) {
        zip_error_t reason;
        zip_error_init_with_code(&reason, error);
        contents_refuse(contents, "is not a sound ZIP archive: %s", zip_error_strerror(&reason));
        zip_error_fini(&reason);
        if (own >= 0)
            close(own);
        return false;
    }
    char *model = read_text(zip, contents, CONFIG);
    const bool good = model && contents_add_text(contents, LS_KERAS_MODEL, model) &&
                      add_version(zip, contents) && open_weights(zip, contents, weights);
    free(model);
    zip_discard(zip);
    return good;
}

// ---- Writing ----

static bool add(zip_t *zip, const char *name, zip_source_t *source)
{
    const zip_int64_t index = source ? zip_file_add(zip, name, source, ZIP_FL_ENC_UTF_8) : -1;
    if (source && index < 0)
        zip_source_free(source);
    return index >= 0 && zip_set_file_compression(zip, (zip_uint64_t)index, ZIP_CM_STORE, 0) == 0;
}

static bool add_text(zip_t *zip, const char *name, const char *text)
{
    return add(zip, name, zip_source_buffer(zip, text, strlen(text), 0));
}

static char *metadata_text(const struct ls_safetensors *saved)
{
    char date[32] = "";
    const time_t now = time(NULL);
    struct tm parts;
    const char *version = ls_safetensors_text(saved, LS_KERAS_VERSION);
    if (localtime_r(&now, &parts))
        strftime(date, sizeof(date), "%Y-%m-%d@%H:%M:%S", &parts);
    json_t *metadata = json_pack("{s:s, s:s}", LS_KERAS_VERSION,
                                 version ? version : WRITTEN_VERSION, "date_saved", date);
    char *text = metadata ? json_dumps(metadata, JSON_COMPACT) : NULL;
    json_decref(metadata);
    return text;
}

// libzip writes to a buffer, as it can only write to a path or a buffer; it goes to `fd` from
// there.
static bool write_buffer(int fd, zip_source_t *buffer)
{
    char piece[PIECE];
    zip_int64_t bytes = 1;
    if (zip_source_open(buffer))
        return false;
    while (bytes > 0) {
        bytes = zip_source_read(buffer, piece, sizeof(piece));
        if (bytes > 0 && !take_file(&fd, piece, (size_t)bytes))
            bytes = -1;
    }
    zip_source_close(buffer);
    return bytes == 0;
}

static bool fill(zip_t *zip, int weights, const struct ls_safetensors *saved, const char *metadata)
{
    const char *model = ls_safetensors_text(saved, LS_KERAS_MODEL);
    FILE *stream = fdopen(dup(weights), "rb");
    zip_source_t *source = stream ? zip_source_filep(zip, stream, 0, -1) : NULL;
    return model && metadata && add_text(zip, METADATA, metadata) && add_text(zip, CONFIG, model) &&
           add(zip, WEIGHTS, source);
}

bool archive_write(int fd, int weights, const struct ls_safetensors *saved,
                   struct contents *contents)
{
    zip_error_t error;
    zip_error_init(&error);
    char *metadata = metadata_text(saved);
    zip_source_t *buffer = zip_source_buffer_create(NULL, 0, 0, &error);
    zip_t *zip = buffer ? zip_open_from_source(buffer, ZIP_TRUNCATE, &error) : NULL;
    if (zip)
        zip_source_keep(buffer);
    bool good = zip && lseek(weights, 0, SEEK_SET) == 0 && fill(zip, weights, saved, metadata);
    if (zip && !good)
        zip_discard(zip);
    else if (zip && zip_close(zip)) {
        good = contents_fail(contents, "cannot make the archive: %s", zip_strerror(zip));
        zip_discard(zip);
    }
    if (good)
        good = write_buffer(fd, buffer) ||
               contents_fail(contents, "cannot write: %s", strerror(errno));
    if (buffer)
        zip_source_free(buffer);
    zip_error_fini(&error);
    free(metadata);
    return good || contents_fail(contents, "cannot make the archive: out of memory");
}
