/* How numbers are computed: precision, batchnorm over the whole batch, and what devices are capable of. */
#include "engine/device/runtime.h"
#include "engine/settings/resolve.h"

/* A trained network can be asked on any device. */
static enum error check_precision(struct resolve *r) {
    int precision = r->c->precision;
    const struct node *at = resolve_find(r, "precision");
    const struct device_ops *ops = device_find(r->c->devices.kind);
    if (!ops || ops->precisions & 1u << precision) return ERR_NONE;
    if (r->c->asks && !resolve_is_set(at)) {
        r->c->precision = PRECISION_F32;
        return resolve_decide(r, "precision", "f32");
    }
    config_error(r->e, at, false, "precision %s needs a GPU, and devices are '%s' (%s)\nuse %s",
                 precision == PRECISION_FP16 ? "fp16" : "tf32", r->c->devices_text,
                 resolve_place(r, resolve_find(r, "devices")),
                 precision == PRECISION_FP16 ? "bf16: it has the range of f32" : "f32");
    return ERR_NONE;
}

static void check_sync_batchnorm(struct resolve *r) {
    const struct run_config *c = r->c;
    const struct device_ops *ops = device_find(c->devices.kind);
    const struct node *at = resolve_find(r, "sync_batchnorm");
    if (!c->sync_batchnorm) return;
    if (c->recompute != 1)
        config_error(
            r->e, resolve_find(r, "recompute"), false,
            "recompute runs layers once more in backward, for which sync_batchnorm (%s) would have ranks meet again\n"
            "use recompute: 1, or sync_batchnorm: false",
            resolve_place(r, at));
    if (ops && ops->runtime->asynchronous)
        config_error(r->e, at, false,
                     "sync_batchnorm is not possible on GPUs, and devices are '%s' (%s)\n"
                     "make the shards of a batch larger (batch.shards), or use a model without "
                     "batchnorm",
                     c->devices_text, resolve_place(r, resolve_find(r, "devices")));
    if (c->batch.accumulate > 1)
        config_error(r->e, at, false, "sync_batchnorm needs the whole batch at once, but batch.accumulate cuts it (%s)",
                     resolve_place(r, resolve_find(r, "batch.accumulate")));
    if (c->sharing.servers)
        config_error(r->e, at, false,
                     "sync_batchnorm is shared among all ranks, but a dedicated server (%s) computes "
                     "nothing\nuse dp.server shared or sharded",
                     resolve_place(r, resolve_find(r, "dp.server")));
}

enum error resolve_numbers(struct resolve *r) {
    TRY(check_precision(r));
    check_sync_batchnorm(r);
    return ERR_NONE;
}
