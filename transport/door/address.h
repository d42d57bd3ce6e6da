/* Hosts and ports, and sockets between them: how a store or a rank is found, and what is said when it is not. */
#pragma once
#include "transport/base/place.h"

#include <stdbool.h>
#include <sys/socket.h>

enum { HOST_MAX = 256, ENDPOINT_MAX = 64, ENDPOINTS_MAX = 8 };
struct address {
    char host[HOST_MAX]; /* a name or a number; without brackets */
    int port;
};
/* "//HOST:PORT", with IPv6 numbers in brackets. */
MUST_CHECK enum error address_parse(const char *text, struct address *out);

struct endpoint {
    struct sockaddr_storage at;
    char text[ENDPOINT_MAX]; /* "127.0.0.1:29500", "[::1]:29500" */
    int port;
    bool loopback, any; /* any: 0.0.0.0, :: */
};
/* The host's addresses, IPv4 before IPv6; gives how many they are, at least 1. The failure names
 * the host. Looking up a name cannot be interrupted. */
MUST_CHECK enum error address_resolve(const struct address *a, struct endpoint out[ENDPOINTS_MAX], int *count);
/* Where this end of a socket is, or the other one; false: it has ended. */
bool endpoint_of(int fd, bool remote, struct endpoint *out);
socklen_t endpoint_bytes(const struct endpoint *e); /* of 'at' */
/* A socket for connecting there or listening, whose calls do not wait; -1 with errno. */
int endpoint_socket(const struct endpoint *e);
/* port_params.interface as an address, without brackets. */
MUST_CHECK enum error address_choose(const char *interface, char out[ADDRESS_MAX]);
/* The name of the interface that this is, or that has this address; false: there is none. */
bool address_interface(const char *interface, char name[ADDRESS_MAX]);

/* ---- sockets.c ---- */

/* "process 4711 (python3)" which listens on the port of this host, or "": none that we may see. */
void address_owner(int port, char out[64]);
/* Whether the socket at the other end is on this host and belongs to this process's user. Call it while the other end
 * waits for an answer: a socket that its process has closed has no owner. */
bool remote_is_ours(int fd);
/* "10.0.0.2:41234", "[::1]:41234"; "an unknown address" when the stream has ended. */
void remote_name(int fd, char out[ENDPOINT_MAX]);
