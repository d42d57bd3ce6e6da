/* engine generate: text from a network that was trained to tell the next token at each position.
 *
 * The network sees the last tokens, as many as its context holds, and its answer is read at the last of
 * them. Tokens are drawn by counter: the n-th one is a function of the weights, the prompt, the seed and n. */
#include "cli/line/cli.h"

#include "cli/use/trained.h"
#include "engine/base/clock.h"
#include "engine/base/real.h"
#include "engine/base/rng.h"
#include "engine/model/decoder.h"
#include "engine/tell/score.h"
#include "engine/train/trainer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct generate_options {
    struct cli_trained trained;
    const char *prompt;
    int64_t tokens, top, seed;
    double temperature;
};
#define OPTIONS_STRUCT struct generate_options

/* ---- drawing ---- */

struct writer {
    const struct generate_options *o;
    struct trainer *t;
    struct decoder *decoder;
    int64_t context, vocabulary, count; /* tokens in the window */
    bool shown;                         /* on a terminal, which would obey control characters */
    float *window;
    struct candidate {
        float y;
        int32_t token;
    } * candidates;
};

static int candidate_order(const void *a, const void *b) {
    const struct candidate *p = a, *q = b;
    if (p->y != q->y) return p->y < q->y ? 1 : -1;
    return p->token - q->token;
}

/* Draws a token in proportion to exp(y / temperature), among the first 'top' of the outputs y: the largest first, of equals
 * the one with the lower number. */
static int32_t token_draw(struct writer *w, const float *y, int64_t number) {
    const struct generate_options *o = w->o;
    if (o->temperature == 0) return (int32_t)score_best(y, w->vocabulary);
    int64_t n = o->top && o->top < w->vocabulary ? o->top : w->vocabulary;
    for (int64_t k = 0; k < w->vocabulary; k++) w->candidates[k] = (struct candidate){y[k], (int32_t)k};
    qsort(w->candidates, (size_t)w->vocabulary, sizeof *w->candidates, candidate_order);
    double sum = 0, most = (double)w->candidates[0].y;
    for (int64_t k = 0; k < n; k++) sum += real_exp(((double)w->candidates[k].y - most) / o->temperature);
    struct rng_key key = rng_key((uint64_t)o->seed, RNG_GENERATE);
    double left = (double)rng_float(key, (uint64_t)number, 0) * sum;
    for (int64_t k = 0; k < n; k++) {
        left -= real_exp(((double)w->candidates[k].y - most) / o->temperature);
        if (left < 0) return w->candidates[k].token;
    }
    return w->candidates[n - 1].token;
}

/* ---- the window ---- */

static void window_append(struct writer *w, int32_t token) {
    if (w->count == w->context) {
        memmove(w->window, w->window + 1, (size_t)(w->context - 1) * sizeof *w->window);
        w->count--;
    }
    w->window[w->count++] = (float)token;
}

static enum error write_token(const struct writer *w, int32_t token) {
    char text[8];
    int n = dataset_decode(w->t->feed.data, token, text);
    bool control = n == 1 && ((unsigned char)*text < 0x20 || *text == 0x7F) && !strchr("\t\n", *text);
    if (w->shown && control) *text = '?';
    if (fwrite(text, 1, (size_t)n, stdout) == (size_t)n && fflush(stdout) == 0) return ERR_NONE;
    return FAIL(ERR_IO, "cannot write the text");
}

/* The prompt's tokens; without a prompt the text begins as if after a line's end, or with the
 * first token where there is no such character. */
static enum error generate_take_prompt(struct writer *w) {
    const char *prompt = w->o->prompt ? w->o->prompt : "\n";
    size_t n = strlen(prompt);
    int32_t *tokens = malloc((n + 1) * sizeof *tokens);
    int64_t count = 0;
    if (!tokens) return FAIL(ERR_MEMORY, "no memory for the prompt");
    enum error err = dataset_encode(w->t->feed.data, prompt, n, tokens, &count);
    if (!w->o->prompt && err == ERR_DATA) tokens[0] = 0, count = 1, err = ERR_NONE;
    if (err == ERR_NONE && count == 0) err = FAIL(ERR_USAGE, "--prompt is empty\nomit --prompt to start from nothing");
    for (int64_t i = 0; i < count && err == ERR_NONE; i++) window_append(w, tokens[i]);
    free(tokens);
    return err == ERR_DATA ? error_prefix(err, "--prompt: ") : err;
}

/* ---- all ---- */

static enum error generate_check_model(const struct trainer *t) {
    const struct dataset *d = t->feed.data;
    if (d->type == SAMPLE_TOKENS && d->labels == shape_count(&d->shape) && d->ops->decode) return ERR_NONE;
    return FAIL(ERR_CONFIG,
                "data '%s' is not a text with a next token at each position\nengine help data.set lists the sets",
                d->name);
}

static enum error generate_take_memory(struct writer *w) {
    const struct dataset *d = w->t->feed.data;
    w->context = shape_count(&d->shape);
    w->vocabulary = d->classes;
    w->window = calloc((size_t)w->context, sizeof *w->window);
    w->candidates = calloc((size_t)w->vocabulary, sizeof *w->candidates);
    if (w->window && w->candidates) return ERR_NONE;
    return FAIL(ERR_MEMORY, "no memory for a text");
}

static enum error generate_write_text(struct writer *w) {
    TRY(generate_check_model(w->t));
    TRY(generate_take_memory(w));
    TRY(generate_take_prompt(w));
    struct trainer *t = w->t;
    enum precision precision = (enum precision)t->config->precision;
    TRY(decoder_create(t->model, t->device, precision, t->arena.values, t->arena.buffers, &w->decoder));
    if (w->o->prompt && fputs(w->o->prompt, stdout) < 0) return FAIL(ERR_IO, "cannot write the text");
    int64_t began = clock_ns();
    for (int64_t i = 0; i < w->o->tokens; i++) {
        const float *y;
        TRY(decoder_run(w->decoder, w->window, w->count, &y));
        int32_t token = token_draw(w, y, i);
        TRY(write_token(w, token));
        window_append(w, token);
    }
    double seconds = clock_seconds(clock_ns() - began);
    printf("\n");
    fprintf(stderr, "%lld tokens in %.2f s: %.1f tokens/s\n", (long long)w->o->tokens, seconds,
            (double)w->o->tokens / seconds);
    return fflush(stdout) == 0 ? ERR_NONE : FAIL(ERR_IO, "cannot write the text");
}

static int generate_command(const struct cli *cli) {
    struct generate_options *o = cli->options;
    struct writer w = {.o = o, .shown = isatty(STDOUT_FILENO)};
    enum error err = cli_trained_open(&o->trained, cli->pool, &w.t);
    int code = err == ERR_NONE ? cli_end(generate_write_text(&w)) : error_exit_code(err);
    decoder_free(w.decoder);
    free(w.window);
    free(w.candidates);
    cli_trained_close(&o->trained, w.t);
    return code;
}

static const struct option options[] = {
    {TRAINED_PATH, .missing = "whose text? a run's or a configuration's", .one = "run"},
    {"--prompt", "TEXT", "the beginning of the text; default: a new line", CONFIG_STRING, AT(prompt)},
    {"--tokens", "N", "number of tokens to add; default: 500", CONFIG_INT, AT(tokens), 1, 1 << 30,
     .wants = "a whole number"},
    {"--temperature", "T", "0: always the likeliest token; 1: the probabilities of the network; default: 0.8",
     CONFIG_REAL, AT(temperature), 0, 100},
    {"--top-k", "K", "draws among the K likeliest tokens; default: all", CONFIG_INT, AT(top), 1, 1 << 30,
     .wants = "a whole number"},
    {"--seed", "S", "seed of the random numbers; the same seed gives the same text", CONFIG_INT, AT(seed), 0, 1 << 30,
     .wants = "a whole number"},
    TRAINED_OPTIONS,
    {0}};

const struct command command_generate = {
    .name = "generate",
    .also = "sample|write",
    .summary = "writes text with a network that was trained on text",
    OPTIONS(options),
    .notes = "The text goes to standard output, tokens a second to standard error.\n"
             "Exit codes: 0; 64 usage; 65 bad data, checkpoint or prompt; 66 no such run or\n"
             "checkpoint; 78 bad configuration, weights of another model, or no text\n",
    .standard = &(const struct generate_options){.tokens = 500, .temperature = 0.8},
    .run = generate_command,
};
