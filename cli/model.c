/* engine model: the networks that there are, their layers, and what they cost. */
#include "cli/model.h"

#include "engine/base/text.h"
#include "engine/model/spec.h"

#include <stdio.h>
#include <string.h>

extern const struct command command_model;

struct options {
    const char *what, *target; /* list, show, summary; NAME or CONFIG */
    const char *input, *classes, *batch;
    bool json;
    struct cli_config config;
    char named[128]; /* model={zoo: NAME} */
    const struct zoo_model *zoo;
};

/* ---- list --------------------------------------------------------------------------------- */

static enum error list_one(const struct zoo_model *zoo, struct pool *pool) {
    struct zoo_about a;
    char input[96];
    TRY(zoo_about(zoo, pool, &a));
    printf("%-12s %s\n%12s input %s, %lld classes", zoo->name, a.about, "",
           shape_text(&a.input, input), (long long)a.classes);
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

static enum error list(struct pool *pool) {
    int count;
    const struct zoo_model *zoo = zoo_models(&count);
    for (int i = 0; i < count; i++) TRY(list_one(&zoo[i], pool));
    return ERR_NONE;
}

/* ---- the network that is meant ------------------------------------------------------------ */

static const struct zoo_model *zoo_named(const char *name) {
    int count;
    const struct zoo_model *zoo = zoo_models(&count);
    for (int i = 0; i < count; i++)
        if (!strcmp(zoo[i].name, name)) return &zoo[i];
    return NULL;
}

static enum error refuse_target(const char *target) {
    const char *names[64];
    int count, n = 0;
    const struct zoo_model *zoo = zoo_models(&count);
    for (; n < count && n < 64; n++) names[n] = zoo[n].name;
    const char *near = text_nearest(target, names, n);
    if (near)
        return FAIL(ERR_INPUT, "no model and no file is called '%s'\ndid you mean '%s'?", target,
                    near);
    return FAIL(ERR_INPUT,
                "no model and no file is called '%s'\nengine model list shows the models", target);
}

/* A name of the zoo goes before a file of the same name. */
static enum error take_target(struct options *o) {
    o->zoo = zoo_named(o->target);
    if (!o->zoo && !strpbrk(o->target, "/.") && strcmp(o->target, "-") != 0)
        return refuse_target(o->target);
    if (!o->zoo) {
        o->config.path = o->target;
        return ERR_NONE;
    }
    snprintf(o->named, sizeof o->named, "model={zoo: %s}", o->target);
    memmove(o->config.sets + 1, o->config.sets, (CLI_SETS - 1) * sizeof *o->config.sets);
    o->config.sets[0] = o->named; /* before the --set that change it */
    o->config.nsets++;
    return ERR_NONE;
}

/* Input and classes: from the options, else the data of a configuration, else what the zoo says. */
static enum error take_shapes(const struct options *o, struct model_view *v) {
    const struct data_config *data = &v->settings.config.data;
    struct dataset *d;
    struct zoo_about about;
    if (o->zoo) {
        TRY(zoo_about(o->zoo, v->settings.pool, &about));
        v->input = about.input, v->classes = about.classes;
    } else if (!o->input || !o->classes) {
        TRY(dataset_open(data, true, (uint64_t)v->settings.config.seed, &d));
        v->input = d->shape, v->classes = d->classes ? d->classes : d->targets;
        dataset_close(d);
    }
    if (o->input && !shape_read(o->input, &v->input))
        return FAIL(ERR_USAGE,
                    "--input is channels, height and width as in 3x32x32, or a number, "
                    "not '%s'",
                    o->input);
    if (o->classes && (!text_int(o->classes, &v->classes) || v->classes < 1))
        return FAIL(ERR_USAGE, "--classes must be a number from 1 on, not '%s'", o->classes);
    const struct batch_config *b = &v->settings.config.batch;
    v->samples = b->size / b->shards / b->accumulate;
    if (o->batch && (!text_int(o->batch, &v->samples) || v->samples < 1))
        return FAIL(ERR_USAGE, "--batch must be a number from 1 on, not '%s'", o->batch);
    return ERR_NONE;
}

/* ---- show --------------------------------------------------------------------------------- */

/* A map of one key, as text. */
static const char *map_text(const char *key, struct node *value, struct pool *pool) {
    struct node *items[] = {value};
    struct node map = {.kind = NODE_MAP, .items = items, .count = 1};
    value->key = key;
    return tree_write(&map, false, pool);
}

static enum error show(const struct model_view *v, struct config_errors *e) {
    struct pool *pool = v->settings.pool;
    struct node *layers;
    const char *name, *text;
    int errors = config_errors_count(e);
    TRY(spec_expand(v->settings.config.model, v->classes, pool, e, &layers, &name));
    if (config_errors_count(e) > errors) return FAIL(ERR_CONFIG, "the model is not valid");
    struct node *items[] = {layers};
    struct node model = {.kind = NODE_MAP, .items = items, .count = 1};
    if (!(text = map_text("model", &model, pool))) return ERR_MEMORY;
    printf("# %s, %lld classes\n%s", v->title, (long long)v->classes, text);
    return ERR_NONE;
}

/* ---- summary ------------------------------------------------------------------------------ */

static enum error summarize(struct model_view *v, bool json, struct config_errors *e) {
    const struct run_config *c = &v->settings.config;
    struct device_params p = {.count = 1,
                              .threads = (int)c->threads,
                              .no_winograd = !c->winograd,
                              .unit = c->devices.unit[0]};
    TRY(model_create(c->model, &v->input, v->classes, e, &v->model));
    TRY(device_find(c->devices.kind)->open(&p, &v->device));
    TRY(plan_create(v->model, v->device, (enum loss)c->loss, (enum precision)c->precision,
                    v->samples, &v->plan));
    return model_summarize(v, json);
}

static void view_close(struct model_view *v) {
    plan_free(v->plan);
    if (v->device) v->device->ops->close(v->device);
    model_free(v->model);
    run_settings_free(&v->settings);
}

static enum error view_use(const struct options *o, struct model_view *v, struct config_errors *e) {
    TRY(take_shapes(o, v));
    return strcmp(o->what, "show") ? summarize(v, o->json, e) : show(v, e);
}

/* Everything that is wrong is printed here. */
static int view(struct options *o) {
    struct config_errors *e;
    struct model_view v = {.title = o->target};
    enum error err = take_target(o);
    if (err != ERR_NONE) return cli_fail(err);
    err = cli_load(&o->config, &v.settings);
    int code = error_exit_code(err);
    if (err == ERR_NONE) {
        err = config_errors_create(&e);
        if (err == ERR_NONE) {
            err = view_use(o, &v, e);
            char *text = config_errors_count(e) ? config_errors_text(e, v.settings.pool) : NULL;
            if (text) fputs(text, stderr);
            code = text ? error_exit_code(err) : err == ERR_NONE ? 0 : cli_fail(err);
            config_errors_free(e);
        }
    }
    view_close(&v);
    return code;
}

/* ---- arguments ---------------------------------------------------------------------------- */

static int take_option(struct options *o, const char *name, const char *value) {
    const char **to = !strcmp(name, "--input")     ? &o->input
                      : !strcmp(name, "--classes") ? &o->classes
                      : !strcmp(name, "--batch")   ? &o->batch
                                                   : NULL;
    if (!to && strcmp(name, "--set") != 0)
        return cli_usage(&command_model, "unknown option '%s'", name);
    if (!value) return cli_usage(&command_model, "%s needs a value", name);
    if (to)
        *to = value;
    else if (o->config.nsets + 1 == CLI_SETS || cli_set(&o->config, value) != ERR_NONE)
        return cli_usage(&command_model, "too many --set options");
    return 0;
}

static int parse(int argc, char **argv, struct options *o) {
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--json")) {
            o->json = true;
        } else if (argv[i][0] == '-' && argv[i][1]) {
            int code = take_option(o, argv[i], i + 1 < argc ? argv[i + 1] : NULL);
            if (code) return code;
            i++;
        } else if (!o->what) {
            o->what = argv[i];
        } else if (!o->target) {
            o->target = argv[i];
        } else {
            return cli_usage(&command_model, "one model at a time, got '%s' and '%s'", o->target,
                             argv[i]);
        }
    }
    return 0;
}

static int model_run(int argc, char **argv) {
    struct options o = {0};
    struct pool *pool;
    int code = parse(argc, argv, &o);
    if (code) return code;
    if (!o.what) return cli_usage(&command_model, "list, show or summary?");
    bool lists = !strcmp(o.what, "list");
    if (!lists && strcmp(o.what, "show") != 0 && strcmp(o.what, "summary") != 0)
        return cli_usage(&command_model, "list, show or summary, not '%s'", o.what);
    if (!lists && !o.target) return cli_usage(&command_model, "which model?");
    if (o.json && strcmp(o.what, "summary") != 0)
        return cli_usage(&command_model, "--json is for summary");
    if (!lists) return view(&o);
    if (argc > 2) return cli_usage(&command_model, "list takes nothing more");
    enum error err = pool_create(&pool);
    if (err == ERR_NONE) {
        err = list(pool);
        pool_free(pool);
    }
    return err == ERR_NONE ? 0 : cli_fail(err);
}

const struct command command_model = {
    .name = "model",
    .arguments = "list | show NAME|CONFIG | summary NAME|CONFIG [OPTION VALUE]... [--json]",
    .summary = "the networks that there are, their layers, and what they cost",
    .help =
        "  list             the zoo, with inputs and parameters\n"
        "  show             all layers of one, as a configuration that can be run\n"
        "  summary          for each layer shape, parameters, operations, memory; totals; and the\n"
        "                   order in which gradients become ready\n"
        "  NAME|CONFIG      a model of the zoo, or a configuration (its data says input and "
        "classes)\n"
        "  --input SHAPE    3x32x32; --classes N; default: what the model or the data has\n"
        "  --batch N        samples that one device computes at once; default: the "
        "configuration's\n"
        "  --set KEY=VALUE  changes one key, as in 'engine run': model.depth=3\n"
        "  --json           one JSON object on standard output\n",
    .run = model_run,
};
