/* The life of the dashboard: where it listens, whom it follows, when it ends. */
#include "cli/dashboard_impl.h"

#include "cli/dashboard_page.h"
#include "engine/base/clock.h"
#include "engine/base/log.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { NAME = 256, TRIES = 100 };
#define LOOKING 3.0 /* seconds since a page asked last: it is still open */
struct dashboard {
    char host[NAME], own[NAME], url[NAME + 32];
    int port;
    bool loopback, told_end;
    struct http_rules rules;
    struct board_server *server;
    pthread_mutex_t lock; /* of what follows, which the server's thread reads */
    struct board_state state;
    char *run; /* JSON */
};

/* ---- where ---- */
/* "8080", "host:8080", "[::1]:8080", whose form the configuration has checked. */
static void read_address(const char *text, struct dashboard *d) {
    const char *colon = strrchr(text, ':');
    size_t n = colon ? (size_t)(colon - text) : 0;
    bool brackets = n >= 2 && text[0] == '[' && text[n - 1] == ']';
    snprintf(d->host, sizeof d->host, "%.*s", (int)(brackets ? n - 2 : n), text + brackets);
    if (!colon) snprintf(d->host, sizeof d->host, "127.0.0.1");
    d->port = atoi(colon ? colon + 1 : text);
}

static bool is_loopback(const struct sockaddr *a) {
    if (a->sa_family == AF_INET6)
        return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr);
    return ntohl(((const struct sockaddr_in *)(const void *)a)->sin_addr.s_addr) >> 24 == 127;
}

static int port_of(int fd) {
    struct sockaddr_storage a;
    socklen_t n = sizeof a;
    if (getsockname(fd, (struct sockaddr *)&a, &n) != 0) return 0;
    return ntohs(a.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&a)->sin6_port
                                         : ((struct sockaddr_in *)&a)->sin_port);
}

/* -1: errno says why not. */
static int listen_at(struct addrinfo *a, int port) {
    int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), yes = 1;
    if (fd < 0) return -1;
    if (a->ai_family == AF_INET6)
        ((struct sockaddr_in6 *)(void *)a->ai_addr)->sin6_port = htons((uint16_t)port);
    else
        ((struct sockaddr_in *)(void *)a->ai_addr)->sin_port = htons((uint16_t)port);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, 16) == 0) return fd;
    int why = errno;
    close(fd);
    errno = why;
    return -1;
}

/* One that was free a moment ago, near the one that is not. */
static int free_port(struct addrinfo *a, int port) {
    for (int i = 1; i < TRIES && port + i < 65536; i++) {
        int fd = listen_at(a, port + i);
        if (fd >= 0) return close(fd), port + i;
    }
    return 0;
}

static enum error listen_anew(struct dashboard *d, struct addrinfo *a, int *out) {
    *out = listen_at(a, d->port);
    d->loopback = is_loopback(a->ai_addr);
    if (*out >= 0) return ERR_NONE;
    int why = errno;
    if (why == EADDRINUSE)
        return FAIL(ERR_DEVICE,
                    "log.dashboard: port %d of %s is taken\n--dashboard=%s%s%s:%d is free; port 0 "
                    "is any that is",
                    d->port, d->host, a->ai_family == AF_INET6 ? "[" : "", d->host, a->ai_family == AF_INET6 ? "]" : "",
                    free_port(a, d->port));
    return FAIL(ERR_DEVICE, "log.dashboard: cannot listen at %s, port %d: %s", d->host, d->port, strerror(why));
}

static enum error open_listener(struct dashboard *d, int *out) {
    struct addrinfo *found, hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    int why = getaddrinfo(d->host, NULL, &hints, &found);
    if (why) return FAIL(ERR_DEVICE, "log.dashboard: no address of '%s': %s", d->host, gai_strerror(why));
    enum error err = listen_anew(d, found, out);
    bool six = found->ai_family == AF_INET6;
    freeaddrinfo(found);
    if (err != ERR_NONE) return err;
    d->port = port_of(*out);
    snprintf(d->url, sizeof d->url, "http://%s%s%s:%d/", six ? "[" : "", d->host, six ? "]" : "", d->port);
    return ERR_NONE;
}

/* ---- answers ---- */
static void tell(void *user, const struct http_request *r, struct board_answer *a, FILE *body) {
    struct dashboard *d = user;
    bool good = true, last = false;
    int64_t next = r->since;
    pthread_mutex_lock(&d->lock);
    if (r->page == HTTP_PAGE) fwrite(dashboard_page, 1, sizeof dashboard_page, body);
    if (r->page == HTTP_RUN) fprintf(body, "%s\n", d->run ? d->run : "{}");
    if (r->page == HTTP_RANKS) good = board_ranks(&d->state, body);
    if (r->page == HTTP_METRICS) {
        good = board_metrics(&d->state, &next, &last, body);
        a->next = next;
        a->last_words = good && last && d->told_end;
    }
    if (r->page == HTTP_RANKS) d->told_end = good && d->state.ended;
    pthread_mutex_unlock(&d->lock);
    static const char *const types[] = {[HTTP_PAGE] = "text/html; charset=utf-8",
                                        [HTTP_RUN] = "application/json",
                                        [HTTP_RANKS] = "application/json",
                                        [HTTP_METRICS] = "application/x-ndjson"};
    a->type = types[r->page];
    a->status = good ? 200 : 500;
}

/* ---- its life ---- */
static enum error start(struct dashboard *d) {
    int fd = -1;
    TRY(open_listener(d, &fd));
    if (!d->loopback) {
        (void)gethostname(d->own, sizeof d->own - 1);
        d->rules = (struct http_rules){.name = d->host, .host = d->own};
        log_warn("the dashboard at %s is open to everyone who can reach this host, and asks for no "
                 "password",
                 d->url);
    }
    enum error err = board_server_start(fd, &d->rules, tell, d, &d->server);
    if (err != ERR_NONE) close(fd);
    return err;
}

enum error dashboard_open(const char *address, struct dashboard **out) {
    *out = NULL;
    if (!strcmp(address, "off")) return ERR_NONE;
    struct timespec now;
    struct dashboard *d = calloc(1, sizeof *d);
    if (!d) return FAIL(ERR_MEMORY, "no memory for the dashboard");
    pthread_mutex_init(&d->lock, NULL);
    clock_gettime(CLOCK_REALTIME, &now);
    d->state.since_wall = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
    read_address(address, d);
    enum error err = start(d);
    if (err != ERR_NONE) {
        pthread_mutex_destroy(&d->lock);
        free(d);
        return err;
    }
    *out = d;
    return ERR_NONE;
}

const char *dashboard_url(const struct dashboard *d) {
    return d->url;
}

void dashboard_follow(struct dashboard *d, const struct job *job) {
    pthread_mutex_lock(&d->lock);
    d->state.run_dir = job->run_dir;
    d->run = board_run(job);
    pthread_mutex_unlock(&d->lock);
}

/* A page asks more than once a second; what it saw last should not be that nobody answers. */
static void wait_for_page(struct dashboard *d) {
    const struct timespec pause = {.tv_nsec = 10000000};
    int64_t until = clock_ns() + 1000000000;
    while (board_server_idle(d->server) < LOOKING && !board_server_done(d->server) && clock_ns() < until)
        nanosleep(&pause, NULL);
}

void dashboard_close(struct dashboard *d, int code) {
    if (!d) return;
    pthread_mutex_lock(&d->lock);
    d->state.ended = true;
    d->state.code = code;
    pthread_mutex_unlock(&d->lock);
    wait_for_page(d);
    board_server_stop(d->server);
    pthread_mutex_destroy(&d->lock);
    free(d->run);
    free(d);
}
