#include "lab/compare/right.h"

#include "engine/base/file.h"
#include "engine/base/json.h"
#include "engine/base/text.h"
#include "engine/save/checkpoint.h"

#include <stdlib.h>
#include <string.h>

enum { SAMPLES_MOST = 1 << 30 };

/* The metadata are texts: "data" 8 hexadecimal digits, "step" a number. */
static bool right_read_facts(const struct st_file *f, struct right *out) {
    const char *data = f->metadata ? json_get_text(f->metadata, "data") : NULL;
    const char *step = f->metadata ? json_get_text(f->metadata, "step") : NULL;
    if (!data || strlen(data) != 8 || strspn(data, "0123456789abcdef") != 8) return false;
    out->data = (uint32_t)strtoul(data, NULL, 16);
    return step && text_int(step, &out->step) && out->step >= 0;
}

static enum error right_read_file(const struct st_file *f, struct pool *pool, struct right *out) {
    const struct st_tensor *t = st_find(f, "right");
    bool fits = t && !strcmp(t->dtype, "BOOL") && t->ndim == 1 && t->dim[0] > 0 && t->dim[0] <= SAMPLES_MOST;
    if (!fits || !right_read_facts(f, out)) return FAIL(ERR_DATA, "'%s' is not what a run writes", f->path);
    unsigned char *is = pool_alloc(pool, t->bytes);
    if (!is) return ERR_MEMORY;
    TRY(st_read(f, t, is));
    for (int64_t i = 0; i < t->dim[0]; i++)
        if (is[i] > 1) return FAIL(ERR_DATA, "'%s': sample %lld is neither right nor wrong", f->path, (long long)i);
    out->samples = t->dim[0];
    out->is = is;
    return ERR_NONE;
}

enum error right_read(const char *dir, struct pool *pool, struct right *out) {
    struct st_file f;
    *out = (struct right){.dir = pool_printf(pool, "%s", dir)};
    const char *path = pool_printf(pool, "%s/validation.safetensors", dir);
    if (!path || !out->dir) return ERR_MEMORY;
    if (!file_exists(path))
        return FAIL(ERR_INPUT,
                    "'%s' has no record of the samples that it had right: there is no validation.safetensors\n"
                    "runs of data with classes write it at their end",
                    dir);
    TRY(st_open(path, &f));
    enum error err = right_read_file(&f, pool, out);
    st_close(&f);
    return err;
}

enum error right_compare(const struct right *a, const struct right *b, struct right_counts *out) {
    *out = (struct right_counts){.samples = a->samples};
    if (a->samples != b->samples || a->data != b->data)
        return FAIL(ERR_DATA,
                    "'%s' and '%s' were measured on other samples: %lld with the digest %08x, and %lld with %08x",
                    a->dir, b->dir, (long long)a->samples, a->data, (long long)b->samples, b->data);
    for (int64_t i = 0; i < a->samples; i++) {
        out->both += a->is[i] & b->is[i];
        out->first += a->is[i] & ~b->is[i];
        out->second += b->is[i] & ~a->is[i];
    }
    return ERR_NONE;
}
