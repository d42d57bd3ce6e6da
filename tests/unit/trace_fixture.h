/* Ranks' trace files that are written here by hand. */
#pragma once
#include "tests/harness/harness.h"

#include "engine/base/digest.h"
#include "engine/base/file.h"
#include "engine/tell/trace_file.h"

#include <stdio.h>
#include <string.h>

enum { FIXTURE_EVENTS = 512, FIXTURE_BUCKETS = 8 };
struct fixture {
    struct trace_head head;
    int64_t bucket[FIXTURE_BUCKETS];
    struct trace_record event[FIXTURE_EVENTS];
    char names[256];
    char file[FIXTURE_EVENTS * 48 + 1024]; /* as made */
    size_t bytes;
};

/* Names are 0: "fc1", 1: "all_reduce", 2: "all_gather". */
static inline void fixture_begin(struct fixture *f, int rank, int size) {
    static const char names[] = "fc1\0all_reduce\0all_gather";
    *f = (struct fixture){.head = {.rank = rank,
                                   .size = size,
                                   .worker = rank,
                                   .names = sizeof names,
                                   .first = 1,
                                   .last = 9,
                                   .mode = "ddp",
                                   .host = "here"}};
    memcpy(f->head.magic, TRACE_MAGIC, sizeof TRACE_MAGIC);
    memcpy(f->names, names, sizeof names);
}

static inline struct trace_record *fixture_add(struct fixture *f, enum trace_kind kind, enum trace_lane lane,
                                               int64_t step, int64_t begin, int64_t end) {
    assert_true(f->head.nevents < FIXTURE_EVENTS);
    struct trace_record *r = &f->event[f->head.nevents++];
    *r = (struct trace_record){.begin = begin,
                               .end = end,
                               .step = step,
                               .name = kind == TRACE_LAYER                        ? 0
                                       : kind == TRACE_CALL || kind == TRACE_WAIT ? 1
                                                                                  : -1,
                               .bucket = -1,
                               .kind = (uint8_t)kind,
                               .lane = (uint8_t)lane};
    return r;
}

/* The file, with a check that fits. */
static inline void fixture_make(struct fixture *f) {
    char *at = f->file + sizeof f->head;
    uint32_t events = f->head.nevents < FIXTURE_EVENTS ? f->head.nevents : FIXTURE_EVENTS,
             buckets = f->head.nbuckets < FIXTURE_BUCKETS ? f->head.nbuckets : FIXTURE_BUCKETS;
    memcpy(at, f->bucket, buckets * sizeof *f->bucket);
    at += buckets * sizeof *f->bucket;
    memcpy(at, f->event, events * sizeof *f->event);
    at += events * sizeof *f->event;
    memcpy(at, f->names, f->head.names < sizeof f->names ? f->head.names : sizeof f->names);
    at += f->head.names < sizeof f->names ? f->head.names : sizeof f->names;
    f->bytes = (size_t)(at - f->file);
    memcpy(f->file, &f->head, sizeof f->head);
    f->head.check = crc32c(0, f->file + TRACE_CHECKED, f->bytes - TRACE_CHECKED);
    memcpy(f->file, &f->head, sizeof f->head);
}

static inline void fixture_write(struct fixture *f, const char *run_dir) {
    char path[700];
    fixture_make(f);
    snprintf(path, sizeof path, "%s/trace", run_dir);
    assert_ok(file_make_folders(path));
    snprintf(path, sizeof path, "%s/trace/rank%d.bin", run_dir, f->head.rank);
    assert_ok(file_replace(path, f->file, f->bytes));
}

/* A step of two buckets, of 400 and 800 bytes, that begins at t: backward from t + 100 to t + 200 has them ready at
 * 40 and 100 hundredths; the first travels at once, the second behind it. */
static inline void fixture_step(struct fixture *f, int64_t step, int64_t t) {
    f->head.nbuckets = 2;
    f->bucket[0] = 400, f->bucket[1] = 800;
    fixture_add(f, TRACE_STEP, TRACE_COMPUTE, step, t, t + 300);
    fixture_add(f, TRACE_LOAD, TRACE_COMPUTE, step, t, t + 10);
    fixture_add(f, TRACE_FORWARD, TRACE_COMPUTE, step, t + 10, t + 100);
    fixture_add(f, TRACE_BACKWARD, TRACE_COMPUTE, step, t + 100, t + 200);
    fixture_add(f, TRACE_LAYER, TRACE_COMPUTE, step, t + 100, t + 139)->backward = 1;
    fixture_add(f, TRACE_READY, TRACE_COMPUTE, step, t + 120, t + 120)->bytes = 300;
    fixture_add(f, TRACE_READY, TRACE_COMPUTE, step, t + 140, t + 140)->bytes = 400;
    fixture_add(f, TRACE_READY, TRACE_COMPUTE, step, t + 200, t + 200)->bytes = 1200;
    fixture_add(f, TRACE_COMM, TRACE_COMPUTE, step, t + 200, t + 280);
    fixture_add(f, TRACE_UPDATE, TRACE_COMPUTE, step, t + 280, t + 300);
    for (int b = 0; b < 2; b++) {
        struct trace_record *call =
            fixture_add(f, TRACE_CALL, TRACE_EXCHANGE, step, b ? t + 220 : t + 141, b ? t + 279 : t + 220);
        struct trace_record *wait =
            fixture_add(f, TRACE_WAIT, TRACE_COMPUTE, step, b ? t + 220 : t + 200, b ? t + 280 : t + 220);
        call->bucket = wait->bucket = b;
        call->bytes = wait->bytes = f->bucket[b];
    }
}
