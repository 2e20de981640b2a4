// SPDX-License-Identifier: Apache-2.0
// The handshake and the seals, the files of secrets, and frames.
#include "core/wire/frame.h"
#include "core/wire/secure.h"
#include "tests/support/errors.h"
#include "tests/support/suite.h"

#include "core/base/log.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// ---- Handshake ----

struct pair {
    struct ls_secure worker, store;
    uint8_t greeting[LS_SECURE_GREETING], answer[LS_SECURE_NONCE], proof[LS_SECURE_PROOF],
        reply[LS_SECURE_PROOF];
};

static void begin(struct pair *pair, const char *worker_secret, const char *store_secret)
{
    uint8_t key[LS_SECURE_KEY];
    ck_assert_int_eq(ls_secure_key(worker_secret, key), LS_OK);
    ls_secure_init(&pair->worker, key);
    ck_assert_int_eq(ls_secure_key(store_secret, key), LS_OK);
    ls_secure_init(&pair->store, key);
    ls_secure_greet(&pair->worker, pair->greeting);
    ck_assert(ls_secure_begins_greeting(pair->greeting, sizeof(pair->greeting)));
    ls_secure_answer(&pair->store, pair->greeting, pair->answer);
    ls_secure_prove(&pair->worker, pair->answer, pair->proof);
}

static const char secret[] = "the secret of two sides";
static const uint8_t label[4] = {1, 2, 3, 4};

static void connect_pair(struct pair *pair)
{
    begin(pair, secret, secret);
    ck_assert(ls_secure_admit(&pair->store, pair->proof, pair->reply));
    ck_assert(ls_secure_believe(&pair->worker, pair->reply));
}

static void seal(struct ls_secure *from, const char *text, uint8_t *sealed)
{
    ls_secure_seal(from, label, (const uint8_t *)text, 8, sealed);
}

static bool opens(struct ls_secure *at, const uint8_t *sealed, const char *text)
{
    uint8_t plain[8];
    return ls_secure_open(at, label, sealed, 8 + LS_SECURE_SEAL, plain) &&
           memcmp(plain, text, 8) == 0;
}

TEST(who_knows_the_secret_is_understood_both_ways)
{
    struct pair pair;
    uint8_t sealed[8 + 17];
    connect_pair(&pair);
    for (int i = 0; i < 3; i++) {
        seal(&pair.worker, "gradient", sealed);
        ck_assert_int_ne(memcmp(sealed, "gradient", 8), 0);
        ck_assert(opens(&pair.store, sealed, "gradient"));
        seal(&pair.store, "weights!", sealed);
        ck_assert(opens(&pair.worker, sealed, "weights!"));
    }
}

TEST(who_does_not_know_the_secret_gets_zeros)
{
    struct pair pair;
    static const uint8_t zeros[LS_SECURE_PROOF];
    begin(&pair, "another secret of a stranger", secret);
    ck_assert(!ls_secure_admit(&pair.store, pair.proof, pair.reply));
    ck_assert_int_eq(memcmp(pair.reply, zeros, sizeof(zeros)), 0);
    ck_assert(!ls_secure_believe(&pair.worker, pair.reply));
    begin(&pair, NULL, secret);
    ck_assert(!ls_secure_admit(&pair.store, pair.proof, pair.reply));
}

// Whoever listened to a handshake can repeat it, but the store's nonce is another then. Nor does
// the store's own proof open anything.
TEST(a_repeated_handshake_is_worth_nothing)
{
    struct pair old, now;
    connect_pair(&old);
    begin(&now, secret, secret);
    ls_secure_answer(&now.store, old.greeting, now.answer);
    ck_assert(!ls_secure_admit(&now.store, old.proof, now.reply));
    begin(&now, secret, secret);
    ck_assert(!ls_secure_believe(&now.worker, old.reply));
    begin(&now, secret, secret);
    ck_assert(!ls_secure_admit(&now.store, old.reply, now.reply));
}

TEST(altered_repeated_and_reordered_frames_do_not_open)
{
    struct pair pair;
    uint8_t one[25], two[25], damaged[25];
    static const uint8_t other_label[4] = {1, 2, 3, 5};
    uint8_t plain[8];
    for (size_t bit = 0; bit < 8 * sizeof(one); bit += 7) {
        connect_pair(&pair);
        seal(&pair.worker, "gradient", one);
        memcpy(damaged, one, sizeof(one));
        damaged[bit / 8] ^= (uint8_t)(1 << bit % 8);
        ck_assert(!opens(&pair.store, damaged, "gradient"));
    }
    connect_pair(&pair);
    seal(&pair.worker, "gradient", one);
    seal(&pair.worker, "gradient", two);
    ck_assert(!opens(&pair.store, two, "gradient"));
    ck_assert(!ls_secure_open(&pair.store, other_label, one, sizeof(one), plain));
    ck_assert(opens(&pair.store, one, "gradient"));
    ck_assert(!opens(&pair.store, one, "gradient"));
    ck_assert(!opens(&pair.worker, two, "gradient")); // back to who sent it
    ck_assert(opens(&pair.store, two, "gradient"));
}

TEST(a_greeting_is_told_from_other_protocols_by_its_first_bytes)
{
    ck_assert(ls_secure_begins_greeting((const uint8_t *)"LSTORE1\n", 8));
    ck_assert(ls_secure_begins_greeting((const uint8_t *)"LST", 3));
    ck_assert(!ls_secure_begins_greeting((const uint8_t *)"G", 1));
    ck_assert(!ls_secure_begins_greeting((const uint8_t *)"LSTORE2\n", 8));
}

// ---- Secrets ----

static void write_file(const char *path, const char *text, mode_t mode)
{
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_ge(fputs(text, file), 0);
    ck_assert_int_eq(fclose(file), 0);
    ck_assert_int_eq(chmod(path, mode), 0);
}

TEST(a_made_secret_is_private_random_and_found)
{
    char path[] = "/tmp/lockstep-secret-XXXXXX", *one = NULL, *two = NULL;
    struct stat about;
    forget_errors();
    ck_assert_ptr_nonnull(mkdtemp(path));
    char first[64], second[64];
    snprintf(first, sizeof(first), "%s/one", path);
    snprintf(second, sizeof(second), "%s/two", path);
    const mode_t before = umask(0);
    ck_assert_int_eq(ls_secret_make(first), LS_OK);
    umask(0777); // which would take the owner's right to read as well
    ck_assert_int_eq(ls_secret_make(second), LS_OK);
    umask(before);
    ck_assert_int_eq(stat(first, &about), 0);
    ck_assert_uint_eq(about.st_mode & 07777, 0600);
    ck_assert_int_eq(stat(second, &about), 0);
    ck_assert_uint_eq(about.st_mode & 07777, 0600);
    ck_assert_int_eq(ls_secret_find(NULL, first, &one), LS_OK);
    ck_assert_int_eq(ls_secret_find(NULL, second, &two), LS_OK);
    ck_assert_uint_eq(strlen(one), 64);
    ck_assert_str_ne(one, two);
    ck_assert_int_eq(ls_secret_make(first), LS_BAD_INPUT);
    ck_assert_ptr_nonnull(strstr(message, "it exists already"));
    ls_secret_free(one);
    ls_secret_free(two);
    unlink(first);
    unlink(second);
    rmdir(path);
}

TEST(a_file_that_others_may_read_is_no_secret)
{
    char path[] = "/tmp/lockstep-secret-XXXXXX", *found = NULL;
    const int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    close(fd);
    forget_errors();
    static const mode_t modes[] = {0644, 0640, 0604, 0620, 0601};
    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
        write_file(path, "a secret of a file\n", modes[i]);
        ck_assert_int_eq(ls_secret_find(NULL, path, &found), LS_BAD_INPUT);
        ck_assert_ptr_nonnull(strstr(message, "others may read or write it: chmod 600"));
    }
    write_file(path, "a secret of a file\n", 0600);
    ck_assert_int_eq(ls_secret_find(NULL, path, &found), LS_OK);
    ck_assert_str_eq(found, "a secret of a file");
    ls_secret_free(found);
    ck_assert_int_eq(ls_secret_find("the value of a variable", path, &found), LS_OK);
    ck_assert_str_eq(found, "the value of a variable");
    ls_secret_free(found);
    write_file(path, "short\n", 0600);
    ck_assert_int_eq(ls_secret_find(NULL, path, &found), LS_USAGE);
    ck_assert_ptr_nonnull(strstr(message, "has 5 letters: expected 16 to 4096"));
    unlink(path);
    ck_assert_int_eq(ls_secret_find(NULL, path, &found), LS_BAD_INPUT);
    ck_assert_ptr_nonnull(strstr(message, "No such file or directory"));
    ck_assert_int_eq(ls_secret_find(NULL, "/dev/null", &found), LS_BAD_INPUT);
    ck_assert_ptr_nonnull(strstr(message, "it is no regular file"));
    found = (char *)"";
    ck_assert_int_eq(ls_secret_find(NULL, NULL, &found), LS_OK);
    ck_assert_ptr_null(found);
}

// ---- Frames ----

#define KIND 3

TEST(what_is_written_to_a_frame_is_read_from_it)
{
    static struct ls_frame frame;
    char text[16];
    ls_frame_begin(&frame, KIND, 7);
    ls_frame_put_u16(&frame, 0xfedc);
    ls_frame_put_u64(&frame, UINT64_C(0x0123456789abcdef));
    ls_frame_put_text(&frame, "bucket 0");
    ls_frame_put_bytes(&frame, "xyz", 3);
    ck_assert(!frame.full);
    ck_assert_uint_eq(frame.data[5], 0xdc); // little-endian
    struct ls_frame_reader reader = {.at = frame.data, .left = frame.bytes};
    ck_assert_uint_eq(ls_frame_get_u8(&reader), KIND);
    ck_assert_uint_eq(ls_frame_get_u32(&reader), 7);
    ck_assert_uint_eq(ls_frame_get_u16(&reader), 0xfedc);
    ck_assert_uint_eq(ls_frame_get_u64(&reader), UINT64_C(0x0123456789abcdef));
    ls_frame_get_text(&reader, text, sizeof(text));
    ck_assert_str_eq(text, "bucket 0");
    ck_assert_int_eq(memcmp(ls_frame_get_bytes(&reader, 3), "xyz", 3), 0);
    ck_assert(!reader.wrong);
    ck_assert_uint_eq(reader.left, 0);
    ck_assert_uint_eq(ls_frame_get_u8(&reader), 0);
    ck_assert(reader.wrong);
}

TEST(texts_that_do_not_fit_or_have_zeros_are_wrong)
{
    static struct ls_frame frame;
    char text[8];
    ls_frame_begin(&frame, KIND, 0);
    ls_frame_put_text(&frame, "too long for it");
    struct ls_frame_reader reader = {.at = frame.data + 5, .left = frame.bytes - 5};
    ls_frame_get_text(&reader, text, sizeof(text));
    ck_assert(reader.wrong);
    ck_assert_str_eq(text, "");
    static const uint8_t zero[] = {3, 0, 'a', 0, 'b'}, cut[] = {9, 0, 'a'};
    reader = (struct ls_frame_reader){.at = zero, .left = sizeof(zero)};
    ls_frame_get_text(&reader, text, sizeof(text));
    ck_assert(reader.wrong);
    reader = (struct ls_frame_reader){.at = cut, .left = sizeof(cut)};
    ls_frame_get_text(&reader, text, sizeof(text));
    ck_assert(reader.wrong);
}

TEST(a_frame_takes_what_fits_and_says_when_not)
{
    static struct ls_frame frame;
    static uint8_t data[LS_FRAME_PLAIN];
    ls_frame_begin(&frame, KIND, 0);
    ls_frame_put_bytes(&frame, data, LS_FRAME_PLAIN - 5);
    ck_assert(!frame.full);
    ck_assert_uint_eq(frame.bytes, LS_FRAME_PLAIN);
    ls_frame_put_u8(&frame, 1);
    ck_assert(frame.full);
    ck_assert_uint_eq(frame.bytes, LS_FRAME_PLAIN);
}
