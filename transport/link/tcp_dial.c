/* The dialing side: opens a stream to a rank's port, again and again until it is there. */
#include "engine/base/clock.h"
#include "transport/door/visit.h"
#include "transport/link/tcp_impl.h"

#include <stdio.h>
#include <string.h>

struct dialing {
    const struct link_params *params;
    const char *address;
    struct visit *visit;
    int64_t deadline;
    char where[NAME_MAX_BYTES + ADDRESS_MAX + 8]; /* "rank 1 (hostA) at tcp://..." */
};

static enum error dial_check_welcome(const struct dialing *d) {
    struct door_head head;
    (void)visit_reply(d->visit, &head);
    if (head.version != DOOR_VERSION)
        return FAIL(ERR_MISMATCH, "%s speaks version %u of the link, this rank %d", d->where, (unsigned)head.version,
                    DOOR_VERSION);
    return head.kind ? FAIL(ERR_PEER, "%s did not understand (%u)", d->where, (unsigned)head.kind) : ERR_NONE;
}

/* *rv: an nng error after which one may try again. */
static enum error dial_once(struct dialing *d, const struct hello *h, struct stream *out, int *rv) {
    uint8_t *message = visit_room(d->visit, sizeof *h);
    if (!message) return FAIL(ERR_MEMORY, "out of memory while reaching %s", d->where);
    struct hello hello = *h;
    int64_t hangs_up = clock_after(DOOR_SECONDS), latest = hangs_up < d->deadline ? hangs_up : d->deadline;
    hello.dialed = clock_ns();
    memcpy(message, &hello, sizeof hello);
    *rv = visit_connect(d->visit, d->address, port_key(d->params->port), latest);
    if (!*rv) *rv = visit_ask(d->visit, DOOR_STRANGER_MAX, latest);
    if (*rv == NNG_EPEERAUTH)
        return FAIL(ERR_PEER, "%s does not hold this run's token\nall ranks need the same run.token", d->where);
    if (*rv == NNG_EPROTO) return FAIL(ERR_PEER, "%s: the program that listens there is not a rank", d->where);
    if (*rv) return ERR_NONE;
    TRY(dial_check_welcome(d));
    return visit_end(d->visit, out);
}

static enum error dial_until(struct dialing *d, const struct hello *h, struct stream *out) {
    int64_t nap = 2000000;     /* ns; doubled up to a quarter of a second */
    int cause = NNG_ETIMEDOUT; /* the last that says more than that the time was over */
    for (;;) {
        int rv = 0;
        TRY(dial_once(d, h, out, &rv));
        if (rv == 0) return ERR_NONE;
        if (rv != NNG_ETIMEDOUT) cause = rv;
        if (clock_ns() + nap >= d->deadline)
            return FAIL(ERR_TIMEOUT, "cannot reach %s within %.3g s: %s", d->where, d->params->timeout,
                        nng_strerror(cause));
        clock_nap(nap);
        nap = nap < 125000000 ? nap * 2 : 250000000;
    }
}

enum error tcp_dial(const struct link_params *p, const struct hello *h, int64_t deadline, struct stream *out) {
    char name[NAME_MAX_BYTES];
    struct dialing d = {.params = p, .address = p->roster->of[h->to].address, .deadline = deadline};
    tcp_name(p, (int)h->to, name);
    snprintf(d.where, sizeof d.where, "%s at %.*s", name, ADDRESS_MAX, d.address);
    if (strncmp(d.address, "tcp://", 6) != 0 || memchr(d.address, '\0', ADDRESS_MAX) == NULL)
        return FAIL(ERR_DATA, "'%.*s' is not the address of a rank", ADDRESS_MAX, d.address);
    TRY(visit_create(&d.visit));
    enum error err = dial_until(&d, h, out);
    visit_free(d.visit);
    return err;
}
