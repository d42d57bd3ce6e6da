/* Reports of runs and experiments that are written here by hand: what they say, what they leave out, and that nothing
 * that is in the data gets out of its place. */
#include "tests/harness/harness.h"
#include "tests/harness/xml.h"

#include "engine/base/file.h"
#include "engine/settings/held.h"
#include "lab/report/report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char dir[512];
static struct pool *pool;
static struct report report;
static struct file_text out;

/* What has been written since it was begun. */
static char *written(void) {
    fflush(out.out);
    return out.text;
}

static void begin_again(void) {
    if (out.out) assert_ok(file_text_close(&out, ERR_NONE));
    free(out.text);
    assert_ok(file_text_open(&out));
}

static void put(const char *name, const char *text) {
    char path[1400];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    save_text(path, text);
}

/* A run of 3 steps; dp's server sends more. */
static void put_run(const char *name, const char *mode, int devices, double ms, double loss) {
    char path[700], text[4096];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    assert_ok(file_make_folders(path));
    int n = snprintf(text, sizeof text,
                     "{\"mode\":\"%s\",\"devices\":%d,\"shards\":4,\"steps\":3,\"epochs\":1,\"train\":{\"loss\":"
                     "%g},"
                     "\"val\":{\"loss\":1.25,\"accuracy\":0.5},\"step_ms\":{\"p50\":%g,\"p95\":%g},"
                     "\"samples_per_s\":1000,\"time_s\":{\"load\":0.001,\"forward\":0.002,\"backward\":0.003,"
                     "\"comm_exposed\":0.004,\"comm_hidden\":0.004,\"update\":0.001,\"total\":0.02},"
                     "\"weights_sha256\":\"aaaa\",\"losses_sha256\":\"%s\",",
                     mode, devices, loss, ms, ms, loss == 1 ? "bbbb" : "cccc");
    static const char *const lists[] = {"sent", "received", "optimizer_bytes", "peak_rss_bytes"};
    for (int k = 0; k < 4; k++) {
        n += snprintf(text + n, sizeof text - (size_t)n, "%s\"%s\":[", k == 0 ? "\"bytes\":{" : "", lists[k]);
        for (int i = 0; i < devices; i++)
            n += snprintf(text + n, sizeof text - (size_t)n, "%s%d", i ? "," : "",
                          !strcmp(mode, "dp") && i == 0 ? 3000000 : 1000000);
        n += snprintf(text + n, sizeof text - (size_t)n, "]%s,", k == 1 ? "}" : "");
    }
    for (int k = 0; k < HELD_PARTS; k++) { /* rank r: r + 1 times 1, 2, 3, ... MB */
        n += snprintf(text + n, sizeof text - (size_t)n, "%s\"%s\":[", k ? "," : "\"held_bytes\":{", held_keys[k]);
        for (int i = 0; i < devices; i++)
            n += snprintf(text + n, sizeof text - (size_t)n, "%s%d", i ? "," : "", (i + 1) * (k + 1) << 20);
        n += snprintf(text + n, sizeof text - (size_t)n, "]");
    }
    snprintf(text + n, sizeof text - (size_t)n, "},\"run_dir\":\"x\"}\n");
    snprintf(path, sizeof path, "%s/summary.json", name);
    put(path, text);
    n = 0;
    for (int i = 1; i <= 3; i++)
        n += snprintf(text + n, sizeof text - (size_t)n,
                      "{\"step\":%d,\"epoch\":0,\"loss\":%g,\"accuracy\":0,\"samples\":8,\"ms\":%g}\n", i,
                      i < 3 ? 4.0 - i : loss, ms);
    snprintf(path, sizeof path, "%s/metrics.jsonl", name);
    put(path, text);
    snprintf(text, sizeof text, "mode: %s\ndevices: cpu:%d\nbatch: {size: 8}\ndata: \"<script>alert(1)</script>\"\n",
             mode, devices);
    snprintf(path, sizeof path, "%s/resolved.yaml", name);
    put(path, text);
}

#define CELL(side, n, dir, ms, more)                                                                                   \
    "{\"label\":\"" side "\",\"side\":\"" side "\",\"settings\":{\"mode\":\"" side "\",\"devices\":\"cpu:" #n          \
    "\",\"comm.emulate.bandwidth\":\"1Gbit\"},\"devices\":" #n ",\"runs\":[{\"dir\":\"" dir "\",\"step_time\":" #ms    \
    "}]" more "}"
static const char results[] =
    "{\"format\":1,\"name\":\"a "
    "<b>&\\\"'|*\",\"axis\":\"mode\",\"sides\":[\"dp\",\"ddp\"],\"scaling\":\"strong\","
    "\"warmup\":1,\"confidence\":0.95,\"complete\":true,\"metrics\":[{\"name\":\"step_time\"}],"
    "\"cells\":[" CELL("dp", 1, "dp1", 10, "") "," CELL("ddp", 1, "ddp1", 10, "") "," CELL(
        "dp", 2, "dp2", 12, ",\"predicted\":{\"step_time\":13.2}") "," CELL("ddp", 2, "ddp2", 6,
                                                                            "") "],\"pairs\":[{\"a\":0,\"b\":1,"
                                                                                "\"ratio\":1,\"low\":0.99,\"high\":1."
                                                                                "01,\"p_holm\":1,\"verdict\":\"same\","
                                                                                "\"same_losses\":true,\"same_weights\":"
                                                                                "true},{\"a\":2,\"b\":"
                                                                                "3,\"ratio\":2,\"low\":1.9,\"high\":2."
                                                                                "1,\"p_holm\":0.02,\"verdict\":"
                                                                                "\"faster\",\"same_losses\":false,"
                                                                                "\"difference\":{\"words\":\"<i>step "
                                                                                "3</i>\"}}],\"gates\":[{\"text\":\"g > "
                                                                                "1\","
                                                                                "\"judged\":true,\"passed\":false}],"
                                                                                "\"warnings\":[\"<noise>\"],"
                                                                                "\"environment\":{\"cores\":2,"
                                                                                "\"memory\":2097152,\"load\":"
                                                                                "[1,2]}}";

static int set_up(void **state) {
    (void)state;
    snprintf(dir, sizeof dir, "%s", scratch_folder());
    assert_ok(pool_create(&pool));
    begin_again();
    put_run("dp1", "dp", 1, 10, 1);
    put_run("ddp1", "ddp", 1, 10, 1);
    put_run("dp2", "dp", 2, 12, 1);
    put_run("ddp2", "ddp", 2, 6, 1.5);
    put("results.json", results);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    assert_ok(file_text_close(&out, ERR_NONE));
    free(out.text);
    out = (struct file_text){0};
    pool_free(pool);
    return 0;
}

static const struct report_section *section(const char *id) {
    for (int i = 0; i < report.nsections; i++)
        if (!strcmp(report.section[i].id, id)) return &report.section[i];
    fail_msg("no section '%s'", id);
    return NULL;
}

static bool says(const struct report_section *s, const char *words) {
    for (int i = 0; i < s->ntexts; i++)
        if (strstr(s->text[i], words)) return true;
    return false;
}

static void write_as(enum report_format f) {
    begin_again();
    assert_ok(report_write(&report, f, out.out));
}

/* ---- what is said --------------------------------------------------------------------------- */

static void an_experiment_says_what_it_came_to(void **state) {
    (void)state;
    assert_ok(report_read(dir, pool, &report));
    assert_string_equal(report.verdict,
                        "ddp is faster than dp in 1 of 2 comparisons, up to 2.00 times [1.90, 2.10] (2 devices, "
                        "bandwidth 1Gbit); in 1 of 2 there is no difference that matters.");
    assert_string_equal(report.question, "Step time: dp or ddp? On 1, 2 devices; bandwidth 1Gbit. 1 run a side, each a "
                                         "fresh process, whose first 1 step is left out.");
    assert_true(says(section("verdict"), "Gate: g > 1: FAILED") && says(section("verdict"), "Warning: <noise>"));
    const struct report_section *s = section("table");
    assert_string_equal(s->table[0].title, "Step time: ddp against dp");
    assert_string_equal(table_row(&s->table[0], 0)[2], "dp");
    assert_string_equal(table_row(&s->table[0], 2)[1], "ddp faster");
    assert_string_equal(table_row(&s->table[0], 2)[2], "12 ms");
    assert_string_equal(table_row(&s->table[0], 2)[4], "2.00 times");
    assert_string_equal(table_row(&s->table[0], 2)[5], "[1.90, 2.10]");
    assert_int_equal(s->table[1].rows, 4);
    assert_non_null(strstr(section("bits")->text[0], "The same bits in 1 of 2 comparisons"));
    assert_non_null(strstr(section("bits")->text[1], "<i>step 3</i>"));
    assert_non_null(strstr(section("model")->text[0], "10.0 %"));
    assert_int_equal(section("settings")->table[0].rows, 2); /* mode and devices */
    assert_string_equal(table_row(&section("settings")->table[0], 2)[2], "cpu:1, cpu:2");
    assert_string_equal(table_row(&section("environment")->table[0], 2)[1], "2.0 MB");
}

static void plots_show_the_numbers(void **state) {
    (void)state;
    assert_ok(report_read(dir, pool, &report));
    const struct plot *p = &section("speedup")->plot[0];
    assert_int_equal(p->nseries, 3); /* dp, its model, ddp */
    assert_true(p->series[0].y[0] == 0.010 && p->series[0].y[1] == 0.012 && p->series[1].model);
    p = &section("speedup")->plot[1];
    assert_int_equal(p->nseries, 4); /* dp, its model, ddp, ideal */
    assert_true(p->series[0].y[0] == 1 && p->series[0].y[1] > 0.83 && p->series[0].y[1] < 0.84);
    assert_true(p->series[1].model && p->series[2].y[1] > 1.66 && p->series[2].y[1] < 1.67);
    assert_true(section("speedup")->plot[2].series[3].y[1] == 1);
    p = &section("time")->plot[0];
    assert_int_equal(p->ncategories, 4);
    assert_string_equal(p->category[2], "dp \xC3\x97 2");
    assert_true(fabs(p->series[1].y[0] - 0.010 * 2 / 11) < 1e-9); /* 2 of 11 ms of all steps are forward */
    double whole = 0;
    for (int i = 0; i < p->nseries; i++) whole += p->series[i].y[2];
    assert_true(fabs(whole - 0.012) < 1e-9); /* a bar is the step time */
    p = &section("bytes")->plot[0];
    assert_int_equal(p->nseries, 2);                                         /* each receives what it sends */
    assert_true(p->series[0].y[0] == 1000000 && p->series[1].y[0] < 334000); /* the server's port */
    p = &section("loss")->plot[0];
    assert_true(p->nseries == 2 && p->series[0].n == 3 && p->series[1].y[2] == 1.5);
    assert_true(section("memory")->nplots == 2);
    const struct table *held = &section("memory")->table[0];
    static const char *const of_rank_1[] = {"ddp × 2", "2.0 MB",  "4.0 MB",  "6.0 MB",  "8.0 MB",
                                            "10.0 MB", "12.0 MB", "42.0 MB", "976.6 KB"};
    assert_true(section("memory")->ntables == 1 && held->rows == 2 && held->columns == 9);
    for (int i = 0; i < 9; i++) assert_string_equal(table_row(held, 2)[i], of_rank_1[i]);
}

/* Without a trace nobody knows which communication a step waited for: its colour is the timeline's neutral one. */
static void communication_is_neutral_without_a_trace(void **state) {
    (void)state;
    enum { COMM = 3, NEUTRAL = 6, WAITS = 1 };
    char path[700];
    assert_ok(report_read(dir, pool, &report));
    assert_string_equal(section("time")->plot[0].series[COMM].name, "communication, exposed");
    assert_int_equal(section("time")->plot[0].series[COMM].colour, NEUTRAL);
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s/trace", dir, i ? "ddp2" : "dp2");
        assert_ok(file_make_folders(path));
    }
    assert_ok(report_read(dir, pool, &report));
    assert_int_equal(section("time")->plot[0].series[COMM].colour, WAITS);
}

/* dp: 10 ms on one device, 12 on two. ddp: 10 and 6, so 8 of the 10 are divided. */
static void laws_are_fitted_to_the_times(void **state) {
    (void)state;
    assert_ok(report_read(dir, pool, &report));
    const struct report_section *s = section("speedup");
    const struct table *t = &s->table[0];
    assert_true(t->rows == 2 && t->columns == 3);
    assert_string_equal(table_row(t, 0)[1], "p (Amdahl)");
    assert_string_equal(table_row(t, 0)[2], "e on 2");
    assert_string_equal(table_row(t, 1)[0], "dp, bandwidth 1Gbit");
    assert_string_equal(table_row(t, 1)[1], "none: slower");
    assert_string_equal(table_row(t, 1)[2], "1.400");
    assert_string_equal(table_row(t, 2)[1], "80.0 %");
    assert_string_equal(table_row(t, 2)[2], "0.200");
    assert_true(says(s, "Amdahl's law") && says(s, "does not rise"));
}

/* The same numbers where the batch grows: twice the work in 12 ms, in 6. */
static void a_batch_that_grows_has_its_own_law(void **state) {
    (void)state;
    char text[sizeof results + 8], *at;
    snprintf(text, sizeof text, "%s", results);
    at = strstr(text, "\"strong\"");
    assert_non_null(at);
    memmove(at + 6, at + 8, strlen(at + 8) + 1);
    memcpy(at, "\"weak\"", 6);
    put("results.json", text);
    assert_ok(report_read(dir, pool, &report));
    const struct report_section *s = section("speedup");
    assert_int_equal(s->table[0].columns, 2);
    assert_string_equal(table_row(&s->table[0], 0)[1], "p (Gustafson)");
    assert_string_equal(table_row(&s->table[0], 1)[1], "66.7 %");
    assert_true(says(s, "Gustafson's law") && !says(s, "Amdahl") && !says(s, "Karp"));
}

/* Three numbers of devices: a server's time grows, and with it e. */
static void a_serial_share_that_rises_is_named(void **state) {
    (void)state;
    put_run("dp4", "dp", 4, 11, 1);
    static const char more[] =
        "{\"format\":1,\"axis\":\"mode\",\"sides\":[\"dp\",\"ddp\"],\"scaling\":\"strong\","
        "\"cells\":[" CELL("dp", 1, "dp1", 10, ",\"predicted\":{\"reference\":true,\"why\":\"x\"}") "," CELL(
            "dp", 2, "dp2", 7, ",\"predicted\":{\"why\":\"links are not emulated\"}") "," CELL("dp", 4, "dp4", 6,
                                                                                               ",\"predicted\":{"
                                                                                               "\"step_time\":5.4,"
                                                                                               "\"formula\":5,"
                                                                                               "\"port\":\"emulated "
                                                                                               "1Gbit\"}") "]}";
    put("results.json", more);
    assert_ok(report_read(dir, pool, &report));
    const struct report_section *s = section("speedup");
    assert_string_equal(table_row(&s->table[0], 1)[2], "0.400"); /* (0.7 - 0.5) / 0.5 */
    assert_string_equal(table_row(&s->table[0], 1)[3], "0.467"); /* (0.6 - 0.25) / 0.75 */
    assert_true(says(s, "does not rise") && !says(s, "e rises"));
    put_run("dp4", "dp", 4, 10, 1);
    char text[sizeof more];
    memcpy(text, more, sizeof more);
    char *six = strstr(text, "\"step_time\":6}");
    assert_non_null(six);
    six[strlen("\"step_time\":")] = '9';
    put("results.json", text);
    assert_ok(report_read(dir, pool, &report));
    assert_true(says(section("speedup"), "e rises with the devices in 1 of 1 rows: dp, bandwidth "
                                         "1Gbit (0.40 to 0.87)."));
    s = section("model");
    assert_true(says(s, "40.0 % too short at worst (dp \xC3\x97 4, bandwidth 1Gbit)"));
    assert_true(says(s, "in one cell (dp \xC3\x97 1, bandwidth 1Gbit)"));
    assert_true(says(s, "Not predicted: 1 cell. The reason: links are not emulated."));
    assert_string_equal(table_row(&s->table[0], 1)[3], "-40.0 %");
    assert_string_equal(table_row(&s->table[0], 1)[5], "emulated 1Gbit");
}

#define OF_MODEL(model, n, rate, run)                                                                                  \
    "{\"label\":\"x\",\"side\":\"dp\",\"devices\":" #n ",\"settings\":{\"mode\":\"dp\","                               \
    "\"model\":\"" model "\",\"comm.emulate.bandwidth\":\"" rate "\"},\"runs\":[" run "]}"
#define PLACE(side, n, rate)                                                                                           \
    "{\"side\":\"" side "\",\"devices\":" #n ",\"settings\":{\"mode\":\"" side "\",\"devices\":\"cpu:" #n              \
    "\",\"comm.emulate.bandwidth\":\"" rate "\"},\"runs\":[{\"dir\":\"" side "2\",\"step_time\":5}]}"
#define RUN(dir, ms) "{\"dir\":\"" dir "\",\"step_time\":" #ms "}"

/* One device stands for all links, but not for another network. */
static void speed_ups_are_of_the_same_work(void **state) {
    (void)state;
    put("results.json",
        "{\"axis\":\"mode\",\"sides\":[\"dp\"],\"cells\":[" OF_MODEL("mlp", 1, "off", RUN("dp1", 100)) "," OF_MODEL(
            "resnet20", 1, "off", RUN("dp1", 20)) "," OF_MODEL("resnet20", 2, "1Gbit", RUN("dp2", 10)) "]}");
    assert_ok(report_read(dir, pool, &report));
    const struct plot *p = &section("speedup")->plot[5];
    assert_string_equal(p->title, "Speed-up against devices, model resnet20, bandwidth 1Gbit");
    assert_true(p->series[0].n == 2 && p->series[0].y[0] == 1 && p->series[0].y[1] == 2);
}

/* Where nothing ran on one device, the fewest are 1, as in the table of the comparison. */
static void speed_ups_begin_at_one(void **state) {
    (void)state;
    put("results.json",
        "{\"axis\":\"mode\",\"sides\":[\"dp\",\"ddp\"],\"cells\":[" CELL("dp", 2, "dp2", 10, "") "," CELL(
            "ddp", 2, "ddp2", 10, "") "," CELL("dp", 4, "dp2", 8, "") "," CELL("ddp", 4, "ddp2", 5, "") "]}");
    assert_ok(report_read(dir, pool, &report));
    const struct plot *p = section("speedup")->plot + 1;
    assert_true(p->series[0].y[0] == 1 && p->series[0].y[1] == 1.25);
    assert_true(p->series[1].y[0] == 1 && p->series[1].y[1] == 2);
    assert_true(p->series[2].y[0] == 1 && p->series[2].y[1] == 2); /* ideal */
    assert_true(p[1].series[0].y[0] == 1 && p[1].series[0].y[1] == 0.625);
}

/* Four cells of two places: the map says who is ahead where. */
static void a_map_says_who_is_ahead(void **state) {
    (void)state;
    static const char ask[] =
        "{\"axis\":\"mode\",\"sides\":[\"dp\",\"ddp\"],\"cells\":[" PLACE("dp", 2, "1Gbit") "," PLACE(
            "ddp", 2,
            "1Gbit") "," PLACE("dp", 4,
                               "1Gbit") "," PLACE("ddp", 4,
                                                  "1Gbit") "," PLACE("dp", 2,
                                                                     "off") "," PLACE("ddp", 2,
                                                                                      "off") "],"
                                                                                             "\"pairs\":[{\"a\":0,"
                                                                                             "\"b\":1,\"ratio\":2,"
                                                                                             "\"low\":1.9,\"high\":2.1,"
                                                                                             "\"verdict\":\"faster\"},"
                                                                                             "{\"a\":2,\"b\":3,"
                                                                                             "\"ratio\":4,\"verdict\":"
                                                                                             "\"inconclusive\"},{\"a\":"
                                                                                             "4,\"b\":5,\"ratio\":0.5,"
                                                                                             "\"verdict\":\"slower\"}]"
                                                                                             "}";
    put("results.json", ask);
    assert_ok(report_read(dir, pool, &report));
    const struct plot *p = &section("verdict")->plot[0];
    assert_true(p->kind == PLOT_MAP && p->nseries == 2 && p->ncategories == 2);
    assert_string_equal(p->series[1].name, "4");
    assert_string_equal(p->category[1], "bandwidth off");
    assert_string_equal(p->who[1], "ddp");
    assert_true(p->series[0].y[0] == 2 && p->series[0].high[0] == 2.1 && p->series[0].won[0] == PLOT_SECOND);
    assert_true(p->series[1].y[0] == 4 && p->series[1].won[0] == PLOT_UNTOLD);
    assert_true(p->series[0].y[1] == 0.5 && p->series[0].won[1] == PLOT_FIRST && isnan(p->series[1].y[1]));
    write_as(REPORT_HTML);
    static const char *const texts[] = {">2.00\xC3\x97<", ">4.00\xC3\x97?<", "dp is ahead; ratio 0.500",
                                        "ddp is ahead; ratio 2.000 [1.900, 2.100]"};
    for (int i = 0; i < 4; i++)
        if (!strstr(written(), texts[i])) fail_msg("no %s", texts[i]);
    assert_non_null(strstr(report.verdict,
                           "dp is faster than ddp in 1 of 3 comparisons, up to 2.00 times (2 devices, bandwidth off)"));
}

/* Of several comparisons the one that is quoted has its doubt, and the others are counted. */
static void doubts_of_several_comparisons_are_counted(void **state) {
    (void)state;
    static const char pair[] = "{\"a\":%d,\"b\":%d,\"ratio\":%d,\"low\":5.9,\"high\":42.4,\"verdict\":\"faster\","
                               "\"doubt\":\"half of the runs of a side lie %d %% apart\"}";
    char text[4096];
    int n =
        snprintf(text, sizeof text, "{\"axis\":\"mode\",\"sides\":[\"dp\",\"ddp\"],\"cells\":[%s,%s,%s,%s],\"pairs\":[",
                 PLACE("dp", 2, "1Gbit"), PLACE("ddp", 2, "1Gbit"), PLACE("dp", 4, "1Gbit"), PLACE("ddp", 4, "1Gbit"));
    n += snprintf(text + n, sizeof text - (size_t)n, pair, 0, 1, 16, 139);
    n += snprintf(text + n, sizeof text - (size_t)n, ",");
    n += snprintf(text + n, sizeof text - (size_t)n, pair, 2, 3, 8, 60);
    snprintf(text + n, sizeof text - (size_t)n, "]}");
    put("results.json", text);
    assert_ok(report_read(dir, pool, &report));
    assert_string_equal(report.verdict,
                        "ddp is faster than dp in 2 of 2 comparisons, up to 16.00 times [5.90, 42.40] (2 devices, "
                        "bandwidth 1Gbit), but half of the runs of a side lie 139 % apart (1 more in doubt).");
}

/* Two places of different work: what is held against each other are the sides of each. */
static void bits_are_those_of_pairs(void **state) {
    (void)state;
    static const char *const same[] = {"true", "null"};
    static const char *const says_of[] = {"The same bits in all 2 comparisons", "Bits are not compared"};
    for (int i = 0; i < 2; i++) {
        char text[2048];
        snprintf(text, sizeof text,
                 "{\"axis\":\"mode\",\"sides\":[\"dp\",\"ddp\"],\"cells\":[" CELL("dp", 1, "dp1", 9, "") "," CELL(
                     "ddp", 1, "dp1", 9, "") "," CELL("dp", 2, "ddp2", 9,
                                                      "") "," CELL("ddp", 2, "ddp2", 9,
                                                                   "") "],\"pairs\":[{\"a\":0,\"b\":1,"
                                                                       "\"same_losses\":%s,\"same_"
                                                                       "weights\":%s},{\"a\":2,"
                                                                       "\"b\":3,\"same_losses\":%s,\"same_"
                                                                       "weights\":%s}]}",
                 same[i], same[i], same[i], same[i]);
        put("results.json", text);
        assert_ok(report_read(dir, pool, &report));
        assert_true(says(section("bits"), says_of[i]));
    }
}

/* An experiment that was stopped: the report is of what there is. */
static void cells_that_have_not_run_are_left_out(void **state) {
    (void)state;
    put("results.json", "{\"axis\":\"mode\",\"sides\":[\"dp\",\"ddp\"],\"complete\":false,\"cells\":["
                        "{\"side\":\"dp\",\"devices\":1,\"runs\":[]}," CELL("dp", 2, "dp2", 12, "") "," CELL(
                            "ddp", 2, "ddp2", 6, "") "],\"pairs\":[{\"a\":0,\"b\":1},{\"a\":1,\"b\":2,"
                                                     "\"ratio\":2,\"verdict\":\"faster\"}]}");
    assert_ok(report_read(dir, pool, &report));
    assert_int_equal(section("table")->table[0].rows, 1);
    assert_int_equal(section("table")->table[1].rows, 2);
    assert_non_null(strstr(report.verdict, "ddp is faster than dp: 2.00 times."));
    assert_true(says(section("verdict"), "not complete"));
    put("results.json", "{\"axis\":\"mode\",\"sides\":[\"dp\"],\"cells\":[{\"side\":\"dp\",\"runs\":[]}]}");
    assert_fails(ERR_INPUT, report_read(dir, pool, &report));
    assert_non_null(strstr(error_message(), "no run of"));
}

/* 300 steps are 100 points, each the mean of three, with their range; and the best validation is named with its
 * checkpoint. */
static void a_long_curve_is_drawn_in_bins(void **state) {
    (void)state;
    static char text[64 << 10];
    int n = 0;
    for (int i = 1; i <= 300; i++) {
        n += sprintf(text + n,
                     "{\"step\":%d,\"epoch\":0,\"loss\":%g,\"accuracy\":0,\"lr\":%g,\"samples\":8,\"ms\":10}\n", i,
                     i % 3 == 1 ? 3.0 / i : 1.5 / i, i < 150 ? 0.1 : 0.01);
        if (i % 60 == 0)
            n += sprintf(text + n, "{\"step\":%d,\"val\":{\"loss\":%g,\"accuracy\":%g}}\n", i, 1.0 / i,
                         i == 180 ? 0.75 : 0.5);
    }
    put("dp1/metrics.jsonl", text);
    char path[600];
    snprintf(path, sizeof path, "%s/dp1/ckpt/step-000000180", dir);
    assert_ok(file_make_folders(path));
    put("dp1/ckpt/step-000000180/manifest.json", "{}");
    snprintf(path, sizeof path, "%s/dp1", dir);
    assert_ok(report_read(path, pool, &report));
    const struct plot *p = &section("verdict")->plot[0]; /* what is shown first is not shown again */
    assert_string_equal(p->title, "Validation accuracy against steps");
    assert_true(p->series[0].n == 5 && p->series[0].x[2] == 180 && p->series[0].y[2] == 0.75 && !p->series[0].low);
    assert_true(says(section("verdict"), "was 75.0 %, after step 180 (its checkpoint is ckpt/step-000000180)"));
    const struct report_section *s = section("loss");
    assert_int_equal(s->nplots, 4); /* losses, accuracy against seconds, learning rate */
    p = &s->plot[0];
    assert_true(p->series[0].n == 100 && p->series[0].x[99] == 300 && p->both && p->y.log);
    assert_true(fabs(p->series[0].y[0] - (3.0 + 1.5 / 2 + 1.5 / 3) / 3) < 1e-6);
    assert_true(fabs(p->series[0].high[0] - 3) < 1e-6 && fabs(p->series[0].low[0] - 0.5) < 1e-6);
    assert_true(s->plot[2].x.unit == PLOT_SECONDS && fabs(s->plot[2].series[0].x[4] - 3) < 1e-9);
    assert_string_equal(s->plot[3].title, "Learning rate against steps");
}

static void one_run_leaves_out_what_it_does_not_have(void **state) {
    (void)state;
    char path[600];
    snprintf(path, sizeof path, "%s/dp1", dir);
    assert_ok(report_read(path, pool, &report));
    static const char *const without[] = {"speedup", "bytes", "timeline", "model", "environment"};
    for (int i = 0; i < 5; i++) {
        const struct report_section *s = section(without[i]);
        assert_true(s->missing && strlen(s->missing) > 40 && s->nplots == 0 && s->ntables == 0);
    }
    assert_non_null(strstr(report.verdict, "dp on 1 device trained 3 steps"));
    assert_non_null(strstr(section("again")->command, "dp1/resolved.yaml"));
    for (int f = 0; f < REPORT_FORMATS; f++) write_as((enum report_format)f);
}

/* ---- forms ---------------------------------------------------------------------------------- */

static int occurrences(const char *what) {
    int n = 0;
    for (const char *p = written(); (p = strstr(p, what)); p++) n++;
    return n;
}

static void html_keeps_data_in_its_place(void **state) {
    (void)state;
    assert_ok(report_read(dir, pool, &report));
    write_as(REPORT_HTML);
    static const char *const never[] = {
        "<script", "<noise>", "<b>", "<i>", "src=", "https:", "@import", "nan", "(null)"};
    for (size_t i = 0; i < sizeof never / sizeof *never; i++)
        if (strstr(written(), never[i])) fail_msg("there is %s", never[i]);
    assert_int_equal(occurrences("http:"), occurrences("xmlns=\"http:"));
    int plots = 0, both = 0;
    for (int i = 0; i < report.nsections; i++)
        for (int k = 0; k < report.section[i].nplots; k++, plots++) both += report.section[i].plot[k].both;
    assert_true(plots >= 8 && both > 0);
    assert_int_equal(occurrences("<svg class=\"plot"), plots + both);
    assert_int_equal(occurrences("<input type=\"checkbox\""), both);
    assert_int_equal(occurrences("<svg class=\"plot log\""), both);
    assert_int_equal(occurrences("<summary>Table</summary>"), plots);
    assert_int_equal(occurrences("<details"), occurrences("</details>"));
    assert_int_equal(occurrences("<table>"), occurrences("</table>"));
    for (char *p = written(); (p = strstr(p, "<svg class=\"plot"));) { /* each by itself */
        char *end = strstr(p, "</svg>") + 6, kept = *end;
        *end = '\0';
        if (xml_wrong(p)) fail_msg("%s", xml_wrong(p));
        *end = kept;
        p = end;
    }
    char *first = strdup(written());
    write_as(REPORT_HTML);
    assert_string_equal(first, written());
    free(first);
}

static void svg_stands_by_itself(void **state) {
    (void)state;
    assert_ok(report_read(dir, pool, &report));
    write_as(REPORT_SVG);
    if (xml_wrong(written())) fail_msg("%s", xml_wrong(written()));
    assert_non_null(strstr(written(), "id=\"hatch0\""));
    assert_non_null(strstr(written(), "--paper:"));
}

static void markdown_has_all_tables(void **state) {
    (void)state;
    assert_ok(report_read(dir, pool, &report));
    int tables = 0;
    for (int i = 0; i < report.nsections; i++) tables += report.section[i].nplots + report.section[i].ntables;
    write_as(REPORT_MD);
    assert_int_equal(occurrences("\n\n| "), tables);
    assert_non_null(strstr(written(), "# a \\<b\\>&\"'\\|\\*"));
    assert_null(strstr(written(), "<noise>"));
}

/* ---- what is not believed ------------------------------------------------------------------- */

static void damaged_results_are_refused(void **state) {
    (void)state;
    char *text = strdup(results);
    size_t n = strlen(text);
    for (size_t cut = 0; cut < n; cut += 7) {
        char kept = text[cut];
        text[cut] = '\0';
        put("results.json", text);
        assert_fails(ERR_DATA, report_read(dir, pool, &report));
        text[cut] = kept;
    }
    free(text);
    static const char *const wrong[] = {
        "[]",
        "{}",
        "{\"cells\":[]}",
        "{\"cells\":[{}],\"sides\":[\"dp\"]}",
        "{\"sides\":[\"dp\"],\"cells\":[{\"side\":\"x\",\"runs\":[{\"dir\":\"dp1\"}]}]}",
        "{\"sides\":[\"dp\"],\"cells\":[{\"side\":\"dp\",\"runs\":[{}]}]}",
        "{\"sides\":[1],\"cells\":[{\"side\":\"dp\",\"runs\":[{\"dir\":\"dp1\"}]}]}",
        "{\"sides\":[\"dp\"],\"cells\":[{\"side\":\"dp\",\"runs\":[{\"dir\":\"dp1\"}]}],\"pairs\":["
        "{\"a\":0,\"b\":1}]}",
        "{\"sides\":[\"dp\"],\"cells\":[{\"side\":\"dp\",\"runs\":[{\"dir\":\"dp1\"}]}],\"pairs\":["
        "{\"a\":-1,\"b\":0}]}"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        put("results.json", wrong[i]);
        assert_fails(ERR_DATA, report_read(dir, pool, &report));
    }
    put("results.json", "{\"sides\":[\"dp\"],\"cells\":[{\"side\":\"dp\",\"runs\":[{\"dir\":\"gone\"}]}]}");
    assert_fails(ERR_INPUT, report_read(dir, pool, &report));
    assert_fails(ERR_INPUT, report_read("/nowhere", pool, &report));
}

/* The least that an experiment can be; numbers that are none. */
static void little_is_enough(void **state) {
    (void)state;
    put("results.json", "{\"sides\":[\"dp\",\"ddp\"],\"cells\":[{\"side\":\"dp\",\"runs\":[{\"dir\":\"dp1\"}]},"
                        "{\"side\":\"ddp\",\"settings\":{\"devices\":2},\"runs\":[{\"dir\":\"ddp2\",\"step_time\":"
                        "null}]}],"
                        "\"pairs\":[{\"a\":0,\"b\":1,\"ratio\":null,\"verdict\":\"\"},{\"a\":0,\"b\":1,\"ratio\":0,"
                        "\"verdict\":\"faster\"},"
                        "{\"a\":0,\"b\":1,\"verdict\":\"slower\"}]}");
    assert_ok(report_read(dir, pool, &report));
    for (int f = 0; f < REPORT_FORMATS; f++) write_as((enum report_format)f);
    assert_string_equal(report.verdict, "ddp is faster than dp in 1 of 3 comparisons; dp is faster than ddp in 1 of 3 "
                                        "comparisons; in 1 of 3 nothing was tested.");
    assert_null(xml_wrong(written()));
}

/* More places than a page has room for: the rest is counted. */
static void a_page_has_an_end(void **state) {
    (void)state;
    enum { PLACES = 30 };
    char *text = malloc(1 << 20);
    int n = sprintf(text, "{\"axis\":\"mode\",\"sides\":[\"dp\"],\"cells\":[");
    for (int i = 0; i < PLACES; i++)
        n += sprintf(text + n, "%s{\"side\":\"dp\",\"settings\":{\"a.lr\":\"%d\"},\"runs\":[{\"dir\":\"dp%d\"}]}",
                     i ? "," : "", i, 1 + i % 2);
    strcpy(text + n, "]}");
    put("results.json", text);
    free(text);
    assert_ok(report_read(dir, pool, &report));
    const struct report_section *s = section("time");
    assert_int_equal(s->nplots, REPORT_PLOTS);
    assert_int_equal(s->cut, PLACES - REPORT_PLOTS);
    assert_non_null(strstr(s->text[s->ntexts - 1], "6 more plots"));
    assert_string_equal(s->plot[7].title, "Step time by phase, lr 7");
    assert_int_equal(section("speedup")->cut, 3 * PLACES - REPORT_PLOTS);
    write_as(REPORT_HTML);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
int main(void) {
    const struct CMUnitTest tests[] = {TEST(an_experiment_says_what_it_came_to),
                                       TEST(plots_show_the_numbers),
                                       TEST(communication_is_neutral_without_a_trace),
                                       TEST(doubts_of_several_comparisons_are_counted),
                                       TEST(laws_are_fitted_to_the_times),
                                       TEST(speed_ups_are_of_the_same_work),
                                       TEST(speed_ups_begin_at_one),
                                       TEST(cells_that_have_not_run_are_left_out),
                                       TEST(bits_are_those_of_pairs),
                                       TEST(a_map_says_who_is_ahead),
                                       TEST(a_long_curve_is_drawn_in_bins),
                                       TEST(a_batch_that_grows_has_its_own_law),
                                       TEST(a_serial_share_that_rises_is_named),
                                       TEST(one_run_leaves_out_what_it_does_not_have),
                                       TEST(html_keeps_data_in_its_place),
                                       TEST(svg_stands_by_itself),
                                       TEST(markdown_has_all_tables),
                                       TEST(damaged_results_are_refused),
                                       TEST(little_is_enough),
                                       TEST(a_page_has_an_end)};
    return cmocka_run_group_tests_name("report", tests, NULL, NULL);
}
