/* What comm.emulate describes: which entry counts, what is drawn, and the slowest link, each against a computation of its
 * own. */
#include "tests/harness/harness.h"

#include "engine/base/emulation.h"

#include <math.h>

#define AS_USUAL                                                                                                       \
    { -1, -1, -1, -1, -1 }
enum { DRAWS = 20000 };
static const struct rank_range one = {1, 1}, two = {2, 2}, first = {0, 1}, rest = {2, 3}, all = {0, 3}, five = {3, 5};
#define SET(range) ((struct rank_set){1, &(range)})

static struct emulated_links says(struct rank_set ranks, struct rank_set to, enum emulated_key key, double value) {
    struct emulated_links l = {ranks, to, false, AS_USUAL};
    l.value[key] = value;
    return l;
}

static struct emulation described(const struct emulated_links *links, int count) {
    return (struct emulation){.bandwidth = 1e9, .latency = 1e-3, .count = count, .links = links};
}

/* ---- which entry counts ---- */

static void the_last_entry_counts(void **state) {
    const struct rank_set none = {0};
    const struct emulated_links links[] = {
        says(SET(first), SET(rest), EMULATED_LATENCY, 0.1), says(SET(one), none, EMULATED_LATENCY, 0.5),
        says(SET(one), SET(two), EMULATED_LATENCY, 0.7), says(SET(one), none, EMULATED_UP, 1e6),
        says(SET(first), SET(first), EMULATED_BANDWIDTH, 5e6)};
    const struct emulation e = described(links, 5);
    (void)state;
    assert_true(emulation_line(&e, 0, 2).latency == 0.1 && emulation_line(&e, 3, 0).latency == 0.1);
    assert_true(emulation_line(&e, 0, 1).latency == 0.5 && emulation_line(&e, 3, 1).latency == 0.5);
    assert_true(emulation_line(&e, 1, 2).latency == 0.7 && emulation_line(&e, 2, 1).latency == 0.7);
    assert_true(emulation_line(&e, 2, 3).latency == 1e-3);
    assert_true(emulation_line(&e, 1, 0).bandwidth == 5e6 && emulation_line(&e, 1, 2).bandwidth == 0);
    assert_true(emulation_port(&e, 1, true) == 1e6 && emulation_port(&e, 1, false) == 1e9);
    assert_true(emulation_port(&e, 0, true) == 1e9);
}

static void one_way_is_not_back(void **state) {
    struct emulated_links link = says(SET(one), SET(two), EMULATED_LATENCY, 0.3);
    const struct emulation e = described(&link, 1);
    (void)state;
    link.one_way = true;
    assert_true(emulation_line(&e, 1, 2).latency == 0.3 && emulation_line(&e, 2, 1).latency == 1e-3);
}

/* The ranks of a subgroup bear other numbers. */
static void ranks_may_bear_other_numbers(void **state) {
    static const int number[] = {1, 2};
    const struct emulated_links link = says(SET(one), SET(two), EMULATED_LATENCY, 0.3);
    struct emulation e = described(&link, 1);
    (void)state;
    e.number = number;
    assert_true(emulation_line(&e, 0, 1).latency == 0.3);
}

static void what_makes_no_sense_is_found(void **state) {
    const struct rank_set none = {0};
    const struct emulated_links good[] = {says(SET(all), SET(all), EMULATED_LATENCY, 0.1),
                                          says(SET(one), SET(two), EMULATED_LATENCY, 0.2)};
    const struct emulated_links undone[] = {good[1], good[0]}, twice[] = {good[1], good[1]};
    const struct emulated_links far[] = {good[0], says(SET(five), none, EMULATED_UP, 1e6)};
    const struct emulated_links self[] = {says(SET(one), SET(one), EMULATED_LOSS, 0.1)};
    const struct {
        const struct emulated_links *links;
        int count, wrong, other;
    } of[] = {{good, 2, -1, 0},
              {undone, 2, 0, 1},
              {twice, 2, 0, 1},
              {far, 2, 1, LINKS_OF_NOBODY},
              {self, 1, 0, LINKS_JOIN_NONE}};
    (void)state;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        const struct emulation e = described(of[i].links, of[i].count);
        int other = -2, wrong = emulation_find_wrong(&e, 4, &other);
        assert_int_equal(wrong, of[i].wrong);
        if (wrong >= 0) assert_int_equal(other, of[i].other);
    }
}

/* ---- what is drawn ---- */

static void jitter_is_exponential(void **state) {
    const struct emulation e = {.jitter = 5e-3, .seed = 7};
    double sum = 0;
    int above = 0;
    (void)state;
    for (uint64_t n = 0; n < DRAWS; n++) {
        double d = emulation_delay(&e, 0, 1, 100, 0, n);
        assert_true(d >= 0 && d == emulation_delay(&e, 0, 1, 100, 0, n));
        sum += d;
        above += d > 10e-3;
    }
    assert_true(fabs(sum / DRAWS / 5e-3 - 1) < 0.03);
    assert_true(fabs((double)above / DRAWS / exp(-2) - 1) < 0.06);
    const struct emulation other = {.jitter = 5e-3, .seed = 8};
    assert_true(emulation_delay(&e, 0, 1, 100, 0, 1) != emulation_delay(&other, 0, 1, 100, 0, 1));
    assert_true(emulation_delay(&e, 0, 1, 100, 0, 1) != emulation_delay(&e, 1, 0, 100, 0, 1));
    assert_true(emulation_delay(&e, 0, 1, 100, 0, 1) != emulation_delay(&e, 0, 1, 100, 1, 1));
}

/* 100 segments of which 2 % are lost: each costs a round trip of 30 ms, one of the last three 200 ms more. */
static void lost_segments_cost_round_trips(void **state) {
    const struct emulated_links back = {SET(two), SET(one), true, {-1, -1, 20e-3, -1, -1}};
    const struct emulation e = {.latency = 10e-3, .loss = 0.02, .seed = 3, .count = 1, .links = &back};
    double sum = 0;
    int whole = 0;
    (void)state;
    for (uint64_t n = 0; n < DRAWS; n++) {
        double d = emulation_delay(&e, 1, 2, 100 * 1448, 0, n), rest_of = fmod(d + 1e-9, 0.01);
        assert_true(rest_of < 1e-6);
        sum += d;
        whole += d == 0;
    }
    assert_true(fabs(sum / DRAWS / (100 * 0.02 * 30e-3 + 3 * 0.02 * 200e-3) - 1) < 0.04);
    assert_true(fabs((double)whole / DRAWS / pow(0.98, 100) - 1) < 0.06);
    assert_true(emulation_draws(&e) && !emulation_draws(&(struct emulation){.latency = 1}));
}

static void one_segment_is_the_last(void **state) {
    const struct emulation e = {.latency = 10e-3, .loss = 0.5, .seed = 3};
    int lost = 0;
    (void)state;
    for (uint64_t n = 0; n < 1000; n++) {
        double d = emulation_delay(&e, 0, 1, 8, 0, n);
        assert_true(d == 0 || fabs(d - 0.22) < 1e-12);
        lost += d > 0;
    }
    assert_true(lost > 440 && lost < 560);
}

/* ---- the slowest ---- */

static void the_slowest_is_found(void **state) {
    const struct rank_set none = {0};
    const struct emulated_links links[] = {says(SET(one), SET(two), EMULATED_BANDWIDTH, 2e6),
                                           says(SET(two), none, EMULATED_LATENCY, 0.25)};
    struct emulation e = described(links, 2);
    (void)state;
    struct emulated_worst w = emulation_worst(&e, 4);
    assert_true(w.latency == 0.25 && w.alpha == 0.25 && fabs(w.beta * 2e6 - 1) < 1e-12);
    w = emulation_worst(&(struct emulation){.bandwidth = 1e9, .up = 4e6, .latency = 1e-3, .jitter = 2e-3}, 100);
    assert_true(fabs(w.beta * 4e6 - 1) < 1e-12 && w.latency == 1e-3 && fabs(w.alpha - 3e-3) < 1e-12);
}

/* The mean of many messages is what the slowest link's formula says, where all are alike. */
static void the_mean_is_the_formulas(void **state) {
    const struct emulation e = {.latency = 40e-3, .jitter = 4e-3, .loss = 0.01, .seed = 11};
    const struct emulated_worst w = emulation_worst(&e, 2);
    const double bytes = 1e6;
    double sum = 0;
    (void)state;
    for (uint64_t n = 0; n < DRAWS; n++) sum += emulation_delay(&e, 0, 1, bytes, 0, n);
    assert_true(fabs((0.04 + sum / DRAWS) / (w.alpha + w.beta * bytes) - 1) < 0.02);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_last_entry_counts),        cmocka_unit_test(one_way_is_not_back),
        cmocka_unit_test(ranks_may_bear_other_numbers), cmocka_unit_test(what_makes_no_sense_is_found),
        cmocka_unit_test(jitter_is_exponential),        cmocka_unit_test(lost_segments_cost_round_trips),
        cmocka_unit_test(one_segment_is_the_last),      cmocka_unit_test(the_slowest_is_found),
        cmocka_unit_test(the_mean_is_the_formulas),
    };
    return cmocka_run_group_tests_name("described links", tests, NULL, NULL);
}
