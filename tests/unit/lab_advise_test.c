/* Advice, against what formulas say of a step of known bytes and computing: which way is the fastest, where another
 * one is, which is the simplest that comes near, what memory forbids. */
#include "engine/settings/exchange.h"

#include "engine/base/file.h"
#include "engine/settings/run_config.h"
#include "tests/harness/harness.h"
#include "tests/harness/xml.h"

#include "lab/advise/advise.h"
#include "lab/predict/planned.h"
#include "modes/share/share.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define assert_near(got, expected, share) assert_true(fabs((got) - (expected)) <= (share)*fabs((double)(expected)))

/* One tensor of 2 million floats, which is one bucket, ready when backward ends; nothing overlaps. */
enum { FLOATS = 2000000, BATCH = 64 };
static struct tensor_info tensors[] = {{.name = "w", .offset = HEADER_FLOATS, .count = FLOATS - HEADER_FLOATS}};
static struct model model = {.nparams = 1, .params = tensors, .arena_floats = FLOATS};
static double ready[] = {1};
static struct measured_step step;
static struct run_config config;
enum { ADVISE_SINGLE, ADVISE_DP, ADVISE_DDP, ADVISE_PS, ADVISE_FSDP, ADVISE_PIPELINE }; /* modes.def's order */
static struct advise_ask ask;
static struct advice a;
static struct pool *pool;
static const double K = 4.0 * FLOATS;

/* comp: seconds of load, forward and backward of the whole batch. */
static void describe(double comp, double update, struct wire port, int devices) {
    step = (struct measured_step){.load = 0.1 * comp,
                                  .forward = 0.3 * comp,
                                  .backward = 0.6 * comp,
                                  .update = update,
                                  .work = 1,
                                  .batch = BATCH,
                                  .passes = 1,
                                  .samples = BATCH,
                                  .model = &model,
                                  .ready = ready,
                                  .activations = 1e6,
                                  .slots = 1};
    static const char *stages[] = {"auto"};
    config = (struct run_config){.pipeline = {.stages = {.items = stages, .count = 1}, .schedule = PIPELINE_1F1B},
                                 .name = "known",
                                 .devices = {.kind = "cpu", .count = 1},
                                 .batch = {.size = BATCH, .shards = 8, .accumulate = 1},
                                 .dp = {.server = SERVER_SHARED, .overlap = DP_OVERLAP_OFF},
                                 .ps = {.servers = 1, .partition = INT64_MAX, .overlap = false},
                                 .ddp = {.sync = {.every = 1, .with = "all"},
                                         .reduce = {.with = "sum"},
                                         .bucket = {.first = 25 << 20, .cap = 25 << 20},
                                         .overlap = false},
                                 .comm = {.algorithm = "auto", .order = COMM_ORDER_TREE}};
    ask = (struct advise_ask){.config = &config, .nmeasured = 1, .usual = SCHEMES, .memory = INFINITY};
    ask.measured[0].precision = "f32";
    ask.measured[0].step = &step;
    for (int m = 0; m < ADVISE_MODES; m++) ask.port[m] = port;
    for (int n = 1; n <= devices; n *= 2) ask.devices[ask.ndevices++] = n;
}

static const struct advise_row *row(int i) {
    assert_true(i >= 0 && i < a.nrows);
    return &a.row[i];
}

static int set_up(void **state) {
    (void)state;
    return pool_create(&pool) != ERR_NONE;
}

static int tear_down(void **state) {
    (void)state;
    pool_free(pool);
    return 0;
}

/* ---- the fastest, and where it turns over ----------------------------------------------------- */

/* comp + u alone, (comp + u) / N + 2 (N - 1) / N K beta where each device updates a slice: as long as each other at
 * beta = (comp + u) / 2 K, whatever N is. */
static void bandwidth_turns_where_the_formulas_meet(void **state) {
    (void)state;
    const double comp = 90e-3, update = 10e-3, meet = 2 * K / (comp + update);
    describe(comp, update, (struct wire){0, 1 / (1.7 * meet)}, 8);
    assert_ok(advise_decide(&ask, pool, &a));
    assert_int_equal(row(a.fastest)->as.devices, 8);
    assert_near(row(a.fastest)->answer.result.step, 0.1 / 8 + 2 * 7 / 8. * K / (1.7 * meet), 0.03);
    assert_near(row(a.fastest)->rate, BATCH / row(a.fastest)->answer.result.step, 1e-9);
    assert_int_equal(a.turned, 8);
    assert_int_equal(a.rates.n, 1);
    assert_int_equal(a.rates.turn[0].from, ADVISE_SINGLE);
    assert_true(a.rates.turn[0].to == ADVISE_DP || a.rates.turn[0].to == ADVISE_DDP);
    assert_near(a.rates.turn[0].at, meet, 0.05);
    for (int r = 0; r < ADVISE_RATES; r++) {
        assert_int_equal(a.map[r][0], ADVISE_SINGLE);
        if (fabs(log(advise_rate(r) / meet)) < 0.1) continue;
        for (int d = 1; d < 4; d++) assert_int_equal(a.map[r][d] == ADVISE_SINGLE, advise_rate(r) < meet);
    }
    for (int m = 0; m < ADVISE_MODES; m++) ask.port[m] = (struct wire){0, 1 / (0.5 * meet)};
    assert_ok(advise_decide(&ask, pool, &a));
    assert_int_equal(row(a.fastest)->as.mode, ADVISE_SINGLE);
    assert_near(row(a.fastest)->answer.result.step, comp + update, 1e-9);
    assert_int_equal(a.devices.n, 0);
}

/* By rank 0 (a plug-in): comp / N + u + 2 (N - 1) K beta, one way of ddp beside the engine's. */
static void a_plug_in_is_one_way(void **state) {
    int found = 0;
    (void)state;
    describe(90e-3, 10e-3, (struct wire){0, 1e-10}, 4);
    assert_ok(way_open(ENGINE_SOURCE_DIR "/examples/plugins/algorithm.py", &ask.own));
    assert_ok(advise_decide(&ask, pool, &a));
    for (int i = 0; i < a.nrows; i++) {
        const struct advise_row *r = row(i);
        const char *set[ADVISE_SETS];
        int n, last;
        if (r->as.way.scheme != SCHEME_OWN || r->as.bucket) continue;
        found++;
        assert_near(r->answer.result.step,
                    0.09 / (double)r->as.devices + 0.01 + 2 * (double)(r->as.devices - 1) * K * 1e-10, 0.03);
        assert_true(isnan(r->answer.formula));
        assert_non_null(strstr(advise_text(&a, &r->as), "ddp, algorithm.py"));
        assert_ok(advise_sets(&ask, &r->as, pool, set, &n));
        for (last = 0; last < n && strncmp(set[last], "comm.algorithm=/", 16) != 0;) last++;
        assert_true(last < n);
    }
    assert_int_equal(found, 2); /* on two devices and on four */
}

/* Of a batch x times as large computing takes x comp, and communication what it took. */
static void a_larger_batch_is_worth_sharing(void **state) {
    (void)state;
    const double comp = 50e-3, beta = 4 * comp / (2 * K);
    describe(comp, 0, (struct wire){0, beta}, 4);
    assert_ok(advise_decide(&ask, pool, &a));
    assert_int_equal(row(a.fastest)->as.mode, ADVISE_SINGLE);
    assert_int_equal(a.turned, 4);
    assert_int_equal(a.batches.n, 1);
    assert_int_equal(a.batches.turn[0].from, ADVISE_SINGLE);
    assert_near(a.batches.turn[0].at, 4 * BATCH, 0.05);
}

/* Small messages: a star is 2 alpha + 2 (N - 1) K beta for server and all-reduce alike, of which the server is the
 * simpler; halving and doubling takes 2 log2 N alpha + 2 (N - 1) / N K beta. */
static void a_server_is_for_latency(void **state) {
    (void)state;
    const double alpha = 5e-3, comp = 10, meet = (2 * 7 - 2 * 7 / 8.) * K / (4 * alpha);
    describe(comp, 0, (struct wire){alpha, 1e-12}, 8);
    assert_ok(advise_decide(&ask, pool, &a));
    assert_int_equal(row(a.at[3].fastest)->as.mode, ADVISE_DP);
    assert_string_equal(row(a.at[3].fastest)->as.way.of->set, "dp.server=shared");
    assert_true(a.rates.n >= 1);
    const struct advise_turn *last = &a.rates.turn[a.rates.n - 1];
    assert_int_equal(last->from, ADVISE_DDP);
    assert_int_equal(last->to, ADVISE_DP);
    assert_near(last->at, meet, 0.25); /* pieces of a server's sum hide some of its adding */
}

/* A worker sends K, the last partition of which comes back when all else has: 16 partitions take 17 times K / 16, with as
 * many servers as workers; among eight ranks that are all workers 2 * 7 / 8 K. Computing takes a fourth and an eighth. */
static void servers_are_for_ports(void **state) {
    (void)state;
    const double beta = 1e-8, comp = 4 * K * beta;
    describe(comp, 0, (struct wire){0, beta}, 8);
    config.ps.partition = (int64_t)K / 16;
    config.ps.overlap = true;
    assert_ok(advise_decide(&ask, pool, &a));
    const struct advise_row *r = row(a.at[3].fastest);
    assert_int_equal(r->as.mode, ADVISE_PS);
    assert_int_equal(r->as.way.count, 4);
    assert_int_equal(advise_computing(&ask, &r->as), 4);
    assert_near(r->answer.result.step, comp / 4 + 17 / 16. * K * beta, 0.05);
    assert_near(row(a.at[3].best[ADVISE_DDP])->answer.result.step, comp / 8 + 2 * 7 / 8. * K * beta, 0.05);
    assert_string_equal(advise_text(&a, &r->as), "8 devices, ps, servers apart (4)");
    assert_string_equal(advise_words(&a, &r->as), "--set mode=ps --devices cpu:4 --set ps.servers=4");
    assert_int_equal(a.at[1].best[ADVISE_PS], -1); /* two devices: one worker has nobody to share with */
}

/* ---- the simplest ------------------------------------------------------------------------------ */

/* With comp = 1.08 * 2 K beta a step on N devices is 1 + 0.08 / N: eight are the fastest, two within 5 % of them, one
 * device is not. On two a server takes 2 K beta instead of 1, and a sharded one is less simple than ddp. */
static void the_simplest_is_near_and_first_in_order(void **state) {
    (void)state;
    const double beta = 1e-8, unit = 2 * K * beta;
    describe(1.08 * unit, 0, (struct wire){0, beta}, 8);
    assert_ok(advise_decide(&ask, pool, &a));
    assert_int_equal(row(a.fastest)->as.devices, 8);
    const struct advise_row *r = row(a.simplest);
    assert_int_equal(r->as.devices, 2);
    assert_int_equal(r->as.mode, ADVISE_DDP);
    assert_true(r->as.way.scheme == SCHEMES && way_reduces(&r->as.way) && !r->as.bucket);
    assert_true(r->rate * 1.05 >= row(a.fastest)->rate);
    assert_true(row(0)->rate * 1.05 < row(a.fastest)->rate);
}

/* The way of a mode that this asks for; NULL: that nothing has to ask for. */
static struct way way_of(int mode, const char *set, enum scheme scheme) {
    const struct mode_row *row = mode_kinds(&(int){0})[mode];
    const struct mode_way *way = row->ways;
    while (set ? !way->set || strcmp(way->set, set) != 0 : way->set || !way->order) way++;
    return (struct way){row, way, scheme, 0};
}

static void what_is_simpler_is_one_order(void **state) {
    (void)state;
    const struct way alone = way_of(ADVISE_SINGLE, NULL, SCHEMES),
                     served = way_of(ADVISE_DP, "dp.server=shared", SCHEMES),
                     reduced = way_of(ADVISE_DDP, NULL, SCHEMES);
    const struct advise_way order[] = {
        {1, ADVISE_SINGLE, alone, 0, 0},
        {1, ADVISE_SINGLE, alone, 0, 1},
        {2, ADVISE_DP, served, 0, 0},
        {2, ADVISE_DDP, reduced, 0, 0},
        {2, ADVISE_DDP, reduced, 65536, 0},
        {2, ADVISE_DDP, way_of(ADVISE_DDP, NULL, SCHEME_ring), 0, 0},
        {2, ADVISE_DP, way_of(ADVISE_DP, "dp.server=sharded", SCHEMES), 0, 0},
        {2, ADVISE_DDP, way_of(ADVISE_DDP, "optimizer.shard=true", SCHEMES), 0, 0},
        {2, ADVISE_DP, way_of(ADVISE_DP, "dp.server=dedicated", SCHEMES), 0, 0},
        {2, ADVISE_FSDP, way_of(ADVISE_FSDP, "fsdp.reshard=never", SCHEMES), 0, 0},
        {2, ADVISE_FSDP, way_of(ADVISE_FSDP, "fsdp.reshard=forward", SCHEMES), 0, 0},
        {2, ADVISE_PIPELINE, way_of(ADVISE_PIPELINE, NULL, SCHEMES), 0, 0},
        {2, ADVISE_PIPELINE, way_of(ADVISE_PIPELINE, "pipeline.schedule=gpipe", SCHEMES), 0, 0},
        {2, ADVISE_DP, served, 0, 1},
        {4, ADVISE_DP, served, 0, 0},
    };
    enum { N = sizeof order / sizeof *order };
    for (int i = 0; i < N; i++)
        for (int k = 0; k < N; k++) {
            const struct advise_row x = {.as = order[i], .rate = 1}, y = {.as = order[k], .rate = 1};
            assert_int_equal(advise_simpler(&x, &y), i < k);
        }
    const struct advise_row fast = {.as = order[2], .rate = 2}, slow = {.as = order[2], .rate = 1};
    assert_true(advise_simpler(&fast, &slow) && !advise_simpler(&slow, &fast));
}

/* Another precision that takes half as long is the fastest; what is configured stands beside it. */
static void a_precision_is_a_way_of_its_own(void **state) {
    (void)state;
    describe(0.1, 0, (struct wire){0, 1e-6}, 2);
    struct measured_step half = measured_grow(&step, 0.5);
    ask.measured[1].precision = "bf16";
    ask.measured[1].step = &half;
    ask.nmeasured = 2;
    assert_ok(advise_decide(&ask, pool, &a));
    assert_int_equal(row(a.fastest)->as.measured, 1);
    assert_string_equal(advise_words(&a, &row(a.fastest)->as),
                        "--set mode=single --devices cpu:1 --set precision=bf16");
    assert_int_equal(row(a.configured[0])->as.measured, 0);
    assert_near(row(a.fastest)->rate / row(a.configured[0])->rate, 2, 1e-6);
}

/* ---- memory ------------------------------------------------------------------------------------- */

/* Weights, a sum of gradients and a slot of the optimizer are three arenas on each device; where everyone updates a
 * part, the slot is a quarter of one on four devices. Activations are a megabyte at most. Mode fsdp cannot cut the one
 * tensor, and three such units may be on their way. */
static void memory_forbids(void **state) {
    (void)state;
    describe(10, 0, (struct wire){0, 1e-9}, 4);
    ask.memory = 2.3 * K + 1e6;
    assert_ok(advise_decide(&ask, pool, &a));
    for (int i = 0; i < a.nrows; i++) {
        const struct advise_way *w = &a.row[i].as;
        const struct exchange_plan *plan = &w->way.of->share->plan;
        bool parts = plan->update == UPDATE_BY_OWNERS && !plan->lean;
        assert_int_equal(a.row[i].fits, w->devices == 4 && parts && !w->way.count); /* two servers: half a slot */
    }
    assert_int_equal(a.at[0].fastest, -1);
    assert_int_equal(a.at[1].fastest, -1);
    assert_int_equal(row(a.at[2].fastest)->as.devices, 4);
    ask.memory = 2 * K;
    assert_int_equal(advise_decide(&ask, pool, &a), ERR_CONFIG);
    assert_string_equal(error_message(), "nothing fits in 15.3 MB a device");
    assert_non_null(strstr(error_hint(), "4 devices, dp, sharded server"));
}

/* What is faster and does not fit is said. */
static void memory_bars_the_fastest(void **state) {
    (void)state;
    describe(10, 0, (struct wire){0, 1e-9}, 2);
    struct measured_step half = measured_grow(&step, 0.5);
    half.activations = 1e9;
    ask.measured[1].precision = "bf16";
    ask.measured[1].step = &half;
    ask.nmeasured = 2;
    ask.memory = 1e8;
    assert_ok(advise_decide(&ask, pool, &a));
    assert_int_equal(row(a.fastest)->as.measured, 0);
    assert_int_equal(row(a.barred)->as.measured, 1);
    assert_false(row(a.barred)->fits);
}

/* ---- stages ------------------------------------------------------------------------------------- */

/* A network of two linear layers, of which each takes half of the time, on 64 samples in 8 shards; the first has more than
 * 99 % of the weights. */
enum { PIXELS = 784, HIDDEN = 256, MICRO = 8 };
static const double FIRST = 4. * (PIXELS * HIDDEN + HIDDEN); /* bytes of the first layer's weights */
static struct run_settings settings;
static struct planned network;

static void describe_stages(double comp, double update, double beta, int devices) {
    static double half[8], all_ready[8];
    static const char *const sets[] = {"data=digits", "model={zoo: mlp, hidden: [256]}", "batch={size: 64, shards: 8}",
                                       "optimizer=sgd", "devices=cpu:1"};
    static const char *const algorithms[] = {"direct", NULL};
    const struct run_ask how = {.sets = sets, .nsets = 5, .modes = mode_kinds(&(int){0}), .algorithms = algorithms};
    char *report;
    struct config_errors *e;
    if (run_settings_load(&how, &settings, &report) != ERR_NONE) fail_msg("%s", report);
    assert_ok(config_errors_create(&e));
    assert_ok(planned_open(&settings.config, "ref", e, &network));
    config_errors_free(e);
    const struct model *m = network.model;
    assert_true(m->nnodes <= 8 && m->nparams <= 8);
    describe(comp, update, (struct wire){0, beta}, devices);
    for (int k = 0; k < m->nnodes; k++) half[k] = 0;
    for (int i = 0; i < m->nparams; i++) half[m->params[i].node] = 0.5, all_ready[i] = 1;
    step.model = m, step.ready = all_ready, step.by_layer = half, step.unit = sizeof(float);
    ask.config = &settings.config;
}

static void close_stages(void) {
    planned_close(&network);
    run_settings_free(&settings);
}

static const struct advise_row *staged_row(int64_t devices, int stages, bool gpipe) {
    for (int i = 0; i < a.nrows; i++) {
        const struct advise_way *w = &a.row[i].as;
        if (w->mode == ADVISE_PIPELINE && w->devices == devices && w->way.count == stages &&
            !strcmp(w->way.of->name, gpipe ? "gpipe" : "1f1b"))
            return &a.row[i];
    }
    return NULL;
}

/* Of eight micro-batches two stages wait for one; two copies have four micro-batches each, and add the gradients of the
 * first layer, which are K bytes through each port of two. What passes the border in a micro-batch is 1 % of that. Five stages are more
 * than the network can be cut into. */
static void stages_take_what_the_bubble_says(void **state) {
    (void)state;
    const double comp = 90e-3, update = 10e-3, beta = comp / FIRST;
    describe_stages(comp, update, beta, 4);
    ask.devices[ask.ndevices++] = 5;
    assert_ok(advise_decide(&ask, pool, &a));
    const double load = 0.1 * comp, micro = 0.9 * comp / 8 / 2, border = 4. * MICRO * HIDDEN * beta;
    const struct advise_row *two = staged_row(2, 2, false), *copies = staged_row(4, 2, false);
    assert_true(two && copies && staged_row(2, 2, true) && staged_row(4, 4, false) == NULL);
    double free = load + (8 + 1) * micro + update / 2;
    assert_true(two->answer.result.step >= free * (1 - 1e-9) && two->answer.result.step <= free + 9 * 2 * border);
    free = load / 2 + (4 + 1) * micro + FIRST * beta + update / 2;
    assert_near(copies->answer.result.step, free, 0.05);
    assert_int_equal(row(a.fastest)->as.mode,
                     ADVISE_PIPELINE); /* others send FIRST, which takes as long as computing */
    assert_string_equal(advise_text(&a, &two->as), "2 devices, pipeline, stages (2)");
    assert_string_equal(advise_words(&a, &two->as), "--set mode=pipeline --devices cpu:2 --set pipeline.stages=2");
    assert_near(a.limits.bubble, micro / row(a.fastest)->answer.result.step, 0.05);
    assert_int_equal(a.at[3].best[ADVISE_PIPELINE], -1);
    assert_int_equal(a.notes.n, 1);
    assert_string_equal(a.notes.text[0], "Mode pipeline is left out on 5 devices: 5 stages, but model 'mlp' can be cut "
                                         "into 3 at most: at places where only the output of one layer passes.");
    close_stages();
}

/* The first stage has its weights, as many momenta, the sums of 8, 4, 2 and 1 micro-batches, and the outputs of each
 * micro-batch that is between forward and backward: two of them, or all eight. */
static void stages_hold_their_layers(void **state) {
    (void)state;
    const double outputs = 4. * MICRO * HIDDEN;
    describe_stages(1, 0, 0, 2);
    assert_ok(advise_decide(&ask, pool, &a));
    double early = staged_row(2, 2, false)->answer.memory, late = staged_row(2, 2, true)->answer.memory;
    assert_near(late - early, 6 * outputs, 1e-9);
    assert_true(early >= 6 * FIRST + 2 * outputs && early < 6.1 * FIRST);
    ask.memory = (early + late) / 2;
    assert_ok(advise_decide(&ask, pool, &a));
    assert_true(staged_row(2, 2, false)->fits && !staged_row(2, 2, true)->fits);
    close_stages();
}

/* ---- what it says -------------------------------------------------------------------------------- */

static void limits_are_what_would_be_saved(void **state) {
    (void)state;
    const double beta = 1e-8, comp = 4 * K * beta; /* on two devices K beta of 3 K beta is sent */
    describe(comp, 0, (struct wire){0, beta}, 2);
    assert_ok(advise_decide(&ask, pool, &a));
    assert_int_equal(row(a.fastest)->as.devices, 2);
    assert_near(a.limits.compute, 2 / 3., 0.02);
    assert_near(a.limits.bandwidth, 1 / 3., 0.03);
    assert_true(a.limits.latency < 1e-6);
}

static void checks_say_how_far_off(void **state) {
    (void)state;
    describe(1, 0, (struct wire){0, 1e-9}, 2);
    assert_ok(advise_decide(&ask, pool, &a));
    assert_true(isnan(advise_off(&a)));
    assert_true(isnan(advise_doubt(&a, ADVISE_DP, ADVISE_DDP)));
    a.check[a.nchecks++] = (struct advise_check){"dp", ADVISE_DP, BATCH, 1.1, 1, NULL};
    a.check[a.nchecks++] = (struct advise_check){"ddp", ADVISE_DDP, BATCH, 1.32, 1.1, NULL};
    assert_near(advise_off(&a), 0.2, 1e-9);
    assert_near(advise_doubt(&a, ADVISE_DP, ADVISE_DDP), 1.2 / 1.1 - 1, 1e-9);
    assert_near(advise_doubt(&a, ADVISE_SINGLE, ADVISE_DDP), 0.2, 1e-9);
    a.check[1].why = "it did not run";
    assert_near(advise_off(&a), 0.1, 1e-9);
}

/* Where a check is off by more than half, the first sentence says so, and nothing is advised in any form. */
static void what_a_check_refutes_is_not_advised(void **state) {
    (void)state;
    describe(0.2, 0.01, (struct wire){50e-6, 8e-9}, 4);
    assert_ok(advise_decide(&ask, pool, &a));
    struct report *r = pool_alloc(pool, sizeof *r);
    assert_ok(advise_report(&a, r));
    assert_non_null(strstr(r->verdict, "one device; no prediction was checked here."));
    a.check[a.nchecks++] = (struct advise_check){"2 devices, dp", ADVISE_DP, BATCH, 0.11, 0.1, NULL};
    a.check[a.nchecks++] = (struct advise_check){"2 devices, ddp", ADVISE_DDP, BATCH, 0.1, 0.07, NULL};
    assert_ok(advise_report(&a, r));
    assert_non_null(strstr(r->verdict, "one device; predictions were off by up to 43 % here."));
    assert_non_null(strstr(r->section[0].text[2], " times as slow."));
    assert_non_null(r->section[0].command);
    a.check[1].measured = 0.0113;
    assert_true(advise_is_refuted(&a));
    assert_ok(advise_report(&a, r));
    assert_string_equal(r->verdict, "No advice: the predictions do not hold here. A step of 2 devices, ddp was "
                                    "predicted to take 100 ms, and took 11.3 ms: the prediction is off by 785 %.");
    assert_string_equal(r->section[0].text[0], r->verdict);
    assert_null(r->section[0].command);
    for (int i = 0; i < r->nsections; i++)
        for (int k = 0; k < r->section[i].ntexts; k++) assert_null(strstr(r->section[i].text[k], "fastest:"));
    struct json j = {0};
    assert_ok(advise_json(&a, &j));
    assert_non_null(strstr(j.text, "\"fastest\":null,\"simplest\":null,"));
    assert_non_null(strstr(j.text, "\"refuted\":true"));
    json_fini(&j);
}

static void it_is_told_in_every_form(void **state) {
    (void)state;
    describe(0.2, 0.01, (struct wire){50e-6, 8e-9}, 16);
    assert_ok(advise_decide(&ask, pool, &a));
    advise_note(&a.notes, "a note of <%s>", "someone");
    struct report *r = pool_alloc(pool, sizeof *r);
    assert_ok(advise_report(&a, r));
    for (int f = 0; f < REPORT_FORMATS; f++) {
        struct file_text text;
        assert_ok(file_text_open(&text));
        assert_ok(file_text_close(&text, report_write(r, (enum report_format)f, text.out)));
        if (f == REPORT_SVG) assert_null(xml_wrong(text.text));
        if (f == REPORT_TXT) assert_non_null(strstr(text.text, "bandwidth \\ devices"));
        if (f == REPORT_TXT) assert_non_null(strstr(text.text, "a note of <someone>"));
        free(text.text);
    }
    struct json j = {0};
    const struct json_value *root;
    assert_ok(advise_json(&a, &j));
    assert_ok(json_parse(j.text, j.length, (struct json_limits){8, 1 << 16, 1 << 12}, pool, &root));
    assert_int_equal(json_get(root, "by_devices")->count, 5);
    assert_int_equal(json_get(root, "map")->count, ADVISE_RATES);
    json_fini(&j);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(bandwidth_turns_where_the_formulas_meet, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_plug_in_is_one_way, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_larger_batch_is_worth_sharing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_server_is_for_latency, set_up, tear_down),
        cmocka_unit_test_setup_teardown(servers_are_for_ports, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_simplest_is_near_and_first_in_order, set_up, tear_down),
        cmocka_unit_test(what_is_simpler_is_one_order),
        cmocka_unit_test_setup_teardown(a_precision_is_a_way_of_its_own, set_up, tear_down),
        cmocka_unit_test_setup_teardown(memory_forbids, set_up, tear_down),
        cmocka_unit_test_setup_teardown(memory_bars_the_fastest, set_up, tear_down),
        cmocka_unit_test_setup_teardown(stages_take_what_the_bubble_says, set_up, tear_down),
        cmocka_unit_test_setup_teardown(stages_hold_their_layers, set_up, tear_down),
        cmocka_unit_test_setup_teardown(limits_are_what_would_be_saved, set_up, tear_down),
        cmocka_unit_test_setup_teardown(checks_say_how_far_off, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_a_check_refutes_is_not_advised, set_up, tear_down),
        cmocka_unit_test_setup_teardown(it_is_told_in_every_form, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
