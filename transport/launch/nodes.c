/* Rounds: node 0 writes the name of each under "round", others look for a name that they do not
 * know. The name holds a random part, so that a store which a new node 0 keeps is not taken for the
 * old one. Once all have met, "met/NAME" says so: who comes later has missed the round. */
#include "transport/launch/nodes.h"

#include "engine/base/clock.h"
#include "engine/base/limits.h"
#include "engine/base/log.h"
#include "transport/launch/token.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

struct nodes {
    const struct nodes_params *p;
    struct pool *pool; /* of the round */
    struct store *store;
    char url[320];
    uint32_t instance;
    int rounds;
    char last[64]; /* round that this node was in */
};

enum error nodes_master(const char *text, int64_t port, struct pool *pool, const char **out) {
    const char *colon = strchr(text, ':'), *end = strchr(text, ']');
    bool six = colon && strchr(colon + 1, ':') && *text != '[';
    bool told = end ? end[1] == ':' : colon && !six;
    *out = told ? text : pool_printf(pool, six ? "[%s]:%lld" : "%s:%lld", text, (long long)port);
    return *out ? ERR_NONE : ERR_MEMORY;
}

enum error nodes_token(const char *spec, int count, struct pool *pool, const char **out) {
    TRY(token_find(spec, pool, out));
    token_forget(spec); /* ranks are told what has been found */
    if (**out) return ERR_NONE;
    if (count == 1) return token_random(pool, out);
    return FAIL(ERR_CONFIG, "several hosts need a secret in common: run.token, or ENGINE_TOKEN\nexport "
                            "ENGINE_TOKEN=$(openssl rand -hex 16) on each; run.token: none lets anybody "
                            "join");
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

/* ---- which round ---- */

static enum error begin_round(struct nodes *n, char name[64]) {
    TRY(open_store(n, n->p->timeout));
    snprintf(name, 64, "%08x-%d", (unsigned)n->instance, n->rounds++);
    return store_set(n->store, "round", name, strlen(name));
}

static enum error was_met(struct nodes *n, const char *name, bool *met) {
    char key[96], *value;
    size_t length;
    snprintf(key, sizeof key, "met/%s", name);
    TRY(store_find(n->store, key, n->pool, &value, &length));
    *met = value != NULL;
    return ERR_NONE;
}

/* One look: name is empty when there is no round to join yet. */
static enum error look_for_round(struct nodes *n, double timeout, char name[64]) {
    char *value;
    size_t length;
    bool met = false;
    *name = '\0';
    TRY(open_store(n, timeout));
    TRY(store_find(n->store, "round", n->pool, &value, &length));
    if (!value || length >= 64 || !strcmp(value, n->last)) return ERR_NONE;
    TRY(was_met(n, value, &met));
    if (met && !n->p->again)
        return FAIL(ERR_MISMATCH,
                    "the run has begun with another node %d\nstart all nodes again; "
                    "with run.restarts a lost node may come back",
                    n->p->index);
    if (!met) memcpy(name, value, length + 1);
    return ERR_NONE;
}

static enum error too_late(const struct nodes *n, enum error err) {
    char why[400];
    snprintf(why, sizeof why, "%s", error_message());
    if (err)
        return FAIL(ERR_TIMEOUT,
                    "node 0 has not come within %.3g s: %s\n"
                    "it keeps the store: has it been started, and is %s its address?",
                    n->p->timeout, why, n->p->master);
    return FAIL(ERR_TIMEOUT, "node 0 (%s) began no round that node %d could join within %.3g s", n->p->master,
                n->p->index, n->p->timeout);
}

/* Node 0 may be lost meanwhile, and its store with it: whatever is wrong is tried again until the
 * time is over, but for what a new try cannot mend. */
static enum error find_round(struct nodes *n, char name[64]) {
    int64_t start = clock_ns();
    double told = TRY_S - TELL_S;
    for (;;) {
        double waited = clock_seconds(clock_ns() - start), left = n->p->timeout - waited;
        double least = left > 0.1 ? left : 0.1;
        enum error err = look_for_round(n, least < TRY_S ? least : TRY_S, name);
        if (!err && *name) return ERR_NONE;
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

/* A node's blob: its number of ranks. */
static enum error read_members(struct nodes *n, const struct member *m, struct nodes_round *out) {
    for (int i = 0; i < n->p->count; i++) {
        int locals;
        if (sscanf(m[i].blob, "%4d", &locals) != 1 || locals < 1)
            return FAIL(ERR_DATA, "node %d (%s) tells nothing that makes sense", i, m[i].who);
        if (i < n->p->index) out->first += locals;
        out->world += locals;
    }
    if (out->world > RANKS_MAX)
        return FAIL(ERR_CONFIG, "%d ranks on %d nodes\nfrom 1 to %d are possible", out->world, n->p->count, RANKS_MAX);
    out->store = n->p->index == 0 ? store_url(n->store) : n->url; /* its port may be any free one */
    return ERR_NONE;
}

enum error nodes_meet(struct nodes *n, struct nodes_round *out) {
    char who[128], key[96];
    struct member *members;
    pool_free(n->pool);
    n->pool = NULL;
    *out = (struct nodes_round){.first = 0};
    TRY(pool_create(&n->pool));
    TRY(n->p->index == 0 ? begin_round(n, out->name) : find_round(n, out->name));
    rendezvous_who(who);
    char *blob = pool_printf(n->pool, "%d", n->p->locals);
    if (!blob) return ERR_MEMORY;
    struct rendezvous r = {.store = n->store,
                           .what = "node",
                           .round = out->name,
                           .index = n->p->index,
                           .count = n->p->count,
                           .who = who,
                           .facts = n->p->facts,
                           .nfacts = n->p->nfacts,
                           .blob = blob,
                           .bytes = strlen(blob) + 1,
                           .timeout = n->p->timeout,
                           .keeps = n->p->index == 0};
    TRY(rendezvous_meet(&r, n->pool, &members));
    memcpy(n->last, out->name, sizeof n->last);
    snprintf(key, sizeof key, "met/%s", out->name);
    if (n->p->index == 0) TRY(store_set(n->store, key, "", 0));
    return read_members(n, members, out);
}
