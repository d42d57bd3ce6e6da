/* ddp.sync: ranks that step alone and average their weights every so many steps do what a few lines
 * of C do, bit for bit; the same each time; with as much fewer bytes; and they stop, go on and
 * diverge together. */
#include "engine/base/digest.h"
#include "engine/data/sampler.h"
#include "engine/save/checkpoint.h"
#include "tests/harness/program.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct program control, other;

static bool same(const struct program *a, const struct program *b) {
    char weights[80];
    snprintf(weights, sizeof weights, "%s", program_string(a, "weights_sha256"));
    return !strcmp(weights, program_string(b, "weights_sha256")) &&
           !strcmp(program_string(a, "losses_sha256"), program_string(b, "losses_sha256"));
}

/* ---- by hand: y = w0 x0 + w1 x1, two ranks or four, the mean squared error ---- */

/* Small numbers with few bits, so that whatever order they are added in, floats are exact. */
enum { SAMPLES = 9, BATCH = 4, RANKS = 4, FEATURES = 2, STEPS = 6 };
static int ranks = 2;
static const double first_weights[FEATURES] = {0.5, -1}, rate = 0.25, momentum = 0.5;

static double feature(int64_t sample, int i) {
    static const int of[SAMPLES][FEATURES] = {{1, 0},  {0, 1},  {1, 1}, {-1, 0}, {0, -1},
                                              {1, -1}, {-1, 1}, {1, 0}, {0, 1}};
    return of[sample][i];
}

static double target(int64_t sample) {
    return (double)(sample % 4) * 0.5 - 0.25;
}

struct by_hand {
    double w[RANKS][FEATURES], slot[RANKS][FEATURES];
    double loss[STEPS];
};

static double exact(double v) {
    if ((double)(float)v != v) fail_msg("%.17g is no float: the test is to use fewer bits", v);
    return v;
}

/* Rank 'rank' has the positions p of the batch with p mod ranks = its number's bits backwards, however many shards. */
static int gradient(const struct by_hand *h, int rank, const int64_t *order, int64_t size, double *g, double *loss) {
    int n = 0, first = ranks == 4 ? (rank & 1) * 2 + rank / 2 : rank;
    for (int64_t p = first; p < size; p += ranks) {
        double off = -target(order[p]);
        for (int i = 0; i < FEATURES; i++) off += h->w[rank][i] * feature(order[p], i);
        for (int i = 0; i < FEATURES; i++) g[i] += 2 * off * feature(order[p], i);
        *loss += off * off;
        n++;
    }
    return n;
}

static void step_by_hand(struct by_hand *h, const int64_t *order, int64_t size, double *loss) {
    for (int rank = 0; rank < ranks; rank++) {
        double g[FEATURES] = {0};
        int n = gradient(h, rank, order, size, g, loss);
        for (int i = 0; i < FEATURES && n > 0; i++) {
            h->slot[rank][i] = exact(momentum * h->slot[rank][i] + g[i] / n);
            h->w[rank][i] = exact(h->w[rank][i] - rate * h->slot[rank][i]);
        }
    }
    *loss /= (double)size;
}

static void mean(double v[RANKS][FEATURES]) {
    for (int i = 0; i < FEATURES; i++) {
        double sum = 0;
        for (int r = 0; r < ranks; r++) sum = exact(sum + v[r][i]);
        for (int r = 0; r < ranks; r++) v[r][i] = exact(sum / ranks);
    }
}

/* Of ranks on a circle: 0 and 1, 2 and 3; at the next meeting 1 and 2, 3 and 0. */
static void mean_of_pairs(double v[RANKS][FEATURES], int meeting) {
    for (int one = meeting % 2; one < ranks; one += 2)
        for (int i = 0, two = (one + 1) % ranks; i < FEATURES; i++)
            v[one][i] = v[two][i] = exact(exact(v[one][i] + v[two][i]) / 2);
}

struct meetings {
    int every, eval; /* after every so many steps, and after those of a multiple of 'eval', which are of all ranks */
    bool state, pairs, outer;
};

/* An outer step of rate 0.5 and Nesterov's momentum 0.5, from the weights at the last meeting. */
struct outer {
    double theta[FEATURES], b[FEATURES];
};

static void outer_by_hand(struct outer *o, double w[RANKS][FEATURES]) {
    for (int i = 0; i < FEATURES; i++) {
        double d = exact(o->theta[i] - w[0][i]);
        o->b[i] = exact(0.5 * o->b[i] + d);
        o->theta[i] = exact(o->theta[i] - 0.5 * exact(d + 0.5 * o->b[i]));
        for (int r = 0; r < ranks; r++) w[r][i] = o->theta[i];
    }
}

static void train_by_hand(struct by_hand *h, const struct meetings *m, uint64_t seed) {
    struct sampler s = {.size = SAMPLES, .batch = BATCH, .shards = ranks, .shuffle = true, .seed = seed};
    int64_t order[2 * SAMPLES], per_epoch = sampler_steps(&s);
    struct outer outer = {{first_weights[0], first_weights[1]}, {0}};
    memset(h, 0, sizeof *h);
    for (int r = 0; r < ranks; r++) memcpy(h->w[r], first_weights, sizeof first_weights);
    for (int step = 0; step < STEPS; step++) {
        int64_t at = step % per_epoch;
        sampler_order(&s, step / per_epoch, order);
        step_by_hand(h, order + at * BATCH, sampler_batch_size(&s, at), &h->loss[step]);
        bool all = (step + 1) % m->eval == 0 || step + 1 == STEPS;
        if ((step + 1) % m->every && !all) continue;
        if (m->pairs && !all)
            mean_of_pairs(h->w, step / m->every);
        else
            mean(h->w);
        if (m->outer) outer_by_hand(&outer, h->w);
        if (!m->state) continue;
        if (m->pairs && !all)
            mean_of_pairs(h->slot, step / m->every);
        else
            mean(h->slot);
    }
}

static void write_data(void) {
    FILE *f = fopen(scratch_path("toy.csv"), "w");
    assert_non_null(f);
    for (int s = 0; s < SAMPLES; s++) fprintf(f, "%g,%g,%g\n", feature(s, 0), feature(s, 1), target(s));
    assert_int_equal(fclose(f), 0);
    float w[FEATURES] = {0.5f, -1};
    const struct st_tensor t = {
        .name = "linear1.weight", .dtype = "F32", .ndim = 2, .dim = {1, FEATURES}, .data = w, .bytes = sizeof w};
    const char *const metadata[][2] = {{"format", "pt"}, {NULL}};
    uint32_t crc;
    int64_t bytes;
    assert_ok(st_write(scratch_path("toy.safetensors"), &t, 1, metadata, &crc, &bytes));
}

static void assert_by_hand(const struct by_hand *h, const char *what) {
    char hex[SHA256_TEXT], path[700], line[1024];
    float w[FEATURES];
    struct sha256 s;
    for (int i = 0; i < FEATURES; i++) w[i] = (float)h->w[0][i];
    sha256_init(&s);
    sha256_update(&s, w, sizeof w);
    sha256_hex(s, hex);
    if (strcmp(hex, program_string(&other, "weights_sha256")) != 0)
        fail_msg("%s: not the weights %.9g, %.9g\n%s", what, h->w[0][0], h->w[0][1], other.err);
    snprintf(path, sizeof path, "%s/metrics.jsonl", program_string(&other, "run_dir"));
    FILE *f = fopen(path, "r");
    int steps = 0;
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        const char *loss = strstr(line, "\"loss\":");
        if (!strstr(line, "\"ms\":") || !loss) continue;
        assert_true(steps < STEPS && atoi(line + strlen("{\"step\":")) == steps + 1);
        double got = atof(loss + strlen("\"loss\":")), wanted = h->loss[steps++];
        if (fabs(got - wanted) > 1e-6 * (1 + wanted))
            fail_msg("%s: loss of step %d is %g, not %g", what, steps, got, wanted);
    }
    fclose(f);
    assert_int_equal(steps, STEPS);
}

static void as_by_hand(void **state) {
    (void)state;
    static const char all[] = "comm.compress={kind: topk, ratio: 1}"; /* what each rank has moved travels, whole */
    static const struct {
        int ranks;
        struct meetings meetings;
        const char *shards, *compress;
    } ways[] = {{2, {1000, 1000, .pairs = false}, "2"},   {2, {2, 1000, .pairs = false}, "2"},
                {2, {2, 1000, .pairs = false}, "4"},      {2, {4, 3, .pairs = false}, "2"},
                {2, {3, 1000, .pairs = false}, "2"},      {2, {1, 1000, .pairs = true}, "2"},
                {4, {1, 1000, .pairs = true}, "4"},       {4, {2, 1000, .pairs = true}, "4"},
                {4, {1, 3, .pairs = true}, "4"},          {2, {2, 1000, .outer = true}, "2"},
                {2, {3, 1000, .outer = true}, "2"},       {2, {3, 2, .outer = true}, "2"},
                {2, {2, 1000, .pairs = false}, "4", all}, {2, {4, 3, .pairs = false}, "2", all},
                {2, {2, 1000, .outer = true}, "2", all},  {2, {3, 2, .outer = true}, "2", all}};
    write_data();
    char data[700], model[700], sync[128], eval[64], batch[64], devices[32];
    snprintf(data, sizeof data, "data={train: '%s', val: '%s', normalize: off, normalize_target: false}",
             scratch_path("toy.csv"), scratch_path("toy.csv"));
    snprintf(model, sizeof model, "model={layers: [{linear: {units: 1, bias: false}}], init: '%s'}",
             scratch_path("toy.safetensors"));
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        for (int average = 0; average < 2; average++) {
            struct by_hand h;
            struct meetings m = ways[i].meetings;
            m.state = average;
            ranks = ways[i].ranks;
            train_by_hand(&h, &m, 3);
            snprintf(sync, sizeof sync, "ddp.sync={every: %d, with: %s, state: %s%s}", m.every,
                     m.pairs ? "neighbour" : "all", average ? "average" : "local",
                     m.outer ? ", outer: {lr: 0.5, momentum: 0.5}" : "");
            snprintf(eval, sizeof eval, "eval=%dst", m.eval);
            snprintf(batch, sizeof batch, "batch={size: %d, shards: %s}", BATCH, ways[i].shards);
            snprintf(devices, sizeof devices, "devices=cpu:%d", ranks);
            program_train(&other,
                          SETS(data, model, "mode=ddp", devices, "threads=1", "loss=mse", "seed=3", "train=6st",
                               "checkpoint=off", "optimizer={name: sgd, lr: 0.25, momentum: 0.5}"),
                          SETS(sync, eval, batch, ways[i].compress ? ways[i].compress : "comm.compress=none"));
            assert_by_hand(&h, sync);
        }
}

/* ---- a network ---- */

static const char *const network[] = {"model={zoo: mlp, hidden: [128, 64], dropout: 0.1}",
                                      "data={set: digits, train: 500, val: 50}",
                                      "batch={size: 64, shards: 4}",
                                      "train=64st",
                                      "threads=1",
                                      "eval=end",
                                      "checkpoint=off",
                                      "mode=ddp",
                                      "devices=cpu:4",
                                      "optimizer={name: adam, lr: 0.002}",
                                      NULL};

static void the_same_each_time(void **state) {
    (void)state;
    program_train(&control, network, SETS("ddp.sync=8"));
    assert_non_null(strstr(control.err, "weights averaged every 8 steps, optimizer state local"));
    assert_null(strstr(control.err, "all meet every"));
    program_train(&other, network, SETS("ddp.sync=8"));
    assert_true(same(&control, &other));
    program_train(&other, network, SETS("ddp.sync=8", "comm.link=tcp"));
    assert_true(same(&control, &other));
    program_train(&other, network, SETS("ddp.sync=8", "ddp.bucket=0"));
    assert_true(same(&control, &other));
    program_train(&other, network, SETS("ddp.sync=8", "eval=6st", "checkpoint=5st"));
    assert_non_null(
        strstr(other.err, "every 8 steps, optimizer state local, and all meet every 5 steps to evaluate or save"));
    program_train(&other, network, SETS("ddp.sync={every: 8, state: average}"));
    assert_false(same(&control, &other));
    assert_non_null(strstr(other.err, "optimizer state too"));
    double last = program_number(&other, "val.loss");
    assert_true(last < 1.2); /* of 2.3: it learns */
    program_train(&control, network, SETS("ddp.sync={every: 4, with: neighbour}", "devices=cpu:3"));
    assert_non_null(strstr(control.err, "weights averaged with a neighbour every 4 steps"));
    program_train(&other, network, SETS("ddp.sync={every: 4, with: neighbour}", "devices=cpu:3", "comm.link=tcp"));
    assert_true(same(&control, &other));
    assert_true(program_number(&other, "val.loss") < 1.5);
}

/* Where ranks meet in every step, or there is one, nothing is different from ddp. */
static void is_ddp_at_its_ends(void **state) {
    (void)state;
    program_train(&control, network, SETS("mode=single", "devices=cpu:1"));
    program_train(&other, network, SETS("ddp.sync=1"));
    assert_true(same(&control, &other));
    program_train(&other, network, SETS("ddp.sync={every: 1, state: average}"));
    assert_true(same(&control, &other));
    program_train(&other, network, SETS("ddp.sync=8", "devices=cpu:1"));
    assert_true(same(&control, &other));
    program_train(&other, network, SETS("ddp.sync=8"));
    assert_false(same(&control, &other));
}

/* Of a rank, in a step, without what it sends at the start and at the end. */
static double bytes_a_step(const char *sync, const char *algorithm) {
    double sent[2];
    for (int i = 0; i < 2; i++) {
        program_train(&other, network, SETS(sync, algorithm, i ? "train=128st" : "train=64st"));
        struct pool *pool;
        assert_ok(pool_create(&pool));
        const struct json_value *bytes = json_get(program_json(&other, pool), "bytes");
        sent[i] = json_get(bytes, "sent")->children[1].number;
        pool_free(pool);
    }
    return (sent[1] - sent[0]) / 64;
}

static void sends_less(void **state) {
    (void)state;
    double ddp = bytes_a_step("ddp.sync=1", "comm.algorithm=ring");
    static const int every[] = {2, 8, 64};
    for (int i = 0; i < 3; i++) {
        char sync[64];
        snprintf(sync, sizeof sync, "ddp.sync=%d", every[i]);
        double ratio = ddp / bytes_a_step(sync, "comm.algorithm=ring");
        if (fabs(ratio / every[i] - 1) > 0.02) fail_msg("%s: %g times fewer bytes", sync, ratio);
    }
    /* adam's state is twice the weights */
    double ratio = ddp / bytes_a_step("ddp.sync={every: 12, state: average}", "comm.algorithm=direct");
    if (fabs(ratio / 4 - 1) > 0.1) fail_msg("with the state: %g times fewer bytes", ratio);
}

/* A meeting takes at least 22 ms by its port: 0.44 MB at 20 MB/s. A median step has an eighth of it, where computing
 * takes a tenth of that. */
static void a_step_has_its_share_of_a_meeting(void **state) {
    (void)state;
    program_train(&other, network, SETS("ddp.sync=8", "comm.emulate=160Mbit"));
    double p50 = program_number(&other, "step_ms.p50");
    if (!(p50 > 2.7)) fail_msg("a median step takes %g ms", p50);
}

/* What is exchanged is what weights have moved: 260 bytes for 1024. */
static void meetings_in_fewer_bytes(void **state) {
    (void)state;
    static const char *const syncs[] = {"ddp.sync=8", "ddp.sync={every: 8, outer: 0.7}"};
    for (int i = 0; i < 2; i++) {
        program_train(&control, network, SETS(syncs[i]));
        program_train(&other, network, SETS(syncs[i], "comm.compress=int8"));
        assert_false(same(&control, &other));
        assert_non_null(strstr(other.err, ", outer gradients compressed (int8), weights averaged every 8 steps"));
        double ratio = program_number(&other, "compress.ratio");
        assert_true(ratio > 3.5 && ratio < 4);
        assert_true(program_number(&other, "val.loss") < program_number(&control, "val.loss") + 0.1);
        program_train(&control, network, SETS(syncs[i], "comm.compress=int8", "comm.link=tcp", "ddp.overlap=false"));
        assert_true(same(&control, &other));
    }
}

/* ---- stopping and going on ---- */

static void resumes(void **state) {
    (void)state;
    static const struct {
        const char *sync, *compress;
        bool exact;
    } ways[] = {{"ddp.sync={every: 6, state: average}", "none", true},
                {"ddp.sync={every: 6, state: local}", "none", false},
                {"ddp.sync={every: 6, state: average, outer: 0.7}", "none", true},
                {"ddp.sync={every: 6, state: average, outer: {lr: 0.5, momentum: 0.8}}", "bf16", true}};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        char dir[600], set[700], resume[700], compress[64];
        snprintf(compress, sizeof compress, "comm.compress=%s", ways[i].compress);
        snprintf(dir, sizeof dir, "%s%d", scratch_path("resume-"), (int)i);
        snprintf(set, sizeof set, "log.dir=%s", dir);
        snprintf(resume, sizeof resume, "checkpoint={every: 10st, resume: '%s'}", dir);
        program_train(&control, network, SETS(ways[i].sync, compress, "checkpoint=10st"));
        assert_null(strstr(control.err, "the optimizer's state in the checkpoint"));
        program_train(&other, network, SETS(ways[i].sync, compress, set, "train=30st", "checkpoint=10st"));
        program_train(&other, network, SETS(ways[i].sync, compress, resume));
        assert_non_null(strstr(other.err, "at step 30"));
        /* With the state of one rank for all, the run goes on as another one, and says so. */
        assert_true(same(&control, &other) == ways[i].exact);
        assert_true(!!strstr(other.err, "the optimizer's state in the checkpoint is rank 0's") == !ways[i].exact);
        assert_null(strstr(other.err, "no momentum of an outer step"));
    }
    char dir[600], resume[700];
    snprintf(dir, sizeof dir, "%s0", scratch_path("resume-"));
    snprintf(resume, sizeof resume, "checkpoint={every: 10st, resume: '%s'}", dir);
    program_train(&other, network, SETS(ways[2].sync, resume));
    assert_non_null(strstr(other.err, "the checkpoint has no momentum of an outer step: it begins at zero"));
    snprintf(dir, sizeof dir, "%s2", scratch_path("resume-"));
    snprintf(resume, sizeof resume, "checkpoint={every: 10st, resume: '%s'}", dir);
    program_train(&other, network, SETS("mode=single", "devices=cpu:1", resume));
}

static void stops_together(void **state) {
    (void)state;
    char dir[600], set[700], resume[700];
    static const char sync[] = "ddp.sync={every: 8, state: average}", length[] = "train=480st";
    snprintf(dir, sizeof dir, "%s", scratch_path("stopped"));
    snprintf(set, sizeof set, "log.dir=%s", dir);
    snprintf(resume, sizeof resume, "checkpoint={every: 1000st, resume: '%s'}", dir);
    program_train(&control, network, SETS(sync, length));
    program_train_start(&other, network, SETS(sync, length, set, "checkpoint=1000st", "log.every=1st"));
    program_wait_text(&other, "step=16/", 60);
    kill(other.pid, SIGTERM);
    program_train_end(&other);
    if (other.code != 143) fail_msg("exit code %d\n%s", other.code, other.err);
    program_train(&other, network, SETS(sync, length, resume));
    const char *at = strstr(other.err, "at step ");
    assert_non_null(at);
    int step = atoi(at + strlen("at step "));
    assert_true(step >= 16 && step < 480 && step % 8 == 0);
    assert_true(same(&control, &other));
}

static void diverges_together(void **state) {
    (void)state;
    program_train_start(&other, network, SETS("ddp.sync=16", "optimizer={name: sgd, lr: 1e30}"));
    program_train_end(&other);
    if (other.code != 1 || !strstr(other.err, "diverged: the loss of step 2 is") || strstr(other.err, "lost") ||
        strstr(other.err, "has left"))
        fail_msg("exit code %d\n%s", other.code, other.err);
}

/* The second batch has one sample, of four devices' first. The others learn nothing from it, but for
 * the one whose gradient gets a NaN. */
static void a_nan_without_samples(void **state) {
    (void)state;
    static const char *const faults[] = {"none", "nan"};
    for (int i = 0; i < 2; i++) {
        char fault[80];
        snprintf(fault, sizeof fault, "inject.fault={device: 3, step: 2, kind: %s}", faults[i]);
        program_train_start(&other, network,
                            SETS("ddp.sync=4", "data={set: digits, train: 65, val: 50}", "train=8st", fault));
        program_train_end(&other);
        if (other.code != i || !strstr(other.err, "diverged: the loss of step 3 is nan") != !i)
            fail_msg("%s: exit code %d\n%s", fault, other.code, other.err);
    }
}

/* A training loss is known at meetings: it ends the run at one of them, and not before. */
static void ends_at_a_target(void **state) {
    (void)state;
    program_train(&other, network, SETS("ddp.sync=8", "train={for: 480st, until: {train.loss: 1.0}}"));
    int64_t steps = (int64_t)program_number(&other, "steps");
    assert_true(steps > 8 && steps < 480 && steps % 8 == 0);
    assert_true(program_number(&other, "train.loss") <= 1.0);
}

static void refused(void **state) {
    (void)state;
    static const char *const bad[][3] = {
        {"mode=dp", "mode is not 'ddp'"},
        {"mode=single", "mode is not 'ddp'"},
        {"deterministic=bitwise", "deterministic is 'bitwise'"},
        {"optimizer={name: sgd, shard: true}", "optimizer.shard has each rank step a part"},
        {"comm.compress=int8", "comm.compress is for a mean of all devices", "ddp.sync={every: 2, with: neighbour}"},
        {"sync_batchnorm=true", "sync_batchnorm has ranks meet in every step"},
        {"ddp.sync=0", "'ddp.sync' must be an integer >= 1"},
        {"ddp.sync={every: 2, state: none}", "'ddp.sync.state' must be one of local, average"},
        {"ddp.sync={every: 2, with: neighbor}", "did you mean 'neighbour'?"},
        {"ddp.sync={every: 1, outer: 0.7}", "but ddp.sync.every is 1"},
        {"ddp.sync={every: 2, with: neighbour, outer: 0.7}", "but ddp.sync.with is 'neighbour'"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const char *devices = strstr(bad[i][0], "single") ? "devices=cpu:1" : "devices=cpu:2";
        program_run(&other, 20, "run", "--set", devices, "--set", "ddp.sync=4", "--set", bad[i][0], "--set",
                    bad[i][2] ? bad[i][2] : "seed=0", NULL);
        if (other.code != 78 || !strstr(other.err, bad[i][1]))
            fail_msg("%s: exit code %d\n%s", bad[i][0], other.code, other.err);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_by_hand),
        cmocka_unit_test(the_same_each_time),
        cmocka_unit_test(is_ddp_at_its_ends),
        cmocka_unit_test(sends_less),
        cmocka_unit_test(meetings_in_fewer_bytes),
        cmocka_unit_test(a_step_has_its_share_of_a_meeting),
        cmocka_unit_test(resumes),
        cmocka_unit_test(stops_together),
        cmocka_unit_test(diverges_together),
        cmocka_unit_test(a_nan_without_samples),
        cmocka_unit_test(ends_at_a_target),
        cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests_name("local SGD", tests, NULL, NULL);
}
