/* A meeting owns the board on which ranks of one host find each other (link/board.h). It reserves
 * as much address space as the host has memory, less where that is limited, so that the board can
 * grow in place and an offset in it is a place that every rank understands. For threads that is an
 * anonymous mapping, for processes a memfd: nothing of it is left when they die, however they die. */
#include "transport/link/meeting.h"
#include "engine/base/process.h"
#include "transport/link/board.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static const uint64_t magic = 0x656e67626f617264u + (uint64_t)sizeof(struct board) + SLOT_BYTES;

static size_t round_up(size_t n, size_t to) {
    return (n + to - 1) / to * to;
}

size_t meeting_page(void) {
    return (size_t)sysconf(_SC_PAGESIZE);
}

/* At most so many bytes a pipe; for many ranks less, so that all pipes stay within about 16 MB. In a crowd each has a
 * page of its own, so that nobody pays for those that are not used. */
static struct pipes plan_pipes(int size, int ways, size_t bytes) {
    enum { PAGE = 4096 };
    size_t pipes = (size_t)ways * (size_t)size * (size_t)size;
    while (bytes > 4096 && bytes * pipes > 16 << 20) bytes /= 2;
    if (size > CROWD) return (struct pipes){PAGE / 2 / LINE, PAGE};
    return (struct pipes){(uint32_t)(bytes / LINE), (uint32_t)(sizeof(struct pipe) + bytes)};
}

/* 4 MB for two ranks; for many, less, so that all of a lane's stay within 8 MB, but never little. A call that needs more
 * waits for its peers once more for each of these, and a wait is dear where the cores are busy with something else. */
static size_t plan_lent_bytes(int size) {
    enum { LEAST = 64 << 10 };
    size_t bytes = 4 << 20;
    while (bytes > LEAST && bytes * (size_t)size > 8 << 20) bytes /= 2;
    return bytes;
}

static struct board board_plan(int size) {
    struct board b = {.magic = magic, .size = size, .lent_bytes = plan_lent_bytes(size)};
    size_t ranks = (size_t)size;
    b.pipe = plan_pipes(size, LANES, 128 << 10);
    b.mail_pipe = plan_pipes(size, 1, 1 << 20);
    b.slots = round_up(sizeof b + ranks * sizeof(struct board_member), meeting_page());
    b.arrivals = b.slots + LANES * ranks * 2 * SLOT_BYTES;
    b.pipes = round_up(b.arrivals + ranks * board_row(size), meeting_page());
    b.lent = round_up(b.pipes + LANES * ranks * ranks * b.pipe.bytes, meeting_page());
    b.mail = round_up(b.lent + LANES * ranks * b.lent_bytes, meeting_page());
    b.end = round_up(b.mail + ranks * ranks * b.mail_pipe.bytes, meeting_page());
    b.used = b.end;
    return b;
}

static int host_cores(void) {
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

/* As much as the host has memory, beside what is there only in part; and of a limited address space half: the rest of
 * the process needs some, too. */
static size_t meeting_reserve_most(size_t fixed) {
    size_t host = host_memory() + fixed;
    struct rlimit limit;
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return host;
    size_t half = (size_t)limit.rlim_cur / 2 / meeting_page() * meeting_page();
    return half < host ? half : host;
}

/* Less where there is not so much, as long as it is worth it. */
static enum error meeting_reserve(struct meeting *m, size_t fixed) {
    enum { LEAST = 16 << 20 };
    errno = ENOMEM; /* if there is not even room to try */
    for (size_t n = meeting_reserve_most(fixed); n >= LEAST; n = round_up(n / 2, meeting_page())) {
        void *base = mmap(NULL, n, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (base == MAP_FAILED) continue;
        m->base = base;
        m->reserved = n;
        return ERR_NONE;
    }
    return FAIL(ERR_MEMORY, "cannot reserve %d bytes of addresses: %s\nis there a limit on them (ulimit -v)?",
                (int)LEAST, strerror(errno));
}

static enum error meeting_check_reserved(const struct meeting *m, size_t bytes) {
    if (bytes <= m->reserved) return ERR_NONE;
    if (m->reserved >= host_memory())
        return FAIL(ERR_MEMORY, "cannot share %zu bytes: the host has %zu", bytes, host_memory());
    return FAIL(ERR_MEMORY, "cannot share %zu bytes: the limit on addresses (ulimit -v) leaves %zu for them", bytes,
                m->reserved);
}

static enum error meeting_fail_share(size_t bytes, int why) {
    if (why == EFBIG)
        return FAIL(ERR_IO,
                    "cannot share %zu bytes: %s\nthe limit on the size of files (ulimit -f) also holds for what "
                    "processes share: raise it, or use mode dp",
                    bytes, strerror(why));
    return FAIL(ERR_MEMORY, "cannot share %zu bytes: %s", bytes, strerror(why));
}

enum error meeting_extend(struct meeting *m, size_t bytes) {
    TRY(meeting_check_reserved(m, bytes));
    return bytes <= m->mapped ? ERR_NONE : meeting_fill(m, m->mapped, bytes - m->mapped);
}

/* Memory of threads comes as they touch it. */
enum error meeting_fill(struct meeting *m, size_t from, size_t bytes) {
    int err = m->fd < 0 ? 0 : posix_fallocate(m->fd, (off_t)from, (off_t)bytes);
    return err ? meeting_fail_share(from + bytes, err) : ERR_NONE;
}

enum error meeting_extend_sparse(struct meeting *m, size_t bytes) {
    TRY(meeting_check_reserved(m, bytes));
    bool longer = m->fd >= 0 && bytes > m->mapped;
    return longer && ftruncate(m->fd, (off_t)bytes) != 0 ? meeting_fail_share(bytes, errno) : ERR_NONE;
}

enum error meeting_map(struct meeting *m, size_t bytes) {
    if (bytes <= m->mapped) return ERR_NONE;
    TRY(meeting_check_reserved(m, bytes)); /* another rank may have more */
    char *from = m->base + m->mapped;
    size_t more = bytes - m->mapped;
    bool ok = m->fd < 0 ? mprotect(from, more, PROT_READ | PROT_WRITE) == 0
                        : mmap(from, more, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, m->fd, (off_t)m->mapped) !=
                              MAP_FAILED;
    if (!ok) return FAIL(ERR_MEMORY, "cannot map %zu bytes: %s", more, strerror(errno));
    bool sparse = m->mapped == 0 && m->size > CROWD; /* else huge, where the host has such pages for this kind */
    (void)madvise(from, more, sparse ? MADV_NOHUGEPAGE : MADV_HUGEPAGE);
    m->mapped = bytes;
    return ERR_NONE;
}

/* Takes over fd, also when it fails. */
static enum error meeting_new(int fd, int size, struct meeting **out) {
    struct meeting *m = calloc(1, sizeof *m);
    if (!m) {
        if (fd >= 0) close(fd);
        return FAIL(ERR_MEMORY, "cannot allocate a meeting");
    }
    m->users = 1;
    m->fd = fd;
    m->size = size;
    enum error err = meeting_reserve(m, board_plan(size).end);
    if (err) {
        meeting_free(m);
        return err;
    }
    *out = m;
    return ERR_NONE;
}

static enum error meeting_start(int size, int fd, struct meeting **out) {
    struct meeting *m;
    enum error err;
    TRY(meeting_new(fd, size, &m));
    struct board plan = board_plan(size);
    TRY_GOTO(err, meeting_extend(m, plan.pipes), failed);
    TRY_GOTO(err, meeting_extend_sparse(m, plan.end), failed);
    TRY_GOTO(err, meeting_map(m, plan.end), failed);
    m->board = (struct board *)m->base;
    *m->board = plan;
    m->board->cores = host_cores();
    *out = m;
    return ERR_NONE;
failed:
    meeting_free(m);
    return err;
}

static enum error meeting_check_size(int size) {
    if (size < 1 || size > RANKS_MOST)
        return FAIL(ERR_CONFIG, "%d ranks on one host\nfrom 1 to %d are possible", size, RANKS_MOST);
    return ERR_NONE;
}

enum error meeting_create(int size, struct meeting **out) {
    TRY(meeting_check_size(size));
    return meeting_start(size, -1, out);
}

enum error meeting_create_shared(int size, struct meeting **out) {
    TRY(meeting_check_size(size));
    int fd = memfd_create("engine-ranks", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) return FAIL(ERR_CREATE, "memfd_create: %s", strerror(errno));
    (void)fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK); /* a mapped file that shrinks kills who reads it */
    return meeting_start(size, fd, out);
}

/* The file must be a board for this number of ranks before anything in it is trusted. */
static enum error meeting_check_board(int fd, int size) {
    struct board plan = board_plan(size), got;
    struct stat st;
    if (fstat(fd, &st) != 0) return FAIL(ERR_USAGE, "descriptor %d: %s", fd, strerror(errno));
    if (!S_ISREG(st.st_mode) || pread(fd, &got, sizeof got, 0) != (ssize_t)sizeof got || got.magic != magic)
        return FAIL(ERR_DATA, "descriptor %d is not where ranks of this program meet", fd);
    if (got.size != size) return FAIL(ERR_MISMATCH, "this rank expects %d ranks, its starter %d", size, got.size);
    plan.cores = got.cores; /* the starter's */
    if (memcmp(&got, &plan, offsetof(struct board, lent_bytes)) != 0 || (uint64_t)st.st_size < plan.end)
        return FAIL(ERR_DATA, "descriptor %d: a board of another program", fd);
    return ERR_NONE;
}

enum error meeting_join(int fd, int size, struct meeting **out) {
    struct meeting *m;
    TRY(meeting_check_size(size));
    TRY(meeting_check_board(fd, size));
    int own = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (own < 0) return FAIL(ERR_IO, "descriptor %d: %s", fd, strerror(errno));
    TRY(meeting_new(own, size, &m));
    enum error err = meeting_map(m, board_plan(size).end);
    if (err) {
        meeting_free(m);
        return err;
    }
    m->board = (struct board *)m->base;
    *out = m;
    return ERR_NONE;
}

int meeting_fd(const struct meeting *m) {
    return m->fd;
}

enum error meeting_join_of(int64_t pid, int64_t fd, int size, struct meeting **out) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%lld/fd/%lld", (long long)pid, (long long)fd);
    int own = open(path, O_RDWR | O_CLOEXEC);
    if (own < 0)
        return FAIL(ERR_PEER,
                    "cannot share memory with process %lld: %s\nwhere ranks of one host may not see each other, use "
                    "comm.link: tcp",
                    (long long)pid, strerror(errno));
    enum error err = meeting_join(own, size, out);
    close(own);
    return err;
}

void meeting_share(struct meeting *m, int users) {
    m->users = users;
}

void meeting_free(struct meeting *m) {
    if (!m || atomic_fetch_sub(&m->users, 1) > 1) return;
    if (m->base) munmap(m->base, m->reserved);
    if (m->fd >= 0) close(m->fd);
    free(m);
}
