// SPDX-License-Identifier: Apache-2.0
// The first process to bind a name in the abstract namespace of Unix sockets reads. The others
// connect to that name, and get the descriptor of a sealed file (memfd): a header, its fields with
// their class names, and the values. Name and file end with their processes, whatever becomes of
// these.
//
// Whoever waits for a process that dies, fails or is stopped reads the files itself: then what is
// wrong with them shows there, too. So does who has waited for `patience_ns`, but that is said,
// because the host then has the examples in memory once more.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // memfd_create, accept4, struct ucred
#endif
#include "core/data/data_host.h"

#include "core/base/clock.h"
#include "core/base/dtype.h"
#include "core/base/hash.h"
#include "core/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define SCOPE "data"
#define ALIGNMENT 64
#define LOOK_MS 100
#define CONNECT_TRIES 50 // LISTEN_MS apart: a name that is bound is listened at soon
#define LISTEN_MS 2
#define SERVE_NS UINT64_C(5000000000) // for those who have not come
#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)

static const char magic[8] = "LSDATA1";

// What the file begins with. Offsets are in the file; pointers in `fields` mean nothing there.
struct header {
    char magic[8];
    uint64_t count, repeat, first, identity, contents;
    uint32_t field_count;
    uint8_t real, in_order;
    struct ls_augmentation augmentation;
    struct ls_field fields[LS_MAX_FIELDS];
    uint64_t values[LS_MAX_FIELDS], value_bytes[LS_MAX_FIELDS];
    uint64_t names[LS_MAX_FIELDS],
        name_bytes[LS_MAX_FIELDS]; // of classes, each with its NUL; 0 bytes: none
};

// A dataset whose values are mapped.
struct mapped {
    struct ls_dataset dataset;
    char *base;
    uint64_t bytes;
    const char **names[LS_MAX_FIELDS];
};

// ---- The name ----

// The same in processes to which the text means the same files.
static bool make_address(const char *text, enum ls_split split, const char *job,
                         struct sockaddr_un *out, socklen_t *bytes)
{
    struct {
        uint64_t user, space, split;
    } who = {.user = geteuid(), .split = (uint64_t)split};
    struct stat about;
    char *folder = getcwd(NULL, 0);
    struct ls_hash *hash = ls_hash_create();
    const bool made = folder && hash && stat("/proc/self/ns/mnt", &about) == 0;
    if (made) {
        who.space = about.st_ino;
        ls_hash_add(hash, &who, sizeof(who));
        ls_hash_add(hash, LS_VERSION, sizeof(LS_VERSION));
        ls_hash_add(hash, folder, strlen(folder) + 1);
        ls_hash_add(hash, text, strlen(text) + 1);
        ls_hash_add(hash, job,
                    strlen(job) + 1); // another one may begin when the files have changed
        *out = (struct sockaddr_un){.sun_family = AF_UNIX};
        const int length = snprintf(out->sun_path + 1, sizeof(out->sun_path) - 1,
                                    "lockstep-data-%016llx", (unsigned long long)ls_hash_get(hash));
        *bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
    }
    ls_hash_destroy(hash);
    free(folder);
    return made;
}

// ---- Writing ----

static uint64_t value_bytes(const struct ls_dataset *dataset, const struct ls_field *field)
{
    const uint64_t repeat = dataset->repeat > 1 ? dataset->repeat : 1,
                   count = dataset->count / repeat;
    return count ? (count - 1) * field->stride +
                       ls_field_elements(field) * ls_dtype_bytes(field->dtype)
                 : 0;
}

static uint64_t name_bytes(const struct ls_field *field)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; field->class_names && i < field->class_count; i++)
        bytes += strlen(field->class_names[i]) + 1;
    return bytes;
}

// False: a field is made on demand.
static bool lay_out(const struct ls_dataset *dataset, struct header *out)
{
    uint64_t end = sizeof(*out);
    memset(out, 0, sizeof(*out)); // padding, too, because it is written
    memcpy(out->magic, magic, sizeof(magic));
    out->count = dataset->count;
    out->repeat = dataset->repeat;
    out->first = dataset->first;
    out->identity = dataset->identity;
    out->contents = dataset->contents;
    out->field_count = dataset->field_count;
    out->real = dataset->real;
    out->in_order = dataset->in_order;
    out->augmentation = dataset->augmentation;
    for (uint32_t i = 0; i < dataset->field_count; i++) {
        const struct ls_field *field = &dataset->fields[i];
        if (!field->values)
            return false;
        out->fields[i] = *field;
        out->fields[i].values = NULL;
        out->fields[i].class_names = NULL;
        out->values[i] = (end + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
        out->value_bytes[i] = value_bytes(dataset, field);
        out->names[i] = out->values[i] + out->value_bytes[i];
        out->name_bytes[i] = name_bytes(field);
        end = out->names[i] + out->name_bytes[i];
    }
    return !dataset->load;
}

static bool write_at(int file, const void *data, uint64_t bytes, uint64_t where)
{
    for (const char *next = data; bytes;) {
        const ssize_t wrote = pwrite(file, next, bytes, (off_t)where);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote <= 0)
            return false;
        next += wrote;
        where += (uint64_t)wrote;
        bytes -= (uint64_t)wrote;
    }
    return true;
}

// -1: the values stay where they are.
static int write_file(const struct ls_dataset *dataset)
{
    struct header header;
    if (!lay_out(dataset, &header))
        return -1;
    const int file = memfd_create("lockstep-data", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    bool done = file >= 0 && write_at(file, &header, sizeof(header), 0);
    for (uint32_t i = 0; done && i < dataset->field_count; i++) {
        const struct ls_field *field = &dataset->fields[i];
        uint64_t where = header.names[i];
        done = write_at(file, field->values, header.value_bytes[i], header.values[i]);
        for (uint32_t k = 0; done && field->class_names && k < field->class_count; k++) {
            const uint64_t bytes = strlen(field->class_names[k]) + 1;
            done = write_at(file, field->class_names[k], bytes, where);
            where += bytes;
        }
    }
    if (done && fcntl(file, F_ADD_SEALS, SEALS) == 0)
        return file;
    ls_debug(SCOPE, "examples are not shared with other processes: %s", strerror(errno));
    if (file >= 0)
        close(file);
    return -1;
}

// ---- Mapping ----

static void close_mapped(struct ls_dataset *dataset)
{
    struct mapped *mapped = dataset->storage;
    for (uint32_t i = 0; i < LS_MAX_FIELDS; i++)
        free(mapped->names[i]);
    if (mapped->base)
        munmap(mapped->base, mapped->bytes);
    free(mapped);
}

static bool is_inside(const struct mapped *mapped, uint64_t where, uint64_t bytes)
{
    return where <= mapped->bytes && bytes <= mapped->bytes - where;
}

// The strings behind each other are as many as there are classes.
static bool find_names(struct mapped *mapped, const struct header *header, uint32_t index)
{
    struct ls_field *field = &mapped->dataset.fields[index];
    const char *next = mapped->base + header->names[index], *end = next + header->name_bytes[index];
    if (!header->name_bytes[index])
        return true;
    const char **names = calloc(field->class_count ? field->class_count : 1, sizeof(*names));
    mapped->names[index] = names;
    for (uint32_t i = 0; names && i < field->class_count; i++) {
        const size_t room = (size_t)(end - next), length = strnlen(next, room);
        if (length == room)
            return false;
        names[i] = next;
        next += length + 1;
    }
    field->class_names = names;
    return names != NULL;
}

static bool read_header(struct mapped *mapped)
{
    const struct header *header = (const struct header *)(const void *)mapped->base;
    struct ls_dataset *dataset = &mapped->dataset;
    if (mapped->bytes < sizeof(*header) || memcmp(header->magic, magic, sizeof(magic)) ||
        header->field_count > LS_MAX_FIELDS)
        return false;
    *dataset = (struct ls_dataset){.count = header->count,
                                   .repeat = header->repeat,
                                   .first = header->first,
                                   .identity = header->identity,
                                   .contents = header->contents,
                                   .field_count = header->field_count,
                                   .real = header->real,
                                   .in_order = header->in_order,
                                   .augmentation = header->augmentation,
                                   .storage = mapped,
                                   .close = close_mapped};
    for (uint32_t i = 0; i < header->field_count; i++) {
        struct ls_field *field = &dataset->fields[i];
        *field = header->fields[i];
        field->values = mapped->base + header->values[i];
        if (field->ndims > LS_MAX_DIMS ||
            !is_inside(mapped, header->values[i], header->value_bytes[i]) ||
            !is_inside(mapped, header->names[i], header->name_bytes[i]) ||
            header->value_bytes[i] != value_bytes(dataset, field) || !find_names(mapped, header, i))
            return false;
    }
    return true;
}

// The file is complete and stays as it is: its seals say so.
static enum ls_status map_file(int file, struct ls_dataset **out)
{
    struct stat about;
    struct mapped *mapped = calloc(1, sizeof(*mapped));
    if (!mapped)
        return LS_OUT_OF_MEMORY;
    mapped->dataset.storage = mapped;
    void *base = MAP_FAILED;
    if ((fcntl(file, F_GET_SEALS) & SEALS) == SEALS && fstat(file, &about) == 0 &&
        about.st_size > 0)
        base = mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_SHARED | MAP_POPULATE, file, 0);
    if (base != MAP_FAILED) {
        mapped->base = base;
        mapped->bytes = (uint64_t)about.st_size;
        if (read_header(mapped)) {
            *out = &mapped->dataset;
            return LS_OK;
        }
    }
    close_mapped(&mapped->dataset);
    return LS_UNAVAILABLE;
}

// ---- Between the processes ----

static bool is_same_user(int connection, struct ucred *out)
{
    socklen_t bytes = sizeof(*out);
    return getsockopt(connection, SOL_SOCKET, SO_PEERCRED, out, &bytes) == 0 &&
           out->uid == geteuid();
}

// A process that is stopped reads nothing; what is unknown counts as well.
static bool is_running(pid_t process)
{
    char path[40], text[512] = "";
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)process);
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return false;
    const ssize_t got = read(file, text, sizeof(text) - 1);
    close(file);
    const char *name_end = got > 0 ? strrchr(text, ')') : NULL;
    return name_end && name_end[1] && !strchr("TtZX", name_end[2]);
}

// False: it does not come from there.
static bool await_file(int connection, pid_t reader, const char *text, uint64_t patience_ns)
{
    const uint64_t end = ls_clock_ns() + patience_ns;
    struct pollfd ready = {.fd = connection, .events = POLLIN};
    for (;;) {
        const int count = poll(&ready, 1, LOOK_MS);
        if (count > 0)
            return true;
        if ((count < 0 && errno != EINTR) || !is_running(reader))
            return false;
        if (ls_clock_ns() >= end)
            break;
    }
    ls_warn(SCOPE,
            "process %d of this host has begun to read '%s', but did not hand out its examples "
            "within %g s: this process reads them, too, into memory of its own",
            (int)reader, text, (double)patience_ns * 1e-9);
    return false;
}

// -1: it does not come from there.
static int receive_file(int connection, const char *text, uint64_t patience_ns)
{
    struct ucred peer;
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    char word;
    struct iovec part = {.iov_base = &word, .iov_len = 1};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof(control.bytes)};
    if (!is_same_user(connection, &peer) || peer.pid <= 0 ||
        !await_file(connection, peer.pid, text, patience_ns))
        return -1;
    if (recvmsg(connection, &message, MSG_CMSG_CLOEXEC) != 1)
        return -1;
    const struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    int file = -1;
    if (header && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS &&
        header->cmsg_len == CMSG_LEN(sizeof(int)))
        memcpy(&file, CMSG_DATA(header), sizeof(file));
    return file;
}

static void send_file(int connection, int file)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {.header = {.cmsg_level = SOL_SOCKET,
                            .cmsg_type = SCM_RIGHTS,
                            .cmsg_len = CMSG_LEN(sizeof(int))}};
    char word = 1;
    struct iovec part = {.iov_base = &word, .iov_len = 1};
    const struct msghdr message = {.msg_iov = &part,
                                   .msg_iovlen = 1,
                                   .msg_control = control.bytes,
                                   .msg_controllen = sizeof(control.bytes)};
    memcpy(CMSG_DATA(&control.header), &file, sizeof(file));
    (void)!sendmsg(connection, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

// LS_UNAVAILABLE: nobody has it.
static enum ls_status take_from(const struct sockaddr_un *address, socklen_t bytes,
                                const char *text, uint64_t patience_ns, struct ls_dataset **out)
{
    enum ls_status status = LS_UNAVAILABLE;
    const int connection = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    int failed = -1;
    for (int i = 0; connection >= 0 && failed && i < CONNECT_TRIES; i++) {
        failed = connect(connection, (const struct sockaddr *)address, bytes);
        if (failed)
            poll(NULL, 0, LISTEN_MS);
    }
    const int file = failed ? -1 : receive_file(connection, text, patience_ns);
    if (file >= 0) {
        status = map_file(file, out);
        close(file);
    }
    if (connection >= 0)
        close(connection);
    return status;
}

static enum ls_status read_for_others(const char *text, enum ls_split split,
                                      struct ls_host_offer *offer, struct ls_dataset **out)
{
    struct ls_dataset *dataset = NULL, *shared = NULL;
    enum ls_status status = ls_dataset_open(text, split, &dataset);
    if (status)
        return status;
    if (!dataset->load) // once for all, because all of them compare it
        status = ls_dataset_contents(dataset, &dataset->contents);
    if (status) {
        ls_dataset_close(dataset);
        return status;
    }
    offer->file = write_file(dataset);
    // One copy is enough for the host.
    if (offer->file >= 0 && map_file(offer->file, &shared) == LS_OK) {
        ls_dataset_close(dataset);
        dataset = shared;
    }
    *out = dataset;
    return LS_OK;
}

void ls_host_offer_close(struct ls_host_offer *offer)
{
    if (offer->listener >= 0)
        close(offer->listener);
    if (offer->file >= 0)
        close(offer->file);
    offer->listener = offer->file = -1;
}

enum ls_status ls_host_dataset_open(const char *text, enum ls_split split, uint32_t processes,
                                    const char *job, uint64_t patience_ns,
                                    struct ls_host_offer *offer, struct ls_dataset **out)
{
    struct sockaddr_un address;
    socklen_t bytes;
    *offer = (struct ls_host_offer){.listener = -1, .file = -1, .others = processes - 1};
    if (processes < 2 || !make_address(text, split, job, &address, &bytes))
        return ls_dataset_open(text, split, out);
    const int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const bool first =
        listener >= 0 && bind(listener, (const struct sockaddr *)&address, bytes) == 0;
    if (first && listen(listener, SOMAXCONN) == 0) {
        offer->listener = listener;
        const enum ls_status status = read_for_others(text, split, offer, out);
        if (offer->file < 0)
            ls_host_offer_close(offer); // who waits reads for itself
        return status;
    }
    if (listener >= 0)
        close(listener);
    if (!first && take_from(&address, bytes, text, patience_ns, out) == LS_OK)
        return LS_OK;
    return ls_dataset_open(text, split, out);
}

void ls_host_offer_serve(struct ls_host_offer *offer, const atomic_bool *stop)
{
    const uint64_t end = ls_clock_ns() + SERVE_NS;
    struct ucred peer;
    for (uint32_t served = 0; offer->listener >= 0 && served < offer->others &&
                              !atomic_load(stop) && ls_clock_ns() < end;) {
        struct pollfd ready = {.fd = offer->listener, .events = POLLIN};
        if (poll(&ready, 1, LOOK_MS) <= 0)
            continue;
        const int connection = accept4(offer->listener, NULL, NULL, SOCK_CLOEXEC);
        if (connection < 0)
            continue;
        if (is_same_user(connection, &peer)) {
            send_file(connection, offer->file);
            served++;
        }
        close(connection);
    }
    ls_host_offer_close(offer);
}
