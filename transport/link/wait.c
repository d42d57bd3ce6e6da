/* Waiting for a peer: first spin, since a prompt peer answers within a microsecond and the kernel takes fifty to wake a
 * sleeper; then give the core away; then sleep on a futex. How long depends on whether this thread has a core to
 * itself.
 *
 * No wake-up is lost: a sleeper says whom it awaits and then looks at the counter again; a peer advances the counter
 * and then looks whether it is awaited. Both are sequentially consistent, so at least one sees the other. */
#include "engine/base/clock.h"
#include "engine/base/futex.h"
#include "engine/base/log.h"
#include "transport/link/shared.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- bells ---- */

void bell_ring(struct bell *b) {
    atomic_fetch_add(&b->rung, 1);
    futex_wake(&b->rung, 1);
}

void wake_peer(struct shared *s, int lane, int peer) {
    struct bell *b = &s->board->member[peer].bell[lane];
    uint32_t awaited = atomic_load(&b->awaited);
    if (awaited != ANY_PEER && awaited != (uint32_t)s->link.params.rank + 1) return;
    if (atomic_compare_exchange_strong(&b->awaited, &awaited, AWAKE)) bell_ring(b);
}

void wake_peers(struct shared *s, int lane) {
    for (int r = 0; r < s->link.params.size; r++)
        if (r != s->link.params.rank) wake_peer(s, lane, r);
}

/* Who falls asleep later looks first at what has happened. (The thread of LANE_IN has looked before.) */
void wake_all(struct shared *s) {
    for (int r = 0; r < s->link.params.size; r++)
        for (int lane = 0; lane < ALL_LANES; lane++) {
            struct bell *b = &s->board->member[r].bell[lane];
            if (atomic_load(&b->awaited) != AWAKE || (lane == LANE_IN && s->link.params.mail)) bell_ring(b);
        }
}

/* ---- what to say of a peer that does not come ---- */

/* "rank 2 (pid 4711)"; ranks that are threads share a pid, which says nothing. */
static void peer_name(const struct shared *s, int peer, char out[48]) {
    const struct link_params *p = &s->link.params;
    int pid = atomic_load(&s->board->member[peer].pid), number = link_rank_name(p, peer);
    if (pid && pid != getpid())
        snprintf(out, 48, "rank %d (pid %d)", number, pid);
    else
        snprintf(out, 48, "rank %d", number);
}

/* Of a wait at the gate: has rank r come to it? */
static bool peer_has_come(const struct shared *s, int lane, const struct wait *w, int r) {
    const struct board_member *m = &s->board->member[r];
    const _Atomic uint32_t *turn = &m->posted[lane][w->sequence & 1].turn;
    return reached(w->entering ? turn : &m->steps[lane].value, w->sequence);
}

/* A rank that has not come, one that has left rather than another; -1: all have. */
static int gate_find_late(const struct shared *s, int lane, const struct wait *w) {
    int late = -1;
    for (int r = 0; r < s->link.params.size; r++) {
        if (peer_has_come(s, lane, w, r)) continue;
        if (late < 0 || atomic_load(&s->board->member[r].left)) late = r;
        if (atomic_load(&s->board->member[r].left)) break;
    }
    return late;
}

/* Who else has not entered the call that a peer has not, and has joined the group, or not, as that peer; with it. missing: (size). */
static int call_find_missing(const struct shared *s, int lane, const struct wait *w, int *missing) {
    const struct link_params *p = &s->link.params;
    const struct board_member *member = s->board->member;
    bool joined = atomic_load(&member[w->peer[0]].pid) != 0;
    int n = 0;
    for (int r = 0; r < p->size; r++) {
        bool late = w->entering && r != p->rank && !peer_has_come(s, lane, w, r);
        if (r == w->peer[0] || (late && joined == (atomic_load(&member[r].pid) != 0)))
            missing[n++] = link_rank_name(p, r);
    }
    return n;
}

static void wait_complain(struct shared *s, int lane, const struct wait *w, double seconds, char out[REASON_MAX]) {
    const struct link_params *p = &s->link.params;
    const struct board_member *peer = &s->board->member[w->peer[0]];
    char name[NAME_MAX_BYTES], doing[DESCRIBED_MAX];
    struct sighting seen = note_read(&peer->note);
    int *missing = calloc((size_t)p->size, sizeof *missing), n = missing ? call_find_missing(s, lane, w, missing) : 1;
    if (n > 1)
        words_several(name, missing, n);
    else
        peer_name(s, w->peer[0], name);
    p->describe(p->user, lane, doing);
    enum late how = !atomic_load(&peer->pid) ? LATE_JOINING : w->entering ? LATE_ENTERING : LATE_WITHIN;
    words_late(out, name, how, doing, seconds, n > 1 ? NULL : &seen);
    free(missing);
}

/* ---- peers that will never come ---- */

uint64_t process_space(void) {
    struct stat s;
    return stat("/proc/self/ns/pid", &s) == 0 ? s.st_ino : 1;
}

/* A process that has ended is seen at once, while nobody has collected its exit code and when
 * somebody has, after which its number names nobody. */
static bool process_ended(int pid) {
    if (!pid) return false;
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (fd < 0) return kill(pid, 0) != 0 && errno == ESRCH;
    struct pollfd p = {.fd = fd, .events = POLLIN};
    bool ended = poll(&p, 1, 0) == 1;
    close(fd);
    return ended;
}

/* Who has left has ended its part before, and may have ended since. */
static bool peer_has_died(const struct shared *s, int rank) {
    const struct board_member *peer = &s->board->member[rank];
    int pid = atomic_load(&peer->pid);
    return pid != atomic_load(&s->me->pid) && !atomic_load(&peer->left) && atomic_load(&peer->space) == s->space &&
           process_ended(pid);
}

static bool wait_is_over(const struct wait *w) {
    return reached(w->counter[0], w->want[0]) || (w->n > 1 && reached(w->counter[1], w->want[1]));
}

/* awaited: this rank waits for it. */
static enum error wait_lose(struct shared *s, int lane, int peer, const char *how, bool awaited) {
    const struct link_params *p = &s->link.params;
    char name[48], doing[DESCRIBED_MAX], reason[REASON_MAX];
    peer_name(s, peer, name);
    p->describe(p->user, lane, doing);
    words_lost(reason, name, how, NULL, link_rank_name(p, p->rank), awaited ? doing : NULL);
    return shared_fail(&s->link, ERR_PEER, reason);
}

/* Of all ranks, one that has died; else -1. Of a crowd a few are looked at each time, as all of them look. */
static int peer_find_dead(struct shared *s) {
    int size = s->link.params.size;
    for (int i = 0; i < size && i < CROWD; i++) {
        s->watched = (s->watched + 1) % size;
        if (peer_has_died(s, s->watched)) return s->watched;
    }
    return -1;
}

enum error shared_lost(struct link *l, int lane) {
    struct shared *s = (struct shared *)l;
    int dead = peer_find_dead(s);
    return dead < 0 ? ERR_NONE : wait_lose(s, lane, dead, "has died", true);
}

/* A peer that left or died may have done its part before: look again. Whoever else has died ends
 * the wait, too: those that this rank waits for may wait for him. */
static enum error wait_check_lost(struct shared *s, int lane, const struct wait *w, bool look_for_death) {
    for (int i = 0; i < w->n; i++) {
        bool left = atomic_load(&s->board->member[w->peer[i]].left);
        if (!left && !(look_for_death && peer_has_died(s, w->peer[i]))) continue;
        if (wait_is_over(w)) return ERR_NONE;
        return wait_lose(s, lane, w->peer[i], left ? "has left" : "has died", true);
    }
    int other = look_for_death ? peer_find_dead(s) : -1;
    return other < 0 ? ERR_NONE : wait_lose(s, lane, other, "has died", false);
}

/* ---- the wait ---- */

/* Beside other programs a rank that waits for others should have its core soon after they have done their part. So its
 * thread asks for turns of 0.1 ms, where a few ms are usual: they come the earlier, and it has no more of the core for
 * that. A yield gives a whole turn away. Linux before 6.12 takes no notice. */
void wait_take_short_turns(void) {
    enum { TURN = 100000 };
    static _Thread_local bool asked;
    struct { /* sched_attr of sched_setattr(2), as it was at first */
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime, deadline, period;
    } a = {0};
    if (asked) return;
    asked = true;
    if (syscall(SYS_sched_getattr, 0, &a, sizeof a, 0) || a.policy != SCHED_OTHER) return;
    a.runtime = TURN;
    (void)syscall(SYS_sched_setattr, 0, &a, 0); /* a wish */
}

struct shared_vigil { /* of one sleep */
    int64_t start;
    bool warned;
    bool quiet; /* it was not a peer that ended the last sleep */
};

static enum error wait_check_time(struct shared *s, int lane, const struct wait *w, struct shared_vigil *v) {
    double timeout = s->link.params.timeout, waited = clock_seconds(clock_ns() - v->start);
    char text[REASON_MAX];
    if (waited >= timeout) {
        wait_complain(s, lane, w, timeout, text);
        return shared_fail(&s->link, ERR_TIMEOUT, text);
    }
    if (waited >= timeout / 6 && !v->warned) {
        v->warned = true;
        if (w->gate && atomic_exchange(&s->board->gates[lane].warned.value, w->want[0]) == w->want[0]) return ERR_NONE;
        wait_complain(s, lane, w, waited, text);
        log_warn("%s", text);
    }
    return ERR_NONE;
}

/* Until the bell rings, but so short that deaths are seen and the times for warning and giving up
 * are kept. False when nobody rang. */
static bool bell_sleep(struct bell *b, uint32_t rung, double timeout) {
    double slice = timeout / 24 < 0.2 ? timeout / 24 : 0.2;
    return futex_wait(&b->rung, rung, slice);
}

static enum error wait_sleep(struct shared *s, int lane, const struct wait *w) {
    struct bell *b = &s->me->bell[lane];
    struct shared_vigil v = {.start = clock_ns()};
    struct wait now = *w;
    uint32_t awaited = w->gate ? THE_GATE : w->n == 1 ? (uint32_t)w->peer[0] + 1 : ANY_PEER;
    enum error err = ERR_NONE;
    for (;;) {
        uint32_t rung = atomic_load(&b->rung);
        atomic_store(&b->awaited, awaited);
        if (wait_is_over(w)) break;
        if (w->gate) now.peer[0] = gate_find_late(s, lane, w);
        TRY_GOTO(err, shared_failure(&s->link), over);
        if (now.peer[0] >= 0) {
            TRY_GOTO(err, wait_check_lost(s, lane, &now, v.quiet), over);
            TRY_GOTO(err, wait_check_time(s, lane, &now, &v), over);
        }
        v.quiet = !bell_sleep(b, rung, s->link.params.timeout);
    }
over:
    atomic_store(&b->awaited, AWAKE);
    return err;
}

/* How long to spin (ns), then how often to give the core away. Who has a core to himself spins for
 * a few times what sleeping and waking cost, so that he never loses much by either. The
 * communication lane shares its core with computing. */
static const struct spin_patience {
    int64_t spin;
    int yields;
} patiences[2][2] = {{{0, 2}, {1000, 40}},      /* more ranks than cores: comm lane, caller */
                     {{5000, 0}, {200000, 0}}}; /* a core each */

static bool wait_may_stop(const struct shared *s, const struct wait *w) {
    return wait_is_over(w) || atomic_load_explicit(&s->board->failed, memory_order_relaxed);
}

static bool wait_spin(const struct shared *s, const struct wait *w, int64_t ns) {
    for (int64_t end = clock_ns() + ns; clock_ns() < end;)
        for (int i = 0; i < 32; i++) {
            if (wait_may_stop(s, w)) return true;
            clock_relax();
        }
    return false;
}

/* Whether the peer made its last calls on this core: it cannot come while this rank spins. */
static bool wait_shares_core(const struct shared *s, int lane, const struct wait *w) {
    if (lane >= LANES || w->gate) return false;
    const struct posted *theirs = s->board->member[w->peer[0]].posted[lane];
    int core = sched_getcpu();
    for (int i = 0; i < 2; i++)
        if (atomic_load_explicit(&theirs[i].core, memory_order_relaxed) != core) return false;
    return true;
}

/* Moves this thread to another core, so that the two no longer take turns: to a scheduler that sees only how many want a
 * core, they look like one. Of the two the rank of higher number moves, and not often, as the other core may be worse. */
static bool wait_change_core(const struct shared *s, int peer) {
    enum { PAUSE = 20000000 };
    static _Thread_local int64_t changed;
    int64_t now = clock_ns();
    cpu_set_t may, others;
    if (s->link.params.rank < peer || now < changed + PAUSE || sched_getaffinity(0, sizeof may, &may)) return false;
    changed = now;
    others = may;
    CPU_CLR((size_t)sched_getcpu(), &others);
    if (!CPU_COUNT(&others) || sched_setaffinity(0, sizeof others, &others)) return false;
    return sched_setaffinity(0, sizeof may, &may) == 0;
}

enum error wait_for(struct shared *s, int lane, const struct wait *w) {
    bool patient = lane < LANES && s->link.patient[lane] && (s->roomy || !s->crowd); /* else others have more to do */
    const struct spin_patience *p = &patiences[s->roomy][patient];
    wait_take_short_turns();
    if (s->roomy && wait_shares_core(s, lane, w) && !wait_change_core(s, w->peer[0])) return wait_sleep(s, lane, w);
    bool stop = wait_spin(s, w, p->spin);
    for (int i = 0; i < p->yields && !stop; i++) {
        sched_yield();
        stop = wait_may_stop(s, w);
    }
    return wait_is_over(w) ? ERR_NONE : wait_sleep(s, lane, w);
}

/* ---- the gate ---- */

enum error gate_pass(struct shared *s, int lane, bool entering, uint32_t sequence) {
    struct gate *g = &s->board->gates[lane];
    int size = s->link.params.size;
    uint32_t round = ++s->rounds[lane];
    const struct wait w = {.n = 1,
                           .counter = {&g->round.value},
                           .want = {round},
                           .entering = entering,
                           .gate = true,
                           .sequence = sequence};
    if (atomic_fetch_add(&g->arrived.value, 1) + 1 != round * (uint32_t)size) return wait_for(s, lane, &w);
    atomic_store(&g->round.value, round);
    for (int r = 0; r < size; r++) {
        struct bell *b = &s->board->member[r].bell[lane];
        uint32_t awaited = THE_GATE;
        if (atomic_load(&b->awaited) == THE_GATE && atomic_compare_exchange_strong(&b->awaited, &awaited, AWAKE))
            bell_ring(b);
    }
    return ERR_NONE;
}
