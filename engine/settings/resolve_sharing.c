/* The mode, and how it shares gradients. */
#include "engine/base/text.h"
#include "engine/device/runtime.h"
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

/* ---- what the first steps of the run choose ---- */

const char *const tunable_keys[TUNABLES] = {"ddp.bucket.cap", "comm.algorithm"};

/* Until it is chosen, the key has its default. A trained network that is asked has chosen. */
static void tuning_take(struct resolve *r) {
    for (int i = 0; i < TUNABLES; i++) {
        const struct node *at = resolve_find(r, tunable_keys[i]);
        bool tunes = at && at->kind == NODE_SCALAR && !strcmp(at->text, TUNE_WORD);
        if (tunes && i == TUNABLE_BUCKET) (void)text_bytes(BUCKET_STANDARD, &r->c->ddp.bucket.cap);
        if (tunes && i == TUNABLE_ALGORITHM) r->c->comm.algorithm = "auto";
        r->c->sharing.tunes[i] = tunes && !r->c->asks;
    }
}

/* Only where gradients are added as they are, in every step and in a given order, no choice changes a bit. */
static void tuning_check_key(struct resolve *r, enum tunable what) {
    const struct sharing *s = &r->c->sharing;
    const struct exchange_plan *p = &s->plan;
    bool bucket = what == TUNABLE_BUCKET, owned = p->update == UPDATE_BY_OWNERS && !p->staged;
    const char *at = tunable_keys[what];
    resolve_clash(r, p->alone, at,
                  "steps without an exchange show no difference, and devices meet only now and then "
                  "({at ddp.sync.every})\nuse ddp.sync: 1, or give a value in place of 'tune'");
    resolve_clash(r, p->staged, at,
                  "'tune' is for gradients that all devices add up, but mode is '{mode}' ({at mode})\n"
                  "use mode ddp, or give a value in place of 'tune'");
    resolve_clash(r, owned, at,
                  "'tune' is for devices that all make the same update, but here each updates a slice\n"
                  "use mode ddp without optimizer.shard, or give a value in place of 'tune'");
    resolve_clash(
        r, p->nbefore && p->before[0].by >= MOVE_PAIRS, at,
        "'tune' is for gradients that are added, but ddp.reduce is '{ddp.reduce.with}' ({at ddp.reduce.with})\n"
        "use ddp.reduce: sum, or give a value in place of 'tune'");
    resolve_clash(r, s->compressed, at,
                  "compressed gradients depend on their buckets, which 'tune' would choose by time\n"
                  "use comm.compress: none, or give a value in place of 'tune'");
    resolve_clash(r, bucket && r->c->comm.order == COMM_ORDER_RING, at,
                  "order 'ring' ({at comm.order}) adds by bucket, so that weights would depend on what 'tune' finds\n"
                  "use comm.order: tree, or give a value in place of 'tune'");
    resolve_clash(r, !bucket && p->update == UPDATE_BY_ROOT, at,
                  "'tune' is for all-reduces, but in mode '{mode}' ({at mode}) a server adds\n"
                  "use mode ddp, or comm.algorithm: auto");
    resolve_clash(r, device_find(r->c->devices.kind)->runtime->apart, at,
                  "devices are '{devices}' ({at devices}), whose library adds in an order of its own that may depend "
                  "on what 'tune' finds\ngive a value in place of 'tune'");
}

static void tuning_check(struct resolve *r) {
    const struct sharing *s = &r->c->sharing;
    bool cuts = !s->cut.cap && !s->in_one; /* by ddp.bucket */
    if (s->place == PLACE_ALONE) return;
    if (s->tunes[TUNABLE_BUCKET] && cuts) tuning_check_key(r, TUNABLE_BUCKET);
    if (s->tunes[TUNABLE_ALGORITHM]) tuning_check_key(r, TUNABLE_ALGORITHM);
}

/* ---- the mode ---- */

enum error resolve_sharing(struct resolve *r, const struct mode_row *mode) {
    r->c->sharing = (struct sharing){.place = mode->place,
                                     .title = "",
                                     .stages = 1,
                                     .compressed = r->c->comm.compress.index != COMPRESS_none,
                                     .every = r->c->ddp.sync.every};
    if (r->c->dp.overlap >= DP_OVERLAP_WORDS) r->c->dp.overlap -= DP_OVERLAP_WORDS - DP_OVERLAP_ON;
    tuning_take(r);
    TRY(mode->choose(r, mode));
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
                     cap && strcmp(cap->text, TUNE_WORD) ? cap->text : BUCKET_STANDARD, resolve_place(r, cap));
        return ERR_NONE;
    }
    b->first = b->cap;
    return resolve_decide(r, "ddp.bucket.first", cap->text);
}

enum error resolve_buckets(struct resolve *r) {
    struct sharing *s = &r->c->sharing;
    TRY(check_buckets(r));
    tuning_check(r);
    if (s->cut.cap) return ERR_NONE; /* by the mode */
    s->cut.first = s->in_one ? INT64_MAX : r->c->ddp.bucket.first;
    s->cut.cap = s->in_one ? INT64_MAX : r->c->ddp.bucket.cap;
    return ERR_NONE;
}
