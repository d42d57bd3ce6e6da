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
#include <stdlib.h>
#include <string.h>

struct merge_report {
    const struct recording *ranks;
    int n;
    int *some; /* ranks to be named */
    FILE *out;
    double end;           /* now, if a rank's process lives; else the last sign of life of any rank */
    uint32_t next[LANES]; /* the first collective that not all have finished; 0: none was called */
};

/* ---- looking up ---- */

static const struct recording_call *find_call(const struct recording *r, int lane, uint32_t sequence) {
    for (int i = r->ncalls - 1; i >= 0; i--)
        if (r->calls[i].call.lane == lane && r->calls[i].call.sequence == sequence) return &r->calls[i];
    return NULL;
}

static bool is_done(const struct recording_call *c) {
    return c->ended != 0 && c->error == ERR_NONE;
}

/* The last collective of the lane that the rank has finished; 0: none. */
static uint32_t last_done(const struct recording *r, int lane) {
    for (int i = r->ncalls - 1; i >= 0; i--)
        if (r->calls[i].call.lane == lane && r->calls[i].call.sequence && is_done(&r->calls[i]))
            return r->calls[i].call.sequence;
    return 0;
}

static bool lane_used(const struct recording *r, int lane) {
    for (int i = 0; i < r->ncalls; i++)
        if (r->calls[i].call.lane == lane && r->calls[i].call.sequence) return true;
    return false;
}

/* Seconds of the wall clock, the one that hosts share. */
static double wall_of(const struct recording *r, int64_t clock) {
    return ((double)r->wall + ((double)clock - (double)r->clock)) * 1e-9;
}

static bool is_here(const struct recording *r) {
    return !r->closed && (r->process == PROCESS_LIVES || r->process == PROCESS_STOPPED);
}

static double last_sign(const struct recording *r) {
    int64_t last = r->clock > r->noted ? r->clock : r->noted;
    for (int i = 0; i < r->ncalls; i++) {
        if (r->calls[i].began > last) last = r->calls[i].began;
        if (r->calls[i].ended > last) last = r->calls[i].ended;
    }
    return wall_of(r, last);
}

/* How long a call has lasted; one that never ended is counted until m->end. */
static double call_lasted(const struct merge_report *m, const struct recording *r, const struct recording_call *c) {
    return c->ended ? ((double)c->ended - (double)c->began) * 1e-9 : m->end - wall_of(r, c->began);
}

static bool same_call(const struct recorded_call *a, const struct recorded_call *b) {
    return a->kind == b->kind && a->type == b->type && a->op == b->op && a->peer == b->peer && a->count == b->count;
}

static bool is_message(const struct recording_call *c) {
    return c->call.lane >= LANES;
}

/* What the rank is doing on the lane; NULL: nothing. */
static const struct recording_call *open_call(const struct recording *r, int lane) {
    for (int i = r->ncalls - 1; i >= 0; i--)
        if (r->calls[i].call.lane == lane && !r->calls[i].ended) return &r->calls[i];
    return NULL;
}

/* ---- words ---- */

/* "from rank 1" */
static void print_peer(const struct merge_report *m, const struct recording_call *c) {
    fprintf(m->out, c->call.lane == LANE_IN ? "from " : "to ");
    if (c->call.peer >= 0)
        fprintf(m->out, "rank %d", c->call.peer);
    else
        fprintf(m->out, "any rank");
}

static void print_call(const struct merge_report *m, const struct recording_call *c) {
    fprintf(m->out, "%s", c->name);
    char bytes[32];
    if (c->call.sequence) fprintf(m->out, " %u", (unsigned)c->call.sequence);
    if (is_message(c)) {
        fprintf(m->out, " ");
        print_peer(m, c);
        fprintf(m->out, ", tag %lld", (long long)c->call.tag);
    } else if (!c->call.sequence && c->call.peer >= 0)
        fprintf(m->out, " with rank %d", c->call.peer);
    if (c->bytes) fprintf(m->out, " (%s)", text_of_bytes((double)c->bytes, bytes));
}

/* "10:02:11", in this host's time zone. */
static void print_time(const struct merge_report *m, double wall) {
    time_t seconds = (time_t)wall;
    struct tm t;
    char text[16];
    if (localtime_r(&seconds, &t) && strftime(text, sizeof text, "%H:%M:%S", &t)) fprintf(m->out, "%s", text);
}

/* "all_reduce(f32, 1024, operation 0)": all that may differ. */
static void print_whole(const struct merge_report *m, const struct recording_call *c) {
    fprintf(m->out, "%s(%s, %lld, operation %u", c->name, c->type, (long long)c->call.count, c->call.op);
    if (c->call.peer >= 0) fprintf(m->out, ", root %d", c->call.peer);
    fprintf(m->out, ")");
}

/* "0, 1, 3": the first 'count' of 'some'. */
static void print_some(const struct merge_report *m, int count) {
    char text[400];
    text_of_numbers(m->some, count, text, sizeof text);
    fprintf(m->out, "%s", text);
}

/* "ranks 0, 1, 3": those that have entered the collective, or those that have not. Gives how many. */
static int print_ranks(const struct merge_report *m, int lane, uint32_t sequence, bool entered) {
    int count = 0;
    for (int i = 0; i < m->n; i++)
        if ((find_call(&m->ranks[i], lane, sequence) != NULL) == entered) m->some[count++] = m->ranks[i].rank;
    if (count) fprintf(m->out, count == 1 ? "rank " : "ranks ");
    print_some(m, count);
    return count;
}

static const struct recording_call *any_call(const struct merge_report *m, int lane, uint32_t sequence) {
    for (int i = 0; i < m->n; i++) {
        const struct recording_call *c = find_call(&m->ranks[i], lane, sequence);
        if (c) return c;
    }
    return NULL;
}

/* ---- one lane ---- */

static uint32_t next_of(const struct merge_report *m, int lane) {
    uint32_t least = UINT32_MAX;
    bool used = false;
    for (int i = 0; i < m->n; i++) {
        uint32_t done = last_done(&m->ranks[i], lane);
        if (done < least) least = done;
        used |= lane_used(&m->ranks[i], lane);
    }
    return used && least < UINT32_MAX ? least + 1 : 0;
}

static void print_mismatches(const struct merge_report *m, int lane, const struct recording_call *first) {
    int who = 0;
    while (find_call(&m->ranks[who], lane, first->call.sequence) != first) who++;
    for (int i = who + 1; i < m->n; i++) {
        const struct recording_call *c = find_call(&m->ranks[i], lane, first->call.sequence);
        if (!c || same_call(&c->call, &first->call)) continue;
        fprintf(m->out, "  MISMATCH: rank %d called ", m->ranks[i].rank);
        print_whole(m, c);
        fprintf(m->out, " as collective %u, where rank %d called ", (unsigned)c->call.sequence, m->ranks[who].rank);
        print_whole(m, first);
        fprintf(m->out, "\n");
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
    uint32_t next = m->next[lane];
    const struct recording_call *done = any_call(m, lane, next - 1), *open = any_call(m, lane, next);
    fprintf(m->out, lane ? "communication lane: " : "the ranks' own calls: ");
    if (done) {
        fprintf(m->out, "all finished ");
        print_call(m, done);
    } else
        fprintf(m->out, "no collective was finished by all");
    if (open) {
        fprintf(m->out, "; ");
        print_ranks(m, lane, next, true);
        fprintf(m->out, " entered ");
        print_call(m, open);
        fprintf(m->out, ", ");
        if (print_ranks(m, lane, next, false))
            fprintf(m->out, " did not");
        else
            fprintf(m->out, "and not all finished it");
        if (longest_wait(m, lane) >= 0.05) fprintf(m->out, "; the longest wait there: %.1f s", longest_wait(m, lane));
    }
    fprintf(m->out, "\n");
    if (open) print_mismatches(m, lane, open);
}

/* ---- messages ---- */

/* The last message that the rank has begun to send to 'to', with that tag or (NULL) any. */
static const struct recording_call *last_sent(const struct recording *r, int to, const int64_t *tag) {
    for (int i = r->ncalls - 1; i >= 0; i--) {
        const struct recording_call *c = &r->calls[i];
        if (c->call.lane == LANE_OUT && c->call.peer == to && !c->error && (!tag || c->call.tag == *tag)) return c;
    }
    return NULL;
}

/* Whether the record has lost older messages that it sent. */
static bool has_forgotten(const struct recording *r) {
    for (int i = 0; i < r->ncalls; i++)
        if (r->calls[i].call.lane == LANE_OUT) return r->calls[i].number > 0;
    return false;
}

/* "11.2 s ago" */
static void print_ago(const struct merge_report *m, const struct recording *r, const struct recording_call *c) {
    fprintf(m->out, "%.1f s %s", m->end - wall_of(r, c->ended), is_here(r) ? "ago" : "before the end");
}

/* What r has sent to the rank that waits for c. */
static void print_sent(const struct merge_report *m, const struct recording *r, int to,
                       const struct recording_call *c) {
    const struct recording_call *same = last_sent(r, to, &c->call.tag), *any = last_sent(r, to, NULL);
    fprintf(m->out, "rank %d ", r->rank);
    if (same && !same->ended)
        fprintf(m->out, "has begun to send one");
    else if (same) {
        fprintf(m->out, "sent the last with this tag ");
        print_ago(m, r, same);
    } else
        fprintf(m->out, "has sent it nothing with this tag%s", has_forgotten(r) ? " lately" : "");
    if (!same && any && any->ended) {
        fprintf(m->out, " (the last: tag %lld, ", (long long)any->call.tag);
        print_ago(m, r, any);
        fprintf(m->out, ")");
    }
}

/* What the peer of a message does instead. */
static void print_state(const struct merge_report *m, const struct recording *r) {
    const struct recording_call *c = open_call(r, LANE_IN);
    bool waits = c != NULL, here = is_here(r);
    for (int lane = 0; lane <= LANE_OUT && !c; lane++) c = open_call(r, lane);
    if (r->closed)
        fprintf(m->out, r->clean || r->exited ? "has ended" : "has failed");
    else if (r->process == PROCESS_STOPPED)
        fprintf(m->out, "is stopped");
    else if (c) {
        fprintf(m->out, waits ? here ? "waits in " : "waited in " : here ? "is in " : "was in ");
        print_call(m, c);
    } else
        fprintf(m->out, r->process == PROCESS_GONE ? "was killed" : here ? "is in no call" : "was in no call");
}

static void print_message(const struct merge_report *m, const struct recording *r, const struct recording_call *c) {
    bool here = is_here(r), receives = c->call.lane == LANE_IN;
    const char *verb = receives ? here ? "waits for" : "waited for" : here ? "is sending" : "was sending";
    char bytes[32];
    fprintf(m->out, "rank %d %s a message of %s with tag %lld ", r->rank, verb, text_of_bytes((double)c->bytes, bytes),
            (long long)c->call.tag);
    print_peer(m, c);
    fprintf(m->out, " for %.1f s", call_lasted(m, r, c));
    if (here) {
        fprintf(m->out, ", since ");
        print_time(m, wall_of(r, c->began));
    }
    for (int i = 0; i < m->n; i++) {
        if (m->ranks[i].rank != c->call.peer) continue;
        fprintf(m->out, "; ");
        if (receives)
            print_sent(m, &m->ranks[i], r->rank, c);
        else
            fprintf(m->out, "rank %d", m->ranks[i].rank);
        fprintf(m->out, receives ? ", and " : " ");
        print_state(m, &m->ranks[i]);
    }
    fprintf(m->out, "\n");
}

static void print_messages(const struct merge_report *m) {
    for (int i = 0; i < m->n; i++)
        for (int lane = LANE_OUT; lane <= LANE_IN; lane++) {
            const struct recording_call *c = open_call(&m->ranks[i], lane);
            if (c && !m->ranks[i].closed) print_message(m, &m->ranks[i], c);
        }
}

/* ---- one rank ---- */

static void print_last_call(const struct merge_report *m, const struct recording *r, const struct recording_call *c) {
    bool here = is_here(r) && !c->ended;
    fprintf(m->out, is_done(c) ? "was last in " : here ? "is in " : "was in ");
    print_call(m, c);
    if (is_done(c))
        fprintf(m->out, ", done");
    else if (c->ended)
        fprintf(m->out, " for %.1f s, which failed: %s", call_lasted(m, r, c), error_text((enum error)c->error));
    else if (!here)
        fprintf(m->out, " for %.1f s, which never ended", call_lasted(m, r, c));
    else {
        fprintf(m->out, " for %.1f s, since ", call_lasted(m, r, c));
        print_time(m, wall_of(r, c->began));
    }
}

/* What the rank missed on a lane, and how long the others waited there. */
static void print_missed(const struct merge_report *m, const struct recording *r, int lane) {
    const struct recording_call *open = any_call(m, lane, m->next[lane]);
    if (!open || find_call(r, lane, m->next[lane])) return;
    fprintf(m->out, is_here(r) ? "; it has not entered " : "; it never entered ");
    print_call(m, open);
    fprintf(m->out, ", where ");
    print_ranks(m, lane, m->next[lane], true);
    fprintf(m->out, " waited %.1f s", longest_wait(m, lane));
}

/* The calls before the last one, the latest first. */
static void print_before(const struct merge_report *m, const struct recording *r) {
    enum { SHOWN = 4 };
    char took[32];
    if (r->ncalls < 2) return;
    fprintf(m->out, "  before: ");
    for (int i = r->ncalls - 2, k = 0; i >= 0 && k < SHOWN; i--, k++) {
        const struct recording_call *c = &r->calls[i];
        fprintf(m->out, k ? ", " : "");
        print_call(m, c);
        fprintf(m->out, c->ended ? " %s" : " open", text_of_seconds(call_lasted(m, r, c), took));
    }
    fprintf(m->out, "\n");
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
    if (!r->clean)
        fprintf(m->out, "; last sign of life %.1f s %s", m->end - last_sign(r), is_here(r) ? "ago" : "before the end");
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
    if (!missing) return;
    fprintf(m->out, missing == 1 ? "rank " : "ranks ");
    print_some(m, missing);
    fprintf(m->out, " of %d %s left no recording here\n", size, missing == 1 ? "has" : "have");
}

/* As a rule a rank that was killed caused the failure: the others notice, report it, and close their recordings. */
static void print_open(const struct merge_report *m) {
    static const char *const words[] = {[PROCESS_UNKNOWN] = "killed, or still running",
                                        [PROCESS_GONE] = "killed",
                                        [PROCESS_LIVES] = "running",
                                        [PROCESS_STOPPED] = "stopped"};
    for (unsigned p = PROCESS_UNKNOWN; p <= PROCESS_STOPPED; p++) {
        int shown = 0;
        for (int i = 0; i < m->n; i++) {
            if (m->ranks[i].closed || m->ranks[i].process != p) continue;
            m->some[shown++] = m->ranks[i].rank;
        }
        if (!shown) continue;
        fprintf(m->out, "%s: rank%s ", words[p], shown > 1 ? "s" : "");
        print_some(m, shown);
        fprintf(m->out, "\n");
    }
}

static void print_all(struct merge_report *m, bool whole) {
    int clean = 0, calls = 0;
    for (int i = 0; i < m->n; i++) {
        const struct recording *r = &m->ranks[i];
        double sign = is_here(r) ? wall_of(r, clock_ns()) : last_sign(r);
        if (i == 0 || sign > m->end) m->end = sign;
        clean += r->clean;
        calls += r->ncalls;
    }
    fprintf(m->out, "flight recorder: %d rank%s, %d ended well\n", m->n, m->n == 1 ? "" : "s", clean);
    print_open(m);
    for (int lane = 0; lane < LANES; lane++) {
        m->next[lane] = m->n ? next_of(m, lane) : 0;
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
