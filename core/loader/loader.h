// SPDX-License-Identifier: Apache-2.0
// Finds, checks, opens and probes plugins, and gives each opened one its host services. Search path, in order:
// the directories of --plugin-path, LOCKSTEP_PLUGIN_PATH (ignored for set-uid programs), then the
// directory of installed plugins beside the library or program, or of the build tree. Nothing is
// loaded from the working directory by a bare name. Opened plugins stay loaded. [main thread]
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

// An opened plugin with the options the user gave it; owned by the loader.
struct ls_opened_plugin {
    // Copies in the size of our headers: calls that an older plugin does not have are NULL.
    const struct ls_plugin *plugin;
    const struct ls_host *host; // whose option() answers the values given
    const void *interface; // plugin->interface: the table of its kind; required calls are there
    char *file; // path
    char *text; // as a command line names it: FILE[:option=value,...]
};

// Opens plugin `name` of `kind`, after the trust checks, the checks of its tables and its probe in a child
// process. `options` (may be NULL) are those of the user for it, already checked by ls_spec_check or checked
// here. Messages name file and reason: LS_UNAVAILABLE for one that does not exist (lists what there is,
// suggests the nearest), fails a check, or says in probe that it cannot run.
LS_STATUS ls_loader_open(struct ls_loader *loader, uint32_t kind, const char *name,
                         const struct ls_option_value *options, size_t option_count,
                         const struct ls_opened_plugin **out);
// The same for a file given by its path; `kind` 0: any. LS_BAD_INPUT when there is no such file.
LS_STATUS ls_loader_open_file(struct ls_loader *loader, const char *path, uint32_t kind,
                              const struct ls_option_value *options, size_t option_count,
                              const struct ls_opened_plugin **out);

// The same for what a user wrote: NAME[:option=value,...] or FILE[:...], a file by a '/' or ending in ".so". Messages
// about the text itself come under `scope`.
LS_STATUS ls_loader_open_text(struct ls_loader *loader, const char *scope, uint32_t kind,
                              const char *text, const struct ls_opened_plugin **out);

// The collective `auto` has no interface: core/collective/tuner.h makes one that stands for its
// candidates. They are opened with their default options; the array is the caller's to free, what is
// in it the loader's.
bool ls_is_auto(const struct ls_opened_plugin *opened); // NULL: false
// One that has a schedule: `auto` is LS_USAGE, a collective that runs itself LS_UNAVAILABLE.
LS_STATUS ls_loader_open_described(struct ls_loader *loader, const char *scope, const char *text,
                                   const struct ls_opened_plugin **out);
LS_STATUS ls_loader_candidates(struct ls_loader *loader, const struct ls_opened_plugin *opened,
                               const struct ls_opened_plugin ***out, size_t *count);

// What is on the search path. `available` is the answer of probe (in a child process), `reason` why not, or which
// check failed; the descriptor's texts are copies, empty where the file could not be opened.
struct ls_plugin_entry {
    uint32_t kind;
    char *name, *version, *summary, *file, *reason;
    int available;
};
LS_STATUS ls_loader_list(struct ls_loader *loader, struct ls_plugin_entry **out, size_t *count);
// Logs that no plugin of `kinds` (bit i: kind i) is called `name`, with what the name means
// elsewhere or what would bring it, or the nearest name there is, and with all that there are.
// Returns LS_UNAVAILABLE.
LS_STATUS ls_loader_report_unknown(const struct ls_loader *loader, const char *scope,
                                   uint32_t kinds, const char *name);
// LS_USAGE, logged, for a device with a number behind it ("cuda:0"), which other frameworks take.
LS_STATUS ls_loader_check_device_text(const char *text);
void ls_plugin_entries_destroy(struct ls_plugin_entry *entries, size_t count);

// The device for a user who names none: "cuda" where that is available, else "cpu".
// A plugin of a version before the release ("0.1.0-untried") is no default.
const char *ls_loader_default_device(struct ls_loader *loader);

// A folder of the installed tree (wherever that was moved), by its path from the program and from the library; else
// the folder of that name at the top of the build tree around the program: up to four levels above it, where meson's
// mark is. Other folders of that name are none of ours. `path` has room for PATH_MAX.
bool ls_find_installed(const char *from_program, const char *from_library, const char *in_build,
                       char *path);

// The plugins that this process has opened, in that order, as "device-cpu"; NULL: no more. The first dozen are known. Only
// reads memory, so a signal handler may call it.
const char *ls_loader_opened_name(size_t index);

const char *ls_kind_text(uint32_t kind); // "device", ...; NULL for another number

// What --strategy=NAME[:option=value,...] means (DESIGN 3.5): a strategy of that name; else a collective under
// `mirrored` (one process); else a transport, with the collective chosen by a fixed table
// (`auto:table=fixed`). Each option goes to the one that
// declares it; where two do, "collective.groups" says which; where none does: LS_USAGE.
struct ls_resolved_strategy {
    const struct ls_opened_plugin *strategy;
    const struct ls_opened_plugin *collective; // NULL when the strategy needs none
    const struct ls_opened_plugin *transport; // NULL when neither strategy nor collective needs one
    struct ls_option_value
        *options; // with their values, given or default: "collective.groups" -> "2"
    size_t option_count;
};
LS_STATUS ls_loader_resolve_strategy(struct ls_loader *loader, const char *text,
                                     struct ls_resolved_strategy *out);
void ls_resolved_strategy_finish(struct ls_resolved_strategy *resolved);

#endif
