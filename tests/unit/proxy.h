/* A TCP proxy in threads of the test, which mistreats what passes: slices it, stops it, cuts it, changes
 * it. */
#pragma once
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PROXIED = 16 };
/* What an attacker does to one piece of what passes. ATTACK_OLD sends a piece of an earlier connection before it. */
enum attack { ATTACK_NONE, ATTACK_FLIP, ATTACK_DROP, ATTACK_REPEAT, ATTACK_SWAP, ATTACK_CUT, ATTACK_OLD, ATTACKS };
struct proxy {
    int slice;              /* bytes it passes at a time; 0: what there is */
    int buffer;             /* of its sockets; 0: the kernel's choice */
    _Atomic long cut_after; /* bytes of all streams after which it resets them; 0: never */
    _Atomic int change;     /* so many times, one bit of what it passes at once */
    enum attack attack;
    _Atomic int at;       /* the piece that is attacked, counted over all streams, from 1; 0: none */
    _Atomic int pieces;   /* that have come */
    unsigned bit;         /* that is flipped, modulo the piece's bits */
    char old[4096];       /* the piece of ATTACK_OLD; recorded from here where 'record' is set */
    _Atomic size_t n_old; /* its bytes */
    bool record;
    char *seen; /* 1 MB, of all that passes; NULL: nowhere */
    _Atomic size_t n_seen;
    pthread_mutex_t holding; /* of what follows */
    char held[65536];        /* of ATTACK_SWAP, until the next piece has passed that way */
    size_t n_held;
    int held_for;      /* the descriptor it goes to */
    _Atomic bool dumb; /* passes nothing more, but keeps the streams */
    _Atomic bool last; /* passes what has come, and resets the streams at once */
    const char *word;  /* what it looks for in all that passes; NULL: nothing */
    _Atomic int found; /* pieces that had it */
    int listener, target;
    _Atomic long passed;
    _Atomic bool stop;
    pthread_t acceptor, pumps[PROXIED];
    int pairs[PROXIED][2], count;
    struct pump {
        struct proxy *proxy;
        int *pair;
    } arg[PROXIED];
};

static inline struct sockaddr_in proxy_address(int port) {
    return (struct sockaddr_in){
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static inline void proxy_reset(int fd) {
    struct linger now = {.l_onoff = 1};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    shutdown(fd, SHUT_RDWR);
}

/* false: the piece does not pass. */
static inline bool proxy_attack(struct proxy *p, char *buf, ssize_t *n, int from, int to) {
    switch (p->attack) {
    case ATTACK_FLIP:
        buf[p->bit / 8 % (size_t)*n] ^= (char)(1 << p->bit % 8);
        return true;
    case ATTACK_DROP:
        return false;
    case ATTACK_REPEAT:
        (void)!send(to, buf, (size_t)*n, MSG_NOSIGNAL);
        return true;
    case ATTACK_SWAP:
        pthread_mutex_lock(&p->holding);
        memcpy(p->held, buf, (size_t)*n);
        p->n_held = (size_t)*n;
        p->held_for = to;
        pthread_mutex_unlock(&p->holding);
        return false;
    case ATTACK_CUT:
        (void)!send(to, buf, (size_t)(*n / 2), MSG_NOSIGNAL);
        shutdown(to, SHUT_WR);
        shutdown(from, SHUT_RD);
        return false;
    case ATTACK_OLD:
        (void)!send(to, p->old, p->n_old, MSG_NOSIGNAL);
        return true;
    default:
        return true;
    }
}

static inline void proxy_pass(struct proxy *p, int from, int to) {
    static const int most = 65536;
    char buf[65536];
    ssize_t n = recv(from, buf, (size_t)(p->slice ? p->slice : most), 0);
    if (n <= 0) {
        shutdown(to, SHUT_WR);
        shutdown(from, SHUT_RD);
        return;
    }
    if (p->word && memmem(buf, (size_t)n, p->word, strlen(p->word))) p->found++;
    if (p->change > 0 && p->change--) buf[n / 2] ^= 4;
    p->pieces++;
    if (p->record && (size_t)n <= sizeof p->old) {
        memcpy(p->old, buf, (size_t)n);
        p->n_old = (size_t)n;
    }
    if (p->seen && p->n_seen + (size_t)n <= 1 << 20)
        memcpy(p->seen + atomic_fetch_add(&p->n_seen, (size_t)n), buf, (size_t)n);
    if (p->at > 0 && --p->at == 0 && !proxy_attack(p, buf, &n, from, to)) return;
    for (ssize_t done = 0, k; done < n; done += k)
        if ((k = send(to, buf + done, (size_t)(n - done), MSG_NOSIGNAL)) <= 0) break;
    pthread_mutex_lock(&p->holding);
    if (p->n_held && p->held_for == to) (void)!send(to, p->held, p->n_held, MSG_NOSIGNAL);
    if (p->held_for == to) p->n_held = 0;
    pthread_mutex_unlock(&p->holding);
    atomic_fetch_add(&p->passed, (long)n);
}

/* What has come is passed on, also of an end that has reset its stream. */
static inline void proxy_rest(const int pair[2]) {
    char buf[4096];
    for (int i = 0; i < 2; i++)
        for (ssize_t n; (n = recv(pair[i], buf, sizeof buf, MSG_DONTWAIT)) > 0;)
            if (send(pair[!i], buf, (size_t)n, MSG_NOSIGNAL) < n) break;
}

/* What has been sent to a socket of this host arrives before the reset. */
static inline void proxy_end(int pair[2]) {
    struct linger now = {.l_onoff = 1};
    proxy_rest(pair);
    for (int i = 0; i < 2; i++) {
        setsockopt(pair[i], SOL_SOCKET, SO_LINGER, &now, sizeof now);
        close(pair[i]);
        pair[i] = -1;
    }
}

static inline void *proxy_pump(void *arg) {
    struct pump *a = arg;
    struct proxy *p = a->proxy;
    while (!p->stop) {
        struct pollfd f[2] = {{.fd = a->pair[0], .events = POLLIN}, {.fd = a->pair[1], .events = POLLIN}};
        if (p->last) {
            proxy_end(a->pair);
            return NULL;
        }
        if (p->dumb) {
            usleep(1000);
            continue;
        }
        if (p->cut_after && p->passed > p->cut_after) {
            proxy_reset(a->pair[0]);
            proxy_reset(a->pair[1]);
            break;
        }
        if (poll(f, 2, 10) <= 0) continue;
        if ((f[0].revents | f[1].revents) & (POLLERR | POLLNVAL)) break;
        if (f[0].revents & f[1].revents & POLLHUP) break;
        for (int i = 0; i < 2; i++)
            if (f[i].revents & POLLIN) proxy_pass(p, a->pair[i], a->pair[!i]);
    }
    if (!p->cut_after) proxy_rest(a->pair);
    shutdown(a->pair[0], SHUT_RDWR);
    shutdown(a->pair[1], SHUT_RDWR);
    return NULL;
}

static inline void proxy_buffers(const struct proxy *p, int fd) {
    if (!p->buffer) return;
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &p->buffer, sizeof p->buffer);
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &p->buffer, sizeof p->buffer);
}

static inline void *proxy_accept(void *arg) {
    struct proxy *p = arg;
    while (p->count < PROXIED) {
        int *pair = p->pairs[p->count];
        struct sockaddr_in to = proxy_address(p->target);
        pair[0] = accept(p->listener, NULL, NULL);
        if (pair[0] < 0) break;
        pair[1] = socket(AF_INET, SOCK_STREAM, 0);
        proxy_buffers(p, pair[1]);
        if (connect(pair[1], (struct sockaddr *)&to, sizeof to) != 0) abort();
        p->arg[p->count] = (struct pump){p, pair};
        if (pthread_create(&p->pumps[p->count], NULL, proxy_pump, &p->arg[p->count])) abort();
        p->count++;
    }
    return NULL;
}

/* Stands before 'address', a tcp URL with a port on loopback, and replaces it by its own. */
static inline void proxy_open(struct proxy *p, char *address, size_t n) {
    struct sockaddr_in own = proxy_address(0);
    socklen_t size = sizeof own;
    p->target = atoi(strrchr(address, ':') + 1);
    p->listener = socket(AF_INET, SOCK_STREAM, 0);
    proxy_buffers(p, p->listener);
    if (bind(p->listener, (struct sockaddr *)&own, size) || listen(p->listener, 16) ||
        getsockname(p->listener, (struct sockaddr *)&own, &size) || pthread_create(&p->acceptor, NULL, proxy_accept, p))
        abort();
    snprintf(address, n, "tcp://127.0.0.1:%d", ntohs(own.sin_port));
}

static inline void proxy_close(struct proxy *p) {
    p->stop = true;
    shutdown(p->listener, SHUT_RDWR);
    pthread_join(p->acceptor, NULL);
    for (int i = 0; i < p->count; i++) {
        pthread_join(p->pumps[i], NULL);
        close(p->pairs[i][0]);
        close(p->pairs[i][1]);
    }
    close(p->listener);
}
