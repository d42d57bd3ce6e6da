/* dp.staleness from inside: the modes run as they are, but what a rank does around its steps is
 * watched, and disturbed: workers that sleep, fail, or do not come. */
#include "tests/harness/harness.h"

#include "cli/line/cli.h"
#include "cli/line/load.h"
#include "engine/base/clock.h"
#include "engine/base/digest.h"
#include "engine/base/rng.h"
#include "engine/settings/job.h"
#include "engine/settings/run_config.h"
#include "engine/train/trainer.h"
#include "modes/modes.h"
#include "tests/harness/timing.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { RANKS = 5, STEPS = 400, SETS = 12 };
static const struct step_ops *real;
static _Thread_local struct trainer *mine; /* this rank's */

/* What the watchers write down. */
static atomic_llong begun[RANKS];               /* steps, by rank */
static atomic_llong lead;                       /* the most that a worker has been ahead of another */
static char met[RANKS][STEPS + 1][SHA256_TEXT]; /* weights, where all ranks meet; "": they do not */
static float seen[STEPS + 1][3];                /* the server's loss and first two parameters */
static int64_t ended[RANKS];

/* What is done to a rank before each of its steps; perhaps it fails. */
static enum error (*disturb)(void);
static float first_values[2];
static bool set_first;

static enum error watched_open(struct trainer *t, struct standing *standing, struct mode **out) {
    mine = t;
    return real->open(t, standing, out);
}

static enum error watched_start(struct mode *m) {
    for (int i = 0; set_first && mine->rank == 0 && i < 2; i++)
        mine->arena.values[mine->model->params[i].offset] = first_values[i];
    return real->start(m);
}

static void note_lead(void) {
    long long done = begun[mine->rank], before = lead;
    for (int r = 1; r < mine->standing.ranks; r++) {
        long long ahead = done - begun[r];
        while (ahead > before && !atomic_compare_exchange_weak(&lead, &before, ahead)) {
        }
    }
    begun[mine->rank]++;
}

static enum error watched_step(struct mode *m, struct learned *out) {
    if (disturb) TRY(disturb());
    if (mine->standing.worker >= 0) note_lead();
    TRY(real->run(m, out));
    int64_t step = mine->at.step + 1;
    ended[mine->rank] = step;
    if (mine->rank > 0 || step > STEPS) return ERR_NONE;
    seen[step][0] = mine->sums.loss;
    for (int i = 0; i < 2 && i < mine->model->nparams; i++)
        seen[step][1 + i] = mine->arena.values[mine->model->params[i].offset];
    return ERR_NONE;
}

static enum error watched_meeting(struct mode *m) {
    struct sha256 h;
    sha256_init(&h);
    sha256_update(&h, mine->arena.values, (size_t)mine->model->arena_floats * sizeof *mine->arena.values);
    if (mine->at.step <= STEPS) sha256_hex(h, met[mine->rank][mine->at.step]);
    return real->share_buffers(m);
}

/* ---- one run ---- */

static char weights[SHA256_TEXT], losses[SHA256_TEXT];
static double mean_age, most_age, idle;

static const struct json_value *member(const struct json_value *v, const char *key) {
    const struct json_value *found = json_get(v, key);
    if (!found) fail_msg("no '%s' in summary.json", key);
    return found;
}

static void read_summary(const char *dir) {
    char path[700], text[1 << 14];
    struct pool *pool;
    const struct json_value *v;
    snprintf(path, sizeof path, "%s/summary.json", dir);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = '\0';
    assert_ok(pool_create(&pool));
    assert_ok(json_parse(text, n, (struct json_limits){8, 1000, 1000}, pool, &v));
    snprintf(weights, sizeof weights, "%s", member(v, "weights_sha256")->text);
    snprintf(losses, sizeof losses, "%s", member(v, "losses_sha256")->text);
    const struct json_value *s = json_get(v, "staleness");
    mean_age = s ? member(s, "mean")->number : -1;
    most_age = s ? member(s, "most")->number : -1;
    idle = s ? member(s, "idle")->number : -1;
    pool_free(pool);
}

static enum error run(const char *const *more) {
    static int runs;
    char dir[600], name[32];
    snprintf(name, sizeof name, "run-%d", runs++);
    snprintf(dir, sizeof dir, "log.dir=%s", scratch_path(name));
    struct cli_config c = {0};
    const char *sets[] = {"mode=dp",
                          dir,
                          "threads=1",
                          "checkpoint=off",
                          "eval=end",
                          "dp.server=dedicated",
                          "model={zoo: mlp, hidden: [16]}",
                          "data={set: digits, train: 640, val: 10}",
                          "batch={size: 32}"};
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) assert_ok(cli_set(&c, sets[i]));
    for (; *more; more++) assert_ok(cli_set(&c, *more));
    struct run_settings s;
    assert_ok(cli_load(&c, &s));
    struct mode_row row = *s.mode;
    struct step_ops ops = *row.step;
    real = row.step;
    ops.open = watched_open, ops.start = watched_start, ops.run = watched_step;
    ops.share_buffers = watched_meeting;
    row.step = &ops;
    for (int r = 0; r < RANKS; r++) begun[r] = ended[r] = 0;
    lead = 0;
    memset(met, 0, sizeof met);
    struct job job = {.settings = &s,
                      .mode = &row,
                      .process = {.rank = -1},
                      .processes = 1,
                      .quiet = true,
                      .console_out = -1,
                      .console_err = 2};
    int code;
    enum error err = cli_train(&job, NULL, &code);
    if (err == ERR_NONE) read_summary(scratch_path(name));
    run_settings_free(&s);
    return err;
}

/* ---- disturbances ---- */

static void pause_us(long us) {
    struct timespec t = {.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000};
    nanosleep(&t, NULL);
}

static enum error any_sleeps(void) {
    struct rng_key key = rng_key((uint64_t)mine->rank, RNG_TEST);
    uint64_t draw = rng_below(key, (uint64_t)mine->at.step, 0, 8);
    if (mine->standing.worker >= 0 && draw == 0) pause_us(1500);
    return ERR_NONE;
}

static enum error second_sleeps(void) {
    if (mine->standing.worker == 1) pause_us(4000);
    return ERR_NONE;
}

static enum error second_fails(void) {
    if (mine->standing.worker != 1 || mine->at.step != 5) return ERR_NONE;
    return FAIL(ERR_DATA, "broken on purpose");
}

static enum error server_fails(void) {
    if (mine->standing.worker >= 0 || mine->at.step != 5) return ERR_NONE;
    return FAIL(ERR_DATA, "broken on purpose");
}

static enum error second_hangs(void) {
    if (mine->standing.worker == 1 && mine->at.step == 5) pause_us(4000000);
    return ERR_NONE;
}

/* ---- tests ---- */

/* y = w x + b on four samples, two workers in turn, by hand. All numbers are small multiples of a
 * power of two, so that every operation is exact, whatever the order of a kernel. */
static void two_workers_by_hand(void **state) {
    (void)state;
    enum { SAMPLES = 4, BY_HAND = 5 };
    static const double x[] = {1, 2, -1, -1}, target[] = {0.5, -1.5, 2.5, -0.5};
    char data[700];
    snprintf(data, sizeof data, "data={set: csv, train: %s, val: %s, normalize: off, normalize_target: false}",
             scratch_path("line.csv"), scratch_path("line.csv"));
    FILE *f = fopen(scratch_path("line.csv"), "w");
    assert_non_null(f);
    for (int i = 0; i < SAMPLES; i++) fprintf(f, "%g,%g\n", x[i], target[i]);
    assert_int_equal(fclose(f), 0);
    set_first = true;
    first_values[0] = 0.5F, first_values[1] = -0.25F;
    const char *const more[] = {data,
                                "model={layers: [{linear: 1}]}",
                                "loss=mse",
                                "batch.size=2",
                                "train=5st",
                                "optimizer={name: sgd, lr: 0.5, momentum: 0}",
                                "devices=ref:2",
                                "dp.staleness=3",
                                NULL};
    assert_ok(run(more));
    set_first = false;

    struct sampler s = {.size = SAMPLES, .batch = 2, .shards = 2, .shuffle = true};
    double own[2][2];             /* each worker's weights */
    double now[2] = {0.5, -0.25}; /* in the arena's order */
    memcpy(own[0], now, sizeof now), memcpy(own[1], now, sizeof now);
    for (int step = 0; step < BY_HAND; step++) {
        int64_t order[SAMPLES];
        sampler_order(&s, step / 2, order);
        double loss = 0;
        for (int w = 0; w < 2; w++) {
            int64_t i = order[sampler_position(&s, step % 2, w, 0)];
            double weight = own[w][0], bias = own[w][1];
            double off = weight * x[i] + bias - target[i];
            loss += off * off / 2;
            now[0] -= 0.5 * off * x[i]; /* 2 off x / B */
            now[1] -= 0.5 * off;
            memcpy(own[w], now, sizeof now);
        }
        assert_true(seen[step + 1][0] == (float)loss && (double)(float)loss == loss);
        for (int i = 0; i < 2; i++)
            assert_true((double)seen[step + 1][1 + i] == now[i] && (double)(float)now[i] == now[i]);
    }
}

/* Whoever sleeps, and however far ahead workers might be. */
static void in_turn_gives_the_same_bits(void **state) {
    (void)state;
    char first[2 * SHA256_TEXT] = "", these[2 * SHA256_TEXT];
    static const char *const bounds[] = {"dp.staleness=1", "dp.staleness=4", "dp.staleness=unbounded",
                                         "dp.staleness=1"};
    for (int i = 0; i < 4; i++) {
        const char *const more[] = {bounds[i], "devices=cpu:4", "train=60st", "eval=20st", NULL};
        disturb = i ? any_sleeps : NULL;
        assert_ok(run(more));
        snprintf(these, sizeof these, "%s%s", weights, losses);
        if (i) assert_string_equal(these, first);
        strcpy(first, these);
        assert_true(lead <= 1);
        assert_true(most_age == 3 && mean_age > 2.5 && mean_age <= 3);
    }
    const char *const waits[] = {"dp.staleness=0", "devices=cpu:4", "train=60st", NULL};
    assert_ok(run(waits));
    assert_string_not_equal(weights, first);
    assert_true(mean_age < 0);
    disturb = NULL;
}

/* While a worker computes, each of the three others can have at most 2 N + 1 gradients applied: N to
 * come up with it, and N + 1 until the last that it may have begun. */
static long long lead_of(const char *bound, long long n) {
    const char *const more[] = {bound, "devices=cpu:4", "train=100st", "eval=50st", "deterministic=false", NULL};
    assert_ok(run(more));
    print_message("%s: at most %lld steps ahead, gradients %.2f (at most %.0f) updates old, idle "
                  "%.0f %%\n",
                  bound, (long long)lead, mean_age, most_age, idle * 100);
    assert_true(idle >= 0 && idle < 1 && most_age > 3);
    assert_true(most_age <= 3 * (2 * (double)n + 1));
    return lead;
}

/* One worker is always slow: the others come as far ahead as they may, and never further. */
static void nobody_is_further_ahead_than_the_bound(void **state) {
    (void)state;
    disturb = second_sleeps;
    assert_int_equal(lead_of("dp.staleness=1", 1), 1);
    assert_int_equal(lead_of("dp.staleness=3", 3), 3);
    long long free = lead_of("dp.staleness=unbounded", 50);
    assert_true(free > 5 && free < 50); /* an evaluation holds them, too */
    disturb = any_sleeps;
    assert_true(lead_of("dp.staleness=2", 2) <= 2);
    disturb = NULL;
}

/* Where they evaluate and save, all ranks have the same weights, and have done the same steps. */
static void all_meet(void **state) {
    (void)state;
    static const char *const kinds[] = {"deterministic=true", "deterministic=false"};
    for (int k = 0; k < 2; k++) {
        const char *const more[] = {"dp.staleness=unbounded",
                                    "devices=cpu:4",
                                    "train=60st",
                                    "eval=7st",
                                    "checkpoint=11st",
                                    "comm.emulate={bandwidth: 1Gbit, latency: 20us}",
                                    kinds[k],
                                    NULL};
        disturb = any_sleeps;
        assert_ok(run(more));
        disturb = NULL;
        int meetings = 0;
        for (int step = 1; step <= 60; step++) {
            bool meets = step % 7 == 0 || step % 11 == 0 || step == 60;
            for (int r = 0; r < RANKS; r++) assert_int_equal(*met[r][step] != '\0', meets);
            for (int r = 1; r < RANKS && meets; r++) assert_string_equal(met[r][step], met[0][step]);
            meetings += meets;
        }
        assert_int_equal(meetings, 14);
        for (int r = 0; r < RANKS; r++) assert_int_equal(ended[r], 60);
    }
}

/* One worker has nobody to wait for: whatever the order, it is plain training. */
static void alone_it_is_plain_training(void **state) {
    (void)state;
    char first[SHA256_TEXT];
    static const char *const ways[][2] = {{"dp.staleness=0", "deterministic=true"},
                                          {"dp.staleness=2", "deterministic=true"},
                                          {"dp.staleness=2", "deterministic=false"}};
    for (int i = 0; i < 3; i++) {
        const char *const more[] = {
            ways[i][0], ways[i][1], "devices=cpu:1", "train=45st", "optimizer={name: adam, clip: 1}", NULL};
        assert_ok(run(more));
        if (i) assert_string_equal(weights, first);
        if (i) assert_true(most_age == 0);
        strcpy(first, weights);
    }
}

/* Long before the deadline of any call, but for who hangs. */
static void told(enum error (*what)(void), const char *order, enum error err, const char *words) {
    const char *timeout = err == ERR_TIMEOUT ? "comm.timeout=2s" : "comm.timeout=60s";
    const char *const more[] = {"dp.staleness=unbounded", "devices=cpu:4", "train=100000st", order, timeout, NULL};
    disturb = what;
    int64_t began = clock_ns();
    assert_fails(err, run(more));
    double took = clock_seconds(clock_ns() - began);
    disturb = NULL;
    if (!strstr(error_message(), words)) fail_msg("'%s' is not in: %s", words, error_message());
    print_message("%s (%.2f s)\n", error_message(), took);
    assert_true(took < timing_limit(30));
}

static void failures_have_names(void **state) {
    (void)state;
    static const char *const orders[] = {"deterministic=true", "deterministic=false"};
    for (int i = 0; i < 2; i++) {
        told(second_fails, orders[i], ERR_DATA, "broken on purpose");
        told(server_fails, orders[i], ERR_DATA, "broken on purpose");
        told(second_hangs, orders[i], ERR_TIMEOUT, "rank 2 has not sent its gradient of step 6");
    }
}

/* Not as the loss of a rank, on whatever link. */
static void a_loss_that_is_not_finite_ends_it(void **state) {
    (void)state;
    static const char *const orders[] = {"deterministic=true", "deterministic=false"};
    static const char *const links[] = {"comm.emulate.latency=0s", "comm.emulate.latency=3ms"};
    for (int i = 0; i < 8; i++) {
        const char *const more[] = {"dp.staleness=2",
                                    "devices=cpu:4",
                                    "train=1000st",
                                    orders[i % 2],
                                    links[i / 2 % 2],
                                    "optimizer.lr=1e20",
                                    NULL};
        assert_fails(ERR_RESULT, run(more));
        assert_non_null(strstr(error_message(), "diverged: the loss of step "));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_workers_by_hand),
        cmocka_unit_test(in_turn_gives_the_same_bits),
        cmocka_unit_test(nobody_is_further_ahead_than_the_bound),
        cmocka_unit_test(all_meet),
        cmocka_unit_test(alone_it_is_plain_training),
        cmocka_unit_test(failures_have_names),
        cmocka_unit_test(a_loss_that_is_not_finite_ends_it),
    };
    return cmocka_run_group_tests_name("a server that does not wait", tests, NULL, NULL);
}
