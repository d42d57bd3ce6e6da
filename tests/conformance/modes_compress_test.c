/* Every kind of compression, on any number of ranks and cut into any buckets: all ranks get the same
 * bits, near the sum; what is not sent now is sent later; the bytes are those of the formula; what
 * is not finite stays so; and a step allocates nothing. */
#include "tests/harness/harness.h"
#include "tests/unit/model_fixture.h"

#include "engine/base/digest.h"
#include "engine/settings/compress.h"
#include "engine/settings/run_config.h"
#include "modes/share/compress.h"
#include "modes/share/share.h"
#include "tests/conformance/ranks.h"

#include <math.h>

enum { STEPS = 6 };
static const char blocks[] = ENGINE_BINARY_DIR "/plugins/compressor_0.so";
static const char network[] =
    "{layers: [{conv2d: {out: 8, kernel: 3}}, {batchnorm: {name: a}}, relu, flatten, {linear: 33}, "
    "relu, {linear: 3}]}";

extern const struct compress_ops compress_onebit, compress_randomk;

struct testcase {
    int kind;
    struct compress_config config;
    bool overlap;
    float bad; /* a gradient of the last rank, at the first step */
    struct buckets cut;
    const struct model *model;
    /* found, by rank */
    char digest[MAX_WORLD][STEPS][SHA256_TEXT];
    float *sum[MAX_WORLD];  /* over the steps, of what came out */
    float *rest[MAX_WORLD]; /* at the end */
    int64_t sent[MAX_WORLD];
};

/* Zero between parameters, as backward leaves it. */
static bool is_gap(const struct model *m, int64_t i) {
    for (int p = 0; p < m->nparams; p++)
        if (i >= m->params[p].offset && i < m->params[p].offset + m->params[p].count) return false;
    return true;
}

static float gradient(const struct testcase *k, int rank, int step, int64_t i) {
    if (is_gap(k->model, i)) return 0;
    float x = rng_normal(rng_key(3, RNG_TEST), (uint64_t)(rank * STEPS + step), (uint64_t)i);
    if (k->bad != 0 && step == 0 && rank == 0 && i == HEADER_FLOATS + 7) return k->bad;
    return x * 0.01f;
}

static enum error one_step(struct testcase *k, struct mode *m, int step) {
    struct trainer *t = m->t;
    for (int64_t i = 0; i < k->model->arena_floats; i++) /* backward writes no gaps, where the last sum is then */
        if (!is_gap(k->model, i)) t->arena.grads[0][i] = gradient(k, t->rank, step, i);
    for (int i = 0; i < HEADER_FLOATS; i++) t->arena.grads[0][i] = (float)(t->rank + 1000 * i);
    t->at.step = step;
    for (int b = 0; b < m->cut->count; b++) TRY(share_compressed.ops.leave(m, b));
    return share_compressed.ops.land(m);
}

static void check_step(struct rank *r, struct testcase *k, const struct trainer *t, int step) {
    struct sha256 h;
    int64_t n = k->model->arena_floats;
    sha256_init(&h);
    sha256_update(&h, t->arena.grads[0], (size_t)n * sizeof(float));
    sha256_hex(h, k->digest[r->index][step]);
    for (int64_t i = 0; i < n; i++) k->sum[r->index][i] += t->arena.grads[0][i];
    for (int i = 0; i < HEADER_FLOATS; i++) {
        int w = r->of->world;
        check(t->arena.grads[0][i] == (float)(w * (w - 1) / 2 + w * 1000 * i), "header %d is %g", i,
              (double)t->arena.grads[0][i]);
    }
}

static void rank_steps(struct rank *r) {
    struct testcase *k = (struct testcase *)(uintptr_t)r->of->user;
    struct run_config config = {.comm.compress = {.index = k->kind, .config = &k->config}};
    struct job job = {0};
    struct trainer *t = calloc(1, sizeof *t);
    void *grads;
    *t = (struct trainer){.job = &job,
                          .config = &config,
                          .rank = r->index,
                          .standing.ranks = r->of->world,
                          .standing.allocator = group_allocator(r->group, false)};
    t->model = (struct model *)(uintptr_t)k->model;
    check_ok(group_alloc(r->group, (size_t)k->model->arena_floats * sizeof(float), &grads));
    t->arena.grads[0] = grads;
    const struct sharing how = {.share = &share_all_reduce, .plan = share_all_reduce.plan, .compressed = true};
    struct mode m = {.t = t,
                     .how = &how,
                     .team = {.group = r->group},
                     .buckets = k->cut,
                     .cut = &k->cut,
                     .lane = k->overlap ? LANE_COMM : LANE_INLINE};
    check_ok(share_compressed.ops.open(&m));
    struct group_stats before, after;
    group_get_stats(r->group, &before);
    for (int s = 0; s < STEPS && !*r->wrong; s++) {
        check_ok(one_step(k, &m, s));
        if (!*r->wrong) check_step(r, k, t, s);
    }
    group_get_stats(r->group, &after);
    k->sent[r->index] = after.sent - before.sent;
    const float *rest = m.packed->rest;
    if (rest) memcpy(k->rest[r->index], rest, (size_t)k->model->arena_floats * sizeof(float));
    share_compressed.ops.close(&m);
    free(t);
}

/* ---- what it must be ---- */

static int64_t wanted(const struct testcase *k, int64_t n) {
    return (int64_t)ceil(k->config.ratio * (double)n);
}

static int64_t factors(const struct testcase *k, int64_t begin, int64_t end) {
    int64_t floats = 0;
    for (int i = 0; i < k->model->nparams; i++) {
        const struct tensor_info *t = &k->model->params[i];
        if (t->offset < begin || t->offset >= end) continue;
        int64_t n = t->shape.dim[0], m = t->count / n, r = k->config.rank;
        if (r > n) r = n;
        if (r > m) r = m;
        floats += t->shape.ndim > 1 && (n + m) * r < t->count ? (n + m) * r : t->count;
    }
    return floats;
}

/* Bytes that one rank gives in one step, as if for one other rank alone. */
static int64_t bytes_of(const struct testcase *k, int world) {
    int64_t sum = 2 * HEADER_FLOATS * 4;
    for (int b = 0; b < k->cut.count; b++) {
        int64_t begin = b ? k->cut.edge[b] : HEADER_FLOATS, end = k->cut.edge[b + 1];
        int64_t n = end - begin;
        switch (k->kind) {
        case COMPRESS_bf16:
        case COMPRESS_fp16:
            sum += 2 * n * 2;
            break;
        case COMPRESS_int8:
            sum += 2 * ((n + 255) / 256) * 260;
            break;
        case COMPRESS_onebit:
            sum += 2 * ((n + 255) / 256) * 36;
            break;
        case COMPRESS_randomk:
            sum += 2 * wanted(k, n) * 4;
            break;
        case COMPRESS_plugin: /* four bits in blocks; or 16 bits, from each to all */
            sum += k->config.plugged.file == blocks ? 2 * ((n + 255) / 256) * 132 : world * 2 * n;
            break;
        case COMPRESS_topk:
            sum += world * wanted(k, n) * 8;
            break;
        case COMPRESS_powersgd:
            sum += 2 * factors(k, begin, end) * 4;
            break;
        default:
            fail_msg("no formula for kind %d", k->kind);
        }
    }
    return sum;
}

static void check_bytes(const struct testcase *k, int world) {
    int64_t sent = 0;
    for (int r = 0; r < world; r++) sent += k->sent[r];
    assert_int_equal(sent, STEPS * (world - 1) * bytes_of(k, world));
}

/* Whatever came out and what is left is all that went in. */
static void check_nothing_lost(const struct testcase *k, int world) {
    bool feedback = k->kind != COMPRESS_bf16 && k->kind != COMPRESS_fp16;
    double share = feedback ? 2e-5 : k->kind == COMPRESS_fp16 ? 2e-3 : 2e-2;
    for (int64_t i = HEADER_FLOATS; i < k->model->arena_floats; i++) {
        double in = 0, size = 0, out = (double)k->sum[0][i];
        for (int r = 0; r < world; r++) {
            if (feedback) out += (double)k->rest[r][i];
            for (int s = 0; s < STEPS; s++) {
                double g = (double)gradient(k, r, s, i);
                in += g, size += fabs(g);
            }
        }
        if (fabs(in - out) > share * size + 1e-6)
            fail_msg("kind %d, %d ranks: float %d: %g in, %g out", k->kind, world, (int)i, in, out);
    }
}

static void check_same(const struct testcase *k, int world) {
    for (int s = 0; s < STEPS; s++)
        for (int r = 1; r < world; r++) assert_string_equal(k->digest[0][s], k->digest[r][s]);
}

static void run_case(struct testcase *k, int world) {
    size_t n = (size_t)k->model->arena_floats;
    for (int r = 0; r < world; r++) {
        k->sum[r] = floats((int64_t)n);
        k->rest[r] = floats((int64_t)n);
    }
    run_ranks((struct ranks){.world = world, .link = "thread", .fn = rank_steps, .user = k}, NULL);
    check_same(k, world);
    if (k->bad == 0) {
        check_nothing_lost(k, world);
        check_bytes(k, world);
    } else {
        bool seen = false;
        for (size_t i = HEADER_FLOATS; i < n; i++) seen |= !isfinite(k->sum[0][i]);
        assert_true(seen);
    }
    for (int r = 0; r < world; r++) memory_free(k->sum[r]), memory_free(k->rest[r]);
}

static const struct {
    int kind;
    struct compress_config config;
} kinds[] = {
    {COMPRESS_bf16, {0}},
    {COMPRESS_fp16, {0}},
    {COMPRESS_int8, {0}},
    {COMPRESS_topk, {.ratio = 0.01}},
    {COMPRESS_topk, {.ratio = 1}},
    {COMPRESS_powersgd, {.rank = 1}},
    {COMPRESS_powersgd, {.rank = 4}},
    {COMPRESS_onebit, {0}},
    {COMPRESS_randomk, {.ratio = 0.05}},
    {COMPRESS_randomk, {.ratio = 1}},
    {COMPRESS_plugin, {.plugged.file = blocks}},
    {COMPRESS_plugin, {.plugged.file = ENGINE_BINARY_DIR "/plugins/wrong_compressor_0.so"}},
};
enum { CASES = sizeof kinds / sizeof *kinds };

static struct model *model_of_test(void) {
    return model_make(network, (struct shape){3, {3, 10, 10}});
}

static void every_kind(void **state) {
    (void)state;
    static const int worlds[] = {1, 2, 3, 4, 7};
    static const int64_t caps[] = {1 << 20, 1024};
    struct model *m = model_of_test();
    for (int kind = COMPRESS_none + 1; kind < COMPRESS_KINDS; kind++) {
        bool known = false;
        for (int i = 0; i < CASES; i++) known |= kinds[i].kind == kind;
        if (!known) fail_msg("no case for '%s'", compress_variants.at(kind)->name);
    }
    for (int i = 0; i < CASES; i++)
        for (int w = 0; w < 5; w++)
            for (int c = 0; c < 2; c++) {
                static struct testcase k;
                k = (struct testcase){.kind = kinds[i].kind, .config = kinds[i].config, .overlap = c == 1, .model = m};
                assert_ok(buckets_init(&k.cut, m, &(struct cutting){caps[c], caps[c]}));
                assert_true(c == 0 ? k.cut.count == 1 : k.cut.count > 2);
                run_case(&k, worlds[w]);
                buckets_fini(&k.cut);
            }
    model_free(m);
}

/* ---- formulas, written out again ---- */

enum { FEW = 600 };

/* One bucket of one rank, through the kind's own functions: what comes out of x, and is left. */
static void one_rank(int kind, const struct compress_config *config, const float *x, float *out, float *left) {
    struct run_config run = {.seed = 5};
    static struct model none; /* without parameters */
    static struct trainer t;
    struct meeting *meeting;
    struct group *g;
    t = (struct trainer){.config = &run, .standing.ranks = 1, .at.step = 9, .model = &none};
    assert_ok(meeting_create(1, &meeting));
    struct group_params p = {.size = 1, .link = "thread", .algorithm = "auto", .timeout = 60, .meeting = meeting};
    assert_ok(group_open(&p, &g));
    t.standing.allocator = group_allocator(g, false);
    const struct compress_ops *ops = kind == COMPRESS_onebit ? &compress_onebit : &compress_randomk;
    int64_t parts[4];
    struct compress c = {.ops = ops, .config = config, .t = &t, .group = g, .parts = parts, .coder = ops->coder};
    struct packet packet = {.g = out, .rest = left, .begin = HEADER_FLOATS, .n = FEW};
    memcpy(out, x, FEW * sizeof *x);
    memset(left, 0, FEW * sizeof *left);
    assert_ok(ops->open(&c, &packet));
    assert_ok(ops->send(&c, &packet, GROUP_INLINE));
    if (ops->turn) assert_ok(ops->turn(&c, &packet, GROUP_INLINE));
    ops->receive(&c, &packet);
    group_close(g);
    meeting_free(meeting);
}

/* Of a rank alone the sum is its own code, coded again: mean |x| with x's signs, which is its own mean and signs. */
static void one_bit_is_signs_and_a_mean(void **state) {
    float x[FEW], out[FEW], left[FEW];
    (void)state;
    for (int i = 0; i < FEW; i++) x[i] = (float)sin(i * i + 1.0);
    one_rank(COMPRESS_onebit, &(struct compress_config){0}, x, out, left);
    for (int from = 0; from < FEW; from += 256) {
        int to = from + 256 < FEW ? from + 256 : FEW;
        double mean = 0;
        for (int i = from; i < to; i++) mean += fabs((double)x[i]) / (to - from);
        for (int i = from; i < to; i++) {
            assert_float_equal(out[i], x[i] < 0 ? -mean : mean, 1e-6);
            assert_float_equal(left[i], x[i] - (x[i] < 0 ? -mean : mean), 1e-6);
        }
    }
}

/* One of each of k equal stretches goes, the others stay; and where it stood is another in another step. */
static void random_k_takes_one_of_each_stretch(void **state) {
    float x[FEW], out[FEW], left[FEW];
    int first = 0;
    (void)state;
    for (int i = 0; i < FEW; i++) x[i] = (float)(i + 1);
    one_rank(COMPRESS_randomk, &(struct compress_config){.ratio = 0.05}, x, out, left);
    for (int k = 0; k < 30; k++) {
        int sent = 0;
        for (int i = k * 20; i < k * 20 + 20; i++) {
            assert_true((out[i] == x[i] && left[i] == 0) || (out[i] == 0 && left[i] == x[i]));
            sent += out[i] != 0;
            first += out[i] != 0 && i % 20 < 10;
        }
        assert_int_equal(sent, 1);
    }
    assert_in_range(first, 5, 25); /* of 30 */
}

/* A gradient that is not finite must show in the sum, or the run would go on as if it were well. */
static void bad_gradients_show(void **state) {
    (void)state;
    struct model *m = model_of_test();
    for (int i = 0; i < CASES; i++)
        for (int nan = 0; nan < 2; nan++) {
            static struct testcase k;
            k = (struct testcase){
                .kind = kinds[i].kind, .config = kinds[i].config, .bad = nan ? NAN : INFINITY, .model = m};
            assert_ok(buckets_init(&k.cut, m, &(struct cutting){1 << 20, 1 << 20}));
            run_case(&k, 3);
            buckets_fini(&k.cut);
        }
    model_free(m);
}

/* Of a matrix of low rank PowerSGD finds the sum, of one step to the next better. */
static void finds_low_rank(void **state) {
    (void)state;
    struct model *m = model_of_test();
    struct run_config config = {0};
    struct compress_config rank2 = {.rank = 2};
    struct job job = {0};
    static struct trainer t;
    config.comm.compress = (struct config_variant){.index = COMPRESS_powersgd, .config = &rank2};
    t = (struct trainer){.job = &job, .config = &config, .standing.ranks = 1, .model = m};
    struct meeting *meeting;
    struct group *g;
    struct buckets cut;
    assert_ok(meeting_create(1, &meeting));
    struct group_params p = {.size = 1, .link = "thread", .algorithm = "auto", .timeout = 60, .meeting = meeting};
    assert_ok(group_open(&p, &g));
    assert_ok(buckets_init(&cut, m, &(struct cutting){1 << 20, 1 << 20}));
    t.standing.allocator = group_allocator(g, false);
    t.arena.grads[0] = floats(m->arena_floats);
    const struct sharing how = {.share = &share_all_reduce, .plan = share_all_reduce.plan, .compressed = true};
    struct mode one = {.t = &t, .how = &how, .team = {.group = g}, .buckets = cut, .cut = &cut};
    assert_ok(share_compressed.ops.open(&one));
    const struct tensor_info *w = &m->params[0];
    for (int i = 0; i < m->nparams; i++)
        if (m->params[i].count > w->count) w = &m->params[i];
    int64_t rows = w->shape.dim[0], columns = w->count / rows;
    for (int s = 0; s < 4; s++) {
        double worst = 0;
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < columns; j++)
                t.arena.grads[0][w->offset + i * columns + j] =
                    (float)(sin((double)i) * cos(0.1 * (double)j) + (double)i * 0.01);
        if (s == 1) count_allocations_begin();
        t.at.step = s;
        assert_ok(share_compressed.ops.leave(&one, 0));
        assert_ok(share_compressed.ops.land(&one));
        if (s == 1) assert_int_equal(count_allocations_end(), 0);
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < columns; j++)
                worst = fmax(worst, fabs((double)t.arena.grads[0][w->offset + i * columns + j] -
                                         sin((double)i) * cos(0.1 * (double)j) - (double)i * 0.01));
        assert_true(worst < (s ? 1e-5 : 1e-3));
    }
    share_compressed.ops.close(&one);
    memory_free(t.arena.grads[0]);
    buckets_fini(&cut);
    group_close(g);
    meeting_free(meeting);
    model_free(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind),
        cmocka_unit_test(one_bit_is_signs_and_a_mean),
        cmocka_unit_test(random_k_takes_one_of_each_stretch),
        cmocka_unit_test(bad_gradients_show),
        cmocka_unit_test(finds_low_rank),
    };
    return cmocka_run_group_tests_name("compression", tests, NULL, NULL);
}
