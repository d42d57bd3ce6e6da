/* Models for a part of another model's positions, with the same parameters. */
#pragma once
#include "engine/model/model.h"

/* Whether a row of what the node gives depends on the rows before it, as attention's does. */
bool node_sees_before(const struct model_node *node);
/* Whether a position's output depends on the positions before it alone, and on these through causal attention. */
bool model_is_causal(const struct model *m);
/* The model for 'rows' positions; it gives the output at the last one alone, where it has attention. Attention has a
 * cache of 'context' positions (0: none). m: causal; it must live longer. Freed with free. */
MUST_CHECK enum error model_of_rows(const struct model *m, int64_t rows, int64_t context, struct model **out);
