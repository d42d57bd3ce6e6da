/* Adasum against its authors' formula, written here once more in double precision and joined two by two: layers of odd
 * sizes, 1 to 13 ranks, every link; orthogonal gradients add up, equal ones stay, zeros say nothing; all ranks have the
 * same bits, whatever the links and wherever layers are cut into buckets. And the cases of engine check. */
#include "tests/harness/harness.h"

#include "tests/conformance/ranks.h"

#include "engine/base/plugin.h"
#include "lab/check/check.h"
#include "modes/share/share.h"

#include <math.h>

enum { LAYERS = 4, FLOATS = 3000, RANKS = 13 };
static const int64_t edge[LAYERS + 1] = {0, 1, 34, 1041, FLOATS};

struct given { /* to the ranks of a run */
    float x[RANKS][FLOATS], out[RANKS][FLOATS];
    bool cut; /* each layer is a call of its own */
};

static void mix(struct rank *r) {
    struct given *of = (struct given *)(uintptr_t)r->of->user;
    float *x = of->out[r->index], room[FLOATS];
    struct mixing m = {.by = &mixer_adasum, .room = room, .tensor = edge, .tensors = LAYERS};
    memcpy(x, of->x[r->index], sizeof of->out[0]);
    if (!of->cut) check_ok(group_mix(r->group, GROUP_INLINE, &m, x, FLOATS));
    for (int i = 0; i < LAYERS && of->cut; i++) {
        struct work *work;
        m.tensors = 0;
        check_ok(group_mix(r->group, GROUP_COMM(&work), &m, x + edge[i], edge[i + 1] - edge[i]));
        check_ok(work_wait(work));
    }
}

static void run(struct given *of, int world, const char *link) {
    run_ranks((struct ranks){.world = world, .link = link, .fn = mix, .user = of}, NULL);
    for (int r = 1; r < world; r++) assert_memory_equal(of->out[r], of->out[0], sizeof of->out[0]);
}

/* ---- the formula ---- */

static void join(double *a, const double *b, int64_t n) {
    double ab = 0, aa = 0, bb = 0;
    for (int64_t i = 0; i < n; i++) ab += a[i] * b[i], aa += a[i] * a[i], bb += b[i] * b[i];
    for (int64_t i = 0; i < n; i++)
        a[i] = (aa > 0 ? 1 - ab / (2 * aa) : 0) * a[i] + (bb > 0 ? 1 - ab / (2 * bb) : 0) * b[i];
}

/* The gradients of all ranks in a list, which pairs shorten until a power of two is left, and then by halves. */
static void expect(const struct given *of, int world, double *out) {
    static double x[RANKS][FLOATS];
    for (int layer = 0; layer < LAYERS; layer++) {
        int64_t n = edge[layer + 1] - edge[layer];
        int count = world, left = 0;
        while (!is_power_of_two(count)) count--;
        for (int r = 0; r < world; r++, left++) {
            for (int64_t i = 0; i < n; i++) x[left][i] = (double)of->x[r][edge[layer] + i];
            if (left >= world - count) continue;
            double next[FLOATS];
            r++;
            for (int64_t i = 0; i < n; i++) next[i] = (double)of->x[r][edge[layer] + i];
            join(x[left], next, n);
        }
        assert_int_equal(left, count);
        for (; count > 1; count /= 2)
            for (int i = 0; i < count / 2; i++) {
                join(x[2 * i], x[2 * i + 1], n);
                memmove(x[i], x[2 * i], sizeof x[i]);
            }
        memcpy(out + edge[layer], x[0], (size_t)n * sizeof *out);
    }
}

static void assert_formula(const struct given *of, int world) {
    static double want[FLOATS];
    expect(of, world, want);
    for (int64_t i = 0; i < FLOATS; i++)
        if (!(fabs((double)of->out[0][i] - want[i]) <= 1e-6 * fabs(want[i]) + 4e-4)) /* of terms up to 1700 */
            fail_msg("%d ranks: float %lld is %.9g, and the formula's %.9g", world, (long long)i, (double)of->out[0][i],
                     want[i]);
}

static void as_the_formula_says(void **state) {
    static struct given of;
    static float whole[FLOATS];
    (void)state;
    for (int world = 1; world <= RANKS; world++) {
        for (int r = 0; r < world; r++)
            for (int64_t i = 0; i < FLOATS; i++) of.x[r][i] = check_value(r, i) + (float)(i % 3);
        of.cut = false;
        run(&of, world, "thread");
        assert_formula(&of, world);
        memcpy(whole, of.out[0], sizeof whole);
        of.cut = true;
        run(&of, world, world % 2 ? "tcp" : "shm");
        assert_memory_equal(of.out[0], whole, sizeof whole);
    }
}

/* Each rank has floats of its own, then all the same, then only the first any. */
static void orthogonal_ones_add_up(void **state) {
    static struct given of;
    (void)state;
    for (int world = 2; world <= RANKS; world++) {
        of = (struct given){.cut = false};
        for (int r = 0; r < world; r++)
            for (int64_t i = r; i < FLOATS; i += world) of.x[r][i] = check_value(0, i);
        run(&of, world, "thread");
        for (int64_t i = 0; i < FLOATS; i++) assert_true(of.out[0][i] == check_value(0, i));
        for (int r = 0; r < world; r++) memcpy(of.x[r], of.out[0], sizeof of.x[r]);
        run(&of, world, "thread");
        for (int64_t i = 0; i < FLOATS; i++) assert_true(of.out[0][i] == check_value(0, i));
        for (int r = 1; r < world; r++) memset(of.x[r], 0, sizeof of.x[r]);
        run(&of, world, "thread");
        for (int64_t i = 0; i < FLOATS; i++) assert_true(of.out[0][i] == check_value(0, i));
    }
}

static void what_is_no_number_shows(void **state) {
    static struct given of;
    (void)state;
    for (int r = 0; r < 5; r++)
        for (int64_t i = 0; i < FLOATS; i++) of.x[r][i] = check_value(r, i);
    of.x[3][40] = NAN;
    run(&of, 5, "thread");
    assert_true(isnan(of.out[0][40]) && isfinite(of.out[0][20]) && isfinite(of.out[0][2000]));
}

static void passes_engine_check(void **state) {
    struct check c = {.name = "adasum", .timeout = 3, .sizes = 6};
    (void)state;
    check_share(&c, &mixer_adasum);
    if (c.wrong) fail_msg("%s", c.first);
    assert_int_equal(c.passed, 10);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(passes_engine_check), /* before this process has threads */
        cmocka_unit_test(as_the_formula_says),
        cmocka_unit_test(orthogonal_ones_add_up),
        cmocka_unit_test(what_is_no_number_shows),
    };
    return cmocka_run_group_tests_name("Adasum", tests, NULL, NULL);
}
