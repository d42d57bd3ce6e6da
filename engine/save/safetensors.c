/* Safetensors files: named arrays that carry no code and that Python reads without any of ours.
 *
 *   8 bytes   N, little-endian
 *   N bytes   JSON: {"__metadata__": {string: string}, name: {"dtype", "shape", "data_offsets":
 * [begin, end]}, ...} the rest  the arrays, little-endian, row-major, one after another: no holes,
 * no overlaps, nothing after the last
 *
 * The format has no checksum; ours are in __metadata__ as "crc32c/NAME": "8 hex digits". We pad the
 * header with spaces until the data begins at a multiple of 64. A file may be hostile: sizes are
 * computed with overflow caught, and the header's length, depth, values and names have limits, so
 * that a small file cannot take much time or memory. */
#include "engine/base/file.h"
#include "engine/save/checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "arrays are written as they lie in memory");

enum { HEADER_MOST = 16 << 20, TENSORS_MOST = 16384, NAME_MOST = 256 };
static const struct json_limits header_limits = {.depth = 3, .entries = 12 * TENSORS_MOST, .text = HEADER_MOST};

static size_t dtype_bytes(const char *dtype) {
    static const struct {
        const char *name;
        size_t bytes;
    } known[] = {{"F32", 4}, {"F64", 8},  {"I64", 8}, {"I32", 4}, {"U64", 8}, {"U8", 1},
                 {"F16", 2}, {"BF16", 2}, {"I16", 2}, {"I8", 1},  {"BOOL", 1}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(known[i].name, dtype)) return known[i].bytes;
    return 0;
}

/* Names stand in messages: no control characters, and a length. */
static bool name_is_fit(const char *name) {
    size_t n = strlen(name);
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)name[i] < 0x20 || name[i] == 0x7F) return false;
    return n > 0 && n <= NAME_MOST;
}

char *st_shape_text(const struct st_tensor *t, char out[128]) {
    *out = '\0';
    for (int d = 0, n = 0; d < t->ndim; d++)
        n += snprintf(out + n, 128 - (size_t)n, "%s%lld", d ? "x" : "", (long long)t->dim[d]);
    return out;
}

/* ---- writing ---- */

static void put_tensor(struct json *j, const struct st_tensor *t, size_t offset) {
    json_open(j, t->name, '{');
    json_string(j, "dtype", t->dtype);
    json_ints(j, "shape", t->dim, t->ndim);
    json_ints(j, "data_offsets", (const int64_t[]){(int64_t)offset, (int64_t)(offset + t->bytes)}, 2);
    json_close(j, '}');
}

static void put_header(struct json *j, const struct st_tensor *tensors, int count, const char *const (*metadata)[2]) {
    json_open(j, NULL, '{');
    json_open(j, "__metadata__", '{');
    for (; metadata && (*metadata)[0]; metadata++) json_string(j, (*metadata)[0], (*metadata)[1]);
    for (int i = 0; i < count; i++) {
        char key[NAME_MOST + 16], crc[16];
        snprintf(key, sizeof key, "crc32c/%s", tensors[i].name);
        snprintf(crc, sizeof crc, "%08x", crc32c(0, tensors[i].data, tensors[i].bytes));
        json_string(j, key, crc);
    }
    json_close(j, '}');
    size_t offset = 0;
    for (int i = 0; i < count; offset += tensors[i++].bytes) put_tensor(j, &tensors[i], offset);
    json_close(j, '}');
}

/* The first bytes of the file, up to the data, in the pool. */
static enum error make_head(const struct st_tensor *tensors, int count, const char *const (*metadata)[2],
                            struct pool *pool, struct st_tensor *head) {
    struct json j = {0};
    put_header(&j, tensors, count, metadata);
    enum error err = json_done(&j);
    size_t whole = (8 + j.length + 63) / 64 * 64;
    char *bytes = err == ERR_NONE ? pool_alloc(pool, whole) : NULL;
    if (bytes) {
        uint64_t n = whole - 8;
        memcpy(bytes, &n, 8);
        memset(bytes + 8, ' ', whole - 8);
        memcpy(bytes + 8, j.text, j.length);
        *head = (struct st_tensor){.data = bytes, .bytes = whole};
    }
    json_fini(&j);
    return err == ERR_NONE && !bytes ? ERR_MEMORY : err;
}

/* Reserving the space first tells of a full disk before anything is written. */
static enum error write_parts(int fd, const char *path, const struct st_tensor *parts, int count, int64_t total) {
    int code = posix_fallocate(fd, 0, (off_t)total);
    if (code && code != EOPNOTSUPP && code != EINVAL)
        return FAIL(ERR_IO, "cannot reserve %lld bytes for '%s': %s", (long long)total, path, strerror(code));
    for (int i = 0; i < count; i++) TRY(file_write_all(fd, parts[i].data, parts[i].bytes, path));
    if (file_sync(fd) != 0) return FAIL(ERR_IO, "cannot sync '%s': %s", path, strerror(errno));
    return ERR_NONE;
}

static enum error write_file(const char *path, const struct st_tensor *parts, int count, int64_t total) {
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd < 0) return FAIL(ERR_CREATE, "cannot create '%s': %s", path, strerror(errno));
    enum error err = write_parts(fd, path, parts, count, total);
    if (close(fd) != 0 && err == ERR_NONE) err = FAIL(ERR_IO, "cannot close '%s': %s", path, strerror(errno));
    if (err != ERR_NONE) unlink(path);
    return err;
}

enum error st_write(const char *path, const struct st_tensor *tensors, int count, const char *const (*metadata)[2],
                    uint32_t *file_crc, int64_t *file_bytes) {
    if (count > TENSORS_MOST) return FAIL(ERR_CREATE, "'%s': %d tensors are too many", path, count);
    for (int i = 0; i < count; i++)
        if (!name_is_fit(tensors[i].name))
            return FAIL(ERR_CREATE, "'%s': '%.80s' cannot be a tensor's name", path, tensors[i].name);
    struct pool *pool;
    TRY(pool_create(&pool));
    struct st_tensor *parts = pool_alloc(pool, ((size_t)count + 1) * sizeof *parts); /* the head, and the tensors */
    enum error err = parts ? make_head(tensors, count, metadata, pool, &parts[0]) : ERR_MEMORY;
    if (err == ERR_NONE) {
        if (count) memcpy(parts + 1, tensors, (size_t)count * sizeof *parts);
        *file_crc = 0;
        *file_bytes = 0;
        for (int i = 0; i <= count; i++) {
            *file_crc = crc32c(*file_crc, parts[i].data, parts[i].bytes);
            *file_bytes += (int64_t)parts[i].bytes;
        }
        err = write_file(path, parts, count + 1, *file_bytes);
    }
    pool_free(pool);
    return err;
}

/* ---- reading ---- */

static enum error read_shape(const struct json_value *shape, struct st_tensor *t) {
    if (!shape || shape->kind != JSON_ARRAY) return FAIL(ERR_DATA, "tensor '%s' has no shape", t->name);
    if (shape->count > SHAPE_MAX)
        return FAIL(ERR_DATA, "tensor '%s' has %d dimensions; at most %d are supported", t->name, shape->count,
                    SHAPE_MAX);
    t->ndim = shape->count;
    t->bytes = dtype_bytes(t->dtype);
    for (int d = 0; d < t->ndim; d++) {
        const struct json_value *v = &shape->children[d];
        if (v->kind != JSON_NUMBER || !v->is_integer || v->integer < 0)
            return FAIL(ERR_DATA, "tensor '%s': dimension %d is not a size", t->name, d);
        t->dim[d] = v->integer;
        if (__builtin_mul_overflow(t->bytes, (size_t)v->integer, &t->bytes))
            return FAIL(ERR_DATA, "tensor '%s': its size overflows", t->name);
    }
    return ERR_NONE;
}

static enum error read_offsets(const struct json_value *offsets, size_t data_bytes, struct st_tensor *t) {
    const struct json_value *v = offsets ? offsets->children : NULL;
    if (!offsets || offsets->kind != JSON_ARRAY || offsets->count != 2 || !v[0].is_integer || !v[1].is_integer)
        return FAIL(ERR_DATA, "tensor '%s' has no two data_offsets", t->name);
    int64_t begin = v[0].integer, end = v[1].integer;
    if (begin < 0 || end < begin || (uint64_t)end > data_bytes)
        return FAIL(ERR_DATA, "tensor '%s' claims bytes %lld to %lld of %zu", t->name, (long long)begin, (long long)end,
                    data_bytes);
    if ((uint64_t)(end - begin) != t->bytes)
        return FAIL(ERR_DATA, "tensor '%s' has %lld bytes, but its shape needs %zu", t->name, (long long)(end - begin),
                    t->bytes);
    t->offset = (size_t)begin;
    return ERR_NONE;
}

static enum error read_entry(const struct json_value *v, size_t data_bytes, struct st_tensor *t) {
    if (!name_is_fit(v->key)) return FAIL(ERR_DATA, "a tensor's name is empty, too long or not printable");
    const struct json_value *dtype = json_get(v, "dtype");
    if (v->kind != JSON_OBJECT || v->count != 3 || !dtype || dtype->kind != JSON_STRING)
        return FAIL(ERR_DATA, "tensor '%s' is not described by dtype, shape and data_offsets", v->key);
    *t = (struct st_tensor){.name = v->key, .dtype = dtype->text};
    if (!dtype_bytes(t->dtype))
        return FAIL(ERR_DATA, "tensor '%s' has the unsupported type '%.16s'", t->name,
                    name_is_fit(t->dtype) ? t->dtype : "?");
    TRY(read_shape(json_get(v, "shape"), t));
    return read_offsets(json_get(v, "data_offsets"), data_bytes, t);
}

static int safetensors_by_name(const void *a, const void *b) {
    return strcmp(((const struct st_tensor *)a)->name, ((const struct st_tensor *)b)->name);
}

static int safetensors_by_offset(const void *a, const void *b) {
    const struct st_tensor *x = a, *y = b;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes; /* an empty tensor before the one it touches */
}

/* The tensors are sorted by name here. */
static enum error read_crcs(struct st_file *f) {
    if (f->metadata && f->metadata->kind != JSON_OBJECT) return FAIL(ERR_DATA, "__metadata__ is no object");
    for (int i = 0; f->metadata && i < f->metadata->count; i++) {
        const struct json_value *v = &f->metadata->children[i];
        if (v->kind != JSON_STRING) return FAIL(ERR_DATA, "__metadata__ has a value that is not a text");
        if (strncmp(v->key, "crc32c/", 7) != 0) continue;
        struct st_tensor wanted = {.name = v->key + 7}, *t;
        t = bsearch(&wanted, f->tensors, (size_t)f->count, sizeof *t, safetensors_by_name);
        if (!t || strlen(v->text) != 8 || strspn(v->text, "0123456789abcdef") != 8)
            return FAIL(ERR_DATA, "__metadata__ holds a bad crc32c");
        t->crc = (uint32_t)strtoul(v->text, NULL, 16);
        t->has_crc = true;
    }
    return ERR_NONE;
}

static enum error check_layout(const struct st_file *f) {
    size_t at = 0;
    for (int i = 0; i < f->count; at += f->tensors[i++].bytes)
        if (f->tensors[i].offset != at)
            return FAIL(ERR_DATA,
                        "tensor '%s' begins at byte %zu of the data where %zu was expected (a hole or an overlap)",
                        f->tensors[i].name, f->tensors[i].offset, at);
    if (at != f->data_bytes) return FAIL(ERR_DATA, "the data has %zu bytes, its tensors need %zu", f->data_bytes, at);
    return ERR_NONE;
}

static enum error read_header(struct st_file *f, const char *text, size_t n) {
    const struct json_value *root;
    if (*text != '{') return FAIL(ERR_DATA, "not a safetensors file: its header is not a JSON object");
    TRY(json_parse(text, n, header_limits, f->pool, &root));
    f->metadata = json_get(root, "__metadata__");
    int count = root->count - (f->metadata ? 1 : 0);
    if (count > TENSORS_MOST) return FAIL(ERR_DATA, "%d tensors; at most %d are supported", count, TENSORS_MOST);
    TRY_MEMORY(f->tensors = pool_alloc(f->pool, (size_t)count * sizeof *f->tensors));
    for (int i = 0; i < root->count; i++)
        if (&root->children[i] != f->metadata)
            TRY(read_entry(&root->children[i], f->data_bytes, &f->tensors[f->count++]));
    qsort(f->tensors, (size_t)f->count, sizeof *f->tensors, safetensors_by_name);
    TRY(read_crcs(f));
    qsort(f->tensors, (size_t)f->count, sizeof *f->tensors, safetensors_by_offset);
    return check_layout(f);
}

static bool safetensors_is_zip(uint64_t head) {
    return (head & 0xFFFFFFFF) == 0x04034B50;
}

/* What a file of torch.save begins with: a zip archive whose first name ends in data.pkl, or before 1.6 a pickle. That is
 * code, which is never run here. */
static bool safetensors_is_pickled(const struct st_file *f, uint64_t head) {
    enum { NAME_AT = 30 };
    char name[256] = "";
    if (!safetensors_is_zip(head)) return (head & 0xFF) == 0x80 && (head >> 8 & 0xFF) <= 5;
    return pread(f->fd, name, sizeof name - 1, NAME_AT) > 0 && strstr(name, "data.pkl");
}

static enum error refuse_pickled(const struct st_file *f) {
    bool plain = !f->path[strcspn(f->path, "'\"\\`$\n")]; /* it can stand in the line */
    const char *path = plain ? f->path : "FILE.pth", *dot = strrchr(path, '.');
    int stem = dot && !strchr(dot, '/') ? (int)(dot - path) : (int)strlen(path);
    return FAIL(ERR_DATA,
                "a file of torch.save (pickle), and not a safetensors file\n"
                "convert it: python3 -c \"import torch, safetensors.torch as s; d = torch.load('%s', "
                "map_location='cpu', weights_only=True); d = d.get('state_dict', d); s.save_file({k: "
                "v.clone().contiguous() for k, v in d.items() if torch.is_tensor(v)}, '%.*s.safetensors')\"",
                path, stem, path);
}

static enum error read_head(struct st_file *f) {
    struct stat st;
    uint64_t n;
    if (fstat(f->fd, &st) != 0) return FAIL(ERR_IO, "cannot look at it: %s", strerror(errno));
    if (!S_ISREG(st.st_mode)) return FAIL(ERR_DATA, "not a regular file");
    if (st.st_size < 10) return FAIL(ERR_DATA, "not a safetensors file: %lld bytes", (long long)st.st_size);
    TRY(file_pread_all(f->fd, &n, 8, 0, f->path));
    if (n > HEADER_MOST && safetensors_is_pickled(f, n)) return refuse_pickled(f);
    if (safetensors_is_zip(n))
        return FAIL(ERR_DATA, "a zip archive, and not a safetensors file\n"
                              "convert arrays of numpy.savez: python3 -c \"import numpy, safetensors.numpy as s; "
                              "s.save_file(dict(numpy.load('FILE.npz')), 'FILE.safetensors')\"");
    if (n < 2 || n > HEADER_MOST || n > (uint64_t)st.st_size - 8)
        return FAIL(ERR_DATA, "not a safetensors file, or cut short: %lld bytes with a header of %llu",
                    (long long)st.st_size, (unsigned long long)n);
    char *text = pool_alloc(f->pool, n);
    if (!text) return ERR_MEMORY;
    TRY(file_pread_all(f->fd, text, n, 8, f->path));
    f->data_start = 8 + n;
    f->data_bytes = (size_t)st.st_size - f->data_start;
    return read_header(f, text, n);
}

enum error st_open(const char *path, struct st_file *out) {
    struct st_file f = {.fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
    *out = (struct st_file){.fd = -1};
    if (f.fd < 0) return FAIL(errno == ENOENT ? ERR_INPUT : ERR_IO, "cannot open '%s': %s", path, strerror(errno));
    enum error err = pool_create(&f.pool);
    if (err == ERR_NONE && !(f.path = pool_printf(f.pool, "%s", path))) err = ERR_MEMORY;
    if (err == ERR_NONE) {
        err = read_head(&f);
        if (err != ERR_NONE) (void)error_prefix(err, "'%s': ", path);
    }
    if (err == ERR_NONE)
        *out = f;
    else
        st_close(&f);
    return err;
}

const struct st_tensor *st_find(const struct st_file *f, const char *name) {
    for (int i = 0; i < f->count; i++)
        if (!strcmp(f->tensors[i].name, name)) return &f->tensors[i];
    return NULL;
}

enum error st_read(const struct st_file *f, const struct st_tensor *t, void *data) {
    TRY(file_pread_all(f->fd, data, t->bytes, (int64_t)(f->data_start + t->offset), f->path));
    uint32_t crc = crc32c(0, data, t->bytes);
    if (t->has_crc && crc != t->crc)
        return FAIL(ERR_DATA, "'%s': tensor '%s' is damaged (crc32c %08x, recorded %08x)", f->path, t->name, crc,
                    t->crc);
    return ERR_NONE;
}

void st_close(struct st_file *f) {
    if (f->fd >= 0) close(f->fd);
    pool_free(f->pool);
    *f = (struct st_file){.fd = -1};
}
