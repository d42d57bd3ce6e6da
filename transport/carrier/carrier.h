/* A carrier moves the bytes of calls whose buffers lie on accelerators. What surrounds a call stays the group's: which
 * calls there are, that the ranks agree, deadlines, the flight recorder, failure. The carriers are listed in
 * carriers.def, one file each.
 *
 * A call runs on a lane of the device: LANE_COMPUTE for LANE_INLINE, LANE_EXCHANGE for LANE_COMM (and for all calls of
 * a sole carrier). What a carrier does not take goes through "staged", on all ranks alike. */
#pragma once
#include "transport/core.h"

struct carrier { /* embedded first in each kind's own struct */
    const struct carrier_ops *ops;
    struct group *group;
    struct device *device; /* NULL or a host's: this rank's buffers are the host's */
    const struct device_runtime *runtime;
    struct device_mark *end[DEVICE_LANES]; /* of what was asked last; for carrier_wait */
};

struct carrier_ops {
    const char *name, *summary;
    /* The library that it needs, as device_ops.software tells of it. NULL: none. */
    void (*software)(struct device_software *out);
    /* Where there is a library: whether it works on that accelerator. */
    enum error (*probe)(struct device *dev);
    /* One call at a time, over both lanes of the group. */
    bool sole;
    /* Whether this rank, which has an accelerator, can use it, as far as it knows alone; the error says why not. NULL:
     * ranks without accelerators can, too. */
    enum error (*suits)(const struct group *g);
    /* Collective, on all ranks; may use the group for calls of the host's memory. The carrier that it gives (also when
     * it then fails) is closed in any case. why, of a size of 256: for the banner. */
    enum error (*open)(struct group *g, struct carrier **out, char *why);
    /* Returns when no other rank uses this rank's memory any more. Not collective. */
    void (*close)(struct carrier *c);
    /* The same on all ranks. NULL: it takes all. */
    bool (*takes)(const struct carrier *cr, const struct collective *c);
    /* One call of more than one rank, which have not met yet, with something to move. On return it
     * stands in order on the lane. Any failure becomes the group's. */
    enum error (*run)(struct carrier *cr, struct collective *c, enum device_lane l);
    /* While the host waits for the device, which may have been asked for several calls by then: what the carrier knows of a failure. NULL: nothing. */
    enum error (*check)(struct carrier *cr);
    /* The group has failed: lets go whatever the device waits for. NULL: it waits for nothing. */
    void (*abandon)(struct carrier *cr);
};
const struct carrier_ops *const *carrier_list(int *count);

/* ---- what the group calls; nothing to do where it has no carrier ---- */

MUST_CHECK enum error carrier_open(struct group *g); /* collective */
void carrier_close(struct group *g);
bool carrier_holds(const struct group *g, const struct collective *c);
/* The carrier of a call whose buffer is on an accelerator. */
struct carrier *carrier_for(const struct group *g, const struct collective *c);
MUST_CHECK enum error carrier_run(struct carrier *cr, struct collective *c);
/* A call that is under_way: whether its end has come, or (patient) until it has; with the group's deadline, which begins
 * when the call's buffer was ready. Until then the device has its own. p is zero where the call before has ended. */
struct carrier_patience {
    int64_t start, begun, looked; /* begun: when the call's buffer was ready; 0: it is not yet */
    bool warned;
};
MUST_CHECK enum error carrier_look(struct carrier *cr, struct collective *c, struct carrier_patience *p, bool patient);
/* The transfer of a rank to itself. */
MUST_CHECK enum error carrier_alone(struct group *g, struct collective *c);

/* ---- for those who write one ---- */

/* Allocates 'bytes' with room for a struct carrier at its begin, which is filled but for ops. */
MUST_CHECK enum error carrier_create(struct group *g, size_t bytes, struct carrier **out);
void carrier_free(struct carrier *cr);
/* All ranks have come to this call, and agree. */
MUST_CHECK enum error carrier_meet(struct carrier *cr, struct collective *c);
/* Until the device has done what was asked of the lane: with the same deadlines. */
MUST_CHECK enum error carrier_wait(struct carrier *cr, const struct collective *c, enum device_lane l);

/* Memory of the device, for what comes from others before it is added, or of the host: grown where it does not
 * suffice, which waits for the lane. */
struct slots {
    bool host;
    void *memory;
    size_t bytes;
};
void slots_free(struct carrier *cr, struct slots *s);
enum { SLOT_PIECE = 16 << 20 }; /* bytes of each rank's at once, at most */
MUST_CHECK enum error slots_reserve(struct carrier *cr, enum device_lane l, struct slots *s, size_t bytes);
/* to = the sum of the range in the call's order, on the lane: f32, REDOP_SUM. in[i] and to point at element lo; in[i] is
 * of the rank at place i of those that give. The call's lists->out is used. */
MUST_CHECK enum error carrier_sum(struct carrier *cr, enum device_lane l, const struct collective *c,
                                  struct element_range r, const float *const *in, float *to);
