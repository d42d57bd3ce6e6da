/* Functions of real numbers: against values computed with 400 digits, against the system's library over wide ranges, at
 * the ends, where denormals are flushed, and against the one digest that every processor gives. */
#include "tests/harness/harness.h"

#include "engine/base/digest.h"
#include "engine/base/real.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

typedef double function(double x);
struct known {
    double x, y; /* f(x), rounded to nearest */
};
static const struct known known_exp[] = {{0x1p+0, 0x1.5bf0a8b145769p+1},
                                         {-0x1p+0, 0x1.78b56362cef38p-2},
                                         {0x1p-1, 0x1.a61298e1e069cp+0},
                                         {0x1.12e0be826d695p-30, 0x1.000000044b83p+0},
                                         {-0x1.ap+1, 0x1.3da368521902dp-5},
                                         {0x1.4p+3, 0x1.5829dcf95056p+14},
                                         {0x1.62ccccccccccdp+6, 0x1.f4705bbffae5cp+127},
                                         {-0x1.5d33333333333p+6, 0x1.09874c0b9cacbp-126},
                                         {0x1.5e0cccccccccdp+9, 0x1.058614179b2a5p+1010},
                                         {0x1.62e42fefa39efp+9, 0x1.fffffffffff2ap+1023},
                                         {-0x1.624p+9, 0x0.e6cf6d08897acp-1022},
                                         {-0x1.722p+9, 0x0.0000000000042p-1022},
                                         {0x1.56e1fc2f8f359p-997, 0x1p+0}};
static const struct known known_log[] = {{0x1p+1, 0x1.62e42fefa39efp-1},
                                         {0x1p-1, -0x1.62e42fefa39efp-1},
                                         {0x1.8p+0, 0x1.9f323ecbf984cp-2},
                                         {0x1.ffffffaa19c47p-1, -0x1.5798ee5cd2b2ap-27},
                                         {0x1.000001ad7f29bp+0, 0x1.ad7f2847b6492p-24},
                                         {0x1.4p+3, 0x1.26bb1bbb55516p+1},
                                         {0x1.4f8b588e368f1p-17, -0x1.7069e2aa2aa5bp+3},
                                         {0x0.03739a252b281p-1022, -0x1.6459f44103e87p+9},
                                         {0x0.0000000000001p-1022, -0x1.74385446d71c3p+9},
                                         {0x1.fffffffffffffp+1023, 0x1.62e42fefa39efp+9},
                                         {0x1.6a09e667f3bccp-1, -0x1.62e42fefa39f1p-2},
                                         {0x1.6a09e667f3bcdp-1, -0x1.62e42fefa39eep-2},
                                         {0x1.6a09e667f3bcdp+0, 0x1.62e42fefa39fp-2}};
static const struct known known_sin[] = {{0x1p-1, 0x1.eaee8744b05fp-2},
                                         {0x1p+0, 0x1.aed548f090ceep-1},
                                         {0x1.921fb54442d18p+0, 0x1p+0},
                                         {0x1.921fb54442d18p+1, 0x1.1a62633145c07p-53},
                                         {0x1.921fb54442d18p+2, -0x1.1a62633145c07p-52},
                                         {-0x1p+1, -0x1.d18f6ead1b446p-1},
                                         {0x1.5798ee2308c3ap-27, 0x1.5798ee2308c3ap-27},
                                         {0x1.9p+6, -0x1.03425b78c4db8p-1},
                                         {0x1.e848p+19, -0x1.6664b2568d867p-2},
                                         {0x1.c6bf52634p+49, 0x1.b76f88136cebap-1},
                                         {0x1.0f0cf064dd592p+73, -0x1.b453ab76bf397p-1},
                                         {0x1.e42d130773b76p+1023, -0x1.30c567d277075p-1},
                                         {0x1.6ac5b262ca1ffp+849, 0x1p+0},
                                         {0x1.921fb54442d18p-1, 0x1.6a09e667f3bccp-1}};
static const struct known known_cos[] = {{0x1p-1, 0x1.c1528065b7d5p-1},
                                         {0x1p+0, 0x1.14a280fb5068cp-1},
                                         {0x1.921fb54442d18p+0, 0x1.1a62633145c07p-54},
                                         {0x1.921fb54442d18p+1, -0x1p+0},
                                         {0x1.921fb54442d18p+2, 0x1p+0},
                                         {-0x1p+1, -0x1.aa22657537205p-2},
                                         {0x1.5798ee2308c3ap-27, 0x1p+0},
                                         {0x1.9p+6, 0x1.b981dbf665fdfp-1},
                                         {0x1.e848p+19, 0x1.df9df9906d32cp-1},
                                         {0x1.c6bf52634p+49, -0x1.06c154609d33fp-1},
                                         {0x1.0f0cf064dd592p+73, 0x1.0be2cef01c8f4p-1},
                                         {0x1.e42d130773b76p+1023, 0x1.9b6913f41bde3p-1},
                                         {0x1.6ac5b262ca1ffp+849, -0x1.14ae72e6ba22fp-61},
                                         {0x1.921fb54442d18p-1, 0x1.6a09e667f3bcdp-1}};
static const struct known known_tanh[] = {{0x1.12e0be826d695p-30, 0x1.12e0be826d695p-30},
                                          {0x1.999999999999ap-4, 0x1.983d7795f413ap-4},
                                          {0x1.999999999999ap-2, 0x1.8511573c242d6p-2},
                                          {0x1p-1, 0x1.d9353d7568af3p-2},
                                          {0x1.3333333333333p-1, 0x1.12f8292d2ccfcp-1},
                                          {-0x1p+0, -0x1.85efab514f394p-1},
                                          {0x1.8p+1, 0x1.fd77d111a0bp-1},
                                          {0x1.3p+4, 0x1.fffffffffffffp-1}};
static const struct known known_erf[] = {{0x1.12e0be826d695p-30, 0x1.362a9ffc610ddp-30},
                                         {0x1.999999999999ap-4, 0x1.cca5ea24fb334p-4},
                                         {0x1p-1, 0x1.0a7ef5c18edd2p-1},
                                         {-0x1p+0, -0x1.af767a741088bp-1},
                                         {0x1.e666666666666p+0, 0x1.fc4f06f2b1c89p-1},
                                         {0x1p+1, 0x1.fd9ae142795e3p-1},
                                         {0x1.0cccccccccccdp+1, 0x1.fe7979b04d95p-1},
                                         {-0x1.8p+1, -0x1.fffd1ac4135f9p-1},
                                         {0x1.4p+2, 0x1.fffffffffc9e8p-1}};
static const struct {
    double x, y, z;
} known_pow[] = {{0x1p+1, 0x1p-1, 0x1.6a09e667f3bcdp+0},
                 {0x1.ccccccccccccdp-1, 0x1.8p+1, 0x1.753f7ced91688p-1},
                 {0x1.ff7ced916872bp-1, 0x1.f4p+9, 0x1.788526411ed72p-2},
                 {0x1.fff2e48e8a71ep-1, 0x1.86ap+16, 0x1.7ca6de2fe7407p-15},
                 {0x1.0000000000001p+0, 0x1.bc16d674ec8p+59, 0x1.44a12826f5073p+320},
                 {0x1.fffffffffffffp-1, 0x1.bc16d674ec8p+59, 0x1.c6ab6c6b3f2f9p-161},
                 {0x1.8p+1, 0x1.08p+5, 0x1.3bfefa65abb83p+52},
                 {0x1.4p+3, -0x1.4p+2, 0x1.4f8b588e368f1p-17},
                 {0x1.56e1fc2f8f359p-997, 0x1.051eb851eb852p+0, 0x1.6789e3750f743p-1017},
                 {-0x1p+1, 0x1.8p+1, -0x1p+3},
                 {-0x1.8p+0, -0x1p+3, 0x1.3fa39ab547995p-5},
                 {0x1.ep+2, 0x1.5e4p+8, 0x1.19c7f71c92cccp+1018},
                 {0x0.0000000000001p-1022, 0x1p-1, 0x1p-537},
                 {0x1p+1, -0x1.0c8p+10, 0x0.0000000000001p-1022},
                 {0x1p+1, 0x1.ffcp+9, 0x1.6a09e667f3bcdp+1023}};

#define ROWS(name) known_##name, sizeof known_##name / sizeof *known_##name
static const struct {
    const char *name;
    function *own, *library;
    const struct known *known;
    size_t rows;
    int64_t ulps;
    double low, high;
} functions[] = {
    {"exp", real_exp, exp, ROWS(exp), 1, -750, 712},   {"log", real_log, log, ROWS(log), 1, 0, 3},
    {"sin", real_sin, sin, ROWS(sin), 1, -10, 10},     {"cos", real_cos, cos, ROWS(cos), 1, -10, 10},
    {"tanh", real_tanh, tanh, ROWS(tanh), 8, -25, 25}, {"erf", real_erf, erf, ROWS(erf), 8, -6.5, 6.5},
};
enum { FUNCTIONS = sizeof functions / sizeof *functions, DRAWS = 200000 };

static int64_t place_of(double x) { /* doubles in order */
    int64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits < 0 ? INT64_MIN - bits : bits;
}

static void assert_near(const char *name, double x, double own, double right, int64_t ulps) {
    int64_t off = isnan(own) || isnan(right) ? (isnan(own) == isnan(right) ? 0 : INT64_MAX)
                                             : llabs(place_of(own) - place_of(right));
    if (off > ulps || (!isnan(own) && signbit(own) != signbit(right)))
        fail_msg("%s(%a) is %a, not %a", name, x, own, right);
}

static uint64_t draw(void) {
    static uint64_t state = 88172645463325252u;
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state;
}

static double draw_any(void) {
    uint64_t bits = draw();
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static double draw_between(double low, double high) {
    return low + (high - low) * (double)(draw() >> 11) * 0x1p-53;
}

static void test_known_values(void **state) {
    (void)state;
    for (int f = 0; f < FUNCTIONS; f++)
        for (size_t i = 0; i < functions[f].rows; i++) {
            struct known k = functions[f].known[i];
            assert_near(functions[f].name, k.x, functions[f].own(k.x), k.y, functions[f].ulps);
        }
    for (size_t i = 0; i < sizeof known_pow / sizeof *known_pow; i++)
        assert_near("pow", known_pow[i].x, real_pow(known_pow[i].x, known_pow[i].y), known_pow[i].z, 1);
}

/* The library is within one unit too. */
static void test_against_the_library(void **state) {
    (void)state;
    for (int f = 0; f < FUNCTIONS; f++)
        for (int i = 0; i < DRAWS; i++) {
            double x = i % 2 ? draw_any() : draw_between(functions[f].low, functions[f].high);
            assert_near(functions[f].name, x, functions[f].own(x), functions[f].library(x), functions[f].ulps);
        }
    for (int i = 0; i < DRAWS; i++) {
        double x = i % 2 ? draw_any() : draw_between(-2, 2), y = i % 3 ? draw_between(-300, 300) : draw_any();
        if (i % 5 == 0) y = floor(y);
        assert_near("pow", x, real_pow(x, y), pow(x, y), 1);
    }
}

static void test_ends(void **state) {
    (void)state;
    static const double ends[] = {0,
                                  -0.0,
                                  1,
                                  -1,
                                  2,
                                  -2,
                                  3,
                                  -3,
                                  0.5,
                                  -0.5,
                                  INFINITY,
                                  -INFINITY,
                                  NAN,
                                  5e-324,
                                  -5e-324,
                                  1e308,
                                  -1e308,
                                  1e-310,
                                  0x1p53,
                                  -0x1p53,
                                  0x1p63,
                                  0x1p64,
                                  0x1.fffffffffffffp52,
                                  0x1.fffffffffffffp-1,
                                  0x1.0000000000001p0,
                                  -0x1.fffffffffffffp52};
    enum { ENDS = sizeof ends / sizeof *ends };
    for (int i = 0; i < ENDS; i++) {
        for (int f = 0; f < FUNCTIONS; f++)
            assert_near(functions[f].name, ends[i], functions[f].own(ends[i]), functions[f].library(ends[i]),
                        functions[f].ulps);
        for (int j = 0; j < ENDS; j++)
            assert_near("pow", ends[i], real_pow(ends[i], ends[j]), pow(ends[i], ends[j]), 1);
    }
}

static void test_powers_that_are_doubles_are_exact(void **state) {
    (void)state;
    for (int64_t base = 2; base < 200; base++) {
        int64_t power = 1;
        for (int n = 0; power < INT64_C(1) << 53; n++, power *= base) {
            assert_true(real_pow((double)base, n) == (double)power);
            if (n) assert_true(real_pow((double)power, 1.0 / n) == base || n & (n - 1)); /* 1 / n is a double */
        }
    }
}

/* f(x) of draws, as one digest. */
static void digest_of_all(char hex[SHA256_TEXT]) {
    struct sha256 s;
    sha256_init(&s);
    for (int i = 0; i < DRAWS; i++) {
        uint64_t n = (uint64_t)i * 0x9e3779b97f4a7c15u, bits = n % (UINT64_C(2046) << 52) + (UINT64_C(1) << 52);
        double far, x = (double)(int64_t)n * 0x1p-60, y[8]; /* |x| up to 8 */
        memcpy(&far, &bits, sizeof far);
        y[0] = real_exp(x), y[1] = real_log(far), y[2] = real_sin(far), y[3] = real_cos(x);
        y[4] = real_pow(x < 0 ? -x : x, x), y[5] = real_tanh(x), y[6] = real_erf(x), y[7] = real_exp(-x / 16 - 708.7);
        sha256_update(&s, y, sizeof y);
    }
    sha256_hex(s, hex);
}

/* The same at every level, on every processor: what it is compiled to makes no difference. */
static void test_bits_are_known(void **state) {
    (void)state;
    char hex[SHA256_TEXT];
    digest_of_all(hex);
    assert_string_equal(hex, "1d08d7bcae86294532e4c77e85dbf735a6d3d3c4b43e2f1cd4fe3f2a2812c29a");
}

/* Threads of devices flush denormals. */
static void test_denormals_may_be_flushed(void **state) {
    (void)state;
#if defined(__SSE__)
    enum { FLUSHED = 0x8040 };
    double x = 0x1p-1050, log_x = real_log(x), small = real_exp(-720.5), own_log, own_small;
    unsigned before = _mm_getcsr();
    _mm_setcsr(before | FLUSHED);
    own_log = real_log(x), own_small = real_exp(-720.5);
    _mm_setcsr(before);
    assert_memory_equal(&own_log, &log_x, sizeof log_x);
    assert_memory_equal(&own_small, &small, sizeof small);
    assert_true(small > 0 && log_x < -700);
#else
    skip();
#endif
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_values),   cmocka_unit_test(test_against_the_library),
        cmocka_unit_test(test_ends),           cmocka_unit_test(test_powers_that_are_doubles_are_exact),
        cmocka_unit_test(test_bits_are_known), cmocka_unit_test(test_denormals_may_be_flushed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
