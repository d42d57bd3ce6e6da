/* The identity of a run, which must be equal for an exact resume: everything that decides which numbers are computed,
 * and nothing that decides where. */
#include "engine/base/log.h"
#include "engine/base/text.h"
#include "engine/optim/plugin.h"
#include "engine/save/checkpoint.h"
#include "engine/settings/run_config.h"
#include "engine/train/internal.h"
#include "engine/train/job_check.h"

#include <stdio.h>
#include <string.h>

static const char *const keys[] = {"model", "loss", "data", "batch", "seed", "precision", "winograd", "sync_batchnorm"};

/* Keys of data that change no bit (workers), or whose effect is compared or kept by itself: which files are left out and
 * which samples are held out, by the digest of the data; how targets are learned, by the checkpoint. */
static bool is_left_out(const struct node *of, const struct node *item) {
    static const char *const kept[] = {"workers", "on_error", "split", "normalize_target"};
    bool any = false;
    for (size_t i = 0; of->kind == NODE_MAP && i < sizeof kept / sizeof *kept; i++)
        any = any || !strcmp(item->key, kept[i]);
    return any;
}

/* A copy without paths, since what lies there is compared, and where it lies is no matter. NULL: no memory. */
static const struct node *what_counts(const struct node *n, struct pool *pool) {
    struct node *copy = tree_copy(n, pool);
    int kept = 0;
    for (int i = 0; copy && i < copy->count; i++)
        if (!copy->items[i]->given && !is_left_out(n, copy->items[i])) copy->items[kept++] = copy->items[i];
    if (copy) copy->count = kept;
    return copy;
}

/* The name of a loss that is no more than that: checkpoints have it that were written when a loss had no keys. */
static const char *loss_name(const struct node *n) {
    const struct node *name = node_get(n, "name"), *smoothing = node_get(n, "smoothing");
    double part;
    bool smooth = smoothing && !(text_real(smoothing->text, &part) && part == 0);
    return name && !smooth && !node_get(n, "weights") ? name->text : NULL;
}

/* A section's text on one line, of what counts; of a model what it is, and not what its first weights were. */
static char *one_line(const struct node *n, struct pool *pool) {
    const char *name = !strcmp(n->key, "loss") ? loss_name(n) : NULL;
    if (name) return pool_printf(pool, "%s", name);
    n = !strcmp(n->key, "model") ? init_strip(n, pool) : what_counts(n, pool);
    char *text = n ? tree_write(n, false, pool) : NULL;
    for (char *at = text; at && *at; at++)
        if (*at == '\n') *at = at[1] ? ';' : '\0';
    return text;
}

/* "freeze=...\n" of a key that decides which numbers are computed where it is given; "" where it is not. */
static const char *given_line(const struct node *map, const char *key, struct pool *pool) {
    const struct node *n = node_get(map, key);
    const char *text = n ? one_line(n, pool) : NULL;
    if (!n) return "";
    return text ? pool_printf(pool, "%s=%s\n", key, text) : NULL;
}

const char *trainer_identity(const struct job *job) {
    struct pool *pool = job->settings->pool;
    const char *all = "";
    for (size_t i = 0; i < sizeof keys / sizeof *keys && all; i++) {
        const struct node *n = node_get(job->settings->tree, keys[i]);
        const char *text = n ? one_line(n, pool) : "";
        all = text ? pool_printf(pool, "%s%s=%s\n", all, keys[i], text) : NULL;
    }
    const char *optimizer = optim_identity(&job->settings->config.optimizer.kind, pool);
    char planted[INJECT_TEXT];
    inject_identity(&job->settings->config, planted);
    const char *inject = *planted ? pool_printf(pool, "inject=%s\n", planted) : "";
    const char *freeze = given_line(node_get(job->settings->tree, "optimizer"), "freeze", pool);
    double decay = job->settings->config.ema.decay;
    const char *ema = decay > 0 ? pool_printf(pool, "ema=%.17g\n", decay) : "";
    if (!all || !optimizer || !inject || !freeze || !ema) return NULL;
    return pool_printf(pool, "%soptimizer=%s\n%s%s%s", all, optimizer, freeze, ema, inject);
}

enum error job_check_resume(const struct job *job, const char *path, int64_t *step) {
    const struct run_settings *s = job->settings;
    const char *identity = trainer_identity(job);
    if (!identity) return ERR_MEMORY;
    return checkpoint_step(path, identity, s->config.checkpoint.data == DATA_ANY, s->pool, step);
}

/* ---- what hosts compare ---- */

/* Where a node runs, and what it calls its files, is its own affair; devices and threads are
 * compared by themselves, since 'auto' may differ. */
static bool is_local_key(const char *section, const char *key) {
    static const char *const local[] = {"run", "log", "name", "devices", "threads"};
    for (size_t i = 0; !*section && i < sizeof local / sizeof *local; i++)
        if (!strcmp(key, local[i])) return true;
    return !strcmp(section, "checkpoint") && !strcmp(key, "resume");
}

/* A long text is shown as its digest. */
static const char *short_text(const char *text, struct pool *pool) {
    enum { LONG = 200, SHOWN = 16 };
    char hex[SHA256_TEXT];
    struct sha256 h;
    if (!text || strlen(text) <= LONG) return text;
    sha256_init(&h);
    sha256_update(&h, text, strlen(text));
    sha256_hex(h, hex);
    return pool_printf(pool, "%.*s", SHOWN, hex);
}

static enum error add_keys(const struct node *map, const char *section, struct pool *pool, struct job_keys *out) {
    for (int i = 0; i < map->count && out->count < JOB_KEYS; i++) {
        const struct node *item = map->items[i];
        if (is_local_key(section, item->key)) continue;
        if (!*section && !strcmp(item->key, "checkpoint")) {
            TRY(add_keys(item, item->key, pool, out));
            continue;
        }
        const char *key = pool_printf(pool, "%s%s%s", section, *section ? "." : "", item->key);
        const char *text = short_text(one_line(item, pool), pool);
        if (!key || !text) return ERR_MEMORY;
        out->name[out->count] = key;
        out->text[out->count++] = text;
    }
    return ERR_NONE;
}

enum error job_list_keys(const struct job *job, struct job_keys *out) {
    out->count = 0;
    return add_keys(job->settings->tree, "", job->settings->pool, out);
}

/* ---- what the data hold ---- */

enum { LOOKED_AT = 256 << 20, LOOKS_LEAST = 64 };
enum drawn { DRAWN_BY_CONFIG, DRAWN_LOOKED_AT };

static size_t whole_words(size_t bytes) {
    return (bytes + 15) / 16 * 16;
}

/* Adds samples to the digest: all, or of a large set as many as make LOOKED_AT bytes, from everywhere in it; of a drawn
 * set, where one sample shows how all are drawn, a few. */
static enum error look_at(struct dataset *d, unsigned char *x, uint32_t *crc) {
    size_t bytes = dataset_sample_bytes(d), targets = (size_t)d->targets * sizeof(float);
    float *target = (float *)(void *)(x + whole_words(bytes));
    int32_t *labels = (int32_t *)(target + d->targets);
    int64_t looks = d->ops->recognises ? LOOKED_AT / (int64_t)bytes : 0, size = d->size;
    if (looks < LOOKS_LEAST) looks = LOOKS_LEAST;
    for (int64_t i = 0; i < looks && i < size; i++) {
        int64_t at = size <= looks ? i : (int64_t)((__int128)i * (size - 1) / (looks - 1));
        TRY(d->ops->read(d, at, x, labels, target));
        *crc = crc32c(*crc, x, bytes);
        if (targets) *crc = crc32c(*crc, target, targets);
        if (d->classes) *crc = crc32c(*crc, labels, (size_t)d->labels * sizeof *labels);
    }
    return ERR_NONE;
}

/* What a set draws itself is what the configuration says, where that is compared as well. */
static enum error digest_set(struct dataset *d, enum drawn drawn, uint32_t *crc) {
    int64_t facts[] = {d->type, d->classes, d->targets, d->shape.ndim};
    *crc = crc32c(d->files, facts, sizeof facts);
    *crc = crc32c(*crc, d->shape.dim, (size_t)d->shape.ndim * sizeof *d->shape.dim);
    if (d->files || (!d->ops->recognises && drawn == DRAWN_BY_CONFIG)) return ERR_NONE;
    void *x;
    size_t values = (size_t)d->targets * sizeof(float) + (size_t)(d->labels + 1) * sizeof(int32_t);
    TRY(memory_alloc(whole_words(dataset_sample_bytes(d)) + values, &x));
    enum error err = look_at(d, x, crc);
    memory_free(x);
    return err;
}

static const char val_digest[] = "the digest of the validation data";

enum error data_identity(const struct trainer *t, const char **out) {
    uint32_t train, val;
    TRY(digest_set(t->feed.data, DRAWN_BY_CONFIG, &train));
    TRY(digest_set(t->feed.val, DRAWN_BY_CONFIG, &val));
    char weights[64] = "";
    if (t->feed.weights.crc)
        snprintf(weights, sizeof weights, "the digest of the samples' weights=%08x\n", t->feed.weights.crc);
    *out = pool_printf(t->job->settings->pool,
                       "the number of training samples=%lld\n"
                       "the number of validation samples=%lld\n"
                       "the digest of the training data=%08x\n"
                       "%s=%08x\n%s",
                       (long long)t->feed.data->size, (long long)t->feed.val->size, train, val_digest, val, weights);
    return *out ? ERR_NONE : ERR_MEMORY;
}

/* Another number of samples, or one sample that was changed, gives another digest, too. */
enum error data_check_held(struct trainer *t, struct dataset *val) {
    struct pool *pool;
    uint32_t is;
    if (!val->held || !t->job->resume || !t->job->known || t->rank > 0) return ERR_NONE;
    TRY(digest_set(val, DRAWN_BY_CONFIG, &is));
    TRY(pool_create(&pool));
    const char *was = checkpoint_data(t->job->resume, pool), *line = pool_printf(pool, "%s=%08x\n", val_digest, is);
    t->others_held = *was && line && !strstr(was, line);
    if (t->others_held)
        log_warn("the samples that are held out now are not those of training, as the data or the keys of 'data' have "
                 "changed: the network may have been trained on some of them. What it is worth, samples in a file of "
                 "their own tell: data.val=FILE");
    pool_free(pool);
    return line ? ERR_NONE : ERR_MEMORY;
}

enum error data_val_digest(const struct trainer *t, uint32_t *out) {
    return digest_set(t->feed.val, DRAWN_LOOKED_AT, out);
}

enum error data_digest(const struct trainer *t, char out[SHA256_TEXT]) {
    struct sha256 h;
    const char *text;
    *out = '\0';
    if (t->config->run.nodes == 1 && !t->config->launched.by) return ERR_NONE; /* one host, one set */
    TRY(data_identity(t, &text));
    sha256_init(&h);
    sha256_update(&h, text, strlen(text));
    sha256_hex(h, out);
    return ERR_NONE;
}
