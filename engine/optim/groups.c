#include "engine/optim/groups.h"

#include "engine/base/text.h"

#include <stdio.h>
#include <string.h>

/* ---- patterns ---- */

/* After a mismatch the last '*' takes one character more; an earlier one never has to. */
bool optim_pattern_matches(const char *pattern, const char *name) {
    const char *star = NULL, *from = NULL;
    while (*name) {
        if (*pattern == '*')
            star = pattern++, from = name;
        else if (*pattern && (*pattern == '?' || *pattern == *name))
            pattern++, name++;
        else if (star)
            pattern = star + 1, name = ++from;
        else
            return false;
    }
    while (*pattern == '*') pattern++;
    return !*pattern;
}

static enum error read_patterns(const char *key, const struct node *node, struct pool *pool, struct config_errors *e,
                                struct optim_patterns *out) {
    bool list = node->kind == NODE_LIST;
    int count = list ? node->count : 1;
    TRY_MEMORY(out->of = pool_alloc(pool, ((size_t)count + 1) * sizeof *out->of));
    for (int i = 0; i < count; i++) {
        const struct node *item = list ? node->items[i] : node;
        if (item->kind == NODE_SCALAR && *item->text)
            out->of[out->count++] = (struct optim_pattern){item->text, item};
        else
            config_error(e, item, false,
                         "'%s' must be names of tensors, in which '*' is any text, or a list of such\n"
                         "as in %s: [\"conv1.*\", \"*.bias\"]",
                         key, key);
    }
    return ERR_NONE;
}

/* ---- groups ---- */

static const struct config_field *find_field(const struct optim_ops *ops, const char *key) {
    for (const struct config_field *f = ops->section.fields; f->key; f++)
        if (!strcmp(f->key, key)) return f;
    return NULL;
}

/* The group's keys, then those of the optimizer that it does not give. */
static struct node *keys_merge(const struct optim_ops *ops, const struct node *own, const struct node *group,
                               struct pool *pool) {
    struct node *map = pool_alloc(pool, sizeof *map);
    struct node **items = pool_alloc(pool, (size_t)(own->count + group->count + 1) * sizeof *items);
    if (!map || !items) return NULL;
    *map = *group;
    map->items = items, map->count = 0;
    for (int i = 0; i < group->count; i++)
        if (strcmp(group->items[i]->key, "match") != 0) items[map->count++] = group->items[i];
    for (int i = 0; i < own->count; i++)
        if (find_field(ops, own->items[i]->key) && !node_get(group, own->items[i]->key))
            items[map->count++] = own->items[i];
    return map;
}

/* Keys of the section 'optimizer' that are no optimizer's own. */
static bool check_keys(const struct node *group, struct config_errors *e) {
    static const char *const common[] = {"name", "clip", "shard", "groups", "freeze"};
    bool right = true;
    for (int i = 0; i < group->count; i++)
        for (size_t k = 0; k < sizeof common / sizeof *common; k++)
            if (!strcmp(group->items[i]->key, common[k])) {
                config_error(e, group->items[i], true, "'%s' is of all weights, and of no group's\nset optimizer.%s",
                             common[k], common[k]);
                right = false;
            }
    return right;
}

static enum error read_group(const struct config_variant *optimizer, const struct node *node, struct pool *pool,
                             struct config_errors *e, struct optim_group *out) {
    const struct optim_ops *ops = optim_of(optimizer);
    const struct node *match = node_get(node, "match");
    if (!match) {
        config_error(e, node, false,
                     "a group of 'optimizer.groups' must say which tensors it is of, and what is theirs\n"
                     "as in {match: \"*.bias\", weight_decay: 0}");
        return ERR_NONE;
    }
    TRY(read_patterns("match", match, pool, e, &out->match));
    if (!check_keys(node, e)) return ERR_NONE;
    struct node *map = keys_merge(ops, optimizer->node, node, pool);
    void *config = pool_alloc(pool, ops->section.size);
    if (!map || !config) return ERR_MEMORY;
    out->config = config;
    TRY(config_read(&ops->section, map, pool, e, config));
    if (ops->variant && ops->variant(config) != ops->variant(optimizer->config))
        config_error(e, node, false,
                     "all groups step by one formula of %s, and this one's keys would be another's\n"
                     "momentum is 0 in all groups or in none, and nesterov and amsgrad are the same in all",
                     ops->section.name);
    return ERR_NONE;
}

static enum error read_groups(const struct config_variant *optimizer, const struct node *groups, struct pool *pool,
                              struct config_errors *e, struct optim_groups *out) {
    if (groups->kind != NODE_LIST) {
        config_error(
            e, groups, false,
            "'optimizer.groups' must be a list of groups\nas in groups: [{match: \"*.bias\", weight_decay: 0}]");
        return ERR_NONE;
    }
    if (groups->count >= OPTIM_GROUPS) {
        config_error(e, groups, false, "'optimizer.groups' are %d; there can be %d", groups->count, OPTIM_GROUPS - 1);
        return ERR_NONE;
    }
    for (int i = 0; i < groups->count; i++) {
        enum error err = read_group(optimizer, groups->items[i], pool, e, &out->of[out->count++]);
        if (err != ERR_NONE && err != ERR_CONFIG) return err;
    }
    return ERR_NONE;
}

enum error optim_groups_read(const struct config_variant *optimizer, const struct node *groups,
                             const struct node *freeze, struct pool *pool, struct config_errors *e,
                             struct optim_groups *out) {
    *out = (struct optim_groups){.count = 1, .of = {{.config = optimizer->config}}};
    if (freeze) TRY(read_patterns("optimizer.freeze", freeze, pool, e, &out->frozen));
    return groups ? read_groups(optimizer, groups, pool, e, out) : ERR_NONE;
}

/* ---- tensors ---- */

enum { NAME_MOST = 200, SHOWN = 6 };

/* "layer1.0.conv1" for "layer1.0.conv1.weight" and "layer1.0.conv1.*": a slip is rarely in the last word. */
static void layer_of(const char *name, char out[NAME_MOST]) {
    const char *dot = strrchr(name, '.');
    snprintf(out, NAME_MOST, "%.*s", dot ? (int)(dot - name) : (int)strlen(name), name);
}

static const char *tensor_nearest(const char *pattern, const char *const *names, int n) {
    char layer[NAME_MOST], of[NAME_MOST];
    const char *near = text_nearest(pattern, names, n);
    layer_of(pattern, layer);
    for (int i = 0; i < n && !near; i++) {
        const char *other = of;
        layer_of(names[i], of);
        if (text_nearest(layer, &other, 1)) near = names[i];
    }
    return near;
}

static void pattern_refuse(const struct optim_pattern *p, const char *const *names, int n, struct config_errors *e) {
    char list[SHOWN * NAME_MOST] = "";
    int at = 0;
    const char *near = tensor_nearest(p->text, names, n);
    for (int i = 0; i < n && i < SHOWN && !near; i++)
        at += snprintf(list + at, NAME_MOST, "%s%.180s", i ? ", " : "", names[i]);
    config_error(e, p->at, false, "no tensor of the model is named '%.80s'\n%s%.200s%s%s", p->text,
                 near ? "did you mean '" : "there are ", near ? near : list, near ? "'?" : "",
                 !near && n > SHOWN ? ", ...: engine model summary lists them" : "");
}

/* Gives 'mark' to what is unmarked and matches; a pattern of which there is no tensor is refused. */
static void tensors_mark(const struct optim_patterns *p, const char *const *names, int n, int value, int *marks,
                         struct config_errors *e) {
    for (int k = 0; k < p->count; k++) {
        bool any = false;
        for (int i = 0; i < n; i++) {
            if (!optim_pattern_matches(p->of[k].text, names[i])) continue;
            any = true;
            if (!marks[i]) marks[i] = value;
        }
        if (!any) pattern_refuse(&p->of[k], names, n, e);
    }
}

void optim_groups_match(const struct optim_groups *g, const char *const *names, int n, int *group, int *frozen,
                        struct config_errors *e) {
    int left = n;
    memset(group, 0, (size_t)n * sizeof *group);
    memset(frozen, 0, (size_t)n * sizeof *frozen);
    for (int k = 1; k < g->count; k++) tensors_mark(&g->of[k].match, names, n, k, group, e);
    tensors_mark(&g->frozen, names, n, 1, frozen, e);
    for (int i = 0; i < n; i++) left -= frozen[i];
    if (!left && n)
        config_error(e, g->frozen.of[0].at, false, "'optimizer.freeze' leaves nothing to train: it names all tensors");
}
