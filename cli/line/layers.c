/* The layers of a network, as 'engine help conv2d', the manual and docs/layers.md tell them: all from the layers' own
 * tables (engine/model/layer.h). */
#include "cli/line/cli.h"
#include "engine/model/layer.h"

#include <stdio.h>
#include <string.h>

const char *layers_word(int i) {
    int n;
    const struct layer_ops *const *kinds = layer_kinds(&n);
    return i == 0 ? "layers" : i <= n ? kinds[i - 1]->section.name : NULL;
}

/* The section without its sentence, which is told otherwise. */
static struct config_section keys_alone(const struct config_section *s) {
    struct config_section keys = *s;
    keys.help = NULL;
    return keys;
}

/* ---- help ---- */

static enum error print_list(struct pool *pool) {
    const struct config_section common = keys_alone(&layer_common_section);
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
    const struct config_section own = keys_alone(&layer->section);
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

/* What follows the prefix, where the topic has it; else the topic. */
static const char *without(const char *topic, const char *prefix) {
    size_t n = strlen(prefix);
    return strncmp(topic, prefix, n) ? topic : topic + n;
}

enum error layers_help(const char *topic, struct pool *pool, bool *told) {
    const char *rest = without(topic, "model.");
    *told = true;
    if (!strcmp(rest, "layers")) return print_list(pool);
    rest = without(rest, "layers.");
    const char *dot = strchr(rest, '.'), *name = pool_strndup(pool, rest, strcspn(rest, "."));
    const struct layer_ops *layer = name ? layer_find(name) : NULL;
    if (!layer) dot = NULL, layer = layer_find(rest); /* nn.Conv2d */
    *told = layer != NULL;
    if (!layer) return ERR_NONE;
    if (!dot) return print_layer(layer, pool);
    const char *text = config_help(&layer->section, dot + 1, pool);
    if (!text) return ERR_USAGE;
    help_keys(text);
    return ERR_NONE;
}

enum error layers_parameter(const char *name, struct pool *pool, bool *told) {
    struct config_place place;
    int n;
    const struct layer_ops *const *kinds = layer_kinds(&n);
    for (int i = 0; i < n; i++) {
        const struct config_section *s = &kinds[i]->section;
        if (!config_find(s, name, true, true, NULL, pool, &place)) continue;
        const char *text = config_help(s, place.path, pool);
        if (!text) return ERR_USAGE;
        printf("%sof the layer %s:\n", *told ? "\n" : "", s->name);
        help_keys(text);
        *told = true;
    }
    return ERR_NONE;
}

/* ---- docs/layers.md ---- */

static void key_line(void *user, const struct config_key *key) {
    const char *standard = key->field->standard;
    fprintf(user, "| `%s` | %s | %s%s%s | %s%s%s%s |\n", key->path, key->kind, standard ? "`" : "",
            standard ? standard : "", standard ? "`" : "", key->help, key->also ? " (in other tools: " : "",
            key->also ? key->also : "", key->also ? ")" : "");
}

static enum error keys_table(const struct config_section *s, struct pool *pool, FILE *out) {
    if (!s->fields->key) return ERR_NONE;
    fputs("\n| parameter | takes | default | |\n|---|---|---|---|\n", out);
    return config_walk(s, pool, key_line, out);
}

static enum error layer_chapter(const struct layer_ops *layer, struct pool *pool, FILE *out) {
    struct layer_fact facts[LAYER_FACTS];
    int count;
    TRY(layer_tell(layer, pool, facts, &count));
    fprintf(out, "\n## %s\n\n%s.\n\n| | |\n|---|---|\n", layer->section.name, layer->section.help);
    for (int i = 0; i < count; i++) fprintf(out, "| %s | `%s` |\n", facts[i].name, facts[i].text);
    return keys_table(&layer->section, pool, out);
}

enum error layers_markdown(struct pool *pool, FILE *out) {
    int n;
    const struct layer_ops *const *kinds = layer_kinds(&n);
    fprintf(out,
            "# Every layer\n\n%s A bare value is the first parameter's: `linear: 10` is `linear: {units: 10}`.\n\n",
            layer_dimensions);
    fputs("| layer | PyTorch | |\n|---|---|---|\n", out);
    for (int i = 0; i < n; i++) {
        const struct config_section *s = &kinds[i]->section;
        const char *torch = config_also_text(s->also, pool);
        fprintf(out, "| [%s](#%s) | `%s` | %s |\n", s->name, s->name, torch ? torch : "", s->help);
    }
    fputs("\nEvery layer takes these, too:\n", out);
    TRY(keys_table(&layer_common_section, pool, out));
    for (int i = 0; i < n; i++) TRY(layer_chapter(kinds[i], pool, out));
    return ERR_NONE;
}
