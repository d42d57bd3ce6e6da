/* What 'loss' asks of the data: classes, weights for them. */
#include "engine/settings/loss.h"
#include "engine/settings/run_config.h"
#include "engine/tell/tell.h"
#include "engine/train/internal.h"

#include <stdio.h>

/* The set's counts become those of its training samples, in 'room', unless a checkpoint had them. */
static enum error weights_balance(struct trainer *t, int64_t *room, float *weights) {
    struct dataset *d = t->feed.data;
    int64_t all = 0;
    if (!d->counts && t->job->known)
        return FAIL(ERR_DATA, "the checkpoint does not tell how many samples of each class it was trained on, which "
                              "'loss.weights: balanced' needs");
    if (!d->counts) {
        TRY(dataset_counts(d, room));
        d->counts = room;
    }
    for (int64_t k = 0; k < d->classes; k++) all += d->counts[k];
    for (int64_t k = 0; k < d->classes; k++)
        weights[k] = d->counts[k] ? (float)((double)all / ((double)d->classes * (double)d->counts[k])) : 0;
    return ERR_NONE;
}

static enum error weights_open(struct trainer *t, const struct config_list *given) {
    const struct dataset *d = t->feed.data;
    bool balanced = loss_is_balanced(&t->config->loss);
    if (!balanced && given->count != d->classes)
        return FAIL(ERR_CONFIG, "loss.weights has %d weights, but data '%s' has %lld classes", given->count, d->name,
                    (long long)d->classes);
    int64_t *counts = memory_new((size_t)d->classes * (sizeof *counts + sizeof(float)));
    if (!counts) return ERR_MEMORY;
    float *weights = t->feed.class_weights = (float *)(counts + d->classes);
    t->feed.class_memory = counts;
    for (int64_t k = 0; k < d->classes && !balanced; k++) weights[k] = (float)((const double *)given->items)[k];
    return balanced ? weights_balance(t, counts, weights) : ERR_NONE;
}

enum error criterion_open(struct trainer *t) {
    const struct config_variant *loss = &t->config->loss;
    const struct loss_config *c = loss->config;
    if (loss->index != LOSS_CROSS_ENTROPY) return ERR_NONE;
    if (!t->feed.data->classes)
        return FAIL(ERR_CONFIG, "data '%s' has no classes, which loss cross_entropy needs\nuse 'loss: mse'",
                    t->feed.data->name);
    return c->weights.count ? weights_open(t, &c->weights) : ERR_NONE;
}

enum error criterion_give(struct trainer *t) {
    const struct loss_config *c = t->config->loss.config;
    return graph_soften(t->graph, (float)c->smoothing, t->feed.class_weights);
}

static bool is_name_alone(const struct trainer *t) {
    const struct config_variant *loss = &t->config->loss;
    return loss->index != LOSS_CROSS_ENTROPY || loss_is_plain(loss);
}

void criterion_tell(const struct trainer *t, struct summary *s) {
    const struct loss_config *c = t->config->loss.config;
    if (is_name_alone(t)) return;
    s->loss = loss_variants.at(t->config->loss.index)->name;
    s->smoothing = c->smoothing;
    s->class_weights = t->feed.class_weights;
    s->classes = t->feed.data->classes;
}

void criterion_show(const struct trainer *t, struct progress *p) {
    enum { SHOWN = 10, EACH = 16 };
    const struct loss_config *c = t->config->loss.config;
    const float *weights = t->feed.class_weights;
    int64_t classes = t->feed.data->classes;
    char text[SHOWN * EACH + 8] = "";
    int used = 0;
    if (is_name_alone(t)) return;
    for (int64_t k = 0; weights && k < classes && k < SHOWN; k++)
        used += snprintf(text + used, EACH, " %.5g", (double)weights[k]);
    if (weights && classes > SHOWN) snprintf(text + used, 8, " ...");
    progress_say(p, "loss %s, smoothing %g%s%s", loss_variants.at(t->config->loss.index)->name, c->smoothing,
                 weights ? ", weights of the classes" : "", text);
}
