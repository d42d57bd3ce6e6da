/* A solution of lab 26, and what goes wrong with -DWRONG=1 and so on. */
#include "engine_plugin.h"

#include <math.h>
#include <string.h>

enum { RIGHT, DROPS_THE_REST, SENT_STAYS, HIDES_NAN, TOO_MANY, THE_FIRST };
#ifndef WRONG
#define WRONG RIGHT
#endif
enum { BLOCK = 256, K = WRONG == TOO_MANY ? 32 : 8 };
struct packet {
    float value[K];
    uint8_t place[K];
};

static int64_t bytes(const struct engine_packet *p, int64_t n) {
    (void)p, (void)n;
    return sizeof(struct packet);
}

/* The larger, the sooner it travels; what is not finite travels first. */
static float rank_of(float x) {
    return isfinite(x) ? fabsf(x) : WRONG == HIDES_NAN ? 0 : INFINITY;
}

static void encode(const struct engine_packet *p, float *x, int64_t n, void *wire) {
    struct packet *to = wire;
    float best[K + 1];
    int have = 0;
    (void)p;
    memset(to, 0, sizeof *to);
    for (int64_t i = 0; i < n; i++) { /* place[0..have): from the largest to the smallest */
        float mine = WRONG == THE_FIRST ? (float)-i : rank_of(x[i]);
        if (have == K && mine <= best[K - 1]) continue;
        int at = have < K ? have++ : K - 1;
        for (; at > 0 && best[at - 1] < mine; at--) best[at] = best[at - 1], to->place[at] = to->place[at - 1];
        best[at] = mine, to->place[at] = (uint8_t)i;
    }
    for (int k = 0; k < have; k++) {
        to->value[k] = x[to->place[k]];
        if (WRONG != SENT_STAYS) x[to->place[k]] = 0;
    }
}

static void add(const struct engine_packet *p, const void *wire, float *sum, int64_t n) {
    const struct packet *from = wire;
    (void)p, (void)n;
    for (int k = 0; k < K; k++) sum[from->place[k]] += from->value[k];
}

static const struct engine_compressor topk = {
    .block = BLOCK, .feedback = WRONG != DROPS_THE_REST, .bytes = bytes, .encode = encode, .add = add};

ENGINE_PLUGIN const struct engine_plugin engine_plugin = {
    .version = ENGINE_PLUGIN_VERSION, .about = "a solution", .compressor = &topk};
