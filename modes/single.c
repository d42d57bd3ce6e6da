/* single: one device, no communication. The control of every experiment: what dp and ddp must equal
 * bit for bit.
 *
 *   step   compute -> update (share/none.c)
 */
#include "engine/settings/resolve.h"
#include "modes/share/share.h"

static enum error choose(struct resolve *r) {
    r->c->sharing.share = SHARE_NONE;
    return ERR_NONE;
}

const struct mode_ops mode_single = {
    .name = "single",
    .summary = "one device: the control of every experiment",
    .place = PLACE_ALONE,
    .choose = choose,
    .check = shares_check,
    .launch = alone_launch,
    MODE_STEP,
};
