// SPDX-License-Identifier: Apache-2.0
// The place of a process by TF_CONFIG.
#include "tests/core/place/resolve_rows.h"

#define CLUSTER                                                                               \
    "TF_CONFIG={\"cluster\": {\"chief\": [\"c:1\"], \"worker\": [\"a:1\", \"b:2\"], \"ps\": " \
    "[\"p:3\", \"q:4\"]}, "
#define WORKERS "TF_CONFIG={\"cluster\": {\"worker\": [\"a:1\", \"b:2\"]}, "

TEST(tf_config)
{
    static const struct row rows[] = {
        {NULL,
         {CLUSTER "\"task\": {\"type\": \"chief\", \"index\": 0}}"},
         "tf-config: worker 0 of 3 and 2, at c:1, from outside"},
        {NULL,
         {CLUSTER "\"task\": {\"type\": \"worker\", \"index\": 1}, \"rpc_layer\": \"grpc\", "
                  "\"environment\": \"cloud\"}"},
         "tf-config: worker 2 of 3 and 2, at c:1"},
        {NULL,
         {CLUSTER "\"task\": {\"type\": \"ps\", \"index\": 1}}"},
         "tf-config: server 1 of 3 and 2, at c:1, self q:4"},
        // Without a chief, worker 0 is the chief.
        {NULL,
         {WORKERS "\"task\": {\"type\": \"worker\", \"index\": 1}}"},
         "tf-config: worker 1 of 2, at a:1"},
        {NULL,
         {WORKERS "\"task\": {\"type\": \"worker\", \"index\": \"1\"}}"},
         "tf-config: worker 1 of 2, at a:1"},
        {NULL,
         {WORKERS "\"task\": {\"type\": \"worker\", \"index\": 1}}", "LOCKSTEP_ADDRESS=x:9"},
         "tf-config: worker 1 of 2, at x:9"},
        {NULL,
         {"TF_CONFIG={\"cluster\": {\"master\": [\"m:1\"], \"worker\": [\"a:1\"]}, \"task\": "
          "{\"type\": \"master\", \"index\": 0}}"},
         "tf-config: worker 0 of 2, at m:1, from outside"},
        {NULL,
         {"TF_CONFIG={\"cluster\": {\"worker\": [\"[::1]:1\", \"[::2]:1\"]}, \"task\": {\"type\": "
          "\"worker\", \"index\": 0}}"},
         "tf-config: worker 0 of 2, at ::1:1, from outside"},
        {NULL,
         {"TF_CONFIG={\"cluster\": {\"worker\": [\"localhost:1\", \"localhost:2\"]}, \"task\": "
          "{\"type\": \"worker\", \"index\": 0}}"},
         "tf-config: worker 0 of 2, at localhost:1"},
        // An object from index to address.
        {NULL,
         {"TF_CONFIG={\"cluster\": {\"worker\": {\"1\": \"b:1\", \"0\": \"a:1\"}}, \"task\": "
          "{\"type\": \"worker\", \"index\": 1}}"},
         "tf-config: worker 1 of 2, at a:1"},
        // No cluster: a training alone, as in TensorFlow.
        {NULL, {"TF_CONFIG={}"}, "none: worker 0 of 1"},
        {NULL,
         {"TF_CONFIG={\"cluster\": {}, \"task\": {\"type\": \"worker\", \"index\": 0}}"},
         "none: worker 0 of 1"},
        {NULL, {"TF_CONFIG={\"environment\": \"cloud\"}"}, "none: worker 0 of 1"},
    };
    CHECK_ROWS(rows);
}

#define SPARSE                                                                                    \
    "TF_CONFIG={\"sparseCluster\": {\"worker\": {\"2\": \"w2:1\"}, \"ps\": [\"p:1\", \"q:1\"]}, " \
    "\"task\": {\"type\": \"worker\", \"index\": 2}}"
#define SPARSE_SERVER                                                                          \
    "TF_CONFIG={\"sparseCluster\": {\"worker\": {}, \"ps\": [\"q:1\"]}, \"task\": {\"type\": " \
    "\"ps\", \"index\": 1}}"

TEST(sparse_clusters)
{
    static const struct row rows[] = {
        {NULL,
         {SPARSE, "LOCKSTEP_WORLD_SIZE=4", "LOCKSTEP_ADDRESS=w0:1"},
         "tf-config: worker 2 of 4 and 2, at w0:1"},
        {NULL,
         {SPARSE_SERVER, "LOCKSTEP_WORLD_SIZE=4", "LOCKSTEP_SERVERS=2", "LOCKSTEP_ADDRESS=w0:1"},
         "tf-config: server 1 of 4 and 2, at w0:1, self q:1"},
        {NULL,
         {"TF_CONFIG={\"sparseCluster\": {\"worker\": {\"0\": \"a:1\", \"1\": \"b:1\"}}, \"task\": "
          "{\"type\": \"worker\", \"index\": 1}}"},
         "tf-config: worker 1 of 2, at a:1"},
        {NULL,
         {SPARSE},
         NULL,
         "TF_CONFIG does not name all workers and servers: set LOCKSTEP_WORLD_SIZE"},
        {NULL, {SPARSE, "LOCKSTEP_WORLD_SIZE=4"}, NULL, "TF_CONFIG does not name all workers"},
        {NULL,
         {SPARSE_SERVER, "LOCKSTEP_WORLD_SIZE=4", "LOCKSTEP_ADDRESS=w0:1"},
         NULL,
         "TF_CONFIG does not name all workers and servers"},
        {NULL,
         {SPARSE, "LOCKSTEP_WORLD_SIZE=2", "LOCKSTEP_ADDRESS=w0:1"},
         NULL,
         "TF_CONFIG says that this is worker 2, but there are 2"},
    };
    CHECK_ROWS(rows);
}

#define ONE "\"task\": {\"type\": \"worker\", \"index\": 0}}"

TEST(wrong_tf_configs)
{
    static const struct row rows[] = {
        {NULL,
         {"TF_CONFIG="},
         NULL,
         "TF_CONFIG is not JSON (it is empty): correct TF_CONFIG or unset it"},
        {NULL, {"TF_CONFIG={'cluster'"}, NULL, "TF_CONFIG is not JSON ("},
        {NULL, {"TF_CONFIG=[]"}, NULL, "TF_CONFIG is not a JSON object"},
        {NULL, {"TF_CONFIG={\"cluster\": [1], " ONE}, NULL, "a cluster that is not an object"},
        {NULL,
         {"TF_CONFIG={\"cluster\": {\"worker\": [\"a:1\"], \"worker\": [\"b:1\"]}, " ONE},
         NULL,
         "is not JSON (duplicate"},
        {NULL,
         {"TF_CONFIG={\"cluster\": {\"worker\": [\"a:1\"]}, \"sparseCluster\": {}, " ONE},
         NULL,
         "a cluster and a sparseCluster"},
        {NULL,
         {"TF_CONFIG={\"cluster\": {\"workers\": [\"a:1\"]}, " ONE},
         NULL,
         "TF_CONFIG has a job 'workers': expected"},
        {NULL,
         {"TF_CONFIG={\"cluster\": {\"worker\": \"a:1\"}, " ONE},
         NULL,
         "a job worker that is not a list"},
        {NULL,
         {"TF_CONFIG={\"cluster\": {\"worker\": [1]}, " ONE},
         NULL,
         "a worker at '(no text)', which is not host:port"},
        {NULL,
         {"TF_CONFIG={\"cluster\": {\"worker\": [\"a\"]}, " ONE},
         NULL,
         "a worker at 'a', which is not host:port"},
        {NULL,
         {"TF_CONFIG={\"cluster\": {\"worker\": [\"http://a:1\"]}, " ONE},
         NULL,
         "which is not host:port"},
        {NULL,
         {"TF_CONFIG={\"cluster\": {\"worker\": [\"a:99999\"]}, " ONE},
         NULL,
         "which is not host:port"},
        {NULL,
         {"TF_CONFIG={\"cluster\": {\"worker\": [\"a:1\", \"a:1\"]}, " ONE},
         NULL,
         "TF_CONFIG has two tasks at a:1"},
        {NULL,
         {"TF_CONFIG={\"cluster\": {\"chief\": [\"a:1\", \"b:1\"]}, " ONE},
         NULL,
         "has 2 tasks 'chief': expected one at most"},
        {NULL,
         {"TF_CONFIG={\"cluster\": {\"chief\": [\"a:1\"], \"master\": [\"b:1\"]}, " ONE},
         NULL,
         "a chief and a master"},
        {NULL,
         {CLUSTER "\"task\": {\"type\": \"evaluator\", \"index\": 0}}"},
         NULL,
         "this task is the evaluator, which Lockstep does not have: leave it out"},
        {NULL,
         {WORKERS "\"task\": {\"type\": \"evaluator\", \"index\": 0}}"},
         NULL,
         "this task is the evaluator, which Lockstep does not have: leave it out"},
        {NULL,
         {"TF_CONFIG={\"cluster\": {\"worker\": [\"a:1\"]}, \"task\": {\"type\": \"evaluator\", "
          "\"index\": 0}}"},
         NULL,
         "this task is the evaluator, which Lockstep does not have: leave it out"},
        {NULL,
         {"TF_CONFIG={\"cluster\": {\"chief\": [\"a:1\"], \"evaluator\": [\"e:1\"]}, \"task\": "
          "{\"type\": \"evaluator\", \"index\": 0}}"},
         NULL,
         "this task is the evaluator, which Lockstep does not have: leave it out"},
        {NULL,
         {"TF_CONFIG={\"cluster\": {\"ps\": [\"a:1\"]}, \"task\": {\"type\": \"evaluator\", "
          "\"index\": 0}}"},
         NULL,
         "this task is the evaluator, which Lockstep does not have: leave it out"},
        {NULL,
         {"TF_CONFIG={\"task\": {\"type\": \"evaluator\", \"index\": 0}}"},
         NULL,
         "this task is the evaluator, which Lockstep does not have: leave it out"},
        {NULL,
         {"TF_CONFIG={\"cluster\": {\"ps\": [\"a:1\"]}, \"task\": {\"type\": \"ps\", \"index\": "
          "0}}"},
         NULL,
         "TF_CONFIG does not name all workers and servers"},
        {NULL,
         {"TF_CONFIG={\"task\": {\"type\": \"ps\", \"index\": 0}}"},
         NULL,
         "TF_CONFIG has no cluster, but this task is a ps of one"},
        {NULL,
         {WORKERS "\"task\": {\"type\": \"worker\", \"index\": 2}}"},
         NULL,
         "TF_CONFIG says that this is worker 2, but there are 2"},
        {NULL,
         {WORKERS "\"task\": {\"type\": \"chief\", \"index\": 0}}"},
         NULL,
         "TF_CONFIG says that this is chief 0, but there are 0"},
        {NULL,
         {WORKERS "\"task\": {\"type\": \"Worker\", \"index\": 0}}"},
         NULL,
         "a task of type 'Worker': expected"},
        {NULL,
         {WORKERS "\"task\": {\"type\": \"worker\"}}"},
         NULL,
         "does not say the index of this task"},
        {NULL,
         {WORKERS "\"task\": {\"type\": \"worker\", \"index\": 1.0}}"},
         NULL,
         "does not say the index of this task"},
        {NULL,
         {WORKERS "\"task\": {\"type\": \"worker\", \"index\": -1}}"},
         NULL,
         "does not say the index of this task"},
        {NULL,
         {WORKERS "\"task\": {\"type\": \"worker\", \"index\": \"\"}}"},
         NULL,
         "does not say the index of this task"},
        {NULL,
         {WORKERS "\"task\": {\"type\": \"worker\", \"index\": 4294967296}}"},
         NULL,
         "does not say the index of this task"},
        {NULL,
         {WORKERS "\"task\": {\"type\": \"worker\", \"index\": 99999999999999999999999}}"},
         NULL,
         "TF_CONFIG is not JSON (too big integer"},
        {NULL, {WORKERS "\"other\": 1}"}, NULL, "TF_CONFIG does not say the type of this task"},
        {NULL,
         {"TF_CONFIG={\"cluster\": {\"worker\": {\"01\": \"a:1\"}}, " ONE},
         NULL,
         "TF_CONFIG has a worker number '01'"},
        {NULL,
         {"TF_CONFIG={\"cluster\": {\"worker\": {\"70000\": \"a:1\"}}, " ONE},
         NULL,
         "TF_CONFIG has a worker number '70000'"},
    };
    CHECK_ROWS(rows);
}
