/* Where a run lives: log.dir with $name and $time, one process at a time. 'checkpoint.resume: auto'
 * goes on in the newest directory of that form that holds a valid checkpoint, and starts afresh
 * when there is none. */
#include "cli/train/run_place.h"

#include "engine/base/file.h"
#include "engine/base/log.h"
#include "engine/save/checkpoint.h"
#include "engine/settings/run_config.h"
#include "engine/tell/environment.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* A moment in a folder's name as a pattern, with the number that tells runs of one second apart: no '*' alone, which would
 * take the runs of "mlp-wide" for those of "mlp". */
#define TWO "[0-9][0-9]"
static const char any_time[] = TWO TWO TWO TWO "-" TWO TWO TWO "*";

/* The template with $name and $time replaced; with any_time it is a pattern, in which all else stands for itself. Nodes may
 * share their files: all but node 0 append their number. */
static char *dir_expand(const struct run_settings *s, const char *when) {
    struct pool *pool = s->pool;
    const char *name = s->config.name;
    char *out = pool_printf(pool, "%s", "");
    for (const char *p = s->config.log.dir; *p && out;) {
        if (!strncmp(p, "$name", 5))
            out = pool_printf(pool, "%s%s", out, name), p += 5;
        else if (!strncmp(p, "$time", 5))
            out = pool_printf(pool, "%s%s", out, when), p += 5;
        else
            out = pool_printf(pool, "%s%s%c", out, when == any_time && strchr("*?[\\", *p) ? "\\" : "", *p), p++;
    }
    int node = (int)s->config.run.node_rank;
    return node && out ? pool_printf(pool, "%s-node-%d", out, node) : out;
}

/* When a run has last written its steps; a report or a note that is written later makes no run newer. */
static time_t place_last_trained(const char *dir, struct pool *pool) {
    struct stat st;
    char *path = pool_printf(pool, "%s/metrics.jsonl", dir);
    return path && stat(path, &st) == 0 ? st.st_mtime : 0;
}

void run_place_newest(const struct run_settings *s, struct run_place *out) {
    glob_t found;
    char *pattern = dir_expand(s, any_time);
    if (!pattern || glob(pattern, 0, NULL, &found) != 0) return;
    time_t newest = 0;
    for (size_t i = 0; i < found.gl_pathc; i++) {
        char *checkpoint;
        time_t trained = place_last_trained(found.gl_pathv[i], s->pool);
        if (trained < newest || checkpoint_find(found.gl_pathv[i], NULL, s->pool, &checkpoint) != ERR_NONE) continue;
        newest = trained;
        out->dir = pool_printf(s->pool, "%s", found.gl_pathv[i]);
        out->resume = checkpoint;
    }
    globfree(&found);
}

static enum error place_make_fresh(const struct run_settings *s, struct run_place *out) {
    char stamp[32], tried[48];
    time_t now = time(NULL);
    struct tm tm;
    strftime(stamp, sizeof stamp, "%Y%m%d-%H%M%S", localtime_r(&now, &tm));
    bool timed = strstr(s->config.log.dir, "$time") != NULL;
    for (int i = 1; i < 1000; i++) {
        snprintf(tried, sizeof tried, i == 1 ? "%s" : "%s-%d", stamp, i);
        TRY_MEMORY(out->dir = dir_expand(s, tried));
        if (!timed || !file_exists(out->dir)) return file_make_folders(out->dir);
    }
    return FAIL(ERR_CREATE, "no free name for a run directory like '%s'", out->dir);
}

static enum error place_choose_resume(const struct run_settings *s, struct run_place *out) {
    const char *resume = s->config.checkpoint.resume;
    if (!strcmp(resume, "never") || s->config.run.node_rank > 0) return ERR_NONE; /* rank 0 reads */
    if (!strcmp(resume, "auto")) {
        run_place_newest(s, out);
        return ERR_NONE;
    }
    out->resume = pool_printf(s->pool, "%s", resume);
    if (file_exists(resume)) return ERR_NONE;
    return FAIL(ERR_INPUT, "checkpoint.resume: no file or folder '%s'", resume);
}

/* flags: O_CREAT, or 0 to leave a directory that has never been locked as it is. */
static enum error place_lock(const struct run_place *p, int flags, struct pool *pool, bool *locked) {
    if (*locked) return ERR_NONE;
    char *path = pool_printf(pool, "%s/run.lock", p->dir);
    if (!path) return ERR_MEMORY;
    int fd = open(path, O_RDWR | O_CLOEXEC | flags, 0644);
    if (fd < 0 && errno == ENOENT && !flags) return ERR_NONE;
    if (fd < 0) return FAIL(ERR_CREATE, "cannot create '%s': %s", path, strerror(errno));
    *locked = file_lock(fd); /* until the process ends */
    if (*locked) return ERR_NONE;
    close(fd);
    return FAIL(ERR_CREATE, "another process is running in '%s'\nchoose another log.dir, or wait for it", p->dir);
}

enum error run_place_open(const struct run_settings *s, const char *given, struct run_place *out) {
    const char *resume = s->config.checkpoint.resume;
    bool first = s->config.run.node_rank == 0; /* it tells the others what is resumed */
    bool locked = false;
    *out = (struct run_place){0};
    if (given) {
        TRY_MEMORY(out->dir = pool_printf(s->pool, "%s", given));
        if (checkpoint_find(given, NULL, s->pool, &out->resume) != ERR_NONE) out->resume = NULL;
    } else
        TRY(place_choose_resume(s, out));
    out->fresh = !out->dir && (first || !strcmp(resume, "never"));
    out->elsewhere = out->resume && !out->dir;
    if (!out->dir) TRY(place_make_fresh(s, out));
    TRY(place_lock(out, 0, s->pool, &locked));
    TRY(run_choice_make(s, out));
    return place_lock(out, O_CREAT, s->pool, &locked);
}

static enum error record_write(struct pool *pool, const char *dir, const char *name, const char *text, size_t n) {
    return file_place(pool_printf(pool, "%s/%s", dir, name), text, n);
}

static const char *const records[] = {"config.yaml", "resolved.yaml"};

static void records_keep(struct run_place *p, struct pool *pool) {
    enum { RECORD_LIMIT = 16 << 20 };
    for (int i = 0; i < 2; i++) {
        const char *path = pool_printf(pool, "%s/%s", p->dir, records[i]);
        if (file_read(path, RECORD_LIMIT, pool, &p->was[i].text, &p->was[i].n) != ERR_NONE) p->was[i].text = NULL;
    }
}

enum error run_place_record(struct run_place *p, const struct run_settings *s) {
    char *resolved = tree_write(s->tree, true, s->pool);
    if (!resolved) return ERR_MEMORY;
    char *ckpt = pool_printf(s->pool, "%s/ckpt", p->dir);
    if (!ckpt) return ERR_MEMORY;
    checkpoint_sweep(ckpt);
    records_keep(p, s->pool);
    if (p->fresh) TRY(run_choice_clear(p->dir, s->pool));
    TRY(run_choice_write(p, s->pool));
    TRY(environment_save(p->dir, s->pool));
    TRY(record_write(s->pool, p->dir, records[0], s->given ? s->given : "", s->given_length));
    return record_write(s->pool, p->dir, records[1], resolved, strlen(resolved));
}

void run_place_restore(const struct run_place *p, struct pool *pool) {
    for (int i = 0; i < 2; i++)
        if (p->was[i].text && record_write(pool, p->dir, records[i], p->was[i].text, p->was[i].n) != ERR_NONE)
            log_warn("%s", error_message());
}
