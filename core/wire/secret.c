// SPDX-License-Identifier: Apache-2.0
// Secrets that are found, drawn and missed, and keys.
#include "core/wire/secret.h"

#include "core/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void ls_secret_free(char *secret)
{
    if (secret)
        sodium_memzero(secret, strlen(secret));
    free(secret);
}

static enum ls_status check_length(const char *secret, const char *from)
{
    const size_t length = strlen(secret);
    if (length >= LS_SECRET_LEAST && length <= LS_SECRET_MOST)
        return LS_OK;
    ls_error("cluster",
             "the secret of %s has %zu letters: expected %d to %d; "
             "`lockstep launch --make-secret=FILE` makes one",
             from, length, LS_SECRET_LEAST, LS_SECRET_MOST);
    return LS_USAGE;
}

// O_NONBLOCK: opening a pipe that has no writer must not wait.
static enum ls_status open_private(const char *path, int *out)
{
    struct stat about;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &about)) {
        ls_error("cluster", "%s, the file of the secret, cannot be opened: %s", path,
                 strerror(errno));
        if (fd >= 0)
            close(fd);
        return LS_BAD_INPUT;
    }
    const char *wrong = NULL;
    if (!S_ISREG(about.st_mode))
        wrong = "it is no regular file";
    else if (about.st_mode & 077)
        wrong = "others may read or write it: chmod 600";
    else if (about.st_uid != geteuid() && about.st_uid != 0)
        wrong = "it belongs to another user";
    if (wrong) {
        ls_error("cluster", "%s is no safe file for the secret: %s", path, wrong);
        close(fd);
        return LS_BAD_INPUT;
    }
    *out = fd;
    return LS_OK;
}

static enum ls_status read_file(const char *path, char **out)
{
    int fd;
    const enum ls_status status = open_private(path, &fd);
    if (status)
        return status;
    char *text = calloc(1, LS_SECRET_MOST + 3); // room to see that it is too long
    size_t length = 0;
    ssize_t got = 1;
    while (text && got > 0 && length < LS_SECRET_MOST + 2) {
        got = read(fd, text + length, LS_SECRET_MOST + 2 - length);
        length += got > 0 ? (size_t)got : 0;
    }
    close(fd);
    if (!text)
        return LS_OUT_OF_MEMORY;
    if (got < 0) {
        ls_error("cluster", "%s, the file of the secret, cannot be read", path);
        ls_secret_free(text);
        return LS_BAD_INPUT;
    }
    text[strcspn(text, "\r\n")] = '\0';
    *out = text;
    return LS_OK;
}

enum ls_status ls_secret_find(const char *value, const char *path, char **out)
{
    char *secret = NULL;
    enum ls_status status = LS_OK;
    if (value && !(secret = strdup(value)))
        return LS_OUT_OF_MEMORY;
    if (!value && path)
        status = read_file(path, &secret);
    if (!status && secret)
        status = check_length(secret, value ? "LOCKSTEP_SECRET" : path);
    if (status) {
        ls_secret_free(secret);
        return status;
    }
    *out = secret;
    return LS_OK;
}

enum ls_status ls_secret_draw(char secret[LS_SECRET_DRAWN])
{
    uint8_t random[(LS_SECRET_DRAWN - 1) / 2];
    if (sodium_init() < 0) {
        ls_error("cluster", "libsodium cannot be used: the system gives no random numbers");
        return LS_FAILED;
    }
    randombytes_buf(random, sizeof(random));
    sodium_bin2hex(secret, LS_SECRET_DRAWN, random, sizeof(random));
    sodium_memzero(random, sizeof(random));
    return LS_OK;
}

static bool write_all(int fd, const char *text, size_t bytes)
{
    while (bytes) {
        const ssize_t wrote = write(fd, text, bytes);
        if (wrote < 0 && errno != EINTR)
            return false;
        text += wrote > 0 ? wrote : 0;
        bytes -= wrote > 0 ? (size_t)wrote : 0;
    }
    return true;
}

// A file system without modes (a mounted Windows share) would show the secret to everybody.
static bool make_private(int fd)
{
    struct stat made;
    if (fchmod(fd, 0600) || fstat(fd, &made))
        return false;
    errno = EPERM;
    return !(made.st_mode & 077);
}

enum ls_status ls_secret_make(const char *path)
{
    char secret[LS_SECRET_DRAWN];
    const enum ls_status status = ls_secret_draw(secret);
    if (status)
        return status;
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    bool written = fd >= 0 && make_private(fd) && write_all(fd, secret, strlen(secret)) &&
                   write_all(fd, "\n", 1) && !fsync(fd);
    int error = errno;
    sodium_memzero(secret, sizeof(secret));
    if (fd >= 0 && close(fd) && written) {
        error = errno;
        written = false;
    }
    if (written)
        return LS_OK;
    if (fd >= 0)
        unlink(path);
    ls_error("cluster", "%s, a file for a secret, cannot be made: %s", path,
             fd < 0 && error == EEXIST ? "it exists already; remove it to have another secret"
                                       : strerror(error));
    return LS_BAD_INPUT;
}

enum ls_status ls_secret_is_missing(const char *name, const char *address, uint16_t port,
                                    const char *all)
{
    char at[32] = "";
    if (*address)
        snprintf(at, sizeof(at), ":%u", port);
    ls_error("cluster",
             "other machines reach %s%s%s%s: give all %s one secret by LOCKSTEP_SECRET or "
             "LOCKSTEP_SECRET_FILE (`lockstep launch --make-secret=FILE` makes one), or --insecure "
             "on a network that you trust",
             name, *address ? " at " : "", address, at, all);
    return LS_USAGE;
}

enum ls_status ls_secure_key(const char *secret, uint8_t key[LS_SECURE_KEY])
{
    static const char nobody[] = "lockstep without a secret", label[] = "lockstep secret 1";
    if (sodium_init() < 0) {
        ls_error("cluster", "libsodium cannot be used: the system gives no random numbers");
        return LS_FAILED;
    }
    const enum ls_status status = secret ? check_length(secret, "this job") : LS_OK;
    if (status)
        return status;
    crypto_generichash_state state;
    crypto_generichash_init(&state, NULL, 0, LS_SECURE_KEY);
    crypto_generichash_update(&state, (const uint8_t *)(secret ? label : nobody),
                              secret ? sizeof(label) : sizeof(nobody));
    if (secret)
        crypto_generichash_update(&state, (const uint8_t *)secret, strlen(secret));
    crypto_generichash_final(&state, key, LS_SECURE_KEY);
    sodium_memzero(&state, sizeof(state));
    return LS_OK;
}
