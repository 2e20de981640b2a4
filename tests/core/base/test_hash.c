// SPDX-License-Identifier: Apache-2.0
// Hashes are XXH64 with seed 0, however the bytes arrive.
#include "core/base/hash.h"
#include "tests/support/suite.h"

#include <check.h>
#include <string.h>

static uint64_t hash_of(const char *text, size_t piece)
{
    struct ls_hash *hash = ls_hash_create();
    ck_assert_ptr_nonnull(hash);
    const size_t length = strlen(text);
    for (size_t i = 0; i < length; i += piece)
        ls_hash_add(hash, text + i, length - i < piece ? length - i : piece);
    const uint64_t value = ls_hash_get(hash);
    ck_assert_uint_eq(ls_hash_get(hash), value);
    ls_hash_destroy(hash);
    return value;
}

// Published values of XXH64.
TEST(known_texts_have_their_known_hashes)
{
    ck_assert_uint_eq(hash_of("", 1), UINT64_C(0xef46db3751d8e999));
    ck_assert_uint_eq(hash_of("a", 1), UINT64_C(0xd24ec4f1a98c6e5b));
    ck_assert_uint_eq(hash_of("abc", 3), UINT64_C(0x44bc2cf5ad770999));
    ck_assert_uint_eq(hash_of("Nobody inspects the spammish repetition", 64),
                      UINT64_C(0xfbcea83c8a378bf1));
}

TEST(pieces_do_not_matter)
{
    const char *text = "Nobody inspects the spammish repetition";
    for (size_t piece = 1; piece < 40; piece++)
        ck_assert_uint_eq(hash_of(text, piece), UINT64_C(0xfbcea83c8a378bf1));
}

TEST(nothing_may_be_added_and_destroyed)
{
    struct ls_hash *hash = ls_hash_create();
    ck_assert_ptr_nonnull(hash);
    ls_hash_add(hash, NULL, 0);
    ck_assert_uint_eq(ls_hash_get(hash), UINT64_C(0xef46db3751d8e999));
    ls_hash_destroy(hash);
    ls_hash_destroy(NULL);
}
