// SPDX-License-Identifier: Apache-2.0
// Runs the threads of kernels (fibers.h).
#define _GNU_SOURCE
#include "tests/support/cuda-fake/fibers.h"
#include "core/attributes.h"

#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

// ---- Switching from one stack to another ----

#ifdef __x86_64__

typedef void *context; // the stack pointer of who does not run
void double_switch_stack(context *from, context to);
__asm__(".text\n"
        ".hidden double_switch_stack\n"
        ".globl double_switch_stack\n"
        ".type double_switch_stack, @function\n"
        "double_switch_stack:\n"
        "push %rbp\n push %rbx\n push %r12\n push %r13\n push %r14\n push %r15\n"
        "mov %rsp, (%rdi)\n"
        "mov %rsi, %rsp\n"
        "pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbx\n pop %rbp\n"
        "ret\n"
        ".size double_switch_stack, . - double_switch_stack\n");

static void context_switch(context *from, context *to)
{
    double_switch_stack(from, *to);
}

static void context_make(context *out, char *stack, size_t bytes, void (*enter)(void))
{
    void **top = (void **)(void *)(stack + bytes) - 8; // six registers, the entry, its caller
    memset(top, 0, 8 * sizeof(*top));
    memcpy(&top[6], &enter, sizeof(enter));
    *out = top;
}

#else // swapcontext() asks the system for each switch: a hundred times slower
#include <ucontext.h>

typedef ucontext_t context;

static void context_switch(context *from, context *to)
{
    swapcontext(from, to);
}

static void context_make(context *out, char *stack, size_t bytes, void (*enter)(void))
{
    getcontext(out);
    out->uc_stack = (stack_t){.ss_sp = stack, .ss_size = bytes};
    makecontext(out, enter, 0);
}

#endif

// Who runs on a stack: a fiber, or the thread of the process that runs the kernel.
struct side {
    context at;
    const void *stack; // for AddressSanitizer
    size_t bytes;
    void *sanitizer; // ThreadSanitizer's fiber
};

// The sanitizers are told: else they take the other stack for an overflow of this one.
static void side_switch(struct side *from, struct side *to)
{
#ifdef __SANITIZE_ADDRESS__
    void *frames;
    __sanitizer_start_switch_fiber(&frames, to->stack, to->bytes);
#endif
#ifdef __SANITIZE_THREAD__
    __tsan_switch_to_fiber(to->sanitizer, 0);
#endif
    context_switch(&from->at, &to->at);
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(frames, &to->stack, &to->bytes); // it comes back from there
#endif
}

// ---- Threads of a block ----

enum state { NEW, READY, WAITS_FOR_BLOCK, WAITS_FOR_WARP, OVER };

struct fiber {
    struct side side;
    struct runner *runner;
    unsigned thread; // that it runs
};

struct thread {
    enum state state;
    struct fiber *fiber; // NULL: none yet, or over
    struct double_place place; // where it waits
    uint32_t mask; // for whom of its warp
    uint64_t value; // that it shows them
};

enum kind { BACKWARD, FORWARD, RANDOM };

// Of `count` things, `next` and every `step`-th one behind it, around in a circle.
struct order {
    uint64_t next, step, count, left;
};

struct runner {
    struct side side;
    const struct double_grid *grid;
    unsigned count, over; // threads of the block
    unsigned made, idle_count; // fibers
    int waits; // whether a thread of this launch has waited
    int shows; // whether one has waited for its warp
    enum kind kind; // of order
    uint64_t seed;
    struct order order; // of the threads whose turn has not come yet
    int next; // the thread that goes on; -1: all have had their turn
    struct thread threads[DOUBLE_BLOCK];
    struct double_lanes lanes[DOUBLE_BLOCK]; // what a thread was shown
    struct fiber fibers[DOUBLE_BLOCK];
    struct fiber *idle[DOUBLE_BLOCK];
    _Alignas(16) unsigned char dynamic[DOUBLE_SHARED];
    struct runner *below; // of those that nobody uses
};

enum { STACK_BYTES = 64 << 10, GUARD_BYTES = 4 << 10 };

__thread struct double_dim threadIdx, blockIdx, blockDim, gridDim;
LS_INITIAL_EXEC static __thread struct runner *running; // on this thread of the process
LS_INITIAL_EXEC static __thread unsigned current; // thread of the block

__attribute__((noreturn)) static void misuse(const struct double_place *place, const char *what)
{
    fprintf(stderr, "cuda-fake: block (%u,%u,%u), thread (%u,%u,%u), %s:%d: %s\n", blockIdx.x,
            blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z, place->file, place->line,
            what);
    abort();
}

static struct double_dim place_in(struct double_dim size, uint64_t i)
{
    if (size.y == 1 && size.z == 1)
        return (struct double_dim){(unsigned)i, 0, 0};
    return (struct double_dim){(unsigned)(i % size.x), (unsigned)(i / size.x % size.y),
                               (unsigned)(i / size.x / size.y)};
}

// ---- Orders ----

static uint64_t greatest_divisor(uint64_t a, uint64_t b)
{
    while (b) {
        const uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static void choose_order(struct runner *runner)
{
    const char *name = getenv("CUDA_FAKE_THREADS");
    const int drawn = name && strncmp(name, "random:", 7) == 0;
    runner->kind = drawn ? RANDOM : name && strcmp(name, "forward") == 0 ? FORWARD : BACKWARD;
    runner->seed = drawn ? strtoull(name + 7, NULL, 10) : 0;
    if (name && name[0] && runner->kind == BACKWARD && strcmp(name, "backward") != 0) {
        fprintf(stderr, "cuda-fake: CUDA_FAKE_THREADS: forward, backward or random:SEED\n");
        abort();
    }
}

static struct order draw_order(uint64_t count, uint64_t *seed)
{
    uint64_t drawn = *seed += UINT64_C(0x9e3779b97f4a7c15);
    drawn = (drawn ^ (drawn >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    drawn = (drawn ^ (drawn >> 27)) * UINT64_C(0x94d049bb133111eb);
    uint64_t step = (drawn >> 32) % count + 1;
    while (greatest_divisor(step, count) != 1)
        step++;
    return (struct order){(drawn & UINT32_MAX) % count, step % count, count, count};
}

static struct order order_of(struct runner *runner, uint64_t count)
{
    switch (runner->kind) {
    case FORWARD: return (struct order){0, 1, count, count};
    case RANDOM: return draw_order(count, &runner->seed);
    default: return (struct order){count - 1, count - 1, count, count};
    }
}

static unsigned order_next(struct order *order)
{
    const uint64_t out = order->next, next = out + order->step;
    order->next = next < order->count ? next : next - order->count;
    order->left--;
    return (unsigned)out;
}

// ---- Fibers ----

static void choose_next(struct runner *runner)
{
    while (runner->next < 0 && runner->order.left > 0) {
        const unsigned thread = order_next(&runner->order);
        if (runner->threads[thread].state <= READY)
            runner->next = (int)thread;
    }
}

// Of the warp of a thread that stops: a lane that can go on, -1: there is none.
static int lane_to_go_on(struct runner *runner, unsigned thread)
{
    const unsigned first = thread / DOUBLE_WARP * DOUBLE_WARP, rest = runner->count - first;
    const unsigned count = rest < DOUBLE_WARP ? rest : DOUBLE_WARP;
    if (runner->kind == RANDOM)
        runner->seed += UINT64_C(0x9e3779b97f4a7c15);
    const unsigned start = runner->kind == RANDOM ? (unsigned)(runner->seed >> 40) : 0;
    for (unsigned k = 0; k < count; k++) {
        const unsigned lane = runner->kind == BACKWARD ? count - 1 - k : (start + k) % count;
        if (runner->threads[first + lane].state == READY)
            return (int)(first + lane);
    }
    return -1;
}

// A warp comes as far as it can before another one has its turn: so one overtakes another where a barrier between them is missing.
static void choose_after(struct runner *runner, unsigned thread)
{
    runner->next = runner->shows ? lane_to_go_on(runner, thread) : -1;
    choose_next(runner);
}

__attribute__((noinline)) static void begin_thread(struct runner *runner, struct fiber *fiber,
                                                   unsigned thread)
{
    current = thread;
    threadIdx = place_in(runner->grid->threads, thread);
    fiber->thread = thread;
    runner->threads[thread].fiber = fiber;
    runner->threads[thread].state = READY;
}

static void release_warp(struct runner *runner, unsigned member);

LS_INITIAL_EXEC static __thread struct fiber *entering;

// What each fiber does: threads of blocks, one after the other as long as those begin anew, so that one fiber runs all of them where
// none waits. It reads no thread-local memory after its first line: another thread of the process may run the next kernel.
static void enter(void)
{
    struct fiber *fiber = entering;
    struct runner *runner = fiber->runner;
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(NULL, &runner->side.stack, &runner->side.bytes);
#endif
    for (;;) {
        runner->grid->kernel(runner->grid);
        runner->threads[fiber->thread].state = OVER;
        runner->over++;
        if (runner->shows)
            release_warp(runner, fiber->thread);
        choose_after(runner, fiber->thread);
        if (runner->next >= 0 && runner->threads[runner->next].state == NEW) {
            begin_thread(runner, fiber, (unsigned)runner->next);
            continue;
        }
        runner->idle[runner->idle_count++] = fiber;
        side_switch(&fiber->side, &runner->side);
    }
}

static struct fiber *make_fiber(struct runner *runner)
{
    struct fiber *fiber = &runner->fibers[runner->made++];
    char *memory = mmap(NULL, GUARD_BYTES + STACK_BYTES, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED || mprotect(memory, GUARD_BYTES, PROT_NONE)) {
        fprintf(stderr, "cuda-fake: no memory for the stack of a thread\n");
        abort();
    }
    char *stack = memory + GUARD_BYTES;
    // Not all stacks begin at the same place of a page, which would be the same place of the cache.
    const size_t bytes = STACK_BYTES - runner->made % 32 * 128;
    *fiber = (struct fiber){.side = {.stack = stack, .bytes = bytes}, .runner = runner};
#ifdef __SANITIZE_THREAD__
    fiber->side.sanitizer = __tsan_create_fiber(0);
#endif
    context_make(&fiber->side.at, stack, bytes, enter);
    return fiber;
}

static void run_thread(struct runner *runner, unsigned thread)
{
    struct fiber *fiber = runner->threads[thread].fiber;
    if (!fiber)
        fiber = runner->idle_count ? runner->idle[--runner->idle_count] : make_fiber(runner);
    begin_thread(runner, fiber, thread);
    entering = fiber;
    side_switch(&runner->side, &fiber->side);
}

// ---- Waiting ----

static int same_place(const struct thread *a, const struct thread *b)
{
    return a->place.line == b->place.line &&
           (a->place.file == b->place.file || strcmp(a->place.file, b->place.file) == 0);
}

static void wait_at(struct runner *runner, struct double_place place, enum state state)
{
    runner->waits = 1;
    runner->threads[current].place = place;
    runner->threads[current].state = state;
}

static void go_on_with_others(struct runner *runner)
{
    choose_after(runner, current);
    side_switch(&runner->threads[current].fiber->side, &runner->side);
}

void double_wait_for_block(struct double_place place)
{
    wait_at(running, place, WAITS_FOR_BLOCK);
    go_on_with_others(running);
}

unsigned double_lane(void)
{
    return current % DOUBLE_WARP;
}

void *double_dynamic(void)
{
    return running->dynamic;
}

// What the lanes that `asks` waits for show each other; 0: some of them have not come yet.
static int gather_lanes(const struct thread *warp, unsigned count, const struct thread *asks,
                        struct double_lanes *out)
{
    out->present = 0;
    for (unsigned k = 0; k < count; k++) {
        if (!(asks->mask >> k & 1) || warp[k].state == OVER)
            continue;
        if (warp[k].state != WAITS_FOR_WARP || warp[k].mask != asks->mask ||
            !same_place(&warp[k], asks))
            return 0;
        out->present |= UINT32_C(1) << k;
        out->values[k] = warp[k].value;
    }
    return 1;
}

// A thread waits or is over: those of its warp that have waited for nobody else go on.
static void release_warp(struct runner *runner, unsigned member)
{
    const unsigned first = member / DOUBLE_WARP * DOUBLE_WARP, rest = runner->count - first;
    const unsigned count = rest < DOUBLE_WARP ? rest : DOUBLE_WARP;
    struct thread *warp = &runner->threads[first];
    const int over = runner->threads[member].state == OVER; // then others may have waited for it
    const unsigned begin = over ? 0 : member - first, end = over ? count : begin + 1;
    struct double_lanes lanes;
    for (unsigned i = begin; i < end; i++) {
        if (warp[i].state != WAITS_FOR_WARP || !gather_lanes(warp, count, &warp[i], &lanes))
            continue;
        for (unsigned k = 0; k < count; k++)
            if (lanes.present >> k & 1) {
                runner->lanes[first + k] = lanes;
                warp[k].state = READY;
            }
    }
}

const struct double_lanes *double_wait_for_warp(struct double_place place, uint32_t mask,
                                                uint64_t value)
{
    struct runner *runner = running;
    struct thread *thread = &runner->threads[current];
    if (!(mask >> double_lane() & 1))
        misuse(&place, "the mask does not name the lane itself");
    thread->mask = mask;
    thread->value = value;
    runner->shows = 1;
    wait_at(runner, place, WAITS_FOR_WARP);
    release_warp(runner, current);
    if (thread->state == WAITS_FOR_WARP)
        go_on_with_others(runner);
    return &runner->lanes[current];
}

// Nobody can go on: all threads are at one barrier, or those that are not will never come.
static void release_block(struct runner *runner)
{
    const struct thread *first = &runner->threads[0];
    for (unsigned i = 0; i < runner->count; i++) {
        const struct thread *thread = &runner->threads[i];
        if (thread->state == OVER)
            continue;
        threadIdx = place_in(runner->grid->threads, i);
        if (thread->state == WAITS_FOR_WARP)
            misuse(&thread->place, "waits for lanes of its warp that do not come");
        if (runner->over)
            misuse(&thread->place, "waits at a barrier, and other threads of the block have ended");
        if (!same_place(thread, first))
            misuse(&thread->place, "waits at another barrier than the first thread of the block");
    }
    for (unsigned i = 0; i < runner->count; i++)
        runner->threads[i].state = READY;
}

// ---- Blocks and grids ----

static void run_block(struct runner *runner)
{
    runner->over = 0;
    memset(runner->threads, 0, runner->count * sizeof(runner->threads[0]));
    while (runner->over < runner->count) {
        runner->order = order_of(runner, runner->count);
        runner->next = -1;
        choose_next(runner);
        if (runner->next < 0)
            release_block(runner);
        while (runner->next >= 0)
            run_thread(runner, (unsigned)runner->next);
    }
}

// Shared memory of a library's kernels: all of its thread-local memory.
struct memory {
    char *any, *start;
    size_t bytes;
};

static int find_memory(struct dl_phdr_info *info, size_t size, void *data)
{
    struct memory *memory = data;
    (void)size;
    for (int i = 0; info->dlpi_tls_data && i < info->dlpi_phnum; i++) {
        char *start = info->dlpi_tls_data;
        if (info->dlpi_phdr[i].p_type != PT_TLS || memory->any < start ||
            memory->any >= start + info->dlpi_phdr[i].p_memsz)
            continue;
        memory->start = start;
        memory->bytes = info->dlpi_phdr[i].p_memsz;
        return 1;
    }
    return 0;
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct runner *unused; // under the lock

static struct runner *runner_take(void)
{
    pthread_mutex_lock(&lock);
    struct runner *runner = unused;
    if (runner)
        unused = runner->below;
    pthread_mutex_unlock(&lock);
    if (!runner)
        runner = calloc(1, sizeof(*runner));
    if (!runner) {
        fprintf(stderr, "cuda-fake: no memory for the threads of a block\n");
        abort();
    }
    return runner;
}

static void runner_give(struct runner *runner)
{
    pthread_mutex_lock(&lock);
    runner->below = unused;
    unused = runner;
    pthread_mutex_unlock(&lock);
}

// What a block finds in shared memory is NaN, as on a GPU it may be anything.
static void fill_shared(struct runner *runner, const struct memory *memory)
{
    memset(memory->start, 0xff, memory->bytes);
    memset(runner->dynamic, 0xff, runner->grid->dynamic);
}

static void run_blocks(struct runner *runner)
{
    const struct double_grid *grid = runner->grid;
    struct order order =
        order_of(runner, (uint64_t)grid->blocks.x * grid->blocks.y * grid->blocks.z);
    struct memory memory = {.any = grid->shared()};
    dl_iterate_phdr(find_memory, &memory);
    fill_shared(runner, &memory);
    while (order.left) {
        blockIdx = place_in(grid->blocks, order_next(&order));
        run_block(runner);
        if (runner->waits) // else its threads share nothing
            fill_shared(runner, &memory);
    }
}

static void run_grid(const void *launch)
{
    const struct double_grid *grid = launch;
    struct runner *runner = runner_take();
    runner->grid = grid;
    runner->count = grid->threads.x * grid->threads.y * grid->threads.z;
    runner->waits = runner->shows = 0;
    choose_order(runner);
#ifdef __SANITIZE_ADDRESS__
    __asan_unpoison_memory_region(runner->dynamic, grid->dynamic);
    __asan_poison_memory_region(runner->dynamic + grid->dynamic, DOUBLE_SHARED - grid->dynamic);
#endif
#ifdef __SANITIZE_THREAD__
    runner->side.sanitizer = __tsan_get_current_fiber();
#endif
    running = runner;
    blockDim = grid->threads;
    gridDim = grid->blocks;
    run_blocks(runner);
    running = NULL;
    runner_give(runner);
}

static int is_within(struct double_dim size, struct double_dim most)
{
    return size.x >= 1 && size.y >= 1 && size.z >= 1 && size.x <= most.x && size.y <= most.y &&
           size.z <= most.z;
}

unsigned double_launch(struct CUstream_st *stream, const struct double_grid *launch, size_t bytes)
{
    const struct double_dim threads = launch->threads;
    if (!is_within(launch->blocks, (struct double_dim){INT32_MAX, 65535, 65535}) ||
        !is_within(threads, (struct double_dim){1024, 1024, 64}) ||
        threads.x * threads.y * threads.z > DOUBLE_BLOCK)
        return 9; // cudaErrorInvalidConfiguration
    if (launch->dynamic > DOUBLE_SHARED)
        return 1; // cudaErrorInvalidValue
    return double_enqueue(stream, run_grid, launch, bytes, 1);
}
