/* Optimizers: pure functions of spans, so that they can act on any slice of the arena (a server's
 * shard). One a file. A span lies within one tensor. What an optimizer needs to know of the whole
 * tensor is a sum of squares, made in pieces (blocks of NORM_BLOCK floats of the arena, cut at tensors) that are added in
 * one order, wherever each was made: so the bits do not depend on the slices. */
#pragma once
#include "engine/base/rule.h"
#include "engine/config/schema.h"

enum { OPTIM_SLOTS = 2, OPTIM_NORMS = 2 };
struct optim_span {
    float *w; /* weights, updated */
    float *g; /* gradient of the global batch's mean loss; 'measure' may leave something else here
                 for 'step' */
    float *slot[OPTIM_SLOTS]; /* state, updated; all zero before the first step */
    int64_t n;
    float lr;
    float scale;              /* the gradient is first multiplied by this (clipping) */
    int64_t t;                /* 1 for the first step */
    bool matrix;              /* the tensor has two dimensions or more: it is no bias and no norm */
    double norm[OPTIM_NORMS]; /* step: of the whole tensor, roots of what 'measure' has given */
};
struct optim_ops {
    struct config_section section; /* name and own keys; the common ones are optimizer_config's */
    int nslots;
    const char *slot_names[OPTIM_SLOTS]; /* "momentum_buffer", "exp_avg", "exp_avg_sq" */
    int nnorms; /* of each tensor that a step needs; 0: none, and no 'measure' */
    /* Before the step: sums of squares of this piece of a tensor into square[0..nnorms), by
     * squares_sum. It may already update the slots, and g. */
    void (*measure)(const void *config, const struct optim_span *s, double *square);
    /* Element-wise and free of order: any cut of a span gives the same bits. */
    void (*step)(const void *config, const struct optim_span *s);
    /* The step as numbers, for a device that does it where the weights lie, with the same bits: of s only lr,
     * scale and t are read. */
    void (*rule)(const void *config, const struct optim_span *s, struct rule *out);
    double (*lr)(const void *config);
    bool adaptive; /* how far it goes does not follow from the size of the gradient */
};
const struct optim_ops *const *optim_kinds(int *count);
extern const struct config_variants optim_variants;

/* Which tensors a key is about: 'decay', 'adapt'. */
enum optim_tensors { TENSORS_ALL, TENSORS_MATRICES };
#define TENSORS_CHOICES "all|matrices"
#define DECAY_HELP                                                                                 \
    "Which weights decay: all, or matrices alone, that is tensors of two dimensions or more: no "  \
    "biases, no norms"
#define ADAPT_HELP                                                                                 \
    "Whose learning rate follows the size of the tensor: all, or matrices alone: no biases, no "   \
    "norms"
static inline bool optim_applies(int tensors, const struct optim_span *s) {
    return tensors == TENSORS_ALL || s->matrix;
}

/* Two numbers below 1, or an error at the key 'betas'. */
void optim_check_betas(const struct config_list *betas, const struct node *at, const char *usual,
                       struct config_errors *e);

/* The sum of squares of x[0..n), in double, by 32 lanes: a pure function of the floats. */
double squares_sum(const float *x, int64_t n);

/* Sum of squares of g[0..n) by blocks of NORM_BLOCK floats from the arena's start, each in double:
 * partial[i] for block i of the whole arena. Begin must be a multiple of NORM_BLOCK. The same
 * blocks whoever computes them, so the norm's bits are the same too. */
enum { NORM_BLOCK = 4096 };
void clip_partials(const float *g, int64_t begin, int64_t end, double *partial);
/* The factor for clipping to 'most' (torch.nn.utils.clip_grad_norm_: most / (norm + 1e-6), at most
 * 1); *norm is told. */
float clip_scale(const double *partial, int64_t blocks, double most, double *norm);
