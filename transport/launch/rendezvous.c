/* Members of a run meet in a store. Each says who it is, what the others are given of it, and the facts that all must
 * have in common; it answers all alike (attendance.c): with the roster once all have come, or with why nobody
 * meets. So it is one request and one answer for each, which is asked again now and then: a member that waits says who
 * is missing. */
#include "transport/launch/rendezvous.h"
#include "engine/base/clock.h"
#include "engine/base/file.h"
#include "engine/base/log.h"
#include "engine/base/text.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { NUMBERS = 128, FIRST_WORD_S = 2, NEXT_WORD_S = 5, LINGER_S = 1 };

struct meet {
    const struct rendezvous *r;
    struct pool *pool; /* for the time of the meeting */
    struct store_coming coming;
    int64_t began, deadline;
};

static double seconds_left(const struct meet *m) {
    return clock_seconds(m->deadline - clock_ns());
}

/* The number of a member in messages. */
static int member_number(const struct rendezvous *r, int index) {
    return r->names ? r->names[index] : index;
}

/* ---- what this member says ---- */

static void text_write(FILE *to, const char *text) {
    fwrite(text, 1, strlen(text) + 1, to);
}

static enum error words_write(struct meet *m) {
    static atomic_uint comings; /* of this process, which may come to several meetings in one store */
    const struct rendezvous *r = m->r;
    struct store_words head = {.instance = store_member(r->store) + atomic_fetch_add(&comings, 1),
                               .index = (uint32_t)r->index,
                               .count = (uint32_t)r->count,
                               .number = (uint32_t)member_number(r, r->index)};
    struct file_text t;
    TRY(file_text_open(&t));
    fwrite(&head, 1, sizeof head, t.out);
    text_write(t.out, r->who);
    text_write(t.out, r->text ? r->text : "");
    fprintf(t.out, "number of %ss%c%d%c", r->what, '\0', r->count, '\0');
    for (int i = 0; i < r->nfacts; i++) {
        text_write(t.out, r->facts[i].name);
        text_write(t.out, r->facts[i].value);
    }
    m->coming.words = file_text_keep(&t, m->pool);
    m->coming.n = t.n;
    return m->coming.words ? ERR_NONE : ERR_MEMORY;
}

/* ---- who is missing ---- */

/* "ranks 2, 3", "ranks 1, 3, ... (40)": those whose bit is not set. */
static enum error missing_name(const struct meet *m, const struct store_meeting *met, char out[NUMBERS],
                               bool *several) {
    const struct rendezvous *r = m->r;
    int *absent = pool_alloc(m->pool, (size_t)r->count * sizeof *absent), missing = 0;
    char numbers[NUMBERS - 32];
    if (!absent) return ERR_MEMORY;
    for (int i = 0; i < r->count; i++)
        if ((size_t)i / 8 >= met->n || !(met->text[i / 8] >> i % 8 & 1)) absent[missing++] = member_number(r, i);
    text_of_numbers(absent, missing, numbers, sizeof numbers);
    size_t n = strlen(numbers);
    *several = missing != 1;
    snprintf(out, NUMBERS, "%s%s %s", r->what, *several ? "s" : "", numbers);
    if (n && numbers[n - 1] == '.') text_append(out, NUMBERS, " (%d)", missing);
    return ERR_NONE;
}

static enum error waiting_tell(const struct meet *m, const struct store_meeting *met) {
    char missing[NUMBERS], time[32];
    bool several;
    TRY(missing_name(m, met, missing, &several));
    log_info("waiting for %s of %d (%s)", missing, m->r->count,
             text_of_seconds(clock_seconds(clock_ns() - m->began), time));
    return ERR_NONE;
}

/* Who was turned away may be the one who is missed. */
static enum error fail_late(const struct meet *m, const struct store_meeting *met) {
    char missing[NUMBERS], who[128], time[32];
    bool several, turned_away = store_turned_away(m->r->store, who);
    TRY(missing_name(m, met, missing, &several));
    return FAIL(ERR_TIMEOUT, "%s of %d %s not come within %s%s%s%s\nhave all been started, with the same address%s?",
                missing, m->r->count, several ? "have" : "has", text_of_seconds(m->r->timeout, time),
                turned_away ? " (turned away: " : "", turned_away ? who : "", turned_away ? ")" : "",
                turned_away ? " and the same ENGINE_TOKEN" : "");
}

/* ---- the outcome ---- */

/* Asks in turns, after each of which there is a word of who is awaited. */
static enum error outcome_await(struct meet *m, struct store_meeting *met) {
    double word = FIRST_WORD_S, left, until;
    char time[32];
    for (;; word += NEXT_WORD_S) {
        left = seconds_left(m), until = word - clock_seconds(clock_ns() - m->began);
        m->coming.timeout = fmax(fmin(left, until), 0.01);
        enum error err = store_meet(m->r->store, &m->coming, m->pool, met);
        if (err && err != ERR_TIMEOUT) return err;
        if (!err && met->met == STORE_REFUSED) return FAIL(ERR_MISMATCH, "%s", met->text);
        if (!err && met->met == STORE_MET) return ERR_NONE;
        bool over = seconds_left(m) <= 0;
        if (err && over) /* the member that serves the store may have given up a little before */
            return error_prefix(err, "the %d %ss have not all come within %s: ", m->r->count, m->r->what,
                                text_of_seconds(m->r->timeout, time));
        if (over) return fail_late(m, met);
        if (!err) TRY(waiting_tell(m, met));
    }
}

/* The texts of all, each ended by a 0 byte, whatever came. */
static enum error roster_read(const struct meet *m, const struct store_meeting *met, struct pool *pool,
                              struct attendant **all) {
    struct attendant *of = pool_alloc(pool, (size_t)m->r->count * sizeof *of);
    const char *at = pool_strndup(pool, met->text, met->n);
    if (!of || !at) return ERR_MEMORY;
    const char *end = at + met->n;
    for (int i = 0; i < m->r->count; i++) {
        const char *text = at < end ? at + strlen(at) + 1 : end;
        if (text >= end)
            return FAIL(ERR_DATA, "the list of %ss in the store ends at %d of %d", m->r->what, i, m->r->count);
        snprintf(of[i].who, sizeof of[i].who, "%s", at);
        of[i].text = text;
        at = text + strlen(text) + 1;
    }
    *all = of;
    return ERR_NONE;
}

/* ---- the whole ---- */

static enum error rendezvous_run(struct meet *m, struct pool *pool, struct attendant **all) {
    struct store_meeting met;
    TRY_MEMORY(m->coming.name = pool_printf(m->pool, "%s.%s", m->r->round, m->r->what));
    TRY(words_write(m));
    TRY(outcome_await(m, &met));
    return roster_read(m, &met, pool, all);
}

enum error rendezvous_meet(const struct rendezvous *r, struct pool *pool, struct attendant **all) {
    struct meet m = {.r = r, .began = clock_ns()};
    if (r->count < 1 || r->index < 0 || r->index >= r->count)
        return FAIL(ERR_CONFIG, "%s %d of %d: there is none", r->what, r->index, r->count);
    m.deadline = clock_after(r->timeout);
    TRY(pool_create(&m.pool));
    enum error err = rendezvous_run(&m, pool, all);
    if (err && r->keeps) clock_nap(LINGER_S * 1000000000LL);
    pool_free(m.pool);
    return err;
}
