/* The flight recorder's reading side: one rank's file, which may be cut, torn or hold anything. */
#include "engine/base/file.h"
#include "engine/base/process.h"
#include "transport/flight/recorder_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Copies text, with '?' for what could disturb a terminal; src may lack its zero. */
static void copy_printable(char *dst, size_t size, const char *src, size_t n) {
    size_t i = 0;
    for (; i + 1 < size && i < n && src[i]; i++) dst[i] = src[i] >= ' ' && src[i] <= '~' ? src[i] : '?';
    dst[i] = '\0';
}

#define X(name, text, code) +1
enum { KNOWN_ERRORS = 0 ERRORS(X) };
#undef X

static enum error recording_check_head(const char *path, const struct record_head *h) {
    if (memcmp(h->magic, RECORD_MAGIC, sizeof h->magic))
        return FAIL(ERR_DATA, "'%s' is not a flight recorder's file", path);
    if (h->check != record_head_check(h) || h->size < 1 || h->size > RANKS_MOST || h->rank < 0 || h->rank >= h->size ||
        (h->lanes != LANES && h->lanes != ALL_LANES) || h->a_lane < 1 || h->a_lane > RECORDER_CALLS)
        return FAIL(ERR_DATA, "'%s': the head is damaged", path);
    return ERR_NONE;
}

/* Processes on other hosts are not looked up. */
static enum recorded_process recording_process(const struct record_head *h, const char *host) {
    char here[64] = "", state = 0;
    (void)gethostname(here, sizeof here - 1);
    if (strcmp(here, host) != 0 || h->pid <= 0) return PROCESS_UNKNOWN;
    unsigned long long started = process_start(h->pid, &state);
    if (started == 0 || started != h->started) return PROCESS_GONE;
    return state == 'T' || state == 't' ? PROCESS_STOPPED : PROCESS_LIVES;
}

/* A note that was being written when the rank died is left out. */
static void recording_read_head(const struct record_head *h, struct recording *out) {
    *out = (struct recording){.rank = h->rank,
                              .size = h->size,
                              .pid = h->pid,
                              .wall = h->wall,
                              .clock = h->clock,
                              .closed = h->end != RECORDED_OPEN,
                              .clean = h->end == RECORDED_CLEAN,
                              .exited = h->end == RECORDED_EXIT};
    copy_printable(out->host, sizeof out->host, h->host, sizeof h->host);
    copy_printable(out->label, sizeof out->label, h->label, sizeof h->label);
    out->process = recording_process(h, out->host);
    if (h->note.version % 2 || h->note.version == 0) return;
    char doing[RECORDER_TEXT];
    memcpy(doing, h->note.text, sizeof doing);
    copy_printable(out->doing, sizeof out->doing, doing, sizeof doing);
    out->step = h->note.step;
    out->noted = h->note.time;
}

static int64_t record_bytes(const struct record_head *h, const struct recorded_call *c) {
    int64_t bytes;
    if (c->type >= RECORD_TYPES || c->count < 0) return 0;
    return __builtin_mul_overflow(c->count, (int64_t)h->bytes[c->type], &bytes) ? 0 : bytes;
}

/* Gives false for a place that was never used, too. */
bool record_read(const struct record_head *h, const struct flight_record *e, size_t place, struct recording_call *out) {
    const struct recorded_call *c = &e->call;
    if (e->check == 0 || e->check != record_check(e)) return false;
    if (c->lane != place / h->a_lane || e->number % h->a_lane != place % h->a_lane) return false;
    if (e->ended != 0 && e->ended < e->began) return false;
    *out = (struct recording_call){.call = *c,
                                   .began = e->began,
                                   .ended = e->ended,
                                   .number = (int64_t)e->number,
                                   .bytes = record_bytes(h, c),
                                   .error = e->error >= 0 && e->error < KNOWN_ERRORS ? e->error : (int)ERR_BUG};
    if (c->kind < RECORD_KINDS && *h->kinds[c->kind])
        copy_printable(out->name, sizeof out->name, h->kinds[c->kind], sizeof h->kinds[0]);
    else
        snprintf(out->name, sizeof out->name, "call of kind %u", c->kind);
    if (c->type < RECORD_TYPES) copy_printable(out->type, sizeof out->type, h->types[c->type], sizeof h->types[0]);
    return true;
}

static int call_by_time(const void *a, const void *b) {
    const struct recording_call *x = a, *y = b;
    return (x->began > y->began) - (x->began < y->began);
}

static enum error recording_peek(const char *path, struct recording *out) {
    struct record_head head;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) return FAIL(ERR_INPUT, "cannot open '%s'", path);
    enum error err = file_pread_all(fd, &head, sizeof head, 0, path);
    close(fd);
    if (!err) err = recording_check_head(path, &head);
    if (!err) recording_read_head(&head, out);
    return err;
}

enum error recording_read(const char *path, struct pool *pool, struct recording *out) {
    char *bytes;
    size_t n;
    struct record_head head;
    if (!pool) return recording_peek(path, out);
    TRY(file_read(path, RECORD_FILE, pool, &bytes, &n));
    if (n < RECORD_HEAD)
        return FAIL(ERR_DATA, "'%s' has %zu bytes, a flight recorder's file at least %d", path, n, RECORD_HEAD);
    memcpy(&head, bytes, sizeof head);
    TRY(recording_check_head(path, &head));
    size_t places = (size_t)head.a_lane * head.lanes;
    if (n != RECORD_HEAD + places * sizeof(struct flight_record))
        return FAIL(ERR_DATA, "'%s' has %zu bytes, and should have %zu", path, n,
                    RECORD_HEAD + places * sizeof(struct flight_record));
    recording_read_head(&head, out);
    TRY_MEMORY(out->calls = pool_alloc(pool, (places + 1) * sizeof *out->calls));
    for (size_t i = 0; i < places; i++) {
        struct flight_record e;
        memcpy(&e, bytes + RECORD_HEAD + i * sizeof e, sizeof e);
        out->ncalls += record_read(&head, &e, i, &out->calls[out->ncalls]);
    }
    if (head.lanes == ALL_LANES && !head.wait.ended)
        out->ncalls += record_read(&head, &head.wait, (size_t)LANE_IN * head.a_lane, &out->calls[out->ncalls]);
    qsort(out->calls, (size_t)out->ncalls, sizeof *out->calls, call_by_time);
    return ERR_NONE;
}
