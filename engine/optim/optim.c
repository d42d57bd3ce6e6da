/* The optimizers there are: the lines of optims.def, as a table and as the schema's variants. */
#include "engine/optim/optim.h"

#define OPTIM(name) extern const struct optim_ops optim_##name;
#include "engine/optim/optims.def"
#undef OPTIM

static const struct optim_ops *const kinds[] = {
#define OPTIM(name) &optim_##name,
#include "engine/optim/optims.def"
#undef OPTIM
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

const struct optim_ops *const *optim_kinds(int *count) {
    *count = KINDS;
    return kinds;
}

static const struct config_section *section_at(int i) {
    return &kinds[i]->section;
}

const struct config_variants optim_variants = {.name = "name", .count = KINDS, .at = section_at};
