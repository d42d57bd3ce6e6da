/* The loader gives the same whatever the threads, the depth, the rank or the place where it began;
 * and it fails, ends and closes as it should. */
#include "tests/unit/data_fixture.h"

#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

#include "engine/base/digest.h"

#include <unistd.h>

enum { SHARDS = 8, STEPS = 23, SIZE = 150, BATCH = 32 };
static const struct shape small = {3, {2, 3, 4}};

/* One shard of one step as a number that stands for all that it holds. */
static uint32_t shard_digest(const struct step_batch *b, const struct shard *s, const struct dataset *d) {
    int64_t facts[] = {b->epoch, b->step, b->samples, s->index, s->n};
    uint32_t crc = crc32c(0, facts, sizeof facts);
    crc = crc32c(crc, s->x, (size_t)(s->n * shape_count(&d->shape)) * sizeof(float));
    crc = crc32c(crc, s->ids, (size_t)s->n * sizeof *s->ids);
    if (s->labels) crc = crc32c(crc, s->labels, (size_t)s->n * sizeof *s->labels);
    return s->target ? crc32c(crc, s->target, (size_t)(s->n * d->targets) * sizeof(float)) : crc;
}

struct record { /* of steps from 'first' on */
    int64_t steps;
    uint32_t digest[STEPS][SHARDS];
};

struct trial {
    struct fake fake;
    struct setup setup;
    struct loader_params params;
};

static void trial_begin(struct trial *t, const char *yaml, int64_t size) {
    t->fake = fake_set(size, SAMPLE_U8, small);
    setup_make(&t->setup, yaml);
    t->params = (struct loader_params){
        .data = &t->fake.base,
        .config = &t->setup.config,
        .sampler = {.size = size, .batch = BATCH, .shards = SHARDS, .shuffle = true, .seed = 3},
        .training = true,
        .workers = 2,
        .depth = 3,
    };
}

static void trial_end(struct trial *t) {
    setup_free(&t->setup);
}

/* What rank of world gets, written into the record. */
static void record_rank(const struct trial *t, int world, int rank, int64_t steps, struct record *out) {
    struct loader_params p = t->params;
    int mine[SHARDS];
    for (int v = rank; v < p.sampler.shards; v += world) mine[p.nshards++] = v;
    p.shards = mine;
    struct loader *l;
    const struct step_batch *b;
    assert_ok(loader_open(&p, &l));
    for (out->steps = 0; out->steps < steps; out->steps++) {
        assert_ok(loader_next(l, &b));
        if (!b) break;
        if (out->steps % 7 == 3) usleep(500); /* workers run far ahead, and leave this batch alone */
        assert_int_equal(b->nshards, p.nshards);
        for (int i = 0; i < b->nshards; i++) {
            const struct shard *s = &b->shards[i];
            assert_int_equal(s->index, mine[i]);
            if (i == 0) assert_int_equal((uintptr_t)s->x % ALIGNMENT, 0);
            if (i > 0) assert_ptr_equal(s->x, s[-1].x + s[-1].n * shape_count(&p.data->shape));
            if (i > 0) assert_ptr_equal(s->ids, s[-1].ids + s[-1].n);
            out->digest[out->steps][s->index] = shard_digest(b, s, p.data);
        }
    }
    loader_close(l);
}

static struct record record_all(const struct trial *t, int world, int64_t steps) {
    struct record r = {0};
    for (int rank = 0; rank < world; rank++) record_rank(t, world, rank, steps, &r);
    return r;
}

static void assert_same(const struct record *a, const struct record *b) {
    assert_int_equal(a->steps, b->steps);
    assert_memory_equal(a->digest, b->digest, sizeof a->digest);
}

static const char *const augmented = "{set: digits, augment: [flip, {crop: 2}]}";

static void test_threads_and_depth(void **state) {
    (void)state;
    struct trial t;
    trial_begin(&t, augmented, SIZE);
    struct record want = record_all(&t, 1, STEPS);
    for (int workers = 1; workers <= 8; workers += workers == 3 ? 5 : 1)
        for (int depth = 1; depth <= 4; depth++) {
            t.params.workers = workers;
            t.params.depth = depth;
            struct record got = record_all(&t, 1, STEPS);
            assert_same(&got, &want);
        }
    trial_end(&t);
}

static void test_worlds(void **state) {
    (void)state;
    struct trial t;
    trial_begin(&t, augmented, SIZE);
    struct record want = record_all(&t, 1, STEPS);
    for (int world = 2; world <= 8; world *= 2) {
        struct record got = record_all(&t, world, STEPS);
        assert_same(&got, &want);
    }
    trial_end(&t);
}

static void test_resume(void **state) {
    (void)state;
    struct trial t;
    trial_begin(&t, augmented, SIZE);
    struct record want = record_all(&t, 1, STEPS);
    int64_t per_epoch = sampler_steps(&t.params.sampler);
    for (int64_t from = 0; from < STEPS; from++)
        for (int late = 0; late < 2; late++) { /* late: the step is counted on beyond the end of an epoch */
            if (late && from < per_epoch) continue;
            t.params.epoch = from / per_epoch - late;
            t.params.step = from % per_epoch + late * per_epoch;
            struct record got = record_all(&t, 1, STEPS - from);
            assert_int_equal(got.steps, STEPS - from);
            assert_memory_equal(got.digest, want.digest + from, (size_t)got.steps * sizeof got.digest[0]);
        }
    trial_end(&t);
}

/* Every value of every shard, against sampler and set. */
static void check_values(const struct trial *t, const struct step_batch *b, const int64_t *order) {
    const struct sampler *s = &t->params.sampler;
    int64_t count = shape_count(&small);
    assert_int_equal(b->samples, sampler_batch_size(s, b->step));
    for (int v = 0; v < b->nshards; v++) {
        const struct shard *shard = &b->shards[v];
        assert_int_equal(shard->n, sampler_shard_size(s, b->step, v));
        for (int64_t i = 0; i < shard->n; i++) {
            int64_t position = sampler_position(s, b->step, v, i), sample = order[position];
            assert_int_equal(shard->ids[i], b->epoch * sampler_total(s) + position);
            assert_int_equal(shard->labels[i], sample % 7);
            for (int64_t k = 0; k < count; k++)
                assert_float_equal(shard->x[i * count + k], (float)(uint8_t)(sample + k) / 255, 1e-6f);
        }
    }
}

static void run_values(int64_t size, bool shuffle, bool pad, bool drop_last) {
    struct trial t;
    trial_begin(&t, "{set: digits, normalize: off}", size);
    struct sampler *s = &t.params.sampler;
    s->shuffle = shuffle, s->pad = pad, s->drop_last = drop_last;
    int all[SHARDS] = {0, 1, 2, 3, 4, 5, 6, 7};
    t.params.shards = all, t.params.nshards = SHARDS;
    int64_t *order = calloc((size_t)sampler_room(s), sizeof *order);
    struct loader *l;
    const struct step_batch *b;
    assert_ok(loader_open(&t.params, &l));
    for (int64_t epoch = 0; epoch < 4; epoch++) {
        sampler_order(s, epoch, order);
        for (int64_t step = 0; step < sampler_steps(s); step++) {
            assert_ok(loader_next(l, &b));
            assert_int_equal(b->epoch, epoch);
            assert_int_equal(b->step, step);
            check_values(&t, b, order);
        }
    }
    loader_close(l);
    free(order);
    trial_end(&t);
}

static void test_values(void **state) {
    (void)state;
    static const int64_t sizes[] = {33, 64, 37, 3, 150}; /* ragged by one, even, shards empty at the end, or always */
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int bits = 0; bits < 8; bits++)
            if (!(bits & 4) || sizes[i] >= BATCH) run_values(sizes[i], bits & 1, bits & 2, bits & 4);
}

static void test_evaluation(void **state) {
    (void)state;
    struct trial t;
    trial_begin(&t, augmented, 75); /* a ragged last batch of 11 */
    t.params.training = false;
    t.params.sampler.drop_last = true; /* has no say here */
    int visits[75] = {0};
    for (int rank = 0; rank < 4; rank++) {
        struct loader_params p = t.params;
        p.shards = (int[]){rank, rank + 4}, p.nshards = 2;
        struct loader *l;
        const struct step_batch *b;
        assert_ok(loader_open(&p, &l));
        for (int64_t step = 0; step < 3; step++) {
            assert_ok(loader_next(l, &b));
            assert_int_equal(b->samples, step < 2 ? 32 : 11);
            for (int s = 0; s < 2; s++)
                for (int64_t i = 0; i < b->shards[s].n; i++) {
                    int64_t index = (int64_t)b->shards[s].ids[i];
                    assert_int_equal(index, step * BATCH + i * SHARDS + b->shards[s].index);
                    assert_int_equal(b->shards[s].labels[i], index % 7);
                    visits[index]++;
                }
        }
        for (int again = 0; again < 2; again++) {
            assert_ok(loader_next(l, &b));
            assert_null(b);
        }
        loader_close(l);
    }
    for (int i = 0; i < 75; i++) assert_int_equal(visits[i], 1);
    trial_end(&t);
}

static void test_targets(void **state) {
    (void)state;
    struct trial t;
    trial_begin(&t, "digits", 10);
    t.fake.base.classes = 0, t.fake.base.targets = 3;
    t.params.training = false;
    t.params.shards = (int[]){1}, t.params.nshards = 1;
    struct loader *l;
    const struct step_batch *b;
    assert_ok(loader_open(&t.params, &l));
    assert_ok(loader_next(l, &b));
    assert_null(b->shards[0].labels);
    assert_int_equal(b->shards[0].n, 2); /* 1 and 9 */
    assert_float_equal(b->shards[0].target[3 + 2], 11, 0);
    loader_close(l);
    trial_end(&t);
}

/* A sample that cannot be read fails the step it belongs to, not an earlier one, and for good. */
static void test_failure(void **state) {
    (void)state;
    struct trial t;
    trial_begin(&t, "{set: digits, normalize: off}", SIZE);
    t.params.sampler.shuffle = false;
    t.params.shards = (int[]){0, 1, 2, 3, 4, 5, 6, 7}, t.params.nshards = SHARDS;
    t.fake.broken = 70; /* of step 2; those after it fail before it is given */
    for (int workers = 1; workers <= 4; workers++) {
        struct loader *l;
        const struct step_batch *b;
        t.params.workers = workers, t.params.depth = 4;
        assert_ok(loader_open(&t.params, &l));
        assert_ok(loader_next(l, &b));
        assert_ok(loader_next(l, &b));
        usleep(2000);
        for (int again = 0; again < 2; again++) {
            assert_fails(ERR_DATA, loader_next(l, &b));
            assert_string_equal(error_message(), "sample 70 is broken");
            assert_string_equal(error_hint(), "mend it");
            assert_null(b);
        }
        loader_close(l);
    }
    trial_end(&t);
}

static void test_refused(void **state) {
    (void)state;
    struct trial t;
    struct loader *l;
    trial_begin(&t, "digits", 20);
    t.params.shards = (int[]){0}, t.params.nshards = 1;
    t.params.sampler.drop_last = true;
    assert_fails(ERR_CONFIG, loader_open(&t.params, &l)); /* not one whole batch */
    t.params.sampler.drop_last = false;
    t.fake.broken = 4; /* normalize: auto reads it */
    assert_fails(ERR_DATA, loader_open(&t.params, &l));
    t.fake.broken = -1;
    t.params.norm = &(struct normalization){.channels = 3};
    assert_fails(ERR_CONFIG, loader_open(&t.params, &l));
    trial_end(&t);
}

static void test_close_any_time(void **state) {
    (void)state;
    struct trial t;
    trial_begin(&t, augmented, SIZE);
    t.params.shards = (int[]){0, 3, 5}, t.params.nshards = 3;
    for (int i = 0; i < 40; i++) {
        struct loader *l;
        const struct step_batch *b;
        t.params.workers = 1 + i % 5, t.params.depth = 1 + i % 3;
        assert_ok(loader_open(&t.params, &l));
        for (int k = 0; k < i / 5; k++) assert_ok(loader_next(l, &b));
        if (i % 4 == 0) usleep(300);
        loader_close(l);
    }
    loader_close(NULL);
    trial_end(&t);
}

static void test_no_allocations(void **state) {
    (void)state;
    struct trial t;
    struct dataset *digits = set_open("{set: digits, train: 300}", true);
    trial_begin(&t, augmented, 300);
    t.params.data = digits;
    t.params.shards = (int[]){0, 1, 2, 3, 4, 5, 6, 7}, t.params.nshards = SHARDS;
    struct loader *l;
    const struct step_batch *b;
    assert_ok(loader_open(&t.params, &l));
    for (int i = 0; i < 25; i++) assert_ok(loader_next(l, &b));
    count_allocations_begin();
    for (int i = 0; i < 100; i++) assert_ok(loader_next(l, &b));
    assert_int_equal(count_allocations_end(), 0);
    loader_close(l);
    dataset_close(digits);
    trial_end(&t);
}

/* ---- workers by themselves ---- */
static atomic_int nreaders;

/* Slow, and notes who reads. */
static enum error slow_read(struct dataset *d, int64_t i, void *x, int32_t *label, float *target) {
    static _Thread_local bool noted;
    if (!noted) atomic_fetch_add(&nreaders, 1);
    noted = true;
    usleep(200);
    return fake_read(d, i, x, label, target);
}

/* They become more while the caller waits, and what they give stays the same. */
static void test_workers_by_need(void **state) {
    (void)state;
    static const struct dataset_ops slow = {.read = slow_read, .close = fake_close};
    struct fake f = fake_set(2048, SAMPLE_F32, (struct shape){1, {2}});
    struct setup s;
    struct loader *l;
    const struct step_batch *b;
    cpu_set_t cores;
    f.base.ops = &slow;
    setup_make(&s, "{set: digits, normalize: off}");
    struct loader_params p = {.data = &f.base,
                              .config = &s.config,
                              .sampler = {.size = 2048, .batch = 128, .shards = 1},
                              .shards = (int[]){0},
                              .nshards = 1,
                              .training = true,
                              .workers = 0,
                              .depth = 2};
    assert_ok(loader_open(&p, &l));
    for (int64_t step = 0; step < 16; step++) {
        assert_ok(loader_next(l, &b));
        for (int64_t i = 0; i < 128; i++) assert_true(b->shards[0].x[2 * i] == (float)(step * 128 + i));
    }
    loader_close(l);
    assert_int_equal(sched_getaffinity(0, sizeof cores, &cores), 0);
    int n = CPU_COUNT(&cores) < 16 ? CPU_COUNT(&cores) : 16;
    assert_between(atomic_load(&nreaders), n > 1 ? 2 : 1, n);
    setup_free(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_workers_by_need), cmocka_unit_test(test_threads_and_depth),
        cmocka_unit_test(test_worlds),          cmocka_unit_test(test_resume),
        cmocka_unit_test(test_values),          cmocka_unit_test(test_evaluation),
        cmocka_unit_test(test_targets),         cmocka_unit_test(test_failure),
        cmocka_unit_test(test_refused),         cmocka_unit_test(test_close_any_time),
        cmocka_unit_test(test_no_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
