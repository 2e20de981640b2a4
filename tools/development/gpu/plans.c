// SPDX-License-Identifier: Apache-2.0
// Asks cuDNN through its graph API. Needs no GPU where the properties of one are given in a file:
//
//   plans --save-properties=FILE                    writes the properties of this machine's GPU, as cuDNN gives them
//   plans --properties=FILE --save-properties=FILE  writes what cuDNN made of those in a file
#include "tools/development/gpu/plans_cudnn.h"

#include <stdio.h>
#include <string.h>

struct options {
    const char *properties, *save_properties;
};

static bool read_option(const char *argument, const char *name, const char **out)
{
    const size_t length = strlen(name);
    if (strncmp(argument, name, length) != 0 || argument[length] != '=')
        return false;
    *out = argument + length + 1;
    return true;
}

static int fail(const char *text)
{
    fprintf(stderr, "plans: %s\n", text);
    return 1;
}

static int usage(void)
{
    fputs("plans [--properties=FILE] --save-properties=FILE\n", stderr);
    return 2;
}

int main(int argc, char **argv)
{
    struct options options = {0};
    for (int i = 1; i < argc; i++)
        if (!read_option(argv[i], "--properties", &options.properties) &&
            !read_option(argv[i], "--save-properties", &options.save_properties))
            return usage();
    if (!options.save_properties)
        return usage();
    descriptor gpu = options.properties ? cudnn_properties_of_file(options.properties)
                                        : cudnn_properties_of_gpu();
    if (!gpu)
        return fail(cudnn_reason());
    const bool saved = cudnn_properties_save(gpu, options.save_properties);
    cudnn_destroy(&gpu);
    if (!saved)
        return fail(cudnn_reason());
    printf("%s: properties as cuDNN %zu gives them\n", options.save_properties, cudnnGetVersion());
    return 0;
}
