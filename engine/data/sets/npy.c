/* npy: a pair of NumPy's .npy files: samples (n, features), (n, height, width) or (n, channels,
 * height, width) of uint8, float32 or float64, and labels: whole numbers are classes, real numbers
 * targets.
 *
 * A file begins with "\x93NUMPY", a version (two bytes), the length of the header (two bytes, from
 * version 2 on four, little end first), and the header: a Python dictionary of exactly 'descr',
 * 'fortran_order' and 'shape', padded by white space. */
#include "engine/data/pair.h"

#include "engine/base/text.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

struct cursor { /* over the header's text */
    const char *at, *path;
};

static enum error cursor_unexpected(const struct cursor *c) {
    char near[24];
    int n = 0;
    for (; n < (int)sizeof near - 1 && c->at[n]; n++) near[n] = isprint((unsigned char)c->at[n]) ? c->at[n] : '?';
    near[n] = '\0';
    return FAIL(ERR_DATA, "%s: not NumPy's header at '%s'", c->path, near);
}

static void skip_blank(struct cursor *c) {
    while (*c->at == ' ' || *c->at == '\n' || *c->at == '\t') c->at++;
}

static bool cursor_accept(struct cursor *c, char wanted) {
    skip_blank(c);
    if (*c->at != wanted) return false;
    c->at++;
    return true;
}

static enum error cursor_expect(struct cursor *c, char wanted) {
    return cursor_accept(c, wanted) ? ERR_NONE : cursor_unexpected(c);
}

/* A quoted text shorter than 16. */
static enum error read_text(struct cursor *c, char out[16]) {
    skip_blank(c);
    char quote = *c->at;
    if (quote != '\'' && quote != '"') return cursor_unexpected(c);
    const char *end = strchr(c->at + 1, quote);
    if (!end || end - c->at > 16) return cursor_unexpected(c);
    snprintf(out, 16, "%.*s", (int)(end - c->at - 1), c->at + 1);
    c->at = end + 1;
    return ERR_NONE;
}

static enum error read_descr(struct cursor *c, struct array *out) {
    static const char *const names[] = {
        [ELEMENT_U8] = "|u1",  [ELEMENT_I8] = "|i1",  [ELEMENT_I16] = "<i2", [ELEMENT_U16] = "<u2",
        [ELEMENT_I32] = "<i4", [ELEMENT_U32] = "<u4", [ELEMENT_I64] = "<i8", [ELEMENT_U64] = "<u8",
        [ELEMENT_F32] = "<f4", [ELEMENT_F64] = "<f8"};
    char text[16];
    TRY(read_text(c, text));
    for (int i = 0; i < (int)(sizeof names / sizeof names[0]); i++)
        if (!strcmp(text, names[i])) {
            out->type = (enum element)i;
            return ERR_NONE;
        }
    return FAIL(ERR_DATA, "%s: elements of type '%s' are not read\nsave it as array.astype('float32') or 'uint8'",
                c->path, text);
}

static enum error read_order(struct cursor *c) {
    skip_blank(c);
    if (!strncmp(c->at, "True", 4))
        return FAIL(ERR_DATA, "%s: in Fortran's order\nsave numpy.ascontiguousarray(array)", c->path);
    if (strncmp(c->at, "False", 5) != 0) return cursor_unexpected(c);
    c->at += 5;
    return ERR_NONE;
}

static enum error read_dim(struct cursor *c, int64_t *out) {
    skip_blank(c);
    if (!isdigit((unsigned char)*c->at)) return cursor_unexpected(c);
    for (*out = 0; isdigit((unsigned char)*c->at); c->at++)
        if (__builtin_mul_overflow(*out, (int64_t)10, out) || __builtin_add_overflow(*out, *c->at - '0', out))
            return FAIL(ERR_DATA, "%s: a dimension of its array is too large", c->path);
    return ERR_NONE;
}

static enum error read_shape(struct cursor *c, struct array *out) {
    TRY(cursor_expect(c, '('));
    for (out->ndim = 0; !cursor_accept(c, ')');) {
        if (out->ndim == ARRAY_DIMS) return FAIL(ERR_DATA, "%s: more than %d dimensions", c->path, ARRAY_DIMS);
        TRY(read_dim(c, &out->dim[out->ndim++]));
        if (cursor_accept(c, ',')) continue;
        TRY(cursor_expect(c, ')'));
        break;
    }
    return out->ndim ? ERR_NONE : FAIL(ERR_DATA, "%s: a single number, not an array", c->path);
}

static enum error header_parse(struct cursor *c, struct array *out) {
    enum { DESCR = 1, ORDER = 2, SHAPE = 4 };
    int seen = 0;
    TRY(cursor_expect(c, '{'));
    while (!cursor_accept(c, '}')) {
        char key[16];
        TRY(read_text(c, key));
        TRY(cursor_expect(c, ':'));
        int which = !strcmp(key, "descr")           ? DESCR
                    : !strcmp(key, "fortran_order") ? ORDER
                    : !strcmp(key, "shape")         ? SHAPE
                                                    : 0;
        if (!which || seen & which)
            return FAIL(ERR_DATA, "%s: '%s' in its header is unknown or repeated", c->path, key);
        seen |= which;
        TRY(which == DESCR ? read_descr(c, out) : which == ORDER ? read_order(c) : read_shape(c, out));
        if (cursor_accept(c, ',')) continue;
        TRY(cursor_expect(c, '}'));
        break;
    }
    skip_blank(c);
    if (*c->at) return cursor_unexpected(c);
    return seen == (DESCR | ORDER | SHAPE) ? ERR_NONE : FAIL(ERR_DATA, "%s: its header is incomplete", c->path);
}

static enum error npy_header(struct input *in, struct array *out) {
    enum { HEADER_MAX = 4096 };
    uint8_t start[8], length[4] = {0};
    char text[HEADER_MAX + 1];
    TRY(input_read(in, start, sizeof start));
    if (memcmp(start, "\x93NUMPY", 6) != 0) return FAIL(ERR_DATA, "%s: not a .npy file", in->path);
    if (start[6] < 1 || start[6] > 3) return FAIL(ERR_DATA, "%s: version %d of .npy is unknown", in->path, start[6]);
    TRY(input_read(in, length, start[6] == 1 ? 2 : 4));
    uint32_t n = length[0] | (uint32_t)length[1] << 8 | (uint32_t)length[2] << 16 | (uint32_t)length[3] << 24;
    if (n > HEADER_MAX) return FAIL(ERR_DATA, "%s: a header of %u bytes", in->path, n);
    TRY(input_read(in, text, n));
    text[n] = '\0';
    if (strlen(text) != n) return FAIL(ERR_DATA, "%s: a zero byte in its header", in->path);
    return header_parse(&(struct cursor){text, in->path}, out);
}

/* The x that stands alone -> y: x_train.npy, X.npy, test-x.npy; else images -> labels. */
static bool npy_labels(const char *samples, char *labels, size_t room) {
    size_t n = strlen(samples);
    const char *images = strstr(samples, "images");
    if (n >= room) return false;
    if (images) {
        snprintf(labels, room, "%.*slabels%s", (int)(images - samples), samples, images + strlen("images"));
        return true;
    }
    memcpy(labels, samples, n + 1);
    for (size_t i = 0; i < n; i++)
        if ((samples[i] == 'x' || samples[i] == 'X') && (i == 0 || !isalnum((unsigned char)samples[i - 1])) &&
            !isalnum((unsigned char)samples[i + 1])) {
            labels[i]++;
            return true;
        }
    return false;
}

static bool npy_recognises(const char *path) {
    return text_ends(path, ".npy");
}

static const struct pair_format format = {.header = npy_header, .labels = npy_labels};

const struct dataset_ops dataset_npy = {
    .section = {.name = "npy",
                .fields = pair_fields,
                .size = sizeof(struct pair_config),
                .shorthand = "train",
                .help = "A pair of NumPy's .npy files: samples, and labels (whole numbers) or targets (real numbers)"},
    .kin = &format,
    .recognises = npy_recognises,
    PAIR_SET,
};
