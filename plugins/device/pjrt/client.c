// SPDX-License-Identifier: Apache-2.0
// The client: every call of the PJRT interface is here.
#include "plugins/device/pjrt/client.h"
#include "plugins/device/pjrt/find.h"
#include "plugins/device/pjrt/meeting.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic" // a semicolon behind each of its macros
#include "plugins/device/pjrt/vendor/pjrt_c_api.h"
#pragma GCC diagnostic pop

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <time.h>

// The oldest interface that has all that is used here (PJRT_ExecuteOptions and Execute with
// `execute_device`); every later one of the same major version appends to its structures.
#define LEAST_MINOR 54
#define FILE_SHOWN 80 // bytes of its path

struct program {
    struct program *next;
    struct PJRT_LoadedExecutable *executable;
    size_t length;
    uint32_t device_count; // that run it together; 0: any device alone
    uint32_t *devices; // behind the text
    char text[];
};

struct pjrt_client {
    const PJRT_Api *api;
    PJRT_Client *client;
    PJRT_Device *const *devices;
    struct pjrt_client_info info;
    char file[1024], device_count[32]; // the options that it was opened with
    pthread_mutex_t lock; // of programs
    struct program *programs;
};

static struct pjrt_client *shared; // set once
static pthread_mutex_t shared_lock = PTHREAD_MUTEX_INITIALIZER;

#define ARGUMENTS(type, ...) \
    type##_Args args = {.struct_size = type##_Args_STRUCT_SIZE, __VA_ARGS__}

// ---- Errors ----

static int32_t status_of(PJRT_Error_Code code)
{
    switch (code) {
    case PJRT_Error_Code_RESOURCE_EXHAUSTED: return LS_OUT_OF_MEMORY;
    case PJRT_Error_Code_UNIMPLEMENTED: return LS_UNSUPPORTED;
    case PJRT_Error_Code_UNAVAILABLE: return LS_UNAVAILABLE;
    default: return LS_FAILED;
    }
}

// Takes the error; NULL: LS_OK. The message is made one line.
static int32_t judge(const struct ls_host *host, const PJRT_Api *api, PJRT_Error *error,
                     const char *what)
{
    char text[300];
    if (!error)
        return LS_OK;
    PJRT_Error_Message_Args message = {.struct_size = PJRT_Error_Message_Args_STRUCT_SIZE,
                                       .error = error};
    api->PJRT_Error_Message(&message);
    PJRT_Error_GetCode_Args code = {.struct_size = PJRT_Error_GetCode_Args_STRUCT_SIZE,
                                    .error = error};
    PJRT_Error *none = api->PJRT_Error_GetCode(&code);
    const int32_t status = none ? LS_FAILED : status_of(code.code);
    snprintf(text, sizeof(text), "%.*s", (int)message.message_size, message.message);
    for (char *at = text; *at; at++)
        if (*at == '\n' || *at == '\r')
            *at = ' ';
    PJRT_Error_Destroy_Args destroy = {.struct_size = PJRT_Error_Destroy_Args_STRUCT_SIZE,
                                       .error = error};
    api->PJRT_Error_Destroy(&destroy);
    return ls_host_fail(host, status, "%s: %s", what, text);
}

// ---- Waiting ----

// Shared with the callback, which may come after the wait has been given up.
struct waiting {
    pthread_mutex_t lock;
    pthread_cond_t done;
    const PJRT_Api *api;
    PJRT_Event *event;
    PJRT_Error *error;
    int owners; // the waiter and the callback
    bool ready;
    struct waiting *next; // in `waitings`
};

// Those that an event may still come back to, which a device that hangs never does. So they can be
// reached, and are no leak.
static struct waiting *waitings;
static pthread_mutex_t waitings_lock = PTHREAD_MUTEX_INITIALIZER;

static void let_go(struct waiting *waiting)
{
    const bool last = --waiting->owners == 0;
    pthread_mutex_unlock(&waiting->lock);
    if (!last)
        return;
    PJRT_Event_Destroy_Args args = {.struct_size = PJRT_Event_Destroy_Args_STRUCT_SIZE,
                                    .event = waiting->event};
    waiting->api->PJRT_Event_Destroy(&args);
    pthread_mutex_lock(&waitings_lock);
    struct waiting **link = &waitings;
    while (*link != waiting)
        link = &(*link)->next;
    *link = waiting->next;
    pthread_mutex_unlock(&waitings_lock);
    pthread_cond_destroy(&waiting->done);
    pthread_mutex_destroy(&waiting->lock);
    free(waiting);
}

static void event_is_ready(PJRT_Error *error, void *context)
{
    struct waiting *waiting = context;
    pthread_mutex_lock(&waiting->lock);
    waiting->ready = true;
    waiting->error = error;
    pthread_cond_signal(&waiting->done);
    let_go(waiting);
}

static struct waiting *begin_waiting(const PJRT_Api *api, PJRT_Event *event)
{
    struct waiting *waiting = calloc(1, sizeof(*waiting));
    pthread_condattr_t clock;
    if (!waiting)
        return NULL;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_mutex_init(&waiting->lock, NULL);
    pthread_cond_init(&waiting->done, &clock);
    pthread_condattr_destroy(&clock);
    waiting->api = api;
    waiting->event = event;
    waiting->owners = 2;
    pthread_mutex_lock(&waitings_lock);
    waiting->next = waitings;
    waitings = waiting;
    pthread_mutex_unlock(&waitings_lock);
    return waiting;
}

// Waits for the event, which is taken.
static int32_t await(const struct pjrt_caller *caller, PJRT_Event *event, const char *what)
{
    const PJRT_Api *api = caller->client->api;
    struct waiting *waiting = begin_waiting(api, event);
    if (!waiting)
        return ls_host_fail(caller->host, LS_OUT_OF_MEMORY, "no memory to wait for %s", what);
    ARGUMENTS(PJRT_Event_OnReady, .event = event, .callback = event_is_ready, .user_arg = waiting);
    int32_t status = judge(caller->host, api, api->PJRT_Event_OnReady(&args), what);
    const struct timespec end = pjrt_end_of_wait(caller->deadline_ns);
    pthread_mutex_lock(&waiting->lock);
    if (status)
        waiting->owners--; // there will be no callback
    int late = 0;
    while (!status && !waiting->ready && !late)
        late = caller->deadline_ns ? pthread_cond_timedwait(&waiting->done, &waiting->lock, &end)
                                   : pthread_cond_wait(&waiting->done, &waiting->lock);
    const bool ready = waiting->ready;
    PJRT_Error *error = waiting->error;
    let_go(waiting);
    if (status || ready)
        return status ? status : judge(caller->host, api, error, what);
    return ls_host_fail(caller->host, LS_PEER_LOST,
                        "device %u has not finished %s within %.0f s; raise --deadline if it is "
                        "only slow",
                        caller->device, what, (double)caller->deadline_ns * 1e-9);
}

// ---- Opening ----

static int32_t load(const struct ls_host *host, struct pjrt_client *client, const char *file)
{
    const PJRT_Api *(*get)(void);
    const char *count = host->option(host, "cpu_device_count");
    snprintf(client->file, sizeof(client->file), "%s", file);
    snprintf(client->device_count, sizeof(client->device_count), "%s", count ? count : "");
    void *handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        return ls_host_fail(host, LS_UNAVAILABLE, "plugin=%s: cannot be opened: %s", file,
                            dlerror());
    *(void **)&get = dlsym(handle, "GetPjrtApi");
    client->api = get ? get() : NULL;
    if (!client->api)
        return ls_host_fail(host, LS_UNAVAILABLE,
                            "plugin=%s: no PJRT plugin: it has no function GetPjrtApi", file);
    const PJRT_Api_Version *version = &client->api->pjrt_api_version;
    if (version->major_version != PJRT_API_MAJOR)
        return ls_host_fail(host, LS_UNAVAILABLE,
                            "plugin=%s: its PJRT interface is %d.%d; this program knows %d.%d to "
                            "%d.x",
                            file, version->major_version, version->minor_version, PJRT_API_MAJOR,
                            LEAST_MINOR, PJRT_API_MAJOR);
    if (version->minor_version < LEAST_MINOR)
        return ls_host_fail(host, LS_UNAVAILABLE,
                            "plugin=%s: its PJRT interface is %d.%d, which is too old: it must be "
                            "%d.%d or later",
                            file, version->major_version, version->minor_version, PJRT_API_MAJOR,
                            LEAST_MINOR);
    return LS_OK;
}

static int32_t create(const struct ls_host *host, struct pjrt_client *client)
{
    const PJRT_Api *api = client->api;
    const char *count = host->option(host, "cpu_device_count");
    const PJRT_NamedValue devices = {.struct_size = PJRT_NamedValue_STRUCT_SIZE,
                                     .name = "cpu_device_count",
                                     .name_size = strlen("cpu_device_count"),
                                     .type = PJRT_NamedValue_kInt64,
                                     .int64_value = count ? strtoll(count, NULL, 10) : 0,
                                     .value_size = 1};
    PJRT_Plugin_Initialize_Args first = {.struct_size = PJRT_Plugin_Initialize_Args_STRUCT_SIZE};
    int32_t status = judge(host, api, api->PJRT_Plugin_Initialize(&first), client->file);
    if (status)
        return status;
    ARGUMENTS(PJRT_Client_Create, .create_options = count ? &devices : NULL,
              .num_options = count ? 1 : 0);
    status = judge(host, api, api->PJRT_Client_Create(&args), client->file);
    client->client = args.client;
    return status == LS_FAILED ? LS_UNAVAILABLE : status;
}

static int32_t ask(const struct ls_host *host, struct pjrt_client *client)
{
    const PJRT_Api *api = client->api;
    ARGUMENTS(PJRT_Client_AddressableDevices, .client = client->client);
    int32_t status = judge(host, api, api->PJRT_Client_AddressableDevices(&args), client->file);
    if (status)
        return status;
    PJRT_Client_PlatformName_Args name = {.struct_size = PJRT_Client_PlatformName_Args_STRUCT_SIZE,
                                          .client = client->client};
    status = judge(host, api, api->PJRT_Client_PlatformName(&name), client->file);
    if (status)
        return status;
    client->devices = args.addressable_devices;
    client->info.devices = (uint32_t)args.num_addressable_devices;
    // Of a long path the end, which says more.
    const size_t length = strlen(client->file), shown = length < FILE_SHOWN ? length : FILE_SHOWN;
    snprintf(client->info.text, sizeof(client->info.text), "%.*s by %s%s (PJRT %d.%d)",
             (int)(name.platform_name_size < 16 ? name.platform_name_size : 16), name.platform_name,
             shown < length ? "..." : "", client->file + length - shown,
             api->pjrt_api_version.major_version, api->pjrt_api_version.minor_version);
    return client->info.devices
               ? LS_OK
               : ls_host_fail(host, LS_UNAVAILABLE, "plugin=%s: it has no device", client->file);
}

static int32_t open_first(const struct ls_host *host, const char *file)
{
    struct pjrt_client *client = calloc(1, sizeof(*client));
    if (!client)
        return ls_host_fail(host, LS_OUT_OF_MEMORY, "no memory for a client");
    int32_t status = load(host, client, file);
    if (!status)
        status = create(host, client);
    if (!status)
        status = ask(host, client);
    if (status) {
        free(client); // its library stays: what it has started cannot be stopped
        return status;
    }
    pthread_mutex_init(&client->lock, NULL);
    shared = client;
    return LS_OK;
}

int32_t pjrt_client_open(const struct ls_host *host, struct pjrt_client **out)
{
    char found[1024];
    const char *file = host->option(host, "plugin");
    int32_t status = LS_OK;
    if ((!file || !*file) && !pjrt_find_plugin(found, sizeof(found)))
        return ls_host_fail(host, LS_UNAVAILABLE, "%s", pjrt_none_found);
    if (!file || !*file)
        file = found;
    const char *count = host->option(host, "cpu_device_count");
    if (count && strtoll(count, NULL, 10) < 1) // XLA ends the process
        return ls_host_fail(host, LS_USAGE, "cpu_device_count=%s: expected at least 1", count);
    pthread_mutex_lock(&shared_lock);
    if (!shared)
        status = open_first(host, file);
    else if (strcmp(shared->file, file) != 0 || (count && strcmp(shared->device_count, count) != 0))
        status = ls_host_fail(host, LS_UNAVAILABLE,
                              "plugin=%s: this process has opened %s with cpu_device_count=%s; it "
                              "has one client, whose options stay",
                              file, shared->file,
                              shared->device_count[0] ? shared->device_count : "(unsaid)");
    *out = shared;
    pthread_mutex_unlock(&shared_lock);
    return status;
}

const struct pjrt_client_info *pjrt_client_describe(const struct pjrt_client *client)
{
    return &client->info;
}

// ---- What the compiler is told: a serialized CompileOptionsProto ----

enum { MOST_OPTIONS = 64 + 20 * PJRT_MOST_TOGETHER };

struct options {
    size_t length;
    unsigned char bytes[MOST_OPTIONS];
};

static void put_number(struct options *options, uint64_t number)
{
    for (; number > 127; number >>= 7)
        options->bytes[options->length++] = (unsigned char)(number | 128);
    options->bytes[options->length++] = (unsigned char)number;
}

static void put_field(struct options *options, uint32_t field, int64_t number)
{
    put_number(options, field << 3);
    put_number(options, (uint64_t)number);
}

// A field that consists of others.
static void put_fields(struct options *options, uint32_t field, const struct options *fields)
{
    put_number(options, field << 3 | 2);
    put_number(options, fields->length);
    memcpy(options->bytes + options->length, fields->bytes, fields->length);
    options->length += fields->length;
}

static int32_t device_id(const struct pjrt_caller *caller, PJRT_Device *device, int *out)
{
    const PJRT_Api *api = caller->client->api;
    ARGUMENTS(PJRT_Device_GetDescription, .device = device);
    int32_t status =
        judge(caller->host, api, api->PJRT_Device_GetDescription(&args), "its description");
    if (status)
        return status;
    PJRT_DeviceDescription_Id_Args id = {.struct_size = PJRT_DeviceDescription_Id_Args_STRUCT_SIZE,
                                         .device_description = args.device_description};
    status = judge(caller->host, api, api->PJRT_DeviceDescription_Id(&id), "its number");
    *out = id.id;
    return status;
}

// A DeviceAssignmentProto: replica_count (1), computation_count (2), computation_devices (3), of
// which each has replica_device_ids (1).
static int32_t write_assignment(const struct pjrt_caller *caller, const struct program *program,
                                struct options *out)
{
    struct options ids = {.length = 0}, devices = {.length = 0};
    int32_t status = LS_OK;
    for (uint32_t i = 0; !status && i < program->device_count; i++) {
        int id = 0;
        status = device_id(caller, caller->client->devices[program->devices[i]], &id);
        put_number(&ids, (uint64_t)id);
    }
    put_fields(&devices, 1, &ids);
    put_field(out, 1, program->device_count);
    put_field(out, 2, 1);
    put_fields(out, 3, &devices);
    return status;
}

// executable_build_options (3) with device_ordinal (1), num_replicas (4), num_partitions (5) and
// device_assignment (9); compile_portable_executable (4) for what any device can run.
static int32_t write_options(const struct pjrt_caller *caller, const struct program *program,
                             struct options *out)
{
    struct options build = {.length = 0}, assignment = {.length = 0};
    int32_t status = LS_OK;
    put_field(&build, 1, -1);
    put_field(&build, 4, program->device_count ? program->device_count : 1);
    put_field(&build, 5, 1);
    if (program->device_count)
        status = write_assignment(caller, program, &assignment);
    if (program->device_count)
        put_fields(&build, 9, &assignment);
    put_fields(out, 3, &build);
    if (!program->device_count)
        put_field(out, 4, 1);
    return status;
}

// ---- Programs ----

// Lists of arguments go to devices in the order that the program says.
static int32_t check_order(const struct pjrt_caller *caller, const char *what,
                           const struct program *program)
{
    const struct pjrt_client *client = caller->client;
    ARGUMENTS(PJRT_LoadedExecutable_AddressableDevices, .executable = program->executable);
    if (!program->device_count)
        return LS_OK;
    const int32_t status =
        judge(caller->host, client->api,
              client->api->PJRT_LoadedExecutable_AddressableDevices(&args), what);
    bool same = args.num_addressable_devices == program->device_count;
    for (uint32_t i = 0; !status && same && i < program->device_count; i++)
        same = args.addressable_devices[i] == client->devices[program->devices[i]];
    return status || same ? status
                          : ls_host_fail(caller->host, LS_FAILED,
                                         "%s: the plugin places its %u replicas on other devices "
                                         "than it was asked to",
                                         what, program->device_count);
}

static bool is_program(const struct program *program, const char *text, size_t length,
                       const uint32_t *devices, uint32_t device_count)
{
    return program->length == length && program->device_count == device_count &&
           memcmp(program->text, text, length) == 0 &&
           (!device_count ||
            memcmp(program->devices, devices, device_count * sizeof(*devices)) == 0);
}

static struct program *find_program(const struct pjrt_client *client, const char *text,
                                    size_t length, const uint32_t *devices, uint32_t device_count)
{
    struct program *program = client->programs;
    while (program && !is_program(program, text, length, devices, device_count))
        program = program->next;
    return program;
}

static struct program *create_program(const char *text, size_t length, const uint32_t *devices,
                                      uint32_t device_count)
{
    struct program *program = malloc(sizeof(*program) + length + 1);
    uint32_t *copy = malloc((device_count + 1) * sizeof(*copy));
    if (!program || !copy) {
        free(program);
        free(copy);
        return NULL;
    }
    *program = (struct program){.length = length, .device_count = device_count, .devices = copy};
    memcpy(program->text, text, length);
    program->text[length] = '\0';
    if (device_count)
        memcpy(copy, devices, device_count * sizeof(*copy));
    return program;
}

static int32_t compile(const struct pjrt_caller *caller, const char *what, struct program *program)
{
    struct pjrt_client *client = caller->client;
    const PJRT_Program source = {.struct_size = PJRT_Program_STRUCT_SIZE,
                                 .code = program->text,
                                 .code_size = program->length,
                                 .format = "mlir",
                                 .format_size = 4};
    struct options options = {.bytes = {0}};
    int32_t status = write_options(caller, program, &options);
    ARGUMENTS(PJRT_Client_Compile, .client = client->client, .program = &source,
              .compile_options = (const char *)options.bytes,
              .compile_options_size = options.length);
    if (!status)
        status = judge(caller->host, client->api, client->api->PJRT_Client_Compile(&args), what);
    program->executable = args.executable;
    return status ? status : check_order(caller, what, program);
}

static int32_t compile_new(const struct pjrt_caller *caller, const char *about, const char *text,
                           size_t length, const uint32_t *devices, uint32_t device_count,
                           struct program **out)
{
    char what[200];
    struct program *program = create_program(text, length, devices, device_count);
    if (!program)
        return ls_host_fail(caller->host, LS_OUT_OF_MEMORY, "no memory for a program");
    snprintf(what, sizeof(what), "%s: cannot be compiled", about);
    const int32_t status = compile(caller, what, program);
    if (status) {
        free(program->devices);
        free(program);
        return status;
    }
    *out = program;
    return LS_OK;
}

int32_t pjrt_compile(const struct pjrt_caller *caller, const char *about, const char *text,
                     size_t length, const uint32_t *devices, uint32_t device_count,
                     struct PJRT_LoadedExecutable **out)
{
    struct pjrt_client *client = caller->client;
    int32_t status = LS_OK;
    pthread_mutex_lock(&client->lock);
    struct program *program = find_program(client, text, length, devices, device_count);
    if (!program) {
        status = compile_new(caller, about, text, length, devices, device_count, &program);
        if (!status) {
            program->next = client->programs;
            client->programs = program;
        }
    }
    pthread_mutex_unlock(&client->lock);
    if (!status)
        *out = program->executable;
    return status;
}

// ---- Buffers ----

static PJRT_Buffer_Type buffer_type(uint32_t type)
{
    switch (type) {
    case LS_F32: return PJRT_Buffer_Type_F32;
    case LS_F64: return PJRT_Buffer_Type_F64;
    case LS_F16: return PJRT_Buffer_Type_F16;
    case LS_BF16: return PJRT_Buffer_Type_BF16;
    case LS_I32: return PJRT_Buffer_Type_S32;
    case LS_I64: return PJRT_Buffer_Type_S64;
    default: return PJRT_Buffer_Type_U8;
    }
}

int32_t pjrt_upload(const struct pjrt_caller *caller, const void *data, uint32_t type,
                    uint64_t count, struct PJRT_Buffer **out)
{
    struct pjrt_client *client = caller->client;
    const int64_t dims[1] = {(int64_t)count};
    ARGUMENTS(PJRT_Client_BufferFromHostBuffer, .client = client->client, .data = data,
              .type = buffer_type(type), .dims = dims, .num_dims = 1,
              .host_buffer_semantics = PJRT_HostBufferSemantics_kImmutableOnlyDuringCall,
              .device = client->devices[caller->device]);
    int32_t status = judge(caller->host, client->api,
                           client->api->PJRT_Client_BufferFromHostBuffer(&args), "a copy to it");
    if (status)
        return status;
    *out = args.buffer;
    return args.done_with_host_buffer ? await(caller, args.done_with_host_buffer, "a copy to it")
                                      : LS_OK;
}

int32_t pjrt_download(const struct pjrt_caller *caller, struct PJRT_Buffer *buffer, void *data,
                      uint64_t bytes)
{
    const PJRT_Api *api = caller->client->api;
    ARGUMENTS(PJRT_Buffer_ToHostBuffer, .src = buffer, .dst = data, .dst_size = bytes);
    const int32_t status =
        judge(caller->host, api, api->PJRT_Buffer_ToHostBuffer(&args), "a copy from it");
    return status ? status : await(caller, args.event, "a copy from it");
}

void pjrt_release(struct pjrt_client *client, struct PJRT_Buffer *buffer)
{
    if (!buffer)
        return;
    ARGUMENTS(PJRT_Buffer_Destroy, .buffer = buffer);
    PJRT_Error *error = client->api->PJRT_Buffer_Destroy(&args);
    if (error) {
        PJRT_Error_Destroy_Args destroy = {.struct_size = PJRT_Error_Destroy_Args_STRUCT_SIZE,
                                           .error = error};
        client->api->PJRT_Error_Destroy(&destroy);
    }
}

// ---- Execution ----

int32_t pjrt_execute(const struct pjrt_caller *caller, const char *about,
                     struct PJRT_LoadedExecutable *program, struct PJRT_Buffer *const *arguments,
                     size_t argument_count, struct PJRT_Buffer **results)
{
    struct pjrt_client *client = caller->client;
    PJRT_ExecuteOptions options = {.struct_size = PJRT_ExecuteOptions_STRUCT_SIZE};
    PJRT_Buffer *const *const argument_lists[1] = {arguments};
    PJRT_Buffer **const result_lists[1] = {results};
    PJRT_Event *done[1] = {NULL};
    ARGUMENTS(PJRT_LoadedExecutable_Execute, .executable = program, .options = &options,
              .argument_lists = argument_lists, .num_devices = 1, .num_args = argument_count,
              .output_lists = result_lists, .device_complete_events = done,
              .execute_device = client->devices[caller->device]);
    const int32_t status =
        judge(caller->host, client->api, client->api->PJRT_LoadedExecutable_Execute(&args), about);
    return status || !done[0] ? status : await(caller, done[0], about);
}

// Waits for all devices; only the first failure is told.
static int32_t await_all(const struct pjrt_caller *caller, const char *about,
                         const uint32_t *devices, uint32_t device_count, PJRT_Event *const *done)
{
    const PJRT_Api *api = caller->client->api;
    struct pjrt_caller each = *caller;
    int32_t status = LS_OK;
    for (uint32_t i = 0; i < device_count; i++) {
        each.device = devices[i];
        if (!status) {
            status = done[i] ? await(&each, done[i], about) : LS_OK;
            continue;
        }
        ARGUMENTS(PJRT_Event_Destroy, .event = done[i]);
        PJRT_Error *error = done[i] ? api->PJRT_Event_Destroy(&args) : NULL;
        if (error) {
            PJRT_Error_Destroy_Args destroy = {.struct_size = PJRT_Error_Destroy_Args_STRUCT_SIZE,
                                               .error = error};
            api->PJRT_Error_Destroy(&destroy);
        }
    }
    return status;
}

int32_t pjrt_execute_together(const struct pjrt_caller *caller, const char *about,
                              struct PJRT_LoadedExecutable *program, const uint32_t *devices,
                              uint32_t device_count,
                              struct PJRT_Buffer *const *const *argument_lists,
                              size_t argument_count, struct PJRT_Buffer **const *result_lists)
{
    const PJRT_Api *api = caller->client->api;
    PJRT_ExecuteOptions options = {.struct_size = PJRT_ExecuteOptions_STRUCT_SIZE};
    PJRT_Event *done[PJRT_MOST_TOGETHER] = {NULL};
    ARGUMENTS(PJRT_LoadedExecutable_Execute, .executable = program, .options = &options,
              .argument_lists = argument_lists, .num_devices = device_count,
              .num_args = argument_count, .output_lists = result_lists,
              .device_complete_events = done);
    const int32_t status =
        judge(caller->host, api, api->PJRT_LoadedExecutable_Execute(&args), about);
    return status ? status : await_all(caller, about, devices, device_count, done);
}
