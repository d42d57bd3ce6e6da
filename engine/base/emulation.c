#include "engine/base/emulation.h"

#include "engine/base/rng.h"

#include <math.h>

static const double SEGMENT = 1448, TIMEOUT = 0.2; /* bytes; seconds, beyond a round trip */
enum { TAIL = 3 };                                 /* segments whose loss only a timeout finds */

/* ---- which entry counts ---- */

static bool ranks_have(const struct rank_set *s, int rank) {
    for (int i = 0; i < s->count; i++)
        if (rank >= s->of[i].first && rank <= s->of[i].last) return true;
    return false;
}

/* Whether it says this of the link, or with to < 0 of the port of 'from'. */
static bool links_say(const struct emulated_links *l, enum emulated_key key, int from, int to) {
    bool rate = key == EMULATED_BANDWIDTH || key == EMULATED_UP, port = to < 0;
    if (l->value[key] < 0 || (rate ? port != !l->to.count : port)) return false;
    bool out = ranks_have(&l->ranks, from), back = !port && !l->one_way && ranks_have(&l->ranks, to);
    if (port || !l->to.count) return out || back;
    return (out && ranks_have(&l->to, to)) || (back && ranks_have(&l->to, from));
}

/* -1: none. */
static int emulation_last(const struct emulation *e, enum emulated_key key, int from, int to) {
    int i = e->count - 1;
    if (e->number && i >= 0) from = e->number[from], to = to < 0 ? to : e->number[to];
    while (i >= 0 && !links_say(&e->links[i], key, from, to)) i--;
    return i;
}

static double emulation_value(const struct emulation *e, enum emulated_key key, int from, int to, double usual) {
    int i = emulation_last(e, key, from, to);
    return i < 0 ? usual : e->links[i].value[key];
}

/* ---- links ---- */

double emulation_port(const struct emulation *e, int rank, bool out) {
    double up = out ? emulation_value(e, EMULATED_UP, rank, -1, e->up) : 0;
    return up > 0 ? up : emulation_value(e, EMULATED_BANDWIDTH, rank, -1, e->bandwidth);
}

struct emulated_line emulation_line(const struct emulation *e, int from, int to) {
    return (struct emulated_line){
        emulation_value(e, EMULATED_BANDWIDTH, from, to, 0), emulation_value(e, EMULATED_LATENCY, from, to, e->latency),
        emulation_value(e, EMULATED_JITTER, from, to, e->jitter), emulation_value(e, EMULATED_LOSS, from, to, e->loss)};
}

bool emulation_draws(const struct emulation *e) {
    bool draws = e->jitter > 0 || e->loss > 0;
    for (int i = 0; i < e->count; i++)
        draws = draws || e->links[i].value[EMULATED_JITTER] > 0 || e->links[i].value[EMULATED_LOSS] > 0;
    return draws;
}

static double emulation_round_trip(const struct emulation *e, const struct emulated_line *line, int from, int to) {
    return line->latency + emulation_value(e, EMULATED_LATENCY, to, from, e->latency);
}

/* ---- what is drawn ---- */

/* In (0, 1]. */
static double draw(const struct emulation *e, int from, int lane, uint64_t n, uint64_t i) {
    return 1 - (double)rng_float(rng_key(e->seed, RNG_LINK), (uint64_t)from << 44 | (uint64_t)lane << 40 | n, i);
}

/* From one lost segment to the next the distance is distributed geometrically. */
double emulation_delay(const struct emulation *e, int from, int to, double bytes, int lane, uint64_t n) {
    const struct emulated_line line = emulation_line(e, from, to);
    double delay = line.jitter > 0 ? -line.jitter * log(draw(e, from, lane, n, 0)) : 0;
    if (!(line.loss > 0)) return delay;
    double round = emulation_round_trip(e, &line, from, to), segments = fmax(ceil(bytes / SEGMENT), 1), lost = 0;
    for (uint64_t i = 1;; i++) {
        lost += 1 + floor(log(draw(e, from, lane, n, i)) / log1p(-line.loss));
        if (lost > segments) return delay;
        delay += lost > segments - TAIL ? round + TIMEOUT : round;
    }
}

/* ---- the slowest ---- */

static double byte_time(double rate) {
    return rate > 0 ? 1 / rate : 0;
}

static void worst_add(const struct emulation *e, int from, int to, struct emulated_worst *w) {
    const struct emulated_line line = emulation_line(e, from, to);
    double out = byte_time(emulation_port(e, from, true)), in = byte_time(emulation_port(e, to, false));
    double beta = fmax(fmax(out, in), byte_time(line.bandwidth));
    w->latency = fmax(w->latency, line.latency);
    w->alpha = fmax(w->alpha, line.latency + line.jitter + TAIL * line.loss * TIMEOUT);
    w->beta = fmax(w->beta, beta + line.loss * emulation_round_trip(e, &line, from, to) / SEGMENT);
}

struct emulated_worst emulation_worst(const struct emulation *e, int ranks) {
    struct emulated_worst w = {0, 0, 0};
    if (!e->count && ranks > 2) ranks = 2; /* all are alike */
    for (int from = 0; from < ranks; from++)
        for (int to = 0; to < ranks; to++)
            if (from != to) worst_add(e, from, to, &w);
    return w;
}

/* ---- what makes no sense ---- */

static int set_last(const struct rank_set *s) {
    int last = -1;
    for (int i = 0; i < s->count; i++)
        if (s->of[i].last > last) last = s->of[i].last;
    return last;
}

/* Whether the entry has the last word on some link or port; else *other has it, somewhere. */
static bool links_count(const struct emulation *e, int ranks, int which, int *other) {
    const struct emulated_links *l = &e->links[which];
    for (int from = 0; from < ranks; from++) {
        if (l->to.count && !ranks_have(&l->ranks, from) && !ranks_have(&l->to, from)) continue;
        for (int to = -1; to < ranks; to++)
            for (enum emulated_key k = 0; k < EMULATED_KEYS; k++) {
                if (from == to || !links_say(l, k, from, to)) continue;
                *other = emulation_last(e, k, from, to);
                if (*other == which) return true;
            }
    }
    return false;
}

int emulation_find_wrong(const struct emulation *e, int ranks, int *other) {
    for (int i = 0; i < e->count; i++) {
        *other = LINKS_OF_NOBODY;
        if (set_last(&e->links[i].ranks) >= ranks || set_last(&e->links[i].to) >= ranks) return i;
        *other = LINKS_JOIN_NONE;
        if (!links_count(e, ranks, i, other)) return i;
    }
    return -1;
}
