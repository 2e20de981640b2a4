// SPDX-License-Identifier: Apache-2.0
// TCP sockets of the store: where it listens, and how workers reach it.
#ifndef LS_WIRE_SOCKETS_H
#define LS_WIRE_SOCKETS_H

#include "core/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Where a process listens.
struct ls_listening {
    const char *name; // of the process, in messages: "worker 0"
    const char *address;
    uint16_t port;
    bool everywhere; // on all interfaces, because other machines connect to it
    int inherited; // a socket that listens already, which is taken then; -1: none
};

// A socket that listens there, non-blocking: the inherited one, else a new one at the address, or
// on all interfaces where that is not an address of this machine (the name of a service). Waits
// some seconds for an earlier job that still holds the port. Errors are logged.
LS_STATUS ls_socket_listen(const struct ls_listening *where, int *out);

// A socket that listens at any port of the address that `like` has on this machine.
LS_STATUS ls_socket_listen_beside(int like, int *out);
// A socket that listens at a numeric address. Waits for nothing and logs nothing. LS_AGAIN: the
// port is taken; LS_FAILED: the address is no numeric one of this machine.
LS_STATUS ls_socket_listen_at(const char *address, uint16_t port, int *out);

// Whether only this machine can connect to what `fd` listens on, or `fd` is connected to this
// machine.
bool ls_socket_listens_here(int fd);
bool ls_socket_leads_here(int fd);

// A wait asks several times a second whether it shall go on.
struct ls_stop {
    bool (*asked)(void *context); // NULL: never
    void *context;
};
// Waits for what `event` (of poll) asks for. LS_AGAIN: not by `end_ns`; LS_ABORTED: `stop`.
LS_STATUS ls_socket_wait(int fd, short event, uint64_t end_ns, const struct ls_stop *stop);

// Tries each address of the host once, for `patience_ns` at most each. LS_AGAIN: not now; `why`
// says the reason ("Connection refused"), and so does errno. LS_ABORTED: `stop`. The socket is
// non-blocking and closes on exec.
LS_STATUS ls_socket_connect(const char *address, uint16_t port, uint64_t patience_ns,
                            const struct ls_stop *stop, int *out, char *why, size_t bytes);
// The next connection: LS_OK; LS_AGAIN: none now; LS_FAILED: this process has no descriptor or
// memory for it now.
LS_STATUS ls_socket_accept(int listener, int *out);
// Accepts all connections that wait, up to a bound, and drops them.
void ls_socket_drain(int listener);
// The connection will end without a trace on this machine, and at once for the peer.
void ls_socket_reset(int fd);
void ls_socket_peer(int fd, char *out, size_t bytes); // "10.0.0.3:4242"
void ls_socket_own(int fd, char *out, size_t bytes); // "10.0.0.2:29400", on this machine
void ls_socket_peer_host(int fd, char *out, size_t bytes); // "10.0.0.3"; "": on this machine
void ls_socket_own_host(int fd, char *out, size_t bytes); // "10.0.0.2", or "0.0.0.0"
uint16_t ls_socket_port(int fd); // that `fd` is bound to; 0: none

// Whether connections to the host would certainly leave this machine: its addresses are known, and
// none of them is a loopback address.
bool ls_socket_leads_away(const char *address, uint16_t port);

// Whether anybody listens there: begins to connect to a numeric address. -1 and errno: it is clear
// at once.
int ls_socket_probe_begin(const char *address, uint16_t port);
// EINPROGRESS: not known yet; 0: somebody does; ECONNREFUSED: nobody does, says that machine.
int ls_socket_probe_result(int fd);

#endif
