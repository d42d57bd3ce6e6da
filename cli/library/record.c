/* The public C interface of what a group has recorded of its calls, and of its clocks. */
#include "cli/library/group.h"

#include "transport/link/link.h"

#include <string.h>

const char *engine_group_name(const struct engine_group *g) {
    return flight_name(g->flight);
}

void engine_group_label(struct engine_group *g, const char *label) {
    recorder_label(flight_recorder(g->flight), label);
}

int engine_group_calls(const struct engine_group *g, int which, long long number, struct engine_call *out, int n) {
    enum { ROUND = 32 };
    static const int lanes[] = {[ENGINE_OWN] = LANE_INLINE,
                                [ENGINE_STARTED] = LANE_COMM,
                                [ENGINE_SENT] = LANE_OUT,
                                [ENGINE_RECEIVED] = LANE_IN};
    struct recording_call calls[ROUND];
    const struct recorder *r = flight_recorder(g->flight);
    int count = 0, got = ROUND;
    if ((size_t)which >= sizeof lanes / sizeof *lanes) return 0;
    while (r && count < n && got == ROUND) {
        got = recorder_recall(r, lanes[which], number, calls, n - count < ROUND ? n - count : ROUND);
        for (int i = 0; i < got; i++) {
            const struct recording_call *c = &calls[i];
            out[count] = (struct engine_call){.number = c->number,
                                              .sequence = c->call.sequence,
                                              .bytes = c->bytes,
                                              .tag = c->call.tag,
                                              .began = c->began,
                                              .ended = c->ended,
                                              .root = c->call.peer,
                                              .code = error_exit_code((enum error)c->error)};
            memcpy(out[count++].name, c->name, sizeof c->name);
            number = c->number + 1;
        }
    }
    return count;
}

int engine_group_clock(struct engine_group *g, long long *offset, long long *round_trip) {
    int64_t add, took;
    enum error err = group_compare_clocks(g->group, &add, &took);
    *offset = add;
    *round_trip = took;
    return error_exit_code(err);
}
