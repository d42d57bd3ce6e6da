/* Tensors that are treated apart: groups with keys of their own (optimizer.groups), and such that stay as they are
 * (optimizer.freeze). Both name them by patterns, in which '*' is any text, also none, and '?' any character. */
#pragma once
#include "engine/optim/optim.h"

struct optim_pattern {
    const char *text;
    const struct node *at;
};
struct optim_patterns {
    struct optim_pattern *of;
    int count;
};
struct optim_group {
    struct optim_patterns match;
    const void *config; /* the optimizer's own keys, with the group's in their place */
};
struct optim_groups {
    struct optim_group of[OPTIM_GROUPS]; /* of[0]: the optimizer itself, for tensors that no other group takes */
    int count;
    struct optim_patterns frozen;
};
/* Reads the groups from the two nodes (NULL: not given) and the optimizer, which has been read without an error. What is wrong goes to
 * e. */
MUST_CHECK enum error optim_groups_read(const struct config_variant *optimizer, const struct node *groups,
                                        const struct node *freeze, struct pool *pool, struct config_errors *e,
                                        struct optim_groups *out);
/* Finds for each of n tensors, by its name, its group (the first that matches), and whether it is frozen (1). A pattern that matches
 * none goes to e, and freezing all of them. */
void optim_groups_match(const struct optim_groups *g, const char *const *names, int n, int *group, int *frozen,
                        struct config_errors *e);
bool optim_pattern_matches(const char *pattern, const char *name);
