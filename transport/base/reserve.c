#include "transport/base/reserve.h"

#include <stdlib.h>

enum error reserve_init(struct reserve *r, size_t size, int ready) {
    *r = (struct reserve){.size = size};
    pthread_mutex_init(&r->mutex, NULL);
    for (int i = 0; i < ready; i++) {
        void *piece = malloc(size);
        if (!piece) return FAIL(ERR_MEMORY, "out of memory for %zu bytes", size);
        reserve_give(r, piece);
    }
    return ERR_NONE;
}

void reserve_fini(struct reserve *r) {
    for (struct reserve_piece *p = r->first, *next; p; p = next) {
        next = p->next;
        free(p);
    }
    pthread_mutex_destroy(&r->mutex);
}

void *reserve_take(struct reserve *r) {
    pthread_mutex_lock(&r->mutex);
    struct reserve_piece *p = r->first;
    if (p) r->first = p->next;
    pthread_mutex_unlock(&r->mutex);
    return p ? p : malloc(r->size);
}

void reserve_give(struct reserve *r, void *piece) {
    struct reserve_piece *p = piece;
    pthread_mutex_lock(&r->mutex);
    p->next = r->first;
    r->first = p;
    pthread_mutex_unlock(&r->mutex);
}
