/* The cpu device's threads: parts that cover a range once, cores, and results that do not depend on
 * their number. */
#include "tests/harness/harness.h"

#include "engine/device/cpu/cpu.h"
#include "engine/device/cpu/gemm.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>

static struct device *open_cpu(int index, int count, int threads, bool pin) {
    struct device_params p = {index, count, threads, pin};
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

static void product(const struct device *dev, int64_t m, int64_t n, int64_t k, bool transposed,
                    bool add, float *c) {
    static float a[64 * 1100], b[64 * 1100];
    void *pack = NULL;
    for (int64_t i = 0; i < m * k; i++) a[i] = (float)(i * 7 % 31 - 15) / 8;
    for (int64_t i = 0; i < k * n; i++) b[i] = (float)(i * 5 % 29 - 14) / 16;
    for (int64_t i = 0; i < m * n; i++) c[i] = 1;
    assert_ok(memory_alloc(gemm_pack_bytes(dev), &pack));
    struct gemm g = {m, n, k, a, k, b, transposed ? k : n, transposed, c, n, add};
    gemm_run(dev, &g, pack);
    memory_free(pack);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            double sum = add;
            for (int64_t p = 0; p < k; p++)
                sum += (double)a[i * k + p] * (double)(transposed ? b[j * k + p] : b[p * n + j]);
            assert_true(sum == (double)c[i * n + j]); /* exact: all are small multiples of 1/128 */
        }
}

static void products_are_exact_at_every_size(void **state) {
    (void)state;
    static const int64_t ks[] = {1, 2, 17, 1024, 1031};
    static float one[64 * 64], three[64 * 64];
    struct device *dev1 = open_cpu(0, 1, 1, false), *dev3 = open_cpu(0, 1, 3, false);
    for (int64_t m = 1; m <= 17; m += 1 + m / 9)
        for (int64_t n = 1; n <= 64; n += 1 + n / 5)
            for (int i = 0; i < 5; i++)
                for (int way = 0; way < 4; way++) {
                    if (ks[i] > 17 && (m * n) % 3) continue;
                    product(dev1, m, n, ks[i], way & 1, way & 2, one);
                    product(dev3, m, n, ks[i], way & 1, way & 2, three);
                    assert_memory_equal(one, three, (size_t)(m * n) * sizeof *one);
                }
    dev1->ops->close(dev1);
    dev3->ops->close(dev3);
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
#if defined(__SSE__)
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
    if (sched_getaffinity(0, sizeof all, &all) == 0)
        assert_true(device_host_cores() <= CPU_COUNT(&all));
    assert_null(device_find("abacus"));
    assert_null(device_find(""));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_cover_a_range_once),
        cmocka_unit_test(products_are_exact_at_every_size),
        cmocka_unit_test(devices_are_bound_to_cores_of_their_own),
        cmocka_unit_test(denormals_are_flushed),
        cmocka_unit_test(the_host_has_cores),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
