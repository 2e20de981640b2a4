// SPDX-License-Identifier: Apache-2.0
// Sets the limits. Sanitizers reserve all addresses there are, and open files for their reports:
// under them neither has a limit.
#include "tools/keras-files/process_limits.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

// The soft limit; a hard one that is lower stays.
static bool set(int resource, uint64_t value)
{
    struct rlimit limit;
    if (getrlimit(resource, &limit))
        return false;
    if (limit.rlim_cur > value)
        limit.rlim_cur = (rlim_t)value;
    return setrlimit(resource, &limit) == 0;
}

bool limits_set(uint32_t seconds, uint64_t bytes)
{
    const struct rlimit no_core = {0, 0};
    return prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           setrlimit(RLIMIT_CORE, &no_core) == 0 && set(RLIMIT_CPU, seconds) &&
           set(RLIMIT_FSIZE, bytes);
}

bool limits_memory(void)
{
    return SANITIZED || set(RLIMIT_AS, MEMORY);
}

bool limits_allow(uint64_t bytes, struct contents *contents)
{
    struct rlimit limit;
    if (SANITIZED)
        return true;
    if (getrlimit(RLIMIT_AS, &limit))
        return contents_fail(contents, "cannot set a limit: %s", strerror(errno));
    const uint64_t needed = MEMORY + bytes;
    limit.rlim_cur = limit.rlim_max < needed ? limit.rlim_max : (rlim_t)needed;
    return setrlimit(RLIMIT_AS, &limit) == 0 ||
           contents_fail(contents, "cannot set a limit: %s", strerror(errno));
}

bool limits_close_files(struct contents *contents)
{
    const struct rlimit none = {0, 0};
    return SANITIZED || setrlimit(RLIMIT_NOFILE, &none) == 0 ||
           contents_fail(contents, "cannot set a limit: %s", strerror(errno));
}
