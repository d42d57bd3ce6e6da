/* Pipes: one ring of cache lines for each pair of ranks, direction and lane. The writer owns one counter, the reader
 * the other. Each message is labelled with the call it belongs to, so ranks that are out of step find out before a byte
 * is misread. Pieces are handed over every 16 KB, so that the reader works while the writer writes. A rank that sleeps
 * is woken for more than a piece, since the two may have to take turns on one core: a writer sleeps until half the pipe
 * is free, and either side rings for the first piece of a message and the last, for each quarter of the pipe, and before
 * it waits itself. */
#include "engine/base/futex.h"
#include "transport/link/shared.h"

#include <string.h>

enum { PIECE_LINES = (16 << 10) / LINE };

_Static_assert(sizeof(struct label) <= LINE, "a label is one line");

/* One message in one direction; lines counts those that remain, the label's included. */
struct transfer {
    struct pipe *pipe;
    uint32_t room; /* lines of the pipe */
    int peer;
    uint32_t done; /* the count of lines on this rank's side */
    uint32_t told; /* done, when the peer was woken last */
    uint64_t lines;
    size_t bytes, offset;
    bool labelled;
};

static struct pipe *pipe_of(const struct shared *s, int lane, int from, int to) {
    return (struct pipe *)(void *)(s->meeting->base + board_pipe(s->board, lane_way(lane), from, to));
}

static const struct pipes *pipes_of(const struct shared *s, int lane) {
    return lane < LANES ? &s->board->pipe : &s->board->mail_pipe;
}

/* The pipe to or from a peer, which has memory afterwards. */
static enum error pipe_open(struct shared *s, int lane, bool in, int peer, struct pipe **out) {
    int me = s->link.params.rank, from = in ? peer : me, to = in ? me : peer;
    _Atomic bool *opened = &s->opened[opened_index(s, lane_way(lane), in, peer)];
    *out = pipe_of(s, lane, from, to);
    if (atomic_load_explicit(opened, memory_order_relaxed)) return ERR_NONE;
    enum error err = meeting_fill(s->meeting, board_pipe(s->board, lane_way(lane), from, to), pipes_of(s, lane)->bytes);
    if (err) return link_fail_own(&s->link, err);
    atomic_store(opened, true);
    return ERR_NONE;
}

/* The word and the bit that say that rank 'to' may find something of rank 'from' on LANE_IN. */
static _Atomic uint64_t *arrival_word(const struct shared *s, int from, int to, uint64_t *bit) {
    char *row = s->meeting->base + s->board->arrivals + (size_t)to * board_row(s->board->size);
    *bit = (uint64_t)1 << from % 64;
    return (_Atomic uint64_t *)(void *)row + from / 64;
}

static struct transfer transfer_of(struct pipe *p, uint32_t room, const struct counter *mine, int peer, size_t bytes) {
    uint32_t done = atomic_load_explicit(&mine->value, memory_order_relaxed);
    return (struct transfer){.pipe = p,
                             .room = room,
                             .peer = peer,
                             .done = done,
                             .told = done - room,
                             .lines = 1 + (bytes + LINE - 1) / LINE,
                             .bytes = bytes};
}

/* The next run of lines: not more than 'there' are, than the message needs, or than lie in one piece. */
static uint32_t run_lines(const struct transfer *t, uint32_t there) {
    uint32_t n = t->room - t->done % t->room;
    if (n > there) n = there;
    if (n > t->lines) n = (uint32_t)t->lines;
    if (n > PIECE_LINES) n = PIECE_LINES;
    return t->labelled ? n : n > 0;
}

static char *run_data(const struct transfer *t) {
    return t->pipe->data + t->done % t->room * (size_t)LINE;
}

static size_t run_bytes(const struct transfer *t, uint32_t lines) {
    size_t left = t->bytes - t->offset, n = lines * (size_t)LINE;
    return n < left ? n : left;
}

static void transfer_advance(struct transfer *t, uint32_t lines, size_t bytes) {
    t->done += lines;
    t->lines -= lines;
    t->offset += bytes;
    t->labelled = true;
}

/* Wakes the peer, if it sleeps and there is enough for it. */
static void transfer_tell(struct shared *s, int lane, struct transfer *t, bool surely) {
    if (!surely && t->lines && t->done - t->told < t->room / 4) return;
    t->told = t->done;
    wake_peer(s, lane_facing(lane), t->peer);
}

static uint32_t transfer_space(const struct transfer *t) {
    return t->room - (t->done - atomic_load(&t->pipe->read.value));
}

/* After something was written into the pipe to a peer's LANE_IN. */
static void arrival_announce(struct shared *s, int peer) {
    uint64_t bit;
    _Atomic uint64_t *word = arrival_word(s, s->link.params.rank, peer, &bit);
    if (!(atomic_load(word) & bit)) atomic_fetch_or(word, bit);
}

static bool transfer_send(struct shared *s, int lane, struct transfer *t, const struct call *label,
                          const struct outgoing *out) {
    uint32_t n = run_lines(t, transfer_space(t));
    if (n == 0) return false;
    if (!t->labelled) {
        struct label l = {.call = *label, .bytes = t->bytes, .stamp = out->stamp};
        memcpy(run_data(t), &l, sizeof l);
        transfer_advance(t, 1, 0);
        n = run_lines(t, transfer_space(t));
    }
    size_t bytes = run_bytes(t, n);
    if (bytes) memcpy(run_data(t), (const char *)out->data + t->offset, bytes);
    transfer_advance(t, n, bytes);
    atomic_store(&t->pipe->written.value, t->done);
    if (lane == LANE_OUT) arrival_announce(s, t->peer);
    transfer_tell(s, lane, t, false);
    return true;
}

static enum error transfer_check_label(struct shared *s, int lane, const struct transfer *t, const struct call *mine,
                                       const struct incoming *in) {
    struct label l;
    memcpy(&l, run_data(t), sizeof l);
    if (label_fits(&l, mine, t->bytes)) {
        if (in->stamp) *in->stamp = l.stamp;
        return ERR_NONE;
    }
    return s->link.params.disagree(s->link.params.user, lane, t->peer, mine, &l.call);
}

/* *some tells whether there was anything. */
static enum error transfer_receive(struct shared *s, int lane, struct transfer *t, const struct call *label,
                                   const struct incoming *in, bool *some) {
    uint32_t there = atomic_load(&t->pipe->written.value) - t->done;
    *some = there > 0;
    if (there == 0) return ERR_NONE;
    if (!t->labelled) {
        TRY(transfer_check_label(s, lane, t, label, in));
        transfer_advance(t, 1, 0);
        there--;
    }
    uint32_t n = run_lines(t, there);
    size_t bytes = run_bytes(t, n);
    if (bytes) in->sink(in->ctx, t->offset, run_data(t), bytes);
    transfer_advance(t, n, bytes);
    atomic_store(&t->pipe->read.value, t->done);
    transfer_tell(s, lane, t, false);
    return ERR_NONE;
}

static enum error transfer_wait(struct shared *s, int lane, struct transfer *out, struct transfer *in) {
    struct wait w = {0};
    if (in->lines) {
        transfer_tell(s, lane, in, true);
        w.peer[w.n] = in->peer;
        w.counter[w.n] = &in->pipe->written.value;
        w.want[w.n++] = in->done + 1;
    }
    if (out->lines) {
        uint32_t half = out->room / 2;
        transfer_tell(s, lane, out, true);
        w.peer[w.n] = out->peer;
        w.counter[w.n] = &out->pipe->read.value;
        w.want[w.n++] = out->done + (out->lines < half ? (uint32_t)out->lines : half) - out->room;
    }
    return wait_for(s, lane, &w);
}

enum error shared_exchange(struct link *l, int lane, const struct call *label, const struct outgoing *out,
                           const struct incoming *in) {
    struct shared *s = (struct shared *)l;
    struct transfer o = {0}, i = {0};
    if (out) {
        struct pipe *p;
        TRY(pipe_open(s, lane, false, out->peer, &p));
        o = transfer_of(p, pipes_of(s, lane)->lines, &p->written, out->peer, out->bytes);
    }
    if (in) {
        struct pipe *p;
        TRY(pipe_open(s, lane, true, in->peer, &p));
        i = transfer_of(p, pipes_of(s, lane)->lines, &p->read, in->peer, in->bytes);
    }
    while (o.lines || i.lines) {
        bool sent = o.lines && transfer_send(s, lane, &o, label, out), received = false;
        if (i.lines) TRY(transfer_receive(s, lane, &i, label, in, &received));
        if (!sent && !received) TRY(transfer_wait(s, lane, &o, &i));
    }
    return ERR_NONE;
}

/* ---- messages from anybody ---- */

static bool pipe_is_empty(const struct shared *s, int from) {
    const struct pipe *p = pipe_of(s, LANE_IN, from, s->link.params.rank);
    return atomic_load(&p->written.value) == atomic_load(&p->read.value);
}

/* Of a rank that may have left something: if the pipe is empty, the next who writes into it has to say so again. */
static bool arrival_is_there(struct shared *s, int from) {
    uint64_t bit;
    _Atomic uint64_t *word = arrival_word(s, from, s->link.params.rank, &bit);
    if (!(atomic_load(word) & bit)) return false;
    atomic_store(&s->opened[opened_index(s, MAIL_WAY, true, from)], true);
    if (!pipe_is_empty(s, from)) return true;
    atomic_fetch_and(word, ~bit);
    if (pipe_is_empty(s, from)) return false;
    atomic_fetch_or(word, bit);
    return true;
}

static int arrival_find(struct shared *s, int last) {
    int size = s->link.params.size;
    for (int i = 1; i <= size; i++)
        if (arrival_is_there(s, (last + i) % size)) return (last + i) % size;
    return -1;
}

enum error shared_arrival(struct link *l, int *peer) {
    struct shared *s = (struct shared *)l;
    struct bell *b = &s->me->bell[LANE_IN];
    uint32_t rung = atomic_load(&b->rung);
    int last = *peer < 0 ? 0 : *peer;
    wait_take_short_turns();
    atomic_store(&b->awaited, ANY_PEER);
    *peer = arrival_find(s, last);
    if (*peer < 0 && !atomic_exchange(&s->poked, false) && !atomic_load(&s->board->failed)) {
        futex_wait(&b->rung, rung, -1);
        *peer = arrival_find(s, last);
    }
    atomic_store(&b->awaited, AWAKE);
    return shared_failure(l);
}

void shared_poke(struct link *l) {
    struct shared *s = (struct shared *)l;
    atomic_store(&s->poked, true);
    bell_ring(&s->me->bell[LANE_IN]);
}

bool shared_left(struct link *l, int rank) {
    struct shared *s = (struct shared *)l;
    uint64_t bit;
    if (!atomic_load(&s->board->member[rank].left)) return false;
    if (atomic_load(&s->opened[opened_index(s, MAIL_WAY, true, rank)])) return pipe_is_empty(s, rank);
    return !(atomic_load(arrival_word(s, rank, s->link.params.rank, &bit)) & bit); /* nobody has taken it back */
}
