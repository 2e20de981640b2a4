// SPDX-License-Identifier: Apache-2.0
// Messages: what is sent and received, transfer by transfer.
#include "core/train/comm_messages.h"

#include "core/base/clock.h"
#include "core/base/log.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define SIGNATURE UINT64_C(0x6d65737361676531) // of all transfers: sizes are in headers
#define LOOK_NS UINT64_C(10000000) // between two looks at deadlines

static bool fail_pair(struct ls_comm_messages *messages, uint32_t peer, enum ls_status status);

// ---- Works ----

static void end_work(struct ls_comm_messages *messages, struct ls_comm_work *work,
                     enum ls_status status)
{
    pthread_mutex_lock(&messages->lock);
    messages->works--;
    pthread_mutex_unlock(&messages->lock);
    ls_work_end(work, status);
}

static const char *rank_text(const struct ls_comm_work *work, char text[16])
{
    if (work->request.peer == LS_ANY_RANK)
        return "any rank";
    snprintf(text, 16, "rank %u", work->request.peer);
    return text;
}

// Ends it with what went wrong between two ranks; the first one waits for news of the process.
static void fail_work(struct ls_comm_messages *messages, struct ls_comm_work *work,
                      enum ls_status status, bool waits)
{
    const struct ls_comm *comm = messages->comm;
    const bool sends = work->request.kind == LS_COMM_SEND;
    char text[16];
    char **before = ls_log_keep(&work->line);
    const enum ls_status blamed = ls_work_blame_process(comm, work, status, waits, &work->line);
    if (blamed)
        status = blamed;
    else if (status == LS_PEER_LOST)
        ls_error(comm->ranks->name,
                 "rank %u: a message %s %s, tag %" PRIu64 ": it has closed the communicator",
                 comm->rank, sends ? "to" : "from", rank_text(work, text), work->request.tag);
    else
        ls_error(comm->ranks->name,
                 "rank %u: %s ends because another rank failed or the communicator was aborted; "
                 "close it on all ranks, and open another one",
                 comm->rank, work->request.name);
    ls_log_keep(before);
    end_work(messages, work, status);
}

static void fail_size(struct ls_comm_messages *messages, struct ls_comm_work *work, uint32_t source,
                      uint32_t destination, uint64_t sent, uint64_t expected)
{
    char **before = ls_log_keep(&work->line);
    ls_error(messages->comm->ranks->name,
             "a message of tag %" PRIu64 ": rank %u sends %" PRIu64 " bytes, but rank %u expects "
             "%" PRIu64,
             work->request.tag, source, sent, destination, expected);
    ls_log_keep(before);
    end_work(messages, work, LS_FAILED);
}

// ---- Transfers ----

static struct ls_flight *new_flight(struct ls_comm_messages *messages, enum ls_flight_kind kind,
                                    uint32_t peer)
{
    if (messages->flight_count == messages->flight_room) {
        const uint32_t room = 2 * messages->flight_room + 16;
        struct ls_flight **flights = realloc(messages->flights, room * sizeof(*flights));
        if (!flights)
            return NULL;
        messages->flights = flights;
        messages->flight_room = room;
    }
    struct ls_flight *flight = calloc(1, sizeof(*flight));
    if (!flight)
        return NULL;
    flight->kind = kind;
    flight->peer = peer;
    messages->flights[messages->flight_count++] = flight;
    return flight;
}

static enum ls_status post(struct ls_comm_messages *messages, struct ls_flight *flight,
                           void *memory, uint64_t bytes, uint64_t number)
{
    const bool sends = flight->kind <= LS_FLIGHT_REFUSAL;
    const uint32_t own = messages->comm->rank;
    flight->transfer = (struct ls_transfer){
        .struct_size = sizeof(flight->transfer),
        .kind = sends ? LS_TRANSFER_SEND : LS_TRANSFER_RECEIVE,
        .source = sends ? own : flight->peer,
        .destination = sends ? flight->peer : own,
        .receive_number = number,
        .send_number = number,
        .after = LS_TRANSFER_AT_ONCE,
        .signature = SIGNATURE,
        .memory = memory,
        .count = bytes,
        .dtype = LS_U8,
        .reduction = LS_SUM,
    };
    return (enum ls_status)messages->interface->post(messages->endpoint, &flight->transfer);
}

static enum ls_status send_header(struct ls_comm_messages *messages, uint32_t peer,
                                  const struct ls_header *header, enum ls_flight_kind kind,
                                  struct ls_flight **out)
{
    struct ls_flight *flight = new_flight(messages, kind, peer);
    if (!flight)
        return LS_OUT_OF_MEMORY;
    flight->header = *header;
    *out = flight;
    return post(messages, flight, &flight->header, sizeof(flight->header),
                messages->pairs[peer].next_send++);
}

static enum ls_status send_work(struct ls_comm_messages *messages, struct ls_comm_work *work)
{
    const struct ls_comm_request *request = &work->request;
    struct ls_pair *pair = &messages->pairs[request->peer];
    struct ls_flight *flight;
    work->serial = pair->serial++;
    const struct ls_header header = {.kind = LS_HEADER_MESSAGE,
                                     .tag = request->tag,
                                     .bytes = request->count,
                                     .serial = work->serial};
    enum ls_status status =
        send_header(messages, request->peer, &header, LS_FLIGHT_HEADER, &flight);
    if (status)
        return status;
    if (!request->count) {
        flight->work = work; // over when the header was taken
        return LS_OK;
    }
    flight = new_flight(messages, LS_FLIGHT_PAYLOAD, request->peer);
    if (!flight)
        return LS_OUT_OF_MEMORY;
    flight->work = work;
    return post(messages, flight, request->mine, request->count, pair->next_send++);
}

static enum ls_status listen_to(struct ls_comm_messages *messages, uint32_t peer)
{
    struct ls_flight *flight = new_flight(messages, LS_FLIGHT_NEXT, peer);
    if (!flight)
        return LS_OUT_OF_MEMORY;
    return post(messages, flight, &flight->header, sizeof(flight->header),
                messages->pairs[peer].next_receive++);
}

static enum ls_status receive_payload(struct ls_comm_messages *messages, uint32_t peer,
                                      void *memory, uint64_t bytes, uint64_t number,
                                      struct ls_comm_work *work, struct ls_stray *stray)
{
    struct ls_flight *flight = new_flight(messages, LS_FLIGHT_COMING, peer);
    if (!flight)
        return LS_OUT_OF_MEMORY;
    flight->work = work;
    flight->stray = stray;
    return post(messages, flight, memory, bytes, number);
}

// ---- Strays ----

static struct ls_stray *add_stray(struct ls_comm_messages *messages, uint32_t source, uint64_t tag,
                                  uint64_t bytes)
{
    struct ls_stray *stray = calloc(1, sizeof(*stray)), **link = &messages->strays;
    if (!stray)
        return NULL;
    stray->source = source;
    stray->tag = tag;
    stray->bytes = bytes;
    stray->data = malloc(bytes + 1);
    if (!stray->data) {
        free(stray);
        return NULL;
    }
    while (*link)
        link = &(*link)->next;
    *link = stray;
    return stray;
}

static void drop_stray(struct ls_comm_messages *messages, struct ls_stray *stray)
{
    struct ls_stray **link = &messages->strays;
    while (*link != stray)
        link = &(*link)->next;
    *link = stray->next;
    free(stray->data);
    free(stray);
}

static void hand_over(struct ls_comm_messages *messages, struct ls_stray *stray)
{
    struct ls_comm_work *work = stray->claimed;
    if (stray->bytes)
        memcpy(work->request.mine, stray->data, stray->bytes);
    drop_stray(messages, stray);
    end_work(messages, work, LS_OK);
}

// ---- Matching ----

static bool fits(const struct ls_comm_request *receive, uint32_t source, uint64_t tag)
{
    return receive->tag == tag && (receive->peer == LS_ANY_RANK || receive->peer == source);
}

// Takes the first receive that waits for it; NULL: none does.
static struct ls_comm_work *take_receive(struct ls_comm_messages *messages, uint32_t source,
                                         uint64_t tag)
{
    struct ls_comm_work **link = &messages->receives;
    while (*link && !fits(&(*link)->request, source, tag))
        link = &(*link)->next;
    struct ls_comm_work *work = *link;
    if (work) {
        *link = work->next;
        work->next = NULL;
        work->source = source;
    }
    return work;
}

// The sender hears that before its payload is taken.
static enum ls_status refuse(struct ls_comm_messages *messages, uint32_t peer,
                             const struct ls_header *header, uint64_t expected, uint64_t number)
{
    struct ls_stray *stray = add_stray(messages, peer, header->tag, header->bytes);
    struct ls_flight *flight;
    const struct ls_header refusal = {
        .kind = LS_HEADER_REFUSAL, .tag = header->tag, .bytes = expected, .serial = header->serial};
    if (!stray)
        return LS_OUT_OF_MEMORY;
    stray->refused = true;
    const enum ls_status status = send_header(messages, peer, &refusal, LS_FLIGHT_REFUSAL, &flight);
    if (status)
        return status;
    flight->stray = stray;
    flight->number = number;
    return LS_OK;
}

static enum ls_status take_message(struct ls_comm_messages *messages, uint32_t peer,
                                   const struct ls_header *header)
{
    const uint64_t bytes = header->bytes;
    const uint64_t number = bytes ? messages->pairs[peer].next_receive++ : 0;
    struct ls_comm_work *work = take_receive(messages, peer, header->tag);
    struct ls_stray *stray = NULL;
    if (work && work->request.count != bytes) {
        fail_size(messages, work, peer, messages->comm->rank, bytes, work->request.count);
        return bytes ? refuse(messages, peer, header, work->request.count, number) : LS_OK;
    }
    if (work && !bytes) {
        end_work(messages, work, LS_OK);
        return LS_OK;
    }
    if (!work) {
        stray = add_stray(messages, peer, header->tag, bytes);
        if (!stray)
            return LS_OUT_OF_MEMORY;
        stray->here = bytes == 0;
    }
    return bytes ? receive_payload(messages, peer, work ? work->request.mine : stray->data, bytes,
                                   number, work, stray)
                 : LS_OK;
}

static void take_refusal(struct ls_comm_messages *messages, uint32_t peer,
                         const struct ls_header *header)
{
    for (uint32_t i = 0; i < messages->flight_count; i++) {
        struct ls_comm_work *work = messages->flights[i]->work;
        if (messages->flights[i]->kind != LS_FLIGHT_PAYLOAD || messages->flights[i]->peer != peer ||
            work->serial != header->serial)
            continue;
        work->refused = true;
        work->other_bytes = header->bytes;
    }
}

static enum ls_status take_header(struct ls_comm_messages *messages, const struct ls_flight *flight)
{
    enum ls_status status = LS_OK;
    if (flight->header.kind == LS_HEADER_MESSAGE)
        status = take_message(messages, flight->peer, &flight->header);
    else
        take_refusal(messages, flight->peer, &flight->header);
    return status ? status : listen_to(messages, flight->peer);
}

static void end_send(struct ls_comm_messages *messages, struct ls_comm_work *work)
{
    if (work->refused)
        fail_size(messages, work, messages->comm->rank, work->request.peer, work->request.count,
                  work->other_bytes);
    else
        end_work(messages, work, LS_OK);
}

// A transfer is complete.
static enum ls_status land(struct ls_comm_messages *messages, const struct ls_flight *flight)
{
    struct ls_stray *stray = flight->stray;
    switch (flight->kind) {
    case LS_FLIGHT_NEXT: return take_header(messages, flight);
    case LS_FLIGHT_REFUSAL:
        return receive_payload(messages, flight->peer, stray->data, stray->bytes, flight->number,
                               NULL, stray);
    case LS_FLIGHT_COMING:
        if (flight->work)
            end_work(messages, flight->work, LS_OK);
        else if (stray->refused)
            drop_stray(messages, stray);
        else if (stray->claimed)
            hand_over(messages, stray);
        else
            stray->here = true;
        return LS_OK;
    default:
        if (flight->work)
            end_send(messages, flight->work);
        return LS_OK;
    }
}

// ---- Beginning ----

static void begin_receive(struct ls_comm_messages *messages, struct ls_comm_work *work)
{
    struct ls_stray *stray = messages->strays;
    struct ls_comm_work **link = &messages->receives;
    while (stray &&
           (stray->refused || stray->claimed || !fits(&work->request, stray->source, stray->tag)))
        stray = stray->next;
    if (!stray) {
        while (*link)
            link = &(*link)->next;
        *link = work;
        return;
    }
    work->source = stray->source;
    if (stray->bytes == work->request.count) {
        stray->claimed = work;
        if (stray->here)
            hand_over(messages, stray);
        return;
    }
    const uint64_t sent = stray->bytes;
    stray->refused = true; // too late for its sender to hear
    if (stray->here)
        drop_stray(messages, stray);
    fail_size(messages, work, work->source, messages->comm->rank, sent, work->request.count);
}

// To this rank itself: what is sent is there at once.
static enum ls_status send_to_self(struct ls_comm_messages *messages, struct ls_comm_work *work)
{
    const struct ls_comm_request *request = &work->request;
    const uint32_t own = messages->comm->rank;
    struct ls_comm_work *receive = take_receive(messages, own, request->tag);
    if (!receive) {
        struct ls_stray *stray = add_stray(messages, own, request->tag, request->count);
        if (!stray)
            return LS_OUT_OF_MEMORY;
        if (request->count)
            memcpy(stray->data, request->mine, request->count);
        stray->here = true;
        end_work(messages, work, LS_OK);
        return LS_OK;
    }
    if (receive->request.count != request->count) {
        const uint64_t expected = receive->request.count;
        fail_size(messages, receive, own, own, request->count, expected);
        fail_size(messages, work, own, own, request->count, expected);
        return LS_OK;
    }
    if (request->count)
        memmove(receive->request.mine, request->mine, request->count);
    end_work(messages, receive, LS_OK);
    end_work(messages, work, LS_OK);
    return LS_OK;
}

static enum ls_status listen_to_all(struct ls_comm_messages *messages)
{
    enum ls_status status = LS_OK;
    for (uint32_t i = 0; !status && i < messages->comm->ranks->world; i++) {
        struct ls_pair *pair = &messages->pairs[i];
        if (pair->listens || i == messages->comm->rank)
            continue;
        pair->listens = true;
        status = listen_to(messages, i);
    }
    return status;
}

static void end_with_all(struct ls_comm_messages *messages, struct ls_comm_work *work)
{
    work->line = messages->why ? strdup(messages->why) : NULL;
    work->ends_all = messages->why != NULL;
    end_work(messages, work, messages->failed);
}

static bool is_under_way(const struct ls_comm_messages *messages, const struct ls_comm_work *work)
{
    for (uint32_t i = 0; i < messages->flight_count; i++)
        if (messages->flights[i]->work == work)
            return true;
    return false;
}

void ls_comm_messages_begin(struct ls_comm_messages *messages, struct ls_comm_work *work)
{
    const uint32_t peer = work->request.peer;
    const bool sends = work->request.kind == LS_COMM_SEND;
    enum ls_status status = LS_OK;
    if (messages->failed) {
        end_with_all(messages, work);
        return;
    }
    if (peer != LS_ANY_RANK && messages->pairs[peer].gone && sends) {
        fail_work(messages, work, LS_PEER_LOST, false);
        return;
    }
    if (!messages->pairs[messages->comm->rank].listens) {
        messages->pairs[messages->comm->rank].listens = true;
        status = listen_to_all(messages);
    }
    if (status)
        ls_comm_messages_fail_all(messages, status);
    if (status) {
        end_with_all(messages, work);
        return;
    }
    if (!sends) {
        begin_receive(messages, work);
        // What it has sent before it left is here; more does not come.
        if (peer != LS_ANY_RANK && messages->pairs[peer].gone)
            (void)fail_pair(messages, peer, LS_PEER_LOST);
        return;
    }
    status =
        peer == messages->comm->rank ? send_to_self(messages, work) : send_work(messages, work);
    if (status && !is_under_way(messages, work)) // nothing else would end it
        fail_work(messages, work, status, false);
    if (status == LS_PEER_LOST)
        (void)fail_pair(messages, peer, status);
    else if (status)
        ls_comm_messages_fail_all(messages, status);
}

// ---- Failing ----

static void free_flight(struct ls_comm_messages *messages, uint32_t index)
{
    free(messages->flights[index]);
    memmove(messages->flights + index, messages->flights + index + 1,
            (messages->flight_count - index - 1) * sizeof(*messages->flights));
    messages->flight_count--;
}

// Nothing more comes from a rank, or goes to it.
static bool fail_pair(struct ls_comm_messages *messages, uint32_t peer, enum ls_status status)
{
    bool waits = !messages->pairs[peer].gone;
    messages->pairs[peer].gone = true;
    for (uint32_t i = 0; i < messages->flight_count;) {
        struct ls_flight *flight = messages->flights[i];
        struct ls_comm_work *work = flight->work;
        if (flight->peer != peer) {
            i++;
            continue;
        }
        if (!work && flight->stray)
            work = flight->stray->claimed;
        if (flight->stray)
            drop_stray(messages, flight->stray);
        free_flight(messages, i);
        if (work)
            fail_work(messages, work, status, waits);
        waits = waits && !work;
    }
    for (struct ls_comm_work **link = &messages->receives; *link;) {
        struct ls_comm_work *work = *link;
        if (work->request.peer != peer) {
            link = &work->next;
            continue;
        }
        *link = work->next;
        work->next = NULL;
        fail_work(messages, work, status, waits);
        waits = false;
    }
    return true;
}

// Works under way, each once: a stray's flight has none of its own.
static void fail_flights(struct ls_comm_messages *messages)
{
    while (messages->flight_count) {
        struct ls_flight *flight = messages->flights[0];
        struct ls_comm_work *work = flight->work;
        if (!work && flight->stray)
            work = flight->stray->claimed;
        free_flight(messages, 0);
        if (work)
            end_with_all(messages, work);
    }
}

void ls_comm_messages_fail_all(struct ls_comm_messages *messages, enum ls_status status)
{
    const struct ls_comm *comm = messages->comm;
    struct ls_comm_work about = {
        .comm = messages->comm, .request = {.name = "a message"}, .line = messages->why};
    if (!messages->failed) {
        if (messages->endpoint) { // afterwards no peer touches memory of this rank
            messages->interface->abort(messages->endpoint);
            (void)messages->interface->wait_any(messages->endpoint, NULL, 0, 0);
        }
        char **before = ls_log_keep(&about.line);
        const enum ls_status blamed =
            about.line ? LS_OK : ls_work_blame_process(comm, &about, status, true, &about.line);
        if (blamed)
            status = blamed;
        else if (!about.line)
            ls_error(comm->ranks->name,
                     "rank %u: messages end because another rank failed or the communicator was "
                     "aborted; close it on all ranks, and open another one",
                     comm->rank);
        ls_log_keep(before);
        messages->why = about.line;
        messages->failed = status;
    }
    fail_flights(messages);
    while (messages->receives) {
        struct ls_comm_work *work = messages->receives;
        messages->receives = work->next;
        end_with_all(messages, work);
    }
}

// ---- Looking ----

// What happens to a transfer that is no longer under way. The list may be another one afterwards.
static void finish(struct ls_comm_messages *messages, uint32_t index, enum ls_status status)
{
    struct ls_flight *flight = messages->flights[index];
    if (status == LS_PEER_LOST) {
        (void)fail_pair(messages, flight->peer, status);
        return;
    }
    if (!status) {
        memmove(messages->flights + index, messages->flights + index + 1,
                (messages->flight_count - index - 1) * sizeof(*messages->flights));
        messages->flight_count--;
        status = land(messages, flight);
        const uint32_t peer = flight->peer;
        free(flight);
        if (status == LS_PEER_LOST) {
            (void)fail_pair(messages, peer, status);
            return;
        }
    }
    if (status)
        ls_comm_messages_fail_all(messages, status);
}

bool ls_comm_messages_test(struct ls_comm_messages *messages)
{
    bool moved = false;
    for (uint32_t i = 0; i < messages->flight_count && !messages->failed;) {
        struct ls_transfer *transfer = &messages->flights[i]->transfer;
        const enum ls_status status =
            transfer->state == LS_TRANSFER_COMPLETE
                ? LS_OK
                : (enum ls_status)messages->interface->test(messages->endpoint, transfer);
        if (status == LS_AGAIN) {
            i++;
            continue;
        }
        finish(messages, i, status);
        moved = true;
    }
    return moved;
}

// ---- Deadlines ----

static bool is_late(const struct ls_comm_work *work, uint64_t now)
{
    return now - work->begun_ns > work->deadline_ns;
}

static void tell_late(const struct ls_comm_messages *messages, struct ls_comm_work *work,
                      uint64_t now, const char *why)
{
    const bool sends = work->request.kind == LS_COMM_SEND;
    char text[16];
    char **before = ls_log_keep(&work->line);
    ls_error(messages->comm->ranks->name,
             "rank %u waited %.1f s for %s: a message of %" PRIu64 " bytes, tag %" PRIu64
             ", was not %s%s; look there, or raise the deadline",
             messages->comm->rank, (double)(now - work->begun_ns) * 1e-9, rank_text(work, text),
             work->request.count, work->request.tag, sends ? "taken" : "sent", why);
    ls_log_keep(before);
}

// A message that is under way holds memory of the caller, so that all end with it. A receive that
// still waits for one ends alone.
void ls_comm_messages_watch_deadlines(struct ls_comm_messages *messages)
{
    const uint64_t now = ls_clock_ns();
    if (now - messages->looked_ns < LOOK_NS)
        return;
    messages->looked_ns = now;
    for (uint32_t i = 0; i < messages->flight_count; i++) {
        struct ls_flight *flight = messages->flights[i];
        struct ls_comm_work *work = flight->work;
        if (!work && flight->stray)
            work = flight->stray->claimed;
        if (!work || !is_late(work, now))
            continue;
        tell_late(messages, work, now, " to its end");
        messages->why = work->line ? strdup(work->line) : NULL;
        ls_comm_messages_fail_all(messages, LS_PEER_LOST);
        return;
    }
    for (struct ls_comm_work **link = &messages->receives; *link;) {
        struct ls_comm_work *work = *link;
        if (!is_late(work, now)) {
            link = &work->next;
            continue;
        }
        *link = work->next;
        work->next = NULL;
        tell_late(messages, work, now, "");
        end_work(messages, work, LS_PEER_LOST);
    }
}

void ls_comm_messages_forget(struct ls_comm_messages *messages)
{
    while (messages->flight_count)
        free_flight(messages, 0);
    while (messages->strays)
        drop_stray(messages, messages->strays);
}
