/* Link "mpi": an MPI library carries the messages, for clusters whose network it knows best. All
 * else stays the engine's: which messages there are, the order of additions, and so the bits.
 *
 * MPI tells nothing of ranks that are late or lost, and waits for them for ever. So this is the
 * link over TCP without its lanes (tcp_impl.h): its control streams join all ranks, tell of deaths,
 * say who is late and what it was doing, and make a failure one. Each lane of calls has a space of
 * MPI's (a communicator) instead; messages by tags stay on TCP, where one can wait for any of them.
 *
 * A message is cut where both ends know: the label with the first bytes, so many that MPI sends
 * them at once, and pieces of the rest. The receiver checks the label before it takes a piece, so a
 * rank out of step is found before a byte is misread. Up to WINDOW pieces fly at a time, in each
 * direction; they are awaited in order. A sink that only copies gets them straight into its memory.
 *
 * Who waits asks MPI again and again, and in between gives its core away: at first for moments,
 * then for longer and longer naps. */
#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/memory.h"
#include "transport/link/mpi_module.h"
#include "transport/link/tcp_impl.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

extern const struct link_ops link_mpi;

enum {
    FIRST = sizeof(struct label) + 3968, /* of whole lines, and below what libraries send at once */
    PIECE = 256 << 10,
    WINDOW = 4,
};

/* One direction of an exchange: messages that were started and have not landed. */
struct flights {
    uint64_t of[WINDOW];
    unsigned began, ended; /* how many; number k is at k % WINDOW */
    size_t posted;         /* bytes of label and data */
};
struct mpi_lane {
    uint64_t space;
    bool joined, stuck; /* stuck: MPI may still use its buffers */
    struct flights out, in;
    char *first_out, *first_in, *held;
};
/* What the link over TCP carries along for this one. */
struct mpi_carried {
    const struct mpi *mpi;
    struct mpi_lane lane[LANES];
};

static struct mpi_lane *mpi_lane_of(struct tcp *t, int lane) {
    return &((struct mpi_carried *)t->carried)->lane[lane];
}

static const struct mpi_calls *mpi_calls_of(const struct tcp *t) {
    return ((const struct mpi_carried *)t->carried)->mpi->calls;
}

/* ---- pieces ---- */

/* Of the piece that begins there. */
static size_t piece_bytes(size_t at, size_t total) {
    size_t most = at == 0 ? (size_t)FIRST : (size_t)PIECE;
    return total - at < most ? total - at : most;
}

static unsigned flights_count(const struct flights *f) {
    return f->began - f->ended;
}

/* The peer cannot be reached: what control has to say of it is worth more than MPI's words. */
static enum error mpi_broken(struct tcp *t, int lane, int peer, const char *words) {
    log_warn("MPI: %s", words);
    return tcp_broken(t, lane, peer);
}

/* Where the piece that begins there lies, or is to land. */
static char *piece_place(struct tcp *t, int lane, bool in, size_t at) {
    const struct mpi_lane *m = mpi_lane_of(t, lane);
    const struct receiving *r = &t->lane[lane].in;
    if (at == 0) return in ? m->first_in : m->first_out;
    if (!in) return (char *)(uintptr_t)t->lane[lane].out.data + (at - sizeof(struct label)); /* read only */
    if (only_copies(r)) return (char *)r->in->ctx + (at - sizeof r->label);
    return m->held + (at - FIRST) / PIECE % WINDOW * PIECE;
}

/* ---- posting and landing, in either direction ---- */

/* The label and the first bytes leave together. */
static void piece_fill_first(struct tcp *t, int lane) {
    const struct sending *s = &t->lane[lane].out;
    char *first = mpi_lane_of(t, lane)->first_out;
    memcpy(first, &s->label, sizeof s->label);
    if (s->bytes) memcpy(first + sizeof s->label, s->data, piece_bytes(0, s->total) - sizeof s->label);
}

/* A receiver takes the label before all else; the first piece of a rank out of step may have any length. */
static enum error pieces_post(struct tcp *t, int lane, bool in) {
    struct mpi_lane *m = mpi_lane_of(t, lane);
    struct flights *f = in ? &m->in : &m->out;
    const struct receiving *r = &t->lane[lane].in;
    const struct sending *s = &t->lane[lane].out;
    size_t total = in ? r->total : s->total;
    int peer = in ? r->peer : s->peer;
    char words[MPI_WORDS];
    while (f->posted < total && flights_count(f) < WINDOW && (!in || r->labelled || f->posted == 0)) {
        size_t n = piece_bytes(f->posted, total);
        char *place = piece_place(t, lane, in, f->posted);
        uint64_t *flight = &f->of[f->began % WINDOW];
        bool good = in ? mpi_calls_of(t)->receive(m->space, peer, place, f->posted ? n : FIRST, flight, words)
                       : mpi_calls_of(t)->send(m->space, peer, place, n, flight, words);
        if (!good) return mpi_broken(t, lane, peer, words);
        f->began++;
        f->posted += n;
    }
    return ERR_NONE;
}

/* Gives a piece of n bytes that has come to the sink. */
static enum error piece_use(struct tcp *t, int lane, size_t n) {
    struct receiving *r = &t->lane[lane].in;
    size_t head = r->done ? 0 : sizeof r->label, at = r->done + head - sizeof r->label;
    const char *place = piece_place(t, lane, true, r->done);
    if (head && n >= head) {
        memcpy(&r->label, place, head);
        TRY(tcp_check_label(t, lane));
    }
    if (n != piece_bytes(r->done, r->total))
        return tcp_fail(&t->link, ERR_DATA, "MPI gave a message of another length than was sent");
    if (n > head && (head || !only_copies(r))) r->in->sink(r->in->ctx, at, place + head, n - head);
    r->done += n;
    return ERR_NONE;
}

static enum error pieces_land(struct tcp *t, int lane, bool in, bool *some) {
    struct mpi_lane *m = mpi_lane_of(t, lane);
    struct flights *f = in ? &m->in : &m->out;
    struct sending *s = &t->lane[lane].out;
    char words[MPI_WORDS];
    for (bool done = true; flights_count(f);) {
        size_t n;
        bool good = mpi_calls_of(t)->landed(&f->of[f->ended % WINDOW], &done, &n, words);
        if (!done) break;
        f->ended++;
        if (!good) return mpi_broken(t, lane, in ? t->lane[lane].in.peer : s->peer, words);
        if (in)
            TRY(piece_use(t, lane, n));
        else
            s->done += piece_bytes(s->done, s->total);
        *some = true;
    }
    return ERR_NONE;
}

static enum error pieces_move(struct tcp *t, int lane, bool *some) {
    TRY(pieces_post(t, lane, true));
    TRY(pieces_post(t, lane, false));
    TRY(pieces_land(t, lane, true, some));
    return pieces_land(t, lane, false, some);
}

/* ---- waiting ---- */

/* Nothing has moved for 'waited' ns. A thread that has a core to itself polls for longer before it sleeps. */
static enum error wait_give_way(struct tcp *t, int lane, int64_t waited) {
    enum { BRISK = 5000, PATIENT = 200000, NAP_MOST = 200000 };
    if (waited < (t->link.patient[lane] ? PATIENT : BRISK)) {
        sched_yield();
        return ERR_NONE;
    }
    clock_nap(waited < NAP_MOST ? waited : NAP_MOST);
    return tcp_failure(&t->link);
}

static enum error exchange_move_all(struct tcp *t, int lane) {
    enum { LOOK = 20000000 };
    const struct tcp_lane *n = &t->lane[lane];
    int64_t moved = clock_ns(), looked = moved;
    while (n->out.done < n->out.total || n->in.done < n->in.total) {
        bool some = false;
        TRY(pieces_move(t, lane, &some));
        int64_t now = clock_ns();
        if (some) {
            moved = looked = now;
            continue;
        }
        if (now - looked >= LOOK) {
            looked = now;
            TRY(tcp_watch(t, lane));
        }
        TRY(wait_give_way(t, lane, now - moved));
    }
    return ERR_NONE;
}

/* ---- failure ---- */

static void flights_land_cancelled(struct tcp *t, struct flights *f) {
    char words[MPI_WORDS];
    size_t n;
    for (bool done = true; flights_count(f) && done;) {
        (void)mpi_calls_of(t)->landed(&f->of[f->ended % WINDOW], &done, &n, words);
        if (done) f->ended++;
    }
}

/* What is in the air is not wanted any more. What has begun to move may need its peer to end, which
 * may be lost: it gets a moment, then it is left alone with the lane's buffers. MPI moves bytes to
 * or from the caller's memory after that only if it is called again, which it is not. */
static void exchange_give_up(struct tcp *t, int lane) {
    static const double moment = 0.1;
    struct mpi_lane *m = mpi_lane_of(t, lane);
    struct flights *f[] = {&m->out, &m->in};
    int64_t start = clock_ns();
    mpi_calls_of(t)->forsake();
    for (int i = 0; i < 2; i++)
        for (unsigned k = f[i]->ended; k != f[i]->began; k++) mpi_calls_of(t)->cancel(&f[i]->of[k % WINDOW]);
    do {
        for (int i = 0; i < 2; i++) flights_land_cancelled(t, f[i]);
        m->stuck = flights_count(&m->out) || flights_count(&m->in);
        if (m->stuck) clock_nap(1000000);
    } while (m->stuck && clock_seconds(clock_ns() - start) < moment);
}

static enum error mpi_exchange(struct link *l, int lane, const struct call *label, const struct outgoing *out,
                               const struct incoming *in) {
    struct tcp *t = tcp_of(l);
    if (lane >= LANES) return tcp_exchange(l, lane, label, out, in);
    struct mpi_lane *m = mpi_lane_of(t, lane);
    TRY(tcp_failure(l));
    tcp_prepare(t, lane, label, out, in);
    m->out = m->in = (struct flights){0};
    if (out) piece_fill_first(t, lane);
    enum error err = exchange_move_all(t, lane);
    tcp_rest(t, lane);
    if (err) exchange_give_up(t, lane);
    return err;
}

/* ---- MPI's own collectives ---- */

/* MPI is not asked who is late: all had entered the call before it was MPI's. */
static enum error collective_await(struct tcp *t, int lane, uint64_t *flight) {
    const struct link_params *p = &t->link.params;
    int64_t start = clock_ns();
    char words[MPI_WORDS], doing[DESCRIBED_MAX], reason[REASON_MAX];
    size_t none;
    for (bool done = false;;) {
        bool good = mpi_calls_of(t)->landed(flight, &done, &none, words);
        if (done && good) return ERR_NONE;
        if (done) return tcp_fail(&t->link, ERR_PEER, words);
        int64_t waited = clock_ns() - start;
        TRY(wait_give_way(t, lane, waited));
        if (clock_seconds(waited) < p->timeout) continue;
        p->describe(p->user, lane, doing);
        snprintf(reason, sizeof reason, "MPI has not done its %s within %.3g s", doing, p->timeout);
        return tcp_fail(&t->link, ERR_TIMEOUT, reason);
    }
}

/* MPI checks nothing and waits for ever: the ranks first agree, by messages of their own, that all
 * have come to this call. */
static enum error mpi_native(struct link *l, int lane, const struct native_call *c) {
    enum { MOST = 1 << 28 };
    struct tcp *t = tcp_of(l);
    struct native_call part = *c;
    char words[MPI_WORDS];
    enum error err = tcp_sync(l, lane);
    for (int64_t at = 0; at < c->count && !err; at += MOST) {
        int64_t left = c->count - at;
        uint64_t flight;
        part.buf = c->buf + (size_t)at * dtype_size(c->type);
        part.count = left < MOST ? left : MOST;
        if (!mpi_calls_of(t)->collect(mpi_lane_of(t, lane)->space, &part, &flight, words))
            return tcp_fail(&t->link, ERR_PEER, words);
        err = collective_await(t, lane, &flight);
    }
    return err;
}

/* ---- opening and closing ---- */

static enum error mpi_check_ranks(const struct link_params *p, const struct mpi *m) {
    for (int r = 0; r < p->size; r++) {
        int number = p->roster->of[r].number;
        if (number < 0 || number >= m->size || (r == p->rank && number != m->rank))
            return FAIL(ERR_MISMATCH,
                        "link mpi: rank %d is rank %d of all, but MPI counts %d ranks, and takes this process for rank "
                        "%d\nstart all by one mpirun of the library that the engine was built with: each reads its "
                        "rank from it",
                        link_rank_name(p, r), number, m->size, m->rank);
    }
    return ERR_NONE;
}

static enum error mpi_open_lane(struct tcp *t, int lane) {
    enum { TAGS = 1 << 14 }; /* every library has twice as many */
    const struct link_params *p = &t->link.params;
    struct mpi_lane *m = mpi_lane_of(t, lane);
    int number[RANKS_MOST];
    char words[MPI_WORDS];
    TRY_MEMORY(m->held = memory_new(2 * FIRST + WINDOW * PIECE));
    m->first_in = m->held + WINDOW * PIECE;
    m->first_out = m->first_in + FIRST;
    for (int r = 0; r < p->size; r++) number[r] = p->roster->of[r].number;
    int tag = (int)(p->group % TAGS) * LANES + lane;
    m->joined = mpi_calls_of(t)->join(number, p->size, tag, &m->space, words);
    return m->joined ? ERR_NONE : FAIL(ERR_PEER, "link mpi: %s", words);
}

/* No rank waits for another here. Ends only what has not failed: MPI would wait for the lost. */
static void mpi_close(struct link *l) {
    struct tcp *t = tcp_of(l);
    struct mpi_carried *c = t->carried;
    bool failed = tcp_failure(l) != ERR_NONE;
    for (int i = 0; c && i < LANES; i++) {
        if (c->lane[i].joined && !failed) c->mpi->calls->part(c->lane[i].space);
        if (!c->lane[i].stuck) memory_free(c->lane[i].held);
    }
    if (c && failed) c->mpi->calls->forsake();
    memory_free(c);
    tcp_close(l);
}

static enum error mpi_open_carried(struct tcp *t, const struct mpi *mpi) {
    TRY(mpi_check_ranks(&t->link.params, mpi));
    struct mpi_carried *c = t->carried = memory_new(sizeof *c);
    if (!c) return ERR_MEMORY;
    c->mpi = mpi;
    for (int i = 0; i < LANES; i++) TRY(mpi_open_lane(t, i));
    t->link.guard = NULL; /* of what MPI sends, nothing is known */
    return tcp_begin_use(&t->link);
}

/* All ranks have joined by control before any of them calls MPI for all. */
static enum error mpi_open(const struct link_params *p, struct link **out) {
    const struct mpi *mpi;
    struct link *l;
    if (p->secure >= SECURE_SEALED)
        return FAIL(ERR_CONFIG,
                    "messages are to be %s, but MPI neither seals nor encrypts what it sends\n"
                    "comm.link: hosts, or comm.secure: auto",
                    secure_names[p->secure]);
    TRY(mpi_start(&mpi));
    TRY(tcp_open(p, &link_mpi, NULL, &l));
    enum error err = mpi_open_carried(tcp_of(l), mpi);
    if (err)
        mpi_close(l);
    else
        *out = l;
    return err;
}

const struct link_ops link_mpi = {
    .row = &link_rows[COMM_LINK_MPI],
    .summary = "an MPI library carries the messages; ranks started by mpirun or srun",
    .open = mpi_open,
    .close = mpi_close,
    .exchange = mpi_exchange,
    .native = mpi_native,
    TCP_LINK_OPS,
};
