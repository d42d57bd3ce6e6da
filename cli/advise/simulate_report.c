/* What 'engine simulate' prints. */
#include "cli/advise/simulate.h"

#include "engine/base/json.h"
#include "engine/base/text.h"

#include <math.h>
#include <string.h>

/* The busiest port: "host 0 out", "server 1 in". Servers apart are numbered after the devices that compute. */
static const char *simulate_port_text(const struct simulate_row *r, char out[48]) {
    static const char *const kinds[] = {"device", "host", "rack"};
    const struct busiest *b = &r->answer.result.port;
    bool server = b->kind == PORT_DEVICE && b->which >= r->devices;
    if (b->seconds > 0)
        snprintf(out, 48, "%s %d %s", server ? "server" : kinds[b->kind], b->which - (server ? (int)r->devices : 0),
                 b->way ? "in" : "out");
    else
        snprintf(out, 48, "-");
    return out;
}

/* ---- for people ----------------------------------------------------------------------------- */

static void simulate_print_wire(const char *what, const struct wire *w, FILE *out) {
    char text[64];
    fprintf(out, "%s %s", what, list_wire_text(w, text));
}

static void simulate_print_places(const struct simulate_options *o, FILE *out) {
    simulate_print_wire("ports of", &o->outside, out);
    if (o->bench) fprintf(out, " (fitted to %s: half of its calls are within %.0f %%)", o->bench, o->fit_error * 100);
    if (o->per_host > 1) fprintf(out, "; %lld devices on a host", (long long)o->per_host);
    if (o->per_host > 1 && o->insided) simulate_print_wire(", between them", &o->inside, out);
    if (o->per_rack)
        fprintf(out, "; %lld hosts in a rack, oversubscription %g", (long long)o->per_rack, o->oversubscription);
    if (o->slow_share > 0)
        fprintf(out, "; %g %% of devices %g times slower in each step (seed %lld)", o->slow_share * 100, o->slow_by,
                (long long)o->seed);
    if (o->cores) fprintf(out, "; all devices on %lld cores", (long long)o->cores);
    fprintf(out, "\n");
}

/* Of the longest name. */
static int simulate_mode_width(void) {
    int n, width = 4;
    const struct mode_row *const *modes = mode_kinds(&n);
    for (int i = 0; i < n; i++) width = (int)strlen(modes[i]->name) > width ? (int)strlen(modes[i]->name) : width;
    return width;
}

static void simulate_print_head(const struct simulate_options *o, const struct step_source *s, FILE *out) {
    const struct measured_step *m = &s->step;
    char bytes[32];
    fprintf(out, "%s: %s scaling, a step of the whole batch of %lld on one device takes %.3f ms\n",
            s->settings.config.name, o->strong ? "strong" : "weak", (long long)s->settings.config.batch.size,
            (m->load + m->forward + m->backward + m->update) * 1e3);
    const char *ready = m->traced ? "as traced" : "by each layer's work";
    fprintf(out, "(load %.3f, forward %.3f, backward %.3f, update %.3f; %s), %s of gradients, ready %s\n",
            m->load * 1e3, m->forward * 1e3, m->backward * 1e3, m->update * 1e3,
            s->measured_here ? "measured now" : "measured by the run",
            text_of_bytes((double)m->model->arena_floats * sizeof(float), bytes), ready);
    simulate_print_places(o, out);
    fprintf(out, "\n%7s  %-*s  %-23s  %7s  %10s  %10s  %10s  %8s  %6s  %-14s %5s  %10s\n", "devices",
            simulate_mode_width(), "mode", "way", "buckets", "step ms", "exposed ms", "formula ms", "speed-up",
            "effic.", "busiest port", "busy", "memory");
}

static void simulate_row_print(const struct simulate_row *r, FILE *out) {
    const struct sweep_answer *a = &r->answer;
    char port[48], memory[32], formula[32] = "-";
    if (!isnan(a->formula)) snprintf(formula, sizeof formula, "%.3f", a->formula * 1e3);
    fprintf(out, "%7lld  %-*s  %-23s  %7d  %10.3f  %10.3f  %10s  %8.2f  %4.0f %%  %-14s %3.0f %%  %10s\n",
            (long long)r->devices, simulate_mode_width(), r->mode, r->way, a->buckets, a->result.step * 1e3,
            a->result.exposed * 1e3, formula, a->speed_up, a->speed_up / (double)r->devices * 100,
            simulate_port_text(r, port), a->result.busy * 100, text_of_bytes(a->memory, memory));
}

/* Prints the law of scaling for the rows of a line, which differ in their devices alone: the share of the work that they divide, and, for the same work on more devices, how Karp and Flatt's serial share goes from the fewest to the most. */
static void simulate_print_law(const struct simulate_options *o, const struct simulate_row *rows, int n, int line,
                               FILE *out) {
    int devices[LIST_MOST], count = 0;
    double seconds[LIST_MOST], serial[2] = {(double)NAN, (double)NAN};
    const struct simulate_row *first = NULL;
    for (int i = 0; i < n; i++) {
        if (rows[i].line != line || count == LIST_MOST) continue;
        if (!first) first = &rows[i];
        devices[count] = (int)rows[i].devices;
        seconds[count++] = rows[i].answer.result.step;
        if (rows[i].devices == 1) continue;
        double e = scaling_karp_flatt(rows[i].answer.speed_up, (int)rows[i].devices);
        serial[!isnan(serial[0])] = e;
    }
    double share = o->strong ? scaling_amdahl(devices, seconds, count) : scaling_gustafson(devices, seconds, count);
    char text[32];
    if (isnan(share)) return;
    fprintf(out, "%s, %s", first->mode, *first->of->name ? first->of->name : "gradients all-reduced");
    if (first->bucket) fprintf(out, ", buckets of %lld bytes", (long long)first->bucket);
    fprintf(out, ": parallel share %s (%s)", scaling_share_text(share, text), o->strong ? "Amdahl" : "Gustafson");
    if (o->strong && !isnan(serial[1]))
        fprintf(out, ", serial share %.3f to %.3f (Karp and Flatt)%s", serial[0], serial[1],
                serial[1] > serial[0] * 1.05
                    ? ": it rises, so something grows with the devices (traffic, latencies, waiting)"
                    : "");
    fprintf(out, "\n");
}

/* After the table, for each line of it (its rows at all numbers of devices), the laws that fit it. */
static void simulate_print_laws(const struct simulate_options *o, const struct simulate_row *rows, int n, FILE *out) {
    int lines = 0;
    for (int i = 0; i < n; i++) lines = rows[i].line >= lines ? rows[i].line + 1 : lines;
    fprintf(out, "\n");
    for (int line = 0; line < lines; line++) simulate_print_law(o, rows, n, line, out);
}

/* Below which size one server is as good as a ring. */
static void simulate_print_crossover(const struct simulate_options *o, FILE *out) {
    int most = 1;
    char bytes[32];
    for (int i = 0; i < o->ndevices; i++) most = o->devices[i] > most ? (int)o->devices[i] : most;
    const struct ground g = {most, 1, o->outside, false, 0};
    double at = most > 1 ? cost_crossover(SCHEME_star, SCHEME_ring, &g) : 0;
    if (at > 0 && !isinf(at))
        fprintf(out, "a server is cheaper than a ring for less than %s on %d devices\n", text_of_bytes(at, bytes),
                most);
}

/* ---- for programs --------------------------------------------------------------------------- */

static void simulate_row_json(struct json *j, const struct simulate_row *r) {
    const struct sweep_answer *a = &r->answer;
    char port[48];
    json_object(j, NULL, JSON_INT("devices", r->devices), JSON_TEXT("mode", r->mode), JSON_TEXT("way", r->way),
                JSON_INT("buckets", a->buckets), JSON_REAL("bucket_bytes", r->bucket ? (double)r->bucket : (double)NAN),
                JSON_REAL("step_s", a->result.step), JSON_REAL("compute_s", a->result.compute),
                JSON_REAL("comm_exposed_s", a->result.exposed), JSON_REAL("formula_s", a->formula),
                JSON_REAL("speed_up", a->speed_up), JSON_REAL("efficiency", a->speed_up / (double)r->devices),
                JSON_TEXT("busiest_port", simulate_port_text(r, port)), JSON_REAL("busiest_port_share", a->result.busy),
                JSON_REAL("memory_bytes", a->memory));
}

static void simulate_step_json(struct json *j, const struct step_source *s) {
    json_open(j, "measured", '{');
    json_string(j, "of", s->measured_here ? "now" : s->result.dir);
    measured_json(&s->step, j);
    json_close(j, '}');
}

static enum error simulate_show_json(const struct simulate_options *o, const struct step_source *s,
                                     const struct simulate_row *rows, int n, FILE *out) {
    struct json j = {0};
    json_open(&j, NULL, '{');
    json_string(&j, "name", s->settings.config.name);
    json_string(&j, "scaling", o->strong ? "strong" : "weak");
    simulate_step_json(&j, s);
    json_put(&j, JSON_REAL("bytes_per_s", o->outside.beta > 0 ? 1 / o->outside.beta : (double)NAN),
             JSON_REAL("latency_s", o->outside.alpha), JSON_REAL("fit_error", o->bench ? o->fit_error : (double)NAN),
             JSON_INT("per_host", o->per_host), JSON_INT("per_rack", o->per_rack));
    json_array(&j, "rows", i, n) simulate_row_json(&j, &rows[i]);
    json_close(&j, '}');
    return cli_json(ERR_NONE, &j, out);
}

enum error simulate_show(const struct simulate_options *o, const struct step_source *s, const struct simulate_row *rows,
                         int n, FILE *out) {
    if (o->json) TRY(simulate_show_json(o, s, rows, n, out));
    if (!o->json) {
        simulate_print_head(o, s, out);
        for (int i = 0; i < n; i++) simulate_row_print(&rows[i], out);
        simulate_print_laws(o, rows, n, out);
        simulate_print_crossover(o, out);
    }
    return ERR_NONE;
}
