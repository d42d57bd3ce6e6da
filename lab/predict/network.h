/* A network of ports, for the simulator: either links as comm.emulate describes them (engine/base/emulation.h), or hosts in
 * racks. There each device has a port, devices share their host's, hosts their rack's; every port is full duplex and passes
 * one message after the other. A message of n bytes handed over at t
 *
 *     leaves    from s = max(t, first port is free) to s + n / its rate
 *     passes    each further port on its way from the same time on, or when that is free
 *     has come  when it has passed the last, 'latency' later
 *
 * which is what emulated links do with one port a device, where all are alike. */
#pragma once
#include "engine/base/emulation.h"
#include "engine/base/error.h"
#include "lab/predict/cost.h"
#include <stdint.h>

struct network_plan {
    int devices;
    int per_host;            /* devices; 1: every device has the network's port to itself */
    int per_rack;            /* hosts; 0: one switch for all */
    double oversubscription; /* a rack's port has the rate of its hosts' together, divided by this */
    struct wire outside;     /* a host's port; latency between hosts */
    struct wire inside;      /* between devices of one host */
    struct emulation
        links; /* where it is on, instead of all but 'devices' and 'outside', which is the slowest of them */
};
/* The network that the description is of, for so many ranks. */
struct network_plan network_described(const struct emulation *e, int devices, int ranks);
enum port_kind { PORT_DEVICE, PORT_HOST, PORT_RACK, PORT_KINDS };
struct port_state {
    double free[2], busy[2]; /* out, in; seconds */
};
struct network {
    struct network_plan plan;
    struct port_state *port[PORT_KINDS];
    int count[PORT_KINDS];
    double byte_time[PORT_KINDS];
    bool shared; /* several devices share a port, so the order of arrival matters */
    bool links;  /* plan.links is on */
    /* Of such links: when each is free, (devices, devices), and the messages that each device has sent. */
    double *link_free;
    uint64_t *sent;
};
MUST_CHECK enum error network_open(const struct network_plan *p, struct network *out);
void network_close(struct network *n);

struct passage {
    double left, came;
};
/* slowest: seconds a byte that the receiver needs at least, because it adds what comes. */
struct passage network_pass(struct network *n, int from, int to, double bytes, double at, double slowest);
/* What has passed since the mark passes 'times' again: ports that were used are free that much later. */
struct port_mark {
    struct port_state *port[PORT_KINDS];
};
MUST_CHECK enum error network_mark(const struct network *n, struct port_mark *out);
void network_repeat(struct network *n, const struct port_mark *since, double times, double later);
void network_mark_free(struct port_mark *m);

struct busiest {
    enum port_kind kind;
    int which, way; /* way: 0 out, 1 in */
    double seconds;
};
struct busiest network_busiest(const struct network *n);
