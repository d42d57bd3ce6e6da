/* Members of a run meet in a store. Keys begin with the round and with what meets ("try-0.rank"):
 *
 *   .facts     what all must have in common, as the first to come has it
 *   .member.N  who is N, and what the others are given of it; the first to write it is N
 *   .count     how many have claimed a number
 *   .roster.K  the K-th piece of what all members are and give
 *   .outcome   "ok" with the number of pieces, or why there is no meeting
 *   .waiting   who is missing, as a member has seen it
 *
 * Every member (1) compares its facts with the first one's, (2) claims its number, (3) is counted, (4) waits for the
 * outcome, and (5) reads the roster: five requests, however many members there are. The last one that is counted reads
 * all claims, writes the roster, and then "ok". It may be held up, as may one between (2) and (3): then whoever finds
 * that all have claimed their numbers does the same, with the same bytes. Whoever finds something wrong at (1) or (2)
 * writes that as the outcome. The first outcome stands, so that all members, also those that come later, give the same
 * account.
 *
 * Facts, claims and the outcome are written by 'swap', and a member that finds its own claim has claimed. The count
 * only says when it is worth looking, so nothing goes wrong if a member is counted twice or never.
 *
 * While they wait, one of them, the first to come, lists the claims every few seconds and writes who is missing; the
 * others read that. If it has written nothing new between two looks, one of the others takes its place. */
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

enum { INSTANCE = 17, NUMBERS = 128, FIRST_WORD = 2, NEXT_WORD = 5, LINGER = 1 };
static const struct json_limits limits = {.depth = 4, .entries = 1000, .text = STORE_VALUE_MAX};

struct meet {
    const struct rendezvous *r;
    struct pool *pool;       /* for the time of the meeting */
    char instance[INSTANCE]; /* a random number: of this call */
    int64_t began, deadline;
    bool lists;        /* who is missing, for the others */
    const char *heard; /* what another has written of that last; NULL: nothing */
};

static char *key_of(const struct meet *m, const char *name) {
    return pool_printf(m->pool, "%s.%s.%s", m->r->round, m->r->what, name);
}

static char *member_key(const struct meet *m, int index) {
    return pool_printf(m->pool, "%s.%s.member.%d", m->r->round, m->r->what, index);
}

static char *piece_key(const struct meet *m, int piece) {
    return pool_printf(m->pool, "%s.%s.roster.%d", m->r->round, m->r->what, piece);
}

/* The number of a member in messages. */
static int name_of(const struct meet *m, int index) {
    return m->r->names ? m->r->names[index] : index;
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
    struct json j;
    json_init(&j);
    json_open(&j, NULL, '{');
    json_string(&j, "instance", m->instance);
    json_int(&j, "index", name_of(m, m->r->index));
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

static const char OK[] = "ok ";

/* "ok" with the number of the roster's pieces, or the reason why there is no meeting, which is an error here too. */
static enum error outcome_heed(const struct meet *m, const char *outcome, int *pieces) {
    if (strncmp(outcome, OK, strlen(OK))) return FAIL(ERR_MISMATCH, "%s", outcome);
    *pieces = atoi(outcome + strlen(OK));
    if (*pieces >= 1 && *pieces <= 2 * m->r->count) return ERR_NONE;
    return FAIL(ERR_DATA, "the outcome of the meeting makes no sense: '%.32s'", outcome);
}

/* Writes the outcome, unless there is one. *now is the one that stands. */
static enum error outcome_settle(const struct meet *m, const char *outcome, char **now) {
    char *key = key_of(m, "outcome");
    bool first;
    if (!key || !outcome) return ERR_MEMORY;
    TRY(store_swap(m->r->store, key, NULL, outcome, m->pool, &first, now));
    return *now ? ERR_NONE : FAIL(ERR_DATA, "the store lost the key '%s'", key);
}

/* Where all others have met already, the reason is this member's alone. */
static enum error meeting_refuse(const struct meet *m, const char *why) {
    char *now;
    TRY(outcome_settle(m, why, &now));
    return FAIL(ERR_MISMATCH, "%s", strncmp(now, OK, strlen(OK)) ? now : why);
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
                       r->what, name_of(m, r->index), r->who, fact_name(m, i), mine, r->what,
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

static enum error check_facts(struct meet *m) {
    char *key = key_of(m, "facts"), *mine, *now;
    if (!key) return ERR_MEMORY;
    TRY(member_describe(m, true, &mine));
    TRY(store_swap(m->r->store, key, NULL, mine, m->pool, &m->lists, &now));
    return m->lists || !now ? ERR_NONE : compare_facts(m, now);
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
    return meeting_refuse(m, pool_printf(m->pool, "two have come as %s %d: %.100s, and %.100s", r->what,
                                         name_of(m, r->index), json_get_text(other, "who"), r->who));
}

/* ---- (3) the roster: of each member who it is and what it gives, as two texts with their 0 bytes ---- */

static enum error claim_copy(const struct meet *m, int index, FILE *to, bool *there) {
    const struct json_value *v;
    const char *key = member_key(m, index), *who, *given;
    char *text;
    size_t n;
    if (!key) return ERR_MEMORY;
    TRY(store_find(m->r->store, key, m->pool, &text, &n));
    *there = text != NULL;
    if (!text) return ERR_NONE;
    TRY(member_parse(m, text, n, &v));
    who = json_get_text(v, "who"), given = json_get_text(v, "text");
    if (!given) return FAIL(ERR_DATA, "what %s %d left in the store makes no sense", m->r->what, name_of(m, index));
    fwrite(who, 1, strlen(who) + 1, to);
    fwrite(given, 1, strlen(given) + 1, to);
    return ERR_NONE;
}

static enum error piece_write(const struct meet *m, int piece, const char *text, size_t n) {
    char *key = piece_key(m, piece);
    return key ? store_set(m->r->store, key, text, n) : ERR_MEMORY;
}

/* *all is false where one has not claimed its number. */
static enum error roster_write(const struct meet *m, int *pieces, bool *all) {
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    enum error err = f ? ERR_NONE : ERR_MEMORY;
    *all = true, *pieces = 0;
    for (int i = 0; i < m->r->count && *all && !err; i++) err = claim_copy(m, i, f, all);
    if (f && fclose(f) != 0 && !err) err = ERR_MEMORY;
    for (size_t at = 0; at < n && *all && !err; at += STORE_VALUE_MAX, ++*pieces)
        err = piece_write(m, *pieces, text + at, n - at < STORE_VALUE_MAX ? n - at : STORE_VALUE_MAX);
    free(text);
    return err;
}

/* *pieces stays 0 where one has not claimed its number. A claim that makes no sense ends the meeting for all. */
static enum error meeting_complete(const struct meet *m, int *pieces) {
    char *now;
    bool all;
    enum error err = roster_write(m, pieces, &all);
    if (err == ERR_DATA) return meeting_refuse(m, pool_printf(m->pool, "%s", error_message()));
    TRY(err);
    if (!all) return ERR_NONE;
    TRY(outcome_settle(m, pool_printf(m->pool, "%s%d", OK, *pieces), &now));
    return outcome_heed(m, now, pieces);
}

/* The text at *at, which then is what follows it; "" after the last. false: it does not end. */
static bool text_take(const char **at, const char *end, const char **out) {
    const char *zero = memchr(*at, '\0', (size_t)(end - *at));
    *out = *at;
    if (zero) *at = zero + 1;
    return zero != NULL;
}

static enum error piece_join(const struct meet *m, int piece, struct pool *pool, char **text, size_t *n) {
    const char *key = piece_key(m, piece);
    char *part, *both;
    size_t more;
    if (!key) return ERR_MEMORY;
    TRY(store_get(m->r->store, key, 0, m->pool, &part, &more));
    both = pool_alloc(pool, *n + more);
    if (!both) return ERR_MEMORY;
    if (*n) memcpy(both, *text, *n);
    memcpy(both + *n, part, more);
    *text = both, *n += more;
    return ERR_NONE;
}

static enum error roster_read(const struct meet *m, int pieces, struct pool *pool, struct attendant **all) {
    char *text = NULL;
    size_t n = 0;
    struct attendant *out = pool_alloc(pool, (size_t)m->r->count * sizeof *out);
    if (!out) return ERR_MEMORY;
    for (int i = 0; i < pieces; i++) TRY(piece_join(m, i, pool, &text, &n));
    const char *at = text, *end = text + n, *who;
    for (int i = 0; i < m->r->count; i++) {
        if (!text_take(&at, end, &who) || !text_take(&at, end, &out[i].text))
            return FAIL(ERR_DATA, "the list of %ss in the store ends at %d of %d", m->r->what, i, m->r->count);
        snprintf(out[i].who, sizeof out[i].who, "%s", who);
    }
    *all = out;
    return ERR_NONE;
}

/* ---- (4) the outcome ---- */

/* The numbers of those who have not come, as text ("2, 3", "1, 3, ... (40)"); *missing is how many they are. */
static enum error look_around(const struct meet *m, char numbers[NUMBERS], int *missing) {
    const char *prefix = key_of(m, "member.");
    char **keys;
    bool *there = pool_alloc(m->pool, (size_t)m->r->count);
    int *absent = pool_alloc(m->pool, (size_t)m->r->count * sizeof *absent), n;
    if (!prefix || !there || !absent) return ERR_MEMORY;
    TRY(store_list(m->r->store, prefix, m->pool, &keys, &n));
    for (int i = 0; i < n; i++) {
        int64_t index;
        if (text_int(keys[i] + strlen(prefix), &index) && index >= 0 && index < m->r->count) there[index] = true;
    }
    *missing = 0;
    for (int i = 0; i < m->r->count; i++)
        if (!there[i]) absent[(*missing)++] = name_of(m, i);
    text_of_numbers(absent, *missing, numbers, NUMBERS - 16);
    size_t length = strlen(numbers);
    if (length && numbers[length - 1] == '.') snprintf(numbers + length, 16, " (%d)", *missing);
    return ERR_NONE;
}

/* This member lists, and writes what it sees after the time, by which it is new to the others. */
static enum error list_missing(const struct meet *m, const char *key, const char **out, int *pieces) {
    char numbers[NUMBERS];
    int missing;
    TRY(look_around(m, numbers, &missing));
    if (!missing) return meeting_complete(m, pieces);
    *out = pool_printf(m->pool, "%s%s %s of %d", m->r->what, missing > 1 ? "s" : "", numbers, m->r->count);
    const char *text = *out ? pool_printf(m->pool, "%lld %s", (long long)clock_ns(), *out) : NULL;
    return text ? store_set(m->r->store, key, text, strlen(text)) : ERR_MEMORY;
}

/* "ranks 2, 3 of 4", NULL where nothing is known of it. */
static enum error find_missing(struct meet *m, const char **out, int *pieces) {
    const char *key = key_of(m, "waiting");
    char *now = NULL;
    size_t n;
    *out = NULL;
    if (!key) return ERR_MEMORY;
    if (!m->lists) TRY(store_find(m->r->store, key, m->pool, &now, &n));
    if (!m->lists && (now && m->heard ? !strcmp(now, m->heard) : now == m->heard)) {
        const char *mine = pool_printf(m->pool, "%s", m->instance);
        if (!mine) return ERR_MEMORY;
        TRY(store_swap(m->r->store, key, now, mine, m->pool, &m->lists, &now));
    }
    if (m->lists) return list_missing(m, key, out, pieces);
    m->heard = now;
    const char *space = now ? strchr(now, ' ') : NULL;
    if (space) *out = pool_printf(m->pool, "%.*s", NUMBERS, space + 1);
    return ERR_NONE;
}

/* *pieces becomes more than 0 where nobody is missing. */
static enum error waiting_tell(struct meet *m, int *pieces) {
    const char *missing;
    char time[32];
    TRY(find_missing(m, &missing, pieces));
    if (!missing) return ERR_NONE;
    const char *text = pool_printf(m->pool, "waiting for %s (%s)", missing,
                                   text_of_seconds(clock_seconds(clock_ns() - m->began), time));
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
static enum error settle_late(const struct meet *m, int *pieces) {
    char numbers[NUMBERS], time[32];
    int missing;
    text_of_seconds(m->r->timeout, time);
    /* who serves the store may have given up a little before */
    if (look_around(m, numbers, &missing) != ERR_NONE)
        return error_prefix(ERR_TIMEOUT, "the %d %ss have not all come within %s: ", m->r->count, m->r->what, time);
    if (!missing) return meeting_complete(m, pieces);
    return FAIL(ERR_TIMEOUT, "%s%s %s of %d %s not come within %s%s\nhave all been started, with the same address%s?",
                m->r->what, missing > 1 ? "s" : "", numbers, m->r->count, missing > 1 ? "have" : "has", time,
                turned_away(m), *turned_away(m) ? " and the same ENGINE_TOKEN" : "");
}

/* Waits in pieces, between which there is a word of who is awaited. */
static enum error await_outcome(struct meet *m, int *pieces) {
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
        if (!err) return outcome_heed(m, outcome, pieces);
        if (err != ERR_TIMEOUT) return err;
        if (seconds_left(m) <= 0) break;
        TRY(waiting_tell(m, pieces));
        if (*pieces) return ERR_NONE;
        word += NEXT_WORD;
    }
    return settle_late(m, pieces);
}

/* ---- the whole ---- */

static enum error rendezvous_check(const struct rendezvous *r) {
    if (r->count < 1 || r->index < 0 || r->index >= r->count)
        return FAIL(ERR_CONFIG, "%s %d of %d: there is none", r->what, r->index, r->count);
    return ERR_NONE;
}

static enum error rendezvous_run(struct meet *m, struct pool *pool, struct attendant **all) {
    int64_t come;
    int pieces = 0;
    TRY(check_facts(m));
    TRY(number_claim(m));
    const char *key = key_of(m, "count");
    if (!key) return ERR_MEMORY;
    TRY(store_add(m->r->store, key, 1, &come));
    if (come == m->r->count) TRY(meeting_complete(m, &pieces));
    if (!pieces) TRY(await_outcome(m, &pieces));
    return roster_read(m, pieces, pool, all);
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
