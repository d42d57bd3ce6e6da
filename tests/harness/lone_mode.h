/* For tests below modes/: a mode to configure with, which cannot run. */
#pragma once
#include "engine/settings/mode.h"

static enum error lone_choose(struct resolve *r, const struct mode_row *mode) {
    (void)r, (void)mode;
    return ERR_NONE;
}
static void lone_check(struct resolve *r) {
    (void)r;
}
static const struct mode_row lone_mode = {.name = "single", .also = "", .choose = lone_choose, .check = lone_check};
static const struct mode_row *const lone_modes[] = {&lone_mode, NULL};
