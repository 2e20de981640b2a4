// SPDX-License-Identifier: Apache-2.0
// The dynamic symbols of a shared object, read from the file: nothing of it is run. [any thread]
#ifndef LS_TOOLS_CONFORMANCE_ELF_SYMBOLS_H
#define LS_TOOLS_CONFORMANCE_ELF_SYMBOLS_H

#include "core/base/status.h"

#include <stdbool.h>
#include <stddef.h>

struct ls_elf_symbol {
    char *name;
    bool defined; // in this file; else imported
    bool weak; // or unique: what compilers of other languages leave in any shared object
};

struct ls_elf_symbols {
    struct ls_elf_symbol *list;
    size_t count;
};

// Global and weak symbols of a 64-bit ELF file in the byte order of this machine. LS_BAD_INPUT (not logged) when it
// is none, or is damaged.
LS_STATUS ls_elf_symbols_read(const char *path, struct ls_elf_symbols *out);
void ls_elf_symbols_finish(struct ls_elf_symbols *symbols); // takes a zeroed one

#endif
