/* Every optimizer on a GPU against the one in plain C: the same bits of weights, state and norms, whatever the spans
 * are, step after step. */
#include "tests/gpu/gpu.h"

#include "engine/base/rng.h"
#include "engine/optim/ema.h"
#include "engine/optim/optim.h"

#include <math.h>
#include <string.h>

/* ---- an arena, here and there ---------------------------------------------------------------- */
enum { TENSORS = 9, ARENAS = 2 + OPTIM_SLOTS, STEPS = 5, LAST = OPTIM_GROUPS - 1, PIECES = 64, W = 0, G = 1, SLOT = 2 };
/* Of one element, of less than four, of many blocks; neighbours of odd length are not aligned. */
static const struct tensor {
    int count;
    bool matrix;
    int group;
} tensors[TENSORS] = {{1, false, 0},    {4096, true, LAST}, {3, false, LAST}, {10001, true, 0},   {64, false, 0},
                      {12288, true, 0}, {5000, true, LAST}, {17, true, 0},    {4097, false, LAST}};

struct arena {
    int floats;
    float *here[ARENAS], *there[ARENAS];
};

static void arena_open(struct arena *a, struct device *dev) {
    a->floats = 0;
    for (int i = 0; i < TENSORS; i++) a->floats += tensors[i].count;
    for (int k = 0; k < ARENAS; k++) {
        void *p;
        assert_ok(device_alloc(dev, (size_t)a->floats * sizeof(float), &p));
        a->there[k] = p;
        a->here[k] = calloc((size_t)a->floats, sizeof(float));
        assert_non_null(a->here[k]);
    }
}

static void arena_close(struct arena *a, struct device *dev) {
    for (int k = 0; k < ARENAS; k++) device_free(dev, a->there[k]), free(a->here[k]);
}

/* Mostly ordinary, some of them tiny, large or zero. */
static void arena_fill(struct arena *a, struct device *dev, int which, uint64_t stream) {
    static const float odd[] = {0, -0.0f, 1e-20f, 3e-39f, 1e6f, -1e-12f};
    struct rng_key key = rng_key(23, RNG_TEST);
    for (int i = 0; i < a->floats; i++)
        a->here[which][i] = i % 50 == 7 ? odd[i / 50 % 6] : rng_normal(key, stream, (uint64_t)i);
    assert_ok(device_write(dev, a->there[which], a->here[which], (size_t)a->floats * sizeof(float)));
    assert_ok(device_wait(dev));
}

static void assert_same_arenas(struct arena *a, struct device *dev, const char *what, int step) {
    static const char *const names[ARENAS] = {"weights", "gradients", "slot 0", "slot 1", "slot 2"};
    float *got = malloc((size_t)a->floats * sizeof *got);
    for (int k = 0; k < ARENAS; k++) {
        assert_ok(device_read(dev, got, a->there[k], (size_t)a->floats * sizeof *got));
        for (int i = 0; i < a->floats; i++)
            if (memcmp(&got[i], &a->here[k][i], sizeof *got) != 0)
                fail_msg("%s, step %d: %s[%d] is %a, in plain C %a", what, step, names[k], i, got[i], a->here[k][i]);
    }
    free(got);
}

/* ---- spans ---------------------------------------------------------------------------------- */
struct pair {
    struct rule_span here, there;
    int tensor;
};

static struct rule_span span_of(const struct optim_ops *ops, float *const *arena, int tensor, int begin, int end) {
    struct rule_span s = {.w = arena[W] + begin,
                          .g = arena[G] + begin,
                          .n = end - begin,
                          .kind = optim_kind(tensors[tensor].group, tensors[tensor].matrix)};
    for (int k = 0; k < ops->nslots; k++) s.slot[k] = arena[SLOT + k] + begin;
    return s;
}

/* What [from, to) of the arena shares with each tensor, cut at every 'cut' floats of the arena. */
static int find_spans(const struct optim_ops *ops, struct arena *a, int from, int to, int cut, struct pair *out) {
    int count = 0, offset = 0;
    for (int t = 0; t < TENSORS; offset += tensors[t++].count)
        for (int at = offset, end = offset + tensors[t].count, next; at < end; at = next) {
            next = (at / cut + 1) * cut;
            if (next > end) next = end;
            int begin = at < from ? from : at, stop = next > to ? to : next;
            if (begin >= stop) continue;
            assert_true(count < PIECES);
            out[count++] = (struct pair){.here = span_of(ops, a->here, t, begin, stop),
                                         .there = span_of(ops, a->there, t, begin, stop),
                                         .tensor = t};
        }
    return count;
}

struct job {
    const struct optim_ops *ops;
    const void *config;
    const char *what;
    struct device *dev;
    struct arena a;
    struct rule rule;
    double norm[TENSORS][OPTIM_NORMS];
};

static void set_step(struct job *j, struct pair *p, int count, int step) {
    const struct optim_step s = {0.01f / (float)step, step % 2 ? 0.37f : 1, step}, other = {s.lr / 3, s.scale, step};
    optim_rule(j->ops, j->config, &s, &j->rule);
    optim_rule_group(j->ops, j->config, &other, LAST, &j->rule);
    for (int i = 0; i < count && j->ops->nnorms; i++) {
        const struct tensor *t = &tensors[p[i].tensor];
        p[i].here.rate = p[i].there.rate =
            j->ops->rate(j->config, t->group ? &other : &s, t->matrix, j->norm[p[i].tensor]);
    }
}

static void measure(struct job *j, int step) {
    struct pair p[PIECES];
    struct rule_span spans[PIECES];
    double here[PIECES][RULE_NORMS] = {{0}}, there[PIECES][RULE_NORMS];
    void *squares;
    int count = find_spans(j->ops, &j->a, 0, j->a.floats, NORM_BLOCK, p);
    set_step(j, p, count, step);
    memset(j->norm, 0, sizeof j->norm);
    for (int i = 0; i < count; i++) {
        spans[i] = p[i].there;
        rule_measure(&j->rule, &p[i].here, here[i]);
        for (int k = 0; k < RULE_NORMS; k++) j->norm[p[i].tensor][k] += here[i][k];
    }
    for (int t = 0; t < TENSORS; t++)
        for (int k = 0; k < RULE_NORMS; k++) j->norm[t][k] = sqrt(j->norm[t][k]);
    assert_ok(device_alloc(j->dev, sizeof there, &squares));
    assert_ok(device_runtime(j->dev)->measure(j->dev, &j->rule, spans, count, squares));
    assert_ok(device_read(j->dev, there, squares, (size_t)count * sizeof *there));
    device_free(j->dev, squares);
    for (int i = 0; i < count; i++)
        for (int k = 0; k < RULE_NORMS; k++)
            if (memcmp(&here[i][k], &there[i][k], sizeof(double)) != 0)
                fail_msg("%s, step %d: norm %d of piece %d is %a, in plain C %a", j->what, step, k, i, there[i][k],
                         here[i][k]);
}

/* As two slices, cut where nothing is aligned; in another place at every other step. */
static void step_all(struct job *j, int step) {
    struct pair p[PIECES];
    struct rule_span spans[PIECES];
    int at = step % 2 ? 7003 : 20002, cuts[] = {0, at, j->a.floats};
    for (int slice = 0; slice < 2; slice++) {
        int count = find_spans(j->ops, &j->a, cuts[slice], cuts[slice + 1], 1 << 30, p);
        set_step(j, p, count, step);
        for (int i = 0; i < count; i++) {
            spans[i] = p[i].there;
            rule_step(&j->rule, &p[i].here);
        }
        assert_ok(device_runtime(j->dev)->update(j->dev, &j->rule, spans, count));
    }
}

static void run(struct device *dev, const struct optim_ops *ops, const char *yaml) {
    struct job j = {.ops = ops, .dev = dev};
    struct config_errors *e;
    struct pool *pool;
    struct node *root;
    char what[256];
    assert_ok(config_errors_create(&e));
    assert_ok(pool_create(&pool));
    assert_ok(tree_parse(yaml, strlen(yaml), "test.yaml", pool, e, &root));
    void *config = pool_alloc(pool, ops->section.size);
    assert_ok(config_read(&ops->section, root, pool, e, config));
    snprintf(what, sizeof what, "%s %s", ops->section.name, yaml);
    j.config = config, j.what = what;
    arena_open(&j.a, dev);
    arena_fill(&j.a, dev, W, 1);
    for (int step = 1; step <= STEPS; step++) {
        arena_fill(&j.a, dev, G, 1 + (uint64_t)step);
        if (ops->nnorms) measure(&j, step);
        step_all(&j, step);
        assert_same_arenas(&j.a, dev, what, step);
    }
    arena_close(&j.a, dev);
    pool_free(pool);
    config_errors_free(e);
}

/* ---- tests ---------------------------------------------------------------------------------- */
static void every_optimizer_has_the_bits_of_plain_c(void **state) {
    (void)state;
    static const struct {
        const char *kind, *yaml; /* beside {} and the common keys below, for all */
    } more[] = {
        {"sgd", "{momentum: 0.9}"},
        {"sgd", "{momentum: 0.9, nesterov: true, weight_decay: 0.01, decay: matrices}"},
        {"lars", "{trust: 0.02, momentum: 0.5, adapt: all}"},
        {"lamb", "{betas: [0.8, 0.95], adapt: all, decay: all}"},
        {"adam", "{betas: [0.8, 0.95], eps: 1e-3, weight_decay: 0.1}"},
        {"adam", "{amsgrad: true}"},
        {"adamw", "{amsgrad: true, betas: [0.8, 0.5]}"},
        {"sgd", "{momentum: 0.9, dampening: 0.5}"},
        {"lion", "{betas: [0.95, 0.98], weight_decay: 0.5}"},
    };
    struct device *dev = gpu_open(0);
    int count;
    const struct optim_ops *const *kinds = optim_kinds(&count);
    for (int i = 0; i < count; i++) {
        run(dev, kinds[i], "{}");
        run(dev, kinds[i], "{weight_decay: 0.03, decay: all}");
        run(dev, kinds[i], "{weight_decay: 0.03, decay: matrices}");
        for (size_t k = 0; k < sizeof more / sizeof *more; k++)
            if (!strcmp(more[k].kind, kinds[i]->section.name)) run(dev, kinds[i], more[k].yaml);
    }
    dev->ops->close(dev);
}

/* The mean in slot 0, by spans of which some are not aligned; the first step copies. */
static void averages_have_the_bits_of_plain_c(void **state) {
    (void)state;
    struct device *dev = gpu_open(0);
    struct arena a;
    arena_open(&a, dev);
    arena_fill(&a, dev, SLOT, 40);
    for (int step = 1; step <= STEPS; step++) {
        struct rule rule;
        struct rule_span here[TENSORS], there[TENSORS];
        arena_fill(&a, dev, W, 50 + (uint64_t)step);
        for (int t = 0, at = 0; t < TENSORS; at += tensors[t++].count) {
            here[t] = (struct rule_span){
                .w = a.here[W] + at, .g = a.here[G] + at, .slot = {a.here[SLOT] + at}, .n = tensors[t].count};
            there[t] = (struct rule_span){
                .w = a.there[W] + at, .g = a.there[G] + at, .slot = {a.there[SLOT] + at}, .n = tensors[t].count};
        }
        ema_rule(0.9, step, &rule);
        for (int t = 0; t < TENSORS; t++) rule_step(&rule, &here[t]);
        assert_ok(device_runtime(dev)->update(dev, &rule, there, TENSORS));
        assert_same_arenas(&a, dev, "average", step);
        if (step == 1) assert_memory_equal(a.here[SLOT], a.here[W], (size_t)a.floats * sizeof(float));
    }
    arena_close(&a, dev);
    dev->ops->close(dev);
}

/* More lists of spans than a device remembers, none of which may be taken for another. */
static void lists_of_spans_are_told_apart(void **state) {
    (void)state;
    enum { LISTS = 75, TURNS = 3 };
    struct device *dev = gpu_open(0);
    struct arena a;
    const struct formula plain = {.name = "sgd_plain"}, unknown = {.name = "sgd"};
    struct rule rule = {.step = &plain, .number = {{-1, 1}}}; /* the rate, the scale */
    arena_open(&a, dev);
    for (int i = 0; i < a.floats; i++) a.here[G][i] = 1;
    assert_ok(device_write(dev, a.there[G], a.here[G], (size_t)a.floats * 4));
    for (int turn = 0; turn < TURNS; turn++)
        for (int k = 0; k < LISTS; k++) {
            int n = 1 + k % 5;
            struct rule_span s[5];
            for (int i = 0; i < n; i++) {
                int64_t at = k * 400 + i * 80 + k % 3, length = 30 + k % 45 + i; /* they do not overlap */
                s[i] = (struct rule_span){.w = a.there[W] + at, .g = a.there[G] + at, .n = length};
                for (int64_t x = at; x < at + length; x++) a.here[W][x] += 1;
            }
            assert_ok(device_runtime(dev)->update(dev, &rule, s, n));
        }
    assert_same_arenas(&a, dev, "lists", TURNS);
    assert_ok(device_runtime(dev)->update(dev, &rule, NULL, 0));
    rule.step = rule.direct = &unknown;
    assert_fails(ERR_BUG, device_runtime(dev)->update(dev, &rule, NULL, 0));
    assert_fails(ERR_BUG, device_runtime(dev)->measure(dev, &rule, NULL, 0, NULL));
    arena_close(&a, dev);
    dev->ops->close(dev);
}

static void optimizers_are_not_recorded(void **state) {
    (void)state;
    struct device *dev = gpu_open(0);
    struct device_recording *r;
    const struct formula plain = {.name = "sgd_plain"};
    struct rule rule = {.step = &plain};
    void *p;
    assert_ok(device_alloc(dev, 4096, &p));
    struct rule_span s = {.w = p, .g = p, .slot = {p}, .n = 1};
    assert_ok(device_runtime(dev)->record(dev));
    assert_fails(ERR_BUG, device_runtime(dev)->update(dev, &rule, &s, 1));
    assert_fails(ERR_BUG, device_runtime(dev)->measure(dev, &rule, &s, 1, p));
    assert_ok(device_runtime(dev)->recorded(dev, &r));
    device_runtime(dev)->recording_free(r);
    device_free(dev, p);
    dev->ops->close(dev);
}

static void norms_have_the_bits_of_plain_c(void **state) {
    (void)state;
    enum { N = 9 * NORM_BLOCK + 77, BLOCKS = 10 };
    static const int ranges[][2] = {{0, N}, {NORM_BLOCK, 3 * NORM_BLOCK}, {9 * NORM_BLOCK, N}, {0, 5}, {0, 0}};
    struct device *dev = gpu_open(0);
    struct rng_key key = rng_key(5, RNG_TEST);
    double want[BLOCKS], got[BLOCKS];
    float *g = malloc(N * sizeof *g);
    void *there, *partial;
    for (int i = 0; i < N; i++) g[i] = rng_normal(key, 1, (uint64_t)i) * (i % 11 ? 1 : 1e-8f);
    assert_ok(device_alloc(dev, N * sizeof *g, &there));
    assert_ok(device_alloc(dev, sizeof got, &partial));
    assert_ok(device_write(dev, there, g, N * sizeof *g));
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
        memset(want, 0, sizeof want);
        squares_partials(g, ranges[i][0], ranges[i][1], want);
        assert_ok(device_zero(dev, partial, sizeof got));
        assert_ok(device_runtime(dev)->partials(dev, there, ranges[i][0], ranges[i][1], partial));
        assert_ok(device_read(dev, got, partial, sizeof got));
        assert_memory_equal(got, want, sizeof got);
    }
    device_free(dev, there);
    device_free(dev, partial);
    free(g);
    dev->ops->close(dev);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_optimizer_has_the_bits_of_plain_c), cmocka_unit_test(averages_have_the_bits_of_plain_c),
        cmocka_unit_test(lists_of_spans_are_told_apart),           cmocka_unit_test(optimizers_are_not_recorded),
        cmocka_unit_test(norms_have_the_bits_of_plain_c),
    };
    return gpu_run_tests(tests);
}
