/* engine check of schedules: the least that is possible against all that is possible, tried one after another; costs of
 * schedules against formulas; and each mistake is named. */
#include "lab/check/schedule.c"

#include "tests/harness/harness.h"

static struct check check_of(int64_t seed) {
    return (struct check){.name = "mine", .timeout = 2, .seed = seed};
}

static struct check run(struct engine_schedule of, int64_t seed) {
    const struct engine_plugin exports = {.version = ENGINE_PLUGIN_VERSION, .schedule = &of};
    const struct plugin p = {.path = "./mine.so", .of = &exports};
    struct check c = check_of(seed);
    check_schedule(&c, &p);
    return c;
}

static void assert_near(double a, double b) {
    if (!(fabs(a - b) <= 1e-9 * fabs(b))) fail_msg("%.12g is not %.12g", a, b);
}

/* ---- buckets ---- */

/* Of all 2^(n-1) cuts, each replayed message by message. */
static void no_cut_exposes_less(void **state) {
    (void)state;
    int tried = 0;
    for (int64_t seed = 1; seed <= 3; seed++) {
        const struct check c = check_of(seed);
        const struct drawing d = {.check = &c};
        for (int i = 0; i < INSTANCES; i++) {
            struct backward b;
            double least = INFINITY;
            backward_draw(&d, i, &b);
            int n = b.of.layers;
            for (int cut = 1 << (n - 1); cut < 1 << n && n <= 12; cut++) {
                double free = 0, bytes = 0;
                for (int k = 0; k < n; k++) {
                    bytes += b.bytes[k];
                    if (!(cut >> k & 1)) continue;
                    free = (free > b.ready[k] ? free : b.ready[k]) + b.of.alpha + bytes * b.of.beta;
                    bytes = 0;
                }
                least = fmin(least, free - b.ready[n - 1]);
            }
            if (n <= 12) assert_near(backward_least(&b.of), least), tried++;
        }
    }
    assert_true(tried > 200);
}

static void all_in_one(const struct engine_backward *b, uint8_t *ends) {
    ends[b->layers - 1] = 1;
}

static void a_cut_has_its_cost(void **state) {
    const struct check c = check_of(7), got = run((struct engine_schedule){.buckets = all_in_one}, 7);
    const struct drawing d = {.check = &c};
    double worst = 0;
    (void)state;
    for (int i = 0; i < INSTANCES; i++) {
        struct backward b;
        double bytes = 0;
        backward_draw(&d, i, &b);
        for (int k = 0; k < b.of.layers; k++) bytes += b.bytes[k];
        worst = fmax(worst, (b.of.alpha + b.of.beta * bytes) / backward_least(&b.of));
    }
    assert_near(got.cost, worst);
    assert_true(got.passed == 1 && got.cost > 2);
    assert_true(run((struct engine_schedule){.buckets = all_in_one}, 8).cost != got.cost);
}

/* ---- answers ---- */

/* The earliest end over all orders, waits included. */
static double answers_search(struct answers a, double end) {
    double best = INFINITY, next;
    bool some = false;
    a.of.here = a.here, a.of.left = a.left, a.of.forward = a.forward;
    next = answers_arrive(&a);
    for (int k = 0; k < a.of.workers * a.of.layers; k++) {
        some = some || a.left[k];
        if (!a.here[k]) continue;
        struct answers b = a;
        double after = end;
        b.of.now++;
        double tail = 0;
        for (int l = k; l < (k / a.of.layers + 1) * a.of.layers; l++) tail += a.forward[l];
        if (--b.left[k] == 0) after = fmax(after, b.of.now + tail);
        best = fmin(best, answers_search(b, after));
    }
    if (!some) return end;
    if (isfinite(next)) {
        a.of.now = next;
        best = fmin(best, answers_search(a, end));
    }
    return best;
}

static void no_order_ends_earlier(void **state) {
    const struct check c = check_of(1);
    const struct drawing d = {.check = &c};
    int tried = 0;
    (void)state;
    for (int i = 0; i < 40 * INSTANCES && tried < 40; i++) {
        struct answers a;
        int pieces = 0;
        answers_draw(&d, i, &a);
        for (int k = 0; k < a.of.workers * a.of.layers; k++) pieces += a.left[k];
        if (pieces > 9 || a.of.workers * a.of.layers < 3) continue;
        assert_near(answers_run(NULL, i, a), answers_search(a, 0));
        tried++;
    }
    assert_int_equal(tried, 40);
}

static int32_t first_that_waits(const struct engine_answers *a) {
    for (int32_t k = 0; k < a->workers * a->layers; k++)
        if (a->here[k]) return k;
    return -1;
}

/* Its pieces in a list, by the clock. */
static void an_order_has_its_cost(void **state) {
    const struct check c = check_of(5), got = run((struct engine_schedule){.answer = first_that_waits}, 5);
    const struct drawing d = {.check = &c};
    double worst = 0;
    (void)state;
    for (int i = 0; i < INSTANCES; i++) {
        struct answers a;
        answers_draw(&d, i, &a);
        double best = answers_run(NULL, i, a), end = 0;
        int n = a.of.workers * a.of.layers, left = 0;
        for (int k = 0; k < n; k++) left += a.left[k];
        for (int now = 0; left > 0; now++) {
            int k = 0;
            while (k < n && !(a.left[k] && a.comes[k] <= now)) k++;
            if (k == n) continue;
            left--;
            if (--a.left[k]) continue;
            double tail = now + 1;
            for (int l = k; l < (k / a.of.layers + 1) * a.of.layers; l++) tail += a.forward[l];
            end = fmax(end, tail);
        }
        worst = fmax(worst, end / best);
    }
    assert_near(got.cost, worst);
    assert_true(got.cost > 1.2);
}

/* ---- stages ---- */

static void all_forwards_first(int32_t stage, int32_t stages, int32_t batches, int32_t *order) {
    (void)stage, (void)stages;
    for (int i = 0; i < batches; i++) order[i] = i + 1, order[batches + i] = -(i + 1);
}

static void one_at_a_time(int32_t stage, int32_t stages, int32_t batches, int32_t *order) {
    (void)stage, (void)stages;
    for (int i = 0; i < batches; i++) order[2 * i] = i + 1, order[2 * i + 1] = -(i + 1);
}

/* gpipe takes no longer and holds all; one after another is each as long as a whole pass, and holds one. */
static void pipelines_have_their_costs(void **state) {
    struct check c = run((struct engine_schedule){.stage = all_forwards_first}, 3);
    (void)state;
    assert_int_equal(c.passed, 2);
    assert_near(c.cost, 1);
    assert_near(c.held, 16); /* the last stage, of 16 micro-batches */
    c = run((struct engine_schedule){.stage = one_at_a_time}, 3);
    assert_near(c.cost, 8 * 16 / (8 + 15.0)); /* eight stages, 16 micro-batches */
    assert_near(c.held, 1);
}

/* ---- late gradients ---- */

/* The limit of stability, by the roots: just below it a bowl is walked down, just above it is not. */
static void the_limit_is_one(void **state) {
    (void)state;
    for (int age = 0; age <= AGE_MOST; age++) {
        assert_true(late_updates(age, 0.98 * late_limit(age)) < UPDATES_MOST);
        assert_true(late_updates(age, 1.02 * late_limit(age)) == UPDATES_MOST);
    }
    assert_near(late_limit(0), 2);
    assert_near(late_limit(1), 1);
    assert_near(late_limit(2), (sqrt(5) - 1) / 2);
}

static double by_age(int32_t age, double step) {
    (void)step;
    return 1.0 / (1 + age);
}

/* By the recursion itself, with the past in a list. */
static void a_weight_has_its_cost(void **state) {
    static double x[UPDATES_MOST + 1];
    const struct check c = check_of(4), got = run((struct engine_schedule){.weight = by_age}, 4);
    const struct drawing d = {.check = &c};
    double worst = 0;
    (void)state;
    for (int i = 0; i < INSTANCES / 5; i++) {
        int age = i < 4 ? i : draw_whole(&d, i, 0, 1, AGE_MOST), most = 0;
        double step = draw_scale(&d, i, 1, 0.05, 1);
        for (int k = 0; k < 2; k++) {
            double s = step / (1 + age) * (k ? flattest : 1);
            x[0] = 1;
            for (int t = 0; t < UPDATES_MOST; t++) {
                x[t + 1] = x[t] - s * x[t > age ? t - age : 0];
                if (fabs(x[t + 1]) > 0.01 && t + 1 > most) most = t + 1;
            }
        }
        worst = fmax(worst, (double)most / late_least(age, step));
    }
    assert_near(got.cost, worst);
    assert_true(got.cost > 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_cut_exposes_less),        cmocka_unit_test(a_cut_has_its_cost),
        cmocka_unit_test(no_order_ends_earlier),      cmocka_unit_test(an_order_has_its_cost),
        cmocka_unit_test(pipelines_have_their_costs), cmocka_unit_test(the_limit_is_one),
        cmocka_unit_test(a_weight_has_its_cost),
    };
    return cmocka_run_group_tests_name("schedules", tests, NULL, NULL);
}
