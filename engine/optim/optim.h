/* Optimizers: pure functions of spans, so that they can act on any slice of the arena (a server's
 * shard). One a file. A span lies within one tensor. What an optimizer needs to know of the whole
 * tensor is a sum of squares, made in pieces (blocks of NORM_BLOCK floats of the arena, cut at tensors) that are added in
 * one order, wherever each was made: so the bits do not depend on the slices. */
#pragma once
#include "engine/base/rule.h"
#include "engine/base/vector.h"
#include "engine/config/schema.h"

enum { OPTIM_SLOTS = RULE_SLOTS, OPTIM_NORMS = RULE_NORMS, OPTIM_GROUPS = RULE_KINDS / 2 };
struct optim_step {
    float lr;
    float scale; /* the gradient is first multiplied by this (clipping) */
    int64_t t;   /* 1 for the first step */
};
struct optim_ops {
    /* Name and own keys (the common ones are optimizer_config's); the configuration begins with double lr. */
    struct config_section section;
    int nslots; /* the most that it has; slots: how many it has as it is configured; NULL: all */
    int (*slots)(const void *config);
    const char *slot_names[OPTIM_SLOTS]; /* "momentum_buffer", "exp_avg", "exp_avg_sq" */
    /* Makes a tensor's dimensions those of its state in the slot; false: it has none there. NULL: all state is as the
     * tensors are; else it is without gaps, in their order (engine/model/state.h). */
    bool (*state)(int slot, int64_t *dim, int ndim);
    int nnorms; /* OPTIM_NORMS: a tensor's step wants those of its w and g; 0: none are taken */
    /* Formulas of a step, element-wise and free of order: any cut of a span gives the same bits. variant: which of them
     * it is; NULL: the first. direct: what comes before norms are taken, or NULL. */
    const struct formula *formulas;
    int (*variant)(const void *config);
    const struct formula *direct;
    /* What these read in a step, for tensors that are matrices or not: the formula's struct of floats. Whatever does
     * not depend on the element is computed in double and rounded once. */
    void (*numbers)(const void *config, const struct optim_step *s, bool matrix, void *numbers);
    /* With norms: which tensors have them, and the span's rate, from those of the whole tensor. */
    bool (*adapts)(const void *config, bool matrix);
    float (*rate)(const void *config, const struct optim_step *s, bool matrix, const double norm[OPTIM_NORMS]);
    /* What is done with some tensors, each as a whole (rule.whole). NULL: nothing is; else no slice may cut a tensor, and
     * the memory is the host's. takes: whether a tensor is such a one (hidden: a matrix between the embeddings and the last
     * layer), and its span's rows, at least 1, and columns; scratch: how many floats it needs for that, and size: the rate
     * of such a span, both NULL where there is none. */
    void (*whole)(const float *number, const struct rule_span *s, const struct rule_work *w);
    bool (*takes)(const int64_t *dim, int ndim, bool hidden, int64_t *rows, int64_t *columns);
    int64_t (*scratch)(int64_t rows, int64_t columns);
    float (*size)(const void *config, int64_t rows, int64_t columns);
    bool adaptive; /* how far it goes does not follow from the size of the gradient */
};
static inline double optim_lr(const void *config) {
    return *(const double *)config;
}
/* The kind of a tensor (rule_span.kind): of a group of tensors that have keys of their own (groups.h; 0: of the others),
 * and whether it is a matrix: of two dimensions or more, no bias and no norm. */
static inline int optim_kind(int group, bool matrix) {
    return 2 * group + matrix;
}
/* The whole step, for a device: of group 0. Then the numbers of a further group, of the same formula. */
void optim_rule(const struct optim_ops *ops, const void *config, const struct optim_step *s, struct rule *out);
void optim_rule_group(const struct optim_ops *ops, const void *config, const struct optim_step *s, int group,
                      struct rule *out);
/* The engine's own; after the last stands the row of plug-ins (plugin.h). optim_variants has all. */
const struct optim_ops *const *optim_kinds(int *count);
extern const struct config_variants optim_variants;
static inline const struct optim_ops *optim_of(const struct config_variant *optimizer) {
    int count;
    return optim_kinds(&count)[optimizer->index];
}
static inline int optim_slots(const struct config_variant *optimizer) {
    const struct optim_ops *ops = optim_of(optimizer);
    return ops->slots ? ops->slots(optimizer->config) : ops->nslots;
}

/* The tensors to which a key applies: 'decay', 'adapt'. */
enum optim_tensors { TENSORS_ALL, TENSORS_MATRICES };
#define TENSORS_CHOICES "all|matrices"
#define DECAY_HELP                                                                                                     \
    "Which weights decay: all, or matrices alone, that is tensors of two dimensions or more: no "                      \
    "biases, no norms"
#define ADAPT_HELP                                                                                                     \
    "Whose learning rate follows the size of the tensor: all, or matrices alone: no biases, no "                       \
    "norms"
/* Rows of the schema, for the members of a struct: a number (.min and .max may follow), two betas, which tensors. */
#define OPTIM_REAL(of, name, usual, text, ...)                                                                         \
    {                                                                                                                  \
        .key = #name, .type = CONFIG_REAL, .offset = offsetof(struct of, name), .standard = usual, .help = text,       \
        __VA_ARGS__                                                                                                    \
    }
#define OPTIM_BETAS(of, usual, text)                                                                                   \
    {                                                                                                                  \
        .key = "betas", .type = CONFIG_REALS, .offset = offsetof(struct of, betas), .standard = usual, .max = 1,       \
        .help = text                                                                                                   \
    }
#define OPTIM_TENSORS(of, name, usual, text)                                                                           \
    {                                                                                                                  \
        .key = #name, .type = CONFIG_ENUM, .offset = offsetof(struct of, name), .standard = usual,                     \
        .choices = TENSORS_CHOICES, .help = text                                                                       \
    }
static inline bool optim_applies(int tensors, bool matrix) {
    return tensors == TENSORS_ALL || matrix;
}

/* Two numbers below 1, or an error at the key 'betas'. */
void optim_check_betas(const struct config_list *betas, const struct node *at, const char *usual,
                       struct config_errors *e);

/* The factor for clipping to 'most' (torch.nn.utils.clip_grad_norm_: most / (norm + 1e-6), at most
 * 1); *norm gets the norm. */
float clip_scale(const double *partial, int64_t blocks, double most, double *norm);
