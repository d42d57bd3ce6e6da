/* What a user meets besides training: help, validation, wrong input, and what is on which stream.
 */
#include "tests/harness/program.h"

#include "engine/base/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static struct program p;

static const char *config_file(const char *name, const char *text) {
    const char *path = scratch_path(name);
    save_text(path, text);
    return path;
}

static void help_and_version(void **state) {
    (void)state;
    program_run(&p, 10, "help", NULL);
    assert_int_equal(p.code, 0);
    assert_non_null(strstr(p.out, "usage: engine COMMAND"));
    program_run(&p, 10, "help", "optimizer.momentum", NULL);
    assert_int_equal(p.code, 0);
    assert_non_null(strstr(p.out, "momentum"));
    program_run(&p, 10, "run", "--help", "batch.size", NULL);
    assert_int_equal(p.code, 0);
    assert_non_null(strstr(p.out, "128"));
    program_run(&p, 10, "help", "optimizer.momentun", NULL);
    assert_int_equal(p.code, 64);
    program_run(&p, 10, "version", "--features", NULL);
    assert_int_equal(p.code, 0);
    assert_non_null(strstr(p.out, "cpu"));
    program_run(&p, 10, "rum", NULL);
    assert_int_equal(p.code, 64);
    assert_non_null(strstr(p.err, "did you mean 'run'"));
    program_run(&p, 10, "run", "--nonsense", NULL);
    assert_int_equal(p.code, 64);
    program_run(&p, 10, "train", "a.yaml", NULL);
    assert_int_equal(p.code, 64);
    assert_non_null(strstr(p.err, "did you mean 'run'"));
    program_run(&p, 10, "run", "lr=0.1", NULL);
    assert_int_equal(p.code, 64);
    assert_non_null(strstr(p.err, "--set optimizer.lr=0.1"));
    static const char *const topics[][2] = {{"Adam", "optimizer: adam\n"},
                                            {"mnist", "data: idx\n"},
                                            {"CosineAnnealingLR", "schedule: cosine\n"},
                                            {"resnet18", "engine model show resnet18"},
                                            {"tensorboard", "log.sinks"}};
    for (size_t i = 0; i < sizeof topics / sizeof *topics; i++) {
        program_run(&p, 10, "help", topics[i][0], NULL);
        assert_int_equal(p.code, 0);
        assert_non_null(strstr(p.out, topics[i][1]));
    }
}

static void wrong_input(void **state) {
    (void)state;
    program_run(&p, 10, "run", "/no/such/file.yaml", NULL);
    assert_int_equal(p.code, 66);
    program_run(&p, 10, "run", scratch_folder(), NULL);
    assert_int_equal(p.code, 66);
    const char *path = config_file("wrong.yaml", "mode: dp\noptimizer: {momentun: 0.9}\nbatch: 64k\n");
    program_run(&p, 10, "run", path, NULL);
    assert_int_equal(p.code, 78);
    assert_non_null(strstr(p.err, "wrong.yaml:2:13: error: unknown key 'momentun'"));
    assert_non_null(strstr(p.err, "wrong.yaml:3:8: error:"));
    assert_non_null(strstr(p.err, "2 errors"));
    path = config_file("model.yaml", "model: {layers: [flatten, {linear: 7}]}\n");
    program_run(&p, 10, "validate", path, NULL);
    assert_int_equal(p.code, 78);
    assert_non_null(strstr(p.err, "7 outputs"));
    path = config_file("shape.yaml", "model: {layers: [{conv2d: {out: 4, kernel: 40}}, flatten, {linear: 10}]}\n");
    program_run(&p, 10, "validate", path, NULL);
    assert_int_equal(p.code, 78);
    program_run(&p, 10, "run", "--set", "data={set: idx, train: /no/such/images-idx3-ubyte}", NULL);
    assert_int_equal(p.code, 66);
    program_run(&p, 10, "run", "--set", "data=/no/such/folder", NULL);
    assert_int_equal(p.code, 78);
    program_run(&p, 10, "inspect", "/no/such/file", NULL);
    assert_int_equal(p.code, 66);
    program_run(&p, 10, "run", "--set", "log.dir=/proc/nowhere", NULL);
    assert_int_equal(p.code, 73);
}

/* Whatever files are called and hold, messages hold no control characters. */
static void messages_steer_no_terminal(void **state) {
    (void)state;
    char csv[600], name[600];
    snprintf(csv, sizeof csv, "%s", scratch_path("cells.csv"));
    snprintf(name, sizeof name, "%s", scratch_path("\x1b]0;title\x07 é.yaml"));
    save_text(csv, "a,b\n1,2\n1,\x1b[31mred\x1b[0m é\n");
    save_text(name, "optimizer: \"\\e[2J\"\nmodel: \x1b[31m\n");
    const char *const words[][4] = {{"data", "stats", csv},
                                    {"run", "/no/\x1b[2J\x9b.yaml"},
                                    {"run", "a.yaml", name},
                                    {"validate", name},
                                    {"inspect", name}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        const char *const *w = words[i];
        program_run(&p, 10, w[0], w[1], w[2], NULL);
        assert_true(p.code >= 64);
        for (const char *c = p.err; *c; c++)
            if (((unsigned char)*c < 0x20 && *c != '\n') || *c == 0x7f)
                fail_msg("%s %s: byte %zu of: %s", w[0], w[1], (size_t)(c - p.err), p.err);
        if (i == 0) assert_non_null(strstr(p.err, "'?[31mred?[0m é'"));
    }
}

/* An epoch's short last batch may leave a shard a single sample: known before anything is trained. */
static void batches_too_small_for_batchnorm(void **state) {
    (void)state;
    static const struct {
        const char *batch, *more;
        const char *text; /* NULL: it is trained */
    } cases[] = {{"batch={size: 16, shards: 1}", "seed=0", NULL},
                 {"batch={size: 16, shards: 2}", "seed=0", "the last batch of an epoch has 2 samples"},
                 {"batch={size: 16, shards: 2}", "sync_batchnorm=true", NULL},
                 {"batch={size: 16, shards: 2, drop_last: true}", "seed=0", NULL},
                 {"batch={size: 16, shards: 2}", "train=3st", NULL}, /* it never comes */
                 {"batch={size: 7, shards: 1}", "seed=0", "has 1 sample, and"},
                 {"batch={size: 16, shards: 8, accumulate: 2}", "seed=0", "in a batch of 16"}};
    char dir[600];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int run = 0; run < 2; run++) {
            snprintf(dir, sizeof dir, "log.dir=%s-%zu", scratch_path("norm"), i);
            program_run(&p, 60, run ? "run" : "validate", "--set", "mode=single", "--set", "devices=cpu:1", "--set",
                        "data={set: digits, train: 50, val: 20}", "--set",
                        "model={layers: [flatten, linear: 8, batchnorm, linear: 10]}", "--set", "train=1ep", "--set",
                        dir, "--set", cases[i].batch, "--set", cases[i].more, NULL);
            if (p.code != (cases[i].text ? 78 : 0))
                fail_msg("%s, %s: exit code %d: %s", cases[i].batch, cases[i].more, p.code, p.err);
            if (cases[i].text && !strstr(p.err, cases[i].text)) fail_msg("%s", p.err);
        }
}

/* The loss says what a target in whole numbers is. */
static void whole_numbers_to_regress_on(void **state) {
    (void)state;
    char text[2000] = "", data[700], dir[600];
    for (int i = 0; i < 100; i++) snprintf(text + strlen(text), 16, "%d,%d\n", i % 7, 2 * (i % 7));
    const char *path = config_file("even.csv", text);
    snprintf(data, sizeof data, "data={set: csv, train: %s, val: 20}", path);
    snprintf(dir, sizeof dir, "log.dir=%s", scratch_path("even"));
    program_run(&p, 60, "run", "--json", "--set", data, "--set", "loss=mse", "--set", "model={layers: [linear: 1]}",
                "--set", "mode=single", "--set", "devices=cpu:1", "--set", "batch=16", "--set", "train=100st", "--set",
                dir, NULL);
    if (p.code != 0) fail_msg("%s", p.err);
    assert_true(program_number(&p, "val.loss") < 0.01);
    program_run(&p, 60, "validate", "--set", data, "--set", "model={layers: [linear: 1]}", NULL);
    assert_int_equal(p.code, 78); /* classes, of which there are 13 */
    assert_non_null(strstr(p.err, "13 classes"));
}

/* Behind a pipe whose reader has gone, as head and a tee that Ctrl-C has ended: all is saved, nobody
 * shouts, and the exit code is the run's own. */
static void a_reader_that_has_gone_is_no_failure(void **state) {
    (void)state;
    static const char script[] =
        "engine=$1 folder=$2 mode=$3 stop=$4 command=$5\n"
        ": >\"$folder/err\"\n" /* what the case before has said is not this one's */
        "{ trap '' INT; \"$engine\" $command --mode $mode --devices cpu:2 2>\"$folder/err\" & "
        "p=$!\n"
        "  if [ $stop = yes ]; then\n"
        "    while ! grep -q step=30/ \"$folder/err\"; do kill -0 $p || break; sleep 0.05; done; "
        "kill -INT $p\n"
        "  fi\n"
        "  wait $p; echo $? >\"$folder/code\"; } | true\n"
        "cat \"$folder/code\" \"$folder/err\"\n";
    const char *dir = scratch_path("piped");
    char run[2000], evaluate[700];
    snprintf(evaluate, sizeof evaluate, "eval %s --json", dir);
    for (int i = 0; i < 6; i++) {
        bool stop = i < 2, eval = i >= 4;
        snprintf(run, sizeof run,
                 "run --set data.train=400 --set data.val=100 --set train=%s --set log.dir=%s "
                 "--set log.every=10st --set batch.shards=2 --set threads=1 --set batch.size=32",
                 stop ? "1000000st" : "20st", dir);
        const char *command = run;
        if (eval) command = evaluate;
        assert_ok(eval ? ERR_NONE : file_remove_tree(dir));
        program_spawn(&p, (const char *const[]){"sh", "-c", script, "sh", ENGINE_BINARY_DIR "/engine", scratch_folder(),
                                                i % 2 ? "ddp" : "dp", stop ? "yes" : "no", command, NULL});
        assert_true(program_wait(&p, 60));
        if (atoi(p.out) != (stop ? 130 : 0) || strstr(p.out, "error") || strstr(p.out, "roken"))
            fail_msg("case %d: %s", i, p.out);
        char summary[700];
        snprintf(summary, sizeof summary, "%s/summary.json", dir);
        assert_true(file_exists(summary));
    }
    static const char table[] =
        "{ \"$1\" $3 --set data.train=400 --set threads=1; echo $? >\"$2\"; } 2>\"$2.err\" | true; "
        "cat \"$2\" \"$2.err\"";
    static const char *const tables[] = {"simulate --devices 2", "advise --devices 2 --link 1Gbit,50us"};
    for (int i = 0; i < 2; i++) {
        program_spawn(&p, (const char *const[]){"sh", "-c", table, "sh", ENGINE_BINARY_DIR "/engine",
                                                scratch_path("table"), tables[i], NULL});
        assert_true(program_wait(&p, 60));
        if (atoi(p.out) != 0 || strstr(p.out, "error")) fail_msg("%s: %s", tables[i], p.out);
    }
    save_text(scratch_path("race.yaml"), "base: {model: mlp}\nmetrics: [step_time]\n");
    program_run(&p, 20, "run", scratch_path("race.yaml"), NULL);
    assert_int_equal(p.code, 78);
    program_assert_says(p.err, "this is an experiment: engine compare ");
}

static void diverging_is_a_result_that_is_not_acceptable(void **state) {
    (void)state;
    static const char *const modes[] = {"mode=single", "mode=dp", "mode=ddp"};
    for (int i = 0; i < 3; i++) {
        char dir[600];
        snprintf(dir, sizeof dir, "log.dir=%s%d", scratch_path("diverge-"), i);
        program_run(&p, 30, "run", "--set", modes[i], "--set", i ? "devices=cpu:2" : "devices=cpu:1", "--set",
                    "optimizer.lr=1e30", "--set", "threads=1", "--set", "train=20st", "--set", dir, NULL);
        assert_int_equal(p.code, 1);
        assert_non_null(strstr(p.err, "diverged"));
        const char *hint = strstr(p.err, i == 2 ? "[rank 0] hint: lower optimizer.lr" : "hint: lower optimizer.lr");
        if (!hint || strstr(hint + 9, i == 2 ? "] hint" : "hint")) fail_msg("%s: %s", modes[i], p.err);
    }
}

static void config_can_be_run_again(void **state) {
    (void)state;
    char dir[600];
    snprintf(dir, sizeof dir, "log.dir=%s", scratch_path("again"));
    program_run(&p, 10, "config", "--set", "batch=64", "--set", "devices=cpu:2", "--set", "train=3st", "--set", dir,
                NULL);
    assert_int_equal(p.code, 0);
    const char *path = config_file("again.yaml", p.out);
    program_run(&p, 30, "run", path, "--json", NULL);
    assert_int_equal((int)program_number(&p, "steps"), 3);
    struct stat st;
    static const char *const files[] = {"config.yaml", "resolved.yaml", "metrics.jsonl", "summary.json"};
    for (int i = 0; i < 4; i++) {
        char file[700];
        snprintf(file, sizeof file, "%s/%s", program_string(&p, "run_dir"), files[i]);
        if (stat(file, &st) != 0 || st.st_size == 0) fail_msg("%s is missing or empty", file);
    }
    static struct program q;
    program_run(&q, 10, "inspect", program_string(&p, "run_dir"), NULL);
    assert_int_equal(q.code, 0);
    assert_non_null(strstr(q.out, program_string(&p, "weights_sha256")));
}

/* A run's folder stands for its configuration. */
static void a_run_is_a_configuration(void **state) {
    (void)state;
    char dir[600];
    const char *run = scratch_path("as-config");
    snprintf(dir, sizeof dir, "log.dir=%s", run);
    program_run(&p, 30, "run", "--set", "model={zoo: mlp, hidden: [7]}", "--set", "train=3st", "--set",
                "data={set: digits, train: 96, val: 32}", "--set", "batch=32", "--set", dir, NULL);
    assert_int_equal(p.code, 0);
    static const char *const commands[][3] = {
        {"config", NULL}, {"validate", NULL}, {"model", "show"}, {"data", "stats"}, {"bench", "layers"}};
    static const char *const says[] = {"hidden: [7]", "5,575 parameters", "units: 7", "96", "all layers"};
    for (size_t i = 0; i < sizeof says / sizeof *says; i++) {
        const char *const *c = commands[i];
        program_run(&p, 60, c[0], c[1] ? c[1] : run, c[1] ? run : NULL, NULL);
        if (p.code != 0) fail_msg("%s: exit code %d: %s", c[0], p.code, p.err);
        if (!strstr(p.out, says[i])) fail_msg("%s does not say '%s':\n%s", c[0], says[i], p.out);
    }
    program_run(&p, 30, "compare", run, NULL);
    assert_int_equal(p.code, 66);
    assert_non_null(strstr(p.err, "resolved.yaml"));
    program_run(&p, 30, "config", scratch_folder(), NULL);
    assert_int_equal(p.code, 66);
    assert_non_null(strstr(p.err, "not a run directory"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(help_and_version),
        cmocka_unit_test(wrong_input),
        cmocka_unit_test(messages_steer_no_terminal),
        cmocka_unit_test(a_reader_that_has_gone_is_no_failure),
        cmocka_unit_test(diverging_is_a_result_that_is_not_acceptable),
        cmocka_unit_test(config_can_be_run_again),
        cmocka_unit_test(a_run_is_a_configuration),
        cmocka_unit_test(batches_too_small_for_batchnorm),
        cmocka_unit_test(whole_numbers_to_regress_on),
    };
    return cmocka_run_group_tests_name("commands", tests, NULL, NULL);
}
