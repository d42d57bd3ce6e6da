/* The post-mortem: the recordings of one run's ranks, laid beside each other. On each lane the
 * ranks' collectives are numbered alike, so the first number that not all have finished is where it
 * went wrong: who came, who did not, who called something else; and what each was doing. */
#include "engine/base/error.h"
#include "transport/link/link.h"
#include "transport/recorder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct merge {
    const struct recording *ranks;
    int n;
    FILE *out;
    double end;           /* the last sign of life of any rank */
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

/* Seconds of the wall clock, by which hosts compare. */
static double wall_of(const struct recording *r, int64_t clock) {
    return ((double)r->wall + ((double)clock - (double)r->clock)) * 1e-9;
}

static double last_sign(const struct recording *r) {
    int64_t last = r->clock > r->noted ? r->clock : r->noted;
    for (int i = 0; i < r->ncalls; i++) {
        if (r->calls[i].began > last) last = r->calls[i].began;
        if (r->calls[i].ended > last) last = r->calls[i].ended;
    }
    return wall_of(r, last);
}

/* How long a call has lasted, one that never ended until all was over. */
static double lasted(const struct merge *m, const struct recording *r, const struct recording_call *c) {
    return c->ended ? ((double)c->ended - (double)c->began) * 1e-9 : m->end - wall_of(r, c->began);
}

static bool same_call(const struct recorded_call *a, const struct recorded_call *b) {
    return a->kind == b->kind && a->type == b->type && a->op == b->op && a->peer == b->peer && a->count == b->count;
}

/* ---- words ---- */

static void print_call(const struct merge *m, const struct recording_call *c) {
    fprintf(m->out, "%s", c->name);
    if (c->call.sequence) fprintf(m->out, " %u", (unsigned)c->call.sequence);
    if (!c->call.sequence && c->call.peer >= 0) fprintf(m->out, " with rank %d", c->call.peer);
}

/* "all_reduce(f32, 1024)", with what else may differ. */
static void print_whole(const struct merge *m, const struct recording_call *c) {
    fprintf(m->out, "%s(%s, %lld, operation %u", c->name, c->type, (long long)c->call.count, c->call.op);
    if (c->call.peer >= 0) fprintf(m->out, ", root %d", c->call.peer);
    fprintf(m->out, ")");
}

/* "ranks 0, 1, 3": those that have entered the collective, or not. Gives how many. */
static int print_ranks(const struct merge *m, int lane, uint32_t sequence, bool entered) {
    int count = 0, shown = 0;
    for (int i = 0; i < m->n; i++) count += (find_call(&m->ranks[i], lane, sequence) != NULL) == entered;
    if (count) fprintf(m->out, count == 1 ? "rank " : "ranks ");
    for (int i = 0; i < m->n; i++)
        if ((find_call(&m->ranks[i], lane, sequence) != NULL) == entered)
            fprintf(m->out, shown++ ? ", %d" : "%d", m->ranks[i].rank);
    return count;
}

static const struct recording_call *any_call(const struct merge *m, int lane, uint32_t sequence) {
    for (int i = 0; i < m->n; i++) {
        const struct recording_call *c = find_call(&m->ranks[i], lane, sequence);
        if (c) return c;
    }
    return NULL;
}

/* ---- one lane ---- */

static uint32_t next_of(const struct merge *m, int lane) {
    uint32_t least = UINT32_MAX;
    bool used = false;
    for (int i = 0; i < m->n; i++) {
        uint32_t done = last_done(&m->ranks[i], lane);
        if (done < least) least = done;
        used |= lane_used(&m->ranks[i], lane);
    }
    return used && least < UINT32_MAX ? least + 1 : 0;
}

static void print_mismatches(const struct merge *m, int lane, const struct recording_call *first) {
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

static void print_lane(const struct merge *m, int lane) {
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
    }
    fprintf(m->out, "\n");
    if (open) print_mismatches(m, lane, open);
}

/* ---- one rank ---- */

static void print_last_call(const struct merge *m, const struct recording *r, const struct recording_call *c) {
    fprintf(m->out, is_done(c) ? "was last in " : "was in ");
    print_call(m, c);
    if (is_done(c))
        fprintf(m->out, ", done");
    else if (c->ended)
        fprintf(m->out, " for %.1f s, which failed: %s", lasted(m, r, c), error_text((enum error)c->error));
    else
        fprintf(m->out, " for %.1f s, which never ended", lasted(m, r, c));
}

/* What it missed on a lane, and how long the others waited there. */
static void print_missed(const struct merge *m, const struct recording *r, int lane) {
    const struct recording_call *open = any_call(m, lane, m->next[lane]);
    if (!open || find_call(r, lane, m->next[lane])) return;
    double longest = 0;
    for (int i = 0; i < m->n; i++) {
        const struct recording_call *c = find_call(&m->ranks[i], lane, m->next[lane]);
        if (c && lasted(m, &m->ranks[i], c) > longest) longest = lasted(m, &m->ranks[i], c);
    }
    fprintf(m->out, "; it never entered ");
    print_call(m, open);
    fprintf(m->out, ", where ");
    print_ranks(m, lane, m->next[lane], true);
    fprintf(m->out, " waited %.1f s", longest);
}

static void print_rank(const struct merge *m, const struct recording *r) {
    const struct recording_call *last = r->ncalls ? &r->calls[r->ncalls - 1] : NULL;
    fprintf(m->out, "rank %d (pid %d on %s) ", r->rank, r->pid, r->host);
    if (r->clean) fprintf(m->out, "ended well; ");
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
    if (!r->clean) fprintf(m->out, "; last sign of life %.1f s before the end", m->end - last_sign(r));
    fprintf(m->out, "\n");
}

/* ---- all ---- */

static void print_missing(const struct merge *m) {
    int size = 0;
    bool here[RANKS_MAX] = {false};
    for (int i = 0; i < m->n; i++) {
        if (m->ranks[i].size > size) size = m->ranks[i].size;
        here[m->ranks[i].rank] = true;
    }
    for (int r = 0; r < size && r < RANKS_MAX; r++)
        if (!here[r]) fprintf(m->out, "rank %d of %d has left no recording\n", r, size);
}

/* The cause of a loss as a rule: the others see it, say so, and close their recordings. */
static void print_open(const struct merge *m) {
    int shown = 0;
    for (int i = 0; i < m->n; i++) {
        if (m->ranks[i].closed) continue;
        fprintf(m->out, shown++ ? ", %d" : "killed, or still running: rank %d", m->ranks[i].rank);
    }
    if (shown) fprintf(m->out, "\n");
}

static void print_all(struct merge *m) {
    int clean = 0;
    for (int i = 0; i < m->n; i++) {
        double sign = last_sign(&m->ranks[i]);
        if (i == 0 || sign > m->end) m->end = sign;
        clean += m->ranks[i].clean;
    }
    fprintf(m->out, "flight recorder: %d rank%s, %d ended well\n", m->n, m->n == 1 ? "" : "s", clean);
    print_open(m);
    for (int lane = 0; lane < LANES; lane++) {
        m->next[lane] = m->n ? next_of(m, lane) : 0;
        if (m->next[lane]) print_lane(m, lane);
    }
    for (int i = 0; i < m->n; i++) print_rank(m, &m->ranks[i]);
    print_missing(m);
}

enum error recording_merge(const struct recording *ranks, int n, struct pool *pool, char **text) {
    char *written = NULL;
    size_t length = 0;
    struct merge m = {.ranks = ranks, .n = n, .out = open_memstream(&written, &length)};
    if (!m.out) return FAIL(ERR_MEMORY, "cannot allocate a text");
    print_all(&m);
    bool whole = !ferror(m.out);
    whole = fclose(m.out) == 0 && whole;
    *text = whole ? pool_strndup(pool, written, length) : NULL;
    free(written);
    if (!whole) return FAIL(ERR_MEMORY, "cannot allocate a text");
    return *text ? ERR_NONE : ERR_MEMORY;
}
