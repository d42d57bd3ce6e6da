/* Hosts and ports. */
#include "transport/door/address.h"
#include "engine/base/text.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- text ---- */

static enum error fail_text(const char *text) {
    return FAIL(ERR_CONFIG,
                "'tcp:%.300s' is not the address of a store\nwrite tcp://HOST:PORT, an IPv6 number in brackets", text);
}

enum error address_parse(const char *text, struct address *out) {
    if (strncmp(text, "//", 2)) return fail_text(text);
    const char *host = text + 2, *colon = strrchr(host, ':');
    bool brackets = *host == '[';
    if (!colon || (brackets && (colon < host + 2 || colon[-1] != ']'))) return fail_text(text);
    size_t n = (size_t)(colon - host) - (brackets ? 2 : 0);
    int64_t port;
    host += brackets;
    if (n == 0 || n >= HOST_MAX || (!brackets && memchr(host, ':', n)) || !text_int(colon + 1, &port) || port < 0 ||
        port > 65535)
        return fail_text(text);
    memcpy(out->host, host, n);
    out->host[n] = '\0';
    out->port = (int)port;
    return ERR_NONE;
}

/* Without brackets; false: it is none of IP. */
static bool address_number(const struct sockaddr *a, char *out, size_t size) {
    socklen_t n = a->sa_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
    return getnameinfo(a, n, out, (socklen_t)size, NULL, 0, NI_NUMERICHOST) == 0;
}

/* IPv4 numbers may be written as IPv6 ones. */
static bool number_is_loopback(const char *number) {
    static const char mapped[] = "::ffff:";
    if (!strncmp(number, mapped, sizeof mapped - 1)) number += sizeof mapped - 1;
    return !strncmp(number, "127.", 4) || !strcmp(number, "::1");
}

/* ---- endpoints ---- */

socklen_t endpoint_bytes(const struct endpoint *e) {
    return e->at.ss_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
}

/* The port stands at the same place in both kinds of addresses. */
static void endpoint_describe(struct endpoint *e) {
    char number[ENDPOINT_MAX - 10];
    e->port = ntohs(((const struct sockaddr_in *)(const void *)&e->at)->sin_port);
    if (!address_number((const struct sockaddr *)&e->at, number, sizeof number)) *number = '\0';
    snprintf(e->text, sizeof e->text, e->at.ss_family == AF_INET ? "%s:%d" : "[%s]:%d", number, e->port);
    e->loopback = number_is_loopback(number);
    e->any = !strcmp(number, "0.0.0.0") || !strcmp(number, "::");
}

static void add_family(const struct addrinfo *list, int family, struct endpoint out[ENDPOINTS_MAX], int *count) {
    for (const struct addrinfo *i = list; i && *count < ENDPOINTS_MAX; i = i->ai_next) {
        if (i->ai_family != family) continue;
        memcpy(&out[*count].at, i->ai_addr, i->ai_addrlen);
        endpoint_describe(&out[(*count)++]);
    }
}

enum error address_resolve(const struct address *a, struct endpoint out[ENDPOINTS_MAX], int *count) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list;
    char port[16];
    snprintf(port, sizeof port, "%d", a->port);
    int err = getaddrinfo(a->host, port, &hints, &list);
    if (err) return FAIL(ERR_CREATE, "the host '%s' is not known: %s", a->host, gai_strerror(err));
    *count = 0;
    add_family(list, AF_INET, out, count);
    add_family(list, AF_INET6, out, count);
    freeaddrinfo(list);
    return *count ? ERR_NONE : FAIL(ERR_CREATE, "the host '%s' has no IP address", a->host);
}

bool endpoint_of(int fd, bool remote, struct endpoint *out) {
    socklen_t n = sizeof out->at;
    if ((remote ? getpeername : getsockname)(fd, (struct sockaddr *)&out->at, &n) != 0) return false;
    endpoint_describe(out);
    return true;
}

int endpoint_socket(const struct endpoint *e) {
    int fd = socket(e->at.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), on = 1;
    if (fd < 0) return -1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on); /* whoever accepts has both from its listener */
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    return fd;
}

/* ---- this host's ---- */

static bool address_is_link_local(const struct sockaddr *a) {
    if (a->sa_family == AF_INET) {
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)(const void *)a;
        return ntohl(v4->sin_addr.s_addr) >> 16 == 0xa9fe;
    }
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)(const void *)a;
    return IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr);
}

static bool interface_address_of(const char *interface, int family, const struct ifaddrs *list, char out[ADDRESS_MAX]) {
    for (const struct ifaddrs *i = list; i; i = i->ifa_next)
        if (i->ifa_addr && i->ifa_addr->sa_family == family && !strcmp(i->ifa_name, interface) &&
            !address_is_link_local(i->ifa_addr) && address_number(i->ifa_addr, out, ADDRESS_MAX))
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
            (i->ifa_addr && address_number(i->ifa_addr, text, sizeof text) && !strcmp(text, interface)))
            break;
    if (i) snprintf(name, ADDRESS_MAX, "%s", i->ifa_name);
    freeifaddrs(list);
    return i;
}

/* A datagram socket that is connected sends nothing, but has chosen its route. */
static bool route_local(const struct endpoint *to, char out[ADDRESS_MAX]) {
    struct endpoint own;
    int fd = socket(to->at.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool ok = fd >= 0 && connect(fd, (const struct sockaddr *)&to->at, endpoint_bytes(to)) == 0 &&
              endpoint_of(fd, false, &own) && address_number((struct sockaddr *)&own.at, out, ADDRESS_MAX);
    if (fd >= 0) close(fd);
    return ok;
}

enum error port_address_towards(const char *towards, char out[ADDRESS_MAX]) {
    struct address to;
    struct endpoint at[ENDPOINTS_MAX];
    char text[HOST_MAX + 16];
    int count;
    snprintf(text, sizeof text, "//%s", towards);
    TRY(address_parse(text, &to));
    if (address_resolve(&to, at, &count) != ERR_NONE) return FAIL(ERR_CONFIG, "%s", error_message());
    for (int i = 0; i < count; i++)
        if (route_local(&at[i], out)) return ERR_NONE;
    return FAIL(ERR_IO, "this host has no route to %s", towards);
}
