// SPDX-License-Identifier: Apache-2.0
// The input of a session: its training data, and streams of examples in the types that the model
// and its loss read.
#include "core/train/session.h"

#include "core/model/learned_classes.h"

#include <stdlib.h>
#include <string.h>

// All replicas of a session are on the same kind of device and take the same inputs as bytes.
static uint32_t input_dtype(const struct ls_session *session, uint32_t replica, uint32_t input,
                            const struct ls_field *field)
{
    const bool bytes = ls_replica_takes_bytes(session->replicas[replica]) >> input & 1;
    return bytes && field->dtype == LS_U8 && field->divisor == session->need.byte_divisors[input]
               ? LS_U8
               : session->model->graph->inputs[input]->dtype;
}

// What the fields are delivered as, and which are not: optional inputs that the model does not
// have, and targets where nothing is compared with them.
static void choose_fields(const struct ls_session *session, uint32_t replica,
                          const struct ls_dataset *dataset, struct ls_stream_options *out)
{
    const struct ls_graph *graph = session->model->graph;
    uint32_t inputs = 0;
    for (uint32_t i = 0; i < dataset->field_count; i++) {
        const struct ls_field *field = &dataset->fields[i];
        switch (field->role) {
        case LS_FIELD_INPUT:
            if (inputs < graph->input_count)
                out->dtypes[i] = input_dtype(session, replica, inputs++, field);
            else
                out->left_out |= 1u << i;
            break;
        case LS_FIELD_TARGET:
            // Where the program computes the loss it gets them as they are.
            if (session->need.prediction_examples ||
                (!graph->label && session->model->loss.kind != LS_LOSS_NONE))
                out->left_out |= 1u << i;
            else
                out->dtypes[i] = graph->label ? graph->label->dtype : 0;
            break;
        case LS_FIELD_WEIGHT:
            out->dtypes[i] = LS_F32;
            if (!graph->weights || session->need.prediction_examples)
                out->left_out |= 1u << i;
            break;
        }
    }
}

enum ls_status ls_session_open_stream(const struct ls_session *session,
                                      const struct ls_dataset *dataset,
                                      const struct ls_stream_options *order, uint32_t microbatches,
                                      uint32_t first, uint32_t count, struct ls_stream **out)
{
    struct ls_stream_options options = *order;
    options.global_batch = session->need.global_batch;
    options.first_rank =
        order->shares.world ? ls_session_share(session, first) : ls_session_rank(session, first);
    if (!order->shares.world)
        options.shares = ls_run_division(session->run, false);
    options.rank_count = count;
    options.blocks = microbatches;
    options.seed = session->run->seed;
    options.patience_ns = session->run->deadline_ns;
    choose_fields(session, first, dataset, &options);
    return ls_stream_open(dataset, &options, out);
}

static void close_streams(struct ls_session *session)
{
    struct ls_session_input *input = &session->input;
    session->stream = NULL;
    ls_stream_close(input->all);
    for (uint32_t i = 0; input->own && i < session->count; i++)
        ls_stream_close(input->own[i]);
    free(input->own);
    input->all = NULL;
    input->own = NULL;
}

void ls_session_forget_data(struct ls_session *session)
{
    close_streams(session);
    ls_data_close(session->input.data);
    session->input = (struct ls_session_input){0};
}

void ls_session_note_order(struct ls_session *session, const struct ls_model_order *order)
{
    if (order)
        session->input.order = *order;
    else
        close_streams(session);
}

// Whether the next example of the streams is the one that `order` begins with.
static bool goes_on(const struct ls_session *session, const struct ls_data *data,
                    enum ls_shuffle shuffle, uint64_t shuffle_buffer,
                    const struct ls_model_order *order)
{
    const struct ls_session_input *input = &session->input;
    return (input->all || input->own) && input->data == data && input->shuffle == shuffle &&
           input->shuffle_buffer == shuffle_buffer &&
           input->global_batch == session->need.global_batch &&
           input->microbatches == session->need.microbatches && input->order.key == order->key &&
           input->order.epochs == order->epochs && input->order.position == order->position;
}

enum ls_status ls_session_set_data(struct ls_session *session, struct ls_data *data,
                                   enum ls_shuffle shuffle, uint64_t shuffle_buffer,
                                   const struct ls_model_order *order)
{
    struct ls_session_input *input = &session->input;
    const struct ls_stream_options options = {
        .shuffle = shuffle,
        .shuffle_buffer = shuffle_buffer,
        .shares = ls_model_division(session->model),
        .epochs_before = order->epochs,
        .first_example = order->position,
        .augment = true,
    };
    const struct ls_dataset *dataset = NULL;
    if (goes_on(session, data, shuffle, shuffle_buffer, order)) {
        session->stream = input->all;
        return LS_OK;
    }
    close_streams(session);
    if (input->data != data) {
        ls_session_forget_data(session);
        ls_data_hold(data);
        input->data = data;
    }
    enum ls_status status = ls_model_wait_data(session->model, data, true, &dataset);
    if (status)
        return status;
    input->shuffle = shuffle;
    input->shuffle_buffer = shuffle_buffer;
    input->global_batch = session->need.global_batch;
    input->microbatches = session->need.microbatches;
    input->order = *order;
    if (!ls_driver_asynchronous(session->driver)) {
        status = ls_session_open_stream(session, dataset, &options, input->microbatches, 0,
                                        session->count, &input->all);
        session->stream = input->all;
        return status;
    }
    // One stream couples its readers: none is further ahead of the slowest than the stream has
    // room.
    input->own = calloc(session->count, sizeof(struct ls_stream *));
    status = input->own ? LS_OK : LS_OUT_OF_MEMORY;
    for (uint32_t i = 0; !status && i < session->count; i++)
        status = ls_session_open_stream(session, dataset, &options, input->microbatches, i, 1,
                                        &input->own[i]);
    return status;
}

enum ls_status ls_session_next(struct ls_session *session, uint32_t index,
                               struct ls_replica_batch *out, uint64_t *waited_ns)
{
    struct ls_batch batch;
    struct ls_stream *stream = session->stream;
    const uint32_t rank =
        stream ? ls_session_rank(session, index) : ls_session_share(session, index);
    if (atomic_load(&session->aborted))
        return LS_ABORTED;
    if (!stream)
        stream = session->input.own[index];
    const enum ls_status status = ls_stream_next(stream, rank, &batch, waited_ns);
    if (status)
        return status;
    *out = (struct ls_replica_batch){.count = batch.count,
                                     .global_count = batch.global_count,
                                     .example_offset = batch.example_offset,
                                     .block_counts = batch.block_counts,
                                     .block_offsets = batch.block_offsets};
    for (uint32_t i = 0, inputs = 0; i < batch.dataset->field_count; i++) {
        switch (batch.dataset->fields[i].role) {
        case LS_FIELD_INPUT:
            if (!batch.fields[i])
                break;
            out->bytes |= (uint32_t)(batch.dtypes[i] == LS_U8) << inputs;
            out->inputs[inputs++] = batch.fields[i];
            break;
        case LS_FIELD_TARGET: out->labels = batch.fields[i]; break;
        case LS_FIELD_WEIGHT: out->weights = batch.fields[i]; break;
        }
    }
    return ls_weighting_apply(&session->weighting, index, session->model->graph, out);
}
