/* A flight recorder's file, as it is or with checks that fit; and what is printed of two ranks of it. */
#include "tests/fuzz/fuzz.h"

#include "transport/flight/recorder_file.h"

enum { PLACES = 4 };

/* A head that fits its check, with room for a few calls, and records that fit theirs. */
static const char *sealed(int k, const uint8_t *bytes, size_t n) {
    static _Alignas(64) uint8_t file[RECORD_HEAD + PLACES * ALL_LANES * sizeof(struct flight_record)];
    struct record_head *h = (void *)file;
    struct flight_record *e = (void *)(file + RECORD_HEAD);
    memset(file, 0, sizeof file);
    size_t head = n < sizeof *h ? n : sizeof *h;
    memcpy(file, bytes, head);
    memcpy(e, bytes + head, n - head < sizeof file - RECORD_HEAD ? n - head : sizeof file - RECORD_HEAD);
    memcpy(h->magic, RECORD_MAGIC, sizeof h->magic);
    h->size = h->size & 63;
    h->size += h->size == 0;
    h->rank = (int32_t)(((uint32_t)h->rank + (uint32_t)k) % (uint32_t)h->size);
    h->lanes = h->lanes & 1 ? LANES : ALL_LANES;
    h->a_lane = PLACES;
    h->check = record_head_check(h);
    h->wait.call.lane = LANE_IN;
    h->wait.number = 0;
    h->wait.ended = 0;
    h->wait.check = record_check(&h->wait);
    for (uint32_t i = 0; i < PLACES * h->lanes; i++) {
        e[i].call.lane = (uint8_t)(i / PLACES);
        e[i].number = e[i].number / PLACES * PLACES + i % PLACES;
        e[i].check = record_check(&e[i]);
    }
    return fuzz_file(k, file, RECORD_HEAD + PLACES * h->lanes * sizeof *e);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    struct pool *pool;
    struct recording ranks[2];
    int count = 0;
    if (n == 0 || pool_create(&pool) != ERR_NONE) return 0;
    for (int k = 0; k < 2; k++) {
        size_t from = k ? n / 2 : 1, to = k ? n : n / 2;
        const char *path = to <= from          ? fuzz_file(k, bytes, 0)
                           : bytes[0] & 1 << k ? sealed(k, bytes + from, to - from)
                                               : fuzz_file(k, bytes + from, to - from);
        count += recording_read(path, pool, &ranks[count]) == ERR_NONE;
    }
    for (int whole = 0; whole < 2; whole++) {
        char *text;
        if (recording_merge(ranks, count, whole, pool, &text) != ERR_NONE) abort();
        for (const char *c = text; *c; c++)
            if (*c != '\n' && (*c < ' ' || *c > '~')) abort();
    }
    pool_free(pool);
    return 0;
}
