/* Carrier "staged": through the host's memory. What a rank gives is copied from its device to a buffer of the host, the
 * call is made there, over any link, by any algorithm and in the group's order, and what the rank receives is copied
 * back. So the bits are those of a run on processors, it works between any devices (and ranks that have none), and it
 * is what the other carriers are tested against.
 *
 * Bytes: as on the host, and each twice more between host and device. */
#include "transport/carrier/carrier.h"

#include <stdio.h>

struct stage {              /* memory of the host for one lane of the group */
    struct slots buf, send; /* send: of an all_to_all */
};
struct staged {
    struct carrier carrier;
    struct stage stages[LANES];
};

static enum error staged_open(struct group *g, struct carrier **out, char *why) {
    if (!*g->carried) snprintf(why, 256, "as the configuration says");
    TRY(carrier_create(g, sizeof(struct staged), out));
    struct staged *s = (struct staged *)*out;
    for (int lane = 0; lane < LANES; lane++) s->stages[lane].buf.host = s->stages[lane].send.host = true;
    return ERR_NONE;
}

static void staged_close(struct carrier *cr) {
    struct staged *s = (struct staged *)cr;
    for (int lane = 0; lane < LANES; lane++) {
        enum error err = cr->runtime->wait(cr->device, lane ? LANE_EXCHANGE : LANE_COMPUTE);
        (void)err; /* of copies that still run: the error was reported before, or nobody needs it */
        slots_free(cr, &s->stages[lane].buf);
        slots_free(cr, &s->stages[lane].send);
    }
    carrier_free(cr);
}

/* ---- what goes down, and what comes up again ---- */

static struct element_range staged_range(const struct collective *c, bool any, bool own_part) {
    if (!any) return (struct element_range){0, 0};
    if (own_part) return (struct element_range){c->part[c->rank], c->part[c->rank + 1]};
    return (struct element_range){c->part ? c->part[0] : 0, c->sum.count};
}

/* The range of buf that this rank gives; of a gather its own part, also at the root, which receives around it. */
static struct element_range staged_given(const struct collective *c) {
    bool gives = c->kind != KIND_ALL_TO_ALL && c->kind != KIND_RECV;
    if (kind_from_root(c->kind)) gives = c->rank == c->root;
    if (c->kind == KIND_REDUCE) gives = own_terms(c) > 0;
    return staged_range(c, gives, kind_gathers(c->kind));
}

/* The range of buf that this rank receives. */
static struct element_range staged_received(const struct collective *c) {
    bool root = c->rank == c->root, receives = c->kind != KIND_SEND;
    if (kind_has_root(c->kind)) receives = kind_to_root(c->kind) ? root : !root;
    return staged_range(c, receives, c->kind == KIND_REDUCE_SCATTER || c->kind == KIND_SCATTER);
}

/* ---- a call ---- */

/* there: the call as it lies on the device; c has the host's memory, where a rank's terms lie side by side. Also what was
 * written before from the same memory has arrived afterwards. */
static enum error staged_go_down(struct carrier *cr, enum device_lane l, const struct collective *there,
                                 const struct collective *c) {
    struct element_range r = staged_given(c);
    int terms = c->apart ? own_terms(c) : 1;
    for (int k = 0; k < terms && c->buf != there->buf && r.hi > r.lo; k++)
        TRY(cr->runtime->read(cr->device, l, element(c, c->buf, k * c->apart + r.lo),
                              element(c, there->buf, k * there->apart + r.lo), bytes_of(c, r.hi - r.lo)));
    if (c->send != there->send)
        TRY(cr->runtime->read(cr->device, l, (char *)(uintptr_t)c->send, there->send,
                              bytes_of(c, c->send_part[c->size])));
    return c->lane == LANE_COMM ? carrier_wait(cr, c, l) : cr->runtime->wait(cr->device, l);
}

static enum error staged_run(struct carrier *cr, struct collective *c, enum device_lane l) {
    struct stage *s = &((struct staged *)cr)->stages[c->lane];
    const struct collective there = *c;
    const struct element_range got = staged_received(c);
    int64_t terms = c->apart ? own_terms(c) : 0; /* a server gives none, and receives */
    if (c->sum.count && device_holds(cr->device, c->buf)) {
        TRY(slots_reserve(cr, l, &s->buf, bytes_of(c, c->sum.count * (terms > 1 ? terms : 1))));
        c->buf = s->buf.memory;
        if (c->apart) c->apart = c->sum.count;
    }
    enum error err = ERR_NONE;
    if (c->send && c->send_part[c->size] && device_holds(cr->device, c->send)) {
        err = slots_reserve(cr, l, &s->send, bytes_of(c, c->send_part[c->size]));
        c->send = s->send.memory;
    }
    if (!err) err = staged_go_down(cr, l, &there, c);
    if (!err) err = collective_move(c);
    if (!err && c->buf != there.buf && got.hi > got.lo)
        err = cr->runtime->write(cr->device, l, element(c, there.buf, got.lo), element(c, c->buf, got.lo),
                                 bytes_of(c, got.hi - got.lo));
    c->buf = there.buf;
    c->send = there.send;
    c->apart = there.apart;
    return err;
}

const struct carrier_ops carrier_staged = {
    .name = "staged",
    .summary = "through the host's memory, by the group's own links and algorithms",
    .open = staged_open,
    .close = staged_close,
    .run = staged_run,
};
