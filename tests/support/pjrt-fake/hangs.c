// SPDX-License-Identifier: Apache-2.0
// A plugin of XLA with two devices that never finish: it compiles anything, takes copies, and
// begins what it is asked to run; that is all. With FAKE_ABORTS it ends the process there, as XLA
// does where a check of its own fails. With FAKE_COMPILE_S its devices finish at once, and all that
// they compute is zero, but for a step's sums: two examples on the first device, one on the second.
// To compile a program of many operations takes it so many seconds.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"
#include "plugins/device/pjrt/vendor/pjrt_c_api.h"
#pragma GCC diagnostic pop

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MANY_BYTES 6000 // of a program's text: more than one operation has
#define SUMS_BYTES 16 // of a step's loss, examples, and those that were right

__attribute__((visibility("default"))) const PJRT_Api *GetPjrtApi(void);

static char things[8]; // what handles stand for: nobody looks inside
#define HANDLE(type, number) ((type *)(void *)&things[number])
static _Thread_local PJRT_Device *last_device; // that has run something for this thread

static PJRT_Error *initialize(PJRT_Plugin_Initialize_Args *args)
{
    (void)args;
    return NULL;
}

static PJRT_Error *create_client(PJRT_Client_Create_Args *args)
{
    args->client = HANDLE(PJRT_Client, 0);
    return NULL;
}

static PJRT_Error *list_devices(PJRT_Client_AddressableDevices_Args *args)
{
    static PJRT_Device *devices[2];
    devices[0] = HANDLE(PJRT_Device, 1);
    devices[1] = HANDLE(PJRT_Device, 2);
    args->addressable_devices = devices;
    args->num_addressable_devices = 2;
    return NULL;
}

static PJRT_Error *name_platform(PJRT_Client_PlatformName_Args *args)
{
    args->platform_name = "stuck";
    args->platform_name_size = strlen(args->platform_name);
    return NULL;
}

static PJRT_Error *compile(PJRT_Client_Compile_Args *args)
{
    if (args->program->code_size > MANY_BYTES)
        sleep(FAKE_COMPILE_S);
    args->executable = HANDLE(PJRT_LoadedExecutable, 3);
    return NULL;
}

static PJRT_Error *upload(PJRT_Client_BufferFromHostBuffer_Args *args)
{
    args->buffer = HANDLE(PJRT_Buffer, 4);
    args->done_with_host_buffer = NULL;
    return NULL;
}

static PJRT_Error *destroy_buffer(PJRT_Buffer_Destroy_Args *args)
{
    (void)args;
    return NULL;
}

static PJRT_Error *execute(PJRT_LoadedExecutable_Execute_Args *args)
{
    if (FAKE_ABORTS) {
        fputs("F0000 fake.cc:1] Check failed: 1 == 2\n", stderr);
        abort();
    }
    for (size_t i = 0; i < args->num_devices; i++)
        args->device_complete_events[i] = HANDLE(PJRT_Event, 5);
    last_device = args->execute_device;
    return NULL;
}

static PJRT_Error *download(PJRT_Buffer_ToHostBuffer_Args *args)
{
    const float examples = last_device == HANDLE(PJRT_Device, 1) ? 2 : 1;
    float *values = args->dst;
    memset(args->dst, 0, args->dst_size);
    for (size_t i = 0; args->dst_size == SUMS_BYTES && i < SUMS_BYTES / sizeof(*values); i++)
        values[i] = examples;
    args->event = HANDLE(PJRT_Event, 6);
    return NULL;
}

static PJRT_Error *on_ready(PJRT_Event_OnReady_Args *args)
{
    if (FAKE_COMPILE_S) // else never
        args->callback(NULL, args->user_arg);
    return NULL;
}

static PJRT_Error *destroy_event(PJRT_Event_Destroy_Args *args)
{
    (void)args;
    return NULL;
}

const PJRT_Api *GetPjrtApi(void)
{
    static const PJRT_Api api = {
        .struct_size = PJRT_Api_STRUCT_SIZE,
        .pjrt_api_version = {.struct_size = PJRT_Api_Version_STRUCT_SIZE,
                             .major_version = PJRT_API_MAJOR,
                             .minor_version = PJRT_API_MINOR},
        .PJRT_Plugin_Initialize = initialize,
        .PJRT_Client_Create = create_client,
        .PJRT_Client_AddressableDevices = list_devices,
        .PJRT_Client_PlatformName = name_platform,
        .PJRT_Client_Compile = compile,
        .PJRT_Client_BufferFromHostBuffer = upload,
        .PJRT_Buffer_Destroy = destroy_buffer,
        .PJRT_LoadedExecutable_Execute = execute,
        .PJRT_Buffer_ToHostBuffer = download,
        .PJRT_Event_OnReady = on_ready,
        .PJRT_Event_Destroy = destroy_event,
    };
    return &api;
}
