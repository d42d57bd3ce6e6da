/* From files and --set to a run's configuration. Before the schema reads the tree, short forms that
 * it does not know are written out; after it, what is 'auto' is decided and combinations are
 * checked (run_resolve.c). */
#include "engine/settings/run_config.h"

#include "engine/base/file.h"
#include "engine/base/text.h"
#include "engine/data/find.h"
#include "engine/settings/compress.h"
#include "engine/settings/loss.h"
#include "engine/settings/run_resolve.h"
#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* ---- short forms ---- */

static struct node *scalar_get(const struct node *map, const char *key) {
    struct node *node = node_get(map, key);
    return node && node->kind == NODE_SCALAR ? node : NULL;
}

/* {linear: 256} is {rule: linear, base: 256}. */
static enum error expand_lr_scale(struct run_settings *s) {
    struct node *map = node_get(s->tree, "lr_scale");
    static const char *const rules[] = {"linear", "sqrt"};
    for (int i = 0; i < 2; i++) {
        struct node *base = scalar_get(map, rules[i]);
        if (!base || node_get(map, "rule") || node_get(map, "base")) continue;
        base->key = "base";
        return tree_add(s->pool, map, "rule", rules[i], base);
    }
    return ERR_NONE;
}

/* {hidden: [64]} are parameters of the standard model. */
static enum error expand_model(struct run_settings *s) {
    struct node *model = node_get(s->tree, "model"), place = {.source = "default"};
    if (!model || model->kind != NODE_MAP) return ERR_NONE;
    if (node_get(model, "zoo") || node_get(model, "layers") || node_get(model, "")) return ERR_NONE;
    return tree_add(s->pool, model, "zoo", RUN_MODEL_STANDARD, &place);
}

/* The set of this name; NULL: there is none. */
static const struct dataset_ops *settings_set_named(const char *text) {
    int count;
    const struct dataset_ops *const *kinds = dataset_kinds(&count);
    for (int i = 0; i < count; i++)
        if (!strcmp(kinds[i]->section.name, text)) return kinds[i];
    return NULL;
}

/* Whether the text is no name of a set (that of a set of files may be a folder's, too), and then which file or folder it means; lost: that is in another place, which has
 * been reported. */
static enum error settings_find_path(struct run_settings *s, struct node *at, struct config_errors *e, bool *found,
                                     bool *lost) {
    double number;
    int before = config_errors_count(e);
    *found = *lost = false;
    const struct dataset_ops *named = strcmp(at->key, "train") ? settings_set_named(at->text) : NULL;
    if (!*at->text || (named && !named->recognises) || text_real(at->text, &number)) return ERR_NONE;
    struct node path = *at;
    TRY(tree_path(&path, "data", "", s->pool, e));
    *lost = config_errors_count(e) > before;
    *found = *lost || strpbrk(at->text, "/.") || file_exists(path.text);
    if (*found) *at = path;
    return ERR_NONE;
}

/* Which set the path is of, and its files; a kind of -1, reported, when it is none's. */
static enum error settings_recognise(const struct node *path, struct pool *pool, struct config_errors *e,
                                     struct data_files *out) {
    *out = (struct data_files){.kind = -1};
    if (!file_exists(path->text)) {
        config_error(e, path, false, "data: no file or folder '%.200s'\nnothing is ever downloaded", path->text);
        return ERR_NONE;
    }
    enum error err = data_find(path->text, pool, out);
    if (err == ERR_MEMORY) return err;
    if (err != ERR_NONE) config_error(e, path, false, "data: %s\n%s", error_message(), error_hint());
    return ERR_NONE;
}

/* 'data: PATH' and {train: PATH} are {set: the one that recognises it, train: PATH}. */
static enum error expand_data(struct run_settings *s, struct config_errors *e) {
    struct node *data = node_get(s->tree, "data");
    if (!data || node_get(data, dataset_variants.name)) return ERR_NONE;
    struct node *bare = data->kind == NODE_SCALAR ? data : scalar_get(data, "");
    struct node *train = scalar_get(data, "train"), *path = train ? train : bare;
    bool found = false, lost = false;
    if (path) TRY(settings_find_path(s, path, e, &found, &lost));
    if (!found) return ERR_NONE;
    struct data_files files = {.kind = -1};
    if (!lost) TRY(settings_recognise(path, s->pool, e, &files));
    if (files.kind >= 0) path->text = files.train;
    struct node place = *path, none = {.source = "auto"};
    if (files.kind < 0 || path == data) /* an unknown set's keys are unknown, too: only the path is reported */
        data->kind = NODE_MAP, data->text = NULL, data->items = NULL, data->count = 0;
    if (files.kind < 0) return ERR_NONE;
    if (path == data)
        TRY(tree_add(s->pool, data, "train", place.text, &place));
    else if (path == bare)
        bare->key = "train";
    else if (bare) /* --set data.train takes the place of 'data: PATH', which tree_set put first */
        data->items++, data->count--;
    if (files.val && !node_get(data, "val")) TRY(tree_add(s->pool, data, "val", files.val, &none));
    return tree_add(s->pool, data, dataset_variants.name, dataset_variants.at(files.kind)->name, &none);
}

size_t run_name_character(const char *c) {
    const unsigned char *p = (const unsigned char *)c;
    size_t n = text_utf8(c, strlen(c));
    bool control = n == 2 && p[0] == 0xC2 && p[1] <= 0xA0; /* U+0080 to U+00A0 */
    bool punctuation = n == 3 && p[0] == 0xE2 && (p[1] == 0x80 || (p[1] == 0x81 && p[2] <= 0xAF));
    if (n == 1) return isalnum(*p) || strchr("._-", *c);
    return control || punctuation ? 0 : n;
}

/* The run's name: the file's, of characters that can stand in a folder's name. */
static enum error settings_add_name(struct run_settings *s, const char *path) {
    if (node_get(s->tree, "name")) return ERR_NONE;
    const char *base = path && strcmp(path, "-") ? file_last_part(path) : "run";
    const char *dot = strrchr(base, '.');
    size_t n = dot && dot > base ? (size_t)(dot - base) : strlen(base);
    char *name = pool_strndup(s->pool, base, n < RUN_NAME_MAX ? n : RUN_NAME_MAX);
    if (!name) return ERR_MEMORY;
    for (size_t at = 0, step; name[at]; at += step) {
        step = run_name_character(name + at);
        if (!step && n > RUN_NAME_MAX && !text_utf8(name + at, strlen(name + at)))
            name[at] = '\0'; /* the cut went through a character */
        else if (!step)
            name[at] = '-', step = 1;
    }
    if (*name == '.' || *name == '-' || !*name) name = pool_printf(s->pool, "run%s", name);
    struct node like = {.source = "auto"};
    return name ? tree_add(s->pool, s->tree, "name", name, &like) : ERR_MEMORY;
}

/* ---- loading ---- */

/* Keys of a file that a trained network's answers do not depend on, and which may not fit the device that is asked: how it
 * was trained, and (ASKS_HERE) where, and what went wrong on purpose. */
static const char *const of_training[] = {"train",          "optimizer",    "schedule",   "lr_scale", "ema",
                                          "sync_batchnorm", "recompute",    "ddp",        "eval",     "checkpoint",
                                          "comm.compress",  "run.restarts", "run.elastic"};
static const char *const of_place[] = {"mode", "devices", "threads",  "batch", "deterministic", "cuda",  "dp",
                                       "ps",   "fsdp",    "pipeline", "comm",  "run",           "inject"};

static void settings_drop_unasked(struct node *tree, enum asks asks) {
    for (size_t i = 0; asks && i < sizeof of_training / sizeof *of_training; i++) tree_drop(tree, of_training[i]);
    for (size_t i = 0; asks == ASKS_HERE && i < sizeof of_place / sizeof *of_place; i++) tree_drop(tree, of_place[i]);
}

static enum error settings_read_tree(const struct run_ask *ask, struct run_settings *s, struct config_errors *e) {
    TRY_MEMORY(s->given = pool_strndup(s->pool, "", 0));
    if (ask->path) {
        enum error err = tree_text(ask->path, s->pool, &s->given, &s->given_length);
        if (err == ERR_DATA) { /* a folder, a pipe, too large: no configuration */
            config_error(e, NULL, false, "%s\n%s", error_message(), error_hint());
            err = ERR_CONFIG;
        }
        TRY(err);
    }
    const char *source = ask->path ? ask->path : "default";
    enum error err = tree_parse(s->given, s->given_length, source, s->pool, e, &s->tree);
    if (err == ERR_CONFIG && s->tree->count == 0) return err; /* nothing could be read: nothing more to say */
    TRY(config_go_on(err));
    settings_drop_unasked(s->tree, ask->asks);
    for (int i = 0; i < ask->nsets; i++) TRY(config_go_on(tree_set(s->tree, ask->sets[i], s->pool, e)));
    return ERR_NONE;
}

/* Links may be described in a file of their own. */
static enum error expand_links(struct run_settings *s, struct config_errors *e) {
    return tree_from_file(node_get(node_get(s->tree, "comm"), "emulate"), "comm.emulate", s->pool, e);
}

/* Settles the settings whose tree has been read: expands it, reads its values and checks them. */
static enum error settings_settle(const struct run_ask *ask, struct run_settings *s, struct config_errors *e) {
    TRY(settings_add_name(s, ask->path));
    TRY(expand_model(s));
    TRY(expand_lr_scale(s));
    TRY(plugged_expand(node_get(node_get(s->tree, "comm"), "compress"), compress_variants.name, s->pool));
    TRY(plugged_expand(node_get(s->tree, "optimizer"), optim_variants.name, s->pool));
    TRY(expand_links(s, e));
    TRY(expand_data(s, e));
    TRY(config_go_on(config_read(&run_schema, s->tree, s->pool, e, &s->config)));
    struct data_config *data = &s->config.data;
    if (data->set.common_config) { /* the keys that all sets share are read beside the set's own */
        struct config_variant set = data->set;
        *data = *(const struct data_config *)set.common_config;
        data->set = set;
    }
    data->values = s->config.loss.index == LOSS_MSE;
    data->fractions = s->config.loss.index == LOSS_BCE;
    if (s->config.model) {
        TRY(config_go_on(model_check(s->config.model, e)));
        TRY(init_read(s->config.model, s->pool, e, &s->config.init));
    }
    struct optimizer_config *o = &s->config.optimizer;
    if (!config_errors_count(e)) TRY(optim_groups_read(&o->kind, o->groups_node, o->freeze, s->pool, e, &o->groups));
    if (ask->launched) s->config.launched = *ask->launched;
    s->config.asks = ask->asks != ASKS_NOTHING;
    TRY(run_resolve(s, ask, e));
    return config_errors_count(e) ? ERR_CONFIG : ERR_NONE;
}

static bool node_was_read_as(const struct node *given, const struct node *read) {
    return read->text == given->text || (read->given && read->given == given->text);
}

/* A path is in the given text what it is in the tree: that text is read elsewhere. */
static void node_take_path(struct node *given, const struct node *read) {
    for (int i = 0; read && read->kind == NODE_MAP && i < read->count; i++)
        if (read->items[i]->kind == NODE_SCALAR) node_take_path(given, read->items[i]);
    if (read && read->given && read->given == given->text) given->text = read->text;
}

/* What a map's shorthand said is held under "" (tree_set): gets the key that it was read as, by the text that both share;
 * it is gone where that key was given as well. */
static void name_held(struct node *given, const struct node *read) {
    int kept = 0;
    for (int i = 0; i < given->count; i++) {
        struct node *child = given->items[i];
        bool held = given->kind == NODE_MAP && !*child->key;
        for (int k = 0; held && read && k < read->count; k++)
            if (node_was_read_as(child, read->items[k])) child->key = read->items[k]->key;
        if (given->kind == NODE_MAP && child->kind == NODE_SCALAR && read) {
            node_take_path(child, node_get(read, child->key));
            node_take_path(child, read); /* of a plug-in: as the key 'file' */
        }
        if (!held && given->kind == NODE_MAP) name_held(child, read ? node_get(read, child->key) : NULL);
        if (given->kind != NODE_MAP || *child->key) given->items[kept++] = child;
    }
    given->count = kept;
}

enum error run_settings_from(struct node *tree, const struct run_ask *ask, struct run_settings *out,
                             struct config_errors *e) {
    memset(out, 0, sizeof *out);
    TRY(pool_create(&out->pool));
    out->tree = tree;
    TRY(expand_links(out, e)); /* which are then in 'given' */
    struct node *given = tree_copy(tree, out->pool);
    if (!given) return ERR_MEMORY;
    enum error err = settings_settle(ask, out, e);
    if (err == ERR_NONE) name_held(given, tree);
    TRY_MEMORY(out->given = tree_write(given, false, out->pool));
    out->given_length = strlen(out->given);
    return err;
}

static void settings_write_report(struct run_settings *s, const struct config_errors *e, enum error err,
                                  char **report) {
    if (err == ERR_CONFIG) {
        *report = config_errors_text(e, s->pool);
        if (*report) (void)FAIL(ERR_CONFIG, "%.*s", (int)strcspn(*report, "\n"), *report);
    } else {
        const char *hint = error_hint();
        *report = pool_printf(s->pool, "error: %s\n%s%s%s", error_message(), *hint ? "      hint: " : "", hint,
                              *hint ? "\n" : "");
    }
}

enum error run_settings_load(const struct run_ask *ask, struct run_settings *out, char **report) {
    struct config_errors *e = NULL;
    memset(out, 0, sizeof *out);
    *report = NULL;
    TRY(pool_create(&out->pool));
    TRY(config_errors_create(&e));
    enum error err = settings_read_tree(ask, out, e);
    if (err == ERR_NONE) err = settings_settle(ask, out, e);
    if (err) settings_write_report(out, e, err, report);
    config_errors_free(e);
    return err;
}

void run_settings_free(struct run_settings *s) {
    pool_free(s->pool);
    memset(s, 0, sizeof *s);
}
