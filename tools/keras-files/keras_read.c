// SPDX-License-Identifier: Apache-2.0
// Reads a file of either format.
#include "tools/keras-files/keras_read.h"
#include "tools/keras-files/archive.h"
#include "tools/keras-files/hdf5_file.h"
#include "tools/keras-files/process_limits.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool begins_as_zip(int fd)
{
    char start[4] = "";
    return pread(fd, start, sizeof(start), 0) == sizeof(start) &&
           memcmp(start, "PK\3\4", sizeof(start)) == 0;
}

bool keras_read(int input, int output, uint32_t seconds, struct contents *contents)
{
    struct stat about;
    int weights = input;
    if (fstat(input, &about))
        return contents_fail(contents, "cannot be read: %s", strerror(errno));
    if (!contents_init(contents, (uint64_t)about.st_size))
        return false;
    // Beside the data, what is handed over has a header.
    if (!limits_set(seconds, contents->allowed + MEMORY) || !limits_memory())
        return contents_fail(contents, "cannot set a limit: %s", strerror(errno));
    if (begins_as_zip(input) && !archive_open(input, contents, &weights))
        return false;
    const bool good = hdf5_read(weights, output, contents);
    if (weights != input)
        close(weights);
    return good;
}
