/* metrics.jsonl: one JSON object a line, every step one. Written through a buffer and flushed when
 * something happens, and a few times a second for those who follow it; a full disk costs metrics,
 * never the run. */
#include "engine/train/internal.h"

#include "engine/base/clock.h"
#include "engine/base/log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEEP_TIMES = 1 << 16, FLUSH_NS = 250000000 }; /* of the last steps, for the percentiles */
struct metrics {
    FILE *file;
    char buffer[1 << 16];
    bool failed;
    int64_t count, capacity, flushed;
    float *times;
};

enum error metrics_open(const char *run_dir, int64_t steps, struct metrics **out) {
    char path[4096];
    snprintf(path, sizeof path, "%s/metrics.jsonl", run_dir);
    struct metrics *m = calloc(1, sizeof *m);
    if (!m) return FAIL(ERR_MEMORY, "no memory for metrics");
    m->capacity = steps < KEEP_TIMES ? (steps > 0 ? steps : 1) : KEEP_TIMES;
    m->times = malloc((size_t)m->capacity * sizeof *m->times);
    m->file = fopen(path, "ae");
    if (!m->times || !m->file) {
        enum error err = FAIL(ERR_CREATE, "cannot create '%s': %s", path, strerror(errno));
        metrics_close(m);
        return err;
    }
    setvbuf(m->file, m->buffer, _IOFBF, sizeof m->buffer);
    *out = m;
    return ERR_NONE;
}

static void check(struct metrics *m) {
    if (!m->failed && ferror(m->file)) {
        log_warn("metrics.jsonl cannot be written: %s", strerror(errno));
        m->failed = true;
    }
}

void metrics_step(struct metrics *m, const struct step_record *r) {
    fprintf(m->file,
            "{\"step\":%lld,\"epoch\":%lld,\"loss\":%.9g,\"accuracy\":%.6g,\"lr\":%.9g,\"grad_"
            "norm\":%.6g,"
            "\"samples\":%.0f,\"ms\":%.4f",
            (long long)r->step, (long long)r->epoch, (double)r->loss, (double)r->accuracy, r->lr,
            r->norm, r->samples, r->ms);
    static const char *const names[PHASES] = {"load", "forward", "backward", "comm", "update"};
    for (int i = 0; i < PHASES; i++)
        fprintf(m->file, "%s\"%s\":%.4f", i ? "," : ",\"phase_ms\":{", names[i], r->phase_ms[i]);
    fputc('}', m->file);
    if (r->loss_scale > 0) fprintf(m->file, ",\"loss_scale\":%.9g", r->loss_scale);
    fputs(r->skipped ? ",\"skipped\":true}\n" : "}\n", m->file);
    m->times[m->count++ % m->capacity] = (float)r->ms;
    check(m);
    int64_t now = clock_ns();
    if (now - m->flushed < FLUSH_NS) return;
    m->flushed = now;
    metrics_flush(m);
}

void metrics_start(struct metrics *m, int64_t step, int64_t steps, int64_t per_epoch) {
    fprintf(m->file, "{\"step\":%lld,\"event\":\"started\",\"steps\":%lld,\"per_epoch\":%lld}\n",
            (long long)step, (long long)steps, (long long)per_epoch);
    metrics_flush(m);
}

static void put_line(struct metrics *m, struct json *j) {
    if (json_done(j) == ERR_NONE) fprintf(m->file, "%s\n", j->text);
    json_fini(j);
    metrics_flush(m);
}

void metrics_val(struct metrics *m, int64_t step, const struct val_result *v) {
    struct json j;
    json_init(&j);
    json_open(&j, NULL, '{');
    json_int(&j, "step", step);
    val_json(v, "val", &j);
    json_close(&j, '}');
    put_line(m, &j);
}

void metrics_event(struct metrics *m, int64_t step, const char *event, const char *text) {
    struct json j;
    json_init(&j);
    json_open(&j, NULL, '{');
    json_int(&j, "step", step);
    json_string(&j, "event", event);
    if (text) json_string(&j, "text", text);
    json_close(&j, '}');
    put_line(m, &j);
}

void metrics_flush(struct metrics *m) {
    fflush(m->file);
    check(m);
}

static int compare(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

void metrics_percentiles(struct metrics *m, double *p50, double *p95) {
    int64_t n = m->count < m->capacity ? m->count : m->capacity;
    *p50 = *p95 = 0;
    if (n == 0) return;
    qsort(m->times, (size_t)n, sizeof *m->times, compare);
    *p50 = (double)m->times[n / 2];
    *p95 = (double)m->times[(n - 1) * 95 / 100];
}

void metrics_close(struct metrics *m) {
    if (!m) return;
    if (m->file) fclose(m->file);
    free(m->times);
    free(m);
}
