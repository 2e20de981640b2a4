// SPDX-License-Identifier: Apache-2.0
// TF_CONFIG, as TensorFlow's users and Kubeflow's TFJob write it:
//
//     {"cluster": {"chief": ["host:port"], "worker": [...], "ps": [...]},
//      "task": {"type": "worker", "index": 0}}
//
// The chief is worker 0 and worker i is worker i + 1; without a chief, worker i is worker i. The
// task of an evaluator is refused, whoever else there is. A list may be an object from index to address, which may
// lack tasks: TFJob with dynamic workers ("sparseCluster") tells each worker only of itself and of
// the servers, so LOCKSTEP_WORLD_SIZE and LOCKSTEP_ADDRESS must say the rest. A TF_CONFIG without
// a cluster means a training alone, as in TensorFlow.
#include "core/place/resolvers/resolver.h"

#include "core/base/json_size.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#define MOST_BYTES ((size_t)1 << 20)
#define EXPECTED "expected a cluster of chief, worker, ps and evaluator"

enum { CHIEF, WORKER, SERVER, EVALUATOR, JOBS };

struct job {
    json_t *tasks; // a list or an object; NULL: none
    uint32_t count;
    bool sparse; // does not have all indices 0 .. count - 1
};

struct config {
    struct job jobs[JOBS];
    int type; // of this task
    uint32_t index;
    json_t *addresses; // an object with all of them, to find the same one twice
    uint32_t loopback_count, address_count;
};

static int find_job(const char *name)
{
    // "master" is what TensorFlow 1 called the chief.
    static const char *const names[] = {"chief", "worker", "ps", "evaluator", "master"};
    for (int i = 0; name && i <= JOBS; i++)
        if (strcmp(name, names[i]) == 0)
            return i == JOBS ? CHIEF : i;
    return -1;
}

static const char *get_address(const struct job *job, uint32_t index)
{
    char key[16];
    if (json_is_array(job->tasks))
        return json_string_value(json_array_get(job->tasks, index));
    snprintf(key, sizeof(key), "%u", index);
    return json_string_value(json_object_get(job->tasks, key));
}

static void check_address(struct ls_resolving *resolving, struct config *config, const char *job,
                          const json_t *json)
{
    char host[LS_HOST_BYTES];
    uint16_t port;
    const char *address = json_string_value(json);
    if (!address || !ls_host_port_parse(address, host, &port)) {
        ls_resolving_fail(resolving, "TF_CONFIG has a %s at '%.100s', which is not host:port", job,
                          address ? address : "(no text)");
        return;
    }
    if (json_object_get(config->addresses, address))
        ls_resolving_fail(resolving, "TF_CONFIG has two tasks at %s", address);
    if (json_object_set_new(config->addresses, address, json_true()))
        resolving->status = LS_OUT_OF_MEMORY;
    config->address_count++;
    config->loopback_count += ls_host_is_loopback(host);
}

static void read_object(struct ls_resolving *resolving, struct config *config, const char *name,
                        struct job *job)
{
    const char *key;
    json_t *value;
    uint32_t most = 0;
    json_object_foreach(job->tasks, key, value)
    {
        uint32_t index;
        // "07" would be found under no index.
        if ((key[0] == '0' && key[1]) ||
            !ls_digits_parse(key, strlen(key), 0, LS_MOST_WORKERS - 1, &index)) {
            ls_resolving_fail(resolving, "TF_CONFIG has a %s number '%.40s'", name, key);
            return;
        }
        if (index >= most)
            most = index + 1;
        check_address(resolving, config, name, value);
    }
    job->count = most;
    job->sparse = json_object_size(job->tasks) != most;
}

static void read_job(struct ls_resolving *resolving, struct config *config, const char *name,
                     json_t *tasks)
{
    const int type = find_job(name);
    if (type < 0) {
        ls_resolving_fail(resolving, "TF_CONFIG has a job '%.40s': " EXPECTED, name);
        return;
    }
    struct job *job = &config->jobs[type];
    if (job->tasks)
        ls_resolving_fail(resolving, "TF_CONFIG has a chief and a master, which are the same");
    job->tasks = tasks;
    if (json_is_object(tasks)) {
        read_object(resolving, config, name, job);
    } else if (json_is_array(tasks) && json_array_size(tasks) <= LS_MOST_WORKERS) {
        json_t *value;
        size_t i;
        job->count = (uint32_t)json_array_size(tasks);
        json_array_foreach(tasks, i, value) check_address(resolving, config, name, value);
    } else {
        ls_resolving_fail(resolving,
                          "TF_CONFIG has a job %s that is not a list of at most %d addresses", name,
                          LS_MOST_WORKERS);
    }
    if (job->count > 1 && (type == CHIEF || type == EVALUATOR))
        ls_resolving_fail(resolving, "TF_CONFIG has %u tasks '%s': expected one at most",
                          job->count, name);
}

static void refuse_evaluator(struct ls_resolving *resolving)
{
    ls_resolving_fail(resolving, "TF_CONFIG says that this task is the evaluator, which Lockstep "
                                 "does not have");
    resolving->advice = "leave it out, because worker 0 validates after each epoch";
}

// TensorFlow takes the index as a text of digits, too.
static void read_task(struct ls_resolving *resolving, struct config *config, const json_t *task)
{
    const char *type = json_string_value(json_object_get(task, "type"));
    const json_t *index = json_object_get(task, "index");
    const char *digits = json_string_value(index);
    const json_int_t number = json_integer_value(index);
    if (!type) {
        ls_resolving_fail(resolving, "TF_CONFIG does not say the type of this task");
        return;
    }
    config->type = find_job(type);
    if (config->type < 0)
        ls_resolving_fail(resolving, "TF_CONFIG has a task of type '%.40s': " EXPECTED, type);
    if (config->type == EVALUATOR)
        refuse_evaluator(resolving);
    if (json_is_integer(index) && number >= 0 && number < LS_MOST_WORKERS)
        config->index = (uint32_t)number;
    else if (!digits ||
             !ls_digits_parse(digits, strlen(digits), 0, LS_MOST_WORKERS - 1, &config->index))
        ls_resolving_fail(resolving,
                          "TF_CONFIG does not say the index of this task as a whole number");
}

// The tasks of which a sparse cluster does not tell.
static void read_rest(struct ls_resolving *resolving, struct config *config)
{
    struct job *workers = &config->jobs[WORKER], *servers = &config->jobs[SERVER];
    const bool is_server = config->type == SERVER;
    if (!ls_resolving_has(resolving, "LOCKSTEP_WORLD_SIZE") ||
        !ls_resolving_has(resolving, "LOCKSTEP_ADDRESS") ||
        (is_server && !ls_resolving_has(resolving, "LOCKSTEP_SERVERS"))) {
        ls_resolving_fail(resolving, "TF_CONFIG does not name all workers and servers");
        resolving->advice =
            "set LOCKSTEP_WORLD_SIZE, LOCKSTEP_SERVERS and LOCKSTEP_ADDRESS=host:port "
            "of worker 0, or leave out enableDynamicWorker";
        return;
    }
    const uint32_t chiefs = config->jobs[CHIEF].count;
    const uint32_t world =
        ls_resolving_number(resolving, "LOCKSTEP_WORLD_SIZE", 1 + chiefs, LS_MOST_WORKERS);
    workers->count = world - chiefs;
    servers->count =
        ls_resolving_number_or(resolving, "LOCKSTEP_SERVERS", 0, LS_MOST_WORKERS, servers->count);
}

// The only address of a sparse list is this task's, whatever its index.
static const char *get_own_address(const struct config *config, bool sparse)
{
    const struct job *job = &config->jobs[config->type];
    return sparse && json_array_size(job->tasks) == 1 ? get_address(job, 0)
                                                      : get_address(job, config->index);
}

// In a sparse cluster a server knows only itself.
static void list_servers(struct ls_resolving *resolving, const struct config *config)
{
    struct ls_worker_place *place = resolving->place;
    const struct job *servers = &config->jobs[SERVER];
    size_t length = 0;
    for (uint32_t i = 0; i < servers->count; i++) {
        const char *address = get_address(servers, i);
        if (!address)
            break;
        const int more =
            snprintf(place->server_addresses + length, sizeof(place->server_addresses) - length,
                     "%s%s", i ? "," : "", address);
        length += more > 0 ? (size_t)more : 0;
        if (length >= sizeof(place->server_addresses)) {
            ls_resolving_fail(resolving, "TF_CONFIG has more addresses of servers than %zu letters",
                              sizeof(place->server_addresses) - 1);
            return;
        }
    }
}

static void fill(struct ls_resolving *resolving, struct config *config, bool sparse)
{
    static const char *const names[] = {"chief", "worker", "ps"};
    struct ls_worker_place *place = resolving->place;
    const struct job *job = &config->jobs[config->type];
    const struct job *first = &config->jobs[config->jobs[CHIEF].count ? CHIEF : WORKER];
    const uint64_t workers = (uint64_t)config->jobs[CHIEF].count + config->jobs[WORKER].count;
    if (workers == 0 || workers > LS_MOST_WORKERS)
        ls_resolving_fail(resolving, "TF_CONFIG has %s",
                          workers ? "too many workers" : "no workers");
    if (config->index >= job->count)
        ls_resolving_fail(resolving, "TF_CONFIG says that this is %s %u, but there are %u",
                          names[config->type], config->index, job->count);
    place->role = config->type == SERVER ? LS_ROLE_SERVER : LS_ROLE_WORKER;
    place->number = config->index + (config->type == WORKER ? config->jobs[CHIEF].count : 0);
    place->workers = (uint32_t)workers;
    place->servers = config->jobs[SERVER].count;
    const char *own = get_own_address(config, sparse), *address = get_address(first, 0);
    list_servers(resolving, config);
    if (own && place->role == LS_ROLE_SERVER)
        (void)ls_host_port_parse(own, place->own_address, &place->own_port);
    if (resolving->problem[0] || ls_resolving_given_address(resolving))
        return;
    if (address)
        (void)ls_host_port_parse(address, place->address, &place->port);
    place->reached_from_outside = place->role == LS_ROLE_WORKER && place->number == 0 &&
                                  ls_host_is_loopback(place->address) &&
                                  config->loopback_count < config->address_count;
}

static void note(struct ls_worker_place *place, const struct config *config)
{
    static const char *const names[] = {"chief", "worker", "ps"};
    snprintf(place->taken, sizeof(place->taken),
             "TF_CONFIG with %u chief, %u worker, %u ps; task %s %u", config->jobs[CHIEF].count,
             config->jobs[WORKER].count, config->jobs[SERVER].count, names[config->type],
             config->index);
}

static void read_cluster(struct ls_resolving *resolving, json_t *cluster, const json_t *task,
                         struct config *config)
{
    const char *name;
    json_t *tasks;
    bool sparse = false;
    json_object_foreach(cluster, name, tasks) read_job(resolving, config, name, tasks);
    for (int i = 0; i < JOBS; i++)
        sparse |= config->jobs[i].sparse;
    read_task(resolving, config, task);
    if (resolving->problem[0])
        return;
    // A server of a sparse cluster is the only one in its list, and there are no workers.
    sparse |= config->jobs[CHIEF].count + config->jobs[WORKER].count == 0 && config->type == SERVER;
    note(resolving->place, config);
    if (sparse)
        read_rest(resolving, config);
    if (!resolving->problem[0])
        fill(resolving, config, sparse);
}

// LS_RESOLVER_ABSENT: it has no cluster.
static enum ls_resolver_answer read_config(struct ls_resolving *resolving, json_t *json,
                                           struct config *config)
{
    json_t *cluster = json_object_get(json, "cluster");
    json_t *sparse = json_object_get(json, "sparseCluster");
    if (!json_is_object(json))
        ls_resolving_fail(resolving, "TF_CONFIG is not a JSON object");
    if (cluster && sparse)
        ls_resolving_fail(resolving, "TF_CONFIG has a cluster and a sparseCluster");
    cluster = cluster ? cluster : sparse;
    if (cluster && !json_is_object(cluster))
        ls_resolving_fail(resolving, "TF_CONFIG has a cluster that is not an object");
    if (resolving->problem[0])
        return LS_RESOLVER_WRONG;
    const json_t *task = json_object_get(json, "task");
    if (json_object_size(cluster) == 0) {
        const int type = find_job(json_string_value(json_object_get(task, "type")));
        if (type == EVALUATOR)
            refuse_evaluator(resolving);
        ls_resolving_fail(resolving, "TF_CONFIG has no cluster%s",
                          type == SERVER ? ", but this task is a ps of one" : "");
        return type == EVALUATOR || type == SERVER ? LS_RESOLVER_WRONG : LS_RESOLVER_ABSENT;
    }
    read_cluster(resolving, cluster, task, config);
    return ls_resolving_end(resolving);
}

static enum ls_resolver_answer resolve(struct ls_resolving *resolving)
{
    const char *text = ls_environment_get(resolving->environment, "TF_CONFIG");
    if (!text)
        return LS_RESOLVER_ABSENT;
    json_error_t error = {0};
    const size_t bytes = strlen(text);
    json_t *json = NULL;
    if (bytes > MOST_BYTES || !ls_json_fits(text, bytes))
        snprintf(error.text, sizeof(error.text), "longer than 1 MiB");
    else
        json = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    struct config config = {.addresses = json_object()};
    enum ls_resolver_answer answer = LS_RESOLVER_WRONG;
    if (!config.addresses || (!json && json_error_code(&error) == json_error_out_of_memory))
        resolving->status = LS_OUT_OF_MEMORY;
    else if (!json)
        ls_resolving_fail(resolving, "TF_CONFIG is not JSON (%s)",
                          bytes ? error.text : "it is empty");
    else
        answer = read_config(resolving, json, &config);
    if (resolving->status == LS_OUT_OF_MEMORY)
        answer = LS_RESOLVER_WRONG;
    json_decref(config.addresses);
    json_decref(json);
    return answer;
}

const struct ls_resolver ls_resolver_tf_config = {
    .name = "tf-config",
    .variables = "TF_CONFIG with a cluster and a task",
    .start = "correct TF_CONFIG or unset it",
    .resolve = resolve,
};
