// SPDX-License-Identifier: Apache-2.0
// The secret of a job: where it comes from, and the key that is made of it.
#ifndef LS_WIRE_SECRET_H
#define LS_WIRE_SECRET_H

#include "core/base/status.h"

#include <stdint.h>

#define LS_SECURE_KEY 32

// Secrets have 16 to 4096 letters.
#define LS_SECRET_LEAST 16
#define LS_SECRET_MOST 4096

// The secret of this job: `value` (of LOCKSTEP_SECRET) if it is not NULL, else the content of the
// file `path` (LOCKSTEP_SECRET_FILE) without its final newline, else NULL. The file must be a
// regular one of this user (or root) that nobody else may read. LS_USAGE or LS_BAD_INPUT, logged.
// The text is ended by ls_secret_free.
LS_STATUS ls_secret_find(const char *value, const char *path, char **out);
void ls_secret_free(char *secret); // wipes it; takes NULL

// Draws a random secret: 64 hexadecimal digits (256 bits) and a zero. LS_FAILED, logged: the system
// gives no random numbers.
#define LS_SECRET_DRAWN 65
LS_STATUS ls_secret_draw(char secret[LS_SECRET_DRAWN]);

// The same into a new file of mode 0600. LS_BAD_INPUT, logged: it exists, or cannot be written.
LS_STATUS ls_secret_make(const char *path);

// Logs that other machines reach `name` ("worker 0"), and that `all` ("workers") need a secret.
// `address` "": it is not known. Returns LS_USAGE.
LS_STATUS ls_secret_is_missing(const char *name, const char *address, uint16_t port,
                               const char *all);

// The key that all others are made of. Without a secret (NULL): one that everybody knows.
// LS_USAGE, logged: the secret is too short or too long.
LS_STATUS ls_secure_key(const char *secret, uint8_t key[LS_SECURE_KEY]);

#endif
