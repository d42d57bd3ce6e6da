/* The memory of a rank by its plan, against sums made by hand. */
#include "engine/settings/held.h"
#include "modes/share/share.h"
#include "tests/harness/harness.h"

/* Eight buckets of 1 to 8 MB: 36 MB in all. The three largest neighbours have 21. */
static const double bytes[] = {1e6, 2e6, 3e6, 4e6, 5e6, 6e6, 7e6, 8e6};

static struct held held_of(const struct share_row *row, int passes) {
    const struct held_ask ask = {.plan = &row->plan,
                                 .devices = 4,
                                 .owners = 4,
                                 .sums = held_sums(passes),
                                 .slots = 2,
                                 .arena = 36e6,
                                 .bytes = bytes,
                                 .buckets = 8};
    return held_find(&ask);
}

static void assert_held(struct held h, double weights, double gathered, double gradients, double leaving,
                        double state) {
    const double want[] = {weights, gathered, gradients, leaving, state};
    for (int i = 0; i < HELD_ACTIVATIONS; i++) assert_true(h.of[i] == want[i]);
    assert_true(held_all(&h) == weights + gathered + gradients + leaving + state);
}

static void ranks_hold_what_plans_say(void **state) {
    (void)state;
    assert_held(held_of(&share_all_reduce, 1), 36e6, 0, 36e6, 0, 72e6);
    assert_held(held_of(&share_slices, 1), 36e6, 0, 36e6, 0, 18e6);
    assert_held(held_of(&share_full, 1), 9e6, 21e6 * 3 / 4, 9e6 + 8e6, 24e6, 18e6);
    assert_held(held_of(&share_full_passing, 1), 9e6, 27e6, 17e6, 24e6, 18e6);
    assert_held(held_of(&share_full_keeping, 1), 36e6, 0, 17e6, 24e6, 18e6);
}

/* Four passes: sums of four, two and one of them are kept at once. */
static void passes_have_sums_of_their_own(void **state) {
    (void)state;
    assert_held(held_of(&share_all_reduce, 4), 36e6, 0, 3 * 36e6, 0, 72e6);
    assert_held(held_of(&share_full, 4), 9e6, 21e6 * 3 / 4, 3 * 36e6, 24e6, 18e6);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(ranks_hold_what_plans_say),
                                       cmocka_unit_test(passes_have_sums_of_their_own)};
    return cmocka_run_group_tests_name("held", tests, NULL, NULL);
}
