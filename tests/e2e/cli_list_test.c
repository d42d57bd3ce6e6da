/* 'engine runs' on real runs: its numbers are those that the runs' own files have, as this test reads them; runs that
 * go on are not disturbed; and it fits the terminal. */
#include "tests/harness/program.h"

#include "engine/base/file.h"

#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static struct program p, other;
static struct pool *pool;
static char top[600];
static const struct json_limits limits = {16, 1 << 16, 1 << 16};

static const char *at(const char *form, const char *name) {
    static char path[8][800];
    static int turn;
    char *out = path[turn++ % 8];
    snprintf(out, sizeof *path, form, top, name);
    return out;
}

static void train(const char *name, const char *mode, const char *devices, const char *length) {
    char dir[700];
    snprintf(dir, sizeof dir, "log.dir=%s/%s", top, name);
    program_run(&p, 60, "run", "--quiet", "--set", dir, "--mode", mode, "--devices", devices, "--set", length, "--set",
                "data={set: digits, train: 1000, val: 200}", "--set", "eval=4st", NULL);
    assert_int_equal(p.code, 0);
}

/* Two runs, an experiment of two cells, a run that is cut, and what is none. */
static int set_up(void **state) {
    (void)state;
    snprintf(top, sizeof top, "%s", scratch_path("all"));
    if (pool_create(&pool) != ERR_NONE) return -1;
    train("one", "single", "cpu:1", "train=10st");
    train("deep/er/two", "ddp", "cpu:2", "train=12st");
    train("cut", "single", "cpu:1", "train=4st");
    assert_int_equal(truncate(at("%s/%s/summary.json", "cut"), 100), 0);
    save_text(scratch_path("x.yaml"),
              "name: x\nwarmup: 1st\nbase: {train: 4st, data: {set: digits, train: 200, val: 50}}\n"
              "matrix: {optimizer.lr: [0.1, 0.2]}\n");
    program_run(&p, 120, "compare", scratch_path("x.yaml"), "--quick", "--quiet", "--dir", at("%s/%s", "x"), NULL);
    assert_int_equal(p.code, 0);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    pool_free(pool);
    return 0;
}

static const struct json_value *read_json(const char *path) {
    const struct json_value *root;
    char *text;
    size_t n;
    assert_ok(file_read(path, 1 << 20, pool, &text, &n));
    assert_ok(json_parse(text, n, limits, pool, &root));
    return root;
}

static double number(const struct json_value *v, const char *a, const char *b) {
    v = json_get(v, a);
    if (v && b) v = json_get(v, b);
    if (!v) fail_msg("no '%s.%s'", a, b ? b : "");
    return v->kind == JSON_NUMBER ? v->number : NAN;
}

static const struct json_value *named(const struct json_value *list, const char *name) {
    for (int i = 0; list && i < list->count; i++)
        if (!strcmp(json_get_text(&list->children[i], "name"), name)) return &list->children[i];
    fail_msg("no '%s' in the list", name);
    return NULL;
}

/* The largest accuracy of metrics.jsonl, by a reader of its own. */
static void best_of(const char *path, double *best, long *step) {
    char line[4096];
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    *best = -1;
    while (fgets(line, sizeof line, f)) {
        const char *val = strstr(line, "\"val\":{"), *accuracy = val ? strstr(val, "\"accuracy\":") : NULL;
        if (!accuracy || atof(accuracy + 11) <= *best) continue;
        *best = atof(accuracy + 11);
        *step = atol(line + strlen("{\"step\":"));
    }
    fclose(f);
}

static void numbers_are_those_of_the_files(void **state) {
    (void)state;
    static const char *const names[] = {"one", "deep/er/two"};
    program_run(&p, 30, "runs", top, "--json", NULL);
    assert_int_equal(p.code, 0);
    const struct json_value *root = program_json(&p, pool), *runs = json_get(root, "runs");
    const struct json_value *trials = json_get(root, "experiments");
    assert_int_equal(runs->count, 3);
    assert_int_equal(trials->count, 1);
    for (int i = 0; i < 2; i++) {
        const struct json_value *r = named(runs, names[i]), *s = read_json(at("%s/%s/summary.json", names[i]));
        double best;
        long step = 0;
        best_of(at("%s/%s/metrics.jsonl", names[i]), &best, &step);
        assert_string_equal(json_get_text(r, "state"), "finished");
        assert_string_equal(json_get_text(r, "mode"), json_get_text(s, "mode"));
        assert_string_equal(json_get_text(r, "run_id"), json_get_text(s, "run_id"));
        assert_string_equal(json_get_text(r, "weights_sha256"), json_get_text(s, "weights_sha256"));
        assert_true(number(r, "devices", NULL) == number(s, "devices", NULL));
        assert_true(number(r, "steps", NULL) == (i ? 12 : 10));
        assert_true(number(r, "planned_steps", NULL) == (i ? 12 : 10));
        assert_true(number(r, "loss", NULL) == number(s, "train", "loss"));
        assert_true(number(r, "val_loss", NULL) == number(s, "val", "loss"));
        assert_true(number(r, "val_accuracy", NULL) == number(s, "val", "accuracy"));
        assert_true(number(r, "seconds", NULL) == number(s, "time_s", "total"));
        assert_true(number(r, "samples_per_s", NULL) == number(s, "samples_per_s", NULL));
        assert_true(number(r, "best", NULL) == best && number(r, "best_step", NULL) == (double)step);
        assert_string_equal(json_get_text(r, "when"), json_get_text(read_json(at("%s/%s/env.json", names[i])), "time"));
        /* and the table's row has them as a person reads them */
        char want[200];
        program_run(&other, 30, "runs", top, NULL);
        const char *row = strstr(other.out, names[i]);
        assert_non_null(row);
        snprintf(want, sizeof want, "%.4f  %8.4f  %.2f %%  %.2f %%", number(s, "train", "loss"),
                 number(s, "val", "loss"), 100 * number(s, "val", "accuracy"), 100 * best);
        const char *found = strstr(row, want);
        if (!found || memchr(row, '\n', (size_t)(found - row))) fail_msg("no '%s' in: %s", want, other.out);
    }
    assert_string_equal(json_get_text(named(runs, "cut"), "state"), "unreadable");
    assert_non_null(strstr(json_get_text(named(runs, "cut"), "reason"), "summary.json"));
    const struct json_value *x = named(trials, "x"), *results = read_json(at("%s/%s/results.json", "x"));
    assert_string_equal(json_get_text(x, "verdict"), json_get_text(results, "verdict"));
    assert_true(number(x, "runs_done", NULL) == 2 && number(x, "runs_wanted", NULL) == 2);
}

static int count(const char *text, const char *part) {
    int n = 0;
    for (; (text = strstr(text, part)); text += strlen(part)) n++;
    return n;
}

static void is_before(const char *first, const char *second) {
    const char *a = strstr(p.out, first), *b = strstr(p.out, second);
    if (!a || !b || a > b) fail_msg("'%s' is not before '%s': %s", first, second, p.out);
}

static void order_and_choice(void **state) {
    (void)state;
    program_run(&p, 30, "runs", top, "--sort", "steps", "--reverse", NULL);
    is_before("\ndeep/er/two", "\none");
    is_before("\none", "\ncut"); /* whose steps are not known */
    program_run(&p, 30, "runs", top, "--sort", "steps", NULL);
    is_before("\none", "\ndeep/er/two");
    is_before("\ndeep/er/two", "\ncut");
    program_run(&p, 30, "runs", top, "--mode", "ddp", NULL);
    assert_true(strstr(p.out, "deep/er/two") && !strstr(p.out, "one") && !strstr(p.out, "experiment"));
    program_run(&p, 30, "runs", top, "--state", "unreadable", NULL);
    assert_true(strstr(p.out, "\ncut") && !strstr(p.out, "one"));
    program_run(&p, 30, "runs", top, "--name", "*two", NULL);
    assert_true(strstr(p.out, "deep/er/two") && !strstr(p.out, "\none"));
    program_run(&p, 30, "runs", top, "--name", "nothing", NULL);
    assert_int_equal(p.code, 0);
    assert_non_null(strstr(p.out, "none of the 4 below"));
    program_run(&p, 30, "runs", top, "--all", NULL);
    assert_int_equal(count(p.out, "x/cells/"), 2);
    program_run(&p, 30, "runs", top, "--csv", NULL);
    assert_int_equal(count(p.out, "\r\n"), 5);
    assert_non_null(strstr(p.out, "\r\nruns,deep/er/two,finished,ddp,2,12,12,"));
}

static void marked(int code, const char *option, const char *value, const char *name, const char *words) {
    program_run(&p, 30, "runs", option, value, name, NULL);
    if (p.code != code || !strstr(code ? p.err : p.out, words))
        fail_msg("%s '%s': exit code %d: %s%s", option, value, p.code, p.out, p.err);
}

static void notes_and_tags(void **state) {
    (void)state;
    marked(0, "--tag", "best", at("%s/%s", "one"), "tags: best\n");
    marked(0, "--tag", "lr:0.1", at("%s/%s", "one"), "tags: best lr:0.1\n");
    marked(0, "--tag", "best", at("%s/%s", "x"), "tags: best\n");
    marked(0, "--note", "a gr\xc3\xbcn word", at("%s/%s", "one"), "note: a gr\xc3\xbcn word\n");
    program_run(&p, 30, "runs", "--tag", "best", top, NULL);
    assert_true(strstr(p.out, "\none") && strstr(p.out, "\nx ") && !strstr(p.out, "deep/er/two"));
    assert_non_null(strstr(p.out, "best lr:0.1"));
    assert_non_null(strstr(p.out, "\none: a gr\xc3\xbcn word\n"));
    program_run(&p, 30, "runs", "--json", top, NULL);
    const struct json_value *runs = json_get(program_json(&p, pool), "runs"), *one = named(runs, "one");
    assert_string_equal(json_get_text(one, "note"), "a gr\xc3\xbcn word");
    assert_int_equal(json_get(one, "tags")->count, 2);
    assert_string_equal(json_get(one, "tags")->children[1].text, "lr:0.1");
    assert_true(json_get(named(runs, "deep/er/two"), "tags")->count == 0);
    marked(0, "--untag", "best", at("%s/%s", "x"), "tags: -\n");
    marked(0, "--untag", "best", at("%s/%s", "one"), "tags: lr:0.1\n");
    marked(0, "--note", "", at("%s/%s", "one"), "note: -\n");
    marked(64, "--untag", "best", at("%s/%s", "one"), "hint: its tags: lr:0.1");
    marked(64, "--tag", "two words", at("%s/%s", "one"), "is not a tag");
    marked(64, "--note", "two\nlines", at("%s/%s", "one"), "one line");
    marked(66, "--note", "x", top, "is not the folder of a run");
    marked(66, "--note", "x", "/nowhere", "is not the folder of a run");
    program_run(&p, 30, "runs", "--note", "x", "--json", at("%s/%s", "one"), NULL);
    assert_int_equal(p.code, 64);
    save_text(at("%s/%s", "one/note.json"), "{");
    marked(65, "--tag", "x", at("%s/%s", "one"), "note.json");
    program_run(&p, 60, "report", at("%s/%s", "one"), "-o", scratch_path("r.md"), NULL);
    assert_int_equal(p.code, 0); /* nothing else reads it */
    assert_int_equal(unlink(at("%s/%s", "one/note.json")), 0);
}

static void wrong_input_is_named(void **state) {
    (void)state;
    assert_ok(file_make_folders(scratch_path("empty")));
    program_run(&p, 30, "runs", scratch_path("empty"), NULL);
    assert_int_equal(p.code, 0);
    assert_non_null(strstr(p.out, "no runs below"));
    program_run(&p, 30, "runs", "/nowhere", NULL);
    assert_int_equal(p.code, 66);
    assert_non_null(strstr(p.err, "no folder '/nowhere'"));
    program_run(&p, 30, "runs", scratch_path("x.yaml"), NULL);
    assert_int_equal(p.code, 66);
    assert_non_null(strstr(p.err, "is a file"));
    program_run(&p, 30, "runs", top, "--csv", "--json", NULL);
    assert_int_equal(p.code, 64);
    program_run(&p, 30, "runs", top, "--sort", "los", NULL);
    assert_int_equal(p.code, 64);
    assert_non_null(strstr(p.err, "loss"));
}

/* A run fails, and the folder says so later; one that goes on is listed, and one that begins is not kept from it. */
static void what_goes_on_is_not_disturbed(void **state) {
    (void)state;
    char dir[700];
    snprintf(dir, sizeof dir, "log.dir=%s/nan", top);
    program_run(&p, 60, "run", "--quiet", "--set", dir, "--mode", "single", "--set", "train=20st", "--set",
                "optimizer.lr=1e30", NULL);
    assert_int_equal(p.code, 1);
    assert_non_null(strstr(p.err, "hint: lower optimizer.lr"));
    snprintf(dir, sizeof dir, "log.dir=%s/long", top);
    program_start(&other, (const char *const[]){"run", "--quiet", "--set", dir, "--mode", "ddp", "--devices", "cpu:2",
                                                "--set", "train=1000000st", NULL});
    const struct json_value *r;
    for (int i = 0;; i++) {
        program_run(&p, 30, "runs", top, "--name", "[ln]*", "--json", NULL);
        assert_int_equal(p.code, 0);
        const struct json_value *runs = json_get(program_json(&p, pool), "runs");
        r = runs->count == 2 ? &runs->children[0] : NULL;
        if (r && json_get(r, "steps")->integer > 20) break;
        if (program_ended(&other) || i > 600) fail_msg("the run does not go on: %s", p.out);
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    assert_string_equal(json_get_text(r, "state"), "running");
    assert_string_equal(json_get_text(r, "mode"), "ddp");
    assert_true(number(r, "devices", NULL) == 2 && number(r, "planned_steps", NULL) == 1000000);
    kill(other.pid, SIGINT);
    assert_true(program_wait(&other, 60));
    assert_int_equal(other.code, 130);
    program_run(&p, 30, "runs", top, "--name", "[ln]*", "--json", NULL);
    const struct json_value *runs = json_get(program_json(&p, pool), "runs");
    assert_string_equal(json_get_text(named(runs, "long"), "state"), "stopped");
    assert_string_equal(json_get_text(named(runs, "nan"), "state"), "failed");
    assert_string_equal(json_get_text(named(runs, "nan"), "reason"), "diverged: the loss of step 2 is nan");
    /* going on takes the failure back */
    program_run(&p, 60, "run", at("%s/%s", "nan"), "--quiet", "--set", "optimizer.lr=0.1", "--set", "train=3st", NULL);
    program_run(&p, 30, "runs", top, "--name", "nan", "--json", NULL);
    runs = json_get(program_json(&p, pool), "runs");
    assert_string_equal(json_get_text(named(runs, "nan"), "state"), "finished");
}

/* What a terminal of so many columns shows. */
static const char *shown_at(int columns) {
    static char text[1 << 16];
    size_t n = 0;
    int mine = posix_openpt(O_RDWR | O_NOCTTY);
    assert_true(mine >= 0 && grantpt(mine) == 0 && unlockpt(mine) == 0);
    int its = open(ptsname(mine), O_RDWR | O_NOCTTY);
    assert_int_equal(ioctl(its, TIOCSWINSZ, &(struct winsize){.ws_row = 24, .ws_col = (unsigned short)columns}), 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(its, STDOUT_FILENO);
        execl(ENGINE_BINARY_DIR "/engine", "engine", "runs", top, "--all", NULL);
        _exit(127);
    }
    close(its);
    for (ssize_t got; (got = read(mine, text + n, sizeof text - n - 1)) > 0;) n += (size_t)got;
    close(mine);
    text[n] = '\0';
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    return text;
}

static void it_fits_the_terminal(void **state) {
    (void)state;
    static const int widths[] = {40, 60, 80, 100};
    for (int i = 0; i < 4; i++) {
        const char *text = shown_at(widths[i]);
        assert_non_null(strstr(text, "one"));
        assert_non_null(strstr(text, "unreadable"));
        for (const char *line = text, *end; (end = strchr(line, '\n')); line = end + 1)
            if (end - line - 1 > widths[i]) fail_msg("%d columns: %.*s", widths[i], (int)(end - line), line);
        assert_non_null(strstr(text, "columns left out"));
    }
    assert_null(strstr(shown_at(200), "columns left out"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_those_of_the_files),
        cmocka_unit_test(order_and_choice),
        cmocka_unit_test(notes_and_tags),
        cmocka_unit_test(wrong_input_is_named),
        cmocka_unit_test(it_fits_the_terminal),
        cmocka_unit_test(what_goes_on_is_not_disturbed),
    };
    return cmocka_run_group_tests_name("list", tests, set_up, tear_down);
}
