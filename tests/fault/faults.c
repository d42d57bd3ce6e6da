/* Calls that fail on demand. To be included by a test program: its definitions of the calls below
 * stand before the C library's, count those that concern a path with the given text in it (or a
 * descriptor opened on one), and let the n-th fail, or kill the process. They also watch over the
 * order that a commit needs: no file is closed after a write without a sync between, and no rename
 * stays without a sync of a folder. fsync itself reaches no disk here: that keeps sweeps fast. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum fault_mode { FAULT_NONE, FAULT_EIO, FAULT_ENOSPC, FAULT_SHORT, FAULT_EINTR, FAULT_KILL };
enum { FAULT_FDS = 1024 };

static struct {
    const char *path; /* borrowed */
    long at;
    enum fault_mode mode;
    bool for_good; /* every call from the n-th on, as on a disk that stays full */
    atomic_bool armed;
    atomic_long calls, unsynced_files, unsynced_renames;
    atomic_char tracked[FAULT_FDS], dirty[FAULT_FDS];
} fault;

static void fault_arm(const char *path, long at, enum fault_mode mode, bool for_good) {
    fault.path = path;
    fault.at = at;
    fault.mode = mode;
    fault.for_good = for_good;
    fault.calls = fault.unsynced_files = fault.unsynced_renames = 0;
    fault.armed = true;
}

/* How many calls there were. */
static long fault_disarm(void) {
    fault.armed = false;
    return fault.calls;
}

static bool fault_matches(const char *path) {
    return fault.armed && strstr(path, fault.path);
}

static bool fault_follows(int fd) {
    return fault.armed && fd >= 0 && fd < FAULT_FDS && fault.tracked[fd];
}

/* Counts a call; true when it is to fail, with errno set. */
static bool fault_fires(bool is_write) {
    long n = ++fault.calls;
    if (n != fault.at && !(fault.for_good && n > fault.at)) return false;
    if (fault.mode == FAULT_KILL) raise(SIGKILL);
    bool only_writes = fault.mode == FAULT_SHORT || fault.mode == FAULT_EINTR;
    if (fault.mode == FAULT_NONE || (only_writes && !is_write)) return false;
    errno = fault.mode == FAULT_ENOSPC ? ENOSPC : fault.mode == FAULT_EINTR ? EINTR : EIO;
    return true;
}

int open(const char *path, int flags, ...) {
    mode_t mode = 0;
    if (flags & O_CREAT) {
        va_list ap;
        va_start(ap, flags);
        mode = va_arg(ap, mode_t);
        va_end(ap);
    }
    bool matches = fault_matches(path);
    if (matches && fault_fires(false)) return -1;
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
    if (fd >= 0 && fd < FAULT_FDS) {
        fault.tracked[fd] = matches;
        fault.dirty[fd] = 0;
    }
    return fd;
}

ssize_t write(int fd, const void *data, size_t n) {
    if (fault_follows(fd)) {
        fault.dirty[fd] = 1;
        if (fault_fires(true)) {
            if (fault.mode != FAULT_SHORT || n < 2) return -1;
            n /= 2;
        }
    }
    return syscall(SYS_write, fd, data, n);
}

int posix_fallocate(int fd, off_t offset, off_t n) {
    if (fault_follows(fd) && fault_fires(false)) return errno;
    return syscall(SYS_fallocate, fd, 0, offset, n) == 0 ? 0 : errno;
}

int fsync(int fd) {
    if (fault_follows(fd)) {
        if (fault_fires(false)) return -1;
        struct stat st;
        if (fstat(fd, &st) == 0 && S_ISDIR(st.st_mode)) fault.unsynced_renames = 0;
        fault.dirty[fd] = 0;
    }
    return 0;
}

int close(int fd) {
    bool fails = fault_follows(fd) && fault_fires(false);
    if (fault_follows(fd) && fault.dirty[fd]) fault.unsynced_files++;
    if (fd >= 0 && fd < FAULT_FDS) fault.tracked[fd] = fault.dirty[fd] = 0;
    int result = (int)syscall(SYS_close, fd);
    if (fails) errno = EIO;
    return fails ? -1 : result;
}

int renameat2(int from_fd, const char *from, int to_fd, const char *to, unsigned flags) {
    if (fault_matches(to)) {
        if (fault_fires(false)) return -1;
        const char *slash = strrchr(to, '/'); /* what is put out of sight needs no sync */
        if (strncmp(slash ? slash : to, "/.tmp-", 6) != 0) fault.unsynced_renames++;
    }
    return (int)syscall(SYS_renameat2, from_fd, from, to_fd, to, flags);
}

int rename(const char *from, const char *to) {
    return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0);
}

int mkdir(const char *path, mode_t mode) {
    if (fault_matches(path) && fault_fires(false)) return -1;
    return (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode);
}

int unlink(const char *path) {
    if (fault_matches(path) && fault_fires(false)) return -1;
    return (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0);
}

int flock(int fd, int operation) {
    if (fault_follows(fd) && fault_fires(false)) return -1;
    return (int)syscall(SYS_flock, fd, operation);
}
