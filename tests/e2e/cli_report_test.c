/* engine report on runs as they really are; and in a real browser, on a screen and on a phone. */
#include "tests/harness/browser.h"
#include "tests/harness/program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct program p;
static char runs[3][512], experiment[512];

static void train(const char *mode, const char *devices, char dir[512]) {
    char where[600];
    snprintf(dir, 512, "%s", scratch_path(mode));
    snprintf(where, sizeof where, "log.dir=%s", dir);
    program_run(&p, 60, "run", "--quiet", "--mode", mode, "--devices", devices, "--set", "threads=1", "--set",
                "train=12st", "--set", "batch={size: 32, shards: 2}", "--set",
                "data={set: digits, train: 1000, val: 200}", "--set", "comm.emulate.bandwidth=1Gbit", "--set", where,
                NULL);
    if (p.code) fail_msg("%s", p.err);
}

/* Two runs, and an experiment of them. */
static int make_runs(void **state) {
    (void)state;
    char text[4096], path[600];
    train("dp", "cpu:2", runs[0]);
    train("ddp", "cpu:2", runs[1]);
    train("single", "cpu:1", runs[2]);
    snprintf(experiment, sizeof experiment, "%s", scratch_path("experiment"));
    assert_int_equal(mkdir(experiment, 0755), 0);
    snprintf(text, sizeof text,
             "{\"format\":1,\"name\":\"dp <or> "
             "ddp\",\"axis\":\"mode\",\"sides\":[\"dp\",\"ddp\"],\"cells\":["
             "{\"label\":\"a\",\"side\":\"dp\",\"devices\":2,\"runs\":[{\"dir\":\"%s\"}],"
             "\"predicted\":{\"step_time\":20}},"
             "{\"label\":\"b\",\"side\":\"ddp\",\"devices\":2,\"runs\":[{\"dir\":\"%s\"}],"
             "\"predicted\":{\"step_time\":11,\"formula\":11,\"port\":\"emulated 1Gbit\"}},"
             "{\"label\":\"c\",\"side\":\"ddp\",\"devices\":1,\"runs\":[{\"dir\":\"%s\"}],"
             "\"predicted\":{\"reference\":true,\"why\":\"others\"}}],"
             "\"pairs\":[{\"a\":0,\"b\":1,\"ratio\":1.9,\"low\":1.8,\"high\":2,\"p_holm\":0.01,"
             "\"verdict\":\"faster\","
             "\"same_losses\":true,\"same_weights\":true}]}",
             runs[0], runs[1], runs[2]);
    snprintf(path, sizeof path, "%s/results.json", experiment);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    return fclose(f);
}

static void a_run_becomes_a_page(void **state) {
    (void)state;
    char page[600];
    program_run(&p, 30, "report", runs[1], NULL);
    assert_int_equal(p.code, 0);
    assert_non_null(strstr(p.out, "ddp on 2 devices trained 12 steps"));
    snprintf(page, sizeof page, "%s/report.html", runs[1]);
    assert_int_equal(access(page, R_OK), 0);
    program_run(&p, 30, "report", runs[1], "-o", "-", NULL);
    assert_true(!strncmp(p.out, "<!DOCTYPE html>", 15) && strstr(p.out, "</html>"));
    assert_null(strstr(p.out, "beside computing")); /* which only a trace knows */
    assert_non_null(strstr(p.out, "--set log.trace=10..20st"));
}

static void a_traced_run_tells_more(void **state) {
    (void)state;
    char where[600];
    const char *dir = scratch_path("traced");
    snprintf(where, sizeof where, "log.dir=%s", dir);
    program_run(&p, 60, "run", "--quiet", "--mode", "ddp", "--devices", "cpu:2", "--set", "threads=1", "--set",
                "train=12st", "--set", "log.trace=4..10st", "--set", "ddp.bucket=64KB", "--set", where, NULL);
    if (p.code) fail_msg("%s", p.err);
    program_run(&p, 30, "report", dir, "-o", "-", NULL);
    static const char *const says[] = {"rank by rank",   "queued",      "on the wire",
                                       "the step waits", "1: bucket 1", "among the traced steps 4 to 10"};
    for (size_t i = 0; i < sizeof says / sizeof *says; i++)
        if (!strstr(p.out, says[i])) fail_msg("no '%s'", says[i]);
}

static void the_runs_are_the_same_in_bits(void **state) {
    (void)state;
    program_run(&p, 30, "report", experiment, "--format", "md", "-o", "-", NULL);
    assert_int_equal(p.code, 0);
    assert_non_null(strstr(p.out, "equal bit for bit in all 3 runs"));
    assert_non_null(strstr(p.out, "ddp is faster than dp: 1.90 times \\[1.80, 2.00\\]"));
}

static void forms_are_chosen_by_name(void **state) {
    (void)state;
    static const char *const begins[][2] = {
        {"html", "<!DOCTYPE html>"}, {"txt", "Answer"}, {"svg", "<svg "}, {"md", "# "}};
    for (int i = 0; i < 4; i++) {
        char path[600], text[16] = "";
        snprintf(path, sizeof path, "%s/r.%s", runs[0], begins[i][0]);
        program_run(&p, 30, "report", runs[0], "-o", path, NULL);
        assert_int_equal(p.code, 0);
        FILE *f = fopen(path, "r");
        assert_non_null(f);
        assert_non_null(fgets(text, sizeof text, f));
        fclose(f);
        assert_memory_equal(text, begins[i][1], strlen(begins[i][1]));
    }
}

static void write_proof(const char *path, const char *rows) {
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "{\"engine\":\"0.1\",\"gpu\":\"H100\",\"emulated\":true,\"failed\":1%s}", rows);
    assert_int_equal(fclose(f), 0);
}

/* What failed comes first; expected beside measured, and the share of it. */
static void the_proof_of_a_gpu_becomes_a_page(void **state) {
    (void)state;
    char path[512], page[512];
    snprintf(path, sizeof path, "%s", scratch_path("gpu-h100.json"));
    snprintf(page, sizeof page, "%s", scratch_path("gpu-h100.html"));
    write_proof(path, ",\"rows\":[{\"what\":\"bench layers\",\"result\":\"ok\",\"seconds\":9.5,\"figure\":\"\","
                      "\"expected_ms\":15,\"measured_ms\":60},"
                      "{\"what\":\"memcheck\",\"result\":\"skipped\",\"seconds\":null,\"figure\":\"none\"},"
                      "{\"what\":\"kill -9\",\"result\":\"FAILED 1\",\"seconds\":2,\"figure\":\"exit code 1\"}]");
    program_run(&p, 30, "report", path, "-o", "-", "--format", "txt", NULL);
    assert_int_equal(p.code, 0);
    const char *failed = strstr(p.out, "FAILED 1"), *share = strstr(p.out, "25 %");
    assert_true(failed && share && failed < strstr(p.out, "bench layers"));
    assert_non_null(strstr(p.out, "3 parts: 1 passed, 1 failed, 1 skipped."));
    assert_non_null(strstr(p.out, "the GPUs were emulated"));
    program_run(&p, 30, "report", path, NULL);
    assert_int_equal(p.code, 0);
    assert_int_equal(access(page, R_OK), 0);
    write_proof(path, "");
    program_run(&p, 30, "report", path, NULL);
    assert_int_equal(p.code, 65);
}

static void wrong_use_is_told(void **state) {
    (void)state;
    static const struct {
        const char *args[5];
        int code;
        const char *says;
    } cases[] = {{{"report", NULL}, 64, "of what"},
                 {{"report", "/nowhere", NULL}, 66, "no directory"},
                 {{"report", "--format", "pdf", NULL}, 64, "'pdf'"},
                 {{"report", "-x", NULL}, 64, "unknown option"},
                 {{"report", "/tmp", NULL}, 66, "not the folder of a run"},
                 {{"report", "a", "b", NULL}, 64, "one directory"},
                 {{"report", "a", "-o", "a.csv", NULL}, 64, "results.csv"},
                 {{"report", "a", "-o", NULL}, 64, "name of a file"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        program_start(&p, cases[i].args);
        assert_true(program_wait(&p, 30));
        assert_int_equal(p.code, cases[i].code);
        if (!strstr(p.err, cases[i].says)) fail_msg("%s", p.err);
    }
}

/* ---- in a browser --------------------------------------------------------------------------- */

static void check_page(const char *browser, const char *dir, int width, bool dark, int plots) {
    char page[600];
    struct browser_view v;
    snprintf(page, sizeof page, "%s/report.html", dir);
    program_run(&p, 30, "report", dir, NULL);
    assert_int_equal(p.code, 0);
    browser_view(browser, page, width, dark, &v);
    print_message("%d px: %d plots, text from %.1f px\n", v.inner, v.plots, v.least);
    assert_int_equal(v.inner, width);
    if (v.scroll > v.inner || v.hidden || v.outside || v.overlaps || v.complaints || v.least < 11)
        fail_msg("%d px, %d wide: %s", v.inner, v.scroll, v.words);
    assert_true(v.plots >= plots);
}

static void pages_fit_screens_and_phones(void **state) {
    (void)state;
    const char *browser = browser_find();
    if (!browser) skip();
    check_page(browser, experiment, 1280, false, 8);
    check_page(browser, experiment, 360, true, 8);
    check_page(browser, runs[1], 360, false, 5);
    check_page(browser, runs[0], 1280, true, 5);
}

/* A page that is as wrong as can be is found to be. */
static void the_browser_sees_what_is_wrong(void **state) {
    (void)state;
    struct browser_view v;
    const char *browser = browser_find();
    if (!browser) skip();
    char page[512];
    snprintf(page, sizeof page, "%s", scratch_path("wrong.html"));
    FILE *f = fopen(page, "w");
    assert_non_null(f);
    fputs("<!DOCTYPE html><meta name=viewport content='width=device-width'><div "
          "style='width:2000px'>x</div>"
          "<svg class='plot' viewBox='0 0 340 40' width='100'><title>t</title><text x='330' y='20' "
          "style='font-size:12px'>reaches "
          "out</text><text x='330' y='22' style='font-size:12px'>lies over</text></svg>"
          "<svg class='plot' viewBox='0 0 10 10' style='display:none'><title>t</title></svg>"
          "<script>console.error('oh')</script>",
          f);
    assert_int_equal(fclose(f), 0);
    browser_view(browser, page, 360, false, &v);
    assert_true(v.scroll > v.inner && v.plots == 2 && v.hidden == 1 && v.outside == 2);
    assert_true(v.overlaps == 1 && v.complaints == 1 && v.least < 11);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_run_becomes_a_page),
                                       cmocka_unit_test(a_traced_run_tells_more),
                                       cmocka_unit_test(the_runs_are_the_same_in_bits),
                                       cmocka_unit_test(forms_are_chosen_by_name),
                                       cmocka_unit_test(the_proof_of_a_gpu_becomes_a_page),
                                       cmocka_unit_test(wrong_use_is_told),
                                       cmocka_unit_test(pages_fit_screens_and_phones),
                                       cmocka_unit_test(the_browser_sees_what_is_wrong)};
    return cmocka_run_group_tests_name("report", tests, make_runs, NULL);
}
