/* file: the store of processes that share a folder, in one file: a log (file_log.h) of which each
 * process keeps a table.
 *
 * An operation takes the file's lock, reads what others have appended, does its work on the table,
 * appends what has changed, and gives the lock back. Who waits for a key looks again every few
 * milliseconds. The lock is one of open file descriptions (OFD), so that it holds between threads
 * and between processes alike, and is gone with who held it, however that died.
 *
 * Two bytes are locked: one for the time of an operation, one, shared, as long as the store is
 * open. The latter tells a file that is in use from one that an earlier run left behind, which is
 * begun afresh. The log only grows: ranks write to it while they meet, and little afterwards.
 *
 * Over NFS this needs version 4 (locks) and a server that is alive: a lock there may outlive its
 * holder by the server's lease, and a folder that is mounted without locks (nolock) does not do. */
#include "engine/base/file.h"
#include "engine/base/process.h"
#include "transport/store/file_log.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BYTE_WORK, BYTE_USED };                     /* the two that are locked */
enum { FIRST_PAUSE = 100, LONGEST_PAUSE = 20000 }; /* us */

struct file {
    struct store store;
    pthread_mutex_t lock; /* of this store's threads: they share one file description */
    char *path;
    int fd;
    uint64_t life; /* of the log that the table was read from */
    struct store_table *table;
    off_t end; /* of what was read of it */
};

/* ---- locks ---- */

static bool lock_byte(int fd, int byte, short kind) {
    struct flock l = {.l_type = kind, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
    return fcntl(fd, F_OFD_SETLK, &l) == 0;
}

static bool is_used(int fd) {
    struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = BYTE_USED, .l_len = 1};
    return fcntl(fd, F_OFD_GETLK, &l) == 0 && l.l_type != F_UNLCK;
}

static enum error fail_locked(const struct file *f) {
    if (errno == EAGAIN || errno == EACCES)
        return FAIL(ERR_TIMEOUT, "the store '%s' stayed locked\nanother process holds it: was that stopped?", f->path);
    return FAIL(ERR_IO, "cannot lock the store '%s': %s\nis its file system mounted without locks?", f->path,
                strerror(errno));
}

static enum error lock_work(const struct file *f, int fd, int64_t deadline) {
    int64_t us = FIRST_PAUSE;
    while (!lock_byte(fd, BYTE_WORK, F_WRLCK)) {
        int code = errno;
        bool held = code == EAGAIN || code == EACCES || code == EINTR;
        if (held && store_pause(&us, LONGEST_PAUSE, deadline)) continue;
        errno = code;
        return fail_locked(f);
    }
    return ERR_NONE;
}

/* ---- opening ---- */

static enum error open_file(const char *path, int *fd) {
    struct stat st = {0};
    *fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_CREAT, 0600);
    if (*fd < 0)
        return FAIL(ERR_CREATE, "cannot open the store '%s': %s", path,
                    errno == ELOOP ? "it is a symbolic link" : strerror(errno));
    if (fstat(*fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid()) return ERR_NONE;
    close(*fd);
    return S_ISREG(st.st_mode) ? FAIL(ERR_CREATE, "the store '%s' belongs to another user", path)
                               : FAIL(ERR_CREATE, "the store '%s' is not a regular file", path);
}

/* Whether the path still leads to what fd is. */
static bool is_current(const struct file *f, int fd) {
    struct stat a, b;
    return fstat(fd, &a) == 0 && stat(f->path, &b) == 0 && a.st_ino == b.st_ino && a.st_dev == b.st_dev;
}

/* Opens the file that the path leads to, and locks it. */
static enum error open_locked(const struct file *f, int64_t deadline, int *fd) {
    for (;;) {
        TRY(open_file(f->path, fd));
        enum error err = lock_work(f, *fd, deadline);
        if (!err && is_current(f, *fd)) return ERR_NONE;
        close(*fd);
        if (err) return err;
    }
}

/* run: "" for any. */
static enum error file_join(struct file *f, int fd, const char *run) {
    struct log_header h;
    enum log_state state;
    char who[128];
    TRY(log_read_header(fd, f->path, &h, &state));
    bool other = state == LOG_WHOLE && *run && strcmp(h.run, run) != 0;
    if (other && is_used(fd))
        return FAIL(ERR_CREATE, "the store '%s' is in use by run '%s' (begun by %s)", f->path, h.run, h.who);
    if (other || state == LOG_EMPTY) {
        process_who(who);
        TRY(log_begin(fd, f->path, run, who, &h));
    }
    f->fd = fd;
    f->life = h.life;
    f->end = LOG_START;
    (void)lock_byte(fd, BYTE_USED, F_RDLCK); /* taken alone under the other lock: never refused */
    return ERR_NONE;
}

static void file_close(struct store *s) {
    struct file *f = (struct file *)s;
    if (f->fd >= 0) close(f->fd);
    pthread_mutex_destroy(&f->lock);
    table_free(f->table);
    free(f->path);
    free(f);
}

static enum error file_start(struct file *f, const struct store_params *p, const char *path, int64_t deadline) {
    int fd;
    f->path = strdup(path);
    if (!f->path) return FAIL(ERR_MEMORY, "cannot allocate a store");
    TRY(table_create(&f->table));
    TRY(store_name(&f->store, "file://%s", path));
    TRY(open_locked(f, deadline, &fd));
    enum error err = file_join(f, fd, p->run ? p->run : "");
    if (err) {
        close(fd);
        return err;
    }
    (void)lock_byte(fd, BYTE_WORK, F_UNLCK);
    return ERR_NONE;
}

static enum error file_open(const struct store_params *p, const char *where, int64_t deadline, struct store **out) {
    if (strncmp(where, "///", 3) || !where[3])
        return FAIL(ERR_CONFIG, "'file:%.200s' names no file\nwrite file:///PATH", where);
    struct file *f = calloc(1, sizeof *f);
    if (!f) return FAIL(ERR_MEMORY, "cannot allocate a store");
    f->fd = -1;
    pthread_mutex_init(&f->lock, NULL);
    enum error err = file_start(f, p, where + 2, deadline);
    if (err) {
        free(f->store.url);
        file_close(&f->store);
        return err;
    }
    *out = &f->store;
    return ERR_NONE;
}

/* ---- operations, under both locks ---- */

/* The path still leads to the log that this process has open, and nobody has emptied it since. */
static enum error check_life(const struct file *f) {
    uint64_t life = 0;
    if (access(f->path, F_OK) != 0) return FAIL(ERR_CREATE, "cannot open the store '%s': %s", f->path, strerror(errno));
    if (is_current(f, f->fd))
        TRY(file_pread_all(f->fd, &life, sizeof life, offsetof(struct log_header, life), f->path));
    return life == f->life ? ERR_NONE : FAIL(ERR_PEER, "another run has begun the store '%s' afresh", f->path);
}

static enum error file_work(struct file *f, const struct request *q, struct pool *pool, struct store_answer *a) {
    TRY(check_life(f));
    TRY(log_replay(f->fd, f->path, f->table, &f->end));
    table_apply(f->table, q, a);
    if (a->changed) {
        enum error err = log_append(f->fd, f->path, q->key, table_find(f->table, q->key), &f->end);
        if (err) { /* the table is ahead of the file: it is read again */
            table_clear(f->table);
            f->end = LOG_START;
            return err;
        }
    }
    return store_keep(pool, &a->value);
}

static enum error work_locked(struct file *f, const struct request *q, int64_t deadline, struct pool *pool,
                              struct store_answer *a) {
    TRY(lock_work(f, f->fd, deadline));
    enum error err = file_work(f, q, pool, a);
    (void)lock_byte(f->fd, BYTE_WORK, F_UNLCK);
    return err;
}

/* Not for longer than until the deadline: a thread in front may wait for a stopped process. */
static enum error lock_thread(struct file *f, int64_t deadline) {
    int64_t us = FIRST_PAUSE;
    while (pthread_mutex_trylock(&f->lock) != 0)
        if (!store_pause(&us, LONGEST_PAUSE, deadline))
            return FAIL(ERR_TIMEOUT, "the store '%s' stayed in use", f->path);
    return ERR_NONE;
}

static enum error file_call(struct store *s, const struct request *q, int64_t deadline, struct pool *pool,
                            struct store_answer *a) {
    struct file *f = (struct file *)s;
    int64_t us = FIRST_PAUSE;
    do {
        TRY(lock_thread(f, deadline));
        enum error err = work_locked(f, q, deadline, pool, a);
        pthread_mutex_unlock(&f->lock);
        if (err) return err;
    } while (a->status == ANSWER_NOT_THERE && store_pause(&us, LONGEST_PAUSE, deadline));
    return ERR_NONE;
}

const struct store_ops store_file = {.scheme = "file", .open = file_open, .call = file_call, .close = file_close};
