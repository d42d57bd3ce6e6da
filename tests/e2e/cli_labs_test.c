/* engine lab as a student meets it: the list, a copy, a lab that is run, claims that do not hold. */
#include "tests/harness/program.h"

#include "engine/base/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct program p;
static char folder[600];

static int set_up(void **state) {
    (void)state;
    static int tests;
    char name[32];
    if (!tests) setenv("TMPDIR", scratch_folder(), 1);
    snprintf(name, sizeof name, "lab-%d", ++tests);
    snprintf(folder, sizeof folder, "%s", scratch_path(name));
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    return program_orphans();
}

static void write_file(const char *name, const char *text) {
    char path[700];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    save_text(path, text);
}

static bool has_file(const char *name) {
    char path[700];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return access(path, F_OK) == 0;
}

/* ---- a lab of our own ---- */

#define TINY                                                                                                           \
    "model: {zoo: mlp, hidden: [16]}\ndata: {set: digits, train: 200, val: 20}\n"                                      \
    "batch: {size: 32, shards: 2}\nthreads: 1\n"

static void write_lab(const char *claims) {
    assert_int_equal(mkdir(folder, 0755), 0);
    write_file("tiny.yaml", TINY "train: 12st\n");
    write_file("two.yaml", "base: tiny.yaml\nmatrix: {mode: [dp, ddp], devices: [cpu:1, cpu:2]}\n"
                           "warmup: 2st\nrepeats: 5\n");
    char text[4096];
    snprintf(text, sizeof text,
             "title: A test\nquestion: Why?\nsteps:\n"
             "  - {name: one, run: tiny.yaml --mode single --devices cpu:1, quick: --set train=5st}\n"
             "  - {name: two, compare: two.yaml, quick: --set train=5st}\n"
             "  - {name: first, run: tiny.yaml --mode single --set checkpoint.every=4st}\n"
             "  - {name: further, run: tiny.yaml --mode single --set train=20st, into: first}\n"
             "  - {name: none, run: nothing.yaml, exit: 66}\n"
             "  - {name: net, engine: [model, summary, lenet, --json]}\n"
             "look: [The table]\nclaims:\n%s",
             claims);
    write_file("lab.yaml", text);
}

static void claims_are_held_against_steps(void **state) {
    (void)state;
    write_lab("  - {text: Bits, check: two.ddp.weights == two.dp.weights}\n"
              "  - {text: Of a run, check: \"two.A[devices=cpu:2].weights == one.weights\"}\n"
              "  - {text: Number, check: one.train_loss < 10}\n"
              "  - {text: It went on, check: further.steps == 20}\n"
              "  - {text: And changed, check: further.weights != first.weights}\n"
              "  - {text: Exit, check: none.exit == 66}\n"
              "  - {text: JSON, check: net.layers.fc1.parameters > 1000}\n"
              "  - {text: Last, check: net.layers.last.kind == linear}\n"
              "  - {text: Full only, check: two.A.spread >= 0, quick: false}\n"
              "  - {text: Effect, check: two.ddp.step_time.effect > 0}\n"
              "  - {text: Interval, check: two.ddp.low < two.ddp.high, quick: false}\n"
              "  - {text: Verdict, check: two.ddp.step_time.verdict != none, quick: false}\n");
    program_run(&p, 120, "lab", "run", folder, "--quick", NULL);
    program_assert_code(&p, 0);
    program_assert_says(p.out, "yes  Bits\n     in all of 2; the closest ddp");
    program_assert_says(p.out, "  -  Full only\n     not judged in quick form");
    program_assert_says(p.out, "9 of 9 hold, 3 not judged in quick form");
    program_assert_says(p.out, "engine run tiny.yaml --mode single --set train=20st --set "
                               "log.dir=quick/first --resume");
    program_assert_says(p.out, "1 run a side: fewer than 4 allow no verdict");
    assert_true(has_file("quick/claims.json"));
    assert_true(has_file("quick/two/report.html"));
    assert_true(has_file("quick/one/report.html"));
    assert_false(has_file("runs"));

    /* the full form is another place, and its claims are all judged */
    program_run(&p, 120, "lab", "run", folder, "-q", "--json", NULL);
    program_assert_code(&p, 0);
    struct pool *pool;
    assert_ok(pool_create(&pool));
    const struct json_value *j = program_json(&p, pool), *claims = json_get(j, "claims");
    assert_true(json_get(j, "all_hold")->truth);
    assert_int_equal(claims->count, 12);
    for (int i = 0; i < 12; i++) assert_true(json_get(&claims->children[i], "holds")->truth);
    assert_int_equal(json_get(&json_get(j, "steps")->children[4], "exit")->integer, 66);
    pool_free(pool);
    assert_true(has_file("runs/two/results.json"));
}

static void a_claim_that_does_not_hold_is_told(void **state) {
    (void)state;
    write_lab("  - {text: Fine, check: one.exit == 0}\n"
              "  - {text: Wrong, check: two.ddp.weights != two.dp.weights @ devices == cpu:2}\n"
              "  - {text: Not there, check: net.nothing > 1}\n"
              "  - {text: Too little, check: one.train_loss > 1000}\n"
              "  - {text: Slow, check: one.step_best > 1e9}\n");
    program_run(&p, 120, "lab", "run", folder, "--quick", "-q", NULL);
    program_assert_code(&p, 1);
    program_assert_says(p.out, "yes  Fine");
    program_assert_says(p.out, " NO  Wrong\n     ddp devices=cpu:2: ");
    program_assert_says(p.out, "     wanted: two.ddp.weights != two.dp.weights @ devices == cpu:2");
    program_assert_says(p.out, "  ?  Not there\n     not measured is not above 1");
    program_assert_says(p.out, " NO  Too little\n");
    program_assert_says(p.out, "is not above 1000");
    program_assert_says(p.out, "     wanted: one.train_loss > 1000\n NO  Slow\n");
    program_assert_says(p.out, "     wanted: one.step_best > 1e9\n     The claim is about time: ");
    program_assert_says(p.out, "1 of 5 hold");
}

static void a_step_that_fails_ends_the_lab(void **state) {
    (void)state;
    write_lab("  - {text: Fine, check: one.exit == 0}\n");
    write_file("nothing.yaml", TINY "train: 2st\nlog: {dir: nothing}\n");
    program_run(&p, 120, "lab", "run", folder, "--quick", "-q", NULL);
    program_assert_code(&p, 1);
    program_assert_says(p.err, "step 'none' has ended with exit code 0, not 66");
    assert_null(strstr(p.out, "Fine"));
    write_file("tiny.yaml", TINY "train: much\n");
    program_run(&p, 120, "lab", "run", folder, "--quick", "-q", NULL);
    program_assert_code(&p, 78);
}

static void what_is_wrong_with_a_lab_is_told_at_its_place(void **state) {
    (void)state;
    write_lab("  - {text: a, check: tow.ddp.step_time > 1}\n"
              "  - {text: b, check: two.ddp.speed > 1}\n"
              "  - {text: c, check: two.ddp.step_time > 1 @ devices > cpu:2}\n"
              "  - {text: d, check: one.train_loss > two.dp.train_loss}\n"
              "  - {text: e, check: one.exit == 0 @ devices == cpu:1}\n"
              "  - {text: f, check: 3 > 2}\n");
    program_run(&p, 60, "lab", "run", folder, NULL);
    program_assert_code(&p, 78);
    static const char *const told[] = {
        "lab.yaml:12:22: error: claim 'tow.ddp.step_time > 1': there is no step 'tow', did you",
        "mean 'two'?",
        "SIDE.METRIC is wanted, not 'ddp.speed'",
        "lab.yaml:14:22: error: claim 'two.ddp.step_time > 1 @ devices > cpu:2': no cell of the",
        "'two.dp.train_loss' is no single cell",
        "conditions are for steps that compare",
        "STEP.METRIC is wanted first, not '3 > 2'",
        "6 errors."};
    for (size_t i = 0; i < sizeof told / sizeof *told; i++) program_assert_says(p.err, told[i]);
    write_file("lab.yaml", "titel: x\nsteps:\n  - {name: a b, run: x}\n  - {name: c}\n"
                           "  - {name: c, run: {x: y}, exit: 300}\n  - {name: d, run: x, into: e}\n"
                           "  - {name: f, compare: nothing.yaml}\nclaims: none\n");
    program_run(&p, 60, "lab", "run", folder, NULL);
    program_assert_code(&p, 78);
    static const char *const more[] = {"did you mean 'title'?",
                                       "lab.yaml:3:12: error: a step's name is of letters",
                                       "a step has one of run, compare, bench, engine and read",
                                       "'exit' must be at most 255",
                                       "'into' names a run among the earlier steps, not 'e'",
                                       "step 'f': ",
                                       "nothing.yaml",
                                       "'claims' is a list of one or more"};
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) program_assert_says(p.err, more[i]);
    program_run(&p, 60, "lab", "run", "./nowhere", NULL);
    program_assert_code(&p, 66);
}

static void a_python_module_that_is_missing_is_named(void **state) {
    (void)state;
    assert_int_equal(mkdir(folder, 0755), 0);
    write_file("lab.yaml", "title: t\nquestion: q\nneeds: {python: no_such_module_here}\n"
                           "steps: [{name: net, engine: [model, summary, lenet, --json]}]\n"
                           "claims: [{text: JSON, check: net.layers.fc1.parameters > 1000}]\n");
    program_run(&p, 60, "lab", "run", folder, "-q", NULL);
    program_assert_code(&p, 69);
    program_assert_says(p.err, "needs the Python module no_such_module_here, which python3 does not find");
}

/* ---- those that come with the program ---- */

static void labs_are_listed_shown_and_copied(void **state) {
    (void)state;
    program_run(&p, 20, "lab", "list", NULL);
    program_assert_code(&p, 0);
    program_assert_says(p.out, "\n03-ps-vs-ring ");
    program_run(&p, 20, "lab", "show", "3", NULL);
    program_assert_code(&p, 0);
    program_assert_says(p.out, "engine lab run 03");
    program_run(&p, 20, "lab", "show", "ps-vs-rign", NULL);
    program_assert_code(&p, 66);
    program_assert_says(p.err, "did you mean 'ps-vs-ring'?");
    program_run(&p, 20, "lab", "copy", "ps-vs-ring", folder, NULL);
    program_assert_code(&p, 0);
    assert_true(has_file("lab.yaml") && has_file("ps-vs-ring.yaml") && has_file("README.md"));
    program_run(&p, 20, "lab", "copy", "03", folder, NULL);
    program_assert_code(&p, 73);
    program_assert_says(p.err, "already exists");
    program_run(&p, 20, "lab", "copy", "03", NULL);
    program_assert_code(&p, 64);
    program_run(&p, 20, "lab", "runn", "03", NULL);
    program_assert_code(&p, 64);
    program_run(&p, 20, "lab", NULL);
    program_assert_code(&p, 64);
}

/* The course of docs/teaching.md has each lab once, with its minutes: "03 (2". */
static void the_course_has_every_lab(void **state) {
    (void)state;
    struct pool *pool;
    char *text, entry[32];
    size_t n;
    assert_ok(pool_create(&pool));
    assert_ok(file_read(ENGINE_SOURCE_DIR "/docs/teaching.md", 1 << 20, pool, &text, &n));
    program_run(&p, 20, "lab", "list", "--json", NULL);
    const struct json_value *labs = json_get(program_json(&p, pool), "labs");
    for (int i = 0; i < labs->count; i++) {
        const struct json_value *lab = &labs->children[i];
        snprintf(entry, sizeof entry, "%.2s (%g", json_text(lab, "name"), json_number(lab, "minutes"));
        char *at = strstr(text, entry);
        if (!at || strstr(at + 1, entry)) fail_msg("docs/teaching.md has not once '%s'", entry);
    }
    pool_free(pool);
}

/* What a student has changed in his copy stays. */
static void a_changed_copy_stays_as_it_is(void **state) {
    (void)state;
    program_run(&p, 60, "lab", "run", "hello", "--quick", "-q", "--dir", folder, NULL);
    program_assert_code(&p, 0);
    write_file("digits.yaml", TINY "train: 200st\n");
    program_run(&p, 60, "lab", "run", "00", "--quick", "-q", "--dir", folder, NULL);
    program_assert_says(p.err, "kept 1 file that you changed in");
    program_run(&p, 60, "lab", "run", folder, "--quick", "-q", "--dir", "elsewhere", NULL);
    program_assert_code(&p, 64);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(claims_are_held_against_steps, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_claim_that_does_not_hold_is_told, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_step_that_fails_ends_the_lab, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_wrong_with_a_lab_is_told_at_its_place, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_python_module_that_is_missing_is_named, set_up, tear_down),
        cmocka_unit_test_setup_teardown(labs_are_listed_shown_and_copied, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_course_has_every_lab, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_changed_copy_stays_as_it_is, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("labs", tests, NULL, NULL);
}
