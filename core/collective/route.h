// SPDX-License-Identifier: Apache-2.0
// One transport made of two: messages between endpoints of one host go over the near one
// (shared-memory, or local where each host has one process), messages between hosts over the far
// one (ucx). To collectives it is a transport like any other.
//
// Which transport a job needs, say its hosts: ls_route_choose(). Where that is LS_ROUTE_BOTH:
//
//   struct ls_route *route;
//   status = ls_route_make(near->plugin, near->host, far->plugin, far->host, &route); // of struct ls_opened_plugin
//   ... = ls_route_plugin(route), ls_route_host(route);   // in the place of a loaded plugin's, for any number of opens
//   ls_route_destroy(route);                              // when all endpoints are closed
//
// All processes of a job must make it of the same two plugins. The options of each stay its own:
// `ucx` must be opened with network=private or network=insecure, because it connects hosts.
#ifndef LS_COLLECTIVE_ROUTE_H
#define LS_COLLECTIVE_ROUTE_H

#include "core/base/status.h"
#include "core/plugin/transport.h"

enum ls_route_choice {
    LS_ROUTE_PROCESS, // all ranks are in this process: local
    LS_ROUTE_HOST, // all are on one host: shared-memory
    LS_ROUTE_NETWORK, // no two are on one host: ucx
    LS_ROUTE_BOTH, // shared-memory and ucx, mixed
};

// For the ranks of a job, `hosts[i]` being the host of rank i (ls_cluster_hosts), `count` of them
// in this process. The same in all processes of the job, because LS_ROUTE_PROCESS is only right
// where there is one. [any thread]
enum ls_route_choice ls_route_choose(const uint32_t *hosts, uint32_t world, uint32_t count);

struct ls_route;

// Of two loaded transports, each with the host that it is opened with; borrows them until it is
// destroyed. [main thread]
LS_STATUS ls_route_make(const struct ls_plugin *near, const struct ls_host *near_host,
                        const struct ls_plugin *far, const struct ls_host *far_host,
                        struct ls_route **out);
void ls_route_destroy(struct ls_route *route); // takes NULL

// Named "NEAR+FAR"; its interface is the table.
const struct ls_plugin *ls_route_plugin(const struct ls_route *route);
// What the table's `open` must be given.
const struct ls_host *ls_route_host(const struct ls_route *route);

#endif
