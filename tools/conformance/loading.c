// SPDX-License-Identifier: Apache-2.0
// Loads a plugin through the loader, opens an instance or two of it, and looks at what that left behind.
#include "tools/conformance/loading.h"

#include "tools/conformance/instance.h"
#include "tools/conformance/process.h"
#include "tools/conformance/elf_symbols.h"
#include "tools/conformance/tally.h"
#include "core/loader/loader.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct suite {
    struct ls_tally tally;
    const char *file;
    struct ls_loader *loader;
};

// ---- The file ----

// Names that linkers and instrumented builds add to any shared object.
static bool is_linkers_own(const char *name)
{
    static const char *const names[] = {"_init",   "_fini",       "_edata",     "_end",
                                        "__end__", "__bss_start", "_bss_end__", "__bss_end__"};
    static const char *const prefixes[] = {"__asan",     "__ubsan", "__tsan", "__sanitizer",
                                           "__odr_asan", "__gcov",  "__llvm"};
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    for (size_t i = 0; i < sizeof(prefixes) / sizeof(*prefixes); i++)
        if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0)
            return true;
    return false;
}

static void look_at_undefined(struct ls_tally *tally, const struct ls_elf_symbols *symbols)
{
    for (size_t i = 0; i < symbols->count; i++) {
        const struct ls_elf_symbol *symbol = &symbols->list[i];
        if (!symbol->defined &&
            (strncmp(symbol->name, "ls_", 3) == 0 || strncmp(symbol->name, "lockstep", 8) == 0))
            ls_tally_blame(tally,
                           "wants %s from the host; a plugin links nothing of ours: what it "
                           "may call is in tables, or static inline in core/plugin",
                           symbol->name);
    }
}

static void look_at_exported(struct ls_tally *tally, const struct ls_elf_symbols *symbols)
{
    bool entry = false;
    for (size_t i = 0; i < symbols->count; i++) {
        const struct ls_elf_symbol *symbol = &symbols->list[i];
        if (!symbol->defined)
            continue;
        if (strcmp(symbol->name, LS_PLUGIN_ENTRY) == 0)
            entry = true;
        else if (!symbol->weak && !is_linkers_own(symbol->name))
            ls_tally_blame(tally,
                           "exports %s; only " LS_PLUGIN_ENTRY " may be seen from outside: make it "
                           "static, or compile with -fvisibility=hidden",
                           symbol->name);
    }
    if (!entry)
        ls_tally_blame(tally, "does not export " LS_PLUGIN_ENTRY);
}

static void symbol_case(struct suite *suite, const char *name,
                        void (*look)(struct ls_tally *tally, const struct ls_elf_symbols *symbols))
{
    struct ls_elf_symbols symbols = {0};
    if (!ls_tally_begin(&suite->tally, "%s", name))
        return;
    if (ls_elf_symbols_read(suite->file, &symbols))
        ls_tally_blame(&suite->tally, "has no table of dynamic symbols that can be read");
    else
        look(&suite->tally, &symbols);
    ls_elf_symbols_finish(&symbols);
    ls_tally_end(&suite->tally);
}

// ---- The descriptor ----

static const struct ls_opened_plugin *open_plugin(struct suite *suite)
{
    const struct ls_opened_plugin *opened = NULL;
    if (ls_loader_open_file(suite->loader, suite->file, 0, NULL, 0, &opened))
        ls_tally_blame(&suite->tally, "does not open");
    return opened;
}

static void need_line(struct ls_tally *tally, const char *what, const char *text)
{
    if (!text || !*text)
        ls_tally_blame(tally, "%s is empty", what);
    for (const char *letter = text; letter && *letter; letter++)
        if (iscntrl((unsigned char)*letter))
            ls_tally_blame(tally, "%s is more than one line of text", what);
}

static void descriptor_case(struct suite *suite)
{
    struct ls_tally *tally = &suite->tally;
    const struct ls_plugin_option *option;
    char what[128];
    if (!ls_tally_begin(tally, "descriptor"))
        return;
    const struct ls_opened_plugin *opened = open_plugin(suite);
    if (opened) {
        need_line(tally, "version", opened->plugin->version);
        need_line(tally, "licence", opened->plugin->licence);
        need_line(tally, "summary", opened->plugin->summary);
        for (option = opened->plugin->options; option && option->name; option++) {
            snprintf(what, sizeof(what), "the help of option %s", option->name);
            need_line(tally, what, option->help);
        }
    }
    ls_tally_end(tally);
}

// ---- Instances ----

static void instance_case(struct suite *suite)
{
    struct ls_instance_trial first = {0}, second = {0}, third = {0};
    struct ls_tally *tally = &suite->tally;
    if (!ls_tally_begin(tally, "instances"))
        return;
    const struct ls_opened_plugin *a = open_plugin(suite), *b = open_plugin(suite);
    if (a && b && ls_instance_open(&first, suite->loader, a, tally) &&
        ls_instance_open(&second, suite->loader, b, tally)) {
        ls_instance_use(&first, tally);
        ls_instance_use(&second, tally);
        ls_instance_close(&first); // the second goes on without it
        ls_instance_use(&second, tally);
        if (ls_instance_open(&third, suite->loader, a, tally))
            ls_instance_use(&third, tally);
    }
    ls_instance_close(&first);
    ls_instance_close(&second);
    ls_instance_close(&third);
    ls_tally_end(tally);
}

static void memory_case(struct suite *suite)
{
    struct ls_tally *tally = &suite->tally;
    if (!ls_tally_begin(tally, "no_memory"))
        return;
    const struct ls_opened_plugin *opened = open_plugin(suite);
    if (opened)
        ls_instance_starve(suite->loader, opened, tally);
    ls_tally_end(tally);
}

static void process_case(struct suite *suite, const char *name, uint32_t aspect)
{
    struct ls_process_state before;
    struct ls_instance_trial instance = {0};
    struct ls_tally *tally = &suite->tally;
    char text[256];
    if (!ls_tally_begin(tally, "%s", name))
        return;
    if (ls_process_state_init(&before)) {
        ls_tally_blame(tally, "no memory to remember the process");
    } else {
        const struct ls_opened_plugin *opened = open_plugin(suite);
        if (opened && ls_instance_open(&instance, suite->loader, opened, tally))
            ls_instance_use(&instance, tally);
        ls_instance_close(&instance);
        if (!ls_process_state_holds(&before, aspect, text, sizeof(text)))
            ls_tally_blame(tally, "it %s", text);
    }
    ls_process_state_finish(&before);
    ls_tally_end(tally);
}

// ---- What it prints ----

// Standard output and error are files while it is loaded and used.
static void print_case(struct suite *suite)
{
    static const char *const names[] = {"output", "error"};
    struct ls_instance_trial instance = {0};
    struct ls_tally *tally = &suite->tally;
    FILE *files[2] = {NULL, NULL};
    int saved[2] = {-1, -1};
    if (!ls_tally_begin(tally, "output"))
        return;
    fflush(NULL);
    for (int i = 0; i < 2; i++) {
        files[i] = tmpfile();
        saved[i] = dup(STDOUT_FILENO + i);
        if (!files[i] || saved[i] < 0 || dup2(fileno(files[i]), STDOUT_FILENO + i) < 0)
            ls_tally_blame(tally, "standard output could not be watched");
    }
    const struct ls_opened_plugin *opened = open_plugin(suite);
    if (opened && ls_instance_open(&instance, suite->loader, opened, tally))
        ls_instance_use(&instance, tally);
    ls_instance_close(&instance);
    fflush(NULL);
    for (int i = 0; i < 2; i++) {
        char text[160] = "";
        if (saved[i] >= 0)
            dup2(saved[i], STDOUT_FILENO + i);
        close(saved[i]);
        if (files[i] && pread(fileno(files[i]), text, sizeof(text) - 1, 0) > 0)
            ls_tally_blame(tally, "printed on standard %s: %.*s", names[i],
                           (int)strcspn(text, "\n"), text);
        if (files[i])
            fclose(files[i]);
    }
    ls_tally_end(tally);
}

static void run_all(struct suite *suite)
{
    static const struct {
        const char *name;
        uint32_t aspect;
    } aspects[] = {
        {"signal_handlers", LS_PROCESS_SIGNALS},
        {"environment", LS_PROCESS_ENVIRONMENT},
        {"floating_point_mode", LS_PROCESS_FLOATING_POINT},
        {"working_directory", LS_PROCESS_DIRECTORY},
        {"umask", LS_PROCESS_UMASK},
        {"limits", LS_PROCESS_LIMITS},
        {"threads", LS_PROCESS_THREADS},
        {"open_files", LS_PROCESS_FILES},
    };
    symbol_case(suite, "exported_symbols", look_at_exported);
    symbol_case(suite, "undefined_symbols", look_at_undefined);
    descriptor_case(suite);
    instance_case(suite);
    memory_case(suite);
    print_case(suite);
    for (size_t i = 0; i < sizeof(aspects) / sizeof(*aspects); i++)
        process_case(suite, aspects[i].name, aspects[i].aspect);
}

enum ls_status ls_conformance_loading(const struct ls_loading_conformance_options *options,
                                      ls_conformance_report report, void *context,
                                      struct ls_conformance_counts *counts)
{
    struct suite suite = {.file = options->file};
    enum ls_status status = ls_loader_create(NULL, &suite.loader);
    if (status)
        return status;
    ls_tally_init(&suite.tally, options->only, options->wanted, report, context);
    run_all(&suite);
    if (counts)
        *counts = suite.tally.counts;
    status = suite.tally.counts.failed ? LS_FAILED : LS_OK;
    ls_tally_finish(&suite.tally);
    ls_loader_destroy(suite.loader);
    return status;
}
