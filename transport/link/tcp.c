/* Link "tcp": ranks reach each other over TCP, as threads or processes, on one host or on many.
 * It is lazy: a call is published and nobody is waited for; the messages that follow bear it. */
#include "engine/base/clock.h"
#include "engine/base/quantile.h"
#include "transport/link/tcp_impl.h"

/* ---- calls ---- */

void tcp_publish(struct link *l, int lane, const struct call *c) {
    struct tcp *t = tcp_of(l);
    pthread_mutex_lock(&t->mutex);
    t->lane[lane].met = *c;
    pthread_mutex_unlock(&t->mutex);
}

enum error tcp_meet(struct link *l, int lane, const struct call *c, void *mine, void **at) {
    TRY(tcp_failure(l));
    tcp_publish(l, lane, c);
    for (int r = 0; r < l->params.size; r++) at[r] = NULL;
    at[l->params.rank] = mine;
    return ERR_NONE;
}

/* The rank that is 'by' places on; in the circle -by is n - by. */
static int circle_on(struct circle c, int by) {
    int at = (c.at + by) % c.n;
    return c.who ? c.who[at] : at;
}

/* The greatest of all ranks' numbers v[0..count), at most 2. In round k every rank tells the one 2^k places on and hears
 * from the one 2^k places back: after log2 n rounds each has heard, through others, of all. */
static enum error circle_agree(struct link *l, int lane, const struct call *label, struct circle c, double *v,
                               int count) {
    size_t bytes = (size_t)count * sizeof *v;
    for (int k = 1; k < c.n; k *= 2) {
        double theirs[2];
        struct outgoing out = {.peer = circle_on(c, k), .data = v, .bytes = bytes};
        struct incoming in = {.peer = circle_on(c, c.n - k), .bytes = bytes, .sink = sink_copy, .ctx = theirs};
        TRY(tcp_of(l)->own->exchange(l, lane, label, &out, &in));
        for (int i = 0; i < count; i++)
            if (theirs[i] > v[i]) v[i] = theirs[i];
    }
    return ERR_NONE;
}

enum error tcp_gather(struct link *l, int lane, struct circle c) {
    struct call label = tcp_of(l)->lane[lane].met;
    return circle_agree(l, lane, &label, c, NULL, 0);
}

static struct circle circle_of_all(const struct link *l) {
    return (struct circle){.n = l->params.size, .at = l->params.rank};
}

enum error tcp_sync(struct link *l, int lane) {
    return tcp_gather(l, lane, circle_of_all(l));
}

/* ---- alpha and beta ---- */

static const struct call measuring = {.what = UINT64_MAX};

/* Seconds of one message to the next in the circle while one comes from the one before. */
static enum error circle_pass(struct link *l, struct circle c, void *buf, size_t bytes, double *seconds) {
    struct outgoing out = {.peer = circle_on(c, 1), .data = buf, .bytes = bytes};
    struct incoming in = {.peer = circle_on(c, c.n - 1), .bytes = bytes, .sink = sink_copy, .ctx = (char *)buf + bytes};
    int64_t start = clock_ns();
    TRY(tcp_of(l)->own->exchange(l, 0, &measuring, &out, &in));
    *seconds = clock_seconds(clock_ns() - start);
    return ERR_NONE;
}

static enum error circle_pass_often(struct link *l, struct circle c, size_t bytes, int times, double *median) {
    double seconds[9];
    void *buf;
    TRY(memory_alloc(2 * bytes, &buf));
    enum error err = ERR_NONE;
    for (int i = 0; i < times && !err; i++) err = circle_pass(l, c, buf, bytes, &seconds[i]);
    memory_free(buf);
    *median = quantile_of(seconds, times, 0.5);
    return err;
}

enum error tcp_measure(struct link *l, struct circle c) {
    enum { SMALL = 8, LARGE = 64 << 10 };
    double small, large;
    if (c.n < 2) return ERR_NONE;
    TRY(tcp_gather(l, 0, c));
    TRY(circle_pass_often(l, c, SMALL, 9, &small));
    TRY(circle_pass_often(l, c, LARGE, 3, &large));
    double v[2] = {small, large > small ? (large - small) / LARGE : 1e-12};
    TRY(circle_agree(l, 0, &measuring, c, v, 2));
    l->alpha = v[0];
    l->beta = v[1];
    return ERR_NONE;
}

/* ---- opening and closing ---- */

enum error tcp_check_params(const struct link_params *p) {
    if (p->port && p->roster) return ERR_NONE;
    return FAIL(ERR_CONFIG, "a link between hosts needs a port of each rank and a roster of all");
}

/* Control is sealed wherever there is a secret. */
static enum error tcp_choose_seals(struct tcp *t) {
    static const char *const guards[] = {
        [SEAL_CHECKS] = "checked", [SEAL_SEALS] = "sealed", [SEAL_ENCRYPTS] = "encrypted"};
    const struct link_params *p = &t->link.params;
    enum secure asked = p->secure;
    bool secret = *port_key(p->port);
    if (!secret && asked >= SECURE_SEALED)
        return FAIL(ERR_CONFIG,
                    "messages are to be %s, but the ranks share no secret\nset run.token, or comm.secure: auto",
                    secure_names[asked]);
    t->seals = !secret || asked == SECURE_OFF ? SEAL_CHECKS : asked == SECURE_ENCRYPTED ? SEAL_ENCRYPTS : SEAL_SEALS;
    t->control_seals = secret && asked == SECURE_OFF ? SEAL_SEALS : t->seals;
    if (p->roster->hosts > 1 || asked >= SECURE_SEALED) t->link.guard = guards[t->seals];
    return ERR_NONE;
}

static enum error tcp_create(const struct link_params *p, const struct link_ops *ops, struct tcp **out) {
    struct tcp *t = memory_new(sizeof *t + (size_t)p->size * sizeof(struct tcp_peer));
    if (!t) return ERR_MEMORY;
    t->link.ops = t->own = ops;
    t->link.params = *p;
    t->events = t->control_bell = t->arrivals = -1;
    for (int i = 0; i < ALL_LANES; i++) t->lane[i].bell = -1;
    pthread_mutex_init(&t->mutex, NULL);
    condition_init(&t->changed);
    *out = t;
    return ERR_NONE;
}

enum error tcp_open(const struct link_params *p, const struct link_ops *ops, struct link *inside, struct link **out) {
    struct tcp *t;
    enum error err;
    TRY(tcp_check_params(p));
    TRY(tcp_create(p, ops, &t));
    t->inside = inside;
    TRY_GOTO(err, tcp_choose_seals(t), failed);
    TRY_GOTO(err, lanes_open(t), failed);
    TRY_GOTO(err, lines_open(t), failed);
    TRY_GOTO(err, tree_open(t), failed);
    *out = &t->link;
    return ERR_NONE;
failed:
    tcp_close(&t->link);
    return err;
}

void tcp_close(struct link *l) {
    struct tcp *t = tcp_of(l);
    tree_close(t);
    lines_close(t);
    lanes_close(t);
    pthread_cond_destroy(&t->changed);
    pthread_mutex_destroy(&t->mutex);
    memory_free(t);
}

void tcp_note(struct link *l, const char *doing, int64_t step) {
    note_write(&tcp_of(l)->note, doing, step);
}

enum error tcp_begin_use(struct link *l) {
    TRY(tcp_measure(l, circle_of_all(l)));
    tcp_of(l)->opened = true;
    return ERR_NONE;
}

extern const struct link_ops link_tcp;

static enum error tcp_open_mesh(const struct link_params *p, struct link **out) {
    struct link *l;
    TRY(tcp_open(p, &link_tcp, NULL, &l));
    enum error err = tcp_begin_use(l);
    if (err)
        tcp_close(l);
    else
        *out = l;
    return err;
}

const struct link_ops link_tcp = {
    .row = &link_rows[COMM_LINK_TCP],
    .summary = "TCP between ranks, on one host or many",
    .open = tcp_open_mesh,
    .close = tcp_close,
    .exchange = tcp_exchange,
    TCP_LINK_OPS,
};
