/* Plug-ins in a run, as a user meets them: a ring gives the built-in ring's bits over every link, an
 * optimizer of plain descent sgd's, the examples train; one that changes, is none or goes wrong is named with its file; and a run that is only read opens
 * none. */
#include "tests/harness/program.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PLUGIN(name) ENGINE_BINARY_DIR "/plugins/" name ".so"
static struct program control, other;

static void rings_are_one(void **state) {
    static const char *const links[] = {"comm.link=shm", "comm.link=tcp"};
    (void)state;
    for (int i = 0; i < 2; i++) {
        program_train(&control, program_small, SETS("comm.algorithm=ring", links[i]));
        program_train(&other, program_small, SETS("comm.algorithm=" PLUGIN("wrong_0"), links[i]));
        program_assert_same(&control, &other, "a ring");
        assert_non_null(strstr(other.err, "wrong_0.so over"));
    }
    program_train(&other, program_small, SETS("comm.algorithm=" PLUGIN("wrong_0"), "ddp.overlap=false"));
    program_assert_same(&control, &other, "without overlap");
}

/* The example adds ((0+1)+2)+3: of two ranks that is any order. */
static void one_rank_adds(void **state) {
    (void)state;
    program_train(&control, program_small, SETS("devices=cpu:2"));
    program_train(&other, program_small, SETS("comm.algorithm=" PLUGIN("algorithm_0"), "devices=cpu:2"));
    program_assert_same(&control, &other, "the example algorithm, two ranks");
    program_train(&control, program_small, SETS("devices=cpu:3"));
    program_train(&other, program_small, SETS("comm.algorithm=" PLUGIN("algorithm_0"), "devices=cpu:3"));
    double want = program_number(&control, "train.loss"), loss = program_number(&other, "train.loss");
    if (!(fabs(loss - want) < 1e-4)) fail_msg("a loss of %g, and with the engine's tree %g", loss, want);
}

/* The engine's sgd multiplies and adds as plain descent does; and however the example's weights are cut among ranks, they
 * are the same. */
static void optimizers_are_one(void **state) {
    (void)state;
    program_train(&control, program_small, SETS("optimizer={name: sgd, lr: 0.1}"));
    program_train(&other, program_small, SETS("optimizer={name: " PLUGIN("wrong_optimizer_0") ", lr: 0.1}"));
    program_assert_same(&control, &other, "plain descent");
    program_train(&control, program_small,
                  SETS("train=8ep", "optimizer={name: " PLUGIN("optimizer_0") ", lr: 0.002, with: {keep: 0.99}}"));
    double loss = program_number(&control, "train.loss");
    if (!(loss < 1)) fail_msg("a loss of %g", loss); /* of 2.3 */
    program_train(&other, program_small,
                  SETS("train=8ep", "optimizer={name: " PLUGIN("optimizer_0") ", lr: 0.002, shard: true}"));
    program_assert_same(&control, &other, "the example optimizer, in slices");
    program_train(&other, program_small,
                  SETS("train=8ep", "mode=dp", "optimizer={name: " PLUGIN("optimizer_0") ", lr: 0.002}"));
    program_assert_same(&control, &other, "the example optimizer, mode dp");
}

static void compressor_trains(void **state) {
    (void)state;
    static const char plain[] = "optimizer={name: sgd, lr: 0.1}";
    program_train(&control, program_small, SETS(plain, "train=8ep"));
    program_train(&other, program_small, SETS(plain, "train=8ep", "comm.compress=" PLUGIN("compressor_0")));
    double ratio = program_number(&other, "compress.ratio");
    if (!(ratio > 6 && ratio < 8)) fail_msg("%g times fewer bytes", ratio);
    assert_non_null(strstr(other.err, "compressor_0.so)"));
    double want = program_number(&control, "train.loss"), loss = program_number(&other, "train.loss");
    if (!(loss < want + 0.1)) fail_msg("a loss of %g, and without compression %g", loss, want);
    program_train(&other, program_small, SETS(plain, "train=8ep", "mode=ps", "comm.compress=" PLUGIN("compressor_0")));
    ratio = program_number(&other, "compress.ratio"), loss = program_number(&other, "train.loss");
    if (!(ratio > 6 && ratio < 8)) fail_msg("mode ps: %g times fewer bytes", ratio);
    if (!(loss < want + 0.1)) fail_msg("mode ps: a loss of %g, and without compression %g", loss, want);
}

/* The engine's gossip and a plug-in that does the same: of four ranks, and of three, where one meets nobody. */
static void gossip_is_gossip(void **state) {
    static const char *const devices[] = {"devices=cpu:4", "devices=cpu:3"}, *const links[] = {"comm.link=shm",
                                                                                               "comm.link=tcp"};
    (void)state;
    for (int i = 0; i < 2; i++) {
        program_train(&control, program_small,
                      SETS("ddp.sync={every: 3, with: neighbour, state: average}", devices[i]));
        program_train(
            &other, program_small,
            SETS("ddp.sync={every: 3, with: " PLUGIN("wrong_share_0") ", state: average}", devices[i], links[i]));
        program_assert_same(&control, &other, devices[i]);
        assert_non_null(strstr(other.err, "weights shared by plug-in wrong_share_0.so every 3 steps"));
    }
    program_train(&control, program_small, SETS("ddp.sync=3", "devices=cpu:2"));
    program_train(&other, program_small, SETS("ddp.sync={every: 3, with: " PLUGIN("share_0") "}", "devices=cpu:2"));
    program_assert_same(&control, &other, "of two ranks, any mean is the mean of all");
    program_train(&other, program_small, SETS("ddp.sync={every: 3, with: " PLUGIN("share_0") "}", "devices=cpu:4"));
    program_train(&control, program_small, SETS("ddp.sync=3", "devices=cpu:4"));
    double want = program_number(&control, "train.loss"), loss = program_number(&other, "train.loss");
    if (!(fabs(loss - want) < 0.2)) fail_msg("a loss of %g, and with the mean %g", loss, want);
}

/* ---- what goes wrong ---- */

static void refuse(const char *set, int code, const char *words, const char *more) {
    static const char *const base[] = {"mode=ddp", "devices=cpu:3", "train=3st", "comm.timeout=4s", NULL};
    const char *line[24] = {"run", "--quiet", "--set", set};
    int n = 4;
    for (int i = 0; base[i]; i++) line[n++] = "--set", line[n++] = base[i];
    line[n] = NULL;
    program_start(&other, line);
    assert_true(program_wait(&other, 60));
    if (other.code != code) fail_msg("%s: code %d and not %d\n%s", set, other.code, code, other.err);
    if (!strstr(other.err, words)) fail_msg("%s: nothing of '%s':\n%s", set, words, other.err);
    if (more && !strstr(other.err, more)) fail_msg("%s: nothing of '%s':\n%s", set, more, other.err);
}

static void files_that_are_none(void **state) {
    char set[700];
    (void)state;
    refuse("comm.algorithm=/no/such.so", 78, "plug-in '/no/such.so' cannot be read: No such file", "relative");
    snprintf(set, sizeof set, "comm.algorithm=%s", scratch_path("folder.so"));
    assert_int_equal(mkdir(set + strlen("comm.algorithm="), 0777), 0);
    refuse(set, 78, "is no file but a folder", NULL);
    refuse("comm.algorithm=" ENGINE_SOURCE_DIR "/examples/plugins/algorithm.c", 78, "is no shared object", "cc -O2");
    refuse("comm.algorithm=" PLUGIN("compressor_0"), 78, "has no algorithm", NULL);
    refuse("comm.compress=" PLUGIN("wrong_compressor_10"), 78, "lacks compressor.add", NULL);
    refuse("comm.algorithm=" PLUGIN("wrong_8"), 78, "is of version 4, and this engine takes version 3", "build it");
    refuse("comm.compress={kind: " PLUGIN("compressor_0") ", with: {level: 3}}", 78, "has no parameter 'level'",
           "did you mean 'levels'?");
    refuse("comm={algorithm: " PLUGIN("wrong_0") ", order: tree}", 78, "does not add in order 'tree'", NULL);
    refuse("comm={algorithm: " PLUGIN("algorithm_0") ", sha256: abc}", 78, "has changed: its sha256 was abc", NULL);
    refuse("comm={algorithm: ring, sha256: abc}", 78, "'comm.sha256' is the digest of a plug-in", NULL);
    refuse("ddp.sync={every: 2, with: /no/such.so}", 78, "plug-in '/no/such.so' cannot be read: No such file",
           "relative");
    refuse("ddp.sync={every: 2, with: " PLUGIN("algorithm_0") "}", 78, "has no share", NULL);
    refuse("ddp.sync={every: 2, with: " PLUGIN("share_0") ", sha256: abc}", 78, "has changed: its sha256 was abc",
           NULL);
    refuse("ddp.sync={every: 2, sha256: abc}", 78, "is the digest of a plug-in, but ddp.sync.with is 'all'",
           "leave it out");
    refuse("ddp.sync={every: 2, with: " PLUGIN("share_0") ", outer: 0.7}", 78, "but ddp.sync.with is '", NULL);
}

static const struct {
    const char *set, *words, *more;
    int code;
} wrong[] = {
    {"comm.algorithm=" PLUGIN("wrong_1"), "wrong_1.so' adds wrongly: element", "engine check tells more", 70},
    {"comm.algorithm=" PLUGIN("wrong_2"), "by plug-in wrong_2.so within", "in plug-in '", 75},
    {"comm.algorithm=" PLUGIN("wrong_3"), "by plug-in wrong_3.so within", NULL, 75},
    {"comm.algorithm=" PLUGIN("wrong_14"), "wrong_14.so': rank", "of a buffer of 52", 70},
    {"comm.algorithm=" PLUGIN("wrong_5"), "wrong_5.so': rank", "its plan declares", 70},
    {"comm.algorithm=" PLUGIN("wrong_6"), "wrong_6.so' adds wrongly", NULL, 70},
    {"comm.algorithm=" PLUGIN("wrong_9"), "wrong_9.so' crashed in all_reduce: signal", NULL, 70},
    {"comm.algorithm=" PLUGIN("wrong_10"), "wrong_10.so' has been in all_reduce for", "an endless loop", 75},
    {"comm.algorithm=" PLUGIN("wrong_12"), "wrong_12.so' adds wrongly: element 51 of 52", NULL, 70},
    {"comm.compress=" PLUGIN("wrong_compressor_6"), "crashed in a compressor's encode", NULL, 70},
    {"comm.compress=" PLUGIN("wrong_compressor_7"), "has been in a compressor's encode for", NULL, 75},
    {"ddp.sync={every: 1, with: " PLUGIN("wrong_share_3") "}", "wrong_share_3.so': rank", "its plan declares", 70},
    {"ddp.sync={every: 1, with: " PLUGIN("wrong_share_4") "}", "meet of rank", "returned 7", 70},
    {"ddp.sync={every: 1, with: " PLUGIN("wrong_share_7") "}", "wrong_share_7.so' crashed in meet: signal", NULL, 70},
    {"optimizer=" PLUGIN("wrong_optimizer_6"), "has been in an optimizer's step for", NULL, 75},
    {"optimizer=" PLUGIN("wrong_optimizer_7"), "crashed in an optimizer's step", NULL, 70},
};

static void mistakes_are_named(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        refuse(wrong[i].set, wrong[i].code, wrong[i].words, wrong[i].more);
    assert_int_equal(program_orphans(), 0);
}

/* ---- the file and the run ---- */

static void copy(const char *from, const char *to) {
    static char bytes[1 << 20];
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    assert_non_null(in);
    assert_non_null(out);
    size_t n = fread(bytes, 1, sizeof bytes, in);
    assert_int_equal(fwrite(bytes, 1, n, out), n);
    assert_int_equal(fclose(in) | fclose(out), 0);
}

static void file_that_changes(void **state) {
    char dir[600], file[600], log[620], optimizer[640];
    (void)state;
    snprintf(dir, sizeof dir, "%s", scratch_path("changes"));
    snprintf(file, sizeof file, "%s", scratch_path("own.so"));
    snprintf(log, sizeof log, "log.dir=%s", dir);
    snprintf(optimizer, sizeof optimizer, "optimizer={name: %s, lr: 0.01}", file);
    copy(PLUGIN("optimizer_0"), file);
    program_train(&control, program_small, SETS(log, optimizer, "checkpoint=6st", "train=12st"));
    program_run(&other, 60, "run", dir, "--set", "train=18st", "--quiet", NULL);
    if (other.code) fail_msg("%s", other.err);
    copy(PLUGIN("wrong_optimizer_0"), file);
    program_run(&other, 60, "run", dir, "--set", "train=24st", "--quiet", NULL);
    assert_int_equal(other.code, 78);
    assert_non_null(strstr(other.err, "own.so' has changed: its sha256 was"));
    /* what only reads it needs no plug-in */
    assert_int_equal(unlink(file), 0);
    program_run(&other, 60, "report", dir, NULL);
    if (other.code) fail_msg("%s", other.err);
    program_run(&other, 60, "eval", dir, NULL);
    if (other.code) fail_msg("%s", other.err);
    program_run(&other, 60, "runs", scratch_path(""), NULL);
    if (other.code) fail_msg("%s", other.err);
}

/* ---- from an empty folder ---- */

/* Its source builds with cc alone, without a warning, passes, and trains. */
static void start_anew(const char *kind, const char *set) {
    char command[2048];
    const char *dir = scratch_path("");
    snprintf(
        command, sizeof command,
        "cd '%s' && rm -rf mine && '%s/engine' new %s mine && cd mine && cc -Wall -Wextra -Werror -O2 -shared -fPIC "
        "-o other.so mine.c -lm && '%s/engine' check --sizes 3 mine.c && '%s/engine' run --quiet --devices cpu:2 "
        "--mode ddp --set train=3st --set '%s' && '%s/engine' compare --quick --repeats 1 race.yaml",
        dir, ENGINE_BINARY_DIR, kind, ENGINE_BINARY_DIR, ENGINE_BINARY_DIR, set, ENGINE_BINARY_DIR);
    program_spawn(&other, (const char *const[]){"sh", "-c", command, NULL});
    assert_true(program_wait(&other, 120));
    if (other.code) fail_msg("%s: code %d\n%s%s", kind, other.code, other.out, other.err);
}

static void new_ones_work(void **state) {
    (void)state;
    start_anew("algorithm", "comm.algorithm=./mine.so");
    assert_non_null(strstr(other.out, "all 8 cases are right"));
    start_anew("compressor", "comm.compress=./mine.so");
    start_anew("optimizer", "optimizer=./mine.so");
    program_run(&other, 20, "new", "algorithm", "a/b", NULL);
    assert_int_equal(other.code, 64);
    program_run(&other, 60, "check", PLUGIN("wrong_13"), NULL);
    assert_int_equal(other.code, 1);
    program_run(&other, 60, "check", "/no/such.so", NULL);
    assert_int_equal(other.code, 66);
}

/* A source needs no header beside it; --json has the same findings as the lines. */
static void sources_are_built_and_checked(void **state) {
    char file[600], path[4096];
    (void)state;
    snprintf(path, sizeof path, "%s", getenv("PATH"));
    snprintf(file, sizeof file, "%s", scratch_path("source.c"));
    copy(ENGINE_SOURCE_DIR "/tests/plugins/wrong.c", file);
    program_run(&other, 60, "check", "--sizes", "2", "--json", file, NULL);
    assert_int_equal(other.code, 0);
    assert_true(program_number(&other, "passed") == 7 && program_number(&other, "wrong") == 0);
    strcpy(file + strlen(file) - 1, "so");
    program_run(&other, 60, "check", "--sizes", "2", file, NULL);
    assert_int_equal(other.code, 0);
    assert_non_null(strstr(other.out, "all 7 cases are right"));

    program_run(&other, 60, "check", "--json", PLUGIN("wrong_12"), NULL);
    assert_int_equal(other.code, 1);
    assert_non_null(strstr(other.out, "\"passed\":1,\"wrong\":1,\"first\":\"values, bits, lanes, 2 ranks: plug-in '"));
    assert_non_null(strstr(other.out, "of 2, and the sum is 111\"}"));
    assert_non_null(strstr(other.err, "hint: values, bits, lanes, 2 ranks: plug-in '"));

    strcpy(file + strlen(file) - 2, "c");
    save_text(file, "int x = y;\n");
    program_run(&other, 60, "check", "--json", file, NULL);
    assert_int_equal(other.code, 65);
    assert_string_equal(other.out, "");
    assert_non_null(strstr(other.err, "source.c' does not compile"));
    assert_non_null(strstr(other.err, "source.c:1:"));
    program_run(&other, 60, "check", "/no/such.c", NULL);
    assert_int_equal(other.code, 66);
    setenv("PATH", "/nowhere", 1);
    program_run(&other, 60, "check", file, NULL);
    setenv("PATH", path, 1);
    assert_int_equal(other.code, 69);
    assert_non_null(strstr(other.err, "there is no compiler 'cc'"));
}

/* bench comm measures an algorithm of one's own like the engine's. */
static void algorithms_are_measured(void **state) {
    (void)state;
    program_run(&other, 60, "bench", "comm", "--ranks", "3", "--to", "4KB", "--iters", "3", "--algorithm",
                PLUGIN("wrong_0"), "--json", NULL);
    if (other.code) fail_msg("%s", other.err);
    assert_non_null(strstr(other.out, "\"order\":\"ring\""));
    assert_non_null(strstr(other.out, "{\"algorithm\":\"wrong_0.so\",\"bytes\":4096,"));
    assert_null(strstr(other.out, "\"wrong\":1"));
    program_run(&other, 60, "bench", "comm", "--algorithm", "rnig", NULL);
    assert_int_equal(other.code, 64);
    assert_non_null(strstr(other.err, "no algorithm 'rnig', did you mean 'ring'?"));
    program_run(&other, 60, "bench", "comm", "--algorithm", PLUGIN("share_0"), NULL);
    assert_int_equal(other.code, 64);
    assert_non_null(strstr(other.err, "share_0.so' has no algorithm"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rings_are_one),           cmocka_unit_test(one_rank_adds),
        cmocka_unit_test(optimizers_are_one),      cmocka_unit_test(compressor_trains),
        cmocka_unit_test(gossip_is_gossip),        cmocka_unit_test(files_that_are_none),
        cmocka_unit_test(mistakes_are_named),      cmocka_unit_test(file_that_changes),
        cmocka_unit_test(new_ones_work),           cmocka_unit_test(sources_are_built_and_checked),
        cmocka_unit_test(algorithms_are_measured),
    };
    return cmocka_run_group_tests_name("plug-ins", tests, NULL, NULL);
}
