/* The optimizers: each formula beside PyTorch's in plain double, figures written by PyTorch itself,
 * and what every registered optimizer must keep: any cut of a span gives the same bits, and it goes
 * downhill. */
#include "tests/harness/harness.h"

#include "engine/base/rng.h"
#include "engine/optim/optim.h"
#include <math.h>
#include <string.h>

enum { N = 1000, STEPS = 20 };
struct state {
    float w[N], slot[OPTIM_SLOTS][N];
};

static const struct optim_ops *kind(const char *name) {
    int n;
    const struct optim_ops *const *kinds = optim_kinds(&n);
    for (int i = 0; i < n; i++)
        if (!strcmp(kinds[i]->section.name, name)) return kinds[i];
    fail_msg("no optimizer '%s'", name);
    return NULL;
}

/* Reads an optimizer's keys as a user writes them; gives how many errors there were. */
static int read_config(const struct optim_ops *ops, const char *yaml, struct pool *pool, void **config) {
    struct config_errors *e;
    struct node *root;
    assert_ok(config_errors_create(&e));
    assert_ok(tree_parse(yaml, strlen(yaml), "test.yaml", pool, e, &root));
    *config = pool_alloc(pool, ops->section.size);
    assert_non_null(*config);
    enum error err = config_read(&ops->section, root, pool, e, *config);
    int count = config_errors_count(e);
    assert_int_equal(err != ERR_NONE, count != 0);
    config_errors_free(e);
    return count;
}

static void *make_config(const struct optim_ops *ops, const char *yaml, struct pool *pool) {
    void *config;
    if (read_config(ops, yaml, pool, &config)) fail_msg("%s: '%s' is refused", ops->section.name, yaml);
    return config;
}

static struct rule_span span_of(const struct optim_ops *ops, struct state *s, float *g, int begin, int end,
                                bool matrix) {
    struct rule_span span = {.w = s->w + begin, .g = g + begin, .n = end - begin, .kind = optim_kind(0, matrix)};
    for (int k = 0; k < ops->nslots; k++) span.slot[k] = s->slot[k] + begin;
    return span;
}

/* Of a tensor of one dimension: what adapts to tensors leaves it alone. */
static void step_slice(const struct optim_ops *ops, const void *config, struct state *s, float *g, int begin, int end,
                       float lr, float scale, int64_t t) {
    const struct optim_step step = {lr, scale, t};
    double norm[OPTIM_NORMS] = {0};
    struct rule rule;
    struct rule_span span = span_of(ops, s, g, begin, end, false);
    optim_rule(ops, config, &step, &rule);
    if (ops->nnorms) {
        rule_measure(&rule, &span, norm);
        span.rate = ops->rate(config, &step, false, norm);
    }
    rule_step(&rule, &span);
}

static void fill(float *x, int n, uint64_t stream) {
    struct rng_key key = rng_key(7, RNG_TEST);
    for (int i = 0; i < n; i++) x[i] = rng_normal(key, stream, (uint64_t)i);
}

/* ---- PyTorch's own figures ---- */

/* Made with torch 1.13: w = [1, -2, 0.5], four steps t = 1..4 with the gradient [0.1 t, -0.3, 0.25
 * (-1)^t]. */
static const struct figure {
    const char *kind, *yaml;
    float lr, w[3];
} figures[] = {
    {"sgd", "{}", 0.1f, {0.899999976f, -1.88000011f, 0.49999997f}},
    {"sgd", "{weight_decay: 0.01}", 0.1f, {0.896105945f, -1.87219191f, 0.497953057f}},
    {"sgd", "{momentum: 0.9, weight_decay: 0.01}", 0.1f, {0.805571079f, -1.71087444f, 0.53605181f}},
    {"sgd", "{momentum: 0.9, nesterov: true, weight_decay: 0.01}", 0.1f, {0.721377134f, -1.61248589f, 0.53025502f}},
    {"adam", "{}", 0.01f, {0.961164057f, -1.96000004f, 0.512305319f}},
    {"adam", "{betas: [0.8, 0.95], eps: 1e-3, weight_decay: 0.1}", 0.01f, {0.960042298f, -1.9600873f, 0.505348086f}},
    {"adamw", "{}", 0.01f, {0.960769951f, -1.9592061f, 0.512102067f}},
    {"adamw", "{betas: [0.8, 0.95], eps: 1e-3, weight_decay: 0.1}", 0.01f, {0.95682025f, -1.95220494f, 0.509147704f}},
    /* with torch 2.15 */
    {"sgd", "{momentum: 0.9, dampening: 0.5, weight_decay: 0.01}", 0.1f, {0.883843362f, -1.80037487f, 0.560135543f}},
    {"adam", "{betas: [0.8, 0.5], amsgrad: true}", 0.01f, {0.964377642f, -1.96000004f, 0.511220455f}},
    {"adamw", "{betas: [0.8, 0.5], amsgrad: true}", 0.01f, {0.963983297f, -1.9592061f, 0.511017323f}},
};

static void pytorch_figures(void **unused) {
    (void)unused;
    for (size_t i = 0; i < sizeof figures / sizeof figures[0]; i++) {
        const struct figure *f = &figures[i];
        const struct optim_ops *ops = kind(f->kind);
        struct pool *pool;
        assert_ok(pool_create(&pool));
        void *config = make_config(ops, f->yaml, pool);
        struct state s = {.w = {1, -2, 0.5f}};
        for (int t = 1; t <= 4; t++) {
            float g[3] = {0.1f * (float)t, -0.3f, t % 2 ? -0.25f : 0.25f};
            step_slice(ops, config, &s, g, 0, 3, f->lr, 1, t);
        }
        for (int k = 0; k < 3; k++)
            if (fabsf(s.w[k] - f->w[k]) > 5e-7f)
                fail_msg("%s %s: w[%d] is %.9g, PyTorch's is %.9g", f->kind, f->yaml, k, s.w[k], f->w[k]);
        pool_free(pool);
    }
}

/* ---- the formulas in double ---- */

struct hyper {
    double lr, momentum, dampening, beta1, beta2, eps, decay;
    bool nesterov, decoupled, amsgrad;
};

/* torch.optim.SGD, word for word: the first step's buffer is the gradient. */
static void reference_sgd(const struct hyper *h, double *w, double *buf, double g, int t) {
    double d = g + h->decay * *w;
    if (h->momentum != 0) {
        *buf = t == 1 ? d : h->momentum * *buf + (1 - h->dampening) * d;
        d = h->nesterov ? d + h->momentum * *buf : *buf;
    }
    *w -= h->lr * d;
}

/* torch.optim.Adam and AdamW. */
/* state: exp_avg, exp_avg_sq, max_exp_avg_sq. */
static void reference_adam(const struct hyper *h, double *w, double state[3], double g, int t) {
    double *m = &state[0], *v = &state[1], *most = &state[2];
    if (h->decoupled)
        *w *= 1 - h->lr * h->decay;
    else
        g += h->decay * *w;
    *m = h->beta1 * *m + (1 - h->beta1) * g;
    *v = h->beta2 * *v + (1 - h->beta2) * g * g;
    double correction1 = 1 - pow(h->beta1, t), correction2 = 1 - pow(h->beta2, t);
    *most = fmax(*most, *v);
    *w -= h->lr / correction1 * *m / (sqrt(h->amsgrad ? *most : *v) / sqrt(correction2) + h->eps);
}

static const struct textbook {
    const char *kind, *yaml;
    struct hyper h;
} formulas[] = {
    {"sgd", "{momentum: 0}", {.lr = 0.03, .decay = 0}},
    {"sgd", "{momentum: 0.7}", {.lr = 0.03, .momentum = 0.7}},
    {"sgd", "{momentum: 0.7, weight_decay: 0.05}", {.lr = 0.03, .momentum = 0.7, .decay = 0.05}},
    {"sgd",
     "{momentum: 0.7, weight_decay: 0.05, nesterov: true}",
     {.lr = 0.03, .momentum = 0.7, .decay = 0.05, .nesterov = true}},
    {"sgd",
     "{momentum: 0.7, dampening: 0.4, weight_decay: 0.05}",
     {.lr = 0.03, .momentum = 0.7, .dampening = 0.4, .decay = 0.05}},
    {"adam",
     "{amsgrad: true, betas: [0.8, 0.7]}",
     {.lr = 0.02, .beta1 = 0.8, .beta2 = 0.7, .eps = 1e-8, .amsgrad = true}},
    {"adamw",
     "{amsgrad: true, betas: [0.9, 0.5]}",
     {.lr = 0.02, .beta1 = 0.9, .beta2 = 0.5, .eps = 1e-8, .decay = 0.01, .decoupled = true, .amsgrad = true}},
    {"adam", "{weight_decay: 0.1}", {.lr = 0.02, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .decay = 0.1}},
    {"adamw",
     "{betas: [0.5, 0.9], eps: 0.01}",
     {.lr = 0.02, .beta1 = 0.5, .beta2 = 0.9, .eps = 0.01, .decay = 0.01, .decoupled = true}},
};

static void check_formula(const struct textbook *f, double scale) {
    const struct optim_ops *ops = kind(f->kind);
    struct pool *pool;
    assert_ok(pool_create(&pool));
    void *config = make_config(ops, f->yaml, pool);
    static struct state s;
    static float g[N];
    static double w[N], state[N][3];
    memset(&s, 0, sizeof s), memset(state, 0, sizeof state);
    fill(s.w, N, 0);
    for (int i = 0; i < N; i++) w[i] = s.w[i];
    for (int t = 1; t <= STEPS; t++) {
        fill(g, N, (uint64_t)t);
        step_slice(ops, config, &s, g, 0, N, (float)f->h.lr, (float)scale, t);
        for (int i = 0; i < N; i++) {
            if (!strcmp(f->kind, "sgd"))
                reference_sgd(&f->h, &w[i], state[i], scale * g[i], t);
            else
                reference_adam(&f->h, &w[i], state[i], scale * g[i], t);
            if (fabs(s.w[i] - w[i]) > 2e-5 * (1 + fabs(w[i])))
                fail_msg("%s %s: step %d, w[%d] is %.9g, not %.9g", f->kind, f->yaml, t, i, s.w[i], w[i]);
        }
    }
    pool_free(pool);
}

static void formulas_in_double(void **unused) {
    (void)unused;
    for (size_t i = 0; i < sizeof formulas / sizeof formulas[0]; i++) {
        check_formula(&formulas[i], 1);
        check_formula(&formulas[i], 0.25);
    }
}

/* ---- lion, lars and lamb by their papers, in double, on two tensors ---- */

struct tensor { /* w and two slots */
    double w[N], m[N], v[N];
};

static double length(const double *x, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++) sum += x[i] * x[i];
    return sqrt(sum);
}

/* Chen et al., algorithm 2. */
static void paper_lion(struct tensor *x, const double *g, int n, double lr, bool matrix, int t) {
    (void)matrix, (void)t;
    for (int i = 0; i < n; i++) {
        double c = 0.9 * x->m[i] + 0.1 * g[i];
        x->w[i] -= lr * ((c > 0) - (c < 0) + 0.3 * x->w[i]);
        x->m[i] = 0.99 * x->m[i] + 0.01 * g[i];
    }
}

/* You et al. 2017, algorithm 1. */
static void paper_lars(struct tensor *x, const double *g, int n, double lr, bool matrix, int t) {
    (void)t;
    double decay = matrix ? 0.02 : 0, w = length(x->w, n);
    double local = matrix ? 0.01 * w / (length(g, n) + decay * w) : 1;
    for (int i = 0; i < n; i++) {
        x->m[i] = 0.9 * x->m[i] + lr * local * (g[i] + decay * x->w[i]);
        x->w[i] -= x->m[i];
    }
}

/* You et al. 2019, algorithm 2. */
static void paper_lamb(struct tensor *x, const double *g, int n, double lr, bool matrix, int t) {
    static double u[N];
    double decay = matrix ? 0.1 : 0;
    for (int i = 0; i < n; i++) {
        x->m[i] = 0.9 * x->m[i] + 0.1 * g[i];
        x->v[i] = 0.999 * x->v[i] + 0.001 * g[i] * g[i];
        double m = x->m[i] / (1 - pow(0.9, t)), v = x->v[i] / (1 - pow(0.999, t));
        u[i] = m / (sqrt(v) + 1e-6) + decay * x->w[i];
    }
    double ratio = matrix ? length(x->w, n) / length(u, n) : 1;
    for (int i = 0; i < n; i++) x->w[i] -= lr * ratio * u[i];
}

static const struct paper {
    const char *kind, *yaml;
    double lr;
    void (*step)(struct tensor *x, const double *g, int n, double lr, bool matrix, int t);
} papers[] = {
    {"lion", "{weight_decay: 0.3}", 1e-3, paper_lion},
    {"lars", "{trust: 0.01, weight_decay: 0.02}", 0.5, paper_lars},
    {"lamb", "{weight_decay: 0.1}", 0.02, paper_lamb},
};

/* Measures the tensor in pieces and steps it in other ones, as ranks with slices do. */
static void step_tensor(const struct optim_ops *ops, const void *config, struct state *s, float *g, bool matrix,
                        float lr, float scale, int t) {
    static const int pieces[] = {0, 320, 640, N}, cuts[] = {0, 17, 400, N};
    const struct optim_step step = {lr, scale, t};
    double norm[OPTIM_NORMS] = {0};
    struct rule rule;
    optim_rule(ops, config, &step, &rule);
    for (int i = 0; ops->nnorms && i < 3; i++) {
        double square[OPTIM_NORMS];
        struct rule_span span = span_of(ops, s, g, pieces[i], pieces[i + 1], matrix);
        rule_measure(&rule, &span, square);
        for (int k = 0; k < ops->nnorms; k++) norm[k] += square[k];
    }
    for (int k = 0; k < ops->nnorms; k++) norm[k] = sqrt(norm[k]);
    for (int i = 0; i < 3; i++) {
        struct rule_span span = span_of(ops, s, g, cuts[i], cuts[i + 1], matrix);
        if (ops->nnorms) span.rate = ops->rate(config, &step, matrix, norm);
        rule_step(&rule, &span);
    }
}

static void check_paper(const struct paper *p, bool matrix) {
    const struct optim_ops *ops = kind(p->kind);
    struct pool *pool;
    assert_ok(pool_create(&pool));
    void *config = make_config(ops, p->yaml, pool);
    static struct state s;
    static float g[N];
    static struct tensor x;
    static double d[N];
    memset(&s, 0, sizeof s), memset(&x, 0, sizeof x);
    fill(s.w, N, 0);
    for (int i = 0; i < N; i++) x.w[i] = s.w[i];
    for (int t = 1; t <= STEPS; t++) {
        fill(g, N, (uint64_t)t);
        for (int i = 0; i < N; i++) d[i] = 0.25 * g[i];
        p->step(&x, d, N, p->lr, matrix, t);
        step_tensor(ops, config, &s, g, matrix, (float)p->lr, 0.25f, t);
        for (int i = 0; i < N; i++)
            if (fabs(s.w[i] - x.w[i]) > 2e-5 * (1 + fabs(x.w[i])))
                fail_msg("%s, %s: step %d, w[%d] is %.9g, not %.9g", p->kind, matrix ? "matrix" : "bias", t, i, s.w[i],
                         x.w[i]);
    }
    pool_free(pool);
}

static void papers_in_double(void **unused) {
    (void)unused;
    for (size_t i = 0; i < sizeof papers / sizeof papers[0]; i++) {
        check_paper(&papers[i], true);
        check_paper(&papers[i], false);
    }
}

/* ---- muon by its authors' words, in double, with the plainest of loops ---- */

/* x (r, c) becomes 3.4445 x + (-4.775 a + 2.0315 a a) x with a = x x'. */
static void paper_newton_schulz(double *x, int r, int c) {
    static double a[N], b[N], y[N];
    for (int i = 0; i < r * r; i++) a[i] = b[i] = 0;
    for (int i = 0; i < r; i++)
        for (int j = 0; j < r; j++)
            for (int k = 0; k < c; k++) a[i * r + j] += x[i * c + k] * x[j * c + k];
    for (int i = 0; i < r; i++)
        for (int j = 0; j < r; j++) {
            for (int k = 0; k < r; k++) b[i * r + j] += 2.0315 * a[i * r + k] * a[k * r + j];
            b[i * r + j] -= 4.775 * a[i * r + j];
        }
    for (int i = 0; i < r; i++)
        for (int j = 0; j < c; j++) {
            y[i * c + j] = 3.4445 * x[i * c + j];
            for (int k = 0; k < r; k++) y[i * c + j] += b[i * r + k] * x[k * c + j];
        }
    memcpy(x, y, (size_t)(r * c) * sizeof *x);
}

static void paper_muon(struct tensor *x, const double *g, int rows, int columns, double lr, bool original) {
    static double u[N];
    bool turned = rows > columns;
    int r = turned ? columns : rows, c = turned ? rows : columns;
    double size = original ? sqrt(fmax(1, (double)rows / columns)) : 0.2 * sqrt(fmax(rows, columns));
    for (int i = 0; i < N; i++) {
        x->m[i] = 0.95 * x->m[i] + 0.05 * g[i];
        int at = turned ? i % columns * rows + i / columns : i;
        u[at] = 0.05 * g[i] + 0.95 * x->m[i];
    }
    double norm = length(u, N) + 1e-7;
    for (int i = 0; i < N; i++) u[i] /= norm;
    for (int i = 0; i < 5; i++) paper_newton_schulz(u, r, c);
    for (int i = 0; i < N; i++)
        x->w[i] = x->w[i] * (1 - lr * 0.1) - lr * size * u[turned ? i % columns * rows + i / columns : i];
}

/* Loops in one piece, or in pieces as threads have them. */
static void share_by(void *by, int64_t n, void (*part)(void *ctx, int64_t begin, int64_t end), void *ctx) {
    int64_t piece = *(const int *)by;
    for (int64_t at = 0; at < n; at += piece) part(ctx, at, at + piece < n ? at + piece : n);
}

struct dims { /* of a tensor of N elements */
    int ndim;
    int64_t of[4];
};

static void step_whole(const struct optim_ops *ops, const void *config, struct state *s, float *g,
                       const struct dims *dims, int piece, int t) {
    static float scratch[4 * N];
    const struct optim_step step = {0.02f, 0.25f, t};
    const struct rule_work work = {scratch, share_by, &piece};
    struct rule rule;
    struct rule_span span = span_of(ops, s, g, 0, N, dims->ndim > 1);
    optim_rule(ops, config, &step, &rule);
    assert_true(ops->takes(dims->of, dims->ndim, true, &span.rows, &span.columns) && span.rows > 0);
    if (ops->size) span.rate = ops->size(config, span.rows, span.columns);
    if (ops->scratch) assert_true(ops->scratch(span.rows, span.columns) <= 4 * N);
    rule.whole(rule.number[span.kind], &span, &work);
    rule_step(&rule, &span);
}

static void muon_by_plain_loops(void **unused) {
    (void)unused;
    static const int rows[] = {20, 50, 1, 8};
    const struct optim_ops *ops = kind("muon");
    struct pool *pool;
    assert_ok(pool_create(&pool));
    for (int i = 0; i < 8; i++) {
        static struct state s, cut;
        static struct tensor x;
        static float g[N], again[N];
        static double d[N];
        bool original = i >= 4;
        const struct dims dims = {3, {rows[i % 4], N / rows[i % 4] / 5, 5}};
        void *config =
            make_config(ops, original ? "{weight_decay: 0.1, adjust: original}" : "{weight_decay: 0.1}", pool);
        memset(&s, 0, sizeof s), memset(&x, 0, sizeof x);
        fill(s.w, N, 0);
        cut = s;
        for (int k = 0; k < N; k++) x.w[k] = s.w[k];
        for (int t = 1; t <= STEPS; t++) {
            fill(g, N, (uint64_t)t);
            memcpy(again, g, sizeof g);
            for (int k = 0; k < N; k++) d[k] = 0.25 * (double)g[k];
            paper_muon(&x, d, rows[i % 4], N / rows[i % 4], 0.02, original);
            step_whole(ops, config, &s, g, &dims, N, t);
            step_whole(ops, config, &cut, again, &dims, 3, t);
            for (int k = 0; k < N; k++)
                if (fabs((double)s.w[k] - x.w[k]) > 2e-5 * (1 + fabs(x.w[k])))
                    fail_msg("%d rows: step %d, w[%d] is %.9g, not %.9g", rows[i % 4], t, k, (double)s.w[k], x.w[k]);
        }
        assert_memory_equal(&s, &cut, sizeof s);
    }
    pool_free(pool);
}

struct adafactor_state {
    double w[N], row[N], column[N], variance[N];
};

/* torch.optim.Adafactor, word for word, of one tensor (many, rows, columns), or of a vector: columns 0. */
static void reference_adafactor(struct adafactor_state *x, double *g, int rows, int columns, int t) {
    const double lr = 0.02, decay = 0.1, eps1 = 1.1920928955078125e-7, eps2 = 1e-3, d = 0.7;
    const double kept = pow(t, -0.6), rho = fmin(lr, 1 / sqrt(t));
    const double alpha = fmax(eps2, length(x->w, N) / sqrt(N)) * rho;
    for (int i = 0; i < N; i++) x->w[i] *= 1 - lr * decay;
    for (int i = 0; i < N && !columns; i++) {
        x->variance[i] += kept * (g[i] * g[i] - x->variance[i]);
        g[i] /= sqrt(fmax(x->variance[i], eps1 * eps1));
    }
    for (int b = 0; columns && b < N / (rows * columns); b++) {
        double *row = x->row + b * rows, *column = x->column + b * columns, *of = g + b * rows * columns, mean = 0;
        for (int i = 0; i < rows; i++) {
            double sum = 0;
            for (int j = 0; j < columns; j++) sum += of[i * columns + j] * of[i * columns + j];
            row[i] += kept * (sum / columns - row[i]);
            mean += row[i] / rows;
        }
        for (int j = 0; j < columns; j++) {
            double sum = 0;
            for (int i = 0; i < rows; i++) sum += of[i * columns + j] * of[i * columns + j];
            column[j] += kept * (sum / rows - column[j]);
        }
        for (int i = 0; i < rows * columns; i++)
            of[i] /= sqrt(fmax(row[i / columns] * column[i % columns] / fmax(mean, eps1), eps1 * eps1));
    }
    double denominator = fmax(1, length(g, N) / (sqrt(N) * d));
    for (int i = 0; i < N; i++) x->w[i] -= alpha / denominator * g[i];
}

static void assert_near(const float *got, const double *want, int n, const char *what, int t) {
    for (int i = 0; i < n; i++)
        if (fabs((double)got[i] - want[i]) > 2e-5 * (1e-3 + fabs(want[i])))
            fail_msg("%s, step %d: [%d] is %.9g, not %.9g", what, t, i, (double)got[i], want[i]);
}

/* Weights and state; the last tensor's gradient is so small, and another's so large, that both bounds are met. */
static void adafactor_is_torchs(void **unused) {
    (void)unused;
    static const struct dims shapes[] = {{2, {20, 50}}, {1, {N}}, {4, {4, 10, 5, 5}}, {2, {1, N}}, {3, {8, 125, 1}}};
    const struct optim_ops *ops = kind("adafactor");
    struct pool *pool;
    assert_ok(pool_create(&pool));
    void *config = make_config(ops, "{lr: 0.02, weight_decay: 0.1, beta2_decay: -0.6, threshold: 0.7}", pool);
    for (int k = 0; k < 10; k++) {
        static struct state s, cut;
        static struct adafactor_state x;
        static float g[N], again[N];
        static double d[N];
        const struct dims *of = &shapes[k % 5];
        const float size = k < 5 ? 1 : 1e-8f;
        int64_t rows, columns, counts[OPTIM_SLOTS] = {0};
        ops->takes(of->of, of->ndim, false, &rows, &columns);
        for (int i = 0; i < OPTIM_SLOTS; i++) {
            struct dims state = *of;
            counts[i] = ops->state(i, state.of, state.ndim);
            for (int j = 0; j < of->ndim; j++) counts[i] *= state.of[j];
        }
        memset(&s, 0, sizeof s), memset(&x, 0, sizeof x);
        fill(s.w, N, 0);
        for (int i = 0; i < N; i++) x.w[i] = s.w[i] *= k % 2 ? 1e-5f : 1;
        cut = s;
        for (int t = 1; t <= STEPS; t++) {
            fill(g, N, (uint64_t)t);
            for (int i = 0; i < N; i++) again[i] = g[i] *= size, d[i] = 0.25 * (double)g[i];
            reference_adafactor(&x, d, (int)rows, (int)columns, t);
            step_whole(ops, config, &s, g, of, N, t);
            step_whole(ops, config, &cut, again, of, 3, t);
            assert_near(s.w, x.w, N, "w", t);
            assert_near(s.slot[0], x.row, (int)counts[0], "row_var", t);
            assert_near(s.slot[1], x.column, (int)counts[1], "col_var", t);
            assert_near(s.slot[2], x.variance, (int)counts[2], "variance", t);
        }
        assert_memory_equal(&s, &cut, sizeof s);
        for (int i = 0; i < OPTIM_SLOTS; i++)
            for (int64_t j = counts[i]; j < N; j++) assert_true(s.slot[i][j] == 0); /* no more than that is touched */
    }
    pool_free(pool);
}

/* Made with torch 2.15: a matrix (2, 3) and a vector, four steps; then the matrix's two kinds of state and the vector's. */
static const struct adafactor_figure {
    const char *yaml;
    float lr, matrix[6], vector[3], row[2], column[3], variance[3];
} adafactor_figures[] = {
    {"{}",
     0.01f,
     {0.935716867f, -1.94378519f, 0.498761386f, 0.239471123f, 2.94317937f, -1.02194297f},
     {0.941227674f, -1.95130026f, 0.50126195f},
     {0.0803315341f, 0.00864315219f},
     {0.0536995381f, 0.0482000075f, 0.0315625034f},
     {0.0884946138f, 0.0900000036f, 0.0625f}},
    {"{weight_decay: 0.1, beta2_decay: -0.6, threshold: 1.1, eps1: 1e-3, eps2: 2}",
     0.3f,
     {-1.54778087f, 0.455397069f, 0.365992129f, -0.268574148f, 0.419978231f, -1.7487489f},
     {-1.76775789f, 0.523558199f, 0.407710195f},
     {0.0855188519f, 0.0102091553f},
     {0.0638295189f, 0.0482000075f, 0.0315625034f},
     {0.104056567f, 0.0900000036f, 0.0625f}},
};

static void step_small(const struct optim_ops *ops, const void *config, struct state *s, float *g, int n, float lr,
                       int t) {
    const struct optim_step step = {lr, 1, t};
    int piece = 1;
    const struct rule_work work = {NULL, share_by, &piece};
    struct rule rule;
    struct rule_span span = span_of(ops, s, g, 0, n, n == 6);
    if (n == 6) span.columns = 3;
    span.rows = n == 6 ? 2 : 3;
    optim_rule(ops, config, &step, &rule);
    rule.whole(rule.number[span.kind], &span, &work);
    rule_step(&rule, &span);
}

static void assert_figures(const float *got, const float *want, int n, const char *what) {
    for (int i = 0; i < n; i++)
        if (fabsf(got[i] - want[i]) > 1e-6f)
            fail_msg("%s[%d] is %.9g, PyTorch's is %.9g", what, i, (double)got[i], (double)want[i]);
}

static void adafactor_figures_are_torchs(void **unused) {
    (void)unused;
    const struct optim_ops *ops = kind("adafactor");
    for (size_t i = 0; i < sizeof adafactor_figures / sizeof *adafactor_figures; i++) {
        const struct adafactor_figure *f = &adafactor_figures[i];
        struct pool *pool;
        assert_ok(pool_create(&pool));
        void *config = make_config(ops, f->yaml, pool);
        static struct state matrix, vector;
        memset(&matrix, 0, sizeof matrix), memset(&vector, 0, sizeof vector);
        memcpy(matrix.w, (float[]){1, -2, 0.5f, 0.25f, 3, -1}, 6 * sizeof(float));
        memcpy(vector.w, (float[]){1, -2, 0.5f}, 3 * sizeof(float));
        for (int t = 1; t <= 4; t++) {
            float g[6] = {0.1f * (float)t, -0.3f, t % 2 ? -0.25f : 0.25f}, own[3];
            memcpy(own, g, sizeof own);
            for (int k = 0; k < 3; k++) g[3 + k] = g[k] * g[k] * 2 - 0.1f;
            step_small(ops, config, &matrix, g, 6, f->lr, t);
            step_small(ops, config, &vector, own, 3, f->lr, t);
        }
        assert_figures(matrix.w, f->matrix, 6, "matrix");
        assert_figures(vector.w, f->vector, 3, "vector");
        assert_figures(matrix.slot[0], f->row, 2, "row_var");
        assert_figures(matrix.slot[1], f->column, 3, "col_var");
        assert_figures(vector.slot[2], f->variance, 3, "variance");
        pool_free(pool);
    }
}

/* What is no matrix of a hidden layer gets AdamW's bits. */
static void the_rest_of_muon_is_adamw(void **unused) {
    (void)unused;
    static struct state one, two;
    static float g[N];
    struct pool *pool;
    assert_ok(pool_create(&pool));
    void *muon = make_config(kind("muon"), "{lr: 0.02, adam_lr: 0.005}", pool);
    void *adamw = make_config(kind("adamw"), "{betas: [0.9, 0.95]}", pool);
    fill(one.w, N, 0);
    two = one;
    for (int t = 1; t <= 5; t++) {
        fill(g, N, (uint64_t)t);
        step_slice(kind("muon"), muon, &one, g, 0, N, 0.02f, 1, t);
        step_slice(kind("adamw"), adamw, &two, g, 0, N, 0.02f * 0.25f, 1, t);
    }
    assert_memory_equal(&one, &two, sizeof one);
    pool_free(pool);
}

/* A tensor of zeros, as biases are at first, has no ratio: it must start to move all the same. */
static void zero_tensors_move(void **unused) {
    (void)unused;
    static const char *const kinds[] = {"lars", "lamb"};
    for (int k = 0; k < 2; k++) {
        const struct optim_ops *ops = kind(kinds[k]);
        struct pool *pool;
        assert_ok(pool_create(&pool));
        void *config = make_config(ops, "{}", pool);
        static struct state s;
        static float g[N];
        memset(&s, 0, sizeof s);
        fill(g, N, 1);
        step_tensor(ops, config, &s, g, true, 0.1f, 1, 1);
        for (int i = 0; i < N; i++) assert_true(isfinite(s.w[i]) && s.w[i] != 0);
        pool_free(pool);
    }
}

/* decay: matrices leaves biases alone and treats matrices as 'all' does. */
static void decay_of_matrices(void **unused) {
    (void)unused;
    int n;
    const struct optim_ops *const *kinds = optim_kinds(&n);
    for (int k = 0; k < n; k++)
        for (int matrix = 0; matrix < 2; matrix++) {
            static const char *const yaml[] = {"{weight_decay: 0.1, decay: matrices}",
                                               "{weight_decay: 0.1, decay: all}", "{weight_decay: 0}"};
            static struct state s[3];
            struct pool *pool;
            assert_ok(pool_create(&pool));
            memset(s, 0, sizeof s);
            for (int i = 0; i < 3; i++) {
                static float g[N];
                void *config = make_config(kinds[k], yaml[i], pool);
                fill(s[i].w, N, 0);
                fill(g, N, 1);
                step_tensor(kinds[k], config, &s[i], g, matrix, 0.1f, 1, 1);
            }
            assert_memory_equal(s[0].w, s[matrix ? 1 : 2].w, sizeof s[0].w);
            assert_memory_not_equal(s[0].w, s[matrix ? 2 : 1].w, sizeof s[0].w);
            pool_free(pool);
        }
}

/* ---- what every optimizer keeps ---- */

/* Settings beyond the standard ones that reach every loop of a kind. */
static const char *const settings[] = {"{}",
                                       "{weight_decay: 0.1}",
                                       "{momentum: 0.9}",
                                       "{momentum: 0.9, nesterov: true}",
                                       "{betas: [0.8, 0.9]}",
                                       "{amsgrad: true}",
                                       "{momentum: 0.9, dampening: 0.1}"};

static void check_slices(const struct optim_ops *ops, const void *config) {
    static const int cuts[] = {0, 1, 2, 17, 64, 65, 400, 400, 773, N};
    static struct state whole, cut;
    static float g[N];
    memset(&whole, 0, sizeof whole);
    fill(whole.w, N, 0);
    memcpy(&cut, &whole, sizeof cut);
    for (int t = 1; t <= 3; t++) {
        fill(g, N, (uint64_t)t);
        step_slice(ops, config, &whole, g, 0, N, 0.01f, 0.7f, t);
        fill(g, N, (uint64_t)t);
        for (size_t i = 0; i + 1 < sizeof cuts / sizeof cuts[0]; i++)
            step_slice(ops, config, &cut, g, cuts[i], cuts[i + 1], 0.01f, 0.7f, t);
        if (memcmp(&whole, &cut, sizeof cut))
            fail_msg("%s: step %d by slices differs from the whole", ops->section.name, t);
    }
}

/* f(w) = sum of c_i w_i^2 / 2 with c from 0.1 to 1: 300 steps must take away most of it. */
static void check_downhill(const struct optim_ops *ops, const void *config) {
    enum { n = 8 };
    struct state s = {.w = {1, -1, 2, -2, 0.5f, -0.5f, 1.5f, -1.5f}};
    double before = 0, after = 0;
    for (int i = 0; i < n; i++) before += 0.05 * (1 + i) * s.w[i] * s.w[i];
    for (int t = 1; t <= 300; t++) {
        float g[n];
        for (int i = 0; i < n; i++) g[i] = 0.1f * (float)(1 + i) * s.w[i];
        step_slice(ops, config, &s, g, 0, n, 0.05f, 1, t);
    }
    for (int i = 0; i < n; i++) after += 0.05 * (1 + i) * s.w[i] * s.w[i];
    if (!(after < 0.05 * before)) fail_msg("%s: from %g only to %g", ops->section.name, before, after);
}

static void every_kind(void **unused) {
    (void)unused;
    int n;
    const struct optim_ops *const *kinds = optim_kinds(&n);
    assert_int_equal(n + 1, optim_variants.count); /* and plug-ins */
    for (int i = 0; i < n; i++) {
        assert_ptr_equal(optim_variants.at(i), &kinds[i]->section);
        assert_between(kinds[i]->nslots, 0, OPTIM_SLOTS);
        for (int k = 0; k < kinds[i]->nslots; k++) assert_non_null(kinds[i]->slot_names[k]);
        int accepted = 0;
        for (size_t k = 0; k < sizeof settings / sizeof settings[0]; k++) {
            struct pool *pool;
            void *config;
            assert_ok(pool_create(&pool));
            if (!read_config(kinds[i], settings[k], pool, &config)) {
                accepted++;
                assert_true(optim_lr(config) > 0);
                check_slices(kinds[i], config);
                check_downhill(kinds[i], config);
            }
            pool_free(pool);
        }
        assert_true(accepted >= 2); /* the standard settings and weight decay */
    }
}

static void bad_settings(void **unused) {
    (void)unused;
    static const char *const bad[][2] = {
        {"sgd", "{nesterov: true}"},    {"sgd", "{lr: -1}"},
        {"sgd", "{momentum: 1.5}"},     {"adam", "{betas: [0.9]}"},
        {"adam", "{betas: [0.9, 1]}"},  {"adam", "{betas: [0.9, 0.99, 0.9]}"},
        {"adamw", "{betas: [1, 0.9]}"}, {"adamw", "{betas: []}"},
        {"adamw", "{eps: 0}"},          {"adamw", "{momentum: 0.9}"},
        {"lion", "{betas: [0.9]}"},     {"lion", "{betas: [0.9, 1]}"},
        {"lars", "{trust: 0}"},         {"lars", "{adapt: biases}"},
        {"lamb", "{betas: [1, 0.9]}"},  {"sgd", "{decay: none}"},
        {"muon", "{betas: [0.9]}"},     {"muon", "{adjust: yes}"},
        {"muon", "{momentum: 1.5}"},    {"sgd", "{dampening: 0.5}"},
        {"lamb", "{amsgrad: true}"},    {"sgd", "{momentum: 0.9, dampening: 0.5, nesterov: true}"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct pool *pool;
        void *config;
        assert_ok(pool_create(&pool));
        if (!read_config(kind(bad[i][0]), bad[i][1], pool, &config))
            fail_msg("%s %s is accepted", bad[i][0], bad[i][1]);
        pool_free(pool);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pytorch_figures),
        cmocka_unit_test(formulas_in_double),
        cmocka_unit_test(papers_in_double),
        cmocka_unit_test(zero_tensors_move),
        cmocka_unit_test(decay_of_matrices),
        cmocka_unit_test(every_kind),
        cmocka_unit_test(bad_settings),
        cmocka_unit_test(muon_by_plain_loops),
        cmocka_unit_test(adafactor_is_torchs),
        cmocka_unit_test(adafactor_figures_are_torchs),
        cmocka_unit_test(the_rest_of_muon_is_adamw),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
