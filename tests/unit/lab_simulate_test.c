/* The simulator: its messages against the formulas, its shortcuts against every message by itself, and the steps that
 * it makes of them. */
#include "tests/harness/harness.h"

#include "engine/base/header.h"
#include "lab/predict/exchange.h"
#include "lab/predict/simulate.h"
#include "modes/share/share.h"

#include <math.h>
#include <stdlib.h>

#define assert_near(got, expected, share) assert_true(fabs((got) - (expected)) <= (share)*fabs((double)(expected)))

static const struct wire port = {50e-6, 8e-9};

static struct network_plan flat(int devices) {
    return (struct network_plan){.devices = devices, .per_host = 1, .oversubscription = 1, .outside = port};
}

static double last(const struct exchange *e) {
    double t = 0;
    for (int r = 0; r < e->size; r++) t = fmax(t, e->at[r]);
    return t;
}

/* ---- one exchange --------------------------------------------------------------------------- */

static double exchanged(const struct network_plan *p, enum scheme s, double bytes) {
    struct exchange e;
    assert_int_equal(exchange_open(p, true, 0, &e), ERR_NONE);
    assert_int_equal(exchange_all_reduce(&e, s, bytes), ERR_NONE);
    double t = last(&e);
    exchange_close(&e);
    return t;
}

/* Of one piece, so that nothing of a server's adding is hidden. In trees of odd branches some begin earlier than the
 * formulas have it. */
static void messages_take_what_formulas_say(void **state) {
    (void)state;
    static const enum scheme schemes[] = {SCHEME_star, SCHEME_ring, SCHEME_tree, SCHEME_halving_doubling,
                                          SCHEME_direct};
    static const int sizes[] = {1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 31, 64};
    for (int s = 0; s < 5; s++)
        for (int i = 0; i < 12; i++)
            for (double k = 4096; k < 7e4; k *= 4) {
                bool even = (sizes[i] & (sizes[i] - 1)) == 0;
                if (!even && schemes[s] == SCHEME_halving_doubling) continue;
                const struct network_plan p = flat(sizes[i]);
                const struct ground g = {sizes[i], 1, port, false, 0};
                double t = exchanged(&p, schemes[s], k), formula = cost_share(schemes[s], &g, k);
                assert_near(t, formula, even || s < 2 || s == 4 ? 1e-9 : 0.5);
                assert_true(t <= formula * (1 + 1e-9));
            }
}

/* Devices that share out more shards than they are: 3 of 8 have five subtrees, the first two of them; 5 of 16 have
 * nine, the first one. */
static void further_subtrees_take_what_formulas_say(void **state) {
    static const struct {
        int devices, leaves;
        double in, slices; /* terms that a server takes in; and that each device takes in of its slice */
    } of[] = {{3, 8, 3, 4}, {5, 16, 8, 8}, {3, 4, 2, 2}, {6, 8, 5, 5}};
    const double k = 60000;
    (void)state;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        const struct network_plan p = flat(of[i].devices);
        const struct ground g = {of[i].devices, 1, port, false, of[i].leaves};
        double others = of[i].devices - 1, n = of[i].devices, gamma = 1 / 8e9;
        double want[] = {2 * port.alpha + (of[i].in + others) * k * port.beta + of[i].in * k * gamma,
                         2 * others * port.alpha + (of[i].slices + others) / n * k * port.beta +
                             of[i].slices / n * k * gamma};
        for (int s = 0; s < 2; s++) {
            struct exchange e;
            enum scheme scheme = s ? SCHEME_direct : SCHEME_star;
            assert_int_equal(exchange_open(&p, true, of[i].leaves, &e), ERR_NONE);
            assert_int_equal(exchange_all_reduce(&e, scheme, k), ERR_NONE);
            assert_near(last(&e), want[s], 1e-9);
            assert_near(cost_share(scheme, &g, k), want[s], 1e-9);
            exchange_close(&e);
        }
        bool several = of[i].slices > others;
        assert_true(isinf(cost_share(SCHEME_tree, &g, k)) == several);
    }
}

/* A server that gets many pieces adds one while the next comes. */
static void pieces_hide_adding(void **state) {
    (void)state;
    const struct network_plan p = flat(8);
    const struct ground g = {8, 1, port, false, 0};
    double formula = cost_share(SCHEME_star, &g, 64e6), bytes = 2 * 7 * 64e6 * port.beta;
    double t = exchanged(&p, SCHEME_star, 64e6);
    assert_true(t < formula && t > bytes);
    assert_near(t, formula, 0.02);
}

/* The busiest port passes what the essays say: K bytes on every way of theirs. */
static void ports_pass_what_essays_say(void **state) {
    (void)state;
    const double k = 1 << 20;
    const struct {
        enum scheme scheme;
        double bytes; /* of 8 devices, through the busiest port */
    } cases[] = {{SCHEME_star, 7 * k},
                 {SCHEME_ring, 2 * 7.0 / 8 * k},
                 {SCHEME_tree, 3 * k},
                 {SCHEME_halving_doubling, 2 * 7.0 / 8 * k},
                 {SCHEME_direct, 2 * 7.0 / 8 * k}};
    for (int i = 0; i < 5; i++) {
        struct exchange e;
        const struct network_plan p = flat(8);
        assert_int_equal(exchange_open(&p, false, 0, &e), ERR_NONE);
        assert_int_equal(exchange_all_reduce(&e, cases[i].scheme, k), ERR_NONE);
        struct busiest b = network_busiest(&e.net);
        assert_near(b.seconds, cases[i].bytes * port.beta, 1e-9);
        assert_int_equal(b.kind, PORT_DEVICE);
        exchange_close(&e);
    }
}

/* Four hosts of eight: each byte crosses between hosts once, where a way that knows no hosts sends more. */
static void hosts_share_their_port(void **state) {
    (void)state;
    const double k = 1 << 20;
    struct network_plan p = {
        .devices = 32, .per_host = 8, .oversubscription = 1, .outside = port, .inside = {1e-6, 1e-10}};
    struct exchange e;
    assert_int_equal(exchange_open(&p, true, 0, &e), ERR_NONE);
    assert_int_equal(exchange_all_reduce(&e, SCHEME_hierarchical, k), ERR_NONE);
    struct busiest b = network_busiest(&e.net);
    assert_int_equal(b.kind, PORT_HOST);
    assert_near(b.seconds, 2 * 3.0 / 4 * k * port.beta, 1e-9);
    exchange_close(&e);
    assert_true(exchanged(&p, SCHEME_hierarchical, k) < exchanged(&p, SCHEME_direct, k));
    double whole = exchanged(&p, SCHEME_hierarchical, k);
    p.per_rack = 2, p.oversubscription = 8; /* two hosts' ports go through a quarter of one */
    assert_true(exchanged(&p, SCHEME_hierarchical, k) > 2 * whole);
    p.devices = 30; /* the last host is not full */
    assert_int_equal(exchange_open(&p, true, 0, &e), ERR_NONE);
    assert_int_equal(exchange_all_reduce(&e, SCHEME_hierarchical, k), ERR_CONFIG);
    exchange_close(&e);
}

/* ---- shortcuts ------------------------------------------------------------------------------ */

/* Ranks that begin at different times; all messages by themselves, and with what repeats added at once. */
static double late_start(const struct network_plan *p, enum scheme s, double bytes, bool plain, double *busy) {
    struct exchange e;
    assert_int_equal(exchange_open(p, true, 0, &e), ERR_NONE);
    e.plain = plain;
    for (int r = 0; r < e.size; r++) e.at[r] = r % 7 == 3 ? 2e-3 : 0;
    assert_int_equal(exchange_all_reduce(&e, s, bytes), ERR_NONE);
    double t = last(&e);
    *busy = network_busiest(&e.net).seconds;
    exchange_close(&e);
    return t;
}

static void shortcuts_give_the_same(void **state) {
    (void)state;
    const struct network_plan hosts = {
        .devices = 256, .per_host = 8, .per_rack = 4, .oversubscription = 2, .outside = port, .inside = {1e-6, 1e-10}};
    const struct network_plan plans[] = {flat(256), hosts};
    static const enum scheme schemes[] = {SCHEME_ring, SCHEME_direct};
    for (int i = 0; i < 2; i++)
        for (int s = 0; s < 2; s++) {
            double busy[2], all = late_start(&plans[i], schemes[s], 1e6, true, &busy[0]);
            bool sampled = i == 1 && s == 1;
            assert_near(late_start(&plans[i], schemes[s], 1e6, false, &busy[1]), all, sampled ? 0.1 : 1e-5);
            assert_near(busy[1], busy[0], sampled ? 0.1 : 1e-5);
        }
}

/* ---- steps ---------------------------------------------------------------------------------- */

static struct step_shape shape = {.before = 10e-3,
                                  .backward = 20e-3,
                                  .update = 1e-3,
                                  .forward = 8e-3,
                                  .passes = 1,
                                  .buckets = 2,
                                  .bytes = {250e3, 250e3},
                                  .ready = {0.25, 1}};

static struct simulated step_of(const struct simulate_plan *p) {
    struct simulated s;
    assert_int_equal(simulate(&shape, p, &s), ERR_NONE);
    return s;
}

static struct simulate_plan plan_of(int devices, enum scheme s) {
    return (struct simulate_plan){
        .net = flat(devices), .scheme = s, .moves = share_all_reduce.plan, .every = 1, .steps = 1};
}

static void steps_follow_the_formulas(void **state) {
    (void)state;
    static const int sizes[] = {1, 2, 4, 8, 64};
    for (int i = 0; i < 5; i++)
        for (int overlap = 0; overlap < 2; overlap++) {
            struct simulate_plan p = plan_of(sizes[i], SCHEMES);
            p.overlap = overlap;
            for (int cores = 0; cores <= 2; cores += 2) {
                p.cores = cores;
                for (const struct share_row *const *row = share_rows(); *row; row++) {
                    for (p.servers = 0; p.servers <= ((*row)->plan.update == UPDATE_BY_ROOT); p.servers++) {
                        bool own = (*row)->plan.after[0].by == MOVE_OWN || (*row)->plan.before[0].by == MOVE_OWN;
                        if ((*row)->plan.by_turns || own || (sizes[i] == 1 && p.servers)) continue;
                        p.moves = (*row)->plan, p.every = p.moves.alone ? 4 : 1;
                        assert_near(step_of(&p).step, simulate_formula(&shape, &p), 0.03);
                    }
                }
                p.servers = 0;
            }
        }
}

static void the_servers_port_is_the_busiest(void **state) {
    (void)state;
    struct simulate_plan p = plan_of(16, SCHEME_ring);
    struct simulated ring = step_of(&p);
    p.moves = share_server.plan;
    struct simulated served = step_of(&p);
    assert_int_equal(served.port.which, 0);
    assert_near(served.port.seconds / ring.port.seconds, 16 / 2.0, 1e-6); /* 15 K beside 2 x 15/16 K */
    assert_true(served.step > ring.step);
    p.servers = 1;
    assert_int_equal(step_of(&p).port.which, 16);
    p.servers = 0, p.moves = share_slices.plan;
    assert_near(step_of(&p).port.seconds, ring.port.seconds, 1e-6);
}

/* Each of k servers apart receives W / k of the gradients, a worker sends them once; on workers, W - 1 in place of W. With
 * as many servers as workers no port passes more than K, where a ring's passes 2 (W - 1) / W K, and weights of some buckets
 * travel beside gradients of others. */
static void servers_pass_their_parts(void **state) {
    double k = 0;
    (void)state;
    for (int b = 0; b < shape.buckets; b++) k += shape.bytes[b];
    for (int workers = 2; workers <= 16; workers *= 2)
        for (int owners = 1; owners <= workers; owners *= 2)
            for (int how = 0; how < 3; how++) { /* on workers; apart; apart and streaming */
                struct simulate_plan p = plan_of(workers, SCHEMES);
                p.moves = share_slices.plan;
                p.owners = owners;
                p.servers = how ? owners : 0;
                p.overlap = p.streams = how == 2;
                struct simulated s = step_of(&p);
                double share = (double)(how ? workers : workers - 1) / owners, ring = 2.0 * (workers - 1) / workers;
                if (how) assert_near(s.port.seconds, share * k * port.beta, 1e-6);
                if (!how)
                    assert_near(s.port.seconds, (owners == workers ? ring : share + 1 - 1.0 / owners) * k * port.beta,
                                1e-6);
                assert_near(s.step, simulate_formula(&shape, &p), 0.05);
            }
    struct simulate_plan p = plan_of(16, SCHEME_ring), ring = p;
    p.moves = share_slices.plan;
    p.servers = p.owners = 16;
    p.overlap = p.streams = ring.overlap = true;
    assert_true(step_of(&p).step < step_of(&ring).step);
    assert_true(cost_bytes(&p.moves, 1, 1, 20, 4, 1) == 2 * 16);
}

/* Of four units backward gathers the front two again, and three where nothing comes ahead; of one, none. */
static void last_units_stay_for_backward(void **state) {
    static const struct step_shape four = {.before = 9e-3,
                                           .backward = 20e-3,
                                           .forward = 8e-3,
                                           .passes = 1,
                                           .buckets = 4,
                                           .bytes = {2e5, 2e5, 2e5, 2e5},
                                           .ready = {0.25, 0.5, 0.75, 1}};
    static const struct step_shape one = {
        .before = 9e-3, .backward = 20e-3, .forward = 8e-3, .passes = 1, .buckets = 1, .bytes = {8e5}, .ready = {1}};
    (void)state;
    for (int overlap = 0; overlap < 2; overlap++)
        for (int devices = 2; devices <= 8; devices *= 2) {
            struct simulate_plan p = plan_of(devices, SCHEME_ring);
            struct simulated s;
            p.moves = share_full.plan, p.overlap = overlap;
            double once = (devices - 1.0) / devices * 8e5 * port.beta;
            assert_ok(simulate(&four, &p, &s));
            assert_near(s.port.seconds, (overlap ? 2.5 : 2.75) * once, 1e-6);
            assert_near(s.step, simulate_formula(&four, &p), 0.03);
            assert_ok(simulate(&one, &p, &s));
            assert_near(s.port.seconds, 2 * once, 1e-6);
            assert_near(s.step, (overlap ? 28e-3 : 29e-3) + 2 * (once + (devices - 1) * port.alpha), 5e-3);
        }
}

/* Five units, each 0.8 ms on the way between two devices, of which the first one of forward takes 92 % of the time. Where all
 * stay for a pass, all have come before it ends: forward ends after 1 + 8 ms, backward after 20 more, and the last gradient
 * is then 0.8 ms on its way. Where they go, two come beside the first layer, and the fourth begins to come when that has
 * ended: 8.36 + 0.8 ms; the fifth 0.8 ms later, and it computes for 0.16 ms. So forward ends 1.12 ms later. */
static void a_pass_leaves_room_or_not(void **state) {
    static const struct step_shape five = {.before = 9e-3,
                                           .backward = 20e-3,
                                           .forward = 8e-3,
                                           .passes = 1,
                                           .buckets = 5,
                                           .bytes = {2e5, 2e5, 2e5, 2e5, 2e5},
                                           .ready = {0.02, 0.04, 0.06, 0.08, 1}};
    struct simulate_plan p = plan_of(2, SCHEMES);
    struct simulated whole, layers;
    (void)state;
    p.net.outside.alpha = 0, p.overlap = true;
    p.moves = share_full_passing.plan;
    assert_ok(simulate(&five, &p, &whole));
    assert_near(whole.step, 29.8e-3, 2e-3); /* but for adding */
    assert_near(whole.step, simulate_formula(&five, &p), 2e-3);
    p.moves = share_full.plan;
    assert_ok(simulate(&five, &p, &layers));
    assert_true(layers.step > whole.step + 1.11e-3 && layers.step < whole.step + 1.12e-3 + 8 * 0.8e-3);
    assert_near(layers.step, simulate_formula(&five, &p), 0.03);
}

static void overlap_hides_and_stragglers_show(void **state) {
    (void)state;
    struct simulate_plan p = plan_of(8, SCHEME_ring);
    double open = step_of(&p).step;
    p.overlap = true;
    struct simulated hidden = step_of(&p);
    assert_true(hidden.step < open);
    assert_near(hidden.step, hidden.compute + hidden.exposed, 1e-9);
    p.slow_share = 0.2, p.slow_by = 2, p.steps = 20;
    double slowed = step_of(&p).step;
    assert_true(slowed > hidden.step * 1.3 && slowed < hidden.step + 30e-3);
    assert_true(step_of(&p).step == slowed);
    p.seed = 1;
    assert_true(step_of(&p).step != slowed);
    p.slow_share = 1;
    assert_near(step_of(&p).compute, 61e-3, 1e-9);
}

/* Steps that are all alike are added at once: as many devices that are "slowed" once go through each of them. */
static void steps_alone_are_added_at_once(void **state) {
    (void)state;
    struct simulate_plan p = plan_of(8, SCHEMES);
    p.moves = share_average.plan, p.every = 50, p.slow_by = 1, p.slow_share = 0.5;
    struct simulated each = step_of(&p);
    p.slow_share = 0;
    assert_near(step_of(&p).step, each.step, 1e-9);
    assert_near(step_of(&p).compute, each.compute, 1e-9);
    p.every = 1000000;
    assert_near(step_of(&p).step, 31e-3, 1e-6);
}

/* All of them, on hosts and racks: the same with and without shortcuts would take minutes; that it is done, and that
 * no port is busy longer than the step, is seen here. */
static void four_thousand_devices(void **state) {
    (void)state;
    static const enum scheme schemes[] = {SCHEME_ring, SCHEME_tree, SCHEME_halving_doubling, SCHEME_hierarchical};
    for (int i = 0; i < 4; i++) {
        struct simulate_plan p = plan_of(SIMULATE_DEVICES, schemes[i]);
        p.net.per_host = 8, p.net.per_rack = 16, p.net.oversubscription = 4, p.near = true;
        p.net.inside = (struct wire){1e-6, 1e-10};
        struct simulated s = step_of(&p);
        assert_true(s.busy > 0 && s.busy <= 1 && s.step > 31e-3);
        assert_int_equal(s.scheme, schemes[i]);
    }
}

/* ---- stages --------------------------------------------------------------------------------- */

static const double sums = 8 * HEADER_FLOATS; /* that ranks tell each other in each step */

/* Of stages of which each takes 1 s forward and 2 s backward; 40 bytes pass a border. */
static double pipelined(int devices, int stages, int passes, bool ahead, struct wire wire, enum scheme scheme,
                        struct simulated *out) {
    struct step_shape *s = calloc(1, sizeof *s);
    struct simulate_plan p = plan_of(devices, scheme);
    assert_non_null(s);
    p.moves = share_stages.plan, p.net.outside = wire, p.owners = devices;
    s->passes = passes, s->update = stages * 1e-9;
    s->stages.count = stages, s->stages.ahead = ahead;
    for (int i = 0; i < stages; i++) {
        s->stages.forward[i] = 1, s->stages.backward[i] = 2, s->stages.border[i] = i + 1 < stages ? 40 : 0;
        s->stages.bytes[i] = 1000, s->stages.messages[i] = 2;
    }
    assert_int_equal(simulate(s, &p, out), ERR_NONE);
    double formula = simulate_formula(s, &p);
    free(s);
    return formula;
}

/* Equal stages on links that cost nothing: each waits for p - 1 of m + p - 1 micro-batches, by both schedules. */
static void the_bubble_is_as_long_as_its_formula(void **state) {
    (void)state;
    for (int stages = 1; stages <= 8; stages++)
        for (int passes = 1; passes <= 32; passes *= 2)
            for (int ahead = 0; ahead < 2; ahead++) {
                struct simulated s;
                double ideal = passes * 3.0,
                       formula = pipelined(stages, stages, passes, ahead, (struct wire){0, 0}, SCHEMES, &s);
                assert_near(s.step, ideal * (passes + stages - 1) / passes, 1e-8);
                assert_near(s.exposed / s.step, stages > 1 ? sharing_bubble(stages, passes) : 1e-9,
                            1e-6 + (stages == 1));
                assert_near(formula, s.step, 1e-8);
            }
}

/* Two stages, two micro-batches, 0.5 s on the way, of which 0.4 s in the port; the sums come after them:
 *
 *   1f1b   stage 0  F0 0-1, F1 1-2, B0 5-7, B1 8-10       gpipe  stage 0  F0 0-1, F1 1-2, B0 6-8, B1 8-10
 *          stage 1  F0 1.5-2.5, B0 -4.5, F1 -5.5, B1 -7.5         stage 1  F0 1.5-2.5, F1 -3.5, B0 -5.5, B1 -7.5 */
static void borders_cost_what_is_counted_by_hand(void **state) {
    const struct wire wire = {0.1, 0.01};
    (void)state;
    for (int ahead = 0; ahead < 2; ahead++) {
        struct simulated s;
        const struct ground g = {2, 2, wire, false, 0};
        pipelined(2, 2, 2, ahead, wire, SCHEME_ring, &s);
        assert_near(s.step, 10 + cost_share(SCHEME_ring, &g, sums), 1e-8);
        assert_near(s.port.seconds, 2 * 0.4 + sums * wire.beta, 1e-9);
        assert_near(s.compute, 6, 1e-8);
    }
}

/* Stage 0 ends last, and its two copies add 1,000 bytes in two messages; then all four add the sums. Each port passes the
 * borders, too. */
static void copies_add_their_gradients_at_the_end(void **state) {
    const struct wire wire = {0.1, 0.01};
    const struct ground g = {2, 2, wire, false, 0}, all = {4, 4, wire, false, 0};
    struct simulated s;
    (void)state;
    double formula = pipelined(4, 2, 2, false, wire, SCHEME_ring, &s);
    assert_near(s.step, 10 + 2 * cost_share(SCHEME_ring, &g, 500) + cost_share(SCHEME_ring, &all, sums), 1e-6);
    assert_near(s.port.seconds, 2 * 0.4 + (1000 + 1.5 * sums) * wire.beta, 1e-9);
    assert_true(isnan(formula));
}

/* The slower stage computes all the time but while the first micro-batch comes, and the last gradient goes. With one
 * core both compute by turns. */
static void the_slowest_stage_decides(void **state) {
    struct step_shape *s = calloc(1, sizeof *s);
    struct simulate_plan p = plan_of(2, SCHEMES);
    struct simulated got;
    (void)state;
    assert_non_null(s);
    p.moves = share_stages.plan, p.net.outside = (struct wire){0, 0};
    s->passes = 4;
    s->stages = (struct step_stages){.count = 2, .forward = {1, 2}, .backward = {2, 4}};
    assert_int_equal(simulate(s, &p, &got), ERR_NONE);
    assert_near(got.step, 1 + 4 * 6 + 2, 1e-9);
    assert_near(simulate_formula(s, &p), got.step, 1e-9);
    p.cores = 1;
    assert_int_equal(simulate(s, &p, &got), ERR_NONE);
    assert_near(got.step, 4 * 9, 1e-9);
    p.net.devices = 4, p.net.per_host = 2, p.cores = 0; /* copies that share ports */
    assert_int_equal(simulate(s, &p, &got), ERR_CONFIG);
    free(s);
}

/* ---- links one by one ----------------------------------------------------------------------- */

static const struct rank_range rank_0 = {0, 0}, rank_1 = {1, 1}, rank_2 = {2, 2};

/* The slow link passes each of 2 (N - 1) messages, one after the other, and what comes later waits for none of them. */
static void the_slowest_link_of_a_ring_decides(void **state) {
    const double k = 4e6, rate = 2e6;
    const struct emulated_links slow = {{1, &rank_0}, {1, &rank_1}, true, {rate, -1, -1, -1, -1}};
    const struct emulation e = {.bandwidth = 2e7, .latency = 2e-3, .count = 1, .links = &slow};
    (void)state;
    for (int n = 3; n <= 9; n += 3) {
        const struct network_plan p = network_described(&e, n, n);
        const struct ground g = {n, 1, p.outside, false, 0};
        double by_hand = 2e-3 + 2 * (n - 1) * k / n / rate;
        assert_near(exchanged(&p, SCHEME_ring, k), by_hand, 1e-6);
        assert_near(by_hand, cost_share(SCHEME_ring, &g, k), 0.05);
    }
}

static void a_narrow_way_out_is_the_rate(void **state) {
    const struct emulation e = {.bandwidth = 2e7, .up = 5e6, .latency = 1e-3};
    const struct network_plan p = network_described(&e, 8, 8);
    const struct ground g = {8, 1, p.outside, false, 0};
    (void)state;
    assert_near(exchanged(&p, SCHEME_ring, 1e6), 14 * (1e-3 + 1e6 / 8 / 5e6), 1e-6);
    assert_near(cost_share(SCHEME_ring, &g, 1e6), 14 * (1e-3 + 1e6 / 8 / 5e6), 0.01);
}

/* One after the other, messages take in the mean what their description says. */
static void what_is_drawn_has_its_mean(void **state) {
    const struct emulation e = {.bandwidth = 1e7, .latency = 5e-3, .jitter = 2e-3, .loss = 0.01, .seed = 5};
    const struct network_plan p = network_described(&e, 2, 2);
    const double bytes = 14480, each = bytes / 1e7 + 5e-3 + 2e-3 + 0.01 * (10 * 10e-3 + 3 * 0.2);
    struct exchange x;
    (void)state;
    assert_int_equal(exchange_open(&p, false, 0, &x), ERR_NONE);
    for (int i = 0; i < 20000; i++) exchange_broadcast(&x, 0, bytes), exchange_reduce(&x, 0, bytes);
    assert_near(last(&x), 20000 * 2 * each, 0.03);
    exchange_close(&x);
}

/* A server apart is rank 0, and sends all weights to each of two workers; worker 1 of them is rank 2, and sends once. */
static void servers_come_first_among_ranks(void **state) {
    const double rate = 1e6;
    double k = 0, step[2];
    (void)state;
    for (int b = 0; b < shape.buckets; b++) k += shape.bytes[b];
    for (int i = 0; i < 2; i++) {
        const struct emulated_links slow = {{1, i ? &rank_2 : &rank_0}, {0, NULL}, false, {-1, rate, -1, -1, -1}};
        const struct emulation e = {.bandwidth = 1e9, .count = 1, .links = &slow};
        struct simulate_plan p = plan_of(2, SCHEMES);
        p.net = network_described(&e, 2, 3);
        p.moves = share_server.plan;
        p.servers = 1;
        step[i] = step_of(&p).port.seconds;
    }
    assert_near(step[0], 2 * k / rate, 1e-6);
    assert_near(step[1], k / rate, 1e-6);
}

static void refuses_what_cannot_be(void **state) {
    (void)state;
    struct simulated s;
    struct simulate_plan p = plan_of(SIMULATE_DEVICES + 1, SCHEME_ring);
    assert_int_equal(simulate(&shape, &p, &s), ERR_USAGE);
    p = plan_of(8, SCHEME_ring);
    p.net.per_host = 0;
    assert_int_equal(simulate(&shape, &p, &s), ERR_USAGE);
    p = plan_of(7, SCHEME_hierarchical); /* a host is not full */
    p.net.per_host = 2;
    assert_int_equal(simulate(&shape, &p, &s), ERR_CONFIG);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_take_what_formulas_say),
        cmocka_unit_test(further_subtrees_take_what_formulas_say),
        cmocka_unit_test(pieces_hide_adding),
        cmocka_unit_test(ports_pass_what_essays_say),
        cmocka_unit_test(hosts_share_their_port),
        cmocka_unit_test(shortcuts_give_the_same),
        cmocka_unit_test(steps_follow_the_formulas),
        cmocka_unit_test(the_servers_port_is_the_busiest),
        cmocka_unit_test(servers_pass_their_parts),
        cmocka_unit_test(last_units_stay_for_backward),
        cmocka_unit_test(a_pass_leaves_room_or_not),
        cmocka_unit_test(overlap_hides_and_stragglers_show),
        cmocka_unit_test(steps_alone_are_added_at_once),
        cmocka_unit_test(four_thousand_devices),
        cmocka_unit_test(the_bubble_is_as_long_as_its_formula),
        cmocka_unit_test(borders_cost_what_is_counted_by_hand),
        cmocka_unit_test(copies_add_their_gradients_at_the_end),
        cmocka_unit_test(the_slowest_stage_decides),
        cmocka_unit_test(the_slowest_link_of_a_ring_decides),
        cmocka_unit_test(a_narrow_way_out_is_the_rate),
        cmocka_unit_test(what_is_drawn_has_its_mean),
        cmocka_unit_test(servers_come_first_among_ranks),
        cmocka_unit_test(refuses_what_cannot_be),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
