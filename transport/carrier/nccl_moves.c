/* What each kind of call is made of over NCCL. Parts that are equal have functions of their own; unequal ones are
 * groups of sends and receives, and of reduces.
 *
 * bitwise: NCCL adds in an order that depends on its choices and on the number of ranks. So it only moves: every rank
 * gets the others' elements of its own part, in slots, and adds them in the group's order; an all-reduce then gathers
 * the parts. That is the ring's bytes, in messages from all to all. */
#ifdef ENGINE_HAVE_NCCL
#include "transport/carrier/nccl_impl.h"

static const ncclDataType_t types[DTYPES] = {
    [DTYPE_F32] = ncclFloat32, [DTYPE_F64] = ncclFloat64, [DTYPE_F16] = ncclFloat16, [DTYPE_BF16] = ncclBfloat16,
    [DTYPE_I32] = ncclInt32,   [DTYPE_I64] = ncclInt64,   [DTYPE_U8] = ncclUint8};
static const ncclRedOp_t ops[REDOP_AVERAGE + 1] = {[REDOP_SUM] = ncclSum,
                                                   [REDOP_PROD] = ncclProd,
                                                   [REDOP_MIN] = ncclMin,
                                                   [REDOP_MAX] = ncclMax,
                                                   [REDOP_AVERAGE] = ncclAvg};

static bool dtype_is_float(enum dtype t) {
    return t == DTYPE_F32 || t == DTYPE_F64 || t == DTYPE_F16 || t == DTYPE_BF16;
}

/* A rank that gives nothing is not known to NCCL's sums. Its averages of integers are not ours. */
bool nccl_takes(const struct carrier *cr, const struct collective *c) {
    const struct nccl_carrier *n = (const struct nccl_carrier *)cr;
    if (!kind_adds(c->kind)) return true;
    if (n->bitwise) return c->sum.type == DTYPE_F32 && c->sum.op == REDOP_SUM;
    return c->sum.first == 0 && c->sum.op <= REDOP_AVERAGE &&
           (c->sum.op != REDOP_AVERAGE || dtype_is_float(c->sum.type));
}

static bool parts_are_equal(const struct collective *c) {
    for (int r = 1; r < c->size; r++)
        if (part_size(c, r) != part_size(c, 0)) return false;
    return true;
}

static ncclResult_t nccl_move_whole(struct nccl_carrier *n, const struct collective *c, cudaStream_t stream) {
    ncclDataType_t t = types[c->sum.type];
    ncclRedOp_t op = kind_adds(c->kind) ? ops[c->sum.op] : ncclSum;
    size_t count = (size_t)(c->part ? part_size(c, 0) : c->sum.count);
    void *own = c->part ? element(c, c->buf, c->part[c->rank]) : NULL;
    void *all = c->part ? element(c, c->buf, c->part[0]) : NULL;
    switch (c->kind) {
    case KIND_ALL_REDUCE:
        return nccl.AllReduce(c->buf, c->buf, count, t, op, n->comm, stream);
    case KIND_REDUCE:
        return nccl.Reduce(c->buf, c->buf, count, t, op, c->root, n->comm, stream);
    case KIND_BROADCAST:
        return nccl.Broadcast(c->buf, c->buf, count, t, c->root, n->comm, stream);
    case KIND_ALL_GATHER:
        return nccl.AllGather(own, all, count, t, n->comm, stream);
    default:
        return nccl.ReduceScatter(all, own, count, t, op, n->comm, stream);
    }
}

/* ---- groups of messages ---- */

/* To the first thing that goes wrong; the group is ended in any case. */
static ncclResult_t nccl_worse(ncclResult_t a, ncclResult_t b) {
    return a != ncclSuccess && a != ncclInProgress ? a : b;
}

static ncclResult_t nccl_reduce_parts(struct nccl_carrier *n, const struct collective *c, cudaStream_t stream) {
    ncclResult_t rc = nccl.GroupStart();
    for (int r = 0; r < c->size; r++) {
        char *part = element(c, c->buf, c->part[r]);
        if (part_size(c, r))
            rc = nccl_worse(rc, nccl.Reduce(part, part, (size_t)part_size(c, r), types[c->sum.type], ops[c->sum.op], r,
                                            n->comm, stream));
    }
    return nccl_worse(rc, nccl.GroupEnd());
}

static ncclResult_t nccl_swap_parts(struct nccl_carrier *n, const struct collective *c, cudaStream_t stream) {
    const char *send = n->swap.kind == KIND_ALL_TO_ALL ? c->send : c->buf;
    ncclDataType_t t = types[c->sum.type];
    ncclResult_t rc = nccl.GroupStart();
    for (int i = 1; i < c->size; i++) {
        int to = (c->rank + i) % c->size, by = (c->rank - i + c->size) % c->size;
        struct element_range out = collective_range(c, n->swap.kind, c->rank, to);
        struct element_range in = collective_range(c, n->swap.kind, by, c->rank);
        size_t nout = (size_t)(out.hi - out.lo), nin = (size_t)(in.hi - in.lo);
        if (nout) rc = nccl_worse(rc, nccl.Send(element(c, send, out.lo), nout, t, to, n->comm, stream));
        if (nin) rc = nccl_worse(rc, nccl.Recv(element(c, c->buf, in.lo), nin, t, by, n->comm, stream));
    }
    return nccl_worse(rc, nccl.GroupEnd());
}

static enum error nccl_exchange_parts(struct nccl_carrier *n, struct collective *c, enum device_lane l,
                                      enum kind kind) {
    const struct carrier *cr = &n->carrier;
    if (kind == KIND_ALL_TO_ALL && part_size(c, c->rank))
        TRY(cr->runtime->copy(cr->device, l, element(c, c->buf, c->part[c->rank]), cr->device,
                              element(c, c->send, c->send_part[c->rank]), bytes_of(c, part_size(c, c->rank))));
    n->swap.kind = kind;
    return nccl_issue(n, c, l, "parts by ncclSend and ncclRecv", nccl_swap_parts);
}

/* ---- sums in the group's order ---- */

static char *nccl_slot(const struct nccl_carrier *n, const struct collective *c, int term) {
    return (char *)n->slots.memory + bytes_of(c, term * n->swap.most);
}

/* The piece of what rank r adds. */
static struct element_range nccl_piece(const struct nccl_swap *s, const struct collective *c, int r) {
    struct element_range all = collective_range(c, c->kind, c->rank, r);
    int64_t lo = all.lo + s->from < all.hi ? all.lo + s->from : all.hi;
    return (struct element_range){lo, all.hi - lo < s->most ? all.hi : lo + s->most};
}

/* Of my term each rank's piece goes to that rank, and of that rank's term mine comes. */
static ncclResult_t nccl_swap_term(struct nccl_carrier *n, const struct collective *c, cudaStream_t stream) {
    const struct element_range own = nccl_piece(&n->swap, c, c->rank);
    int first, k = n->swap.term;
    bool gives = k < own_terms(c);
    ncclResult_t rc = nccl.GroupStart();
    for (int i = 1; i < c->size; i++) {
        int to = (c->rank + i) % c->size, by = (c->rank - i + c->size) % c->size;
        struct element_range out = nccl_piece(&n->swap, c, to);
        size_t nout = gives ? (size_t)(out.hi - out.lo) : 0;
        size_t nin = k < band_terms(c->band, by, &first) ? (size_t)(own.hi - own.lo) : 0;
        const char *data = element(c, c->buf, k * c->apart + out.lo);
        if (nout) rc = nccl_worse(rc, nccl.Send(data, nout, ncclFloat32, to, n->comm, stream));
        if (nin) rc = nccl_worse(rc, nccl.Recv(nccl_slot(n, c, first + k), nin, ncclFloat32, by, n->comm, stream));
    }
    return nccl_worse(rc, nccl.GroupEnd());
}

static enum error nccl_add_piece(struct nccl_carrier *n, struct collective *c, enum device_lane l) {
    const struct band *b = c->band;
    const float **in = (const float **)(void *)c->lists->in;
    const struct element_range own = nccl_piece(&n->swap, c, c->rank);
    for (int i = 0; i < b->n; i++) {
        bool mine = b->rank[i] == c->rank;
        in[i] = (const float *)(const void *)(mine ? term(c, b, i, c->buf, own.lo) : nccl_slot(n, c, i));
    }
    return carrier_sum(&n->carrier, l, c, own, in, (float *)(void *)element(c, c->buf, own.lo));
}

static enum error nccl_ordered_sum(struct nccl_carrier *n, struct collective *c, enum device_lane l) {
    enum { MOST = SLOT_PIECE / sizeof(float), LINE_FLOATS = 64 };
    struct nccl_swap *s = &n->swap;
    int64_t longest = 0;
    int terms = 1;
    for (int r = 0; r < c->size; r++) {
        const struct element_range all = collective_range(c, c->kind, c->rank, r);
        if (all.hi - all.lo > longest) longest = all.hi - all.lo;
    }
    for (int i = 0; i < c->band->n; i++)
        if (c->band->piece[i] >= terms) terms = c->band->piece[i] + 1;
    s->most = longest < MOST ? (longest + LINE_FLOATS - 1) / LINE_FLOATS * LINE_FLOATS : MOST;
    TRY(slots_reserve(&n->carrier, l, &n->slots, bytes_of(c, c->band->n * s->most)));
    for (s->from = 0; s->from < longest; s->from += s->most) {
        for (s->term = 0; s->term < terms; s->term++)
            TRY(nccl_issue(n, c, l, "a sum by ncclSend and ncclRecv", nccl_swap_term));
        TRY(nccl_add_piece(n, c, l));
    }
    return c->kind == KIND_ALL_REDUCE ? nccl_exchange_parts(n, c, l, KIND_ALL_GATHER) : ERR_NONE;
}

enum error nccl_move(struct nccl_carrier *n, struct collective *c, enum device_lane l) {
    static const char *const wholes[COLLECTIVES] = {[KIND_ALL_REDUCE] = "ncclAllReduce",
                                                    [KIND_REDUCE] = "ncclReduce",
                                                    [KIND_BROADCAST] = "ncclBroadcast",
                                                    [KIND_ALL_GATHER] = "ncclAllGather",
                                                    [KIND_REDUCE_SCATTER] = "ncclReduceScatter"};
    if (kind_adds(c->kind) && n->bitwise) return nccl_ordered_sum(n, c, l);
    if (wholes[c->kind] && (!c->part || parts_are_equal(c)))
        return nccl_issue(n, c, l, wholes[c->kind], nccl_move_whole);
    if (c->kind == KIND_REDUCE_SCATTER) return nccl_issue(n, c, l, "reduce_scatter by ncclReduce", nccl_reduce_parts);
    return nccl_exchange_parts(n, c, l, c->kind);
}
#endif
