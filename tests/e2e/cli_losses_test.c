/* Losses and mixed samples by the program: the same bits everywhere, exact after a resume in the middle of an epoch, and
 * numbers that a reader can compute from what 'predict' says. */
#include "tests/harness/program.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct program control, other;

/* 300 samples: the last batch has 44. */
static const char *const common[] = {"model={layers: [flatten, {linear: 48}, relu, {dropout: 0.1}, {linear: 10}]}",
                                     "batch={size: 64, shards: 8}",
                                     "data={set: digits, train: 300, val: 70, augment: [{crop: 2}, {mixup: 0.4}, "
                                     "{cutmix: 1.0}]}",
                                     "loss={name: cross_entropy, smoothing: 0.1, weights: balanced}",
                                     "train=12st",
                                     "threads=1",
                                     "eval=end",
                                     "optimizer={name: sgd, lr: 0.05, momentum: 0.9}",
                                     NULL};

static void mixing_gives_the_same_bits_everywhere(void **state) {
    (void)state;
    static const char *const places[][4] = {
        {"mode=dp", "devices=cpu:2", "checkpoint=off", "data.workers=3"},
        {"mode=ddp", "devices=cpu:3", "checkpoint=off", "ddp.bucket.first=1KB"},
        {"mode=dp", "devices=cpu:5", "checkpoint=off", "dp={server: dedicated, scatter: server}"},
        {"mode=ddp", "devices=cpu:8", "checkpoint=off", "comm.link=tcp"},
    };
    program_train(&control, common, SETS("mode=single", "devices=cpu:1", "checkpoint=off"));
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        const char *const *p = places[i];
        program_train(&other, common, SETS(p[0], p[1], p[2], p[3]));
        program_assert_same(&control, &other, p[1]);
        assert_true(program_number(&control, "val.loss") == program_number(&other, "val.loss"));
    }
    program_train(&other, common, SETS("mode=single", "devices=cpu:1", "checkpoint=off", "data.augment=[{crop: 2}]"));
    assert_string_not_equal(program_string(&control, "losses_sha256"), program_string(&other, "losses_sha256"));
}

/* After 7 steps of 5 an epoch, elsewhere. Another loss or other mixing is another experiment. */
static void a_resume_in_an_epoch_is_exact(void **state) {
    (void)state;
    char dir[600];
    const char *run = dir + strlen("log.dir=");
    snprintf(dir, sizeof dir, "log.dir=%s", scratch_path("half"));
    program_train(&control, common, SETS("mode=single", "devices=cpu:1", "checkpoint=off"));
    program_train(&other, common, SETS("mode=single", "devices=cpu:1", "train=7st", dir));
    static const char *const changes[] = {"loss.smoothing=0.2", "loss={name: cross_entropy, smoothing: 0.1}",
                                          "data.augment=[{crop: 2}, {mixup: 0.4}]"};
    for (int i = 0; i < 3; i++) {
        program_run(&other, 30, "run", run, "--set", "train=12st", "--set", changes[i], NULL);
        assert_int_equal(other.code, 78);
        assert_non_null(strstr(other.err, i < 2 ? "loss" : "data"));
    }
    program_run(&other, 60, "run", run, "--json", "--set", "train=12st", "--mode", "ddp", "--devices", "cpu:2", NULL);
    if (other.code) fail_msg("exit code %d\n%s", other.code, other.err);
    assert_non_null(strstr(other.err, "at step 7"));
    program_assert_same(&control, &other, "a resume in an epoch");
}

/* A checkpoint that was written when 'loss' was a word alone goes on. */
static void a_loss_that_is_a_name_is_told_by_its_name(void **state) {
    (void)state;
    static char text[1 << 16];
    char dir[600], path[700];
    snprintf(dir, sizeof dir, "log.dir=%s", scratch_path("word"));
    program_train(&other, SETS("data={train: 100, val: 20}", "train=1st", "loss=mse"), SETS(dir));
    snprintf(path, sizeof path, "%s/ckpt/step-000000001/manifest.json", scratch_path("word"));
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    assert_non_null(strstr(text, "\\nloss=mse\\n"));
}

/* ---- numbers -------------------------------------------------------------------------------- */
enum { CLASSES = 3, TRAIN = 50, VAL = 12 };

static int class_of(int i) {
    return i % 10 < 6 ? 0 : i % 10 < 9 ? 1 : 2;
}

/* 30, 15 and 5 training samples of the classes. */
static void write_csv(const char *name, int n) {
    FILE *f = fopen(scratch_path(name), "w");
    assert_non_null(f);
    for (int i = 0; i < n; i++)
        fprintf(f, "%d.5,%d.25,%d\n", (i * 7) % 5 + class_of(i), (i * 3) % 4 - 2 * class_of(i), class_of(i));
    assert_int_equal(fclose(f), 0);
}

static const double balanced[CLASSES] = {50.0 / (3 * 30), 50.0 / (3 * 15), 50.0 / (3 * 5)};

/* The mean over validation samples, by the probabilities that 'predict' gives. */
static double loss_of_predictions(const char *run, double smoothing) {
    double loss = 0;
    struct pool *pool;
    assert_ok(pool_create(&pool));
    program_run(&other, 30, "predict", run, "val:0-11", "--top", "3", "--json", NULL);
    if (other.code) fail_msg("exit code %d\n%s", other.code, other.err);
    const struct json_value *all = program_json(&other, pool);
    assert_int_equal(all->count, VAL);
    for (int i = 0; i < VAL; i++) {
        const struct json_value *top = json_get(&all->children[i], "top");
        int64_t truth = json_get(&all->children[i], "truth")->integer;
        assert_int_equal(truth, class_of(i));
        for (int k = 0; k < CLASSES; k++) {
            int64_t label = json_get(&top->children[k], "label")->integer;
            double part = (label == truth ? 1 - smoothing : 0) + smoothing / CLASSES;
            loss -= balanced[label] * part * log(json_get(&top->children[k], "probability")->number) / VAL;
        }
    }
    pool_free(pool);
    return loss;
}

/* The checkpoint knows the counts: evaluation needs no training data. */
static void balanced_weights_are_what_counts_say(void **state) {
    (void)state;
    char data[1400], dir[600];
    const char *run = dir + strlen("log.dir=");
    write_csv("train.csv", TRAIN);
    write_csv("val.csv", VAL);
    snprintf(dir, sizeof dir, "log.dir=%s", scratch_path("weighted"));
    int used = snprintf(data, sizeof data, "data={set: csv, train: %s, ", scratch_path("train.csv"));
    snprintf(data + used, sizeof data - (size_t)used, "val: %s, augment: {mixup: 0.3}}", scratch_path("val.csv"));
    program_train(
        &control, SETS(data, "model={layers: [{linear: 8}, relu, {linear: 3}]}", "batch=10", "train=3ep"),
        SETS(dir, "mode=dp", "devices=cpu:2", "loss={name: cross_entropy, smoothing: 0.2, weights: balanced}"));
    assert_non_null(strstr(control.err, "smoothing 0.2, weights of the classes 0.55556 1.1111 3.3333"));
    double loss = program_number(&control, "val.loss"), predicted = loss_of_predictions(run, 0.2);
    if (!(fabs(loss - predicted) < 1e-6 * loss)) fail_msg("the loss is %.9g, and %.9g by predictions", loss, predicted);
    remove(scratch_path("train.csv"));
    program_run(&other, 30, "eval", run, "--json", NULL);
    if (other.code) fail_msg("exit code %d\n%s", other.code, other.err);
    assert_true(program_number(&other, "result.loss") == loss);
    struct pool *pool;
    assert_ok(pool_create(&pool));
    const struct json_value *w = json_get(json_get(program_json(&control, pool), "loss"), "class_weights");
    assert_int_equal(w->count, CLASSES);
    for (int k = 0; k < CLASSES; k++) assert_true(fabs(w->children[k].number - balanced[k]) < 1e-6);
    pool_free(pool);
}

/* The probabilities that 'predict' gives are each class's own, and make the loss. */
static void binary_cross_entropy_learns(void **state) {
    (void)state;
    enum { OF = 10, SEEN = 200 };
    char dir[600];
    struct pool *pool;
    double loss = 0;
    assert_ok(pool_create(&pool));
    snprintf(dir, sizeof dir, "log.dir=%s", scratch_path("bits"));
    program_train(&control, SETS("loss=bce", "data={train: 600, val: 200}", "model=mlp", "train=40st", "eval=end"),
                  SETS("optimizer={name: adam, lr: 0.002}", dir, "mode=ddp", "devices=cpu:2"));
    assert_true(program_number(&control, "val.accuracy") > 0.6);
    assert_true(program_number(&control, "val.loss") < 0.25); /* knowing nothing but that one of ten is right: 0.325 */
    program_run(&other, 30, "predict", dir + strlen("log.dir="), "val:0-199", "--top", "10", "--json", NULL);
    if (other.code) fail_msg("exit code %d\n%s", other.code, other.err);
    const struct json_value *all = program_json(&other, pool);
    for (int i = 0; i < SEEN; i++)
        for (int k = 0; k < OF; k++) {
            const struct json_value *one = &json_get(&all->children[i], "top")->children[k];
            double q = json_get(one, "probability")->number, x = json_get(one, "logit")->number;
            bool right = json_get(one, "label")->integer == json_get(&all->children[i], "truth")->integer;
            assert_true(fabs(q - 1 / (1 + exp(-x))) < 1e-6);
            loss += (log(1 + exp(x)) - (right ? x : 0)) / (OF * SEEN);
        }
    assert_true(fabs(loss / program_number(&control, "val.loss") - 1) < 1e-5);
    pool_free(pool);
}

/* Values under bce are probabilities in every form that 'predict' has; the outputs behind them are there for who asks. */
static void fractions_are_told_alike_in_every_form(void **state) {
    (void)state;
    char data[700], dir[600], head[64], line[256];
    const char *run = dir + strlen("log.dir=");
    struct pool *pool;
    FILE *f = fopen(scratch_path("fractions.csv"), "w");
    assert_non_null(f);
    fputs("x,z,share\n", f);
    for (int i = 0; i < 40; i++) fprintf(f, "%d,%d.5,0.%d\n", i % 7, i % 3, 10 + i);
    assert_int_equal(fclose(f), 0);
    snprintf(data, sizeof data, "data={set: csv, train: %s}", scratch_path("fractions.csv"));
    snprintf(dir, sizeof dir, "log.dir=%s", scratch_path("fractions"));
    program_train(&control, SETS("loss=bce", data, "model={layers: [{linear: 1}]}", "batch=8", "train=20st"),
                  SETS(dir, "mode=single", "devices=cpu:1"));
    assert_ok(pool_create(&pool));
    program_run(&other, 30, "predict", run, "val:0", "--json", NULL);
    double share = json_get(&program_json(&other, pool)->children[0], "outputs")->children[0].number;
    assert_true(share > 0 && share < 1);
    for (int logits = 0; logits < 2; logits++)
        for (int csv = 0; csv < 2; csv++) {
            program_run(&other, 30, "predict", run, "val:0", csv ? "--csv" : "--top=3", logits ? "--logits" : NULL,
                        NULL);
            double told, wanted = logits ? log(share / (1 - share)) : share;
            const char *format = csv ? "%63[^\n]\nval:0,0,%lf" : "%63[^ ] %lf";
            snprintf(line, sizeof line, "%.255s", other.out);
            assert_int_equal(sscanf(line, format, head, &told), 2);
            if (!(fabs(told - wanted) < 1e-5)) fail_msg("%g, and not %g: %s", told, wanted, line);
        }
    pool_free(pool);
}

static void what_does_not_fit_is_refused(void **state) {
    (void)state;
    static const struct {
        const char *set, *more, *says;
        int code;
    } wrong[] = {
        {"loss.weights=[1, 2]", "data=digits", "loss.weights has 2 weights, but data 'digits' has 10 classes", 78},
        {"loss.weights=[0, 0]", "data=digits", "the weights of all classes are 0", 78},
        {"loss.weights=[balanced, 1]", "data=digits", "stands for all weights", 78},
        {"loss.smoothing=1.5", "data=digits", "loss.smoothing", 78},
        {"loss={name: mse, smoothing: 0.1}", "data=digits", "unknown key 'smoothing'", 78},
        {"loss.weights=balanced", "data=grammar", "give the weights as a list", 78},
        {"data.augment=[{mixup: 0.2}]", "data.set=grammar", "are tokens", 78},
        {"data=nofile", "model=mlp", "or a file or folder that is there, got \"nofile\"", 78},
        {"loss.smoothing=0.1", "checkpoint.best=val.perplexity", "without smoothing and weights", 78},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        bool tokens = strstr(wrong[i].more, "grammar") || strstr(wrong[i].more, "perplexity");
        program_run(&other, 30, "run", "--set", tokens ? "model=gpt-nano" : "model=mlp", "--set",
                    tokens ? "data={set: grammar, train: 2000}" : "train=1st", "--set", wrong[i].more, "--set",
                    wrong[i].set, "--set", "train=1st", NULL);
        if (other.code != wrong[i].code || !strstr(other.err, wrong[i].says))
            fail_msg("%s: exit code %d\n%s", wrong[i].set, other.code, other.err);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mixing_gives_the_same_bits_everywhere),
        cmocka_unit_test(a_resume_in_an_epoch_is_exact),
        cmocka_unit_test(a_loss_that_is_a_name_is_told_by_its_name),
        cmocka_unit_test(balanced_weights_are_what_counts_say),
        cmocka_unit_test(binary_cross_entropy_learns),
        cmocka_unit_test(fractions_are_told_alike_in_every_form),
        cmocka_unit_test(what_does_not_fit_is_refused),
    };
    return cmocka_run_group_tests_name("losses", tests, NULL, NULL);
}
