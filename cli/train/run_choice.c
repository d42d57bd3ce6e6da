#include "cli/train/run_place.h"

#include "engine/base/digest.h"
#include "engine/base/file.h"
#include "engine/base/log.h"
#include "engine/base/text.h"
#include "engine/save/checkpoint.h"
#include "engine/save/run_record.h"
#include "engine/settings/run_config.h"
#include "engine/train/inject.h"
#include "transport/launch/launcher.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum error run_choice_write(const struct run_place *p, struct pool *pool) {
    struct launcher_job job;
    if (!p->run_id) return ERR_NONE;
    TRY(launcher_job(NULL, &job));
    return run_record_save(p->dir, &(struct run_record){.run_id = p->run_id, .job = job.name, .restarts = job.restarts},
                           pool);
}

void run_choice_failed(const struct run_place *p, int code, const char *words, struct pool *pool) {
    struct run_record r = run_record_read(p->dir, pool);
    if (!p->run_id || strcmp(r.run_id, p->run_id) != 0) return;
    char *text = pool_printf(pool, "%.500s", words);
    r.code = code, r.error = text ? text_defuse(text, "") : ""; /* the cut may have left a piece of a character */
    if (run_record_save(p->dir, &r, pool) != ERR_NONE) log_warn("%s", error_message());
}

/* ---- which run ---- */

static enum error choice_draw_id(struct pool *pool, const char **out) {
    uint64_t id = 0;
    while (id == 0) TRY(random_bytes(&id, sizeof id));
    *out = pool_printf(pool, "%016llx", (unsigned long long)id);
    return *out ? ERR_NONE : ERR_MEMORY;
}

/* Whether a path to resume from means the newest checkpoint of the very directory. */
static bool choice_is_newest_of(const char *dir, const char *path, struct pool *pool) {
    const char *newest = checkpoint_newest_step(dir, NULL, pool);
    if (!checkpoint_run_id(path, pool)) path = checkpoint_newest_step(path, NULL, pool);
    return newest && path && file_is_same(newest, path);
}

/* The next start of the job whose start before made this directory. It goes on where the run is; a
 * run that has saved nothing begins as it did. A launcher does not count a start with another number of ranks. */
static enum error choice_starts_again(const struct run_settings *s, const struct run_record *r, struct run_place *p,
                                      bool *again) {
    bool uncounted = s->config.launched.by && s->config.run.elastic.min;
    struct launcher_job job;
    char *newest;
    TRY(launcher_job(NULL, &job));
    *again = *job.name && *r->run_id && !strcmp(job.name, r->job) && job.restarts + uncounted > r->restarts;
    if (*again && checkpoint_find(p->dir, r->run_id, s->pool, &newest) == ERR_NONE)
        p->resume = newest, p->elsewhere = false;
    return ERR_NONE;
}

static enum error choice_refuse_others(const struct run_place *p, struct pool *pool) {
    const char *step = checkpoint_newest_step(p->dir, RUN_ANY, pool);
    const char *of = step ? checkpoint_run_id(step, pool) : NULL;
    if (!of) return ERR_NONE;
    return FAIL(ERR_CREATE,
                "'%s' holds checkpoints of another run%s%s\nto continue it: engine run %s, or --resume; to begin a new "
                "run, choose another log.dir",
                p->dir, *of ? ", " : "", of, p->dir);
}

/* The id of a run that continues: its checkpoint's, or else its record's; "": neither has one. */
static const char *choice_id_of(const struct run_place *p, const struct run_record *r, struct pool *pool) {
    const char *saved = p->resume && !p->elsewhere ? checkpoint_run_id(p->resume, pool) : NULL;
    return saved && *saved ? saved : r->run_id;
}

enum error run_choice_make(const struct run_settings *s, struct run_place *p) {
    struct pool *pool = s->pool;
    bool again = false;
    if (s->config.run.node_rank > 0) /* node 0 says which run it is */
        return ERR_NONE;
    struct run_record r = run_record_read(p->dir, pool);
    if (p->elsewhere) p->elsewhere = !choice_is_newest_of(p->dir, p->resume, pool);
    if (p->resume && !p->elsewhere) p->fresh = false;
    if (p->fresh) TRY(choice_starts_again(s, &r, p, &again));
    if (again) p->fresh = false;
    if (p->fresh) TRY(choice_refuse_others(p, pool));
    p->run_id = p->fresh ? "" : choice_id_of(p, &r, pool);
    return *p->run_id ? ERR_NONE : choice_draw_id(pool, &p->run_id);
}

/* ---- what is left of another ---- */

enum error run_choice_clear(const char *dir, struct pool *pool) {
    static const char *const names[] = {"metrics.jsonl", "metrics.csv", "tb",     "summary.json",
                                        "trace.json",    "trace",       "flight", "validation.safetensors"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (file_remove_tree(pool_printf(pool, "%s/%s", dir, names[i])) != ERR_NONE) log_warn("%s", error_message());
    }
    DIR *d = opendir(dir);
    int rank, end = 0;
    for (struct dirent *e; d && (e = readdir(d)); end = 0)
        if (sscanf(e->d_name, "rank%9d.log%n", &rank, &end) == 1 && end && !e->d_name[end] &&
            unlinkat(dirfd(d), e->d_name, 0) != 0)
            log_warn("cannot remove '%s/%s': %s", dir, e->d_name, strerror(errno));
    if (d) closedir(d);
    inject_forget(dir);
    return ERR_NONE;
}
