#include "tests/harness/training.h"

#include "engine/base/clock.h"
#include "engine/base/digest.h"
#include "engine/base/file.h"
#include "tests/harness/timing.h"

#include <dirent.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const common[] = {"threads=1",
                                     "model={zoo: mlp, hidden: [64]}",
                                     "data={set: digits, train: 2000, val: 50}",
                                     "batch={size: 64, shards: 4}",
                                     "train=100000000st",
                                     "checkpoint=50st",
                                     "log.every=1st",
                                     "eval=end"};
enum { COMMON = sizeof common / sizeof *common };

/* The engine's temporary files go to a folder of their own, which has to be empty in the end. */
static const char *temporary(void) {
    static char path[512];
    if (!*path) {
        snprintf(path, sizeof path, "%s", scratch_path("temporary"));
        assert_int_equal(mkdir(path, 0755), 0);
        setenv("TMPDIR", path, 1);
    }
    return path;
}

static int add(const char **words, int n, const char *const *settings, int count) {
    for (int i = 0; i < count && settings[i]; i++) words[n++] = "--set", words[n++] = settings[i];
    return n;
}

void training_start(struct program *p, const char *dir, const char *const *more) {
    const char *words[PROGRAM_ARGS] = {"run", "--json"};
    char place[600];
    const char *patience = timing_checked() ? "comm={timeout: 2s, heartbeat: 1s}" : "comm={timeout: 6s, heartbeat: 3s}";
    const char *const own[] = {patience, place, "mode=ddp", "devices=cpu:4"};
    (void)temporary();
    snprintf(place, sizeof place, "log.dir=%s", scratch_path(dir));
    int n = add(words, 2, common, COMMON);
    n = add(words, n, own, sizeof own / sizeof *own);
    n = add(words, n, more, (PROGRAM_ARGS - n) / 2);
    words[n] = NULL;
    program_start(p, words);
}

void training_begin(struct program *p, const char *dir, const char *const *more) {
    training_start(p, dir, more);
    program_wait_text(p, "step=10/", 30);
}

void training_resume(struct program *p, const char *dir, long steps) {
    char length[64];
    snprintf(length, sizeof length, "train=%ldst", steps);
    const char *words[] = {"run", scratch_path(dir), "--json", "--set", length, NULL};
    program_start(p, words);
}

const char *training_hash(long steps, const char *const *more) {
    static struct program p;
    static char hash[80];
    static int serial;
    char dir[64], length[64];
    snprintf(dir, sizeof dir, "control-%d", serial++);
    snprintf(length, sizeof length, "train=%ldst", steps);
    const char *all[16] = {"mode=single", "devices=cpu:1", "checkpoint=off", length};
    for (int n = 4; n < 15 && *more; n++) all[n] = *more++;
    training_start(&p, dir, all);
    assert_true(program_wait(&p, 120));
    snprintf(hash, sizeof hash, "%s", program_string(&p, "weights_sha256"));
    return hash;
}

void training_numbers(const char *dir, const char *name, double *out, int n) {
    enum { LIMIT = 1 << 24 };
    char path[700], key[64], *text;
    size_t length;
    struct pool *pool;
    snprintf(path, sizeof path, "%s/metrics.jsonl", scratch_path(dir));
    snprintf(key, sizeof key, "\"%s\":", name);
    assert_ok(pool_create(&pool));
    assert_ok(file_read(path, LIMIT, pool, &text, &length));
    for (int i = 0; i < n; i++) {
        text = strstr(text, key);
        if (!text) fail_msg("%s has only %d times %s", path, i, name);
        out[i] = atof(text += strlen(key));
    }
    pool_free(pool);
}

void training_forget(const char *dir, const char *step, const char *from, const char *to) {
    enum { CHECKSUM = sizeof ",\"crc32c\":\"00000000\"}\n" };
    char path[900], *text;
    size_t n;
    struct pool *pool;
    snprintf(path, sizeof path, "%s/ckpt/%s/manifest.json", scratch_path(dir), step);
    assert_ok(pool_create(&pool));
    assert_ok(file_read(path, 1 << 20, pool, &text, &n));
    char *gone = strstr(text, from), *kept = strstr(text, to), *end = text + n + 1 - CHECKSUM;
    assert_true(gone && kept && gone < kept && kept < end);
    memmove(gone, kept, (size_t)(end - kept));
    end -= kept - gone;
    snprintf(end, CHECKSUM, ",\"crc32c\":\"%08x\"}\n", crc32c(0, text, (size_t)(end - text)));
    assert_ok(file_replace(path, text, strlen(text)));
    pool_free(pool);
}

long training_saved(const char *dir) {
    return training_saved_before(dir, LONG_MAX);
}

long training_saved_before(const char *dir, long end) {
    char path[600];
    long newest = -1, step;
    snprintf(path, sizeof path, "%s/ckpt", scratch_path(dir));
    DIR *d = opendir(path);
    for (struct dirent *e; d && (e = readdir(d));)
        if (sscanf(e->d_name, "step-%ld", &step) == 1 && step > newest && step < end) newest = step;
    if (d) closedir(d);
    return newest;
}

static int count_files(const char *folder) {
    int n = 0;
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d));) n += e->d_name[0] != '.';
    if (d) closedir(d);
    return n;
}

void training_gone(void) {
    int64_t begin = clock_ns();
    while (program_orphans() > 0 && clock_seconds(clock_ns() - begin) < timing_limit(2)) usleep(1000);
    assert_int_equal(program_orphans(), 0);
    assert_int_equal(count_files(temporary()), 0);
}

void training_says(const struct program *p, const char *text) {
    size_t n = strlen(p->err);
    if (!strstr(p->err, text)) fail_msg("'%s' is not in what it said: ...%s", text, p->err + (n > 1500 ? n - 1500 : 0));
}

const char *training_inspect(const char *dir) {
    static struct program p;
    program_run(&p, 20, "inspect", scratch_path(dir), NULL);
    if (p.code) fail_msg("engine inspect: exit code %d: %s", p.code, p.err);
    return p.out;
}

double training_ends(struct program *p, double limit_s) {
    int64_t now = clock_ns();
    limit_s = timing_limit(limit_s);
    if (!program_wait(p, clock_seconds(now - p->started) + limit_s + 10)) fail_msg("still running: %s", p->err);
    double took = clock_seconds(clock_ns() - now);
    if (took > limit_s) fail_msg("ended after %.2f s, not within %.2f s", took, limit_s);
    return took;
}

/* ---- what every mode shows ---- */

void training_goes_anywhere(const char *const *network, const char *const ways[TRAINING_WAYS][3], int steps) {
    static struct program p;
    char dir[600], hash[80], half[32], whole[32];
    snprintf(half, sizeof half, "train=%dst", steps);
    snprintf(whole, sizeof whole, "train=%dst", 2 * steps);
    program_train(&p, network, SETS("optimizer=adam", "ema=0.9", whole, "mode=single", "devices=cpu:1"));
    snprintf(hash, sizeof hash, "%s", program_string(&p, "weights_sha256"));
    for (int i = 0; i < TRAINING_WAYS * TRAINING_WAYS; i++) {
        const char *const *from = ways[i / TRAINING_WAYS], *const *to = ways[i % TRAINING_WAYS];
        if (i / TRAINING_WAYS > 1 && i % TRAINING_WAYS > 1) continue; /* both are others' */
        snprintf(dir, sizeof dir, "log.dir=%s%d", scratch_path("from-"), i);
        program_train(&p, network,
                      SETS("optimizer=adam", "ema=0.9", "checkpoint=10st", half, dir, from[0], from[1], from[2]));
        program_run(&p, 60, "run", dir + strlen("log.dir="), "--resume", "--json", "--quiet", "--set", whole, "--set",
                    "optimizer.shard=false", "--set", to[0], "--set", to[1], "--set", to[2], NULL);
        if (p.code) fail_msg("%s %s to %s %s: %s", from[0], from[1], to[0], to[1], p.err);
        if (strcmp(program_string(&p, "weights_sha256"), hash) != 0)
            fail_msg("%s %s to %s %s: other weights", from[0], from[1], to[0], to[1]);
    }
}

static void join(const char *all[PROGRAM_ARGS], const char *const *more, const char *const *own) {
    while (*more) *all++ = *more++;
    while (*own) *all++ = *own++;
    *all = NULL;
}

static void assert_undisturbed(const struct program *p, int steps) {
    if (p->code) fail_msg("exit code %d: %s", p->code, p->err);
    assert_string_equal(program_string(p, "weights_sha256"), training_hash(steps, SETS(NULL)));
    training_gone();
}

void training_names_lost(const char *const *more, int rank) {
    static struct program p;
    const char *all[PROGRAM_ARGS];
    char says[64];
    join(all, more, SETS("checkpoint=10st"));
    training_begin(&p, "lost", all);
    kill(program_rank(&p, rank, 5), SIGKILL);
    training_ends(&p, 30);
    assert_int_equal(p.code, 75);
    snprintf(says, sizeof says, "rank %d was killed by signal 9", rank);
    training_says(&p, says);
    training_gone();
}

void training_replaces_lost(const char *const *more, int rank, int steps) {
    static struct program p;
    const char *all[PROGRAM_ARGS];
    char length[32];
    snprintf(length, sizeof length, "train=%dst", steps);
    join(all, more, SETS("checkpoint=10st", "run.restarts=1", length));
    training_begin(&p, "replaced", all);
    kill(program_rank(&p, rank, 5), SIGKILL);
    training_ends(&p, 90);
    assert_undisturbed(&p, steps);
}

void training_goes_on_without(const char *const *more) {
    enum { STEPS = 60 };
    static struct program p;
    const char *all[PROGRAM_ARGS];
    join(all, more,
         SETS("devices=cpu:4", "run.elastic=2", "checkpoint=20st", "train=60st",
              "inject.fault={device: 1, step: 30, kind: kill}"));
    training_start(&p, "left", all);
    assert_true(program_wait(&p, 120));
    training_says(&p, "lost rank 1: 3 devices, after 4");
    assert_undisturbed(&p, STEPS);
}
