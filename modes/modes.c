#include "modes/modes.h"

#include <stddef.h>

#define MODE(name) extern const struct mode_ops mode_##name;
#include "modes/modes.def"
#undef MODE

static const struct mode_ops *const modes[] = {
#define MODE(name) &mode_##name,
#include "modes/modes.def"
#undef MODE
    NULL};

const struct mode_ops *const *mode_kinds(int *count) {
    *count = (int)(sizeof modes / sizeof *modes) - 1;
    return modes;
}
