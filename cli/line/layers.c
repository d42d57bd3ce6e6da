/* The layers of a network, as 'engine help conv2d' describes them: all from the layers' own tables (engine/model/layer.h). */
#include "cli/line/cli.h"
#include "engine/model/layer.h"

#include <stdio.h>
#include <string.h>

const char *layers_word(int i) {
    int n;
    const struct layer_ops *const *kinds = layer_kinds(&n);
    return i == 0 ? "layers" : i <= n ? kinds[i - 1]->section.name : NULL;
}

/* The section without its sentence, which is printed apart. */
static struct config_section layers_keys_alone(const struct config_section *s) {
    struct config_section keys = *s;
    keys.help = NULL;
    return keys;
}

/* ---- help ---- */

static enum error layers_print_list(struct pool *pool) {
    const struct config_section common = layers_keys_alone(&layer_common_section);
    enum { NAME = 12 };
    int n;
    const struct layer_ops *const *kinds = layer_kinds(&n);
    const char *keys = config_help(&common, "", pool);
    if (!keys) return ERR_MEMORY;
    help_wrap("The layers of model: {layers: [flatten, {linear: 10}]}. Each takes the output of the layer before it, "
              "or of the layer that its 'from' names:",
              0, 0);
    printf("\n");
    for (int i = 0; i < n; i++) {
        printf("  %-*s ", NAME, kinds[i]->section.name);
        help_wrap(kinds[i]->section.help, NAME + 3, NAME + 3);
    }
    printf("\nevery layer takes, too:\n");
    help_keys(keys);
    printf("\nhint: engine help conv2d\n");
    return ERR_NONE;
}

static enum error print_layer(const struct layer_ops *layer, struct pool *pool) {
    const struct config_section own = layers_keys_alone(&layer->section);
    struct layer_fact facts[LAYER_FACTS];
    int count, n = (int)strlen(own.name) + 2;
    enum { NAME = 8 };
    TRY(layer_tell(layer, pool, facts, &count));
    const char *keys = config_help(&own, "", pool);
    if (!keys) return ERR_MEMORY;
    printf("%s: ", own.name);
    help_wrap(layer->section.help, n, n);
    printf("\n");
    for (int i = 0; i < count; i++) {
        printf("  %-*s ", NAME, facts[i].name);
        help_wrap(facts[i].text, NAME + 3, NAME + 3);
    }
    printf("\n");
    help_wrap(layer_dimensions, 0, 0);
    printf("\n");
    help_keys(keys);
    int at = own.shorthand ? printf("a bare value is its '%s';", own.shorthand) : 0;
    help_wrap("every layer also takes name, from and params: engine help layers", at, 0);
    return ERR_NONE;
}

/* The topic without the prefix, if it begins with it. */
static const char *layers_prefix_skip(const char *topic, const char *prefix) {
    size_t n = strlen(prefix);
    return strncmp(topic, prefix, n) ? topic : topic + n;
}

enum error layers_help(const char *topic, struct pool *pool, bool *found) {
    const char *rest = layers_prefix_skip(topic, "model.");
    *found = true;
    if (!strcmp(rest, "layers")) return layers_print_list(pool);
    rest = layers_prefix_skip(rest, "layers.");
    const char *dot = strchr(rest, '.'), *name = pool_strndup(pool, rest, strcspn(rest, "."));
    const struct layer_ops *layer = name ? layer_find(name) : NULL;
    if (!layer) dot = NULL, layer = layer_find(rest); /* nn.Conv2d */
    *found = layer != NULL;
    if (!layer) return ERR_NONE;
    if (!dot) return print_layer(layer, pool);
    const char *text = config_help(&layer->section, dot + 1, pool);
    if (!text) return ERR_USAGE;
    help_keys(text);
    return ERR_NONE;
}

enum error layers_parameter(const char *name, struct pool *pool, bool *found) {
    struct config_place place;
    int n;
    const struct layer_ops *const *kinds = layer_kinds(&n);
    for (int i = 0; i < n; i++) {
        const struct config_section *s = &kinds[i]->section;
        if (!config_find(s, &(struct config_sought){name, .by_name = true, .yaml = true}, pool, &place)) continue;
        const char *text = config_help(s, place.path, pool);
        if (!text) return ERR_USAGE;
        printf("%sof the layer %s:\n", *found ? "\n" : "", s->name);
        help_keys(text);
        *found = true;
    }
    return ERR_NONE;
}
