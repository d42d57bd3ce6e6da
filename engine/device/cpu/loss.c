/* Cross-entropy and binary cross-entropy, row by row: a part of the rows for each thread. What they give is then added
 * up in order by the calling thread.
 *
 * Cross-entropy: a row is read once and written twice: in blocks that stay in the first-level cache it becomes
 * e^(x - top), where 'top' is the largest so far, and when the last block is done each is brought to
 * the largest of all and to the sum. Where the gradient is wanted at once, in the place of x, that happens in a row of the
 * thread's own, which stays in its cache. */
#include "engine/base/real.h"
#include "engine/device/cpu/cpu.h"
#include "engine/device/cpu/fast_math.h"
#include "engine/device/cpu/kernels.h"

#include <float.h>
#include <math.h>

/* ---- kernels -------------------------------------------------------------------------------- */
enum { LANES = 32, SUM_LANES = 16, GRAIN = 4096 };

/* The largest of x (n). */
static float block_max(int64_t n, const float *x) {
    float part[LANES], most;
    int64_t k = 0;
    for (int lane = 0; lane < LANES; lane++) part[lane] = -INFINITY;
    for (; k + LANES <= n; k += LANES)
        for (int lane = 0; lane < LANES; lane++) part[lane] = x[k + lane] > part[lane] ? x[k + lane] : part[lane];
    for (int lane = 0; k + lane < n; lane++) part[lane] = x[k + lane] > part[lane] ? x[k + lane] : part[lane];
    for (int lane = 0; lane < 16; lane++) part[lane] = part[lane + 16] > part[lane] ? part[lane + 16] : part[lane];
    for (int lane = 0; lane < 8; lane++) part[lane] = part[lane + 8] > part[lane] ? part[lane + 8] : part[lane];
    for (int lane = 0; lane < 4; lane++) part[lane] = part[lane + 4] > part[lane] ? part[lane + 4] : part[lane];
    most = part[0];
    for (int lane = 1; lane < 4; lane++) most = part[lane] > most ? part[lane] : most;
    return most;
}

/* y = e^(x - top); gives the sum: that of LANES partial sums, which are added in pairs. */
static double block_exp(int64_t n, const float *x, float top, float *y) {
    float part[LANES] = {0};
    int64_t k = 0;
    for (; k + LANES <= n; k += LANES)
        for (int lane = 0; lane < LANES; lane++) {
            float e = fast_exp(x[k + lane] - top);
            y[k + lane] = e;
            part[lane] += e;
        }
    for (int lane = 0; k + lane < n; lane++) {
        float e = fast_exp(x[k + lane] - top);
        y[k + lane] = e;
        part[lane] += e;
    }
    for (int lane = 0; lane < 16; lane++) part[lane] += part[lane + 16];
    for (int lane = 0; lane < 8; lane++) part[lane] += part[lane + 8];
    for (int lane = 0; lane < 4; lane++) part[lane] += part[lane + 4];
    return ((double)part[0] + (double)part[1]) + ((double)part[2] + (double)part[3]);
}

/* to (n) = from by. */
static void gradient_scale(int64_t n, float by, const float *from, float *to) {
    for (int64_t k = 0; k < n; k++) to[k] = from[k] * by;
}

/* The first place of 'what' in x (n). */
static int64_t row_find(int64_t n, const float *x, float what) {
    int64_t k = 0;
    while (k < n && x[k] != what) k++;
    return k < n ? k : 0; /* a row of NaN has no largest */
}

static int64_t block_at(int64_t n, int64_t at) {
    return n - at < SOFTMAX_BLOCK ? n - at : SOFTMAX_BLOCK;
}

double kernel_softmax(int64_t n, const float *x, float *y, float *tops, int64_t *best) {
    float top = -FLT_MAX; /* so that x - top is a number, though x be -infinity */
    double sum = 0;
    int64_t where = 0;
    for (int64_t at = 0; at < n; at += SOFTMAX_BLOCK) {
        int64_t count = block_at(n, at);
        float most = block_max(count, x + at);
        if (most > top) {
            if (at) sum *= real_exp((double)top - (double)most);
            top = most, where = at;
        }
        tops[at / SOFTMAX_BLOCK] = top;
        sum += block_exp(count, x + at, top, y + at);
    }
    for (int64_t at = 0; at < n; at += SOFTMAX_BLOCK) {
        float then = tops[at / SOFTMAX_BLOCK];
        double grow = then < top ? real_exp((double)then - (double)top) : 1;
        gradient_scale(block_at(n, at), (float)(grow / sum), y + at, y + at);
    }
    *best = where + row_find(block_at(n, where), x + where, top);
    return real_log(sum);
}

/* The sum of w (x - top), w NULL: 1 each. */
static double weighted_sum(int64_t n, const float *w, const float *x, float top) {
    double part[SUM_LANES] = {0}, sum = 0;
    int64_t k = 0;
    for (; k + SUM_LANES <= n; k += SUM_LANES)
        for (int lane = 0; lane < SUM_LANES; lane++)
            part[lane] += (w ? (double)w[k + lane] : 1) * ((double)x[k + lane] - (double)top);
    for (int lane = 0; k + lane < n; lane++)
        part[lane] += (w ? (double)w[k + lane] : 1) * ((double)x[k + lane] - (double)top);
    for (int lane = 0; lane < SUM_LANES; lane++) sum += part[lane];
    return sum;
}

/* to = from by - w each, w NULL: 1 each. */
static void scale_less(int64_t n, float by, const float *w, float each, const float *from, float *to) {
    if (w)
        for (int64_t k = 0; k < n; k++) to[k] = from[k] * by - w[k] * each;
    else
        for (int64_t k = 0; k < n; k++) to[k] = from[k] * by - each;
}

/* ---- the op: scratch is what each row gives, then each thread's tops and a row --------------- */
struct result {
    double loss;
    bool right, top;
};
static int64_t tops_floats(const struct op_desc *d) {
    return align_floats(SOFTMAX_TOPS(shape_last(&d->x)));
}

static int64_t thread_floats(const struct op_desc *d) {
    return tops_floats(d) + align_floats(shape_last(&d->x));
}

static size_t results_bytes(const struct op_desc *d) {
    return align_bytes((size_t)op_rows(d) * sizeof(struct result));
}

/* weights: the sum of the classes'. */
static double soft_loss(const struct cpu_pass *p, int64_t row, double weights, const float *x, int64_t best,
                        double log_sum) {
    const struct soft_target t = soft_target(p->d, p->a, row, weights);
    double top = (double)x[best], loss = t.at.of_label * (log_sum - ((double)x[t.at.label] - top));
    if (t.at.of_other > 0) loss += t.at.of_other * (log_sum - ((double)x[t.at.other] - top));
    if (!(t.of_each > 0)) return loss;
    int64_t classes = shape_last(&p->d->x);
    return loss + t.of_each * (weights * log_sum - weighted_sum(classes, p->a->class_weights, x, x[best]));
}

static void soft_gradient_row(const struct cpu_pass *p, int64_t row, double weights, float by, const float *y,
                              float *dx) {
    const struct soft_target t = soft_target(p->d, p->a, row, weights);
    const float *w = p->a->class_weights;
    float each = (float)(t.of_each * (double)by);
    scale_less(shape_last(&p->d->x), (float)(t.all * (double)by), w, each, y, dx);
    dx[t.at.label] -= (float)(t.at.of_label * (double)by);
    if (t.at.of_other > 0) dx[t.at.other] -= (float)(t.at.of_other * (double)by);
}

/* The gradient of a row whose softmax is y. */
static void gradient_row(const struct cpu_pass *p, int64_t row, double weights, const float *y) {
    int64_t classes = shape_last(&p->d->x);
    float by = p->a->scale / (float)(op_rows(p->d) / p->d->n), *dx = p->a->dx[0] + row * classes;
    int32_t label = p->a->labels[row];
    if (loss_is_soft(p->a)) {
        soft_gradient_row(p, row, weights, by, y, dx);
        return;
    }
    gradient_scale(classes, by, y, dx);
    dx[label] = (y[label] - 1) * by;
}

static void cross_entropy_rows(const struct cpu_pass *p, int64_t begin, int64_t end) {
    const struct op_desc *d = p->d;
    int64_t classes = shape_last(&d->x), best;
    double weights = class_weights_sum(p->a, classes);
    struct result *results = p->a->scratch;
    float *tops = (float *)(void *)((char *)p->a->scratch + results_bytes(d)) + cpu_thread() * thread_floats(d);
    for (int64_t i = begin; i < end; i++) {
        const float *x = p->a->x[0] + i * classes;
        float *y = p->a->y ? p->a->y + i * classes : tops + tops_floats(d);
        double log_sum = kernel_softmax(classes, x, y, tops, &best);
        if (!p->a->labels) continue;
        int32_t label = p->a->labels[i];
        double loss = loss_is_soft(p->a) ? soft_loss(p, i, weights, x, best, log_sum)
                                         : log_sum - ((double)x[label] - (double)x[best]);
        results[i] = (struct result){loss, best == label, p->a->top && label_in_top(x, classes, label)};
        if (p->a->dx[0]) gradient_row(p, i, weights, y);
    }
}

/* A sample's loss, and its part of right answers, are means over its rows. */
static void results_add_up(const struct op_desc *d, const struct result *results, const struct op_args *a) {
    int64_t rows = op_rows(d) / d->n;
    for (int64_t i = 0; i < d->n; i++) {
        double loss = 0, rights = 0;
        for (int64_t r = i * rows; r < (i + 1) * rows; r++) {
            loss += results[r].loss;
            rights += results[r].right;
            if (a->top) *a->top += results[r].top;
        }
        a->sums[0] += loss / (double)rows;
        a->sums[1] += rights / (double)rows;
    }
}

/* Rows that are worth a thread. */
static int64_t rows_grain(const struct op_desc *d) {
    return (GRAIN + shape_last(&d->x) - 1) / shape_last(&d->x);
}

static enum error cross_entropy_forward(struct op *op, const struct op_args *a) {
    const struct op_desc *d = &op->desc;
    TRY(labels_check(d, a));
    cpu_run(op, a, op_rows(d), rows_grain(d), cross_entropy_rows);
    if (a->labels) results_add_up(d, a->scratch, a);
    return ERR_NONE;
}

static void cross_entropy_backward_rows(const struct cpu_pass *p, int64_t begin, int64_t end) {
    int64_t classes = shape_last(&p->d->x);
    double weights = class_weights_sum(p->a, classes);
    for (int64_t i = begin; i < end; i++) gradient_row(p, i, weights, p->a->y + i * classes);
}

static enum error cross_entropy_backward(struct op *op, const struct op_args *a) {
    return a->dx[0] ? cpu_run(op, a, op_rows(&op->desc), rows_grain(&op->desc), cross_entropy_backward_rows) : ERR_NONE;
}

static enum error cross_entropy_plan(struct op *op) {
    const struct op_desc *d = &op->desc;
    op->scratch_bytes = results_bytes(d) + (size_t)(op->dev->params.threads * thread_floats(d)) * sizeof(float);
    op->slopes = true;
    return ERR_NONE;
}

const struct op_impl CPU_NAME(cpu_cross_entropy) = {
    .name = "vector",
    .plan = cross_entropy_plan,
    .forward = cross_entropy_forward,
    .backward = cross_entropy_backward,
};

/* ---- binary cross-entropy: log(1 + e^x) - x target = max(x, 0) + log(1 + e^-|x|) - x target ----
 * The logarithms of a block are one logarithm, of the product of what is in them: each factor is at most 2. */
enum { BITS_BLOCK = 960 }; /* 2^960 is a double */

/* The sum over n features of log(1 + e^x) - x target; target NULL: all zeros. */
static double block_bits(int64_t n, const float *x, const float *target) {
    double sum[SUM_LANES] = {0}, product[SUM_LANES], all = 0, factor = 1;
    int64_t k = 0;
    for (int lane = 0; lane < SUM_LANES; lane++) product[lane] = 1;
    for (; k + SUM_LANES <= n; k += SUM_LANES)
        for (int lane = 0; lane < SUM_LANES; lane++) {
            float v = x[k + lane], over = v > 0 ? v : 0;
            product[lane] *= 1 + (double)fast_exp(v > 0 ? -v : v);
            sum[lane] += (double)over - (target ? (double)v * (double)target[k + lane] : 0);
        }
    for (int lane = 0; k + lane < n; lane++) {
        float v = x[k + lane], over = v > 0 ? v : 0;
        product[lane] *= 1 + (double)fast_exp(v > 0 ? -v : v);
        sum[lane] += (double)over - (target ? (double)v * (double)target[k + lane] : 0);
    }
    for (int lane = 0; lane < SUM_LANES; lane++) all += sum[lane], factor *= product[lane];
    return all + real_log(factor);
}

/* dx (n) = (sigmoid(x) - target) by; target NULL: all zeros. */
static void bits_slopes(int64_t n, const float *x, const float *target, float by, float *dx) {
    if (target)
        for (int64_t k = 0; k < n; k++) dx[k] = (fast_sigmoid(x[k]) - target[k]) * by;
    else
        for (int64_t k = 0; k < n; k++) dx[k] = fast_sigmoid(x[k]) * by;
}

static void bce_forward_rows(const struct cpu_pass *p, int64_t begin, int64_t end) {
    const struct op_desc *d = p->d;
    const struct op_args *a = p->a;
    int64_t features = shape_last(&d->x);
    struct result *results = a->scratch;
    for (int64_t i = begin; i < end; i++) {
        const float *x = a->x[0] + i * features, *target = a->labels ? NULL : a->target + i * features;
        struct result r = {0};
        for (int64_t at = 0, n; at < features; at += n) {
            n = features - at < BITS_BLOCK ? features - at : BITS_BLOCK;
            r.loss += block_bits(n, x + at, target ? target + at : NULL);
        }
        if (a->labels) {
            const struct loss_target t = loss_target(d, a, i);
            r.loss -= t.of_label * (double)x[t.label] + t.of_other * (double)x[t.other];
            r.right = row_find(features, x, block_max(features, x)) == t.label;
            r.top = a->top && label_in_top(x, features, t.label);
        }
        r.loss /= (double)features;
        results[i] = r;
    }
}

static enum error bce_forward(struct op *op, const struct op_args *a) {
    TRY(labels_check(&op->desc, a));
    cpu_run(op, a, op_rows(&op->desc), rows_grain(&op->desc), bce_forward_rows);
    results_add_up(&op->desc, a->scratch, a);
    return ERR_NONE;
}

static void bce_backward_rows(const struct cpu_pass *p, int64_t begin, int64_t end) {
    const struct op_desc *d = p->d;
    const struct op_args *a = p->a;
    int64_t features = shape_last(&d->x);
    float by = a->scale / (float)shape_count(&d->x);
    for (int64_t i = begin; i < end; i++) {
        const float *x = a->x[0] + i * features;
        float *dx = a->dx[0] + i * features;
        bits_slopes(features, x, a->labels ? NULL : a->target + i * features, by, dx);
        if (!a->labels) continue;
        const struct loss_target t = loss_target(d, a, i);
        dx[t.label] -= (float)(t.of_label * (double)by);
        if (t.of_other > 0) dx[t.other] -= (float)(t.of_other * (double)by);
    }
}

static enum error bce_backward(struct op *op, const struct op_args *a) {
    return a->dx[0] ? cpu_run(op, a, op_rows(&op->desc), rows_grain(&op->desc), bce_backward_rows) : ERR_NONE;
}

static enum error bce_plan(struct op *op) {
    const struct op_desc *d = &op->desc;
    op->scratch_bytes = results_bytes(d);
    op->y_unread = true;
    return ERR_NONE;
}

const struct op_impl CPU_NAME(cpu_bce) = {
    .name = "vector",
    .plan = bce_plan,
    .forward = bce_forward,
    .backward = bce_backward,
};
