// SPDX-License-Identifier: Apache-2.0
// A libpmix of the calls that core/place/pmix_calls.c uses, which meets over a folder of files
// instead of a server. It is told by the environment:
//
//     PMIX_NAMESPACE, PMIX_RANK    as from a launcher
//     PMIX_FAKE_FOLDER             where the values are; each job has one of its own
//     PMIX_FAKE_SIZE, PMIX_FAKE_LOCAL_SIZE   of the job; 0: PMIx_Get does not know it
//     PMIX_FAKE_FAILS, PMIX_FAKE_HANGS       the name of a call
//     PMIX_FAKE_NAMESPACE          what PMIx_Init says instead of PMIX_NAMESPACE
//
// Never installed.
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

enum { SUCCESS = 0, FAILED = -25, NOT_FOUND = -46, BOOL = 1, STRING = 3, UINT16 = 13, UINT32 = 14 };

struct proc {
    char name[256];
    uint32_t rank;
};

struct value {
    uint16_t type;
    union {
        bool flag;
        char *string;
        uint16_t uint16;
        uint32_t uint32;
    } data;
};

struct info {
    char key[512];
    uint32_t flags;
    struct value value;
};

EXPORT int PMIx_Init(struct proc *proc, struct info *info, size_t count);
EXPORT int PMIx_Finalize(const struct info *info, size_t count);
EXPORT int PMIx_Put(uint8_t scope, const char *key, struct value *value);
EXPORT int PMIx_Commit(void);
EXPORT int PMIx_Fence(const struct proc *procs, size_t procs_count, const struct info *info,
                      size_t count);
EXPORT int PMIx_Get(const struct proc *proc, const char *key, const struct info *info, size_t count,
                    struct value **value);
EXPORT const char *PMIx_Error_string(int status);

static int opened;
static struct value answer;
static char answer_text[512];

static const char *get(const char *name)
{
    const char *value = getenv(name);
    return value ? value : "";
}

static void step(void)
{
    const struct timespec while_others_run = {.tv_nsec = 2000000};
    nanosleep(&while_others_run, NULL);
}

static int enter(const char *call)
{
    while (strcmp(get("PMIX_FAKE_HANGS"), call) == 0)
        step();
    return strcmp(get("PMIX_FAKE_FAILS"), call) == 0 ? FAILED : SUCCESS;
}

static FILE *open_file(const char *key, uint32_t rank, const char *mode)
{
    char path[600];
    snprintf(path, sizeof(path), "%s/%s.%u", get("PMIX_FAKE_FOLDER"), key, rank);
    return fopen(path, mode);
}

static uint32_t own_rank(void)
{
    return (uint32_t)atoi(get("PMIX_RANK"));
}

int PMIx_Init(struct proc *proc, struct info *info, size_t count)
{
    const char *other = get("PMIX_FAKE_NAMESPACE");
    (void)info;
    (void)count;
    snprintf(proc->name, sizeof(proc->name), "%s", *other ? other : get("PMIX_NAMESPACE"));
    proc->rank = own_rank();
    opened++;
    return enter("PMIx_Init");
}

// Leaves a file, so that a test sees that the connection was ended.
int PMIx_Finalize(const struct info *info, size_t count)
{
    (void)info;
    (void)count;
    FILE *file = open_file("ended", own_rank(), "w");
    if (file)
        fclose(file);
    return opened-- > 0 ? enter("PMIx_Finalize") : FAILED;
}

int PMIx_Put(uint8_t scope, const char *key, struct value *value)
{
    if (scope != 3 || value->type != STRING || opened != 1)
        return FAILED;
    FILE *file = open_file(key, own_rank(), "w");
    if (!file)
        return FAILED;
    fputs(value->data.string, file);
    fclose(file);
    return enter("PMIx_Put");
}

int PMIx_Commit(void)
{
    return enter("PMIx_Commit");
}

// Waits until all ranks have come. Data is collected, so that PMIx_Get need not ask another host.
int PMIx_Fence(const struct proc *procs, size_t procs_count, const struct info *info, size_t count)
{
    if (procs || procs_count || count != 1 || strcmp(info->key, "pmix.collect") != 0 ||
        info->value.type != BOOL || !info->value.data.flag || opened != 1)
        return FAILED;
    static int fences;
    char name[32];
    snprintf(name, sizeof(name), "fence-%d", fences++);
    FILE *mine = open_file(name, own_rank(), "w");
    if (!mine)
        return FAILED;
    fclose(mine);
    for (uint32_t rank = 0; rank < (uint32_t)atoi(get("PMIX_FAKE_SIZE")); rank++) {
        FILE *file;
        while (!(file = open_file(name, rank, "r")))
            step();
        fclose(file);
    }
    return enter("PMIx_Fence");
}

static int get_size(const char *name, uint16_t type)
{
    const uint32_t size = (uint32_t)atoi(get(name));
    answer.type = type;
    answer.data.uint32 = size;
    return size > 0 ? SUCCESS : NOT_FOUND;
}

int PMIx_Get(const struct proc *proc, const char *key, const struct info *info, size_t count,
             struct value **value)
{
    (void)info;
    (void)count;
    const bool of_job = proc->rank == UINT32_MAX - 1;
    *value = &answer;
    if (enter("PMIx_Get"))
        return FAILED;
    if (of_job && strcmp(key, "pmix.job.size") == 0)
        return get_size("PMIX_FAKE_SIZE", UINT32);
    if (of_job && strcmp(key, "pmix.local.size") == 0)
        return get_size("PMIX_FAKE_LOCAL_SIZE", UINT32);
    if (!of_job && strcmp(key, "pmix.lrank") == 0) {
        answer.type = UINT16;
        const int local = atoi(get("PMIX_FAKE_LOCAL_SIZE"));
        answer.data.uint16 = (uint16_t)(local > 0 ? own_rank() % (uint32_t)local : 0);
        return SUCCESS;
    }
    FILE *file = open_file(key, proc->rank, "r");
    if (of_job || !file)
        return NOT_FOUND;
    answer_text[fread(answer_text, 1, sizeof(answer_text) - 1, file)] = '\0';
    fclose(file);
    answer.type = STRING;
    answer.data.string = answer_text;
    return SUCCESS;
}

const char *PMIx_Error_string(int status)
{
    return status == FAILED ? "UNREACHABLE" : status == NOT_FOUND ? "NOT-FOUND" : "OTHER";
}
