/* The registry of modes: modes.def lists them. */
#pragma once
#include "engine/settings/mode.h"

#define MODE(name) extern const struct mode_row mode_##name;
#include "modes/modes.def"
#undef MODE
const struct mode_row *const *mode_kinds(int *count); /* NULL after the last */
/* A mode besides those of modes.def. Before any configuration is read; at most MODES_ADDED in a process. */
enum { MODES_ADDED = 4 };
void mode_register(const struct mode_row *mode);

/* The way that a configuration of this mode asks for. */
const struct mode_way *mode_way_of(const struct mode_row *mode, const struct run_config *c);
/* mode_way.asked, of the way that is left when no other one is asked for. */
bool mode_way_is_left(const struct run_config *c);
/* mode_row.choose: decides sharing by that way. */
void mode_take(struct resolve *r, const struct mode_row *mode);
