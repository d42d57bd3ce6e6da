#include "lab/lesson/run.h"

#include "engine/base/clock.h"
#include "engine/base/file.h"
#include "engine/train/stop.h"
#include "lab/lesson/digests.h"
#include "lab/process/process.h"
#include "lab/runner/runner.h"

#include <math.h>
#include <string.h>

enum { TOLD_MOST = 1 << 22, WORDS = LESSON_WORDS + 8 };
static const struct json_limits told_limits = {16, 200000, 4096};

struct lesson_state {
    const struct lesson_runner *r;
    const struct lesson *l;
    struct lesson_result *out;
    struct pool *pool;
    const char *below; /* "runs", seen from the lab's folder */
    bool reads;        /* what was made elsewhere: nothing is started */
};

const char *lesson_below(const struct lesson *l) {
    return l->quick ? "quick" : "runs";
}

enum error lesson_copy_file(const char *from, size_t most, const char *to, struct pool *pool) {
    char *text;
    size_t n;
    TRY(file_read(from, most, pool, &text, &n));
    return file_replace(to, text, n);
}

/* ---- commands ---- */

static bool step_has_word(const struct lesson_step *s, const char *word) {
    for (int i = 0; i < s->nwords; i++)
        if (!strcmp(s->words[i], word)) return true;
    return false;
}

/* The words after "engine", and where the output goes. */
static enum error step_make_words(const struct lesson_state *t, const struct lesson_step *s, const char *words[WORDS]) {
    static const struct {
        const char *command, *option, *form;
    } kinds[LESSON_KINDS] = {{"run", "--set", "log.dir=%s/%s"},
                             {"compare", "--dir", "%s/%s"},
                             {"bench", "--save", "%s/%s.json"},
                             {NULL, NULL, "%s/%s"},
                             {NULL, NULL, "%s/%s"}};
    int n = 0;
    const char *place = pool_printf(t->pool, kinds[s->kind].form, t->below, s->into);
    if (!place) return ERR_MEMORY;
    if (kinds[s->kind].command) words[n++] = kinds[s->kind].command;
    for (int i = 0; i < s->nwords; i++) words[n++] = s->words[i];
    if (kinds[s->kind].option) {
        words[n++] = kinds[s->kind].option;
        words[n++] = place;
    }
    if (s->kind == LESSON_COMPARE && t->l->quick && s->exit == 0) words[n++] = "--quick";
    if (s->kind == LESSON_RUN && strcmp(s->into, s->name) != 0) words[n++] = "--resume";
    if (t->r->quiet && s->kind <= LESSON_COMPARE) words[n++] = "--quiet";
    words[n] = NULL;
    return ERR_NONE;
}

/* The command as one would type it in a shell, in quotes where needed. */
static const char *lesson_words_typed(struct pool *pool, const char *const *under, const char *const *words) {
    const char *text = "";
    for (int i = 0; under[i]; i++) text = pool_say(pool, "%s%s ", text, under[i]);
    text = pool_say(pool, "%sengine", text);
    for (int i = 0; words[i]; i++) {
        bool plain = *words[i] && !words[i][strcspn(words[i], " \t\n'\"\\$&|;<>()*?[]{}#~`!")];
        text = pool_say(pool, plain ? "%s %s" : "%s '%s'", text, words[i]);
    }
    return text;
}

/* ---- what a step has made ---- */

static enum error lesson_read_told(const struct lesson_state *t, const char *path, struct lesson_outcome *o) {
    return file_exists(path) ? json_read(path, TOLD_MOST, told_limits, t->pool, &o->told) : ERR_NONE;
}

/* All of its runs are there: this starts none, but reads them. Where they come from elsewhere, none may be missing. */
static enum error lesson_read_compared(const struct lesson_state *t, const struct lesson_step *s, const char *folder,
                                       struct lesson_outcome *o) {
    struct runner r = {t->r->program, folder, true};
    struct compared *c = pool_alloc(t->pool, sizeof *c);
    if (!c) return ERR_MEMORY;
    TRY((t->reads ? runner_read : runner_run)(&r, s->experiment, c));
    TRY(compare_judge(c));
    compare_predict(c);
    o->compared = c;
    return ERR_NONE;
}

/* One that was killed leaves none. */
static enum error lesson_read_run(const struct lesson_state *t, const char *folder, struct lesson_outcome *o) {
    struct run_result *run = pool_alloc(t->pool, sizeof *run);
    char *path = pool_printf(t->pool, "%s/summary.json", folder);
    if (!run || !path) return ERR_MEMORY;
    if (o->exit != 0) return ERR_NONE;
    TRY(run_result_read(folder, t->pool, run));
    o->run = run;
    return lesson_read_told(t, path, o);
}

static enum error lesson_read_step(const struct lesson_state *t, const struct lesson_step *s,
                                   struct lesson_outcome *o) {
    char *folder = pool_printf(t->pool, "%s/%s", t->out->runs, s->into);
    char *file = pool_printf(t->pool, "%s/%s.json", t->out->runs, s->name);
    if (!folder || !file) return ERR_MEMORY;
    if (s->kind == LESSON_RUN) return lesson_read_run(t, folder, o);
    if (s->kind != LESSON_COMPARE) return lesson_read_told(t, file, o);
    return s->experiment ? lesson_read_compared(t, s, folder, o) : ERR_NONE;
}

enum error lesson_read(const struct lesson *l, int step, struct lesson_result *out) {
    const struct lesson_state t = {&(struct lesson_runner){0}, l, out, l->pool, "", true};
    return lesson_read_step(&t, &l->step[step], &out->outcome[step]);
}

/* A page beside it; without one a lab is none the worse. */
static enum error lesson_write_report(const struct lesson_state *t, const struct lesson_step *s, int i) {
    char *place = pool_printf(t->pool, "%s/%s", t->below, s->into);
    char *page = pool_printf(t->pool, "%s/%s/report.html", t->out->runs, s->into);
    if (!place || !page) return ERR_MEMORY;
    const char *words[] = {"report", place, NULL};
    const struct process p = {t->r->program, words, t->l->folder, "/dev/null", "/dev/null"};
    int code;
    TRY(process_run(&p, t->pool, &code));
    if (code == 0) t->out->report[i] = page;
    return ERR_NONE;
}

/* ---- steps ---- */

/* Removes what an earlier start has left of a run. Comparisons know by themselves what they can use. */
static enum error step_clear(const struct lesson_state *t, const struct lesson_step *s) {
    char *path = pool_printf(t->pool, "%s/%s%s", t->out->runs, s->name, s->kind == LESSON_RUN ? "" : ".json");
    if (s->kind == LESSON_COMPARE || strcmp(s->into, s->name) != 0) return ERR_NONE;
    return file_remove_tree(path);
}

/* The launcher is the program then, and the path of this one is among its words. */
static enum error lesson_put_under(const struct lesson_state *t, const struct lesson_step *s, const char *const *words,
                                   const char **all, struct process *p) {
    int n = 0;
    for (int i = 1; s->under[i]; i++) all[n++] = s->under[i];
    all[n++] = process_path(t->r->program, t->pool);
    if (!all[n - 1]) return ERR_MEMORY;
    for (int i = 0; words[i]; i++) all[n++] = words[i];
    all[n] = NULL;
    p->program = s->under[0], p->args = all;
    return ERR_NONE;
}

static enum error step_start(struct lesson_state *t, int i, const char *const *words) {
    const struct lesson_step *s = &t->l->step[i];
    struct lesson_outcome *o = &t->out->outcome[i];
    struct process p = {t->r->program, words, t->l->folder, t->r->silent ? "/dev/null" : NULL, NULL};
    const char *all[WORDS + LESSON_WORDS];
    if (*s->under) TRY(lesson_put_under(t, s, words, all, &p));
    if (s->kind == LESSON_ENGINE && step_has_word(s, "--json"))
        p.out = pool_printf(t->pool, "%s/%s.json", t->out->runs, s->name);
    int64_t began = clock_ns();
    TRY(process_run(&p, t->pool, &o->exit));
    o->seconds = clock_seconds(clock_ns() - began);
    o->done = !stop_signal();
    return ERR_NONE;
}

/* The file becomes what the step has made. */
static enum error lesson_take_numbers(const struct lesson_state *t, int i) {
    const struct lesson_step *s = &t->l->step[i];
    struct lesson_outcome *o = &t->out->outcome[i];
    const char *from = pool_printf(t->pool, "%s/%s", t->l->folder, s->words[0]);
    const char *to = pool_printf(t->pool, "%s/%s.json", t->out->runs, s->name);
    t->out->command[i] = pool_printf(t->pool, "cp %s %s/%s.json", s->words[0], t->below, s->name);
    if (!from || !to || !t->out->command[i]) return ERR_MEMORY;
    if (!t->r->silent) printf("\n%d of %d: %s\n", i + 1, t->l->nsteps, t->out->command[i]);
    TRY(json_read(from, TOLD_MOST, told_limits, t->pool, &o->told));
    o->done = true;
    return lesson_copy_file(from, TOLD_MOST, to, t->pool);
}

static enum error lesson_run_step(struct lesson_state *t, int i) {
    const char *words[WORDS];
    const struct lesson_step *s = &t->l->step[i];
    struct lesson_outcome *o = &t->out->outcome[i];
    if (s->kind == LESSON_READ) return lesson_take_numbers(t, i);
    TRY(step_make_words(t, s, words));
    TRY(step_clear(t, s));
    t->out->command[i] = lesson_words_typed(t->pool, s->under, words);
    if (!t->r->silent) printf("\n%d of %d: %s\n\n", i + 1, t->l->nsteps, t->out->command[i]);
    fflush(stdout);
    TRY(step_start(t, i, words));
    if (!o->done) return ERR_NONE;
    if (o->exit != s->exit) {
        t->out->failed = i;
        return ERR_NONE;
    }
    TRY(lesson_read_step(t, s, o));
    return o->compared || o->run ? lesson_write_report(t, s, i) : ERR_NONE;
}

void lesson_judge(const struct lesson *l, struct lesson_result *out) {
    for (int i = 0; i < l->nclaims; i++) {
        struct claim_result *c = &out->claim[i];
        bool open = l->quick && !l->claim[i].quick;
        *c = open ? (struct claim_result){-1, "not judged in quick form", (double)NAN}
                  : claim_judge(l, &l->claim[i], out->outcome);
        out->hold += !open && c->holds == 1;
        out->broken += !open && c->holds != 1;
        out->open += open;
    }
    out->score = l->score.check ? claim_judge(l, &l->score, out->outcome).value : (double)NAN;
}

static enum error lesson_write_claims(const struct lesson *l, struct lesson_result *out, const char *below) {
    struct digests files;
    TRY(digests_take(l->folder, below, l->pool, &files));
    TRY(digests_write(l->folder, below, l->pool, &files));
    TRY(digest_of_file(file_of_code(), out->program));
    snprintf(out->files, sizeof out->files, "%s", files.whole);
    struct json j = {0};
    return json_save(&j, lesson_json(l, out, &j), pool_printf(l->pool, "%s/claims.json", out->runs));
}

enum error lesson_run(const struct lesson_runner *r, const struct lesson *l, struct lesson_result *out) {
    struct lesson_state t = {r, l, out, l->pool, lesson_below(l), false};
    int64_t began = clock_ns();
    *out = (struct lesson_result){.failed = -1};
    TRY_MEMORY(out->runs = pool_printf(l->pool, "%s/%s", l->folder, t.below));
    TRY(file_make_folders(out->runs));
    for (int i = 0; i < l->nsteps && out->failed < 0 && !stop_signal(); i++) TRY(lesson_run_step(&t, i));
    out->stopped = stop_signal() != 0;
    out->seconds = clock_seconds(clock_ns() - began);
    if (out->stopped || out->failed >= 0) return ERR_NONE;
    lesson_judge(l, out);
    return lesson_write_claims(l, out, t.below);
}
