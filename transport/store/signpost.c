#include "transport/store/signpost.h"

#include "engine/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static const char sign[] = "engine store "; /* begins it */
enum { SIGN_MAX = SECRET_SIZE + 32 };

static enum error signpost_open(const char *path, int flags, int *fd, struct stat *st) {
    *fd = open(path, flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    if (*fd < 0)
        return FAIL(ERR_CREATE, "cannot open the store '%s': %s", path,
                    errno == ELOOP ? "it is a symbolic link" : strerror(errno));
    bool regular = fstat(*fd, st) == 0 && S_ISREG(st->st_mode);
    if (regular && st->st_uid == geteuid()) return ERR_NONE;
    close(*fd);
    return regular ? FAIL(ERR_CREATE, "the store '%s' belongs to another user", path)
                   : FAIL(ERR_CREATE, "the store '%s' is not a regular file", path);
}

/* Of a file that is locked: whether it may be written, as nobody else's is. */
static enum error signpost_check(const char *path, int fd) {
    char text[sizeof sign - 1];
    ssize_t n = pread(fd, text, sizeof text, 0);
    if (n == 0 || (n == (ssize_t)sizeof text && !memcmp(text, sign, sizeof text))) return ERR_NONE;
    return FAIL(ERR_DATA, "'%s' is not a store of this program\nname another file", path);
}

/* The file is this server's once it is locked, unless the server before has removed it in between. */
static enum error signpost_take(const char *path, int *fd) {
    for (;;) {
        struct stat st;
        TRY(signpost_open(path, O_RDWR | O_CREAT, fd, &st));
        enum error err = file_lock(*fd) ? signpost_check(path, *fd)
                                        : FAIL(ERR_CREATE, "the store '%s' is in use by another run", path);
        bool there = fstat(*fd, &st) == 0 && st.st_nlink > 0;
        if (!err && there) return ERR_NONE;
        close(*fd);
        if (err) return err;
    }
}

enum error signpost_raise(const char *path, int port, const char *key, int *fd) {
    char text[SIGN_MAX];
    int n = snprintf(text, sizeof text, "%s%d %s\n", sign, port, key);
    TRY(signpost_take(path, fd));
    if (ftruncate(*fd, 0) == 0 && pwrite(*fd, text, (size_t)n, 0) == n) return ERR_NONE;
    enum error err = FAIL(ERR_IO, "cannot write the store '%s': %s", path, strerror(errno));
    signpost_lower(path, *fd);
    *fd = -1;
    return err;
}

void signpost_lower(const char *path, int fd) {
    struct stat st;
    if (fd < 0) return;
    if (fstat(fd, &st) == 0 && st.st_nlink > 0) (void)unlink(path);
    close(fd);
}

enum error signpost_read(const char *path, int *port, char key[SECRET_SIZE]) {
    char text[SIGN_MAX + 1];
    struct stat st;
    int fd;
    TRY(signpost_open(path, O_RDONLY, &fd, &st));
    bool served = flock(fd, LOCK_SH | LOCK_NB) != 0;
    ssize_t n = pread(fd, text, sizeof text - 1, 0);
    close(fd);
    text[n > 0 ? n : 0] = '\0';
    if (served && sscanf(text, "engine store %5d %263s", port, key) == 2) return ERR_NONE;
    return FAIL(ERR_PEER, "no server holds it");
}
