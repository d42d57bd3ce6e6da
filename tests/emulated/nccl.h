/* Between the two parts of the fake NCCL: nccl.c is what a program calls, nccl_wire.c how ranks reach
 * each other. */
#pragma once
#include <nccl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

ncclResult_t ncclGroupStart(void); /* prototypes, which nccl.h lacks */
ncclResult_t ncclGroupEnd(void);

enum { RANKS_MAX = 8, CHUNK = 64 << 10 };

/* From one rank to another: one chunk at a time. */
struct box {
    _Alignas(64) _Atomic uint32_t written, read;
    uint32_t bytes;
    char data[CHUNK];
};
struct wire { /* memory that all ranks of a communicator map */
    _Atomic int joined;
    int size;
    uint64_t gpu[RANKS_MAX]; /* host and GPU of each, to find doubles */
    struct box box[RANKS_MAX][RANKS_MAX];
};
struct wire *wire_create(const char *name); /* NULL: errno */
struct wire *wire_join(const char *name);
void wire_leave(struct wire *w);
void wire_forget(const char *name); /* nobody else will join */

struct move {
    int peer;
    bool sends;
    char *data;
    size_t bytes;
};
/* Makes all of them, side by side, in order for each peer. False: *stop was set first. */
bool wire_move(struct wire *w, int rank, struct move *moves, int n, const _Atomic int *stop);

/* to = to op from, of n elements. */
void wire_combine(void *to, const void *from, size_t n, ncclDataType_t t, ncclRedOp_t op);
void wire_scale(void *to, size_t n, ncclDataType_t t, double by);
size_t wire_size(ncclDataType_t t);
