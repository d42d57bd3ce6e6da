/* Sockets in the kernel's table of this host: which process listens on a port, and whose socket is at the other end of a
 * stream. The table gives a socket's number and user; for its process, the descriptors of all are searched. */
#include "engine/base/file.h"
#include "transport/door/address.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TABLE_LISTENS = 0x0A };
struct table_row {
    char local[48], remote[48]; /* "0100007F:1F90" */
    unsigned state, uid;
    unsigned long socket; /* 0: no process has it open */
};

/* The first row that fits; false: there is none. */
static bool table_find(const char *table, bool (*fits)(const struct table_row *r, const void *to), const void *to,
                       struct table_row *r) {
    char line[512];
    bool found = false;
    FILE *f = fopen(table, "re");
    while (f && !found && fgets(line, sizeof line, f)) {
        int n = sscanf(line, " %*d: %47s %47s %x %*s %*s %*s %u %*u %lu", r->local, r->remote, &r->state, &r->uid,
                       &r->socket);
        found = n == 5 && fits(r, to);
    }
    if (f) fclose(f);
    return found;
}

/* ---- who listens ---- */

static bool row_listens(const struct table_row *r, const void *port) {
    const char *colon = strrchr(r->local, ':');
    return r->state == TABLE_LISTENS && colon && strtol(colon + 1, NULL, 16) == *(const int *)port;
}

/* Whether the process has it open. Not to be seen of other users' processes. */
static bool process_has_socket(const char *pid, const char *socket) {
    char path[300], target[64];
    bool found = false;
    snprintf(path, sizeof path, "/proc/%.16s/fd", pid);
    DIR *d = opendir(path);
    for (struct dirent *e; d && !found && (e = readdir(d));) {
        snprintf(path, sizeof path, "/proc/%.16s/fd/%.16s", pid, e->d_name);
        ssize_t n = readlink(path, target, sizeof target - 1);
        if (n <= 0) continue;
        target[n] = '\0';
        found = !strcmp(target, socket);
    }
    if (d) closedir(d);
    return found;
}

static void process_name(const char *pid, char out[64]) {
    char path[64], command[32];
    snprintf(path, sizeof path, "/proc/%.16s/comm", pid);
    (void)file_line(path, command, sizeof command);
    snprintf(out, 64, "process %.16s (%s)", pid, command);
}

void address_owner(int port, char out[64]) {
    char socket[64];
    struct table_row r;
    *out = '\0';
    if (!table_find("/proc/net/tcp", row_listens, &port, &r) && !table_find("/proc/net/tcp6", row_listens, &port, &r))
        return;
    snprintf(socket, sizeof socket, "socket:[%lu]", r.socket);
    DIR *d = opendir("/proc");
    for (struct dirent *e; d && !*out && (e = readdir(d));)
        if (strtol(e->d_name, NULL, 10) > 0 && process_has_socket(e->d_name, socket)) process_name(e->d_name, out);
    if (d) closedir(d);
}

/* ---- the other end ---- */

/* As the table writes it: words of four bytes as numbers of this host, then the port. */
static void row_address(const struct endpoint *e, char out[48]) {
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)(const void *)&e->at;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)(const void *)&e->at;
    bool six = e->at.ss_family == AF_INET6;
    uint32_t word[4];
    memcpy(word, six ? (const void *)&v6->sin6_addr : &v4->sin_addr, six ? 16 : 4);
    for (int i = 0; i < (six ? 4 : 1); i++) snprintf(out + 8 * i, 9, "%08X", (unsigned)word[i]);
    snprintf(out + (six ? 32 : 8), 6, ":%04X", (unsigned)e->port & 0xffff);
}

static bool row_faces(const struct table_row *r, const void *to) {
    const struct table_row *mine = to;
    return !strcmp(r->local, mine->remote) && !strcmp(r->remote, mine->local);
}

bool remote_is_ours(int fd) {
    struct endpoint local, remote;
    struct table_row mine, theirs;
    if (!endpoint_of(fd, false, &local) || !endpoint_of(fd, true, &remote) || local.at.ss_family != remote.at.ss_family)
        return false;
    row_address(&local, mine.local);
    row_address(&remote, mine.remote);
    const char *table = local.at.ss_family == AF_INET6 ? "/proc/net/tcp6" : "/proc/net/tcp";
    return table_find(table, row_faces, &mine, &theirs) && theirs.uid == geteuid() && theirs.socket != 0;
}

void remote_name(int fd, char out[ENDPOINT_MAX]) {
    struct endpoint remote;
    snprintf(out, ENDPOINT_MAX, "%s", endpoint_of(fd, true, &remote) ? remote.text : "an unknown address");
}
