/* Meetings of a user's own (ddp.sync.with: ./mine.so): ranks step alone as in average.c, and every k steps a plug-in says
 * what becomes of their weights, bucket by bucket. Its messages are one call of the group, so that a rank that is late,
 * lost or sends another number of bytes is found and named as in any other. */
#include "modes/share/share.h"

#include "engine/base/plugin.h"
#include "engine/settings/run_config.h"

enum error own_meet(struct mode *m, const struct span *span, struct dispatch how) {
    const struct sync_config *c = &m->t->config->ddp.sync;
    struct mixing mixing = {.meeting = m->t->at.step / m->how->every, .room = m->spare};
    TRY(plugin_open(c->with, PLUGIN_SHARE, c->sha256, &mixing.by));
    return group_mix(m->team.group, how, &mixing, span->arena + span->begin, span->end - span->begin);
}

const struct share_row share_own = {
    .plan = {.update = UPDATE_BY_ALL,
             .nafter = 1,
             .after = {{MOVE_OWN, .doing = "meeting of a plug-in"}},
             .alone = true},
    .keys = {"ddp.sync"},
    .without = "1",
    .ops = {.open = average_open, .close = average_close, .update = average_update, .describe = average_describe}};
