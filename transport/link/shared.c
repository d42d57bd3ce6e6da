/* Links "thread" and "shm": ranks are threads of one process and share one mapping of the board, or processes of one host,
 * each of which maps it, a memfd, at an address of its own. Ranks show their calls, count their steps and leave small messages on the board, and
 * reach each other's buffers where these lie in it. Flags are written by one rank and polled by the others. */
#include "transport/link/shared.h"
#include "engine/base/memory.h"

#include <assert.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

static struct shared *shared_of(struct link *l) {
    return (struct shared *)l;
}

/* ---- coming and going ---- */

static enum error board_take_part(struct board_member *own, int rank) {
    int32_t nobody = 0;
    if (atomic_compare_exchange_strong(&own->pid, &nobody, (int32_t)getpid())) return ERR_NONE;
    if (atomic_load(&own->left)) return FAIL(ERR_PEER, "rank %d has left this meeting, which is for one group", rank);
    return FAIL(ERR_MISMATCH, "there are two ranks %d\neach rank needs a number of its own", rank);
}

static enum error shared_open(const struct link_params *p, const struct link_ops *ops, struct link **out) {
    struct board *b = p->meeting->board;
    if (b->size != p->size) return FAIL(ERR_MISMATCH, "a group of %d ranks, a meeting for %d", p->size, b->size);
    struct shared *s = memory_new(sizeof *s + (size_t)LINK_WAYS * 2 * (size_t)p->size);
    if (!s) return ERR_MEMORY;
    s->link.ops = ops;
    s->link.params = *p;
    s->meeting = p->meeting;
    s->board = b;
    s->me = &b->member[p->rank];
    s->roomy = b->size <= b->cores;
    s->crowd = b->size > CROWD;
    s->watched = p->rank;
    s->link.lent_bytes = b->lent_bytes;
    s->link.slot_bytes = s->roomy ? SLOT_ROOMY : SLOT_BYTES;
    enum error err = board_take_part(s->me, p->rank);
    if (err) {
        memory_free(s);
        return err;
    }
    s->space = process_space();
    atomic_store(&s->me->space, s->space);
    *out = &s->link;
    return ERR_NONE;
}

static void shared_close(struct link *l) {
    struct shared *s = shared_of(l);
    atomic_store(&s->me->left, 1);
    wake_all(s);
    memory_free(s);
}

/* ---- meeting ---- */

/* Where p lies in the part of the board that is for buffers, 0 when it does not. */
static uint64_t board_offset_of(const struct shared *s, const void *p) {
    uintptr_t offset = (uintptr_t)p - (uintptr_t)s->meeting->base;
    return offset >= s->board->lent && offset < s->meeting->reserved ? offset : 0;
}

static void *board_at_offset(const struct shared *s, uint64_t offset) {
    return offset ? s->meeting->base + offset : NULL;
}

/* Until that peer has come to the call. */
static enum error await_call(struct shared *s, int lane, int peer, uint32_t sequence) {
    const _Atomic uint32_t *turn = &s->board->member[peer].posted[lane][sequence & 1].turn;
    if (reached(turn, sequence)) return ERR_NONE;
    return wait_for(
        s, lane,
        &(struct wait){
            .n = 1, .peer = {peer}, .counter = {turn}, .want = {sequence}, .entering = true, .sequence = sequence});
}

static enum error shared_meet(struct link *l, int lane, const struct call *c, void *mine, void **at) {
    struct shared *s = shared_of(l);
    TRY(shared_failure(l));
    struct posted *post = &s->me->posted[lane][c->sequence & 1];
    post->call = *c;
    post->offset = board_offset_of(s, mine);
    atomic_store_explicit(&post->core, sched_getcpu(), memory_order_relaxed);
    atomic_store(&post->turn, c->sequence);
    if (s->crowd)
        TRY(gate_pass(s, lane, true, c->sequence));
    else
        wake_peers(s, lane);
    for (int r = 0; r < l->params.size; r++) {
        const struct posted *theirs = &s->board->member[r].posted[lane][c->sequence & 1];
        TRY(await_call(s, lane, r, c->sequence));
        if (!same_call(c, &theirs->call)) return l->params.disagree(l->params.user, lane, r, c, &theirs->call);
        at[r] = board_at_offset(s, theirs->offset);
    }
    return ERR_NONE;
}

static enum error shared_sync(struct link *l, int lane) {
    struct shared *s = shared_of(l);
    uint32_t step = ++s->steps[lane];
    atomic_store(&s->me->steps[lane].value, step);
    if (s->crowd) return gate_pass(s, lane, false, step);
    wake_peers(s, lane);
    for (int r = 0; r < l->params.size; r++) {
        const _Atomic uint32_t *theirs = &s->board->member[r].steps[lane].value;
        if (reached(theirs, step)) continue;
        TRY(wait_for(s, lane, &(struct wait){.n = 1, .peer = {r}, .counter = {theirs}, .want = {step}}));
    }
    return ERR_NONE;
}

static void *shared_slot(struct link *l, int lane, int rank, uint32_t sequence) {
    struct shared *s = shared_of(l);
    size_t index = ((size_t)(lane * l->params.size + rank)) * 2 + (sequence & 1);
    return s->meeting->base + s->board->slots + index * SLOT_BYTES;
}

/* ---- memory ---- */

static void *shared_lent(struct link *l, int lane, int rank) {
    struct shared *s = shared_of(l);
    size_t index = (size_t)(lane * l->params.size + rank);
    return s->meeting->base + s->board->lent + index * s->board->lent_bytes;
}

static enum error shared_lend(struct link *l, int lane, void *buf, void **mine) {
    struct shared *s = shared_of(l);
    *mine = buf;
    if (board_offset_of(s, buf)) return ERR_NONE;
    char *own = *mine = shared_lent(l, lane, l->params.rank);
    if (s->lent[lane]) return ERR_NONE;
    enum error err = meeting_fill(s->meeting, (size_t)(own - s->meeting->base), s->board->lent_bytes);
    if (err) return link_fail_own(l, err);
    s->lent[lane] = true;
    return ERR_NONE;
}

/* Ranks' pieces begin at different places within what the sets of a cache repeat after, so that
 * equal indices do not compete for one set. */
static enum error alloc_stride(size_t bytes, int size, size_t *stride, size_t *total) {
    enum { SETS = 4096, STAGGER = 5 * LINE };
    size_t whole;
    if (__builtin_add_overflow(bytes, (size_t)SETS + STAGGER, &whole))
        return FAIL(ERR_MEMORY, "cannot share %zu bytes", bytes);
    *stride = whole / SETS * SETS + STAGGER;
    return memory_size((size_t)size, *stride, "memory of all ranks", total);
}

/* Rank 0 does it for all. */
static enum error board_grow(struct shared *s, size_t total, bool sparse) {
    struct board *b = s->board;
    size_t page = meeting_page(), start = b->used, end;
    if (__builtin_add_overflow(start, total, &end) || __builtin_add_overflow(end, page - 1, &end))
        return FAIL(ERR_MEMORY, "cannot share %zu bytes", total);
    end = end / page * page;
    TRY(sparse ? meeting_extend_sparse(s->meeting, end) : meeting_extend(s->meeting, end));
    TRY(meeting_map(s->meeting, end));
    b->allocated = start;
    b->used = end;
    return ERR_NONE;
}

static enum error shared_alloc(struct link *l, size_t bytes, bool sparse, void **out) {
    struct shared *s = shared_of(l);
    size_t stride = 0, total = 0;
    enum error err = alloc_stride(bytes, l->params.size, &stride, &total);
    if (!err && l->params.rank == 0) err = board_grow(s, total, sparse);
    if (err) return link_fail_own(l, err);
    TRY(shared_sync(l, 0));
    if (s->meeting->fd >= 0 && (err = meeting_map(s->meeting, s->board->used)) != ERR_NONE)
        return link_fail_own(l, err);
    *out = s->meeting->base + s->board->allocated + (size_t)l->params.rank * stride;
    return shared_sync(l, 0); /* what was read stands until all have read it */
}

/* ---- failure ---- */

enum error shared_failure(struct link *l) {
    struct board *b = shared_of(l)->board;
    uint32_t state = atomic_load(&b->failed);
    if (state == NOT_FAILED) return ERR_NONE;
    for (int i = 0; state == FAILING && i < 100000; i++) { /* who writes it may have died over it */
        sched_yield();
        state = atomic_load(&b->failed);
    }
    if (state == FAILING) return FAIL(ERR_PEER, "a rank died while it reported why the group failed");
    return FAIL((enum error)b->error, "%s", b->reason);
}

enum error shared_fail(struct link *l, enum error err, const char *reason) {
    struct board *b = shared_of(l)->board;
    uint32_t none = NOT_FAILED;
    assert(err != ERR_NONE);
    if (atomic_compare_exchange_strong(&b->failed, &none, FAILING)) {
        b->error = (int32_t)err;
        size_t n = strnlen(reason, REASON_MAX - 1);
        memcpy(b->reason, reason, n);
        b->reason[n] = '\0';
        atomic_store(&b->failed, FAILED);
        wake_all(shared_of(l));
    }
    return shared_failure(l);
}

static void shared_note(struct link *l, const char *doing, int64_t step) {
    note_write(&shared_of(l)->me->note, doing, step);
}

/* ---- the links ---- */

/* The slots that they fill alike. */
#define SHARED_LINK_OPS                                                                                                \
    .close = shared_close, .meet = shared_meet, .sync = shared_sync, .slot = shared_slot, .lend = shared_lend,         \
    .lent = shared_lent, .exchange = shared_exchange, .alloc = shared_alloc, .fail = shared_fail,                      \
    .failure = shared_failure, .lost = shared_lost, .note = shared_note, .arrival = shared_arrival,                    \
    .poke = shared_poke, .left = shared_left

extern const struct link_ops link_thread, link_shm;

static enum error open_thread(const struct link_params *p, struct link **out) {
    if (p->meeting->fd >= 0) return FAIL(ERR_CONFIG, "link thread, but the ranks are processes\nuse link shm");
    return shared_open(p, &link_thread, out);
}

static enum error open_shm(const struct link_params *p, struct link **out) {
    if (p->meeting->fd < 0) return FAIL(ERR_CONFIG, "link shm, but the ranks are threads\nuse link thread");
    return shared_open(p, &link_shm, out);
}

const struct link_ops link_thread = {
    .row = &link_rows[COMM_LINK_THREAD],
    .summary = "memory of one process",
    .open = open_thread,
    SHARED_LINK_OPS,
};

const struct link_ops link_shm = {
    .row = &link_rows[COMM_LINK_SHM],
    .summary = "shared memory of one host",
    .open = open_shm,
    SHARED_LINK_OPS,
};
