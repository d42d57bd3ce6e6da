/* The best two ways, held against each other by 'engine compare'. */
#include "cli/advise/advise.h"

#include "engine/base/file.h"
#include "lab/process/process.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct duel { /* of two sides, of which the first is what is advised */
    const struct advise_row *side[2];
    const char *folder, *file;
};

/* Chooses the two ways that should be the fastest, of one device alone and the modes of several. */
static bool duel_choose(const struct advising *g, struct duel *d) {
    const struct advice *a = &g->advice;
    for (int k = 0; k < g->ask.ndevices; k++)
        for (int m = 0; m < advise_modes() && g->ask.devices[k] == g->check; m++) {
            const struct advise_row *r = a->at[k].best[m] < 0 ? NULL : &a->row[a->at[k].best[m]];
            if (r && (!d->side[0] || r->rate > d->side[0]->rate))
                d->side[1] = d->side[0], d->side[0] = r;
            else if (r && (!d->side[1] || r->rate > d->side[1]->rate))
                d->side[1] = r;
        }
    return d->side[1] != NULL;
}

/* Modes are an axis. One device alone is the other mode on one device, where nothing is shared. */
static char *matrix_of(const struct advising *g, const struct duel *d) {
    const char *kind = g->settings.config.devices.kind;
    int m[2] = {d->side[0]->as.mode, d->side[1]->as.mode}, alone = advise_alone();
    if (m[0] != alone && m[1] != alone)
        return pool_printf(g->pool, "matrix: {mode: [%s, %s]}\n", advise_mode(m[0])->name, advise_mode(m[1])->name);
    return pool_printf(g->pool, "matrix: {devices: [\"%s:%d\", \"%s:%d\"]}\n", kind, m[0] == alone ? 1 : (int)g->check,
                       kind, m[1] == alone ? 1 : (int)g->check);
}

static enum error write_experiment(const struct advising *g, struct duel *d) {
    char *base = g->config.path ? realpath(g->config.path, NULL) : NULL;
    char *matrix = matrix_of(g, d);
    char *text = matrix ? pool_printf(g->pool, "name: advise\n%s%s%s%swarmup: 10st\n", base ? "base: \"" : "",
                                      base ? base : "", base ? "\"\n" : "", matrix)
                        : NULL;
    free(base);
    if (!text) return ERR_MEMORY;
    TRY(file_make_folders(d->folder));
    return file_replace(d->file, text, strlen(text));
}

enum { WORDS = 60 };
struct words {
    int n;
    const char *of[WORDS + 1];
};

static enum error words_add(struct words *w, const char *text) {
    if (!text) return ERR_MEMORY;
    if (w->n + 2 > WORDS) return FAIL(ERR_USAGE, "too many --set options for --verify");
    w->of[w->n++] = "--set";
    w->of[w->n++] = text;
    return ERR_NONE;
}

static bool has_key(const char *set, const char *key) {
    size_t n = strlen(key);
    return !strncmp(set, key, n) && (set[n] == '=' || set[n] == '.');
}

/* What both sides share; the axis says what they do not. */
static enum error duel_common(const struct advising *g, const struct duel *d, struct words *w) {
    int alone = advise_alone(), shares = d->side[0]->as.mode == alone ? 1 : 0;
    const char *axis = d->side[0]->as.mode != alone && d->side[1]->as.mode != alone ? "mode" : "devices";
    double step = fmax(d->side[0]->answer.result.step, d->side[1]->answer.result.step);
    const struct wire *port = &g->ask.port[d->side[shares]->as.mode];
    for (int i = 0; i < g->config.nsets; i++)
        if (!has_key(g->config.sets[i], axis)) TRY(words_add(w, g->config.sets[i]));
    for (int i = 0; i < 2; i++) {
        const char *sets[ADVISE_SETS];
        int n;
        TRY(advise_sets(&g->ask, &d->side[i]->as, g->pool, sets, &n));
        for (int k = 0; k < n && d->side[i]->as.mode != alone; k++)
            if (!has_key(sets[k], axis)) TRY(words_add(w, sets[k]));
    }
    if (!strcmp(axis, "mode"))
        TRY(words_add(w, pool_printf(g->pool, "devices=%s:%d", g->settings.config.devices.kind, (int)g->check)));
    TRY(words_add(w, pool_printf(g->pool, "threads=%lld", (long long)g->settings.config.threads)));
    TRY(words_add(w, advise_batch(g, g->settings.config.devices.count)));
    TRY(words_add(w, pool_printf(g->pool, "train=%dst", (int)fmax(30, fmin(300, 1 / step)))));
    TRY(words_add(w, "eval=off"));
    TRY(words_add(w, "checkpoint=off"));
    if (!g->emulated) return ERR_NONE;
    return words_add(w, pool_printf(g->pool, "comm.emulate={bandwidth: %.0f, latency: %.9gs}",
                                    port->beta > 0 ? 1 / port->beta : 1e15, port->alpha));
}

/* B against A: how many times as fast the second side is. */
static enum error duel_judge(struct advising *g, const struct duel *d) {
    struct advise_verified *v = &g->advice.verified;
    const struct json_value *root, *pairs, *pair;
    char *path = pool_printf(g->pool, "%s/results.json", d->folder);
    if (!path) return ERR_MEMORY;
    TRY(json_read(path, 1 << 26, (struct json_limits){16, 1 << 20, 1 << 16}, g->pool, &root));
    pairs = json_member(root, "pairs", JSON_ARRAY);
    pair = pairs && pairs->count == 1 ? &pairs->children[0] : NULL;
    if (!pair) return FAIL(ERR_DATA, "'%s' has no pair of two sides", path);
    const char *verdict = json_text(pair, "verdict"), *doubt = json_text(pair, "doubt");
    v->held = !strcmp(verdict, "slower") ? "held" : !strcmp(verdict, "faster") ? "did not hold" : "open";
    double ratio = json_number(pair, "ratio"), predicted = d->side[1]->rate / d->side[0]->rate;
    v->words =
        pool_printf(g->pool,
                    "Verified by engine compare: %s against %s is %s (%.2f times as fast%s%s; predicted %.2f), so "
                    "the predicted order %s. All files are in %s.",
                    advise_text(&g->advice, &d->side[1]->as), advise_text(&g->advice, &d->side[0]->as), verdict, ratio,
                    *doubt ? ", but " : "", doubt, predicted,
                    !strcmp(v->held, "open") ? "neither held nor failed" : v->held, d->folder);
    return v->words ? ERR_NONE : ERR_MEMORY;
}

enum error advise_verify(struct advising *g) {
    struct duel d = {.folder = pool_printf(g->pool, "runs/advise-%s", g->settings.config.name)};
    d.file = d.folder ? pool_printf(g->pool, "%s/experiment.yaml", d.folder) : NULL;
    if (!d.file) return ERR_MEMORY;
    if (!g->check || !duel_choose(g, &d))
        return FAIL(ERR_USAGE,
                    "--verify runs the best two ways here, and needs two devices of the list\n"
                    "this machine has %lld, with %lld threads each",
                    (long long)g->here, (long long)g->settings.config.threads);
    TRY(write_experiment(g, &d));
    struct words w = {7, {"compare", d.file, "--json", "--quiet", "--dir", d.folder, "--repeats=auto"}};
    TRY(duel_common(g, &d, &w));
    advising_progress(g, "verifying with engine compare, in %s", d.folder);
    const char *log = pool_printf(g->pool, "%s/compare.log", d.folder);
    if (!log) return ERR_MEMORY;
    TRY(process_engine(&(struct process){ENGINE_ITSELF, w.of, NULL, "/dev/null", log}, 0, g->pool));
    return duel_judge(g, &d);
}
