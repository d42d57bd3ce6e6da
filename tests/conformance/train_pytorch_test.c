/* The zoo against PyTorch: logits, loss, every parameter's gradient, and the losses of three steps
 * of SGD and AdamW, with what tests/reference/make_zoo_reference.py has written. There all is
 * computed in doubles, so the differences are our rounding; more steps would measure how often it
 * makes a relu flip, after which losses part quickly. Weights and batches come from a formula. */
#include "tests/harness/formula.h"
#include "tests/harness/harness.h"
#include "tests/harness/lone_mode.h"

#include "engine/device/runtime.h"
#include "engine/model/graph.h"
#include "engine/settings/run_config.h"

#include <stdio.h>
#include <stdlib.h>

enum { SAMPLED = 6, STEPS = 3, NUMBERS = 1 + STEPS + 1 };

/* ---- what was written --------------------------------------------------------------------- */

struct reference {
    char model[256], text[64 << 10];
    struct shape input;
    int64_t classes, samples;
};

/* The line that begins with these words, behind them; NULL: there is none. */
static const char *line_of(const struct reference *r, const char *words) {
    size_t n = strlen(words);
    for (const char *at = r->text; *at;) {
        if (!strncmp(at, words, n) && at[n] == ' ') return at + n + 1;
        at += strcspn(at, "\n");
        at += *at == '\n';
    }
    return NULL;
}

static void numbers_of(const struct reference *r, const char *words, int n, double *out) {
    const char *at = line_of(r, words);
    if (!at) fail_msg("the reference has no line '%s'", words);
    for (int i = 0; i < n; i++) {
        char *end;
        out[i] = strtod(at, &end);
        if (end == at) fail_msg("the reference's line '%s' is too short", words);
        at = end;
    }
}

static void reference_read(const char *name, struct reference *r) {
    char path[512], shape[32];
    snprintf(path, sizeof path, "%s/tests/reference/zoo/%s.txt", ENGINE_SOURCE_DIR, name);
    FILE *f = fopen(path, "r");
    if (!f) fail_msg("cannot read %s", path);
    size_t n = fread(r->text, 1, sizeof r->text - 1, f);
    fclose(f);
    r->text[n] = '\0';
    const char *model = line_of(r, "model"), *input = line_of(r, "input");
    assert_true(model && input && n < sizeof r->text - 1);
    snprintf(r->model, sizeof r->model, "model=%.*s", (int)strcspn(model, "\n"), model);
    long long classes, samples;
    assert_int_equal(sscanf(input, "%31s %lld %lld", shape, &classes, &samples), 3);
    assert_true(shape_read(shape, &r->input));
    r->classes = classes, r->samples = samples;
}

/* ---- our side ----------------------------------------------------------------------------- */

struct rig {
    const struct reference *r;
    struct run_settings settings;
    struct model *m;
    struct device *dev;
    struct graph *g;
    struct graph_batch batch;
    float *values, *buffers, *grads, *slots[OPTIM_SLOTS], *x;
    float *values_there, *buffers_there, *grads_there; /* the device's */
    int32_t *labels;
};

static float *floats(int64_t n) {
    void *p;
    assert_ok(memory_alloc((size_t)n * sizeof(float), &p));
    return p;
}

static void settings_load(struct run_settings *s, const char *model, const char *optimizer) {
    static const char *const algorithms[] = {"direct", NULL};
    const char *sets[] = {model, "mode=single", optimizer};
    char *report;
    const struct run_ask ask = {.sets = sets, .nsets = 3, .modes = lone_modes, .algorithms = algorithms};
    if (run_settings_load(&ask, s, &report) != ERR_NONE) fail_msg("%s", report ? report : error_message());
}

static void make_batch(struct rig *g) {
    const struct reference *r = g->r;
    int64_t n = r->samples * shape_count(&r->input), rows = r->input.ndim == 1 ? r->input.dim[0] : 1;
    uint32_t x = formula_hash("x"), y = formula_hash("y"), classes = (uint32_t)r->classes;
    for (int64_t k = 0; k < n; k++)
        g->x[k] = r->input.ndim == 1 ? (float)(formula_word(x, (uint32_t)k) % classes)
                                     : (float)formula_sign(x, (uint32_t)k) * 1.5f;
    for (int64_t k = 0; k < r->samples * rows; k++)
        g->labels[k] =
            r->input.ndim == 1 ? (int32_t)(formula_word(y, (uint32_t)k) % classes) : (int32_t)(k * 7 % r->classes);
    g->batch = (struct graph_batch){.n = r->samples,
                                    .x = g->x,
                                    .labels = g->labels,
                                    .scale = 1 / (float)r->samples,
                                    .training = true,
                                    .update_buffers = true};
}

static size_t arena_bytes(const struct rig *g) {
    return (size_t)g->m->arena_floats * sizeof(float);
}

static void rig_put_values(struct rig *g) {
    assert_ok(device_write(g->dev, g->values_there, g->values, arena_bytes(g)));
    graph_values_changed(g->g);
    assert_ok(device_wait(g->dev)); /* values is ours again */
}

static void rig_weights(struct rig *g) {
    model_init(g->m, NULL, 0, g->values, g->buffers);
    for (int i = 0; i < g->m->nparams; i++) formula_tensor(&g->m->params[i], g->values + g->m->params[i].offset);
    for (int i = 0; i < OPTIM_SLOTS; i++) memset(g->slots[i], 0, arena_bytes(g));
    assert_ok(device_write(g->dev, g->buffers_there, g->buffers, (size_t)g->m->buffer_floats * sizeof(float)));
    rig_put_values(g);
}

static float *floats_there(struct rig *g, int64_t n) {
    void *p;
    assert_ok(device_alloc(g->dev, (size_t)n * sizeof(float), &p));
    return p;
}

static void rig_open(struct rig *g, const struct reference *r, const char *device, enum precision precision) {
    struct config_errors *e;
    *g = (struct rig){.r = r};
    settings_load(&g->settings, r->model, "optimizer=sgd");
    assert_ok(config_errors_create(&e));
    if (model_create(g->settings.config.model, &r->input, r->classes, e, &g->m) != ERR_NONE)
        fail_msg("%s", config_errors_text(e, g->settings.pool));
    config_errors_free(e);
    assert_ok(device_find(device)->open(&(struct device_params){.count = 1, .threads = 1}, &g->dev));
    assert_ok(graph_create(g->m, g->dev, LOSS_CROSS_ENTROPY, precision, &g->g));
    int64_t n = g->m->arena_floats;
    g->values = floats(n), g->grads = floats(n), g->buffers = floats(g->m->buffer_floats);
    g->values_there = floats_there(g, n), g->grads_there = floats_there(g, n);
    g->buffers_there = floats_there(g, g->m->buffer_floats);
    for (int i = 0; i < OPTIM_SLOTS; i++) g->slots[i] = floats(n);
    g->x = floats(r->samples * shape_count(&r->input));
    g->labels = calloc((size_t)(r->samples * shape_count(&r->input)), sizeof *g->labels);
    assert_non_null(g->labels);
    make_batch(g);
    rig_weights(g);
}

static void rig_close(struct rig *g) {
    graph_free(g->g);
    device_free(g->dev, g->values_there);
    device_free(g->dev, g->grads_there);
    device_free(g->dev, g->buffers_there);
    g->dev->ops->close(g->dev);
    model_free(g->m);
    memory_free(g->values);
    memory_free(g->grads);
    memory_free(g->buffers);
    memory_free(g->x);
    for (int i = 0; i < OPTIM_SLOTS; i++) memory_free(g->slots[i]);
    free(g->labels);
    run_settings_free(&g->settings);
}

/* Of a forward without a loss, which may put the gradient in their place. */
static const float *rig_outputs(struct rig *g) {
    struct graph_batch batch = g->batch;
    const float *y;
    batch.labels = NULL, batch.target = NULL, batch.update_buffers = false;
    assert_ok(graph_forward(g->g, &batch, g->values_there, g->buffers_there, NULL));
    assert_ok(graph_output(g->g, &y));
    return y;
}

static double rig_loss(struct rig *g) {
    struct graph_sums sums;
    assert_ok(graph_forward(g->g, &g->batch, g->values_there, g->buffers_there, &sums));
    return sums.loss / (double)g->r->samples;
}

static void rig_backward(struct rig *g) {
    assert_ok(graph_backward(g->g, &g->batch, g->values_there, g->grads_there, NULL, NULL));
    assert_ok(device_read(g->dev, g->grads, g->grads_there, arena_bytes(g)));
}

/* ---- comparing ---------------------------------------------------------------------------- */

struct worst {
    double logits, loss, gradient, steps; /* relative differences */
    char name[128];                       /* of the gradient */
};

/* The largest difference of the norm and of the sampled elements, relative to the norm and to the
 * elements' root mean square. */
static double difference(const struct reference *r, const char *words, const float *v, int64_t n) {
    double theirs[1 + SAMPLED], squares = 0, worst;
    numbers_of(r, words, 1 + SAMPLED, theirs);
    for (int64_t k = 0; k < n; k++) squares += (double)v[k] * (double)v[k];
    double typical = theirs[0] / sqrt((double)n);
    worst = fabs(sqrt(squares) - theirs[0]) / theirs[0];
    for (int i = 0; i < SAMPLED; i++) {
        double off = fabs((double)v[(int64_t)i * n / SAMPLED] - theirs[1 + i]);
        worst = fmax(worst, off / fmax(fabs(theirs[1 + i]), typical));
    }
    return worst;
}

static void compare_gradients(struct rig *g, struct worst *w) {
    int named = 0;
    for (const char *at = g->r->text; (at = strstr(at, "\ngrad ")); at++) named++;
    assert_int_equal(named, g->m->nparams); /* PyTorch has as many */
    for (int i = 0; i < g->m->nparams; i++) {
        const struct tensor_info *t = &g->m->params[i];
        char words[160];
        snprintf(words, sizeof words, "grad %s", t->name);
        double off = difference(g->r, words, g->grads + t->offset, t->count);
        if (!(off <= w->gradient)) {
            w->gradient = off;
            snprintf(w->name, sizeof w->name, "%s", t->name);
        }
    }
}

static void compare_steps(struct rig *g, const char *optimizer, const char *more, struct worst *w) {
    char set[256];
    double theirs[NUMBERS];
    struct run_settings s;
    numbers_of(g->r, optimizer, NUMBERS, theirs);
    snprintf(set, sizeof set, "optimizer={name: %s, lr: %g, %s}", optimizer, theirs[0], more);
    settings_load(&s, g->r->model, set);
    int count;
    const struct optim_ops *optim = optim_kinds(&count)[s.config.optimizer.kind.index];
    rig_weights(g);
    const void *config = s.config.optimizer.kind.config;
    struct optim_step step = {.lr = (float)optim_lr(config), .scale = 1};
    struct rule rule;
    struct rule_span span = {
        .w = g->values + HEADER_FLOATS, .g = g->grads + HEADER_FLOATS, .n = g->m->arena_floats - HEADER_FLOATS};
    for (int i = 0; i < optim->nslots; i++) span.slot[i] = g->slots[i] + HEADER_FLOATS;
    for (int i = 0; i <= STEPS; i++) {
        g->batch.training = i < STEPS; /* the last with the running statistics */
        double loss = rig_loss(g);
        w->steps = fmax(w->steps, fabs(loss - theirs[1 + i]) / theirs[1 + i]);
        if (i == STEPS) break;
        rig_backward(g);
        step.t = i + 1;
        optim_rule(optim, config, &step, &rule);
        rule_step(&rule, &span);
        rig_put_values(g);
    }
    g->batch.training = true;
    run_settings_free(&s);
}

/* Convolutions in plain C are slow, so their networks take no steps there. */
static bool takes_steps(const char *name, const char *device) {
    bool convolves = !strcmp(name, "vgg11") || !strncmp(name, "resnet", 6);
    return !convolves || strcmp(device, "ref") != 0;
}

static struct worst compare(const char *name, const char *device, enum precision precision) {
    static struct reference r;
    struct rig g;
    struct worst w = {0};
    double theirs[1];
    reference_read(name, &r);
    rig_open(&g, &r, device, precision);
    numbers_of(&r, "loss", 1, theirs);
    w.logits = difference(&r, "logits", rig_outputs(&g), r.samples * shape_count(&g.m->output));
    w.loss = fabs(rig_loss(&g) - theirs[0]) / theirs[0];
    rig_backward(&g);
    compare_gradients(&g, &w);
    if (takes_steps(name, device)) {
        compare_steps(&g, "sgd", "momentum: 0.9, weight_decay: 1e-4", &w);
        compare_steps(&g, "adamw", "weight_decay: 0.01, eps: 1e-4", &w);
    }
    rig_close(&g);
    print_message("%-9s %-4s %s: off by %.1e in logits, %.1e in the loss, %.1e in a gradient (%s), "
                  "%.1e in the losses of three steps\n",
                  name, device, precision == PRECISION_BF16 ? "bf16" : "f32", w.logits, w.loss, w.gradient, w.name,
                  w.steps);
    return w;
}

static void assert_below(const char *name, const struct worst *w, const struct worst *most) {
    if (!(w->logits < most->logits && w->loss < most->loss && w->gradient < most->gradient && w->steps < most->steps))
        fail_msg("%s differs from PyTorch: more than %g, %g, %g or %g", name, most->logits, most->loss, most->gradient,
                 most->steps);
}

#ifdef ENGINE_EMULATED /* slow */
static const char *const names[] = {"mlp", "lenet", "vit-tiny", "gpt-nano"};
#else
static const char *const names[] = {"mlp",      "lenet",    "vgg11",    "resnet20",
                                    "resnet18", "resnet50", "vit-tiny", "gpt-nano"};
#endif
enum { NAMES = sizeof names / sizeof *names };

static void f32_equals_pytorch(void **state) {
    const char *device = *state;
    const struct worst most = {2e-5, 1e-5, 2e-4, 5e-5, ""};
    for (int i = 0; i < NAMES; i++) {
        struct worst w = compare(names[i], device, PRECISION_F32);
        assert_below(names[i], &w, &most);
    }
}

/* A factor is off by 2^-9 of itself at most. What one product has too much another has too little,
 * but relus that flip change the gradients of the convolutional networks by any amount. */
static void bf16_is_near(void **state) {
    const char *device = *state;
    bool rounds_all = device_find(device)->runtime->apart; /* accelerators round activations, too */
    const struct worst most = {rounds_all ? 0.12 : 5e-2, 5e-3, rounds_all ? 0.3 : 0.2, 2e-2, ""};
    static const char *const smooth[] = {"mlp", "vit-tiny", "gpt-nano"};
    for (size_t i = 0; i < sizeof smooth / sizeof *smooth; i++) {
        struct worst w = compare(smooth[i], device, PRECISION_BF16);
        assert_below(smooth[i], &w, &most);
        assert_true(w.logits > 1e-4); /* it was not f32 after all */
    }
}

#ifdef REFERENCE_DEVICE
static char devices[][8] = {REFERENCE_DEVICE};
#else
static char devices[][8] = {"cpu", "ref"};
#endif

/* bf16: on the first. A test of GPUs where there is none is skipped. */
int main(void) {
    struct CMUnitTest tests[3] = {cmocka_unit_test_prestate(bf16_is_near, devices[0])};
    size_t n = 1;
    const struct device_ops *ops = device_find(devices[0]);
    int units;
    if (ops->units && ops->units(&units) != ERR_NONE) return printf("skipped: %s\n", error_message()), 77;
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++)
        tests[n++] = (struct CMUnitTest)cmocka_unit_test_prestate(f32_equals_pytorch, devices[i]);
    return _cmocka_run_group_tests("the zoo and PyTorch", tests, n, NULL, NULL);
}
