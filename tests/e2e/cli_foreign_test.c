/* Sides of 'engine compare' that are the user's own commands, and runs under launchers and on several hosts: what they
 * are given, what is made of what they tell, and how they end. */
#include "tests/harness/ports.h"
#include "tests/harness/program.h"

#include <glob.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct program p;
static char file[600], folder[600];

#define STEPS                                                                                                          \
    "i=0\nwhile [ $i -lt 12 ]; do i=$((i+1)); echo \"{\\\"step\\\": $i, \\\"loss\\\": $((100-i)).$ENGINE_SEED, "       \
    "\\\"ms\\\": ${MS:-20}.$((i-i/3*3)), \\\"samples\\\": 8}\"; done\n"
#define BASE                                                                                                           \
    "model: {zoo: mlp, hidden: [16]}, data: {set: digits, train: 200, val: 20}, batch: {size: 32, shards: 2}, "        \
    "train: 12st, eval: end, threads: 1"

static int set_up(void **state) {
    (void)state;
    static int tests;
    char name[32];
    if (!tests) setenv("TMPDIR", scratch_folder(), 1);
    snprintf(file, sizeof file, "%s", scratch_path("own.yaml"));
    snprintf(name, sizeof name, "out-%d", ++tests);
    snprintf(folder, sizeof folder, "%s", scratch_path(name));
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    return program_orphans();
}

/* What stands in the first file of that form. */
static const char *text_of(const char *pattern) {
    static char path[1400], text[1 << 16];
    glob_t found;
    snprintf(path, sizeof path, "%s/%s", folder, pattern);
    if (glob(path, 0, NULL, &found) != 0) fail_msg("no %s", path);
    FILE *f = fopen(found.gl_pathv[0], "r");
    globfree(&found);
    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    return text;
}

/* A script beside the experiment. */
static void script(const char *name, const char *text) {
    save_text(scratch_path(name), text);
    assert_int_equal(chmod(scratch_path(name), 0755), 0);
}

static void compare(const char *text) {
    save_text(file, text);
    program_run(&p, 120, "compare", file, "--dir", folder, NULL);
}

/* ---- commands ---- */

static void commands_stand_beside_the_engine(void **state) {
    (void)state;
    script("own.sh", STEPS "echo \"$ENGINE_SEED $ENGINE_REPEAT $ENGINE_DEVICES $WHICH $PWD\" >$ENGINE_RUN_DIR/given\n"
                           "cp \"$ENGINE_CONFIG\" $ENGINE_RUN_DIR/config\n");
    const char *text = "base: {" BASE ", env: {WHICH: x}}\n"
                       "sides:\n  slow: {command: 'sh own.sh | cat', devices: 2, env: {MS: 40}}\n"
                       "  fast: {command: [sh, own.sh], devices: 2}\n  ours: {mode: ddp, devices: cpu:2}\n"
                       "metrics: [step_time, throughput, train_loss]\nwarmup: 2st\nrepeats: {seeds: 9}\n"
                       "fail_if: ['fast.step_time > slow.step_time']\n";
    compare(text);
    program_assert_code(&p, 0);
    program_assert_says(p.out, "fast faster");
    program_assert_says(p.out, "'slow' is a command of yours");
    program_assert_says(p.out, "not compared, since a command reported no weights_sha256");
    char given[700], here[600];
    assert_non_null(realpath(scratch_folder(), here));
    snprintf(given, sizeof given, "3 4 2 x %s\n", here);
    assert_string_equal(text_of("cells/slow*/run-04/given"), given);
    program_assert_says(text_of("cells/slow*/run-01/config"), "zoo: mlp");
    program_assert_says(text_of("cells/slow*/run-04/resolved.yaml"), "seed: 3");
    program_assert_says(text_of("cells/fast*/run-01/summary.json"), "\"mode\":\"command\",\"devices\":2");
    program_assert_says(text_of("results.json"), "an external command");
    /* what reads runs reads these, and nothing is run again but what was edited */
    program_run(&p, 60, "report", folder, "-o", scratch_path("r.html"), NULL);
    program_assert_code(&p, 0);
    script("own.sh", "# another\n" STEPS);
    compare(text);
    program_assert_code(&p, 0);
    program_assert_says(p.err, "9 of 27 runs are already in");
    assert_int_equal(folder_count(folder, "cells/*"), 5);
}

static void a_matrix_sets_variables(void **state) {
    (void)state;
    script("own.sh", "MS=$T\n" STEPS "echo '{\"bytes\": 64, \"weights_sha256\": "
                     "\"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\"}'\n");
    compare("base: {command: sh own.sh >$ENGINE_METRICS, env: {T: 1}}\nmatrix: {env.T: [30, 10], devices: [1, 2]}\n"
            "metrics: [step_time, bytes]\nrepeats: 6\nwarmup: off\n");
    program_assert_code(&p, 0);
    program_assert_says(p.out, "same losses and weights, bit for bit: yes (2 of 2 pairs");
    assert_int_equal(folder_count(folder, "cells/*env*/run-*") + folder_count(folder, "cells/*/run-??"), 24);
    char pattern[700];
    snprintf(pattern, sizeof pattern, "%s/cells/30-devices*/run-01", folder);
    glob_t found;
    assert_int_equal(glob(pattern, 0, NULL, &found), 0);
    program_run(&p, 60, "compare", found.gl_pathv[0], found.gl_pathv[1], NULL);
    program_assert_code(&p, 0);
    globfree(&found);
}

/* ---- how they end ---- */

#define ONE(more) "sides: {a: {command: sh own.sh}, b: {command: sh own.sh x}}\nrepeats: 4\nmetrics: [step_time]\n" more

static void failures_are_told(void **state) {
    (void)state;
    script("own.sh", "echo before; echo 'cannot find \033[31mthe data' >&2; exit 3\n");
    compare(ONE(""));
    program_assert_code(&p, 1);
    program_assert_says(p.err, "run 1: exit code 3");
    program_assert_says(p.err, "cannot find ?[31mthe data");
    script("own.sh", "echo only this; exit 66\n");
    compare(ONE(""));
    program_assert_code(&p, 1);
    program_assert_says(p.err, "only this");
    script("own.sh", "echo epoch 1\n");
    compare(ONE(""));
    program_assert_code(&p, 65);
    program_assert_says(p.err, "run 1: the command ended with code 0, but reported no step");
    script("own.sh", STEPS);
    compare(ONE("warmup: 12st\n"));
    program_assert_code(&p, 65);
    program_assert_says(p.err, "reported 12 steps, all of them warm-up");
    save_text(file, "sides: {a: {command: [no-such-program]}, b: {mode: dp}}\nrepeats: 4\nmetrics: [step_time]\n");
    program_run(&p, 60, "compare", file, "--dir", folder, NULL);
    program_assert_code(&p, 74);
    program_assert_says(p.err, "cannot start 'no-such-program'");
}

static pid_t pid_in(const char *path) {
    int pid = 0;
    FILE *f = fopen(path, "r");
    if (f && fscanf(f, "%d", &pid) != 1) pid = 0;
    if (f) fclose(f);
    return pid;
}

static pid_t await_pid(const char *path) {
    pid_t pid = 0;
    for (int i = 0; i < 1000 && !(pid = pid_in(path)); i++) usleep(10000);
    assert_true(pid > 0);
    return pid;
}

static void await_end(pid_t pid) {
    for (int i = 0; i < 1000 && kill(pid, 0) == 0; i++) usleep(10000);
    assert_int_not_equal(kill(pid, 0), 0);
}

/* The children of a command end with it, even one that hears no SIGTERM. */
static void a_timeout_ends_all_of_it(void **state) {
    (void)state;
    char text[1400];
    const char *path = scratch_path("child-1");
    snprintf(text, sizeof text, "(trap '' TERM; while :; do sleep 0.1; done) & echo $! >%s\nsleep 100\n", path);
    script("own.sh", text);
    compare(ONE("timeout: 0.5s\n"));
    program_assert_code(&p, 75);
    program_assert_says(p.err, "did not finish within 0.5 s (timeout), and was ended");
    await_end(await_pid(path));
    snprintf(text, sizeof text, STEPS "sleep 100 & echo $! >%s\n", scratch_path("child-2"));
    script("own.sh", text); /* ends well, and leaves one behind */
    compare(ONE("warmup: off\n"));
    program_assert_code(&p, 0);
    await_end(await_pid(scratch_path("child-2")));
}

static void it_stops_when_asked(void **state) {
    (void)state;
    char text[1400];
    for (int times = 1; times <= 2; times++) {
        const char *path = scratch_path(times == 1 ? "child-3" : "child-4");
        snprintf(text, sizeof text, "%s\nsleep 100 & echo $! >%s\nwait\n", times == 1 ? "" : "trap '' TERM INT", path);
        script("own.sh", text);
        save_text(file, ONE(""));
        const char *words[] = {"compare", file, "--dir", folder, NULL};
        program_start(&p, words);
        pid_t child = await_pid(path);
        for (int i = 0; i < times; i++) {
            assert_int_equal(kill(p.pid, SIGINT), 0);
            usleep(300000);
        }
        assert_true(program_wait(&p, 30));
        program_assert_code(&p, 130);
        await_end(child);
    }
}

/* ---- launchers and hosts ---- */

static void launchers_stand_before_runs(void **state) {
    (void)state;
    char text[1400];
    snprintf(text, sizeof text, "echo \"$1 $2\" >>%s\nexec \"$@\"\n", scratch_path("under"));
    script("under.sh", text);
    snprintf(text, sizeof text,
             "base: {" BASE ", mode: ddp}\nunder: [sh, %s]\nmatrix: {devices: [cpu:1, cpu:2], under: [env]}\n"
             "metrics: [step_time]\nwarmup: off\nrepeats: 4\n",
             scratch_path("under.sh"));
    compare(text); /* the matrix holds against the experiment */
    program_assert_code(&p, 0);
    assert_int_not_equal(access(scratch_path("under"), F_OK), 0);
    char *axis = strstr(text, ", under: [env]");
    memmove(axis, axis + 14, strlen(axis + 14) + 1);
    compare(text);
    program_assert_code(&p, 0);
    program_assert_says(p.out, "bit for bit: yes");
    FILE *f = fopen(scratch_path("under"), "r");
    char line[600];
    int lines = 0;
    while (f && fgets(line, sizeof line, f)) {
        assert_true(*line == '/');
        program_assert_says(line, "engine run\n");
        lines++;
    }
    assert_int_equal(lines, 8);
    fclose(f);
}

static const char launched[] =
    "base: {" BASE ", mode: ddp, devices: cpu:2}\nsides: {ring: {comm.algorithm: ring}, direct: "
    "{comm.algorithm: direct}}\nmetrics: [step_time]\nwarmup: off\nrepeats: 4\n"
    "timeout: 1min\n";

static void open_mpi_starts_ranks(void **state) {
    (void)state;
    char text[2000];
    if (access("/usr/bin/mpirun", X_OK) != 0) {
        print_message("no mpirun here: not tested\n");
        skip();
    }
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    snprintf(text, sizeof text, "%sunder: mpirun --oversubscribe -np 2\n", launched);
    compare(text);
    program_assert_code(&p, 0);
    program_assert_says(p.out, "bit for bit: yes (1 of 1 pairs");
    program_assert_says(text_of("cells/ring*/run-01.log"), "started by Open MPI");
}

/* In a job of Slurm, as somebody on a cluster has it. */
static void slurm_starts_ranks(void **state) {
    (void)state;
    char text[2000];
    snprintf(text, sizeof text, "%sunder: [srun, -n, 2]\n", launched);
    save_text(file, text);
    snprintf(text, sizeof text, "#!/bin/sh\nexec %s/engine compare %s --dir %s\n", ENGINE_BINARY_DIR, file, folder);
    script("job.sh", text);
    const char *words[] = {
        "sh", ENGINE_SOURCE_DIR "/tests/harness/slurm.sh", scratch_path("slurm"), "2", scratch_path("job.sh"), NULL};
    program_spawn(&p, words);
    assert_true(program_wait(&p, 120));
    if (p.code == 77) {
        print_message("no Slurm can run here: %s", p.err);
        skip();
    }
    program_assert_code(&p, 0);
    program_assert_says(p.out, "bit for bit: yes (1 of 1 pairs");
    program_assert_says(text_of("cells/ring*/run-01.log"), "started by Slurm");
}

/* The script of lab 19, as one rank and a look alone: importing torch takes seconds. */
static void the_script_for_pytorch_is_read(void **state) {
    (void)state;
    char text[1400];
    const char *python = program_python(&p, "torch");
    if (!python) skip();
    snprintf(text, sizeof text,
             "base: {command: '%s %s/examples/labs/19-pytorch/train.py --steps 15 --batch 16', devices: 1,\n"
             "  env: {RANK: 0, WORLD_SIZE: 1, MASTER_ADDR: 127.0.0.1, MASTER_PORT: %d, USE_LIBUV: 0}}\n"
             "matrix: {env.SIDE: [a, b]}\nmetrics: [step_time, throughput, train_loss, val_accuracy]\n",
             python, ENGINE_SOURCE_DIR, port_free());
    save_text(file, text);
    program_run(&p, 300, "compare", file, "--dir", folder, "--quick", NULL);
    program_assert_code(&p, 0);
    program_assert_says(text_of("cells/a*/run-01/summary.json"), "\"steps\":15");
    program_assert_says(p.out, "+0.00 pt"); /* one seed */
}

/* Exit code 75 is a loss: the run is begun again, twice at most, and the results say so. */
static void what_was_lost_is_begun_again(void **state) {
    (void)state;
    char text[1400];
    snprintf(text, sizeof text,
             "echo x >>%s\n[ $(wc -l <%s) -le \"$LOSSES\" ] && { echo lost rank 1 >&2; exit 75; }\nexec \"$@\"\n",
             scratch_path("tries"), scratch_path("tries"));
    script("under.sh", text);
    snprintf(text, sizeof text,
             "base: {" BASE ", env: {LOSSES: 2}}\nunder: sh %s\nmatrix: {mode: [dp, ddp], devices: [cpu:1]}\n"
             "metrics: [step_time]\nwarmup: off\nrepeats: 4\n",
             scratch_path("under.sh"));
    compare(text);
    program_assert_code(&p, 0);
    program_assert_says(p.err, "repeating the run, 2 of 2");
    program_assert_says(p.out, "lost ranks or hosts: 1 run was begun again, 2 times in all");
    program_assert_says(text_of("results.json"), "\"again\":2");
    program_run(&p, 60, "compare", file, "--dir", folder, NULL); /* nor forgotten */
    program_assert_code(&p, 0);
    program_assert_says(p.out, "1 run was begun again, 2 times in all");
    assert_int_equal(unlink(scratch_path("tries")), 0);
    *strchr(strstr(text, "LOSSES"), '2') = '3';
    compare(text);
    program_assert_code(&p, 75);
    program_assert_says(p.err, "exit code 75");
    program_assert_says(p.err, "lost rank 1");
}

/* A stub of ssh, whose hosts are names of this one. */
static void hosts_are_nodes_of_a_run(void **state) {
    (void)state;
    char text[2000], path[3000];
    assert_int_equal(mkdir(scratch_path("bin"), 0755), 0);
    snprintf(text, sizeof text,
             "#!/bin/sh\nprintf '%%s\\n' \"$*\" >>%s\n[ \"$3\" = lost ] && [ ! -e %s ] && { : >%s; exit 255; }\n"
             "exec sh -c \"$4\"\n",
             scratch_path("ssh.log"), scratch_path("lost"), scratch_path("lost"));
    script("bin/ssh", text);
    char *old = strdup(getenv("PATH"));
    snprintf(path, sizeof path, "%s:%s", scratch_path("bin"), old);
    setenv("PATH", path, 1);
    setenv("ENGINE_TOKEN", "of-the-test-0123456789", 1);
    snprintf(text, sizeof text,
             "base: {" BASE ", mode: ddp}\n"
             "sides:\n  one: {devices: cpu:2}\n"
             "  two: {devices: cpu:1, hosts: [user@127.0.0.1, lost], run.port: %d, env: {WORD: it's}}\n"
             "metrics: [step_time]\nwarmup: off\nrepeats: 4\ntimeout: 1min\n",
             port_free());
    compare(text);
    unsetenv("ENGINE_TOKEN");
    setenv("PATH", old, 1);
    free(old);
    program_assert_code(&p, 0);
    program_assert_says(p.err, "repeating the run, 1 of 2");
    program_assert_says(p.out, "bit for bit: yes (1 of 1 pairs");
    program_assert_says(text_of("results.json"), "\"hosts\":[\"user@127.0.0.1\",\"lost\"]");
    program_assert_says(text_of("cells/two*/run-01/summary.json"), "\"devices\":2");
    int tries = 0;
    FILE *f = fopen(scratch_path("ssh.log"), "r");
    while (f && fgets(text, sizeof text, f)) {
        assert_null(strstr(text, "of-the-test"));
        tries += !strncmp(text, "-o BatchMode=yes ", 17);
    }
    fclose(f);
    assert_in_range(tries, 9, 10); /* the one beside the lost host may be ended before it writes */
}

/* ---- mistakes ---- */

static void mistakes_are_told_at_their_place(void **state) {
    (void)state;
    static const char *const wrong[][2] = {
        {"{command: {a: 1}}", "'command' is a text for the shell"},
        {"{command: ''}", "'command' is a text for the shell"},
        {"{command: [a, {b: 1}]}", "'command' is a text, or a list of 1 to 128 words"},
        {"{command: x, devices: many}", "for a command, 'devices' is a number"},
        {"{command: x, hosts: [a]}", "a command must start its own"},
        {"{command: x, env: [a]}", "'env' is a map"},
        {"{command: x, env: {'a b': 1}}", "needs a name of letters"},
        {"{command: x, env: {ENGINE_SEED: 1}}", "reserved for the experiment"},
        {"{mode: ddp, hosts: ['-oProxyCommand=x', b]}", "is no name of a host"},
        {"{mode: ddp, hosts: ['a b', b]}", "is no name of a host"},
        {"{mode: ddp, hosts: []}", "'hosts' is a text, or a list"},
        {"{mode: dp, hosts: [a, b]}", "dp"},
        {"{mode: ddp, under: ''}", "words with spaces between them"},
        {"{mode: ddp, under: \"a 'b c'\"}", "words with spaces between them"},
        {"{mode: ddp, env: {A: [1]}}", "needs a name of letters"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char text[600];
        snprintf(text, sizeof text, "base: {" BASE "}\nsides:\n  a: {mode: dp}\n  b: %s\n", wrong[i][0]);
        compare(text);
        program_assert_code(&p, 78);
        program_assert_says(p.err, wrong[i][1]);
        program_assert_says(p.err, "own.yaml:");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(commands_stand_beside_the_engine, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_matrix_sets_variables, set_up, tear_down),
        cmocka_unit_test_setup_teardown(failures_are_told, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_timeout_ends_all_of_it, set_up, tear_down),
        cmocka_unit_test_setup_teardown(it_stops_when_asked, set_up, tear_down),
        cmocka_unit_test_setup_teardown(launchers_stand_before_runs, set_up, tear_down),
        cmocka_unit_test_setup_teardown(open_mpi_starts_ranks, set_up, tear_down),
        cmocka_unit_test_setup_teardown(slurm_starts_ranks, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_script_for_pytorch_is_read, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_was_lost_is_begun_again, set_up, tear_down),
        cmocka_unit_test_setup_teardown(hosts_are_nodes_of_a_run, set_up, tear_down),
        cmocka_unit_test_setup_teardown(mistakes_are_told_at_their_place, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
