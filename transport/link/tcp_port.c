/* The port: the door by which the streams of other ranks come in. A rank dials, and greets with a hello that says whose
 * stream it is. The port gives it to the group that it is for, or keeps it until this rank opens that group: streams of
 * control, and of lanes that begin to open it, which are about 2 log2 n. */
#include "transport/door/address.h"
#include "transport/link/tcp_address.h"
#include "transport/link/tcp_impl.h"

#include <stdio.h>
#include <string.h>

enum { KEPT_MOST = 4096 };

struct kept {
    struct kept *next;
    struct hello hello;
    struct stream stream;
};
struct port {
    struct door *door;
    char address[ADDRESS_MAX], key[SECRET_SIZE];
    pthread_mutex_t mutex; /* of what follows */
    struct tcp *served;
    struct kept *kept;
};

const char *port_address(const struct port *p) {
    return p->address;
}

const char *port_key(const struct port *p) {
    return p->key;
}

/* ---- who comes ---- */

static void port_on_hello(void *user, struct guest *g) {
    struct hello *hello = guest_own(g);
    size_t n;
    uint8_t *message = guest_message(g, &n);
    (void)user;
    if (n == sizeof *hello) memcpy(hello, message, n);
    if (n != sizeof *hello || hello->head.kind != HELLO_KIND || hello->kind >= STREAMS) {
        guest_refuse(g, DOOR_BAD, "which is no rank");
        return;
    }
    struct door_head welcome = door_head(0, sizeof welcome);
    memcpy(message, &welcome, sizeof welcome);
    guest_reply(g, GUEST_KEPT);
}

/* In the order in which they came. Too many wait only where a rank of this run misbehaves: then the newcomer has to go.
 * With the mutex. */
static void kept_add(struct port *p, const struct hello *h, const struct stream *s) {
    struct kept **at = &p->kept;
    int n = 0;
    for (; *at; at = &(*at)->next) n++;
    if (n == KEPT_MOST || !(*at = memory_new(sizeof **at))) {
        nng_stream_free(s->s);
        return;
    }
    **at = (struct kept){.hello = *h, .stream = *s};
}

static void port_on_keep(void *user, struct guest *g, const struct stream *s) {
    struct port *p = user;
    const struct hello *h = guest_own(g);
    pthread_mutex_lock(&p->mutex);
    struct tcp *t = p->served;
    while (t && t->link.params.group != h->group) t = t->next;
    if (t)
        tree_came(t, h, s);
    else
        kept_add(p, h, s);
    pthread_mutex_unlock(&p->mutex);
}

static const struct door_ops ops = {
    .what = "rank's port",
    .elsewhere = "",
    .most = sizeof(struct hello),
    .guest_own = sizeof(struct hello),
    .message = port_on_hello,
    .keep = port_on_keep,
};

/* ---- opening, taking, closing ---- */

static enum error port_check_key(const char *key, bool near, const char *host) {
    if (strlen(key) >= SECRET_SIZE)
        return FAIL(ERR_CONFIG, "a key of %zu bytes\nat most %d", strlen(key), SECRET_SIZE - 1);
    if ((near || !*key) && !address_is_loopback(host))
        return FAIL(ERR_CONFIG, "ranks on other hosts must reach %s, but there is no token\nset run.token", host);
    return ERR_NONE;
}

static enum error port_listen(struct port *p, const char *host) {
    bool six = strchr(host, ':');
    char at[ADDRESS_MAX + 8];
    int number;
    snprintf(at, sizeof at, six ? "[%s]:0" : "%s:0", host);
    TRY(door_open(&(struct door_params){.ops = &ops, .user = p, .at = at, .key = p->key}, &p->door, &number));
    snprintf(p->address, sizeof p->address, six ? "tcp://[%.64s]:%d" : "tcp://%.64s:%d", host, number);
    return ERR_NONE;
}

enum error port_open(const struct port_params *params, struct port **out) {
    char host[ADDRESS_MAX];
    const char *key = params->key ? params->key : "";
    TRY(address_choose(params->interface, host));
    TRY(port_check_key(key, params->near, host));
    struct port *p = memory_new(sizeof *p);
    if (!p) return ERR_MEMORY;
    strcpy(p->key, key);
    pthread_mutex_init(&p->mutex, NULL);
    enum error err = port_listen(p, host);
    if (err)
        port_close(p);
    else
        *out = p;
    return err;
}

void port_close(struct port *p) {
    if (!p) return;
    door_close(p->door);
    for (struct kept *k = p->kept, *next; k; k = next) {
        next = k->next;
        nng_stream_free(k->stream.s);
        memory_free(k);
    }
    pthread_mutex_destroy(&p->mutex);
    memory_free(p);
}

void port_serve(struct port *p, struct tcp *t) {
    pthread_mutex_lock(&p->mutex);
    t->next = p->served;
    p->served = t;
    for (struct kept **at = &p->kept, *k; (k = *at);) {
        if (k->hello.group != t->link.params.group) {
            at = &k->next;
            continue;
        }
        *at = k->next;
        tree_came(t, &k->hello, &k->stream);
        memory_free(k);
    }
    pthread_mutex_unlock(&p->mutex);
}

void port_unserve(struct port *p, const struct tcp *t) {
    pthread_mutex_lock(&p->mutex);
    struct tcp **at = &p->served;
    while (*at && *at != t) at = &(*at)->next;
    if (*at) *at = t->next;
    pthread_mutex_unlock(&p->mutex);
}
