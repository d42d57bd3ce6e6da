/* Muon (Jordan et al. 2024; the scale that matches AdamW: Liu et al. 2025, arXiv:2502.16982). The weights of a hidden layer
 * are a matrix (rows, columns; of a convolution the columns are all but the first dimension), whose momentum is made nearly
 * orthogonal before it is a step:
 *
 *     m = momentum * m + (1 - momentum) * g           u = (1 - momentum) * g + momentum * m
 *     x = u / (|u| + 1e-7), transposed where it has more rows than columns
 *     five times: a = x * x'; x = 3.4445 * x + (-4.775 * a + 2.0315 * a * a) * x      Newton and Schulz
 *     w = w * (1 - lr * weight_decay) - lr * size * x
 *
 * size is 0.2 * sqrt(max(rows, columns)), by which a step has the size of one of AdamW's (match_rms_adamw), or
 * sqrt(max(1, rows / columns)) (original). Embeddings, the last layer, biases and norms are AdamW's, with adam_lr.
 *
 * Each element of a product is one chain of sums in the order of k, so that neither threads nor devices change its bits;
 * but the matrix has to be whole where it is updated. */
#include "engine/optim/adam.h"

struct muon_numbers {
    struct moment_numbers of;
    float shrink, lr, keep, scale; /* of matrices; scale: of all */
    float shrink_adam, step_adam;
};

FORMULA void muon_direct(const struct muon_numbers *k, struct element *e) {
    float d = k->scale * e->g, add = 1 - k->keep;
    e->m = k->keep * e->m + add * d;
    e->g = add * d + k->keep * e->m;
}

/* rate: the size of a matrix's step; 0: AdamW's. */
FORMULA void muon_step(const struct muon_numbers *k, struct element *e) {
    if (e->rate > 0) {
        e->w = k->shrink * e->w - k->lr * e->rate * e->g;
    } else {
        moments_follow(&k->of, k->scale * e->g, e);
        e->w = k->shrink_adam * e->w - k->step_adam * (e->m / moments_root(&k->of, e->v));
    }
}

FORMULA_STEP(muon_step, muon_numbers, 2)
FORMULA_DIRECT(muon_direct, muon_numbers, 1)
FORMULAS(muon, FORMULA_OF(muon_step))

#ifdef FORMULA_IN_C
enum { ITERATIONS = 5, TILE = 32, ROWS = 4 };
enum muon_adjust { ADJUST_MATCH, ADJUST_ORIGINAL };

struct muon_config {
    double lr, eps, weight_decay;
    struct config_list betas; /* two */
    int decay;                /* enum optim_tensors; so far as adam.h's rows have them */
    double momentum, adam_lr; /* adam_lr: 0 is lr's */
    int adjust;               /* enum muon_adjust */
};

/* ---- products ---- */

struct muon_product { /* c (m, n) = a (m, k) * b (k, n) */
    float *c;
    const float *a, *b;
    int64_t k, n;
};

/* Rows [begin, end). Up to ROWS of them at once; of fewer the last one is computed again. */
VECTORISED static void muon_rows(void *ctx, int64_t begin, int64_t end) {
    const struct muon_product *p = ctx;
    for (int64_t i = begin; i < end; i += ROWS)
        for (int64_t at = 0; at < p->n; at += TILE) {
            int64_t width = p->n - at < TILE ? p->n - at : TILE;
            const float *a[ROWS];
            float sum[ROWS][TILE] = {{0}}, end_of_row[TILE] = {0};
            for (int r = 0; r < ROWS; r++) a[r] = p->a + (i + r < end ? i + r : end - 1) * p->k;
            for (int64_t k = 0; k < p->k; k++) {
                const float *b = p->b + k * p->n + at;
                if (width < TILE) b = memcpy(end_of_row, b, (size_t)width * sizeof *b);
                for (int r = 0; r < ROWS; r++)
                    for (int j = 0; j < TILE; j++) sum[r][j] += a[r][k] * b[j];
            }
            for (int r = 0; r < ROWS && i + r < end; r++)
                memcpy(p->c + (i + r) * p->n + at, sum[r], (size_t)width * sizeof **sum);
        }
}

static void muon_multiply(const struct rule_work *w, int64_t m, struct muon_product p) {
    w->share(w->by, m, muon_rows, &p);
}

static void muon_transpose(float *to, const float *from, int64_t rows, int64_t columns) {
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) to[j * rows + i] = from[i * columns + j];
}

/* to = a * x + b * y; to may be x or y. */
VECTORISED static void muon_blend(float *to, float a, const float *x, float b, const float *y, int64_t n) {
    for (int64_t i = 0; i < n; i++) to[i] = a * x[i] + b * y[i];
}

/* ---- a matrix ---- */

/* x (r, c) with r <= c; beside it there is room for as much again, and for two squares (r, r). */
static void muon_orthogonalise(const struct rule_work *w, float *x, int64_t r, int64_t c) {
    float *other = x + r * c, *a = other + r * c, *b = a + r * r;
    for (int i = 0; i < ITERATIONS; i++) {
        muon_transpose(other, x, r, c);
        muon_multiply(w, r, (struct muon_product){a, x, other, c, r});
        muon_multiply(w, r, (struct muon_product){b, a, a, r, r});
        muon_blend(b, -4.7750f, a, 2.0315f, b, r * r);
        muon_multiply(w, r, (struct muon_product){other, b, x, r, c});
        muon_blend(x, 3.4445f, x, 1, other, r * c);
    }
}

/* Leaves in the place of the gradient what the step takes. */
static void muon_whole(const float *number, const struct rule_span *s, const struct rule_work *w) {
    int64_t rows = s->rows, columns = s->columns;
    bool turned = rows > columns;
    float *x = w->scratch;
    muon_direct_loop(number, s);
    float size = (float)(1 / (sqrt(squares_sum(s->g, s->n)) + 1e-7));
    muon_blend(s->g, size, s->g, 0, s->g, s->n);
    if (turned)
        muon_transpose(x, s->g, rows, columns);
    else
        memcpy(x, s->g, (size_t)s->n * sizeof *x);
    muon_orthogonalise(w, x, turned ? columns : rows, turned ? rows : columns);
    if (turned)
        muon_transpose(s->g, x, columns, rows);
    else
        memcpy(s->g, x, (size_t)s->n * sizeof *x);
}

static bool muon_takes(const int64_t *dim, int ndim, bool hidden, int64_t *rows, int64_t *columns) {
    *rows = dim[0], *columns = 1;
    for (int i = 1; i < ndim; i++) *columns *= dim[i];
    return hidden;
}

static int64_t muon_scratch(int64_t rows, int64_t columns) {
    int64_t r = rows < columns ? rows : columns;
    return 2 * rows * columns + 2 * r * r;
}

static float muon_size(const void *config, int64_t rows, int64_t columns) {
    double more = (double)(rows > columns ? rows : columns), tall = (double)rows / (double)columns;
    return (float)(((const struct muon_config *)config)->adjust == ADJUST_MATCH ? 0.2 * sqrt(more)
                                                                                : sqrt(fmax(1, tall)));
}

/* ---- the optimizer ---- */

static void muon_numbers_of(const void *config, const struct optim_step *s, bool matrix, void *numbers) {
    const struct muon_config *c = config;
    const struct adam_config adam = {.eps = c->eps, .betas = c->betas};
    const double *beta = c->betas.items;
    double rate = c->adam_lr > 0 ? s->lr * (c->adam_lr / c->lr) : s->lr;
    double decay = optim_applies(c->decay, matrix) ? c->weight_decay : 0;
    *(struct muon_numbers *)numbers = (struct muon_numbers){
        .of = adam_moments(&adam, s->t),
        .shrink = (float)(1 - s->lr * decay),
        .lr = s->lr,
        .keep = (float)c->momentum,
        .scale = s->scale,
        .shrink_adam = (float)(1 - rate * decay),
        .step_adam = (float)(rate / (1 - real_pow(beta[0], (double)s->t))),
    };
}

static void muon_check(const void *config, const struct node *at, struct config_errors *e) {
    const struct muon_config *c = config;
    optim_check_betas(&c->betas, at, "[0.9, 0.95]", e);
}

static const struct config_field fields[] = {
    OPTIM_REAL(muon_config, lr, "1e-3", "Learning rate, before lr_scale and schedule", .max = -1),
    OPTIM_REAL(muon_config, momentum, "0.95", "Share of the running mean of a matrix's gradient that is kept",
               .max = 1),
    {.key = "adjust",
     .type = CONFIG_ENUM,
     .offset = offsetof(struct muon_config, adjust),
     .standard = "match_rms_adamw",
     .choices = "match_rms_adamw|original",
     .help = "The size of a matrix's step: that of one of AdamW's, so that lr and weight_decay are as for AdamW; or "
             "the first authors', whose lr is about 0.02"},
    OPTIM_REAL(muon_config, adam_lr, "same", "Learning rate of all that is no matrix of a hidden layer; same: lr",
               .max = -1, .choices = "same"),
    OPTIM_BETAS(muon_config, "[0.9, 0.95]",
                "Of what AdamW updates: how much is kept of the running means of the gradient and of its square"),
    OPTIM_REAL(muon_config, eps, "1e-8", "Of what AdamW updates: added to the denominator", .min = 1e-30, .max = 1),
    OPTIM_REAL(muon_config, weight_decay, "0.01",
               "This share of the weights, times the learning rate, is subtracted in every step", .max = -1),
    OPTIM_TENSORS(muon_config, decay, "all", DECAY_HELP),
    {.key = NULL},
};

const struct optim_ops optim_muon = {
    .section = {.name = "muon",
                .fields = fields,
                .size = sizeof(struct muon_config),
                .shorthand = "lr",
                .help = "Momentum made orthogonal, for the matrices of hidden layers; AdamW for the rest",
                .check = muon_check},
    .nslots = 2,
    .slot_names = {"exp_avg", "exp_avg_sq"},
    .formulas = muon_formulas,
    .numbers = muon_numbers_of,
    .whole = muon_whole,
    .takes = muon_takes,
    .scratch = muon_scratch,
    .size = muon_size,
    .adaptive = true,
};
#endif
