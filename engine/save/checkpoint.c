/* Reading checkpoints. A checkpoint is valid when its manifest is, when its files have the sizes
 * and sums that the manifest says, and when their headers are well formed. A valid one is loaded
 * into an snapshot, which must have exactly the tensors of the model at hand, and only a complete
 * snapshot is given to the arenas. Of several, the newest valid one is taken. */
#include "engine/base/file.h"
#include "engine/base/log.h"
#include "engine/base/text.h"
#include "engine/save/checkpoint_impl.h"
#include "engine/save/init.h"
#include "engine/save/run_record.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- validity ---- */

enum { CHUNK = 1 << 20 };

/* The crc32c of bytes [begin, begin + n) of the file, and the whole file's, continued. */
static enum error crc_span(const struct st_file *f, size_t begin, size_t n, uint8_t *chunk, uint32_t *crc,
                           uint32_t *whole) {
    *crc = 0;
    for (size_t part; n; n -= part, begin += part) {
        part = n < CHUNK ? n : CHUNK;
        TRY(file_pread_all(f->fd, chunk, part, (int64_t)begin, f->path));
        *crc = crc32c(*crc, chunk, part);
        *whole = crc32c(*whole, chunk, part);
    }
    return ERR_NONE;
}

/* Reads all of the file once. A damaged tensor is named; damage elsewhere shows in the sum of the
 * file. */
static enum error check_sums(const struct st_file *f, uint32_t expected) {
    void *chunk;
    uint32_t crc, whole = 0;
    size_t bytes = f->data_start + f->data_bytes;
    TRY(memory_alloc(bytes < CHUNK ? bytes : CHUNK, &chunk));
    enum error err = crc_span(f, 0, f->data_start, chunk, &crc, &whole);
    for (int i = 0; i < f->count && err == ERR_NONE; i++) {
        const struct st_tensor *t = &f->tensors[i];
        err = crc_span(f, f->data_start + t->offset, t->bytes, chunk, &crc, &whole);
        if (err == ERR_NONE && t->has_crc && crc != t->crc)
            err = FAIL(ERR_DATA, "'%s': tensor '%s' is damaged (crc32c %08x, recorded %08x)", f->path, t->name, crc,
                       t->crc);
    }
    if (err == ERR_NONE && whole != expected)
        err = FAIL(ERR_DATA, "'%s' is damaged (crc32c %08x, recorded %08x)", f->path, whole, expected);
    memory_free(chunk);
    return err;
}

/* A step folder that is open for reading. */
struct opened {
    struct manifest manifest;
    struct st_file file[CHECKPOINT_FILES];
    struct pool *pool;
};

static void checkpoint_close(struct opened *c) {
    for (int i = 0; i < CHECKPOINT_FILES; i++) st_close(&c->file[i]);
    pool_free(c->pool);
}

static enum error open_file(struct opened *c, const char *path, int i) {
    if (!c->manifest.file[i].bytes) return ERR_NONE;
    char *name = pool_printf(c->pool, "%s/%s", path, checkpoint_file_names[i]);
    if (!name) return ERR_MEMORY;
    TRY(st_open(name, &c->file[i]));
    int64_t bytes = (int64_t)(c->file[i].data_start + c->file[i].data_bytes);
    if (bytes != c->manifest.file[i].bytes)
        return FAIL(ERR_DATA, "'%s' has %" PRId64 " bytes, the manifest says %" PRId64, name, bytes,
                    c->manifest.file[i].bytes);
    return check_sums(&c->file[i], c->manifest.file[i].crc);
}

/* Opens the step folder and checks all of it; what is open afterwards is valid. */
static enum error checkpoint_open(const char *path, struct opened *c) {
    *c = (struct opened){0};
    for (int i = 0; i < CHECKPOINT_FILES; i++) c->file[i].fd = -1;
    TRY(pool_create(&c->pool));
    enum error err = manifest_read(path, c->pool, &c->manifest);
    for (int i = 0; i < CHECKPOINT_FILES && err == ERR_NONE; i++) err = open_file(c, path, i);
    if (err != ERR_NONE) checkpoint_close(c);
    return err;
}

/* ---- does it fit ---- */

/* Other data are let pass where the run wants any. */
static enum error checkpoint_may_differ(enum error err, const struct checkpoint_view *v) {
    if (err != ERR_CONFIG || !v->any_data) return err;
    log_warn("%s: going on, as checkpoint.data is any", error_message());
    return ERR_NONE;
}

/* PyTorch counts batches in a tensor that no computation of ours reads. */
static bool tensor_may_be_extra(const char *name) {
    return text_ends(name, ".num_batches_tracked");
}

/* With or without it a run goes on: what it counts then begins anew. */
static bool tensor_may_be_missing(const char *name) {
    return !strcmp(name, BEST_LOSS) || !strncmp(name, PATIENCE_PREFIX, strlen(PATIENCE_PREFIX)) ||
           !strncmp(name, TARGET_PREFIX, strlen(TARGET_PREFIX)) || !strncmp(name, OUTER_PREFIX, strlen(OUTER_PREFIX));
}

static bool tensor_equal(const struct st_tensor *a, const struct st_tensor *b) {
    if (strcmp(a->dtype, b->dtype) != 0 || a->ndim != b->ndim) return false;
    return !memcmp(a->dim, b->dim, (size_t)a->ndim * sizeof *a->dim);
}

static enum error check_fit(const struct st_file *f, const struct st_tensor *wanted, int count) {
    char a[128], b[128];
    for (int i = 0; i < count; i++) {
        const struct st_tensor *t = st_find(f, wanted[i].name);
        if (!t && tensor_may_be_missing(wanted[i].name)) continue;
        if (!t) return FAIL(ERR_CONFIG, "'%s' has no tensor '%s', which this model needs", f->path, wanted[i].name);
        if (!tensor_equal(t, &wanted[i]))
            return FAIL(ERR_CONFIG, "'%s': tensor '%s' is %s %s, this model needs %s %s", f->path, t->name, t->dtype,
                        st_shape_text(t, a), wanted[i].dtype, st_shape_text(&wanted[i], b));
    }
    for (int i = 0; i < f->count; i++) {
        bool known = tensor_may_be_extra(f->tensors[i].name) || tensor_may_be_missing(f->tensors[i].name);
        for (int k = 0; k < count && !known; k++) known = !strcmp(f->tensors[i].name, wanted[k].name);
        if (!known)
            return FAIL(ERR_CONFIG, "'%s' has the tensor '%s', which this model lacks", f->path, f->tensors[i].name);
    }
    return ERR_NONE;
}

/* What the network of the file was trained on; NULL: the file does not tell. */
static enum error read_preprocessing(const struct st_file *f, struct pool *pool, struct preprocessing **out) {
    const char *text = json_get_text(f->metadata, "preprocessing");
    *out = NULL;
    return text ? preprocessing_parse(text, f->path, pool, out) : ERR_NONE;
}

enum error checkpoint_preprocessing(const char *path, struct pool *pool, struct preprocessing **out) {
    struct st_file f;
    TRY(st_open(path, &f));
    enum error err = read_preprocessing(&f, pool, out);
    st_close(&f);
    return err;
}

bool checkpoint_split(const char *path, struct pool *pool, int64_t *split) {
    struct preprocessing *was = NULL;
    char *name = pool_printf(pool, "%s/%s", path, checkpoint_file_names[FILE_MODEL]);
    if (!name || checkpoint_preprocessing(name, pool, &was) != ERR_NONE) return false;
    *split = was ? was->set.base.split : SPLIT_END;
    return true;
}

/* *was: what the network was trained on, as far as the checkpoint tells and the caller minds. */
static enum error check_set(const char *path, const struct opened *c, const struct checkpoint_view *v,
                            struct preprocessing **was) {
    TRY(read_preprocessing(&c->file[FILE_MODEL], c->pool, was));
    if (!v->set) *was = NULL;
    if (!*was) return ERR_NONE;
    enum error err = dataset_check_like(v->set, &(*was)->set.base);
    return err ? error_prefix(err, "cannot resume from '%s': ", path) : ERR_NONE;
}

static void checkpoint_keep_norm(const char *path, const struct checkpoint_view *v, const struct preprocessing *was) {
    char old[640], new[640];
    if (!was || normalization_equal(&was->norm, v->norm)) return;
    log_warn("the training data are normalised in another way than when '%s' was saved: %s now. This run keeps the "
             "checkpoint's: %s",
             path, normalization_words(v->set, v->norm, new), normalization_words(v->set, &was->norm, old));
    *v->norm = was->norm;
}

/* ---- loading ---- */

static enum error snapshot_read(struct snapshot *shot, enum checkpoint_file file, const struct st_file *f) {
    int count;
    const struct st_tensor *wanted = snapshot_tensors(shot, file, &count);
    TRY(check_fit(f, wanted, count));
    for (int i = 0; i < count; i++) {
        const struct st_tensor *t = st_find(f, wanted[i].name);
        if (t) TRY(st_read(f, t, wanted[i].data));
    }
    return ERR_NONE;
}

static enum error load_snapshot(const char *path, const struct opened *c, const struct checkpoint_view *v,
                                struct snapshot *shot) {
    struct preprocessing *was;
    const char *identity = c->manifest.identity;
    TRY(identity_check(path, identity, v->identity));
    if (!v->any_data) TRY(identity_check_section(path, identity, v->identity));
    TRY(check_set(path, c, v, &was));
    if (v->any_data) TRY(checkpoint_may_differ(identity_check_section(path, identity, v->identity), v));
    TRY(checkpoint_may_differ(identity_check_contents(path, c->manifest.data, v->data), v));
    for (int i = 0; i < FILE_AVERAGE; i++) TRY(snapshot_read(shot, (enum checkpoint_file)i, &c->file[i]));
    if (v->average && !c->manifest.file[FILE_AVERAGE].bytes)
        return FAIL(ERR_CONFIG, "'%s' has no averaged weights (ema), which this run needs\nset ema: off", path);
    if (v->average) TRY(snapshot_read(shot, FILE_AVERAGE, &c->file[FILE_AVERAGE]));
    const struct checkpoint_counters *at = snapshot_counters(shot);
    if (at->step != c->manifest.step || at->epoch < 0 || at->step_in_epoch < 0 || !(at->seconds >= 0))
        return FAIL(ERR_DATA, "'%s': its counters make no sense (step %" PRId64 ", epoch %" PRId64 ")", path, at->step,
                    at->epoch);
    TRY(snapshot_give(shot, v, true));
    v->counters->loss = (float)c->manifest.loss;
    v->counters->rescued = c->manifest.rescued;
    v->counters->devices = c->manifest.devices;
    snprintf(v->counters->tuned, sizeof v->counters->tuned, "%s", c->manifest.tuned);
    checkpoint_keep_norm(path, v, was);
    return ERR_NONE;
}

static enum error checkpoint_load_step(const char *path, const struct checkpoint_view *v) {
    struct opened c;
    struct snapshot *shot;
    TRY(checkpoint_open(path, &c));
    enum error err = snapshot_create(v, &shot);
    if (err == ERR_NONE) {
        err = load_snapshot(path, &c, v, shot);
        snapshot_free(shot);
    }
    checkpoint_close(&c);
    return err;
}

static enum error checkpoint_load_weights(const char *path, const struct checkpoint_view *v) {
    struct st_file f;
    struct snapshot *shot;
    TRY(st_open(path, &f));
    init_drop_prefix(&f, v->model);
    enum error err = snapshot_create(v, &shot);
    if (err == ERR_NONE) {
        err = snapshot_read(shot, FILE_MODEL, &f);
        if (err == ERR_NONE) err = snapshot_give(shot, v, false);
        snapshot_free(shot);
    }
    st_close(&f);
    return err;
}

typedef enum error (*step_fn)(const char *path, const struct checkpoint_view *v);

/* Whether the manifest says that it is of another run than this. */
static bool checkpoint_is_anothers(const char *path, const char *run_id, struct pool *pool) {
    const char *of = strcmp(run_id, RUN_ANY) != 0 ? checkpoint_run_id(path, pool) : NULL;
    return of && strcmp(of, run_id) != 0;
}

/* The run that is asked for: where none is, the one that the folder of these steps is recorded as.
 * If that has saved nothing yet, those that name no run are its own: "". */
static const char *asked_run(const char *run_id, const char *steps, struct pool *pool) {
    const char *dir = pool_printf(pool, "%s/..", steps), *again = pool_printf(pool, "%s/../ckpt", steps);
    if (run_id) return run_id;
    if (!dir || !again || !file_is_same(steps, again)) dir = steps;
    const char *own = run_record_read(dir, pool).run_id;
    if (!*own) return RUN_ANY;
    return checkpoint_newest_step(steps, own, pool) ? own : "";
}

/* Tries the steps of a folder, the newest first, until one is not broken. A checkpoint that is
 * valid but does not fit is an error: an older one would be no better. */
static enum error checkpoint_newest(const char *folder, const char *run_id, struct pool *pool,
                                    const struct checkpoint_view *v, step_fn try_step, char **path) {
    struct step_list list;
    int tried = 0;
    TRY(step_list_read(folder, pool, &list));
    run_id = asked_run(run_id, folder, pool);
    for (int i = 0; i < list.count; i++) {
        if (!(*path = step_path(folder, list.step[i], pool))) return ERR_MEMORY;
        if (checkpoint_is_anothers(*path, run_id, pool)) continue;
        tried++;
        enum error err = try_step(*path, v);
        if (err != ERR_DATA && err != ERR_INPUT && err != ERR_IO) return err;
        log_warn("the checkpoint '%s' is skipped: %s", *path, error_message());
    }
    if (tried) return FAIL(ERR_INPUT, "no valid checkpoint in '%s'", folder);
    if (list.count)
        return FAIL(ERR_INPUT, "the checkpoints in '%s' are another run's\nto take one, name its folder: %s/step-...",
                    folder, folder);
    return FAIL(ERR_INPUT, "no checkpoint in '%s'\na run keeps some unless its 'checkpoint' is off", folder);
}

static enum error check_step(const char *path, const struct checkpoint_view *v) {
    (void)v;
    struct opened c;
    TRY(checkpoint_open(path, &c));
    checkpoint_close(&c);
    return ERR_NONE;
}

/* RUN -> RUN/ckpt, where there is one; a ckpt folder is itself. */
static const char *steps_folder(const char *path, struct pool *pool) {
    const char *inner = pool_printf(pool, "%s/ckpt", path);
    return !inner ? NULL : file_exists(inner) ? inner : path;
}

enum error checkpoint_find(const char *folder, const char *run_id, struct pool *pool, char **path) {
    const char *steps = steps_folder(folder, pool);
    return steps ? checkpoint_newest(steps, run_id, pool, NULL, check_step, path) : ERR_MEMORY;
}

enum error checkpoint_step(const char *path, const char *identity, bool any_data, struct pool *pool, int64_t *step) {
    struct manifest m;
    TRY(manifest_read(path, pool, &m));
    *step = m.step;
    TRY(identity_check(path, m.identity, identity));
    return any_data ? ERR_NONE : identity_check_section(path, m.identity, identity);
}

const char *checkpoint_data(const char *path, struct pool *pool) {
    struct manifest m;
    const char *slash = strrchr(path, '/');
    const char *folder = slash ? pool_strndup(pool, path, (size_t)(slash - path)) : ".";
    return folder && manifest_read(folder, pool, &m) == ERR_NONE ? m.data : "";
}

const char *checkpoint_run_id(const char *path, struct pool *pool) {
    struct manifest m;
    return manifest_read(path, pool, &m) == ERR_NONE ? m.run_id : NULL;
}

/* The newest of a folder's steps that is the run's and whose manifest says what is wanted; path NULL, step -1: none. */
static enum error checkpoint_newest_place(const char *steps, const char *run_id,
                                          bool (*wanted)(const struct manifest *m), struct pool *pool,
                                          struct checkpoint_place *out) {
    struct step_list list;
    *out = (struct checkpoint_place){NULL, -1};
    if (!steps) return ERR_MEMORY;
    TRY(step_list_read(steps, pool, &list));
    for (int i = 0; i < list.count && !out->path; i++) {
        struct manifest m;
        const char *path = step_path(steps, list.step[i], pool);
        if (!path) return ERR_MEMORY;
        if (manifest_read(path, pool, &m) != ERR_NONE || !wanted(&m)) continue;
        if (!strcmp(run_id, RUN_ANY) || !strcmp(m.run_id, run_id)) *out = (struct checkpoint_place){path, list.step[i]};
    }
    return ERR_NONE;
}

static bool manifest_is_any(const struct manifest *m) {
    (void)m;
    return true;
}

static bool manifest_is_due(const struct manifest *m) {
    return !m->rescued;
}

static bool manifest_is_best(const struct manifest *m) {
    return m->best;
}

const char *checkpoint_newest_step(const char *folder, const char *run_id, struct pool *pool) {
    struct checkpoint_place place;
    const char *steps = steps_folder(folder, pool);
    return checkpoint_newest_place(steps, steps ? asked_run(run_id, steps, pool) : "", manifest_is_any, pool, &place)
               ? NULL
               : place.path;
}

int64_t checkpoint_newest_due(const char *folder, const char *run_id, struct pool *pool) {
    struct checkpoint_place place;
    return checkpoint_newest_place(steps_folder(folder, pool), run_id, manifest_is_due, pool, &place) ? -1 : place.step;
}

enum error checkpoint_best(const char *run_dir, const char *run_id, struct pool *pool, struct checkpoint_place *out) {
    if (!run_id) run_id = run_record_read(run_dir, pool).run_id;
    return checkpoint_newest_place(pool_printf(pool, "%s/ckpt", run_dir), run_id, manifest_is_best, pool, out);
}

enum error checkpoint_find_best(const char *folder, const char *run_id, struct pool *pool, char **path) {
    const char *steps = steps_folder(folder, pool);
    struct step_list list;
    if (!steps) return ERR_MEMORY;
    TRY(step_list_read(steps, pool, &list));
    run_id = asked_run(run_id, steps, pool);
    for (int i = 0; i < list.count; i++) {
        struct manifest m;
        if (!(*path = step_path(steps, list.step[i], pool))) return ERR_MEMORY;
        if (manifest_read(*path, pool, &m) != ERR_NONE || !m.best) continue;
        if (checkpoint_is_anothers(*path, run_id, pool)) continue;
        if (check_step(*path, NULL) == ERR_NONE) return ERR_NONE;
        log_warn("the checkpoint '%s' is skipped: %s", *path, error_message());
    }
    return checkpoint_find(folder, run_id, pool, path);
}

static bool checkpoint_is_step_folder(const char *path, struct pool *pool) {
    const char *manifest = pool_printf(pool, "%s/manifest.json", path),
               *model = pool_printf(pool, "%s/model.safetensors", path);
    return manifest && model && (file_exists(manifest) || file_exists(model));
}

enum error checkpoint_load(const char *path, struct checkpoint_view *v) {
    struct stat st;
    struct pool *pool;
    char *found;
    if (stat(path, &st) != 0) return FAIL(ERR_INPUT, "no checkpoint '%s': %s", path, strerror(errno));
    if (!S_ISDIR(st.st_mode)) return checkpoint_load_weights(path, v);
    TRY(pool_create(&pool));
    const char *steps = steps_folder(path, pool);
    enum error err = !steps ? ERR_MEMORY
                     : checkpoint_is_step_folder(path, pool)
                         ? checkpoint_load_step(path, v)
                         : checkpoint_newest(steps, NULL, pool, v, checkpoint_load_step, &found);
    pool_free(pool);
    return err;
}

/* ---- the rest ---- */

void checkpoint_sweep(const char *folder) {
    (void)file_count_owned(folder, TEMPORARY_PREFIX, true);
}

bool checkpoint_is_written(const char *folder) {
    return file_count_owned(folder, TEMPORARY_PREFIX, false) > 0;
}

/* A saver holds a lock on its folder; the kernel takes it back when the process ends, however it does. */
bool checkpoint_has_saver(const char *folder) {
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    bool held = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0;
    if (fd >= 0) close(fd);
    return held;
}
