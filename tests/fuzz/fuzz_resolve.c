// SPDX-License-Identifier: Apache-2.0
// Damaged TF_CONFIG and lists of Slurm: taken with numbers that make sense, or refused with one
// line.
//
//     fuzz_resolve tf-config|slurm SECONDS SEED
#include "core/base/log.h"
#include "core/place/resolve.h"
#include "core/place/resolvers/resolver.h"
#include "core/place/resolvers/slurm_lists.h"
#include "tests/fuzz/mutate.h"
#include "tests/fuzz/mutate_json.h"

#include <stdbool.h>

#define MOST_BYTES 4096

static const char *const configs[] = {
    "{\"cluster\": {\"chief\": [\"c:1\"], \"worker\": [\"a:1\", \"b:2\"], \"ps\": [\"p:3\"], "
    "\"evaluator\": [\"e:1\"]}, \"task\": {\"type\": \"worker\", \"index\": 1}}",
    "{\"cluster\": {\"worker\": [\"localhost:1\", \"[::1]:2\"]}, \"task\": {\"type\": \"worker\", "
    "\"index\": \"0\"}, \"rpc_layer\": \"grpc\"}",
    "{\"sparseCluster\": {\"worker\": {\"2\": \"w2:1\"}, \"ps\": [\"p:1\", \"q:1\"]}, \"task\": "
    "{\"type\": \"ps\", \"index\": 1}}",
    "{\"cluster\": {\"worker\": {\"0\": \"a:1\", \"1\": \"b:1\"}}, \"task\": {\"type\": "
    "\"evaluator\", \"index\": 0}}",
};

// Hosts of a step of five tasks, and the tasks of each.
static const char *const steps[][2] = {{"n[1-2],login", "2(x2),1"},
                                       {"rack[0-1]n[08-09]-ib", "1,2,1(x2)"},
                                       {"n1", "5"},
                                       {"a.b-c_d,e[3]", "4,1"}};

static unsigned long lines, strange_lines;
static char current[2][MOST_BYTES];

static void count_line(void *context, uint32_t level, const char *line)
{
    (void)context;
    (void)level;
    lines++;
    for (; *line; line++)
        strange_lines += (unsigned char)*line < ' ' || *line == 0x7f;
}

// A text, damaged as bytes are, and by pieces that mean something there.
static void damage_text(uint64_t *state, const char *text, const char *const *pieces,
                        size_t piece_count, char *out)
{
    size_t length = strlen(text);
    memcpy(out, text, length + 1);
    for (size_t i = fuzz_below(state, 5); i > 0; i--) {
        const char *piece = pieces[fuzz_below(state, piece_count)];
        const size_t at = fuzz_below(state, length + 1), bytes = strlen(piece);
        if (length + bytes >= MOST_BYTES)
            break;
        memmove(out + at + bytes, out + at, length - at + 1);
        memcpy(out + at, piece, bytes);
        length += bytes;
    }
    if (fuzz_below(state, 2))
        length = fuzz_mutate(state, (unsigned char *)out, length);
    out[length] = '\0';
}

static void make_config(uint64_t *state, char *out)
{
    static const char *const pieces[] = {"{",          "}",          "[",   "]",       ",",
                                         ":",          "\"",         "0",   "-1",      "4294967296",
                                         "\"worker\"", "\"ps\": []", "1e9", "\\u0000", "null"};
    const char *config = configs[fuzz_below(state, sizeof(configs) / sizeof(configs[0]))];
    if (fuzz_below(state, 3) == 0) {
        damage_text(state, config, pieces, sizeof(pieces) / sizeof(pieces[0]), out);
        return;
    }
    json_t *json = json_loads(config, 0, NULL);
    for (size_t i = fuzz_below(state, 5); i > 0 && fuzz_json_count(json) > 1; i--)
        fuzz_json_damage(json, fuzz_below(state, fuzz_json_count(json) - 1), fuzz_random(state));
    char *text = json_dumps(json, 0);
    snprintf(out, MOST_BYTES, "%s", text ? text : "");
    free(text);
    json_decref(json);
}

static bool is_host(const char *host)
{
    char copy[LS_HOST_BYTES];
    return memchr(host, '\0', LS_HOST_BYTES) && ls_host_parse(host, strlen(host), copy);
}

static bool is_sound(enum ls_status status, const struct ls_worker_place *place)
{
    if (status)
        return status == LS_USAGE && lines == 1 && strange_lines == 0;
    return lines == 0 && place->workers >= 1 && place->workers <= LS_MOST_WORKERS &&
           place->servers <= LS_MOST_WORKERS &&
           (place->role != LS_ROLE_WORKER || place->number < place->workers) &&
           (place->role != LS_ROLE_SERVER || place->number < place->servers) &&
           (place->local_workers == 0 || place->local_worker < place->local_workers) &&
           (strcmp(place->resolver, "none") == 0 || (is_host(place->address) && place->port > 0));
}

static bool check_config(uint64_t *state, bool *taken)
{
    static char variable[MOST_BYTES + 16];
    const char *variables[] = {variable, "LOCKSTEP_WORLD_SIZE=4", "LOCKSTEP_ADDRESS=h:1",
                               "LOCKSTEP_SERVERS=2", NULL};
    struct ls_worker_place place;
    make_config(state, current[0]);
    snprintf(variable, sizeof(variable), "TF_CONFIG=%s", current[0]);
    // One in four has what sparse clusters lack.
    variables[1] = fuzz_below(state, 4) ? NULL : variables[1];
    const enum ls_status status =
        ls_worker_place_resolve("auto", &(struct ls_environment){variables}, &place);
    *taken = status == LS_OK;
    return is_sound(status, &place);
}

static bool check_lists(uint64_t *state, bool *taken)
{
    static const char *const pieces[] = {"[", "]",   ",", "-",     "(x",          ")",
                                         "0", "007", "n", "65536", "99999999999", "1-3"};
    static char list[MOST_BYTES + 32], each[MOST_BYTES + 32];
    const char *const variables[] = {list,
                                     each,
                                     "SLURM_JOB_ID=7",
                                     "SLURM_STEP_ID=0",
                                     "SLURM_PROCID=1",
                                     "SLURM_NTASKS=5",
                                     "SLURM_LOCALID=0",
                                     "SLURM_NODEID=0",
                                     NULL};
    const size_t count = sizeof(pieces) / sizeof(pieces[0]);
    struct ls_worker_place place;
    char host[LS_HOST_BYTES];
    uint32_t number, total, nodes;
    const char *const *step = steps[fuzz_below(state, sizeof(steps) / sizeof(steps[0]))];
    damage_text(state, step[0], pieces, count, current[0]);
    damage_text(state, step[1], pieces, count, current[1]);
    if (ls_slurm_host(current[0], (uint32_t)fuzz_below(state, 70000), host, &number) &&
        (number == 0 || number > LS_MOST_WORKERS || (host[0] && !is_host(host))))
        return false;
    if (ls_slurm_tasks(current[1], (uint32_t)fuzz_below(state, 70000), &number, &total, &nodes) &&
        (total > LS_MOST_WORKERS || nodes > total || number > total))
        return false;
    snprintf(list, sizeof(list), "SLURM_STEP_NODELIST=%s", current[0]);
    snprintf(each, sizeof(each), "SLURM_STEP_TASKS_PER_NODE=%s", current[1]);
    const enum ls_status status =
        ls_worker_place_resolve("slurm", &(struct ls_environment){variables}, &place);
    *taken = status == LS_OK;
    return is_sound(status, &place);
}

int main(int argc, char **argv)
{
    unsigned long results[2] = {0};
    bool good = true;
    if (argc != 4 || (strcmp(argv[1], "slurm") != 0 && strcmp(argv[1], "tf-config") != 0))
        return 2;
    bool (*check)(uint64_t *, bool *) = argv[1][0] == 's' ? check_lists : check_config;
    ls_log_set_writer(count_line, NULL);
    const double end_at = fuzz_clock() + strtod(argv[2], NULL);
    for (uint64_t seed = strtoull(argv[3], NULL, 10); good && fuzz_clock() < end_at; seed++) {
        uint64_t state = seed;
        bool taken = false;
        lines = strange_lines = 0;
        good = check(&state, &taken);
        results[!taken]++;
        if (!good)
            fprintf(stderr, "seed %llu: %lu lines\n%s\n%s\n", (unsigned long long)seed, lines,
                    current[0], current[1]);
    }
    printf("%lu taken, %lu refused\n", results[0], results[1]);
    return !good || !results[0] || !results[1];
}
