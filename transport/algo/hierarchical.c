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
#include "transport/algo/plain.h"

#include <math.h>
#include <string.h>

extern const struct algo_ops algo_direct;

static int64_t hierarchical_cut(const struct collective *c, int l) {
    int64_t n = c->sum.count, line = ALIGNMENT / (int64_t)dtype_size(c->sum.type);
    if (l == 0 || l == c->places->locals) return l ? n : 0;
    return bytes_of(c, n) <= HIERARCHICAL_ONE_SLICE ? n : order_chunk(n, c->places->locals, l) / line * line;
}

/* Of the buffer, what this rank looks after. */
static struct element_range hierarchical_slice(const struct collective *c) {
    int local = c->places->place[c->rank] % c->places->locals;
    return (struct element_range){hierarchical_cut(c, local), hierarchical_cut(c, local + 1)};
}

static enum error hierarchical_far(struct collective *c, struct element_range s) {
    const struct band *far = &c->bands->far;
    if (s.lo == s.hi) return ERR_NONE;
    return (band_is_even(far) ? halving_all_reduce : climbing_all_reduce)(c, far, s.lo, s.hi);
}

/* ---- where neighbours reach each other's memory ---- */

static enum error hierarchical_share(struct collective *c, const struct band *near, struct element_range s) {
    const struct link_ops *ops = c->link->ops;
    const char *sum = element(c, c->buf, s.lo);
    for (int l = 0; l < near->n; l++)
        if (l != near->me) memcpy(element(c, c->at[near->rank[l]], s.lo), sum, bytes_of(c, s.hi - s.lo));
    return (ops->sync_near ? ops->sync_near : ops->sync)(c->link, c->lane);
}

static enum error hierarchical_in_memory(struct collective *c, const struct band *near, struct element_range s) {
    int64_t own = s.hi - s.lo, each = c->sum.count - own + (near->n - 1) * own;
    collective_count(c, each, each);
    for (int l = 0; l < near->n; l++) c->lists->in[l] = element(c, c->at[near->rank[l]], s.lo);
    band_add(c, near, s.lo, s.hi);
    TRY(hierarchical_far(c, s));
    return hierarchical_share(c, near, s);
}

/* ---- where they do not ---- */

static enum error hierarchical_in_pipes(struct collective *c, const struct band *near, struct element_range s) {
    int64_t *part = c->lists->part;
    part[0] = 0;
    for (int r = 0, l = 0; r < c->size; r++) { /* ranks of other hosts: nothing */
        if (l < near->n && near->rank[l] == r) l++;
        part[r + 1] = hierarchical_cut(c, l);
    }
    c->part = part;
    enum error err = band_sum(c, KIND_REDUCE_SCATTER, near, near);
    if (!err) err = hierarchical_far(c, s);
    if (!err) err = band_spread(c, KIND_ALL_GATHER, near);
    c->part = NULL;
    return err;
}

static enum error hierarchical_all_reduce(struct collective *c) {
    if (c->places->hosts == 1 || c->staged) return algo_direct.run[KIND_ALL_REDUCE](c);
    const struct band *near = &c->bands->near;
    return (band_is_in_reach(c, near) ? hierarchical_in_memory : hierarchical_in_pipes)(c, near, hierarchical_slice(c));
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
    .run = {[KIND_ALL_REDUCE] = hierarchical_all_reduce, [KIND_REDUCE] = direct_reduce},
    .cost = {[KIND_ALL_REDUCE] = hierarchical_cost},
};
