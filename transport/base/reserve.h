/* Memory for the next of a kind: what comes again and again allocates nothing. Any thread may call. */
#pragma once
#include "engine/base/error.h"

#include <pthread.h>
#include <stddef.h>

struct reserve_piece {
    struct reserve_piece *next;
};
struct reserve {
    pthread_mutex_t mutex;
    struct reserve_piece *first;
    size_t size; /* of a piece, at least a pointer's */
};
/* So many pieces are there at once; also after a failure, reserve_fini frees what there is. */
MUST_CHECK enum error reserve_init(struct reserve *r, size_t size, int ready);
void reserve_fini(struct reserve *r);
void *reserve_take(struct reserve *r); /* a new piece, where none is left; NULL: out of memory */
void reserve_give(struct reserve *r, void *piece);
