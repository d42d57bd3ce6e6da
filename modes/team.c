#include "modes/team.h"

#include "engine/base/file.h"
#include "engine/base/log.h"
#include "engine/device/runtime.h"
#include "engine/model/state.h"
#include "engine/settings/exchange.h"
#include "engine/settings/run_config.h"
#include "transport/flight/recorder.h"

#include <stdio.h>
#include <string.h>

/* The last calls of every rank: "RUN_DIR/flight/rank3.bin". A run does not need it, so an error
 * here is only a warning. */
static void open_recorder(struct team *m, const struct trainer *t, int size, bool mail) {
    char folder[4096], path[4160];
    if (!t->job->run_dir || size < 2) return;
    int n = snprintf(folder, sizeof folder, "%s/flight", t->job->run_dir);
    if (n >= (int)sizeof folder) return;
    snprintf(path, sizeof path, "%s/rank%d.bin", folder, t->rank);
    const struct recorder_params p = {
        .path = path, .rank = t->rank, .size = size, .calls = RECORDER_CALLS, .mail = mail};
    if (recorder_open(&p, &m->recorder) != ERR_NONE) log_warn("no flight recorder: %s", error_message());
}

/* Where devices have memory of their own, something has to carry what lies there. */
static void choose_carrier(const struct trainer *t, struct group_params *p) {
    static const char *const names[] = {
        [BACKEND_AUTO] = "auto", [BACKEND_HOST] = "staged", [BACKEND_PEER] = "peer", [BACKEND_NCCL] = "nccl"};
    if (!device_find(t->config->devices.kind)->runtime->apart) return;
    p->carrier = names[t->config->comm.backend];
    p->device = t->device;
    p->bitwise = t->config->deterministic == DETERMINISTIC_BITWISE;
    p->repeatable = t->config->deterministic != DETERMINISTIC_FALSE;
    if (strcmp(t->config->comm.interface, "auto") != 0) p->interface = t->config->comm.interface;
}

static void describe(struct team *m, const struct trainer *t, const struct group_params *p) {
    const char *why, *reason, *order = p->order == ORDER_RING ? "ring" : "tree", *guard = group_guard(m->group);
    const char *carrier = group_carrier(m->group, &reason);
    const char *choice = group_choice(m->group, (size_t)t->model->arena_floats * sizeof(float), &why);
    if (t->config->sharing.owners) choice = "parts", why = "each server adds its part of what all workers send";
    if (carrier && strcmp(carrier, "staged") != 0)
        snprintf(m->line, sizeof m->line, "%s (%s), %s order", carrier, reason, order);
    else
        snprintf(m->line, sizeof m->line, "%s%s%s%s over %s%s%s%s (%s), %s order", carrier ? "through the host (" : "",
                 carrier ? reason : "", carrier ? "): " : "", choice, emulation_on(&p->emulate) ? "emulated " : "",
                 p->link, guard ? ", " : "", guard ? guard : "", why, order);
}

/* A library adds in its own way, each rank's one sum. */
static bool adds_subtrees(const struct team *m, const struct group_params *p) {
    const char *why, *carrier = group_carrier(m->group, &why);
    return p->leaves && (p->bitwise || !carrier || strcmp(carrier, "nccl") != 0);
}

/* Whether what guards the messages is what was expressly asked for. */
static enum error check_guard(const struct team *m, const struct group_params *p) {
    const char *why, *carrier = group_carrier(m->group, &why);
    bool far = p->roster && p->roster->hosts > 1;
    if (p->secure < SECURE_SEALED || !far || !carrier || strcmp(carrier, "nccl") != 0) return ERR_NONE;
    return FAIL(ERR_CONFIG,
                "comm.secure is %s, but NCCL neither seals nor encrypts what it sends\n"
                "comm.backend: host, or comm.secure: auto",
                secure_names[p->secure]);
}

enum error team_open(struct team *m, struct trainer *t, const struct place *place) {
    const struct comm_config *c = &t->config->comm;
    struct group_params p = place->group;
    p.rank = t->rank;
    p.idle = t->config->sharing.servers;
    p.mail = t->config->sharing.plan.by_turns || t->config->sharing.stages > 1;
    p.order = c->order == COMM_ORDER_RING ? ORDER_RING : ORDER_TREE;
    p.timeout = c->timeout;
    p.heartbeat = c->heartbeat;
    p.secure = (enum secure)c->secure;
    p.emulate = c->emulate.as;
    p.algorithm = strcmp(c->algorithm, "auto") ? c->algorithm : place->algorithm;
    p.digest = c->sha256;
    if (p.order == ORDER_TREE && strcmp(p.algorithm, "native") != 0) p.leaves = (int)t->config->batch.shards;
    choose_carrier(t, &p);
    open_recorder(m, t, p.size, p.mail);
    p.recorder = m->recorder;
    TRY(group_open(&p, &m->group));
    TRY(check_guard(m, &p));
    m->subtrees = adds_subtrees(m, &p);
    describe(m, t, &p);
    return ERR_NONE;
}

void team_abort(struct team *m, const char *reason) {
    m->aborted = true;
    if (m->group) group_abort(m->group, reason);
    if (m->peers) group_abort(m->peers, reason);
}

void team_close(struct team *m) {
    if (m->peers) group_close(m->peers);
    if (m->group) group_close(m->group);
    recorder_close(m->recorder, !m->aborted);
}

enum error team_share_start(struct team *m, struct trainer *t) {
    if (!m->group) return ERR_NONE;
    bool whole = t->config->sharing.plan.kept == WEIGHTS_KEPT; /* else the share gives each its parts */
    if (whole) TRY(group_broadcast(m->group, GROUP_INLINE, t->arena.values, t->model->arena_floats, DTYPE_F32, 0));
    if (whole && t->arena.average)
        TRY(group_broadcast(m->group, GROUP_INLINE, t->arena.average, t->model->arena_floats, DTYPE_F32, 0));
    return team_share_buffers(m, t, 0);
}

enum error team_share_state(struct team *m, struct trainer *t) {
    for (int i = 0; i < t->arena.nslots; i++)
        TRY(group_broadcast(m->group, GROUP_INLINE, t->arena.slots[i],
                            state_place(t->model, t->optim, i, t->model->arena_floats), DTYPE_F32, 0));
    return ERR_NONE;
}

enum error team_sum(struct team *m, double *v, int n) {
    if (!m->group) return ERR_NONE;
    return group_all_reduce(m->group, GROUP_INLINE, v, n, DTYPE_F64, REDOP_SUM);
}

enum error team_share_buffers(struct team *m, struct trainer *t, int root) {
    if (!m->group || t->model->buffer_floats == 0) return ERR_NONE;
    return group_broadcast(m->group, GROUP_INLINE, t->arena.buffers, t->model->buffer_floats, DTYPE_F32, root);
}

void team_stats(const struct team *m, struct mode_stats *out) {
    const struct group *const groups[] = {m->group, m->peers};
    for (int i = 0; i < 2; i++) {
        struct group_stats s;
        if (!groups[i]) continue;
        group_get_stats(groups[i], &s);
        out->sent += s.sent, out->received += s.received, out->lane_ns += s.busy_ns;
    }
}

static enum error wait_for(struct flight *f, int64_t begun) {
    while (f->done < begun) TRY(work_wait(f->work[f->done++ % GROUP_WORKS]));
    return ERR_NONE;
}

enum error flight_next(struct flight *f, struct work ***out) {
    TRY(wait_for(f, f->begun + 1 - GROUP_WORKS));
    *out = &f->work[f->begun++ % GROUP_WORKS];
    return ERR_NONE;
}

enum error flight_wait(struct flight *f, int last) {
    return wait_for(f, f->begun - last);
}

enum error flight_land(struct flight *f) {
    return wait_for(f, f->begun);
}
