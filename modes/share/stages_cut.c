/* Where the stages begin. Where the configuration does not name layers, rank 0 measures what each layer takes in a
 * forward and a backward of one micro-batch, and the cut is that whose slowest stage takes the least time, since all
 * others wait for it. Where the cut is changes no bit, so it may depend on what was measured. */
#include "engine/base/clock.h"
#include "engine/base/text.h"
#include "engine/settings/run_config.h"
#include "modes/share/stages.h"

#include <math.h>
#include <string.h>

static const char *stages_word(const struct pipeline_config *c, int i) {
    return ((const char *const *)c->stages.items)[i];
}

/* Whether the list is names of layers. */
static bool stages_are_named(const struct pipeline_config *c) {
    int64_t n;
    const char *first = stages_word(c, 0);
    return c->stages.count > 1 || (strcmp(first, "auto") != 0 && !text_int(first, &n));
}

int stages_count(const struct pipeline_config *c, int devices) {
    int64_t n;
    if (stages_are_named(c)) return c->stages.count + 1;
    if (!strcmp(stages_word(c, 0), "auto")) return devices;
    return text_int(stages_word(c, 0), &n) && n > 0 && n <= devices ? (int)n : 0;
}

/* ---- layers that are named ---- */

static enum error find_layer(const struct model *m, const char *name, int *out) {
    for (int k = 0; k < m->nnodes; k++)
        if (!strcmp(m->nodes[k].name, name)) {
            *out = k;
            return ERR_NONE;
        }
    return FAIL(ERR_CONFIG, "pipeline.stages: model '%s' has no layer '%s'\nengine model show lists its layers",
                m->name, name);
}

static enum error cut_as_named(const struct pipeline_config *c, const struct model *m, int *first) {
    for (int i = 0; i < c->stages.count; i++) {
        int *at = &first[i + 1];
        TRY(find_layer(m, stages_word(c, i), at));
        if (*at <= first[i])
            return FAIL(ERR_CONFIG, "pipeline.stages: layer '%s' does not come after the begin of the stage before it",
                        m->nodes[*at].name);
        if (!model_part_begins(m, *at))
            return FAIL(
                ERR_CONFIG,
                "pipeline.stages: no stage can begin with layer '%s': it can where only the output of the layer "
                "before is read from there on, and with no activation or pool\nbegin before or after that, "
                "and before or after a residual connection",
                m->nodes[*at].name);
    }
    return ERR_NONE;
}

static int count_places(const struct model *m) {
    int places = 1;
    for (int k = 1; k < m->nnodes; k++) places += model_part_begins(m, k);
    return places;
}

enum error stages_suit(const struct run_config *c, const struct model *m) {
    int count = c->sharing.stages, first[RUN_DEVICES_MAX + 1] = {0}, places = count_places(m);
    if (stages_are_named(&c->pipeline)) return cut_as_named(&c->pipeline, m, first);
    if (count <= places) return ERR_NONE;
    return FAIL(ERR_CONFIG,
                "%d stages, but model '%s' can be cut into %d at most: at places where only the output of one layer "
                "passes\nset pipeline.stages: %d, or fewer devices",
                count, m->name, places, places);
}

/* ---- measuring ---- */

struct watched {
    const struct graph *g;
    const struct graph_batch *batch;
    const struct model *m;
    double *seconds; /* by node */
    int64_t began;
};

static void watch_layer(void *user, int step, bool backward, bool done) {
    struct watched *w = user;
    struct graph_step s;
    (void)backward;
    int64_t now = clock_ns(), began = w->began;
    w->began = now;
    if (!done) return;
    graph_step(w->g, w->batch, step, &s);
    int k = w->m->nnodes - 1; /* the loss is the last layer's */
    for (int i = 0; i < w->m->nnodes; i++)
        if (!strcmp(w->m->nodes[i].name, s.name)) k = i;
    w->seconds[k] = fmin(w->seconds[k] > 0 ? w->seconds[k] : INFINITY, clock_seconds(now - began));
}

/* Times do not depend on values much, so all are zero. */
static enum error measure_passes(struct graph *g, struct watched *w, float *zeros) {
    enum { PASSES = 3 };
    struct graph_batch b = *w->batch;
    float *grads = zeros + w->m->arena_floats, *buffers = grads + w->m->arena_floats;
    TRY(graph_prepare(g, b.n, NULL));
    for (int i = 0; i < PASSES; i++) {
        if (i > 0) graph_watch(g, watch_layer, w);
        TRY(graph_forward(g, &b, zeros, buffers, NULL));
        TRY(graph_backward(g, &b, zeros, grads, NULL, NULL));
    }
    return ERR_NONE;
}

static enum error measure_layers(struct trainer *t, double *seconds) {
    const struct run_config *c = t->config;
    const struct model *m = t->model;
    int64_t n = c->batch.size / c->batch.shards / c->batch.accumulate, outputs = shape_count(&m->output);
    if (n < 1) n = 1;
    int64_t floats = 2 * m->arena_floats + m->buffer_floats + n * (shape_count(&m->input) + 2 * outputs + 2);
    struct graph *g = NULL;
    float *zeros = memory_new((size_t)floats * sizeof *zeros);
    if (!zeros) return ERR_MEMORY;
    float *x = zeros + 2 * m->arena_floats + m->buffer_floats;
    const struct graph_batch b = {.n = n,
                                  .x = x,
                                  .labels = t->feed.data->classes ? (const int32_t *)(const void *)x : NULL,
                                  .target = t->feed.data->classes ? NULL : x,
                                  .ids = (const uint64_t *)(const void *)x,
                                  .scale = 1,
                                  .training = true};
    enum error err = graph_create(m, t->device, (enum loss)c->loss.index, (enum precision)c->precision, &g);
    struct watched w = {g, &b, m, seconds, 0};
    if (err == ERR_NONE) graph_freeze(g, t->tensors.frozen, true);
    if (err == ERR_NONE) err = measure_passes(g, &w, zeros);
    graph_free(g);
    memory_free(zeros);
    return err;
}

/* ---- the best cut ---- */

struct cutter {
    int nodes, count;
    double *upto;  /* (nodes + 1): seconds of the layers before a node */
    double *least; /* (count + 1, nodes + 1): of the slowest of so many stages that have the layers before a node */
    int *from;     /* likewise: where the last of these begins */
};

/* The best of s stages that have the layers before 'to'. */
static void cut_best_upto(const struct cutter *c, int s, int to) {
    int row = c->nodes + 1;
    double *least = &c->least[s * row + to];
    for (int from = 0; from < to; from++) {
        double slowest = fmax(c->least[(s - 1) * row + from], c->upto[to] - c->upto[from]);
        if (slowest < *least) *least = slowest, c->from[s * row + to] = from;
    }
}

static void cut_best(const struct cutter *c, const struct model *m, int *first) {
    int row = c->nodes + 1;
    for (int i = 0; i < row * (c->count + 1); i++) c->least[i] = i ? INFINITY : 0;
    for (int to = 1; to <= c->nodes; to++)
        for (int s = 1; s <= c->count && (to == c->nodes || model_part_begins(m, to)); s++) cut_best_upto(c, s, to);
    first[c->count] = c->nodes;
    for (int s = c->count; s > 0; s--) first[s - 1] = c->from[s * row + first[s]];
}

enum error stages_cut_by(const struct run_config *config, const struct model *m, int count, const double *seconds,
                         int *first) {
    size_t row = (size_t)m->nnodes + 1, table = row * (size_t)(count + 1);
    first[0] = 0, first[count] = m->nnodes;
    if (stages_are_named(&config->pipeline)) return cut_as_named(&config->pipeline, m, first);
    double *upto = memory_new((row + table) * sizeof *upto + table * sizeof(int));
    if (!upto) return ERR_MEMORY;
    double *least = upto + row;
    const struct cutter c = {m->nnodes, count, upto, least, (int *)(void *)(least + table)};
    for (int k = 0; k < m->nnodes; k++) upto[k + 1] = upto[k] + seconds[k] + 1e-9; /* no stage without a layer */
    cut_best(&c, m, first);
    memory_free(upto);
    return ERR_NONE;
}

static enum error cut_by_time(struct trainer *t, int count, int *first) {
    void *seconds;
    TRY(memory_alloc((size_t)t->model->nnodes * sizeof(double), &seconds));
    enum error err = measure_layers(t, seconds);
    if (err == ERR_NONE) err = stages_cut_by(t->config, t->model, count, seconds, first);
    memory_free(seconds);
    return err;
}

enum error stages_cut(struct mode *m, int count, int *first, const char **how) {
    struct trainer *t = m->t;
    const struct pipeline_config *c = &t->config->pipeline;
    bool named = stages_are_named(c);
    int64_t told[RUN_DEVICES_MAX + 1] = {0};
    TRY(stages_suit(t->config, t->model));
    *how = named ? "as pipeline.stages names them" : "by the measured times of layers";
    if (named) TRY(cut_as_named(c, t->model, first));
    if (!named && t->rank == 0) TRY(cut_by_time(t, count, first));
    first[count] = t->model->nnodes;
    for (int i = 0; i <= count; i++) told[i] = first[i];
    TRY(group_broadcast(m->team.group, GROUP_INLINE, told, count + 1, DTYPE_I64, 0));
    for (int i = 0; i <= count; i++) first[i] = (int)told[i];
    return ERR_NONE;
}
