/* The value of a config's 'model' key as a plain list of layers. */
#pragma once
#include "engine/model/model.h"

/* Opens the zoo file that the spec names, replaces $names, unrolls repeats. *layers is a copy in
 * the pool; the spec is not touched. What is wrong goes to e; *layers is then of no use. *name is
 * the zoo's name, or "custom". */
MUST_CHECK enum error spec_expand(const struct node *spec, int64_t classes, struct pool *pool, struct config_errors *e,
                                  struct node **layers, const char **name);
/* Whether a layer in it normalises by the moments of its batch; not, where something is wrong, which spec_expand
 * reports. */
MUST_CHECK enum error spec_has_moments(const struct node *spec, struct pool *pool, bool *out);
