/* AES-128-GCM: NIST's vectors, any cut of a text, and both directions. */
#include "tests/harness/harness.h"

#include "engine/base/aead.h"

#include <stdio.h>
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

/* Test cases 1 and 2 of McGrew and Viega's "The Galois/Counter Mode of Operation", submitted to NIST; and, since the
 * nonces of the others are no numbers, what Python's cryptography gives for their key and texts. */
static const struct vector {
    const char *key, *text, *added, *sealed, *tag;
    uint64_t number;
} vectors[] = {
    {"00000000000000000000000000000000", "", "", "", "58e2fccefa7e3061367f1d57a4e7455a", 0},
    {"00000000000000000000000000000000", "00000000000000000000000000000000", "", "0388dace60b6a392f328c2b971b2fe78",
     "ab6e47d42cec13bdf53a67b21257bddf", 0},
    {"feffe9928665731c6d6a8f9467308308", "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a721c3c0c95",
     "feedfacedeadbeeffeedfacedeadbeefabaddad2",
     "0512461f3b9e1f37c98a4ffbb8d86d218031b732095b71d3f20d4f0e85851e4cb1620426", "f86ef356a2e546a7a02892191ba07b67",
     0x102030405060708},
    {"feffe9928665731c6d6a8f9467308308", "", "feedfacedeadbeeffeedfacedeadbeefabaddad2", "",
     "b0881571a3725773e08903a8753b6b9a", 0xffffffffffffffff},
    {"feffe9928665731c6d6a8f9467308308", "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a721c3c0c95", "",
     "193cb967f70b32fd2de8cc796a43f0b21fb2091023b50b4b475f30941ab932f0462c7a86", "a22d4984eb0d24ff787d6e7f6a6a0802",
     0x1},
};

static void known(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
        const struct vector *v = &vectors[i];
        uint8_t key[16], text[64], added[64], sealed[64], tag[16], got[64], end[16];
        struct aead *a, *b;
        size_t n = bytes_of(v->text, text), m = bytes_of(v->added, added);
        bytes_of(v->key, key), bytes_of(v->sealed, sealed), bytes_of(v->tag, tag);
        assert_ok(aead_open(key, true, &a));
        assert_ok(aead_open(key, false, &b));
        aead_begin(a, v->number);
        aead_add(a, added, m);
        aead_crypt(a, text, got, n);
        aead_tag(a, end);
        assert_memory_equal(got, sealed, n);
        assert_memory_equal(end, tag, sizeof tag);
        for (int wrong = 0; wrong < 2; wrong++) {
            aead_begin(b, v->number);
            aead_add(b, added, m);
            aead_crypt(b, sealed, got, n);
            assert_memory_equal(got, text, n);
            assert_int_equal(aead_holds(b, tag), !wrong);
            tag[wrong] ^= 1;
        }
        aead_close(a);
        aead_close(b);
    }
}

static void a_new_key_is_another(void **state) {
    uint8_t key[16] = {1}, tag[16], other[16];
    struct aead *a;
    (void)state;
    assert_ok(aead_open(key, true, &a));
    aead_begin(a, 7);
    aead_tag(a, tag);
    key[0] = 2;
    aead_rekey(a, key);
    aead_begin(a, 7);
    aead_tag(a, other);
    assert_memory_not_equal(tag, other, sizeof tag);
    key[0] = 1;
    aead_rekey(a, key);
    aead_begin(a, 7);
    aead_tag(a, other);
    assert_memory_equal(tag, other, sizeof tag);
    aead_close(a);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(known), cmocka_unit_test(a_new_key_is_another)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
