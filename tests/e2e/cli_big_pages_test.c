/* Hosts whose pages are larger than 4 KB: every way of sharing memory between ranks maps whole pages
 * there, and ends in the same weights. The library big_pages, preloaded, plays such a host. */
#include "tests/harness/training.h"

#include <stdio.h>
#include <stdlib.h>

enum { STEPS = 40 };
static struct program p;

static void assert_same_bits_with_pages_of(const char *bytes) {
    static const char *const ways[][4] = {
        {"mode=ddp", "devices=cpu:4"},
        {"mode=ddp", "devices=cpu:4", "optimizer={name: sgd, lr: 0.05, shard: true}"},
        {"mode=dp", "devices=cpu:4", "dp.server=shared"},
        {"mode=dp", "devices=cpu:4", "dp.server=sharded"},
    };
    static const char *const control[] = {"optimizer={name: sgd, lr: 0.05}", NULL};
    char want[80], dir[64];
    snprintf(want, sizeof want, "%s", training_hash(STEPS, control));
    assert_int_equal(setenv("LD_PRELOAD", ENGINE_BINARY_DIR "/libbig_pages.so", 1), 0);
    assert_int_equal(setenv("ENGINE_PAGE", bytes, 1), 0);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        const char *more[] = {control[0], "train=40st", ways[i][0], ways[i][1], ways[i][2], NULL};
        snprintf(dir, sizeof dir, "pages-%s-%zu", bytes, i);
        training_start(&p, dir, more);
        assert_true(program_wait(&p, 60));
        if (p.code) fail_msg("%s %s: exit code %d\n%s", ways[i][0], ways[i][2], p.code, p.err);
        assert_string_equal(program_string(&p, "weights_sha256"), want);
    }
    unsetenv("LD_PRELOAD");
}

static void pages_of_16_kilobytes(void **state) {
    (void)state;
    assert_same_bits_with_pages_of("16384");
}

static void pages_of_64_kilobytes(void **state) {
    (void)state;
    assert_same_bits_with_pages_of("65536");
}

/* Without it the tests below would pass on any machine. */
static void the_library_is_strict(void **state) {
    (void)state;
    const char *const words[] = {"getconf", "PAGESIZE", NULL};
    setenv("LD_PRELOAD", ENGINE_BINARY_DIR "/libbig_pages.so", 1);
    setenv("ENGINE_PAGE", "65536", 1);
    program_spawn(&p, words);
    assert_true(program_wait(&p, 10));
    unsetenv("LD_PRELOAD");
    assert_string_equal(p.out, "65536\n");
}

int main(void) {
#ifdef ENGINE_SANITIZED
    print_message("skipped: a sanitizer's own library has to be the first\n");
    return 0;
#endif
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_library_is_strict),
        cmocka_unit_test(pages_of_16_kilobytes),
        cmocka_unit_test(pages_of_64_kilobytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
