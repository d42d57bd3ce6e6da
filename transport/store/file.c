/* One line of text: a word that says what it is, the port, the key. */
#include "transport/store/file.h"
#include "engine/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LINE_MOST = SECRET_SIZE + 64 };
static const char word[] = "engine-store-3";

static enum error fail_open(const char *path) {
    return FAIL(ERR_CREATE, "cannot open the store '%s': %s", path,
                errno == ELOOP ? "it is a symbolic link" : strerror(errno));
}

/* A file that somebody else may have written says nothing. */
static enum error file_check_owner(const char *path, int fd) {
    struct stat st = {0};
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
        return FAIL(ERR_CREATE, "the store '%s' is not a regular file", path);
    if (st.st_uid != geteuid()) return FAIL(ERR_CREATE, "the store '%s' belongs to another user", path);
    return ERR_NONE;
}

static enum error line_read(const char *path, int fd, int *port, char key[SECRET_SIZE]) {
    char line[LINE_MOST + 1], format[32];
    int end = 0;
    TRY(file_check_owner(path, fd));
    ssize_t n = pread(fd, line, LINE_MOST, 0);
    if (n < 0) return fail_open(path);
    line[n] = '\0';
    snprintf(format, sizeof format, "%s %%5d %%%d[!-~]%%n", word, SECRET_SIZE - 1);
    if (n == 0 || (sscanf(line, format, port, key, &end) == 2 && end == n - 1 && line[end] == '\n')) return ERR_NONE;
    *port = 0;
    return FAIL(ERR_DATA, "'%s' is not a store of this program\nname another file", path);
}

enum error file_find(const char *path, int *port, char key[SECRET_SIZE]) {
    *port = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) return errno == ENOENT ? ERR_NONE : fail_open(path);
    enum error err = line_read(path, fd, port, key);
    close(fd);
    return err;
}

enum error file_announce(const char *path, int port, const char *key) {
    char line[LINE_MOST], temporary[PATH_MAX + 24], left[SECRET_SIZE];
    int before, n = snprintf(line, sizeof line, "%s %d %s\n", word, port, key);
    TRY(file_find(path, &before, left));
    snprintf(temporary, sizeof temporary, "%s.%d", path, (int)getpid());
    int fd = open(temporary, O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_CREAT | O_TRUNC, 0600);
    if (fd < 0) return fail_open(path);
    enum error err = file_check_owner(temporary, fd);
    if (!err) err = file_write_all(fd, line, (size_t)n, temporary);
    if (!err && rename(temporary, path) != 0) err = fail_open(path);
    if (err) (void)unlink(temporary);
    close(fd);
    return err;
}

void file_withdraw(const char *path, const char *key) {
    char now[SECRET_SIZE];
    int port;
    if (file_find(path, &port, now) == ERR_NONE && port && !strcmp(now, key)) (void)unlink(path);
}
