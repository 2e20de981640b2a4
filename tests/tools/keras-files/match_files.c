// SPDX-License-Identifier: Apache-2.0
// Whether files of Keras are matched to the parameters that they are: for tests with Keras
// itself, whose models may have layers that Lockstep lacks.
//
//     match_files MODEL.json EXPECTED.safetensors FILE...
//
// EXPECTED has each variable of the model under the name that it has in Lockstep. Ends with 0
// where all files hold the same.
#include "core/base/log.h"
#include "core/formats/keras_file.h"
#include "core/model/keras_match.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// A graph with the parameters alone.
static struct ls_graph *graph_of(const struct ls_safetensors *expected)
{
    struct ls_graph *graph = NULL;
    char layer[1000], last[1000] = "";
    bool good = ls_graph_create("expected", &graph) == LS_OK;
    for (size_t i = 0; i < ls_safetensors_count(expected) && good; i++) {
        const struct ls_saved_tensor *tensor = ls_safetensors_get(expected, i);
        const char *slash = strrchr(tensor->name, '/');
        struct ls_shape shape = {.ndims = tensor->ndims};
        struct ls_tensor *parameter;
        memcpy(shape.dims, tensor->dims, tensor->ndims * sizeof(shape.dims[0]));
        snprintf(layer, sizeof(layer), "%.*s", (int)(slash - tensor->name), tensor->name);
        if (strcmp(layer, last) != 0)
            good = ls_graph_begin_layer(graph, layer, "Layer") == LS_OK;
        memcpy(last, layer, sizeof(last));
        good = good && ls_graph_parameter(graph, slash + 1, &shape, &(struct ls_initializer){0},
                                          &parameter) == LS_OK;
    }
    if (good)
        return graph;
    ls_graph_destroy(graph);
    return NULL;
}

static size_t elements(const struct ls_saved_tensor *tensor)
{
    size_t count = 1;
    for (uint32_t i = 0; i < tensor->ndims; i++)
        count *= (size_t)tensor->dims[i];
    return count;
}

static bool is_equal(const struct ls_saved_tensor *one, const struct ls_saved_tensor *other)
{
    return one->ndims == other->ndims && elements(one) == elements(other) && one->data &&
           memcmp(one->data, other->data, elements(one) * sizeof(float)) == 0;
}

// How many variables are not what is expected; 1 where the file cannot be matched.
static size_t check(const struct ls_model *model, const struct ls_safetensors *expected,
                    const char *path)
{
    const struct ls_keras_program program = {.path = KERAS_PROGRAM};
    const size_t count = ls_safetensors_count(expected);
    struct ls_safetensors *file = NULL;
    if (ls_keras_file_read(&program, path, &file))
        return 1;
    size_t *found = calloc(count + 1, sizeof(*found)), wrong = 0;
    bool *known = calloc(ls_safetensors_count(file) + 1, sizeof(*known));
    const bool matched = found && known && !ls_keras_match(model, path, file, found, known);
    wrong = !matched;
    for (size_t i = 0; i < count && matched; i++)
        if (found[i] == LS_NO_TENSOR ||
            !is_equal(ls_safetensors_get(file, found[i]), ls_safetensors_get(expected, i))) {
            fprintf(stderr, "%s: %s is not what is expected\n", path,
                    ls_safetensors_get(expected, i)->name);
            wrong++;
        }
    free(found);
    free(known);
    ls_safetensors_close(file);
    return wrong;
}

int main(int argc, char **argv)
{
    struct ls_safetensors *expected = NULL;
    if (argc < 4 || ls_safetensors_open(argv[2], &expected))
        return 2;
    struct ls_model model = {.source = argv[1], .json = json_load_file(argv[1], 0, NULL)};
    model.graph = graph_of(expected);
    size_t wrong = !model.json || !model.graph;
    for (int i = 3; i < argc && !wrong; i++) {
        wrong = check(&model, expected, argv[i]);
        printf("%s: %zu of %zu variables are not what is expected\n", argv[i], wrong,
               ls_safetensors_count(expected));
    }
    ls_graph_destroy(model.graph);
    json_decref(model.json);
    ls_safetensors_close(expected);
    return wrong != 0;
}
