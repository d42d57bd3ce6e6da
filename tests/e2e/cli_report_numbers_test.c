/* What summaries and reports claim, held against metrics.jsonl: step times, throughput, phases, losses, validation and
 * bytes are computed here anew from the journal, for a run that nothing disturbed, one that was resumed and one that
 * was started again after a rank was killed. */
#include "tests/harness/program.h"

#include "engine/base/file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 64, BATCH = 32, PHASES_TOLD = 5 };
static const char *const phase[PHASES_TOLD] = {"load", "forward", "backward", "comm", "update"};
static const char *const total_of[PHASES_TOLD] = {"load", "forward", "backward", "comm_exposed", "update"};

static struct program p;
static struct pool *pool;

/* ---- the journal ---------------------------------------------------------------------------- */

struct journal { /* the last line of each step holds; steps from 'first' on are of the last start */
    double ms[STEPS], samples[STEPS], loss[STEPS], phase[PHASES_TOLD][STEPS];
    double lr[STEPS], val_loss[STEPS], val_accuracy[STEPS]; /* validation: 0 is none */
    int steps, first, starts, lines, last_val;
};

static double number(const struct json_value *in, const char *key) {
    const struct json_value *v = in ? json_get(in, key) : NULL;
    if (!v || v->kind != JSON_NUMBER) fail_msg("there is no number '%s'", key);
    return v->number;
}

static void read_line(struct journal *j, const struct json_value *line) {
    const struct json_value *event = json_get(line, "event"), *val = json_get(line, "val");
    int step = (int)number(line, "step");
    if (event && !strcmp(event->text, "started")) j->first = step, j->starts++;
    if (val) {
        assert_in_range(step, 1, STEPS);
        j->last_val = step - 1;
        j->val_loss[step - 1] = number(val, "loss"), j->val_accuracy[step - 1] = number(val, "accuracy");
    }
    if (!json_get(line, "ms")) return;
    assert_in_range(step, 1, STEPS);
    j->lines++, j->steps = step--;
    j->ms[step] = number(line, "ms"), j->samples[step] = number(line, "samples");
    j->loss[step] = number(line, "loss"), j->lr[step] = number(line, "lr");
    for (int i = 0; i < PHASES_TOLD; i++) j->phase[i][step] = number(json_get(line, "phase_ms"), phase[i]);
}

static void read_journal(const char *dir, struct journal *j) {
    char path[700], *text, *line, *rest;
    size_t n;
    const struct json_value *v;
    memset(j, 0, sizeof *j);
    snprintf(path, sizeof path, "%s/metrics.jsonl", dir);
    assert_ok(file_read(path, 1 << 20, pool, &text, &n));
    for (line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        assert_ok(json_parse(line, strlen(line), (struct json_limits){4, 64, 4096}, pool, &v));
        read_line(j, v);
    }
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Of the last start's steps. */
static double quantile(const struct journal *j, double q) {
    double v[STEPS];
    int n = j->steps - j->first;
    memcpy(v, j->ms + j->first, (size_t)n * sizeof *v);
    qsort(v, (size_t)n, sizeof *v, ascending);
    int low = (int)floor(q * (n - 1)), high = low + 1 < n ? low + 1 : low;
    return v[low] + (q * (n - 1) - low) * (v[high] - v[low]);
}

static double sum(const struct journal *j, const double *of) {
    double s = 0;
    for (int i = j->first; i < j->steps; i++) s += of[i];
    return s;
}

/* ---- what is told --------------------------------------------------------------------------- */

static void near(double told, double is, double share, const char *what) {
    if (!(fabs(told - is) <= share * fabs(is) + 1e-9))
        fail_msg("%s: %.9g is told, %.9g by metrics.jsonl", what, told, is);
}

/* "5.87 ms", "2.6 MB", "42.20 %": in seconds, bytes, as a share. */
static double amount(const char *text) {
    static const struct {
        const char *unit;
        double factor;
    } units[] = {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3},    {"s", 1},          {"%", 1e-2},
                 {"B", 1},     {"KB", 1024}, {"MB", 1048576}, {"GB", 1073741824}};
    char *unit;
    double v = strtod(text, &unit);
    while (*unit == ' ') unit++;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (!strcmp(unit, units[i].unit)) return v * units[i].factor;
    return v;
}

static const struct json_value *report;

/* The rows of the report's table of that title, or that begins so; the first has the columns' names. */
static const struct json_value *table(const char *title) {
    for (int i = 0; i < report->count; i++)
        if (!strncmp(json_text(&report->children[i], "title"), title, strlen(title)))
            return json_get(&report->children[i], "rows");
    fail_msg("no table '%s'", title);
    return NULL;
}

static const char *cell(const struct json_value *t, int row, const char *column) {
    const struct json_value *columns = &t->children[0];
    for (int i = 0; i < columns->count; i++)
        if (!strncmp(columns->children[i].text, column, strlen(column))) return t->children[row + 1].children[i].text;
    fail_msg("no column '%s'", column);
    return "";
}

static void check_summary(const struct json_value *s, const struct journal *j) {
    double done = j->steps - j->first, seconds = sum(j, j->ms) * 1e-3;
    const struct json_value *time = json_get(s, "time_s"), *val = json_get(s, "val");
    near(number(s, "steps"), j->steps, 0, "steps");
    near(number(s, "first_step"), j->first, 0, "first_step");
    near(number(json_get(s, "step_ms"), "p50"), quantile(j, 0.5), 1e-3, "p50");
    near(number(json_get(s, "step_ms"), "p95"), quantile(j, 0.95), 1e-3, "p95");
    near(number(s, "samples_per_s"), done * BATCH / seconds, 1e-3, "samples_per_s");
    assert_true(number(time, "total") >= 0.999 * seconds);
    for (int i = 0; i < PHASES_TOLD; i++) /* each step's are rounded to 0.1 us */
        near(number(time, total_of[i]) + 1, sum(j, j->phase[i]) * 1e-3 + 1, 1e-5, total_of[i]);
    near(number(json_get(s, "train"), "loss"), j->loss[j->steps - 1], 1e-7, "loss");
    near(number(val, "loss"), j->val_loss[j->last_val], 1e-7, "val.loss");
    near(number(val, "accuracy"), j->val_accuracy[j->last_val], 1e-7, "val.accuracy");
}

/* Two ranks that all-reduce: each sends 2(N-1)/N of the gradients, which is all of them once, and a few bytes of sums;
 * the first weights and the optimizer's state are another matter, and evaluation one more. */
static void check_bytes(const struct json_value *s, const struct journal *j, double gradients) {
    const struct json_value *bytes = json_get(s, "bytes"), *start = json_get(bytes, "start");
    for (int rank = 0; rank < 2; rank++) {
        double sent = json_get(bytes, "sent")->children[rank].number / (j->steps - j->first);
        if (sent < gradients || sent > 1.01 * gradients)
            fail_msg("rank %d sent %.0f bytes a step of %.0f of gradients", rank, sent, gradients);
        assert_true(json_get(json_get(bytes, "other"), "sent")->children[rank].number < 4096);
    }
    assert_true(json_get(start, "sent")->children[0].number >= gradients);
    assert_true(json_get(start, "sent")->children[1].number < 4096);
    const char *told = cell(table("Bytes through each rank's port"), 0, "ddp");
    near(amount(told), gradients, 0.03, "bytes of a step in the report");
}

/* The row of the run's own table. */
static double of_run(const char *name) {
    const struct json_value *rows = table("The run");
    for (int i = 0; i < rows->count; i++)
        if (!strcmp(rows->children[i].children[0].text, name)) return amount(rows->children[i].children[1].text);
    fail_msg("the run has no '%s'", name);
    return 0;
}

/* A curve against steps, or seconds of steps: each point of the journal where there is one. */
static void check_curve(const char *title, const struct journal *j, const double *y, bool seconds, int least) {
    int n = 0, at = 1;
    double ms = 0;
    for (int i = 0; i < j->steps; i++) n += y[i] != 0;
    if (n < least) return;
    const struct json_value *rows = table(title);
    assert_int_equal(rows->count, n + 1);
    for (int i = 0; i < j->steps; i++) {
        ms += j->ms[i];
        if (y[i] == 0) continue;
        near(amount(rows->children[at].children[0].text), seconds ? ms * 1e-3 : i + 1, seconds ? 0.01 : 0, title);
        near(amount(rows->children[at++].children[1].text), y[i], 2e-3, title);
    }
}

static void check_report(const struct journal *j) {
    const struct json_value *time = table("Step time by");
    double done = j->steps - j->first, all = 0;
    for (int i = 0; i < PHASES_TOLD; i++) all += sum(j, j->phase[i]);
    near(of_run("step time (median)"), quantile(j, 0.5) * 1e-3, 0.01, "step");
    near(of_run("step time (95 % are below)"), quantile(j, 0.95) * 1e-3, 0.01, "p95");
    near(of_run("samples/s (mean)"), done * BATCH / (sum(j, j->ms) * 1e-3), 0.01, "rate");
    near(of_run("loss"), j->loss[j->steps - 1], 1e-3, "loss");
    near(of_run("val accuracy"), j->val_accuracy[j->last_val], 1e-3, "val accuracy");
    near(of_run("steps"), j->steps, 0, "steps");
    near(amount(cell(time, 0, "backward")), quantile(j, 0.5) * 1e-3 * sum(j, j->phase[2]) / all, 0.02, "backward");
    check_curve("Training loss against steps", j, j->loss, false, 1); /* those of before the resume, too */
    check_curve("Validation loss against steps", j, j->val_loss, false, 3);
    check_curve("Validation accuracy against steps", j, j->val_accuracy, false, 3);
    check_curve("Validation accuracy against seconds", j, j->val_accuracy, true, 3);
    check_curve("Learning rate against steps", j, j->lr, false, 3);
}

/* ---- the runs ------------------------------------------------------------------------------- */

/* A network of 784 x 64 + 64 x 10 weights and 74 biases: its gradients in bytes. */
static const double gradients = 4 * (784 * 64 + 64 + 64 * 10 + 10);

static void train(const char *dir, const char *steps, const char *more) {
    char log[700], until[40];
    snprintf(log, sizeof log, "log.dir=%s", dir);
    snprintf(until, sizeof until, "train=%s", steps);
    program_run(&p, 120, "run", "--json", "--mode", "ddp", "--devices", "cpu:2", "--set",
                "model={zoo: mlp, hidden: [64]}", "--set", "data={set: digits, train: 320, val: 60}", "--set",
                "batch={size: 32, shards: 2}", "--set", "eval=5st", "--set", "schedule=cosine", "--set", "threads=1",
                "--set", "checkpoint={every: 8st, resume: auto}", "--set", "run.restarts=1", "--set", log, "--set",
                until, "--set", more, NULL);
    if (p.code != 0) fail_msg("exit code %d:\n%s", p.code, p.err);
}

/* A row of a table in Markdown, "| a | b |": its cells as a list. */
static void put_row(struct json *j, char *line) {
    json_open(j, NULL, '[');
    for (char *at = line + 2, *end; (end = strstr(at, " |")); at = end + (end[2] ? 3 : 2)) {
        char *to = at, *from = at;
        for (; from < end; from++)
            if (*from != '\\') *to++ = *from;
        char kept = *to;
        *to = '\0';
        json_string(j, NULL, at);
        *to = kept;
    }
    json_close(j, ']');
}

/* The tables of a report in Markdown, each with its title and rows. */
static const struct json_value *tables_of(char *text) {
    const struct json_value *out;
    struct json j = {0};
    int rows = -1; /* of the table that is read; -1: there is none */
    json_open(&j, NULL, '[');
    for (char *rest = NULL, *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        bool title = !strncmp(line, "**", 2), row = !strncmp(line, "| ", 2);
        if (rows >= 0 && !row && strncmp(line, "|--", 3) != 0) {
            json_close(&j, ']');
            json_close(&j, '}');
            rows = -1;
        }
        if (title) {
            json_open(&j, NULL, '{');
            line[strlen(line) - 2] = '\0';
            json_string(&j, "title", line + 2);
            json_open(&j, "rows", '[');
            rows = 0;
        }
        if (row && rows >= 0) put_row(&j, line), rows++;
    }
    if (rows >= 0) json_close(&j, ']'), json_close(&j, '}');
    json_close(&j, ']');
    assert_ok(json_done(&j));
    assert_ok(json_parse(j.text, j.length, (struct json_limits){12, 1 << 16, 1 << 14}, pool, &out));
    json_fini(&j);
    return out;
}

/* The run just ended, by its journal; the report is read again. */
static void check(const char *dir, struct journal *j) {
    char file[700], *text;
    size_t n;
    const struct json_value *s = program_json(&p, pool);
    read_journal(dir, j);
    check_summary(s, j);
    snprintf(file, sizeof file, "%s/told.md", dir);
    program_run(&p, 30, "report", dir, "-o", file, NULL);
    assert_int_equal(p.code, 0);
    assert_ok(file_read(file, 1 << 20, pool, &text, &n));
    report = tables_of(text);
    check_report(j);
    check_bytes(s, j, gradients);
}

static void a_run_that_nothing_disturbed(void **state) {
    (void)state;
    struct journal j;
    char dir[600];
    snprintf(dir, sizeof dir, "%s", scratch_path("fresh"));
    train(dir, "30st", "seed=1");
    check(dir, &j);
    assert_true(j.first == 0 && j.steps == 30 && j.lines == 30);
    snprintf(dir, sizeof dir, "%s", scratch_path("short"));
    train(dir, "2st", "seed=1"); /* two steps have a median below their 95th percentile, too */
    check(dir, &j);
    assert_int_equal(j.steps, 2);
}

static void a_run_that_was_resumed(void **state) {
    (void)state;
    struct journal j;
    char dir[600];
    snprintf(dir, sizeof dir, "%s", scratch_path("resumed"));
    train(dir, "20st", "seed=1");
    train(dir, "33st", "seed=1");
    check(dir, &j);
    assert_true(j.first == 20 && j.steps == 33 && j.starts == 2);
}

static void a_run_that_was_started_again(void **state) {
    (void)state;
    struct journal j;
    char dir[600];
    snprintf(dir, sizeof dir, "%s", scratch_path("again"));
    train(dir, "30st", "inject.fault={kind: kill, device: 1, step: 13}");
    check(dir, &j);
    assert_true(j.first == 8 && j.steps == 30 && j.starts == 2);
    assert_true(j.lines > 30); /* steps from 9 on were done twice, and count once */
}

static int set_up(void **state) {
    (void)state;
    return pool_create(&pool) == ERR_NONE ? 0 : -1;
}

static int tear_down(void **state) {
    (void)state;
    pool_free(pool);
    return program_orphans();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_run_that_nothing_disturbed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_run_that_was_resumed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_run_that_was_started_again, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("report numbers", tests, NULL, NULL);
}
