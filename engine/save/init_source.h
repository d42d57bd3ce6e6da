/* Where first weights come from: 'model: {zoo: NAME, init: PATH, strict: false}'. */
#pragma once
#include "engine/config/tree.h"

struct init_source {
    const char *path; /* NULL: none */
    bool strict;      /* all tensors must be there and fit, and no others */
    const struct node *at;
};
/* Reads the keys of the 'model' node. The path becomes absolute in the tree. What is wrong goes to e. */
MUST_CHECK enum error init_read(struct node *model, struct pool *pool, struct config_errors *e,
                                struct init_source *out);
/* A copy of the 'model' node without these keys: what the network is, wherever it began. NULL: no
 * memory. */
const struct node *init_strip(const struct node *model, struct pool *pool);
