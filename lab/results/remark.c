#include "lab/results/remark.h"

#include "engine/base/file.h"
#include "engine/base/json.h"
#include "engine/base/text.h"

#include <stdio.h>
#include <string.h>

enum { FILE_MOST = 1 << 14 };

/* ---- tags ---- */

/* Why the text is no tag; NULL: it is one. */
static const char *remark_wrong_tag(const char *tag) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-+:";
    size_t n = strlen(tag);
    if (n == 0) return "it is empty";
    if (n > REMARK_TAG) return "it is too long";
    if (*tag == '-') return "it begins with '-'";
    return tag[strspn(tag, letters)] ? "a tag is one word of letters, digits and . _ - + :" : NULL;
}

/* The place of the tag among words with one blank between them; NULL: it is not there. */
static const char *remark_find_tag(const char *tags, const char *tag) {
    size_t n = strlen(tag);
    for (const char *at = tags; *at; at += strcspn(at, " "), at += *at == ' ')
        if (strcspn(at, " ") == n && !memcmp(at, tag, n)) return at;
    return NULL;
}

static int remark_count_tags(const char *tags) {
    int n = *tags != '\0';
    for (; *tags; tags++) n += *tags == ' ';
    return n;
}

bool remark_has_tag(const struct remark *r, const char *tag) {
    return remark_find_tag(r->tags, tag) != NULL;
}

enum error remark_add_tag(struct remark *r, const char *tag, struct pool *pool) {
    const char *wrong = remark_wrong_tag(tag);
    if (wrong) return FAIL(ERR_USAGE, "'%s' is not a tag: %s", tag, wrong);
    if (remark_has_tag(r, tag)) return ERR_NONE;
    if (remark_count_tags(r->tags) >= REMARK_TAGS) return FAIL(ERR_USAGE, "it has %d tags, the most", REMARK_TAGS);
    r->tags = pool_printf(pool, "%s%s%s", r->tags, *r->tags ? " " : "", tag);
    return r->tags ? ERR_NONE : ERR_MEMORY;
}

enum error remark_remove_tag(struct remark *r, const char *tag, struct pool *pool) {
    const char *at = remark_find_tag(r->tags, tag);
    if (!at) return FAIL(ERR_USAGE, "it does not have the tag '%s'\nits tags: %s", tag, *r->tags ? r->tags : "none");
    const char *rest = at + strlen(tag);
    int before = (int)(at - r->tags);
    if (*rest)
        rest++; /* the blank goes with it, */
    else if (before > 0)
        before--; /* and so does the one before the last tag */
    r->tags = pool_printf(pool, "%.*s%s", before, r->tags, rest);
    return r->tags ? ERR_NONE : ERR_MEMORY;
}

/* ---- notes ---- */

enum error remark_set_note(struct remark *r, const char *note, struct pool *pool) {
    char *shown = pool_printf(pool, "%s", note);
    if (!shown) return ERR_MEMORY;
    if (strlen(note) > REMARK_NOTE)
        return FAIL(ERR_USAGE, "the note has %zu bytes, and %d are the most", strlen(note), REMARK_NOTE);
    if (strcmp(text_defuse(shown, ""), note) != 0)
        return FAIL(ERR_USAGE, "a note is one line of UTF-8 text without control characters, not '%s'", shown);
    r->note = shown;
    return ERR_NONE;
}

/* ---- the file ---- */

enum error remark_read(const char *dir, const char *run_id, struct pool *pool, struct remark *out) {
    const struct json_value *root;
    *out = (struct remark){.note = "", .tags = ""};
    char *path = pool_printf(pool, "%s/note.json", dir);
    if (!path) return ERR_MEMORY;
    if (!file_exists(path)) return ERR_NONE;
    TRY(json_read(path, FILE_MOST, (struct json_limits){3, 2 * REMARK_TAGS + 8, FILE_MOST}, pool, &root));
    const char *of = json_text(root, "run_id");
    if (*of && *run_id && strcmp(of, run_id) != 0) return ERR_NONE;
    const struct json_value *tags = json_member(root, "tags", JSON_ARRAY);
    char *note = pool_printf(pool, "%.*s", REMARK_NOTE, json_text(root, "note"));
    if (!note) return ERR_MEMORY;
    out->note = text_defuse(note, "");
    for (int i = 0; tags && i < tags->count && i < REMARK_TAGS; i++) {
        const struct json_value *tag = &tags->children[i];
        if (tag->kind == JSON_STRING && !remark_wrong_tag(tag->text)) TRY(remark_add_tag(out, tag->text, pool));
    }
    return ERR_NONE;
}

void remark_put_tags(const struct remark *r, struct json *j) {
    json_open(j, "tags", '[');
    for (const char *at = r->tags; *at;) {
        char tag[REMARK_TAG + 1];
        size_t n = strcspn(at, " ");
        snprintf(tag, sizeof tag, "%.*s", (int)n, at);
        json_string(j, NULL, tag);
        at += n + (at[n] == ' ');
    }
    json_close(j, ']');
}

enum error remark_save(const char *dir, const char *run_id, const struct remark *r, struct pool *pool) {
    struct json j = {0};
    json_open(&j, NULL, '{');
    json_put(&j, JSON_TEXT("run_id", run_id), JSON_TEXT("note", r->note));
    remark_put_tags(r, &j);
    json_close(&j, '}');
    return json_save(&j, ERR_NONE, pool_printf(pool, "%s/note.json", dir));
}
