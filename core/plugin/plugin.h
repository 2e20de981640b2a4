// SPDX-License-Identifier: Apache-2.0
// What all plugins have in common: the one exported function, the descriptor that it returns, the
// options of a plugin, and the services that the host offers to every kind.
//
// Rules of the boundary: only fixed-width integers, pointers and NUL-terminated UTF-8 text cross
// it. Every table begins with its own size in bytes; a reader compares sizes with >= and never
// reads beyond the size that a table states. A minor version only appends to tables; the major
// version must match. Plugins install no signal handlers, print nothing, change neither the
// environment nor the floating-point mode, and never exit. There is one exception: if a library
// that only the plugin opens can be configured in no other way, the plugin may set the environment
// variables of that library. It does so in `open`, on the main thread, before the library reads
// them, and never overrides a value of the user's.
//
// This is version 1.0. It may still change before the first release of Lockstep.
//
// The life of a plugin: the host loads the file, calls lockstep_plugin(), checks the descriptor and
// the table of its kind, and runs `probe` in a child process. Then it opens instances with the
// table's `open` and closes them with its `close`, each with options of its own; there may be
// several at a time. The plugin stays loaded until the process ends.
//
// Private state: the table of the kind says how large an instance is (`state_bytes`). The host
// allocates that many bytes of zeroed memory, aligned to 128 bytes, passes it to `open`, which
// fills it in, and frees it after `close`. So `close` releases only what the plugin has allocated
// itself. If `open` fails, `close` is not called.
#ifndef LS_PLUGIN_PLUGIN_H
#define LS_PLUGIN_PLUGIN_H

#include "core/plugin/status.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LS_PLUGIN_MAGIC UINT64_C(0x315054534b434f4c) // "LOCKSTP1", little-endian
#define LS_PLUGIN_ABI_MAJOR 1 // must be equal in plugin and host
#define LS_PLUGIN_ABI_MINOR 0 // grows when tables grow
#define LS_PLUGIN_ENTRY "lockstep_plugin" // the name of the exported function

// The kinds of plugin; they travel as uint32_t.
enum ls_kind {
    // Described in the header of the same name:
    LS_KIND_DEVICE = 1,
    LS_KIND_TRANSPORT = 2,
    LS_KIND_COLLECTIVE = 3,
    LS_KIND_STRATEGY = 4,
    LS_KIND_CALLBACK = 5,
    LS_KIND_LAYER = 6,
    LS_KIND_LOSS = 7,
    LS_KIND_METRIC = 8,
    LS_KIND_DATASET = 9,
    LS_KIND_FILTER = 10,
};

// Element types; they travel as uint32_t. 0 is "none".
enum ls_dtype {
    // F: IEEE floating point, BF: bfloat16, I: signed, U: unsigned integers, each with its bits:
    LS_F32 = 1,
    LS_F64 = 2,
    LS_F16 = 3,
    LS_BF16 = 4,
    LS_I32 = 5,
    LS_I64 = 6,
    LS_U8 = 7,
};

// How values of several ranks are combined; they travel as uint32_t.
enum ls_reduction {
    // Element by element:
    LS_SUM = 1,
    LS_PRODUCT = 2,
    LS_MIN = 3,
    LS_MAX = 4,
    LS_MEAN = 5, // LS_SUM of this type divided by the world size, rounded once
};

// One option of a plugin. A table of them ends with an entry whose name is NULL.
struct ls_plugin_option {
    const char *name; // as the user writes it: letters, digits, underscores
    const char *type; // "integer", "number", "boolean", "text" or "one of: a, b, c"
    const char *default_value; // as text; NULL: no default, the option may stay unset
    const char *help; // one line
};

// Services of the host, the same for every kind. Valid as long as the instance that got them.
struct ls_host {
    uint32_t struct_size;
    uint32_t abi_minor; // of the host
    void *context; // the host's own

    // Writes one line to the log, with the plugin's name. On the thread of a replica the line also
    // names its rank, unless the level is LS_LOG_INFO, whose lines are about the whole training.
    // [any thread]
    void (*log)(const struct ls_host *host, uint32_t level, const char *message);

    // Records why the running call fails, and returns `status`, which the call then returns; the
    // host adds the plugin's name. The message is one line: what, where, and what to do. [any
    // thread]
    int32_t (*fail)(const struct ls_host *host, int32_t status, const char *message);

    // Allocates memory of the host, aligned to `alignment` (a power of two). NULL: out of memory.
    // [any thread]
    void *(*allocate)(const struct ls_host *host, uint64_t bytes, uint64_t alignment);
    void (*release)(const struct ls_host *host, void *memory); // takes NULL

    uint64_t (*clock_ns)(const struct ls_host *host); // monotonic [any thread]

    // The value of a declared option as text, already checked against its type; its default if the
    // user gave none; NULL if there is no default either. Borrowed. [any thread]
    const char *(*option)(const struct ls_host *host, const char *name);
};

// What lockstep_plugin() returns: the plugin's identity, and the table of its kind.
struct ls_plugin {
    uint64_t magic; // LS_PLUGIN_MAGIC
    uint32_t abi_major; // LS_PLUGIN_ABI_MAJOR of its headers
    uint32_t abi_minor; // LS_PLUGIN_ABI_MINOR of its headers
    uint32_t struct_size;
    uint32_t kind; // enum ls_kind
    const char *name; // as users write it; the file is <kind>-<name>.so
    const char *version; // the plugin's own
    const char *licence; // SPDX
    const char *summary; // one line
    const struct ls_plugin_option *options; // NULL: none

    // Optional. LS_OK if the plugin can run on this machine; else writes the reason ("no CUDA
    // driver on this machine") into `reason` (`bytes` long, NUL included) and returns
    // LS_UNAVAILABLE. Cheap. It is called in a child process, so the plugin must not rely on what
    // it leaves behind. NULL: always available. [main thread]
    int32_t (*probe)(char *reason, uint64_t bytes);

    const void *interface; // the table of its kind
};

// The one function that a plugin exports.
typedef const struct ls_plugin *(*ls_plugin_entry)(void);

// The first fields of struct ls_plugin, for its initializer.
#define LS_PLUGIN_HEADER(plugin_kind)                                                             \
    .magic = LS_PLUGIN_MAGIC, .abi_major = LS_PLUGIN_ABI_MAJOR, .abi_minor = LS_PLUGIN_ABI_MINOR, \
    .struct_size = (uint32_t)sizeof(struct ls_plugin), .kind = (plugin_kind)

#ifdef __cplusplus
#define LS_EXPORT extern "C" __attribute__((visibility("default")))
#else
// For the definition of lockstep_plugin(): makes it visible, with C linkage in C++.
#define LS_EXPORT __attribute__((visibility("default")))
#endif

// Defined by the plugin.
LS_EXPORT const struct ls_plugin *lockstep_plugin(void);

// True if the table is large enough, by its own struct_size, to have `member`.
#define LS_HAS(table, member) \
    ((table)->struct_size >= offsetof(__typeof__(*(table)), member) + sizeof((table)->member))

// Fails the running call with a formatted message; returns `status`.
__attribute__((format(printf, 3, 4))) static inline int32_t ls_host_fail(const struct ls_host *host,
                                                                         int32_t status,
                                                                         const char *format, ...)
{
    char text[512];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof(text), format, list);
    va_end(list);
    return host->fail(host, status, text);
}

// The value of an option of type "number" or "integer"; 0 if it has neither value nor default.
static inline double ls_host_number(const struct ls_host *host, const char *name)
{
    const char *text = host->option(host, name);
    return text ? strtod(text, NULL) : 0;
}

// The value of an option of type "boolean", 1 or 0; 0 if it has neither value nor default.
static inline int ls_host_is_on(const struct ls_host *host, const char *name)
{
    const char *text = host->option(host, name);
    return text && (!strcmp(text, "on") || !strcmp(text, "true") || !strcmp(text, "yes") ||
                    !strcmp(text, "1"));
}

// The size of an element; 0 for a number that is no type.
static inline uint64_t ls_dtype_bytes(uint32_t dtype)
{
    switch (dtype) {
    case LS_F64:
    case LS_I64: return 8;
    case LS_F32:
    case LS_I32: return 4;
    case LS_F16:
    case LS_BF16: return 2;
    case LS_U8: return 1;
    default: return 0;
    }
}

#ifdef __cplusplus
}
#endif

#endif
