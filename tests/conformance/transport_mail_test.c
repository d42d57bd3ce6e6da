/* Messages by tags, over every link: which come where, whatever the order of sends and receives, and how they fail. */
#include "tests/harness/harness.h"

#include "engine/base/clock.h"
#include "engine/base/file.h"
#include "tests/conformance/ranks.h"
#include "tests/harness/timing.h"
#include "transport/algo/algo.h"
#include "transport/flight/recorder.h"

#include <fcntl.h>

enum { MESSAGES = 60, LARGEST = 50000 };

/* ---- a message, known to both ends: the n-th that 'from' sends 'to' ---- */

struct message {
    int64_t tag, count;
    enum dtype type;
};

static uint32_t mix(int from, int to, int n, uint32_t i) {
    uint32_t h = ((uint32_t)from * 16 + (uint32_t)to) * 4096 + (uint32_t)n;
    h = (h ^ i * 0x9e3779b9u) * 0x85ebca6bu;
    return h ^ h >> 15;
}

/* A few tags, so that many messages share one; some are empty, and some longer than a pipe. */
static struct message message_of(int from, int to, int n) {
    uint32_t h = mix(from, to, n, 7);
    return (struct message){.tag = (int64_t)(h % 9) - 4 + ((int64_t)(h % 9 == 8) << 40),
                            .count = n % 7 == 3    ? 0
                                     : n % 11 == 5 ? LARGEST - n
                                                   : (int64_t)(h / 16 % 300),
                            .type = (enum dtype)(h / 4096 % DTYPES)};
}

static void message_fill(int from, int to, int n, void *data, size_t bytes) {
    uint8_t *d = data;
    for (size_t i = 0; i < bytes; i++) d[i] = (uint8_t)mix(from, to, n, (uint32_t)i);
}

static void *message_data(int from, int to, int n) {
    struct message m = message_of(from, to, n);
    size_t bytes = (size_t)m.count * dtype_size(m.type);
    void *data = malloc(bytes + 1);
    message_fill(from, to, n, data, bytes);
    return data;
}

static bool message_is(int from, int to, int n, const void *got) {
    struct message m = message_of(from, to, n);
    void *want = message_data(from, to, n);
    bool same = memcmp(got, want, (size_t)m.count * dtype_size(m.type)) == 0;
    free(want);
    return same;
}

static void shuffle(int *order, int n, uint32_t seed) {
    for (int i = 0; i < n; i++) order[i] = i;
    for (int i = n - 1; i > 0; i--) {
        int j = (int)(mix(1, 2, (int)seed, (uint32_t)i) % (uint32_t)(i + 1)), t = order[i];
        order[i] = order[j], order[j] = t;
    }
}

/* ---- any order ---- */

/* Numbers its receives of one rank in an order that keeps those of one tag as they are sent. */
static void order_of_receives(int from, int to, uint32_t seed, int *order) {
    int tags[MESSAGES], n = 0;
    int64_t seen[MESSAGES];
    shuffle(tags, MESSAGES, seed);
    bool taken[MESSAGES] = {false};
    for (int i = 0; i < MESSAGES; i++) { /* a message of this one's tag: the first that is not taken */
        seen[i] = message_of(from, to, tags[i]).tag;
        int k = 0;
        while (taken[k] || message_of(from, to, k).tag != seen[i]) k++;
        taken[k] = true;
        order[n++] = k;
    }
}

/* Everybody sends everybody else MESSAGES, and receives each of them in another order; some are asked for before they can
 * have come, some after. Sums go on beside them. */
static void any_order(struct rank *r) {
    int world = r->of->world, me = r->index, n = 0, order[MESSAGES], waits[MAX_WORLD * MESSAGES];
    struct got {
        struct work *work;
        void *data;
        int from, number, source;
    } *got = calloc((size_t)world * MESSAGES, sizeof *got);
    struct work **posts = calloc((size_t)world * MESSAGES, sizeof *posts);
    void **sent = calloc((size_t)world * MESSAGES, sizeof *sent);
    int posted = 0;
    for (int phase = 0; phase < 2; phase++) {
        bool sends = phase == (me + 1) % 2; /* half of the ranks send first */
        for (int k = 0; sends && k < MESSAGES; k++)
            for (int to = 0; to < world; to++) {
                struct message m = message_of(me, to, k);
                if (to == me) continue;
                sent[posted] = message_data(me, to, k);
                check_ok(group_post(r->group, &(struct group_message){sent[posted], m.count, m.type, to, m.tag},
                                    &posts[posted]));
                posted++;
            }
        for (int from = 0; !sends && from < world; from++) {
            if (from == me) continue;
            order_of_receives(from, me, (uint32_t)(from * 31 + me), order);
            for (int k = 0; k < MESSAGES; k++) {
                struct message m = message_of(from, me, order[k]);
                struct got *g = &got[n++];
                *g = (struct got){
                    .data = malloc((size_t)m.count * dtype_size(m.type) + 1), .from = from, .number = order[k]};
                check_ok(group_take(
                    r->group, &(struct group_message){g->data, m.count, m.type, from, m.tag, &g->source}, &g->work));
            }
        }
        float sum = (float)me;
        check_ok(group_all_reduce(r->group, GROUP_INLINE, &sum, 1, DTYPE_F32, REDOP_SUM));
        check(sum == (float)(world * (world - 1) / 2), "the sum beside them is %g", (double)sum);
    }
    shuffle(waits, n, (uint32_t)me);
    for (int i = 0; i < n; i++) {
        struct got *g = &got[waits[i]];
        check_ok(work_wait(g->work));
        check(g->source == g->from, "a message of rank %d came from rank %d", g->from, g->source);
        check(message_is(g->from, me, g->number, g->data), "message %d of rank %d", g->number, g->from);
        free(g->data);
    }
    for (int i = 0; i < posted; i++) {
        check_ok(work_wait(posts[i]));
        free(sent[i]);
    }
    free(got);
    free(posts);
    free(sent);
    check_ok(group_barrier(r->group));
}

/* ---- from anybody ---- */

/* Rank 0 receives from any; another tag's messages wait for their turn. */
static void from_anybody(struct rank *r) {
    enum { EACH = 50 };
    int world = r->of->world, next[MAX_WORLD] = {0}, other = -1, source = -1;
    struct work *w;
    for (int i = 0; r->index > 0 && i < EACH; i++) {
        int64_t value = r->index * 1000 + i;
        check_ok(group_post(r->group, &(struct group_message){&value, 1, DTYPE_I64, 0, 5}, &w));
        check_ok(work_wait(w));
    }
    if (r->index == world - 1) {
        int32_t last = 77;
        check_ok(group_post(r->group, &(struct group_message){&last, 1, DTYPE_I32, 0, 6}, &w));
        check_ok(work_wait(w));
    }
    if (r->index == 0) {
        check_ok(group_take(r->group, &(struct group_message){&other, 1, DTYPE_I32, GROUP_ANY, 6, &source}, &w));
        check_ok(work_wait(w));
        check(other == 77 && source == world - 1, "%d from %d", other, source);
    }
    for (int i = 0; r->index == 0 && i < EACH * (world - 1); i++) {
        int64_t value = 0;
        check_ok(group_take(r->group, &(struct group_message){&value, 1, DTYPE_I64, GROUP_ANY, 5, &source}, &w));
        check_ok(work_wait(w));
        check(source > 0 && value == source * 1000 + next[source]++, "%lld from %d", (long long)value, source);
    }
    check_ok(group_barrier(r->group));
}

/* ---- at once, and late ---- */

enum { BIG = 4 << 20 };

/* Both send before either receives, more than any pipe holds. */
static void both_at_once(struct rank *r) {
    int peer = r->index ^ 1;
    int32_t *mine = malloc(BIG * sizeof *mine), *theirs = calloc(BIG, sizeof *theirs);
    struct work *w;
    for (int i = 0; i < BIG; i++) mine[i] = i * 3 + r->index;
    check_ok(group_post(r->group, &(struct group_message){mine, BIG, DTYPE_I32, peer, 1}, &w));
    check_ok(work_wait(w));
    check_ok(group_barrier(r->group)); /* late: all of it has come */
    check_ok(group_take(r->group, &(struct group_message){theirs, BIG, DTYPE_I32, peer, 1}, &w));
    check_ok(work_wait(w));
    bool right = true;
    for (int i = 0; i < BIG; i++) right = right && theirs[i] == i * 3 + peer;
    check(right, "what came");
    free(mine);
    free(theirs);
    check_ok(group_barrier(r->group));
}

/* 320 MB come before anybody asks for them. */
static void much_is_kept(struct rank *r) {
    enum { EACH = 64 << 20, PARTS = 5 };
    uint8_t *part = malloc(EACH), last = 9;
    struct work *w;
    for (int i = 0; r->index && i < PARTS; i++) {
        memset(part, i + 1, EACH);
        check_ok(group_post(r->group, &(struct group_message){part, EACH, DTYPE_U8, 0, 40 + i}, &w));
        check_ok(work_wait(w));
    }
    if (r->index)
        check_ok(group_post(r->group, &(struct group_message){&last, 1, DTYPE_U8, 0, 3}, &w));
    else
        check_ok(group_take(r->group, &(struct group_message){&last, 1, DTYPE_U8, 1, 3}, &w));
    check_ok(work_wait(w));
    for (int i = 0; !r->index && i < PARTS; i++) {
        check_ok(group_take(r->group, &(struct group_message){part, EACH, DTYPE_U8, 1, 40 + i}, &w));
        check_ok(work_wait(w));
        check(part[0] == i + 1 && part[EACH - 1] == i + 1, "part %d begins with %d", i, part[0]);
    }
    free(part);
}

/* What was sent before the sender has left is received after. */
static void left_behind(struct rank *r) {
    int64_t value = 4711;
    struct work *w;
    if (r->index) {
        check_ok(group_post(r->group, &(struct group_message){&value, 1, DTYPE_I64, 0, 3}, &w));
        check_ok(work_wait(w));
        group_close(r->group);
        r->group = NULL;
        return;
    }
    nap(0.2);
    value = 0;
    check_ok(group_take(r->group, &(struct group_message){&value, 1, DTYPE_I64, 1, 3}, &w));
    check_ok(work_wait(w));
    check(value == 4711, "%lld", (long long)value);
}

/* ---- bytes, subgroups, ports ---- */

static void counted(struct rank *r) {
    char data[1000] = {0};
    struct group_stats before, after;
    struct work *w;
    group_get_stats(r->group, &before);
    check_ok(group_barrier(r->group));
    if (r->index) {
        check_ok(group_post(r->group, &(struct group_message){data, 1000, DTYPE_U8, 0, 1}, &w));
        check_ok(work_wait(w));
        check_ok(group_post(r->group, &(struct group_message){data, 0, DTYPE_U8, 0, 2}, &w));
    } else {
        check_ok(group_take(r->group, &(struct group_message){data, 0, DTYPE_U8, 1, 2}, &w));
        check_ok(work_wait(w));
        check_ok(group_take(r->group, &(struct group_message){data, 1000, DTYPE_U8, 1, 1}, &w));
    }
    check_ok(work_wait(w));
    group_get_stats(r->group, &after);
    check(after.sent - before.sent == (r->index ? 1000 : 0), "sent %lld", (long long)(after.sent - before.sent));
    check(after.received - before.received == (r->index ? 0 : 1000), "received %lld",
          (long long)(after.received - before.received));
    check(after.collectives - before.collectives == 3, /* the barrier, too */ "%lld calls",
          (long long)(after.collectives - before.collectives));
    check_ok(group_barrier(r->group));
}

static void in_subgroups(struct rank *r) {
    struct group *g = NULL;
    int32_t mine = 10 + r->index, theirs = 0;
    int source = -1;
    struct work *w, *v;
    check_ok(group_split(r->group, r->index % 2, -r->index, &g));
    if (!g) return;
    int peer = 1 - group_rank(g); /* two in each, numbered downwards */
    check_ok(group_take(g, &(struct group_message){&theirs, 1, DTYPE_I32, GROUP_ANY, 0, &source}, &w));
    check_ok(group_post(g, &(struct group_message){&mine, 1, DTYPE_I32, peer, 0}, &v));
    check_ok(work_wait(v));
    check_ok(work_wait(w));
    check(source == peer && theirs == 10 + (r->index + 2) % 4, "%d from %d", theirs, source);
    check_ok(group_barrier(g));
    group_close(g);
    check_ok(group_barrier(r->group));
}

enum { PASSED = 1000000 };
static const struct emulation port = {.bandwidth = 20e6, .latency = 5e-3}; /* 50 ms for PASSED */

/* Two send to rank 0, whose port passes one after the other. */
static void through_ports(struct rank *r) {
    char *data = calloc(2, PASSED);
    struct work *w[2];
    int64_t began = clock_ns(); /* rank 0 may be the last that the barrier lets go */
    check_ok(group_barrier(r->group));
    if (r->index) {
        began = clock_ns();
        check_ok(group_post(r->group, &(struct group_message){data, PASSED, DTYPE_U8, 0, 1}, &w[0]));
        check_ok(work_wait(w[0]));
        double took = clock_seconds(clock_ns() - began);
        check(took >= 0.049, "a send took %g s", took);
    } else {
        for (int i = 0; i < 2; i++)
            check_ok(group_take(r->group, &(struct group_message){data + i * PASSED, PASSED, DTYPE_U8, GROUP_ANY, 1},
                                &w[i]));
        for (int i = 0; i < 2; i++) check_ok(work_wait(w[i]));
        double took = clock_seconds(clock_ns() - began);
        check(took >= 0.104, "two took %g s", took);
    }
    free(data);
    check_ok(group_barrier(r->group));
}

/* ---- failures ---- */

static void wait_to_fail(struct rank *r, int peer) {
    int64_t value = 0;
    struct work *w;
    enum error err = group_take(r->group, &(struct group_message){&value, 1, DTYPE_I64, peer, 9}, &w);
    rank_result(r, err ? err : work_wait(w));
}

static void leave(struct rank *r) {
    group_close(r->group);
    r->group = NULL;
}

static void sender_leaves(struct rank *r) {
    if (r->index == 1) return leave(r);
    wait_to_fail(r, r->index ? 0 : 1);
    check(r->err == ERR_PEER, "error %d", (int)r->err);
    check(strstr(r->message, "rank 1 has left; rank 0 waits for it in recv from rank 1, tag 9 (8 B)"), "%s",
          r->message);
}

/* Rank 1 leaves, while rank 2 goes on to send what rank 0 has asked for already. */
static void sender_leaves_among_others(struct rank *r) {
    enum { SENT = 60 };
    struct work *w[SENT];
    int64_t got[SENT], began = clock_ns();
    if (r->index == 1) return leave(r);
    for (int i = 0; r->index == 0 && i < SENT; i++)
        check_ok(group_take(r->group, &(struct group_message){&got[i], 1, DTYPE_I64, 2, 1}, &w[i]));
    for (int i = 0; r->index == 2 && i < SENT; i++) {
        nap(0.05);
        if (group_post(r->group, &(struct group_message){&(int64_t){i}, 1, DTYPE_I64, 0, 1}, w) != ERR_NONE ||
            work_wait(w[0]) != ERR_NONE)
            return;
    }
    if (r->index) return;
    wait_to_fail(r, 1);
    check(r->err == ERR_PEER && strstr(r->message, "rank 1 has left"), "%s", r->message);
    check(clock_seconds(clock_ns() - began) < timing_limit(1.5), "only after %g s", clock_seconds(clock_ns() - began));
}

/* Whoever only asks whether a receive has ended learns that it never will. */
static void asked_in_vain(struct rank *r) {
    int64_t value = 0, began = clock_ns();
    struct work *w;
    if (r->index == 1) return leave(r);
    check_ok(group_take(r->group, &(struct group_message){&value, 1, DTYPE_I64, 1, 9}, &w));
    while (!work_done(w) && clock_seconds(clock_ns() - began) < 10) nap(0.01);
    check(work_done(w), "after 10 s");
    rank_result(r, work_wait(w));
    check(r->err == ERR_PEER && strstr(r->message, "rank 1 has left"), "%s", r->message);
}

static void all_leave(struct rank *r) {
    if (r->index) return leave(r);
    wait_to_fail(r, GROUP_ANY);
    check(r->err == ERR_PEER, "error %d", (int)r->err);
    check(strstr(r->message, "every other rank has left; rank 0 waits for it in recv from any rank, tag 9 (8 B)"), "%s",
          r->message);
}

static void nobody_sends(struct rank *r) {
    wait_to_fail(r, r->index ? 0 : GROUP_ANY);
    check(r->err == ERR_TIMEOUT, "error %d", (int)r->err);
    check(strstr(r->message, "has waited 0.5 s in recv from "), "%s", r->message);
}

static void somebody_aborts(struct rank *r) {
    if (r->index == 1) {
        nap(0.05);
        group_abort(r->group, "out of coffee");
    }
    wait_to_fail(r, r->index == 2 ? GROUP_ANY : 2);
    check(r->err == ERR_PEER && strstr(r->message, "rank 1: out of coffee"), "%s", r->message);
}

/* The receive comes first, or the message. */
static void kinds_differ(struct rank *r) {
    float three[3] = {0};
    double four[4] = {0};
    struct work *w = NULL;
    bool early = *(const bool *)r->of->user;
    if (r->index == 1 && !early) nap(0.05);
    if (r->index == 0 && early) nap(0.05);
    enum error err = r->index ? group_post(r->group, &(struct group_message){three, 3, DTYPE_F32, 0, 2}, &w)
                              : group_take(r->group, &(struct group_message){four, 4, DTYPE_F64, 1, 2}, &w);
    if (!err) err = work_wait(w);
    if (!err) err = group_barrier(r->group);
    rank_result(r, err);
    check(r->err == ERR_MISMATCH, "error %d", (int)r->err);
    check(strstr(r->message, "rank 1 called send(f32, 3) where rank 0 called recv(f64, 4)"), "%s", r->message);
}

static void impossible(struct rank *r) {
    char c = 0;
    struct work *w;
    int bad = *(const int *)r->of->user;
    if (r->index) {
        rank_result(r, group_barrier(r->group));
    } else {
        int peer = bad == 0 ? 0 : bad == 1 ? GROUP_ANY : 1;
        rank_result(r, bad == 2 ? group_take(r->group, &(struct group_message){&c, -1, DTYPE_U8, peer, 0}, &w)
                                : group_post(r->group, &(struct group_message){&c, 1, DTYPE_U8, peer, 0}, &w));
    }
    check(r->err == ERR_BUG, "error %d: %s", (int)r->err, r->message);
}

/* ---- what is recorded ---- */

enum { KEPT = 64, PASSING = 2000, LONG_TAG = 9, SHORT_TAG = 8, GO_TAG = 1 };
static struct recorder *recorders[MAX_WORLD];

static void message_pass(struct rank *r, bool send, int peer, int64_t tag) {
    int64_t value = tag;
    struct work *w;
    check_ok(send ? group_post(r->group, &(struct group_message){&value, 1, DTYPE_I64, peer, tag}, &w)
                  : group_take(r->group, &(struct group_message){&value, 1, DTYPE_I64, peer, tag}, &w));
    check_ok(work_wait(w));
}

struct waiter {
    pthread_t thread;
    struct work *work;
    int64_t value;
};

static void *waiter_run(void *arg) {
    return work_wait(((struct waiter *)arg)->work) ? arg : NULL;
}

static void waiter_start(struct rank *r, int64_t tag, struct waiter *w) {
    check_ok(group_take(r->group, &(struct group_message){&w->value, 1, DTYPE_I64, 1, tag}, &w->work));
    check(pthread_create(&w->thread, NULL, waiter_run, w) == 0, "no thread");
}

static void waiter_end(struct rank *r, int64_t tag, struct waiter *w) {
    void *failed;
    pthread_join(w->thread, &failed);
    check(!failed && w->value == tag, "%lld", (long long)w->value);
}

static const char *recorded_path(const struct rank *r, int rank, char out[600]) {
    snprintf(out, 600, "%s.%d", (const char *)r->of->user, rank);
    return out;
}

static void read_record(struct rank *r, struct pool **pool, struct recording *out) {
    char path[600];
    check_ok(pool_create(pool));
    check_ok(recording_read(recorded_path(r, r->index, path), *pool, out));
}

/* Until the rank's recording says that it waits for the tag (0: for none). Other receives may be shown for a moment. */
static void await_record(struct rank *r, int64_t tag) {
    int64_t end = clock_ns() + 20000000000;
    bool there = false;
    while (!there && clock_ns() < end) {
        struct recording got = {0};
        struct pool *pool;
        int open = 0;
        read_record(r, &pool, &got);
        for (int i = 0; i < got.ncalls; i++)
            if (got.calls[i].call.lane == LANE_IN && !got.calls[i].ended) there = got.calls[i].call.tag == tag, open++;
        check(open <= 1, "%d receives are waited for", open);
        there = there || (tag == 0 && open == 0);
        pool_free(pool);
    }
    check(there, "the recording does not say that tag %lld is waited for", (long long)tag);
}

/* Rank 1 sends what nobody waits for any more, then what two threads of rank 0 wait for. */
static void recorded_sender(struct rank *r) {
    struct recording got = {0};
    struct pool *pool;
    int n = 0;
    message_pass(r, false, 0, GO_TAG);
    for (int i = 0; i < PASSING; i++) message_pass(r, true, 0, 100 + i);
    message_pass(r, false, 0, GO_TAG);
    message_pass(r, true, 0, LONG_TAG);
    message_pass(r, false, 0, GO_TAG);
    message_pass(r, true, 0, SHORT_TAG);
    check_ok(group_barrier(r->group));
    read_record(r, &pool, &got);
    for (int i = 0; i < got.ncalls; i++) {
        const struct recording_call *c = &got.calls[i];
        if (c->call.lane != LANE_OUT) continue;
        int64_t tag = n < KEPT - 2 ? 100 + PASSING - KEPT + 2 + n : n == KEPT - 2 ? LONG_TAG : SHORT_TAG;
        check(c->call.kind == KIND_SEND && c->call.peer == 0 && c->call.tag == tag && c->call.count == 1 &&
                  c->bytes == 8,
              "message %d: kind %d to %d with tag %lld", n, c->call.kind, c->call.peer, (long long)c->call.tag);
        check(c->ended >= c->began && !c->error && c->number == PASSING + 2 - KEPT + n, "message %d", n);
        n++;
    }
    check(n == KEPT, "%d messages are recorded", n);
    pool_free(pool);
}

/* Rank 0 waits for one tag for long, while others' messages come, and for another for shorter. */
static void recorded_receiver(struct rank *r) {
    struct waiter longer, shorter;
    struct recording_call calls[KEPT];
    int64_t value = 0, early = clock_ns();
    struct work *w;
    check_ok(group_take(r->group, &(struct group_message){&value, 1, DTYPE_I64, 1, 77},
                        &w)); /* asked for, and never waited for */
    waiter_start(r, LONG_TAG, &longer);
    await_record(r, LONG_TAG);
    message_pass(r, true, 1, GO_TAG);
    for (int i = 0; i < PASSING; i++) message_pass(r, false, i % 2 ? 1 : GROUP_ANY, 100 + i);
    int n = recorder_recall(recorders[0], LANE_IN, 0, calls, KEPT);
    check(n == KEPT, "%d are kept", n);
    for (int i = 0; i < n; i++) {
        const struct recording_call *c = &calls[i];
        check(c->call.kind == KIND_RECV && c->call.peer == 1 && c->call.tag == 100 + PASSING - KEPT + i &&
                  c->bytes == 8,
              "receive %d: from %d with tag %lld", i, c->call.peer, (long long)c->call.tag);
        check(c->began >= early && c->ended >= c->began, "receive %d lasted %lld ns", i,
              (long long)(c->ended - c->began));
    }
    waiter_start(r, SHORT_TAG, &shorter);
    nap(0.05);
    await_record(r, LONG_TAG);
    message_pass(r, true, 1, GO_TAG);
    waiter_end(r, LONG_TAG, &longer);
    await_record(r, SHORT_TAG);
    message_pass(r, true, 1, GO_TAG);
    waiter_end(r, SHORT_TAG, &shorter);
    await_record(r, 0);
    check(!recorder_failed(recorders[0]), "recorded as failed");
    check_ok(group_barrier(r->group));
}

static void recorded(struct rank *r) {
    r->index ? recorded_sender(r) : recorded_receiver(r);
}

/* ---- over every link ---- */

static void run_over_all(struct ranks p) {
    int links;
    const struct link_ops *const *link = link_kinds(&links);
    p.mail = true;
    for (int l = 0; l < links; l++) {
        if (link[l]->row->launched) continue;
        p.link = link[l]->row->name;
        run_ranks(p, NULL);
    }
}

#define OVER_ALL(name, ...)                                                                                            \
    static void name##_over_all(void **state) {                                                                        \
        (void)state;                                                                                                   \
        run_over_all((struct ranks){.fn = name, __VA_ARGS__});                                                         \
    }
OVER_ALL(any_order, .world = 3)
OVER_ALL(from_anybody, .world = 3)
OVER_ALL(both_at_once, .world = 2)
OVER_ALL(left_behind, .world = 2)
OVER_ALL(counted, .world = 2)
OVER_ALL(in_subgroups, .world = 4)
OVER_ALL(sender_leaves, .world = 2)
OVER_ALL(sender_leaves_among_others, .world = 3)
OVER_ALL(asked_in_vain, .world = 2)
OVER_ALL(all_leave, .world = 3)
OVER_ALL(nobody_sends, .world = 2, .timeout = 0.5)
OVER_ALL(somebody_aborts, .world = 3)

static void more_ranks(void **state) {
    (void)state;
    run_over_all((struct ranks){.fn = any_order, .world = 5});
    run_over_all((struct ranks){.fn = any_order, .world = 3, .emulate = {.bandwidth = 1e9, .latency = 1e-5}});
}

/* Runs fn over every link with a recording of each of two ranks. */
static void run_recorded(void (*fn)(struct rank *r), const void *user, bool fails) {
    static const char *const links[] = {"thread", "shm", "tcp"};
    for (int l = 0; l < 3; l++) {
        char path[2][600], base[550];
        snprintf(base, sizeof base, "%s", scratch_path("mail.bin"));
        for (int i = 0; i < 2; i++) {
            snprintf(path[i], sizeof path[i], "%s.%d", base, i);
            assert_ok(recorder_open(
                &(struct recorder_params){.path = path[i], .rank = i, .size = 2, .calls = KEPT, .mail = true},
                &recorders[i]));
        }
        run_ranks((struct ranks){.fn = fn,
                                 .world = 2,
                                 .mail = true,
                                 .link = links[l],
                                 .timeout = fails ? 0.5 : 0,
                                 .recorders = recorders,
                                 .user = user ? user : base},
                  NULL);
        assert_int_equal(recorder_failed(recorders[0]), fails);
        for (int i = 0; i < 2; i++) recorder_close(recorders[i], true);
    }
}

static void messages_are_recorded(void **state) {
    (void)state;
    run_recorded(recorded, NULL, false);
}

static void nobody_sends_it(struct rank *r) {
    if (r->index) return nap(0.7);
    wait_to_fail(r, 1);
}

/* What fails is recorded, so that the group counts as failed: a receive in vain, and one of another type. */
static void failures_are_recorded(void **state) {
    (void)state;
    run_recorded(nobody_sends_it, NULL, true);
    for (int i = 0; i < 2; i++) run_recorded(kinds_differ, &(bool){i == 1}, true);
}

static void ports_are_passed(void **state) {
    static const char *const links[] = {"thread", "shm", "tcp"};
    (void)state;
    for (int i = 0; i < 3; i++)
        run_ranks((struct ranks){.fn = through_ports, .world = 3, .mail = true, .link = links[i], .emulate = port},
                  NULL);
}

static void what_is_kept_is_told(void **state) {
    struct pool *pool;
    char path[600], *text;
    size_t size;
    (void)state;
    snprintf(path, sizeof path, "%s", scratch_path("kept.log"));
    int err = dup(STDERR_FILENO), told = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600);
    assert_true(err >= 0 && told >= 0 && dup2(told, STDERR_FILENO) >= 0);
    run_ranks((struct ranks){.fn = much_is_kept, .world = 2, .mail = true, .link = "shm"}, NULL);
    assert_true(dup2(err, STDERR_FILENO) >= 0);
    close(err);
    close(told);
    assert_ok(pool_create(&pool));
    assert_ok(file_read(path, 1 << 16, pool, &text, &size));
    const char *warning = strstr(text, "rank 0 keeps 256.0 MB of messages ");
    assert_non_null(warning);
    assert_non_null(strstr(warning, "rank 1's with tag 43\n"));
    assert_null(strstr(warning + 1, "rank 0 keeps")); /* it is said once */
    pool_free(pool);
}

/* Nobody asks for what rank 1 sends. */
static void too_much_is_kept(struct rank *r) {
    static char part[1000];
    int64_t size = *(const int64_t *)r->of->user;
    enum error err = ERR_NONE;
    struct work *w;
    for (int i = 0; r->index && !err && i < 10000; i++) {
        err = group_post(r->group, &(struct group_message){part, size, DTYPE_U8, 0, i}, &w);
        if (!err) err = work_wait(w);
    }
    if (!err) err = group_take(r->group, &(struct group_message){part, 1, DTYPE_U8, !r->index, -1}, &w);
    rank_result(r, err ? err : work_wait(w));
}

static void what_is_kept_has_a_limit(void **state) {
    int links;
    const struct link_ops *const *link = link_kinds(&links);
    (void)state;
    for (int l = 0; l < links; l++)
        for (int64_t size = 0; size <= 1000 && !link[l]->row->launched; size += 1000) { /* empty ones cost, too */
            struct rank r[2];
            run_ranks((struct ranks){.fn = too_much_is_kept,
                                     .world = 2,
                                     .mail = true,
                                     .link = link[l]->row->name,
                                     .kept = 100000,
                                     .user = &size},
                      r);
            for (int i = 0; i < 2; i++) {
                if (r[i].err != ERR_MEMORY) fail_msg("%s: %s", link[l]->row->name, r[i].message);
                assert_non_null(strstr(r[i].message, "rank 0 would keep "));
                assert_non_null(strstr(r[i].message, size ? "at most 97.7 KB; the last one is rank 1's with tag 9"
                                                          : "at most 97.7 KB; the last one is rank 1's with tag "));
            }
        }
}

static void kinds_that_differ(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) run_over_all((struct ranks){.fn = kinds_differ, .world = 2, .user = &(bool){i == 1}});
}

static void what_is_refused(void **state) {
    (void)state;
    for (int i = 0; i < 3; i++)
        run_ranks((struct ranks){.fn = impossible, .world = 2, .mail = true, .link = "thread", .user = &i}, NULL);
    run_ranks((struct ranks){.fn = impossible, .world = 2, .link = "thread", .user = &(int){3}},
              NULL); /* without mail */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_order_over_all),
        cmocka_unit_test(more_ranks),
        cmocka_unit_test(from_anybody_over_all),
        cmocka_unit_test(both_at_once_over_all),
        cmocka_unit_test(left_behind_over_all),
        cmocka_unit_test(counted_over_all),
        cmocka_unit_test(in_subgroups_over_all),
        cmocka_unit_test(ports_are_passed),
        cmocka_unit_test(sender_leaves_over_all),
        cmocka_unit_test(all_leave_over_all),
        cmocka_unit_test(nobody_sends_over_all),
        cmocka_unit_test(somebody_aborts_over_all),
        cmocka_unit_test(kinds_that_differ),
        cmocka_unit_test(what_is_refused),
        cmocka_unit_test(messages_are_recorded),
        cmocka_unit_test(failures_are_recorded),
        cmocka_unit_test(what_is_kept_is_told),
        cmocka_unit_test(what_is_kept_has_a_limit),
        cmocka_unit_test(sender_leaves_among_others_over_all),
        cmocka_unit_test(asked_in_vain_over_all),
    };
    return cmocka_run_group_tests_name("messages by tags", tests, NULL, NULL);
}
