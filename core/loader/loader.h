// SPDX-License-Identifier: Apache-2.0
// Finds, checks, probes and opens plugins, and provides host services to each opened plugin. Search
// path, in order: the directories of --plugin-path, LOCKSTEP_PLUGIN_PATH (ignored for set-uid
// programs), then the directory of installed plugins beside the library or program, or of the build
// tree. A bare name never loads a file from the working directory. Opened plugins stay loaded.
// [main thread]
#ifndef LS_LOADER_LOADER_H
#define LS_LOADER_LOADER_H

#include "core/base/options.h"
#include "core/base/status.h"
#include "core/plugin/plugin.h"

#include <stdbool.h>
#include <stddef.h>

struct ls_loader;

// `plugin_path`: directories separated by ':', searched first; may be NULL.
LS_STATUS ls_loader_create(const char *plugin_path, struct ls_loader **out);
void ls_loader_destroy(struct ls_loader *loader); // opened plugins' handles become invalid
// With the search path and the registered plugins of another one.
LS_STATUS ls_loader_create_like(const struct ls_loader *other, struct ls_loader **out);

// Registers a plugin that the program has itself: it is found by its name before any file. Its
// tables are checked; it is not probed. It lasts as long as the process. LS_USAGE: the name is
// taken by another one that is registered.
LS_STATUS ls_loader_register(struct ls_loader *loader, const struct ls_plugin *plugin);

// An opened plugin with the options the user gave it; owned by the loader.
struct ls_opened_plugin {
    // Copies with the sizes of our headers: calls that an older plugin does not have are NULL.
    const struct ls_plugin *plugin;
    const struct ls_host *host; // its option() returns the values that the user gave
    const void *interface; // plugin->interface: the table of its kind, with all required calls
    char *file; // path
    char *text; // as a command line names it: FILE[:option=value,...]
};

// Opens plugin `name` of `kind`, after the trust checks, the checks of its tables and its probe in
// a child process. `options` (may be NULL) are the user's options for it, already checked by
// ls_spec_check or checked here. LS_UNAVAILABLE, with a message that names file and reason, for a
// plugin that does not exist (the message lists the available ones and suggests the nearest), fails
// a check, or reports in its probe that it cannot run.
LS_STATUS ls_loader_open(struct ls_loader *loader, uint32_t kind, const char *name,
                         const struct ls_option_value *options, size_t option_count,
                         const struct ls_opened_plugin **out);
// The same for a file given by its path; `kind` 0: any. LS_BAD_INPUT when there is no such file.
LS_STATUS ls_loader_open_file(struct ls_loader *loader, const char *path, uint32_t kind,
                              const struct ls_option_value *options, size_t option_count,
                              const struct ls_opened_plugin **out);

// The same for a user's text: NAME[:option=value,...] or FILE[:...]; a text with a '/' or ending in
// ".so" is a file. Messages about the text itself are logged under `scope`.
bool ls_is_plugin_file(const char *name); // a '/' in it, or ".so" at its end
LS_STATUS ls_loader_open_text(struct ls_loader *loader, const char *scope, uint32_t kind,
                              const char *text, const struct ls_opened_plugin **out);

// The collective `auto` has no interface: core/collective/tuner.h makes one that stands for its
// candidates. They are opened with their default options; the array is the caller's to free, what
// is in it the loader's.
bool ls_is_auto(const struct ls_opened_plugin *opened); // NULL: false
// One that has a schedule: `auto` is LS_USAGE, a native collective LS_UNAVAILABLE.
LS_STATUS ls_loader_open_scheduled(struct ls_loader *loader, const char *scope, const char *text,
                                   const struct ls_opened_plugin **out);
LS_STATUS ls_loader_candidates(struct ls_loader *loader, const struct ls_opened_plugin *opened,
                               const struct ls_opened_plugin ***out, size_t *count);

// A plugin on the search path. `available` is the answer of its probe (in a child process); if it
// is false, `reason` says why, or which check failed. The descriptor's texts are copies, empty if
// the file could not be opened.
struct ls_plugin_entry {
    uint32_t kind;
    char *name, *version, *summary, *file, *reason;
    int available;
};
LS_STATUS ls_loader_list(struct ls_loader *loader, struct ls_plugin_entry **out, size_t *count);
// Whether a plugin of this name is on the search path; it is not opened.
bool ls_loader_has(const struct ls_loader *loader, uint32_t kind, const char *name);

// Logs that no plugin of `kinds` (bit i: kind i) is called `name`. The message explains a name from
// another framework, or says how to get a plugin that this build lacks, or suggests the nearest
// name; and it lists the available plugins. Returns LS_UNAVAILABLE.
LS_STATUS ls_loader_report_unknown(const struct ls_loader *loader, const char *scope,
                                   uint32_t kinds, const char *name);
// For the message that no built-in part of `kind` is called `name`: "did you mean 'wave'? registered
// by this program: wave, turn"; "" where the program has registered none. Returns `text`.
const char *ls_loader_registered_text(const struct ls_loader *loader, uint32_t kind,
                                      const char *name, char *text, size_t bytes);
// The directories of the search path, with commas between. Returns `text`.
const char *ls_loader_path_text(const struct ls_loader *loader, char *text, size_t bytes);
// LS_USAGE, logged, for a device with a number ("cuda:0"), as other frameworks write it.
LS_STATUS ls_loader_check_device_text(const char *text);
void ls_plugin_entries_destroy(struct ls_plugin_entry *entries, size_t count);

// The default device: "cuda" if that is available and released, else "cpu" (a run takes that, too, where
// "cuda" lacks an operation of the model: core/run/run.h). A plugin with a
// pre-release version of Semantic Versioning ("0.1.0-untried") is never the default; a line of the
// log says so where it would have been.
const char *ls_loader_default_device(struct ls_loader *loader);

// Finds a folder of the installed tree (which may have been moved) by its path relative to the
// program and to the library; else the folder of that name at the top of the build tree around the
// program, at most four levels up, where meson's marker is, or in the build tree of the project
// that has Lockstep as a subproject. No other folder of that name is accepted. `path` has room for
// PATH_MAX.
bool ls_find_installed(const char *from_program, const char *from_library, const char *in_build,
                       char *path);

// The index-th plugin that this process opened, as "device-cpu"; NULL: no more. It only reads
// memory, so a signal handler may call it.
const char *ls_loader_opened_name(size_t index);

// What a collective says about itself ("NCCL 2.18"), or "". `bytes`: at least 1.
void ls_collective_about(const struct ls_opened_plugin *opened, char *text, uint64_t bytes);

const char *ls_kind_text(uint32_t kind); // "device", ...; NULL for another number

// What --strategy= leaves open, and where it is used. Texts are borrowed; NULL: what a training in
// one process takes ("mirrored", "ring", "local").
struct ls_strategy_setting {
    const char *strategy, *collective, *transport;
    // 0 or 1: one process. More: strategies that keep all replicas in one, and transports that
    // reach no other one, are refused.
    uint32_t workers;
    const char
        *network; // the value of a transport's option `network`, where it has one; NULL: none
};

// Resolves --strategy=NAME[:option=value,...]: NAME is a strategy; else a collective under the
// setting's strategy; else a transport, in one process with the collective chosen by a fixed table
// (`auto:table=fixed`). Each option goes to the plugin that declares it; if two declare it,
// "collective.groups" selects one; if none does, it is LS_USAGE. `setting` NULL: one process.
struct ls_resolved_strategy {
    const struct ls_opened_plugin *strategy;
    const struct ls_opened_plugin *collective; // NULL when the strategy needs none
    const struct ls_opened_plugin *transport; // NULL when neither strategy nor collective needs one
    struct ls_option_value
        *options; // with their values, given or default: "collective.groups" -> "2"
    size_t option_count;
    bool transport_named; // by the user
};
// Where NAME stands for more than one part: the device that it is for; else NULL.
const char *ls_strategy_device(const char *text);
LS_STATUS ls_loader_resolve_strategy(struct ls_loader *loader, const char *text,
                                     const struct ls_strategy_setting *setting,
                                     struct ls_resolved_strategy *out);
void ls_resolved_strategy_finish(struct ls_resolved_strategy *resolved);

#endif
