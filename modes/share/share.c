#include "modes/share/share.h"

static const struct share_ops *const shares[] = {
    [SHARE_NONE] = &share_none,     [SHARE_SERVER] = &share_server,   [SHARE_ALL_REDUCE] = &share_all_reduce,
    [SHARE_SLICES] = &share_slices, [SHARE_AVERAGE] = &share_average, [SHARE_STALE] = &share_stale,
};
enum { SHARES = sizeof shares / sizeof *shares };

const struct share_ops *share_find(const struct sharing *how) {
    return how->compressed ? &share_compressed : shares[how->share];
}

void shares_check(struct resolve *r) {
    share_compressed.check(r);
    for (int i = 0; i < SHARES; i++)
        if (shares[i]->check) shares[i]->check(r);
}
