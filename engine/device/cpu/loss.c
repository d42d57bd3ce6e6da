/* Cross-entropy, row by row: a part of the rows for each thread. What they give is then added up in
 * order by the calling thread.
 *
 * A row is read once and written twice: in blocks that stay in the first-level cache it becomes
 * e^(x - top), where 'top' is the largest so far, and when the last block is done each is brought to
 * the largest of all and to the sum. */
#include "engine/base/real.h"
#include "engine/base/vector.h"
#include "engine/device/cpu/cpu.h"
#include "engine/device/cpu/fast_math.h"
#include "engine/device/cpu/kernels.h"

#include <float.h>
#include <math.h>

/* ---- kernels -------------------------------------------------------------------------------- */
enum { LANES = 32, GRAIN = 4096 };

VECTORISED static float block_max(int64_t n, const float *x) {
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
VECTORISED static double block_exp(int64_t n, const float *x, float top, float *y) {
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

VECTORISED static void scale(int64_t n, float by, const float *from, float *to) {
    for (int64_t k = 0; k < n; k++) to[k] = from[k] * by;
}

static int64_t find(int64_t n, const float *x, float what) {
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
        scale(block_at(n, at), (float)(grow / sum), y + at, y + at);
    }
    *best = where + find(block_at(n, where), x + where, top);
    return real_log(sum);
}

/* ---- the op: scratch is what each row gives, then each thread's tops ------------------------- */
struct result {
    double loss;
    bool right, top;
};
struct pass {
    const struct op *op;
    const struct op_args *a;
};

static size_t tops_bytes(const struct op_desc *d) {
    return (size_t)align_floats(SOFTMAX_TOPS(shape_last(&d->x))) * sizeof(float);
}

static size_t results_bytes(const struct op_desc *d) {
    size_t bytes = (size_t)op_rows(d) * sizeof(struct result);
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static void forward_rows(void *ctx, int64_t begin, int64_t end) {
    const struct pass *p = ctx;
    const struct op_desc *d = &p->op->desc;
    int64_t classes = shape_last(&d->x), best;
    struct result *results = p->a->scratch;
    char *tops = (char *)p->a->scratch + results_bytes(d) + (size_t)cpu_thread() * tops_bytes(d);
    for (int64_t i = begin; i < end; i++) {
        const float *x = p->a->x[0] + i * classes;
        double log_sum = kernel_softmax(classes, x, p->a->y + i * classes, (float *)tops, &best);
        if (!p->a->labels) continue;
        int32_t label = p->a->labels[i];
        results[i] = (struct result){log_sum - ((double)x[label] - (double)x[best]), best == label,
                                     p->a->top && label_in_top(x, classes, label)};
    }
}

/* A sample's loss, and its part of right answers, are means over its rows. */
static void add_up(const struct op_desc *d, const struct result *results, const struct op_args *a) {
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

static int64_t grain_of(const struct op_desc *d) {
    return (GRAIN + shape_last(&d->x) - 1) / shape_last(&d->x);
}

static enum error cross_entropy_forward(struct op *op, const struct op_args *a) {
    const struct op_desc *d = &op->desc;
    struct pass p = {op, a};
    for (int64_t i = 0; i < op_rows(d) && a->labels; i++) TRY(label_check(a->labels[i], shape_last(&d->x)));
    cpu_parallel(op->dev, op_rows(d), grain_of(d), forward_rows, &p);
    if (a->labels) add_up(d, a->scratch, a);
    return ERR_NONE;
}

static void backward_rows(void *ctx, int64_t begin, int64_t end) {
    const struct pass *p = ctx;
    const struct op_desc *d = &p->op->desc;
    int64_t classes = shape_last(&d->x);
    float by = p->a->scale / (float)(op_rows(d) / d->n);
    for (int64_t i = begin; i < end; i++) {
        const float *y = p->a->y + i * classes;
        float *dx = p->a->dx[0] + i * classes;
        int32_t label = p->a->labels[i];
        scale(classes, by, y, dx);
        dx[label] = (y[label] - 1) * by;
    }
}

static enum error cross_entropy_backward(struct op *op, const struct op_args *a) {
    struct pass p = {op, a};
    if (a->dx[0]) cpu_parallel(op->dev, op_rows(&op->desc), grain_of(&op->desc), backward_rows, &p);
    return ERR_NONE;
}

static enum error cross_entropy_create(struct device *dev, const struct op_desc *d, struct op **out) {
    TRY(op_create_plain(&cpu_cross_entropy, dev, d, out));
    (*out)->scratch_bytes = results_bytes(d) + (size_t)dev->params.threads * tops_bytes(d);
    return ERR_NONE;
}

const struct op_impl cpu_cross_entropy = {
    .name = "vector",
    .takes = op_takes_plain,
    .create = cross_entropy_create,
    .forward = cross_entropy_forward,
    .backward = cross_entropy_backward,
    .free = op_release,
};
