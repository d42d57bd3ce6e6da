/* After a loss: what the ranks that are left hold is the last step that has ended, since a step changes neither weights
 * nor the optimizer's state before all of its gradients have landed (sharing.rescues). Rank 0 saves it, so that the run
 * goes on from there and not from its last checkpoint. Nobody else does: the losses' digest and metrics.jsonl are rank
 * 0's, and so are the buffers (the first shard's statistics).
 *
 * Buffers are the exception: forward changes them. Those of the step before are kept aside. */
#include "engine/train/run.h"

#include "engine/base/log.h"
#include "engine/device/runtime.h"
#include "engine/settings/run_config.h"

static size_t buffer_bytes(const struct trainer *t) {
    return (size_t)t->model->buffer_floats * sizeof(float);
}

enum error rescue_open(struct trainer *t) {
    void *memory;
    if (!t->config->sharing.rescues || t->rank > 0 || !buffer_bytes(t)) return ERR_NONE;
    TRY(device_alloc(t->device, buffer_bytes(t), &memory));
    t->arena.buffers_before = memory;
    return ERR_NONE;
}

static enum error copy_buffers(struct trainer *t, float *to, const float *from) {
    struct device *d = t->device;
    return t->arena.buffers_before ? device_runtime(d)->copy(d, LANE_COMPUTE, to, d, from, buffer_bytes(t)) : ERR_NONE;
}

enum error rescue_begin_step(struct trainer *t) {
    return copy_buffers(t, t->arena.buffers_before, t->arena.buffers);
}

/* A target that a training metric reaches is known when the step has been settled, and not to a run that goes on. */
static bool is_worth(const struct run *r) {
    const struct trainer *t = r->t;
    if (!t->config->sharing.rescues || !r->saver || t->at.step <= r->first_step || t->at.step <= r->saved) return false;
    return !r->stopped && !r->timed_out && !r->reached && !r->tired && (r->settled || !t->config->train.until_metric);
}

static enum error rescue_checkpoint(struct run *r) {
    struct trainer *t = r->t;
    if (r->settled) TRY(copy_buffers(t, t->arena.buffers, t->arena.buffers_before)); /* it was lost within a step */
    t->at.rescued = true;
    metrics_flush(r->metrics); /* whoever waits for what is saved may not wait for more */
    TRY(saver_save(r->saver, false));
    return saver_wait(r->saver);
}

void rescue_save(struct run *r) {
    if (!is_worth(r)) return;
    if (rescue_checkpoint(r) == ERR_NONE)
        log_info("step %lld, the last that has ended, is saved", (long long)r->t->at.step);
    else
        log_warn("the last step that has ended could not be saved: %s", error_message());
}
