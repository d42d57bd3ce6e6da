/* Reading a run's directory back: what it says, and that nothing else is believed. */
#include "tests/harness/harness.h"

#include "lab/results/result.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

static const char summary[] = "{\"mode\":\"ddp\",\"devices\":2,\"shards\":4,\"steps\":3,\"epochs\":"
                              "1,\"first_step\":1,\"train\":{\"loss\":1.5},"
                              "\"val\":{\"loss\":1.25,\"accuracy\":null},\"step_ms\":{\"p50\":2,"
                              "\"p95\":3},\"samples_per_s\":1000,"
                              "\"time_s\":{\"load\":0.1,\"forward\":0.2,\"backward\":0.3,\"comm_"
                              "exposed\":0.4,\"comm_hidden\":0.5,"
                              "\"update\":0.6,\"total\":2},\"bytes\":{\"sent\":[10,11],"
                              "\"received\":[11,10]},\"peak_rss_bytes\":[5,6],"
                              "\"optimizer_bytes\":[7,8],\"weights_sha256\":\"aa\",\"losses_"
                              "sha256\":\"bb\",\"run_dir\":\"x\"}\n";
static const char metrics[] =
    "{\"step\":1,\"epoch\":0,\"loss\":9,\"accuracy\":0,\"lr\":1,\"grad_norm\":0,\"samples\":8,"
    "\"ms\":9}\n"
    "{\"step\":2,\"epoch\":0,\"loss\":3,\"accuracy\":0,\"lr\":1,\"grad_norm\":0,\"samples\":8,"
    "\"ms\":9}\n"
    "{\"step\":2,\"val\":{\"loss\":8}}\n"
    "{\"step\":1,\"event\":\"resumed\",\"text\":\"y\"}\n"
    "{\"step\":2,\"epoch\":0,\"loss\":2,\"accuracy\":0.5,\"lr\":1,\"grad_norm\":0,\"samples\":8,"
    "\"ms\":7}\n"
    "{\"step\":3,\"epoch\":0,\"loss\":1,\"accuracy\":1,\"lr\":1,\"grad_norm\":0,\"samples\":8,"
    "\"ms\":5}\n"
    "{\"step\":3,\"val\":{\"loss\":1}}\n{\"step\":3,\"event\":\"finished\"}\n";
static const char settings[] = "mode: ddp\nbatch:\n  size: 8\noptimizer: {sgd: {lr: 0.1}}\ndata: {augment: [flip]}\n";

static const char environment[] =
    "{\"time\":\"2030-01-02T03:04:05Z\",\"processor\":\"P\",\"cores\":2,\"governor\":null,"
    "\"load\":[0.5,1,2],\"host\":\"ab\",\"kernel\":\"6\",\"engine\":\"0\"}";

static const char *dir;
static struct pool *pool;

static void put(const char *name, const char *text, size_t n) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static int set_up(void **state) {
    (void)state;
    dir = scratch_folder();
    assert_ok(pool_create(&pool));
    put("summary.json", summary, strlen(summary));
    put("metrics.jsonl", metrics, strlen(metrics));
    put("resolved.yaml", settings, strlen(settings));
    put("env.json", environment, strlen(environment));
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    pool_free(pool);
    return 0;
}

static void a_run_is_read_back(void **state) {
    (void)state;
    struct run_result r;
    int64_t n;
    assert_ok(run_result_read(dir, pool, &r));
    assert_string_equal(r.mode, "ddp");
    assert_int_equal(r.devices, 2);
    assert_int_equal(r.ranks, 2);
    assert_true(r.received[1] == 10 && r.rss[1] == 6 && r.state[0] == 7);
    assert_true(r.time_s[RESULT_COMM_HIDDEN] == 0.5 && r.time_s[RESULT_TOTAL] == 2);
    assert_true(isnan(r.val_accuracy) && r.val_loss == 1.25);
    assert_string_equal(run_result_setting(&r, "optimizer.sgd.lr"), "0.1");
    assert_string_equal(run_result_setting(&r, "data.augment[0]"), "flip");
    assert_string_equal(run_result_setting(&r, "nothing"), "");
    assert_true(r.nvals == 1 && r.val[0].loss == 1 && isnan(r.val[0].accuracy));
    assert_string_equal(r.environment.processor, "P");
    assert_string_equal(r.environment.governor, "");
    assert_true(r.environment.cores == 2 && r.environment.load == 0.5);
    /* all steps, the one that was done again as it was done last; times are from the resume on */
    assert_true(r.nsteps == 3 && r.stretch == 1 && r.first_step == 1);
    assert_true(run_result_stretch(&r) == 2);
    assert_true(r.step[0].loss == 9 && r.step[1].loss == 2);
    assert_int_equal(r.step[1].step, 2);
    assert_true(run_result_step_ms(&r, 0, &n) == 6 && n == 2);
    assert_true(run_result_step_ms(&r, 1, &n) == 5 && n == 1);
    assert_true(isnan(run_result_step_ms(&r, 2, &n)) && n == 0);
}

/* Wherever a file ends, and whatever byte is another: an error or a result, never more. */
static void files_may_hold_anything(void **state) {
    (void)state;
    static const struct {
        const char *name, *text;
    } files[] = {
        {"summary.json", summary}, {"metrics.jsonl", metrics}, {"resolved.yaml", settings}, {"env.json", environment}};
    struct run_result r;
    for (size_t f = 0; f < 4; f++) {
        size_t n = strlen(files[f].text), refused = 0;
        char *copy = strdup(files[f].text);
        for (size_t cut = 0; cut < n; cut += 7) {
            put(files[f].name, copy, cut);
            refused += run_result_read(dir, pool, &r) != ERR_NONE;
        }
        for (size_t at = 0; at < n; at += 3) {
            char was = copy[at];
            copy[at] = at % 2 ? '{' : '-';
            put(files[f].name, copy, n);
            refused += run_result_read(dir, pool, &r) != ERR_NONE;
            copy[at] = was;
        }
        assert_true(refused > 0);
        put(files[f].name, copy, n);
        free(copy);
    }
    assert_ok(run_result_read(dir, pool, &r));
}

static void what_is_missing_is_named(void **state) {
    (void)state;
    struct run_result r;
    char path[128];
    snprintf(path, sizeof path, "%s/summary.json", dir);
    assert_int_equal(remove(path), 0);
    assert_int_equal(run_result_read(dir, pool, &r), ERR_INPUT);
    assert_non_null(strstr(error_message(), "no finished run"));
    put("results.json", "{}", 2); /* an experiment is none that engine run goes on with */
    assert_int_equal(run_result_read(dir, pool, &r), ERR_INPUT);
    assert_non_null(strstr(error_message(), "the folder of an experiment"));
    assert_null(strstr(error_hint(), "engine run"));
    snprintf(path, sizeof path, "%s/results.json", dir);
    assert_int_equal(remove(path), 0);
    put("compare.lock", "", 0);
    assert_int_equal(run_result_read(dir, pool, &r), ERR_INPUT);
    assert_non_null(strstr(error_hint(), "engine compare"));
    snprintf(path, sizeof path, "%s/compare.lock", dir);
    assert_int_equal(remove(path), 0);
    put("run.lock", "", 0);
    snprintf(path, sizeof path, "%s/run.lock", dir);
    int lock = open(path, O_RDWR | O_CLOEXEC);
    assert_int_equal(flock(lock, LOCK_EX), 0);
    assert_int_equal(run_result_read(dir, pool, &r), ERR_INPUT);
    assert_non_null(strstr(error_message(), "still running"));
    assert_null(strstr(error_hint(), "engine run"));
    close(lock);
    assert_int_equal(remove(path), 0);
    assert_int_equal(run_result_read("/nowhere", pool, &r), ERR_INPUT);
    assert_int_equal(run_result_read("/", pool, &r), ERR_INPUT);
    assert_non_null(strstr(error_message(), "not the folder of a run"));
    assert_null(strstr(error_hint(), "engine run"));
    static const char two[] = "{\"mode\":\"ddp\",\"devices\":\"two\"}";
    put("summary.json", two, strlen(two));
    assert_int_equal(run_result_read(dir, pool, &r), ERR_DATA);
    assert_non_null(strstr(error_message(), "devices"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_run_is_read_back, set_up, tear_down),
        cmocka_unit_test_setup_teardown(files_may_hold_anything, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_missing_is_named, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
