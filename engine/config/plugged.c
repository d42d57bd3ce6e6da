#include "engine/config/plugged.h"

#include "engine/base/text.h"

#include <string.h>

enum error plugged_expand(struct node *at, const char *name, struct pool *pool) {
    if (!at) return ERR_NONE;
    struct node *path = at->kind == NODE_SCALAR ? at : node_get(at, name) ? node_get(at, name) : node_get(at, "");
    if (!path || path->kind != NODE_SCALAR || !plugin_is_path(path->text)) return ERR_NONE;
    struct node like = *path;
    if (path == at) {
        at->kind = NODE_MAP, at->text = NULL, at->items = NULL, at->count = 0;
        TRY(tree_add(pool, at, "file", like.text, &like));
    } else
        path->key = "file";
    return tree_add(pool, at, name, "plugin", &like);
}

static int plugged_index(const struct engine_plugin *p, const char *name) {
    int n = plugin_parameters(p), i = 0;
    while (i < n && strcmp(p->parameters[i].name, name) != 0) i++;
    return i < n ? i : -1;
}

static enum error plugged_refuse(const struct plugin *p, const char *name) {
    const char *names[ENGINE_PARAMETERS];
    int n = plugin_parameters(p->of);
    for (int i = 0; i < n; i++) names[i] = p->of->parameters[i].name;
    const char *near = text_nearest(name, names, n);
    if (!n) near = NULL;
    return FAIL(ERR_CONFIG, "plug-in '%s' has no parameter '%.64s'%s%s%s", p->path, name,
                near ? "\ndid you mean '" : "\nengine check lists those that it has", near ? near : "",
                near ? "'?" : "");
}

static enum error plugged_set(const struct plugin *p, const struct node *item, double value[ENGINE_PARAMETERS]) {
    int i = plugged_index(p->of, item->key);
    if (i < 0) return plugged_refuse(p, item->key);
    if (item->kind == NODE_SCALAR && text_real(item->text, &value[i])) return ERR_NONE;
    return FAIL(ERR_CONFIG, "plug-in '%s': parameter '%s' must be a number", p->path, item->key);
}

enum error plugged_open(const struct plugged_config *c, enum plugin_kind kind, const struct plugin **out,
                        double value[ENGINE_PARAMETERS]) {
    TRY(plugin_open(c->file, kind, c->sha256, out));
    for (int i = 0; i < plugin_parameters((*out)->of); i++) value[i] = (*out)->of->parameters[i].standard;
    if (c->with && c->with->kind != NODE_MAP)
        return FAIL(ERR_CONFIG, "'with' is a map of parameters\nwith: {keep: 0.9}");
    for (int i = 0; c->with && i < c->with->count; i++) TRY(plugged_set(*out, c->with->items[i], value));
    return ERR_NONE;
}
