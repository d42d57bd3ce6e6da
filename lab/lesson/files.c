/* The labs that come with the program. */
#include "lab/lesson/lesson.h"

#include "engine/base/embedded.h"
#include "engine/base/file.h"
#include "engine/base/text.h"
#include "lab/process/compile.h"

#include <stdio.h>
#include <string.h>

/* The files of examples/labs/, by their paths from there: "00-hello/lab.yaml". */
extern const struct embedded lesson_texts[];
extern const int lesson_texts_count;

static const char *lesson_text_of(const char *full, const char *file) {
    size_t n = strlen(full);
    for (int i = 0; i < lesson_texts_count; i++) {
        const char *path = lesson_texts[i].name;
        if (!strncmp(path, full, n) && path[n] == '/' && !strcmp(path + n + 1, file)) return lesson_texts[i].text;
    }
    return NULL;
}

const char *lesson_readme(const char *full) {
    const char *text = lesson_text_of(full, "README.md");
    return text ? text : "";
}

/* ---- the list ---- */

static const char *lesson_map_scalar(const struct node *map, const char *key) {
    const struct node *at = node_get(map, key);
    return at && at->kind == NODE_SCALAR ? at->text : "";
}

static enum error lesson_read_about(const char *path, const char *text, struct pool *pool, struct lesson_about *out) {
    struct config_errors *e;
    struct node *root;
    TRY(config_errors_create(&e));
    enum error err = tree_parse(text, strlen(text), path, pool, e, &root);
    config_errors_free(e);
    if (err != ERR_NONE) return err;
    *out = (struct lesson_about){pool_strndup(pool, path, strcspn(path, "/")), lesson_map_scalar(root, "title"),
                                 lesson_map_scalar(root, "question"), 0, node_get(root, "hand_in")};
    if (!out->name) return ERR_MEMORY;
    return text_real(lesson_map_scalar(root, "minutes"), &out->minutes) ? ERR_NONE
                                                                        : FAIL(ERR_BUG, "%s: no minutes", path);
}

/* The length of the folder's name in "00-hello/lab.yaml"; 0: the file is another. */
static size_t lesson_name_length(const char *path) {
    const char *slash = strchr(path, '/');
    return slash && !strcmp(slash, "/lab.yaml") ? (size_t)(slash - path) : 0;
}

const char *lesson_name(int i) {
    static char name[64];
    for (int k = 0; k < lesson_texts_count; k++) {
        size_t n = lesson_name_length(lesson_texts[k].name);
        if (n == 0 || i-- > 0) continue;
        snprintf(name, sizeof name, "%.*s", (int)n, lesson_texts[k].name);
        return name;
    }
    return NULL;
}

enum error lesson_list(struct pool *pool, struct lesson_about *out, int *n) {
    *n = 0;
    for (int i = 0; i < lesson_texts_count && *n < LESSONS_MOST; i++) {
        const char *path = lesson_texts[i].name;
        if (!lesson_name_length(path)) continue;
        TRY(lesson_read_about(path, lesson_texts[i].text, pool, &out[*n]));
        ++*n;
    }
    return ERR_NONE;
}

static bool lesson_is_called(const char *full, const char *name) {
    const char *dash = strchr(full, '-');
    int64_t number, mine;
    char digits[16] = "";
    if (!strcmp(full, name) || (dash && !strcmp(dash + 1, name))) return true;
    snprintf(digits, sizeof digits, "%.*s", (int)strcspn(full, "-"), full);
    const char *bare = digits + (digits[0] == '0' && digits[1]);
    name += *name == '0' && name[1];
    return text_int(name, &number) && text_int(bare, &mine) && number == mine;
}

enum error lesson_find(const char *name, struct pool *pool, const char **full) {
    struct lesson_about all[LESSONS_MOST];
    const char *names[2 * LESSONS_MOST];
    int n, count = 0;
    TRY(lesson_list(pool, all, &n));
    for (int i = 0; i < n; i++)
        if (lesson_is_called(all[i].name, name)) return *full = all[i].name, ERR_NONE;
    for (int i = 0; i < n; i++) {
        const char *dash = strchr(all[i].name, '-');
        names[count++] = all[i].name;
        if (dash) names[count++] = dash + 1;
    }
    const char *near = text_nearest(name, names, count);
    if (near) return FAIL(ERR_INPUT, "there is no lab '%s'\ndid you mean '%s'?", name, near);
    return FAIL(ERR_INPUT, "there is no lab '%s'\n'engine lab list' shows all labs", name);
}

/* ---- copies ---- */

/* Whether the lab has the file in another language, too: "24-ring/ring" with the ending. */
static bool copy_has_twin(const char *name, const char *ending) {
    size_t stem = strcspn(name, ".");
    for (int i = 0; i < lesson_texts_count; i++) {
        const char *other = lesson_texts[i].name;
        if (!strncmp(other, name, stem) && !strcmp(other + stem, ending)) return true;
    }
    return false;
}

/* Whether a name begins here, which is no part of a longer one. */
static bool copy_is_word(const char *text, const char *at, const char *stem, size_t n, const char *ending) {
    bool begins = at == text || strchr(" ./`'\"[\n", at[-1]);
    return begins && !strncmp(at, stem, n) && !strncmp(at + n, ending, strlen(ending)) &&
           !strchr("abcdefghijklmnopqrstuvwxyz", at[n + strlen(ending)]);
}

/* The text, in which the source and the object of a file in C are the file in Python. */
static enum error copy_translate(const char *text, const char *name, struct pool *pool, const char **out) {
    static const char *const endings[] = {".so", ".c"};
    const char *stem = strchr(name, '/') + 1;
    size_t n = strcspn(stem, ".");
    char *to = pool_alloc(pool, 2 * strlen(text) + 1);
    *out = to;
    if (!to) return ERR_MEMORY;
    for (const char *at = text; *at;) {
        const char *ending = NULL;
        for (int i = 0; i < 2; i++)
            if (copy_is_word(text, at, stem, n, endings[i])) ending = endings[i];
        if (ending) {
            to += sprintf(to, "%.*s.py", (int)n, stem);
            at += n + strlen(ending);
        } else {
            *to++ = *at++;
        }
    }
    return ERR_NONE;
}

/* The header that a lab's sources include, for their reader and for editors; a build brings its own. */
static enum error copy_header(const char *folder, struct pool *pool) {
    const char *path = pool_printf(pool, "%s/engine_plugin.h", folder), *text = compile_text("/plugin.h");
    if (!path) return ERR_MEMORY;
    return file_exists(path) ? ERR_NONE : file_replace(path, text, strlen(text));
}

static enum error copy_file(const char *name, const char *said, const char *folder, struct pool *pool, int *kept) {
    enum { MOST = 1 << 20 };
    char *path = pool_printf(pool, "%s%s", folder, strchr(name, '/')), *text;
    size_t n;
    if (!path) return ERR_MEMORY;
    if (!file_exists(path)) return file_replace(path, said, strlen(said));
    TRY(file_read(path, MOST, pool, &text, &n));
    *kept += strcmp(text, said) != 0;
    return ERR_NONE;
}

static bool copy_is_of(const char *name, const char *full) {
    size_t n = strlen(full);
    return !strncmp(name, full, n) && name[n] == '/';
}

enum error lesson_copy(const char *full, const char *folder, bool python, struct pool *pool, int *kept) {
    const char *twins[LESSON_FILES];
    int ntwins = 0;
    bool code = false;
    *kept = 0;
    for (int i = 0; i < lesson_texts_count; i++) {
        const char *name = lesson_texts[i].name;
        if (copy_is_of(name, full) && text_ends(name, ".py") && copy_has_twin(name, ".c") && ntwins < LESSON_FILES)
            twins[ntwins++] = name;
    }
    if (python && !ntwins) return FAIL(ERR_INPUT, "lab %s asks for no code that may be in Python", full);
    TRY(file_make_folders(folder));
    for (int i = 0; i < lesson_texts_count; i++) {
        const char *name = lesson_texts[i].name, *text = lesson_texts[i].text;
        bool other = python ? text_ends(name, ".c") && copy_has_twin(name, ".py")
                            : text_ends(name, ".py") && copy_has_twin(name, ".c");
        if (!copy_is_of(name, full) || other) continue;
        for (int k = 0; k < ntwins && python && !text_ends(name, ".py"); k++)
            TRY(copy_translate(text, twins[k], pool, &text));
        TRY(copy_file(name, text, folder, pool, kept));
        code |= compile_is_source(name);
    }
    return code ? copy_header(folder, pool) : ERR_NONE;
}
