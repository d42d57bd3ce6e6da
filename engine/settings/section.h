/* What the schema tables of sections share. */
#pragma once
#include "engine/config/schema.h"

#define ABOVE_ZERO .min = 1e-12, .max = 1e15
#define NO_LIMIT .max = -1 /* below min: none */

/* The section 'what' of what_fields, read into struct what_config. */
#define SECTION(what, bare, text)                                                                                      \
    const struct config_section what##_section = {.name = #what,                                                       \
                                                  .fields = what##_fields,                                             \
                                                  .size = sizeof(struct what##_config),                                \
                                                  .shorthand = (bare),                                                 \
                                                  .help = (text)}
