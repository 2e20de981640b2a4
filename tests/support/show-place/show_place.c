// SPDX-License-Identifier: Apache-2.0
// A process of a job that says which of its workers it is, and joins the others as a training does.
//
//     show_place [NAME [SECONDS [MIN:MAX]]]      NAME as in --cluster=NAME
//
// Prints "place WORKER WORKERS LOCAL LOCALS RESOLVER" and then, on worker 0, "met WORKERS at
// ADDRESS" once all have come and each has told the others its number. With SECONDS the workers
// then gather numbers for so long, and worker 0 prints "gathered COUNT". With MIN:MAX they are
// elastic: each that is left prints "goes on as WORKER of WORKERS, generation NUMBER". Ends as `lockstep` does:
// 2 where no place is found, 5 where somebody did not come or was lost. Needs no secret.
#include "core/base/clock.h"
#include "core/cluster/cluster.h"
#include "core/wire/secret.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SECOND UINT64_C(1000000000)

// Each worker gives its number.
static enum ls_status gather_numbers(struct ls_cluster *cluster)
{
    const uint32_t workers = ls_cluster_workers(cluster), mine = ls_cluster_worker(cluster);
    uint32_t *all = calloc(workers, sizeof(*all));
    if (!all)
        return LS_OUT_OF_MEMORY;
    enum ls_status status = ls_cluster_gather_workers(cluster, &mine, sizeof(mine), all);
    for (uint32_t i = 0; !status && i < workers; i++)
        if (all[i] != i) {
            fprintf(stderr, "show_place: worker %u gave the number %u\n", i, all[i]);
            status = LS_FAILED;
        }
    free(all);
    return status;
}

static enum ls_status form_anew(struct ls_cluster *cluster)
{
    struct ls_cluster_change change;
    const uint64_t begin = ls_clock_ns();
    const enum ls_status status = ls_cluster_reform(cluster, 0, &change);
    if (!status)
        printf("goes on as %u of %u, generation %u, after %.3f s\n", ls_cluster_worker(cluster),
               ls_cluster_workers(cluster), change.generation,
               (double)(ls_clock_ns() - begin) * 1e-9);
    return status;
}

// All of a generation tell their numbers; somebody may be lost meanwhile.
static enum ls_status begin_generation(struct ls_cluster *cluster, bool elastic)
{
    enum ls_status status = gather_numbers(cluster);
    while (elastic && status == LS_PEER_LOST) {
        status = form_anew(cluster);
        if (status)
            return status;
        status = gather_numbers(cluster);
    }
    return status;
}

// Worker 0 decides when it is over, and when new workers come in.
static enum ls_status keep_gathering(struct ls_cluster *cluster, uint64_t duration_ns, bool elastic)
{
    enum { GATHER, FORM_ANEW, END };
    const uint64_t end = ls_clock_ns() + duration_ns;
    uint64_t count = 0;
    uint8_t next = GATHER;
    enum ls_status status = LS_OK;
    while (!status && next != END) {
        ls_cluster_say(cluster, count++, "gather");
        next = ls_clock_ns() >= end ? END : ls_cluster_waiting(cluster) ? FORM_ANEW : GATHER;
        status = gather_numbers(cluster);
        if (!status)
            status = ls_cluster_broadcast(cluster, &next, 1, 0);
        if (elastic && (status == LS_PEER_LOST || (!status && next == FORM_ANEW))) {
            status = form_anew(cluster);
            if (!status)
                status = begin_generation(cluster, elastic);
        }
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    if (!status && ls_cluster_worker(cluster) == 0)
        printf("gathered %llu\n", (unsigned long long)count);
    return status;
}

static enum ls_status meet(const struct ls_worker_place *place, uint64_t duration_ns,
                           uint32_t least, uint32_t most)
{
    struct ls_cluster *cluster = NULL;
    char *secret = NULL;
    enum ls_status status =
        ls_secret_find(getenv("LOCKSTEP_SECRET"), getenv("LOCKSTEP_SECRET_FILE"), &secret);
    const struct ls_cluster_options options = {.place = place,
                                               .count = 1,
                                               .join_deadline_ns = 20 * SECOND,
                                               .deadline_ns = 60 * SECOND,
                                               .secret = secret,
                                               .least_workers = least,
                                               .most_workers = most,
                                               .insecure = !getenv("SHOW_PLACE_SECURE")};
    if (!status)
        status = ls_cluster_join(&options, &cluster);
    ls_secret_free(secret);
    if (!status)
        status = begin_generation(cluster, most > 0);
    if (!status) {
        const char *about = ls_cluster_about(cluster), *store = strstr(about, ", store at ");
        fprintf(stderr, "cluster: %s\n", about);
        if (place->number == 0 && store)
            printf("met %u at %.*s\n", place->workers, (int)strcspn(store + 11, ","), store + 11);
    }
    if (!status && duration_ns)
        status = keep_gathering(cluster, duration_ns, most > 0);
    ls_cluster_close(cluster);
    return status;
}

int main(int argc, char **argv)
{
    const struct ls_environment environment = ls_environment_of_process();
    struct ls_worker_place place;
    uint32_t least = 0, most = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    enum ls_status status =
        ls_worker_place_resolve(argc > 1 ? argv[1] : "auto", &environment, &place);
    if (status)
        return ls_status_exit_code(status);
    printf("place %u %u %u %u %s\n", place.number, place.workers, place.local_worker,
           place.local_workers, place.resolver);
    if (argc > 3 && sscanf(argv[3], "%u:%u", &least, &most) != 2)
        return 2;
    if (place.workers > 1)
        status = meet(&place, argc > 2 ? strtoull(argv[2], NULL, 10) * SECOND : 0, least, most);
    return ls_status_exit_code(status);
}
