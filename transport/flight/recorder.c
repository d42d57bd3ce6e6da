/* The flight recorder's writing side. The file is mapped and shared, so what was stored in it is in the page cache,
 * whatever kills the process a moment later; only the host's own end loses it. Each lane has places of its own and one
 * writer, so no store needs a lock, and a call that never ends is not overwritten by calls of the other lane. */
#include "engine/base/clock.h"
#include "engine/base/digest.h"
#include "engine/base/file.h"
#include "engine/base/process.h"
#include "transport/base/types.h"
#include "transport/flight/recorder_file.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct recorder {
    struct record_head *head; /* the mapping */
    struct flight_record *records;
    uint32_t lanes, a_lane;
    _Atomic uint64_t calls[ALL_LANES]; /* so far */
    _Atomic bool failed;
};

_Static_assert(KINDS <= (int)RECORD_KINDS, "all kinds have a name");
_Static_assert(DTYPES <= (int)RECORD_TYPES, "all types have a name");

uint32_t record_head_check(const struct record_head *h) {
    struct record_head copy = *h;
    copy.check = 0;
    return crc32c(0, &copy, offsetof(struct record_head, end));
}

static void recorder_write_head(const struct recorder *r, const struct recorder_params *p) {
    struct record_head *h = r->head;
    struct timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    memcpy(h->magic, RECORD_MAGIC, sizeof h->magic);
    h->rank = p->rank;
    h->size = p->size;
    h->pid = (int32_t)getpid();
    h->started = process_start(h->pid, NULL);
    h->lanes = r->lanes;
    h->a_lane = r->a_lane;
    h->wall = (int64_t)wall.tv_sec * 1000000000 + wall.tv_nsec;
    h->clock = clock_ns();
    (void)gethostname(h->host, sizeof h->host - 1);
    for (int k = 0; k < KINDS; k++) snprintf(h->kinds[k], sizeof h->kinds[k], "%s", kind_name((enum kind)k));
    for (int t = 0; t < DTYPES; t++) {
        snprintf(h->types[t], sizeof h->types[t], "%s", dtype_name((enum dtype)t));
        h->bytes[t] = (uint8_t)dtype_size((enum dtype)t);
    }
    h->check = record_head_check(h);
}

static enum error recorder_make_folder(const char *path) {
    const char *slash = strrchr(path, '/');
    char folder[PATH_MAX];
    if (!slash || slash == path) return ERR_NONE;
    if (slash - path >= PATH_MAX) return FAIL(ERR_CREATE, "the path '%s' is too long", path);
    snprintf(folder, sizeof folder, "%.*s", (int)(slash - path), path);
    return file_make_folders(folder);
}

static size_t recorder_bytes(uint32_t lanes, uint32_t a_lane) {
    return RECORD_HEAD + (size_t)lanes * a_lane * sizeof(struct flight_record);
}

/* The file gets all its blocks here: a full disk is an error now, and not a signal later. */
static enum error recorder_file_create(const struct recorder_params *p, size_t bytes, int *out) {
    const char *path = p->path;
    TRY(recorder_make_folder(path));
    if (unlink(path) != 0 && errno != ENOENT) return FAIL(ERR_CREATE, "cannot replace '%s': %s", path, strerror(errno));
    *out = open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, p->private ? 0600 : 0666);
    if (*out < 0) return FAIL(ERR_CREATE, "cannot create '%s': %s", path, strerror(errno));
    int why;
    do why = posix_fallocate(*out, 0, (off_t)bytes);
    while (why == EINTR);
    if (!why) return ERR_NONE;
    (void)unlink(path);
    return FAIL(ERR_IO, "cannot write '%s': %s", path, strerror(why));
}

static enum error recorder_map(struct recorder *r, const struct recorder_params *p) {
    size_t bytes = recorder_bytes(r->lanes, r->a_lane);
    int fd = -1;
    enum error err = recorder_file_create(p, bytes, &fd);
    void *map = err ? NULL : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) err = FAIL(ERR_IO, "cannot map '%s': %s", p->path, strerror(errno));
    if (fd >= 0) close(fd);
    r->head = map;
    return err;
}

enum error recorder_open(const struct recorder_params *p, struct recorder **out) {
    assert(p->rank >= 0 && p->rank < p->size && p->size <= RANKS_MOST);
    assert(p->calls > 0 && p->calls <= RECORDER_CALLS);
    struct recorder *r = memory_new(sizeof *r);
    if (!r) return ERR_MEMORY;
    r->lanes = p->mail ? ALL_LANES : LANES;
    r->a_lane = (uint32_t)p->calls;
    enum error err = recorder_map(r, p);
    if (err) {
        memory_free(r);
        return err;
    }
    r->records = (struct flight_record *)(void *)((char *)r->head + RECORD_HEAD);
    recorder_write_head(r, p);
    *out = r;
    return ERR_NONE;
}

void recorder_leave(struct recorder *r, enum recorded_end how) {
    if (r->head->pid == (int32_t)getpid()) atomic_store(&r->head->end, how); /* not in a child that fork has made */
}

void recorder_close(struct recorder *r, bool clean) {
    if (!r) return;
    recorder_leave(r, clean ? RECORDED_CLEAN : RECORDED_FAILED);
    munmap(r->head, recorder_bytes(r->lanes, r->a_lane));
    memory_free(r);
}

void recorder_label(struct recorder *r, const char *label) {
    if (r) snprintf(r->head->label, sizeof r->head->label, "%s", label);
}

bool recorder_failed(const struct recorder *r) {
    return atomic_load(&r->failed);
}

static struct flight_record *record_of(const struct recorder *r, int lane, uint64_t number) {
    return &r->records[(size_t)lane * r->a_lane + number % r->a_lane];
}

static void record_write(struct flight_record *e, uint64_t number, const struct recorded_call *c, int64_t began,
                         int64_t ended, int error) {
    atomic_store_explicit(&e->check, 0, memory_order_relaxed);
    atomic_thread_fence(memory_order_release); /* no reader sees the stores below with the old check */
    atomic_store_explicit(&e->ended, ended, memory_order_relaxed);
    atomic_store_explicit(&e->error, error, memory_order_relaxed);
    e->number = number;
    e->began = began;
    e->call = *c;
    atomic_store_explicit(&e->check, record_check(e), memory_order_release);
}

static uint64_t record_next(struct recorder *r, const struct recorded_call *c, int64_t began, int64_t ended,
                            int error) {
    assert(c->lane < r->lanes);
    uint64_t number = atomic_load_explicit(&r->calls[c->lane], memory_order_relaxed);
    record_write(record_of(r, c->lane, number), number, c, began, ended, error);
    atomic_store_explicit(&r->calls[c->lane], number + 1, memory_order_release);
    return number;
}

uint64_t recorder_begin(struct recorder *r, const struct recorded_call *c) {
    return r ? record_next(r, c, clock_ns(), 0, 0) : 0;
}

void recorder_end(struct recorder *r, int lane, uint64_t number, int error) {
    if (!r) return;
    assert(lane >= 0 && lane < (int)r->lanes && r->calls[lane] > number);
    struct flight_record *e = record_of(r, lane, number);
    if (error) atomic_store(&r->failed, true);
    if (e->number != number) return; /* overwritten: more calls have begun since than there are places */
    atomic_store_explicit(&e->error, error, memory_order_relaxed);
    atomic_store_explicit(&e->ended, clock_ns(), memory_order_release);
}

void recorder_add(struct recorder *r, const struct recorded_call *c, int64_t began, int error) {
    if (!r) return;
    if (error) atomic_store(&r->failed, true);
    record_next(r, c, began, clock_ns(), error);
}

void recorder_wait(struct recorder *r, const struct recorded_call *c, int64_t began) {
    if (!r) return;
    assert(r->lanes == ALL_LANES);
    if (c)
        record_write(&r->head->wait, 0, c, began, 0, 0);
    else
        atomic_store_explicit(&r->head->wait.check, 0, memory_order_release);
}

void recorder_note(struct recorder *r, const char *doing, int64_t step) {
    if (r) note_write(&r->head->note, doing, step);
}

int recorder_recall(const struct recorder *r, int lane, int64_t number, struct recording_call *out, int n) {
    int64_t calls = lane < (int)r->lanes ? (int64_t)atomic_load(&r->calls[lane]) : 0;
    int64_t oldest = calls > r->a_lane ? calls - r->a_lane : 0;
    int count = 0;
    for (int64_t i = number > oldest ? number : oldest; i < calls && count < n; i++) {
        struct flight_record e, *at = record_of(r, lane, (uint64_t)i);
        memcpy(&e, at, sizeof e);
        if (record_read(r->head, &e, (size_t)(at - r->records), &out[count])) count += out[count].number == i;
    }
    return count;
}
