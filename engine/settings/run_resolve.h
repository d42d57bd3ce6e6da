/* After the schema: decides what is 'auto' in the configuration and in its tree, and checks what no
 * section can know alone. */
#pragma once
#include "engine/settings/run_config.h"

enum { RUN_NAME_MAX = 64 };
#define RUN_MODEL_STANDARD "mlp"

/* Bytes of the character at c if it may stand in a run's name, and so in a folder's: ASCII's letters
 * and digits, '.', '_', '-', and what other scripts write with, but no blanks or marks that reorder
 * text. 0: it may not. */
size_t run_name_character(const char *c);

/* Errors go to e; ERR_NONE though there are some. Once e has errors only those keys are looked at
 * that stand alone. */
MUST_CHECK enum error run_resolve(struct run_settings *s, const struct run_ask *ask, struct config_errors *e);
