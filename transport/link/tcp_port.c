/* The port: the door by which the streams of other ranks come in. A rank dials, and greets with a hello that says whose
 * stream it is; the door keeps the stream until the link that waits for it takes it. */
#include "engine/base/clock.h"
#include "transport/base/condition.h"
#include "transport/link/tcp_address.h"
#include "transport/link/tcp_impl.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { KEPT_MOST = 4096 };

struct kept {
    struct kept *next; /* which came before */
    struct hello hello;
    struct stream stream;
};
struct port {
    struct door *door;
    char address[ADDRESS_MAX], key[SECRET_SIZE];
    pthread_mutex_t mutex; /* of what follows */
    pthread_cond_t came;
    struct kept *kept;
    int nkept;
};

const char *port_address(const struct port *p) {
    return p->address;
}

const char *port_key(const struct port *p) {
    return p->key;
}

/* ---- who comes ---- */

static bool same_stream(const struct hello *a, const struct hello *b) {
    return a->group == b->group && a->from == b->from && a->to == b->to && a->kind == b->kind;
}

/* Takes a stream out of those that are kept: the one of that name, or NULL. With the mutex. */
static struct kept *kept_remove(struct port *p, const struct hello *h) {
    for (struct kept **k = &p->kept; *k; k = &(*k)->next)
        if (same_stream(&(*k)->hello, h)) {
            struct kept *found = *k;
            *k = found->next;
            p->nkept--;
            return found;
        }
    return NULL;
}

static void kept_free(struct kept *k) {
    if (!k) return;
    if (k->stream.s) nng_stream_free(k->stream.s);
    memory_free(k);
}

static void on_hello(void *user, struct guest *g) {
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

/* An older stream of the same name is one that its dialer has given up. Too many wait only where a rank of this run
 * misbehaves: then the newcomer has to go. */
static void on_keep(void *user, struct guest *g, const struct stream *s) {
    struct port *p = user;
    void *memory;
    if (memory_alloc(sizeof(struct kept), &memory) != ERR_NONE) {
        nng_stream_free(s->s);
        return;
    }
    struct kept *k = memory, *old;
    *k = (struct kept){.hello = *(struct hello *)guest_own(g), .stream = *s};
    pthread_mutex_lock(&p->mutex);
    old = kept_remove(p, &k->hello);
    bool room = p->nkept < KEPT_MOST;
    if (room) {
        k->next = p->kept;
        p->kept = k;
        p->nkept++;
    }
    pthread_cond_broadcast(&p->came);
    pthread_mutex_unlock(&p->mutex);
    kept_free(room ? old : k);
}

static const struct door_ops ops = {
    .what = "rank's port",
    .elsewhere = "",
    .most = sizeof(struct hello),
    .guest_own = sizeof(struct hello),
    .message = on_hello,
    .keep = on_keep,
};

/* ---- opening, taking, closing ---- */

static enum error check_key(const char *key, bool near, const char *host) {
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
    void *memory;
    TRY(address_choose(params->interface, host));
    TRY(check_key(key, params->near, host));
    TRY(memory_alloc(sizeof(struct port), &memory));
    struct port *p = memory;
    strcpy(p->key, key);
    pthread_mutex_init(&p->mutex, NULL);
    condition_init(&p->came);
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
        kept_free(k);
    }
    pthread_cond_destroy(&p->came);
    pthread_mutex_destroy(&p->mutex);
    memory_free(p);
}

enum error port_take(struct port *p, const struct hello *wanted, int64_t deadline, struct stream *out) {
    struct timespec until = {.tv_sec = deadline / 1000000000, .tv_nsec = deadline % 1000000000};
    struct kept *k;
    enum error err = ERR_NONE;
    pthread_mutex_lock(&p->mutex);
    while (!(k = kept_remove(p, wanted)) && pthread_cond_timedwait(&p->came, &p->mutex, &until) != ETIMEDOUT) {
    }
    pthread_mutex_unlock(&p->mutex);
    if (!k) return ERR_TIMEOUT;
    if (k->hello.size == wanted->size) {
        *out = k->stream;
        k->stream.s = NULL;
    } else {
        err = FAIL(ERR_MISMATCH, "rank %u is of a group of %u ranks, rank %u of %u", (unsigned)wanted->from,
                   (unsigned)k->hello.size, (unsigned)wanted->to, (unsigned)wanted->size);
    }
    kept_free(k);
    return err;
}
