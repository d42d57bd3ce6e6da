/* A question to the python3 of a plug-in. Its own timer ends what takes too long, and so names the line; where that does
 * not help (a library's loop, a handler of its own) it is killed. It ends by itself once this process has. */
#include "engine/base/plugin_python.h"

#include "engine/base/clock.h"
#include "engine/base/embedded.h"
#include "engine/base/text.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
extern const struct embedded plugin_python_text[];
enum { USUAL_SECONDS = 20, START_SECONDS = 10, WORDS_MOST = 4096, LINES_MOST = 1 << 24 };
static const double OWN_SHARE = 0.8; /* of the time, after which its own timer rings */

struct child_head { /* of a question, and of an answer */
    int64_t what;   /* 0: right, 1: wrong, 2: late */
    double number;  /* seconds; a line, 0: none */
    int64_t bytes;
};
struct child_talk {
    struct python *p;
    const struct question *q;
    double seconds;
    int64_t end;
};
static const char *const functions[] = {"the file", "all_reduce", "encode", "encode", "decode", "a schedule"};

/* ---- its life ---- */

static enum error child_spawn(struct python *p, int end) {
    char version[16];
    char *words[] = {(char[]){"python3"},
                     (char[]){"-B"},
                     (char[]){"-c"},
                     (char *)(uintptr_t)plugin_python_text[0].text,
                     (char *)(uintptr_t)p->path,
                     version,
                     NULL};
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attr;
    sigset_t none, all;
    snprintf(version, sizeof version, "%d", ENGINE_PLUGIN_VERSION);
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, end, 0);
    posix_spawn_file_actions_adddup2(&files, 2, 1); /* what it prints is no result of the engine's */
    posix_spawnattr_init(&attr);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setsigdefault(&attr, &all);
    int err = posix_spawnp(&p->child, "python3", &files, &attr, words, environ);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attr);
    if (!err) return ERR_NONE;
    p->child = 0;
    return FAIL(ERR_DEVICE, "plug-in '%s' needs python3: %s\ninstall Python 3.8 or a newer one", p->path,
                strerror(err));
}

static enum error child_start(struct python *p) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        return FAIL(ERR_IO, "plug-in '%s': cannot make a socket: %s", p->path, strerror(errno));
    enum error err = child_spawn(p, ends[1]);
    close(ends[1]);
    p->fd = ends[0], p->owner = getpid();
    if (err != ERR_NONE) close(ends[0]);
    return err;
}

void child_end(struct python *p) {
    if (!p->child) return;
    close(p->fd);
    if (p->owner == getpid()) {
        kill(p->child, SIGKILL);
        while (waitpid(p->child, NULL, 0) < 0 && errno == EINTR) continue;
    }
    p->child = 0;
}

/* ---- what goes wrong ---- */

static enum error child_gone(const struct child_talk *t) {
    struct python *p = t->p;
    int status = 0;
    kill(p->child, SIGKILL);
    while (waitpid(p->child, &status, 0) < 0 && errno == EINTR) continue;
    close(p->fd);
    p->child = 0;
    bool killed = WIFSIGNALED(status);
    return FAIL(t->q->err, "plug-in '%s': its python3 has ended in %s: %s %d", p->path, functions[t->q->what],
                killed ? "signal" : "code", killed ? WTERMSIG(status) : WEXITSTATUS(status));
}

static enum error child_late(const struct child_talk *t) {
    child_end(t->p);
    return FAIL(ERR_TIMEOUT, "plug-in '%s' has been in %s for %.3g s and does not return: an endless loop", t->p->path,
                functions[t->q->what], t->seconds);
}

static enum error child_nonsense(const struct child_talk *t) {
    child_end(t->p);
    return FAIL(t->q->err,
                "plug-in '%s': what comes from its python3 in %s is no answer\n"
                "print and the standard streams are its own, other descriptors are not",
                t->p->path, functions[t->q->what]);
}

/* ---- bytes ---- */

static enum error child_await(const struct child_talk *t, short events) {
    struct pollfd f = {.fd = t->p->fd, .events = events};
    while (clock_ns() < t->end)
        if (poll(&f, 1, clock_ms_until(t->end)) > 0) return ERR_NONE;
    return child_late(t);
}

static enum error child_send(const struct child_talk *t, const void *data, size_t n) {
    for (const char *at = data; n;) {
        ssize_t done = send(t->p->fd, at, n, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (done > 0)
            at += done, n -= (size_t)done;
        else if (errno == EAGAIN || errno == EINTR)
            TRY(child_await(t, POLLOUT));
        else
            return child_gone(t);
    }
    return ERR_NONE;
}

static enum error child_receive(const struct child_talk *t, void *data, size_t n) {
    for (char *at = data; n;) {
        ssize_t done = recv(t->p->fd, at, n, MSG_DONTWAIT);
        if (done > 0)
            at += done, n -= (size_t)done;
        else if (done < 0 && (errno == EAGAIN || errno == EINTR))
            TRY(child_await(t, POLLIN));
        else
            return child_gone(t);
    }
    return ERR_NONE;
}

/* ---- a question ---- */

/* The answer's words are what is wrong and, after a line's end, the text of the line. */
static enum error child_explain(const struct child_talk *t, const struct child_head *h) {
    char where[32] = "", *text = strchr(t->p->answer, '\n');
    if (text) *text++ = '\0';
    if (h->number > 0) snprintf(where, sizeof where, ", line %d", (int)h->number);
    const char *words = text_defuse(t->p->answer, ""), *line = text ? text_defuse(text, "") : "";
    const char *mark = *line ? "'" : "", *in = *line ? " in " : "";
    if (h->what == 2)
        return FAIL(ERR_TIMEOUT, "plug-in '%s'%s: in %s after %.3g s, and does not return: an endless loop%s%s%s%s",
                    t->p->path, where, functions[t->q->what], t->seconds * OWN_SHARE, in, mark, line, mark);
    return FAIL(t->q->err, "plug-in '%s'%s: %s%s%s%s%s", t->p->path, where, words, in, mark, line, mark);
}

static enum error child_make_room(struct python *p, size_t n) {
    char *answer = n > p->room ? realloc(p->answer, n) : p->answer;
    if (!answer) return FAIL(ERR_MEMORY, "no memory for what plug-in '%s' answers", p->path);
    if (n > p->room) p->answer = answer, p->room = n;
    return ERR_NONE;
}

static enum error child_answer(const struct child_talk *t, size_t *n) {
    struct child_head h;
    TRY(child_receive(t, &h, sizeof h));
    bool right = h.what == 0, known = h.what == 0 || h.what == 1 || h.what == 2;
    size_t least = right ? t->q->least : 0, most = right ? t->q->most : WORDS_MOST;
    if (!known || !(h.number >= 0 && h.number <= LINES_MOST) || h.bytes < 0 || (size_t)h.bytes < least ||
        (size_t)h.bytes > most)
        return child_nonsense(t);
    TRY(child_make_room(t->p, (size_t)h.bytes + 1));
    TRY(child_receive(t, t->p->answer, (size_t)h.bytes));
    t->p->answer[ *n = (size_t)h.bytes] = '\0';
    return right ? ERR_NONE : child_explain(t, &h);
}

static enum error child_talk(struct python *p, const struct question *q, double seconds, size_t *n) {
    struct child_talk t = {p, q, seconds, clock_after(seconds)};
    struct child_head h = {(int64_t)q->what, seconds * OWN_SHARE, 0};
    int parts = (int)(sizeof q->part / sizeof *q->part);
    for (int i = 0; i < parts; i++) h.bytes += (int64_t)q->part[i].iov_len;
    TRY(child_send(&t, &h, sizeof h));
    for (int i = 0; i < parts; i++) TRY(child_send(&t, q->part[i].iov_base, q->part[i].iov_len));
    return child_answer(&t, n);
}

enum error child_ask(struct python *p, const struct question *q, size_t *n) {
    double usual = plugin_patience() > 0 ? plugin_patience() : USUAL_SECONDS;
    const struct question what = {PYTHON_DESCRIBE, {{p->source, p->length}}, .most = WORDS_MOST, .err = q->err};
    if (p->child && p->owner != getpid()) child_end(p);
    if (!p->child) {
        TRY(child_start(p));
        enum error err = child_talk(p, &what, usual + START_SECONDS, n);
        if (err != ERR_NONE) child_end(p);
        TRY(err);
    }
    return q->what == PYTHON_DESCRIBE ? ERR_NONE : child_talk(p, q, usual, n);
}
