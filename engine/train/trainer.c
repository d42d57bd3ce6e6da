/* Opening and closing a rank's engine, and the small services that modes call. The loop is in
 * loop.c, the gradients in compute.c. */
#include "engine/save/init.h"
#include "engine/settings/run_config.h"
#include "engine/tell/score.h"
#include "engine/train/internal.h"
#include "engine/train/job_check.h"
#include "engine/train/stop.h"

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/device/runtime.h"
#include "engine/optim/plugin.h"
#include "engine/optim/schedule.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void trainer_phase(struct trainer *t, enum phase phase, int64_t *mark) {
    int64_t now = clock_ns();
    t->phase_ns[phase] += now - *mark - t->waited_ns;
    t->phase_ns[PHASE_COMM] += t->waited_ns;
    t->waited_ns = 0;
    if (t->trace) trace_span(t->trace, (enum trace_kind)phase, TRACE_COMPUTE, *mark, now);
    *mark = now;
}

void trainer_note(struct trainer *t, const char *doing) {
    device_note(t->device, doing, t->at.step);
    t->job->mode->step->note(t->mode, doing, t->at.step);
}

/* ---- the end ---- */
double trainer_budget(const struct trainer *t) {
    const struct config_span *length = &t->config->train.length;
    return length->unit == SPAN_SECONDS ? length->value : (double)INFINITY;
}

bool trainer_wants_end(const struct trainer *t) {
    return stop_signal() != 0 || t->at.seconds + clock_seconds(clock_ns() - t->began) >= trainer_budget(t);
}

/* ---- sums that ride in the header ---- */
struct step_sums header_sums(const float *h) {
    return (struct step_sums){h[HEADER_LOSS], h[HEADER_CORRECT], h[HEADER_SAMPLES], h[HEADER_STOP] > 0,
                              h[HEADER_SKIPPED] > 0};
}

enum error trainer_put_sums(struct trainer *t) {
    float *h = t->header;
    h[HEADER_LOSS] = t->sums.loss;
    h[HEADER_CORRECT] = t->sums.correct;
    h[HEADER_SAMPLES] = t->sums.samples;
    h[HEADER_STOP] = t->sums.stop;
    h[HEADER_SKIPPED] = t->sums.skipped;
    return device_write(t->device, t->arena.values, h, sizeof t->header);
}

void trainer_set_sums(struct trainer *t, const struct step_sums *sums) {
    t->sums = *sums;
}

void trainer_count_updates(struct trainer *t, int64_t more) {
    t->rate.updates = more;
}

enum error trainer_get_sums(struct trainer *t) {
    float h[HEADER_FLOATS];
    TRY(device_read(t->device, h, t->arena.values, sizeof h));
    t->sums = header_sums(h);
    return ERR_NONE;
}

/* ---- data ---- */
enum error trainer_open_loader(struct trainer *t, const int *shards, int nshards, struct loader **out) {
    struct loader_params p = {.data = t->feed.data,
                              .config = &t->config->data,
                              .norm = &t->feed.norm,
                              .sampler = t->feed.sampler,
                              .shards = shards,
                              .nshards = nshards,
                              .training = true,
                              .workers = (int)t->config->data.workers,
                              .depth = 4,
                              .epoch = t->at.epoch,
                              .step = t->at.step_in_epoch};
    const struct allocator near = device_host_allocator(t->device);
    p.memory = &near;
    cpu_set_t bound;
    affinity_free(&bound);
    enum error err = loader_open(&p, out);
    affinity_restore(&bound);
    return err;
}

static enum error check_metric(const struct trainer *t, const char *key, const char *name) {
    const struct metric *m = name ? metric_find(name) : NULL;
    const char *why = m ? m->lacks(t->feed.data, &t->config->loss) : NULL;
    if (!why) return ERR_NONE;
    return FAIL(ERR_CONFIG, "%s: there is no %s: %s", key, name, why);
}

/* A run that goes on holds out what it held out before. Ranks that are threads ask at once. */
static enum error split_keep(const struct trainer *t, struct data_config *data) {
    int64_t was = data->split;
    struct pool *pool;
    if (!t->job->resume) return ERR_NONE;
    TRY(pool_create(&pool));
    if (checkpoint_split(t->job->resume, pool, &was) && was != data->split && was != SPLIT_END && t->rank == 0)
        log_warn("data.split: this run keeps %lld, the checkpoint's, as otherwise it would validate on what it was "
                 "trained on",
                 (long long)was);
    data->split = was;
    pool_free(pool);
    return ERR_NONE;
}

/* Rank 0 measures the data for all. A check measures those of files, which may fail, and not what the engine draws. */
static bool sets_are_measured(const struct trainer *t, bool check) {
    const struct node *given = t->config->data.normalize;
    return t->rank == 0 && (!check || t->feed.data->ops->recognises || (given && given->kind == NODE_MAP));
}

static enum error open_sets(struct trainer *t, bool check) {
    const struct run_config *c = t->config;
    struct data_config data = c->data;
    TRY(split_keep(t, &data));
    TRY(dataset_open(&data, true, (uint64_t)c->seed, &t->feed.data));
    TRY(dataset_open(&data, false, (uint64_t)c->seed, &t->feed.val));
    if (t->job->norm && !t->job->resume) return t->feed.norm = *t->job->norm, ERR_NONE;
    if (sets_are_measured(t, check)) return normalization_find(t->feed.data, &c->data, &t->feed.norm);
    return ERR_NONE;
}

/* Opens only the set to evaluate, for a network that knows its data. */
static enum error open_known(struct trainer *t) {
    const struct run_config *c = t->config;
    t->feed.data = &t->job->known->set.base;
    t->feed.norm = t->job->known->norm;
    TRY(normalization_check(t->feed.data, &c->data, &t->feed.norm));
    if (t->job->task == JOB_ASK) return ERR_NONE;
    TRY(dataset_open_like(&c->data, t->job->on_train, (uint64_t)c->seed, t->feed.data, &t->feed.val));
    return t->job->on_train ? ERR_NONE : data_check_held(t, t->feed.val);
}

static enum error open_data(struct trainer *t, bool check) {
    const struct run_config *c = t->config;
    TRY(t->job->known ? open_known(t) : open_sets(t, check));
    TRY(criterion_open(t));
    TRY(check_metric(t, "train.until", c->train.until_metric));
    TRY(check_metric(t, "train.patience", c->train.patience_metric));
    TRY(check_metric(t, "checkpoint.best", c->checkpoint.best));
    if (!t->job->known) TRY(sample_weights_open(&c->data, t->feed.data, &t->feed.weights));
    const struct dataset *counted = t->job->known ? t->feed.val : t->feed.data;
    t->feed.sampler = (struct sampler){.size = counted ? counted->size : 1,
                                       .batch = c->batch.size,
                                       .shards = (int)c->batch.shards,
                                       .shuffle = c->data.order != DATA_ORDER_FILE,
                                       .pytorch = c->data.order == DATA_ORDER_PYTORCH,
                                       .seed = (uint64_t)c->seed,
                                       .pad = c->batch.pad,
                                       .upto = t->feed.weights.upto,
                                       .drop_last = c->batch.drop_last && !t->job->known,
                                       .frozen = inject_mistake(c) == MISTAKE_NO_SET_EPOCH};
    t->per_epoch = sampler_steps(&t->feed.sampler);
    if (t->per_epoch == 0)
        return FAIL(ERR_CONFIG, "batch %lld is larger than the %lld training samples, and drop_last is set",
                    (long long)c->batch.size, (long long)t->feed.data->size);
    t->steps = span_steps(c->train.length, t->per_epoch);
    int64_t stop = span_steps(c->train.stop, t->per_epoch);
    t->stop = stop > 0 && stop < t->steps ? stop : t->steps;
    return ERR_NONE;
}

static void data_close(struct trainer *t) {
    sample_weights_close(&t->feed.weights);
    dataset_close(t->feed.val);
    dataset_close(t->feed.data);
    memory_free(t->feed.class_memory);
}

static enum error open_model(struct trainer *t, struct config_errors *errors) {
    const struct dataset *d = t->feed.data;
    int64_t outputs = d->classes ? d->classes : d->targets, rows = d->classes ? d->labels : 1;
    TRY(model_create(t->config->model, &d->shape, outputs, errors, &t->model));
    const struct shape *y = &t->model->output;
    char text[96];
    if (shape_last(y) == outputs && shape_count(y) == rows * outputs) return tensors_choose(t, errors);
    if (rows > 1)
        return FAIL(ERR_CONFIG,
                    "model '%s' gives %s outputs, but data '%s' has %lld classes at each of %lld positions\ntake a "
                    "model of sequences, such as gpt-mini",
                    t->model->name, shape_text(y, text), d->name, (long long)outputs, (long long)rows);
    return FAIL(ERR_CONFIG,
                "model '%s' gives %s outputs, but data '%s' has %lld %s\nthe last layer must give that many outputs "
                "for a sample, as linear: $classes does",
                t->model->name, shape_text(y, text), d->name, (long long)outputs, d->classes ? "classes" : "targets");
}

static enum error open_checked_model(struct trainer *t) {
    struct config_errors *errors;
    TRY(config_errors_create(&errors));
    enum error err = open_model(t, errors);
    config_errors_free(errors);
    return err;
}

static double lr_factor(const struct run_config *c) {
    double ratio = (double)c->batch.size / (double)c->lr_scale.base;
    return c->lr_scale.rule == LR_SCALE_LINEAR ? ratio : c->lr_scale.rule == LR_SCALE_SQRT ? sqrt(ratio) : 1.0;
}

static enum error alloc_floats(const struct allocator *a, int64_t n, float **out) {
    void *p;
    TRY(a->alloc(a->ctx, (size_t)n * sizeof(float), &p));
    *out = p;
    return ERR_NONE;
}

/* Opens the arenas of shards that are computed together, one each: of arena.grads where a subtree that leaves begins. */
static enum error open_members(struct trainer *t) {
    const struct allocator own = device_allocator(t->device);
    int from = trainer_leaf(t, t->standing.run), next = 0, subtree = 0;
    TRY_MEMORY(t->feed.members = memory_new((size_t)t->feed.nshards * sizeof *t->feed.members));
    for (int i = 0; i < t->feed.nshards; i++) {
        bool leaves = i == next && (i == 0 || t->standing.subtrees);
        t->feed.members[i] = (struct graph_member){.shard = t->feed.shards[i]};
        if (leaves)
            t->feed.members[i].grads = t->arena.grads[subtree++];
        else
            TRY(alloc_floats(&own, t->model->arena_floats, &t->feed.members[i].grads));
        if (i == next) next += leaves_subtree(from + i, from + t->feed.nshards);
    }
    return ERR_NONE;
}

static bool member_has_own(const struct trainer *t, int i) {
    for (int k = 0; k < GRAD_ARENAS; k++)
        if (t->feed.members[i].grads == t->arena.grads[k]) return false;
    return true;
}

static void close_members(struct trainer *t) {
    for (int i = 0; t->feed.members && i < t->feed.nshards; i++)
        if (member_has_own(t, i)) device_free(t->device, t->feed.members[i].grads);
    memory_free(t->feed.members);
}

int trainer_sums_held(const struct trainer *t) {
    int n = t->arena.leaving;
    for (int d = n; d < GRAD_ARENAS; d++) n += t->arena.grads[d] != NULL;
    for (int i = 0; t->feed.members && i < t->feed.nshards; i++) n += member_has_own(t, i);
    return n;
}

/* Opens the arenas of the gradients that leave; they lie side by side, equally many on every rank. */
static enum error open_leaving(struct trainer *t) {
    int most = 1;
    int64_t n = t->model->arena_floats;
    for (int w = 0; t->standing.subtrees && w < t->standing.runs; w++) {
        int count = leaves_subtrees(trainer_leaf(t, w), trainer_leaf(t, w + 1));
        if (count > most) most = count;
    }
    if (most > 1) t->arena.apart = (n + ALIGN_FLOATS - 1) / ALIGN_FLOATS * ALIGN_FLOATS;
    TRY(alloc_floats(&t->standing.allocator, t->arena.apart * (most - 1) + n, &t->arena.grads[0]));
    for (int k = 1; k < most; k++) t->arena.grads[k] = t->arena.grads[0] + k * t->arena.apart;
    t->arena.leaving = most;
    return ERR_NONE;
}

static enum error open_arenas(struct trainer *t) {
    const struct allocator own = t->standing.part ? allocator_sparse : device_allocator(t->device);
    int64_t n = t->model->arena_floats;
    if (t->standing.allocator.alloc == allocator_heap.alloc) t->standing.allocator = own;
    TRY(alloc_floats(&t->standing.allocator, n, &t->arena.values));
    TRY(alloc_floats(&t->standing.allocator, t->model->buffer_floats + ALIGN_FLOATS, &t->arena.buffers));
    if (t->job->task == JOB_ASK) return ERR_NONE;
    TRY(open_leaving(t));
    for (int i = 0; i < t->feed.nlaps && !t->config->sync_batchnorm; i++) {
        float **grads = &t->arena.grads[t->feed.laps[i].top];
        if (!*grads) TRY(alloc_floats(&own, n, grads));
    }
    if (t->config->batch.accumulate > 1) TRY(alloc_floats(&own, n, &t->arena.grads[GRAD_ARENAS - 1]));
    if (t->config->sync_batchnorm) TRY(open_members(t));
    if (t->config->ema.decay > 0 && t->job->task == JOB_TRAIN)
        TRY(alloc_floats(&t->standing.allocator, n, &t->arena.average));
    if (t->standing.outer && t->job->task == JOB_TRAIN) TRY(alloc_floats(&own, n, &t->arena.outer));
    return ERR_NONE;
}

/* Every batch that the run will meet is planned now, so that no step has to: the first of an epoch and the last. */
static enum error prepare_sizes(struct trainer *t) {
    struct shard *shards = memory_new((size_t)t->feed.nshards * sizeof *shards);
    enum error err = ERR_NONE;
    if (!shards) return ERR_MEMORY;
    for (int end = 0; end < 2 && !err; end++) {
        const struct step_batch b = {.step = end ? t->per_epoch - 1 : 0, .nshards = t->feed.nshards, .shards = shards};
        for (int i = 0; i < b.nshards; i++)
            shards[i] = (struct shard){.index = t->feed.shards[i],
                                       .n = sampler_shard_size(&t->feed.sampler, b.step, t->feed.shards[i])};
        err = compute_prepare(t, &b);
    }
    memory_free(shards);
    return err;
}

static enum error open_shards(struct trainer *t) {
    size_t n = (size_t)trainer_shards(t, t->standing.run, NULL);
    TRY_MEMORY(t->feed.shards = memory_new(n * sizeof *t->feed.shards));
    TRY_MEMORY(t->feed.laps = memory_new(n * sizeof *t->feed.laps));
    t->feed.nshards = trainer_shards(t, t->standing.run, t->feed.shards);
    return ERR_NONE;
}

/* A rank that is late reports why before the others, which wait for comm.timeout, give it up. */
static const double PATIENCE = 0.8;

/* Finds the accelerator of the device with this index. A launcher counts ranks, not what each of them sees:
 * all, or one of its own. */
static enum error find_unit(const struct trainer *t, const struct device_ops *ops, int index, int *out) {
    const struct run_config *c = t->config;
    const struct device_choice *d = &c->devices;
    int units;
    *out = t->standing.worker < 0 ? d->server : d->listed ? d->unit[index % d->listed] : index;
    if (t->standing.worker < 0 || d->listed || !c->launched.by || !ops->units) return ERR_NONE;
    TRY(ops->units(&units));
    *out = index % units;
    return ERR_NONE;
}

enum error trainer_open_device(struct trainer *t) {
    const struct run_config *c = &t->job->settings->config;
    const struct device_choice *d = &c->devices;
    const struct device_ops *ops = device_find(d->kind);
    bool serves = t->standing.worker < 0;
    if (serves && (!ops->runtime->apart || c->sharing.on_host)) return ERR_NONE;
    bool together = t->standing.seats == 0;
    int index = together ? (serves ? 0 : t->standing.worker) : t->standing.seat;
    struct device_params p = {.index = index,
                              .count = together ? t->standing.workers : t->standing.seats,
                              .threads = (int)c->threads,
                              .timeout = c->comm.timeout * PATIENCE,
                              .no_winograd = !c->winograd,
                              .pin =
                                  (together ? t->standing.workers : t->standing.seats) > 1 && !getenv("ENGINE_NO_PIN")};
    TRY(find_unit(t, ops, index, &p.unit));
    return ops->open(&p, &t->device);
}

static enum error compute_open(struct trainer *t) {
    if (t->standing.worker < 0) return ERR_NONE;
    const struct run_config *c = t->config;
    TRY(open_shards(t));
    TRY(graph_create(t->model, t->device, (enum loss)c->loss.index, (enum precision)c->precision, &t->graph));
    graph_freeze(t->graph, t->tensors.frozen, !c->sync_batchnorm);
    graph_stretches(t->graph, (int)c->recompute);
    graph_source(t->graph, t->standing.source);
    compute_plan(t);
    if (t->standing.part) graph_part(t->graph, &t->part, t->standing.ends);
    TRY(graph_hold(t->graph, compute_held(t)));
    TRY(criterion_give(t));
    if (t->job->task != JOB_TRAIN) return ERR_NONE;
    if (c->cuda.graph == CUDA_GRAPH_AUTO) TRY(graph_record(t->graph));
    TRY(timers_open(t));
    return prepare_sizes(t);
}

void trainer_view(struct trainer *t, struct checkpoint_view *v) {
    *v = (struct checkpoint_view){.model = t->model,
                                  .device = t->device,
                                  .values = t->arena.values,
                                  .buffers = t->arena.buffers,
                                  .average = t->arena.average,
                                  .outer = t->arena.outer,
                                  .nslots = t->arena.nslots,
                                  .slot_names = t->optim->slot_names,
                                  .optim = t->optim,
                                  .counters = &t->at,
                                  .scaled = scaling_on(t),
                                  .patience = t->config->train.patience_metric,
                                  .target = t->config->train.until_metric,
                                  .data = t->feed.data_text,
                                  .any_data = t->config->checkpoint.data == DATA_ANY,
                                  .run_id = t->run_id,
                                  .mode = t->config->mode,
                                  .devices = t->config->devices.count,
                                  .set = t->feed.data,
                                  .norm = &t->feed.norm};
    bool sliced = !update_is_whole(t); /* the saver then has the state brought to it */
    for (int i = 0; i < t->arena.nslots; i++) v->slots[i] = sliced ? t->arena.whole[i] : t->arena.slots[i];
    v->identity = trainer_identity(t->job);
}

enum error trainer_share_average(struct trainer *t) {
    if (t->averaged == t->at.step) return ERR_NONE;
    t->averaged = t->at.step;
    return t->job->mode->step->share_average(t->mode);
}

enum error trainer_values(const struct trainer *t, const float *arena, const float **values, void **copy) {
    const void *view;
    TRY(device_view(t->device, arena, (size_t)t->model->arena_floats * sizeof **values, &view, copy));
    *values = view;
    return ERR_NONE;
}

/* Whether there is a checkpoint to say, or to ask, what the data were. */
static bool wants_data_text(const struct trainer *t) {
    const struct checkpoint_config *c = &t->config->checkpoint;
    bool saves = span_steps(c->every, t->per_epoch) > 0 || metric_find(c->best) || t->config->sharing.rescues;
    return t->rank == 0 && t->job->task == JOB_TRAIN && (saves || t->job->resume);
}

enum error trainer_open(struct trainer *t) {
    const struct run_config *c = t->config;
    affinity_note();
    t->standing.allocator = allocator_heap;
    t->optim = optim_of(&c->optimizer.kind);
    t->arena.nslots = optim_slots(&c->optimizer.kind);
    TRY(optim_plugin_open(&c->optimizer.groups, &c->optimizer.kind));
    plugin_set_patience(PATIENCE * c->comm.timeout);
    t->rate.growth = lr_factor(c);
    t->rate.base = optim_lr(c->optimizer.kind.config) * t->rate.growth;
    TRY(open_data(t, false));
    if (wants_data_text(t)) TRY(data_identity(t, &t->feed.data_text));
    TRY(open_checked_model(t));
    TRY(t->job->mode->step->open(t, &t->standing, &t->mode));
    t->part = t->standing.part ? *t->standing.part : model_part(t->model, 0, t->model->nnodes);
    TRY(compute_open(t));
    TRY(open_arenas(t));
    if (t->job->task != JOB_ASK) TRY(update_open(t));
    if (t->job->task == JOB_TRAIN) TRY(noise_open(t));
    if (t->job->task == JOB_TRAIN) TRY(answers_open(t));
    TRY(rescue_open(t));
    TRY(trainer_begin(t));
    if (t->feed.nshards > 0 && !c->sharing.brought && t->job->task == JOB_TRAIN)
        TRY(trainer_open_loader(t, t->feed.shards, t->feed.nshards, &t->feed.loader));
    return ERR_NONE;
}

void trainer_close(struct trainer *t) {
    if (t->device && device_wait(t->device) != ERR_NONE) log_debug("%s", error_message());
    loader_close(t->feed.loader);
    if (t->mode) t->job->mode->step->close(t->mode); /* what is in flight when a run fails uses what is freed below */
    timers_close(t);
    graph_free(t->graph);
    update_close(t);
    close_members(t);
    for (int d = t->arena.leaving; d < GRAD_ARENAS; d++) device_free(t->device, t->arena.grads[d]);
    device_free(t->device, t->arena.buffers_before);
    device_free(t->device, t->arena.outer);
    t->standing.allocator.free(t->standing.allocator.ctx, t->arena.average);
    t->standing.allocator.free(t->standing.allocator.ctx, t->arena.buffers);
    t->standing.allocator.free(t->standing.allocator.ctx, t->arena.grads[0]);
    t->standing.allocator.free(t->standing.allocator.ctx, t->arena.values);
    tracing_close(t); /* the mode's communication lane, which has ended, records in it */
    noise_close(t);
    if (t->device) t->device->ops->close(t->device);
    answers_close(t);
    model_free(t->model);
    data_close(t);
    memory_free(t->feed.shards);
    memory_free(t->feed.laps);
}

/* Rank 0 alone reads the file, and not where it may go on from a checkpoint. */
static enum error check_init(const struct trainer *t, struct config_errors *errors) {
    const struct run_config *c = t->config;
    bool fresh = !t->job->resume && !t->job->run_dir && !strcmp(c->checkpoint.resume, "never");
    bool first = c->run.node_rank == 0 && (!c->launched.by || c->launched.rank == 0);
    return fresh && first ? init_check(&c->init, t->model, errors) : ERR_NONE;
}

enum error job_check(const struct job *job, struct config_errors *errors, struct job_facts *out) {
    struct trainer t = {.job = job, .config = &job->settings->config};
    enum error err = open_data(&t, true);
    if (err == ERR_NONE) dataset_tell(t.feed.data, t.feed.val);
    if (err == ERR_NONE) err = open_model(&t, errors);
    if (err == ERR_NONE) err = batches_check(&t);
    if (err == ERR_NONE && job->mode->suits) err = job->mode->suits(t.config, t.model);
    if (err == ERR_NONE) err = check_init(&t, errors);
    if (err == ERR_NONE)
        *out = (struct job_facts){.parameters = t.model->parameters,
                                  .train = t.feed.data->size,
                                  .val = t.feed.val->size,
                                  .steps = t.steps,
                                  .per_epoch = t.per_epoch};
    if (err == ERR_NONE) out->norm = t.feed.norm;
    if (err == ERR_NONE) err = data_digest(&t, out->data);
    model_free(t.model);
    data_close(&t);
    return err;
}
