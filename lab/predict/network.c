#include "lab/predict/network.h"

#include "engine/base/memory.h"

#include <string.h>

static int network_host_of(const struct network *n, int device) {
    return device / n->plan.per_host;
}

static int network_rack_of(const struct network *n, int device) {
    return network_host_of(n, device) / n->plan.per_rack;
}

enum error network_open(const struct network_plan *p, struct network *out) {
    int hosts = (p->devices + p->per_host - 1) / p->per_host;
    int racks = p->per_rack ? (hosts + p->per_rack - 1) / p->per_rack : 0;
    bool alone = p->per_host == 1; /* the device's port is the network's */
    *out = (struct network){.plan = *p, .count = {p->devices, alone ? 0 : hosts, racks}, .shared = !alone || racks > 0};
    out->byte_time[PORT_DEVICE] = alone ? p->outside.beta : p->inside.beta;
    out->byte_time[PORT_HOST] = p->outside.beta;
    if (racks) out->byte_time[PORT_RACK] = p->outside.beta * p->oversubscription / p->per_rack;
    for (int k = 0; k < PORT_KINDS; k++) {
        void *memory = NULL;
        if (out->count[k]) TRY(memory_alloc((size_t)out->count[k] * sizeof(struct port_state), &memory));
        out->port[k] = memory;
    }
    return ERR_NONE;
}

void network_close(struct network *n) {
    for (int k = 0; k < PORT_KINDS; k++) memory_free(n->port[k]);
}

/* ---- a message ------------------------------------------------------------------------------ */

struct way {
    double bytes, begin, end;
};

static void network_pass_port(struct network *n, struct way *w, enum port_kind kind, int which, int in,
                              double slowest) {
    struct port_state *p = &n->port[kind][which];
    double byte_time = n->byte_time[kind] > slowest ? n->byte_time[kind] : slowest;
    double takes = w->bytes * byte_time;
    if (p->free[in] > w->begin) w->begin = p->free[in];
    p->free[in] = w->begin + takes;
    p->busy[in] += w->bytes * n->byte_time[kind];
    if (p->free[in] > w->end) w->end = p->free[in];
}

struct passage network_pass(struct network *n, int from, int to, double bytes, double at, double slowest) {
    const struct network_plan *p = &n->plan;
    struct way w = {bytes, at, at};
    struct passage out;
    bool apart = network_host_of(n, from) != network_host_of(n, to);
    bool racks = apart && n->count[PORT_RACK] && network_rack_of(n, from) != network_rack_of(n, to);
    network_pass_port(n, &w, PORT_DEVICE, from, 0, 0);
    out.left = w.end;
    w.begin += apart ? p->outside.alpha : p->inside.alpha;
    w.end += apart ? p->outside.alpha : p->inside.alpha;
    if (apart && n->count[PORT_HOST]) network_pass_port(n, &w, PORT_HOST, network_host_of(n, from), 0, 0);
    if (racks) network_pass_port(n, &w, PORT_RACK, network_rack_of(n, from), 0, 0);
    if (racks) network_pass_port(n, &w, PORT_RACK, network_rack_of(n, to), 1, 0);
    if (apart && n->count[PORT_HOST]) network_pass_port(n, &w, PORT_HOST, network_host_of(n, to), 1, 0);
    network_pass_port(n, &w, PORT_DEVICE, to, 1, slowest);
    out.came = w.end;
    return out;
}

/* ---- what repeats --------------------------------------------------------------------------- */

enum error network_mark(const struct network *n, struct port_mark *out) {
    *out = (struct port_mark){{NULL}};
    for (int k = 0; k < PORT_KINDS; k++) {
        size_t bytes = (size_t)n->count[k] * sizeof(struct port_state);
        void *memory;
        if (!bytes) continue;
        TRY(memory_alloc(bytes, &memory));
        out->port[k] = memory;
        memcpy(memory, n->port[k], bytes);
    }
    return ERR_NONE;
}

void network_repeat(struct network *n, const struct port_mark *since, double times, double later) {
    for (int k = 0; k < PORT_KINDS; k++)
        for (int i = 0; i < n->count[k]; i++)
            for (int way = 0; way < 2; way++) {
                struct port_state *p = &n->port[k][i];
                double grown = p->busy[way] - since->port[k][i].busy[way];
                if (grown > 0) p->free[way] += later;
                p->busy[way] += grown * times;
            }
}

void network_mark_free(struct port_mark *m) {
    for (int k = 0; k < PORT_KINDS; k++) memory_free(m->port[k]);
}

struct busiest network_busiest(const struct network *n) {
    struct busiest b = {PORT_DEVICE, 0, 0, 0};
    for (int k = 0; k < PORT_KINDS; k++)
        for (int i = 0; i < n->count[k]; i++)
            for (int way = 0; way < 2; way++)
                if (n->port[k][i].busy[way] > b.seconds * (1 + 1e-9))
                    b = (struct busiest){(enum port_kind)k, i, way, n->port[k][i].busy[way]};
    return b;
}
