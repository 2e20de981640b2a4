// SPDX-License-Identifier: Apache-2.0
// lockstep plugin new: writes a folder with a small plugin that works, to be changed from there.
#include "tools/command.h"

#include "core/api/listing.h"
#include "core/base/log.h"
#include "core/base/options.h"
#include "core/loader/loader.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SCOPE "plugin new"
#define LONGEST_NAME 48
#define MOST_BYTES 100000 // of a template

#define KINDS \
    "collective, device, transport, strategy, callback, layer, loss, metric, dataset or filter"

static const struct argument table[] = {
    {"kind", "KIND", NULL, KINDS},
    {"dir", "DIR", NULL, "folder to create; it must not exist yet [./NAME]"},
    {NULL, NULL, NULL, NULL},
};

static const char help[] =
    "The folder gets NAME.c, a plugin that works, a meson.build with a test, and a README.md on "
    "how to build, check\n"
    "and use the plugin. It needs only the installed headers: pkg-config must find "
    "lockstep-plugin.\n\n"
    "Example:\n"
    "  lockstep plugin new my-reduce --kind=collective\n"
    "  cd my-reduce && meson setup build && meson compile -C build\n"
    "  lockstep plugin check build/collective-my-reduce.so\n";

// What the templates say where the new plugin's own words belong.
#define TEMPLATE_NAME "my-plugin"
#define TEMPLATE_KIND "my-kind"

// ---- Names ----

static enum ls_status check_name(const char *name)
{
    bool good = isalpha((unsigned char)name[0]) && strlen(name) <= LONGEST_NAME;
    for (const char *letter = name; *letter; letter++)
        good = good && (isalnum((unsigned char)*letter) || *letter == '-' || *letter == '_');
    if (good)
        return LS_OK;
    ls_error(
        SCOPE,
        "'%s' cannot be the name of a plugin: expected at most %d letters, digits, '-' and '_', "
        "the first a letter",
        name, LONGEST_NAME);
    return LS_USAGE;
}

static enum ls_status check_kind(const char *kind)
{
    static const char *const kinds[] = {"collective", "device", "transport", "strategy",
                                        "callback",   "layer",  "loss",      "metric",
                                        "dataset",    "filter", NULL};
    for (size_t i = 0; kind && kinds[i]; i++)
        if (strcmp(kind, kinds[i]) == 0)
            return LS_OK;
    const char *nearest = kind ? ls_nearest(kind, kinds) : NULL;
    if (!kind)
        ls_error(SCOPE, "--kind is missing: " KINDS);
    else if (nearest)
        ls_error(SCOPE, "unknown kind '%s'; did you mean '%s'?", kind, nearest);
    else
        ls_error(SCOPE, "unknown kind '%s'; available: " KINDS, kind);
    return LS_USAGE;
}

// Where the names of a kind are given: strategies, collectives and transports share --strategy.
static uint32_t name_space(uint32_t kind)
{
    return kind == LS_KIND_DEVICE || kind >= LS_KIND_CALLBACK ? kind : LS_KIND_STRATEGY;
}

static uint32_t kind_of(const char *text)
{
    uint32_t kind = LS_KIND_DEVICE;
    while (strcmp(ls_kind_text(kind), text) != 0)
        kind++;
    return kind;
}

// A plugin of a name that is taken would hide another one, or be hidden by it.
static enum ls_status check_free(const char *name, const char *kind)
{
    struct ls_loader *loader = NULL;
    enum ls_status status = ls_loader_create(NULL, &loader);
    if (!status && ls_is_built_in(kind_of(kind), name)) {
        ls_error(SCOPE,
                 "Lockstep has a %s %s itself, which would be used; choose another name, "
                 "such as my-%s",
                 kind, name, name);
        status = LS_USAGE;
    }
    for (uint32_t i = LS_KIND_DEVICE; !status && ls_kind_text(i); i++) {
        if (name_space(i) != name_space(kind_of(kind)) || !ls_loader_has(loader, i, name))
            continue;
        ls_error(SCOPE, "there is a %s called %s already; choose another name, such as my-%s",
                 ls_kind_text(i), name, name);
        status = LS_USAGE;
    }
    ls_loader_destroy(loader);
    return status;
}

// ---- Files ----

// The whole template, with a NUL; the caller frees it.
static enum ls_status read_template(const char *folder, const char *name, char **out)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof(path), "%s/%s", folder, name) >= (int)sizeof(path)) {
        ls_error(SCOPE, "the path of the templates is too long: %s", folder);
        return LS_FAILED;
    }
    FILE *file = fopen(path, "r");
    char *text = malloc(MOST_BYTES + 1);
    const size_t got = file && text ? fread(text, 1, MOST_BYTES, file) : 0;
    if (file)
        fclose(file);
    if (!got) {
        free(text);
        ls_error(SCOPE, "the template %s cannot be read: %s; install Lockstep again", path,
                 strerror(errno));
        return LS_UNAVAILABLE;
    }
    text[got] = '\0';
    *out = text;
    return LS_OK;
}

// Writes `text` with the words of the templates replaced.
static void write_replaced(FILE *file, const char *text, const char *name, const char *kind)
{
    while (*text) {
        if (strncmp(text, TEMPLATE_NAME, strlen(TEMPLATE_NAME)) == 0) {
            fputs(name, file);
            text += strlen(TEMPLATE_NAME);
        } else if (strncmp(text, TEMPLATE_KIND, strlen(TEMPLATE_KIND)) == 0) {
            fputs(kind, file);
            text += strlen(TEMPLATE_KIND);
        } else {
            fputc(*text++, file);
        }
    }
}

// `from` is a template, `to` the name of the new file; nothing that exists is written over.
static enum ls_status write_file(const char *templates, const char *from, const char *folder,
                                 const char *to, const char *name, const char *kind)
{
    char path[PATH_MAX];
    char *text = NULL;
    if (snprintf(path, sizeof(path), "%s/%s", folder, to) >= (int)sizeof(path)) {
        ls_error(SCOPE, "the path is too long: %s/%s", folder, to);
        return LS_USAGE;
    }
    enum ls_status status = read_template(templates, from, &text);
    if (status)
        return status;
    FILE *file = fopen(path, "wx");
    if (file)
        write_replaced(file, text, name, kind);
    const bool failed = !file || ferror(file);
    if ((file && fclose(file)) || failed) {
        ls_error(SCOPE, "cannot write %s: %s", path, strerror(errno));
        status = LS_FAILED;
    }
    free(text);
    return status;
}

static enum ls_status write_all(const char *templates, const char *folder, const char *name,
                                const char *kind)
{
    char source[64], plugin[128], readme[64];
    snprintf(source, sizeof(source), "%s.c", kind);
    snprintf(plugin, sizeof(plugin), "%s.c", name);
    snprintf(readme, sizeof(readme), "%s.md", kind);
    enum ls_status status = write_file(templates, source, folder, plugin, name, kind);
    if (!status)
        status = write_file(templates, "project.meson", folder, "meson.build", name, kind);
    if (!status)
        status = write_file(templates, readme, folder, "README.md", name, kind);
    return status;
}

static enum ls_status make_folder(const char *folder)
{
    if (!mkdir(folder, 0777))
        return LS_OK;
    if (errno == EEXIST)
        ls_error(SCOPE, "%s already exists; nothing was written: choose another name, or --dir",
                 folder);
    else
        ls_error(SCOPE, "cannot create the folder %s: %s", folder, strerror(errno));
    return LS_USAGE;
}

// Whether pkg-config finds the files in `folder` as it is.
static bool is_found(const char *folder)
{
    char found[PATH_MAX] = "";
    FILE *said = popen("pkg-config --variable=pcfiledir lockstep-plugin 2>/dev/null", "r");
    if (said && fgets(found, sizeof(found), said))
        found[strcspn(found, "\n")] = '\0';
    if (said)
        pclose(said);
    return strcmp(found, folder) == 0;
}

static void print_next(const char *folder, const char *kind, const char *name)
{
    char pkg_config[PATH_MAX];
    printf("%s/ has a %s that works. Next:\n", folder, kind);
    if (ls_find_installed(LS_PKGCONFIG_FROM_PROGRAM, LS_PKGCONFIG_FROM_PROGRAM,
                          "packaging/in-place", pkg_config) &&
        !is_found(pkg_config))
        printf("  export PKG_CONFIG_PATH=%s\n", pkg_config);
    printf("  cd %s && meson setup build && meson compile -C build\n"
           "  lockstep plugin check build/%s-%s.so\n",
           folder, kind, name);
}

static enum ls_status run(const struct arguments *arguments)
{
    char templates[PATH_MAX];
    const char *name = arguments->operand_count ? arguments->operands[0] : NULL;
    const char *kind = arguments_text(arguments, "kind");
    if (!name) {
        ls_error(SCOPE, "the name is missing: lockstep plugin new NAME --kind=collective");
        return LS_USAGE;
    }
    if (arguments->operand_count > 1) {
        ls_error(SCOPE,
                 "unexpected argument '%s': lockstep plugin new NAME --kind=KIND, such as %s "
                 "--kind=collective",
                 arguments->operands[1], arguments->operands[1]);
        return LS_USAGE;
    }
    enum ls_status status = check_name(name);
    if (!status)
        status = check_kind(kind);
    if (!status)
        status = check_free(name, kind);
    if (status)
        return status;
    if (!ls_find_installed(LS_TEMPLATES_FROM_PROGRAM, LS_TEMPLATES_FROM_PROGRAM, "templates",
                           templates)) {
        ls_error(SCOPE, "the templates were not found beside this program; install it again");
        return LS_UNAVAILABLE;
    }
    const char *folder =
        arguments_given(arguments, "dir") ? arguments_text(arguments, "dir") : name;
    status = make_folder(folder);
    if (!status)
        status = write_all(templates, folder, name, kind);
    if (status)
        return status;
    print_next(folder, kind, name);
    return LS_OK;
}

const struct command plugin_new_command = {
    .name = "plugin new",
    .operands = "NAME",
    .summary = "writes a folder with a small plugin that works, to be changed from there",
    .help = help,
    .most_operands = 2, // of which the second is refused
    .arguments = table,
    .run = run,
};
