/* One token after another, with caches: at each of them the bits of a whole input's outputs. */
#include "tests/harness/levels.h"
#include "tests/unit/model_fixture.h"

#include "engine/model/decoder.h"

enum { CONTEXT = 37, VOCABULARY = 29, WINDOWS = 4 };

/* GPT-2's layers, with heads of 12 features. */
#define BLOCK(x, n)                                                                                                    \
    "layernorm, {linear: {units: 72, transposed: true}}, {attention: {heads: 2, causal: true}}, {linear: 24}, "        \
    "{dropout: 0.1}, {add: {from: " x ", name: a" n                                                                    \
    "}}, layernorm, {linear: 96}, {gelu: tanh}, {linear: 24}, {dropout: 0}, "                                          \
    "{add: {from: a" n ", name: b" n "}}"
#define GPT                                                                                                            \
    "{layers: [{embedding: {vocabulary: 29, units: 24, name: e}}, {position: {name: p}}, " BLOCK("p", "1") ", " BLOCK( \
        "b1", "2") ", layernorm, {linear: {units: 29, tie: e, bias: false}}]}"

static const char *const networks[] = {
    GPT,
    /* Wide products and an attention that is the last layer, with no positions; no attention; an attention behind which
     * the embedding is read. */
    "{layers: [{embedding: {vocabulary: 29, units: 400}}, rmsnorm, {linear: 87}, {attention: {heads: 1, causal: "
    "true}}]}",
    "{layers: [{embedding: {vocabulary: 29, units: 8}}, position, {linear: 29}]}",
    "{layers: [{embedding: {vocabulary: 29, units: 96, name: e}}, position, {attention: {heads: 2, causal: true}}, "
    "{linear: 96}, relu, {add: {from: e}}, {linear: 29}]}",
    /* Not causal. */
    "{layers: [{embedding: {vocabulary: 29, units: 24}}, position, {attention: 2}, {linear: 29}]}",
};
enum { NETWORKS = sizeof networks / sizeof *networks, CAUSAL = NETWORKS - 1 };

struct text {
    float tokens[CONTEXT];
    int64_t count;
};

static void text_append(struct text *t, int64_t token) {
    if (t->count == CONTEXT) memmove(t->tokens, t->tokens + 1, (size_t)--t->count * sizeof *t->tokens);
    t->tokens[t->count++] = (float)token;
}

/* The likeliest token, or one that is drawn by counter. */
static int64_t next_token(const float *y, bool sampled, int64_t number) {
    int64_t best = 0;
    for (int64_t k = 1; k < VOCABULARY; k++)
        if (y[k] > y[best]) best = k;
    return sampled ? (int64_t)(rng_float(rng_key(RIG_SEED, RNG_TEST), 9, (uint64_t)number) * VOCABULARY) : best;
}

struct writer {
    struct device *dev;
    struct model *m;
    float *values, *buffers;
    struct graph *graph;
    struct decoder *decoder;
};

static void writer_open(struct writer *w, struct device *dev, const char *yaml, enum precision precision) {
    *w = (struct writer){.dev = dev, .m = model_make(yaml, (struct shape){1, {CONTEXT}})};
    w->values = floats(w->m->arena_floats);
    w->buffers = floats(w->m->buffer_floats + 1);
    model_init(w->m, NULL, RIG_SEED, w->values, w->buffers);
    for (int64_t k = 0; k < w->m->arena_floats; k++) w->values[k] *= 3; /* so that the answers differ */
    assert_ok(graph_create(w->m, dev, LOSS_CROSS_ENTROPY, precision, &w->graph));
    assert_ok(decoder_create(w->m, dev, precision, w->values, w->buffers, &w->decoder));
}

static void writer_close(struct writer *w) {
    decoder_free(w->decoder);
    graph_free(w->graph);
    memory_free(w->values);
    memory_free(w->buffers);
    model_free(w->m);
    w->dev->ops->close(w->dev);
}

/* Fails unless the decoder gives what the whole network gives at the last token, bit for bit. */
static const float *answer(struct writer *w, const struct text *t) {
    float x[CONTEXT] = {0};
    const float *y;
    memcpy(x, t->tokens, (size_t)t->count * sizeof *x);
    const struct graph_batch b = {.n = 1, .x = x};
    assert_ok(graph_forward(w->graph, &b, w->values, w->buffers, NULL));
    const float *whole = output_of(w->graph) + (t->count - 1) * VOCABULARY;
    assert_ok(decoder_run(w->decoder, t->tokens, t->count, &y));
    assert_memory_equal(y, whole, VOCABULARY * sizeof *y);
    return y;
}

/* From a prompt until the window has gone past its beginning several times. */
static void write_text(struct writer *w, int64_t prompt, bool sampled) {
    struct text t = {.count = 0};
    int64_t different = 0, before = -1;
    for (int64_t i = 0; i < prompt; i++) text_append(&t, i * i % VOCABULARY);
    for (int64_t i = 0; i < WINDOWS * CONTEXT; i++) {
        int64_t token = next_token(answer(w, &t), sampled, i);
        different += token != before;
        text_append(&t, before = token);
    }
    if (sampled) assert_true(different > CONTEXT);
}

static void write_texts(struct device *dev, const char *yaml, enum precision precision) {
    struct writer w;
    writer_open(&w, dev, yaml, precision);
    write_text(&w, 16, false);
    write_text(&w, 1, true);
    write_text(&w, CONTEXT, true);
    writer_close(&w);
}

static void bits_are_those_of_a_whole_input(void **state) {
    (void)state;
    int count;
    const struct cpu_level *const *levels = cpu_levels(&count);
    for (int i = 0; i < count; i++)
        for (int k = 0; k < NETWORKS; k++)
            for (int threads = 1; threads <= 2; threads++)
                write_texts(open_at(levels[i], threads), networks[k], PRECISION_F32);
}

/* Rows of bf16 are as independent of each other on one machine. */
static void so_they_are_in_bf16(void **state) {
    (void)state;
    for (int k = 0; k < NETWORKS; k++) {
        int count;
        write_texts(open_at(cpu_levels(&count)[0], 1), networks[k], PRECISION_BF16);
    }
}

static void plain_c_has_caches_too(void **state) {
    (void)state;
    for (int k = 0; k < NETWORKS; k++) {
        struct device *dev;
        assert_ok(device_find("ref")->open(&(struct device_params){.count = 1, .threads = 1}, &dev));
        write_texts(dev, networks[k], PRECISION_F32);
    }
}

/* What the calls before were does not matter: other tokens in the middle, fewer tokens, the same ones. */
static void any_tokens_may_follow_any(void **state) {
    (void)state;
    int count;
    struct writer w;
    struct text t = {.count = 0};
    writer_open(&w, open_at(cpu_levels(&count)[0], 1), GPT, PRECISION_F32);
    for (int64_t i = 0; i < 30; i++) text_append(&t, i * 7 % VOCABULARY);
    answer(&w, &t);
    t.tokens[11] = 28;
    answer(&w, &t);
    t.count = 20;
    answer(&w, &t);
    answer(&w, &t);
    text_append(&t, 3);
    answer(&w, &t);
    writer_close(&w);
}

/* What an earlier token's features were is not asked for again: they may have changed. */
static void earlier_positions_are_kept(struct device *dev, const char *yaml) {
    struct writer w;
    struct text t = {.count = 0};
    float before[VOCABULARY], after[VOCABULARY];
    const float *y;
    writer_open(&w, dev, yaml, PRECISION_F32);
    for (int64_t i = 0; i < 11; i++) text_append(&t, i);
    memcpy(before, answer(&w, &t), sizeof before);
    t.tokens[10] = 20;
    assert_ok(decoder_run(w.decoder, t.tokens, t.count, &y));
    assert_memory_not_equal(y, before, sizeof before);
    w.values[w.m->params[w.m->nodes[0].param[0]].offset + 3 * shape_last(&w.m->nodes[0].plan.y)] += 1;
    t.tokens[10] = 10;
    assert_ok(decoder_run(w.decoder, t.tokens, t.count, &y));
    memcpy(after, y, sizeof after);
    after[3] = before[3]; /* where the output has the embedding's weights */
    assert_memory_equal(after, before, sizeof before);
    t.tokens[0] = 1;
    answer(&w, &t);
    writer_close(&w);
}

static void earlier_positions_are_not_computed_again(void **state) {
    (void)state;
    int count;
    struct device *ref;
    for (int k = 0; k < CAUSAL; k++) {
        earlier_positions_are_kept(open_at(cpu_levels(&count)[0], 1), networks[k]);
        assert_ok(device_find("ref")->open(&(struct device_params){.count = 1, .threads = 1}, &ref));
        earlier_positions_are_kept(ref, networks[k]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_are_those_of_a_whole_input),
        cmocka_unit_test(so_they_are_in_bf16),
        cmocka_unit_test(plain_c_has_caches_too),
        cmocka_unit_test(any_tokens_may_follow_any),
        cmocka_unit_test(earlier_positions_are_not_computed_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
