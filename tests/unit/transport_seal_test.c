/* Seals: one holds for one text, one number, one direction and one kind, whatever the pieces; keys follow each other. */
#include "tests/harness/harness.h"

#include "transport/link/seal.h"

#include <string.h>

enum { MANY = 5000 };
static struct sealer out, in;
static uint8_t session[SHA256_BYTES], data[MANY], sent[MANY];
static struct seal_ciphers ciphers;

static void open_both(enum seal_kind kind) {
    sealer_close(&out);
    sealer_close(&in);
    assert_ok(sealer_open(&out, kind, &ciphers, session, 'D', false));
    assert_ok(sealer_open(&in, kind, &ciphers, session, 'D', true));
}

static int set_up(void **state) {
    (void)state;
    ciphers = seal_ciphers();
    for (size_t i = 0; i < sizeof session; i++) session[i] = (uint8_t)(i * 7);
    for (size_t i = 0; i < MANY; i++) data[i] = (uint8_t)(i * i >> 3);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    sealer_close(&out);
    sealer_close(&in);
    return 0;
}

/* What is sent of n bytes, in pieces. */
static void pass_out(size_t n, size_t piece, uint8_t seal[SEAL_BYTES]) {
    size_t at = 0;
    memcpy(sent, data, n);
    seal_begin(&out);
    for (; n - at > piece; at += piece) seal_pass(&out, data + at, sent + at, piece);
    seal_end(&out, data + at, sent + at, n - at, seal);
}

static bool pass_in(size_t n, size_t piece, const uint8_t seal[SEAL_BYTES]) {
    size_t at = 0;
    seal_begin(&in);
    for (; n - at > piece; at += piece) seal_pass(&in, sent + at, sent + at, piece);
    return seal_ends(&in, sent + at, sent + at, n - at, seal);
}

/* Of any cipher. */
static void pieces_do_not_matter(void **state) {
    static const struct {
        enum seal_kind kind;
        enum aead_cipher cipher;
    } all[] = {{SEAL_CHECKS, AEAD_GCM},
               {SEAL_SEALS, AEAD_GCM},
               {SEAL_SEALS, AEAD_CHACHA_POLY},
               {SEAL_ENCRYPTS, AEAD_GCM},
               {SEAL_ENCRYPTS, AEAD_OCB}};
    static const size_t pieces[] = {16, 48, 128, 1024, MANY};
    uint8_t seal[SEAL_BYTES];
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        enum seal_kind kind = all[i].kind;
        ciphers = (struct seal_ciphers){{all[i].cipher, all[i].cipher}};
        open_both(kind);
        for (size_t n = 1; n <= MANY; n += n < 70 ? 1 : 493) {
            pass_out(n, pieces[n % 5], seal);
            if (kind != SEAL_ENCRYPTS) assert_memory_equal(sent, data, n);
            if (kind == SEAL_ENCRYPTS && n > 15) assert_memory_not_equal(sent, data, n);
            assert_true(pass_in(n, pieces[n / 5 % 5], seal));
            assert_memory_equal(sent, data, n);
        }
    }
}

static void every_bit_counts(void **state) {
    uint8_t seal[SEAL_BYTES];
    (void)state;
    for (int kind = SEAL_CHECKS; kind <= SEAL_ENCRYPTS; kind++) {
        open_both((enum seal_kind)kind);
        for (size_t bit = 0; bit < 8 * 200; bit++) {
            pass_out(200, 200, seal);
            sent[bit / 8] ^= (uint8_t)(1 << bit % 8);
            assert_false(pass_in(200, 200, seal));
        }
    }
}

static bool holds(const uint8_t seal[SEAL_BYTES], const char *text, uint64_t number) {
    char copy[5];
    memcpy(copy, text, sizeof copy);
    in.seals = number;
    return seal_holds(&in, copy, 4, seal);
}

static void a_seal_holds_once(void **state) {
    (void)state;
    for (int kind = SEAL_CHECKS; kind <= SEAL_SEALS; kind++) { /* in which the text is sent as it is */
        uint8_t seal[3][SEAL_BYTES];
        open_both((enum seal_kind)kind);
        for (int i = 0; i < 3; i++) seal_make(&out, (char[]){"text"}, 4, seal[i]);
        assert_memory_not_equal(seal[0], seal[1], SEAL_BYTES);
        assert_true(holds(seal[0], "text", 0));
        assert_false(holds(seal[0], "text", 1)); /* said again */
        assert_true(holds(seal[2], "text", 2));
        assert_false(holds(seal[0], "texT", 0));
        assert_false(holds(seal[1], "text", 0)); /* one was left out */
        seal[0][SEAL_BYTES - 1] ^= 1;
        assert_false(holds(seal[0], "text", 0));
    }
}

/* Sent back, or of a rank to which messages are something else. */
static void both_ends_are_alike(void **state) {
    uint8_t seal[SEAL_BYTES];
    (void)state;
    open_both(SEAL_SEALS);
    sealer_close(&in);
    assert_ok(sealer_open(&in, SEAL_SEALS, &ciphers, session, 'L', true));
    seal_make(&out, (char[]){"text"}, 4, seal);
    assert_false(holds(seal, "text", 0));
    for (int other = SEAL_CHECKS; other <= SEAL_ENCRYPTS; other += 2) {
        open_both(SEAL_SEALS);
        sealer_close(&in);
        assert_ok(sealer_open(&in, (enum seal_kind)other, &ciphers, session, 'D', true));
        seal_make(&out, (char[]){"text"}, 4, seal);
        assert_false(holds(seal, "text", 0));
    }
}

/* A key's last seal is followed by the next key's first, at both ends, and the numbers begin again. */
static void keys_follow_each_other(void **state) {
    uint8_t first[SEAL_BYTES], seal[SEAL_BYTES];
    (void)state;
    open_both(SEAL_SEALS);
    seal_make(&out, (char[]){"text"}, 4, first);
    for (int full = 0; full < 2; full++) { /* of seals, of bytes */
        uint8_t before[SHA256_BYTES];
        memcpy(before, out.secret, sizeof before);
        out.seals = in.seals = full ? 5 : KEY_SEALS;
        out.bytes = in.bytes = full ? KEY_BYTES : 4;
        seal_make(&out, (char[]){"text"}, 4, seal);
        assert_int_equal(out.seals, 1);
        assert_int_equal(out.bytes, 4);
        assert_memory_not_equal(out.secret, before, sizeof before);
        assert_memory_not_equal(seal, first, SEAL_BYTES);
        assert_true(seal_holds(&in, (char[]){"text"}, 4, seal));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(pieces_do_not_matter, set_up, tear_down),
        cmocka_unit_test_setup_teardown(every_bit_counts, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_seal_holds_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(both_ends_are_alike, set_up, tear_down),
        cmocka_unit_test_setup_teardown(keys_follow_each_other, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
