/* Hosts and ports. */
#include "transport/door/address.h"
#include "engine/base/text.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

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

static const void *number_of(const struct sockaddr *s) {
    const void *at = s;
    return s->sa_family == AF_INET ? (const void *)&((const struct sockaddr_in *)at)->sin_addr
                                   : (const void *)&((const struct sockaddr_in6 *)at)->sin6_addr;
}

static bool is_loopback(const struct sockaddr *s) {
    const unsigned char *b = number_of(s);
    bool mapped = s->sa_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED((const struct in6_addr *)number_of(s));
    if (s->sa_family == AF_INET) return b[0] == 127;
    return mapped ? b[12] == 127 : IN6_IS_ADDR_LOOPBACK((const struct in6_addr *)number_of(s));
}

static bool is_any(const struct sockaddr *s) {
    const unsigned char *b = number_of(s);
    for (int i = 0; i < (s->sa_family == AF_INET ? 4 : 16); i++)
        if (b[i]) return false;
    return true;
}

static void endpoint_describe(const struct sockaddr *s, int port, struct endpoint *out) {
    char number[INET6_ADDRSTRLEN];
    inet_ntop(s->sa_family, number_of(s), number, sizeof number);
    snprintf(out->text, sizeof out->text, s->sa_family == AF_INET ? "%s:%d" : "[%s]:%d", number, port);
    out->loopback = is_loopback(s);
    out->any = is_any(s);
}

/* ---- names ---- */

static void add_family(const struct addrinfo *list, int family, int port, struct endpoint out[ENDPOINTS_MAX],
                       int *count) {
    for (const struct addrinfo *i = list; i && *count < ENDPOINTS_MAX; i = i->ai_next)
        if (i->ai_family == family) endpoint_describe(i->ai_addr, port, &out[(*count)++]);
}

enum error address_resolve(const struct address *a, struct endpoint out[ENDPOINTS_MAX], int *count) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list;
    int err = getaddrinfo(a->host, NULL, &hints, &list);
    if (err) return FAIL(ERR_CREATE, "the host '%s' is not known: %s", a->host, gai_strerror(err));
    *count = 0;
    add_family(list, AF_INET, a->port, out, count);
    add_family(list, AF_INET6, a->port, out, count);
    freeaddrinfo(list);
    return *count ? ERR_NONE : FAIL(ERR_CREATE, "the host '%s' has no IP address", a->host);
}
