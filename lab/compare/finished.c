/* Runs that are there already, as an experiment of a cell each, and what their checkpoints differ in. */
#include "lab/compare/compare.h"

#include "engine/base/file.h"
#include "engine/save/checkpoint.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- tensors ---- */

/* Whether both files hold the same bytes under this tensor's name. */
static bool finished_same_tensor(const struct st_file *a, const struct st_tensor *t, const struct st_file *b) {
    const struct st_tensor *u = st_find(b, t->name);
    if (!u || u->bytes != t->bytes || strcmp(u->dtype, t->dtype) != 0) return false;
    char *words = malloc(2 * t->bytes + 1);
    bool same = !words || st_read(a, t, words) != ERR_NONE || st_read(b, u, words + t->bytes) != ERR_NONE ||
                !memcmp(words, words + t->bytes, t->bytes);
    free(words);
    return same;
}

static const char *finished_first_tensor(const char *const paths[2], struct pool *pool) {
    struct st_file file[2];
    const char *found = NULL;
    if (st_open(paths[0], &file[0]) != ERR_NONE) return NULL;
    if (st_open(paths[1], &file[1]) == ERR_NONE) {
        for (int i = 0; i < file[0].count && !found; i++)
            if (!finished_same_tensor(&file[0], &file[0].tensors[i], &file[1]))
                found = pool_printf(pool, "%s", file[0].tensors[i].name);
        st_close(&file[1]);
    }
    st_close(&file[0]);
    return found;
}

const char *compare_tensors(const char *a, const char *b, struct pool *pool) {
    char *step[2];
    if (checkpoint_find(a, NULL, pool, &step[0]) != ERR_NONE || checkpoint_find(b, NULL, pool, &step[1]) != ERR_NONE ||
        strcmp(file_last_part(step[0]), file_last_part(step[1])) != 0)
        return NULL;
    const char *paths[2] = {pool_printf(pool, "%s/model.safetensors", step[0]),
                            pool_printf(pool, "%s/model.safetensors", step[1])};
    return paths[0] && paths[1] ? finished_first_tensor(paths, pool) : NULL;
}

/* ---- finished runs ---- */

static enum error finished_read_side(struct experiment *x, int side, const char *dir, struct run_result *out) {
    struct experiment_cell *cell = &x->cell[side];
    const char *experiment = pool_printf(x->pool, "%s/results.json", dir);
    const char *run = pool_printf(x->pool, "%s/summary.json", dir);
    if (!experiment || !run) return ERR_MEMORY;
    if (file_exists(experiment) && !file_exists(run))
        return FAIL(ERR_CONFIG,
                    "'%s' is an experiment, not a run\nits runs are in %s/cells; engine report %s shows their results",
                    dir, dir, dir);
    TRY(run_result_read(dir, x->pool, out));
    cell->label = cell->name = out->dir;
    cell->at[0] = side;
    cell->setting = out->setting, cell->nsettings = out->nsettings;
    cell->settings.config.devices.count = (int)out->devices;
    cell->config = "";
    x->axis[0].label[side] =
        side < 26 ? pool_printf(x->pool, "%c", 'A' + side) : pool_printf(x->pool, "run %d", side + 1);
    return x->axis[0].label[side] ? ERR_NONE : ERR_MEMORY;
}

/* Refuses what differs in more than the axis, all of it in one message. */
static enum error finished_check_fair(const struct experiment *x, int other) {
    struct setting_difference d[COMPARE_DIFFERENCES];
    const struct experiment_cell *a = &x->cell[0], *b = &x->cell[other];
    int n = settings_differ(a, b, x->asked, d, COMPARE_DIFFERENCES);
    const char *all = "";
    for (int i = 0; i < n && all; i++)
        if (d[i].guarded)
            all = pool_printf(x->pool, "%s%s%s is '%s' beside '%s'", all, *all ? ", " : "", d[i].key, d[i].a, d[i].b);
    if (all && !*all) return ERR_NONE;
    return FAIL(
        ERR_CONFIG,
        "'%s' and '%s' trained in different ways: %s\nif one of these keys is the question, name it: --axis KEY",
        a->label, b->label, all ? all : "");
}

static void finished_set_measures(struct experiment *x, const struct run_result *result) {
    static const char *const names[] = {"step_time",  "throughput", "comm_exposed", "time",
                                        "train_loss", "val_loss",   "val_accuracy"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct measure m = *measure_find(names[i], (int)strlen(names[i]));
        bool measured = false;
        for (int k = 0; k < x->ncells; k++) measured |= isfinite(measure_of(&m, &result[k], x->warmup));
        if (m.scale == SCALE_RATIO) m.practical = x->practical;
        if (measured || i == 0) x->measure[x->nmeasures++] = m;
    }
}

/* The number of first steps to leave out: as many as the shortest run can spare. */
static int64_t finished_warmup_of(const struct run_result *result, int n) {
    int64_t least = INT64_MAX;
    for (int i = 0; i < n; i++)
        if (result[i].nsteps - result[i].stretch < least) least = result[i].nsteps - result[i].stretch;
    return least > 20 ? 10 : least > 1 ? 1 : 0;
}

enum error compare_finished(const char *const *dirs, int n, const char *axis, struct experiment *x,
                            struct compared *out) {
    memset(x, 0, sizeof *x);
    TRY(pool_create(&x->pool));
    struct run_result *result = pool_alloc(x->pool, (size_t)n * sizeof *result);
    x->name = "finished runs", x->repeats = x->most = 1, x->confidence = 0.95, x->practical = 0.02;
    x->naxes = 1, x->axis[0].key = axis ? axis : "run", x->axis[0].count = n, x->asked[0] = axis;
    x->cell = pool_alloc(x->pool, (size_t)n * sizeof *x->cell);
    x->pair = pool_alloc(x->pool, (size_t)n * sizeof *x->pair);
    if (!x->cell || !x->pair || !result) return ERR_MEMORY;
    for (int i = 0; i < n; i++) TRY(finished_read_side(x, x->ncells++, dirs[i], &result[i]));
    for (int i = 1; i < n; i++) {
        TRY(finished_check_fair(x, i));
        x->pair[x->npairs++] = (struct experiment_pair){{0, i}};
    }
    x->warmup = finished_warmup_of(result, n);
    finished_set_measures(x, result);
    TRY(compare_begin(x, "", out));
    for (int i = 0; i < n; i++) {
        out->cell[i].run[0] = (struct compared_run){.dir = result[i].dir, .result = result[i], .foreign = (double)NAN};
        out->cell[i].nruns = 1;
    }
    return compare_judge(out);
}
