/* Members of a run meet in a store. Keys begin with the round and with what meets ("try-0.rank"):
 *
 *   .facts     what all must have in common, as the first to come has it
 *   .member.N  who is N, and what the others are given of it; the first to write it is N
 *   .outcome   "ok", or why there is no meeting
 *
 * Everyone (1) compares its facts with the first one's, (2) claims its number, (3) looks who is
 * there, and (4) waits for the outcome. Whoever finds all there at (3), or when the time of (4) is
 * over, writes "ok": the last to claim certainly does, unless it is held up. Whoever finds something wrong at (1) or (2) writes that. The first outcome
 * stands, so that all members, also those that come later, give the same account.
 *
 * All is written by 'swap', and a member that finds its own claim has claimed. So nothing is done
 * twice, however often a request is sent. */
#include "transport/launch/rendezvous.h"
#include "engine/base/clock.h"
#include "engine/base/json.h"
#include "engine/base/log.h"
#include "engine/base/text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

enum { INSTANCE = 17, FIRST_WORD = 2, NEXT_WORD = 5, LINGER = 1 };
static const struct json_limits limits = {.depth = 4, .entries = 1000, .text = STORE_VALUE_MAX};

struct meet {
    const struct rendezvous *r;
    struct pool *pool;       /* for the time of the meeting */
    char instance[INSTANCE]; /* a random number: of this call */
    int64_t began, deadline;
};

static char *key_of(const struct meet *m, const char *name) {
    return pool_printf(m->pool, "%s.%s.%s", m->r->round, m->r->what, name);
}

static char *member_key(const struct meet *m, int index) {
    return pool_printf(m->pool, "%s.%s.member.%d", m->r->round, m->r->what, index);
}

static double seconds_left(const struct meet *m) {
    return clock_seconds(m->deadline - clock_ns());
}

/* ---- what is written ---- */

/* Of this member: its i-th fact, NULL after the last. The number of members is a fact of every meeting. */
static const char *own_fact(const struct meet *m, int i) {
    if (i == 0) return pool_printf(m->pool, "%d", m->r->count);
    return i <= m->r->nfacts ? m->r->facts[i - 1].value : NULL;
}

static void write_facts(const struct meet *m, struct json *j) {
    json_open(j, "facts", '[');
    for (int i = 0; i <= m->r->nfacts; i++) json_string(j, NULL, own_fact(m, i));
    json_close(j, ']');
}

/* {"instance","index","who", and the facts or the member's text}, as text of the pool. */
static enum error member_describe(const struct meet *m, bool facts, char **out) {
    struct json j = {0};
    json_open(&j, NULL, '{');
    json_string(&j, "instance", m->instance);
    json_int(&j, "index", m->r->index);
    json_string(&j, "who", m->r->who);
    if (facts)
        write_facts(m, &j);
    else
        json_string(&j, "text", m->r->text ? m->r->text : "");
    json_close(&j, '}');
    enum error err = json_done(&j);
    *out = err ? NULL : pool_strndup(m->pool, j.text, j.length);
    json_fini(&j);
    return err ? err : *out ? ERR_NONE : ERR_MEMORY;
}

/* ---- what is read: any who holds the token may have written it ---- */

static enum error member_parse(const struct meet *m, const char *text, size_t n, const struct json_value **out) {
    const struct json_value *index;
    enum error err = json_parse(text, n, limits, m->pool, out);
    if (err) return error_prefix(err, "what another %s left in the store: ", m->r->what);
    index = json_get(*out, "index");
    if (!json_get_text(*out, "instance") || !json_get_text(*out, "who") || !index || !index->is_integer)
        return FAIL(ERR_DATA, "what another %s left in the store makes no sense", m->r->what);
    return ERR_NONE;
}

/* ---- outcomes ---- */

/* "ok", or the reason, which is an error here too. own: what this member has to say where all
 * others have met already. */
static enum error outcome_heed(const char *outcome, const char *own) {
    if (strcmp(outcome, "ok")) return FAIL(ERR_MISMATCH, "%s", outcome);
    return own ? FAIL(ERR_MISMATCH, "%s", own) : ERR_NONE;
}

static enum error outcome_settle(const struct meet *m, const char *outcome, const char *own) {
    char *key = key_of(m, "outcome"), *now;
    bool first;
    if (!key || !outcome) return ERR_MEMORY;
    TRY(store_swap(m->r->store, key, NULL, outcome, m->pool, &first, &now));
    return now ? outcome_heed(now, own) : FAIL(ERR_DATA, "the store lost the key '%s'", key);
}

static enum error meeting_refuse(const struct meet *m, const char *why) {
    return outcome_settle(m, why, why);
}

/* ---- (1) facts ---- */

static const char *fact_name(const struct meet *m, int i) {
    if (i == 0) return pool_printf(m->pool, "number of %ss", m->r->what);
    return i <= m->r->nfacts ? m->r->facts[i - 1].name : "list of facts";
}

static enum error refuse_fact(const struct meet *m, const struct json_value *first, int i, const char *mine,
                              const char *theirs) {
    const struct rendezvous *r = m->r;
    return meeting_refuse(
        m, pool_printf(m->pool,
                       "%s %d (%.100s) has another %s: %.200s, but %s %lld (%.100s) %.200s\n"
                       "all must have the same; a key, such as threads, is set by --set KEY=VALUE on each",
                       r->what, r->index, r->who, fact_name(m, i), mine, r->what,
                       (long long)json_get(first, "index")->integer, json_get_text(first, "who"), theirs));
}

static enum error compare_facts(const struct meet *m, const char *first) {
    const struct json_value *v;
    TRY(member_parse(m, first, strlen(first), &v));
    const struct json_value *their = json_get(v, "facts");
    if (!their || their->kind != JSON_ARRAY)
        return FAIL(ERR_DATA, "what the first %s left in the store makes no sense", m->r->what);
    for (int i = 0; i <= m->r->nfacts || i < their->count; i++) {
        const char *x = own_fact(m, i), *y = i < their->count ? their->children[i].text : NULL;
        if (!x || !y || strcmp(x, y)) return refuse_fact(m, v, i, x ? x : "none", y ? y : "none");
    }
    return ERR_NONE;
}

static enum error check_facts(const struct meet *m) {
    char *key = key_of(m, "facts"), *mine, *now;
    bool first;
    if (!key) return ERR_MEMORY;
    TRY(member_describe(m, true, &mine));
    TRY(store_swap(m->r->store, key, NULL, mine, m->pool, &first, &now));
    return first || !now ? ERR_NONE : compare_facts(m, now);
}

/* ---- (2) the number ---- */

static enum error number_claim(const struct meet *m) {
    const struct rendezvous *r = m->r;
    const struct json_value *other;
    char *key = member_key(m, r->index), *mine, *now;
    bool first;
    if (!key) return ERR_MEMORY;
    TRY(member_describe(m, false, &mine));
    TRY(store_swap(r->store, key, NULL, mine, m->pool, &first, &now));
    if (first || !now) return ERR_NONE;
    TRY(member_parse(m, now, strlen(now), &other));
    if (!strcmp(json_get_text(other, "instance"), m->instance)) return ERR_NONE;
    return meeting_refuse(m, pool_printf(m->pool, "two have come as %s %d: %.100s, and %.100s", r->what, r->index,
                                         json_get_text(other, "who"), r->who));
}

/* ---- (3) who is there ---- */

/* The numbers of those who have not come, as text ("2, 3"); *missing is how many they are. */
static enum error look_around(const struct meet *m, char **numbers, int *missing) {
    const char *prefix = key_of(m, "member.");
    char **keys, *text = pool_strndup(m->pool, "", 0);
    bool *there = pool_alloc(m->pool, (size_t)m->r->count);
    int n;
    if (!prefix || !there || !text) return ERR_MEMORY;
    TRY(store_list(m->r->store, prefix, m->pool, &keys, &n));
    for (int i = 0; i < n; i++) {
        int64_t index;
        if (text_int(keys[i] + strlen(prefix), &index) && index >= 0 && index < m->r->count) there[index] = true;
    }
    *missing = 0;
    for (int i = 0; i < m->r->count; i++) {
        if (there[i] || ++*missing > 16) continue; /* that many are named */
        text = pool_printf(m->pool, "%s%s%d", text, *text ? ", " : "", i);
        if (!text) return ERR_MEMORY;
    }
    if (*missing > 16) text = pool_printf(m->pool, "%s and %d more", text, *missing - 16);
    *numbers = text;
    return text ? ERR_NONE : ERR_MEMORY;
}

/* ---- (4) the outcome ---- */

static enum error waiting_tell(const struct meet *m) {
    char *numbers, time[32];
    int missing;
    TRY(look_around(m, &numbers, &missing));
    if (!missing) return ERR_NONE;
    const char *text = pool_printf(m->pool, "waiting for %s%s %s of %d (%s)", m->r->what, missing > 1 ? "s" : "",
                                   numbers, m->r->count, text_of_seconds(clock_seconds(clock_ns() - m->began), time));
    if (!text) return ERR_MEMORY;
    if (m->r->waiting)
        m->r->waiting(m->r->user, text);
    else
        log_info("%s", text);
    return ERR_NONE;
}

/* Who was turned away may be the one who is missed. */
static const char *turned_away(const struct meet *m) {
    char who[128];
    if (!store_turned_away(m->r->store, who)) return "";
    const char *text = pool_printf(m->pool, " (turned away: %s)", who);
    return text ? text : "";
}

/* The time is over. Where all have come, the last of them was held up before it could write the outcome. */
static enum error settle_late(const struct meet *m) {
    char *numbers, time[32];
    int missing;
    text_of_seconds(m->r->timeout, time);
    /* who serves the store may have given up a little before */
    if (look_around(m, &numbers, &missing) != ERR_NONE)
        return error_prefix(ERR_TIMEOUT, "the %d %ss have not all come within %s: ", m->r->count, m->r->what, time);
    if (!missing) return outcome_settle(m, "ok", NULL);
    return FAIL(ERR_TIMEOUT, "%s%s %s of %d %s not come within %s%s\nhave all been started, with the same address%s?",
                m->r->what, missing > 1 ? "s" : "", numbers, m->r->count, missing > 1 ? "have" : "has", time,
                turned_away(m), *turned_away(m) ? " and the same ENGINE_TOKEN" : "");
}

/* Waits in pieces, between which there is a word of who is awaited. */
static enum error await_outcome(const struct meet *m) {
    const char *key = key_of(m, "outcome");
    double word = FIRST_WORD, left;
    if (!key) return ERR_MEMORY;
    while ((left = seconds_left(m)) > 0) {
        double until = word - clock_seconds(clock_ns() - m->began);
        char *outcome;
        size_t n;
        enum error err = store_get(m->r->store, key,
                                   left < until ? left
                                   : until > 0  ? until
                                                : 0.01,
                                   m->pool, &outcome, &n);
        if (!err) return outcome_heed(outcome, NULL);
        if (err != ERR_TIMEOUT) return err;
        if (seconds_left(m) <= 0) break;
        TRY(waiting_tell(m));
        word += NEXT_WORD;
    }
    return settle_late(m);
}

/* ---- what the others are ---- */

static enum error read_member(const struct meet *m, int index, struct pool *pool, struct attendant *out) {
    const struct json_value *v;
    const char *key = member_key(m, index), *told;
    char *text;
    size_t n;
    if (!key) return ERR_MEMORY;
    TRY(store_find(m->r->store, key, m->pool, &text, &n));
    if (!text) return FAIL(ERR_DATA, "the store lost the key '%s'", key);
    TRY(member_parse(m, text, n, &v));
    snprintf(out->who, sizeof out->who, "%s", json_get_text(v, "who"));
    told = json_get_text(v, "text");
    if (!told) return FAIL(ERR_DATA, "what %s %d left in the store makes no sense", m->r->what, index);
    out->text = pool_strndup(pool, told, strlen(told));
    return out->text ? ERR_NONE : ERR_MEMORY;
}

/* ---- the whole ---- */

static enum error rendezvous_check(const struct rendezvous *r) {
    if (r->count < 1 || r->index < 0 || r->index >= r->count)
        return FAIL(ERR_CONFIG, "%s %d of %d: there is none", r->what, r->index, r->count);
    return ERR_NONE;
}

static enum error rendezvous_run(const struct meet *m, struct pool *pool, struct attendant **all) {
    char *numbers;
    int missing;
    TRY(check_facts(m));
    TRY(number_claim(m));
    TRY(look_around(m, &numbers, &missing));
    if (missing)
        TRY(await_outcome(m));
    else
        TRY(outcome_settle(m, "ok", NULL));
    *all = pool_alloc(pool, (size_t)m->r->count * sizeof **all);
    if (!*all) return ERR_MEMORY;
    for (int i = 0; i < m->r->count; i++) TRY(read_member(m, i, pool, &(*all)[i]));
    return ERR_NONE;
}

enum error rendezvous_meet(const struct rendezvous *r, struct pool *pool, struct attendant **all) {
    struct meet m = {.r = r, .began = clock_ns()};
    uint64_t random;
    TRY(rendezvous_check(r));
    if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random)
        return FAIL(ERR_IO, "no random numbers: %s", strerror(errno));
    snprintf(m.instance, sizeof m.instance, "%016llx", (unsigned long long)random);
    m.deadline = m.began + (int64_t)((r->timeout < 1e9 ? r->timeout : 1e9) * 1e9);
    TRY(pool_create(&m.pool));
    enum error err = rendezvous_run(&m, pool, all);
    if (err && r->keeps) nanosleep(&(struct timespec){.tv_sec = LINGER}, NULL);
    pool_free(m.pool);
    return err;
}
