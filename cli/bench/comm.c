/* engine bench comm: its ranks, and its options. Over shm these are processes, this program again,
 * of which rank 0 tells the starter its rows in lines of its own; over any other link, threads. */
#include "cli/bench/bench.h"
#include "engine/base/file.h"
#include "engine/base/plugin.h"
#include "engine/base/text.h"
#include "transport/launch/launch.h"

#include <stdlib.h>
#include <string.h>

enum { SERIES_MOST = 16 };
struct bench_comm_options {
    struct bench_comm o;
    int collective, link; /* of their lists */
};
#define OPTIONS_STRUCT struct bench_comm_options

/* ---- what is possible ---- */

static double comm_memory_available(void) {
    FILE *f = fopen("/proc/meminfo", "re");
    char line[128];
    double kb = 0;
    while (f && fgets(line, sizeof line, f) && sscanf(line, "MemAvailable: %lf", &kb) != 1) continue;
    if (f) fclose(f);
    return kb > 0 ? kb * 1024 : 1e18;
}

/* The algorithm of a name or of a plug-in; NULL: "auto" or "all". comm_read_algorithm has tried it. */
static const struct algo_ops *comm_algorithm(const char *name) {
    const struct algo_ops *algo;
    return algo_named(name, NULL, &algo) == ERR_NONE ? algo : NULL;
}

/* Checks that the algorithm can add in the order that --order names. */
static enum error comm_check_order(const struct bench_comm *o) {
    const struct algo_ops *algo = comm_algorithm(o->algorithm);
    bool ring = o->order && !strcmp(o->order, "ring");
    if (!algo || !o->order || algo->orders[ring ? ORDER_RING : ORDER_TREE]) return ERR_NONE;
    return FAIL(ERR_USAGE, "algorithm %s cannot add in %s order\n--order %s, or none", algo->name, o->order,
                ring ? "tree" : "ring");
}

static enum error bench_check(const struct bench_comm *o) {
    char need[32], have[32];
    double bytes = bench_memory(o) * (double)o->ranks;
    if (o->from > o->to)
        return FAIL(ERR_USAGE, "--from %lld is more than --to %lld", (long long)o->from, (long long)o->to);
    if (bytes > comm_memory_available())
        return FAIL(ERR_MEMORY, "%lld ranks need %s of buffers; %s are free\na smaller --to", (long long)o->ranks,
                    text_of_bytes(bytes, need), text_of_bytes(comm_memory_available(), have));
    if (o->collective->adds && !redop_suits(o->op, o->type))
        return FAIL(ERR_USAGE, "%s is for integers, not for %s", redop_name(o->op), dtype_name(o->type));
    return comm_check_order(o);
}

/* The order asked for, or one that the algorithm can add in. */
static enum order comm_order_for(const struct bench_comm *o, const struct algo_ops *algo) {
    if (o->order) return !strcmp(o->order, "ring") ? ORDER_RING : ORDER_TREE;
    return algo && !algo->orders[ORDER_TREE] ? ORDER_RING : ORDER_TREE;
}

/* "all": the algorithms that do this collective in a way of their own, and can add in the order. */
static int comm_choose_series(const struct bench_comm *o, struct bench_series *s) {
    int n, count = 0;
    const struct algo_ops *const *all = algo_list(&n);
    for (int i = 0; i < n && count < SERIES_MOST && !strcmp(o->algorithm, "all"); i++) {
        enum kind kind = o->collective->kind;
        enum order order = comm_order_for(o, all[i]);
        if (all[i]->native && !o->link->native) continue;
        if (kind >= COLLECTIVES || !all[i]->run[kind] || !all[i]->orders[order]) continue;
        s[count++] = (struct bench_series){.algorithm = all[i]->name, .order = order};
    }
    if (count > 0) return count;
    const char *name = strcmp(o->algorithm, "all") ? o->algorithm : "auto";
    s[0] = (struct bench_series){.algorithm = name, .order = comm_order_for(o, comm_algorithm(name))};
    return 1;
}

/* ---- ranks that are threads ---- */

struct thread_ranks {
    const struct bench_comm *o;
    struct bench_places *places;
    const struct bench_series *series;
    struct bench_series *measured; /* rank 0's */
};

static enum error thread_rank(void *user, int rank) {
    struct thread_ranks *c = user;
    struct bench_series own = *c->series;
    struct group_params p = bench_place(c->places, rank);
    TRY(bench_measure(c->o, &p, &own));
    if (rank == 0) *c->measured = own;
    return ERR_NONE;
}

static enum error run_threads(const struct bench_comm *o, struct bench_series *s) {
    struct bench_places places;
    struct bench_series measured = *s;
    struct thread_ranks crew = {.o = o, .places = &places, .series = s, .measured = &measured};
    enum error err = bench_places_open(o, &places);
    if (!err) err = launch_threads((int)o->ranks, thread_rank, &crew);
    bench_places_close(&places);
    *s = measured;
    return err;
}

/* ---- ranks that are processes ---- */

#define ROW "row %23s %lld %lld %la %lld"

static void comm_tell_rows(const struct bench_series *s) {
    for (int i = 0; i < s->rows; i++) {
        const struct bench_row *r = &s->row[i];
        printf("row %s %lld %lld %a %lld\n", r->algorithm, (long long)r->bytes, (long long)r->count, r->seconds,
               (long long)r->wrong);
    }
    fflush(stdout);
}

static bool comm_hear_row(const char *line, struct bench_series *s) {
    struct bench_row r = {0};
    long long bytes, count, wrong;
    if (s->rows == BENCH_SIZES || sscanf(line, "[rank 0] " ROW, r.algorithm, &bytes, &count, &r.seconds, &wrong) != 5)
        return false;
    r.bytes = bytes, r.count = count, r.wrong = wrong;
    s->row[s->rows++] = r;
    return true;
}

/* Rows out of all that the ranks wrote; the rest (warnings) is for the user. */
static void comm_hear_rows(char *text, struct bench_series *s) {
    char *rest = NULL;
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
        if (!comm_hear_row(line, s)) fprintf(stderr, "%s\n", line);
}

static enum error comm_start_processes(const struct bench_comm *o, const char *const *argv, FILE *log, int *code) {
    struct launch_result result;
    struct launch_params p = {.size = (int)o->ranks, .argv = argv, .log = log};
    TRY(meeting_create_shared(p.size, &p.meeting));
    enum error err = launch_processes(&p, &result);
    meeting_free(p.meeting);
    *code = result.exit_code;
    if (result.first < 0) return err;
    if (*result.lines) fprintf(stderr, "%s\n", result.lines);
    return result.signal ? FAIL(ERR_PEER, "rank %d was killed by signal %d", result.first, result.signal) : ERR_NONE;
}

/* Runs this command again in processes of their own, for one algorithm. */
static enum error comm_run_processes(const struct cli *cli, const struct bench_comm *o, struct bench_series *s,
                                     int *code) {
    const char **again = pool_alloc(cli->pool, ((size_t)cli->argc + 6) * sizeof *again);
    int n = 1;
    if (!again) return ERR_MEMORY;
    again[0] = "engine";
    for (int i = 0; i < cli->argc; i++) again[n++] = cli->argv[i];
    again[n++] = "--algorithm", again[n++] = s->algorithm;
    again[n++] = "--order", again[n++] = s->order == ORDER_RING ? "ring" : "tree";
    struct file_text log;
    TRY(file_text_open(&log));
    TRY(file_text_close(&log, comm_start_processes(o, again, log.out, code)));
    if (!*code) comm_hear_rows(log.text, s);
    free(log.text);
    return ERR_NONE;
}

static int run_as_rank(const struct bench_comm *o, const struct launch_self *self) {
    struct bench_series s;
    struct group_params p = {.rank = self->rank, .size = self->size};
    comm_choose_series(o, &s);
    enum error err = meeting_join(self->meeting_fd, self->size, &p.meeting);
    if (!err) err = bench_measure(o, &p, &s);
    if (!err && self->rank == 0) comm_tell_rows(&s);
    if (err) cli_fail(err);
    meeting_free(p.meeting);
    return error_exit_code(err);
}

/* ---- all ---- */

static int algorithms_run(const struct cli *cli, const struct bench_comm *o) {
    struct bench_series series[SERIES_MOST];
    int n = comm_choose_series(o, series), code = 0;
    int64_t wrong = 0;
    enum error err = bench_check(o);
    for (int i = 0; i < n && !err && !code; i++) {
        err = o->link->row->joins == JOINS_PROCESSES ? comm_run_processes(cli, o, &series[i], &code)
                                                     : run_threads(o, &series[i]);
        bench_fit(&series[i]);
        for (int k = 0; k < series[i].rows; k++) wrong += series[i].row[k].wrong;
    }
    if (!err && !code) err = bench_report(o, series, n, stdout);
    if (!err && wrong > 0) err = FAIL(ERR_RESULT, "%lld elements do not have the expected value", (long long)wrong);
    return err ? cli_fail(err) : code;
}

static enum error comm_find_link(int index, const struct link_ops **out) {
    int n;
    *out = link_kinds(&n)[index];
    if (!(*out)->row->launched) return ERR_NONE;
    return FAIL(ERR_USAGE,
                "link %s needs ranks that its own launcher has started; this bench starts threads "
                "or processes\nmeasure thread, shm, tcp or hosts",
                (*out)->row->name);
}

static int comm_command(const struct cli *cli) {
    struct bench_comm_options *asked = cli->options;
    struct bench_comm *o = &asked->o;
    int n;
    struct launch_self self;
    bool rank;
    enum error err = launch_self(&self, &rank);
    rank = rank && self.own;
    o->collective = &bench_collectives(&n)[asked->collective];
    if (!err && asked->link < 0) o->link = link_find("shm");
    if (!err && asked->link >= 0) err = comm_find_link(asked->link, &o->link);
    if (err) return cli_fail(err);
    return rank ? run_as_rank(o, &self) : algorithms_run(cli, o);
}

/* ---- options ---- */

static const char *comm_collective_name(int i) {
    int n;
    const struct bench_collective *all = bench_collectives(&n);
    return i < n ? all[i].name : NULL;
}

static const char *comm_link_name(int i) {
    int n;
    const struct link_ops *const *all = link_kinds(&n);
    return i < n ? all[i]->row->name : NULL;
}

static const char *algorithm_name(int i) {
    int n;
    const struct algo_ops *const *all = algo_list(&n);
    return i == 0 ? "auto" : i == 1 ? "all" : i - 2 < n ? all[i - 2]->name : NULL;
}

/* A name, or the path of a plug-in, which is opened. */
static enum error comm_read_algorithm(const char *value, void *out) {
    const char *names[24], *near;
    const struct algo_ops *algo;
    char all[256] = "";
    int n = 0;
    *(const char **)out = value;
    for (; n < 24 && (names[n] = algorithm_name(n)); n++) {
        if (!strcmp(value, names[n])) return ERR_NONE;
        text_append(all, sizeof all, "%s%s", n ? ", " : "", names[n]);
    }
    if (plugin_is_path(value)) return algo_named(value, NULL, &algo) == ERR_NONE ? ERR_NONE : ERR_USAGE;
    near = text_nearest(value, names, n);
    return FAIL(ERR_USAGE, "no algorithm '%s'%s%s%s\nthere are %s, and plug-ins: ./mine.so", value,
                near ? ", did you mean '" : "", near ? near : "", near ? "'?" : "", all);
}

static const char *comm_type_name(int i) {
    return i < DTYPES ? dtype_name((enum dtype)i) : NULL;
}

static const char *comm_op_name(int i) {
    return i < REDOPS ? redop_name((enum redop)i) : NULL;
}

static enum error comm_read_size(const char *value, void *out) {
    if (text_bytes(value, out) && *(int64_t *)out > 0) return ERR_NONE;
    return FAIL(ERR_USAGE, "'%s'\na size is needed: 1KB, 64MB", value);
}

static enum error comm_read_emulated(const char *key, const char *value, struct emulation *e) {
    static const char *const keys[] = {"bandwidth", "latency", "up"};
    if (!strcmp(key, keys[0]) && text_rate(value, &e->bandwidth) && e->bandwidth > 0) return ERR_NONE;
    if (!strcmp(key, keys[1]) && text_seconds(value, &e->latency)) return ERR_NONE;
    if (!strcmp(key, keys[2]) && text_rate(value, &e->up) && e->up > 0) return ERR_NONE;
    const char *near = text_nearest(key, keys, 3);
    if (near && !strcmp(key, near))
        return FAIL(ERR_USAGE, "%s is '%s'\nas in bandwidth=1Gbit,latency=50us", key, value);
    return FAIL(ERR_USAGE, "no key '%s'%s%s%s\nas in bandwidth=1Gbit,latency=50us", key, near ? ", did you mean '" : "",
                near ? near : "", near ? "'?" : "");
}

static enum error comm_read_emulation(const char *text, void *out) {
    char copy[128], *rest = NULL;
    if (snprintf(copy, sizeof copy, "%s", text) >= (int)sizeof copy)
        return FAIL(ERR_USAGE, "too long\nas in bandwidth=1Gbit,latency=50us");
    for (char *key = strtok_r(copy, ",", &rest); key; key = strtok_r(NULL, ",", &rest)) {
        char *value = strchr(key, '=');
        if (!value) return FAIL(ERR_USAGE, "'%s'\nas in bandwidth=1Gbit,latency=50us", key);
        *value++ = '\0';
        TRY(comm_read_emulated(key, value, out));
    }
    return ERR_NONE;
}

static const struct option options[] = {
    {"--collective", "C",
     "all_reduce (default), reduce, broadcast, reduce_scatter, all_gather, scatter, gather, "
     "all_to_all, send_recv (to the next rank)",
     CONFIG_ENUM, AT(collective), .word = comm_collective_name, .wants = "collective"},
    {"--link", "L", "shm (default; processes), thread, or another of 'engine version --features', over loopback",
     CONFIG_ENUM, AT(link), .word = comm_link_name, .wants = "link"},
    {"--algorithm", "A",
     "auto (default), all (every one that is possible), a name such as ring, or a plug-in: ./mine.so",
     .at = AT(o.algorithm), .read = comm_read_algorithm, .word = algorithm_name},
    {"--order", "O",
     "order in which the ranks' elements are added, tree or ring; default: tree if the algorithm supports it",
     CONFIG_STRING, AT(o.order), .choices = "tree|ring", .wants = "order"},
    {"--ranks", "N", "2 is the default", CONFIG_INT, AT(o.ranks), 1, RANKS_MOST},
    {"--from", "S", "the smallest size of the whole buffer: 1KB by default", .at = AT(o.from), .read = comm_read_size},
    {"--to", "S", "the largest size: 64MB by default", .at = AT(o.to), .read = comm_read_size},
    {"--factor", "F", "factor from one size to the next; 4 by default", CONFIG_INT, AT(o.factor), 2, 1 << 20},
    {"--type", "T", "of elements, f32 by default", CONFIG_ENUM, AT(o.type), .word = comm_type_name, .wants = "type"},
    {"--op", "O", "sum by default", CONFIG_ENUM, AT(o.op), .word = comm_op_name, .wants = "operation"},
    {"--iters", "N", "calls for each size; default: as many as fit in --seconds", CONFIG_INT, AT(o.calls), 1, 1e9},
    {"--seconds", "T", "0.2 by default", CONFIG_SECONDS, AT(o.seconds), 0, 3600,
     .wants = "a time up to 1h, such as 0.5 or 200ms"},
    {"--emulate", "E", "bandwidth=1Gbit,latency=50us: a port for each rank; up=50Mbit: what leaves it",
     .at = AT(o.emulate), .read = comm_read_emulation},
    {"--secure", "S", "as comm.secure: auto (default), off, sealed or encrypted", CONFIG_ENUM, AT(o.secure),
     .choices = "auto|off|sealed|encrypted"},
    {"--json", NULL, "instead of the table", CONFIG_BOOL, AT(o.json)},
    {"--save", "FILE", "writes the JSON into a file, in addition to the printed output", CONFIG_STRING, AT(o.save),
     .wants = "the name of a file"},
    {0}};

const struct command command_bench_comm = {
    .name = "comm",
    .summary = "measures collectives: the cost of a message and of a byte",
    OPTIONS(options),
    .notes = "algbw is size/time; busbw counts the bytes that cross each rank's port, as nccl-tests\n"
             "does. wrong: elements without the expected value. model: alpha + beta * size,\n"
             "fitted to all sizes by relative least squares.\n",
    .standard = &(const struct bench_comm_options){.o = {.algorithm = "auto",
                                                         .ranks = 2,
                                                         .from = 1 << 10,
                                                         .to = 64 << 20,
                                                         .factor = 4,
                                                         .type = DTYPE_F32,
                                                         .op = REDOP_SUM,
                                                         .seconds = 0.2},
                                                   .link = -1},
    .run = comm_command,
};
