/* Where the dashboard listens: at the loopback, unless another address is given. */
#include "cli/dashboard/impl.h"

#include "engine/base/log.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { TRIES = 100 };

/* "8080", "host:8080", "[::1]:8080", whose form the configuration has checked. */
static void listen_read_address(const char *text, struct board_place *d) {
    const char *colon = strrchr(text, ':');
    size_t n = colon ? (size_t)(colon - text) : 0;
    bool brackets = n >= 2 && text[0] == '[' && text[n - 1] == ']';
    snprintf(d->host, sizeof d->host, "%.*s", (int)(brackets ? n - 2 : n), text + brackets);
    if (!colon) snprintf(d->host, sizeof d->host, "127.0.0.1");
    d->port = atoi(colon ? colon + 1 : text);
}

static bool listen_is_loopback(const struct sockaddr *a) {
    if (a->sa_family == AF_INET6)
        return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr);
    return ntohl(((const struct sockaddr_in *)(const void *)a)->sin_addr.s_addr) >> 24 == 127;
}

static int listen_port_of(int fd) {
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
static int listen_free_port(struct addrinfo *a, int port) {
    for (int i = 1; i < TRIES && port + i < 65536; i++) {
        int fd = listen_at(a, port + i);
        if (fd >= 0) return close(fd), port + i;
    }
    return 0;
}

static enum error listen_anew(struct board_place *d, const char *option, struct addrinfo *a, int *out) {
    *out = listen_at(a, d->port);
    d->loopback = listen_is_loopback(a->ai_addr);
    if (*out >= 0) return ERR_NONE;
    int why = errno;
    if (why == EADDRINUSE)
        return FAIL(ERR_DEVICE,
                    "the dashboard: port %d of %s is taken\n%s%s%s%s:%d is free; port 0 "
                    "is any that is",
                    d->port, d->host, option, a->ai_family == AF_INET6 ? "[" : "", d->host,
                    a->ai_family == AF_INET6 ? "]" : "", listen_free_port(a, d->port));
    return FAIL(ERR_DEVICE, "the dashboard: cannot listen at %s, port %d: %s", d->host, d->port, strerror(why));
}

static enum error listen_open_listener(struct board_place *d, const char *option, int *out) {
    struct addrinfo *found, hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    int why = getaddrinfo(d->host, NULL, &hints, &found);
    if (why) return FAIL(ERR_DEVICE, "the dashboard: no address of '%s': %s", d->host, gai_strerror(why));
    enum error err = listen_anew(d, option, found, out);
    bool six = found->ai_family == AF_INET6;
    freeaddrinfo(found);
    if (err != ERR_NONE) return err;
    d->port = listen_port_of(*out);
    snprintf(d->url, sizeof d->url, "http://%s%s%s:%d/", six ? "[" : "", d->host, six ? "]" : "", d->port);
    return ERR_NONE;
}

enum error board_server_open(const char *address, const char *option, board_answer_fn answer, void *user,
                             struct board_place *place, struct board_server **out) {
    struct http_rules rules = {0};
    int fd = -1;
    listen_read_address(address, place);
    TRY(listen_open_listener(place, option, &fd));
    if (!place->loopback) {
        (void)gethostname(place->own, sizeof place->own - 1);
        rules = (struct http_rules){.name = place->host, .host = place->own};
        log_warn("the dashboard at %s is open to everyone who can reach this host, and asks for no "
                 "password",
                 place->url);
    }
    enum error err = board_server_start(fd, &rules, answer, user, out);
    if (err != ERR_NONE) close(fd);
    return err;
}
