/* log.trace where ranks have no common folder, or none at all: whoever cannot write still takes part, so that nobody
 * waits for him; and what is left from before is not taken for this run's. Hosts are network namespaces. */
#include "tests/harness/program.h"

#include "engine/base/file.h"
#include "engine/tell/trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { HOSTS = 2 };
static struct program p;
static char folder[512], run[600];

/* ---- starting ---- */

static void begin(const char *name) {
    snprintf(folder, sizeof folder, "%s", scratch_path(name));
    snprintf(run, sizeof run, "%s/run", folder);
    assert_ok(file_make_folders(folder));
}

static const char *write_script(const char *text) {
    const char *path = scratch_path("engine.sh");
    assert_ok(file_replace(path, text, strlen(text)));
    assert_int_equal(chmod(path, 0755), 0);
    return path;
}

/* The words of a run behind those that start it, and more of its keys. */
static void start(const char *const *words, const char *devices, const char *more) {
    char dir[700], n[64];
    snprintf(dir, sizeof dir, "log.dir=%s", run);
    snprintf(n, sizeof n, "devices=%s", devices);
    const char *set[] = {dir,
                         n,
                         more,
                         "mode=ddp",
                         "threads=1",
                         "model={zoo: mlp, hidden: [32]}",
                         "data={set: digits, train: 500, val: 100}",
                         "train=12st",
                         "batch={size: 32, shards: 4}",
                         "eval=end",
                         "checkpoint=off",
                         "comm.timeout=10s",
                         "log.trace=4..8"};
    const char *argv[PROGRAM_ARGS];
    int k = 0;
    for (; *words; words++) argv[k++] = *words;
    for (size_t i = 0; i < sizeof set / sizeof *set; i++) argv[k++] = "--set", argv[k++] = set[i];
    argv[k] = NULL;
    program_spawn(&p, argv);
    assert_true(program_wait(&p, 60));
    if (p.code == 0) return;
    print_message("no network namespaces here: nothing is tested\n");
    skip();
}

static void start_hosts(const char *engine, const char *devices, const char *more) {
    const char *words[] = {"unshare", "-rn",  "sh", ENGINE_SOURCE_DIR "/tests/harness/hosts.sh", folder, "2",
                           "none",    engine, NULL};
    start(words, devices, more);
}

static const char *read_host(int host, const char *what) {
    static char text[HOSTS][1 << 16];
    char path[700];
    snprintf(path, sizeof path, "%s/host%d.%s", folder, host, what);
    FILE *f = fopen(path, "r");
    if (!f) fail_msg("no %s", path);
    text[host][fread(text[host], 1, sizeof text[host] - 1, f)] = '\0';
    fclose(f);
    return text[host];
}

static void assert_codes(int code) {
    for (int host = 0; host < HOSTS; host++) {
        int is = atoi(read_host(host, "code"));
        if (is == 77) skip(); /* no mounts here */
        if (is != code) fail_msg("host %d ended with %d: %s", host, is, read_host(host, "err"));
    }
}

static void assert_said(const char *text) {
    const char *said = read_host(0, "err");
    if (!strstr(said, text)) fail_msg("not said: '%s', but: %s", text, said);
}

static bool exists(const char *where) {
    char path[700];
    snprintf(path, sizeof path, "%s%s", run, where);
    return file_exists(path);
}

/* ---- ranks that have no folder ---- */

/* hosts.sh ends with: --nnodes N --node-rank K --master-addr A; they go to the front, and from there into the
 * environment. */
static const char torchrun[] =
    "#!/bin/sh\n"
    "n=$(($# - 6))\n"
    "while [ $n -gt 0 ]; do set -- \"$@\" \"$1\"; shift; n=$((n - 1)); done\n"
    "export WORLD_SIZE=$2 RANK=$4 GROUP_RANK=$4 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=$6\n"
    "export MASTER_PORT=29511 TORCHELASTIC_RUN_ID=traced\n"
    "shift 6\n"
    "exec " ENGINE_BINARY_DIR "/engine \"$@\"\n";

static void a_launcher_over_hosts(void **state) {
    (void)state;
    begin("launched");
    start_hosts(write_script(torchrun), "auto", "seed=0");
    assert_codes(0);
    assert_said("trace.json, of 1 of 2 ranks");
    assert_true(exists("/trace.json") && exists("/trace/rank0.bin") && !exists("/trace/rank1.bin"));
}

static void a_launcher_on_one_host(void **state) {
    (void)state;
    static const char text[] = "#!/bin/sh\n"
                               "ip link set lo up || exit 77\n"
                               "export WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 GROUP_RANK=0 MASTER_ADDR=127.0.0.1\n"
                               "export MASTER_PORT=29511 TORCHELASTIC_RUN_ID=traced\n"
                               "RANK=1 LOCAL_RANK=1 " ENGINE_BINARY_DIR "/engine run \"$@\" >/dev/null 2>&1 &\n"
                               "RANK=0 LOCAL_RANK=0 " ENGINE_BINARY_DIR "/engine run \"$@\" && wait $!\n";
    begin("one-host");
    const char *words[] = {"unshare", "-rn", write_script(text), NULL};
    start(words, "auto", "seed=0");
    if (!strstr(p.err, "trace.json, of 1 of 2 ranks")) fail_msg("%s", p.err);
    assert_true(exists("/trace.json"));
}

/* ---- ranks that cannot write ---- */

static void the_folder_of_rank_0_stays(void **state) {
    (void)state;
    char script[3000];
    begin("mounted");
    snprintf(script, sizeof script,
             "#!/bin/sh\n"
             "case \"$*\" in *'--node-rank 0'*) ;; *) exec " ENGINE_BINARY_DIR "/engine \"$@\" ;; esac\n"
             "mkdir -p %s/trace\n"
             "exec unshare -m sh -c 'mount --bind %s/trace %s/trace || exit 77\n"
             "exec " ENGINE_BINARY_DIR "/engine \"$@\"' sh \"$@\"\n",
             run, run, run);
    start_hosts(write_script(script), "cpu:2", "seed=0");
    assert_codes(0);
    assert_said("no trace: cannot remove");
    assert_false(exists("/trace.json") || exists("-node-1/trace/rank2.bin"));
}

static void the_file_of_another_rank_stays(void **state) {
    (void)state;
    char script[3000], path[700];
    begin("blocked");
    snprintf(path, sizeof path, "%s-node-1/trace/rank2.bin", run);
    snprintf(script, sizeof script,
             "#!/bin/sh\n"
             "case \"$*\" in *'--node-rank 1'*) ;; *) exec " ENGINE_BINARY_DIR "/engine \"$@\" ;; esac\n"
             "mkdir -p %s\n"
             "exec unshare -m sh -c 'mount --bind %s %s || exit 77\n"
             "exec " ENGINE_BINARY_DIR "/engine \"$@\"' sh \"$@\"\n",
             path, path, path);
    start_hosts(write_script(script), "cpu:2", "seed=0");
    assert_codes(0);
    assert_said("trace.json, of 2 of 4 ranks");
    assert_true(exists("-node-1/trace/rank3.bin"));
    if (!strstr(read_host(1, "err"), "no trace of this rank: cannot remove")) fail_msg("%s", read_host(1, "err"));
}

/* ---- what an earlier run has left ---- */

static void what_other_nodes_had_is_gone(void **state) {
    (void)state;
    char path[700];
    begin("stale");
    snprintf(path, sizeof path, "%s-node-1/trace", run);
    assert_ok(file_make_folders(path));
    for (int rank = 2; rank < 4; rank++) {
        snprintf(path, sizeof path, "%s-node-1/trace/rank%d.bin", run, rank);
        assert_ok(file_replace(path, "old", 3));
    }
    start_hosts(ENGINE_BINARY_DIR "/engine", "cpu:2", "inject.fault={device: 3, step: 5, kind: kill}");
    assert_codes(75);
    assert_false(exists("-node-1/trace/rank3.bin")); /* it was killed inside of the range */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_launcher_over_hosts), cmocka_unit_test(a_launcher_on_one_host),
        cmocka_unit_test(the_folder_of_rank_0_stays), cmocka_unit_test(the_file_of_another_rank_stays),
        cmocka_unit_test(what_other_nodes_had_is_gone)};
    return cmocka_run_group_tests_name("traces of hosts", tests, NULL, NULL);
}
