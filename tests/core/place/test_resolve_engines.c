// SPDX-License-Identifier: Apache-2.0
// The place of a process by the variables of Slurm, Open MPI, PMI and Kubernetes.
#include "tests/core/place/resolve_rows.h"

TEST(slurm)
{
    static const struct row rows[] = {
        {NULL,
         {STEP, "SLURM_PROCID=2", "SLURM_STEP_NUM_TASKS=4", "SLURM_NTASKS=9", "SLURM_LOCALID=0",
          "SLURM_NODEID=1", "SLURM_STEP_NODELIST=n[1-2]", "SLURM_STEP_TASKS_PER_NODE=2(x2)",
          "SLURM_RESTART_COUNT=1"},
         "slurm: worker 2 of 4, local 0 of 2, at n1:12114, job slurm 7.2, restart 1"},
        {NULL,
         {STEP, "SLURM_PROCID=4", "SLURM_STEP_NUM_TASKS=5", "SLURM_LOCALID=0", "SLURM_NODEID=2",
          "SLURM_STEP_NODELIST=n[1-2],m7", "SLURM_STEP_TASKS_PER_NODE=2(x2),1"},
         "slurm: worker 4 of 5, local 0 of 1, at n1:12114, job slurm 7.2"},
        // On one host its name does not matter.
        {NULL,
         {STEP, "SLURM_PROCID=1", "SLURM_NTASKS=2", "SLURM_STEP_NODELIST=n1"},
         "slurm: worker 1 of 2, at 127.0.0.1:12114, job slurm 7.2"},
        {NULL,
         {STEP, "SLURM_PROCID=1", "SLURM_NTASKS=2", "SLURM_STEP_NODELIST=n[1-2]",
          "LOCKSTEP_ADDRESS=n9:5"},
         "slurm: worker 1 of 2, at n9:5, job slurm 7.2"},
        // The largest numbers of Slurm.
        {NULL,
         {"SLURM_JOB_ID=4294967294", "SLURM_STEP_ID=0", "SLURM_PROCID=0", "SLURM_NTASKS=2",
          "SLURM_STEP_NODELIST=n[1-2]"},
         "slurm: worker 0 of 2, at n1:28352, from outside, job slurm 4294967294.0"},
        // Scripts set variables of PyTorch for Python programs.
        {NULL,
         {"WORLD_SIZE=4", TORCH, STEP, "SLURM_PROCID=1", "SLURM_NTASKS=2",
          "SLURM_STEP_NODELIST=n1"},
         "slurm: worker 1 of 2, at 127.0.0.1:12114, job slurm 7.2"},
        // srun --mpi=pmi2 gives no address through PMI.
        {NULL,
         {"PMI_RANK=1", "PMI_SIZE=2", STEP, "SLURM_PROCID=1", "SLURM_NTASKS=2",
          "SLURM_STEP_NODELIST=n1"},
         "slurm: worker 1 of 2, at 127.0.0.1:12114, job slurm 7.2"},
        // torchrun in a step.
        {NULL,
         {"RANK=3", "WORLD_SIZE=4", TORCH, STEP, "SLURM_PROCID=1", "SLURM_NTASKS=2",
          "SLURM_STEP_NODELIST=n[1-2]"},
         "torchrun: worker 3 of 4, at 10.0.0.1:29500"},
        // The batch script is one process with the variables of all tasks, but of no step.
        {NULL,
         {"SLURM_JOB_ID=7", "SLURM_PROCID=0", "SLURM_NTASKS=4", "SLURM_NODELIST=n[1-2]"},
         NULL,
         "the Slurm job has 4 tasks, but this process is in no step of it: start the workers with "
         "srun"},
        {NULL,
         {"SLURM_JOB_ID=7", "SLURM_PROCID=0", "SLURM_NTASKS=4", "WORLD_SIZE=4"},
         NULL,
         "the Slurm job has 4 tasks"},
        {NULL, {"SLURM_JOB_ID=7", "SLURM_JOB_NUM_NODES=2"}, NULL, "the Slurm job has 2 nodes"},
        {NULL, {"SLURM_JOB_ID=7", "SLURM_PROCID=0", "SLURM_NTASKS=1"}, "none: worker 0 of 1"},
        {NULL, {"SLURM_JOB_ID=7", "SLURM_PROCID=0"}, "none: worker 0 of 1"},
        {NULL,
         {"SLURM_JOB_ID=7", "SLURM_PROCID=0", "SLURM_NTASKS=four"},
         NULL,
         "SLURM_NTASKS=four is not a whole number"},
        // salloc's interactive step.
        {NULL,
         {"SLURM_JOB_ID=7", "SLURM_STEP_ID=4294967290", "SLURM_PROCID=0", "SLURM_NTASKS=4",
          "SLURM_STEP_NUM_TASKS=1", "SLURM_STEP_NODELIST=n1"},
         NULL,
         "the Slurm job has 4 tasks, but this process is in no step"},
        {"slurm",
         {"SLURM_JOB_ID=7", "SLURM_PROCID=0", "SLURM_NTASKS=4"},
         NULL,
         "start the workers with srun"},
        {NULL,
         {STEP, "SLURM_NTASKS=2"},
         NULL,
         "SLURM_STEP_ID and SLURM_JOB_ID are set, but SLURM_PROCID and SLURM_STEP_NODELIST are "
         "not"},
        {NULL,
         {STEP, "SLURM_PROCID=2", "SLURM_NTASKS=2", "SLURM_STEP_NODELIST=n1"},
         NULL,
         "SLURM_PROCID=2 is not below the 2 tasks of the step"},
        {NULL,
         {STEP, "SLURM_PROCID=0", "SLURM_NTASKS=2", "SLURM_STEP_NODELIST=n[1-"},
         NULL,
         "SLURM_STEP_NODELIST=n[1- is not a list of hosts such as n[1-2,5]"},
        {NULL,
         {STEP, "SLURM_PROCID=0", "SLURM_NTASKS=2", "SLURM_STEP_NODELIST="},
         NULL,
         "SLURM_STEP_NODELIST= is not a list of hosts"},
        {NULL,
         {STEP, "SLURM_PROCID=0", "SLURM_NTASKS=2", "SLURM_LOCALID=0", "SLURM_STEP_NODELIST=n1",
          "SLURM_STEP_TASKS_PER_NODE=2(x"},
         NULL,
         "SLURM_STEP_TASKS_PER_NODE=2(x is not a list such as 2(x2),1"},
        {NULL,
         {STEP, "SLURM_PROCID=0", "SLURM_NTASKS=4", "SLURM_LOCALID=0", "SLURM_STEP_NODELIST=n[1-2]",
          "SLURM_STEP_TASKS_PER_NODE=2,1"},
         NULL,
         "counts 3 tasks on 2 nodes, but the step has 4 tasks on 2 nodes"},
        {NULL,
         {STEP, "SLURM_PROCID=0", "SLURM_NTASKS=2", "SLURM_LOCALID=1", "SLURM_STEP_NODELIST=n[1-2]",
          "SLURM_STEP_TASKS_PER_NODE=1(x2)", "SLURM_NODEID=0"},
         NULL,
         "SLURM_LOCALID=1 is not below the 1 tasks of node 0"},
        {NULL,
         {STEP, "SLURM_PROCID=0", "SLURM_NTASKS=2", "SLURM_STEP_NODELIST=n[1-2]", "SLURM_NODEID=2"},
         NULL,
         "SLURM_NODEID=2 is not below the 2 hosts"},
        // --distribution=arbitrary
        {NULL,
         {STEP, "SLURM_PROCID=0", "SLURM_NTASKS=2", "SLURM_STEP_NODELIST=n[1-2]", "SLURM_NODEID=1"},
         NULL,
         "task 0 is not on the first host of the step, n1: leave out srun's --distribution"},
        {NULL,
         {"SLURM_JOB_ID=7", "SLURM_STEP_ID=x", "SLURM_PROCID=0"},
         NULL,
         "SLURM_STEP_ID=x is not a whole number"},
    };
    CHECK_ROWS(rows);
}

TEST(daemons_of_mpi_in_a_slurm_step)
{
    // The variables of Slurm are those of orted or hydra_pmi_proxy, one a node.
    static const struct row rows[] = {
        {NULL,
         {"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=4", STEP, "SLURM_PROCID=1",
          "SLURM_NTASKS=2", "SLURM_STEP_NODELIST=n[1-2]"},
         NULL,
         "the workers cannot find each other through PMIx: PMIX_NAMESPACE is not set"},
        {NULL,
         {"PMI_RANK=3", "PMI_SIZE=4", STEP, "SLURM_PROCID=1", "SLURM_NTASKS=2",
          "SLURM_STEP_NODELIST=n[1-2]"},
         NULL,
         "PMI_RANK and PMI_SIZE are set, but LOCKSTEP_ADDRESS is not"},
        {"slurm",
         {"PMI_RANK=3", "PMI_SIZE=4", STEP, "SLURM_PROCID=1", "SLURM_NTASKS=2",
          "SLURM_STEP_NODELIST=n[1-2]"},
         NULL,
         "the variables of Slurm are those of a daemon of MPI"},
    };
    CHECK_ROWS(rows);
}

TEST(open_mpi)
{
    static const struct row rows[] = {
        {NULL,
         {"OMPI_COMM_WORLD_RANK=3", "OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_LOCAL_RANK=1",
          "OMPI_COMM_WORLD_LOCAL_SIZE=2", "OMPI_COMM_WORLD_NODE_RANK=7", "LOCKSTEP_ADDRESS=h:9"},
         "openmpi: worker 3 of 4, local 1 of 2, at h:9"},
        {NULL, {"OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=1"}, "openmpi: worker 0 of 1"},
        {NULL,
         {"OMPI_COMM_WORLD_RANK=0"},
         NULL,
         "OMPI_COMM_WORLD_RANK is set, but OMPI_COMM_WORLD_SIZE is not"},
        {NULL,
         {"OMPI_COMM_WORLD_RANK=4", "OMPI_COMM_WORLD_SIZE=4", "LOCKSTEP_ADDRESS=h:9"},
         NULL,
         "OMPI_COMM_WORLD_RANK=4 is not below OMPI_COMM_WORLD_SIZE=4"},
        {NULL,
         {"OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=2", "PMIX_NAMESPACE=1", "PMIX_RANK=0",
          "LOCKSTEP_PMIX_LIBRARY=/nonexistent/libpmix.so"},
         NULL,
         "/nonexistent/libpmix.so cannot be loaded (Debian: libpmix2): set "
         "LOCKSTEP_ADDRESS=host:port"},
        // A launcher that is told the address needs no PMIx.
        {"openmpi",
         {"OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=2", "PMIX_NAMESPACE=1", "PMIX_RANK=0",
          "LOCKSTEP_PMIX_LIBRARY=/nonexistent/libpmix.so", "LOCKSTEP_ADDRESS=h:9"},
         "openmpi: worker 0 of 2, at h:9, from outside"},
    };
    CHECK_ROWS(rows);
}

TEST(pmi)
{
    static const struct row rows[] = {
        {NULL,
         {"PMI_RANK=1", "PMI_SIZE=4", "MPI_LOCALRANKID=1", "MPI_LOCALNRANKS=4", "PMI_FD=5",
          "LOCKSTEP_ADDRESS=h:9"},
         "pmi: worker 1 of 4, local 1 of 4, at h:9"},
        {NULL, {"PMI_RANK=0", "PMI_SIZE=1"}, "pmi: worker 0 of 1"},
        {NULL,
         {"PMI_RANK=1", "PMI_SIZE=4"},
         NULL,
         "PMI_RANK and PMI_SIZE are set, but LOCKSTEP_ADDRESS is not"},
        {NULL,
         {"PMI_RANK=1", "PMI_SIZE=4"},
         NULL,
         "PMI does not say where worker 0 is: set LOCKSTEP_ADDRESS=host:port"},
        {NULL, {"PMI_SIZE=4"}, NULL, "PMI_SIZE is set, but PMI_RANK is not"},
        {NULL,
         {"PMI_RANK=5", "PMI_SIZE=4", "LOCKSTEP_ADDRESS=h:9"},
         NULL,
         "PMI_RANK=5 is not below PMI_SIZE=4"},
    };
    CHECK_ROWS(rows);
}

TEST(kubernetes)
{
    static const struct row rows[] = {
        // An Indexed Job.
        {NULL,
         {"JOB_COMPLETION_INDEX=2", "LOCKSTEP_WORLD_SIZE=4",
          "LOCKSTEP_ADDRESS=train-0.train:29400"},
         "kubernetes: worker 2 of 4, local 0 of 1, at train-0.train:29400"},
        {NULL,
         {"JOB_COMPLETION_INDEX=0", "LOCKSTEP_WORLD_SIZE=1"},
         "kubernetes: worker 0 of 1, local 0 of 1"},
        {NULL,
         {"JOB_COMPLETION_INDEX=2"},
         NULL,
         "JOB_COMPLETION_INDEX is set, but LOCKSTEP_WORLD_SIZE is not: set LOCKSTEP_WORLD_SIZE to "
         "the completions"},
        {NULL,
         {"JOB_COMPLETION_INDEX=2", "LOCKSTEP_WORLD_SIZE=4"},
         NULL,
         "JOB_COMPLETION_INDEX and LOCKSTEP_WORLD_SIZE are set, but LOCKSTEP_ADDRESS is not"},
        {NULL,
         {"JOB_COMPLETION_INDEX=4", "LOCKSTEP_WORLD_SIZE=4", "LOCKSTEP_ADDRESS=h:1"},
         NULL,
         "JOB_COMPLETION_INDEX=4 is not below LOCKSTEP_WORLD_SIZE=4"},
        // A TrainJob, whose pods are those of an Indexed Job, too.
        {NULL,
         {"PET_NNODES=2", "PET_NPROC_PER_NODE=auto", "PET_NODE_RANK=1",
          "PET_MASTER_ADDR=job-node-0-0.job", "PET_MASTER_PORT=29500", "JOB_COMPLETION_INDEX=1"},
         "kubernetes: worker 1 of 2, local 0 of 1, at job-node-0-0.job:29500"},
        {NULL,
         {"PET_NNODES=2:2", "PET_NODE_RANK=1", "PET_MASTER_ADDR=h", "PET_MASTER_PORT=29500"},
         "kubernetes: worker 1 of 2, local 0 of 1, at h:29500"},
        {NULL, {"PET_NNODES=1", "PET_NODE_RANK=0"}, "kubernetes: worker 0 of 1, local 0 of 1"},
        {NULL,
         {"PET_NNODES=1:3", "PET_NODE_RANK=1", "PET_MASTER_ADDR=h", "PET_MASTER_PORT=29500"},
         NULL,
         "PET_NNODES=1:3 does not say one number of pods: start torchrun --no-python in each pod"},
        {NULL,
         {"PET_NNODES=2", "PET_NPROC_PER_NODE=4", "PET_NODE_RANK=1", "PET_MASTER_ADDR=h",
          "PET_MASTER_PORT=1"},
         NULL,
         "PET_NPROC_PER_NODE=4 asks for several processes a pod, but this is one"},
        {NULL,
         {"PET_NNODES=2", "PET_N_PROC_PER_NODE=2", "PET_NODE_RANK=1", "PET_MASTER_ADDR=h",
          "PET_MASTER_PORT=1"},
         NULL,
         "PET_N_PROC_PER_NODE=2 asks for several"},
        {NULL,
         {"PET_NNODES=2", "PET_NODE_RANK=1", "PET_MASTER_ADDR=h"},
         NULL,
         "but PET_MASTER_PORT is not"},
        // An elastic PyTorchJob, whose pods have no number.
        {NULL,
         {"PET_NNODES=1:3", "PET_RDZV_ENDPOINT=job-worker-0:23456", "PET_RDZV_BACKEND=c10d"},
         NULL,
         "PET_NNODES is set, but PET_NODE_RANK is not: start torchrun --no-python in each pod"},
        {NULL,
         {"PET_NNODES=2", "PET_NODE_RANK=2", "PET_MASTER_ADDR=h", "PET_MASTER_PORT=1"},
         NULL,
         "PET_NODE_RANK=2 is not below PET_NNODES=2"},
        // torchrun in a pod of a TrainJob.
        {NULL,
         {"PET_NNODES=2", "PET_NPROC_PER_NODE=2", "PET_NODE_RANK=1", "PET_MASTER_ADDR=h",
          "PET_MASTER_PORT=29500", "RANK=3", "WORLD_SIZE=4", TORCH, "TORCHELASTIC_RUN_ID=none"},
         "torchrun: worker 3 of 4, at 10.0.0.1:29500, job none"},
        // A LeaderWorkerSet.
        {NULL,
         {"LWS_GROUP_SIZE=3", "LWS_WORKER_INDEX=2", "LWS_LEADER_ADDRESS=set-0.set.default"},
         "kubernetes: worker 2 of 3, local 0 of 1, at set-0.set.default:29400"},
        {NULL,
         {"LWS_GROUP_SIZE=3", "LWS_WORKER_INDEX=2", "LWS_LEADER_ADDRESS=h", "LOCKSTEP_ADDRESS=h:5"},
         "kubernetes: worker 2 of 3, local 0 of 1, at h:5"},
        {NULL,
         {"LWS_GROUP_SIZE=3", "LWS_WORKER_INDEX=2"},
         NULL,
         "LWS_GROUP_SIZE and LWS_WORKER_INDEX are set, but LWS_LEADER_ADDRESS is not"},
        {NULL,
         {"LWS_GROUP_SIZE=3", "LWS_WORKER_INDEX=3", "LWS_LEADER_ADDRESS=h"},
         NULL,
         "LWS_WORKER_INDEX=3 is not below LWS_GROUP_SIZE=3"},
    };
    CHECK_ROWS(rows);
}
