/* The trace of a group's calls, and how ranks of several hosts compare their clocks. */
#include "engine/base/clock.h"
#include "modes/team.h"

static void tell_trace(void *user, const struct group_event *e) {
    const struct trainer *t = user;
    int64_t of = e->label < 0 ? -e->label : e->label;
    const struct trace_event x = {.begin = e->began,
                                  .end = e->ended,
                                  .bytes = e->bytes,
                                  .name = e->name,
                                  .bucket = (int32_t)(of - 1),
                                  .kind = e->waited ? TRACE_WAIT : TRACE_CALL,
                                  .lane = e->lane == LANE_COMM && !e->waited ? TRACE_EXCHANGE : TRACE_COMPUTE,
                                  .weights = e->label < 0};
    trace_put(t->trace, &x);
}

/* Rank 0 answers each message with its clock. Of several, the one that was away the shortest tells best: what rank 0
 * said belongs to the middle of that time, within half of it. */
enum { PINGS = 32 };

static enum error ask(struct group *g, struct trace_clock *out) {
    for (int i = 0; i < PINGS; i++) {
        int64_t there = 0, sent = clock_ns();
        TRY(group_send(g, GROUP_INLINE, &there, 1, DTYPE_I64, 0));
        TRY(group_recv(g, GROUP_INLINE, &there, 1, DTYPE_I64, 0));
        int64_t took = clock_ns() - sent;
        if (i > 0 && took >= out->round_trip) continue;
        *out = (struct trace_clock){.offset = there - (sent + took / 2), .round_trip = took};
    }
    return ERR_NONE;
}

static enum error answer(struct group *g, int rank) {
    for (int i = 0; i < PINGS; i++) {
        int64_t now;
        TRY(group_recv(g, GROUP_INLINE, &now, 1, DTYPE_I64, rank));
        now = clock_ns();
        TRY(group_send(g, GROUP_INLINE, &now, 1, DTYPE_I64, rank));
    }
    return ERR_NONE;
}

/* Ranks of one host have one clock. */
static enum error compare_clocks(struct group *g, const struct roster *roster, struct trace_clock *out) {
    int me = group_rank(g);
    *out = (struct trace_clock){0};
    for (int r = 1; roster && r < roster->size; r++) {
        if (roster->of[r].host == roster->of[0].host) continue;
        if (me == 0) TRY(answer(g, r));
        if (me == r) TRY(ask(g, out));
    }
    return ERR_NONE;
}

enum error team_watch(struct team *m, struct trainer *t, const struct place *place, struct trace_clock *clock) {
    if (!m->group) return ERR_NONE;
    if (!clock) {
        group_watch(m->group, NULL, NULL);
        return ERR_NONE;
    }
    TRY(compare_clocks(m->group, place->group.roster, clock));
    group_watch(m->group, tell_trace, t);
    return ERR_NONE;
}
