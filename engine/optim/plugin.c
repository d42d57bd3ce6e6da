#include "engine/optim/plugin.h"

#include "engine/base/rule.h"

#include <pthread.h>
#include <string.h>

struct plugin_config {
    double lr;
    struct plugged_config plugged;
    double value[ENGINE_PARAMETERS]; /* by optim_plugin_open */
};
struct plugin_numbers { /* in the place of a formula's */
    struct engine_step step;
};
_Static_assert(sizeof(struct plugin_numbers) <= RULE_NUMBERS * sizeof(float), "a rule has room for them");

static const struct plugin *guest; /* a process has one optimizer */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void plugin_loop(const float *number, const struct rule_span *s) {
    struct plugin_numbers k;
    memcpy(&k, number, sizeof k);
    plugin_enter(guest, "an optimizer's step");
    guest->of->optimizer->step(&k.step, s->w, s->g, s->slot[0], s->slot[1], s->n);
    plugin_leave();
}

static void plugin_numbers(const void *config, const struct optim_step *s, bool matrix, void *numbers) {
    const struct plugin_config *c = config;
    const struct plugin_numbers k = {
        {.parameter = c->value, .lr = s->lr, .scale = s->scale, .matrix = matrix, .t = s->t}};
    memcpy(numbers, &k, sizeof k);
}

static const struct formula formulas[] = {{"plugin_step", plugin_loop}};
static const struct config_field fields[] = {
    OPTIM_REAL(plugin_config, lr, "0.01", "Learning rate, before lr_scale and schedule", .max = -1),
    PLUGGED_FIELDS(plugin_config),
    {.key = NULL},
};
const struct optim_ops optim_plugin = {
    .section = {.name = "plugin",
                .fields = fields,
                .size = sizeof(struct plugin_config),
                .shorthand = "file",
                .help = "An optimizer of your own: optimizer: {name: ./mine.so, lr: 0.01}"},
    .nslots = 2,
    .slot_names = {"m", "v"},
    .formulas = formulas,
    .numbers = plugin_numbers,
};

struct plugged_config *optim_plugged(const struct config_variant *optimizer) {
    struct plugin_config *c = optimizer->config;
    return c && optim_of(optimizer) == &optim_plugin ? &c->plugged : NULL;
}

const char *optim_identity(const struct config_variant *optimizer, struct pool *pool) {
    const struct plugged_config *c = optim_plugged(optimizer);
    const struct optim_ops *ops = optim_of(optimizer);
    if (!c && ops->slots && optim_slots(optimizer) == ops->nslots)
        return pool_printf(pool, "%s with %s", ops->section.name, ops->slot_names[ops->nslots - 1]);
    if (!c) return ops->section.name;
    return pool_printf(pool, "plugin with sha256 %s", c->sha256 ? c->sha256 : "unknown");
}

static enum error plugin_open_groups(const struct optim_groups *g, const char *file) {
    for (int i = 0; i < g->count; i++) {
        struct plugin_config *c = (struct plugin_config *)(uintptr_t)g->of[i].config;
        if (strcmp(c->plugged.file, file) != 0)
            return FAIL(ERR_CONFIG, "a group of 'optimizer.groups' names another plug-in, '%s'\nall groups step by one",
                        c->plugged.file);
        TRY(plugged_open(&c->plugged, PLUGIN_OPTIMIZER, &guest, c->value));
    }
    return ERR_NONE;
}

enum error optim_plugin_open(const struct optim_groups *g, const struct config_variant *optimizer) {
    const struct plugged_config *c = optim_plugged(optimizer);
    if (!c) return ERR_NONE;
    pthread_mutex_lock(&lock);
    enum error err = plugin_open_groups(g, c->file);
    pthread_mutex_unlock(&lock);
    return err;
}
