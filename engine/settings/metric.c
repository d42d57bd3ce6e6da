#include "engine/settings/metric.h"

#include "engine/data/dataset.h"
#include "engine/settings/loss.h"

#include <string.h>

typedef const struct config_variant loss_variant;

/* What each metric needs of the data and the loss: words for what is missing, or NULL. */
static const char *lacks_nothing(const struct dataset *data, loss_variant *loss) {
    (void)data, (void)loss;
    return NULL;
}

static const char *lacks_classes(const struct dataset *data, loss_variant *loss) {
    (void)loss;
    return data->classes ? NULL : "the data has no classes";
}

static const char *lacks_top5(const struct dataset *data, loss_variant *loss) {
    (void)loss;
    return data->classes > LOSS_TOP ? NULL : "the data has no more than 5 classes";
}

static const char *lacks_balance(const struct dataset *data, loss_variant *loss) {
    if (!data->classes) return lacks_classes(data, loss);
    return data->labels == 1 ? NULL : "the data has a label at each position";
}

static const char *lacks_perplexity(const struct dataset *data, loss_variant *loss) {
    if (data->labels < 2) return "the data has no label at each position";
    return loss_is_plain(loss) ? NULL : "the loss is not cross_entropy without smoothing and weights";
}

static const char *lacks_bytes(const struct dataset *data, loss_variant *loss) {
    char text[8];
    const char *why = lacks_perplexity(data, loss);
    if (why) return why;
    return dataset_decode(data, 0, text) > 0 ? NULL : "the text of a token is not known";
}

static const char *lacks_values(const struct dataset *data, loss_variant *loss) {
    if (data->classes) return "the data has classes, not values";
    if (loss->index != LOSS_MSE) return "the loss is not mse";
    return data->targets <= METRIC_TARGETS ? NULL : "a sample has more than 100 values to predict";
}

const struct metric metric_table[VAL_METRICS + 1] = {
#define X(key, ...) {"val." #key, #key, __VA_ARGS__},
    VAL_METRICS_LIST(X)
#undef X
        [VAL_METRICS] = {"train.loss", "train_loss", "training loss", false, false, lacks_nothing}};

const struct metric *metric_find(const char *name) {
    for (int i = 0; i <= VAL_METRICS; i++)
        if (!strcmp(metric_table[i].name, name)) return &metric_table[i];
    return NULL;
}

const char *const *metric_names(void) {
#define X(key, ...) "val." #key,
    static const char *const names[VAL_METRICS + 2] = {VAL_METRICS_LIST(X) "train.loss"};
#undef X
    return names;
}

void val_result_clear(struct val_result *v) {
    for (int i = 0; i < VAL_METRICS; i++) v->of[i] = (double)NAN;
    v->samples = 0;
}
