/* single: one device, no communication. The control of every experiment: what dp and ddp must equal
 * bit for bit.
 *
 *   step   compute -> update (share/none.c)
 */
#include "engine/settings/resolve.h"
#include "modes/modes.h"
#include "modes/share/share.h"

static bool single_overlaps(const struct run_config *c) {
    (void)c;
    return false;
}

static const struct mode_way single_ways[] = {{.name = "no sharing", .share = &share_none, .order = 1}, {0}};

static const struct mode_way *single_way(const struct run_config *c) {
    (void)c;
    return single_ways;
}

const struct mode_row mode_single = {
    .name = "single",
    .also = "",
    .summary = "one device: the control of every experiment",
    .place = PLACE_ALONE,
    .choose = mode_take,
    .check = shares_check,
    .launch = alone_launch,
    .step = &mode_step,
    .overlaps = single_overlaps,
    .ways = single_ways,
    .way = single_way,
};
