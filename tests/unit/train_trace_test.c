/* Reading ranks' traces: what is in them, and files that are cut, changed, or lie with a checksum that fits. */
#include "tests/unit/trace_fixture.h"

static struct pool *pool;
static struct fixture f;
static struct trace_rank rank;

static int set_up(void **state) {
    (void)state;
    return pool_create(&pool);
}

static int tear_down(void **state) {
    (void)state;
    pool_free(pool);
    return 0;
}

static enum error read_bytes(const char *bytes, size_t n) {
    const char *path = scratch_path("rank0.bin");
    assert_ok(file_replace(path, bytes, n));
    return trace_read(path, pool, &rank);
}

static enum error read_made(void) {
    fixture_make(&f);
    return read_bytes(f.file, f.bytes);
}

static void begin(void) {
    fixture_begin(&f, 0, 2);
    fixture_step(&f, 3, 1000);
}

static void reads_what_was_written(void **state) {
    (void)state;
    begin();
    f.head.offset = 50;
    assert_ok(read_made());
    assert_int_equal(rank.nevents, f.head.nevents);
    assert_int_equal(rank.nbuckets, 2);
    assert_string_equal(rank.mode, "ddp");
    assert_int_equal(rank.events[0].kind, TRACE_STEP); /* what contains comes first */
    assert_int_equal(rank.events[0].begin, 1050);
    for (int i = 1; i < rank.nevents; i++) assert_true(rank.events[i - 1].begin <= rank.events[i].begin);
}

static void joins_what_a_bucket_did(void **state) {
    (void)state;
    struct trace_bucket *b;
    int n;
    begin();
    fixture_step(&f, 4, 2000);
    assert_ok(read_made());
    assert_ok(trace_buckets(&rank, pool, &b, &n));
    assert_int_equal(n, 4);
    assert_int_equal(b[2].step, 4);
    assert_int_equal(b[0].ready, 1140);
    assert_int_equal(b[0].start, 1141);
    assert_int_equal(b[0].done, 1220);
    assert_int_equal(b[0].waited, 20);
    assert_int_equal(b[1].ready, 1200);
    assert_int_equal(b[1].start, 1220);
    assert_int_equal(b[1].taken, 1280);
    assert_int_equal(b[1].waited, 60);
    assert_int_equal(b[1].bytes, 800);
    assert_true(b[0].beside);
}

/* A call with no end that was seen, and weights, make no bucket. */
static void leaves_out_what_is_not_whole(void **state) {
    (void)state;
    struct trace_bucket *b;
    int n;
    begin();
    f.head.nevents--; /* the last wait */
    assert_ok(read_made());
    assert_ok(trace_buckets(&rank, pool, &b, &n));
    assert_int_equal(n, 1);
    begin();
    for (uint32_t i = 0; i < f.head.nevents; i++) f.event[i].weights = 1;
    assert_ok(read_made());
    assert_ok(trace_buckets(&rank, pool, &b, &n));
    assert_int_equal(n, 0);
}

static void refuses_what_is_cut_or_changed(void **state) {
    (void)state;
    begin();
    fixture_make(&f);
    for (size_t n = 0; n < f.bytes; n += n < 200 ? 1 : 37) assert_fails(ERR_DATA, read_bytes(f.file, n));
    char copy[sizeof f.file];
    for (size_t at = 0; at < f.bytes; at += 5)
        for (int bit = 0; bit < 8; bit += 3) {
            memcpy(copy, f.file, f.bytes);
            copy[at] ^= (char)(1 << bit);
            assert_fails(ERR_DATA, read_bytes(copy, f.bytes));
        }
    memcpy(copy, f.file, f.bytes);
    assert_fails(ERR_DATA, read_bytes(copy, f.bytes + 1));
}

#define LIES(what)                                                                                                     \
    do {                                                                                                               \
        begin();                                                                                                       \
        what;                                                                                                          \
        assert_fails(ERR_DATA, read_made());                                                                           \
    } while (0)

static void refuses_lies(void **state) {
    (void)state;
    LIES(f.head.nevents += 1; f.head.nevents = 0x80000000u);
    LIES(f.head.nevents = TRACE_WRITERS * TRACE_EVENTS_MOST);
    LIES(f.head.nbuckets = TRACE_BUCKETS_MOST);
    LIES(f.head.nbuckets = 0xffffffffu);
    LIES(f.head.names = 0xffffffffu);
    LIES(f.head.names = TRACE_NAMES_MOST);
    LIES(f.head.rank = -1);
    LIES(f.head.rank = 2);
    LIES(f.head.size = 1 << 30);
    LIES(f.head.worker = 2);
    LIES(f.head.first = 0);
    LIES(f.head.last = 0);
    LIES(f.head.dropped = -1);
    LIES(f.head.offset = INT64_MIN);
    LIES(f.head.round_trip = -1);
    LIES(f.bucket[1] = -1);
    LIES(f.bucket[0] = INT64_MAX);
    LIES(f.event[2].kind = TRACE_KINDS);
    LIES(f.event[2].lane = TRACE_LANES);
    LIES(f.event[2].end = f.event[2].begin - 1);
    LIES(f.event[2].begin = -1);
    LIES(f.event[2].end = INT64_MAX);
    LIES(f.event[2].step = -1);
    LIES(f.event[2].bytes = -1);
    LIES(f.event[2].bytes = INT64_MAX);
    LIES(f.event[2].name = 3);
    LIES(f.event[2].name = -2);
    LIES(f.event[2].bucket = 2);
    LIES(f.event[2].bucket = INT32_MIN);
    LIES(f.event[4].name = -1); /* a layer has one */
    begin();
    memset(f.names, 0x01, f.head.names); /* one name, that nothing ends */
    for (uint32_t i = 0; i < f.head.nevents; i++) f.event[i].name = f.event[i].name < 0 ? -1 : 0;
    assert_ok(read_made());
    assert_string_equal(rank.events[4].name + 27, "");
    assert_int_equal(rank.events[4].name[0], '?');
}

/* Each event is possible, but not all of them: sums of their times and bytes would be no numbers any more. */
static void refuses_what_cannot_be_added_up(void **state) {
    (void)state;
    begin();
    for (int i = 0; i < 16; i++) fixture_add(&f, TRACE_WAIT, TRACE_COMPUTE, 3, 0, (int64_t)1 << 60)->bucket = 1;
    assert_fails(ERR_DATA, read_made());
    fixture_begin(&f, 0, 2);
    for (int i = 0; i < 256; i++) fixture_add(&f, TRACE_CALL, TRACE_EXCHANGE, 3, 0, 10)->bytes = (int64_t)1 << 50;
    assert_ok(read_made());
    fixture_add(&f, TRACE_CALL, TRACE_EXCHANGE, 3, 0, 10)->bytes = 1;
    assert_fails(ERR_DATA, read_made());
}

static void ranks_of_two_runs_are_not_mixed(void **state) {
    (void)state;
    struct trace_rank *ranks;
    int n;
    const char *dir = scratch_path("mixed");
    begin();
    fixture_write(&f, dir);
    fixture_begin(&f, 1, 3);
    fixture_write(&f, dir);
    assert_fails(ERR_DATA, trace_read_all(dir, pool, &ranks, &n));
    fixture_begin(&f, 1, 2);
    f.head.last = 5;
    fixture_write(&f, dir);
    assert_fails(ERR_DATA, trace_read_all(dir, pool, &ranks, &n));
    f.head.last = 9;
    fixture_write(&f, dir);
    assert_ok(trace_read_all(dir, pool, &ranks, &n));
    assert_int_equal(n, 2);
    assert_ok(trace_read_all(scratch_path("nowhere"), pool, &ranks, &n));
    assert_int_equal(n, 0);
}

/* All in one text, the ranks' clocks made one: rank 1's is 100 ns behind. */
static void merges_on_one_clock(void **state) {
    (void)state;
    struct trace_rank *ranks;
    char *text, path[700];
    size_t length;
    int n;
    const char *dir = scratch_path("merged");
    begin();
    fixture_write(&f, dir);
    fixture_begin(&f, 1, 2);
    f.head.offset = 100, f.head.round_trip = 7;
    fixture_step(&f, 3, 900);
    fixture_write(&f, dir);
    assert_ok(trace_read_all(dir, pool, &ranks, &n));
    snprintf(path, sizeof path, "%s/trace.json", dir);
    assert_ok(trace_merge(ranks, n, pool, path));
    assert_ok(file_read(path, 1 << 20, pool, &text, &length));
    for (int r = 0; r < 2; r++) {
        char expected[128];
        snprintf(expected, sizeof expected,
                 "{\"name\":\"step 3\",\"ph\":\"X\",\"pid\":%d,\"tid\":1,\"ts\":0.000,\"dur\":0.300", r);
        if (!strstr(text, expected)) fail_msg("no %s in %s", expected, text);
    }
    assert_non_null(strstr(text, "\"rank\":1,\"offset_ns\":100,\"round_trip_ns\":7"));
    assert_non_null(strstr(text, "all_reduce bucket 1"));
    assert_fails(ERR_CREATE, trace_merge(ranks, n, pool, "/nowhere/trace.json"));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(reads_what_was_written),
                                       cmocka_unit_test(joins_what_a_bucket_did),
                                       cmocka_unit_test(leaves_out_what_is_not_whole),
                                       cmocka_unit_test(refuses_what_is_cut_or_changed),
                                       cmocka_unit_test(refuses_lies),
                                       cmocka_unit_test(refuses_what_cannot_be_added_up),
                                       cmocka_unit_test(ranks_of_two_runs_are_not_mixed),
                                       cmocka_unit_test(merges_on_one_clock)};
    return cmocka_run_group_tests_name("traces", tests, set_up, tear_down);
}
