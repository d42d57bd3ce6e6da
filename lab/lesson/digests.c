#include "lab/lesson/digests.h"

#include "engine/base/file.h"
#include "engine/base/text.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { FILES_MOST = 1 << 26 };

enum error digest_of_file(const char *path, char hex[SHA256_TEXT]) {
    struct sha256 s;
    char piece[1 << 14];
    FILE *f = fopen(path, "re");
    if (!f) return FAIL(ERR_INPUT, "cannot read '%s': %s", path, strerror(errno));
    sha256_init(&s);
    for (size_t n; (n = fread(piece, 1, sizeof piece, f)) > 0;) sha256_update(&s, piece, n);
    enum error err = ferror(f) ? FAIL(ERR_IO, "cannot read '%s'", path) : ERR_NONE;
    fclose(f);
    sha256_hex(s, hex);
    return err;
}

static struct digest_line *digests_add(struct digests *d, const char *path, struct pool *pool) {
    if (d->n == d->room) {
        int room = d->room ? 2 * d->room : 64;
        struct digest_line *more = pool_alloc(pool, (size_t)room * sizeof *more);
        if (!more) return NULL;
        if (d->n) memcpy(more, d->of, (size_t)d->n * sizeof *more);
        d->of = more, d->room = room;
    }
    d->of[d->n] = (struct digest_line){.path = path};
    return &d->of[d->n++];
}

static int digests_order(const void *a, const void *b) {
    return strcmp(((const struct digest_line *)a)->path, ((const struct digest_line *)b)->path);
}

static void digests_sort(struct digests *d) {
    if (d->n) qsort(d->of, (size_t)d->n, sizeof *d->of, digests_order);
}

const struct digest_line *digests_find(const struct digests *d, const char *path) {
    struct digest_line key = {.path = path};
    return d->n ? bsearch(&key, d->of, (size_t)d->n, sizeof *d->of, digests_order) : NULL;
}

/* ---- taken ---- */

struct digests_walk {
    const char *folder;
    struct digests *out;
    struct pool *pool;
};

static bool digests_is_any(const char *name, const char *const *of) {
    for (; *of; of++)
        if (!strcmp(name, *of)) return true;
    return false;
}

/* Whether a file among the results is one from which others follow. */
static bool digests_is_result(const char *name) {
    static const char *const not [] = {"claims.json", "note.json", NULL};
    bool form = text_ends(name, ".json") || text_ends(name, ".jsonl") || text_ends(name, ".yaml");
    return form && !digests_is_any(name, not );
}

static enum error digests_walk(const struct digests_walk *w, const char *below, bool deep);

static enum error digests_take_one(const struct digests_walk *w, const char *below, const char *name, bool deep) {
    static const char *const skipped[] = {"ckpt", "flight", "tb", "trace", NULL};
    const char *path = *below ? pool_printf(w->pool, "%s/%s", below, name) : pool_printf(w->pool, "%s", name);
    const char *full = path ? pool_printf(w->pool, "%s/%s", w->folder, path) : NULL;
    struct stat st;
    if (!full) return ERR_MEMORY;
    if (lstat(full, &st) != 0 || (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))) return ERR_NONE; /* follows no links */
    if (S_ISDIR(st.st_mode)) return deep && !digests_is_any(name, skipped) ? digests_walk(w, path, true) : ERR_NONE;
    if (deep ? !digests_is_result(name) : text_ends(name, ".so")) return ERR_NONE;
    struct digest_line *line = digests_add(w->out, path, w->pool);
    return line ? digest_of_file(full, line->hex) : ERR_MEMORY;
}

static enum error digests_walk(const struct digests_walk *w, const char *below, bool deep) {
    enum error err = ERR_NONE;
    char *full = pool_printf(w->pool, "%s/%s", w->folder, below);
    DIR *d = full ? opendir(full) : NULL;
    if (!d) return FAIL(ERR_INPUT, "folder '%s/%s' cannot be read", w->folder, below);
    for (struct dirent *e; err == ERR_NONE && (e = readdir(d));)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 && (deep || *e->d_name != '.'))
            err = digests_take_one(w, below, e->d_name, deep);
    closedir(d);
    return err;
}

enum error digests_take(const char *folder, const char *below, struct pool *pool, struct digests *out) {
    const struct digests_walk w = {folder, out, pool};
    *out = (struct digests){0};
    TRY(digests_walk(&w, "", false));
    if (below) TRY(digests_walk(&w, below, true));
    digests_sort(out);
    return ERR_NONE;
}

/* ---- written and read ---- */

static void digests_note_whole(struct digests *d, const char *text, size_t n) {
    struct sha256 s;
    sha256_init(&s);
    sha256_update(&s, text, n);
    sha256_hex(s, d->whole);
}

enum error digests_write(const char *folder, const char *below, struct pool *pool, struct digests *d) {
    struct file_text t = {0};
    char *path = pool_printf(pool, "%s/%s/files.sha256", folder, below);
    TRY(file_text_open(&t));
    for (int i = 0; i < d->n; i++) fprintf(t.out, "%s  %s\n", d->of[i].hex, d->of[i].path);
    TRY(file_text_close(&t, ERR_NONE));
    digests_note_whole(d, t.text, t.n);
    enum error err = file_replace(path, t.text, t.n);
    free(t.text);
    return err;
}

enum error digests_read(const char *folder, const char *below, struct pool *pool, struct digests *out) {
    char *path = pool_printf(pool, "%s/%s/files.sha256", folder, below), *text, *rest = NULL;
    size_t n;
    *out = (struct digests){0};
    TRY(file_read(path, FILES_MOST, pool, &text, &n));
    digests_note_whole(out, text, n);
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        if (strlen(line) < SHA256_TEXT + 2 || strncmp(line + SHA256_TEXT - 1, "  ", 2) != 0)
            return FAIL(ERR_DATA, "'%s' has a line that is none of sha256sum's", path);
        struct digest_line *l = digests_add(out, line + SHA256_TEXT + 1, pool);
        if (!l) return ERR_MEMORY;
        snprintf(l->hex, sizeof l->hex, "%.*s", SHA256_TEXT - 1, line);
    }
    digests_sort(out);
    return ERR_NONE;
}
