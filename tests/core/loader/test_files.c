// SPDX-License-Identifier: Apache-2.0
// What is refused before anything of a file is mapped or run: wrong owner, mode, type, machine, length.
#include "tests/core/loader/support.h"
#include "tests/support/suite.h"

#include <elf.h>
#include <sys/socket.h>
#include <sys/un.h>

static enum ls_status open_collective(const char *name)
{
    struct ls_loader *loader = make_loader();
    const struct ls_opened_plugin *opened = NULL;
    last_message[0] = '\0';
    const enum ls_status status =
        ls_loader_open(loader, LS_KIND_COLLECTIVE, name, NULL, 0, &opened);
    ck_assert_int_eq(status == LS_OK, opened != NULL);
    ls_loader_destroy(loader);
    return status;
}

// Opens the file `collective-good.so` of the folder, which must be refused with `reason`.
static void assert_refused(const char *reason)
{
    ck_assert_int_eq(open_collective("good"), LS_UNAVAILABLE);
    ck_assert_message(reason);
    ck_assert_message("collective-good.so");
}

TEST(a_whole_file_of_this_machine_loads)
{
    put("collective-good");
    ck_assert_int_eq(open_collective("good"), LS_OK);
    ck_assert_str_eq(last_message, "");
}

TEST(a_file_that_others_may_write_is_refused_with_the_chmod)
{
    const mode_t modes[] = {0664, 0646, 0666, 0777, 0622};
    char remedy[600];
    put("collective-good");
    snprintf(remedy, sizeof(remedy), "chmod go-w '%s'", in_folder("collective-good.so"));
    for (size_t i = 0; i < sizeof(modes) / sizeof(*modes); i++) {
        ck_assert_int_eq(chmod(in_folder("collective-good.so"), modes[i]), 0);
        assert_refused(remedy);
    }
    ck_assert_int_eq(chmod(in_folder("collective-good.so"), 0400), 0);
    ck_assert_int_eq(open_collective("good"), LS_OK);
}

TEST(a_file_of_another_user_is_refused)
{
    put("collective-good");
    if (chown(in_folder("collective-good.so"), 12345, 12345)) {
        printf("SKIP: only root can give a file to another user\n");
        return;
    }
    assert_refused("belongs to user 12345");
}

TEST(what_is_no_regular_file_is_refused_without_opening_it)
{
    const char *path = in_folder("collective-good.so");
    ck_assert_int_eq(mkdir(path, 0755), 0);
    assert_refused("is not a regular file");
    ck_assert_int_eq(rmdir(path), 0);

    ck_assert_int_eq(mkfifo(path, 0644), 0); // to open it would wait for ever
    assert_refused("is not a regular file");
    ck_assert_int_eq(unlink(path), 0);

    ck_assert_int_eq(symlink("/nowhere/at/all.so", path), 0);
    assert_refused("No such file");
    ck_assert_int_eq(unlink(path), 0);

    ck_assert_int_eq(symlink("/dev/zero", path), 0);
    assert_refused("is not a regular file");
    ck_assert_int_eq(unlink(path), 0);

    ck_assert_int_eq(symlink("collective-good.so", path), 0);
    assert_refused("symbolic links");
}

TEST(a_symbolic_link_to_a_good_file_loads)
{
    put_as("collective-good", "somewhere");
    ck_assert_int_eq(symlink("somewhere", in_folder("collective-good.so")), 0);
    ck_assert_int_eq(open_collective("good"), LS_OK);
}

TEST(what_is_no_shared_object_is_refused)
{
    const char *path = in_folder("collective-good.so");
    write_whole(path, "", 0);
    assert_refused("is empty");
    write_whole(path, "\x7f", 1);
    assert_refused("is not a shared object");
    write_whole(path,
                "\x7f"
                "ELF",
                4);
    assert_refused("is truncated");
    const char text[] =
        "INPUT(libsomething.so) and a good deal of text, as linker scripts have it; long enough";
    write_whole(path, text, sizeof(text) - 1);
    assert_refused("is not a shared object");
}

// Writes the good plugin with `bytes` at `offset` replaced.
static void put_patched(size_t offset, const void *patch, size_t bytes)
{
    size_t size;
    char *content = read_whole(TEST_PLUGINS "/collective-good.so", &size);
    ck_assert_uint_le(offset + bytes, size);
    memcpy(content + offset, patch, bytes);
    write_whole(in_folder("collective-good.so"), content, size);
    free(content);
}

static void put_patched_u16(size_t offset, uint16_t value)
{
    put_patched(offset, &value, sizeof(value));
}

static void put_patched_u64(size_t offset, uint64_t value)
{
    put_patched(offset, &value, sizeof(value));
}

TEST(a_file_of_another_machine_is_refused)
{
    put_patched_u16(offsetof(Elf64_Ehdr, e_machine), EM_S390);
    assert_refused("is for another machine (ELF machine 22");
    put_patched(EI_CLASS, (char[]){ELFCLASS32}, 1);
    assert_refused("is for another machine");
    put_patched(EI_DATA, (char[]){ELFDATA2MSB}, 1);
    assert_refused("is for another machine");
}

TEST(headers_that_lie_are_refused)
{
    put_patched_u16(offsetof(Elf64_Ehdr, e_type), ET_REL);
    assert_refused("is not a shared object");
    put_patched_u16(offsetof(Elf64_Ehdr, e_phnum), 0);
    assert_refused("no program headers");
    put_patched_u16(offsetof(Elf64_Ehdr, e_phnum), 65000);
    assert_refused("program headers");
    put_patched_u16(offsetof(Elf64_Ehdr, e_phentsize), 12);
    assert_refused("no program headers");
    put_patched_u64(offsetof(Elf64_Ehdr, e_phoff), UINT64_MAX - 8);
    assert_refused("program headers lie beyond");
    put_patched_u64(offsetof(Elf64_Ehdr, e_shoff), UINT64_MAX - 8);
    assert_refused("section headers lie beyond");
    put_patched_u64(sizeof(Elf64_Ehdr) + offsetof(Elf64_Phdr, p_filesz), UINT64_MAX / 2);
    assert_refused("segments reach beyond");
    put_patched_u64(sizeof(Elf64_Ehdr) + offsetof(Elf64_Phdr, p_offset), UINT64_MAX);
    assert_refused("segments reach beyond");
    put_patched_u64(sizeof(Elf64_Ehdr) + offsetof(Elf64_Phdr, p_memsz), 1);
    assert_refused("larger in the file than in memory");
}

// Every length up to 600 bytes, then steps that meet all places within a page, and the last bytes.
static size_t next_length(size_t length, size_t whole)
{
    if (length < 600 || length + 70 > whole)
        return length + 1;
    return length + 61;
}

TEST(every_cut_is_refused_cleanly)
{
    size_t whole, refused = 0;
    char *content = read_whole(TEST_PLUGINS "/collective-good.so", &whole);
    struct ls_reason reason;
    struct ls_file_identity identity;
    const char *path = in_folder("collective-good.so");
    for (size_t length = 0; length < whole; length = next_length(length, whole)) {
        write_whole(path, content, length);
        ck_assert_msg(!ls_file_check(path, &identity, &reason), "cut at %zu of %zu", length, whole);
        refused++;
    }
    ck_assert_uint_gt(refused, 700);
    write_whole(path, content, whole);
    ck_assert_int_eq(open_collective("good"), LS_OK);
    free(content);
}

// Without section headers a file may end after what is loaded: it is refused or it loads, and nothing
// dies of it (also not the child, which would be told as a crash).
TEST(every_cut_without_section_headers_is_refused_or_loads)
{
    size_t whole, loaded = 0;
    char *content = read_whole(TEST_PLUGINS "/collective-good.so", &whole);
    memset(content + offsetof(Elf64_Ehdr, e_shoff), 0, sizeof(Elf64_Off));
    memset(content + offsetof(Elf64_Ehdr, e_shnum), 0, sizeof(Elf64_Half));
    const char *path = in_folder("collective-good.so");
    for (size_t length = whole; length > 64; length -= length > 6 * 997 ? 997 : 61) {
        write_whole(path, content, length);
        const enum ls_status status = open_collective("good");
        ck_assert(status == LS_OK || status == LS_UNAVAILABLE);
        ck_assert_msg(!message_has("crashed"), "cut at %zu: %s", length, last_message);
        loaded += status == LS_OK;
    }
    ck_assert_uint_gt(loaded, 0);
    free(content);
}

// Zeros in the middle pass all checks of the headers: the child may crash on them, we may not.
TEST(damage_inside_kills_nobody)
{
    size_t whole;
    char *content = read_whole(TEST_PLUGINS "/collective-good.so", &whole);
    char *damaged = malloc(whole);
    ck_assert_ptr_nonnull(damaged);
    const char *path = in_folder("collective-good.so");
    for (size_t start = 600; start + 700 < whole; start += whole / 40) {
        memcpy(damaged, content, whole);
        memset(damaged + start, 0, 700);
        write_whole(path, damaged, whole);
        const enum ls_status status = open_collective("good");
        ck_assert(status == LS_OK || status == LS_UNAVAILABLE);
    }
    free(damaged);
    free(content);
}

TEST_FIXTURE(make_folder, remove_folder);
