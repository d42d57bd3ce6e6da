/* What must be equal for a resume to be exact: whatever decides which numbers are computed, and
 * nothing that decides where. */
#include "engine/train/init.h"
#include "engine/train/internal.h"

#include <string.h>

static const char *const keys[] = {"model", "loss",      "data",     "batch",
                                   "seed",  "precision", "winograd", "sync_batchnorm"};

/* A section's text on one line; of a model what it is, and not what its first weights were. */
static char *one_line(const struct node *n, struct pool *pool) {
    if (!strcmp(n->key, "model")) n = init_strip(n, pool);
    char *text = n ? tree_write(n, false, pool) : NULL;
    for (char *c = text; c && *c; c++)
        if (*c == '\n') *c = c[1] ? ';' : '\0';
    return text;
}

const char *trainer_identity(const struct job *job) {
    struct pool *pool = job->settings->pool;
    const char *all = "";
    for (size_t i = 0; i < sizeof keys / sizeof *keys && all; i++) {
        const struct node *n = node_get(job->settings->tree, keys[i]);
        const char *text = n ? one_line(n, pool) : "";
        all = text ? pool_printf(pool, "%s%s=%s\n", all, keys[i], text) : NULL;
    }
    const struct optim_ops *o = trainer_optim(&job->settings->config);
    char planted[INJECT_TEXT];
    inject_identity(&job->settings->config, planted);
    const char *inject = *planted ? pool_printf(pool, "inject=%s\n", planted) : "";
    return all && inject ? pool_printf(pool, "%soptimizer=%s\n%s", all, o->section.name, inject)
                         : NULL;
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

/* A long text is told by its digest. */
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

static enum error add_keys(const struct node *map, const char *section, struct pool *pool,
                           struct job_keys *out) {
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

/* Samples from everywhere in the set. */
static enum error update_data(struct sha256 *h, struct dataset *d, float *target, int32_t *labels,
                              void *x) {
    enum { LOOKS = 64 };
    int64_t facts[] = {d->size, d->type, d->classes, d->targets, d->shape.ndim};
    sha256_update(h, facts, sizeof facts);
    sha256_update(h, d->shape.dim, (size_t)d->shape.ndim * sizeof *d->shape.dim);
    for (int64_t i = 0; i < LOOKS && i < d->size; i++) {
        int64_t at = d->size <= LOOKS ? i : (int64_t)((__int128)i * (d->size - 1) / (LOOKS - 1));
        TRY(d->ops->read(d, at, x, labels, target));
        sha256_update(h, x, dataset_sample_bytes(d));
        sha256_update(h, labels, (size_t)d->labels * sizeof *labels);
        sha256_update(h, target, (size_t)d->targets * sizeof *target);
    }
    return ERR_NONE;
}

enum error data_digest(const struct trainer *t, char out[SHA256_TEXT]) {
    struct sha256 h;
    void *x = NULL, *target = NULL, *labels = NULL;
    *out = '\0';
    if (t->config->run.nodes == 1 && !t->config->launched.by)
        return ERR_NONE; /* one host, one set */
    sha256_init(&h);
    enum error err = memory_alloc(dataset_sample_bytes(t->data), &x);
    if (!err) err = memory_alloc((size_t)t->data->targets * sizeof(float), &target);
    if (!err) err = memory_alloc((size_t)(t->data->labels + 1) * sizeof(int32_t), &labels);
    if (!err) err = update_data(&h, t->data, target, labels, x);
    if (!err) err = update_data(&h, t->val, target, labels, x);
    memory_free(labels);
    memory_free(target);
    memory_free(x);
    sha256_hex(h, out);
    return err;
}
