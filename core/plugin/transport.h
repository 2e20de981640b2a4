// SPDX-License-Identifier: Apache-2.0
// What a transport plugin implements. A transport moves ranges of memory between endpoints, and
// reduces what arrives.
//
// The life of an endpoint:
//   open        [main thread] all endpoints of this process at once; the only call that may
//               exchange data with other processes out of band
//   post, test, wait_any, arm   [owner of the endpoint] one thread at a time, in any order. None
//               waits except wait_any
//   peer_state  [any thread]
//   abort       [any thread] ends what is under way, at all endpoints of this process
//   close       [any thread] once for each endpoint; may wait, for the deadline at most. Other
//               endpoints of the same open may still be in use. The host then frees the
//               endpoint's memory; what endpoints of one open share lives until all are closed
//
// Messages: each ordered pair of endpoints numbers its messages 0, 1, 2, ... Both sides name the
// number when they post; they may post in any order, and use every number once. Only a window of
// numbers is under way at a time; a message beyond it waits until older ones of its pair are
// received.
//
// A transfer is complete on an endpoint when its result is there *and no peer will touch its memory
// any more*. After a call has returned LS_ABORTED, no peer touches any memory of this endpoint. If
// a peer does not leave the memory within the deadline, the call returns LS_PEER_LOST (with
// host->fail) instead.
#ifndef LS_PLUGIN_TRANSPORT_H
#define LS_PLUGIN_TRANSPORT_H

#include "core/plugin/device.h"
#include "core/plugin/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ls_transport; // one endpoint; each plugin's own: `state_bytes` of zeroed memory

enum ls_transfer_kind {
    LS_TRANSFER_SEND = 1, // memory -> destination
    LS_TRANSFER_RECEIVE = 2, // source -> memory
    LS_TRANSFER_RECEIVE_REDUCE = 3, // memory = memory (+) what comes from source
    // The same, and then memory -> destination: in one pass if the destination has posted the
    // memory for the result, else as a send that follows.
    LS_TRANSFER_RECEIVE_REDUCE_SEND = 4,
    LS_TRANSFER_REDUCE = 5, // memory = memory (+) from, without a peer
    LS_TRANSFER_COPY = 6, // memory = from, without a peer
    LS_TRANSFER_DIVIDE = 7, // memory = memory / divisor, rounded once (integers: towards zero)
};

// How far a transfer is.
enum ls_transfer_state {
    LS_TRANSFER_PENDING = 0, // nothing is done yet
    // RECEIVE_REDUCE_SEND: `memory` holds the result, and the source may go on; it is not sent yet.
    LS_TRANSFER_REDUCED = 1,
    LS_TRANSFER_COMPLETE = 2, // done
    LS_TRANSFER_MISMATCH = 3, // the peer's signature or size differs; `test` returned LS_FAILED
};

#define LS_TRANSFER_AT_ONCE UINT64_MAX // for `after`: memory may be written at any time

// A posted operation. The caller owns the struct, and does not touch it until the transfer is
// complete.
struct ls_transfer {
    uint32_t struct_size;
    uint32_t kind; // enum ls_transfer_kind
    uint32_t source; // endpoint that is received from
    uint32_t destination; // endpoint that is sent to
    uint64_t receive_number; // of the message source -> this endpoint
    uint64_t send_number; // of the message this endpoint -> destination

    // RECEIVE only: LS_TRANSFER_AT_ONCE, or the number of a message this endpoint -> source that is
    // sent from the same memory and that the source may not have read yet. The memory is written
    // only after the source has read that message; the source may read the one and write the other
    // in one pass, element by element.
    uint64_t after;

    uint64_t signature; // must be equal on both sides of a message
    void *memory; // what is sent, received into or reduced into
    const void *from; // of REDUCE and COPY; does not overlap `memory`
    uint64_t count; // elements
    uint32_t dtype; // enum ls_dtype
    uint32_t reduction; // SUM, PRODUCT, MIN or MAX
    uint64_t divisor; // of DIVIDE
    uint32_t state; // enum ls_transfer_state; written by the transport
    uint32_t reserved;
    uint64_t own[4]; // the transport's own, while it is pending
};

enum ls_transport_scope {
    LS_SCOPE_PROCESS = 1, // threads of one process
    LS_SCOPE_HOST = 2, // processes of one machine
    LS_SCOPE_NETWORK = 3, // machines
};

// Where the ranges of an endpoint are, if not in host memory. All work of a transfer is put on
// `stream`, or waits there for what a peer has put on its own. A transfer is complete when all of
// its work is on the streams: the owner can put more work on `stream` at once, as if the transfer
// were over. The host itself never waits for the device.
struct ls_transport_place {
    uint32_t struct_size;
    uint32_t reserved;
    const struct ls_device_interface *ops; // in the size of the host's headers
    struct ls_device *device; // whose memory it is
    void *stream; // of `device`
};

// Memory of this process that other processes may map: a file that is sealed against shrinking
// (F_SEAL_SHRINK), and that this process has mapped as a whole.
struct ls_transport_segment {
    uint32_t struct_size;
    int32_t fd; // stays open until all endpoints are closed
    void *base; // where this process has mapped it
    uint64_t bytes; // of the file
};

// What `open` gets.
struct ls_transport_config {
    uint32_t struct_size;
    uint32_t world; // endpoints of the whole job
    uint32_t count; // of this process
    uint32_t reserved;
    const uint32_t *own; // numbers of the `count` endpoints of this process, ascending
    const uint32_t *hosts; // number of the host of each of the `world` endpoints
    // Communicator and generation, "gradients.0": the same in all processes, and different in all
    // opens of this job.
    const char *name;
    // The places of the `count` endpoints; NULL: all have host memory. Devices and streams stay
    // open until all endpoints are closed.
    const struct ls_transport_place *places;
    // The longest that open, close and a call that ends with LS_ABORTED may wait for a peer; not 0.
    uint64_t deadline_ns;
    // For `exchange`.
    void *context;
    // Exchanges bytes with the other processes, out of band: each process gives `bytes` bytes for
    // each of its endpoints (in the order of `own`), and gets those of all endpoints, in the order
    // of their numbers. Only in `open`. Blocks; LS_PEER_LOST after the deadline. When it fails, the
    // host has logged why.
    int32_t (*exchange)(void *context, const void *own, uint64_t bytes, void *all);
    // Memory that peers on this host may read and write themselves; ranges elsewhere must be copied
    // for them. NULL: all ranges are elsewhere.
    const struct ls_transport_segment *segment;
};

// The table of a transport plugin.
struct ls_transport_interface {
    uint32_t struct_size;
    uint32_t scope; // enum ls_transport_scope: the widest it serves
    uint32_t memory_kinds; // bit i: enum ls_memory_kind i
    uint32_t reserved;
    uint64_t state_bytes; // of struct ls_transport

    // Opens all endpoints of this process; endpoints[i], which is zeroed, becomes endpoint
    // config->own[i]. LS_UNSUPPORTED: the transport cannot connect endpoints that are spread over
    // processes and hosts like that. After a failed call no endpoint is closed.
    int32_t (*open)(const struct ls_host *host, const struct ls_transport_config *config,
                    struct ls_transport *const *endpoints);
    // Closes an endpoint. At its peers, transfers with it end with LS_PEER_LOST or LS_ABORTED; if
    // it is LS_PEER_LOST, the peers can go on with each other.
    void (*close)(struct ls_transport *transport);

    // Begins a transfer, which may be complete at once (`state`). [owner of the endpoint]
    int32_t (*post)(struct ls_transport *transport, struct ls_transfer *transfer);

    // Moves the transfer on as far as possible without waiting. LS_OK: it is complete; LS_AGAIN: it
    // is not (see `state`); LS_ABORTED, LS_PEER_LOST, LS_FAILED. [owner of the endpoint]
    int32_t (*test)(struct ls_transport *transport, struct ls_transfer *transfer);

    // Waits until `test` can move at least one of the transfers. LS_OK; LS_AGAIN after
    // `timeout_ns`; LS_ABORTED. Spins briefly, then sleeps; with a timeout of 0 it checks once.
    // [owner of the endpoint]
    int32_t (*wait_any)(struct ls_transport *transport, struct ls_transfer *const *transfers,
                        uint64_t count, uint64_t timeout_ns);

    // Aborts all endpoints of this process: all their transfers, also those that are posted later,
    // end with LS_ABORTED. Transfers of other processes with these endpoints end with LS_ABORTED or
    // LS_PEER_LOST. [any thread]
    void (*abort)(struct ls_transport *transport);

    // The state of a peer: LS_OK; LS_ABORTED; LS_PEER_LOST if the endpoint was closed or its
    // process has died. [any thread]
    int32_t (*peer_state)(struct ls_transport *transport, uint32_t peer);

    // Optional, for owners that wait for other things, too. LS_OK: until the next call for this
    // endpoint, the file descriptor becomes readable as soon as `test` may move one of the
    // transfers, or the endpoint is aborted; it may become readable for nothing. LS_AGAIN: `test`
    // may move one at once. LS_ABORTED and LS_PEER_LOST as in wait_any. The descriptor belongs to
    // the transport; the owner only polls it. Some events do not make it readable, so the owner
    // calls wait_any or arm again after `glance_ns` at the latest. NULL: the owner calls wait_any
    // again and again. [owner of the endpoint]
    int32_t (*arm)(struct ls_transport *transport, struct ls_transfer *const *transfers,
                   uint64_t count, int32_t *fd, uint64_t *glance_ns);
};

#ifdef __cplusplus
}
#endif

#endif
