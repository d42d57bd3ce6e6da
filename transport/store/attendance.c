/* Meetings in the table of a store. The keys of one begin with its name:
 *
 *   .first     the words of the first that came, with whose facts those of all others must agree
 *   .member.I  the words of member I; the first that comes under a number has it
 *   .roster    once all have come: of each who it is and what it gives
 *   .refusal   why nobody meets
 *
 * The first outcome stands, roster or refusal, so that all members give the same account, also those that come later. */
#include "transport/store/table.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MEMBERS_MAX = 1 << 20, KEY_ROOM = STORE_KEY_MAX + 32 };

struct words {
    struct store_words head;
    const char *who, *given, *facts, *end; /* who it is, what it gives; names and values, to the end */
};

static const char *text_next(const char *text) {
    return text + strlen(text) + 1;
}

static bool words_read(struct bytes from, struct words *out) {
    const char *bytes = from.at;
    if (from.n <= sizeof out->head || from.n > STORE_VALUE_MAX || bytes[from.n - 1]) return false;
    memcpy(&out->head, bytes, sizeof out->head);
    out->who = bytes + sizeof out->head;
    out->end = bytes + from.n;
    int texts = 0;
    for (const char *at = out->who; at < out->end; at = text_next(at)) texts++;
    if (texts < 2 || texts % 2) return false;
    out->given = text_next(out->who);
    out->facts = text_next(out->given);
    return out->head.count <= MEMBERS_MAX && out->head.index < out->head.count;
}

bool attendance_understands(struct bytes words) {
    struct words w;
    return words_read(words, &w);
}

static const char *meeting_key(char key[KEY_ROOM], const char *name, const char *what) {
    snprintf(key, KEY_ROOM, "%.*s.%s", STORE_KEY_MAX, name, what);
    return key;
}

static const char *member_key(char key[KEY_ROOM], const char *name, unsigned index) {
    snprintf(key, KEY_ROOM, "%.*s.member.%07u", STORE_KEY_MAX, name, index);
    return key;
}

/* "rank" of "round-0.rank". */
static const char *meeting_what(const char *name) {
    const char *dot = strrchr(name, '.');
    return dot ? dot + 1 : name;
}

/* ---- what is wrong with a member ---- */

__attribute__((format(printf, 2, 3))) static enum answer_status member_refuse(struct store_table *t, const char *fmt,
                                                                              ...) {
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(table_page(t), TABLE_PAGE, fmt, ap);
    va_end(ap);
    return ANSWER_REFUSED;
}

/* Whoever came first is right, so that all give the same account. */
static enum answer_status facts_check(struct store_table *t, const struct request *q, const struct words *mine) {
    const char *what = meeting_what(q->key), *x = mine->facts, *y;
    char key[KEY_ROOM];
    struct words first;
    struct bytes there = table_find(t, meeting_key(key, q->key, "first"));
    if (!there.at) return table_put(t, key, q->value);
    if (!words_read(there, &first)) return member_refuse(t, "what the first %s left in the store makes no sense", what);
    for (y = first.facts; x < mine->end || y < first.end;) {
        const char *fact = x < mine->end ? x : y, *here = x < mine->end ? text_next(x) : "none",
                   *theirs = y < first.end ? text_next(y) : "none";
        if (x == mine->end || y == first.end || strcmp(x, y) || strcmp(here, theirs))
            return member_refuse(t,
                                 "%s %u (%.100s) has another %.100s: %.200s, but %s %u (%.100s) %.200s\n"
                                 "all must have the same; a key, such as threads, is set by --set KEY=VALUE on each",
                                 what, mine->head.number, mine->who, fact, here, what, first.head.number, first.who,
                                 theirs);
        x = text_next(here), y = text_next(theirs);
    }
    return ANSWER_OK;
}

static enum answer_status number_claim(struct store_table *t, const struct request *q, const struct words *mine) {
    const char *what = meeting_what(q->key);
    char key[KEY_ROOM];
    struct words other;
    struct bytes there = table_find(t, member_key(key, q->key, mine->head.index));
    if (!there.at) return table_put(t, key, q->value);
    if (!words_read(there, &other)) return member_refuse(t, "what another %s left in the store makes no sense", what);
    if (other.head.instance == mine->head.instance) return ANSWER_OK;
    return member_refuse(t, "two have come as %s %u: %.100s, and %.100s", what, mine->head.number, other.who,
                         mine->who);
}

/* ---- the outcome ---- */

/* Of the members that follow each other in the table from the first one on. */
static enum answer_status roster_write(struct store_table *t, const char *name, int first, int count) {
    char key[KEY_ROOM];
    struct bytes value;
    struct words w;
    size_t room = 0, n = 0;
    for (int i = 0; i < count; i++) table_at(t, first + i, &value), room += value.n;
    char *text = malloc(room);
    if (!text) return ANSWER_MEMORY;
    for (int i = 0; i < count; i++) {
        table_at(t, first + i, &value);
        if (!words_read(value, &w)) continue;
        memcpy(text + n, w.who, (size_t)(w.facts - w.who));
        n += (size_t)(w.facts - w.who);
    }
    enum answer_status status =
        n <= STORE_VALUE_MAX ? table_put(t, meeting_key(key, name, "roster"), (struct bytes){text, n})
                             : member_refuse(t, "the list of all %ss has %zu bytes, and a store gives at most %d",
                                             meeting_what(name), n, STORE_VALUE_MAX);
    free(text);
    return status;
}

/* A bit of each member, which is set where it has come. */
static struct bytes those_here(struct store_table *t, const char *prefix, unsigned members) {
    char *bits = table_page(t);
    struct bytes value, out = {bits, (members + 7) / 8};
    int count, first = table_range(t, prefix, &count);
    memset(bits, 0, out.n);
    for (int i = 0; i < count; i++) {
        unsigned long index = strtoul(table_at(t, first + i, &value) + strlen(prefix), NULL, 10);
        if (index < members) bits[index / 8] |= (char)(1 << index % 8);
    }
    return out;
}

/* The roster, which the last to come completes; before that, who is there. */
static void outcome_give(struct store_table *t, const struct request *q, unsigned members, struct store_answer *a) {
    char key[KEY_ROOM], prefix[KEY_ROOM];
    int count, first = table_range(t, meeting_key(prefix, q->key, "member."), &count);
    struct bytes roster = table_find(t, meeting_key(key, q->key, "roster"));
    a->changed = !roster.at && count == (int)members;
    if (a->changed) a->status = roster_write(t, q->key, first, count);
    if (a->changed) roster = table_find(t, key);
    a->value = roster;
    if (roster.at || a->status) return;
    a->status = ANSWER_NOT_THERE;
    a->value = those_here(t, prefix, members);
}

void attendance_take(struct store_table *t, const struct request *q, struct store_answer *a) {
    char roster[KEY_ROOM], refusal[KEY_ROOM];
    struct words mine;
    *a = (struct store_answer){0};
    if (!words_read(q->value, &mine)) return;
    a->value = table_find(t, meeting_key(refusal, q->key, "refusal"));
    a->status = a->value.at ? ANSWER_REFUSED : facts_check(t, q, &mine);
    if (!a->status) a->status = number_claim(t, q, &mine);
    if (!a->status) outcome_give(t, q, mine.head.count, a);
    if (a->status != ANSWER_REFUSED || a->value.at) return;
    a->value = (struct bytes){table_page(t), strlen(table_page(t))};
    a->changed = !table_find(t, meeting_key(roster, q->key, "roster")).at;
    if (a->changed) (void)table_put(t, refusal, a->value); /* where all others have met, they stay so */
}
