/* The messages between neighbouring stages. In a step a message leaves from a copy of its own, so that computing goes on
 * at once, and is received while this rank still computes (group_post, group_take): a rank waits only for what has not
 * been computed yet. Messages of one kind follow each other in the order of the micro-batches, so one tag a kind is
 * enough. In an evaluation nothing comes back that would hold the first stage; there each message waits for its
 * receiver (group_send). */
#include "engine/base/clock.h"
#include "modes/share/stages.h"

#include <string.h>

struct outgoing_copy {
    void *memory;
    int64_t bytes;
    struct work *work; /* NULL: nothing is on its way */
};
enum { COPIES = 2 };
struct relay {
    struct stages *s;
    struct outgoing_copy copy[CROSS_WEIGHTS + 1][COPIES];
    int next[CROSS_WEIGHTS + 1];
    int64_t waited;
};

static struct group *relay_group(const struct relay *r) {
    return r->s->m->team.group;
}

static int relay_peer(const struct relay *r, const struct crossing *c, bool takes) {
    const struct stages *s = r->s;
    bool earlier = (c->what == CROSS_OUTPUT) == takes;
    if (c->what == CROSS_WEIGHTS) return stages_rank(s, stages_user(s, c->param, earlier ? -1 : 1));
    return stages_rank(s, s->stage + (earlier ? -1 : 1));
}

static struct group_message relay_message(const struct relay *r, const struct crossing *c, bool takes, void *at) {
    return (struct group_message){.buf = at,
                                  .count = c->bytes,
                                  .type = DTYPE_U8,
                                  .peer = relay_peer(r, c, takes),
                                  .tag = c->what == CROSS_WEIGHTS ? CROSS_WEIGHTS + c->param : (int64_t)c->what};
}

static enum error relay_receive(struct relay *r, const struct crossing *c, void *to) {
    const struct group_message m = relay_message(r, c, true, to);
    struct work *work;
    if (!c->training) return group_recv(relay_group(r), GROUP_INLINE, to, c->bytes, DTYPE_U8, m.peer);
    TRY(group_take(relay_group(r), &m, &work));
    return work_wait(work);
}

static enum error relay_take(void *user, const struct crossing *c, void *to) {
    struct relay *r = user;
    int64_t began = clock_ns();
    TRY(relay_receive(r, c, to));
    int64_t ended = clock_ns();
    trainer_waited(r->s->m->t, ended - began);
    trace_span(r->s->m->t->trace, TRACE_STALL, TRACE_COMPUTE, began, ended);
    if (c->training) r->waited += ended - began;
    return ERR_NONE;
}

static enum error copy_settle(struct outgoing_copy *o) {
    struct work *work = o->work;
    o->work = NULL;
    return work ? work_wait(work) : ERR_NONE;
}

static enum error copy_make(struct outgoing_copy *o, const void *from, int64_t bytes) {
    TRY(copy_settle(o));
    if (o->bytes < bytes) {
        memory_free(o->memory);
        *o = (struct outgoing_copy){0};
        TRY(memory_alloc((size_t)bytes, &o->memory));
        o->bytes = bytes;
    }
    memcpy(o->memory, from, (size_t)bytes);
    return ERR_NONE;
}

static enum error relay_give(void *user, const struct crossing *c, const void *from) {
    struct relay *r = user;
    int copies = c->what == CROSS_WEIGHTS ? 1 : COPIES; /* which may be large */
    if (!c->training)
        return group_send(relay_group(r), GROUP_INLINE, from, c->bytes, DTYPE_U8, relay_peer(r, c, false));
    struct outgoing_copy *o = &r->copy[c->what][r->next[c->what]++ % copies];
    TRY(copy_make(o, from, c->bytes));
    const struct group_message m = relay_message(r, c, false, o->memory);
    return group_post(relay_group(r), &m, &o->work);
}

int64_t relay_waited(const struct relay *r) {
    return r->waited;
}

enum error relay_settle(struct relay *r) {
    for (int k = 0; k <= CROSS_WEIGHTS; k++)
        for (int i = 0; i < COPIES; i++) TRY(copy_settle(&r->copy[k][i]));
    return ERR_NONE;
}

enum error relay_open(struct stages *s) {
    TRY_MEMORY(s->relay = memory_new(sizeof *s->relay));
    s->relay->s = s;
    s->ends = (struct graph_ends){relay_take, relay_give, s->relay};
    return ERR_NONE;
}

void relay_close(struct relay *r) {
    for (int k = 0; r && k <= CROSS_WEIGHTS; k++)
        for (int i = 0; i < COPIES; i++) memory_free(r->copy[k][i].memory);
    memory_free(r);
}
