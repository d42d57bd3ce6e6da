/* log.trace: what is in trace.json, held against the rules of its format and against what the run did. */
#include "tests/harness/program.h"

#include "engine/base/digest.h"
#include "engine/base/file.h"
#include "engine/tell/trace_file.h"

#include <glob.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct program p;
static struct pool *pool;

/* ---- a strict reader ---- */

enum { EVENTS = 60000, PIDS = 8, TIDS = 5, ARROWS = 20000 };
struct event {
    const struct json_value *json;
    const char *name, *cat;
    char ph;
    int pid, tid;
    int64_t ts, dur, id; /* ns */
};
static struct event events[EVENTS];
static int nevents;

static const struct json_value *member(const struct json_value *e, const char *key, enum json_kind kind) {
    const struct json_value *v = json_get(e, key);
    if (!v || v->kind != kind) fail_msg("an event has no '%s' of its kind", key);
    return v;
}

static int64_t ns_of(const struct json_value *e, const char *key) {
    double us = member(e, key, JSON_NUMBER)->number;
    assert_true(us >= 0 && us < 1e12);
    return (int64_t)llround(us * 1000);
}

static void read_event(const struct json_value *v) {
    struct event *e = &events[nevents++];
    assert_int_equal(v->kind, JSON_OBJECT);
    const char *ph = member(v, "ph", JSON_STRING)->text;
    assert_int_equal(strlen(ph), 1);
    *e = (struct event){.json = v,
                        .name = member(v, "name", JSON_STRING)->text,
                        .ph = *ph,
                        .pid = (int)member(v, "pid", JSON_NUMBER)->integer,
                        .tid = (int)member(v, "tid", JSON_NUMBER)->integer,
                        .ts = ns_of(v, "ts")};
    assert_true(*e->name && e->pid >= 0 && e->pid < PIDS && e->tid >= 0 && e->tid < TIDS);
    assert_non_null(strchr("XistfCM", e->ph));
    if (e->ph == 'X') e->dur = ns_of(v, "dur");
    if (e->ph != 'M' && e->ph != 'C') e->cat = member(v, "cat", JSON_STRING)->text;
    if (strchr("stf", e->ph)) e->id = member(v, "id", JSON_NUMBER)->integer;
    if (e->ph == 'f') assert_string_equal(member(v, "bp", JSON_STRING)->text, "e");
    if (e->ph == 'i') assert_string_equal(member(v, "s", JSON_STRING)->text, "t");
}

static const struct json_value *read_trace(const char *dir) {
    static const struct json_limits limits = {.depth = 6, .entries = 2000000, .text = 4096};
    const struct json_value *root;
    char *text, path[800];
    size_t n;
    snprintf(path, sizeof path, "%s/trace.json", dir);
    assert_ok(file_read(path, 64 << 20, pool, &text, &n));
    assert_ok(json_parse(text, n, limits, pool, &root));
    const struct json_value *list = member(root, "traceEvents", JSON_ARRAY);
    assert_true(list->count > 0 && list->count < EVENTS);
    nevents = 0;
    for (int i = 0; i < list->count; i++) read_event(&list->children[i]);
    for (int i = 1; i < nevents; i++) assert_true(events[i - 1].ts <= events[i].ts);
    return root;
}

/* Spans of a thread contain each other or are apart. */
static void check_nesting(void) {
    static struct {
        int64_t end[64];
        int depth;
    } open[PIDS][TIDS];
    memset(open, 0, sizeof open);
    for (int i = 0; i < nevents; i++) {
        const struct event *e = &events[i];
        if (e->ph != 'X') continue;
        int64_t *end = open[e->pid][e->tid].end;
        int *depth = &open[e->pid][e->tid].depth;
        while (*depth > 0 && end[*depth - 1] <= e->ts) --*depth;
        if (*depth > 0 && end[*depth - 1] < e->ts + e->dur)
            fail_msg("'%s' of rank %d begins in a span that ends before it", e->name, e->pid);
        assert_true(*depth < 64);
        end[(*depth)++] = e->ts + e->dur;
    }
}

static bool in_a_span(const struct event *at) {
    for (int i = 0; i < nevents; i++) {
        const struct event *e = &events[i];
        if (e->ph == 'X' && e->pid == at->pid && e->tid == at->tid && e->ts <= at->ts && at->ts <= e->ts + e->dur)
            return true;
    }
    return false;
}

/* Every arrow begins once, ends once behind that, and each of its points lies in a span. How many. */
static int check_arrows(void) {
    static struct {
        int64_t last;
        const char *name;
        int begun, passed, ended, pid;
    } arrows[ARROWS];
    int count = 0;
    memset(arrows, 0, sizeof arrows);
    for (int i = 0; i < nevents; i++) {
        const struct event *e = &events[i];
        if (!strchr("stf", e->ph)) continue;
        assert_true(e->id > 0 && e->id < ARROWS);
        if (e->ph == 's') {
            assert_int_equal(arrows[e->id].begun++, 0);
            arrows[e->id].name = e->name, arrows[e->id].pid = e->pid;
            count++;
        }
        assert_int_equal(arrows[e->id].begun, 1);
        assert_int_equal(arrows[e->id].ended, 0);
        arrows[e->id].passed += e->ph == 't';
        arrows[e->id].ended += e->ph == 'f';
        assert_true(arrows[e->id].last <= e->ts);
        arrows[e->id].last = e->ts;
        assert_string_equal(arrows[e->id].name, e->name);
        assert_int_equal(arrows[e->id].pid, e->pid);
        if (!in_a_span(e)) fail_msg("arrow '%s' (%c) points into no span", e->name, e->ph);
    }
    for (int k = 0; k < ARROWS; k++)
        if (arrows[k].begun) assert_true(arrows[k].passed == 1 && arrows[k].ended == 1);
    return count;
}

static void check_counters(void) {
    double last[PIDS] = {0}, most[PIDS] = {0};
    for (int i = 0; i < nevents; i++) {
        const struct event *e = &events[i];
        if (e->ph != 'C') continue;
        last[e->pid] = member(member(e->json, "args", JSON_OBJECT), "bytes", JSON_NUMBER)->number;
        assert_true(last[e->pid] >= 0);
        most[e->pid] = fmax(most[e->pid], last[e->pid]);
    }
    for (int k = 0; k < PIDS; k++) assert_true(last[k] == 0);
    bool calls = false;
    for (int i = 0; i < nevents; i++) calls |= events[i].cat && !strcmp(events[i].cat, "collective");
    assert_true(calls == (most[0] > 0));
}

static int count(char ph, const char *name, int pid) {
    int n = 0;
    for (int i = 0; i < nevents; i++)
        n += events[i].ph == ph && events[i].pid == pid && !strncmp(events[i].name, name, strlen(name));
    return n;
}

/* Calls of that name that carry a bucket's gradients (or weights). */
static int carries(const char *call, const char *what, int pid) {
    int n = 0;
    for (int i = 0; i < nevents; i++) {
        const struct event *e = &events[i];
        if (e->ph != 'X' || e->pid != pid || strcmp(e->cat, "collective") || strncmp(e->name, call, strlen(call)))
            continue;
        const struct json_value *c = json_get(member(e->json, "args", JSON_OBJECT), "carries");
        n += c && !strcmp(c->text, what);
    }
    return n;
}

static void check_ranks(int ranks, int steps) {
    for (int r = 0; r < ranks; r++) {
        assert_int_equal(count('M', "process_name", r), 1);
        assert_true(count('M', "thread_name", r) >= 1);
        assert_int_equal(count('X', "step ", r), steps);
    }
    for (int r = ranks; r < PIDS; r++) assert_int_equal(count('M', "process_name", r), 0);
}

static void check_all(const char *dir, int ranks, int steps) {
    read_trace(dir);
    check_nesting();
    check_counters();
    check_ranks(ranks, steps);
}

/* ---- runs ---- */

static const char *run_traced(const char *name, const char *mode, const char *devices, const char *trace,
                              const char *more) {
    static char dir[600];
    char d[700], m[64], n[64], t[64];
    snprintf(dir, sizeof dir, "%s", scratch_path(name));
    snprintf(d, sizeof d, "log.dir=%s", dir);
    snprintf(m, sizeof m, "mode=%s", mode);
    snprintf(n, sizeof n, "devices=%s", devices);
    snprintf(t, sizeof t, "log.trace=%s", trace);
    program_run(&p, 60, "run", "--set", d, "--set", m, "--set", n, "--set", t, "--set",
                "model={zoo: mlp, hidden: [128, 64]}", "--set", "batch={size: 64, shards: 4}", "--set", "train=20st",
                "--set", "threads=1", "--set", "eval=8st", "--set", "ddp={bucket: {first: 16KB, cap: 64KB}}", "--set",
                "optimizer=adam", "--set", more ? more : "seed=0", NULL);
    if (p.code != 0) fail_msg("%s", p.err);
    return dir;
}

static int buckets_of(const char *dir) {
    struct trace_rank *ranks;
    int n;
    assert_ok(trace_read_all(dir, pool, &ranks, &n));
    return ranks->nbuckets;
}

/* What each bucket did, by the ranks' own files: steps x buckets, each in its order. */
static void check_buckets(const char *dir, int computing, int steps, bool beside) {
    struct trace_rank *ranks;
    int n, with = 0;
    assert_ok(trace_read_all(dir, pool, &ranks, &n));
    for (int r = 0; r < n; r++) {
        struct trace_bucket *b;
        int nb;
        assert_ok(trace_buckets(&ranks[r], pool, &b, &nb));
        with += nb > 0;
        if (nb) assert_int_equal(nb, steps * ranks[r].nbuckets);
        for (int i = 0; i < nb; i++) {
            assert_true(b[i].ready <= b[i].start && b[i].start <= b[i].done && b[i].done <= b[i].taken);
            assert_true(b[i].waited >= 0 && b[i].waited <= b[i].taken - b[i].ready);
            assert_int_equal(b[i].beside, beside);
            assert_int_equal(b[i].bytes, ranks[r].bucket[b[i].bucket]);
            if (i > 0 && b[i].step == b[i - 1].step)
                assert_true(b[i].bucket == b[i - 1].bucket + 1 && b[i].ready >= b[i - 1].ready);
        }
    }
    assert_int_equal(with, computing);
}

static void a_single_device(void **state) {
    (void)state;
    const char *dir = run_traced("single", "single", "cpu:1", "5..9st", NULL);
    check_all(dir, 1, 5);
    assert_int_equal(check_arrows(), 0);
    assert_int_equal(count('X', "forward", 0), 5); /* the shards of a device together */
    assert_int_equal(count('X', "evaluation", 0), 1);
    assert_int_equal(count('X', "loss", 0), 5 * 2);
    assert_true(strstr(p.err, "trace.json") != NULL);
}

static void gradients_that_leave_early(void **state) {
    (void)state;
    const char *dir = run_traced("ddp", "ddp", "cpu:2", "5..9", NULL);
    int buckets = buckets_of(dir);
    assert_true(buckets > 2);
    check_all(dir, 2, 5);
    assert_int_equal(check_arrows(), 2 * 5 * buckets);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(carries("all_reduce", "gradients", r), 5 * buckets);
        assert_int_equal(count('i', "bucket", r), 5 * buckets);
        assert_int_equal(count('X', "wait for all_reduce", r), 5 * buckets);
        assert_int_equal(count('X', "update", r), 5);
    }
    check_buckets(dir, 2, 5, true);
}

static void gradients_that_wait(void **state) {
    (void)state;
    const char *dir = run_traced("naive", "ddp", "cpu:2", "5..9", "ddp={overlap: false, bucket: 64KB}");
    int buckets = buckets_of(dir);
    check_all(dir, 2, 5);
    assert_int_equal(check_arrows(), 2 * 5 * buckets);
    check_buckets(dir, 2, 5, false);
    for (int r = 0; r < 2; r++) assert_int_equal(carries("all_reduce", "gradients", r), 5 * buckets);
    for (int i = 0; i < nevents; i++) /* all on the lane of computing */
        assert_true(events[i].ph != 'X' || events[i].tid == 1);
}

static void a_server(void **state) {
    (void)state;
    const char *dir = run_traced("dp", "dp", "cpu:4", "5..9", "dp={server: shared, overlap: off}");
    int buckets = buckets_of(dir);
    check_all(dir, 4, 5);
    assert_int_equal(check_arrows(), 4 * 5 * buckets);
    check_buckets(dir, 4, 5, false);
    for (int r = 0; r < 4; r++) {
        assert_int_equal(carries("reduce", "gradients", r), 5 * buckets);
        assert_int_equal(count('X', "update", r), r == 0 ? 5 : 0);
    }
    dir = run_traced("apart", "dp", "cpu:2", "5..9", "dp={server: dedicated}");
    buckets = buckets_of(dir);
    check_all(dir, 3, 5);
    assert_int_equal(check_arrows(), 2 * 5 * buckets);
    assert_int_equal(count('X', "forward", 0), 0); /* it only serves */
    assert_int_equal(count('X', "update", 0), 5);
}

static void slices_and_packets(void **state) {
    (void)state;
    const char *dir = run_traced("slices", "ddp", "cpu:2", "5..9", "optimizer={name: adam, shard: true}");
    int buckets = buckets_of(dir);
    check_all(dir, 2, 5);
    assert_int_equal(check_arrows(), 2 * 5 * buckets);
    assert_int_equal(carries("reduce_scatter", "gradients", 0), 5 * buckets);
    int gathers = carries("all_gather", "weights", 1); /* those of the last step go on after it */
    assert_true(gathers >= 4 * buckets && gathers <= 5 * buckets);
    dir = run_traced("packets", "ddp", "cpu:2", "5..9", "comm={compress: int8}");
    buckets = buckets_of(dir);
    check_all(dir, 2, 5);
    assert_int_equal(check_arrows(), 2 * 5 * buckets);
    assert_int_equal(carries("all_to_all", "gradients", 0), 5 * buckets);
    assert_int_equal(carries("all_gather", "gradients", 0), 5 * buckets);
    dir = run_traced("together", "ddp", "cpu:2", "5..9", "sync_batchnorm=true");
    check_all(dir, 2, 5);
    assert_int_equal(check_arrows(), 2 * 5 * buckets_of(dir));
}

/* The server of dp.staleness has calls for each worker in each step, and weights may still be leaving when its trace ends. */
static void a_server_of_many(void **state) {
    (void)state;
    struct trace_rank *ranks;
    char dir[600], d[700];
    int n;
    snprintf(dir, sizeof dir, "%s", scratch_path("many"));
    snprintf(d, sizeof d, "log.dir=%s", dir);
    program_run(&p, 60, "run", "--set", d, "--set", "mode=dp", "--set", "devices=cpu:32", "--set",
                "dp={server: dedicated, staleness: 2}", "--set", "log.trace=2..14", "--set",
                "model={zoo: mlp, hidden: [16]}", "--set", "batch={size: 32, shards: 32}", "--set", "train=16st",
                "--set", "threads=1", "--set", "eval=end", "--set", "data=digits", NULL);
    if (p.code != 0) fail_msg("%s", p.err);
    assert_ok(trace_read_all(dir, pool, &ranks, &n));
    assert_int_equal(n, 33);
    for (int r = 0; r < n; r++) assert_int_equal(ranks[r].dropped, 0);
    assert_null(strstr(p.err, "no room"));
    int received = 0;
    for (int i = 0; i < ranks[0].nevents; i++)
        received += ranks[0].events[i].kind == TRACE_CALL && !strcmp(ranks[0].events[i].name, "recv");
    assert_int_equal(received, 13 * 32);
}

/* A network has any number of layers, a file only so many names. */
static void more_layers_than_names(void **state) {
    (void)state;
    enum { DEEP = 1100 };
    static char model[64 + DEEP * 20], set[sizeof model + 8];
    struct trace_rank *ranks;
    int n = snprintf(model, sizeof model, "{layers: [flatten");
    for (int i = 0; i < DEEP; i++) n += snprintf(model + n, sizeof model - (size_t)n, ", {linear: 4}");
    snprintf(model + n, sizeof model - (size_t)n, ", {linear: 10}]}");
    snprintf(set, sizeof set, "model=%s", model);
    const char *dir = run_traced("deep", "ddp", "cpu:2", "5..6", set);
    assert_ok(trace_read_all(dir, pool, &ranks, &n));
    assert_int_equal(n, 2);
    int own = 0, other = 0, calls = 0;
    for (int i = 0; i < ranks[0].nevents; i++) {
        const struct trace_event *e = &ranks[0].events[i];
        if (e->kind == TRACE_LAYER) own += !!strcmp(e->name, "other");
        if (e->kind == TRACE_LAYER) other += !strcmp(e->name, "other");
        if (e->kind == TRACE_CALL) calls += !strcmp(e->name, "all_reduce");
    }
    assert_true(own > 900 && other > 100 && calls >= 2);
    assert_true(file_exists(scratch_path("deep/trace.json")));
}

static bool has_trace(const char *dir) {
    char path[700];
    snprintf(path, sizeof path, "%s/trace.json", dir);
    return file_exists(path);
}

static void the_range(void **state) {
    (void)state;
    check_all(run_traced("late", "ddp", "cpu:2", "19..1000st", NULL), 2, 2);
    assert_int_equal(count('X', "evaluation", 0), 1); /* the last one */
    check_all(run_traced("one", "single", "cpu:1", "20", NULL), 1, 1);
    assert_false(has_trace(run_traced("never", "single", "cpu:1", "21..30", NULL)));
    assert_non_null(strstr(p.err, "steps 21 to 30"));
    assert_false(has_trace(run_traced("off", "ddp", "cpu:2", "off", NULL)));
    static const char *const wrong[] = {"0..3", "9..3", "3..", "ten", "1...3", "3..9ep", "-1", ""};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char set[64];
        snprintf(set, sizeof set, "log.trace=\"%s\"", wrong[i]);
        program_run(&p, 20, "validate", "--set", set, NULL);
        if (p.code != 78) fail_msg("log.trace '%s' gave %d: %s", wrong[i], p.code, p.err);
        assert_non_null(strstr(p.err, "log.trace"));
        assert_non_null(strstr(p.err, "10..20st"));
    }
}

/* Each run of an experiment has a trace of its own. */
static void an_experiment_is_traced(void **state) {
    (void)state;
    static const char text[] = "base: {model: {zoo: mlp, hidden: [16]}, data: digits, batch: {size: 32, shards: 2}, "
                               "train: 20st, eval: end, threads: 1, devices: 'cpu:2', log: {trace: 10..12st}}\n"
                               "matrix: {mode: [dp, ddp]}\nmetrics: step_time\nrepeats: 4\n";
    char path[600], folder[600], pattern[700];
    glob_t found;
    snprintf(path, sizeof path, "%s", scratch_path("traced.yaml"));
    snprintf(folder, sizeof folder, "%s", scratch_path("experiment"));
    assert_ok(file_replace(path, text, sizeof text - 1));
    program_run(&p, 120, "compare", path, "--dir", folder, NULL);
    if (p.code != 0) fail_msg("%s", p.err);
    snprintf(pattern, sizeof pattern, "%s/cells/*/*/trace.json", folder);
    assert_int_equal(glob(pattern, 0, NULL, &found), 0);
    assert_int_equal(found.gl_pathc, 2 * 4);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        snprintf(path, sizeof path, "%.*s", (int)(strlen(found.gl_pathv[i]) - strlen("/trace.json")),
                 found.gl_pathv[i]);
        check_all(path, 2, 3);
    }
    globfree(&found);
}

/* The same weights, whoever looks on. */
static void looking_changes_nothing(void **state) {
    (void)state;
    char weights[2][128];
    for (int i = 0; i < 2; i++) {
        run_traced(i ? "looked" : "unseen", "ddp", "cpu:2", i ? "1..20" : "off", NULL);
        const char *at = strstr(p.out, "weights sha256");
        assert_non_null(at);
        snprintf(weights[i], sizeof weights[i], "%.80s", at);
    }
    assert_string_equal(weights[0], weights[1]);
}

/* ---- runs that were lost, and files that lie ---- */

static void a_rank_is_killed(void **state) {
    (void)state;
    char dir[600], d[700];
    snprintf(dir, sizeof dir, "%s", scratch_path("killed"));
    snprintf(d, sizeof d, "log.dir=%s", dir);
    const char *words[] = {"run",
                           "--set",
                           d,
                           "--set",
                           "mode=ddp",
                           "--set",
                           "devices=cpu:2",
                           "--set",
                           "model={zoo: mlp, hidden: [16]}",
                           "--set",
                           "train=10000000st",
                           "--set",
                           "eval=end",
                           "--set",
                           "log.trace=2..10000000",
                           "--set",
                           "log.every=100st",
                           "--no-progress",
                           NULL};
    program_start(&p, words);
    pid_t rank = program_rank(&p, 1, 20);
    program_wait_text(&p, "step=100/", 30);
    assert_int_equal(kill(rank, SIGKILL), 0);
    assert_true(program_wait(&p, 30));
    assert_int_equal(p.code, 75);
    program_run(&p, 20, "inspect", dir, "--trace", NULL);
    if (p.code != 0) fail_msg("%s", p.err);
    assert_non_null(strstr(p.out, "1 rank of 2: the others left no trace"));
    read_trace(dir);
    assert_true(count('X', "step ", 0) >= 10);
    assert_int_equal(count('M', "process_name", 1), 0);
}

static char *file;
static size_t file_bytes;

static void write_rank(const char *dir, const void *bytes, size_t n) {
    char path[700];
    snprintf(path, sizeof path, "%s/trace/rank0.bin", dir);
    assert_ok(file_replace(path, bytes, n));
}

static void assert_refused(const char *dir, const char *what) {
    program_run(&p, 20, "inspect", dir, "--trace", NULL);
    if (p.code != 65) fail_msg("%s: exit code %d: %s", what, p.code, p.err);
    assert_non_null(strstr(p.err, "rank"));
}

static void with_check(char *copy, size_t n) {
    struct trace_head *h = (struct trace_head *)(void *)copy;
    h->check = crc32c(0, copy + TRACE_CHECKED, n - TRACE_CHECKED);
}

static void files_that_lie(void **state) {
    (void)state;
    const char *dir = run_traced("lies", "ddp", "cpu:2", "5..6", NULL);
    char path[700];
    snprintf(path, sizeof path, "%s/trace/rank0.bin", dir);
    assert_ok(file_read(path, 1 << 24, pool, &file, &file_bytes));
    void *memory;
    assert_ok(memory_alloc(file_bytes + 64, &memory));
    char *copy = memory;
    static const size_t cuts[] = {0, 1, 100, 176, 300};
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        write_rank(dir, file, cuts[i]);
        assert_refused(dir, "a cut file");
    }
    for (size_t at = 3; at < file_bytes; at += file_bytes / 7) {
        memcpy(copy, file, file_bytes);
        copy[at] ^= 0x10;
        write_rank(dir, copy, file_bytes);
        assert_refused(dir, "a changed file");
    }
    struct trace_head *h = memory;
    memcpy(copy, file, file_bytes);
    h->nevents = 0x7fffffff;
    with_check(copy, file_bytes);
    write_rank(dir, copy, file_bytes);
    assert_refused(dir, "too many events");
    memcpy(copy, file, file_bytes);
    h->size = 3;
    with_check(copy, file_bytes);
    write_rank(dir, copy, file_bytes);
    assert_refused(dir, "another run's");
    write_rank(dir, file, file_bytes);
    program_run(&p, 20, "inspect", dir, "--trace", NULL);
    assert_int_equal(p.code, 0);
    memory_free(memory);
    program_run(&p, 20, "inspect", scratch_path("."), "--trace", NULL);
    assert_int_equal(p.code, 66);
    assert_non_null(strstr(p.err, "log.trace"));
}

/* Two hosts, which are network namespaces of this one and so share its clock: what messages tell of it must be right to
 * half of their time. */
static void ranks_of_other_hosts(void **state) {
    (void)state;
    char words[4][700], run[600];
    const char *folder = scratch_path("hosts");
    assert_ok(file_make_folders(folder));
    snprintf(run, sizeof run, "%s/run", folder);
    snprintf(words[0], sizeof words[0], "log.dir=%s", run);
    const char *argv[] = {"unshare", "-rn",
                          "sh",      ENGINE_SOURCE_DIR "/tests/harness/hosts.sh",
                          folder,    "2",
                          "none",    ENGINE_BINARY_DIR "/engine",
                          "--set",   words[0],
                          "--set",   "mode=ddp",
                          "--set",   "devices=cpu:2",
                          "--set",   "threads=1",
                          "--set",   "model={zoo: mlp, hidden: [32]}",
                          "--set",   "train=12st",
                          "--set",   "batch={size: 32, shards: 4}",
                          "--set",   "eval=end",
                          "--set",   "log.trace=4..8",
                          NULL};
    program_spawn(&p, argv);
    assert_true(program_wait(&p, 60));
    if (p.code != 0) {
        print_message("no network namespaces here: nothing is tested\n");
        skip();
    }
    check_all(run, 2, 5); /* the first host's */
    for (int r = 2; r < 4; r++) {
        snprintf(words[1], sizeof words[1], "%s/run-node-1/trace/rank%d.bin", folder, r);
        snprintf(words[2], sizeof words[2], "%s/trace/rank%d.bin", run, r);
        assert_int_equal(rename(words[1], words[2]), 0);
    }
    program_run(&p, 20, "inspect", run, "--trace", NULL);
    assert_int_equal(p.code, 0);
    check_all(run, 4, 5);
    struct trace_rank *ranks;
    int n;
    assert_ok(trace_read_all(run, pool, &ranks, &n));
    for (int r = 0; r < 4; r++) {
        const struct trace_clock *c = &ranks[r].clock;
        assert_true(r < 2 ? c->round_trip == 0 : c->round_trip > 0);
        assert_true(llabs(c->offset) <= c->round_trip / 2 + 1);
    }
}

static int set_up(void **state) {
    (void)state;
    return pool_create(&pool);
}

static int tear_down(void **state) {
    (void)state;
    pool_free(pool);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_single_device),         cmocka_unit_test(gradients_that_leave_early),
        cmocka_unit_test(gradients_that_wait),     cmocka_unit_test(a_server),
        cmocka_unit_test(slices_and_packets),      cmocka_unit_test(the_range),
        cmocka_unit_test(a_server_of_many),        cmocka_unit_test(more_layers_than_names),
        cmocka_unit_test(an_experiment_is_traced), cmocka_unit_test(looking_changes_nothing),
        cmocka_unit_test(a_rank_is_killed),        cmocka_unit_test(files_that_lie),
        cmocka_unit_test(ranks_of_other_hosts)};
    return cmocka_run_group_tests_name("trace", tests, set_up, tear_down);
}
