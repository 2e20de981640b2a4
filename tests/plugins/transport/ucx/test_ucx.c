// SPDX-License-Identifier: Apache-2.0
// What is particular to transport `ucx`, beside the suite of all transports: which ports it opens, what strangers can do there,
// how much a peer can make it keep, and what it refuses.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "core/plugin/transport.h"
#include "tests/support/endpoints.h"
#include "tests/support/plugin.h"
#include "tests/support/suite.h"

#include <arpa/inet.h>
#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <malloc.h>
#include <poll.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <unistd.h>

#define DEADLINE_NS UINT64_C(5000000000)
#define COUNT 4096 // bytes
#define EARLY (UINT64_C(16) << 10) // what may be sent before the receive is posted
#define FLOOD 500 // messages
#define MOST_PORTS 16

static const struct ls_plugin *plugin;

// ---- Helpers ----

static struct ls_transfer transfer_of(uint32_t kind, uint32_t peer, uint64_t number, void *memory,
                                      uint64_t count)
{
    return (struct ls_transfer){.struct_size = sizeof(struct ls_transfer),
                                .kind = kind,
                                .source = peer,
                                .destination = peer,
                                .receive_number = number,
                                .send_number = number,
                                .after = LS_TRANSFER_AT_ONCE,
                                .memory = memory,
                                .count = count,
                                .dtype = LS_U8};
}

// Advances both sides until the transfers are complete; false: not within 5 s, or an error.
static bool complete(struct ls_transport *const *endpoints, struct ls_transfer *a,
                     struct ls_transfer *b)
{
    const struct ls_transport_interface *ops = plugin->interface;
    const uint64_t end = test_host_clock(NULL) + DEADLINE_NS;
    while (a->state != LS_TRANSFER_COMPLETE || b->state != LS_TRANSFER_COMPLETE) {
        const int32_t first = a->state == LS_TRANSFER_COMPLETE ? 0 : ops->test(endpoints[0], a);
        const int32_t second = b->state == LS_TRANSFER_COMPLETE ? 0 : ops->test(endpoints[1], b);
        if ((first && first != LS_AGAIN) || (second && second != LS_AGAIN) ||
            test_host_clock(NULL) > end)
            return false;
    }
    return true;
}

static bool send_one(struct ls_transport *const *endpoints, uint64_t number)
{
    const struct ls_transport_interface *ops = plugin->interface;
    unsigned char out[COUNT], in[COUNT] = {0};
    memset(out, (int)number + 1, sizeof(out));
    struct ls_transfer send = transfer_of(LS_TRANSFER_SEND, 1, number, out, COUNT);
    struct ls_transfer receive = transfer_of(LS_TRANSFER_RECEIVE, 0, number, in, COUNT);
    return ops->post(endpoints[0], &send) == LS_OK && ops->post(endpoints[1], &receive) == LS_OK &&
           complete(endpoints, &send, &receive) && memcmp(in, out, COUNT) == 0;
}

struct port {
    uint32_t address; // in network order
    uint16_t number;
};

// Whether this process has a socket with this inode.
static bool is_ours(unsigned long inode)
{
    char path[300], target[64], wanted[64];
    bool found = false;
    DIR *folder = opendir("/proc/self/fd");
    snprintf(wanted, sizeof(wanted), "socket:[%lu]", inode);
    for (struct dirent *entry; folder && !found && (entry = readdir(folder));) {
        snprintf(path, sizeof(path), "/proc/self/fd/%s", entry->d_name);
        const ssize_t bytes = readlink(path, target, sizeof(target) - 1);
        found = bytes > 0 && (target[bytes] = '\0', strcmp(target, wanted) == 0);
    }
    closedir(folder);
    return found;
}

// The TCP ports on which this process listens.
static int find_ports(struct port *out)
{
    char line[512];
    int count = 0;
    FILE *file = fopen("/proc/self/net/tcp", "r");
    while (file && fgets(line, sizeof(line), file) && count < MOST_PORTS) {
        unsigned address, number, state;
        unsigned long inode;
        if (sscanf(line, " %*d: %x:%x %*x:%*x %x %*s %*s %*s %*s %*s %lu", &address, &number,
                   &state, &inode) == 4 &&
            state == 0x0a && is_ours(inode))
            out[count++] = (struct port){address, (uint16_t)number};
    }
    fclose(file);
    return count;
}

static void open_two(struct test_host *host, struct ls_transport **endpoints)
{
    test_host_init(host, plugin);
    const int32_t status =
        test_endpoints_open(plugin->interface, &host->host, 2, DEADLINE_NS, endpoints);
    ck_assert_msg(status == LS_OK, "%s", host->message);
}

static void close_two(struct ls_transport **endpoints)
{
    test_endpoint_close(plugin->interface, endpoints[0]);
    test_endpoint_close(plugin->interface, endpoints[1]);
}

// ---- Tests ----

TEST(without_an_option_it_listens_on_loopback_alone)
{
    struct ls_transport *endpoints[2];
    struct port ports[MOST_PORTS];
    struct test_host host;
    setenv("UCX_NET_DEVICES", "all", 1); // whatever the user has set
    open_two(&host, endpoints);
    const int count = find_ports(ports);
    ck_assert_int_ge(count, 2);
    for (int i = 0; i < count; i++)
        ck_assert_uint_eq(ports[i].address, htonl(INADDR_LOOPBACK));
    close_two(endpoints);
    ck_assert_int_eq(find_ports(ports), 0);
}

static const char *insecure_option(const struct ls_host *host, const char *name)
{
    return strcmp(name, "network") == 0 ? "insecure" : test_host_option(host, name);
}

static int32_t open_with(struct test_host *host, const uint32_t *hosts,
                         int32_t (*exchange)(void *, const void *, uint64_t, void *),
                         struct ls_transport **endpoints)
{
    const struct ls_transport_interface *ops = plugin->interface;
    uint32_t world = 2;
    const uint32_t own[] = {0, 1};
    const struct ls_transport_config config = {.struct_size = sizeof(config),
                                               .world = 2,
                                               .count = 2,
                                               .own = own,
                                               .hosts = hosts,
                                               .name = "test",
                                               .deadline_ns = DEADLINE_NS,
                                               .context = &world,
                                               .exchange = exchange};
    for (int i = 0; i < 2; i++)
        endpoints[i] = calloc(1, ops->state_bytes);
    return ops->open(&host->host, &config, endpoints);
}

static int32_t open_on_two_hosts(struct test_host *host, struct ls_transport **endpoints)
{
    const uint32_t hosts[] = {0, 1};
    return open_with(host, hosts, test_endpoints_exchange, endpoints);
}

TEST(between_hosts_it_asks_whether_the_network_is_private)
{
    struct ls_transport *endpoints[2];
    struct test_host host;
    test_host_init(&host, plugin);
    ck_assert_int_eq(open_on_two_hosts(&host, endpoints), LS_USAGE);
    ck_assert_ptr_nonnull(strstr(host.message, "--network=private"));
    ck_assert_ptr_nonnull(strstr(host.message, "--insecure"));
    free(endpoints[0]);
    free(endpoints[1]);

    host.host.option = insecure_option;
    ck_assert_msg(open_on_two_hosts(&host, endpoints) == LS_OK, "%s", host.message);
    ck_assert(send_one(endpoints, 0));
    close_two(endpoints);
}

// -1: it does not answer.
static int connect_to(const struct port *port)
{
    const struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_addr.s_addr = port->address, .sin_port = htons(port->number)};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct pollfd ready = {.fd = fd, .events = POLLOUT};
    int error = 0;
    socklen_t bytes = sizeof(error);
    ck_assert_int_ge(fd, 0);
    if (connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0 ||
        (errno == EINPROGRESS && poll(&ready, 1, 100) == 1 &&
         getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes) == 0 && error == 0))
        return fd;
    close(fd);
    return -1;
}

static const unsigned char magic[] = {0x78, 0x56, 0x34, 0x12, 0xbe, 0xba, 0xfe, 0xca};

// What a port scanner, a browser, and somebody who means harm would send.
static void disturb(const struct port *port, int turn)
{
    unsigned char junk[200] = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    const int fd = connect_to(port);
    ck_assert_int_ge(fd, 0);
    if (turn % 3 == 1)
        memcpy(junk, magic, sizeof(magic) - 1); // almost one of us
    if (turn % 3)
        (void)!send(fd, junk, turn % 3 == 1 ? sizeof(magic) : sizeof(junk), MSG_NOSIGNAL);
    close(fd);
}

static int32_t exchange_in_noise(void *context, const void *own, uint64_t bytes, void *all)
{
    struct port ports[MOST_PORTS];
    const int count = find_ports(ports);
    ck_assert_int_ge(count, 2);
    for (int i = 0; i < 3 * count; i++)
        disturb(&ports[i % count], i / count);
    return test_endpoints_exchange(context, own, bytes, all);
}

TEST(strangers_at_its_ports_do_not_disturb_it_while_it_opens)
{
    const uint32_t hosts[] = {0, 0};
    struct ls_transport *endpoints[2];
    struct test_host host;
    test_host_init(&host, plugin);
    ck_assert_msg(open_with(&host, hosts, exchange_in_noise, endpoints) == LS_OK, "%s",
                  host.message);
    ck_assert(send_one(endpoints, 0));
    close_two(endpoints);
}

// UCX ends the process when it gets its magic number and then noise.
TEST(strangers_cannot_connect_once_it_is_open)
{
    struct ls_transport *endpoints[2];
    struct port ports[MOST_PORTS];
    struct test_host host;
    open_two(&host, endpoints);
    const int count = find_ports(ports);
    unsigned char junk[200];
    memset(junk, 0x5a, sizeof(junk));
    memcpy(junk, magic, sizeof(magic));
    for (int turn = 0; turn < 3; turn++) {
        for (int i = 0; i < count; i++) {
            const int fd = connect_to(&ports[i]);
            if (fd >= 0)
                (void)!send(fd, junk, sizeof(junk), MSG_NOSIGNAL);
            ck_assert_int_lt(fd, 0);
        }
        ck_assert(send_one(endpoints, (uint64_t)turn));
    }
    close_two(endpoints);
}

TEST(ports_of_the_program_stay_open)
{
    struct ls_transport *endpoints[2];
    struct test_host host;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(address);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    ck_assert_int_eq(listen(fd, 5), 0);
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&address, &bytes), 0);
    const struct port port = {address.sin_addr.s_addr, ntohs(address.sin_port)};
    open_two(&host, endpoints);
    const int own = connect_to(&port);
    ck_assert_int_ge(own, 0);
    close(own);
    close_two(endpoints);
    close(fd);
}

static uint64_t kept;

static void *count_allocate(const struct ls_host *host, uint64_t bytes, uint64_t alignment)
{
    kept += bytes;
    return test_host_allocate(host, bytes, alignment);
}

TEST(messages_that_nobody_receives_take_bounded_memory)
{
    const struct ls_transport_interface *ops = plugin->interface;
    struct ls_transport *endpoints[2];
    struct test_host host;
    static unsigned char out[EARLY], in[EARLY];
    struct ls_transfer *sends = calloc(FLOOD, sizeof(*sends));
    test_host_init(&host, plugin);
    host.host.allocate = count_allocate;
    ck_assert_int_eq(test_endpoints_open(ops, &host.host, 2, DEADLINE_NS, endpoints), LS_OK);
    kept = 0;
    for (uint64_t i = 0; i < FLOOD; i++) {
        sends[i] = transfer_of(LS_TRANSFER_SEND, 1, i, out, EARLY);
        ck_assert_int_eq(ops->post(endpoints[0], &sends[i]), LS_OK);
    }
    // The receiver waits for something else, and is sent all that the sender can.
    struct ls_transfer never = transfer_of(LS_TRANSFER_RECEIVE, 0, FLOOD + 100, in, EARLY);
    ck_assert_int_eq(ops->post(endpoints[1], &never), LS_OK);
    const uint64_t end = test_host_clock(NULL) + UINT64_C(300000000);
    while (test_host_clock(NULL) < end) {
        ck_assert_int_eq(ops->test(endpoints[0], &sends[0]), LS_AGAIN);
        ck_assert_int_eq(ops->test(endpoints[1], &never), LS_AGAIN);
    }
    ck_assert_uint_ge(kept, 32 * EARLY); // it does keep some
    ck_assert_uint_le(kept, 80 * EARLY); // but not all 500
    for (uint64_t i = 0; i < FLOOD; i++) {
        struct ls_transfer receive = transfer_of(LS_TRANSFER_RECEIVE, 0, i, in, EARLY);
        ck_assert_int_eq(ops->post(endpoints[1], &receive), LS_OK);
        ck_assert_msg(complete(endpoints, &sends[i], &receive), "message %d: states %u, %u", (int)i,
                      sends[i].state, receive.state);
    }
    ops->abort(endpoints[0]); // `never` is still under way
    close_two(endpoints);
    free(sends);
}

TEST(the_environment_is_as_it_was)
{
    struct ls_transport *endpoints[2];
    struct test_host host;
    ck_assert_ptr_null(getenv("UCX_ERROR_SIGNALS"));
    open_two(&host, endpoints);
    ck_assert_ptr_null(getenv("UCX_ERROR_SIGNALS"));
    close_two(endpoints);
}

int main(void)
{
    plugin = test_plugin_open("transport-ucx");
    if (!plugin || test_lacks(TEST_NETWORKS, "UCX"))
        return TEST_SKIPPED;
    return test_suite_run("transport ucx");
}
