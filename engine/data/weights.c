/* Weights of samples: by class, so that every class is drawn equally often; by a column of the table; or by a file that has
 * a number a line, one for each sample of the training file, held out or not. */
#include "engine/data/weights.h"

#include "engine/base/digest.h"
#include "engine/base/file.h"
#include "engine/base/text.h"

#include <string.h>

enum { LINE_MOST = 64 };

static enum error weights_balance(const struct dataset *d, double *w) {
    int64_t *counts;
    if (!d->ops->label || d->labels != 1)
        return FAIL(ERR_CONFIG,
                    "data.sampling: balanced needs the class of each sample, and '%s' does not know it without reading "
                    "the sample\ngive weights in a file: data: {sampling: weights, weights: FILE}",
                    d->name);
    TRY_MEMORY(counts = memory_new((size_t)d->classes * sizeof *counts));
    enum error err = dataset_counts(d, counts);
    for (int64_t i = 0; i < d->size && err == ERR_NONE; i++) w[i] = 1 / (double)counts[d->ops->label(d, i)];
    memory_free(counts);
    return err;
}

/* The lines of a text become numbers, of which there are 'count'. */
static enum error weights_parse(const char *path, char *text, int64_t count, double *out) {
    int64_t n = 0;
    for (char *line = text, *next; *line; line = next, n++) {
        size_t length = strcspn(line, "\n");
        next = line + length + (line[length] == '\n');
        line[length] = '\0';
        if (length && line[length - 1] == '\r') line[length - 1] = '\0';
        double value;
        if (!text_real(line, &value) || value < 0)
            return FAIL(ERR_DATA, "%s:%lld: '%.40s' is no weight\na line has one number of at least 0", path,
                        (long long)n + 1, line);
        if (n < count) out[n] = value;
    }
    if (n == count) return ERR_NONE;
    return FAIL(ERR_DATA,
                "%s has %lld weights, and the training file has %lld samples\ngive one for each, in its order", path,
                (long long)n, (long long)count);
}

static enum error weights_read(const char *path, const struct dataset *d, struct pool *pool, double *w) {
    const struct origin all = {.of = d->size}, *from = d->origin.of ? &d->origin : &all;
    char *text;
    size_t length, most = ((size_t)from->of + 1) * LINE_MOST;
    if (d->ops->read_part)
        return FAIL(ERR_CONFIG,
                    "data.weights: the pictures of '%s' lie in folders and have no numbers\n"
                    "use sampling: balanced",
                    d->name);
    TRY(file_read(path, most, pool, &text, &length));
    double *of = pool_alloc(pool, (size_t)from->of * sizeof *of);
    if (!of) return ERR_MEMORY;
    if (strlen(text) != length) return FAIL(ERR_DATA, "%s: a zero byte", path);
    TRY(weights_parse(path, text, from->of, of));
    for (int64_t i = 0; i < d->size; i++) w[i] = of[from->index ? from->index[i] : from->first + i];
    return ERR_NONE;
}

static enum error weights_find(const struct data_config *c, const struct dataset *d, double *w) {
    struct pool *pool;
    if (c->sampling == SAMPLING_BALANCED) return weights_balance(d, w);
    for (int64_t i = 0; i < d->size && d->weights; i++) w[i] = (double)d->weights[i];
    if (d->weights) return ERR_NONE;
    if (!c->weights)
        return FAIL(ERR_CONFIG, "data.sampling: weights needs the weights\n"
                                "set data.weights to a file with a number for each training sample, or data.weight to "
                                "a column of the table");
    TRY(pool_create(&pool));
    enum error err = weights_read(c->weights, d, pool, w);
    pool_free(pool);
    return err;
}

/* Weights become their sums. */
static enum error weights_add(struct sample_weights *out, int64_t n) {
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < n; i++) {
        squares += out->upto[i] * out->upto[i];
        out->upto[i] = sum += out->upto[i];
    }
    out->worth = sum * sum / squares;
    return sum > 0 && sum < 1e300 ? ERR_NONE
                                  : FAIL(ERR_DATA, "data.weights: all weights are 0, or their sum is too large");
}

enum error sample_weights_open(const struct data_config *c, const struct dataset *d, struct sample_weights *out) {
    *out = (struct sample_weights){0};
    if (c->sampling == SAMPLING_ONCE) return ERR_NONE;
    TRY_MEMORY(out->upto = memory_new((size_t)d->size * sizeof *out->upto));
    TRY(weights_find(c, d, out->upto));
    if (c->sampling == SAMPLING_WEIGHTS) out->crc = crc32c(0, out->upto, (size_t)d->size * sizeof *out->upto);
    return weights_add(out, d->size);
}

void sample_weights_close(struct sample_weights *w) {
    memory_free(w->upto);
    *w = (struct sample_weights){0};
}
