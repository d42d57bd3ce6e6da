/* Calls of buffers on GPUs, over every carrier: ranks as threads for peer copies and the host's
 * memory, as processes for NCCL. Every call of every kind, against a plain evaluation. */
#include "tests/gpu/gpu.h"

#include "tests/conformance/collectives.h"
#include "transport/flight/recorder.h"

#ifdef ENGINE_EMULATED
#include "tests/emulated/emulated.h"
#endif

#include <signal.h>
#include <stdatomic.h>

/* What all ranks of a case share; NCCL adds in an order of its own unless it only moves. */
static struct ranks of_carrier(const char *link, const char *carrier, int units) {
    return (struct ranks){.link = link,
                          .carrier = carrier,
                          .expect = !strcmp(carrier, "auto") ? "peer" : carrier,
                          .units = units,
                          .devices = device_find("cuda"),
                          .fn = conform_carried};
}

static void run_one(struct ranks p, enum order order, int world) {
    struct standing s = {order, world};
    struct expected *e = expected_make(&s);
    p.world = world;
    p.order = order;
    p.user = e;
    if (world == 1) p.expect = "staged";
    run_ranks(p, NULL);
    expected_free(e);
}

static int units(int most) {
    int n = gpu_count();
    return n < most ? n : most;
}

static void peers(void **state) {
    static const int worlds[] = {1, 2, 3, 4};
    (void)state;
    for (int w = 0; w < 4; w++)
        for (enum order order = ORDER_TREE; order <= ORDER_RING; order++)
            run_one(of_carrier("thread", w % 2 ? "auto" : "peer", units(4)), order, worlds[w]);
}

/* Several devices on one GPU. */
static void peers_on_one_unit(void **state) {
    (void)state;
    run_one(of_carrier("thread", "peer", 1), ORDER_TREE, 2);
    run_one(of_carrier("thread", "peer", 1), ORDER_RING, 3);
}

static void staged(void **state) {
    (void)state;
    run_one(of_carrier("thread", "staged", units(2)), ORDER_TREE, 2);
    run_one(of_carrier("shm", "staged", units(2)), ORDER_RING, 3);
    run_one(of_carrier("tcp", "staged", units(2)), ORDER_TREE, 3);
}

/* Ranks that share out more leaves than they are. */
static void leaves(void **state) {
    (void)state;
    for (int world = 2; world <= 3; world++) {
        struct ranks p = of_carrier("thread", "peer", units(4));
        p.world = world;
        run_leaves(p);
        p = of_carrier("thread", "staged", units(2));
        p.world = world;
        run_leaves(p);
    }
}

/* A rank without a GPU, as a server of dp may be. */
static void mixed(void **state) {
    struct ranks p = of_carrier("thread", "auto", 1);
    (void)state;
    p.expect = "staged";
    p.hosted = 1;
    run_one(p, ORDER_TREE, 3);
}

#ifdef ENGINE_EMULATED
/* ---- calls of the communication lane do not wait for each other's end ---- */

static void await_gate(void *arg) {
    const _Atomic bool *open = *(_Atomic bool **)arg;
    while (!atomic_load(open)) nap(0.001);
}

/* The device comes to none of them before all of them have been asked for. */
static void begin_all(struct rank *r) {
    enum { CALLS = 4, EACH = 1000, PATIENCE = 20000 };
    _Atomic bool gate = false, *at = &gate;
    struct recording_call calls[CALLS];
    struct work *w[CALLS];
    float x[CALLS * EACH];
    void *buf;
    int begun = 0;
    check_ok(group_alloc(r->group, sizeof x, &buf));
    for (int i = 0; i < CALLS * EACH; i++) x[i] = (float)(i % 97 + r->index);
    check_ok(group_all_reduce(r->group, GROUP_COMM(&w[0]), buf, EACH, DTYPE_F32, REDOP_SUM)); /* makes room for sums */
    check_ok(work_wait(w[0]));
    check_ok(device_write(r->device, buf, x, sizeof x));
    emulated_submit(device_runtime(r->device)->stream(r->device, LANE_COMPUTE), await_gate, &at, sizeof at);
    for (int i = 0; i < CALLS; i++)
        check_ok(group_all_reduce(r->group, GROUP_COMM(&w[i]), (float *)buf + i * EACH, EACH, DTYPE_F32, REDOP_SUM));
    for (int i = 0; i < PATIENCE && begun < CALLS; i++, nap(0.001))
        begun = recorder_recall(r->of->recorders[r->index], LANE_COMM, 1, calls, CALLS);
    check(begun == CALLS, "%d of %d calls have begun", begun, CALLS);
    for (int i = 0; i < begun; i++) check(!calls[i].ended, "call %d has ended before the gate opens", i);
    atomic_store(&gate, true);
    for (int i = 0; i < CALLS; i++) check_ok(work_wait(w[i]));
    check_ok(device_read(r->device, x, buf, sizeof x));
    for (int i = 0; i < CALLS * EACH; i++)
        check(x[i] == (float)(2 * (i % 97) + 1), "element %d is %g", i, (double)x[i]);
}

static void open_recorder(int rank, struct recorder **out) {
    char path[600];
    snprintf(path, sizeof path, "%s%d", scratch_path("rank"), rank);
    assert_ok(recorder_open(&(struct recorder_params){.path = path, .rank = rank, .size = 2, .calls = 64}, out));
}
#endif

/* ---- processes, for NCCL ---- */

static struct ranks nccl_ranks(const char *how, const char *link, int world) {
    struct ranks p = of_carrier(link, "nccl", units(world));
    p.world = world;
    p.bitwise = strstr(how, "bitwise") != NULL;
    p.loose = !p.bitwise;
    p.order = strstr(how, "ring") ? ORDER_RING : ORDER_TREE;
    p.timeout = strstr(how, "fault") ? 3 : 60;
    return p;
}

static int process_rank(int rank, int world, const char *how) {
    struct meeting *m;
    struct ranks p = nccl_ranks(how, "shm", world);
    bool leaves = strstr(how, "leaves") != NULL;
    struct standing s = {p.order, leaves ? LEAVES : world};
    struct expected *e = expected_make(&s);
    struct recorder *own[MAX_WORLD] = {NULL};
#ifdef ENGINE_EMULATED
    if (!strcmp(how, "begin")) {
        open_recorder(rank, &own[rank]);
        p.fn = begin_all;
    }
#endif
    p.recorders = own;
    if (leaves) p.leaves = LEAVES, p.fn = conform_leaves;
    struct rank r = {.of = &p, .index = rank};
    p.user = e;
    if (meeting_join(RANK_FD, world, &m) != ERR_NONE) return 1;
    rank_run(&r, m);
    meeting_free(m);
    expected_free(e);
    recorder_close(own[rank], true);
    if (*r.wrong) fprintf(stderr, "%s\n", r.wrong);
    return *r.wrong ? error_exit_code(r.err ? r.err : ERR_RESULT) : 0;
}

/* Every rank's exit code. */
static void run_processes(int world, const char *how, int *codes) {
    struct meeting *m;
    pid_t pid[MAX_WORLD];
    assert_ok(meeting_create_shared(world, &m));
    for (int i = 0; i < world; i++) pid[i] = spawn_rank(m, i, world, how);
    for (int i = 0; i < world; i++) {
        int status;
        assert_int_equal(waitpid(pid[i], &status, 0), pid[i]);
        codes[i] = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    }
    meeting_free(m);
}

static void run_nccl(int world, const char *how) {
    int codes[MAX_WORLD];
    run_processes(world, how, codes);
    for (int i = 0; i < world; i++) assert_int_equal(codes[i], 0);
}

/* Several on one GPU, where there are no more: through sockets, as it says. */
static void nccl_adds(void **state) {
    (void)state;
    run_nccl(2, "nccl");
    run_nccl(3, "nccl");
}

static void nccl_only_moves(void **state) {
    (void)state;
    run_nccl(2, "bitwise");
    run_nccl(3, "bitwise ring");
    run_nccl(3, "bitwise leaves");
}

#ifdef ENGINE_EMULATED
static void calls_begin_before_others_end(void **state) {
    struct recorder *of[2];
    struct ranks p = of_carrier("thread", "peer", units(2));
    (void)state;
    for (int i = 0; i < 2; i++) open_recorder(i, &of[i]);
    p.world = 2;
    p.fn = begin_all;
    p.recorders = of;
    run_ranks(p, NULL);
    for (int i = 0; i < 2; i++) recorder_close(of[i], true);
    run_nccl(2, "begin");
}

/* ---- faults ---- */

struct fault {
    const char *name, *fault; /* of the fake NCCL */
    int codes[2];             /* how the ranks end */
    enum error err;           /* what the group fails with */
    const char *words;        /* in its message */
};
static const struct fault faults[] = {
    {"slow", "slow", {0, 0}, ERR_NONE, ""},
    {"never", "init_forever@1", {75, 75}, ERR_TIMEOUT, "rank 1: ncclCommInitRank has not ended within 3 s"},
    {"remote",
     "remote_error:2@1",
     {75, 75},
     ERR_PEER,
     "rank 1: NCCL: remote process exited or there was a network error"},
    {"hang", "hang:2@0", {75, 75}, ERR_TIMEOUT, "has not ended on its device within 3 s, by carrier nccl"},
    {"dies", "hang:2@1", {75, -SIGALRM}, ERR_PEER, "has died; rank 0 waits for it in all_reduce"},
    {"aborts", "hang:2@1", {75, 75}, ERR_PEER, "rank 1: had enough"},
};
enum { FAULTS = sizeof faults / sizeof *faults };

static const struct fault *fault_of(const char *name) {
    for (int i = 0; i < FAULTS; i++)
        if (!strcmp(faults[i].name, name)) return &faults[i];
    return NULL;
}

static void meet_fault(struct rank *r) {
    const struct fault *f = r->of->user;
    struct work *w = NULL;
    void *buf;
    enum error err = group_alloc(r->group, 4000, &buf);
    for (int i = 0; i < 4 && !err; i++) {
        if (i == 1 && r->index == 1 && !strcmp(f->name, "dies")) alarm(1);
        err = group_all_reduce(r->group, GROUP_COMM(&w), buf, 1000, DTYPE_F32, REDOP_SUM);
        if (i == 1 && r->index == 1 && !strcmp(f->name, "aborts")) {
            usleep(300000);
            group_abort(r->group, "had enough");
        }
        if (!err) err = work_wait(w);
    }
    rank_result(r, err);
}

static int process_fault(int rank, const struct fault *f) {
    struct meeting *m;
    struct ranks p = nccl_ranks("fault", "shm", 2);
    struct rank r = {.of = &p, .index = rank};
    p.fn = meet_fault;
    p.user = f;
    if (meeting_join(RANK_FD, 2, &m) != ERR_NONE) return 1;
    rank_run(&r, m);
    meeting_free(m);
    if (r.err == f->err && strstr(r.message, f->words)) return error_exit_code(r.err);
    fprintf(stderr, "rank %d, fault %s: %d, %s %s\n", rank, f->name, (int)r.err, r.message, r.wrong);
    return 1;
}

/* Where NCCL is not: the host's memory, but not where NCCL was asked for. */
static int process_without(int rank, bool forced) {
    struct meeting *m;
    struct ranks p = nccl_ranks("", "shm", 2);
    struct rank r = {.of = &p, .index = rank};
    struct device_params d = {.index = rank, .count = 2, .unit = 0, .threads = 1};
    const char *why = "";
    p.carrier = forced ? "nccl" : "auto";
    if (p.devices->open(&d, &r.device) != ERR_NONE || meeting_join(RANK_FD, 2, &m) != ERR_NONE) return 1;
    setenv("ENGINE_CUDA_LIBRARIES", "/nowhere", 1);
    struct group_params g = rank_params(&p, rank);
    g.meeting = m;
    g.device = r.device;
    rank_result(&r, group_open(&g, &r.group));
    const char *carrier = r.err ? "" : group_carrier(r.group, &why);
    bool good = forced ? r.err == ERR_DEVICE && strstr(r.message, "NCCL 2 was not found")
                       : !strcmp(carrier, "staged") && strstr(why, "rank 0 has no nccl");
    if (!good) fprintf(stderr, "rank %d: %s %s (%s)\n", rank, carrier, r.message, why);
    if (r.group) group_close(r.group);
    r.device->ops->close(r.device);
    meeting_free(m);
    return good ? 0 : 1;
}

static void without_nccl(void **state) {
    int codes[2];
    (void)state;
    for (int forced = 0; forced < 2; forced++) {
        run_processes(2, forced ? "forced" : "without", codes);
        assert_int_equal(codes[0], 0);
        if (!forced) assert_int_equal(codes[1], 0);
    }
}

/* All ranks learn of it, with the same words, and end. */
static void nccl_fails(void **state) {
    (void)state;
    for (int i = 0; i < FAULTS; i++) {
        int codes[2];
        setenv("FAKE_NCCL_FAULT", faults[i].fault, 1);
        run_processes(2, faults[i].name, codes);
        unsetenv("FAKE_NCCL_FAULT");
        for (int r = 0; r < 2; r++)
            if (codes[r] != faults[i].codes[r]) fail_msg("%s: rank %d ended with %d", faults[i].name, r, codes[r]);
    }
}

/* A peer that leaves in the middle: nobody touches what is no more. */
static void leave_early(struct rank *r) {
    void *buf;
    enum error err = group_alloc(r->group, MOST * 4, &buf);
    for (int i = 0; i < 50 && !err; i++) {
        if (i == 20 + r->index && r->index == r->of->world - 1) return; /* closes its group */
        err = group_all_reduce(r->group, GROUP_INLINE, buf, MOST, DTYPE_F32, REDOP_SUM);
    }
    rank_result(r, err);
    check(err == ERR_PEER, "%s", r->message);
}

static void peers_leave(void **state) {
    struct ranks p = of_carrier("thread", "peer", 2);
    (void)state;
    p.world = 3;
    p.fn = leave_early;
    for (int i = 0; i < 10; i++) run_ranks(p, NULL);
}

static int process(int rank, int world, const char *how) {
    if (!strcmp(how, "forced") || !strcmp(how, "without")) return process_without(rank, !strcmp(how, "forced"));
    return fault_of(how) ? process_fault(rank, fault_of(how)) : process_rank(rank, world, how);
}
#else
static int process(int rank, int world, const char *how) {
    return process_rank(rank, world, how);
}
#endif

int main(int argc, char **argv) {
    inputs_make();
    if (argc == 5 && !strcmp(argv[1], "--rank")) return process(atoi(argv[2]), atoi(argv[3]), argv[4]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(peers),
        cmocka_unit_test(peers_on_one_unit),
        cmocka_unit_test(staged),
        cmocka_unit_test(leaves),
        cmocka_unit_test(mixed),
        cmocka_unit_test(nccl_adds),
        cmocka_unit_test(nccl_only_moves),
#ifdef ENGINE_EMULATED
        cmocka_unit_test(calls_begin_before_others_end),
        cmocka_unit_test(without_nccl),
        cmocka_unit_test(nccl_fails),
        cmocka_unit_test(peers_leave),
#endif
    };
    int failed = gpu_run_tests(tests);
    inputs_free();
    return failed;
}
