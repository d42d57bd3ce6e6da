/* Several ranks that do not come are all named, in one message that all ranks report. */
#include "tests/harness/harness.h"

#include "tests/conformance/ranks.h"
#include "transport/link/words.h"

#include <time.h>

static void two_of_five_are_late(struct rank *r) {
    if (r->index == 1 || r->index == 3) nanosleep(&(struct timespec){.tv_nsec = 700000000}, NULL);
    rank_result(r, group_barrier(r->group));
}

static void all_are_named(void **state) {
    static const char *const links[] = {"thread", "shm"};
    struct rank r[5];
    (void)state;
    for (int l = 0; l < 2; l++) {
        run_ranks((struct ranks){.world = 5, .link = links[l], .fn = two_of_five_are_late, .timeout = 0.3}, r);
        for (int i = 0; i < 5; i++) {
            assert_int_equal(r[i].err, ERR_TIMEOUT);
            assert_string_equal(r[i].message, "ranks 1, 3 have not entered barrier 2 (0 B) within 0.3 s");
        }
    }
}

static void long_lists_are_cut(void **state) {
    char out[NAME_MAX_BYTES];
    enum { RANKS = 64 };
    int ranks[RANKS];
    (void)state;
    for (int i = 0; i < RANKS; i++) ranks[i] = i;
    words_several(out, ranks, 3);
    assert_string_equal(out, "ranks 0, 1, 2");
    words_several(out, ranks, RANKS);
    assert_string_equal(out, "ranks 0 to 63");
    for (int i = 0; i < RANKS; i++) ranks[i] = 3 * i + i % 2;
    words_several(out, ranks, RANKS);
    assert_true(strlen(out) < sizeof out - 1);
    assert_string_equal(out + strlen(out) - 5, ", ...");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_are_named), cmocka_unit_test(long_lists_are_cut)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
