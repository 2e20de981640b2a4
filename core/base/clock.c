// SPDX-License-Identifier: Apache-2.0
// The monotonic clock, and how long this process has been running.
#include "core/base/clock.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static uint64_t read_clock(clockid_t clock)
{
    struct timespec now;
    if (clock_gettime(clock, &now))
        return 0;
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

uint64_t ls_clock_ns(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

uint64_t ls_clock_boot_ns(void)
{
    return read_clock(CLOCK_BOOTTIME);
}

// When this process was started, in nanoseconds since boot; 0 when the system does not say.
static uint64_t start_since_boot_ns(void)
{
    FILE *file = fopen("/proc/self/stat", "r");
    if (!file)
        return 0;
    char text[1024];
    const size_t length = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    text[length] = '\0';

    // The second field is the program's name in parentheses and may hold spaces; the 22nd is the start.
    const char *rest = strrchr(text, ')');
    for (int field = 2; rest && field < 22; field++)
        rest = strchr(rest + 1, ' ');
    unsigned long long ticks = 0;
    if (!rest || sscanf(rest, "%llu", &ticks) != 1)
        return 0;
    const long per_second = sysconf(_SC_CLK_TCK);
    return per_second > 0 ? (uint64_t)ticks * (UINT64_C(1000000000) / (uint64_t)per_second) : 0;
}

static pthread_once_t start_once = PTHREAD_ONCE_INIT;
static uint64_t start_ns; // on the monotonic clock

static void find_start(void)
{
    const uint64_t now = ls_clock_ns();
    const uint64_t boot = ls_clock_boot_ns(), start = start_since_boot_ns();
    const uint64_t age = start && start <= boot ? boot - start : 0;
    start_ns = age <= now ? now - age : 0;
}

uint64_t ls_clock_since_start_ns(void)
{
    pthread_once(&start_once, find_start);
    return ls_clock_ns() - start_ns;
}
