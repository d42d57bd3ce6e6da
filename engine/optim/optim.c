/* The optimizers there are: the lines of optims.def, as a table and as the schema's variants. */
#include "engine/optim/optim.h"

#define OPTIM(name) extern const struct optim_ops optim_##name;
#include "engine/optim/optims.def"
extern const struct optim_ops optim_plugin; /* in no line: it has no formula, and so no kernel */

static const struct optim_ops *const kinds[] = {
#define OPTIM(name) &optim_##name,
#include "engine/optim/optims.def"
    &optim_plugin,
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

const struct optim_ops *const *optim_kinds(int *count) {
    *count = KINDS - 1;
    return kinds;
}

static const struct config_section *section_at(int i) {
    return &kinds[i]->section;
}

const struct config_variants optim_variants = {.name = "name", .count = KINDS, .at = section_at};

void optim_rule(const struct optim_ops *ops, const void *config, const struct optim_step *s, struct rule *out) {
    *out = (struct rule){
        .step = ops->formulas + (ops->variant ? ops->variant(config) : 0), .direct = ops->direct, .whole = ops->whole};
    optim_rule_group(ops, config, s, 0, out);
}

void optim_rule_group(const struct optim_ops *ops, const void *config, const struct optim_step *s, int group,
                      struct rule *out) {
    for (int matrix = 0; matrix < 2; matrix++) {
        int kind = optim_kind(group, matrix);
        ops->numbers(config, s, matrix, out->number[kind]);
        out->adapts[kind] = ops->adapts && ops->adapts(config, matrix);
    }
}

void optim_check_betas(const struct config_list *betas, const struct node *at, const char *usual,
                       struct config_errors *e) {
    const struct node *node = node_get(at, "betas");
    const double *beta = betas->items;
    if (betas->count != 2)
        config_error(e, node ? node : at, false, "betas must be two numbers, not %d\nset betas: %s", betas->count,
                     usual);
    else if (!(beta[0] < 1 && beta[1] < 1))
        config_error(e, node ? node : at, false, "betas must be below 1");
}
