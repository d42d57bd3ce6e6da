/* A solution of lab 25's tree, and what goes wrong with -DWRONG=1 and so on. */
#include "engine_plugin.h"

enum { RIGHT, NO_WAY_BACK, FAR_FIRST, POWERS_ALONE, STAR };
#ifndef WRONG
#define WRONG RIGHT
#endif

static int step(struct engine_call *c, int d, int back) {
    int r = c->rank, sends = r % (2 * d) == d,
        receives = r % (2 * d) == 0 && (r + d < c->size || WRONG == POWERS_ALONE);
    struct engine_leg up = engine_leg(c, sends ? r - d : r + d, 0, c->count, back ? ENGINE_COPY : ENGINE_ADD_RIGHT);
    if (!sends && !receives) return 0;
    return sends != back ? c->exchange(c, &up, NULL) : c->exchange(c, NULL, &up);
}

/* Every rank sends to rank 0, which adds them one after another: right, and slow. */
static int star(struct engine_call *c) {
    int failed = 0;
    for (int back = 0; back < 2; back++)
        for (int peer = 1; peer < c->size && !failed; peer++) {
            struct engine_leg leg =
                engine_leg(c, c->rank ? 0 : peer, 0, c->count, back ? ENGINE_COPY : ENGINE_ADD_RIGHT);
            if (c->rank && c->rank != peer) continue;
            failed = (c->rank != 0) != back ? c->exchange(c, &leg, NULL) : c->exchange(c, NULL, &leg);
        }
    return failed;
}

static int all_reduce(struct engine_call *c) {
    int failed = 0, top = 1;
    if (WRONG == STAR) return star(c);
    while (2 * top < c->size) top *= 2;
    for (int d = 1; d <= top && !failed; d *= 2) failed = step(c, WRONG == FAR_FIRST ? top / d : d, 0);
    for (int d = top; d && !failed && WRONG != NO_WAY_BACK; d /= 2) failed = step(c, d, 1);
    return failed;
}

static const struct engine_algorithm tree = {WRONG == STAR ? ENGINE_OWN : ENGINE_TREE, all_reduce, NULL};

ENGINE_PLUGIN const struct engine_plugin engine_plugin = {
    .version = ENGINE_PLUGIN_VERSION, .about = "a solution", .algorithm = &tree};
