/* metrics.csv, by RFC 4180: one row a step, in order, each step once. A row is kept back until its
 * step is complete, since validation fills its last columns; where it had to be written before
 * (a checkpoint needs all steps up to its own), validation writes it again in its place. A resumed
 * run goes on after the step that it resumes from: rows that will come again are taken out. */
#include "engine/tell/tell.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COLUMN(key, ...) ",val_" #key
static const char header[] =
    "step,epoch,loss,accuracy,lr,grad_norm,samples,ms,load_ms,forward_ms,backward_ms,comm_ms,"
    "update_ms,loss_scale,skipped,cores,rss_bytes,watts" VAL_METRICS_LIST(COLUMN) ",val_samples\r\n";
#undef COLUMN

enum { ROW = 512, STEP_COLUMNS = 18 };
struct csv_sink {
    struct sink_file file;
    int64_t step;  /* of the last row; -1: there is none */
    char row[ROW]; /* its columns of the step: "1,0,2.3,...,0" */
    struct val_result val;
    bool has_val, written; /* written: as it is now, at 'at' */
    off_t at, end;         /* where the last row begins; what has been written ends */
};

static enum error file_cut(const struct csv_sink *c) {
    if (ftruncate(fileno(c->file.f), c->end) == 0) return ERR_NONE;
    return FAIL(ERR_IO, "metrics.csv cannot be cut: %s", strerror(errno));
}

/* ---- rows ---- */

static int cell_put(char *to, int n, const char *form, double v) {
    if (!isfinite(v)) return n + snprintf(to + n, (size_t)(ROW - n), ",");
    return n + snprintf(to + n, (size_t)(ROW - n), form, v);
}

static void format_step(char *to, const struct step_record *r) {
    int n = snprintf(to, ROW, "%lld,%lld", (long long)r->step, (long long)r->epoch);
    n = cell_put(to, n, ",%.9g", (double)r->loss);
    n = cell_put(to, n, ",%.6g", (double)r->accuracy);
    n = cell_put(to, n, ",%.9g", r->lr);
    n = cell_put(to, n, ",%.6g", r->norm);
    n = cell_put(to, n, ",%.0f", r->samples);
    n = cell_put(to, n, ",%.4f", r->ms);
    for (int i = 0; i < PHASES; i++) n = cell_put(to, n, ",%.4f", r->phase_ms[i]);
    n = cell_put(to, n, ",%.9g", r->loss_scale > 0 ? r->loss_scale : (double)NAN);
    n = cell_put(to, n, ",%.0f", r->skipped);
    bool taken = r->usage.seconds > 0;
    n = cell_put(to, n, ",%.3f", taken ? r->usage.cores : (double)NAN);
    n = cell_put(to, n, ",%.0f", taken ? r->usage.rss_bytes : (double)NAN);
    cell_put(to, n, ",%.3f", taken ? r->usage.watts : (double)NAN);
}

static void format_val(char *to, const struct val_result *v) {
    int n = 0;
    for (int i = 0; i < VAL_METRICS; i++) n = cell_put(to, n, ",%.9g", v->of[i]);
    snprintf(to + n, (size_t)(ROW - n), ",%lld", (long long)v->samples);
}

/* The last row, where it belongs. */
static enum error last_row_put(struct csv_sink *c) {
    char val[ROW] = "";
    if (c->step < 0 || c->written) return ERR_NONE;
    memset(val, ',', VAL_METRICS + 1);
    if (c->has_val) format_val(val, &c->val);
    bool again = c->at != c->end;
    if (again) (void)fseeko(c->file.f, c->at, SEEK_SET);
    c->end = c->at + fprintf(c->file.f, "%s%s\r\n", c->row, val);
    c->written = true;
    if (!again) return sink_file_check(&c->file);
    TRY(sink_file_flush(&c->file));
    return file_cut(c); /* it may have been longer */
}

/* ---- what is there already ---- */

/* Takes a row that is to stay; false: it goes, and so do the rows after it. */
static bool row_keep(struct csv_sink *c, const char *line, int64_t last) {
    int64_t step = atoll(line);
    const char *end = line;
    if (step <= c->step || step > last) return false;
    for (int i = 0; i < STEP_COLUMNS && end; i++) end = strchr(end + (i > 0), ',');
    if (!end || end - line >= ROW) return false;
    snprintf(c->row, sizeof c->row, "%.*s", (int)(end - line), line);
    c->step = step;
    return true;
}

/* Leaves the file's place after the last row that stays. */
static enum error read_rows(struct csv_sink *c, int64_t last) {
    char line[2 * ROW];
    FILE *f = c->file.f;
    rewind(f);
    if (!fgets(line, sizeof line, f)) {
        rewind(f); /* what has been read to its end must be sought before it is written */
        c->end = fprintf(f, "%s", header);
        return sink_file_flush(&c->file);
    }
    if (strcmp(line, header) != 0)
        return FAIL(ERR_DATA, "the metrics.csv of this run has other columns than this version "
                              "writes\nrename it, and there will be a new one");
    c->end = (off_t)strlen(header);
    while (fgets(line, sizeof line, f) && row_keep(c, line, last))
        c->at = c->end, c->end += (off_t)strlen(line), c->written = true;
    if (ferror(f) || fseeko(f, c->end, SEEK_SET) != 0)
        return FAIL(ERR_IO, "cannot continue metrics.csv: %s", strerror(errno));
    return file_cut(c);
}

/* ---- the sink ---- */

static void csv_close(void *sink) {
    struct csv_sink *c = sink;
    sink_file_close(&c->file);
    free(c);
}

static enum error csv_open(const struct sink_place *p, void **out) {
    char path[4096];
    struct csv_sink *c = calloc(1, sizeof *c);
    if (!c) return FAIL(ERR_MEMORY, "no memory for metrics.csv");
    c->step = -1;
    snprintf(path, sizeof path, "%s/metrics.csv", p->run_dir);
    if (p->step == 0) (void)unlink(path); /* of a run that was here before */
    enum error err = sink_file_open(&c->file, p->run_dir, "metrics.csv");
    if (err == ERR_NONE) err = read_rows(c, p->step);
    if (err != ERR_NONE)
        csv_close(c);
    else
        *out = c;
    return err;
}

static enum error csv_step(void *sink, const struct step_record *r) {
    struct csv_sink *c = sink;
    enum error err = last_row_put(c);
    format_step(c->row, r);
    c->step = r->step;
    c->at = c->end;
    c->has_val = c->written = false;
    return err;
}

/* Adds validation to a step's row; a step without a row (another run's checkpoint, evaluated at once) gets none. */
static enum error csv_val(void *sink, int64_t step, const struct val_result *v) {
    struct csv_sink *c = sink;
    if (step != c->step) return ERR_NONE;
    c->val = *v;
    c->has_val = true;
    c->written = false;
    return ERR_NONE;
}

static enum error csv_flush(void *sink, bool settled) {
    struct csv_sink *c = sink;
    if (settled) TRY(last_row_put(c));
    return sink_file_flush(&c->file);
}

const struct sink_ops sink_csv = {
    .name = "csv", .open = csv_open, .step = csv_step, .val = csv_val, .flush = csv_flush, .close = csv_close};
