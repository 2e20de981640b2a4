// SPDX-License-Identifier: Apache-2.0
// MPI_Allreduce of float32, in place. Answers the orders of side.h, which rank 0 reads and passes on.
#include "lab/bench/side.h"

#include <mpi.h>
#include <string.h>

static int rank, ranks;

// The others sleep while they wait, so that an idle side takes no core from those that are timed.
static void wait_for_order(struct side_order *order)
{
    const struct timespec nap = {.tv_nsec = 500000};
    int there = 0;
    while (!there) {
        MPI_Iprobe(0, 0, MPI_COMM_WORLD, &there, MPI_STATUS_IGNORE);
        if (!there)
            nanosleep(&nap, NULL);
    }
    MPI_Recv(order, sizeof(*order), MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void next_order(struct side_order *order)
{
    if (rank) {
        wait_for_order(order);
        return;
    }
    if (!side_read(order))
        order->bytes = 0;
    for (int i = 1; i < ranks; i++)
        MPI_Send(order, sizeof(*order), MPI_BYTE, i, 0, MPI_COMM_WORLD);
}

// Seconds.
static double call_many(const struct side_order *order, float *data, unsigned long long calls)
{
    const int count = (int)(order->bytes / sizeof(float));
    double spent = 0, begin = side_now();
    for (unsigned long long i = 0; i < calls; i++) {
        if (order->fresh) {
            memset(data, 0, order->bytes);
            MPI_Barrier(MPI_COMM_WORLD);
            begin = side_now();
        }
        MPI_Allreduce(MPI_IN_PLACE, data, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        if (order->fresh)
            spent += side_now() - begin;
    }
    return order->fresh ? spent : side_now() - begin;
}

static void run_order(const struct side_order *order)
{
    static double mine[SIDE_BATCHES_MOST], sums[SIDE_BATCHES_MOST];
    float *data = aligned_alloc(4096, (order->bytes + 4095) / 4096 * 4096);
    if (!data)
        MPI_Abort(MPI_COMM_WORLD, 1);
    memset(data, 0, order->bytes);
    (void)call_many(order, data, SIDE_WARMUP);
    for (unsigned long long batch = 0; batch < order->batches; batch++) {
        MPI_Barrier(MPI_COMM_WORLD);
        mine[batch] = call_many(order, data, order->calls) / (double)order->calls / ranks;
    }
    MPI_Reduce(mine, sums, (int)order->batches, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0)
        side_answer(sums, order->batches);
    free(data);
}

int main(int count, char **words)
{
    struct side_order order = {0};
    MPI_Init(&count, &words);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (next_order(&order); order.bytes; next_order(&order))
        run_order(&order);
    MPI_Finalize();
    return 0;
}
