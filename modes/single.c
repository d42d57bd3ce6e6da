/* single: one device, no communication. The control of every experiment: what dp and ddp must equal
 * bit for bit.
 *
 *   step   compute -> update
 */
#include "engine/base/clock.h"
#include "engine/train/trainer.h"

struct mode {
    struct trainer *t;
};

static enum error single_launch(const struct job *job, int *exit_code) {
    *exit_code = 0;
    return trainer_run(job, 0, NULL);
}

static enum error single_open(struct trainer *t, struct mode **out) {
    void *m;
    TRY(memory_alloc(sizeof(struct mode), &m));
    *out = m;
    (*out)->t = t;
    t->ranks = t->workers = 1;
    t->worker = 0;
    t->owns_state = true;
    return trainer_open_device(t);
}

static enum error single_start(struct mode *m) {
    (void)m;
    return ERR_NONE;
}

static enum error single_step(struct mode *m) {
    struct trainer *t = m->t;
    TRY(trainer_compute(t, NULL, NULL));
    int64_t mark = clock_ns();
    TRY(trainer_update_all(t));
    trainer_phase(t, PHASE_UPDATE, &mark);
    return ERR_NONE;
}

static enum error single_sum(struct mode *m, double *v, int n) {
    (void)m, (void)v, (void)n;
    return ERR_NONE;
}

static void single_abort(struct mode *m, const char *reason) {
    (void)m, (void)reason;
}

static void single_note(struct mode *m, const char *doing, int64_t step) {
    (void)m, (void)doing, (void)step;
}

static void single_stats(struct mode *m, struct mode_stats *out) {
    (void)m;
    *out = (struct mode_stats){0};
}

static const char *single_describe(struct mode *m) {
    (void)m;
    return "no communication";
}

static void single_close(struct mode *m) {
    memory_free(m);
}

const struct mode_ops mode_single = {
    .name = "single",
    .summary = "one device: the control of every experiment",
    .launch = single_launch,
    .open = single_open,
    .start = single_start,
    .step = single_step,
    .sum = single_sum,
    .share_buffers = single_start,
    .collect = single_start,
    .abort = single_abort,
    .note = single_note,
    .stats = single_stats,
    .describe = single_describe,
    .close = single_close,
};
