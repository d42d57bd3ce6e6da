/* An operation takes the file's lock, reads the table that it holds, does its work, writes the table back where it has
 * changed, and gives the lock back. Who waits looks every few milliseconds whether the file has changed.
 *
 * Two bytes are locked: one for the time of an operation, one, shared, as long as the store is open: it tells a file
 * that is in use from one that was left behind. The locks are those of open file descriptions (OFD), so that they are
 * gone with who held them, however that died. A process that is killed while it writes leaves a file whose checksum is
 * wrong; that ends the meeting. */
#include "transport/store/file.h"
#include "engine/base/digest.h"
#include "engine/base/file.h"
#include "transport/store/attendance.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BYTE_WORK, BYTE_USED };                     /* the two that are locked */
enum { FIRST_PAUSE = 100, LONGEST_PAUSE = 20000 }; /* us */

struct file_head {
    char magic[8];
    uint32_t crc, bytes; /* of the table, which follows */
};
static const char magic[8] = {'E', 'N', 'G', 'S', 'T', 'O', 'R', '2'};

struct file_store {
    int fd;
    char path[PATH_MAX];
};

/* ---- locks ---- */

static bool byte_lock(int fd, int byte, short kind) {
    struct flock l = {.l_type = kind, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
    return fcntl(fd, F_OFD_SETLK, &l) == 0;
}

static bool file_is_used(int fd) {
    struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = BYTE_USED, .l_len = 1};
    return fcntl(fd, F_OFD_GETLK, &l) == 0 && l.l_type != F_UNLCK;
}

static enum error work_lock(const struct file_store *f, int64_t deadline) {
    int64_t us = FIRST_PAUSE;
    while (!byte_lock(f->fd, BYTE_WORK, F_WRLCK)) {
        if (errno != EAGAIN && errno != EACCES && errno != EINTR)
            return FAIL(ERR_IO, "cannot lock the store '%s': %s\nis its file system mounted without locks?", f->path,
                        strerror(errno));
        if (!store_pause(&us, LONGEST_PAUSE, deadline))
            return FAIL(ERR_TIMEOUT, "the store '%s' stayed locked\nanother process holds it: was that stopped?",
                        f->path);
    }
    return ERR_NONE;
}

static void work_unlock(const struct file_store *f) {
    (void)byte_lock(f->fd, BYTE_WORK, F_UNLCK);
}

/* Whether it was not removed since it was opened. */
static bool file_is_there(const struct file_store *f) {
    struct stat st;
    return fstat(f->fd, &st) == 0 && st.st_nlink > 0;
}

/* ---- the table in the file ---- */

static enum error fail_damaged(const struct file_store *f) {
    return FAIL(ERR_DATA, "the store '%s' is damaged: was a process killed that wrote into it?\nremove it", f->path);
}

/* *ours: what there is may be a store's. An empty file is an empty one's. */
static enum error head_read(const struct file_store *f, struct file_head *h, bool *ours) {
    struct stat st;
    *h = (struct file_head){.bytes = 0};
    ssize_t n = pread(f->fd, h, sizeof *h, 0);
    *ours = n >= 0 && !memcmp(h->magic, magic, (size_t)n < sizeof magic ? (size_t)n : sizeof magic);
    if (!*ours) return FAIL(ERR_DATA, "'%s' is not a store of this program\nname another file", f->path);
    bool whole = n == sizeof *h && fstat(f->fd, &st) == 0 && (uint64_t)st.st_size == sizeof *h + (uint64_t)h->bytes;
    return n == 0 || whole ? ERR_NONE : fail_damaged(f);
}

static enum error table_read(const struct file_store *f, struct store_table *t) {
    struct file_head h;
    bool ours;
    TRY(head_read(f, &h, &ours));
    char *text = malloc((size_t)h.bytes + 1);
    if (!text) return FAIL(ERR_MEMORY, "no memory to read the store '%s'", f->path);
    enum error err = file_pread_all(f->fd, text, h.bytes, sizeof h, f->path);
    if (!err && (crc32c(0, text, h.bytes) != h.crc || !table_load(t, text, h.bytes))) err = fail_damaged(f);
    free(text);
    return err;
}

/* Leaves the file without a table where it cannot be written, as on a full disk. */
static enum error table_write(const struct file_store *f, const struct store_table *t) {
    struct file_text text;
    TRY(file_text_open(&text));
    struct file_head h = {.bytes = 0};
    fwrite(&h, 1, sizeof h, text.out);
    table_save(t, text.out);
    TRY(file_text_close(&text, ERR_NONE));
    memcpy(h.magic, magic, sizeof magic);
    h.bytes = (uint32_t)(text.n - sizeof h);
    h.crc = crc32c(0, text.text + sizeof h, h.bytes);
    memcpy(text.text, &h, sizeof h);
    enum error err = ftruncate(f->fd, 0) != 0 || lseek(f->fd, 0, SEEK_SET) != 0
                         ? FAIL(ERR_IO, "cannot write the store '%s': %s", f->path, strerror(errno))
                         : file_write_all(f->fd, text.text, text.n, f->path);
    free(text.text);
    return err;
}

/* ---- opening ---- */

static enum error path_open(const char *path, int *fd) {
    struct stat st = {0};
    *fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_CREAT, 0600);
    if (*fd < 0)
        return FAIL(ERR_CREATE, "cannot open the store '%s': %s", path,
                    errno == ELOOP ? "it is a symbolic link" : strerror(errno));
    if (fstat(*fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid()) return ERR_NONE;
    close(*fd);
    *fd = -1;
    return S_ISREG(st.st_mode) ? FAIL(ERR_CREATE, "the store '%s' belongs to another user", path)
                               : FAIL(ERR_CREATE, "the store '%s' is not a regular file", path);
}

/* The file may be removed between its opening and its lock. */
static enum error file_take(struct file_store *f, int64_t deadline) {
    struct file_head h;
    bool ours;
    for (;;) {
        TRY(path_open(f->path, &f->fd));
        TRY(work_lock(f, deadline));
        if (file_is_there(f)) break;
        close(f->fd);
    }
    enum error err = head_read(f, &h, &ours);
    if (ours && !file_is_used(f->fd)) /* damaged or not */
        err = ftruncate(f->fd, 0) == 0 ? ERR_NONE
                                       : FAIL(ERR_IO, "cannot empty the store '%s': %s", f->path, strerror(errno));
    (void)byte_lock(f->fd, BYTE_USED, F_RDLCK); /* taken alone under the other lock: never refused */
    work_unlock(f);
    return err;
}

enum error file_store_open(const char *path, int64_t deadline, struct file_store **out) {
    void *memory;
    TRY(memory_alloc(sizeof(struct file_store), &memory));
    struct file_store *f = memory;
    snprintf(f->path, sizeof f->path, "%s", path);
    f->fd = -1;
    enum error err = file_take(f, deadline);
    if (err)
        file_store_close(f, false);
    else
        *out = f;
    return err;
}

void file_store_close(struct file_store *f, bool removes) {
    if (!f) return;
    if (removes && file_is_there(f)) (void)unlink(f->path);
    if (f->fd >= 0) close(f->fd);
    memory_free(f);
}

/* ---- operations ---- */

static enum error work_do(const struct file_store *f, struct store_table *t, const struct request *q, struct pool *pool,
                          struct store_answer *a) {
    if (!file_is_there(f)) return FAIL(ERR_PEER, "the store '%s' was removed", f->path);
    TRY(table_read(f, t));
    if (q->op == STORE_MEET)
        attendance_take(t, q, a);
    else
        table_apply(t, q, a);
    if (table_changed(t)) TRY(table_write(f, t));
    return store_keep(pool, &a->value);
}

static enum error work_locked(const struct file_store *f, const struct request *q, int64_t deadline, struct pool *pool,
                              struct store_answer *a) {
    struct store_table *t;
    TRY(table_create(&t));
    enum error err = work_lock(f, deadline);
    if (!err) err = work_do(f, t, q, pool, a);
    work_unlock(f);
    table_free(t);
    return err;
}

enum error file_store_ask(struct file_store *f, const struct request *q, int64_t deadline, struct pool *pool,
                          struct store_answer *a) {
    int64_t us = FIRST_PAUSE;
    struct file_head seen = {.bytes = 0}, now = seen;
    TRY(work_locked(f, q, deadline, pool, a));
    while (q->wait && a->status == ANSWER_NOT_THERE && store_pause(&us, LONGEST_PAUSE, deadline)) {
        bool same =
            file_is_there(f) && pread(f->fd, &now, sizeof now, 0) == sizeof now && !memcmp(&now, &seen, sizeof now);
        if (same) continue;
        seen = now;
        TRY(work_locked(f, q, deadline, pool, a));
    }
    return ERR_NONE;
}
