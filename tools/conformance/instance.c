// SPDX-License-Identifier: Apache-2.0
// Small uses of each kind: a schedule is described, memory is copied, a message is sent, a step is made.
#include "core/collective/endpoints.h"
#include "tools/conformance/instance.h"
#include "tools/conformance/strategy/suite.h"

#include "core/base/clock.h"
#include "core/base/instance.h"
#include "core/base/status.h"
#include "core/device/device.h"

#include <stdlib.h>
#include <string.h>

#define SMALL_COUNT 1000
#define SMALL_BYTES 4096
#define MOST_STEPS 1000000
#define MESSAGE_DEADLINE_NS UINT64_C(5000000000)

// ---- Collectives ----

// A schedule that is only summed up.
struct digest {
    struct ls_schedule table; // first: its calls cast back
    uint64_t hash;
    uint32_t steps;
    int32_t status; // what adding a step answers
};

static void mix(struct digest *digest, uint64_t word)
{
    digest->hash = ls_mix64(digest->hash, word);
}

static int32_t digest_add(struct ls_schedule *schedule, const struct ls_step *step)
{
    struct digest *digest = schedule->context;
    const uint64_t words[] = {step->kind,         step->peer,        step->range.buffer,
                              step->range.offset, step->range.count, step->from.buffer,
                              step->from.offset,  step->from.count};
    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
        mix(digest, words[i]);
    if (digest->steps == MOST_STEPS)
        return LS_FAILED;
    digest->steps++;
    return digest->status;
}

static int32_t digest_end_round(struct ls_schedule *schedule)
{
    struct digest *digest = schedule->context;
    mix(digest, UINT64_C(0x726f756e64));
    return digest->status;
}

static int32_t digest_scratch(struct ls_schedule *schedule, uint64_t count)
{
    struct digest *digest = schedule->context;
    mix(digest, count);
    return digest->status;
}

static int32_t build_schedule(const struct ls_opened_plugin *opened, const struct ls_host *host,
                              uint32_t rank, uint32_t world, struct digest *digest)
{
    const struct ls_collective_interface *collective = opened->interface;
    const struct ls_collective_call call = {
        .struct_size = sizeof(call),
        .operation = LS_ALL_REDUCE,
        .rank = rank,
        .world = world,
        .count = SMALL_COUNT,
        .element_bytes = 4,
        .host = host,
    };
    digest->table = (struct ls_schedule){
        .struct_size = sizeof(digest->table),
        .context = digest,
        .add = digest_add,
        .end_round = digest_end_round,
        .scratch = digest_scratch,
    };
    return collective->build_schedule(&call, &digest->table);
}

static uint32_t small_world(const struct ls_opened_plugin *opened)
{
    const struct ls_collective_interface *collective = opened->interface;
    return collective->maximum_world && collective->maximum_world < 4 ? collective->maximum_world
                                                                      : 4;
}

// A native one needs the streams of its own devices, which are not here.
static bool has_schedule(const struct ls_opened_plugin *opened)
{
    return ((const struct ls_collective_interface *)opened->interface)->build_schedule;
}

static void use_collective(const struct ls_instance_trial *trial, struct ls_tally *tally)
{
    const uint32_t world = has_schedule(trial->opened) ? small_world(trial->opened) : 0;
    for (uint32_t rank = 0; rank < world; rank++) {
        struct digest first = {0}, again = {0};
        const int32_t status =
            build_schedule(trial->opened, trial->opened->host, rank, world, &first);
        const int32_t repeated =
            build_schedule(trial->opened, trial->opened->host, rank, world, &again);
        if (status != repeated || first.hash != again.hash)
            ls_tally_blame(
                tally,
                "build_schedule is not pure: the same call (all-reduce, rank %u of %u) gave "
                "two schedules",
                rank, world);
    }
}

// ---- Devices ----

static bool open_device(struct ls_instance_trial *trial, const struct ls_host *host,
                        struct ls_tally *tally)
{
    const struct ls_device_interface *device = trial->opened->interface;
    const struct ls_device_config config = {.struct_size = sizeof(config), .threads = 1};
    const int32_t status = (int32_t)ls_device_open_state(device, host, &config, &trial->device);
    if (status)
        return ls_tally_blame(tally, "open: %s", ls_status_text((enum ls_status)status));
    return true;
}

static void use_device(const struct ls_instance_trial *trial, struct ls_tally *tally)
{
    const struct ls_device_interface *device = trial->opened->interface;
    struct ls_device_info info = {.struct_size = sizeof(info)};
    char sent[SMALL_BYTES], received[SMALL_BYTES] = {0};
    for (size_t i = 0; i < sizeof(sent); i++)
        sent[i] = (char)(i * 7 + 1);
    if (device->describe(trial->opened->host, &info))
        ls_tally_blame(tally, "describe failed");
    else if (!info.physical_count || !memchr(info.hardware, '\0', sizeof(info.hardware)) ||
             !info.hardware[0])
        ls_tally_blame(tally, "describe does not say which hardware it is, or how many of it");
    struct ls_buffer *memory = device->memory->allocate(trial->device, SMALL_BYTES);
    if (!memory || (uintptr_t)memory % LS_ALIGNMENT)
        ls_tally_blame(tally, "allocate: no memory aligned to %d bytes", LS_ALIGNMENT);
    else if (device->memory->copy(trial->device, ls_memory_of(memory), ls_host_memory(sent),
                                  SMALL_BYTES, NULL) ||
             device->memory->copy(trial->device, ls_host_memory(received), ls_memory_of(memory),
                                  SMALL_BYTES, NULL) ||
             memcmp(sent, received, SMALL_BYTES) != 0)
        ls_tally_blame(tally, "copy: what came back is not what was copied there");
    device->memory->release(trial->device, memory);
}

// ---- Transports ----

static bool open_transport(struct ls_instance_trial *trial, const struct ls_host *host,
                           struct ls_tally *tally)
{
    const struct ls_transport_interface *transport = trial->opened->interface;
    const struct ls_endpoints_options options = {.transport = transport,
                                                 .host = host,
                                                 .world = 2,
                                                 .name = "check",
                                                 .deadline_ns = MESSAGE_DEADLINE_NS};
    const int32_t status = (int32_t)ls_endpoints_open(&options, trial->endpoints);
    if (status)
        return ls_tally_blame(tally, "open: %s", ls_status_text((enum ls_status)status));
    return true;
}

static void use_transport(const struct ls_instance_trial *trial, struct ls_tally *tally)
{
    const struct ls_transport_interface *transport = trial->opened->interface;
    float sent[16], received[16] = {0};
    for (int i = 0; i < 16; i++)
        sent[i] = (float)i + 1;
    struct ls_transfer send = {.struct_size = sizeof(send),
                               .kind = LS_TRANSFER_SEND,
                               .destination = 1,
                               .memory = sent,
                               .count = 16,
                               .dtype = LS_F32};
    struct ls_transfer receive = {.struct_size = sizeof(receive),
                                  .kind = LS_TRANSFER_RECEIVE,
                                  .after = LS_TRANSFER_AT_ONCE,
                                  .memory = received,
                                  .count = 16,
                                  .dtype = LS_F32};
    send.send_number = receive.receive_number = trial->uses; // every number is used once
    const uint64_t end_ns = ls_clock_ns() + MESSAGE_DEADLINE_NS;
    int32_t sending = transport->post(trial->endpoints[0], &send);
    int32_t receiving = transport->post(trial->endpoints[1], &receive);
    while (!sending && !receiving && ls_clock_ns() < end_ns &&
           (send.state != LS_TRANSFER_COMPLETE || receive.state != LS_TRANSFER_COMPLETE)) {
        if (send.state != LS_TRANSFER_COMPLETE)
            sending = transport->test(trial->endpoints[0], &send);
        if (receive.state != LS_TRANSFER_COMPLETE)
            receiving = transport->test(trial->endpoints[1], &receive);
        sending = sending == LS_AGAIN ? LS_OK : sending;
        receiving = receiving == LS_AGAIN ? LS_OK : receiving;
    }
    if (sending || receiving || memcmp(sent, received, sizeof(sent)) != 0)
        ls_tally_blame(tally, "a message of 16 elements did not arrive (send: %s, receive: %s)",
                       ls_status_text((enum ls_status)sending),
                       ls_status_text((enum ls_status)receiving));
}

// ---- Strategies ----

static bool open_strategy(struct ls_instance_trial *trial, struct ls_loader *loader,
                          const struct ls_host *host, struct ls_tally *tally)
{
    const struct ls_strategy_interface *strategy = trial->opened->interface;
    const struct ls_opened_plugin *transport = NULL;
    struct ls_fake_transport with = {0};
    if (strategy->needs_transport) {
        if (ls_loader_open(loader, LS_KIND_TRANSPORT, "local", NULL, 0, &transport))
            return ls_tally_blame(tally,
                                  "the transport 'local', which it is tried with, is missing");
        with = (struct ls_fake_transport){transport->interface, transport->host};
    }
    if (posix_memalign((void **)&trial->fake, LS_ALIGNMENT, sizeof(*trial->fake))) {
        trial->fake = NULL;
        return ls_tally_blame(tally, "no memory for a host");
    }
    ls_tally_init(&trial->unheard, NULL, NULL, NULL, NULL);
    const struct ls_fake_model model = ls_fake_small_model(2);
    ls_fake_host_init(trial->fake, &trial->unheard, strategy, host, &with, 1, &model, 1);
    trial->fake->lenient = true;
    const int32_t status = ls_fake_open(trial->fake, &trial->strategy);
    if (status)
        return ls_tally_blame(tally, "open: %s", ls_status_text((enum ls_status)status));
    ls_fake_read_traits(trial->fake, trial->strategy);
    return true;
}

static void close_strategy(struct ls_instance_trial *trial)
{
    if (trial->fake) {
        ls_fake_close(trial->fake, trial->strategy);
        ls_fake_host_finish(trial->fake);
        ls_tally_finish(&trial->unheard);
    }
    free(trial->fake);
    trial->fake = NULL;
}

static void use_strategy(const struct ls_instance_trial *trial, struct ls_tally *tally)
{
    const struct ls_strategy_interface *strategy = trial->opened->interface;
    struct ls_fake_host *fake = trial->fake;
    ls_fake_set_thread(0);
    int32_t status = strategy->initialize_parameters(trial->strategy, 0);
    ls_fake_begin(fake, 0, trial->uses);
    if (!status && strategy->begin_step)
        status = strategy->begin_step(trial->strategy, 0);
    ls_fake_compute(fake, 0);
    for (uint32_t bucket = 0; !status && bucket < fake->buckets; bucket++) {
        ls_fake_ready(fake, 0, bucket);
        status = strategy->gradient_ready(trial->strategy, 0, bucket);
    }
    ls_fake_enter(fake, 0, LS_FAKE_STEP);
    if (!status)
        status = strategy->end_step(trial->strategy, 0);
    if (!status && strategy->synchronise)
        status = strategy->synchronise(trial->strategy, 0);
    if (status)
        ls_tally_blame(tally, "a step of one replica: %s", ls_status_text((enum ls_status)status));
}

// ---- Callbacks ----

// Callbacks are opened and closed: what they do in a fit may write files.
static bool open_callback(struct ls_instance_trial *trial, const struct ls_host *host,
                          struct ls_tally *tally)
{
    static const struct ls_fit_calls calls = {.struct_size = sizeof(calls)};
    const struct ls_callback_interface *ops = trial->opened->interface;
    trial->callback = ls_instance_create(ops, ops->state_bytes);
    struct ls_callbacks table = {.context = trial->callback, .name = trial->opened->plugin->name};
    const int32_t status = trial->callback ? ops->open(host, &calls, trial->callback, &table)
                                           : (int32_t)LS_OUT_OF_MEMORY;
    if (!status && table.context == trial->callback)
        return true;
    if (status)
        ls_tally_blame(tally, "open: %s", ls_status_text((enum ls_status)status));
    else
        ls_tally_blame(tally, "open changed the context of its table");
    if (!status && ops->close)
        ops->close(trial->callback);
    ls_instance_destroy(trial->callback);
    trial->callback = NULL;
    return false;
}

static void close_callback(struct ls_instance_trial *trial)
{
    const struct ls_callback_interface *ops = trial->opened->interface;
    if (ops->close)
        ops->close(trial->callback);
    ls_instance_destroy(trial->callback);
}

// ---- Datasets ----

static bool open_dataset(struct ls_instance_trial *trial, const struct ls_host *host,
                         struct ls_tally *tally)
{
    const struct ls_dataset_interface *ops = trial->opened->interface;
    trial->dataset = ls_instance_create(ops, ops->state_bytes);
    const int32_t status = trial->dataset
                               ? ops->open(host, "train", trial->dataset, &trial->examples)
                               : (int32_t)LS_OUT_OF_MEMORY;
    if (!status)
        return true;
    ls_tally_blame(tally, "open: %s", ls_status_text((enum ls_status)status));
    ls_instance_destroy(trial->dataset);
    trial->dataset = NULL;
    return false;
}

// One example, of fields whose sizes are believable.
static void use_dataset(struct ls_instance_trial *trial, struct ls_tally *tally)
{
    const struct ls_dataset_interface *ops = trial->opened->interface;
    const uint32_t count = trial->examples.field_count;
    void *fields[LS_DATASET_FIELDS] = {NULL};
    bool good = count <= LS_DATASET_FIELDS;
    for (uint32_t i = 0; good && i < count; i++) {
        const struct ls_dataset_field *field = &trial->examples.fields[i];
        uint64_t bytes = 8;
        for (uint32_t k = 0; k < field->ndims && k < LS_MAX_DIMS; k++)
            bytes *= field->dims[k] > 0 && bytes < UINT32_MAX ? (uint64_t)field->dims[k] : 1;
        fields[i] = calloc(1, bytes);
        good = fields[i] != NULL;
    }
    const int32_t status = good ? ops->load(trial->dataset, 0, fields) : LS_OK;
    if (status)
        ls_tally_blame(tally, "load of example 0: %s", ls_status_text((enum ls_status)status));
    for (uint32_t i = 0; i < LS_DATASET_FIELDS; i++)
        free(fields[i]);
}

static void close_dataset(struct ls_instance_trial *trial)
{
    const struct ls_dataset_interface *ops = trial->opened->interface;
    if (ops->close)
        ops->close(trial->dataset);
    ls_instance_destroy(trial->dataset);
}

// ---- Any kind ----

static bool open_with(struct ls_instance_trial *trial, struct ls_loader *loader,
                      const struct ls_opened_plugin *opened, const struct ls_host *host,
                      struct ls_tally *tally)
{
    bool good = true;
    *trial = (struct ls_instance_trial){.opened = opened};
    switch (opened->plugin->kind) {
    case LS_KIND_DEVICE: good = open_device(trial, host, tally); break;
    case LS_KIND_TRANSPORT: good = open_transport(trial, host, tally); break;
    case LS_KIND_STRATEGY: good = open_strategy(trial, loader, host, tally); break;
    case LS_KIND_CALLBACK: good = open_callback(trial, host, tally); break;
    case LS_KIND_DATASET: good = open_dataset(trial, host, tally); break;
    default: break;
    }
    return good;
}

bool ls_instance_open(struct ls_instance_trial *trial, struct ls_loader *loader,
                      const struct ls_opened_plugin *opened, struct ls_tally *tally)
{
    if (open_with(trial, loader, opened, opened->host, tally))
        return true;
    if (trial->fake)
        close_strategy(trial);
    trial->opened = NULL;
    return false;
}

void ls_instance_use(struct ls_instance_trial *trial, struct ls_tally *tally)
{
    switch (trial->opened->plugin->kind) {
    case LS_KIND_COLLECTIVE: use_collective(trial, tally); break;
    case LS_KIND_DEVICE: use_device(trial, tally); break;
    case LS_KIND_TRANSPORT: use_transport(trial, tally); break;
    case LS_KIND_STRATEGY: use_strategy(trial, tally); break;
    case LS_KIND_DATASET: use_dataset(trial, tally); break;
    default: break;
    }
    trial->uses++;
}

void ls_instance_close(struct ls_instance_trial *trial)
{
    if (!trial->opened)
        return;
    const void *interface = trial->opened->interface;
    switch (trial->opened->plugin->kind) {
    case LS_KIND_DEVICE: ls_device_close(trial->device); break;
    case LS_KIND_TRANSPORT:
        for (int i = 0; i < 2; i++)
            ls_endpoint_close(interface, trial->endpoints[i]);
        break;
    case LS_KIND_STRATEGY: close_strategy(trial); break;
    case LS_KIND_CALLBACK: close_callback(trial); break;
    case LS_KIND_DATASET: close_dataset(trial); break;
    default: break;
    }
    *trial = (struct ls_instance_trial){0};
}

static void *allocate_nothing(const struct ls_host *host, uint64_t bytes, uint64_t alignment)
{
    (void)host;
    (void)bytes;
    (void)alignment;
    return NULL;
}

void ls_instance_starve(struct ls_loader *loader, const struct ls_opened_plugin *opened,
                        struct ls_tally *tally)
{
    struct ls_instance_trial trial = {0};
    struct ls_tally unheard; // that it does not open is as it should be
    struct ls_host poor = *opened->host;
    poor.allocate = allocate_nothing;
    if (opened->plugin->kind == LS_KIND_COLLECTIVE) {
        struct digest digest = {.status = LS_OUT_OF_MEMORY};
        if (has_schedule(opened))
            build_schedule(opened, &poor, 0, small_world(opened), &digest);
        if (digest.steps == MOST_STEPS)
            ls_tally_blame(tally,
                           "build_schedule goes on after the host has said that it has no memory");
        return;
    }
    ls_tally_init(&unheard, NULL, NULL, NULL, NULL);
    unheard.message[0] = '\0';
    const bool opens = open_with(&trial, loader, opened, &poor, &unheard);
    if (!opens && (trial.device || trial.strategy || trial.endpoints[0] || trial.endpoints[1]))
        ls_tally_blame(tally, "open without memory fails, but writes its result");
    if (opens)
        ls_instance_close(&trial);
    else if (trial.fake)
        close_strategy(&trial);
    ls_tally_finish(&unheard);
}
