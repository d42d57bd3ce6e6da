/* First weights from a file. Names and shapes decide what fits; the float type is converted. */
#include "engine/save/init.h"

#include "engine/base/file.h"
#include "engine/base/log.h"
#include "engine/base/text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* ---- what fits ---------------------------------------------------------------------------- */

/* What other frameworks store beside weights, and no computation of ours reads: PyTorch's count of
 * batches, and the masks of GPT-2. */
static bool init_may_be_extra(const struct st_tensor *t) {
    return text_ends(t->name, ".num_batches_tracked") || text_ends(t->name, ".attn.masked_bias") ||
           (text_ends(t->name, ".attn.bias") && t->ndim == 4);
}

static bool init_is_float(const char *dtype) {
    static const char *const floats[] = {"F32", "F64", "F16", "BF16"};
    for (size_t i = 0; i < sizeof floats / sizeof *floats; i++)
        if (!strcmp(dtype, floats[i])) return true;
    return false;
}

static bool tensor_fits(const struct st_tensor *t, const struct tensor_info *info) {
    if (!init_is_float(t->dtype) || t->ndim != info->shape.ndim) return false;
    return !memcmp(t->dim, info->shape.dim, (size_t)t->ndim * sizeof *t->dim);
}

static const struct tensor_info *tensor_at(const struct model *m, int i) {
    return i < m->nparams ? &m->params[i] : &m->buffers[i - m->nparams];
}

static bool model_wants(const struct model *m, const char *name) {
    for (int i = 0; i < m->nparams + m->nbuffers; i++)
        if (!strcmp(tensor_at(m, i)->name, name)) return true;
    return false;
}

/* ---- a common prefix ---- */

/* How many of the model's tensors the file has under 'prefix' and their names. */
static int found_under(const struct st_file *f, const struct model *m, const char *prefix, size_t n) {
    int found = 0;
    for (int i = 0; i < m->nparams + m->nbuffers; i++)
        for (int k = 0; k < f->count; k++) {
            const char *theirs = f->tensors[k].name;
            if (strncmp(theirs, prefix, n) || strcmp(theirs + n, tensor_at(m, i)->name)) continue;
            found++;
            break;
        }
    return found;
}

/* What stands before 'name' in theirs and ends with a point; 0: it is no such name. */
static size_t prefix_of(const char *theirs, const char *name) {
    size_t all = strlen(theirs), n = strlen(name);
    return all > n && theirs[all - n - 1] == '.' && !strcmp(theirs + all - n, name) ? all - n : 0;
}

void init_drop_prefix(struct st_file *f, const struct model *m) {
    enum { TRIES = 16 };
    const char *best = "";
    size_t length = 0;
    int all = m->nparams + m->nbuffers, most = found_under(f, m, "", 0), tries = 0;
    for (int i = 0; i < all && !tries && most < all; i++)
        for (int k = 0; k < f->count && tries < TRIES; k++) {
            const char *theirs = f->tensors[k].name;
            size_t n = prefix_of(theirs, tensor_at(m, i)->name);
            int found = n ? found_under(f, m, theirs, n) : 0;
            tries += n > 0;
            if (found > most) best = theirs, length = n, most = found;
        }
    for (int k = 0; k < f->count && length; k++) {
        const char *theirs = f->tensors[k].name;
        if (!strncmp(theirs, best, length) && theirs[length] && !st_find(f, theirs + length))
            f->tensors[k].name += length;
    }
}

/* ---- complaints ---- */

/* The tensor of the file that may be meant: one whose name only has something before it
 * ("module.fc.weight"), or the nearest of those that the model does not want. */
static const char *tensor_nearest(const struct st_file *f, const struct model *m, const char *name) {
    const char **names = pool_alloc(f->pool, ((size_t)f->count + 1) * sizeof *names);
    int n = 0;
    for (int i = 0; names && i < f->count; i++) {
        const char *theirs = f->tensors[i].name;
        size_t more = strlen(theirs) - strlen(name);
        if (strlen(theirs) > strlen(name) && text_ends(theirs, name) && theirs[more - 1] == '.') return theirs;
        if (!model_wants(m, theirs)) names[n++] = theirs;
    }
    return names ? text_nearest(name, names, n) : NULL;
}

/* Told of every tensor that does not fit: what is wrong, and a hint or "". */
typedef void (*complain_fn)(void *user, const char *text, const char *hint);

static void complain_of(const struct st_file *f, const struct model *m, const struct tensor_info *info,
                        complain_fn complain, void *user) {
    char text[512], hint[320] = "", shape[96], theirs[128];
    const struct st_tensor *t = st_find(f, info->name);
    const char *near = t ? NULL : tensor_nearest(f, m, info->name);
    shape_text(&info->shape, shape);
    if (t)
        snprintf(text, sizeof text, "'%s' is %s %s there, and %s in this model", info->name, t->dtype,
                 st_shape_text(t, theirs), shape);
    else
        snprintf(text, sizeof text, "'%s' (%s) is missing there", info->name, shape);
    if (near) snprintf(hint, sizeof hint, "the file has '%.256s'", near);
    complain(user, text, hint);
}

/* How many tensors fit. */
static int tensors_compare(const struct st_file *f, const struct model *m, bool strict, complain_fn complain,
                           void *user) {
    int fit = 0;
    for (int i = 0; i < m->nparams + m->nbuffers; i++) {
        const struct tensor_info *info = tensor_at(m, i);
        const struct st_tensor *t = st_find(f, info->name);
        if (t && tensor_fits(t, info))
            fit++;
        else
            complain_of(f, m, info, complain, user);
    }
    for (int i = 0; strict && i < f->count; i++) {
        char text[512];
        if (model_wants(m, f->tensors[i].name) || init_may_be_extra(&f->tensors[i])) continue;
        snprintf(text, sizeof text, "the file has '%.256s', but this model has no such tensor", f->tensors[i].name);
        complain(user, text, "");
    }
    return fit;
}

/* ---- opening ------------------------------------------------------------------------------ */

/* A .safetensors file, a step's folder, or the newest step of a run. */
static enum error open_file(const char *path, struct st_file *f) {
    struct stat st;
    struct pool *pool;
    if (stat(path, &st) != 0)
        return FAIL(ERR_INPUT, "model.init: no file or folder '%s'\nnothing is ever downloaded", path);
    if (!S_ISDIR(st.st_mode)) return st_open(path, f);
    TRY(pool_create(&pool));
    char *step = pool_printf(pool, "%s", path);
    const char *file = NULL;
    enum error err = step ? ERR_NONE : ERR_MEMORY;
    char *manifest = step ? pool_printf(pool, "%s/manifest.json", path) : NULL;
    if (manifest && !file_exists(manifest)) err = checkpoint_find(path, NULL, pool, &step);
    if (err == ERR_NONE) err = checkpoint_weights(step, false, pool, &file);
    if (err == ERR_NONE) err = st_open(file, f);
    pool_free(pool);
    return err;
}

static enum error open_source(const char *path, const struct model *m, struct st_file *f) {
    TRY(open_file(path, f));
    init_drop_prefix(f, m);
    return ERR_NONE;
}

/* ---- checking ----------------------------------------------------------------------------- */

enum { COMPLAINTS_MAX = 12 };
struct complaints {
    const struct init_source *source;
    struct config_errors *errors; /* NULL: the log gets them */
    int count;
};

static void complain_to_errors(void *user, const char *text, const char *hint) {
    struct complaints *c = user;
    if (c->count++ < COMPLAINTS_MAX)
        config_error(c->errors, c->source->at, false, "model.init: %s%s%s", text, *hint ? "\n" : "", hint);
}

enum error init_check(const struct init_source *s, const struct model *m, struct config_errors *e) {
    struct st_file f;
    struct complaints c = {s, e, 0}, none = {s, e, COMPLAINTS_MAX};
    if (!s->path) return ERR_NONE;
    TRY(open_source(s->path, m, &f));
    int fit = tensors_compare(&f, m, s->strict, complain_to_errors, s->strict ? &c : &none);
    st_close(&f);
    if (c.count > COMPLAINTS_MAX)
        config_error(e, s->at, false, "model.init: and %d more tensors that do not fit", c.count - COMPLAINTS_MAX);
    if (fit == 0) {
        config_error(e, s->at, false, "model.init: no tensor of '%s' fits this model", s->path);
    } else if (c.count == 0) {
        return ERR_NONE;
    } else {
        config_error(e, s->at, false,
                     "'%s' is of another model\nwith 'strict: false' beside init, the tensors that fit are loaded and "
                     "the others begin with the default",
                     s->path);
    }
    return FAIL(ERR_CONFIG, "the weights of '%s' do not fit model '%s'", s->path, m->name);
}

/* ---- loading ------------------------------------------------------------------------------ */

static float from_half(uint16_t h) {
    double mantissa = h & 0x3FF;
    int exponent = h >> 10 & 0x1F;
    double size = exponent == 0    ? ldexp(mantissa, -24)
                  : exponent == 31 ? (mantissa ? (double)NAN : (double)INFINITY)
                                   : ldexp(mantissa + 1024, exponent - 25);
    return (float)(h & 0x8000 ? -size : size);
}

static float from_bfloat(uint16_t b) {
    uint32_t bits = (uint32_t)b << 16;
    float v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

/* data: the tensor's bytes, of its type. false: a finite number became infinite. */
static bool values_convert(const char *dtype, const void *data, int64_t n, float *to) {
    const double *wide = data;
    const uint16_t *narrow = data;
    bool is_double = !strcmp(dtype, "F64"), is_half = !strcmp(dtype, "F16");
    if (!strcmp(dtype, "F32")) {
        memcpy(to, data, (size_t)n * sizeof *to);
        return true;
    }
    for (int64_t i = 0; i < n; i++) {
        to[i] = is_double ? (float)wide[i] : is_half ? from_half(narrow[i]) : from_bfloat(narrow[i]);
        if (is_double && isfinite(wide[i]) && !isfinite(to[i])) return false;
    }
    return true;
}

static enum error load_tensor(const struct st_file *f, const struct st_tensor *t, float *to) {
    void *data;
    TRY(memory_alloc(t->bytes, &data));
    enum error err = st_read(f, t, data);
    int64_t n = 1;
    for (int d = 0; d < t->ndim; d++) n *= t->dim[d];
    if (err == ERR_NONE && !values_convert(t->dtype, data, n, to))
        err = FAIL(ERR_DATA, "'%s': tensor '%s' has numbers that f32 cannot hold", f->path, t->name);
    memory_free(data);
    return err;
}

static void complain_to_log(void *user, const char *text, const char *hint) {
    struct complaints *c = user;
    if (c->count++ < COMPLAINTS_MAX) log_info("model.init: %s%s%s%s", text, *hint ? " (" : "", hint, *hint ? ")" : "");
}

/* Loads the tensors that fit. Others are left out where strict is false, or where the file has changed since it was checked. */
static enum error tensors_load(const struct init_source *s, const struct st_file *f, const struct model *m,
                               float *values, float *buffers) {
    struct complaints c = {s, NULL, 0};
    int fit = tensors_compare(f, m, s->strict, complain_to_log, &c), all = m->nparams + m->nbuffers;
    if (fit == 0 || (s->strict && c.count))
        return FAIL(ERR_CONFIG, "the weights of '%s' do not fit model '%s'", s->path, m->name);
    if (fit < all) log_info("model.init: %d of %d tensors taken from '%s'", fit, all, s->path);
    for (int i = 0; i < all; i++) {
        const struct tensor_info *info = tensor_at(m, i);
        const struct st_tensor *t = st_find(f, info->name);
        float *to = (i < m->nparams ? values : buffers) + info->offset;
        if (t && tensor_fits(t, info)) TRY(load_tensor(f, t, to));
    }
    return ERR_NONE;
}

enum error init_load(const struct init_source *s, const struct model *m, float *values, float *buffers) {
    struct st_file f;
    if (!s->path) return ERR_NONE;
    TRY(open_source(s->path, m, &f));
    enum error err = tensors_load(s, &f, m, values, buffers);
    st_close(&f);
    return err;
}
