/* The places of ranks and how they reach each other: the launcher prepares them for group_open. A roster is what
 * every rank knows of every other once they have met (launch/rendezvous.h). */
#pragma once
#include "engine/base/error.h"
#include <stdint.h>

enum { ADDRESS_MAX = 96 };
struct seat_of {               /* one rank */
    int host;                  /* 0 .. hosts - 1, in the order of their first ranks */
    int local;                 /* which of the ranks of its host, in the order of ranks */
    int number;                /* its rank among all that were started together */
    char name[64];             /* "hostB, pid 4711": for messages */
    char address[ADDRESS_MAX]; /* "tcp://10.0.0.2:41234", of its port; "": none */
};
struct roster {
    int size, hosts;
    const struct seat_of *of;
};

/* A port is where the streams of other ranks arrive: one listening socket of this process, for all groups of one rank.
 * Streams begin with a hello that proves the key and names the group and the rank, so garbage, strangers and ranks of
 * other runs are dropped, and a silent one after a while. */
struct port;
struct port_params {
    /* Where to listen: NULL: loopback; an address ("10.0.0.2", "fd00::2"); or an interface ("eth0"), of which the first
     * address that is not link-local is taken, IPv4 before IPv6. Port free. */
    const char *interface;
    const char *key; /* that all ranks must hold; "" or NULL: none, which only loopback takes */
    bool near;       /* it is for ranks of this host: only loopback takes it */
};
MUST_CHECK enum error port_open(const struct port_params *p, struct port **out);
void port_close(struct port *p);
const char *port_address(const struct port *p);
/* The address of this host by which it reaches 'towards' ("10.0.0.1:29500", "master:29500"), as
 * text for port_params.interface: what several hosts listen on when none is chosen. */
MUST_CHECK enum error port_address_towards(const char *towards, char out[ADDRESS_MAX]);
