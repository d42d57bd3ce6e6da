/* One call: what its peers check of it, how they meet, and which way it takes. */
#include "engine/base/clock.h"
#include "engine/base/text.h"
#include "transport/algo/plain.h"
#include "transport/carrier/carrier.h"
#include "transport/core.h"
#include "transport/link/words.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum error group_fail(struct group *g, enum error err, const char *fmt, ...) {
    char reason[REASON_MAX];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(reason, sizeof reason, fmt, ap);
    va_end(ap);
    char *hint = n >= (int)sizeof reason ? strchr(reason, '\n') : NULL;
    if (hint) *hint = '\0';
    return g->link->ops->fail(g->link, err, reason);
}

enum error group_fail_own(struct group *g, enum error err) {
    char words[ERROR_WORDS];
    return group_fail(g, err, "rank %d: %s", g->rank, error_words(words, sizeof words));
}

/* ---- the arguments ---- */

static enum error call_check_parts(struct group *g, const char *kind, const int64_t *part) {
    if (part[0] < 0) return group_fail(g, ERR_BUG, "%s: part 0 begins below 0", kind);
    for (int r = 0; r < g->size; r++)
        if (part[r] > part[r + 1]) return group_fail(g, ERR_BUG, "%s: part %d ends before it begins", kind, r);
    return ERR_NONE;
}

static enum error call_check_two_sides(struct group *g, const char *kind, const struct collective *c) {
    const int64_t *from = c->part + g->rank, *to = c->send_part + g->rank;
    TRY(call_check_parts(g, kind, c->send_part));
    if (to[1] - to[0] == from[1] - from[0]) return ERR_NONE;
    return group_fail(g, ERR_BUG, "%s: rank %d sends itself %lld elements and expects %lld", kind, g->rank,
                      (long long)(to[1] - to[0]), (long long)(from[1] - from[0]));
}

enum error call_check(struct group *g, const struct collective *c) {
    const char *kind = kind_name(c->kind);
    size_t bytes;
    if ((unsigned)c->sum.type >= DTYPES || (unsigned)c->sum.op >= REDOPS)
        return group_fail(g, ERR_BUG, "%s: no type %d or operation %d", kind, (int)c->sum.type, (int)c->sum.op);
    bool any = c->root == GROUP_ANY && c->lane == LANE_IN && g->size > 1;
    if (!any && (c->root < 0 || c->root >= g->size || (kind_has_peer(c->kind) && c->root == g->rank)))
        return group_fail(g, ERR_BUG, "%s: rank %d as root or peer of rank %d, of %d", kind, c->root, g->rank, g->size);
    if (c->sum.count < 0 || __builtin_mul_overflow((size_t)c->sum.count, 8, &bytes))
        return group_fail(g, ERR_BUG, "%s: %lld elements", kind, (long long)c->sum.count);
    if (kind_adds(c->kind) && !redop_suits(c->sum.op, c->sum.type))
        return group_fail(g, ERR_BUG, "%s: %s is for integers, not for %s", kind, redop_name(c->sum.op),
                          dtype_name(c->sum.type));
    if (c->part) TRY(call_check_parts(g, kind, c->part));
    return c->send_part ? call_check_two_sides(g, kind, c) : ERR_NONE;
}

/* ---- what the peers check ---- */

static uint64_t parts_digest(const int64_t *part, int size) {
    uint64_t h = 0xcbf29ce484222325u;
    for (int i = 0; i <= size; i++) h = (h ^ (uint64_t)part[i]) * 0x100000001b3u;
    return h;
}

/* What all ranks must have opened the group with: leaves, a carrier or not, algorithm (after the
 * last: auto), idle, order. */
static int64_t group_settings(const struct group *g) {
    int n, i = 0;
    const struct algo_ops *const *list = algo_list(&n);
    while (i < n && list[i] != g->algo) i++;
    return (int64_t)g->params.leaves << 48 | (int64_t)(g->params.carrier != NULL) << 40 | (int64_t)i << 32 |
           g->params.idle << 8 | (int)g->params.order;
}

/* How many elements; -1: every rank has its own number. */
static int64_t call_common_count(const struct group *g, const struct collective *c) {
    if (c->kind == KIND_OPEN) return group_settings(g);
    return c->kind == KIND_ALL_TO_ALL ? -1 : c->sum.count;
}

/* A send and its receive bear one label. */
struct call call_of(const struct group *g, const struct collective *c, uint32_t sequence) {
    enum kind kind = kind_has_peer(c->kind) ? KIND_SEND : c->kind;
    uint64_t root = kind_has_root(c->kind) ? (uint64_t)c->root : 0;
    return (struct call){.what = (uint64_t)kind | (uint64_t)c->sum.type << 8 | (uint64_t)c->sum.op << 16 |
                                 (uint64_t)c->carried << 24 | root << 32,
                         .count = call_common_count(g, c),
                         .detail = kind_has_parts(c->kind)           ? parts_digest(c->part, g->size)
                                   : c->kind == KIND_OPEN && g->algo ? g->algo->mark
                                                                     : (uint64_t)c->apart,
                         .sequence = sequence};
}

static void call_open_text(int64_t settings, uint64_t mark, char out[DESCRIBED_MAX]) {
    int n;
    const struct algo_ops *const *list = algo_list(&n);
    uint64_t algo = (uint64_t)settings >> 32 & 255;
    unsigned leaves = (uint64_t)settings >> 48;
    char tree[32] = "", plugin[32];
    snprintf(plugin, sizeof plugin, "plug-in %.7llx", (unsigned long long)mark);
    if (leaves) snprintf(tree, sizeof tree, ", %u leaves", leaves);
    snprintf(out, DESCRIBED_MAX, "open(algorithm %s, order %s, idle %u%s%s)",
             algo < (uint64_t)n ? list[algo]->name
             : mark             ? plugin
                                : "auto",
             (settings & 255) == ORDER_RING ? "ring" : "tree", (unsigned)(settings >> 8 & 0xffffff), tree,
             settings >> 40 & 1 ? ", with accelerators" : "");
}

/* "all_reduce(f32, 1024, sum)". What a peer shows is read as if it could be anything. */
static void call_text(const struct call *c, const char *receive, char out[DESCRIBED_MAX]) {
    unsigned kind = c->what & 255, type = c->what >> 8 & 255, op = c->what >> 16 & 255;
    char more[64] = "";
    if (kind >= KINDS || type >= DTYPES || op >= REDOPS) {
        snprintf(out, DESCRIBED_MAX, "something unknown");
        return;
    }
    if (kind_adds(kind)) text_append(more, sizeof more, ", %s", redop_name(op));
    if (kind_has_root(kind)) text_append(more, sizeof more, ", root %u", (unsigned)(c->what >> 32));
    if (kind_has_parts(kind)) text_append(more, sizeof more, ", parts %08x", (unsigned)c->detail);
    if (c->what >> 24 & 1) text_append(more, sizeof more, ", on an accelerator");
    if (kind == KIND_OPEN)
        call_open_text(c->count, c->detail, out);
    else if (kind == KIND_ALL_TO_ALL)
        snprintf(out, DESCRIBED_MAX, "%s(%s)", kind_name(kind), dtype_name(type));
    else if (kind == KIND_BARRIER || kind == KIND_ALLOC)
        snprintf(out, DESCRIBED_MAX, "%s(%lld)", kind_name(kind), (long long)c->count);
    else
        snprintf(out, DESCRIBED_MAX, "%s(%s, %lld%s)", receive ? receive : kind_name(kind), dtype_name(type),
                 (long long)c->count, more);
}

enum error call_disagree(void *user, int lane, int peer, const struct call *mine, const struct call *theirs) {
    struct group *g = user;
    enum kind kind = lane == LANE_IN ? KIND_RECV : g->lanes[lane].running->kind;
    char a[DESCRIBED_MAX], b[DESCRIBED_MAX], number[64] = "";
    call_text(theirs, NULL, a);
    call_text(mine, kind == KIND_RECV ? "recv" : NULL, b);
    if (mine->sequence) snprintf(number, sizeof number, " as collective %u", (unsigned)mine->sequence);
    bool parts = kind == KIND_ALL_TO_ALL && theirs->what == mine->what && theirs->sequence == mine->sequence;
    if (parts || same_call(theirs, mine)) /* messages of one call: two legs of a plug-in */
        return group_fail(g, ERR_MISMATCH, "%s%s: rank %d sends rank %d a part of another size than it expects", a,
                          number, peer, g->rank);
    return group_fail(g, ERR_MISMATCH, "rank %d called %s%s where rank %d called %s", peer, a, number, g->rank, b);
}

static void message_words(const struct collective *c, char out[DESCRIBED_MAX]) {
    char peer[32] = "any rank", which[40] = "", bytes[32];
    if (c->root != GROUP_ANY) snprintf(peer, sizeof peer, "rank %d", c->root);
    if (c->lane >= LANES) snprintf(which, sizeof which, ", tag %lld", (long long)c->tag);
    if (c->lane == LANE_COMM) snprintf(which, sizeof which, " on the communication lane");
    if (c->lane == LANE_AHEAD) snprintf(which, sizeof which, " on the lane ahead");
    snprintf(out, DESCRIBED_MAX, "%s %s %s%s (%s)", kind_name(c->kind), c->kind == KIND_SEND ? "to" : "from", peer,
             which, text_of_bytes((double)bytes_of(c, c->sum.count), bytes));
}

void call_words(const struct collective *c, char out[DESCRIBED_MAX]) {
    char bytes[32];
    bool own = c->algo && c->algo->mark && c->algo->run[c->kind];
    if (kind_has_peer(c->kind))
        message_words(c, out);
    else if (c->kind == KIND_OPEN)
        snprintf(out, DESCRIBED_MAX, "the group");
    else
        snprintf(out, DESCRIBED_MAX, "%s %u (%s)%s%.60s", kind_name(c->kind), (unsigned)c->call.sequence,
                 text_of_bytes((double)bytes_of(c, c->sum.count), bytes), own ? " by plug-in " : "",
                 own ? strrchr(c->algo->name, '/') + 1 : "");
}

void call_describe(void *user, int lane, char out[DESCRIBED_MAX]) {
    struct group *g = user;
    struct collective in = {0};
    if (lane == LANE_IN) in = mail_shown(g);
    call_words(lane == LANE_IN ? &in : g->lanes[lane].running, out);
}

/* ---- the way it takes ---- */

/* One rank has everything already, but for what it sends itself. */
static enum error call_run_alone(struct group *g, struct collective *c) {
    if (c->there)
        TRY(carrier_alone(g, c));
    else if (c->kind == KIND_ALL_TO_ALL)
        TRY(plain_move(c, c->kind));
    else if (c->own)
        memmove(c->own, element(c, c->buf, c->part[0]), bytes_of(c, part_size(c, 0)));
    return g->link->ops->failure(g->link);
}

struct recorded_call call_recorded(const struct collective *c) {
    bool other = kind_has_root(c->kind) || kind_has_peer(c->kind);
    return (struct recorded_call){.sequence = c->call.sequence,
                                  .lane = (uint8_t)c->lane,
                                  .kind = (uint8_t)c->kind,
                                  .type = (uint8_t)c->sum.type,
                                  .op = (uint8_t)c->sum.op,
                                  .peer = other ? c->root : -1,
                                  .count = c->sum.count,
                                  .tag = c->tag};
}

int64_t call_clock(struct group *g) {
    return atomic_load_explicit(&g->watch, memory_order_acquire) ? clock_ns() : 0;
}

void call_tell(struct group *g, const struct collective *c, int64_t began, bool waited) {
    group_watch_fn watch = began ? atomic_load_explicit(&g->watch, memory_order_acquire) : NULL;
    if (!watch) return;
    const struct group_event e = {.name = kind_name(c->kind),
                                  .lane = (enum lane)c->lane,
                                  .waited = waited,
                                  .label = c->label,
                                  .bytes = (int64_t)bytes_of(c, c->sum.count),
                                  .began = began,
                                  .ended = clock_ns()};
    watch(g->watcher, &e);
}

/* What the device does one after the other is told so, though it may have been asked for at once. */
static enum error call_end(struct group *g, const struct collective *c, enum error err) {
    struct lane_state *lane = &g->lanes[c->lane];
    call_tell(g, c, c->began && c->began < lane->told ? lane->told : c->began, false);
    lane->told = call_clock(g);
    recorder_end(g->params.recorder, c->lane, c->record, (int)err);
    return err;
}

enum error call_look(struct group *g, struct collective *c, struct carrier_patience *p, bool patient) {
    g->lanes[c->lane].running = c;
    g->link->patient[c->lane] = patient;
    enum error err = carrier_look(carrier_for(g, c), c, p, patient);
    return c->under_way ? err : call_end(g, c, err);
}

enum error call_run(struct group *g, struct collective *c, bool patient) {
    struct lane_state *lane = &g->lanes[c->lane];
    lane->running = c;
    g->link->patient[c->lane] = patient;
    c->link = g->link;
    c->rank = g->rank;
    c->size = g->size;
    if (has_only_own(c)) c->buf = own_place(c);
    c->places = &g->places;
    c->bands = &g->bands;
    if (!c->algo) c->algo = g->algo; /* a meeting brings its own */
    c->terrain = &g->terrain;
    c->lists = &lane->lists;
    c->at = lane->lists.at;
    c->scratch = lane->scratch;
    c->part_bytes = g->terrain.part_bytes;
    c->lo = 0;
    c->hi = c->sum.count;
    c->traffic = &lane->traffic;
    if (g->size == 1) return call_run_alone(g, c);
    struct carrier *carrier = c->there && collective_moves(c) ? carrier_for(g, c) : NULL;
    c->carried = carrier && carrier != g->staged;
    c->call = call_of(g, c, kind_has_peer(c->kind) ? 0 : ++lane->sequence);
    const struct recorded_call recorded = call_recorded(c);
    c->record = recorder_begin(g->params.recorder, &recorded);
    c->began = call_clock(g);
    enum error err = carrier ? carrier_run(carrier, c) : c->lane == LANE_OUT ? mail_send(c) : collective_move(c);
    return c->under_way ? err : call_end(g, c, err);
}
