/* Advice in sentences, tables and a picture. */
#include "engine/base/text.h"
#include "engine/settings/run_config.h"
#include "lab/advise/advise.h"
#include "lab/report/data.h"

#include <math.h>
#include <string.h>

static const char *advice_ms(struct report *r, const struct advice *a, int row) {
    return row < 0 ? "-" : report_ms(r, a->row[row].answer.result.step);
}

/* ---- the advice ----------------------------------------------------------------------------- */

static double
advice_alone_rate(const struct advice *a) { /* samples a second of one device, in the configuration's precision */
    return a->row[0].rate;
}

static const char *advice_row_words(struct report *r, const struct advice *a, int i) {
    const struct advise_row *row = &a->row[i];
    char rate[32];
    return report_say(r, "%s: %s a step, %s samples/s, %.2f times one device", advise_text(a, &row->as),
                      advice_ms(r, a, i), text_of_count(llround(row->rate), rate), row->rate / advice_alone_rate(a));
}

static void advice_say_simplest(struct report *r, struct report_section *s, const struct advice *a, int fastest,
                                int simplest) {
    if (simplest == fastest)
        report_print(r, s, "No simpler way is within %.0f %% of it.", (ADVISE_NEAR - 1) * 100);
    else
        report_print(r, s, "The simplest way within %.0f %% of it: %s.", (ADVISE_NEAR - 1) * 100,
                     advice_row_words(r, a, simplest));
}

static void advice_say_fastest(struct report *r, struct report_section *s, const struct advice *a) {
    report_paragraph(s, r->verdict);
    advice_say_simplest(r, s, a, a->fastest, a->simplest);
    if (a->configured[0] == a->fastest) return;
    report_print(r, s, "The fastest in %s, as configured: %s.", a->ask->measured[0].precision,
                 advice_row_words(r, a, a->configured[0]));
    advice_say_simplest(r, s, a, a->configured[0], a->configured[1]);
}

/* Describes the best of another mode. Nothing is concluded from a difference that is smaller than the error of the predictions. */
static void advice_say_other(struct report *r, struct report_section *s, const struct advice *a) {
    if (a->other < 0) return;
    const struct advise_row *best = &a->row[a->fastest], *other = &a->row[a->other];
    double longer = best->rate / other->rate - 1, doubt = advise_doubt(a, best->as.mode, other->as.mode);
    const char *words = "";
    if (doubt > longer)
        words = report_say(r, " This is too close to call: the predictions for these two modes were off by %.0f %%.",
                           doubt * 100);
    report_print(r, s,
                 longer < 1 ? "The best of another mode, %s, is %.2f times as slow.%s"
                            : "The best of another mode, %s, is %.1f times as slow.%s",
                 advise_text(a, &other->as), longer + 1, words);
}

static void advice_say_limits(struct report *r, struct report_section *s, const struct advice *a) {
    static const char *const ports[] = {"device", "host", "rack"};
    const struct advise_row *best = &a->row[a->fastest];
    const struct advise_limits *l = &a->limits;
    const struct busiest *p = &best->answer.result.port;
    const char *what = l->compute >= fmax(l->bandwidth, l->latency) ? "Computing"
                       : l->bandwidth >= l->latency                 ? "The ports' bandwidth"
                                                                    : "Latency";
    const char *words = report_say(r, "%s limits it: computing takes %.0f %% of a step", what, l->compute * 100);
    if (best->as.devices > 1)
        words = report_say(r, "%s, endless bandwidth would save %.0f %%, no latency %.0f %%", words, l->bandwidth * 100,
                           l->latency * 100);
    if (l->bubble > 0) words = report_say(r, "%s; stages wait for each other for %.0f %%", words, l->bubble * 100);
    if (p->seconds > 0)
        words = report_say(r, "%s; the busiest port (%s %d, %s) is busy for %.0f %% of it", words, ports[p->kind],
                           p->which, p->way ? "in" : "out", best->answer.result.busy * 100);
    report_print(r, s, "%s.", words);
    if (a->barred < 0) return;
    char needs[32], has[32];
    const struct advise_row *barred = &a->row[a->barred];
    report_print(r, s, "A way that would be %.0f %% faster does not fit into memory: %s needs %s of %s.",
                 (barred->rate / best->rate - 1) * 100, advise_text(a, &barred->as),
                 text_of_bytes(barred->answer.memory, needs), text_of_bytes(a->ask->memory, has));
}

/* How far the first sentence can be trusted. One device alone is measured. */
static const char *advice_trust(struct report *r, const struct advice *a) {
    if (a->ask->ndevices == 1) return "";
    double off = advise_off(a);
    return isnan(off) ? "; no prediction was checked here"
                      : report_say(r, "; predictions were off by up to %.0f %% here", off * 100);
}

/* A check that refutes the predictions comes first, and nothing is concluded from them. */
static void advice_say_refuted(struct report *r, struct report_section *s, const struct advice *a) {
    const struct advise_check *worst = NULL;
    for (int i = 0; i < a->nchecks; i++) {
        const struct advise_check *c = &a->check[i];
        if (!c->why && fabs(c->predicted / c->measured - 1) == advise_off(a)) worst = c;
    }
    r->verdict =
        report_say(r,
                   "No advice: the predictions do not hold here. A step of %s was predicted to take %s, "
                   "and took %s: the prediction is off by %.0f %%.",
                   worst->label, report_ms(r, worst->predicted), report_ms(r, worst->measured), advise_off(a) * 100);
    report_paragraph(s, r->verdict);
    report_paragraph(s, "Ask again when nothing else runs on this machine, or let the modes run: engine compare.");
}

static void put_advice(struct report *r, const struct advice *a) {
    struct report_section *s = report_section(r, "advice", "Advice");
    if (advise_is_refuted(a)) {
        advice_say_refuted(r, s, a);
        return;
    }
    r->verdict = report_say(r, "The fastest: %s%s.", advice_row_words(r, a, a->fastest), advice_trust(r, a));
    advice_say_fastest(r, s, a);
    advice_say_other(r, s, a);
    advice_say_limits(r, s, a);
    s->command = report_say(r, "engine run CONFIG %s", advise_words(a, &a->row[a->simplest].as));
}

/* ---- each number of devices ----------------------------------------------------------------- */

/* The words for a row of the advice, without those that the heads of its line and column show. */
static const char *advice_shown(const struct advice *a, int row, bool mode) {
    const char *text = row < 0 ? "-" : advise_text(a, &a->row[row].as);
    bool alone = row >= 0 && a->row[row].as.mode == advise_alone();
    for (int cut = 0; row >= 0 && !alone && cut <= mode; cut++) {
        const char *comma = strchr(text, ',');
        text = comma ? comma + 2 : "as configured";
    }
    return text;
}

enum { BESIDE_MODES = 5 }; /* columns that are not a mode's */
static enum error advice_put_devices(struct report *r, const struct advice *a) {
    static const char *const last[] = {"fastest", "times one", "memory", "simplest within 5 %"};
    const char *heads[2 * ADVISE_MODES + BESIDE_MODES] = {"devices"};
    struct report_section *s = report_section(r, "devices", "On each number of devices");
    struct table *t;
    char memory[32];
    int columns = 1;
    for (int m = 0; m < advise_modes(); m++) {
        if (m == advise_alone()) continue;
        heads[columns++] = report_say(r, "%s's best", advise_mode(m)->name);
        heads[columns++] = "ms";
    }
    for (int i = 0; i < BESIDE_MODES - 1; i++) heads[columns++] = last[i];
    TRY(report_table(r, s, report_say(r, "The best of each mode, in %s", a->ask->measured[0].precision), columns,
                     a->ask->ndevices, heads, &t));
    for (int d = 0; d < a->ask->ndevices; d++) {
        const char **cell = table_row(t, d + 1);
        const int *best = a->at[d].best, fast = a->at[d].fastest;
        *cell++ = report_say(r, "%lld", (long long)a->ask->devices[d]);
        for (int m = 0; m < advise_modes(); m++) {
            if (m == advise_alone()) continue;
            *cell++ = advice_shown(a, best[m], true);
            *cell++ = best[m] < 0 ? "-" : report_say(r, "%.3f", a->row[best[m]].answer.result.step * 1e3);
        }
        *cell++ = fast < 0 ? "nothing fits" : advise_mode(a->row[fast].as.mode)->name;
        *cell++ = fast < 0 ? "-" : report_say(r, "%.2f", a->row[fast].rate / advice_alone_rate(a));
        *cell++ = fast < 0 ? "-" : report_say(r, "%s", text_of_bytes(a->row[fast].answer.memory, memory));
        *cell++ = advice_shown(a, a->at[d].simplest, false);
    }
    return ERR_NONE;
}

/* ---- where it turns over -------------------------------------------------------------------- */

/* "below 90 Mbit/s single is the fastest, from there on ddp, from 3 Gbit/s on dp". */
static void advice_say_turns(struct report *r, struct report_section *s, const char *where,
                             const struct advise_turns *t, const char *(*text)(struct report *, double),
                             const char *none) {
    if (!t->n) {
        report_print(r, s, "%s: %s.", where, none);
        return;
    }
    const char *words = report_say(r, "%s: below %s %s is the fastest", where, text(r, t->turn[0].at),
                                   advise_mode(t->turn[0].from)->name);
    for (int i = 0; i < t->n; i++)
        words = report_say(r, "%s, from %s on %s", words, text(r, t->turn[i].at), advise_mode(t->turn[i].to)->name);
    report_print(r, s, "%s.", words);
}

static const char *advice_say_devices(struct report *r, double n) {
    return report_say(r, "%.0f devices", n);
}

static const char *advice_say_rate(struct report *r, double rate) {
    char text[32];
    return report_say(r, "%s", text_of_rate(rate, text));
}

static const char *advice_say_batch(struct report *r, double samples) {
    return report_say(r, "%.0f samples", samples);
}

static enum error advice_put_map(struct report *r, struct report_section *s, const struct advice *a) {
    struct table *t;
    char text[32];
    int n = a->ask->ndevices;
    TRY(report_table(r, s, "Which mode is the fastest, by devices and bandwidth", 1 + n, ADVISE_RATES, NULL, &t));
    t->words = t->columns;
    table_row(t, 0)[0] = "bandwidth \\ devices";
    for (int d = 0; d < n; d++) table_row(t, 0)[1 + d] = report_say(r, "%lld", (long long)a->ask->devices[d]);
    for (int i = 0; i < ADVISE_RATES; i++) {
        const char **row = table_row(t, i + 1);
        row[0] = report_say(r, "%s", text_of_rate(advise_rate(i), text));
        for (int d = 0; d < n; d++) row[1 + d] = a->map[i][d] < advise_modes() ? advise_mode(a->map[i][d])->name : "";
    }
    return ERR_NONE;
}

static enum error advice_put_turns(struct report *r, const struct advice *a) {
    struct report_section *s = report_section(r, "turns", "Where another mode takes over");
    int last = a->at[a->ask->ndevices - 1].fastest;
    const char *mode = last < 0 ? "nothing" : advise_mode(a->row[last].as.mode)->name;
    long long n = (long long)a->turned;
    if (a->ask->ndevices == 1) return ERR_NONE;
    advice_say_turns(r, s, "With the devices", &a->devices, advice_say_devices,
                     report_say(r, "%s is the fastest on all of them", mode));
    advice_say_turns(r, s, report_say(r, "With the bandwidth of a port, on %lld devices", n), &a->rates,
                     advice_say_rate, "nothing changes from 10 Mbit/s to 100 Gbit/s");
    advice_say_turns(r, s, report_say(r, "With the batch, on %lld devices", n), &a->batches, advice_say_batch,
                     "nothing changes from a 64th to 256 times the configured batch");
    return advice_put_map(r, s, a);
}

/* ---- checked -------------------------------------------------------------------------------- */

/* Which mode had the most samples a second of those that ran, one device among them. measured: it had, else it should
 * have had. */
static int advice_fastest_here(const struct advice *a, bool measured) {
    double best = a->row[0].rate;
    int mode = advise_alone();
    for (int i = 0; i < a->nchecks; i++) {
        const struct advise_check *c = &a->check[i];
        double rate = c->samples / (measured ? c->measured : c->predicted);
        if (!c->why && rate > best) best = rate, mode = c->mode;
    }
    return mode;
}

static void advice_say_checks(struct report *r, struct report_section *s, const struct advice *a) {
    const char *should = advise_mode(advice_fastest_here(a, false))->name,
               *was = advise_mode(advice_fastest_here(a, true))->name;
    if (isnan(advise_off(a))) return;
    const char *words = report_say(r,
                                   "On this machine's cores, the fastest of these ways and of one device alone (%s) "
                                   "was predicted to be %s, and was",
                                   advice_ms(r, a, 0), should);
    words = report_say(r, "%s%s%s.", words, should == was ? "" : " ", should == was ? "" : was);
    report_print(r, s, "%s The worst prediction was off by %.0f %%.", words, advise_off(a) * 100);
}

static enum error advice_put_checks(struct report *r, const struct advice *a) {
    static const char *const heads[] = {"what ran here", "predicted ms", "measured ms", "off by"};
    struct report_section *s = report_section(r, "checked", "Checked on this machine");
    struct table *t;
    if (!a->nchecks) s->missing = "Nothing was checked: a check needs two devices of the list on this machine.";
    if (!a->nchecks) return ERR_NONE;
    advice_say_checks(r, s, a);
    TRY(report_table(r, s, "Predicted for this machine, and measured", 4, a->nchecks, heads, &t));
    for (int i = 0; i < a->nchecks; i++) {
        const struct advise_check *c = &a->check[i];
        const char **cell = table_row(t, i + 1);
        cell[0] = c->label;
        cell[1] = c->why ? c->why : report_say(r, "%.3f", c->predicted * 1e3);
        cell[2] = c->why ? "-" : report_say(r, "%.3f", c->measured * 1e3);
        cell[3] = c->why ? "-" : report_say(r, "%+.1f %%", (c->predicted / c->measured - 1) * 100);
    }
    return ERR_NONE;
}

enum error advise_report(const struct advice *a, struct report *out) {
    memset(out, 0, sizeof *out);
    out->pool = a->pool;
    out->name = a->ask->config->name;
    out->question = "Which way of sharing gradients is better here, and why?";
    put_advice(out, a);
    if (!advise_is_refuted(a)) TRY(advice_put_devices(out, a));
    if (!advise_is_refuted(a) && a->ask->ndevices > 1) TRY(advice_put_turns(out, a));
    TRY(advice_put_checks(out, a));
    struct report_section *s = report_section(out, "rests-on", "What this is based on");
    for (int i = 0; i < a->notes.n; i++) report_paragraph(s, a->notes.text[i]);
    return out->failed ? FAIL(ERR_MEMORY, "no memory for the advice") : ERR_NONE;
}
