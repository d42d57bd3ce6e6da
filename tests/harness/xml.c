#include "tests/harness/xml.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { DEPTH = 64, NAME = 64, ATTRIBUTES = 32 };
struct reader {
    const char *p;
    char open[DEPTH][NAME];
    int depth;
    const char *wrong;
};

static bool fail(struct reader *r, const char *what) {
    if (!r->wrong) r->wrong = what;
    return false;
}

static bool read_name(struct reader *r, char name[NAME]) {
    size_t n = strspn(r->p, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-:_.");
    if (!isalpha((unsigned char)*r->p) || n >= NAME) return fail(r, "no name");
    snprintf(name, NAME, "%.*s", (int)n, r->p);
    r->p += n;
    return true;
}

static bool read_entity(struct reader *r) {
    static const char *const known[] = {"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"};
    for (int i = 0; i < 5; i++)
        if (!strncmp(r->p, known[i], strlen(known[i]))) {
            r->p += strlen(known[i]);
            return true;
        }
    return fail(r, "an ampersand that is no entity");
}

/* Up to one of 'ends'; no control characters. */
static bool read_characters(struct reader *r, const char *ends) {
    while (*r->p && !strchr(ends, *r->p)) {
        if ((unsigned char)*r->p < 0x20 && !strchr("\n\t", *r->p)) return fail(r, "a control character");
        if (*r->p == '&') {
            if (!read_entity(r)) return false;
        } else {
            r->p++;
        }
    }
    return true;
}

static bool read_attributes(struct reader *r) {
    char seen[ATTRIBUTES][NAME];
    for (int n = 0;; n++) {
        r->p += strspn(r->p, " \n");
        if (strchr("/>", *r->p)) return true;
        if (n == ATTRIBUTES || !read_name(r, seen[n])) return fail(r, "attributes");
        for (int i = 0; i < n; i++)
            if (!strcmp(seen[i], seen[n])) return fail(r, "an attribute twice");
        if (strncmp(r->p, "=\"", 2) != 0) return fail(r, "an attribute without a value");
        r->p += 2;
        if (!read_characters(r, "\"<") || *r->p != '"') return fail(r, "an attribute that does not end");
        r->p++;
    }
}

static bool read_tag(struct reader *r) {
    char name[NAME];
    bool closes = r->p[1] == '/';
    r->p += closes ? 2 : 1;
    if (!read_name(r, name)) return false;
    if (closes) {
        if (*r->p++ != '>' || strcmp(name, r->open[r->depth - 1]) != 0) return fail(r, "a tag that closes another");
        r->depth--;
        return true;
    }
    if (!read_attributes(r)) return false;
    bool empty = *r->p == '/';
    r->p += empty;
    if (*r->p++ != '>') return fail(r, "a tag that does not end");
    if (empty) return true;
    if (r->depth == DEPTH) return fail(r, "too deep");
    snprintf(r->open[r->depth++], NAME, "%s", name);
    return true;
}

const char *xml_wrong(const char *text) {
    static char words[160];
    struct reader r = {.p = text + strspn(text, " \n")};
    bool first = true;
    while (!r.wrong && (first || r.depth > 0)) {
        if (*r.p != '<')
            fail(&r, *r.p ? "text outside" : "an end too early");
        else if (read_tag(&r) && r.depth > 0)
            read_characters(&r, "<");
        first = false;
    }
    if (!r.wrong && r.p[strspn(r.p, " \n")]) fail(&r, "more behind the end");
    if (!r.wrong) return NULL;
    snprintf(words, sizeof words, "%s, at '%.60s'", r.wrong, r.p);
    return words;
}
