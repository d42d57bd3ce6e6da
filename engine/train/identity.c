/* What must be equal for a resume to be exact: whatever decides which numbers are computed, and
 * nothing that decides where. */
#include "engine/train/internal.h"

#include <string.h>

static const char *const keys[] = {"model", "loss", "data", "batch", "seed"};

/* A section's text on one line. */
static char *one_line(const struct node *n, struct pool *pool) {
    char *text = tree_write(n, false, pool);
    for (char *c = text; c && *c; c++)
        if (*c == '\n') *c = c[1] ? ';' : '\0';
    return text;
}

const char *trainer_identity(const struct job *job) {
    struct pool *pool = job->settings->pool;
    const char *all = "";
    for (size_t i = 0; i < sizeof keys / sizeof *keys && all; i++) {
        const struct node *n = node_get(job->settings->tree, keys[i]);
        const char *text = n ? one_line(n, pool) : "";
        all = text ? pool_printf(pool, "%s%s=%s\n", all, keys[i], text) : NULL;
    }
    const struct optim_ops *o = trainer_optim(&job->settings->config);
    return all ? pool_printf(pool, "%soptimizer=%s\n", all, o->section.name) : NULL;
}
