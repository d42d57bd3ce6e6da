/* LARS (You, Gitman, Ginsburg 2017, arXiv:1708.03888): momentum whose learning rate is scaled for
 * each tensor by how large its weights are beside its gradient, so that large batches can take
 * large steps:
 *
 *     trust_ratio = trust * |w| / (|g| + weight_decay * |w|)      1 where |w| or |g| is 0
 *     b = momentum * b + lr * trust_ratio * (g + weight_decay * w)
 *     w = w - b
 *
 * The learning rate stands inside the momentum, as in the paper's algorithm 1. Biases and norms
 * (tensors of one dimension) neither adapt nor decay, unless 'adapt' and 'decay' say so. */
#include "engine/base/vector.h"
#include "engine/optim/optim.h"

struct lars_config {
    double lr, momentum, weight_decay, trust;
    int decay, adapt; /* enum optim_tensors */
};
enum { NORM_W, NORM_G, NORMS };

VECTORISED static void lars_loop(const struct optim_span *s, float lr, float decay,
                                 float momentum) {
    float *restrict w = s->w, *restrict b = s->slot[0];
    const float *restrict g = s->g;
    float scale = s->scale;
    int64_t n = s->n;
    for (int64_t i = 0; i < n; i++) {
        b[i] = momentum * b[i] + lr * (scale * g[i] + decay * w[i]);
        w[i] -= b[i];
    }
}

static void lars_measure(const void *config, const struct optim_span *s, double *square) {
    const struct lars_config *c = config;
    if (!optim_applies(c->adapt, s)) return;
    square[NORM_W] = squares_sum(s->w, s->n);
    square[NORM_G] = squares_sum(s->g, s->n);
}

static void lars_step(const void *config, const struct optim_span *s) {
    const struct lars_config *c = config;
    double decay = optim_applies(c->decay, s) ? c->weight_decay : 0, ratio = 1;
    double w = s->norm[NORM_W], g = s->norm[NORM_G] * (double)s->scale;
    if (optim_applies(c->adapt, s) && w > 0 && g > 0) ratio = c->trust * w / (g + decay * w);
    lars_loop(s, (float)(s->lr * ratio), (float)decay, (float)c->momentum);
}

static void lars_rule(const void *config, const struct optim_span *s, struct rule *out) {
    const struct lars_config *c = config;
    *out = (struct rule){.kind = RULE_LARS,
                         .number = {[LARS_DECAY] = c->weight_decay,
                                    [LARS_MOMENTUM] = c->momentum,
                                    [LARS_TRUST] = c->trust},
                         .lr = s->lr,
                         .scale = s->scale,
                         .t = s->t,
                         .decay_all = c->decay == TENSORS_ALL,
                         .adapt_all = c->adapt == TENSORS_ALL};
}

static double lars_lr(const void *config) {
    return ((const struct lars_config *)config)->lr;
}

static const struct config_field fields[] = {
    {.key = "lr",
     .type = CONFIG_REAL,
     .offset = offsetof(struct lars_config, lr),
     .standard = "1",
     .max = -1,
     .help = "Learning rate, before trust, lr_scale and schedule"},
    {.key = "momentum",
     .type = CONFIG_REAL,
     .offset = offsetof(struct lars_config, momentum),
     .standard = "0.9",
     .max = 1,
     .help = "Share of the last update that is kept"},
    {.key = "weight_decay",
     .type = CONFIG_REAL,
     .offset = offsetof(struct lars_config, weight_decay),
     .standard = "5e-4",
     .max = -1,
     .help = "Times the weights, added to the gradient"},
    {.key = "decay",
     .type = CONFIG_ENUM,
     .offset = offsetof(struct lars_config, decay),
     .standard = "matrices",
     .choices = TENSORS_CHOICES,
     .help = DECAY_HELP},
    {.key = "trust",
     .type = CONFIG_REAL,
     .offset = offsetof(struct lars_config, trust),
     .standard = "1e-3",
     .min = 1e-12,
     .max = 1e12,
     .help = "How far a tensor may move in a step, as a share of its own size"},
    {.key = "adapt",
     .type = CONFIG_ENUM,
     .offset = offsetof(struct lars_config, adapt),
     .standard = "matrices",
     .choices = TENSORS_CHOICES,
     .help = ADAPT_HELP},
    {.key = NULL},
};

const struct optim_ops optim_lars = {
    .section = {.name = "lars",
                .fields = fields,
                .size = sizeof(struct lars_config),
                .shorthand = "lr",
                .help = "Momentum with a learning rate for each tensor (arXiv:1708.03888), for "
                        "large batches"},
    .nslots = 1,
    .slot_names = {"momentum_buffer"},
    .nnorms = NORMS,
    .measure = lars_measure,
    .step = lars_step,
    .rule = lars_rule,
    .lr = lars_lr,
    .adaptive = true,
};
