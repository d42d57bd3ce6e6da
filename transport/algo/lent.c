/* Buffers that peers cannot reach, in memory that they can. The link lends every rank a piece of shared memory for each
 * lane. A rank whose buffer is out of reach lays a window of it there:
 *
 *     1. it copies what its peers will read of the window [lo, hi) to its lent memory;
 *     2. the ranks meet, the first time, or sync: all windows are there;
 *     3. the algorithm runs as it does in place, on the window alone, and ends with a sync;
 *     4. what peers have written to the lent memory is copied to the buffer, and the window moves
 *        on.
 *
 * So a call waits twice for each window, however large, where pipes would wait for each of their small pieces: on cores
 * that are busy with something else, each wait costs a turn of the scheduler. Where peers only read, windows take the
 * two halves of the lent memory in turn: one is laid while the one before is read, and each needs one wait. Ranks that
 * keep their buffers in reach work in these. An element's order of addition depends on its place in the whole buffer,
 * so windows change no bit. */
#include "transport/algo/plain.h"

#include <string.h>

/* Of this rank's window, the elements that go through the lent memory: [lo, hi) but for the hole,
 * which is for this rank to read or write, and stays where it is. */
struct lent_range {
    int64_t lo, hi, hole_lo, hole_hi;
};

/* slices: each rank sums its own slice, for all or for the root, whose own algorithm it is. */
static struct lent_range lent_shown(const struct collective *c, bool slices) {
    const struct element_range own = collective_range(c, KIND_REDUCE_SCATTER, c->rank, c->rank);
    bool root = c->rank == c->root, reduces = c->kind == KIND_REDUCE;
    bool rest = reduces ? slices : c->kind != KIND_BROADCAST; /* of parts or slices: all but its own */
    struct lent_range s = {c->lo, c->hi, c->lo, c->lo};
    if (kind_gathers(c->kind))
        s.lo = s.hole_lo = s.hole_hi = own.lo, s.hi = own.hi;
    else if (rest)
        s.hole_lo = own.lo, s.hole_hi = own.hi;
    bool none = kind_from_root(c->kind) ? !root : kind_to_root(c->kind) && !(reduces && slices) && root;
    return none ? (struct lent_range){c->lo, c->lo, c->lo, c->lo} : s;
}

static void lent_copy(const struct collective *c, char *to, const char *from, int64_t lo, int64_t hi) {
    if (hi > lo) memcpy(element(c, to, lo), element(c, from, lo), bytes_of(c, hi - lo));
}

static void lent_copy_shown(const struct collective *c, const struct lent_range *s, char *to, const char *from) {
    lent_copy(c, to, from, s->lo, s->hole_lo);
    lent_copy(c, to, from, s->hole_hi, s->hi);
}

/* Where element 0 of rank r's buffer would lie, if element lo lay so many elements into its lent memory. */
static char *lent_to(const struct collective *c, int r, int64_t into) {
    char *memory = c->link->ops->lent(c->link, c->lane, r);
    return (char *)((uintptr_t)memory + bytes_of(c, into) - bytes_of(c, c->lo));
}

/* Whether anybody borrows. */
static bool lent_find_borrowers(const struct collective *c, bool *borrows) {
    bool any = false;
    for (int r = 0; r < c->size; r++) {
        borrows[r] = c->at[r] == c->link->ops->lent(c->link, c->lane, r);
        any = any || borrows[r];
    }
    return any;
}

/* A sum of copies needs this rank's own, too. */
void collective_stage(struct collective *c) {
    const struct link_ops *ops = c->link->ops;
    struct lent_range shown = lent_shown(c, false);
    if (kind_adds(c->kind)) shown = (struct lent_range){c->lo, c->hi, c->lo, c->lo};
    for (int r = 0; r < c->size; r++) c->at[r] = ops->slot(c->link, c->lane, r, c->call.sequence);
    lent_copy_shown(c, &shown, c->at[c->rank], c->buf);
}

enum error collective_lent(struct collective *c, collective_fn own) {
    const struct link_ops *ops = c->link->ops;
    int64_t room = (int64_t)(c->link->lent_bytes / dtype_size(c->sum.type)), count = c->sum.count, into = 0;
    int64_t step = own ? room : room / 2;
    bool *borrows = c->lists->borrows, receives = own && (c->kind != KIND_REDUCE || c->rank == c->root);
    void *mine;
    TRY(ops->lend(c->link, c->lane, shown_buf(c), &mine));
    c->in_place = true;
    c->staged = !own; /* nobody waits for readers before the end */
    for (c->hi = 0; c->hi < count; into = room - step - into) {
        c->lo = c->hi;
        c->hi = c->lo + step < count ? c->lo + step : count;
        const struct lent_range shown = lent_shown(c, own != NULL);
        if (mine != c->buf) lent_copy_shown(c, &shown, lent_to(c, c->rank, into), c->buf);
        TRY(c->lo ? ops->sync(c->link, c->lane) : ops->meet(c->link, c->lane, &c->call, mine, c->at));
        if (c->lo == 0 && !lent_find_borrowers(c, borrows)) c->hi = count; /* the window is the whole */
        for (int r = 0; r < c->size; r++)
            if (borrows[r]) c->at[r] = r == c->rank ? c->buf : lent_to(c, r, into);
        TRY(own ? own(c) : plain_move(c, c->kind));
        if (mine != c->buf && receives) lent_copy_shown(c, &shown, c->buf, lent_to(c, c->rank, into));
    }
    c->staged = false;
    return own ? ERR_NONE : collective_finish(c);
}
