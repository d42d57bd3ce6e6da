/* When training ends: at a metric (train.until), when one no longer improves (train.patience), or after a length that a
 * schedule may have to know. */
#include "engine/base/text.h"
#include "engine/optim/schedule.h"
#include "engine/settings/metric.h"
#include "engine/settings/resolve.h"

#include <string.h>

#define ALSO(key, ...) "val." #key ", "
#define ALL_METRICS "there are " VAL_METRICS_LIST(ALSO) "and train.loss"

/* A metric by its name; NULL, and an error at the item, where there is none. */
static const char *read_metric(struct resolve *r, const struct node *item, const char *path) {
    const char *const *metrics = metric_names(), *found = NULL;
    int count = 0;
    for (; metrics[count]; count++)
        if (!strcmp(item->key, metrics[count])) found = metrics[count];
    if (found) return found;
    const char *near = text_nearest(item->key, metrics, count);
    config_error(r->e, item, true, "unknown metric '%s' in '%s'\n%s%s%s", item->key, path,
                 near ? "did you mean '" : ALL_METRICS, near ? near : "", near ? "'?" : "");
    return NULL;
}

static enum error read_until(struct resolve *r) {
    const struct node *until = r->c->train.until;
    if (!until) return ERR_NONE;
    if (until->kind != NODE_MAP || until->count != 1) {
        config_error(r->e, until, false,
                     "'train.until' must be one metric and its value\nas in until: {val.accuracy: 0.97}");
        return ERR_NONE;
    }
    const struct node *item = until->items[0];
    r->c->train.until_metric = read_metric(r, item, "train.until");
    if (r->c->train.until_metric && (item->kind != NODE_SCALAR || !text_real(item->text, &r->c->train.until_value)))
        config_error(r->e, item, false, "'train.until.%s' must be a number", item->key);
    else if (r->c->train.until_metric && !metric_can_be(metric_find(item->key), r->c->train.until_value))
        config_error(r->e, item, false, "'train.until.%s' is at most 1\nwrite 0.97 for 97 %%", item->key);
    return ERR_NONE;
}

/* One item of 'train.patience'. */
static void read_patience_item(struct resolve *r, const struct node *item) {
    struct train_config *t = &r->c->train;
    bool scalar = item->kind == NODE_SCALAR;
    if (!strcmp(item->key, "min_delta")) {
        if (!scalar || !text_real(item->text, &t->min_delta) || t->min_delta < 0)
            config_error(r->e, item, false, "'train.patience.min_delta' must be a number, 0 or more");
        return;
    }
    const char *metric = read_metric(r, item, "train.patience");
    if (!metric) return;
    if (t->patience_metric)
        config_error(r->e, item, true, "'train.patience' is about one metric, and has '%s' before", t->patience_metric);
    else if (!metric_is_val(metric_find(metric)))
        config_error(r->e, item, true,
                     "'train.patience' counts evaluations: it is about a metric of validation\n"
                     "as in patience: {val.loss: 5}");
    else if (!scalar || !text_int(item->text, &t->patience_most) || t->patience_most < 1)
        config_error(r->e, item, false, "'train.patience.%s' must be a number of evaluations, 1 or more", item->key);
    else
        t->patience_metric = metric;
}

static void read_patience(struct resolve *r) {
    const struct node *patience = r->c->train.patience;
    int before = config_errors_count(r->e);
    if (!patience) return;
    for (int i = 0; patience->kind == NODE_MAP && i < patience->count; i++) read_patience_item(r, patience->items[i]);
    if (!r->c->train.patience_metric && config_errors_count(r->e) == before)
        config_error(r->e, patience, false,
                     "'train.patience' must be a metric and a number of evaluations\nas in patience: {val.loss: 5}");
}

/* A time ends at a step that nobody knows beforehand. */
static void check_length(struct resolve *r) {
    const struct config_variant *schedule = &r->c->schedule;
    if (r->c->train.length.unit != SPAN_SECONDS || !schedule_needs_end(schedule)) return;
    const char *name = schedule_variants.at(schedule->index)->name;
    config_error(r->e, resolve_find(r, "schedule"), false,
                 "schedule '%s' must know the last step, which is unknown if train.for is a time (%s)\n"
                 "give it a length of its own, for example schedule: {name: %s, for: 5ep}",
                 name, resolve_place(r, resolve_find(r, "train.for")), name);
}

enum error resolve_end(struct resolve *r) {
    TRY(read_until(r));
    read_patience(r);
    check_length(r);
    return ERR_NONE;
}
