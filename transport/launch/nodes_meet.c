/* Rounds: node 0 writes the name of each under "round", others look for a name that they do not
 * know. The name holds a random part, so that a store which a new node 0 keeps is not taken for the
 * old one. Once its nodes have met (rendezvous.h), a node that comes later has missed the round.
 *
 * Where fewer devices are enough, each node of the round that failed first writes "left/NAME.NODE": how many ranks it
 * can still start, and which of them were lost. Node 0 waits for that from all whom it does not know to be lost (their
 * connection has ended, or they say nothing for too long), and then writes after the next round's name which nodes are
 * in it ("NAME 0,2"; all are, where it names none), or instead of a name why there is no other round ("end ..."). A "+"
 * before the nodes says that each starts all of its ranks ("NAME +0,2").
 *
 * A node that is in no round writes "come/NODE", and waits for one that it is in. Where the number of nodes is not
 * fixed, so do all before the first round, and node 0 begins it when enough have come. */
#include "transport/launch/nodes_impl.h"

#include "engine/base/clock.h"
#include "engine/base/digest.h"
#include "engine/base/file.h"
#include "engine/base/log.h"
#include "engine/base/process.h"
#include "transport/launch/token.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum error nodes_master(const char *text, int64_t port, struct pool *pool, const char **out) {
    const char *colon = strchr(text, ':'), *end = strchr(text, ']');
    bool six = colon && strchr(colon + 1, ':') && *text != '[';
    bool told = end ? end[1] == ':' : colon && !six;
    *out = told ? text : pool_printf(pool, six ? "[%s]:%lld" : "%s:%lld", text, (long long)port);
    return *out ? ERR_NONE : ERR_MEMORY;
}

enum error nodes_token(const char *spec, int count, struct pool *pool, const char **out) {
    TRY(nodes_secret(spec, count, pool, out));
    token_forget(spec); /* ranks get the secret itself */
    char key[SECRET_SIZE];
    if (**out) return ERR_NONE;
    TRY(secret_random(key));
    *out = pool_printf(pool, "%s", key);
    return *out ? ERR_NONE : ERR_MEMORY;
}

enum error nodes_secret(const char *spec, int count, struct pool *pool, const char **out) {
    TRY(token_find(spec, pool, out));
    if (**out || count == 1) return ERR_NONE;
    return FAIL(ERR_CONFIG, "several hosts need a secret in common: run.token, or ENGINE_TOKEN\nexport "
                            "ENGINE_TOKEN=$(openssl rand -hex 16) on each; run.token: none lets anybody join");
}

enum error nodes_open(const struct nodes_params *p, struct nodes **out) {
    size_t bytes;
    TRY(memory_size(2 * (size_t)p->nodes_max, sizeof(struct present), "nodes", &bytes));
    struct nodes *n = memory_new(sizeof *n + bytes);
    if (!n) return ERR_MEMORY;
    n->p = p;
    if (random_bytes(&n->instance, sizeof n->instance) != ERR_NONE) n->instance = (uint32_t)clock_ns();
    snprintf(n->url, sizeof n->url, "tcp://%s", p->master ? p->master : "127.0.0.1:0");
    *out = n;
    return ERR_NONE;
}

static enum error nodes_new_pool(struct nodes *n) {
    pool_free(n->pool);
    n->pool = NULL;
    return pool_create(&n->pool);
}

/* ---- a round that is over elsewhere ---- */

void nodes_tell_failure(struct nodes *n) {
    char key[96];
    if (!n || !n->store) return;
    snprintf(key, sizeof key, "failed/%s.%d", n->last, n->p->index);
    n->failed = store_set(n->store, key, "", 0) == ERR_NONE; /* else node 0 has ended as well */
}

/* The ranks of another node have failed, or node 0 has begun another round. */
static enum error round_is_over(struct nodes *n, struct pool *pool, bool *over) {
    char prefix[80], **keys, *value;
    size_t length;
    int count;
    snprintf(prefix, sizeof prefix, "failed/%s.", n->last);
    TRY(store_list(n->store, prefix, pool, &keys, &count));
    TRY(store_find(n->store, "round", pool, &value, &length));
    *over = count > 0 || (value && strncmp(value, n->last, strcspn(value, " ")));
    return ERR_NONE;
}

/* Where node 0 has ended, perhaps well, the ranks here may still have something to do: they have n->p->timeout more. What
 * was known stays so while the store cannot be asked. */
bool nodes_are_over(struct nodes *n) {
    bool over = false;
    struct pool *pool;
    if (!n || n->p->nodes_max == 1 || !n->store || pool_create(&pool) != ERR_NONE) return false;
    enum error err = round_is_over(n, pool, &over);
    int64_t now = clock_ns();
    pool_free(pool);
    if (!err && !over) n->over = 0;
    if (!n->over && over) n->over = now;
    if (!n->over && err == ERR_PEER && n->p->needs_first) n->over = clock_after(n->p->timeout);
    return n->over && clock_seconds(now - n->over) > n->p->patience;
}

/* A node 0 whose ranks have failed stays while others of the round are connected, so that all of them hear of it. */
static void failure_linger(const struct nodes *n) {
    for (int left = HEAR_NS, i = 0; n->failed && left > 0 && i < n->count;)
        if (n->at[i].index && store_sees(n->store, n->at[i].member))
            clock_nap(LOOK_NS), left -= LOOK_NS;
        else
            i++;
}

/* ---- opening and closing ---- */

/* Those that wait to be taken in hear that they will not be. */
void nodes_close(struct nodes *n) {
    if (!n) return;
    static const char ended[] = NODES_END "the run has ended without this node";
    bool told = n->p->index == 0 && n->p->nodes_max > 1 && nodes_wait(n->store) &&
                store_set(n->store, "round", ended, sizeof ended - 1) == ERR_NONE;
    if (told) clock_nap(HEAR_NS);
    if (n->p->index == 0) failure_linger(n);
    store_close(n->store);
    pool_free(n->pool);
    memory_free(n);
}

static enum error nodes_open_store(struct nodes *n, double timeout) {
    if (n->store) return ERR_NONE;
    struct store_params p = {.url = n->url, .serve = n->p->index == 0, .token = n->p->token, .timeout = timeout};
    return store_open(&p, &n->store);
}

/* ---- what nodes report to node 0 ---- */

/* "2 5 7": two ranks can be started, ranks 5 and 7 were lost. */
static enum error loss_tell(struct nodes *n, const struct nodes_loss *loss) {
    char key[96];
    struct file_text t;
    TRY(file_text_open(&t));
    fprintf(t.out, "%d", loss->locals);
    for (int i = 0; i < loss->nlost; i++) fprintf(t.out, " %d", loss->lost[i]);
    const char *text = file_text_keep(&t, n->pool);
    snprintf(key, sizeof key, "left/%s.%d", n->last, n->p->index);
    return text ? store_set(n->store, key, text, t.n) : ERR_MEMORY;
}

/* This node waits to be taken in, or has been. */
static enum error coming_tell(struct nodes *n, bool waits) {
    char key[32], text[48];
    int length = snprintf(text, sizeof text, "%llu %d", (unsigned long long)store_member(n->store), n->p->locals);
    snprintf(key, sizeof key, "%s%05d", NODES_COME, n->p->index);
    return waits ? store_set(n->store, key, text, (size_t)length) : store_delete(n->store, key);
}

bool nodes_wait(struct store *s) {
    struct pool *pool;
    char **keys;
    int count = 0;
    if (!s || pool_create(&pool) != ERR_NONE) return false;
    if (store_list(s, NODES_COME, pool, &keys, &count) != ERR_NONE) count = 0;
    pool_free(pool);
    return count > 0;
}

/* ---- which round ---- */

/* What nodes and ranks have written in a round that all have left, so that the store does not grow with each. There is
 * no later round yet whose name begins like that. */
static enum error round_forget(struct nodes *n, const char *name) {
    char told[80];
    if (!*name) return ERR_NONE;
    TRY(store_delete(n->store, name));
    snprintf(told, sizeof told, "failed/%s", name);
    TRY(store_delete(n->store, told));
    snprintf(told, sizeof told, "left/%s", name);
    return store_delete(n->store, told);
}

static enum error round_begin(struct nodes *n, struct nodes_loss *loss, const char **text) {
    const char *list;
    TRY(nodes_open_store(n, n->p->timeout));
    TRY(round_forget(n, n->older));
    TRY(nodes_choose(n, loss, &list));
    *text = nodes_end(list) ? list : pool_printf(n->pool, "%08x-%d%s", (unsigned)n->instance, n->rounds++, list);
    if (!*text) return ERR_MEMORY;
    TRY(store_set(n->store, "round", *text, strlen(*text)));
    if (nodes_end(*text) && n->count > 1) clock_nap(HEAR_NS);
    return ERR_NONE;
}

/* Whether its nodes have met (attendance.c). */
static enum error round_was_met(struct nodes *n, const char *text, bool *met) {
    char key[96], **keys;
    int count;
    snprintf(key, sizeof key, "%.*s.node.roster", (int)strcspn(text, " "), text);
    TRY(store_list(n->store, key, n->pool, &keys, &count));
    *met = count > 0;
    return ERR_NONE;
}

static void node_add(struct nodes *n, int index) {
    if (index == n->p->index) n->own = n->count;
    n->at[n->count++] = (struct present){.index = index};
}

/* Which nodes a round has, and which of them this one is (own -1: none). */
static void round_read(struct nodes *n, const char *text) {
    const char *at = strchr(text, ' ');
    n->count = 0, n->own = -1;
    for (int i = 0; i < n->p->nodes_max && !at; i++) node_add(n, i);
    for (char *end; at && n->count < n->p->nodes_max; at = *end == ',' ? end : NULL) {
        at += at[1] == '+' ? 2 : 1;
        int index = (int)strtol(at, &end, 10);
        if (end == at) return;
        node_add(n, index);
    }
}

/* One look: *text is NULL when there is no round to join yet. */
static enum error round_look(struct nodes *n, const struct nodes_loss *loss, double timeout, const char **text,
                             bool *waits) {
    char *value;
    size_t length;
    bool met = false;
    *text = NULL;
    TRY(nodes_open_store(n, timeout));
    if (loss) TRY(loss_tell(n, loss));
    TRY(store_find(n->store, "round", n->pool, &value, &length));
    bool next = value && strncmp(value, n->last, strcspn(value, " "));
    if (!next) return nodes_flexible(n) && !loss ? coming_tell(n, true) : ERR_NONE;
    round_read(n, value);
    if (nodes_end(value) || (n->own < 0 && loss)) { /* met or not, it is without this node */
        *text = value;
        return ERR_NONE;
    }
    TRY(round_was_met(n, value, &met));
    if (met && !n->p->again && !nodes_flexible(n))
        return FAIL(ERR_MISMATCH,
                    "the run has begun with another node %d\nstart all nodes again; with run.restarts a lost node may "
                    "come back",
                    n->p->index);
    if (!met && n->own >= 0) *text = value;
    *waits = (n->p->least || nodes_flexible(n)) && n->own < 0;
    return *waits || *text ? coming_tell(n, *waits) : ERR_NONE;
}

static enum error fail_no_round(const struct nodes *n, enum error err) {
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

static const double FIRST_TRY = 2, LONGEST_TRY = 10; /* s for one look; doubled when it has failed */

/* Node 0 may be lost meanwhile, and its store with it: whatever is wrong is tried again until the
 * time is over, but for what a new try cannot mend. While others run without this node, time does not count. */
static enum error round_await(struct nodes *n, const struct nodes_loss *loss, const char **text) {
    int64_t start = clock_ns();
    double told = FIRST_S - TELL_S, most = FIRST_TRY;
    for (bool waits = false, before = false;; before = waits) {
        double waited = clock_seconds(clock_ns() - start), left = n->p->timeout - waited;
        double least = left > 1 ? left : 1;
        waits = false;
        enum error err = round_look(n, loss, least < most ? least : most, text, &waits);
        if (!err && *text) return ERR_NONE;
        if (waits && !before) log_info("the others run without this node: they take it in at the next checkpoint");
        if (waits) {
            start = clock_ns(), told = FIRST_S - TELL_S;
            TRY(nodes_new_pool(n)); /* it may take long */
        }
        if (err == ERR_MISMATCH || err == ERR_CONFIG) return err;
        if (left <= 0) return fail_no_round(n, err);
        if (err) {
            store_close(n->store);
            n->store = NULL;
            most = 2 * most < LONGEST_TRY ? 2 * most : LONGEST_TRY;
        }
        if (waited - told > TELL_S) {
            told = waited;
            log_info("waiting for %s at %s (%.0f s)", err ? "node 0" : "a round of node 0", n->p->master, waited);
        }
        clock_nap(LOOK_NS + n->p->nodes_max * 1000000LL); /* all nodes look */
    }
}

/* ---- the meeting ---- */

/* Servers are the first ranks, of all nodes, and the others follow: both in the order of the nodes. */
static void members_number(struct nodes *n) {
    int server = 0, other = 0;
    for (int i = 0; i < n->count; i++) other += n->at[i].servers;
    for (int i = 0; i < n->count; i++) {
        struct present *at = &n->at[i];
        at->first_server = server, at->first = other;
        server += at->servers, other += at->locals - at->servers;
    }
}

/* A node's text: its number of ranks, of those that it would start if it had lost none, of those of the first round
 * (told by node 0), what the store knows it by, and how many of its ranks are servers. */
static enum error members_read(struct nodes *n, const struct attendant *m, struct nodes_round *out) {
    for (int i = 0; i < n->count; i++) {
        struct present *at = &n->at[i];
        int whole, began;
        if (sscanf(m[i].text, "%9d %9d %9d %llu %9d", &at->locals, &whole, &began, &at->member, &at->servers) != 5 ||
            at->locals < 1 || at->locals > whole || whole > LOCALS_MAX || began < 0 || at->servers < 0 ||
            at->servers > at->locals)
            return FAIL(ERR_DATA, "node %d (%s) sent a message that makes no sense", at->index, m[i].who);
        memcpy(at->who, m[i].who, sizeof at->who);
        out->world += at->locals;
        if (out->world > WORLD_MAX) return FAIL(ERR_CONFIG, "more than %d ranks on %d nodes", WORLD_MAX, n->count);
        out->partial = out->partial || at->locals < whole;
        if (at->index == 0) out->began = began;
    }
    if (!out->began) out->began = out->world;
    n->began = out->began, n->world = out->world;
    out->nodes = n->count;
    out->fewer = n->count < n->p->nodes_max;
    members_number(n);
    out->first = n->at[n->own].first;
    out->first_server = n->at[n->own].first_server;
    out->locals = n->at[n->own].locals;
    out->store = n->p->index == 0 ? store_url(n->store) : n->url; /* its port may be any free one */
    return ERR_NONE;
}

static enum error round_meet(struct nodes *n, int locals, struct nodes_round *out) {
    char who[128];
    struct attendant *members;
    int *names = pool_alloc(n->pool, (size_t)n->count * sizeof *names);
    process_who(who);
    char *text = pool_printf(n->pool, "%d %d %d %llu %d", locals, n->p->locals, n->began,
                             (unsigned long long)store_member(n->store), n->p->servers);
    if (!text || !names) return ERR_MEMORY;
    for (int i = 0; i < n->count; i++) names[i] = n->at[i].index;
    struct rendezvous r = {.store = n->store,
                           .what = "node",
                           .round = out->name,
                           .index = n->own,
                           .count = n->count,
                           .names = names,
                           .who = who,
                           .facts = n->p->facts,
                           .nfacts = n->p->nfacts,
                           .text = text,
                           .timeout = n->p->timeout,
                           .keeps = n->p->index == 0};
    TRY(rendezvous_meet(&r, n->pool, &members));
    memcpy(n->older, n->last, sizeof n->older);
    memcpy(n->last, out->name, sizeof n->last);
    n->over = 0, n->failed = false;
    return members_read(n, members, out);
}

enum error nodes_meet(struct nodes *n, struct nodes_loss *loss, struct nodes_round *out) {
    const char *text, *list;
    *out = (struct nodes_round){.first = 0};
    TRY(nodes_new_pool(n));
    TRY(n->p->index == 0 ? round_begin(n, loss, &text) : round_await(n, loss, &text));
    if (nodes_end(text)) return FAIL(ERR_PEER, "%s", text + strlen(NODES_END));
    snprintf(out->name, sizeof out->name, "%.*s", (int)strcspn(text, " "), text);
    round_read(n, text);
    if (n->own < 0)
        return FAIL(ERR_PEER, "the run continues without node %d, of which %s", n->p->index,
                    loss && !loss->locals ? "no device is left" : "nothing was heard in time");
    list = strchr(text, ' ');
    out->whole = loss && (!list || list[1] == '+');
    return round_meet(n, loss && !out->whole ? loss->locals : n->p->locals, out);
}
