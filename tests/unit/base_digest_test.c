/* Digests: published values, every way of computing against every other, any cut of the data. The
 * source is included so that the ways that this CPU would not choose are tested too. */
#include "tests/harness/harness.h"

#include "engine/base/digest.c"

static void fill(uint8_t *p, size_t n) {
    uint32_t x = 12345;
    for (size_t i = 0; i < n; i++) p[i] = (uint8_t)((x = x * 1664525u + 1013904223u) >> 24);
}

static void test_crc_known(void **state) {
    (void)state;
    uint8_t zeros[32] = {0}, ones[32];
    memset(ones, 0xFF, sizeof ones);
    assert_int_equal(crc32c(0, "123456789", 9), 0xE3069283);
    assert_int_equal(crc32c(0, "", 0), 0);
    assert_int_equal(crc32c(0, zeros, 32), 0x8A9136AA); /* RFC 3720, B.4 */
    assert_int_equal(crc32c(0, ones, 32), 0x62A8AB43);
}

static void test_crc_ways_agree(void **state) {
    (void)state;
    static uint8_t data[20000]; /* which the instruction takes in three lanes */
    crc32c_fn *fast = crc32c_fast();
    fill(data, sizeof data);
    assert_int_equal(crc32c_plain(~0u, (const uint8_t *)"123456789", 9), ~0xE3069283u);
    if (!fast) {
        print_message("this CPU has no crc32c instruction: that way is not run\n");
        skip();
    }
    for (size_t from = 0; from < 9; from++)
        for (size_t n = 0; n + from < sizeof data; n += n < 300 ? 1 : 97)
            assert_int_equal(fast(~7u, data + from, n), crc32c_plain(~7u, data + from, n));
}

static void test_crc_continues(void **state) {
    (void)state;
    uint8_t data[100];
    fill(data, sizeof data);
    for (size_t cut = 0; cut <= 100; cut++)
        assert_int_equal(crc32c(crc32c(0, data, cut), data + cut, 100 - cut), crc32c(0, data, 100));
}

static void assert_sha(const char *text, size_t repeat, const char *expected) {
    struct sha256 s;
    char hex[SHA256_TEXT];
    sha256_init(&s);
    while (repeat--) sha256_update(&s, text, strlen(text));
    sha256_hex(s, hex);
    assert_string_equal(hex, expected);
}

static void test_sha_known(void **state) {
    (void)state;
    assert_sha("", 1, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    assert_sha("abc", 1, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    assert_sha("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 1,
               "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    assert_sha("aaaaaaaaaa", 100000, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

static void test_sha_any_cut(void **state) {
    (void)state;
    uint8_t data[200];
    fill(data, sizeof data);
    for (size_t n = 0; n <= 200; n++) {
        struct sha256 whole, cut;
        uint8_t a[SHA256_BYTES], b[SHA256_BYTES];
        sha256_init(&whole);
        sha256_update(&whole, data, n);
        sha256_final(whole, a);
        sha256_init(&cut);
        for (size_t at = 0, step = 1; at < n; at += step, step = step % 71 + 7) {
            if (step > n - at) step = n - at;
            sha256_update(&cut, data + at, step);
        }
        sha256_final(cut, b);
        assert_memory_equal(a, b, sizeof a);
    }
}

static void test_sha_state_goes_on(void **state) {
    (void)state;
    struct sha256 s, copy;
    char before[SHA256_TEXT], after[SHA256_TEXT];
    sha256_init(&s);
    sha256_update(&s, "ab", 2);
    sha256_hex(s, before);
    memcpy(&copy, &s, sizeof s); /* as a checkpoint does */
    sha256_update(&copy, "c", 1);
    sha256_hex(copy, after);
    assert_string_not_equal(before, after);
    assert_string_equal(after, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

/* The state after the doubles 1, 1/2 ... 1/27, as checkpoints of version 0.1.0 hold it: 216 bytes, three blocks of which
 * are done, and the old bytes of the third after the 24 that wait. Its digest after ten times 0.5. */
static void test_sha_state_is_that_of_old_checkpoints(void **state) {
    (void)state;
    static const uint8_t held[] = {
        0x86, 0x36, 0xb7, 0x2b, 0x33, 0x87, 0x37, 0x09, 0x79, 0x69, 0x2f, 0xc7, 0x0d, 0x37, 0x13, 0x24, 0xc2, 0x99,
        0x74, 0x5a, 0x57, 0x99, 0x7b, 0xc4, 0xa3, 0xea, 0x72, 0xc9, 0x76, 0x88, 0xf3, 0x0b, 0x7b, 0x14, 0xae, 0x47,
        0xe1, 0x7a, 0xa4, 0x3f, 0x14, 0x3b, 0xb1, 0x13, 0x3b, 0xb1, 0xa3, 0x3f, 0x68, 0x2f, 0xa1, 0xbd, 0x84, 0xf6,
        0xa2, 0x3f, 0x9a, 0x99, 0x99, 0x99, 0x99, 0x99, 0xa9, 0x3f, 0x18, 0x86, 0x61, 0x18, 0x86, 0x61, 0xa8, 0x3f,
        0x46, 0x17, 0x5d, 0x74, 0xd1, 0x45, 0xa7, 0x3f, 0x64, 0x21, 0x0b, 0x59, 0xc8, 0x42, 0xa6, 0x3f, 0x55, 0x55,
        0x55, 0x55, 0x55, 0x55, 0xa5, 0x3f, 0xd8, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00};
    static const double half = 0.5;
    struct sha256 s, made;
    char hex[SHA256_TEXT];
    assert_int_equal(sizeof s, sizeof held);
    sha256_init(&made);
    for (int i = 1; i <= 27; i++) sha256_update(&made, &(double){1.0 / i}, sizeof half);
    assert_memory_equal(&made, held, sizeof held);
    memcpy(&s, held, sizeof s);
    for (int i = 0; i < 10; i++) sha256_update(&s, &half, sizeof half);
    sha256_hex(s, hex);
    assert_string_equal(hex, "fdc61d293e30ff8d707b818be8d7cbe3452afa40becb6c0b1910020cd039907b");
}

/* RFC 4231, test cases 2 and 6 (a key longer than a block). */
static void test_hmac_known(void **state) {
    (void)state;
    uint8_t out[SHA256_BYTES], key[131];
    const uint8_t second[] = {0x5b, 0xdc, 0xc1, 0x46, 0xbf, 0x60, 0x75, 0x4e, 0x6a, 0x04, 0x24,
                              0x26, 0x08, 0x95, 0x75, 0xc7, 0x5a, 0x00, 0x3f, 0x08, 0x9d, 0x27,
                              0x39, 0x83, 0x9d, 0xec, 0x58, 0xb9, 0x64, 0xec, 0x38, 0x43};
    const uint8_t sixth[] = {0x60, 0xe4, 0x31, 0x59, 0x1e, 0xe0, 0xb6, 0x7f, 0x0d, 0x8a, 0x26,
                             0xaa, 0xcb, 0xf5, 0xb7, 0x7f, 0x8e, 0x0b, 0xc6, 0x21, 0x37, 0x28,
                             0xc5, 0x14, 0x05, 0x46, 0x04, 0x0f, 0x0e, 0xe3, 0x7f, 0x54};
    const char *text = "Test Using Larger Than Block-Size Key - Hash Key First";
    hmac_sha256("Jefe", 4, "what do ya want for nothing?", 28, out);
    assert_memory_equal(out, second, SHA256_BYTES);
    memset(key, 0xaa, sizeof key);
    hmac_sha256(key, sizeof key, text, strlen(text), out);
    assert_memory_equal(out, sixth, SHA256_BYTES);
    out[31] ^= 1;
    assert_memory_not_equal(out, sixth, SHA256_BYTES);
}

/* RFC 7914, section 12, has no vector with these parameters: this is what Python's hashlib.scrypt gives. */
static void test_scrypt_known(void **state) {
    (void)state;
    uint8_t out[SHA256_BYTES];
    const uint8_t expected[] = {0xf7, 0x2c, 0xbc, 0x20, 0x4b, 0xdc, 0xfc, 0x3f, 0xf5, 0xb1, 0x15,
                                0xd8, 0x50, 0x8a, 0xec, 0x15, 0x66, 0xff, 0x0e, 0xf3, 0xf6, 0x58,
                                0x38, 0x86, 0x01, 0xa3, 0x93, 0x30, 0x78, 0xef, 0x7a, 0xc8};
    assert_ok(scrypt_key("pleaseletmein", "SodiumChloride", 14, out));
    assert_memory_equal(out, expected, SHA256_BYTES);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hmac_known),
        cmocka_unit_test(test_scrypt_known),
        cmocka_unit_test(test_crc_known),
        cmocka_unit_test(test_crc_ways_agree),
        cmocka_unit_test(test_crc_continues),
        cmocka_unit_test(test_sha_known),
        cmocka_unit_test(test_sha_any_cut),
        cmocka_unit_test(test_sha_state_goes_on),
        cmocka_unit_test(test_sha_state_is_that_of_old_checkpoints),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
