/* Steps of a trace, as reports and the simulator take them. */
#include "tests/unit/trace_fixture.h"

#include "lab/predict/measured.h"
#include "lab/predict/step_trace.h"

#include <math.h>

static struct pool *pool;
static struct fixture f;
static char dir[512];

/* Two ranks; the second does a step more, and its steps take other times. */
static int set_up(void **state) {
    (void)state;
    assert_ok(pool_create(&pool));
    snprintf(dir, sizeof dir, "%s", scratch_path("run"));
    fixture_begin(&f, 0, 2);
    for (int64_t s = 2; s <= 6; s++) fixture_step(&f, s, s * 1000);
    f.event[2 * 14].end += 400; /* step 4's */
    fixture_write(&f, dir);
    fixture_begin(&f, 1, 2);
    for (int64_t s = 3; s <= 7; s++) fixture_step(&f, s, s * 1000 + 5);
    fixture_write(&f, dir);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    pool_free(pool);
    return 0;
}

static void finds_steps(void **state) {
    (void)state;
    struct step_trace t;
    assert_ok(step_trace_read(dir, pool, &t));
    assert_int_equal(t.nranks, 2);
    assert_int_equal(t.nsteps[0], 5);
    assert_null(step_trace_find(&t, 1, 2));
    const struct traced_step *s = step_trace_find(&t, 1, 3);
    assert_non_null(s);
    assert_int_equal(s->begin, 3005);
    assert_int_equal(s->phase[TRACE_FORWARD], 90);
    assert_int_equal(s->phase[TRACE_COMM], 80);
    assert_int_equal(s->backward_begin, 3105);
    assert_int_equal(s->nbuckets, 2);
    assert_int_equal(s->bucket[1].waited, 60);
    int64_t typical = step_trace_typical(&t); /* of 3, 4, 5, 6; 4 was long */
    assert_true(typical == 5 || typical == 6);
}

/* Parameters of 300, 100 and 800 bytes are ready at 20, 40 and 100 hundredths of backward. */
static void tells_when_gradients_are_ready(void **state) {
    (void)state;
    static struct tensor_info tensors[] = {
        {.name = "c", .offset = 0, .count = 75},
        {.name = "b", .offset = 75, .count = 25},
        {.name = "a", .offset = 100, .count = 200},
    };
    static struct model model = {.nparams = 3, .params = tensors, .arena_floats = 300};
    struct step_trace t;
    double ready[3] = {9, 9, 9};
    static const double expected[] = {0.2, 0.4, 1};
    assert_ok(step_trace_read(dir, pool, &t));
    assert_int_equal(step_trace_ready(&t, &model, ready), 10);
    for (int i = 0; i < 3; i++) assert_true(fabs(ready[i] - expected[i]) < 1e-9);
    struct measured_step step = {.model = &model, .ready = ready};
    measured_take_trace(&step, &t);
    assert_int_equal(step.traced, 10);
    model.arena_floats = 301; /* another network's: nothing is known of its end */
    assert_int_equal(step_trace_ready(&t, &model, ready), 0);
    assert_ok(step_trace_read(scratch_path("nowhere"), pool, &t));
    assert_int_equal(t.nranks, 0);
    assert_int_equal(step_trace_typical(&t), 0);
    assert_int_equal(step_trace_ready(&t, &model, ready), 0);
    assert_true(fabs(ready[1] - 0.4) < 1e-9);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_steps),
        cmocka_unit_test(tells_when_gradients_are_ready),
    };
    return cmocka_run_group_tests_name("steps of a trace", tests, set_up, tear_down);
}
