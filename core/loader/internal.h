// SPDX-License-Identifier: Apache-2.0
// Shared by the files of the loader, and included only by them and by the loader's tests.
#ifndef LS_LOADER_INTERNAL_H
#define LS_LOADER_INTERNAL_H

#include "core/attributes.h"
#include "core/base/instance.h"
#include "core/loader/loader.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#define LS_KINDS 10 // LS_KIND_DEVICE .. LS_KIND_FILTER
#define LS_LONGEST_NAME 64

// Why a plugin is refused: one line, without the file's name. A check that fails writes the reason
// and returns false, so that `plugins` can list it and only an open logs it.
struct ls_reason {
    char text[512];
};

// The identity of a file; a file that was replaced has another one.
struct ls_file_identity {
    dev_t device;
    ino_t inode;
    off_t bytes;
    struct timespec changed;
};

// A plugin that was checked, probed and opened; once per file.
struct ls_module {
    struct ls_plugin descriptor; // the plugin's in our size, with `interface` below
    const struct ls_plugin *plugin; // &descriptor
    const struct ls_plugin *theirs;
    const struct ls_known_plugin *known; // NULL: `auto`
    char *file;
    // A copy of the plugin's table in our size, filled with zeros if the plugin's table is shorter.
    void *interface;
    struct ls_file_identity identity;
    bool registered; // by the program: there is no file
    struct ls_module *next;
};

// What a user of a module gets: its options, and the host that answers them.
struct ls_plugin_host;

struct ls_loader {
    char **directories;
    size_t directory_count;
    struct ls_module *modules;
    struct ls_plugin_host *hosts;
    uint64_t probe_deadline_ns;
    struct ls_file_identity probed; // the file that was last found to run here
};

// ---- kinds.c ----

// Writes the reason and returns false.
LS_PRINTF(2, 3) bool ls_refuse(struct ls_reason *reason, const char *format, ...);

bool ls_name_is_valid(const char *name); // letters, digits, '-' and '_'; not a path

// Splits a path `.../<kind>-<name>.so`; `name` has room for LS_LONGEST_NAME + 1.
bool ls_file_name_split(const char *path, uint32_t *kind, char *name);

// ---- search.c: where plugins are ----

LS_STATUS ls_search_init(struct ls_loader *loader, const char *plugin_path);
LS_STATUS ls_search_copy(struct ls_loader *loader, const struct ls_loader *from);
void ls_search_finish(struct ls_loader *loader);

// The path of plugin `name` of `kind`, even if that file is not usable; NULL: there is none. Freed
// by the caller.
char *ls_search_find(const struct ls_loader *loader, uint32_t kind, const char *name);

// The module of a plugin that the program has registered; NULL: none.
const struct ls_module *ls_module_registered(const struct ls_loader *loader, uint32_t kind,
                                             const char *name);

// A file with the name of a plugin.
struct ls_found {
    uint32_t kind;
    char *name;
    char *file;
};

// All plugin files, sorted by kind and name; of two with the same name, the first on the path.
LS_STATUS ls_search_all(const struct ls_loader *loader, struct ls_found **out, size_t *count);
void ls_found_destroy(struct ls_found *found, size_t count);

// ---- elsewhere.c: names of other frameworks, and plugins that this build lacks ----

extern const struct ls_hint ls_elsewhere[]; // `kinds`: as for ls_loader_report_unknown

// ---- file.c: whether a file may be opened at all ----

bool ls_file_check(const char *path, struct ls_file_identity *identity, struct ls_reason *reason);

// ---- plugin_tables.c: whether the descriptor and the tables are valid ----

// `path` contains the kind and the name that the descriptor must have.
bool ls_tables_check(const struct ls_plugin *plugin, const char *path, struct ls_reason *reason);
size_t ls_interface_bytes(uint32_t kind); // our own table's

// ---- probe.c: first contact, in a child process ----

enum ls_probe_outcome { LS_PROBE_AVAILABLE, LS_PROBE_UNAVAILABLE, LS_PROBE_REFUSED };

struct ls_probe_result {
    enum ls_probe_outcome outcome;
    struct ls_reason reason;
    char version[64];
    char summary[256];
};

// Opens the file in a child process, checks its tables and calls its probe. LS_FAILED (logged) only
// if no child process could be started.
LS_STATUS ls_probe_file(const char *path, uint64_t deadline_ns, struct ls_probe_result *out);

// Opens the file in this process. `stage` (may be NULL) is set to each next stage.
bool ls_module_load(const char *path, volatile uint32_t *stage, const struct ls_plugin **out,
                    struct ls_reason *reason);

// ---- open.c ----

// The module of a file, from the loader's list or newly opened. Failures are logged under `scope`.
LS_STATUS ls_module_open(struct ls_loader *loader, const char *scope, const char *path,
                         const struct ls_module **out);
LS_STATUS ls_module_open_named(struct ls_loader *loader, const char *scope, uint32_t kind,
                               const char *name, const struct ls_module **out);
// The plugin of this very file if the process has opened it, else NULL. [any thread]
const struct ls_plugin *ls_plugin_loaded(const struct ls_file_identity *identity);
void ls_modules_destroy(struct ls_loader *loader);

// ---- auto.c: the collective without a file ----

#define LS_AUTO "auto"
#define LS_BUILT_IN "built in" // in place of a file's path

const struct ls_module *ls_auto_module(void);
// LS_USAGE, logged with what to do, for an option that `auto` had once; LS_OK for every other one and
// for other modules.
LS_STATUS ls_auto_check_option(const char *scope, const struct ls_module *module, const char *name);

// ---- plugin_host.c ----

LS_STATUS ls_plugin_host_create(struct ls_loader *loader, const struct ls_module *module,
                                const struct ls_option_value *options, size_t option_count,
                                const struct ls_opened_plugin **out);
bool ls_host_is_loaders(const struct ls_host *host); // false: another table in its place
void ls_plugin_hosts_destroy(struct ls_loader *loader);

// For tests: how long a plugin may take until its probe has returned (default 10 s).
void ls_loader_set_probe_deadline(struct ls_loader *loader, uint64_t nanoseconds);

#endif
