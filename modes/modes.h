/* The registry of modes: modes.def lists them. */
#pragma once
#include "engine/settings/mode.h"

const struct mode_ops *const *mode_kinds(int *count); /* NULL after the last */
