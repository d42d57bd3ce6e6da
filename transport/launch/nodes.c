/* Rounds: node 0 writes the name of each under "round", others look for a name that they do not
 * know. The name holds a random part, so that a store which a new node 0 keeps is not taken for the
 * old one. Once all have met, "met/NAME" says so: who comes later has missed the round.
 *
 * Where fewer devices are enough, each node of the round that failed first writes "left/NAME.NODE": how many ranks it
 * can still start, and which of them were lost. Node 0 waits for that from all whom it does not know to be lost (their
 * connection has ended, or they say nothing for too long), and then writes after the next round's name which nodes are
 * in it ("NAME 0,2"; all are, where it names none), or instead of a name why there is no other round ("end ..."). A node
 * that is in none writes "come/NODE", and waits for one that it is in. */
#include "transport/launch/nodes.h"

#include "engine/base/clock.h"
#include "engine/base/limits.h"
#include "engine/base/log.h"
#include "engine/base/process.h"
#include "transport/launch/token.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

enum { ROUND = 512 }; /* bytes of what stands under "round" */
struct present {      /* a node of the round that this one was in last */
    int index, first, locals;
    unsigned long long member; /* of the store */
};
struct nodes {
    const struct nodes_params *p;
    struct pool *pool; /* of the round */
    struct store *store;
    char url[320];
    uint32_t instance;
    int rounds;
    char last[64]; /* round that this node was in */
    struct present at[RANKS_MAX];
    int count, own; /* of them; which this one is */
};

enum error nodes_master(const char *text, int64_t port, struct pool *pool, const char **out) {
    const char *colon = strchr(text, ':'), *end = strchr(text, ']');
    bool six = colon && strchr(colon + 1, ':') && *text != '[';
    bool told = end ? end[1] == ':' : colon && !six;
    *out = told ? text : pool_printf(pool, six ? "[%s]:%lld" : "%s:%lld", text, (long long)port);
    return *out ? ERR_NONE : ERR_MEMORY;
}

enum error nodes_token(const char *spec, int count, struct pool *pool, const char **out) {
    TRY(nodes_secret(spec, count, pool, out));
    token_forget(spec); /* ranks are told what has been found */
    return **out ? ERR_NONE : token_random(pool, out);
}

enum error nodes_secret(const char *spec, int count, struct pool *pool, const char **out) {
    TRY(token_find(spec, pool, out));
    if (**out || count == 1) return ERR_NONE;
    return FAIL(ERR_CONFIG, "several hosts need a secret in common: run.token, or ENGINE_TOKEN\nexport "
                            "ENGINE_TOKEN=$(openssl rand -hex 16) on each; run.token: none lets anybody join");
}

enum { LOOK_MS = 50, TRY_S = 2, TELL_S = 5 };

enum error nodes_open(const struct nodes_params *p, struct nodes **out) {
    void *memory;
    TRY(memory_alloc(sizeof(struct nodes), &memory));
    struct nodes *n = memory;
    n->p = p;
    if (getrandom(&n->instance, sizeof n->instance, 0) != sizeof n->instance) n->instance = (uint32_t)clock_ns();
    snprintf(n->url, sizeof n->url, "tcp://%s", p->master ? p->master : "127.0.0.1:0");
    *out = n;
    return ERR_NONE;
}

void nodes_close(struct nodes *n) {
    if (!n) return;
    store_close(n->store);
    pool_free(n->pool);
    memory_free(n);
}

static enum error open_store(struct nodes *n, double timeout) {
    if (n->store) return ERR_NONE;
    struct store_params p = {.url = n->url, .serve = n->p->index == 0, .token = n->p->token, .timeout = timeout};
    return store_open(&p, &n->store);
}

/* ---- what is left ---- */

static const char END[] = "end ";

static bool is_end(const char *text) {
    return !strncmp(text, END, strlen(END));
}

enum error nodes_suffice(int left, int lost, int least) {
    if (!lost)
        return FAIL(
            ERR_PEER,
            "no device is known to be lost, so the others cannot continue without it\nrun.restarts starts all again");
    if (left >= least) return ERR_NONE;
    return FAIL(ERR_PEER, "%d device%s left, and the run needs %d to go on (run.elastic.min)", left,
                left == 1 ? " is" : "s are", least);
}

/* "2 5 7": two ranks can be started, ranks 5 and 7 were lost. */
static enum error tell_loss(struct nodes *n, const struct nodes_loss *loss) {
    char key[96], text[ROUND];
    size_t used = (size_t)snprintf(text, sizeof text, "%d", loss->locals);
    for (int i = 0; i < loss->nlost; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, " %d", loss->lost[i]);
    snprintf(key, sizeof key, "left/%s.%d", n->last, n->p->index);
    return store_set(n->store, key, text, used);
}

static void add_lost(struct nodes_loss *all, int rank) {
    if (all->nlost < RANKS_MAX) all->lost[all->nlost++] = rank;
}

/* Whether the node has said what it has left; that is then in at->locals, and added to the loss. */
static enum error node_heard(struct nodes *n, struct present *at, struct nodes_loss *all, bool *out) {
    char key[96], *text, *end;
    size_t length;
    snprintf(key, sizeof key, "left/%s.%d", n->last, at->index);
    TRY(store_find(n->store, key, n->pool, &text, &length));
    *out = text != NULL;
    if (!text) return ERR_NONE;
    at->locals = (int)strtol(text, &end, 10);
    for (; *end == ' '; all->partial++) add_lost(all, (int)strtol(end, &end, 10));
    return at->locals >= 0 && at->locals <= RANKS_MAX ? ERR_NONE
                                                      : FAIL(ERR_DATA, "the store's '%s' is '%.32s'", key, text);
}

static void node_forget(struct present *at, struct nodes_loss *all) {
    for (int k = 0; k < at->locals; k++) add_lost(all, at->first + k);
    at->locals = 0;
}

/* A node whose connection has ended may be about to make another: it has a little time for that. */
static enum error await_others(struct nodes *n, struct nodes_loss *all) {
    static const double GONE = 0.5;
    int64_t start = clock_ns();
    for (int i = 1; i < n->count; i++) {
        struct present *at = &n->at[i];
        for (bool here = false; !here;) {
            double waited = clock_seconds(clock_ns() - start);
            TRY(node_heard(n, at, all, &here));
            if (here) break;
            if (waited > n->p->patience || (waited > GONE && !store_sees(n->store, at->member))) {
                node_forget(at, all);
                break;
            }
            nanosleep(&(struct timespec){.tv_nsec = LOOK_MS * 1000000}, NULL);
        }
    }
    return ERR_NONE;
}

/* ---- who comes back ---- */

static const char COME[] = "come/";

/* This node waits to be taken in, or has been. */
static enum error tell_come(struct nodes *n, bool waits) {
    char key[32], text[32];
    int length = snprintf(text, sizeof text, "%llu", (unsigned long long)store_member(n->store));
    snprintf(key, sizeof key, "%s%d", COME, n->p->index);
    return waits ? store_set(n->store, key, text, (size_t)length) : store_delete(n->store, key, NULL);
}

/* Node 0: one that has come, and is still here, is in the next round. */
static enum error take_in(struct nodes *n, const char *key) {
    char *text;
    size_t length;
    int index = atoi(key + strlen(COME));
    bool known = index < 1 || index >= n->p->count || n->count == RANKS_MAX;
    TRY(store_find(n->store, key, n->pool, &text, &length));
    for (int i = 0; i < n->count; i++) known = known || (n->at[i].index == index && n->at[i].locals);
    if (!text || known) return ERR_NONE;
    if (!store_sees(n->store, strtoull(text, NULL, 10))) return store_delete(n->store, key, NULL);
    n->at[n->count++] = (struct present){.index = index, .locals = 1};
    return ERR_NONE;
}

static enum error take_all_in(struct nodes *n) {
    char **keys;
    int count;
    TRY(store_list(n->store, COME, n->pool, &keys, &count));
    for (int i = 0; i < count; i++) TRY(take_in(n, keys[i]));
    return ERR_NONE;
}

bool nodes_wait(struct store *s) {
    struct pool *pool;
    char **keys;
    int count = 0;
    if (!s || pool_create(&pool) != ERR_NONE) return false;
    if (store_list(s, COME, pool, &keys, &count) != ERR_NONE) count = 0;
    pool_free(pool);
    return count > 0;
}

/* ---- which nodes go on ---- */

/* " 0,2", in the order of their numbers. */
static void list_nodes(const struct nodes *n, char list[ROUND]) {
    size_t used = (size_t)snprintf(list, ROUND, " 0");
    for (int index = 1; index < n->p->count; index++)
        for (int i = 1; i < n->count; i++)
            if (n->at[i].index == index && n->at[i].locals)
                used += (size_t)snprintf(list + used, ROUND - used, ",%d", index);
}

/* Node 0: " 0,2", the nodes that go on; "" where all start again; or why none does. */
static enum error choose_nodes(struct nodes *n, struct nodes_loss *loss, char list[ROUND]) {
    int left = loss->locals;
    *list = '\0';
    loss->partial = loss->nlost;
    TRY(await_others(n, loss));
    for (int i = 1; i < n->count; i++) left += n->at[i].locals;
    if (loss->joins) {
        TRY(take_all_in(n));
        list_nodes(n, list);
        return ERR_NONE;
    }
    enum error err = loss->locals
                         ? nodes_suffice(left, loss->nlost, n->p->least)
                         : FAIL(ERR_PEER, "node 0, which keeps the checkpoints and the store, has no device left");
    if (err == ERR_NONE) {
        list_nodes(n, list);
        return ERR_NONE;
    }
    loss->nlost = 0;
    if (!loss->restarts) snprintf(list, ROUND, "%s%s", END, error_message());
    return ERR_NONE;
}

/* ---- which round ---- */

static enum error begin_round(struct nodes *n, struct nodes_loss *loss, char text[ROUND]) {
    char list[ROUND] = "";
    TRY(open_store(n, n->p->timeout));
    if (loss) TRY(choose_nodes(n, loss, list));
    if (is_end(list))
        memcpy(text, list, ROUND);
    else
        snprintf(text, ROUND, "%08x-%d%.200s", (unsigned)n->instance, n->rounds++, list);
    TRY(store_set(n->store, "round", text, strlen(text)));
    if (is_end(text) && n->count > 1)
        nanosleep(&(struct timespec){.tv_sec = 1}, NULL); /* in which the others hear it */
    return ERR_NONE;
}

static enum error was_met(struct nodes *n, const char *text, bool *met) {
    char key[96], *value;
    size_t length;
    snprintf(key, sizeof key, "met/%.*s", (int)strcspn(text, " "), text);
    TRY(store_find(n->store, key, n->pool, &value, &length));
    *met = value != NULL;
    return ERR_NONE;
}

/* Which nodes a round has, and which of them this one is (own -1: none). */
static void read_nodes(struct nodes *n, const char *text) {
    const char *list = strchr(text, ' ');
    n->count = 0, n->own = -1;
    for (int i = 0; i < n->p->count && (!list || *list); i++) {
        char *end;
        int index = list ? (int)strtol(list + 1, &end, 10) : i;
        if (list && end == list + 1) break;
        if (index == n->p->index) n->own = n->count;
        n->at[n->count++].index = index;
        if (list) list = *end == ',' ? end : "";
    }
}

/* One look: text is empty when there is no round to join yet. */
static enum error look_for_round(struct nodes *n, const struct nodes_loss *loss, double timeout, char text[ROUND],
                                 bool *waits) {
    char *value;
    size_t length;
    bool met = false;
    *text = '\0';
    TRY(open_store(n, timeout));
    if (loss) TRY(tell_loss(n, loss));
    TRY(store_find(n->store, "round", n->pool, &value, &length));
    if (!value || length >= ROUND || !strncmp(value, n->last, strcspn(value, " "))) return ERR_NONE;
    read_nodes(n, value);
    if (is_end(value) || (n->own < 0 && loss)) { /* met or not, it is without this node */
        memcpy(text, value, length + 1);
        return ERR_NONE;
    }
    TRY(was_met(n, value, &met));
    if (met && !n->p->again)
        return FAIL(ERR_MISMATCH,
                    "the run has begun with another node %d\nstart all nodes again; with run.restarts a lost node may "
                    "come back",
                    n->p->index);
    if (!met && n->own >= 0) memcpy(text, value, length + 1);
    *waits = n->p->least && n->own < 0;
    return *waits || *text ? tell_come(n, *waits) : ERR_NONE;
}

static enum error too_late(const struct nodes *n, enum error err) {
    char why[400];
    snprintf(why, sizeof why, "%s", error_message());
    if (*n->last && n->p->least)
        return FAIL(ERR_TIMEOUT,
                    "node 0 (%s), which keeps the checkpoints and the store, has ended or is lost, and did not come "
                    "back within %.3g s\n"
                    "without it the others cannot continue: start all nodes again, node 0 with --resume",
                    n->p->master, n->p->timeout);
    if (err)
        return FAIL(ERR_TIMEOUT,
                    "node 0 has not come within %.3g s: %s\n"
                    "it keeps the store: has it been started, and is %s its address?",
                    n->p->timeout, why, n->p->master);
    return FAIL(ERR_TIMEOUT, "node 0 (%s) began no round that node %d could join within %.3g s", n->p->master,
                n->p->index, n->p->timeout);
}

/* Node 0 may be lost meanwhile, and its store with it: whatever is wrong is tried again until the
 * time is over, but for what a new try cannot mend. While others run without this node, time does not count. */
static enum error find_round(struct nodes *n, const struct nodes_loss *loss, char text[ROUND]) {
    int64_t start = clock_ns();
    double told = TRY_S - TELL_S;
    for (bool waits = false, before = false;; before = waits) {
        double waited = clock_seconds(clock_ns() - start), left = n->p->timeout - waited;
        double least = left > 0.1 ? left : 0.1;
        waits = false;
        enum error err = look_for_round(n, loss, least < TRY_S ? least : TRY_S, text, &waits);
        if (!err && *text) return ERR_NONE;
        if (waits && !before) log_info("the others run without this node: they take it in at the next checkpoint");
        if (waits) {
            start = clock_ns(), told = TRY_S - TELL_S;
            pool_free(n->pool); /* it may take long */
            n->pool = NULL;
            TRY(pool_create(&n->pool));
        }
        if (err == ERR_MISMATCH || err == ERR_CONFIG) return err;
        if (left <= 0) return too_late(n, err);
        if (err) {
            store_close(n->store);
            n->store = NULL;
        }
        if (waited - told > TELL_S) {
            told = waited;
            log_info("waiting for node 0 at %s (%.0f s)", n->p->master, waited);
        }
        nanosleep(&(struct timespec){.tv_nsec = LOOK_MS * 1000000}, NULL);
    }
}

/* ---- the meeting ---- */

/* A node's text: its number of ranks, and what the store knows it by. */
static enum error read_members(struct nodes *n, const struct attendant *m, struct nodes_round *out) {
    for (int i = 0; i < n->count; i++) {
        struct present *at = &n->at[i];
        if (sscanf(m[i].text, "%4d %llu", &at->locals, &at->member) != 2 || at->locals < 1)
            return FAIL(ERR_DATA, "node %d (%s) sent a message that makes no sense", at->index, m[i].who);
        at->first = out->world;
        out->world += at->locals;
    }
    out->first = n->at[n->own].first;
    out->locals = n->at[n->own].locals;
    if (out->world > RANKS_MAX)
        return FAIL(ERR_CONFIG, "%d ranks on %d nodes\nfrom 1 to %d are possible", out->world, n->p->count, RANKS_MAX);
    out->store = n->p->index == 0 ? store_url(n->store) : n->url; /* its port may be any free one */
    return ERR_NONE;
}

static enum error round_meet(struct nodes *n, int locals, struct nodes_round *out) {
    char who[128], key[96];
    struct attendant *members;
    process_who(who);
    char *text = pool_printf(n->pool, "%d %llu", locals, (unsigned long long)store_member(n->store));
    if (!text) return ERR_MEMORY;
    struct rendezvous r = {.store = n->store,
                           .what = "node",
                           .round = out->name,
                           .index = n->own,
                           .count = n->count,
                           .who = who,
                           .facts = n->p->facts,
                           .nfacts = n->p->nfacts,
                           .text = text,
                           .timeout = n->p->timeout,
                           .keeps = n->p->index == 0};
    TRY(rendezvous_meet(&r, n->pool, &members));
    memcpy(n->last, out->name, sizeof n->last);
    snprintf(key, sizeof key, "met/%s", out->name);
    if (n->p->index == 0) TRY(store_set(n->store, key, "", 0));
    return read_members(n, members, out);
}

enum error nodes_meet(struct nodes *n, struct nodes_loss *loss, struct nodes_round *out) {
    char text[ROUND];
    pool_free(n->pool);
    n->pool = NULL;
    *out = (struct nodes_round){.first = 0};
    TRY(pool_create(&n->pool));
    TRY(n->p->index == 0 ? begin_round(n, loss, text) : find_round(n, loss, text));
    if (is_end(text)) return FAIL(ERR_PEER, "%s", text + strlen(END));
    snprintf(out->name, sizeof out->name, "%.*s", (int)strcspn(text, " "), text);
    read_nodes(n, text);
    if (n->own < 0)
        return FAIL(ERR_PEER, "the run continues without node %d, of which %s", n->p->index,
                    loss && !loss->locals ? "no device is left" : "nothing was heard in time");
    out->taken_in = !loss && strchr(text, ' ');
    return round_meet(n, loss && strchr(text, ' ') ? loss->locals : n->p->locals, out);
}
