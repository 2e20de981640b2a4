// SPDX-License-Identifier: Apache-2.0
// Reads the section .dynsym and the names it points to.
#include "tools/conformance/elf_symbols.h"

#include <elf.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

// The file in memory. Whoever cuts it short meanwhile kills us: it was checked to be trusted before.
struct image {
    const unsigned char *bytes;
    uint64_t size;
};

static const void *at(const struct image *image, uint64_t offset, uint64_t bytes)
{
    return offset <= image->size && bytes <= image->size - offset ? image->bytes + offset : NULL;
}

static bool section_at(const struct image *image, const Elf64_Ehdr *header, uint64_t index,
                       Elf64_Shdr *out)
{
    if (header->e_shentsize != sizeof(*out) || index >= header->e_shnum ||
        header->e_shoff > image->size)
        return false;
    const void *place = at(image, header->e_shoff + index * sizeof(*out), sizeof(*out));
    if (place)
        memcpy(out, place, sizeof(*out));
    return place && (out->sh_type == SHT_NOBITS || at(image, out->sh_offset, out->sh_size));
}

static bool is_outward(const Elf64_Sym *symbol)
{
    const int binding = ELF64_ST_BIND(symbol->st_info);
    const int visibility = ELF64_ST_VISIBILITY(symbol->st_other);
    return binding != STB_LOCAL && visibility != STV_HIDDEN && visibility != STV_INTERNAL;
}

static enum ls_status take_symbols(const struct image *image, const Elf64_Shdr *table,
                                   const Elf64_Shdr *names, struct ls_elf_symbols *out)
{
    const uint64_t count = table->sh_size / sizeof(Elf64_Sym);
    out->list = calloc(count + 1, sizeof(*out->list));
    if (!out->list)
        return LS_OUT_OF_MEMORY;
    for (uint64_t i = 1; i < count; i++) {
        Elf64_Sym symbol;
        memcpy(&symbol, image->bytes + table->sh_offset + i * sizeof(symbol), sizeof(symbol));
        if (!is_outward(&symbol))
            continue;
        if (symbol.st_name >= names->sh_size)
            return LS_BAD_INPUT;
        const char *name = (const char *)image->bytes + names->sh_offset + symbol.st_name;
        struct ls_elf_symbol *entry = &out->list[out->count];
        entry->name = strndup(name, names->sh_size - symbol.st_name);
        if (!entry->name)
            return LS_OUT_OF_MEMORY;
        entry->defined = symbol.st_shndx != SHN_UNDEF;
        entry->weak = ELF64_ST_BIND(symbol.st_info) != STB_GLOBAL;
        out->count++;
    }
    return LS_OK;
}

static enum ls_status read_image(const struct image *image, struct ls_elf_symbols *out)
{
    Elf64_Ehdr header;
    Elf64_Shdr section, names;
    if (!at(image, 0, sizeof(header)))
        return LS_BAD_INPUT;
    memcpy(&header, image->bytes, sizeof(header));
    if (memcmp(header.e_ident, ELFMAG, SELFMAG) || header.e_ident[EI_CLASS] != ELFCLASS64)
        return LS_BAD_INPUT;
    for (uint64_t i = 0; i < header.e_shnum; i++) {
        if (!section_at(image, &header, i, &section))
            return LS_BAD_INPUT;
        if (section.sh_type == SHT_DYNSYM)
            return section_at(image, &header, section.sh_link, &names)
                       ? take_symbols(image, &section, &names, out)
                       : LS_BAD_INPUT;
    }
    return LS_BAD_INPUT; // stripped of its section headers
}

enum ls_status ls_elf_symbols_read(const char *path, struct ls_elf_symbols *out)
{
    struct stat about;
    struct ls_elf_symbols symbols = {0};
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return LS_BAD_INPUT;
    void *memory = MAP_FAILED;
    if (!fstat(fd, &about) && about.st_size > 0)
        memory = mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (memory == MAP_FAILED)
        return LS_BAD_INPUT;
    const struct image image = {memory, (uint64_t)about.st_size};
    const enum ls_status status = read_image(&image, &symbols);
    munmap(memory, (size_t)about.st_size);
    if (status)
        ls_elf_symbols_finish(&symbols);
    else
        *out = symbols;
    return status;
}

void ls_elf_symbols_finish(struct ls_elf_symbols *symbols)
{
    for (size_t i = 0; i < symbols->count; i++)
        free(symbols->list[i].name);
    free(symbols->list);
    *symbols = (struct ls_elf_symbols){0};
}
