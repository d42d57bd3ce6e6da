/* Seals: mixing is what its description says, whatever the instructions and the pieces; a seal holds
 * for one text, one number and one direction. */
#include "tests/harness/harness.h"

#include "engine/base/memory.h"
#include "transport/link/seal.h"

#include <string.h>

enum { MANY = 5 * MIX_BLOCK + 77 };
static const uint64_t prime = ((uint64_t)1 << 61) - 1;
static struct sealer out, in;
static uint8_t data[MANY];

static int set_up(void **state) {
    uint8_t session[SHA256_BYTES];
    (void)state;
    for (size_t i = 0; i < sizeof session; i++) session[i] = (uint8_t)(i * 7);
    for (size_t i = 0; i < MANY; i++) data[i] = (uint8_t)(i * i >> 3);
    sealer_init(&out, session, 'D');
    sealer_init(&in, session, 'D');
    return 0;
}

/* One product and one sum at a time, fully reduced. */
static uint64_t multiply(uint64_t a, uint64_t b) {
    uint64_t sum = 0;
    for (; b; b >>= 1, a = a * 2 % prime)
        if (b & 1) sum = (sum + a) % prime;
    return sum;
}

static uint64_t expected(int way, size_t n) {
    uint64_t value = 0;
    for (size_t block = 0; block < n; block += MIX_BLOCK) {
        uint64_t sum = 0;
        size_t end = (n - block < MIX_BLOCK ? n - block + 31 : MIX_BLOCK) / 32 * 32;
        for (size_t i = 0; i < end / 4; i += 2) {
            uint8_t bytes[8] = {0};
            uint32_t pair[2];
            for (size_t k = 0; k < 8 && block + 4 * i + k < n; k++) bytes[k] = data[block + 4 * i + k];
            memcpy(pair, bytes, 8);
            sum += (uint64_t)(uint32_t)(pair[0] + out.word[way][i]) * (uint32_t)(pair[1] + out.word[way][i + 1]);
        }
        value = (multiply(value, out.at[way] % prime) + (uint32_t)sum) % prime;
        value = (multiply(value, out.at[way] % prime) + (sum >> 32)) % prime;
    }
    return value;
}

static void mixing_is_as_described(void **state) {
    (void)state;
    for (size_t n = 1; n <= MANY; n += n < 70 ? 1 : 97) {
        struct mixture whole = {0}, pieces = {0};
        seal_mix(&out, &whole, data, n);
        for (size_t at = 0; at < n; at += 2 * MIX_BLOCK)
            seal_mix(&in, &pieces, data + at, n - at < 2 * MIX_BLOCK ? n - at : 2 * MIX_BLOCK);
        assert_memory_equal(&whole, &pieces, sizeof whole);
        assert_int_equal(whole.bytes, n);
        for (int way = 0; way < MIX_WAYS; way++) assert_int_equal(whole.value[way] % prime, expected(way, n));
    }
}

static void every_bit_counts(void **state) {
    struct mixture right = {0};
    (void)state;
    seal_mix(&out, &right, data, MANY);
    for (size_t bit = 0; bit < 8 * MANY; bit += bit < 8 * MIX_BLOCK ? 1 : 61) {
        struct mixture wrong = {0};
        data[bit / 8] ^= (uint8_t)(1 << bit % 8);
        seal_mix(&out, &wrong, data, MANY);
        data[bit / 8] ^= (uint8_t)(1 << bit % 8);
        for (int way = 0; way < MIX_WAYS; way++) assert_true(right.value[way] % prime != wrong.value[way] % prime);
    }
}

static void a_seal_holds_once(void **state) {
    uint8_t seal[3][SEAL_BYTES], session[SHA256_BYTES] = {0};
    (void)state;
    for (int i = 0; i < 3; i++) seal_make(&out, "text", 4, seal[i]);
    assert_memory_not_equal(seal[0], seal[1], SEAL_BYTES);
    assert_true(seal_holds(&in, "text", 4, seal[0]));
    assert_false(seal_holds(&in, "text", 4, seal[0])); /* said again */
    assert_true(seal_holds(&in, "text", 4, seal[2]));
    in.number = 0;
    assert_false(seal_holds(&in, "texT", 4, seal[0]));
    in.number = 0;
    assert_false(seal_holds(&in, "text", 4, seal[1])); /* one was left out */
    in.number = 0;
    seal[0][SEAL_BYTES - 1] ^= 1;
    assert_false(seal_holds(&in, "text", 4, seal[0]));
    sealer_init(&out, session, 'D');
    sealer_init(&in, session, 'L');
    seal_make(&out, "text", 4, seal[0]);
    assert_false(seal_holds(&in, "text", 4, seal[0])); /* sent back */
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup(mixing_is_as_described, set_up),
                                       cmocka_unit_test_setup(every_bit_counts, set_up),
                                       cmocka_unit_test_setup(a_seal_holds_once, set_up)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
