// SPDX-License-Identifier: Apache-2.0
#include "core/topology/machine.h"

#include <dirent.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAME_BYTES 64
#define LIST_BYTES 4096 // of cores, "0-31,64-95"
#define NODES "/sys/devices/system/node"

// The first line of a file, without its end; false: there is none.
static bool read_line(const char *path, char *line, int bytes)
{
    FILE *file = fopen(path, "r");
    const bool found = file && fgets(line, bytes, file);
    if (file)
        fclose(file);
    if (found)
        line[strcspn(line, "\n")] = '\0';
    return found;
}

// ---- Lists of cores, "0-3,8,10-11" ----

// Reads the next part of a list; false: there is no more.
static bool next_cores(const char **list, uint64_t *first, uint64_t *last)
{
    char *end;
    *list += strspn(*list, ", \t");
    if (**list < '0' || **list > '9')
        return false;
    *first = *last = strtoull(*list, &end, 10);
    if (*end == '-')
        *last = strtoull(end + 1, &end, 10);
    *list = end;
    return *last >= *first;
}

static uint64_t count_cores(const char *list)
{
    uint64_t count = 0, first, last;
    while (next_cores(&list, &first, &last))
        count += last - first + 1;
    return count;
}

// The core at a place of the list.
static uint64_t core_at(const char *list, uint64_t place)
{
    uint64_t first, last;
    while (next_cores(&list, &first, &last)) {
        if (place <= last - first)
            return first + place;
        place -= last - first + 1;
    }
    return UINT64_MAX;
}

static bool has_core(const char *list, uint64_t core)
{
    uint64_t first, last;
    while (next_cores(&list, &first, &last))
        if (core >= first && core <= last)
            return true;
    return false;
}

// The cores that this process may use.
static bool read_allowed(const char *root, char list[static LIST_BYTES])
{
    static const char key[] = "Cpus_allowed_list:";
    char path[PATH_MAX];
    bool found = false;
    snprintf(path, sizeof(path), "%s/proc/self/status", root);
    FILE *file = fopen(path, "r");
    while (file && !found && fgets(list, LIST_BYTES, file))
        found = strncmp(list, key, sizeof(key) - 1) == 0;
    if (file)
        fclose(file);
    if (found)
        memmove(list, list + sizeof(key) - 1, strlen(list + sizeof(key) - 1) + 1);
    return found;
}

// ---- Nodes ----

static int16_t node_of(const char *root, uint64_t core)
{
    char path[PATH_MAX], list[LIST_BYTES];
    int16_t node = LS_NODE_UNKNOWN;
    snprintf(path, sizeof(path), "%s" NODES, root);
    DIR *folder = opendir(path);
    for (struct dirent *entry; folder && node < 0 && (entry = readdir(folder));) {
        int number, length = 0;
        if (sscanf(entry->d_name, "node%d%n", &number, &length) != 1 || entry->d_name[length] ||
            number < 0 || number > INT16_MAX)
            continue;
        snprintf(path, sizeof(path), "%s" NODES "/node%d/cpulist", root, number);
        if (read_line(path, list, sizeof(list)) && has_core(list, core))
            node = (int16_t)number;
    }
    if (folder)
        closedir(folder);
    return node;
}

// ---- Cards ----

static int compare(const void *one, const void *other)
{
    return strcmp(one, other);
}

// A network interface that carries messages: a device behind it, and up.
static bool is_in_use(const char *root, const char *name)
{
    char path[PATH_MAX], state[16];
    snprintf(path, sizeof(path), "%s/sys/class/net/%s/device", root, name);
    if (access(path, F_OK))
        return false;
    snprintf(path, sizeof(path), "%s/sys/class/net/%s/operstate", root, name);
    return read_line(path, state, sizeof(state)) && strcmp(state, "up") == 0;
}

static void find_cards(const char *root, const char *kind, struct ls_machine_place *out)
{
    char names[LS_MACHINE_CARDS][NAME_BYTES], path[PATH_MAX], node[16];
    snprintf(path, sizeof(path), "%s/sys/class/%s", root, kind);
    DIR *folder = opendir(path);
    for (struct dirent *entry;
         folder && out->card_count < LS_MACHINE_CARDS && (entry = readdir(folder));)
        if (entry->d_name[0] != '.' && strlen(entry->d_name) < NAME_BYTES &&
            (strcmp(kind, "net") != 0 || is_in_use(root, entry->d_name)))
            strcpy(names[out->card_count++], entry->d_name);
    if (folder)
        closedir(folder);
    qsort(names, out->card_count, NAME_BYTES, compare);
    for (uint16_t i = 0; i < out->card_count; i++) {
        snprintf(path, sizeof(path), "%s/sys/class/%s/%s/device/numa_node", root, kind, names[i]);
        const long number = read_line(path, node, sizeof(node)) ? strtol(node, NULL, 10) : -1;
        out->card_nodes[i] = number >= 0 && number <= INT16_MAX ? (int16_t)number : LS_NODE_UNKNOWN;
    }
}

void ls_machine_look(const char *root, uint32_t place, uint32_t ranks, struct ls_machine_place *out)
{
    char allowed[LIST_BYTES];
    memset(out, 0, sizeof(*out));
    out->node = LS_NODE_UNKNOWN;
    if (read_allowed(root, allowed))
        out->node = node_of(root, core_at(allowed, count_cores(allowed) * place / ranks));
    find_cards(root, "infiniband", out);
    if (!out->card_count)
        find_cards(root, "net", out);
}
