/* The cpu device's threads: parts that cover a range once, cores, and results that do not depend on
 * their number. */
#include "tests/harness/levels.h"

#include "engine/device/cpu/gemm.h"

#include <pthread.h>
#include <sched.h>

static struct device *open_cpu(int index, int count, int threads, bool pin) {
    struct device_params p = {.index = index, .count = count, .threads = threads, .pin = pin};
    struct device *dev = NULL;
    assert_ok(device_find("cpu")->open(&p, &dev));
    return dev;
}

struct marks {
    unsigned char seen[1000];
    int64_t count, grain;
    bool whole; /* parts began at multiples of the grain, on threads of the team */
};

static void mark(void *ctx, int64_t begin, int64_t end) {
    struct marks *m = ctx;
    if (begin % m->grain || cpu_thread() < 0 || cpu_thread() >= 3) m->whole = false;
    for (int64_t k = begin; k < end; k++) m->seen[k]++;
}

static void parts_cover_a_range_once(void **state) {
    (void)state;
    struct device *dev = open_cpu(0, 1, 3, false);
    for (int64_t count = 0; count <= 1000; count += count < 40 ? 1 : 97)
        for (int64_t grain = 1; grain <= 64; grain *= 4) {
            struct marks m = {.count = count, .grain = grain, .whole = true};
            cpu_parallel(dev, count, grain, mark, &m);
            for (int64_t k = 0; k < 1000; k++) assert_int_equal(m.seen[k], k < count);
            assert_true(m.whole);
        }
    dev->ops->close(dev);
}

struct nest {
    struct device *dev;
    struct marks marks[3];
    int thread[3];
    bool stayed;
};

struct inner {
    struct nest *nest;
    int64_t at;
};

static void mark_inner(void *ctx, int64_t begin, int64_t end) {
    const struct inner *i = ctx;
    if (i->nest->thread[i->at] != cpu_thread()) i->nest->stayed = false;
    mark(&i->nest->marks[i->at], begin, end);
}

static void share_inner(void *ctx, int64_t begin, int64_t end) {
    struct nest *n = ctx;
    for (int64_t k = begin; k < end; k++) {
        struct inner inner = {n, k};
        n->thread[k] = cpu_thread();
        cpu_parallel(n->dev, 100, 1, mark_inner, &inner);
    }
}

/* A thread that has a part does all that its work shares, itself. */
static void work_that_shares_stays_on_its_thread(void **state) {
    (void)state;
    struct nest n = {.dev = open_cpu(0, 1, 3, false), .stayed = true};
    for (int i = 0; i < 3; i++) n.marks[i] = (struct marks){.grain = 1, .whole = true};
    cpu_parallel(n.dev, 3, 1, share_inner, &n);
    assert_true(n.stayed);
    for (int i = 0; i < 3; i++)
        for (int64_t k = 0; k < 100; k++) assert_int_equal(n.marks[i].seen[k], 1);
    n.dev->ops->close(n.dev);
}

enum { A_TURNED = 1, B_TURNED = 2, ADDED = 4, IN_BF16 = 8, WAYS = 16 };

struct product {
    int64_t m, n, k;
    int way;
    float *a, *b, *c;
    unsigned char *done; /* how often each element of c was said to be done */
};

static void product_init(struct product *p, int64_t m, int64_t n, int64_t k, int way) {
    void *to[4];
    const int64_t bytes[4] = {m * k * 4, k * n * 4, m * n * 4, m * n};
    for (int t = 0; t < 4; t++) assert_ok(memory_alloc((size_t)bytes[t], &to[t]));
    *p = (struct product){m, n, k, way, to[0], to[1], to[2], to[3]};
    for (int64_t i = 0; i < m * k; i++) p->a[i] = (float)(i * 7 % 31 - 15) / 8;
    for (int64_t i = 0; i < k * n; i++) p->b[i] = (float)(i * 5 % 29 - 14) / 16;
    for (int64_t i = 0; i < m * n; i++) p->c[i] = 1;
}

static void product_fini(struct product *p) {
    memory_free(p->a);
    memory_free(p->b);
    memory_free(p->c);
    memory_free(p->done);
}

static void count_done(void *ctx, int64_t row, int64_t rows, int64_t column, int64_t columns) {
    struct product *p = ctx;
    for (int64_t i = row; i < row + rows; i++)
        for (int64_t j = column; j < column + columns; j++) p->done[i * p->n + j]++;
}

/* All are small multiples of 1/128 that bf16 has too: every way of adding is exact. */
static void check_product(const struct product *p) {
    int64_t at = p->way & A_TURNED ? p->m : 1, ld = p->way & A_TURNED ? 1 : p->k;
    int64_t bt = p->way & B_TURNED ? 1 : p->n, bd = p->way & B_TURNED ? p->k : 1;
    for (int64_t i = 0; i < p->m; i++)
        for (int64_t j = 0; j < p->n; j++) {
            double sum = p->way & ADDED ? 1 : 0;
            for (int64_t k = 0; k < p->k; k++) sum += (double)p->a[i * ld + k * at] * (double)p->b[j * bd + k * bt];
            assert_true(sum == (double)p->c[i * p->n + j]);
            assert_int_equal(p->done[i * p->n + j], 1);
        }
}

static void product_run(const struct cpu_level *level, const struct device *dev, struct product *p, void *pack) {
    bool a_turned = p->way & A_TURNED, b_turned = p->way & B_TURNED;
    struct gemm g = {.m = p->m,
                     .n = p->n,
                     .k = p->k,
                     .a = p->a,
                     .lda = a_turned ? p->m : p->k,
                     .a_transposed = a_turned,
                     .b = p->b,
                     .ldb = b_turned ? p->k : p->n,
                     .b_transposed = b_turned,
                     .c = p->c,
                     .ldc = p->n,
                     .add = p->way & ADDED,
                     .precision = p->way & IN_BF16 ? PRECISION_BF16 : PRECISION_F32,
                     .done = count_done,
                     .ctx = p};
    level->gemm(dev, &g, pack);
    check_product(p);
}

static void check_size(const struct cpu_level *level, struct device *const devices[2], void *pack, int64_t m, int64_t n,
                       int64_t k, int way) {
    struct product p[2];
    for (int d = 0; d < 2; d++) {
        product_init(&p[d], m, n, k, way);
        product_run(level, devices[d], &p[d], pack);
    }
    assert_memory_equal(p[0].c, p[1].c, (size_t)(m * n) * sizeof *p[0].c);
    for (int d = 0; d < 2; d++) product_fini(&p[d]);
}

static void check_products(const struct cpu_level *level) {
    static const int64_t ks[] = {1, 2, 17, 1024, 1031};
    static const int64_t blocks[][3] = {{401, 50, 390}, {20, 1601, 200}, {1100, 33, 100}};
    struct device *const devices[] = {open_cpu(0, 1, 1, false), open_cpu(0, 1, 3, false)};
    void *pack = NULL;
    assert_ok(memory_alloc(level->gemm_pack_bytes(devices[1], 0), &pack));
    for (int way = 0; way < WAYS; way++) {
        for (int64_t m = 1; m <= 17; m += 1 + m / 4)
            for (int64_t n = 1; n <= 64; n += 1 + n / 3)
                for (int i = 0; i < 5; i++)
                    if (ks[i] <= 17 || (m * n) % 11 == 0) check_size(level, devices, pack, m, n, ks[i], way);
        for (int i = 0; i < 3; i++) check_size(level, devices, pack, blocks[i][0], blocks[i][1], blocks[i][2], way);
    }
    memory_free(pack);
    for (int d = 0; d < 2; d++) devices[d]->ops->close(devices[d]);
}

static void products_are_exact_at_every_size(void **state) {
    (void)state;
    int count;
    const struct cpu_level *const *levels = cpu_levels(&count);
    for (int i = 0; i < count; i++) check_products(levels[i]);
}

/* Opening binds the thread that opens: a thread of its own, so that this one stays free. */
static void *bound_thread(void *arg) {
    cpu_set_t *sets = arg;
    struct device *dev = open_cpu(1, 2, 1, true);
    sched_getaffinity(0, sizeof sets[0], &sets[0]);
    dev->ops->close(dev);
    return NULL;
}

static void *crowded_thread(void *arg) {
    cpu_set_t *sets = arg;
    struct device *dev = open_cpu(0, 100000, 1, true);
    sched_getaffinity(0, sizeof sets[0], &sets[0]);
    dev->ops->close(dev);
    return NULL;
}

static void devices_are_bound_to_cores_of_their_own(void **state) {
    (void)state;
    cpu_set_t all, got;
    pthread_t thread;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    assert_int_equal(pthread_create(&thread, NULL, crowded_thread, &got), 0);
    pthread_join(thread, NULL);
    assert_true(CPU_EQUAL(&all, &got)); /* too few cores for all: nobody is bound */
    if (CPU_COUNT(&all) < 2) skip();
    assert_int_equal(pthread_create(&thread, NULL, bound_thread, &got), 0);
    pthread_join(thread, NULL);
    int seen = 0, second = -1;
    for (int core = 0; core < CPU_SETSIZE && second < 0; core++)
        if (CPU_ISSET(core, &all) && ++seen == 2) second = core;
    assert_int_equal(CPU_COUNT(&got), 1);
    assert_true(CPU_ISSET(second, &got));
}

static void *denormal_thread(void *arg) {
    volatile float small = 1e-38f, *out = arg;
    struct device *dev = open_cpu(0, 1, 1, false);
    *out = small * 0.01f;
    dev->ops->close(dev);
    return NULL;
}

static void denormals_are_flushed(void **state) {
    (void)state;
#if defined(__SSE__) || defined(__aarch64__)
    float got = 1;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, denormal_thread, &got), 0);
    pthread_join(thread, NULL);
    assert_true(got == 0);
#else
    (void)denormal_thread;
    skip();
#endif
}

static void the_host_has_cores(void **state) {
    (void)state;
    cpu_set_t all;
    assert_true(device_host_cores() >= 1);
    if (sched_getaffinity(0, sizeof all, &all) == 0) assert_true(device_host_cores() <= CPU_COUNT(&all));
    assert_null(device_find("abacus"));
    assert_null(device_find(""));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_cover_a_range_once),
        cmocka_unit_test(work_that_shares_stays_on_its_thread),
        cmocka_unit_test(products_are_exact_at_every_size),
        cmocka_unit_test(devices_are_bound_to_cores_of_their_own),
        cmocka_unit_test(denormals_are_flushed),
        cmocka_unit_test(the_host_has_cores),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
