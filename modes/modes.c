#include "modes/modes.h"

#include "engine/settings/resolve.h"
#include "modes/share/share.h"

#include <assert.h>

enum {
#define MODE(name) KIND_##name,
#include "modes/modes.def"
    MODES
};
static const struct mode_row *modes[MODES + MODES_ADDED + 1] = {
#define MODE(name) &mode_##name,
#include "modes/modes.def"
};
static int nmodes = MODES;

const struct mode_row *const *mode_kinds(int *count) {
    *count = nmodes;
    return modes;
}

void mode_register(const struct mode_row *mode) {
    assert(nmodes < MODES + MODES_ADDED);
    modes[nmodes++] = mode;
}

enum error mode_take(struct resolve *r, const struct mode_row *mode) {
    const struct mode_way *way = mode->way(r->c);
    struct sharing *s = &r->c->sharing;
    share_take(r, way->share);
    s->overlap = mode->overlaps(r->c);
    s->servers = way->servers;
    s->in_one = way->in_one && !s->overlap;
    if (way->fill) way->fill(r->c, s);
    return ERR_NONE;
}
