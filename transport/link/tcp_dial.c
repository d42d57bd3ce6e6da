/* The dialing side: opens a stream to a rank's port, again and again until it is there. */
#include "engine/base/clock.h"
#include "transport/door/visit.h"
#include "transport/link/tcp_impl.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct dialing {
    const struct link_params *params;
    const struct endpoint *at;
    struct talk talk;
    int64_t deadline;
    char where[NAME_MAX_BYTES + ADDRESS_MAX + 8]; /* "rank 1 (hostA) at tcp://..." */
};

static enum error dial_check_welcome(const struct dialing *d, const struct door_head *head) {
    if (head->version != DOOR_VERSION)
        return FAIL(ERR_MISMATCH, "%s speaks version %u of the link, this rank %d", d->where, (unsigned)head->version,
                    DOOR_VERSION);
    return head->kind ? FAIL(ERR_PEER, "%s did not understand (%u)", d->where, (unsigned)head->kind) : ERR_NONE;
}

/* *rv: an errno after which one may try again. */
static enum error dial_once(struct dialing *d, const struct hello *h, struct stream *out, int *rv) {
    uint8_t *message = talk_room(&d->talk, sizeof *h);
    if (!message) return FAIL(ERR_MEMORY, "out of memory while reaching %s", d->where);
    struct hello hello = *h;
    struct door_head head;
    int64_t hangs_up = clock_after(DOOR_SECONDS), latest = hangs_up < d->deadline ? hangs_up : d->deadline;
    hello.dialed = clock_ns();
    memcpy(message, &hello, sizeof hello);
    *rv = visit_connect(&d->talk, d->at, port_key(d->params->port), latest);
    if (!*rv) *rv = visit_ask(&d->talk, DOOR_STRANGER_MAX, latest, &head);
    if (*rv == EKEYREJECTED)
        return FAIL(ERR_PEER, "%s does not hold this run's token\nall ranks need the same run.token", d->where);
    if (*rv == EPROTO) return FAIL(ERR_PEER, "%s: the program that listens there is not a rank", d->where);
    if (*rv) return ERR_NONE;
    TRY(dial_check_welcome(d, &head));
    return talk_keep(&d->talk, out);
}

static enum error dial_until(struct dialing *d, const struct hello *h, struct stream *out) {
    int64_t pause = VISIT_PAUSE;
    int rv = 0, cause = ETIMEDOUT; /* cause: the last that says more than that the time was over */
    do {
        TRY(dial_once(d, h, out, &rv));
        if (rv == 0) return ERR_NONE;
        if (rv != ETIMEDOUT) cause = rv;
    } while (visit_pause(&pause, d->deadline));
    return FAIL(ERR_TIMEOUT, "cannot reach %s within %.3g s: %s", d->where, d->params->timeout, strerror(cause));
}

/* A roster is believed, but not to hold texts that end, or numbers of hosts. */
static enum error rank_find(const char *address, struct endpoint out[ENDPOINTS_MAX]) {
    struct address to;
    int count;
    if (memchr(address, '\0', ADDRESS_MAX) && !strncmp(address, "tcp:", 4) &&
        address_parse(address + strlen("tcp:"), &to) == ERR_NONE && address_resolve(&to, out, &count) == ERR_NONE)
        return ERR_NONE;
    return FAIL(ERR_DATA, "'%.*s' is not the address of a rank", ADDRESS_MAX, address);
}

enum error tcp_dial(const struct link_params *p, const struct hello *h, int64_t deadline, struct stream *out) {
    char name[NAME_MAX_BYTES];
    const char *address = p->roster->of[h->to].address;
    struct endpoint at[ENDPOINTS_MAX];
    struct dialing d = {.params = p, .at = at, .talk = VISIT_NONE, .deadline = deadline};
    TRY(rank_find(address, at));
    tcp_name(p, (int)h->to, name);
    snprintf(d.where, sizeof d.where, "%s at %.*s", name, ADDRESS_MAX, address);
    enum error err = dial_until(&d, h, out);
    talk_free(&d.talk);
    return err;
}
