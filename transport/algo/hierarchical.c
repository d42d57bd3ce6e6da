/* Algorithm "hierarchical": the ranks of one host sum among themselves, then each slice of the
 * buffer crosses to the other hosts once, then the ranks of one host share what came.
 *
 * H hosts with L ranks each; the buffer of K bytes is cut in L slices, and local rank l of every
 * host looks after slice l:
 *     1. near: l reads slice l of its neighbours' buffers and leaves the sum in its own.
 *     2. far:  the H ranks that look after slice l sum it among themselves, by halving and doubling
 *        where that can be, else up and down a tree.
 *     3. near: l writes slice l to its neighbours' buffers, and they meet: all slices are written.
 * Only l touches slice l of the buffers of its host, so nobody waits between the phases. Small
 * buffers are one slice, local rank 0's: one message a step between hosts, and the others wait.
 *
 * Bytes between hosts, each way: 2(H-1)/H K a host, where an algorithm that does not know hosts
 * moves about L times as much. Steps between hosts: 2 log2 H. Where neighbours do not reach each
 * other's memory, the near phases travel in pipes, as a reduce_scatter and an all_gather.
 *
 * Each host's ranks stand together and are a subtree, so ORDER_TREE first adds each host's ranks and
 * then the H sums: the phases add in that order. On one host this is "direct". */
#include "transport/algo/halving.h"
#include "transport/algo/plain.h"

#include <math.h>
#include <string.h>

extern const struct algo_ops algo_direct;

static int64_t slice_cut(const struct collective *c, int l) {
    int64_t n = c->sum.count, line = ALIGNMENT / (int64_t)dtype_size(c->sum.type);
    if (l == 0 || l == c->places->locals) return l ? n : 0;
    return bytes_of(c, n) <= HIERARCHICAL_ONE_SLICE ? n : order_chunk(n, c->places->locals, l) / line * line;
}

/* Of the buffer, what this rank looks after. */
struct host_slice {
    const struct band *near, *far;
    int64_t lo, hi;
};

static struct host_slice slice_of(const struct collective *c) {
    int local = c->places->place[c->rank] % c->places->locals;
    return (struct host_slice){&c->bands->near, &c->bands->far, slice_cut(c, local), slice_cut(c, local + 1)};
}

static enum error far_phase(struct collective *c, const struct host_slice *h) {
    if (h->lo == h->hi) return ERR_NONE;
    return (band_is_even(h->far) ? halving_all_reduce : climbing_all_reduce)(c, h->far, h->lo, h->hi);
}

/* ---- where neighbours reach each other's memory ---- */

static bool reach_neighbours(const struct collective *c, const struct host_slice *h) {
    for (int l = 0; l < h->near->n; l++)
        if (!c->at[h->near->rank[l]]) return false;
    return true;
}

/* Averages are divided when all hosts' sums are added. */
static void near_sum(struct collective *c, const struct host_slice *h) {
    struct sum s = c->sum;
    const char **in = c->lists->in;
    char *out[] = {element(c, c->buf, h->lo)};
    s.terms = h->near->n, s.adds = h->near->adds;
    if (s.op == REDOP_AVERAGE) s.op = REDOP_SUM;
    for (int l = 0; l < h->near->n; l++) in[l] = element(c, c->at[h->near->rank[l]], h->lo);
    order_sum(&s, h->lo, h->hi, in, out, 1);
}

static enum error near_share(struct collective *c, const struct host_slice *h) {
    const struct link_ops *ops = c->link->ops;
    const char *sum = element(c, c->buf, h->lo);
    for (int l = 0; l < h->near->n; l++)
        if (l != h->near->me) memcpy(element(c, c->at[h->near->rank[l]], h->lo), sum, bytes_of(c, h->hi - h->lo));
    return (ops->sync_near ? ops->sync_near : ops->sync)(c->link, c->lane);
}

static enum error in_memory(struct collective *c, const struct host_slice *h) {
    int64_t own = h->hi - h->lo, each = c->sum.count - own + (h->near->n - 1) * own;
    collective_count(c, each, each);
    near_sum(c, h);
    TRY(far_phase(c, h));
    return near_share(c, h);
}

/* ---- where they do not ---- */

static enum error in_pipes(struct collective *c, const struct host_slice *h) {
    int64_t *part = c->lists->part;
    part[0] = 0;
    for (int r = 0, l = 0; r < c->size; r++) { /* ranks of other hosts: nothing */
        if (l < h->near->n && h->near->rank[l] == r) l++;
        part[r + 1] = slice_cut(c, l);
    }
    c->part = part;
    enum error err = band_sum(c, KIND_REDUCE_SCATTER, h->near, h->near);
    if (!err) err = far_phase(c, h);
    if (!err) err = band_spread(c, KIND_ALL_GATHER, h->near);
    c->part = NULL;
    return err;
}

static enum error hierarchical_all_reduce(struct collective *c) {
    if (c->places->hosts == 1 || c->staged) return algo_direct.run[KIND_ALL_REDUCE](c);
    const struct host_slice h = slice_of(c);
    return reach_neighbours(c, &h) ? in_memory(c, &h) : in_pipes(c, &h);
}

static enum error hierarchical_reduce(struct collective *c) {
    return algo_direct.run[KIND_REDUCE](c);
}

/* ---- what it costs ---- */

static double hierarchical_cost(const struct terrain *t, double bytes) {
    int locals = t->places->locals, others = locals - 1;
    if (t->places->hosts == 1) return INFINITY; /* direct by another name */
    double slice = bytes <= HIERARCHICAL_ONE_SLICE ? bytes : bytes / locals;
    double near = t->near ? 2 * others * slice * t->gamma : others * (2 * t->alpha + slice * (2 * t->beta + t->gamma));
    int hosts = t->places->hosts;
    return near + (is_power_of_two(hosts) ? halving_cost : climbing_cost)(t, hosts, slice);
}

const struct algo_ops algo_hierarchical = {
    .name = "hierarchical",
    .why = "each host sums in its own memory, and every byte crosses between hosts once",
    .orders = {[ORDER_TREE] = true},
    .small_at_once = true,
    .hosts_alike = true,
    .run = {[KIND_ALL_REDUCE] = hierarchical_all_reduce, [KIND_REDUCE] = hierarchical_reduce},
    .cost = {[KIND_ALL_REDUCE] = hierarchical_cost},
};
