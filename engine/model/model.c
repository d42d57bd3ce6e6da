/* From a list of layers to a model: names, inputs, shapes, and where each parameter lies. */
#include "engine/model/model.h"

#include "engine/base/rng.h"
#include "engine/base/text.h"
#include "engine/device/threads.h"
#include "engine/model/spec.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    LAYERS_MAX = 4096,
    NAME_MAX_LENGTH = 64,
    BATCH = -1 /* as a node's input */
};
#define COUNT_MAX INT32_MAX /* floats of one tensor, or of one sample's activation */

struct builder {
    struct model *m;
    struct config_errors *e;
    const struct config_variant *layers;
    bool *read; /* by node: some other layer reads its output */
};

/* ---- names and inputs --------------------------------------------------------------------- */

static int node_find(const struct model *m, const char *name, int before) {
    for (int i = 0; i < before; i++)
        if (!strcmp(m->nodes[i].name, name)) return i;
    return -1;
}

static bool name_valid(const char *name) {
    size_t n = 0;
    for (; name[n]; n++)
        if (!isalnum((unsigned char)name[n]) && !strchr("_-.", name[n])) return false;
    return n > 0 && n <= NAME_MAX_LENGTH;
}

/* The given name, or kind and ordinal among its kind: "conv2d2". */
static enum error node_name(struct builder *b, int k) {
    const struct config_variant *v = &b->layers[k];
    const struct layer_common *common = v->common_config;
    struct model_node *node = &b->m->nodes[k];
    int ordinal = 1;
    for (int i = 0; i < k; i++) ordinal += b->m->nodes[i].layer == node->layer;
    const char *kind = node->layer->section.name;
    char *name =
        common->name ? pool_printf(b->m->pool, "%s", common->name) : pool_printf(b->m->pool, "%s%d", kind, ordinal);
    if (!name) return ERR_MEMORY;
    node->name = name;
    node->naming = common->params;
    if (!name_valid(name))
        config_error(b->e, v->node, false,
                     "'%s' is not a valid name for a layer\nuse up to %d letters, digits, '_', '-' and '.'", name,
                     NAME_MAX_LENGTH);
    else if (!strcmp(name, "input") || node_find(b->m, name, k) >= 0)
        config_error(b->e, v->node, false, "the name '%s' is taken\nlayers need names of their own", name);
    return ERR_NONE;
}

/* The node that 'from' names, k itself after an error. "input" is the batch. */
static int node_from(struct builder *b, int k, const char *from) {
    if (!strcmp(from, "input")) return BATCH;
    int found = node_find(b->m, from, k);
    if (found >= 0) return found;
    const char **names = pool_alloc(b->m->pool, ((size_t)k + 1) * sizeof *names);
    for (int i = 0; names && i < k; i++) names[i] = b->m->nodes[i].name;
    const char *nearest = names ? text_nearest(from, names, k) : NULL;
    if (nearest)
        config_error(b->e, b->layers[k].node, false, "no layer '%s' before this one\ndid you mean '%s'?", from,
                     nearest);
    else
        config_error(b->e, b->layers[k].node, false, "no layer '%s' before this one", from);
    return k;
}

static void node_inputs(struct builder *b, int k) {
    const struct layer_common *common = b->layers[k].common_config;
    struct model_node *node = &b->m->nodes[k];
    node->input[0] = k - 1; /* BATCH for the first */
    node->input[1] = BATCH;
    if (common->from)
        node->input[node->layer->joins] = node_from(b, k, common->from);
    else if (node->layer->joins)
        config_error(b->e, b->layers[k].node, false, "%s needs 'from', the layer to take in\nengine help %s",
                     node->layer->section.name, node->layer->section.name);
    for (int i = 0; i <= node->layer->joins; i++)
        if (node->input[i] != BATCH) b->read[node->input[i]] = true;
}

static enum error nodes_connect(struct builder *b) {
    struct model *m = b->m;
    int count;
    const struct layer_ops *const *kinds = layer_kinds(&count);
    for (int k = 0; k < m->nnodes; k++) {
        m->nodes[k].layer = kinds[b->layers[k].index];
        TRY(node_name(b, k));
        node_inputs(b, k);
    }
    for (int k = 0; k + 1 < m->nnodes; k++)
        if (!b->read[k])
            config_error(b->e, b->layers[k].node, false,
                         "nothing reads the output of layer '%s'\nadd: {from: %s} would, and so would any layer with "
                         "this 'from'",
                         m->nodes[k].name, m->nodes[k].name);
    return ERR_NONE;
}

/* ---- shapes ------------------------------------------------------------------------------- */

static bool shape_fits(const struct shape *s) {
    int64_t count = 1;
    for (int i = 0; i < s->ndim; i++)
        if (__builtin_mul_overflow(count, s->dim[i], &count) || count > COUNT_MAX) return false;
    return true;
}

static enum error plan_fits(const struct layer_plan *p) {
    bool fits = shape_fits(&p->y);
    for (int i = 0; i < p->nparams; i++) fits = fits && shape_fits(&p->params[i].shape);
    return fits ? ERR_NONE : FAIL(ERR_CONFIG, "more than 2^31 numbers in one tensor");
}

static const struct shape *shape_of(const struct model *m, int node) {
    return node == BATCH ? &m->input : &m->nodes[node].plan.y;
}

/* The first parameter is another's, of the same shape. */
static enum error node_tie(struct model *m, struct model_node *node) {
    const char *name = node->plan.tie;
    node->tied = name ? node_find(m, name, (int)(node - m->nodes)) : -1;
    if (!name) return ERR_NONE;
    if (node->tied < 0) return FAIL(ERR_CONFIG, "no layer '%s' before this one to tie to", name);
    const struct model_node *owner = &m->nodes[node->tied];
    if (owner->tied >= 0) return FAIL(ERR_CONFIG, "'%s' is itself tied", name);
    char is[96], must[96];
    if (!owner->plan.nparams || !shape_equal(&owner->plan.params[0].shape, &node->plan.params[0].shape))
        return FAIL(ERR_CONFIG, "its weight is %s, but that of '%s' %s", shape_text(&node->plan.params[0].shape, must),
                    name, owner->plan.nparams ? shape_text(&owner->plan.params[0].shape, is) : "none");
    return ERR_NONE;
}

static enum error node_plan(struct model *m, struct model_node *node, const void *config) {
    node->x = *shape_of(m, node->input[0]);
    if (node->layer->joins) {
        const struct shape *other = shape_of(m, node->input[1]);
        char a[96], b[96];
        if (!shape_equal(&node->x, other))
            return FAIL(ERR_CONFIG,
                        "its inputs differ: %s and %s\nbring one to the other's shape: a conv2d of kernel 1 changes "
                        "channels and, by its stride, size",
                        shape_text(&node->x, a), shape_text(other, b));
    }
    TRY(layer_takes(node->layer, &node->x));
    TRY(node->layer->plan(config, &node->x, &node->plan));
    TRY(plan_fits(&node->plan));
    TRY(node_tie(m, node));
    node->plan.op.dropout.layer = (int)(node - m->nodes);
    return ERR_NONE;
}

/* Stops at the first layer that does not fit: what follows it has no shape. */
static enum error nodes_plan(struct builder *b) {
    struct model *m = b->m;
    for (int k = 0; k < m->nnodes; k++) {
        struct model_node *node = &m->nodes[k];
        enum error err = node_plan(m, node, b->layers[k].config);
        char x[96];
        if (err == ERR_CONFIG)
            config_error(b->e, b->layers[k].node, false, "%s: %s (its input is %s)\n%s%sengine help %s", node->name,
                         error_message(), shape_text(&node->x, x), error_hint(), *error_hint() ? "; " : "",
                         node->layer->section.name);
        if (err != ERR_NONE) return err;
        m->nparams += node->plan.nparams - (node->tied >= 0);
        m->nbuffers += node->plan.nbuffers;
    }
    m->output = m->nodes[m->nnodes - 1].plan.y;
    if (m->nparams) return ERR_NONE;
    config_error(b->e, b->layers[0].node, false, "the model has no parameters to train");
    return FAIL(ERR_CONFIG, "the model has no parameters to train");
}

/* ---- arenas ------------------------------------------------------------------------------- */

static char *tensor_name(const struct model *m, const struct model_node *node, const char *what) {
    if (node->naming == NAMING_BARE) return pool_printf(m->pool, "%s", node->name);
    return pool_printf(m->pool, "%s%c%s", node->name, node->naming == NAMING_DOTTED ? '.' : '_', what);
}

/* Puts a tensor after *floats, which grows to the next aligned place. */
static enum error tensor_place(struct model *m, int node, const struct layer_tensor *t, struct tensor_info *out,
                               int64_t *floats) {
    char *name = tensor_name(m, &m->nodes[node], t->name);
    if (!name) return ERR_MEMORY;
    *out = (struct tensor_info){
        .name = name,
        .shape = t->shape,
        .offset = *floats,
        .count = shape_count(&t->shape),
        .init = t->init,
        .fan_in = t->fan_in,
        .deviation = t->deviation,
        .node = node,
    };
    *floats += align_floats(out->count);
    return ERR_NONE;
}

static enum error arenas_layout(struct model *m) {
    m->params = pool_alloc(m->pool, (size_t)m->nparams * sizeof *m->params);
    m->buffers = pool_alloc(m->pool, (size_t)m->nbuffers * sizeof *m->buffers);
    if (!m->params || !m->buffers) return ERR_MEMORY;
    m->arena_floats = HEADER_FLOATS;
    int param = 0, buffer = 0;
    for (int k = m->nnodes - 1; k >= 0; k--) { /* ready order */
        struct model_node *node = &m->nodes[k];
        for (int i = 0; i < LAYER_PARAMS; i++) {
            bool own = i < node->plan.nparams && (i > 0 || node->tied < 0);
            node->param[i] = own ? param++ : -1;
            if (!own) continue;
            struct tensor_info *t = &m->params[node->param[i]];
            TRY(tensor_place(m, k, &node->plan.params[i], t, &m->arena_floats));
            m->parameters += t->count;
        }
    }
    for (int k = 0; k < m->nnodes; k++) {
        struct model_node *node = &m->nodes[k];
        if (node->tied >= 0) node->param[0] = m->nodes[node->tied].param[0];
        for (int i = 0; i < LAYER_BUFFERS; i++) {
            node->buffer[i] = i < node->plan.nbuffers ? buffer++ : -1;
            if (node->buffer[i] < 0) continue;
            TRY(tensor_place(m, k, &node->plan.buffers[i], &m->buffers[node->buffer[i]], &m->buffer_floats));
        }
    }
    return ERR_NONE;
}

static int model_by_name(const void *a, const void *b) {
    const struct tensor_info *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

/* Parameters and buffers are found by their names: no two may share one. */
static enum error names_check(struct builder *b) {
    struct model *m = b->m;
    int n = 0;
    const struct tensor_info **all = pool_alloc(m->pool, (size_t)(m->nparams + m->nbuffers) * sizeof *all);
    if (!all) return ERR_MEMORY;
    for (int i = 0; i < m->nparams; i++) all[n++] = &m->params[i];
    for (int i = 0; i < m->nbuffers; i++) all[n++] = &m->buffers[i];
    qsort(all, (size_t)n, sizeof *all, model_by_name);
    for (int i = 1; i < n; i++) {
        if (strcmp(all[i - 1]->name, all[i]->name) != 0) continue;
        config_error(b->e, b->layers[all[i]->node].node, false,
                     "two parameters are named '%s' (of layers '%s' and '%s')\n"
                     "name the layers differently, or set another 'params'",
                     all[i]->name, m->nodes[all[i - 1]->node].name, m->nodes[all[i]->node].name);
        return FAIL(ERR_CONFIG, "two parameters are named '%s'", all[i]->name);
    }
    return ERR_NONE;
}

/* ---- the model ---------------------------------------------------------------------------- */

static enum error read_layers(struct model *m, struct node *list, struct config_errors *e, struct config_list *out) {
    int errors = config_errors_count(e);
    struct node root = {
        .kind = NODE_MAP, .items = &list, .count = 1, .source = list->source, .line = list->line, .col = list->col};
    enum error err = config_read(&layers_section, &root, m->pool, e, out);
    if (err != ERR_NONE && err != ERR_CONFIG) return err;
    if (err == ERR_NONE && (out->count < 1 || out->count > LAYERS_MAX))
        config_error(e, list, false, "a model has 1 to %d layers, not %d", LAYERS_MAX, out->count);
    return config_errors_count(e) > errors ? FAIL(ERR_CONFIG, "the model is not valid") : ERR_NONE;
}

/* Makes layers with their configurations from the spec. */
static enum error spec_read(struct model *m, const struct node *spec, int64_t classes, struct config_errors *e,
                            struct config_list *layers) {
    int errors = config_errors_count(e);
    struct node *list;
    TRY(spec_expand(spec, classes, m->pool, e, &list, &m->name));
    if (config_errors_count(e) > errors) return FAIL(ERR_CONFIG, "the model is not valid");
    return read_layers(m, list, e, layers);
}

enum error model_check(const struct node *spec, struct config_errors *e) {
    struct model m = {0};
    struct config_list layers = {0};
    TRY(pool_create(&m.pool));
    enum error err = spec_read(&m, spec, 1, e, &layers);
    pool_free(m.pool);
    return err;
}

static enum error model_fill(struct builder *b, const struct node *spec, int64_t classes) {
    struct model *m = b->m;
    int errors = config_errors_count(b->e);
    struct config_list layers = {0};
    TRY(spec_read(m, spec, classes, b->e, &layers));
    b->layers = layers.items;
    m->nnodes = layers.count;
    m->nodes = pool_alloc(m->pool, (size_t)m->nnodes * sizeof *m->nodes);
    b->read = pool_alloc(m->pool, (size_t)m->nnodes * sizeof *b->read);
    if (!m->nodes || !b->read) return ERR_MEMORY;
    TRY(nodes_connect(b));
    if (config_errors_count(b->e) > errors) return FAIL(ERR_CONFIG, "the model is not valid");
    TRY(nodes_plan(b));
    TRY(arenas_layout(m));
    return names_check(b);
}

enum error model_create(struct node *spec, const struct shape *input, int64_t classes, struct config_errors *e,
                        struct model **out) {
    struct pool *pool;
    TRY(pool_create(&pool));
    struct model *m = pool_alloc(pool, sizeof *m);
    enum error err = ERR_MEMORY;
    if (m) {
        *m = (struct model){.input = *input, .pool = pool};
        struct builder b = {.m = m, .e = e};
        err = model_fill(&b, spec, classes);
    }
    if (err == ERR_NONE)
        *out = m;
    else
        pool_free(pool);
    return err;
}

void model_free(struct model *m) {
    if (m) pool_free(m->pool);
}

/* ---- first values ------------------------------------------------------------------------- */

struct first { /* of tensor t */
    const struct tensor_info *info;
    struct rng_key key;
    uint64_t t;
    float *v;
};

/* Element k of tensor t is word k % 4 of counter (t, k / 4). */
static void init_uniform(const struct first *f, int64_t begin, int64_t end) {
    float bound = 1 / sqrtf((float)f->info->fan_in);
    for (int64_t k = begin; k < end; k += 4) {
        uint32_t words[4];
        rng_words(f->key, f->t, (uint64_t)k / 4, words);
        for (int64_t i = 0; i < 4 && k + i < end; i++) f->v[k + i] = (2 * rng_unit(words[i]) - 1) * bound;
    }
}

/* Elements [begin, end), begin a multiple of 4. */
static void init_part(void *ctx, int64_t begin, int64_t end) {
    const struct first *f = ctx;
    if (f->info->init == INIT_UNIFORM)
        init_uniform(f, begin, end);
    else if (f->info->init == INIT_NORMAL) {
        rng_normals(f->key, f->t, (uint64_t)begin, end - begin, f->v + begin);
        for (int64_t k = begin; k < end; k++) f->v[k] *= f->info->deviation;
    } else
        for (int64_t k = begin; k < end; k++) f->v[k] = f->info->init == INIT_ONE;
}

void model_init(const struct model *m, struct threads *threads, uint64_t seed, float *values, float *buffers) {
    enum { GRAIN = 1024 }; /* elements that are worth a thread */
    struct first f = {.key =
                          rng_key(seed, RNG_INIT)}; /* t: in forward order, so that it does not depend on the arena's */
    memset(values, 0, (size_t)m->arena_floats * sizeof *values);
    memset(buffers, 0, (size_t)m->buffer_floats * sizeof *buffers);
    for (int k = 0; k < m->nnodes; k++)
        for (int i = m->nodes[k].tied >= 0; i < m->nodes[k].plan.nparams; i++, f.t++) {
            f.info = &m->params[m->nodes[k].param[i]], f.v = values + f.info->offset;
            threads_share(threads, f.info->count, GRAIN, init_part, &f);
        }
    for (int i = 0; i < m->nbuffers; i++) {
        f.info = &m->buffers[i], f.t = 0, f.v = buffers + f.info->offset;
        init_part(&f, 0, f.info->count);
    }
}
