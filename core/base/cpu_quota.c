// SPDX-License-Identifier: Apache-2.0
// Where this process's groups are is in /proc/self/cgroup, where their files are mounted in
// /proc/self/mountinfo. A quota holds for all groups below, so each one up to the mount point is read.
#include "core/base/cpu_quota.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE_BYTES (2 * PATH_MAX + 512)

// Whether `name` is in the list "a,b,c".
static bool is_listed(const char *list, const char *name)
{
    const size_t length = strlen(name);
    for (; *list; list += strspn(list, ",")) {
        const size_t item = strcspn(list, ",\n");
        if (item == length && strncmp(list, name, length) == 0)
            return true;
        list += item;
        if (*list == '\n')
            break;
    }
    return false;
}

// The path of this process's group, from a line "4:cpu,cpuacct:/docker/ab" (version 1) or
// "0::/docker/ab" (version 2). False: there is none.
static bool find_group(const char *root, bool second, char path[static PATH_MAX])
{
    char name[PATH_MAX], line[LINE_BYTES];
    snprintf(name, sizeof(name), "%s/proc/self/cgroup", root);
    FILE *file = fopen(name, "r");
    bool found = false;
    while (file && !found && fgets(line, sizeof(line), file)) {
        char *kinds = strchr(line, ':'), *group = kinds ? strchr(kinds + 1, ':') : NULL;
        if (!group)
            continue;
        *group++ = '\0';
        found = second ? strncmp(line, "0:", 2) == 0 && !kinds[1] : is_listed(kinds + 1, "cpu");
        group[strcspn(group, "\n")] = '\0';
        if (found)
            snprintf(path, PATH_MAX, "%s", group);
    }
    if (file)
        fclose(file);
    return found;
}

// The kernel writes blanks and backslashes as three octal digits.
static void unescape(char *path)
{
    char *to = path;
    for (const char *at = path; *at; to++) {
        const bool octal = at[0] == '\\' && strspn(at + 1, "01234567") >= 3;
        *to = octal ? (char)((at[1] - '0') * 64 + (at[2] - '0') * 8 + at[3] - '0') : *at;
        at += octal ? 4 : 1;
    }
    *to = '\0';
}

// Which group is mounted, and where, from a line "31 23 0:28 /group /sys/fs/cgroup rw - cgroup2 source
// options". False: it is another mount.
static bool read_mount(char *line, bool second, char **group, char **point)
{
    char *words[5], *rest = line, *behind = strstr(line, " - "), kind[16], options[512];
    if (!behind || sscanf(behind, " - %15s %*s %511s", kind, options) != 2 ||
        strcmp(kind, second ? "cgroup2" : "cgroup") != 0 || (!second && !is_listed(options, "cpu")))
        return false;
    for (int i = 0; i < 5; i++)
        words[i] = strtok_r(i ? NULL : line, " ", &rest);
    if (!words[4])
        return false;
    unescape(words[3]);
    unescape(words[4]);
    *group = words[3];
    *point = words[4];
    return true;
}

static bool read_numbers(const char *folder, const char *name, int count, double *numbers)
{
    char path[PATH_MAX + 32];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *file = fopen(path, "r");
    const bool read = file && (count == 1 ? fscanf(file, "%lf", numbers) == 1
                                          : fscanf(file, "%lf %lf", numbers, numbers + 1) == 2);
    if (file)
        fclose(file);
    return read;
}

// Of one group; a group without a quota has "max" (version 2) or -1.
static uint32_t read_quota(const char *folder, bool second)
{
    double numbers[2] = {0, 0};
    const bool known = second ? read_numbers(folder, "cpu.max", 2, numbers)
                              : read_numbers(folder, "cpu.cfs_quota_us", 1, numbers) &&
                                    read_numbers(folder, "cpu.cfs_period_us", 1, numbers + 1);
    if (!known || !(numbers[0] > 0) || !(numbers[1] > 0) || numbers[0] / numbers[1] > INT32_MAX)
        return 0;
    const uint32_t whole = (uint32_t)(numbers[0] / numbers[1]);
    return whole + ((double)whole * numbers[1] < numbers[0]);
}

static void take_less(uint32_t quota, uint32_t *least)
{
    if (quota && (!*least || quota < *least))
        *least = quota;
}

// `below` is the path of the group from the mount point on.
static void read_groups(const char *root, const char *point, const char *below, bool second,
                        uint32_t *least)
{
    char folder[PATH_MAX];
    const size_t top = strlen(root) + strlen(point);
    if (snprintf(folder, sizeof(folder), "%s%s%s", root, point, below) >= (int)sizeof(folder))
        return;
    for (;;) {
        take_less(read_quota(folder, second), least);
        char *slash = strrchr(folder, '/');
        if (strlen(folder) <= top || !slash)
            return;
        *slash = '\0';
    }
}

// What is below `above` in `group`; "" where it is elsewhere, as in a name space of its own.
static const char *below(const char *above, const char *group)
{
    const size_t length = strcmp(above, "/") == 0 ? 0 : strlen(above);
    const bool within = strncmp(group, above, length) == 0 && group[length] == '/';
    return within && group[length + 1] && !strstr(group, "/..") ? group + length : "";
}

uint32_t ls_cpu_quota(const char *root)
{
    uint32_t least = 0;
    for (int version = 1; version <= 2; version++) {
        char own[PATH_MAX], name[PATH_MAX], line[LINE_BYTES], *group, *point;
        if (!find_group(root, version == 2, own))
            continue;
        snprintf(name, sizeof(name), "%s/proc/self/mountinfo", root);
        FILE *file = fopen(name, "r");
        while (file && fgets(line, sizeof(line), file))
            if (read_mount(line, version == 2, &group, &point))
                read_groups(root, point, below(group, own), version == 2, &least);
        if (file)
            fclose(file);
    }
    return least;
}
