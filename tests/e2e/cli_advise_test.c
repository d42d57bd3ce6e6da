/* engine advise: a small network, measured, simulated and checked here; and what it refuses. */
#include "tests/harness/program.h"

#include "engine/base/file.h"
#include "engine/device/device.h"

#include <dirent.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

static struct program p;
static struct pool *pool;

static int set_up(void **state) {
    (void)state;
    return pool_create(&pool) != ERR_NONE || setenv("TMPDIR", scratch_path("."), 1) != 0;
}

static int tear_down(void **state) {
    (void)state;
    pool_free(pool);
    return 0;
}

static const struct json_value *member(const struct json_value *in, const char *key) {
    const struct json_value *v = json_get(in, key);
    if (!v) fail_msg("no '%s'", key);
    return v;
}

static double number(const struct json_value *in, const char *key) {
    const struct json_value *v = member(in, key);
    if (v->kind != JSON_NUMBER) fail_msg("'%s' is no number", key);
    return v->number;
}

/* Folders of measurements that are still there. */
static int left_behind(void) {
    DIR *d = opendir(scratch_path("."));
    int n = 0;
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) n += !strncmp(e->d_name, "engine-advise", 13);
    rewinddir(d);
    for (struct dirent *e; (e = readdir(d));) n += !strncmp(e->d_name, "engine-measure", 14);
    closedir(d);
    return n;
}

#define SMALL                                                                                                          \
    "--set", "model={zoo: mlp, hidden: [128]}", "--set", "batch={size: 64, shards: 8}", "--set", "threads=1", "--set", \
        "devices=cpu:2"

/* Each number is what the others say it is. */
static void advises_by_what_it_measures(void **state) {
    (void)state;
    const char *page = scratch_path("advice.md");
    program_run(&p, 120, "advise", SMALL, "--set", "ddp.sync=4", "--devices", "1..4", "--link", "1Gbit,50us", "-o",
                page, "--json", NULL);
    if (p.code != 0) fail_msg("%s", p.err);
    const struct json_value *root = program_json(&p, pool), *fastest = member(root, "fastest");
    const struct json_value *by = member(root, "by_devices"), *measured = member(root, "measured");
    bool refuted = member(root, "refuted")->truth; /* on a machine that does something else meanwhile */
    assert_int_equal(fastest->kind, refuted ? JSON_NULL : JSON_OBJECT);
    assert_true(number(member(member(root, "ports"), "ddp"), "bytes_per_s") == 125e6);
    assert_int_equal(by->count, 3);
    assert_int_equal(measured->count, 2); /* f32, bf16 */
    const struct json_value *m = &measured->children[0], *alone = member(&by->children[0], "single");
    double step = number(m, "load_s") + number(m, "forward_s") + number(m, "backward_s") + number(m, "update_s");
    assert_true(fabs(number(alone, "step_s") / step - 1) < 1e-6);
    assert_true(fabs(number(alone, "samples_per_s") * step / 64 - 1) < 1e-6);
    for (int d = 0; d < 3; d++) {
        const struct json_value *best = member(&by->children[d], "fastest");
        if (!refuted) assert_true(number(fastest, "samples_per_s") >= number(best, "samples_per_s"));
        for (int i = 0; i < 2 && d; i++) {
            const struct json_value *one = member(&by->children[d], i ? "ddp" : "dp");
            assert_true(number(best, "samples_per_s") >= number(one, "samples_per_s"));
            assert_true(number(one, "step_s") > (number(m, "load_s") + number(m, "forward_s")) / 4);
        }
    }
    if (!refuted)
        assert_true(number(member(root, "simplest"), "samples_per_s") * 1.05 >= number(fastest, "samples_per_s"));
    const struct json_value *checks = member(root, "checks");
    assert_int_equal(checks->count, device_host_cores() >= 2 ? 4 : 0); /* but ps */
    for (int i = 0; i < checks->count; i++) assert_true(number(&checks->children[i], "measured_s") > 0);
    const struct json_value *staged = member(&by->children[1], "pipeline");
    assert_true(number(staged, "stages") == 2 && number(staged, "memory_bytes") > 0);
    program_assert_says(member(staged, "options")->text, "--set mode=pipeline --devices cpu:2");
    program_assert_says(p.out, "The advice leaves out ddp.sync: it is for ddp.sync=1.");
    program_assert_says(p.err, "measuring a step on one device in f32");
    char *text;
    size_t n;
    assert_ok(file_read(page, 1 << 20, pool, &text, &n));
    if (!refuted) program_assert_says(text, "Which mode is the fastest, by devices and bandwidth");
    assert_int_equal(left_behind(), 0);
}

/* Without a description of ports this machine's links are measured; the words are whole. */
static void measures_links_of_this_machine(void **state) {
    (void)state;
    if (device_host_cores() < 2) skip();
    program_run(&p, 120, "advise", SMALL, "--devices", "2", "--memory", "1GB", "--scaling", "weak", "--quiet", NULL);
    if (p.code != 0) fail_msg("%s", p.err);
    static const char *const says[] = {"The fastest: ",
                                       "On each number of devices",
                                       "Where another mode takes over",
                                       "Checked on this machine",
                                       "thread, 2 ranks: fitted",
                                       "shm, 2 ranks: fitted",
                                       "Each device has 32 samples"};
    size_t first = strstr(p.out, "No advice: ") ? 3 : 0; /* a check on a busy machine may refute the rest */
    for (size_t i = first; i < sizeof says / sizeof *says; i++) program_assert_says(p.out, says[i]);
    assert_string_equal(p.err, "");
}

/* Modes that another key excludes are left out, with the reason. */
static void leaves_out_what_cannot_be(void **state) {
    (void)state;
    program_run(&p, 120, "advise", SMALL, "--set", "comm.order=ring", "--devices", "2", "--link", "1Gbit", "--json",
                NULL);
    if (p.code != 0) fail_msg("%s", p.err);
    const struct json_value *two = &member(program_json(&p, pool), "by_devices")->children[1];
    assert_true(member(two, "pipeline")->kind == JSON_NULL && member(two, "ps")->kind == JSON_NULL);
    assert_int_equal(member(two, "ddp")->kind, JSON_OBJECT);
    program_assert_says(p.out,
                        "Mode pipeline is left out: --set comm.order=ring: error: order 'ring' adds in a circle");
}

/* What, where, and what to do. */
static void says_what_is_wrong(void **state) {
    (void)state;
    static const struct {
        const char *option, *value, *says;
        int code;
    } wrong[] = {
        {"--devices", "4..2", "numbers from 1 to 4096, such as 2,4,8 or 1..64", 64},
        {"--devices", "0", "numbers from 1 to 4096", 64},
        {"--devices", "2,,4", "numbers from 1 to 4096", 64},
        {"--devices", "1..9999", "numbers from 1 to 4096", 64},
        {"--devices", "128", "128 devices share a batch of 64 samples", 64},
        {"--link", "fast", "auto, RATE or RATE,LATENCY, as in 10Gbit,50us", 64},
        {"--link", "10Gbit,soon", "auto, RATE or RATE,LATENCY", 64},
        {"--memory", "much", "a size, as in 16GB", 64},
        {"-o", "advice.pdf", "ends in .html, .md or .txt", 64},
        {"--set", "model=nosuch", "unknown model 'nosuch'", 78},
        {"--set", "data={set: csv, train: nowhere.csv}", "nowhere.csv: No such file", 66},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        program_run(&p, 60, "advise", SMALL, wrong[i].option, wrong[i].value, NULL);
        if (p.code != wrong[i].code) fail_msg("%s %s: %d\n%s", wrong[i].option, wrong[i].value, p.code, p.err);
        program_assert_says(p.err, wrong[i].says);
        assert_int_equal(left_behind(), 0);
    }
    program_run(&p, 60, "advise", "nowhere.yaml", NULL);
    assert_int_equal(p.code, 66);
    program_run(&p, 60, "advise", SMALL, "--devices", "2", "--link", "1Gbit", "--memory", "10KB", NULL);
    assert_int_equal(p.code, 78);
    program_assert_says(p.err, "nothing fits in 10.0 KB a device");
    program_assert_says(p.err, "the least is ");
    assert_int_equal(left_behind(), 0);
}

/* Ctrl-C ends what goes on and leaves nothing. */
static void stops_when_asked(void **state) {
    (void)state;
    program_start(&p,
                  (const char *const[]){"advise", "--set", "model=resnet18", "--set", "data=shapes", "--set",
                                        "threads=1", "--set", "batch={size: 8, shards: 1}", "--link", "1Gbit", NULL});
    program_wait_text(&p, "measuring a step", 30);
    kill(p.pid, SIGINT);
    assert_true(program_wait(&p, 90));
    assert_int_equal(p.code, 130);
    assert_int_equal(left_behind(), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(advises_by_what_it_measures),
        cmocka_unit_test(measures_links_of_this_machine),
        cmocka_unit_test(leaves_out_what_cannot_be),
        cmocka_unit_test(says_what_is_wrong),
        cmocka_unit_test(stops_when_asked),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
