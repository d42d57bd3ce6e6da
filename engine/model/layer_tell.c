/* The description of a layer in help, manual and docs/layers.md, in addition to its schema. */
#include "engine/model/model.h"

#include <string.h>

const struct layer_input_name layer_inputs[INPUTS] = {
    [INPUT_FEATURES] = {"features", "F"},
    [INPUT_TOKENS] = {"tokens", "T"},
    [INPUT_SEQUENCE] = {"a sequence", "T, F"},
    [INPUT_IMAGE] = {"an image", "C, H, W"},
};
const char layer_dimensions[] =
    "Shapes are of one sample: F features, T positions of a sequence, C channels, H height, W width; "
    "quotients are rounded down.";

/* ---- the example ---- */

static enum error read_example(const char *text, struct pool *pool, struct config_errors *e, struct config_list *out) {
    struct node *root;
    const char *yaml = pool_printf(pool, "layers:\n%s\n", text);
    if (!yaml) return ERR_MEMORY;
    TRY(tree_parse(yaml, strlen(yaml), "example", pool, e, &root));
    return config_read(&layers_section, root, pool, e, out);
}

enum error layer_example(const struct layer_ops *layer, struct pool *pool, struct shape *x, struct layer_plan *out) {
    struct config_errors *e;
    struct config_list list;
    TRY(config_errors_create(&e));
    enum error err = read_example(layer->example, pool, e, &list);
    config_errors_free(e);
    if (err != ERR_NONE) return err;
    const struct config_variant *item = list.items;
    *out = (struct layer_plan){0};
    if (!shape_read(layer->of, x)) return FAIL(ERR_BUG, "%s: no shape '%s'", layer->section.name, layer->of);
    return layer->plan(item->config, x, out);
}

/* "3x32x32 -> 16x32x32; weight 16x3x3x3, bias 16" */
static enum error tell_example(const struct layer_ops *layer, struct pool *pool, const char **out) {
    struct layer_plan p;
    struct shape x;
    char from[96], to[96];
    TRY(layer_example(layer, pool, &x, &p));
    *out = pool_printf(pool, "%s -> %s", shape_text(&x, from), shape_text(&p.y, to));
    for (int i = 0; i < p.nparams && *out; i++)
        *out = pool_printf(pool, "%s%s %s %s", *out, i ? "," : "; learns", p.params[i].name,
                           shape_text(&p.params[i].shape, to));
    return *out ? ERR_NONE : ERR_MEMORY;
}

/* ---- facts ---- */

static void add_fact(struct layer_fact facts[LAYER_FACTS], int *count, const char *name, const char *text) {
    if (*count < LAYER_FACTS) facts[(*count)++] = (struct layer_fact){name, text};
}

enum error layer_tell(const struct layer_ops *layer, struct pool *pool, struct layer_fact facts[LAYER_FACTS],
                      int *count) {
    const char *makes;
    *count = 0;
    for (int i = 0; i < INPUTS; i++)
        if (layer->out[i])
            add_fact(facts, count, *count ? "" : "shape",
                     pool_printf(pool, "%s (%s) -> (%s)", layer_inputs[i].words, layer_inputs[i].dims, layer->out[i]));
    TRY(tell_example(layer, pool, &makes));
    add_fact(facts, count, "formula", layer->formula);
    add_fact(facts, count, "PyTorch", config_also_text(layer->section.also, pool));
    add_fact(facts, count, "example", layer->example);
    add_fact(facts, count, "", makes);
    for (int i = 0; i < *count; i++)
        if (!facts[i].text) return ERR_MEMORY;
    return ERR_NONE;
}
