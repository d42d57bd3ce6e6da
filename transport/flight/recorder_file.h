/* The format of a flight recorder's file: a header of one page, and the last calls of each lane: of LANES, or with
 * messages of ALL_LANES. The header names kinds and types, so that a reader needs nothing of the program that wrote it. */
#pragma once
#include "transport/flight/recorder.h"
#include "transport/link/words.h"

#include <stdatomic.h>

enum {
    RECORD_HEAD = 4096,
    RECORD_KINDS = 32,
    RECORD_TYPES = 16,
    RECORD_FILE = RECORD_HEAD + ALL_LANES * RECORDER_CALLS * 64, /* at most */
};
#define RECORD_MAGIC "engine flight 4"

/* One call. 'check' is 0 while the rest is being written, and fits it otherwise; the end of the
 * call is not part of it. Call number n of a lane lies at place n modulo a_lane. */
struct flight_record {
    _Atomic uint32_t check;
    _Atomic int32_t error;
    _Atomic int64_t ended;
    uint64_t number;
    int64_t began;
    struct recorded_call call;
};
_Static_assert(sizeof(struct flight_record) == 64, "records are a line each");

struct record_head {
    char magic[16];
    int32_t rank, size, pid;
    uint32_t check;   /* crc32c of what is written once: the head up to 'end', with 0 here */
    uint64_t started; /* the process, as process_start says */
    uint32_t lanes;   /* LANES or ALL_LANES */
    uint32_t a_lane;  /* places for calls of each lane */
    int64_t wall, clock;
    char host[64];
    char kinds[RECORD_KINDS][24], types[RECORD_TYPES][8];
    uint8_t bytes[RECORD_TYPES]; /* of an element of each type */
    _Atomic uint32_t end;        /* enum recorded_end */
    char label[RECORDER_TEXT];
    struct note note;          /* the current work of the rank */
    struct flight_record wait; /* number 0 of LANE_IN, which has not ended; check 0: the rank waits for no message */
};
_Static_assert(sizeof(struct record_head) <= RECORD_HEAD, "the head is one page");
_Static_assert((int)RECORDER_TEXT == (int)NOTE_TEXT, "a note is read whole");

/* Never 0. */
static inline uint32_t record_check(const struct flight_record *r) {
    const struct recorded_call *c = &r->call;
    uint64_t what = (uint64_t)c->lane | (uint64_t)c->kind << 8 | (uint64_t)c->type << 16 | (uint64_t)c->op << 24 |
                    (uint64_t)(uint32_t)c->peer << 32;
    const uint64_t words[] = {r->number, (uint64_t)r->began, (uint64_t)c->count, (uint64_t)c->tag, c->sequence, what};
    uint64_t h = 0xcbf29ce484222325u;
    for (int i = 0; i < 6; i++) {
        h = (h ^ words[i]) * 0x9e3779b97f4a7c15u;
        h ^= h >> 32;
    }
    return (uint32_t)h | 1;
}

/* The record's call: false where it is torn or damaged. place: where it lies, of all lanes' records. */
bool record_read(const struct record_head *h, const struct flight_record *e, size_t place, struct recording_call *out);
/* The checksum of the head's part that is written once. */
uint32_t record_head_check(const struct record_head *h);
