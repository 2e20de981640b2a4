// SPDX-License-Identifier: Apache-2.0
// Damaged safetensors files: read or refused. Run it under sanitizers.
//
//     fuzz_safetensors SECONDS SEED FILE...
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // memfd_create
#endif
#include "core/base/log.h"
#include "core/formats/safetensors.h"
#include "tests/fuzz/mutate.h"

#include <sys/mman.h>
#include <unistd.h>

static void quiet(void *context, uint32_t level, const char *line)
{
    (void)level;
    (void)line;
    ++*(unsigned long *)context;
}

// Half of the damage goes to the header, where the decisions are.
static size_t damage(uint64_t *state, unsigned char *data, size_t bytes)
{
    uint64_t header = 0;
    memcpy(&header, data, sizeof(header));
    if (header + 8 > bytes || fuzz_below(state, 2))
        return fuzz_mutate(state, data, bytes);
    fuzz_mutate(state, data + 8, (size_t)header);
    return bytes;
}

int main(int argc, char **argv)
{
    unsigned long read = 0, refused = 0, errors = 0;
    float sum = 0;
    if (argc < 4)
        return 2;
    const double end_at = fuzz_clock() + strtod(argv[1], NULL);
    ls_log_set_writer(quiet, &errors);
    for (uint64_t seed = strtoull(argv[2], NULL, 10); fuzz_clock() < end_at; seed++) {
        struct ls_safetensors *file = NULL;
        size_t bytes;
        uint64_t state = seed;
        unsigned char *data = fuzz_load(argv[3 + seed % (uint64_t)(argc - 3)], &bytes);
        if (!data)
            return 2;
        bytes = damage(&state, data, bytes);
        const int fd = memfd_create("fuzz", 0);
        if (fd < 0 || write(fd, data, bytes) != (ssize_t)bytes)
            return 2;
        errors = 0;
        const enum ls_status status = ls_safetensors_open_from(fd, "fuzz", &file);
        if (errors != (status != LS_OK) || (status && status != LS_BAD_INPUT)) {
            fprintf(stderr, "seed %llu: status %d, %lu errors\n", (unsigned long long)seed,
                    (int)status, errors);
            return 1;
        }
        read += !status;
        refused += status != LS_OK;
        for (size_t i = 0; !status && i < ls_safetensors_count(file); i++) {
            const struct ls_saved_tensor *tensor = ls_safetensors_get(file, i);
            int64_t count = 1;
            for (uint32_t d = 0; d < tensor->ndims; d++)
                count *= tensor->dims[d];
            if (tensor->data && count)
                sum += tensor->data[0] + tensor->data[count - 1];
        }
        ls_safetensors_close(file);
        close(fd);
        free(data);
    }
    printf("%lu read, %lu refused (%g)\n", read, refused, (double)sum);
    return !read || !refused;
}
