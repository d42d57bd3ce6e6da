/* engine lab check: results as they were made are found unchanged, and each edit of a hand-in is named: by the digests, and,
 * where somebody has made these anew, by what no longer fits together. */
#include "tests/harness/program.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct program p;

#define LAB                                                                                                            \
    "title: A test\nquestion: Why?\nsteps:\n"                                                                          \
    "  - {name: one, run: tiny.yaml --mode single --devices cpu:1}\n"                                                  \
    "  - {name: two, compare: two.yaml}\n"                                                                             \
    "  - {name: first, run: tiny.yaml --mode single --set checkpoint.every=4st}\n"                                     \
    "  - {name: further, run: tiny.yaml --mode single --set train=20st, into: first}\n"                                \
    "  - {name: none, run: nothing.yaml, exit: 66}\n"                                                                  \
    "  - {name: net, engine: [model, summary, lenet, --json]}\n"                                                       \
    "score: two.ddp[devices=cpu:2].train_loss\nclaims:\n"                                                              \
    "  - {text: Bits, check: two.ddp.weights == two.dp.weights}\n"                                                     \
    "  - {text: Time, check: two.ddp.step_best < 100000}\n"                                                            \
    "  - {text: Number, check: one.train_loss < 10}\n"                                                                 \
    "  - {text: Wrong, check: one.val_accuracy > 2}\n"                                                                 \
    "  - {text: Exit, check: none.exit == 66}\n"                                                                       \
    "  - {text: JSON, check: net.layers.fc1.parameters > 1000}\n"

static void put(const char *folder, const char *name, const char *text) {
    char path[800];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    save_text(path, text);
}

static void copy(const char *from, const char *to) {
    char source[700], target[700];
    snprintf(source, sizeof source, "%s", scratch_path(from));
    snprintf(target, sizeof target, "%s", scratch_path(to));
    program_spawn(&p, (const char *const[]){"cp", "-a", source, target, NULL});
    assert_true(program_wait(&p, 60) && p.code == 0);
}

/* The lab, as the lecturer's key and as a student has run it. */
static int set_up(void **state) {
    (void)state;
    char key[700];
    snprintf(key, sizeof key, "%s", scratch_path("key"));
    assert_int_equal(mkdir(key, 0755), 0);
    put(key, "tiny.yaml",
        "model: {zoo: mlp, hidden: [16]}\ndata: {set: digits, train: 200, val: 20}\n"
        "batch: {size: 32, shards: 2}\nthreads: 1\ntrain: 12st\neval: 4st\n");
    put(key, "two.yaml",
        "base: tiny.yaml\nmatrix: {mode: [dp, ddp], devices: [cpu:1, cpu:2]}\n"
        "warmup: 2st\nrepeats: {seeds: 5}\nmetrics: [train_loss]\n");
    put(key, "README.md", "Questions\n");
    put(key, "lab.yaml", LAB);
    copy("key", "made");
    program_run(&p, 120, "lab", "run", scratch_path("made"), "-q", NULL);
    if (p.code != 1) fail_msg("exit code %d:\n%s%s", p.code, p.out, p.err);
    return 0;
}

static const char *key_name = "key";

static void check(const char *hand_in, const char *other) {
    char key[700], first[700], second[700];
    snprintf(key, sizeof key, "%s", scratch_path(key_name));
    snprintf(first, sizeof first, "%s", scratch_path(hand_in));
    if (other) snprintf(second, sizeof second, "%s", scratch_path(other));
    program_run(&p, 60, "lab", "check", "--key", key, first, other ? second : NULL, NULL);
}

/* Answers that were written are no change. */
static void results_as_they_were_made_are_unchanged(void **state) {
    char folder[700];
    (void)state;
    check("made", NULL);
    program_assert_code(&p, 1); /* since a claim does not hold */
    assert_string_equal(p.out, "made: 5 of 6 claims hold; nothing was changed\n");
    snprintf(folder, sizeof folder, "%s", scratch_path("made"));
    program_spawn(
        &p, (const char *const[]){"env", "--chdir", folder, "sha256sum", "-c", "--quiet", "runs/files.sha256", NULL});
    assert_true(program_wait(&p, 60) && p.code == 0);
    copy("made", "answered");
    snprintf(folder, sizeof folder, "%s", scratch_path("answered"));
    put(folder, "README.md", "Answers\n");
    check("answered", NULL);
    program_assert_says(p.out, "answered: 5 of 6 claims hold; nothing was changed\n");
    check("made", "answered");
    program_assert_says(p.out,
                        "answered: 5 of 6 claims hold\n  runs/first/summary.json is also in the hand-in of made\n");
}

/* In the first file of this form the first 'from' that stands there becomes 'to'. to: NULL: the file goes. */
static const struct edit {
    const char *file, *from, *to, *findings[2];
} edits[] = {
    {"runs/one/metrics.jsonl", "\"loss\":2", "\"loss\":1", {"runs/one/metrics.jsonl was changed", "the losses of"}},
    {"runs/one/summary.json", "\"train\":{\"loss\":", "\"train\":{\"loss\":1", {"runs/one: train.loss is 1"}},
    {"runs/one/summary.json", "\"accuracy\":0.", "\"accuracy\":0.9", {"runs/one: val.accuracy is 0.9"}},
    {"runs/one/summary.json", "\"p50\":", "\"p50\":1", {"runs/one: step_ms is 1"}},
    {"runs/one/summary.json", "\"samples_per_s\":", "\"samples_per_s\":1", {"runs/one: samples_per_s is 1"}},
    {"runs/first/summary.json",
     "\"steps\":20",
     "\"steps\":21",
     {"runs/first: metrics.jsonl does not end with step 21"}},
    {"runs/two/cells/ddp-devices-cpu-2*/run-01/metrics.jsonl",
     "\"ms\":",
     "\"ms\":7777",
     {"run-01: step_ms is ", "run-01/metrics.jsonl was changed after the lab had run"}},
    {"runs/two/cells/ddp-devices-cpu-1*/run-02/summary.json",
     "\"weights_sha256\":\"",
     "\"weights_sha256\":\"0",
     {"'two.ddp.weights == two.dp.weights': by claims.json it holds, by the files it does not hold"}},
    {"runs/two/cells/dp-devices-cpu-2*/run-02/resolved.yaml",
     "lr: 0",
     "lr: 1",
     {"run-02: it ran with optimizer.lr '1", "run-02/resolved.yaml was changed"}},
    {"runs/two/cells/dp-devices-cpu-1*/run-02/resolved.yaml",
     "seed: 1",
     "seed: 7",
     {"run-02: it ran with seed 7, and the lab has 1"}},
    {"runs/two/cells/dp-devices-cpu-1*/run-01/summary.json", "", NULL, {"run-01/summary.json is missing", "run 1 is"}},
    {"runs/two/results.json", "cells/ddp", "cells/dp", {"step 'two': "}},
    {"runs/two/results.json", "\"cells/", "\"../", {"results.json' has no run of 'dp devices=cpu:1'"}},
    {"runs/claims.json", "\"holds\":false", "\"holds\":true", {"'one.val_accuracy > 2': by claims.json it holds, by"}},
    {"runs/claims.json", "is below", "is far below", {"': claims.json says '", "and by the files it is"}},
    {"runs/claims.json", "\"exit\":66", "\"exit\":65", {"has no step 'none' that ended with exit code 66"}},
    {"runs/claims.json", "\"check\":\"one", "\"check\":\"two", {"has no claim 'one.train_loss < 10'"}},
    {"runs/claims.json", "\"value\":", "\"value\":1", {"claims.json has the score 1"}},
    {"runs/claims.json", "{", "[", {"claims.json"}},
    {"runs/net.json", "\"parameters\":", "\"parameters\":9", {"runs/net.json was changed after the lab had run"}},
    {"runs/files.sha256", "a", "b", {"runs/files.sha256 is not the one that claims.json names"}},
    {"runs/files.sha256", "  ", " ", {"has a line that is none of sha256sum's"}},
    {"runs/files.sha256", "", NULL, {"files.sha256"}},
    {"lab.yaml", "val_accuracy > 2", "val_accuracy < 2", {"lab.yaml was changed after the lab had run"}},
};

static void edit_file(const char *folder, const struct edit *e) {
    static char text[1 << 20];
    char form[900];
    glob_t found;
    snprintf(form, sizeof form, "%s/%s", folder, e->file);
    if (glob(form, 0, NULL, &found) != 0) fail_msg("no file %s", form);
    snprintf(form, sizeof form, "%s", found.gl_pathv[0]);
    globfree(&found);
    FILE *f = fopen(form, "r");
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    char *at = strstr(text, e->from);
    if (!at) fail_msg("no '%s' in %s", e->from, form);
    assert_int_equal(unlink(form), 0);
    if (!e->to) return;
    f = fopen(form, "w");
    fprintf(f, "%.*s%s%s", (int)(at - text), text, e->to, at + strlen(e->from));
    fclose(f);
}

static void each_edit_is_named(void **state) {
    (void)state;
    for (int i = 0; i < (int)(sizeof edits / sizeof *edits); i++) {
        char name[32];
        snprintf(name, sizeof name, "edit-%d", i);
        copy("made", name);
        edit_file(scratch_path(name), &edits[i]);
        check(name, NULL);
        program_assert_code(&p, 1);
        assert_null(strstr(p.out, "nothing was changed"));
        for (int k = 0; k < 2 && edits[i].findings[k]; k++) program_assert_says(p.out, edits[i].findings[k]);
    }
}

/* Where the lecturer has run the lab as well, losses and weights are compared with those. */
static void bits_are_those_of_the_lecturer(void **state) {
    static const struct edit forged[] = {
        {"runs/one/summary.json", "\"weights_sha256\":\"", "\"weights_sha256\":\"0", {NULL}},
        {"runs/two/cells/ddp-devices-cpu-2*/run-04/summary.json", "losses_sha256\":\"", "losses_sha256\":\"0", {NULL}}};
    (void)state;
    copy("key", "run");
    program_run(&p, 120, "lab", "run", scratch_path("run"), "-q", NULL);
    program_assert_code(&p, 1);
    key_name = "run";
    check("made", NULL);
    assert_string_equal(p.out, "made: 5 of 6 claims hold; nothing was changed\n");
    copy("made", "forged");
    for (int i = 0; i < 2; i++) edit_file(scratch_path("forged"), &forged[i]);
    check("forged", NULL);
    program_assert_says(p.out, "runs/one: its losses or weights are not those of the key's own run");
    program_assert_says(p.out, "run-04: its losses or weights are not those of the key's own run");
    key_name = "key";
    check("forged", NULL);
    assert_null(strstr(p.out, "the key's own run"));
}

/* The lab was made easier, run, and made as it was. */
static void another_lab_is_named(void **state) {
    char folder[700];
    (void)state;
    copy("key", "easier");
    snprintf(folder, sizeof folder, "%s", scratch_path("easier"));
    put(folder, "two.yaml",
        "base: tiny.yaml\nmatrix: {mode: [dp, ddp], devices: [cpu:1, cpu:2]}\n"
        "warmup: 2st\nrepeats: {seeds: 5}\nmetrics: [train_loss]\nbase.train: 3st\n");
    program_run(&p, 120, "lab", "run", folder, "-q", NULL);
    program_assert_code(&p, 78);
    put(folder, "tiny.yaml",
        "model: {zoo: mlp, hidden: [16]}\ndata: {set: digits, train: 200, val: 20}\n"
        "batch: {size: 32, shards: 2}\nthreads: 1\ntrain: 11st\neval: 4st\n");
    copy("key/two.yaml", "easier/two.yaml");
    program_run(&p, 120, "lab", "run", folder, "-q", NULL);
    program_assert_code(&p, 1);
    copy("key/tiny.yaml", "easier/tiny.yaml");
    check("easier", NULL);
    program_assert_says(p.out, "tiny.yaml was changed after the lab had run");
    program_assert_says(p.out, "the lab ran with another tiny.yaml than the key's");
    program_assert_says(p.out, "it ran with train.for '11st', and the lab has '12st'");
}

static void what_a_folder_may_hold_besides(void **state) {
    char folder[700], path[800];
    (void)state;
    copy("made", "odd");
    snprintf(folder, sizeof folder, "%s", scratch_path("odd"));
    snprintf(path, sizeof path, "%s/runs/loop", folder);
    assert_int_equal(symlink("..", path), 0);
    snprintf(path, sizeof path, "%s/runs/fifo.json", folder);
    assert_int_equal(mkfifo(path, 0644), 0);
    put(folder, "runs/more.json", "{}\n");
    put(folder, "notes.txt", "mine\n");
    check("odd", NULL);
    assert_string_equal(p.out, "odd: 5 of 6 claims hold\n  runs/more.json was added after the lab had run\n");
    check("nowhere", NULL);
    program_assert_code(&p, 1);
    program_assert_says(p.out, "nowhere: the claims cannot be judged\n");
}

static void what_cannot_be_checked_is_refused(void **state) {
    (void)state;
    char made[700], code[700];
    snprintf(made, sizeof made, "%s", scratch_path("made"));
    snprintf(code, sizeof code, "%s", scratch_path("code"));
    program_run(&p, 20, "lab", "copy", "27", code, NULL);
    program_run(&p, 20, "lab", "check", made, NULL);
    program_assert_code(&p, 64);
    program_run(&p, 20, "lab", "check", made, "--key", "/no/such/folder", NULL);
    program_assert_code(&p, 66);
    program_run(&p, 20, "lab", "check", made, "--key", code, NULL);
    program_assert_code(&p, 78);
    assert_non_null(strstr(p.err, "engine lab grade --key"));
    program_run(&p, 20, "lab", "check", made, "--json", "--key", scratch_path("key"), NULL);
    program_assert_code(&p, 1);
    program_assert_says(p.out, "\"hold\":5,\"claims\":6,\"findings\":[],\"more\":0}]}");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_as_they_were_made_are_unchanged), cmocka_unit_test(each_edit_is_named),
        cmocka_unit_test(bits_are_those_of_the_lecturer),          cmocka_unit_test(another_lab_is_named),
        cmocka_unit_test(what_a_folder_may_hold_besides),          cmocka_unit_test(what_cannot_be_checked_is_refused),
    };
    return cmocka_run_group_tests_name("lab check", tests, set_up, NULL);
}
