/* Random-k with error feedback (Stich, Cordonnier, Jaggi 2018, arXiv:1809.07599): of a bucket's n floats k = ratio * n
 * are sent, at places that are drawn anew in each step, the same on all ranks:
 *
 *     place_i = one of [i n / k, (i + 1) n / k), i = 0 .. k-1
 *
 * so every float is sent once in 1/ratio steps on average, and only values travel: an all-reduce of k floats, whose
 * bytes do not grow with the number of ranks. The others wait for later steps. */
#include "engine/base/rng.h"
#include "engine/base/vector.h"
#include "engine/settings/compress.h"
#include "engine/settings/run_config.h"
#include "modes/share/compress.h"

#include <math.h>
#include <string.h>

static enum error randomk_open(struct compress *c, struct packet *p) {
    p->nwire = (int64_t)ceil(c->config->ratio * (double)p->n);
    if (p->nwire > p->n) p->nwire = p->n;
    return compress_alloc(c, (size_t)p->nwire * sizeof(float), &p->wire);
}

static int64_t randomk_place(const struct compress *c, const struct packet *p, int64_t i) {
    const struct rng_key key = rng_key((uint64_t)c->t->config->seed, RNG_COMPRESS);
    int64_t from = (int64_t)((__int128)p->n * i / p->nwire), to = (int64_t)((__int128)p->n * (i + 1) / p->nwire);
    return from + (int64_t)rng_below(key, (uint64_t)c->t->at.step, (uint64_t)(p->begin + from), (uint64_t)(to - from));
}

/* 0, or what is not a number where a float is not finite: then all that is sent is not, either. */
VECTORISED static float randomk_doubt(const float *x, int64_t n) {
    float doubt = 0;
    for (int64_t i = 0; i < n; i++) doubt += x[i] * 0;
    return doubt;
}

static enum error randomk_send(struct compress *c, struct packet *p, struct dispatch how) {
    float *wire = p->wire;
    floats_add(p->rest, p->g, p->n);
    const float doubt = randomk_doubt(p->rest, p->n);
    for (int64_t i = 0; i < p->nwire; i++) {
        float *at = p->rest + randomk_place(c, p, i);
        wire[i] = *at + doubt;
        *at = 0;
    }
    return group_all_reduce(c->group, how, wire, p->nwire, DTYPE_F32, REDOP_SUM);
}

static void randomk_receive(struct compress *c, struct packet *p) {
    const float *wire = p->wire;
    memset(p->g, 0, (size_t)p->n * sizeof *p->g);
    for (int64_t i = 0; i < p->nwire; i++) p->g[randomk_place(c, p, i)] = wire[i];
}

const struct compress_ops compress_randomk = {
    .feedback = true, .open = randomk_open, .send = randomk_send, .receive = randomk_receive};
