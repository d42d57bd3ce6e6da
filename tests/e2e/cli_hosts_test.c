/* Several hosts: network namespaces joined by a bridge, an 'engine run' in each. They train the
 * same bits as one host; a host whose cable is cut is named by the others; one that is lost may
 * come back. */
#include "engine/base/clock.h"
#include "tests/harness/program.h"
#include "tests/harness/timing.h"

#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { HOSTS = 4, TEXT = 1 << 16 };
static char folder[512];

/* ---- hosts ---- */

static const char *const common[] = {"--set", "mode=ddp",
                                     "--set", "devices=cpu:2",
                                     "--set", "threads=1",
                                     "--set", "model={zoo: mlp, hidden: [64]}",
                                     "--set", "data={set: digits, train: 2000, val: 100}",
                                     "--set", "batch={size: 64, shards: 8}",
                                     "--set", "log.every=1st",
                                     "--set", "seed=7",
                                     "--set", "comm.heartbeat=3s",
                                     "--set", "comm.timeout=5s",
                                     "--set", "eval=end"};
enum { COMMON = sizeof common / sizeof *common };

static pid_t spawn(char **argv) {
    pid_t pid;
    assert_int_equal(posix_spawnp(&pid, argv[0], NULL, NULL, argv, environ), 0);
    return pid;
}

/* Runs the nodes; skips the test where there are no namespaces. extra: more arguments. */
static void run_hosts(const char *name, const char *action, const char *const *extra, double limit) {
    static char log[700], hosts[8], script[] = ENGINE_SOURCE_DIR "/tests/harness/hosts.sh",
                                    program[] = ENGINE_BINARY_DIR "/engine";
    char *argv[80], unshare[] = "unshare", flags[] = "-rn", sh[] = "sh", act[32], set[] = "--set";
    int n = 0, status;
    snprintf(folder, sizeof folder, "%s", scratch_path(name));
    assert_int_equal(mkdir(folder, 0755), 0);
    snprintf(log, sizeof log, "log.dir=%s/run", folder);
    snprintf(hosts, sizeof hosts, "%d", HOSTS);
    snprintf(act, sizeof act, "%s", action);
    char *first[] = {unshare, flags, sh, script, folder, hosts, act, program, set, log};
    for (size_t i = 0; i < sizeof first / sizeof *first; i++) argv[n++] = first[i];
    for (int i = 0; i < COMMON; i++) memcpy(&argv[n++], &common[i], sizeof argv[0]);
    for (int i = 0; extra[i]; i++) memcpy(&argv[n++], &extra[i], sizeof argv[0]);
    argv[n] = NULL;
    pid_t pid = spawn(argv);
    int64_t start = clock_ns();
    while (waitpid(pid, &status, WNOHANG) == 0) {
        if (clock_seconds(clock_ns() - start) > timing_limit(limit)) {
            kill(pid, SIGTERM);
            fail_msg("%s: the nodes still run after %.0f s (see %s)", name, timing_limit(limit), folder);
        }
        usleep(2000);
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        print_message("no network namespaces here: nothing is tested\n");
        skip();
    }
}

/* A file of host k in a static buffer. */
static const char *read_host(int k, const char *what) {
    static char text[HOSTS][TEXT];
    char path[600];
    snprintf(path, sizeof path, "%s/host%d.%s", folder, k, what);
    FILE *f = fopen(path, "r");
    if (!f) fail_msg("no %s", path);
    if (fseek(f, 1 - TEXT, SEEK_END) != 0) rewind(f);
    text[k][fread(text[k], 1, TEXT - 1, f)] = '\0';
    fclose(f);
    return text[k];
}

static double read_time(const char *name) {
    char path[600];
    double at = 0;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%lf", &at), 1);
    fclose(f);
    return at;
}

static int code_of(int k) {
    return atoi(read_host(k, "code"));
}

/* The value of a key of the JSON that node 0 printed. */
static const char *hash_of_hosts(void) {
    static char hash[65];
    const char *at = strstr(read_host(0, "out"), "\"weights_sha256\":");
    if (!at || sscanf(at, "\"weights_sha256\": \"%64[0-9a-f]", hash) != 1)
        if (!at || sscanf(at, "\"weights_sha256\":\"%64[0-9a-f]", hash) != 1)
            fail_msg("no hash: %s", read_host(0, "err"));
    return hash;
}

/* ---- one host ---- */

static const char *hash_of_one(const char *train) {
    static struct program p;
    char dir[600];
    const char *words[PROGRAM_ARGS] = {"run", "--json", "--set", dir};
    int n = 4;
    snprintf(dir, sizeof dir, "log.dir=%s", scratch_path("one-$time"));
    for (int i = 0; i < COMMON; i++) words[n++] = common[i];
    words[n++] = "--set", words[n++] = train;
    words[n++] = "--set", words[n++] = "devices=cpu:8";
    program_start(&p, words);
    assert_true(program_wait(&p, 60));
    if (p.code) fail_msg("one host: %s", p.err);
    return program_string(&p, "weights_sha256");
}

static void same_bits(void **state) {
    (void)state;
    static const char *const algorithms[] = {"comm=auto",
                                             "comm=hierarchical",
                                             "comm=direct",
                                             "comm=halving_doubling",
                                             "comm.secure=encrypted",
                                             "comm.secure=off"},
                             *const guards[] = {"sealed", "sealed", "sealed", "sealed", "encrypted", "checked"};
    char line[64];
    char one[65];
    snprintf(one, sizeof one, "%s", hash_of_one("train=40st"));
    for (size_t i = 0; i < sizeof algorithms / sizeof *algorithms; i++) {
        const char *extra[] = {"--json", "--set", "train=40st", "--set", algorithms[i], NULL};
        char name[32];
        snprintf(name, sizeof name, "same-%zu", i);
        run_hosts(name, "none", extra, 60);
        for (int k = 0; k < HOSTS; k++)
            if (code_of(k)) fail_msg("%s: host %d ended with %d: %s", extra[4], k, code_of(k), read_host(k, "err"));
        assert_string_equal(hash_of_hosts(), one);
        snprintf(line, sizeof line, " over hosts, %s (", guards[i]);
        if (!strstr(read_host(0, "err"), line)) fail_msg("%s", read_host(0, "err"));
    }
}

/* ---- cuts and losses ---- */

static void cut(void **state) {
    (void)state;
    const char *const extra[] = {"--set", "train=1000000st", "--set",
                                 timing_checked() ? "comm.heartbeat=1s" : "comm.heartbeat=3s", NULL};
    run_hosts("cut", "cut:2", extra, 60);
    for (int k = 0; k < HOSTS; k++) {
        char file[32];
        snprintf(file, sizeof file, "host%d.ended", k);
        double took = read_time(file) - read_time("acted");
        print_message("host %d ended %.2f s after host 2 was cut off, exit code %d\n", k, took, code_of(k));
        assert_int_equal(code_of(k), 75);
        if (took > timing_limit(1 + 2)) fail_msg("host %d took %.2f s", k, took);
        const char *said = read_host(k, "err");
        if (k != 2 && !strstr(said, "rank 4 (") && !strstr(said, "rank 5 ("))
            fail_msg("host %d does not name a rank of host 2: %s", k, said);
        if (!strstr(said, "is silent for")) fail_msg("host %d: %s", k, said);
    }
}

/* A lost node comes back, and the run ends as if nothing had been. Its latency keeps it from ending before the node is lost. */
static void lost(int host) {
    static const char *const extra[] = {"--json",
                                        "--set",
                                        "train=400st",
                                        "--set",
                                        "run.restarts=2",
                                        "--set",
                                        "checkpoint=10st",
                                        "--set",
                                        "run.join_timeout=20s",
                                        "--set",
                                        "comm.emulate.latency=2ms",
                                        "--resume",
                                        NULL};
    char one[65], name[32];
    snprintf(one, sizeof one, "%s", hash_of_one("train=400st"));
    snprintf(name, sizeof name, "lost-%d", host);
    char action[32];
    snprintf(action, sizeof action, "lose:%d", host);
    run_hosts(name, action, extra, 90);
    for (int k = 0; k < HOSTS; k++)
        if (code_of(k)) fail_msg("host %d ended with %d: %s", k, code_of(k), read_host(k, "err"));
    assert_string_equal(hash_of_hosts(), one);
    if (!strstr(read_host(host == 1 ? 2 : 1, "err"), "starting again"))
        fail_msg("nothing was lost: %s", read_host(1, "err"));
}

static void lost_node(void **state) {
    (void)state;
    lost(2);
}

static void lost_master(void **state) {
    (void)state;
    lost(0);
}

/* A host whose ranks all hang: none of them ends by itself, so its node hears from the others that the round is over.
 * It kills them, and all start again. */
static void hung(int host) {
    static const char *const extra[] = {"--json",
                                        "--set",
                                        "train=400st",
                                        "--set",
                                        "run.restarts=2",
                                        "--set",
                                        "checkpoint=10st",
                                        "--set",
                                        "run.join_timeout=40s",
                                        "--set",
                                        "comm.heartbeat=1s",
                                        "--set",
                                        "comm.emulate.latency=2ms",
                                        NULL};
    char one[65], name[32], action[32];
    snprintf(one, sizeof one, "%s", hash_of_one("train=400st"));
    snprintf(name, sizeof name, "hung-%d", host);
    snprintf(action, sizeof action, "hang:%d", host);
    run_hosts(name, action, extra, 90);
    for (int k = 0; k < HOSTS; k++)
        if (code_of(k)) fail_msg("host %d ended with %d: %s", k, code_of(k), read_host(k, "err"));
    assert_string_equal(hash_of_hosts(), one);
    if (!strstr(read_host(host, "err"), "hung while the ranks on other hosts had ended"))
        fail_msg("%s", read_host(host, "err"));
}

static void hung_node(void **state) {
    (void)state;
    hung(2);
}

static void hung_master(void **state) {
    (void)state;
    hung(0);
}

/* ---- parameter servers ---- */

static void all_end_well(void) {
    for (int k = 0; k < HOSTS; k++) {
        int code = code_of(k);
        if (code) fail_msg("host %d ended with %d: %s", k, code, read_host(k, "err"));
    }
}

/* On the first host, on all, and on hosts without devices: the bits of one host. */
static void servers_on_hosts(void **state) {
    (void)state;
    static const char *const ps[] = {"ps={servers: 2, hosts: first}", "ps={servers: 3, hosts: spread}",
                                     "ps={servers: 2, hosts: own, partition: 16KB}"};
    char one[65];
    snprintf(one, sizeof one, "%s", hash_of_one("train=40st"));
    for (size_t i = 0; i < sizeof ps / sizeof *ps; i++) {
        const char *extra[] = {"--json", "--set", "train=40st", "--set", "mode=ps", "--set", ps[i], NULL};
        char name[32];
        snprintf(name, sizeof name, "servers-%zu", i);
        run_hosts(name, "none", extra, 60);
        all_end_well();
        assert_string_equal(hash_of_hosts(), one);
    }
}

/* A server that does not wait, on a host of its own, has the bits of one host in turn. */
static void a_server_that_does_not_wait(void **state) {
    (void)state;
    static struct program p;
    const char *extra[] = {
        "--json", "--set", "train=40st", "--set", "mode=ps", "--set", "ps={hosts: own, staleness: 2}", NULL};
    const char *words[PROGRAM_ARGS] = {"run", "--json"};
    char dir[600];
    int n = 2;
    for (int i = 0; i < COMMON; i++) words[n++] = common[i];
    snprintf(dir, sizeof dir, "log.dir=%s", scratch_path("one-stale"));
    const char *const own[] = {dir, "train=40st", "mode=ps", "ps.staleness=2", "devices=cpu:6"};
    for (int i = 0; i < 5; i++) words[n++] = "--set", words[n++] = own[i];
    program_start(&p, words);
    assert_true(program_wait(&p, 60));
    if (p.code) fail_msg("one host: %s", p.err);
    run_hosts("stale", "none", extra, 60);
    all_end_well();
    assert_string_equal(hash_of_hosts(), program_string(&p, "weights_sha256"));
}

/* A worker is lost, and the others go on; a host with a server is lost, and comes back. */
static void servers_and_losses(void **state) {
    (void)state;
    static const struct {
        const char *ps, *action, *fault, *says;
    } of[] = {{"ps={servers: 2, hosts: own}", "none", "inject.fault={device: 1, step: 25, kind: kill}",
               "going on with 3 of 4 devices"},
              {"ps={servers: 4, hosts: spread}", "none", "inject.fault={device: 5, step: 25, kind: kill}",
               "going on with 7 of 8 devices"},
              {"ps={servers: 2, hosts: own}", "lose:1", "inject.fault.kind=none", "starting again"}};
    char one[65];
    snprintf(one, sizeof one, "%s", hash_of_one("train=400st"));
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        const char *extra[] = {"--json", "--resume",        "--set", "train=400st",
                               "--set",  "mode=ps",         "--set", of[i].ps,
                               "--set",  of[i].fault,       "--set", i == 2 ? "run.restarts=2" : "run.elastic=2",
                               "--set",  "checkpoint=10st", "--set", "run.join_timeout=20s",
                               NULL};
        char name[32];
        snprintf(name, sizeof name, "server-lost-%zu", i);
        run_hosts(name, of[i].action, extra, 120);
        all_end_well();
        assert_string_equal(hash_of_hosts(), one);
        if (!strstr(read_host(0, "err"), of[i].says)) fail_msg("%s: %s", of[i].ps, read_host(0, "err"));
    }
}

/* Device 3 is node 1's, whose folder knows that it has been struck, before any checkpoint. */
static void a_fault_strikes_once(void **state) {
    (void)state;
    static const char *const extra[] = {"--json",
                                        "--set",
                                        "train=40st",
                                        "--set",
                                        "run.restarts=2",
                                        "--set",
                                        "checkpoint=30st",
                                        "--set",
                                        "run.join_timeout=20s",
                                        "--set",
                                        "inject.fault={device: 3, step: 5, kind: kill}",
                                        NULL};
    char one[65];
    snprintf(one, sizeof one, "%s", hash_of_one("train=40st"));
    run_hosts("fault", "none", extra, 90);
    for (int k = 0; k < HOSTS; k++)
        if (code_of(k)) fail_msg("host %d ended with %d: %s", k, code_of(k), read_host(k, "err"));
    assert_string_equal(hash_of_hosts(), one);
    if (!strstr(read_host(0, "err"), "starting again")) fail_msg("it has not struck");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(same_bits),
                                       cmocka_unit_test(cut),
                                       cmocka_unit_test(lost_node),
                                       cmocka_unit_test(lost_master),
                                       cmocka_unit_test(hung_node),
                                       cmocka_unit_test(hung_master),
                                       cmocka_unit_test(a_fault_strikes_once),
                                       cmocka_unit_test(servers_on_hosts),
                                       cmocka_unit_test(a_server_that_does_not_wait),
                                       cmocka_unit_test(servers_and_losses)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
