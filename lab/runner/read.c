/* The runs of an experiment that were made elsewhere: by another build, so that the cells' folders have other names. */
#include "lab/runner/impl.h"
#include "lab/runner/runner.h"

#include "engine/base/file.h"

#include <stdio.h>
#include <string.h>

enum { RESULTS_MOST = 1 << 26 };
static const struct json_limits results_limits = {8, 1 << 20, 65536}, note_limits = {3, 64, 256};

static const struct json_value *read_find_cell(const struct json_value *results, const char *label) {
    const struct json_value *cells = json_member(results, "cells", JSON_ARRAY);
    for (int i = 0; cells && i < cells->count; i++)
        if (!strcmp(json_text(&cells->children[i], "label"), label)) return &cells->children[i];
    return NULL;
}

/* The cell takes the folder that results.json names for its first run, "cells/NAME/run-01", and the digest that is noted there. */
static enum error read_adopt_cell(const struct runner_state *s, const struct json_value *results, int i) {
    struct experiment_cell *cell = &s->x->cell[i];
    const struct json_value *at = json_member(read_find_cell(results, cell->label), "runs", JSON_ARRAY), *note;
    const char *dir = at && at->count ? json_text(&at->children[0], "dir") : "";
    char name[256] = "";
    if (sscanf(dir, "cells/%255[^/]", name) != 1 || *name == '.')
        return FAIL(ERR_DATA, "'%s/results.json' has no run of '%s'", s->r->folder, cell->label);
    TRY_MEMORY(cell->name = pool_printf(s->pool, "%s", name));
    TRY(json_read(runner_run_path(s, i, 0, "/compare.json"), 4096, note_limits, s->pool, &note));
    snprintf(cell->digest, sizeof cell->digest, "%s", json_text(note, "digest"));
    return ERR_NONE;
}

static enum error read_check_complete(const struct runner_state *s) {
    for (int i = 0; i < s->x->ncells; i++)
        for (int k = 0; k < s->out->repeats; k++)
            if (!s->done[i * s->most + k])
                return FAIL(ERR_DATA, "'%s', run %d is missing or damaged", s->x->cell[i].label, k + 1);
    return ERR_NONE;
}

enum error runner_read(const struct runner *r, const struct experiment *x, struct compared *out) {
    struct runner_state s = {.r = r, .x = x, .out = out, .pool = x->pool, .most = x->most};
    const struct json_value *results;
    const char *path = pool_printf(x->pool, "%s/results.json", r->folder);
    TRY(json_read(path, RESULTS_MOST, results_limits, x->pool, &results));
    TRY(compare_begin(x, r->folder, out));
    TRY(runner_make_room(&s));
    for (int i = 0; i < x->ncells; i++) TRY(read_adopt_cell(&s, results, i));
    runner_take_all(&s);
    runner_gather(&s);
    TRY(read_check_complete(&s));
    if (x->most == x->repeats) return ERR_NONE;
    TRY(compare_judge(out));
    out->repeats = compare_wanted_repeats(out);
    runner_gather(&s);
    return read_check_complete(&s);
}
