// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE // for dl_iterate_phdr
#include "core/base/libraries.h"

#include <elf.h>
#include <link.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define ID_BYTES 4 // of an identity, that are shown

// Sums, functions of single numbers, and teams of threads.
static const char *const names[] = {"libdnnl.so", "libm.so", "libgomp.so", "libomp.so"};

struct writing {
    const char *name;
    char *text;
    size_t bytes, used;
};

// The note of the linker (NT_GNU_BUILD_ID) in a segment of notes; NULL: none.
static const uint8_t *find_id(const uint8_t *notes, size_t bytes)
{
    for (size_t at = 0; at + sizeof(ElfW(Nhdr)) <= bytes;) {
        ElfW(Nhdr) note;
        memcpy(&note, notes + at, sizeof(note));
        const size_t name = at + sizeof(note), data = name + (note.n_namesz + 3u) / 4 * 4;
        at = data + (note.n_descsz + 3u) / 4 * 4;
        if (at > bytes)
            return NULL;
        if (note.n_type == NT_GNU_BUILD_ID && note.n_descsz >= ID_BYTES && note.n_namesz == 4 &&
            memcmp(notes + name, "GNU", 4) == 0)
            return notes + data;
    }
    return NULL;
}

static int write_library(struct dl_phdr_info *info, size_t bytes, void *context)
{
    struct writing *writing = context;
    const char *slash = strrchr(info->dlpi_name, '/');
    const char *name = slash ? slash + 1 : info->dlpi_name;
    const uint8_t *id = NULL;
    (void)bytes;
    if (strncmp(name, writing->name, strlen(writing->name)) != 0)
        return 0;
    for (int i = 0; !id && i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_NOTE)
            id = find_id((const uint8_t *)info->dlpi_addr + info->dlpi_phdr[i].p_vaddr,
                         info->dlpi_phdr[i].p_memsz);
    char digits[2 * ID_BYTES + 1] = "none";
    for (int i = 0; id && i < ID_BYTES; i++)
        snprintf(digits + 2 * i, 3, "%02x", id[i]);
    if (writing->used < writing->bytes)
        writing->used +=
            (size_t)snprintf(writing->text + writing->used, writing->bytes - writing->used,
                             "%s%s %s", writing->used ? ", " : "", name, digits);
    return 0;
}

void ls_libraries_text(char *text, size_t bytes)
{
    struct writing writing = {.text = text, .bytes = bytes};
    text[0] = '\0';
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        writing.name = names[i];
        dl_iterate_phdr(write_library, &writing);
    }
}
