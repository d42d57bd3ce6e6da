/* The largest gradients alone: of each bucket a share 'ratio', with the numbers of their places, 8
 * bytes each. Every rank sends its own choice to all and adds what comes in the order of the ranks.
 * What was not chosen waits on its rank, is added to the gradients of the next step, and leaves when
 * it has grown large enough.
 *
 * Bytes: (N-1) 8 k sent and received by each rank, k = ratio of the bucket: it grows with N, where
 * an all-reduce does not, so ratio must be well below 1 / N.
 *
 * Magnitudes are compared by the upper 15 bits of theirs (a part in 128); of the last that are alike
 * those that stand first are taken. That finds k in two passes, whatever the numbers are. */
#include "engine/base/half.h"
#include "engine/base/vector.h"
#include "engine/settings/compress.h"
#include "modes/share/compress.h"

#include <math.h>
#include <string.h>

enum { CLASSES = 1 << 15 };

static int64_t count_wanted(const struct compress *c, const struct packet *p) {
    int64_t k = (int64_t)ceil(c->config->ratio * (double)p->n);
    return k < p->n ? k : p->n;
}

/* wire: of each rank k places, then their k values. */
static enum error topk_open(struct compress *c, struct packet *p) {
    void *memory;
    if (!c->own) {
        TRY(memory_alloc(CLASSES * sizeof(int64_t), &memory));
        c->own = memory;
    }
    size_t pair = sizeof(uint32_t) + sizeof(float);
    return compress_alloc(c, (size_t)c->t->standing.ranks * (size_t)count_wanted(c, p) * pair, &p->wire);
}

static uint32_t class_of(float x) {
    return bits_of(x) >> 16 & (CLASSES - 1);
}

/* The class of the k-th largest; *left: how many of that class are to be taken. */
static uint32_t find_class(const float *x, int64_t n, int64_t k, int64_t *count, int64_t *left) {
    memset(count, 0, CLASSES * sizeof *count);
    for (int64_t i = 0; i < n; i++) count[class_of(x[i])]++;
    uint32_t class = CLASSES - 1;
    for (; k > count[class]; class --) k -= count[class];
    *left = k;
    return class;
}

static void largest_choose(float *x, int64_t n, int64_t k, int64_t *count, uint32_t *place, float *value) {
    int64_t left, found = 0;
    uint32_t least = find_class(x, n, k, count, &left);
    for (int64_t i = 0; i < n; i++) {
        uint32_t class = class_of(x[i]);
        if (class < least || (class == least && left-- <= 0)) continue;
        place[found] = (uint32_t)i;
        value[found++] = x[i];
        x[i] = 0;
    }
}

static enum error topk_send(struct compress *c, struct packet *p, struct dispatch how) {
    int64_t k = count_wanted(c, p);
    uint32_t *mine = (uint32_t *)p->wire + 2 * k * c->t->rank;
    floats_add(p->rest, p->g, p->n);
    largest_choose(p->rest, p->n, k, c->own, mine, (float *)(void *)(mine + k));
    for (int r = 0; r <= c->t->standing.ranks; r++) c->parts[r] = 2 * k * r;
    return group_all_gather(c->group, how, p->wire, c->parts, DTYPE_I32);
}

static void topk_receive(struct compress *c, struct packet *p) {
    int64_t k = count_wanted(c, p);
    memset(p->g, 0, (size_t)p->n * sizeof *p->g);
    for (int r = 0; r < c->t->standing.ranks; r++) {
        const uint32_t *place = (const uint32_t *)p->wire + 2 * k * r;
        const float *value = (const float *)(const void *)(place + k);
        for (int64_t i = 0; i < k; i++)
            if (place[i] < p->n) p->g[place[i]] += value[i];
    }
}

static void topk_close(struct compress *c) {
    memory_free(c->own);
}

const struct compress_ops compress_topk = {
    .feedback = true, .open = topk_open, .send = topk_send, .receive = topk_receive, .close = topk_close};
