#include "transport/launch/output.h"

#include "engine/base/file.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum error output_open(struct rank_output *o, int rank, const char *folder, FILE *log, int *rank_end) {
    *o = (struct rank_output){.rank = rank, .pipe = -1, .file = -1, .log = log};
    o->length = o->prefix = (size_t)snprintf(o->line, sizeof o->line, "[rank %d] ", rank);
    if (folder) {
        char path[4096];
        if (snprintf(path, sizeof path, "%s/rank%d.log", folder, rank) >= (int)sizeof path)
            return FAIL(ERR_CREATE, "log folder's name is too long: '%.60s...'", folder);
        o->file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
        if (o->file < 0) return FAIL(ERR_CREATE, "cannot create '%s': %s", path, strerror(errno));
    }
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return FAIL(ERR_CREATE, "rank %d: pipe: %s", rank, strerror(errno));
    fcntl(ends[0], F_SETFL, O_NONBLOCK); /* our end alone: the rank's writes wait, as they should */
    o->pipe = ends[0];
    *rank_end = ends[1];
    return ERR_NONE;
}

/* Ranks find most errors alike. Their warnings differ in the rank that gives them and in its seconds: what comes before
 * "within" counts. */
static bool line_was_told(struct rank_output *o) {
    char own[32];
    const char *text = o->line + o->prefix, *end;
    size_t n = o->length - o->prefix;
    struct told_lines *t = o->told;
    bool error = n > 7 && !memcmp(text, "error: ", 7), hint = n > 6 && !memcmp(text, "hint: ", 6);
    size_t skipped = (size_t)snprintf(own, sizeof own, "rank %d: warning: ", o->rank);
    bool warning = n > skipped && !memcmp(text, own, skipped) && (end = memmem(text, n, " within ", 8));
    if (warning) text += skipped, n = (size_t)(end - text);
    if (!t || !(error || hint || warning) || n >= OUTPUT_LINE) return false;
    for (int i = 0; i < t->count && i < TOLD_LINES; i++)
        if (t->rank[i] != o->rank && !strncmp(t->line[i], text, n) && !t->line[i][n]) return true;
    int at = t->count++ % TOLD_LINES;
    t->rank[at] = o->rank;
    memcpy(t->line[at], text, n);
    t->line[at][n] = '\0';
    return false;
}

static void line_print(struct rank_output *o) {
    bool told = line_was_told(o);
    o->line[o->length++] = '\n';
    if (o->log && !told) fwrite(o->line, 1, o->length, o->log);
    o->length = o->prefix;
}

/* Lines of any bytes; one that is longer than the buffer goes on in another. */
static void lines_add(struct rank_output *o, const char *data, size_t n) {
    while (n > 0) {
        const char *end = memchr(data, '\n', n);
        size_t part = end ? (size_t)(end - data) : n, room = OUTPUT_LINE - o->length;
        size_t take = part < room ? part : room;
        memcpy(o->line + o->length, data, take);
        o->length += take;
        data += take, n -= take;
        if (take < part || end) line_print(o);
        if (take == part && end) data++, n--;
    }
    if (o->log) fflush(o->log);
}

static void tail_add(struct rank_output *o, const char *data, size_t n) {
    if (n > OUTPUT_TAIL) data += n - OUTPUT_TAIL, n = OUTPUT_TAIL;
    size_t keep = o->tail_length + n > OUTPUT_TAIL ? OUTPUT_TAIL - n : o->tail_length;
    memmove(o->tail, o->tail + o->tail_length - keep, keep);
    memcpy(o->tail + keep, data, n);
    o->tail_length = keep + n;
}

/* A log that cannot be written (a full disk) is given up, with a word: it never stops training. */
static void file_add(struct rank_output *o, const char *data, size_t n) {
    char name[32];
    snprintf(name, sizeof name, "rank%d.log", o->rank);
    if (o->file < 0 || file_write_all(o->file, data, n, name) == ERR_NONE) return;
    if (o->log) fprintf(o->log, "[rank %d] its log ends here: %s\n", o->rank, error_message());
    close(o->file);
    o->file = -1;
}

bool output_read(struct rank_output *o) {
    char data[16384];
    if (o->pipe < 0) return false;
    ssize_t n = read(o->pipe, data, sizeof data);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return errno == EINTR;
    if (n <= 0) {
        close(o->pipe);
        o->pipe = -1;
        return false;
    }
    file_add(o, data, (size_t)n);
    tail_add(o, data, (size_t)n);
    lines_add(o, data, (size_t)n);
    return true;
}

void output_last_lines(const struct rank_output *o, char out[OUTPUT_TAIL + 1]) {
    const char *from = o->tail, *cut = memchr(from, '\n', o->tail_length);
    size_t n = o->tail_length;
    if (n == OUTPUT_TAIL && cut && cut < from + n - 1) { /* a first line without its beginning says little */
        n -= (size_t)(cut + 1 - from);
        from = cut + 1;
    }
    while (n > 0 && from[n - 1] == '\n') n--;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)from[i];
        out[i] = c == '\n' || c == '\t' || (c >= ' ' && c != 127) ? from[i] : '?';
    }
    out[n] = '\0';
}

void output_close(struct rank_output *o) {
    if (o->prefix && o->length > o->prefix) lines_add(o, "\n", 1);
    if (o->prefix && o->pipe >= 0) close(o->pipe);
    if (o->prefix && o->file >= 0) close(o->file);
    *o = (struct rank_output){.rank = o->rank, .pipe = -1, .file = -1};
}
