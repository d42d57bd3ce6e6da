/* Saving checkpoints beside training. The caller's thread copies the arenas into the snapshot and
 * goes on; the saver's thread writes it:
 *
 *   1. a folder .tmp-step-N.PID-RANDOM, locked, so that a sweep knows it to be alive
 *   2. in it the files: space reserved, written, fsynced, closed
 *   3. in it the manifest, likewise, and the folder itself fsynced
 *   4. rename to step-N: the commit (an older step-N changes places with it in one call); the
 * parent fsynced
 *   5. only now: what is beyond 'keep' goes
 *
 * Whatever fails before 4, or whoever kills us, no step-N has changed, and what is left bears a
 * name that no reader looks at. A failed fsync is final: that file is given up and nothing is tried
 * again on it. */
#include "engine/base/digest.h"
#include "engine/base/file.h"
#include "engine/base/log.h"
#include "engine/base/text.h"
#include "engine/base/thread.h"
#include "engine/save/checkpoint_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FAILURES_MOST = 3, PATH_MOST = 4096, TEXT_MOST = 1024 };

struct saver {
    struct pool *pool; /* of the next two texts */
    const char *folder;
    int fd; /* of it, locked: others see that a saver is open */
    int keep;
    struct checkpoint_view view;
    const char *preprocessing; /* in JSON; NULL: none */
    struct snapshot *snapshot; /* the caller's while idle, the thread's while busy */
    bool best;

    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool busy, stop;
    int failures;   /* in a row */
    bool reported;  /* the last one, by saver_wait */
    enum error err; /* of the last failure, with its words */
    char text[TEXT_MOST];
};

/* ---- one checkpoint ---- */

/* Makes and locks a temporary folder. */
static enum error temporary_open(const char *folder, int64_t step, char path[PATH_MOST], int *fd) {
    uint32_t random;
    TRY(random_bytes(&random, sizeof random));
    int n = snprintf(path, PATH_MOST, "%s/" TEMPORARY_PREFIX "step-%09" PRId64 ".%d-%08x", folder, step, (int)getpid(),
                     random);
    if (n >= PATH_MOST) return FAIL(ERR_CREATE, "the path '%.64s...' is too long", folder);
    if (mkdir(path, 0777) != 0) return FAIL(ERR_CREATE, "cannot make the folder '%s': %s", path, strerror(errno));
    *fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*fd >= 0 && flock(*fd, LOCK_EX | LOCK_NB) == 0) return ERR_NONE;
    enum error err = FAIL(ERR_CREATE, "cannot lock the folder '%s': %s", path, strerror(errno));
    if (*fd >= 0) close(*fd);
    rmdir(path);
    return err;
}

static enum error saver_write_file(const struct saver *s, const char *folder, enum checkpoint_file file,
                                   struct manifest *m) {
    static const char *const kinds[CHECKPOINT_FILES] = {"model", "optim", "state", "model"};
    char path[PATH_MOST + 32], step[24];
    int count;
    const struct st_tensor *tensors = snapshot_tensors(s->snapshot, file, &count);
    snprintf(path, sizeof path, "%s/%s", folder, checkpoint_file_names[file]);
    snprintf(step, sizeof step, "%" PRId64, m->step);
    bool network = file == FILE_MODEL || file == FILE_AVERAGE;
    const char *const metadata[][2] = {{"format", "pt"},
                                       {"engine_format", "1"},
                                       {"kind", kinds[file]},
                                       {"step", step},
                                       {network && s->preprocessing ? "preprocessing" : NULL, s->preprocessing},
                                       {NULL}};
    if (file == FILE_AVERAGE && !count) return ERR_NONE;
    return st_write(path, tensors, count, metadata, &m->file[file].crc, &m->file[file].bytes);
}

static enum error saver_write_step(const struct saver *s, const char *folder, int64_t step) {
    struct manifest m = {.step = step,
                         .mode = s->view.mode,
                         .identity = s->view.identity ? s->view.identity : "",
                         .data = s->view.data ? s->view.data : "",
                         .run_id = s->view.run_id ? s->view.run_id : "",
                         .preprocessing = s->preprocessing,
                         .devices = s->view.devices,
                         .best = s->best,
                         .loss = (double)snapshot_counters(s->snapshot)->loss,
                         .rescued = snapshot_counters(s->snapshot)->rescued,
                         .tuned = snapshot_counters(s->snapshot)->tuned};
    for (int i = 0; i < CHECKPOINT_FILES; i++) TRY(saver_write_file(s, folder, (enum checkpoint_file)i, &m));
    return manifest_write(folder, &m);
}

/* What does not say whose it is was there when this run went on from it. */
static bool saver_is_anothers(const struct saver *s, const struct manifest *m) {
    return *m->run_id && (!s->view.run_id || strcmp(m->run_id, s->view.run_id) != 0);
}

static enum error saver_check_place(const struct saver *s, const char *path, struct pool *pool) {
    struct manifest m;
    if (!file_exists(path) || manifest_read(path, pool, &m) != ERR_NONE || !saver_is_anothers(s, &m)) return ERR_NONE;
    return FAIL(ERR_CREATE, "'%s' is a checkpoint of another run (%s), which is not changed", path, m.run_id);
}

/* Afterwards 'temporary' is what was at 'final', or nothing. */
static enum error saver_commit(const char *temporary, const char *final) {
    if (rename(temporary, final) == 0) return ERR_NONE;
    bool taken = errno == ENOTEMPTY || errno == EEXIST;
    if (taken && renameat2(AT_FDCWD, temporary, AT_FDCWD, final, RENAME_EXCHANGE) == 0) return ERR_NONE;
    return FAIL(ERR_CREATE, "cannot rename '%s' to '%s': %s", temporary, final, strerror(errno));
}

static enum error save_step(const struct saver *s, int64_t step, struct pool *pool) {
    char temporary[PATH_MOST];
    int fd = -1;
    const char *final = step_path(s->folder, step, pool);
    if (!final) return ERR_MEMORY;
    TRY(saver_check_place(s, final, pool));
    TRY(temporary_open(s->folder, step, temporary, &fd));
    enum error err = saver_write_step(s, temporary, step);
    if (err == ERR_NONE) err = saver_commit(temporary, final);
    if (err == ERR_NONE) err = file_sync_folder(s->folder);
    char text[TEXT_MOST];
    snprintf(text, sizeof text, "%s", error_message());
    if (file_remove_tree(temporary) != ERR_NONE) log_warn("%s", error_message());
    close(fd);
    return err == ERR_NONE ? ERR_NONE : FAIL(err, "%s", text);
}

/* ---- pruning ---- */

/* Out of sight in one call, then away: a kill in between leaves no half checkpoint. */
static void saver_remove_step(const char *folder, int64_t step, struct pool *pool) {
    char *path = step_path(folder, step, pool);
    char *hidden = pool_printf(pool, "%s/" TEMPORARY_PREFIX "old-%09" PRId64 ".%d", folder, step, (int)getpid());
    if (!path || !hidden) return;
    if (rename(path, hidden) != 0)
        log_warn("cannot remove the old checkpoint '%s': %s", path, strerror(errno));
    else if (file_remove_tree(hidden) != ERR_NONE)
        log_warn("cannot remove the old checkpoint '%s': %s", path, error_message());
}

/* Leaves 'keep' complete checkpoints, the newest ones and 'saved' among them, and the newest best.
 * What has no good manifest or is another run's is not ours to judge: it is neither counted nor
 * deleted. */
static void saver_prune(const struct saver *s, int64_t saved, struct pool *pool) {
    struct step_list list;
    bool best_seen = false;
    int kept = 1;
    if (!s->keep) return;
    if (step_list_read(s->folder, pool, &list) != ERR_NONE) {
        log_warn("old checkpoints stay: %s", error_message());
        return;
    }
    for (int i = 0; i < list.count; i++) {
        struct manifest m;
        char *path = step_path(s->folder, list.step[i], pool);
        if (!path || manifest_read(path, pool, &m) != ERR_NONE || saver_is_anothers(s, &m)) continue;
        bool newest_best = m.best && !best_seen;
        best_seen |= m.best;
        if (list.step[i] == saved || newest_best) continue;
        if (kept < s->keep)
            kept++;
        else
            saver_remove_step(s->folder, list.step[i], pool);
    }
}

/* ---- the thread ---- */

static enum error save_and_prune(const struct saver *s, int64_t step) {
    struct pool *pool;
    TRY(pool_create(&pool));
    enum error err = save_step(s, step, pool);
    if (err == ERR_NONE) saver_prune(s, step, pool);
    pool_free(pool);
    return err;
}

static void saver_note_outcome(struct saver *s, enum error err, int64_t step) {
    s->failures = err == ERR_NONE ? 0 : s->failures + 1;
    s->reported = err == ERR_NONE;
    if (err == ERR_NONE) return;
    s->err = err;
    snprintf(s->text, sizeof s->text, "the checkpoint of step %" PRId64 " was not saved: %s", step, error_message());
    log_warn("%s (failure %d in a row; %d end the run)", s->text, s->failures, FAILURES_MOST);
}

static void *run_saver(void *arg) {
    struct saver *s = arg;
    text_plain_numbers();
    pthread_mutex_lock(&s->lock);
    for (;;) {
        while (!s->busy && !s->stop) pthread_cond_wait(&s->changed, &s->lock);
        if (!s->busy) break;
        pthread_mutex_unlock(&s->lock);
        int64_t step = snapshot_counters(s->snapshot)->step;
        enum error err = save_and_prune(s, step);
        pthread_mutex_lock(&s->lock);
        saver_note_outcome(s, err, step);
        s->busy = false;
        pthread_cond_broadcast(&s->changed);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

static enum error saver_start_thread(struct saver *s) {
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    int code = thread_start(&s->thread, run_saver, s);
    return code ? FAIL(ERR_MEMORY, "cannot start the saver's thread: %s", strerror(code)) : ERR_NONE;
}

/* Shared, since it keeps nobody out. */
static enum error saver_lock_folder(struct saver *s) {
    s->fd = open(s->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (s->fd >= 0 && flock(s->fd, LOCK_SH) == 0) return ERR_NONE;
    return FAIL(ERR_CREATE, "cannot lock the folder '%s': %s", s->folder, strerror(errno));
}

static void saver_free(struct saver *s) {
    if (s->fd >= 0) close(s->fd);
    snapshot_free(s->snapshot);
    pool_free(s->pool);
    free(s);
}

/* The folder, and its own entry in its parent, are on disk before anything is saved in it. */
static enum error saver_prepare_folder(const char *folder) {
    char parent[PATH_MOST];
    TRY(file_make_folders(folder));
    if (snprintf(parent, sizeof parent, "%s/..", folder) >= PATH_MOST)
        return FAIL(ERR_CREATE, "the path '%.64s...' is too long", folder);
    TRY(file_sync_folder(parent));
    checkpoint_sweep(folder);
    return ERR_NONE;
}

static enum error saver_prepare(struct saver *s, const char *folder, const struct checkpoint_view *v) {
    TRY(pool_create(&s->pool));
    if (!(s->folder = pool_printf(s->pool, "%s", folder))) return ERR_MEMORY;
    TRY(saver_lock_folder(s));
    TRY(snapshot_create(v, &s->snapshot));
    if (v->set) TRY(preprocessing_text(v->set, v->norm, s->pool, &s->preprocessing));
    return saver_start_thread(s);
}

enum error saver_open(const char *folder, int keep, const struct checkpoint_view *v, struct saver **out) {
    TRY(saver_prepare_folder(folder));
    struct saver *s = calloc(1, sizeof *s);
    if (!s) return FAIL(ERR_MEMORY, "no memory to save checkpoints");
    *s = (struct saver){.fd = -1, .keep = keep, .view = *v, .reported = true};
    enum error err = saver_prepare(s, folder, v);
    if (err == ERR_NONE)
        *out = s;
    else
        saver_free(s);
    return err;
}

static void saver_wait_idle(struct saver *s) {
    while (s->busy) pthread_cond_wait(&s->changed, &s->lock);
}

static enum error saver_report(struct saver *s) {
    s->reported = true;
    return FAIL(s->err, "%s\nis the disk full? checkpoints go to '%s'", s->text, s->folder);
}

void saver_state(struct saver *s, float *slots[RULE_SLOTS]) {
    pthread_mutex_lock(&s->lock);
    saver_wait_idle(s);
    snapshot_slots(s->snapshot, slots);
    pthread_mutex_unlock(&s->lock);
}

enum error saver_save(struct saver *s, bool best) {
    enum error err = ERR_NONE;
    pthread_mutex_lock(&s->lock);
    saver_wait_idle(s);
    if (s->failures >= FAILURES_MOST) {
        err = saver_report(s);
    } else if ((err = snapshot_take(s->snapshot, &s->view)) == ERR_NONE) {
        s->best = best;
        s->busy = true;
        pthread_cond_broadcast(&s->changed);
    }
    pthread_mutex_unlock(&s->lock);
    return err;
}

enum error saver_wait(struct saver *s) {
    pthread_mutex_lock(&s->lock);
    saver_wait_idle(s);
    enum error err = s->reported ? ERR_NONE : saver_report(s);
    pthread_mutex_unlock(&s->lock);
    return err;
}

void saver_close(struct saver *s) {
    if (!s) return;
    pthread_mutex_lock(&s->lock);
    s->stop = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    saver_free(s);
}
