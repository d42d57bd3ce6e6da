#include "tests/harness/ports.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Whether one of the process's descriptors is the socket with that inode. */
static bool holds(pid_t pid, unsigned long inode) {
    char path[320], socket_name[64], target[64];
    bool found = false;
    snprintf(socket_name, sizeof socket_name, "socket:[%lu]", inode);
    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    DIR *d = opendir(path);
    for (struct dirent *e; d && !found && (e = readdir(d));) {
        snprintf(path, sizeof path, "/proc/%d/fd/%s", (int)pid, e->d_name);
        ssize_t n = readlink(path, target, sizeof target - 1);
        if (n < 0) continue;
        target[n] = '\0';
        found = !strcmp(target, socket_name);
    }
    if (d) closedir(d);
    return found;
}

int ports_of(pid_t pid, int *ports, int most) {
    enum { LISTENS = 0x0a };
    char line[512];
    int n = 0;
    FILE *f = fopen("/proc/net/tcp", "r");
    while (f && n < most && fgets(line, sizeof line, f)) {
        unsigned port, state;
        unsigned long inode;
        if (sscanf(line, "%*s %*8x:%4x %*s %2x %*s %*s %*s %*s %*s %lu", &port, &state, &inode) != 3 ||
            state != LISTENS || !holds(pid, inode))
            continue;
        ports[n++] = (int)port;
    }
    if (f) fclose(f);
    return n;
}

void stranger_send(struct strangers *s, int port, const void *bytes, size_t n) {
    struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) fail_msg("no socket for a stranger");
    (void)connect(fd, (struct sockaddr *)&a, sizeof a); /* on the loopback it is done at once */
    if (n) (void)!send(fd, bytes, n, MSG_NOSIGNAL);
    if (s->count == STRANGERS) {
        close(s->fd[0]);
        memmove(s->fd, s->fd + 1, (STRANGERS - 1) * sizeof s->fd[0]);
        s->count--;
    }
    s->fd[s->count++] = fd;
}

void strangers_leave(struct strangers *s) {
    while (s->count > 0) close(s->fd[--s->count]);
}

int port_free(void) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, n), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &n), 0);
    close(fd);
    return ntohs(at.sin_port);
}
