// SPDX-License-Identifier: Apache-2.0
// One client of a PJRT plugin (XLA's C interface): programs, buffers and their execution. A process
// has one client, which all devices share: it is opened by the first, never closed, and its library
// is never unloaded, because plugins start threads that nobody stops.
#ifndef LS_DEVICE_PJRT_CLIENT_H
#define LS_DEVICE_PJRT_CLIENT_H

#include "core/plugin/plugin.h"

struct PJRT_Buffer;
struct PJRT_LoadedExecutable;

struct pjrt_client;

#define PJRT_MOST_TOGETHER 256 // devices that run a program together

struct pjrt_client_info {
    uint32_t devices; // that this process can use
    char text[128]; // "cpu by /usr/lib/libtpu.so (PJRT 0.115)"
};

// The process's client; the first call opens it with the options of `host`. LS_UNAVAILABLE, with
// host->fail: the plugin's file is missing, or its version cannot be used. [any thread]
int32_t pjrt_client_open(const struct ls_host *host, struct pjrt_client **out);

const struct pjrt_client_info *pjrt_client_describe(const struct pjrt_client *client);

// Who asks, and how long it waits at most.
struct pjrt_caller {
    const struct ls_host *host;
    struct pjrt_client *client;
    uint32_t device; // below info.devices
    uint64_t deadline_ns; // of one wait; 0: no limit
};

// Compiles StableHLO text. With `device_count` devices (below info.devices, all different) a
// replica of it runs on each of these, together; with 0 it runs alone, on any device. `about` names
// it in messages. The client keeps each program, so the same text is compiled once. [any thread]
int32_t pjrt_compile(const struct pjrt_caller *caller, const char *about, const char *text,
                     size_t length, const uint32_t *devices, uint32_t device_count,
                     struct PJRT_LoadedExecutable **out);

// A flat buffer of `count` elements of `type` (enum ls_dtype) with a copy of `data`.
int32_t pjrt_upload(const struct pjrt_caller *caller, const void *data, uint32_t type,
                    uint64_t count, struct PJRT_Buffer **out);
// Copies all of a buffer to host memory, and waits for it.
int32_t pjrt_download(const struct pjrt_caller *caller, struct PJRT_Buffer *buffer, void *data,
                      uint64_t bytes);
void pjrt_release(struct pjrt_client *client, struct PJRT_Buffer *buffer); // takes NULL

// Runs a program and waits until it is done. Its results are the caller's.
int32_t pjrt_execute(const struct pjrt_caller *caller, const char *about,
                     struct PJRT_LoadedExecutable *program, struct PJRT_Buffer *const *arguments,
                     size_t argument_count, struct PJRT_Buffer **results);

// The same of a program that was compiled for these devices: on all of them, with a list of
// arguments and one of results for each. Arguments that the program gives away (program.h) are
// invalid afterwards, and still the caller's to release. [any thread]
int32_t pjrt_execute_together(const struct pjrt_caller *caller, const char *about,
                              struct PJRT_LoadedExecutable *program, const uint32_t *devices,
                              uint32_t device_count,
                              struct PJRT_Buffer *const *const *argument_lists,
                              size_t argument_count, struct PJRT_Buffer **const *result_lists);

#endif
