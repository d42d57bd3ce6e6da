/* Advice for programs. */
#include "engine/settings/run_config.h"
#include "lab/advise/advise.h"

#include <math.h>
#include <string.h>

static void advice_put_row(const struct advice *a, const char *key, int i, struct json *j) {
    if (i < 0) {
        json_string(j, key, NULL);
        return;
    }
    const struct advise_row *r = &a->row[i];
    const struct simulated *s = &r->answer.result;
    json_open(j, key, '{');
    json_put(j, JSON_TEXT("words", advise_text(a, &r->as)), JSON_TEXT("options", advise_words(a, &r->as)),
             JSON_INT("devices", r->as.devices), JSON_TEXT("mode", advise_mode(r->as.mode)->name));
    const char *set = r->as.way.of->set, *served = set && !strncmp(set, "dp.server=", 10) ? set + 10 : NULL;
    bool staged = way_is_staged(&r->as.way);
    json_put(j, JSON_TEXT("server", served),
             JSON_TEXT("algorithm", served || staged || r->as.mode == advise_alone()
                                        ? NULL
                                        : way_scheme_name(&r->as.way, s->scheme)),
             JSON_REAL("stages", staged ? r->as.way.count : (double)NAN),
             JSON_REAL("bucket_bytes", r->as.bucket ? (double)r->as.bucket : (double)NAN),
             JSON_TEXT("precision", a->ask->measured[r->as.measured].precision), JSON_REAL("step_s", s->step),
             JSON_REAL("compute_s", s->compute), JSON_REAL("comm_exposed_s", s->exposed),
             JSON_REAL("formula_s", r->answer.formula), JSON_REAL("samples_per_s", r->rate),
             JSON_REAL("speed_up", r->rate / a->row[0].rate), JSON_REAL("busiest_port_share", s->busy),
             JSON_REAL("memory_bytes", r->answer.memory), JSON_BOOL("fits", r->fits));
    json_close(j, '}');
}

/* Writes a row of a->row under the key, or null where the predictions are refuted. */
static void advice_put_advised(const struct advice *a, const char *key, int row, struct json *j) {
    advice_put_row(a, key, advise_is_refuted(a) ? -1 : row, j);
}

static void advice_put_port(const struct advise_ask *ask, int m, struct json *j) {
    const struct wire *w = &ask->port[m];
    json_object(j, advise_mode(m)->name, JSON_REAL("bytes_per_s", w->beta > 0 ? 1 / w->beta : (double)NAN),
                JSON_REAL("latency_s", w->alpha));
}

static void advice_put_measured(const struct advise_ask *ask, struct json *j) {
    json_array(j, "measured", i, ask->nmeasured) {
        json_open(j, NULL, '{');
        json_string(j, "precision", ask->measured[i].precision);
        measured_json(ask->measured[i].step, j);
        json_close(j, '}');
    }
}

static void advice_put_ask(const struct advise_ask *ask, struct json *j) {
    json_put(j, JSON_TEXT("name", ask->config->name), JSON_TEXT("scaling", ask->weak ? "weak" : "strong"),
             JSON_INT("batch", ask->config->batch.size));
    json_open(j, "ports", '{');
    for (int m = 0; m < advise_modes(); m++)
        if (m != advise_alone()) advice_put_port(ask, m, j);
    json_close(j, '}');
    json_put(j, JSON_BOOL("ports_measured", ask->fitted),
             JSON_REAL("memory_bytes", isfinite(ask->memory) ? ask->memory : (double)NAN),
             JSON_INT("cores", ask->cores));
    advice_put_measured(ask, j);
}

static void advice_put_turns(const char *key, const struct advise_turns *t, struct json *j) {
    json_array(j, key, i, t->n)
        json_object(j, NULL, JSON_REAL("at", t->turn[i].at), JSON_TEXT("from", advise_mode(t->turn[i].from)->name),
                    JSON_TEXT("to", advise_mode(t->turn[i].to)->name));
}

static void advice_put_devices(const struct advice *a, struct json *j) {
    json_array(j, "by_devices", d, a->ask->ndevices) {
        json_open(j, NULL, '{');
        json_int(j, "devices", a->ask->devices[d]);
        for (int m = 0; m < advise_modes(); m++) advice_put_row(a, advise_mode(m)->name, a->at[d].best[m], j);
        advice_put_row(a, "fastest", a->at[d].fastest, j);
        advice_put_row(a, "simplest", a->at[d].simplest, j);
        json_close(j, '}');
    }
}

static void advice_put_map(const struct advice *a, struct json *j) {
    json_array(j, "map", r, ADVISE_RATES) {
        json_open(j, NULL, '{');
        json_real(j, "bytes_per_s", advise_rate(r));
        json_array(j, "fastest", d, a->ask->ndevices)
            json_string(j, NULL, a->map[r][d] == ADVISE_NONE ? NULL : advise_mode(a->map[r][d])->name);
        json_close(j, '}');
    }
}

static void advice_put_checks(const struct advice *a, struct json *j) {
    json_array(j, "checks", i, a->nchecks) {
        const struct advise_check *c = &a->check[i];
        json_object(j, NULL, JSON_TEXT("words", c->label), JSON_TEXT("mode", advise_mode(c->mode)->name),
                    JSON_TEXT("why", c->why), JSON_REAL("predicted_s", c->why ? (double)NAN : c->predicted),
                    JSON_REAL("measured_s", c->why ? (double)NAN : c->measured));
    }
    json_real(j, "worst_off", advise_off(a));
    json_bool(j, "refuted", advise_is_refuted(a));
}

enum error advise_json(const struct advice *a, struct json *j) {
    json_open(j, NULL, '{');
    json_int(j, "format", 1);
    advice_put_ask(a->ask, j);
    advice_put_advised(a, "fastest", a->fastest, j);
    advice_put_advised(a, "simplest", a->simplest, j);
    advice_put_advised(a, "configured_fastest", a->configured[0], j);
    advice_put_advised(a, "configured_simplest", a->configured[1], j);
    advice_put_advised(a, "other_mode", a->other, j);
    advice_put_advised(a, "barred_by_memory", a->barred, j);
    json_object(j, "limits", JSON_REAL("compute", a->limits.compute), JSON_REAL("bandwidth", a->limits.bandwidth),
                JSON_REAL("latency", a->limits.latency));
    advice_put_devices(a, j);
    json_int(j, "turned_on_devices", a->turned);
    advice_put_turns("turns_by_devices", &a->devices, j);
    advice_put_turns("turns_by_bytes_per_s", &a->rates, j);
    advice_put_turns("turns_by_batch", &a->batches, j);
    advice_put_map(a, j);
    advice_put_checks(a, j);
    json_texts(j, "notes", a->notes.text, a->notes.n);
    json_close(j, '}');
    return json_done(j);
}
