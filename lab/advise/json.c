/* Advice for programs. */
#include "engine/settings/run_config.h"
#include "lab/advise/advise.h"

#include <math.h>
#include <string.h>

static void put_row(const struct advice *a, const char *key, int i, struct json *j) {
    if (i < 0) {
        json_string(j, key, NULL);
        return;
    }
    const struct advise_row *r = &a->row[i];
    const struct simulated *s = &r->answer.result;
    json_open(j, key, '{');
    json_string(j, "words", advise_text(a, &r->as));
    json_string(j, "options", advise_words(a, &r->as));
    json_int(j, "devices", r->as.devices);
    json_string(j, "mode", advise_mode(r->as.mode)->name);
    const char *set = r->as.way.of->set, *served = set && !strncmp(set, "dp.server=", 10) ? set + 10 : NULL;
    json_string(j, "server", served);
    json_string(j, "algorithm", served || r->as.mode == advise_alone() ? NULL : scheme_name(s->scheme));
    json_real(j, "bucket_bytes", r->as.bucket ? (double)r->as.bucket : (double)NAN);
    json_string(j, "precision", a->ask->measured[r->as.measured].precision);
    json_real(j, "step_s", s->step);
    json_real(j, "compute_s", s->compute);
    json_real(j, "comm_exposed_s", s->exposed);
    json_real(j, "formula_s", r->answer.formula);
    json_real(j, "samples_per_s", r->rate);
    json_real(j, "speed_up", r->rate / a->row[0].rate);
    json_real(j, "busiest_port_share", s->busy);
    json_real(j, "memory_bytes", r->answer.memory);
    json_bool(j, "fits", r->fits);
    json_close(j, '}');
}

/* Writes a row of a->row under the key, or null where the predictions are refuted. */
static void put_advised(const struct advice *a, const char *key, int row, struct json *j) {
    put_row(a, key, advise_is_refuted(a) ? -1 : row, j);
}

static void put_port(const struct advise_ask *ask, int m, struct json *j) {
    const struct wire *w = &ask->port[m];
    json_open(j, advise_mode(m)->name, '{');
    json_real(j, "bytes_per_s", w->beta > 0 ? 1 / w->beta : (double)NAN);
    json_real(j, "latency_s", w->alpha);
    json_close(j, '}');
}

static void put_measured(const struct advise_ask *ask, struct json *j) {
    json_open(j, "measured", '[');
    for (int i = 0; i < ask->nmeasured; i++) {
        json_open(j, NULL, '{');
        json_string(j, "precision", ask->measured[i].precision);
        measured_json(ask->measured[i].step, j);
        json_close(j, '}');
    }
    json_close(j, ']');
}

static void put_ask(const struct advise_ask *ask, struct json *j) {
    json_string(j, "name", ask->config->name);
    json_string(j, "scaling", ask->weak ? "weak" : "strong");
    json_int(j, "batch", ask->config->batch.size);
    json_open(j, "ports", '{');
    for (int m = 0; m < advise_modes(); m++)
        if (m != advise_alone()) put_port(ask, m, j);
    json_close(j, '}');
    json_bool(j, "ports_measured", ask->fitted);
    json_real(j, "memory_bytes", isfinite(ask->memory) ? ask->memory : (double)NAN);
    json_int(j, "cores", ask->cores);
    put_measured(ask, j);
}

static void put_turns(const char *key, const struct advise_turns *t, struct json *j) {
    json_open(j, key, '[');
    for (int i = 0; i < t->n; i++) {
        json_open(j, NULL, '{');
        json_real(j, "at", t->turn[i].at);
        json_string(j, "from", advise_mode(t->turn[i].from)->name);
        json_string(j, "to", advise_mode(t->turn[i].to)->name);
        json_close(j, '}');
    }
    json_close(j, ']');
}

static void put_devices(const struct advice *a, struct json *j) {
    json_open(j, "by_devices", '[');
    for (int d = 0; d < a->ask->ndevices; d++) {
        json_open(j, NULL, '{');
        json_int(j, "devices", a->ask->devices[d]);
        for (int m = 0; m < advise_modes(); m++) put_row(a, advise_mode(m)->name, a->at[d].best[m], j);
        put_row(a, "fastest", a->at[d].fastest, j);
        put_row(a, "simplest", a->at[d].simplest, j);
        json_close(j, '}');
    }
    json_close(j, ']');
}

static void put_map(const struct advice *a, struct json *j) {
    json_open(j, "map", '[');
    for (int r = 0; r < ADVISE_RATES; r++) {
        json_open(j, NULL, '{');
        json_real(j, "bytes_per_s", advise_rate(r));
        json_open(j, "fastest", '[');
        for (int d = 0; d < a->ask->ndevices; d++)
            json_string(j, NULL, a->map[r][d] == ADVISE_NONE ? NULL : advise_mode(a->map[r][d])->name);
        json_close(j, ']');
        json_close(j, '}');
    }
    json_close(j, ']');
}

static void put_checks(const struct advice *a, struct json *j) {
    json_open(j, "checks", '[');
    for (int i = 0; i < a->nchecks; i++) {
        const struct advise_check *c = &a->check[i];
        json_open(j, NULL, '{');
        json_string(j, "words", c->label);
        json_string(j, "mode", advise_mode(c->mode)->name);
        json_string(j, "why", c->why);
        json_real(j, "predicted_s", c->why ? (double)NAN : c->predicted);
        json_real(j, "measured_s", c->why ? (double)NAN : c->measured);
        json_close(j, '}');
    }
    json_close(j, ']');
    json_real(j, "worst_off", advise_off(a));
    json_bool(j, "refuted", advise_is_refuted(a));
}

enum error advise_json(const struct advice *a, struct json *j) {
    json_open(j, NULL, '{');
    json_int(j, "format", 1);
    put_ask(a->ask, j);
    put_advised(a, "fastest", a->fastest, j);
    put_advised(a, "simplest", a->simplest, j);
    put_advised(a, "configured_fastest", a->configured[0], j);
    put_advised(a, "configured_simplest", a->configured[1], j);
    put_advised(a, "other_mode", a->other, j);
    put_advised(a, "barred_by_memory", a->barred, j);
    json_open(j, "limits", '{');
    json_real(j, "compute", a->limits.compute);
    json_real(j, "bandwidth", a->limits.bandwidth);
    json_real(j, "latency", a->limits.latency);
    json_close(j, '}');
    put_devices(a, j);
    json_int(j, "turned_on_devices", a->turned);
    put_turns("turns_by_devices", &a->devices, j);
    put_turns("turns_by_bytes_per_s", &a->rates, j);
    put_turns("turns_by_batch", &a->batches, j);
    put_map(a, j);
    put_checks(a, j);
    json_string(j, "verified", a->verified.held);
    json_string(j, "verified_words", a->verified.words);
    json_open(j, "notes", '[');
    for (int i = 0; i < a->notes.n; i++) json_string(j, NULL, a->notes.text[i]);
    json_close(j, ']');
    json_close(j, '}');
    return json_done(j);
}
