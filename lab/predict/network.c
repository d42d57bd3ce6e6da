#include "lab/predict/network.h"

#include "engine/base/memory.h"

#include <math.h>
#include <string.h>

static int network_host_of(const struct network *n, int device) {
    return device / n->plan.per_host;
}

static int network_rack_of(const struct network *n, int device) {
    return network_host_of(n, device) / n->plan.per_rack;
}

struct network_plan network_described(const struct emulation *e, int devices, int ranks) {
    const struct emulated_worst w = emulation_worst(e, ranks);
    struct network_plan p = {.devices = devices, .per_host = 1, .oversubscription = 1, .outside = {w.alpha, w.beta}};
    if (emulation_varies(e) || e->up > 0) p.links = *e;
    return p;
}

/* Only links with a rate of their own make others wait. */
static enum error network_open_links(struct network *n) {
    size_t devices = (size_t)n->plan.devices;
    bool rates = false;
    for (int i = 0; i < n->plan.links.count; i++)
        rates = rates || (n->plan.links.links[i].to.count && n->plan.links.links[i].value[EMULATED_BANDWIDTH] > 0);
    TRY_MEMORY(n->sent = memory_new(devices * sizeof *n->sent));
    if (rates) TRY_MEMORY(n->link_free = memory_new(devices * devices * sizeof *n->link_free));
    return ERR_NONE;
}

enum error network_open(const struct network_plan *p, struct network *out) {
    int hosts = (p->devices + p->per_host - 1) / p->per_host;
    int racks = p->per_rack ? (hosts + p->per_rack - 1) / p->per_rack : 0;
    bool alone = p->per_host == 1; /* the device's port is the network's */
    *out = (struct network){.plan = *p, .count = {p->devices, alone ? 0 : hosts, racks}, .shared = !alone || racks > 0};
    out->links = emulation_on(&p->links);
    out->byte_time[PORT_DEVICE] = alone ? p->outside.beta : p->inside.beta;
    out->byte_time[PORT_HOST] = p->outside.beta;
    if (racks) out->byte_time[PORT_RACK] = p->outside.beta * p->oversubscription / p->per_rack;
    for (int k = 0; k < PORT_KINDS; k++)
        if (out->count[k]) TRY_MEMORY(out->port[k] = memory_new((size_t)out->count[k] * sizeof *out->port[k]));
    return out->links ? network_open_links(out) : ERR_NONE;
}

void network_close(struct network *n) {
    for (int k = 0; k < PORT_KINDS; k++) memory_free(n->port[k]);
    memory_free(n->sent);
    memory_free(n->link_free);
}

/* ---- a message ------------------------------------------------------------------------------ */

struct way {
    double bytes, begin, end;
};

static void way_pass(struct way *w, double *way_free, double takes) {
    w->begin = fmax(w->begin, *way_free);
    *way_free = w->begin + takes;
    w->end = fmax(w->end, *way_free);
}

static void way_pass_port(struct way *w, struct port_state *p, int in, double byte_time, double slowest) {
    way_pass(w, &p->free[in], w->bytes * fmax(byte_time, slowest));
    p->busy[in] += w->bytes * byte_time;
}

static void network_pass_port(struct network *n, struct way *w, enum port_kind kind, int which, int in,
                              double slowest) {
    way_pass_port(w, &n->port[kind][which], in, n->byte_time[kind], slowest);
}

static void way_delay(struct way *w, double seconds) {
    w->begin += seconds;
    w->end += seconds;
}

static double network_byte_time(double rate) {
    return rate > 0 ? 1 / rate : 0;
}

static struct passage network_pass_link(struct network *n, int from, int to, struct way w, double slowest) {
    const struct emulation *e = &n->plan.links;
    const struct emulated_line line = emulation_line(e, from, to);
    struct port_state *ports = n->port[PORT_DEVICE];
    struct passage out;
    way_pass_port(&w, &ports[from], 0, network_byte_time(emulation_port(e, from, true)), 0);
    out.left = w.end;
    way_delay(&w, emulation_delay(e, from, to, w.bytes, 0, n->sent[from]++));
    if (line.bandwidth > 0)
        way_pass(&w, &n->link_free[(size_t)from * (size_t)n->plan.devices + (size_t)to], w.bytes / line.bandwidth);
    way_delay(&w, line.latency);
    way_pass_port(&w, &ports[to], 1, network_byte_time(emulation_port(e, to, false)), slowest);
    out.came = w.end;
    return out;
}

struct passage network_pass(struct network *n, int from, int to, double bytes, double at, double slowest) {
    const struct network_plan *p = &n->plan;
    struct way w = {bytes, at, at};
    struct passage out;
    if (n->links) return network_pass_link(n, from, to, w, slowest);
    bool apart = network_host_of(n, from) != network_host_of(n, to);
    bool racks = apart && n->count[PORT_RACK] && network_rack_of(n, from) != network_rack_of(n, to);
    network_pass_port(n, &w, PORT_DEVICE, from, 0, 0);
    out.left = w.end;
    way_delay(&w, apart ? p->outside.alpha : p->inside.alpha);
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
        if (!bytes) continue;
        TRY_MEMORY(out->port[k] = memory_new(bytes));
        memcpy(out->port[k], n->port[k], bytes);
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
