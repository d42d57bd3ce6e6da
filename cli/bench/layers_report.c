/* What 'engine bench layers' says: the same numbers as a table or as JSON. */
#include "cli/bench/layers.h"

#include "engine/base/text.h"
#include "engine/model/graph.h"

static const char *const layouts[] = {"plain", "blocked", "last"};

static bool layers_is_fused_act(const struct op_desc *d) {
    return !op_row(d->kind)->activates && d->act != ACT_NONE;
}

/* "conv2d+relu+maxpool" */
static void layers_op_text(const struct op_desc *d, char out[64]) {
    bool own = op_row(d->kind)->activates;
    snprintf(out, 64, "%s%s%s%s", own ? "" : op_row(d->kind)->name, layers_is_fused_act(d) ? "+" : "",
             own || layers_is_fused_act(d) ? act_name(d->act) : "", d->conv.maxpool ? "+maxpool" : "");
}

struct layers_totals {
    double seconds[2], flops[2], bytes[2];
};

static struct layers_totals totals_of(const struct layers_result *r) {
    struct layers_totals t = {0};
    for (int i = 0; i < r->count; i++)
        for (int b = 0; b < 2; b++) {
            t.seconds[b] += r->rows[i].seconds[b];
            t.flops[b] += r->rows[i].step.flops[b];
            t.bytes[b] += r->rows[i].step.bytes[b];
        }
    return t;
}

static double layers_per_second(double amount, double seconds) {
    return seconds > 0 ? amount / seconds : 0;
}

/* ---- for people ---- */

static void layers_print_rates(const struct layers_result *r, const double flops[2], const double seconds[2],
                               double all, FILE *out) {
    double now = layers_per_second(flops[0] + flops[1], seconds[0] + seconds[1]);
    fprintf(out, "%9.3f %9.3f %6.1f %%", seconds[0] * 1e3, seconds[1] * 1e3,
            layers_per_second((seconds[0] + seconds[1]) * 100, all));
    if (now > 0)
        fprintf(out, " %9.1f %6.1f %%", now * 1e-9, now / r->gemm * 100);
    else
        fprintf(out, " %9s %8s", "-", "-");
}

static void layers_row_print(const struct layers_result *r, const struct layer_row *row, double all, FILE *out) {
    const struct graph_step *s = &row->step;
    char op[64], shape[96], bytes[32];
    layers_op_text(s->desc, op);
    fprintf(out, "%-22.40s %-24s %-10s %-7s %-12s ", s->name, op, s->impl, layouts[s->desc->y_layout],
            shape_text(&s->desc->y, shape));
    layers_print_rates(r, s->flops, row->seconds, all, out);
    fprintf(out, " %9s\n", text_of_bytes(s->bytes[0] + s->bytes[1], bytes));
}

static void layers_print_head(const struct layers_result *r, FILE *out) {
    fprintf(out,
            "%s, input %s, %lld classes, batch %lld, %s, %lld thread%s%s%s; medians of %d passes "
            "(%s)\n",
            r->model, r->input, (long long)r->classes, (long long)r->n, precision_name(r->precision),
            (long long)r->threads, r->threads == 1 ? "" : "s", r->isa ? ", level " : "", r->isa ? r->isa : "",
            r->passes, r->processor ? "processor time" : "time");
    fprintf(out, "peak %.1f GFLOP/s: a product of %d x %d in %s\n\n", r->gemm * 1e-9, r->side, r->side,
            precision_name(r->precision));
    fprintf(out, "%-22s %-24s %-10s %-7s %-12s %9s %9s %8s %9s %8s %9s\n", "layer", "op", "by", "layout", "out",
            "fwd ms", "bwd ms", "share", "GFLOP/s", "of peak", "bytes");
}

static void layers_print_table(const struct layers_result *r, FILE *out) {
    struct layers_totals t = totals_of(r);
    double all = t.seconds[0] + t.seconds[1];
    char bytes[32];
    layers_print_head(r, out);
    for (int i = 0; i < r->count; i++) layers_row_print(r, &r->rows[i], all, out);
    fprintf(out, "%-22s %-24s %-10s %-7s %-12s ", "all layers", "", "", "", "");
    layers_print_rates(r, t.flops, t.seconds, all, out);
    fprintf(out, " %9s\n", text_of_bytes(t.bytes[0] + t.bytes[1], bytes));
    fprintf(out, "whole passes: forward %.3f ms, backward %.3f ms; %d layer%s fused into others\n", r->pass[0] * 1e3,
            r->pass[1] * 1e3, r->fused, r->fused == 1 ? " is" : "s are");
}

/* ---- for programs ---- */

static void layers_json_pair(struct json *j, const char *key, const double v[2], double unit) {
    json_array(j, key, b, 2) json_real(j, NULL, v[b] * unit);
}

static void layers_row_json(const struct layers_result *r, const struct layer_row *row, struct json *j) {
    const struct graph_step *s = &row->step;
    double now = layers_per_second(s->flops[0] + s->flops[1], row->seconds[0] + row->seconds[1]);
    char op[64], shape[96];
    layers_op_text(s->desc, op);
    json_open(j, NULL, '{');
    json_put(j, JSON_TEXT("layer", s->name), JSON_TEXT("op", op), JSON_TEXT("kind", op_row(s->desc->kind)->name),
             JSON_BOOL("fused", layers_is_fused_act(s->desc) || s->desc->conv.maxpool), JSON_TEXT("by", s->impl),
             JSON_TEXT("layout", layouts[s->desc->y_layout]), JSON_TEXT("out", shape_text(&s->desc->y, shape)),
             JSON_REAL("forward_ms", row->seconds[0] * 1e3), JSON_REAL("backward_ms", row->seconds[1] * 1e3));
    layers_json_pair(j, "flops", s->flops, 1);
    layers_json_pair(j, "bytes", s->bytes, 1);
    json_real(j, "gflops", now * 1e-9);
    json_real(j, "of_peak", now / r->gemm);
    json_close(j, '}');
}

static enum error layers_print_json(const struct layers_result *r, FILE *out) {
    struct layers_totals t = totals_of(r);
    struct json j = {0};
    json_open(&j, NULL, '{');
    json_put(&j, JSON_TEXT("model", r->model), JSON_TEXT("input", r->input), JSON_INT("classes", r->classes),
             JSON_INT("batch", r->n), JSON_TEXT("precision", precision_name(r->precision)),
             JSON_INT("threads", r->threads), JSON_TEXT("isa", r->isa), JSON_INT("passes", r->passes),
             JSON_REAL("gemm_gflops", r->gemm * 1e-9), JSON_INT("fused", r->fused));
    json_array(&j, "layers", i, r->count) layers_row_json(r, &r->rows[i], &j);
    layers_json_pair(&j, "layers_ms", t.seconds, 1e3);
    layers_json_pair(&j, "passes_ms", r->pass, 1e3);
    layers_json_pair(&j, "flops", t.flops, 1);
    json_real(&j, "gflops", layers_per_second(t.flops[0] + t.flops[1], r->pass[0] + r->pass[1]) * 1e-9);
    json_close(&j, '}');
    return cli_json(ERR_NONE, &j, out);
}

enum error layers_report(const struct layers_result *r, FILE *out) {
    if (r->json)
        TRY(layers_print_json(r, out));
    else
        layers_print_table(r, out);
    return ERR_NONE;
}
