/* How gradients are shared, beside mode and link: combinations that make no sense. */
#include "engine/train/resolve_impl.h"

static void check_shard(struct resolve *r) {
    const struct node *shard = resolve_find(r, "optimizer.shard");
    if (!r->c->optimizer.shard || resolve_mode_is(r, "ddp")) return;
    bool dp = resolve_mode_is(r, "dp");
    config_error(r->e, shard, false, "'optimizer.shard' is for mode ddp, but mode is '%s' (%s)\n%s",
                 r->c->mode, resolve_place(r, resolve_find(r, "mode")),
                 dp ? "in mode dp that is dp.server: sharded"
                    : "one device has nobody to share the optimizer with");
}

static void check_compress(struct resolve *r) {
    const struct node *compress = resolve_find(r, "comm.compress");
    int kind = r->c->comm.compress.index;
    if (kind == COMPRESS_none) return;
    if (!resolve_mode_is(r, "ddp"))
        config_error(r->e, compress, false,
                     "'comm.compress' is for mode ddp, but mode is '%s' (%s)\nuse mode ddp, or "
                     "comm.compress: none",
                     r->c->mode, resolve_place(r, resolve_find(r, "mode")));
    if (r->c->deterministic == DETERMINISTIC_BITWISE)
        config_error(r->e, compress, false,
                     "compressed gradients depend on the number of devices, but deterministic is "
                     "'bitwise' (%s)\nuse comm.compress: none",
                     resolve_place(r, resolve_find(r, "deterministic")));
}

void resolve_sharing(struct resolve *r) {
    check_shard(r);
    check_compress(r);
}
