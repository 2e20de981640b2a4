// SPDX-License-Identifier: Apache-2.0
// Variables and optimizer as bytes: little-endian numbers, and texts with a length before them.
#include "core/strategy/description.h"

#include "core/base/log.h"
#include "core/wire/frame.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC UINT64_C(0x3143534544534c) // "LSDESC1"
#define MOST_PLACES 1000000u
#define MOST_BYTES (UINT64_C(1) << 44) // of a flat buffer
#define TEXT_BYTES 2048

// ---- Writing ----

struct writer {
    uint8_t *out;
    uint64_t room, bytes;
};

static void put(struct writer *writer, const void *data, uint64_t bytes)
{
    if (writer->bytes + bytes <= writer->room)
        memcpy(writer->out + writer->bytes, data, bytes);
    writer->bytes += bytes;
}

static void put_number(struct writer *writer, uint64_t number, size_t bytes)
{
    uint8_t data[8];
    for (size_t i = 0; i < bytes; i++)
        data[i] = (uint8_t)(number >> 8 * i);
    put(writer, data, bytes);
}

static void put_text(struct writer *writer, const char *text)
{
    const size_t length = strlen(text) < UINT16_MAX ? strlen(text) : UINT16_MAX;
    put_number(writer, length, 2);
    put(writer, text, length);
}

// As --optimizer= takes it. Numbers have all their digits.
static bool write_optimizer(const struct ls_optimizer *optimizer, char *text, size_t room)
{
    int length =
        snprintf(text, room, "%s:learning_rate=%.17g", optimizer->name, optimizer->learning_rate);
    for (uint32_t i = 0; i < optimizer->option_count && length > 0 && (size_t)length < room; i++)
        length += snprintf(text + length, room - (size_t)length, ",%s=%.17g",
                           optimizer->options[i].name, optimizer->options[i].value);
    if (*optimizer->excluded && length > 0 && (size_t)length < room)
        length += snprintf(text + length, room - (size_t)length, ",exclude_from_weight_decay=%s",
                           optimizer->excluded);
    return length > 0 && (size_t)length < room;
}

enum ls_status ls_describe(const struct ls_described *described, void *out, uint64_t room,
                           uint64_t *bytes)
{
    const struct ls_parameter_plan *plan = described->plan;
    struct writer writer = {.out = out, .room = room};
    char text[TEXT_BYTES];
    if (described->optimizer->own.update ||
        !write_optimizer(described->optimizer, text, sizeof(text))) {
        ls_error("--optimizer",
                 "optimizer '%s' is a function of this program, which a server process does not "
                 "have; use one by name, or servers in the workers' process",
                 described->optimizer->name);
        return LS_USAGE;
    }
    if (described->optimizer->averages) {
        ls_error("--optimizer",
                 "use_ema=on: the averages of the weights stay on server processes, and the model "
                 "would not get them; leave it out, or use servers in the workers' process");
        return LS_USAGE;
    }
    put_number(&writer, MAGIC, 8);
    put_number(&writer, described->seed, 8);
    put_text(&writer, text);
    put_text(&writer, described->agreement ? described->agreement : "");
    put_number(&writer, plan->reduced_bytes, 8);
    put_number(&writer, plan->statistics_bytes, 8);
    put_number(&writer, plan->reduced_count, 4);
    for (uint32_t i = 0; i < plan->reduced_count; i++) {
        const struct ls_parameter_place *place = &plan->places[i];
        const float momentum = (float)place->parameter->momentum;
        uint32_t bits;
        memcpy(&bits, &momentum, sizeof(bits));
        put_number(&writer, place->offset, 8);
        put_number(&writer, place->bytes, 8);
        put_number(&writer, place->parameter->zone == LS_ZONE_STATISTICS, 1);
        put_number(&writer, bits, 4);
        put_text(&writer, place->parameter->name);
    }
    *bytes = writer.bytes;
    return LS_OK;
}

// ---- Reading ----

void ls_description_finish(struct ls_description *description)
{
    free(description->plan.places);
    free(description->tensors);
    free(description->names);
    memset(description, 0, sizeof(*description));
}

// The next place, which must lie behind those before it.
static bool read_place(struct ls_frame_reader *reader, struct ls_description *out, uint32_t index,
                       char *name, size_t room)
{
    struct ls_parameter_plan *plan = &out->plan;
    struct ls_parameter_place *place = &plan->places[index];
    struct ls_tensor *tensor = &out->tensors[index];
    place->offset = ls_frame_get_u64(reader);
    place->bytes = ls_frame_get_u64(reader);
    const uint8_t statistics = ls_frame_get_u8(reader);
    const uint32_t bits = ls_frame_get_u32(reader);
    float momentum;
    memcpy(&momentum, &bits, sizeof(momentum));
    ls_frame_get_text(reader, name, room);
    const uint64_t after =
        index ? plan->places[index - 1].offset + plan->places[index - 1].bytes : 0;
    tensor->zone = statistics ? LS_ZONE_STATISTICS : LS_ZONE_TRAINED;
    tensor->momentum = (double)momentum;
    tensor->name = name;
    place->parameter = tensor;
    const bool fits = place->offset >= after && place->offset % LS_ALIGNMENT == 0 &&
                      place->offset <= plan->reduced_bytes && place->bytes &&
                      place->bytes % sizeof(float) == 0 &&
                      place->bytes <= plan->reduced_bytes - place->offset;
    const bool in_zone = statistics == (place->offset < plan->statistics_bytes) &&
                         (!statistics || place->offset + place->bytes <= plan->statistics_bytes);
    return !reader->wrong && fits && in_zone && statistics <= 1 && momentum >= 0 && momentum <= 1;
}

static enum ls_status read_places(struct ls_frame_reader *reader, struct ls_description *out)
{
    struct ls_parameter_plan *plan = &out->plan;
    plan->reduced_bytes = ls_frame_get_u64(reader);
    plan->statistics_bytes = ls_frame_get_u64(reader);
    const uint32_t count = ls_frame_get_u32(reader);
    if (reader->wrong || count == 0 || count > MOST_PLACES || count > reader->left ||
        plan->reduced_bytes > MOST_BYTES || plan->reduced_bytes % LS_ALIGNMENT ||
        plan->statistics_bytes > plan->reduced_bytes)
        return LS_BAD_INPUT;
    plan->flat_bytes = plan->reduced_bytes;
    const size_t names = reader->left + count; // each with its final zero
    plan->places = calloc(count, sizeof(*plan->places));
    out->tensors = calloc(count, sizeof(*out->tensors));
    out->names = malloc(names);
    if (!plan->places || !out->tensors || !out->names)
        return LS_OUT_OF_MEMORY;
    char *name = out->names;
    for (uint32_t i = 0; i < count; i++) {
        if (!read_place(reader, out, i, name, names - (size_t)(name - out->names)))
            return LS_BAD_INPUT;
        name += strlen(name) + 1;
    }
    plan->place_count = plan->reduced_count = count;
    return reader->wrong || reader->left ? LS_BAD_INPUT : LS_OK;
}

enum ls_status ls_description_read(const void *data, uint64_t bytes, struct ls_description *out)
{
    struct ls_frame_reader reader = {.at = data, .left = bytes};
    struct ls_description description = {0};
    char text[TEXT_BYTES], agreement[TEXT_BYTES];
    const uint64_t magic = ls_frame_get_u64(&reader);
    description.seed = ls_frame_get_u64(&reader);
    ls_frame_get_text(&reader, text, sizeof(text));
    ls_frame_get_text(&reader, agreement, sizeof(agreement));
    enum ls_status status =
        reader.wrong || magic != MAGIC ? LS_BAD_INPUT : read_places(&reader, &description);
    if (!status && ls_optimizer_parse(text, &description.optimizer))
        status = LS_BAD_INPUT;
    if (status == LS_BAD_INPUT)
        ls_error("strategy", "the description of variables and optimizer makes no sense: a worker "
                             "of another version of Lockstep sent it?");
    if (status)
        ls_description_finish(&description);
    else
        *out = description;
    return status;
}
