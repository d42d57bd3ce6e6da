/* How the ranks of the fake NCCL reach each other: POSIX shared memory, and flags that are polled, so
 * that a rank that dies leaves nothing locked. */
#include "tests/emulated/emulated.h"
#include "tests/emulated/nccl.h"

#include "engine/base/half.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static struct wire *map(const char *name, int flags) {
    int fd = shm_open(name, flags, 0600);
    if (fd < 0) return NULL;
    void *p = MAP_FAILED;
    if (!(flags & O_CREAT) || ftruncate(fd, sizeof(struct wire)) == 0)
        p = mmap(NULL, sizeof(struct wire), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return p == MAP_FAILED ? NULL : p;
}

struct wire *wire_create(const char *name) {
    return map(name, O_RDWR | O_CREAT | O_EXCL);
}

struct wire *wire_join(const char *name) {
    return map(name, O_RDWR);
}

void wire_leave(struct wire *w) {
    munmap(w, sizeof *w);
}

void wire_forget(const char *name) {
    shm_unlink(name);
}

/* ---- messages ---- */

static bool step(struct wire *w, int rank, struct move *m) {
    struct box *b = m->sends ? &w->box[rank][m->peer] : &w->box[m->peer][rank];
    uint32_t written = atomic_load(&b->written), read = atomic_load(&b->read);
    size_t n = m->bytes < CHUNK ? m->bytes : CHUNK;
    if ((written == read) != m->sends) return false;
    if (m->sends) {
        emulated_copy(b->data, m->data, n);
        b->bytes = (uint32_t)n;
        atomic_store(&b->written, written + 1);
    } else {
        if (b->bytes != n) abort(); /* both sides must name the same count: NCCL would hang */
        emulated_copy(m->data, b->data, n);
        atomic_store(&b->read, read + 1);
    }
    m->data += n;
    m->bytes -= n;
    return true;
}

static bool blocked(const struct move *moves, int i) {
    for (int k = 0; k < i; k++)
        if (moves[k].bytes && moves[k].peer == moves[i].peer && moves[k].sends == moves[i].sends) return true;
    return false;
}

bool wire_move(struct wire *w, int rank, struct move *moves, int n, const _Atomic int *stop) {
    for (int idle = 0;;) {
        bool left = false, moved = false;
        for (int i = 0; i < n; i++) {
            if (!moves[i].bytes || blocked(moves, i)) continue;
            left = true;
            moved = step(w, rank, &moves[i]) || moved;
        }
        if (!left) return true;
        if (atomic_load(stop)) return false;
        idle = moved ? 0 : idle + 1;
        if (idle > 200)
            usleep(100);
        else if (idle)
            sched_yield();
    }
}

/* ---- arithmetic ---- */

size_t wire_size(ncclDataType_t t) {
    switch (t) {
    case ncclFloat64:
    case ncclInt64:
        return 8;
    case ncclFloat32:
    case ncclInt32:
        return 4;
    case ncclFloat16:
    case ncclBfloat16:
        return 2;
    case ncclUint8:
        return 1;
    default:
        abort();
    }
}

#define APPLY(a, b)                                                                                                    \
    (op == ncclProd  ? (a) * (b)                                                                                       \
     : op == ncclMin ? ((a) < (b) ? (a) : (b))                                                                         \
     : op == ncclMax ? ((a) > (b) ? (a) : (b))                                                                         \
                     : (a) + (b))
#define LOOP(type, wide)                                                                                               \
    for (size_t i = 0; i < n; i++) {                                                                                   \
        wide x = (wide)((type *)to)[i], y = (wide)((const type *)from)[i];                                             \
        ((type *)to)[i] = (type)APPLY(x, y);                                                                           \
    }
#define NARROW_LOOP(widen, narrow)                                                                                     \
    for (size_t i = 0; i < n; i++) {                                                                                   \
        float x = widen(((uint16_t *)to)[i]), y = widen(((const uint16_t *)from)[i]);                                  \
        ((uint16_t *)to)[i] = (uint16_t)narrow(APPLY(x, y));                                                           \
    }

void wire_combine(void *to, const void *from, size_t n, ncclDataType_t t, ncclRedOp_t op) {
    if (t == ncclFloat32) {
        LOOP(float, float)
    } else if (t == ncclFloat64) {
        LOOP(double, double)
    } else if (t == ncclFloat16) {
        NARROW_LOOP(widen_f16, narrow_f16)
    } else if (t == ncclBfloat16) {
        NARROW_LOOP(widen_bf16, narrow_bf16)
    } else if (op == ncclSum || op == ncclProd) { /* integers wrap */
        if (t == ncclInt32) LOOP(uint32_t, uint32_t)
        if (t == ncclInt64) LOOP(uint64_t, uint64_t)
        if (t == ncclUint8) LOOP(uint8_t, uint32_t)
    } else {
        if (t == ncclInt32) LOOP(int32_t, int32_t)
        if (t == ncclInt64) LOOP(int64_t, int64_t)
        if (t == ncclUint8) LOOP(uint8_t, uint8_t)
    }
}

void wire_scale(void *to, size_t n, ncclDataType_t t, double by) {
    for (size_t i = 0; i < n; i++)
        if (t == ncclFloat32)
            ((float *)to)[i] *= (float)by;
        else if (t == ncclFloat64)
            ((double *)to)[i] *= by;
        else if (t == ncclFloat16)
            ((uint16_t *)to)[i] = (uint16_t)narrow_f16(widen_f16(((uint16_t *)to)[i]) * (float)by);
        else if (t == ncclBfloat16)
            ((uint16_t *)to)[i] = (uint16_t)narrow_bf16(widen_bf16(((uint16_t *)to)[i]) * (float)by);
        else
            abort(); /* the engine does not ask for averages of integers */
}
