#include "modes/modes.h"

#include <string.h>

#define MODE(name) extern const struct mode_ops mode_##name;
#include "modes/modes.def"
#undef MODE

static const struct mode_ops *const modes[] = {
#define MODE(name) &mode_##name,
#include "modes/modes.def"
#undef MODE
};
enum { MODES = sizeof modes / sizeof *modes };

const struct mode_ops *const *mode_kinds(int *count) {
    *count = MODES;
    return modes;
}

const struct mode_ops *mode_find(const char *name) {
    for (int i = 0; i < MODES; i++)
        if (!strcmp(modes[i]->name, name)) return modes[i];
    return NULL;
}
