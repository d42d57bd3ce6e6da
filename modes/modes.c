#include "modes/modes.h"

#include "engine/settings/resolve.h"
#include "modes/share/share.h"

#include <assert.h>

enum {
#define MODE(name) KIND_##name,
#include "modes/modes.def"
#undef MODE
    MODES
};
static const struct mode_row *modes[MODES + MODES_ADDED + 1] = {
#define MODE(name) &mode_##name,
#include "modes/modes.def"
#undef MODE
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

const struct mode_way *mode_way_of(const struct mode_row *mode, const struct run_config *c) {
    const struct mode_way *way = mode->ways;
    while (!way->asked(c)) way++;
    return way;
}

bool mode_way_is_left(const struct run_config *c) {
    (void)c;
    return true;
}

void mode_take(struct resolve *r, const struct mode_row *mode) {
    const struct mode_way *way = mode_way_of(mode, r->c);
    struct sharing *s = &r->c->sharing;
    share_take(r, way->share);
    s->overlap = mode->overlaps(r->c);
    s->servers = way->servers;
    s->in_one = way->in_one && !s->overlap;
    if (way->fill) way->fill(r->c, s);
}
