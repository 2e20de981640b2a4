// SPDX-License-Identifier: Apache-2.0
// Draws a schedule: a child process records what each rank describes, unchecked, in shared memory; the parent prints it.
#include "tools/verify_draw.h"

#include "core/base/child.h"
#include "core/schedule/schedule.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STEPS_MOST 16384 // that are drawn
#define ROUNDS_MOST 1024
#define CELL 128 // bytes

// What the child leaves.
struct sheet {
    volatile uint64_t beat; // ranks that are described
    uint32_t rounds[VERIFY_DRAW_WORLD]; // of each rank
    uint64_t scratch[VERIFY_DRAW_WORLD]; // elements
    bool cut; // there is more than can be drawn
    uint32_t step_count;
    struct drawn_step {
        uint32_t rank, round;
        struct ls_step step;
    } steps[STEPS_MOST];
};

// ---- In the child ----

struct recorder {
    const struct verify_drawing *drawing;
    struct sheet *sheet;
    uint32_t rank;
    bool open; // the running round has steps
};

// a build_schedule that ignores what its calls return could go on for ever.
_Noreturn static void leave(struct recorder *recorder)
{
    recorder->sheet->cut = true;
    ls_child_leave();
}

static int32_t add(struct ls_schedule *schedule, const struct ls_step *step)
{
    struct recorder *recorder = schedule->context;
    struct sheet *sheet = recorder->sheet;
    if (sheet->step_count == STEPS_MOST)
        leave(recorder);
    recorder->open = true;
    if (step->range.count)
        sheet->steps[sheet->step_count++] =
            (struct drawn_step){recorder->rank, sheet->rounds[recorder->rank], *step};
    return LS_OK;
}

static int32_t end_round(struct ls_schedule *schedule)
{
    struct recorder *recorder = schedule->context;
    recorder->open = false;
    if (++recorder->sheet->rounds[recorder->rank] == ROUNDS_MOST)
        leave(recorder);
    return LS_OK;
}

static int32_t scratch(struct ls_schedule *schedule, uint64_t count)
{
    struct recorder *recorder = schedule->context;
    uint64_t *most = &recorder->sheet->scratch[recorder->rank];
    *most = count > *most ? count : *most;
    return LS_OK;
}

static void describe_all(void *argument, void *shared)
{
    const struct verify_drawing *drawing = argument;
    const struct ls_verify_case *drawn = drawing->drawn;
    struct sheet *sheet = shared;
    uint32_t *hosts;
    if (ls_uniform_hosts(drawn->world, drawn->ranks_per_host, &hosts))
        return;
    for (uint32_t rank = 0; rank < drawn->world; rank++) {
        const struct ls_collective_call call = {
            .struct_size = sizeof(call),
            .operation = drawn->operation,
            .rank = rank,
            .world = drawn->world,
            .root = drawn->root,
            .hosts = hosts,
            .count = drawn->count,
            .element_bytes = drawn->element_bytes,
            .host = drawing->opened->host,
        };
        struct recorder recorder = {.drawing = drawing, .sheet = sheet, .rank = rank};
        struct ls_schedule schedule = {.struct_size = sizeof(schedule),
                                       .context = &recorder,
                                       .add = add,
                                       .end_round = end_round,
                                       .scratch = scratch};
        // What it returns has been judged by the verifier.
        (void)ls_schedule_build(drawing->opened->interface, &call, &schedule);
        sheet->rounds[rank] += recorder.open;
        sheet->beat++;
    }
    free(hosts);
}

// ---- In the parent ----

static const struct notation {
    const char *sign, *legend;
} notations[] = {
    [0] = {"?", NULL}, // no such step
    [LS_STEP_SEND] = {"->", "a-b -> r      sends elements a to b to rank r"},
    [LS_STEP_RECEIVE] = {"<-", "a-b <- r      receives elements a to b from rank r"},
    [LS_STEP_RECEIVE_AND_REDUCE] = {"<+",
                                    "a-b <+ r      receives from rank r and reduces into a to b"},
    [LS_STEP_REDUCE] = {"+=", "a-b += c-d    reduces c to d, on this rank, into a to b"},
    [LS_STEP_COPY] = {"=", "a-b = c-d     copies c to d, on this rank, to a to b"},
};
#define KINDS (sizeof(notations) / sizeof(notations[0]))

static const struct notation *notation_of(uint32_t kind)
{
    return &notations[kind < KINDS ? kind : 0];
}

static void put_range(const struct ls_range *range, char *text, size_t bytes)
{
    const char *buffer = range->buffer == LS_BUFFER_DATA      ? ""
                         : range->buffer == LS_BUFFER_SCRATCH ? "s"
                                                              : "?";
    if (range->count == 1)
        snprintf(text, bytes, "%s%" PRIu64, buffer, range->offset);
    else
        snprintf(text, bytes, "%s%" PRIu64 "-%" PRIu64, buffer, range->offset,
                 range->offset + range->count - 1);
}

// "0-7 -> 1", "8-15 += s0-7".
static const char *step_text(const struct ls_step *step, char text[static CELL])
{
    char range[48], from[48];
    put_range(&step->range, range, sizeof(range));
    put_range(&step->from, from, sizeof(from));
    const char *sign = notation_of(step->kind)->sign;
    if (step->kind == LS_STEP_REDUCE || step->kind == LS_STEP_COPY)
        snprintf(text, CELL, "%s %s %s", range, sign, from);
    else
        snprintf(text, CELL, "%s %s %" PRIu32, range, sign, step->peer);
    return text;
}

// One line of cells, without spaces at its end.
static void print_cells(char (*cells)[CELL], uint32_t count, int width)
{
    while (count && !*cells[count - 1])
        count--;
    for (uint32_t i = 0; i < count; i++)
        printf("  %-*s", i + 1 < count ? width : 0, cells[i]);
    putchar('\n');
}

static void print_legend(const struct sheet *sheet)
{
    bool used[KINDS] = {false}, scratch = false;
    for (uint32_t i = 0; i < sheet->step_count; i++) {
        const struct ls_step *step = &sheet->steps[i].step;
        const bool local = step->kind == LS_STEP_REDUCE || step->kind == LS_STEP_COPY;
        used[step->kind < KINDS ? step->kind : 0] = true;
        scratch = scratch || step->range.buffer == LS_BUFFER_SCRATCH ||
                  (local && step->from.buffer == LS_BUFFER_SCRATCH);
    }
    for (size_t kind = 1; kind < KINDS; kind++)
        if (used[kind])
            printf("  %s\n", notations[kind].legend);
    if (scratch)
        printf("  s             elements of scratch\n");
}

static int column_width(const struct sheet *sheet)
{
    char text[CELL];
    size_t width = strlen("rank 15");
    for (uint32_t i = 0; i < sheet->step_count; i++) {
        const size_t length = strlen(step_text(&sheet->steps[i].step, text));
        width = length > width ? length : width;
    }
    return (int)width;
}

// What is printed next.
struct cursor {
    const struct verify_drawing *drawing;
    const struct sheet *sheet;
    int width; // of a column
    uint32_t mark_rank, mark_round; // UINT32_MAX: nothing is marked
    uint32_t
        next[VERIFY_DRAW_WORLD]; // step of each rank; they come rank by rank, and round by round
};

// The next step of a rank, if it is of this round.
static const struct ls_step *take_step(struct cursor *cursor, uint32_t rank, uint32_t round)
{
    const uint32_t next = cursor->next[rank];
    const struct drawn_step *step = &cursor->sheet->steps[next];
    if (next == cursor->sheet->step_count || step->rank != rank || step->round != round)
        return NULL;
    cursor->next[rank]++;
    return &step->step;
}

static void print_mark(const struct cursor *cursor)
{
    char cells[VERIFY_DRAW_WORLD][CELL] = {{0}};
    snprintf(cells[cursor->mark_rank], CELL, "^ here");
    print_cells(cells, cursor->mark_rank + 1, cursor->width);
}

static void print_round(struct cursor *cursor, uint32_t round)
{
    const uint32_t world = cursor->drawing->drawn->world;
    bool any = true;
    printf("round %u\n", round);
    for (uint32_t n = 0; any; n++) {
        char cells[VERIFY_DRAW_WORLD][CELL] = {{0}};
        any = false;
        for (uint32_t rank = 0; rank < world; rank++) {
            const struct ls_step *step = take_step(cursor, rank, round);
            if (step)
                step_text(step, cells[rank]);
            else if (n == 0)
                snprintf(cells[rank], CELL, "-");
            any = any || step;
        }
        if (any || n == 0)
            print_cells(cells, world, cursor->width);
    }
    if (cursor->mark_round == round)
        print_mark(cursor);
}

static bool is_empty(const struct cursor *cursor, uint32_t round)
{
    for (uint32_t rank = 0; rank < cursor->drawing->drawn->world; rank++) {
        struct cursor look = *cursor;
        if (take_step(&look, rank, round))
            return false;
    }
    return true;
}

static void print_rounds(struct cursor *cursor, uint32_t rounds)
{
    for (uint32_t round = 0; round < rounds; round++) {
        uint32_t end = round;
        while (end < rounds && end != cursor->mark_round && is_empty(cursor, end))
            end++;
        if (end == round) {
            print_round(cursor, round);
            continue;
        }
        if (end == round + 1)
            printf("round %u: no steps\n", round);
        else
            printf("rounds %u to %u: no steps\n", round, end - 1);
        round = end - 1;
    }
}

static void print_heading(const struct verify_drawing *drawing, const struct sheet *sheet,
                          int width)
{
    const uint32_t world = drawing->drawn->world;
    char ranks[VERIFY_DRAW_WORLD][CELL] = {{0}}, scratch[VERIFY_DRAW_WORLD][CELL] = {{0}};
    bool any = false;
    for (uint32_t rank = 0; rank < world; rank++) {
        const struct ls_range range = ls_scratch_range(0, sheet->scratch[rank]);
        snprintf(ranks[rank], CELL, "rank %u", rank);
        snprintf(scratch[rank], CELL, "-");
        if (range.count)
            put_range(&range, scratch[rank], CELL);
        any = any || range.count;
    }
    putchar('\n');
    print_cells(ranks, world, width);
    if (any) {
        printf("scratch\n");
        print_cells(scratch, world, width);
    }
}

// `whole`: all ranks were described.
static void print_sheet(const struct verify_drawing *drawing, const struct sheet *sheet, bool whole)
{
    const struct ls_verification *found = drawing->found;
    const uint32_t world = drawing->drawn->world;
    struct cursor cursor = {.drawing = drawing,
                            .sheet = sheet,
                            .width = column_width(sheet),
                            .mark_rank = found ? found->rank : 0,
                            .mark_round = found ? found->round : UINT32_MAX};
    uint32_t rounds = 0;
    for (uint32_t rank = 0; rank < world; rank++) {
        rounds = sheet->rounds[rank] > rounds ? sheet->rounds[rank] : rounds;
        while (cursor.next[rank] < sheet->step_count && sheet->steps[cursor.next[rank]].rank < rank)
            cursor.next[rank]++;
    }
    if (!whole && found && (drawing->build_ended_it || found->round >= rounds)) {
        cursor.mark_rank = (uint32_t)sheet->beat;
        cursor.mark_round = sheet->rounds[sheet->beat];
        rounds = cursor.mark_round >= rounds ? cursor.mark_round + 1 : rounds;
    }
    print_legend(sheet);
    print_heading(drawing, sheet, cursor.width);
    print_rounds(&cursor, rounds);
    if (sheet->cut)
        printf("... cut here: a drawing has at most %u steps, and %u rounds\n", STEPS_MOST,
               ROUNDS_MOST);
    if (sheet->beat + 1 < world)
        printf("ranks behind rank %u were not described\n", (uint32_t)sheet->beat);
    if (whole && found && found->round >= rounds) {
        printf("in the end\n");
        print_mark(&cursor);
    }
}

enum ls_status verify_draw(const struct verify_drawing *drawing)
{
    struct sheet *sheet = ls_child_memory_create(sizeof(*sheet));
    if (!sheet)
        return LS_OUT_OF_MEMORY;
    const struct ls_child_work work = {
        .scope = "verify",
        .run = describe_all,
        .argument = (void *)(uintptr_t)drawing,
        .shared = sheet,
        .beat = &sheet->beat,
        .deadline_ns = drawing->deadline_ns,
    };
    struct ls_child_end end;
    // How it ended was said by the verifier, which ran the same.
    const enum ls_status status = ls_child_run(&work, &end);
    if (!status)
        print_sheet(drawing, sheet, sheet->beat == drawing->drawn->world);
    ls_child_memory_destroy(sheet, sizeof(*sheet));
    return status;
}
