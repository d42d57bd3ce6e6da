/* How long forward and backward took where they only were asked for. The host's clock has counted asking as forward
 * and backward, and the waiting as whatever came after: what is missing in the first two is taken from the others,
 * from communication first, since there the host has waited for gradients.
 *
 *   host      ask | ask |          wait           | update
 *   device    forward       | backward        |  exchange | update
 *
 * Of a step in many pieces the first ones are timed, and stand for all. */
#include "engine/base/clock.h"
#include "engine/device/runtime.h"
#include "engine/train/internal.h"

#include <stdlib.h>

enum { TIMED_PIECES = 16 };
struct timers {
    struct device_mark *mark[TIMED_PIECES][TIMED_PLACES];
    int pieces; /* of this step, so far */
    struct device_mark *zero;
    int64_t zero_ns; /* when the device passed it, by the host's clock; 0: nobody has asked */
};

enum error timers_open(struct trainer *t) {
    const struct device_runtime *run = device_runtime(t->device);
    if (!run->asynchronous) return ERR_NONE;
    if (!(t->timers = calloc(1, sizeof *t->timers))) return FAIL(ERR_MEMORY, "no memory for timers");
    for (int i = 0; i < TIMED_PIECES; i++)
        for (int k = 0; k < TIMED_PLACES; k++) TRY(run->timer_create(t->device, &t->timers->mark[i][k]));
    return ERR_NONE;
}

void timers_close(struct trainer *t) {
    if (!t->timers) return;
    for (int i = 0; i < TIMED_PIECES; i++)
        for (int k = 0; k < TIMED_PLACES; k++)
            if (t->timers->mark[i][k]) device_runtime(t->device)->mark_free(t->timers->mark[i][k]);
    if (t->timers->zero) device_runtime(t->device)->mark_free(t->timers->zero);
    free(t->timers);
    t->timers = NULL;
}

enum error timers_mark(struct trainer *t, enum timed place) {
    struct timers *s = t->timers;
    if (!s) return ERR_NONE;
    int piece = place == TIMED_END ? s->pieces++ : s->pieces;
    if (piece >= TIMED_PIECES) return ERR_NONE;
    return device_runtime(t->device)->mark(t->device, LANE_COMPUTE, s->mark[piece][place]);
}

/* Nanoseconds between two places, over all pieces. */
static int64_t timers_elapsed(const struct trainer *t, enum timed from, enum timed to) {
    const struct timers *s = t->timers;
    int timed = s->pieces < TIMED_PIECES ? s->pieces : TIMED_PIECES;
    int64_t sum = 0;
    for (int i = 0; i < timed; i++) sum += device_runtime(t->device)->between(s->mark[i][from], s->mark[i][to]);
    return timed ? sum * s->pieces / timed : 0;
}

void timers_anchor(struct trainer *t) {
    struct timers *s = t->timers;
    const struct device_runtime *run = device_runtime(t->device);
    if (!s || s->zero_ns) return;
    if (!s->zero && run->timer_create(t->device, &s->zero) != ERR_NONE) return;
    if (run->mark(t->device, LANE_COMPUTE, s->zero) != ERR_NONE) return;
    if (device_wait(t->device) == ERR_NONE) s->zero_ns = clock_ns();
}

/* What the device did when, of the pieces that were timed. */
static void trace_pieces(const struct trainer *t) {
    static const enum trace_kind kinds[] = {TRACE_FORWARD, TRACE_BACKWARD};
    const struct timers *s = t->timers;
    if (!t->trace || !s->zero_ns) return;
    for (int i = 0; i < s->pieces && i < TIMED_PIECES; i++)
        for (int k = 0; k < 2; k++) {
            int64_t at[2];
            for (int end = 0; end < 2; end++)
                at[end] = s->zero_ns + device_runtime(t->device)->between(s->zero, s->mark[i][k + end]);
            trace_span(t->trace, kinds[k], TRACE_DEVICE, at[0], at[1]);
        }
}

void timers_settle(struct trainer *t, const int64_t before[PHASES]) {
    static const enum phase from[] = {PHASE_COMM, PHASE_UPDATE, PHASE_LOAD};
    int64_t *now = t->phase_ns, missing = 0;
    if (!t->timers || t->timers->pieces == 0) return;
    trace_pieces(t);
    const int64_t took[] = {timers_elapsed(t, TIMED_BEGIN, TIMED_MIDDLE), timers_elapsed(t, TIMED_MIDDLE, TIMED_END)};
    t->timers->pieces = 0;
    for (int i = 0; i < 2; i++) {
        enum phase phase = i ? PHASE_BACKWARD : PHASE_FORWARD;
        int64_t asked = now[phase] - before[phase];
        if (took[i] <= asked) continue; /* the device waited for the host */
        missing += took[i] - asked;
        now[phase] += took[i] - asked;
    }
    for (size_t i = 0; i < sizeof from / sizeof *from; i++) {
        int64_t has = now[from[i]] - before[from[i]], part = missing < has ? missing : has;
        now[from[i]] -= part;
        missing -= part;
    }
}
