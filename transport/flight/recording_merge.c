/* The report of where the ranks of a run or a group are, or were when it ended, from all their recordings. All ranks
 * number a lane's collectives alike, so the first one that not all have finished is where they wait or where it went
 * wrong. The report says which ranks entered it, did not, or called something else, and what each was doing. Messages
 * have no such numbers: the report has a line for each rank that waits for one, with what its peer did. */
#include "engine/base/clock.h"
#include "engine/base/file.h"
#include "engine/base/text.h"
#include "transport/flight/recorder.h"
#include "transport/link/link.h"

#include <stdio.h>
#include <string.h>

struct merge_report {
    const struct recording *ranks;
    int n;
    int *some; /* ranks to be named */
    FILE *out;
    double end;           /* now, if a rank's process lives; else the last sign of life of any rank */
    uint32_t next[LANES]; /* the first collective that not all have finished; 0: none was called */
};
struct phrase { /* returned by value, to stand among the arguments of a print */
    char text[400];
};

/* ---- looking up ---- */

static const struct recording_call *find_call(const struct recording *r, int lane, uint32_t sequence) {
    for (int i = r->ncalls - 1; i >= 0; i--)
        if (r->calls[i].call.lane == lane && r->calls[i].call.sequence == sequence) return &r->calls[i];
    return NULL;
}

static const struct recording_call *find_any_call(const struct merge_report *m, int lane, uint32_t sequence) {
    const struct recording_call *c = NULL;
    for (int i = 0; i < m->n && !c; i++) c = find_call(&m->ranks[i], lane, sequence);
    return c;
}

static bool call_is_done(const struct recording_call *c) {
    return c->ended != 0 && c->error == ERR_NONE;
}

/* The last collective of the lane that the rank has finished; 0: none. used is set where it has begun any. */
static uint32_t lane_last_done(const struct recording *r, int lane, bool *used) {
    for (int i = r->ncalls - 1; i >= 0; i--) {
        const struct recording_call *c = &r->calls[i];
        if (c->call.lane != lane || !c->call.sequence) continue;
        *used = true;
        if (call_is_done(c)) return c->call.sequence;
    }
    return 0;
}

/* Seconds of the wall clock, the one that hosts share. */
static double recording_wall(const struct recording *r, int64_t clock) {
    return ((double)r->wall + ((double)clock - (double)r->clock)) * 1e-9;
}

static bool recording_lives(const struct recording *r) {
    return !r->closed && (r->process == PROCESS_LIVES || r->process == PROCESS_STOPPED);
}

static double recording_last_sign(const struct recording *r) {
    int64_t last = r->clock > r->noted ? r->clock : r->noted;
    for (int i = 0; i < r->ncalls; i++) {
        if (r->calls[i].began > last) last = r->calls[i].began;
        if (r->calls[i].ended > last) last = r->calls[i].ended;
    }
    return recording_wall(r, last);
}

/* How long a call has lasted; one that never ended is counted until m->end. */
static double call_lasted(const struct merge_report *m, const struct recording *r, const struct recording_call *c) {
    return c->ended ? ((double)c->ended - (double)c->began) * 1e-9 : m->end - recording_wall(r, c->began);
}

static bool call_is_same(const struct recorded_call *a, const struct recorded_call *b) {
    return a->kind == b->kind && a->type == b->type && a->op == b->op && a->peer == b->peer && a->count == b->count;
}

/* What the rank is doing on the lane; NULL: nothing. */
static const struct recording_call *find_open_call(const struct recording *r, int lane) {
    for (int i = r->ncalls - 1; i >= 0; i--)
        if (r->calls[i].call.lane == lane && !r->calls[i].ended) return &r->calls[i];
    return NULL;
}

/* ---- phrases ---- */

/* "from rank 1" */
static struct phrase peer_phrase(const struct recording_call *c) {
    struct phrase p;
    const char *way = c->call.lane == LANE_IN ? "from" : "to";
    snprintf(p.text, sizeof p.text, c->call.peer < 0 ? "%s any rank" : "%s rank %d", way, c->call.peer);
    return p;
}

/* "all_reduce 411 (4.0 KB)", "recv from rank 1, tag 7", "send with rank 1" */
static struct phrase call_phrase(const struct recording_call *c) {
    struct phrase p;
    char which[64] = "", size[40] = "", bytes[32];
    if (c->call.sequence)
        snprintf(which, sizeof which, " %u", (unsigned)c->call.sequence);
    else if (c->call.lane >= LANES)
        snprintf(which, sizeof which, " %.30s, tag %lld", peer_phrase(c).text, (long long)c->call.tag);
    else if (c->call.peer >= 0)
        snprintf(which, sizeof which, " with rank %d", c->call.peer);
    if (c->bytes) snprintf(size, sizeof size, " (%s)", text_of_bytes((double)c->bytes, bytes));
    snprintf(p.text, sizeof p.text, "%s%s%s", c->name, which, size);
    return p;
}

/* "all_reduce(f32, 1024, operation 0)": all that may differ. */
static struct phrase whole_phrase(const struct recording_call *c) {
    struct phrase p;
    char root[32] = "";
    if (c->call.peer >= 0) snprintf(root, sizeof root, ", root %d", c->call.peer);
    snprintf(p.text, sizeof p.text, "%s(%s, %lld, operation %u%s)", c->name, c->type, (long long)c->call.count,
             c->call.op, root);
    return p;
}

/* ", since 10:02:11", in this host's time zone. */
static struct phrase since_phrase(const struct recording *r, const struct recording_call *c) {
    struct phrase p = {""};
    time_t seconds = (time_t)recording_wall(r, c->began);
    struct tm t;
    if (localtime_r(&seconds, &t)) strftime(p.text, sizeof p.text, ", since %H:%M:%S", &t);
    return p;
}

/* "11.2 s ago" */
static struct phrase ago_phrase(const struct merge_report *m, const struct recording *r, double when) {
    struct phrase p;
    snprintf(p.text, sizeof p.text, "%.1f s %s", m->end - when, recording_lives(r) ? "ago" : "before the end");
    return p;
}

/* "ranks 0, 1, 3": the first 'count' of 'some'. */
static struct phrase some_phrase(const struct merge_report *m, int count) {
    struct phrase p = {""};
    int n = count ? snprintf(p.text, sizeof p.text, count == 1 ? "rank " : "ranks ") : 0;
    text_of_numbers(m->some, count, p.text + n, sizeof p.text - (size_t)n);
    return p;
}

/* Those that have entered the collective, or those that have not; nothing if there are none. */
static struct phrase ranks_phrase(const struct merge_report *m, int lane, uint32_t sequence, bool entered) {
    int count = 0;
    for (int i = 0; i < m->n; i++)
        if ((find_call(&m->ranks[i], lane, sequence) != NULL) == entered) m->some[count++] = m->ranks[i].rank;
    return some_phrase(m, count);
}

/* ---- one lane ---- */

static uint32_t lane_next(const struct merge_report *m, int lane) {
    uint32_t next = UINT32_MAX;
    bool used = false;
    for (int i = 0; i < m->n; i++) {
        uint32_t done = lane_last_done(&m->ranks[i], lane, &used);
        if (done < next) next = done;
    }
    return used ? next + 1 : 0;
}

static void print_mismatches(const struct merge_report *m, int lane, const struct recording_call *first) {
    uint32_t sequence = first->call.sequence;
    int who = 0;
    while (find_call(&m->ranks[who], lane, sequence) != first) who++;
    for (int i = who + 1; i < m->n; i++) {
        const struct recording_call *c = find_call(&m->ranks[i], lane, sequence);
        if (!c || call_is_same(&c->call, &first->call)) continue;
        fprintf(m->out, "  MISMATCH: rank %d called %s as collective %u, where rank %d called %s\n", m->ranks[i].rank,
                whole_phrase(c).text, (unsigned)sequence, m->ranks[who].rank, whole_phrase(first).text);
    }
}

static double longest_wait(const struct merge_report *m, int lane) {
    double longest = 0;
    for (int i = 0; i < m->n; i++) {
        const struct recording_call *c = find_call(&m->ranks[i], lane, m->next[lane]);
        if (c && call_lasted(m, &m->ranks[i], c) > longest) longest = call_lasted(m, &m->ranks[i], c);
    }
    return longest;
}

static void print_lane(const struct merge_report *m, int lane) {
    static const char *const names[LANES] = {"the ranks' own calls", "communication lane", "lane ahead"};
    uint32_t next = m->next[lane];
    const struct recording_call *done = find_any_call(m, lane, next - 1), *open = find_any_call(m, lane, next);
    fprintf(m->out, "%s: %s%s", names[lane], done ? "all finished " : "no collective was finished by all",
            done ? call_phrase(done).text : "");
    if (open) {
        const struct phrase missing = ranks_phrase(m, lane, next, false);
        double longest = longest_wait(m, lane);
        fprintf(m->out, "; %s entered %s, ", ranks_phrase(m, lane, next, true).text, call_phrase(open).text);
        fprintf(m->out, *missing.text ? "%s did not" : "and not all finished it", missing.text);
        if (longest >= 0.05) fprintf(m->out, "; the longest wait there: %.1f s", longest);
    }
    fprintf(m->out, "\n");
    if (open) print_mismatches(m, lane, open);
}

/* ---- messages ---- */

/* The last message that the rank has begun to send to 'to', with that tag or (NULL) any. */
static const struct recording_call *find_last_sent(const struct recording *r, int to, const int64_t *tag) {
    for (int i = r->ncalls - 1; i >= 0; i--) {
        const struct recording_call *c = &r->calls[i];
        if (c->call.lane == LANE_OUT && c->call.peer == to && !c->error && (!tag || c->call.tag == *tag)) return c;
    }
    return NULL;
}

/* Whether the record has lost older messages that it sent. */
static bool recording_has_forgotten(const struct recording *r) {
    for (int i = 0; i < r->ncalls; i++)
        if (r->calls[i].call.lane == LANE_OUT) return r->calls[i].number > 0;
    return false;
}

/* What r has sent to the rank that waits for c. */
static void print_sent(const struct merge_report *m, const struct recording *r, int to,
                       const struct recording_call *c) {
    const struct recording_call *same = find_last_sent(r, to, &c->call.tag), *any = find_last_sent(r, to, NULL);
    if (same && !same->ended)
        fprintf(m->out, " has begun to send one, and");
    else if (same)
        fprintf(m->out, " sent the last with this tag %s, and", ago_phrase(m, r, recording_wall(r, same->ended)).text);
    else {
        fprintf(m->out, " has sent it nothing with this tag%s", recording_has_forgotten(r) ? " lately" : "");
        if (any && any->ended)
            fprintf(m->out, " (the last: tag %lld, %s)", (long long)any->call.tag,
                    ago_phrase(m, r, recording_wall(r, any->ended)).text);
        fprintf(m->out, ", and");
    }
}

/* What the peer of a message does instead. */
static void print_state(const struct merge_report *m, const struct recording *r) {
    const struct recording_call *c = find_open_call(r, LANE_IN);
    bool waits = c != NULL, here = recording_lives(r);
    for (int lane = 0; lane <= LANE_OUT && !c; lane++) c = find_open_call(r, lane);
    if (r->closed)
        fprintf(m->out, r->clean || r->exited ? " has ended" : " has failed");
    else if (r->process == PROCESS_STOPPED)
        fprintf(m->out, " is stopped");
    else if (c)
        fprintf(m->out, " %s in %s", waits ? here ? "waits" : "waited" : here ? "is" : "was", call_phrase(c).text);
    else
        fprintf(m->out, r->process == PROCESS_GONE ? " was killed" : here ? " is in no call" : " was in no call");
}

static void print_message(const struct merge_report *m, const struct recording *r, const struct recording_call *c) {
    bool here = recording_lives(r), receives = c->call.lane == LANE_IN;
    const char *verb = receives ? here ? "waits for" : "waited for" : here ? "is sending" : "was sending";
    char bytes[32];
    fprintf(m->out, "rank %d %s a message of %s with tag %lld %s for %.1f s%s", r->rank, verb,
            text_of_bytes((double)c->bytes, bytes), (long long)c->call.tag, peer_phrase(c).text, call_lasted(m, r, c),
            here ? since_phrase(r, c).text : "");
    for (int i = 0; i < m->n; i++) {
        if (m->ranks[i].rank != c->call.peer) continue;
        fprintf(m->out, "; rank %d", m->ranks[i].rank);
        if (receives) print_sent(m, &m->ranks[i], r->rank, c);
        print_state(m, &m->ranks[i]);
    }
    fprintf(m->out, "\n");
}

static void print_messages(const struct merge_report *m) {
    for (int i = 0; i < m->n; i++)
        for (int lane = LANE_OUT; lane <= LANE_IN; lane++) {
            const struct recording_call *c = find_open_call(&m->ranks[i], lane);
            if (c && !m->ranks[i].closed) print_message(m, &m->ranks[i], c);
        }
}

/* ---- one rank ---- */

static void print_last_call(const struct merge_report *m, const struct recording *r, const struct recording_call *c) {
    bool here = recording_lives(r) && !c->ended;
    fprintf(m->out, "%s in %s", call_is_done(c) ? "was last" : here ? "is" : "was", call_phrase(c).text);
    if (call_is_done(c))
        fprintf(m->out, ", done");
    else
        fprintf(m->out, " for %.1f s%s%s", call_lasted(m, r, c),
                c->ended ? ", which failed: "
                : here   ? since_phrase(r, c).text
                         : ", which never ended",
                c->ended ? error_text((enum error)c->error) : "");
}

/* What the rank missed on a lane, and how long the others waited there. */
static void print_missed(const struct merge_report *m, const struct recording *r, int lane) {
    const struct recording_call *open = find_any_call(m, lane, m->next[lane]);
    if (!open || find_call(r, lane, m->next[lane])) return;
    fprintf(m->out, "; it %s entered %s, where %s waited %.1f s", recording_lives(r) ? "has not" : "never",
            call_phrase(open).text, ranks_phrase(m, lane, m->next[lane], true).text, longest_wait(m, lane));
}

/* The calls before the last one, the latest first. */
static void print_before(const struct merge_report *m, const struct recording *r) {
    enum { SHOWN = 4 };
    char took[32];
    for (int i = r->ncalls - 2, k = 0; i >= 0 && k < SHOWN; i--, k++) {
        const struct recording_call *c = &r->calls[i];
        fprintf(m->out, "%s%s %s", k ? ", " : "  before: ", call_phrase(c).text,
                c->ended ? text_of_seconds(call_lasted(m, r, c), took) : "open");
    }
    if (r->ncalls > 1) fprintf(m->out, "\n");
}

static void print_rank(const struct merge_report *m, const struct recording *r) {
    const struct recording_call *last = r->ncalls ? &r->calls[r->ncalls - 1] : NULL;
    fprintf(m->out, "rank %d (pid %d on %s%s) ", r->rank, r->pid, r->host,
            !r->closed && r->process == PROCESS_STOPPED ? ", stopped" : "");
    if (r->clean) fprintf(m->out, "ended well; ");
    if (r->exited) fprintf(m->out, "has ended without leaving the group; ");
    if (last)
        print_last_call(m, r, last);
    else
        fprintf(m->out, "has called nothing");
    if (*r->doing) {
        bool after = !last || (last->ended && r->noted >= last->ended);
        fprintf(m->out, "; %s: %s of step %lld", after ? "then" : "before that", r->doing, (long long)r->step);
    }
    for (int lane = 0; lane < LANES && !r->clean; lane++)
        if (m->next[lane]) print_missed(m, r, lane);
    if (!r->clean) fprintf(m->out, "; last sign of life %s", ago_phrase(m, r, recording_last_sign(r)).text);
    fprintf(m->out, "\n");
    if (!r->clean) print_before(m, r);
}

/* ---- all ---- */

static void print_missing(const struct merge_report *m) {
    int size = 0, missing = 0;
    for (int i = 0; i < m->n; i++)
        if (m->ranks[i].size > size) size = m->ranks[i].size;
    for (int r = 0, i = 0; r < size; r++) { /* recordings are in the order of their ranks */
        while (i < m->n && m->ranks[i].rank < r) i++;
        if (i == m->n || m->ranks[i].rank > r) m->some[missing++] = r;
    }
    if (missing)
        fprintf(m->out, "%s of %d %s left no recording here\n", some_phrase(m, missing).text, size,
                missing == 1 ? "has" : "have");
}

/* As a rule a rank that was killed caused the failure: the others notice, report it, and close their recordings. */
static void print_open(const struct merge_report *m) {
    static const char *const words[] = {[PROCESS_UNKNOWN] = "killed, or still running",
                                        [PROCESS_GONE] = "killed",
                                        [PROCESS_LIVES] = "running",
                                        [PROCESS_STOPPED] = "stopped"};
    for (unsigned p = PROCESS_UNKNOWN; p <= PROCESS_STOPPED; p++) {
        int shown = 0;
        for (int i = 0; i < m->n; i++)
            if (!m->ranks[i].closed && m->ranks[i].process == p) m->some[shown++] = m->ranks[i].rank;
        if (shown) fprintf(m->out, "%s: %s\n", words[p], some_phrase(m, shown).text);
    }
}

static void print_all(struct merge_report *m, bool whole) {
    int clean = 0, calls = 0;
    for (int i = 0; i < m->n; i++) {
        const struct recording *r = &m->ranks[i];
        double sign = recording_lives(r) ? recording_wall(r, clock_ns()) : recording_last_sign(r);
        if (i == 0 || sign > m->end) m->end = sign;
        clean += r->clean;
        calls += r->ncalls;
    }
    fprintf(m->out, "flight recorder: %d rank%s, %d ended well\n", m->n, m->n == 1 ? "" : "s", clean);
    print_open(m);
    for (int lane = 0; lane < LANES; lane++) {
        m->next[lane] = m->n ? lane_next(m, lane) : 0;
        if (m->next[lane]) print_lane(m, lane);
    }
    print_messages(m);
    if (!calls && m->n > 1) fprintf(m->out, "nothing was called\n");
    for (int i = 0; i < m->n && whole && (calls || m->n == 1); i++) print_rank(m, &m->ranks[i]);
    print_missing(m);
}

enum error recording_merge(const struct recording *ranks, int n, bool whole, struct pool *pool, char **text) {
    struct file_text written;
    struct merge_report m = {.ranks = ranks, .n = n, .some = pool_alloc(pool, RANKS_MOST * sizeof *m.some)};
    if (!m.some) return ERR_MEMORY;
    TRY(file_text_open(&written));
    m.out = written.out;
    print_all(&m, whole);
    *text = file_text_keep(&written, pool);
    return *text ? ERR_NONE : ERR_MEMORY;
}
