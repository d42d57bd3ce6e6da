/* The process that listens on a port of this host: the kernel's table of sockets gives a socket's number, and the
 * descriptors of all processes are searched for it. */
#include "engine/base/file.h"
#include "transport/door/address.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The number of the socket that listens there; 0: none. */
static unsigned long socket_that_listens(const char *table, int port) {
    char line[512];
    unsigned long found = 0;
    FILE *f = fopen(table, "re");
    while (f && !found && fgets(line, sizeof line, f)) {
        unsigned local, state;
        unsigned long inode;
        int n =
            sscanf(line, " %*d: %*[0-9A-Fa-f]:%x %*[0-9A-Fa-f]:%*x %x %*s %*s %*s %*s %*s %lu", &local, &state, &inode);
        if (n == 3 && state == 0x0A && (int)local == port) found = inode;
    }
    if (f) fclose(f);
    return found;
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
    *out = '\0';
    unsigned long inode = socket_that_listens("/proc/net/tcp", port);
    if (!inode) inode = socket_that_listens("/proc/net/tcp6", port);
    if (!inode) return;
    snprintf(socket, sizeof socket, "socket:[%lu]", inode);
    DIR *d = opendir("/proc");
    for (struct dirent *e; d && !*out && (e = readdir(d));)
        if (strtol(e->d_name, NULL, 10) > 0 && process_has_socket(e->d_name, socket)) process_name(e->d_name, out);
    if (d) closedir(d);
}
