/* Kinds of compression that are a coder and nothing else: the engine's own (int8, onebit) and plug-ins. Sums of encoded
 * numbers cannot be made of their codes, so they are made where codes can be read. Of a coder of blocks:
 *
 *     all_to_all   every rank's blocks of a part go to the part's owner
 *     the owner    adds them in the order of the ranks, and encodes the sum again
 *     all_gather   of the parts
 *
 * 2(N-1)/N of the coded bytes, on any number of ranks. With error feedback both codings' errors go into the next step:
 * the first on the rank that encoded, the second on the owner. Of a coder of whole buckets one all_gather brings every
 * rank's code to all, who add them in the order of the ranks: N-1 times the coded bytes. */
#include "modes/share/compress.h"

#include "engine/base/vector.h"
#include "engine/settings/run_config.h"

#include <string.h>

enum { BLOCK_MOST = 1 << 12 };

/* ---- a coder's functions ---- */

static struct engine_packet coded_packet(const struct compress *c, int64_t first) {
    const struct trainer *t = c->t;
    return (struct engine_packet){.parameter = c->parameter,
                                  .seed = (uint64_t)t->config->seed,
                                  .step = t->at.step,
                                  .first = first,
                                  .rank = t->rank,
                                  .size = t->standing.ranks};
}

static void coded_enter(const struct compress *c, const char *doing) {
    if (c->plugin) plugin_enter(c->plugin, doing);
}

static void coded_leave(const struct compress *c) {
    if (c->plugin) plugin_leave();
}

static int64_t coded_bytes(const struct compress *c, const struct packet *p) {
    const struct engine_packet packet = coded_packet(c, p->begin);
    coded_enter(c, "a compressor's bytes");
    int64_t bytes = c->coder->bytes(&packet, c->coder->block ? c->coder->block : p->n);
    coded_leave(c);
    return bytes;
}

static void coded_encode(const struct compress *c, int64_t first, float *x, int64_t n, void *wire) {
    const struct engine_packet packet = coded_packet(c, first);
    coded_enter(c, "a compressor's encode");
    c->coder->encode(&packet, x, n, wire);
    coded_leave(c);
}

static void coded_add(const struct compress *c, int64_t first, const void *wire, float *sum, int64_t n) {
    const struct engine_packet packet = coded_packet(c, first);
    coded_enter(c, "a compressor's add");
    c->coder->add(&packet, wire, sum, n);
    coded_leave(c);
}

/* ---- blocks; a bucket's are p->nwire of p->nback bytes ---- */

static int64_t block_floats(const struct compress *c, const struct packet *p, int64_t block) {
    int64_t rest = p->n - block * c->coder->block;
    return rest < c->coder->block ? rest : c->coder->block;
}

/* The first block of a rank's part. */
static int64_t part_first(const struct compress *c, const struct packet *p, int rank) {
    return p->nwire * rank / c->t->standing.ranks;
}

/* wire: my blocks, then what the others send me of my part. */
static char *block_inbox(const struct packet *p) {
    return (char *)p->wire + p->nwire * p->nback;
}

static enum error blocks_open(struct compress *c, struct packet *p) {
    int64_t ranks = c->t->standing.ranks, block = c->coder->block;
    p->nwire = (p->n + block - 1) / block;
    int64_t part = p->nwire / ranks + 1; /* the most that a rank has */
    TRY(compress_alloc(c, (size_t)((p->nwire + part * ranks) * p->nback), &p->wire));
    return compress_alloc(c, (size_t)(p->nwire * p->nback), &p->back);
}

static enum error blocks_send(struct compress *c, struct packet *p, float *x, struct dispatch how) {
    int ranks = c->t->standing.ranks;
    int64_t mine = part_first(c, p, c->t->rank + 1) - part_first(c, p, c->t->rank), *from = c->parts + ranks + 1;
    for (int64_t i = 0, at; i < p->nwire; i++) {
        at = i * c->coder->block;
        coded_encode(c, p->begin + at, x + at, block_floats(c, p, i), (char *)p->wire + i * p->nback);
    }
    for (int r = 0; r <= ranks; r++) {
        c->parts[r] = part_first(c, p, r) * p->nback;
        from[r] = mine * r * p->nback;
    }
    return group_all_to_all(c->group, how, p->wire, c->parts, block_inbox(p), from, DTYPE_U8);
}

/* The sum of block i of my part, over the ranks in their order; it also takes what the last one lost. */
static void block_sum(struct compress *c, struct packet *p, int64_t i, int64_t mine, float *x) {
    int64_t n = block_floats(c, p, i), at = i * c->coder->block, place = i - part_first(c, p, c->t->rank);
    memset(x, 0, (size_t)n * sizeof *x);
    for (int r = 0; r < c->t->standing.ranks; r++)
        coded_add(c, p->begin + at, block_inbox(p) + (place + r * mine) * p->nback, x, n);
    coded_encode(c, p->begin + at, x, n, (char *)p->back + i * p->nback);
    if (p->rest) floats_add(p->rest + at, x, n);
}

enum error coded_turn(struct compress *c, struct packet *p, struct dispatch how) {
    float x[BLOCK_MOST];
    int64_t begin = part_first(c, p, c->t->rank), end = part_first(c, p, c->t->rank + 1);
    for (int64_t i = begin; i < end; i++) block_sum(c, p, i, end - begin, x);
    for (int r = 0; r <= c->t->standing.ranks; r++) c->parts[r] = part_first(c, p, r) * p->nback;
    return group_all_gather(c->group, how, p->back, c->parts, DTYPE_U8);
}

static void blocks_receive(struct compress *c, struct packet *p) {
    for (int64_t i = 0; i < p->nwire; i++) {
        int64_t at = i * c->coder->block;
        coded_add(c, p->begin + at, (char *)p->back + i * p->nback, p->g + at, block_floats(c, p, i));
    }
}

/* ---- whole buckets ---- */

static enum error whole_send(struct compress *c, struct packet *p, float *x, struct dispatch how) {
    coded_encode(c, p->begin, x, p->n, (char *)p->wire + c->t->rank * p->nback);
    for (int r = 0; r <= c->t->standing.ranks; r++) c->parts[r] = r * p->nback;
    return group_all_gather(c->group, how, p->wire, c->parts, DTYPE_U8);
}

static void whole_receive(struct compress *c, struct packet *p) {
    for (int r = 0; r < c->t->standing.ranks; r++) coded_add(c, p->begin, (char *)p->wire + r * p->nback, p->g, p->n);
}

/* ---- to servers apart ---- */

/* A code need not be of zero where a float is: the gaps between parameters stay what they are. */
static void gaps_clear(const struct compress *c, struct packet *p) {
    for (int i = 0; i < c->t->model->nparams; i++) {
        const struct tensor_info *t = &c->t->model->params[i];
        int64_t from = t->offset + t->count - p->begin, n = align_floats(t->offset + t->count) - p->begin - from;
        if (from <= 0 || from + n > p->n) continue;
        memset(p->g + from, 0, (size_t)n * sizeof *p->g);
        if (p->rest) memset(p->rest + from, 0, (size_t)n * sizeof *p->rest);
    }
}

static int64_t part_bytes(const struct compress *c, int64_t n) {
    const struct engine_packet packet = coded_packet(c, 0);
    int64_t block = c->coder->block ? c->coder->block : n;
    if (!n) return 0;
    coded_enter(c, "a compressor's bytes");
    int64_t bytes = c->coder->bytes(&packet, block);
    coded_leave(c);
    return (n + block - 1) / block * bytes;
}

/* fn of each block of a part, which begins at 'first' of the arena. */
static void part_each(const struct compress *c, int64_t first, float *x, int64_t n, char *wire,
                      void (*fn)(const struct compress *, int64_t, float *, int64_t, char *)) {
    int64_t block = c->coder->block ? c->coder->block : n, bytes = part_bytes(c, n) / ((n + block - 1) / block);
    for (int64_t at = 0; at < n; at += block, wire += bytes)
        fn(c, first + at, x + at, n - at < block ? n - at : block, wire);
}

static void part_encode(const struct compress *c, int64_t first, float *x, int64_t n, char *wire) {
    coded_encode(c, first, x, n, wire);
}

static void part_add(const struct compress *c, int64_t first, float *x, int64_t n, char *wire) {
    coded_add(c, first, wire, x, n);
}

enum error coded_push(struct compress *c, struct packet *p, struct dispatch how) {
    int ranks = c->t->standing.ranks, me = c->t->rank;
    int64_t *to = c->parts, *from = to + ranks + 1, own = part_bytes(c, p->part[me + 1] - p->part[me]);
    bool gives = c->t->standing.worker >= 0;
    float *x = p->rest ? p->rest : p->g;
    if (gives && p->rest) floats_add(p->rest, p->g, p->n);
    to[0] = from[0] = 0;
    for (int r = 0; r < ranks; r++) {
        int64_t at = p->part[r], n = p->part[r + 1] - at;
        if (gives && n) part_each(c, p->begin + at, x + at, n, (char *)p->wire + to[r], part_encode);
        to[r + 1] = to[r] + (gives ? part_bytes(c, n) : 0);
        from[r + 1] = from[r] + (r >= ranks - c->t->standing.workers ? own : 0);
    }
    return group_all_to_all(c->group, how, p->wire, to, p->inbox, from, DTYPE_U8);
}

void coded_pushed(struct compress *c, struct packet *p) {
    int64_t at = p->part[c->t->rank], n = p->part[c->t->rank + 1] - at, bytes = part_bytes(c, n);
    if (!n) return;
    memset(p->g + at, 0, (size_t)n * sizeof *p->g);
    for (int w = 0; w < c->t->standing.workers; w++)
        part_each(c, p->begin + at, p->g + at, n, (char *)p->inbox + w * bytes, part_add);
    gaps_clear(c, p);
}

static enum error push_open(struct compress *c, struct packet *p) {
    const struct standing *s = &c->t->standing;
    int64_t sent = 0, own = part_bytes(c, p->part[c->t->rank + 1] - p->part[c->t->rank]);
    for (int r = 0; r < s->ranks; r++) sent += part_bytes(c, p->part[r + 1] - p->part[r]);
    TRY(compress_alloc(c, (size_t)sent, &p->wire));
    return own ? memory_alloc((size_t)(s->workers * own), &p->inbox) : ERR_NONE;
}

/* ---- the kind's functions ---- */

enum error coded_open(struct compress *c, struct packet *p) {
    if (c->coder->block > BLOCK_MOST)
        return FAIL(ERR_CONFIG, "comm.compress: '%s' has blocks of %lld floats; at most %d", c->name,
                    (long long)c->coder->block, (int)BLOCK_MOST);
    p->nback = coded_bytes(c, p);
    if (p->nback < 0 || p->nback > ((int64_t)1 << 40))
        return FAIL(ERR_CONFIG, "comm.compress: '%s' wants %lld bytes for %lld floats", c->name, (long long)p->nback,
                    (long long)p->n);
    if (p->part) return push_open(c, p);
    if (c->coder->block) return blocks_open(c, p);
    return compress_alloc(c, (size_t)(p->nback * c->t->standing.ranks), &p->wire);
}

enum error coded_send(struct compress *c, struct packet *p, struct dispatch how) {
    float *x = p->rest ? p->rest : p->g;
    if (p->rest) floats_add(p->rest, p->g, p->n);
    return c->coder->block ? blocks_send(c, p, x, how) : whole_send(c, p, x, how);
}

void coded_receive(struct compress *c, struct packet *p) {
    memset(p->g, 0, (size_t)p->n * sizeof *p->g);
    if (c->coder->block)
        blocks_receive(c, p);
    else
        whole_receive(c, p);
    gaps_clear(c, p);
}

const struct compress_ops compress_plugin = COMPRESS_CODED(NULL, false);
