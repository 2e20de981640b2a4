// SPDX-License-Identifier: Apache-2.0
// A parameter server's end of its channels: it accepts connections, lets in peers that prove that
// they know the secret of the job, and hands out one message after the other. It never waits for
// one peer alone. A peer that does not read is not listened to, so nothing grows without bounds.
// Strangers are dropped and counted. [one thread]
#ifndef LS_WIRE_SERVICE_H
#define LS_WIRE_SERVICE_H

#include "core/wire/channel.h"

#define LS_SERVICE_FIRST_MESSAGE ((uint64_t)65536) // bytes, until a peer is allowed more

struct ls_service;

struct ls_service_options {
    int listener; // taken, also where it fails; non-blocking
    uint8_t key[LS_SECURE_KEY];
    bool sealed;
    uint32_t most_peers; // that have proved themselves
};

enum ls_service_event_kind { LS_SERVICE_OPENED = 1, LS_SERVICE_MESSAGE, LS_SERVICE_CLOSED };

struct ls_service_event {
    enum ls_service_event_kind kind;
    uint32_t peer; // a number that is free again after LS_SERVICE_CLOSED
    uint32_t message; // its kind
    const uint8_t *data; // borrowed until the next call; aligned to 64 bytes
    uint64_t bytes;
};

LS_STATUS ls_service_open(const struct ls_service_options *options, struct ls_service **out);
// Sends for a second at most what is still queued. Takes NULL.
void ls_service_close(struct ls_service *service);

// The next thing that happened, within `timeout_ns`; LS_AGAIN: nothing did.
LS_STATUS ls_service_next(struct ls_service *service, uint64_t timeout_ns,
                          struct ls_service_event *out);
// Queues a message. A peer that is gone, or for which there is no memory, is closed by an event.
void ls_service_send(struct ls_service *service, uint32_t peer, uint32_t kind,
                     const struct ls_channel_piece *pieces, uint32_t count);
// From now on messages of this peer may have so many bytes.
void ls_service_allow(struct ls_service *service, uint32_t peer, uint64_t bytes);
// Ends a connection, when what is queued for it is sent, and without an event. The number is free.
void ls_service_drop(struct ls_service *service, uint32_t peer);

uint64_t ls_service_strangers(const struct ls_service *service); // dropped, for tests

#endif
