/* Addresses: which of this host's a port listens on, and which socket has a stream's. */
#include "transport/link/tcp_address.h"
#include "transport/door/address.h"
#include "transport/link/tcp_impl.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static bool address_is_link_local(const struct sockaddr *a) {
    if (a->sa_family == AF_INET) {
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)(const void *)a;
        return ntohl(v4->sin_addr.s_addr) >> 16 == 0xa9fe;
    }
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)(const void *)a;
    return IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr);
}

static bool address_text(const struct sockaddr *a, char out[ADDRESS_MAX]) {
    socklen_t n = a->sa_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
    return getnameinfo(a, n, out, ADDRESS_MAX, NULL, 0, NI_NUMERICHOST) == 0;
}

static bool interface_address_of(const char *interface, int family, const struct ifaddrs *list, char out[ADDRESS_MAX]) {
    for (const struct ifaddrs *i = list; i; i = i->ifa_next)
        if (i->ifa_addr && i->ifa_addr->sa_family == family && !strcmp(i->ifa_name, interface) &&
            !address_is_link_local(i->ifa_addr) && address_text(i->ifa_addr, out))
            return true;
    return false;
}

enum error address_choose(const char *interface, char out[ADDRESS_MAX]) {
    unsigned char bytes[16];
    struct ifaddrs *list;
    if (!interface) interface = "127.0.0.1";
    snprintf(out, ADDRESS_MAX, "%s", interface);
    if (inet_pton(AF_INET, interface, bytes) == 1 || inet_pton(AF_INET6, interface, bytes) == 1) return ERR_NONE;
    if (getifaddrs(&list) != 0) return FAIL(ERR_IO, "cannot list interfaces: %s", strerror(errno));
    bool found =
        interface_address_of(interface, AF_INET, list, out) || interface_address_of(interface, AF_INET6, list, out);
    freeifaddrs(list);
    if (found) return ERR_NONE;
    return FAIL(ERR_CONFIG,
                "'%.64s' is neither an address nor an interface that has one\n"
                "`ip address` lists what this host has",
                interface);
}

bool address_interface(const char *interface, char name[ADDRESS_MAX]) {
    struct ifaddrs *list, *i;
    char text[ADDRESS_MAX];
    if (getifaddrs(&list) != 0) return false;
    for (i = list; i; i = i->ifa_next)
        if (!strcmp(i->ifa_name, interface) ||
            (i->ifa_addr && address_text(i->ifa_addr, text) && !strcmp(text, interface)))
            break;
    if (i) snprintf(name, ADDRESS_MAX, "%s", i->ifa_name);
    freeifaddrs(list);
    return i;
}

/* ---- towards a peer ---- */

/* A datagram socket that is connected sends nothing, but has chosen its route. */
static bool route_local(const struct addrinfo *to, char out[ADDRESS_MAX]) {
    struct sockaddr_storage own;
    socklen_t n = sizeof own;
    int fd = socket(to->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool ok = fd >= 0 && connect(fd, to->ai_addr, to->ai_addrlen) == 0 &&
              getsockname(fd, (struct sockaddr *)&own, &n) == 0 && address_text((struct sockaddr *)&own, out);
    if (fd >= 0) close(fd);
    return ok;
}

enum error port_address_towards(const char *towards, char out[ADDRESS_MAX]) {
    struct address to;
    char text[HOST_MAX + 16];
    struct addrinfo hints = {.ai_socktype = SOCK_DGRAM}, *list;
    snprintf(text, sizeof text, "//%s", towards);
    TRY(address_parse(text, &to));
    int err = getaddrinfo(to.host, "1", &hints, &list);
    if (err) return FAIL(ERR_CONFIG, "no address of '%s': %s", to.host, gai_strerror(err));
    bool found = false;
    for (const struct addrinfo *a = list; a && !found; a = a->ai_next) found = route_local(a, out);
    freeaddrinfo(list);
    return found ? ERR_NONE : FAIL(ERR_IO, "this host has no route to %s", towards);
}

/* ---- a stream's descriptor ---- */

static bool socket_address_is(const nng_sockaddr *a, const struct sockaddr_storage *b) {
    if (a->s_family == NNG_AF_INET && b->ss_family == AF_INET) {
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)(const void *)b;
        return a->s_in.sa_port == v4->sin_port && a->s_in.sa_addr == v4->sin_addr.s_addr;
    }
    if (a->s_family != NNG_AF_INET6 || b->ss_family != AF_INET6) return false;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)(const void *)b;
    return a->s_in6.sa_port == v6->sin6_port && !memcmp(a->s_in6.sa_addr, &v6->sin6_addr, 16);
}

static bool socket_is_between(int fd, const nng_sockaddr *local, const nng_sockaddr *remote) {
    struct sockaddr_storage a, b;
    socklen_t na = sizeof a, nb = sizeof b;
    return getsockname(fd, (struct sockaddr *)&a, &na) == 0 && socket_address_is(local, &a) &&
           getpeername(fd, (struct sockaddr *)&b, &nb) == 0 && socket_address_is(remote, &b);
}

/* -1: there is none. Streams that are opened one after another have descriptors close to each other, so those near the
 * last one that was found come first: a process of a thousand ranks has tens of thousands. */
static enum error socket_between(const nng_sockaddr *local, const nng_sockaddr *remote, int *out) {
    enum { NEAR = 64 };
    static _Atomic int last;
    *out = -1;
    for (int by = 0, around = last; by < 2 * NEAR && *out < 0; by++) {
        int fd = around + (by % 2 ? -(by + 1) / 2 : by / 2);
        if (fd >= 0 && socket_is_between(fd, local, remote)) *out = fd;
    }
    DIR *d = *out < 0 ? opendir("/proc/self/fd") : NULL;
    if (!d && *out < 0) return FAIL(ERR_IO, "cannot list this process's descriptors: %s", strerror(errno));
    for (struct dirent *e; d && *out < 0 && (e = readdir(d));)
        if (socket_is_between(atoi(e->d_name), local, remote)) *out = atoi(e->d_name);
    if (d) closedir(d);
    if (*out >= 0) last = *out;
    return ERR_NONE;
}

enum error stream_descriptor(nng_stream *s, int *out) {
    nng_sockaddr local, remote;
    if (nng_stream_get_addr(s, NNG_OPT_LOCADDR, &local) != 0 || nng_stream_get_addr(s, NNG_OPT_REMADDR, &remote) != 0)
        return FAIL(ERR_PEER, "a stream ended while its group was opened");
    TRY(socket_between(&local, &remote, out));
    return *out >= 0 ? ERR_NONE : FAIL(ERR_PEER, "a stream ended while its group was opened");
}
