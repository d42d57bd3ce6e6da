/* Samples that are mixed two by two: as torchvision mixes them, by draws that know neither ranks nor threads. */
#include "tests/reference/mixing.h"
#include "tests/unit/data_fixture.h"

#include "engine/base/rng.h"
#include "engine/data/mixing.h"

#include <math.h>

/* ---- the part ------------------------------------------------------------------------------- */
enum { DRAWS = 20000 };
static double drawn[DRAWS];

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double even(double x) {
    return x;
}
static double arcsine(double x) {
    return 2 / 3.141592653589793 * asin(sqrt(x));
}
static double cubic(double x) {
    return x * x * (3 - 2 * x);
}

/* By its mean, its variance 1 / (4 (2 alpha + 1)), and where the distribution is an easy formula by the largest distance
 * from that, which is above 1.95 / sqrt(n) once in a thousand times. */
static void parts_follow_beta(void **state) {
    (void)state;
    static const struct {
        double alpha;
        double (*below)(double x);
    } cases[] = {{0.01, NULL}, {0.2, NULL}, {0.5, arcsine}, {1, even}, {2, cubic}, {30, NULL}, {1000, NULL}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        double mean = 0, square = 0, far = 0, variance = 1 / (4 * (2 * cases[c].alpha + 1));
        for (int i = 0; i < DRAWS; i++) {
            double v = drawn[i] = rng_beta(rng_key(3, RNG_TEST), c, (uint64_t)i, cases[c].alpha);
            assert_true(v >= 0 && v <= 1);
            mean += v / DRAWS;
            square += (v - 0.5) * (v - 0.5) / DRAWS;
        }
        assert_true(fabs(mean - 0.5) < 4 * sqrt(variance / DRAWS));
        assert_true(fabs(square / variance - 1) < 0.04);
        if (!cases[c].below) continue;
        qsort(drawn, DRAWS, sizeof *drawn, by_size);
        for (int i = 0; i < DRAWS; i++) far = fmax(far, fabs(cases[c].below(drawn[i]) - (i + 0.5) / DRAWS));
        assert_true(far < 1.95 / sqrt(DRAWS));
    }
}

static void draws_are_of_the_step(void **state) {
    (void)state;
    const struct shape picture = {3, {3, 20, 30}};
    const struct augment both = {.mixup = 0.4, .cutmix = 1}, cut = {.cutmix = 1}, none = {0};
    struct rng_key key = rng_key(5, RNG_MIXING);
    int cuts = 0, same = 0;
    for (int64_t step = 0; step < 1000; step++) {
        struct mixing m = mixing_draw(&both, key, 1, step, &picture),
                      again = mixing_draw(&both, key, 1, step, &picture);
        struct mixing other = mixing_draw(&both, key, 2, step, &picture), c = mixing_draw(&cut, key, 1, step, &picture);
        assert_true(m.kind == again.kind && m.part == again.part && m.box.x == again.box.x && m.box.h == again.box.h);
        same += m.kind == MIX_UP && m.part == other.part;
        cuts += m.kind == MIX_CUT;
        assert_int_equal(c.kind, MIX_CUT);
        assert_true(c.box.x >= 0 && c.box.w >= 0 && c.box.x + c.box.w <= 30);
        assert_true(c.box.y >= 0 && c.box.h >= 0 && c.box.y + c.box.h <= 20);
        assert_true(fabs(c.part - (1 - (double)(c.box.w * c.box.h) / 600)) < 1e-15);
    }
    assert_int_equal(same, 0);
    assert_in_range(cuts, 437, 563); /* four deviations about a half */
    assert_int_equal(mixing_draw(&none, key, 0, 0, &picture).kind, MIX_NONE);
}

/* ---- torchvision's numbers ------------------------------------------------------------------ */
static void batches_are_mixed_as_by_torchvision(void **state) {
    (void)state;
    const struct shape shape = {3, {2, 6, 7}};
    enum { N = REFERENCE_SAMPLES, EACH = REFERENCE_VALUES };
    for (size_t c = 0; c < sizeof reference_mixed / sizeof *reference_mixed; c++) {
        struct mixing m = {reference_mixed[c].cut ? MIX_CUT : MIX_UP, reference_mixed[c].part, {0}};
        if (m.kind == MIX_CUT) mixing_cut(&m, reference_mixed[c].column, reference_mixed[c].row, 7, 6);
        for (int64_t i = 0; i < N; i++) {
            float x[EACH], y[REFERENCE_CLASSES] = {0};
            int64_t partner = mixing_partner(i, N);
            memcpy(x, reference_x + i * EACH, sizeof x);
            mixing_apply(&m, &shape, x, reference_x + partner * EACH);
            y[reference_labels[i]] += (float)m.part;
            y[reference_labels[partner]] += (float)(1 - m.part);
            for (int64_t k = 0; k < EACH; k++)
                assert_true(fabsf(x[k] - reference_mixed[c].x[i * EACH + k]) <= (m.kind == MIX_CUT ? 0 : 1e-7f));
            for (int64_t k = 0; k < REFERENCE_CLASSES; k++)
                assert_true(fabsf(y[k] - reference_mixed[c].y[i * REFERENCE_CLASSES + k]) < 1e-6f);
        }
    }
}

/* ---- the loader ----------------------------------------------------------------------------- */
enum { SIZE = 21, BATCH = 8, STEPS = 6, VALUES = 24 };
struct sample {
    float x[VALUES], target[2], share;
    int32_t label, other;
};

/* The first steps, by position in the batch. */
static void load(struct dataset *d, const char *yaml, int shards, int workers, struct sample out[STEPS][BATCH]) {
    struct setup s;
    struct loader *l;
    const struct step_batch *b;
    const int all[] = {0, 1, 2, 3};
    setup_make(&s, yaml);
    struct loader_params p = {.data = d,
                              .config = &s.config,
                              .shards = all,
                              .nshards = shards,
                              .training = true,
                              .workers = workers,
                              .depth = 2};
    p.sampler = (struct sampler){.size = SIZE, .batch = BATCH, .shards = shards, .shuffle = true, .seed = 3};
    assert_ok(loader_open(&p, &l));
    for (int step = 0; step < STEPS; step++) {
        assert_ok(loader_next(l, &b));
        for (int v = 0; v < shards; v++)
            for (int64_t i = 0; i < b->shards[v].n; i++) {
                const struct shard *from = &b->shards[v];
                struct sample *to = &out[step][i * shards + v];
                memcpy(to->x, from->x + i * VALUES, sizeof to->x);
                if (from->labels) to->label = to->other = from->labels[i];
                if (from->target) memcpy(to->target, from->target + 2 * i, sizeof to->target);
                to->share = 1;
                if (from->others) to->other = from->others[i], to->share = from->shares[i];
            }
    }
    loader_close(l);
    setup_free(&s);
}

static struct sample plain[STEPS][BATCH], mixed[STEPS][BATCH], shared[STEPS][BATCH];

/* A mixed batch is the batch that the same visits make, mixed: in the last one, of 5 samples, too. */
static void check_loader(const char *change, bool values) {
    char yaml[128];
    struct fake f = fake_set(SIZE, SAMPLE_U8, (struct shape){3, {2, 3, 4}});
    if (values) f.base.classes = 0, f.base.labels = 0, f.base.targets = 2;
    load(&f.base, "{set: digits, augment: [flip, {crop: 1}]}", 1, 1, plain);
    snprintf(yaml, sizeof yaml, "{set: digits, augment: [flip, {crop: 1}, %s]}", change);
    load(&f.base, yaml, 1, 1, mixed);
    load(&f.base, yaml, 4, 3, shared);
    assert_memory_equal(mixed, shared, sizeof mixed);
    const struct augment a = {.mixup = strstr(change, "mixup") ? 0.7 : 0, .cutmix = strstr(change, "cutmix") ? 1.5 : 0};
    for (int step = 0; step < STEPS; step++) {
        int64_t n = step % 3 == 2 ? SIZE % BATCH : BATCH;
        struct mixing m = mixing_draw(&a, rng_key(3, RNG_MIXING), step / 3, step % 3, &f.base.shape);
        for (int64_t i = 0; i < n; i++) {
            const struct sample *partner = &plain[step][mixing_partner(i, n)], *got = &mixed[step][i];
            struct sample want = plain[step][i];
            mixing_apply(&m, &f.base.shape, want.x, partner->x);
            assert_memory_equal(want.x, got->x, sizeof want.x);
            mixing_blend(&m, want.target, partner->target, 2);
            assert_memory_equal(want.target, got->target, sizeof want.target);
            if (values) continue;
            bool own = m.part >= 0.5;
            assert_true(got->share == (float)(own ? m.part : 1 - m.part) && got->share >= 0.5f);
            assert_int_equal(got->label, own ? want.label : partner->label);
            assert_int_equal(got->other, own ? partner->label : want.label);
        }
    }
}

static void the_loader_mixes_what_visits_give(void **state) {
    (void)state;
    check_loader("{mixup: 0.7}", false);
    check_loader("{cutmix: 1.5}", false);
    check_loader("{mixup: 0.7}, {cutmix: 1.5}", false);
    check_loader("{mixup: 0.7}", true);
    check_loader("{mixup: 0.7}, {cutmix: 1.5}", true);
}

/* ---- what is refused ------------------------------------------------------------------------ */
static enum error open_training(struct fake *f, const char *yaml, bool fractions) {
    struct setup s;
    struct loader *l;
    const struct step_batch *b;
    setup_make(&s, yaml);
    s.config.fractions = fractions;
    struct loader_params p = {.data = &f->base,
                              .config = &s.config,
                              .shards = (int[]){0},
                              .nshards = 1,
                              .training = true,
                              .workers = 1,
                              .depth = 1};
    p.sampler = (struct sampler){.size = f->base.size, .batch = 4, .shards = 1};
    enum error err = loader_open(&p, &l);
    if (err == ERR_NONE) {
        err = loader_next(l, &b);
        loader_close(l);
    }
    setup_free(&s);
    return err;
}

static void what_cannot_be_mixed_is_refused(void **state) {
    (void)state;
    struct fake row = fake_set(9, SAMPLE_F32, (struct shape){1, {4}});
    struct fake tokens = fake_set(9, SAMPLE_TOKENS, (struct shape){1, {4}});
    assert_ok(open_training(&row, "{set: digits, augment: {mixup: 1}}", false));
    assert_fails(ERR_CONFIG, open_training(&row, "{set: digits, augment: {cutmix: 1}}", false));
    assert_non_null(strstr(error_message(), "cutmix needs pictures"));
    assert_fails(ERR_CONFIG, open_training(&tokens, "{set: digits, augment: {mixup: 1}}", false));
    assert_non_null(strstr(error_message(), "are tokens"));
}

/* Sample i's targets are i and i + 1. */
static void fractions_are_checked(void **state) {
    (void)state;
    struct fake f = fake_set(9, SAMPLE_F32, (struct shape){1, {4}});
    f.base.classes = 0, f.base.targets = 2;
    assert_ok(open_training(&f, "digits", false));
    assert_fails(ERR_DATA, open_training(&f, "digits", true));
    assert_non_null(strstr(error_message(), "sample 1 of 'fake' has the target 2"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_follow_beta),
        cmocka_unit_test(draws_are_of_the_step),
        cmocka_unit_test(batches_are_mixed_as_by_torchvision),
        cmocka_unit_test(the_loader_mixes_what_visits_give),
        cmocka_unit_test(what_cannot_be_mixed_is_refused),
        cmocka_unit_test(fractions_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
