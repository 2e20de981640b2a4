// SPDX-License-Identifier: Apache-2.0
// Recordings: what is launched between begin and end becomes one program. Within it memory is a
// list of values, each of a part of an allocation. What is read before anything wrote it is an
// argument; what is there at the end is a result. A result that replaces an argument takes its
// memory. Where members of a team reduce something, all of them record the same program, and replay
// it together.
#include "plugins/device/pjrt/program.h"
#include "plugins/device/pjrt/together.h"

// The newest value of a part of memory. No two of them overlap.
struct live {
    struct pjrt_range range;
    struct hlo_value value; // flat
    bool written; // else it is an argument, as it was
};

struct pjrt_program {
    struct hlo h;
    struct live *lives;
    struct pjrt_range *arguments;
    struct hlo_value *argument_values;
    uint32_t live_count, live_room, argument_count, argument_room;
    int32_t spoilt; // why it cannot be recorded
    struct pjrt_team *team; // that has operations in it; NULL: none
    uint32_t member;
};

struct ls_recording {
    struct PJRT_LoadedExecutable *executable;
    struct pjrt_range *arguments, *results;
    struct PJRT_Buffer **argument_buffers, **result_buffers; // of a replay
    uint32_t argument_count, result_count;
    struct pjrt_team *team; // that replays it together; NULL: the device alone
    uint32_t member;
};

int32_t pjrt_check_recording(struct ls_device *device, const char *what)
{
    if (!device->recording)
        return LS_OK;
    device->recording->spoilt = LS_UNSUPPORTED;
    return ls_host_fail(device->host, LS_UNSUPPORTED, "%s cannot be recorded", what);
}

static void *grown(void *items, uint32_t count, uint32_t *room, size_t bytes)
{
    if (count < *room)
        return items;
    const uint32_t more = 2 * *room + 16;
    void *larger = realloc(items, more * bytes);
    if (larger)
        *room = more;
    return larger;
}

static int32_t no_memory(struct ls_device *device)
{
    device->recording->spoilt = LS_OUT_OF_MEMORY;
    return ls_host_fail(device->host, LS_OUT_OF_MEMORY, "no memory for a recording");
}

// ---- Values of memory ----

static uint64_t end_of(const struct pjrt_range *range)
{
    return range->offset + range->bytes;
}

static bool add_live(struct pjrt_program *program, struct live live)
{
    struct live *lives =
        grown(program->lives, program->live_count, &program->live_room, sizeof(*lives));
    if (!lives)
        return false;
    program->lives = lives;
    lives[program->live_count++] = live;
    return true;
}

// A flat value as bytes.
static struct hlo_value bytes_of(struct hlo *h, struct hlo_value value)
{
    const int64_t count = value.shape.dims[0], size = (int64_t)ls_dtype_bytes(value.type);
    if (value.type == LS_U8)
        return value;
    return hlo_reshape(h, hlo_bitcast(h, value, LS_U8, HLO_SHAPE(count, size)),
                       hlo_flat(count * size));
}

static struct hlo_value typed(struct hlo *h, struct hlo_value value, uint32_t type)
{
    const int64_t size = (int64_t)ls_dtype_bytes(type);
    if (value.type == type)
        return value;
    if ((int64_t)ls_dtype_bytes(value.type) == size)
        return hlo_bitcast(h, value, type, value.shape);
    value = bytes_of(h, value);
    if (type == LS_U8)
        return value;
    const int64_t count = value.shape.dims[0] / size;
    return hlo_bitcast(h, hlo_reshape(h, value, HLO_SHAPE(count, size)), type, hlo_flat(count));
}

// The part of a live value from byte `offset` to `end` of its allocation.
static struct live part_of(struct hlo *h, const struct live *live, uint64_t offset, uint64_t end)
{
    const uint64_t size = ls_dtype_bytes(live->range.type);
    struct live part = *live;
    if (offset == live->range.offset && end == end_of(&live->range))
        return part;
    part.range.offset = offset;
    part.range.bytes = end - offset;
    if ((offset - live->range.offset) % size || (end - offset) % size) {
        part.value = bytes_of(h, live->value);
        part.range.type = LS_U8;
    }
    const uint64_t unit = ls_dtype_bytes(part.range.type);
    part.value = hlo_part(h, part.value, (int64_t)((offset - live->range.offset) / unit),
                          (int64_t)((end - offset) / unit));
    return part;
}

static int32_t add_argument(struct ls_device *device, struct pjrt_range range)
{
    struct pjrt_program *program = device->recording;
    uint32_t room = program->argument_room;
    struct pjrt_range *arguments =
        grown(program->arguments, program->argument_count, &room, sizeof(*arguments));
    if (!arguments)
        return no_memory(device);
    program->arguments = arguments;
    struct hlo_value *values = grown(program->argument_values, program->argument_count,
                                     &program->argument_room, sizeof(*values));
    if (!values)
        return no_memory(device);
    program->argument_values = values;
    if (range.bytes % ls_dtype_bytes(range.type))
        range.type = LS_U8;
    const struct hlo_value value = pjrt_program_argument(&program->h, &range);
    arguments[program->argument_count] = range;
    values[program->argument_count++] = value;
    return add_live(program, (struct live){range, value, false}) ? LS_OK : no_memory(device);
}

// Where the first gap between values at or after `offset` begins and ends; false: none before
// `end`.
static bool find_gap(const struct pjrt_program *program, const struct ls_buffer *buffer,
                     uint64_t *offset, uint64_t *end)
{
    for (bool moved = true; moved;) {
        moved = false;
        for (uint32_t i = 0; i < program->live_count; i++) {
            const struct pjrt_range *range = &program->lives[i].range;
            if (range->buffer == buffer && range->offset <= *offset && end_of(range) > *offset) {
                *offset = end_of(range);
                moved = true;
            }
        }
    }
    if (*offset >= *end)
        return false;
    for (uint32_t i = 0; i < program->live_count; i++) {
        const struct pjrt_range *range = &program->lives[i].range;
        if (range->buffer == buffer && range->offset > *offset && range->offset < *end)
            *end = range->offset;
    }
    return true;
}

// A gap is read as the parts that lie there now: so other programs have left them.
static int32_t fill_gap(struct ls_device *device, const struct pjrt_range *gap)
{
    uint64_t at = gap->offset;
    int32_t status = LS_OK;
    while (!status && at < end_of(gap)) {
        uint64_t end = end_of(gap);
        for (uint32_t i = 0; i < gap->buffer->cut_count; i++)
            if (gap->buffer->cuts[i] > at && gap->buffer->cuts[i] < end)
                end = gap->buffer->cuts[i];
        status = add_argument(device, (struct pjrt_range){gap->buffer, at, end - at, gap->type});
        at = end;
    }
    return status;
}

static int32_t fill_gaps(struct ls_device *device, const struct pjrt_range *wanted)
{
    uint64_t offset = wanted->offset, end = end_of(wanted);
    int32_t status = LS_OK;
    while (!status && find_gap(device->recording, wanted->buffer, &offset, &end)) {
        const struct pjrt_range gap = {wanted->buffer, offset, end - offset, wanted->type};
        status = fill_gap(device, &gap);
        offset = end;
        end = end_of(wanted);
    }
    return status;
}

// The live value that begins at, or covers, a byte.
static const struct live *live_at(const struct pjrt_program *program,
                                  const struct ls_buffer *buffer, uint64_t offset)
{
    for (uint32_t i = program->live_count; i > 0; i--) {
        const struct live *live = &program->lives[i - 1];
        if (live->range.buffer == buffer && live->range.offset <= offset &&
            end_of(&live->range) > offset)
            return live;
    }
    return NULL;
}

// Puts parts that lie one behind the other together; bytes, where one of them is not of the type
// wanted.
static struct hlo_value joined(struct hlo *h, struct hlo_value *parts, uint32_t count,
                               uint32_t type)
{
    bool bytes = false;
    for (uint32_t i = 0; i < count; i++)
        bytes = bytes || parts[i].type != type;
    for (uint32_t i = 0; bytes && i < count; i++)
        parts[i] = bytes_of(h, parts[i]);
    return hlo_concatenate(h, parts, count, 0);
}

enum { JOINED_AT_ONCE = 64 };

static int32_t read_value(struct ls_device *device, const struct pjrt_range *wanted,
                          struct hlo_value *out)
{
    struct pjrt_program *program = device->recording;
    struct hlo *h = &program->h;
    struct hlo_value parts[JOINED_AT_ONCE];
    uint32_t count = 0;
    const int32_t status = fill_gaps(device, wanted);
    if (status)
        return status;
    for (uint64_t at = wanted->offset; at < end_of(wanted);) {
        const struct live *live = live_at(program, wanted->buffer, at);
        const uint64_t end =
            end_of(&live->range) < end_of(wanted) ? end_of(&live->range) : end_of(wanted);
        const struct live part = part_of(h, live, at, end);
        // A part that ends within an element stays bytes.
        const bool whole = part.range.bytes % ls_dtype_bytes(wanted->type) == 0;
        parts[count++] = whole ? typed(h, part.value, wanted->type) : bytes_of(h, part.value);
        at = end;
        if (count == JOINED_AT_ONCE) {
            parts[0] = joined(h, parts, count, wanted->type);
            count = 1;
        }
    }
    *out = typed(h, joined(h, parts, count, wanted->type), wanted->type);
    return LS_OK;
}

// What overlaps a part that is written anew keeps what lies beyond it.
static bool make_way(struct pjrt_program *program, const struct pjrt_range *range)
{
    for (uint32_t i = program->live_count; i > 0; i--) {
        const struct live live = program->lives[i - 1];
        if (live.range.buffer != range->buffer || live.range.offset >= end_of(range) ||
            end_of(&live.range) <= range->offset)
            continue;
        program->lives[i - 1] = program->lives[--program->live_count];
        if (live.range.offset < range->offset &&
            !add_live(program, part_of(&program->h, &live, live.range.offset, range->offset)))
            return false;
        if (end_of(&live.range) > end_of(range) &&
            !add_live(program, part_of(&program->h, &live, end_of(range), end_of(&live.range))))
            return false;
    }
    return true;
}

static int32_t write_value(struct ls_device *device, const struct pjrt_range *range,
                           struct hlo_value value)
{
    struct pjrt_program *program = device->recording;
    if (!make_way(program, range) || !add_live(program, (struct live){*range, value, true}))
        return no_memory(device);
    return LS_OK;
}

// ---- What is recorded ----

static int32_t spoilt(struct ls_device *device, int32_t status)
{
    if (status && !device->recording->spoilt)
        device->recording->spoilt = status;
    return status;
}

int32_t pjrt_record_launch(struct ls_device *device, const struct ls_kernel *kernel,
                           const struct ls_launch *launch)
{
    struct pjrt_access access;
    struct hlo_value reads[2 * PJRT_MAX_ARGUMENTS], writes[PJRT_MAX_ARGUMENTS];
    int32_t status = device->recording->spoilt;
    pjrt_access_of(kernel, launch, &access);
    for (uint32_t i = 0; !status && i < access.read_count; i++)
        status = read_value(device, &access.reads[i], &reads[i]);
    if (!status)
        pjrt_emit(&device->recording->h, kernel, reads, writes);
    for (uint32_t i = 0; !status && i < access.written_count; i++)
        status = write_value(device, &access.writes[i], writes[i]);
    return spoilt(device, status);
}

static uint32_t type_of(const struct pjrt_program *program, struct ls_memory memory, uint64_t bytes)
{
    const struct live *live = live_at(program, memory.buffer, memory.offset);
    const uint32_t type = live ? live->range.type : LS_F32;
    const uint64_t size = ls_dtype_bytes(type);
    return bytes % size ? LS_U8 : type;
}

int32_t pjrt_record_zero(struct ls_device *device, struct ls_memory memory, uint64_t bytes)
{
    struct pjrt_program *program = device->recording;
    if (!memory.buffer)
        return pjrt_check_recording(device, "host memory");
    const struct pjrt_range range = {memory.buffer, memory.offset, bytes,
                                     type_of(program, memory, bytes)};
    const int64_t count = (int64_t)(bytes / ls_dtype_bytes(range.type));
    return spoilt(device, write_value(device, &range,
                                      hlo_constant(&program->h, range.type, hlo_flat(count), 0)));
}

int32_t pjrt_record_copy(struct ls_device *device, struct ls_memory to, struct ls_memory from,
                         uint64_t bytes)
{
    const uint32_t type = type_of(device->recording, from, bytes);
    const struct pjrt_range source = {from.buffer, from.offset, bytes, type},
                            target = {to.buffer, to.offset, bytes, type};
    struct hlo_value value;
    int32_t status = read_value(device, &source, &value);
    if (!status)
        status = write_value(device, &target, value);
    return spoilt(device, status);
}

int32_t pjrt_record_together(struct ls_device *device, struct pjrt_team *team, uint32_t member,
                             const struct pjrt_range *range, const struct ls_collective_run *run)
{
    struct pjrt_program *program = device->recording;
    struct hlo_value value;
    if (program->team && program->team != team)
        return pjrt_check_recording(device, "what two teams of replicas reduce");
    program->team = team;
    program->member = member;
    int32_t status = read_value(device, range, &value);
    if (!status)
        status = write_value(device, range, pjrt_team_emit(&program->h, team, run, value));
    return spoilt(device, status);
}

// ---- Begin, end ----

int32_t pjrt_record_begin(struct ls_device *device)
{
    if (device->recording)
        return pjrt_check_recording(device, "another recording");
    device->recording = calloc(1, sizeof(*device->recording));
    return device->recording
               ? LS_OK
               : ls_host_fail(device->host, LS_OUT_OF_MEMORY, "no memory for a recording");
}

static void finish_program(struct pjrt_program *program)
{
    hlo_finish(&program->h);
    free(program->lives);
    free(program->arguments);
    free(program->argument_values);
    free(program);
}

void pjrt_release_recording(struct ls_device *device, struct ls_recording *recording)
{
    (void)device;
    if (!recording)
        return;
    free(recording->arguments);
    free(recording->results);
    free(recording->argument_buffers);
    free(recording->result_buffers);
    free(recording);
}

// Where programs read parts, this one leaves parts: other recordings then find them as they are.
static bool cut_at_arguments(const struct pjrt_program *program)
{
    for (uint32_t i = 0; i < program->argument_count; i++)
        if (!pjrt_cut(program->arguments[i].buffer, program->arguments[i].offset) ||
            !pjrt_cut(program->arguments[i].buffer, end_of(&program->arguments[i])))
            return false;
    return true;
}

static bool cut_lives(struct pjrt_program *program)
{
    for (uint32_t i = 0; i < program->live_count; i++) {
        const struct ls_buffer *buffer = program->lives[i].range.buffer;
        for (uint32_t k = 0; program->lives[i].written && k < buffer->cut_count; k++) {
            const struct live live = program->lives[i];
            const uint64_t cut = buffer->cuts[k];
            if (cut <= live.range.offset || cut >= end_of(&live.range))
                continue;
            program->lives[i] = part_of(&program->h, &live, live.range.offset, cut);
            if (!add_live(program, part_of(&program->h, &live, cut, end_of(&live.range))))
                return false;
        }
    }
    return true;
}

static bool is_same_range(const struct pjrt_range *one, const struct pjrt_range *other)
{
    return one->buffer == other->buffer && one->offset == other->offset &&
           one->bytes == other->bytes && one->type == other->type;
}

// Room for what a replay reads and writes, and what is written.
static bool list_results(const struct pjrt_program *program, struct ls_recording *recording,
                         struct hlo_value *values)
{
    recording->results = calloc(program->live_count + 1, sizeof(*recording->results));
    recording->result_buffers = calloc(program->live_count + 1, sizeof(void *));
    recording->argument_buffers = calloc(program->argument_count + 1, sizeof(void *));
    if (!recording->results || !recording->result_buffers || !recording->argument_buffers)
        return false;
    for (uint32_t i = 0; i < program->live_count; i++)
        if (program->lives[i].written) {
            recording->results[recording->result_count] = program->lives[i].range;
            values[recording->result_count++] = program->lives[i].value;
        }
    return true;
}

// What is read and written anew is given away.
static void give_arguments(const struct pjrt_program *program, const struct ls_recording *recording,
                           uint32_t *given_to)
{
    for (uint32_t i = 0; i < program->argument_count; i++)
        for (uint32_t k = 0; k < recording->result_count && !given_to[i]; k++)
            if (is_same_range(&program->arguments[i], &recording->results[k]))
                given_to[i] = k + 1;
}

static int32_t compile(struct ls_device *device, struct pjrt_program *program,
                       struct ls_recording *recording)
{
    struct hlo_value *results = calloc(program->live_count + 1, sizeof(*results));
    uint32_t *given_to = calloc(program->argument_count + 1, sizeof(*given_to));
    struct hlo text = {0};
    int32_t status = LS_OK;
    if (!results || !given_to || !list_results(program, recording, results)) {
        status = no_memory(device);
    } else {
        const struct pjrt_function function = {
            .instructions = &program->h,
            .arguments = program->argument_values,
            .results = results,
            .argument_count = program->argument_count,
            .result_count = recording->result_count,
            .given_to = given_to,
            .replicas = program->team ? pjrt_team_count(program->team) : 0};
        give_arguments(program, recording, given_to);
        pjrt_program_print(&function, &text);
        status = text.failed ? no_memory(device) : LS_OK;
    }
    if (!status && program->team)
        status = pjrt_team_compile(program->team, program->member, &text, &recording->executable);
    else if (!status)
        status = pjrt_compile(&device->caller, "a recorded step", text.text, text.length, NULL, 0,
                              &recording->executable);
    hlo_finish(&text);
    free(results);
    free(given_to);
    recording->team = program->team;
    recording->member = program->member;
    recording->arguments = program->arguments;
    recording->argument_count = program->argument_count;
    program->arguments = NULL;
    return status;
}

int32_t pjrt_record_end(struct ls_device *device, struct ls_recording **out)
{
    struct pjrt_program *program = device->recording;
    if (!program)
        return ls_host_fail(device->host, LS_FAILED, "nothing is recorded");
    int32_t status = program->spoilt; // said before
    struct ls_recording *recording = status ? NULL : calloc(1, sizeof(*recording));
    if (!status && (!recording || !cut_at_arguments(program) || !cut_lives(program)))
        status = no_memory(device);
    if (!status)
        status = compile(device, program, recording);
    if (status)
        pjrt_release_recording(device, recording);
    else
        *out = recording;
    finish_program(program);
    device->recording = NULL;
    return status;
}

int32_t pjrt_replay(struct ls_device *device, const struct ls_recording *recording)
{
    int32_t status = pjrt_check_recording(device, "a replay");
    for (uint32_t i = 0; !status && i < recording->argument_count; i++)
        status = pjrt_fetch(device, &recording->arguments[i], &recording->argument_buffers[i]);
    if (!status)
        status = recording->team
                     ? pjrt_team_execute(recording->team, recording->member, recording->executable,
                                         recording->argument_buffers, recording->argument_count,
                                         recording->result_buffers)
                     : pjrt_execute(&device->caller, "a recorded step", recording->executable,
                                    recording->argument_buffers, recording->argument_count,
                                    recording->result_buffers);
    if (status)
        return status;
    for (uint32_t i = 0; i < recording->result_count; i++) {
        const int32_t stored =
            pjrt_store(device, &recording->results[i], recording->result_buffers[i]);
        status = status ? status : stored;
    }
    return status;
}
