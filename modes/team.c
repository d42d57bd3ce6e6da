#include "modes/team.h"

#include <stdio.h>
#include <string.h>

enum error team_open(struct team *m, struct trainer *t, struct group_params p) {
    const struct comm_config *c = &t->config->comm;
    p.rank = t->rank;
    p.meeting = t->place;
    p.order = c->order == 2 ? ORDER_RING : ORDER_TREE;
    p.timeout = c->timeout;
    if (strcmp(c->algorithm, "auto") || !p.algorithm) p.algorithm = c->algorithm;
    TRY(group_open(&p, &m->group));
    t->ranks = p.size;
    t->allocator = group_allocator(m->group);
    const char *why,
        *choice = group_choice(m->group, (size_t)t->model->arena_floats * sizeof(float), &why);
    snprintf(m->line, sizeof m->line, "%s over %s (%s), %s order", choice, p.link, why,
             p.order == ORDER_RING ? "ring" : "tree");
    return ERR_NONE;
}

void team_close(struct team *m) {
    if (m->group) group_close(m->group);
}

enum error team_share_start(struct team *m, struct trainer *t, bool state) {
    int64_t n = t->model->arena_floats;
    TRY(group_broadcast(m->group, LANE_INLINE, t->values, n, DTYPE_F32, 0, NULL));
    TRY(team_share_buffers(m, t, 0));
    for (int i = 0; state && i < t->optim->nslots; i++)
        TRY(group_broadcast(m->group, LANE_INLINE, t->slots[i], n, DTYPE_F32, 0, NULL));
    return ERR_NONE;
}

enum error team_sum(struct team *m, double *v, int n) {
    return group_all_reduce(m->group, LANE_INLINE, v, n, DTYPE_F64, REDOP_SUM, NULL);
}

enum error team_share_buffers(struct team *m, struct trainer *t, int root) {
    if (t->model->buffer_floats == 0) return ERR_NONE;
    return group_broadcast(m->group, LANE_INLINE, t->buffers, t->model->buffer_floats, DTYPE_F32,
                           root, NULL);
}

void team_stats(const struct team *m, struct mode_stats *out) {
    struct group_stats s;
    group_get_stats(m->group, &s);
    *out = (struct mode_stats){.sent = s.sent, .received = s.received, .lane_ns = s.busy_ns};
}
