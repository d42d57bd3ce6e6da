/* The interface between the parts of plug-ins in Python: a python3 of their own serves them (plugin_python.py), which is
 * started (plugin_child.c) to say what the file has (plugin_python.c), to plan an all-reduce, once for each size of group
 * (plugin_plan.c), to encode and decode (plugin_coder.c), or for a schedule (plugin_schedule.c). What it answers is checked as if it could be anything. */
#pragma once
#include "engine/base/plugin.h"

#include <pthread.h>
#include <sys/types.h>
#include <sys/uio.h>

struct python_plan;
struct python {
    const char *path; /* the plug-in's */
    char *source;     /* what its digest is of, and what runs */
    size_t length;
    pthread_mutex_t lock; /* of all below */
    int fd;               /* to the child */
    pid_t child, owner;   /* owner: the process that has started it; a fork starts its own */
    char *answer;         /* the last one, with a NUL after it */
    size_t room;
    struct python_plan *plans;
    struct python_rooms { /* bytes that codes of so many floats take, with these values of the parameters */
        int n;
        int64_t floats[32], bytes[32];
        double value[ENGINE_PARAMETERS];
    } rooms;
    struct engine_plugin of;
    struct engine_algorithm algorithm;
    struct engine_compressor compressor;
    struct engine_schedule schedule;
    struct engine_parameter parameter[ENGINE_PARAMETERS + 1];
    char words[ENGINE_PARAMETERS + 1][128]; /* names of parameters; then what it is */
};

enum python_what { PYTHON_DESCRIBE, PYTHON_PLAN, PYTHON_ROOM, PYTHON_ENCODE, PYTHON_DECODE, PYTHON_SCHEDULE };
enum python_schedule { SCHEDULE_BUCKETS, SCHEDULE_ANSWER, SCHEDULE_STAGE, SCHEDULE_WEIGHT };
struct question {
    enum python_what what;
    struct iovec part[3];
    size_t least, most; /* bytes that the answer may have */
    enum error err;     /* where the plug-in is wrong */
};
/* Asks, and starts the child where there is none; *n bytes are in p->answer. Errors name the file and the line. */
MUST_CHECK enum error child_ask(struct python *p, const struct question *q, size_t *n);
void child_end(struct python *p);
/* Runs the file once, to fill in p->of. p: path and source are. */
MUST_CHECK enum error python_describe(struct python *p);

/* Of the guest: asks by itself, in turn with other threads; python3 has deadlines of its own. An error ends the process, as
 * it would in a plug-in in C. */
void python_turn(enum error (*ask)(struct python *p, void *call), void *call);

/* ---- the functions of p->of ---- */
/* has: which functions, a bit for each of python_schedule. */
struct engine_schedule schedule_of(int has);
int plan_all_reduce(struct engine_call *c);
void plan_declare(int32_t rank, int32_t size, int64_t count, struct engine_plan *out);
int64_t coder_bytes(const struct engine_packet *p, int64_t n);
void coder_encode(const struct engine_packet *p, float *x, int64_t n, void *wire);
void coder_add(const struct engine_packet *p, const void *wire, float *sum, int64_t n);
