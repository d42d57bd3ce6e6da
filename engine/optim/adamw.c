/* AdamW, as torch.optim.AdamW: Adam whose weight decay bypasses the moments, w = w * (1 - lr *
 * weight_decay) first. */
#include "engine/optim/adam.h"

static void adamw_step(const void *config, const struct optim_span *s) {
    const struct adam_config *c = config;
    adam_update(c, s, 0, (float)(1 - s->lr * c->weight_decay));
}

static void adamw_rule(const void *config, const struct optim_span *s, struct rule *out) {
    const struct adam_config *c = config;
    adam_rule_of(c, s, 0, (float)(1 - s->lr * c->weight_decay), out);
}

static const struct config_field fields[] = {
    ADAM_FIELDS("1e-3", "1e-8", "0.01",
                "Times the learning rate, taken off the weights at every step", "all"),
};

const struct optim_ops optim_adamw = {
    .section = {.name = "adamw",
                .fields = fields,
                .size = sizeof(struct adam_config),
                .shorthand = "lr",
                .help = "Adam with weight decay of its own, as torch.optim.AdamW",
                .check = adam_check},
    .nslots = 2,
    .slot_names = {"exp_avg", "exp_avg_sq"},
    .step = adamw_step,
    .rule = adamw_rule,
    .lr = adam_lr,
    .adaptive = true,
};
