/* engine bench comm: its options, and its ranks. Over shm these are processes, this program again,
 * of which rank 0 tells the starter its rows in lines of its own; over any other link, threads. */
#include "cli/bench.h"
#include "engine/base/text.h"
#include "transport/launch/launch.h"

#include <stdlib.h>
#include <string.h>

enum { ARGUMENTS_MOST = 64, SERIES_MOST = 16, NAMES_MOST = 32 };

/* ---- options ---- */

static enum error pick(const char *what, const char *given, const char *const *names, int n,
                       int *out) {
    for (*out = 0; *out < n; ++*out)
        if (!strcmp(given, names[*out])) return ERR_NONE;
    const char *near = text_nearest(given, names, n);
    char list[512] = "";
    for (int i = 0; i < n; i++) {
        size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", names[i]);
    }
    return FAIL(ERR_USAGE, "no %s '%s'%s%s%s\nthere are %s", what, given,
                near ? ", did you mean '" : "", near ? near : "", near ? "'?" : "", list);
}

static enum error take_collective(struct bench_comm *o, const char *text) {
    const char *names[NAMES_MOST];
    int n, i;
    const struct bench_collective *all = bench_collectives(&n);
    for (i = 0; i < n; i++) names[i] = all[i].name;
    TRY(pick("collective", text, names, n, &i));
    o->collective = &all[i];
    return ERR_NONE;
}

static enum error take_link(struct bench_comm *o, const char *text) {
    const char *names[NAMES_MOST];
    int n, i;
    const struct link_ops *const *all = link_kinds(&n);
    for (i = 0; i < n && i < NAMES_MOST; i++) names[i] = all[i]->row->name;
    TRY(pick("link", text, names, n, &i));
    if (all[i]->row->launched)
        return FAIL(ERR_USAGE,
                    "link %s needs ranks that its own launcher has started; this bench "
                    "starts threads or processes\nmeasure thread, shm, tcp or hosts",
                    names[i]);
    o->link = all[i];
    return ERR_NONE;
}

static enum error take_algorithm(struct bench_comm *o, const char *text) {
    const char *names[NAMES_MOST] = {"auto", "all"};
    int n, i;
    const struct algo_ops *const *all = algo_list(&n);
    for (i = 0; i < n && i + 2 < NAMES_MOST; i++) names[i + 2] = all[i]->name;
    TRY(pick("algorithm", text, names, n + 2, &i));
    o->algorithm = names[i];
    return ERR_NONE;
}

static enum error take_order(struct bench_comm *o, const char *text) {
    static const char *const names[] = {"tree", "ring"};
    int i;
    TRY(pick("order", text, names, 2, &i));
    o->order = names[i];
    return ERR_NONE;
}

static enum error take_type(struct bench_comm *o, const char *text) {
    const char *names[DTYPES];
    int i;
    for (i = 0; i < DTYPES; i++) names[i] = dtype_name((enum dtype)i);
    TRY(pick("type", text, names, DTYPES, &i));
    o->type = (enum dtype)i;
    return ERR_NONE;
}

static enum error take_op(struct bench_comm *o, const char *text) {
    const char *names[REDOPS];
    int i;
    for (i = 0; i < REDOPS; i++) names[i] = redop_name((enum redop)i);
    TRY(pick("operation", text, names, REDOPS, &i));
    o->op = (enum redop)i;
    return ERR_NONE;
}

static enum error take_int(const char *what, const char *text, int64_t least, int64_t most,
                           int64_t *out) {
    if (text_int(text, out) && *out >= least && *out <= most) return ERR_NONE;
    return FAIL(ERR_USAGE, "%s is '%s'\na number from %lld to %lld is needed", what, text,
                (long long)least, (long long)most);
}

static enum error take_ranks(struct bench_comm *o, const char *text) {
    return take_int("--ranks", text, 1, RANKS_MAX, &o->ranks);
}

static enum error take_factor(struct bench_comm *o, const char *text) {
    return take_int("--factor", text, 2, 1 << 20, &o->factor);
}

static enum error take_iters(struct bench_comm *o, const char *text) {
    return take_int("--iters", text, 1, 1000000000, &o->calls);
}

static enum error take_bytes(const char *what, const char *text, int64_t *out) {
    if (text_bytes(text, out) && *out > 0) return ERR_NONE;
    return FAIL(ERR_USAGE, "%s is '%s'\na size is needed: 1KB, 64MB", what, text);
}

static enum error take_from(struct bench_comm *o, const char *text) {
    return take_bytes("--from", text, &o->from);
}

static enum error take_to(struct bench_comm *o, const char *text) {
    return take_bytes("--to", text, &o->to);
}

static enum error take_seconds(struct bench_comm *o, const char *text) {
    if (text_seconds(text, &o->seconds) && o->seconds <= 3600) return ERR_NONE;
    return FAIL(ERR_USAGE, "--seconds is '%s'\na time up to 1h is needed: 0.5, 200ms", text);
}

static enum error take_emulated(struct emulation *e, const char *key, const char *value) {
    static const char *const keys[] = {"bandwidth", "latency"};
    int i;
    TRY(pick("key of --emulate", key, keys, 2, &i));
    if (i == 0 && text_rate(value, &e->bandwidth) && e->bandwidth > 0) return ERR_NONE;
    if (i == 1 && text_seconds(value, &e->latency)) return ERR_NONE;
    return FAIL(ERR_USAGE, "--emulate: %s is '%s'\nas in bandwidth=1Gbit,latency=50us", key, value);
}

static enum error take_emulate(struct bench_comm *o, const char *text) {
    char copy[128], *rest = NULL;
    if (snprintf(copy, sizeof copy, "%s", text) >= (int)sizeof copy)
        return FAIL(ERR_USAGE, "--emulate is too long\nas in bandwidth=1Gbit,latency=50us");
    for (char *key = strtok_r(copy, ",", &rest); key; key = strtok_r(NULL, ",", &rest)) {
        char *value = strchr(key, '=');
        if (!value)
            return FAIL(ERR_USAGE, "--emulate: '%s'\nas in bandwidth=1Gbit,latency=50us", key);
        *value++ = '\0';
        TRY(take_emulated(&o->emulate, key, value));
    }
    return ERR_NONE;
}

static enum error take_save(struct bench_comm *o, const char *text) {
    o->save = text;
    return *text ? ERR_NONE : FAIL(ERR_USAGE, "--save needs the name of a file");
}

static const struct option {
    const char *name;
    enum error (*take)(struct bench_comm *o, const char *text);
} options[] = {
    {"--collective", take_collective},
    {"--link", take_link},
    {"--algorithm", take_algorithm},
    {"--order", take_order},
    {"--ranks", take_ranks},
    {"--from", take_from},
    {"--to", take_to},
    {"--factor", take_factor},
    {"--type", take_type},
    {"--op", take_op},
    {"--iters", take_iters},
    {"--seconds", take_seconds},
    {"--emulate", take_emulate},
    {"--save", take_save},
};
enum { OPTIONS = sizeof options / sizeof *options };

static int refuse_option(const char *given) {
    const char *names[OPTIONS + 2] = {"--json", "--csv"};
    for (int i = 0; i < OPTIONS; i++) names[i + 2] = options[i].name;
    const char *near = text_nearest(given, names, OPTIONS + 2);
    return cli_usage(&command_bench, "unknown option '%s'%s%s%s", given,
                     near ? ", did you mean '" : "", near ? near : "", near ? "'?" : "");
}

/* Gives the exit code; 0: go on. */
static int parse(int argc, char **argv, struct bench_comm *o) {
    for (int i = 1; i < argc; i++) {
        int k = 0;
        if (!strcmp(argv[i], "--json") || !strcmp(argv[i], "--csv")) {
            o->format = argv[i][2] == 'j' ? BENCH_JSON : BENCH_CSV;
            continue;
        }
        while (k < OPTIONS && strcmp(argv[i], options[k].name)) k++;
        if (k == OPTIONS) return refuse_option(argv[i]);
        if (++i == argc) return cli_usage(&command_bench, "%s needs a value", options[k].name);
        enum error err = options[k].take(o, argv[i]);
        if (err) return cli_fail(err);
    }
    return 0;
}

/* ---- what is possible ---- */

static double memory_available(void) {
    FILE *f = fopen("/proc/meminfo", "re");
    char line[128];
    double kb = 0;
    while (f && fgets(line, sizeof line, f) && sscanf(line, "MemAvailable: %lf", &kb) != 1)
        continue;
    if (f) fclose(f);
    return kb > 0 ? kb * 1024 : 1e18;
}

static enum error check_order(const struct bench_comm *o) {
    const struct algo_ops *algo = algo_find(o->algorithm);
    bool ring = o->order && !strcmp(o->order, "ring");
    if (!algo || !o->order || algo->orders[ring ? ORDER_RING : ORDER_TREE]) return ERR_NONE;
    return FAIL(ERR_USAGE, "algorithm %s cannot add in %s order\n--order %s, or none", algo->name,
                o->order, ring ? "tree" : "ring");
}

static enum error check(const struct bench_comm *o) {
    char need[32], have[32];
    double bytes = bench_memory(o) * (double)o->ranks;
    if (o->from > o->to)
        return FAIL(ERR_USAGE, "--from %lld is more than --to %lld", (long long)o->from,
                    (long long)o->to);
    if (bytes > memory_available())
        return FAIL(ERR_MEMORY, "%lld ranks need %s of buffers; %s are free\na smaller --to",
                    (long long)o->ranks, text_of_bytes(bytes, need),
                    text_of_bytes(memory_available(), have));
    if (o->collective->adds && !redop_suits(o->op, o->type))
        return FAIL(ERR_USAGE, "%s is for integers, not for %s", redop_name(o->op),
                    dtype_name(o->type));
    return check_order(o);
}

/* The order asked for, or one that the algorithm can add in. */
static enum order order_for(const struct bench_comm *o, const struct algo_ops *algo) {
    if (o->order) return !strcmp(o->order, "ring") ? ORDER_RING : ORDER_TREE;
    return algo && !algo->orders[ORDER_TREE] ? ORDER_RING : ORDER_TREE;
}

/* "all": the algorithms that do this collective in a way of their own, and can add in the order. */
static int choose_series(const struct bench_comm *o, struct bench_series *s) {
    int n, count = 0;
    const struct algo_ops *const *all = algo_list(&n);
    for (int i = 0; i < n && count < SERIES_MOST && !strcmp(o->algorithm, "all"); i++) {
        enum kind kind = o->collective->kind;
        enum order order = order_for(o, all[i]);
        if (all[i]->native && !o->link->native) continue;
        if (kind >= COLLECTIVES || !all[i]->run[kind] || !all[i]->orders[order]) continue;
        s[count++] = (struct bench_series){.algorithm = all[i]->name, .order = order};
    }
    if (count > 0) return count;
    const char *name = strcmp(o->algorithm, "all") ? o->algorithm : "auto";
    s[0] = (struct bench_series){.algorithm = name, .order = order_for(o, algo_find(name))};
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

static void tell_rows(const struct bench_series *s) {
    for (int i = 0; i < s->rows; i++) {
        const struct bench_row *r = &s->row[i];
        printf("row %s %lld %lld %a %lld\n", r->algorithm, (long long)r->bytes, (long long)r->count,
               r->seconds, (long long)r->wrong);
    }
    fflush(stdout);
}

static bool hear_row(const char *line, struct bench_series *s) {
    struct bench_row r = {0};
    long long bytes, count, wrong;
    if (s->rows == BENCH_SIZES ||
        sscanf(line, "[rank 0] " ROW, r.algorithm, &bytes, &count, &r.seconds, &wrong) != 5)
        return false;
    r.bytes = bytes, r.count = count, r.wrong = wrong;
    s->row[s->rows++] = r;
    return true;
}

/* Rows out of all that the ranks wrote; the rest (warnings) is for the user. */
static void hear_rows(char *text, struct bench_series *s) {
    char *rest = NULL;
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
        if (!hear_row(line, s)) fprintf(stderr, "%s\n", line);
}

static enum error start_processes(const struct bench_comm *o, const char *const *argv, FILE *log,
                                  int *code) {
    struct launch_result result;
    struct launch_params p = {.size = (int)o->ranks, .argv = argv, .log = log};
    TRY(meeting_create_shared(p.size, &p.meeting));
    enum error err = launch_processes(&p, &result);
    meeting_free(p.meeting);
    *code = result.exit_code;
    if (result.first < 0) return err;
    if (*result.lines) fprintf(stderr, "%s\n", result.lines);
    return result.signal
               ? FAIL(ERR_PEER, "rank %d was killed by signal %d", result.first, result.signal)
               : ERR_NONE;
}

/* This command again, for one algorithm. */
static enum error run_processes(const struct bench_comm *o, int argc, char **argv,
                                struct bench_series *s, int *code) {
    const char *again[ARGUMENTS_MOST + 8] = {"engine", "bench", "comm"};
    int n = 3;
    if (argc > ARGUMENTS_MOST) return FAIL(ERR_USAGE, "more than %d arguments", ARGUMENTS_MOST);
    for (int i = 1; i < argc; i++) again[n++] = argv[i];
    again[n++] = "--algorithm", again[n++] = s->algorithm;
    again[n++] = "--order", again[n++] = s->order == ORDER_RING ? "ring" : "tree";
    char *text = NULL;
    size_t length = 0;
    FILE *log = open_memstream(&text, &length);
    if (!log) return FAIL(ERR_MEMORY, "cannot allocate a text");
    enum error err = start_processes(o, again, log, code);
    if (fclose(log) == 0 && text && !err && !*code) hear_rows(text, s);
    free(text);
    return err;
}

static int run_as_rank(const struct bench_comm *o, const struct launch_self *self) {
    struct bench_series s;
    struct group_params p = {.rank = self->rank, .size = self->size};
    choose_series(o, &s);
    enum error err = meeting_join(self->meeting_fd, self->size, &p.meeting);
    if (!err) err = bench_measure(o, &p, &s);
    if (!err && self->rank == 0) tell_rows(&s);
    if (err) cli_fail(err);
    meeting_free(p.meeting);
    return error_exit_code(err);
}

/* ---- all ---- */

static int run_all(const struct bench_comm *o, int argc, char **argv) {
    struct bench_series series[SERIES_MOST];
    int n = choose_series(o, series), code = 0;
    int64_t wrong = 0;
    enum error err = check(o);
    for (int i = 0; i < n && !err && !code; i++) {
        err = o->link->row->joins == JOINS_PROCESSES
                  ? run_processes(o, argc, argv, &series[i], &code)
                  : run_threads(o, &series[i]);
        bench_fit(&series[i]);
        for (int k = 0; k < series[i].rows; k++) wrong += series[i].row[k].wrong;
    }
    if (!err && !code) err = bench_report(o, series, n, stdout);
    if (!err && wrong > 0)
        err = FAIL(ERR_RESULT, "%lld elements have another value than expected", (long long)wrong);
    return err ? cli_fail(err) : code;
}

int bench_comm_run(int argc, char **argv) {
    int n, code;
    struct bench_comm o = {.collective = bench_collectives(&n),
                           .link = link_find("shm"),
                           .algorithm = "auto",
                           .ranks = 2,
                           .from = 1 << 10,
                           .to = 64 << 20,
                           .factor = 4,
                           .type = DTYPE_F32,
                           .op = REDOP_SUM,
                           .seconds = 0.2};
    struct launch_self self;
    bool rank;
    enum error err = launch_self(&self, &rank);
    if (err) return cli_fail(err);
    if ((code = parse(argc, argv, &o)) != 0) return code;
    return rank ? run_as_rank(&o, &self) : run_all(&o, argc, argv);
}
