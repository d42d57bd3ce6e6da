/* Two runs that are there already, as an experiment of two cells, and what their checkpoints differ in. */
#include "lab/compare.h"

#include "engine/save/checkpoint.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- tensors ---- */

/* Whether both files hold the same bytes under this tensor's name. */
static bool same_tensor(const struct st_file *a, const struct st_tensor *t, const struct st_file *b) {
    const struct st_tensor *u = st_find(b, t->name);
    if (!u || u->bytes != t->bytes || strcmp(u->dtype, t->dtype) != 0) return false;
    char *words = malloc(2 * t->bytes + 1);
    bool same = !words || st_read(a, t, words) != ERR_NONE || st_read(b, u, words + t->bytes) != ERR_NONE ||
                !memcmp(words, words + t->bytes, t->bytes);
    free(words);
    return same;
}

static const char *first_tensor(const char *const paths[2], struct pool *pool) {
    struct st_file file[2];
    const char *found = NULL;
    if (st_open(paths[0], &file[0]) != ERR_NONE) return NULL;
    if (st_open(paths[1], &file[1]) == ERR_NONE) {
        for (int i = 0; i < file[0].count && !found; i++)
            if (!same_tensor(&file[0], &file[0].tensors[i], &file[1]))
                found = pool_printf(pool, "%s", file[0].tensors[i].name);
        st_close(&file[1]);
    }
    st_close(&file[0]);
    return found;
}

static const char *last_part(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

const char *compare_tensors(const char *a, const char *b, struct pool *pool) {
    char *step[2];
    if (checkpoint_find(a, NULL, pool, &step[0]) != ERR_NONE || checkpoint_find(b, NULL, pool, &step[1]) != ERR_NONE ||
        strcmp(last_part(step[0]), last_part(step[1])) != 0)
        return NULL;
    const char *paths[2] = {pool_printf(pool, "%s/model.safetensors", step[0]),
                            pool_printf(pool, "%s/model.safetensors", step[1])};
    return paths[0] && paths[1] ? first_tensor(paths, pool) : NULL;
}

/* ---- two runs ---- */

static enum error read_side(struct experiment *x, int side, const char *dir, struct run_result *out) {
    struct experiment_cell *cell = &x->cell[side];
    TRY(run_result_read(dir, x->pool, out));
    cell->label = cell->name = out->dir;
    cell->at[0] = side;
    cell->setting = out->setting, cell->nsettings = out->nsettings;
    cell->settings.config.devices.count = (int)out->devices;
    cell->config = "";
    x->axis[0].label[side] = side ? "B" : "A";
    return ERR_NONE;
}

/* Refuses what differs in more than the axis, all of it in one message. */
static enum error check_fair(const struct experiment *x, const char *axis) {
    struct setting_difference d[COMPARE_DIFFERENCES];
    const struct experiment_cell *a = &x->cell[0], *b = &x->cell[1];
    int n = settings_differ(a, b, axis, d, COMPARE_DIFFERENCES);
    const char *all = "";
    for (int i = 0; i < n && all; i++)
        if (d[i].guarded)
            all = pool_printf(x->pool, "%s%s%s is '%s' beside '%s'", all, *all ? ", " : "", d[i].key, d[i].a, d[i].b);
    if (all && !*all) return ERR_NONE;
    return FAIL(ERR_CONFIG,
                "'%s' and '%s' trained in different ways: %s\nif one of these is the question, "
                "name it: --axis KEY",
                a->label, b->label, all ? all : "");
}

static void set_measures(struct experiment *x) {
    static const char *const names[] = {"step_time", "throughput", "comm_exposed", "val_loss"};
    for (int i = 0; i < 4; i++) x->measure[x->nmeasures++] = *measure_find(names[i], (int)strlen(names[i]));
}

enum error compare_two(const char *const dirs[2], const char *axis, struct experiment *x, struct compared *out) {
    struct run_result result[2];
    memset(x, 0, sizeof *x);
    TRY(pool_create(&x->pool));
    x->name = "two runs", x->repeats = 1, x->confidence = 0.95, x->practical = 0.02;
    x->naxes = 1, x->axis[0].key = axis ? axis : "run", x->axis[0].count = 2;
    x->cell = pool_alloc(x->pool, 2 * sizeof *x->cell);
    x->pair = pool_alloc(x->pool, sizeof *x->pair);
    if (!x->cell || !x->pair) return ERR_MEMORY;
    x->ncells = 2, x->npairs = 1;
    x->pair[0] = (struct experiment_pair){{0, 1}};
    set_measures(x);
    for (int i = 0; i < 2; i++) TRY(read_side(x, i, dirs[i], &result[i]));
    TRY(check_fair(x, axis));
    int64_t least = INT64_MAX;
    for (int i = 0; i < 2; i++)
        if (result[i].nsteps - result[i].stretch < least) least = result[i].nsteps - result[i].stretch;
    x->warmup = least > 20 ? 10 : least > 1 ? 1 : 0;
    TRY(compare_begin(x, "", out));
    for (int i = 0; i < 2; i++) {
        out->cell[i].run[0] = (struct compared_run){result[i].dir, result[i], (double)NAN};
        out->cell[i].nruns = 1;
    }
    return compare_judge(out);
}
