/* What 'engine bench comm' prints: nccl-tests' table, or JSON, with the fitted cost model. */
#include "cli/bench/bench.h"
#include "engine/base/file.h"
#include "engine/base/json.h"
#include "engine/base/text.h"
#include "lab/numbers/fit.h"

/* ---- the model ---- */

void bench_fit(struct bench_series *s) {
    struct fit_point points[BENCH_SIZES];
    for (int i = 0; i < s->rows; i++) points[i] = (struct fit_point){(double)s->row[i].bytes, s->row[i].seconds, 1};
    struct fit f = fit_line(points, s->rows);
    s->alpha = f.alpha, s->beta = f.beta;
    for (int i = 0; i < s->rows; i++) s->row[i].model = s->alpha + s->beta * (double)s->row[i].bytes;
}

/* ---- figures ---- */

static double bench_algorithm_bandwidth(const struct bench_row *r) {
    return r->seconds > 0 ? (double)r->bytes / r->seconds * 1e-9 : 0;
}

static double bench_bus_bandwidth(const struct bench_comm *o, const struct bench_row *r) {
    return bench_algorithm_bandwidth(r) * bench_bus_factor(o->collective, o->ranks);
}

static const char *bench_op_text(const struct bench_comm *o) {
    return o->collective->adds ? redop_name(o->op) : "none";
}

static const char *bench_order_name(const struct bench_series *s) {
    return s->order == ORDER_RING ? "ring" : "tree";
}

/* ---- the table ---- */

static void bench_print_head(const struct bench_comm *o, FILE *out) {
    char latency[32];
    fprintf(out, "# %s over %s, %lld rank%s", o->collective->name, o->link->row->name, (long long)o->ranks,
            o->ranks == 1 ? "" : "s");
    if (emulation_on(&o->emulate)) fprintf(out, ", EMULATED ports:");
    if (o->emulate.bandwidth > 0) fprintf(out, " %g Mbit/s", o->emulate.bandwidth * 8e-6);
    if (o->emulate.up > 0) fprintf(out, " up %g Mbit/s", o->emulate.up * 8e-6);
    if (o->emulate.latency > 0) fprintf(out, " latency %s", text_of_seconds(o->emulate.latency, latency));
    if (o->secure) fprintf(out, ", %s", o->secure == SECURE_OFF ? "not sealed" : secure_names[o->secure]);
    fprintf(out, "; busbw = algbw * %.4g\n", bench_bus_factor(o->collective, o->ranks));
    fprintf(out, "#%11s %11s %5s %5s %17s %12s %11s %11s %7s %12s %7s\n", "size(B)", "count", "type", "op", "algorithm",
            "time(us)", "algbw(GB/s)", "busbw(GB/s)", "wrong", "model(us)", "off");
}

static void bench_row_print(const struct bench_comm *o, const struct bench_row *r, FILE *out) {
    fprintf(out, " %11lld %11lld %5s %5s %17s %12.2f %11.3f %11.3f %7lld %12.2f %+6.0f%%\n", (long long)r->bytes,
            (long long)r->count, dtype_name(o->type), bench_op_text(o), r->algorithm, r->seconds * 1e6,
            bench_algorithm_bandwidth(r), bench_bus_bandwidth(o, r), (long long)r->wrong, r->model * 1e6,
            r->seconds > 0 ? (r->model / r->seconds - 1) * 100 : 0);
}

static void bench_print_table(const struct bench_comm *o, const struct bench_series *series, int n, FILE *out) {
    bench_print_head(o, out);
    for (int i = 0; i < n; i++) {
        const struct bench_series *s = &series[i];
        for (int k = 0; k < s->rows; k++) bench_row_print(o, &s->row[k], out);
        fprintf(out, "# %s, %s order: alpha %.3g us", s->algorithm, bench_order_name(s), s->alpha * 1e6);
        if (s->beta > 0) fprintf(out, ", beta %.4g ns/KB (%.3f GB/s)", s->beta * 1024e9, 1e-9 / s->beta);
        fprintf(out, "\n");
    }
}

/* ---- for programs ---- */

static void bench_row_json(const struct bench_comm *o, const struct bench_row *r, struct json *j) {
    json_object(j, NULL, JSON_TEXT("algorithm", r->algorithm), JSON_INT("bytes", r->bytes), JSON_INT("count", r->count),
                JSON_REAL("time_s", r->seconds), JSON_REAL("algbw_gbs", bench_algorithm_bandwidth(r)),
                JSON_REAL("busbw_gbs", bench_bus_bandwidth(o, r)), JSON_INT("wrong", r->wrong),
                JSON_REAL("model_s", r->model));
}

static void bench_series_json(const struct bench_comm *o, const struct bench_series *s, struct json *j) {
    json_open(j, NULL, '{');
    json_put(j, JSON_TEXT("algorithm", s->algorithm), JSON_TEXT("order", bench_order_name(s)),
             JSON_REAL("alpha_s", s->alpha), JSON_REAL("beta_s_per_byte", s->beta));
    json_array(j, "rows", k, s->rows) bench_row_json(o, &s->row[k], j);
    json_close(j, '}');
}

static void bench_put_json(const struct bench_comm *o, const struct bench_series *series, int n, struct json *j) {
    json_open(j, NULL, '{');
    json_put(j, JSON_TEXT("collective", o->collective->name), JSON_TEXT("link", o->link->row->name),
             JSON_INT("ranks", o->ranks), JSON_TEXT("type", dtype_name(o->type)), JSON_TEXT("op", bench_op_text(o)),
             JSON_TEXT("secure", secure_names[o->secure]), JSON_REAL("emulated_bytes_per_s", o->emulate.bandwidth),
             JSON_REAL("emulated_up_bytes_per_s", o->emulate.up), JSON_REAL("emulated_latency_s", o->emulate.latency));
    json_array(j, "results", i, n) bench_series_json(o, &series[i], j);
    json_close(j, '}');
}

enum error bench_report(const struct bench_comm *o, const struct bench_series *series, int n, FILE *out) {
    struct json j = {0};
    bench_put_json(o, series, n, &j);
    enum error err = json_done(&j);
    if (err == ERR_NONE && o->save) err = file_replace(o->save, j.text, j.length);
    if (err == ERR_NONE && o->json)
        err = cli_json(ERR_NONE, &j, out);
    else
        json_fini(&j);
    if (err != ERR_NONE) return err;
    if (!o->json) bench_print_table(o, series, n, out);
    return fflush(out) == 0 ? ERR_NONE : FAIL(ERR_IO, "cannot write the table");
}
