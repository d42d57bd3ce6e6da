/* Forward reading through zlib, which passes plain files on as they are. Never mapped: a file that
 * shrinks while it is read is an error here, and would be a signal there. */
#include "engine/data/input.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

enum { DEFLATE_RATIO = 1032 }; /* no deflate stream expands more */

enum error input_open_file(const char *path, int *fd, int64_t *size) {
    struct stat st = {0};
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe must not make us wait */
    if (*fd < 0) return FAIL(ERR_INPUT, "cannot read %s: %s", path, strerror(errno));
    bool folder = fstat(*fd, &st) == 0 && S_ISDIR(st.st_mode);
    if (!folder && S_ISREG(st.st_mode)) {
        *size = st.st_size;
        return ERR_NONE;
    }
    close(*fd);
    *fd = -1;
    return FAIL(ERR_INPUT, folder ? "%s is a folder, not a file" : "%s is no regular file", path);
}

enum error input_open(const char *path, struct input *in) {
    int fd;
    *in = (struct input){.path = path};
    TRY(input_open_file(path, &fd, &in->size));
    if (!(in->stream = gzdopen(fd, "rb"))) {
        close(fd);
        return FAIL(ERR_MEMORY, "%s: no memory to read it", path);
    }
    (void)gzbuffer(in->stream, 1 << 17);
    in->packed = !gzdirect(in->stream);
    return ERR_NONE;
}

void input_close(struct input *in) {
    if (in->stream) (void)gzclose_r(in->stream);
    in->stream = NULL;
}

static enum error input_damaged(const struct input *in) {
    int code;
    const char *text = gzerror(in->stream, &code);
    if (code == Z_ERRNO) return FAIL(ERR_IO, "%s: %s", in->path, strerror(errno));
    return FAIL(ERR_DATA, "%s: damaged or cut off after byte %lld: %s", in->path, (long long)in->at, text);
}

enum error input_read_some(struct input *in, void *buffer, int64_t n, int64_t *got) {
    enum { MOST = 1 << 30 }; /* of one call */
    *got = 0;
    while (*got < n) {
        int64_t want = n - *got < MOST ? n - *got : MOST;
        int some = gzread(in->stream, (char *)buffer + *got, (unsigned)want);
        if (some < 0) return input_damaged(in);
        if (some == 0) break;
        *got += some;
        in->at += some;
    }
    int code = Z_OK;
    if (*got < n) (void)gzerror(in->stream, &code);
    return code == Z_OK || code == Z_STREAM_END ? ERR_NONE : input_damaged(in);
}

enum error input_read(struct input *in, void *buffer, int64_t n) {
    char skipped[16384];
    do {
        int64_t want = buffer || n < (int64_t)sizeof skipped ? n : (int64_t)sizeof skipped, got;
        TRY(input_read_some(in, buffer ? buffer : skipped, want, &got));
        if (got < want)
            return FAIL(ERR_DATA, "%s: ends at byte %lld, where %lld more are expected", in->path, (long long)in->at,
                        (long long)(n - got));
        n -= got;
    } while (n > 0);
    return ERR_NONE;
}

enum error input_promise(const struct input *in, int64_t n) {
    int64_t most;
    if (!in->packed && in->size - in->at != n)
        return FAIL(ERR_DATA, "%s: its header promises %lld bytes of data, but %lld follow", in->path, (long long)n,
                    (long long)(in->size - in->at));
    if (in->packed && !__builtin_mul_overflow(in->size, (int64_t)DEFLATE_RATIO, &most) && n > most)
        return FAIL(ERR_DATA, "%s: its header promises %lld bytes, more than %lld packed bytes can hold", in->path,
                    (long long)n, (long long)in->size);
    return ERR_NONE;
}

enum error input_end(struct input *in) {
    char more;
    int64_t got;
    TRY(input_read_some(in, &more, 1, &got));
    if (got)
        return FAIL(ERR_DATA, "%s: has data after byte %lld, where it should end by its header", in->path,
                    (long long)in->at - 1);
    return ERR_NONE;
}
