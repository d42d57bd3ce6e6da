/* Memory: alignment, zeroes, overflow, and the pool. */
#include "tests/harness/harness.h"

#include "engine/base/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef ENGINE_SANITIZED
const char *__asan_default_options(void);
const char *__asan_default_options(void) {
    return "allocator_may_return_null=1";
}
#endif

static void assert_zeroed(const char *p, size_t n) {
    for (size_t i = 0; i < n; i++) assert_int_equal(p[i], 0);
}

static void test_alloc(void **state) {
    (void)state;
    for (size_t n = 0; n < 300; n += 37) {
        void *p = NULL;
        assert_ok(memory_alloc(n, &p));
        assert_int_equal((uintptr_t)p % ALIGNMENT, 0);
        assert_zeroed(p, n);
        memset(p, 1, n);
        memory_free(p);
        assert_ok(allocator_heap.alloc(allocator_heap.ctx, n, &p));
        assert_int_equal((uintptr_t)p % ALIGNMENT, 0);
        assert_zeroed(p, n);
        allocator_heap.free(allocator_heap.ctx, p);
    }
    memory_free(NULL);
}

static void test_overflow(void **state) {
    (void)state;
    void *p;
    size_t n;
    assert_fails(ERR_MEMORY, memory_alloc(SIZE_MAX, &p)); /* rounding up would wrap to 0 */
    assert_fails(ERR_MEMORY, memory_alloc(SIZE_MAX - 100, &p));
    assert_ok(memory_size(1000, 1000, "it", &n));
    assert_int_equal(n, 1000000);
    assert_fails(ERR_MEMORY, memory_size(SIZE_MAX / 2, 3, "the list", &n));
    assert_non_null(strstr(error_message(), "the list"));
}

static void test_align_floats(void **state) {
    (void)state;
    assert_int_equal(align_floats(0), 0);
    assert_int_equal(align_floats(1), 16);
    assert_int_equal(align_floats(16), 16);
    assert_int_equal(align_floats(17), 32);
}

static void test_pool(void **state) {
    (void)state;
    struct pool *pool = NULL;
    assert_ok(pool_create(&pool));
    enum { N = 200 };
    char *parts[N];
    for (size_t i = 0; i < N; i++) { /* small, larger than a block, and small again */
        size_t size = i % 50 == 49 ? 40000 : i * 7;
        parts[i] = pool_alloc(pool, size);
        assert_non_null(parts[i]);
        assert_int_equal((uintptr_t)parts[i] % 16, 0);
        assert_zeroed(parts[i], size);
        memset(parts[i], (int)i, size);
    }
    for (size_t i = 0; i < N; i++) {
        size_t size = i % 50 == 49 ? 40000 : i * 7;
        for (size_t k = 0; k < size; k++) assert_int_equal((unsigned char)parts[i][k], i);
    }
    assert_string_equal(pool_strndup(pool, "abcdef", 3), "abc");
    assert_string_equal(pool_printf(pool, "%s-%d", "x", 42), "x-42");
    assert_null(pool_alloc(pool, SIZE_MAX));
    assert_null(pool_alloc(pool, SIZE_MAX - 64));
    pool_free(pool);
    pool_free(NULL);
}

/* Pages go from one place to another with what they hold, of large pages, too, and of places that differ within one. */
static void test_move(void **state) {
    enum { PAGE = 4096, SIZE = 5 << 20, AT = 3 << 20, EDGE = 64 };
    void *memory;
    (void)state;
    assert_ok(memory_alloc_sparse(2 * (SIZE + AT), &memory));
    char *from = (char *)memory + PAGE - (uintptr_t)memory % PAGE + EDGE, *to = from + SIZE + AT;
    assert_ok(memory_overlay(from, SIZE));
    assert_ok(memory_overlay(to, SIZE));
    for (int twice = 0; twice < 2; twice++) {
        memset(from, 7, SIZE);
        memset(to, 8, SIZE);
        assert_ok(memory_move(from, to, SIZE));
        assert_zeroed(from + PAGE - EDGE, SIZE - PAGE);
        for (int i = 0; i < SIZE; i++) { /* what is no whole page stays */
            bool edge = i < PAGE - EDGE || i >= SIZE - EDGE;
            if (to[i] != (edge ? 8 : 7) || (edge && from[i] != 7)) fail_msg("at %d: %d, %d", i, from[i], to[i]);
        }
    }
    memset(from, 9, SIZE);
    assert_ok(memory_move(from - EDGE + 1, to - EDGE, SIZE)); /* the one has a page less */
    assert_zeroed(from + PAGE - EDGE, SIZE - PAGE);
    assert_zeroed(to - EDGE, SIZE);
    to[0] = from[0] = 5;
    assert_ok(memory_move(from, to, EDGE)); /* has no whole page */
    assert_int_equal(from[0] + to[0], 10);
    memory_free(memory);
}

/* A launcher that is large starts a rank that is small: what the rank had before it was executed is not its own. */
static void test_peak(void **state) {
    (void)state;
    enum { LARGE = 256 << 20 };
    int ends[2];
    long long peak = 0;
    char *large = malloc(LARGE), text[32] = "";
    assert_non_null(large);
    memset(large, 1, LARGE);
    assert_true(memory_peak() >= LARGE);
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDOUT_FILENO);
        execl("/proc/self/exe", "base_memory_test", "peak", (char *)NULL);
        _exit(1);
    }
    assert_true(child > 0 && read(ends[0], text, sizeof text - 1) > 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(sscanf(text, "%lld", &peak), 1);
    assert_true(large[LARGE / 2] == 1 && peak > 0 && peak < LARGE / 4);
    free(large);
    close(ends[0]), close(ends[1]);
}

int main(int argc, char **argv) {
    if (argc == 2 && !strcmp(argv[1], "peak")) return printf("%lld\n", (long long)memory_peak()) < 0;
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_alloc),        cmocka_unit_test(test_overflow),
                                       cmocka_unit_test(test_align_floats), cmocka_unit_test(test_pool),
                                       cmocka_unit_test(test_move),         cmocka_unit_test(test_peak)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
