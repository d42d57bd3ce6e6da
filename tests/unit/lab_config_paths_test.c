/* Paths of a configuration: seen from its file, from the working directory on the command line, and absolute afterwards; an
 * identity that does not know them. */
#include "tests/harness/harness.h"

#include "engine/base/file.h"
#include "engine/settings/run_config.h"
#include "engine/train/internal.h"
#include "lab/experiment/experiment.h"
#include "modes/modes.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const algorithms[] = {"ring", "direct", NULL};
static struct run_settings s;
static char *report, here[PATH_MAX];

static int set_up(void **state) {
    (void)state;
    if (chdir(scratch_folder()) != 0 || !getcwd(here, sizeof here)) return -1;
    return file_make_folders("conf/data") == ERR_NONE && file_make_folders("other") == ERR_NONE ? 0 : -1;
}

static int tear_down(void **state) {
    (void)state;
    run_settings_free(&s);
    return 0;
}

static enum error load(const char *path, const char *text, const char *set) {
    if (text) save_text(path, text);
    run_settings_free(&s);
    const struct run_ask ask = {path, &set, set != NULL, mode_kinds(&(int){0}), algorithms, NULL, ASKS_NOTHING};
    return run_settings_load(&ask, &s, &report);
}

static const char *at(const char *section, const char *key) {
    return node_get(node_get(s.tree, section), key)->text;
}

/* What a path of the tree is: "HERE/conf/x". */
static void assert_here(const char *text, const char *path) {
    char full[PATH_MAX + 64];
    snprintf(full, sizeof full, "%s/%s", here, path);
    assert_string_equal(text, full);
}

static void seen_from_the_file(void **state) {
    (void)state;
    save_text("conf/data/x.csv", "a,b\n1,2\n");
    assert_ok(load("conf/c.yaml", "mode: single\ndata: data/x.csv\n", NULL));
    assert_here(at("data", "train"), "conf/data/x.csv");
    assert_string_equal(at("data", "val"), "10%");
    assert_ok(load("conf/c.yaml", "mode: single\ndata: {set: csv, train: ./data/x.csv, val: ../val.csv}\n", NULL));
    assert_here(at("data", "train"), "conf/data/x.csv");
    assert_here(at("data", "val"), "val.csv");
    assert_ok(load("conf/c.yaml", "data: {set: tokens, train: t.bin, characters: bytes}\n", NULL));
    assert_string_equal(at("data", "characters"), "bytes");
    assert_ok(load("conf/c.yaml", "data: {set: tokens, train: t.bin, characters: abc.txt}\n", NULL));
    assert_here(at("data", "characters"), "conf/abc.txt");
    assert_ok(load("conf/c.yaml", "run: {token: \"file:key\"}\ncheckpoint: {resume: last}\nlog: {dir: out}\n", NULL));
    assert_true(!strncmp(at("run", "token"), "file:/", 6));
    assert_here(at("run", "token") + 5, "conf/key");
    assert_here(at("checkpoint", "resume"), "conf/last");
    assert_string_equal(at("log", "dir"), "out"); /* this one is seen from the working directory */
    assert_ok(load("conf/c.yaml", "checkpoint: {resume: auto}\nmodel: {zoo: mlp, init: w}\n", NULL));
    assert_string_equal(at("checkpoint", "resume"), "auto");
    assert_here(s.config.init.path, "conf/w");
}

static void seen_from_the_working_directory(void **state) {
    (void)state;
    save_text("x.csv", "a,b\n1,2\n");
    assert_ok(load("conf/c.yaml", "mode: single\n", "data=x.csv"));
    assert_here(at("data", "train"), "x.csv");
    assert_ok(load("conf/c.yaml", "data: data/x.csv\n", "data.val=conf/../x.csv"));
    assert_here(at("data", "train"), "conf/data/x.csv");
    assert_here(at("data", "val"), "x.csv");
    assert_ok(load("conf/c.yaml", "mode: single\n", "checkpoint.resume=runs/a"));
    assert_here(at("checkpoint", "resume"), "runs/a");
}

/* Neither folder stands in for the other. */
static void in_the_wrong_folder(void **state) {
    (void)state;
    static const char *const texts[] = {"data: only.csv\n", "data: {set: csv, train: only.csv}\n",
                                        "data: {train: only.csv}\n"};
    save_text("only.csv", "a,b\n1,2\n");
    for (int i = 0; i < 3; i++) {
        assert_fails(ERR_CONFIG, load("conf/c.yaml", texts[i], NULL));
        assert_non_null(strstr(report, "is seen from the configuration's folder, where there is no"));
        assert_non_null(strstr(report, "/conf/only.csv"));
        assert_non_null(strstr(report, "=only.csv"));
        assert_non_null(strstr(report, "1 error."));
    }
    assert_ok(load("conf/c.yaml", "data: ../only.csv\n", NULL));
}

/* What is resolved is the same when it is read from elsewhere, and links keep the name that says what they are. */
static void resolved_is_absolute(void **state) {
    (void)state;
    save_text("conf/blob", "a,b\n1,2\n");
    if (symlink("blob", "conf/linked.csv") != 0) fail_msg("no link");
    assert_ok(load("conf/c.yaml", "mode: single\ndata: linked.csv\n", NULL));
    assert_here(at("data", "train"), "conf/linked.csv");
    char *text = tree_write(s.tree, true, s.pool);
    save_text("other/resolved.yaml", text);
    assert_ok(load("other/resolved.yaml", NULL, NULL));
    assert_here(at("data", "train"), "conf/linked.csv");
}

/* Of what a resume compares: what the data are, and not where. */
static void no_part_of_the_identity(void **state) {
    (void)state;
    static const char *const texts[] = {"data: data/x.csv\n", "data: {set: csv, train: ../conf/data/x.csv}\n",
                                        "data: {set: csv, train: ../x.csv}\n"};
    char *first = NULL;
    for (int i = 0; i < 3; i++) {
        assert_ok(load("conf/c.yaml", texts[i], NULL));
        const struct job job = {.settings = &s, .mode = s.mode};
        const char *identity = trainer_identity(&job);
        assert_null(strstr(identity, "x.csv"));
        assert_non_null(strstr(identity, "data=set: csv;val: 10%"));
        if (!first) first = strdup(identity);
        assert_string_equal(identity, first);
    }
    free(first);
}

/* A cell's configuration lies in another folder than the experiment. */
static void in_an_experiment(void **state) {
    (void)state;
    struct experiment x;
    save_text("conf/e.yaml", "base: {data: data/x.csv, train: 50st}\nmatrix: {mode: [dp, ddp]}\n");
    assert_ok(experiment_open(&(struct experiment_source){.path = "conf/e.yaml"}, &x, &report));
    struct config_errors *e;
    struct node *root;
    assert_ok(config_errors_create(&e));
    assert_ok(tree_parse(x.cell[1].config, strlen(x.cell[1].config), "c", x.pool, e, &root));
    assert_here(node_get(root, "data")->text, "conf/data/x.csv");
    config_errors_free(e);
    experiment_close(&x);
    save_text("conf/e.yaml", "base: {model: {zoo: mlp, init: w}, train: 50st}\nmatrix:\n  data: [{set: csv, train: "
                             "data/x.csv}, {set: csv, train: ../x.csv}]\n");
    assert_ok(experiment_open(&(struct experiment_source){.path = "conf/e.yaml"}, &x, &report));
    char full[2][PATH_MAX + 64];
    snprintf(full[0], sizeof full[0], "init: %s/conf/w\n", here);
    snprintf(full[1], sizeof full[1], "train: %s/x.csv\n", here);
    for (int i = 0; i < 2; i++) assert_non_null(strstr(x.cell[1].config, full[i]));
    assert_string_not_equal(x.cell[0].digest, x.cell[1].digest);
    experiment_close(&x);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(seen_from_the_file, tear_down),
        cmocka_unit_test_teardown(seen_from_the_working_directory, tear_down),
        cmocka_unit_test_teardown(in_the_wrong_folder, tear_down),
        cmocka_unit_test_teardown(resolved_is_absolute, tear_down),
        cmocka_unit_test_teardown(no_part_of_the_identity, tear_down),
        cmocka_unit_test_teardown(in_an_experiment, tear_down),
    };
    return cmocka_run_group_tests_name("paths", tests, set_up, NULL);
}
