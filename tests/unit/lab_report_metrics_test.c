/* Reports of experiments whose question is about something else than steps' times. */
#include "engine/base/file.h"
#include "lab/report_data.h"
#include "tests/harness/harness.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static char dir[600];
static struct pool *pool;
static struct report report;

static void put(const char *name, const char *text) {
    char path[700];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    save_text(path, text);
}

static int set_up(void **state) {
    (void)state;
    char path[700];
    snprintf(dir, sizeof dir, "%s", scratch_folder());
    snprintf(path, sizeof path, "%s/run", dir);
    assert_ok(pool_create(&pool));
    assert_ok(file_make_folders(path));
    put("run/summary.json", "{\"mode\":\"ddp\",\"devices\":2,\"shards\":2,\"steps\":3,\"epochs\":1,\"train\":{\"loss\":"
                            "1},"
                            "\"val\":{\"loss\":1,\"accuracy\":0.5},\"step_ms\":{\"p50\":4,\"p95\":4},\"samples_per_s\":"
                            "1000,"
                            "\"time_s\":{\"load\":0,\"forward\":1,\"backward\":1,\"comm_exposed\":1,\"comm_hidden\":0,"
                            "\"update\":0,\"total\":3},\"bytes\":{\"sent\":[1,1],\"received\":[1,1]},"
                            "\"peak_rss_bytes\":[1,1],\"optimizer_bytes\":[1,1],\"weights_sha256\":\"aa\","
                            "\"losses_sha256\":\"bb\",\"run_dir\":\"run\"}");
    put("run/metrics.jsonl", "");
    put("run/resolved.yaml", "mode: ddp\n");
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    pool_free(pool);
    return 0;
}

#define CELL(side, size, medians)                                                                                      \
    "{\"side\":\"" side "\",\"settings\":{\"ddp.sync.every\":\"" side "\",\"batch.size\":\"" size                      \
    "\"},\"devices\":2,\"runs\":[{\"dir\":\"run\",\"step_time\":4}],"                                                  \
    "\"median\":{" medians "}}"
#define HEAD                                                                                                           \
    "{\"axis\":\"ddp.sync.every\",\"sides\":[\"1\",\"16\"],\"verdict\":\"16 against 1, "                               \
    "val_accuracy: worse in 1 of 1\",\"metrics\":"
#define PAIR ",\"pairs\":[{\"a\":0,\"b\":1,\"ratio\":0.9,\"verdict\":\"slower\",\"words\":\"worse\"}]}"

#define OF_1 "\"val_accuracy\":0.97,\"step_time\":4,\"time\":2.5,\"val_loss\":null"
#define OF_16 "\"val_accuracy\":0.875,\"time\":0.5"
#define OF_64 "\"val_accuracy\":0.75"
#define METRICS                                                                                                        \
    "[{\"name\":\"val_accuracy\",\"unit\":\"\"},{\"name\":\"step_time\",\"unit\":\"ms\"},"                             \
    "{\"name\":\"time\",\"unit\":\"s\"},{\"name\":\"val_loss\",\"unit\":\"\"}]"
#define CELLS CELL("1", "32", OF_1) "," CELL("16", "32", OF_16) "," CELL("1", "64", OF_64)
static const char results[] = HEAD METRICS ",\"cells\":[" CELLS "]" PAIR;

static const struct report_section *section(const char *id) {
    for (int i = 0; i < report.nsections; i++)
        if (!strcmp(report.section[i].id, id)) return &report.section[i];
    return NULL;
}

static void what_was_asked_is_what_is_told(void **state) {
    (void)state;
    put("results.json", results);
    assert_ok(report_read(dir, pool, &report));
    assert_string_equal(report.verdict, "every 1 is better than every 16: 1.11 times.");
    const struct table *t = &section("table")->table[0];
    assert_int_equal(t->rows, 4); /* one pair: its metrics are the rows */
    assert_string_equal(table_row(t, 0)[2], "every 1");
    assert_string_equal(table_row(t, 1)[0], "validation accuracy");
    assert_string_equal(table_row(t, 1)[1], "every 16 worse");
    assert_string_equal(table_row(t, 1)[2], "97.0 %");
    assert_string_equal(table_row(t, 1)[3], "87.5 %");
    assert_string_equal(table_row(t, 3)[1], "not tested");
}

static void each_metric_has_its_plot(void **state) {
    (void)state;
    put("results.json", results);
    assert_ok(report_read(dir, pool, &report));
    assert_int_equal(section("table")->nplots, 1);
    const struct plot *p = &section("table")->plot[0];
    assert_string_equal(p->title, "The runs: validation accuracy");
    assert_int_equal(p->x.unit, PLOT_SHARE);
    assert_int_equal(p->ncategories, 2);
    assert_string_equal(p->category[1], "size 64");
    assert_string_equal(p->series[1].name, "every 16");
    assert_true(p->series[0].y[0] == 0.97 && p->series[1].y[0] == 0.875);
    assert_true(p->series[0].y[1] == 0.75 && isnan(p->series[1].y[1]));
    const struct report_section *s = section("metrics");
    assert_non_null(s);
    assert_int_equal(s->nplots, 2); /* step_time is told elsewhere */
    assert_string_equal(s->plot[0].title, "The runs: training time");
    assert_true(s->plot[0].series[0].y[0] == 2.5);
}

static void times_of_steps_alone_need_no_such_section(void **state) {
    (void)state;
    put("results.json", HEAD "[{\"name\":\"step_time\",\"unit\":\"ms\"},{\"name\":\"comm_exposed\","
                             "\"unit\":\"ms\"}],\"cells\":[" CELL("1", "32", "\"step_time\":4") "," CELL(
                                 "16", "32", "\"step_time\":4") "]" PAIR);
    assert_ok(report_read(dir, pool, &report));
    assert_null(section("metrics"));
    assert_string_equal(table_row(&section("table")->table[0], 1)[0], "step time");
    assert_string_equal(table_row(&section("table")->table[0], 1)[2], "4 ms");
    assert_string_equal(report.verdict, "every 1 is faster than every 16: 1.11 times.");
}

static void seconds_are_seconds_from_one_on(void **state) {
    char text[32];
    (void)state;
    plot_value_text(PLOT_SECONDS, 0.9, text);
    assert_string_equal(text, "900 ms");
    plot_value_text(PLOT_SECONDS, 5.646, text);
    assert_string_equal(text, "5.646 s");
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(what_was_asked_is_what_is_told),
        TEST(each_metric_has_its_plot),
        TEST(times_of_steps_alone_need_no_such_section),
        TEST(seconds_are_seconds_from_one_on),
    };
    return cmocka_run_group_tests_name("report_metrics", tests, NULL, NULL);
}
