/* Labs: what a check is, what claims come to, and that a lab.yaml may be anything. */
#include "tests/harness/harness.h"

#include "lab/experiment/check.h"
#include "lab/lesson/claim.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static char folder[600];

static int set_up(void **state) {
    (void)state;
    static int tests;
    char name[32];
    scratch_folder();
    snprintf(name, sizeof name, "lesson-%d", ++tests);
    snprintf(folder, sizeof folder, "%s", scratch_path(name));
    return mkdir(folder, 0755);
}

static void write_file(const char *name, const char *text) {
    char path[700];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    save_text(path, text);
}

/* ---- checks ---- */

static void checks_are_taken_apart(void **state) {
    (void)state;
    struct check c;
    char wrong[CHECK_WRONG];
    assert_true(check_read("a.b > 1.5 * c[x=1,y==2].d - 0.25 @ k >= cpu:4, l.m != two words", &c, wrong));
    assert_string_equal(c.term[0].quantity, "a.b");
    assert_true(c.term[0].factor == 1 && c.term[0].plus == 0 && c.op == IS_GT);
    assert_string_equal(c.term[1].quantity, "c[x=1,y==2].d");
    assert_true(c.term[1].factor == 1.5 && c.term[1].plus == -0.25);
    assert_int_equal(c.nconditions, 2);
    assert_string_equal(c.condition[1].axis, "l.m");
    assert_string_equal(c.condition[1].value, "two words");
    assert_true(check_read("a<=3e2", &c, wrong));
    assert_true(c.op == IS_LE && !*c.term[1].quantity && c.term[1].factor == 300);
    assert_true(check_read("a.low>-0.05 @ k == -1", &c, wrong));
    assert_true(c.op == IS_GT && !*c.term[1].quantity && c.term[1].factor == -0.05);
    assert_true(check_read("64KB.t > 5ms.t", &c, wrong)); /* sides may begin with digits */
    assert_string_equal(c.term[1].quantity, "5ms.t");
    static const char *const bad[] = {"",        "a",         "a >",     "> 1",       "a = 1",
                                      "a > 1 2", "a > b + c", "a > 1 @", "a > 1 @ x", "a > 1 @ x ="};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (check_read(bad[i], &c, wrong) || !*wrong) fail_msg("'%s' was taken", bad[i]);
    char much[600];
    memset(much, 'x', sizeof much);
    memcpy(much + 500, " > 1", 5);
    assert_false(check_read(much, &c, wrong));
}

static void values_are_held_against_each_other(void **state) {
    (void)state;
    assert_true(relation_of_words("cpu:8", IS_GE, "cpu:4"));
    assert_true(relation_of_words("off", IS_GT, "10Gbit"));
    assert_true(relation_of_words("64KB", IS_LT, "1MB"));
    assert_true(relation_of_words("ring", IS_NE, "tree"));
    assert_false(relation_of_words("ring", IS_GT, "tree"));
    struct check_value one = {1, 0, {0}}, none = {(double)NAN, 0, {0}}, same = {0, 2, {"a", "a"}},
                       mixed = {0, 2, {"a", "b"}}, other = {0, 1, {"c"}};
    assert_int_equal(check_holds(&one, IS_GE, &one), 1);
    assert_int_equal(check_holds(&one, IS_GT, &one), 0);
    assert_int_equal(check_holds(&one, IS_GT, &none), -1);
    assert_int_equal(check_holds(&none, IS_NE, &one), -1);
    assert_int_equal(check_holds(&same, IS_EQ, &same), 1);
    assert_int_equal(check_holds(&same, IS_EQ, &mixed), 0);
    assert_int_equal(check_holds(&same, IS_NE, &mixed), 0); /* some are alike */
    assert_int_equal(check_holds(&mixed, IS_NE, &other), 1);
    assert_int_equal(check_holds(&same, IS_GT, &other), -1);
    assert_int_equal(check_holds(&same, IS_EQ, &one), -1);
    /* of seeds, only what belongs to the same one */
    struct check_value seeds = {0, 2, {"a", "b"}, {1, 2}}, turned = {0, 2, {"b", "a"}, {2, 1}},
                       another = {0, 2, {"a", "b"}, {2, 1}}, third = {0, 1, {"a"}, {3}};
    assert_int_equal(check_holds(&seeds, IS_EQ, &turned), 1);
    assert_int_equal(check_holds(&seeds, IS_NE, &turned), 0);
    assert_int_equal(check_holds(&seeds, IS_EQ, &another), 0);
    assert_int_equal(check_holds(&seeds, IS_NE, &another), 1);
    assert_int_equal(check_holds(&seeds, IS_EQ, &third), -1);
    assert_int_equal(check_holds(&seeds, IS_NE, &other), 1); /* of no seed, so against all */
    assert_int_equal(check_holds(&seeds, IS_EQ, &same), 0);
}

/* ---- claims ---- */

static const char lab[] = "title: t\nquestion: q\nminutes: 2\nneeds: {gpus: 0}\n"
                          "steps:\n  - {name: r, run: x.yaml, quick: --set a=b}\n  - {name: two, compare: e.yaml}\n"
                          "  - {name: j, engine: [model, list, --json], under: nice -n 3}\n"
                          "look: [here]\n"
                          "claims:\n  - {text: a, check: j.list.ring.t < 2}\n  - {text: b, check: j.list.1.t > 2.5}\n"
                          "  - {text: c, check: j.list.last.name == star}\n  - {text: d, check: r.weights == j.hash}\n"
                          "  - {text: e, check: j.list.7.t > 0}\n  - {text: f, check: r.seconds < 2 * j.seconds - 1}\n"
                          "  - {text: g, check: two.B.step_time < two.A.step_time @ devices == cpu:2}\n"
                          "  - {text: h, check: r.step_best < 1}\n  - {text: i, check: j.row.beta_s_per_byte < 1}\n"
                          "  - {text: k, check: two.B.effect < 1}\n  - {text: l, check: two.B.bytes < 1}\n"
                          "  - {text: m, check: two.B.train_loss.effect < 1}\n  - {text: n, check: j.step_ms.p50 < 1}\n"
                          "  - {text: o, check: j.lost_steps < 1}\n  - {text: p, check: 2 * r.seconds < 1}\n"
                          "  - {text: q, check: j.list.1.t < 1, timed: true}\n  - {text: r, check: r.exit == 0}\n";
static const char experiment[] = "base: {data: digits, train: 50st}\nmetrics: [step_time, train_loss]\n"
                                 "matrix: {mode: [dp, ddp], devices: [cpu:1, cpu:2]}\n";

static void claims_come_to_numbers(void **state) {
    (void)state;
    static struct lesson l;
    static struct lesson_outcome o[LESSON_STEPS];
    struct run_result run = {.weights = "w", .losses = "l"};
    struct result_step step = {.ms = 0.5};
    char *report;
    static const char told[] = "{\"hash\":\"w\",\"list\":[{\"name\":\"ring\",\"t\":1},"
                               "{\"name\":\"star\",\"t\":3}]}";
    write_file("lab.yaml", lab);
    write_file("e.yaml", experiment);
    enum error err = lesson_open(folder, true, &l, &report);
    if (err != ERR_NONE) fail_msg("%s", report ? report : error_message());
    assert_int_equal(l.step[0].nwords, 3); /* quick form has more words */
    assert_string_equal(l.step[0].words[2], "a=b");
    assert_string_equal(l.step[2].under[2], "3");
    assert_int_equal(l.step[1].experiment->repeats, 1);
    run.step = &step, run.nsteps = 1;
    o[0] = (struct lesson_outcome){.done = true, .seconds = 4, .run = &run};
    o[2] = (struct lesson_outcome){.done = true, .seconds = 3};
    assert_ok(json_parse(told, strlen(told), (struct json_limits){4, 64, 64}, l.pool, &o[2].told));
    static const int holds[] = {1, 1, 1, 1, -1, 1, -1, 1}; /* of the first claims */
    for (int i = 0; i < (int)(sizeof holds / sizeof *holds); i++) {
        struct claim_result r = claim_judge(&l, &l.claim[i], o);
        if (r.holds != holds[i]) fail_msg("%s: %d, %s", l.claim[i].check, r.holds, r.numbers);
    }
    assert_string_equal(claim_judge(&l, &l.claim[1], o).numbers, "3 is above 2.5");
    o[2].seconds = 2;
    assert_int_equal(claim_judge(&l, &l.claim[5], o).holds, 0);
    assert_string_equal(claim_judge(&l, &l.claim[5], o).numbers, "4 is not below 3");
    o[0].done = false;
    assert_int_equal(claim_judge(&l, &l.claim[5], o).holds, -1);
    lesson_close(&l);
}

static void claims_about_time_are_known(void **state) {
    (void)state;
    static struct lesson l;
    char *report, timed[LESSON_CLAIMS + 1] = "";
    write_file("lab.yaml", lab);
    write_file("e.yaml", experiment);
    assert_ok(lesson_open(folder, false, &l, &report));
    for (int i = 0; i < l.nclaims; i++) timed[i] = l.claim[i].timed ? *l.claim[i].text : '.';
    assert_string_equal(timed, ".....fghik..n.pq.");
    lesson_close(&l);
}

/* Whatever byte is another, and wherever the text ends: read or refused, never more. */
static void labs_may_be_anything(void **state) {
    (void)state;
    static const char odd[] = "{}[]:#'\"*-x\n@.,>";
    char copy[sizeof lab];
    int refused = 0, all = 0;
    write_file("e.yaml", experiment);
    for (size_t at = 0; at + 1 < sizeof lab; at += 3) {
        static struct lesson l;
        char *report;
        memcpy(copy, lab, sizeof lab);
        copy[at] = odd[at % (sizeof odd - 1)];
        if (at % 7 == 0) copy[at + 1] = '\0';
        write_file("lab.yaml", copy);
        enum error err = lesson_open(folder, false, &l, &report);
        refused += err != ERR_NONE, all++;
        if (err == ERR_CONFIG) assert_non_null(report);
        lesson_close(&l);
    }
    assert_true(refused > all / 4 && refused < all);
}

static void limits_are_kept(void **state) {
    (void)state;
    static struct lesson l;
    static char text[1 << 16];
    char *report, *at = text;
    at += sprintf(at, "title: t\nquestion: q\nsteps:\n");
    for (int i = 0; i <= LESSON_STEPS; i++) at += sprintf(at, "  - {name: s%d, run: x}\n", i);
    at += sprintf(at, "  - {name: w, run: [a");
    for (int i = 0; i <= LESSON_WORDS; i++) at += sprintf(at, ", b");
    at += sprintf(at, "]}\nclaims:\n");
    for (int i = 0; i <= LESSON_CLAIMS; i++) at += sprintf(at, "  - {text: t, check: s1.exit == 0}\n");
    write_file("lab.yaml", text);
    assert_fails(ERR_CONFIG, lesson_open(folder, false, &l, &report));
    assert_non_null(strstr(report, "more than 24 steps"));
    assert_non_null(strstr(report, "more than 32 claims"));
    lesson_close(&l);
}

/* One number; of a run, of a comparison's cell, or by a path. */
static void scores_are_numbers(void **state) {
    static const struct {
        const char *score, *wrong;
        bool timed, rises;
    } of[] = {{"r.step_best", NULL, true, false},
              {"r.throughput", NULL, true, true},
              {"2 * j.list.1.t", NULL, false, false},
              {"two.B[devices=cpu:2].bytes", NULL, false, false},
              {"two.B[devices=cpu:2].throughput", NULL, true, true},
              {"two.B[devices=cpu:2].spread", NULL, true, false},
              {"two.B[devices=cpu:2].speedup", NULL, true, true},
              {"two.B.step_time", "this is no single cell", false, false},
              {"two.B[devices=cpu:2].weights", "a score is a number", false, false},
              {"3", "STEP.METRIC is wanted first", false, false},
              {"tow.B.step_time", "there is no step 'tow'", false, false},
              {"two.B.steptime", "score 'two.B.steptime': ", false, false}};
    static struct lesson l;
    static struct lesson_outcome o[LESSON_STEPS];
    char text[sizeof lab + 64], *report;
    struct run_result run = {0};
    struct result_step step = {.ms = 0.5};
    (void)state;
    run.step = &step, run.nsteps = 1;
    o[0] = (struct lesson_outcome){.done = true, .run = &run};
    write_file("e.yaml", experiment);
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        snprintf(text, sizeof text, "%sscore: %s\n", lab, of[i].score);
        write_file("lab.yaml", text);
        enum error err = lesson_open(folder, false, &l, &report);
        if (of[i].wrong && (err != ERR_CONFIG || !report || !strstr(report, of[i].wrong)))
            fail_msg("%s: %s", of[i].score, report ? report : "was taken");
        if (!of[i].wrong) {
            if (err != ERR_NONE) fail_msg("%s: %s", of[i].score, report ? report : error_message());
            if (l.score.timed != of[i].timed || l.score_rises != of[i].rises)
                fail_msg("%s: timed %d, rises %d", of[i].score, l.score.timed, l.score_rises);
            if (i == 0) assert_true(claim_judge(&l, &l.score, o).value == 0.5);
        }
        lesson_close(&l);
    }
}

/* Each of those that come with the program can be read. */
static void labs_are_found_by_number_and_name(void **state) {
    (void)state;
    struct pool *pool;
    struct lesson_about all[LESSONS_MOST];
    const char *full;
    int n, kept, pythons = 0;
    assert_ok(pool_create(&pool));
    assert_ok(lesson_list(pool, all, &n));
    assert_true(n >= 11);
    for (int i = 0; i < n; i++) {
        static struct lesson l;
        char *report, dir[700];
        snprintf(dir, sizeof dir, "%s/%s", folder, all[i].name);
        assert_ok(lesson_copy(all[i].name, dir, false, pool, &kept));
        for (int quick = 0; quick < 2; quick++) {
            if (lesson_open(dir, quick, &l, &report) != ERR_NONE)
                fail_msg("%s: %s", all[i].name, report ? report : error_message());
            lesson_close(&l);
        }
        assert_true(strlen(lesson_readme(all[i].name)) > 500);
        assert_true(*all[i].title && *all[i].question && all[i].minutes > 0);
        snprintf(dir, sizeof dir, "%s/%s-in-python", folder, all[i].name);
        enum error err = lesson_copy(all[i].name, dir, true, pool, &kept);
        pythons += err == ERR_NONE;
        if (err != ERR_NONE) continue;
        /* A plan in Python that is not there yet is an error of the experiments that name it. */
        if (lesson_open(dir, false, &l, &report) != ERR_NONE && !strstr(report, "ends without the term of rank 1"))
            fail_msg("%s: %s", all[i].name, report);
        lesson_close(&l);
    }
    assert_int_equal(pythons, 6);
    static const char *const same[] = {"3", "03", "ps-vs-ring", "03-ps-vs-ring"};
    for (int i = 0; i < 4; i++) {
        assert_ok(lesson_find(same[i], pool, &full));
        assert_string_equal(full, "03-ps-vs-ring");
    }
    assert_fails(ERR_INPUT, lesson_find("99", pool, &full));
    assert_fails(ERR_INPUT, lesson_find("", pool, &full));
    pool_free(pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(checks_are_taken_apart),
        cmocka_unit_test(values_are_held_against_each_other),
        cmocka_unit_test_setup(claims_come_to_numbers, set_up),
        cmocka_unit_test_setup(claims_about_time_are_known, set_up),
        cmocka_unit_test_setup(labs_may_be_anything, set_up),
        cmocka_unit_test_setup(limits_are_kept, set_up),
        cmocka_unit_test_setup(scores_are_numbers, set_up),
        cmocka_unit_test_setup(labs_are_found_by_number_and_name, set_up),
    };
    return cmocka_run_group_tests_name("lesson", tests, NULL, NULL);
}
