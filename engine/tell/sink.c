/* The list of sinks, and the files that they write lines to. */
#include "engine/tell/sink.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SINK(name) extern const struct sink_ops sink_##name;
#include "engine/settings/sinks.def"

static const struct sink_ops *const kinds[] = {
#define SINK(name) &sink_##name,
#include "engine/settings/sinks.def"
};

const struct sink_ops *sink_find(enum sink_kind kind) {
    return kinds[kind];
}

/* ---- files of lines ---- */

/* The offset at which the last whole line ends; -1: the file cannot be read. */
static off_t whole_lines(int fd, off_t size) {
    char piece[4096];
    while (size > 0) {
        size_t n = size < (off_t)sizeof piece ? (size_t)size : sizeof piece;
        if (pread(fd, piece, n, size - (off_t)n) != (ssize_t)n) return -1;
        const char *end = memrchr(piece, '\n', n);
        if (end) return size - (off_t)n + (end - piece) + 1;
        size -= (off_t)n;
    }
    return 0;
}

static enum error cut_torn_line(int fd, const char *path) {
    struct stat st;
    if (fstat(fd, &st) != 0) return FAIL(ERR_IO, "cannot read '%s': %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode)) return ERR_NONE;
    off_t end = whole_lines(fd, st.st_size);
    if (end < 0 || (end < st.st_size && ftruncate(fd, end) != 0))
        return FAIL(ERR_IO, "cannot continue '%s': %s", path, strerror(errno));
    return ERR_NONE;
}

enum error sink_file_open(struct sink_file *s, const char *run_dir, const char *name) {
    char path[4096];
    s->name = name;
    snprintf(path, sizeof path, "%s/%s", run_dir, name);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0) return FAIL(ERR_CREATE, "cannot create '%s': %s", path, strerror(errno));
    enum error err = cut_torn_line(fd, path);
    s->f = err == ERR_NONE ? fdopen(fd, "r+") : NULL;
    if (!s->f) {
        close(fd);
        return err ? err : FAIL(ERR_MEMORY, "no memory for '%s'", path);
    }
    setvbuf(s->f, s->buffer, _IOFBF, sizeof s->buffer);
    (void)fseeko(s->f, 0, SEEK_END); /* a pipe has no end to go to */
    return ERR_NONE;
}

enum error sink_file_check(const struct sink_file *s) {
    if (!ferror(s->f)) return ERR_NONE;
    return FAIL(ERR_IO, "%s cannot be written: %s", s->name, strerror(errno));
}

enum error sink_file_flush(struct sink_file *s) {
    fflush(s->f);
    return sink_file_check(s);
}

void sink_file_close(struct sink_file *s) {
    if (s->f) fclose(s->f);
    s->f = NULL;
}
