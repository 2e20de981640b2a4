// SPDX-License-Identifier: Apache-2.0
// How much each example counts in the loss: the weight that the data gives it, times that of its class.
// Private to train/.
#ifndef LS_TRAIN_WEIGHTING_H
#define LS_TRAIN_WEIGHTING_H

#include "core/replica/replica.h"
#include "core/model/model.h"

struct ls_weighting {
    float *classes; // of a fit; NULL: all count once
    uint32_t class_count;
    struct ls_weighting_buffer {
        float *weights;
        uint64_t room;
    } * buffers; // one a replica
    uint32_t count;
};

// "0:1.0,1:2.5", as in ls_fit_options; classes that are not named count once. LS_USAGE, logged. [main thread]
LS_STATUS ls_weighting_set(struct ls_weighting *weighting, const char *text,
                           const struct ls_graph *graph);
void ls_weighting_clear(struct ls_weighting *weighting); // every class counts once again
LS_STATUS ls_weighting_init(struct ls_weighting *weighting, uint32_t replicas);
void ls_weighting_finish(struct ls_weighting *weighting);

// Gives the batch weights where the graph has them. They stay until the next call for this replica.
LS_STATUS ls_weighting_apply(struct ls_weighting *weighting, uint32_t replica,
                             const struct ls_graph *graph, struct ls_replica_batch *batch);

#endif
