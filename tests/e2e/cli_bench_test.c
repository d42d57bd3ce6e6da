/* engine bench comm: every collective over every link gives right values, and its table,
 * JSON and CSV say so. Times are not judged. */
#include "tests/harness/program.h"
#include "tests/harness/timing.h"

#include <stdio.h>
#include <string.h>

static struct program p;

#define QUICK "--from", "256", "--to", "64KB", "--factor", "16", "--iters", "2"

static const char *const links[] = {"thread", "shm", "tcp", "hosts"};
enum { LINKS = sizeof links / sizeof *links };
static const char *const collectives[] = {"all_reduce", "reduce", "broadcast",  "reduce_scatter", "all_gather",
                                          "scatter",    "gather", "all_to_all", "send_recv"};

static int lines_with(const char *text, const char *word) {
    int n = 0;
    for (const char *at = strstr(text, word); at; at = strstr(at + 1, word)) n++;
    return n;
}

/* ---- every collective ---- */

static const struct json_value *only_result(struct pool *pool) {
    const struct json_value *results = json_get(program_json(&p, pool), "results");
    assert_non_null(results);
    assert_int_equal(results->count, 1);
    return &results->children[0];
}

static void check_rows(const struct json_value *result, int rows) {
    const struct json_value *list = json_get(result, "rows");
    assert_int_equal(list->count, rows);
    for (int i = 0; i < rows; i++) {
        const struct json_value *row = &list->children[i];
        assert_int_equal(json_get(row, "wrong")->integer, 0);
        assert_true(json_get(row, "time_s")->number > 0);
        assert_true(json_get(row, "model_s")->number > 0);
        assert_int_equal(json_get(row, "bytes")->integer, 256 << 4 * i);
    }
}

static void every_collective_over(const char *link, const char *ranks) {
    for (size_t c = 0; c < sizeof collectives / sizeof *collectives; c++) {
        struct pool *pool;
        assert_ok(pool_create(&pool));
        program_run(&p, 60, "bench", "comm", "--collective", collectives[c], "--link", link, "--ranks", ranks, "--json",
                    QUICK, NULL);
        if (p.code) fail_msg("%s over %s, %s ranks: %s", collectives[c], link, ranks, p.err);
        assert_string_equal(program_string(&p, "collective"), collectives[c]);
        check_rows(only_result(pool), 3);
        pool_free(pool);
    }
}

static void every_collective_is_right(void **state) {
    (void)state;
    static const char *const ranks[] = {"1", "2", "3", "4"};
    for (int l = 0; l < LINKS; l++)
        for (int r = l % 2; r < 4; r += 2 - l % 2) every_collective_over(links[l], ranks[r]);
}

static void every_type_and_operation_is_right(void **state) {
    (void)state;
    static const char *const types[] = {"f32", "f64", "f16", "bf16", "i32", "i64", "u8"};
    static const char *const ops[] = {"sum", "prod", "min", "max", "average", "and", "or", "xor"};
    for (int t = 0; t < 7; t++)
        for (int o = 0; o < (t < 4 ? 5 : 8); o++) {
            program_run(&p, 60, "bench", "comm", "--link", "thread", "--ranks", "3", "--type", types[t], "--op", ops[o],
                        QUICK, NULL);
            if (p.code) fail_msg("%s %s: %s", types[t], ops[o], p.err);
            char cells[32];
            snprintf(cells, sizeof cells, " %5s %5s ", types[t], ops[o]);
            assert_int_equal(lines_with(p.out, cells), 3);
        }
}

static void all_algorithms_have_a_table(void **state) {
    (void)state;
    for (int l = 0; l < LINKS; l++) {
        program_run(&p, 60, "bench", "comm", "--algorithm", "all", "--link", links[l], QUICK, NULL);
        assert_int_equal(p.code, 0);
        assert_int_equal(lines_with(p.out, " direct "), 3);
        assert_int_equal(lines_with(p.out, " ring "), 3 + 1); /* and its order */
        assert_int_equal(lines_with(p.out, " tree "), lines_with(p.out, "tree order") + 3);
        assert_int_equal(lines_with(p.out, " star "), 3);
        assert_true(lines_with(p.out, "alpha") >= 3);
        program_run(&p, 60, "bench", "comm", "--algorithm", "all", "--order", "tree", "--link", links[l], QUICK, NULL);
        assert_int_equal(p.code, 0);
        assert_int_equal(lines_with(p.out, " ring "), 0);
    }
}

/* Two messages of 8 KB a call at 1 MB/s, and twice the latency. */
static void emulated_ports_are_as_slow_as_they_should_be(void **state) {
    (void)state;
    for (int l = 0; l < 2; l++) {
        struct pool *pool;
        assert_ok(pool_create(&pool));
        program_run(&p, 60, "bench", "comm", "--link", links[l], "--algorithm", "ring", "--from", "16KB", "--to",
                    "16KB", "--iters", "5", "--json", "--emulate", "bandwidth=8Mbit,latency=2ms", NULL);
        assert_int_equal(p.code, 0);
        const struct json_value *rows = json_get(only_result(pool), "rows");
        double time = json_get(&rows->children[0], "time_s")->number;
        if (time < 20.3e-3 || time > timing_limit(60e-3)) fail_msg("%s: %g s, not 20.4 ms", links[l], time);
        pool_free(pool);
    }
}

/* ---- what is printed ---- */

static void the_table_has_nccl_tests_columns(void **state) {
    (void)state;
    program_run(&p, 60, "bench", "comm", "--ranks", "4", "--link", "thread", QUICK, NULL);
    assert_int_equal(p.code, 0);
    assert_string_equal(p.err, "");
    assert_non_null(strstr(p.out, "busbw = algbw * 1.5"));
    static const char *const columns[] = {"size(B)",  "count",       "type",  "op",
                                          "time(us)", "algbw(GB/s)", "wrong", "model(us)"};
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) assert_non_null(strstr(p.out, columns[i]));
    assert_non_null(strstr(p.out, "# auto, tree order: alpha"));
}

static void bus_bandwidth_is_counted_as_nccl_tests_does(void **state) {
    (void)state;
    static const char *const factors[] = {"= algbw * 1.5\n",  "= algbw * 1\n",    "= algbw * 1\n",
                                          "= algbw * 0.75\n", "= algbw * 0.75\n", "= algbw * 0.75\n",
                                          "= algbw * 0.75\n", "= algbw * 0.75\n", "= algbw * 1\n"};
    for (size_t c = 0; c < sizeof collectives / sizeof *collectives; c++) {
        program_run(&p, 60, "bench", "comm", "--ranks", "4", "--link", "thread", "--collective", collectives[c], "--to",
                    "1KB", "--iters", "1", NULL);
        assert_int_equal(p.code, 0);
        if (!strstr(p.out, factors[c])) fail_msg("%s: %s", collectives[c], p.out);
    }
}

static void sizes_are_whole_elements(void **state) {
    (void)state;
    program_run(&p, 60, "bench", "comm", "--link", "thread", "--type", "f64", "--from", "1", "--to", "30", "--factor",
                "3", "--ranks", "5", "--iters", "1", NULL);
    assert_int_equal(p.code, 0);
    assert_int_equal(lines_with(p.out, "           8           1   f64"), 3); /* 1, 3 and 9 bytes */
    assert_int_equal(lines_with(p.out, "          24           3   f64"), 1);
}

/* ---- what is refused ---- */

static void refused(int code, const char *words, const char *option, const char *value) {
    program_run(&p, 20, "bench", "comm", "--to", "1KB", "--iters", "1", option, value, NULL);
    if (p.code != code || !strstr(p.err, words))
        fail_msg("%s %s: code %d, %s", option, value ? value : "", p.code, p.err);
}

static void bad_options_are_refused(void **state) {
    (void)state;
    refused(64, "did you mean 'all_reduce'?", "--collective", "allreduce");
    refused(64, "did you mean 'ring'?", "--algorithm", "rinh");
    refused(64, "there are", "--algorithm", "zzzzzzzz");
    refused(64, "no link 'carrier-pigeon'", "--link", "carrier-pigeon");
    refused(64, "no type 'f31'", "--type", "f31");
    refused(64, "no operation", "--op", "difference");
    refused(64, "xor is for integers, not for f32", "--op", "xor");
    refused(64, "no order", "--order", "none");
    refused(64, "from 1 to 4096", "--ranks", "0");
    refused(64, "from 1 to 4096", "--ranks", "4097");
    refused(64, "from 1 to 4096", "--ranks", "two");
    refused(64, "--factor", "--factor", "1");
    refused(64, "--iters", "--iters", "-1");
    refused(64, "a size is needed", "--from", "0");
    refused(64, "a size is needed", "--to", "64QB");
    refused(64, "a size is needed", "--to", "99999999999999999999");
    refused(64, "more than --to", "--from", "2KB");
    refused(64, "a time", "--seconds", "-1");
    refused(64, "a time", "--seconds", "1e9");
    refused(64, "did you mean 'bandwidth'?", "--emulate", "bandwith=1Gbit");
    refused(64, "bandwidth is 'fast'", "--emulate", "bandwidth=fast");
    refused(64, "bandwidth is '0'", "--emulate", "bandwidth=0");
    refused(64, "latency is '-1us'", "--emulate", "latency=-1us");
    refused(64, "--emulate: 'latency'", "--emulate", "latency");
    refused(64, "needs a value", "--ranks", NULL);
    refused(64, "did you mean '--ranks'?", "--rank", "2");
    refused(71, "of buffers", "--to", "8000000000G");
}

static void other_words_are_refused(void **state) {
    (void)state;
    program_run(&p, 20, "bench", NULL);
    assert_int_equal(p.code, 64);
    program_run(&p, 20, "bench", "conn", NULL);
    assert_int_equal(p.code, 64);
    program_run(&p, 20, "bench", "comm", "--algorithm", "ring", "--order", "tree", NULL);
    assert_int_equal(p.code, 64);
    assert_non_null(strstr(p.err, "cannot add in tree order"));
    assert_string_equal(p.out, "");
    program_run(&p, 20, "bench", "--help", NULL);
    assert_int_equal(p.code, 0);
    assert_non_null(strstr(p.out, "--emulate"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_collective_is_right),
        cmocka_unit_test(every_type_and_operation_is_right),
        cmocka_unit_test(all_algorithms_have_a_table),
        cmocka_unit_test(emulated_ports_are_as_slow_as_they_should_be),
        cmocka_unit_test(the_table_has_nccl_tests_columns),
        cmocka_unit_test(bus_bandwidth_is_counted_as_nccl_tests_does),
        cmocka_unit_test(sizes_are_whole_elements),
        cmocka_unit_test(bad_options_are_refused),
        cmocka_unit_test(other_words_are_refused),
    };
    return cmocka_run_group_tests_name("bench", tests, NULL, NULL);
}
