/* How a rank begins: rank 0 has first weights or a checkpoint, and gives all of it to the others. */
#include "engine/save/init.h"
#include "engine/settings/run_config.h"
#include "engine/train/internal.h"

#include "engine/device/runtime.h"
#include "engine/model/state.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Rank 0's are everybody's; another's would be, if nobody sent them. A rank that only serves has no device. */
static enum error make_values(struct trainer *t, float *values, float *buffers) {
    model_init(t->model, t->device ? t->device->threads : NULL, (uint64_t)t->config->seed + (uint64_t)t->rank, values,
               buffers);
    bool loads = t->rank == 0 && !t->job->resume;
    return loads ? init_load(&t->config->init, t->model, values, buffers) : ERR_NONE;
}

static enum error put_values(struct trainer *t) {
    size_t n = (size_t)t->model->arena_floats * sizeof(float), k = (size_t)t->model->buffer_floats * sizeof(float);
    void *values, *buffers;
    TRY(device_map(t->device, t->arena.values, n, &values));
    enum error err = device_map(t->device, t->arena.buffers, k, &buffers);
    if (err == ERR_NONE) err = device_unmap(t->device, t->arena.buffers, k, buffers, make_values(t, values, buffers));
    return device_unmap(t->device, t->arena.values, n, values, err);
}

/* The mean is of the weights after each update; before the first they stand in for it. */
static enum error average_begin(struct trainer *t) {
    struct device *d = t->device;
    size_t bytes = (size_t)t->model->arena_floats * sizeof(float);
    t->averaged = -1;
    if (!t->arena.average || t->rank > 0 || t->at.step > 0) return ERR_NONE;
    return device_runtime(d)->copy(d, LANE_COMPUTE, t->arena.average, d, t->arena.values, bytes);
}

static enum error first_values(struct trainer *t) {
    struct checkpoint_view v;
    if (t->rank > 0) return ERR_NONE;
    device_note(t->device, t->job->resume ? "loading a checkpoint" : "giving first weights", 0);
    TRY(put_values(t));
    if (!t->job->resume) return ERR_NONE;
    bool state = t->job->task == JOB_TRAIN;
    for (int i = 0; state && !update_is_whole(t) && i < t->arena.nslots; i++) {
        TRY_MEMORY(t->arena.whole[i] =
                       memory_new((size_t)state_place(t->model, t->optim, i, t->model->arena_floats) * sizeof(float)));
    }
    trainer_view(t, &v);
    if (!state) v.nslots = 0;
    if (!v.identity) return ERR_MEMORY;
    TRY(checkpoint_load(t->job->resume, &v));
    if (t->at.step_in_epoch >= t->per_epoch) /* it was of more data, and has come to the end */
        t->at.step_in_epoch = 0, t->at.epoch++;
    return ERR_NONE;
}

static void drop_whole(struct trainer *t) {
    for (int i = 0; i < OPTIM_SLOTS; i++) {
        memory_free(t->arena.whole[i]);
        t->arena.whole[i] = NULL;
    }
}

/* Sixteen digits travel as two numbers that a double holds. */
static void id_split(const char *id, double halves[2]) {
    unsigned high = 0, low = 0;
    if (id && sscanf(id, "%8x%8x", &high, &low) == 2) halves[0] = high, halves[1] = low;
}

static void id_join(const double halves[2], char id[RUN_ID_TEXT]) {
    *id = '\0';
    if (halves[0] > 0 || halves[1] > 0) snprintf(id, RUN_ID_TEXT, "%08x%08x", (unsigned)halves[0], (unsigned)halves[1]);
}

/* Channels of a picture travel with the counters; a table with more columns sends the others after them. The pairs of the
 * targets follow those of the inputs. */
enum { NORM_FIRST = 16 };

static int norm_pairs(const struct normalization *n) {
    return n->channels + n->targets;
}

static void norm_pair(struct normalization *n, int k, float **mean, float **scale) {
    bool target = k >= n->channels;
    *mean = target ? &n->target_mean[k - n->channels] : &n->mean[k];
    *scale = target ? &n->target_scale[k - n->channels] : &n->scale[k];
}

static void norm_put(struct normalization *n, int from, int to, double *out) {
    float *mean, *scale;
    for (int k = from; k < to && k < norm_pairs(n); k++) {
        norm_pair(n, k, &mean, &scale);
        *out++ = (double)*mean, *out++ = (double)*scale;
    }
}

static void norm_get(struct normalization *n, int from, int to, const double *in) {
    float *mean, *scale;
    for (int k = from; k < to && k < norm_pairs(n); k++) {
        norm_pair(n, k, &mean, &scale);
        *mean = (float)*in++, *scale = (float)*in++;
    }
}

static enum error norm_send_rest(struct trainer *t) {
    struct normalization *n = &t->feed.norm;
    double rest[2 * (2 * CHANNELS_MAX - NORM_FIRST)] = {0};
    if (norm_pairs(n) <= NORM_FIRST) return ERR_NONE;
    if (t->rank == 0) norm_put(n, NORM_FIRST, norm_pairs(n), rest);
    TRY(t->job->mode->step->sum(t->mode, rest, 2 * (norm_pairs(n) - NORM_FIRST)));
    norm_get(n, NORM_FIRST, norm_pairs(n), rest);
    return ERR_NONE;
}

/* Whether the folder of this run holds the checkpoint that it began from; it may be another run's. */
static bool is_kept(const struct trainer *t) {
    struct pool *pool = t->job->settings->pool;
    if (!t->job->resume || !t->job->run_dir) return false;
    const char *step = pool_printf(pool, "%s/ckpt/step-%09lld", t->job->run_dir, (long long)t->at.step);
    return step && checkpoint_run_id(step, pool);
}

enum error trainer_begin(struct trainer *t) {
    t->at.best = t->at.best_loss = (double)NAN;
    t->at.loss = (float)NAN;
    sha256_init(&t->at.losses);
    scaling_open(t);
    enum error err = first_values(t);
    if (err == ERR_NONE) err = average_begin(t);
    if (err == ERR_NONE) err = t->job->mode->step->start(t->mode);
    if (err == ERR_NONE) err = device_wait(t->device); /* what is dropped has been read */
    drop_whole(t);
    TRY(err);
    struct checkpoint_counters *c = &t->at;
    const struct log_config *log = &t->config->log;
    enum { ID = 14, PATIENCE = ID + 2, TARGET = PATIENCE + 4, PLAIN = TARGET + 2, NORM = 2 + 2 * NORM_FIRST };
    _Static_assert(sizeof c->patience == 4 * sizeof(double), "it travels as numbers");
    _Static_assert(sizeof c->target == 2 * sizeof(double), "it travels as numbers");
    double at[PLAIN + NORM] = {0};
    if (t->rank == 0)
        at[0] = (double)c->step, at[1] = (double)c->epoch, at[2] = (double)c->step_in_epoch,
        at[3] = (t->job->resume != NULL) + is_kept(t), at[4] = c->loss_scale, at[5] = (double)c->good_steps,
        at[6] = (double)c->skipped, at[9] = c->seconds, at[10] = c->best, at[11] = c->rescued, at[12] = (double)c->loss,
        at[13] = c->best_loss;
    if (t->rank == 0 && tracing_range(t)) at[7] = (double)log->trace_first, at[8] = (double)log->trace_last;
    if (t->rank == 0) {
        id_split(t->job->run_id, at + ID);
        memcpy(at + PATIENCE, &c->patience, sizeof c->patience);
        memcpy(at + TARGET, &c->target, sizeof c->target);
        at[PLAIN] = t->feed.norm.channels, at[PLAIN + 1] = t->feed.norm.targets;
        norm_put(&t->feed.norm, 0, NORM_FIRST, at + PLAIN + 2);
    }
    TRY(t->job->mode->step->sum(t->mode, at, PLAIN + NORM));
    id_join(at + ID, t->run_id);
    memcpy(&c->patience, at + PATIENCE, sizeof c->patience);
    memcpy(&c->target, at + TARGET, sizeof c->target);
    t->feed.norm.channels = (int)at[PLAIN], t->feed.norm.targets = (int)at[PLAIN + 1];
    norm_get(&t->feed.norm, 0, NORM_FIRST, at + PLAIN + 2);
    TRY(norm_send_rest(t));
    c->step = (int64_t)at[0], c->epoch = (int64_t)at[1], c->step_in_epoch = (int64_t)at[2];
    t->resumed = at[3] > 0, t->kept = at[3] > 1;
    c->loss_scale = at[4], c->good_steps = (int64_t)at[5], c->skipped = (int64_t)at[6];
    c->seconds = at[9], c->best = at[10], c->rescued = at[11] > 0, c->loss = (float)at[12];
    c->best_loss = at[13];
    TRY(tracing_open(t, (int64_t)at[7], (int64_t)at[8]));
    bool unsent = inject_mistake(t->config) == MISTAKE_NO_BROADCAST; /* as if mode->start had not */
    return unsent && !t->resumed && t->rank > 0 ? put_values(t) : ERR_NONE;
}
