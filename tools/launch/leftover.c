// SPDX-License-Identifier: Apache-2.0
// Children, which are found in /proc because no call lists them, and the files of servers.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // WNOWAIT
#endif
#include "tools/launch/leftover.h"

#include "core/base/log.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

bool launch_has_children(void)
{
    siginfo_t info;
    return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

// "123 (name) S 1 ...": the name may hold anything.
static bool is_child(pid_t pid)
{
    char path[48], text[512], state = 0;
    int parent = 0;
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    const size_t got = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    text[got] = '\0';
    const char *name_end = strrchr(text, ')');
    return name_end && sscanf(name_end + 1, " %c %d", &state, &parent) == 2 && state != 'Z' &&
           parent == getpid();
}

static void for_children(void (*act)(pid_t child))
{
    DIR *folder = opendir("/proc");
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        const pid_t pid = (pid_t)atoi(entry->d_name);
        if (pid > 0 && is_child(pid))
            act(pid);
    }
    if (folder)
        closedir(folder);
}

static void end(pid_t child)
{
    kill(child, SIGKILL);
}

static void name(pid_t child)
{
    ls_warn("launch", "process %d does not end even after SIGKILL, and is left behind", (int)child);
}

void launch_kill_children(void)
{
    for_children(end);
}

void launch_name_children(void)
{
    if (launch_has_children())
        for_children(name);
}

void launch_remove_folder(const char *path)
{
    DIR *folder = *path ? opendir(path) : NULL;
    for (struct dirent *entry; folder && (entry = readdir(folder));)
        if (strncmp(entry->d_name, "lockstep-", 9) == 0)
            (void)unlinkat(dirfd(folder), entry->d_name, 0);
    if (folder)
        closedir(folder);
    if (*path)
        (void)rmdir(path);
}
