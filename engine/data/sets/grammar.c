/* grammar: sentences that the engine makes up, character by character, for models of text. Nouns
 * and verbs agree in number, also over clauses in between that agree in themselves:
 *
 *   sentence  noun-phrase verb-phrase
 *   noun-p.   determiner {adjective} noun [that verb | that verb noun-p. | that noun-p. verb]
 *   verb-p.   verb | verb noun-p. | verb that sentence
 *
 * Which verbs take what is fixed and every text has one parse, so that what a sentence says is
 * exactly the sum of its choices: 0.672 bits a character on average, which is 0.466 nats of loss or a
 * perplexity of 1.593 for a model that has learned all of it. (The first characters of a window come
 * without what went before, and cost more.) Of single characters alone the entropy is 2.91 nats.
 *
 * Sentence k of a part is a pure function of (seed, split, k); the part is its first sentences. */
#include "engine/data/drawn.h"
#include "engine/data/tokens.h"

#include <string.h>

struct grammar_config {
    int64_t train, val, context;
};
/* The vocabulary: what is written, and the letters that no word has. */
static const char alphabet[] = "\n .abcdefghijklmnopqrstuvwxyz";
enum { ALPHABET = sizeof alphabet - 1, DEEPEST = 3, TEXT_MOST = 1 << 30 };

enum { DETERMINERS = 4, ADJECTIVES = 8, NOUNS = 16, VERBS = 8, SPEECH = 4 };
static const char *const determiners[2][DETERMINERS] = {{"the", "one", "every", "this"},
                                                        {"the", "two", "all", "these"}};
static const char *const adjectives[ADJECTIVES] = {"big", "small", "old", "young", "happy", "quiet", "brave", "clever"};
static const char *const nouns[NOUNS] = {"cat",   "dog",    "bird",  "horse", "farmer", "king",  "sailor", "judge",
                                         "robot", "singer", "giant", "tiger", "baker",  "queen", "uncle",  "painter"};
static const char *const alone[VERBS] = {"sleep", "run", "sing", "laugh", "wait", "jump", "dream", "swim"};
static const char *const taking[VERBS] = {"see", "follow", "help", "like", "call", "know", "greet", "find"};
static const char *const speech[SPEECH] = {"say", "think", "hope", "believe"};

/* ---- writing ---- */
struct writer {
    struct draw draw;
    unsigned char *out; /* tokens */
    int64_t n, room;    /* what does not fit is dropped */
};

static int writer_pick(struct writer *w, int n) {
    return draw_below(&w->draw, n);
}

/* True with a chance of 'eighths' in 8. */
static bool writer_chance(struct writer *w, int eighths) {
    return draw_below(&w->draw, 8) < eighths;
}

static void writer_put(struct writer *w, const char *text) {
    for (; *text && w->n < w->room; text++) w->out[w->n++] = (unsigned char)(strchr(alphabet, *text) - alphabet);
}

static void writer_word(struct writer *w, const char *text, bool ends_in_s) {
    writer_put(w, text);
    writer_put(w, ends_in_s ? "s " : " ");
}

/* A verb's form for one ends in s, a noun's for many. */
static void writer_verb(struct writer *w, const char *const *list, int n, bool many) {
    writer_word(w, list[writer_pick(w, n)], !many);
}

static bool noun_phrase(struct writer *w, int depth);

static void writer_clause(struct writer *w, bool many, int depth) {
    writer_word(w, "that", false);
    int form = writer_pick(w, 3);
    if (form == 2) many = noun_phrase(w, depth + 1);
    writer_verb(w, form ? taking : alone, VERBS, many);
    if (form == 1) noun_phrase(w, depth + 1);
}

/* Whether it is of many. */
static bool noun_phrase(struct writer *w, int depth) {
    bool many = writer_pick(w, 2);
    writer_word(w, determiners[many][writer_pick(w, DETERMINERS)], false);
    while (writer_chance(w, 2)) writer_word(w, adjectives[writer_pick(w, ADJECTIVES)], false);
    writer_word(w, nouns[writer_pick(w, NOUNS)], many);
    if (depth < DEEPEST && writer_chance(w, 3)) writer_clause(w, many, depth);
    return many;
}

static void writer_sentence(struct writer *w, int depth) {
    bool many = noun_phrase(w, depth);
    if (writer_chance(w, 3)) {
        writer_verb(w, alone, VERBS, many);
    } else if (depth < DEEPEST && writer_chance(w, 2)) {
        writer_verb(w, speech, SPEECH, many);
        writer_word(w, "that", false);
        writer_sentence(w, depth + 1);
    } else {
        writer_verb(w, taking, VERBS, many);
        noun_phrase(w, depth + 1);
    }
}

static void write_text(struct rng_key key, uint64_t split, unsigned char *out, int64_t n) {
    struct writer w = {.out = out, .room = n};
    for (uint64_t k = 0; w.n < w.room; k++) {
        w.draw = (struct draw){.key = key, .sample = k, .block = split << 32};
        writer_sentence(&w, 0);
        w.n -= w.n < w.room; /* the blank after the last word */
        writer_put(&w, ".\n");
    }
}

/* ---- the set ---- */
static enum error grammar_fill(struct token_set *s, uint64_t seed, bool train) {
    TRY_MEMORY(s->memory = memory_new((size_t)s->tokens));
    TRY_MEMORY(s->characters = memory_new(ALPHABET * sizeof *s->characters));
    for (int k = 0; k < ALPHABET; k++) s->characters[k] = (unsigned char)alphabet[k];
    write_text(rng_key(seed, RNG_DATA), train ? 0 : 1, s->memory, s->tokens);
    return ERR_NONE;
}

static enum error grammar_open(const struct dataset_ask *ask, struct dataset **out) {
    const struct grammar_config *c = ask->config;
    bool train = ask->train;
    int64_t samples = train ? c->train : c->val;
    struct token_set *s;
    if (samples > TEXT_MOST / c->context)
        return FAIL(ERR_CONFIG, "data.%s: %lld samples of %lld characters are more than %d", train ? "train" : "val",
                    (long long)samples, (long long)c->context, TEXT_MOST);
    const struct token_ask tokens = {ask->ops, "grammar", c->context, ALPHABET, samples * c->context + 1, 1};
    TRY(token_set_create(&tokens, &s));
    return dataset_give(grammar_fill(s, ask->seed, train), &s->base, out);
}

static const struct config_field fields[] = {
    {"train", CONFIG_INT, offsetof(struct grammar_config, train), .standard = "8000",
     .help = "Number of training samples", .min = 1, .max = 1e9},
    {"val", CONFIG_INT, offsetof(struct grammar_config, val), .standard = "800", .help = "Number of validation samples",
     .min = 1, .max = 1e9},
    {"context", CONFIG_INT, offsetof(struct grammar_config, context), .standard = "128",
     .help = "Number of characters in a sample", .min = 1, .max = 1 << 20},
    {0},
};

const struct dataset_ops dataset_grammar = {
    .section = {.name = "grammar",
                .fields = fields,
                .size = sizeof(struct grammar_config),
                .help = "Nested sentences that the engine generates, character by character; needs no file"},
    .open = grammar_open,
    TOKEN_SET,
};
