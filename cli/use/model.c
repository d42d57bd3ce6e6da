/* engine model: lists networks, prints their layers, and computes their cost. */
#include "cli/use/model.h"

#include "engine/base/file.h"
#include "engine/base/text.h"
#include "engine/model/spec.h"

#include <stdio.h>
#include <string.h>

struct model_options {
    const char *target; /* NAME or CONFIG */
    struct shape input; /* where not given, these are 0 */
    int64_t classes, batch;
    int64_t devices;  /* 0: the memory of no mode is asked for */
    const char *mode; /* NULL: of all */
    const char *gpu;  /* NULL: none */
    bool json;
    struct cli_config config;
    const struct zoo_model *zoo;
};
#define OPTIONS_STRUCT struct model_options

/* ---- list --------------------------------------------------------------------------------- */

static enum error model_list_one(const struct zoo_model *zoo, struct pool *pool) {
    struct zoo_about a;
    char input[96];
    TRY(zoo_about(zoo, pool, &a));
    printf("%-12s %s\n%12s input %s, %lld classes", zoo->name, a.about, "", shape_text(&a.input, input),
           (long long)a.classes);
    for (int i = 0; a.parameters && i < a.parameters->count; i++) {
        const struct node *p = a.parameters->items[i];
        printf("; %s: ", p->key);
        if (p->kind == NODE_SCALAR) printf("%s", p->text);
        if (p->kind == NODE_LIST) printf("[");
        for (int k = 0; k < p->count; k++) printf("%s%s", k ? ", " : "", p->items[k]->text);
        if (p->kind == NODE_LIST) printf("]");
    }
    printf("\n");
    return ERR_NONE;
}

static int model_list(const struct cli *cli) {
    int count;
    const struct zoo_model *zoo = zoo_models(&count);
    enum error err = ERR_NONE;
    for (int i = 0; i < count && err == ERR_NONE; i++) err = model_list_one(&zoo[i], cli->pool);
    return cli_end(err);
}

/* ---- the network that is meant ------------------------------------------------------------ */

static enum error model_refuse_target(const char *target) {
    const char *names[64];
    int n = 0;
    for (; cli_zoo_name(n) && n < 64; n++) names[n] = cli_zoo_name(n);
    const char *near = text_nearest(target, names, n);
    if (near) return FAIL(ERR_INPUT, "no model and no file is called '%s'\ndid you mean '%s'?", target, near);
    return FAIL(ERR_INPUT, "no model and no file is called '%s'\nengine model list shows the models", target);
}

/* A name of the zoo goes before a file of the same name. */
static enum error model_take_target(struct model_options *o, struct pool *pool) {
    o->zoo = zoo_find(o->target);
    bool is_path = strpbrk(o->target, "/.") || !strcmp(o->target, "-") || file_is_folder(o->target);
    if (!o->zoo && !is_path) return model_refuse_target(o->target);
    if (!o->zoo) {
        o->config.path = o->target;
        return ERR_NONE;
    }
    return cli_set_first(&o->config, pool_printf(pool, "model={zoo: %s}", o->target));
}

/* Input and classes: from the options, else the data of a configuration, else what the zoo says. */
static enum error model_take_shapes(const struct model_options *o, struct model_view *v) {
    struct zoo_about about;
    if (o->zoo) {
        TRY(zoo_about(o->zoo, v->settings.pool, &about));
        v->data.input = about.input, v->data.classes = about.classes;
    } else if (!o->input.ndim || !o->classes) {
        TRY(planned_shapes(&v->settings.config, &v->data));
    }
    if (o->input.ndim) v->data.input = o->input;
    if (o->classes) v->data.classes = o->classes;
    v->data.samples = o->batch;
    return ERR_NONE;
}

/* ---- show --------------------------------------------------------------------------------- */

/* A map of one key, as text. */
static const char *model_map_text(const char *key, struct node *value, struct pool *pool) {
    struct node *items[] = {value};
    struct node map = {.kind = NODE_MAP, .items = items, .count = 1};
    value->key = key;
    return tree_write(&map, false, pool);
}

static enum error model_show(const struct model_view *v, struct config_errors *e) {
    struct pool *pool = v->settings.pool;
    struct node *layers;
    const char *name, *text;
    int errors = config_errors_count(e);
    TRY(spec_expand(v->settings.config.model, v->data.classes, pool, e, &layers, &name));
    if (config_errors_count(e) > errors) return FAIL(ERR_CONFIG, "the model is not valid");
    struct node *items[] = {layers};
    struct node model = {.kind = NODE_MAP, .items = items, .count = 1};
    if (!(text = model_map_text("model", &model, pool))) return ERR_MEMORY;
    printf("# %s, %lld classes\n%s", v->title, (long long)v->data.classes, text);
    return ERR_NONE;
}

/* ---- summary ------------------------------------------------------------------------------ */

static enum error model_view_summarize(struct model_view *v, const struct model_options *o, struct config_errors *e) {
    const struct run_config *c = &v->settings.config;
    v->whole = !v->data.samples;
    v->shares = o->devices > 0 || o->mode;
    v->mode = o->mode;
    int known = 0;
    while (o->mode && cli_mode_name(known) && strcmp(cli_mode_name(known), o->mode) != 0) known++;
    if (o->mode && !cli_mode_name(known))
        return FAIL(ERR_USAGE, "no mode is called '%s'\nengine help run lists them under 'mode'", o->mode);
    if (o->devices > c->batch.shards)
        return FAIL(ERR_USAGE, "%lld devices, but the batch has %lld shards\n--set batch.shards=%lld",
                    (long long)o->devices, (long long)c->batch.shards, (long long)o->devices);
    if (o->devices) v->settings.config.devices.count = (int)o->devices;
    TRY(planned_create(c, c->devices.kind, &v->data, e, &v->network));
    v->data.samples = v->network.plan->n;
    return model_summarize(v, o->gpu, o->json);
}

/* All layers, or a summary. Everything that is wrong is printed here. */
static int model_view_print(const struct cli *cli) {
    struct model_options *o = cli->options;
    bool whole = !strcmp(cli->form->name, "show");
    struct config_errors *e;
    struct model_view v = {.title = o->target};
    enum error err = model_take_target(o, cli->pool);
    if (err != ERR_NONE) return cli_fail(err);
    err = cli_load(&o->config, &v.settings);
    int code = error_exit_code(err);
    if (err == ERR_NONE) {
        err = config_errors_create(&e);
        if (err == ERR_NONE) {
            err = model_take_shapes(o, &v);
            if (err == ERR_NONE) err = whole ? model_show(&v, e) : model_view_summarize(&v, o, e);
            char *text = config_errors_count(e) ? config_errors_text(e, v.settings.pool) : NULL;
            if (text) fputs(text, stderr);
            code = text ? error_exit_code(err) : cli_end(err);
            config_errors_free(e);
        }
    }
    planned_close(&v.network);
    run_settings_free(&v.settings);
    return code;
}

/* ---- the command -------------------------------------------------------------------------- */

// clang-format off
#define SHARED \
    {"NAME|CONFIG", NULL, "a model of the zoo, or a configuration (its data give input and classes)", \
     CONFIG_STRING, AT(target), .word = cli_zoo_name, .missing = "which model?", .one = "model"}, \
    {"--input", "SHAPE", "3x32x32; default: the input of the model or of the data", .at = AT(input), \
     .read = cli_read_shape, .wants = "channels, height and width as in 3x32x32, or a number"}, \
    {"--classes", "N", "the same", CONFIG_INT, AT(classes), 1, -1}, \
    {"--batch", "N", "samples that one device computes at once; default: as configured", \
     CONFIG_INT, AT(batch), 1, -1}, \
    OPTION_SET(config, "changes one key, as in 'engine run': model.depth=3")
// clang-format on
static const struct option show_options[] = {SHARED, {0}};
static const struct option summary_options[] = {
    SHARED,
    {"--device", "GPU", "what a step should take on it, by operations and bytes", CONFIG_STRING, AT(gpu),
     .word = model_gpu_name, .wants = "GPU"},
    {"--devices", "N", "what a device has to hold, of N that share a step, in each mode", CONFIG_INT, AT(devices), 1,
     4096},
    {"--mode", "MODE", "with --devices: in this mode alone", CONFIG_STRING, AT(mode), .word = cli_mode_name},
    OPTION_JSON("one JSON object on standard output"),
    {0}};
static const struct command forms[] = {
    {"list", "lists the zoo, with inputs and parameters", .run = model_list},
    {"show", "prints all layers of a model, as a valid configuration", OPTIONS(show_options), .run = model_view_print},
    {"summary",
     "prints shape, parameters, operations and memory of each layer, totals, and the order in which gradients become "
     "ready",
     OPTIONS(summary_options), .run = model_view_print}};

const struct command command_model = {
    .name = "model",
    .also = "models|zoo|export|onnx|summary",
    .summary = "lists networks, prints their layers, and computes their cost",
    .forms = (const struct command *const[]){forms, forms + 1, forms + 2, &model_export, NULL},
};
