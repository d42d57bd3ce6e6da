/* Optimizers: pure functions of spans, so that they can act on any slice of the arena (a server's
 * shard). One a file. */
#pragma once
#include "engine/config/schema.h"
#include <stdint.h>

enum { OPTIM_SLOTS = 2 };
struct optim_span {
    float *w;                 /* weights, updated */
    const float *g;           /* gradient of the global batch's mean loss */
    float *slot[OPTIM_SLOTS]; /* state, updated; all zero before the first step */
    int64_t n;
    float lr;
    float scale; /* the gradient is first multiplied by this (clipping) */
    int64_t t;   /* 1 for the first step */
};
struct optim_ops {
    struct config_section section; /* name and own keys; the common ones are optimizer_config's */
    int nslots;
    const char *slot_names[OPTIM_SLOTS]; /* "momentum_buffer", "exp_avg", "exp_avg_sq" */
    /* Element-wise and free of order: any cut of a span gives the same bits. */
    void (*step)(const void *config, const struct optim_span *s);
    double (*lr)(const void *config);
};
const struct optim_ops *const *optim_kinds(int *count);
extern const struct config_variants optim_variants;

/* Sum of squares of g[0..n) by blocks of NORM_BLOCK floats from the arena's start, each in double:
 * partial[i] for block i of the whole arena. Begin must be a multiple of NORM_BLOCK. The same
 * blocks whoever computes them, so the norm's bits are the same too. */
enum { NORM_BLOCK = 4096 };
void clip_partials(const float *g, int64_t begin, int64_t end, double *partial);
/* The factor for clipping to 'most' (torch.nn.utils.clip_grad_norm_: most / (norm + 1e-6), at most
 * 1); *norm is told. */
float clip_scale(const double *partial, int64_t blocks, double most, double *norm);
