/* Sizes of buckets are powers of two from 256 KB up to the gradients' bytes, and all in one message; those whose cut is that
 * of another size are left out. Algorithms are those that add in the group's order. Gradients are added in the same order
 * whichever is taken, so no choice changes a bit. */
#include "modes/tries.h"

#include "engine/base/digest.h"
#include "engine/settings/run_config.h"

#include <string.h>

enum { LEAST = 256 << 10, CHOICES = 48 };

struct tries {
    struct pool *pool;
    const char *place, *name[TUNABLES][CHOICES];
    int count[TUNABLES];
    struct buckets cut[CHOICES];
};

/* ---- buckets ---- */

static bool tries_lack(const struct tries *t, const struct buckets *b) {
    for (int i = 0; i < t->count[TUNABLE_BUCKET]; i++)
        if (t->cut[i].count == b->count && !memcmp(t->cut[i].edge, b->edge, (size_t)(b->count + 1) * sizeof *b->edge))
            return false;
    return true;
}

static enum error tries_add(struct tries *t, const struct model *m, const struct cutting *c, const char *name) {
    int *n = &t->count[TUNABLE_BUCKET];
    struct buckets b;
    if (!name) return ERR_MEMORY;
    TRY(buckets_init(&b, m, c));
    if (*n == CHOICES || !tries_lack(t, &b)) {
        buckets_fini(&b);
        return ERR_NONE;
    }
    t->cut[*n] = b;
    t->name[TUNABLE_BUCKET][(*n)++] = name;
    return ERR_NONE;
}

static const char *tries_size(struct pool *pool, int64_t bytes) {
    bool mega = bytes % (1 << 20) == 0;
    return pool_printf(pool, "%lld%s", (long long)(bytes >> (mega ? 20 : 10)), mega ? "MB" : "KB");
}

static enum error tries_add_cuts(struct tries *t, const struct tries_of *of) {
    const struct sharing *how = &of->t->config->sharing;
    const struct cutting *standard = &how->cut;
    const struct model *m = of->t->model;
    int64_t all = m->arena_floats * (int64_t)sizeof(float);
    bool cuts = how->tunes[TUNABLE_BUCKET] && of->leave && standard->cap < INT64_MAX;
    TRY(tries_add(t, m, standard, BUCKET_STANDARD));
    for (int64_t cap = LEAST; cuts && cap < all; cap *= 2) {
        const struct cutting c = {standard->first < cap ? standard->first : cap, cap, .anywhere = standard->anywhere};
        TRY(tries_add(t, m, &c, tries_size(t->pool, cap)));
    }
    return cuts ? tries_add(t, m, &(struct cutting){INT64_MAX, INT64_MAX}, "flat") : ERR_NONE;
}

/* ---- where it is ---- */

static const char *tries_place(const struct tries_of *of, struct pool *pool) {
    const struct run_config *c = of->t->config;
    const struct emulation *e = &c->comm.emulate.as;
    int hosts = of->place->roster ? of->place->roster->hosts : 1, devices = c->devices.count;
    const char *text =
        pool_printf(pool, "%d %s device%s with %lld thread%s each on %d host%s over %s", devices, c->devices.kind,
                    devices > 1 ? "s" : "", (long long)c->threads, c->threads > 1 ? "s" : "", hosts,
                    hosts > 1 ? "s" : "", of->place->link ? of->place->link : "no link");
    if (!text || !emulation_on(e)) return text;
    const char *all = tree_write(node_get(node_get(of->t->job->settings->tree, "comm"), "emulate"), false, pool);
    return all ? pool_printf(pool, "%s, emulated at %.9g bytes/s and %.9g s (all of comm.emulate: %08x)", text,
                             e->bandwidth, e->latency, crc32c(0, all, strlen(all)))
               : NULL;
}

/* ---- the whole ---- */

static enum error tries_fill(struct tries *t, const struct tries_of *of) {
    TRY_MEMORY(t->place = tries_place(of, t->pool));
    TRY(tries_add_cuts(t, of));
    t->name[TUNABLE_ALGORITHM][0] = "auto";
    t->count[TUNABLE_ALGORITHM] = 1;
    if (of->group && of->t->config->sharing.tunes[TUNABLE_ALGORITHM])
        t->count[TUNABLE_ALGORITHM] += group_others(of->group, t->name[TUNABLE_ALGORITHM] + 1, CHOICES - 1);
    return ERR_NONE;
}

enum error tries_open(const struct tries_of *of, struct tries **out) {
    const bool *tunes = of->t->config->sharing.tunes;
    struct pool *pool;
    if (!tunes[TUNABLE_BUCKET] && !tunes[TUNABLE_ALGORITHM]) return ERR_NONE;
    TRY(pool_create(&pool));
    struct tries *t = *out = pool_alloc(pool, sizeof *t);
    if (!t) {
        pool_free(pool);
        return ERR_MEMORY;
    }
    t->pool = pool;
    return tries_fill(t, of);
}

void tries_close(struct tries *t) {
    if (!t) return;
    for (int i = 0; i < t->count[TUNABLE_BUCKET]; i++) buckets_fini(&t->cut[i]);
    pool_free(t->pool);
}

void tries_tell(const struct tries *t, struct trials *out) {
    out->place = t->place;
    for (int i = 0; i < TUNABLES; i++) out->name[i] = t->name[i], out->count[i] = t->count[i];
}

const struct buckets *tries_cut(const struct tries *t, int i) {
    return &t->cut[i];
}

int tries_most(const struct tries *t, int buckets) {
    for (int i = 0; t && i < t->count[TUNABLE_BUCKET]; i++)
        if (t->cut[i].count > buckets) buckets = t->cut[i].count;
    return buckets;
}
