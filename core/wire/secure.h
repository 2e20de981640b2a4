// SPDX-License-Identifier: Apache-2.0
// Only processes that know the secret of the job talk to its store: a handshake in which both sides
// prove that they know it, then sealed frames (libsodium).
//
//     worker -> store   greeting   "LSTORE1\n" and the worker's nonce
//     store -> worker   answer     the store's nonce
//     worker -> store   proof      a keyed hash of both nonces, and the head of its stream
//     store -> worker   proof      the same the other way round, with another key
//
// All keys are keyed BLAKE2b hashes of a label and both nonces, with a key made from the secret:
// one for each proof and one for each direction's stream (XChaCha20-Poly1305, crypto_secretstream).
// So a recorded conversation is worth nothing later, and a frame that was altered, repeated or left
// out does not open. The worker proves first: a stranger that connects gets a nonce and nothing
// else.
#ifndef LS_WIRE_SECURE_H
#define LS_WIRE_SECURE_H

#include "core/wire/secret.h"

#include <sodium.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LS_SECURE_NONCE 32
#define LS_SECURE_GREETING (8 + LS_SECURE_NONCE)
#define LS_SECURE_HEAD ((int)crypto_secretstream_xchacha20poly1305_HEADERBYTES)
#define LS_SECURE_PROOF (LS_SECURE_KEY + LS_SECURE_HEAD)
#define LS_SECURE_SEAL ((size_t)crypto_secretstream_xchacha20poly1305_ABYTES)

// One side of a conversation.
struct ls_secure {
    uint8_t key[LS_SECURE_KEY];
    uint8_t nonces[2 * LS_SECURE_NONCE]; // the worker's, the store's
    crypto_secretstream_xchacha20poly1305_state send, receive;
};

void ls_secure_init(struct ls_secure *secure, const uint8_t key[LS_SECURE_KEY]);
void ls_secure_finish(struct ls_secure *secure); // wipes it

// The worker's side.
void ls_secure_greet(struct ls_secure *secure, uint8_t greeting[LS_SECURE_GREETING]);
void ls_secure_prove(struct ls_secure *secure, const uint8_t answer[LS_SECURE_NONCE],
                     uint8_t proof[LS_SECURE_PROOF]);
// False: the store does not know the secret, or told the worker that the worker does not.
bool ls_secure_believe(struct ls_secure *secure, const uint8_t proof[LS_SECURE_PROOF]);

// The store's side. False: not the beginning of a greeting; asked as bytes arrive.
bool ls_secure_begins_greeting(const uint8_t *greeting, size_t bytes);
void ls_secure_answer(struct ls_secure *secure, const uint8_t greeting[LS_SECURE_GREETING],
                      uint8_t answer[LS_SECURE_NONCE]);
// False: the worker does not know the secret; `out` then tells it so and nothing else.
bool ls_secure_admit(struct ls_secure *secure, const uint8_t proof[LS_SECURE_PROOF],
                     uint8_t out[LS_SECURE_PROOF]);

// Both sides, afterwards. `sealed` gets LS_SECURE_SEAL bytes more than `plain`; `label` (the length
// on the wire) is authenticated along.
void ls_secure_seal(struct ls_secure *secure, const uint8_t label[4], const uint8_t *plain,
                    size_t bytes, uint8_t *sealed);
// False: it is not what the other side sealed next. `bytes` of `sealed`, at least LS_SECURE_SEAL.
bool ls_secure_open(struct ls_secure *secure, const uint8_t label[4], const uint8_t *sealed,
                    size_t bytes, uint8_t *plain);

#endif
