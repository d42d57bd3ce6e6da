/* The link over MPI: the cases of every link, between ranks that mpirun starts from this program,
 * and what its ranks say when one of them is late, lost, or calls another thing. */
#include "tests/harness/harness.h"

#include "engine/base/clock.h"
#include "tests/conformance/collectives.h"
#include "tests/conformance/splits.h"
#include "tests/harness/timing.h"
#include "transport/launch/launcher.h"
#include "transport/launch/station.h"

#include <signal.h>

/* ---- one rank, started by mpirun ---- */

/* Where the ranks are, as 'engine run' finds it out. */
static enum error station_find(struct pool *pool, struct station **out) {
    struct launcher l;
    bool found;
    const char *place;
    TRY(launcher_find(NULL, &l, &found));
    if (!found) return FAIL(ERR_USAGE, "not started by mpirun");
    TRY(launcher_place(&(struct launcher_ranks){l.name, l.job, l.size, l.locals}, l.master, pool, &place));
    struct station_params p = {.rank = l.rank,
                               .size = l.size,
                               .meeting_fd = -1,
                               .link = "mpi",
                               .master = place,
                               .serve = l.rank == 0,
                               .token = "a token",
                               .run = l.job,
                               .round = "test",
                               .timeout = 60};
    return station_open(&p, out);
}

/* fn in a group of its own. */
static void run_in_group(struct rank *r, struct group_params p, const struct ranks *of) {
    static uint64_t id = 1;
    r->of = of;
    p.id = id++;
    p.algorithm = of->algorithm;
    p.order = of->order;
    p.timeout = of->timeout > 0 ? of->timeout : 60;
    p.heartbeat = 5;
    check_ok(group_open(&p, &r->group));
    if (*r->wrong) return;
    of->fn(r);
    group_close(r->group);
}

static void case_collectives(struct rank *r, const struct group_params *p) {
    int algos;
    const struct algo_ops *const *algo = algo_list(&algos);
    for (enum order order = ORDER_TREE; order <= ORDER_RING; order++) {
        struct standing s = {order, p->size};
        struct expected *e = expected_make(&s);
        for (int a = 0; a <= algos && !*r->wrong; a++) {
            if (a < algos && (!algo[a]->orders[order] || (algo[a]->even && p->size & (p->size - 1)))) continue;
            bool promised = a == algos || !algo[a]->native || p->size == 2; /* a + b is b + a */
            if (!promised) continue;
            if (a < algos && (a + p->size) % 2 && p->size > 2) continue; /* half of them each */
            struct ranks of = {.world = p->size,
                               .algorithm = a < algos ? algo[a]->name : "auto",
                               .order = order,
                               .fn = conform,
                               .user = e};
            run_in_group(r, *p, &of);
        }
        expected_free(e);
    }
}

static void case_subgroups(struct rank *r, const struct group_params *p) {
    static void (*const all[])(struct rank *) = {by_color_and_key, overlapping,     nested,
                                                 of_its_own,       again_and_again, failures_stay_inside};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct ranks of = {.world = p->size, .algorithm = "auto", .fn = all[i]};
        run_in_group(r, *p, &of);
    }
}

/* Messages of all lengths around those at which they are cut, each byte its own. */
static void every_length(struct rank *r) {
    enum { FIRST = 3968, PIECE = 256 << 10, MOST_BYTES = FIRST + 9 * PIECE };
    static const int64_t lengths[] = {0,
                                      1,
                                      FIRST - 1,
                                      FIRST,
                                      FIRST + 1,
                                      FIRST + PIECE - 1,
                                      FIRST + PIECE,
                                      FIRST + PIECE + 1,
                                      FIRST + 2 * PIECE + 7,
                                      FIRST + 4 * PIECE,
                                      FIRST + 8 * PIECE + 13,
                                      MOST_BYTES};
    int32_t *sum = malloc(MOST_BYTES);
    uint8_t *bytes = malloc(MOST_BYTES);
    int world = r->of->world;
    for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++) {
        int64_t n = lengths[k], words = n / 4;
        for (int64_t i = 0; i < n; i++) bytes[i] = r->index ? 0 : (uint8_t)(i * 7 + (i >> 8));
        check_ok(group_broadcast(r->group, GROUP_INLINE, bytes, n, DTYPE_U8, 0));
        for (int64_t i = 0; i < n; i++)
            check(bytes[i] == (uint8_t)(i * 7 + (i >> 8)), "byte %lld of %lld", (long long)i, (long long)n);
        for (int64_t i = 0; i < words; i++) sum[i] = (int32_t)i + r->index;
        check_ok(group_all_reduce(r->group, GROUP_INLINE, sum, words, DTYPE_I32, REDOP_SUM));
        for (int64_t i = 0; i < words; i++)
            check(sum[i] == world * (int32_t)i + world * (world - 1) / 2, "word %lld of %lld", (long long)i,
                  (long long)words);
    }
    free(bytes);
    free(sum);
}

static void case_lengths(struct rank *r, const struct group_params *p) {
    static const char *const names[] = {"ring", "direct", "star", "native"};
    for (int i = 0; i < 4; i++) {
        struct ranks of = {
            .world = p->size, .algorithm = names[i], .order = i ? ORDER_TREE : ORDER_RING, .fn = every_length};
        run_in_group(r, *p, &of);
    }
}

enum { LONG = 1 << 20 };
static float numbers[LONG + 1];

static enum error add_large(struct rank *r, float *v, int64_t n) {
    return group_all_reduce(r->group, GROUP_INLINE, v, n, DTYPE_F32, REDOP_SUM);
}

/* Messages by tags go beside what the library carries: each rank sends every other one several, large and small, and
 * receives the newest first, some by any rank. */
static void tagged(struct rank *r) {
    enum { TAGS = 5, LARGE_COUNT = 300000 };
    static int32_t sent[TAGS][LARGE_COUNT], got[LARGE_COUNT];
    struct work *posts[TAGS * MAX_WORLD], *w;
    int world = r->of->world, n = 0, source = -1, from_any = 0;
    for (int tag = 0; tag < TAGS; tag++) {
        int64_t count = tag % 2 ? LARGE_COUNT : tag;
        for (int64_t i = 0; i < count; i++) sent[tag][i] = (int32_t)i * 3 + tag * 100 + r->index;
        for (int to = 0; to < world; to++)
            if (to != r->index)
                check_ok(
                    group_post(r->group, &(struct group_message){sent[tag], count, DTYPE_I32, to, tag}, &posts[n++]));
    }
    check_ok(add_large(r, numbers, 1000)); /* beside them */
    for (int tag = TAGS; tag-- > 0;)
        for (int k = 0, peer = 0; peer < world; peer++) {
            int64_t count = tag % 2 ? LARGE_COUNT : tag;
            if (peer == r->index) continue;
            int from = k++ == 0 && world == 2 ? GROUP_ANY : peer;
            check_ok(group_take(r->group, &(struct group_message){got, count, DTYPE_I32, from, tag, &source}, &w));
            check_ok(work_wait(w));
            from_any += from == GROUP_ANY;
            check(source == peer, "tag %d of rank %d came from %d", tag, peer, source);
            for (int64_t i = 0; i < count; i++)
                check(got[i] == (int32_t)i * 3 + tag * 100 + peer, "element %lld of tag %d", (long long)i, tag);
        }
    for (int i = 0; i < n; i++) check_ok(work_wait(posts[i]));
    check(from_any == (world == 2 ? TAGS : 0), "%d from any rank", from_any);
    check_ok(group_barrier(r->group));
}

static void case_messages(struct rank *r, const struct group_params *p) {
    struct group_params with = *p;
    with.mail = true;
    run_in_group(r, with, &(struct ranks){.world = p->size, .algorithm = "auto", .fn = tagged});
}

/* ---- failures ---- */

static void expect(struct rank *r, enum error err, enum error want, const char *words) {
    check(err == want, "error '%s': %s", error_text(err), error_message());
    check(strstr(error_message(), words), "'%s' is not in: %s", words, error_message());
}

static void mismatched(struct rank *r) {
    enum error err = group_barrier(r->group); /* no rank fails it while another opens it */
    if (!err) err = add_large(r, numbers, LONG + (r->index == 1));
    expect(r, err, ERR_MISMATCH, "rank 1 called all_reduce(f32, 1048577, sum)");
}

static void late(struct rank *r) {
    if (r->index == 1) {
        group_note(r->group, "backward of conv4", 12);
        usleep(2500000);
        return;
    }
    int64_t start = clock_ns();
    enum error err = add_large(r, numbers, LONG);
    double seconds = clock_seconds(clock_ns() - start);
    expect(r, err, ERR_TIMEOUT, "rank 1 (");
    expect(r, err, ERR_TIMEOUT, "has not entered all_reduce");
    expect(r, err, ERR_TIMEOUT, "backward of conv4 of step 12");
    check(seconds < timing_limit(2), "after %.2f s", seconds);
}

/* In the middle of much traffic, on both lanes. */
static void killed(struct rank *r) {
    struct work *w;
    enum error err = ERR_NONE;
    static float other[LONG];
    int64_t start = clock_ns();
    for (int i = 0; !err && i < 100000; i++) {
        if (r->index == 1 && i == 20) raise(SIGKILL);
        if (i == 20) start = clock_ns();
        err = group_all_reduce(r->group, GROUP_COMM(&w), other, LONG, DTYPE_F32, REDOP_SUM);
        if (!err) err = add_large(r, numbers, LONG);
        if (!err) err = work_wait(w);
    }
    double seconds = clock_seconds(clock_ns() - start);
    expect(r, err, ERR_PEER, "rank 1 (");
    expect(r, err, ERR_PEER, "has died");
    check(seconds < timing_limit(5), "after %.2f s", seconds);
}

static void left(struct rank *r) {
    if (r->index == 1) return;
    expect(r, add_large(r, numbers, LONG), ERR_PEER, "has left");
}

static void fails(struct rank *r, const struct group_params *p, void (*fn)(struct rank *)) {
    run_in_group(r, *p, &(struct ranks){.world = p->size, .algorithm = "direct", .timeout = 1, .fn = fn});
}

static void case_mismatched(struct rank *r, const struct group_params *p) {
    fails(r, p, mismatched);
}
static void case_late(struct rank *r, const struct group_params *p) {
    fails(r, p, late);
}
static void case_killed(struct rank *r, const struct group_params *p) {
    fails(r, p, killed);
}
static void case_left(struct rank *r, const struct group_params *p) {
    fails(r, p, left);
}

static const struct {
    const char *name;
    void (*run)(struct rank *r, const struct group_params *p);
} cases[] = {{"collectives", case_collectives}, {"subgroups", case_subgroups},
             {"lengths", case_lengths},         {"messages", case_messages},
             {"mismatched", case_mismatched},   {"late", case_late},
             {"killed", case_killed},           {"left", case_left}};

/* Each rank says what it has found; after a failure MPI is not ended and mpirun's code tells
 * nothing. */
static int rank_main(const char *name) {
    struct pool *pool;
    struct station *s;
    struct rank r = {0};
    enum error err = pool_create(&pool);
    if (!err) err = station_find(pool, &s);
    if (err) {
        printf("wrong: %s\n", error_message());
        return 1;
    }
    const struct group_params *p = station_group(s);
    r.index = p->rank;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (!strcmp(cases[i].name, name)) cases[i].run(&r, p);
    printf("%s%s\n", *r.wrong ? "wrong: " : "good", r.wrong);
    fflush(stdout);
    /* mpirun ends the others when one ends without MPI's leave */
    if (strstr("subgroups mismatched late killed left", name)) usleep(800000);
    station_close(s);
    pool_free(pool);
    return *r.wrong != 0;
}

/* ---- mpirun ---- */

static bool has_mpi(void) {
    bool built = access(ENGINE_BINARY_DIR "/libengine_mpi.so", R_OK) == 0;
    bool runs = system("command -v mpirun > /dev/null 2>&1") == 0;
    if (!built || !runs) print_message("no %s here: not tested\n", built ? "mpirun" : "MPI module");
    return built && runs;
}

static int count(const char *text, const char *word) {
    int n = 0;
    for (; (text = strstr(text, word)); text++) n++;
    return n;
}

/* The case in so many ranks, of which 'good' say that all is well. Returns mpirun's code. */
static int run_case(const char *name, int world, int good, const char *options) {
    static char command[1024], text[1 << 16], self[400];
    char log[300];
    if (!has_mpi()) skip();
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    assert_true(n > 0);
    self[n] = '\0';
    snprintf(log, sizeof log, "%s-%d", scratch_path(name), world);
    snprintf(command, sizeof command,
             "ASAN_OPTIONS=detect_leaks=0 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
             "timeout -s KILL 120 mpirun --oversubscribe %s -np %d %s --rank %s > %s 2>&1 "
             "< /dev/null",
             options, world, self, name, log);
    int code = system(command);
    FILE *f = fopen(log, "r");
    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    if (strstr(text, "wrong: ") || count(text, "good\n") != good) fail_msg("%s in %d ranks: %s", name, world, text);
    return code;
}

static void collectives(void **state) {
    (void)state;
    static const int worlds[] = {2, 3, 4, 8};
    for (int i = 0; i < 4; i++) assert_int_equal(run_case("collectives", worlds[i], worlds[i], ""), 0);
}

static void subgroups(void **state) {
    (void)state;
    (void)run_case("subgroups", 4, 4, ""); /* one of them fails */
}

static void every_cut(void **state) {
    (void)state;
    assert_int_equal(run_case("lengths", 2, 2, ""), 0);
    assert_int_equal(run_case("lengths", 3, 3, ""), 0);
}

static void messages_by_tags(void **state) {
    (void)state;
    assert_int_equal(run_case("messages", 2, 2, ""), 0);
    assert_int_equal(run_case("messages", 4, 4, ""), 0);
}

/* So that mpirun lets the others speak. */
static const char lasting[] = "--enable-recovery";

static void a_mismatch_names_both(void **state) {
    (void)state;
    (void)run_case("mismatched", 3, 3, lasting);
}

static void a_late_rank_is_named(void **state) {
    (void)state;
    (void)run_case("late", 3, 3, lasting);
}

static void a_killed_rank_is_named(void **state) {
    (void)state;
    (void)run_case("killed", 3, 2, lasting);
}

static void a_rank_that_left_is_named(void **state) {
    (void)state;
    (void)run_case("left", 3, 3, lasting);
}

/* Nothing is loaded before it is known that it can work. */
static void refused(void **state) {
    (void)state;
    struct group_params p = {.rank = 0, .size = 1, .link = "mpi", .algorithm = "auto", .timeout = 1};
    struct group *g;
    assert_fails(ERR_USAGE, group_open(&p, &g));
    assert_non_null(strstr(error_hint(), "mpirun -np 4"));
    setenv("PMI_RANK", "0", 1);
    setenv("ENGINE_MPI_MODULE", "/nowhere/module.so", 1);
    assert_fails(ERR_DEVICE, group_open(&p, &g));
    assert_non_null(strstr(error_message(), "/nowhere/module.so"));
    setenv("ENGINE_MPI_MODULE", "libm.so.6", 1);
    assert_fails(ERR_DEVICE, group_open(&p, &g));
    assert_non_null(strstr(error_message(), "is not a module of the engine"));
    unsetenv("ENGINE_MPI_MODULE");
    unsetenv("PMI_RANK");
}

int main(int argc, char **argv) {
    inputs_make();
    if (argc == 3 && !strcmp(argv[1], "--rank")) return rank_main(argv[2]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refused),
        cmocka_unit_test(every_cut),
        cmocka_unit_test(messages_by_tags),
        cmocka_unit_test(collectives),
        cmocka_unit_test(subgroups),
        cmocka_unit_test(a_mismatch_names_both),
        cmocka_unit_test(a_late_rank_is_named),
        cmocka_unit_test(a_killed_rank_is_named),
        cmocka_unit_test(a_rank_that_left_is_named),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    inputs_free();
    return failed;
}
