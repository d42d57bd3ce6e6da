#include "lab/lesson/audit.h"

#include "engine/base/file.h"
#include "engine/base/text.h"
#include "lab/lesson/grade.h"
#include "lab/lesson/run.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

enum { CLAIMS_MOST = 1 << 24 };

__attribute__((format(printf, 2, 3))) static void audit_find(struct audit *a, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    char *words = a->nfindings < AUDIT_FINDINGS ? pool_vprintf(a->key->pool, fmt, ap) : NULL;
    va_end(ap);
    if (words)
        a->finding[a->nfindings++] = text_defuse(words, "");
    else
        a->more++;
}

/* ---- files ---- */

/* A file that the reader writes into, as the key allows. */
static bool audit_is_free(const char *path) {
    return !strcmp(path, "README.md") || text_ends(path, ".ipynb");
}

static void audit_compare_files(struct audit *a, const struct digests *now, const char *below) {
    for (int i = 0; i < a->files.n; i++) {
        const struct digest_line *was = &a->files.of[i], *is = digests_find(now, was->path);
        if (!is)
            audit_find(a, "%s is missing", was->path);
        else if (strcmp(is->hex, was->hex) != 0 && !audit_is_free(was->path))
            audit_find(a, "%s was changed after the lab had run", was->path);
    }
    for (int i = 0; i < now->n; i++)
        if (!strncmp(now->of[i].path, below, strlen(below)) && !digests_find(&a->files, now->of[i].path))
            audit_find(a, "%s was added after the lab had run", now->of[i].path);
}

/* Of the lab's own files those count that the key has, as they were when the lab ran. */
static enum error audit_compare_key(struct audit *a) {
    struct digests key;
    TRY(digests_take(a->key->folder, NULL, a->key->pool, &key));
    for (int i = 0; i < key.n; i++) {
        const struct digest_line *line = digests_find(&a->files, key.of[i].path);
        if (audit_is_free(key.of[i].path)) continue;
        if (!line)
            audit_find(a, "%s is not among the files with which the lab ran", key.of[i].path);
        else if (strcmp(line->hex, key.of[i].hex) != 0)
            audit_find(a, "the lab ran with another %s than the key's", line->path);
    }
    return ERR_NONE;
}

static enum error audit_files(struct audit *a, const struct json_value *told) {
    const char *below = lesson_below(a->key);
    struct digests now;
    if (digests_read(a->hand_in, below, a->key->pool, &a->files) != ERR_NONE) {
        audit_find(a, "%s", error_message());
        return ERR_NONE;
    }
    if (strcmp(json_text(json_member(told, "made_by", JSON_OBJECT), "files_sha256"), a->files.whole) != 0)
        audit_find(a, "%s/files.sha256 is not the one that claims.json names", below);
    TRY(digests_take(a->hand_in, below, a->key->pool, &now));
    audit_compare_files(a, &now, pool_printf(a->key->pool, "%s/", below));
    return audit_compare_key(a);
}

/* ---- a run ---- */

static bool audit_is_near(double a, double b, double within) {
    return (isnan(a) && isnan(b)) || fabs(a - b) <= within;
}

static void audit_losses(struct audit *a, const char *where, const struct run_result *r) {
    struct sha256 s;
    char hex[SHA256_TEXT];
    sha256_init(&s);
    for (int64_t i = 0; i < r->nsteps; i++) {
        float loss = (float)r->step[i].loss;
        sha256_update(&s, &loss, sizeof loss);
    }
    sha256_hex(s, hex);
    if (strcmp(hex, r->losses) != 0)
        audit_find(a, "%s: the losses of metrics.jsonl are not those of which summary.json has the digest", where);
}

/* Times have four digits after the point in metrics.jsonl. */
static void audit_times(struct audit *a, const char *where, const struct run_result *r) {
    static const double digits = 1e-4;
    double samples = 0, ms = 0;
    int64_t n;
    double p50 = run_result_quantile_ms(r, 0, 0.5, &n), p95 = run_result_quantile_ms(r, 0, 0.95, &n);
    for (int64_t i = r->stretch; i < r->nsteps; i++) samples += r->step[i].samples, ms += r->step[i].ms;
    double rate = ms > 0 ? samples / ms * 1e3 : (double)NAN;
    if (n <= 65536 && !(audit_is_near(p50, r->p50_ms, digits) && audit_is_near(p95, r->p95_ms, digits)))
        audit_find(a, "%s: step_ms is %.4f and %.4f in summary.json, and %.4f and %.4f by metrics.jsonl", where,
                   r->p50_ms, r->p95_ms, p50, p95);
    if (n > 0 && !audit_is_near(rate, r->samples_per_s, rate * ((double)n * digits / ms + 1e-6)))
        audit_find(a, "%s: samples_per_s is %.6g in summary.json, and %.6g by metrics.jsonl", where, r->samples_per_s,
                   rate);
}

/* A summary's numbers, as far as the lines of its steps and validations have them. Of a command's run the engine has
 * written no lines itself. */
static void audit_summary(struct audit *a, const char *where, const struct run_result *r) {
    const struct result_step *last = r->nsteps ? &r->step[r->nsteps - 1] : NULL;
    const struct result_val *val = r->nvals ? &r->val[r->nvals - 1] : NULL;
    if (!*r->losses) return;
    audit_losses(a, where, r);
    if (!last || last->step != r->steps)
        audit_find(a, "%s: metrics.jsonl does not end with step %lld", where, (long long)r->steps);
    else if ((float)last->loss != (float)r->train_loss)
        audit_find(a, "%s: train.loss is %.9g in summary.json, and %.9g by metrics.jsonl", where, r->train_loss,
                   last->loss);
    for (int i = 0; i < VAL_METRICS; i++)
        if (!audit_is_near(r->val_of[i], val ? val->of[i] : (double)NAN, 0))
            audit_find(a, "%s: val.%s is %.9g in summary.json, and %.9g by metrics.jsonl", where, metric_table[i].key,
                       r->val_of[i], val ? val->of[i] : (double)NAN);
    audit_times(a, where, r);
}

/* ---- a comparison ---- */

/* Whether two values are paths of one file in two folders. */
static bool audit_is_same_file(const char *a, const char *b) {
    return (*a == '/' || *b == '/') && !strcmp(file_last_part(a), file_last_part(b));
}

/* A run of a cell has the settings of the key's cell, and the repeat's seed. */
static void audit_settings(struct audit *a, const char *where, const struct experiment *x, int cell,
                           const struct compared_run *run) {
    enum { MOST = 16 };
    static const char *const seed[] = {"seed", NULL};
    struct setting_difference d[MOST];
    struct experiment_cell made = {.setting = run->result.setting, .nsettings = run->result.nsettings};
    int n = settings_differ(&x->cell[cell], &made, x->nseeds ? seed : NULL, d, MOST);
    for (int i = 0; i < n; i++)
        if (!audit_is_same_file(d[i].a, d[i].b))
            audit_find(a, "%s: it ran with %s '%s', and the lab has '%s'", where, d[i].key, d[i].b, d[i].a);
    int64_t own;
    const char *text = run_result_setting(&run->result, "seed");
    if (x->nseeds && (!text_int(text, &own) || own != x->seeds[run->repeat]))
        audit_find(a, "%s: it ran with seed %s, and the lab has %lld", where, text, (long long)x->seeds[run->repeat]);
}

/* The same training gives the same bits on any machine, so a run that the lecturer has made, too, tells which losses and
 * weights it has. own: NULL: there is none. */
static void audit_bits(struct audit *a, const char *where, const struct run_result *r, const struct run_result *own) {
    if (!own || !*own->losses || own->steps != r->steps || !strcmp(run_result_setting(own, "deterministic"), "false"))
        return;
    if (strcmp(r->losses, own->losses) != 0 || strcmp(r->weights, own->weights) != 0)
        audit_find(a, "%s: its losses or weights are not those of the key's own run", where);
}

/* own: the key's runs; NULL: it has none. */
static void audit_compared(struct audit *a, const char *step, const struct compared *c, const struct compared *own) {
    for (int i = 0; i < c->x->ncells; i++)
        for (int k = 0; k < c->cell[i].nruns; k++) {
            const struct compared_run *run = &c->cell[i].run[k];
            const char *where = pool_say(a->key->pool, "%s/%s/%s", lesson_below(a->key), step, run->dir);
            audit_settings(a, where, c->x, i, run);
            audit_summary(a, where, &run->result);
            if (own && k < own->cell[i].nruns) audit_bits(a, where, &run->result, &own->cell[i].run[k].result);
        }
}

/* ---- claims ---- */

/* What the hand-in has noted of a step: the exit code and the seconds, of which there is no other record. */
static bool audit_take_step(struct audit *a, const struct json_value *told, int step, struct lesson_outcome *o) {
    const struct json_value *all = json_member(told, "steps", JSON_ARRAY);
    const struct lesson_step *s = &a->key->step[step];
    for (int i = 0; all && i < all->count; i++) {
        int64_t exit;
        if (strcmp(json_text(&all->children[i], "name"), s->name) != 0) continue;
        if (!json_get_int(&all->children[i], "exit", 255, &exit) || exit != s->exit) break;
        *o = (struct lesson_outcome){
            .done = true, .exit = (int)exit, .seconds = json_number(&all->children[i], "seconds")};
        return true;
    }
    audit_find(a, "claims.json has no step '%s' that ended with exit code %d", s->name, s->exit);
    return false;
}

/* What the key's own run of the lab has left of a step, where it was run there; else it is empty. */
static struct lesson_outcome audit_read_own(const struct audit *a, int step, struct lesson_result *own) {
    struct lesson_outcome *o = &own->outcome[step];
    *o = (struct lesson_outcome){.exit = a->key->step[step].exit};
    bool read = file_is_folder(own->runs) && lesson_read(a->key, step, own) == ERR_NONE;
    return read ? *o : (struct lesson_outcome){0};
}

/* own: room for the key's results. */
static bool audit_read_steps(struct audit *a, const struct json_value *told, struct lesson_result *r,
                             struct lesson_result *own) {
    bool good = true;
    for (int i = 0; i < a->key->nsteps; i++) {
        struct lesson_outcome *o = &r->outcome[i];
        const struct lesson_step *s = &a->key->step[i];
        if (!audit_take_step(a, told, i, o)) {
            good = false;
        } else if (lesson_read(a->key, i, r) != ERR_NONE) {
            audit_find(a, "step '%s': %s", s->name, error_message());
            good = false;
        } else if (o->compared) {
            audit_compared(a, s->name, o->compared, audit_read_own(a, i, own).compared);
        } else if (o->run) {
            bool last = true; /* a folder in which a later step goes on has that step's results */
            for (int k = i + 1; k < a->key->nsteps; k++) last &= strcmp(a->key->step[k].into, s->into) != 0;
            const char *where = pool_say(a->key->pool, "%s/%s", lesson_below(a->key), s->into);
            if (last) audit_summary(a, where, o->run);
            if (last) audit_bits(a, where, o->run, audit_read_own(a, i, own).run);
        }
    }
    return good;
}

static void audit_compare_claim(struct audit *a, const struct json_value *told, const struct lesson_claim *claim,
                                const struct claim_result *is) {
    static const char *const words[] = {"it does not hold", "it holds"};
    const struct json_value *all = json_member(told, "claims", JSON_ARRAY), *said = NULL;
    for (int i = 0; all && i < all->count; i++)
        if (!strcmp(json_text(&all->children[i], "check"), claim->check)) said = &all->children[i];
    if (!said)
        audit_find(a, "claims.json has no claim '%s'", claim->check);
    else if (json_truth(said, "holds") != (is->holds == 1))
        audit_find(a, "'%s': by claims.json %s, by the files %s: %s", claim->check, words[json_truth(said, "holds")],
                   words[is->holds == 1], is->numbers);
    else if (strcmp(json_text(said, "numbers"), is->numbers) != 0)
        audit_find(a, "'%s': claims.json says '%s', and by the files it is '%s'", claim->check,
                   json_text(said, "numbers"), is->numbers);
}

static void audit_claims(struct audit *a, const struct json_value *told, struct lesson_result *r,
                         struct lesson_result *own) {
    const struct lesson *l = a->key;
    if (!audit_read_steps(a, told, r, own)) return;
    lesson_judge(l, r);
    a->hold = r->hold, a->claims = r->hold + r->broken;
    for (int i = 0; i < l->nclaims; i++)
        if (!l->quick || l->claim[i].quick) audit_compare_claim(a, told, &l->claim[i], &r->claim[i]);
    double said = json_number(json_member(told, "score", JSON_OBJECT), "value");
    if (l->score.check && !audit_is_near(said, r->score, 1e-9 * fabs(r->score)))
        audit_find(a, "claims.json has the score %.6g, and by the files it is %.6g", said, r->score);
}

enum error audit_run(const struct lesson *key, const char *hand_in, struct audit *out) {
    struct pool *pool = key->pool;
    size_t n;
    const char *name = grade_name(hand_in, &n);
    *out = (struct audit){.key = key, .hand_in = hand_in, .name = pool_strndup(pool, name, n)};
    struct lesson_result *r = pool_alloc(pool, sizeof *r), *own = pool_alloc(pool, sizeof *own);
    char *path = pool_printf(pool, "%s/%s/claims.json", hand_in, lesson_below(key));
    const struct json_value *told;
    if (!out->name || !r || !own || !path) return ERR_MEMORY;
    r->runs = pool_printf(pool, "%s/%s", hand_in, lesson_below(key));
    own->runs = pool_printf(pool, "%s/%s", key->folder, lesson_below(key));
    if (!r->runs || !own->runs) return ERR_MEMORY;
    if (json_read(path, CLAIMS_MOST, LESSON_CLAIMS_LIMITS, pool, &told) != ERR_NONE) {
        audit_find(out, "%s", error_message());
        return ERR_NONE;
    }
    TRY(audit_files(out, told));
    audit_claims(out, told, r, own);
    return ERR_NONE;
}

/* ---- the class ---- */

/* The first summary that both have: it holds a run's id, so no two runs have the same. */
static const char *audit_find_copy(const struct audit *a, const struct audit *b) {
    for (int i = 0; i < a->files.n; i++)
        for (int k = 0; text_ends(a->files.of[i].path, "/summary.json") && k < b->files.n; k++)
            if (!strcmp(a->files.of[i].hex, b->files.of[k].hex)) return a->files.of[i].path;
    return NULL;
}

void audits_find_copies(struct audit *all, int n) {
    for (int i = 0; i < n; i++) {
        const char *path = NULL;
        for (int k = 0; k < i && !path; k++)
            if ((path = audit_find_copy(&all[i], &all[k])))
                audit_find(&all[i], "%s is also in the hand-in of %s", path, all[k].name);
    }
}

void audits_print(const struct audit *all, int n, FILE *f) {
    for (int i = 0; i < n; i++) {
        const struct audit *a = &all[i];
        fprintf(f, "%s: ", a->name);
        if (a->claims)
            fprintf(f, "%d of %d claims hold", a->hold, a->claims);
        else
            fputs("the claims cannot be judged", f);
        fputs(a->nfindings ? "\n" : "; nothing was changed\n", f);
        for (int k = 0; k < a->nfindings; k++) fprintf(f, "  %s\n", a->finding[k]);
        if (a->more) fprintf(f, "  and %d findings more\n", a->more);
    }
}

enum error audits_json(const struct audit *all, int n, struct json *j) {
    json_open(j, NULL, '{');
    json_array(j, "hand_ins", i, n) {
        const struct audit *a = &all[i];
        json_open(j, NULL, '{');
        json_put(j, JSON_TEXT("name", a->name), JSON_TEXT("hand_in", a->hand_in), JSON_INT("hold", a->hold),
                 JSON_INT("claims", a->claims));
        json_texts(j, "findings", a->finding, a->nfindings);
        json_int(j, "more", a->more);
        json_close(j, '}');
    }
    json_close(j, '}');
    return json_done(j);
}
