/* The public C interface of groups (engine/engine.h) on transport/group.h, which works in place:
 * what is not in place is copied here. */
#include "cli/library/group.h"

#include "engine/base/memory.h"
#include "transport/algo/algo.h"
#include "transport/launch/launch.h"
#include "transport/launch/launcher.h"
#include "transport/launch/station.h"
#include "transport/launch/token.h"
#include "transport/link/link.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

/* Types and operations have the same numbers; the group refuses others. */
_Static_assert((int)ENGINE_U8 == DTYPE_U8 && (int)ENGINE_XOR == REDOP_XOR && (int)ENGINE_AVG == REDOP_AVERAGE,
               "engine.h numbers types and operations as the group does");

static enum dtype group_type_of(enum engine_type t) {
    return (unsigned)t < DTYPES ? (enum dtype)t : DTYPES;
}

static enum redop group_op_of(enum engine_op op) {
    return (unsigned)op < REDOPS ? (enum redop)op : REDOPS;
}

const char *engine_hint(void) {
    return error_hint();
}

/* Fails the group on every rank by the error of this one, which finds it before it calls the others. */
static enum error group_give_up(struct engine_group *g, enum error err) {
    char words[ERROR_WORDS];
    group_abort(g->group, error_words(words, sizeof words));
    return err;
}

/* ---- opening ---- */

static atomic_bool placed; /* this process has taken its place among its launcher's ranks */

static enum error group_check_place(const struct engine_init *init) {
    if (!init->init && atomic_load(&placed))
        return FAIL(ERR_USAGE, "this process has opened the group of its launcher's ranks before, and can do so once\n"
                               "split that group, or say where the ranks meet: init, rank and size");
    return ERR_NONE;
}

/* The ranks of a launcher, or those that init names, meet in a store that rank 0 keeps. */
static enum error group_find_ranks(const struct engine_init *init, struct engine_group *g, struct station_params *p) {
    struct launcher *l = pool_alloc(g->pool, sizeof *l);
    bool launched = false;
    if (!l) return ERR_MEMORY;
    TRY(token_find(init->token ? init->token : "auto", g->pool, &p->token));
    if (!init->init || !init->size) TRY(launcher_find(NULL, l, &launched));
    if (launched && !init->init) atomic_store(&placed, true);
    if (!launched && !init->init) *l = (struct launcher){.size = 1, .locals = 1, .name = "nobody"};
    p->rank = init->size ? init->rank : l->rank;
    p->size = init->size ? init->size : l->size;
    if (p->size < 1 || p->size > RANKS_MOST || p->rank < 0 || p->rank >= p->size)
        return FAIL(ERR_USAGE, "rank %d of %d: from 1 to %d ranks are possible", p->rank, p->size, RANKS_MOST);
    p->serve = p->rank == 0;
    p->run = l->job;
    if (p->size == 1 && !init->init) return ERR_NONE;
    const struct launcher_ranks ranks = {l->name, l->job, p->size, l->locals};
    return launcher_place(&ranks, init->init ? init->init : l->master, g->pool, &p->master);
}

/* Ranks that 'engine launch' has started on one host share a board. They need the store only for
 * other hosts, and for a link by which they could reach these. */
static enum error group_read_told(const struct launch_self *self, struct engine_group *g, struct station_params *p) {
    const struct link_ops *link = link_find(p->link);
    p->rank = self->rank;
    p->size = self->size;
    p->locals = self->locals;
    p->meeting_fd = self->meeting_fd;
    if (self->locals == self->size && (!link || !link_is_far(link))) return ERR_NONE;
    return station_told(g->pool, p);
}

static enum error open_station(const struct engine_init *init, const char *secure, struct engine_group *g) {
    struct launch_self self;
    bool started = false;
    struct meeting *meeting = NULL;
    const struct fact fact = {"value of secure", secure};
    struct station_params p = {.meeting_fd = -1,
                               .facts = &fact,
                               .nfacts = 1,
                               .link = init->link ? init->link : "auto",
                               .interface = init->interface,
                               .round = "ranks",
                               .timeout = init->timeout > 0 ? init->timeout : 60};
    TRY(group_check_place(init));
    if (!init->init || !init->size) TRY(launch_self(&self, &started));
    if (started) {
        atomic_store(&placed, true);
        TRY(group_read_told(&self, g, &p));
    } else {
        TRY(group_find_ranks(init, g, &p));
    }
    if (p.size == 1 && p.meeting_fd < 0) { /* alone: a board of its own */
        TRY(meeting_create_shared(1, &meeting));
        p.meeting_fd = meeting_fd(meeting);
        p.locals = 1;
    }
    if (!p.master && !strcmp(p.link, "auto")) p.link = "shm";
    enum error err = station_open(&p, &g->station);
    meeting_free(meeting);
    return err;
}

/* Looked up before the ranks meet, so that each says so by itself. */
static enum error group_check_algorithm(const char *name, struct pool *pool) {
    int count;
    const struct algo_ops *const *all = algo_list(&count);
    const char *names = "auto";
    if (!name || !strcmp(name, "auto") || algo_find(name)) return ERR_NONE;
    for (int i = 0; i < count && names; i++) names = pool_printf(pool, "%s, %s", names, all[i]->name);
    return FAIL(ERR_USAGE, "no algorithm '%.64s'\none of %s", name, names ? names : "auto");
}

static enum error parts_alloc(struct engine_group *g) {
    TRY_MEMORY(g->part = memory_new(2 * (size_t)(group_size(g->group) + 1) * sizeof *g->part));
    g->from = g->part + group_size(g->group) + 1;
    return ERR_NONE;
}

static enum error group_find_secure(const char *name, enum secure *out) {
    *out = SECURE_AUTO;
    while (name && *out < SECURES && strcmp(name, secure_names[*out]) != 0) ++*out;
    return *out < SECURES ? ERR_NONE
                          : FAIL(ERR_USAGE, "secure is '%.64s'\none of auto, off, sealed and encrypted", name);
}

static enum error open_group(const struct engine_init *init, struct engine_group *g) {
    enum secure secure;
    TRY(group_find_secure(init->secure, &secure));
    if (secure >= SECURE_SEALED && init->token && !strcmp(init->token, "none"))
        return FAIL(ERR_USAGE, "messages cannot be %s with the token none, which everybody knows",
                    secure_names[secure]);
    if (init->order && strcmp(init->order, "ring") && strcmp(init->order, "tree"))
        return FAIL(ERR_USAGE, "no order '%s'\ntree or ring", init->order);
    if (!(init->bandwidth >= 0 && init->bandwidth <= 1e15 && init->latency >= 0 && init->latency <= 60))
        return FAIL(ERR_USAGE, "a port of %g bits per second and %g s cannot be emulated\nat most 1e15 and 60; 0: none",
                    init->bandwidth, init->latency);
    TRY(pool_create(&g->pool));
    TRY(group_check_algorithm(init->algorithm, g->pool));
    TRY(open_station(init, secure_names[secure], g));
    struct group_params p = *station_group(g->station);
    p.algorithm = init->algorithm ? init->algorithm : "auto";
    p.order = init->order && !strcmp(init->order, "ring") ? ORDER_RING : ORDER_TREE;
    p.timeout = init->timeout > 0 ? init->timeout : 60;
    p.mail = true;
    p.secure = secure;
    p.emulate = (struct emulation){.bandwidth = init->bandwidth / 8, .latency = init->latency};
    TRY(group_open(&p, &g->group));
    TRY(parts_alloc(g));
    return flight_open(g->group, NULL, 0, 0, &g->flight);
}

int engine_group_open(const struct engine_init *init, struct engine_group **out) {
    static const struct engine_init standard;
    struct engine_group *g = memory_new(sizeof *g);
    *out = NULL;
    if (!g) return error_exit_code(ERR_MEMORY);
    enum error err = open_group(init ? init : &standard, g);
    if (err)
        engine_group_close(g);
    else
        *out = g;
    return error_exit_code(err);
}

void engine_group_close(struct engine_group *g) {
    if (!g) return;
    group_close(g->group);
    flight_close(g->flight, g->aborted);
    station_close(g->station);
    memory_free(g->part);
    pool_free(g->pool);
    memory_free(g);
}

int engine_group_rank(const struct engine_group *g) {
    return group_rank(g->group);
}

int engine_group_size(const struct engine_group *g) {
    return group_size(g->group);
}

const char *engine_group_choice(struct engine_group *g, unsigned long long bytes) {
    const char *why, *name = group_choice(g->group, (size_t)bytes, &why);
    snprintf(g->choice, sizeof g->choice, "%s: %s", name, why);
    return g->choice;
}

int engine_group_split(struct engine_group *g, int color, int key, struct engine_group **out) {
    struct group *part;
    *out = NULL;
    g->splits++;
    enum error err = group_split(g->group, color, key, &part);
    if (err || !part) return error_exit_code(err);
    *out = memory_new(sizeof **out);
    if (!*out) {
        group_close(part);
        return error_exit_code(ERR_MEMORY);
    }
    (*out)->group = part;
    err = parts_alloc(*out);
    if (!err) err = flight_open(part, g->flight, g->splits, color, &(*out)->flight);
    if (!err) return 0;
    engine_group_close(*out);
    *out = NULL;
    return error_exit_code(err);
}

int engine_group_alloc(struct engine_group *g, unsigned long long bytes, void **out) {
    return error_exit_code(group_alloc(g->group, (size_t)bytes, out));
}

/* ---- collectives ---- */

/* Bytes of count elements; a count that makes no sense gives none, and is refused by the group. */
static size_t group_size_of(long long count, enum engine_type type) {
    size_t bytes;
    if (group_type_of(type) == DTYPES || count < 0) return 0;
    if (__builtin_mul_overflow((size_t)count, dtype_size(group_type_of(type)), &bytes)) return 0;
    return bytes;
}

static void group_copy_in(void *recv, const void *send, size_t bytes) {
    if (send != recv && bytes) memmove(recv, send, bytes);
}

/* Every rank's part is 'count' elements. */
static enum error parts_cut(struct engine_group *g, long long count, enum engine_type type) {
    int64_t all;
    int size = group_size(g->group);
    if (count < 0 || __builtin_mul_overflow(count, (int64_t)size * 8, &all) || group_type_of(type) == DTYPES)
        return group_give_up(g, FAIL(ERR_USAGE, "%lld elements of type %d for each rank", count, (int)type));
    for (int r = 0; r <= size; r++) g->part[r] = count * r;
    return ERR_NONE;
}

int engine_all_reduce(struct engine_group *g, const void *send, void *recv, long long count, enum engine_type type,
                      enum engine_op op) {
    group_copy_in(recv, send, group_size_of(count, type));
    return error_exit_code(group_all_reduce(g->group, GROUP_INLINE, recv, count, group_type_of(type), group_op_of(op)));
}

/* The buffer of a reduce to root, where what is sent lies: only root's recv is written, and other ranks' send is read. */
static void *group_reduce_buffer(const struct engine_group *g, const void *send, void *recv, size_t bytes, int root) {
    if (root != group_rank(g->group)) return (void *)(uintptr_t)send;
    group_copy_in(recv, send, bytes);
    return recv;
}

int engine_reduce(struct engine_group *g, const void *send, void *recv, long long count, enum engine_type type,
                  enum engine_op op, int root) {
    void *buf = group_reduce_buffer(g, send, recv, group_size_of(count, type), root);
    return error_exit_code(
        group_reduce(g->group, GROUP_INLINE, buf, count, group_type_of(type), group_op_of(op), root));
}

int engine_broadcast(struct engine_group *g, void *buf, long long count, enum engine_type type, int root) {
    return error_exit_code(group_broadcast(g->group, GROUP_INLINE, buf, count, group_type_of(type), root));
}

static enum error parts_all_gather(struct engine_group *g, struct dispatch how, const void *send, void *recv,
                                   long long count, enum engine_type type) {
    TRY(parts_cut(g, count, type));
    size_t each = group_size_of(count, type);
    group_copy_in((char *)recv + each * (size_t)group_rank(g->group), send, each);
    return group_all_gather(g->group, how, recv, g->part, group_type_of(type));
}

int engine_all_gather(struct engine_group *g, const void *send, void *recv, long long count, enum engine_type type) {
    return error_exit_code(parts_all_gather(g, GROUP_INLINE, send, recv, count, type));
}

/* how.own: where this rank's part lies, or goes. */
static enum error parts_gather(struct engine_group *g, struct dispatch how, void *recv, long long count,
                               enum engine_type type, int root) {
    TRY(parts_cut(g, count, type));
    size_t each = group_size_of(count, type);
    if (root == group_rank(g->group)) group_copy_in((char *)recv + each * (size_t)root, how.own, each);
    return group_gather(g->group, how, recv, g->part, group_type_of(type), root);
}

int engine_gather(struct engine_group *g, const void *send, void *recv, long long count, enum engine_type type,
                  int root) {
    const struct dispatch how = {.lane = LANE_INLINE, .own = (void *)(uintptr_t)send};
    return error_exit_code(parts_gather(g, how, recv, count, type, root));
}

static enum error parts_scatter(struct engine_group *g, struct dispatch how, const void *send, long long count,
                                enum engine_type type, int root) {
    TRY(parts_cut(g, count, type));
    return group_scatter(g->group, how, (void *)(uintptr_t)send, g->part, group_type_of(type), root);
}

int engine_scatter(struct engine_group *g, const void *send, void *recv, long long count, enum engine_type type,
                   int root) {
    const struct dispatch how = {.lane = LANE_INLINE, .own = recv};
    return error_exit_code(parts_scatter(g, how, send, count, type, root));
}

static enum error parts_reduce_scatter(struct engine_group *g, struct dispatch how, const void *send, long long count,
                                       enum engine_type type, enum engine_op op) {
    TRY(parts_cut(g, count, type));
    return group_reduce_scatter(g->group, how, (void *)(uintptr_t)send, g->part, group_type_of(type), group_op_of(op));
}

int engine_reduce_scatter(struct engine_group *g, const void *send, void *recv, long long count, enum engine_type type,
                          enum engine_op op) {
    return error_exit_code(
        parts_reduce_scatter(g, (struct dispatch){.lane = LANE_INLINE, .own = recv}, send, count, type, op));
}

static enum error parts_all_to_all(struct engine_group *g, struct dispatch how, const void *send, void *recv,
                                   long long count, enum engine_type type) {
    TRY(parts_cut(g, count, type));
    return group_all_to_all(g->group, how, send, g->part, recv, g->part, group_type_of(type));
}

int engine_all_to_all(struct engine_group *g, const void *send, void *recv, long long count, enum engine_type type) {
    return error_exit_code(parts_all_to_all(g, GROUP_INLINE, send, recv, count, type));
}

int engine_send(struct engine_group *g, const void *buf, long long count, enum engine_type type, int peer,
                long long tag) {
    struct work *w;
    group_wait_at_once(g->group);
    enum error err = group_post(
        g->group, &(struct group_message){(void *)(uintptr_t)buf, count, group_type_of(type), peer, tag}, &w);
    return error_exit_code(err ? err : work_wait(w));
}

int engine_recv(struct engine_group *g, void *buf, long long count, enum engine_type type, int peer, long long tag,
                int *source) {
    struct work *w;
    enum error err =
        group_take(g->group, &(struct group_message){buf, count, group_type_of(type), peer, tag, source}, &w);
    return error_exit_code(err ? err : work_wait(w));
}

int engine_barrier(struct engine_group *g) {
    return error_exit_code(group_barrier(g->group));
}

/* ---- beside the caller: a work of the group is one of ours ---- */

/* w: where the call that gave err has left its work, to be read after that call and not before. */
static int group_work_started(enum error err, struct work *const *w, struct engine_work **out) {
    *out = err ? NULL : (struct engine_work *)*w;
    return error_exit_code(err);
}

int engine_all_reduce_start(struct engine_group *g, const void *send, void *recv, long long count,
                            enum engine_type type, enum engine_op op, struct engine_work **out) {
    struct work *w = NULL;
    group_copy_in(recv, send, group_size_of(count, type));
    return group_work_started(
        group_all_reduce(g->group, GROUP_COMM(&w), recv, count, group_type_of(type), group_op_of(op)), &w, out);
}

int engine_reduce_start(struct engine_group *g, const void *send, void *recv, long long count, enum engine_type type,
                        enum engine_op op, int root, struct engine_work **out) {
    struct work *w = NULL;
    void *buf = group_reduce_buffer(g, send, recv, group_size_of(count, type), root);
    return group_work_started(
        group_reduce(g->group, GROUP_COMM(&w), buf, count, group_type_of(type), group_op_of(op), root), &w, out);
}

int engine_broadcast_start(struct engine_group *g, void *buf, long long count, enum engine_type type, int root,
                           struct engine_work **out) {
    struct work *w = NULL;
    return group_work_started(group_broadcast(g->group, GROUP_COMM(&w), buf, count, group_type_of(type), root), &w,
                              out);
}

int engine_all_gather_start(struct engine_group *g, const void *send, void *recv, long long count,
                            enum engine_type type, struct engine_work **out) {
    struct work *w = NULL;
    return group_work_started(parts_all_gather(g, GROUP_COMM(&w), send, recv, count, type), &w, out);
}

int engine_all_to_all_start(struct engine_group *g, const void *send, void *recv, long long count,
                            enum engine_type type, struct engine_work **out) {
    struct work *w = NULL;
    return group_work_started(parts_all_to_all(g, GROUP_COMM(&w), send, recv, count, type), &w, out);
}

static void group_copy_cuts(const long long *cuts, int size, int64_t *out) {
    for (int r = 0; r <= size; r++) out[r] = cuts[r];
}

int engine_all_to_all_parts_start(struct engine_group *g, const void *send, const long long *to, void *recv,
                                  const long long *from, enum engine_type type, struct engine_work **out) {
    struct work *w = NULL;
    group_copy_cuts(to, group_size(g->group), g->part);
    group_copy_cuts(from, group_size(g->group), g->from);
    return group_work_started(
        group_all_to_all(g->group, GROUP_COMM(&w), send, g->part, recv, g->from, group_type_of(type)), &w, out);
}

int engine_gather_start(struct engine_group *g, const void *send, void *recv, long long count, enum engine_type type,
                        int root, struct engine_work **out) {
    struct work *w = NULL;
    const struct dispatch how = {.lane = LANE_COMM, .work = &w, .own = (void *)(uintptr_t)send};
    return group_work_started(parts_gather(g, how, recv, count, type, root), &w, out);
}

int engine_scatter_start(struct engine_group *g, const void *send, void *recv, long long count, enum engine_type type,
                         int root, struct engine_work **out) {
    struct work *w = NULL;
    const struct dispatch how = {.lane = LANE_COMM, .work = &w, .own = recv};
    return group_work_started(parts_scatter(g, how, send, count, type, root), &w, out);
}

int engine_reduce_scatter_start(struct engine_group *g, const void *send, void *recv, long long count,
                                enum engine_type type, enum engine_op op, struct engine_work **out) {
    struct work *w = NULL;
    const struct dispatch how = {.lane = LANE_COMM, .work = &w, .own = recv};
    return group_work_started(parts_reduce_scatter(g, how, send, count, type, op), &w, out);
}

int engine_send_start(struct engine_group *g, const void *buf, long long count, enum engine_type type, int peer,
                      long long tag, struct engine_work **out) {
    struct work *w = NULL;
    return group_work_started(
        group_post(g->group, &(struct group_message){(void *)(uintptr_t)buf, count, group_type_of(type), peer, tag},
                   &w),
        &w, out);
}

int engine_recv_start(struct engine_group *g, void *buf, long long count, enum engine_type type, int peer,
                      long long tag, int *source, struct engine_work **out) {
    struct work *w = NULL;
    return group_work_started(
        group_take(g->group, &(struct group_message){buf, count, group_type_of(type), peer, tag, source}, &w), &w, out);
}

int engine_barrier_start(struct engine_group *g, struct engine_work **out) {
    struct work *w = NULL;
    return group_work_started(group_barrier_on(g->group, GROUP_COMM(&w)), &w, out);
}

void engine_group_wait_at_once(struct engine_group *g) {
    group_wait_at_once(g->group);
}

int engine_work_done(struct engine_work *w) {
    return work_done((struct work *)w);
}

int engine_work_wait(struct engine_work *w) {
    return error_exit_code(work_wait((struct work *)w));
}

void engine_group_abort(struct engine_group *g, const char *reason) {
    g->aborted = true;
    group_abort(g->group, reason);
}

void engine_group_stats(const struct engine_group *g, struct engine_stats *out) {
    struct group_stats s;
    group_get_stats(g->group, &s);
    *out = (struct engine_stats){s.sent, s.received, s.collectives, (double)s.busy_ns * 1e-9};
}
