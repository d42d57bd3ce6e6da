#include "lab/predict/link_fit.h"

#include "engine/base/file.h"
#include "engine/base/links.h"
#include "engine/base/log.h"
#include "engine/base/plugin.h"
#include "engine/train/stop.h"
#include "lab/predict/port_fit.h"
#include "lab/process/process.h"

#include <stdio.h>
#include <string.h>

/* NULL: nothing that this program could start ranks for. */
static const char *link_name(int link) {
    const struct link_row *row = &link_rows[link];
    return row->joins == JOINS_ANY || row->launched ? NULL : row->name;
}

/* A server's reduce and broadcast are a star; one that is shared by all is what 'direct' does. A plug-in has no formula, by
 * which a port could be found in its times. */
struct link link_of(const struct run_config *c) {
    static const char *const algorithms[] = {[UPDATE_BY_ROOT] = "star", [UPDATE_BY_OWNERS] = "direct"};
    enum update_by by = c->sharing.plan.update;
    const char *own = plugin_is_path(c->comm.algorithm) ? "direct" : c->comm.algorithm;
    return (struct link){link_name(c->comm.link), by == UPDATE_BY_ALL ? own : algorithms[by], run_all_ranks(c)};
}

static struct link link_at(const struct experiment *x, int cell) {
    return link_of(&x->cell[cell].settings.config);
}

bool link_fit_needed(const struct experiment *x, int cell) {
    const struct run_config *c = &x->cell[cell].settings.config;
    return !x->cell[cell].start.command && !emulation_on(&c->comm.emulate.as) && link_at(x, cell).ranks > 1;
}

/* The file of a cell's measured link, named by the first cell that needs the same link: its digest includes the build. */
static char *link_path_of(const struct experiment *x, const char *folder, int cell) {
    struct link mine = link_at(x, cell);
    int first = 0;
    for (; first < cell; first++) {
        struct link l = link_at(x, first);
        if (link_fit_needed(x, first) && l.name && mine.name && !strcmp(l.name, mine.name) &&
            !strcmp(l.algorithm, mine.algorithm) && l.ranks == mine.ranks)
            break;
    }
    return pool_printf(x->pool, "%s/fit/%s-%s-%d-%.8s.json", folder, mine.name ? mine.name : "none", mine.algorithm,
                       mine.ranks, x->cell[first].digest);
}

enum error link_measure(const struct link *l, const char *program, const char *path, struct pool *pool) {
    char ranks[16];
    char *making = pool_printf(pool, "%s.part", path), *log = pool_printf(pool, "%s.log", path);
    snprintf(ranks, sizeof ranks, "%d", l->ranks);
    const char *args[] = {"bench",       "comm",       "--link",    l->name, "--ranks", ranks,
                          "--algorithm", l->algorithm, "--from",    "4KB",   "--to",    "16MB",
                          "--factor",    "8",          "--seconds", "0.05",  "--json",  NULL};
    if (!making || !log) return ERR_MEMORY;
    if (!l->name) return FAIL(ERR_CONFIG, "'engine bench comm' cannot measure this link");
    const struct process p = {program, args, NULL, making, log};
    TRY(process_engine(&p, 0, pool));
    if (rename(making, path) != 0) return FAIL(ERR_CREATE, "cannot create '%s'", path);
    return ERR_NONE;
}

static enum error link_measure_cell(const struct experiment *x, const char *folder, const char *program, int cell,
                                    bool quiet) {
    struct link l = link_at(x, cell);
    char *path = link_path_of(x, folder, cell), *under = pool_printf(x->pool, "%s/fit", folder);
    if (!path || !under) return ERR_MEMORY;
    if (file_exists(path)) return ERR_NONE;
    TRY(file_make_folders(under));
    if (!quiet && l.name) fprintf(stderr, "measuring link %s, %s, %d ranks\n", l.name, l.algorithm, l.ranks);
    return link_measure(&l, program, path, x->pool);
}

void link_fits_measure(const struct experiment *x, const char *folder, const char *program, bool quiet) {
    for (int i = 0; i < x->ncells && !stop_signal(); i++)
        if (link_fit_needed(x, i) && link_measure_cell(x, folder, program, i, quiet) != ERR_NONE && !stop_signal())
            log_warn("'%s' will not be predicted: %s", x->cell[i].label, error_message());
}

enum error link_read(const struct link *l, const char *path, struct pool *pool, struct link_fit *out) {
    char rate[32] = "unlimited";
    TRY(port_fit_read(path, &out->wire, &out->off));
    if (out->wire.beta > 0) snprintf(rate, sizeof rate, "%.3g GB/s", 1e-9 / out->wire.beta);
    out->words = pool_printf(pool, "%s, %d ranks: fitted %.3g us, %s", l->name, l->ranks, out->wire.alpha * 1e6, rate);
    return out->words ? ERR_NONE : ERR_MEMORY;
}

enum error link_fit_read(const struct experiment *x, const char *folder, int cell, struct link_fit *out) {
    struct link l = link_at(x, cell);
    char *path = link_path_of(x, folder, cell);
    if (!path) return ERR_MEMORY;
    if (!file_exists(path)) return FAIL(ERR_INPUT, "its link was not measured");
    return link_read(&l, path, x->pool, out);
}
