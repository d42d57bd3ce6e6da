/* Subgroups. The parent's own collectives agree on who is in which: all gather (color, key), so every rank knows all
 * subgroups; the first member on each host prepares a place to meet and all gather where it is; the members join it,
 * and all learn whether everybody could. Then each subgroup opens as any group does, with a link of its own.
 *
 * A place to meet is memory: for ranks that are threads, the pointer says where, for processes /proc/PID/fd/N does.
 * Links that need no meeting go without. */
#include "transport/core.h"
#include "transport/link/meeting.h"

#include <unistd.h>

struct wish {
    int64_t color, key;
};
/* Where the first member of a host waits for the others. */
struct invitation {
    int64_t pid, where; /* a pointer, or a descriptor of that process; pid 0: none could be made */
};
struct split {
    struct group *parent;
    struct pool *pool;     /* while it opens */
    int n, me;             /* the subgroup's size and this rank in it */
    int *member;           /* (n), ranks of the parent, in the subgroup's order */
    int neighbours, host;  /* members on this rank's host, and the first of them */
    struct roster *roster; /* NULL: all on one host */
    struct meeting *meeting;
};

/* ---- who is in it ---- */

/* Inserts rank r where its key belongs: equal keys stay in the order of ranks. */
static void split_insert(struct split *s, const struct wish *wishes, int r) {
    int i = s->n++;
    for (; i > 0 && wishes[s->member[i - 1]].key > wishes[r].key; i--) s->member[i] = s->member[i - 1];
    s->member[i] = r;
}

/* A host, for those who meet there: a link that is not far knows only one. */
static int split_host_of(const struct group *g, int rank) {
    bool far = link_is_far(link_find(g->params.link));
    return far && g->params.roster ? g->params.roster->of[rank].host : 0;
}

static enum error split_find_members(struct split *s, const struct wish *wishes) {
    const struct group *g = s->parent;
    TRY_MEMORY(s->member = pool_alloc(s->pool, (size_t)g->size * sizeof *s->member));
    for (int r = 0; r < g->size; r++)
        if (wishes[r].color == wishes[g->rank].color) split_insert(s, wishes, r);
    s->host = -1;
    for (int i = 0; i < s->n; i++) {
        if (s->member[i] == g->rank) s->me = i;
        if (split_host_of(g, s->member[i]) != split_host_of(g, g->rank)) continue;
        if (s->neighbours++ == 0) s->host = s->member[i];
    }
    return ERR_NONE;
}

/* The parent's, of the members only; hosts are numbered anew. */
static enum error split_make_roster(struct split *s) {
    const struct roster *of = s->parent->params.roster;
    if (!of) return ERR_NONE;
    int *number = pool_alloc(s->pool, 2 * (size_t)of->hosts * sizeof *number), *locals = number + of->hosts;
    if (!number) return ERR_MEMORY;
    struct roster *r = s->roster = memory_new(sizeof *s->roster + (size_t)s->n * sizeof(struct seat_of));
    if (!r) return ERR_MEMORY;
    struct seat_of *seats = (struct seat_of *)(void *)(r + 1);
    for (int h = 0; h < of->hosts; h++) number[h] = -1;
    for (int i = 0; i < s->n; i++) {
        seats[i] = of->of[s->member[i]];
        int *host = &number[seats[i].host];
        if (*host < 0) *host = r->hosts++;
        seats[i].host = *host;
        seats[i].local = locals[*host]++;
    }
    r->size = s->n;
    r->of = seats;
    return ERR_NONE;
}

/* ---- where they meet ---- */

static bool group_is_of_processes(const struct group *g) {
    return meeting_fd(g->params.meeting) >= 0;
}

static enum error split_host(struct split *s, struct invitation *out) {
    bool apart = group_is_of_processes(s->parent);
    TRY((apart ? meeting_create_shared : meeting_create)(s->neighbours, &s->meeting));
    if (!apart) meeting_share(s->meeting, s->neighbours);
    out->pid = (int64_t)getpid();
    out->where = apart ? meeting_fd(s->meeting) : (int64_t)(intptr_t)s->meeting;
    return ERR_NONE;
}

static enum error split_join(struct split *s, const struct invitation *in) {
    if (!in->pid) return FAIL(ERR_PEER, "rank %d could not prepare a subgroup", s->host);
    if (group_is_of_processes(s->parent)) return meeting_join_of(in->pid, in->where, s->neighbours, &s->meeting);
    s->meeting = (struct meeting *)(intptr_t)in->where;
    return ERR_NONE;
}

/* Every rank of the parent comes through here, whatever it could do before. err: what it could not. */
static enum error split_meet(struct split *s, enum error err, bool member) {
    struct group *g = s->parent;
    struct invitation *all = pool_alloc(s->pool, (size_t)g->size * sizeof *all);
    bool meets = member && !err && g->params.meeting;
    if (!all) return ERR_MEMORY;
    if (meets && s->host == g->rank) err = split_host(s, &all[g->rank]);
    TRY(group_gather_all(g, all, 2));
    if (meets && s->host != g->rank) err = split_join(s, &all[s->host]);
    int64_t worst = err;
    TRY(group_all_reduce(g, GROUP_INLINE, &worst, 1, DTYPE_I64, REDOP_MAX));
    if (worst && !err) return FAIL(ERR_PEER, "another rank could not enter its subgroup");
    return err;
}

/* ---- opening ---- */

/* Unlike any other group's at this time: the parent's, which of its subgroups, and who. */
static uint64_t split_id(const struct split *s) {
    uint64_t h = (s->parent->params.id ^ s->parent->splits) * 0x9e3779b97f4a7c15u;
    for (int i = 0; i < s->n; i++) h = (h ^ (uint64_t)s->member[i]) * 0x100000001b3u;
    return h ^ h >> 29;
}

/* What the description of emulated links calls the members. */
static enum error split_number(struct split *s, struct emulation *e) {
    const int *of = e->number;
    int *number = pool_alloc(s->pool, (size_t)s->n * sizeof *number);
    if (!number) return ERR_MEMORY;
    for (int i = 0; i < s->n; i++) number[i] = of ? of[s->member[i]] : s->member[i];
    e->number = number;
    return ERR_NONE;
}

static enum error split_open(struct split *s, struct group **out) {
    struct group_params p = s->parent->params;
    p.rank = s->me;
    p.size = s->n;
    p.idle = 0;
    p.id = split_id(s);
    p.meeting = s->meeting;
    p.roster = s->roster;
    if (s->meeting && p.roster && p.roster->hosts == 1) /* none of them is on another host */
        p.link = group_is_of_processes(s->parent) ? "shm" : "thread";
    p.carrier = NULL; /* subgroups are of the host's memory */
    p.device = NULL;
    TRY(split_number(s, &p.emulate));
    p.recorder = NULL; /* it is for one group, whose lanes go on beside this one's */
    TRY(group_open(&p, out));
    (*out)->meeting = s->meeting;
    (*out)->roster = s->roster;
    return ERR_NONE;
}

static enum error split_agree(struct split *s, int color, int key) {
    struct group *g = s->parent;
    struct wish *wishes = pool_alloc(s->pool, (size_t)g->size * sizeof *wishes);
    enum error err = ERR_NONE;
    if (!wishes) return ERR_MEMORY;
    wishes[g->rank] = (struct wish){color, key};
    TRY(group_gather_all(g, wishes, 2));
    g->splits++;
    if (color >= 0) err = split_find_members(s, wishes);
    if (color >= 0 && !err) err = split_make_roster(s);
    return split_meet(s, err, color >= 0);
}

enum error group_split(struct group *g, int color, int key, struct group **out) {
    struct split s = {.parent = g};
    *out = NULL;
    TRY(pool_create(&s.pool));
    enum error err = split_agree(&s, color, key);
    if (!err && color >= 0) err = split_open(&s, out);
    if (err) {
        meeting_free(s.meeting);
        memory_free(s.roster);
    }
    pool_free(s.pool);
    return err;
}
