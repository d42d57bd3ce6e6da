/* metrics.jsonl: one JSON object a line, a step, a validation or an event. What others read while
 * the run goes and after it: the dashboard, comparisons, reports. */
#include "engine/settings/job.h"
#include "engine/tell/tell.h"

#include <math.h>
#include <stdlib.h>

static enum error jsonl_open(const struct sink_place *p, void **out) {
    struct sink_file *file = calloc(1, sizeof *file);
    if (!file) return FAIL(ERR_MEMORY, "no memory for metrics.jsonl");
    enum error err = sink_file_open(file, p->run_dir, "metrics.jsonl");
    if (err != ERR_NONE) free(file);
    *out = err == ERR_NONE ? file : NULL;
    return err;
}

/* JSON knows no number that is not finite. */
static void jsonl_put(FILE *f, const char *before, const char *form, double v) {
    fputs(before, f);
    if (isfinite(v))
        fprintf(f, form, v);
    else
        fputs("null", f);
}

static void jsonl_put_usage(FILE *f, const struct usage_sample *u) {
    jsonl_put(f, ",\"system\":{\"seconds\":", "%.4f", u->seconds);
    jsonl_put(f, ",\"cores\":", "%.3f", u->cores);
    jsonl_put(f, ",\"rss_bytes\":", "%.0f", u->rss_bytes);
    if (!isnan(u->watts)) jsonl_put(f, ",\"watts\":", "%.3f", u->watts);
    fputc('}', f);
}

static enum error jsonl_step(void *sink, const struct step_record *r) {
    const struct sink_file *file = sink;
    FILE *f = file->f;
    fprintf(f, "{\"step\":%lld,\"epoch\":%lld", (long long)r->step, (long long)r->epoch);
    jsonl_put(f, ",\"loss\":", "%.9g", (double)r->loss);
    jsonl_put(f, ",\"accuracy\":", "%.6g", (double)r->accuracy);
    jsonl_put(f, ",\"lr\":", "%.9g", r->lr);
    jsonl_put(f, ",\"grad_norm\":", "%.6g", r->norm);
    jsonl_put(f, ",\"samples\":", "%.0f", r->samples);
    jsonl_put(f, ",\"ms\":", "%.4f", r->ms);
    for (int i = 0; i < PHASES; i++) {
        fprintf(f, "%s\"%s\"", i ? "," : ",\"phase_ms\":{", phase_names[i].metric);
        jsonl_put(f, ":", "%.4f", r->phase_ms[i]);
    }
    fputc('}', f);
    if (isfinite(r->noise)) jsonl_put(f, ",\"gradient_noise\":", "%.9g", r->noise);
    if (isfinite(r->noise)) jsonl_put(f, ",\"gradient_signal\":", "%.9g", r->signal);
    if (r->loss_scale > 0) jsonl_put(f, ",\"loss_scale\":", "%.9g", r->loss_scale);
    if (r->usage.seconds > 0) jsonl_put_usage(f, &r->usage);
    fputs(r->skipped ? ",\"skipped\":true}\n" : "}\n", f);
    return sink_file_check(file);
}

static enum error jsonl_put_line(const struct sink_file *file, struct json *j) {
    enum error err = json_done(j);
    if (err == ERR_NONE) fprintf(file->f, "%s\n", j->text);
    json_fini(j);
    return err ? err : sink_file_check(file);
}

static enum error jsonl_val(void *sink, int64_t step, const struct val_result *v) {
    struct json j = {0};
    json_open(&j, NULL, '{');
    json_int(&j, "step", step);
    val_json(v, "val", &j);
    json_close(&j, '}');
    return jsonl_put_line(sink, &j);
}

static void jsonl_put_change(struct json *j, const struct sink_event *e) {
    json_int(j, "from", e->change->from);
    json_int(j, "to", e->change->to);
    json_array(j, "lost", i, e->change->nlost) json_int(j, NULL, e->change->lost[i]);
    json_real(j, "seconds", e->seconds);
}

static enum error jsonl_event(void *sink, const struct sink_event *e) {
    struct json j = {0};
    json_open(&j, NULL, '{');
    json_int(&j, "step", e->step);
    json_string(&j, "event", e->name);
    if (e->run_id) json_string(&j, "run_id", e->run_id);
    if (e->steps > 0) json_int(&j, "steps", e->steps);
    if (e->budget > 0) {
        json_real(&j, "budget_s", e->budget);
        json_real(&j, "train_s", e->seconds);
    }
    if (e->per_epoch > 0) json_int(&j, "per_epoch", e->per_epoch);
    if (e->text) json_string(&j, "text", e->text);
    if (e->change) jsonl_put_change(&j, e);
    json_close(&j, '}');
    return jsonl_put_line(sink, &j);
}

static enum error jsonl_flush(void *sink, bool settled) {
    (void)settled;
    return sink_file_flush(sink);
}

static void jsonl_close(void *sink) {
    sink_file_close(sink);
    free(sink);
}

const struct sink_ops sink_jsonl = {.name = "jsonl",
                                    .open = jsonl_open,
                                    .step = jsonl_step,
                                    .val = jsonl_val,
                                    .event = jsonl_event,
                                    .flush = jsonl_flush,
                                    .close = jsonl_close};
