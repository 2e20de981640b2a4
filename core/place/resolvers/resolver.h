// SPDX-License-Identifier: Apache-2.0
// What each launcher's resolver implements, and the calls it reads variables with. They remember
// the first thing that is wrong, so a resolver reads all it needs and asks at the end.
// [main thread]
#ifndef LS_PLACE_RESOLVERS_RESOLVER_H
#define LS_PLACE_RESOLVERS_RESOLVER_H

#include "core/attributes.h"
#include "core/place/pmix_calls.h"
#include "core/place/resolve.h"

enum ls_resolver_answer {
    LS_RESOLVER_ABSENT, // none of its variables is set, or they mean a training alone
    LS_RESOLVER_INCOMPLETE, // some are; another launcher may be complete
    LS_RESOLVER_WRONG, // all are, and they cannot be true
    LS_RESOLVER_TAKEN,
};

struct ls_resolving {
    const struct ls_environment *environment;
    struct ls_worker_place *place; // being filled
    enum ls_status status; // LS_USAGE, or LS_OUT_OF_MEMORY
    char problem[768]; // what is wrong, the first thing only; "": nothing yet
    const char *advice; // what to do about it; NULL: the resolver's `start`
    char pmix_problem[256]; // why PMIx cannot be used; "": it has not been tried, or it can
};

struct ls_resolver {
    const char *name; // as in --cluster=NAME
    const char *variables; // that it needs: "RANK and WORLD_SIZE"
    const char *start; // how its workers are started: "start the workers with srun"
    // After LS_RESOLVER_INCOMPLETE and LS_RESOLVER_WRONG there is a `problem`. After
    // LS_RESOLVER_ABSENT there may be one, for users who demand this launcher.
    enum ls_resolver_answer (*resolve)(struct ls_resolving *resolving);
};

extern const struct ls_resolver ls_resolver_launch, ls_resolver_tf_config, ls_resolver_torchrun,
    ls_resolver_pmix, ls_resolver_openmpi, ls_resolver_pmi, ls_resolver_slurm,
    ls_resolver_kubernetes;

// ---- Reading ----

// The value of a variable, which is noted in `taken`; NULL: not set.
const char *ls_resolving_read(struct ls_resolving *resolving, const char *name);
bool ls_resolving_has(const struct ls_resolving *resolving, const char *name);

// Says what is wrong, unless something else was before.
LS_PRINTF(2, 3) void ls_resolving_fail(struct ls_resolving *resolving, const char *format, ...);

// Whether any of `names`, ended by NULL, is missing: then the problem says which are set and which
// are not.
bool ls_resolving_lacks(struct ls_resolving *resolving, const char *const *names);

// The value of a variable that is set, as a whole number in `least` .. `most`; else a problem, and
// `least`.
uint32_t ls_resolving_number(struct ls_resolving *resolving, const char *name, uint32_t least,
                             uint32_t most);

// The same for a variable that need not be set; `otherwise` where it is not.
uint32_t ls_resolving_number_or(struct ls_resolving *resolving, const char *name, uint32_t least,
                                uint32_t most, uint32_t otherwise);

// The number of this worker and the number of workers; both variables are set.
void ls_resolving_rank(struct ls_resolving *resolving, const char *rank, const char *world);

// The same on this host, where both are set.
void ls_resolving_local_rank(struct ls_resolving *resolving, const char *rank, const char *world);

// Whether LOCKSTEP_ADDRESS=host:port says where worker 0 is, which then goes before everything
// else.
bool ls_resolving_given_address(struct ls_resolving *resolving);

// The address of worker 0. `host` is the value of the variable `name`.
void ls_resolving_host(struct ls_resolving *resolving, const char *name, const char *host,
                       uint32_t port);

// Connects to PMIx, through which the workers find worker 0 where no variable says its address
// (resolvers/pmix.c). False: there is a problem.
bool ls_resolving_open_pmix(struct ls_resolving *resolving, struct ls_pmix_job *out);

// Adds to `taken` what is no variable.
LS_PRINTF(2, 3) void ls_resolving_note(struct ls_resolving *resolving, const char *format, ...);

// LS_RESOLVER_WRONG if there was a problem, else LS_RESOLVER_TAKEN.
enum ls_resolver_answer ls_resolving_end(const struct ls_resolving *resolving);

// ---- Texts ----

// "host:port" or "[IPv6 address]:port".
bool ls_host_port_parse(const char *text, char host[LS_HOST_BYTES], uint16_t *port);
// A host name or a numeric address, the latter also in brackets.
bool ls_host_parse(const char *text, size_t length, char host[LS_HOST_BYTES]);
bool ls_host_is_loopback(const char *host); // "localhost", 127.0.0.0/8 or ::1
// Digits only, in `least` .. `most`.
bool ls_digits_parse(const char *text, size_t length, uint32_t least, uint32_t most, uint32_t *out);

#endif
