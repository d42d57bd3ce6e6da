#include "modes/spares.h"

#include "modes/share/share.h"

#include <string.h>

/* Of bucket b what is others': below this rank's part, and above it. */
enum { SIDES = 2 };
struct side {
    float *at;
    size_t bytes;
};
static void bucket_sides(const struct mode *m, float *arena, int b, struct side side[SIDES]) {
    const struct span s = share_bucket(m, arena, b);
    const int64_t *own = s.part + m->t->rank;
    side[0] = (struct side){arena + s.begin, (size_t)(own[0] - s.begin) * sizeof *arena};
    side[1] = (struct side){arena + own[1], (size_t)(s.end - own[1]) * sizeof *arena};
}

void bucket_release(const struct mode *m, float *arena, int b) {
    struct side side[SIDES];
    bucket_sides(m, arena, b, side);
    for (int i = 0; i < SIDES; i++) memory_release(side[i].at, side[i].bytes);
}

enum error bucket_overlay(const struct mode *m, float *arena, int b) {
    struct side side[SIDES];
    bucket_sides(m, arena, b, side);
    for (int i = 0; i < SIDES; i++) TRY(memory_overlay(side[i].at, side[i].bytes));
    return ERR_NONE;
}

static int spare_pull(struct spares *s, int i) {
    int b = s->bucket[i];
    s->count--;
    memmove(s->bucket + i, s->bucket + i + 1, (size_t)(s->count - i) * sizeof *s->bucket);
    return b;
}

/* Gives the pages back of those that have gone the longest, until that many bytes are back. */
static void spares_release(struct spares *s, size_t bytes) {
    struct side side[SIDES];
    for (size_t back = 0; s->count && back < bytes; back += side[0].bytes + side[1].bytes) {
        int b = spare_pull(s, 0);
        bucket_sides(s->m, s->arena, b, side);
        bucket_release(s->m, s->arena, b);
    }
}

void spares_use(struct spares *s, float *arena) {
    if (arena != s->arena) spares_release(s, SIZE_MAX);
    s->arena = arena;
}

void spares_put(struct spares *s, int b) {
    s->bucket[s->count++] = b;
}

enum error spares_take(struct spares *s, int b) {
    struct side to[SIDES], from[SIDES];
    for (int i = 0; i < s->count; i++)
        if (s->bucket[i] == b) return spare_pull(s, i), ERR_NONE;
    if (!s->count) return ERR_NONE;
    bucket_sides(s->m, s->arena, b, to);
    bucket_sides(s->m, s->arena, spare_pull(s, 0), from);
    size_t left = 0; /* of what comes, without pages */
    for (int i = 0; i < SIDES; i++) {
        size_t both = from[i].bytes < to[i].bytes ? from[i].bytes : to[i].bytes;
        TRY(memory_move(from[i].at, to[i].at, both));
        memory_release((char *)from[i].at + both, from[i].bytes - both);
        left += to[i].bytes - both;
    }
    if (left) spares_release(s, left);
    return ERR_NONE;
}
