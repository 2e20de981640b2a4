// SPDX-License-Identifier: Apache-2.0
// Asks cuDNN's graph API for plans of convolutions, without a GPU where the properties of one are given in a file:
//
//   gpu-plans --save-properties=FILE        writes the properties of this machine's GPU, as cuDNN gives them
//   gpu-plans --properties=FILE LIST...     finalises plans for each convolution of the lists, --plans=8 of those that fit, and
//                                           prints their engines; exit code 1 where none fits
//
// A list has a line for each convolution (shapes/). Each is asked for forward, forward with bias and ReLU, gradient of x and of
// the weights, in float32 without and with TF32, bfloat16 and float16; --operations= and --arithmetics= choose some by their names,
// with commas between them.
#include "lab/gpu/plans_cudnn.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_SHAPES 1024
#define NUMBERS 14 // of a line

struct options {
    const char *properties, *save_properties, *plans, *operations, *arithmetics;
};

static struct shape shapes[MOST_SHAPES];
static int shape_count;
static struct question questions[MOST_SHAPES * OPERATIONS * ARITHMETICS];
static int question_count;

static int fail(const char *text)
{
    fprintf(stderr, "gpu-plans: %s\n", text);
    return 1;
}

// ---- Lists of convolutions ----

static bool read_shape(char *line, struct shape *out)
{
    int64_t v[NUMBERS];
    char *rest = NULL;
    const char *name = strtok_r(line, " \n", &rest);
    for (int i = 0; i < NUMBERS; i++) {
        const char *word = strtok_r(NULL, " \n", &rest);
        char *end = NULL;
        v[i] = word ? strtoll(word, &end, 10) : -1;
        const bool padding = i == 9 || i == 10;
        if (!word || *end || v[i] < (padding ? 0 : 1))
            return false;
    }
    *out = (struct shape){.batch = v[0],
                          .height = v[1],
                          .width = v[2],
                          .channels = v[3],
                          .filters = v[4],
                          .size = {v[5], v[6]},
                          .stride = {v[7], v[8]},
                          .padding = {v[9], v[10]},
                          .dilation = {v[11], v[12]},
                          .groups = v[13]};
    snprintf(out->name, sizeof(out->name), "%s", name);
    return !strtok_r(NULL, " \n", &rest);
}

static bool read_shapes(const char *path)
{
    char line[256];
    FILE *file = fopen(path, "r");
    bool right = file;
    while (right && fgets(line, sizeof(line), file)) {
        if (line[0] == '#' || line[0] == '\n')
            continue;
        right = shape_count < MOST_SHAPES && read_shape(line, &shapes[shape_count]);
        shape_count += right;
    }
    if (file)
        fclose(file);
    if (!right)
        fprintf(stderr, "gpu-plans: %s: %s\n", path,
                file ? "a line is no convolution, or there are too many" : "cannot be opened");
    return right;
}

static bool is_listed(const char *list, const char *name)
{
    const size_t length = strlen(name);
    for (const char *at = list; at; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, name, length) == 0 && (at[length] == ',' || !at[length]))
            return true;
    }
    return !list;
}

static void make_questions(const struct options *options)
{
    for (int i = 0; i < shape_count; i++)
        for (int operation = 0; operation < OPERATIONS; operation++)
            for (int arithmetic = 0; arithmetic < ARITHMETICS; arithmetic++)
                if (is_listed(options->operations, operation_names[operation]) &&
                    is_listed(options->arithmetics, arithmetic_names[arithmetic]))
                    questions[question_count++] = (struct question){
                        shapes[i], (enum operation)operation, (enum arithmetic)arithmetic};
}

// ---- Plans without a GPU ----

struct counts {
    int plans, refused, without;
};

static bool was_printed(const struct offers *offers, int offer)
{
    for (int i = 0; i < offer; i++)
        if (offers->list[i].engine == offers->list[offer].engine)
            return true;
    return false;
}

// Prints " 28 (0 KB) 67 [tensor cores] (3 KB)": each engine where its first plan is.
static int print_plans(const struct question *question, const struct offers *offers,
                       descriptor properties, int most, struct counts *counts)
{
    int made = 0;
    char notes[128];
    for (int i = 0; i < offers->count && made < most; i++) {
        const struct offer *offer = &offers->list[i];
        int64_t workspace = 0;
        if (!offer_fits(offer, question->arithmetic) || offer_repeats(offers, i))
            continue;
        descriptor plan = offer_plan(offer, properties, &workspace);
        made += plan != NULL;
        counts->refused += !plan;
        if (!plan)
            printf(" %d refused (%s)", (int)offer->engine, cudnn_reason());
        else if (!was_printed(offers, i))
            printf(" %d%s%s%s (%.0f KB)", (int)offer->engine, offer->notes ? " [" : "",
                   offer_notes(offer, notes, sizeof(notes)), offer->notes ? "]" : "",
                   (double)workspace / 1024);
        cudnn_destroy(&plan);
    }
    counts->plans += made;
    return made;
}

// cuDNN has no name for TF32: it is asked the same as for float32, and other engines fit.
static bool is_same_graph(const struct question *a, const struct question *b)
{
    return a->operation == b->operation && memcmp(&a->shape, &b->shape, sizeof(a->shape)) == 0 &&
           arithmetic_type(a->arithmetic) == arithmetic_type(b->arithmetic);
}

static int print_all(descriptor properties, int most)
{
    struct counts counts = {0};
    struct offers offers = {0};
    bool answered = false;
    for (int i = 0; i < question_count; i++) {
        const struct question *question = &questions[i];
        printf("%s %s %s:", question->shape.name, operation_names[question->operation],
               arithmetic_names[question->arithmetic]);
        if (i == 0 || !is_same_graph(question, question - 1)) {
            offers_finish(&offers);
            answered = offers_get(question, properties, &offers);
        }
        const int made = print_plans(question, &offers, properties, most, &counts);
        if (!made)
            printf(" no plan%s%s", answered ? " fits" : ": ", answered ? "" : cudnn_reason());
        printf("; %d offered\n", offers.count);
        counts.without += !made;
    }
    offers_finish(&offers);
    printf("%d convolutions, %d questions: %d plans finalised, %d refused; %d questions without a "
           "plan\n",
           shape_count, question_count, counts.plans, counts.refused, counts.without);
    return counts.without > 0;
}

// ---- The command line ----

static bool read_option(const char *argument, const char *name, const char **out)
{
    const size_t length = strlen(name);
    if (strncmp(argument, name, length) != 0 || argument[length] != '=')
        return false;
    *out = argument + length + 1;
    return true;
}

static int usage(void)
{
    fputs("usage: gpu-plans [--properties=FILE] --save-properties=FILE\n"
          "       gpu-plans --properties=FILE [--plans=8] [--operations=NAMES] "
          "[--arithmetics=NAMES] LIST...\n",
          stderr);
    return 2;
}

static int save(const struct options *options)
{
    descriptor gpu = options->properties ? cudnn_properties_of_file(options->properties)
                                         : cudnn_properties_of_gpu();
    const bool saved = gpu && cudnn_properties_save(gpu, options->save_properties);
    cudnn_destroy(&gpu);
    if (!saved)
        return fail(cudnn_reason());
    printf("%s: properties as cuDNN %zu gives them\n", options->save_properties, cudnnGetVersion());
    return 0;
}

// cuDNN opens this library for each graph and closes it again, which takes two thirds of the time if nobody else holds it.
static void keep_compiler(void)
{
    char name[32];
    snprintf(name, sizeof(name), "libnvrtc.so.%zu", cudnnGetCudartVersion() / 1000);
    dlopen(name, RTLD_LAZY);
}

static int print_from_file(const struct options *options, int most)
{
    keep_compiler();
    descriptor properties = cudnn_properties_of_file(options->properties);
    if (!properties)
        return fail(cudnn_reason());
    printf("cuDNN %zu, %s\n", cudnnGetVersion(), options->properties);
    const int code = print_all(properties, most);
    cudnn_destroy(&properties);
    return code;
}

int main(int argc, char **argv)
{
    struct options o = {0};
    for (int i = 1; i < argc; i++) {
        const char *argument = argv[i];
        if (argument[0] != '-') {
            if (!read_shapes(argument))
                return 2;
        } else if (!read_option(argument, "--properties", &o.properties) &&
                   !read_option(argument, "--save-properties", &o.save_properties) &&
                   !read_option(argument, "--plans", &o.plans) &&
                   !read_option(argument, "--operations", &o.operations) &&
                   !read_option(argument, "--arithmetics", &o.arithmetics)) {
            return usage();
        }
    }
    if (o.save_properties)
        return save(&o);
    make_questions(&o);
    if (!question_count || !o.properties)
        return usage();
    return print_from_file(&o, o.plans ? atoi(o.plans) : 8);
}
