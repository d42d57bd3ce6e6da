/* Plug-ins in Python, as a user meets them: a ring gives the built-in ring's bits over every link, a compressor trains, what
 * engine new writes works, simulate knows a plan; and each mistake is named, with the file and the line. */
#include "tests/harness/program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define V "ENGINE_PLUGIN_VERSION = 3\n"
#define REDUCE V "def all_reduce(rank, ranks):\n" /* so its body begins in line 3 */
#define CODE(encode, decode) V "def encode(values):\n" encode "def decode(data, count):\n" decode
#define RIGHT_ENCODE "    return values.tobytes()\n"
#define RIGHT_DECODE "    return memoryview(data).cast('f')\n"
static struct program control, other;
static const char ring[] =
    V "ORDER = 'ring'\n"
      "def all_reduce(r, n):\n"
      "    for word in 'add', 'put':\n"
      "        for s in range(n - 1):\n"
      "            out, come = (r - s + (word == 'put')) % n, (r - s - (word == 'add')) % n\n"
      "            yield {'send': ((r + 1) % n, out, out + 1), word: ((r - 1) % n, come, come + 1)}\n";

/* A setting with the path of a file of this text. */
static const char *with_file(const char *key, const char *name, const char *text) {
    static char set[4][700];
    static int turn;
    char *out = set[turn++ % 4];
    save_text(scratch_path(name), text);
    snprintf(out, sizeof set[0], "%s=%s", key, scratch_path(name));
    return out;
}

/* ---- what works ---- */

/* What rank 0 has sent in all steps. */
static double sent_bytes(const struct program *p) {
    static const char key[] = "\"bytes\":{\"sent\":[";
    const char *at = strstr(p->out, key);
    assert_non_null(at);
    return strtod(at + strlen(key), NULL);
}

static void rings_are_one(void **state) {
    static const char *const links[] = {"comm.link=shm", "comm.link=tcp"};
    const char *own = with_file("comm.algorithm", "ring.py", ring);
    (void)state;
    for (int i = 0; i < 2; i++) {
        program_train(&control, program_small, SETS("comm.algorithm=ring", links[i]));
        program_train(&other, program_small, SETS(own, links[i]));
        program_assert_same(&control, &other, "a ring in Python");
        assert_non_null(strstr(other.err, "ring.py over"));
        assert_true(sent_bytes(&other) == sent_bytes(&control));
    }
    assert_int_equal(program_orphans(), 0);
}

static void compressors_train(void **state) {
    static const char set[] =
        "comm.compress={kind: " ENGINE_SOURCE_DIR "/examples/plugins/compressor.py, with: {levels: 31}}";
    const char *copy = with_file("comm.compress", "copy.py", CODE(RIGHT_ENCODE, RIGHT_DECODE) "FEEDBACK = 0\n");
    (void)state;
    program_train(&control, program_small, SETS("optimizer={name: sgd, lr: 0.1}", "comm.order=ring", "devices=cpu:2"));
    program_train(&other, program_small, SETS("optimizer={name: sgd, lr: 0.1}", copy, "devices=cpu:2"));
    program_assert_same(&control, &other, "of two ranks, sums of what is sent as it is");
    program_train(&other, program_small, SETS("optimizer={name: sgd, lr: 0.1}", set, "devices=cpu:2"));
    double ratio = program_number(&other, "compress.ratio");
    if (!(ratio > 1.9 && ratio < 4)) fail_msg("%g times fewer bytes", ratio);
    double want = program_number(&control, "train.loss"), loss = program_number(&other, "train.loss");
    if (!(loss < want + 0.1)) fail_msg("a loss of %g, and without compression %g", loss, want);
}

/* The race is run or, where it takes long, read. */
static void start_anew(const char *kind, const char *race, const char *key) {
    char command[2048];
    snprintf(command, sizeof command,
             "cd '%s' && rm -rf mine && '%s/engine' new %s mine --python && cd mine && test $(ls | wc -l) = 2 && "
             "'%s/engine' check --sizes 3 mine.py && '%s/engine' compare %s race.yaml && '%s/engine' run --quiet "
             "--devices cpu:2 --mode ddp --set train=3st --set 'model={zoo: mlp, hidden: [8]}' --set %s=./mine.py",
             scratch_path(""), ENGINE_BINARY_DIR, kind, ENGINE_BINARY_DIR, ENGINE_BINARY_DIR, race, ENGINE_BINARY_DIR,
             key);
    program_spawn(&other, (const char *const[]){"sh", "-c", command, NULL});
    assert_true(program_wait(&other, 240));
    if (other.code) fail_msg("%s: code %d\n%s%s", kind, other.code, other.out, other.err);
}

static void new_ones_work(void **state) {
    (void)state;
    start_anew("algorithm", "--quick --repeats 1", "comm.algorithm");
    assert_non_null(strstr(other.out, "all 8 cases are right"));
    assert_non_null(strstr(other.out, "2 ranks: n bytes take 2 latencies and 2 n through a port"));
    struct pool *pool;
    const struct json_value *race;
    assert_ok(pool_create(&pool));
    assert_ok(json_read(scratch_path("mine/runs/race/results.json"), 1 << 22,
                        (struct json_limits){16, 1 << 16, 1 << 14}, pool, &race));
    race = json_get(race, "cells");
    for (int i = 1; i < 3; i++) /* from the first side's step; and of a plan there is no formula */
        assert_true(json_number(json_get(&race->children[i], "predicted"), "step_time") > 0);
    assert_false(json_number(json_get(&race->children[2], "predicted"), "formula") > 0);
    pool_free(pool);
    start_anew("compressor", "--dry-run", "comm.compress");
    assert_non_null(strstr(other.out, "parameter levels, by default 127"));
    program_run(&other, 20, "new", "share", "x", "--python", NULL);
    assert_int_equal(other.code, 64);
}

/* The engine's ring and one in Python are simulated alike, of the same measured step. */
static void plans_are_simulated(void **state) {
    char dir[600], file[620];
    double step[2];
    (void)state;
    snprintf(dir, sizeof dir, "%s", scratch_path("measured"));
    snprintf(file, sizeof file, "log.dir=%s", dir);
    program_train(&other, program_small, SETS(file, "devices=cpu:1", "mode=single"));
    snprintf(file, sizeof file, "%s", scratch_path("ring.py"));
    save_text(file, ring);
    for (int i = 0; i < 2; i++) {
        program_run(&other, 60, "simulate", dir, "--mode", "ddp", "--devices", "4", "--link", "1Gbit,50us",
                    "--algorithm", i ? file : "ring", "--json", NULL);
        if (other.code) fail_msg("%s", other.err);
        const char *at = strstr(other.out, "\"step_s\":");
        if (!at) fail_msg("%s", other.out);
        step[i] = strtod(at + strlen("\"step_s\":"), NULL);
    }
    assert_true(step[0] > 0 && step[1] / step[0] < 1.001 && step[1] / step[0] > 0.999);
    assert_non_null(strstr(other.out, "ring.py"));
}

/* ---- what goes wrong ---- */

static const struct {
    const char *text, *words, *line;
} mistakes[] = {
    {REDUCE "    for s in range(ranks - 1):\n" /* a round too few: all know their neighbours' terms alone */
            "        yield {'send': ((rank + 1) % ranks, s, s + 1), 'add': ((rank - 1) % ranks, s + 1, s + 2)}\n",
     "receives chunks 1 to 2 from rank", ", line 4"},
    {REDUCE "    if ranks > 2:\n        return\n"
            "    yield {'send': (1 - rank, rank, rank + 1), 'add': (1 - rank, 1 - rank, 2 - rank)}\n",
     "adds wrongly: rank 0 of 2 ends without the term of rank 1 in chunk 0", NULL},
    {REDUCE "    yield {'send': (rank + 1, 0, 1)}\n", "rank 1 of 2 exchanges with rank 2", ", line 3"},
    {REDUCE "    yield {'add': (1 - rank, 0, ranks)}\n    yield {'send': (1 - rank, 0, ranks)}\n",
     "a deadlock of 2 ranks: rank 0 waits in line 3 to receive from rank 1, and rank 1 waits in line 3 to receive from",
     ", line 3"},
    {REDUCE "    yield {'send': (1 - rank, 0, ranks + 1)}\n", "rank 0 of 2 exchanges chunks 0 to 3 of a buffer of 2",
     ", line 3"},
    {REDUCE "    if rank:\n        yield {'send': (0, 0, 2)}\n    else:\n        yield {'add': (1, 0, 1)}\n",
     "rank 0 of 2 receives chunks 0 to 1 from rank 1, which sends chunks 0 to 2 (line 4)", ", line 6"},
    {REDUCE "    yield {'send': (1 - rank, 0, 2), 'add': (1 - rank, 0, 2)}\n",
     "rank 0 of 2 sends chunks and receives into them in one step", ", line 3"},
    {REDUCE "    yield {'send': (1, 0, 2)} if rank == 0 else {'put': (0, 0, 2)}\n"
            "    yield {'send': (0, 0, 2)} if rank == 1 else {'add': (1, 0, 2)}\n",
     "rank 0 of 2 adds the term of rank 0 to chunk 0 a second time", ", line 4"},
    {REDUCE "    lost = [1, 2]\n    yield lost[3]\n", "IndexError: list index out of range", ", line 4"},
    {REDUCE "    while rank >= 0:\n        rank += 1\n", "does not return: an endless loop", ", line "},
    {REDUCE "    while True:\n        yield {'send': (1 - rank, 0, 1)}\n",
     "wrong.py', line 4: ", NULL}, /* too many, or too long */
    {V "def all_reduced(rank, ranks):\n    pass\n", "it has neither all_reduce(rank, ranks) nor encode(values)", NULL},
    {REDUCE "    import os\n    for n in range(3, 20):\n        try:\n            os.write(n, b'x' * 99)\n"
            "        except OSError:\n            print('no descriptor', n)\n", /* which hides no finding */
     "what comes from its python3 in all_reduce is no answer", NULL},
    {REDUCE "    import os\n    os._exit(3)\n", "its python3 has ended in all_reduce: code 3", NULL},
    {"ENGINE_PLUGIN_VERSION = 2\n", "version 2, and this engine takes version 3", ", line 1"},
    {REDUCE "    yield {'sent': (1, 0, 1)}\n", "a step has 'sent', and may have 'send', and 'add' or 'put'",
     ", line 3"},
    {REDUCE "  return [\n", "SyntaxError: ", ", line 3"},
    {V "ORDER = 'tree'\ndef all_reduce(rank, ranks):\n"
       "    for peer in sorted(range(1, ranks), reverse=True) if rank == 0 else [0]:\n"
       "        yield {'add' if rank == 0 else 'send': (peer, 0, ranks)}\n"
       "    for peer in range(1, ranks) if rank == 0 else [0]:\n"
       "        yield {'send' if rank == 0 else 'put': (peer, 0, ranks)}\n",
     "added in another order than the tree's", NULL},
    {CODE("    return 3\n", RIGHT_DECODE), "encode gives 3, and should give bytes", ", line 2"},
    {CODE("    return values.tobytes()[:len(set(values))]\n", "    return [0] * count\n"),
     "bytes of 2 values, and 1 of as many zeros", ", line 2"},
    {CODE(RIGHT_ENCODE, "    return [0] * 7\n"), "decode gives 7 values, and should give 1", ", line 4"},
    {CODE(RIGHT_ENCODE, "    return [count / 0]\n"), "ZeroDivisionError: division by zero", ", line 5"},
    {CODE("    while True:\n        pass\n", RIGHT_DECODE), "in encode after", ", line "},
    {CODE("    import ctypes\n    ctypes.string_at(0)\n", RIGHT_DECODE), "its python3 has ended in encode: signal 11",
     NULL},
    {CODE(RIGHT_ENCODE, "    return [x * 3 for x in memoryview(data).cast('f')]\n"), "what waits grows", NULL},
};

static void mistakes_are_named(void **state) {
    char path[600], line[700];
    (void)state;
    snprintf(path, sizeof path, "%s", scratch_path("wrong.py"));
    for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++) {
        save_text(path, mistakes[i].text);
        program_run(&other, 60, "check", "--sizes", "4", path, NULL);
        if (other.code != 1 && other.code != 78) fail_msg("%s\ncode %d\n%s", mistakes[i].text, other.code, other.err);
        if (!strstr(other.err, mistakes[i].words))
            fail_msg("%s\nnothing of '%s':\n%s%s", mistakes[i].text, mistakes[i].words, other.out, other.err);
        snprintf(line, sizeof line, "wrong.py'%s", mistakes[i].line ? mistakes[i].line : "");
        if (mistakes[i].line && !strstr(other.err, line))
            fail_msg("%s\nnothing of '%s':\n%s", mistakes[i].text, line, other.err);
    }
    assert_int_equal(program_orphans(), 0);
}

static void refuse(const char *set, int code, const char *words, const char *more) {
    program_run(&other, 60, "run", "--quiet", "--set", "mode=ddp", "--set", "devices=cpu:3", "--set", "train=3st",
                "--set", "comm.timeout=4s", "--set", set, NULL);
    if (other.code != code) fail_msg("%s: code %d and not %d\n%s", set, other.code, code, other.err);
    if (!strstr(other.err, words)) fail_msg("%s: nothing of '%s':\n%s", set, words, other.err);
    if (!strstr(other.err, more)) fail_msg("%s: nothing of '%s':\n%s", set, more, other.err);
}

/* A plan is refused before any rank starts; a compressor ends its rank. */
static void runs_end_by_name(void **state) {
    (void)state;
    refuse(with_file("comm.algorithm", "own.py", REDUCE "    yield {'add': ((rank + 1) % ranks, 0, 1)}\n"), 78,
           "own.py', line 3: a deadlock of 3 ranks", "comm.algorithm");
    refuse(with_file("comm.algorithm", "own.py", CODE(RIGHT_ENCODE, RIGHT_DECODE)), 78, "own.py' has no algorithm", "");
    refuse(with_file("comm.compress", "own.py", CODE(RIGHT_ENCODE, "    return 1 / 0\n")), 70,
           "own.py', line 5: ZeroDivisionError", "division by zero in 'return 1 / 0'");
    refuse(with_file("comm.compress", "own.py", CODE(RIGHT_ENCODE, "    while True: pass\n")), 75,
           "own.py', line 5: in ", "an endless loop");
    assert_int_equal(program_orphans(), 0);
}

/* A resume is held to the file that the run began with, of an algorithm, too. */
static void file_that_changes(void **state) {
    char dir[600], log[620];
    (void)state;
    snprintf(dir, sizeof dir, "%s", scratch_path("changes"));
    snprintf(log, sizeof log, "log.dir=%s", dir);
    program_train(&control, program_small,
                  SETS(log, with_file("comm.algorithm", "changes.py", ring), "checkpoint=6st"));
    program_run(&other, 60, "run", dir, "--set", "train=18st", "--quiet", NULL);
    if (other.code) fail_msg("%s", other.err);
    with_file("comm.algorithm", "changes.py", REDUCE "    yield 1\n");
    program_run(&other, 60, "run", dir, "--set", "train=24st", "--quiet", NULL);
    assert_int_equal(other.code, 78);
    assert_non_null(strstr(other.err, "changes.py' has changed: its sha256 was"));
}

static void no_python(void **state) {
    char path[4096];
    (void)state;
    snprintf(path, sizeof path, "%s", getenv("PATH"));
    setenv("PATH", "/nowhere", 1);
    program_run(&other, 60, "check", ENGINE_SOURCE_DIR "/examples/plugins/algorithm.py", NULL);
    setenv("PATH", path, 1);
    assert_int_equal(other.code, 69);
    assert_non_null(strstr(other.err, "needs python3: No such file"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rings_are_one),       cmocka_unit_test(compressors_train),  cmocka_unit_test(new_ones_work),
        cmocka_unit_test(plans_are_simulated), cmocka_unit_test(mistakes_are_named), cmocka_unit_test(runs_end_by_name),
        cmocka_unit_test(file_that_changes),   cmocka_unit_test(no_python),
    };
    return cmocka_run_group_tests_name("plug-ins in Python", tests, NULL, NULL);
}
