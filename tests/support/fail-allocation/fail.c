// SPDX-License-Identifier: Apache-2.0
// Preloaded into a program, makes one allocation of Lockstep fail: the LOCKSTEP_FAIL_ALLOCATION-th of the process (a
// child goes on counting where its parent was). Only what the objects of Lockstep and the JSON library ask for counts:
// OpenMP and oneDNN end the program by themselves when memory is short. The name of the object is appended to the file
// LOCKSTEP_FAIL_MARK; where the number is 0 nothing fails, and each process appends how many it made when it ends.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *memory, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);

#define CALLER __builtin_extract_return_addr(__builtin_return_address(0))

static atomic_ulong made;
static unsigned long failing;
static const char *mark;
static bool ready;

static void write_mark(const char *text)
{
    const int file = mark ? open(mark, O_WRONLY | O_APPEND | O_CREAT, 0600) : -1;
    if (file < 0)
        return;
    (void)!write(file, text, strlen(text));
    close(file);
}

__attribute__((constructor)) static void begin(void)
{
    const char *number = getenv("LOCKSTEP_FAIL_ALLOCATION");
    mark = getenv("LOCKSTEP_FAIL_MARK");
    failing = number ? strtoul(number, NULL, 10) : 0;
    ready = true;
}

__attribute__((destructor)) static void end(void)
{
    char text[32];
    if (ready && !failing) {
        snprintf(text, sizeof(text), "%lu\n", atomic_load(&made));
        write_mark(text);
    }
}

static bool is_ours(const char *file)
{
    static const char *const names[] = {"lockstep",    "liblockstep", "device-",   "transport-",
                                        "collective-", "strategy-",   "libjansson"};
    const char *slash = strrchr(file, '/');
    const char *name = slash ? slash + 1 : file;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strncmp(name, names[i], strlen(names[i])) == 0)
            return true;
    return false;
}

// Whether this allocation is the one. Asking for the caller's object may allocate, too.
static bool fails(void *caller)
{
    static _Thread_local bool inside;
    Dl_info object;
    if (!ready || inside)
        return false;
    inside = true;
    const bool ours = dladdr(caller, &object) && object.dli_fname && is_ours(object.dli_fname);
    const bool now = ours && atomic_fetch_add(&made, 1) + 1 == failing;
    if (now) {
        char text[512];
        snprintf(text, sizeof(text), "%s+%#zx\n", object.dli_fname,
                 (size_t)((char *)caller - (char *)object.dli_fbase));
        write_mark(text);
        errno = ENOMEM;
    }
    inside = false;
    return now;
}

void *malloc(size_t bytes)
{
    return fails(CALLER) ? NULL : __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    return fails(CALLER) ? NULL : __libc_calloc(count, bytes);
}

void *realloc(void *memory, size_t bytes)
{
    return fails(CALLER) ? NULL : __libc_realloc(memory, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    return fails(CALLER) ? NULL : __libc_memalign(alignment, bytes);
}

int posix_memalign(void **memory, size_t alignment, size_t bytes)
{
    void *made_memory = fails(CALLER) ? NULL : __libc_memalign(alignment, bytes);
    if (!made_memory)
        return ENOMEM;
    *memory = made_memory;
    return 0;
}

static char *copy(const char *text, size_t length)
{
    char *made_text = __libc_malloc(length + 1);
    if (!made_text)
        return NULL;
    memcpy(made_text, text, length);
    made_text[length] = '\0';
    return made_text;
}

#undef strdup
#undef strndup
char *strdup(const char *text)
{
    return fails(CALLER) ? NULL : copy(text, strlen(text));
}

char *strndup(const char *text, size_t most)
{
    return fails(CALLER) ? NULL : copy(text, strnlen(text, most));
}
