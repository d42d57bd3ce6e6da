/* Conformance of an algorithm, a compressor, an optimizer, a share or a schedule: of a plug-in (engine check), and of the engine's own rows.
 * Each case runs in a process of its own, whose ranks are threads, so that a crash, a deadlock or an endless loop is a
 * finding like any other, and names what was tried when it happened. */
#pragma once
#include "engine/base/plugin.h"

#include <stdio.h>

enum { CHECK_SIZES = 17, CHECK_WORDS = 1024, SHARE_RANKS = 8, SHARE_MEETINGS = 6 };
struct check {
    const char *name; /* an algorithm's name, or a plug-in's path */
    FILE *out;        /* where a line for each case goes; NULL: nowhere */
    double timeout;   /* seconds that a rank may wait for another, or stay in a plug-in */
    int sizes;        /* of groups, from 1 to so many */
    int passed, wrong;
    double measured;             /* by the last case that passed: check_measured */
    int64_t seed;                /* of what a schedule is tried on */
    double cost, held;           /* of a schedule, by the least possible: the largest */
    double left;                 /* of a share: the part of the ranks' differences that SHARE_MEETINGS of them leave */
    char first[3 * CHECK_WORDS]; /* what was wrong first */
};
/* All parts of a plug-in. ERR_RESULT: something is wrong; other errors: it could not be tried. */
MUST_CHECK enum error check_plugin(struct check *c);
/* What an all-reduce by this algorithm takes one after another, by what it asks for: so many latencies of a link, and so many
 * times the buffer through a port. */
MUST_CHECK enum error check_cost(const char *name, int ranks, double *latencies, double *buffers);
/* Each adds to passed and wrong. */
void check_algorithm(struct check *c);
void check_compressor(struct check *c, const struct engine_compressor *coder, const struct plugin *plugin);
void check_share(struct check *c, const struct plugin *p);
void check_schedule(struct check *c, const struct plugin *p);
void check_optimizer(struct check *c, const struct engine_optimizer *optimizer, const struct plugin *plugin);

/* ---- for the cases (check.c) ---- */

/* Runs fn in a process of its own and notes what came of it. Whether it passed. */
bool check_case(struct check *c, const char *what, void (*fn)(void *user), void *user);
/* In a case, any thread: this is wrong; ends the case. */
_Noreturn void check_wrong(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* In a case, any thread: what is tried now, for a case that does not come to its end: "3 ranks, 17 elements of f32". */
void check_note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* In a case: the number that it measures. */
void check_measured(double value);

/* Memory of n bytes that ends where no memory is: a write past the end is a crash, which says so. What lies before it is
 * compared by guarded_check. 'what' names it, static. */
void *guarded_alloc(size_t n, const char *what);
void guarded_check(const void *p, const char *what);
void guarded_free(void *p);
/* Bytes that the process has allocated and not freed. */
size_t check_heap(void);
/* Calls fn often and fails the case if memory grows with each call. */
void check_leaks(void (*fn)(void *user), void *user);
/* An input of many magnitudes, so that another order rounds otherwise. */
float check_value(int rank, int64_t i);
static inline const double *check_standards(const struct plugin *p, double value[ENGINE_PARAMETERS]) {
    for (int i = 0; p && i < plugin_parameters(p->of); i++) value[i] = p->of->parameters[i].standard;
    return value;
}
