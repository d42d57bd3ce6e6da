/* Hosts and ports: how a tcp store is found, and what is said when it is not. */
#pragma once
#include "engine/base/error.h"
#include <stdint.h>

enum { HOST_MAX = 256, ENDPOINT_MAX = 64, ENDPOINTS_MAX = 8 };
struct address {
    char host[HOST_MAX]; /* a name or a number; without brackets */
    int port;
};
/* "//HOST:PORT", with IPv6 numbers in brackets. */
MUST_CHECK enum error address_parse(const char *text, struct address *out);

struct endpoint {
    char text[ENDPOINT_MAX]; /* "127.0.0.1:29500", "[::1]:29500" */
    bool loopback, any;      /* any: 0.0.0.0, :: */
};
/* Of an address as numbers, without brackets. */
bool address_is_loopback(const char *number);
/* The host's addresses, IPv4 before IPv6; gives how many they are, at least 1. The failure names
 * the host. Looking up a name cannot be interrupted. */
MUST_CHECK enum error address_resolve(const struct address *a, struct endpoint out[ENDPOINTS_MAX], int *count);
/* "process 4711 (python3)" which listens on the port of this host, or "": none that we may see. */
void address_owner(int port, char out[64]);
