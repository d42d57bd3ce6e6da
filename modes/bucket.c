#include "modes/bucket.h"
#include "engine/base/vector.h"

#include <stdlib.h>

static int64_t blocks_of(int64_t bytes, int64_t floats) {
    int64_t blocks = (bytes / (int64_t)sizeof(float) + NORM_BLOCK - 1) / NORM_BLOCK, all = floats / NORM_BLOCK + 1;
    return blocks < 1 ? 1 : blocks < all ? blocks : all;
}

static enum error buckets_anywhere(struct buckets *b, int64_t floats, const struct cutting *c) {
    int64_t step = blocks_of(c->cap, floats) * NORM_BLOCK, end = blocks_of(c->first, floats) * NORM_BLOCK;
    *b = (struct buckets){.edge = calloc((size_t)(floats / step) + 3, sizeof *b->edge)};
    if (!b->edge) return FAIL(ERR_MEMORY, "no memory for buckets");
    for (; end < floats; end += step) b->edge[++b->count] = end;
    b->edge[++b->count] = floats;
    return ERR_NONE;
}

enum error buckets_init(struct buckets *b, const struct model *m, const struct cutting *c) {
    if (c->anywhere) return buckets_anywhere(b, m->arena_floats, c);
    *b = (struct buckets){.edge = calloc((size_t)m->nparams + 2, sizeof *b->edge)};
    if (!b->edge) return FAIL(ERR_MEMORY, "no memory for buckets");
    int64_t limit = c->first;
    for (int i = 0; i < m->nparams; i++) {
        int64_t end = i + 1 < m->nparams ? m->params[i + 1].offset : m->arena_floats;
        if ((end - b->edge[b->count]) * (int64_t)sizeof(float) < limit && end < m->arena_floats) continue;
        b->edge[++b->count] = end;
        limit = c->cap;
    }
    if (b->count == 0) b->edge[++b->count] = m->arena_floats; /* no parameters: the header travels alone */
    return ERR_NONE;
}

void buckets_align(struct buckets *b, int64_t multiple) {
    int kept = 0;
    for (int i = 1; i < b->count; i++) {
        int64_t end = b->edge[i] / multiple * multiple;
        if (end > b->edge[kept]) b->edge[++kept] = end;
    }
    b->edge[++kept] = b->edge[b->count];
    b->count = kept;
}

int buckets_before(const struct buckets *b, int64_t place) {
    int count = b->count;
    while (count > 0 && b->edge[count - 1] >= place) count--;
    return count;
}

struct bucket_range buckets_of_param(const struct buckets *b, const struct tensor_info *param) {
    int64_t last = param->offset + (param->count ? param->count : 1);
    return (struct bucket_range){buckets_before(b, param->offset + 1) - 1, buckets_before(b, last) - 1};
}

void buckets_fini(struct buckets *b) {
    free(b->edge);
    b->edge = NULL;
}
