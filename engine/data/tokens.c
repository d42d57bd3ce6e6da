/* Sets of tokens.
 *
 * What is not much (MEMORY_MOST) is copied to memory when the set is opened. More stays in its file
 * and each window is read by one call, which the system answers from its cache of files: all ranks
 * of a host share that, and no process grows with the text. It is not mapped, since a file that
 * shrinks while it is mapped ends the process by a signal, where a read gives an error. */
#include "engine/data/tokens.h"

#include "engine/base/digest.h"
#include "engine/base/file.h"
#include "engine/base/log.h"
#include "engine/base/text.h"
#include "engine/base/utf8.h"
#include "engine/data/input.h"

#include <string.h>
#include <unistd.h>

static const int64_t MEMORY_MOST = (int64_t)256 << 20;

/* ---- files ---- */
enum error token_file_size(const char *path, int64_t *out) {
    int fd;
    TRY(input_open_file(path, &fd, out));
    close(fd);
    return ERR_NONE;
}

enum error token_scan(const char *path, token_scan_fn *fn, void *ctx) {
    enum { PIECE = 1 << 16 };
    unsigned char bytes[PIECE];
    int fd;
    int64_t size;
    TRY(input_open_file(path, &fd, &size));
    enum error err = ERR_NONE;
    for (int64_t at = 0; at < size && err == ERR_NONE; at += PIECE) {
        int64_t n = size - at < PIECE ? size - at : PIECE;
        err = file_pread_all(fd, bytes, (size_t)n, at, path);
        if (err == ERR_NONE) err = fn(ctx, bytes, n, at);
    }
    close(fd);
    return err;
}

/* ---- making a set ---- */
enum error token_part(const char *path, int64_t tokens, int64_t context, const char *held, bool train,
                      struct part *out) {
    int64_t windows = tokens > 0 ? (tokens - 1) / context : 0;
    struct part w = {0, windows};
    if (windows < (held ? 2 : 1))
        return FAIL(
            ERR_DATA,
            "%s: %lld tokens make %lld windows of %lld, where %d are needed\ntake a smaller data.context, or more text",
            path, (long long)tokens, (long long)windows, (long long)context, held ? 2 : 1);
    if (held) TRY(part_cut(held, windows, train, &w));
    *out = (struct part){w.first * context, w.count * context + 1, .held = w.held};
    return ERR_NONE;
}

enum error token_set_create(const struct token_ask *ask, struct token_set **out) {
    size_t n = strlen(ask->path) + 1;
    struct token_set *s = memory_new(sizeof *s + n);
    if (!s) return ERR_MEMORY;
    s->base = (struct dataset){.ops = ask->ops,
                               .size = (ask->tokens - 1) / ask->context,
                               .shape = {1, {ask->context}},
                               .type = SAMPLE_TOKENS,
                               .classes = ask->vocabulary,
                               .labels = ask->context,
                               .name = ask->ops->section.name};
    s->width = ask->width;
    s->tokens = ask->tokens;
    s->fd = -1;
    s->path = (char *)(s + 1);
    memcpy(s->path, ask->path, n);
    *out = s;
    return ERR_NONE;
}

void token_close(struct dataset *d) {
    struct token_set *s = (struct token_set *)d;
    if (s->fd >= 0) close(s->fd);
    memory_free(s->memory);
    memory_free(s->characters);
    memory_free(s);
}

/* Checks that n tokens, of which the first is the part's 'at'-th, are in the vocabulary. */
static enum error tokens_check(const struct token_set *s, const void *tokens, int64_t n, int64_t at) {
    for (int64_t i = 0; i < n; i++) {
        int32_t token = token_at(tokens, s->width, i);
        if (token < 0 || token >= s->base.classes)
            return FAIL(ERR_DATA, "%s: token %d at place %lld is not in the vocabulary of %lld", s->path, token,
                        (long long)(s->offset / s->width + at + i), (long long)s->base.classes);
    }
    return ERR_NONE;
}

/* Checks the tokens of the whole file; as it is read for that, its digest costs next to nothing. */
static enum error file_check(struct token_set *s) {
    unsigned char piece[1 << 16];
    int64_t most = (int64_t)sizeof piece / s->width;
    for (int64_t at = 0; at < s->tokens; at += most) {
        int64_t n = s->tokens - at < most ? s->tokens - at : most;
        TRY(file_pread_all(s->fd, piece, (size_t)(n * s->width), s->offset + at * s->width, s->path));
        TRY(tokens_check(s, piece, n, at));
        s->base.files = crc32c(s->base.files, piece, (size_t)(n * s->width));
    }
    return ERR_NONE;
}

enum error token_set_load(struct token_set *s, int64_t first) {
    int64_t size, bytes = s->tokens * s->width;
    char text[32];
    TRY(input_open_file(s->path, &s->fd, &size));
    s->offset = first * s->width;
    if (bytes > MEMORY_MOST) {
        log_info("%s: %s of tokens stay in the file, read as they are needed", s->path,
                 text_of_bytes((double)bytes, text));
        return file_check(s);
    }
    TRY_MEMORY(s->memory = memory_new((size_t)bytes));
    TRY(file_pread_all(s->fd, s->memory, (size_t)bytes, s->offset, s->path));
    close(s->fd);
    s->fd = -1;
    return tokens_check(s, s->memory, s->tokens, 0);
}

/* ---- reading ---- */
static void tokens_widen(const unsigned char *from, int width, int64_t n, int32_t *x) {
    for (int64_t i = 0; i < n; i++) x[i] = token_at(from, width, i);
}

/* A window from the file, in pieces, so that no buffer is needed: x gets all but its
 * last token, label all but its first. */
static enum error window_read(const struct token_set *s, int64_t at, int64_t n, int32_t *out) {
    unsigned char piece[4096];
    int64_t most = (int64_t)sizeof piece / s->width;
    for (int64_t i = 0; i < n; i += most) {
        int64_t some = n - i < most ? n - i : most;
        TRY(file_pread_all(s->fd, piece, (size_t)(some * s->width), s->offset + (at + i) * s->width, s->path));
        TRY(tokens_check(s, piece, some, at + i));
        tokens_widen(piece, s->width, some, out + i);
    }
    return ERR_NONE;
}

enum error token_read(struct dataset *d, int64_t i, void *x, int32_t *label, float *target) {
    (void)target;
    const struct token_set *s = (const struct token_set *)d;
    int64_t context = d->labels, at = i * context;
    int32_t *out = x;
    if (s->memory) {
        tokens_widen(s->memory + at * s->width, s->width, context, out);
        label[context - 1] = token_at(s->memory, s->width, at + context);
    } else {
        TRY(window_read(s, at, context, out));
        TRY(window_read(s, at + context, 1, label + context - 1));
    }
    memcpy(label, out + 1, (size_t)(context - 1) * sizeof *label);
    return ERR_NONE;
}

/* ---- text ---- */
int token_decode(const struct dataset *d, int32_t token, char out[8]) {
    const struct token_set *s = (const struct token_set *)d;
    if (token < 0 || token >= d->classes) return 0;
    if (s->characters) return utf8_put(s->characters[token], out);
    out[0] = (char)token;
    return s->bytes ? 1 : 0;
}

static int32_t character_find(const struct token_set *s, uint32_t code) {
    int64_t low = 0, high = s->base.classes;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (s->characters[middle] < code)
            low = middle + 1;
        else
            high = middle;
    }
    return low < s->base.classes && s->characters[low] == code ? (int32_t)low : -1;
}

bool token_character(const struct dataset *d, int64_t token, uint32_t *code) {
    char text[8];
    struct utf8 u = {0};
    bool done = false;
    int n = dataset_decode(d, (int32_t)token, text);
    for (int i = 0; i < n; i++)
        if (done || !utf8_feed(&u, (unsigned char)text[i], &done)) return false;
    *code = u.code;
    return done;
}

enum error token_encode(const struct dataset *d, const char *text, size_t n, int32_t *tokens, int64_t *count) {
    const struct token_set *s = (const struct token_set *)d;
    struct utf8 u = {0};
    *count = 0;
    if (!s->bytes && !s->characters)
        return FAIL(ERR_CONFIG, "%s: what its tokens stand for is not known\ngive data.characters", s->path);
    for (size_t i = 0; i < n; i++) {
        bool done = s->bytes;
        unsigned char byte = (unsigned char)text[i];
        if (!s->bytes && !utf8_feed(&u, byte, &done)) return FAIL(ERR_DATA, "the text is not UTF-8 at byte %zu", i);
        if (!done) continue;
        int32_t token = s->bytes ? byte : character_find(s, u.code);
        if (s->bytes && byte >= d->classes) token = -1, u.code = byte;
        if (token < 0)
            return FAIL(ERR_DATA, "the character U+%04X at byte %zu is not in the vocabulary of %s", u.code, i,
                        s->path);
        tokens[(*count)++] = token;
    }
    return u.left ? FAIL(ERR_DATA, "the text ends inside a character") : ERR_NONE;
}
