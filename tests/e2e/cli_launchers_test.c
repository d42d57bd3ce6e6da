/* One configuration, four ranks, started by each launcher that there is: the same weights. And what
 * is said, and when, where ranks are started wrongly. */
#include "tests/harness/program.h"
#include "tests/harness/timing.h"

#include <glob.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 4, WORDS = 12 };
static const char engine[] = ENGINE_BINARY_DIR "/engine";
static struct program ranks[RANKS];
static char config[600], dir[600], one[65];

/* ---- files and ports ---- */

static const char *write_file(const char *name, const char *text) {
    const char *path = scratch_path(name);
    save_text(path, text);
    return path;
}

/* A socket that listens at the port of 127.0.0.1, or -1 when it is taken. */
static int listen_at(int port) {
    struct sockaddr_in at = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    if (bind(fd, (struct sockaddr *)&at, sizeof at) == 0 && listen(fd, 16) == 0) return fd;
    close(fd);
    return -1;
}

/* A free port, the next of which is free, too; below those that the kernel gives to connections.
 * Ranks inherit it as MASTER_PORT, which alone means nothing. */
static int fresh_port(void) {
    static int last;
    char text[16];
    for (int tries = 0; tries < 1000; tries++) {
        int port = 20000 + (getpid() * 20 + 2 * last++) % 10000, fd = listen_at(port), next = listen_at(port + 1);
        if (fd >= 0) close(fd);
        if (next >= 0) close(next);
        if (fd < 0 || next < 0) continue;
        snprintf(text, sizeof text, "%d", port);
        setenv("MASTER_PORT", text, 1);
        return port;
    }
    fail_msg("no free port");
    return 0;
}

static int setup(void **state) {
    (void)state;
    static const char *const names[] = {
        "RANK",          "WORLD_SIZE",          "LOCAL_RANK",           "LOCAL_WORLD_SIZE",
        "MASTER_ADDR",   "TORCHELASTIC_RUN_ID", "OMPI_COMM_WORLD_RANK", "PMI_RANK",
        "SLURM_STEP_ID", "ENGINE_TOKEN"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) unsetenv(names[i]);
    setenv("TMPDIR", scratch_folder(), 1);
    setenv("ENGINE", engine, 1); /* of the scripts in examples/cluster */
    setenv("MPIRUN_OPTIONS", "--oversubscribe", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    snprintf(dir, sizeof dir, "log.dir=%s/run-$time", scratch_folder());
    snprintf(config, sizeof config, "%s",
             write_file("train.yaml", "mode: ddp\n"
                                      "threads: 1\n"
                                      "model: {zoo: mlp, hidden: [64]}\n"
                                      "data: {set: digits, train: 2000, val: 100}\n"
                                      "batch: {size: 64, shards: 4}\n"
                                      "train: 30st\n"
                                      "seed: 7\n"
                                      "eval: end\n"
                                      "run: {join_timeout: 20s}\n"));
    return 0;
}

/* Ends what a failed test has left. */
static int sweep(void **state) {
    (void)state;
    for (int k = 0; k < RANKS; k++) {
        if (ranks[k].pid <= 0) continue;
        kill(ranks[k].pid, SIGTERM);
        (void)program_wait(&ranks[k], 5);
        ranks[k].pid = 0;
    }
    return 0;
}

/* ---- starting and reading ---- */

/* before: what comes before the configuration. */
static void start(struct program *p, const char *const *before, const char *const *after) {
    const char *words[PROGRAM_ARGS], *const own[] = {config, "--json", "--set", dir, NULL};
    int n = 0;
    for (; *before; before++) words[n++] = *before;
    for (int i = 0; own[i]; i++) words[n++] = own[i];
    for (; *after; after++) words[n++] = *after;
    words[n] = NULL;
    program_spawn(p, words);
}

/* false: it did not end in time. */
static bool finish(struct program *p, double limit) {
    bool ended = program_wait(p, limit);
    p->pid = 0;
    return ended;
}

/* The text between two others, in a static buffer; "-" when it is not there. */
static const char *between(const char *text, const char *before, const char *after) {
    static char out[4][400];
    static int next;
    const char *at = strstr(text, before), *end = at ? strstr(at + strlen(before), after) : NULL;
    if (!end) return "-";
    at += strlen(before);
    char *to = out[next++ % 4];
    snprintf(to, sizeof out[0], "%.*s", (int)(end - at), at);
    return to;
}

/* Tells a row of the table, and compares the weights with those of the first row. */
static void check(const char *how, const struct program *p, const char *by) {
    const char *log = strstr(p->err, "started by ") ? p->err : p->out; /* 'engine launch' prints all on its output */
    const char *hash = between(p->out, "\"weights_sha256\":\"", "\""), *said = between(log, "started by ", "\n"),
               *place = between(log, "meeting at ", "\n");
    print_message("%-26s %.12s  %s  at %s  (%.2f s)\n", how, hash, by ? between(said, "(", ")") : "-",
                  by ? place : "inherited memory", p->seconds);
    if (p->code || strlen(hash) != 64) fail_msg("%s: code %d: %s", how, p->code, p->err);
    if (!*one) snprintf(one, sizeof one, "%s", hash);
    assert_string_equal(hash, one);
    if (by && (strncmp(said, by, strlen(by)) || !strcmp(place, "-")))
        fail_msg("%s: not said to be started by %s: %s", how, by, log);
}

/* ---- the same weights ---- */

static void by_itself(void **state) {
    (void)state;
    const char *before[] = {engine, "run", NULL}, *after[] = {"--devices", "cpu:4", NULL};
    start(&ranks[0], before, after);
    assert_true(finish(&ranks[0], 30));
    check("engine run", &ranks[0], NULL);
}

/* Starts four, each with these variables or options, in which "%d" is its rank, and its own output.
 */
static void by_hand(const char *how, const char *by, const char *const *variables, const char *const *options) {
    char texts[RANKS][WORDS][200];
    fresh_port();
    for (int k = 0; k < RANKS; k++) {
        const char *before[WORDS] = {"env"}, *after[WORDS] = {NULL};
        int n = 1, used = 0;
        for (int i = 0; variables[i]; i++, used++, n++) {
            snprintf(texts[k][used], sizeof texts[k][used], variables[i], k);
            before[n] = texts[k][used];
        }
        before[n++] = engine;
        before[n] = "run";
        for (int i = 0; options[i]; i++, used++) {
            snprintf(texts[k][used], sizeof texts[k][used], options[i], k);
            after[i] = texts[k][used];
        }
        start(&ranks[k], before, after);
    }
    for (int k = 0; k < RANKS; k++)
        if (!finish(&ranks[k], 30) || ranks[k].code)
            fail_msg("%s: rank %d: code %d: %s", how, k, ranks[k].code, ranks[k].err);
    check(how, &ranks[0], by);
    for (int k = 1; k < RANKS; k++) assert_string_equal(ranks[k].out, "");
}

static void by_the_environment(void **state) {
    (void)state;
    static const char *const plain[] = {"RANK=%d", "WORLD_SIZE=4", "MASTER_ADDR=127.0.0.1", NULL};
    static const char *const local[] = {"RANK=%d",       "WORLD_SIZE=4",       "MASTER_ADDR=localhost",
                                        "LOCAL_RANK=%d", "LOCAL_WORLD_SIZE=4", NULL};
    static const char *const none[] = {NULL};
    by_hand("env://", "env://", plain, none);
    by_hand("env://, LOCAL_*", "env://", local, none);
}

static void by_url(void **state) {
    (void)state;
    char tcp[64], file[600];
    const char *none[] = {NULL}, *at_port[] = {"--set", tcp, "--set", "run.rank=%d", "--set", "run.world_size=4", NULL},
               *at_file[] = {"--set", file, NULL}, *who[] = {"RANK=%d", "WORLD_SIZE=4", "MASTER_ADDR=127.0.0.1", NULL};
    snprintf(tcp, sizeof tcp, "run.init=tcp://127.0.0.1:%d", fresh_port());
    snprintf(file, sizeof file, "run.init=file://%s", scratch_path("meeting"));
    by_hand("run.init tcp://", "run.init tcp://", none, at_port);
    by_hand("run.init file://, RANK", "run.init file://", who, at_file);
}

/* Skips where the launcher is not there. */
static void by_program(const char *how, const char *by, const char *const *before, double limit) {
    static const char *const none[] = {NULL};
    start(&ranks[0], before, none);
    if (!finish(&ranks[0], limit)) fail_msg("%s: still running: %s", how, ranks[0].err);
    if (ranks[0].code == 77 || ranks[0].code == 127) {
        print_message("%s: nothing is tested: %s\n", how, ranks[0].err);
        skip();
    }
    check(how, &ranks[0], by);
}

/* Two nodes of this host, one with twice the devices of the other. */
static void unequal_nodes(void **state) {
    char node[8], devices[8], port[16];
    const char *before[] = {engine, "run", NULL};
    const char *after[] = {"--nnodes",      "2",  "--node-rank", node, "--nproc-per-node", devices,
                           "--master-port", port, NULL};
    (void)state;
    snprintf(port, sizeof port, "%d", fresh_port());
    setenv("ENGINE_TOKEN", "one-secret-of-many", 1);
    for (int k = 0; k < 2; k++) {
        snprintf(node, sizeof node, "%d", k);
        snprintf(devices, sizeof devices, "%d", 2 - k);
        start(&ranks[k], before, after);
    }
    unsetenv("ENGINE_TOKEN");
    for (int k = 0; k < 2; k++)
        if (!finish(&ranks[k], 60) || ranks[k].code) fail_msg("node %d: code %d: %s", k, ranks[k].code, ranks[k].err);
    check("nodes of 2 and 1 devices", &ranks[0], NULL);
    assert_non_null(strstr(ranks[0].out, "\"devices\":3"));
}

/* Itself, and a shell that runs it; other commands are no part of what it started, either. */
static void by_launch(void **state) {
    static const char *const direct[] = {engine, "launch", "-n", "4", engine, "run", NULL};
    static const char *const through[] = {engine,        "launch", "-n",   "4",   "sh", "-c",
                                          "\"$@\" && :", "sh",     engine, "run", NULL};
    static struct program p;
    (void)state;
    by_program("engine launch", "engine launch", direct, 60);
    by_program("engine launch, a shell", "engine launch", through, 60);
    program_run(&p, 20, "launch", "-n", "2", engine, "run", config, "--mode", "dp", NULL);
    assert_int_equal(p.code, 78);
    assert_non_null(strstr(p.out, "mode 'dp' is one process, but engine launch has started 2"));
    program_run(&p, 20, "launch", "-n", "2", "sh", "-c", "RANK=7 \"$@\" && :", "sh", engine, "run", config, NULL);
    assert_int_equal(p.code, 64);
    assert_non_null(strstr(p.out, "of 2, RANK and WORLD_SIZE say something else"));
}

/* A rank is killed; all start again, and the run goes on from its checkpoint. */
static void by_launch_again(void **state) {
    char fixed[600];
    const char *before[] = {engine, "launch", "--standalone", "--nproc-per-node", "4", "--max-restarts", "1", engine,
                            "run",  NULL},
               *after[] = {"--set", fixed,
                           "--set", "checkpoint=10st",
                           "--set", "inject.fault={device: 1, step: 25, kind: kill}",
                           NULL};
    (void)state;
    snprintf(fixed, sizeof fixed, "log.dir=%s", scratch_path("again"));
    start(&ranks[0], before, after);
    assert_true(finish(&ranks[0], 60));
    check("engine launch, again", &ranks[0], "engine launch");
    assert_non_null(strstr(ranks[0].err, "was killed by signal 9: all ranks start again, for the 1. time of 1"));
    assert_non_null(strstr(ranks[0].out, "at step 20"));
}

static void by_mpirun(void **state) {
    (void)state;
    const char *before[] = {"sh",
                            "-c",
                            "command -v mpirun >/dev/null || exit 77; exec sh \"$@\"",
                            "sh",
                            ENGINE_SOURCE_DIR "/examples/cluster/mpirun.sh",
                            "4",
                            NULL};
    by_program("examples/cluster/mpirun.sh", "Open MPI", before, 60);
}

static void by_srun(void **state) {
    (void)state;
    const char *before[] = {"sh", ENGINE_SOURCE_DIR "/tests/harness/slurm.sh",    scratch_path("slurm"),
                            "4",  ENGINE_SOURCE_DIR "/examples/cluster/slurm.sh", NULL};
    by_program("examples/cluster/slurm.sh", "Slurm", before, 60);
}

static void by_torch(void **state) {
    (void)state;
    char port[16];
    snprintf(port, sizeof port, "%d", fresh_port());
    const char *before[] = {
        "env", "/usr/bin/python3", ENGINE_SOURCE_DIR "/tests/harness/elastic.py", port, "4", engine, "run", NULL};
    by_program("torch's elastic agent", "torchrun", before, 60);
}

/* ---- started wrongly ---- */

struct rank { /* one of them */
    const char *variables[6], *options[6];
    int code;
    const char *says[4];
};

/* Starts them together, and compares what each says and how it ends: whether all is as it should be, of the last try an
 * assertion. */
static bool wrongly_tried(const char *how, const struct rank *r, int n, double limit, bool last) {
    static const char *const none[] = {NULL};
    for (int k = 0; k < n; k++) {
        const char *before[WORDS] = {"env"};
        int words = 1;
        for (int i = 0; i < 6 && r[k].variables[i]; i++) before[words++] = r[k].variables[i];
        before[words++] = engine;
        before[words] = "run";
        start(&ranks[k], before, r[k].options[0] ? r[k].options : none);
    }
    for (int k = 0; k < n; k++) {
        bool ended = finish(&ranks[k], timing_limit(limit));
        print_message("%s%s: code %d after %.2f s\n%s", k ? "  " : how, k ? "and" : "", ranks[k].code, ranks[k].seconds,
                      ranks[k].err);
        if (!ended) fail_msg("%s: still running after %.1f s", how, timing_limit(limit));
    }
    for (int k = 0; k < n; k++) {
        if (last) assert_int_equal(ranks[k].code, r[k].code);
        if (ranks[k].code != r[k].code) return false;
        for (int i = 0; i < 4 && r[k].says[i]; i++) {
            bool says = strstr(ranks[k].err, r[k].says[i]);
            if (!says && last) fail_msg("%s: process %d does not say '%s'", how, k, r[k].says[i]);
            if (!says) return false;
        }
    }
    return true;
}

static void wrongly(const char *how, const struct rank *r, int n, double limit) {
    (void)wrongly_tried(how, r, n, limit, true);
}

#define HERE "MASTER_ADDR=127.0.0.1"

/* What one process can see for itself is said at once. */
static void alone(void **state) {
    (void)state;
    static const struct {
        const char *how;
        struct rank rank;
    } all[] = {
        {"no MASTER_ADDR", {{"RANK=0", "WORLD_SIZE=4"}, {NULL}, 78, {"RANK and WORLD_SIZE are set, but MASTER_ADDR"}}},
        {"no WORLD_SIZE", {{"RANK=0", HERE}, {NULL}, 78, {"WORLD_SIZE is not"}}},
        {"RANK too large", {{"RANK=4", "WORLD_SIZE=4", HERE}, {NULL}, 78, {"RANK=4, but WORLD_SIZE=4", "from 0 to 3"}}},
        {"RANK is a word", {{"RANK=one", "WORLD_SIZE=4", HERE}, {NULL}, 78, {"RANK='one'"}}},
        {"two launchers",
         {{"RANK=0", "WORLD_SIZE=4", HERE, "OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=4"},
          {NULL},
          78,
          {"RANK says rank 0, OMPI_COMM_WORLD_RANK says 1"}}},
        {"Open MPI on several hosts",
         {{"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_LOCAL_RANK=0",
           "OMPI_COMM_WORLD_LOCAL_SIZE=2"},
          {NULL},
          78,
          {"Open MPI has started 4 ranks, 2 of them here", "MASTER_ADDR"}}},
        {"mode dp", {{"RANK=0", "WORLD_SIZE=4", HERE}, {"--mode", "dp"}, 78, {"mode 'dp' is one process", "RANK"}}},
        {"run.nodes", {{"RANK=0", "WORLD_SIZE=4", HERE}, {"--nnodes", "2"}, 78, {"2 nodes, but", "RANK"}}},
        {"run.init without a rank",
         {{NULL}, {"--set", "run.init=tcp://127.0.0.1:29500"}, 78, {"run.rank", "1 error."}}},
        {"several hosts, no token", {{NULL}, {"--nnodes", "2", "--devices", "cpu:2"}, 78, {"ENGINE_TOKEN"}}},
        {"fewer hosts than one", {{NULL}, {"--nnodes", "0:2"}, 78, {"'run.elastic.nodes' must be all or an integer"}}},
        {"another host's address",
         {{"RANK=0", "WORLD_SIZE=4", "MASTER_ADDR=192.0.2.1", "ENGINE_TOKEN=one-secret-of-many"},
          {NULL},
          73,
          {"cannot serve a store at 192.0.2.1:", "this host has no such address",
           "is this host the one of rank 0 or node 0?"}}},
        {"others can reach it, no token",
         {{"RANK=0", "WORLD_SIZE=4", "MASTER_ADDR=0.0.0.0"}, {NULL}, 78, {"without a token", "set a token"}}},
    };
    fresh_port();
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) wrongly(all[i].how, &all[i].rank, 1, 2);
}

static void nobody_comes(void **state) {
    (void)state;
    static const struct rank first[] = {{{"RANK=0", "WORLD_SIZE=4", HERE},
                                         {"--set", "run.join_timeout=1s"},
                                         75,
                                         {"ranks 2, 3 of 4 have not come within 1.0 s"}},
                                        {{"RANK=1", "WORLD_SIZE=4", HERE},
                                         {"--set", "run.join_timeout=1s"},
                                         75,
                                         {"ranks 2, 3 of 4 have not come within 1.0 s"}}};
    static const struct rank other[] = {
        {{"RANK=1", "WORLD_SIZE=4", HERE}, {"--set", "run.join_timeout=1s"}, 75, {"127.0.0.1", "Connection refused"}}};
    fresh_port();
    wrongly("two of four never come", first, 2, 5);
    wrongly("rank 0 never comes", other, 1, 5);
}

/* Who waits can be told to stop. */
static void stopped(void **state) {
    (void)state;
    const char *before[] = {"env", "RANK=0", "WORLD_SIZE=4", HERE, engine, "run", NULL}, *none[] = {NULL};
    fresh_port();
    start(&ranks[0], before, none);
    program_wait_text(&ranks[0], "waiting for ranks 1, 2, 3 of 4", 10);
    kill(ranks[0].pid, SIGTERM);
    assert_true(finish(&ranks[0], 4));
    print_message("stopped while it waits: code %d after %.2f s\n", ranks[0].code, ranks[0].seconds);
    assert_int_equal(ranks[0].code, 143);
}

/* The file in which ranks of one host were to meet goes with the one that is stopped. */
static void stopped_at_a_file(void **state) {
    (void)state;
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};
    const char *before[] = {"env",
                            "OMPI_COMM_WORLD_RANK=0",
                            "OMPI_COMM_WORLD_SIZE=2",
                            "OMPI_COMM_WORLD_LOCAL_RANK=0",
                            "OMPI_COMM_WORLD_LOCAL_SIZE=2",
                            engine,
                            "run",
                            NULL},
               *none[] = {NULL};
    for (int i = 0; i < 4; i++) {
        glob_t left;
        start(&ranks[0], before, none);
        program_wait_text(&ranks[0], "waiting for rank 1 of 2", 10);
        assert_int_equal(glob(scratch_path("engine-[0-9]*"), 0, NULL, &left), 0);
        globfree(&left);
        kill(ranks[0].pid, signals[i]);
        assert_true(finish(&ranks[0], 4));
        assert_int_equal(ranks[0].code, signals[i] == SIGINT ? 130 : 143);
        assert_int_equal(glob(scratch_path("engine-[0-9]*"), 0, NULL, &left), GLOB_NOMATCH);
    }
}

/* Nobody watches ranks that are started by hand: the others see it themselves, also after whoever
 * started the killed one has collected its exit code. */
static void killed(void **state) {
    (void)state;
    static const char *const links[] = {"comm.link=shm", "comm.link=tcp"};
    for (int i = 0; i < 2; i++) {
        const char *after[] = {"--set", "train=100000st", "--set", links[i], NULL};
        char rank[32];
        fresh_port();
        for (int k = 0; k < RANKS; k++) {
            const char *before[] = {"env", rank, "WORLD_SIZE=4", HERE, engine, "run", NULL};
            snprintf(rank, sizeof rank, "RANK=%d", k);
            start(&ranks[k], before, after);
        }
        program_wait_text(&ranks[0], "step=", 30);
        kill(ranks[1].pid, SIGKILL);
        assert_true(finish(&ranks[1], 5));
        for (int k = 0; k < RANKS; k++) {
            if (k == 1) continue;
            bool ended = finish(&ranks[k], 8);
            if (!ended || ranks[k].code != 75 || !strstr(ranks[k].err, "rank 1 (") || !strstr(ranks[k].err, "has died"))
                fail_msg("%s: rank %d: code %d: %s", links[i], k, ranks[k].code, ranks[k].err);
        }
    }
}

static void twice(void **state) {
    (void)state;
    static const struct rank one_rank[] = {
        {{"RANK=0", "WORLD_SIZE=4", HERE}, {NULL}, 78, {"two have come as rank 1: "}},
        {{"RANK=1", "WORLD_SIZE=4", HERE}, {NULL}, 78, {"two have come as rank 1: "}},
        {{"RANK=1", "WORLD_SIZE=4", HERE}, {NULL}, 78, {"two have come as rank 1: "}}};
    fresh_port();
    wrongly("rank 1 twice", one_rank, 3, 5);
}

static void different(void **state) {
    (void)state;
    static char folders[2][600], text[4096], within[40];
    const struct rank seeds[] = {
        {{"RANK=0", "WORLD_SIZE=2", HERE}, {NULL}, 78, {"has another seed", "hint: all must have the same"}},
        {{"RANK=1", "WORLD_SIZE=2", HERE}, {"--set", "seed=8"}, 78, {"has another seed"}}};
    const char *data = "data={set: csv, train: data.csv, val: 20}";
    const struct rank files[] = {
        {{folders[0], "RANK=0", "WORLD_SIZE=2", HERE}, {"--set", data}, 78, {"has another content of the data"}},
        {{folders[1], "RANK=1", "WORLD_SIZE=2", HERE}, {"--set", data}, 78, {"has another content of the data"}}};
    const struct rank secrets[] = {{{"RANK=0", "WORLD_SIZE=2", HERE, "ENGINE_TOKEN=one-secret-of-many"},
                                    {"--set", within},
                                    75,
                                    {"rank 1 of 2 has not come", "(turned away: 127.0.0.1:",
                                     "which has another token, or none)", "the same ENGINE_TOKEN?"}},
                                   {{"RANK=1", "WORLD_SIZE=2", HERE, "ENGINE_TOKEN=another-of-many-secrets"},
                                    {"--set", within},
                                    78,
                                    {"refused the token"}}};
    for (int i = 0; i < 200; i++) snprintf(text + strlen(text), 16, "%d,%d,%d\n", i, i * i % 7, i % 2);
    for (int k = 0; k < 2; k++) { /* of one name, in two folders */
        char name[32];
        snprintf(name, sizeof name, "place-%d", k);
        assert_int_equal(mkdir(scratch_path(name), 0755), 0);
        snprintf(folders[k], sizeof folders[k], "--chdir=%s", scratch_path(name));
        snprintf(name, sizeof name, "place-%d/data.csv", k);
        text[0] = (char)('0' + k);
        write_file(name, text);
    }
    fresh_port();
    wrongly("another seed", seeds, 2, 5);
    fresh_port();
    wrongly("another file", files, 2, 5);
    /* What rank 0 says when its time is over depends on whether rank 1 has come by then, which a busy machine delays. */
    enum { LONGEST = 54 };
    bool told = false;
    for (int seconds = 2; !told; seconds *= 3) {
        fresh_port();
        snprintf(within, sizeof within, "run.join_timeout=%ds", seconds);
        told = wrongly_tried("another token", secrets, 2, 5 + seconds, seconds == LONGEST);
    }
}

static void port_taken(void **state) {
    (void)state;
    char who[64];
    int port = fresh_port(), fd = listen_at(port);
    snprintf(who, sizeof who, "127.0.0.1:%d: the port is taken by process %d (", port, (int)getpid());
    const struct rank both[] = {
        {{"RANK=0", "WORLD_SIZE=2", HERE}, {NULL}, 73, {who}},
        {{"RANK=1", "WORLD_SIZE=2", HERE}, {"--set", "run.join_timeout=1s"}, 75, {"does not answer like a store"}}};
    wrongly("the port is taken", both, 2, 5);
    close(fd);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(by_itself, sweep),
        cmocka_unit_test_teardown(by_the_environment, sweep),
        cmocka_unit_test_teardown(by_url, sweep),
        cmocka_unit_test_teardown(by_launch, sweep),
        cmocka_unit_test_teardown(by_launch_again, sweep),
        cmocka_unit_test_teardown(unequal_nodes, sweep),
        cmocka_unit_test_teardown(by_torch, sweep),
        cmocka_unit_test_teardown(by_mpirun, sweep),
        cmocka_unit_test_teardown(by_srun, sweep),
        cmocka_unit_test_teardown(alone, sweep),
        cmocka_unit_test_teardown(nobody_comes, sweep),
        cmocka_unit_test_teardown(stopped, sweep),
        cmocka_unit_test_teardown(stopped_at_a_file, sweep),
        cmocka_unit_test_teardown(killed, sweep),
        cmocka_unit_test_teardown(twice, sweep),
        cmocka_unit_test_teardown(different, sweep),
        cmocka_unit_test_teardown(port_taken, sweep),
    };
    return cmocka_run_group_tests_name("launchers", tests, setup, NULL);
}
