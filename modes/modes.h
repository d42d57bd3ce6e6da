/* The registry of modes: modes.def lists them. */
#pragma once
#include "engine/settings/mode.h"

#define MODE(name) extern const struct mode_row mode_##name;
#include "modes/modes.def"
const struct mode_row *const *mode_kinds(int *count); /* NULL after the last */
/* A mode besides those of modes.def. Before any configuration is read; at most MODES_ADDED in a process. */
enum { MODES_ADDED = 4 };
void mode_register(const struct mode_row *mode);

/* mode_row.choose: decides sharing by the way that is asked for. */
MUST_CHECK enum error mode_take(struct resolve *r, const struct mode_row *mode);
