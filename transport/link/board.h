/* The memory that the ranks of one host share: a header, a part for each rank, slots for small messages, pipes, memory
 * to lend, and after them what the ranks allocate together. Ranks that are threads see one mapping of it; ranks that
 * are processes map the same file (a memfd), each at its own address. Nothing in it is a pointer.
 *
 * Pipes lie between each two ranks, and what is lent for each rank, but memory is put there when it is first used: what
 * a rank costs does not grow with the number of its peers, but with those that it exchanges messages with. */
#pragma once
#include "transport/link/words.h"
#include <stdatomic.h>

enum {
    LINE = 64,
    SLOT_BYTES = 8 << 10,
    SLOT_ROOMY = 1 << 10, /* where each rank has a core: to wait once more then takes less than to copy more */
    CROWD = 64,           /* ranks; more of them meet at a gate */
};

/* The call that its owner makes, and when it is valid: turn == call.sequence. Two take turns, so that a rank one call
 * ahead does not overwrite what a peer still reads; no rank can be two ahead. */
struct posted {
    _Alignas(LINE) _Atomic uint32_t turn;
    struct call call;
    uint64_t offset;      /* of the caller's buffer in the board, 0: not in it */
    _Atomic int32_t core; /* on which it was */
};
struct counter {
    _Alignas(LINE) _Atomic uint32_t value;
};
/* Where a rank sleeps. A peer that did something it waits for rings: adds one to 'rung' and wakes it. */
struct bell {
    _Alignas(LINE) _Atomic uint32_t rung;
    _Atomic uint32_t awaited; /* 0: awake; peer + 1; or ANY_PEER */
};
enum { AWAKE = 0, ANY_PEER = RANKS_MOST + 1, THE_GATE };

/* Where the ranks of a crowd wait for each other, on one lane: the last one of a round opens it for all. Where each
 * awaited each, they would wake each other n^2 times. */
struct gate {
    struct counter arrived; /* of all rounds */
    struct counter round;   /* for which it is open */
    struct counter warned;  /* the last one of which a rank has warned that others are late */
};

struct board_member {
    struct posted posted[LANES][2];
    struct counter steps[LANES]; /* syncs that the owner has reached */
    struct bell bell[ALL_LANES];
    struct note note;
    _Alignas(LINE) _Atomic int32_t pid; /* 0: no rank has come yet */
    _Atomic uint32_t left;
    _Atomic uint64_t space; /* process_space of the owner, 0: not yet known */
};

/* Bytes from one rank to another on one lane. A message is a line that labels it and its bytes,
 * padded to whole lines. Counts are in lines; each is written by one side. */
struct pipe {
    struct counter written, read;
    _Alignas(LINE) char data[];
};

enum failing { NOT_FAILED, FAILING, FAILED };
struct board {
    uint64_t magic;
    int32_t size;  /* ranks */
    int32_t cores; /* that the starter may use */
    struct pipes { /* the size of a pipe */
        uint32_t lines, bytes;
    } pipe, mail_pipe;        /* between calls, and for messages */
    uint64_t slots;           /* offsets, in the order in which they lie */
    uint64_t arrivals;        /* (size, size) bits: ranks of which something may have come on LANE_IN */
    uint64_t pipes;           /* from here on, nothing is there before it is used */
    uint64_t lent, mail, end; /* mail: pipes, too; end: of the fixed part */
    uint64_t lent_bytes;      /* for each rank and lane */
    struct gate gates[LANES];
    _Alignas(LINE) _Atomic uint32_t failed; /* enum failing */
    int32_t error;
    char reason[REASON_MAX];
    _Alignas(LINE) uint64_t used, allocated; /* rank 0's, for alloc: end of all memory, start of the newest */
    struct board_member member[];
};

/* Where the pipe from one rank to another lies. */
static inline uint64_t board_pipe(const struct board *b, int way, int from, int to) {
    size_t size = (size_t)b->size, index = (size_t)from * size + (size_t)to;
    if (way < LANES) return b->pipes + ((size_t)way * size * size + index) * b->pipe.bytes;
    return b->mail + index * b->mail_pipe.bytes;
}
/* Bytes of a rank's row of bits in 'arrivals'. */
static inline size_t board_row(int size) {
    return ((size_t)size / 8 + LINE) / LINE * LINE;
}

struct meeting {
    _Atomic int users; /* that have still to free it */
    int fd;            /* -1: for threads */
    int size;          /* ranks */
    char *base;
    size_t reserved;
    size_t mapped;       /* bytes of it that this process may touch */
    struct board *board; /* at base */
};

/* The host's page: what is mapped begins and ends at its multiples. */
size_t meeting_page(void);
/* Makes the board 'bytes' long, whole pages: after it, every rank may meeting_map. ERR_MEMORY when
 * there is not so much. */
MUST_CHECK enum error meeting_extend(struct meeting *m, size_t bytes);
/* The same, but memory comes when it is touched, and goes by memory_release. */
MUST_CHECK enum error meeting_extend_sparse(struct meeting *m, size_t bytes);
/* Gives memory to a part of the board that all ranks have mapped. */
MUST_CHECK enum error meeting_fill(struct meeting *m, size_t from, size_t bytes);
/* Lets this process touch the first 'bytes' of the board, which has been extended so far. */
MUST_CHECK enum error meeting_map(struct meeting *m, size_t bytes);
