/* How ranks of several hosts compare their clocks. */
#include "engine/base/clock.h"
#include "transport/core.h"

/* Rank 0 answers each message with its clock. Of several answers, that with the shortest round trip is the most exact:
 * rank 0 read its clock in the middle of that trip, give or take half of it. */
enum { PINGS = 32 };

static enum error clock_ask(struct group *g, int64_t *offset, int64_t *round_trip) {
    for (int i = 0; i < PINGS; i++) {
        int64_t theirs = 0, sent = clock_ns();
        TRY(group_send(g, GROUP_INLINE, &theirs, 1, DTYPE_I64, 0));
        TRY(group_recv(g, GROUP_INLINE, &theirs, 1, DTYPE_I64, 0));
        int64_t took = clock_ns() - sent;
        if (i > 0 && took >= *round_trip) continue;
        *offset = theirs - (sent + took / 2);
        *round_trip = took;
    }
    return ERR_NONE;
}

static enum error clock_answer(struct group *g, int rank) {
    for (int i = 0; i < PINGS; i++) {
        int64_t now;
        TRY(group_recv(g, GROUP_INLINE, &now, 1, DTYPE_I64, rank));
        now = clock_ns();
        TRY(group_send(g, GROUP_INLINE, &now, 1, DTYPE_I64, rank));
    }
    return ERR_NONE;
}

/* Ranks of one host share a clock. */
enum error group_compare_clocks(struct group *g, int64_t *offset, int64_t *round_trip) {
    const struct roster *roster = g->params.roster;
    *offset = *round_trip = 0;
    for (int r = 1; roster && r < roster->size; r++) {
        if (roster->of[r].host == roster->of[0].host) continue;
        if (g->rank == 0) TRY(clock_answer(g, r));
        if (g->rank == r) TRY(clock_ask(g, offset, round_trip));
    }
    return ERR_NONE;
}
