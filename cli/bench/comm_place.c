/* Where the ranks of a bench meet that are threads of this process. Over a link that reaches other
 * hosts each has a port on loopback, and all share a roster; over "hosts" they are given places as if they
 * are on two, the first half on one, so that both of its ways are used. */
#include "cli/bench/bench.h"
#include "transport/launch/launch.h"

#include <stdlib.h>
#include <string.h>

static enum error places_open_port(struct bench_places *p, int rank, int first, int host) {
    struct seat_of *s = &p->seat[rank];
    TRY(port_open(&(struct port_params){.key = "bench"}, &p->port[rank])); /* so that messages can be sealed */
    *s = (struct seat_of){.host = host, .local = rank - first};
    snprintf(s->name, sizeof s->name, "host%c", 'A' + host);
    snprintf(s->address, sizeof s->address, "%s", port_address(p->port[rank]));
    return ERR_NONE;
}

/* Ranks [first, end) are a host. */
static enum error places_open_host(struct bench_places *p, int host, int first, int end, bool far) {
    if (first == end) return ERR_NONE;
    p->roster.hosts = host + 1;
    for (int r = first; r < end && far; r++) TRY(places_open_port(p, r, first, host));
    return meeting_create(end - first, &p->meeting[host]);
}

enum error bench_places_open(const struct bench_comm *o, struct bench_places *out) {
    int size = (int)o->ranks, lower = strcmp(o->link->row->name, "hosts") ? size : (size + 1) / 2;
    *out = (struct bench_places){.size = size, .roster = {.size = size}};
    out->port = calloc((size_t)size, sizeof *out->port);
    out->seat = calloc((size_t)size, sizeof *out->seat);
    if (!out->port || !out->seat) return FAIL(ERR_MEMORY, "no memory for %d ranks", size);
    if (link_is_far(o->link)) out->roster.of = out->seat;
    TRY(places_open_host(out, 0, 0, lower, link_is_far(o->link)));
    return places_open_host(out, 1, lower, size, link_is_far(o->link));
}

void bench_places_close(struct bench_places *p) {
    for (int r = 0; p->port && r < p->size; r++) port_close(p->port[r]);
    free(p->port);
    free(p->seat);
    for (int h = 0; h < 2; h++) meeting_free(p->meeting[h]);
}

struct group_params bench_place(const struct bench_places *p, int rank) {
    const struct roster *roster = p->roster.of ? &p->roster : NULL;
    return (struct group_params){.rank = rank,
                                 .size = p->size,
                                 .roster = roster,
                                 .port = p->port[rank],
                                 .meeting = p->meeting[p->seat[rank].host],
                                 .id = 1};
}
