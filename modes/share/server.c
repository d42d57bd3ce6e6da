/* The parameter server: rank 0 holds the only optimizer.
 *
 *   gradients   -> server, which adds them            reduce, by bucket
 *   server      updates the weights
 *   weights     -> every rank                         broadcast
 *
 * Bytes through the server's port: (W-1) K in and (W-1) K out, K being the gradients' bytes: it
 * grows with W, which is what an all-reduce avoids. */
#include "modes/share/share.h"

#include "engine/base/text.h"
#include "engine/settings/run_config.h"

#include <stdio.h>
#include <string.h>

/* Names the unit of a dedicated server on an accelerator. */
static void server_describe(const struct mode *m, char *line, size_t size) {
    const struct device_choice *d = &m->t->config->devices;
    if (!m->how->servers || m->how->on_host || !device_find(d->kind)->units) return;
    text_append(line, size, " (%s:%d%s)", d->kind, d->server,
                d->server == device_first_unit(d) ? ", which computes too" : "");
}

const struct share_row share_server = {.plan = {.nbefore = 1,
                                                .before = {{MOVE_REDUCE, .doing = "gradients to the server"}},
                                                .update = UPDATE_BY_ROOT,
                                                .nafter = 1,
                                                .after = {{MOVE_BROADCAST, .whole = true, .doing = ""}}},
                                       .subtrees = true,
                                       .ops = {.describe = server_describe}};
