// SPDX-License-Identifier: Apache-2.0
// The guards of slot SLOT of each kind that has so many: guard.c includes this file once for each
// number. A call does not say which plugin it is for, so each plugin has functions of its own.
#define GUARD(name) JOIN(name, SLOT)

// ---- Devices ----

#if SLOT < LS_GUARD_DEVICES
#define OWN device_slots[SLOT]

static int32_t GUARD(device_describe)(const struct ls_host *host, struct ls_device_info *out)
{
    const struct ls_guarded call = ls_guard_enter(&OWN, "describe");
    const int32_t status = OWN.ops.device.interface.describe(host, out);
    out->hardware[sizeof(out->hardware) - 1] = '\0';
    return ls_guard_answer(&call, status, true);
}

static int32_t GUARD(device_open)(const struct ls_host *host, const struct ls_device_config *config,
                                  struct ls_device *device)
{
    const struct ls_guarded call = ls_guard_enter(&OWN, "open");
    const int32_t status = OWN.ops.device.interface.open(host, config, device);
    return ls_guard_opened(&call, status);
}

static void GUARD(device_close)(struct ls_device *device)
{
    const struct ls_guarded call = ls_guard_enter(&OWN, "close");
    OWN.ops.device.interface.close(device);
    ls_guard_leave(&call);
}

static struct ls_buffer *GUARD(device_allocate)(struct ls_device *device, uint64_t bytes)
{
    const struct ls_guarded call = ls_guard_enter(&OWN, "allocate");
    struct ls_buffer *buffer = OWN.ops.device.memory.allocate(device, bytes);
    if (OWN.ops.device.interface.memory_kind != LS_MEMORY_OPAQUE)
        return ls_guard_memory(&call, buffer);
    ls_guard_leave(&call);
    return buffer;
}

static void GUARD(device_release)(struct ls_device *device, struct ls_buffer *buffer)
{
    const struct ls_guarded call = ls_guard_enter(&OWN, "release");
    OWN.ops.device.memory.release(device, buffer);
    ls_guard_leave(&call);
}

static int32_t GUARD(device_copy)(struct ls_device *device, struct ls_memory to,
                                  struct ls_memory from, uint64_t bytes, void *stream)
{
    const struct ls_guarded call = ls_guard_enter(&OWN, "copy");
    return ls_guard_answer(&call, OWN.ops.device.memory.copy(device, to, from, bytes, stream),
                           true);
}

static int32_t GUARD(device_zero)(struct ls_device *device, struct ls_memory memory, uint64_t bytes,
                                  void *stream)
{
    const struct ls_guarded call = ls_guard_enter(&OWN, "zero");
    return ls_guard_answer(&call, OWN.ops.device.memory.zero(device, memory, bytes, stream), true);
}

static int32_t GUARD(device_prepare)(struct ls_device *device,
                                     const struct ls_kernel_request *request,
                                     struct ls_kernel_answer *out)
{
    const struct ls_guarded call = ls_guard_enter(&OWN, "prepare");
    out->kernel = NULL;
    int32_t status = OWN.ops.device.kernels.prepare(device, request, out);
    const bool made = status == LS_OK;
    status = ls_guard_kernel(&call, status, request, out);
    if (made && status && out->kernel)
        OWN.ops.device.kernels.release(device, out->kernel);
    return status;
}

static int32_t GUARD(device_launch)(struct ls_device *device, const struct ls_kernel *kernel,
                                    const struct ls_launch *launch)
{
    const struct ls_guarded call = ls_guard_enter(&OWN, "launch");
    return ls_guard_answer(&call, OWN.ops.device.kernels.launch(device, kernel, launch), true);
}

static int32_t GUARD(device_prepare_segment)(struct ls_device *device,
                                             const struct ls_segment_request *request,
                                             struct ls_kernel_answer *out)
{
    const struct ls_guarded call = ls_guard_enter(&OWN, "prepare_segment");
    out->kernel = NULL;
    int32_t status = OWN.ops.device.kernels.prepare_segment(device, request, out);
    const bool made = status == LS_OK;
    status = ls_guard_segment(&call, status, out);
    if (made && status && out->kernel)
        OWN.ops.device.kernels.release(device, out->kernel);
    return status;
}

static void GUARD(device_release_kernel)(struct ls_device *device, struct ls_kernel *kernel)
{
    const struct ls_guarded call = ls_guard_enter(&OWN, "release_kernel");
    OWN.ops.device.kernels.release(device, kernel);
    ls_guard_leave(&call);
}

static int32_t GUARD(device_stream_open)(struct ls_device *device, void **out)
{
    const struct ls_guarded call = ls_guard_enter(&OWN, "stream_open");
    *out = NULL;
    int32_t status = OWN.ops.device.streams.open(device, out);
    status = ls_guard_made(&call, status, *out != NULL, "a stream");
    if (status)
        *out = NULL;
    return status;
}

static void GUARD(device_stream_close)(struct ls_device *device, void *stream)
{
    const struct ls_guarded call = ls_guard_enter(&OWN, "stream_close");
    OWN.ops.device.streams.close(device, stream);
    ls_guard_leave(&call);
}

static int32_t GUARD(device_stream_native)(struct ls_device *device, void *stream,
                                           struct ls_native_stream *out)
{
    const struct ls_guarded call = ls_guard_enter(&OWN, "stream_native");
    const int32_t status = OWN.ops.device.streams.native(device, stream, out);
    out->identity[sizeof(out->identity) - 1] = '\0';
    return ls_guard_answer(&call, status, true);
}

static int32_t GUARD(device_event_open)(struct ls_device *device, struct ls_event **out)
{
    const struct ls_guarded call = ls_guard_enter(&OWN, "event_open");
    *out = NULL;
    int32_t status = OWN.ops.device.streams.event_open(device, out);
    status = ls_guard_made(&call, status, *out != NULL, "an event");
    if (status)
        *out = NULL;
    return status;
}

static void GUARD(device_event_close)(struct ls_device *device, struct ls_event *event)
{
    const struct ls_guarded call = ls_guard_enter(&OWN, "event_close");
    OWN.ops.device.streams.event_close(device, event);
    ls_guard_leave(&call);
}

static int32_t GUARD(device_event_record)(struct ls_device *device, struct ls_event *event,
                                          void *stream)
{
    const struct ls_guarded call = ls_guard_enter(&OWN, "event_record");
    return ls_guard_answer(&call, OWN.ops.device.streams.event_record(device, event, stream), true);
}

static int32_t GUARD(device_event_wait)(struct ls_device *device, struct ls_event *event,
                                        void *stream)
{
    const struct ls_guarded call = ls_guard_enter(&OWN, "event_wait");
    return ls_guard_answer(&call, OWN.ops.device.streams.event_wait(device, event, stream), true);
}

static int32_t GUARD(device_event_query)(struct ls_device *device, const struct ls_event *event)
{
    const struct ls_guarded call = ls_guard_enter(&OWN, "event_query");
    return ls_guard_answer(&call, OWN.ops.device.streams.event_query(device, event), false);
}

static void *GUARD(device_allocate_host)(struct ls_device *device, uint64_t bytes)
{
    const struct ls_guarded call = ls_guard_enter(&OWN, "allocate_host");
    return ls_guard_memory(&call, OWN.ops.device.staging.allocate(device, bytes));
}

static void GUARD(device_release_host)(struct ls_device *device, void *memory)
{
    const struct ls_guarded call = ls_guard_enter(&OWN, "release_host");
    OWN.ops.device.staging.release(device, memory);
    ls_guard_leave(&call);
}

static int32_t GUARD(device_copy_async)(struct ls_device *device, struct ls_memory to,
                                        struct ls_memory from, uint64_t bytes, void *stream)
{
    const struct ls_guarded call = ls_guard_enter(&OWN, "copy_async");
    return ls_guard_answer(
        &call, OWN.ops.device.staging.copy_async(device, to, from, bytes, stream), true);
}

static int32_t GUARD(device_reduce)(struct ls_device *device,
                                    const struct ls_device_reduction *reduction, void *stream)
{
    const struct ls_guarded call = ls_guard_enter(&OWN, "reduce");
    return ls_guard_answer(&call, OWN.ops.device.peers.reduce(device, reduction, stream), true);
}

static int32_t GUARD(device_can_access_peer)(struct ls_device *device, struct ls_device *other)
{
    const struct ls_guarded call = ls_guard_enter(&OWN, "can_access_peer");
    return ls_guard_answer(&call, OWN.ops.device.peers.can_access_peer(device, other), false);
}

static int32_t GUARD(device_record_begin)(struct ls_device *device)
{
    const struct ls_guarded call = ls_guard_enter(&OWN, "record_begin");
    return ls_guard_answer(&call, OWN.ops.device.capture.begin(device), false);
}

static int32_t GUARD(device_record_end)(struct ls_device *device, struct ls_recording **out)
{
    const struct ls_guarded call = ls_guard_enter(&OWN, "record_end");
    *out = NULL;
    const int32_t status = OWN.ops.device.capture.end(device, out);
    if (status)
        return ls_guard_answer(&call, status, false);
    return ls_guard_made(&call, status, *out != NULL, "a recording");
}

static int32_t GUARD(device_replay)(struct ls_device *device, const struct ls_recording *recording)
{
    const struct ls_guarded call = ls_guard_enter(&OWN, "replay");
    return ls_guard_answer(&call, OWN.ops.device.capture.replay(device, recording), true);
}

static void GUARD(device_release_recording)(struct ls_device *device,
                                            struct ls_recording *recording)
{
    const struct ls_guarded call = ls_guard_enter(&OWN, "release_recording");
    OWN.ops.device.capture.release(device, recording);
    ls_guard_leave(&call);
}

static void GUARD(device_abandon)(struct ls_device *device)
{
    const struct ls_guarded call = ls_guard_enter(&OWN, "abandon");
    OWN.ops.device.interface.abandon(device);
    ls_guard_leave(&call);
}

static uint64_t GUARD(device_tile_bytes)(struct ls_device *device)
{
    const struct ls_guarded call = ls_guard_enter(&OWN, "tile_bytes");
    const uint64_t bytes = OWN.ops.device.kernels.tile_bytes(device);
    ls_guard_leave(&call);
    return bytes;
}

static const struct ls_device_tables GUARD(device_guards) = {
    .interface = {.describe = GUARD(device_describe),
                  .open = GUARD(device_open),
                  .close = GUARD(device_close),
                  .abandon = GUARD(device_abandon)},
    .memory = {.allocate = GUARD(device_allocate),
               .release = GUARD(device_release),
               .copy = GUARD(device_copy),
               .zero = GUARD(device_zero)},
    .kernels = {.prepare = GUARD(device_prepare),
                .launch = GUARD(device_launch),
                .release = GUARD(device_release_kernel),
                .prepare_segment = GUARD(device_prepare_segment),
                .tile_bytes = GUARD(device_tile_bytes)},
    .streams = {.open = GUARD(device_stream_open),
                .close = GUARD(device_stream_close),
                .native = GUARD(device_stream_native),
                .event_open = GUARD(device_event_open),
                .event_close = GUARD(device_event_close),
                .event_record = GUARD(device_event_record),
                .event_wait = GUARD(device_event_wait),
                .event_query = GUARD(device_event_query)},
    .staging = {.allocate = GUARD(device_allocate_host),
                .release = GUARD(device_release_host),
                .copy_async = GUARD(device_copy_async)},
    .peers = {.reduce = GUARD(device_reduce), .can_access_peer = GUARD(device_can_access_peer)},
    .capture = {.begin = GUARD(device_record_begin),
                .end = GUARD(device_record_end),
                .replay = GUARD(device_replay),
                .release = GUARD(device_release_recording)},
};

#undef OWN
#endif

// ---- Transports ----

#if SLOT < LS_GUARD_TRANSPORTS
#define OWN transport_slots[SLOT]

static int32_t GUARD(transport_open)(const struct ls_host *host,
                                     const struct ls_transport_config *config,
                                     struct ls_transport *const *endpoints)
{
    const struct ls_guarded call = ls_guard_enter(&OWN, "open");
    return ls_guard_opened(&call, OWN.ops.transport.open(host, config, endpoints));
}

static void GUARD(transport_close)(struct ls_transport *transport)
{
    const struct ls_guarded call = ls_guard_enter(&OWN, "close");
    OWN.ops.transport.close(transport);
    ls_guard_leave(&call);
}

static int32_t GUARD(transport_post)(struct ls_transport *transport, struct ls_transfer *transfer)
{
    static const struct ls_inside_site site = {OWN.label, "post"};
    const struct often call = enter_often(&site);
    return answer_often(call, &OWN, OWN.ops.transport.post(transport, transfer), transfer);
}

static int32_t GUARD(transport_test)(struct ls_transport *transport, struct ls_transfer *transfer)
{
    static const struct ls_inside_site site = {OWN.label, "test"};
    const struct often call = enter_often(&site);
    return answer_often(call, &OWN, OWN.ops.transport.test(transport, transfer), transfer);
}

static int32_t GUARD(transport_wait_any)(struct ls_transport *transport,
                                         struct ls_transfer *const *transfers, uint64_t count,
                                         uint64_t timeout_ns)
{
    static const struct ls_inside_site site = {OWN.label, "wait_any"};
    const struct often call = enter_often(&site);
    return answer_often(call, &OWN,
                        OWN.ops.transport.wait_any(transport, transfers, count, timeout_ns), NULL);
}

static void GUARD(transport_abort)(struct ls_transport *transport)
{
    const struct ls_guarded call = ls_guard_enter(&OWN, "abort");
    OWN.ops.transport.abort(transport);
    ls_guard_leave(&call);
}

static int32_t GUARD(transport_peer_state)(struct ls_transport *transport, uint32_t peer)
{
    const struct ls_guarded call = ls_guard_enter(&OWN, "peer_state");
    return ls_guard_answer(&call, OWN.ops.transport.peer_state(transport, peer), false);
}

static int32_t GUARD(transport_arm)(struct ls_transport *transport,
                                    struct ls_transfer *const *transfers, uint64_t count,
                                    int32_t *fd, uint64_t *glance_ns)
{
    static const struct ls_inside_site site = {OWN.label, "arm"};
    const struct often call = enter_often(&site);
    return answer_often(call, &OWN,
                        OWN.ops.transport.arm(transport, transfers, count, fd, glance_ns), NULL);
}

static const struct ls_transport_interface GUARD(transport_guards) = {
    .open = GUARD(transport_open),
    .close = GUARD(transport_close),
    .post = GUARD(transport_post),
    .test = GUARD(transport_test),
    .wait_any = GUARD(transport_wait_any),
    .abort = GUARD(transport_abort),
    .peer_state = GUARD(transport_peer_state),
    .arm = GUARD(transport_arm),
};

#undef OWN
#endif

// ---- Collectives ----

#if SLOT < LS_GUARD_COLLECTIVES
#define OWN collective_slots[SLOT]

// Whoever only tries whether a collective can build a schedule for a call does so with a silent
// host: no reason is expected then.
static int32_t GUARD(collective_build_schedule)(const struct ls_collective_call *what,
                                                struct ls_schedule *schedule)
{
    const struct ls_guarded call = ls_guard_enter(&OWN, "build_schedule");
    const int32_t status = OWN.ops.collective.build_schedule(what, schedule);
    return ls_guard_answer(&call, status, what && ls_host_is_loaders(what->host));
}

static int32_t GUARD(collective_open)(const struct ls_host *host,
                                      const struct ls_collective_config *config,
                                      struct ls_collective *const *collectives)
{
    const struct ls_guarded call = ls_guard_enter(&OWN, "open");
    return ls_guard_opened(&call, OWN.ops.collective.open(host, config, collectives));
}

static void GUARD(collective_close)(struct ls_collective *collective)
{
    const struct ls_guarded call = ls_guard_enter(&OWN, "close");
    OWN.ops.collective.close(collective);
    ls_guard_leave(&call);
}

static int32_t GUARD(collective_run)(struct ls_collective *collective,
                                     const struct ls_collective_run *run)
{
    const struct ls_guarded call = ls_guard_enter(&OWN, "run");
    return ls_guard_answer(&call, OWN.ops.collective.run(collective, run), false);
}

static int32_t GUARD(collective_done)(struct ls_collective *collective, uint64_t *ended)
{
    const struct ls_guarded call = ls_guard_enter(&OWN, "done");
    return ls_guard_answer(&call, OWN.ops.collective.done(collective, ended), false);
}

static int32_t GUARD(collective_poll)(struct ls_collective *collective)
{
    const struct ls_guarded call = ls_guard_enter(&OWN, "poll");
    return ls_guard_answer(&call, OWN.ops.collective.poll(collective), false);
}

static void GUARD(collective_abort)(struct ls_collective *collective)
{
    const struct ls_guarded call = ls_guard_enter(&OWN, "abort");
    OWN.ops.collective.abort(collective);
    ls_guard_leave(&call);
}

static void GUARD(collective_about)(char *text, uint64_t bytes)
{
    const struct ls_guarded call = ls_guard_enter(&OWN, "about");
    OWN.ops.collective.about(text, bytes);
    text[bytes - 1] = '\0';
    ls_guard_leave(&call);
}

static const struct ls_collective_interface GUARD(collective_guards) = {
    .build_schedule = GUARD(collective_build_schedule),
    .open = GUARD(collective_open),
    .close = GUARD(collective_close),
    .run = GUARD(collective_run),
    .done = GUARD(collective_done),
    .poll = GUARD(collective_poll),
    .abort = GUARD(collective_abort),
    .about = GUARD(collective_about),
};

#undef OWN
#endif

// ---- Strategies ----

#if SLOT < LS_GUARD_STRATEGIES
#define OWN strategy_slots[SLOT]

static int32_t GUARD(strategy_open)(const struct ls_strategy_host *host,
                                    struct ls_strategy *strategy)
{
    const struct ls_guarded call = ls_guard_enter(&OWN, "open");
    return ls_guard_opened(&call, OWN.ops.strategy.open(host, strategy));
}

static void GUARD(strategy_close)(struct ls_strategy *strategy)
{
    const struct ls_guarded call = ls_guard_enter(&OWN, "close");
    OWN.ops.strategy.close(strategy);
    ls_guard_leave(&call);
}

static int32_t GUARD(strategy_initialize_parameters)(struct ls_strategy *strategy, uint32_t replica)
{
    const struct ls_guarded call = ls_guard_enter(&OWN, "initialize_parameters");
    return ls_guard_answer(&call, OWN.ops.strategy.initialize_parameters(strategy, replica), true);
}

static int32_t GUARD(strategy_begin_step)(struct ls_strategy *strategy, uint32_t replica)
{
    const struct ls_guarded call = ls_guard_enter(&OWN, "begin_step");
    return ls_guard_answer(&call, OWN.ops.strategy.begin_step(strategy, replica), true);
}

static int32_t GUARD(strategy_parameters_needed)(struct ls_strategy *strategy, uint32_t replica,
                                                 uint32_t bucket)
{
    const struct ls_guarded call = ls_guard_enter(&OWN, "parameters_needed");
    const int32_t status = OWN.ops.strategy.parameters_needed(strategy, replica, bucket);
    return ls_guard_answer(&call, status, true);
}

static int32_t GUARD(strategy_gradient_ready)(struct ls_strategy *strategy, uint32_t replica,
                                              uint32_t bucket)
{
    const struct ls_guarded call = ls_guard_enter(&OWN, "gradient_ready");
    return ls_guard_answer(&call, OWN.ops.strategy.gradient_ready(strategy, replica, bucket), true);
}

static int32_t GUARD(strategy_end_step)(struct ls_strategy *strategy, uint32_t replica)
{
    const struct ls_guarded call = ls_guard_enter(&OWN, "end_step");
    return ls_guard_answer(&call, OWN.ops.strategy.end_step(strategy, replica), true);
}

static int32_t GUARD(strategy_synchronise)(struct ls_strategy *strategy, uint32_t replica)
{
    const struct ls_guarded call = ls_guard_enter(&OWN, "synchronise");
    return ls_guard_answer(&call, OWN.ops.strategy.synchronise(strategy, replica), true);
}

static void GUARD(strategy_find_traits)(struct ls_strategy *strategy,
                                        struct ls_strategy_traits *out)
{
    const struct ls_guarded call = ls_guard_enter(&OWN, "find_traits");
    OWN.ops.strategy.find_traits(strategy, out);
    ls_guard_leave(&call);
}

static int32_t GUARD(strategy_lost)(struct ls_strategy *strategy, uint32_t replica)
{
    const struct ls_guarded call = ls_guard_enter(&OWN, "lost");
    return ls_guard_answer(&call, OWN.ops.strategy.lost(strategy, replica), true);
}

static void GUARD(strategy_report_metrics)(struct ls_strategy *strategy)
{
    const struct ls_guarded call = ls_guard_enter(&OWN, "report_metrics");
    OWN.ops.strategy.report_metrics(strategy);
    ls_guard_leave(&call);
}

static int32_t GUARD(strategy_rest)(struct ls_strategy *strategy, uint32_t replica)
{
    const struct ls_guarded call = ls_guard_enter(&OWN, "rest");
    return ls_guard_answer(&call, OWN.ops.strategy.rest(strategy, replica), true);
}

static void GUARD(strategy_placement)(struct ls_strategy *strategy, uint32_t rank, uint32_t bucket,
                                      struct ls_strategy_placement *out)
{
    const struct ls_guarded call = ls_guard_enter(&OWN, "placement");
    OWN.ops.strategy.placement(strategy, rank, bucket, out);
    ls_guard_leave(&call);
}

static const struct ls_strategy_interface GUARD(strategy_guards) = {
    .open = GUARD(strategy_open),
    .close = GUARD(strategy_close),
    .initialize_parameters = GUARD(strategy_initialize_parameters),
    .begin_step = GUARD(strategy_begin_step),
    .parameters_needed = GUARD(strategy_parameters_needed),
    .gradient_ready = GUARD(strategy_gradient_ready),
    .end_step = GUARD(strategy_end_step),
    .synchronise = GUARD(strategy_synchronise),
    .find_traits = GUARD(strategy_find_traits),
    .lost = GUARD(strategy_lost),
    .report_metrics = GUARD(strategy_report_metrics),
    .rest = GUARD(strategy_rest),
    .placement = GUARD(strategy_placement),
};

#undef OWN
#endif

// ---- Callbacks: opening and closing; core/train names the plugin around the moments of a fit ----

#if SLOT < LS_GUARD_CALLBACKS
#define OWN callback_slots[SLOT]

static int32_t GUARD(callback_open)(const struct ls_host *host, const struct ls_fit_calls *calls,
                                    struct ls_callback *callback, struct ls_callbacks *out)
{
    const struct ls_guarded call = ls_guard_enter(&OWN, "open");
    const int32_t status = OWN.ops.callback.open(host, calls, callback, out);
    return ls_guard_opened(&call, status);
}

static void GUARD(callback_close)(struct ls_callback *callback)
{
    const struct ls_guarded call = ls_guard_enter(&OWN, "close");
    OWN.ops.callback.close(callback);
    ls_guard_leave(&call);
}

static const struct ls_callback_interface GUARD(callback_guards) = {
    .open = GUARD(callback_open),
    .close = GUARD(callback_close),
};

#undef OWN
#endif

// ---- Layers, losses, metrics, datasets ----

#if SLOT < LS_GUARD_LAYERS

static int32_t GUARD(layer_build)(const struct ls_host *host, const struct ls_composer *composer,
                                  struct ls_tensor *const *inputs, uint32_t input_count,
                                  struct ls_tensor **outputs)
{
    const struct ls_guarded call = ls_guard_enter(&layer_slots[SLOT], "build");
    const int32_t status =
        layer_slots[SLOT].ops.layer.build(host, composer, inputs, input_count, outputs);
    return ls_guard_opened(&call, status);
}

static const struct ls_layer_interface GUARD(layer_guards) = {.build = GUARD(layer_build)};

#endif

#if SLOT < LS_GUARD_LOSSES

static int32_t GUARD(loss_build)(const struct ls_host *host, const struct ls_composer *composer,
                                 struct ls_tensor *predictions, struct ls_tensor *targets,
                                 struct ls_tensor **values)
{
    const struct ls_guarded call = ls_guard_enter(&loss_slots[SLOT], "build");
    const int32_t status =
        loss_slots[SLOT].ops.loss.build(host, composer, predictions, targets, values);
    return ls_guard_opened(&call, status);
}

static int32_t GUARD(loss_target_shape)(const struct ls_host *host, uint32_t *ndims,
                                        int64_t dims[LS_MAX_DIMS])
{
    const struct ls_guarded call = ls_guard_enter(&loss_slots[SLOT], "target_shape");
    const int32_t status = loss_slots[SLOT].ops.loss.target_shape(host, ndims, dims);
    return ls_guard_opened(&call, status);
}

static const struct ls_loss_interface GUARD(loss_guards) = {
    .build = GUARD(loss_build),
    .target_shape = GUARD(loss_target_shape),
};

#endif

#if SLOT < LS_GUARD_METRICS

static int32_t GUARD(metric_build)(const struct ls_host *host, const struct ls_composer *composer,
                                   struct ls_tensor *predictions, struct ls_tensor *targets,
                                   struct ls_tensor **values)
{
    const struct ls_guarded call = ls_guard_enter(&metric_slots[SLOT], "build");
    const int32_t status =
        metric_slots[SLOT].ops.metric.build(host, composer, predictions, targets, values);
    return ls_guard_opened(&call, status);
}

static double GUARD(metric_result)(const struct ls_host *host, const double *sums, double examples)
{
    const struct ls_guarded call = ls_guard_enter(&metric_slots[SLOT], "result");
    const double value = metric_slots[SLOT].ops.metric.result(host, sums, examples);
    ls_guard_leave(&call);
    return value;
}

static const struct ls_metric_interface GUARD(metric_guards) = {
    .build = GUARD(metric_build),
    .result = GUARD(metric_result),
};

#endif

#if SLOT < LS_GUARD_DATASETS

static int32_t GUARD(dataset_open)(const struct ls_host *host, const char *split,
                                   struct ls_dataset_state *state,
                                   struct ls_dataset_description *out)
{
    const struct ls_guarded call = ls_guard_enter(&dataset_slots[SLOT], "open");
    const int32_t status = dataset_slots[SLOT].ops.dataset.open(host, split, state, out);
    return ls_guard_opened(&call, status);
}

static int32_t GUARD(dataset_load)(struct ls_dataset_state *state, uint64_t example,
                                   void *const *fields)
{
    const struct ls_guarded call = ls_guard_enter(&dataset_slots[SLOT], "load");
    const int32_t status = dataset_slots[SLOT].ops.dataset.load(state, example, fields);
    return ls_guard_opened(&call, status);
}

static void GUARD(dataset_close)(struct ls_dataset_state *state)
{
    const struct ls_guarded call = ls_guard_enter(&dataset_slots[SLOT], "close");
    dataset_slots[SLOT].ops.dataset.close(state);
    ls_guard_leave(&call);
}

static const struct ls_dataset_interface GUARD(dataset_guards) = {
    .open = GUARD(dataset_open),
    .load = GUARD(dataset_load),
    .close = GUARD(dataset_close),
};

#endif

#undef SLOT
#undef GUARD
