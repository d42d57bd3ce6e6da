/* From a matrix to the configurations of its cells. Every cell is read as 'engine run' will read it, before anything
 * runs. What is 'auto' in all of them and decides the bits or the speed of a device (threads) is given one value, the
 * least that any of them would have taken: cells then differ in what the matrix says. */
#include "engine/base/digest.h"
#include "engine/base/file.h"
#include "engine/base/limits.h"
#include "engine/base/text.h"
#include "engine/base/version.h"
#include "lab/experiment/impl.h"
#include "lab/numbers/statistics.h"
#include "modes/modes.h"
#include "transport/algo/algo.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* ---- which cells there are ---- */

static bool cell_is_value(const struct experiment_axis *axis, int at, const struct node *of) {
    if (of->kind == NODE_SCALAR) return !strcmp(axis->label[at], of->text);
    for (int i = 0; i < of->count; i++)
        if (of->items[i]->kind == NODE_SCALAR && !strcmp(axis->label[at], of->items[i]->text)) return true;
    return false;
}

static int cell_axis_of(const struct experiment *x, const char *key) {
    for (int a = 0; a < x->naxes; a++)
        if (!strcmp(x->axis[a].key, key)) return a;
    return -1;
}

static bool cell_is_excluded(const struct experiment *x, const struct node *rule, const int *at) {
    for (int i = 0; i < rule->count; i++) {
        int a = cell_axis_of(x, rule->items[i]->key);
        if (a < 0 || !cell_is_value(&x->axis[a], at[a], rule->items[i])) return false;
    }
    return rule->count > 0;
}

/* A rule that leaves nothing out is a slip. */
static void cell_check_rule(struct experiment_reader *r, const struct node *rule) {
    const struct experiment *x = r->x;
    if (rule->kind != NODE_MAP) {
        config_error(r->e, rule, false, "'exclude' lists maps of axes and values\n[{devices: cpu:1}]");
        return;
    }
    for (int i = 0; i < rule->count; i++) {
        const struct node *item = rule->items[i];
        int a = cell_axis_of(x, item->key);
        bool any = false;
        for (int k = 0; a >= 0 && k < x->axis[a].count; k++) any |= cell_is_value(&x->axis[a], k, item);
        if (a < 0)
            config_error(r->e, item, true, "exclude: '%s' is not an axis of the matrix", item->key);
        else if (!any)
            config_error(r->e, item, false, "exclude: no such value in the matrix's '%s'", item->key);
    }
}

static bool cell_next_place(const struct experiment *x, int *at) {
    for (int a = x->naxes - 1; a >= 0; a--) { /* the first axis is the slowest */
        if (++at[a] < x->axis[a].count) return true;
        at[a] = 0;
    }
    return false;
}

static const char *cell_label_of(const struct experiment *x, const int *at) {
    const char *label = x->axis[0].label[at[0]];
    for (int a = 1; a < x->naxes && label; a++) {
        const struct experiment_axis *axis = &x->axis[a]; /* values that have names need no key */
        label = pool_printf(x->pool, "%s %s%s%s", label, axis->named ? "" : axis->key, axis->named ? "" : "=",
                            axis->label[at[a]]);
    }
    return label;
}

static enum error list_cells(struct experiment_reader *r) {
    struct experiment *x = r->x;
    const struct node *rules = r->exclude;
    int nrules = rules && rules->kind == NODE_LIST ? rules->count : 0, at[EXPERIMENT_AXES] = {0};
    if (rules && rules->kind != NODE_LIST) config_error(r->e, rules, false, "'exclude' is a list\n[{devices: cpu:1}]");
    for (int i = 0; i < nrules; i++) cell_check_rule(r, rules->items[i]);
    x->cell = pool_alloc(x->pool, EXPERIMENT_CELLS * sizeof *x->cell);
    x->pair = pool_alloc(x->pool, EXPERIMENT_PAIRS * sizeof *x->pair);
    if (!x->cell || !x->pair) return ERR_MEMORY;
    do {
        bool out = false;
        for (int i = 0; i < nrules; i++) out |= cell_is_excluded(x, rules->items[i], at);
        if (out) continue;
        if (x->ncells == EXPERIMENT_CELLS) {
            config_error(r->e, NULL, false, "more than %d cells", EXPERIMENT_CELLS);
            return ERR_NONE;
        }
        struct experiment_cell *cell = &x->cell[x->ncells++];
        memcpy(cell->at, at, sizeof at);
        if (!(cell->label = cell_label_of(x, at))) return ERR_MEMORY;
    } while (cell_next_place(x, at));
    return ERR_NONE;
}

int experiment_beside(const struct experiment *x, int cell, int side) {
    for (int i = 0; i < x->ncells; i++) {
        const int *at = x->cell[i].at, *mine = x->cell[cell].at;
        if (at[0] == side && !memcmp(at + 1, mine + 1, sizeof x->cell->at - sizeof *at)) return i;
    }
    return -1;
}

/* ---- their configurations ---- */

static enum error cell_put_text(struct experiment_reader *r, struct node *tree, const char *path, const char *text) {
    const struct node value = {.kind = NODE_SCALAR, .text = text, .source = "auto"};
    return text ? tree_put(tree, path, &value, r->x->pool, r->e) : ERR_MEMORY;
}

struct fixed { /* what a first reading of all cells has decided */
    int64_t threads;
    bool second;
};

/* Sets the batch of a cell with weak scaling: the configured size for each device. */
static enum error cell_put_batch(struct experiment_reader *r, const struct experiment_cell *cell, struct node *tree) {
    const struct run_config *c = &cell->settings.config;
    const struct node *batch = node_get(tree, "batch");
    const char *size = pool_printf(r->x->pool, "%lld", (long long)c->batch.size * c->devices.count);
    return cell_put_text(r, tree, batch && batch->kind == NODE_SCALAR ? "batch" : "batch.size", size);
}

static enum error cell_put_value(struct experiment_reader *r, struct node *tree, const struct experiment_axis *axis,
                                 const struct node *value) {
    if (!axis->named) return experiment_put(r, tree, value, axis->key);
    for (int i = 0; i < value->count; i++) TRY(experiment_put(r, tree, value->items[i], value->items[i]->key));
    return ERR_NONE;
}

/* Whether its runs stop on their way, and go on from a checkpoint that they make there. */
static bool cell_goes_on(const struct experiment_reader *r) {
    return r->search && r->search->tries && r->x->tune.search == TUNE_HALVING;
}

static enum error cell_make_tree(struct experiment_reader *r, struct experiment_cell *cell, const struct fixed *fixed,
                                 struct node **out) {
    struct experiment *x = r->x;
    struct node *tree = tree_copy(r->base, x->pool);
    if (!tree) return ERR_MEMORY;
    const struct node *tuned;
    for (int a = 0; a < x->naxes; a++) TRY(cell_put_value(r, tree, &x->axis[a], x->axis[a].value[cell->at[a]]));
    TRY(experiment_tuned_values(r, (int)(cell - x->cell), &tuned));
    for (int i = 0; tuned && i < tuned->count; i++) TRY(experiment_put(r, tree, tuned->items[i], tuned->items[i]->key));
    TRY(experiment_start_take(r, tree, &cell->start));
    *out = tree;
    if (cell->start.command) return ERR_NONE;
    if (x->nseeds) TRY(cell_put_text(r, tree, "seed", pool_printf(x->pool, "%lld", (long long)x->seeds[0])));
    if (!node_get(tree, "name")) TRY(cell_put_text(r, tree, "name", x->name));
    if (cell_goes_on(r))
        TRY(cell_put_text(r, tree, "checkpoint", "1000000000st"));
    else if (!node_get(tree, "checkpoint"))
        TRY(cell_put_text(r, tree, "checkpoint", "off"));
    if (fixed->second && x->weak) TRY(cell_put_batch(r, cell, tree));
    const struct node *threads = fixed->second ? node_get(cell->settings.tree, "threads") : NULL;
    if (threads && !strcmp(threads->source, "auto"))
        TRY(cell_put_text(r, tree, "threads", pool_printf(x->pool, "%lld", (long long)fixed->threads)));
    return ERR_NONE;
}

/* Takes the keys of a command's cell, of which the engine reads only the number of devices: 2, or cpu:2. */
static enum error cell_load_command(struct experiment_reader *r, struct experiment_cell *cell, struct node *tree) {
    const struct node *devices = node_get(tree, "devices");
    const char *text = devices && devices->kind == NODE_SCALAR ? devices->text : "1";
    const char *colon = strrchr(text, ':');
    int64_t n = 0;
    if ((devices && devices->kind != NODE_SCALAR) || !text_int(colon ? colon + 1 : text, &n) || n < 1 ||
        n > RANKS_MOST) {
        config_error(r->e, devices, false, "for a command, 'devices' is a number: 2, or cpu:2");
        return ERR_CONFIG;
    }
    cell->settings.tree = tree;
    cell->settings.given = tree_write(tree, false, r->x->pool);
    cell->settings.config.devices.kind = "cpu";
    cell->settings.config.devices.count = (int)n;
    return cell->settings.given ? ERR_NONE : ERR_MEMORY;
}

static enum error cell_load_settings(struct experiment_reader *r, struct experiment_cell *cell,
                                     const struct fixed *fixed) {
    struct node *tree;
    int n;
    const struct run_ask ask = {.modes = mode_kinds(&n), .algorithms = algo_names()};
    TRY(cell_make_tree(r, cell, fixed, &tree));
    run_settings_free(&cell->settings);
    return cell->start.command ? cell_load_command(r, cell, tree)
                               : run_settings_from(tree, &ask, &cell->settings, r->e);
}

static enum error load_cell(struct experiment_reader *r, struct experiment_cell *cell, const struct fixed *fixed) {
    struct experiment_reader mine = *r;
    TRY(config_errors_create(&mine.e));
    enum error err = cell_load_settings(&mine, cell, fixed);
    config_errors_merge(r->e, mine.e);
    config_errors_free(mine.e);
    return err;
}

static enum error load_cells(struct experiment_reader *r, const struct fixed *fixed) {
    for (int i = 0; i < r->x->ncells; i++) {
        enum error err = load_cell(r, &r->x->cell[i], fixed);
        if (err != ERR_NONE && err != ERR_CONFIG) return err;
    }
    return config_errors_count(r->e) ? ERR_CONFIG : ERR_NONE;
}

/* Runs of another build are other runs: its times may differ. */
static char *cell_build_text(struct pool *pool) {
    struct stat st = {0};
    if (stat(file_of_code(), &st) != 0) memset(&st, 0, sizeof st);
    return pool_printf(pool, ENGINE_VERSION " %lld %lld\n", (long long)st.st_size, (long long)st.st_mtime);
}

/* A command's runs are none of this build, but of the files that it names. */
static enum error cell_make_digest(const struct experiment *x, struct experiment_cell *cell) {
    const char *parts[] = {cell->start.command ? experiment_start_files(x, &cell->start) : cell_build_text(x->pool),
                           cell->start.keys->count ? tree_write(cell->start.keys, false, x->pool) : "",
                           tree_write(cell->settings.tree, false, x->pool)};
    char hex[SHA256_TEXT];
    struct sha256 s;
    sha256_init(&s);
    for (int i = 0; i < 3; i++) {
        if (!parts[i]) return ERR_MEMORY;
        sha256_update(&s, parts[i], strlen(parts[i]));
    }
    sha256_hex(s, hex);
    snprintf(cell->digest, sizeof cell->digest, "%.16s", hex);
    return ERR_NONE;
}

static enum error settle_cell(struct experiment *x, struct experiment_cell *cell) {
    TRY_MEMORY(cell->setting = pool_alloc(x->pool, RESULT_SETTINGS * sizeof *cell->setting));
    TRY(cell_make_digest(x, cell));
    cell->config = cell->settings.given;
    int n = result_flatten(cell->start.keys, x->pool, cell->setting, RESULT_SETTINGS);
    cell->nsettings = n + result_flatten(cell->settings.tree, x->pool, cell->setting + n, RESULT_SETTINGS - n);
    char *name = pool_printf(x->pool, "%.60s-%.8s", cell->label, cell->digest);
    if (!name) return ERR_MEMORY;
    cell->name = experiment_clean(name);
    return ERR_NONE;
}

/* ---- what is compared ---- */

static void cell_check_length(struct experiment_reader *r, const struct experiment_cell *cell) {
    const struct config_span *length = &cell->settings.config.train.length;
    if (r->x->tune.search == TUNE_HALVING && (cell->start.command || length->unit == SPAN_SECONDS))
        config_error(
            r->e, node_get(cell->settings.tree, "train"), false,
            "%s: halving wants the engine's own runs, of a length in epochs or steps\nset search: grid, or random",
            cell->label);
    if (!cell->start.command && length->unit == SPAN_STEPS && length->value <= (double)r->x->warmup)
        config_error(r->e, node_get(cell->settings.tree, "train"), false,
                     "%s: %.0f steps, all of them warm-up\ntrain longer, or set 'warmup'", cell->label, length->value);
}

static void check_pair(const struct experiment *x, const struct experiment_pair *p, struct config_errors *e) {
    enum { MOST = 64 };
    const struct experiment_axis *axis = &x->axis[0];
    const struct experiment_cell *a = &x->cell[p->cell[0]], *b = &x->cell[p->cell[1]];
    struct setting_difference d[MOST];
    int n = settings_differ(a, b, x->asked, d, MOST);
    for (int i = 0; i < n; i++)
        if (d[i].guarded)
            config_error(e, axis->value[b->at[0]], false,
                         "'%s' against '%s' is not a fair comparison: %s is '%s' and '%s'\nset %s in base, so that "
                         "both have the same value",
                         axis->label[a->at[0]], axis->label[b->at[0]], d[i].key, d[i].a, d[i].b, d[i].key);
}

/* Reports what is wrong with two sides once, although it is wrong in all places of the matrix. */
static enum error check_pairs(struct experiment_reader *r) {
    for (int i = 0; i < r->x->npairs; i++) {
        struct config_errors *mine;
        TRY(config_errors_create(&mine));
        check_pair(r->x, &r->x->pair[i], mine);
        config_errors_merge(r->e, mine);
        config_errors_free(mine);
    }
    return ERR_NONE;
}

int experiment_questions(const struct experiment *x) {
    return x->npairs * x->nmeasures;
}

/* Runs of one seed are copies of one training, which has no partner on the other side. */
static bool cell_has_partners(const struct experiment *x) {
    bool any = x->nseeds > 0;
    for (int m = 0; m < x->nmeasures; m++) any |= x->measure[m].about != ABOUT_TRAINING;
    return any;
}

const char *experiment_too_few(const struct experiment *x, int runs) {
    int asked = experiment_questions(x), least = statistics_least_runs(asked, true, x->confidence);
    const char *what = x->nseeds ? "seed" : "run";
    if (runs < EXPERIMENT_LEAST_RUNS || !cell_has_partners(x) || statistics_can_tell(runs, true, asked, x->confidence))
        return NULL;
    const char *enough = least ? pool_say(x->pool, " (%d would do)", least) : "";
    return pool_printf(x->pool,
                       "%d %ss are too few to compare %s by %s for %d question%s, pairs times metrics%s, so that the "
                       "sides are compared as two groups",
                       runs, what, what, what, asked, asked == 1 ? "" : "s", enough);
}

/* The fewest that can tell anything; with auto more of them where their spread asks for it. */
static void cell_choose_repeats(struct experiment_reader *r) {
    struct experiment *x = r->x;
    int tests = experiment_questions(x), least = statistics_least_runs(tests, false, x->confidence);
    if (least && least < EXPERIMENT_LEAST_RUNS) least = EXPERIMENT_LEAST_RUNS;
    x->repeats = x->most = r->given_repeats ? r->given_repeats : least;
    if (!r->given_repeats) x->most = r->given_most ? r->given_most : least > EXPERIMENT_AUTO ? least : EXPERIMENT_AUTO;
    if (r->quick) return;
    if (!least)
        config_error(r->e, NULL, false, "no number of runs up to %d can answer %d questions with this confidence",
                     STATISTICS_RUNS, tests);
    else if (x->most < least)
        config_error(r->e, r->repeats, false,
                     "%d run%s of each cell can never answer %d question%s (pairs times metrics) at %g %%\nat least %d "
                     "are needed (repeats: auto; or --quick for a first look without verdicts)",
                     x->most, x->most == 1 ? "" : "s", tests, tests == 1 ? "" : "s", x->confidence * 100, least);
}

static enum error list_pairs(struct experiment_reader *r) {
    struct experiment *x = r->x;
    for (int i = 0; i < x->ncells; i++)
        for (int side = 0; side < (x->all_pairs ? x->cell[i].at[0] : x->cell[i].at[0] > 0); side++) {
            int a = experiment_beside(x, i, side);
            if (a < 0) continue;
            if (x->npairs == EXPERIMENT_PAIRS) {
                config_error(r->e, NULL, false, "more than %d pairs", EXPERIMENT_PAIRS);
                return ERR_CONFIG;
            }
            x->pair[x->npairs++] = (struct experiment_pair){{a, i}};
        }
    return ERR_NONE;
}

char *experiment_cell_file(const struct experiment *x, int cell) {
    static const char *const added[] = {"name", "checkpoint", "threads", "seed"};
    const struct node *all = x->cell[cell].settings.tree;
    struct config_errors *e;
    struct node *root;
    const char *text = x->cell[cell].config;
    char *out = NULL;
    if (config_errors_create(&e) != ERR_NONE) return NULL;
    if (tree_parse(text, strlen(text), "config.yaml", x->pool, e, &root) == ERR_NONE) {
        for (size_t i = 0; i < sizeof added / sizeof *added; i++) {
            const struct node *at = node_get(all, added[i]);
            while (at && at->kind == NODE_MAP && at->count) at = at->items[0];
            if (at && at->source && !strcmp(at->source, "auto")) tree_drop(root, added[i]);
        }
        out = tree_write(root, false, x->pool);
    }
    config_errors_free(e);
    return out;
}

enum error experiment_expand(struct experiment_reader *r) {
    struct experiment *x = r->x;
    struct fixed fixed = {0};
    TRY(list_cells(r));
    if (config_errors_count(r->e)) return ERR_NONE;
    enum error err = load_cells(r, &fixed);
    for (int i = 0; i < x->ncells && err == ERR_NONE; i++) {
        int64_t threads = x->cell[i].settings.config.threads;
        if (!x->cell[i].start.command && (!fixed.threads || threads < fixed.threads)) fixed.threads = threads;
    }
    fixed.second = true;
    if (err == ERR_NONE) err = load_cells(r, &fixed);
    if (err != ERR_NONE) return err == ERR_CONFIG ? ERR_NONE : err;
    for (int i = 0; i < x->ncells; i++) {
        TRY(settle_cell(x, &x->cell[i]));
        cell_check_length(r, &x->cell[i]);
    }
    if (r->search && (r->search->tries || r->search->alone)) {
        x->repeats = x->most = x->nseeds ? x->nseeds : 1;
        return ERR_NONE;
    }
    if (list_pairs(r) != ERR_NONE) return ERR_NONE;
    if (x->npairs == 0)
        config_error(r->e, r->exclude, false, "the matrix has no two cells to compare");
    else
        cell_choose_repeats(r);
    return check_pairs(r);
}
