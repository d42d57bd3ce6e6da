/* The list of runs: what state each is in and what it rests on, that nothing of another run is taken for this one's,
 * and that files may hold anything. */
#include "tests/harness/harness.h"

#include "engine/base/file.h"
#include "lab/results/runs.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *top;
static struct pool *pool;
static struct listing all;

#define STEP(n, loss)                                                                                                  \
    "{\"step\":" #n ",\"epoch\":0,\"loss\":" #loss ",\"accuracy\":0.5,\"lr\":1,\"samples\":8,\"ms\":2}\n"
#define VAL(n, loss, accuracy) "{\"step\":" #n ",\"val\":{\"loss\":" #loss ",\"accuracy\":" #accuracy "}}\n"
#define EVENT(n, name) "{\"step\":" #n ",\"event\":\"" name "\"}\n"
#define STARTED(n) "{\"step\":" #n ",\"event\":\"started\",\"run_id\":\"aa\",\"steps\":9,\"per_epoch\":3}\n"

static const char summary[] =
    "{\"mode\":\"ddp\",\"devices\":2,\"shards\":4,\"steps\":3,\"epochs\":1,\"first_step\":0,\"train\":{\"loss\":1.5},"
    "\"val\":{\"loss\":1.25,\"accuracy\":0.5},\"step_ms\":{\"p50\":2,\"p95\":3},\"samples_per_s\":1000,"
    "\"time_s\":{\"load\":0.1,\"forward\":0.2,\"backward\":0.3,\"comm_exposed\":0.4,\"comm_hidden\":0.5,"
    "\"update\":0.6,\"total\":2.5},\"bytes\":{\"sent\":[10,11],\"received\":[11,10]},\"peak_rss_bytes\":[5,6],"
    "\"optimizer_bytes\":[7,8],\"weights_sha256\":\"ww\",\"losses_sha256\":\"bb\",\"run_id\":\"aa\"}\n";
static const char metrics[] =
    STARTED(0) STEP(1, 9) VAL(1, 8, 0.7) STEP(2, 4) VAL(2, 7, 0.75) STEP(3, 1.5) VAL(3, 1.25, 0.5) EVENT(3, "finished");
static const char record[] = "{\"run_id\":\"aa\"}";
static const char settings[] = "name: x\nmode: dp\ndevices: cpu:4\n";
static const char note[] = "{\"run_id\":\"aa\",\"note\":\"a word\",\"tags\":[\"a\",\"b\"]}";
static const char environment[] = "{\"time\":\"2030-01-02T03:04:05Z\"}";

static void put(const char *dir, const char *name, const char *text, size_t n) {
    char path[700];
    snprintf(path, sizeof path, "%s/%s", top, dir);
    assert_ok(file_make_folders(path));
    snprintf(path, sizeof path, "%s/%s/%s", top, dir, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static void put_text(const char *dir, const char *name, const char *text) {
    put(dir, name, text, strlen(text));
}

/* NULL: there is no such file. */
static void make(const char *dir, const char *sum, const char *lines, const char *run) {
    if (sum) put(dir, "summary.json", sum, strlen(sum));
    if (lines) put(dir, "metrics.jsonl", lines, strlen(lines));
    if (run) put(dir, "run.json", run, strlen(run));
    put(dir, "resolved.yaml", settings, strlen(settings));
    put(dir, "env.json", environment, strlen(environment));
    put(dir, "run.lock", "", 0);
}

static const struct listed *find(const char *name) {
    for (int i = 0; i < all.count; i++)
        if (!strcmp(all.of[i].name, name)) return &all.of[i];
    fail_msg("'%s' is not in the list", name);
    return NULL;
}

static void is(const char *name, enum run_state state, const char *reason) {
    const struct listed *r = find(name);
    if (r->state != state) fail_msg("'%s' is %s: %s", name, run_state_names[r->state], r->reason);
    if (!strstr(r->reason, reason) || !*reason != !*r->reason) fail_msg("'%s': %s", name, r->reason);
}

static int set_up(void **state) {
    static char own[600];
    static int number;
    (void)state;
    snprintf(own, sizeof own, "%s/%d", scratch_folder(), number++);
    top = own;
    return pool_create(&pool) == ERR_NONE ? 0 : -1;
}

static int tear_down(void **state) {
    (void)state;
    pool_free(pool);
    return 0;
}

static void a_finished_run_has_its_summary(void **state) {
    (void)state;
    make("a", summary, metrics, record);
    assert_ok(runs_list(top, false, pool, &all));
    assert_int_equal(all.count, 1);
    is("a", RUN_FINISHED, "");
    const struct listed *r = find("a");
    assert_string_equal(r->mode, "ddp");
    assert_string_equal(r->when, "2030-01-02T03:04:05Z");
    assert_string_equal(r->weights, "ww");
    assert_string_equal(r->run_id, "aa");
    assert_true(r->devices == 2 && r->steps == 3 && r->planned == 9);
    assert_true(r->loss == 1.5 && r->val_loss == 1.25 && r->val_accuracy == 0.5);
    assert_true(r->seconds == 2.5 && r->samples_per_s == 1000);
    assert_true(r->best == 0.75 && r->best_step == 2 && !r->best_is_loss);
    struct listed one;
    char path[700];
    snprintf(path, sizeof path, "%s/a", top);
    assert_true(runs_is_one(path) && !runs_is_one(top));
    assert_ok(runs_one(path, pool, &one));
    assert_true(one.state == RUN_FINISHED && one.loss == 1.5);
}

/* Of equal accuracies the one with the lower loss is the best, and of equal losses the later. */
static void the_best_of_equals_has_the_lower_loss(void **state) {
    (void)state;
    make("ties", summary,
         STARTED(0) STEP(1, 9) VAL(1, 8, 0.75) STEP(2, 4) VAL(2, 7, 0.75) STEP(3, 4) VAL(3, 7, 0.75) STEP(4, 4)
             VAL(4, 7.5, 0.75) VAL(5, 1, 0.5) EVENT(5, "finished"),
         record);
    make("losses", NULL, STARTED(0) VAL(1, 3, null) VAL(2, 2, null) VAL(3, 2, null) VAL(4, 5, null), record);
    assert_ok(runs_list(top, false, pool, &all));
    assert_true(find("ties")->best == 0.75 && find("ties")->best_step == 3);
    assert_true(find("losses")->best == 2 && find("losses")->best_step == 3 && find("losses")->best_is_loss);
}

static void a_state_rests_on_files(void **state) {
    (void)state;
    make("stopped", summary, STARTED(0) STEP(3, 1.5) EVENT(3, "stopped"), record);
    make("reached", summary, STARTED(0) STEP(3, 1.5) EVENT(3, "target reached"), record);
    make("tired", summary, STARTED(0) STEP(3, 1.5) EVENT(3, "no improvement"), record);
    make("timed", summary, STARTED(0) STEP(3, 1.5) EVENT(3, "time over"), record);
    make("killed", NULL, STARTED(0) STEP(1, 9) STEP(2, 4) VAL(2, 7, null), record);
    make("failed", NULL, STARTED(0) STEP(1, 9), "{\"run_id\":\"aa\",\"exit\":1,\"error\":\"diverged\"}");
    make("coded", NULL, STARTED(0) STEP(1, 9), "{\"run_id\":\"aa\",\"exit\":75}");
    make("stale", summary, metrics, "{\"run_id\":\"cc\"}");
    make("again", summary, STARTED(0) STEP(3, 1.5) EVENT(3, "finished") EVENT(2, "resumed") STARTED(2) STEP(3, 6),
         record);
    make("begun", NULL, NULL, record);
    make("torn", NULL, STARTED(0) STEP(1, 9) "{\"step\":2,\"epoch\":0,\"lo", record);
    make("bare", summary, NULL, record);
    make("cut", "{\"mode\":\"ddp\"", metrics, record);
    assert_ok(runs_list(top, false, pool, &all));
    assert_int_equal(all.count, 13);
    is("stopped", RUN_STOPPED, "");
    is("reached", RUN_FINISHED, "");
    is("tired", RUN_FINISHED, "");
    is("timed", RUN_FINISHED, "");
    is("killed", RUN_UNFINISHED, "no end is recorded");
    is("failed", RUN_FAILED, "diverged");
    is("coded", RUN_FAILED, "exit code 75");
    is("stale", RUN_UNFINISHED, "of another run");
    is("again", RUN_UNFINISHED, "no end is recorded");
    is("begun", RUN_UNFINISHED, "no end is recorded");
    is("torn", RUN_UNFINISHED, "no end is recorded");
    is("bare", RUN_UNREADABLE, "no metrics.jsonl");
    is("cut", RUN_UNREADABLE, "summary.json: ");
    /* what has not ended has what it was asked to be, and its newest numbers: no summary of before */
    const struct listed *r = find("killed");
    assert_string_equal(r->mode, "dp");
    assert_true(r->devices == 4 && r->steps == 2 && r->loss == 4 && r->val_loss == 7 && isnan(r->val_accuracy));
    assert_true(r->best == 7 && r->best_is_loss && isnan(r->seconds) && !*r->weights);
    assert_true(find("again")->loss == 6 && isnan(find("again")->seconds));
    assert_true(find("torn")->steps == 1 && find("begun")->steps == 0);
}

static void a_held_folder_is_running(void **state) {
    (void)state;
    char path[700];
    make("r", summary, metrics, record);
    snprintf(path, sizeof path, "%s/r/run.lock", top);
    int fd = open(path, O_RDWR);
    assert_true(file_lock(fd));
    assert_ok(runs_list(top, false, pool, &all));
    is("r", RUN_RUNNING, "");
    int other = open(path, O_RDWR);
    assert_false(file_lock(other)); /* it is taken indeed, */
    close(fd);
    assert_true(file_lock(other)); /* and free then */
    close(other);
    /* who only asks keeps nobody out */
    int told[2];
    char byte;
    assert_int_equal(pipe(told), 0);
    pid_t child = fork();
    if (child == 0) {
        int mine = open(path, O_RDONLY);
        if (flock(mine, LOCK_SH | LOCK_NB) == 0) (void)!write(told[1], "x", 1);
        usleep(30000);
        _exit(0);
    }
    assert_int_equal(read(told[0], &byte, 1), 1);
    fd = open(path, O_RDWR);
    assert_true(file_lock(fd));
    close(fd), close(told[0]), close(told[1]);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

static const char results[] =
    "{\"format\":1,\"name\":\"x\",\"verdict\":\"b is faster\",\"repeats\":2,\"complete\":false,\"cells\":["
    "{\"runs\":[{},{}]},{\"runs\":[{}]}]}";

static void experiments_are_one_row(void **state) {
    (void)state;
    put("x", "results.json", results, strlen(results));
    make("x/cells/c/run-01", summary, metrics, record);
    put("x/cells/c/run-01", "compare.json", "{}", 2);
    put("y", "compare.lock", "", 0);
    make("y/cells/c/run-01", summary, metrics, record);
    put("y/cells/c/run-01", "compare.json", "{}", 2);
    make("y/cells/c/run-02", NULL, STARTED(0), record);
    put("z", "results.json", "[]", 2);
    assert_ok(runs_list(top, false, pool, &all));
    assert_int_equal(all.count, 3);
    is("x", RUN_UNFINISHED, "continues it");
    is("y", RUN_UNFINISHED, "continues it");
    is("z", RUN_UNREADABLE, "not what engine compare writes");
    const struct listed *x = find("x"), *y = find("y");
    assert_string_equal(x->verdict, "b is faster");
    assert_true(x->experiment && x->done == 3 && x->wanted == 4);
    assert_true(y->experiment && y->done == 1 && y->wanted == -1);
    make("x/cells/.-own.so-0011/run-01", summary, metrics, record); /* a cell's name may begin so */
    assert_ok(runs_list(top, true, pool, &all));
    assert_int_equal(all.count, 7);
    is("x/cells/c/run-01", RUN_FINISHED, "");
    is("x/cells/.-own.so-0011/run-01", RUN_FINISHED, "");
    is("y/cells/c/run-02", RUN_UNFINISHED, "no end");
}

/* ---- asked again and again ---- */

/* Nothing below the folder was written just now. */
static void let_it_age(void) {
    char command[800];
    snprintf(command, sizeof command, "find %s -exec touch -d 2001-02-03 {} +", top);
    assert_int_equal(system(command), 0);
}

/* Reads the list again; the version in which the row has changed last. */
static int64_t again(const char *name) {
    struct listing before = all;
    assert_ok(runs_list_again(top, &before, pool, &all));
    return find(name)->changed;
}

static void what_has_not_changed_is_not_read_again(void **state) {
    (void)state;
    make("a", summary, metrics, record);
    make("b", summary, metrics, record);
    make("going", NULL, STARTED(0) STEP(1, 9), record);
    put("x", "results.json", results, strlen(results));
    let_it_age();
    all = (struct listing){0};
    int64_t first = again("a");
    assert_true(first > 0 && all.version == first && all.since == first && find("x")->changed == first);
    assert_true(again("a") == first && again("x") == first && all.version == first && all.since == first);
    /* what does not decide the state is written in place: a row that is read again would have it */
    put_text("a", "env.json", "{\"time\":\"2040-01-01T00:00:00Z\"}");
    assert_true(again("a") == first);
    assert_string_equal(find("a")->when, "2030-01-02T03:04:05Z");
    make("going", NULL, STARTED(0) STEP(1, 9) STEP(2, 4), record); /* one step more */
    int64_t second = again("going");
    assert_true(second > first && all.version == second && all.since == first);
    assert_true(find("going")->steps == 2 && find("a")->changed == first && find("b")->changed == first);
    assert_true(again("going") == second && all.version == second); /* read again, and the same */
    make("new", summary, metrics, record);
    int64_t third = again("new");
    assert_true(third > second && find("going")->changed == second && all.since == first);
    /* an experiment has one run more */
    put_text("x", "results.json", "{\"complete\":true,\"verdict\":\"c\",\"cells\":[]}");
    int64_t fourth = again("x");
    assert_true(fourth > third && find("x")->state == RUN_FINISHED && all.since == first);
    /* a file that is replaced, as the engine does it */
    put_text("b", "made", "{\"run_id\":\"aa\",\"exit\":75}");
    char from[700], to[700];
    snprintf(from, sizeof from, "%s/b/made", top), snprintf(to, sizeof to, "%s/b/run.json", top);
    assert_int_equal(rename(from, to), 0);
    assert_true(again("b") > fourth && find("b")->state == RUN_FAILED);
    /* without a row that has gone nobody can go on from an earlier version */
    int64_t last = all.version;
    snprintf(to, sizeof to, "%s/going", top);
    assert_ok(file_remove_tree(to));
    assert_true(again("a") == first && all.count == 4);
    assert_true(all.since > last && all.since == all.version);
}

/* The first listing of a run that another process holds has nothing to rest on. */
static void a_running_run_is_always_read(void **state) {
    (void)state;
    char path[700];
    make("r", summary, metrics, record);
    snprintf(path, sizeof path, "%s/r/run.lock", top);
    int fd = open(path, O_RDWR);
    assert_true(file_lock(fd));
    let_it_age();
    all = (struct listing){0};
    int64_t first = again("r");
    is("r", RUN_RUNNING, "");
    close(fd); /* which writes nothing */
    assert_true(again("r") > first);
    is("r", RUN_FINISHED, "");
}

/* ---- notes ---- */

static const struct remark *remark_of(const char *name, const char *file) {
    put(name, "note.json", file, strlen(file));
    assert_ok(runs_list(top, false, pool, &all));
    return &find(name)->remark;
}

static void a_note_is_of_its_run(void **state) {
    (void)state;
    make("a", summary, metrics, record);
    put("x", "results.json", results, strlen(results));
    const struct remark *r = remark_of("a", "{\"run_id\":\"aa\",\"note\":\"good\",\"tags\":[\"best\",\"2nd\"]}");
    assert_string_equal(r->note, "good");
    assert_string_equal(r->tags, "best 2nd");
    assert_true(remark_has_tag(r, "2nd") && !remark_has_tag(r, "bes") && !remark_has_tag(r, "best 2nd"));
    r = remark_of("a", "{\"run_id\":\"bb\",\"note\":\"of another run\",\"tags\":[\"best\"]}");
    assert_true(!*r->note && !*r->tags);
    r = remark_of("a",
                  "{\"note\":\"<b>\\u001b[31m\\u009b\",\"tags\":[\"ok\",\"no tag\",7,\"-x\",\"<i>\",\"ok\",\"\"]}");
    assert_string_equal(r->note, "<b>?[31m??");
    assert_string_equal(r->tags, "ok");
    r = remark_of("x", "{\"note\":\"of an experiment\"}");
    assert_string_equal(r->note, "of an experiment");
    r = remark_of("a", "{\"note\"");
    assert_non_null(strstr(r->note, "note.json"));
    assert_string_equal(r->tags, "");
    is("a", RUN_FINISHED, ""); /* a damaged note is no damaged run */
}

static void notes_and_tags_are_checked(void **state) {
    (void)state;
    struct remark r = {.note = "", .tags = ""}, read;
    char text[REMARK_NOTE + 2], tag[8];
    memset(text, 'a', sizeof text);
    text[REMARK_NOTE + 1] = '\0';
    assert_fails(ERR_USAGE, remark_set_note(&r, text, pool));
    text[REMARK_NOTE] = '\0';
    assert_ok(remark_set_note(&r, text, pool));
    static const char *const no_notes[] = {"two\nlines", "\x1b[31m", "\xff", "\xc2\x9b"};
    for (int i = 0; i < 4; i++) assert_fails(ERR_USAGE, remark_set_note(&r, no_notes[i], pool));
    static const char *const no_tags[] = {"", "two words", "-x", "a,b", "\xc3\xa4", "<b>"};
    for (int i = 0; i < 6; i++) assert_fails(ERR_USAGE, remark_add_tag(&r, no_tags[i], pool));
    text[REMARK_TAG + 1] = '\0';
    assert_fails(ERR_USAGE, remark_add_tag(&r, text, pool));
    for (int i = 0; i < REMARK_TAGS; i++) {
        snprintf(tag, sizeof tag, "t%d", i);
        assert_ok(remark_add_tag(&r, tag, pool));
        assert_ok(remark_add_tag(&r, tag, pool)); /* it has it */
    }
    assert_fails(ERR_USAGE, remark_add_tag(&r, "more", pool));
    assert_ok(file_make_folders(top));
    assert_ok(remark_save(top, "aa", &r, pool));
    assert_ok(remark_read(top, "aa", pool, &read));
    assert_string_equal(read.note, r.note);
    assert_string_equal(read.tags, r.tags);
    for (int i = 0; i < REMARK_TAGS; i++) { /* the first, then the last, ... */
        snprintf(tag, sizeof tag, "t%d", i % 2 ? REMARK_TAGS - 1 - i / 2 : i / 2);
        assert_ok(remark_remove_tag(&read, tag, pool));
        assert_fails(ERR_USAGE, remark_remove_tag(&read, tag, pool));
    }
    assert_string_equal(read.tags, "");
}

static void folders_are_searched_with_care(void **state) {
    (void)state;
    char path[700], deep[700] = "d";
    make("one/two/a", summary, metrics, record);
    make("a/ckpt/b", summary, metrics, record);
    make("a/.hidden", summary, metrics, record);
    make("na\nme\x1b[31m\xff", summary, metrics, record);
    for (int i = 0; i < 30; i++) strcat(deep, "/d");
    make(deep, summary, metrics, record);
    snprintf(path, sizeof path, "%s/loop", top);
    assert_int_equal(symlink(top, path), 0);
    assert_ok(runs_list(top, false, pool, &all));
    assert_int_equal(all.count, 2);
    is("one/two/a", RUN_FINISHED, "");
    is("na?me?[31m?", RUN_FINISHED, "");
    assert_string_not_equal(all.of[0].id, all.of[1].id);
    assert_int_equal(strlen(all.of[0].id), 16);
    snprintf(path, sizeof path, "%s/one/two/a/run.json", top);
    assert_fails(ERR_INPUT, runs_list(path, false, pool, &all));
    assert_non_null(strstr(error_message(), "is a file"));
    assert_fails(ERR_INPUT, runs_list("/nowhere", false, pool, &all));
}

/* Wherever a file ends, and whatever byte is another: a row, and never more. */
static void files_may_hold_anything(void **state) {
    (void)state;
    static const struct {
        const char *dir, *name, *text;
        int least; /* so often it cannot be read */
    } files[] = {{"a", "summary.json", summary, 50},  {"a", "metrics.jsonl", metrics, 50},
                 {"a", "env.json", environment, 1},   {"a", "run.json", record, 0},
                 {"b", "resolved.yaml", settings, 1}, {"x", "results.json", results, 20},
                 {"a", "note.json", note, 0}};
    make("a", summary, metrics, record);
    make("b", NULL, STARTED(0), record);
    put("x", "results.json", results, strlen(results));
    for (size_t f = 0; f < sizeof files / sizeof *files; f++) {
        size_t n = strlen(files[f].text);
        char *copy = strdup(files[f].text);
        int refused = 0;
        for (size_t i = 0; i < 2 * n; i++) {
            size_t at = i % n;
            char was = copy[at];
            if (i >= n) copy[at] = "{-\0\xff\n9"[at % 6];
            put(files[f].dir, files[f].name, copy, i < n ? at : n);
            copy[at] = was;
            struct pool *mine = pool;
            assert_ok(pool_create(&pool));
            assert_ok(runs_list(top, false, pool, &all));
            assert_int_equal(all.count, 3);
            refused += find(files[f].dir)->state == RUN_UNREADABLE;
            pool_free(pool);
            pool = mine;
        }
        if (refused < files[f].least) fail_msg("%s: %d refused", files[f].name, refused);
        put(files[f].dir, files[f].name, copy, n);
        free(copy);
    }
    char path[700];
    snprintf(path, sizeof path, "%s/a/summary.json", top);
    assert_int_equal(unlink(path) | mkfifo(path, 0600), 0); /* which nobody will ever write to */
    assert_ok(runs_list(top, false, pool, &all));
    is("a", RUN_UNREADABLE, "summary.json");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_finished_run_has_its_summary, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_best_of_equals_has_the_lower_loss, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_state_rests_on_files, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_held_folder_is_running, set_up, tear_down),
        cmocka_unit_test_setup_teardown(experiments_are_one_row, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_has_not_changed_is_not_read_again, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_running_run_is_always_read, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_note_is_of_its_run, set_up, tear_down),
        cmocka_unit_test_setup_teardown(notes_and_tags_are_checked, set_up, tear_down),
        cmocka_unit_test_setup_teardown(folders_are_searched_with_care, set_up, tear_down),
        cmocka_unit_test_setup_teardown(files_may_hold_anything, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("runs", tests, NULL, NULL);
}
