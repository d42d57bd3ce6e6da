#include "transport/door/remote.h"

#include <arpa/inet.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static bool stream_ends(nng_stream *s, nng_sockaddr *local, nng_sockaddr *remote) {
    return nng_stream_get_addr(s, NNG_OPT_LOCADDR, local) == 0 && nng_stream_get_addr(s, NNG_OPT_REMADDR, remote) == 0;
}

void remote_name(nng_stream *s, char out[REMOTE_MAX]) {
    char number[INET6_ADDRSTRLEN];
    nng_sockaddr a;
    bool known = nng_stream_get_addr(s, NNG_OPT_REMADDR, &a) == 0;
    if (known && a.s_family == NNG_AF_INET && inet_ntop(AF_INET, &a.s_in.sa_addr, number, sizeof number))
        snprintf(out, REMOTE_MAX, "%s:%d", number, ntohs(a.s_in.sa_port));
    else if (known && a.s_family == NNG_AF_INET6 && inet_ntop(AF_INET6, a.s_in6.sa_addr, number, sizeof number))
        snprintf(out, REMOTE_MAX, "[%s]:%d", number, ntohs(a.s_in6.sa_port));
    else
        snprintf(out, REMOTE_MAX, "an unknown address");
}

/* As the kernel's table writes it: words of four bytes as numbers of this host, then the port. */
static void table_text(const nng_sockaddr *a, char out[48]) {
    uint32_t word[4];
    bool six = a->s_family == NNG_AF_INET6;
    if (six)
        memcpy(word, a->s_in6.sa_addr, sizeof word);
    else
        word[0] = a->s_in.sa_addr;
    *out = '\0';
    for (int i = 0; i < (six ? 4 : 1); i++) snprintf(out + 8 * i, 9, "%08X", (unsigned)word[i]);
    snprintf(out + strlen(out), 6, ":%04X", ntohs(six ? a->s_in6.sa_port : a->s_in.sa_port));
}

bool remote_is_ours(nng_stream *s) {
    nng_sockaddr local, remote;
    char mine[48], theirs[48], line[512], a[48], b[48];
    bool ours = false;
    if (!stream_ends(s, &local, &remote) || local.s_family != remote.s_family) return false;
    table_text(&local, mine);
    table_text(&remote, theirs);
    FILE *f = fopen(local.s_family == NNG_AF_INET6 ? "/proc/net/tcp6" : "/proc/net/tcp", "re");
    while (f && !ours && fgets(line, sizeof line, f)) {
        unsigned uid;
        unsigned long inode;
        int n = sscanf(line, " %*d: %47s %47s %*x %*s %*s %*s %u %*u %lu", a, b, &uid, &inode);
        ours = n == 4 && !strcmp(a, theirs) && !strcmp(b, mine) && uid == geteuid() && inode != 0;
    }
    if (f) fclose(f);
    return ours;
}
