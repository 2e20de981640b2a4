// SPDX-License-Identifier: Apache-2.0
// The handshake and the seals.
#include "core/wire/secure.h"

#include <string.h>

static const uint8_t magic[8] = {'L', 'S', 'T', 'O', 'R', 'E', '1', '\n'};

// A key for one purpose. The label begins every message, so that keys of two purposes differ.
static void derive(const struct ls_secure *secure, const char *label, uint8_t out[LS_SECURE_KEY])
{
    crypto_generichash_state state;
    crypto_generichash_init(&state, secure->key, sizeof(secure->key), LS_SECURE_KEY);
    crypto_generichash_update(&state, (const uint8_t *)label, strlen(label) + 1);
    crypto_generichash_update(&state, secure->nonces, sizeof(secure->nonces));
    crypto_generichash_final(&state, out, LS_SECURE_KEY);
}

void ls_secure_init(struct ls_secure *secure, const uint8_t key[LS_SECURE_KEY])
{
    memset(secure, 0, sizeof(*secure));
    memcpy(secure->key, key, LS_SECURE_KEY);
}

void ls_secure_finish(struct ls_secure *secure)
{
    sodium_memzero(secure, sizeof(*secure));
}

void ls_secure_greet(struct ls_secure *secure, uint8_t greeting[LS_SECURE_GREETING])
{
    randombytes_buf(secure->nonces, LS_SECURE_NONCE);
    memcpy(greeting, magic, sizeof(magic));
    memcpy(greeting + sizeof(magic), secure->nonces, LS_SECURE_NONCE);
}

bool ls_secure_begins_greeting(const uint8_t *greeting, size_t bytes)
{
    return memcmp(greeting, magic, bytes < sizeof(magic) ? bytes : sizeof(magic)) == 0;
}

void ls_secure_answer(struct ls_secure *secure, const uint8_t greeting[LS_SECURE_GREETING],
                      uint8_t answer[LS_SECURE_NONCE])
{
    memcpy(secure->nonces, greeting + sizeof(magic), LS_SECURE_NONCE);
    randombytes_buf(answer, LS_SECURE_NONCE);
    memcpy(secure->nonces + LS_SECURE_NONCE, answer, LS_SECURE_NONCE);
}

// Begins the stream of what this side sends; the other side needs its head.
static void begin_sending(struct ls_secure *secure, const char *label, uint8_t *head)
{
    uint8_t key[LS_SECURE_KEY];
    derive(secure, label, key);
    crypto_secretstream_xchacha20poly1305_init_push(&secure->send, head, key);
    sodium_memzero(key, sizeof(key));
}

static bool begin_receiving(struct ls_secure *secure, const char *label, const uint8_t *head)
{
    uint8_t key[LS_SECURE_KEY];
    derive(secure, label, key);
    const int error = crypto_secretstream_xchacha20poly1305_init_pull(&secure->receive, head, key);
    sodium_memzero(key, sizeof(key));
    return error == 0;
}

static bool is_proof(const struct ls_secure *secure, const char *label, const uint8_t *proof)
{
    uint8_t expected[LS_SECURE_KEY];
    derive(secure, label, expected);
    return sodium_memcmp(proof, expected, sizeof(expected)) == 0;
}

void ls_secure_prove(struct ls_secure *secure, const uint8_t answer[LS_SECURE_NONCE],
                     uint8_t proof[LS_SECURE_PROOF])
{
    memcpy(secure->nonces + LS_SECURE_NONCE, answer, LS_SECURE_NONCE);
    derive(secure, "lockstep worker proof", proof);
    begin_sending(secure, "lockstep worker stream", proof + LS_SECURE_KEY);
}

bool ls_secure_admit(struct ls_secure *secure, const uint8_t proof[LS_SECURE_PROOF],
                     uint8_t out[LS_SECURE_PROOF])
{
    memset(out, 0, LS_SECURE_PROOF);
    if (!is_proof(secure, "lockstep worker proof", proof) ||
        !begin_receiving(secure, "lockstep worker stream", proof + LS_SECURE_KEY))
        return false;
    derive(secure, "lockstep store proof", out);
    begin_sending(secure, "lockstep store stream", out + LS_SECURE_KEY);
    return true;
}

bool ls_secure_believe(struct ls_secure *secure, const uint8_t proof[LS_SECURE_PROOF])
{
    return is_proof(secure, "lockstep store proof", proof) &&
           begin_receiving(secure, "lockstep store stream", proof + LS_SECURE_KEY);
}

void ls_secure_seal(struct ls_secure *secure, const uint8_t label[4], const uint8_t *plain,
                    size_t bytes, uint8_t *sealed)
{
    crypto_secretstream_xchacha20poly1305_push(&secure->send, sealed, NULL, plain, bytes, label, 4,
                                               crypto_secretstream_xchacha20poly1305_TAG_MESSAGE);
}

bool ls_secure_open(struct ls_secure *secure, const uint8_t label[4], const uint8_t *sealed,
                    size_t bytes, uint8_t *plain)
{
    unsigned char tag = 0;
    return crypto_secretstream_xchacha20poly1305_pull(&secure->receive, plain, NULL, &tag, sealed,
                                                      bytes, label, 4) == 0;
}
