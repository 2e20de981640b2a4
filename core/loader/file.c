// SPDX-License-Identifier: Apache-2.0
// Whether a file may be opened as a plugin at all, before any of it is mapped: opening it runs its code.
#include "core/loader/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool check_owner(const char *path, const struct stat *about, struct ls_reason *reason)
{
    const uid_t user = geteuid();
    if (about->st_uid != 0 && about->st_uid != user)
        return ls_refuse(reason,
                         "belongs to user %u, neither to root nor to you (%u); run: chown %u '%s'",
                         (unsigned)about->st_uid, (unsigned)user, (unsigned)user, path);
    if (about->st_mode & (S_IWGRP | S_IWOTH))
        return ls_refuse(reason, "other users may write to it; run: chmod go-w '%s'", path);
    return true;
}

static bool check_open_file(int fd, const char *path, struct ls_file_identity *identity,
                            struct ls_reason *reason)
{
    struct stat about;
    if (fstat(fd, &about))
        return ls_refuse(reason, "cannot be examined: %s", strerror(errno));
    if (!S_ISREG(about.st_mode))
        return ls_refuse(reason, "is not a regular file");
    if (!check_owner(path, &about, reason) || !ls_elf_check(fd, (uint64_t)about.st_size, reason))
        return false;
    *identity = (struct ls_file_identity){
        .device = about.st_dev,
        .inode = about.st_ino,
        .bytes = about.st_size,
        .changed = about.st_mtim,
    };
    return true;
}

bool ls_file_check(const char *path, struct ls_file_identity *identity, struct ls_reason *reason)
{
    // Looked at before it is opened: to open a device or a pipe has effects of its own.
    struct stat about;
    if (stat(path, &about))
        return ls_refuse(reason, "cannot be examined: %s", strerror(errno));
    if (!S_ISREG(about.st_mode))
        return ls_refuse(reason, "is not a regular file");
    const int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return ls_refuse(reason, "cannot be read: %s", strerror(errno));
    const bool good = check_open_file(fd, path, identity, reason);
    close(fd);
    return good;
}
