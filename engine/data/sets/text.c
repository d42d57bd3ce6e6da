/* text: a plain file as a sequence of bytes or of characters, for models that tell what comes next.
 *
 * With 'characters' the vocabulary is the distinct characters of the training file, in the order of
 * their code points; a held-out part is of the same file. The file is read twice: for the
 * vocabulary and the count, then to write each character as its number. */
#include "engine/base/utf8.h"
#include "engine/data/tokens.h"

#include "engine/base/text.h"

enum { BYTES, CHARACTERS };
struct text_config {
    const char *train, *val;
    int64_t context;
    int vocabulary;
};

/* ---- characters ---- */
struct scan { /* over the characters of a file */
    const char *path;
    struct utf8 utf8;
    uint32_t *number; /* (CODE_POINTS): 1 + what a character becomes, or 0 */
    uint32_t last;    /* the last one noted */
    int64_t count;    /* characters so far */
    enum { SCAN_NOTE, SCAN_CHECK, SCAN_WRITE } what;
    struct part part; /* to write */
    int width;
    unsigned char *out;
};

/* Takes the character that ends before byte 'at': notes it for the vocabulary, or writes its number to the part. */
static enum error scan_character(struct scan *s, int64_t at) {
    int64_t i = s->count++ - s->part.first;
    uint32_t *number = &s->number[s->utf8.code];
    if (s->what == SCAN_NOTE) *number = 1;
    if (s->utf8.code > s->last && s->what == SCAN_NOTE) s->last = s->utf8.code;
    if (!*number)
        return FAIL(ERR_DATA,
                    "%s: the character U+%04X before byte %lld is not in the training text\nthe vocabulary is that "
                    "text's: hold out a part of it (val: 10%%), or take 'vocabulary: bytes'",
                    s->path, s->utf8.code, (long long)at);
    if (s->what != SCAN_WRITE || i < 0 || i >= s->part.count) return ERR_NONE;
    s->out[i * s->width] = (unsigned char)(*number - 1);
    if (s->width == 2) s->out[i * 2 + 1] = (unsigned char)((*number - 1) >> 8);
    return ERR_NONE;
}

static enum error scan_piece(void *ctx, const unsigned char *bytes, int64_t n, int64_t at) {
    struct scan *s = ctx;
    for (int64_t i = 0; i < n; i++) {
        bool done;
        if (!utf8_feed(&s->utf8, bytes[i], &done))
            return FAIL(ERR_DATA,
                        "%s: byte %lld (0x%02x) is not UTF-8\nsave the text as UTF-8, or take 'vocabulary: bytes'",
                        s->path, (long long)(at + i), bytes[i]);
        if (done) TRY(scan_character(s, at + i + 1));
    }
    return ERR_NONE;
}

static enum error scan_file(struct scan *s, const char *path, int what) {
    s->path = path;
    s->what = what;
    s->count = 0;
    s->utf8 = (struct utf8){0};
    TRY(token_scan(path, scan_piece, s));
    return s->utf8.left ? FAIL(ERR_DATA, "%s: ends inside a character", path) : ERR_NONE;
}

/* Numbers the characters noted; *out are they, ascending. */
static enum error characters_number(struct scan *s, uint32_t **out, int64_t *count) {
    *count = 0;
    for (uint32_t c = 0; c <= s->last; c++) *count += s->number[c] != 0;
    if (*count > CHARACTERS_MAX)
        return FAIL(ERR_DATA, "%s: %lld distinct characters, more than %d\ntake 'vocabulary: bytes'", s->path,
                    (long long)*count, CHARACTERS_MAX);
    TRY_MEMORY(*out = memory_new((size_t)*count * sizeof **out));
    int64_t n = 0;
    for (uint32_t c = 0; c <= s->last; c++)
        if (s->number[c]) {
            (*out)[n++] = c;
            s->number[c] = (uint32_t)n;
        }
    return ERR_NONE;
}

/* The vocabulary of a network, as if it had been noted. false: it has none of characters. */
static bool characters_known(struct scan *s, const struct dataset *like) {
    for (int64_t k = 0; k < like->classes; k++) {
        uint32_t code;
        if (!token_character(like, k, &code)) return false;
        s->number[code] = 1;
        s->last = code > s->last ? code : s->last;
    }
    return true;
}

/* ---- the set ---- */
static const char *held_out(const struct text_config *c) {
    return part_is_held(c->val) ? c->val : NULL;
}

static enum error characters_fill(struct scan *s, const struct dataset_ask *ask, uint32_t **characters,
                                  struct dataset **out) {
    const struct text_config *c = ask->config;
    const struct dataset *like = ask->like;
    const char *held = held_out(c), *path = ask->train || held ? c->train : c->val;
    int64_t vocabulary;
    struct token_set *set;
    bool known = like && characters_known(s, like);
    if (!known) TRY(scan_file(s, c->train, SCAN_NOTE));
    TRY(characters_number(s, characters, &vocabulary));
    if (known || path != c->train) TRY(scan_file(s, path, SCAN_CHECK));
    TRY(token_part(path, s->count, c->context, held, ask->train, &s->part));
    s->width = vocabulary > 256 ? 2 : 1;
    TRY_MEMORY(s->out = memory_new((size_t)(s->part.count * s->width)));
    TRY(scan_file(s, path, SCAN_WRITE));
    if (s->count < s->part.first + s->part.count)
        return FAIL(ERR_DATA, "%s has become shorter while it was read", path);
    const struct token_ask tokens = {ask->ops, path, c->context, vocabulary, s->part.count, s->width};
    TRY(token_set_create(&tokens, &set));
    set->base.held = s->part.held;
    set->memory = s->out;
    set->characters = *characters;
    s->out = NULL;
    *characters = NULL;
    *out = &set->base;
    return ERR_NONE;
}

static enum error characters_open(const struct dataset_ask *ask, struct dataset **out) {
    struct scan s = {0};
    uint32_t *characters = NULL;
    TRY_MEMORY(s.number = memory_new(CODE_POINTS * sizeof *s.number));
    enum error err = characters_fill(&s, ask, &characters, out);
    memory_free(s.number);
    memory_free(s.out);
    memory_free(characters);
    return err;
}

static enum error bytes_open(const struct dataset_ask *ask, struct dataset **out) {
    const struct text_config *c = ask->config;
    const char *held = held_out(c), *path = ask->train || held ? c->train : c->val;
    int64_t size;
    struct part part;
    struct token_set *s;
    if (!ask->like) TRY(token_file_size(c->train, &size)); /* it is missed for validation, too */
    TRY(token_file_size(path, &size));
    TRY(token_part(path, size, c->context, held, ask->train, &part));
    const struct token_ask bytes = {ask->ops, path, c->context, 256, part.count, 1};
    TRY(token_set_create(&bytes, &s));
    s->bytes = true;
    s->base.held = part.held;
    return dataset_give(token_set_load(s, part.first), &s->base, out);
}

static enum error text_open(const struct dataset_ask *ask, struct dataset **out) {
    const struct text_config *c = ask->config;
    if (!c->train) return FAIL(ERR_CONFIG, "data.train is missing\ngive a file of plain text");
    return c->vocabulary == BYTES ? bytes_open(ask, out) : characters_open(ask, out);
}

static bool text_recognises(const char *path) {
    return text_ends(path, ".txt");
}

static const struct config_field fields[] = {
    {"train", CONFIG_PATH, offsetof(struct text_config, train), .help = "File of training text"},
    {"val", CONFIG_PATH, offsetof(struct text_config, val), .standard = "10%",
     .help = "File of validation text, or how many windows to hold out at the end of 'train' (100, 10%)",
     .extra = &part_path, .also = "val_split|validation_split|val_size|test_size"},
    {"context", CONFIG_INT, offsetof(struct text_config, context), .standard = "128",
     .help = "Number of tokens in a sample", .min = 1, .max = 1 << 20},
    {"vocabulary", CONFIG_ENUM, offsetof(struct text_config, vocabulary), .standard = "characters",
     .help = "A token is a byte (256 of them), or a character (UTF-8; those of the training file)",
     .choices = "bytes|characters"},
    {0},
};

const struct dataset_ops dataset_text = {
    .section = {.name = "text",
                .fields = fields,
                .size = sizeof(struct text_config),
                .shorthand = "train",
                .help = "Windows of a plain text, byte by byte or character by character"},
    .recognises = text_recognises,
    .open = text_open,
    TOKEN_SET,
};
