/* The mode, and how it shares gradients. */
#include "engine/settings/compress.h"
#include "engine/settings/mode.h"
#include "engine/settings/resolve.h"

#include <string.h>

enum { MODES_MAX = 16 };

const struct mode_row *resolve_mode(struct resolve *r, const struct mode_row *const *modes) {
    const char *names[MODES_MAX + 1] = {0}, *near = NULL;
    for (int i = 0; modes[i] && i < MODES_MAX; i++) {
        names[i] = modes[i]->name;
        if (r->c->mode && config_also(modes[i]->also, r->c->mode)) near = modes[i]->name;
    }
    resolve_check_name(r, "mode", names, NULL, near);
    while (*modes && r->c->mode && strcmp((*modes)->name, r->c->mode) != 0) modes++;
    return *modes;
}

/* Servers that stand apart on that node; node 0, which keeps the checkpoints, has the first one. */
static int node_servers(const struct sharing *s, int64_t node, int64_t nodes) {
    if (s->hosts == SERVERS_OWN) return node < s->servers;
    if (s->hosts == SERVERS_FIRST) return node == 0 ? s->servers : 0;
    return (int)((s->servers * (node + 1) + nodes - 1) / nodes - (s->servers * node + nodes - 1) / nodes);
}

enum error resolve_sharing(struct resolve *r, const struct mode_row *mode) {
    r->c->sharing = (struct sharing){.place = mode->place,
                                     .title = "",
                                     .stages = 1,
                                     .compressed = r->c->comm.compress.index != COMPRESS_none,
                                     .every = r->c->ddp.sync.every};
    if (r->c->dp.overlap >= DP_OVERLAP_WORDS) r->c->dp.overlap -= DP_OVERLAP_WORDS - DP_OVERLAP_ON;
    TRY(mode->choose(r));
    r->c->sharing.servers_here = node_servers(&r->c->sharing, r->c->run.node_rank, r->c->run.nodes);
    return ERR_NONE;
}

/* ---- buckets ---- */

static enum error check_buckets(struct resolve *r) {
    struct bucket_config *b = &r->c->ddp.bucket;
    const struct node *first = resolve_find(r, "ddp.bucket.first"), *cap = resolve_find(r, "ddp.bucket.cap");
    if (b->cap < 0) {
        b->first = b->cap = INT64_MAX;
        return ERR_NONE;
    }
    if (b->first <= b->cap) return ERR_NONE;
    if (resolve_is_given(first)) {
        config_error(r->e, first, false, "the first bucket is larger than ddp.bucket.cap, %s (%s)",
                     cap ? cap->text : "25MB", resolve_place(r, cap));
        return ERR_NONE;
    }
    b->first = b->cap;
    return resolve_decide(r, "ddp.bucket.first", cap->text);
}

enum error resolve_buckets(struct resolve *r) {
    struct sharing *s = &r->c->sharing;
    TRY(check_buckets(r));
    if (s->cut.cap) return ERR_NONE; /* by the mode */
    s->cut.first = s->in_one ? INT64_MAX : r->c->ddp.bucket.first;
    s->cut.cap = s->in_one ? INT64_MAX : r->c->ddp.bucket.cap;
    return ERR_NONE;
}
