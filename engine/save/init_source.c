#include "engine/save/init_source.h"

#include <string.h>

static void read_strict(const struct node *strict, struct config_errors *e, struct init_source *out) {
    bool scalar = strict->kind == NODE_SCALAR;
    out->strict = !scalar || strcmp(strict->text, "false") != 0;
    if (!scalar || (out->strict && strcmp(strict->text, "true") != 0))
        config_error(e, strict, false, "'model.strict' must be true or false");
}

enum error init_read(struct node *model, struct pool *pool, struct config_errors *e, struct init_source *out) {
    struct node *init = node_get(model, "init"), *strict = node_get(model, "strict");
    *out = (struct init_source){.strict = true, .at = init};
    if (strict) read_strict(strict, e, out);
    if (strict && !init)
        config_error(e, strict, true, "'model.strict' says how 'model.init' is read, which is not given");
    if (!init) return ERR_NONE;
    if (init->kind != NODE_SCALAR || !*init->text) {
        config_error(e, init, false, "'model.init' must be a path: of a .safetensors file, a checkpoint or a run");
        return ERR_NONE;
    }
    TRY(tree_path(init, "model.init", "", pool, e));
    out->path = init->text;
    return ERR_NONE;
}

const struct node *init_strip(const struct node *model, struct pool *pool) {
    if (!node_get(model, "init") && !node_get(model, "strict")) return model;
    struct node *copy = pool_alloc(pool, sizeof *copy);
    struct node **items = pool_alloc(pool, (size_t)model->count * sizeof *items);
    if (!copy || !items) return NULL;
    *copy = *model;
    copy->items = items;
    copy->count = 0;
    for (int i = 0; i < model->count; i++) {
        const char *key = model->items[i]->key;
        if (strcmp(key, "init") != 0 && strcmp(key, "strict") != 0) items[copy->count++] = model->items[i];
    }
    return copy;
}
