/* engine bench layers: where a training step's computing goes, op by op as they run: after fusion,
 * in their layouts, by the implementation that was chosen. Data is random; nothing is learned. */
#include "cli/bench/layers.h"

#include "cli/line/load.h"
#include "engine/base/clock.h"
#include "engine/base/rng.h"
#include "engine/device/runtime.h"
#include "engine/settings/run_config.h"
#include "lab/numbers/statistics.h"
#include "lab/predict/planned.h"

struct bench_layers_options {
    struct cli_config config;
    const char *model;
    struct shape input; /* where not given, these are 0 */
    int64_t classes, batch, threads;
    double seconds;
    bool json;
};
#define OPTIONS_STRUCT struct bench_layers_options

/* ---- the network ---- */

struct net {
    struct run_settings settings;
    struct config_errors *errors;
    struct model *m;
    struct device *dev;
    struct graph *g;
    struct graph_batch batch;
    struct segments segments; /* of its samples */
    float *values, *grads, *buffers, *x, *target;
    int32_t *labels;
    uint64_t *ids;
    struct shape input;
    int64_t classes, threads; /* classes 0: targets are vectors */
    bool reported;            /* what is wrong has been printed */
};

static enum error net_take(struct net *b, int64_t n, size_t size, void *out) {
    void *p;
    size_t bytes;
    TRY(memory_size((size_t)n, size, "the benchmark", &bytes));
    if (!(p = pool_alloc(b->settings.pool, bytes + ALIGNMENT))) return ERR_MEMORY;
    *(void **)out = (void *)(((uintptr_t)p + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
    return ERR_NONE;
}

/* Input and classes of a network of the zoo are its own, of any other MNIST's. */
static enum error net_usual_input(struct net *b) {
    const struct node *spec = b->settings.config.model, *name = node_get(spec, "zoo");
    const char *asked = name ? name->text : spec->text;
    const struct zoo_model *zoo = asked ? zoo_find(asked) : NULL;
    struct zoo_about about;
    b->input = (struct shape){.ndim = 3, .dim = {1, 28, 28}};
    b->classes = 10;
    if (!zoo) return ERR_NONE;
    TRY(zoo_about(zoo, b->settings.pool, &about));
    b->input = about.input;
    b->classes = about.classes;
    return ERR_NONE;
}

/* Input and classes: what the options say, or the configuration's data. */
static enum error net_find_input(struct net *b, const struct bench_layers_options *o, int64_t *outputs) {
    const struct run_config *c = &b->settings.config;
    struct dataset *d;
    if (!o->config.path && (o->model || o->input.ndim || o->classes)) {
        TRY(net_usual_input(b));
        if (o->input.ndim) b->input = o->input;
        if (o->classes) b->classes = o->classes;
        *outputs = b->classes;
        return ERR_NONE;
    }
    TRY(dataset_open(&c->data, true, (uint64_t)c->seed, &d));
    b->input = d->shape;
    b->classes = d->classes;
    *outputs = d->classes ? d->classes : d->targets;
    dataset_close(d);
    return ERR_NONE;
}

static enum error net_make_model(struct net *b, int64_t outputs) {
    TRY(config_errors_create(&b->errors));
    enum error err = model_create(b->settings.config.model, &b->input, outputs, b->errors, &b->m);
    char *report = err == ERR_CONFIG ? config_errors_text(b->errors, b->settings.pool) : NULL;
    b->reported = report && *report;
    if (b->reported) fputs(report, stderr);
    TRY(err);
    if (shape_last(&b->m->output) == outputs) return ERR_NONE;
    char text[96];
    return FAIL(ERR_CONFIG, "model '%s' gives %s outputs, not %lld\nset their number by --classes", b->m->name,
                shape_text(&b->m->output, text), (long long)outputs);
}

/* The vocabulary from which the batch is drawn where it is tokens: the smallest one of the layers that read it; else 0. */
static int64_t net_vocabulary(const struct model *m) {
    int64_t least = 0;
    for (int i = 0; i < m->nnodes; i++) {
        const struct op_desc *d = &m->nodes[i].plan.op;
        if (m->nodes[i].plan.view || op_row(d->kind)->sees != SEES_TOKEN) continue;
        if (!least || d->embedding.vocabulary < least) least = d->embedding.vocabulary;
    }
    return least;
}

static enum error net_take_there(struct net *b, int64_t n, float **out) {
    void *p;
    TRY(device_alloc(b->dev, (size_t)n * sizeof(float), &p));
    *out = p;
    return ERR_NONE;
}

/* First weights, made here and sent to where the device has them. */
static enum error net_make_values(struct net *b) {
    int64_t n = b->m->arena_floats, k = b->m->buffer_floats;
    float *values, *buffers;
    TRY(net_take(b, n, sizeof(float), &values));
    TRY(net_take(b, k, sizeof(float), &buffers));
    model_init(b->m, b->dev->threads, 1, values, buffers);
    TRY(net_take_there(b, n, &b->values));
    TRY(net_take_there(b, n, &b->grads));
    TRY(net_take_there(b, k, &b->buffers));
    TRY(device_write(b->dev, b->values, values, (size_t)n * sizeof(float)));
    if (k) TRY(device_write(b->dev, b->buffers, buffers, (size_t)k * sizeof(float)));
    return device_wait(b->dev);
}

static enum error net_make_batch(struct net *b, int64_t n) {
    int64_t xs = n * shape_count(&b->input), outs = n * shape_count(&b->m->output),
            rows = b->classes ? outs / b->classes : 0, tokens = net_vocabulary(b->m);
    struct rng_key key = rng_key(1, RNG_DATA);
    TRY(net_take(b, xs, sizeof(float), &b->x));
    TRY(net_take(b, n, sizeof(uint64_t), &b->ids));
    TRY(net_take(b, rows, sizeof(int32_t), &b->labels));
    TRY(net_take(b, outs, sizeof(float), &b->target));
    for (int64_t k = 0; k < xs; k++)
        b->x[k] = tokens ? (float)rng_below(key, 0, (uint64_t)k, (uint64_t)tokens) : rng_normal(key, 0, (uint64_t)k);
    for (int64_t i = 0; i < rows; i++) b->labels[i] = (int32_t)rng_below(key, 1, (uint64_t)i, (uint64_t)b->classes);
    for (int64_t i = 0; i < n; i++) b->ids[i] = (uint64_t)i;
    b->batch = (struct graph_batch){.n = n,
                                    .x = b->x,
                                    .labels = b->classes ? b->labels : NULL,
                                    .target = b->classes ? NULL : b->target,
                                    .ids = b->ids,
                                    .scale = 1 / (float)n,
                                    .training = true,
                                    .update_buffers = true};
    return ERR_NONE;
}

/* The configuration's own choices, where an option does not say otherwise: the batch is one pass of a device. */
static enum error net_make(struct net *b, const struct bench_layers_options *o) {
    const struct run_config *c = &b->settings.config;
    int64_t outputs;
    b->threads = o->threads;
    TRY(net_find_input(b, o, &outputs));
    TRY(net_make_model(b, outputs));
    const struct device_params p = {
        .count = 1, .threads = (int)b->threads, .no_winograd = !c->winograd, .unit = device_first_unit(&c->devices)};
    TRY(device_find(c->devices.kind)->open(&p, &b->dev));
    TRY(graph_create(b->m, b->dev, (enum loss)c->loss.index, (enum precision)c->precision, &b->g));
    b->segments = o->batch ? (struct segments){1, {0, o->batch}} : planned_segments(c, b->dev);
    TRY(net_make_values(b));
    TRY(net_make_batch(b, b->segments.begin[b->segments.count]));
    b->batch.segments = &b->segments;
    return graph_prepare(b->g, b->batch.n, b->batch.segments);
}

static void net_fini(struct net *b) {
    graph_free(b->g);
    device_free(b->dev, b->values);
    device_free(b->dev, b->grads);
    device_free(b->dev, b->buffers);
    if (b->dev) b->dev->ops->close(b->dev);
    model_free(b->m);
    config_errors_free(b->errors);
    run_settings_free(&b->settings);
}

/* ---- measuring ---- */

struct times { /* [pass][step][forward, backward], and of whole passes */
    int64_t *of, whole[PASSES_MOST][2], began;
    int64_t (*now)(void);
    int steps, pass;
};

static void times_watch(void *user, int step, bool backward, bool done) {
    struct times *t = user;
    if (done)
        t->of[(t->pass * t->steps + step) * 2 + backward] = t->now() - t->began;
    else
        t->began = t->now();
}

int64_t (*bench_clock(const struct device *dev))(void) {
    return dev->params.threads == 1 && !device_runtime(dev)->asynchronous ? clock_thread_ns : clock_ns;
}

/* The median of every 'stride'-th number. */
static double times_median(const int64_t *of, int count, int64_t stride) {
    double v[PASSES_MOST];
    for (int i = 0; i < count; i++) v[i] = clock_seconds(of[i * stride]);
    return statistics_median(v, count);
}

static enum error net_pass(struct net *b, int64_t (*now)(void), int64_t whole[2]) {
    struct graph_sums sums;
    int64_t begin = now();
    TRY(graph_forward(b->g, &b->batch, b->values, b->buffers, &sums));
    int64_t middle = now();
    TRY(graph_backward(b->g, &b->batch, b->values, b->grads, NULL, NULL));
    TRY(device_wait(b->dev));
    whole[0] = middle - begin;
    whole[1] = now() - middle;
    return ERR_NONE;
}

static enum error net_run_passes(struct net *b, struct times *t, double seconds) {
    enum { LEAST = 3 };
    t->now = bench_clock(b->dev);
    TRY(net_pass(b, t->now, t->whole[0])); /* warm */
    graph_watch(b->g, times_watch, t);
    int64_t end = clock_after(seconds);
    for (t->pass = 0; t->pass < PASSES_MOST && (t->pass < LEAST || clock_ns() < end); t->pass++)
        TRY(net_pass(b, t->now, t->whole[t->pass]));
    return ERR_NONE;
}

static enum error net_measure(struct net *b, const struct bench_layers_options *o, struct layers_result *r) {
    static struct times t; /* too large for the stack */
    struct graph_info info;
    t.steps = r->count = graph_steps(b->g, &b->batch);
    TRY(net_take(b, (int64_t)t.steps * 2 * PASSES_MOST, sizeof *t.of, &t.of));
    TRY(net_take(b, r->count, sizeof *r->rows, &r->rows));
    TRY(net_run_passes(b, &t, o->seconds));
    r->passes = t.pass;
    for (int i = 0; i < r->count; i++) {
        graph_step(b->g, &b->batch, i, &r->rows[i].step);
        for (int d = 0; d < 2; d++) r->rows[i].seconds[d] = times_median(t.of + 2 * i + d, t.pass, 2 * t.steps);
    }
    for (int d = 0; d < 2; d++) r->pass[d] = times_median(t.whole[0] + d, t.pass, 2);
    graph_info(b->g, &info);
    r->fused = info.fused;
    return ERR_NONE;
}

/* Builds the network, measures the peak of this machine and each of its ops, and prints the report. */
static enum error net_bench(struct net *b, const struct bench_layers_options *o) {
    struct layers_result r = {.json = o->json, .precision = (enum precision)b->settings.config.precision};
    TRY(net_make(b, o));
    r.model = b->m->name;
    r.n = b->batch.n;
    r.classes = b->classes;
    r.threads = b->threads;
    r.isa = b->dev->isa;
    shape_text(&b->input, r.input);
    r.processor = bench_clock(b->dev) == clock_thread_ns;
    r.side = peak_side(b->dev);
    TRY(peak_gemm(b->dev, r.precision, bench_clock(b->dev), &r.gemm));
    TRY(net_measure(b, o, &r));
    return layers_report(&r, stdout);
}

static int layers_command(const struct cli *cli) {
    struct bench_layers_options *o = cli->options;
    struct net b = {0};
    enum error err = ERR_NONE;
    if (o->config.path && (o->model || o->input.ndim || o->classes))
        return cli_usage(cli, "a configuration already has what --model, --input and --classes set");
    if (o->model) err = cli_set_first(&o->config, pool_printf(cli->pool, "model=%s", o->model));
    if (err != ERR_NONE) return cli_fail(err);
    err = cli_load(&o->config, &b.settings);
    if (err == ERR_NONE && (err = net_bench(&b, o)) != ERR_NONE && !b.reported) cli_fail(err);
    net_fini(&b);
    return error_exit_code(err);
}

static const struct option options[] = {
    {"CONFIG", NULL, "a configuration: its model, shape of data, precision and shard size; without it:", CONFIG_STRING,
     AT(config.path), .one = "configuration"},
    {"--model", "NAME", "a model of the zoo, or {layers: [...]}", CONFIG_STRING, AT(model), .word = cli_zoo_name},
    {"--input", "S", "3x32x32, or 128 tokens; default: the usual input of the model", .at = AT(input),
     .read = cli_read_shape, .wants = "a shape such as 3x32x32 or 128"},
    {"--classes", "N", "the same", CONFIG_INT, AT(classes), 1, 1 << 24, .wants = "a whole number"},
    {"--batch", "N", "number of samples in one pass", CONFIG_INT, AT(batch), 1, 1 << 20, .wants = "a whole number"},
    {"--precision", "P", "f32 or bf16", .at = AT(config), .key = "precision"},
    {"--threads", "N", "threads of the device; 1 by default, and then processor time is measured", CONFIG_INT,
     AT(threads), 1, 1024, .wants = "a whole number"},
    {"--seconds", "T", "how long to measure; 1s by default", CONFIG_SECONDS, AT(seconds), 1e-12, 3600,
     .wants = "a time up to an hour"},
    OPTION_SET(config, "as in 'engine run'"),
    OPTION_JSON("instead of the table"),
    {0}};

const struct command command_bench_layers = {
    .name = "layers",
    .summary = "measures each op of a training step, after fusion",
    OPTIONS(options),
    .notes = "bytes: the values that an op reads and writes, each once. peak: the rate of a product\n"
             "of 1024 x 1024 matrices, measured in the same run. Winograd's convolutions are counted as\n"
             "plain ones, so they may be above it.\n",
    .standard = &(const struct bench_layers_options){.threads = 1, .seconds = 1},
    .run = layers_command,
};
