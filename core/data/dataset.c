// SPDX-License-Identifier: Apache-2.0
// Opens a dataset by its text: finds the kind, checks the options, and applies those of all kinds.
#include "core/data/dataset.h"

#include "core/base/hash.h"
#include "core/base/log.h"
#include "core/data/augment.h"
#include "core/data/cache.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define SCOPE "--dataset"

static const struct ls_plugin_option common[] = {
    {"skip", "integer", NULL, "leave out the first N examples of each split"},
    {"limit", "integer", NULL, "then take only the first N examples of each split"},
    {"take", "integer", NULL, "the same as limit"},
    {"validation_split", "number", NULL,
     "validate on this last part of the training examples, from 0 to 1"},
    {"repeat", "integer", NULL, "give each training example N times in an epoch"},
    {"cache", "text", NULL,
     "memory, or the name of a file: keep decoded examples instead of decoding them in each epoch"},
};
#define COMMON (sizeof(common) / sizeof(common[0]))

enum ls_status ls_dataset_refuse_unknown(const char *name, const char *registered)
{
    const char *names[64];
    char list[512] = "";
    size_t count = 0, length = 0;
    for (; ls_dataset_kinds[count] && count < 63; count++) {
        names[count] = ls_dataset_kinds[count]->name;
        if (length < sizeof(list))
            length += (size_t)snprintf(list + length, sizeof(list) - length, "%s%s",
                                       count ? ", " : "", names[count]);
    }
    names[count] = NULL;
    const char *nearest = ls_nearest(name, names);
    if (registered[0])
        ls_error(SCOPE, "unknown dataset %s; %s; available: %s", name, registered, list);
    else if (nearest)
        ls_error(SCOPE,
                 "unknown dataset %s; did you mean %s? Available: %s, and plugins dataset-NAME.so "
                 "on the "
                 "plugin path",
                 name, nearest, list);
    else
        ls_error(
            SCOPE,
            "unknown dataset %s; available: %s, and plugins dataset-NAME.so on the plugin path",
            name, list);
    return LS_USAGE;
}

static const struct ls_dataset_kind *find_kind(const char *name)
{
    for (size_t i = 0; ls_dataset_kinds[i]; i++)
        if (!strcmp(ls_dataset_kinds[i]->name, name))
            return ls_dataset_kinds[i];
    return NULL;
}

bool ls_dataset_is_known(const char *name)
{
    return find_kind(name) != NULL;
}

// ---- Paths where an option is expected ----

enum ls_status ls_dataset_refuse_path(const char *name)
{
    static const struct {
        const char *ending, *option, *more;
    } readers[] = {{".csv", "csv:file=", ",label=COLUMN"},
                   {".csv.gz", "csv:file=", ",label=COLUMN"},
                   {".tfrecord", "tfrecord:file=", ""},
                   {".txt", "text:file=", ""},
                   {".npy", "arrays:x=", ",y=FILE"}};
    const size_t length = strlen(name);
    struct stat status;
    for (size_t i = 0; i < sizeof(readers) / sizeof(readers[0]); i++) {
        const size_t ending = strlen(readers[i].ending);
        if (length > ending && strcmp(name + length - ending, readers[i].ending) == 0) {
            ls_error(SCOPE, "'%s' is a file; it is read by --dataset=%s%s%s", name,
                     readers[i].option, name, readers[i].more);
            return LS_USAGE;
        }
    }
    if (stat(name, &status) != 0 || !S_ISDIR(status.st_mode))
        return LS_OK;
    ls_error(SCOPE, "'%s' is a folder; images in it are read by --dataset=images:dir=%s", name,
             name);
    return LS_USAGE;
}

enum ls_status ls_dataset_refuse_bare_path(const char *text)
{
    static const char *const names[] = {"file", "dir", "x"};
    const size_t length = strcspn(text, ":");
    for (size_t i = 0; ls_dataset_kinds[i] && text[length] && !strchr(text, '='); i++) {
        const struct ls_dataset_kind *kind = ls_dataset_kinds[i];
        for (size_t j = 0; kind->options && j < sizeof(names) / sizeof(names[0]); j++)
            if (strlen(kind->name) == length && strncmp(kind->name, text, length) == 0 &&
                ls_option_find(kind->options, names[j])) {
                const char *path = text + length + 1;
                ls_error(SCOPE,
                         "'%s' after '%s:' is not of the form option=value; did you mean %s:%s=%s?",
                         path, kind->name, kind->name, names[j], path);
                return LS_USAGE;
            }
    }
    return LS_OK;
}

// The options of the kind, and the common ones.
static enum ls_status check_options(const struct ls_dataset_kind *kind, const struct ls_spec *spec)
{
    size_t count = 0, more = 0;
    while (kind->options && kind->options[count].name)
        count++;
    while (ls_augmentation_options[more].name)
        more++;
    struct ls_plugin_option *table = calloc(count + COMMON + more + 1, sizeof(*table));
    if (!table)
        return LS_OUT_OF_MEMORY;
    if (count)
        memcpy(table, kind->options, count * sizeof(*table));
    memcpy(table + count, common, sizeof(common));
    memcpy(table + count + COMMON, ls_augmentation_options, more * sizeof(*table));
    const enum ls_status status = ls_spec_check(SCOPE, spec, table);
    free(table);
    return status;
}

// 0: not given.
static enum ls_status read_count(const struct ls_spec *spec, const char *name, uint64_t *out)
{
    const char *text = ls_spec_get(spec, name);
    int64_t count = 0;
    if (text && (!ls_parse_integer(text, &count) || count < 1)) {
        ls_error(SCOPE, "%s: %s must be at least 1, not %s", spec->name, name, text);
        return LS_USAGE;
    }
    *out = (uint64_t)count;
    return LS_OK;
}

// limit= or take=, which are the same.
static enum ls_status read_limit(const struct ls_spec *spec, uint64_t *out)
{
    if (ls_spec_get(spec, "limit") && ls_spec_get(spec, "take")) {
        ls_error(SCOPE, "%s: limit and take are the same; give one of them", spec->name);
        return LS_USAGE;
    }
    return read_count(spec, ls_spec_get(spec, "take") ? "take" : "limit", out);
}

// 0: nothing is set aside, as where none is given.
static enum ls_status read_validation_split(const struct ls_spec *spec, double *out)
{
    const char *text = ls_spec_get(spec, "validation_split");
    double part = 0;
    if (text && (!ls_parse_number(text, &part) || !(part >= 0 && part < 1))) {
        ls_error(SCOPE, "%s: validation_split must be between 0 and 1, not %s", spec->name, text);
        return LS_USAGE;
    }
    *out = part;
    return LS_OK;
}

// A dataset as the user wrote it, checked, and which of its examples are asked for.
struct request {
    struct ls_spec spec;
    const struct ls_dataset_kind *kind;
    uint64_t skip, limit, repeat;
    double validation_split;
    struct ls_augmentation augmentation;
    enum ls_split split; // that its reader is asked for
    bool divided, last_part; // by validation_split; the part behind the cut
    bool none; // there are no such examples
};

static void choose_split(enum ls_split split, struct request *request)
{
    const struct ls_dataset_kind *kind = request->kind;
    const bool one = kind->is_one_split ? kind->is_one_split(&request->spec) : kind->one_split;
    const bool cut = request->validation_split > 0;
    request->last_part = cut && (split == LS_VALIDATION || (split == LS_TEST && one));
    request->divided = cut && (split == LS_TRAIN || request->last_part);
    request->split = one || split == LS_TRAIN || request->last_part ? LS_TRAIN : LS_TEST;
    request->none = one && !cut && split == LS_VALIDATION;
    if (split != LS_TRAIN)
        request->repeat = 0;
}

static enum ls_status parse(const struct ls_dataset_kind *kind, const char *text,
                            enum ls_split split, struct request *out)
{
    enum ls_status status = ls_spec_parse(SCOPE, text, &out->spec);
    if (status)
        return status;
    out->kind = kind ? kind : find_kind(out->spec.name);
    status = out->kind ? check_options(out->kind, &out->spec)
                       : ls_dataset_refuse_unknown(out->spec.name, "");
    if (!status)
        status = read_count(&out->spec, "skip", &out->skip);
    if (!status)
        status = read_limit(&out->spec, &out->limit);
    if (!status)
        status = read_count(&out->spec, "repeat", &out->repeat);
    if (!status)
        status = ls_augmentation_read(SCOPE, &out->spec, &out->augmentation);
    if (!status)
        status = read_validation_split(&out->spec, &out->validation_split);
    if (status)
        ls_spec_finish(&out->spec);
    else
        choose_split(split, out);
    return status;
}

// The examples that are asked for, of the `count` that the reader has: `count` from `first` on.
static enum ls_status choose_examples(const struct request *request, uint64_t *first,
                                      uint64_t *count)
{
    const char *name = request->kind->name;
    if (request->skip >= *count && request->skip) {
        ls_error(SCOPE, "%s: skip=%" PRIu64 " leaves none of the %" PRIu64 " %s examples", name,
                 request->skip, *count, request->split == LS_TRAIN ? "training" : "test");
        return LS_USAGE;
    }
    *first = request->skip;
    *count -= request->skip;
    if (request->limit > *count && request->split == LS_TRAIN) {
        ls_error(SCOPE, "%s: %s=%" PRIu64 ", but there are only %" PRIu64 " training examples%s",
                 name, ls_spec_get(&request->spec, "take") ? "take" : "limit", request->limit,
                 *count, request->skip ? " after those of skip" : "");
        return LS_USAGE;
    }
    if (request->limit && request->limit < *count)
        *count = request->limit;
    if (!request->divided)
        return LS_OK;
    const uint64_t cut = (uint64_t)((double)*count * (1.0 - request->validation_split)); // as Keras
    if (cut == 0 || cut >= *count) {
        ls_error(SCOPE,
                 "%s: validation_split=%s of %" PRIu64 " examples leaves none to %s; give more "
                 "examples or another part",
                 name, ls_spec_get(&request->spec, "validation_split"), *count,
                 cut ? "validate on" : "train on");
        return LS_USAGE;
    }
    *first += request->last_part ? cut : 0;
    *count = request->last_part ? *count - cut : cut;
    return LS_OK;
}

// An epoch of `count` examples, as often as repeat= says.
static enum ls_status repeat_examples(const struct request *request, uint64_t *count)
{
    if (request->repeat > 1 && *count > UINT32_MAX / request->repeat) {
        ls_error(SCOPE,
                 "%s: repeat=%" PRIu64 " of %" PRIu64
                 " examples are more than 4,294,967,295; --epochs repeats them, too",
                 request->kind->name, request->repeat, *count);
        return LS_USAGE;
    }
    *count *= request->repeat > 1 ? request->repeat : 1;
    return LS_OK;
}

// cache=memory of examples that are in memory needs no work; a file for them would be of no use.
static enum ls_status check_cache(const struct request *request, bool on_demand)
{
    const char *cache = ls_spec_get(&request->spec, "cache");
    if (!cache || (cache[0] && on_demand) || strcmp(cache, "memory") == 0)
        return LS_OK;
    ls_error(SCOPE, "%s: cache=%s: %s", request->kind->name, cache,
             cache[0] ? "these examples are in memory once they are read; leave cache= out"
                      : "expected memory or the name of a file");
    return LS_USAGE;
}

// cache=memory|FILE of examples that are made on demand. Each split has a file of its own.
static enum ls_status cache_examples(const struct request *request, enum ls_split split,
                                     struct ls_dataset **dataset)
{
    static const char *const splits[] = {"train", "test", "validation"};
    const char *cache = ls_spec_get(&request->spec, "cache");
    if (!cache || !(*dataset)->load)
        return check_cache(request, false);
    if (strcmp(cache, "memory") == 0)
        return ls_cache_in_memory(SCOPE, dataset);
    struct ls_hash *hash = ls_hash_create();
    const size_t bytes = strlen(cache) + 16;
    char *path = malloc(bytes);
    enum ls_status status = LS_OUT_OF_MEMORY;
    if (hash && path) {
        for (size_t i = 0; i < request->spec.option_count; i++) {
            const struct ls_option_value *option = &request->spec.options[i];
            if (strncmp(option->name, "random_", 7) == 0 || strcmp(option->name, "repeat") == 0 ||
                strcmp(option->name, "cache") == 0)
                continue; // what is cached does not depend on them
            ls_hash_add(hash, option->name, strlen(option->name) + 1);
            ls_hash_add(hash, option->value, strlen(option->value) + 1);
        }
        snprintf(path, bytes, "%s.%s", cache, splits[split]);
        status = ls_cache_in_file(SCOPE, path, ls_hash_get(hash), dataset);
    }
    ls_hash_destroy(hash);
    free(path);
    return status;
}

// Of a dataset that its reader has opened.
static enum ls_status apply_options(const struct request *request, enum ls_split split,
                                    struct ls_dataset **dataset)
{
    uint64_t first = 0;
    enum ls_status status = choose_examples(request, &first, &(*dataset)->count);
    if (!status)
        status = ls_augmentation_check(SCOPE, &request->augmentation, (*dataset)->fields,
                                       (*dataset)->field_count);
    if (status)
        return status;
    for (uint32_t i = 0; first && i < (*dataset)->field_count; i++) {
        struct ls_field *field = &(*dataset)->fields[i];
        if (field->values)
            field->values = (const char *)field->values + first * field->stride;
    }
    (*dataset)->first = first;
    status = cache_examples(request, split, dataset);
    if (status)
        return status;
    (*dataset)->augmentation = request->augmentation;
    (*dataset)->repeat = request->repeat;
    return repeat_examples(request, &(*dataset)->count);
}

static enum ls_status open_kind(const struct request *request, struct ls_dataset **out)
{
    const struct ls_dataset_kind *kind = request->kind;
    return kind->open_own ? kind->open_own(kind, &request->spec, request->split, out)
                          : kind->open(&request->spec, request->split, out);
}

static enum ls_status describe_kind(const struct request *request, struct ls_dataset_info *out)
{
    struct ls_dataset *dataset = NULL;
    if (request->kind->describe)
        return request->kind->describe(&request->spec, request->split, out);
    const enum ls_status status = open_kind(request, &dataset);
    if (!status)
        ls_dataset_take_description(dataset, out);
    ls_dataset_close(dataset);
    return status;
}

enum ls_status ls_dataset_open(const char *text, enum ls_split split, struct ls_dataset **out)
{
    return ls_dataset_open_as(NULL, text, split, out);
}

enum ls_status ls_dataset_open_as(const struct ls_dataset_kind *kind, const char *text,
                                  enum ls_split split, struct ls_dataset **out)
{
    struct request request;
    struct ls_dataset *dataset = NULL;
    enum ls_status status = parse(kind, text, split, &request);
    if (status)
        return status;
    status = open_kind(&request, &dataset);
    if (!status)
        status = apply_options(&request, split, &dataset);
    ls_spec_finish(&request.spec);
    if (status)
        ls_dataset_close(dataset);
    else
        *out = dataset;
    return status;
}

enum ls_status ls_dataset_describe(const char *text, enum ls_split split,
                                   struct ls_dataset_info *out)
{
    return ls_dataset_describe_as(NULL, text, split, out);
}

enum ls_status ls_dataset_describe_as(const struct ls_dataset_kind *kind, const char *text,
                                      enum ls_split split, struct ls_dataset_info *out)
{
    struct request request;
    struct ls_dataset_info info = {0};
    uint64_t first;
    enum ls_status status = parse(kind, text, split, &request);
    if (status)
        return status;
    status = describe_kind(&request, &info);
    if (!status)
        status = choose_examples(&request, &first, &info.count);
    if (!status)
        status = ls_augmentation_check(SCOPE, &request.augmentation, info.fields, info.field_count);
    if (!status)
        status = check_cache(&request, info.on_demand);
    if (!status)
        status = repeat_examples(&request, &info.count);
    if (request.none)
        info.count = 0;
    ls_spec_finish(&request.spec);
    if (!status)
        *out = info;
    return status;
}

enum ls_status ls_dataset_reads_to_describe(const struct ls_dataset_kind *kind, const char *text,
                                            enum ls_split split, bool *out)
{
    struct request request;
    const enum ls_status status = parse(kind, text, split, &request);
    if (status)
        return status;
    *out = !request.kind->describe && !request.none;
    ls_spec_finish(&request.spec);
    return LS_OK;
}

void ls_dataset_take_description(const struct ls_dataset *dataset, struct ls_dataset_info *out)
{
    *out = (struct ls_dataset_info){.count = dataset->count,
                                    .field_count = dataset->field_count,
                                    .on_demand = dataset->load != NULL};
    memcpy(out->fields, dataset->fields, sizeof(out->fields));
    for (uint32_t i = 0; i < LS_MAX_FIELDS; i++) {
        out->fields[i].values = NULL;
        out->fields[i].class_names = NULL;
    }
}

const char *ls_dataset_example_name(const struct ls_dataset *dataset, uint64_t example)
{
    const struct ls_dataset *made = dataset->made ? dataset->made : dataset;
    const uint64_t count = dataset->count / (dataset->repeat > 1 ? dataset->repeat : 1);
    return made->name ? made->name(made, made->first + example % count) : NULL;
}
