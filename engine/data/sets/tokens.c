/* tokens: numbers that another program has made of a text, one after the other with no header, of
 * 16 bits without a sign or 32 bits with one, little end first. */
#include "engine/data/tokens.h"
#include "engine/base/utf8.h"

#include "engine/base/text.h"

#include <string.h>

enum { TYPE_U16, TYPE_I32 };
struct tokens_config {
    const char *train, *val, *characters;
    int type;
    int64_t context, vocabulary;
};
struct largest {
    int width;
    int64_t value;
};

static enum error piece_find_largest(void *ctx, const unsigned char *bytes, int64_t n, int64_t at) {
    (void)at;
    struct largest *l = ctx;
    for (int64_t i = 0; i < n / l->width; i++) {
        int32_t token = token_at(bytes, l->width, i);
        l->value = token > l->value ? token : l->value;
    }
    return ERR_NONE;
}

/* Finds the vocabulary's size: the configured one, or the largest token of the training file plus one. */
static enum error vocabulary_find(const struct tokens_config *c, int width, int64_t *out) {
    struct largest l = {.width = width};
    if ((*out = c->vocabulary)) return ERR_NONE;
    TRY(token_scan(c->train, piece_find_largest, &l));
    if (l.value >= VOCABULARY_MAX)
        return FAIL(ERR_DATA, "%s: token %lld, but all must be below %d\nis data.type right?", c->train,
                    (long long)l.value, VOCABULARY_MAX);
    *out = l.value + 1;
    return ERR_NONE;
}

static enum error tokens_count(const char *path, int width, int64_t *out) {
    int64_t size;
    TRY(token_file_size(path, &size));
    if (size % width)
        return FAIL(ERR_DATA, "%s: %lld bytes are not a multiple of tokens of %d\nis data.type right?", path,
                    (long long)size, width);
    *out = size / width;
    return ERR_NONE;
}

/* ---- what tokens stand for ---- */
struct reading { /* of the file of characters */
    struct token_set *s;
    const char *path;
    struct utf8 utf8;
    int64_t count;
};

static enum error characters_piece(void *ctx, const unsigned char *bytes, int64_t n, int64_t at) {
    struct reading *r = ctx;
    for (int64_t i = 0; i < n; i++) {
        bool done;
        uint32_t *all = r->s->characters;
        if (!utf8_feed(&r->utf8, bytes[i], &done))
            return FAIL(ERR_DATA, "%s: byte %lld is not UTF-8", r->path, (long long)(at + i));
        if (!done) continue;
        if (r->count == r->s->base.classes || (r->count && all[r->count - 1] >= r->utf8.code))
            return FAIL(ERR_DATA,
                        "%s: byte %lld: there are more characters than the vocabulary of %lld, or they do not ascend",
                        r->path, (long long)(at + i), (long long)r->s->base.classes);
        all[r->count++] = r->utf8.code;
    }
    return ERR_NONE;
}

static enum error characters_read(struct token_set *s, const char *path) {
    struct reading r = {.s = s, .path = path};
    if (!path) return ERR_NONE;
    if ((s->bytes = !strcmp(path, "bytes"))) {
        if (s->base.classes <= 256) return ERR_NONE;
        return FAIL(ERR_CONFIG, "data.characters: there are 256 bytes, and %lld tokens", (long long)s->base.classes);
    }
    TRY_MEMORY(s->characters = memory_new((size_t)s->base.classes * sizeof *s->characters));
    TRY(token_scan(path, characters_piece, &r));
    if (r.count == s->base.classes && !r.utf8.left) return ERR_NONE;
    return FAIL(ERR_DATA, "%s: %lld characters, but the vocabulary has %lld", path, (long long)r.count,
                (long long)s->base.classes);
}

/* ---- the set ---- */
static enum error tokens_open(const struct dataset_ask *ask, struct dataset **out) {
    const struct tokens_config *c = ask->config;
    if (!c->train) return FAIL(ERR_CONFIG, "data.train is missing\ngive a file of tokens");
    const char *held = part_is_held(c->val) ? c->val : NULL;
    const char *path = ask->train || held ? c->train : c->val;
    int width = c->type == TYPE_U16 ? 2 : 4;
    int64_t vocabulary, count = 0;
    struct part part;
    struct token_set *s;
    if (path == c->train || !ask->like) TRY(tokens_count(c->train, width, &count));
    if (ask->like)
        vocabulary = ask->like->classes;
    else
        TRY(vocabulary_find(c, width, &vocabulary));
    TRY(tokens_count(path, width, &count));
    TRY(token_part(path, count, c->context, held, ask->train, &part));
    const struct token_ask tokens = {ask->ops, path, c->context, vocabulary, part.count, width};
    TRY(token_set_create(&tokens, &s));
    s->base.held = part.held;
    enum error err = token_set_load(s, part.first);
    if (err == ERR_NONE) err = characters_read(s, c->characters);
    return dataset_give(err, &s->base, out);
}

static bool tokens_recognises(const char *path) {
    return text_ends(path, ".bin");
}

static const struct config_field fields[] = {
    {"train", CONFIG_PATH, offsetof(struct tokens_config, train), .help = "File of training tokens"},
    {"val", CONFIG_PATH, offsetof(struct tokens_config, val), .standard = "10%",
     .help = "File of validation tokens, or how many windows to hold out at the end of 'train' (100, 10%)",
     .extra = &part_path},
    {"type", CONFIG_ENUM, offsetof(struct tokens_config, type), .standard = "u16",
     .help = "Type of a token in the file: 16 bits unsigned or 32 bits signed, little-endian", .choices = "u16|i32"},
    {"context", CONFIG_INT, offsetof(struct tokens_config, context), .standard = "128",
     .help = "Number of tokens in a sample", .min = 1, .max = 1 << 20},
    {"vocabulary", CONFIG_INT, offsetof(struct tokens_config, vocabulary), .standard = "auto",
     .help = "Number of different tokens; auto: the largest one in the training file plus one", .min = 1,
     .max = VOCABULARY_MAX, .choices = "auto"},
    {"characters", CONFIG_PATH, offsetof(struct tokens_config, characters),
     .help = "File of the characters that tokens stand for, in ascending order, or 'bytes'; without it predictions "
             "have no text",
     .choices = "bytes"},
    {0},
};

const struct dataset_ops dataset_tokens = {
    .section = {.name = "tokens",
                .fields = fields,
                .size = sizeof(struct tokens_config),
                .shorthand = "train",
                .help = "Windows of a file of tokens, as tokenizers write them (no header)"},
    .recognises = tokens_recognises,
    .open = tokens_open,
    TOKEN_SET,
};
