/* Labs in which one writes code, as a class meets them: an untouched skeleton is refused, a solution has all claims hold, and
 * each planted mistake (tests/labs/) is named by a finding of engine check or by a claim. And grading: what a hand-in may be
 * and do is one line, and the others go on. */
#include "tests/harness/lab.h"

#include "engine/base/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct program p;

static int set_up(void **state) {
    (void)state;
    setenv("TMPDIR", scratch_folder(), 1);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    return program_orphans();
}

/* A path in the scratch folder, in a buffer of the caller. */
static const char *place(char out[700], const char *folder, const char *name) {
    snprintf(out, 700, "%s/%s%s%s", scratch_path(""), folder, name ? "/" : "", name ? name : "");
    return out;
}

static void make_folder(const char *name) {
    char path[700];
    assert_int_equal(mkdir(place(path, name, NULL), 0755), 0);
}

/* The solution of tests/labs, with one of its mistakes; as another name where it is given. */
static void write_solution(const char *folder, const char *file, int wrong, const char *as) {
    static char text[1 << 16];
    char path[700];
    bool python = strstr(file, ".py") != NULL, code = !strstr(file, ".json");
    int n = snprintf(text, sizeof text, !code ? "" : python ? "WRONG = %d\n" : "#define WRONG %d\n", wrong);
    snprintf(path, sizeof path, "%s/tests/labs/%s", ENGINE_SOURCE_DIR, file);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    text[n + (int)fread(text + n, 1, sizeof text - 1 - (size_t)n, f)] = '\0';
    fclose(f);
    save_text(place(path, folder, as ? as : file), text);
}

/* ---- the labs ---- */

static const struct {
    const char *lab, *files[2], *finding;
    const char *python; /* the option, and the folder's name */
} lessons[] = {
    {"24-ring", {"ring.c"}, "sent 0 and received 0 elements of a buffer of 35, and its plan declares 35 and 35"},
    {"25-tree-and-halving", {"tree.c", "halving.c"}, "adds wrongly: element"},
    {"26-top-k", {"topk.c"}, "what waits grows"},
    {"27-optimizer", {"nesterov.c"}, "2000 steps at a rate of 0.01 towards 1, from 3: weight 0 is at 3"},
    {"28-gossip", {"graph.c"}, "sent 0 and received 0 elements of a buffer of 1, and its plan declares 1 and 1"},
    {"29-bucket-schedule", {"buckets.c"}, "no bucket ends with the last one, which stays"},
    {"30-server-answers", {"answers.c"}, "it waits, and nothing more will come"},
    {"31-one-forward-one-backward", {"stages.c"}, "stage 0 has 0 as its task 0"},
    {"32-late-gradients", {"weight.c"}, "a gradient that is not late has a weight of 0"},
    {"24-ring", {"ring.py"}, "rank 0 of 4 ends without the term of rank 1 in chunk 0", "--python"},
    {"26-top-k", {"topk.py"}, "what waits grows", "--python"},
    {"29-bucket-schedule", {"buckets.py"}, "no bucket ends with the last one, which stays", "--python"},
    {"30-server-answers", {"answers.py"}, "it waits, and nothing more will come", "--python"},
    {"31-one-forward-one-backward", {"stages.py"}, "stage gives [], and should give 2 numbers", "--python"},
    {"32-late-gradients", {"weight.py"}, "a gradient that is not late has a weight of 0", "--python"},
};
enum { LESSONS = sizeof lessons / sizeof *lessons };

/* A copy of the lab of its own, "24-ring" or "24-ring--python". */
static const char *lesson_place(char out[700], int i) {
    char name[64];
    snprintf(name, sizeof name, "%s%s", lessons[i].lab, lessons[i].python ? lessons[i].python : "");
    return place(out, name, NULL);
}

/* It compiles without a warning, and ends at its first step with a finding. */
static void a_skeleton_is_refused(void **state) {
    (void)state;
    for (int i = 0; i < LESSONS; i++) {
        char dir[700], path[700];
        program_run(&p, 20, "lab", "copy", lessons[i].lab, lesson_place(dir, i), lessons[i].python, NULL);
        program_assert_code(&p, 0);
        if (!lessons[i].python) assert_int_equal(access(place(path, lessons[i].lab, "engine_plugin.h"), F_OK), 0);
        bool plan = !strcmp(lessons[i].files[0], "ring.py"); /* one that is wrong is an error of the experiment */
        program_run(&p, 120, "lab", "run", dir, "--quick", "-q", "--json", NULL);
        program_assert_code(&p, plan ? 78 : 1);
        program_assert_says(p.err, lessons[i].finding);
        if (!plan) program_assert_says(p.err, "has ended with exit code 1, not 0");
        assert_string_equal(p.out, "");
        assert_null(strstr(p.err, "warning"));
        if (!lessons[i].files[1]) continue;
        program_run(&p, 60, "check", place(path, lessons[i].lab, lessons[i].files[1]), NULL);
        program_assert_code(&p, 1);
    }
}

/* Python takes long for each gradient, and what a compressor does is the same in a smaller network. */
static void make_smaller(const char *dir) {
    static const char large[] = "hidden: [256, 128]", small[] = "hidden: [32]      ";
    char path[800], *text, *at;
    struct pool *pool;
    size_t n;
    snprintf(path, sizeof path, "%s/train.yaml", dir);
    assert_ok(pool_create(&pool));
    assert_ok(file_read(path, 1 << 16, pool, &text, &n));
    assert_non_null(at = strstr(text, large));
    memcpy(at, small, sizeof small - 1);
    save_text(path, text);
    pool_free(pool);
}

/* In the copies of the first test. */
static void a_solution_has_all_claims_hold(void **state) {
    (void)state;
    for (int i = 0; i < LESSONS; i++) {
        char dir[700];
        const char *folder = strrchr(lesson_place(dir, i), '/') + 1;
        for (int k = 0; k < 2 && lessons[i].files[k]; k++) write_solution(folder, lessons[i].files[k], 0, NULL);
        if (!strcmp(lessons[i].files[0], "topk.py")) make_smaller(dir);
        program_run(&p, 300, "lab", "run", dir, "--quick", "-q", "--json", NULL);
        print_message("%s%s: %.1f s\n", lessons[i].lab, lessons[i].python ? " in Python" : "", p.seconds);
        assert_true(lab_assert_holds(&p, lessons[i].lab) > 0);
        if (p.code == 0) assert_true(program_number(&p, "score.value") >= 0);
        assert_null(strstr(p.err, "warning"));
    }
}

/* Nothing is right before something is foretold; a file that is none is named. */
static void what_was_foretold_is_compared(void **state) {
    (void)state;
    char dir[700], path[700];
    program_run(&p, 20, "lab", "copy", "33", place(dir, "foretold", NULL), NULL);
    program_assert_code(&p, 0);
    program_run(&p, 120, "lab", "run", dir, "--quick", "-q", NULL);
    program_assert_code(&p, 1);
    program_assert_says(p.out, "0 of 14 hold, 2 not judged in quick form");
    write_solution("foretold", "predicted.json", 0, NULL);
    program_run(&p, 120, "lab", "run", dir, "--quick", "-q", "--json", NULL);
    assert_int_equal(lab_assert_holds(&p, "33-foretell"), 16);
    save_text(place(path, "foretold", "predicted.json"), "{\"message_s\": 3 ms}\n");
    program_run(&p, 120, "lab", "run", dir, "--quick", "-q", "--json", NULL);
    program_assert_code(&p, 65);
    program_assert_says(p.err, "predicted.json: ");
}

/* ---- mistakes ---- */

static const struct {
    const char *file;
    int wrong;
    const char *finding;
} findings[] = {
    {"ring.c", 1, "3 ranks: plug-in"},
    {"ring.c", 2, "2 ranks: plug-in"},
    {"ring.c", 3, "exchanges with rank -1"},
    {"ring.c", 4, "has not done its part of all_reduce"},
    {"ring.c", 5, "added in another order than the ring's"},
    {"tree.c", 1, "adds wrongly"},
    {"tree.c", 2, "added in another order than the tree's"},
    {"tree.c", 3, "exchanges with rank 3"},
    {"halving.c", 2, "of 3, and the sum is"},
    {"halving.c", 3, "adds wrongly"},
    {"halving.c", 4, "a part of another size than it expects"},
    {"halving.c", 5, "sends elements and receives into them in one exchange"},
    {"topk.c", 2, "were sent and"},
    {"topk.c", 3, "and all that is sent is finite"},
    {"topk.c", 5, "what waits grows"},
    {"nesterov.c", 3, "2000 steps at a rate of 0.01 towards 1, from 3"},
    {"nesterov.c", 4, "the same steps again: the weight"},
    {"graph.c", 2, "all ranks have -1700 as weight 0, and a rank goes on with -3400"},
    {"ring.py", 1, "rank 0 of 3 ends without the term of rank 0 in chunk 0"},
    {"ring.py", 2, "a deadlock of 2 ranks"},
    {"ring.py", 3, "added in another order than the ring's"},
    {"topk.py", 2, "and all that is sent is finite"},
    {"buckets.py", 3, "line 8: buckets gives [1, 1, 1, 0, 1, 0, 0, 0, 0, 0, 1], and should give 12 numbers"},
    {"answers.py", 2, "answer gives None, and should give 1 number"},
    {"stages.py", 2, "an endless loop in 'while WRONG == LOOPS:'"},
    {"weight.py", 2, "ZeroDivisionError"},
    {"buckets.c", 1, "no bucket ends with the last one, which stays"},
    {"buckets.c", 2, "past the end of the ends of buckets"},
    {"answers.c", 1, "of which nothing has come yet"},
    {"answers.c", 2, "it waits, and nothing more will come"},
    {"answers.c", 5, "it sends worker"},
    {"stages.c", 3, "stage 0 has the backward of micro-batch 1 before its forward"},
    {"stages.c", 4, "has the backward of micro-batch 1 twice"},
    {"stages.c", 6, "waits for ever to compute the backward of micro-batch"},
    {"weight.c", 1, "nothing is learned, it diverges"},
    {"weight.c", 4, "has a larger weight than one of age"},
    {"weight.c", 5, "and not from 0 to 1"},
};

static void engine_check_names_mistakes(void **state) {
    (void)state;
    make_folder("findings");
    for (size_t i = 0; i < sizeof findings / sizeof *findings; i++) {
        char path[700];
        write_solution("findings", findings[i].file, findings[i].wrong, NULL);
        program_run(&p, 120, "check", "--sizes", "5", place(path, "findings", findings[i].file), NULL);
        if (p.code != 1 || !strstr(p.err, findings[i].finding))
            fail_msg("%s, mistake %d: exit code %d, and not '%s' in:\n%s", findings[i].file, findings[i].wrong, p.code,
                     findings[i].finding, p.err);
    }
}

/* Mistakes that engine check cannot know: the sums are right, but take too long or too many bytes; nothing is lost, but what
 * is learned. */
static const struct {
    int lab;
    int wrong[2];
    const char *checks[3]; /* claims that do not hold then */
} claims[] = {
    {0, {6}, {"mine.results.0.alpha_s < 0.0132", "race.mine.step_best < 1.1 * race.engine.step_best"}},
    {1,
     {4, 1},
     {"tree.results.0.beta_s_per_byte < 0.000000055", "race.halving.bytes < 96.5 * net.parameters",
      "race.tree.bytes < 128.5 * net.parameters"}},
    {2, {1}, {"mine.train_loss < 1.5 * plain.train_loss"}},
    {2, {4}, {"mine.compress.ratio > 25"}},
    {3, {1}, {"race.mine.weights == race.nesterov.weights", "race.mine.weights != race.momentum.weights"}},
    {3, {2}, {"race.mine.weights == race.nesterov.weights"}},
    {4, {1}, {"check.left < 0.05"}},
    {4, {3}, {"check.left < 0.05"}},
    {5, {3}, {"check.cost < 1.05", "other.cost < 1.05"}},
    {5, {4}, {"check.cost < 1.05"}},
    {5, {5}, {"check.cost < 1.05"}},
    {6, {3}, {"check.cost < 1.333", "other.cost < 1.0001"}},
    {6, {4}, {"check.cost < 1.0001"}},
    {7, {1}, {"check.held < 1.0001", "other.held < 1.0001"}},
    {7, {5}, {"check.cost < 1.0001", "check.held < 1.0001"}},
    {7, {2}, {"check.cost < 1.0001", "other.cost < 1.0001"}},
    {8, {2}, {"check.cost < 2"}},
    {11, {2}, {"check.cost < 2", "other.cost < 1.05"}},
    {12, {1}, {"check.cost < 1.333", "other.cost < 1.0001"}},
    {13, {1}, {"check.held < 1.0001", "other.held < 1.0001"}},
    {14, {1}, {"check.cost < 2", "other.cost < 1.15"}},
};

static void assert_broken(const char *folder, const char *check) {
    static const struct json_limits limits = {.depth = 8, .entries = 10000, .text = 65536};
    char path[1000];
    const struct json_value *root;
    struct pool *pool;
    assert_ok(pool_create(&pool));
    snprintf(path, sizeof path, "%s/quick/claims.json", folder);
    if (json_read(path, 1 << 20, limits, pool, &root) != ERR_NONE) fail_msg("%s\n%s", error_message(), p.out);
    const struct json_value *all = json_get(root, "claims"), *found = NULL;
    for (int i = 0; i < all->count; i++)
        if (!strcmp(json_text(&all->children[i], "check"), check)) found = &all->children[i];
    if (!found) fail_msg("%s: no claim '%s'", folder, check);
    if (json_truth(found, "holds")) fail_msg("%s: '%s' holds: %s", folder, check, json_text(found, "numbers"));
    pool_free(pool);
}

/* As a class of wrong hand-ins, each graded with the lab as it comes. */
static void claims_name_mistakes(void **state) {
    (void)state;
    for (int i = 0; i < (int)(sizeof claims / sizeof *claims); i++) {
        int lab = claims[i].lab;
        char name[64], hand_in[700], key[700], into[700], folder[900];
        snprintf(name, sizeof name, "mistake-%d", i);
        make_folder(name);
        for (int k = 0; k < 2 && lessons[lab].files[k]; k++)
            write_solution(name, lessons[lab].files[k], claims[i].wrong[k], NULL);
        place(hand_in, name, NULL);
        snprintf(name, sizeof name, "key-%d", i);
        program_run(&p, 20, "lab", "copy", lessons[lab].lab, place(key, name, NULL), lessons[lab].python, NULL);
        snprintf(name, sizeof name, "graded-%d", i);
        program_run(&p, 300, "lab", "grade", hand_in, "--key", key, "--quick", "-q", "--dir", place(into, name, NULL),
                    NULL);
        program_assert_code(&p, 1);
        snprintf(folder, sizeof folder, "%s/mistake-%d", into, i);
        for (int k = 0; k < 3 && claims[i].checks[k]; k++) assert_broken(folder, claims[i].checks[k]);
    }
}

/* ---- grading ---- */

/* A lab of one step. Fewer cases are a better score here, and a compressor has fewer than a share. */
#define KEY                                                                                                            \
    "title: t\nquestion: q\nminutes: 1\nhand_in: [mine.c]\nscore: check.passed\n"                                      \
    "steps: [{name: check, engine: check mine.so --sizes 2 --json}]\n"                                                 \
    "claims:\n  - {text: Visible, check: check.wrong == 0}\n  - {text: Hidden, check: check.passed < 5}\n"

static void write_hand_in(const char *name, const char *text) {
    char path[700];
    make_folder(name);
    if (text) save_text(place(path, name, "mine.c"), text);
}

/* engine lab grade on these hand-ins, which lie in the folder class. */
static void grade(const char *const *names, const char *into, const char *more) {
    static char paths[16][700];
    char key[700], dir[700];
    const char *words[32] = {"lab", "grade", "-q", "--key", place(key, "key", NULL), "--dir", place(dir, into, NULL),
                             more};
    int n = more ? 8 : 7;
    for (int i = 0; names[i]; i++) {
        char name[64];
        snprintf(name, sizeof name, "class/%s", names[i]);
        words[n++] = place(paths[i], name, NULL);
    }
    words[n] = NULL;
    program_start(&p, words);
    assert_true(program_wait(&p, 120));
}

static void set_up_class(void) {
    char path[700], other[700];
    make_folder("key");
    make_folder("class");
    save_text(place(path, "key", "lab.yaml"), KEY);
    save_text(place(path, "key", "mine.c"), "the key's own is no hand-in\n");
    make_folder("class/share");
    write_solution("class/share", "graph.c", 0, "mine.c");
    make_folder("class/optimizer");
    write_solution("class/optimizer", "nesterov.c", 0, "mine.c");
    make_folder("class/compressor");
    write_solution("class/compressor", "topk.c", 0, "mine.c");
    make_folder("class/wrong");
    write_solution("class/wrong", "nesterov.c", 3, "mine.c");
    /* What it claims of itself plays no part. */
    save_text(place(path, "class/wrong", "lab.yaml"), "title: t\nclaims: [{text: Mine, check: check.exit == 0}]\n");
    save_text(place(path, "class/wrong", "claims.json"), "{\"all_hold\": true}\n");
    write_hand_in("class/empty", NULL);
    write_hand_in("class/typo", "int x = y;\n");
    write_hand_in("class/none", "int x;\n");
    write_hand_in("class/crash",
                  "#include <stdlib.h>\n__attribute__((constructor)) static void f(void) { abort(); }\n");
    write_hand_in("class/endless", "#include <unistd.h>\n__attribute__((constructor)) static void f(void) {\n"
                                   "    if (!fork()) setsid();\n    for (;;) pause();\n}\n");
    make_folder("class/link");
    assert_int_equal(symlink(place(other, "class/share", "mine.c"), place(path, "class/link", "mine.c")), 0);
    make_folder("class/inside");
    write_solution("class/inside", "nesterov.c", 0, "other.c");
    assert_int_equal(symlink("other.c", place(path, "class/inside", "mine.c")), 0);
    make_folder("class/fifo");
    assert_int_equal(mkfifo(place(path, "class/fifo", "mine.c"), 0644), 0);
}

static const struct json_value *graded(const struct json_value *root, int i, const char *name) {
    const struct json_value *at = &json_get(root, "hand_ins")->children[i];
    if (strcmp(json_text(at, "name"), name) != 0) fail_msg("%s is number %d, not %s", json_text(at, "name"), i, name);
    return at;
}

static void every_hand_in_is_a_line(void **state) {
    static const char *const all[] = {"endless", "wrong",   "share", "empty",  "typo",      "none",       "crash",
                                      "link",    "missing", "fifo",  "inside", "optimizer", "compressor", NULL};
    static const struct json_limits limits = {.depth = 8, .entries = 10000, .text = 65536};
    (void)state;
    set_up_class();
    grade(all, "first", "--timeout=6");
    program_assert_code(&p, 1);
    program_assert_says(p.out, "2 of 2          3  inside");
    program_assert_says(p.out, "1 of 2");
    program_assert_says(p.out, "share       Hidden (");
    program_assert_says(p.out, "empty       it lacks mine.c\n");
    program_assert_says(p.out, "link        mine.c is a link to a place outside of its folder\n");
    program_assert_says(p.out, "/class/missing'\n");
    program_assert_says(p.out, "typo        ");
    program_assert_says(p.out, "undeclared");
    program_assert_says(p.out, "none        plug-in '");
    program_assert_says(p.out, "endless     it has not ended within 6 s\n");
    program_assert_says(p.out, "crash       its lab has ended with exit code 134, see ");
    program_assert_says(p.out, "weight 0 is at");
    program_assert_says(p.out, "fifo        ");

    static const char *const four[] = {"wrong", "share", "compressor", "optimizer", NULL};
    grade(four, "second", "--json");
    program_assert_code(&p, 1);
    const struct json_value *root;
    struct pool *pool;
    assert_ok(pool_create(&pool));
    assert_ok(json_parse(p.out, strlen(p.out), limits, pool, &root));
    const struct json_value *best = graded(root, 0, "optimizer"), *next = graded(root, 1, "compressor");
    assert_true(json_number(best, "score") == 3 && json_number(next, "score") == 4);
    assert_true(json_number(best, "hold") == 2 && json_number(best, "claims") == 2);
    assert_int_equal(strlen(json_text(best, "sha256")), 64);
    program_assert_says(json_text(graded(root, 2, "share"), "broken"), "Hidden (");
    assert_true(json_number(graded(root, 2, "share"), "hold") == 1);
    assert_true(json_number(graded(root, 3, "wrong"), "claims") == 0);
    program_assert_says(json_text(graded(root, 3, "wrong"), "reason"), "1 of 3 cases are wrong: downhill: 2000 steps");
    pool_free(pool);

    static const char *const good[] = {"optimizer", NULL};
    grade(good, "third", NULL);
    program_assert_code(&p, 0);
    grade(good, "third", NULL);
    program_assert_code(&p, 73);
    program_assert_says(p.err, "already exists");
}

static void what_cannot_be_graded_is_refused(void **state) {
    char path[700], key[700];
    (void)state;
    static const char *const twice[] = {"share", "../class/share/", NULL}, *const one[] = {"share", NULL};
    grade(twice, "fourth", NULL);
    program_assert_code(&p, 64);
    program_assert_says(p.err, "two hand-ins are called 'share'");
    program_run(&p, 20, "lab", "grade", place(path, "class/share", NULL), NULL);
    program_assert_code(&p, 64);
    program_run(&p, 20, "lab", "grade", "--key", place(key, "key", NULL), NULL);
    program_assert_code(&p, 64);
    program_run(&p, 20, "lab", "grade", ".", "--key", key, NULL);
    program_assert_code(&p, 64);
    program_run(&p, 20, "lab", "grade", path, "--key", "/no/such/folder", NULL);
    program_assert_code(&p, 66);
    save_text(place(path, "key", "lab.yaml"), "title: t\nquestion: q\n");
    grade(one, "fourth", NULL);
    program_assert_code(&p, 78);
    program_assert_says(p.err, "says nothing of 'hand_in'");
    save_text(place(path, "key", "lab.yaml"), "title: t\nhand_in: [a/b.c, ../c.c]\n");
    grade(one, "fourth", NULL);
    program_assert_code(&p, 78);
    program_assert_says(p.err, "lab.yaml:2:11: error: 'hand_in' is a list of up to 8 names of files in this folder");
    program_assert_says(p.err, "2 errors.");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_skeleton_is_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_was_foretold_is_compared, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_solution_has_all_claims_hold, set_up, tear_down),
        cmocka_unit_test_setup_teardown(engine_check_names_mistakes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(claims_name_mistakes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(every_hand_in_is_a_line, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_cannot_be_graded_is_refused, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("code labs", tests, NULL, NULL);
}
