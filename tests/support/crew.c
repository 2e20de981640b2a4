// SPDX-License-Identifier: Apache-2.0
#include "tests/support/crew.h"

#include "core/base/clock.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

void *crew_memory(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        ck_abort_msg("no memory"); // no assertion, because main() may call this, too
    return memory;
}

int crew_listen(uint16_t *port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(at);
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
    ck_assert_int_eq(listen(fd, SOMAXCONN), 0);
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&at, &bytes), 0);
    *port = ntohs(at.sin_port);
    return fd;
}

bool crew_fork(struct crew_process *process, unsigned longest_s)
{
    process->exit_status = -1;
    const pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid)
        process->pid = pid; // by the test alone: the child shares this memory
    else
        alarm(longest_s);
    return pid == 0;
}

int crew_wait(struct crew_process *process)
{
    if (process->exit_status < 0)
        ck_assert_int_eq(waitpid(process->pid, &process->exit_status, 0), process->pid);
    return process->exit_status;
}

void crew_await(const _Atomic int *state, int value)
{
    const uint64_t end = ls_clock_ns() + 60 * SECOND;
    while (*state < value && ls_clock_ns() < end)
        nap_ms(1);
}

void crew_note_line(void *context, uint32_t level, const char *line)
{
    struct crew_process *process = context;
    const size_t length = strlen(process->log);
    (void)level;
    snprintf(process->log + length, sizeof(process->log) - length, "%s\n", line);
}

void nap_ms(long milliseconds)
{
    nanosleep(
        &(struct timespec){.tv_sec = milliseconds / 1000, .tv_nsec = milliseconds % 1000 * 1000000},
        NULL);
}
