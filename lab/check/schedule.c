/* Cases of schedules (engine/plugin.h), each on instances that a seed draws: what a schedule says must be possible, and its
 * cost is measured as a multiple of the least one that is possible.
 *
 *   buckets   seconds from the end of backward to the end of the last message; least: over all cuts, by induction over
 *             the layers, since a lane that is free earlier is never worse
 *   answer    the end of the slowest worker's forward. That is the largest, over all answers, of when one has come and
 *             what its worker still computes from there on; with pieces that take as long as each other and come to the
 *             server at whole multiples of that, to send first what has most left to compute is the best (Jackson's rule)
 *   stage     the end of the last backward; least: (batches + stages - 1) (forward + backward). And activations that a
 *             stage holds; least: as many as there are stages from it on, or batches
 *   weight    updates until a bowl's distance stays below a hundredth; least: by one weight for all updates, out of many */
#include "lab/check/check.h"

#include "engine/base/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { INSTANCES = 200 };
struct drawing {
    const struct check *check;
    const struct plugin *plugin;
    const struct engine_schedule *of;
    bool held; /* of stages: what they hold, not how long they take */
};

static double draw_unit(const struct drawing *d, int instance, int what) {
    return (double)rng_float(rng_key((uint64_t)d->check->seed, RNG_TEST), (uint64_t)instance, (uint64_t)what);
}

static int draw_whole(const struct drawing *d, int instance, int what, int least, int most) {
    return least + (int)(draw_unit(d, instance, what) * (most - least + 1));
}

/* As likely between 1 and 2 as between 100 and 200. */
static double draw_scale(const struct drawing *d, int instance, int what, double least, double most) {
    return least * pow(most / least, draw_unit(d, instance, what));
}

/* ---- buckets ---- */

enum { LAYERS_MOST = 24 };
struct backward {
    struct engine_backward of;
    double ready[LAYERS_MOST], bytes[LAYERS_MOST];
};

static void backward_draw(const struct drawing *d, int instance, struct backward *b) {
    double at = 0;
    b->of = (struct engine_backward){.layers = draw_whole(d, instance, 0, 1, LAYERS_MOST),
                                     .ready = b->ready,
                                     .bytes = b->bytes,
                                     .alpha = draw_scale(d, instance, 1, 20e-6, 5e-3),
                                     .beta = draw_scale(d, instance, 2, 8e-10, 8e-8)};
    for (int i = 0; i < b->of.layers; i++) {
        b->ready[i] = at += draw_scale(d, instance, 10 + i, 0.2e-3, 5e-3);
        b->bytes[i] = floor(draw_scale(d, instance, 50 + i, 1e3, 4e6));
    }
}

static double backward_exposed(const struct engine_backward *b, const uint8_t *ends) {
    double lane = 0, bytes = 0;
    for (int i = 0; i < b->layers; i++) {
        bytes += b->bytes[i];
        if (!ends[i]) continue;
        lane = fmax(lane, b->ready[i]) + b->alpha + b->beta * bytes;
        bytes = 0;
    }
    return lane - b->ready[b->layers - 1];
}

static double backward_least(const struct engine_backward *b) {
    double lane[LAYERS_MOST + 1] = {0};
    for (int end = 1; end <= b->layers; end++) {
        double bytes = 0;
        lane[end] = INFINITY;
        for (int begin = end - 1; begin >= 0; begin--) {
            bytes += b->bytes[begin];
            lane[end] = fmin(lane[end], fmax(lane[begin], b->ready[end - 1]) + b->alpha + b->beta * bytes);
        }
    }
    return lane[b->layers] - b->ready[b->layers - 1];
}

static void check_buckets(void *user) {
    const struct drawing *d = user;
    double worst = 0;
    for (int i = 0; i < INSTANCES; i++) {
        struct backward b;
        backward_draw(d, i, &b);
        int n = b.of.layers;
        uint8_t *ends = guarded_alloc((size_t)n, "the ends of buckets");
        for (int k = 0; k < n; k++) ends[k] = 0;
        check_note("backward %d, of %d layers", i, n);
        plugin_enter(d->plugin, "buckets");
        d->of->buckets(&b.of, ends);
        plugin_leave();
        guarded_check(ends, "the ends of buckets");
        for (int k = 0; k < n; k++)
            if (ends[k] > 1) check_wrong("backward %d: ends[%d] is %d, and neither 0 nor 1", i, k, (int)ends[k]);
        if (!ends[n - 1]) check_wrong("backward %d, of %d layers: no bucket ends with the last one, which stays", i, n);
        worst = fmax(worst, backward_exposed(&b.of, ends) / backward_least(&b.of));
        guarded_free(ends);
    }
    check_measured(worst);
}

/* ---- answers ---- */

enum { WORKERS_MOST = 4, ANSWERS_MOST = 8 * WORKERS_MOST };
struct answers {
    struct engine_answers of;
    int32_t here[ANSWERS_MOST], left[ANSWERS_MOST];
    double forward[ANSWERS_MOST];
    int comes[ANSWERS_MOST]; /* when what is sent comes to be at the server */
};

/* Backward gives the last layers first, and one worker later than another. */
static void answers_draw(const struct drawing *d, int instance, struct answers *a) {
    int workers = draw_whole(d, instance, 0, 1, WORKERS_MOST), layers = draw_whole(d, instance, 1, 2, 8);
    a->of = (struct engine_answers){workers, layers, 0, a->here, a->left, a->forward};
    for (int w = 0; w < workers; w++)
        for (int i = layers - 1, at = draw_whole(d, instance, 2 + w, 0, 6); i >= 0; i--) {
            int k = w * layers + i;
            a->comes[k] = at += draw_whole(d, instance, 100 + k, 0, 3);
            a->left[k] = draw_whole(d, instance, 200 + k, 1, 5);
            a->forward[k] = draw_whole(d, instance, 300 + k, 0, 24) * 0.25;
        }
}

static double answers_still_computes(const struct engine_answers *a, int k) {
    double seconds = a->forward[k];
    while (++k % a->layers) seconds += a->forward[k];
    return seconds;
}

static int32_t answers_best(const struct engine_answers *a) {
    int32_t best = -1;
    for (int32_t k = 0; k < a->workers * a->layers; k++)
        if (a->here[k] && (best < 0 || answers_still_computes(a, k) > answers_still_computes(a, best))) best = k;
    return best;
}

/* Brings what has come by now; gives when the next comes, INFINITY: nothing does. */
static double answers_arrive(struct answers *a) {
    double next = INFINITY;
    for (int k = 0; k < a->of.workers * a->of.layers; k++) {
        bool there = a->comes[k] <= a->of.now;
        a->here[k] = there ? a->left[k] : 0;
        if (!there) next = fmin(next, a->comes[k]);
    }
    return next;
}

static int32_t answers_ask(const struct drawing *d, int instance, const struct engine_answers *a) {
    check_note("instance %d, %d workers and %d layers, time %g", instance, (int)a->workers, (int)a->layers, a->now);
    plugin_enter(d->plugin, "answer");
    int32_t k = d->of->answer(a);
    plugin_leave();
    if (k < -1 || k >= a->workers * a->layers)
        check_wrong("instance %d, %d workers and %d layers: there is no answer %d", instance, (int)a->workers,
                    (int)a->layers, (int)k);
    if (k >= 0 && !a->here[k])
        check_wrong("instance %d, time %g: it sends worker %d layer %d, of which %s", instance, a->now,
                    (int)(k / a->layers), (int)(k % a->layers),
                    a->left[k] ? "nothing has come yet" : "nothing is left");
    return k;
}

/* The end of the last forward. d NULL: by the best rule. */
static double answers_run(const struct drawing *d, int instance, struct answers a) {
    double end = 0;
    a.of.here = a.here, a.of.left = a.left, a.of.forward = a.forward;
    for (;;) {
        bool some = false, waits = false;
        double next = answers_arrive(&a);
        for (int k = 0; k < a.of.workers * a.of.layers; k++) some = some || a.left[k], waits = waits || a.here[k];
        if (!some) return end;
        int32_t k = !waits ? -1 : d ? answers_ask(d, instance, &a.of) : answers_best(&a.of);
        if (k < 0 && isinf(next))
            check_wrong("instance %d, time %g: it waits, and nothing more will come", instance, a.of.now);
        a.of.now = k < 0 ? next : a.of.now + 1;
        if (k >= 0 && --a.left[k] == 0) end = fmax(end, a.of.now + answers_still_computes(&a.of, k));
    }
}

static void check_answers(void *user) {
    const struct drawing *d = user;
    double worst = 0;
    for (int i = 0; i < INSTANCES; i++) {
        struct answers a;
        answers_draw(d, i, &a);
        worst = fmax(worst, answers_run(d, i, a) / answers_run(NULL, i, a));
    }
    check_measured(worst);
}

/* ---- a pipeline ---- */

enum { STAGES_MOST = 8, BATCHES_MOST = 16 };
struct pipeline {
    int stages, batches;
    double forward, backward;
    int32_t order[STAGES_MOST][2 * BATCHES_MOST];
    double ended[STAGES_MOST][2][BATCHES_MOST]; /* forwards, backwards; below 0: not yet */
    double free[STAGES_MOST];
    int done[STAGES_MOST];
};

static void pipeline_check_order(const struct pipeline *p, int stage, const int32_t *order) {
    bool seen[2][BATCHES_MOST] = {{false}};
    for (int i = 0; i < 2 * p->batches; i++) {
        int batch = abs(order[i]) - 1, back = order[i] < 0;
        if (batch < 0 || batch >= p->batches)
            check_wrong("%d stages, %d micro-batches: stage %d has %d as its task %d", p->stages, p->batches, stage,
                        (int)order[i], i);
        if (seen[back][batch])
            check_wrong("%d stages, %d micro-batches: stage %d has the %s of micro-batch %d twice", p->stages,
                        p->batches, stage, back ? "backward" : "forward", batch + 1);
        if (back && !seen[0][batch])
            check_wrong("%d stages, %d micro-batches: stage %d has the backward of micro-batch %d before its forward",
                        p->stages, p->batches, stage, batch + 1);
        seen[back][batch] = true;
    }
}

static void pipeline_ask(const struct drawing *d, struct pipeline *p) {
    size_t bytes = (size_t)(2 * p->batches) * sizeof(int32_t);
    for (int s = 0; s < p->stages; s++) {
        int32_t *order = guarded_alloc(bytes, "the order");
        memset(order, 0, bytes);
        check_note("stage %d of %d, %d micro-batches", s, p->stages, p->batches);
        plugin_enter(d->plugin, "stage");
        d->of->stage(s, p->stages, p->batches, order);
        plugin_leave();
        guarded_check(order, "the order");
        pipeline_check_order(p, s, order);
        memcpy(p->order[s], order, bytes);
        guarded_free(order);
    }
}

/* Runs the next task of a stage, if what it needs has ended. */
static bool pipeline_advance(struct pipeline *p, int s) {
    if (p->done[s] == 2 * p->batches) return false;
    int32_t task = p->order[s][p->done[s]];
    int batch = abs(task) - 1, from = task > 0 ? s - 1 : s + 1;
    double needs = from < 0 || from == p->stages ? 0 : p->ended[from][task < 0][batch];
    if (needs < 0) return false;
    p->free[s] = fmax(p->free[s], needs) + (task > 0 ? p->forward : p->backward);
    p->ended[s][task < 0][batch] = p->free[s];
    p->done[s]++;
    return true;
}

static double pipeline_run(struct pipeline *p) {
    double end = 0;
    bool more = true;
    for (int s = 0; s < p->stages; s++)
        for (int b = 0; b < p->batches; b++) p->ended[s][0][b] = p->ended[s][1][b] = -1;
    while (more) {
        more = false;
        for (int s = 0; s < p->stages; s++) more = pipeline_advance(p, s) || more;
    }
    for (int s = 0; s < p->stages; s++) {
        int32_t task = p->done[s] < 2 * p->batches ? p->order[s][p->done[s]] : 0;
        if (task)
            check_wrong("%d stages, %d micro-batches: stage %d waits for ever to compute the %s of micro-batch %d",
                        p->stages, p->batches, s, task > 0 ? "forward" : "backward", abs(task));
        end = fmax(end, p->free[s]);
    }
    return end;
}

static double pipeline_holds(const struct pipeline *p) {
    double worst = 0;
    for (int s = 0; s < p->stages; s++) {
        int held = 0, most = 0, least = p->stages - s < p->batches ? p->stages - s : p->batches;
        for (int i = 0; i < 2 * p->batches; i++) {
            held += p->order[s][i] > 0 ? 1 : -1;
            most = held > most ? held : most;
        }
        worst = fmax(worst, (double)most / least);
    }
    return worst;
}

/* All of few stages and batches, and some more by the seed. */
static void check_stages(void *user) {
    const struct drawing *d = user;
    double worst = 0;
    for (int i = 0; i < INSTANCES; i++) {
        struct pipeline p = {.stages = i < 16 ? 1 + i % 4 : draw_whole(d, i, 0, 1, STAGES_MOST),
                             .batches = i < 16 ? 1 + i / 4 : draw_whole(d, i, 1, 1, BATCHES_MOST),
                             .forward = 1,
                             .backward = draw_scale(d, i, 2, 0.5, 4)};
        pipeline_ask(d, &p);
        double end = pipeline_run(&p), least = (p.batches + p.stages - 1) * (p.forward + p.backward);
        worst = fmax(worst, d->held ? pipeline_holds(&p) : end / least);
    }
    check_measured(worst);
}

/* ---- weights of late gradients ---- */

enum { AGE_MOST = 32, UPDATES_MOST = 20000 };
static const double flattest = 0.2; /* curvature; the steepest has 1 */

/* Updates by gradients of that age until both directions of a bowl stay below a hundredth of their beginning;
 * UPDATES_MOST: they do not. */
static int late_updates(int age, double step) {
    int most = 0;
    for (int k = 0; k < 2; k++) {
        double x[AGE_MOST + 1], curve = k ? flattest : 1, now = 1;
        int last = 0, size = age + 1;
        for (int i = 0; i < size; i++) x[i] = 1;
        for (int t = 0; t < UPDATES_MOST && fabs(now) < 1e6 && t < last + 1000; t++) {
            now -= step * curve * x[(t + 1) % size]; /* of 'age' updates ago */
            x[(t + 1) % size] = now;
            if (fabs(now) > 0.01) last = t + 1;
        }
        if (!(fabs(now) < 0.01)) last = UPDATES_MOST;
        most = last > most ? last : most;
    }
    return most;
}

static double late_limit(int age) {
    return 2 * sin(M_PI / (2 * (2 * age + 1)));
}

static int late_least(int age, double step) {
    enum { TRIED = 60 };
    int least = UPDATES_MOST;
    for (int i = 1; i < TRIED; i++) {
        int n = late_updates(age, fmin(step, late_limit(age) * i / TRIED));
        least = n < least ? n : least;
    }
    return least;
}

static double late_ask(const struct drawing *d, int age, double step) {
    check_note("age %d, step %.3g", age, step);
    plugin_enter(d->plugin, "weight");
    double w = d->of->weight(age, step);
    plugin_leave();
    if (!(w >= 0 && w <= 1)) check_wrong("age %d, step %.3g: a weight of %g, and not from 0 to 1", age, step, w);
    return w;
}

static void check_late(void *user) {
    const struct drawing *d = user;
    double worst = 0;
    for (int i = 0; i < INSTANCES / 5; i++) {
        int age = i < 4 ? i : draw_whole(d, i, 0, 1, AGE_MOST);
        double step = draw_scale(d, i, 1, 0.05, 1), w = late_ask(d, age, step);
        if (age == 0 && w < 1) check_wrong("step %.3g: a gradient that is not late has a weight of %g", step, w);
        if (late_ask(d, age + 1, step) > w)
            check_wrong("step %.3g: a gradient of age %d has a larger weight than one of age %d", step, age + 1, age);
        int updates = late_updates(age, w * step);
        if (updates == UPDATES_MOST)
            check_wrong("age %d, step %.3g: with a weight of %.4g nothing is learned, %s", age, step, w,
                        w * step < late_limit(age) ? "it is too small" : "it diverges");
        worst = fmax(worst, (double)updates / late_least(age, step));
    }
    check_measured(worst);
}

/* ---- all of them ---- */

static void schedule_case(struct check *c, const char *what, void (*fn)(void *user), struct drawing *d, double *cost) {
    if (check_case(c, what, fn, d)) *cost = fmax(*cost, c->measured);
}

void check_schedule(struct check *c, const struct plugin *p) {
    struct drawing d = {c, p, p->of->schedule, false}, held = {c, p, p->of->schedule, true};
    if (d.of->buckets) schedule_case(c, "buckets of a backward", check_buckets, &d, &c->cost);
    if (d.of->answer) schedule_case(c, "answers of a server", check_answers, &d, &c->cost);
    if (d.of->stage) schedule_case(c, "stages of a pipeline", check_stages, &d, &c->cost);
    if (d.of->stage && !c->wrong) schedule_case(c, "what stages hold", check_stages, &held, &c->held);
    if (d.of->weight) schedule_case(c, "weights of late gradients", check_late, &d, &c->cost);
}
