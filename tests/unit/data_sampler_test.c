/* The sampler against a plain transcription of PyTorch's DistributedSampler, and its own promises
 * over many shapes. */
#include "tests/harness/harness.h"

#include "engine/base/rng.h"
#include "engine/data/sampler.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum { MOST = 40, REPLICAS = 8, ROOM = 4 * MOST };

/* torch/utils/data/distributed.py, __init__ and __iter__, with the permutation given. */
static int64_t torch_sampler(const int64_t *permutation, int64_t size, int replicas, int rank, bool drop_last,
                             int64_t *out) {
    int64_t num_samples;
    if (drop_last && size % replicas != 0)
        num_samples = (int64_t)ceil((double)(size - replicas) / replicas);
    else
        num_samples = (int64_t)ceil((double)size / replicas);
    int64_t total_size = num_samples * replicas, indices[ROOM], length = size;
    memcpy(indices, permutation, (size_t)size * sizeof *indices);
    if (!drop_last) {
        int64_t padding_size = total_size - size;
        while (padding_size > 0) { /* indices += indices[:padding], of the list repeated until that is long enough */
            indices[length] = permutation[(length - size) % size];
            length++, padding_size--;
        }
    } else
        length = total_size;
    assert_int_equal(length, total_size);
    int64_t n = 0;
    for (int64_t i = rank; i < total_size; i += replicas) out[n++] = indices[i];
    assert_int_equal(n, num_samples);
    return n;
}

/* The sampler as DistributedSampler(size, num_replicas, rank, shuffle, seed, drop_last) uses it after
 * set_epoch(epoch): a batch of one sample for each replica, its own padding and drop_last. */
static enum error sampler_distributed(int64_t size, int replicas, int rank, bool shuffle, uint64_t seed, int64_t epoch,
                                      bool drop_last, int64_t *out, int64_t *count) {
    struct sampler s = {.size = size,
                        .batch = replicas,
                        .shards = replicas,
                        .shuffle = shuffle,
                        .seed = seed,
                        .pad = !drop_last,
                        .drop_last = drop_last};
    int64_t *order = calloc((size_t)sampler_room(&s), sizeof *order);
    if (!order) return FAIL(ERR_MEMORY, "no memory for the order of %lld samples", (long long)size);
    sampler_order(&s, epoch, order);
    *count = sampler_steps(&s);
    for (int64_t step = 0; step < *count; step++) out[step] = order[sampler_position(&s, step, rank, 0)];
    free(order);
    return ERR_NONE;
}

static void test_distributed(void **state) {
    (void)state;
    for (int64_t size = 1; size <= MOST; size++)
        for (int bits = 0; bits < 4 * REPLICAS; bits++) {
            int replicas = bits / 4 + 1;
            bool shuffle = bits & 1, drop_last = bits & 2;
            int64_t permutation[MOST], want[ROOM], got[ROOM], count;
            for (int64_t i = 0; i < size; i++) permutation[i] = i;
            if (shuffle) rng_permutation(rng_key(5, RNG_SHUFFLE), 3, size, permutation);
            for (int rank = 0; rank < replicas; rank++) {
                int64_t n = torch_sampler(permutation, size, replicas, rank, drop_last, want);
                assert_ok(sampler_distributed(size, replicas, rank, shuffle, 5, 3, drop_last, got, &count));
                assert_int_equal(count, n);
                assert_memory_equal(got, want, (size_t)n * sizeof *got);
            }
        }
}

/* Counts how often each sample is visited in an epoch, by walking steps and shards. */
static void walk(const struct sampler *s, const int64_t *order, int *visits) {
    int64_t visited = 0;
    for (int64_t step = 0; step < sampler_steps(s); step++) {
        int64_t sum = 0, batch = sampler_batch_size(s, step);
        assert_true(batch >= 1 && batch <= s->batch);
        bool taken[ROOM] = {0};
        for (int v = 0; v < s->shards; v++) {
            int64_t n = sampler_shard_size(s, step, v);
            assert_between(n, batch / s->shards, (batch + s->shards - 1) / s->shards);
            for (int64_t i = 0; i < n; i++) {
                int64_t position = sampler_position(s, step, v, i), within = position - step * s->batch;
                assert_between(within, 0, batch - 1);
                assert_false(taken[within]);
                taken[within] = true;
                visits[order[position]]++;
            }
            sum += n;
        }
        assert_int_equal(sum, batch);
        visited += batch;
    }
    assert_int_equal(visited, sampler_total(s));
}

static void test_partition(void **state) {
    (void)state;
    for (int64_t size = 1; size <= MOST; size++)
        for (int64_t batch = 1; batch <= 20; batch++)
            for (int bits = 0; bits < 8 * 4; bits++) {
                struct sampler s = {.size = size,
                                    .batch = batch,
                                    .shards = 1 << (bits / 8),
                                    .seed = 9,
                                    .shuffle = bits & 1,
                                    .pad = bits & 2,
                                    .drop_last = bits & 4};
                int64_t order[ROOM], full = s.pad ? (size + s.shards - 1) / s.shards * s.shards : size;
                int visits[MOST] = {0};
                assert_int_equal(sampler_room(&s), full);
                sampler_order(&s, 2, order);
                walk(&s, order, visits);
                assert_int_equal(sampler_total(&s), s.drop_last ? full - full % batch : full);
                if (s.drop_last) continue;
                for (int64_t i = 0; i < size; i++)
                    assert_between(visits[i], 1, s.pad ? 1 + (full - size + size - 1) / size : 1);
            }
}

/* Where V divides B, shard v of all steps is replica v of DistributedSampler. */
static void test_shards_are_replicas(void **state) {
    (void)state;
    for (int64_t size = 1; size <= MOST; size++)
        for (int shards = 1; shards <= 8; shards *= 2) {
            struct sampler s = {
                .size = size, .batch = 2 * shards, .shards = shards, .shuffle = true, .seed = 4, .pad = true};
            int64_t order[ROOM], want[ROOM], count;
            sampler_order(&s, 7, order);
            for (int v = 0; v < shards; v++) {
                int64_t at = 0;
                assert_ok(sampler_distributed(size, shards, v, true, 4, 7, false, want, &count));
                for (int64_t step = 0; step < sampler_steps(&s); step++)
                    for (int64_t i = 0; i < sampler_shard_size(&s, step, v); i++)
                        assert_int_equal(order[sampler_position(&s, step, v, i)], want[at++]);
                assert_int_equal(at, count);
            }
        }
}

static void test_order(void **state) {
    (void)state;
    struct sampler s = {.size = 30, .batch = 4, .shards = 2, .shuffle = true, .seed = 1}, other = s;
    int64_t a[32], b[32];
    sampler_order(&s, 0, a);
    sampler_order(&s, 0, b);
    assert_memory_equal(a, b, 30 * sizeof *a);
    sampler_order(&s, 1, b);
    assert_memory_not_equal(a, b, 30 * sizeof *a);
    other.seed = 2;
    sampler_order(&other, 0, b);
    assert_memory_not_equal(a, b, 30 * sizeof *a);
    other = s, other.batch = 7, other.shards = 4; /* neither cuts into the order */
    sampler_order(&other, 0, b);
    assert_memory_equal(a, b, 30 * sizeof *a);
}

/* What torch.randperm gave (2.15; since 1.0) after manual_seed(seed + epoch): some orders, and digests of long ones, as
 * zlib.crc32 of their int64s. */
static void test_pytorch(void **state) {
    (void)state;
    static const struct {
        int64_t size;
        uint64_t seed;
        int64_t epoch, order[10];
    } known[] = {
        {10, 0, 0, {4, 1, 7, 5, 3, 9, 0, 8, 6, 2}},
        {10, 0, 1, {5, 6, 1, 2, 0, 8, 9, 3, 7, 4}},
        {10, 1, 0, {5, 6, 1, 2, 0, 8, 9, 3, 7, 4}},
        {7, (1ull << 32) + 4, 1, {1, 0, 4, 2, 6, 5, 3}},
        {1, 3, 0, {0}},
        {2, 3, 0, {0, 1}},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        struct sampler s = {.size = known[i].size, .batch = 1, .shards = 1, .shuffle = true, .pytorch = true};
        int64_t order[10];
        s.seed = known[i].seed;
        sampler_order(&s, known[i].epoch, order);
        assert_memory_equal(order, known[i].order, (size_t)s.size * sizeof *order);
    }
    static const struct {
        int64_t size;
        uint64_t seed;
        uint32_t crc;
    } digests[] = {{100, 7, 0xef9bdab5},   {623, 1, 0x4eb72219},    {624, 2, 0xef694b42},   {625, 3, 0x0f13a051},
                   {1000, 42, 0x1a5344c0}, {50000, 12, 0x51d0c3e3}, {65536, 0, 0x93d2d266}, {1281167, 0, 0x77bd8951}};
    for (size_t i = 0; i < sizeof digests / sizeof *digests; i++) {
        int64_t n = digests[i].size, *order = malloc((size_t)n * sizeof *order);
        struct sampler s = {
            .size = n, .batch = 1, .shards = 1, .shuffle = true, .pytorch = true, .seed = digests[i].seed};
        sampler_order(&s, 0, order);
        assert_int_equal(crc32(0, (const void *)order, (unsigned)((size_t)n * sizeof *order)), digests[i].crc);
        free(order);
    }
}

/* DistributedSampler of 11 samples over 4 ranks, seed 3, epoch 5, as PyTorch gave it: padded by its beginning. */
static void test_pytorch_ranks(void **state) {
    (void)state;
    static const int64_t known[4][3] = {{10, 0, 6}, {9, 1, 8}, {2, 7, 5}, {4, 3, 10}};
    struct sampler s = {.size = 11, .batch = 4, .shards = 4, .shuffle = true, .pytorch = true, .seed = 3, .pad = true};
    int64_t order[12];
    sampler_order(&s, 5, order);
    for (int v = 0; v < 4; v++)
        for (int64_t step = 0; step < 3; step++)
            assert_int_equal(order[sampler_position(&s, step, v, 0)], known[v][step]);
}

/* Draws by weights: chi-square of 50 epochs against exact frequencies, no sample of weight 0, draws of an epoch that are
 * nobody else's, and each position's draw whatever the others are. */
static void test_weighted(void **state) {
    (void)state;
    enum { SAMPLES = 40, EPOCHS = 50, DRAWS = SAMPLES * EPOCHS };
    double upto[SAMPLES], weight[SAMPLES], sum = 0, chi = 0;
    int64_t order[SAMPLES], padded[SAMPLES + 8], count[SAMPLES] = {0};
    for (int i = 0; i < SAMPLES; i++) upto[i] = sum += weight[i] = i % 5;
    struct sampler s = {.size = SAMPLES, .batch = 8, .shards = 8, .shuffle = true, .seed = 11, .upto = upto};
    for (int64_t e = 0; e < EPOCHS; e++) {
        sampler_order(&s, e, order);
        for (int i = 0; i < SAMPLES; i++) count[order[i]]++;
    }
    for (int i = 0; i < SAMPLES; i++) {
        double want = DRAWS * weight[i] / sum;
        if (weight[i] > 0) chi += ((double)count[i] - want) * ((double)count[i] - want) / want;
        if (weight[i] == 0) assert_int_equal(count[i], 0);
    }
    assert_true(chi > 11.2 && chi < 63.6); /* of 31 degrees of freedom: beyond these lie 0.1 % in all */
    s.shards = 16, s.batch = 16, s.pad = true;
    assert_int_equal(sampler_room(&s), SAMPLES + 8);
    sampler_order(&s, EPOCHS - 1, padded);
    assert_memory_equal(order, padded, sizeof order);
    assert_memory_not_equal(padded, padded + SAMPLES, 8 * sizeof *padded); /* drawn, too, not repeated */
    sampler_order(&s, EPOCHS, padded);
    assert_memory_not_equal(order, padded, sizeof order);
    s.seed = 12;
    sampler_order(&s, EPOCHS - 1, padded);
    assert_memory_not_equal(order, padded, sizeof order);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_distributed),
        cmocka_unit_test(test_partition),
        cmocka_unit_test(test_shards_are_replicas),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_pytorch),
        cmocka_unit_test(test_pytorch_ranks),
        cmocka_unit_test(test_weighted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
