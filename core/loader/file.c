// SPDX-License-Identifier: Apache-2.0
// Whether a file may be opened as a plugin at all, before any of it is mapped: opening it runs its code.
#include "core/loader/internal.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// ---- Whether it is a whole shared object of this machine ----

// dlopen() maps what the headers promise and touches it: on a file that was cut short it dies with SIGBUS instead of
// failing.

#if defined(__x86_64__)
#define THIS_MACHINE EM_X86_64
#elif defined(__aarch64__)
#define THIS_MACHINE EM_AARCH64
#elif defined(__riscv)
#define THIS_MACHINE EM_RISCV
#elif defined(__powerpc64__)
#define THIS_MACHINE EM_PPC64
#else
#error "core/loader/file.c: which e_machine do shared objects of this machine have?"
#endif

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define THIS_ORDER ELFDATA2LSB
#else
#define THIS_ORDER ELFDATA2MSB
#endif

static bool read_at(int fd, void *to, size_t bytes, uint64_t offset)
{
    char *next = to;
    while (bytes) {
        const ssize_t got = pread(fd, next, bytes, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        next += got;
        bytes -= (size_t)got;
        offset += (uint64_t)got;
    }
    return true;
}

static bool lies_within(uint64_t offset, uint64_t bytes, uint64_t file_bytes)
{
    return offset <= file_bytes && bytes <= file_bytes - offset;
}

static bool refuse_cut(struct ls_reason *reason, const char *what)
{
    return ls_refuse(
        reason,
        "is truncated or damaged: its %s beyond the end of the file; copy or build it again", what);
}

static bool check_header(const Elf64_Ehdr *header, struct ls_reason *reason)
{
    if (memcmp(header->e_ident, ELFMAG, SELFMAG))
        return ls_refuse(reason, "is not a shared object (no ELF header)");
    if (header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_ident[EI_DATA] != THIS_ORDER)
        return ls_refuse(reason, "is for another machine (32 bits, or the other byte order)");
    if (header->e_machine != THIS_MACHINE)
        return ls_refuse(reason, "is for another machine (ELF machine %u, this one is %u)",
                         (unsigned)header->e_machine, (unsigned)THIS_MACHINE);
    if (header->e_type != ET_DYN)
        return ls_refuse(reason, "is not a shared object (ELF type %u)", (unsigned)header->e_type);
    if (header->e_phentsize != sizeof(Elf64_Phdr) || !header->e_phnum || header->e_phnum == PN_XNUM)
        return ls_refuse(reason, "is damaged: it has no program headers of this machine");
    return true;
}

// What dlopen() will map.
static bool check_segments(int fd, const Elf64_Ehdr *header, uint64_t file_bytes,
                           struct ls_reason *reason)
{
    if (!lies_within(header->e_phoff, (uint64_t)header->e_phnum * sizeof(Elf64_Phdr), file_bytes))
        return refuse_cut(reason, "program headers lie");
    bool loads = false, dynamic = false;
    for (uint64_t i = 0; i < header->e_phnum; i++) {
        Elf64_Phdr segment;
        if (!read_at(fd, &segment, sizeof(segment), header->e_phoff + i * sizeof(segment)))
            return refuse_cut(reason, "program headers lie");
        if (segment.p_type != PT_NULL &&
            !lies_within(segment.p_offset, segment.p_filesz, file_bytes))
            return refuse_cut(reason, "segments reach");
        if (segment.p_type == PT_LOAD && segment.p_filesz > segment.p_memsz)
            return ls_refuse(reason, "is damaged: a segment is larger in the file than in memory");
        loads |= segment.p_type == PT_LOAD;
        dynamic |= segment.p_type == PT_DYNAMIC;
    }
    if (!loads || !dynamic)
        return ls_refuse(reason, "is damaged: it has nothing to load");
    return true;
}

// Nothing maps sections, but they come last in the file: what was cut shows here first.
static bool check_sections(int fd, const Elf64_Ehdr *header, uint64_t file_bytes,
                           struct ls_reason *reason)
{
    if (!header->e_shoff)
        return true;
    if (header->e_shentsize != sizeof(Elf64_Shdr))
        return ls_refuse(reason, "is damaged: it has no section headers of this machine");
    if (!lies_within(header->e_shoff, (uint64_t)header->e_shnum * sizeof(Elf64_Shdr), file_bytes))
        return refuse_cut(reason, "section headers lie");
    for (uint64_t i = 0; i < header->e_shnum; i++) {
        Elf64_Shdr section;
        if (!read_at(fd, &section, sizeof(section), header->e_shoff + i * sizeof(section)))
            return refuse_cut(reason, "section headers lie");
        if (section.sh_type != SHT_NOBITS && section.sh_type != SHT_NULL &&
            !lies_within(section.sh_offset, section.sh_size, file_bytes))
            return refuse_cut(reason, "sections reach");
    }
    return true;
}

static bool check_elf(int fd, uint64_t file_bytes, struct ls_reason *reason)
{
    Elf64_Ehdr header;
    if (!file_bytes)
        return ls_refuse(reason, "is empty");
    if (file_bytes < sizeof(header) || !read_at(fd, &header, sizeof(header), 0)) {
        char magic[SELFMAG];
        if (read_at(fd, magic, sizeof(magic), 0) && !memcmp(magic, ELFMAG, SELFMAG))
            return refuse_cut(reason, "header reaches");
        return ls_refuse(reason, "is not a shared object (no ELF header)");
    }
    return check_header(&header, reason) && check_segments(fd, &header, file_bytes, reason) &&
           check_sections(fd, &header, file_bytes, reason);
}

// ---- Whose it is ----

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
    if (!check_owner(path, &about, reason) || !check_elf(fd, (uint64_t)about.st_size, reason))
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
