/* Adafactor (Shazeer and Stern 2018, arXiv:1804.04235), as torch.optim.Adafactor. Of the mean square of a matrix's gradient
 * (of more dimensions: of each matrix of the last two) it keeps a mean for each row and one for each column, whose product
 * stands in for the whole: R + C numbers where Adam has 2 R C. With a = t^beta2_decay, t from 1:
 *
 *     row = row + a * (mean of g * g over the row - row)             column likewise
 *     u = g / sqrt(max(row * column / max(mean of all rows, eps1), eps1^2))
 *     w = w * (1 - lr * weight_decay)
 *     w = w - max(eps2, rms(w)) * min(lr, 1 / sqrt(t)) * u / max(1, rms(u) / threshold)
 *
 * rms(w) is of the weights before the decay. A tensor of one dimension keeps the mean square itself. Sums of rows and
 * columns have one order, so that neither threads nor devices change a bit; but a tensor has to be whole where it is
 * updated. What the step takes is left in the place of the gradient. */
#include "engine/optim/formula.h"

struct adafactor_numbers {
    float scale, shrink, add, rho, eps1, eps2, threshold;
};

FORMULA void adafactor_step(const struct adafactor_numbers *k, struct element *e) {
    e->w = k->shrink * e->w - e->g;
}

FORMULA_STEP(adafactor_step, adafactor_numbers, 0)
FORMULAS(adafactor, FORMULA_OF(adafactor_step))

#ifdef FORMULA_IN_C
enum { ROW, COLUMN, VARIANCE }; /* slots */
enum { TILE = 64 };

struct adafactor_config {
    double lr, beta2_decay, eps1, eps2, threshold, weight_decay;
    int decay; /* enum optim_tensors */
};

/* ---- a matrix ---- */

struct factors { /* of a matrix g (rows, columns), or of several, one after another */
    const struct adafactor_numbers *k;
    float *g, *row, *column;
    int64_t rows, columns;
    float mean; /* of all rows */
};

VECTORISED static void factors_columns(void *ctx, int64_t begin, int64_t end) {
    const struct factors *f = ctx;
    for (int64_t at = begin; at < end; at += TILE) {
        int64_t width = end - at < TILE ? end - at : TILE;
        double sum[TILE] = {0};
        for (int64_t i = 0; i < f->rows; i++) {
            const float *g = f->g + i * f->columns + at;
            for (int64_t j = 0; j < width; j++) sum[j] += (double)g[j] * (double)g[j];
        }
        for (int64_t j = 0; j < width; j++) {
            float *to = f->column + at + j;
            *to += f->k->add * ((float)(sum[j] / (double)f->rows) - *to);
        }
    }
}

static void factors_rows(void *ctx, int64_t begin, int64_t end) {
    const struct factors *f = ctx;
    for (int64_t i = begin; i < end; i++) {
        float mean = (float)(squares_sum(f->g + i * f->columns, f->columns) / (double)f->columns);
        f->row[i] += f->k->add * (mean - f->row[i]);
    }
}

VECTORISED static void factors_apply(void *ctx, int64_t begin, int64_t end) {
    const struct factors *f = ctx;
    float least = f->k->eps1 * f->k->eps1, mean = f->mean > f->k->eps1 ? f->mean : f->k->eps1;
    for (int64_t i = begin; i < end; i++) {
        float *restrict g = f->g + i * f->columns;
        for (int64_t j = 0; j < f->columns; j++) {
            float v = f->row[i] * f->column[j] / mean;
            g[j] /= sqrtf(v < least ? least : v); /* not a number stays so */
        }
    }
}

static void share_alone(void *by, int64_t n, void (*part)(void *ctx, int64_t begin, int64_t end), void *ctx) {
    (void)by;
    part(ctx, 0, n);
}

static void factors_matrix(struct factors *f, const struct rule_work *w) {
    double sum = 0;
    w->share(w->by, f->columns, factors_columns, f);
    w->share(w->by, f->rows, factors_rows, f);
    for (int64_t i = 0; i < f->rows; i++) sum += (double)f->row[i];
    f->mean = (float)(sum / (double)f->rows);
    w->share(w->by, f->rows, factors_apply, f);
}

/* Matrices [begin, end) of many small ones. */
static void factors_many(void *ctx, int64_t begin, int64_t end) {
    const struct rule_work alone = {.share = share_alone};
    for (int64_t k = begin; k < end; k++) {
        struct factors f = *(const struct factors *)ctx;
        f.g += k * f.rows * f.columns, f.row += k * f.rows, f.column += k * f.columns;
        factors_matrix(&f, &alone);
    }
}

/* ---- a tensor ---- */

/* v is the mean square of the gradient g, which becomes the direction. */
VECTORISED static void adafactor_vector(const struct adafactor_numbers *k, float *restrict g, float *restrict v,
                                        int64_t n) {
    float least = k->eps1 * k->eps1;
    for (int64_t i = 0; i < n; i++) {
        v[i] += k->add * (g[i] * g[i] - v[i]);
        g[i] /= sqrtf(v[i] < least ? least : v[i]);
    }
}

static double adafactor_rms(const float *x, int64_t n) {
    return sqrt(squares_sum(x, n) / (double)n);
}

static void adafactor_whole(const float *number, const struct rule_span *s, const struct rule_work *w) {
    struct adafactor_numbers k;
    memcpy(&k, number, sizeof k);
    struct factors f = {&k, s->g, s->slot[ROW], s->slot[COLUMN], s->rows, s->columns, 0};
    floats_scale(s->g, k.scale, s->n);
    if (!s->columns)
        adafactor_vector(&k, s->g, s->slot[VARIANCE], s->n);
    else if (s->n > s->rows * s->columns)
        w->share(w->by, s->n / (s->rows * s->columns), factors_many, &f);
    else
        factors_matrix(&f, w);
    double size = fmax(adafactor_rms(s->w, s->n), (double)k.eps2);
    double much = adafactor_rms(s->g, s->n) / (double)k.threshold;
    floats_scale(s->g, (float)(size * (double)k.rho / (much > 1 ? much : 1)), s->n);
}

/* ---- the optimizer ---- */

static bool adafactor_takes(const int64_t *dim, int ndim, bool hidden, int64_t *rows, int64_t *columns) {
    (void)hidden;
    *rows = ndim > 1 ? dim[ndim - 2] : dim[0];
    *columns = ndim > 1 ? dim[ndim - 1] : 0;
    return true;
}

static bool adafactor_state(int slot, int64_t *dim, int ndim) {
    if (ndim > 1 && slot != VARIANCE) dim[ndim - (slot == ROW ? 1 : 2)] = 1;
    return (slot == VARIANCE) == (ndim < 2);
}

static void adafactor_numbers_of(const void *config, const struct optim_step *s, bool matrix, void *numbers) {
    const struct adafactor_config *c = config;
    double decay = optim_applies(c->decay, matrix) ? c->weight_decay : 0, t = (double)s->t;
    *(struct adafactor_numbers *)numbers = (struct adafactor_numbers){
        .scale = s->scale,
        .shrink = (float)(1 - (double)s->lr * decay),
        .add = (float)real_pow(t, c->beta2_decay),
        .rho = (float)fmin((double)s->lr, 1 / sqrt(t)),
        .eps1 = (float)c->eps1,
        .eps2 = (float)c->eps2,
        .threshold = (float)c->threshold,
    };
}

static const struct config_field fields[] = {
    OPTIM_REAL(
        adafactor_config, lr, "0.01",
        "Largest length of a step as a share of the tensor's root mean square, before lr_scale and schedule; from "
        "the step 1/lr^2 on, 1/sqrt(step) is the largest",
        .max = -1),
    OPTIM_REAL(adafactor_config, beta2_decay, "-0.8",
               "The mean square keeps 1 - step^beta2_decay of what it was: the nearer to 0, the less", .min = -10,
               .max = -1e-3, .also = "decay_rate"),
    OPTIM_REAL(adafactor_config, eps1, "1.1920929e-7", "Its square is the least mean square of a gradient",
               .min = 1e-18, .max = 1),
    OPTIM_REAL(adafactor_config, eps2, "1e-3", "Least root mean square of a tensor that its steps are a share of",
               .min = 1e-30, .max = 1e12),
    OPTIM_REAL(adafactor_config, threshold, "1", "Root mean square beyond which a tensor's step is made shorter",
               .min = 1e-12, .max = 1e12, .also = "d|clip_threshold"),
    OPTIM_REAL(adafactor_config, weight_decay, "0",
               "This share of the weights, times the learning rate, is subtracted in every step", .max = -1),
    OPTIM_TENSORS(adafactor_config, decay, "all", DECAY_HELP),
    {.key = NULL},
};

const struct optim_ops optim_adafactor = {
    .section = {.name = "adafactor",
                .fields = fields,
                .size = sizeof(struct adafactor_config),
                .shorthand = "lr",
                .help = "Steps in proportion to the weights, with hardly any state, like torch.optim.Adafactor"},
    .nslots = 3,
    .slot_names = {"row_var", "col_var", "variance"},
    .state = adafactor_state,
    .formulas = adafactor_formulas,
    .numbers = adafactor_numbers_of,
    .whole = adafactor_whole,
    .takes = adafactor_takes,
    .adaptive = true,
};
#endif
