/* Stores as their members call them: one of them has the server in its process (server.c), at an address that all know
 * or that lies in a file (file.c).
 *
 * A call sends its request over a line to the server, which is a connection that has proven the secret and greeted, and
 * waits for the reply. When the line breaks, the request is sent again over another one, until the deadline. Waiting is
 * asked for in turns of some seconds, so that the server does not wait for a client that is gone. */
#include "engine/base/clock.h"
#include "engine/base/digest.h"
#include "engine/base/log.h"
#include "engine/base/text.h"
#include "transport/base/secret.h"
#include "transport/door/address.h"
#include "transport/door/visit.h"
#include "transport/store/file.h"
#include "transport/store/server.h"
#include "transport/store/wire.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

enum { GRACE_MS = 500 /* for the server to say itself that a key did not come */ };
static const int64_t FIRST_PAUSE = 5000, LONGEST_PAUSE = 500000; /* us */
/* ns for one address, since the next may do better; doubled when that was too short, which it is on a starved machine. */
static const int64_t FIRST_DIAL = 2000000000, LONGEST_DIAL = DOOR_SECONDS * 1000000000LL;

struct store {
    struct server *server; /* NULL: another process serves */
    char url[PATH_MAX + 8];
    const char *file; /* of the url: where the address and the key of the server lie; NULL: they are given */
    struct address address;
    char key[SECRET_SIZE], run[STORE_KEY_MAX + 1];
    double timeout, limit;  /* of calls; of the one that runs, for messages */
    uint64_t client;        /* this member */
    uint64_t server_number; /* 0: it has not answered yet */
    struct visit *line;     /* NULL: none */
};

static int64_t store_deadline(struct store *s, double seconds) {
    s->limit = seconds;
    return clock_after(seconds);
}

/* Sleeps some 'us' microseconds, never beyond the deadline, and doubles them: the time varies, so that those who collided
 * once do not go on doing so. false: the deadline has passed. */
static bool store_pause(int64_t *us, int64_t deadline) {
    int64_t now = clock_ns(), left = deadline - now;
    if (left <= 0) return false;
    int64_t ns = *us * 500 + now % (*us * 500); /* from half to all of it, as the clock has it */
    if (ns > left) ns = left;
    clock_nap(ns);
    *us = *us * 2 < LONGEST_PAUSE ? *us * 2 : LONGEST_PAUSE;
    return true;
}

/* A copy of what an answer borrows; pool may be NULL where the operation gives no value. */
static enum error store_keep(struct pool *pool, struct bytes *value) {
    if (!value->at || !pool) return ERR_NONE;
    value->at = pool_strndup(pool, value->at, value->n);
    return value->at ? ERR_NONE : ERR_MEMORY;
}

/* ---- dialing ---- */

/* What lies in the file now: it may have been left by another server. false: nothing. */
static enum error address_find(struct store *s, bool *there, char why[128]) {
    *there = true;
    if (!s->file || s->server) return ERR_NONE;
    TRY(file_find(s->file, &s->address.port, s->key));
    *there = s->address.port > 0;
    if (!*there) snprintf(why, 128, "nobody serves it");
    return ERR_NONE;
}

/* All of the host's addresses, once, each for 'most' ns. why: what the last one said that had its time. */
static int line_dial_all(struct store *s, int64_t most, int64_t deadline, char why[128]) {
    struct endpoint at[ENDPOINTS_MAX];
    int count = 0, rv = NNG_ECONNREFUSED;
    if (address_resolve(&s->address, at, &count) != ERR_NONE) snprintf(why, 128, "%s", error_message());
    for (int i = 0; i < count && rv; i++) {
        char url[ENDPOINT_MAX + 8];
        int64_t latest = clock_ns() + most;
        snprintf(url, sizeof url, "tcp://%.*s", ENDPOINT_MAX, at[i].text);
        rv = visit_connect(s->line, url, s->key, deadline < latest ? deadline : latest);
        bool cut = rv == NNG_ETIMEDOUT && *why && clock_ns() >= deadline;
        bool silent = rv == NNG_ETIMEDOUT && visit_arrived(s->line);
        if (rv && !cut)
            snprintf(why, 128, "%s", silent ? "what listens there does not answer like a store" : nng_strerror(rv));
    }
    return rv;
}

static enum error fail_foreign(const struct store *s) {
    return FAIL(ERR_CONFIG,
                "the store %s is not this user's, on this host\nmembers of several users or hosts need a secret in "
                "common: export ENGINE_TOKEN=$(openssl rand -hex 16)",
                s->url);
}

/* Again and again until the server is there. One that has answered, and whose port nobody has any more, has ended. */
static enum error line_dial(struct store *s, int64_t deadline) {
    int64_t us = FIRST_PAUSE, most = FIRST_DIAL, began = clock_ns(), told = began;
    char why[128] = "", time[32];
    do {
        bool there;
        TRY(address_find(s, &there, why));
        int rv = there ? line_dial_all(s, most, deadline, why) : NNG_ENOENT;
        if (!rv) return ERR_NONE;
        if (s->server_number && (rv == NNG_ECONNREFUSED || rv == NNG_ENOENT))
            return FAIL(ERR_PEER, "the store %s was lost: its server has ended", s->url);
        if (rv == NNG_ETIMEDOUT && most < LONGEST_DIAL) most *= 2;
        if (rv == NNG_EPEERAUTH && !s->file)
            return FAIL(ERR_CONFIG, "the store %s refused the token\nall members need the token of its server", s->url);
        if (rv == NNG_EPROTO && !s->file) return FAIL(ERR_PEER, "at %s there is no store of this program", s->url);
        if (clock_ns() - told < 5000000000) continue;
        told = clock_ns();
        log_info("waiting for the store %s (%s): %s", s->url, text_of_seconds(clock_seconds(told - began), time), why);
    } while (store_pause(&us, deadline));
    return FAIL(ERR_TIMEOUT,
                "the store %s could not be reached within %s: %s\ndoes its server run, and is this its address?",
                s->url, text_of_seconds(s->limit, time), why);
}

/* ---- a request and its reply ---- */

static enum error fail_status(const struct store *s, const struct door_head *head) {
    if (head->version != DOOR_VERSION || head->kind == DOOR_OTHER)
        return FAIL(ERR_CONFIG,
                    "the store %s speaks version %u, this program version %d\nstart the same program everywhere",
                    s->url, head->version, DOOR_VERSION);
    if (head->kind == DOOR_FOREIGN) return fail_foreign(s);
    return FAIL(ERR_PEER, "the store %s did not understand (%u)", s->url, head->kind);
}

/* *lost: the line broke, or was never good; a failure only where another line would not do. The
 * answer's value is the line's. */
static enum error line_ask(struct store *s, uint32_t kind, const struct request *q, int64_t deadline,
                           struct store_answer *a, int *lost) {
    struct wire_request asked = {.head.kind = kind, .client = s->client};
    struct door_head head;
    int64_t left = (deadline - clock_ns()) / 1000000 + 1, more = q->wait ? GRACE_MS * 1000000LL : 0;
    if (q->wait) asked.wait_ms = left < 1 ? 1 : left < INT32_MAX ? (uint32_t)left : INT32_MAX;
    uint8_t *message = visit_room(s->line, wire_request_size(q));
    if (!message) return FAIL(ERR_MEMORY, "no memory for a message of %zu bytes", wire_request_size(q));
    wire_write_request(&asked, q, message);
    *lost = visit_ask(s->line, WIRE_MAX, deadline + more);
    if (*lost) return ERR_NONE;
    const uint8_t *reply = visit_reply(s->line, &head);
    if (head.version != DOOR_VERSION || head.kind >= DOOR_OTHER) return fail_status(s, &head);
    return wire_read_reply(reply, head.bytes, a)
               ? ERR_NONE
               : FAIL(ERR_PEER, "a reply that the store %s cannot have given", s->url);
}

/* Without a secret, only a server of this user is greeted again: it has answered, so it has taken the connection. Another
 * server than before has none of what was stored. */
static enum error line_greet(struct store *s, int64_t deadline, int *lost) {
    const struct request none = {.op = STORE_GET, .key = ""};
    struct store_answer a;
    char run[STORE_KEY_MAX + 1];
    TRY(line_ask(s, WIRE_GREETING, &none, deadline, &a, lost));
    if (*lost) return ERR_NONE;
    if (!*s->key && !visit_is_ours(s->line)) return fail_foreign(s);
    snprintf(run, sizeof run, "%.*s", (int)a.value.n, a.value.at ? (const char *)a.value.at : "");
    if (*s->run && *run && strcmp(s->run, run) != 0)
        return FAIL(ERR_MISMATCH, "the store %s is of run '%s', not of '%s'", s->url, run, s->run);
    if (!s->server_number) s->server_number = a.number;
    if (s->server_number == a.number) return ERR_NONE;
    return FAIL(ERR_PEER, "the store %s was lost: another one is served there now", s->url);
}

/* ---- calls ---- */

/* *lost as above. */
static enum error line_open(struct store *s, int64_t deadline, int *lost) {
    *lost = 0;
    if (s->line) return ERR_NONE;
    TRY(visit_create(&s->line));
    TRY(line_dial(s, deadline));
    return line_greet(s, deadline, lost);
}

static enum error fail_lost(const struct store *s, const struct request *q, int lost) {
    return FAIL(ERR_TIMEOUT, "the store %s did not answer in time (%s%s%s): %s", s->url,
                q ? "the key '" : "its greeting", q ? q->key : "", q ? "'" : "", nng_strerror(lost));
}

/* q NULL: only opens a line. */
static enum error server_ask(struct store *s, const struct request *q, int64_t deadline, struct pool *pool,
                             struct store_answer *a) {
    int64_t us = FIRST_PAUSE;
    int lost;
    do {
        enum error err = line_open(s, deadline, &lost);
        if (!err && !lost && q) err = line_ask(s, WIRE_REQUEST + (uint32_t)q->op, q, deadline, a, &lost);
        if (!err && !lost && q) err = store_keep(pool, &a->value);
        if (!err && !lost) return ERR_NONE;
        visit_free(s->line);
        s->line = NULL;
        if (err) return err;
    } while (lost != NNG_ETIMEDOUT && store_pause(&us, deadline));
    return fail_lost(s, q, lost);
}

/* In turns, each as long as the server lets a request wait. */
static enum error server_await(struct store *s, const struct request *q, int64_t deadline, struct pool *pool,
                               struct store_answer *a) {
    do TRY(server_ask(s, q, deadline, pool, a));
    while (q->wait && a->status == ANSWER_NOT_THERE && clock_ns() < deadline);
    return ERR_NONE;
}

bool store_key_ok(const char *key, size_t n, bool prefix) {
    if (n > STORE_KEY_MAX || (n == 0 && !prefix)) return false;
    for (size_t i = 0; i < n; i++)
        if (key[i] <= ' ' || key[i] > '~') return false;
    return true;
}

static enum error request_check(const struct request *q) {
    if (!store_key_ok(q->key, strlen(q->key), q->op == STORE_LIST || q->op == STORE_DELETE))
        return FAIL(ERR_USAGE, "'%.300s' is not a key\na key has 1 to %d printable characters without a space", q->key,
                    STORE_KEY_MAX);
    if (q->value.n > STORE_VALUE_MAX)
        return FAIL(ERR_USAGE, "%zu bytes for the key '%s'\na store takes at most %d", q->value.n, q->key,
                    STORE_VALUE_MAX);
    return ERR_NONE;
}

/* ANSWER_NOT_THERE and ANSWER_REFUSED are no errors here. timeout 0: the store's. */
static enum error store_ask(struct store *s, const struct request *q, double timeout, struct pool *pool,
                            struct store_answer *a) {
    int64_t deadline = store_deadline(s, timeout > 0 ? timeout : s->timeout);
    TRY(request_check(q));
    TRY(server_await(s, q, deadline, pool, a));
    if (a->status == ANSWER_FULL)
        return FAIL(ERR_CREATE, "the store %s is full: no room for the key '%s'\nit takes %d keys", s->url, q->key,
                    STORE_KEYS_MAX);
    if (a->status == ANSWER_MEMORY)
        return FAIL(ERR_MEMORY, "the store %s has no memory for the key '%s'", s->url, q->key);
    return ERR_NONE;
}

/* ---- operations ---- */

enum error store_set(struct store *s, const char *key, const void *value, size_t n) {
    struct request q = {.op = STORE_SET, .key = key, .value = {n ? value : "", n}};
    struct store_answer a;
    return store_ask(s, &q, 0, NULL, &a);
}

/* Values are chars with a 0 byte after them, in memory of the caller's pool. */
static char *answer_text(const struct store_answer *a) {
    return (char *)(uintptr_t)a->value.at;
}

static enum error value_ask(struct store *s, const struct request *q, double timeout, struct pool *pool, char **value,
                            size_t *n) {
    struct store_answer a;
    char time[32];
    TRY(store_ask(s, q, timeout, pool, &a));
    if (a.status == ANSWER_NOT_THERE)
        return FAIL(ERR_TIMEOUT, "the key '%s' did not come to the store %s within %s", q->key, s->url,
                    text_of_seconds(timeout > 0 ? timeout : s->timeout, time));
    *value = answer_text(&a);
    *n = a.value.n;
    return ERR_NONE;
}

enum error store_get(struct store *s, const char *key, double timeout, struct pool *pool, char **value, size_t *n) {
    return value_ask(s, &(struct request){.op = STORE_GET, .wait = true, .key = key}, timeout, pool, value, n);
}

enum error store_find(struct store *s, const char *key, struct pool *pool, char **value, size_t *n) {
    return value_ask(s, &(struct request){.op = STORE_GET, .key = key}, 0, pool, value, n);
}

enum error store_delete(struct store *s, const char *prefix) {
    struct request q = {.op = STORE_DELETE, .key = prefix};
    struct store_answer a;
    return store_ask(s, &q, 0, NULL, &a);
}

enum error store_list(struct store *s, const char *prefix, struct pool *pool, char ***keys, int *count) {
    struct request q = {.op = STORE_LIST, .key = prefix};
    struct store_answer a;
    TRY(store_ask(s, &q, 0, pool, &a));
    char *end = answer_text(&a) + a.value.n;
    *keys = pool_alloc(pool, (a.value.n / 2 + 1) * sizeof **keys); /* none is shorter than a letter and its 0 byte */
    if (!*keys) return ERR_MEMORY;
    *count = 0;
    for (char *key = answer_text(&a); key < end; key += strlen(key) + 1) (*keys)[(*count)++] = key;
    return ERR_NONE;
}

enum error store_meet(struct store *s, const struct store_coming *c, struct pool *pool, struct store_meeting *out) {
    struct request q = {.op = STORE_MEET, .wait = true, .key = c->name, .value = {c->words, c->n}};
    struct store_answer a;
    TRY(store_ask(s, &q, c->timeout, pool, &a));
    enum store_met met = a.status == ANSWER_OK ? STORE_MET : a.status == ANSWER_REFUSED ? STORE_REFUSED : STORE_AWAITS;
    *out = (struct store_meeting){.met = met, .text = answer_text(&a), .n = a.value.n};
    return ERR_NONE;
}

/* ---- opening ---- */

static enum error params_check(const struct store_params *p) {
    if (p->token && strlen(p->token) >= SECRET_SIZE)
        return FAIL(ERR_CONFIG, "a token of %zu characters\nat most %d are allowed", strlen(p->token), SECRET_MAX);
    if (p->run && strlen(p->run) > STORE_KEY_MAX)
        return FAIL(ERR_CONFIG, "the name of the run has %zu characters\nat most %d are allowed", strlen(p->run),
                    STORE_KEY_MAX);
    return p->timeout > 0 ? ERR_NONE : FAIL(ERR_USAGE, "a store needs a timeout of more than 0 s");
}

/* Serves the store, and makes the address the one at which this process reaches it. */
static enum error store_serve(struct store *s) {
    struct endpoint at[ENDPOINTS_MAX];
    int count;
    TRY(address_resolve(&s->address, at, &count));
    if (!*s->key && !at->loopback)
        return FAIL(ERR_CONFIG,
                    "a store without a token at %s, where others can reach it\nset a token, or serve it at 127.0.0.1",
                    at->text);
    TRY(server_open(at->text, s->key, s->run, &s->server, &s->address.port));
    if (s->file) return file_announce(s->file, s->address.port, s->key);
    bool six = strchr(s->address.host, ':') != NULL;
    snprintf(s->url, sizeof s->url, six ? "tcp://[%s]:%d" : "tcp://%s:%d", s->address.host, s->address.port);
    if (at->any) snprintf(s->address.host, sizeof s->address.host, *at->text == '[' ? "::1" : "127.0.0.1");
    return ERR_NONE;
}

/* Whoever may read a file has the key, and is on this host. */
static enum error store_find_address(struct store *s, const struct store_params *p) {
    static const char tcp[] = "tcp:", file[] = "file:///";
    size_t n = (size_t)snprintf(s->url, sizeof s->url, "%s", p->url ? p->url : "");
    if (n < sizeof s->url && !strncmp(s->url, tcp, sizeof tcp - 1)) {
        TRY(secret_key(p->token ? p->token : "", s->key));
        return address_parse(s->url + sizeof tcp - 1, &s->address);
    }
    if (n >= sizeof s->url || n < sizeof file || strncmp(s->url, file, sizeof file - 1) != 0)
        return FAIL(ERR_CONFIG, "'%.200s' is not a store\nwrite file:///PATH or tcp://HOST:PORT", s->url);
    s->file = s->url + sizeof file - 2;
    s->address = (struct address){.host = "127.0.0.1"};
    return p->serve ? secret_random(s->key) : ERR_NONE;
}

static enum error store_start(struct store *s, const struct store_params *p) {
    int64_t deadline = store_deadline(s, p->timeout);
    TRY(random_bytes(&s->client, sizeof s->client));
    s->timeout = p->timeout;
    snprintf(s->run, sizeof s->run, "%s", p->run ? p->run : "");
    TRY(store_find_address(s, p));
    if (p->serve) TRY(store_serve(s));
    if (!s->file && !s->address.port) return FAIL(ERR_CONFIG, "'%s' names no port", s->url);
    return server_ask(s, NULL, deadline, NULL, NULL);
}

enum error store_open(const struct store_params *p, struct store **out) {
    TRY(params_check(p));
    struct store *s = memory_new(sizeof *s);
    if (!s) return ERR_MEMORY;
    enum error err = store_start(s, p);
    if (err)
        store_close(s);
    else
        *out = s;
    return err;
}

void store_close(struct store *s) {
    if (!s) return;
    visit_free(s->line);
    if (s->file && s->server) file_withdraw(s->file, s->key);
    server_close(s->server);
    memory_free(s);
}

const char *store_url(const struct store *s) {
    return s->url;
}

const char *store_key(const struct store *s) {
    return s->key;
}

bool store_turned_away(struct store *s, char out[128]) {
    return server_turned_away(s->server, out);
}

uint64_t store_member(const struct store *s) {
    return s->client;
}

bool store_sees(struct store *s, uint64_t member) {
    return server_sees(s->server, member);
}
