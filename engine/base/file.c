/* Files. Every call's result is looked at, close's too, and a failed fsync is final: the kernel may
 * have dropped the data, so that a second one would report success about a file that is not there.
 */
#include "engine/base/file.h"
#include "engine/base/clock.h"
#include "engine/base/log.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <link.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

/* For a call that failed on a path. */
static enum error fail_path(enum error err, const char *what, const char *path) {
    return FAIL(err, "cannot %s '%s': %s", what, path, strerror(errno));
}

static enum error read_upto(int fd, const char *path, char *text, size_t size, size_t *length) {
    size_t done = 0;
    while (done < size) {
        ssize_t n = read(fd, text + done, size - done);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return fail_path(ERR_IO, "read", path);
        if (n == 0) break;
        done += (size_t)n;
    }
    *length = done;
    return ERR_NONE;
}

static enum error read_regular(int fd, const char *path, size_t limit, struct pool *pool, char **text, size_t *length) {
    struct stat st;
    if (fstat(fd, &st) != 0) return fail_path(ERR_IO, "look at", path);
    if (S_ISDIR(st.st_mode)) return FAIL(ERR_DATA, "'%s' is a folder, not a file", path);
    if (!S_ISREG(st.st_mode)) return FAIL(ERR_DATA, "'%s' is not a regular file", path);
    if ((uint64_t)st.st_size > limit)
        return FAIL(ERR_DATA, "'%s' has %lld bytes; at most %zu are allowed", path, (long long)st.st_size, limit);
    char *t = pool_alloc(pool, (size_t)st.st_size + 1);
    if (!t) return ERR_MEMORY;
    TRY(read_upto(fd, path, t, (size_t)st.st_size, length));
    *text = t;
    return ERR_NONE;
}

enum error file_read(const char *path, size_t limit, struct pool *pool, char **text, size_t *length) {
    if (!path) return ERR_MEMORY;
    /* O_NONBLOCK: opening a fifo must not wait for its writer. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        bool missing = errno == ENOENT || errno == ENOTDIR;
        return fail_path(missing ? ERR_INPUT : ERR_IO, "open", path);
    }
    enum error err = read_regular(fd, path, limit, pool, text, length);
    close(fd);
    return err;
}

enum error file_write_all(int fd, const void *data, size_t n, const char *path) {
    for (const char *p = data; n;) {
        ssize_t done = write(fd, p, n);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) return fail_path(ERR_IO, "write", path);
        p += done, n -= (size_t)done;
    }
    return ERR_NONE;
}

enum error file_write_console(int fd, const void *data, size_t n) {
    enum error err = file_write_all(fd, data, n, "standard output");
    return err != ERR_NONE && file_reader_gone(fd) ? ERR_NONE : err;
}

bool file_reader_gone(int fd) {
    struct pollfd p = {.fd = fd};
    return poll(&p, 1, 0) == 1 && (p.revents & (POLLERR | POLLHUP));
}

int file_columns(int fd) {
    struct winsize w;
    return ioctl(fd, TIOCGWINSZ, &w) == 0 ? w.ws_col : 0;
}

enum error file_pread_all(int fd, void *data, size_t n, int64_t offset, const char *path) {
    for (char *p = data; n;) {
        ssize_t done = pread(fd, p, n, offset);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) return fail_path(ERR_IO, "read", path);
        if (done == 0) return FAIL(ERR_DATA, "'%s' ends at byte %lld, %zu bytes early", path, (long long)offset, n);
        p += done, n -= (size_t)done, offset += done;
    }
    return ERR_NONE;
}

/* Syncs the folder that holds path: its text up to the last '/', or ".". */
static enum error sync_parent(const char *path) {
    const char *slash = strrchr(path, '/');
    char folder[PATH_MAX];
    int n = slash ? (int)(slash - path) : 0;
    snprintf(folder, sizeof folder, "%.*s", slash == path ? 1 : n, path);
    return file_sync_folder(slash ? folder : ".");
}

/* A name beside the file's that nobody has: what a killed process left there, or a user has, stays. */
static enum error open_beside(struct file_new *f) {
    for (unsigned i = 0; i < UINT_MAX; i++) {
        int n = snprintf(f->made, sizeof f->made, "%s.%ld-%u.tmp", f->path, (long)getpid(), i);
        if (n >= (int)sizeof f->made) return FAIL(ERR_CREATE, "the path '%.64s...' is too long", f->path);
        f->fd = open(f->made, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
        if (f->fd >= 0) return ERR_NONE;
        if (errno != EEXIST) break;
    }
    return fail_path(ERR_CREATE, "create", f->made);
}

/* Nothing can take the place of a device, of a FIFO, or of what a link names that leads to no file yet. */
static enum error open_in_place(struct file_new *f, const char *path) {
    f->made[0] = '\0';
    f->fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOCTTY, 0666);
    return f->fd >= 0 ? ERR_NONE : fail_path(ERR_CREATE, "open", path);
}

enum error file_new_open(struct file_new *f, const char *path) {
    struct stat st, own;
    if (!path) return ERR_MEMORY;
    bool link = lstat(path, &own) == 0 && S_ISLNK(own.st_mode), is = stat(path, &st) == 0;
    if (snprintf(f->path, sizeof f->path, "%s", path) >= (int)sizeof f->path)
        return FAIL(ERR_CREATE, "the path '%.64s...' is too long", path);
    if (is ? !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode) : link) return open_in_place(f, path);
    if (link && !realpath(path, f->path)) return fail_path(ERR_CREATE, "follow", path);
    return open_beside(f);
}

enum error file_new_stream(const struct file_new *f, FILE **out) {
    int fd = fcntl(f->fd, F_DUPFD_CLOEXEC, 0);
    *out = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (*out) return ERR_NONE;
    enum error err = fail_path(ERR_CREATE, "open", f->path);
    if (fd >= 0) close(fd);
    return err;
}

/* The file takes its place, which the folder on disk need not show yet. */
static enum error file_new_settle(struct file_new *f, enum error err) {
    bool beside = f->made[0] != '\0';
    if (err == ERR_NONE && beside && file_sync(f->fd) != 0) err = fail_path(ERR_IO, "sync", f->made);
    if (close(f->fd) != 0 && err == ERR_NONE) err = fail_path(ERR_IO, "close", beside ? f->made : f->path);
    if (!beside) return err;
    if (err == ERR_NONE && rename(f->made, f->path) != 0) err = fail_path(ERR_IO, "rename to", f->path);
    if (err != ERR_NONE) unlink(f->made);
    return err;
}

enum error file_new_close(struct file_new *f, enum error err) {
    TRY(file_new_settle(f, err));
    return f->made[0] ? sync_parent(f->path) : ERR_NONE;
}

enum error file_replace(const char *path, const void *data, size_t n) {
    struct file_new f;
    TRY(file_new_open(&f, path));
    return file_new_close(&f, file_write_all(f.fd, data, n, path));
}

enum error file_place(const char *path, const void *data, size_t n) {
    struct file_new f;
    TRY(file_new_open(&f, path));
    return file_new_settle(&f, file_write_all(f.fd, data, n, path));
}

enum error file_text_open(struct file_text *t) {
    *t = (struct file_text){0};
    t->out = open_memstream(&t->text, &t->n);
    return t->out ? ERR_NONE : FAIL(ERR_MEMORY, "no memory for a text");
}

enum error file_text_close(struct file_text *t, enum error err) {
    bool failed = ferror(t->out);
    failed |= fclose(t->out) != 0;
    if (failed && err == ERR_NONE) err = FAIL(ERR_MEMORY, "no memory for a text of %zu bytes", t->n);
    if (err == ERR_NONE) return ERR_NONE;
    free(t->text);
    t->text = NULL;
    return err;
}

enum error file_text_save(struct file_text *t, enum error err, const char *path) {
    TRY(file_text_close(t, err));
    err = file_replace(path, t->text, t->n);
    free(t->text);
    return err;
}

char *file_text_keep(struct file_text *t, struct pool *pool) {
    if (file_text_close(t, ERR_NONE) != ERR_NONE) return NULL;
    char *kept = pool_strndup(pool, t->text, t->n);
    free(t->text);
    return kept;
}

int file_sync(int fd) {
    const char *when = getenv(SYNC_VARIABLE);
    return when && *when ? 0 : fsync(fd);
}

static enum error sync_folder_by(const char *path, int (*sync)(int fd)) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return fail_path(ERR_IO, "open", path);
    int failed = sync(fd);
    if (failed && errno == EINVAL) failed = 0; /* a file system that cannot, and need not, sync folders */
    enum error err = failed ? fail_path(ERR_IO, "sync", path) : ERR_NONE;
    if (close(fd) != 0 && err == ERR_NONE) err = fail_path(ERR_IO, "close", path);
    return err;
}

enum error file_sync_folder(const char *path) {
    return sync_folder_by(path, file_sync);
}

enum error file_sync_system(const char *path) {
    return sync_folder_by(path, syncfs);
}

static enum error make_folder(const char *path) {
    struct stat st;
    if (mkdir(path, 0777) == 0) return ERR_NONE;
    int code = errno;
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) return ERR_NONE;
    return FAIL(ERR_CREATE, "cannot make the folder '%s': %s", path, strerror(code));
}

enum error file_make_folders(const char *path) {
    char part[4096];
    if (!path) return ERR_MEMORY;
    size_t n = strlen(path);
    if (n >= sizeof part) return FAIL(ERR_CREATE, "the path '%.64s...' is too long", path);
    for (size_t i = 1; i <= n; i++)
        if (i == n || path[i] == '/') {
            memcpy(part, path, i);
            part[i] = '\0';
            TRY(make_folder(part));
        }
    return ERR_NONE;
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *where) {
    (void)st, (void)kind, (void)where;
    return remove(path) != 0 && errno != ENOENT ? -1 : 0;
}

enum error file_remove_tree(const char *path) {
    struct stat st;
    if (!path) return ERR_MEMORY;
    if (lstat(path, &st) != 0 && errno == ENOENT) return ERR_NONE;
    if (nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS) != 0) return fail_path(ERR_IO, "remove", path);
    return ERR_NONE;
}

/* Temporary folders are locked by the process that made them; the kernel takes the lock back when it
 * ends, however it does. The descriptor is open until then. false: another has it (how: LOCK_NB). */
static bool temporary_lock(const char *path, int how, int *fd) {
    *fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (*fd < 0) return false;
    if (flock(*fd, LOCK_EX | how) == 0) return true;
    close(*fd);
    return false;
}

int file_count_owned(const char *folder, const char *prefix, bool sweep) {
    int owned = 0, fd;
    struct pool *pool;
    DIR *dir = opendir(folder);
    if (!dir || pool_create(&pool) != ERR_NONE) pool = NULL;
    for (struct dirent *e; pool && (e = readdir(dir));) {
        const char *path =
            strncmp(e->d_name, prefix, strlen(prefix)) ? NULL : pool_printf(pool, "%s/%s", folder, e->d_name);
        struct stat st;
        if (!path || lstat(path, &st) != 0) continue;
        if (!temporary_lock(path, LOCK_NB, &fd)) {
            owned += errno == EWOULDBLOCK;
            continue;
        }
        bool remove = sweep && st.st_uid == geteuid();
        if (remove && file_remove_tree(path) != ERR_NONE) log_warn("%s", error_message());
        close(fd);
    }
    pool_free(pool);
    if (dir) closedir(dir);
    return owned;
}

/* Between its making and its lock somebody else may take it for an abandoned one. */
enum error file_make_temporary(const char *name, struct pool *pool, char **out) {
    const char *root = getenv("TMPDIR");
    if (!root || !*root) root = "/tmp";
    char *prefix = pool_printf(pool, "engine-%s-", name);
    if (!prefix) return ERR_MEMORY;
    (void)file_count_owned(root, prefix, true);
    for (;;) {
        int fd;
        char *path = pool_printf(pool, "%s/%sXXXXXX", root, prefix);
        if (!path) return ERR_MEMORY;
        if (!mkdtemp(path)) return FAIL(ERR_CREATE, "cannot make the folder '%s': %s", path, strerror(errno));
        bool locked = temporary_lock(path, 0, &fd);
        *out = path;
        if (locked && file_exists(path)) return ERR_NONE;
        if (locked) close(fd);
        if (!locked && errno != ENOENT) return fail_path(ERR_CREATE, "lock", path);
    }
}

void file_keep_temporary(struct pool *pool, char **path) {
    const char *slash = strrchr(*path, '/');
    char *kept = pool_printf(pool, "%.*s/kept-%s", (int)(slash - *path), *path, slash + 1);
    if (kept && rename(*path, kept) == 0) *path = kept;
}

bool file_lock(int fd) {
    enum { TRIES = 20 };
    for (int i = 0; i < TRIES; i++) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0) return true;
        if (errno != EWOULDBLOCK && errno != EINTR) return false;
        clock_nap(5000000);
    }
    return false;
}

bool file_is_locked(const char *path) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    bool locked = fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (fd >= 0) close(fd);
    return locked;
}

const char *file_of_code(void) {
    Dl_info info;
    void *map; /* a struct link_map: its name is empty for the program */
    if (!dladdr1((void *)(uintptr_t)file_of_code, &info, &map, RTLD_DL_LINKMAP)) return "/proc/self/exe";
    const char *name = ((const struct link_map *)map)->l_name;
    return *name ? name : "/proc/self/exe";
}

bool file_line(const char *path, char *out, size_t n) {
    FILE *f = fopen(path, "re");
    bool found = f && fgets(out, (int)n, f);
    if (f) fclose(f);
    out[found ? strcspn(out, "\n") : 0] = '\0';
    return found;
}

bool file_exists(const char *path) {
    struct stat st;
    return stat(path, &st) == 0;
}

bool file_is_folder(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

const char *file_last_part(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

bool file_is_same(const char *a, const char *b) {
    struct stat s, t;
    return stat(a, &s) == 0 && stat(b, &t) == 0 && s.st_dev == t.st_dev && s.st_ino == t.st_ino;
}
