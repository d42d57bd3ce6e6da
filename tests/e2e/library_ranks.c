/* A rank of cli_library_test: calls every function that <engine/engine.h> has for groups, and
 * compares what comes of it with what plain loops give. Its argument is the part to play; it ends
 * with 0 where all was right. TEST_LINK and TEST_INIT are the group's link and meeting place. */
#define _POSIX_C_SOURCE 200809L
#include <engine/engine.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { N = 3001, TYPES = ENGINE_U8 + 1, OPS = ENGINE_XOR + 1, WORKS = 24, MOST = 64 };
static struct engine_group *group;
static int rank, size;

#define need(condition)                                                                                                \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "rank %d, line %d: not (%s); %s\n", rank, __LINE__, #condition, engine_message());         \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

/* ---- elements of any type, which hold small whole numbers ---- */

static const size_t bytes_of[TYPES] = {4, 8, 2, 2, 4, 8, 1};

/* An f32's bits become a half's: exact for the numbers of this test. */
static uint16_t narrow(int type, float f) {
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    if (type == ENGINE_BF16) return (uint16_t)(u >> 16);
    return f == 0 ? 0 : (uint16_t)(((u >> 23) - 112) << 10 | (u >> 13 & 1023));
}

static void put(void *array, long i, int type, int64_t v) {
    float f = (float)v;
    double d = (double)v;
    uint16_t half = narrow(type, f);
    int32_t i32 = (int32_t)v;
    uint8_t u8 = (uint8_t)v;
    const void *from[TYPES] = {&f, &d, &half, &half, &i32, &v, &u8};
    memcpy((char *)array + (size_t)i * bytes_of[type], from[type], bytes_of[type]);
}

/* What rank r puts at i: a multiple of the ranks, so that an average is a whole number, too. */
static int64_t given(int r, long i) {
    return size * (1 + (r + i) % 2);
}

static int64_t combined(int op, long i) {
    int64_t all = given(0, i);
    for (int r = 1; r < size; r++) {
        int64_t v = given(r, i);
        switch (op) {
        case ENGINE_PROD:
            all *= v;
            break;
        case ENGINE_MIN:
            all = v < all ? v : all;
            break;
        case ENGINE_MAX:
            all = v > all ? v : all;
            break;
        case ENGINE_AND:
            all &= v;
            break;
        case ENGINE_OR:
            all |= v;
            break;
        case ENGINE_XOR:
            all ^= v;
            break;
        default:
            all += v;
        }
    }
    return op == ENGINE_AVG ? all / size : all;
}

static char send[MOST * N * 8], recv[MOST * N * 8], wanted[MOST * N * 8];

/* 'parts' ranks' parts of N elements each from rank 'first' on; part p of rank r begins at N * p of
 * its numbers. */
static void give(void *array, int type) {
    for (long i = 0; i < (long)N * size; i++) put(array, i, type, given(rank, i));
}

static void clear(void) {
    memset(recv, 0x77, sizeof recv);
}

static int same(const void *got, int type, long n) {
    return memcmp(got, wanted, (size_t)n * bytes_of[type]) == 0;
}

/* ---- the calls that wait ---- */

static void reductions(int type, int op) {
    int root = size - 1;
    give(send, type);
    for (long i = 0; i < N; i++) put(wanted, i, type, combined(op, i));
    clear();
    need(engine_all_reduce(group, send, recv, N, type, op) == 0 && same(recv, type, N));
    give(recv, type); /* in place */
    need(engine_all_reduce(group, recv, recv, N, type, op) == 0 && same(recv, type, N));
    clear();
    need(engine_reduce(group, send, recv, N, type, op, root) == 0);
    need(rank == root ? same(recv, type, N) : recv[0] == 0x77);
    for (long i = 0; i < N; i++) put(wanted, i, type, combined(op, (long)N * rank + i));
    clear();
    need(engine_reduce_scatter(group, send, recv, N, type, op) == 0 && same(recv, type, N));
}

static void moves(int type) {
    int root = size / 2;
    give(send, type);
    for (long i = 0; i < N; i++) put(wanted, i, type, given(root, i));
    memcpy(recv, send, sizeof recv);
    need(engine_broadcast(group, recv, N, type, root) == 0 && same(recv, type, N));
    for (long i = 0; i < N; i++) put(wanted, i, type, given(root, (long)N * rank + i));
    clear();
    need(engine_scatter(group, send, recv, N, type, root) == 0 && same(recv, type, N));
    for (long i = 0; i < (long)N * size; i++) put(wanted, i, type, given((int)(i / N), i % N));
    clear();
    need(engine_all_gather(group, send, recv, N, type) == 0 && same(recv, type, (long)N * size));
    clear();
    need(engine_gather(group, send, recv, N, type, root) == 0);
    need(rank == root ? same(recv, type, (long)N * size) : recv[0] == 0x77);
    for (long i = 0; i < (long)N * size; i++) put(wanted, i, type, given((int)(i / N), (long)N * rank + i % N));
    clear();
    need(engine_all_to_all(group, send, recv, N, type) == 0 && same(recv, type, (long)N * size));
}

/* Each sends to the next; the first sends first. */
static void pass_on(int type) {
    int next = (rank + 1) % size, last = (rank + size - 1) % size;
    if (size == 1) return;
    give(send, type);
    clear();
    for (long i = 0; i < N; i++) put(wanted, i, type, given(last, i));
    if (rank == 0) need(engine_send(group, send, N, type, next, 0) == 0);
    need(engine_recv(group, recv, N, type, last, 0, NULL) == 0 && same(recv, type, N));
    if (rank > 0) need(engine_send(group, send, N, type, next, 0) == 0);
}

/* All but the first send it what each has in two tags; it takes the second before the first, and from whoever comes. */
static void send_to_first(void) {
    int taken[MOST] = {0}, source = -1;
    int32_t x = -1;
    for (int tag = 1; rank > 0 && tag <= 2; tag++) {
        x = rank * 10 + tag;
        need(engine_send(group, &x, 1, ENGINE_I32, 0, tag) == 0);
    }
    for (int tag = 2; rank == 0 && tag > 0; tag--)
        for (int i = 1; i < size; i++) {
            need(engine_recv(group, &x, 1, ENGINE_I32, ENGINE_ANY, tag, &source) == 0);
            need(source > 0 && source < size && x == source * 10 + tag && ++taken[source] == 3 - tag);
        }
}

static void wait_for_all(void) {
    for (int type = 0; type < TYPES; type++) {
        int whole = type == ENGINE_I32 || type == ENGINE_I64 || type == ENGINE_U8;
        for (int op = 0; op < (whole ? OPS : ENGINE_AND); op++) reductions(type, op);
        moves(type);
        pass_on(type);
        need(engine_barrier(group) == 0);
    }
    send_to_first();
}

/* ---- the calls that are waited for later ---- */

/* Works of four kinds, begun in this order on every rank: sums, broadcasts from each in turn, and
 * parts that go around. Every one has memory of its own. */
static int32_t sums[WORKS][N], terms[N], casts[WORKS][N], sent[WORKS][N], got[WORKS][N];

static void begin(struct engine_work **work, int *n) {
    int next = (rank + 1) % size, last = (rank + size - 1) % size;
    for (int w = 0; w < WORKS; w++) {
        for (int i = 0; i < N; i++) {
            terms[i] = i + w * rank;
            casts[w][i] = sent[w][i] = rank * 1000 + w * 10000 + i;
        }
        need(engine_all_reduce_start(group, terms, sums[w], N, ENGINE_I32, ENGINE_SUM, &work[(*n)++]) == 0);
        memset(terms, 0x55, sizeof terms); /* it has been read */
        need(engine_broadcast_start(group, casts[w], N, ENGINE_I32, w % size, &work[(*n)++]) == 0);
        if (size == 1) continue;
        for (int turn = 0; turn < 2; turn++)
            if ((rank == 0) == (turn == 0))
                need(engine_send_start(group, sent[w], N, ENGINE_I32, next, 0, &work[(*n)++]) == 0);
            else
                need(engine_recv_start(group, got[w], N, ENGINE_I32, last, 0, NULL, &work[(*n)++]) == 0);
    }
}

static void compare(void) {
    int last = (rank + size - 1) % size;
    for (int w = 0; w < WORKS; w++)
        for (int i = 0; i < N; i++) {
            need(sums[w][i] == size * i + w * size * (size - 1) / 2);
            need(casts[w][i] == w % size * 1000 + w * 10000 + i);
            need(size == 1 || got[w][i] == last * 1000 + w * 10000 + i);
        }
}

static int position(int order, int i, int n) {
    if (order == 2) return i % 2 ? n - 1 - i / 2 : i / 2; /* from both ends */
    return order ? n - 1 - i : i;
}

/* order: that of the starts, the reverse, both ends; or each rank another one. */
static void start_and_wait(int order) {
    struct engine_work *work[WORKS * 4];
    int n = 0;
    memset(sums, 0, sizeof sums);
    memset(got, 0, sizeof got);
    begin(work, &n);
    for (int i = 0; i < n; i++) need(work[i] != NULL);
    if (order == 3) order = rank % 3;
    for (int i = 0; i < n; i++) need(engine_work_wait(work[position(order, i, n)]) == 0);
    compare();
}

/* It is done without anybody who waits, and can be waited for then. */
static void look(void) {
    int64_t one = 1;
    struct engine_work *w;
    need(engine_all_reduce_start(group, &one, &one, 1, ENGINE_I64, ENGINE_SUM, &w) == 0);
    while (!engine_work_done(w)) {
    }
    need(one == size);
    need(engine_work_wait(w) == 0);
    engine_group_wait_at_once(group);
    need(engine_all_reduce_start(group, &one, &one, 1, ENGINE_I64, ENGINE_SUM, &w) == 0);
    need(engine_work_wait(w) == 0 && one == (int64_t)size * size);
}

/* The other kinds, all begun before the first is waited for; each has memory of its own. */
static void start_the_rest(void) {
    static int32_t mine[N], sum[N], all[MOST * N], every[MOST * N], back[MOST * N], summed[MOST * N];
    static int32_t gathered[MOST * N], scattered[N];
    static int32_t uneven[MOST * MOST], taken[MOST * MOST];
    long long to[MOST + 1] = {0}, from[MOST + 1] = {0};
    struct engine_work *w[8];
    struct engine_stats stats;
    int root = size - 1;
    long n = (long)N * size;
    for (long i = 0; i < N; i++) mine[i] = (int32_t)given(rank, i);
    for (long i = 0; i < n; i++) every[i] = summed[i] = (int32_t)given(rank, i);
    need(engine_reduce_start(group, mine, sum, N, ENGINE_I32, ENGINE_SUM, root, &w[0]) == 0);
    need(engine_all_gather_start(group, mine, all, N, ENGINE_I32, &w[1]) == 0);
    need(engine_all_to_all_start(group, every, back, N, ENGINE_I32, &w[2]) == 0);
    need(engine_gather_start(group, mine, rank == root ? gathered : NULL, N, ENGINE_I32, root, &w[3]) == 0);
    need(engine_scatter_start(group, rank == root ? every : NULL, scattered, N, ENGINE_I32, root, &w[4]) == 0);
    need(engine_reduce_scatter_start(group, summed, summed + (long)N * rank, N, ENGINE_I32, ENGINE_MAX, &w[5]) == 0);
    need(engine_barrier_start(group, &w[6]) == 0);
    for (int r = 0; r < size; r++) { /* rank q sends q + r elements to rank r */
        to[r + 1] = to[r] + rank + r, from[r + 1] = from[r] + rank + r;
        for (long long i = to[r]; i < to[r + 1]; i++) uneven[i] = (int32_t)(rank * 1000 + r);
    }
    need(engine_all_to_all_parts_start(group, uneven, to, taken, from, ENGINE_I32, &w[7]) == 0);
    for (int i = 7; i >= 0; i--) need(engine_work_wait(w[i]) == 0);
    for (long i = 0; i < N; i++) {
        long own = (long)N * rank + i;
        need(rank != root || sum[i] == combined(ENGINE_SUM, i));
        need(scattered[i] == given(root, own) && summed[own] == combined(ENGINE_MAX, own));
    }
    for (long i = 0; i < n; i++) {
        need(all[i] == given((int)(i / N), i % N) && back[i] == given((int)(i / N), (long)N * rank + i % N));
        need(rank != root || gathered[i] == given((int)(i / N), i % N));
    }
    for (int r = 0; r < size; r++)
        for (long long i = from[r]; i < from[r + 1]; i++) need(taken[i] == r * 1000 + rank);
    engine_group_stats(group, &stats);
    need(stats.calls > 0 && (size == 1 || stats.sent > 0) && stats.busy >= 0);
}

/* What the group has recorded of its calls. */
static void look_back(void) {
    enum { MOST_CALLS = 600 };
    static struct engine_call calls[MOST_CALLS];
    float x[3] = {0};
    struct engine_work *w;
    long long offset = 1, trip = 1;
    int before = engine_group_calls(group, ENGINE_STARTED, 0, calls, MOST_CALLS);
    long long next = before ? calls[before - 1].number + 1 : 0;
    need((size == 1) == !*engine_group_name(group));
    engine_group_label(group, "of the test");
    need(engine_all_reduce_start(group, x, x, 3, ENGINE_F32, ENGINE_SUM, &w) == 0 && engine_work_wait(w) == 0);
    need(engine_broadcast_start(group, x, 2, ENGINE_U8, size - 1, &w) == 0 && engine_work_wait(w) == 0);
    int n = engine_group_calls(group, ENGINE_STARTED, next, calls, MOST_CALLS);
    need(n == (size > 1 ? 2 : 0));
    need(n == 0 || (!strcmp(calls[0].name, "all_reduce") && calls[0].bytes == 12 && calls[0].root == -1));
    need(n == 0 || (!strcmp(calls[1].name, "broadcast") && calls[1].bytes == 2 && calls[1].root == size - 1));
    need(n == 0 || (calls[0].number == next && calls[1].sequence == calls[0].sequence + 1 && calls[1].code == 0));
    need(n == 0 || (calls[0].began <= calls[0].ended && calls[0].ended <= calls[1].began));
    need(engine_group_calls(group, 1, next, calls, 1) == (size > 1) &&
         engine_group_calls(group, 1, next + 2, calls, 1) == 0);
    need(engine_group_clock(group, &offset, &trip) == 0 && trip >= 0);
    need(rank > 0 || (offset == 0 && trip == 0));
}

/* And of messages, once around all ranks: one kind more is none. */
static void look_back_at_messages(void) {
    static struct engine_call calls[600];
    int to = (rank + 1) % size, from = (rank + size - 1) % size;
    unsigned char mine[5] = {0}, theirs[5];
    struct engine_work *w;
    if (size == 1) return;
    need(engine_send_start(group, mine, 5, ENGINE_U8, to, 1234567890123, &w) == 0);
    need(engine_recv(group, theirs, 5, ENGINE_U8, ENGINE_ANY, 1234567890123, NULL) == 0 && engine_work_wait(w) == 0);
    for (int kind = ENGINE_SENT; kind <= ENGINE_RECEIVED; kind++) {
        int n = engine_group_calls(group, kind, 0, calls, 600);
        const struct engine_call *last = &calls[n - 1];
        need(n > 0 && !strcmp(last->name, kind == ENGINE_SENT ? "send" : "recv") && last->tag == 1234567890123);
        need(n > 0 && last->bytes == 5 && last->root == (kind == ENGINE_SENT ? to : from) && last->code == 0);
        need(n > 0 && last->sequence == 0 && last->began <= last->ended);
    }
    need(engine_group_calls(group, ENGINE_RECEIVED + 1, 0, calls, 600) == 0);
    need(engine_group_calls(group, -1, 0, calls, 600) == 0);
}

static void start_all(void) {
    look_back();
    look_back_at_messages();
    start_the_rest();
    for (int order = 0; order < 4; order++) start_and_wait(order);
    look();
    wait_for_all(); /* the other lane is as it was */
}

/* ---- memory, parts of a group ---- */

static void allocate(void) {
    for (long n = 1; n <= 100000; n *= 10) {
        void *memory;
        need(engine_group_alloc(group, (unsigned long long)n * sizeof(double), &memory) == 0);
        double *x = memory;
        for (long i = 0; i < n; i++) {
            need(x[i] == 0);
            x[i] = (double)(rank + i);
        }
        need(engine_all_reduce(group, x, x, n, ENGINE_F64, ENGINE_MAX) == 0);
        for (long i = 0; i < n; i++) need(x[i] == (double)(size - 1 + i));
    }
    need(strchr(engine_group_choice(group, 1 << 20), ':') != NULL);
}

static void split(void) {
    struct engine_group *part;
    int64_t sum = rank, alone = rank == size - 1;
    need(engine_group_split(group, alone ? -1 : rank % 2, -rank, &part) == 0);
    need(alone == (part == NULL));
    if (!part) return;
    int members = 0, before = 0;
    int64_t all = 0;
    for (int r = rank % 2; r < size - 1; r += 2) members++, all += r, before += r > rank;
    need(engine_group_size(part) == members && engine_group_rank(part) == before);
    need(engine_all_reduce(part, &sum, &sum, 1, ENGINE_I64, ENGINE_SUM) == 0 && sum == all);
    engine_group_close(part);
}

static void use_parts(void) {
    allocate();
    split();
    split();
    wait_for_all();
}

/* ---- what is refused, after which a group stays failed ---- */

static void too_many(void) {
    static int32_t x[257];
    struct engine_work *w;
    int code = 0, n = 0;
    for (; n < 257 && !code; n++) code = engine_all_reduce_start(group, x + n, x + n, 1, ENGINE_I32, ENGINE_SUM, &w);
    need(n == 257 && code == 70 && w == NULL && strstr(engine_message(), "256"));
}

static void refuse(void) {
    float x[4] = {0};
    need(engine_all_reduce(group, x, x, 4, ENGINE_F32, ENGINE_AND) == 70);
    need(strstr(engine_message(), "and is for integers, not for f32") != NULL);
    need(engine_barrier(group) != 0);
}

/* One rank's count makes no sense, which it finds before the others know of the call. */
static void miscount(void) {
    float x[4] = {0}, all[4 * MOST];
    int code = engine_all_gather(group, x, all, rank == size - 1 ? -1 : 4, ENGINE_F32);
    need(code == (rank == size - 1 ? 64 : 75));
    need(strstr(engine_message(), "-1 elements of type 0 for each rank") != NULL);
    need(engine_barrier(group) != 0);
}

static void give_up(void) {
    if (rank == 0) engine_group_abort(group, "out of coffee");
    need(engine_barrier(group) != 0);
    need(strstr(engine_message(), "out of coffee") != NULL);
}

static void disagree(void) {
    float x[4] = {0};
    need(engine_all_reduce(group, x, x, rank ? 4 : 3, ENGINE_F32, ENGINE_SUM) == 70);
    need(strstr(engine_message(), "all_reduce(f32, 3, sum)") != NULL);
    need(strstr(engine_message(), "all_reduce(f32, 4, sum)") != NULL);
}

/* Rank 1 is killed while the others wait, in a sum or for messages of the given ranks; they learn of it from their group,
 * whoever has started them. */
static void lose(const int *from) {
    struct timespec before, after;
    int64_t x = 0;
    need(engine_barrier(group) == 0 && size == 3);
    if (rank == 1) {
        sleep(1);
        kill(getpid(), SIGKILL);
    }
    clock_gettime(CLOCK_MONOTONIC, &before);
    need((from ? engine_recv(group, &x, 1, ENGINE_I64, from[rank], 0, NULL)
               : engine_all_reduce(group, &x, &x, 1, ENGINE_I64, ENGINE_SUM)) == 75);
    clock_gettime(CLOCK_MONOTONIC, &after);
    need(strstr(engine_message(), "rank 1 (") && strstr(engine_message(), "has died"));
    need(after.tv_sec - before.tv_sec < 10);
}

static void lose_awaited(void) {
    lose(NULL);
}

/* Ranks 0 and 2 wait for each other, or for rank 1 and for anybody. */
static void lose_another(void) {
    lose((const int[]){2, 0, 0});
}

static void lose_sender(void) {
    lose((const int[]){1, 0, ENGINE_ANY});
}

static const struct {
    const char *name;
    void (*play)(void);
} parts[] = {{"wait", wait_for_all},       {"start", start_all},   {"parts", use_parts},
             {"many", too_many},           {"refuse", refuse},     {"disagree", disagree},
             {"give-up", give_up},         {"lose", lose_awaited}, {"lose-another", lose_another},
             {"lose-sender", lose_sender}, {"miscount", miscount}};

int main(int argc, char **argv) {
    struct engine_group *none = (void *)&size;
    struct engine_init init = {.link = getenv("TEST_LINK"), .init = getenv("TEST_INIT")};
    need(argc == 2);
    need(engine_group_open(&(struct engine_init){.order = "sideways"}, &none) == 64 && !none);
    need(strstr(engine_message(), "sideways") && *engine_hint());
    need(engine_group_open(&(struct engine_init){.latency = -1}, &none) == 64 && !none);
    need(engine_group_open(&(struct engine_init){.algorithm = "sideways"}, &none) == 64 && !none);
    need(strstr(engine_message(), "sideways") && strstr(engine_hint(), "halving_doubling"));
    need(engine_group_open(&(struct engine_init){.secure = "sideways"}, &none) == 64 && !none);
    need(strstr(engine_message(), "sideways") && strstr(engine_hint(), "encrypted"));
    need(engine_group_open(&(struct engine_init){.secure = "sealed", .token = "none"}, &none) == 64 && !none);
    need(engine_group_open(&init, &group) == 0);
    rank = engine_group_rank(group);
    size = engine_group_size(group);
    if (size > 1 && !init.init) {
        need(engine_group_open(&init, &none) == 64 && !none);
        need(strstr(engine_message(), "can do so once") && strstr(engine_hint(), "split"));
    }
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!strcmp(argv[1], parts[i].name)) {
            parts[i].play();
            engine_group_close(group);
            printf("rank %d of %d: %s is right\n", rank, size, argv[1]);
            return 0;
        }
    return 64;
}
