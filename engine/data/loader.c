/* The loader. A ring of 'depth' slots holds the steps to come, numbered 0, 1, 2, ... from where it
 * was opened; step q uses slot q mod depth. Filling a step is cut into parts (at most PART samples
 * of one shard), which the workers take in order, so that several share a big shard and none waits
 * for a whole step. What a part gives depends on nothing but its place.
 *
 *         limit = given + depth
 *           v
 *   ... | q+2 | q+1 |  q  | -> loader_next
 *        ^     filled
 *       next part
 *
 * A worker, under the lock, takes the first that it finds of: the next part, if its slot is free
 * (step < limit) and the order of its epoch is there; the order of an epoch to come. Else it sleeps
 * until half of the slots are free or an order is done: to be woken costs the caller as much as a small batch.
 *
 * The order of the epoch after the one being filled is computed ahead, in the second of two arrays,
 * as soon as the epoch before has left it. One lock guards all but the parts' own work; a part
 * holds it for some tens of nanoseconds. */
#include "engine/data/loader.h"

#include "engine/base/clock.h"
#include "engine/base/thread.h"
#include "engine/data/transform.h"

#include <assert.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PART = 32, FAILURE_TEXT = 1024 };
struct part {
    int shard; /* index into this rank's */
    int64_t first;
};
struct slot {
    struct step_batch batch;
    void *memory;   /* of all that its shards point to */
    int64_t filled; /* the step that it holds whole; -1: none */
    int left;       /* parts that are still to be filled */
};
struct order {
    int64_t *index; /* position -> sample */
    int64_t epoch;  /* -1: none */
    int users;      /* parts being filled by it */
};
struct worker {
    struct loader *loader;
    pthread_t thread;
    void *raw;              /* one sample, as the set gives it */
    float *partner, *value; /* where samples are mixed: the other one and its target; else NULL */
};
struct loader {
    struct dataset *data;
    struct sampler sampler;
    struct transform transform;
    bool training, fractions;
    struct allocator memory; /* of batches */
    int64_t steps, end;      /* of an epoch; number of steps to give */
    int depth, nparts, nworkers;
    struct part *parts; /* of a step */
    struct slot *slots;
    struct worker *workers;

    pthread_mutex_t lock;             /* guards what follows, and the slots' filled and left */
    pthread_cond_t work, ready, more; /* more: workers that may work */
    bool stop;
    int active;                  /* workers that may work; the others sleep */
    int64_t given, limit;        /* steps given; steps that may be filled */
    int64_t epoch, step, number; /* of the next part to fill */
    int part;
    struct order orders[2]; /* of even and of odd epochs; index NULL: no shuffling */
    int64_t next_order;     /* epoch to compute an order for */
    bool ordering;          /* some worker is at it */
    struct {                /* the first failure in the order of steps and parts */
        enum error err;
        int64_t step;
        int part;
        char text[FAILURE_TEXT];
    } failure;
};

/* ---- filling a part: no lock is held ---- */
struct task {
    struct slot *slot;
    int64_t number; /* of the step */
    int part;
    struct order *order;
};

struct place { /* of a sample: its number in the set, and the visit's counter */
    int64_t index;
    uint64_t id;
};

static struct place place_at(const struct loader *l, const struct task *t, int64_t position) {
    int64_t before = l->training ? t->slot->batch.epoch * sampler_total(&l->sampler) : 0;
    int64_t index = t->order->index ? t->order->index[position] : position % l->sampler.size;
    return (struct place){index, (uint64_t)(before + position)};
}

static enum error fractions_check(const struct loader *l, int64_t index, const float *target) {
    for (int64_t k = 0; l->fractions && target && k < l->data->targets; k++)
        if (!(target[k] >= 0 && target[k] <= 1))
            return FAIL(ERR_DATA, "sample %lld of '%s' has the target %g, and loss bce is of targets from 0 to 1",
                        (long long)index, l->data->name, (double)target[k]);
    return ERR_NONE;
}

/* One sample's input, classes and target. */
static enum error sample_read(struct worker *w, struct place p, float *x, int32_t *labels, float *target) {
    const struct loader *l = w->loader;
    int32_t unused;
    TRY(transform_read(&l->transform, l->data, p.index, p.id, w->raw, labels ? labels : &unused, target));
    TRY(fractions_check(l, p.index, target));
    if (target) transform_target(&l->transform, target, l->data->targets);
    transform_apply(&l->transform, l->data, w->raw, p.id, x);
    return ERR_NONE;
}

static enum error sample_fill(struct worker *w, struct shard *s, int64_t i, struct place p) {
    const struct dataset *d = w->loader->data;
    s->ids[i] = p.id;
    return sample_read(w, p, s->x + i * shape_count(&d->shape), s->labels ? s->labels + i * d->labels : NULL,
                       s->target ? s->target + i * d->targets : NULL);
}

/* Sample i, which is there, becomes a mixture with this one; the label of which there is more comes first. */
static enum error sample_mix(struct worker *w, struct shard *s, int64_t i, struct place p, const struct mixing *m) {
    const struct dataset *d = w->loader->data;
    TRY(sample_read(w, p, w->partner, s->others ? &s->others[i] : NULL, s->target ? w->value : NULL));
    mixing_apply(m, &d->shape, s->x + i * shape_count(&d->shape), w->partner);
    if (s->target) mixing_blend(m, s->target + i * d->targets, w->value, d->targets);
    if (!s->others) return ERR_NONE;
    s->shares[i] = (float)(m->part < 0.5 ? 1 - m->part : m->part);
    if (m->part >= 0.5) return ERR_NONE;
    int32_t label = s->labels[i];
    s->labels[i] = s->others[i];
    s->others[i] = label;
    return ERR_NONE;
}

static enum error part_fill(struct worker *w, const struct task *t) {
    const struct loader *l = w->loader;
    const struct step_batch *b = &t->slot->batch;
    const struct part *p = &l->parts[t->part];
    const struct transform *f = &l->transform;
    const struct mixing mix = mixing_draw(&f->augment, f->mixing_key, b->epoch, b->step, &l->data->shape);
    struct shard *s = &b->shards[p->shard];
    int64_t end = p->first + PART < s->n ? p->first + PART : s->n;
    int64_t begin = sampler_position(&l->sampler, b->step, 0, 0);
    for (int64_t i = p->first; i < end; i++) {
        int64_t position = sampler_position(&l->sampler, b->step, s->index, i);
        TRY(sample_fill(w, s, i, place_at(l, t, position)));
        if (mix.kind == MIX_NONE) continue;
        int64_t partner = begin + mixing_partner(position - begin, b->samples);
        TRY(sample_mix(w, s, i, place_at(l, t, partner), &mix));
    }
    return ERR_NONE;
}

void shards_place(struct step_batch *b, const struct sampler *s, const struct dataset *d) {
    for (int i = 0; i < b->nshards; i++) {
        struct shard *to = &b->shards[i];
        const struct shard *before = i ? to - 1 : NULL;
        to->n = sampler_shard_size(s, b->step, to->index);
        if (!before) continue;
        to->x = before->x + before->n * shape_count(&d->shape);
        to->ids = before->ids + before->n;
        if (to->labels) to->labels = before->labels + before->n * d->labels;
        if (to->others) to->others = before->others + before->n * d->labels;
        if (to->shares) to->shares = before->shares + before->n;
        if (to->target) to->target = before->target + before->n * d->targets;
    }
}

/* ---- what workers do: the lock is held on entry and on return ---- */
static bool part_ready(const struct loader *l) {
    const struct order *o = &l->orders[l->epoch & 1];
    return l->number < l->limit && l->number < l->end && (!o->index || o->epoch == l->epoch);
}

/* Gives the slot the loader's next step, of which no part is read yet. */
static void slot_begin(struct loader *l, struct slot *s) {
    struct step_batch *b = &s->batch;
    b->epoch = l->epoch;
    b->step = l->step;
    b->samples = sampler_batch_size(&l->sampler, l->step);
    shards_place(b, &l->sampler, l->data);
    s->left = l->nparts;
}

static struct task part_take(struct loader *l) {
    struct task t = {&l->slots[l->number % l->depth], l->number, l->part, &l->orders[l->epoch & 1]};
    if (l->part == 0) slot_begin(l, t.slot);
    t.order->users++;
    if (++l->part < l->nparts) return t;
    l->part = 0;
    l->number++;
    if (++l->step == l->steps) l->step = 0, l->epoch++;
    return t;
}

static void failure_note(struct loader *l, enum error err, const struct task *t) {
    bool later = t->number > l->failure.step || (t->number == l->failure.step && t->part > l->failure.part);
    if (l->failure.err != ERR_NONE && later) return;
    l->failure.err = err;
    l->failure.step = t->number;
    l->failure.part = t->part;
    snprintf(l->failure.text, sizeof l->failure.text, "%s\n%s", error_message(), error_hint());
}

static void part_run(struct worker *w) {
    struct loader *l = w->loader;
    struct task t = part_take(l);
    pthread_mutex_unlock(&l->lock);
    enum error err = part_fill(w, &t);
    pthread_mutex_lock(&l->lock);
    if (err != ERR_NONE) failure_note(l, err, &t);
    t.order->users--;
    if (--t.slot->left > 0) return;
    t.slot->filled = t.number;
    pthread_cond_signal(&l->ready);
}

static bool order_wanted(const struct loader *l) {
    const struct order *o = &l->orders[l->next_order & 1];
    return o->index && !l->ordering && l->next_order <= l->epoch + 1 && o->users == 0;
}

static void order_next_epoch(struct loader *l) {
    struct order *o = &l->orders[l->next_order & 1];
    l->ordering = true;
    pthread_mutex_unlock(&l->lock);
    sampler_order(&l->sampler, l->next_order, o->index);
    pthread_mutex_lock(&l->lock);
    o->epoch = l->next_order++;
    l->ordering = false;
    pthread_cond_broadcast(&l->work);
}

static void *worker_main(void *arg) {
    struct worker *w = arg;
    struct loader *l = w->loader;
    pthread_mutex_lock(&l->lock);
    while (!l->stop)
        if (w - l->workers >= l->active)
            pthread_cond_wait(&l->more, &l->lock);
        else if (part_ready(l))
            part_run(w);
        else if (order_wanted(l))
            order_next_epoch(l);
        else
            pthread_cond_wait(&l->work, &l->lock);
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

/* ---- opening ---- */
/* The largest that the rank's i-th shard gets: at the first step. */
static int64_t shard_most(const struct loader *l, int shard) {
    return sampler_shard_size(&l->sampler, 0, shard);
}

static enum error parts_create(struct loader *l, const int *shards, int nshards) {
    int64_t count = 0, k = 0;
    for (int i = 0; i < nshards; i++) count += (shard_most(l, shards[i]) + PART - 1) / PART;
    count = count ? count : 1; /* shards that are always empty still make steps */
    if (count > INT32_MAX || !(l->parts = calloc((size_t)count, sizeof *l->parts)))
        return FAIL(ERR_MEMORY, "no memory for batches of %lld samples", (long long)l->sampler.batch);
    for (int i = 0; i < nshards; i++)
        for (int64_t first = 0; first < shard_most(l, shards[i]); first += PART)
            l->parts[k++] = (struct part){i, first};
    l->nparts = (int)count;
    return ERR_NONE;
}

/* Adds n things of 'each' bytes to a block of *bytes; *at is where they begin, aligned. */
static enum error block_add(size_t *bytes, int64_t n, size_t each, size_t *at) {
    size_t more;
    TRY(memory_size((size_t)n, each, "a batch", &more));
    *at = align_bytes(*bytes);
    if (__builtin_add_overflow(*at, more, bytes) || *bytes > SIZE_MAX / 2)
        return FAIL(ERR_MEMORY, "a batch does not fit in memory");
    return ERR_NONE;
}

static enum error slot_init(const struct loader *l, struct slot *s, const int *shards, int nshards) {
    const struct dataset *d = l->data;
    size_t bytes = 0, x, labels, others, shares, target, ids;
    int64_t n = 0;
    bool mixed = d->classes && mixing_on(&l->transform.augment);
    s->filled = -1;
    for (int i = 0; i < nshards; i++) n += shard_most(l, shards[i]);
    TRY(block_add(&bytes, n, (size_t)shape_count(&d->shape) * sizeof(float), &x));
    TRY(block_add(&bytes, n, (size_t)d->labels * sizeof(int32_t), &labels));
    TRY(block_add(&bytes, mixed ? n : 0, (size_t)d->labels * sizeof(int32_t), &others));
    TRY(block_add(&bytes, mixed ? n : 0, sizeof(float), &shares));
    TRY(block_add(&bytes, n, (size_t)d->targets * sizeof(float), &target));
    TRY(block_add(&bytes, n, sizeof(uint64_t), &ids));
    TRY(l->memory.alloc(l->memory.ctx, bytes, &s->memory));
    TRY_MEMORY(s->batch.shards = memory_new((size_t)nshards * sizeof *s->batch.shards));
    s->batch.nshards = nshards;
    char *base = s->memory;
    for (int i = 0; i < nshards; i++)
        s->batch.shards[i] = (struct shard){.index = shards[i],
                                            .x = (float *)(base + x),
                                            .labels = d->classes ? (int32_t *)(base + labels) : NULL,
                                            .others = mixed ? (int32_t *)(base + others) : NULL,
                                            .shares = mixed ? (float *)(base + shares) : NULL,
                                            .target = d->classes ? NULL : (float *)(base + target),
                                            .ids = (uint64_t *)(base + ids)};
    return ERR_NONE;
}

static enum error orders_create(struct loader *l) {
    if (!l->sampler.shuffle) return ERR_NONE;
    size_t bytes;
    TRY(memory_size((size_t)sampler_room(&l->sampler), sizeof(int64_t), "the order of samples", &bytes));
    for (int i = 0; i < 2; i++) TRY_MEMORY(l->orders[i].index = memory_new(bytes));
    return ERR_NONE;
}

static enum error worker_init(const struct loader *l, struct worker *w) {
    size_t x = (size_t)align_floats(shape_count(&l->data->shape));
    TRY(memory_alloc(dataset_sample_bytes(l->data), &w->raw));
    if (!mixing_on(&l->transform.augment)) return ERR_NONE;
    TRY_MEMORY(w->partner = memory_new((x + (size_t)l->data->targets) * sizeof(float)));
    w->value = w->partner + x;
    return ERR_NONE;
}

static enum error workers_start(struct loader *l, int count) {
    if (!(l->workers = calloc((size_t)count + 1, sizeof *l->workers)))
        return FAIL(ERR_MEMORY, "no memory for %d threads", count);
    for (int i = 0; i < count; i++) TRY(worker_init(l, &l->workers[i]));
    int code = 0;
    for (; l->nworkers < count && code == 0; l->nworkers += code == 0) {
        struct worker *w = &l->workers[l->nworkers];
        w->loader = l;
        code = thread_start(&w->thread, worker_main, w);
    }
    return code == 0 ? ERR_NONE : FAIL(ERR_MEMORY, "cannot start a loader thread: %s", strerror(code));
}

/* Sets the position at which the loader begins, and that at which it ends. */
static enum error position_init(struct loader *l, const struct loader_params *p) {
    l->steps = sampler_steps(&l->sampler);
    if (l->steps == 0)
        return FAIL(ERR_CONFIG, "no step in an epoch: drop_last, and batch %lld is larger than %lld samples",
                    (long long)l->sampler.batch, (long long)l->sampler.size);
    l->epoch = p->epoch + (p->training ? p->step / l->steps : 0);
    l->step = p->training ? p->step % l->steps : p->step;
    l->end = p->training ? INT64_MAX : l->steps - p->step;
    l->next_order = l->epoch;
    l->limit = l->depth;
    return ERR_NONE;
}

int loader_cores(void) {
    enum { MOST = 16 };
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    return n < MOST ? n : MOST;
}

static enum error loader_init(struct loader *l, const struct loader_params *p) {
    struct normalization norm;
    if (!p->norm) TRY(normalization_find(p->data, p->config, &norm));
    TRY(transform_init(&l->transform, p->data, p->config, p->norm ? p->norm : &norm, p->training, p->sampler.seed));
    TRY(position_init(l, p));
    TRY(parts_create(l, p->shards, p->nshards));
    TRY(orders_create(l));
    if (!(l->slots = calloc((size_t)l->depth, sizeof *l->slots)))
        return FAIL(ERR_MEMORY, "no memory for %d batches", l->depth);
    for (int i = 0; i < l->depth; i++) TRY(slot_init(l, &l->slots[i], p->shards, p->nshards));
    l->active = p->workers ? p->workers : 1;
    return workers_start(l, p->workers ? p->workers : loader_cores());
}

enum error loader_open(const struct loader_params *p, struct loader **out) {
    assert(p->nshards >= 1 && p->workers >= 0 && p->depth >= 1 && p->sampler.size <= p->data->size);
    struct loader *l = calloc(1, sizeof *l);
    if (!l) return FAIL(ERR_MEMORY, "no memory for a loader");
    l->data = p->data;
    l->sampler = p->sampler;
    l->training = p->training;
    l->fractions = p->config->fractions;
    l->memory = p->memory ? *p->memory : allocator_heap;
    l->depth = p->depth;
    l->orders[0].epoch = l->orders[1].epoch = -1;
    if (!p->training) l->sampler.shuffle = l->sampler.drop_last = false;
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->work, NULL);
    pthread_cond_init(&l->ready, NULL);
    pthread_cond_init(&l->more, NULL);
    enum error err = loader_init(l, p);
    if (err != ERR_NONE) {
        loader_close(l);
        return err;
    }
    *out = l;
    return ERR_NONE;
}

/* ---- giving ---- */
/* Waits until a slot is filled. A caller that has to wait, other than for the first step, wakes one more worker, if there is
 * one that sleeps. */
static void wait_for(struct loader *l, const struct slot *s) {
    enum { SHORT_NS = 100000 };
    if (s->filled == l->given) return;
    int64_t begin = clock_ns();
    while (s->filled != l->given) pthread_cond_wait(&l->ready, &l->lock);
    int64_t waited = clock_ns() - begin;
    if (waited < SHORT_NS || l->given == 0 || l->active == l->nworkers) return;
    l->active++;
    pthread_cond_broadcast(&l->more);
}

void loader_take_back(struct loader *l) {
    pthread_mutex_lock(&l->lock);
    int64_t limit = l->given + l->depth;
    bool wakes = l->limit < limit && 2 * (limit - l->number) >= l->depth;
    l->limit = limit;
    pthread_mutex_unlock(&l->lock);
    if (wakes) pthread_cond_broadcast(&l->work);
}

enum error loader_next(struct loader *l, const struct step_batch **out) {
    *out = NULL;
    if (l->given >= l->end) return ERR_NONE;
    struct slot *s = &l->slots[l->given % l->depth];
    loader_take_back(l);
    pthread_mutex_lock(&l->lock);
    wait_for(l, s);
    bool failed = l->failure.err != ERR_NONE && l->failure.step <= l->given;
    if (!failed) l->given++;
    pthread_mutex_unlock(&l->lock);
    if (failed) return FAIL(l->failure.err, "%s", l->failure.text);
    *out = &s->batch;
    return ERR_NONE;
}

double loader_seconds(const struct loader *l) {
    double sum = 0;
    for (int i = 0; i < l->nworkers; i++) {
        clockid_t clock;
        struct timespec used;
        if (pthread_getcpuclockid(l->workers[i].thread, &clock) == 0 && clock_gettime(clock, &used) == 0)
            sum += (double)used.tv_sec + 1e-9 * (double)used.tv_nsec;
    }
    return sum;
}

void loader_close(struct loader *l) {
    if (!l) return;
    pthread_mutex_lock(&l->lock);
    l->stop = true;
    pthread_cond_broadcast(&l->work);
    pthread_cond_broadcast(&l->more);
    pthread_mutex_unlock(&l->lock);
    for (int i = 0; i < l->nworkers; i++) pthread_join(l->workers[i].thread, NULL);
    for (int i = 0; l->workers && l->workers[i].raw; i++) {
        memory_free(l->workers[i].raw);
        memory_free(l->workers[i].partner);
    }
    for (int i = 0; l->slots && i < l->depth; i++) {
        l->memory.free(l->memory.ctx, l->slots[i].memory);
        memory_free(l->slots[i].batch.shards);
    }
    for (int i = 0; i < 2; i++) memory_free(l->orders[i].index);
    free(l->workers);
    free(l->slots);
    free(l->parts);
    pthread_mutex_destroy(&l->lock);
    pthread_cond_destroy(&l->work);
    pthread_cond_destroy(&l->ready);
    pthread_cond_destroy(&l->more);
    free(l);
}
