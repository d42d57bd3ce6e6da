/* Stochastic gradient descent with momentum, as torch.optim.SGD with dampening 0:
 *
 *     d = g + weight_decay * w
 *     b = momentum * b + d         (b begins as zero, so the first step's b is d, as PyTorch's)
 *     w = w - lr * b               nesterov: w - lr * (d + momentum * b)
 *
 * Without momentum b is neither read nor written: w = w - lr * d. */
#include "engine/base/vector.h"
#include "engine/optim/optim.h"

struct sgd_config {
    double lr, momentum, weight_decay;
    int decay; /* enum optim_tensors */
    bool nesterov;
};

VECTORISED static void step_plain(const struct optim_span *s, float decay) {
    float *restrict w = s->w;
    const float *restrict g = s->g;
    float lr = s->lr, scale = s->scale;
    int64_t n = s->n;
    for (int64_t i = 0; i < n; i++) w[i] -= lr * (scale * g[i] + decay * w[i]);
}

VECTORISED static void step_momentum(const struct optim_span *s, float decay, float momentum) {
    float *restrict w = s->w, *restrict b = s->slot[0];
    const float *restrict g = s->g;
    float lr = s->lr, scale = s->scale;
    int64_t n = s->n;
    for (int64_t i = 0; i < n; i++) {
        b[i] = momentum * b[i] + (scale * g[i] + decay * w[i]);
        w[i] -= lr * b[i];
    }
}

VECTORISED static void step_nesterov(const struct optim_span *s, float decay, float momentum) {
    float *restrict w = s->w, *restrict b = s->slot[0];
    const float *restrict g = s->g;
    float lr = s->lr, scale = s->scale;
    int64_t n = s->n;
    for (int64_t i = 0; i < n; i++) {
        float d = scale * g[i] + decay * w[i];
        b[i] = momentum * b[i] + d;
        w[i] -= lr * (d + momentum * b[i]);
    }
}

static void sgd_step(const void *config, const struct optim_span *s) {
    const struct sgd_config *c = config;
    float decay = optim_applies(c->decay, s) ? (float)c->weight_decay : 0;
    float momentum = (float)c->momentum;
    if (c->momentum == 0)
        step_plain(s, decay);
    else if (c->nesterov)
        step_nesterov(s, decay, momentum);
    else
        step_momentum(s, decay, momentum);
}

static void sgd_rule(const void *config, const struct optim_span *s, struct rule *out) {
    const struct sgd_config *c = config;
    *out = (struct rule){.kind = RULE_SGD,
                         .number = {[SGD_DECAY] = c->weight_decay,
                                    [SGD_MOMENTUM] = c->momentum,
                                    [SGD_NESTEROV] = c->nesterov},
                         .lr = s->lr,
                         .scale = s->scale,
                         .t = s->t,
                         .decay_all = c->decay == TENSORS_ALL};
}

static double sgd_lr(const void *config) {
    return ((const struct sgd_config *)config)->lr;
}

static void sgd_check(const void *config, const struct node *at, struct config_errors *e) {
    const struct sgd_config *c = config;
    if (c->nesterov && c->momentum == 0)
        config_error(e, node_get(at, "nesterov"), true,
                     "nesterov needs a momentum\nset momentum: 0.9");
}

static const struct config_field fields[] = {
    {.key = "lr",
     .type = CONFIG_REAL,
     .offset = offsetof(struct sgd_config, lr),
     .standard = "0.05",
     .max = -1,
     .help = "Learning rate, before lr_scale and schedule"},
    {.key = "momentum",
     .type = CONFIG_REAL,
     .offset = offsetof(struct sgd_config, momentum),
     .standard = "0",
     .max = 1,
     .help = "Share of the last update that is kept; 0.9 is usual"},
    {.key = "nesterov",
     .type = CONFIG_BOOL,
     .offset = offsetof(struct sgd_config, nesterov),
     .standard = "false",
     .help = "Look one momentum step ahead"},
    {.key = "weight_decay",
     .type = CONFIG_REAL,
     .offset = offsetof(struct sgd_config, weight_decay),
     .standard = "0",
     .max = -1,
     .help = "Times the weights, added to the gradient (L2)"},
    {.key = "decay",
     .type = CONFIG_ENUM,
     .offset = offsetof(struct sgd_config, decay),
     .standard = "all",
     .choices = TENSORS_CHOICES,
     .help = DECAY_HELP},
    {.key = NULL},
};

const struct optim_ops optim_sgd = {
    .section = {.name = "sgd",
                .fields = fields,
                .size = sizeof(struct sgd_config),
                .shorthand = "lr",
                .help = "Gradient descent with momentum, as torch.optim.SGD",
                .check = sgd_check},
    .nslots = 1,
    .slot_names = {"momentum_buffer"},
    .step = sgd_step,
    .rule = sgd_rule,
    .lr = sgd_lr,
};
