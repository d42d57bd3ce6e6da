/* Recomputation of activations, and where activations lie.
 *
 * The steps are cut into stretches, one after another. Only what a later stretch reads is kept from forward to backward;
 * everything else, outputs and what ops save, lies in one place that all stretches use in turn. Before backward enters a
 * stretch, the stretch runs forward once more and so finds its activations there again (Chen et al., 2016). The last
 * stretch needs no second run, since backward follows its forward at once.
 *
 *     forward    [ 0 | 1 | 2 ]           bytes: those that are kept, and the largest stretch's
 *     backward                 2  1+1  0+0       ops: one more forward of all stretches but the last
 *
 * The second run gives the bits of the first: dropout draws by counter, batchnorm takes the same moments (and leaves its
 * running ones alone), and no kept output moves. So neither sums nor weights depend on the number of stretches. With one
 * stretch every activation has a place of its own. */
#include "engine/model/graph_plan.h"

#include <stdlib.h>

enum { STRETCHES_MOST = 64 /* of those that PLAN_AUTO tries */ };

struct lives {
    int *last;         /* by tensor: the last step that reads it */
    int64_t *crossing; /* by step: bytes that steps before it leave to it and to those after it */
    int64_t *own;      /* by step: bytes of its output and of what its op saves */
    int64_t all;
};

/* A loss whose forward gives the gradient has no backward that would read its output. */
static bool is_unwritten(const struct plan *p, const struct plan_step *s) {
    return s->op->y_unread || p->tensors[s->in[0]].replaced;
}

static int64_t output_bytes(const struct plan *p, const struct plan_step *s) {
    const struct plan_tensor *t = &p->tensors[s->out];
    return is_unwritten(p, s) ? 0 : plan_lines(p, p->n * t->count * t->unit);
}

static int64_t saved_bytes(const struct plan *p, const struct plan_step *s) {
    return plan_lines(p, (int64_t)s->op->saved_bytes);
}

/* The network's outputs are read when the pass is over. */
static void lives_find(const struct plan *p, struct lives *l) {
    for (int s = 0; s < p->nsteps; s++) {
        const struct plan_step *step = &p->steps[s];
        l->last[step->out] = s;
        for (int i = 0; i < step->ninputs; i++) l->last[step->in[i]] = s;
        l->own[s] = output_bytes(p, step) + saved_bytes(p, step);
        l->all += l->own[s];
    }
    l->last[p->output] = p->nsteps;
    for (int s = 0; s < p->nsteps; s++)
        for (int k = s + 1; k <= l->last[p->steps[s].out] && k < p->nsteps; k++)
            l->crossing[k] += output_bytes(p, &p->steps[s]);
}

/* ---- cuts --------------------------------------------------------------------------------- */

/* The step with the fewest bytes to keep before it, among those where between low and high of all bytes lie before. */
static int cut_find(const struct plan *p, const struct lives *l, int64_t low, int64_t high) {
    int64_t before = 0;
    int best = -1;
    for (int s = 1; s < p->nsteps; s++) {
        before += l->own[s - 1];
        if (before <= low || before > high) continue;
        if (best < 0 || l->crossing[s] < l->crossing[best]) best = s;
    }
    return best;
}

/* Numbers the stretches of the steps; fewer than asked for where steps are large. Gives how many. */
static int cut_all(struct plan *p, const struct lives *l, int count) {
    for (int s = 0; s < p->nsteps; s++) p->steps[s].stretch = 0;
    for (int k = 1, from = 0; k < count; k++) {
        int64_t each = l->all / count;
        int cut = cut_find(p, l, each * k - each / 2, each * k + each / 2);
        if (cut <= from) continue;
        for (int s = cut; s < p->nsteps; s++) p->steps[s].stretch++;
        from = cut;
    }
    return p->steps[p->nsteps - 1].stretch + 1;
}

static bool is_kept(const struct plan *p, const struct lives *l, int step) {
    int last = l->last[p->steps[step].out];
    return last >= p->nsteps || p->steps[last].stretch != p->steps[step].stretch;
}

/* Bytes of all kept outputs, and of the largest stretch's other activations. */
static int64_t kept_bytes(const struct plan *p, const struct lives *l) {
    int64_t bytes = p->input;
    for (int s = 0; s < p->nsteps; s++)
        if (is_kept(p, l, s)) bytes += output_bytes(p, &p->steps[s]);
    return bytes;
}

static int64_t shared_bytes(const struct plan *p, const struct lives *l) {
    int64_t most = 0, bytes = 0;
    for (int s = 0; s < p->nsteps; s++) {
        if (s && p->steps[s].stretch != p->steps[s - 1].stretch) bytes = 0;
        bytes += is_kept(p, l, s) ? saved_bytes(p, &p->steps[s]) : l->own[s];
        most = bytes > most ? bytes : most;
    }
    return most;
}

/* The number of stretches that needs the fewest bytes: however many there are, they cost one forward. */
static int cut_best(struct plan *p, const struct lives *l) {
    int best = 1;
    int64_t least = INT64_MAX;
    for (int count = 1; count <= STRETCHES_MOST && count <= p->nsteps; count++) {
        cut_all(p, l, count);
        int64_t bytes = kept_bytes(p, l) + shared_bytes(p, l);
        if (bytes < least) least = bytes, best = count;
    }
    return best;
}

/* ---- places ------------------------------------------------------------------------------- */

/* A step of an earlier stretch runs once more unless all that it leaves is kept. */
static void places_give(struct plan *p, const struct lives *l) {
    int64_t kept = p->input, shared = kept_bytes(p, l), at = shared;
    for (int s = 0; s < p->nsteps; s++) {
        struct plan_step *step = &p->steps[s];
        struct plan_tensor *out = &p->tensors[step->out];
        int64_t *from = is_kept(p, l, s) ? &kept : &at;
        if (s && step->stretch != p->steps[s - 1].stretch) at = shared;
        out->y = is_unwritten(p, step) ? -1 : *from;
        *from += output_bytes(p, step);
        step->saved = at;
        at += saved_bytes(p, step);
        step->again = step->stretch + 1 < p->stretches && (!is_kept(p, l, s) || step->op->saved_bytes);
        if (step->again) p->again_flops += op_flops(&step->desc, false);
    }
    p->activations = shared + shared_bytes(p, l);
    p->unstretched = p->input + l->all;
}

/* Overflow is checked as if every activation had a place of its own. */
static enum error bytes_check(const struct plan *p) {
    int64_t total = p->input, at;
    for (int s = 0; s < p->nsteps; s++) {
        TRY(plan_place(p, &total, output_bytes(p, &p->steps[s]), &at));
        TRY(plan_place(p, &total, saved_bytes(p, &p->steps[s]), &at));
    }
    return ERR_NONE;
}

enum error plan_stretches(struct plan *p, int stretches) {
    size_t steps = (size_t)p->nsteps;
    struct lives l = {.last = calloc((size_t)p->ntensors, sizeof *l.last),
                      .crossing = calloc(steps, sizeof *l.crossing),
                      .own = calloc(steps, sizeof *l.own)};
    enum error err =
        l.last && l.crossing && l.own ? ERR_NONE : FAIL(ERR_MEMORY, "cannot allocate a plan of %d steps", p->nsteps);
    if (err == ERR_NONE) err = bytes_check(p);
    if (err == ERR_NONE) {
        lives_find(p, &l);
        p->stretches = cut_all(p, &l, stretches == STRETCHES_AUTO ? cut_best(p, &l) : stretches);
        places_give(p, &l);
    }
    free(l.last);
    free(l.crossing);
    free(l.own);
    return err;
}
