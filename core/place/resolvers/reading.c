// SPDX-License-Identifier: Apache-2.0
// What resolvers read with: variables, numbers, addresses of workers and servers, and the sentences
// about wrong ones.
#include "core/place/resolvers/resolver.h"

#include "core/base/log.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define MOST_SHOWN 100 // letters of a value

// ---- The environment ----

extern char **environ;

struct ls_environment ls_environment_of_process(void)
{
    return (struct ls_environment){NULL};
}

const char *ls_environment_get(const struct ls_environment *environment, const char *name)
{
    const size_t length = strlen(name);
    const char *const *variable =
        environment->variables ? environment->variables : (const char *const *)environ;
    for (; variable && *variable; variable++)
        if (strncmp(*variable, name, length) == 0 && (*variable)[length] == '=')
            return *variable + length + 1;
    return NULL;
}

// ---- Texts ----

bool ls_digits_parse(const char *text, size_t length, uint32_t least, uint32_t most, uint32_t *out)
{
    uint64_t value = 0;
    if (length == 0)
        return false;
    for (size_t i = 0; i < length; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        value = value * 10 + (uint64_t)(text[i] - '0');
        if (value > most)
            return false;
    }
    if (value < least)
        return false;
    *out = (uint32_t)value;
    return true;
}

static bool is_host(const char *text, size_t length, const char *more)
{
    for (size_t i = 0; i < length; i++)
        if (!isalnum((unsigned char)text[i]) && !(text[i] && strchr(more, text[i])))
            return false;
    return length > 0 && length < LS_HOST_BYTES;
}

bool ls_host_parse(const char *text, size_t length, char host[LS_HOST_BYTES])
{
    const bool brackets = length > 2 && text[0] == '[' && text[length - 1] == ']';
    if (brackets) {
        text++;
        length -= 2;
    }
    // The letters of an IPv6 address with a zone: fe80::1%eth0
    const bool numeric = brackets || memchr(text, ':', length);
    if (!is_host(text, length, numeric ? ":.%-_" : ".-_"))
        return false;
    memcpy(host, text, length);
    host[length] = '\0';
    return true;
}

bool ls_host_port_parse(const char *text, char host[LS_HOST_BYTES], uint16_t *port)
{
    const char *colon = strrchr(text, ':');
    uint32_t number;
    if (!colon || !ls_digits_parse(colon + 1, strlen(colon + 1), 1, UINT16_MAX, &number))
        return false;
    // Without brackets it cannot be told where an IPv6 address ends.
    if (text[0] != '[' && memchr(text, ':', (size_t)(colon - text)))
        return false;
    if (!ls_host_parse(text, (size_t)(colon - text), host))
        return false;
    *port = (uint16_t)number;
    return true;
}

bool ls_host_is_loopback(const char *host)
{
    struct in_addr address;
    if (inet_pton(AF_INET, host, &address) == 1)
        return ntohl(address.s_addr) >> 24 == 127;
    return strcasecmp(host, "localhost") == 0 || strcmp(host, "::1") == 0;
}

// ---- Variables ----

static void append(char *text, size_t bytes, const char *format, ...) LS_PRINTF(3, 4);
static void append(char *text, size_t bytes, const char *format, ...)
{
    const size_t used = strlen(text);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text + used, bytes - used, format, arguments);
    va_end(arguments);
}

bool ls_resolving_has(const struct ls_resolving *resolving, const char *name)
{
    return ls_environment_get(resolving->environment, name);
}

// Whether `taken` has "NAME=" already.
static bool is_noted(const char *taken, const char *name)
{
    const size_t length = strlen(name);
    for (const char *at = strstr(taken, name); at; at = strstr(at + 1, name))
        if ((at == taken || at[-1] == ' ') && at[length] == '=')
            return true;
    return false;
}

const char *ls_resolving_read(struct ls_resolving *resolving, const char *name)
{
    const char *value = ls_environment_get(resolving->environment, name);
    char *taken = resolving->place->taken;
    if (value && !is_noted(taken, name))
        append(taken, sizeof(resolving->place->taken), "%s%s=%.*s%s", *taken ? " " : "", name,
               MOST_SHOWN, value, strlen(value) > MOST_SHOWN ? "..." : "");
    return value;
}

void ls_resolving_note(struct ls_resolving *resolving, const char *format, ...)
{
    char *taken = resolving->place->taken, text[64];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    append(taken, sizeof(resolving->place->taken), "%s%s", *taken ? " " : "", text);
}

void ls_resolving_fail(struct ls_resolving *resolving, const char *format, ...)
{
    va_list arguments;
    if (resolving->problem[0])
        return;
    va_start(arguments, format);
    vsnprintf(resolving->problem, sizeof(resolving->problem), format, arguments);
    va_end(arguments);
}

// "A, B and C".
static void list(char *text, size_t bytes, const char *name, size_t index, size_t count)
{
    append(text, bytes, "%s%s", index == 0 ? "" : index + 1 < count ? ", " : " and ", name);
}

bool ls_resolving_lacks(struct ls_resolving *resolving, const char *const *names)
{
    size_t count = 0, set_count = 0, index[2] = {0};
    char set[160] = "", missing[160] = "";
    for (; names[count]; count++)
        set_count += ls_resolving_has(resolving, names[count]);
    if (set_count == count)
        return false;
    for (size_t i = 0; i < count; i++) {
        if (ls_resolving_read(resolving, names[i]))
            list(set, sizeof(set), names[i], index[0]++, set_count);
        else
            list(missing, sizeof(missing), names[i], index[1]++, count - set_count);
    }
    ls_resolving_fail(resolving, "%s %s set, but %s %s not", set, set_count == 1 ? "is" : "are",
                      missing, count - set_count == 1 ? "is" : "are");
    return true;
}

uint32_t ls_resolving_number(struct ls_resolving *resolving, const char *name, uint32_t least,
                             uint32_t most)
{
    const char *value = ls_resolving_read(resolving, name);
    uint32_t number = least;
    if (!value || !*value)
        ls_resolving_fail(resolving, "%s is %s", name, value ? "empty" : "not set");
    else if (!ls_digits_parse(value, strlen(value), least, most, &number))
        ls_resolving_fail(resolving, "%s=%.40s is not a whole number from %u to %u", name, value,
                          least, most);
    return number;
}

uint32_t ls_resolving_number_or(struct ls_resolving *resolving, const char *name, uint32_t least,
                                uint32_t most, uint32_t otherwise)
{
    return ls_resolving_has(resolving, name) ? ls_resolving_number(resolving, name, least, most)
                                             : otherwise;
}

void ls_resolving_rank(struct ls_resolving *resolving, const char *rank, const char *world)
{
    struct ls_worker_place *place = resolving->place;
    place->number = ls_resolving_number(resolving, rank, 0, LS_MOST_WORKERS - 1);
    place->workers = ls_resolving_number(resolving, world, 1, LS_MOST_WORKERS);
    if (place->number >= place->workers)
        ls_resolving_fail(resolving, "%s=%u is not below %s=%u", rank, place->number, world,
                          place->workers);
}

void ls_resolving_local_rank(struct ls_resolving *resolving, const char *rank, const char *world)
{
    struct ls_worker_place *place = resolving->place;
    if (!ls_resolving_has(resolving, rank) || !ls_resolving_has(resolving, world))
        return;
    place->local_worker = ls_resolving_number(resolving, rank, 0, LS_MOST_WORKERS - 1);
    place->local_workers = ls_resolving_number(resolving, world, 1, LS_MOST_WORKERS);
    if (place->local_worker >= place->local_workers)
        ls_resolving_fail(resolving, "%s=%u is not below %s=%u", rank, place->local_worker, world,
                          place->local_workers);
    const bool serves = place->role == LS_ROLE_SERVER;
    if (place->local_workers > (serves ? place->servers : place->workers))
        ls_resolving_fail(resolving, "%s=%u is more than the %u %s that there are", world,
                          place->local_workers, serves ? place->servers : place->workers,
                          serves ? "servers" : "workers");
}

bool ls_resolving_given_address(struct ls_resolving *resolving)
{
    struct ls_worker_place *place = resolving->place;
    const char *value = ls_resolving_read(resolving, "LOCKSTEP_ADDRESS");
    if (!value)
        return false;
    if (!ls_host_port_parse(value, place->address, &place->port))
        ls_resolving_fail(resolving,
                          "LOCKSTEP_ADDRESS=%.100s is not host:port, where worker 0 is reached",
                          value);
    return true;
}

void ls_resolving_host(struct ls_resolving *resolving, const char *name, const char *host,
                       uint32_t port)
{
    if (!*host)
        ls_resolving_fail(resolving, "%s is empty", name);
    else if (!ls_host_parse(host, strlen(host), resolving->place->address))
        ls_resolving_fail(resolving, "%s=%.100s is not the name or the address of a host", name,
                          host);
    resolving->place->port = (uint16_t)port;
}

enum ls_resolver_answer ls_resolving_end(const struct ls_resolving *resolving)
{
    return resolving->problem[0] ? LS_RESOLVER_WRONG : LS_RESOLVER_TAKEN;
}

// ---- Servers ----

enum ls_status ls_worker_place_server(const struct ls_worker_place *place, uint32_t number,
                                      char address[LS_HOST_BYTES], uint16_t *port)
{
    uint32_t count = 0;
    bool found = false;
    for (const char *at = place->server_addresses; *at; count++) {
        char one[LS_HOST_BYTES + 8];
        const size_t length = strcspn(at, ",");
        snprintf(one, sizeof(one), "%.*s", length < sizeof(one) ? (int)length : 0, at);
        if (count == number)
            found = ls_host_port_parse(one, address, port);
        at += length + (at[length] == ',');
    }
    if (found && count == place->servers)
        return LS_OK;
    if (count)
        ls_error("cluster",
                 "%s gives the addresses of %u servers, '%.200s': expected host:port of all %u",
                 place->resolver, count, place->server_addresses, place->servers);
    else
        ls_error("cluster",
                 "%s does not say where the %u servers are: set LOCKSTEP_SERVER_ADDRESSES="
                 "host:port,... for all workers and servers, or start them with lockstep launch",
                 place->resolver, place->servers);
    return LS_USAGE;
}
