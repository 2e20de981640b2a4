// SPDX-License-Identifier: Apache-2.0
// device-hostile-device, for tests: the reference device with one call that does harm.
#include "tests/plugins/hostile/hostile.h"

#include "core/plugin/device.h"

const struct ls_plugin *reference_plugin(void); // the reference device's own, under another name

static const struct ls_device_interface *real;

static int32_t describe(const struct ls_host *host, struct ls_device_info *out)
{
    atomic_store(&hostile_host, host);
    const int32_t wrong = hostile_call("describe");
    const int32_t status = wrong ? wrong : real->describe(host, out);
    if (hostile_is("describe-text"))
        memset(out->hardware, 'x', sizeof(out->hardware));
    return status;
}

static int32_t open_device(const struct ls_host *host, const struct ls_device_config *config,
                           struct ls_device *device)
{
    const int32_t wrong = hostile_call("open");
    return wrong ? wrong : real->open(host, config, device);
}

static void close_device(struct ls_device *device)
{
    (void)hostile_call("close");
    real->close(device);
}

static struct ls_buffer *allocate(struct ls_device *device, uint64_t bytes)
{
    (void)hostile_call("allocate");
    struct ls_buffer *memory =
        hostile_is("allocate-null") ? NULL : real->memory->allocate(device, bytes);
    if (hostile_is("allocate-anywhere"))
        return (struct ls_buffer *)(uintptr_t)4096;
    if (!hostile_is("allocate-odd") || !memory)
        return memory;
    real->memory->release(device, memory);
    return (struct ls_buffer *)((uintptr_t)memory + 4);
}

static void release(struct ls_device *device, struct ls_buffer *memory)
{
    (void)hostile_call("release");
    if (!hostile_is("allocate-odd") && !hostile_is("allocate-anywhere"))
        real->memory->release(device, memory);
}

static int32_t copy(struct ls_device *device, struct ls_memory to, struct ls_memory from,
                    uint64_t bytes, void *stream)
{
    const int32_t wrong = hostile_call("copy");
    return wrong ? wrong : real->memory->copy(device, to, from, bytes, stream);
}

static int32_t prepare(struct ls_device *device, const struct ls_kernel_request *request,
                       struct ls_kernel_answer *out)
{
    const int32_t wrong = hostile_call("prepare");
    const int32_t status = wrong ? wrong : real->kernels->prepare(device, request, out);
    if (status)
        return status;
    if (hostile_is("prepare-null")) {
        real->kernels->release(device, out->kernel);
        out->kernel = NULL;
    }
    if (hostile_is("prepare-scratch"))
        out->scratch_bytes = UINT64_MAX - 7;
    if (hostile_is("prepare-saved"))
        out->saved_bytes = UINT64_MAX - 7;
    if (hostile_is("prepare-place"))
        out->in_place = UINT32_MAX;
    if (hostile_is("prepare-kind"))
        out->layouts[0].kind = 77;
    if (hostile_is("prepare-layout"))
        out->layouts[0] = (struct ls_layout){.kind = LS_LAYOUT_OWN, .bytes = UINT64_MAX - 7};
    if (hostile_is("prepare-small") && request->arguments[0].layout.kind == LS_LAYOUT_ANY)
        out->layouts[0] = (struct ls_layout){.kind = LS_LAYOUT_OWN, .bytes = 4};
    if (hostile_is("prepare-small") && request->arguments[1].layout.kind == LS_LAYOUT_ANY)
        out->layouts[1] = (struct ls_layout){.kind = LS_LAYOUT_OWN, .bytes = 4};
    if (hostile_is("prepare-text"))
        memset(out->implementation, '\033', sizeof(out->implementation));
    return LS_OK;
}

static int32_t launch(struct ls_device *device, const struct ls_kernel *kernel,
                      const struct ls_launch *call)
{
    const int32_t wrong = hostile_call("launch");
    return wrong ? wrong : real->kernels->launch(device, kernel, call);
}

static void release_kernel(struct ls_device *device, struct ls_kernel *kernel)
{
    (void)hostile_call("release_kernel");
    real->kernels->release(device, kernel);
}

static uint64_t tile_bytes(struct ls_device *device)
{
    (void)device;
    (void)hostile_call("tile_bytes");
    return hostile_is("tile_bytes-most") ? UINT64_MAX : hostile_is("tile_bytes-one") ? 1 : 0;
}

static int32_t probe(char *reason, uint64_t bytes)
{
    (void)bytes;
    (void)reason;
    hostile_early("probe");
    return LS_OK;
}

static const struct ls_plugin_option options[] = HOSTILE_OPTIONS;

LS_EXPORT const struct ls_plugin *lockstep_plugin(void)
{
    static struct ls_device_interface interface;
    static struct ls_device_memory memory;
    static struct ls_device_kernels kernels;
    static struct ls_plugin plugin;
    hostile_early("entry");
    plugin = *reference_plugin();
    real = plugin.interface;
    interface = *real;
    interface.describe = describe;
    interface.open = open_device;
    interface.close = close_device;
    memory = *real->memory;
    memory.allocate = allocate;
    memory.release = release;
    memory.copy = copy;
    kernels = *real->kernels;
    kernels.prepare = prepare;
    kernels.launch = launch;
    kernels.release = release_kernel;
    kernels.tile_bytes = tile_bytes;
    interface.memory = &memory;
    interface.kernels = &kernels;
    plugin.name = "hostile-device";
    plugin.version = "1\033[31m";
    plugin.summary = "for tests:\033]0;title\007 reference, with one call that does harm";
    plugin.options = options;
    plugin.probe = probe;
    plugin.interface = &interface;
    return &plugin;
}
