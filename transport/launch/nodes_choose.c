/* How node 0 chooses the nodes of a round: those that are left after a loss, those that have come, or all. */
#include "transport/launch/nodes_impl.h"

#include "engine/base/clock.h"
#include "engine/base/file.h"
#include "engine/base/log.h"

#include <stdio.h>
#include <stdlib.h>

enum { WINDOW_S = 3 }; /* in which another node may come, once there are enough */

/* ---- what is left ---- */

enum error nodes_suffice(int left, int least, const int *lost, int nlost, int servers) {
    for (int i = 0; i < nlost; i++)
        if (lost[i] < servers)
            return FAIL(ERR_PEER,
                        "rank %d is lost, a server, without which a part of the weights is missing\n"
                        "run.restarts starts all again",
                        lost[i]);
    if (!nlost)
        return FAIL(
            ERR_PEER,
            "no device is known to be lost, so the others cannot continue without it\nrun.restarts starts all again");
    if (left >= least) return ERR_NONE;
    return FAIL(ERR_PEER, "%d device%s left, and the run needs %d to go on (run.elastic.min)", left,
                left == 1 ? " is" : "s are", least);
}

/* All that node 0 hears to be lost: at most the ranks of the last round. */
struct lost_ranks {
    int *of, count;
};

static void lost_add(const struct nodes *n, struct lost_ranks *all, int rank) {
    if (all->count < n->world) all->of[all->count++] = rank;
}

/* Whether the node has said what it has left; that is then in at->locals, and added to the loss. */
static enum error node_hear(struct nodes *n, struct present *at, struct lost_ranks *all, bool *out) {
    char key[96], *text, *end, *next;
    size_t length;
    snprintf(key, sizeof key, "left/%s.%d", n->last, at->index);
    TRY(store_find(n->store, key, n->pool, &text, &length));
    *out = text != NULL;
    if (!text) return ERR_NONE;
    long locals = strtol(text, &end, 10);
    if (locals < 0 || locals > LOCALS_MAX) return FAIL(ERR_DATA, "the store's '%s' is '%.32s'", key, text);
    at->locals = (int)locals;
    for (; *end == ' '; end = next) {
        int rank = (int)strtol(end, &next, 10);
        if (next == end) break;
        lost_add(n, all, rank);
    }
    return ERR_NONE;
}

static void node_forget(const struct nodes *n, struct present *at, struct lost_ranks *all) {
    log_warn("node %d (%s) is lost, with its %d rank%s", at->index, at->who, at->locals, at->locals == 1 ? "" : "s");
    for (int k = 0; k < at->servers; k++) lost_add(n, all, at->first_server + k);
    for (int k = at->servers; k < at->locals; k++) lost_add(n, all, at->first + k - at->servers);
    at->locals = 0;
    at->gone = true;
}

/* A node whose connection has ended may be about to make another: it has a little time for that. */
static enum error nodes_hear_all(struct nodes *n, struct lost_ranks *all) {
    static const double GONE = 0.5;
    int64_t start = clock_ns();
    for (int i = 1; i < n->count; i++) {
        struct present *at = &n->at[i];
        for (bool here = false; !here && !at->gone;) {
            double waited = clock_seconds(clock_ns() - start);
            TRY(node_hear(n, at, all, &here));
            if (!here && (waited > n->p->patience || (waited > GONE && !store_sees(n->store, at->member))))
                node_forget(n, at, all);
            else if (!here)
                clock_nap(LOOK_NS);
        }
    }
    return ERR_NONE;
}

/* ---- who comes ---- */

/* One that has come, and is still here, is in the next round. */
static enum error comer_take(struct nodes *n, const char *key, struct pool *pool) {
    char *text;
    size_t length;
    struct present come = {.first = -1};
    int index = (int)strtol(key + strlen(NODES_COME), NULL, 10);
    if (index < 1 || index >= n->p->nodes_max) return ERR_NONE;
    for (int i = 0; i < n->count; i++)
        if (n->at[i].index == index && n->at[i].locals) return ERR_NONE;
    TRY(store_find(n->store, key, pool, &text, &length));
    if (!text || sscanf(text, "%llu %9d", &come.member, &come.locals) != 2) return ERR_NONE;
    if (!store_sees(n->store, come.member)) return store_delete(n->store, key);
    come.index = index;
    if (come.locals >= 1 && come.locals <= LOCALS_MAX && n->count < 2 * n->p->nodes_max) n->at[n->count++] = come;
    return ERR_NONE;
}

static enum error comers_take(struct nodes *n) {
    struct pool *pool; /* since it may be done again and again */
    char **keys;
    int count;
    TRY(pool_create(&pool));
    enum error err = store_list(n->store, NODES_COME, pool, &keys, &count);
    for (int i = 0; !err && i < count; i++) err = comer_take(n, keys[i], pool);
    pool_free(pool);
    return err;
}

static int nodes_count_here(const struct nodes *n) {
    int here = 0;
    for (int i = 0; i < n->count; i++) here += n->at[i].locals > 0;
    return here;
}

/* Those that came and are gone again before the round has begun. */
static void comers_drop_gone(struct nodes *n) {
    int kept = 0;
    for (int i = 0; i < n->count; i++)
        if (n->at[i].first >= 0 || store_sees(n->store, n->at[i].member)) n->at[kept++] = n->at[i];
    n->count = kept;
}

/* A node of the last round is still connected, and has not come for this one. */
static bool nodes_may_come(const struct nodes *n) {
    for (int i = 0; i < n->count; i++) {
        bool came = n->at[i].locals > 0;
        for (int k = 0; k < n->count && !came; k++) came = n->at[k].index == n->at[i].index && n->at[k].locals > 0;
        if (!came && store_sees(n->store, n->at[i].member)) return true;
    }
    return false;
}

/* Beside the nodes that it has: until as many have come as there may be, or until enough have and no other has
 * for a while. */
static enum error comers_await(struct nodes *n) {
    int least = n->p->nodes_min, most = n->p->nodes_max, here = 0;
    int64_t start = clock_ns(), newest = start;
    for (double told = FIRST_S - TELL_S;;) {
        int before = here;
        comers_drop_gone(n);
        TRY(comers_take(n));
        here = nodes_count_here(n);
        if (here > before) newest = clock_ns();
        double waited = clock_seconds(clock_ns() - start), quiet = clock_seconds(clock_ns() - newest);
        bool over = quiet > WINDOW_S && (waited > n->p->timeout || !nodes_may_come(n));
        if (here == most || (here >= least && over)) return ERR_NONE;
        if (here < least && waited > n->p->timeout)
            return FAIL(ERR_TIMEOUT,
                        "%d of at least %d nodes %s come within %.3g s\nhave all been started, with the same address?",
                        here, least, here == 1 ? "has" : "have", n->p->timeout);
        if (here < least && waited - told > TELL_S) {
            told = waited;
            log_info("waiting for nodes: %d of %d to %d have come (%.0f s)", here, least, most, waited);
        }
        clock_nap(LOOK_NS);
    }
}

/* ---- which nodes go on ---- */

static int order_by_index(const void *a, const void *b) {
    const struct present *x = a, *y = b;
    return (x->index > y->index) - (x->index < y->index);
}

/* " 0,2" or " +0,2", in the order of their numbers. */
static enum error nodes_list(struct nodes *n, bool whole, const char **out) {
    struct file_text t;
    TRY(file_text_open(&t));
    qsort(n->at, (size_t)n->count, sizeof *n->at, order_by_index);
    fputs(whole ? " +0" : " 0", t.out);
    for (int i = 0; i < n->count; i++)
        if (n->at[i].index && n->at[i].locals) fprintf(t.out, ",%d", n->at[i].index);
    *out = file_text_keep(&t, n->pool);
    return *out ? ERR_NONE : ERR_MEMORY;
}

/* Whether those that are left can go on. */
static enum error left_check(const struct nodes *n, int own, const struct lost_ranks *lost) {
    int left = own - n->p->all_servers, here = nodes_count_here(n);
    if (!own) return FAIL(ERR_PEER, "node 0, which keeps the checkpoints and the store, has no device left");
    for (int i = 1; i < n->count; i++) left += n->at[i].locals;
    TRY(nodes_suffice(left, n->p->least, lost->of, lost->count, n->p->all_servers));
    if (here >= n->p->nodes_min) return ERR_NONE;
    return FAIL(ERR_PEER, "%d node%s left, and the run needs %d to go on", here, here == 1 ? " is" : "s are",
                n->p->nodes_min);
}

/* All nodes start, or start again, with all their ranks. */
static enum error choose_all(struct nodes *n, const char **list) {
    *list = "";
    if (!nodes_flexible(n)) return ERR_NONE;
    TRY(comers_await(n));
    return nodes_list(n, true, list);
}

/* " 0,2", the nodes that go on; "" where all start again; or why none does. Where too few are left, those that wait are
 * taken in. */
static enum error choose_left(struct nodes *n, struct nodes_loss *loss, const char **list) {
    struct lost_ranks all = {.of = pool_alloc(n->pool, (size_t)n->world * sizeof *all.of)};
    if (!all.of) return ERR_MEMORY;
    for (int i = 0; i < loss->nlost; i++) lost_add(n, &all, loss->lost[i]);
    n->at[0].locals = loss->locals;
    TRY(nodes_hear_all(n, &all));
    loss->lost = all.of, loss->nlost = all.count;
    enum error err = loss->joins ? ERR_PEER : left_check(n, loss->locals, &all);
    if (err) TRY(comers_take(n));
    if (err && !loss->joins) err = left_check(n, loss->locals, &all);
    if (!err || loss->joins) return nodes_list(n, false, list);
    loss->nlost = 0;
    for (int i = 0; i < n->count; i++)
        if (!n->at[i].gone && !n->at[i].locals) n->at[i].locals = 1;
    if (loss->restarts) {
        log_error("%s", error_message());
        return choose_all(n, list);
    }
    *list = pool_printf(n->pool, "%s%s", NODES_END, error_message());
    return *list ? ERR_NONE : ERR_MEMORY;
}

enum error nodes_choose(struct nodes *n, struct nodes_loss *loss, const char **list) {
    if (loss) return choose_left(n, loss, list);
    for (int i = 0; i < n->count; i++) n->at[i].locals = 0; /* until it comes again */
    if (!n->count) n->count = 1;
    n->at[0].locals = 1;
    return choose_all(n, list);
}
