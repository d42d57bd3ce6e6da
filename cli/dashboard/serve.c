/* Connections of the dashboard: one thread that waits in poll(), CONNECTIONS at most, each for one
 * request of at most HTTP_HEAD bytes within a few seconds. A library's server was tried and left
 * out: it keeps silent connections for ever and takes as many as come, until the run has no file
 * descriptor left for a checkpoint, and then spins. Here a newcomer takes the place of the oldest,
 * nothing is allocated before a request is whole, and the thread's priority is below the run's. */
#include "cli/dashboard/impl.h"

#include "cli/dashboard/page.h"
#include "engine/base/clock.h"
#include "engine/base/file.h"
#include "engine/base/text.h"
#include "engine/base/thread.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CONNECTIONS = 16, NICE = 10, PAUSE_MS = 100 };
#define ASK_NS 4000000000  /* a request has to be whole by then */
#define SEND_NS 8000000000 /* and its answer taken */

struct connection {
    int fd; /* -1: free */
    int64_t deadline;
    size_t nin, nout, sent;
    char in[HTTP_HEAD];
    char *out; /* NULL: it still asks */
    bool last_words;
};
struct board_server {
    pthread_t thread;
    int listener, wake;
    bool weary; /* out of descriptors: waits a little before it takes the next */
    struct http_rules rules;
    board_answer_fn answer;
    void *user;
    struct connection at[CONNECTIONS];
    _Atomic int64_t asked; /* when, last */
    _Atomic bool done, stop;
};

static void connection_close(struct connection *c) {
    if (c->fd >= 0) close(c->fd);
    free(c->out);
    *c = (struct connection){.fd = -1};
}

/* ---- one request ---- */
static const char common[] = "Connection: close\r\n"
                             "Cache-Control: no-store\r\n"
                             "X-Content-Type-Options: nosniff\r\n"
                             "X-Frame-Options: DENY\r\n"
                             "Referrer-Policy: no-referrer\r\n"
                             "Cross-Origin-Resource-Policy: same-origin\r\n"
                             "Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; script-src "
                             "'unsafe-inline'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
                             "frame-ancestors 'none'\r\n";

/* Head and body in one text. */
static char *server_answer_compose(const struct board_answer *a, int status, const char *type, const char *body,
                                   size_t nbody, size_t *n) {
    struct file_text text;
    if (file_text_open(&text) != ERR_NONE) return NULL;
    FILE *out = text.out;
    fprintf(out, "HTTP/1.1 %d %s\r\n%sContent-Type: %s\r\nContent-Length: %zu\r\n", status, http_reason(status), common,
            type, nbody);
    if (status == 405) fputs("Allow: GET\r\n", out);
    if (a->next >= 0) fprintf(out, "Engine-Next: %lld\r\n", (long long)a->next);
    fputs("\r\n", out);
    fwrite(body, 1, nbody, out);
    if (file_text_close(&text, ERR_NONE) != ERR_NONE) return NULL;
    *n = text.n;
    return text.text;
}

static const char *const types[] = {[HTTP_PAGE] = "text/html; charset=utf-8",
                                    [HTTP_RUNS] = "application/json",
                                    [HTTP_RUN] = "application/json",
                                    [HTTP_RANKS] = "application/json",
                                    [HTTP_METRICS] = "application/x-ndjson"};

static void connection_answer(struct board_server *s, struct connection *c, size_t head) {
    struct http_request request;
    struct board_answer a = {.next = -1};
    const char *wrong = "the request's head is too long";
    char *body = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&body, &n);
    int status = head ? http_read(c->in, head, &s->rules, &request, &wrong) : 431;
    if (out && status == 200 && request.page == HTTP_PAGE)
        fwrite(dashboard_page, 1, sizeof dashboard_page, out);
    else if (out && status == 200) {
        status = s->answer(s->user, &request, &a, out);
        wrong = "no such run";
    }
    if (out && status != 200) rewind(out), fprintf(out, "%d %s: %s\n", status, http_reason(status), wrong);
    if (out && fclose(out) == 0)
        c->out = server_answer_compose(&a, status, status == 200 ? types[request.page] : "text/plain; charset=utf-8",
                                       body, n, &c->nout);
    free(body);
    c->last_words = a.last_words;
    c->deadline = clock_ns() + SEND_NS;
    if (!c->out) connection_close(c);
}

static bool server_is_later(int error) {
    return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

/* Nothing after the head matters to this server, but closing with it unread would take
 * the answer back: a client that says more than it should is heard for a while. */
static void connection_swallow(struct connection *c) {
    char rest[HTTP_HEAD];
    ssize_t n = recv(c->fd, rest, sizeof rest, 0);
    if (n == 0 || (n < 0 && !server_is_later(errno))) connection_close(c);
}

static void connection_receive(struct board_server *s, struct connection *c) {
    ssize_t n = recv(c->fd, c->in + c->nin, sizeof c->in - c->nin, 0);
    if (n < 0 && server_is_later(errno)) return;
    if (n <= 0) {
        connection_close(c);
        return;
    }
    c->nin += (size_t)n;
    size_t head = http_head_end(c->in, c->nin);
    if (!head && c->nin < sizeof c->in) return;
    if (head) atomic_store(&s->asked, clock_ns());
    connection_answer(s, c, head);
}

static void connection_send(struct board_server *s, struct connection *c) {
    ssize_t n = send(c->fd, c->out + c->sent, c->nout - c->sent, MSG_NOSIGNAL);
    if (n < 0 && server_is_later(errno)) return;
    if (n < 0) {
        connection_close(c);
        return;
    }
    c->sent += (size_t)n;
    if (c->sent < c->nout) return;
    if (c->last_words) atomic_store(&s->done, true);
    shutdown(c->fd, SHUT_WR);
}

/* ---- all of them ---- */
static void connections_accept(struct board_server *s) {
    int fd = accept4(s->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    s->weary = fd < 0 && !server_is_later(errno);
    if (fd < 0) return;
    struct connection *oldest = &s->at[0];
    for (int i = 0; i < CONNECTIONS; i++) {
        struct connection *c = &s->at[i];
        if (oldest->fd >= 0 && (c->fd < 0 || c->deadline < oldest->deadline)) oldest = c;
    }
    connection_close(oldest);
    oldest->fd = fd;
    oldest->deadline = clock_ns() + ASK_NS;
}

static void connection_serve(struct board_server *s, struct connection *c, int events) {
    bool sending = c->out && c->sent < c->nout;
    if (clock_ns() > c->deadline || (events & (POLLERR | POLLNVAL)))
        connection_close(c);
    else if (sending && (events & POLLOUT))
        connection_send(s, c);
    else if (!c->out && (events & (POLLIN | POLLHUP)))
        connection_receive(s, c);
    else if (c->out && !sending && (events & (POLLIN | POLLHUP)))
        connection_swallow(c);
    else if (events & POLLHUP)
        connection_close(c);
}

/* Whoever is there is looked at once a second at least, for its deadline. */
static int connections_poll(struct board_server *s, struct pollfd wait[CONNECTIONS + 2]) {
    bool busy = false;
    wait[0] = (struct pollfd){.fd = s->wake, .events = POLLIN};
    wait[1] = (struct pollfd){.fd = s->weary ? -1 : s->listener, .events = POLLIN};
    for (int i = 0; i < CONNECTIONS; i++) {
        const struct connection *c = &s->at[i];
        bool sending = c->out && c->sent < c->nout;
        wait[i + 2] = (struct pollfd){.fd = c->fd, .events = sending ? POLLOUT : POLLIN};
        busy |= c->fd >= 0;
    }
    return s->weary ? PAUSE_MS : busy ? 1000 : -1;
}

static void *server_run(void *arg) {
    struct board_server *s = arg;
    struct pollfd wait[CONNECTIONS + 2];
    text_plain_numbers();
    (void)setpriority(PRIO_PROCESS, 0, NICE); /* of this thread alone */
    while (!atomic_load(&s->stop)) {
        int n = poll(wait, CONNECTIONS + 2, connections_poll(s, wait));
        s->weary = false;
        for (int i = 0; i < CONNECTIONS; i++)
            if (s->at[i].fd >= 0) connection_serve(s, &s->at[i], n > 0 ? wait[i + 2].revents : 0);
        if (n > 0 && wait[1].revents) connections_accept(s);
    }
    return NULL;
}

enum error board_server_start(int listener, const struct http_rules *rules, board_answer_fn answer_fn, void *user,
                              struct board_server **out) {
    struct board_server *s = calloc(1, sizeof *s);
    if (!s) return FAIL(ERR_MEMORY, "no memory for the dashboard");
    s->listener = listener, s->rules = *rules, s->answer = answer_fn, s->user = user;
    for (int i = 0; i < CONNECTIONS; i++) s->at[i].fd = -1;
    s->asked = INT64_MIN / 2;
    s->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int why = s->wake < 0 ? errno : thread_start(&s->thread, server_run, s);
    if (why) {
        if (s->wake >= 0) close(s->wake);
        free(s);
        return FAIL(ERR_DEVICE, "cannot start the dashboard: %s", strerror(why));
    }
    *out = s;
    return ERR_NONE;
}

double board_server_idle(struct board_server *s) {
    return clock_seconds(clock_ns() - atomic_load(&s->asked));
}

bool board_server_done(struct board_server *s) {
    return atomic_load(&s->done);
}

void board_server_stop(struct board_server *s) {
    uint64_t one = 1;
    atomic_store(&s->stop, true);
    (void)!write(s->wake, &one, sizeof one);
    pthread_join(s->thread, NULL);
    for (int i = 0; i < CONNECTIONS; i++) connection_close(&s->at[i]);
    close(s->wake);
    close(s->listener);
    free(s);
}
