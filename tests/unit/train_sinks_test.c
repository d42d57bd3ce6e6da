/* Where a run's numbers go: metrics.jsonl, metrics.csv and TensorBoard's events say the same, in
 * their formats' strict forms, also over a resume, a kill and a full disk. */
#include "tests/harness/events.h"
#include "tests/harness/harness.h"
#include "tests/harness/lone_mode.h"

#include "engine/base/file.h"
#include "engine/base/json.h"
#include "engine/settings/run_config.h"
#include "engine/tell/tell.h"
#include "engine/train/internal.h"

#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { COLUMNS = 28, VAL = 18, ROWS = 400 };
static struct run_settings settings;
static struct pool *pool;
static struct job job;
static char dir[512];

static void choose(const char *sinks) {
    static const char *const none[] = {NULL};
    char *report, set[100];
    const char *sets[] = {"mode=single", "devices=cpu:1", set};
    snprintf(set, sizeof set, "log.sinks=%s", sinks);
    run_settings_free(&settings);
    const struct run_ask ask = {.sets = sets, .nsets = 3, .modes = lone_modes, .algorithms = none};
    if (run_settings_load(&ask, &settings, &report) != ERR_NONE) fail_msg("%s", report);
    job = (struct job){.settings = &settings, .run_dir = dir};
}

static int set_up(void **state) {
    static int serial;
    char name[32];
    (void)state;
    snprintf(name, sizeof name, "run-%d", serial++);
    snprintf(dir, sizeof dir, "%s", scratch_path(name));
    if (file_make_folders(dir) != ERR_NONE || pool_create(&pool) != ERR_NONE) return -1;
    choose("[jsonl, csv, tensorboard]");
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    run_settings_free(&settings);
    pool_free(pool);
    return 0;
}

/* ---- what is told ---- */
static struct step_record record_of(int64_t step) {
    struct step_record r = {.step = step,
                            .epoch = step / 7,
                            .loss = 2.5f / (float)step,
                            .accuracy = step == 6 ? NAN : (float)step / 512,
                            .lr = 0.05 / (double)step,
                            .norm = step % 2 ? 1.25 : 0,
                            .noise = step % 2 ? 0.375 : (double)NAN,
                            .signal = step % 2 ? 0.75 : (double)NAN,
                            .ms = 1.5 + (double)(step % 5),
                            .samples = 64,
                            .skipped = step == 3,
                            .loss_scale = step < 5 ? 1024 : 0};
    for (int i = 0; i < PHASES; i++) r.phase_ms[i] = (double)(step + i) / 16;
    return r;
}

static struct val_result val_of(int64_t step) {
    struct val_result v;
    val_result_clear(&v);
    v.loss = 1.0 / (double)(step + 1), v.accuracy = 0.5, v.r2 = -2.5, v.samples = 100;
    if (step % 20) v.top5 = 0.75;
    return v;
}

static struct metrics *open_at(int64_t step) {
    struct metrics *m;
    assert_ok(metrics_open(&job, step, 100, &m));
    if (step > 0) metrics_event(m, step, "resumed", "runs/\"x\"");
    metrics_start(m, &(struct sink_event){.step = step, .run_id = "0123456789abcdef", .steps = 100, .per_epoch = 7});
    return m;
}

static void tell_steps(struct metrics *m, int64_t from, int64_t to) {
    for (int64_t step = from; step <= to; step++) {
        struct step_record r = record_of(step);
        struct val_result v = val_of(step);
        metrics_step(m, &r);
        if (step % 10 == 0) metrics_val(m, step, &v);
    }
}

/* ---- what is read back ---- */
static char *read_text(const char *name, size_t *n) {
    char *text;
    assert_ok(file_read(pool_printf(pool, "%s/%s", dir, name), 1 << 24, pool, &text, n));
    return text;
}

static void write_text(const char *name, const char *how, const char *text) {
    FILE *f = fopen(pool_printf(pool, "%s/%s", dir, name), how);
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

static struct table {
    int rows; /* without the header */
    char *cell[ROWS][COLUMNS];
} csv;

/* Strictly: CRLF behind every row, nothing quoted, as many fields as the header has. */
static void read_csv(void) {
    size_t n;
    char *text = read_text("metrics.csv", &n);
    assert_int_equal(strlen(text), n);
    assert_null(strchr(text, '"'));
    csv.rows = -1;
    while (*text) {
        char *end = strstr(text, "\r\n");
        assert_non_null(end);
        *end = '\0';
        assert_null(strpbrk(text, "\r\n"));
        assert_true(csv.rows + 1 < ROWS);
        char **cell = csv.cell[csv.rows < 0 ? ROWS - 1 : csv.rows];
        for (int i = 0; i < COLUMNS; i++) {
            cell[i] = text;
            char *comma = strchr(text, ',');
            assert_true((comma != NULL) == (i < COLUMNS - 1));
            if (comma) *comma = '\0', text = comma + 1;
        }
        text = end + 2;
        csv.rows++;
    }
    assert_string_equal(csv.cell[ROWS - 1][0], "step");
    assert_string_equal(csv.cell[ROWS - 1][COLUMNS - 1], "val_samples");
}

static void check_cell(const char *cell, const char *form, double v) {
    char expected[64] = "";
    if (isfinite(v)) snprintf(expected, sizeof expected, form, v);
    assert_string_equal(cell, expected);
}

static void check_row(int row, int64_t step, bool measured) {
    struct step_record r = record_of(step);
    struct val_result v = val_of(step);
    char **cell = csv.cell[row];
    assert_int_equal(atoll(cell[0]), step);
    assert_int_equal(atoll(cell[1]), r.epoch);
    check_cell(cell[2], "%.9g", (double)r.loss);
    check_cell(cell[3], "%.6g", (double)r.accuracy);
    check_cell(cell[4], "%.9g", r.lr);
    check_cell(cell[5], "%.6g", r.norm);
    check_cell(cell[6], "%.0f", r.samples);
    check_cell(cell[7], "%.4f", r.ms);
    for (int i = 0; i < PHASES; i++) check_cell(cell[8 + i], "%.4f", r.phase_ms[i]);
    check_cell(cell[13], "%g", r.loss_scale > 0 ? r.loss_scale : (double)NAN);
    assert_string_equal(cell[14], r.skipped ? "1" : "0");
    assert_int_equal(!*cell[15], !*cell[16]); /* what the process takes, a few times a second and first of all */
    assert_true(step > 1 || atof(cell[16]) > 100e3);
    check_cell(cell[VAL], "%.9g", measured ? v.loss : (double)NAN);
    check_cell(cell[VAL + 1], "%.9g", measured ? v.accuracy : (double)NAN);
    check_cell(cell[VAL + 2], "%.9g", measured ? v.top5 : (double)NAN);
    for (int i = 3; i < VAL_METRICS; i++) assert_string_equal(cell[VAL + i], i == VAL_AT_r2 && measured ? "-2.5" : "");
    assert_string_equal(cell[COLUMNS - 1], measured ? "100" : "");
}

static void check_csv(int64_t last) {
    read_csv();
    assert_int_equal(csv.rows, last);
    for (int i = 0; i < last; i++) check_row(i, i + 1, (i + 1) % 10 == 0);
}

/* Every line is JSON; how many tell of steps. */
static int read_jsonl(void) {
    static const struct json_limits limits = {8, 64, 4096};
    size_t n;
    int steps = 0;
    char *line = read_text("metrics.jsonl", &n);
    for (char *end; (end = strchr(line, '\n')); line = end + 1) {
        const struct json_value *root;
        assert_ok(json_parse(line, (size_t)(end - line), limits, pool, &root));
        steps += json_get(root, "ms") != NULL;
    }
    assert_string_equal(line, "");
    return steps;
}

static int by_name(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The files in tb/, in the order in which TensorBoard reads them. */
static int event_files(char *names[8]) {
    int n = 0;
    DIR *d = opendir(pool_printf(pool, "%s/tb", dir));
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));)
        if (e->d_name[0] != '.' && n < 8) names[n++] = pool_printf(pool, "tb/%s", e->d_name);
    closedir(d);
    qsort(names, (size_t)n, sizeof *names, by_name);
    for (int i = 0; i < n; i++) assert_ptr_equal(strstr(names[i], "events.out.tfevents."), names[i] + 3);
    return n;
}

/* ---- events as TensorBoard takes them ---- */
static struct {
    double step[ROWS], val[ROWS]; /* loss, by step; NaN: none */
    int64_t start, last;
    int texts;
} seen;

static void see_event(const struct event *e) {
    const struct event_value *loss = event_find(e, "loss"), *val = event_find(e, "val/loss");
    if (e->start) {
        seen.start = e->step;
        for (int64_t i = e->step; i < ROWS; i++) seen.step[i] = seen.val[i] = (double)NAN;
        return;
    }
    assert_true(e->step >= seen.last && e->step < ROWS);
    seen.last = e->step;
    if (loss) seen.step[e->step] = (double)loss->number;
    if (val) seen.val[e->step] = (double)val->number;
    seen.texts += event_find(e, "config") != NULL;
}

static void see_file(const char *name) {
    struct event e;
    size_t n, at = 0;
    const uint8_t *data = (const uint8_t *)read_text(name, &n);
    assert_null(event_read(data, n, &at, &e));
    assert_string_equal(e.version, "brain.Event:2");
    assert_null(event_read(data, n, &at, &e));
    assert_true(e.start);
    seen.last = 0;
    see_event(&e);
    while (at < n) {
        const char *wrong = event_read(data, n, &at, &e);
        if (wrong) fail_msg("%s at byte %zu: %s", name, at, wrong);
        assert_true(!e.start && !*e.version);
        see_event(&e);
    }
}

static int see_all(void) {
    char *names[8];
    int n = event_files(names);
    memset(&seen, 0, sizeof seen);
    for (int i = 0; i < ROWS; i++) seen.step[i] = seen.val[i] = (double)NAN;
    for (int i = 0; i < n; i++) see_file(names[i]);
    return n;
}

static void check_events(int64_t last) {
    for (int64_t step = 1; step < ROWS; step++) {
        bool there = step <= last, measured = there && step % 10 == 0;
        assert_int_equal(isnan(seen.step[step]), !there);
        assert_int_equal(isnan(seen.val[step]), !measured);
        if (there) assert_true(seen.step[step] == (double)record_of(step).loss);
        if (measured) assert_true(seen.val[step] == (double)(float)val_of(step).loss);
    }
}

/* ---- tests ---- */
static void all_say_the_same(void **state) {
    (void)state;
    struct metrics *m = open_at(0);
    tell_steps(m, 1, 45);
    metrics_event(m, 45, "finished", NULL);
    metrics_close(m);
    check_csv(45);
    assert_int_equal(read_jsonl(), 45);
    assert_int_equal(see_all(), 1);
    assert_int_equal(seen.start, 1);
    assert_int_equal(seen.texts, 1);
    check_events(45);
}

/* Every number of a step and of a validation, by its tag. */
static void tags(void **state) {
    (void)state;
    struct metrics *m = open_at(0);
    tell_steps(m, 1, 10);
    metrics_close(m);
    char *names[8];
    struct event e;
    size_t n, at = 0;
    assert_int_equal(event_files(names), 1);
    const uint8_t *data = (const uint8_t *)read_text(names[0], &n);
    for (int i = 0; i < 4; i++) assert_null(event_read(data, n, &at, &e));
    struct step_record r = record_of(1);
    static const char *const phases[] = {"phase_ms/load", "phase_ms/forward", "phase_ms/backward", "phase_ms/comm",
                                         "phase_ms/update"};
    const struct {
        const char *tag;
        double v;
    } expected[] = {{"loss", (double)r.loss},  {"accuracy", (double)r.accuracy},   {"lr", r.lr},
                    {"grad_norm", r.norm},     {"samples_per_s", 64 / r.ms * 1e3}, {"step_ms", r.ms},
                    {"gradient_noise", 0.375}, {"gradient_signal", 0.75},          {"loss_scale", 1024}};
    assert_int_equal(e.step, 1);
    assert_int_equal(e.count, 11 + PHASES + (event_find(&e, "system/watts") != NULL));
    assert_true(event_find(&e, "system/cores") && event_find(&e, "system/rss_bytes")->number > 100e3f);
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
        assert_true(event_find(&e, expected[i].tag)->number == (float)expected[i].v);
    for (int i = 0; i < PHASES; i++) assert_true(event_find(&e, phases[i])->number == (float)r.phase_ms[i]);
    while (at < n) assert_null(event_read(data, n, &at, &e));
    assert_int_equal(e.step, 10);
    assert_int_equal(e.count, 4); /* of a perplexity that is NaN nothing is said */
    assert_true(event_find(&e, "val/top5")->number == 0.75f);
    assert_true(event_find(&e, "val/accuracy")->number == 0.5f);
    assert_true(event_find(&e, "val/r2")->number == -2.5f);
}

static void settings_as_text(void **state) {
    (void)state;
    metrics_close(open_at(0));
    char *names[8], *text, *expected = tree_write(settings.tree, false, pool);
    struct event e;
    size_t n, at = 0;
    assert_int_equal(event_files(names), 1);
    text = read_text(names[0], &n);
    for (int i = 0; i < 3; i++) assert_null(event_read((const uint8_t *)text, n, &at, &e));
    const struct event_value *v = event_find(&e, "config");
    assert_non_null(v);
    const char *p = v->text, *end = v->text + v->ntext;
    while (p < end) { /* each line behind four spaces */
        const char *stop = memchr(p, '\n', (size_t)(end - p));
        assert_non_null(stop);
        assert_memory_equal(p, "    ", 4);
        size_t length = (size_t)(stop + 1 - (p + 4));
        assert_memory_equal(p + 4, expected, length);
        expected += length;
        p = stop + 1;
    }
    assert_string_equal(expected, "");
}

/* Validation comes before the next step, or after the row had to be written, or again. */
static void a_row_waits_for_validation(void **state) {
    (void)state;
    struct metrics *m = open_at(0);
    struct val_result wordy = {.samples = 100000};
    for (int i = 0; i < VAL_METRICS; i++) wordy.of[i] = -12345.6789 / (i + 1);
    tell_steps(m, 1, 9);
    metrics_event(m, 9, "anything", NULL);
    read_csv();
    assert_int_equal(csv.rows, 8); /* the last one may still change */
    metrics_flush(m);
    read_csv();
    assert_int_equal(csv.rows, 9);
    struct step_record r = record_of(10);
    struct val_result v = val_of(10);
    metrics_step(m, &r);
    metrics_flush(m);
    metrics_val(m, 10, &wordy);
    metrics_flush(m);
    metrics_flush(m);
    read_csv();
    assert_int_equal(csv.rows, 10);
    assert_string_equal(csv.cell[9][COLUMNS - 1], "100000");
    metrics_val(m, 10, &v);
    metrics_flush(m);
    check_csv(10);
    metrics_val(m, 4, &v); /* of a row that is behind us */
    tell_steps(m, 11, 25);
    metrics_close(m);
    check_csv(25);
}

static void resumes(void **state) {
    (void)state;
    struct metrics *m = open_at(0);
    tell_steps(m, 1, 45);
    metrics_close(m);
    m = open_at(30); /* 31 to 45 come again */
    metrics_flush(m);
    check_csv(30);
    tell_steps(m, 31, 33);
    metrics_close(m);
    m = open_at(33);
    metrics_close(m);
    m = open_at(33);
    tell_steps(m, 34, 60);
    metrics_close(m);
    check_csv(60);
    assert_int_equal(read_jsonl(), 45 + 3 + 27);
    assert_int_equal(see_all(), 4); /* within one second, by one process: names still in order */
    assert_int_equal(seen.start, 34);
    check_events(60);
    metrics_close(open_at(0)); /* another run in this place */
    check_csv(0);
    see_all();
    check_events(0);
}

/* A run that had stopped before validation gets it by a resume that takes no step. */
static void validation_of_a_row_that_is_there(void **state) {
    (void)state;
    struct metrics *m = open_at(0);
    struct step_record r = record_of(10);
    struct val_result v = val_of(10);
    tell_steps(m, 1, 9);
    metrics_step(m, &r);
    metrics_close(m);
    m = open_at(10);
    metrics_val(m, 10, &v);
    metrics_close(m);
    check_csv(10);
    m = open_at(10);
    metrics_val(m, 10, &v);
    tell_steps(m, 11, 12);
    metrics_close(m);
    check_csv(12);
}

/* Whatever piece of a line a kill has left behind, a resume goes on with whole ones. */
static void torn_lines(void **state) {
    (void)state;
    struct metrics *m = open_at(0);
    tell_steps(m, 1, 3);
    metrics_close(m);
    size_t whole, n;
    char *rows = read_text("metrics.csv", &whole), *lines = read_text("metrics.jsonl", &n);
    char *last_row = memrchr(rows, '\n', whole - 1), *last_line = memrchr(lines, '\n', n - 1);
    for (size_t keep = 0; keep < whole; keep++) {
        rows = pool_strndup(pool, rows, whole);
        char piece[4096], line[4096];
        snprintf(piece, sizeof piece, "%.*s", (int)keep, rows);
        size_t most = n - (size_t)(last_line + 1 - lines), cut = keep < most ? keep : most - 1;
        snprintf(line, sizeof line, "%.*s", (int)(last_line + 1 - lines + (long)cut), lines);
        write_text("metrics.csv", "w", piece);
        write_text("metrics.jsonl", "w", line);
        choose("[jsonl, csv]");
        metrics_close(open_at(3));
        read_csv();
        int rows_left = 0;
        for (size_t i = 0; i < keep; i++) rows_left += rows[i] == '\n';
        assert_int_equal(csv.rows, rows_left > 0 ? rows_left - 1 : 0);
        for (int i = 0; i < csv.rows; i++) check_row(i, i + 1, false);
        assert_int_equal(read_jsonl(), 2);
    }
    assert_non_null(last_row);
}

static void rows_of_others(void **state) {
    (void)state;
    struct metrics *m = NULL;
    choose("[jsonl, csv]");
    write_text("metrics.csv", "w", "step,loss\r\n1,2\r\n");
    assert_fails(ERR_DATA, metrics_open(&job, 5, 100, &m));
    assert_non_null(strstr(error_message(), "other columns"));
    metrics_close(open_at(0));
    check_csv(0);
    m = open_at(0);
    tell_steps(m, 1, 3);
    metrics_close(m);
    write_text("metrics.csv", "a", "3,0,1,2\r\n5,nonsense\r\n");
    m = open_at(5);
    tell_steps(m, 4, 6);
    metrics_close(m);
    check_csv(6);
}

static void not_finite(void **state) {
    (void)state;
    struct metrics *m = open_at(0);
    struct step_record r = record_of(1);
    r.loss = NAN;
    r.norm = (double)INFINITY;
    metrics_step(m, &r);
    metrics_close(m);
    size_t n;
    assert_int_equal(read_jsonl(), 1);
    assert_non_null(strstr(read_text("metrics.jsonl", &n), "\"loss\":null,"));
    read_csv();
    assert_string_equal(csv.cell[0][2], "");
    assert_string_equal(csv.cell[0][5], "");
    char *names[8];
    struct event e;
    size_t at = 0;
    assert_int_equal(event_files(names), 1);
    const uint8_t *data = (const uint8_t *)read_text(names[0], &n);
    while (at < n) assert_null(event_read(data, n, &at, &e));
    assert_true(isnan(event_find(&e, "loss")->number));
}

/* Cut anywhere, changed anywhere: the reader takes the whole events before that, and no other. */
static void damage_is_noticed(void **state) {
    (void)state;
    enum { EVENTS = 64 };
    struct metrics *m = open_at(0);
    tell_steps(m, 1, 10);
    metrics_close(m);
    char *names[8];
    struct event e;
    size_t n, at = 0, end[EVENTS];
    int events = 0;
    assert_int_equal(event_files(names), 1);
    uint8_t *data = (uint8_t *)read_text(names[0], &n);
    for (; at < n; end[events++] = at) assert_null(event_read(data, n, &at, &e));
    assert_int_equal(events, 2 + 1 + 10 + 1);
    for (size_t cut = 0, before = 0; cut < n; cut++) {
        while (end[before] <= cut) before++;
        uint8_t *copy = malloc(cut ? cut : 1); /* of this size, so that more is not read unseen */
        assert_non_null(copy);
        memcpy(copy, data, cut);
        at = before ? end[before - 1] : 0;
        bool whole = at == cut;
        assert_true((event_read(copy, cut, &at, &e) == NULL) == whole);
        assert_int_equal(at, before ? end[before - 1] : 0);
        free(copy);
    }
    for (size_t i = 0, before = 0; i < n; i++) {
        while (end[before] <= i) before++;
        for (int bit = 0; bit < 8; bit++) {
            data[i] ^= (uint8_t)(1 << bit);
            at = before ? end[before - 1] : 0;
            assert_non_null(event_read(data, n, &at, &e));
            data[i] ^= (uint8_t)(1 << bit);
        }
    }
}

/* A disk that is full, from any size of the files on: the run does not notice. */
static void a_full_disk_costs_sinks_alone(void **state) {
    (void)state;
    struct rlimit old, small;
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old);
    int saved = dup(2), quiet = open("/dev/null", O_WRONLY | O_CLOEXEC);
    dup2(quiet, 2);
    for (rlim_t most = 6000; most < 200000; most += 9000) {
        double p50, p95;
        assert_ok(file_remove_tree(dir));
        assert_ok(file_make_folders(dir));
        struct metrics *m = open_at(0);
        small = (struct rlimit){most, old.rlim_max};
        setrlimit(RLIMIT_FSIZE, &small);
        for (int64_t step = 1; step < ROWS; step++) {
            struct step_record r = record_of(step);
            struct val_result v = val_of(step);
            metrics_step(m, &r);
            if (step % 10 == 0) metrics_val(m, step, &v);
            if (step % 50 == 0) metrics_flush(m);
        }
        metrics_percentiles(m, &p50, &p95);
        setrlimit(RLIMIT_FSIZE, &old);
        metrics_close(m);
        assert_true(p50 == 3.5 && p95 == 5.5);
        m = open_at(20); /* the disk has room again: what could be written is gone on with */
        tell_steps(m, 21, 25);
        metrics_close(m);
        read_jsonl();
        read_csv();
        assert_int_equal(atoll(csv.cell[csv.rows - 1][0]), 25);
    }
    dup2(saved, 2);
    close(saved), close(quiet);
}

static void what_cannot_be_made(void **state) {
    (void)state;
    struct metrics *m = NULL;
    write_text("tb", "w", "in the way");
    assert_int_not_equal(metrics_open(&job, 0, 100, &m), ERR_NONE);
    assert_null(m);
    assert_ok(file_remove_tree(dir));
    assert_fails(ERR_CREATE, metrics_open(&job, 0, 100, &m));
    assert_non_null(strstr(error_message(), "metrics.jsonl"));
}

static void a_step_allocates_nothing(void **state) {
    (void)state;
    struct metrics *m = open_at(0);
    tell_steps(m, 1, 2);
    count_allocations_begin();
    tell_steps(m, 3, 9);
    assert_int_equal(count_allocations_end(), 0);
    metrics_close(m);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {TEST(all_say_the_same),
                                       TEST(tags),
                                       TEST(settings_as_text),
                                       TEST(a_row_waits_for_validation),
                                       TEST(resumes),
                                       TEST(validation_of_a_row_that_is_there),
                                       TEST(torn_lines),
                                       TEST(rows_of_others),
                                       TEST(not_finite),
                                       TEST(damage_is_noticed),
                                       TEST(a_full_disk_costs_sinks_alone),
                                       TEST(what_cannot_be_made),
                                       TEST(a_step_allocates_nothing)};
    return cmocka_run_group_tests_name("sinks", tests, NULL, NULL);
}
