/* A schedule in Python, as the functions that one in C has: each call is one question, of numbers that say which function
 * and what it is given, and one answer of numbers. What is no whole number of its range becomes one that no schedule may
 * have. */
#include "engine/base/plugin_python.h"

#include <stdlib.h>
#include <string.h>

enum { NEVER = 1 << 30 };
struct schedule_call { /* numbers: which, then what the function is given */
    double *in, *out;
    size_t nin, nout;
};

static enum error schedule_ask(struct python *p, void *call) {
    struct schedule_call *c = call;
    size_t n, bytes = c->nout * sizeof *c->out;
    const struct question q = {PYTHON_SCHEDULE, {{c->in, c->nin * sizeof *c->in}}, bytes, bytes, ERR_BUG};
    TRY(child_ask(p, &q, &n));
    memcpy(c->out, p->answer, bytes);
    return ERR_NONE;
}

/* Room for so many numbers in, of which the caller has filled in the first, and out. */
static struct schedule_call schedule_open(enum python_schedule which, size_t nin, size_t nout) {
    struct schedule_call c = {calloc(1 + nin + nout, sizeof(double)), NULL, 1 + nin, nout};
    if (!c.in) abort();
    c.in[0] = which;
    c.out = c.in + c.nin;
    return c;
}

static int32_t schedule_whole(double x, double least, double most) {
    int32_t whole = x >= least && x <= most ? (int32_t)x : NEVER;
    return (double)whole == x ? whole : NEVER;
}

static void schedule_buckets(const struct engine_backward *b, uint8_t *ends) {
    size_t n = (size_t)b->layers;
    struct schedule_call c = schedule_open(SCHEDULE_BUCKETS, 2 + 2 * n, n);
    c.in[1] = b->alpha, c.in[2] = b->beta;
    memcpy(c.in + 3, b->ready, n * sizeof(double));
    memcpy(c.in + 3 + n, b->bytes, n * sizeof(double));
    python_turn(schedule_ask, &c);
    for (size_t i = 0; i < n; i++) {
        int32_t end = schedule_whole(c.out[i], 0, 1);
        ends[i] = (uint8_t)(end == NEVER ? UINT8_MAX : end);
    }
    free(c.in);
}

static int32_t schedule_answer(const struct engine_answers *a) {
    size_t n = (size_t)(a->workers * a->layers);
    struct schedule_call c = schedule_open(SCHEDULE_ANSWER, 2 + 3 * n, 1);
    c.in[1] = a->now, c.in[2] = a->layers;
    for (size_t i = 0; i < n; i++) {
        double *to = c.in + 3 + i;
        to[0] = a->here[i], to[n] = a->left[i], to[2 * n] = a->forward[i];
    }
    python_turn(schedule_ask, &c);
    int32_t answer = schedule_whole(c.out[0], -1, NEVER);
    free(c.in);
    return answer;
}

static void schedule_stage(int32_t stage, int32_t stages, int32_t batches, int32_t *order) {
    struct schedule_call c = schedule_open(SCHEDULE_STAGE, 3, 2 * (size_t)batches);
    c.in[1] = stage, c.in[2] = stages, c.in[3] = batches;
    python_turn(schedule_ask, &c);
    for (size_t i = 0; i < c.nout; i++) order[i] = schedule_whole(c.out[i], -batches, batches);
    free(c.in);
}

static double schedule_weight(int32_t age, double step) {
    struct schedule_call c = schedule_open(SCHEDULE_WEIGHT, 2, 1);
    c.in[1] = age, c.in[2] = step;
    python_turn(schedule_ask, &c);
    double weight = c.out[0];
    free(c.in);
    return weight;
}

struct engine_schedule schedule_of(int has) {
    return (struct engine_schedule){.buckets = has >> SCHEDULE_BUCKETS & 1 ? schedule_buckets : NULL,
                                    .answer = has >> SCHEDULE_ANSWER & 1 ? schedule_answer : NULL,
                                    .stage = has >> SCHEDULE_STAGE & 1 ? schedule_stage : NULL,
                                    .weight = has >> SCHEDULE_WEIGHT & 1 ? schedule_weight : NULL};
}
