/* The section 'tune' of an experiment: what is tried, and that it does not clash with the comparison. */
#include "engine/base/text.h"
#include "lab/experiment/impl.h"

#include <stdio.h>
#include <string.h>

enum { FIRST_SEED = 1000000 }; /* of tuning: comparisons begin with seed 0 */

struct tune_raw {
    const char *budget;
    struct node *seeds;
    int search;
    bool widen;
};
#define AT(member) offsetof(struct tune_raw, member)
static const struct config_field fields[] = {
    {"budget", CONFIG_STRING, AT(budget), NULL, .help = "Most whole runs of each side: 16 runs"},
    {"search", CONFIG_ENUM, AT(search), "grid",
     "grid: all values; random: values drawn from the ranges; halving: the better half goes on, three times",
     .choices = "grid|random|halving"},
    {"seeds", CONFIG_NODE, AT(seeds), "1",
     .help = "Number of runs of each try, or a list of their seeds, which no run of the comparison has"},
    {"widen", CONFIG_BOOL, AT(widen), "false", .help = "Try values beyond the range where the best one is at its edge"},
    {.key = NULL},
};
static const struct config_section schema = {
    .name = "tune", .fields = fields, .size = sizeof(struct tune_raw), .help = "Each side at its best"};

/* ---- the keys ---- */

/* "log 1e-4..1e-1", or "0..0.3". */
static bool tune_read_range(const char *text, struct tune_key *out) {
    char low[32];
    int64_t whole;
    out->log = !strncmp(text, "log ", 4);
    if (out->log) text += 4 + strspn(text + 4, " ");
    const char *dots = strstr(text, "..");
    if (!dots || dots - text >= (int)sizeof low) return false;
    snprintf(low, sizeof low, "%.*s", (int)(dots - text), text);
    out->range = text_real(low, &out->low) && text_real(dots + 2, &out->high);
    out->whole = text_int(low, &whole) && text_int(dots + 2, &whole);
    return out->range && out->low < out->high && !(out->log && out->low <= 0);
}

static void tune_read_key(struct experiment_reader *r, const struct node *at) {
    struct tune *t = &r->x->tune;
    struct tune_key *k = &t->key[t->nkeys];
    if (t->nkeys == TUNE_KEYS) {
        config_error(r->e, at, true, "more than %d keys are tuned", TUNE_KEYS);
        return;
    }
    *k = (struct tune_key){.at = at};
    bool good = at->kind == NODE_SCALAR && tune_read_range(at->text, k);
    if (at->kind == NODE_LIST && at->count > 0 && at->count <= TUNE_TRIES) {
        good = true;
        for (int i = 0; i < at->count; i++) {
            good &= at->items[i]->kind == NODE_SCALAR;
            k->value[k->count++] = at->items[i]->text;
        }
    }
    if (!good)
        config_error(r->e, at, false,
                     "tune: '%s' needs a range that rises, or a list of 1 to %d plain values\n"
                     "for example %s: log 1e-4..1e-1, or [0.001, 0.01]",
                     at->key, TUNE_TRIES, at->key);
    else
        t->nkeys++;
}

/* What stands at a path, or below it, in a map whose keys may be paths themselves; NULL: nothing. */
static const struct node *tune_find(const struct node *map, const char *path) {
    size_t whole = strlen(path);
    for (int i = 0; map->kind == NODE_MAP && i < map->count; i++) {
        const char *key = map->items[i]->key;
        size_t n = strlen(key);
        if (!strncmp(key, path, whole) && (!key[whole] || key[whole] == '.')) return map->items[i];
        bool above = !strncmp(key, path, n) && path[n] == '.';
        const struct node *below = above ? tune_find(map->items[i], path + n + 1) : NULL;
        if (below) return below;
    }
    return NULL;
}

/* A value that a side or the matrix sets and one that is tuned would overrule each other. */
static void tune_check_clash(struct experiment_reader *r, const struct node *tuned) {
    const char *key = tuned->key;
    if (!strcmp(key, "seed"))
        config_error(r->e, tuned, true, "a seed is not tuned: the best one of several is luck\nset tune.seeds");
    for (int a = 0; a < r->x->naxes; a++) {
        const struct experiment_axis *axis = &r->x->axis[a];
        const struct node *at = NULL;
        for (int i = 0; i < axis->count && axis->named && !at; i++) at = tune_find(axis->value[i], key);
        if (!axis->named && !strcmp(axis->key, key)) at = axis->value[0];
        if (at)
            config_error(r->e, at, axis->named, "'%s' is tuned, so that %s cannot set it\nleave it out of one of them",
                         key, axis->named ? "a side" : "the matrix");
    }
}

/* ---- budget and seeds ---- */

static void tune_read_budget(struct experiment_reader *r, const struct node *tune, const char *text) {
    char number[16];
    int64_t n = 0;
    size_t length = text ? strcspn(text, " ") : 0;
    const char *unit = text ? text + length + strspn(text + length, " ") : "";
    snprintf(number, sizeof number, "%.*s", (int)(length < sizeof number ? length : 0), text ? text : "");
    bool good =
        text_int(number, &n) && n >= 1 && n <= 10000 && (!*unit || !strcmp(unit, "runs") || !strcmp(unit, "run"));
    if (text && !good)
        config_error(r->e, node_get(tune, "budget"), false,
                     "'budget' is a number of whole runs of each side, not '%s'\n"
                     "for example budget: 16 runs",
                     text);
    r->x->tune.budget = good ? (int)n : 0;
}

static void tune_read_seeds(struct experiment_reader *r, const struct node *at) {
    struct tune *t = &r->x->tune;
    int64_t n = 0;
    bool list = at->kind == NODE_LIST;
    int count = list ? at->count : 1;
    if (!list && at->kind == NODE_SCALAR && text_int(at->text, &n)) count = (int)(n > TUNE_SEEDS ? TUNE_SEEDS + 1 : n);
    bool good = count >= 1 && count <= TUNE_SEEDS && (list || n > 0);
    for (int i = 0; good && i < count; i++) {
        int64_t seed = FIRST_SEED + i;
        good = !list || (at->items[i]->kind == NODE_SCALAR && text_int(at->items[i]->text, &seed) && seed >= 0);
        for (int k = 0; k < t->nseeds; k++) good &= t->seeds[k] != seed;
        t->seeds[t->nseeds++] = seed;
    }
    if (!good)
        config_error(r->e, at, false, "'seeds' is a number from 1 to %d, or a list of that many different seeds",
                     TUNE_SEEDS);
    for (int i = 0; i < t->nseeds; i++)
        for (int k = 0; k < r->x->nseeds; k++)
            if (t->seeds[i] == r->x->seeds[k])
                config_error(r->e, at, false,
                             "seed %lld is one of the comparison's: what is chosen with it would be judged by it\n"
                             "leave 'seeds' out: tuning then has seeds of its own",
                             (long long)t->seeds[i]);
}

/* Whether the budget suffices for what is asked. */
static void tune_check_budget(struct experiment_reader *r, const struct node *tune) {
    const struct tune *t = &r->x->tune;
    const struct node *budget = node_get(tune, "budget");
    const char *search = tune_searches[t->search];
    bool ranges = false, random = t->search == TUNE_RANDOM;
    for (int k = 0; k < t->nkeys; k++) ranges |= t->key[k].range;
    if (t->widen && t->search != TUNE_GRID)
        config_error(r->e, node_get(tune, "widen"), false, "'widen' goes with search: grid");
    if (!budget && (ranges || random))
        config_error(r->e, tune, true,
                     "'tune' needs a budget: the most whole runs of each side\nfor example budget: 16 runs");
    else if (random ? t->budget < 2 * t->nseeds : budget && !tune_points(t))
        config_error(
            r->e, budget, false,
            "%d run%s of each side are too few for search: %s, with %d seed%s of each try: it takes all values of the "
            "lists and at least two of each range (random: two tries)\nset a larger budget, or fewer values",
            t->budget, t->budget == 1 ? "" : "s", search, t->nseeds, t->nseeds == 1 ? "" : "s");
    else if (!budget && !tune_points(t))
        config_error(r->e, tune, true,
                     "the lists of 'tune' have more than %d combinations\nset search: random and a budget", TUNE_TRIES);
}

/* ---- all ---- */

/* The values of a try, as keys of a configuration that stand where they are tuned. NULL: no memory. */
static const struct node *tune_node(struct experiment_reader *r, const struct tune_try *try) {
    const struct tune *t = &r->x->tune;
    struct node *map = pool_alloc(r->x->pool, sizeof *map);
    struct node **items = pool_alloc(r->x->pool, (size_t)t->nkeys * sizeof *items);
    struct node *item = pool_alloc(r->x->pool, (size_t)t->nkeys * sizeof *item);
    if (!map || !items || !item) return NULL;
    for (int k = 0; k < t->nkeys; k++) {
        item[k] = *t->key[k].at;
        item[k].kind = NODE_SCALAR, item[k].text = try->value[k], item[k].items = NULL, item[k].count = 0;
        items[k] = &item[k];
    }
    *map = (struct node){.kind = NODE_MAP, .source = "tune", .items = items, .count = t->nkeys};
    return map;
}

/* The tries of a search are one more axis. */
static enum error tune_add_axis(struct experiment_reader *r, const struct node *at, const struct experiment_search *s) {
    struct experiment *x = r->x;
    if (x->naxes == EXPERIMENT_AXES) {
        config_error(r->e, at, true, "with 'tune', the matrix has at most %d axes", EXPERIMENT_AXES - 1);
        return ERR_NONE;
    }
    struct experiment_axis *axis = &x->axis[x->naxes++];
    *axis = (struct experiment_axis){.key = "tune", .named = true};
    for (int i = 0; i < s->ntries; i++) {
        const struct node *value = tune_node(r, &s->tries[i]);
        if (!value) return ERR_MEMORY;
        TRY(experiment_axis_add(r, axis, value));
    }
    x->nseeds = x->tune.nseeds;
    memcpy(x->seeds, x->tune.seeds, sizeof x->tune.seeds);
    return ERR_NONE;
}

enum error experiment_tuned_values(struct experiment_reader *r, int cell, const struct node **out) {
    const struct experiment_search *s = r->search;
    *out = NULL;
    if (!r->x->tune.nkeys || (s && s->tries)) return ERR_NONE;
    const struct tuned *t = s ? s->tuned : NULL;
    *out = tune_node(r, t ? &t->tries[t->cell[cell].chosen] : &r->first);
    return *out ? ERR_NONE : ERR_MEMORY;
}

enum error experiment_tune(struct experiment_reader *r, const struct node *tune) {
    struct tune *t = &r->x->tune;
    struct tune_raw raw;
    struct node own = *tune;
    int n;
    if (tune->kind != NODE_MAP) {
        config_error(r->e, tune, false,
                     "'tune' is a map of keys\nfor example tune: {optimizer.lr: log 1e-4..1e-1, budget: 16 runs}");
        return ERR_NONE;
    }
    if (!(own.items = pool_alloc(r->x->pool, (size_t)(tune->count + 1) * sizeof *own.items))) return ERR_MEMORY;
    own.count = 0;
    for (int i = 0; i < tune->count; i++) {
        const struct config_field *f = fields;
        while (f->key && strcmp(f->key, tune->items[i]->key) != 0) f++;
        if (f->key)
            own.items[own.count++] = tune->items[i];
        else
            tune_read_key(r, tune->items[i]);
    }
    enum error err = config_read(&schema, &own, r->x->pool, r->e, &raw);
    if (err != ERR_NONE) return err == ERR_CONFIG ? ERR_NONE : err;
    t->search = raw.search, t->widen = raw.widen;
    tune_read_budget(r, tune, raw.budget);
    tune_read_seeds(r, raw.seeds);
    if (!t->nkeys)
        config_error(r->e, tune, true,
                     "'tune' names no key\nfor example tune: {optimizer.lr: log 1e-4..1e-1, budget: 16 runs}");
    if (config_errors_count(r->e)) return ERR_NONE;
    tune_check_budget(r, tune);
    for (int k = 0; k < t->nkeys; k++) tune_check_clash(r, t->key[k].at);
    for (int k = 0; k < t->nkeys; k++) experiment_ask(r, t->key[k].at, t->key[k].at->key);
    if (config_errors_count(r->e)) return ERR_NONE;
    struct tune_try first[TUNE_TRIES];
    TRY(tune_first(t, r->x->seed, r->x->pool, first, &n));
    r->first = first[0];
    r->x->tuned = r->search ? r->search->tuned : NULL;
    return r->search && r->search->tries ? tune_add_axis(r, tune, r->search) : ERR_NONE;
}
