/* What a run says of each validation sample: the accuracy's own samples, the same file in any mode on any number of
 * devices, as 'engine predict' sees them one by one; and two runs are compared by it. */
#include "engine/base/file.h"
#include "lab/compare/right.h"
#include "tests/harness/program.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { VAL = 125 }; /* of which any share has few decimals */
static struct program p;
static const char *const network[] = {"model={zoo: mlp, hidden: [64]}",
                                      "data={set: digits, train: 500, val: 125}",
                                      "batch={size: 64, shards: 4}",
                                      "threads=1",
                                      "optimizer.lr=0.1",
                                      "train=3ep",
                                      NULL};
static struct pool *pool;

static int set_up(void **state) {
    (void)state;
    return pool_create(&pool) == ERR_NONE ? 0 : -1;
}

static int tear_down(void **state) {
    (void)state;
    pool_free(pool);
    return 0;
}

/* Trains into a folder of that name; its path, in the pool. */
static const char *train(const char *name, const char *const *more) {
    const char *dir = pool_printf(pool, "%s", scratch_path(name)), *set = pool_printf(pool, "log.dir=%s", dir);
    const char *sets[16] = {set};
    for (int i = 0; more[i]; i++) sets[i + 1] = more[i];
    program_train(&p, network, sets);
    return dir;
}

static int64_t count(const struct right *r) {
    int64_t n = 0;
    for (int64_t i = 0; i < r->samples; i++) n += r->is[i];
    return n;
}

static struct right read_right(const char *dir) {
    struct right r;
    assert_ok(right_read(dir, pool, &r));
    return r;
}

static bool left(const char *dir) {
    return file_exists(pool_printf(pool, "%s/validation.safetensors", dir));
}

static void the_same_anywhere(void **state) {
    (void)state;
    static const char *const ways[][3] = {{"mode=single", "devices=cpu:1", "eval=end"},
                                          {"mode=dp", "devices=cpu:1", "eval=end"},
                                          {"mode=dp", "devices=cpu:2", "eval=1ep"},
                                          {"mode=dp", "devices=cpu:3", "eval=end"},
                                          {"mode=dp", "devices=cpu:3", "dp.server=dedicated"},
                                          {"mode=ddp", "devices=cpu:1", "eval=end"},
                                          {"mode=ddp", "devices=cpu:2", "comm.algorithm=direct"},
                                          {"mode=ddp", "devices=cpu:3", "eval=7st"},
                                          {"mode=ddp", "devices=cpu:2", "comm.link=tcp"},
                                          {"mode=single", "devices=ref:1", "train=2ep"}};
    char *first = NULL;
    size_t length = 0;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        char *text;
        size_t n;
        bool other = !strcmp(ways[i][2], "train=2ep");
        const char *dir = train(pool_printf(pool, "way-%zu", i), SETS(ways[i][0], ways[i][1], ways[i][2]));
        const struct right r = read_right(dir);
        double accuracy = program_number(&p, "val.accuracy");
        assert_int_equal(r.samples, VAL);
        assert_int_equal(r.step, (int64_t)program_number(&p, "steps"));
        if ((double)count(&r) / VAL != accuracy) fail_msg("%s: %lld of them, %g", dir, (long long)count(&r), accuracy);
        assert_true(count(&r) > VAL / 5 && count(&r) < VAL);
        assert_ok(file_read(pool_printf(pool, "%s/validation.safetensors", dir), 1 << 20, pool, &text, &n));
        if (!first) first = text, length = n;
        if (!other && (n != length || memcmp(text, first, n) != 0))
            fail_msg("%s %s: another file", ways[i][0], ways[i][1]);
    }
}

/* Each sample is where it belongs. */
static void as_predicted_one_by_one(void **state) {
    (void)state;
    const struct right r = read_right(train("predicted", SETS("mode=ddp", "devices=cpu:3")));
    program_run(&p, 60, "predict", r.dir, "val:0-124", "--top", "1", "--json", NULL);
    const struct json_value *all = program_json(&p, pool);
    assert_int_equal(all->count, VAL);
    for (int i = 0; i < VAL; i++) {
        const struct json_value *of = &all->children[i];
        bool right = json_get(of, "truth")->integer == json_get(&json_get(of, "top")->children[0], "label")->integer;
        if (right != r.is[i]) fail_msg("sample %d is predicted %s", i, right ? "rightly" : "wrongly");
    }
}

static void two_runs_are_compared(void **state) {
    (void)state;
    struct right_counts c, back;
    const struct right a = read_right(train("a", SETS("mode=single", "devices=cpu:1")));
    const struct right b = read_right(
        train("b", SETS("mode=single", "devices=cpu:1", "optimizer.lr=0.01", "data.normalize=off", "data.train=300")));
    assert_ok(right_compare(&a, &b, &c));
    assert_ok(right_compare(&b, &a, &back));
    assert_int_equal(c.samples, VAL);
    assert_int_equal(c.both + c.first, count(&a));
    assert_int_equal(c.both + c.second, count(&b));
    assert_true(c.first > c.second && c.both > 0 && back.first == c.second && back.second == c.first);
    assert_ok(right_compare(&a, &a, &c));
    assert_true(c.both == count(&a) && c.first == 0 && c.second == 0);
    const struct right seed = read_right(train("seed", SETS("mode=single", "devices=cpu:1", "seed=1")));
    assert_fails(ERR_DATA, right_compare(&a, &seed, &c)); /* which draws other digits */
    const struct right fewer = read_right(train("fewer", SETS("mode=single", "devices=cpu:1", "data.val=100")));
    assert_fails(ERR_DATA, right_compare(&fewer, &a, &c));
}

/* No class a sample, or samples that count twice: no file. */
static void not_of_other_data(void **state) {
    (void)state;
    assert_false(left(train("text", SETS("mode=single", "devices=cpu:1", "train=2st", "model=gpt-mini",
                                         "data={set: grammar, train: 100, val: 20, context: 16}"))));
    const char *dir = train("padded", SETS("mode=ddp", "devices=cpu:3", "inject.mistake=padded_eval"));
    struct right r;
    assert_false(left(dir));
    assert_fails(ERR_INPUT, right_read(dir, pool, &r));
}

/* eval: off is never, and end once. */
static void not_where_nothing_is_evaluated(void **state) {
    (void)state;
    static const char *const ways[] = {"eval=off", "eval=end"};
    for (int i = 0; i < 2; i++) {
        const char *dir = train(ways[i], SETS("mode=ddp", "devices=cpu:2", "train=2ep", ways[i]));
        char *text;
        size_t n;
        int evaluations = 0;
        assert_int_equal(p.code, 0);
        assert_int_equal(left(dir), i);
        assert_int_equal(!strstr(p.out, "\"val\":{\"loss\":null"), i);
        assert_ok(file_read(pool_printf(pool, "%s/metrics.jsonl", dir), 1 << 20, pool, &text, &n));
        for (const char *at = text; (at = strstr(at, "\"val\":")); at++) evaluations++;
        assert_int_equal(evaluations, i);
    }
}

/* A run that goes on from where another had ended, and is stopped, has measured nothing. */
static void a_stopped_run_leaves_none(void **state) {
    (void)state;
    const char *dir = train("stopped", SETS("mode=ddp", "devices=cpu:2", "checkpoint={every: 1ep, resume: auto}"));
    const char *set = pool_printf(pool, "log.dir=%s", dir);
    assert_true(left(dir));
    program_train_start(&p, network,
                        SETS(set, "mode=ddp", "devices=cpu:2", "checkpoint={every: 1ep, resume: auto}", "train=1h",
                             "log.every=1st", "eval=end"));
    program_wait_text(&p, " step=40 ", 60);
    kill(p.pid, SIGTERM);
    program_train_end(&p);
    assert_int_equal(p.code, 143);
    assert_false(left(dir));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_same_anywhere, set_up, tear_down),
        cmocka_unit_test_setup_teardown(as_predicted_one_by_one, set_up, tear_down),
        cmocka_unit_test_setup_teardown(two_runs_are_compared, set_up, tear_down),
        cmocka_unit_test_setup_teardown(not_of_other_data, set_up, tear_down),
        cmocka_unit_test_setup_teardown(not_where_nothing_is_evaluated, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_stopped_run_leaves_none, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("right samples", tests, NULL, NULL);
}
