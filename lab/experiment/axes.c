/* The question of an experiment and the places where it is asked: named sides, and the axes of the matrix. */
#include "lab/experiment/impl.h"

#include <string.h>

/* "cpu:2"; of a map "zoo=lenet depth=2". */
static const char *axis_label_of(struct pool *pool, const struct node *value) {
    enum { SHOWN = 4 };
    struct result_setting in[SHOWN];
    char *label = value->kind == NODE_SCALAR ? pool_printf(pool, "%.60s", value->text) : NULL;
    int n = label ? 0 : result_flatten(value, pool, in, SHOWN);
    for (int i = 0; i < n; i++)
        label = pool_printf(pool, "%s%s%s=%s", label ? label : "", label ? " " : "", in[i].key, in[i].value);
    if (label && strlen(label) >= EXPERIMENT_LABEL - 8) label[EXPERIMENT_LABEL - 8] = '\0';
    for (char *c = label; c && *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f) *c = '?';
    return label ? label : "(nothing)";
}

enum error experiment_axis_add(struct experiment_reader *r, struct experiment_axis *axis, const struct node *value) {
    const char *label = axis_label_of(r->x->pool, value);
    int same = 1;
    for (int i = 0; i < axis->count; i++) {
        size_t n = strlen(label);
        const char *other = axis->label[i];
        same += !strncmp(other, label, n) && (!other[n] || other[n] == '#');
    }
    if (same > 1) label = pool_printf(r->x->pool, "%s#%d", label, same);
    if (!label) return ERR_MEMORY;
    axis->value[axis->count] = value;
    axis->label[axis->count++] = label;
    return ERR_NONE;
}

static enum error read_axis(struct experiment_reader *r, const struct node *values) {
    struct experiment *x = r->x;
    if (x->naxes == EXPERIMENT_AXES) {
        config_error(r->e, values, true, "more than %d axes", EXPERIMENT_AXES);
        return ERR_NONE;
    }
    struct experiment_axis *axis = &x->axis[x->naxes++];
    axis->key = values->key;
    if (values->kind != NODE_LIST || values->count == 0 || values->count > EXPERIMENT_VALUES) {
        config_error(r->e, values, false, "matrix: '%s' needs a list of 1 to %d values\nfor example mode: [dp, ddp]",
                     values->key, EXPERIMENT_VALUES);
        return ERR_NONE;
    }
    for (int i = 0; i < values->count; i++) TRY(experiment_axis_add(r, axis, values->items[i]));
    return ERR_NONE;
}

static enum error read_matrix(struct experiment_reader *r, const struct node *matrix) {
    int first = r->x->naxes;
    if (matrix->kind != NODE_MAP || matrix->count == 0) {
        config_error(r->e, matrix, false, "the matrix is empty: nothing to compare\nmatrix: {mode: [dp, ddp]}");
        return ERR_NONE;
    }
    for (int i = 0; i < matrix->count; i++) TRY(read_axis(r, matrix->items[i]));
    if (first == 0 && r->x->axis[0].count == 1 && !(r->search && r->search->alone))
        config_error(r->e, matrix->items[0], false, "the first axis, '%s', is compared: it needs two or more values",
                     r->x->axis[0].key);
    return ERR_NONE;
}

/* ---- named sides ---- */

void experiment_ask(struct experiment_reader *r, const struct node *at, const char *key) {
    struct experiment *x = r->x;
    int n = 0;
    for (; x->asked[n]; n++)
        if (!strcmp(x->asked[n], key)) return;
    if (n == EXPERIMENT_ASKED)
        config_error(r->e, at, true, "the sides set, and 'tune' tries, more than %d keys", EXPERIMENT_ASKED);
    else
        x->asked[n] = key;
}

static void axis_read_side(struct experiment_reader *r, const struct node *side) {
    struct experiment_axis *axis = &r->x->axis[0];
    char *label = pool_printf(r->x->pool, "%.60s", side->key);
    for (char *c = label; c && *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f) *c = '?';
    if (side->kind != NODE_MAP || axis->count == EXPERIMENT_VALUES)
        config_error(r->e, side, false,
                     "sides: '%.60s' needs a map of keys\nfor example int8: {mode: ddp, comm.compress: int8}",
                     side->key);
    for (int i = 0; i < side->count && side->kind == NODE_MAP; i++)
        experiment_ask(r, side->items[i], side->items[i]->key);
    if (!label || axis->count == EXPERIMENT_VALUES) return;
    axis->value[axis->count] = side, axis->label[axis->count++] = label;
}

static void axis_read_sides(struct experiment_reader *r, const struct node *sides) {
    struct experiment_axis *axis = &r->x->axis[r->x->naxes++];
    *axis = (struct experiment_axis){.key = "side", .named = true};
    if (sides->kind != NODE_MAP || sides->count < 2 || sides->count > EXPERIMENT_VALUES) {
        config_error(r->e, sides, false,
                     "'sides' names 2 to %d sides, each with its keys\nsides: {dp: {mode: dp}, ddp: {mode: ddp}}",
                     EXPERIMENT_VALUES);
        return;
    }
    for (int i = 0; i < sides->count; i++) axis_read_side(r, sides->items[i]);
}

/* A side and an axis that set the same key would overrule each other. */
static void check_axes(struct experiment_reader *r, const struct node *matrix) {
    const struct experiment *x = r->x;
    for (int a = 1; a < x->naxes; a++)
        for (int k = 0; x->asked[k]; k++)
            if (!strcmp(x->asked[k], x->axis[a].key))
                config_error(r->e, node_get(matrix, x->axis[a].key), true, "'%s' is already set by sides", x->asked[k]);
}

/* What is only tuned may have no sides: it is one. */
static enum error axis_whole(struct experiment_reader *r) {
    static const struct node nothing = {.kind = NODE_MAP, .source = "default"};
    struct experiment_axis *axis = &r->x->axis[r->x->naxes++];
    *axis = (struct experiment_axis){.key = "side", .named = true, .count = 1};
    axis->value[0] = &nothing, axis->label[0] = r->x->name;
    return ERR_NONE;
}

enum error experiment_axes(struct experiment_reader *r, const struct node *root, const struct node *sides,
                           const struct node *matrix) {
    bool alone = r->search && r->search->alone;
    if (!sides && !matrix && alone) return axis_whole(r);
    if (!sides && !matrix)
        config_error(r->e, root, false,
                     "there is neither a matrix nor sides: nothing to compare\nmatrix: {mode: [dp, ddp]}");
    if (sides) axis_read_sides(r, sides);
    if (matrix) TRY(read_matrix(r, matrix));
    if (sides)
        check_axes(r, matrix);
    else if (r->x->naxes)
        experiment_ask(r, matrix, r->x->axis[0].key);
    return ERR_NONE;
}
