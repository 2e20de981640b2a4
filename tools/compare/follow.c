// SPDX-License-Identifier: Apache-2.0
// Carries out the orders of worker 0, one after the other.
#include "tools/compare/follow.h"

#include "tools/compare/orders.h"
#include "tools/compare/runner.h"
#include "tools/compare/speed.h"

#include <stdio.h>
#include <string.h>

struct follower {
    struct compare_crew *workers;
    struct compare_setting *setting;
    struct compare_race race; // without a folder: worker 0 keeps the results
    struct ls_data *data; // of timed processes
    bool data_is_read;
};

// As worker 0 does it: read once, when the first process is timed.
static struct ls_data *timed_data(struct follower *follower)
{
    if (!follower->data_is_read)
        follower->data = compare_speed_data(follower->setting);
    follower->data_is_read = true;
    return follower->data;
}

static enum ls_status start(struct follower *follower, const struct compare_order *order)
{
    struct compare_crew *workers = follower->workers;
    if (order->strategy >= workers->strategies->count)
        return LS_FAILED;
    const struct compare_entry entry = {.strategy = workers->strategies->items[order->strategy],
                                        .workers = workers->count,
                                        .replicas = order->replicas,
                                        .threads = order->threads,
                                        .batch = order->batch,
                                        .microbatches = order->microbatches,
                                        .timed = order->timed,
                                        .train = order->timed ? timed_data(follower) : NULL};
    struct compare_meeting meeting = {.worker = workers->worker,
                                      .workers = workers->count,
                                      .local_worker = workers->local_worker,
                                      .local_workers = workers->local_workers,
                                      .listener = -1};
    snprintf(meeting.address, sizeof(meeting.address),
             strchr(workers->host, ':') ? "[%s]:%u" : "%s:%u", workers->host, order->port);
    memcpy(meeting.secret, order->secret, sizeof(meeting.secret));
    meeting.secret[sizeof(meeting.secret) - 1] = '\0';
    follower->setting->validation = order->validation;
    enum ls_status status = compare_race_add(&follower->race, &entry, false);
    if (status)
        return status;
    struct compare_runner *runner = &follower->race.runners[follower->race.count - 1];
    runner->number = order->run;
    status = compare_runner_start(&follower->race, runner, NULL, &meeting);
    if (status)
        compare_race_remove(&follower->race, follower->race.count - 1);
    return status;
}

static size_t find(const struct follower *follower, uint32_t run)
{
    size_t index = 0;
    while (index < follower->race.count && follower->race.runners[index].number != run)
        index++;
    return index;
}

static bool has_ended(const struct follower *follower, uint32_t run)
{
    const size_t index = find(follower, run);
    return index == follower->race.count ||
           compare_runner_has_ended(&follower->race.runners[index]);
}

// What was never started, or has been ended already, has nothing to say.
static void end(struct follower *follower, const struct compare_order *order,
                struct compare_answer *answer)
{
    const size_t index = find(follower, order->run);
    answer->end = COMPARE_ENDED;
    if (index == follower->race.count)
        return;
    struct compare_runner *runner = &follower->race.runners[index];
    compare_runner_await_end(&follower->race, runner, order->patience_ns);
    answer->end = runner->end;
    answer->code = (uint32_t)runner->code;
    answer->signal = (uint32_t)runner->signal;
    if (runner->end == COMPARE_HUNG)
        snprintf(answer->message, sizeof(answer->message),
                 "its process did not end with the others and was stopped");
    else if (runner->message)
        snprintf(answer->message, sizeof(answer->message), "%s", runner->message);
    compare_race_remove(&follower->race, index);
}

void compare_follow(struct compare_crew *workers, struct compare_setting *setting)
{
    struct follower follower = {.workers = workers,
                                .setting = setting,
                                .race = {.setting = setting, .workers = workers, .quiet = true}};
    struct compare_order order;
    struct compare_answer answer;
    do {
        if (!compare_line_receive(workers->line, &order, sizeof(order)))
            break;
        answer = (struct compare_answer){.status = LS_OK};
        if (order.kind == COMPARE_START)
            answer.status = (uint32_t)start(&follower, &order);
        else if (order.kind == COMPARE_LOOK)
            answer.ended = has_ended(&follower, order.run);
        else if (order.kind == COMPARE_END)
            end(&follower, &order, &answer);
    } while (compare_line_send(workers->line, &answer, sizeof(answer)));
    compare_race_finish(&follower.race);
    ls_data_close(follower.data);
}
