/* Which of several choices the first steps of a run take, by times that a formula gives. */
#include "tests/harness/harness.h"

#include "engine/train/run.h"

#include <math.h>
#include <string.h>

enum { ROUNDS = 5, CHOICES = 7 };

/* Gradients in n messages, the first of which can leave after 1/n of the backward pass: each takes its latency and its share
 * of the bytes, one after another. */
static double step_ms(int n, double backward, double bytes, double latency) {
    double port = 0;
    for (int b = 0; b < n; b++) port = fmax(port, backward * (b + 1) / n) + latency + bytes / n;
    return port;
}

/* The choices are 1, 2, 4, ... messages, and the first of them, the default, once more at its place. */
static void fill(double ms[ROUNDS][CHOICES], int first, double backward, double bytes, double latency) {
    for (int k = 0; k < ROUNDS; k++)
        for (int i = 0; i < CHOICES; i++) ms[k][i] = step_ms(i ? 1 << (i - 1) : first, backward, bytes, latency);
}

static void the_least_of_a_formula_is_taken(void **state) {
    (void)state;
    double ms[ROUNDS][CHOICES];
    fill(ms, 16, 1, 10, 20); /* latency is all: one message, where there were 16 */
    assert_int_equal(tuning_choose(ms[0], ROUNDS, CHOICES), 1);
    fill(ms, 1, 40, 40, 1); /* backward takes as long as the bytes: n messages take 40 + n + 40 / n, least at 6.3 */
    int taken = tuning_choose(ms[0], ROUNDS, CHOICES);
    assert_true(taken == 4); /* eight: 53; four: 54 */
    for (int i = 0; i < CHOICES; i++) assert_true(ms[0][taken] <= ms[0][i]);
    fill(ms, 1, 0, 10, 0); /* all take the same */
    assert_int_equal(tuning_choose(ms[0], ROUNDS, CHOICES), 0);
}

static void set(double ms[ROUNDS][CHOICES], int choice, const double *of_rounds) {
    for (int k = 0; k < ROUNDS; k++) ms[k][choice] = of_rounds[k];
}

static void only_what_is_clearly_faster_is_taken(void **state) {
    (void)state;
    double ms[ROUNDS][CHOICES];
    fill(ms, 1, 0, 100, 0);
    set(ms, 3, (double[]){97.5, 97.5, 97.5, 97.5, 97.5});
    assert_int_equal(tuning_choose(ms[0], ROUNDS, CHOICES), 0);
    set(ms, 3, (double[]){96.5, 96.5, 96.5, 96.5, 96.5});
    assert_int_equal(tuning_choose(ms[0], ROUNDS, CHOICES), 3);
    set(ms, 3, (double[]){90, 101, 90, 90, 90}); /* four rounds of five */
    assert_int_equal(tuning_choose(ms[0], ROUNDS, CHOICES), 3);
    set(ms, 3, (double[]){90, 101, 90, 101, 90}); /* three */
    assert_int_equal(tuning_choose(ms[0], ROUNDS, CHOICES), 0);
}

/* A slow second falls on all choices of a round, or on one step of one choice. */
static void a_slow_second_decides_nothing(void **state) {
    (void)state;
    double ms[ROUNDS][CHOICES];
    for (int round = 0; round < ROUNDS; round++)
        for (int choice = -1; choice < CHOICES; choice++) {
            fill(ms, 1, 40, 40, 1);
            for (int i = 0; i < CHOICES; i++)
                if (choice < 0 || choice == i) ms[round][i] += 1000;
            assert_int_equal(tuning_choose(ms[0], ROUNDS, CHOICES), 4);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_least_of_a_formula_is_taken),
        cmocka_unit_test(only_what_is_clearly_faster_is_taken),
        cmocka_unit_test(a_slow_second_decides_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
