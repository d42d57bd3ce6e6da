/* The trace of a group's calls. */
#include "modes/team.h"

static void tell_trace(void *user, const struct group_event *e) {
    static const uint8_t lanes[] = {[LANE_COMM] = TRACE_EXCHANGE, [LANE_AHEAD] = TRACE_AHEAD};
    bool message = (size_t)e->lane >= sizeof lanes; /* sent by a thread of its own, too */
    const struct trainer *t = user;
    int64_t of = e->label < 0 ? -e->label : e->label;
    const struct trace_event x = {.begin = e->began,
                                  .end = e->ended,
                                  .bytes = e->bytes,
                                  .name = e->name,
                                  .bucket = (int32_t)(of - 1),
                                  .kind = e->waited ? TRACE_WAIT : TRACE_CALL,
                                  .lane = e->waited ? TRACE_COMPUTE
                                          : message ? TRACE_EXCHANGE
                                                    : lanes[e->lane],
                                  .weights = e->label < 0};
    trace_put(t->trace, &x);
}

enum error team_watch(struct team *m, struct trainer *t, struct trace_clock *clock) {
    if (!m->group) return ERR_NONE;
    if (!clock) {
        group_watch(m->group, NULL, NULL);
        return ERR_NONE;
    }
    TRY(group_compare_clocks(m->group, &clock->offset, &clock->round_trip));
    group_watch(m->group, tell_trace, t);
    return ERR_NONE;
}
