#include "tests/harness/http.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

const char *http_get(int port, const char *target, char *to, size_t room) {
    struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timeval limit = {10, 0};
    size_t n = 0;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    snprintf(to, room, "GET %s HTTP/1.1\r\nHost: localhost:%d\r\n\r\n", target, port);
    bool there = connect(fd, (struct sockaddr *)&a, sizeof a) == 0 &&
                 send(fd, to, strlen(to), MSG_NOSIGNAL) == (ssize_t)strlen(to);
    for (ssize_t got; there && (got = recv(fd, to + n, room - n - 1, 0)) > 0;) n += (size_t)got;
    close(fd);
    to[n] = '\0';
    const char *body = n ? strstr(to, "\r\n\r\n") : NULL;
    return body && !strncmp(to, "HTTP/1.1 200", 12) ? body + 4 : NULL;
}

int http_port(const char *path) {
    static const char before[] = "http://127.0.0.1:";
    char line[1000] = "";
    for (int i = 0; i < 3000; i++) {
        FILE *f = fopen(path, "r");
        size_t n = f ? fread(line, 1, sizeof line - 1, f) : 0;
        if (f) fclose(f);
        line[n] = '\0';
        const char *at = strstr(line, before);
        if (at && strchr(at + sizeof before - 1, '/')) return atoi(at + sizeof before - 1);
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    fail_msg("no address in '%s': %s", path, line);
    return 0;
}
