// SPDX-License-Identifier: Apache-2.0
// libpmix as a table of calls, found with dlopen. Nothing of PMIx is needed to compile this: what
// is declared here is the part of its stable ABI that is used, equal since version 3.
//
// Each call runs in a thread of its own. One that does not come back in time is left alone with its
// memory, because nothing can end it.
#include "core/place/pmix_calls.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/threads.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LIBRARY "libpmix.so.2"
#define SAY_AFTER_NS UINT64_C(5000000000)
#define CLOSE_NS (UINT64_C(2) * 1000000000)

enum { PMIX_SUCCESS = 0, PMIX_BOOL = 1, PMIX_STRING = 3, PMIX_UINT16 = 13, PMIX_UINT32 = 14 };
#define PMIX_GLOBAL 3 // scope: for processes of this host and of others
#define PMIX_RANK_WILDCARD (UINT32_MAX - 1) // the job as a whole

struct pmix_proc {
    char name[LS_PMIX_NAME_BYTES];
    uint32_t rank;
};

struct pmix_value {
    uint16_t type;
    union {
        bool flag;
        char *string;
        uint16_t uint16;
        uint32_t uint32;
        uint64_t space[4];
    } data;
};

struct pmix_info {
    char key[512];
    uint32_t flags;
    struct pmix_value value;
};

static struct {
    void *handle;
    pid_t open_in; // the process that is connected, which a child of it is not; 0: none
    struct ls_pmix_job job;
    uint32_t shared; // how often
    int (*init)(struct pmix_proc *proc, struct pmix_info *info, size_t count);
    int (*finalize)(const struct pmix_info *info, size_t count);
    int (*put)(uint8_t scope, const char *key, struct pmix_value *value);
    int (*commit)(void);
    int (*fence)(const struct pmix_proc *procs, size_t proc_count, const struct pmix_info *info,
                 size_t count);
    int (*get)(const struct pmix_proc *proc, const char *key, const struct pmix_info *info,
               size_t count, struct pmix_value **value);
    const char *(*error_string)(int status);
} pmix;

static bool load(const char *library, char *problem, size_t bytes)
{
    const struct {
        const char *name;
        void *call;
    } calls[] = {
        {"PMIx_Init", &pmix.init},
        {"PMIx_Finalize", &pmix.finalize},
        {"PMIx_Put", &pmix.put},
        {"PMIx_Commit", &pmix.commit},
        {"PMIx_Fence", &pmix.fence},
        {"PMIx_Get", &pmix.get},
        {"PMIx_Error_string", &pmix.error_string},
    };
    if (pmix.handle)
        return true;
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        snprintf(problem, bytes, "%s cannot be loaded (Debian: libpmix2)", library);
        return false;
    }
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        *(void **)calls[i].call = dlsym(handle, calls[i].name);
        if (!*(void **)calls[i].call) {
            snprintf(problem, bytes, "%s has no %s", library, calls[i].name);
            dlclose(handle);
            return false;
        }
    }
    pmix.handle = handle; // never closed: it has threads of its own
    return true;
}

// ---- A call in its thread ----

struct call {
    pthread_mutex_t lock;
    pthread_cond_t ended;
    bool has_ended, is_abandoned;
    void (*run)(struct call *call);
    const char *whom; // it waits for
    struct ls_pmix_job job;
    char key[32], text[512]; // what rank 0 tells
    const char *name; // of the call of PMIx that failed; NULL: none
    int status;
};

static void share_text(struct call *call);

static void destroy(struct call *call)
{
    pthread_cond_destroy(&call->ended);
    pthread_mutex_destroy(&call->lock);
    free(call);
}

static void *run(void *argument)
{
    struct call *call = argument;
    call->run(call);
    pthread_mutex_lock(&call->lock);
    call->has_ended = true;
    const bool is_abandoned = call->is_abandoned;
    pthread_cond_signal(&call->ended);
    pthread_mutex_unlock(&call->lock);
    if (is_abandoned)
        destroy(call);
    return NULL;
}

// Waits for the thread, or leaves it alone. False: the deadline has passed, and `call` is not ours
// any more.
static bool await(struct call *call, pthread_t thread, uint64_t deadline_ns)
{
    const uint64_t begin = ls_clock_ns();
    uint64_t say_at = SAY_AFTER_NS;
    pthread_mutex_lock(&call->lock);
    for (;;) {
        const uint64_t passed = ls_clock_ns() - begin;
        if (call->has_ended || passed >= deadline_ns)
            break;
        if (passed >= say_at) {
            say_at += ls_log_wait_ns();
            ls_info("cluster", "waiting for %s, %.0f s of %g s", call->whom, (double)passed * 1e-9,
                    (double)deadline_ns * 1e-9);
        }
        const uint64_t next = say_at < deadline_ns ? say_at : deadline_ns;
        ls_condition_wait(&call->ended, &call->lock, next - passed);
    }
    const bool has_ended = call->has_ended;
    call->is_abandoned = !has_ended;
    pthread_mutex_unlock(&call->lock);
    if (has_ended)
        pthread_join(thread, NULL);
    else
        pthread_detach(thread);
    return has_ended;
}

// Runs `function` with a copy of `job` and `text`, and copies both back.
static bool call_within(uint64_t deadline_ns, void (*function)(struct call *),
                        struct ls_pmix_job *job, char *text, size_t text_bytes, char *problem,
                        size_t problem_bytes)
{
    pthread_t thread;
    struct call *call = calloc(1, sizeof(*call));
    if (!call) {
        snprintf(problem, problem_bytes, "out of memory");
        return false;
    }
    pthread_mutex_init(&call->lock, NULL);
    ls_condition_init(&call->ended);
    call->run = function;
    call->whom = function == share_text ? "the other workers, through PMIx" : "the PMIx server";
    call->job = *job;
    snprintf(call->key, sizeof(call->key), "lockstep.address.%u", pmix.shared);
    snprintf(call->text, sizeof(call->text), "%s", text);
    if (ls_thread_start(&thread, "pmix", run, call)) {
        snprintf(problem, problem_bytes, "a thread cannot be started");
        destroy(call);
        return false;
    }
    if (!await(call, thread, deadline_ns)) {
        pmix.open_in = 0; // what is in a call cannot be closed
        snprintf(problem, problem_bytes, "PMIx has not answered for %g s",
                 (double)deadline_ns * 1e-9);
        return false;
    }
    const bool good = !call->name;
    if (!good)
        snprintf(problem, problem_bytes, "%s: %s", call->name,
                 call->status ? pmix.error_string(call->status) : "not what is expected");
    *job = call->job;
    snprintf(text, text_bytes, "%s", call->text);
    destroy(call);
    return good;
}

static bool succeeds(struct call *call, const char *name, int status)
{
    if (!call->name && status != PMIX_SUCCESS) {
        call->name = name;
        call->status = status;
    }
    return !call->name;
}

// ---- The calls ----

// What PMIx_Get returns is freed by macros of PMIx's header; some bytes in the life of a process
// are left.
static bool get_number(const struct pmix_proc *proc, const char *key, uint32_t *out)
{
    struct pmix_value *value = NULL;
    if (pmix.get(proc, key, NULL, 0, &value) != PMIX_SUCCESS || !value)
        return false;
    if (value->type != PMIX_UINT16 && value->type != PMIX_UINT32)
        return false;
    *out = value->type == PMIX_UINT16 ? value->data.uint16 : value->data.uint32;
    return true;
}

static void open_job(struct call *call)
{
    struct pmix_proc self = {.rank = 0}, job;
    struct ls_pmix_job *out = &call->job;
    if (!succeeds(call, "PMIx_Init", pmix.init(&self, NULL, 0)))
        return;
    job = self;
    job.rank = PMIX_RANK_WILDCARD;
    memcpy(out->name, self.name, sizeof(out->name));
    out->name[sizeof(out->name) - 1] = '\0';
    out->rank = self.rank;
    if (!get_number(&job, "pmix.job.size", &out->size))
        call->name = "PMIx_Get of the size of the job";
    if (!get_number(&self, "pmix.lrank", &out->local_rank) ||
        !get_number(&job, "pmix.local.size", &out->local_size))
        out->local_rank = out->local_size = 0;
    if (call->name)
        (void)pmix.finalize(NULL, 0);
}

static void share_text(struct call *call)
{
    struct pmix_value text = {.type = PMIX_STRING, .data.string = call->text}, *value = NULL;
    const struct pmix_info collect = {.key = "pmix.collect",
                                      .value = {.type = PMIX_BOOL, .data.flag = true}};
    struct pmix_proc first = {.rank = 0};
    memcpy(first.name, call->job.name, sizeof(first.name));
    if (call->job.rank == 0 &&
        (!succeeds(call, "PMIx_Put", pmix.put(PMIX_GLOBAL, call->key, &text)) ||
         !succeeds(call, "PMIx_Commit", pmix.commit())))
        return;
    if (!succeeds(call, "PMIx_Fence", pmix.fence(NULL, 0, &collect, 1)) || call->job.rank == 0)
        return;
    if (!succeeds(call, "PMIx_Get", pmix.get(&first, call->key, NULL, 0, &value)))
        return;
    if (!value || value->type != PMIX_STRING || !value->data.string)
        call->name = "PMIx_Get of the address";
    else
        snprintf(call->text, sizeof(call->text), "%s", value->data.string);
}

static void close_job(struct call *call)
{
    (void)succeeds(call, "PMIx_Finalize", pmix.finalize(NULL, 0));
}

bool ls_pmix_open(const char *library, uint64_t deadline_ns, struct ls_pmix_job *out, char *problem,
                  size_t problem_bytes)
{
    struct ls_pmix_job job = {.size = 0};
    char none[1] = "";
    if (pmix.open_in != getpid()) {
        if (!load(library ? library : LIBRARY, problem, problem_bytes) ||
            !call_within(deadline_ns, open_job, &job, none, sizeof(none), problem, problem_bytes))
            return false;
        pmix.job = job;
        pmix.open_in = getpid();
        atexit(ls_pmix_close);
    }
    *out = pmix.job;
    return true;
}

bool ls_pmix_share(const struct ls_pmix_job *job, uint64_t deadline_ns, char *text,
                   size_t text_bytes, char *problem, size_t problem_bytes)
{
    struct ls_pmix_job copy = *job;
    pmix.shared++;
    return call_within(deadline_ns, share_text, &copy, text, text_bytes, problem, problem_bytes);
}

void ls_pmix_close(void)
{
    struct ls_pmix_job job = {.size = 0};
    char none[1] = "", problem[128];
    if (pmix.open_in != getpid())
        return;
    pmix.open_in = 0;
    (void)call_within(CLOSE_NS, close_job, &job, none, sizeof(none), problem, sizeof(problem));
}
