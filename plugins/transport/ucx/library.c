// SPDX-License-Identifier: Apache-2.0
// Loads UCX. Two habits of UCX do not suit a guest in a process: it takes over handlers of signals
// as soon as it is loaded (those of crashes unless its variable UCX_ERROR_SIGNALS is empty, and
// SIGHUP), and it prints its messages on standard output.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // NSIG
#endif
#include "plugins/transport/ucx/library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>

#define UCX_LIBRARY "libucp.so.0"
#define SIGNALS "UCX_ERROR_SIGNALS"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; // of what follows
static struct ucx_library library;
static int ready;
static const struct ls_host *listener;

// ---- Messages ----

static ucs_log_func_rc_t log_message(const char *file, unsigned line, const char *function,
                                     ucs_log_level_t level,
                                     const ucs_log_component_config_t *component,
                                     const char *format, va_list list)
{
    char text[400];
    (void)file, (void)line, (void)function, (void)component;
    if (level > UCS_LOG_LEVEL_INFO && !getenv("UCX_LOG_LEVEL"))
        return UCS_LOG_FUNC_RC_STOP;
    if (getenv("UCX_LOG_FILE")) // the user asked for a file, which UCX writes itself
        return UCS_LOG_FUNC_RC_CONTINUE;
    const int used = snprintf(text, sizeof(text), "UCX: ");
    vsnprintf(text + used, sizeof(text) - (size_t)used, format, list);
    text[strcspn(text, "\n")] = '\0';
    pthread_mutex_lock(&lock);
    if (listener)
        listener->log(listener, LS_LOG_DEBUG, text);
    pthread_mutex_unlock(&lock);
    return UCS_LOG_FUNC_RC_STOP;
}

void ucx_library_log(const struct ls_host *host)
{
    pthread_mutex_lock(&lock);
    listener = host;
    pthread_mutex_unlock(&lock);
}

void ucx_library_forget(const struct ls_host *host)
{
    pthread_mutex_lock(&lock);
    if (listener == host)
        listener = NULL;
    pthread_mutex_unlock(&lock);
}

// ---- Loading ----

// The variable is read while the library is loaded, and need not stay.
static void *load(void)
{
    struct sigaction before[NSIG];
    int known[NSIG] = {0};
    for (int i = 1; i < NSIG; i++)
        known[i] = sigaction(i, NULL, &before[i]) == 0;
    const int is_ours = !getenv(SIGNALS) && setenv(SIGNALS, "", 0) == 0;
    void *handle = dlopen(UCX_LIBRARY, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (is_ours)
        unsetenv(SIGNALS);
    for (int i = 1; i < NSIG && is_ours; i++) // a user who sets the variable wants UCX's handlers
        if (known[i])
            sigaction(i, &before[i], NULL);
    return handle;
}

static int find(void *handle, const char *name, void *out, char *reason, size_t bytes)
{
    *(void **)out = dlsym(handle, name);
    if (*(void **)out)
        return 1;
    snprintf(reason, bytes, "%s has no %s: UCX 1.13 or newer is needed (Debian: libucx0)",
             UCX_LIBRARY, name);
    return 0;
}

static int find_all(void *handle, char *reason, size_t bytes)
{
    unsigned release = 0;
#define UCX_CALL(name)                                              \
    if (!find(handle, #name, (void *)&library.name, reason, bytes)) \
        return 0;
    UCX_CALLS(UCX_CALL)
#undef UCX_CALL
    library.ucp_get_version(&library.major, &library.minor, &release);
    snprintf(library.version, sizeof(library.version), "%u.%u.%u", library.major, library.minor,
             release);
    library.ucs_log_push_handler(log_message);
    return 1;
}

const struct ucx_library *ucx_library_get(char *reason, size_t bytes)
{
    if (ready)
        return &library;
    void *handle = load();
    if (!handle)
        snprintf(reason, bytes, "missing library: %s (Debian: libucx0): %s", UCX_LIBRARY,
                 dlerror());
    ready = handle && find_all(handle, reason, bytes);
    return ready ? &library : NULL;
}

int32_t ucx_probe(char *reason, uint64_t bytes)
{
    return ucx_library_get(reason, bytes) ? LS_OK : LS_UNAVAILABLE;
}
