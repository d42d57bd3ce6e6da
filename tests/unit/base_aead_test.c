/* Authenticated ciphers: known texts, in one piece or two, in both directions. */
#include "tests/harness/harness.h"

#include "engine/base/aead.h"

#include <stdlib.h>
#include <string.h>

static size_t bytes_of(const char *hex, uint8_t *out) {
    size_t n = strlen(hex) / 2;
    for (size_t i = 0; i < n; i++) {
        char byte[3] = {hex[2 * i], hex[2 * i + 1], '\0'};
        out[i] = (uint8_t)strtoul(byte, NULL, 16);
    }
    return n;
}

/* Test cases 1 and 2 of McGrew and Viega's "The Galois/Counter Mode of Operation", submitted to NIST, and what Python's
 * cryptography gives for a key and a text of theirs. */
#define ZEROS "00000000000000000000000000000000"
#define KEY "feffe9928665731c6d6a8f9467308308000102030405060708090a0b0c0d0e0f"
#define TEXT "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72"
#define REST "1c3c0c95"
static const struct vector {
    enum aead_cipher cipher;
    enum aead_use use;
    const char *key, *text, *sealed, *tag;
    uint64_t number;
} vectors[] = {
    {AEAD_GCM, AEAD_ENCRYPTED, ZEROS, "", "", "58e2fccefa7e3061367f1d57a4e7455a", 0},
    {AEAD_GCM, AEAD_READABLE, ZEROS, "", "", "58e2fccefa7e3061367f1d57a4e7455a", 0},
    {AEAD_GCM, AEAD_ENCRYPTED, ZEROS, ZEROS, "0388dace60b6a392f328c2b971b2fe78", "ab6e47d42cec13bdf53a67b21257bddf", 0},
    {AEAD_GCM, AEAD_ENCRYPTED, KEY, TEXT REST,
     "0512461f3b9e1f37c98a4ffbb8d86d218031b732095b71d3f20d4f0e85851e4cb1620426", "4ba1d3aefba7b9ae505c6290cd1fd293",
     0x102030405060708},
    {AEAD_GCM, AEAD_READABLE, KEY, TEXT REST, TEXT REST, "e088b2f79715c7ce0eec820e478d9551", 0x102030405060708},
    {AEAD_CHACHA_POLY, AEAD_READABLE, KEY, TEXT REST, TEXT REST, "c9af0ad17646f0e2f82800f32352db51", 0x102030405060708},
    {AEAD_OCB, AEAD_ENCRYPTED, KEY, TEXT REST,
     "2211edef226ecaf62cf3a49f78260bfbe2ec8cf52bef091a6a84bd9294893238d301b54e", "3d52537a8098505fa5d704b76f8f1ecd",
     0x102030405060708},
    {AEAD_OCB, AEAD_ENCRYPTED, KEY, TEXT, "2211edef226ecaf62cf3a49f78260bfbe2ec8cf52bef091a6a84bd9294893238",
     "5c28c5fc466e28c4d914b352bdfc74e4", 0x102030405060708},
};

/* In one piece, or with the first block for itself. */
static void pass_first(struct aead *a, const uint8_t *in, uint8_t *out, size_t first) {
    if (first) aead_pass(a, in, out, first);
}

static void known(void **state) {
    (void)state;
    for (size_t i = 0; i < 2 * (sizeof vectors / sizeof *vectors); i++) {
        const struct vector *v = &vectors[i / 2];
        uint8_t key[AEAD_KEY_BYTES] = {0}, text[64], sealed[64], tag[16], got[64], end[16];
        struct aead *a, *b;
        size_t n = bytes_of(v->text, text), first = i % 2 && n >= AEAD_BLOCK ? AEAD_BLOCK : 0;
        bytes_of(v->key, key), bytes_of(v->sealed, sealed), bytes_of(v->tag, tag);
        assert_ok(aead_open((int)v->cipher, v->use, key, true, &a));
        assert_ok(aead_open((int)v->cipher, v->use, key, false, &b));
        aead_begin(a, v->number);
        memcpy(got, text, n); /* where it stays if it is readable */
        pass_first(a, text, got, first);
        aead_tag(a, text + first, got + first, n - first, end);
        assert_memory_equal(got, sealed, n);
        assert_memory_equal(end, tag, sizeof tag);
        for (int wrong = 0; wrong < 2; wrong++) {
            aead_begin(b, v->number);
            memcpy(got, sealed, n);
            pass_first(b, got, got, first);
            assert_int_equal(aead_holds(b, got + first, got + first, n - first, tag), !wrong);
            if (!wrong) assert_memory_equal(got, text, n);
            tag[wrong] ^= 1;
        }
        aead_close(a);
        aead_close(b);
    }
}

static void others_are_refused(void **state) {
    static const struct {
        int cipher;
        enum aead_use use;
    } bad[] = {{-1, AEAD_READABLE}, {AEAD_CIPHERS, AEAD_READABLE}, {AEAD_OCB, AEAD_READABLE}, {1, AEAD_ENCRYPTED}};
    const uint8_t key[AEAD_KEY_BYTES] = {0};
    struct aead *a;
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(aead_open(bad[i].cipher, bad[i].use, key, true, &a), ERR_DATA);
    for (int use = 0; use < AEAD_USES; use++) {
        assert_ok(aead_open((int)aead_fastest((enum aead_use)use), (enum aead_use)use, key, true, &a));
        aead_close(a);
    }
}

static void a_new_key_is_another(void **state) {
    uint8_t key[AEAD_KEY_BYTES] = {1}, tag[16], other[16];
    struct aead *a;
    (void)state;
    assert_ok(aead_open(AEAD_GCM, AEAD_READABLE, key, true, &a));
    aead_begin(a, 7);
    aead_tag(a, NULL, NULL, 0, tag);
    key[0] = 2;
    aead_rekey(a, key);
    aead_begin(a, 7);
    aead_tag(a, NULL, NULL, 0, other);
    assert_memory_not_equal(tag, other, sizeof tag);
    key[0] = 1;
    aead_rekey(a, key);
    aead_begin(a, 7);
    aead_tag(a, NULL, NULL, 0, other);
    assert_memory_equal(tag, other, sizeof tag);
    aead_close(a);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(known), cmocka_unit_test(others_are_refused),
                                       cmocka_unit_test(a_new_key_is_another)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
