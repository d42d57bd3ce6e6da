/* Reports of experiments whose question is about something else than steps' times. */
#include "engine/base/file.h"
#include "lab/report/data.h"
#include "tests/harness/harness.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static char dir[600];
static struct pool *pool;
static struct report report;

static void put(const char *name, const char *text) {
    char path[1400];
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

#define ANSWER(metric, estimate, low, high, p, verdict, more)                                                          \
    "{\"metric\":\"" metric "\",\"estimate\":" #estimate ",\"low\":" #low ",\"high\":" #high ",\"p_holm\":" #p         \
    ",\"verdict\":\"" verdict "\",\"words\":\"" verdict "\"" more "}"
#define SEED(n, accuracy, seconds)                                                                                     \
    "{\"dir\":\"seed" #n "\",\"seed\":" #n ",\"val_accuracy\":" #accuracy ",\"time\":" #seconds ",\"bytes\":" #seconds \
    "}"
#define SIDE(side, medians, runs)                                                                                      \
    "{\"side\":\"" side "\",\"settings\":{\"side\":\"" side "\"},\"devices\":2,\"median\":{" medians                   \
    "},\"runs\":[" runs "]}"

static void put_seed(int seed) {
    char path[700], *text;
    size_t n;
    snprintf(path, sizeof path, "%s/run/summary.json", dir);
    assert_ok(file_read(path, 1 << 16, pool, &text, &n));
    *strstr(text, "aa") = (char)('b' + seed); /* weights of its own */
    snprintf(path, sizeof path, "%s/seed%d", dir, seed);
    assert_ok(file_make_folders(path));
    snprintf(path, sizeof path, "seed%d/summary.json", seed);
    put(path, text);
    snprintf(path, sizeof path, "seed%d/metrics.jsonl", seed);
    put(path, "");
    snprintf(path, sizeof path, "seed%d/resolved.yaml", seed);
    put(path, "mode: ddp\n");
}

static bool says(const struct report_section *s, const char *words) {
    for (int i = 0; i < s->ntexts; i++)
        if (strstr(s->text[i], words)) return true;
    return false;
}

/* A user's command need not tell weights: then no two of its runs are copies, and nothing is known of a step's parts. */
static void runs_without_weights_are_no_copies(void **state) {
    (void)state;
    char path[700], *text;
    size_t n;
    for (int i = 0; i < 2; i++) {
        put_seed(i);
        snprintf(path, sizeof path, "%s/seed%d/summary.json", dir, i);
        assert_ok(file_read(path, 1 << 16, pool, &text, &n));
        char *weights = strstr(text, "\"weights_sha256\":\"") + strlen("\"weights_sha256\":\"");
        memmove(weights, weights + 2, strlen(weights + 2) + 1);
        static const char *const parts[] = {"\"forward\":1", "\"backward\":1"};
        for (int k = 0; k < 2; k++) memcpy(strstr(text, parts[k]) + strlen(parts[k]) - 1, "0", 1);
        char *waits = strstr(text, "\"comm_exposed\":1");
        waits[strlen("\"comm_exposed\":")] = '0';
        snprintf(path, sizeof path, "seed%d/summary.json", i);
        put(path, text);
    }
    put("results.json",
        "{\"axis\":\"side\",\"sides\":[\"a\"],\"metrics\":[{\"name\":\"val_accuracy\"}],\"cells\":[" SIDE(
            "a", "\"val_accuracy\":0.7", SEED(0, 0.6, 1) "," SEED(1, 0.8, 1)) "]}");
    assert_ok(report_read(dir, pool, &report));
    assert_int_equal(section("table")->plot[0].nspans, 2);
    assert_non_null(section("time")->missing);
}

/* Sides of several keys, trained with seeds: every metric has its answer, and the first picture is what learning costs. */
static void every_metric_has_its_answer(void **state) {
    (void)state;
    for (int i = 0; i < 7; i++) put_seed(i);
    put("results.json",
        "{\"axis\":\"side\",\"sides\":[\"ddp\",\"int8\"],\"seeds\":[0,1,2,3,4,5,6],\"tests\":3,\"sides_settings\":{"
        "\"ddp\":{"
        "\"mode\":\"ddp\"},\"int8\":{\"mode\":\"ddp\",\"comm.compress\":\"int8\"}},\"notes\":[\"power: few seeds\"],"
        "\"metrics\":[{\"name\":\"val_accuracy\",\"unit\":\"\",\"about\":\"training\",\"scale\":\"difference\"},"
        "{\"name\":\"bytes\",\"unit\":\"bytes\",\"about\":\"machine\",\"scale\":\"ratio\"},{\"name\":\"time_to:val."
        "loss:0.5\","
        "\"unit\":\"s\",\"about\":\"both\",\"scale\":\"ratio\"}],\"cells\":[" SIDE(
            "ddp", "\"val_accuracy\":0.9,\"time_to:val.loss:0.5\":null",
            SEED(0, 0.9, 8) "," SEED(1, 0.91, 8) "," SEED(2, 0.89, 8) "," SEED(3, 0.9, 9) "," SEED(4, 0.9, 8) "," SEED(
                5, 0.92,
                8) "," SEED(6, 0.88,
                            8)) "," SIDE("int8", "\"val_accuracy\":0.95,\"time_to:val.loss:0.5\":2",
                                         SEED(0, 0.95,
                                              2)) "],\"pairs\":[{\"a\":0,\"b\":1,\"ratio\":0.05,"
                                                  "\"verdict\":\"faster\",\"answers\":[" ANSWER(
                                                      "val_accuracy", 0.05, 0.031, 0.07, 0.012, "better",
                                                      "") "," ANSWER("bytes", 3.94, 3.9, 4, 0.6, "inconclusive",
                                                                     ",\"needed\":12") "," ANSWER("time_to:val.loss:0."
                                                                                                  "5",
                                                                                                  null, null, null,
                                                                                                  null, "untested",
                                                                                                  ",\"unreached\":[7,"
                                                                                                  "0]") "]}]}");
    assert_ok(report_read(dir, pool, &report));
    assert_string_equal(report.verdict, "int8 is better than ddp by 5.00 points [+3.10, +7.00].");
    assert_true(says(section("verdict"),
                     "Bytes sent by the busiest rank: int8 against ddp: 3.94 times [3.90, 4.00]; more runs"));
    assert_true(says(section("verdict"), "Note: power: few seeds") && says(section("table"), "trainings with 7 seeds"));
    assert_true(says(section("table"), "for all 3 questions together"));
    const struct table *t = &section("table")->table[0];
    assert_string_equal(t->title, "What each side is");
    assert_string_equal(table_row(t, 2)[1], "mode: ddp, comm.compress: int8");
    t = &section("table")->table[1];
    static const char *const rows[3][7] = {
        {"validation accuracy", "int8 better", "90.0 %", "95.0 %", "+5.00 points", "[+3.10, +7.00]", "0.012"},
        {"bytes sent by the busiest rank", "inconclusive: about 12 runs a side would decide it with a chance of 80 %",
         "8 B", "2 B", "3.94 times", "[3.90, 4.00]", "0.6"},
        {"time to val.loss 0.5", "untested", "never", "2 s", "-", "-", "-"}};
    assert_true(t->rows == 3 && t->columns == 7);
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 7; k++) assert_string_equal(table_row(t, i + 1)[k], rows[i][k]);
    const struct plot *p = &section("verdict")->plot[0];
    assert_string_equal(p->title, "Validation accuracy against training time");
    assert_true(p->nseries == 2 && p->series[0].x[0] == 8 && p->series[0].y[0] == 0.9 && p->series[1].x[0] == 2);
    assert_true(p->series[0].low[0] < 0.9 && p->series[0].high[0] > 0.9 && isnan(p->series[1].low[0]));
    assert_int_equal(section("verdict")->plot[1].x.unit, PLOT_BYTES);
}

#define ONE_PAIR(verdict, words, doubt)                                                                                \
    "{\"axis\":\"side\",\"sides\":[\"ddp\",\"int8\"],\"tests\":1,\"metrics\":[{\"name\":\"val_accuracy\",\"about\":"   \
    "\"training\",\"scale\":\"difference\"}],\"cells\":[" SIDE("ddp", "", SEED(0, 0.9, 20)) "," SIDE(                  \
        "int8", "", SEED(1, 0.9, 21)) "],\"pairs\":[{\"a\":0,\"b\":1,\"ratio\":0.0056,\"low\":0.0028,\"high\":0.0097," \
                                      "\"verdict\":\"" verdict "\",\"words\":\"" words "\",\"doubt\":" doubt "}]}"

/* What speaks against an answer stands in its own sentence, and a small difference is not none. */
static void an_answer_holds_its_doubt(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) put_seed(i);
    put("results.json", ONE_PAIR("faster", "better", "\"half of the runs of a side lie 139 % apart\""));
    assert_ok(report_read(dir, pool, &report));
    assert_string_equal(report.verdict,
                        "int8 is better than ddp by 0.56 points [+0.28, +0.97], but half of the runs of "
                        "a side lie 139 % apart.");
    put("results.json", ONE_PAIR("same", "better by less than 1 pt", "null"));
    assert_ok(report_read(dir, pool, &report));
    assert_string_equal(report.verdict, "int8 against ddp: +0.56 points [+0.28, +0.97], better by less than 1 pt.");
    assert_string_equal(table_row(&section("table")->table[0], 1)[1], "int8 better by less than 1 pt");
    put("results.json", ONE_PAIR("same", "same", "\"the error of the validation set is not known\""));
    assert_ok(report_read(dir, pool, &report));
    assert_string_equal(report.verdict, "int8 against ddp: +0.56 points [+0.28, +0.97]; there is no difference that "
                                        "matters, but the error of the validation set is not known.");
}

/* Both sides train for 20 seconds: in the same picture one makes 170 steps of it, the other 1,050. */
static void at_equal_time_steps_are_shown(void **state) {
    (void)state;
    static const char *const steps[] = {"170", "1050"};
    for (int i = 0; i < 2; i++) {
        char path[700], *text, *at;
        size_t n;
        put_seed(i);
        snprintf(path, sizeof path, "%s/seed%d/summary.json", dir, i);
        assert_ok(file_read(path, 1 << 16, pool, &text, &n));
        at = strstr(text, "\"steps\":");
        assert_non_null(at);
        at += strlen("\"steps\":");
        snprintf(path, sizeof path, "seed%d/summary.json", i);
        put(path, pool_printf(pool, "%.*s%s%s", (int)(at - text), text, steps[i], at + strcspn(at, ",")));
    }
    put("results.json", ONE_PAIR("same", "same", "null"));
    assert_ok(report_read(dir, pool, &report));
    const struct plot *p = &section("verdict")->plot[0];
    assert_string_equal(p->title, "Validation accuracy against steps made in the same time");
    assert_true(p->series[0].x[0] == 170 && p->series[1].x[0] == 1050 && p->x.unit == PLOT_PLAIN);
}

/* The value of a ratio is of pairs, of all runs, or of either, as results.json says. */
static void a_ratio_says_whether_runs_are_paired(void **state) {
    (void)state;
    static const struct {
        const char *paired[2], *words;
    } cases[] = {
        {{"true", "true"}, "the median of the ratios of the paired runs, which may"},
        {{"false", "false"}, "the median of the ratios of each run of one side to each run of the other, which"},
        {{"true", "false"}, "the paired runs (or of all runs of both sides, where they are not compared"}};
    for (int i = 0; i < 2; i++) put_seed(i);
    for (int i = 0; i < 3; i++) {
        char text[2048];
        snprintf(text, sizeof text,
                 "{\"axis\":\"side\",\"sides\":[\"a\",\"b\"],\"tests\":2,\"metrics\":[{\"name\":\"time\",\"scale\":"
                 "\"ratio\"},{\"name\":\"bytes\",\"scale\":\"ratio\"}],\"cells\":[" SIDE(
                     "a", "\"time\":1",
                     SEED(0, 0.6, 1)) "," SIDE("b", "\"time\":2",
                                               SEED(1, 0.8,
                                                    1)) "],\"pairs\":[{\"a\":0,\"b\":1,\"ratio\":2,\"verdict\":"
                                                        "\"same\",\"answers\":[" ANSWER(
                                                            "time", 2, 1, 3, 0.1, "same",
                                                            ",\"paired\":%s") "," ANSWER("bytes", 2, 1, 3, 0.1, "same",
                                                                                         ",\"paired\":%s") "]}]}",
                 cases[i].paired[0], cases[i].paired[1]);
        put("results.json", text);
        assert_ok(report_read(dir, pool, &report));
        if (!says(section("table"), cases[i].words)) fail_msg("no '%s'", cases[i].words);
    }
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(what_was_asked_is_what_is_told),     TEST(each_metric_has_its_plot),
        TEST(every_metric_has_its_answer),        TEST(a_ratio_says_whether_runs_are_paired),
        TEST(runs_without_weights_are_no_copies), TEST(times_of_steps_alone_need_no_such_section),
        TEST(seconds_are_seconds_from_one_on),    TEST(an_answer_holds_its_doubt),
        TEST(at_equal_time_steps_are_shown),
    };
    return cmocka_run_group_tests_name("report_metrics", tests, NULL, NULL);
}
