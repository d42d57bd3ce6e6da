/* Cases of a compressor: nothing is lost, wherever a bucket is cut, no byte is written where none belongs, the same gives
 * the same again, and what is not finite shows. Ranks are played one after another, as the exchange would have them. */
#include "lab/check/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct coder { /* of a case */
    const struct engine_compressor *of;
    const struct plugin *plugin;
    double value[ENGINE_PARAMETERS];
    int sizes;
};

static const char *const names[] = {"bytes", "encode", "add"};

static struct engine_packet coder_packet(const struct coder *c, int rank, int size) {
    return (struct engine_packet){.parameter = c->value, .seed = 7, .step = 3, .first = 16, .rank = rank, .size = size};
}

static void coder_enter(const struct coder *c, int function) {
    if (c->plugin) plugin_enter(c->plugin, names[function]);
}

static void coder_leave(const struct coder *c) {
    if (c->plugin) plugin_leave();
}

static int64_t coder_bytes(const struct coder *c, int64_t n) {
    const struct engine_packet p = coder_packet(c, 0, 2);
    coder_enter(c, 0);
    int64_t bytes = c->of->bytes(&p, c->of->block ? c->of->block : n);
    coder_leave(c);
    if (bytes < 0 || bytes > 64 * (n + c->of->block) + 4096)
        check_wrong("%lld floats take %lld bytes", (long long)n, (long long)bytes);
    return bytes;
}

static void coder_encode(const struct coder *c, int rank, float *x, int64_t n, void *wire) {
    const struct engine_packet p = coder_packet(c, rank, c->sizes);
    check_note("encode of %lld floats, rank %d of %d", (long long)n, rank, c->sizes);
    coder_enter(c, 1);
    c->of->encode(&p, x, n, wire);
    coder_leave(c);
}

static void coder_add(const struct coder *c, int rank, const void *wire, float *sum, int64_t n) {
    const struct engine_packet p = coder_packet(c, rank, c->sizes);
    check_note("add of %lld floats, rank %d of %d", (long long)n, rank, c->sizes);
    coder_enter(c, 2);
    c->of->add(&p, wire, sum, n);
    coder_leave(c);
}

/* The lengths to try: of a compressor of blocks, those that the last block of a bucket may have. */
static int coder_lengths(const struct coder *c, int64_t out[8]) {
    const int64_t whole[] = {1, 2, 3, 17, 64, 1000, 4099}, block = c->of->block;
    const int64_t blocks[] = {block, 1, block / 2 + 1, block - 1};
    int n = block ? 4 : 7;
    memcpy(out, block ? blocks : whole, (size_t)n * sizeof *out);
    return n;
}

static double coder_error(double in, double out, double size) {
    return fabs(in - out) / (size > 0 ? size : 1);
}

/* x = decoded + what is left, if it says that it leaves something; the sum has all terms that were in it. */
static void coder_check_length(const struct coder *c, int rank, int64_t n) {
    size_t floats = (size_t)n * sizeof(float), bytes = (size_t)coder_bytes(c, n);
    float *x = guarded_alloc(floats, "the gradients"), *sum = guarded_alloc(floats, "the sum"), *in = malloc(floats);
    char *wire = guarded_alloc(bytes, "the bytes on the wire"), *kept = malloc(bytes + 1);
    if (!in || !kept) check_wrong("no memory");
    for (int64_t i = 0; i < n; i++) in[i] = x[i] = check_value(rank, i) * 0.01f, sum[i] = 1000;
    coder_encode(c, rank, x, n, wire);
    memcpy(kept, wire, bytes);
    coder_add(c, rank, wire, sum, n);
    if (memcmp(kept, wire, bytes) != 0)
        check_wrong("add changes the bytes that it reads, of %lld floats", (long long)n);
    for (int64_t i = 0; i < n; i++) {
        double out = (double)sum[i] - 1000, all = c->of->feedback ? out + (double)x[i] : out;
        if (c->of->feedback && coder_error((double)in[i], all, fabs((double)in[i]) + 1000) > 2e-7)
            check_wrong("%lld floats, rank %d: float %lld was %.9g, %.9g were sent and %.9g are left", (long long)n,
                        rank, (long long)i, (double)in[i], out, (double)x[i]);
    }
    guarded_check(x, "the gradients");
    guarded_check(sum, "the sum");
    guarded_check(wire, "the bytes on the wire");
    /* again, where the last ones left other bytes */
    memset(wire, 0x5A, bytes);
    memcpy(x, in, floats);
    coder_encode(c, rank, x, n, wire);
    if (memcmp(kept, wire, bytes) != 0)
        check_wrong("%lld floats, rank %d: the same again gives other bytes", (long long)n, rank);
    guarded_free(x);
    guarded_free(sum);
    guarded_free(wire);
    free(in);
    free(kept);
}

static void coder_check_lengths(void *user) {
    struct coder *c = user;
    int64_t of[8];
    int n = coder_lengths(c, of);
    for (int size = 1; size <= CHECK_SIZES; size += size < 5 ? 1 : 4)
        for (int rank = 0; rank < size; rank++)
            for (int i = 0; i < n; i++) {
                c->sizes = size;
                if (of[i] > 0) coder_check_length(c, rank, of[i]);
            }
}

/* With error feedback, over many steps all arrives: the mean of what is sent becomes the gradient. */
static void coder_check_arrival(void *user) {
    enum { N = 256, STEPS = 400 };
    struct coder *c = user;
    int64_t n = c->of->block && c->of->block < N ? c->of->block : N;
    float *rest = calloc(N, sizeof *rest), *sum = calloc(N, sizeof *sum), most = 0;
    void *wire = calloc(1, (size_t)coder_bytes(c, n) + 1);
    c->sizes = 2;
    for (int step = 0; step < STEPS; step++) {
        for (int64_t i = 0; i < n; i++) rest[i] += check_value(0, i) * 0.01f;
        coder_encode(c, 0, rest, n, wire);
        coder_add(c, 0, wire, sum, n);
    }
    for (int64_t i = 0; i < n; i++) most = fmaxf(most, fabsf(check_value(0, i) * 0.01f));
    for (int64_t i = 0; i < n; i++) {
        double mean = (double)sum[i] / STEPS, want = (double)check_value(0, i) * 0.01;
        if (!(fabs(mean - want) <= 0.25 * (double)most))
            check_wrong(
                "after %d steps of the gradient %.6g, float %lld has been sent as %.6g a step: what waits grows",
                (int)STEPS, want, (long long)i, mean);
    }
}

static void coder_check_not_finite(void *user) {
    enum { N = 64 };
    struct coder *c = user;
    int64_t n = c->of->block && c->of->block < N ? c->of->block : N;
    char *wire = calloc(1, (size_t)coder_bytes(c, n) + 1);
    c->sizes = 2;
    for (int bad = 0; bad < 2; bad++) {
        float x[N], sum[N] = {0};
        bool shows = false;
        for (int64_t i = 0; i < n; i++) x[i] = check_value(0, i);
        x[n / 3] = bad ? NAN : INFINITY;
        coder_encode(c, 0, x, n, wire);
        coder_add(c, 0, wire, sum, n);
        for (int64_t i = 0; i < n; i++) shows = shows || !isfinite(sum[i]);
        if (!shows)
            check_wrong("float %lld is %s, and all that is sent is finite: a run would go on", (long long)n / 3,
                        bad ? "not a number" : "infinite");
    }
}

static void coder_use_once(void *user) {
    static float x[64], sum[64];
    static char wire[1 << 16];
    struct coder *c = user;
    int64_t n = c->of->block && c->of->block < 64 ? c->of->block : 64;
    coder_encode(c, 0, x, n, wire);
    coder_add(c, 0, wire, sum, n);
}

static void coder_check_memory(void *user) {
    struct coder *c = user;
    c->sizes = 2;
    if (coder_bytes(c, 64) <= 1 << 16) check_leaks(coder_use_once, user);
}

void check_compressor(struct check *c, const struct engine_compressor *of, const struct plugin *plugin) {
    struct coder coder = {.of = of, .plugin = plugin, .sizes = 1};
    check_standards(plugin, coder.value);
    if (!check_case(c, "nothing lost, nothing written elsewhere", coder_check_lengths, &coder)) return;
    if (of->feedback) check_case(c, "all arrives in the end", coder_check_arrival, &coder);
    check_case(c, "what is not finite shows", coder_check_not_finite, &coder);
    check_case(c, "memory of a compressor", coder_check_memory, &coder);
}
