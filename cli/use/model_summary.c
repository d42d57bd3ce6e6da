/* engine model summary: a row for each layer, the totals, and the order of the gradients. */
#include "cli/use/model.h"

#include "engine/base/json.h"
#include "engine/base/text.h"
#include "engine/model/state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct summary_row { /* of one layer */
    const struct model_node *node;
    int64_t parameters;
    double forward, backward; /* operations of a sample */
    int64_t activations;      /* bytes of the whole batch: outputs, and what ops keep for backward */
    bool computed;            /* an op of its own; others are views, or parts of the one before */
};
struct summary_totals {
    int64_t weights, gradients, state, activations, activation_gradients, scratch; /* bytes */
    double forward, backward, again; /* operations of a sample; again: what is recomputed */
};

static void rows_fill(const struct model_view *v, struct summary_row *rows) {
    const struct model *m = v->network.model;
    for (int k = 0; k < m->nnodes; k++) rows[k] = (struct summary_row){.node = &m->nodes[k]};
    for (int i = 0; i < m->nparams; i++) rows[m->params[i].node].parameters += m->params[i].count;
    for (int s = 0; s < v->network.plan->nsteps; s++) {
        const struct plan_step *step = &v->network.plan->steps[s];
        if (step->node == NODE_LOSS) continue;
        struct summary_row *r = &rows[step->node];
        const struct plan_tensor *out = &v->network.plan->tensors[step->out];
        int64_t outputs = out->count * out->unit * v->data.samples;
        r->forward += op_flops(&step->desc, false);
        r->backward += op_flops(&step->desc, true);
        r->activations += outputs + (int64_t)step->op->saved_bytes;
        r->computed = true;
    }
}

static struct summary_totals totals_of(const struct model_view *v, const struct summary_row *rows) {
    const int64_t size = (int64_t)sizeof(float);
    struct summary_totals t = {.weights = v->network.model->parameters * size,
                               .gradients = v->network.model->parameters * size,
                               .activations = v->network.plan->activations,
                               .activation_gradients = v->network.plan->gradients,
                               .scratch = (int64_t)v->network.plan->scratch};
    t.again = v->network.plan->again_flops;
    double each = state_each(v->network.model, &v->settings.config.optimizer.kind);
    t.state = (int64_t)(each * (double)t.weights + 0.5);
    for (int k = 0; k < v->network.model->nnodes; k++) t.forward += rows[k].forward, t.backward += rows[k].backward;
    return t;
}

/* ---- for people --------------------------------------------------------------------------- */

static void row_print(const struct summary_row *r, int width) {
    char shape[96], parameters[32], bytes[32];
    shape_text(&r->node->plan.y, shape);
    printf("%-*s  %-10s  %-12s  %12s", width, r->node->name, r->node->layer->section.name, shape,
           r->parameters ? text_of_count(r->parameters, parameters) : "");
    if (r->computed)
        printf("  %10.3f  %10.3f  %10s\n", r->forward / 1e6, r->backward / 1e6,
               text_of_bytes((double)r->activations, bytes));
    else
        printf("  %36s\n", r->node->plan.view ? "a view" : "in the one before");
}

static void summary_print_bytes(const char *what, int64_t bytes, const char *of) {
    char text[32];
    printf("%-24s %s%s\n", what, text_of_bytes((double)bytes, text), of);
}

static void print_totals(const struct model_view *v, const struct summary_totals *t) {
    char n[32], of[64];
    printf("\nparameters               %s\n", text_of_count(v->network.model->parameters, n));
    printf("operations of a sample   %.3f MFLOP forward, %.3f backward\n", t->forward / 1e6, t->backward / 1e6);
    printf("operations of a step     %.3f GFLOP (%lld samples)\n",
           (t->forward + t->backward) * (double)v->data.samples / 1e9, (long long)v->data.samples);
    summary_print_bytes("weights", t->weights, "");
    summary_print_bytes("gradients", t->gradients, ", which every step shares");
    snprintf(of, sizeof of, " (%s)", optim_of(&v->settings.config.optimizer.kind)->section.name);
    summary_print_bytes("optimizer", t->state, of);
    snprintf(of, sizeof of, " for %lld samples", (long long)v->data.samples);
    summary_print_bytes("activations", t->activations, of);
    if (v->network.plan->stretches > 1) {
        summary_print_bytes("  without recomputation", v->network.plan->unstretched, "");
        printf("recomputed               %.3f MFLOP a sample, in %d stretches\n", t->again / 1e6,
               v->network.plan->stretches);
    }
    summary_print_bytes("their gradients", t->activation_gradients, "");
    summary_print_bytes("scratch", t->scratch, "");
    summary_print_bytes("all of it",
                        t->weights + t->gradients + t->state + t->activations + t->activation_gradients + t->scratch,
                        " on one device");
}

/* Parameters of a layer are ready together. */
static void summary_print_order(const struct model *m) {
    int64_t bytes = 0, all = 0;
    char part[32], sum[32];
    printf("\ngradients become ready in this order:\n");
    for (int i = 0; i < m->nparams; i++) {
        bytes += m->params[i].count * (int64_t)sizeof(float);
        if (i + 1 < m->nparams && m->params[i + 1].node == m->params[i].node) continue;
        all += bytes;
        printf("  %-52s %10s  %10s so far\n", m->nodes[m->params[i].node].name, text_of_bytes((double)bytes, part),
               text_of_bytes((double)all, sum));
        bytes = 0;
    }
}

static void summary_print(const struct model_view *v, const struct summary_row *rows, const struct summary_totals *t) {
    const struct model *m = v->network.model;
    int width = 5;
    char shape[96];
    for (int k = 0; k < m->nnodes; k++)
        if ((int)strlen(m->nodes[k].name) > width) width = (int)strlen(m->nodes[k].name);
    printf("%s: input %s, %lld classes, %lld samples at once\n\n", v->title, shape_text(&v->data.input, shape),
           (long long)v->data.classes, (long long)v->data.samples);
    printf("%-*s  %-10s  %-12s  %12s  %10s  %10s  %10s\n", width, "layer", "kind", "output", "parameters", "MFLOP fwd",
           "bwd", "activations");
    for (int k = 0; k < m->nnodes; k++) row_print(&rows[k], width);
    print_totals(v, t);
    summary_print_order(m);
}

/* ---- for programs ------------------------------------------------------------------------- */

static void row_json(struct json *j, const struct summary_row *r) {
    json_open(j, NULL, '{');
    json_put(j, JSON_TEXT("name", r->node->name), JSON_TEXT("kind", r->node->layer->section.name));
    json_ints(j, "output", r->node->plan.y.dim, r->node->plan.y.ndim);
    json_put(j, JSON_INT("parameters", r->parameters), JSON_REAL("flops_forward", r->forward),
             JSON_REAL("flops_backward", r->backward), JSON_INT("activation_bytes", r->activations));
    json_close(j, '}');
}

static void put_totals(struct json *j, const struct model_view *v, const struct summary_totals *t) {
    json_put(j, JSON_INT("parameters", v->network.model->parameters), JSON_REAL("flops_forward", t->forward),
             JSON_REAL("flops_backward", t->backward),
             JSON_REAL("flops_step", (t->forward + t->backward) * (double)v->data.samples),
             JSON_REAL("flops_recomputed", t->again), JSON_INT("stretches", v->network.plan->stretches));
    json_object(j, "bytes", JSON_INT("weights", t->weights), JSON_INT("gradients", t->gradients),
                JSON_INT("optimizer", t->state), JSON_INT("activations", t->activations),
                JSON_INT("activations_without_recomputation", v->network.plan->unstretched),
                JSON_INT("activation_gradients", t->activation_gradients), JSON_INT("scratch", t->scratch));
}

static void summary_put_order(struct json *j, const struct model *m) {
    int64_t all = 0;
    json_array(j, "ready", i, m->nparams) {
        int64_t bytes = m->params[i].count * (int64_t)sizeof(float);
        all += bytes;
        json_open(j, NULL, '{');
        json_string(j, "parameter", m->params[i].name);
        json_ints(j, "shape", m->params[i].shape.dim, m->params[i].shape.ndim);
        json_put(j, JSON_INT("bytes", bytes), JSON_INT("bytes_so_far", all));
        json_close(j, '}');
    }
}

static enum error summary_print_json(const struct model_view *v, const struct summary_row *rows,
                                     const struct summary_totals *t, const char *gpu) {
    struct json j = {0};
    json_open(&j, NULL, '{');
    json_string(&j, "model", v->title);
    json_ints(&j, "input", v->data.input.dim, v->data.input.ndim);
    json_put(&j, JSON_INT("classes", v->data.classes), JSON_INT("samples", v->data.samples));
    json_array(&j, "layers", k, v->network.model->nnodes) row_json(&j, &rows[k]);
    put_totals(&j, v, t);
    summary_put_order(&j, v->network.model);
    if (gpu) model_cost_put(v, gpu, &j);
    enum error err = v->shares ? model_memory(v, &j) : ERR_NONE;
    json_close(&j, '}');
    return cli_json(err, &j, stdout);
}

enum error model_summarize(const struct model_view *v, const char *gpu, bool json) {
    struct summary_row *rows = calloc((size_t)v->network.model->nnodes, sizeof *rows);
    if (!rows) return FAIL(ERR_MEMORY, "cannot allocate a table");
    rows_fill(v, rows);
    struct summary_totals t = totals_of(v, rows);
    enum error err = ERR_NONE;
    if (json)
        err = summary_print_json(v, rows, &t, gpu);
    else
        summary_print(v, rows, &t);
    if (gpu && !json) model_cost_print(v, gpu);
    if (v->shares && !json) err = model_memory(v, NULL);
    free(rows);
    return err;
}
