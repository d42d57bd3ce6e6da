#include "modes/modes.h"

#include "engine/settings/resolve.h"
#include "modes/share/share.h"

#include <stddef.h>

static const struct mode_row *const modes[] = {
#define MODE(name) &mode_##name,
#include "modes/modes.def"
#undef MODE
    NULL};

const struct mode_row *const *mode_kinds(int *count) {
    *count = (int)(sizeof modes / sizeof *modes) - 1;
    return modes;
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
}
