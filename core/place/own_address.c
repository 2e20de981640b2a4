// SPDX-License-Identifier: Apache-2.0
// Asks the interfaces and the name of this host. Many systems let their own name stand for
// 127.0.1.1, and some let it stand for an address that they no longer have; so the name alone is
// not believed.
#include "core/place/own_address.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static bool is_usable(const struct ifaddrs *entry)
{
    if (!entry->ifa_addr || !(entry->ifa_flags & IFF_UP) || entry->ifa_flags & IFF_LOOPBACK)
        return false;
    if (entry->ifa_addr->sa_family == AF_INET)
        return true;
    // A link-local address means nothing without its zone.
    return entry->ifa_addr->sa_family == AF_INET6 &&
           !IN6_IS_ADDR_LINKLOCAL(
               &((const struct sockaddr_in6 *)(const void *)entry->ifa_addr)->sin6_addr);
}

static bool are_equal(const struct sockaddr *a, const struct sockaddr *b)
{
    if (a->sa_family != b->sa_family)
        return false;
    if (a->sa_family == AF_INET)
        return memcmp(&((const struct sockaddr_in *)(const void *)a)->sin_addr,
                      &((const struct sockaddr_in *)(const void *)b)->sin_addr,
                      sizeof(struct in_addr)) == 0;
    return memcmp(&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr,
                  &((const struct sockaddr_in6 *)(const void *)b)->sin6_addr,
                  sizeof(struct in6_addr)) == 0;
}

static bool write_address(const struct sockaddr *address, char out[LS_HOST_BYTES])
{
    const socklen_t size =
        address->sa_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
    return getnameinfo(address, size, out, LS_HOST_BYTES, NULL, 0, NI_NUMERICHOST) == 0;
}

// The interface that has the address of this host's name.
static const struct sockaddr *find_named(const struct ifaddrs *entries)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *results = NULL;
    const struct sockaddr *found = NULL;
    char name[LS_HOST_BYTES];
    if (gethostname(name, sizeof(name)) || getaddrinfo(name, NULL, &hints, &results))
        return NULL;
    for (const struct addrinfo *result = results; result && !found; result = result->ai_next)
        for (const struct ifaddrs *entry = entries; entry && !found; entry = entry->ifa_next)
            if (is_usable(entry) && are_equal(entry->ifa_addr, result->ai_addr))
                found = entry->ifa_addr;
    freeaddrinfo(results);
    return found;
}

static const struct sockaddr *find_first(const struct ifaddrs *entries, int family)
{
    for (; entries; entries = entries->ifa_next)
        if (is_usable(entries) && entries->ifa_addr->sa_family == family)
            return entries->ifa_addr;
    return NULL;
}

bool ls_own_address(char out[LS_HOST_BYTES])
{
    struct ifaddrs *entries = NULL;
    if (getifaddrs(&entries))
        return false;
    const struct sockaddr *address = find_named(entries);
    if (!address)
        address = find_first(entries, AF_INET);
    if (!address)
        address = find_first(entries, AF_INET6);
    const bool found = address && write_address(address, out);
    freeifaddrs(entries);
    return found;
}
