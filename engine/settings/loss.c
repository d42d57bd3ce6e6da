#include "engine/settings/loss.h"

static const struct config_field cross_entropy_fields[] = {
    {"smoothing", CONFIG_REAL, offsetof(struct loss_config, smoothing), "0",
     "The part of a target that is spread over all classes, as PyTorch's label_smoothing", .min = 0, .max = 1,
     .also = "label_smoothing"},
    {"weights", CONFIG_REALS, offsetof(struct loss_config, weights), NULL,
     "One for each class, which a sample's loss is multiplied by; balanced: samples / (classes * samples of the "
     "class). The mean is over samples, not over their weights as PyTorch's",
     .min = 0, .max = 1e6, .choices = "balanced", .word = LOSS_BALANCED, .also = "class_weight|class_weights|weight"},
    {.key = NULL},
};
static const struct config_field no_fields[] = {{.key = NULL}};

static void check_weights(const void *config, const struct node *at, struct config_errors *e) {
    const struct config_list *w = &((const struct loss_config *)config)->weights;
    const double *of = w->items;
    const struct node *node = node_get(at, "weights");
    double sum = 0;
    for (int i = 0; i < w->count; i++) {
        sum += of[i];
        if (of[i] == LOSS_BALANCED && w->count > 1)
            config_error(e, node, false, "'balanced' stands for all weights, and not in a list of them");
    }
    if (w->count > 0 && sum == 0) config_error(e, node, false, "the weights of all classes are 0");
}

static const struct config_section sections[] = {
    [LOSS_CROSS_ENTROPY] = {.name = "cross_entropy",
                            .fields = cross_entropy_fields,
                            .size = sizeof(struct loss_config),
                            .also = "crossentropyloss|crossentropy|ce|nll|nllloss|softmax|categorical_crossentropy|"
                                    "sparse_categorical_crossentropy",
                            .help =
                                "Of classes, as torch.nn.CrossEntropyLoss. Training and validation have the same loss",
                            .check = check_weights},
    [LOSS_MSE] = {.name = "mse",
                  .fields = no_fields,
                  .size = sizeof(struct loss_config),
                  .help = "Mean squared error, of values; of classes as vectors of 0 and 1",
                  .also = "mseloss|l2|mean_squared_error"},
    [LOSS_BCE] = {.name = "bce",
                  .fields = no_fields,
                  .size = sizeof(struct loss_config),
                  .help =
                      "Binary cross-entropy of logits, as torch.nn.BCEWithLogitsLoss: of vectors of values from 0 to "
                      "1; of classes as vectors of 0 and 1",
                  .also = "bcewithlogitsloss|binary_cross_entropy|bce_with_logits"},
};

static const struct config_section *section_at(int i) {
    return &sections[i];
}

const struct config_variants loss_variants = {
    .name = "name", .count = sizeof sections / sizeof sections[0], .at = section_at};

static const struct loss_config *loss_config_of(const struct config_variant *loss) {
    static const struct loss_config none;
    return loss->config ? loss->config : &none;
}

bool loss_is_plain(const struct config_variant *loss) {
    const struct loss_config *c = loss_config_of(loss);
    return loss->index == LOSS_CROSS_ENTROPY && c->smoothing == 0 && c->weights.count == 0;
}

bool loss_is_balanced(const struct config_variant *loss) {
    const struct config_list *w = &loss_config_of(loss)->weights;
    return w->count == 1 && *(const double *)w->items == LOSS_BALANCED;
}
