#include "lab/lesson/claim.h"

#include "engine/base/text.h"
#include "lab/experiment/quantity.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct term {
    enum {
        TERM_NUMBER,
        TERM_WORD, /* a text as it stands */
        TERM_EXIT,
        TERM_SECONDS,
        TERM_CELL, /* of a comparison */
        TERM_PATH  /* of a run, or of JSON */
    } kind;
    int step;
    struct quantity quantity;
    const char *path; /* in the check's text */
};
struct claim {
    struct check check;
    int axis[CHECK_CONDITIONS];
    struct term term[2];
    bool beside; /* both are of one comparison, at the same place */
};

/* ---- reading ---- */

static bool claim_refuse_step(const struct lesson *l, const char *text, int n, char wrong[CHECK_WRONG]) {
    char name[CHECK_TEXT];
    const char *names[LESSON_STEPS];
    for (int i = 0; i < l->nsteps; i++) names[i] = l->step[i].name;
    snprintf(name, sizeof name, "%.*s", n, text);
    const char *near = text_nearest(name, names, l->nsteps);
    snprintf(wrong, CHECK_WRONG, "there is no step '%.60s'%s%s%s", name, near ? ", did you mean '" : "",
             near ? near : "", near ? "'?" : "");
    return false;
}

static bool read_term(const struct lesson *l, const char *text, struct term *t, char wrong[CHECK_WRONG]) {
    const char *dot = strchr(text, '.');
    *t = (struct term){.kind = TERM_NUMBER};
    if (!*text) return true;
    t->step = lesson_step_named(l, text, (int)(dot ? dot - text : (long)strlen(text)));
    t->path = dot ? dot + 1 : text;
    if (t->step < 0) return claim_refuse_step(l, text, (int)strcspn(text, "."), wrong);
    const struct lesson_step *s = &l->step[t->step];
    t->kind = !dot                          ? TERM_WORD
              : !strcmp(t->path, "exit")    ? TERM_EXIT
              : !strcmp(t->path, "seconds") ? TERM_SECONDS
              : s->kind == LESSON_COMPARE   ? TERM_CELL
                                            : TERM_PATH;
    bool good = dot && *t->path && (t->kind != TERM_CELL || s->experiment);
    if (!good) snprintf(wrong, CHECK_WRONG, "STEP.METRIC is wanted, not '%.80s'", text);
    return good && (t->kind != TERM_CELL || quantity_read(s->experiment, t->path, &t->quantity, wrong));
}

/* "inconclusive", "none" */
static bool claim_is_word(const char *text) {
    return *text && !strpbrk(text, ".[");
}

static bool read_claim(const struct lesson *l, const char *text, struct claim *c, char wrong[CHECK_WRONG]) {
    *c = (struct claim){0};
    if (!check_read(text, &c->check, wrong)) return false;
    const char *first = c->check.term[0].quantity, *second = c->check.term[1].quantity;
    if (!*first) {
        snprintf(wrong, CHECK_WRONG, "STEP.METRIC is wanted first, not '%.80s'", text);
        return false;
    }
    if (!read_term(l, first, &c->term[0], wrong)) return false;
    if (claim_is_word(second))
        c->term[1] = (struct term){.kind = TERM_WORD, .path = second};
    else if (!read_term(l, second, &c->term[1], wrong))
        return false;
    const struct term *t = c->term;
    c->beside = t[0].kind == TERM_CELL && t[1].kind == TERM_CELL && t[0].step == t[1].step;
    if (t[0].kind == TERM_CELL) return quantity_conditions(l->step[t[0].step].experiment, &c->check, c->axis, wrong);
    if (c->check.nconditions) snprintf(wrong, CHECK_WRONG, "conditions are for steps that compare");
    return !c->check.nconditions;
}

/* ---- places ---- */

/* The cell of a term of its own; -1: it names none, or several. */
static int term_alone(const struct lesson *l, const struct term *t) {
    return quantity_cell(l->step[t->step].experiment, &t->quantity, -1);
}

/* Whether the first term's comparison has this cell for it, and which one is the second term's. */
static bool claim_stands(const struct lesson *l, const struct claim *c, int cell, int *second) {
    const struct experiment *x = l->step[c->term[0].step].experiment;
    if (!quantity_stands(x, &c->term[0].quantity, &c->check, c->axis, cell)) return false;
    *second = c->beside ? quantity_cell(x, &c->term[1].quantity, cell) : 0;
    return *second >= 0;
}

/* In how many cells of the matrix a claim is judged. */
static int claim_count_places(const struct lesson *l, const struct claim *c) {
    int places = 0, second;
    if (c->term[0].kind != TERM_CELL) return 1;
    for (int i = 0; i < l->step[c->term[0].step].experiment->ncells; i++) places += claim_stands(l, c, i, &second);
    return places;
}

/* Whether a JSON path leads to a time: a name in it has a unit of time, as in alpha_s, step_ms.p50, beta_s_per_byte. */
static bool path_timed(const char *path) {
    for (const char *at = path; (at = strchr(at, '_')); at++) {
        size_t n = at[1] == 'm' ? 2 : 1;
        if (at[n] == 's' && (!at[n + 1] || strchr("._", at[n + 1]))) return true;
    }
    return false;
}

static bool term_timed(const struct lesson *l, const struct term *t) {
    const struct measure *m = t->kind == TERM_PATH ? measure_find(t->path, (int)strlen(t->path)) : NULL;
    if (t->kind == TERM_CELL) return quantity_timed(l->step[t->step].experiment, &t->quantity);
    return t->kind == TERM_SECONDS || (t->kind == TERM_PATH && (m ? measure_timed(m) : path_timed(t->path)));
}

static bool term_rises(const struct term *t) {
    const struct measure *m = t->kind == TERM_CELL   ? &t->quantity.measure
                              : t->kind == TERM_PATH ? measure_find(t->path, (int)strlen(t->path))
                                                     : NULL;
    bool measured = t->kind != TERM_CELL || t->quantity.kind == QUANTITY_MEASURE;
    return measured ? m && m->more_is_better
                    : t->quantity.kind != QUANTITY_SPREAD && t->quantity.kind != QUANTITY_PREDICTED &&
                          t->quantity.kind != QUANTITY_P;
}

/* What a score must be besides a claim: a number, of one place. */
static void claim_refuse_score(const struct lesson *l, const struct claim *c, char wrong[CHECK_WRONG]) {
    const struct term *t = &c->term[0];
    bool text = t->kind == TERM_CELL && t->quantity.kind >= QUANTITY_WEIGHTS;
    if (text || t->kind > TERM_PATH || c->check.op != IS_GT || c->term[1].kind != TERM_NUMBER)
        snprintf(wrong, CHECK_WRONG, "a score is a number\nas in race.mine.step_best");
    else if (t->kind == TERM_CELL && term_alone(l, t) < 0)
        snprintf(wrong, CHECK_WRONG, "this is no single cell\nfix the other axes: [AXIS=VALUE]");
}

enum error claim_check(struct lesson *l, struct lesson_claim *at, struct config_errors *e) {
    struct claim c;
    char wrong[CHECK_WRONG] = "";
    bool score = at == &l->score;
    if (read_claim(l, at->check, &c, wrong) && claim_count_places(l, &c) == 0)
        snprintf(wrong, sizeof wrong, "no cell of the matrix matches");
    bool elsewhere = !*wrong && c.term[1].kind == TERM_CELL && !c.beside;
    if (elsewhere && term_alone(l, &c.term[1]) < 0)
        snprintf(wrong, sizeof wrong, "'%.80s' is no single cell\nfix the other axes: [AXIS=VALUE]",
                 c.check.term[1].quantity);
    if (score && !*wrong) claim_refuse_score(l, &c, wrong);
    if (!*wrong) {
        at->timed |= term_timed(l, &c.term[0]) || term_timed(l, &c.term[1]);
        if (score) l->score_rises = term_rises(&c.term[0]);
        return ERR_NONE;
    }
    char *hint = strchr(wrong, '\n');
    if (hint) *hint++ = '\0';
    config_error(e, at->place, false, "%s '%s': %s\n%s", score ? "score" : "claim", score ? at->text : at->check, wrong,
                 hint ? hint : "for example 'race.ddp.step_time < 0.9 * race.dp.step_time'");
    return ERR_CONFIG;
}

/* ---- values ---- */

static const struct json_value *claim_array_element(const struct json_value *array, const char *part) {
    int64_t at;
    if (!strcmp(part, "last"))
        at = array->count - 1;
    else if (!text_int(part, &at))
        at = -1;
    if (at >= 0) return at < array->count ? &array->children[at] : NULL;
    for (int i = 0; i < array->count; i++) {
        const struct json_value *item = &array->children[i];
        for (int k = 0; item->kind == JSON_OBJECT && k < item->count; k++)
            if (item->children[k].kind == JSON_STRING && !strcmp(item->children[k].text, part)) return item;
    }
    return NULL;
}

static const struct json_value *path_walk(const struct json_value *at, const char *path) {
    char copy[CHECK_TEXT], *rest = NULL;
    snprintf(copy, sizeof copy, "%s", path);
    for (char *part = strtok_r(copy, ".", &rest); part && at; part = strtok_r(NULL, ".", &rest))
        at = at->kind == JSON_OBJECT  ? json_get(at, part)
             : at->kind == JSON_ARRAY ? claim_array_element(at, part)
                                      : NULL;
    return at;
}

static void claim_take_text(struct check_value *out, const char *text) {
    out->text[0] = text, out->ntexts = 1;
}

static void path_value(const struct lesson_outcome *o, const char *path, struct check_value *out) {
    const struct measure *m = measure_find(path, (int)strlen(path));
    if (o->run && m) {
        out->number = measure_of(m, o->run, 0);
    } else if (o->run && !strcmp(path, "weights")) {
        claim_take_text(out, o->run->weights);
    } else if (o->run && !strcmp(path, "losses")) {
        claim_take_text(out, o->run->losses);
    } else {
        const struct json_value *v = path_walk(o->told, path);
        if (v && v->kind == JSON_NUMBER) out->number = v->number;
        if (v && v->kind == JSON_STRING) claim_take_text(out, v->text);
        if (v && v->kind == JSON_BOOL) claim_take_text(out, v->truth ? "true" : "false");
    }
}

/* cell: of a comparison's. */
static void term_value(const struct claim *c, int term, const struct lesson_outcome *outcome, int cell,
                       struct check_value *out) {
    const struct term *t = &c->term[term];
    const struct check_term *as = &c->check.term[term];
    const struct lesson_outcome *o = &outcome[t->step];
    *out = (struct check_value){.number = (double)NAN};
    if (t->kind == TERM_NUMBER) {
        out->number = as->factor;
        return;
    }
    if (t->kind == TERM_WORD) {
        claim_take_text(out, t->path);
        return;
    }
    if (!o->done) return;
    if (t->kind == TERM_EXIT) out->number = o->exit;
    if (t->kind == TERM_SECONDS) out->number = o->seconds;
    if (t->kind == TERM_CELL && o->compared) quantity_value(o->compared, &t->quantity, cell, out);
    if (t->kind == TERM_PATH) path_value(o, t->path, out);
    out->number = as->factor * out->number + as->plus;
}

/* ---- judging ---- */

/* How near the two values are to each other, as a share of the larger one: the smaller, the nearer the claim is to its opposite. For texts it is 0. */
static double claim_values_margin(const struct check_value *a, const struct check_value *b) {
    double most = fmax(fabs(a->number), fabs(b->number));
    return a->ntexts || !(most > 0) ? 0 : fabs(a->number - b->number) / most;
}

static const char *claim_value_text(struct pool *pool, const struct check_value *v) {
    char count[32];
    bool large = !v->ntexts && fabs(v->number) >= 1e5 && fabs(v->number) < 1e15;
    return v->ntexts          ? pool_say(pool, "%.12s", v->text[0])
           : isnan(v->number) ? "not measured"
           : large            ? pool_say(pool, "%s", text_of_count(llround(v->number), count))
                              : pool_say(pool, "%.4g", v->number);
}

static const char *claim_numbers_text(const struct lesson *l, const struct claim *c, const char *where,
                                      const struct check_value v[2], int holds) {
    static const char *const ops[RELATIONS] = {"at least", "at most", "equal to", "other than", "above", "below"};
    return pool_say(l->pool, "%s%s%s is %s%s %s", where, *where ? ": " : "", claim_value_text(l->pool, &v[0]),
                    holds == 1 ? "" : "not ", ops[c->check.op], claim_value_text(l->pool, &v[1]));
}

/* Judges a claim about cells: it holds if it holds at each; the result is that of the cell where it holds the least. */
static struct claim_result claim_judge_places(const struct lesson *l, const struct claim *c,
                                              const struct lesson_outcome *outcome) {
    const struct experiment *x = l->step[c->term[0].step].experiment;
    struct claim_result r = {.holds = 1, .numbers = "", .value = (double)NAN};
    double least = INFINITY;
    int places = 0, second;
    for (int i = 0; i < x->ncells; i++) {
        struct check_value v[2];
        if (!claim_stands(l, c, i, &second)) continue;
        if (!c->beside && c->term[1].kind == TERM_CELL) second = term_alone(l, &c->term[1]);
        term_value(c, 0, outcome, i, &v[0]);
        term_value(c, 1, outcome, second, &v[1]);
        int holds = check_holds(&v[0], c->check.op, &v[1]);
        places++;
        bool decides = holds < r.holds || (holds == r.holds && claim_values_margin(&v[0], &v[1]) < least);
        if (!decides) continue;
        r.holds = holds, least = claim_values_margin(&v[0], &v[1]);
        r.numbers = claim_numbers_text(l, c, x->cell[i].label, v, holds);
        r.value = v[0].number;
    }
    if (places > 1 && r.holds == 1) r.numbers = pool_say(l->pool, "in all of %d; the closest %s", places, r.numbers);
    return r;
}

struct claim_result claim_judge(const struct lesson *l, const struct lesson_claim *at,
                                const struct lesson_outcome *outcome) {
    struct claim c;
    struct check_value v[2];
    char wrong[CHECK_WRONG];
    struct claim_result r = {-1, "", (double)NAN};
    if (!read_claim(l, at->check, &c, wrong)) return r;
    if (c.term[0].kind == TERM_CELL) return claim_judge_places(l, &c, outcome);
    term_value(&c, 0, outcome, 0, &v[0]);
    term_value(&c, 1, outcome, c.term[1].kind == TERM_CELL ? term_alone(l, &c.term[1]) : 0, &v[1]);
    r.holds = check_holds(&v[0], c.check.op, &v[1]);
    r.numbers = claim_numbers_text(l, &c, "", v, r.holds);
    r.value = v[0].number;
    return r;
}
