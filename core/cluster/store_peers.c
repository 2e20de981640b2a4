// SPDX-License-Identifier: Apache-2.0
// Connections of the store: what is sent to one of its peers, or to all, and their end.
#include "core/cluster/store_internal.h"

#include <stdlib.h>
#include <sys/epoll.h>

size_t ls_store_part(uint32_t workers)
{
    const size_t most = LS_FRAME_PLAIN - 64, whole = (size_t)256 << 10;
    const size_t part = whole / workers;
    return part > most ? most : part < 64 ? 64 : part;
}

void ls_store_watch(struct ls_store *store, int operation, int fd, uint32_t events, void *what)
{
    struct epoll_event event = {.events = events, .data = {.ptr = what}};
    (void)epoll_ctl(store->epoll, operation, fd, &event);
}

enum ls_status ls_peer_add(struct ls_store *store, struct ls_connection *connection, bool own)
{
    struct ls_peer *peer = calloc(1, sizeof(*peer));
    if (!peer) {
        ls_connection_finish(connection);
        return LS_OUT_OF_MEMORY;
    }
    peer->connection = *connection;
    sodium_memzero(connection, sizeof(*connection));
    peer->stage = LS_PEER_OPEN;
    peer->own = own;
    peer->since_ns = store->clock.now_ns;
    peer->member = LS_NO_MEMBER;
    peer->next = store->peers;
    store->peers = peer;
    ls_store_watch(store, EPOLL_CTL_ADD, peer->connection.fd, EPOLLIN, peer);
    return LS_OK;
}

void ls_peer_flush(struct ls_store *store, struct ls_peer *peer)
{
    const enum ls_status status = ls_connection_flush(&peer->connection);
    const bool waits = status == LS_AGAIN; // a lost connection shows itself by an event
    if (waits != peer->watched_for_writing)
        ls_store_watch(store, EPOLL_CTL_MOD, peer->connection.fd,
                       waits ? EPOLLIN | EPOLLOUT : EPOLLIN, peer);
    peer->watched_for_writing = waits;
}

void ls_peer_send(struct ls_store *store, struct ls_peer *peer)
{
    // A peer whose queue is full does not read: its silence, or its closed connection, ends it.
    if (ls_connection_send(&peer->connection, store->frame.data, store->frame.bytes) == LS_OK)
        ls_peer_flush(store, peer);
}

void ls_peer_dismiss(struct ls_store *store, struct ls_peer *peer)
{
    ls_peer_send(store, peer);
    if (peer->stage == LS_PEER_MEMBER)
        store->member[peer->member].peer = NULL;
    peer->stage = LS_PEER_LEAVING;
    peer->since_ns = store->clock.now_ns;
}

void ls_peer_end(struct ls_store *store, struct ls_peer *peer)
{
    if (peer->stage == LS_PEER_GONE)
        return;
    if (peer->joiner)
        free(peer->joiner->agreement);
    free(peer->joiner);
    peer->joiner = NULL;
    // The kernel takes a closed descriptor out of epoll, but not where a child of this process has
    // it, too.
    ls_store_watch(store, EPOLL_CTL_DEL, peer->connection.fd, 0, NULL);
    ls_connection_finish(&peer->connection);
    peer->stage = LS_PEER_GONE;
}

void ls_store_free_gone(struct ls_store *store)
{
    for (struct ls_peer **at = &store->peers; *at;) {
        struct ls_peer *peer = *at;
        if (peer->stage != LS_PEER_GONE) {
            at = &peer->next;
            continue;
        }
        *at = peer->next;
        free(peer);
    }
}

void ls_store_tell_all(struct ls_store *store)
{
    for (uint32_t i = 0; i < store->members; i++)
        if (store->member[i].peer)
            ls_peer_send(store, store->member[i].peer);
}

void ls_store_tell_waiting(struct ls_store *store)
{
    for (struct ls_peer *peer = store->peers; peer; peer = peer->next)
        if (peer->stage == LS_PEER_WAITING)
            ls_peer_send(store, peer);
}

void ls_store_name_member(const struct ls_store *store, uint32_t number, char *out, size_t bytes)
{
    ls_member_name(number, store->workers, store->apart, store->member[number].host, out, bytes);
}
