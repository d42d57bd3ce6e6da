/* From what a config's 'model' key says to a plain list of layers.
 *
 * A zoo file has 'about', 'parameters' with their defaults, 'input' and 'classes' (what 'engine
 * model' assumes without data), and 'layers', in which a scalar may name a parameter: "$dropout"
 * becomes the parameter's node (so that an error in a value shows where the value was given),
 * "fc$i" and "$(4 * $width)" become text. 'base: NAME' instead of layers takes those of another
 * file; the parameters are then new defaults for its own. Besides parameters there are $classes,
 * the number of outputs, and what these items of a list of layers set:
 *
 *     - each: hidden              for each value of the list, or this number of times: a parameter, $name,
 *       layers: [...]             list or number; $item is the value (0, 1, ...), $i counts 1, 2, ...
 *       as: stage                 if given, $stage and $stage_i are the same in repeats inside, too
 *     - if: $stem == cifar        a condition (expression.h)
 *       layers: [...]
 *       else: [...]               may be left out
 *     - set: {x: relu$i}          a variable, until it is set again
 *
 * After a repeat $i is one past the last, so that the next layer can go on counting. Layers given
 * in the config itself are expanded in the same way; they have no parameters. */
#include "engine/model/spec.h"

#include "engine/base/text.h"
#include "engine/model/spec_impl.h"
#include "engine/model/zoo_texts.h"

#include <string.h>

const struct zoo_model *zoo_models(int *count) {
    *count = zoo_texts_count;
    return zoo_texts;
}

/* ---- the zoo ------------------------------------------------------------------------------ */

const struct zoo_model *zoo_find(const char *name) {
    for (int i = 0; i < zoo_texts_count; i++)
        if (!strcmp(zoo_texts[i].name, name)) return &zoo_texts[i];
    return NULL;
}

static void zoo_unknown(struct scope *s, const struct node *name) {
    const char *names[NAMES_MAX];
    int n = zoo_texts_count < NAMES_MAX ? zoo_texts_count : NAMES_MAX;
    for (int i = 0; i < n; i++) names[i] = zoo_texts[i].name;
    spec_unknown(s, name, false, "model", name->text, names, n);
}

static enum error zoo_parse(const struct zoo_model *zoo, struct pool *pool, struct config_errors *e,
                            struct node **file) {
    const char *source = pool_printf(pool, "zoo:%s", zoo->name);
    return source ? tree_parse(zoo->text, strlen(zoo->text), source, pool, e, file) : ERR_MEMORY;
}

/* The files from the model's own to the base that has the layers. */
enum { BASES_MAX = 4 };
/* Parses the file of a zoo model and those that it is based on, in that order. */
static enum error zoo_chain(struct scope *s, const struct node *name, struct node *files[BASES_MAX], int *count) {
    for (*count = 0; name && *count < BASES_MAX; name = node_get(files[*count - 1], "base")) {
        const struct zoo_model *zoo = zoo_find(name->text);
        if (!zoo) {
            zoo_unknown(s, name);
            return ERR_NONE;
        }
        TRY(zoo_parse(zoo, s->pool, s->e, &files[(*count)++]));
    }
    return ERR_NONE;
}

/* Opens the chain of a zoo model's files: files[0] is the model's, and the last has the layers, whose parameters get the
 * files' defaults. What is wrong is reported. */
static enum error zoo_open(struct scope *s, const struct node *name, struct node **files, int *count) {
    static const char *const none[] = {NULL};
    int errors = config_errors_count(s->e);
    TRY(zoo_chain(s, name, files, count));
    if (config_errors_count(s->e) > errors) return ERR_NONE;
    s->parameters = node_get(files[*count - 1], "parameters");
    for (int i = *count - 2; i >= 0; i--)
        if (node_get(files[i], "parameters")) scope_give(s, node_get(files[i], "parameters"), none);
    return ERR_NONE;
}

/* Keys of 'model' that are no parameters. */
static const char *const spec_keys[] = {"zoo", "layers", "init", "strict", NULL};
/* Beside a model's own parameters. Its layers are its own. */
static const char *const zoo_keys[] = {"zoo", "init", "strict", NULL};

/* What a word may be, where the zoo file says so. */
static void check_choices(struct scope *s, const struct node *choices) {
    for (int i = 0; choices && i < choices->count; i++) {
        const struct node *c = choices->items[i], *value = scope_parameter(s, c->key);
        const char *given = value && value->text ? value->text : "";
        const char *all = "";
        bool known = false;
        for (int k = 0; k < c->count && all; k++) {
            all = pool_printf(s->pool, "%s%s%s", all, k ? ", " : "", c->items[k]->text);
            known = known || !strcmp(given, c->items[k]->text);
        }
        if (!known)
            config_error(s->e, value ? value : c, false, "'%s' must be one of %s, got \"%s\"", c->key, all ? all : "",
                         given);
    }
}

static enum error expand_zoo(struct scope *s, const struct node *name, const struct node *given, struct node *out) {
    struct node *files[BASES_MAX];
    int count, errors = config_errors_count(s->e);
    TRY(zoo_open(s, name, files, &count));
    if (config_errors_count(s->e) > errors) return ERR_NONE;
    if (given) scope_give(s, given, zoo_keys);
    check_choices(s, node_get(files[count - 1], "choices"));
    const struct node *layers = node_get(files[count - 1], "layers");
    if (!layers || config_errors_count(s->e) > errors) return ERR_NONE;
    return spec_layers(s, layers, out);
}

bool shape_read(const char *text, struct shape *out) {
    *out = (struct shape){0};
    for (const char *p = text; out->ndim < SHAPE_MAX; p++) {
        char part[16];
        size_t n = strcspn(p, "x");
        if (n >= sizeof part) return false;
        memcpy(part, p, n);
        part[n] = '\0';
        int64_t *dim = &out->dim[out->ndim++];
        if (!text_int(part, dim) || *dim < 1 || *dim > INT32_MAX) return false;
        p += n;
        if (!*p) return true;
    }
    return false;
}

/* A file's own word goes before its base's. */
static bool about_read(struct node *const *files, int count, struct zoo_about *out) {
    const struct node *about = node_get(files[0], "about"), *input = NULL, *classes = NULL;
    for (int i = count - 1; i >= 0; i--) {
        if (node_get(files[i], "input")) input = node_get(files[i], "input");
        if (node_get(files[i], "classes")) classes = node_get(files[i], "classes");
    }
    if (!about || !input || !classes) return false;
    out->about = about->text;
    return shape_read(input->text, &out->input) && text_int(classes->text, &out->classes);
}

enum error zoo_about(const struct zoo_model *zoo, struct pool *pool, struct zoo_about *out) {
    struct config_errors *e;
    struct node *files[BASES_MAX] = {NULL}, name = {.kind = NODE_SCALAR, .text = zoo->name};
    int count = 0;
    TRY(config_errors_create(&e));
    struct scope s = {.pool = pool, .e = e};
    enum error err = zoo_open(&s, &name, files, &count);
    if (err == ERR_NONE && (config_errors_count(e) || !about_read(files, count, out)))
        err = FAIL(ERR_BUG, "zoo:%s lacks about, input or classes", zoo->name);
    config_errors_free(e);
    out->parameters = s.parameters;
    return err;
}

/* ---- the spec ----------------------------------------------------------------------------- */

static enum error expand_given(struct scope *s, const struct node *spec, struct node *out) {
    for (int i = 0; i < spec->count; i++) {
        const char *key = spec->items[i]->key;
        if (strcmp(key, "layers") != 0 && strcmp(key, "init") != 0 && strcmp(key, "strict") != 0)
            spec_unknown(s, spec->items[i], true, "key", key, spec_keys, 4);
    }
    return spec_layers(s, node_get(spec, "layers"), out);
}

enum error spec_expand(const struct node *spec, int64_t classes, struct pool *pool, struct config_errors *e,
                       struct node **layers, const char **name) {
    struct node *list = pool_alloc(pool, sizeof *list);
    if (!list) return ERR_MEMORY;
    *list =
        (struct node){.kind = NODE_LIST, .key = "layers", .source = spec->source, .line = spec->line, .col = spec->col};
    struct scope s = {.pool = pool, .e = e};
    TRY(scope_set_number(&s, spec, "classes", classes));
    TRY(scope_set_number(&s, spec, "i", 1));
    const struct node *zoo = spec->kind == NODE_SCALAR ? spec : node_get(spec, "zoo");
    *name = "custom";
    *layers = list;
    if (zoo && zoo->kind == NODE_SCALAR) {
        if (!(*name = pool_strndup(pool, zoo->text, strlen(zoo->text)))) return ERR_MEMORY;
        return expand_zoo(&s, zoo, spec->kind == NODE_MAP ? spec : NULL, list);
    }
    if (node_get(spec, "layers")) return expand_given(&s, spec, list);
    config_error(e, spec, false, "a model is a name of the zoo, {zoo: NAME, ...} or {layers: [...]}");
    return ERR_NONE;
}

static bool kind_has_moments(const char *kind) {
    int count;
    const struct layer_ops *const *kinds = layer_kinds(&count);
    for (int i = 0; i < count; i++)
        if (kind && kinds[i]->moments && !strcmp(kinds[i]->section.name, kind)) return true;
    return false;
}

static bool layers_have_moments(const struct node *node) {
    if (kind_has_moments(node->key) || kind_has_moments(node->kind == NODE_SCALAR ? node->text : NULL)) return true;
    for (int i = 0; i < node->count; i++)
        if (layers_have_moments(node->items[i])) return true;
    return false;
}

enum error spec_has_moments(const struct node *spec, struct pool *pool, bool *out) {
    struct config_errors *wrong;
    struct node *layers;
    const char *name;
    *out = false;
    TRY(config_errors_create(&wrong));
    enum error err = spec_expand(spec, 10, pool, wrong, &layers, &name);
    if (err == ERR_NONE && config_errors_count(wrong) == 0) *out = layers_have_moments(layers);
    config_errors_free(wrong);
    return err == ERR_CONFIG ? ERR_NONE : err;
}
