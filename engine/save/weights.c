/* The weights of a checkpoint: which file of a step holds those that are meant, and their digest. */
#include "engine/base/file.h"
#include "engine/save/checkpoint_impl.h"

#include <math.h>
#include <string.h>

enum error checkpoint_weights(const char *step, bool raw, struct pool *pool, const char **out) {
    struct manifest m;
    TRY(manifest_read(step, pool, &m));
    const char *name = checkpoint_file_names[m.file[FILE_AVERAGE].bytes && !raw ? FILE_AVERAGE : FILE_MODEL];
    TRY_MEMORY(*out = pool_printf(pool, "%s/%s", step, name));
    return file_exists(*out) ? ERR_NONE : FAIL(ERR_DATA, "'%s' lacks %s, which its manifest names", step, name);
}

/* The parameter with the first name after 'last' in alphabetic order, so that the hash does not depend on the arena's
 * order. */
static const struct tensor_info *next_by_name(const struct model *m, const struct tensor_info *last) {
    const struct tensor_info *next = NULL;
    for (int i = 0; i < m->nparams; i++) {
        const struct tensor_info *p = &m->params[i];
        if (last && strcmp(p->name, last->name) <= 0) continue;
        if (!next || strcmp(p->name, next->name) < 0) next = p;
    }
    return next;
}

/* A NaN's sign and payload are the processor's and the compiler's choice: here all are one. */
static void hash_floats(struct sha256 *s, const float *x, int64_t n) {
    enum { PIECE = 1024 };
    float piece[PIECE];
    for (int64_t at = 0, some; at < n; at += some) {
        some = n - at < PIECE ? n - at : PIECE;
        for (int64_t k = 0; k < some; k++) piece[k] = x[at + k] == x[at + k] ? x[at + k] : (float)NAN;
        sha256_update(s, piece, (size_t)some * sizeof *piece);
    }
}

void checkpoint_weights_hash(const struct model *m, const float *values, char out[SHA256_TEXT]) {
    struct sha256 s;
    sha256_init(&s);
    for (const struct tensor_info *p = NULL; (p = next_by_name(m, p));) hash_floats(&s, values + p->offset, p->count);
    sha256_hex(s, out);
}
