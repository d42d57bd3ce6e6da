/* Sets of tokens: windows over one long sequence. Sample i is the tokens [i * context, (i + 1) *
 * context) of its part, its labels are the token after each of them. */
#pragma once
#include "engine/data/part.h"

enum { VOCABULARY_MAX = 1 << 24 /* a float holds every whole number below */, CHARACTERS_MAX = 65536 };
struct token_set {
    struct dataset base;
    int width;             /* bytes of a token: 1, 2 or 4, little end first */
    int64_t tokens;        /* of the part: one more than windows * context */
    unsigned char *memory; /* the tokens; NULL: they are read from the file at every visit */
    int fd;                /* -1: none */
    int64_t offset;        /* of the part in the file, bytes */
    char *path;
    bool bytes;           /* tokens are bytes of text */
    uint32_t *characters; /* what tokens stand for (classes of them, ascending); NULL: no characters */
};
/* The slots of dataset_ops. Reading checks tokens that come from the file. */
enum error token_read(struct dataset *d, int64_t i, void *x, int32_t *label, float *target);
void token_close(struct dataset *d);
int token_decode(const struct dataset *d, int32_t token, char out[8]);
/* The one character that a token stands for; false: it stands for another number of characters, or for bytes. */
bool token_character(const struct dataset *d, int64_t token, uint32_t *code);
enum error token_encode(const struct dataset *d, const char *text, size_t n, int32_t *tokens, int64_t *count);
#define TOKEN_SET .read = token_read, .close = token_close, .decode = token_decode, .encode = token_encode

/* Which tokens of a file of 'tokens' are asked for: all of them, or with 'held' (as part_cut takes
 * it; NULL: a separate file) the part of them. The windows' last token has its label among them. */
MUST_CHECK enum error token_part(const char *path, int64_t tokens, int64_t context, const char *held, bool train,
                                 struct part *out);
/* A set of that many tokens of 'width' bytes; its memory and file are the caller's to fill in.
 * path: where they come from, copied. */
struct token_ask {
    const struct dataset_ops *ops;
    const char *path;
    int64_t context, vocabulary, tokens;
    int width; /* bytes of a token */
};
MUST_CHECK enum error token_set_create(const struct token_ask *ask, struct token_set **out);
/* Takes the set's tokens from its file, from token 'first' on: into memory when they are few, else
 * they stay in the file. Either way each was seen to be in the vocabulary. */
MUST_CHECK enum error token_set_load(struct token_set *s, int64_t first);

/* A file, in pieces of at most a few dozen KB that begin at tokens: (bytes, where they begin). */
typedef enum error token_scan_fn(void *ctx, const unsigned char *bytes, int64_t n, int64_t at);
MUST_CHECK enum error token_scan(const char *path, token_scan_fn *fn, void *ctx);
/* Size of a regular file; ERR_INPUT when it is not there. */
MUST_CHECK enum error token_file_size(const char *path, int64_t *out);
/* The i-th token of 'width' bytes. */
static inline int32_t token_at(const void *tokens, int width, int64_t i) {
    const unsigned char *p = (const unsigned char *)tokens + i * width;
    if (width == 1) return p[0];
    if (width == 2) return p[0] | p[1] << 8;
    return (int32_t)(p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24);
}
