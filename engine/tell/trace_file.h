/* The format of a rank's trace file: a header, the bytes of the buckets, events, and the names that they refer to,
 * each followed by a NUL. Numbers have the byte order of the machine. */
#pragma once
#include "engine/tell/trace.h"

#define TRACE_MAGIC "engine trace 2"
enum {
    TRACE_EVENTS_MOST = 1 << 18, /* of a writer */
    TRACE_NAMES_MOST = 1 << 16,  /* bytes */
    TRACE_BUCKETS_MOST = 1 << 16,
};
struct trace_head {
    char magic[16];
    uint32_t check; /* crc32c of all that follows, to the end of the file */
    int32_t rank, size, worker;
    uint32_t serves, accel, nevents, nbuckets, names; /* names: bytes */
    int32_t unused;
    int64_t first, last, dropped, offset, round_trip;
    char mode[16], host[64], run_id[24];
};
_Static_assert(sizeof(struct trace_head) == 200, "no gaps");
enum { TRACE_CHECKED = 20 }; /* where 'check' begins to count */
struct trace_record {
    int64_t begin, end, step, bytes;
    int32_t name, bucket; /* -1: none */
    uint8_t kind, lane, backward, weights, unused[4];
};
_Static_assert(sizeof(struct trace_record) == 48, "no gaps");
