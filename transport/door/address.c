/* Hosts and ports. */
#include "transport/door/address.h"
#include "engine/base/text.h"

#include <netdb.h>
#include <netinet/in.h>
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

/* IPv4 numbers may be written as IPv6 ones. */
bool address_is_loopback(const char *number) {
    static const char mapped[] = "::ffff:";
    if (!strncmp(number, mapped, sizeof mapped - 1)) number += sizeof mapped - 1;
    return !strncmp(number, "127.", 4) || !strcmp(number, "::1");
}

static void endpoint_describe(const struct sockaddr *s, int port, struct endpoint *out) {
    char number[ENDPOINT_MAX - 10];
    socklen_t n = s->sa_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
    if (getnameinfo(s, n, number, sizeof number, NULL, 0, NI_NUMERICHOST) != 0) *number = '\0';
    snprintf(out->text, sizeof out->text, s->sa_family == AF_INET ? "%s:%d" : "[%s]:%d", number, port);
    out->loopback = address_is_loopback(number);
    out->any = !strcmp(number, "0.0.0.0") || !strcmp(number, "::");
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
